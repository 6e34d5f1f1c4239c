//! The PDU session user plane protocol (TS 38.415 clause 5.5.2), as carried by the PDU session container.
//!
//! ```text
//!  DL  0 type 0 (4) QMP SNP MSNP spare          1 PPP RQI QFI (6)               2 PPI (3) spare (5)   when PPP
//!  UL  0 type 1 (4) QMP DL-delay UL-delay SNP   1 N3/N9-delay new-IE QFI (6)
//!      … time stamps, delays and sequence numbers as the flags say
//! ```

use crate::Error;
use crate::bytes::{put, room};

/// PDU type of downlink PDU session information.
pub const PDU_TYPE_DL: u8 = 0;
/// PDU type of uplink PDU session information.
pub const PDU_TYPE_UL: u8 = 1;

const PPP: u8 = 0x80;
const RQI: u8 = 0x40;

/// PDU session information; monitoring time stamps and sequence numbers are checked for room and passed over, to be
/// read by [`super::DownlinkInformation`] and [`super::UplinkInformation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PduSession {
    /// PDU type 0 (TS 38.415 clause 5.5.2.1).
    Downlink {
        /// QoS flow identifier, 0 to 63.
        qfi: u8,
        /// Reflective QoS indicator.
        rqi: bool,
        /// Paging policy indicator, 0 to 7, when PPP says it is present.
        ppi: Option<u8>,
    },
    /// PDU type 1 (TS 38.415 clause 5.5.2.2).
    Uplink {
        /// QoS flow identifier, 0 to 63.
        qfi: u8,
    },
}

impl PduSession {
    /// QoS flow identifier, 0 to 63.
    #[inline]
    pub const fn qfi(&self) -> u8 {
        match *self {
            Self::Downlink { qfi, .. } | Self::Uplink { qfi } => qfi,
        }
    }

    /// Reads the content of an extension header, without its length and next extension type.
    ///
    /// # Errors
    /// [`Error::MessageType`] for a reserved PDU type, [`Error::ExtensionLength`] when a flag announces a field the
    /// content has no room for.
    pub fn parse(content: &[u8]) -> Result<Self, Error> {
        let [first, second, optional @ ..] = content else { return Err(Error::ExtensionLength) };
        let qfi = second & 0x3f;
        let bit = |octet: u8, mask: u8, len: usize| if octet & mask == 0 { 0 } else { len };
        match first >> 4 {
            PDU_TYPE_DL => {
                let room = bit(*second, PPP, 1) + bit(*first, 8, 8) + bit(*first, 4, 3) + bit(*first, 2, 4);
                if optional.len() < room {
                    return Err(Error::ExtensionLength);
                }
                let ppi = (second & PPP != 0).then(|| optional.first().map_or(0, |octet| octet >> 5));
                Ok(Self::Downlink { qfi, rqi: second & RQI != 0, ppi })
            }
            PDU_TYPE_UL => {
                let stamps = bit(*first, 8, 24) + bit(*first, 4, 4) + bit(*first, 2, 4) + bit(*first, 1, 3);
                if optional.len() < stamps + bit(*second, 0x80, 4) + bit(*second, 0x40, 1) {
                    return Err(Error::ExtensionLength);
                }
                Ok(Self::Uplink { qfi })
            }
            _ => Err(Error::MessageType),
        }
    }

    /// Octets of the extension header [`Self::emit`] writes: 4, or 8 with a paging policy indicator.
    #[inline]
    pub const fn len(&self) -> usize {
        if matches!(self, Self::Downlink { ppi: Some(_), .. }) { 8 } else { 4 }
    }

    /// Writes the whole extension header: length, content, and `next`, the next extension type.
    #[inline]
    pub fn emit(&self, next: u8, buffer: &mut [u8]) -> Result<usize, Error> {
        let octets = room(buffer, self.len())?;
        if self.qfi() > 0x3f {
            return Err(Error::Range);
        }
        match *self {
            Self::Uplink { qfi } => put(octets, 0, &[1, PDU_TYPE_UL << 4, qfi, next]),
            Self::Downlink { qfi, rqi, ppi: None } => {
                put(octets, 0, &[1, PDU_TYPE_DL << 4, (u8::from(rqi) * RQI) | qfi, next]);
            }
            Self::Downlink { ppi: Some(8..), .. } => return Err(Error::Range),
            Self::Downlink { qfi, rqi, ppi: Some(ppi) } => {
                let flags = PPP | (u8::from(rqi) * RQI);
                put(octets, 0, &[2, PDU_TYPE_DL << 4, flags | qfi, ppi << 5, 0, 0, 0, next]);
            }
        }
        Ok(self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    /// Conformance: TS 38.415 5.5.2.1 | Containers of four and of eight octets
    #[test]
    fn reads_the_four_and_the_eight_octet_form() {
        assert_eq!(PduSession::parse(&hex("1009")), Ok(PduSession::Uplink { qfi: 9 }));
        let downlink = |rqi, ppi| Ok(PduSession::Downlink { qfi: 9, rqi, ppi });
        assert_eq!(PduSession::parse(&hex("0049")), downlink(true, None));
        assert_eq!(PduSession::parse(&hex("008960000000")), downlink(false, Some(3)));
        assert_eq!(PduSession::parse(&hex("04c960000001 0000 0000")), downlink(true, Some(3)));
    }

    #[test]
    fn refuses_flags_without_room() {
        for content in ["00", "0089", "0809", "040900", "1809", "1409", "1209", "1109", "1089", "1049"] {
            assert_eq!(PduSession::parse(&hex(content)), Err(Error::ExtensionLength), "{content}");
        }
        assert_eq!(PduSession::parse(&hex("2009")), Err(Error::MessageType));
    }

    #[test]
    fn emits_what_it_read() {
        for (bytes, next) in [("01100900", 0), ("01004940", 0x40), ("0200c9e000000000", 0)] {
            let bytes = hex(bytes);
            let container = PduSession::parse(&bytes[1..bytes.len() - 1]).unwrap();
            let mut out = [0xff; 8];
            assert_eq!(container.emit(next, &mut out), Ok(bytes.len()));
            assert_eq!(out[..bytes.len()], bytes[..]);
        }
        assert_eq!(PduSession::Uplink { qfi: 64 }.emit(0, &mut [0; 4]), Err(Error::Range));
        assert_eq!(PduSession::Uplink { qfi: 1 }.emit(0, &mut [0; 3]), Err(Error::BufferTooSmall));
    }
}
