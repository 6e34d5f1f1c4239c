use kaido_table::LineSlab;

use super::fold::POLICERS_MAX;
use super::*;
use crate::action::{BufferBounds, CountScope, Destination, N6Exit, UsageSlots};
use crate::extended::ExtendedActions;
use crate::ids::InstanceId;
use crate::line_numbers;
use crate::qos::{Enforcement, PolicerSlot};
use crate::rule::Detection;
use crate::usage::UsageSlot;
use kaido_n4::{ApplyAction, SdfFilter};

fn rule(pdr: u16) -> FilteredRule {
    let action = Action {
        pdr: PdrId(pdr),
        apply: ApplyAction::FORWARD,
        gate_open: true,
        qos: Enforcement::default(),
        destination: Destination::Routed,
        exit: N6Exit::Any,
        other_ues: None,
        usage: UsageSlots::default(),
        buffer: BufferBounds::default(),
    };
    FilteredRule { detection: Arc::default(), action, extended: None, on_quota: Box::default() }
}

fn asking(pdr: u16, detection: Detection) -> FilteredRule {
    FilteredRule { detection: Arc::new(detection), ..rule(pdr) }
}

fn of_flows(pdr: u16, qfis: u64) -> FilteredRule {
    asking(pdr, Detection { qfis: Some(qfis), ..Detection::default() })
}

fn filtered(pdr: u16, filter: &str) -> FilteredRule {
    asking(pdr, Detection { sdf: [SdfFilter::parse(filter).unwrap()].into(), ..Detection::default() })
}

fn uplink(rules: Vec<FilteredRule>) -> Record {
    let memory = Arc::new(line_numbers::rules(LineSlab::new(64).unwrap()));
    Record::new(SessionIndex(1), Direction::Uplink, SessionFacts::default(), rules).into_lines(&memory, None)
}

fn is_fast(record: &Record) -> bool {
    record.is_fast(FastPath::UP)
}

#[test]
fn rules_about_what_nobody_routes_leave_a_session_on_the_fast_path() {
    for filter in [
        "permit out 58 from ff02::2/128 to assigned",
        "permit out ip from fe80::/10 to assigned",
        "permit out 2 from 224.0.0.0/4 to assigned",
    ] {
        let record = uplink(vec![filtered(3, filter), rule(1)]);
        assert!(is_fast(&record), "{filter}");
        let Rules::Filtered(rules) = record.rules(&Tunnels::default()) else { panic!("all rules are kept") };
        assert_eq!(rules.len(), 2);
    }
    for filter in [
        "permit out 58 from any to assigned",
        "permit out ip from ff00::/7 to assigned",
        "permit out 17 from 10.0.0.0/8 53 to assigned",
        "permit out ip from 192.0.0.0/2 to assigned",
    ] {
        assert!(!is_fast(&uplink(vec![filtered(3, filter), rule(1)])), "{filter}");
    }
    // On the downlink it is the source that the filter is about, which anybody may write.
    let down = vec![filtered(3, "permit out 58 from ff02::2/128 to assigned"), rule(1)];
    let record = Record::new(SessionIndex(1), Direction::Downlink, SessionFacts::default(), down);
    assert!(!record.is_fast(FastPath::DOWN));
}

#[test]
fn one_qfi_is_matched_on_the_fast_path() {
    let of_flow = |qfis| of_flows(1, qfis);
    let record = uplink(vec![of_flow(1 << 9)]);
    assert!(is_fast(&record) && !record.is_common(CommonForward::SIMPLE_UP));
    assert_eq!(record.folded_qfi(), Some(9));
    assert!(!is_fast(&uplink(vec![of_flow(3)])), "two flows");
    let mut buffering = of_flow(1 << 9);
    buffering.action.apply = ApplyAction::BUFFER;
    buffering.action.buffer.packets = Some(40);
    let record = uplink(vec![buffering]);
    assert!(!is_fast(&record) && record.folded_qfi().is_none());
}

#[test]
fn a_record_without_a_tunnel_is_not_on_the_fast_path() {
    let mut far = rule(1);
    far.action.destination = Destination::NoTunnel;
    let record = uplink(vec![far]);
    assert!(!is_fast(&record));
    let Rules::One(action) = record.rules(&Tunnels::default()) else { panic!("it folds") };
    assert_eq!(action.destination, Destination::NoTunnel);
}

#[test]
fn the_instance_of_other_ues_folds_and_unfolds() {
    for instance in [0, 1, u16::MAX - 1, u16::MAX] {
        let mut asked = rule(1);
        asked.action.other_ues = Some(InstanceId(instance));
        let record = uplink(vec![asked.clone()]);
        assert_eq!(is_fast(&record), instance < u16::MAX, "{instance}");
        match record.rules(&Tunnels::default()) {
            Rules::One(action) => assert_eq!(action, asked.action),
            Rules::Filtered(rules) => {
                assert_eq!(rules.get(0).unwrap().action(&Tunnels::default()), asked.action);
            }
        }
    }
}

#[test]
fn rates_and_a_guarantee_fold_and_unfold() {
    for policers in 0..=POLICERS_MAX {
        for (guarantee, qfi) in [(false, None), (true, None), (true, Some(9)), (false, Some(63))] {
            let mut asked = qfi.map_or_else(|| rule(1), |qfi: u8| of_flows(1, 1 << qfi));
            for slot in 0..policers {
                assert!(asked.action.qos.push(PolicerSlot(70 + u32::try_from(slot).unwrap())));
            }
            if guarantee {
                asked.action.qos.guarantee(PolicerSlot(90));
            }
            assert!(asked.action.usage.push(UsageSlot(5), CountScope::Passed, false));
            asked.action.buffer.packets = Some(200);
            let record = uplink(vec![asked.clone()]);
            assert!(is_fast(&record), "{policers} {guarantee} {qfi:?}");
            assert_eq!(record.folded_qfi(), qfi);
            let Meters { policers: held, guarantee: guaranteed, .. } = record.folded_meters();
            assert_eq!((held.len(), guaranteed), (policers, guarantee.then_some(90)));
            assert_eq!(record.folded_rates().len(), policers + usize::from(guarantee));
            if let Rules::One(action) = record.rules(&Tunnels::default()) {
                // What is simply forwarded is never kept.
                let kept = BufferBounds::default();
                assert_eq!(action, Action { buffer: kept, ..asked.action });
            }
        }
    }
    let mut waiting = rule(1);
    waiting.action.qos.guarantee(PolicerSlot(90));
    waiting.action.apply = ApplyAction { forward: false, buffer: true, ..ApplyAction::default() };
    assert!(matches!(uplink(vec![waiting]).rules(&Tunnels::default()), Rules::Filtered(_)));
}

#[test]
fn lines_are_given_back_with_the_last_record_that_has_them() {
    let memory = Arc::new(line_numbers::rules(LineSlab::new(64).unwrap()));
    let other = |pdr| filtered(pdr, "permit out 17 from 10.0.0.0/8 53 to assigned");
    let lined = || {
        let rules = vec![other(3), other(4), rule(1)];
        let record = Record::new(SessionIndex(1), Direction::Uplink, SessionFacts::default(), rules);
        record.into_lines(&memory, None)
    };
    let ports = FlowPorts::Known(53, 4000);
    let flow = |protocol| PacketFlow::new(None, protocol, Some(0x0a00_0001), ports);
    for _ in 0..100 {
        let first = lined();
        let again = first.clone();
        drop(first);
        let others: Vec<_> = (0..20).map(|_| lined()).collect();
        assert_eq!(again.of_flow(&memory, &flow(17)).map(|record| record.pdr), Some(PdrId(3)));
        assert_eq!(again.of_flow(&memory, &flow(6)).map(|record| record.pdr), Some(PdrId(1)));
        let numbers = others.iter().chain([&again]).flat_map(|record| record.line_numbers().to_vec());
        let mut numbers: Vec<_> = numbers.collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 63, "each line is one record's");
        let beyond = lined();
        assert!(!beyond.has_lines(), "there are two lines too few, and the rules are looked at themselves");
        assert!(matches!(beyond.rules(&Tunnels::default()), Rules::Filtered(rules) if rules.len() == 3));
    }
}

#[test]
fn a_form_says_why_packets_take_the_slow_path() {
    let form = |rules: Vec<FilteredRule>| uplink(rules).form();
    assert_eq!(form(vec![rule(1)]), RecordForm::Folded);
    assert_eq!(
        form(vec![filtered(3, "permit out 58 from ff02::2/128 to assigned"), rule(1)]),
        RecordForm::Folded
    );
    let mut buffering = rule(1);
    buffering.action.apply = ApplyAction::BUFFER;
    assert_eq!(form(vec![buffering]), RecordForm::Held);
    let voice = || filtered(3, "permit out 17 from 100.65.0.0/16 20000-40000 to assigned");
    assert_eq!(form(vec![voice(), rule(1)]), RecordForm::Lines);

    let wide =
        |rules: Vec<FilteredRule>, reason| assert_eq!(form(rules), RecordForm::Wide(reason), "{reason}");
    let mut guaranteed = voice();
    guaranteed.action.qos.guarantee(PolicerSlot(1));
    assert_eq!(form(vec![guaranteed, rule(1)]), RecordForm::Lines);
    let mut counted = rule(1);
    assert!(counted.action.qos.count_packets(PolicerSlot(1)));
    wide(vec![counted], SlowPathCause::PacketRate);
    let mut copied = rule(1);
    copied.action.apply.duplicate = true;
    wide(vec![copied], SlowPathCause::Duplicated);
    let extended = ExtendedActions { egress: None, ..ExtendedActions::default() };
    wide(
        vec![FilteredRule { extended: Some(Arc::new(extended)), ..rule(1) }],
        SlowPathCause::ExtendedActions,
    );
    wide(vec![filtered(3, "permit out 17 from any 53,5060 to assigned"), rule(1)], SlowPathCause::Filters);
    wide((1..=5).map(|pdr| of_flows(pdr, 1 << pdr)).collect(), SlowPathCause::Rules);
    let mut crowded = rule(1);
    for slot in 0..4 {
        assert!(crowded.action.qos.push(PolicerSlot(slot)));
    }
    // A record has room for two rates.
    wide(vec![voice(), crowded], SlowPathCause::Cells);

    let record = |facts, rule| Record::new(SessionIndex(1), Direction::Uplink, facts, vec![rule]);
    let of = |facts| record(facts, rule(1)).form();
    let framed = [FramedRoute::of([192, 168, 1, 0].into(), 24)];
    let gnbs = ["192.0.2.7".parse().unwrap()];
    let facts = SessionFacts::default;
    for (facts, reason) in [
        (SessionFacts { inspects: true, ..facts() }, SlowPathCause::Applications),
        (SessionFacts { ethernet: true, ..facts() }, SlowPathCause::Ethernet),
        (SessionFacts { gnbs: &gnbs, ..facts() }, SlowPathCause::Bound),
    ] {
        assert_eq!(of(facts), RecordForm::Wide(reason));
    }
    let behind = SessionFacts { framed: &framed, ..facts() };
    assert_eq!(of(behind), RecordForm::Folded);
    let of_flow = filtered(3, "permit out 17 from any 53 to assigned");
    assert_eq!(record(behind, of_flow).form(), RecordForm::Wide(SlowPathCause::Framed));
}
