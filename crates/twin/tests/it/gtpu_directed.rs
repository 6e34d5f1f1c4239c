//! What random frames meet too seldom: every checksum that a header can have, what no session has, and a session that changes.
#![allow(clippy::unwrap_used, reason = "a test")]

use kaido_twin::gtpu::{Action, Direction, Event, Width};
use kaido_twin::{Disposition, Pressure};
use kaido_wire::ipv4;

use crate::gtpu_node::{Vector, octets};
use crate::gtpu_random::compare;

fn step(vector: &Vector, name: &str) -> Vec<u8> {
    octets(&vector.steps.iter().find(|step| step.name == name).unwrap().frame)
}

/// The frame with each value in two octets of the IPv4 header that begins at `header`, whose checksum is right each time.
fn each(frame: &[u8], header: usize, at: usize) -> Vec<Vec<u8>> {
    let with = |value: u16| {
        let mut frame = frame.to_vec();
        frame[header + at..header + at + 2].copy_from_slice(&value.to_be_bytes());
        ipv4::fill_checksum(&mut frame[header..header + 20]);
        frame
    };
    (0..=u16::MAX).map(with).collect()
}

/// With congestion marks that go over, and without.
#[test]
fn every_inner_checksum_changes_as_in_software() {
    let name = "every_inner_checksum_changes_as_in_software";
    let Some(mut core) = crate::gtpu_core(name, Direction::Decap, Width::Bits256) else { return };
    let vector = Vector::of("ecn");
    for step_name in ["uplink IPv4 ECT(0) in IPv4 CE", "uplink IPv4 ECT(0) in IPv4 Not-ECT"] {
        // Ethernet, IPv4, UDP, GTP-U; the identification.
        let frames = each(&step(&vector, step_name), 14 + 20 + 8 + 8, 4);
        let events = compare(&mut core, &vector, Direction::Decap, &frames, Pressure::NONE, step_name);
        assert!(events.iter().all(|event| *event == Event::Forwarded));
    }
}

/// A checksum of zero is sent as 0xffff.
#[test]
fn every_outer_checksum_is_that_of_the_software() {
    let name = "every_outer_checksum_is_that_of_the_software";
    let Some(mut core) = crate::gtpu_core(name, Direction::Encap, Width::Bits256) else { return };
    let vector = Vector::of("downlink");
    let step_name = "IPv4 UDP of 64 octets over IPv6";
    // The lower half of the source.
    let frames = each(&step(&vector, step_name), 14, 14);
    let events = compare(&mut core, &vector, Direction::Encap, &frames, Pressure::NONE, step_name);
    assert!(events.iter().all(|event| *event == Event::Forwarded));
}

/// A frame whose packet is longer than may leave, and one that is as long.
#[test]
fn what_is_too_long_is_the_hosts() {
    for (width, direction) in
        Width::ALL.into_iter().flat_map(|width| [Direction::Decap, Direction::Encap].map(|of| (width, of)))
    {
        let Some(mut core) = crate::gtpu_core("what_is_too_long_is_the_hosts", direction, width) else {
            continue;
        };
        let vector = Vector::of(if direction == Direction::Decap { "uplink" } else { "downlink" });
        let mut settings = vector.settings(direction);
        vector.set_up(&mut core, direction);
        let frame = step(&vector, "IPv4 UDP of 64 octets over IPv4");
        for (packet_max, event) in [(92, Event::Forwarded), (91, Event::HostMtu)] {
            settings.packet_max = packet_max;
            core.configure(&settings).unwrap();
            let (outcomes, _timing) = core.run(std::slice::from_ref(&frame), Pressure::NONE).unwrap();
            assert_eq!(outcomes[0].event, event, "{direction:?}, {width:?}");
        }
    }
}

/// The table changes while packets go through: each finds the session as it was or as it is.
#[test]
fn a_session_that_changes_does_for_the_next_packet() {
    let name = "a_session_that_changes_does_for_the_next_packet";
    let Some(mut core) = crate::gtpu_core(name, Direction::Decap, Width::Bits256) else { return };
    let vector = Vector::of("uplink");
    vector.set_up(&mut core, Direction::Decap);
    let settings = vector.settings(Direction::Decap);
    let frame = step(&vector, "IPv4 UDP of 64 octets over IPv4");
    let mut session = vector.uplinks().remove(0);
    for (action, event) in [
        (Action::Closed, Event::GateClosed),
        (Action::Drop, Event::FarDrop),
        (Action::Host, Event::HostSession),
        (Action::Forward, Event::Forwarded),
    ] {
        session.action = action;
        core.put_uplink(&settings, &session).unwrap();
        let (outcomes, _timing) = core.run(&[frame.clone(), frame.clone()], Pressure::NONE).unwrap();
        assert!(outcomes.iter().all(|outcome| outcome.event == event), "{outcomes:?}");
    }
}

#[test]
fn reset_leaves_no_session_and_no_address() {
    for (width, direction) in
        Width::ALL.into_iter().flat_map(|width| [Direction::Decap, Direction::Encap].map(|of| (width, of)))
    {
        let name = "reset_leaves_no_session_and_no_address";
        let Some(mut core) = crate::gtpu_core(name, direction, width) else { continue };
        let vector = Vector::of(if direction == Direction::Decap { "uplink" } else { "downlink" });
        let frame = step(&vector, "IPv4 UDP of 64 octets over IPv4");
        vector.set_up(&mut core, direction);
        core.reset();
        let outcome = |core: &mut kaido_twin::gtpu::GtpuCore| {
            core.run(std::slice::from_ref(&frame), Pressure::NONE).unwrap().0.remove(0)
        };
        assert_eq!(outcome(&mut core).event, Event::HostOther);
        core.configure(&vector.settings(direction)).unwrap();
        let left = outcome(&mut core);
        assert_eq!((left.event, left.disposition), (Event::HostMiss, Disposition::Host(frame.clone())));
    }
}
