//! The straight way: packets of the usual shape, of sessions whose rules fold into their record.
//!
//! A frame is of the usual shape when it is untagged Ethernet, IPv4 without options or IPv6 without
//! extension headers, not a fragment, and, in a tunnel, GTP-U with nothing but perhaps a PDU session
//! container. Whatever is not, and whatever is not simply forwarded, takes the way of [`super::forward`],
//! which reads the frame again and knows all cases. Both ways give the same bytes: the shared vectors and
//! a property test say so.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_engine::{Frame, NextHops, PortId, Resolution};
use kaido_wire::{EtherType, IpProtocol, ethernet, gtpu, ipv4, ipv6, udp};

use super::Worker;
use super::emit;
use super::parse::{is_not_routed_v4, is_not_routed_v6};
use crate::node::{NodeSettings, WorkerEvent};
use crate::record::{Direction, EndpointId, InstanceId, Record, SessionKey, ShapeId, StraightWay};
use crate::rules::Teid;
use crate::usage::UsageSlot;

const IP_AT: usize = ethernet::HEADER_LEN;

/// What the first stage finds out about a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrived {
    pub(super) key: SessionKey,
    /// Octets before the user packet.
    offset: u16,
    /// Octets of the user packet and what may be behind it; in a packet to a UE nothing is.
    available: u16,
    /// Which way it goes if its record lets every packet go; none when the frame is not of the usual shape.
    way: StraightWay,
    pub(super) kind: Kind,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    /// Not of the usual shape.
    #[default]
    Unusual,
    /// Not of the usual shape, but with a key to look up.
    UnusualWithKey,
    /// Of the usual shape.
    Usual,
}

/// What the straight way knows of the node and its ports.
#[derive(Debug)]
pub(super) struct Ports {
    ports: Box<[PortFacts]>,
    /// The first IPv4 endpoint, which usually is the only one.
    endpoint_v4: Option<(u32, EndpointId)>,
    other_endpoints_v4: Box<[(u32, EndpointId)]>,
    own: Box<[IpAddr]>,
    /// Bit n: an own IPv4 address ends with octet n. Spares nearly every packet a walk through the list.
    own_last_octets: [u64; 4],
}

#[derive(Debug)]
struct PortFacts {
    /// The first octets of a frame to this port with IPv4 or IPv6 in it, [`HEAD_MASK`] applied.
    head_v4: u128,
    head_v6: u128,
    mac: [u8; 6],
    mtu: usize,
    gtpu: bool,
    instance: Option<InstanceId>,
}

/// Of the first 16 octets of a frame: destination, EtherType, IP version; in IPv4 also the header's length.
const HEAD_MASK: u128 = mask_of_head(0xff);
const HEAD_MASK_V6: u128 = mask_of_head(0xf0);

const fn mask_of_head(version: u8) -> u128 {
    u128::from_ne_bytes([0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff, version, 0])
}

fn head_of(mac: [u8; 6], ethertype: EtherType, version: u8) -> u128 {
    let mut head = [0; 16];
    head[..6].copy_from_slice(&mac);
    head[12..14].copy_from_slice(&ethertype.0.to_be_bytes());
    head[14] = version;
    u128::from_ne_bytes(head)
}

impl Ports {
    pub(super) fn new(settings: &NodeSettings) -> Self {
        let port_addresses = settings.ports.iter().flat_map(|port| &port.addresses);
        let own: Box<[IpAddr]> = port_addresses.chain(&settings.endpoints).copied().collect();
        let mut endpoints_v4 = (0u8..).zip(&settings.endpoints).filter_map(|(at, addr)| match addr {
            IpAddr::V4(addr) => Some((addr.to_bits(), EndpointId(at))),
            IpAddr::V6(_) => None,
        });
        let facts = settings.ports.iter().map(|port| PortFacts {
            head_v4: head_of(port.mac, EtherType::IPV4, 0x45),
            head_v6: head_of(port.mac, EtherType::IPV6, 0x60),
            mac: port.mac,
            mtu: port.mtu,
            gtpu: port.gtpu,
            instance: port.instance,
        });
        let mut own_last_octets = [0u64; 4];
        for addr in &own {
            if let IpAddr::V4(addr) = addr {
                let last = addr.octets()[3];
                own_last_octets[usize::from(last >> 6)] |= 1 << (last & 63);
            }
        }
        Self {
            ports: facts.collect(),
            endpoint_v4: endpoints_v4.next(),
            other_endpoints_v4: endpoints_v4.collect(),
            own_last_octets,
            own,
        }
    }

    /// Octets before a frame that will be written when it leaves: packets to UEs get longer.
    #[inline]
    pub(super) fn headers_ahead(&self, port: PortId) -> usize {
        if self.ports[port.index()].gtpu { 0 } else { 64 }
    }

    /// Whether a packet to an IPv4 address is to be forwarded.
    #[inline(always)]
    fn is_routed_v4(&self, addr: u32) -> bool {
        let maybe_own = self.own_last_octets[(addr >> 6 & 3) as usize] >> (addr & 63) & 1 != 0;
        !(is_not_routed_v4(addr) || maybe_own && self.is_own(Ipv4Addr::from_bits(addr).into()))
    }

    /// Whether a packet to an IPv6 address is to be forwarded.
    #[inline(always)]
    fn is_routed_v6(&self, addr: u128) -> bool {
        !is_not_routed_v6(addr) && !self.is_own(Ipv6Addr::from_bits(addr).into())
    }

    #[cold]
    fn is_own(&self, addr: IpAddr) -> bool {
        self.own.contains(&addr)
    }

    #[inline(always)]
    fn endpoint_v4(&self, addr: u32) -> Option<EndpointId> {
        match self.endpoint_v4 {
            Some((own, id)) if own == addr => Some(id),
            Some(_) => self.other_endpoint_v4(addr),
            None => None,
        }
    }

    #[cold]
    fn other_endpoint_v4(&self, addr: u32) -> Option<EndpointId> {
        self.other_endpoints_v4.iter().find(|(own, _)| *own == addr).map(|(_, id)| *id)
    }

    /// Reads a frame; leaves `arrived` as it is when the frame is not of the usual shape.
    #[inline(always)]
    pub(super) fn read(&self, port: PortId, frame: &Frame, arrived: &mut Arrived) {
        if !frame.is_chained() {
            // Nothing is a frame that is not of the usual shape.
            let _ = self.read_usual(port, frame.data(), arrived);
        }
    }

    #[inline(always)]
    fn read_usual(&self, port: PortId, data: &[u8], arrived: &mut Arrived) -> Option<()> {
        let facts = &self.ports[port.index()];
        let head = u128::from_ne_bytes(*data.first_chunk::<16>()?);
        let packet = &data[IP_AT..];
        if head & HEAD_MASK == facts.head_v4 {
            let header = packet.first_chunk::<{ ipv4::HEADER_LEN }>()?;
            let total = usual_ipv4(header, packet.len())?;
            let dst = be32(header, 16);
            if facts.gtpu
                && header[9] == IpProtocol::UDP.0
                && let Some(endpoint) = self.endpoint_v4(dst)
            {
                // A fragment carries no tunnel header of its own.
                let is_whole = be16(header, 6) & 0x3fff == 0;
                return if is_whole { read_tunnelled(endpoint, packet, total, arrived) } else { None };
            }
            let instance = facts.instance?;
            if header[8] <= 1 || !self.is_routed_v4(dst) {
                return None;
            }
            arrived.key = SessionKey::ipv4(instance, Ipv4Addr::from_bits(dst));
            arrived.available = total;
        } else {
            let header = packet.first_chunk::<{ ipv6::HEADER_LEN }>()?;
            let total = usual_ipv6(header, packet.len())?;
            let dst = be128(header, 24);
            let instance = facts.instance?;
            let maybe_tunnel = facts.gtpu && header[6] == IpProtocol::UDP.0;
            let is_ipv6 = head & HEAD_MASK_V6 == facts.head_v6;
            if !is_ipv6 || header[7] <= 1 || maybe_tunnel || !self.is_routed_v6(dst) {
                return None;
            }
            arrived.key = SessionKey::ipv6(instance, Ipv6Addr::from_bits(dst));
            arrived.available = total;
        }
        #[allow(clippy::cast_possible_truncation)] // 14.
        let offset = IP_AT as u16;
        arrived.offset = offset;
        arrived.way = StraightWay::DOWN;
        arrived.kind = Kind::Usual;
        Some(())
    }
}

/// Reads UDP and GTP-U behind an IPv4 header of 20 octets; the packet has `total` octets.
#[inline(always)]
fn read_tunnelled(endpoint: EndpointId, packet: &[u8], total: u16, arrived: &mut Arrived) -> Option<()> {
    const UDP_AT: usize = ipv4::HEADER_LEN;
    const GTPU_AT: usize = UDP_AT + udp::HEADER_LEN;
    const PLAIN: u16 = 0x30ff;
    const WITH_EXTENSION: u16 = 0x34ff;
    // Of both forms the shorter, and the octets that make the longer.
    let head = packet.first_chunk::<{ GTPU_AT + gtpu::HEADER_LEN }>()?;
    let length = be16(head, GTPU_AT + 2);
    let teid = be32(head, GTPU_AT + 4);
    // Usually nothing follows the inmost packet: then all lengths say the same.
    let lengths_agree = usize::from(length) + GTPU_AT + gtpu::HEADER_LEN == usize::from(total)
        && usize::from(be16(head, UDP_AT + 4)) + UDP_AT == usize::from(total);
    if !lengths_agree || be16(head, UDP_AT + 2) != gtpu::UDP_PORT {
        return None;
    }
    let consumed = match be16(head, GTPU_AT) {
        PLAIN => 0,
        WITH_EXTENSION => {
            let more = packet[GTPU_AT + gtpu::HEADER_LEN..].first_chunk::<8>()?;
            // Next type; one unit of four octets; and no further one.
            let is_container = more[3] == gtpu::extension_type::PDU_SESSION_CONTAINER;
            if !is_container || more[4] != 1 || more[7] != gtpu::extension_type::NONE || length < 8 {
                return None;
            }
            8
        }
        _ => return None,
    };
    #[allow(clippy::cast_possible_truncation)] // 50.
    let offset = (ethernet::HEADER_LEN + GTPU_AT + gtpu::HEADER_LEN) as u16;
    arrived.key = SessionKey::tunnel(endpoint, Teid(teid));
    arrived.offset = offset + consumed;
    arrived.available = length - consumed;
    arrived.way = StraightWay::UP;
    arrived.kind = Kind::Usual;
    Some(())
}

/// The total length of an IPv4 packet without options, whose header is in order.
#[inline(always)]
fn usual_ipv4(header: &[u8; ipv4::HEADER_LEN], available: usize) -> Option<u16> {
    let total = be16(header, 2);
    // In the machine's own order, eight octets a step: the sum is the same in any (RFC 1071 2 (B)).
    let (sum, carry) = ne64(header, 0).overflowing_add(ne64(header, 8));
    let last = u64::from(u32::from_ne_bytes([header[16], header[17], header[18], header[19]]));
    let (sum, carried) = sum.overflowing_add(last + u64::from(carry));
    let sum = (sum >> 32) + (sum & 0xffff_ffff) + u64::from(carried);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let in_order = header[0] == 0x45 && total >= 20 && usize::from(total) <= available && sum == 0xffff;
    in_order.then_some(total)
}

/// The total length of an IPv6 packet without extension headers, whose header is in order.
#[inline(always)]
fn usual_ipv6(header: &[u8; ipv6::HEADER_LEN], available: usize) -> Option<u16> {
    let total = be16(header, 4).checked_add(40)?;
    let plain = matches!(IpProtocol(header[6]), IpProtocol::TCP | IpProtocol::UDP | IpProtocol::ICMPV6);
    // A length of zero would announce a jumbogram, or nothing at all.
    (header[0] >> 4 == 6 && plain && total > 40 && usize::from(total) <= available).then_some(total)
}

impl Worker {
    /// Makes a packet of the usual shape ready to leave, and says from which port. `None`, with the frame
    /// unchanged, when this is not so simple.
    #[inline(always)]
    pub(super) fn straight(
        &mut self,
        record: &Record,
        arrived: &Arrived,
        frame: &mut Frame,
    ) -> Option<PortId> {
        if !record.is_straight(arrived.way) || self.may_overtake(record) {
            return None;
        }
        let is_up = arrived.way == StraightWay::UP;
        let packet = frame.data().get(usize::from(arrived.offset)..)?;
        let available = usize::from(arrived.available).min(packet.len());
        let (to, total) = if packet.first()? >> 4 == 4 {
            let header = packet.first_chunk::<{ ipv4::HEADER_LEN }>()?;
            let dst = be32(header, 16);
            let mut total = arrived.available;
            if is_up {
                total = usual_ipv4(header, available)?;
                let own_source = record.admits_ipv4(be32(header, 12));
                if header[8] <= 1 || !own_source || !self.ports.is_routed_v4(dst) {
                    return None;
                }
            }
            (self.send_on::<V4>(record, arrived, total, dst, frame)?, total)
        } else {
            let header = packet.first_chunk::<{ ipv6::HEADER_LEN }>()?;
            let dst = be128(header, 24);
            let mut total = arrived.available;
            if is_up {
                total = usual_ipv6(header, available)?;
                let own_source = record.admits_ipv6(be64(header, 8));
                if header[7] <= 1 || !own_source || !self.ports.is_routed_v6(dst) {
                    return None;
                }
            }
            (self.send_on::<V6>(record, arrived, total, dst, frame)?, total)
        };
        self.count_folded(record, if is_up { Direction::Uplink } else { Direction::Downlink }, total);
        Some(to)
    }

    /// Puts before a packet what stands before it on its way, with one hop less to go.
    #[inline(always)]
    fn send_on<F: Family>(
        &mut self,
        record: &Record,
        arrived: &Arrived,
        total: u16,
        dst: F::Address,
        frame: &mut Frame,
    ) -> Option<PortId> {
        let offset = usize::from(arrived.offset);
        if let Some((id, teid)) = record.folded_tunnel() {
            let Some(prepared) = self.prepared.get(id) else {
                self.prepare(id);
                return None;
            };
            if total > prepared.packet_max {
                return None;
            }
            prepared.template.write(teid, frame, offset, total.into(), |packet| {
                F::take_hop(packet);
                F::entropy(packet)
            })?;
            Some(prepared.port)
        } else {
            let Resolution::Ready(hop) = F::resolve(&mut self.next_hops, dst) else { return None };
            let exit = &self.ports.ports[hop.port.index()];
            if usize::from(total) > exit.mtu {
                return None;
            }
            let (header, packet) = frame.exchange_front::<IP_AT>(offset, total.into())?;
            header[..6].copy_from_slice(&hop.mac);
            header[6..12].copy_from_slice(&exit.mac);
            header[12..].copy_from_slice(&F::ETHERTYPE.0.to_be_bytes());
            F::take_hop(packet);
            Some(hop.port)
        }
    }

    #[inline(always)]
    fn count_folded(&mut self, record: &Record, direction: Direction, total: u16) {
        let shared = self.node.settings.workers_share_sessions;
        if let [first, others @ ..] = record.folded_usage() {
            if self.node.usage.count(*first, direction, total.into(), shared) {
                self.threshold(record, *first);
            }
            if !others.is_empty() {
                self.count_others(record, others, direction, total);
            }
        }
    }

    /// The counters behind the first.
    #[inline(never)]
    fn count_others(&mut self, record: &Record, others: &[UsageSlot], direction: Direction, total: u16) {
        let shared = self.node.settings.workers_share_sessions;
        for &slot in others {
            if self.node.usage.count(slot, direction, total.into(), shared) {
                self.threshold(record, slot);
            }
        }
    }

    #[cold]
    fn threshold(&mut self, record: &Record, slot: UsageSlot) {
        self.tell(WorkerEvent::Threshold { session: record.session(), slot });
    }

    #[cold]
    fn prepare(&mut self, id: ShapeId) {
        if let Some(shape) = self.node.tunnels.shape(id) {
            self.prepared.prepare(id, shape, &self.node.settings, &mut self.next_hops);
        }
    }

    /// Whether a packet of this session could overtake one that waits: for the control plane to release it, or
    /// for a next hop that may be known by now.
    #[inline(always)]
    fn may_overtake(&self, record: &Record) -> bool {
        self.buffers.holds(record.session()) || self.is_pending_known()
    }
}

/// What differs between the families of user packets.
trait Family {
    type Address: Copy;
    const ETHERTYPE: EtherType;

    fn resolve(next_hops: &mut NextHops, dst: Self::Address) -> Resolution;
    fn entropy(packet: &[u8]) -> u16;
    fn take_hop(packet: &mut [u8]);
}

struct V4;
struct V6;

impl Family for V4 {
    type Address = u32;
    const ETHERTYPE: EtherType = EtherType::IPV4;

    #[inline(always)]
    fn resolve(next_hops: &mut NextHops, dst: u32) -> Resolution {
        next_hops.resolve_v4(dst)
    }

    #[inline(always)]
    fn entropy(packet: &[u8]) -> u16 {
        emit::entropy_port_usual_v4(packet)
    }

    #[inline(always)]
    fn take_hop(packet: &mut [u8]) {
        emit::take_hop_v4(packet);
    }
}

impl Family for V6 {
    type Address = u128;
    const ETHERTYPE: EtherType = EtherType::IPV6;

    #[inline(always)]
    fn resolve(next_hops: &mut NextHops, dst: u128) -> Resolution {
        next_hops.resolve_v6(dst)
    }

    #[inline(always)]
    fn entropy(packet: &[u8]) -> u16 {
        emit::entropy_port_v6(packet)
    }

    #[inline(always)]
    fn take_hop(packet: &mut [u8]) {
        emit::take_hop_v6(packet);
    }
}

#[inline(always)]
fn be16(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

#[inline(always)]
fn be32(octets: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}

#[inline(always)]
fn ne64(octets: &[u8], at: usize) -> u64 {
    be64(octets, at).to_be()
}

#[inline(always)]
fn be64(octets: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&octets[at..at + 8]);
    u64::from_be_bytes(word)
}

#[inline(always)]
fn be128(octets: &[u8], at: usize) -> u128 {
    u128::from(be64(octets, at)) << 64 | u128::from(be64(octets, at + 8))
}
