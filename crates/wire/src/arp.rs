//! The Address Resolution Protocol for IPv4 over Ethernet (RFC 826).

use core::net::Ipv4Addr;

use crate::bytes::{array_at, put, put_u16, room, u16_at, view};
use crate::{Error, EtherType, MacAddr};

/// Octets of a packet for Ethernet and IPv4.
pub const PACKET_LEN: usize = 28;

const HARDWARE_ETHERNET: u16 = 1;

mod field {
    pub(super) const HARDWARE: usize = 0;
    pub(super) const PROTOCOL: usize = 2;
    pub(super) const LENGTHS: usize = 4;
    pub(super) const OPERATION: usize = 6;
    pub(super) const SENDER_MAC: usize = 8;
    pub(super) const SENDER_IP: usize = 14;
    pub(super) const TARGET_MAC: usize = 18;
    pub(super) const TARGET_IP: usize = 24;
}

/// What an ARP packet does (RFC 826 "opcode").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArpOperation {
    /// 1: who has the target address?
    Request,
    /// 2: the sender has it.
    Reply,
}

view! {
    /// A packet in place, known to be for Ethernet and IPv4.
    ArpView
}

impl<T: AsRef<[u8]>> ArpView<T> {
    /// Wraps a packet; refuses one that is short or not for Ethernet and IPv4.
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Self, Error> {
        let octets = buffer.as_ref();
        if octets.len() < PACKET_LEN {
            return Err(Error::Truncated);
        }
        if u16_at(octets, field::HARDWARE) != HARDWARE_ETHERNET
            || u16_at(octets, field::PROTOCOL) != EtherType::IPV4.0
            || array_at::<2>(octets, field::LENGTHS) != [6, 4]
        {
            return Err(Error::Version);
        }
        Ok(Self { buffer })
    }

    /// Operation as sent.
    #[inline]
    pub fn operation(&self) -> u16 {
        u16_at(self.octets(), field::OPERATION)
    }

    /// Hardware address of the sender.
    #[inline]
    pub fn sender_mac(&self) -> MacAddr {
        MacAddr(array_at(self.octets(), field::SENDER_MAC))
    }

    /// Protocol address of the sender.
    #[inline]
    pub fn sender_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(array_at::<4>(self.octets(), field::SENDER_IP))
    }

    /// Hardware address of the target; without meaning in a request.
    #[inline]
    pub fn target_mac(&self) -> MacAddr {
        MacAddr(array_at(self.octets(), field::TARGET_MAC))
    }

    /// Protocol address of the target.
    #[inline]
    pub fn target_ip(&self) -> Ipv4Addr {
        Ipv4Addr::from(array_at::<4>(self.octets(), field::TARGET_IP))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> ArpView<T> {
    /// Sets the operation.
    #[inline]
    pub fn set_operation(&mut self, operation: u16) {
        put_u16(self.octets_mut(), field::OPERATION, operation);
    }

    /// Sets the sender's pair of addresses.
    #[inline]
    pub fn set_sender(&mut self, mac: MacAddr, ip: Ipv4Addr) {
        put(self.octets_mut(), field::SENDER_MAC, &mac.0);
        put(self.octets_mut(), field::SENDER_IP, &ip.octets());
    }

    /// Sets the target's pair of addresses.
    #[inline]
    pub fn set_target(&mut self, mac: MacAddr, ip: Ipv4Addr) {
        put(self.octets_mut(), field::TARGET_MAC, &mac.0);
        put(self.octets_mut(), field::TARGET_IP, &ip.octets());
    }
}

/// An ARP packet as plain values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArpRepr {
    /// Request or reply.
    pub operation: ArpOperation,
    /// Hardware address of the sender.
    pub sender_mac: MacAddr,
    /// Protocol address of the sender.
    pub sender_ip: Ipv4Addr,
    /// Hardware address of the target; zero in a request.
    pub target_mac: MacAddr,
    /// Protocol address of the target.
    pub target_ip: Ipv4Addr,
}

impl ArpRepr {
    /// Reads a packet; refuses operations other than request and reply.
    pub fn parse<T: AsRef<[u8]>>(view: &ArpView<T>) -> Result<Self, Error> {
        let operation = match view.operation() {
            1 => ArpOperation::Request,
            2 => ArpOperation::Reply,
            _ => return Err(Error::MessageType),
        };
        Ok(Self {
            operation,
            sender_mac: view.sender_mac(),
            sender_ip: view.sender_ip(),
            target_mac: view.target_mac(),
            target_ip: view.target_ip(),
        })
    }

    /// The reply to this packet of a node that has `target_ip` at `mac` (RFC 826 "Packet Reception").
    #[must_use]
    pub const fn reply(&self, mac: MacAddr) -> Self {
        Self {
            operation: ArpOperation::Reply,
            sender_mac: mac,
            sender_ip: self.target_ip,
            target_mac: self.sender_mac,
            target_ip: self.sender_ip,
        }
    }

    /// Octets [`Self::emit`] writes.
    pub const fn len(&self) -> usize {
        PACKET_LEN
    }

    /// Writes the packet to the front of `buffer`; returns the octets written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let octets = room(buffer, PACKET_LEN)?;
        put_u16(octets, field::HARDWARE, HARDWARE_ETHERNET);
        put_u16(octets, field::PROTOCOL, EtherType::IPV4.0);
        put(octets, field::LENGTHS, &[6, 4]);
        let mut view = ArpView { buffer: octets };
        view.set_operation(match self.operation {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
        });
        view.set_sender(self.sender_mac, self.sender_ip);
        view.set_target(self.target_mac, self.target_ip);
        Ok(PACKET_LEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    #[test]
    fn answers_a_request() {
        let bytes = hex("0001080006040001 020000000302 0a640302 000000000000 0a640301");
        let request = ArpRepr::parse(&ArpView::new_checked(&bytes).unwrap()).unwrap();
        assert_eq!(request.operation, ArpOperation::Request);
        assert_eq!(request.target_ip, Ipv4Addr::new(10, 100, 3, 1));
        let mut out = [0; 28];
        assert_eq!(request.emit(&mut out), Ok(28));
        assert_eq!(out[..], bytes[..]);
        request.reply(MacAddr([2, 0, 0, 0, 3, 1])).emit(&mut out).unwrap();
        assert_eq!(out[..], hex("0001080006040002 020000000301 0a640301 020000000302 0a640302"));
    }

    #[test]
    fn refuses_what_it_cannot_read() {
        let mut bytes = hex("0001080006040003 020000000302 0a640302 000000000000 0a640301");
        let view = ArpView::new_checked(&bytes).unwrap();
        assert_eq!(ArpRepr::parse(&view), Err(Error::MessageType));
        assert_eq!(ArpView::new_checked(&bytes[..27]), Err(Error::Truncated));
        bytes[4] = 8;
        assert_eq!(ArpView::new_checked(&bytes), Err(Error::Version));
    }
}
