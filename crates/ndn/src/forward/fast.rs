//! The fast-path packet, read in one pass with its name ([`kaido_wire::ndn::fast`]): all in one segment, no digests in its name.
//! Everything else takes the slow path; what both read they read alike.

use kaido_ndn_tables::{NameHash, Prefixes, Selectors};
use kaido_wire::ndn::fast::{self, InterestFields};
use kaido_wire::ndn::{LIFETIME_DEFAULT_MS, types};

use super::parse::{LIFETIME_MAX_MS, PacketContent, ParsedPacket};

/// Milliseconds that an Interest waits that does not say how long.
#[allow(clippy::cast_possible_truncation)] // As said below.
const LIFETIME_MS: u32 = LIFETIME_DEFAULT_MS as u32;
const _: () = assert!(LIFETIME_DEFAULT_MS < LIFETIME_MAX_MS as u64 && LIFETIME_MAX_MS > u16::MAX as u32);

/// Types of packets, as they stand in them.
const INTEREST: u8 = 5;
const DATA: u8 = 6;
const _: () = assert!(types::INTEREST == INTEREST as u32 && types::DATA == DATA as u32);

/// Reads a packet; `false` when it is not eligible for the fast path. `octets` begin with its first segment and have
/// [`STEP`](kaido_ndn_tables::STEP) more; the lengths are of the segment and of the packet. The name of Data that `has_entry` is
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
    let Some((name_at, name_end)) = fast::name(octets, (len, total)) else { return false };
    let is_hashed = kind == INTEREST || !has_entry;
    if is_hashed && !prefixes.fill_plain(hash, &octets[name_at..], name_end - name_at) {
        return false;
    }
    let name = (name_at, name_end);
    match kind {
        INTEREST if name_at < name_end => interest(octets, len, name, parsed),
        DATA => data(octets, len, name, is_hashed, parsed),
        _ => false,
    }
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Offsets lie within a frame.
fn interest(
    octets: &[u8],
    len: usize,
    (name_at, name_end): (usize, usize),
    parsed: &mut ParsedPacket,
) -> bool {
    let Some(fields) = fast::interest(octets, len, name_end) else { return false };
    let InterestFields { can_be_prefix, must_be_fresh, nonce, nonce_at, lifetime_ms, hop_limit } = fields;
    *parsed = ParsedPacket {
        what: PacketContent::Interest,
        is_hashed: true,
        name_at: name_at as u16,
        name_end: name_end as u16,
        selectors: Selectors { can_be_prefix, must_be_fresh },
        nonce: Some(nonce),
        nonce_at: nonce_at as u16,
        hop_limit: hop_limit.map(|(limit, _)| limit),
        hop_limit_at: hop_limit.map_or(0, |(_, at)| at) as u16,
        has_hint: false,
        lifetime_ms: lifetime_ms.map_or(LIFETIME_MS, u32::from),
        freshness_ms: 0,
    };
    true
}

#[inline(always)]
#[allow(clippy::cast_possible_truncation)] // Offsets lie within a frame.
fn data(
    octets: &[u8],
    len: usize,
    (name_at, name_end): (usize, usize),
    is_hashed: bool,
    parsed: &mut ParsedPacket,
) -> bool {
    let Some(freshness_ms) = fast::data(octets, len, name_end) else { return false };
    *parsed = ParsedPacket {
        what: PacketContent::Data,
        is_hashed,
        name_at: name_at as u16,
        name_end: name_end as u16,
        freshness_ms,
        ..ParsedPacket::NOTHING
    };
    true
}

#[cfg(test)]
mod tests {
    use kaido_ndn_tables::STEP;
    use kaido_ndn_tables::text::name;
    use kaido_wire::ndn::{ContentType, DataRepr, InterestRepr, Name};
    use proptest::prelude::*;

    use super::super::parse::{self, PacketContent};
    use super::*;

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
