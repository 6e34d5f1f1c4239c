//! TCP headers (RFC 9293 section 3.1): ports, numbers, flags, and the maximum segment size option, which a tunnel
//! end lowers so that segments fit once encapsulated.

use core::fmt;
use core::ops::BitOr;

use crate::bytes::{put, put_u16, put_u32, room, u16_at, u32_at, view, word_count};
use crate::{Error, checksum};

/// Octets of a header without options.
pub const HEADER_LEN: usize = 20;
/// Octets of the longest header (data offset 15).
pub const HEADER_LEN_MAX: usize = 60;

mod field {
    pub(super) const SRC_PORT: usize = 0;
    pub(super) const DST_PORT: usize = 2;
    pub(super) const SEQUENCE: usize = 4;
    pub(super) const ACKNOWLEDGMENT: usize = 8;
    pub(super) const DATA_OFFSET: usize = 12;
    pub(super) const FLAGS: usize = 13;
    pub(super) const WINDOW: usize = 14;
    pub(super) const CHECKSUM: usize = 16;
    pub(super) const URGENT: usize = 18;
}

/// The eight control bits (RFC 9293 section 3.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TcpFlags(pub u8);

impl TcpFlags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push function.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgment field is significant.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is significant.
    pub const URG: Self = Self(0x20);
    /// Congestion echo (RFC 3168).
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Self = Self(0x80);

    /// Whether all bits of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for TcpFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
        f.write_str("TcpFlags(")?;
        let mut bits =
            names.iter().enumerate().filter(|(bit, _)| self.0 >> bit & 1 == 1).map(|(_, name)| name);
        if let Some(first) = bits.next() {
            f.write_str(first)?;
        }
        for name in bits {
            write!(f, "|{name}")?;
        }
        f.write_str(")")
    }
}

view! {
    /// A segment in place; its header, options included, lies within the slice.
    TcpView
}

impl<T: AsRef<[u8]>> TcpView<T> {
    /// Wraps a segment; refuses a data offset below 5 words or past the slice.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let octets = buffer.as_ref();
        if octets.len() < HEADER_LEN {
            return Err(Error::Truncated);
        }
        let header_len = usize::from(octets[field::DATA_OFFSET] >> 4) * 4;
        if header_len < HEADER_LEN || header_len > octets.len() {
            return Err(Error::HeaderLength);
        }
        Ok(Self { buffer })
    }

    /// Source port.
    #[inline]
    pub fn src_port(&self) -> u16 {
        u16_at(self.octets(), field::SRC_PORT)
    }

    /// Destination port.
    #[inline]
    pub fn dst_port(&self) -> u16 {
        u16_at(self.octets(), field::DST_PORT)
    }

    /// Sequence number.
    #[inline]
    pub fn sequence(&self) -> u32 {
        u32_at(self.octets(), field::SEQUENCE)
    }

    /// Acknowledgment number.
    #[inline]
    pub fn acknowledgment(&self) -> u32 {
        u32_at(self.octets(), field::ACKNOWLEDGMENT)
    }

    /// Octets of the header, options included.
    #[inline]
    pub fn header_len(&self) -> u8 {
        (self.octets()[field::DATA_OFFSET] >> 4) * 4
    }

    /// Control bits.
    #[inline]
    pub fn flags(&self) -> TcpFlags {
        TcpFlags(self.octets()[field::FLAGS])
    }

    /// Window, unscaled.
    #[inline]
    pub fn window(&self) -> u16 {
        u16_at(self.octets(), field::WINDOW)
    }

    /// Checksum as sent.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16_at(self.octets(), field::CHECKSUM)
    }

    /// Urgent pointer.
    #[inline]
    pub fn urgent(&self) -> u16 {
        u16_at(self.octets(), field::URGENT)
    }

    /// Options, padding included.
    #[inline]
    pub fn options(&self) -> &[u8] {
        self.octets().get(HEADER_LEN..usize::from(self.header_len())).unwrap_or_default()
    }

    /// All that follows the header.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        self.octets().get(usize::from(self.header_len())..).unwrap_or_default()
    }

    /// Maximum segment size announced, in octets (RFC 9293 section 3.7.1); malformed options end the search.
    #[inline]
    pub fn mss(&self) -> Option<u16> {
        let at = mss_at(self.options())?;
        Some(u16_at(self.options(), at))
    }
}

/// Offset of the value of the MSS option among `options`; bounded by their 40 octets.
fn mss_at(options: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match *options.get(at..)? {
            [1, ..] => at += 1,
            [2, 4, _, _, ..] => return Some(at + 2),
            [kind, len, ..] if kind != 0 && len >= 2 => at += usize::from(len),
            _ => return None,
        }
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> TcpView<T> {
    /// Lowers the MSS option to at most `mss_max` octets and updates the checksum; returns whether it changed.
    pub fn clamp_mss(&mut self, mss_max: u16) -> bool {
        let Some(at) = mss_at(self.options()).map(|at| HEADER_LEN + at) else { return false };
        let octets = self.octets_mut();
        let old = u16_at(octets, at);
        if old <= mss_max {
            return false;
        }
        put_u16(octets, at, mss_max);
        // At an odd offset the two octets lie in two words of the sum: swapped, they sum alike (RFC 1071 2 (B)).
        let swap = |value: u16| if at.is_multiple_of(2) { value } else { value.swap_bytes() };
        let sum = checksum::update_u16(u16_at(octets, field::CHECKSUM), swap(old), swap(mss_max));
        put_u16(octets, field::CHECKSUM, sum);
        true
    }

    /// Sets the checksum.
    #[inline]
    pub fn set_checksum(&mut self, checksum: u16) {
        put_u16(self.octets_mut(), field::CHECKSUM, checksum);
    }
}

/// A TCP header as plain values; the checksum is the segment's affair, not the header's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpRepr<'a> {
    /// Source port.
    pub src_port: u16,
    /// Destination port.
    pub dst_port: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgment number.
    pub acknowledgment: u32,
    /// Control bits.
    pub flags: TcpFlags,
    /// Window, unscaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Options as sent, a multiple of four octets, at most 40.
    pub options: &'a [u8],
}

impl<'a> TcpRepr<'a> {
    /// Reads a header; the checksum, which needs the addresses, is not looked at.
    pub fn parse<T: AsRef<[u8]>>(view: &'a TcpView<T>) -> Result<Self, Error> {
        Ok(Self {
            src_port: view.src_port(),
            dst_port: view.dst_port(),
            sequence: view.sequence(),
            acknowledgment: view.acknowledgment(),
            flags: view.flags(),
            window: view.window(),
            urgent: view.urgent(),
            options: view.options(),
        })
    }

    /// Octets [`Self::emit`] writes: the header with its options.
    pub const fn len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Writes the header with checksum zero to the front of `buffer`; returns the octets written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let len = self.len();
        let words = word_count(len)?;
        let octets = room(buffer, len)?;
        put_u16(octets, field::SRC_PORT, self.src_port);
        put_u16(octets, field::DST_PORT, self.dst_port);
        put_u32(octets, field::SEQUENCE, self.sequence);
        put_u32(octets, field::ACKNOWLEDGMENT, self.acknowledgment);
        octets[field::DATA_OFFSET] = words << 4;
        octets[field::FLAGS] = self.flags.0;
        put_u16(octets, field::WINDOW, self.window);
        put_u16(octets, field::CHECKSUM, 0);
        put_u16(octets, field::URGENT, self.urgent);
        put(octets, HEADER_LEN, self.options);
        Ok(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    const SYN: &str = "c0080050 00000001 00000000 7002ffff 1234 0000 0204ffd7 0103030801010402";

    #[test]
    fn reads_and_writes_a_syn() {
        let bytes = hex(SYN);
        // Data offset 7 words: 8 octets of options, the rest is payload.
        let view = TcpView::new_checked(&bytes).unwrap();
        let repr = TcpRepr::parse(&view).unwrap();
        assert_eq!((repr.src_port, repr.dst_port, repr.window), (0xc008, 80, 0xffff));
        assert_eq!((view.mss(), view.payload().len()), (Some(0xffd7), 4));
        assert_eq!(format!("{:?}", TcpFlags::SYN | TcpFlags::ACK), "TcpFlags(SYN|ACK)");
        let mut out = [0; 28];
        assert_eq!(repr.emit(&mut out), Ok(28));
        assert_eq!(out[..16], bytes[..16]);
        assert_eq!(out[18..], bytes[18..28]);
    }

    /// Conformance: RFC 4459 3.2 | The MSS option is lowered and the checksum updated
    #[test]
    fn clamps_the_mss_at_even_and_odd_offsets() {
        for options in ["0204ffd701010100", "010204ffd7010100"] {
            let mut bytes = hex(&format!("c008005000000001000000007002ffff00000000{options}"));
            let sum = checksum::checksum(&bytes);
            put_u16(&mut bytes, field::CHECKSUM, sum);
            let mut view = TcpView::new_checked(&mut bytes).unwrap();
            assert!(view.clamp_mss(1340) && !view.clamp_mss(1341));
            assert_eq!(view.mss(), Some(1340));
            assert_eq!(checksum::checksum(&bytes), 0, "{options}");
        }
    }

    #[test]
    fn malformed_options_end_the_search() {
        for options in ["02ff0000", "03000000", "00020405", "0101010a", "02040500 0000"] {
            assert!(mss_at(&hex(options)).is_none_or(|at| at == 2), "{options}");
        }
        assert_eq!(TcpView::new_checked(hex(&SYN.replace("7002", "4002"))), Err(Error::HeaderLength));
        assert_eq!(TcpView::new_checked(hex(&SYN.replace("7002", "f002"))), Err(Error::HeaderLength));
    }

    #[test]
    fn sets_the_checksum_alone() {
        let mut bytes = hex(SYN);
        TcpView::new_checked(&mut bytes).unwrap().set_checksum(0xabcd);
        assert_eq!(bytes, hex(&SYN.replace("1234", "abcd")));
    }
}
