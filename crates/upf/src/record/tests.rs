use super::*;
use crate::rules::SdfFilter;

fn rule(pdr: u16) -> FilteredRule {
    let action = Action {
        pdr: PdrId(pdr),
        apply: ApplyAction::FORWARD,
        gate_open: true,
        qos: Enforcement::default(),
        destination: Destination::Routed,
        exit: None,
        usage: UsageSlots::default(),
        buffer: BufferBounds::default(),
    };
    FilteredRule {
        qfis: None,
        sdf: Box::default(),
        ue: None,
        app: None,
        framed: Box::default(),
        frames: Box::default(),
        action,
        special: None,
        on_quota: Box::default(),
    }
}

fn filtered(pdr: u16, filter: &str) -> FilteredRule {
    FilteredRule { sdf: [SdfFilter::parse(filter).unwrap()].into(), ..rule(pdr) }
}

fn uplink(rules: Vec<FilteredRule>) -> Record {
    Record::new(SessionIndex(1), Direction::Uplink, SessionFacts::default(), rules)
}

fn is_fast(record: &Record) -> bool {
    record.is_straight(StraightWay::UP)
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
    assert!(!record.is_straight(StraightWay::DOWN));
}

#[test]
fn one_qfi_is_matched_on_the_fast_path() {
    let of_flow = |qfis| FilteredRule { qfis: Some(qfis), ..rule(1) };
    let record = uplink(vec![of_flow(1 << 9)]);
    assert!(is_fast(&record) && !record.is_plain(PlainWay::UP));
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
