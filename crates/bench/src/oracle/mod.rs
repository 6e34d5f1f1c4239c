//! Judges whether what came out is what had to come out.
//!
//! ```text
//!   packet sent (made again from its trailer) ──▶ Rule ──▶ frame that must come ──┐
//!                                                                                 ├─▶ equal, or a Finding: fields side by side
//!   packet that came ─────────────────────────────────────────────────────────────┘
//! ```
//! The frame that must come is built from the packet and the rule alone, byte for byte, with sums computed from scratch.
//! The code of the user plane has no part in it.

mod dissect;
mod expect;
mod rules;

use serde::{Deserialize, Serialize};

pub(crate) use dissect::{compare, ip_end};
use expect::{Expectation, Expectations};
pub use rules::{Bearers, OuterFields, Side, SourcePort, Tag};

use crate::generator::Problem;

/// What a device does with the packets of some ports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[expect(clippy::large_enum_variant, reason = "a run has a few of them")]
pub enum Rule {
    /// A user plane function: packets leave their tunnels on one side and enter them on the other.
    Bearers(Bearers),
    /// A cable, or a bridge: packets leave as they came.
    Unchanged {
        /// Name of the bench's port into which packets go.
        from: String,
        /// Name of the bench's port at which they come out.
        to: String,
    },
    /// A port forwarder, or a router: packets leave with other Ethernet addresses, and of a router those of IPv4 with a hop less.
    Routed {
        /// Name of the bench's port into which packets go.
        from: String,
        /// Name of the bench's port at which they come out.
        to: String,
        /// Ethernet address that they leave from.
        source: [u8; 6],
        /// And to.
        destination: [u8; 6],
        /// Whether a hop is taken off.
        takes_hop: bool,
    },
    /// A GRE header remover in the wire: what is in GRE over IPv4, without options in either, leaves without both headers, and
    /// everything else as it came.
    Decapsulated {
        /// Name of the bench's port into which packets go.
        from: String,
        /// Name of the bench's port at which they come out.
        to: String,
    },
}

/// What must come of a packet, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// A frame at a port.
    Out(usize, Vec<u8>),
    /// Nothing, and why.
    Nothing(&'static str),
    /// No rule is about its port.
    Unknown,
}

#[derive(Debug)]
enum KnownFlow {
    Bearers { access: usize, core: usize, expectations: Box<Expectations> },
    Unchanged { from: usize, to: usize },
    Routed { from: usize, to: usize, macs: [[u8; 6]; 2], takes_hop: bool },
    Decapsulated { from: usize, to: usize },
}

/// Knows the rules of all ports.
#[derive(Debug, Default)]
pub(crate) struct Oracle(Vec<KnownFlow>);

impl Oracle {
    /// An oracle by some rules about named ports; what is wrong with them.
    pub(crate) fn new(rules: &[Rule], ports: &[String]) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut known = Vec::new();
        for (place, rule) in rules.iter().enumerate() {
            let mut wrong = |field: &str, message: String| {
                problems.push(Problem { stream: None, field: format!("expect[{place}].{field}"), message });
            };
            let mut find = |field: &str, name: &str| {
                let port = ports.iter().position(|port| port == name);
                if port.is_none() {
                    wrong(field, format!("there is no port `{name}`"));
                }
                port.unwrap_or(0)
            };
            match rule {
                Rule::Unchanged { from, to } => {
                    known.push(KnownFlow::Unchanged {
                        from: find("unchanged.from", from),
                        to: find("unchanged.to", to),
                    });
                }
                Rule::Routed { from, to, source, destination, takes_hop } => {
                    known.push(KnownFlow::Routed {
                        from: find("routed.from", from),
                        to: find("routed.to", to),
                        macs: [*destination, *source],
                        takes_hop: *takes_hop,
                    });
                }
                Rule::Decapsulated { from, to } => {
                    known.push(KnownFlow::Decapsulated {
                        from: find("decapsulated.from", from),
                        to: find("decapsulated.to", to),
                    });
                }
                Rule::Bearers(bearers) => {
                    let access = find("bearers.access.port", &bearers.access.port);
                    let core = find("bearers.core.port", &bearers.core.port);
                    check(bearers, &mut wrong);
                    let expectations = Box::new(Expectations::new(bearers.clone()));
                    known.push(KnownFlow::Bearers { access, core, expectations });
                }
            }
        }
        if problems.is_empty() { Ok(Self(known)) } else { Err(problems) }
    }

    /// What must come of a packet that was sent out of a port; `came` is what came, for where several values are right. Of
    /// several rules about a port that one speaks which lets the packet out.
    pub(crate) fn verdict(&mut self, port: usize, sent: &[u8], came: &[u8]) -> Verdict {
        let mut verdict = Verdict::Unknown;
        for known in &mut self.0 {
            let expected = match known {
                KnownFlow::Unchanged { from, to } if *from == port => {
                    return Verdict::Out(*to, sent.to_vec());
                }
                KnownFlow::Routed { from, to, macs, takes_hop } if *from == port => {
                    match routed(sent, macs, *takes_hop) {
                        Some(frame) => return Verdict::Out(*to, frame),
                        None => "no IPv4 packet with a hop left",
                    }
                }
                KnownFlow::Decapsulated { from, to } if *from == port => {
                    return Verdict::Out(*to, decapsulated(sent));
                }
                KnownFlow::Bearers { access, core, expectations } if port == *access || port == *core => {
                    let expected = expectations.of(port == *access, sent, came);
                    match expected {
                        Expectation::Out(outcome) => {
                            return Verdict::Out(
                                if outcome.to_access { *access } else { *core },
                                outcome.frame,
                            );
                        }
                        Expectation::Nothing(why) => why,
                    }
                }
                _ => continue,
            };
            verdict = Verdict::Nothing(expected);
        }
        verdict
    }

    /// Whether no rule is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A frame as a router sends it on, to and from these Ethernet addresses.
fn routed(sent: &[u8], [destination, source]: &[[u8; 6]; 2], takes_hop: bool) -> Option<Vec<u8>> {
    const TTL: usize = 14 + 8;
    const CHECKSUM: usize = 14 + 10;
    if !takes_hop {
        return Some([destination, source, sent.get(12..)?].concat());
    }
    if sent.len() < 34 || sent[12..15] != [0x08, 0x00, 0x45] || sent[TTL] < 2 {
        return None;
    }
    let mut frame = [destination, source, &sent[12..]].concat();
    frame[TTL] -= 1;
    // RFC 1624: the high octet of a word is one less, so its complement is one more.
    let sum = u32::from(u16::from_be_bytes([sent[CHECKSUM], sent[CHECKSUM + 1]])) + 0x100;
    let sum = u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap_or(u16::MAX);
    frame[CHECKSUM..CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
    Some(frame)
}

/// A frame without the headers of IPv4 and GRE, if it has them. IPv4 must have no options and be no fragment, and GRE have
/// a header of four octets, all zero but the protocol's.
fn decapsulated(sent: &[u8]) -> Vec<u8> {
    const LINK: usize = 14;
    const OUTER: usize = 20 + 4;
    let is_tunnel = sent.len() >= LINK + OUTER
        && sent[12..15] == [0x08, 0x00, 0x45]
        && sent[23] == 47
        && u16::from_be_bytes([sent[20], sent[21]]) & 0x3fff == 0
        && sent[34..36] == [0, 0];
    if is_tunnel { [&sent[..12], &sent[36..38], &sent[LINK + OUTER..]].concat() } else { sent.to_vec() }
}

/// What can be wrong with bearers.
pub(crate) fn check(bearers: &Bearers, wrong: &mut impl FnMut(&str, String)) {
    if bearers.count == 0 {
        wrong("bearers.count", "there is 1 bearer or more".to_owned());
    }
    if bearers.peers == 0 || !bearers.count.is_multiple_of(bearers.peers.max(1)) {
        let message =
            format!("each access node has as many of the {} bearers, and there is 1 or more", bearers.count);
        wrong("bearers.peers", message);
    }
    if bearers.local.is_ipv4() != bearers.peer_first.is_ipv4() {
        wrong(
            "bearers.peer_first",
            format!("{} and {} are of two families", bearers.peer_first, bearers.local),
        );
    }
    if bearers.server.is_ipv4() != bearers.ue_first.is_ipv4() {
        wrong("bearers.server", format!("{} and {} are of two families", bearers.server, bearers.ue_first));
    }
    if bearers.qfi.is_some_and(|qfi| qfi > 63) {
        wrong("bearers.qfi", "a QoS flow has a number from 0 to 63".to_owned());
    }
    let last = bearers.count.saturating_sub(1);
    for (field, first) in
        [("teid_first", bearers.teid_first), ("access_teid_first", bearers.access_teid_first)]
    {
        if first == 0 || first.checked_add(last).is_none() {
            wrong(
                &format!("bearers.{field}"),
                format!("{} TEIDs from {first}: 1 to {} are possible", bearers.count, u32::MAX),
            );
        }
    }
    for (field, side) in [("access", &bearers.access), ("core", &bearers.core)] {
        for (place, tag) in side.tags.iter().enumerate() {
            let last = u32::from(tag.first) + u32::from(tag.count) - u32::from(tag.count > 0);
            let is_even = bearers.count.is_multiple_of(u32::from(tag.count.max(1)));
            if tag.count == 0 || last > 4094 || tag.priority > 7 || !is_even {
                let message =
                    "identifiers are 0 to 4094, one or more, each of as many bearers; priorities are 0 to 7"
                        .to_owned();
                wrong(&format!("bearers.{field}.tags[{place}]"), message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_routed_packet_has_other_addresses_a_hop_less_and_a_right_checksum() {
        for (ttl, checksum) in [(64, 0x1234), (2, 0xff20_u16), (255, 0xfeff)] {
            let mut frame = vec![0; 14 + 20];
            (frame[12], frame[14], frame[22]) = (0x08, 0x45, ttl);
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
            let sum = |frame: &[u8]| {
                let words = frame[14..34].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
                let sum: u32 = words.sum();
                (sum & 0xffff) + (sum >> 16)
            };
            let came = routed(&frame, &[[1; 6], [2; 6]], true).unwrap();
            assert_eq!((&came[..6], &came[6..12], came[22]), (&[1; 6][..], &[2; 6][..], ttl - 1));
            assert_eq!(sum(&came), sum(&frame), "what was right is right: {checksum:#x}");
        }
        assert_eq!(routed(&[0; 60], &[[1; 6], [2; 6]], true), None, "no IPv4");
        let forwarded = routed(&[7; 60], &[[1; 6], [2; 6]], false).unwrap();
        assert_eq!((&forwarded[..12], &forwarded[12..]), (&[[1; 6], [2; 6]].concat()[..], &[7; 48][..]));
    }

    #[test]
    fn headers_go_where_they_are_plain() {
        let mut frame = vec![0; 14 + 24];
        frame[..12].copy_from_slice(b"to....from..");
        frame[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
        frame[23] = 47;
        frame[36..38].copy_from_slice(&[0x86, 0xdd]);
        frame.extend(b"inside");
        assert_eq!(decapsulated(&frame), b"to....from..\x86\xddinside");
        for (at, octet) in [(13, 0x06), (14, 0x46), (20, 0x20), (23, 17), (34, 0x20), (35, 1)] {
            let mut other = frame.clone();
            other[at] = octet;
            assert_eq!(decapsulated(&other), other, "octet {at}");
        }
        let rule = Rule::Decapsulated { from: "a".to_owned(), to: "b".to_owned() };
        let mut oracle = Oracle::new(&[rule], &["a".to_owned(), "b".to_owned()]).unwrap();
        assert_eq!(oracle.verdict(0, &frame, &frame), Verdict::Out(1, decapsulated(&frame)));
    }
}
