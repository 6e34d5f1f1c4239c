//! `gtpu.bind_gnb`: uplink G-PDUs of a session come from the gNB that its downlink goes to, or are dropped.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // Lengths of small test packets.

use crate::fixture::packets::{ethernet, udp, udp_with};
use crate::fixture::{GNB_MAC, N3, N3_MAC, N6, Rig, SessionPlan, now, on_slow_path, v4, with_live};
use crate::smf_shapes;
use kaido_n4::{
    ApplyAction, Establishment, FTeid, Far, FarId, Interface, LocalFTeid, Modification, OuterHeaderCreation,
    PdrId, SdfFilter, Seid, SessionService, Teid, UpdateFar, UpdateForwardingParameters,
};
use kaido_upf::UpfDrop;
use kaido_upf::ids::{EndpointId, InstanceId};
use kaido_upf::key::SessionKey;
use kaido_upf::node::LiveSettings;
use kaido_upf::offload::KernelRecord;
use kaido_wire::{EtherType, GtpuRepr, IpProtocol, Ipv6Repr, UdpRepr, gtpu};

const GNB: &str = "10.100.3.2";
const NEXT: &str = "10.100.3.3";
const STRANGER: &str = "10.100.3.66";

fn rig(bind_gnb: bool) -> Rig {
    Rig::with(with_live(|live| LiveSettings { bind_gnb, ..live }))
}

fn message(teid: u32) -> Vec<u8> {
    let inner = udp("10.60.0.7", "8.8.8.8", 30);
    let mut message = vec![0; 8];
    GtpuRepr::g_pdu(teid, inner.len() as u16).emit(&mut message).unwrap();
    [message, inner].concat()
}

/// A G-PDU of UE 7 from an address.
fn from(src: &str, teid: u32) -> Vec<u8> {
    let port = gtpu::UDP_PORT;
    ethernet(N3_MAC, GNB_MAC, &udp_with((src, port), ("10.100.3.1", port), &message(teid)))
}

/// The same over IPv6.
fn from_v6(src: &str, teid: u32) -> Vec<u8> {
    let message = message(teid);
    let header = Ipv6Repr {
        src: src.parse().unwrap(),
        dst: "fd00:3::1".parse().unwrap(),
        next_header: IpProtocol::UDP,
        hop_limit: 64,
        traffic_class: 0,
        flow_label: 0,
        payload_len: 8 + message.len() as u16,
    };
    let mut packet = vec![0; 48];
    header.emit(&mut packet).unwrap();
    let port = gtpu::UDP_PORT;
    UdpRepr { src_port: port, dst_port: port, payload_len: message.len() as u16 }
        .emit(&mut packet[40..])
        .unwrap();
    [&N3_MAC[..], &GNB_MAC, &EtherType::IPV6.0.to_be_bytes(), &packet, &message].concat()
}

/// Whether a frame is forwarded; if not, it is dropped as one from another gNB.
fn passes(rig: &mut Rig, frame: &[u8]) -> bool {
    let before = rig.drops(N3, UpfDrop::GNB_MISMATCH);
    let out = rig.pass(N3, frame);
    let dropped = rig.drops(N3, UpfDrop::GNB_MISMATCH) - before;
    assert_eq!(out.len() as u64 + dropped, 1);
    assert!(out.iter().all(|(port, _)| *port == N6));
    dropped == 0
}

fn tunnel(teid: u32, gnb: &str) -> OuterHeaderCreation {
    OuterHeaderCreation { teid: Teid(teid), ipv4: Some(v4(gnb)), ipv6: None }
}

/// Has the downlink FAR do something, perhaps into another gNB's tunnel.
fn update(rig: &mut Rig, seid: Seid, apply_action: ApplyAction, gnb: Option<&str>) {
    let forwarding = gnb.map(|gnb| UpdateForwardingParameters {
        outer_header_creation: Some(tunnel(2007, gnb)),
        ..UpdateForwardingParameters::default()
    });
    let update =
        UpdateFar { id: FarId(2), apply_action: Some(apply_action), forwarding, ..UpdateFar::default() };
    let change = Modification { update_fars: vec![update], ..Modification::default() };
    rig.upf.modify(seid, &change, now()).unwrap();
}

/// UE 7 by one rule each way, by rules in lines, or by rules that only the slow path knows.
fn shapes() -> [Establishment; 3] {
    let plan = SessionPlan::ipv4(7);
    let (plain, mut lines, mut slow) = (plan.establishment(), plan.establishment(), plan.establishment());
    let mut flow = plan.uplink_pdr();
    (flow.id, flow.precedence) = (PdrId(3), 10);
    flow.pdi.sdf_filters = vec![SdfFilter::parse("permit out 17 from any to assigned 4000-4999").unwrap()];
    lines.pdrs.push(flow);
    slow.pdrs.extend(on_slow_path(&slow.pdrs));
    [plain, lines, slow]
}

#[test]
fn uplink_of_a_bound_session_comes_from_its_gnb_alone() {
    for request in shapes() {
        let mut rig = rig(true);
        let seid = rig.upf.establish(&request, now()).unwrap().seid;
        for _ in 0..2 {
            assert!(passes(&mut rig, &from(GNB, 1007)));
            assert!(!passes(&mut rig, &from(STRANGER, 1007)));
        }
        // Packets of both in one batch.
        let frames = [GNB, STRANGER, GNB, STRANGER].map(|src| from(src, 1007));
        assert_eq!(rig.pass_all(N3, frames.iter().map(Vec::as_slice)).len(), 2);
        let usage = rig.upf.delete(seid, now()).unwrap().usage_reports[0].volume.unwrap();
        assert_eq!((usage.uplink_packets, usage.uplink_bytes), (4, 4 * 58), "of the gNB's alone");
        assert_eq!(rig.drops(N3, UpfDrop::GNB_MISMATCH), 4);
    }
}

#[test]
fn without_the_setting_any_gnb_may_send() {
    for request in shapes() {
        let mut rig = rig(false);
        rig.upf.establish(&request, now()).unwrap();
        assert!(passes(&mut rig, &from(GNB, 1007)) && passes(&mut rig, &from(STRANGER, 1007)));
    }
}

#[test]
fn the_binding_follows_the_downlink() {
    let mut rig = rig(true);
    let mut request = SessionPlan::ipv4(7).establishment();
    // free5GC: the tunnel is yet to come.
    request.fars[1].forwarding.as_mut().unwrap().outer_header_creation = None;
    let seid = rig.upf.establish(&request, now()).unwrap().seid;
    assert!(passes(&mut rig, &from(STRANGER, 1007)), "no gNB is known");
    update(&mut rig, seid, ApplyAction::FORWARD, Some(GNB));
    assert!(passes(&mut rig, &from(GNB, 1007)) && !passes(&mut rig, &from(NEXT, 1007)));
    update(&mut rig, seid, ApplyAction::FORWARD, Some(NEXT));
    assert!(!passes(&mut rig, &from(GNB, 1007)) && passes(&mut rig, &from(NEXT, 1007)));
    // While the UE is idle its next gNB is not known.
    update(&mut rig, seid, ApplyAction::BUFFER, None);
    assert!(passes(&mut rig, &from(GNB, 1007)));
    update(&mut rig, seid, ApplyAction::FORWARD, None);
    assert!(!passes(&mut rig, &from(GNB, 1007)));
}

#[test]
fn several_tunnels_bind_to_several_gnbs_and_both_families_count() {
    let mut rig = rig(true);
    let mut plan = SessionPlan::ipv4(7);
    plan.local = LocalFTeid::Given(FTeid {
        teid: Teid(1007),
        ipv4: Some(v4("10.100.3.1")),
        ipv6: Some("fd00:3::1".parse().unwrap()),
    });
    plan.removal = kaido_n4::OuterHeaderRemoval::GtpUUdpIp;
    plan.peer.ipv6 = Some("fd00:3::2".parse().unwrap());
    let mut request = plan.establishment();
    let mut flow = plan.downlink_pdr();
    (flow.id, flow.precedence, flow.far_id) = (PdrId(3), 10, Some(FarId(3)));
    flow.pdi.sdf_filters = vec![SdfFilter::parse("permit out 6 from any to assigned").unwrap()];
    request.pdrs.push(flow);
    let mut far = Far { id: FarId(3), ..plan.downlink_far() };
    far.forwarding.as_mut().unwrap().outer_header_creation = Some(tunnel(3007, NEXT));
    request.fars.push(far);
    rig.upf.establish(&request, now()).unwrap();
    for gnb in [GNB, NEXT] {
        assert!(passes(&mut rig, &from(gnb, 1007)), "{gnb}");
    }
    assert!(!passes(&mut rig, &from(STRANGER, 1007)));
    assert!(passes(&mut rig, &from_v6("fd00:3::2", 1007)) && !passes(&mut rig, &from_v6("fd00:3::66", 1007)));
}

#[test]
fn what_another_gnb_forwards_after_a_handover_is_not_bound() {
    let mut rig = rig(true);
    let mut request = SessionPlan::ipv4(7).establishment();
    let mut left = request.pdrs[0].clone();
    (left.id, left.far_id) = (PdrId(3), Some(FarId(3)));
    left.pdi.local_fteid =
        Some(LocalFTeid::Given(FTeid { teid: Teid(1107), ipv4: Some(v4("10.100.3.1")), ipv6: None }));
    request.pdrs.push(left);
    let mut far = Far { id: FarId(3), ..SessionPlan::ipv4(7).downlink_far() };
    let forwarding = far.forwarding.as_mut().unwrap();
    forwarding.destination_interface = Interface::Access;
    forwarding.outer_header_creation = Some(tunnel(3007, GNB));
    request.fars.push(far);
    rig.upf.establish(&request, now()).unwrap();
    let mut frame = from(STRANGER, 1107);
    // To the UE.
    frame[14 + 36 + 12..14 + 36 + 20].copy_from_slice(&[8, 8, 8, 8, 10, 60, 0, 7]);
    assert_eq!(rig.pass(N3, &frame).len(), 1);
    assert!(!passes(&mut rig, &from(STRANGER, 1007)));
}

#[test]
fn the_kernel_leaves_the_uplink_of_bound_sessions_to_the_workers() {
    for bind_gnb in [false, true] {
        let mut rig = rig(bind_gnb);
        rig.upf.establish(&smf_shapes::open5gs(7), now()).unwrap();
        let node = rig.upf.node().clone();
        let mut reader = node.domain.reader().unwrap();
        let guard = reader.pin();
        let fits = |key| KernelRecord::of(&key, node.table.get(&guard, &key).unwrap(), &node).is_ok();
        assert_eq!(fits(SessionKey::tunnel(EndpointId(0), Teid(1007))), !bind_gnb);
        assert!(fits(SessionKey::ipv4(InstanceId(0), v4("10.60.0.7"))), "the downlink knows no source");
    }
}

/// Has the settings bind sessions or not, and says in how many turns all of them follow.
fn bind(rig: &mut Rig, bind_gnb: bool) -> usize {
    let live = rig.upf.node().live();
    rig.upf.set_live(LiveSettings { bind_gnb, ..live });
    rig.drain();
    let mut turns = 0;
    while rig.upf.is_recompiling() {
        assert!(rig.upf.next_due().is_some_and(|due| due <= now()), "the control loop does not sleep");
        rig.upf.poll_events(now(), 16);
        turns += 1;
    }
    turns
}

#[test]
fn sessions_that_stand_are_bound_and_freed_in_some_turns() {
    for request in shapes() {
        let mut rig = rig(false);
        for n in (8..200).chain([7]) {
            let of_shape = if n == 7 { request.clone() } else { SessionPlan::ipv4(n).establishment() };
            rig.upf.establish(&of_shape, now()).unwrap();
        }
        for is_bound in [true, false, true] {
            assert!(bind(&mut rig, is_bound) >= 3, "193 sessions");
            for _ in 0..2 {
                assert!(passes(&mut rig, &from(GNB, 1007)));
                assert_eq!(passes(&mut rig, &from(STRANGER, 1007)), !is_bound);
            }
        }
        assert_eq!(bind(&mut rig, true), 0, "nothing differs");
    }
}

#[test]
fn a_handover_before_a_sessions_turn_is_followed() {
    let mut rig = rig(true);
    let seid = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap().seid;
    let live = rig.upf.node().live();
    rig.upf.set_live(LiveSettings { bind_gnb: false, ..live });
    rig.drain();
    update(&mut rig, seid, ApplyAction::FORWARD, Some(NEXT));
    assert!(passes(&mut rig, &from(NEXT, 1007)) && passes(&mut rig, &from(GNB, 1007)));
}
