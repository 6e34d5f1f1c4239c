//! PDU session information with all that QoS monitoring and MBS add to it (TS 38.415 clauses 5.5.2.1, 5.5.2.2).
//!
//! ```text
//!  DL  0 type 0 (4) QMP SNP MSNP spare       1 PPP RQI QFI (6)
//!      [PPI (3) spare (5)] [sending stamp 8] [QFI sequence number 3] [MBS QFI sequence number 4]
//!  UL  0 type 1 (4) QMP DL-delay UL-delay SNP   1 N3/N9-delay new-IE QFI (6)
//!      [repeated stamp 8, received stamp 8, sending stamp 8] [DL delay 4] [UL delay 4] [QFI sequence number 3]
//!      [N3/N9 delay 4] [new-IE flags 1 [D1 UL PDCP delay 4]]
//! ```
//! Sequence numbers count the packets of a QoS flow modulo 2^24. Delays are results of a measurement, in milliseconds.

use super::{PDU_TYPE_DL, PDU_TYPE_UL};
use crate::Error;
use crate::bytes::{put, room};

const QMP: u8 = 1 << 3;
const DL_SNP: u8 = 1 << 2;
const DL_MSNP: u8 = 1 << 1;
const PPP: u8 = 1 << 7;
const RQI: u8 = 1 << 6;
const UL_DL_DELAY: u8 = 1 << 2;
const UL_UL_DELAY: u8 = 1 << 1;
const UL_SNP: u8 = 1;
const UL_N3_N9_DELAY: u8 = 1 << 7;
const UL_NEW_IE: u8 = 1 << 6;
const NEW_IE_D1_PDCP_DELAY: u8 = 1;
const QFI_MASK: u8 = 0x3f;
const SEQUENCE_MAX: u32 = 0x00ff_ffff;

/// A time stamp as RFC 5905 clause 6 writes it: seconds since 1900 in the upper half, their fraction in the lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NtpStamp(pub u64);

/// Seconds from 1900 to 1970.
const NTP_TO_UNIX_S: u64 = 2_208_988_800;

impl NtpStamp {
    /// The stamp of a time that many nanoseconds after 1970.
    #[must_use]
    pub const fn from_unix_ns(ns: u64) -> Self {
        let (seconds, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
        // An era of 2^32 seconds wraps, as the format has it.
        Self(((seconds + NTP_TO_UNIX_S) << 32) | ((rest << 32) / 1_000_000_000))
    }

    /// Nanoseconds from `earlier` to this stamp, of the same or neighbouring eras; `None` when it is the earlier one.
    #[must_use]
    pub const fn since_ns(self, earlier: Self) -> Option<u64> {
        let passed = self.0.wrapping_sub(earlier.0);
        if passed >> 63 != 0 {
            return None;
        }
        let (seconds, fraction) = (passed >> 32, passed & 0xffff_ffff);
        Some(seconds * 1_000_000_000 + ((fraction * 1_000_000_000) >> 32))
    }
}

/// DL PDU SESSION INFORMATION: what goes towards the access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DownlinkInformation {
    /// QoS flow identifier, 0 to 63.
    pub qfi: u8,
    /// Reflective QoS indicator.
    pub rqi: bool,
    /// Paging policy indicator, 0 to 7.
    pub ppi: Option<u8>,
    /// When the packet was sent; it asks the access for a measurement (QMP).
    pub sending: Option<NtpStamp>,
    /// Sequence number in the QoS flow, 24 bits.
    pub sequence: Option<u32>,
    /// Sequence number in the MBS QoS flow.
    pub mbs_sequence: Option<u32>,
}

/// Stamps of an uplink packet that QMP brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UplinkStamps {
    /// The sending stamp of the downlink packet that asked.
    pub repeated: NtpStamp,
    /// When the access received that packet.
    pub received: NtpStamp,
    /// When the access sent this one.
    pub sending: NtpStamp,
}

/// Delays that the access has measured, in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UplinkDelays {
    /// Downlink, of the radio access network and the air.
    pub downlink: Option<u32>,
    /// Uplink likewise.
    pub uplink: Option<u32>,
    /// Of N3 or N9 behind another user plane.
    pub n3_n9: Option<u32>,
    /// D1: of uplink PDCP.
    pub d1_pdcp: Option<u32>,
}

/// UL PDU SESSION INFORMATION: what comes from the access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UplinkInformation {
    /// QoS flow identifier, 0 to 63.
    pub qfi: u8,
    /// Stamps of a measurement.
    pub stamps: Option<UplinkStamps>,
    /// Results of measurements.
    pub delays: UplinkDelays,
    /// Sequence number in the QoS flow, 24 bits.
    pub sequence: Option<u32>,
}

/// Takes fields off the front of a container's content.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(Error::ExtensionLength)?;
        self.0 = rest;
        Ok(*field)
    }

    fn when<T>(
        &mut self,
        present: bool,
        read: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        if present { read(self).map(Some) } else { Ok(None) }
    }

    fn stamp(&mut self) -> Result<NtpStamp, Error> {
        Ok(NtpStamp(u64::from_be_bytes(self.take()?)))
    }

    fn word(&mut self) -> Result<u32, Error> {
        Ok(u32::from_be_bytes(self.take()?))
    }

    fn sequence(&mut self) -> Result<u32, Error> {
        let [a, b, c] = self.take()?;
        Ok(u32::from_be_bytes([0, a, b, c]))
    }
}

/// Puts fields one behind the other into a buffer that is long enough.
struct Written<'a> {
    octets: &'a mut [u8],
    at: usize,
}

impl Written<'_> {
    fn put(&mut self, field: &[u8]) {
        put(self.octets, self.at, field);
        self.at += field.len();
    }

    fn sequence(&mut self, number: Option<u32>) {
        if let Some([_, rest @ ..]) = number.map(u32::to_be_bytes) {
            self.put(&rest);
        }
    }

    fn word(&mut self, word: Option<u32>) {
        if let Some(word) = word {
            self.put(&word.to_be_bytes());
        }
    }
}

/// Octets of an extension header whose content has so many: the length, the content, padding, the next type.
const fn padded(content: usize) -> usize {
    (content + 2).next_multiple_of(4)
}

/// Writes length, padding and the next type around what `content` writes.
fn extension(
    content_len: usize,
    next: u8,
    buffer: &mut [u8],
    content: impl FnOnce(&mut Written<'_>),
) -> Result<usize, Error> {
    let len = padded(content_len);
    let octets = room(buffer, len)?;
    octets.fill(0);
    octets[0] = u8::try_from(len / 4).map_err(|_| Error::Range)?;
    octets[len - 1] = next;
    content(&mut Written { octets, at: 1 });
    Ok(len)
}

const fn len_when(present: bool, len: usize) -> usize {
    if present { len } else { 0 }
}

const fn bit_when(present: bool, bit: u8) -> u8 {
    if present { bit } else { 0 }
}

impl DownlinkInformation {
    /// Reads the content of an extension header, without its length and next extension type.
    ///
    /// # Errors
    /// [`Error::MessageType`] for another PDU type, [`Error::ExtensionLength`] when a flag announces a field the content
    /// has no room for.
    pub fn parse(content: &[u8]) -> Result<Self, Error> {
        let mut fields = Fields(content);
        let [first, second] = fields.take()?;
        if first >> 4 != PDU_TYPE_DL {
            return Err(Error::MessageType);
        }
        Ok(Self {
            qfi: second & QFI_MASK,
            rqi: second & RQI != 0,
            ppi: fields.when(second & PPP != 0, |fields| fields.take().map(|[octet]| octet >> 5))?,
            sending: fields.when(first & QMP != 0, Fields::stamp)?,
            sequence: fields.when(first & DL_SNP != 0, Fields::sequence)?,
            mbs_sequence: fields.when(first & DL_MSNP != 0, Fields::word)?,
        })
    }

    const fn content_len(&self) -> usize {
        2 + len_when(self.ppi.is_some(), 1)
            + len_when(self.sending.is_some(), 8)
            + len_when(self.sequence.is_some(), 3)
            + len_when(self.mbs_sequence.is_some(), 4)
    }

    /// Octets of the extension header [`Self::emit`] writes, a multiple of four.
    pub const fn len(&self) -> usize {
        padded(self.content_len())
    }

    /// Writes the whole extension header: length, content, and `next`, the next extension type.
    ///
    /// # Errors
    /// [`Error::Range`] when a value does not fit its field, [`Error::BufferTooSmall`].
    pub fn emit(&self, next: u8, buffer: &mut [u8]) -> Result<usize, Error> {
        let is_in_range = self.qfi <= QFI_MASK
            && self.ppi.is_none_or(|ppi| ppi < 8)
            && self.sequence.is_none_or(|number| number <= SEQUENCE_MAX);
        if !is_in_range {
            return Err(Error::Range);
        }
        extension(self.content_len(), next, buffer, |written| {
            let first = PDU_TYPE_DL << 4
                | bit_when(self.sending.is_some(), QMP)
                | bit_when(self.sequence.is_some(), DL_SNP)
                | bit_when(self.mbs_sequence.is_some(), DL_MSNP);
            let second = bit_when(self.ppi.is_some(), PPP) | bit_when(self.rqi, RQI) | self.qfi;
            written.put(&[first, second]);
            if let Some(ppi) = self.ppi {
                written.put(&[ppi << 5]);
            }
            if let Some(NtpStamp(stamp)) = self.sending {
                written.put(&stamp.to_be_bytes());
            }
            written.sequence(self.sequence);
            written.word(self.mbs_sequence);
        })
    }
}

impl UplinkInformation {
    /// Reads the content of an extension header, without its length and next extension type.
    ///
    /// # Errors
    /// As [`DownlinkInformation::parse`].
    pub fn parse(content: &[u8]) -> Result<Self, Error> {
        let mut fields = Fields(content);
        let [first, second] = fields.take()?;
        if first >> 4 != PDU_TYPE_UL {
            return Err(Error::MessageType);
        }
        let stamps = fields.when(first & QMP != 0, |fields| {
            Ok(UplinkStamps {
                repeated: fields.stamp()?,
                received: fields.stamp()?,
                sending: fields.stamp()?,
            })
        })?;
        let downlink = fields.when(first & UL_DL_DELAY != 0, Fields::word)?;
        let uplink = fields.when(first & UL_UL_DELAY != 0, Fields::word)?;
        let sequence = fields.when(first & UL_SNP != 0, Fields::sequence)?;
        let n3_n9 = fields.when(second & UL_N3_N9_DELAY != 0, Fields::word)?;
        let flags = fields.when(second & UL_NEW_IE != 0, Fields::take)?;
        let has_d1 = flags.is_some_and(|[flags]: [u8; 1]| flags & NEW_IE_D1_PDCP_DELAY != 0);
        let d1_pdcp = fields.when(has_d1, Fields::word)?;
        let delays = UplinkDelays { downlink, uplink, n3_n9, d1_pdcp };
        Ok(Self { qfi: second & QFI_MASK, stamps, delays, sequence })
    }

    const fn content_len(&self) -> usize {
        2 + len_when(self.stamps.is_some(), 24)
            + len_when(self.delays.downlink.is_some(), 4)
            + len_when(self.delays.uplink.is_some(), 4)
            + len_when(self.sequence.is_some(), 3)
            + len_when(self.delays.n3_n9.is_some(), 4)
            + len_when(self.delays.d1_pdcp.is_some(), 5)
    }

    /// Octets of the extension header [`Self::emit`] writes, a multiple of four.
    pub const fn len(&self) -> usize {
        padded(self.content_len())
    }

    /// Writes the whole extension header: length, content, and `next`, the next extension type.
    ///
    /// # Errors
    /// As [`DownlinkInformation::emit`].
    pub fn emit(&self, next: u8, buffer: &mut [u8]) -> Result<usize, Error> {
        if self.qfi > QFI_MASK || self.sequence.is_some_and(|number| number > SEQUENCE_MAX) {
            return Err(Error::Range);
        }
        extension(self.content_len(), next, buffer, |written| {
            let first = PDU_TYPE_UL << 4
                | bit_when(self.stamps.is_some(), QMP)
                | bit_when(self.delays.downlink.is_some(), UL_DL_DELAY)
                | bit_when(self.delays.uplink.is_some(), UL_UL_DELAY)
                | bit_when(self.sequence.is_some(), UL_SNP);
            let second = bit_when(self.delays.n3_n9.is_some(), UL_N3_N9_DELAY)
                | bit_when(self.delays.d1_pdcp.is_some(), UL_NEW_IE)
                | self.qfi;
            written.put(&[first, second]);
            if let Some(stamps) = self.stamps {
                for NtpStamp(stamp) in [stamps.repeated, stamps.received, stamps.sending] {
                    written.put(&stamp.to_be_bytes());
                }
            }
            written.word(self.delays.downlink);
            written.word(self.delays.uplink);
            written.sequence(self.sequence);
            written.word(self.delays.n3_n9);
            if self.delays.d1_pdcp.is_some() {
                written.put(&[NEW_IE_D1_PDCP_DELAY]);
                written.word(self.delays.d1_pdcp);
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;
    use crate::gtpu::PduSession;

    /// Conformance: TS 38.415 5.5.2.1 | All fields of DL PDU SESSION INFORMATION, read and written
    #[test]
    fn reads_and_writes_downlink_information() {
        let plain = DownlinkInformation { qfi: 9, ..DownlinkInformation::default() };
        let stamped = DownlinkInformation {
            rqi: true,
            ppi: Some(5),
            sending: Some(NtpStamp(0x0102_0304_0506_0708)),
            sequence: Some(0x0a_0b0c),
            mbs_sequence: Some(1),
            ..plain
        };
        let cases = [(plain, "01000900"), (stamped, "05 0e c9 a0 0102030405060708 0a0b0c 00000001 00")];
        for (information, bytes) in cases {
            let bytes = hex(bytes);
            assert_eq!(DownlinkInformation::parse(&bytes[1..bytes.len() - 1]), Ok(information));
            assert_eq!(information.len(), bytes.len());
            let mut out = vec![0xff; bytes.len()];
            assert_eq!(information.emit(0, &mut out), Ok(bytes.len()));
            assert_eq!(out, bytes);
            let short = PduSession::parse(&bytes[1..bytes.len() - 1]).unwrap();
            assert_eq!(short, PduSession::Downlink { qfi: 9, rqi: information.rqi, ppi: information.ppi });
        }
        let largest = DownlinkInformation { qfi: 63, sequence: Some((1 << 24) - 1), ..plain };
        assert_eq!(largest.emit(0, &mut [0; 16]), Ok(8));
        let too_large = [
            DownlinkInformation { sequence: Some(1 << 24), ..plain },
            DownlinkInformation { qfi: 64, ..plain },
        ];
        assert_eq!(too_large.map(|information| information.emit(0, &mut [0; 16])), [Err(Error::Range); 2]);
        assert_eq!(plain.emit(0, &mut [0; 3]), Err(Error::BufferTooSmall));
    }

    /// Conformance: TS 38.415 5.5.2.2 | All fields of UL PDU SESSION INFORMATION, read and written
    #[test]
    fn reads_and_writes_uplink_information() {
        let plain = UplinkInformation { qfi: 5, ..UplinkInformation::default() };
        let full = UplinkInformation {
            stamps: Some(UplinkStamps { repeated: NtpStamp(1), received: NtpStamp(2), sending: NtpStamp(3) }),
            delays: UplinkDelays { downlink: Some(4), uplink: Some(5), n3_n9: Some(6), d1_pdcp: Some(7) },
            sequence: Some(8),
            ..plain
        };
        let all = "0c 1f c5 0000000000000001 0000000000000002 0000000000000003 00000004 00000005 000008 \
                   00000006 01 00000007 85";
        let cases = [(plain, 0, "01100500"), (full, 0x85, all)];
        for (information, next, bytes) in cases {
            let bytes = hex(bytes);
            assert_eq!(information.len(), bytes.len());
            assert_eq!(UplinkInformation::parse(&bytes[1..bytes.len() - 1]), Ok(information));
            let mut out = vec![0xff; bytes.len()];
            assert_eq!(information.emit(next, &mut out), Ok(bytes.len()));
            assert_eq!(out, bytes);
            let short = PduSession::parse(&bytes[1..bytes.len() - 1]);
            assert_eq!(short, Ok(PduSession::Uplink { qfi: 5 }));
        }
        let largest = UplinkInformation { qfi: 63, sequence: Some((1 << 24) - 1), ..plain };
        assert_eq!(largest.emit(0, &mut [0; 16]), Ok(8));
        let too_large =
            [UplinkInformation { sequence: Some(1 << 24), ..plain }, UplinkInformation { qfi: 64, ..plain }];
        assert_eq!(too_large.map(|information| information.emit(0, &mut [0; 16])), [Err(Error::Range); 2]);
        // New-IE flags that say nothing we know: the octet is there all the same.
        assert_eq!(UplinkInformation::parse(&hex("104500")), Ok(plain));
    }

    #[test]
    fn refuses_flags_without_room() {
        let content = hex(
            "1fc5 000000000000000100000000000000020000000000000003 00000004 00000005 000008 00000006 01 00000007",
        );
        for len in 0..content.len() {
            assert_eq!(UplinkInformation::parse(&content[..len]), Err(Error::ExtensionLength), "{len}");
        }
        let content = hex("0ec9 a0 0102030405060708 0a0b0c 00000001");
        for len in 0..content.len() {
            assert_eq!(DownlinkInformation::parse(&content[..len]), Err(Error::ExtensionLength), "{len}");
        }
        assert_eq!(UplinkInformation::parse(&[0, 5]), Err(Error::MessageType));
        assert_eq!(DownlinkInformation::parse(&[0x10, 5]), Err(Error::MessageType));
    }

    #[test]
    fn stamps_count_from_1900_and_tell_what_passed() {
        let half = NtpStamp::from_unix_ns(1_500_000_000);
        assert_eq!(half, NtpStamp((NTP_TO_UNIX_S + 1) << 32 | 1 << 31));
        let later = NtpStamp::from_unix_ns(3_250_000_000);
        assert_eq!((later.since_ns(half), half.since_ns(later)), (Some(1_750_000_000), None));
        // Across the end of an era, in 2036.
        let before = NtpStamp(u64::from(u32::MAX) << 32);
        assert_eq!(NtpStamp(1 << 32).since_ns(before), Some(2_000_000_000));
    }
}
