//! Clocks from a frame's first beat in to its first beat out, three of the default form, and a beat each clock, whatever is in
//! the mix.
#![allow(clippy::unwrap_used, reason = "a test")]

use kaido_engine::PortId;
use kaido_gre::{PortSettings, Settings};
use kaido_twin::{Disposition, Event, Pressure, Size};
use kaido_wire::checksum::checksum;

use crate::random::{Random, frame, settings};

fn bump() -> Settings {
    let port = |peer_port| PortSettings {
        peer_port: Some(PortId(peer_port)),
        mac: [2, 0, 0, 0, 0, peer_port],
        addresses: Vec::new(),
        mtu: 9000,
    };
    Settings::bump(vec![port(1), port(0)])
}

/// A frame of so many octets, of plain IPv4 or the same in GRE.
fn sized(len: usize, is_gre: bool) -> Vec<u8> {
    let ipv4 = |total: usize, protocol| {
        let [high, low] = u16::try_from(total).unwrap().to_be_bytes();
        let mut header =
            vec![0x45, 0, high, low, 0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 203, 0, 113, 1];
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    };
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    if is_gre {
        frame.extend(ipv4(len - 14, 47));
        frame.extend([0, 0, 8, 0]);
    }
    frame.extend(ipv4(len - frame.len(), 6));
    frame.resize(len, 0xa5);
    frame
}

/// Most clocks of a run of so many beats: the pipeline is filled once, and the last frame's clocks are of it.
fn clocks_max(beats: u64, size: Size) -> u64 {
    beats + size.latency_clocks() + 1
}

#[test]
fn a_frame_takes_the_clocks_of_its_form_and_a_beat_one() {
    for size in Size::ALL {
        let Some(mut core) = crate::core("a_frame_takes_the_clocks_of_its_form_and_a_beat_one", size) else {
            continue;
        };
        core.configure(&bump(), PortId(0)).unwrap();
        for len in [64, 65, 92, 96, 100, 128, 129, 256, 1518, 9018] {
            // Plain, in GRE, and one of each in turn, as source D's bench has them.
            for kinds in [[false, false], [true, true], [true, false]] {
                let frames: Vec<_> =
                    kinds.iter().cycle().take(64).map(|&is_gre| sized(len, is_gre)).collect();
                let (outcomes, timing) = core.run(&frames, Pressure::NONE).unwrap();
                assert!(outcomes.iter().all(|outcome| matches!(outcome.disposition, Disposition::Out(_))));
                let at = format!("{len} octets, {kinds:?}, {size:?}: {timing:?}");
                assert_eq!(timing.latencies, [size.latency_clocks(); 64], "{at}");
                assert_eq!(timing.waited, 0, "{at}");
                assert!(timing.clocks <= clocks_max(timing.beats_in, size), "{at}");
            }
        }
    }
}

/// Dropped, stripped of any length, passed, left to the host: no mix makes the core wait.
#[test]
fn no_mix_makes_a_beat_wait() {
    for size in Size::ALL {
        let Some(mut core) = crate::core("no_mix_makes_a_beat_wait", size) else { continue };
        for seed in 0..20 {
            let mut random = Random::new(seed);
            core.reset();
            core.configure(&settings(&mut random), PortId(0)).unwrap();
            let frames: Vec<_> = (0..500).map(|_| frame(&mut random)).collect();
            let (_outcomes, timing) = core.run(&frames, Pressure::NONE).unwrap();
            assert_eq!(timing.waited, 0, "seed {seed}, {size:?}");
            assert!(timing.clocks <= clocks_max(timing.beats_in, size), "seed {seed}, {size:?}: {timing:?}");
            assert!(
                timing.latencies.iter().all(|&clocks| clocks == size.latency_clocks()),
                "seed {seed}, {size:?}"
            );
        }
    }
}

/// Each event is counted once a frame.
#[test]
fn counters_agree_with_what_became_of_frames() {
    let Some(mut core) = crate::core("counters_agree_with_what_became_of_frames", Size::Bits256) else {
        return;
    };
    let mut random = Random::new(5);
    let settings = settings(&mut random);
    core.configure(&settings, PortId(0)).unwrap();
    let frames: Vec<_> = (0..1000).map(|_| frame(&mut random)).collect();
    let (outcomes, _timing) = core.run(&frames, Pressure::seeded(3)).unwrap();
    for &event in Event::ALL {
        let wanted = outcomes.iter().filter(|outcome| outcome.event == event).count();
        assert_eq!(core.counter(event).unwrap() as usize, wanted, "{event:?}");
    }
    core.reset();
    assert!(Event::ALL.iter().all(|&event| core.counter(event) == Ok(0)));
}

/// A core of a size passes plain frames after reset.
#[test]
fn without_rules_everything_passes() {
    for size in Size::ALL {
        let Some(mut core) = crate::core("without_rules_everything_passes", size) else { continue };
        let frame = sized(100, true);
        let (outcomes, _timing) = core.run(std::slice::from_ref(&frame), Pressure::NONE).unwrap();
        assert_eq!(outcomes[0].disposition, Disposition::Out(frame));
        assert_eq!(outcomes[0].event, Event::Passed);
    }
}

/// What is not a register, or means nothing, is refused and changes nothing.
#[test]
fn the_bus_refuses_what_is_no_register() {
    let Some(mut core) = crate::core("the_bus_refuses_what_is_no_register", Size::Bits256) else { return };
    let refused = |address| Err(kaido_twin::BusError::Refused(address));
    for address in [0x001, 0x014, 0x07c, 0x100, 0x200, 0x400, 0x940, 0x80c, 0xffc] {
        assert_eq!(core.read(address), refused(address).map(|()| 0));
    }
    for address in [0x000, 0x004, 0x009, 0x014, 0x080, 0x218, 0x600, 0x448, 0x800, 0xffc] {
        assert_eq!(core.write(address, 0), refused(address), "{address:#x}");
    }
    // A fragment is not stripped.
    assert_eq!(core.write(0x00c, 2 << 2), refused(0x00c));
    assert_eq!(core.write(0x010, 1234), Ok(()));
    assert_eq!((core.read(0x000), core.read(0x010)), (Ok(0x4752_4531), Ok(1234)));
    assert_eq!(core.read(0x004), Ok(4 << 16 | 16 << 8 | 32));
}
