//! GRE (RFC 2784), with the keys and sequence numbers of RFC 2890.
//!
//! ```text
//!   0 C · R · K · S · reserved (9) · version (3)    2 protocol type, an EtherType
//!   4 checksum · reserved                           when C
//!     key                                           when K
//!     sequence number                               when S
//! ```

use crate::bytes::{put_u16, put_u32, room, u16_at, u32_at};
use crate::{Error, EtherType, checksum};

/// Octets of a header without options.
pub const HEADER_LEN: usize = 4;
/// Octets of the longest header.
pub const HEADER_LEN_MAX: usize = 16;

const CHECKSUM: u16 = 0x8000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
/// Bits that RFC 2784 2.3 has a receiver refuse, but for those that RFC 2890 gave a meaning: routing, strict source route,
/// and the highest of recursion control, all of RFC 1701.
const REFUSED: u16 = 0x4c00;
const VERSION: u16 = 0x0007;

/// Ethernet in GRE: Transparent Ethernet Bridging, RFC 7637 3.2.
pub const TRANSPARENT_ETHERNET: EtherType = EtherType(0x6558);

/// A header as plain values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GreHeader {
    /// Octets of the header with its options.
    pub header_len: u8,
    /// What the payload is.
    pub protocol: EtherType,
    /// Whether there is a checksum, over header and payload; see [`checksum_ok`].
    pub has_checksum: bool,
    /// The key, which tells tunnels of one pair of addresses apart.
    pub key: Option<u32>,
    /// The sequence number.
    pub sequence: Option<u32>,
}

/// Reads a header; refuses versions other than 0 (1 is the GRE of PPTP, RFC 2637) and the flags of RFC 1701 that RFC 2784
/// dropped. Reserved bits are ignored, as RFC 2784 2.3 has it.
#[inline]
pub fn header(packet: &[u8]) -> Result<GreHeader, Error> {
    let fixed = packet.first_chunk::<HEADER_LEN>().ok_or(Error::Truncated)?;
    let flags = u16_at(fixed, 0);
    let protocol = EtherType(u16_at(fixed, 2));
    if flags == 0 {
        return Ok(GreHeader { header_len: 4, protocol, has_checksum: false, key: None, sequence: None });
    }
    with_options(packet, flags, protocol)
}

fn with_options(packet: &[u8], flags: u16, protocol: EtherType) -> Result<GreHeader, Error> {
    if flags & VERSION != 0 {
        return Err(Error::Version);
    }
    if flags & REFUSED != 0 {
        return Err(Error::Flags);
    }
    let mut at = HEADER_LEN;
    let mut option = |bit: u16| {
        let here = (flags & bit != 0).then_some(at);
        at += here.map_or(0, |_| 4);
        here
    };
    let (checksum, key, sequence) = (option(CHECKSUM), option(KEY), option(SEQUENCE));
    if packet.len() < at {
        return Err(Error::Truncated);
    }
    #[allow(clippy::cast_possible_truncation)] // At most 16.
    let header_len = at as u8;
    Ok(GreHeader {
        header_len,
        protocol,
        has_checksum: checksum.is_some(),
        key: key.map(|at| u32_at(packet, at)),
        sequence: sequence.map(|at| u32_at(packet, at)),
    })
}

/// Whether the sum of a GRE packet with a checksum, header and payload in one or more parts, is right.
#[inline]
pub fn checksum_ok<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> bool {
    sum_of(parts) == 0xffff
}

/// Writes the checksum of a header that has one.
pub fn set_checksum(header: &mut [u8], checksum: u16) {
    put_u16(header, HEADER_LEN, checksum);
}

/// The one's-complement sum of octets that lie in several parts.
pub fn sum_of<'p>(parts: impl IntoIterator<Item = &'p [u8]>) -> u16 {
    let (mut sum, mut at) = (0, 0usize);
    for part in parts {
        // Of a part that begins in the middle of a word the octets change places (RFC 1071 2 (B)).
        let of_part = checksum::sum(part);
        sum = checksum::add(sum, if at % 2 == 0 { of_part } else { of_part.swap_bytes() });
        at += part.len();
    }
    sum
}

/// A header to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GreRepr {
    /// What the payload is.
    pub protocol: EtherType,
    /// Whether there is room for a checksum; [`fill_checksum`] sets it.
    pub checksum: bool,
    /// The key.
    pub key: Option<u32>,
    /// The sequence number.
    pub sequence: Option<u32>,
}

impl GreRepr {
    /// Octets that [`Self::emit`] writes.
    #[inline]
    pub const fn len(&self) -> usize {
        let options = self.checksum as usize + self.key.is_some() as usize + self.sequence.is_some() as usize;
        HEADER_LEN + 4 * options
    }

    /// Writes the header to the front of `buffer`, its checksum zero.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let octets = room(buffer, self.len())?;
        let mut flags = 0;
        let mut at = HEADER_LEN;
        let options = [(CHECKSUM, self.checksum.then_some(0)), (KEY, self.key), (SEQUENCE, self.sequence)];
        for (bit, value) in options {
            if let Some(value) = value {
                flags |= bit;
                put_u32(octets, at, value);
                at += 4;
            }
        }
        put_u16(octets, 0, flags);
        put_u16(octets, 2, self.protocol.0);
        Ok(at)
    }
}

/// Sets the checksum of a GRE packet that has room for one.
pub fn fill_checksum(packet: &mut [u8]) -> Result<(), Error> {
    if packet.len() < HEADER_LEN + 4 {
        return Err(Error::Truncated);
    }
    put_u16(packet, HEADER_LEN, 0);
    let sum = checksum::checksum(packet);
    put_u16(packet, HEADER_LEN, sum);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    fn read(text: &str) -> Result<GreHeader, Error> {
        header(&hex(text))
    }

    #[test]
    fn reads_headers_of_every_length() {
        let plain = read("0000 0800").unwrap();
        assert_eq!((plain.header_len, plain.protocol, plain.has_checksum), (4, EtherType::IPV4, false));
        let keyed = read("2000 86dd 0000 0007").unwrap();
        assert_eq!((keyed.header_len, keyed.key, keyed.sequence), (8, Some(7), None));
        let all = read("b000 6558 1234 0000 0000 0007 0000 0009 ff").unwrap();
        assert_eq!((all.header_len, all.key, all.sequence), (16, Some(7), Some(9)));
        assert!(all.has_checksum);
        assert_eq!(all.protocol, TRANSPARENT_ETHERNET);
    }

    #[test]
    fn refuses_what_it_cannot_know_the_length_of() {
        assert_eq!(read("0001 880b"), Err(Error::Version), "the GRE of PPTP");
        assert_eq!(read("0007 0800"), Err(Error::Version));
        assert_eq!(read("4000 0800 0000 0000"), Err(Error::Flags), "routing");
        assert_eq!(read("0800 0800"), Err(Error::Flags), "strict source route");
        assert_eq!(read("0400 0800"), Err(Error::Flags), "recursion above three");
        assert!(read("03f8 0800").is_ok(), "reserved bits are ignored");
        assert_eq!(read("0000 08"), Err(Error::Truncated));
        assert_eq!(read("b000 0800 1234 0000 0000 0007 0000 00"), Err(Error::Truncated));
    }

    #[test]
    fn writes_what_it_reads() {
        for (key, sequence, checksum) in
            [(None, None, false), (Some(1), None, false), (None, Some(2), true), (Some(3), Some(4), true)]
        {
            let repr = GreRepr { protocol: EtherType::IPV4, checksum, key, sequence };
            let mut packet = [0xaa; 32];
            let len = repr.emit(&mut packet).unwrap();
            assert_eq!(len, repr.len());
            let read = header(&packet).unwrap();
            assert_eq!(usize::from(read.header_len), len);
            assert_eq!((read.key, read.sequence, read.has_checksum), (key, sequence, checksum));
            if checksum {
                fill_checksum(&mut packet).unwrap();
                assert!(checksum_ok([&packet[..]]));
                assert!(checksum_ok([&packet[..6], &packet[6..]]));
                assert!(checksum_ok([&packet[..7], &packet[7..20], &packet[20..]]));
                packet[20] ^= 1;
                assert!(!checksum_ok([&packet[..]]));
            }
            assert_eq!(repr.emit(&mut packet[..len - 1]), Err(Error::BufferTooSmall));
        }
        assert_eq!(fill_checksum(&mut [0x80, 0, 8, 0]), Err(Error::Truncated));
    }

    #[test]
    fn a_checksum_stands_behind_the_first_four_octets() {
        let mut header = hex("b000 6558 0000 0000 0000 0007 0000 0009");
        set_checksum(&mut header, 0x1234);
        assert_eq!(header, hex("b000 6558 1234 0000 0000 0007 0000 0009"));
    }
}
