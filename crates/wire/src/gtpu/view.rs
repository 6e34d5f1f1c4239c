//! A GTP-U header in place, and as plain values to emit (TS 29.281 clause 5.1).

use super::{
    Extensions, FLAG_EXTENSION, FLAG_NPDU, FLAG_SEQUENCE, FLAGS_OPTIONAL, HEADER_LEN, MessageType,
    OPTIONAL_LEN, PduSession, VERSION_PT, extension_type, field, header,
};
use crate::Error;
use crate::bytes::{length_field, put_u16, put_u32, room, u16_at, u32_at, view};

view! {
    /// A message in place; its header and extension chain lie within the slice.
    GtpuView
}

impl<T: AsRef<[u8]>> GtpuView<T> {
    /// Wraps a UDP payload; checks as [`header`] does.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        header(buffer.as_ref())?;
        Ok(Self { buffer })
    }

    /// What the message is.
    #[inline]
    pub fn message_type(&self) -> MessageType {
        MessageType(self.octets()[field::MESSAGE_TYPE])
    }

    /// Octets after the mandatory part of the header.
    #[inline]
    pub fn length(&self) -> u16 {
        u16_at(self.octets(), field::LENGTH)
    }

    /// Tunnel endpoint identifier.
    #[inline]
    pub fn teid(&self) -> u32 {
        u32_at(self.octets(), field::TEID)
    }

    /// The extension headers, in order.
    pub fn extensions(&self) -> Extensions<'_> {
        let octets = self.octets();
        if octets[field::FLAGS] & FLAG_EXTENSION == 0 {
            return Extensions::new(extension_type::NONE, &[]);
        }
        let end = HEADER_LEN + usize::from(self.length());
        let chain = octets.get(HEADER_LEN + OPTIONAL_LEN..end).unwrap_or_default();
        Extensions::new(octets[field::NEXT_EXTENSION], chain)
    }

    /// T-PDU or information elements, up to the Length field.
    pub fn payload(&self) -> &[u8] {
        let octets = self.octets();
        header(octets)
            .ok()
            .and_then(|header| {
                octets.get(usize::from(header.payload_offset)..)?.get(..header.payload_len.into())
            })
            .unwrap_or_default()
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> GtpuView<T> {
    /// Sets the tunnel endpoint identifier.
    #[inline]
    pub fn set_teid(&mut self, teid: u32) {
        put_u32(self.octets_mut(), field::TEID, teid);
    }

    /// Sets the octets after the mandatory part of the header.
    #[inline]
    pub fn set_length(&mut self, length: u16) {
        put_u16(self.octets_mut(), field::LENGTH, length);
    }
}

/// A GTP-U header as plain values: the forms this node sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GtpuRepr {
    /// What the message is.
    pub message_type: MessageType,
    /// Tunnel endpoint identifier at the peer.
    pub teid: u32,
    /// Sequence number; sets the S flag.
    pub sequence: Option<u16>,
    /// N-PDU number; sets the PN flag.
    pub npdu: Option<u8>,
    /// PDU session container; sets the E flag.
    pub pdu_session: Option<PduSession>,
    /// Octets of T-PDU or information elements.
    pub payload_len: u16,
}

impl GtpuRepr {
    /// A G-PDU of `payload_len` octets without optional fields.
    #[inline]
    pub const fn g_pdu(teid: u32, payload_len: u16) -> Self {
        let message_type = MessageType::G_PDU;
        Self { message_type, teid, sequence: None, npdu: None, pdu_session: None, payload_len }
    }

    /// Reads a header. Of the extensions the first PDU session container is kept; others, which this node does not
    /// send, are passed over.
    pub fn parse<T: AsRef<[u8]>>(view: &GtpuView<T>) -> Result<Self, Error> {
        let found = header(view.octets())?;
        let mut pdu_session = None;
        for extension in view.extensions() {
            let extension = extension?;
            if extension.kind == extension_type::PDU_SESSION_CONTAINER && pdu_session.is_none() {
                pdu_session = Some(PduSession::parse(extension.content)?);
            }
        }
        Ok(Self {
            message_type: found.message_type,
            teid: found.teid,
            sequence: found.sequence,
            npdu: found.npdu,
            pdu_session,
            payload_len: found.payload_len,
        })
    }

    const fn flags(&self) -> u8 {
        let extension = if self.pdu_session.is_some() { FLAG_EXTENSION } else { 0 };
        let sequence = if self.sequence.is_some() { FLAG_SEQUENCE } else { 0 };
        let npdu = if self.npdu.is_some() { FLAG_NPDU } else { 0 };
        VERSION_PT | extension | sequence | npdu
    }

    /// Octets [`Self::emit`] writes: the header with its extensions.
    #[inline]
    pub const fn len(&self) -> usize {
        let optional = if self.flags() & FLAGS_OPTIONAL == 0 { 0 } else { OPTIONAL_LEN };
        let extension = if let Some(container) = &self.pdu_session { container.len() } else { 0 };
        HEADER_LEN + optional + extension
    }

    /// Writes the header to the front of `buffer`; returns the octets written.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let len = self.len();
        let octets = room(buffer, len)?;
        let flags = self.flags();
        octets[field::FLAGS] = flags;
        octets[field::MESSAGE_TYPE] = self.message_type.0;
        put_u16(octets, field::LENGTH, length_field(len - HEADER_LEN + usize::from(self.payload_len))?);
        put_u32(octets, field::TEID, self.teid);
        if flags & FLAGS_OPTIONAL != 0 {
            put_u16(octets, field::SEQUENCE, self.sequence.unwrap_or(0));
            octets[field::NPDU] = self.npdu.unwrap_or(0);
            octets[field::NEXT_EXTENSION] = extension_type::NONE;
        }
        if let Some(container) = self.pdu_session {
            octets[field::NEXT_EXTENSION] = extension_type::PDU_SESSION_CONTAINER;
            container.emit(extension_type::NONE, &mut octets[HEADER_LEN + OPTIONAL_LEN..])?;
        }
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    #[test]
    fn emits_the_forms_a_upf_sends() {
        let plain = GtpuRepr::g_pdu(2000, 84);
        let marked =
            GtpuRepr { pdu_session: Some(PduSession::Downlink { qfi: 9, rqi: false, ppi: None }), ..plain };
        let numbered = GtpuRepr { sequence: Some(0x1234), npdu: Some(7), ..plain };
        let cases = [
            (plain, "30ff0054000007d0"),
            (marked, "34ff005c000007d0 00000085 01000900"),
            (numbered, "33ff0058000007d0 12340700"),
        ];
        for (repr, bytes) in cases {
            let mut out = vec![0xff; repr.len() + 84];
            assert_eq!(repr.emit(&mut out), Ok(repr.len()));
            assert_eq!(out[..repr.len()], hex(bytes)[..]);
            let view = GtpuView::new_checked(&out).unwrap();
            assert_eq!(GtpuRepr::parse(&view), Ok(repr));
            assert_eq!(view.payload(), [0xff; 84]);
        }
        assert_eq!(GtpuRepr { payload_len: 65535, ..marked }.emit(&mut [0; 16]), Err(Error::Range));
        assert_eq!(marked.emit(&mut [0; 15]), Err(Error::BufferTooSmall));
    }

    #[test]
    fn setters_change_one_field() {
        let mut view = GtpuView::new_checked(hex("30ff0001000003e8 4500")).unwrap();
        view.set_teid(0xdead_beef);
        view.set_length(2);
        assert_eq!((view.teid(), view.length(), view.payload()), (0xdead_beef, 2, &[0x45, 0][..]));
        view.set_length(9);
        assert_eq!(view.payload(), [], "no panic past the slice");
        assert_eq!(view.extensions().next(), None);
    }
}
