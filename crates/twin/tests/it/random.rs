//! Random frames of all kinds that the function knows, some with octets changed, and random settings for them.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_engine::PortId;
use kaido_gre::{
    Condition, DontFragment, Encapsulation, ForwardingMode, Inner, KeyMatch, Pieces, PortSettings, Prefix,
    Propagation, Rule, Settings, Verdict,
};
use kaido_wire::checksum::checksum;

/// Numbers by a seed: splitmix64 (Steele and others 2014).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    /// Once in so many.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    pub(crate) fn octet(&mut self) -> u8 {
        self.word() as u8
    }

    pub(crate) fn octets(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.octet()).collect()
    }
}

/// An address of few, so that rules are met.
fn address_v4(random: &mut Random) -> Ipv4Addr {
    Ipv4Addr::new(192, 0, 2, random.of(&[1, 2, 3, 129]))
}

/// Of a packet: now and then one that no router forwards from, or to.
fn packet_address_v4(random: &mut Random) -> Ipv4Addr {
    match random.once_in(12) {
        true => random.of(&[[224, 0, 0, 5], [255; 4], [127, 0, 0, 1], [0; 4], [169, 254, 7, 1]]).into(),
        false => address_v4(random),
    }
}

fn address_v6(random: &mut Random) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, random.of(&[5, 6]), 0, 0, 0, 0, random.of(&[1, 2, 0x8001]))
}

const KEYS: [u32; 3] = [7, 9, 0x8000_0007];

fn prefix(random: &mut Random, is_v4: bool) -> Option<Prefix> {
    if random.once_in(3) {
        return None;
    }
    let (address, len): (IpAddr, u8) = match is_v4 {
        true => (address_v4(random).into(), random.of(&[0, 8, 24, 25, 31, 32])),
        false => (address_v6(random).into(), random.of(&[0, 32, 48, 64, 113, 127, 128])),
    };
    Prefix::new(address, len)
}

fn verdict(random: &mut Random) -> Verdict {
    let propagation = |uniform| if uniform { Propagation::Uniform } else { Propagation::Pipe };
    match random.below(16) {
        0 => Verdict::Pass,
        1 => Verdict::Drop,
        2 => Verdict::Punt,
        of => Verdict::Decapsulate {
            ttl: propagation(random.once_in(2)),
            dscp: propagation(random.once_in(2)),
            forward: if of == 3 { ForwardingMode::Route } else { ForwardingMode::PeerPort },
        },
    }
}

fn rule(random: &mut Random, number: usize) -> Rule {
    let is_v4 = !random.once_in(4);
    let all = random.once_in(2);
    let has = |random: &mut Random| all || random.once_in(2);
    Rule {
        name: format!("rule {number}"),
        condition: Condition {
            port: random.of(&[None, None, None, Some(PortId(0)), Some(PortId(1))]),
            source: prefix(random, is_v4),
            destination: prefix(random, is_v4),
            key: match random.below(4) {
                0 => KeyMatch::Absent,
                1 => KeyMatch::Is(random.of(&KEYS)),
                _ => KeyMatch::Any,
            },
            inner: Inner { ipv4: has(random), ipv6: has(random), ethernet: has(random) },
        },
        verdict: verdict(random),
    }
}

/// Settings that fit a core.
pub(crate) fn settings(random: &mut Random) -> Settings {
    let mtu = random.of(&[1500, 1500, 200, 9000]);
    let port = |peer_port| PortSettings {
        peer_port: Some(PortId(peer_port)),
        mac: [2, 0, 0, 0, 0, peer_port],
        addresses: Vec::new(),
        mtu,
    };
    // At most four of them can be of IPv6.
    let mut rules: Vec<Rule> = Vec::new();
    for number in 0..random.below(9) {
        let rule = rule(random, number);
        let is_v6 = |rule: &Rule| {
            [rule.condition.source, rule.condition.destination].iter().flatten().all(|p| !p.is_ipv4())
        };
        if !is_v6(&rule) || rules.iter().filter(|rule| is_v6(rule)).count() < 4 {
            rules.push(rule);
        }
    }
    Settings {
        rules,
        unmatched: verdict(random),
        unreadable: random.of(&[Verdict::Drop, Verdict::Drop, Verdict::Pass, Verdict::Punt]),
        pieces: random.of(&[Pieces::Pass, Pieces::Drop, Pieces::Assemble]),
        ..Settings::bump(vec![port(1), port(0)])
    }
}

/// Tunnels that fit a core.
pub(crate) fn encapsulations(random: &mut Random) -> Vec<Encapsulation> {
    (0..random.below(9)).map(|number| encapsulation(random, number)).collect()
}

fn encapsulation(random: &mut Random, number: usize) -> Encapsulation {
    let propagation = |uniform| if uniform { Propagation::Uniform } else { Propagation::Pipe };
    let (is_v4, over_v4) = (!random.once_in(3), random.once_in(2));
    let (local, remote): (IpAddr, IpAddr) = match over_v4 {
        true => (address_v4(random).into(), address_v4(random).into()),
        false => (address_v6(random).into(), address_v6(random).into()),
    };
    Encapsulation {
        name: format!("tunnel {number}"),
        port: random.of(&[PortId(0), PortId(0), PortId(0), PortId(1)]),
        source: prefix(random, is_v4),
        destination: prefix(random, is_v4),
        ethernet: random.once_in(3),
        local,
        remote,
        key: random.once_in(2).then(|| random.of(&KEYS)),
        checksum: random.once_in(2),
        hops: random.octet().max(1),
        ttl: propagation(random.once_in(2)),
        dscp: propagation(random.once_in(2)),
        dont_fragment: random.of(&[
            DontFragment::Set,
            DontFragment::Set,
            DontFragment::Copy,
            DontFragment::Clear,
        ]),
        forward: if random.once_in(8) { ForwardingMode::Route } else { ForwardingMode::PeerPort },
    }
}

/// IPv4 around `payload`.
fn ipv4(random: &mut Random, protocol: u8, option_words: usize, payload: &[u8]) -> Vec<u8> {
    let total = (20 + 4 * option_words + payload.len()) as u16;
    let ihl = 5 + option_words as u8;
    let ihl = if random.once_in(40) { random.octet() & 15 } else { ihl };
    let total =
        if random.once_in(30) { total.wrapping_add(random.below(80) as u16).wrapping_sub(40) } else { total };
    let fragment: u16 =
        if random.once_in(30) { random.of(&[0x2000, 0x0001, 0x1000, 0x8000, 0x4001]) } else { 0x4000 };
    let mut packet = vec![0x40 | ihl, random.octet()];
    packet.extend(total.to_be_bytes());
    packet.extend(random.octets(2));
    packet.extend(fragment.to_be_bytes());
    packet.extend([random.octet(), protocol, 0, 0]);
    packet.extend(packet_address_v4(random).octets());
    packet.extend(packet_address_v4(random).octets());
    packet.extend(random.octets(4 * option_words));
    if random.once_in(20) {
        let sum = random.of(&[[0, 0], [0xff, 0xff], [0x12, 0x34]]);
        packet[10..12].copy_from_slice(&sum);
    } else {
        let header = packet.len().min(usize::from(ihl) * 4);
        let sum = checksum(&packet[..header]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet.extend(payload);
    packet
}

/// IPv6 around `payload`, now and then with extension headers.
fn ipv6(random: &mut Random, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let mut chain = Vec::new();
    let mut next = protocol;
    if random.once_in(10) {
        for _ in 0..=random.below(2) {
            let of = random.of(&[0u8, 43, 44, 51, 60]);
            let mut header = vec![next, if of == 51 { 1 } else { 0 }, 0, 0];
            header.extend(random.octets(if of == 51 { 8 } else { 4 }));
            header.extend(chain);
            (chain, next) = (header, of);
        }
    }
    let len = (chain.len() + payload.len()) as u16;
    let len =
        if random.once_in(30) { len.wrapping_add(random.below(80) as u16).wrapping_sub(40) } else { len };
    let mut packet = (0x6000_0000 | (random.word() as u32 & 0x0fff_ffff)).to_be_bytes().to_vec();
    packet.extend(len.to_be_bytes());
    packet.extend([next, random.octet()]);
    packet.extend(address_v6(random).octets());
    packet.extend(address_v6(random).octets());
    packet.extend(chain);
    packet.extend(payload);
    packet
}

fn payload(random: &mut Random) -> Vec<u8> {
    let len = match random.below(12) {
        0 => random.below(1700),
        1 => 0,
        _ => random.below(120),
    };
    random.octets(len)
}

/// A packet for a tunnel, and its type.
fn inner(random: &mut Random) -> (u16, Vec<u8>) {
    let data = payload(random);
    match random.below(12) {
        0..5 => {
            let options = if random.once_in(5) { random.below(11) } else { 0 };
            (0x0800, ipv4(random, 17, options, &data))
        }
        5..8 => (0x86dd, ipv6(random, 17, &data)),
        8..11 => {
            let mut frame = random.octets(12);
            frame.extend([8, 6]);
            frame.extend(data);
            (0x6558, frame)
        }
        _ => (random.of(&[0x0806, 0x8847, 0]), data),
    }
}

fn gre(random: &mut Random) -> Vec<u8> {
    let (protocol, packet) = inner(random);
    let protocol = if random.once_in(40) { random.of(&[0x0800, 0x86dd, 0x6558]) } else { protocol };
    let mut flags: u16 = 0;
    let mut options = Vec::new();
    let is_summed = random.once_in(8);
    if is_summed {
        flags |= 0x8000;
        options.extend([0; 4]);
    }
    if random.once_in(3) {
        flags |= 0x2000;
        options.extend(random.of(&KEYS).to_be_bytes());
    }
    if random.once_in(4) {
        flags |= 0x1000;
        options.extend(random.octets(4));
    }
    if random.once_in(20) {
        flags |= 1 << random.below(16);
    }
    let mut gre = flags.to_be_bytes().to_vec();
    gre.extend(protocol.to_be_bytes());
    gre.extend(options);
    gre.extend(packet);
    if is_summed && !random.once_in(4) {
        let sum = checksum(&gre);
        gre[4..6].copy_from_slice(&sum.to_be_bytes());
    }
    if random.once_in(64) {
        // It may end within its options.
        gre.truncate(random.below(20));
    }
    gre
}

/// A frame.
pub(crate) fn frame(random: &mut Random) -> Vec<u8> {
    enclosed(random, |random| random.below(20))
}

/// A frame that seldom is a tunnel packet.
pub(crate) fn plain(random: &mut Random) -> Vec<u8> {
    enclosed(
        random,
        |random| if random.once_in(20) { random.below(20) } else { random.of(&[0, 1, 2, 4, 20, 20, 4]) },
    )
}

/// A frame of the kind that is said when its tags are known.
fn enclosed(random: &mut Random, kind: fn(&mut Random) -> usize) -> Vec<u8> {
    let tags = if random.once_in(3) { random.of(&[1, 1, 2, 2, 2, 3, 4, 5]) } else { 0 };
    let (ethertype, packet): (u16, _) = match kind(random) {
        0 => (0x0806, random.octets(28)),
        1 => (random.word() as u16, payload(random)),
        2..4 => {
            let data = payload(random);
            (0x0800, ipv4(random, 17, 0, &data))
        }
        4..6 => {
            let data = payload(random);
            (0x86dd, ipv6(random, 6, &data))
        }
        6..15 => {
            let options = if random.once_in(6) { random.below(11) } else { 0 };
            let tunnelled = gre(random);
            (0x0800, ipv4(random, 47, options, &tunnelled))
        }
        15..20 => {
            let tunnelled = gre(random);
            (0x86dd, ipv6(random, 47, &tunnelled))
        }
        _ => {
            let options = if random.once_in(3) { random.below(7) } else { 0 };
            let data = payload(random);
            (0x0800, ipv4(random, 6, options, &data))
        }
    };
    let mut frame = random.octets(12);
    for _ in 0..tags {
        frame.extend(random.of(&[0x8100u16, 0x88a8, 0x9100]).to_be_bytes());
        frame.extend(random.octets(2));
    }
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    if random.once_in(4) {
        let padding = random.below(90);
        frame.extend(random.octets(padding));
    }
    if random.once_in(8) {
        for _ in 0..=random.below(3) {
            let at = random.below(frame.len().min(110));
            frame[at] = random.octet();
        }
    }
    if random.once_in(8) {
        let len = random.below(frame.len().min(130)).max(1);
        frame.truncate(len);
    }
    frame
}
