//! What random frames meet too seldom: every checksum that an inner header can have, and frames of one beat before others.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use kaido_engine::PortId;
use kaido_gre::{ForwardingMode, PortSettings, Propagation, Settings, Verdict};
use kaido_twin::{Disposition, Event, Pressure, Size};
use kaido_wire::checksum::checksum;

use crate::gre_random::compare;

/// All tunnel packets are stripped; hop count and class of service go over.
fn uniform() -> Settings {
    let port = |peer_port| PortSettings {
        peer_port: Some(PortId(peer_port)),
        mac: [2, 0, 0, 0, 0, peer_port],
        addresses: Vec::new(),
        mtu: 1500,
    };
    let mut settings = Settings::bump(vec![port(1), port(0)]);
    settings.rules[0].verdict = Verdict::Decapsulate {
        ttl: Propagation::Uniform,
        dscp: Propagation::Uniform,
        forward: ForwardingMode::PeerPort,
    };
    settings
}

/// Class of service, outer and inner: it rises, or falls. With a hop count that falls too, the two carries of the checksum differ.
const CLASSES: [[u8; 2]; 2] = [[0xb8, 0x10], [0x10, 0xb8]];

/// IPv4 in GRE behind so many tags, whose class of service and hop count change; the inner checksum is what is said.
fn tunnelled(tags: usize, [outer_class, inner_class]: [u8; 2], sum: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    (0..tags).for_each(|tag| frame.extend([0x81, 0, 0, tag as u8]));
    frame.extend([8, 0]);
    let mut outer = vec![0x45, outer_class, 0, 52, 0, 0, 0, 0, 9, 47, 0, 0, 192, 0, 2, 1, 203, 0, 113, 1];
    let outer_sum = checksum(&outer);
    outer[10..12].copy_from_slice(&outer_sum.to_be_bytes());
    frame.extend(outer);
    frame.extend([0, 0, 8, 0]);
    frame.extend([0x45, inner_class, 0, 28, 0, 0, 0, 0, 64, 17]);
    frame.extend(sum.to_be_bytes());
    frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8]);
    frame
}

#[test]
fn every_inner_checksum_changes_as_in_software() {
    for size in [Size::Bits256, Size::Bits512, Size::Bits256Pipelined] {
        let Some(mut core) = crate::core("every_inner_checksum_changes_as_in_software", size) else {
            continue;
        };
        // Behind two tags the checksum is in the second beat of 256 bits.
        for (tags, class) in [0, 2].into_iter().flat_map(|tags| CLASSES.map(|class| (tags, class))) {
            let frames: Vec<_> = (0..=u16::MAX).map(|sum| tunnelled(tags, class, sum)).collect();
            let name = format!("{tags} tags, {class:?}");
            let events = compare(&mut core, size, &uniform(), &frames, Pressure::NONE, &name);
            assert!(events.iter().all(|event| *event == Event::Stripped));
        }
    }
}

#[test]
fn a_frame_of_one_beat_changes_nothing_of_the_next() {
    for size in Size::ALL {
        let Some(mut core) = crate::core("a_frame_of_one_beat_changes_nothing_of_the_next", size) else {
            continue;
        };
        let frames: Vec<_> = (1..=size.octets())
            .flat_map(|len| {
                (0..3).flat_map(move |tags| [vec![0x5a; len], tunnelled(tags, CLASSES[0], 0x1234)])
            })
            .collect();
        for seed in 0..4 {
            let pressure = if seed == 0 { Pressure::NONE } else { Pressure::seeded(seed) };
            compare(&mut core, size, &uniform(), &frames, pressure, &format!("seed {seed}"));
        }
    }
}

/// As [`tunnelled`], with so many octets more in the outer packet.
fn longer(tags: usize, more: u16) -> Vec<u8> {
    let mut frame = tunnelled(tags, CLASSES[0], 0x1234);
    let outer = 14 + 4 * tags;
    let total = u16::from_be_bytes([frame[outer + 2], frame[outer + 3]]) + more;
    frame[outer + 2..outer + 4].copy_from_slice(&total.to_be_bytes());
    frame[outer + 10..outer + 12].fill(0);
    let sum = checksum(&frame[outer..outer + 20]);
    frame[outer + 10..outer + 12].copy_from_slice(&sum.to_be_bytes());
    frame.resize(outer + usize::from(total), 0xa5);
    frame
}

/// Behind the window as in it: the core has sent the first beats when it sees that the last octet is missing.
#[test]
fn a_frame_one_octet_short_of_its_packet_is_malformed() {
    for size in Size::ALL {
        let Some(mut core) = crate::core("a_frame_one_octet_short_of_its_packet_is_malformed", size) else {
            continue;
        };
        let frames: Vec<_> = (0..3)
            .flat_map(|tags| [0, 1, 60, 61, 62, 100, 500].map(|more| longer(tags, more)))
            .flat_map(|whole| [2, 1, 0].map(|cut| whole[..whole.len() - cut].to_vec()))
            .collect();
        let events = compare(&mut core, size, &uniform(), &frames, Pressure::NONE, "one octet short");
        let of_each = [Event::IpMalformed, Event::IpMalformed, Event::Stripped];
        assert!(events.chunks(3).all(|of| of == of_each), "{size:?}: {events:?}");
    }
}

/// A frame that ends in the window is judged before it leaves, and the host does not get it whatever the rule says.
#[test]
fn a_short_frame_of_the_hosts_is_malformed() {
    for size in Size::ALL {
        let Some(mut core) = crate::core("a_short_frame_of_the_hosts_is_malformed", size) else { continue };
        let mut settings = uniform();
        settings.rules[0].verdict = Verdict::Punt;
        for tags in 0..3 {
            let whole = longer(tags, 0);
            // From behind GRE on.
            let frames: Vec<_> = (14 + 4 * tags + 24..size.window().min(whole.len() - 1))
                .map(|len| whole[..len].to_vec())
                .collect();
            let events = compare(&mut core, size, &settings, &frames, Pressure::NONE, "short");
            assert!(events.iter().all(|event| *event == Event::IpMalformed), "{size:?}: {events:?}");
        }
    }
}

/// With options too.
#[test]
fn an_ipv4_packet_shorter_than_its_header_is_malformed() {
    for size in Size::ALL {
        let name = "an_ipv4_packet_shorter_than_its_header_is_malformed";
        let Some(mut core) = crate::core(name, size) else { continue };
        let plain = longer(0, 60);
        for words in [5, 6, 7] {
            let frames: Vec<_> = (0..4 * words)
                .map(|total| {
                    let no_operation = vec![1; 4 * words - 20];
                    let mut frame = [&plain[..34], &no_operation, &plain[34..]].concat();
                    frame[14] = 0x40 | words as u8;
                    frame[16..18].copy_from_slice(&(total as u16).to_be_bytes());
                    frame[24..26].fill(0);
                    let sum = checksum(&frame[14..14 + 4 * words]);
                    frame[24..26].copy_from_slice(&sum.to_be_bytes());
                    frame
                })
                .collect();
            let events = compare(&mut core, size, &uniform(), &frames, Pressure::NONE, name);
            assert!(events.iter().all(|event| *event == Event::IpMalformed), "{size:?}: {events:?}");
        }
    }
}

/// As [`longer`], behind GRE with a checksum: a key before it makes the packet begin at another octet.
fn summed(tags: usize, has_key: bool, more: u16) -> Vec<u8> {
    let frame = longer(tags, more);
    let (outer, gre) = (14 + 4 * tags, 14 + 4 * tags + 20);
    let mut header = vec![if has_key { 0xa0 } else { 0x80 }, 0, 8, 0, 0, 0, 0, 0];
    if has_key {
        header.extend([1, 2, 3, 4]);
    }
    let mut whole = [&frame[..gre], &header, &frame[gre + 4..]].concat();
    let total = (whole.len() - outer) as u16;
    whole[outer + 2..outer + 4].copy_from_slice(&total.to_be_bytes());
    whole[outer + 10..outer + 12].fill(0);
    let sum = checksum(&whole[outer..gre]);
    whole[outer + 10..outer + 12].copy_from_slice(&sum.to_be_bytes());
    let sum = checksum(&whole[gre..]);
    whole[gre + 4..gre + 6].copy_from_slice(&sum.to_be_bytes());
    whole
}

/// Of all values of the checksum one is right, so that each carry comes.
#[test]
fn one_checksum_of_gre_is_right() {
    for size in [Size::Bits256, Size::Bits512, Size::Bits256Pipelined] {
        let Some(mut core) = crate::core("one_checksum_of_gre_is_right", size) else { continue };
        let whole = summed(0, false, 71);
        let frames: Vec<_> = (0..=u16::MAX)
            .map(|sum| {
                let mut frame = whole.clone();
                frame[38..40].copy_from_slice(&sum.to_be_bytes());
                frame
            })
            .collect();
        let events = compare(&mut core, size, &uniform(), &frames, Pressure::NONE, "each checksum");
        assert_eq!(events.iter().filter(|event| **event == Event::Stripped).count(), 1);
        assert_eq!(events.iter().filter(|event| **event == Event::GreChecksum).count(), 0xffff);
    }
}

/// What is in one beat makes the sum of the beat before any: some of those have a carry when their carries are added.
#[test]
fn each_sum_of_gre_goes_on_in_the_next_beat() {
    for size in [Size::Bits256, Size::Bits512, Size::Bits256Pipelined] {
        let Some(mut core) = crate::core("each_sum_of_gre_goes_on_in_the_next_beat", size) else { continue };
        let whole = summed(0, false, 71);
        let frames: Vec<_> = (0..=u16::MAX)
            .map(|value| {
                let mut frame = whole.clone();
                frame[70..72].copy_from_slice(&value.to_be_bytes());
                frame[38..40].fill(0);
                let sum = checksum(&frame[34..]);
                frame[38..40].copy_from_slice(&sum.to_be_bytes());
                frame
            })
            .collect();
        let events = compare(&mut core, size, &uniform(), &frames, Pressure::NONE, "each sum");
        assert!(events.iter().all(|event| *event == Event::Stripped));
    }
}

/// Wherever an octet is changed behind the outer header, the checksum notices it; behind the packet it means nothing.
#[test]
fn each_octet_of_gre_is_summed_and_padding_is_not() {
    for size in Size::ALL {
        let Some(mut core) = crate::core("each_octet_of_gre_is_summed_and_padding_is_not", size) else {
            continue;
        };
        let mut frames = Vec::new();
        for (tags, has_key, more) in (0..3).flat_map(|tags| {
            [(tags, false, 0), (tags, true, 1), (tags, false, 7), (tags, true, 38), (tags, false, 95)]
        }) {
            let whole = summed(tags, has_key, more);
            // From the checksum on: before it is what makes GRE another.
            for at in 14 + 4 * tags + 24..whole.len() + 70 {
                let mut frame = whole.clone();
                frame.resize(whole.len() + 70, 0x3c);
                frame[at] ^= 1 << (at % 8);
                frames.push((frame, at < whole.len()));
            }
            frames.push((whole, false));
        }
        for seed in 0..2 {
            let pressure = if seed == 0 { Pressure::NONE } else { Pressure::seeded(seed) };
            let sent: Vec<_> = frames.iter().map(|(frame, _)| frame.clone()).collect();
            let events = compare(&mut core, size, &uniform(), &sent, pressure, &format!("seed {seed}"));
            // Of 256 bits the headers of some end behind the window.
            let judged = events.iter().zip(&frames).filter(|(event, _)| **event != Event::HostDeep);
            for (event, (frame, is_wrong)) in judged {
                let wanted = if *is_wrong { Event::GreChecksum } else { Event::Stripped };
                assert_eq!(*event, wanted, "{size:?}: {frame:02x?}");
            }
        }
    }
}

/// RFC 8200 3: GRE is announced and nothing is there.
#[test]
fn ipv6_without_a_payload_is_malformed() {
    for size in Size::ALL {
        let Some(mut core) = crate::core("ipv6_without_a_payload_is_malformed", size) else { continue };
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 47, 64];
        frame.resize(14 + 40 + 60, 0);
        let events = compare(&mut core, size, &uniform(), &[frame], Pressure::NONE, "no payload");
        assert_eq!(events, [Event::IpMalformed]);
    }
}

#[test]
fn reset_leaves_no_rule() {
    for size in Size::ALL {
        let Some(mut core) = crate::core("reset_leaves_no_rule", size) else { continue };
        core.configure(&uniform(), PortId(0)).unwrap();
        core.reset();
        let frame = tunnelled(0, CLASSES[0], 0x1234);
        let (outcomes, _timing) = core.run(std::slice::from_ref(&frame), Pressure::NONE).unwrap();
        assert_eq!(outcomes[0].disposition, Disposition::Out(frame));
    }
}
