use std::sync::Arc;

use super::*;
use crate::node::{Instance, UdpChecksums};
use crate::qos::{Enforcement, PolicerSlot};
use crate::record::SessionFacts;
use crate::record::{Counted, EndpointId, Tunnel};
use crate::rules::{
    AddressMatch, ApplyAction, FlowEnd, FramedRoute, Ipv6Prefix, PagingPolicyIndicator, PdrId, Qfi, SdfFilter,
};
use crate::special::{Local, PlainHeader, UeToUe};
use crate::usage::UsageSlot;

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn node() -> Arc<Node> {
    let peer_with_checksum = (ip("10.3.0.64"), 26, true);
    let settings = NodeSettings {
        endpoints: vec![ip("fd00:3::1"), ip("10.3.0.1")],
        instances: vec![Instance { name: None }],
        udp_checksums: UdpChecksums { peers: vec![peer_with_checksum], ..UdpChecksums::default() },
        sessions_max: 16,
        ..NodeSettings::default()
    };
    Node::new(settings).unwrap().0
}

const UE: UeAddresses = UeAddresses { ipv4: Some(Ipv4Addr::new(10, 60, 0, 7)), ipv6: None };

/// A rule of one session, and what is different about it.
#[derive(Clone, Copy)]
struct Rule {
    direction: Direction,
    apply: ApplyAction,
    gate_open: bool,
    qos: Enforcement,
    destination: Destination,
    usage: UsageSlots,
    qfis: Option<u64>,
    ue: UeAddresses,
}

impl Rule {
    fn downlink(node: &Node, peer: &str, local: u8) -> Self {
        let shape =
            TunnelShape { qfi: Some(Qfi(9)), tos: 0xb8, ..TunnelShape::plain(ip(peer), EndpointId(local)) };
        let mut usage = UsageSlots::default();
        assert!(
            usage.push(UsageSlot(3), Counted::Passed, false) && usage.push(UsageSlot(5), Counted::All, false)
        );
        Self {
            direction: Direction::Downlink,
            apply: ApplyAction { forward: true, ..ApplyAction::default() },
            gate_open: true,
            qos: Enforcement::default(),
            destination: Destination::Tunnel(node.tunnels.tunnel(shape, Teid(77))),
            usage,
            qfis: None,
            ue: UE,
        }
    }

    fn uplink(node: &Node) -> Self {
        let destination = Destination::Routed;
        Self { direction: Direction::Uplink, destination, ..Self::downlink(node, "10.3.0.2", 1) }
    }

    fn record(&self) -> Record {
        Record::new(
            SessionIndex(4),
            self.direction,
            SessionFacts { ue: self.ue, ..SessionFacts::default() },
            vec![self.filtered()],
        )
    }

    fn filtered(&self) -> FilteredRule {
        let action = Action {
            pdr: PdrId(1),
            apply: self.apply,
            gate_open: self.gate_open,
            qos: self.qos,
            destination: self.destination,
            exit: None,
            usage: self.usage,
            buffer: crate::record::BufferBounds::default(),
        };
        FilteredRule {
            frames: Box::new([]),
            qfis: self.qfis,
            sdf: Box::new([]),
            ue: None,
            app: None,
            framed: Box::default(),
            action,
            special: None,
            on_quota: Box::new([]),
        }
    }

    fn translated(&self, node: &Node) -> Option<KernelRecord> {
        KernelRecord::of(&self.record(), node)
    }
}

#[test]
fn a_plain_rule_of_each_direction_says_the_same_in_the_kernel() {
    let node = node();
    let down = Rule::downlink(&node, "10.3.0.2", 1);
    let Destination::Tunnel(Tunnel { shape, id: Some(id), teid }) = down.destination else { unreachable!() };
    let expected = KernelRecord {
        session: SessionIndex(4),
        direction: Direction::Downlink,
        qfis: None,
        ue: UE,
        usage: down.usage,
        destination: KernelDestination::Tunnel { id, shape, teid },
    };
    assert_eq!(down.translated(&node), Some(expected));
    let up =
        KernelRecord { direction: Direction::Uplink, destination: KernelDestination::Routed, ..expected };
    assert_eq!(Rule::uplink(&node).translated(&node), Some(up));
    let ipv6 = Some(Ipv6Prefix::of("2001:db8:60:7::".parse().unwrap(), 64));
    let dual = Rule { ue: UeAddresses { ipv6, ..UE }, ..Rule::uplink(&node) };
    assert_eq!(dual.translated(&node), Some(KernelRecord { ue: dual.ue, ..up }));
    let of_a_flow = Rule { qfis: Some(1 << 9), ..Rule::uplink(&node) };
    assert_eq!(of_a_flow.translated(&node), Some(KernelRecord { qfis: Some(1 << 9), ..up }));
}

#[test]
fn what_is_dropped_whole_is_dropped_there_for_the_reason_that_a_worker_gives() {
    let node = node();
    let (drop, buffer) = (
        ApplyAction { drop: true, ..ApplyAction::default() },
        ApplyAction { buffer: true, ..ApplyAction::default() },
    );
    let rule = |apply, gate_open| Rule { apply, gate_open, ..Rule::downlink(&node, "10.3.0.2", 1) };
    let found = |apply, gate_open| rule(apply, gate_open).translated(&node).map(|record| record.destination);
    assert_eq!(found(drop, true), Some(KernelDestination::FarDrop));
    assert_eq!(found(drop, false), Some(KernelDestination::GateClosed));
    assert_eq!(found(buffer, false), Some(KernelDestination::GateClosed));
    assert_eq!(found(buffer, true), None, "only workers keep packets");
    // Where it would go does not matter then.
    let over_ipv6 = Rule { gate_open: false, ..Rule::downlink(&node, "fd00:3::2", 0) };
    assert_eq!(over_ipv6.translated(&node).unwrap().destination, KernelDestination::GateClosed);
}

#[test]
fn what_only_workers_can_do_does_not_fit() {
    let node = node();
    let plain = || Rule::downlink(&node, "10.3.0.2", 1);
    assert_eq!(Rule::downlink(&node, "fd00:3::2", 0).translated(&node), None, "over IPv6");
    assert_eq!(Rule::downlink(&node, "10.3.0.65", 1).translated(&node), None, "with a UDP checksum");
    assert_eq!(Rule::downlink(&node, "10.3.0.2", 0).translated(&node), None, "ends of two families");
    assert_eq!(Rule { destination: Destination::Routed, ..plain() }.translated(&node), None, "routed to UEs");
    let mut usage = plain().usage;
    assert!(usage.push(UsageSlot(6), Counted::Passed, false));
    assert!(Rule { usage, ..plain() }.translated(&node).is_some());
    assert!(usage.push(UsageSlot(7), Counted::Passed, false));
    assert_eq!(Rule { usage, ..plain() }.translated(&node), None, "four counters");
}

#[test]
fn a_rule_that_leads_into_a_lan_fits_if_it_asks_for_nothing_else() {
    let node = node();
    let id = LanId(3);
    let into = |exit| Special { egress: Some(Egress { header: None, exit }), ..Special::default() };
    let record = |rule: Rule, special: Special| {
        let rules = vec![FilteredRule { special: Some(Box::new(special)), ..rule.filtered() }];
        let facts = SessionFacts { ue: UE, ..SessionFacts::default() };
        KernelRecord::of(&Record::new(SessionIndex(4), rule.direction, facts, rules), &node)
    };
    let uplink = Rule::uplink(&node);
    let found = record(uplink, into(Exit::Lan(id))).map(|record| record.destination);
    assert_eq!(found, Some(KernelDestination::Lan(id)));
    let closed = Rule { gate_open: false, ..uplink };
    let found = record(closed, into(Exit::Lan(id))).map(|record| record.destination);
    assert_eq!(found, Some(KernelDestination::GateClosed));
    let buffered = Rule { apply: ApplyAction { buffer: true, ..ApplyAction::default() }, ..uplink };
    assert_eq!(record(buffered, into(Exit::Lan(id))), None);
    let downlink = Rule { destination: Destination::Routed, ..Rule::downlink(&node, "10.3.0.2", 1) };
    assert_eq!(record(downlink, into(Exit::Lan(id))), None, "no gateway leads to UEs");
    assert_eq!(record(uplink, into(Exit::Via(ip("10.6.0.9")))), None, "by a policy");
    let header = PlainHeader { own: ip("10.6.0.1"), peer: ip("10.6.0.9"), port: None, tos: 0, copied: 0 };
    let behind =
        Special { egress: Some(Egress { header: Some(header), exit: Exit::Lan(id) }), ..Special::default() };
    assert_eq!(record(uplink, behind), None, "behind a header");
    let more = Special { to_control_plane: true, ..into(Exit::Lan(id)) };
    assert_eq!(record(uplink, more), None, "for the control plane too");
    let local = Some(Local::Neighbours { instance: InstanceId(1), how: UeToUe::Forward });
    assert_eq!(record(uplink, Special { local, ..into(Exit::Lan(id)) }), None, "to other UEs first");
}

#[test]
fn rates_and_rare_containers_are_the_workers_to_enforce() {
    let node = node();
    let mut usage = UsageSlots::default();
    assert!(usage.push(UsageSlot(3), Counted::Passed, false));
    for usage in [usage, Rule::uplink(&node).usage] {
        let qos = Enforcement::of(PolicerSlot(1));
        assert_eq!(Rule { qos, usage, ..Rule::uplink(&node) }.translated(&node), None);
        assert!(Rule { usage, ..Rule::uplink(&node) }.translated(&node).is_some());
    }
    let down = Rule::downlink(&node, "10.3.0.2", 1);
    let Destination::Tunnel(Tunnel { shape, teid, .. }) = down.destination else { unreachable!() };
    let with = |shape| Rule { destination: Destination::Tunnel(node.tunnels.tunnel(shape, teid)), ..down };
    assert_eq!(with(TunnelShape { reflective: true, ..shape }).translated(&node), None);
    let ppi = Some(PagingPolicyIndicator(3));
    assert_eq!(with(TunnelShape { paging_policy: ppi, ..shape }).translated(&node), None);
}

#[test]
fn counters_and_policers_fold_as_far_as_there_is_room() {
    let node = node();
    let rule = Rule::downlink(&node, "10.3.0.2", 1);
    let usage = |counters: u32| {
        let mut usage = UsageSlots::default();
        for n in 0..counters {
            let what = if n % 2 == 0 { Counted::All } else { Counted::Passed };
            assert!(usage.push(UsageSlot(n), what, false));
        }
        usage
    };
    let qos = |policers: u32| {
        let mut qos = Enforcement::default();
        (0..policers).for_each(|n| assert!(qos.push(PolicerSlot(u32::MAX - n))));
        qos
    };
    let ipv4 = SessionFacts { ue: UE, ..SessionFacts::default() };
    let prefix = Ipv6Prefix::of("2001:db8:0:7::".parse().unwrap(), 64);
    let dual = SessionFacts { ue: UeAddresses { ipv6: Some(prefix), ..UE }, ..ipv4 };
    for (facts, room) in [(dual, 3), (ipv4, 5)] {
        for counters in 0..=6 {
            for policers in 0..=3 {
                let rule = Rule { qos: qos(policers), usage: usage(counters), ..rule };
                let record = Record::new(SessionIndex(4), Direction::Downlink, facts, vec![rule.filtered()]);
                assert_eq!(record.ue(), facts.ue);
                // The fifth counter of these counts before QoS enforcement, which is said of four.
                let fits = counters + policers <= room && policers <= 2 && counters < 5;
                match record.rules(&node.tunnels) {
                    Rules::One(action) => {
                        assert!(fits, "{counters} counters and {policers} policers");
                        assert_eq!((action.qos, action.usage), (rule.qos, rule.usage));
                    }
                    Rules::Filtered(_) => assert!(!fits, "{counters} counters and {policers} policers"),
                }
            }
        }
    }
}

#[test]
fn a_quota_folds() {
    let node = node();
    let mut usage = UsageSlots::default();
    assert!(usage.push(UsageSlot(3), Counted::Passed, true) && usage.push(UsageSlot(9), Counted::All, true));
    let record = Rule { usage, ..Rule::downlink(&node, "10.3.0.2", 1) }.record();
    assert!(record.has_folded_quotas());
    let Rules::One(action) = record.rules(&node.tunnels) else { panic!("it does not fold") };
    assert_eq!(action.usage, usage);
}

#[test]
fn rules_that_look_into_packets_do_not_fit() {
    let node = node();
    let of = |facts, rules| {
        KernelRecord::of(&Record::new(SessionIndex(4), Direction::Uplink, facts, rules), &node)
    };
    let facts = SessionFacts { ue: UE, ..SessionFacts::default() };
    let record = |rules| of(facts, rules);
    let plain = Rule::uplink(&node).filtered();
    assert!(record(vec![plain.clone()]).is_some());
    let behind = FramedRoute::of([192, 168, 1, 0].into(), 24);
    let routed = SessionFacts { framed: &[behind], ..facts };
    assert_eq!(of(routed, vec![plain.clone()]), None, "sources of a framed route");
    let listening = SessionFacts { listens: true, ..facts };
    assert_eq!(of(listening, vec![plain.clone()]), None, "a session that listens");
    let app = Some(crate::apps::AppNumber(0));
    assert_eq!(record(vec![FilteredRule { app, ..plain.clone() }]), None, "an application");
    let any = FlowEnd { address: AddressMatch::Any, ports: Vec::new() };
    let sdf = SdfFilter {
        protocol: None,
        remote: any.clone(),
        local: any,
        tos: Some((0xb8, 0xfc)),
        spi: None,
        flow_label: None,
        id: None,
    };
    assert_eq!(record(vec![FilteredRule { sdf: Box::new([sdf]), ..plain.clone() }]), None);
    let narrow = UeAddresses { ipv4: None, ipv6: Some(Ipv6Prefix::of("2001:db8::".parse().unwrap(), 64)) };
    assert_eq!(record(vec![FilteredRule { ue: Some(narrow), ..plain.clone() }]), None);
    assert_eq!(record(vec![FilteredRule { qfis: Some(2), ..plain.clone() }, plain]), None, "two rules");
    let ipv6 = Some(Ipv6Prefix::of("2001:db8::".parse().unwrap(), 56));
    let wide = Rule { ue: UeAddresses { ipv6, ..UE }, ..Rule::uplink(&node) };
    assert_eq!(wide.translated(&node), None, "more than a /64");
}

#[test]
fn keys_become_addresses_and_tunnels_over_ipv6_have_none() {
    let node = node();
    let of = |key| KernelKey::of(&key, &node.settings);
    let (instance, address) = (InstanceId(2), Ipv4Addr::new(10, 60, 0, 7));
    let tunnel = KernelKey::Tunnel { local: Ipv4Addr::new(10, 3, 0, 1), teid: Teid(0xffff_fffe) };
    assert_eq!(of(SessionKey::tunnel(EndpointId(1), Teid(0xffff_fffe))), Some(tunnel));
    assert_eq!(of(SessionKey::tunnel(EndpointId(0), Teid(1))), None);
    let behind = FramedRoute::of([192, 168, 1, 0].into(), 24);
    assert_eq!(of(SessionKey::framed(InstanceId(0), &behind)), None);
    assert_eq!(of(SessionKey::tunnel(EndpointId(9), Teid(1))), None);
    assert_eq!(of(SessionKey::ipv4(instance, address)), Some(KernelKey::Ipv4 { instance, address }));
    let in_prefix: Ipv6Addr = "2001:db8:60:7:1:2:3:4".parse().unwrap();
    let first = "2001:db8:60:7::".parse().unwrap();
    assert_eq!(of(SessionKey::ipv6(instance, in_prefix)), Some(KernelKey::Ipv6 { instance, address: first }));
}
