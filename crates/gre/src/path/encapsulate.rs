//! The reverse: packets that are given outer headers, without any state.

use std::net::IpAddr;

use kaido_engine::fragment::split_v4_allowed;
use kaido_engine::{DropReason, Frame, IcmpError, Output, PortId};
use kaido_wire::ip::decrement_ttl;
use kaido_wire::{Error, EtherType, GreRepr, IpProtocol, Ipv4Repr, Ipv6Repr, ecn, gre, ipv4, ipv6, vlan};

use super::Gre;
use super::route::Head;
use crate::rules::{DontFragment, Encapsulation, ForwardingMode, Propagation};

/// Octets of Ethernet with the most tags.
const LINK_MAX: usize = 14 + 16;

/// What goes into the tunnel, and what stood before it.
struct Load {
    /// The Ethernet header that it came with.
    link: [u8; LINK_MAX],
    link_len: usize,
    protocol: EtherType,
    /// Of an IP packet.
    head: Option<Head>,
}

impl Load {
    fn link(&self) -> &[u8] {
        &self.link[..self.link_len]
    }
}

impl Gre {
    /// What is no tunnel packet: into a tunnel, or out of the peer port as it is.
    pub(super) fn other(&mut self, port: PortId, frame: Frame, out: &mut Output<'_>) {
        let rules = self.rules.clone();
        let tunnels = &rules.settings().encapsulations;
        let head = head_of(&frame);
        let found = tunnels.iter().position(|tunnel| {
            tunnel.port == port && (tunnel.ethernet || head.is_some()) && is_for(tunnel, head.as_ref())
        });
        let Some(at) = found else { return self.peer_port(port, frame, out) };
        self.counters.count(rules.place_of_encapsulation(at), frame.packet_len());
        self.encapsulate(&tunnels[at], port, head, frame, out);
    }

    fn encapsulate(
        &mut self,
        tunnel: &Encapsulation,
        port: PortId,
        head: Option<Head>,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        let Ok(found) = vlan::link(frame.data()) else {
            return out.drop(port, frame, DropReason::ETHERNET_MALFORMED);
        };
        let mut load = Load {
            link: [0; LINK_MAX],
            link_len: found.payload_offset.into(),
            protocol: found.ethertype,
            head,
        };
        load.link[..load.link_len].copy_from_slice(&frame.data()[..load.link_len]);
        if tunnel.ethernet {
            load.protocol = gre::TRANSPARENT_ETHERNET;
        } else {
            let len = load.head.map_or(0, |head| head.len);
            if !frame.strip(load.link_len) {
                return out.drop(port, frame, DropReason::IP_MALFORMED);
            }
            frame.truncate(len);
            if tunnel.forward == ForwardingMode::Route {
                if load.head.is_some_and(|head| head.hops <= 1) {
                    return self.too_far(port, &load, frame, out);
                }
                decrement_ttl(frame.data_mut());
            }
        }
        let room = self.room(tunnel, port);
        let overhead = overhead(tunnel);
        if frame.packet_len() + overhead <= room || may_cut_outer(tunnel, load.head.as_ref()) {
            return self.put_in(tunnel, port, &load, frame, room, out);
        }
        if !tunnel.ethernet && split_v4_allowed(frame.data()) {
            for part in self.cut(port, frame, room.saturating_sub(overhead), out) {
                self.put_in(tunnel, port, &load, part, room, out);
            }
            return;
        }
        match load.head.filter(|_| !tunnel.ethernet) {
            Some(head) => {
                let kind = IcmpError::TooBig(room.saturating_sub(overhead));
                self.send_icmp_error(port, kind, &head, Some(load.link()), frame, out);
            }
            None => out.drop(port, frame, DropReason::TOO_BIG),
        }
    }

    fn too_far(&mut self, port: PortId, load: &Load, frame: Frame, out: &mut Output<'_>) {
        match load.head {
            Some(head) => {
                self.send_icmp_error(port, IcmpError::TimeExceeded, &head, Some(load.link()), frame, out);
            }
            None => out.drop(port, frame, DropReason::TTL_EXPIRED),
        }
    }

    /// MTU towards the tunnel's remote end.
    fn room(&mut self, tunnel: &Encapsulation, port: PortId) -> usize {
        let to = match tunnel.forward {
            ForwardingMode::PeerPort => self.ports.get(port.index()).and_then(|port| port.peer_port),
            ForwardingMode::Route => match self.next_hops.resolve(tunnel.remote) {
                kaido_engine::Resolution::Ready(hop) => Some(hop.port),
                _ => None,
            },
        };
        to.map_or(usize::MAX, |to| self.mtu(to))
    }

    /// Puts the outer headers before a packet and sends it, in pieces if it must be.
    fn put_in(
        &mut self,
        tunnel: &Encapsulation,
        port: PortId,
        load: &Load,
        mut frame: Frame,
        room: usize,
        out: &mut Output<'_>,
    ) {
        if let Err(error) = self.put_outer(tunnel, load, &mut frame) {
            let reason = if error == Error::Range { DropReason::TOO_BIG } else { DropReason::NO_HEADROOM };
            return out.drop(port, frame, reason);
        }
        if frame.packet_len() <= room {
            return self.leave(tunnel, port, load, frame, out);
        }
        for part in self.cut(port, frame, room, out) {
            self.leave(tunnel, port, load, part, out);
        }
    }

    fn leave(
        &mut self,
        tunnel: &Encapsulation,
        port: PortId,
        load: &Load,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        if tunnel.forward == ForwardingMode::Route {
            return self.send(port, tunnel.remote, frame, out);
        }
        let Some(head) = frame.prepend(load.link_len) else {
            return out.drop(port, frame, DropReason::NO_HEADROOM);
        };
        let link = &mut head[..load.link_len];
        link.copy_from_slice(load.link());
        let ethertype = if tunnel.remote.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        link[load.link_len - 2..].copy_from_slice(&ethertype.0.to_be_bytes());
        self.peer_port(port, frame, out);
    }

    fn put_outer(&self, tunnel: &Encapsulation, load: &Load, frame: &mut Frame) -> Result<(), Error> {
        let header =
            GreRepr { protocol: load.protocol, checksum: tunnel.checksum, key: tunnel.key, sequence: None };
        header.emit(frame.prepend(header.len()).ok_or(Error::Truncated)?)?;
        if tunnel.checksum {
            let sum = !gre::sum_of(frame.segments());
            gre::set_checksum(frame.data_mut(), sum);
        }
        let inner = load.head.as_ref();
        let hops = inner.filter(|_| tunnel.ttl == Propagation::Uniform).map_or(tunnel.hops, |head| head.hops);
        let dscp =
            inner.filter(|_| tunnel.dscp == Propagation::Uniform).map_or(0, |head| head.tos & !ecn::MASK);
        let tos = dscp | inner.map_or(0, |head| head.tos & ecn::MASK);
        let payload_len = u16::try_from(frame.packet_len()).map_err(|_| Error::Range)?;
        match (tunnel.local, tunnel.remote) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let dont_fragment = !may_cut_outer(tunnel, inner);
                let identification = if dont_fragment { 0 } else { self.shared.identification() };
                #[allow(clippy::cast_possible_truncation)] // As many bits as the field has.
                let identification = identification as u16;
                let header = Ipv4Repr {
                    tos,
                    identification,
                    dont_fragment,
                    payload_len,
                    ..Ipv4Repr::whole([src, dst], IpProtocol::GRE, hops)
                };
                header.emit(frame.prepend(ipv4::HEADER_LEN).ok_or(Error::Truncated)?)?;
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = Ipv6Repr {
                    src,
                    dst,
                    next_header: IpProtocol::GRE,
                    hop_limit: hops,
                    traffic_class: tos,
                    flow_label: 0,
                    payload_len,
                };
                header.emit(frame.prepend(ipv6::HEADER_LEN).ok_or(Error::Truncated)?)?;
            }
            // Settings whose ends are of two families are refused.
            _ => return Err(Error::Version),
        }
        Ok(())
    }
}

/// The IP header of a frame, if it has one in good order.
fn head_of(frame: &Frame) -> Option<Head> {
    let link = vlan::link(frame.data()).ok()?;
    let offset = usize::from(link.payload_offset);
    let family = match link.ethertype {
        EtherType::IPV4 => 4,
        EtherType::IPV6 => 6,
        _ => return None,
    };
    let packet = frame.data().get(offset..)?;
    (*packet.first()? >> 4 == family).then(|| Head::read(packet, frame.packet_len() - offset))?
}

/// Whether a packet of these addresses goes into that tunnel.
fn is_for(tunnel: &Encapsulation, head: Option<&Head>) -> bool {
    let within = |prefix: Option<crate::rules::Prefix>, of: fn(&Head) -> IpAddr| {
        prefix.is_none_or(|prefix| head.is_some_and(|head| prefix.contains(of(head))))
    };
    within(tunnel.source, |head| head.source) && within(tunnel.destination, |head| head.destination)
}

fn overhead(tunnel: &Encapsulation) -> usize {
    let ip = if tunnel.remote.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
    ip + gre::HEADER_LEN + 4 * (usize::from(tunnel.checksum) + usize::from(tunnel.key.is_some()))
}

/// Whether the outer packet may be cut, here and on its path. Of IPv6 only here.
fn may_cut_outer(tunnel: &Encapsulation, inner: Option<&Head>) -> bool {
    match tunnel.dont_fragment {
        DontFragment::Set => false,
        DontFragment::Clear => true,
        DontFragment::Copy => inner.is_some_and(|head| !head.dont_fragment),
    }
}
