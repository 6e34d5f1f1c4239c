//! What it costs to find a packet's rule among many: asking every rule in turn, and the classifier.
//!
//! `cargo run --release -p kaido-upf --example classify`. For instructions instead of times:
//! `valgrind --tool=callgrind --toggle-collect='*classified*' target/release/examples/classify 64`.

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use kaido_n4::{ApplyAction, PdrId, SdfError, SdfFilter};
use kaido_upf::action::{Action, Destination, N6Exit, UsageSlots};
use kaido_upf::classify::{Classifier, Flow};
use kaido_upf::rule::{Detection, FilteredRule};

const PACKETS: u32 = 200_000;

fn main() -> Result<(), SdfError> {
    let only = std::env::args().nth(1).and_then(|count| count.parse::<u16>().ok());
    println!("{:>6} {:>12} {:>12} {:>12}", "rules", "linear ns", "index ns", "index bytes");
    for count in only.map_or(vec![1, 4, 8, 16, 64, 256], |count| vec![count]) {
        let rules = (0..count).map(rule).collect::<Result<Vec<_>, _>>()?;
        let flows: Vec<_> = (0..1024u32).map(|seed| flow(seed, count)).collect();
        let classifier = Classifier::new(&rules);
        let linear_ns = measure(&flows, |flow| linear(&rules, flow));
        let (index_ns, bytes) = match &classifier {
            Some(classifier) => {
                (measure(&flows, |flow| classified(classifier, &rules, flow)), classifier.size())
            }
            None => (linear_ns, 0),
        };
        println!("{count:>6} {linear_ns:>12.1} {index_ns:>12.1} {bytes:>12}");
    }
    Ok(())
}

/// A service by its network and ports, as an operator's list of services has it.
fn rule(number: u16) -> Result<FilteredRule, SdfError> {
    let (protocol, port) = (if number.is_multiple_of(2) { 6 } else { 17 }, 1000 + number * 10);
    let text =
        format!("permit out {protocol} from 203.{}.0.0/16 {port}-{} to assigned", number % 256, port + 9);
    Ok(FilteredRule {
        detection: Arc::new(Detection { sdf: Box::new([SdfFilter::parse(&text)?]), ..Detection::default() }),
        extended: None,
        action: Action {
            pdr: PdrId(number),
            apply: ApplyAction { forward: true, ..ApplyAction::default() },
            gate_open: true,
            qos: kaido_upf::qos::Enforcement::default(),
            destination: Destination::Routed,
            exit: N6Exit::Any,
            other_ues: None,
            usage: UsageSlots::default(),
            buffer: kaido_upf::action::BufferBounds::default(),
        },
        on_quota: Box::new([]),
    })
}

/// A flow that one of the rules matches; which, changes from packet to packet.
#[allow(clippy::cast_possible_truncation)] // A number below `rules`, and its octet.
fn flow(seed: u32, rules: u16) -> Flow {
    let number = (seed.wrapping_mul(2_654_435_761) >> 8) as u16 % rules;
    Flow {
        remote: IpAddr::from([203, (number % 256) as u8, 7, 1]),
        local: IpAddr::from([10, 60, 0, 1]),
        protocol: if number.is_multiple_of(2) { 6 } else { 17 },
        ports: Some((1000 + number * 10 + 3, 40_000)),
        qfi: Some(9),
    }
}

fn is_match(rule: &FilteredRule, flow: &Flow) -> bool {
    let (remote_port, local_port) = flow.ports.unzip();
    rule.detection.sdf.iter().any(|sdf| {
        sdf.protocol.is_none_or(|protocol| protocol == flow.protocol)
            && sdf.remote.matches(flow.remote, remote_port)
            && sdf.local.matches(flow.local, local_port)
    })
}

#[inline(never)]
fn linear(rules: &[FilteredRule], flow: &Flow) -> Option<usize> {
    rules.iter().position(|rule| is_match(rule, flow))
}

#[inline(never)]
fn classified(classifier: &Classifier, rules: &[FilteredRule], flow: &Flow) -> Option<usize> {
    classifier.find(flow, |found| is_match(&rules[found.rule], flow)).map(|found| found.rule)
}

/// Nanoseconds a packet, the least of several rounds.
fn measure(flows: &[Flow], mut find: impl FnMut(&Flow) -> Option<usize>) -> f64 {
    let round = |find: &mut dyn FnMut(&Flow) -> Option<usize>| {
        let began = Instant::now();
        for flow in flows.iter().cycle().take(PACKETS as usize) {
            black_box(find(black_box(flow)));
        }
        began.elapsed().as_nanos() as f64 / f64::from(PACKETS)
    };
    (0..5).map(|_| round(&mut find)).fold(f64::INFINITY, f64::min)
}
