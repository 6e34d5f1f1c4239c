//! Clocks of the GTP-U cores: twelve at most from a frame's first beat in to its first beat out. Out of tunnels a beat comes in
//! each clock, into them one leaves each clock, whatever is in the mix.
#![allow(clippy::unwrap_used, reason = "a test")]

use kaido_twin::gtpu::{Direction, Event, Width};
use kaido_twin::{CoreEvent, Disposition, Pressure};

use crate::gtpu_node::{Vector, octets};
use crate::gtpu_random;
use crate::random::Random;

/// A step's packet, with as much data behind its headers as makes so many octets of it; lengths and checksums are right.
fn sized(vector: &Vector, name: &str, len: usize) -> Vec<u8> {
    let step = vector.steps.iter().find(|step| step.name == name).unwrap();
    gtpu_random::resized(&octets(&step.frame), len)
}

const CLOCKS_MAX: u64 = 12;

#[test]
fn a_g_pdu_takes_twelve_clocks_and_a_beat_one() {
    let vector = Vector::of("uplink");
    for width in Width::ALL {
        let name = "a_g_pdu_takes_twelve_clocks_and_a_beat_one";
        let Some(mut core) = crate::gtpu_core(name, Direction::Decap, width) else { continue };
        vector.set_up(&mut core, Direction::Decap);
        for len in [110, 128, 129, 160, 256, 576, 1518, 8000] {
            for step in ["IPv4 UDP of 64 octets over IPv4", "IPv4 UDP of 64 octets over IPv6"] {
                let frames = vec![sized(&vector, step, len); 64];
                let (outcomes, timing) = core.run(&frames, Pressure::NONE).unwrap();
                let at = format!("{len} octets, {step}, {width:?}: {timing:?}");
                assert!(
                    outcomes.iter().all(|outcome| outcome.event == Event::Forwarded),
                    "{at} {outcomes:?}"
                );
                assert_eq!(timing.latencies, [width.latency_clocks(); 64], "{at}");
                assert_eq!(timing.waited, 0, "{at}");
                assert!(timing.clocks <= timing.beats_in + width.latency_clocks() + 1, "{at}");
            }
        }
    }
}

/// Dropped, forwarded from any depth, left to the host: no mix makes the core wait.
#[test]
fn no_mix_makes_a_beat_out_of_tunnels_wait() {
    for width in Width::ALL {
        let name = "no_mix_makes_a_beat_out_of_tunnels_wait";
        let Some(mut core) = crate::gtpu_core(name, Direction::Decap, width) else { continue };
        for seed in 0..5 {
            let mut random = Random::new(seed);
            let node = gtpu_random::node(&mut random);
            node.set_up(&mut core, Direction::Decap);
            let frames: Vec<_> = (0..300).map(|_| gtpu_random::uplink(&mut random)).collect();
            let (_outcomes, timing) = core.run(&frames, Pressure::NONE).unwrap();
            let at = format!("seed {seed}, {width:?}: {timing:?}");
            assert_eq!(timing.waited, 0, "{at}");
            assert!(timing.clocks <= timing.beats_in + width.latency_clocks() + 1, "{at}");
            assert!(timing.latencies.iter().all(|&clocks| clocks == width.latency_clocks()), "{at}");
        }
    }
}

/// The packet gets longer: the input waits for that, and the output for nothing.
#[test]
fn a_packet_into_a_tunnel_takes_twelve_clocks_and_a_beat_out_one() {
    let vector = Vector::of("downlink");
    for width in Width::ALL {
        let name = "a_packet_into_a_tunnel_takes_twelve_clocks_and_a_beat_out_one";
        let Some(mut core) = crate::gtpu_core(name, Direction::Encap, width) else { continue };
        vector.set_up(&mut core, Direction::Encap);
        for len in [64, 65, 92, 100, 128, 256, 576, 1518, 8000] {
            for step in ["IPv4 UDP of 64 octets over IPv4", "IPv4 UDP of 64 octets over IPv6"] {
                let frame = sized(&vector, step, len);
                let (outcomes, timing) = core.run(std::slice::from_ref(&frame), Pressure::NONE).unwrap();
                let at = format!("{len} octets, {step}, {width:?}: {timing:?}");
                assert_eq!(outcomes[0].event, Event::Forwarded, "{at}");
                assert_eq!(timing.latencies, [width.latency_clocks()], "{at}");
                assert!(width.latency_clocks() <= CLOCKS_MAX);
                let (outcomes, timing) = core.run(&vec![frame; 64], Pressure::NONE).unwrap();
                let at = format!("{len} octets, {step}, {width:?}: {timing:?}");
                let out: usize = outcomes.iter().map(|outcome| left(&outcome.disposition)).sum();
                let beats =
                    outcomes.iter().map(|outcome| left(&outcome.disposition).div_ceil(width.octets()));
                assert_eq!(timing.beats_out, beats.sum::<usize>() as u64, "{at}, {out} octets");
                assert!(timing.clocks <= timing.beats_out + width.latency_clocks() + 1, "{at}");
            }
        }
    }
}

fn left(disposition: &Disposition) -> usize {
    match disposition {
        Disposition::Out(out) => out.len(),
        other => panic!("{other:?}"),
    }
}

/// Each event is counted once a frame.
#[test]
fn counters_agree_with_what_became_of_frames() {
    let direction = Direction::Decap;
    let Some(mut core) =
        crate::gtpu_core("counters_agree_with_what_became_of_frames", direction, Width::Bits256)
    else {
        return;
    };
    let mut random = Random::new(5);
    gtpu_random::node(&mut random).set_up(&mut core, direction);
    let frames: Vec<_> = (0..500).map(|_| gtpu_random::uplink(&mut random)).collect();
    let (outcomes, _timing) = core.run(&frames, Pressure::seeded(3)).unwrap();
    for event in Event::ALL {
        let wanted = outcomes.iter().filter(|outcome| outcome.event == *event).count();
        assert_eq!(core.counter(*event).unwrap() as usize, wanted, "{}", event.name());
    }
}
