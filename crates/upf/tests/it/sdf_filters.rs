//! Which rule a packet matches by its SDF filters, end to end.
#![allow(clippy::unwrap_used)]

use crate::fixture::packets::{downlink, udp_between, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan, now};
use kaido_n4::{
    ApplyAction, Cause, Establishment, Far, FarId, Modification, Pdi, Pdr, PdrId, RuleId, SdfFilter,
    SessionService, UpdatePdr,
};
use kaido_upf::UpfDrop;

const WEB: &str = "permit out udp from 8.8.8.8 53 to assigned";

fn named(text: &str, id: u32) -> SdfFilter {
    SdfFilter { id: Some(id), ..SdfFilter::parse(text).unwrap() }
}

/// The usual session, and before its rules two that drop: uplink by a filter of its own, downlink by that one's name.
fn session() -> Establishment {
    let plan = SessionPlan::ipv4(7);
    let mut request = plan.establishment();
    let drop = Far {
        id: FarId(9),
        apply_action: ApplyAction { drop: true, ..ApplyAction::default() },
        forwarding: None,
        ..plan.uplink_far()
    };
    let (up, down) = (plan.uplink_pdr(), plan.downlink_pdr());
    let by_filter = |id, pdr: &Pdr, pdi| Pdr {
        id: PdrId(id),
        precedence: 10,
        pdi,
        far_id: Some(FarId(9)),
        ..pdr.clone()
    };
    request.pdrs.push(by_filter(11, &up, Pdi { sdf_filters: vec![named(WEB, 5)], ..up.pdi.clone() }));
    request.pdrs.push(by_filter(12, &down, Pdi { sdf_filter_ids: vec![5], ..down.pdi.clone() }));
    request.fars.push(drop);
    request
}

/// Whether a packet with that remote port passes up, and down.
fn passes(rig: &mut Rig, port: u16) -> (bool, bool) {
    let up = rig.pass(N3, &uplink(1007, &udp_between(("10.60.0.7", 4000), ("8.8.8.8", port), 9)));
    let down = rig.pass(N6, &downlink(&udp_between(("8.8.8.8", port), ("10.60.0.7", 4000), 9)));
    (!up.is_empty(), !down.is_empty())
}

/// Conformance: TS 29.244 8.2.5 | A bidirectional SDF filter is used by PDRs that name it, with both ends exchanged uplink
#[test]
fn a_filter_by_its_id_is_the_filter_of_that_id() {
    let mut rig = Rig::new();
    rig.upf.establish(&session(), now()).unwrap();
    assert_eq!(passes(&mut rig, 53), (false, false));
    assert_eq!(passes(&mut rig, 80), (true, true));
    assert_eq!(rig.drops(N3, UpfDrop::FAR_DROP) + rig.drops(N6, UpfDrop::FAR_DROP), 2);
}

/// Conformance: TS 29.244 8.2.5 | A filter given again under its SDF Filter ID changes for every PDR that uses it
#[test]
fn a_later_request_may_name_a_filter_or_change_it() {
    let mut rig = Rig::new();
    let mut request = session();
    let late = request.pdrs.remove(3);
    let session = rig.upf.establish(&request, now()).unwrap().seid;
    assert_eq!(passes(&mut rig, 53), (false, true), "uplink alone");
    let change = Modification { create_pdrs: vec![late.clone()], ..Modification::default() };
    rig.upf.modify(session, &change, now()).unwrap();
    assert_eq!(passes(&mut rig, 53), (false, false));
    let web = named("permit out udp from 8.8.8.8 80 to assigned", 5);
    let pdi = Pdi { sdf_filters: vec![web], ..request.pdrs[2].pdi.clone() };
    let update = UpdatePdr { id: PdrId(11), pdi: Some(pdi), ..UpdatePdr::default() };
    let change = Modification { update_pdrs: vec![update], ..Modification::default() };
    rig.upf.modify(session, &change, now()).unwrap();
    assert_eq!((passes(&mut rig, 53), passes(&mut rig, 80)), ((true, true), (false, false)));
    // The filter stays while one rule names it, and goes with the last.
    let remove = |id| Modification { remove_pdrs: vec![PdrId(id)], ..Modification::default() };
    rig.upf.modify(session, &remove(11), now()).unwrap();
    assert_eq!(passes(&mut rig, 80), (true, false));
    rig.upf.modify(session, &remove(12), now()).unwrap();
    let again = Modification { create_pdrs: vec![late], ..Modification::default() };
    assert!(rig.upf.modify(session, &again, now()).is_err());
    assert_eq!(passes(&mut rig, 80), (true, true), "nothing of it was applied");
}

/// Conformance: TS 29.244 8.2.5 | An SDF Filter ID that was never given is refused
#[test]
fn a_filter_that_was_never_given_is_refused() {
    let mut rig = Rig::new();
    let mut request = session();
    request.pdrs.remove(2);
    let why = rig.upf.establish(&request, now()).unwrap_err();
    assert_eq!((why.cause, why.offending_ie), (Cause::MandatoryIeIncorrect, Some(23)));
    assert_eq!(why.failed_rule, Some(RuleId::Pdr(PdrId(12))));
    assert!(rig.upf.is_empty());
}
