//! The packet vectors under `vectors/gre` through the core that puts packets into tunnels, by itself and behind the core that
//! takes them out: the bytes of the vector, or the frame as it came, left to the host. What is left is listed by name.
#![allow(clippy::unwrap_used, reason = "a test")]

use kaido_twin::gtpu::Width;
use kaido_twin::tunnel::{Event, Resolved, TunnelCore};
use kaido_twin::{Event as DecapEvent, Pressure, Size};

use crate::gre_vectors;
use crate::judged;
use crate::vector::{Step, Vector, mac, octets};

fn resolved(vector: &Vector) -> Vec<Resolved> {
    let neighbours = vector.node.neighbours.iter();
    let of = neighbours.map(|hop| Resolved {
        remote: hop.address,
        port: vector.port(&hop.port),
        mac: mac(&hop.mac),
    });
    of.collect()
}

/// The steps that are left to the host, with the event.
fn run(core: &mut TunnelCore, vector: &Vector, steps: &[&Step], pressure: Pressure) -> Vec<(String, Event)> {
    core.reset();
    core.configure(&vector.settings(), vector.port("left"), &resolved(vector)).unwrap();
    let frames: Vec<_> = steps.iter().map(|step| octets(&step.frame)).collect();
    let (outcomes, _timing) = core.run(&frames, pressure).unwrap();
    let mut handed = Vec::new();
    for ((step, frame), outcome) in steps.iter().zip(frames).zip(outcomes) {
        let at = format!("{}: {}", vector.name, step.name);
        let out = step.out.iter().map(|sent| octets(&sent.hex)).collect();
        let event = judged(&at, outcome, &frame, (out, step.drop.as_deref()));
        handed.extend(event.map(|event| (step.name.clone(), event)));
    }
    handed
}

/// What the tunnels of `encapsulate` leave to the host: outer packets in pieces, and ICMP to the sender.
const LEFT: [(&str, Event); 2] =
    [("too large, and may be cut", Event::HostMtu), ("too large, and may not be cut", Event::HostMtu)];

#[test]
fn tunnels_of_the_vectors_give_the_bytes_that_scapy_made() {
    let name = "tunnels_of_the_vectors_give_the_bytes_that_scapy_made";
    for width in Width::ALL {
        let Some(mut core) = crate::tunnel_core(name, width) else { continue };
        for vector in crate::vector::all().iter().filter(|vector| vector.name == "encapsulate") {
            let steps: Vec<_> = vector.steps.iter().collect();
            for seed in 0..8 {
                let pressure = if seed == 0 { Pressure::NONE } else { Pressure::seeded(seed) };
                let handed = run(&mut core, vector, &steps, pressure);
                let named: Vec<_> = handed.iter().map(|(name, event)| (name.as_str(), *event)).collect();
                assert_eq!(named, LEFT, "{width:?}");
            }
        }
    }
}

/// Both cores, one behind the other: of all steps the host gets what the second leaves, and what the first leaves for other reasons
/// than that it is no tunnel packet.
#[test]
fn both_cores_leave_less_than_fifteen_percent_to_the_host() {
    let name = "both_cores_leave_less_than_fifteen_percent_to_the_host";
    for (width, size) in [(Width::Bits256, Size::Bits256), (Width::Bits512, Size::Bits512)] {
        let Some(mut tunnels) = crate::tunnel_core(name, width) else { continue };
        let Some(mut core) = crate::core(name, size) else { continue };
        let (mut steps, mut hosts) = (0, 0);
        for vector in crate::vector::all() {
            steps += vector.steps.len();
            let left = gre_vectors::run(&mut core, &vector, Pressure::NONE);
            let is_other = |step: &Step| left.contains(&(step.name.clone(), DecapEvent::HostOther));
            let others: Vec<_> = vector.steps.iter().filter(|step| is_other(step)).collect();
            hosts += left.len() - others.len();
            hosts += run(&mut tunnels, &vector, &others, Pressure::NONE).len();
        }
        assert_eq!((steps, hosts), (147, 21), "{width:?}");
    }
}
