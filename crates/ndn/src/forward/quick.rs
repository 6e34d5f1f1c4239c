//! The usual packet, read in one pass with its name: all in one segment, types of one octet, no parameters, no hint, no
//! digests. Everything else takes the careful way, which reads all that the format knows; what both read they read alike,
//! except that the inside of Data's SignatureInfo is the consumer's and is not looked at here.

use super::parse::Parsed;
use crate::table::{NameHash, Prefixes, Selectors};

/// Reads a packet; `None` when it is not a usual one.
#[inline]
pub(super) fn read(packet: &[u8], total: usize, hash: &NameHash, prefixes: &mut Prefixes) -> Option<Parsed> {
    if packet.len() != total {
        return None;
    }
    let (at, end) = value(packet, 0)?;
    let (name_at, name_end) = value(packet, at)?;
    if end != total || packet[at] != 7 || !prefixes.fill_plain(hash, packet.get(name_at..name_end)?) {
        return None;
    }
    let named = Parsed::named(name_at, name_end);
    match packet[0] {
        5 if name_at < name_end => interest(packet, named, name_end),
        6 => data(packet, named, name_end),
        _ => None,
    }
}

/// Where the value of the element at `at` begins and ends, if its type has one octet and its length one or three.
#[inline(always)]
fn value(packet: &[u8], at: usize) -> Option<(usize, usize)> {
    match *packet.get(at..)? {
        [1..=252, len @ 0..=252, ..] => Some((at + 2, at + 2 + usize::from(len))),
        [1..=252, 253, high, low, ..] => {
            let len = usize::from(u16::from_be_bytes([high, low]));
            (len >= 253).then_some((at + 4, at + 4 + len))
        }
        _ => None,
    }
}

#[inline]
fn interest(packet: &[u8], named: Parsed, mut at: usize) -> Option<Parsed> {
    let mut selectors = Selectors::default();
    if let [0x21, 0, ..] = packet[at..] {
        selectors.can_be_prefix = true;
        at += 2;
    }
    if let [0x12, 0, ..] = packet[at..] {
        selectors.must_be_fresh = true;
        at += 2;
    }
    let [0x0a, 4, n0, n1, n2, n3, ..] = packet[at..] else { return None };
    let nonce_at = at;
    at += 6;
    let mut lifetime_ms = kaido_wire::ndn::LIFETIME_DEFAULT_MS;
    match packet[at..] {
        [0x0c, 1, ms, ..] => (lifetime_ms, at) = (ms.into(), at + 3),
        [0x0c, 2, high, low, ..] => (lifetime_ms, at) = (u16::from_be_bytes([high, low]).into(), at + 4),
        _ => {}
    }
    let (mut hop_limit, mut hop_limit_at) = (None, 0);
    if let [0x22, 1, hops, ..] = packet[at..] {
        (hop_limit, hop_limit_at, at) = (Some(hops), at + 2, at + 3);
    }
    let nonce = Some(u32::from_be_bytes([n0, n1, n2, n3]));
    let parsed = named.interest(selectors, nonce, nonce_at, lifetime_ms, hop_limit, hop_limit_at);
    (at == packet.len()).then_some(parsed)
}

#[inline]
fn data(packet: &[u8], named: Parsed, mut at: usize) -> Option<Parsed> {
    let mut freshness_ms = 0;
    if let Some(&0x14) = packet.get(at) {
        let (begin, end) = value(packet, at)?;
        freshness_ms = freshness(packet.get(begin..end)?)?;
        at = end;
    }
    for kind in [0x15, 0x16, 0x17] {
        let is_there = packet.get(at) == Some(&kind);
        if is_there {
            at = value(packet, at)?.1;
        } else if kind != 0x15 {
            return None;
        }
    }
    (at == packet.len()).then(|| named.data(freshness_ms))
}

/// FreshnessPeriod of MetaInfo that holds usual elements in their order.
#[inline]
fn freshness(meta: &[u8]) -> Option<u64> {
    let mut rest = meta;
    if let [0x18, 1, _, after @ ..] = rest {
        rest = after;
    }
    let freshness_ms = match rest {
        [] => return Some(0),
        [0x19, 1, ms, after @ ..] => {
            rest = after;
            u64::from(*ms)
        }
        [0x19, 2, high, low, after @ ..] => {
            rest = after;
            u16::from_be_bytes([*high, *low]).into()
        }
        [0x19, 4, a, b, c, d, after @ ..] => {
            rest = after;
            u32::from_be_bytes([*a, *b, *c, *d]).into()
        }
        _ => return None,
    };
    rest.is_empty().then_some(freshness_ms)
}

#[cfg(test)]
mod tests {
    use kaido_wire::ndn::{ContentType, DataRepr, InterestRepr, Name};
    use proptest::prelude::*;

    use super::super::parse::{self, What};
    use super::*;
    use crate::table::build::name;

    fn both(packet: &[u8]) -> (Option<Parsed>, Parsed) {
        let hash = NameHash::fixed(1);
        let (mut quick, mut careful) = (Prefixes::default(), Prefixes::default());
        let read = read(packet, packet.len(), &hash, &mut quick);
        let expected = parse::carefully(packet, packet.len(), false, &hash, &mut careful);
        if read.is_some() && !matches!(expected.what, What::Refused(_)) {
            assert_eq!(quick, careful);
        }
        (read, expected)
    }

    fn interest(change: impl FnOnce(&mut InterestRepr<'_>)) -> Vec<u8> {
        let octets = name("a/bc/def");
        let mut repr =
            InterestRepr { name: Name::new(&octets).unwrap(), nonce: Some(7), ..InterestRepr::default() };
        change(&mut repr);
        let mut packet = vec![0; repr.len()];
        repr.emit(&mut packet).unwrap();
        packet
    }

    fn data(text: &str, content: &[u8], freshness_ms: u64, content_type: u64) -> Vec<u8> {
        let octets = name(text);
        let content_type = ContentType(content_type);
        let repr = DataRepr {
            name: Name::new(&octets).unwrap(),
            content,
            freshness_ms,
            content_type,
            ..DataRepr::default()
        };
        let mut packet = vec![0; repr.len()];
        repr.emit(&mut packet).unwrap();
        packet
    }

    #[test]
    fn usual_packets_are_read_quickly() {
        for (can_be_prefix, must_be_fresh) in [(false, false), (true, false), (false, true), (true, true)] {
            for lifetime_ms in [None, Some(100), Some(4000)] {
                for hop_limit in [None, Some(9)] {
                    let (quick, careful) = both(&interest(|repr| {
                        (repr.can_be_prefix, repr.must_be_fresh) = (can_be_prefix, must_be_fresh);
                        (repr.lifetime_ms, repr.hop_limit) = (lifetime_ms, hop_limit);
                    }));
                    assert_eq!(quick, Some(careful));
                }
            }
        }
        for content in [0, 1, 200, 300, 3000] {
            for freshness_ms in [0, 200, 2000, 200_000] {
                for content_type in [0, 3] {
                    let (quick, careful) = both(&data("a/b", &vec![1; content], freshness_ms, content_type));
                    assert_eq!(quick, Some(careful));
                }
            }
        }
    }

    #[test]
    fn unusual_packets_are_left_to_the_careful_way() {
        let region = name("region");
        let hint = [Name::new(&region).unwrap()];
        let with_hint = {
            let octets = name("a");
            let repr = InterestRepr {
                name: Name::new(&octets).unwrap(),
                nonce: Some(1),
                forwarding_hint: &hint,
                ..InterestRepr::default()
            };
            let mut packet = vec![0; repr.len()];
            repr.emit(&mut packet).unwrap();
            packet
        };
        let packets = [
            interest(|repr| repr.nonce = None),
            interest(|repr| repr.parameters = Some(b"p")),
            interest(|repr| repr.lifetime_ms = Some(1 << 20)),
            with_hint,
            data(&"x".repeat(300), b"", 0, 0),
            data("a", b"", 1 << 40, 0),
        ];
        for packet in packets {
            let (quick, careful) = both(&packet);
            assert!(quick.is_none() && !matches!(careful.what, What::Refused(_)), "{packet:?}");
        }
    }

    proptest! {
        /// One octet changed, or the packet cut: both ways read the same, or one of them does not.
        #[test]
        fn both_ways_read_alike(at: prop::sample::Index, to: u8, cut: bool, of_data: bool) {
            let mut packet = if of_data {
                data("a/bc", b"content", 1000, 0)
            } else {
                interest(|repr| (repr.can_be_prefix, repr.hop_limit, repr.lifetime_ms) = (true, Some(3), Some(500)))
            };
            let at = at.index(packet.len());
            if cut {
                packet.truncate(at);
            } else {
                packet[at] = to;
            }
            let (quick, careful) = both(&packet);
            if let Some(quick) = quick {
                // SignatureInfo and what it holds: 5 octets before the signature.
                let inside = of_data && at + 39 >= packet.len();
                prop_assert!(quick == careful || inside && matches!(careful.what, What::Refused(_)));
            }
        }
    }
}
