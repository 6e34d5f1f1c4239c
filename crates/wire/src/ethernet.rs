//! Ethernet II frames (IEEE 802.3 clause 3): destination, source, EtherType; no preamble, no FCS.
//!
//! ```text
//!  0        6        12     14
//!  +--------+--------+------+--------- - -
//!  |  dst   |  src   | type | payload
//!  +--------+--------+------+--------- - -
//! ```

use core::fmt;
use core::str::FromStr;

use crate::Error;
use crate::bytes::{array_at, put, put_u16, room, u16_at, view};

/// Octets of the header.
pub const HEADER_LEN: usize = 14;
/// Where tags and EtherType are: octets of both addresses.
pub const TYPE_AT: usize = 12;

mod field {
    pub(super) const DST: usize = 0;
    pub(super) const SRC: usize = 6;
    pub(super) const ETHERTYPE: usize = 12;
}

/// A 48-bit MAC address (IEEE 802 clause 8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether the group bit is set: multicast or broadcast.
    #[inline]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for MacAddr {
    type Err = Error;

    /// Reads six two-digit hexadecimal octets separated by colons.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut octets = [0; 6];
        let mut parts = text.split(':');
        for octet in &mut octets {
            let part = parts.next().filter(|part| part.len() == 2).ok_or(Error::Range)?;
            *octet = u8::from_str_radix(part, 16).map_err(|_| Error::Range)?;
        }
        if parts.next().is_some() { Err(Error::Range) } else { Ok(Self(octets)) }
    }
}

/// What an Ethernet payload is (IANA "IEEE 802 numbers").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// ARP (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// IPv6 (RFC 2464).
    pub const IPV6: Self = Self(0x86dd);
    /// IEEE 802.1Q customer tag.
    pub const VLAN: Self = Self(0x8100);
    /// IEEE 802.1ad service tag.
    pub const QINQ: Self = Self(0x88a8);
    /// The service tag used before 802.1ad.
    pub const QINQ_LEGACY: Self = Self(0x9100);

    /// Whether a VLAN tag follows.
    #[inline]
    pub const fn is_vlan(self) -> bool {
        matches!(self, Self::VLAN | Self::QINQ | Self::QINQ_LEGACY)
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtherType(0x{:04x})", self.0)
    }
}

view! {
    /// A frame in place.
    EthernetView
}

impl<T: AsRef<[u8]>> EthernetView<T> {
    /// Wraps a frame of at least [`HEADER_LEN`] octets.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        if buffer.as_ref().len() < HEADER_LEN { Err(Error::Truncated) } else { Ok(Self { buffer }) }
    }

    /// Destination address.
    #[inline]
    pub fn dst(&self) -> MacAddr {
        MacAddr(array_at(self.octets(), field::DST))
    }

    /// Source address.
    #[inline]
    pub fn src(&self) -> MacAddr {
        MacAddr(array_at(self.octets(), field::SRC))
    }

    /// EtherType, or the length of an 802.3 frame when below 0x0600.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(u16_at(self.octets(), field::ETHERTYPE))
    }

    /// All that follows the header, padding included.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        &self.octets()[HEADER_LEN..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> EthernetView<T> {
    /// Sets the destination address.
    #[inline]
    pub fn set_dst(&mut self, dst: MacAddr) {
        put(self.octets_mut(), field::DST, &dst.0);
    }

    /// Sets the source address.
    #[inline]
    pub fn set_src(&mut self, src: MacAddr) {
        put(self.octets_mut(), field::SRC, &src.0);
    }

    /// Sets the EtherType.
    #[inline]
    pub fn set_ethertype(&mut self, ethertype: EtherType) {
        put_u16(self.octets_mut(), field::ETHERTYPE, ethertype.0);
    }

    /// All that follows the header, to write.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.octets_mut()[HEADER_LEN..]
    }
}

/// An Ethernet II header as plain values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EthernetRepr {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
    /// What follows.
    pub ethertype: EtherType,
}

impl EthernetRepr {
    /// Reads the header of a frame; every value is valid.
    #[inline]
    pub fn parse<T: AsRef<[u8]>>(view: &EthernetView<T>) -> Result<Self, Error> {
        Ok(Self { dst: view.dst(), src: view.src(), ethertype: view.ethertype() })
    }

    /// Octets [`Self::emit`] writes.
    #[inline]
    pub const fn len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header to the front of `buffer`; returns the octets written.
    #[inline]
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let mut view = EthernetView { buffer: room(buffer, HEADER_LEN)? };
        view.set_dst(self.dst);
        view.set_src(self.src);
        view.set_ethertype(self.ethertype);
        Ok(HEADER_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: [u8; 16] = [2, 0, 0, 0, 3, 1, 2, 0, 0, 0, 6, 1, 0x08, 0x00, 0x45, 0x00];

    #[test]
    fn reads_and_writes_a_frame() {
        let view = EthernetView::new_checked(&FRAME).unwrap();
        let repr = EthernetRepr::parse(&view).unwrap();
        assert_eq!(repr.dst, MacAddr([2, 0, 0, 0, 3, 1]));
        assert_eq!(repr.ethertype, EtherType::IPV4);
        assert_eq!(view.payload(), [0x45, 0x00]);
        let mut out = [0; 14];
        assert_eq!(repr.emit(&mut out), Ok(14));
        assert_eq!(out, FRAME[..14]);
        assert_eq!(repr.emit(&mut out[..13]), Err(Error::BufferTooSmall));
    }

    #[test]
    fn refuses_a_short_frame() {
        assert_eq!(EthernetView::new_checked([0; 13]), Err(Error::Truncated));
    }

    #[test]
    fn reads_and_prints_an_address() {
        let mac: MacAddr = "02:00:00:00:03:ff".parse().unwrap();
        assert_eq!(mac.to_string(), "02:00:00:00:03:ff");
        assert!(!mac.is_multicast() && MacAddr::BROADCAST.is_multicast());
        for wrong in ["", "02:00:00:00:03", "02:00:00:00:03:01:04", "2:0:0:0:3:1", "0g:00:00:00:03:01"] {
            assert_eq!(wrong.parse::<MacAddr>(), Err(Error::Range), "{wrong}");
        }
    }
}
