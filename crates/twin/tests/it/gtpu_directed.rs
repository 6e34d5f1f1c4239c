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

/// A frame that ends before its packet does, behind what the core sees when it decides: it has begun to leave, and is marked.
#[test]
fn a_long_frame_that_is_cut_off_is_dropped() {
    for (width, direction) in
        Width::ALL.into_iter().flat_map(|width| [Direction::Decap, Direction::Encap].map(|of| (width, of)))
    {
        let name = "a_long_frame_that_is_cut_off_is_dropped";
        let Some(mut core) = crate::gtpu_core(name, direction, width) else { continue };
        let vector = Vector::of(if direction == Direction::Decap { "uplink" } else { "downlink" });
        let whole = step(&vector, "IPv4 packet of 1500 octets over IPv4");
        let frames: Vec<_> = (60..whole.len()).step_by(7).map(|len| whole[..len].to_vec()).collect();
        for seed in 0..3 {
            let pressure = if seed == 0 { Pressure::NONE } else { Pressure::seeded(seed) };
            let events = compare(&mut core, &vector, direction, &frames, pressure, name);
            assert!(events.iter().all(|event| *event == Event::IpMalformed), "{events:?}");
        }
    }
}

/// A frame over IPv4 with an extension header of GTP-U before the packet of the UE; the length of GTP-U is that of all of it less so
/// many octets.
fn extended(plain: &[u8], extension: &[u8], less: u16) -> Vec<u8> {
    let gtpu = 14 + 20 + 8;
    let mut frame = plain.to_vec();
    frame[gtpu] |= 4;
    let optional = [&[0, 0, 0, 0x40], extension].concat();
    frame.splice(gtpu + 8..gtpu + 8, optional.iter().copied());
    for (at, less) in [(14 + 2, 0), (14 + 20 + 4, 0), (gtpu + 2, less)] {
        let old = u16::from_be_bytes([frame[at], frame[at + 1]]);
        let new = old + u16::try_from(optional.len()).unwrap() - less;
        frame[at..at + 2].copy_from_slice(&new.to_be_bytes());
    }
    ipv4::fill_checksum(&mut frame[14..34]);
    frame
}

/// One bit of the port or of the message type is another; an extension header has no length, or a longer one than GTP-U.
#[test]
fn what_is_nearly_a_g_pdu_is_not_forwarded() {
    for width in Width::ALL {
        let name = "what_is_nearly_a_g_pdu_is_not_forwarded";
        let Some(mut core) = crate::gtpu_core(name, Direction::Decap, width) else { continue };
        let vector = Vector::of("uplink");
        let plain = step(&vector, "IPv4 UDP of 64 octets over IPv4");
        let with_bit = |at: usize, bit: u8| {
            let mut frame = plain.clone();
            frame[at] ^= 1 << bit;
            frame
        };
        let mut cases = vec![(plain.clone(), Event::Forwarded)];
        for bit in 0..8 {
            cases.push((with_bit(14 + 20 + 2, bit), Event::HostOther));
            cases.push((with_bit(14 + 20 + 3, bit), Event::HostOther));
            cases.push((with_bit(14 + 20 + 8 + 1, bit), Event::HostSignalling));
        }
        let inner = u16::try_from(plain.len() - (14 + 20 + 8 + 8)).unwrap();
        let two_words = [2, 0, 0, 0, 0, 0, 0, 0];
        cases.push((extended(&plain, &two_words, 0), Event::Forwarded));
        cases.push((extended(&plain, &[0, 0, 0, 0], 0), Event::GtpuMalformed));
        // The four octets with its type, and of the header itself none, one, or all but one; the packet is behind it.
        for there in [0, 1, 4, 7] {
            cases.push((extended(&plain, &two_words, inner + 8 - there), Event::GtpuMalformed));
        }
        let (frames, wanted): (Vec<_>, Vec<_>) = cases.into_iter().unzip();
        let events = compare(&mut core, &vector, Direction::Decap, &frames, Pressure::NONE, name);
        assert_eq!(events, wanted, "{width:?}");
    }
}

/// An IPv4 packet, alone, of the UE or around the tunnel, whose total length is less than that of its header.
#[test]
fn an_ipv4_packet_shorter_than_its_header_is_malformed() {
    for (width, direction) in
        Width::ALL.into_iter().flat_map(|width| [Direction::Decap, Direction::Encap].map(|of| (width, of)))
    {
        let name = "an_ipv4_packet_shorter_than_its_header_is_malformed";
        let Some(mut core) = crate::gtpu_core(name, direction, width) else { continue };
        let (vector, places) = match direction {
            Direction::Decap => ("uplink", vec![(14, Event::IpMalformed), (50, Event::InnerMalformed)]),
            Direction::Encap => ("downlink", vec![(14, Event::IpMalformed)]),
        };
        let vector = Vector::of(vector);
        for step_name in ["IPv4 UDP of 64 octets over IPv4", "IPv4 with the router alert option over IPv4"] {
            let plain = step(&vector, step_name);
            for &(at, event) in &places {
                let header = 4 * usize::from(plain[at] & 15);
                let frames: Vec<_> = (0..header)
                    .map(|total| {
                        let mut frame = plain.clone();
                        frame[at + 2..at + 4].copy_from_slice(&u16::try_from(total).unwrap().to_be_bytes());
                        ipv4::fill_checksum(&mut frame[at..at + header]);
                        frame
                    })
                    .collect();
                let events = compare(&mut core, &vector, direction, &frames, Pressure::NONE, name);
                assert!(events.iter().all(|of| *of == event), "{width:?}, {step_name}, {at}: {events:?}");
            }
        }
    }
}

/// Each family of a UE's packets has a router of its own.
#[test]
fn each_family_goes_to_its_next_hop() {
    for width in Width::ALL {
        let name = "each_family_goes_to_its_next_hop";
        let Some(mut core) = crate::gtpu_core(name, Direction::Decap, width) else { continue };
        let mut vector = Vector::of("uplink");
        vector.move_neighbour("fd00:6::2", "02:00:00:00:06:77");
        let frames = ["IPv4 UDP of 64 octets over IPv4", "IPv6 UDP of 64 octets over IPv4"]
            .map(|step_name| step(&vector, step_name));
        let events = compare(&mut core, &vector, Direction::Decap, &frames, Pressure::NONE, name);
        assert_eq!(events, [Event::Forwarded; 2], "{width:?}");
    }
}

/// Extension headers that end behind what has come in when they are read, or behind what is read at all.
#[test]
fn long_extension_headers_are_walked_over_or_left() {
    for (width, direction) in
        Width::ALL.into_iter().flat_map(|width| [Direction::Decap, Direction::Encap].map(|of| (width, of)))
    {
        let name = "long_extension_headers_are_walked_over_or_left";
        let Some(mut core) = crate::gtpu_core(name, direction, width) else { continue };
        let vector = Vector::of(if direction == Direction::Decap { "uplink" } else { "downlink" });
        let plain = step(&vector, "IPv6 UDP of 64 octets over IPv4");
        let at = if direction == Direction::Decap { 14 + 20 + 8 + 8 } else { 14 };
        // Hop-by-hop options, then destination options, so many units of eight octets.
        let with = |first: u8, second: u8| {
            let mut headers = vec![60, first - 1];
            headers.resize(8 * usize::from(first), 0);
            headers.extend([17, second - 1]);
            headers.resize(8 * usize::from(first + second), 0);
            let mut frame = plain.clone();
            frame.splice(at + 40..at + 40, headers.iter().copied());
            frame[at + 6] = 0;
            let mut lengths = vec![at + 4];
            if direction == Direction::Decap {
                lengths.extend([14 + 2, 14 + 20 + 4, 14 + 20 + 8 + 2]);
            }
            for length in lengths {
                let old = u16::from_be_bytes([frame[length], frame[length + 1]]);
                let new = old + u16::try_from(headers.len()).unwrap();
                frame[length..length + 2].copy_from_slice(&new.to_be_bytes());
            }
            if direction == Direction::Decap {
                ipv4::fill_checksum(&mut frame[14..34]);
            }
            frame
        };
        let frames: Vec<_> =
            (1..24).flat_map(|first| [1, 2, 9, 20].map(|second| with(first, second))).collect();
        let events = compare(&mut core, &vector, direction, &frames, Pressure::NONE, name);
        for event in [Event::Forwarded, Event::HostExtension] {
            assert!(events.contains(&event), "{events:?}");
        }
    }
}

/// Nothing is an address of a session that has none of the family.
#[test]
fn a_session_without_an_address_of_the_family_is_no_source() {
    let name = "a_session_without_an_address_of_the_family_is_no_source";
    let Some(mut core) = crate::gtpu_core(name, Direction::Decap, Width::Bits256) else { return };
    let mut vector = Vector::of("uplink");
    let packet = 14 + 20 + 8 + 8;
    let mut frame = step(&vector, "IPv6 UDP of 64 octets over IPv4");
    frame[packet + 8..packet + 16].fill(0);
    vector.sessions[0].ue_ipv6 = None;
    let events = compare(&mut core, &vector, Direction::Decap, &[frame], Pressure::NONE, name);
    assert_eq!(events, [Event::UeSpoofed]);
}
