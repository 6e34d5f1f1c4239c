//! Packets that wait for their next hop owe nothing until they leave.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use crate::fixture::packets::{downlink, udp, uplink};
use crate::fixture::{DN_MAC, GNB_MAC, N3, N6, Rig, SessionPlan, ip, now, on_slow_path, settings};
use kaido_engine::{DropReason, NeighbourRequest};
use kaido_n4::{Modification, NetworkInstance, PdrId, Seid, SessionService, UrrId, Volume, VolumeThreshold};
use kaido_upf::UpfDrop;
use kaido_upf::ids::InstanceId;
use kaido_upf::lan::{Lan, Lans, VlanTags};
use kaido_upf::node::{Instance, NodeSettings};

/// Of a packet: IPv4, UDP and 72 octets.
const OCTETS: u64 = 100;
const GATEWAY: &str = "10.100.6.2";
const GNB: &str = "10.100.3.2";

fn up() -> Vec<u8> {
    uplink(1007, &udp("10.60.0.7", "8.8.8.8", 72))
}

fn down() -> Vec<u8> {
    downlink(&udp("8.8.8.8", "10.60.0.7", 72))
}

/// Has the gateway of N6 and the gNB answer, or no longer.
fn answer(rig: &Rig, known: bool) {
    for (port, address, mac) in [(N6, GATEWAY, DN_MAC), (N3, GNB, GNB_MAC)] {
        rig.routes.set_neighbour(NeighbourRequest { port, address: ip(address) }, known.then_some(mac));
    }
}

/// A node none of whose next hops answers, with a session.
fn silent(slow: bool, quota: Option<u64>) -> (Rig, Seid) {
    let mut rig = Rig::new();
    let mut request = SessionPlan::ipv4(7).establishment();
    if slow {
        let ahead = on_slow_path(&request.pdrs);
        request.pdrs.extend(ahead);
    }
    let volume = |total| VolumeThreshold { total: Some(total), ..VolumeThreshold::default() };
    request.urrs[0].volume_quota = quota.map(volume);
    let seid = rig.upf.establish(&request, now()).unwrap().seid;
    answer(&rig, false);
    (rig, seid)
}

fn used(rig: &mut Rig, seid: Seid) -> [u64; 4] {
    let query = Modification { query_urrs: vec![UrrId(1)], ..Modification::default() };
    let reports = rig.upf.modify(seid, &query, now()).unwrap().usage_reports;
    let Volume { uplink_packets, uplink_bytes, downlink_packets, downlink_bytes } =
        reports[0].volume.unwrap();
    [uplink_packets, uplink_bytes, downlink_packets, downlink_bytes]
}

/// Conformance: TS 29.244 5.2.2.2 | A packet that waits for its next hop is counted when it leaves, and never if it does not
#[test]
fn what_waits_is_counted_when_it_leaves() {
    for slow in [false, true] {
        let (mut rig, seid) = silent(slow, None);
        for _ in 0..3 {
            assert!(rig.pass(N3, &up()).is_empty() && rig.pass(N6, &down()).is_empty());
        }
        assert_eq!(used(&mut rig, seid), [0; 4], "they wait");
        answer(&rig, true);
        assert_eq!(rig.drain().len(), 6);
        assert_eq!(used(&mut rig, seid), [3, 3 * OCTETS, 3, 3 * OCTETS]);
        answer(&rig, false);
        assert!(rig.pass(N3, &up()).is_empty() && rig.pass(N6, &down()).is_empty());
        assert!(rig.drain_after(Duration::from_secs(4)).is_empty());
        assert_eq!(rig.drops(N3, DropReason::NEXT_HOP_UNRESOLVED), 1);
        assert_eq!(rig.drops(N6, DropReason::NEXT_HOP_UNRESOLVED), 1);
        assert_eq!(used(&mut rig, seid), [0; 4], "of what was dropped");
    }
}

#[test]
fn a_quota_is_not_passed_by_what_waited() {
    for slow in [false, true] {
        let (mut rig, seid) = silent(slow, Some(2 * OCTETS));
        (0..5).for_each(|_| assert!(rig.pass(N3, &up()).is_empty()));
        assert_eq!(rig.drops(N3, UpfDrop::QUOTA_EXHAUSTED), 0);
        answer(&rig, true);
        assert_eq!(rig.drain().len(), 2);
        assert_eq!(rig.drops(N3, UpfDrop::QUOTA_EXHAUSTED), 3);
        let last = rig.upf.delete(seid, now()).unwrap().usage_reports;
        let octets: u64 = last.iter().map(|report| report.volume.unwrap().uplink_bytes).sum();
        assert_eq!(octets, 2 * OCTETS);
    }
}

#[test]
fn what_waits_leaves_with_its_session_and_rule_alone() {
    let (mut rig, seid) = silent(true, None);
    (0..2).for_each(|_| assert!(rig.pass(N3, &up()).is_empty() && rig.pass(N6, &down()).is_empty()));
    // The rule of the uplink goes, and then the session.
    let removal = Modification { remove_pdrs: vec![PdrId(1)], ..Modification::default() };
    rig.upf.modify(seid, &removal, now()).unwrap();
    rig.routes.set_neighbour(NeighbourRequest { port: N6, address: ip(GATEWAY) }, Some(DN_MAC));
    assert!(rig.drain().is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::BUFFER_DISCARDED), 2);
    let last = rig.upf.delete(seid, now()).unwrap().usage_reports;
    assert_eq!(last[0].volume.unwrap(), Volume::default());
    rig.routes.set_neighbour(NeighbourRequest { port: N3, address: ip(GNB) }, Some(GNB_MAC));
    assert!(rig.drain().is_empty(), "nobody could be told of it");
    assert_eq!(rig.drops(N6, UpfDrop::BUFFER_DISCARDED), 2);
}

#[test]
fn what_waits_in_a_lan_is_counted_when_it_leaves() {
    let instance = InstanceId(1);
    let mut node = settings();
    node.instances.push(Instance { name: Some("tenant".into()) });
    let lan = Lan {
        instance,
        port: N6,
        tags: VlanTags { outer: 100, inner: None },
        addresses: vec![(ip("192.168.0.1"), 24)],
        gateways: vec![ip("192.168.0.254")],
        neighbours: Vec::new(),
    };
    let mut rig = Rig::with(NodeSettings { lans: Lans::new(vec![lan]), ..node });
    let mut request = SessionPlan::ipv4(7).establishment();
    request.fars[0].forwarding.as_mut().unwrap().network_instance = Some(NetworkInstance("tenant".into()));
    let seid = rig.upf.establish(&request, now()).unwrap().seid;
    let asked = rig.pass(N3, &up());
    assert_eq!(asked.len(), 1, "an ARP request");
    assert!(rig.drain_after(Duration::from_secs(4)).iter().all(|(_, frame)| frame[16..18] == [8, 6]));
    assert_eq!(rig.drops(N3, DropReason::NEXT_HOP_UNRESOLVED), 1);
    assert_eq!(used(&mut rig, seid), [0; 4]);
}
