//! Outer headers made beforehand: what all packets into tunnels of one shape have in common.
//!
//! ```text
//!   bytes, right-aligned:  | Ethernet 14 | IPv4 20 or IPv6 40 | UDP 8 | GTP-U 8, or 16 with a PDU session container |
//!   per packet:               (by hop)     length, checksum     port, length    length, TEID
//! ```
//! A packet gets all of them in one copy of fixed size; then the few fields that differ are written.

use std::net::IpAddr;

use kaido_engine::{Frame, NextHop, NextHops, PortId, Resolution};
use kaido_wire::layout::{self, GtpuFields, Ipv4Fields, Ipv6Fields, UdpFields};
use kaido_wire::{
    Error, EtherType, EthernetRepr, GtpuRepr, IpProtocol, Ipv4Repr, Ipv6Repr, MacAddr, UdpRepr, checksum,
    ethernet, gtpu, ipv4, ipv6, udp,
};

use super::emit::{Ends, FlowFields, HOPS, fill_checksum};
use crate::node::{NodeSettings, OuterSourcePort, PortRole};
use crate::tunnels::{EncapTemplate, EncapTemplateId};
use kaido_n4::Teid;

const IP_AT: usize = ethernet::HEADER_LEN;
const GTPU_PLAIN: usize = gtpu::HEADER_LEN;
const GTPU_CONTAINER: usize = gtpu::HEADER_LEN + gtpu::OPTIONAL_LEN + 4;
const GTPU_WITH_PPI: usize = GTPU_CONTAINER + 4;
const V4_PLAIN: usize = IP_AT + ipv4::HEADER_LEN + udp::HEADER_LEN + GTPU_PLAIN;
const V4_CONTAINER: usize = V4_PLAIN - GTPU_PLAIN + GTPU_CONTAINER;
const V6_PLAIN: usize = IP_AT + ipv6::HEADER_LEN + udp::HEADER_LEN + GTPU_PLAIN;
const V6_CONTAINER: usize = V6_PLAIN - GTPU_PLAIN + GTPU_CONTAINER;
const V4_WITH_PPI: usize = V4_PLAIN - GTPU_PLAIN + GTPU_WITH_PPI;
const V6_WITH_PPI: usize = V6_PLAIN - GTPU_PLAIN + GTPU_WITH_PPI;
/// Octets of UDP's length that GTP-U's does not count: both headers.
const BEFORE_LENGTH: u16 = 16;
const _: () = assert!(udp::HEADER_LEN + gtpu::HEADER_LEN == 16);
/// Room for the longest headers.
const BYTES: usize = V6_WITH_PPI;

/// The outer headers of a tunnel shape.
#[derive(Clone, Copy, Debug)]
pub(super) struct OuterTemplate {
    bytes: [u8; BYTES],
    ends: Ends,
    /// Octets of Ethernet, IP, UDP and GTP-U.
    len: u8,
    /// Octets of GTP-U.
    gtpu_len: u8,
    entropy: bool,
    checksum: bool,
    is_ipv4: bool,
    /// Over IPv4 with a PDU session container.
    is_eligible: bool,
    /// Bits of the class that a packet's own gives; zero in `bytes`.
    copied: u8,
    /// One's-complement sum of the IPv4 header without length, those bits and checksum.
    sum: u16,
    /// That of the pseudo-header, of UDP and of GTP-U, without lengths, source port and TEID.
    udp_sum: u16,
}

impl OuterTemplate {
    /// The headers of `encap`, with an empty Ethernet header.
    ///
    /// # Errors
    /// [`Error::Version`] when its ends are of two families.
    pub(super) fn new(settings: &NodeSettings, encap: &EncapTemplate) -> Result<Self, Error> {
        let ends = Ends { src: settings.endpoints[usize::from(encap.local.0)], dst: encap.peer };
        let pdu_session = encap.container();
        let tunnels = &settings.live.tunnels;
        let (tos, copied) = encap.class(&tunnels.marking);
        let mut template = Self {
            bytes: [0; BYTES],
            ends,
            len: 0,
            gtpu_len: 0,
            entropy: tunnels.source_port == OuterSourcePort::Entropy,
            checksum: tunnels.udp_checksums.computed(encap.peer),
            is_ipv4: encap.peer.is_ipv4(),
            is_eligible: false,
            copied,
            sum: 0,
            udp_sum: 0,
        };
        let gtpu = GtpuRepr { pdu_session, ..GtpuRepr::g_pdu(0, 0) };
        let gtpu_len = gtpu.len();
        template.push(gtpu_len, |space| gtpu.emit(space))?;
        let ports = UdpRepr { src_port: gtpu::UDP_PORT, dst_port: gtpu::UDP_PORT, payload_len: 0 };
        template.push(udp::HEADER_LEN, |space| ports.emit(space))?;
        template.udp_sum = template.fixed_sum();
        match (ends.src, ends.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let header = Ipv4Repr { tos, ..Ipv4Repr::whole([src, dst], IpProtocol::UDP, HOPS) };
                template.push(ipv4::HEADER_LEN, |space| header.emit(space))?;
                let at = BYTES - usize::from(template.len);
                let mut fields = Ipv4Fields::new(layout::at_mut(&mut template.bytes, at));
                fields.set_total_len(0);
                fields.set_checksum(0);
                template.sum = checksum::sum(&template.bytes[at..at + ipv4::HEADER_LEN]);
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = Ipv6Repr {
                    src,
                    dst,
                    next_header: IpProtocol::UDP,
                    hop_limit: HOPS,
                    traffic_class: tos,
                    flow_label: 0,
                    payload_len: 0,
                };
                template.push(ipv6::HEADER_LEN, |space| header.emit(space))?;
            }
            _ => return Err(Error::Version),
        }
        #[allow(clippy::cast_possible_truncation)] // 8, 16 or 20.
        let gtpu_len = gtpu_len as u8;
        template.gtpu_len = gtpu_len;
        template.is_eligible = template.is_ipv4 && usize::from(gtpu_len) == GTPU_CONTAINER;
        template.push(ethernet::HEADER_LEN, |_| Ok(ethernet::HEADER_LEN))?;
        Ok(template)
    }

    /// Sum of what UDP's checksum covers of the headers, and is the same in all packets.
    fn fixed_sum(&self) -> u16 {
        let pseudo = match (self.ends.src, self.ends.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => checksum::pseudo_v4(src, dst, IpProtocol::UDP, 0),
            (IpAddr::V6(src), IpAddr::V6(dst)) => checksum::pseudo_v6(src, dst, IpProtocol::UDP, 0),
            _ => 0,
        };
        let mut headers = [0; BYTES];
        let headers = &mut headers[BYTES - usize::from(self.len)..];
        headers.copy_from_slice(&self.bytes[BYTES - usize::from(self.len)..]);
        // What differs from packet to packet.
        let mut datagram = UdpFields::new(layout::at_mut(headers, 0));
        datagram.set_src_port(0);
        datagram.set_len(0);
        datagram.set_checksum(0);
        GtpuFields::new(layout::at_mut(headers, udp::HEADER_LEN)).set_length(0);
        checksum::combine(&[pseudo, checksum::sum(headers)])
    }

    /// Writes a header in front of those that are there.
    fn push(
        &mut self,
        len: usize,
        write: impl FnOnce(&mut [u8]) -> Result<usize, Error>,
    ) -> Result<(), Error> {
        let end = BYTES - usize::from(self.len);
        write(&mut self.bytes[end - len..end])?;
        #[allow(clippy::cast_possible_truncation)] // At most `BYTES` in all.
        let len = len as u8;
        self.len += len;
        Ok(())
    }

    /// Octets that the tunnel puts before a packet, Ethernet not counted.
    #[inline]
    pub(super) fn overhead(&self) -> usize {
        usize::from(self.len) - ethernet::HEADER_LEN
    }

    /// Puts the headers before the packet that the frame holds, all but Ethernet; `false` when they do not
    /// fit.
    pub(super) fn put_before(&self, teid: Teid, frame: &mut Frame) -> bool {
        self.put_before_by(teid, frame, FlowFields::of)
    }

    /// As [`OuterTemplate::put_before`], of a packet of which `of_flow` gives what the headers take from it.
    pub(super) fn put_before_by(
        &self,
        teid: Teid,
        frame: &mut Frame,
        of_flow: fn(&[u8]) -> FlowFields,
    ) -> bool {
        let keep = frame.packet_len();
        self.write(teid, frame, 0, keep, |packet| of_flow(packet)).is_some()
            && frame.strip(ethernet::HEADER_LEN)
    }

    fn set_ethernet(&mut self, src: [u8; 6], dst: [u8; 6]) -> Result<(), Error> {
        let ethertype = if self.is_ipv4 { EtherType::IPV4 } else { EtherType::IPV6 };
        let at = BYTES - usize::from(self.len);
        EthernetRepr { dst: MacAddr(dst), src: MacAddr(src), ethertype }.emit(&mut self.bytes[at..])?;
        Ok(())
    }

    /// Leaves of a frame `keep` octets behind the first `head`, which are a user packet, and puts the
    /// headers before them, Ethernet and all. `finish` does what is left to do to the packet itself, before
    /// anything is computed over it, and gives what the headers take from it.
    ///
    /// `None`, with the frame unchanged, when the packet is too long for the length fields, the frame has no
    /// headroom, or a chain would have to be cut.
    #[inline(always)]
    pub(super) fn write(
        &self,
        teid: Teid,
        frame: &mut Frame,
        head: usize,
        keep: usize,
        finish: impl Fn(&mut [u8]) -> FlowFields,
    ) -> Option<()> {
        match (self.is_ipv4, usize::from(self.gtpu_len)) {
            (true, GTPU_CONTAINER) => {
                self.write_as::<V4_CONTAINER, GTPU_CONTAINER>(teid, frame, head, keep, finish)
            }
            (true, GTPU_PLAIN) => self.write_as::<V4_PLAIN, GTPU_PLAIN>(teid, frame, head, keep, finish),
            (false, GTPU_CONTAINER) => {
                self.write_as::<V6_CONTAINER, GTPU_CONTAINER>(teid, frame, head, keep, finish)
            }
            (false, GTPU_PLAIN) => self.write_as::<V6_PLAIN, GTPU_PLAIN>(teid, frame, head, keep, finish),
            _ => self.write_with_ppi(teid, frame, head, keep, finish),
        }
    }

    /// As [`OuterTemplate::write`], of headers over IPv4 with a PDU session container; `None` for all others.
    #[inline(always)]
    pub(super) fn write_fast(
        &self,
        teid: Teid,
        frame: &mut Frame,
        head: usize,
        keep: usize,
        finish: impl Fn(&mut [u8]) -> FlowFields,
    ) -> Option<()> {
        if !self.is_eligible {
            return None;
        }
        self.write_as::<V4_CONTAINER, GTPU_CONTAINER>(teid, frame, head, keep, finish)
    }

    /// As [`OuterTemplate::write`], of a container with a paging policy indicator.
    #[cold]
    #[inline(never)]
    fn write_with_ppi(
        &self,
        teid: Teid,
        frame: &mut Frame,
        head: usize,
        keep: usize,
        finish: impl Fn(&mut [u8]) -> FlowFields,
    ) -> Option<()> {
        match self.is_ipv4 {
            true => self.write_as::<V4_WITH_PPI, GTPU_WITH_PPI>(teid, frame, head, keep, finish),
            false => self.write_as::<V6_WITH_PPI, GTPU_WITH_PPI>(teid, frame, head, keep, finish),
        }
    }

    /// As [`OuterTemplate::write`], for headers of `LEN` octets of which `GTPU` are GTP-U's.
    #[inline(always)]
    fn write_as<const LEN: usize, const GTPU: usize>(
        &self,
        teid: Teid,
        frame: &mut Frame,
        head: usize,
        keep: usize,
        finish: impl Fn(&mut [u8]) -> FlowFields,
    ) -> Option<()> {
        const { assert!(LEN <= BYTES && LEN > GTPU + udp::HEADER_LEN) };
        let total = u16::try_from(keep + LEN - ethernet::HEADER_LEN).ok()?;
        let (headers, packet) = frame.rewrite_head::<LEN>(head, keep)?;
        let FlowFields { src_port, class, is_ip } = finish(packet);
        let src_port = if self.entropy { src_port } else { gtpu::UDP_PORT };
        let class = class & self.copied;
        headers.copy_from_slice(&self.bytes[BYTES - LEN..]);
        let udp_at = LEN - GTPU - udp::HEADER_LEN;
        #[allow(clippy::cast_possible_truncation)] // 20 or 40.
        let ip_len = (udp_at - ethernet::HEADER_LEN) as u16;
        if usize::from(ip_len) == ipv4::HEADER_LEN {
            let mut ip = Ipv4Fields::new(layout::at_mut(headers, IP_AT));
            ip.set_total_len(total);
            ip.set_tos(ip.tos() | class);
            ip.set_checksum(!checksum::add(checksum::add(self.sum, total), class.into()));
        } else {
            let mut ip = Ipv6Fields::new(layout::at_mut(headers, IP_AT));
            ip.add_traffic_class(class);
            ip.set_payload_len(total - ip_len);
        }
        let udp_len = total - ip_len;
        let mut datagram = UdpFields::new(layout::at_mut(headers, udp_at));
        datagram.set_src_port(src_port);
        datagram.set_len(udp_len);
        let mut message = GtpuFields::new(layout::at_mut(headers, LEN - GTPU));
        message.set_length(udp_len - BEFORE_LENGTH);
        message.set_teid(teid.0);
        if self.checksum {
            let packet = is_ip.then_some(&*packet);
            match packet.and_then(|packet| self.sum_around(packet, keep, src_port, udp_len, teid)) {
                Some(sum) => {
                    UdpFields::new(layout::at_mut(headers, udp_at)).set_checksum(checksum::udp_sent(!sum));
                }
                None => fill_checksum(frame, udp_at, self.ends),
            }
        }
        Some(())
    }

    /// Sum of the tunnel's datagram around a packet of `len` octets, whose own checksum tells the sum of its payload; `None`
    /// where it has none.
    #[inline(never)]
    fn sum_around(&self, packet: &[u8], len: usize, src_port: u16, udp_len: u16, teid: Teid) -> Option<u16> {
        let sum = checksum::sum_of_ip(packet, len)?;
        let [high, low] = halves(teid.0);
        // The length of UDP is in the pseudo-header too.
        Some(checksum::combine(&[
            self.udp_sum,
            sum,
            src_port,
            udp_len,
            udp_len,
            udp_len - BEFORE_LENGTH,
            high,
            low,
        ]))
    }
}

/// The words of 16 bits of a number.
#[allow(clippy::cast_possible_truncation)] // The halves.
const fn halves(number: u32) -> [u16; 2] {
    [(number >> 16) as u16, number as u16]
}

/// A template with its way out, as a worker keeps it.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub(super) struct CachedTemplate {
    pub(super) template: OuterTemplate,
    /// Largest user packet that goes out whole.
    pub(super) packet_max: u16,
    pub(super) port: PortId,
}

/// The templates that one worker has used so far, by the numbers of their shapes.
#[derive(Debug, Default)]
pub(super) struct PreparedTunnels {
    by_shape: Vec<Option<CachedTemplate>>,
    /// Generation of the next hops in which all of them were made.
    generation: u64,
}

impl PreparedTunnels {
    /// Forgets all that was made in another generation of the next hops.
    #[inline]
    pub(super) fn renew(&mut self, generation: u64) {
        if generation != self.generation {
            self.by_shape.clear();
            self.generation = generation;
        }
    }

    /// The template of a shape, if it was made since the next hops last changed.
    #[inline(always)]
    pub(super) fn get(&self, id: EncapTemplateId) -> Option<&CachedTemplate> {
        self.by_shape.get(id.index())?.as_ref()
    }

    /// Makes the template of a shape; does nothing while its next hop is not known.
    #[cold]
    pub(super) fn prepare(
        &mut self,
        id: EncapTemplateId,
        encap: &EncapTemplate,
        settings: &NodeSettings,
        next_hops: &mut NextHops,
    ) {
        let Resolution::Ready(NextHop { port, mac }) = next_hops.resolve(encap.peer) else { return };
        if next_hops.generation() != self.generation {
            // The next hops changed since the batch began; the next batch sees to it.
            return;
        }
        let PortRole { mac: own, mtu, .. } = settings.ports[port.index()];
        let Ok(mut template) = OuterTemplate::new(settings, encap) else { return };
        if template.set_ethernet(own, mac).is_err() {
            return;
        }
        let packet_max = u16::try_from(mtu.saturating_sub(template.overhead())).unwrap_or(u16::MAX);
        if self.by_shape.len() <= id.index() {
            self.by_shape.resize(id.index() + 1, None);
        }
        self.by_shape[id.index()] = Some(CachedTemplate { template, packet_max, port });
    }
}
