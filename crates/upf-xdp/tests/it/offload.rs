//! The offload under `BPF_PROG_TEST_RUN`: what it counts, refuses and leaves alone, also while its tables change.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kaido_upf_xdp::offload::{
    Counts, Hop, OffloadDestination, OffloadDirection, OffloadDrop, OffloadKey, OffloadNextHop, OffloadRoute,
    OffloadRule, PassReason, ThresholdEvent, UsageCell, Vlan, VlanRole,
};
use kaido_upf_xdp::{OffloadError, Roles, Steering, SteeringConfig};
use kaido_wire::{IpProtocol, checksum, ipv4};
use kaido_xdp::Action;

use crate::rig;
use crate::rig::frame::{eth, vlan};
use crate::rig::session::*;
use crate::rig::tables::{self, N6, N6_V6, VRF};

#[test]
fn counts_what_it_forwards_and_tells_a_threshold_once() {
    with_node("counts_what_it_forwards_and_tells_a_threshold_once", |mut node| {
        // 20 of IPv4, 8 of UDP, 40 of payload.
        let bytes = 68;
        node.word(5, 4).store(!(2 * bytes), Ordering::Relaxed);
        node.word(5, 6).store(!(4 * bytes), Ordering::Relaxed);
        let event = ThresholdEvent { session: 77, cell: 5 };
        for (frame, events) in
            [(uplink(), 0), (uplink(), 1), (downlink(), 0), (downlink(), 1), (uplink(), 0), (downlink(), 0)]
        {
            node.forwards(&frame);
            assert_eq!(node.path.events().collect::<Vec<_>>(), vec![event; events]);
        }
        assert_eq!(node.cell(5), [3 * bytes, 3, 3 * bytes, 3, 0, 0, 0, 0]);
        let counters = node.counters();
        for direction in [OffloadDirection::Uplink, OffloadDirection::Downlink] {
            assert_eq!((counters.packets(direction), counters.bytes(direction)), (3, 3 * bytes));
        }
    });
}

#[test]
fn gate_and_far_drop_and_count_before_qos_only() {
    with_node("gate_and_far_drop_and_count_before_qos_only", |mut node| {
        let counts = |cell| match cell {
            6 => Counts::All,
            8 => Counts::Dropped,
            _ => Counts::Passed,
        };
        let usage = [5, 8, 6, 7].map(|cell| UsageCell { cell, counts: counts(cell) });
        let open = uplink_with(|rule| *rule = rule.counting(usage));
        let closed = tables::changed(open.clone(), |rule| rule.gate_open = false);
        let far = tables::changed(open.clone(), |rule| rule.far_drop = true);
        for (record, drops) in [(closed, [1, 0, 0]), (far, [1, 1, 0])] {
            node.path.insert_or_replace(TUNNEL_KEY, &record).unwrap();
            assert_eq!(node.run(&uplink()).action, Action::Drop);
            assert_eq!(OffloadDrop::ALL.map(|drop| node.counters().dropped(drop)), drops);
        }
        node.path.insert_or_replace(TUNNEL_KEY, &open).unwrap();
        node.forwards(&uplink());
        let counted = [5, 6, 7, 8].map(|cell| node.cell(cell)[..2].to_vec());
        assert_eq!(counted, [[68, 1], [204, 3], [68, 1], [136, 2]]);
    });
}

#[test]
fn what_is_not_plain_is_the_engines() {
    with_node("what_is_not_plain_is_the_engines", |mut node| {
        let inner = |from, to| tunnelled(&v4(from, to, &rig::frame::udp(53, &[1; 40])));
        node.path
            .set_own_addresses(&[LOCAL.into(), Ipv4Addr::new(10, 0, 0, 1).into(), REMOTE6.into()])
            .unwrap();
        node.hands(&inner(REMOTE, UE), PassReason::Source);
        for to in
            ["224.0.0.1", "255.255.255.255", "127.0.0.1", "169.254.0.1", "0.0.0.0", "192.0.2.1", "10.0.0.1"]
        {
            node.hands(&inner(UE, to.parse().unwrap()), PassReason::Destination);
        }
        for to in ["ff02::1", "fe80::1", "::1", "2001:db8::1"] {
            let frame = tunnelled(&v6(UE6, to.parse().unwrap(), &rig::frame::udp(53, &[])));
            node.hands(&frame, PassReason::Destination);
        }
        node.path.set_own_addresses(&[LOCAL.into()]).unwrap();
        node.forwards(&inner(UE, Ipv4Addr::new(10, 0, 0, 1)));
        node.hands(&tunnelled(&v4(UE, REMOTE, &[0; 1481])), PassReason::TooBig);
        node.forwards(&tunnelled(&v4(UE, REMOTE, &[0; 1480])));
        node.hands(&eth(OURS, 0x0800, &v4(REMOTE, UE, &[0; 1437])), PassReason::TooBig);
        assert_eq!(node.forwards(&eth(OURS, 0x0800, &v4(REMOTE, UE, &[0; 1436]))).len(), 1514);
        let over_ipv6 =
            |len| eth(OURS, 0x0800, &checked(&v4(REMOTE, OTHER_UE, &rig::frame::udp(53, &vec![1; len]))));
        node.hands(&over_ipv6(1409), PassReason::TooBig);
        assert_eq!(node.forwards(&over_ipv6(1408)).len(), 1514);
        let unchecked = v4(REMOTE, OTHER_UE, &rig::frame::udp(53, &[1; 40]));
        node.hands(&eth(OURS, 0x0800, &unchecked), PassReason::Checksum);
        node.hands(&eth(NEXT, 0x0800, &v4(REMOTE, UE, &[])), PassReason::NotCandidate);
        node.hands(&eth(OURS, 0x0806, &[0; 28]), PassReason::NotCandidate);
        node.hands(&eth(OURS, 0x0800, &v4(REMOTE, Ipv4Addr::new(10, 45, 0, 8), &[])), PassReason::Unknown);
        node.path.set_hop(N6, None).unwrap();
        node.hands(&uplink(), PassReason::NextHop);
        node.path.set_template(3, None).unwrap();
        node.hands(&downlink(), PassReason::NextHop);
        let mut other_flow = record(OffloadDirection::Uplink);
        other_flow.lines[0].asks.qfi = Some(8);
        node.path.insert_or_replace(TUNNEL_KEY, &other_flow).unwrap();
        node.hands(&uplink(), PassReason::Qfi);
        assert!(node.path.remove(&TUNNEL_KEY) && !node.path.remove(&TUNNEL_KEY));
        node.hands(&uplink(), PassReason::Unknown);
        assert_eq!(node.path.len(), 4);
        let nowhere = OffloadKey::Tunnel { local: PEER6.into(), teid: TEID };
        assert!(!node.path.remove(&nowhere) && !node.path.contains(&nowhere), "no record was ever for it");
        let over_ipv6 = OffloadKey::Tunnel { local: LOCAL6.into(), teid: TEID };
        assert!(node.path.contains(&over_ipv6) && node.path.remove(&over_ipv6));
        node.hands(&tunnelled_over_ipv6(&v4(UE, REMOTE, &[])), PassReason::Unknown);
    });
}

#[test]
fn tenants_have_vlans_both_ways() {
    with_node("tenants_have_vlans_both_ways", |mut node| {
        let packet = v4(REMOTE, UE, &rig::frame::udp(53, &[2; 40]));
        let tagged = eth(OURS, 0x8100, &vlan(0x6007, 0x0800, &packet));
        let double = eth(OURS, 0x88a8, &vlan(5, 0x8100, &vlan(7, 0x0800, &packet)));
        node.hands(&tagged, PassReason::NotCandidate);
        let other = OffloadKey::Ipv4 { instance: 4, address: UE };
        node.path.insert_or_replace(other, &record(OffloadDirection::Downlink)).unwrap();
        let single = Vlan { outer: None, inner: 7 };
        let lan = |instance| VlanRole { instance: Some(instance), lan: true, ..VlanRole::default() };
        node.steering.set_vlans(&BTreeMap::from([(single, lan(4))])).unwrap();
        assert_eq!(node.forwards(&tagged), node.forwards(&eth(OURS, 0x0800, &packet)));
        node.hands(&double, PassReason::NotCandidate);
        node.steering.set_vlans(&BTreeMap::from([(Vlan { outer: Some(5), inner: 7 }, lan(4))])).unwrap();
        node.hands(&tagged, PassReason::NotCandidate);
        node.forwards(&double);
        node.steering.set_vlans(&BTreeMap::from([(Vlan { outer: Some(5), inner: 7 }, lan(3))])).unwrap();
        node.hands(&double, PassReason::Unknown);

        let untagged = node.forwards(&uplink());
        let hop = Hop {
            ifindex: rig::index("kb-n6"),
            mtu: 1500,
            source: OURS,
            destination: NEXT,
            port: 6,
            tag: Some(0x2064),
            ..Hop::default()
        };
        node.path.set_hop(N6, Some(&hop)).unwrap();
        let sent = node.forwards(&uplink());
        assert_eq!(sent[..12], untagged[..12]);
        assert_eq!(sent[12..18], [0x81, 0, 0x20, 0x64, 8, 0]);
        assert_eq!(sent[18..], untagged[14..]);
        node.path.set_hop(N6, Some(&Hop { inner_tag: Some(7), ..hop })).unwrap();
        let sent = node.forwards(&uplink());
        assert_eq!(sent[12..22], [0x88, 0xa8, 0x20, 0x64, 0x81, 0, 0, 7, 8, 0]);
        assert_eq!((&sent[..12], &sent[22..]), (&untagged[..12], &untagged[14..]));
        // What is on the LAN's own link the gateway is not for; the node's own routes are of no concern there.
        let beyond = |near: &str, len| Some((near.parse().unwrap(), len));
        let engines = |to| OffloadRoute { to, vrf: VRF, next_hop: OffloadNextHop::Engine };
        node.path
            .set_routes(&[("198.51.100.0".parse().unwrap(), 24), (REMOTE6.into(), 32)].map(engines))
            .unwrap();
        node.hands(&uplink(), PassReason::NextHop);
        let into_lan = uplink_with(|rule| rule.destination = OffloadDestination::Hop(N6));
        node.path.insert_or_replace(TUNNEL_KEY, &into_lan).unwrap();
        for (near, len, leads) in [
            ("198.51.100.0", 24, false),
            ("198.51.100.128", 25, true),
            ("0.0.0.0", 0, false),
            ("10.0.0.0", 8, true),
        ] {
            node.path.set_hop(N6, Some(&Hop { near: beyond(near, len), ..hop })).unwrap();
            if leads {
                node.forwards(&uplink());
            } else {
                node.hands(&uplink(), PassReason::NextHop);
            }
        }
        let uplink6 = tunnelled(&v6(UE6, REMOTE6, &rig::frame::udp(53, &[])));
        for (near, len, leads) in
            [("2001:db8::", 64, false), ("2001:db8:1::", 64, true), ("2001:db8::", 32, false)]
        {
            node.path.set_hop(N6_V6, Some(&Hop { near: beyond(near, len), ..hop })).unwrap();
            if leads {
                node.forwards(&uplink6);
            } else {
                node.hands(&uplink6, PassReason::NextHop);
            }
        }
        node.path.set_hop(N6, Some(&Hop { near: None, ..hop })).unwrap();
        node.forwards(&uplink());
        // The engine is the UE's neighbour there.
        let key = OffloadKey::Ipv6 { instance: 3, address: UE6 };
        node.path.insert_or_replace(key, &record(OffloadDirection::Downlink)).unwrap();
        let icmp = |kind: u8| {
            let mut packet = v6(REMOTE6, UE6, &[kind, 0, 0, 0, 0, 0, 0, 0]);
            packet[6] = 58;
            eth(OURS, 0x88a8, &vlan(5, 0x8100, &vlan(7, 0x86dd, &packet)))
        };
        node.forwards(&icmp(128));
        node.hands(&icmp(135), PassReason::NotCandidate);
        node.hands(&icmp(136), PassReason::NotCandidate);
    });
}

#[test]
fn a_vlan_has_roles_and_counters_of_its_own() {
    with_node("a_vlan_has_roles_and_counters_of_its_own", |mut node| {
        let roles = Roles { gtpu: false, routed: false };
        let config = SteeringConfig { roles, mac: OURS, multi_buffer: false, no_wire: false };
        node.steering = Steering::load_offload_slots(config, &node.path, 3).unwrap();
        node.steering.set_gtpu_addresses(&[LOCAL.into()]).unwrap();
        let of = |inner| Vlan { outer: None, inner };
        let n3 = VlanRole { gtpu: true, slot: 1, ..VlanRole::default() };
        let n6 = VlanRole { instance: Some(0), slot: 2, ..VlanRole::default() };
        node.steering.set_vlans(&BTreeMap::from([(of(100), n3), (of(200), n6)])).unwrap();
        let within = |vid: u16, frame: &[u8]| {
            let [high, low] = vid.to_be_bytes();
            [&frame[..12], &[0x81, 0, high, low], &frame[12..]].concat()
        };
        let counters = |node: &Node, slot| node.steering.offload_counters_of(slot).unwrap();
        // Untagged, or by the other's VLAN, it is nobody's.
        node.hands(&uplink(), PassReason::NotCandidate);
        node.hands(&downlink(), PassReason::NotCandidate);
        assert_eq!(counters(&node, 0).total(), 2);
        let hands = |node: &Node, frame: &[u8], slot, hand: PassReason| {
            let before = counters(node, slot).handed(hand);
            let run = node.run(frame);
            assert_eq!((run.frame.as_slice(), run.action == Action::Redirect), (frame, false));
            assert_eq!(counters(node, slot).handed(hand), before + 1);
        };
        hands(&node, &within(100, &downlink()), 1, PassReason::NotCandidate);
        // No tunnel there, and no UE has that address.
        hands(&node, &within(200, &uplink()), 2, PassReason::Unknown);
        hands(&node, &within(300, &uplink()), 0, PassReason::NotCandidate);
        let sent = [node.run(&within(100, &uplink())), node.run(&within(200, &downlink()))];
        assert!(sent.iter().all(|run| run.action == Action::Redirect));
        let (up, down) = (OffloadDirection::Uplink, OffloadDirection::Downlink);
        let seen = |slot| {
            let found = counters(&node, slot);
            (found.packets(up), found.packets(down), found.received_bytes())
        };
        let octets = |frame: &[u8]| frame.len() as u64 + 4;
        assert_eq!(
            [seen(0), seen(1), seen(2)],
            [(0, 0, 0), (1, 0, octets(&uplink())), (0, 1, octets(&downlink()))]
        );
        assert_eq!((counters(&node, 1).sent(6).0, counters(&node, 2).sent(6).0), (1, 1));
        assert_eq!(counters(&node, 3).total(), 0, "there is no such slot");
        let closed = uplink_with(|rule| rule.gate_open = false);
        node.path.insert_or_replace(TUNNEL_KEY, &closed).unwrap();
        assert_eq!(node.run(&within(100, &uplink())).action, Action::Drop);
        assert_eq!([0, 1, 2].map(|slot| counters(&node, slot).dropped(OffloadDrop::GateClosed)), [0, 1, 0]);
    });
}

#[test]
fn a_record_that_is_replaced_is_never_missing() {
    with_node("a_record_that_is_replaced_is_never_missing", |mut node| {
        // Dropping leaves the packet as it is, so one test run may repeat it.
        let drops = |cell| {
            let usage = [UsageCell { cell, counts: Counts::All }];
            uplink_with(|rule| *rule = OffloadRule { far_drop: true, ..rule.counting(usage) })
        };
        node.path.insert_or_replace(TUNNEL_KEY, &drops(8)).unwrap();
        let repeat = 3_000_000;
        let done = AtomicBool::new(false);
        let Node { path, steering } = &mut node;
        let replaced = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut replaced = 0u32;
                while !done.load(Ordering::Relaxed) {
                    path.insert_or_replace(TUNNEL_KEY, &drops(8 + replaced % 2)).unwrap();
                    // Neighbours come and go in the same buckets, and move about.
                    let key = OffloadKey::Tunnel { local: IpAddr::V4(LOCAL), teid: 100 + replaced % 61 };
                    path.insert_or_replace(key, &drops(10)).unwrap();
                    if replaced % 61 > 30 {
                        assert!(path.remove(&key));
                    }
                    replaced += 1;
                }
                replaced
            });
            assert_eq!(steering.test_run(&uplink(), repeat).unwrap().action, Action::Drop);
            done.store(true, Ordering::Relaxed);
            writer.join().unwrap()
        });
        assert!(replaced > 10_000, "only {replaced} replacements");
        let counters = node.counters();
        assert_eq!(
            (counters.dropped(OffloadDrop::FarDrop), counters.total()),
            (repeat.into(), repeat.into())
        );
        assert_eq!(node.cell(8)[1] + node.cell(9)[1], u64::from(repeat));
        assert!(node.cell(8)[1] > 0 && node.cell(9)[1] > 0);
        assert_eq!(node.cell(10)[1], 0);
    });
}

#[test]
fn a_full_table_finds_every_key_and_refuses_the_next() {
    if !rig::is_root("a_full_table_finds_every_key_and_refuses_the_next") {
        return;
    }
    rig::in_namespace(|_| {
        tables::interfaces();
        let mut node = Node::new(602);
        let address = |host: u32| Ipv4Addr::from_bits(0x0a2e_0000 + host);
        let key = |host| OffloadKey::Ipv4 { instance: 0, address: address(host) };
        let downlink = record(OffloadDirection::Downlink);
        for host in 0..597 {
            node.path.insert_or_replace(key(host), &downlink).unwrap();
        }
        let refused = node.path.insert_or_replace(key(597), &downlink);
        assert!(matches!(refused, Err(OffloadError::Full { limit: 602 })));
        // A replacement is no new key; so many that places have to be used again.
        for round in 0..10_000 {
            node.path.insert_or_replace(key(round % 597), &downlink).unwrap();
        }
        node.path.wait_for_readers();
        let hosts: Vec<_> = (0..597).collect();
        side_by_side(&hosts, |&host| {
            node.forwards(&eth(OURS, 0x0800, &v4(REMOTE, address(host), &[0; 8])));
        });
        for bad in [
            tables::changed(downlink.clone(), |rule| rule.destination = OffloadDestination::Hop(7)),
            tables::changed(downlink.clone(), |rule| *rule = rule.counting([UsageCell::of_passed(1024)])),
            tables::changed(downlink.clone(), |rule| rule.policers[0] = Some(16)),
        ] {
            let refused = node.path.insert_or_replace(UE_KEY, &bad);
            assert!(matches!(refused, Err(OffloadError::OutOfRange { .. })), "{refused:?}");
        }
        let mut plain = Steering::load(SteeringConfig::default()).unwrap();
        assert!(matches!(plain.set_instance(None), Err(OffloadError::NoOffload)));
    });
}

#[test]
fn packets_go_by_the_longest_route_to_a_gateway_or_a_neighbour() {
    with_node("packets_go_by_the_longest_route_to_a_gateway_or_a_neighbour", |mut node| {
        const OTHER: u32 = 4;
        const NEIGHBOUR: u32 = 5;
        let to = |address: Ipv4Addr| tunnelled(&v4(UE, address, &rig::frame::udp(53, &[1; 40])));
        let to6 =
            |address: &str| tunnelled(&v6(UE6, address.parse().unwrap(), &rig::frame::udp(53, &[1; 40])));
        let near = Ipv4Addr::new(198, 18, 77, 5);
        node.forwards(&to(near));
        let hop = |last| Hop {
            ifindex: rig::index("kb-n6"),
            mtu: 1500,
            source: OURS,
            destination: [2, 0, 0, 0, 0, last],
            ..Hop::default()
        };
        node.path.set_hop(OTHER, Some(&hop(0x44))).unwrap();
        node.path.set_hop(NEIGHBOUR, Some(&hop(0x55))).unwrap();
        let route =
            |to: &str, len, next_hop| OffloadRoute { to: (to.parse().unwrap(), len), vrf: VRF, next_hop };
        let routes = [
            route("0.0.0.0", 0, OffloadNextHop::Hop(OTHER)),
            route("198.18.77.9", 24, OffloadNextHop::Link),
            route("198.18.77.128", 25, OffloadNextHop::Engine),
            route("2001:db8:1::", 48, OffloadNextHop::Hop(OTHER)),
            route("2001:db8:1:2::9", 128, OffloadNextHop::Hop(OTHER)),
        ];
        node.path.set_routes(&routes).unwrap();
        let mac = |node: &Node, frame: &[u8]| node.forwards(frame)[5];
        assert_eq!(mac(&node, &uplink()), 0x44);
        node.hands(&to(near), PassReason::NextHop);
        node.hands(&to(Ipv4Addr::new(198, 18, 77, 200)), PassReason::NextHop);
        assert_eq!(mac(&node, &to6("2001:db8:1:1::1")), 0x44);
        node.hands(&to6("2001:db8:1:2::1"), PassReason::NextHop);
        node.hands(&to6("2001:db8:2::1"), PassReason::NextHop);
        let neighbours = BTreeMap::from([(near.into(), NEIGHBOUR)]);
        node.path.set_neighbours(&neighbours).unwrap();
        assert_eq!(mac(&node, &to(near)), 0x55);
        node.hands(&to(Ipv4Addr::new(198, 18, 77, 6)), PassReason::NextHop);
        node.path.set_neighbours(&BTreeMap::new()).unwrap();
        node.hands(&to(near), PassReason::NextHop);
        // Into tunnels the template leads.
        node.forwards(&downlink());
        let many: Vec<_> =
            (0..33).map(|at| route(&format!("198.18.{at}.0"), 24, OffloadNextHop::Engine)).collect();
        assert!(matches!(node.path.set_routes(&many), Err(OffloadError::OutOfRange { value: 33, .. })));
        assert_eq!(mac(&node, &uplink()), 0x44, "nothing has changed");
        // Another VRF's routes are no concern of this one's packets.
        let others = routes.map(|route| OffloadRoute {
            vrf: VRF + 1,
            next_hop: OffloadNextHop::Hop(NEIGHBOUR),
            ..route
        });
        let mine = [route("0.0.0.0", 0, OffloadNextHop::Hop(OTHER))];
        node.path.set_routes(&[&mine[..], &others].concat()).unwrap();
        assert_eq!((mac(&node, &to(near)), mac(&node, &uplink())), (0x44, 0x44));
        let of_other = uplink_with(|rule| rule.destination = OffloadDestination::Routed(VRF + 1));
        node.path.insert_or_replace(TUNNEL_KEY, &of_other).unwrap();
        assert_eq!((mac(&node, &to(near)), mac(&node, &uplink())), (0x55, 0x55));
        node.path.set_routes(&mine).unwrap();
        node.hands(&to(near), PassReason::NextHop);
    });
}

/// Where packets may come from this host: the engine finishes what their sender has left.
#[test]
fn checksums_that_are_left_are_the_engines_to_finish() {
    with_node("checksums_that_are_left_are_the_engines_to_finish", |mut node| {
        let pseudo = |packet: &[u8]| {
            let upper_len = |header: usize| u16::try_from(packet.len() - header).unwrap();
            match packet[0] >> 4 {
                4 => checksum::pseudo_v4(REMOTE, UE, IpProtocol(packet[9]), upper_len(20)),
                _ => checksum::pseudo_v6(REMOTE6, UE6, IpProtocol(packet[6]), upper_len(40).into()),
            }
        };
        let tcp = {
            let mut segment = vec![0; 60];
            segment[12] = 5 << 4;
            segment
        };
        let datagram = rig::frame::udp(53, &[2; 40]);
        let as_tcp = |mut packet: Vec<u8>, at: usize| {
            packet[at] = 6;
            if at == 9 {
                ipv4::fill_checksum(&mut packet[..20]);
            }
            packet
        };
        let packets = [
            (v4(REMOTE, UE, &datagram), 20 + 6),
            (as_tcp(v4(REMOTE, UE, &tcp), 9), 20 + 16),
            (v6(REMOTE6, UE6, &datagram), 40 + 6),
            (as_tcp(v6(REMOTE6, UE6, &tcp), 6), 40 + 16),
        ];
        for no_wire in [false, true] {
            let roles = Roles { gtpu: true, routed: true };
            let config = SteeringConfig { roles, mac: OURS, multi_buffer: false, no_wire };
            node.steering = Steering::load_offload(config, &node.path).unwrap();
            node.steering.set_gtpu_addresses(&[LOCAL.into()]).unwrap();
            node.steering.set_instance(Some(0)).unwrap();
            for (packet, at) in &packets {
                let ethertype = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
                let with = |sum: u16| {
                    let mut packet = packet.clone();
                    packet[*at..at + 2].copy_from_slice(&sum.to_be_bytes());
                    eth(OURS, ethertype, &packet)
                };
                let left = pseudo(packet);
                node.forwards(&with(left ^ 0x100));
                if no_wire {
                    node.hands(&with(left), PassReason::Checksum);
                } else {
                    node.forwards(&with(left));
                }
            }
            // In a tunnel it is the UE's own, which no device is asked for.
            let mut inside = v4(UE, REMOTE, &datagram);
            let left = checksum::pseudo_v4(UE, REMOTE, IpProtocol::UDP, 48);
            inside[26..28].copy_from_slice(&left.to_be_bytes());
            node.forwards(&tunnelled(&inside));
        }
    });
}

#[test]
fn frames_and_their_bytes_are_counted_as_they_come_and_go() {
    with_node("frames_and_their_bytes_are_counted_as_they_come_and_go", |mut node| {
        let (up, down) = (node.forwards(&uplink()).len(), node.forwards(&downlink()).len());
        let key = OffloadKey::Ipv6 { instance: 0, address: UE6 };
        assert!(node.path.contains(&key) && node.path.remove(&key) && !node.path.contains(&key));
        node.path
            .insert_or_replace(
                UE_KEY,
                &tables::changed(record(OffloadDirection::Downlink), |rule| rule.far_drop = true),
            )
            .unwrap();
        assert_eq!(node.run(&downlink()).action, Action::Drop);
        let counters = node.counters();
        assert_eq!(counters.received_packets(), 3);
        assert_eq!(counters.received_bytes(), (uplink().len() + 2 * downlink().len()) as u64);
        assert_eq!(counters.sent(6), (2, (up + down) as u64));
        assert_eq!(counters.sent(5), (0, 0));
        assert_eq!(counters.sent(64), (0, 0));
    });
}

#[test]
fn the_cells_are_the_same_seen_by_either_mapping() {
    with_node("the_cells_are_the_same_seen_by_either_mapping", |mut node| {
        let words = node.path.leak_usage_cells().unwrap();
        node.forwards(&uplink());
        // The first packet of a record is counted at once.
        assert_eq!(words.len(), 1024 * 8);
        assert_eq!((words[40].load(Ordering::Relaxed), words[41].load(Ordering::Relaxed)), (68, 1));
        assert_eq!(node.cell(5)[..2], [68, 1]);
    });
}

/// A record is taken away while programs run: what they counted by it is all there when their end was waited for.
#[test]
fn after_the_wait_nothing_is_counted_any_more() {
    with_node("after_the_wait_nothing_is_counted_any_more", |mut node| {
        let words = node.path.leak_usage_cells().unwrap();
        let Node { path, steering } = &mut node;
        let (steering, stop) = (&*steering, AtomicBool::new(false));
        // Dropped and counted: a forwarded frame is another one when a run is repeated.
        let usage = [UsageCell { cell: 5, counts: Counts::All }];
        let dropping = uplink_with(|rule| *rule = OffloadRule { far_drop: true, ..rule.counting(usage) });
        std::thread::scope(|scope| {
            let runs = scope.spawn(|| {
                let mut runs = 0;
                while !stop.load(Ordering::Relaxed) {
                    steering.test_run(&uplink(), 1000).unwrap();
                    runs += 1;
                }
                runs
            });
            let mut seen = 0;
            let mut rounds = 0;
            let deadline = Instant::now() + Duration::from_secs(60);
            while rounds < 300 || seen == 0 && Instant::now() < deadline {
                rounds += 1;
                path.insert_or_replace(TUNNEL_KEY, &dropping).unwrap();
                std::thread::sleep(Duration::from_micros(200));
                path.remove(&TUNNEL_KEY);
                path.wait_for_readers();
                let counted = words[41].load(Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(100));
                assert_eq!(words[41].load(Ordering::Relaxed), counted);
                seen += u64::from(counted > 0);
            }
            stop.store(true, Ordering::Relaxed);
            assert!(runs.join().unwrap() > 0);
            assert!(seen > 0, "no packet was counted");
        });
    });
}
