//! The packet vectors under `vectors/upf` through the GTP-U cores: the bytes of the vector, the same drop, or the frame as it came,
//! left to the host. What is left is listed by name.
#![allow(clippy::unwrap_used, reason = "a test")]

use kaido_twin::Pressure;
use kaido_twin::gtpu::{Direction, Event, GtpuCore, Width};

use crate::gtpu_node::{Step, Vector, octets};
use crate::judged;

/// The steps of a file that are the host's, with the event.
type Handed = Vec<(String, Event)>;

fn run(core: &mut GtpuCore, vector: &Vector, direction: Direction, pressure: Pressure) -> Handed {
    vector.set_up(core, direction);
    let from = if direction == Direction::Decap { "n3" } else { "n6" };
    let steps: Vec<&Step> = vector.steps.iter().filter(|step| step.port == from).collect();
    let frames: Vec<_> = steps.iter().map(|step| octets(&step.frame)).collect();
    let (outcomes, _timing) = core.run(&frames, pressure).unwrap();
    let mut handed = Vec::new();
    for ((step, frame), outcome) in steps.into_iter().zip(frames).zip(outcomes) {
        let at = format!("{}: {}, {:?}", vector.name, step.name, outcome.event);
        let out = step.out.iter().map(|sent| octets(&sent.hex)).collect();
        let event = judged(&at, outcome, &frame, (out, step.drop.as_deref()));
        handed.extend(event.map(|event| (step.name.clone(), event)));
    }
    handed
}

/// What a packet over IPv6 has that hides its sum.
const UNSUMMED: [&str; 8] = [
    "IPv4 UDP without checksum over IPv6",
    "IPv4 SCTP over IPv6",
    "IPv4 first fragment over IPv6",
    "IPv4 last fragment over IPv6",
    "IPv6 hop-by-hop options over IPv6",
    "IPv6 chain of extension headers over IPv6",
    "IPv6 first fragment over IPv6",
    "IPv6 last fragment over IPv6",
];

/// By file, the steps that are the host's. All of `ttl` are answered with ICMP, all of `path` with messages of GTP-U.
pub(crate) fn expected(vector: &Vector) -> Vec<(String, Event)> {
    let named: &[(&str, Event)] = match vector.name.as_str() {
        "uplink" => &[("chain of 8 extensions", Event::HostChain), ("chain of 512 octets", Event::HostDeep)],
        "downlink" | "entropy" => &UNSUMMED.map(|name| (name, Event::HostChecksum)),
        "ttl" => {
            return vector.steps.iter().map(|step| (step.name.clone(), Event::HostTtl)).collect();
        }
        "path" => {
            let of = |step: &Step| match step.drop.as_deref() {
                Some("teid_unknown") => Event::HostMiss,
                _ => Event::HostSignalling,
            };
            return vector.steps.iter().map(|step| (step.name.clone(), of(step))).collect();
        }
        "drops" => &[
            ("SDF matches", Event::HostSession),
            ("SDF does not match by address", Event::HostSession),
            ("SDF does not match by port", Event::HostSession),
            ("SDF does not match by protocol", Event::HostSession),
            ("chain of 9 extensions over IPv4", Event::HostChain),
            ("chain of 516 octets over IPv4", Event::HostDeep),
            ("chain of 9 extensions over IPv6", Event::HostChain),
            ("chain of 516 octets over IPv6", Event::HostDeep),
            ("outer first fragment", Event::HostFragment),
            ("outer last fragment", Event::HostFragment),
            ("outer IPv6 fragment", Event::HostExtension),
            ("no session of an IPv4 address", Event::HostMiss),
            ("no session of an IPv6 prefix", Event::HostMiss),
        ],
        _ => &[],
    };
    named.iter().map(|&(name, event)| (name.to_owned(), event)).collect()
}

/// The files of which the host's share has a bound, and the bound.
const BOUNDED: [&str; 6] = ["uplink", "downlink", "qos", "ecn", "entropy", "ttl"];
const HOST_PERCENT_MAX: usize = 15;
/// All that go through the cores.
pub(crate) const FILES: [&str; 8] = ["uplink", "downlink", "qos", "ecn", "entropy", "ttl", "path", "drops"];

#[test]
fn every_vector_gives_the_bytes_that_scapy_made_or_is_the_hosts() {
    let name = "every_vector_gives_the_bytes_that_scapy_made_or_is_the_hosts";
    for width in Width::ALL {
        let cores = [Direction::Decap, Direction::Encap].map(|of| crate::gtpu_core(name, of, width));
        let [Some(mut decap), Some(mut encap)] = cores else { continue };
        let (mut steps, mut hosts, mut all) = (0, 0, 0);
        for vector in FILES.into_iter().map(Vector::of) {
            for seed in 0..4 {
                let pressure = if seed == 0 { Pressure::NONE } else { Pressure::seeded(seed) };
                let mut handed = run(&mut decap, &vector, Direction::Decap, pressure);
                handed.extend(run(&mut encap, &vector, Direction::Encap, pressure));
                assert_eq!(handed, expected(&vector), "{}", vector.name);
            }
            all += vector.steps.len();
            if BOUNDED.contains(&vector.name.as_str()) {
                steps += vector.steps.len();
                hosts += expected(&vector).len();
            }
        }
        assert_eq!((all, steps, hosts), (359, 295, 42), "{width:?}");
        assert!(hosts * 100 < steps * HOST_PERCENT_MAX);
    }
}
