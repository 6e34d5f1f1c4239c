//! The function: what one worker does with each frame.
//!
//! ```text
//!   port of a segment ──▶ station known? its endpoint : all of them ──▶ IP, UDP 4789, VXLAN ──▶ route
//!   underlay          ──▶ UDP 4789 to us, of a segment, of one of its endpoints ──▶ port of the segment
//! ```

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kaido_engine::{
    Batch, DropReason, DropTable, Frame, Function, NextHops, Notifier, Output, PendingQueue, PortId,
    PortLink, Resolution, Routes,
};
use kaido_wire::layout::{self, UdpFields};
use kaido_wire::{
    EtherType, EthernetRepr, IpProtocol, Ipv4Repr, Ipv6Repr, MacAddr, UdpRepr, checksum, ethernet, ipv4,
    ipv6, udp, vlan,
};

use crate::counters::SegmentCounters;
use crate::rules::{PortSettings, Segment, Settings};
use crate::shared::SharedSettings;

/// The UDP port of VXLAN (RFC 7348 8).
pub const UDP_PORT: u16 = 4789;
/// Octets of a VXLAN header.
const HEADER_LEN: usize = 8;
/// The flag that says that there is a network identifier; all others are reserved (RFC 7348 5).
const FLAG_VNI: u8 = 0x08;
/// First of the source ports by which the underlay tells flows apart (RFC 7348 5).
const SOURCE_PORTS: u16 = 49_152;
/// Hops of an outer packet.
const HOPS: u8 = 64;
/// Stations that a worker remembers: what strangers send must not make it remember more.
pub const STATIONS_MAX: usize = 65_536;
/// Octets of Ethernet with a tag.
const LINK_LEN_MAX: usize = ethernet::HEADER_LEN + 4;
/// How often what waits for a next hop is looked at.
const SWEEP: Duration = Duration::from_millis(100);

kaido_engine::drop_reasons! {
    /// Why a VXLAN endpoint drops a packet, beyond the reasons of the engine.
    pub enum VxlanDrop;

    /// A VXLAN header that is cut off or without the flag of a network identifier, or no Ethernet frame behind it.
    MALFORMED = "vxlan_malformed",
    /// Of a segment that this endpoint does not have.
    VNI_UNKNOWN = "vxlan_vni_unknown",
    /// From an endpoint that is none of the segment's.
    REMOTE_UNKNOWN = "vxlan_remote_unknown",
    /// Longer, with the headers of the tunnel or without them, than the link takes: an endpoint cuts nothing.
    TOO_BIG = "vxlan_too_big",
}

/// The function of one worker.
pub struct Vxlan {
    shared: Arc<SharedSettings>,
    settings: Arc<Settings>,
    /// Of the settings.
    generation: u64,
    counters: Arc<SegmentCounters>,
    ports: Vec<PortSettings>,
    /// The endpoint that a station of a segment was last seen behind, by the segment's place.
    stations: HashMap<(usize, MacAddr), IpAddr>,
    next_hops: NextHops,
    pending: PendingQueue,
    swept: Instant,
}

/// An outer packet of UDP that is whole.
struct Datagram {
    source: IpAddr,
    destination: IpAddr,
    port: u16,
    /// Where its payload begins and ends in the frame.
    payload: Range<usize>,
}

/// A frame in a tunnel: where it is and whose.
struct Inner {
    segment: usize,
    range: Range<usize>,
    station: MacAddr,
    remote: IpAddr,
}

impl Vxlan {
    /// The function of a worker; outer packets go by `routes`.
    pub fn new(shared: &Arc<SharedSettings>, routes: &Arc<Routes>) -> Self {
        let (settings, generation) = shared.current();
        Self {
            shared: shared.clone(),
            generation,
            counters: SegmentCounters::new(settings.segments.len()),
            ports: settings.ports.clone(),
            settings,
            stations: HashMap::new(),
            next_hops: routes.next_hops(),
            pending: PendingQueue::default(),
            swept: Instant::now(),
        }
    }

    /// What it has done, to be read while it works.
    pub fn counters(&self) -> Arc<SegmentCounters> {
        self.counters.clone()
    }

    /// Obeys the settings of now from here on. A segment with another number is another one: nothing is known of it, and it is
    /// counted from zero.
    #[cold]
    fn take_settings(&mut self) {
        let (settings, generation) = self.shared.current();
        let is_same = |at: usize| self.settings.segments[at].vni == settings.segments[at].vni;
        (0..settings.segments.len()).filter(|&at| !is_same(at)).for_each(|at| self.counters.clear(at));
        self.stations
            .retain(|&(at, _), remote| is_same(at) && settings.segments[at].remotes.contains(remote));
        (self.settings, self.generation) = (settings, generation);
    }

    /// A frame of a segment's port: into the tunnels.
    fn encapsulate(&mut self, at: usize, from: PortId, frame: Frame, out: &mut Output<'_>) {
        let Ok(link) = vlan::link(frame.data()) else {
            return out.drop(from, frame, DropReason::ETHERNET_MALFORMED);
        };
        let settings = self.settings.clone();
        let segment = &settings.segments[at];
        self.counters.encapsulated(at, frame.packet_len());
        if let Some(&remote) = self.stations.get(&(at, link.dst)) {
            return self.send_to(segment, remote, from, frame, out);
        }
        // To all of them, the last with the frame itself.
        let Some((&last, others)) = segment.remotes.split_last() else {
            return out.drop(from, frame, DropReason::NO_ROUTE);
        };
        for &remote in others {
            match Frame::from_slice(&frame.to_vec(), || out.allocate()) {
                Some(copy) => self.send_to(segment, remote, from, copy, out),
                None => out.count_drop(from, DropReason::NO_FRAME),
            }
        }
        self.send_to(segment, last, from, frame, out);
    }

    /// Puts outer headers before a frame and sends it to an endpoint.
    fn send_to(
        &mut self,
        segment: &Segment,
        remote: IpAddr,
        from: PortId,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        let written = match (segment.local, remote) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let head = |payload_len| Ipv4Repr {
                    payload_len,
                    ..Ipv4Repr::whole([src, dst], IpProtocol::UDP, HOPS)
                };
                prepend(&mut frame, segment.vni, ipv4::HEADER_LEN, |len, _, room| head(len).emit(room))
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let prepended =
                    prepend(&mut frame, segment.vni, ipv6::HEADER_LEN, |payload_len, flow, room| {
                        let (next_header, hop_limit, traffic_class) = (IpProtocol::UDP, HOPS, 0);
                        let flow_label = flow.into();
                        Ipv6Repr { src, dst, next_header, hop_limit, traffic_class, flow_label, payload_len }
                            .emit(room)
                    });
                prepended.map(|()| fill_checksum(&mut frame, src, dst))
            }
            _ => None,
        };
        match written {
            Some(()) => self.send(from, remote, frame, out),
            None => out.drop(from, frame, DropReason::NO_HEADROOM),
        }
    }

    /// Sends an IP packet that is complete but for Ethernet.
    fn send(&mut self, from: PortId, to: IpAddr, mut frame: Frame, out: &mut Output<'_>) {
        let reason = match self.next_hops.resolve(to) {
            Resolution::Ready(hop) => {
                let port = self.ports.get(hop.port.index());
                match port.filter(|port| frame.packet_len() <= port.mtu).map(|port| port.mac) {
                    Some(own) if put_link(&mut frame, own, hop.mac) => return out.transmit(hop.port, frame),
                    Some(_) => DropReason::NO_HEADROOM,
                    None => VxlanDrop::TOO_BIG,
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

    /// A frame of the underlay: out of its tunnel, or the kernel's.
    fn decapsulate(&mut self, from: PortId, mut frame: Frame, out: &mut Output<'_>) {
        let local = |address| self.settings.segments.iter().any(|segment| segment.local == address);
        let datagram = datagram(frame.data(), frame.packet_len());
        let Some(datagram) = datagram.filter(|own| own.port == UDP_PORT && local(own.destination)) else {
            return out.to_kernel(from, frame);
        };
        let Inner { segment, range, station, remote } = match self.inner(frame.data(), &datagram) {
            Ok(inner) => inner,
            Err(reason) => return out.drop(from, frame, reason),
        };
        frame.truncate(range.end);
        if !frame.strip(range.start) {
            return out.drop(from, frame, VxlanDrop::MALFORMED);
        }
        self.learn(segment, station, remote);
        self.counters.decapsulated(segment, frame.packet_len());
        let port = self.settings.segments[segment].port;
        if frame.packet_len() > self.ports[port.index()].mtu + LINK_LEN_MAX {
            return out.drop(from, frame, VxlanDrop::TOO_BIG);
        }
        out.transmit(port, frame);
    }

    /// What is in a packet of VXLAN to us, or why it is dropped.
    fn inner(&self, data: &[u8], datagram: &Datagram) -> Result<Inner, DropReason> {
        let payload = data.get(datagram.payload.start..).unwrap_or_default();
        let (&[flags, _, _, _, high, middle, low, _], frame) =
            payload.split_first_chunk::<HEADER_LEN>().ok_or(VxlanDrop::MALFORMED)?;
        let range = datagram.payload.start + HEADER_LEN..datagram.payload.end;
        if flags & FLAG_VNI == 0 || range.len() < ethernet::HEADER_LEN {
            return Err(VxlanDrop::MALFORMED);
        }
        let vni = u32::from_be_bytes([0, high, middle, low]);
        let has = |segment: &Segment| segment.vni == vni && segment.local == datagram.destination;
        let segment = self.settings.segments.iter().position(has).ok_or(VxlanDrop::VNI_UNKNOWN)?;
        if !self.settings.segments[segment].remotes.contains(&datagram.source) {
            return Err(VxlanDrop::REMOTE_UNKNOWN);
        }
        let station = vlan::link(frame).map_err(|_| VxlanDrop::MALFORMED)?.src;
        Ok(Inner { segment, range, station, remote: datagram.source })
    }

    /// Remembers behind which endpoint a station is.
    fn learn(&mut self, segment: usize, station: MacAddr, remote: IpAddr) {
        if station.is_multicast() {
            return;
        }
        if self.stations.len() < STATIONS_MAX || self.stations.contains_key(&(segment, station)) {
            self.stations.insert((segment, station), remote);
        }
    }
}

/// The datagram in a frame, if it is one and not a fragment of one; `available` octets exist in all.
fn datagram(data: &[u8], available: usize) -> Option<Datagram> {
    let link = usize::from(vlan::link(data).ok()?.payload_offset);
    let (packet, available) = (data.get(link..)?, available - link);
    let (source, destination, protocol, header_len, fragment) = match packet.first()? >> 4 {
        4 => {
            let header = ipv4::header_within(packet, available).ok()?;
            let is_sound = ipv4::checksum_ok(packet, header.header_len);
            let fragment = header.fragment.is_some() || !is_sound;
            (header.src.into(), header.dst.into(), header.protocol, usize::from(header.header_len), fragment)
        }
        _ => {
            let header = ipv6::header_within(packet, available).ok()?;
            let fragment = header.fragment.is_some_and(|fragment| !fragment.is_whole());
            (header.src.into(), header.dst.into(), header.protocol, usize::from(header.header_len), fragment)
        }
    };
    if protocol != IpProtocol::UDP || fragment {
        return None;
    }
    let upper = packet.get(header_len..)?;
    let udp = udp::header_within(upper, available - header_len).ok()?;
    let at = link + header_len;
    let payload = at + udp::HEADER_LEN..at + usize::from(udp.length);
    Some(Datagram { source, destination, port: udp.dst_port, payload })
}

/// Fourteen bits that are the same for all frames between two stations.
fn entropy(frame: &[u8]) -> u16 {
    let addresses = frame.get(..ethernet::HEADER_LEN).unwrap_or_default().chunks_exact(2);
    let words = addresses.map(|pair| u16::from(pair[0]) << 8 | u16::from(pair[1]));
    words.fold(0, |mixed: u16, word| mixed.rotate_left(5) ^ word) & 0x3fff
}

/// Puts VXLAN, UDP and what `emit` writes before a frame. `emit` is given the octets of its payload and the source port; the
/// checksum of UDP is zero, as RFC 7348 5 has it.
fn prepend(
    frame: &mut Frame,
    vni: u32,
    head: usize,
    emit: impl FnOnce(u16, u16, &mut [u8]) -> Result<usize, kaido_wire::Error>,
) -> Option<()> {
    let payload_len = u16::try_from(HEADER_LEN + frame.packet_len()).ok()?;
    let src_port = SOURCE_PORTS | entropy(frame.data());
    let room = frame.prepend(head + udp::HEADER_LEN + HEADER_LEN)?;
    let (ip, rest) = room.split_at_mut_checked(head)?;
    let udp = UdpRepr { src_port, dst_port: UDP_PORT, payload_len }.emit(rest).ok()?;
    let [_, high, middle, low] = vni.to_be_bytes();
    rest.get_mut(udp..udp + HEADER_LEN)?.copy_from_slice(&[FLAG_VNI, 0, 0, 0, high, middle, low, 0]);
    emit(payload_len.checked_add(8)?, src_port, ip).ok()?;
    Some(())
}

/// Fills in the checksum of UDP behind an IPv6 header: endpoints that are not told otherwise drop what has none (RFC 8200 8.1).
fn fill_checksum(frame: &mut Frame, src: Ipv6Addr, dst: Ipv6Addr) {
    let len = frame.packet_len().saturating_sub(ipv6::HEADER_LEN);
    let mut sum = checksum::pseudo_v6(src, dst, IpProtocol::UDP, u32::try_from(len).unwrap_or(u32::MAX));
    let (mut skipped, mut is_odd) = (ipv6::HEADER_LEN, false);
    for segment in frame.segments() {
        let octets = segment.get(skipped..).unwrap_or_default();
        skipped -= skipped.min(segment.len());
        let own = checksum::sum(octets);
        sum = checksum::add(sum, if is_odd { own.swap_bytes() } else { own });
        is_odd ^= octets.len() % 2 == 1;
    }
    UdpFields::new(layout::at_mut(frame.data_mut(), ipv6::HEADER_LEN)).set_checksum(checksum::udp_sent(!sum));
}

fn put_link(frame: &mut Frame, own: [u8; 6], next: [u8; 6]) -> bool {
    let ethertype = match frame.data().first().map(|octet| octet >> 4) {
        Some(6) => EtherType::IPV6,
        _ => EtherType::IPV4,
    };
    let header = EthernetRepr { dst: MacAddr(next), src: MacAddr(own), ethertype };
    frame.prepend(ethernet::HEADER_LEN).is_some_and(|room| header.emit(room).is_ok())
}

impl Function for Vxlan {
    fn name(&self) -> &'static str {
        "vxlan"
    }

    fn drop_reasons(&self) -> &'static DropTable {
        VxlanDrop::TABLE
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        let segment = self.settings.segments.iter().position(|segment| segment.port == port);
        for frame in batch.drain(..) {
            match segment {
                Some(at) => self.encapsulate(at, port, frame, out),
                None => self.decapsulate(port, frame, out),
            }
        }
    }

    fn tick(&mut self, out: &mut Output<'_>) {
        if self.shared.is_newer_than(self.generation) {
            self.take_settings();
        }
        if self.pending.is_empty() || out.now().saturating_duration_since(self.swept) < SWEEP {
            return;
        }
        self.swept = out.now();
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

    fn tick_due(&self) -> Option<Instant> {
        if self.shared.is_newer_than(self.generation) {
            return Some(self.swept);
        }
        (!self.pending.is_empty()).then(|| self.swept + SWEEP)
    }

    fn attach(&mut self, notifier: &Arc<Notifier>) {
        self.next_hops.attach(notifier);
        self.shared.attach(notifier);
    }

    fn port_changed(&mut self, port: PortId, link: &PortLink) {
        if let Some(settings) = self.ports.get_mut(port.index()) {
            (settings.mac, settings.mtu) = (link.mac, link.mtu);
        }
    }
}
