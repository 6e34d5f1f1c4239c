//! The packet vectors under `vectors/upf` through `upf_top`, N3 and N6 at once. They give the bytes of the vector, the same drops,
//! and to the host the frames that each core leaves to it by itself.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use kaido_twin::gtpu::{Direction, Event, Width};
use kaido_twin::upf::{Handed, Passed, UpfCore};
use kaido_twin::{CoreEvent, Pressure};

use crate::gtpu_node::{Vector, octets};
use crate::gtpu_vectors::{FILES, expected};

fn set_up(core: &mut UpfCore, vector: &Vector) {
    core.reset();
    for direction in [Direction::Decap, Direction::Encap] {
        core.configure(direction, &vector.settings(direction)).unwrap();
    }
    for session in vector.uplinks() {
        core.put_uplink(&vector.settings(Direction::Decap), &session).unwrap();
    }
    for session in vector.downlinks() {
        core.put_downlink(&vector.settings(Direction::Encap), &session).unwrap();
    }
}

#[test]
fn both_directions_at_once_give_the_bytes_of_the_vectors() {
    let name = "both_directions_at_once_give_the_bytes_of_the_vectors";
    for width in Width::ALL {
        let Some(mut core) = crate::built(UpfCore::new(width), name, &crate::model("Upf", width)) else {
            continue;
        };
        for vector in FILES.into_iter().map(Vector::of) {
            let hosts: BTreeMap<String, Event> = expected(&vector).into_iter().collect();
            let mut frames = <[Vec<Vec<u8>>; 2]>::default();
            let mut wanted = Passed::default();
            let mut drops: BTreeMap<(bool, &str), u32> = BTreeMap::new();
            for step in &vector.steps {
                let is_up = step.port == "n3";
                let frame = octets(&step.frame);
                frames[usize::from(!is_up)].push(frame.clone());
                if let Some(&event) = hosts.get(&step.name) {
                    let direction = if is_up { Direction::Decap } else { Direction::Encap };
                    wanted.host.push(Handed { frame, direction, event });
                } else {
                    let out = if is_up { &mut wanted.n6 } else { &mut wanted.n3 };
                    out.extend(step.out.iter().map(|sent| octets(&sent.hex)));
                    if let Some(drop) = &step.drop {
                        *drops.entry((is_up, drop)).or_default() += 1;
                    }
                }
            }
            // The host's frames are in order by core.
            wanted.host.sort_by_key(|handed| handed.direction == Direction::Encap);
            for seed in 0..4 {
                let at = format!("{}, seed {seed}, {width:?}", vector.name);
                let pressure = if seed == 0 { Pressure::NONE } else { Pressure::seeded(seed) };
                set_up(&mut core, &vector);
                let [n3, n6] = &frames;
                let mut passed = core.run(n3, n6, pressure).unwrap();
                passed.host.sort_by_key(|handed| handed.direction == Direction::Encap);
                assert_eq!(passed, wanted, "{at}");
                assert_eq!(core.host_dropped().unwrap(), 0, "{at}");
                for (is_up, direction) in [(true, Direction::Decap), (false, Direction::Encap)] {
                    for event in Event::ALL.iter().filter(|event| event.is_drop()) {
                        let count = drops.get(&(is_up, event.name())).copied().unwrap_or(0);
                        assert_eq!(core.counter(direction, *event).unwrap(), count, "{at}, {}", event.name());
                    }
                }
            }
        }
    }
}
