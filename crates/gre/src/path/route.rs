//! Packets that go by route: a hop less, the next hop's Ethernet address, cut where they must be and may.

use std::net::IpAddr;

use kaido_engine::fragment::{SplitFault, split, split_v4_allowed};
use kaido_engine::{DropReason, Frame, IcmpError, Output, PortId, Resolution, write_icmp_error};
use kaido_wire::ip::decrement_ttl;
use kaido_wire::layout::{self, EthernetFields};
use kaido_wire::{EtherType, EthernetRepr, MacAddr, ethernet, ipv4, ipv6};

use super::Gre;

/// What routing needs of an IP packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) hops: u8,
    pub(super) tos: u8,
    pub(super) len: usize,
    /// Whether routers may not cut it.
    pub(super) dont_fragment: bool,
}

impl Head {
    /// Reads the packet that `first` begins with and of which `available` octets exist.
    pub(super) fn read(first: &[u8], available: usize) -> Option<Self> {
        match first.first()? >> 4 {
            4 => {
                let header = ipv4::header_within(first, available).ok()?;
                ipv4::checksum_ok(first, header.header_len).then_some(Self {
                    source: header.src.into(),
                    destination: header.dst.into(),
                    hops: header.ttl,
                    tos: header.tos,
                    len: header.total_len.into(),
                    dont_fragment: header.dont_fragment,
                })
            }
            6 => {
                let header = ipv6::header_within(first, available).ok()?;
                Some(Self {
                    source: header.src.into(),
                    destination: header.dst.into(),
                    hops: header.hop_limit,
                    tos: header.traffic_class,
                    len: header.total_len as usize,
                    dont_fragment: true,
                })
            }
            _ => None,
        }
    }

    /// Whether a router sends such a packet on (RFC 1812 5.3.7, RFC 4291 2.5).
    fn is_routed(&self) -> bool {
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                !source.is_multicast()
                    && !source.is_broadcast()
                    && !source.is_loopback()
                    && !destination.is_multicast()
                    && !destination.is_broadcast()
                    && !destination.is_loopback()
                    && !destination.is_unspecified()
                    && !destination.is_link_local()
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                !source.is_multicast()
                    && !source.is_loopback()
                    && !source.is_unicast_link_local()
                    && !destination.is_multicast()
                    && !destination.is_loopback()
                    && !destination.is_unspecified()
                    && !destination.is_unicast_link_local()
            }
            _ => false,
        }
    }
}

impl Gre {
    /// Sends on the IP packet that `frame` begins with, as a router does.
    pub(super) fn route(&mut self, from: PortId, mut frame: Frame, out: &mut Output<'_>) {
        let Some(head) = Head::read(frame.data(), frame.packet_len()) else {
            return out.drop(from, frame, DropReason::INNER_MALFORMED);
        };
        if !head.is_routed() {
            return out.drop(from, frame, DropReason::NOT_ROUTED);
        }
        if head.hops <= 1 {
            return self.send_icmp_error(from, IcmpError::TimeExceeded, &head, None, frame, out);
        }
        frame.truncate(head.len);
        match self.next_hops.resolve(head.destination) {
            Resolution::Ready(hop) if head.len > self.mtu(hop.port) => {
                let mtu = self.mtu(hop.port);
                if !split_v4_allowed(frame.data()) {
                    return self.send_icmp_error(from, IcmpError::TooBig(mtu), &head, None, frame, out);
                }
                for mut part in self.cut(from, frame, mtu, out) {
                    decrement_ttl(part.data_mut());
                    self.send(from, head.destination, part, out);
                }
            }
            _ => {
                decrement_ttl(frame.data_mut());
                self.send(from, head.destination, frame, out);
            }
        }
    }

    pub(super) fn mtu(&self, port: PortId) -> usize {
        self.ports.get(port.index()).map_or(0, |port| port.mtu)
    }

    /// The parts of a packet that is too large; none, and it is dropped, where it cannot be cut.
    pub(super) fn cut(&self, from: PortId, frame: Frame, mtu: usize, out: &mut Output<'_>) -> Vec<Frame> {
        match split(&frame, mtu, self.shared.identification(), || out.allocate()) {
            Ok(parts) => {
                out.release(frame);
                parts
            }
            Err(fault) => {
                let reason = match fault {
                    SplitFault::Impossible => DropReason::TOO_BIG,
                    SplitFault::NoFrame => DropReason::NO_FRAME,
                };
                out.drop(from, frame, reason);
                Vec::new()
            }
        }
    }

    /// Sends an IP packet that is complete but for Ethernet.
    pub(super) fn send(&mut self, from: PortId, to: IpAddr, mut frame: Frame, out: &mut Output<'_>) {
        let reason = match self.next_hops.resolve(to) {
            Resolution::Ready(hop) => {
                let port = self.ports.get(hop.port.index());
                let fits = port.filter(|port| frame.packet_len() <= port.mtu);
                match fits.map(|port| put_link(&mut frame, port.mac, hop.mac)) {
                    Some(true) => return out.transmit(hop.port, frame),
                    Some(false) => DropReason::NO_HEADROOM,
                    None => DropReason::TOO_BIG,
                }
            }
            Resolution::Pending => match self.pending.push(frame, from, to, (), out.now()) {
                Ok(()) => return,
                Err(refused) => {
                    frame = refused;
                    DropReason::NEXT_HOP_UNRESOLVED
                }
            },
            Resolution::NoRoute => DropReason::NO_ROUTE,
        };
        out.drop(from, frame, reason);
    }

    /// Tries the packets again whose next hops were not known.
    pub(super) fn retry_pending(&mut self, out: &mut Output<'_>) {
        self.pending_tried = self.next_hops.generation();
        for packet in self.pending.take() {
            match self.next_hops.resolve(packet.destination) {
                Resolution::Pending if packet.is_overdue(out.now()) => {
                    out.drop(packet.from, packet.frame, DropReason::NEXT_HOP_UNRESOLVED);
                }
                Resolution::Pending => self.pending.keep(packet),
                _ => self.send(packet.from, packet.destination.address, packet.frame, out),
            }
        }
    }

    /// Drops a packet that cannot go on and tells its sender, who is behind the Ethernet header `link` or where routes
    /// lead. `frame` begins with the packet.
    pub(super) fn send_icmp_error(
        &mut self,
        from: PortId,
        kind: IcmpError,
        head: &Head,
        link: Option<&[u8]>,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        let own = self.ports.get(from.index());
        let own = own.and_then(|port| {
            port.addresses.iter().find(|own| own.is_ipv4() == head.source.is_ipv4()).copied()
        });
        if let Some(own) = own
            && self.icmp_errors.admit(out.now())
            && let Some(mut error) = out.allocate()
        {
            if !write_icmp_error(&mut error, own, head.source, kind, frame.data()) {
                out.release(error);
            } else if let Some(link) = link {
                back(from, link, error, out);
            } else if self.next_hops.resolve(head.source) == Resolution::NoRoute {
                // The packet is counted once, and the error about it is not another.
                out.release(error);
            } else {
                self.send(from, head.source, error, out);
            }
        }
        out.drop(from, frame, kind.reason());
    }
}

/// Sends a packet back to where the Ethernet header `link` came from.
fn back(port: PortId, link: &[u8], mut frame: Frame, out: &mut Output<'_>) {
    let room = frame
        .prepend(link.len())
        .filter(|room| room.len() >= link.len() && link.len() >= ethernet::HEADER_LEN);
    match room {
        Some(room) => {
            room[..link.len()].copy_from_slice(link);
            let mut addresses = EthernetFields::new(layout::at_mut(room, 0));
            let (dst, src) = (addresses.src(), addresses.dst());
            addresses.set_dst(dst);
            addresses.set_src(src);
            out.transmit(port, frame);
        }
        None => out.drop(port, frame, DropReason::NO_HEADROOM),
    }
}

/// Puts an Ethernet header before an IP packet.
fn put_link(frame: &mut Frame, own: [u8; 6], next: [u8; 6]) -> bool {
    let ethertype = match frame.data().first().map(|octet| octet >> 4) {
        Some(6) => EtherType::IPV6,
        _ => EtherType::IPV4,
    };
    let header = EthernetRepr { dst: MacAddr(next), src: MacAddr(own), ethertype };
    frame.prepend(ethernet::HEADER_LEN).is_some_and(|room| header.emit(room).is_ok())
}
