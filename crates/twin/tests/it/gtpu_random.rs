//! Random frames under random back-pressure: a GTP-U core and kaido-upf give the same bytes, or drop for the same reason. What the
//! core leaves to the host is as it came, and is what a core leaves to the host.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use std::collections::BTreeMap;

use kaido_twin::gtpu::{Direction, Event, GtpuCore, Width};
use kaido_twin::{CoreEvent, Disposition, Pressure};
use kaido_wire::{IpProtocol, checksum, ipv4, ipv6};

use crate::gtpu_node::{DownlinkState, FarState, GateState, Session, UplinkState, Vector};
use crate::random::Random;
use crate::upf::{N3, N6, Rig};

/// Frames of one run of a core, with sessions of their own.
const RUN: usize = 250;
const N3_MAC: [u8; 6] = [2, 0, 0, 0, 3, 1];
const N6_MAC: [u8; 6] = [2, 0, 0, 0, 6, 1];

/// Octets of a frame whose end a core sees when it decides.
const SEEN: usize = 300;
/// Sessions are numbered from here on, as in the vectors.
const FIRST: usize = 7;
const SESSIONS: usize = 10;

fn prefix(n: usize) -> String {
    format!("2001:db8:60:{n:x}::/64")
}

/// The node of the vectors with other sessions.
pub(crate) fn node(random: &mut Random) -> Vector {
    let mut node = Vector::of(if random.below(2) == 0 { "uplink" } else { "entropy" });
    node.sessions = (FIRST..FIRST + SESSIONS)
        .map(|n| {
            let is_v6 = n.is_multiple_of(2);
            let qfi = |random: &mut Random| (random.below(2) == 0).then(|| random.of(&[9, 9, 9, 9, 0, 63]));
            let (asked, named) = (qfi(random), qfi(random));
            let far = |random: &mut Random| if random.once_in(9) { "drop" } else { "forward" }.to_owned();
            Session {
                ue_ipv4: Some([10, 60, 0, n as u8].into()),
                ue_ipv6: (random.below(4) > 0).then(|| prefix(n)),
                uplink: UplinkState {
                    teid: 1000 + n as u32,
                    local: if is_v6 { "fd00:3::1" } else { "10.100.3.1" }.parse().unwrap(),
                    qfi: asked,
                    outer_header_removal: 6,
                    sdf: Vec::new(),
                },
                downlink: DownlinkState {
                    teid: 2000 + n as u32,
                    peer: if is_v6 { "fd00:3::2" } else { random.of(&["10.100.3.2", "10.200.1.5"]) }
                        .parse()
                        .unwrap(),
                    // The software marks with the flow that the uplink asks for where no QER names one.
                    qfi: named.or(asked),
                    dscp: random.of(&[None, Some(0), Some(46), Some(63)]),
                },
                gate: GateState { uplink: !random.once_in(9), downlink: !random.once_in(9) },
                far: FarState { uplink: far(random), downlink: far(random) },
            }
        })
        .collect();
    node
}

/// A packet of a UE or to one.
fn user_packet(random: &mut Random, n: usize, is_uplink: bool) -> (u16, Vec<u8>) {
    let is_v6 = random.below(5) < 2;
    let n = if random.below(20) == 0 { n + 1 } else { n };
    let host = random.below(3) as u8 + 1;
    let mut upper = Vec::new();
    let protocol = random.of(&[17u8, 17, 17, 6, 6, 132, 58, 1, 50, 59]);
    upper.extend(random.octets(4));
    let len = match random.below(10) {
        0 => random.below(1500),
        1 => 0,
        _ => random.below(120),
    };
    let body = random.octets(len);
    match protocol {
        17 => {
            let claimed = if random.below(10) == 0 { random.below(200) } else { 8 + body.len() };
            upper.extend((claimed as u16).to_be_bytes());
            upper.extend(random.of(&[[0, 0], [0x12, 0x34], [0xff, 0xff]]));
        }
        6 => upper.extend(random.octets(16)),
        _ => {}
    }
    upper.extend(body);
    if random.below(12) == 0 {
        upper.truncate(random.below(9));
    }
    let remote_v4 = [
        random.of(&[198u8, 198, 198, 198, 198, 198, 198, 198, 10, 224, 127, 255]),
        random.of(&[51, 100, 200]),
        100,
        host,
    ];
    let remote_v6: [u8; 16] = {
        let text = random.of(&[
            "2001:db8:ffff::9",
            "2001:db8:ffff::9",
            "2001:db8:ffff::9",
            "ff02::1",
            "fd00:3::7",
            "fe80::1",
        ]);
        let address: std::net::Ipv6Addr = text.parse().unwrap();
        address.octets()
    };
    let remote_v4 = if is_uplink { remote_v4 } else { [198, 51, 100, host] };
    let remote_v6 =
        if is_uplink { remote_v6 } else { [0x20, 1, 0xd, 0xb8, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, host] };
    let ue_v4 = [10, 60, 0, n as u8];
    let ue_v6 = [0x20, 1, 0xd, 0xb8, 0, 0x60, 0, n as u8, 0, 0, 0, 0, 0, 0, 0, host];
    if is_v6 {
        let (src, dst) = if is_uplink { (ue_v6, remote_v6) } else { (remote_v6, ue_v6) };
        (0x86dd, ipv6_packet(random, protocol, [src, dst], &upper))
    } else {
        let (src, dst) = if is_uplink { (ue_v4, remote_v4) } else { (remote_v4, ue_v4) };
        let options = if random.below(8) == 0 { random.below(7) } else { 0 };
        (0x0800, ipv4_packet(random, protocol, [src, dst], options, &upper))
    }
}

fn hops(random: &mut Random) -> u8 {
    random.of(&[0u8, 1, 2, 2, 3, 64, 64, 64, 64, 64, 64, 128, 255])
}

fn ipv4_packet(
    random: &mut Random,
    protocol: u8,
    ends: [[u8; 4]; 2],
    options: usize,
    upper: &[u8],
) -> Vec<u8> {
    let mut packet = vec![0x45 + options as u8, random.octet()];
    packet.extend(((20 + 4 * options + upper.len()) as u16).to_be_bytes());
    packet.extend(random.octets(2));
    let fragment =
        if random.below(12) == 0 { random.of(&[0x2000u16, 0x0001, 0x1000, 0x8000]) } else { 0x4000 };
    packet.extend(fragment.to_be_bytes());
    packet.extend([hops(random), protocol, 0, 0]);
    packet.extend(ends.concat());
    packet.extend(random.octets(4 * options));
    // Each checksum comes: by the identification it may be any.
    let sum = checksum::checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    if random.below(25) == 0 {
        packet[10..12].copy_from_slice(&random.of(&[[0, 0], [0xff, 0xff], [0x12, 0x34]]));
    }
    packet.extend(upper);
    packet
}

fn ipv6_packet(random: &mut Random, protocol: u8, ends: [[u8; 16]; 2], upper: &[u8]) -> Vec<u8> {
    let mut chain = Vec::new();
    let mut next = protocol;
    if random.below(3) == 0 {
        for _ in 0..=random.below(4) {
            let of = random.of(&[0u8, 43, 44, 51, 60, 60]);
            let units = if of == 51 { random.below(3) + 1 } else { random.below(3) };
            let len = match of {
                44 => 8,
                51 => 4 * (units + 2),
                _ => 8 * (units + 1),
            };
            let mut header = vec![next, if of == 44 { 0 } else { units as u8 }];
            header.extend(random.octets(len - 2));
            if of == 44 && random.below(2) == 0 {
                header[2..4].copy_from_slice(&random.of(&[[0, 0], [0, 1], [0, 8]]));
            }
            header.extend(chain);
            (chain, next) = (header, of);
        }
    }
    let mut packet = (0x6000_0000 | (random.word() as u32 & 0x0fff_ffff)).to_be_bytes().to_vec();
    packet.extend(((chain.len() + upper.len()) as u16).to_be_bytes());
    packet.extend([next, hops(random)]);
    packet.extend(ends.concat());
    packet.extend(chain);
    packet.extend(upper);
    packet
}

/// What comes to the port after all is right: padding, octets that are changed, a frame that is cut off.
fn spoiled(random: &mut Random, mut frame: Vec<u8>) -> Vec<u8> {
    if random.below(4) == 0 {
        let padding = random.below(60);
        frame.extend(random.octets(padding));
    }
    if random.below(8) == 0 {
        for _ in 0..=random.below(2) {
            let at = random.below(frame.len().min(150));
            frame[at] = random.octet();
        }
    }
    if random.below(12) == 0 {
        let len = random.below(frame.len().min(200)).max(1);
        frame.truncate(len);
    }
    frame
}

/// A frame that comes in on N3.
pub(crate) fn uplink(random: &mut Random) -> Vec<u8> {
    let n = FIRST + random.below(SESSIONS);
    let is_v6 = n.is_multiple_of(2);
    let (_, packet) = user_packet(random, n, true);
    let mut chain: Vec<(u8, Vec<u8>)> = Vec::new();
    let qfi = random.of(&[0u8, 9, 9, 9, 9, 9, 63, 0x49]);
    if !random.once_in(4) {
        let mut content = vec![random.of(&[0x10u8, 0x10, 0x10, 0x10, 0x00, 0x20]), qfi];
        let more = random.of(&[0, 0, 4]);
        content.extend(random.octets(more));
        chain.push((0x85, content));
    }
    while random.below(5) == 0 {
        let content = random.of(&[2, 2, 6, 10]);
        let of = (random.of(&[0x40u8, 0x20, 0x3f, 0x7f, 0x85, 0x9a, 0xc0]), random.octets(content));
        let at = random.below(chain.len() + 1);
        chain.insert(at, of);
    }
    let has_optional = !chain.is_empty() || random.below(5) == 0;
    let mut body = Vec::new();
    let mut flags = 0x30 | if chain.is_empty() { 0 } else { 4 };
    if has_optional {
        flags |= if chain.is_empty() { random.of(&[1u8, 2, 3, 2]) } else { random.of(&[0u8, 0, 2]) };
        body.extend(random.octets(3));
        body.push(chain.first().map_or_else(|| random.octet() & 0x3f, |(kind, _)| *kind));
        for (at, (_, content)) in chain.iter().enumerate() {
            body.push(((content.len() + 2) / 4) as u8);
            body.extend(content);
            body.push(chain.get(at + 1).map_or(0, |(kind, _)| *kind));
        }
    }
    body.extend(packet);
    let teid = if random.below(20) == 0 { random.word() as u32 } else { 1000 + n as u32 };
    let mut gtpu = vec![flags, 255];
    gtpu.extend((body.len() as u16).to_be_bytes());
    gtpu.extend(teid.to_be_bytes());
    gtpu.extend(body);
    let mut udp = random.of(&[2152u16, 50123]).to_be_bytes().to_vec();
    udp.extend(2152u16.to_be_bytes());
    udp.extend(((8 + gtpu.len()) as u16).to_be_bytes());
    udp.extend(random.of(&[[0u8, 0], [0x12, 0x34]]));
    udp.extend(gtpu);
    let mut frame = N3_MAC.to_vec();
    frame.extend([2, 0, 0, 0, 3, 2]);
    if is_v6 {
        frame.extend([0x86, 0xdd]);
        let ends = ["fd00:3::2", "fd00:3::1"].map(|end| end.parse::<std::net::Ipv6Addr>().unwrap().octets());
        let mut header = (0x6000_0000 | (random.word() as u32 & 0x0fff_ffff)).to_be_bytes().to_vec();
        header.extend((udp.len() as u16).to_be_bytes());
        header.extend([17, 64]);
        header.extend(ends.concat());
        frame.extend(header);
        frame.extend(udp);
    } else {
        frame.extend([8, 0]);
        let options = if random.below(10) == 0 { random.below(7) } else { 0 };
        let mut outer = ipv4_packet(random, 17, [[10, 100, 3, 2], [10, 100, 3, 1]], options, &udp);
        if random.below(10) > 0 {
            // No fragment.
            outer[6..8].copy_from_slice(&[0x40, 0]);
            ipv4::fill_checksum(&mut outer[..20 + 4 * options]);
        }
        frame.extend(outer);
    }
    spoiled(random, frame)
}

/// A frame that comes in on N6.
fn downlink(random: &mut Random) -> Vec<u8> {
    let n = FIRST + random.below(SESSIONS);
    let (ethertype, packet) = user_packet(random, n, false);
    let mut frame = N6_MAC.to_vec();
    frame.extend([2, 0, 0, 0, 6, 2]);
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    spoiled(random, frame)
}

/// The frame of a step with more data, or less, in the inmost packet: so many octets.
pub(crate) fn resized(frame: &[u8], len: usize) -> Vec<u8> {
    let more = len as isize - frame.len() as isize;
    let mut frame = frame.to_vec();
    frame.resize(len, 0xa5);
    let add = |frame: &mut [u8], at: usize| {
        let old = isize::from(i16::from_be_bytes([frame[at], frame[at + 1]]));
        frame[at..at + 2].copy_from_slice(&((old + more) as u16).to_be_bytes());
    };
    let mut at = 14;
    loop {
        match frame[at] >> 4 {
            4 => {
                add(&mut frame, at + 2);
                ipv4::fill_checksum(&mut frame[at..at + 20]);
                at += 20;
            }
            6 => {
                add(&mut frame, at + 4);
                at += 40;
            }
            other => panic!("version {other}"),
        }
        add(&mut frame, at + 4);
        // UDP to GTP-U without options has another packet in it.
        if frame[at + 2..at + 4] != 2152u16.to_be_bytes() {
            return frame;
        }
        add(&mut frame, at + 10);
        at += 16;
    }
}

/// What the software makes of a frame.
fn judged(rig: &mut Rig, direction: Direction, frame: &[u8]) -> (Vec<Vec<u8>>, Option<&'static str>) {
    let port = if direction == Direction::Decap { N3 } else { N6 };
    let before: Vec<_> = rig.totals(port).drops_by_name().collect();
    let out = rig.pass(port, frame).into_iter().map(|(_, frame)| frame).collect();
    let dropped = rig.totals(port).drops_by_name().find(|count| !before.contains(count));
    (out, dropped.map(|(reason, _)| reason))
}

/// Whether a core may leave a frame to the host for this reason, as far as its octets tell.
fn is_hosts(event: Event, frame: &[u8], direction: Direction, judged: &(Vec<Vec<u8>>, Option<&str>)) -> bool {
    let packet = frame.get(14..).unwrap_or_default();
    let has_extension = |packet: &[u8]| {
        ipv6::next_header_of(packet).is_some_and(|next| matches!(next.0, 0 | 43 | 44 | 51 | 60))
    };
    let (out, drop) = judged;
    // That a longer frame is cut off is not seen when it is decided: the host finds out.
    if frame.len() > SEEN && *drop == Some("ip_malformed") {
        return true;
    }
    // Octets that look like an IP header with options, or IPv6, somewhere in the packet.
    let any = |is: &dyn Fn(&[u8]) -> bool| (0..packet.len().min(150)).any(|at| is(&packet[at..]));
    match event {
        Event::HostOther => {
            let expected = if direction == Direction::Decap { N3_MAC } else { N6_MAC };
            let udp_to = ipv4::protocol_of(packet).or(ipv6::next_header_of(packet));
            out.is_empty()
                || !frame.starts_with(&expected)
                || frame.get(12..14).is_none_or(|ethertype| !matches!(ethertype, [8, 0] | [0x86, 0xdd]))
                || udp_to != Some(IpProtocol::UDP)
        }
        Event::HostDeep => any(&|at| at[0] > 0x4a && at[0] < 0x50) || frame.len() > 60,
        Event::HostExtension => any(&has_extension),
        Event::HostFragment => packet.get(6..8).is_some_and(|flags| flags[0] & 0x3f != 0 || flags[1] != 0),
        Event::HostSignalling => out.is_empty() || drop.is_some(),
        Event::HostChain => packet.len() > 50,
        // The software knows group addresses for what they are.
        Event::HostMiss => matches!(drop, Some("teid_unknown" | "ue_unknown" | "not_ours")),
        Event::HostRoute => {
            let routes: [&[u8]; 4] = [&[10, 100], &[10, 200], &[0xfd, 0, 0, 3], &[0xfd, 0, 0, 6]];
            any(&|at| routes.iter().any(|prefix| at.starts_with(prefix)))
        }
        Event::HostTtl => *drop == Some("ttl_expired"),
        Event::HostChecksum => !out.is_empty() && out.iter().all(|out| out[12..14] == [0x86, 0xdd]),
        _ => false,
    }
}

/// Passes frames through a core and the software, and compares what becomes of each. The events.
pub(crate) fn compare(
    core: &mut GtpuCore,
    node: &Vector,
    direction: Direction,
    frames: &[Vec<u8>],
    pressure: Pressure,
    name: &str,
) -> Vec<Event> {
    node.set_up(core, direction);
    let (outcomes, _timing) =
        core.run(frames, pressure).unwrap_or_else(|error| panic!("{name}, {direction:?}: {error}"));
    let mut rig = node.rig();
    let mut events = Vec::new();
    for (number, (frame, outcome)) in frames.iter().zip(outcomes).enumerate() {
        let event = outcome.event;
        events.push(event);
        let judged = judged(&mut rig, direction, frame);
        let at = || format!("{name}, frame {number}, {direction:?}, {event:?}, {judged:02x?}: {frame:02x?}");
        match outcome.disposition {
            Disposition::Host(host) => {
                assert_eq!(&host, frame, "{}", at());
                assert!(is_hosts(event, frame, direction, &judged), "{}", at());
            }
            Disposition::Out(out) => assert_eq!(judged, (vec![out], None), "{}", at()),
            Disposition::Dropped => assert_eq!(judged, (Vec::new(), Some(event.name())), "{}", at()),
        }
    }
    events
}

fn run(core: &mut GtpuCore, direction: Direction, seed: u64, seen: &mut BTreeMap<&'static str, u64>) {
    let mut random = Random::new(seed);
    let node = node(&mut random);
    let frame = if direction == Direction::Decap { uplink } else { downlink };
    let frames: Vec<_> = (0..RUN).map(|_| frame(&mut random)).collect();
    let pressure = Pressure::seeded(random.word());
    for event in compare(core, &node, direction, &frames, pressure, &format!("seed {seed}")) {
        *seen.entry(event.name()).or_default() += 1;
    }
}

#[test]
fn random_frames_come_out_as_of_the_software() {
    let frames = crate::gre_random::number("KAIDO_TWIN_FRAMES", 30_000);
    let first = crate::gre_random::number("KAIDO_TWIN_SEED", 1);
    let mut seen = BTreeMap::new();
    let runs = frames.div_ceil(RUN as u64 * 4);
    for (direction, width) in
        [Direction::Decap, Direction::Encap].into_iter().flat_map(|of| Width::ALL.map(|width| (of, width)))
    {
        let name = "random_frames_come_out_as_of_the_software";
        let Some(mut core) = crate::gtpu_core(name, direction, width) else { continue };
        (first..first + runs).for_each(|seed| run(&mut core, direction, seed, &mut seen));
    }
    println!("{frames} frames: {seen:?}");
    // All that there is has come, but what only a MAC, a session with filters or a longer packet brings.
    let rare = [Event::FrameError, Event::HostSession, Event::HostMtu];
    let missing: Vec<_> =
        Event::ALL.iter().filter(|event| !rare.contains(event) && !seen.contains_key(event.name())).collect();
    if !seen.is_empty() && frames >= 30_000 {
        assert!(missing.is_empty(), "{missing:?}");
    }
}
