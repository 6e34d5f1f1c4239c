//! Packets as consumers and producers send them, read in one pass: types of one octet, elements in their order, no parameters,
//! no hint. Everything else is for [`Interest::parse`](super::Interest::parse) and [`Data::parse`](super::Data::parse), which
//! read all that the format knows. What both read they read alike. Only the inside of Data's SignatureInfo is not looked at
//! here: it is the consumer's.

use super::types;

/// A type as it stands in a packet: all of this module have one octet.
const fn octet(kind: u32) -> u8 {
    assert!(kind < 253);
    #[allow(clippy::cast_possible_truncation)] // By the line above.
    let octet = kind as u8;
    octet
}

/// Type and length of an element as one number, the type in the lower bits.
const fn header(kind: u32, len: u8) -> u16 {
    u16::from_le_bytes([octet(kind), len])
}

const CAN_BE_PREFIX: u16 = header(types::CAN_BE_PREFIX, 0);
const MUST_BE_FRESH: u16 = header(types::MUST_BE_FRESH, 0);
const NONCE: u16 = header(types::NONCE, 4);
const LIFETIME_OF_TWO: u16 = header(types::INTEREST_LIFETIME, 2);
const LIFETIME_OF_ONE: u16 = header(types::INTEREST_LIFETIME, 1);
const HOP_LIMIT: u16 = header(types::HOP_LIMIT, 1);
const META_INFO: u8 = octet(types::META_INFO);
const CONTENT: u8 = octet(types::CONTENT);
const SIGNATURE: [u8; 2] = [octet(types::SIGNATURE_INFO), octet(types::SIGNATURE_VALUE)];
const CONTENT_TYPE: u8 = octet(types::CONTENT_TYPE);
const FRESHNESS_PERIOD: u8 = octet(types::FRESHNESS_PERIOD);

/// Where the name of a packet begins and ends, whose whole is `total` octets of which `octets` has `len`, all, and more behind.
/// `None` of what is no packet with a name in front.
#[inline(always)]
pub fn name(octets: &[u8], (len, total): (usize, usize)) -> Option<(usize, usize)> {
    let (at, end) = value(octets, 0)?;
    let (name_at, name_end) = value(octets, at)?;
    let is_name = octets.get(at) == Some(&octet(types::NAME));
    (is_name && len == total && end == total && name_end <= len).then_some((name_at, name_end))
}

/// Where the value of the element at `at` begins and ends, if its type has one octet and its length one or three. Four octets
/// from `at` on must be there.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Octets of a number of four.
pub fn value(octets: &[u8], at: usize) -> Option<(usize, usize)> {
    let header = u32::from_le_bytes(*octets.get(at..)?.first_chunk()?);
    let len = usize::from((header >> 8) as u8);
    if len < 253 {
        return Some((at + 2, at + 2 + len));
    }
    let long = usize::from(((header >> 16) as u16).swap_bytes());
    (len == 253 && long >= 253).then_some((at + 4, at + 4 + long))
}

/// What follows an Interest's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterestFields {
    /// It is for Data of longer names too.
    pub can_be_prefix: bool,
    /// It is not for Data that has become stale.
    pub must_be_fresh: bool,
    /// Its nonce.
    pub nonce: u32,
    /// Where the Nonce element is.
    pub nonce_at: usize,
    /// How long it waits, in milliseconds, if it says so.
    pub lifetime_ms: Option<u16>,
    /// Its hop limit, if it has one, and where that is.
    pub hop_limit: Option<(u8, usize)>,
}

/// Reads what follows the name of an Interest of `len` octets. Eight octets behind it must be there.
#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Some of the eight octets are wanted.
pub fn interest(octets: &[u8], len: usize, name_end: usize) -> Option<InterestFields> {
    let mut at = name_end;
    let mut next = word(octets, at)?;
    let can_be_prefix = next as u16 == CAN_BE_PREFIX;
    if can_be_prefix {
        (next, at) = (next >> 16, at + 2);
    }
    let must_be_fresh = next as u16 == MUST_BE_FRESH;
    if must_be_fresh {
        at += 2;
    }
    let nonce_at = at;
    let next = word(octets, at).filter(|next| *next as u16 == NONCE)?;
    let nonce = ((next >> 16) as u32).swap_bytes();
    at += 6;
    let mut next = word(octets, at).unwrap_or(0);
    let mut lifetime_ms = None;
    if next as u16 == LIFETIME_OF_TWO {
        lifetime_ms = Some(((next >> 16) as u16).swap_bytes());
        (next, at) = (next >> 32, at + 4);
    } else if next as u16 == LIFETIME_OF_ONE {
        lifetime_ms = Some(u16::from((next >> 16) as u8));
        (next, at) = (next >> 24, at + 3);
    }
    let mut hop_limit = None;
    if next as u16 == HOP_LIMIT {
        hop_limit = Some(((next >> 16) as u8, at + 2));
        at += 3;
    }
    let fields = InterestFields { can_be_prefix, must_be_fresh, nonce, nonce_at, lifetime_ms, hop_limit };
    (at == len).then_some(fields)
}

/// The FreshnessPeriod of Data of `len` octets, in milliseconds: zero where it says none. `None` where not all that follows its
/// name is as it usually is.
#[inline(always)]
pub fn data(octets: &[u8], len: usize, name_end: usize) -> Option<u64> {
    let mut at = name_end;
    let is = |at: usize, kind: u8| octets.get(at) == Some(&kind);
    let mut freshness_ms = 0;
    if is(at, META_INFO) {
        let (begin, end) = value(octets, at)?;
        freshness_ms = freshness(octets.get(begin..end)?)?;
        at = end;
    }
    if is(at, CONTENT) {
        at = value(octets, at)?.1;
    }
    for kind in SIGNATURE {
        if !is(at, kind) {
            return None;
        }
        at = value(octets, at)?.1;
    }
    (at == len).then_some(freshness_ms)
}

/// Eight octets as a number, the first in the lowest bits.
#[inline(always)]
fn word(octets: &[u8], at: usize) -> Option<u64> {
    octets.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// FreshnessPeriod of MetaInfo that holds ContentType and FreshnessPeriod, or one of them, in that order.
#[inline(always)]
fn freshness(meta: &[u8]) -> Option<u64> {
    let mut rest = meta;
    if let [CONTENT_TYPE, 1, _, after @ ..] = rest {
        rest = after;
    }
    let freshness_ms = match rest {
        [] => return Some(0),
        [FRESHNESS_PERIOD, 1, ms, after @ ..] => {
            rest = after;
            u64::from(*ms)
        }
        [FRESHNESS_PERIOD, 2, high, low, after @ ..] => {
            rest = after;
            u16::from_be_bytes([*high, *low]).into()
        }
        [FRESHNESS_PERIOD, 4, a, b, c, d, after @ ..] => {
            rest = after;
            u32::from_be_bytes([*a, *b, *c, *d]).into()
        }
        _ => return None,
    };
    rest.is_empty().then_some(freshness_ms)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ndn::{ContentType, Data, DataRepr, Interest, InterestRepr, Name};

    const NAME: [u8; 7] = [8, 1, b'a', 8, 2, b'b', b'c'];

    fn packet(
        of_data: bool,
        (first, second): (bool, bool),
        ms: Option<u32>,
        hop_limit: Option<u8>,
    ) -> Vec<u8> {
        let name = Name::new(&NAME).unwrap();
        let mut packet = Vec::new();
        if of_data {
            let repr = DataRepr {
                name,
                content: if first { b"content" } else { b"" },
                content_type: ContentType(u64::from(second)),
                freshness_ms: ms.unwrap_or(0).into(),
                ..DataRepr::default()
            };
            packet.resize(repr.len(), 0);
            repr.emit(&mut packet).unwrap();
        } else {
            let (can_be_prefix, must_be_fresh) = (first, second);
            let lifetime_ms = ms.map(u64::from);
            let repr = InterestRepr {
                name,
                nonce: Some(7),
                can_be_prefix,
                must_be_fresh,
                lifetime_ms,
                hop_limit,
                ..InterestRepr::default()
            };
            packet.resize(repr.len(), 0);
            repr.emit(&mut packet).unwrap();
        }
        packet
    }

    /// Reads a packet both ways: what one pass reads is what the parser reads.
    fn compare(packet: &[u8]) -> Result<bool, TestCaseError> {
        let padded = [packet, &[0xa5; 8]].concat();
        let len = packet.len();
        let Some((name_at, name_end)) = name(&padded, (len, len)) else { return Ok(false) };
        match packet[0] {
            5 => {
                let Some(fields) = interest(&padded, len, name_end) else { return Ok(false) };
                let Ok(parsed) = Interest::parse(packet, len) else {
                    // An empty name, which the caller refuses.
                    prop_assert!(name_at == name_end || Name::new(&packet[name_at..name_end]).is_err());
                    return Ok(true);
                };
                prop_assert_eq!(&packet[name_at..name_end], parsed.name.value());
                let selectors = (fields.can_be_prefix, fields.must_be_fresh);
                prop_assert_eq!(selectors, (parsed.can_be_prefix, parsed.must_be_fresh));
                prop_assert_eq!((Some(fields.nonce), fields.nonce_at), (parsed.nonce, parsed.nonce_at));
                prop_assert_eq!(fields.lifetime_ms.map(u64::from), parsed.lifetime_ms);
                prop_assert_eq!(fields.hop_limit.map(|(limit, _)| limit), parsed.hop_limit);
                prop_assert!(fields.hop_limit.is_none_or(|(limit, at)| packet[at] == limit));
            }
            6 => {
                let Some(freshness_ms) = data(&padded, len, name_end) else { return Ok(false) };
                // The inside of SignatureInfo is not looked at.
                if let Ok(parsed) = Data::parse(packet, len) {
                    prop_assert_eq!(&packet[name_at..name_end], parsed.name.value());
                    prop_assert_eq!(freshness_ms, parsed.meta.freshness_ms);
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    proptest! {
        #[test]
        fn packets_as_they_are_sent_are_read(
            of_data: bool,
            selectors: (bool, bool),
            // Of one octet, and of two.
            ms in prop::option::of(prop_oneof![1..256u32, 256..65_536u32]),
            hop_limit in prop::option::of(1..255u8),
        ) {
            prop_assert!(compare(&packet(of_data, selectors, ms, hop_limit))?);
        }

        /// One octet changed, or the packet cut: one pass reads what the parser reads, or nothing.
        #[test]
        fn changed_packets_are_read_alike_or_not_at_all(
            of_data: bool, at: prop::sample::Index, to: u8, cut: bool, selectors: (bool, bool),
        ) {
            let mut packet = packet(of_data, selectors, Some(500), Some(3));
            let at = at.index(packet.len());
            if cut {
                packet.truncate(at);
            } else {
                packet[at] = to;
            }
            if !packet.is_empty() {
                compare(&packet)?;
            }
        }

        #[test]
        fn any_octets_do_no_harm(octets in prop::collection::vec(any::<u8>(), 0..60), at in 0..80usize, len in 0..80usize) {
            let _ = (name(&octets, (len, len)), value(&octets, at), interest(&octets, len, at), data(&octets, len, at));
        }
    }

    #[test]
    fn a_value_is_where_its_length_says() {
        assert_eq!(value(&[9, 7, 5, 1, 2, 3, 4, 5], 1), Some((3, 8)));
        let long = [9, 7, 253, 1, 0, 0];
        assert_eq!(value(&long, 1), Some((5, 5 + 256)));
        assert_eq!(value(&[7, 253, 0, 252], 0), None, "it would fit into one octet");
        assert_eq!((value(&[7, 254, 0, 1], 0), value(&[7, 5, 1], 0)), (None, None));
    }
}
