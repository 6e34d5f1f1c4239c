//! Netlink messages in bytes: a header, the family's own header, attributes; all of it in host byte order and aligned to four bytes
//! (RFC 3549 section 2.3).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{
    DefaultNla, Emitable, NLA_HEADER_SIZE, NetlinkBuffer, NetlinkHeader, NlasIterator,
};

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
        if datagram.is_empty() {
            return None;
        }
        let message = NetlinkBuffer::new_checked(datagram).ok()?;
        datagram = datagram.get((message.length() as usize).next_multiple_of(4)..).unwrap_or_default();
        Some(Message {
            kind: message.message_type(),
            flags: message.flags(),
            sequence: message.sequence_number(),
            payload: message.payload(),
        })
    })
}

/// The attributes in `bytes`, as far as they are whole.
pub(super) fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(bytes).map_while(Result::ok).map(|attribute| {
        let (kind, end) = (attribute.kind(), NLA_HEADER_SIZE + attribute.value_length());
        (kind, &attribute.into_inner()[NLA_HEADER_SIZE..end])
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
pub(super) struct Request {
    header: NetlinkHeader,
    payload: Vec<u8>,
}

impl Request {
    /// A request of `kind` with the family's `header`; `flags` beside `NLM_F_REQUEST`.
    #[allow(clippy::cast_sign_loss, clippy::cast_possible_truncation)] // Flags of sixteen bits, as C ints.
    pub(super) fn new(kind: u16, flags: libc::c_int, header: &[u8]) -> Self {
        let mut payload = header.to_vec();
        payload.resize(payload.len().next_multiple_of(4), 0);
        let mut header = NetlinkHeader::default();
        header.message_type = kind;
        header.flags = (libc::NLM_F_REQUEST | flags) as u16;
        Self { header, payload }
    }

    /// Adds an attribute.
    pub(super) fn with(mut self, kind: u16, value: &[u8]) -> Self {
        let attribute = DefaultNla::new(kind, value.to_vec());
        let at = self.payload.len();
        self.payload.resize(at + attribute.buffer_len(), 0);
        attribute.emit(&mut self.payload[at..]);
        self
    }

    /// The message, numbered.
    pub(super) fn into_bytes(self, sequence: u32) -> Vec<u8> {
        let Self { mut header, payload } = self;
        header.length = u32::try_from(header.buffer_len() + payload.len()).unwrap_or(u32::MAX);
        header.sequence_number = sequence;
        let mut bytes = vec![0; header.buffer_len()];
        header.emit(&mut bytes);
        bytes.extend_from_slice(&payload);
        bytes
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
