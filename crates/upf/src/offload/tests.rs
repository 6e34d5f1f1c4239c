use std::sync::Arc;

use super::*;
use crate::action::CountScope;
use crate::extended::{Egress, Exit, ExtendedActions, PlainHeader};
use crate::ids::EndpointId;
use crate::node::Instance;
use crate::qos::{Enforcement, PolicerSlot};
use crate::record::SessionFacts;
use crate::rule::{Detection, FilteredRule};
use crate::tunnels::{OuterClass, Tunnel};
use crate::usage::UsageSlot;
use kaido_n4::{
    AddressMatch, ApplyAction, FramedRoute, Ipv6Prefix, PagingPolicyIndicator, PdrId, Qfi, SdfFilter,
};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn node() -> Arc<Node> {
    let settings = NodeSettings {
        endpoints: vec![ip("fd00:3::1"), ip("10.3.0.1")],
        instances: vec![Instance { name: None }],
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
        let encap = EncapTemplate {
            qfi: Some(Qfi(9)),
            class: OuterClass::Fixed(0xb8),
            ..EncapTemplate::plain(ip(peer), EndpointId(local))
        };
        let mut usage = UsageSlots::default();
        assert!(
            usage.push(UsageSlot(3), CountScope::Passed, false)
                && usage.push(UsageSlot(5), CountScope::All, false)
        );
        Self {
            direction: Direction::Downlink,
            apply: ApplyAction { forward: true, ..ApplyAction::default() },
            gate_open: true,
            qos: Enforcement::default(),
            destination: Destination::Tunnel(node.tunnels.tunnel(encap, Teid(77))),
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
            exit: N6Exit::Any,
            other_ues: None,
            usage: self.usage,
            buffer: crate::action::BufferBounds::default(),
        };
        let detection = Arc::new(Detection { qfis: self.qfis, ..Detection::default() });
        FilteredRule { detection, action, extended: None, on_quota: Box::new([]) }
    }

    fn translated(&self, node: &Node) -> Result<KernelRecord, OffloadRefusal> {
        translated(&self.record(), node)
    }
}

fn asking(rule: &FilteredRule, detection: Detection) -> FilteredRule {
    FilteredRule { detection: Arc::new(detection), ..rule.clone() }
}

/// The kernel's form of a record under a key of its direction.
fn translated(record: &Record, node: &Node) -> Result<KernelRecord, OffloadRefusal> {
    let key = match record.direction() {
        Direction::Uplink => SessionKey::tunnel(EndpointId(1), Teid(1)),
        Direction::Downlink => SessionKey::ipv4(InstanceId(0), Ipv4Addr::new(10, 60, 0, 7)),
    };
    KernelRecord::of(&key, record, node)
}

/// A record of one rule, which packets of a QoS flow match, if that matters.
fn of_one(
    direction: Direction,
    qfi: Option<u8>,
    usage: UsageSlots,
    destination: KernelDestination,
) -> KernelRecord {
    let rule = Ok(KernelRule { usage, policers: Enforcement::default(), destination });
    let lines = [KernelLine { ask: FlowMatch::any(qfi), rule }].into_iter().collect();
    KernelRecord { session: SessionIndex(4), direction, ue: UE, lines, beyond: None }
}

/// Where packets of its one rule go.
fn goes(record: Result<KernelRecord, OffloadRefusal>) -> Result<KernelDestination, OffloadRefusal> {
    record.map(|record| record.lines[0].rule.unwrap().destination)
}

#[test]
fn a_plain_rule_of_each_direction_says_the_same_in_the_kernel() {
    let node = node();
    let down = Rule::downlink(&node, "10.3.0.2", 1);
    let Destination::Tunnel(Tunnel { encap, id: Some(id), teid }) = down.destination else { unreachable!() };
    let tunnel = KernelDestination::Tunnel { id, encap, teid };
    assert_eq!(down.translated(&node), Ok(of_one(Direction::Downlink, None, down.usage, tunnel)));
    for (peer, local) in [("fd00:3::2", 0), ("10.3.0.65", 1)] {
        let goes = goes(Rule::downlink(&node, peer, local).translated(&node));
        let Ok(KernelDestination::Tunnel { encap, .. }) = goes else {
            panic!("{peer}: {goes:?}");
        };
        assert_eq!(encap.peer, peer.parse::<IpAddr>().unwrap());
    }
    let up = |qfi| of_one(Direction::Uplink, qfi, down.usage, KernelDestination::Routed(N6Exit::Any));
    assert_eq!(Rule::uplink(&node).translated(&node), Ok(up(None)));
    let ipv6 = Some(Ipv6Prefix::of("2001:db8:60:7::".parse().unwrap(), 64));
    let dual = Rule { ue: UeAddresses { ipv6, ..UE }, ..Rule::uplink(&node) };
    assert_eq!(dual.translated(&node), Ok(KernelRecord { ue: dual.ue, ..up(None) }));
    let of_a_flow = Rule { qfis: Some(1 << 9), ..Rule::uplink(&node) };
    assert_eq!(of_a_flow.translated(&node), Ok(up(Some(9))));
    let of_two = Rule { qfis: Some(1 << 9 | 1 << 5), ..Rule::uplink(&node) }.translated(&node).unwrap();
    assert_eq!(of_two.lines.iter().map(|line| line.ask.qfi).collect::<Vec<_>>(), [Some(5), Some(9)]);
}

#[test]
fn what_is_dropped_whole_is_dropped_there_for_the_reason_that_a_worker_gives() {
    let node = node();
    let (drop, buffer) = (
        ApplyAction { drop: true, ..ApplyAction::default() },
        ApplyAction { buffer: true, ..ApplyAction::default() },
    );
    let rule = |apply, gate_open| Rule { apply, gate_open, ..Rule::downlink(&node, "10.3.0.2", 1) };
    let found = |apply, gate_open| goes(rule(apply, gate_open).translated(&node));
    assert_eq!(found(drop, true), Ok(KernelDestination::FarDrop));
    assert_eq!(found(drop, false), Ok(KernelDestination::GateClosed));
    assert_eq!(found(buffer, false), Ok(KernelDestination::GateClosed));
    assert_eq!(found(buffer, true), Err(OffloadRefusal::Buffering), "only workers keep packets");
    // Where it would go does not matter then.
    let over_ipv6 = Rule { gate_open: false, ..Rule::downlink(&node, "fd00:3::2", 0) };
    assert_eq!(goes(over_ipv6.translated(&node)), Ok(KernelDestination::GateClosed));
}

#[test]
fn what_only_workers_can_do_does_not_fit() {
    let node = node();
    let plain = || Rule::downlink(&node, "10.3.0.2", 1);
    let of_two_families = Rule::downlink(&node, "10.3.0.2", 0);
    assert_eq!(of_two_families.translated(&node), Err(OffloadRefusal::TunnelHeader));
    let routed = Rule { destination: Destination::Routed, ..plain() };
    assert_eq!(routed.translated(&node), Err(OffloadRefusal::Routed), "to UEs");
    let relayed = Rule { direction: Direction::Uplink, ..plain() };
    assert_eq!(relayed.translated(&node), Err(OffloadRefusal::Relayed));
    let mut usage = plain().usage;
    for slot in [6, 7] {
        assert!(usage.push(UsageSlot(slot), CountScope::Passed, false));
        assert!(Rule { usage, ..plain() }.translated(&node).is_ok());
    }
    assert!(usage.push(UsageSlot(8), CountScope::Passed, false));
    assert_eq!(Rule { usage, ..plain() }.translated(&node), Err(OffloadRefusal::Cells), "five counters");
}

#[test]
fn a_rule_leaves_by_the_routes_of_its_network_instance() {
    let node = node();
    for exit in [N6Exit::Any, N6Exit::Instance(InstanceId(1))] {
        let mut asked = Rule::uplink(&node).filtered();
        asked.action.exit = exit;
        let facts = SessionFacts { ue: UE, ..SessionFacts::default() };
        let record = Record::new(SessionIndex(4), Direction::Uplink, facts, vec![asked]);
        assert_eq!(goes(translated(&record, &node)), Ok(KernelDestination::Routed(exit)));
    }
}

#[test]
fn a_rule_that_leads_into_a_lan_fits_if_it_asks_for_nothing_else() {
    let node = node();
    let id = LanId(3);
    let asked = |rule: Rule, extended: Option<ExtendedActions>| {
        let mut asked = FilteredRule { extended: extended.map(Arc::new), ..rule.filtered() };
        asked.action.exit = N6Exit::Lan(id);
        let facts = SessionFacts { ue: UE, ..SessionFacts::default() };
        goes(translated(&Record::new(SessionIndex(4), rule.direction, facts, vec![asked]), &node))
    };
    let record = |rule: Rule, extended: ExtendedActions| asked(rule, Some(extended));
    let uplink = Rule::uplink(&node);
    assert_eq!(asked(uplink, None), Ok(KernelDestination::Lan(id)));
    let closed = Rule { gate_open: false, ..uplink };
    assert_eq!(asked(closed, None), Ok(KernelDestination::GateClosed));
    let buffered = Rule { apply: ApplyAction { buffer: true, ..ApplyAction::default() }, ..uplink };
    assert_eq!(asked(buffered, None), Err(OffloadRefusal::Buffering));
    let downlink = Rule { destination: Destination::Routed, ..Rule::downlink(&node, "10.3.0.2", 1) };
    assert_eq!(asked(downlink, None), Err(OffloadRefusal::Routed), "no gateway leads to UEs");
    let extended = Err(OffloadRefusal::ExtendedActions);
    let into =
        |exit| ExtendedActions { egress: Some(Egress { header: None, exit }), ..ExtendedActions::default() };
    assert_eq!(record(uplink, into(Exit::Via(ip("10.6.0.9")))), extended, "by a policy");
    let header =
        PlainHeader { own: ip("10.6.0.1"), peer: ip("10.6.0.9"), port: None, class: OuterClass::Fixed(0) };
    let behind = ExtendedActions {
        egress: Some(Egress { header: Some(header), exit: Exit::Lan(id) }),
        ..ExtendedActions::default()
    };
    assert_eq!(record(uplink, behind), extended, "behind a header");
    let more = ExtendedActions { to_control_plane: true, ..ExtendedActions::default() };
    assert_eq!(record(uplink, more), extended, "for the control plane too");
    let virtual_network = Some(InstanceId(1));
    assert_eq!(
        record(uplink, ExtendedActions { virtual_network, ..ExtendedActions::default() }),
        extended,
        "to members of a virtual network"
    );
}

#[test]
fn rates_are_the_kernels_and_guarantees_and_rare_containers_the_workers() {
    let node = node();
    let mut usage = UsageSlots::default();
    for (slot, what) in [(3, CountScope::Passed), (4, CountScope::Dropped)] {
        assert!(usage.push(UsageSlot(slot), what, slot == 3));
    }
    let up = Rule { usage, ..Rule::uplink(&node) };
    let of = |rule: Rule| rule.translated(&node).map(|record| record.lines[0].rule.unwrap());
    assert_eq!(of(up).unwrap().usage, usage.without_dropped(), "nothing is dropped");
    let mut qos = Enforcement::of(PolicerSlot(1));
    let limited = of(Rule { qos, ..up }).unwrap();
    assert_eq!((limited.usage, limited.policers), (usage, qos));
    let closed = of(Rule { qos, gate_open: false, ..up }).unwrap();
    assert_eq!((closed.usage, closed.policers), (usage, Enforcement::default()));
    assert!(qos.push(PolicerSlot(2)) && of(Rule { qos, ..up }).is_ok());
    assert!(qos.push(PolicerSlot(3)));
    assert_eq!(of(Rule { qos, ..up }), Err(OffloadRefusal::Cells), "three rates");
    let mut guaranteed = Enforcement::of(PolicerSlot(1));
    guaranteed.guarantee(PolicerSlot(2));
    assert_eq!(of(Rule { qos: guaranteed, ..up }), Err(OffloadRefusal::Guaranteed));
    let mut counted = Enforcement::default();
    assert!(counted.count_packets(PolicerSlot(2)));
    assert_eq!(of(Rule { qos: counted, ..up }), Err(OffloadRefusal::PacketRate));
    let down = Rule::downlink(&node, "10.3.0.2", 1);
    let Destination::Tunnel(Tunnel { encap, teid, .. }) = down.destination else { unreachable!() };
    let with = |encap| Rule { destination: Destination::Tunnel(node.tunnels.tunnel(encap, teid)), ..down };
    assert_eq!(of(with(EncapTemplate { reflective: true, ..encap })), Err(OffloadRefusal::TunnelHeader));
    let ppi = Some(PagingPolicyIndicator(3));
    assert_eq!(of(with(EncapTemplate { paging_policy: ppi, ..encap })), Err(OffloadRefusal::TunnelHeader));
}

#[test]
fn counters_and_policers_fold_as_far_as_there_is_room() {
    let node = node();
    let rule = Rule::downlink(&node, "10.3.0.2", 1);
    let usage = |counters: u32| {
        let mut usage = UsageSlots::default();
        for n in 0..counters {
            let what = if n % 2 == 0 { CountScope::All } else { CountScope::Passed };
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
    assert!(
        usage.push(UsageSlot(3), CountScope::Passed, true) && usage.push(UsageSlot(9), CountScope::All, true)
    );
    let record = Rule { usage, ..Rule::downlink(&node, "10.3.0.2", 1) }.record();
    assert!(record.has_folded_quotas());
    let Rules::One(action) = record.rules(&node.tunnels) else { panic!("it does not fold") };
    assert_eq!(action.usage, usage);
}

#[test]
fn filters_go_with_their_rules_as_far_as_they_can_be_told() {
    let node = node();
    let of = |facts, rules| translated(&Record::new(SessionIndex(4), Direction::Uplink, facts, rules), &node);
    let facts = SessionFacts { ue: UE, ..SessionFacts::default() };
    let record = |rules| of(facts, rules);
    let plain = Rule::uplink(&node).filtered();
    let filtered = |text: &str| {
        let sdf = SdfFilter::parse(text).unwrap();
        asking(&plain, Detection { sdf: Box::new([sdf]), ..Detection::default() })
    };
    let voice = filtered("permit out 17 from 10.201.0.0/16 20000-40000 to assigned");
    let solicitations = filtered("permit out 58 from ff02::2/128 to assigned");
    let mut buffering = voice.clone();
    buffering.action.apply = ApplyAction { buffer: true, ..ApplyAction::default() };
    let mut guaranteed = voice.clone();
    guaranteed.action.qos.guarantee(PolicerSlot(2));

    let found = record(vec![solicitations, guaranteed.clone(), voice.clone(), plain.clone()]).unwrap();
    let asks: Vec<_> = found.lines.iter().map(|line| (line.ask, line.rule.err())).collect();
    let voice_ask = FlowMatch {
        qfi: None,
        protocol: Some(17),
        remote: AddressMatch::V4(Ipv4Addr::new(10, 201, 0, 0), 16),
        ports: Some([[20_000, 40_000], [0, u16::MAX]]),
    };
    let expected =
        [(voice_ask, Some(OffloadRefusal::Guaranteed)), (voice_ask, None), (FlowMatch::any(None), None)];
    assert_eq!(asks, expected, "what no router forwards to needs no line");
    assert_eq!(found.left().collect::<Vec<_>>(), [OffloadRefusal::Guaranteed]);
    assert_eq!(record(vec![guaranteed]), Err(OffloadRefusal::Guaranteed), "no rule fits");
    assert_eq!(
        record(vec![buffering, plain.clone()]),
        Err(OffloadRefusal::Buffering),
        "what waits would be overtaken"
    );

    // Nothing is told from what comes behind a rule that cannot be told.
    let mut sdf = SdfFilter::parse("permit out 17 from 10.201.0.0/16 to assigned").unwrap();
    sdf.tos = Some((0xb8, 0xfc));
    let class = asking(&plain, Detection { sdf: Box::new([sdf]), ..Detection::default() });
    assert_eq!(record(vec![class.clone(), plain.clone()]), Err(OffloadRefusal::Filters));
    let cut = record(vec![voice.clone(), class, plain.clone()]).unwrap();
    assert_eq!((cut.lines.len(), cut.beyond), (1, Some(OffloadRefusal::Filters)));
    let app = asking(&plain, Detection { app: Some(crate::ids::AppNumber(0)), ..Detection::default() });
    assert_eq!(record(vec![app]), Err(OffloadRefusal::Filters), "an application");
    let narrow = UeAddresses { ipv4: None, ipv6: Some(Ipv6Prefix::of("2001:db8::".parse().unwrap(), 64)) };
    let narrow = asking(&plain, Detection { ue: Some(narrow), ..Detection::default() });
    assert_eq!(record(vec![narrow]), Err(OffloadRefusal::Filters), "an address of its own");
    let many = record(vec![voice; 9]).unwrap();
    assert_eq!((many.lines.len(), many.beyond), (LINES_MAX, Some(OffloadRefusal::Rules)));
}

#[test]
fn sessions_that_ask_for_more_are_the_workers() {
    let node = node();
    let plain = Rule::uplink(&node);
    let facts = SessionFacts { ue: UE, ..SessionFacts::default() };
    let of = |facts| {
        translated(&Record::new(SessionIndex(4), Direction::Uplink, facts, vec![plain.filtered()]), &node)
            .err()
    };
    assert_eq!(of(facts), None);
    let behind = FramedRoute::of([192, 168, 1, 0].into(), 24);
    let framed = [behind];
    assert_eq!(of(SessionFacts { framed: &framed, ..facts }), Some(OffloadRefusal::Framed));
    assert_eq!(of(SessionFacts { inspects: true, ..facts }), Some(OffloadRefusal::Applications));
    assert_eq!(of(SessionFacts { ethernet: true, ..facts }), Some(OffloadRefusal::Ethernet));
    let ipv6 = Some(Ipv6Prefix::of("2001:db8::".parse().unwrap(), 56));
    let wide = Rule { ue: UeAddresses { ipv6, ..UE }, ..plain };
    assert_eq!(wide.translated(&node), Err(OffloadRefusal::Prefix), "more than a /64");
    let of_no_endpoint = SessionKey::tunnel(EndpointId(9), Teid(1));
    assert_eq!(KernelRecord::of(&of_no_endpoint, &plain.record(), &node), Err(OffloadRefusal::Key));
}

#[test]
fn keys_become_addresses_and_tunnels() {
    let node = node();
    let of = |key| KernelKey::of(&key, &node.settings);
    let (instance, address) = (InstanceId(2), Ipv4Addr::new(10, 60, 0, 7));
    let tunnel = |local: &str, teid| KernelKey::Tunnel { local: local.parse().unwrap(), teid: Teid(teid) };
    let over_ipv4 = tunnel("10.3.0.1", 0xffff_fffe);
    assert_eq!(of(SessionKey::tunnel(EndpointId(1), Teid(0xffff_fffe))), Some(over_ipv4));
    assert_eq!(of(SessionKey::tunnel(EndpointId(0), Teid(1))), Some(tunnel("fd00:3::1", 1)));
    let behind = FramedRoute::of([192, 168, 1, 0].into(), 24);
    assert_eq!(of(SessionKey::framed(InstanceId(0), &behind)), None);
    assert_eq!(of(SessionKey::tunnel(EndpointId(9), Teid(1))), None);
    assert_eq!(of(SessionKey::ipv4(instance, address)), Some(KernelKey::Ipv4 { instance, address }));
    let in_prefix: Ipv6Addr = "2001:db8:60:7:1:2:3:4".parse().unwrap();
    let first = "2001:db8:60:7::".parse().unwrap();
    assert_eq!(of(SessionKey::ipv6(instance, in_prefix)), Some(KernelKey::Ipv6 { instance, address: first }));
}
