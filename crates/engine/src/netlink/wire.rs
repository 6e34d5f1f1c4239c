//! Netlink messages in bytes: a header of 16 bytes, the family's own header, attributes; all of it in host
//! byte order and aligned to four bytes (RFC 3549 section 2.3).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const HEADER: usize = 16;

/// Bits of an attribute's type that are flags (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`).
const TYPE_MASK: u16 = 0x3fff;

/// A message as received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message<'b> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    pub(super) payload: &'b [u8],
}

/// The messages of a datagram, as far as they are whole.
pub(super) fn messages(mut datagram: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = usize::try_from(u32_at(datagram, 0)?).ok()?;
        let payload = datagram.get(HEADER..len)?;
        let message = Message {
            kind: u16_at(datagram, 4)?,
            flags: u16_at(datagram, 6)?,
            sequence: u32_at(datagram, 8)?,
            payload,
        };
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    })
}

/// The attributes in `bytes`, as far as they are whole.
pub(super) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let value = bytes.get(4..len)?;
        let kind = u16_at(bytes, 2)? & TYPE_MASK;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// An address attribute: four bytes or sixteen.
pub(super) fn address(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(value).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(value).ok()?).into()),
        _ => None,
    }
}

/// An Ethernet address attribute.
pub(super) fn mac(value: &[u8]) -> Option<[u8; 6]> {
    value.try_into().ok()
}

/// The bytes of an address, as attributes carry them.
pub(super) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// `AF_INET` or `AF_INET6` as the families' headers carry it.
#[allow(clippy::cast_possible_truncation)] // 2 and 10.
pub(super) fn family(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => libc::AF_INET as u8,
        IpAddr::V6(_) => libc::AF_INET6 as u8,
    }
}

/// A message to send.
#[derive(Clone, Debug)]
pub(super) struct Request(Vec<u8>);

impl Request {
    /// A request of `kind` with the family's `header`; `flags` beside `NLM_F_REQUEST`.
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)] // Flags of sixteen bits, as C ints.
    pub(super) fn new(kind: u16, flags: libc::c_int, header: &[u8]) -> Self {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(&((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(header);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Self(bytes)
    }

    /// Adds an attribute.
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let len = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&len.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// The message, numbered.
    pub(super) fn into_bytes(mut self, sequence: u32) -> Vec<u8> {
        let len = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_reads_back() {
        let bytes = Request::new(20, libc::NLM_F_ACK, &[2, 24, 0, 0, 7, 0, 0, 0])
            .with(1, &[10, 0, 0, 1])
            .with(3, b"odd")
            .with(8, &[])
            .into_bytes(9);
        let mut both = bytes.clone();
        both.extend_from_slice(&bytes);
        let parsed: Vec<_> = messages(&both).collect();
        assert_eq!(parsed.len(), 2);
        assert_eq!((parsed[1].kind, parsed[1].flags, parsed[1].sequence), (20, 5, 9));
        let attributes: Vec<_> = attributes(&parsed[1].payload[8..]).collect();
        assert_eq!(attributes, [(1, &[10, 0, 0, 1][..]), (3, &b"odd"[..]), (8, &[][..])]);
    }

    #[test]
    fn what_is_cut_short_or_lies_about_its_length_ends_the_walk() {
        let bytes = Request::new(20, 0, &[0; 8]).with(1, &[1, 2, 3, 4]).into_bytes(1);
        for cut in 0..bytes.len() {
            assert_eq!(messages(&bytes[..cut]).count(), 0, "cut at {cut}");
        }
        for lie in [0u32, 1, 15, 1000, u32::MAX] {
            let mut bytes = bytes.clone();
            bytes[..4].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(messages(&bytes).count(), 0, "length {lie}");
        }
        for lie in [0u16, 3, 9, u16::MAX] {
            let mut attribute = [8, 0, 1, 0, 1, 2, 3, 4];
            attribute[..2].copy_from_slice(&lie.to_ne_bytes());
            assert_eq!(attributes(&attribute).count(), 0, "length {lie}");
        }
    }
}
