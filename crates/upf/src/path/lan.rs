//! The worker's side of N6 LANs: frames in and out with tags, and finding neighbours.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use kaido_engine::{DropReason, Frame, IcmpError, Output, PortId, RateLimit, write_icmp_error};
use kaido_table::Guard;
use kaido_wire::layout::{self, EthernetFields};
use kaido_wire::ndisc::{self, NdiscRepr};
use kaido_wire::{
    ArpOperation, ArpRepr, ArpView, EtherType, IpProtocol, Ipv6Repr, Link, MacAddr, ethernet, icmpv6, ipv6,
};

use super::Worker;
use super::charge::{Charge, SendResult};
use super::parse::{Packet, PacketFault, ParsedFrame, is_not_routed};
use crate::key::SessionKey;
use crate::lan::{LanId, NeighbourLookup, VlanTags};
use crate::node::NodeSettings;

/// How long a worker relies on what it once looked up.
const CACHED_FOR: Duration = Duration::from_secs(10);
/// Neighbours that a worker remembers; more begin anew.
const CACHED_MAX: usize = 16_384;
/// Packets of one worker that wait for neighbours.
const PENDING_MAX: usize = 1024;
/// Packets that wait for one neighbour (RFC 4861 7.2.2).
const PENDING_PER_NEIGHBOUR: usize = 3;
/// Longest wait: three probes of a second each (RFC 4861 10).
const PENDING_TIME_MAX: Duration = Duration::from_secs(3);
/// Neighbours asked for per second and worker: a scan of a LAN asks no more.
const ASKED_PER_SECOND: u32 = 1000;

/// An IP packet that waits for a neighbour's Ethernet address.
#[derive(Debug)]
struct WaitingPacket {
    frame: Frame,
    from: PortId,
    lan: LanId,
    next_hop: IpAddr,
    charge: Option<Charge>,
    since: Instant,
}

/// A worker's neighbours in LANs, and what waits for them.
#[derive(Debug)]
pub(super) struct LanHops {
    known: HashMap<(LanId, IpAddr), ([u8; 6], Instant)>,
    /// Of the shared neighbours, when `known` was begun.
    generation: u64,
    waiting: VecDeque<WaitingPacket>,
    asked: RateLimit,
}

impl LanHops {
    pub(super) fn new() -> Self {
        Self {
            known: HashMap::new(),
            generation: 0,
            waiting: VecDeque::new(),
            asked: RateLimit::new(ASKED_PER_SECOND),
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The Ethernet address, if it was looked up not long ago and nothing has changed since.
    fn recall(&mut self, generation: u64, neighbour: (LanId, IpAddr), now: Instant) -> Option<[u8; 6]> {
        if generation != self.generation || self.known.len() > CACHED_MAX {
            self.known.clear();
            self.generation = generation;
        }
        self.known(generation, neighbour, now)
    }

    /// As [`LanHops::recall`], and forgets nothing.
    #[inline]
    pub(super) fn known(&self, generation: u64, neighbour: (LanId, IpAddr), now: Instant) -> Option<[u8; 6]> {
        let is_as_then = generation == self.generation;
        self.known.get(&neighbour).filter(|(_, until)| is_as_then && now < *until).map(|(mac, _)| *mac)
    }
}

/// Reads a tagged frame.
#[cold]
pub(super) fn parse_tagged(settings: &NodeSettings, port: PortId, link: &Link, frame: &Frame) -> ParsedFrame {
    let Some((id, lan)) = settings.lans.of_frame(port, link) else { return ParsedFrame::Kernel };
    let offset = usize::from(link.payload_offset);
    let first = &frame.data()[offset..];
    match link.ethertype {
        EtherType::ARP => return ParsedFrame::Lan(id, offset),
        EtherType::IPV4 | EtherType::IPV6 => {}
        _ => return ParsedFrame::Drop(DropReason::NOT_OURS),
    }
    let packet = match Packet::read(first, frame.packet_len() - offset) {
        Ok(packet) => packet,
        Err(PacketFault::Malformed) => return ParsedFrame::Drop(DropReason::IP_MALFORMED),
        Err(PacketFault::Checksum) => return ParsedFrame::Drop(DropReason::IP_CHECKSUM),
    };
    if packet.dst.is_ipv4() != (link.ethertype == EtherType::IPV4) {
        return ParsedFrame::Drop(DropReason::IP_MALFORMED);
    }
    let is_discovery = packet.protocol == IpProtocol::ICMPV6
        && first.get(packet.upper_offset).is_some_and(|kind| matches!(kind, 135 | 136));
    if is_discovery {
        return ParsedFrame::Lan(id, offset);
    }
    let is_for_us = link.dst.0 == settings.ports[port.index()].mac;
    if !is_for_us || lan.is_own(packet.dst) || is_not_routed(packet.dst) {
        return ParsedFrame::Drop(DropReason::NOT_OURS);
    }
    ParsedFrame::ToUe(SessionKey::ue(lan.instance, packet.dst), packet, offset)
}

impl Worker {
    /// Sends an IP packet into a LAN, or keeps it until its next hop has answered.
    pub(super) fn send_to_lan(
        &mut self,
        id: LanId,
        destination: IpAddr,
        from: PortId,
        frame: Frame,
        charge: Option<Charge>,
        out: &mut Output<'_>,
    ) -> SendResult {
        let next_hop = self.node.settings.lans.get(id).and_then(|lan| lan.next_hop(destination));
        let Some(next_hop) = next_hop else {
            out.drop(from, frame, DropReason::NO_ROUTE);
            return SendResult::Dropped;
        };
        match self.lan_neighbour(id, next_hop, from, out) {
            Some(mac) => self.transmit_tagged(id, mac, from, frame, out),
            None => {
                let waiting = &mut self.lan_hops.waiting;
                let same =
                    waiting.iter().filter(|other| other.lan == id && other.next_hop == next_hop).count();
                if waiting.len() >= PENDING_MAX || same >= PENDING_PER_NEIGHBOUR {
                    out.drop(from, frame, DropReason::NEXT_HOP_UNRESOLVED);
                    return SendResult::Dropped;
                }
                waiting.push_back(WaitingPacket { frame, from, lan: id, next_hop, charge, since: out.now() });
                SendResult::Waits
            }
        }
    }

    /// The Ethernet address of a neighbour, which is asked for where it is not known.
    fn lan_neighbour(
        &mut self,
        id: LanId,
        address: IpAddr,
        from: PortId,
        out: &mut Output<'_>,
    ) -> Option<[u8; 6]> {
        let now = out.now();
        let generation = self.node.lan_neighbours.generation();
        if let Some(mac) = self.lan_hops.recall(generation, (id, address), now) {
            return Some(mac);
        }
        let fixed = &self.node.settings.lans.get(id)?.neighbours;
        let found = match fixed.iter().find(|(fixed, _)| *fixed == address) {
            Some(&(_, mac)) => NeighbourLookup { mac: Some(mac), ask: false },
            None => self.node.lan_neighbours.look(id, address, now),
        };
        if found.ask && self.lan_hops.asked.admit(now) {
            self.solicit(id, address, from, out);
        }
        if let Some(mac) = found.mac {
            self.lan_hops.known.insert((id, address), (mac, now + CACHED_FOR));
        }
        found.mac
    }

    /// Asks for a neighbour.
    fn solicit(&mut self, id: LanId, target: IpAddr, from: PortId, out: &mut Output<'_>) {
        let node = self.node.clone();
        let Some(lan) = node.settings.lans.get(id) else { return };
        let Some(source) = lan.address(target) else { return };
        let mac = MacAddr(self.role(lan.port).mac);
        let Some(mut frame) = out.allocate() else { return out.count_drop(from, DropReason::NO_FRAME) };
        let (written, to) = match (source, target) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                let request = ArpRepr {
                    operation: ArpOperation::Request,
                    sender_mac: mac,
                    sender_ip: source,
                    target_mac: MacAddr([0; 6]),
                    target_ip: target,
                };
                (write_arp(&request, &mut frame), MacAddr::BROADCAST)
            }
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                let group = ndisc::solicited_node(target);
                let message = NdiscRepr::NeighborSolicitation { target, source_link: Some(mac) };
                (write_ndisc(&message, source, group, &mut frame), ndisc::multicast_mac(group))
            }
            _ => (None, MacAddr::BROADCAST),
        };
        match written {
            Some(ethertype) => {
                self.transmit_of_type(id, ethertype, to.0, from, frame, out);
            }
            None => out.release(frame),
        }
    }

    /// ARP and neighbour discovery of a LAN, `offset` octets into the frame: answers are learned, questions for the
    /// node and for its UEs there are answered.
    #[cold]
    pub(super) fn lan_control(
        &mut self,
        guard: &Guard<'_>,
        id: LanId,
        offset: usize,
        port: PortId,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        if !frame.strip(offset) {
            return out.drop(port, frame, DropReason::ETHERNET_MALFORMED);
        }
        let Some(NeighbourMessage { sender, target, answer }) = hear(frame.data(), frame.packet_len()) else {
            return out.drop(port, frame, DropReason::NOT_OURS);
        };
        if let Some((address, mac)) = sender {
            self.node.lan_neighbours.learn(id, address, mac, out.now());
        }
        if let (Some(to), Some((_, mac))) = (answer, sender)
            && self.answers_for(guard, id, target)
        {
            self.advertise(id, target, to, mac, port, out);
        }
        out.release(frame);
        self.retry_lans(out);
    }

    /// Whether the node has an address in a LAN, itself or for a UE.
    fn answers_for(&self, guard: &Guard<'_>, id: LanId, target: IpAddr) -> bool {
        let lan = self.node.settings.lans.get(id);
        lan.is_some_and(|lan| {
            lan.is_own(target) || self.node.table.get(guard, &SessionKey::ue(lan.instance, target)).is_some()
        })
    }

    /// Tells a neighbour that an address is here.
    fn advertise(
        &mut self,
        id: LanId,
        target: IpAddr,
        to: IpAddr,
        to_mac: [u8; 6],
        from: PortId,
        out: &mut Output<'_>,
    ) {
        if !self.lan_hops.asked.admit(out.now()) {
            return;
        }
        let Some(lan) = self.node.settings.lans.get(id) else { return };
        let mac = MacAddr(self.role(lan.port).mac);
        let Some(mut frame) = out.allocate() else { return out.count_drop(from, DropReason::NO_FRAME) };
        let written = match (target, to) {
            (IpAddr::V4(target), IpAddr::V4(to)) => {
                let reply = ArpRepr {
                    operation: ArpOperation::Reply,
                    sender_mac: mac,
                    sender_ip: target,
                    target_mac: MacAddr(to_mac),
                    target_ip: to,
                };
                write_arp(&reply, &mut frame)
            }
            (IpAddr::V6(target), IpAddr::V6(to)) => {
                let message = NdiscRepr::NeighborAdvertisement {
                    router: true,
                    solicited: true,
                    override_cache: true,
                    target,
                    target_link: Some(mac),
                };
                write_ndisc(&message, target, to, &mut frame)
            }
            _ => None,
        };
        match written {
            Some(ethertype) => {
                self.transmit_of_type(id, ethertype, to_mac, from, frame, out);
            }
            None => out.release(frame),
        }
    }

    /// Tries the packets again that wait for neighbours. Those that leave are charged.
    pub(super) fn retry_lans(&mut self, out: &mut Output<'_>) {
        for waiting in std::mem::take(&mut self.lan_hops.waiting) {
            let WaitingPacket { from, lan, next_hop, since, .. } = waiting;
            match self.lan_neighbour(lan, next_hop, from, out) {
                Some(mac) => {
                    self.after_waiting(waiting.charge, from, waiting.frame, out, |worker, frame, out| {
                        worker.transmit_tagged(lan, mac, from, frame, out)
                    });
                }
                None if out.now().saturating_duration_since(since) > PENDING_TIME_MAX => {
                    out.drop(from, waiting.frame, DropReason::NEXT_HOP_UNRESOLVED);
                }
                None => self.lan_hops.waiting.push_back(waiting),
            }
        }
    }

    fn transmit_tagged(
        &mut self,
        id: LanId,
        mac: [u8; 6],
        from: PortId,
        frame: Frame,
        out: &mut Output<'_>,
    ) -> SendResult {
        let ethertype = match frame.data().first().map(|octet| octet >> 4) {
            Some(6) => EtherType::IPV6,
            _ => EtherType::IPV4,
        };
        self.transmit_of_type(id, ethertype, mac, from, frame, out)
    }

    fn transmit_of_type(
        &mut self,
        id: LanId,
        ethertype: EtherType,
        mac: [u8; 6],
        from: PortId,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) -> SendResult {
        let Some(lan) = self.node.settings.lans.get(id) else {
            out.drop(from, frame, DropReason::NO_ROUTE);
            return SendResult::Dropped;
        };
        let role = self.role(lan.port);
        let reason = if frame.packet_len() > role.mtu {
            DropReason::TOO_BIG
        } else if tagged(&mut frame, lan.tags, role.mac, mac, ethertype).is_some() {
            out.transmit(lan.port, frame);
            return SendResult::Left;
        } else {
            DropReason::NO_HEADROOM
        };
        out.drop(from, frame, reason);
        SendResult::Dropped
    }

    /// As [`Worker::send_icmp_error`], of a packet that came out of a LAN.
    #[cold]
    pub(super) fn send_icmp_error_to_lan(
        &mut self,
        id: LanId,
        port: PortId,
        kind: IcmpError,
        packet: &Packet,
        offending: Frame,
        out: &mut Output<'_>,
    ) {
        let source = self.node.settings.lans.get(id).and_then(|lan| lan.address(packet.src));
        let fragmentable = matches!(kind, IcmpError::TooBig(_)) && !packet.dont_fragment;
        if let Some(source) = source.filter(|_| !fragmentable && self.icmp_errors.admit(out.now())) {
            match out.allocate() {
                Some(mut frame) => {
                    if write_icmp_error(&mut frame, source, packet.src, kind, offending.data()) {
                        self.send_to_lan(id, packet.src, port, frame, None, out);
                    } else {
                        out.release(frame);
                    }
                }
                None => out.count_drop(port, DropReason::NO_FRAME),
            }
        }
        out.drop(port, offending, kind.reason());
    }
}

/// Puts Ethernet addresses and tags before what the frame holds; `None` when they do not fit.
fn tagged(frame: &mut Frame, tags: VlanTags, src: [u8; 6], dst: [u8; 6], ethertype: EtherType) -> Option<()> {
    let (header, len) = tags.header(ethertype);
    let head = frame.prepend(ethernet::TYPE_AT + len)?;
    let mut addresses = EthernetFields::new(layout::at_mut(head, 0));
    addresses.set_dst(dst);
    addresses.set_src(src);
    head[ethernet::TYPE_AT..ethernet::TYPE_AT + len].copy_from_slice(&header[..len]);
    Some(())
}

pub(super) fn write_arp(packet: &ArpRepr, frame: &mut Frame) -> Option<EtherType> {
    packet.emit(frame.append(packet.len())?).ok()?;
    Some(EtherType::ARP)
}

pub(super) fn write_ndisc(
    message: &NdiscRepr,
    src: Ipv6Addr,
    dst: Ipv6Addr,
    frame: &mut Frame,
) -> Option<EtherType> {
    let header = Ipv6Repr {
        src,
        dst,
        next_header: IpProtocol::ICMPV6,
        hop_limit: ndisc::HOP_LIMIT,
        traffic_class: 0,
        flow_label: 0,
        payload_len: u16::try_from(message.len()).ok()?,
    };
    let space = frame.append(ipv6::HEADER_LEN + message.len())?;
    space.fill(0);
    header.emit(space).ok()?;
    message.emit(src, dst, &mut space[ipv6::HEADER_LEN..]).ok()?;
    Some(EtherType::IPV6)
}

/// What a message about neighbours says.
pub(super) struct NeighbourMessage {
    /// Who speaks, and where it is.
    pub(super) sender: Option<(IpAddr, [u8; 6])>,
    /// Whom it is about.
    pub(super) target: IpAddr,
    /// Whom to answer, if it is a question.
    pub(super) answer: Option<IpAddr>,
}

/// Reads ARP, or neighbour discovery in IPv6 as RFC 4861 7.1 validates it.
pub(super) fn hear(first: &[u8], available: usize) -> Option<NeighbourMessage> {
    if first.first()? >> 4 != 6 {
        let view = ArpView::new_checked(first).ok()?;
        let arp = ArpRepr::parse(&view).ok()?;
        let known = !arp.sender_ip.is_unspecified() && !arp.sender_mac.is_multicast();
        let sender = known.then_some((arp.sender_ip.into(), arp.sender_mac.0));
        let answer = (arp.operation == ArpOperation::Request && known).then_some(arp.sender_ip.into());
        return Some(NeighbourMessage { sender, target: arp.target_ip.into(), answer });
    }
    let packet = Packet::read(first, available).ok().filter(|packet| packet.ttl == ndisc::HOP_LIMIT)?;
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (packet.src, packet.dst) else { return None };
    let message = first.get(packet.upper_offset..packet.total_len)?;
    let view = icmpv6::Icmpv6View::new_checked(message).ok().filter(|view| view.verify_checksum(src, dst))?;
    match NdiscRepr::parse(&view).ok()? {
        NdiscRepr::NeighborSolicitation { target, source_link } => {
            let sender = source_link.filter(|mac| !mac.is_multicast() && !src.is_unspecified());
            let sender = sender.map(|mac| (src.into(), mac.0));
            Some(NeighbourMessage {
                sender,
                target: target.into(),
                answer: sender.map(|(address, _)| address),
            })
        }
        NdiscRepr::NeighborAdvertisement { target, target_link, .. } => {
            let sender = target_link.filter(|mac| !mac.is_multicast()).map(|mac| (target.into(), mac.0));
            Some(NeighbourMessage { sender, target: target.into(), answer: None })
        }
    }
}

/// The LAN that a packet to a UE came out of.
pub(super) fn lan_of(settings: &NodeSettings, key: &SessionKey) -> Option<LanId> {
    if settings.lans.is_empty() || key.is_tunnel() { None } else { settings.lans.of_instance(key.instance()) }
}

#[cfg(test)]
mod tests {
    use kaido_wire::vlan;

    use super::*;

    #[test]
    fn broken_messages_about_neighbours_say_nothing() {
        let mut arp = [0; 28];
        ArpRepr {
            operation: ArpOperation::Request,
            sender_mac: MacAddr([2; 6]),
            sender_ip: [10, 0, 0, 1].into(),
            target_mac: MacAddr([0; 6]),
            target_ip: [10, 0, 0, 2].into(),
        }
        .emit(&mut arp)
        .unwrap();
        let heard = hear(&arp, arp.len()).unwrap();
        assert_eq!(heard.sender, Some(([10, 0, 0, 1].into(), [2; 6])));
        assert_eq!((heard.target, heard.answer), ([10, 0, 0, 2].into(), Some([10, 0, 0, 1].into())));
        for end in 0..arp.len() {
            assert!(hear(&arp[..end], end).is_none(), "{end}");
        }
        arp[8] = 3; // A sender with a group address.
        assert!(hear(&arp, arp.len()).unwrap().answer.is_none());
    }

    #[test]
    fn tags_lie_between_addresses_and_packet() {
        let pool = kaido_engine::FramePool::leak(2).unwrap();
        let mut frame = pool.allocate().unwrap();
        assert!(frame.set(&[0x45; 20]));
        let tags = VlanTags { outer: 100, inner: Some(200) };
        tagged(&mut frame, tags, [1; 6], [2; 6], EtherType::IPV4).unwrap();
        let link = vlan::link(frame.data()).unwrap();
        assert_eq!((link.dst.0, link.src.0, link.ethertype), ([2; 6], [1; 6], EtherType::IPV4));
        assert_eq!((link.vid(0), link.vid(1), link.payload_offset), (Some(100), Some(200), 22));
    }
}
