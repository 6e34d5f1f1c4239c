//! The fast path: packets eligible for the fast path, of sessions whose rules fold into their record.
//!
//! [`super::read`] says which packets are eligible. All other packets, and those that are not simply forwarded, take the slow path in
//! [`super::forward`], which reads the frame again and knows all cases. Both paths give the same bytes: the shared vectors and
//! a property test say so. Where a whole group of packets takes the same path, IPv4 packets of simple records have loops of their
//! own, with the pieces of the fast path and nothing between them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_engine::{Frame, NextHop, NextHops, PortId, VrfId};
use kaido_wire::layout::{self, EthernetFields, Ipv4Fields, Ipv6Fields, UdpFields};
use kaido_wire::vlan::TAG_LEN;
use kaido_wire::{EtherType, IpProtocol, ecn, ethernet, gtpu, ip, ipv4};

use super::Worker;
use super::emit::FlowFields;
use super::group::Exit;
use super::mss::may_be_syn;
use super::read::{FrameHead, IP_AT};
use super::select::{TUNNELLED_AT, qfi_of};
use crate::lan::LanId;
use crate::node::{Node, WorkerEvent};
use crate::record::{CommonForward, FastPath, Meters, Record};
use crate::tunnels::EncapTemplateId;
use crate::ue::Direction;
use crate::usage::{UsageCounters, UsageSlot};

impl Worker {
    /// Makes a packet eligible for the fast path ready to leave, and says from which port. None, with the frame
    /// unchanged, when this is not so simple.
    #[inline(never)]
    pub(super) fn fast(&mut self, record: &Record, arrived: &FrameHead, frame: &mut Frame) -> Exit {
        if record.folded_rates().is_empty() {
            return self.fast_at_any_rate(record, arrived, frame).into();
        }
        self.fast_within_rate(record, arrived, frame)
    }

    #[inline(always)]
    pub(super) fn fast_at_any_rate(
        &mut self,
        record: &Record,
        arrived: &FrameHead,
        frame: &mut Frame,
    ) -> Option<PortId> {
        if !record.is_fast(arrived.fast_path) || (record.has_folded_quotas() && self.is_used_up(record)) {
            return None;
        }
        if record.folded_qfi().is_some_and(|qfi| qfi_of(arrived, frame) != Some(qfi)) {
            return None;
        }
        if self.ports.is_marked(arrived) && !take_marks(arrived, frame) {
            return None;
        }
        let packet = frame.data().get(usize::from(arrived.offset)..)?;
        if self.mss_clamp.is_some() && may_be_syn(packet) {
            return None;
        }
        let is_ipv4 = packet.first()? >> 4 == 4;
        if arrived.fast_path == FastPath::UP {
            if is_ipv4 {
                let (total, dst) = self.fast_from_ue_v4(record, packet.first_chunk()?, arrived)?;
                self.send_on::<V4>(record, Direction::Uplink, arrived, total, dst, frame)
            } else {
                let header = Ipv6Fields::new(packet.first_chunk()?);
                let dst = header.dst();
                let total = header.sound_len(arrived.available.into())?;
                let own_source = record.admits_ipv6(header.src_prefix())
                    || record.admits_behind(Ipv6Addr::from_bits(header.src()).into());
                if header.hop_limit() <= 1 || !own_source || !self.ports.leaves_v6(dst) {
                    return None;
                }
                self.send_on::<V6>(record, Direction::Uplink, arrived, total, dst, frame)
            }
        } else if is_ipv4 {
            let dst = Ipv4Fields::new(packet.first_chunk()?).dst();
            self.send_on::<V4>(record, Direction::Downlink, arrived, arrived.available, dst, frame)
        } else {
            let dst = Ipv6Fields::new(packet.first_chunk()?).dst();
            self.send_on::<V6>(record, Direction::Downlink, arrived, arrived.available, dst, frame)
        }
    }

    /// As [`Worker::fast`], of IPv4 packets from UEs by [simple forwarding](CommonForward::SIMPLE_UP). `None` also for what that one
    /// does.
    #[inline(always)]
    pub(super) fn simple_uplink(
        &mut self,
        node: &Node,
        record: &Record,
        arrived: &FrameHead,
        frame: &mut Frame,
    ) -> Option<Exit> {
        let is_simple = record.is_common(CommonForward::SIMPLE_UP);
        if is_simple { self.common_uplink::<false>(node, record, arrived, frame) } else { None }
    }

    /// As [`Worker::simple_uplink`], of records with rates or several counters.
    #[inline(never)]
    pub(super) fn metered_uplink(
        &mut self,
        node: &Node,
        record: &Record,
        arrived: &FrameHead,
        frame: &mut Frame,
    ) -> Option<Exit> {
        let is_metered = record.is_common(CommonForward::METERED_UP);
        if is_metered { self.common_uplink::<true>(node, record, arrived, frame) } else { None }
    }

    #[inline(always)]
    fn common_uplink<const METERED: bool>(
        &mut self,
        node: &Node,
        record: &Record,
        arrived: &FrameHead,
        frame: &mut Frame,
    ) -> Option<Exit> {
        if self.ports.is_marked(arrived) && !take_marks(arrived, frame) {
            return None;
        }
        let header = frame.window(arrived.offset)?;
        let (total, dst) = self.fast_from_ue_v4(record, header, arrived)?;
        let (meters, direction) = (record.folded_meters(), Direction::Uplink);
        if METERED
            && (record.folded_lan().is_some() || !self.admits_metered(node, record, &meters, direction))
        {
            return None;
        }
        let to = self.onto_route::<V4>(record, arrived, total, dst, frame)?;
        if METERED {
            return Some(self.count_metered(node, record, &meters, direction, total, to));
        }
        self.count_plain(node, record, direction, total);
        Some(to.into())
    }

    /// As [`Worker::fast`], of IPv4 packets to UEs by [simple forwarding](CommonForward::SIMPLE_DOWN). `None` also for what that one
    /// does.
    #[inline(always)]
    pub(super) fn simple_downlink(
        &mut self,
        node: &Node,
        record: &Record,
        arrived: &FrameHead,
        frame: &mut Frame,
    ) -> Option<Exit> {
        let is_simple = record.is_common(CommonForward::SIMPLE_DOWN);
        if is_simple { self.common_downlink::<false>(node, record, arrived, frame) } else { None }
    }

    /// As [`Worker::simple_downlink`], of records with rates or several counters.
    #[inline(never)]
    pub(super) fn metered_downlink(
        &mut self,
        node: &Node,
        record: &Record,
        arrived: &FrameHead,
        frame: &mut Frame,
    ) -> Option<Exit> {
        let is_metered = record.is_common(CommonForward::METERED_DOWN);
        if is_metered { self.common_downlink::<true>(node, record, arrived, frame) } else { None }
    }

    #[inline(always)]
    fn common_downlink<const METERED: bool>(
        &mut self,
        node: &Node,
        record: &Record,
        arrived: &FrameHead,
        frame: &mut Frame,
    ) -> Option<Exit> {
        let [first] = frame.window(arrived.offset)?;
        let (id, teid) = record.folded_tunnel()?;
        let prepared = self.prepared.get(id)?;
        let total = arrived.available;
        if first >> 4 != 4 || total > prepared.packet_max {
            return None;
        }
        let (meters, direction) = (record.folded_meters(), Direction::Downlink);
        if METERED && !self.admits_metered(node, record, &meters, direction) {
            return None;
        }
        prepared.template.write_fast(teid, frame, arrived.offset.into(), total.into(), |packet| {
            V4::decrement_ttl(packet);
            V4::flow(packet)
        })?;
        let to = prepared.port;
        if METERED {
            return Some(self.count_metered(node, record, &meters, direction, total, to));
        }
        self.count_plain(node, record, direction, total);
        Some(to.into())
    }

    /// Whether the quotas and rates of a folded record let a packet pass.
    #[inline(always)]
    fn admits_metered(
        &self,
        node: &Node,
        record: &Record,
        meters: &Meters<'_>,
        direction: Direction,
    ) -> bool {
        if record.has_folded_quotas() && self.is_used_up(record) {
            return false;
        }
        self.is_within_rates(node, meters, direction)
    }

    /// Counts a packet of a folded record that leaves by a port.
    #[inline(always)]
    fn count_metered(
        &mut self,
        node: &Node,
        record: &Record,
        meters: &Meters<'_>,
        direction: Direction,
        total: u16,
        to: PortId,
    ) -> Exit {
        for &slot in meters.usage {
            if self.count_in(&node.usage, UsageSlot(slot), direction, total.into()) {
                self.threshold(record, UsageSlot(slot));
            }
        }
        self.spend_rates(node, meters, direction, total, to)
    }

    /// Total length and destination of a packet from a UE, if its header is in order and the packet may be forwarded.
    #[inline(always)]
    fn fast_from_ue_v4(
        &self,
        record: &Record,
        header: &[u8; ipv4::HEADER_LEN],
        arrived: &FrameHead,
    ) -> Option<(u16, u32)> {
        let header = Ipv4Fields::new(header);
        let dst = header.dst();
        let total = header.sound_len(arrived.available.into())?;
        let own_source = record.admits_ipv4(header.src())
            || record.admits_behind(Ipv4Addr::from_bits(header.src()).into());
        (header.ttl() > 1 && own_source && self.ports.leaves_v4(dst)).then_some((total, dst))
    }

    /// Puts before a packet what stands before it on its way, with one hop less to go, and counts it.
    #[inline(always)]
    fn send_on<F: Family>(
        &mut self,
        record: &Record,
        direction: Direction,
        arrived: &FrameHead,
        total: u16,
        dst: F::Address,
        frame: &mut Frame,
    ) -> Option<PortId> {
        let to = if let Some((id, teid)) = record.folded_tunnel() {
            let offset = usize::from(arrived.offset);
            let Some(prepared) = self.prepared.get(id) else {
                self.prepare(id);
                return None;
            };
            if total > prepared.packet_max {
                return None;
            }
            let is_relayed = arrived.fast_path == FastPath::UP;
            if is_relayed && !TUNNELLED_AT.contains(&offset) {
                // A PDU session container goes on with the packet.
                return None;
            }
            prepared.template.write(teid, frame, offset, total.into(), |packet| {
                if !is_relayed {
                    F::decrement_ttl(packet);
                }
                F::flow(packet)
            })?;
            prepared.port
        } else if let Some(lan) = record.folded_lan() {
            self.onto_lan::<F>(lan, arrived, total, dst, frame)?
        } else {
            self.onto_route::<F>(record, arrived, total, dst, frame)?
        };
        self.count_folded(record, direction, total);
        Some(to)
    }

    /// Puts a link header before a packet that leaves as its route says, with one hop less to go.
    #[inline(always)]
    fn onto_route<F: Family>(
        &self,
        record: &Record,
        arrived: &FrameHead,
        total: u16,
        dst: F::Address,
        frame: &mut Frame,
    ) -> Option<PortId> {
        let hop = F::known(&self.next_hops, self.vrfs.of_number(record.exit_number()), dst)?;
        let exit = self.ports.facts(hop.port);
        let may_be_g_pdu = || exit.is_both_sides() && may_be_to_gtpu(arrived, frame);
        if usize::from(total) > exit.mtu || !record.leaves_by(exit.instance) || may_be_g_pdu() {
            return None;
        }
        let (header, packet) = frame.rewrite_head::<IP_AT>(arrived.offset.into(), total.into())?;
        let mut header = EthernetFields::new(header);
        header.set_dst(hop.mac);
        header.set_src(exit.mac);
        header.set_ethertype(F::ETHERTYPE.0);
        F::decrement_ttl(packet);
        Some(hop.port)
    }

    /// Puts tags and a link header before a packet that goes into a LAN, to a neighbour that is known, with one hop less to go.
    #[inline(never)]
    fn onto_lan<F: Family>(
        &self,
        id: LanId,
        arrived: &FrameHead,
        total: u16,
        dst: F::Address,
        frame: &mut Frame,
    ) -> Option<PortId> {
        let lan = self.node.settings.lans.get(id)?;
        let next_hop = lan.next_hop(F::ip(dst))?;
        let mac = self.lan_hops.known(self.node.lan_neighbours.generation(), (id, next_hop), self.now)?;
        let exit = self.ports.facts(lan.port);
        // What waits for a neighbour is not overtaken.
        if usize::from(total) > exit.mtu || self.lan_hops.is_waiting() {
            return None;
        }
        let (tags, len) = lan.tags.header(F::ETHERTYPE);
        let (offset, total) = (arrived.offset.into(), total.into());
        // The room before the packet has to be known here: it is one tag or two.
        let (header, packet) = match lan.tags.inner {
            None => frame.rewrite_head::<{ IP_AT + TAG_LEN }>(offset, total).map(unsized_head)?,
            Some(_) => frame.rewrite_head::<{ IP_AT + 2 * TAG_LEN }>(offset, total).map(unsized_head)?,
        };
        let mut addresses = EthernetFields::new(layout::at_mut(header, 0));
        addresses.set_dst(mac);
        addresses.set_src(exit.mac);
        header[ethernet::TYPE_AT..].copy_from_slice(&tags[..len]);
        F::decrement_ttl(packet);
        Some(lan.port)
    }

    /// Counts a packet of a plain record.
    #[inline(always)]
    fn count_plain(&mut self, node: &Node, record: &Record, direction: Direction, total: u16) {
        let slot = record.plain_usage();
        if self.count_in(&node.usage, slot, direction, total.into()) {
            self.threshold(record, slot);
        }
    }

    /// Counts a packet in a counter; whether a limit is reached.
    #[inline(always)]
    pub(super) fn count_in(
        &self,
        usage: &UsageCounters,
        slot: UsageSlot,
        direction: Direction,
        octets: u64,
    ) -> bool {
        usage.touch(slot, self.used_at);
        usage.count(slot, direction, octets, self.shared)
    }

    #[inline(always)]
    fn count_folded(&mut self, record: &Record, direction: Direction, total: u16) {
        if let [first, others @ ..] = record.folded_usage() {
            if self.count_in(&self.node.usage, UsageSlot(*first), direction, total.into()) {
                self.threshold(record, UsageSlot(*first));
            }
            if !others.is_empty() {
                self.count_others(record, others, direction, total);
            }
        }
    }

    /// Whether a quota of the record is used up. A counter without one is never marked.
    fn is_used_up(&self, record: &Record) -> bool {
        record.folded_usage().iter().any(|&slot| self.node.usage.is_exhausted(UsageSlot(slot)))
    }

    /// The counters behind the first.
    #[inline(never)]
    fn count_others(&mut self, record: &Record, others: &[u32], direction: Direction, total: u16) {
        for slot in others.iter().map(|&slot| UsageSlot(slot)) {
            if self.count_in(&self.node.usage, slot, direction, total.into()) {
                self.threshold(record, slot);
            }
        }
    }

    #[cold]
    fn threshold(&mut self, record: &Record, slot: UsageSlot) {
        self.send_event(WorkerEvent::Threshold { session: record.session(), slot });
    }

    #[cold]
    fn prepare(&mut self, id: EncapTemplateId) {
        if let Some(encap) = self.node.tunnels.encap(id) {
            self.prepared.prepare(id, encap, &self.settings, &mut self.next_hops);
        }
    }

    /// Whether no packet waits that another could overtake, for the control plane to release it or for a next hop that may
    /// be known by now; and none is traced.
    #[inline]
    pub(super) fn is_quiet(&self) -> bool {
        self.buffers.is_empty() && !self.is_pending_known() && self.tracing.is_empty()
    }

    /// Whether a packet of this session could overtake one that waits, or is traced.
    pub(super) fn may_overtake(&self, record: &Record) -> bool {
        let session = record.session();
        self.buffers.holds(session) || self.is_pending_known() || self.tracing.has(session)
    }
}

/// Gives a packet the congestion marks of its outer header; what leaves the fast path after it is given the same again.
/// `false`, with the packet unchanged, when it cannot carry them.
#[cold]
fn take_marks(arrived: &FrameHead, frame: &mut Frame) -> bool {
    let Some(packet) = frame.data_mut().get_mut(usize::from(arrived.offset)..) else { return false };
    let class = ecn::class(packet);
    let Some(marks) = ecn::decapsulated(class, arrived.ecn) else { return false };
    ecn::set_class(packet, class & !ecn::MASK | marks);
    true
}

fn unsized_head<'f, const ROOM: usize>(
    (room, packet): (&'f mut [u8; ROOM], &'f mut [u8]),
) -> (&'f mut [u8], &'f mut [u8]) {
    (room, packet)
}

/// Whether a user packet may be for a GTP-U entity: UDP to port 2152.
#[cold]
fn may_be_to_gtpu(arrived: &FrameHead, frame: &Frame) -> bool {
    let packet = frame.data().get(usize::from(arrived.offset)..).unwrap_or_default();
    let Some((protocol, upper)) = ip::plain_upper(packet) else { return false };
    let port = upper.first_chunk().map(|header| UdpFields::new(header).dst_port());
    protocol == IpProtocol::UDP && port.is_none_or(|port| port == gtpu::UDP_PORT)
}

/// What differs between the families of user packets.
trait Family {
    type Address: Copy;
    const ETHERTYPE: EtherType;

    fn ip(addr: Self::Address) -> IpAddr;
    fn known(next_hops: &NextHops, vrf: VrfId, dst: Self::Address) -> Option<&NextHop>;
    fn flow(packet: &[u8]) -> FlowFields;
    fn decrement_ttl(packet: &mut [u8]);
}

struct V4;
struct V6;

impl Family for V4 {
    type Address = u32;
    const ETHERTYPE: EtherType = EtherType::IPV4;

    fn ip(addr: u32) -> IpAddr {
        Ipv4Addr::from_bits(addr).into()
    }

    #[inline(always)]
    fn known(next_hops: &NextHops, vrf: VrfId, dst: u32) -> Option<&NextHop> {
        next_hops.known_v4(vrf, dst)
    }

    #[inline(always)]
    fn flow(packet: &[u8]) -> FlowFields {
        FlowFields::of_fast_v4(packet)
    }

    #[inline(always)]
    fn decrement_ttl(packet: &mut [u8]) {
        ip::decrement_ttl_v4(packet);
    }
}

impl Family for V6 {
    type Address = u128;
    const ETHERTYPE: EtherType = EtherType::IPV6;

    fn ip(addr: u128) -> IpAddr {
        Ipv6Addr::from_bits(addr).into()
    }

    #[inline(always)]
    fn known(next_hops: &NextHops, vrf: VrfId, dst: u128) -> Option<&NextHop> {
        next_hops.known_v6(vrf, dst)
    }

    #[inline(always)]
    fn flow(packet: &[u8]) -> FlowFields {
        FlowFields::of_v6(packet)
    }

    #[inline(always)]
    fn decrement_ttl(packet: &mut [u8]) {
        ip::decrement_ttl_v6(packet);
    }
}
