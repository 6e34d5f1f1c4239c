//! The header of a packet of the link as plain values, and written.

use super::tlv::{self, Writer};
use super::{Result, lp, types};

/// The fields of an NDNLPv2 header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LpHeader<'p> {
    /// Numbers the packets of the link.
    pub sequence: Option<u64>,
    /// Which part of its packet the fragment is.
    pub frag_index: u64,
    /// Parts of the packet; 1 unless it was cut.
    pub frag_count: u64,
    /// 1 to 32 octets, or none.
    pub pit_token: &'p [u8],
    /// That the fragment is a Nack, and the number of the reason.
    pub nack: Option<u64>,
    /// Where an application wants its Interest sent.
    pub next_hop_face: Option<u64>,
    /// Where the packet came in.
    pub incoming_face: Option<u64>,
    /// Data is not to be kept.
    pub no_cache: bool,
    /// 0 where there was no congestion.
    pub congestion_mark: u64,
    /// Packets of the link that are acknowledged: which, [`LpPacket::acks`](super::LpPacket::acks) tells.
    pub acks: u16,
    /// By which number this one is to be acknowledged.
    pub tx_sequence: Option<u64>,
    /// Not to be flooded in search of a way.
    pub non_discovery: bool,
    /// The Data that announces a prefix, or nothing.
    pub prefix_announcement: &'p [u8],
}

impl Default for LpHeader<'_> {
    fn default() -> Self {
        Self {
            sequence: None,
            frag_index: 0,
            frag_count: 1,
            pit_token: &[],
            nack: None,
            next_hop_face: None,
            incoming_face: None,
            no_cache: false,
            congestion_mark: 0,
            acks: 0,
            tx_sequence: None,
            non_discovery: false,
            prefix_announcement: &[],
        }
    }
}

impl LpHeader<'_> {
    /// Whether it says nothing, so that the packet can go without it.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fields_len() == 0
    }

    /// Octets of the fields, without the acknowledgements.
    pub fn fields_len(&self) -> usize {
        let long = |kind, value: Option<u64>| {
            value.map_or(0, |value| tlv::element_len(kind, tlv::integer_len(value)))
        };
        let fixed = |kind, value: Option<u64>| value.map_or(0, |_| tlv::element_len(kind, 8));
        let octets =
            |kind, octets: &[u8]| if octets.is_empty() { 0 } else { tlv::element_len(kind, octets.len()) };
        fixed(types::LP_SEQUENCE, self.sequence)
            + long(types::LP_FRAG_INDEX, self.is_cut().then_some(self.frag_index))
            + long(types::LP_FRAG_COUNT, self.is_cut().then_some(self.frag_count))
            + octets(types::LP_PIT_TOKEN, self.pit_token)
            + self.nack.map_or(0, |reason| tlv::element_len(types::LP_NACK, nack_len(reason)))
            + long(types::LP_NEXT_HOP_FACE_ID, self.next_hop_face)
            + long(types::LP_INCOMING_FACE_ID, self.incoming_face)
            + if self.no_cache { tlv::element_len(types::LP_CACHE_POLICY, CACHE_POLICY_LEN) } else { 0 }
            + long(types::LP_CONGESTION_MARK, (self.congestion_mark != 0).then_some(self.congestion_mark))
            + fixed(types::LP_TX_SEQUENCE, self.tx_sequence)
            + if self.non_discovery { tlv::element_len(types::LP_NON_DISCOVERY, 0) } else { 0 }
            + octets(types::LP_PREFIX_ANNOUNCEMENT, self.prefix_announcement)
    }

    const fn is_cut(&self) -> bool {
        self.frag_count != 1
    }

    /// Octets in front of a fragment of `fragment` octets.
    pub fn len(&self, fragment: usize) -> usize {
        tlv::element_len(types::LP_PACKET, self.inner_len(fragment) + fragment) - fragment
    }

    /// Octets in front of a fragment, without the type and length of the packet.
    pub fn inner_len(&self, fragment: usize) -> usize {
        self.fields_len() + tlv::element_len(types::LP_FRAGMENT, fragment) - fragment
    }

    /// Writes what stands in front of a fragment of `fragment` octets to the front of `buffer`: [`Self::len`] octets.
    /// Acknowledgements are not written.
    pub fn emit(&self, fragment: usize, buffer: &mut [u8]) -> Result<usize> {
        let mut writer = Writer::new(buffer);
        writer.header(types::LP_PACKET, self.inner_len(fragment) + fragment)?;
        self.emit_fields(fragment, &mut writer)?;
        Ok(writer.len())
    }

    /// As [`Self::emit`], without the type and length of the packet: [`Self::inner_len`] octets.
    pub fn emit_inner(&self, fragment: usize, buffer: &mut [u8]) -> Result<usize> {
        let mut writer = Writer::new(buffer);
        self.emit_fields(fragment, &mut writer)?;
        Ok(writer.len())
    }

    fn emit_fields(&self, fragment: usize, writer: &mut Writer<'_>) -> Result<()> {
        if let Some(sequence) = self.sequence {
            writer.element(types::LP_SEQUENCE, &sequence.to_be_bytes())?;
        }
        if self.is_cut() {
            writer.integer(types::LP_FRAG_INDEX, self.frag_index)?;
            writer.integer(types::LP_FRAG_COUNT, self.frag_count)?;
        }
        self.emit_network_fields(writer)?;
        writer.header(types::LP_FRAGMENT, fragment)
    }

    fn emit_network_fields(&self, writer: &mut Writer<'_>) -> Result<()> {
        if !self.pit_token.is_empty() {
            writer.element(types::LP_PIT_TOKEN, self.pit_token)?;
        }
        if let Some(reason) = self.nack {
            writer.header(types::LP_NACK, nack_len(reason))?;
            if reason != 0 {
                writer.integer(types::LP_NACK_REASON, reason)?;
            }
        }
        if let Some(face) = self.incoming_face {
            writer.integer(types::LP_INCOMING_FACE_ID, face)?;
        }
        if let Some(face) = self.next_hop_face {
            writer.integer(types::LP_NEXT_HOP_FACE_ID, face)?;
        }
        if self.no_cache {
            writer.header(types::LP_CACHE_POLICY, CACHE_POLICY_LEN)?;
            writer.integer(types::LP_CACHE_POLICY_TYPE, lp::NO_CACHE)?;
        }
        if self.congestion_mark != 0 {
            writer.integer(types::LP_CONGESTION_MARK, self.congestion_mark)?;
        }
        if let Some(sequence) = self.tx_sequence {
            writer.element(types::LP_TX_SEQUENCE, &sequence.to_be_bytes())?;
        }
        if self.non_discovery {
            writer.header(types::LP_NON_DISCOVERY, 0)?;
        }
        if !self.prefix_announcement.is_empty() {
            writer.element(types::LP_PREFIX_ANNOUNCEMENT, self.prefix_announcement)?;
        }
        Ok(())
    }
}

/// Octets of a CachePolicyType.
const CACHE_POLICY_LEN: usize = tlv::element_len(types::LP_CACHE_POLICY_TYPE, 1);

/// Octets of a Nack's value: a reason of 0 is not written.
const fn nack_len(reason: u64) -> usize {
    if reason == 0 { 0 } else { tlv::element_len(types::LP_NACK_REASON, tlv::integer_len(reason)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::ndn::LpPacket;

    fn full() -> LpHeader<'static> {
        LpHeader {
            sequence: Some(1),
            frag_index: 2,
            frag_count: 300,
            pit_token: &[7; 32],
            nack: Some(150),
            next_hop_face: Some(256),
            incoming_face: Some(1 << 20),
            no_cache: true,
            congestion_mark: 1,
            tx_sequence: Some(3),
            non_discovery: true,
            prefix_announcement: &[6, 0],
            ..LpHeader::default()
        }
    }

    #[test]
    fn written_is_what_is_read() {
        let token_only = LpHeader { pit_token: &[1], ..LpHeader::default() };
        let silent_nack = LpHeader { nack: Some(0), ..LpHeader::default() };
        for (header, fragment) in [
            (LpHeader::default(), 5),
            (full(), 250),
            (full(), 8800),
            (token_only, 252),
            (token_only, 253),
            (silent_nack, 20),
        ] {
            let mut buffer = vec![0; header.len(fragment) + fragment];
            let len = header.emit(fragment, &mut buffer).unwrap();
            assert_eq!(len, header.len(fragment));
            let read = LpPacket::parse(&buffer, buffer.len()).unwrap();
            assert_eq!((read.header, read.fragment_at, read.fragment_len), (header, len, fragment));
            assert_eq!(header.emit(fragment, &mut buffer[..len - 1]), Err(Error::BufferTooSmall));
        }
        assert!(LpHeader::default().is_empty() && !full().is_empty());
    }
}
