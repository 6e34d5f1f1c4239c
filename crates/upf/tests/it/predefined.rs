//! Predefined rules, switched on and off by name, end to end.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use crate::fixture::packets::{downlink, udp_between, uplink};
use crate::fixture::{self, N3, N6, Rig, SessionPlan, now};
use kaido_n4::{
    ApplicationId, Cause, Establishment, Modification, Pdr, PdrId, PredefinedName, PredefinedRule, RuleId,
    SdfFilter, Seid, SessionService, UpdatePdr,
};
use kaido_upf::node::{LiveSettings, NamedSettings};

fn name(text: &str) -> PredefinedName {
    PredefinedName(text.into())
}

fn rule(own: &str, precedence: u32, flow: &str, drop: bool) -> PredefinedRule {
    PredefinedRule {
        name: name(own),
        bases: vec![name("base")],
        precedence,
        flows: vec![SdfFilter::parse(flow).unwrap()],
        application: None,
        drop,
    }
}

/// Settings in which these rules have names.
fn naming(predefined: Vec<PredefinedRule>) -> Arc<NamedSettings> {
    Arc::new(NamedSettings { predefined, ..NamedSettings::default() })
}

fn rig() -> Rig {
    let video = PredefinedRule {
        name: name("video"),
        bases: Vec::new(),
        precedence: 5,
        flows: Vec::new(),
        application: Some(ApplicationId("video".into())),
        drop: false,
    };
    let predefined = vec![
        rule("dns", 20, "permit out 17 from any 53 to assigned", false),
        rule("no-mail", 10, "permit out 17 from any 25 to assigned", true),
        video,
    ];
    Rig::with(fixture::with_live(|live| LiveSettings { named: naming(predefined), ..live }))
}

/// The usual session, whose PDRs stand for predefined rules.
fn session(names: &[&str]) -> Establishment {
    let mut request = SessionPlan::ipv4(7).establishment();
    for pdr in &mut request.pdrs {
        pdr.predefined = names.iter().map(|text| name(text)).collect();
    }
    request
}

/// Whether a packet of that remote port passes up, and down.
fn passes(rig: &mut Rig, port: u16) -> (bool, bool) {
    let up = rig.pass(N3, &uplink(1007, &udp_between(("10.60.0.7", 4000), ("8.8.8.8", port), 9)));
    let down = rig.pass(N6, &downlink(&udp_between(("8.8.8.8", port), ("10.60.0.7", 4000), 9)));
    (!up.is_empty(), !down.is_empty())
}

fn update(rig: &mut Rig, seid: Seid, on: &[&str], off: &[&str]) -> Result<(), Cause> {
    let names = |list: &[&str]| list.iter().map(|text| name(text)).collect();
    let updates = [1, 2].map(|id| UpdatePdr {
        id: PdrId(id),
        activate_predefined: names(on),
        deactivate_predefined: names(off),
        ..UpdatePdr::default()
    });
    let change = Modification { update_pdrs: updates.to_vec(), ..Modification::default() };
    rig.upf.modify(seid, &change, now()).map(|_| ()).map_err(|why| why.cause)
}

/// Conformance: TS 29.244 5.19 | Predefined rules and rule bases are switched on and off by name (ADPDP)
#[test]
fn predefined_rules_match_while_they_are_active() {
    let mut rig = rig();
    let seid = rig.upf.establish(&session(&["dns"]), now()).unwrap().seid;
    assert_eq!([53, 25, 80].map(|port| passes(&mut rig, port).0), [true, false, false], "dns alone");
    update(&mut rig, seid, &["base"], &["dns"]).unwrap();
    assert_eq!(
        [53, 25, 80].map(|port| passes(&mut rig, port)),
        [(true, true), (false, false), (false, false)]
    );
    // The last goes: the PDR matches all by itself again.
    update(&mut rig, seid, &[], &["base"]).unwrap();
    assert_eq!(passes(&mut rig, 80), (true, true));
    assert_eq!(update(&mut rig, seid, &[], &["base"]), Err(Cause::RuleCreationOrModificationFailure));
}

/// Conformance: TS 29.244 5.2.1 | Predefined rules and those of the session are tried by one order of precedence
#[test]
fn predefined_rules_take_their_place_by_precedence() {
    let mut rig = rig();
    let mut request = session(&[]);
    let of_base = |id, pdr: &Pdr| Pdr { id: PdrId(id), predefined: vec![name("base")], ..pdr.clone() };
    request.pdrs.extend([of_base(3, &request.pdrs[0]), of_base(4, &request.pdrs[1])]);
    // All that the base does not match passes by the PDRs of precedence 255.
    rig.upf.establish(&request, now()).unwrap();
    assert_eq!([53, 25, 80].map(|port| passes(&mut rig, port).1), [true, false, true]);
}

/// Conformance: TS 29.244 8.2.1 | Unknown Predefined Rule is cause 80, with the element and the rule
#[test]
fn what_is_not_configured_is_refused() {
    let mut rig = rig();
    let why = rig.upf.establish(&session(&["dns", "nothing"]), now()).unwrap_err();
    assert_eq!((why.cause, why.offending_ie), (Cause::UnknownPredefinedRule, Some(106)));
    assert_eq!(why.failed_rule, Some(RuleId::Pdr(PdrId(1))));
    // One that names an application which nobody has described.
    let why = rig.upf.establish(&session(&["video"]), now()).unwrap_err();
    assert_eq!((why.cause, why.offending_ie), (Cause::UnknownApplicationId, Some(24)));
    // Filters of the PDR's own leave no place for those of the node.
    let mut both = session(&["dns"]);
    both.pdrs[0].pdi.sdf_filters = vec![SdfFilter::parse("permit out udp from any to any").unwrap()];
    let why = rig.upf.establish(&both, now()).unwrap_err();
    assert_eq!(
        (why.cause, why.failed_rule),
        (Cause::RuleCreationOrModificationFailure, Some(RuleId::Pdr(PdrId(1))))
    );
    assert!(rig.upf.is_empty());
    let seid = rig.upf.establish(&session(&["dns"]), now()).unwrap().seid;
    assert_eq!(update(&mut rig, seid, &["nothing"], &[]), Err(Cause::UnknownPredefinedRule));
    assert_eq!(passes(&mut rig, 53), (true, true), "nothing of it was applied");
}

/// Has control planes name these rules from now on, and lets all sessions follow.
fn name_anew(rig: &mut Rig, predefined: Vec<PredefinedRule>) {
    rig.upf.set_live(LiveSettings { named: naming(predefined), ..rig.upf.node().live() });
    while rig.upf.is_recompiling() {
        rig.upf.poll_events(now(), 100);
    }
}

#[test]
fn sessions_follow_rules_that_change() {
    let mut rig = rig();
    let seid = rig.upf.establish(&session(&["base"]), now()).unwrap().seid;
    let ports = [53, 25, 80];
    assert_eq!(ports.map(|port| passes(&mut rig, port).1), [true, false, false]);
    let dns = rule("dns", 20, "permit out 17 from any 53 to assigned", true);
    let web = rule("web", 30, "permit out 17 from any 80 to assigned", false);
    name_anew(&mut rig, vec![dns, web]);
    assert_eq!(ports.map(|port| passes(&mut rig, port).1), [false, false, true], "the base has other rules");
    assert_eq!(update(&mut rig, seid, &["web"], &["base"]), Ok(()));
    assert_eq!(ports.map(|port| passes(&mut rig, port).1), [false, false, true]);
}

#[test]
fn what_is_withdrawn_stays_with_those_that_have_named_it() {
    let mut rig = rig();
    let seid = rig.upf.establish(&session(&["dns"]), now()).unwrap().seid;
    name_anew(&mut rig, vec![rule("web", 30, "permit out 17 from any 80 to assigned", false)]);
    assert_eq!(passes(&mut rig, 53), (true, true));
    let mut other = session(&["dns"]);
    other.pdrs.truncate(1);
    assert_eq!(rig.upf.establish(&other, now()).unwrap_err().cause, Cause::UnknownPredefinedRule);
    assert_eq!(update(&mut rig, seid, &["base"], &[]), Ok(()), "its rule is compiled still");
    assert_eq!([53, 80].map(|port| passes(&mut rig, port).1), [true, true]);
    assert_eq!(update(&mut rig, seid, &[], &["dns"]), Ok(()));
    assert_eq!([53, 80].map(|port| passes(&mut rig, port).1), [false, true]);
    assert_eq!(update(&mut rig, seid, &["dns"], &[]), Err(Cause::UnknownPredefinedRule), "not anew");
    // A rule that is there again is as any other.
    name_anew(&mut rig, vec![rule("dns", 30, "permit out 17 from any 53 to assigned", false)]);
    assert_eq!(update(&mut rig, seid, &["dns"], &[]), Ok(()));
    assert_eq!(passes(&mut rig, 53), (true, true));
}
