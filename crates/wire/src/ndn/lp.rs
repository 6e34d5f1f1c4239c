//! NDNLPv2: what goes over a link, read.
//!
//! ```text
//!  LpPacket: header fields · Fragment          Interest or Data alone: as if they were the Fragment
//! ```

use super::tlv::{self, Elements};
use super::{LpHeader, Result, types};
use crate::Error;
use crate::bytes::array_at;

/// Octets of the longest PIT token.
pub const PIT_TOKEN_MAX: usize = 32;

/// The NDNLPv2 types that a receiver may skip without knowing them: 800 to 959, of which the last two bits are 0.
#[inline]
const fn may_be_ignored(kind: u32) -> bool {
    matches!(kind, 800..=959) && kind & 3 == 0
}

/// A packet of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LpPacket<'p> {
    /// What its header says.
    pub header: LpHeader<'p>,
    /// Where the fragment begins, in octets from the front of the packet; 0 for a bare Interest or Data.
    pub fragment_at: usize,
    /// Octets of the fragment; 0 where there is none, as in a packet of acknowledgements alone.
    pub fragment_len: usize,
}

impl<'p> LpPacket<'p> {
    /// Reads a packet of the link, whose length is `total` octets and whose first segment is `first`. All before the
    /// value of Fragment must be in it.
    #[inline]
    pub fn parse(first: &'p [u8], total: usize) -> Result<Self> {
        let outer = tlv::header(first)?;
        if outer.element_len() != total {
            return Err(Error::Length);
        }
        match outer.kind {
            types::INTEREST | types::DATA => {
                Ok(Self { header: LpHeader::default(), fragment_at: 0, fragment_len: total })
            }
            types::LP_PACKET => Self::parse_fields(first, outer.header_len, total),
            _ => Err(Error::MessageType),
        }
    }

    /// The packets of the link that are acknowledged; `first` is what this one was read from.
    pub fn acks<'a>(&self, first: &'a [u8]) -> impl Iterator<Item = u64> + use<'a> {
        let fields = tlv::header(first).ok().and_then(|outer| first.get(outer.header_len..));
        let fields = Elements::new(fields.unwrap_or_default()).map_while(Result::ok);
        let acks = fields.filter(|field| field.kind == types::LP_ACK);
        // As many as there were: what stands behind them may be cut off here.
        acks.take(self.header.acks.into()).map_while(|field| fixed(field.value).ok())
    }

    fn parse_fields(first: &'p [u8], mut at: usize, total: usize) -> Result<Self> {
        let mut packet = Self { header: LpHeader::default(), fragment_at: at, fragment_len: 0 };
        let mut seen = SeenFields::default();
        while at < total {
            let header = tlv::header(first.get(at..).unwrap_or_default())?;
            let end = at + header.element_len();
            if end > total {
                return Err(Error::Length);
            }
            if header.kind == types::LP_FRAGMENT {
                // Nothing may follow it, and no link carries nothing.
                if end != total || header.len == 0 {
                    return Err(Error::HeaderOrder);
                }
                (packet.fragment_at, packet.fragment_len) = (at + header.header_len, header.len);
                break;
            }
            let value = first.get(at + header.header_len..end).ok_or(Error::Truncated)?;
            packet.header.take(header.kind, value, &mut seen)?;
            at = end;
        }
        if packet.fragment_len == 0 {
            packet.fragment_at = total;
        }
        let header = &packet.header;
        if header.frag_count == 0 || header.frag_index >= header.frag_count {
            return Err(Error::Range);
        }
        Ok(packet)
    }
}

/// Which fields a header has had.
#[derive(Debug, Clone, Copy, Default)]
struct SeenFields(u16);

impl SeenFields {
    /// Refuses a field that was there before.
    fn once(&mut self, bit: u8) -> Result<()> {
        let bit = 1 << bit;
        if self.0 & bit != 0 {
            return Err(Error::HeaderOrder);
        }
        self.0 |= bit;
        Ok(())
    }
}

impl<'p> LpHeader<'p> {
    /// Takes one field.
    fn take(&mut self, kind: u32, value: &'p [u8], seen: &mut SeenFields) -> Result<()> {
        match kind {
            types::LP_SEQUENCE => {
                seen.once(0)?;
                self.sequence = Some(fixed(value)?);
            }
            types::LP_FRAG_INDEX => {
                seen.once(1)?;
                self.frag_index = tlv::integer(value)?;
            }
            types::LP_FRAG_COUNT => {
                seen.once(2)?;
                self.frag_count = tlv::integer(value)?;
            }
            types::LP_PIT_TOKEN => {
                seen.once(3)?;
                if value.is_empty() || value.len() > PIT_TOKEN_MAX {
                    return Err(Error::Element);
                }
                self.pit_token = value;
            }
            types::LP_NACK => {
                seen.once(4)?;
                self.nack = Some(nack_reason(value)?);
            }
            types::LP_CONGESTION_MARK => {
                seen.once(5)?;
                self.congestion_mark = tlv::integer(value)?;
            }
            types::LP_ACK => {
                fixed(value)?;
                self.acks = self.acks.saturating_add(1);
            }
            types::LP_TX_SEQUENCE => {
                seen.once(6)?;
                self.tx_sequence = Some(fixed(value)?);
            }
            _ => return self.take_rare(kind, value, seen),
        }
        Ok(())
    }

    /// Takes a field that is between a node and its applications, or for what this node does not do.
    #[cold]
    fn take_rare(&mut self, kind: u32, value: &'p [u8], seen: &mut SeenFields) -> Result<()> {
        match kind {
            types::LP_NEXT_HOP_FACE_ID => {
                seen.once(8)?;
                self.next_hop_face = Some(tlv::integer(value)?);
            }
            types::LP_INCOMING_FACE_ID => {
                seen.once(9)?;
                self.incoming_face = Some(tlv::integer(value)?);
            }
            types::LP_CACHE_POLICY => {
                seen.once(10)?;
                self.no_cache = cache_policy(value)? == NO_CACHE;
            }
            types::LP_NON_DISCOVERY => {
                seen.once(11)?;
                self.non_discovery = true;
            }
            types::LP_PREFIX_ANNOUNCEMENT => {
                seen.once(12)?;
                self.prefix_announcement = value;
            }
            kind if may_be_ignored(kind) => {}
            _ => return Err(Error::Unrecognised),
        }
        Ok(())
    }
}

/// CachePolicyType: not to be kept.
pub(super) const NO_CACHE: u64 = 1;

/// A number of exactly eight octets.
fn fixed(value: &[u8]) -> Result<u64> {
    if value.len() == 8 { Ok(u64::from_be_bytes(array_at(value, 0))) } else { Err(Error::Element) }
}

fn nack_reason(value: &[u8]) -> Result<u64> {
    inner(value, types::LP_NACK_REASON).map(|reason| reason.unwrap_or(0))
}

fn cache_policy(value: &[u8]) -> Result<u64> {
    inner(value, types::LP_CACHE_POLICY_TYPE)?.ok_or(Error::Element)
}

/// The number of a type that stands in a field.
fn inner(value: &[u8], wanted: u32) -> Result<Option<u64>> {
    let mut number = None;
    for element in Elements::new(value) {
        let element = element?;
        if element.kind == wanted && number.is_none() {
            number = Some(element.integer()?);
        } else if tlv::is_critical(element.kind) {
            return Err(Error::Unrecognised);
        }
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    fn parse(text: &str) -> Result<(LpHeader<'static>, usize, usize)> {
        let octets = hex(text).leak();
        LpPacket::parse(octets, octets.len()).map(|lp| (lp.header, lp.fragment_at, lp.fragment_len))
    }

    /// Conformance: NDNLPv2 packet | A bare Interest or Data is its own fragment
    #[test]
    fn bare_packets_have_no_header() {
        assert_eq!(parse("0503 070108"), Ok((LpHeader::default(), 0, 5)));
        assert_eq!(parse("0703 080161"), Err(Error::MessageType));
        assert_eq!(parse("0503 0701"), Err(Error::Length));
        assert_eq!(parse("0503 070108 00"), Err(Error::Length));
    }

    /// Conformance: NDNLPv2 fragmentation | Sequence, FragIndex and FragCount are read and must agree
    #[test]
    fn fragments() {
        let (header, at, len) = parse("6414 51080000000000000007 520101 530103 50020500").unwrap();
        assert_eq!((header.sequence, header.frag_index, header.frag_count), (Some(7), 1, 3));
        assert_eq!((at, len), (20, 2));
        assert_eq!(parse("6407 520103 50020500"), Err(Error::Range), "an index and no count");
        assert_eq!(parse("640a 520103 530103 50020500"), Err(Error::Range));
        assert_eq!(parse("6407 530100 50020500"), Err(Error::Range));
        assert_eq!(parse("6408 51020007 50020500"), Err(Error::Element), "a short sequence");
    }

    /// Conformance: NDNLPv2 network fields | Nack, PIT token, face ids, cache policy, congestion mark, non-discovery
    #[test]
    fn network_fields() {
        let (header, _, len) = parse(
            "6430 620401020304 fd0320 05 fd0321 0164 fd0330 0109 fd032c 020100 fd0334 05 fd0335 0101 fd0340 0101
             fd034c 00 50020500",
        )
        .unwrap();
        assert_eq!((header.pit_token, header.nack, len), (&[1, 2, 3, 4][..], Some(100), 2));
        assert_eq!((header.next_hop_face, header.incoming_face), (Some(9), Some(256)));
        assert!(header.no_cache && header.non_discovery);
        assert_eq!(header.congestion_mark, 1);
        let (header, ..) = parse("6408 fd0320 00 50020500").unwrap();
        assert_eq!(header.nack, Some(0), "a reason that is not said");
        assert_eq!(parse("6406 6200 50020500"), Err(Error::Element), "an empty token");
        let long = format!("6427 6221{} 50020500", "aa".repeat(33));
        assert_eq!(parse(&long), Err(Error::Element));
    }

    /// Conformance: NDNLPv2 reliability | A packet of acknowledgements alone has no fragment
    #[test]
    fn acknowledgements() {
        let (header, at, len) = parse("6418 fd0344 080000000000000007 fd0344 080000000000000008").unwrap();
        assert_eq!((header.acks, at, len), (2, 26, 0));
        let (header, ..) = parse("6410 fd0348 080000000000000009 50020500").unwrap();
        assert_eq!(header.tx_sequence, Some(9));
        assert_eq!(parse("6400").map(|(_, _, len)| len), Ok(0), "idle");
    }

    /// Conformance: NDNLPv2 reliability | All acknowledgements of a packet are read, wherever they stand among its fields
    #[test]
    fn acknowledgements_among_others() {
        let whole = hex("6423 fd0344 080000000000000007 fd0340 0101 fd0344 08ffffffffffffffff 5004 05020700");
        // The fragment may go on in another segment.
        for kept in [0, 2, 4] {
            let first = &whole[..whole.len() - kept];
            let packet = LpPacket::parse(first, whole.len()).unwrap();
            assert_eq!(packet.acks(first).collect::<Vec<_>>(), [7, u64::MAX]);
        }
        let bare = hex("0503 070108");
        assert_eq!(LpPacket::parse(&bare, 5).unwrap().acks(&bare).count(), 0);
        assert_eq!(parse("6408 fd0344 0400000007"), Err(Error::Element), "a short one");
    }

    /// Conformance: NDNLPv2 fields | Unknown fields are ignored when of 800 to 959 with the low bits 0, else refused
    #[test]
    fn unknown_fields() {
        assert!(parse("6408 fd0324 00 50020500").is_ok());
        for (kind, why) in [
            ("fd0325", "low bits"),
            ("fd0322", "low bits"),
            ("fd03c0", "960"),
            ("fd031c", "796"),
            ("fd0100", "256"),
        ] {
            assert_eq!(parse(&format!("6408 {kind} 00 50020500")), Err(Error::Unrecognised), "{why}");
        }
        assert_eq!(parse("6406 54 00 50020500"), Err(Error::Unrecognised));
    }

    #[test]
    fn refuses_disorder() {
        assert_eq!(parse("6407 50020500 620101"), Err(Error::HeaderOrder), "a field behind the fragment");
        assert_eq!(parse("640a 620101 620101 50020500"), Err(Error::HeaderOrder), "a token twice");
        assert_eq!(parse("6402 5000"), Err(Error::HeaderOrder), "an empty fragment");
        assert_eq!(parse("6404 50030500"), Err(Error::Length), "a fragment past the packet");
    }
}
