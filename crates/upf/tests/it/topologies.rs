//! Where packets go in networks of more than one user plane: N9 and SGW-U relays, uplink classifier and
//! branching point, the control plane, other UEs of the same node.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // Lengths of small test packets.

use crate::fixture::{self, N3, N6, Rig, SessionPlan, now, v4};
use crate::frames::{Tunnelled, downlink, g_pdu, read_tunnel, udp4, udp6};
use kaido_engine::{DropReason, PortId};
use kaido_n4::{
    ChooseOr, Establishment, FTeid, Far, FarId, Interface, Ipv6Prefix, LocalFTeid, OuterHeaderCreation,
    OuterHeaderRemoval, Pdr, PdrId, Qfi, SdfFilter, SessionService, Teid, UeIpAddress, UeIpRole, Volume,
};
use kaido_upf::UpfDrop;
use kaido_upf::extended::UeToUe;
use kaido_upf::node::LiveSettings;
use kaido_wire::PduSession;

fn tunnel_to(teid: u32) -> Option<OuterHeaderCreation> {
    Some(OuterHeaderCreation { teid: Teid(teid), ipv4: Some(v4("10.100.3.2")), ipv6: None })
}

fn local(teid: u32) -> Option<LocalFTeid> {
    Some(LocalFTeid::Given(FTeid { teid: Teid(teid), ipv4: Some(v4("10.100.3.1")), ipv6: None }))
}

/// A relay: TEID 1007 from the access into 3007 at the next node, 1107 from there into 2007 at the access.
fn relay() -> Establishment {
    let mut request = SessionPlan::ipv4(7).establishment();
    request.fars[0].forwarding.as_mut().unwrap().outer_header_creation = tunnel_to(3007);
    let downlink = &mut request.pdrs[1];
    (downlink.pdi.local_fteid, downlink.pdi.ue_ip) = (local(1107), Vec::new());
    downlink.outer_header_removal = Some(OuterHeaderRemoval::GtpUUdpIpv4);
    request
}

/// The one packet that came out, which is in a tunnel.
fn one(out: &[(PortId, Vec<u8>)]) -> Tunnelled {
    let [(port, frame)] = out else { panic!("{} packets", out.len()) };
    assert_eq!(*port, N3);
    read_tunnel(frame)
}

/// Conformance: TS 29.244 5.2.1 | An intermediate UPF or SGW-U relays between tunnels, both ways
#[test]
fn a_relay_hands_on_what_is_inside_untouched() {
    let mut rig = Rig::new();
    let session = rig.upf.establish(&relay(), now()).unwrap();
    for (teid, next) in [(1007, 3007), (1107, 2007)] {
        // Multicast, and with one hop to live: not for this node to judge.
        for inner in [udp4("10.60.0.7", "8.8.8.8", 64, 30), udp4("10.60.0.7", "224.0.0.9", 1, 30)] {
            let relayed = one(&rig.pass(N3, &g_pdu(teid, None, &inner)));
            assert_eq!((relayed.teid, relayed.container, relayed.inner), (next, None, inner));
        }
    }
    let volume = rig.upf.delete(session.seid, now()).unwrap().usage_reports[0].volume.unwrap();
    let expected = Volume { uplink_bytes: 116, downlink_bytes: 116, uplink_packets: 2, downlink_packets: 2 };
    assert_eq!(volume, expected);
}

/// Conformance: TS 29.244 8.2.64 | Stored extension headers go on into the next tunnel unless they are to be deleted
#[test]
fn a_relay_hands_on_the_container_unless_told_otherwise() {
    let up = PduSession::Uplink { qfi: 5 };
    let down = PduSession::Downlink { qfi: 5, rqi: true, ppi: Some(3) };
    let inner = udp4("10.60.0.7", "8.8.8.8", 64, 30);
    let mut rig = Rig::new();
    rig.upf.establish(&relay(), now()).unwrap();
    assert_eq!(one(&rig.pass(N3, &g_pdu(1007, Some(up), &inner))).container, Some(up));
    assert_eq!(one(&rig.pass(N3, &g_pdu(1107, Some(down), &inner))).container, Some(down));

    let mut marking = relay();
    marking.qers[0].qfi = Some(Qfi(9));
    let mut rig = Rig::new();
    rig.upf.establish(&marking, now()).unwrap();
    let marked = Some(PduSession::Uplink { qfi: 9 });
    assert_eq!(one(&rig.pass(N3, &g_pdu(1007, Some(up), &inner))).container, marked);
    assert_eq!(one(&rig.pass(N3, &g_pdu(1007, None, &inner))).container, marked);

    let mut deleting = relay();
    deleting.pdrs[0].deletes_container = true;
    let mut rig = Rig::new();
    rig.upf.establish(&deleting, now()).unwrap();
    let relayed = one(&rig.pass(N3, &g_pdu(1007, Some(up), &inner)));
    assert_eq!((relayed.container, relayed.inner), (None, inner));
}

/// A session with a further uplink rule of higher precedence, FAR 3.
fn with_branch(mut request: Establishment, far: Far, change: impl FnOnce(&mut Pdr)) -> Establishment {
    let mut branch = Pdr { id: PdrId(3), precedence: 10, far_id: Some(FarId(3)), ..request.pdrs[0].clone() };
    change(&mut branch);
    request.pdrs.push(branch);
    request.fars.push(Far { id: FarId(3), ..far });
    request
}

/// Conformance: TS 23.501 5.6.4.2 | An uplink classifier sends flows to a local network and the rest to the anchor
#[test]
fn an_uplink_classifier_sends_flows_to_different_places() {
    let mut rig = Rig::new();
    let edge = SessionPlan::ipv4(7).uplink_far();
    let request = with_branch(relay(), edge, |branch| {
        branch.pdi.sdf_filters =
            vec![SdfFilter::parse("permit out ip from 10.100.6.0/24 to assigned").unwrap()];
        branch.pdi.ue_ip = vec![UeIpAddress { role: UeIpRole::Source, ..SessionPlan::ipv4(7).ue }];
    });
    rig.upf.establish(&request, now()).unwrap();
    let out = rig.pass(N3, &g_pdu(1007, None, &udp4("10.60.0.7", "10.100.6.2", 64, 30)));
    assert_eq!(out.len(), 1);
    assert_eq!((out[0].0, out[0].1[22]), (N6, 63), "routed here: one hop less");
    assert_eq!(one(&rig.pass(N3, &g_pdu(1007, None, &udp4("10.60.0.7", "8.8.8.8", 64, 30)))).teid, 3007);
}

/// Conformance: TS 23.501 5.6.4.3 | A branching point sends IPv6 packets on by their source prefix
#[test]
fn a_branching_point_goes_by_the_source_prefix() {
    let prefix = |text: &str| UeIpAddress {
        ipv4: None,
        ipv6: Some(ChooseOr::Given(Ipv6Prefix::of(text.parse().unwrap(), 64))),
        role: UeIpRole::Source,
    };
    let mut request = relay();
    request.pdrs[0].pdi.ue_ip = vec![prefix("2001:db8:1::")];
    let mut other = request.fars[0].clone();
    other.forwarding.as_mut().unwrap().outer_header_creation = tunnel_to(4007);
    let request = with_branch(request, other, |branch| {
        branch.precedence = 300;
        branch.pdi.ue_ip = vec![prefix("2001:db8:2::")];
    });
    let mut rig = Rig::new();
    rig.upf.establish(&request, now()).unwrap();
    for (source, next) in [("2001:db8:1::5", 3007), ("2001:db8:2::5", 4007)] {
        let inner = udp6(source, "2001:db8:9::1", 64, 30);
        assert_eq!(one(&rig.pass(N3, &g_pdu(1007, None, &inner))).teid, next);
    }
    let stranger = udp6("2001:db8:3::5", "2001:db8:9::1", 64, 30);
    assert!(rig.pass(N3, &g_pdu(1007, None, &stranger)).is_empty());
}

/// Conformance: TS 29.244 5.3.3 | Packets go to the control plane and come from it in GTP-U
#[test]
fn router_solicitations_and_dhcp_reach_the_control_plane_as_they_are() {
    let mut to_smf = SessionPlan::ipv4(7).uplink_far();
    let forwarding = to_smf.forwarding.as_mut().unwrap();
    forwarding.destination_interface = Interface::CpFunction;
    forwarding.outer_header_creation = tunnel_to(5007);
    let request = with_branch(SessionPlan::ipv4(7).establishment(), to_smf, |branch| {
        let flows = ["permit out 17 from any 5000 to assigned", "permit out 58 from ff02::2 to assigned"];
        branch.pdi.sdf_filters = flows.iter().map(|flow| SdfFilter::parse(flow).unwrap()).collect();
    });
    let mut request = request;
    request.qers[0].qfi = Some(Qfi(9));
    let mut from_smf = request.pdrs[1].clone();
    (from_smf.id, from_smf.pdi.local_fteid) = (PdrId(4), local(1207));
    from_smf.pdi.source_interface = Interface::CpFunction;
    from_smf.outer_header_removal = Some(OuterHeaderRemoval::GtpUUdpIp);
    request.pdrs.push(from_smf);
    let mut rig = Rig::new();
    rig.upf.establish(&request, now()).unwrap();
    let dhcp = udp4("0.0.0.0", "255.255.255.255", 255, 30);
    let sent = one(&rig.pass(N3, &g_pdu(1007, None, &dhcp)));
    assert_eq!((sent.teid, sent.inner), (5007, dhcp.clone()));
    // Neither with the QFI that came nor with that of a QER: the container is for N3 and N9.
    let sent = one(&rig.pass(N3, &g_pdu(1007, Some(PduSession::Uplink { qfi: 5 }), &dhcp)));
    assert_eq!((sent.container, sent.inner), (None, dhcp));
    let answer = udp4("10.100.6.1", "10.60.0.7", 255, 30);
    let answered = one(&rig.pass(N3, &g_pdu(1207, None, &answer)));
    assert_eq!((answered.teid, answered.inner), (2007, answer));
    // What is not for the control plane is judged as ever.
    let mut stray = udp4("0.0.0.0", "8.8.8.8", 64, 30);
    stray[22..24].copy_from_slice(&53u16.to_be_bytes());
    assert!(rig.pass(N3, &g_pdu(1007, None, &stray)).is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::UE_SPOOFED), 1);
}

fn two_ues(how: UeToUe) -> Rig {
    let mut rig = Rig::with(fixture::with_live(|live| LiveSettings { ue_to_ue: how, ..live }));
    for n in [7, 8] {
        rig.upf.establish(&SessionPlan::ipv4(n).establishment(), now()).unwrap();
    }
    rig
}

/// Conformance: TS 23.501 5.8.2.13 | UE to UE on one node: routed, forwarded or dropped, by configuration
#[test]
fn packets_from_ue_to_ue_are_routed_forwarded_or_dropped() {
    let packet = g_pdu(1007, None, &udp4("10.60.0.7", "10.60.0.8", 64, 30));
    let outside = g_pdu(1007, None, &udp4("10.60.0.7", "8.8.8.8", 64, 30));
    for how in [UeToUe::Route, UeToUe::Forward, UeToUe::Drop] {
        let mut rig = two_ues(how);
        let out = rig.pass(N3, &packet);
        match how {
            UeToUe::Route => assert_eq!((out.len(), out[0].0), (1, N6)),
            UeToUe::Forward => {
                let forwarded = one(&out);
                assert_eq!((forwarded.teid, forwarded.inner[8]), (2008, 63), "one hop in all");
                let volume = rig.upf.volume();
                assert_eq!((volume.uplink_packets, volume.downlink_packets), (1, 1));
            }
            UeToUe::Drop => assert_eq!((out.len(), rig.drops(N3, UpfDrop::UE_TO_UE)), (0, 1)),
        }
        assert_eq!(rig.pass(N3, &outside)[0].0, N6, "{how:?}");
    }
}

#[test]
fn packets_from_ue_to_ue_never_loop() {
    let mut rig = two_ues(UeToUe::Forward);
    // A downlink rule that sends to the core would hand the packet on for ever.
    let mut looping = SessionPlan::ipv4(9).establishment();
    let far = looping.fars[1].forwarding.as_mut().unwrap();
    (far.destination_interface, far.outer_header_creation) = (Interface::Core, None);
    rig.upf.establish(&looping, now()).unwrap();
    let out = rig.pass(N3, &g_pdu(1007, None, &udp4("10.60.0.7", "10.60.0.9", 64, 30)));
    assert_eq!((out.len(), out[0].0), (1, N6), "routed, once");
    // One hop to live: the sender is told, through its own tunnel.
    let out = rig.pass(N3, &g_pdu(1007, None, &udp4("10.60.0.7", "10.60.0.8", 1, 30)));
    assert_eq!((one(&out).teid, rig.drops(N3, DropReason::TTL_EXPIRED)), (2007, 1));
    // To itself: nobody else's.
    let out = rig.pass(N3, &g_pdu(1007, None, &udp4("10.60.0.7", "10.60.0.7", 64, 30)));
    assert_eq!(out[0].0, N6);
}

/// Conformance: TS 23.501 5.8.2.13.3 | Members of a 5G virtual network reach each other on this node, and nobody else does
#[test]
fn members_of_a_virtual_network_reach_each_other_only() {
    let mut rig = Rig::new();
    for n in [7, 8] {
        let mut request = SessionPlan::ipv4(n).establishment();
        request.fars[0].forwarding.as_mut().unwrap().destination_interface = Interface::VnInternal;
        request.pdrs[1].pdi.source_interface = Interface::VnInternal;
        rig.upf.establish(&request, now()).unwrap();
    }
    let between = one(&rig.pass(N3, &g_pdu(1008, None, &udp4("10.60.0.8", "10.60.0.7", 64, 30))));
    assert_eq!(between.teid, 2007);
    assert!(rig.pass(N3, &g_pdu(1008, None, &udp4("10.60.0.8", "8.8.8.8", 64, 30))).is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::UE_UNKNOWN), 1);
    assert!(rig.pass(N6, &downlink(&udp4("8.8.8.8", "10.60.0.7", 64, 30))).is_empty(), "not from outside");
}
