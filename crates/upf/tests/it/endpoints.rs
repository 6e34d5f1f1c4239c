//! GTP-U addresses by role: N3 and N9 on ports of their own.
#![allow(clippy::unwrap_used)]

use crate::fixture;
use std::net::IpAddr;

use crate::fixture::{N3, N6, Rig, SessionPlan, ip, now, settings, v4};
use kaido_engine::{NeighbourRequest, PortId, Route};
use kaido_n4::{FTeid, Interface, LocalFTeid, OuterHeaderCreation, SessionService, Teid};
use kaido_upf::echo::EchoSettings;
use kaido_upf::ids::InstanceId;
use kaido_upf::node::{EndpointScope, NodeSettings};
use std::time::Duration;

const N9_ADDRESS: &str = "10.100.9.1";
const PEER: &str = "10.100.9.2";

/// The fixture's second port is N9 and N6; N3 has the first endpoint.
fn with_n9() -> NodeSettings {
    let scope = |access, core, subnet: &str| EndpointScope {
        access,
        core,
        instance: None,
        subnet: Some((ip(subnet), 24)),
    };
    let mut settings = settings();
    settings.endpoints = vec![ip("10.100.3.1"), ip(N9_ADDRESS)];
    settings.endpoint_scopes = vec![scope(true, false, "10.100.3.0"), scope(false, true, "10.100.9.0")];
    settings.ports[1].gtpu = true;
    settings.ports[1].instance = Some(InstanceId(0));
    settings.ports[1].addresses.push(ip(N9_ADDRESS));
    settings.live.echo = EchoSettings { interval: Some(Duration::from_secs(60)), ..EchoSettings::default() };
    settings
}

fn rig() -> Rig {
    let rig = Rig::with(with_n9());
    let route = |port| Route { port: Some(port), gateway: None, metric: 0 };
    rig.routes.set_routes([
        (ip("10.100.3.0"), 24, route(N3)),
        (ip("10.100.9.0"), 24, route(N6)),
        (ip("0.0.0.0"), 0, Route { port: Some(N6), gateway: Some(ip("10.100.6.2")), metric: 0 }),
    ]);
    rig.routes.set_neighbour(NeighbourRequest { port: N6, address: ip(PEER) }, Some([2, 0, 0, 0, 9, 2]));
    rig
}

fn outer_source(frame: &[u8]) -> IpAddr {
    let octets: [u8; 4] = frame[26..30].try_into().unwrap();
    octets.into()
}

/// Conformance: TS 29.244 5.5 | An F-TEID chosen for Core has an N9 address, one for Access an N3 address
#[test]
fn f_teids_are_chosen_by_source_interface() {
    let mut rig = rig();
    let choose = Some(LocalFTeid::Choose { ipv4: true, ipv6: false, choose_id: None });
    for (interface, address) in [(Interface::Access, "10.100.3.1"), (Interface::Core, N9_ADDRESS)] {
        let mut request = SessionPlan::ipv4(7).establishment();
        request.pdrs[0].pdi.local_fteid = choose;
        request.pdrs[0].pdi.source_interface = interface;
        let made = rig.upf.establish(&request, now()).unwrap();
        let chosen = made.created_pdrs[0].local_fteid.unwrap();
        assert_eq!(chosen.ipv4, Some(v4(address)), "{interface:?}");
        rig.upf.delete(made.seid, now()).unwrap();
    }
}

/// Conformance: TS 29.281 4.4.2 | Tunnels into N9, and Echo Requests there, leave with N9's address
#[test]
fn tunnels_and_echo_requests_leave_from_the_address_of_their_side() {
    let mut rig = rig();
    let mut request = SessionPlan::ipv4(7).establishment();
    request.fars[0].forwarding.as_mut().unwrap().outer_header_creation =
        Some(OuterHeaderCreation { teid: Teid(77), ipv4: Some(v4(PEER)), ipv6: None });
    request.pdrs[0].pdi.local_fteid =
        Some(LocalFTeid::Given(FTeid { teid: Teid(1007), ipv4: Some(v4("10.100.3.1")), ipv6: None }));
    rig.upf.establish(&request, now()).unwrap();
    let g_pdu = fixture::packets::uplink(1007, &fixture::packets::udp("10.60.0.7", "8.8.8.8", 40));
    let out = rig.pass(N3, &g_pdu);
    assert_eq!((out.len(), out[0].0, outer_source(&out[0].1)), (1, N6, ip(N9_ADDRESS)));
    rig.upf.poll_events(now(), 10);
    let echoes: Vec<(PortId, IpAddr)> =
        rig.drain().iter().map(|(port, frame)| (*port, outer_source(frame))).collect();
    assert!(echoes.contains(&(N6, ip(N9_ADDRESS))), "{echoes:?}");
    assert!(echoes.contains(&(N3, ip("10.100.3.1"))), "{echoes:?}");
}
