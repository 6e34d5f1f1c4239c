//! What makes a link reliable (NDNLPv2): by which number a packet is to be acknowledged, and which are.
//!
//! ```text
//!  LpPacket: TxSequence · Ack ... · what is in front of the fragment (LpHeader) · Fragment
//! ```

use super::tlv::{self, Writer};
use super::{Result, types};

/// The fields of reliability, written in front of all others.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LpReliability<'a> {
    /// By which number the packet is to be acknowledged.
    pub tx_sequence: Option<u64>,
    /// The packets that are acknowledged.
    pub acks: &'a [u64],
}

impl LpReliability<'_> {
    /// Octets of an Ack.
    pub const ACK_LEN: usize = tlv::element_len(types::LP_ACK, 8);
    /// Octets of a TxSequence.
    pub const TX_SEQUENCE_LEN: usize = tlv::element_len(types::LP_TX_SEQUENCE, 8);

    /// Octets of the fields.
    const fn fields_len(&self) -> usize {
        let number = if self.tx_sequence.is_some() { Self::TX_SEQUENCE_LEN } else { 0 };
        number + self.acks.len() * Self::ACK_LEN
    }

    /// Octets in front of the rest of a packet, which has `rest` of them: the packet's type and length are among them. Where
    /// there is no rest the packet carries acknowledgements alone.
    pub const fn len(&self, rest: usize) -> usize {
        tlv::element_len(types::LP_PACKET, self.fields_len() + rest) - rest
    }

    /// Writes what stands in front of the rest of a packet to the front of `buffer`: [`Self::len`] octets.
    ///
    /// # Errors
    /// When it does not fit.
    pub fn emit(&self, rest: usize, buffer: &mut [u8]) -> Result<usize> {
        let mut writer = Writer::new(buffer);
        writer.header(types::LP_PACKET, self.fields_len() + rest)?;
        if let Some(number) = self.tx_sequence {
            writer.element(types::LP_TX_SEQUENCE, &number.to_be_bytes())?;
        }
        for ack in self.acks {
            writer.element(types::LP_ACK, &ack.to_be_bytes())?;
        }
        Ok(writer.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;
    use crate::ndn::{LpHeader, LpPacket};

    /// A fragment behind its header, in a packet of these fields.
    fn packet(fields: &LpReliability<'_>, header: &LpHeader<'_>, fragment: &[u8]) -> Vec<u8> {
        let mut inner = vec![0; header.inner_len(fragment.len())];
        assert_eq!(header.emit_inner(fragment.len(), &mut inner), Ok(inner.len()));
        inner.extend(fragment);
        let mut head = vec![0; fields.len(inner.len())];
        assert_eq!(fields.emit(inner.len(), &mut head), Ok(head.len()));
        [head, inner].concat()
    }

    /// Conformance: NDNLPv2 reliability | TxSequence and Ack are written as they are read
    #[test]
    fn written_is_what_is_read() {
        let header =
            LpHeader { sequence: Some(9), pit_token: &[1, 2], congestion_mark: 1, ..LpHeader::default() };
        for (tx_sequence, acks) in [(Some(1 << 40), &[][..]), (None, &[3, 5]), (Some(0), &[u64::MAX; 30])] {
            let fields = LpReliability { tx_sequence, acks };
            for len in [1, 100, 240, 8800] {
                let fragment = vec![5; len];
                let octets = packet(&fields, &header, &fragment);
                let read = LpPacket::parse(&octets, octets.len()).unwrap();
                let said = LpHeader { tx_sequence, acks: u16::try_from(acks.len()).unwrap(), ..header };
                assert_eq!((read.header, &octets[read.fragment_at..]), (said, &fragment[..]));
                assert_eq!(read.acks(&octets).collect::<Vec<_>>(), acks);
            }
        }
    }

    #[test]
    fn acknowledgements_go_alone() {
        let fields = LpReliability { tx_sequence: None, acks: &[7, 8] };
        let mut octets = [0; 26];
        assert_eq!((fields.len(0), fields.emit(0, &mut octets)), (26, Ok(26)));
        let read = LpPacket::parse(&octets, 26).unwrap();
        assert_eq!((read.fragment_len, read.acks(&octets).collect::<Vec<_>>()), (0, vec![7, 8]));
        assert_eq!(fields.emit(0, &mut octets[..25]), Err(Error::BufferTooSmall));
    }
}
