//! Traffic endpoints and framed routes, end to end.
#![allow(clippy::unwrap_used)]

use crate::fixture::packets::{downlink, udp_between, uplink};
use crate::fixture::{self, N3, N6, Rig, SessionPlan, ip, now, v4};
use kaido_n4::{
    Cause, ChooseOr, Establishment, FTeid, FramedRoute, LocalFTeid, Modification, Pdi, PdrId, RuleId,
    SessionService, Teid, TrafficEndpoint, TrafficEndpointId, UeIpAddress, UeIpRole, UpdateTrafficEndpoint,
};
use kaido_upf::UpfDrop;
use kaido_upf::extended::UeToUe;
use kaido_upf::node::LiveSettings;

const ACCESS: TrafficEndpointId = TrafficEndpointId(1);
const CORE: TrafficEndpointId = TrafficEndpointId(2);

/// The usual session, whose PDRs name endpoints and say nothing of where packets come from.
fn by_endpoints(access: LocalFTeid, ue: UeIpAddress) -> Establishment {
    let mut request = SessionPlan::ipv4(7).establishment();
    for (pdr, endpoint) in request.pdrs.iter_mut().zip([ACCESS, CORE]) {
        let source_interface = pdr.pdi.source_interface;
        pdr.pdi = Pdi { source_interface, traffic_endpoints: vec![endpoint], ..Pdi::default() };
    }
    request.traffic_endpoints = vec![
        TrafficEndpoint { id: ACCESS, local_fteid: Some(access), ..TrafficEndpoint::default() },
        TrafficEndpoint { id: CORE, ue_ip: vec![ue], ..TrafficEndpoint::default() },
    ];
    request
}

fn given(teid: u32) -> LocalFTeid {
    LocalFTeid::Given(FTeid { teid: Teid(teid), ipv4: Some(v4("10.100.3.1")), ipv6: None })
}

/// Whether a packet passes from the tunnel and UE address, and back.
fn passes(rig: &mut Rig, teid: u32, ue: &str) -> (bool, bool) {
    let up = rig.pass(N3, &uplink(teid, &udp_between((ue, 4000), ("8.8.8.8", 53), 9)));
    let down = rig.pass(N6, &downlink(&udp_between(("8.8.8.8", 53), (ue, 4000), 9)));
    (up.iter().any(|(port, _)| *port == N6), down.iter().any(|(port, _)| *port == N3))
}

/// Conformance: TS 29.244 5.2.3.1 | PDRs detect packets by the traffic endpoints that they name (PDIU)
#[test]
fn pdrs_are_found_by_the_endpoints_they_name() {
    let mut rig = Rig::new();
    let request = by_endpoints(given(1007), SessionPlan::ipv4(7).ue);
    let seid = rig.upf.establish(&request, now()).unwrap().seid;
    assert_eq!(passes(&mut rig, 1007, "10.60.0.7"), (true, true));
    // The endpoint moves, and with it the rule.
    let update = UpdateTrafficEndpoint {
        id: ACCESS,
        local_fteid: Some(given(1008)),
        ..UpdateTrafficEndpoint::default()
    };
    let change = Modification { update_traffic_endpoints: vec![update], ..Modification::default() };
    rig.upf.modify(seid, &change, now()).unwrap();
    assert_eq!(passes(&mut rig, 1007, "10.60.0.7"), (false, true));
    assert_eq!(passes(&mut rig, 1008, "10.60.0.7"), (true, true));
    rig.upf.delete(seid, now()).unwrap();
    assert_eq!(passes(&mut rig, 1008, "10.60.0.7"), (false, false));
}

/// Conformance: TS 29.244 7.5.4.14 | Removing a traffic endpoint removes the PDRs that name it
#[test]
fn rules_go_with_their_endpoint() {
    let mut rig = Rig::new();
    let request = by_endpoints(given(1007), SessionPlan::ipv4(7).ue);
    let seid = rig.upf.establish(&request, now()).unwrap().seid;
    let remove = Modification { remove_traffic_endpoints: vec![CORE], ..Modification::default() };
    rig.upf.modify(seid, &remove, now()).unwrap();
    assert_eq!(passes(&mut rig, 1007, "10.60.0.7"), (true, false));
    assert_eq!(rig.drops(N6, UpfDrop::UE_UNKNOWN), 1);
    let why = rig.upf.modify(seid, &remove, now()).unwrap_err();
    assert_eq!(why.cause, Cause::RuleCreationOrModificationFailure);
}

/// Conformance: TS 29.244 5.5.3 | F-TEIDs are chosen for traffic endpoints, one for those of one CHOOSE ID
#[test]
fn endpoints_get_what_they_leave_to_choose() {
    let mut rig = Rig::new();
    let choose = LocalFTeid::Choose { ipv4: true, ipv6: false, choose_id: Some(5) };
    let ue = UeIpAddress { ipv4: Some(ChooseOr::Choose), ipv6: None, role: UeIpRole::Destination };
    let mut request = by_endpoints(choose, ue);
    // A PDR of its own with the same CHOOSE ID.
    let mut other = SessionPlan::ipv4(7).uplink_pdr();
    other.id = PdrId(3);
    other.pdi.local_fteid = Some(choose);
    request.pdrs.push(other);
    let answer = rig.upf.establish(&request, now()).unwrap();
    let [access, core] = &answer.created_traffic_endpoints[..] else { panic!("{answer:?}") };
    assert_eq!((access.id, access.ue_ip, core.id, core.local_fteid), (ACCESS, None, CORE, None));
    let fteid = access.local_fteid.unwrap();
    assert_eq!(answer.created_pdrs.len(), 1);
    assert_eq!(answer.created_pdrs[0].local_fteid, Some(fteid));
    let Some(ChooseOr::Given(ue)) = core.ue_ip.unwrap().ipv4 else { panic!("no address") };
    assert_eq!(passes(&mut rig, fteid.teid.0, &ue.to_string()), (true, true));
    // A later request means the same tunnel by the same CHOOSE ID, and a new one by a new ID.
    let update =
        UpdateTrafficEndpoint { id: ACCESS, local_fteid: Some(choose), ..UpdateTrafficEndpoint::default() };
    let change = Modification { update_traffic_endpoints: vec![update], ..Modification::default() };
    let changed = rig.upf.modify(answer.seid, &change, now()).unwrap();
    assert_eq!(changed.created_traffic_endpoints[0].local_fteid, Some(fteid));
    let choose = LocalFTeid::Choose { ipv4: true, ipv6: false, choose_id: Some(6) };
    let update =
        UpdateTrafficEndpoint { id: ACCESS, local_fteid: Some(choose), ..UpdateTrafficEndpoint::default() };
    let change = Modification { update_traffic_endpoints: vec![update], ..Modification::default() };
    let changed = rig.upf.modify(answer.seid, &change, now()).unwrap();
    let moved = changed.created_traffic_endpoints[0].local_fteid.unwrap();
    assert_ne!(moved.teid, fteid.teid);
    assert_eq!(passes(&mut rig, moved.teid.0, &ue.to_string()), (true, true));
}

/// Conformance: TS 29.244 8.2.92 | A traffic endpoint that is not there is refused
#[test]
fn an_endpoint_that_is_not_there_is_refused() {
    let mut rig = Rig::new();
    let mut request = by_endpoints(given(1007), SessionPlan::ipv4(7).ue);
    request.traffic_endpoints.pop();
    let why = rig.upf.establish(&request, now()).unwrap_err();
    assert_eq!(why.cause, Cause::RuleCreationOrModificationFailure);
    assert_eq!((why.offending_ie, why.failed_rule), (Some(131), Some(RuleId::Pdr(PdrId(2)))));
    assert!(rig.upf.is_empty());
}

fn routed(routes: &[(&str, u8)]) -> Establishment {
    let mut request = SessionPlan::ipv4(7).establishment();
    let routes = routes.iter().map(|&(network, len)| FramedRoute::of(ip(network), len));
    request.pdrs[1].pdi.framed_routes = routes.collect();
    request
}

/// Conformance: TS 29.244 5.16 | Framed routes: packets to and from networks behind a UE are its own (FRRT)
#[test]
fn a_network_behind_the_ue_is_reached_through_it() {
    let mut rig = Rig::new();
    let seid = rig.upf.establish(&routed(&[("192.168.1.0", 24), ("192.168.2.9", 32)]), now()).unwrap().seid;
    for host in ["10.60.0.7", "192.168.1.1", "192.168.1.255", "192.168.2.9"] {
        assert_eq!(passes(&mut rig, 1007, host), (true, true), "{host}");
    }
    assert_eq!(passes(&mut rig, 1007, "192.168.2.10"), (false, false));
    assert_eq!((rig.drops(N3, UpfDrop::UE_SPOOFED), rig.drops(N6, UpfDrop::UE_UNKNOWN)), (1, 1));
    rig.upf.delete(seid, now()).unwrap();
    assert_eq!(passes(&mut rig, 1007, "192.168.1.1"), (false, false));
}

/// What lies behind a UE is as the UE itself to others.
#[test]
fn networks_behind_ues_are_kept_apart_as_ues_are() {
    for (how, to) in [(UeToUe::Route, Some(N6)), (UeToUe::Forward, Some(N3)), (UeToUe::Drop, None)] {
        let mut rig = Rig::with(fixture::with_live(|live| LiveSettings { ue_to_ue: how, ..live }));
        rig.upf.establish(&routed(&[("192.168.0.0", 22)]), now()).unwrap();
        rig.upf.establish(&SessionPlan::ipv4(8).establishment(), now()).unwrap();
        let sent = |rig: &mut Rig, host| {
            let out = rig.pass(N3, &uplink(1008, &udp_between(("10.60.0.8", 4000), (host, 53), 9)));
            out.first().map(|(port, _)| *port)
        };
        for _ in 0..2 {
            assert_eq!(sent(&mut rig, "192.168.3.1"), to, "{how:?}");
            assert_eq!(sent(&mut rig, "192.168.4.1"), Some(N6), "{how:?}");
        }
    }
}

#[test]
fn the_longest_network_wins_over_sessions() {
    let mut rig = Rig::new();
    rig.upf.establish(&routed(&[("192.168.0.0", 16)]), now()).unwrap();
    let mut other = SessionPlan::ipv4(8).establishment();
    other.pdrs[1].pdi.framed_routes = vec![FramedRoute::of(ip("192.168.7.0"), 24)];
    let other = rig.upf.establish(&other, now()).unwrap().seid;
    let to = |rig: &mut Rig, host| {
        let out = rig.pass(N6, &downlink(&udp_between(("8.8.8.8", 53), (host, 4000), 9)));
        // The TEID of the G-PDU says whose it is.
        out.first().map(|(_, frame)| u32::from_be_bytes(frame[14 + 28 + 4..][..4].try_into().unwrap()))
    };
    assert_eq!((to(&mut rig, "192.168.6.1"), to(&mut rig, "192.168.7.1")), (Some(2007), Some(2008)));
    rig.upf.delete(other, now()).unwrap();
    assert_eq!(to(&mut rig, "192.168.7.1"), Some(2007));
    // Whose network it is cannot be another's too.
    let mut same = SessionPlan::ipv4(9).establishment();
    same.pdrs[1].pdi.framed_routes = vec![FramedRoute::of(ip("192.168.0.0"), 16)];
    let why = rig.upf.establish(&same, now()).unwrap_err();
    assert_eq!(why.cause, Cause::RuleCreationOrModificationFailure);
}
