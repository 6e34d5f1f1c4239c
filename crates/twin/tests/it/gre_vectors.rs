//! The packet vectors under `vectors/gre` through the core: the bytes of the vector, the same drop, or the frame as it came, left
//! to the host. What is left is listed by name.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use kaido_twin::{Event, GreCore, Pressure, Size};

use crate::judged;
use crate::vector::{Step, Vector, octets};

/// The steps of a file that are the host's, with the event.
type Handed = Vec<(String, Event)>;

pub(crate) fn run(core: &mut GreCore, vector: &Vector, pressure: Pressure) -> Handed {
    core.reset();
    core.configure(&vector.settings(), vector.port("left")).unwrap();
    let frames: Vec<_> = vector.steps.iter().map(|step| octets(&step.frame)).collect();
    let (outcomes, _timing) = core.run(&frames, pressure).unwrap();
    let mut handed = Vec::new();
    for ((step, frame), outcome) in vector.steps.iter().zip(frames).zip(outcomes) {
        let at = format!("{}: {}", vector.name, step.name);
        let out = step.out.iter().map(|sent| octets(&sent.hex)).collect();
        let event = judged(&at, outcome, &frame, (out, step.drop.as_deref()));
        handed.extend(event.map(|event| (step.name.clone(), event)));
    }
    handed
}

/// By file and event, the steps that are the host's.
fn expected() -> BTreeMap<&'static str, Vec<(&'static str, Event)>> {
    BTreeMap::from([("strip", vec![("outer destination options", Event::HostExtension)])])
}

#[test]
fn every_vector_gives_the_bytes_that_scapy_made_or_is_the_hosts() {
    let expected = expected();
    for size in Size::ALL {
        let Some(mut core) =
            crate::core("every_vector_gives_the_bytes_that_scapy_made_or_is_the_hosts", size)
        else {
            continue;
        };
        let (mut steps, mut hosts) = (0, 0);
        for vector in crate::vector::all() {
            for seed in 0..4 {
                let pressure = if seed == 0 { Pressure::NONE } else { Pressure::seeded(seed) };
                let handed = run(&mut core, &vector, pressure);
                let named: Vec<_> = handed.iter().map(|(name, event)| (name.as_str(), *event)).collect();
                // Whole files are the host's: it routes, puts together and encapsulates.
                match vector.name.as_str() {
                    // But for packets that no route can help.
                    "routed" => {
                        assert!(named.iter().all(|(_, event)| *event == Event::HostRoute));
                        let is_hosts = |step: &&Step| named.iter().any(|(name, _)| *name == step.name);
                        let done = vector.steps.iter().filter(|step| !is_hosts(step));
                        let done: Vec<_> = done.map(|step| step.name.as_str()).collect();
                        assert_eq!(done, ["a group", "a wrong inner checksum"]);
                    }
                    // The fragment header of IPv6 is an extension header.
                    "pieces" => {
                        let of = |name: &str| {
                            if name.starts_with("IPv6") { Event::HostExtension } else { Event::HostFragment }
                        };
                        assert!(named.iter().all(|(name, event)| *event == of(name)), "{named:?}");
                    }
                    "encapsulate" => assert!(named.iter().all(|(_, event)| *event == Event::HostOther)),
                    name => assert_eq!(named, expected.get(name).cloned().unwrap_or_default(), "{name}"),
                }
                if seed == 0 {
                    steps += vector.steps.len();
                    hosts += handed.len();
                }
            }
        }
        assert_eq!((steps, hosts), (147, 36), "{size:?}");
    }
}
