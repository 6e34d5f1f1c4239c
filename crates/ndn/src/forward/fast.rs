//! The fast-path packet, read in one pass with its name: all in one segment, types of one octet, no parameters, no hint, no
//! digests. Everything else takes the slow path, which reads all that the format knows; what both read they read alike,
//! except that the inside of Data's SignatureInfo is the consumer's and is not looked at here.

use kaido_wire::ndn::LIFETIME_DEFAULT_MS;

use super::parse::{LIFETIME_MAX_MS, PacketContent, ParsedPacket};
use crate::table::{NameHash, Prefixes, Selectors};

/// Milliseconds that an Interest waits that does not say how long.
#[allow(clippy::cast_possible_truncation)] // As said below.
const LIFETIME_MS: u32 = LIFETIME_DEFAULT_MS as u32;
const _: () = assert!(LIFETIME_DEFAULT_MS < LIFETIME_MAX_MS as u64 && LIFETIME_MAX_MS > u16::MAX as u32);

/// Reads a packet; `false` when it is not eligible for the fast path. `octets` begin with its first segment and have
/// [`STEP`](crate::table::STEP) more; the lengths are of the segment and of the packet. The name of Data that `has_entry` is
/// left to be compared with that.
#[inline(always)]
pub(super) fn read(
    octets: &[u8],
    (len, total): (usize, usize),
    has_entry: bool,
    hash: &NameHash,
    parsed: &mut ParsedPacket,
    prefixes: &mut Prefixes,
) -> bool {
    let Some(&kind) = octets.first() else { return false };
    let Some((at, end)) = value(octets, 0) else { return false };
    let Some((name_at, name_end)) = value(octets, at) else { return false };
    if octets[at] != 7 || len != total || end != total || name_end > len {
        return false;
    }
    let is_hashed = kind == 5 || !has_entry;
    if is_hashed && !prefixes.fill_plain(hash, &octets[name_at..], name_end - name_at) {
        return false;
    }
    let name = (name_at, name_end);
    match kind {
        5 if name_at < name_end => interest(octets, len, name, parsed),
        6 => data(octets, len, name, is_hashed, parsed),
        _ => false,
    }
}

/// Where the value of the element at `at` begins and ends, if its type has one octet and its length one or three.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Octets of a number of four.
pub(crate) fn value(octets: &[u8], at: usize) -> Option<(usize, usize)> {
    let header = u32::from_le_bytes(*octets.get(at..)?.first_chunk()?);
    let len = usize::from((header >> 8) as u8);
    if len < 253 {
        return Some((at + 2, at + 2 + len));
    }
    let long = usize::from(((header >> 16) as u16).swap_bytes());
    (len == 253 && long >= 253).then_some((at + 4, at + 4 + long))
}

/// Eight octets as a number, the first in the lowest bits.
#[inline(always)]
fn word(octets: &[u8], at: usize) -> Option<u64> {
    octets.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// Reads what follows an Interest's name. Type and length of an element are compared as one number, the type in the lower
/// bits.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Some of the eight octets are wanted, and offsets lie within a frame.
fn interest(
    octets: &[u8],
    len: usize,
    (name_at, name_end): (usize, usize),
    parsed: &mut ParsedPacket,
) -> bool {
    let mut at = name_end;
    let Some(mut next) = word(octets, at) else { return false };
    let mut selectors = Selectors::default();
    if next as u16 == 0x0021 {
        selectors.can_be_prefix = true;
        (next, at) = (next >> 16, at + 2);
    }
    if next as u16 == 0x0012 {
        selectors.must_be_fresh = true;
        at += 2;
    }
    let nonce_at = at;
    let Some(mut next) = word(octets, at).filter(|next| *next as u16 == 0x040a) else { return false };
    let nonce = ((next >> 16) as u32).swap_bytes();
    at += 6;
    next = word(octets, at).unwrap_or(0);
    let mut lifetime_ms = LIFETIME_MS;
    if next as u16 == 0x020c {
        lifetime_ms = ((next >> 16) as u16).swap_bytes().into();
        (next, at) = (next >> 32, at + 4);
    } else if next as u16 == 0x010c {
        lifetime_ms = ((next >> 16) as u8).into();
        (next, at) = (next >> 24, at + 3);
    }
    let (mut hop_limit, mut hop_limit_at) = (None, 0);
    if next as u16 == 0x0122 {
        (hop_limit, hop_limit_at, at) = (Some((next >> 16) as u8), at + 2, at + 3);
    }
    *parsed = ParsedPacket {
        what: PacketContent::Interest,
        is_hashed: true,
        name_at: name_at as u16,
        name_end: name_end as u16,
        selectors,
        nonce: Some(nonce),
        nonce_at: nonce_at as u16,
        hop_limit,
        hop_limit_at: hop_limit_at as u16,
        has_hint: false,
        lifetime_ms,
        freshness_ms: 0,
    };
    at == len
}

/// Reads what follows Data's name.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Offsets lie within a frame.
fn data(
    octets: &[u8],
    len: usize,
    (name_at, name_end): (usize, usize),
    is_hashed: bool,
    parsed: &mut ParsedPacket,
) -> bool {
    let Some((freshness_ms, end)) = tail(octets, name_end) else { return false };
    *parsed = ParsedPacket {
        what: PacketContent::Data,
        is_hashed,
        name_at: name_at as u16,
        name_end: name_end as u16,
        freshness_ms,
        ..ParsedPacket::NOTHING
    };
    end == len
}

/// FreshnessPeriod of Data, and where what follows its name ends.
#[inline(always)]
fn tail(octets: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let is = |at: usize, kind: u8| octets.get(at) == Some(&kind);
    let mut freshness_ms = 0;
    if is(at, 0x14) {
        let (begin, end) = value(octets, at)?;
        freshness_ms = freshness(octets.get(begin..end)?)?;
        at = end;
    }
    if is(at, 0x15) {
        at = value(octets, at)?.1;
    }
    for kind in [0x16, 0x17] {
        if !is(at, kind) {
            return None;
        }
        at = value(octets, at)?.1;
    }
    Some((freshness_ms, at))
}

/// FreshnessPeriod of MetaInfo that holds usual elements in their order.
#[inline(always)]
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

    use super::super::parse::{self, PacketContent};
    use super::*;
    use crate::table::STEP;
    use crate::table::build::name;

    fn both(packet: &[u8]) -> (Option<ParsedPacket>, ParsedPacket) {
        let hash = NameHash::fixed(1);
        let (mut fast, mut slow) = (Prefixes::default(), Prefixes::default());
        let padded = [packet, &[0xa5; STEP]].concat();
        let lens = (packet.len(), packet.len());
        let mut parsed = ParsedPacket::NOTHING;
        let read = read(&padded, lens, false, &hash, &mut parsed, &mut fast).then_some(parsed);
        let expected = parse::slow(packet, packet.len(), false, &hash, &mut slow);
        if read.is_some() && !matches!(expected.what, PacketContent::Refused(_)) {
            assert_eq!(fast, slow);
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
    fn fast_path_packets_are_read_in_one_pass() {
        for (can_be_prefix, must_be_fresh) in [(false, false), (true, false), (false, true), (true, true)] {
            for lifetime_ms in [None, Some(100), Some(4000)] {
                for hop_limit in [None, Some(9)] {
                    let (fast, slow) = both(&interest(|repr| {
                        (repr.can_be_prefix, repr.must_be_fresh) = (can_be_prefix, must_be_fresh);
                        (repr.lifetime_ms, repr.hop_limit) = (lifetime_ms, hop_limit);
                    }));
                    assert_eq!(fast, Some(slow));
                }
            }
        }
        for content in [0, 1, 200, 300, 3000] {
            for freshness_ms in [0, 200, 2000, 200_000] {
                for content_type in [0, 3] {
                    let (fast, slow) = both(&data("a/b", &vec![1; content], freshness_ms, content_type));
                    assert_eq!(fast, Some(slow));
                }
            }
        }
    }

    #[test]
    fn unusual_packets_are_left_to_the_slow_path() {
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
            let (fast, slow) = both(&packet);
            assert!(fast.is_none() && !matches!(slow.what, PacketContent::Refused(_)), "{packet:?}");
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
            let (fast, slow) = both(&packet);
            if let Some(fast) = fast {
                // SignatureInfo and what it holds: 5 octets before the signature.
                let inside = of_data && at + 39 >= packet.len();
                prop_assert!(fast == slow || inside && matches!(slow.what, PacketContent::Refused(_)));
            }
        }
    }
}
