//! The classifier against asking every rule in turn.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;

use super::*;
use crate::action::{Action, Destination, N6Exit, UsageSlots};
use crate::rule::Detection;
use kaido_n4::{ApplyAction, FlowEnd, PdrId};

fn rule(qfis: Option<u64>, sdf: Vec<SdfFilter>) -> FilteredRule {
    FilteredRule {
        detection: Arc::new(Detection { qfis, sdf: sdf.into(), ..Detection::default() }),
        extended: None,
        action: Action {
            pdr: PdrId(1),
            apply: ApplyAction::default(),
            gate_open: true,
            qos: crate::qos::Enforcement::default(),
            destination: Destination::Routed,
            exit: N6Exit::Any,
            other_ues: None,
            usage: UsageSlots::default(),
            buffer: crate::action::BufferBounds::default(),
        },
        on_quota: Box::new([]),
    }
}

/// Every condition that the classifier knows, asked for one by one.
fn is_match(rule: &FilteredRule, filter: Option<usize>, flow: &Flow) -> bool {
    let (remote_port, local_port) = flow.ports.unzip();
    rule.detection.qfis.is_none_or(|qfis| flow.qfi.is_some_and(|qfi| qfis >> qfi & 1 != 0))
        && filter.is_none_or(|at| {
            let sdf = &rule.detection.sdf[at];
            sdf.protocol.is_none_or(|protocol| protocol == flow.protocol)
                && sdf.remote.matches(flow.remote, remote_port)
                && sdf.local.matches(flow.local, local_port)
        })
}

fn linear(rules: &[FilteredRule], flow: &Flow) -> Option<Candidate> {
    let candidates = rules.iter().enumerate().flat_map(|(rule, of)| {
        let whole = of.detection.sdf.is_empty().then_some(None);
        let filters = whole.into_iter().chain((0..of.detection.sdf.len()).map(Some));
        filters.map(move |filter| Candidate { rule, filter })
    });
    candidates.into_iter().find(|found| is_match(&rules[found.rule], found.filter, flow))
}

/// Few values, so that filters and packets meet and intervals touch.
fn v4() -> impl Strategy<Value = Ipv4Addr> {
    prop_oneof![
        (0u32..16).prop_map(|low| Ipv4Addr::from_bits(0x0a00_0000 | low)),
        any::<u32>().prop_map(Into::into)
    ]
}

fn v6() -> impl Strategy<Value = Ipv6Addr> {
    prop_oneof![
        (0u128..16).prop_map(|low| Ipv6Addr::from_bits(0x2001_0db8 << 96 | low)),
        any::<u128>().prop_map(Into::into)
    ]
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![0u16..8, Just(u16::MAX), any::<u16>()]
}

fn end() -> impl Strategy<Value = FlowEnd> {
    let address = prop_oneof![
        2 => Just(AddressMatch::Any),
        2 => (v4(), prop_oneof![0u8..=32, 28u8..=32]).prop_map(|(addr, len)| AddressMatch::v4(addr, len)),
        1 => (v6(), prop_oneof![0u8..=128, 124u8..=128]).prop_map(|(addr, len)| AddressMatch::v6(addr, len)),
    ];
    let ranges = vec((port(), port()).prop_map(|(a, b)| (a.min(b), a.max(b))), 0..3);
    (address, ranges).prop_map(|(address, ports)| FlowEnd { address, ports })
}

fn filter() -> impl Strategy<Value = SdfFilter> {
    (of(prop_oneof![Just(6u8), Just(17), Just(255)]), end(), end())
        .prop_map(|(protocol, remote, local)| SdfFilter { protocol, remote, local, ..SdfFilter::default() })
}

fn rules() -> impl Strategy<Value = Vec<FilteredRule>> {
    vec((of(any::<u64>()), vec(filter(), 0..4)).prop_map(|(qfis, sdf)| rule(qfis, sdf)), 17..150)
}

fn flow() -> impl Strategy<Value = Flow> {
    let families = prop_oneof![
        (v4(), v4()).prop_map(|(a, b)| (IpAddr::V4(a), IpAddr::V4(b))),
        (v6(), v6()).prop_map(|(a, b)| (IpAddr::V6(a), IpAddr::V6(b))),
    ];
    let ports = of((port(), port()));
    (families, prop_oneof![Just(6u8), Just(17), Just(255), any::<u8>()], ports, of(0u8..64))
        .prop_map(|((remote, local), protocol, ports, qfi)| Flow { remote, local, protocol, ports, qfi })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Conformance: TS 29.244 5.2.1 | Of many PDRs a packet matches the first by precedence
    #[test]
    fn finds_what_asking_every_rule_finds(rules in rules(), flows in vec(flow(), 40)) {
        let classifier = Classifier::new(&rules).unwrap();
        for flow in flows {
            let confirm = |found: Candidate| is_match(&rules[found.rule], found.filter, &flow);
            prop_assert_eq!(classifier.find(&flow, confirm), linear(&rules, &flow));
        }
    }
}

/// A rule for each remote port from 1000 on, for UEs of one network.
fn by_port(count: u16) -> Vec<FilteredRule> {
    let text = |port| format!("permit out 17 from 10.0.0.0/8 {port} to assigned");
    (0..count).map(|at| rule(None, vec![SdfFilter::parse(&text(1000 + at)).unwrap()])).collect()
}

fn to_port(port: u16) -> Flow {
    let (remote, local) = (IpAddr::from([10, 1, 1, 1]), IpAddr::from([10, 60, 0, 1]));
    Flow { remote, local, protocol: 17, ports: Some((port, 9)), qfi: None }
}

#[test]
fn one_candidate_is_confirmed_where_fields_tell_rules_apart() {
    for count in [17, 64, 65, 256] {
        let classifier = Classifier::new(&by_port(count)).unwrap();
        for port in [1000, 1000 + count / 2, 999 + count] {
            let mut asked = 0;
            let confirm = |_| {
                asked += 1;
                true
            };
            let found = classifier.find(&to_port(port), confirm).unwrap();
            assert_eq!((found.rule, found.filter, asked), (usize::from(port - 1000), Some(0), 1));
        }
        assert_eq!(classifier.find(&to_port(999), |_| true), None);
        assert_eq!(classifier.find(&to_port(1000 + count), |_| true), None);
    }
}

/// Rules for every second network of either family.
#[test]
fn addresses_tell_rules_apart() {
    let remote = |is_v6, network: u16| match is_v6 {
        true => IpAddr::from([0x2001, 0xdb8, network, 1, 2, 3, 4, 5]),
        false => IpAddr::from(Ipv4Addr::from_bits(10 << 24 | u32::from(network) << 16 | 0xffff)),
    };
    let sizes = [false, true].map(|is_v6| {
        let len = if is_v6 { 48 } else { 16 };
        let text = |at: u16| format!("permit out ip from {}/{len} to assigned", remote(is_v6, 2 * at));
        let rules: Vec<_> =
            (0..20).map(|at| rule(None, vec![SdfFilter::parse(&text(at)).unwrap()])).collect();
        let classifier = Classifier::new(&rules).unwrap();
        for network in 0..40 {
            let flow = Flow { remote: remote(is_v6, network), ..to_port(1000) };
            let found = classifier.find(&flow, |_| true).map(|found| found.rule);
            assert_eq!(found, (network % 2 == 0).then_some(usize::from(network / 2)), "{}", flow.remote);
        }
        classifier.size()
    });
    assert!(sizes[0] < sizes[1], "{sizes:?}: addresses of IPv6 are longer");
}

#[test]
fn qos_flows_tell_rules_apart() {
    let rules: Vec<_> = (0..20).map(|qfi| rule(Some(0b11 << (2 * qfi)), Vec::new())).collect();
    let classifier = Classifier::new(&rules).unwrap();
    for qfi in 0..64u8 {
        let found = classifier.find(&Flow { qfi: Some(qfi), ..to_port(1000) }, |_| true);
        assert_eq!(found.map(|found| found.rule), (qfi < 40).then_some(usize::from(qfi / 2)), "{qfi}");
    }
    assert_eq!(classifier.find(&to_port(1000), |_| true), None, "of no QoS flow");
}

#[test]
fn rules_that_ask_for_nothing_are_all_candidates_in_their_order() {
    for count in [17, 64, 65] {
        let rules: Vec<_> = (0..count).map(|_| rule(None, Vec::new())).collect();
        let mut asked = Vec::new();
        let confirm = |found: Candidate| {
            asked.push(found.rule);
            false
        };
        assert_eq!(Classifier::new(&rules).unwrap().find(&to_port(1000), confirm), None);
        assert_eq!(asked, (0..count).collect::<Vec<_>>());
    }
}

#[test]
fn few_rules_have_no_index_and_many_a_small_one() {
    assert_eq!(Classifier::new(&by_port(16)), None);
    let size = |count| Classifier::new(&by_port(count)).unwrap().size();
    assert!(size(64) < 2048);
    // At least the rows of 256 ports, of as many bits each.
    assert!((8 * 1024..20 * 1024).contains(&size(256)));
}

#[test]
fn a_field_with_too_many_pieces_is_left_to_the_caller() {
    let rules: Vec<_> = (0..1500u16)
        .map(|at| {
            let text = format!("permit out 17 from any {} to assigned", at * 4);
            rule(None, vec![SdfFilter::parse(&text).unwrap()])
        })
        .collect();
    let classifier = Classifier::new(&rules).unwrap();
    for port in [0, 4, 5996, 5997] {
        let flow = to_port(port);
        let confirm = |found: Candidate| is_match(&rules[found.rule], found.filter, &flow);
        assert_eq!(classifier.find(&flow, confirm), linear(&rules, &flow), "{port}");
    }
}
