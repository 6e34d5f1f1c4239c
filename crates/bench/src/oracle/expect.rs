//! What must come out for what went in. Written from the standards, with nothing of the user plane it judges.

use std::collections::HashMap;
use std::net::IpAddr;

use kaido_wire::{
    EtherType, GtpuRepr, IpProtocol, Ipv4Header, Ipv4Repr, Ipv6Header, Ipv6Repr, PduSession, UdpRepr,
    checksum, gtpu, ipv4, ipv6, udp,
};

use super::rules::{Bearers, Side, SourcePort};
use crate::generator::link;
use crate::shape::Flow;

/// First port of the dynamic ones (RFC 6335 section 6).
const DYNAMIC_PORTS: u16 = 49_152;
/// Flows whose source ports are remembered.
const FLOWS_MAX: usize = 65_536;

/// What must come of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expectation {
    /// It leaves.
    Out(Outcome),
    /// Nothing may come out, and why.
    Nothing(&'static str),
}

/// A packet that must come out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Place of the port among those of the rules: access or core.
    pub(crate) to_access: bool,
    /// The frame, with the values that the one which came has where several are right.
    pub(crate) frame: Vec<u8>,
}

/// A user packet that lies within a frame.
struct User<'p> {
    packet: &'p [u8],
    src: IpAddr,
    dst: IpAddr,
    hops: u8,
}

impl<'p> User<'p> {
    fn read(bytes: &'p [u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => {
                let Ipv4Header { total_len, src, dst, ttl, .. } = ipv4::header(bytes).ok()?;
                let packet = bytes.get(..total_len.into())?;
                Some(Self { packet, src: src.into(), dst: dst.into(), hops: ttl })
            }
            6 => {
                let Ipv6Header { total_len, src, dst, hop_limit, .. } = ipv6::header(bytes).ok()?;
                let packet = bytes.get(..usize::try_from(total_len).ok()?)?;
                Some(Self { packet, src: src.into(), dst: dst.into(), hops: hop_limit })
            }
            _ => None,
        }
    }

    /// Its protocol, and both ports where it has some and is whole.
    fn transport(&self) -> (u8, Option<[u16; 2]>) {
        let (protocol, at) = match self.src {
            IpAddr::V4(_) => (self.packet[9], usize::from(self.packet[0] & 0xf) * 4),
            IpAddr::V6(_) => (self.packet[6], ipv6::HEADER_LEN),
        };
        let has_ports = matches!(IpProtocol(protocol), IpProtocol::UDP | IpProtocol::TCP);
        let octets = self.packet.get(at..).and_then(|rest| rest.first_chunk::<4>()).filter(|_| has_ports);
        (protocol, octets.map(|&[s0, s1, d0, d1]| [[s0, s1], [d0, d1]].map(u16::from_be_bytes)))
    }

    /// The packet after one hop, its header checksum computed anew.
    fn forwarded(&self) -> Vec<u8> {
        let mut packet = self.packet.to_vec();
        if self.src.is_ipv4() {
            let header = usize::from(packet[0] & 0xf) * 4;
            packet[8] = self.hops - 1;
            packet[10..12].fill(0);
            let sum = checksum::checksum(&packet[..header]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        } else {
            packet[7] = self.hops - 1;
        }
        packet
    }
}

/// A link header towards the bench.
fn framed(side: &Side, bearer: u32, is_ipv4: bool, packet: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(packet.len() + 22);
    frame.extend(side.bench_mac.octets());
    frame.extend(side.device_mac.octets());
    for tag in &side.tags {
        frame.extend(tag.tpid.to_be_bytes());
        frame.extend(tag.of(bearer).to_be_bytes());
    }
    let ethertype = if is_ipv4 { EtherType::IPV4 } else { EtherType::IPV6 };
    frame.extend(ethertype.0.to_be_bytes());
    frame.extend(packet);
    frame
}

/// A UDP datagram over IP within a frame, whatever it carries.
struct Datagram<'p> {
    src_port: u16,
    dst_port: u16,
    dst: IpAddr,
    identification: u16,
    tos: u8,
    hops: u8,
    payload: &'p [u8],
}

impl<'p> Datagram<'p> {
    fn read(frame: &'p [u8]) -> Option<Self> {
        let (at, _) = link(frame)?;
        let outer = frame.get(at..)?;
        let (dst, tos, hops, identification, header_len, total_len) = match outer.first()? >> 4 {
            4 => {
                let header = ipv4::header(outer).ok()?;
                let identification = u16::from_be_bytes([outer[4], outer[5]]);
                let lengths = (usize::from(header.header_len), usize::from(header.total_len));
                (IpAddr::from(header.dst), outer[1], header.ttl, identification, lengths.0, lengths.1)
            }
            _ => {
                let header = ipv6::header(outer).ok()?;
                let lengths = (usize::from(header.header_len), usize::try_from(header.total_len).ok()?);
                (IpAddr::from(header.dst), header.traffic_class, header.hop_limit, 0, lengths.0, lengths.1)
            }
        };
        let datagram = outer.get(header_len..total_len)?;
        let ports = udp::header(datagram).ok()?;
        let payload = datagram.get(udp::HEADER_LEN..)?;
        Some(Self {
            src_port: ports.src_port,
            dst_port: ports.dst_port,
            dst,
            identification,
            tos,
            hops,
            payload,
        })
    }
}

/// Knows what must come out, and which source ports flows have.
#[derive(Debug)]
pub(crate) struct Expectations {
    pub(crate) bearers: Bearers,
    /// By flow; what has no room is judged by itself.
    source_ports: HashMap<(u32, IpAddr, IpAddr, [u8; 5]), u16>,
}

impl Expectations {
    pub(crate) fn new(bearers: Bearers) -> Self {
        Self { bearers, source_ports: HashMap::new() }
    }

    /// What must come of a frame that was sent out of the port of the access side, or of the core side. Where several
    /// values are right, `came` is taken for an example.
    pub(crate) fn of(&mut self, from_access: bool, sent: &[u8], came: &[u8]) -> Expectation {
        if from_access { self.uplink(sent) } else { self.downlink(sent, came) }
    }

    fn uplink(&self, sent: &[u8]) -> Expectation {
        let bearers = &self.bearers;
        let datagram = Datagram::read(sent).filter(|datagram| datagram.dst_port == gtpu::UDP_PORT);
        let message = datagram.and_then(|datagram| {
            Some((datagram.dst, gtpu::header(datagram.payload).ok()?, datagram.payload))
        });
        let message = message.filter(|(_, header, _)| header.message_type == gtpu::MessageType::G_PDU);
        let Some((dst, header, payload)) = message else { return Expectation::Nothing("not a G-PDU") };
        let Some(bearer) = bearers.of_teid(header.teid) else {
            return Expectation::Nothing("no bearer has its TEID");
        };
        if dst != bearers.local {
            return Expectation::Nothing("to another GTP-U address");
        }
        let inner = payload.get(header.payload_offset.into()..).unwrap_or_default();
        let Some(user) = User::read(inner) else { return Expectation::Nothing("no whole user packet") };
        // Tunnels tell the tenant; VLANs are of the core side.
        let vid = bearers.core.tags.first().map(|tag| tag.of(bearer) & 0xfff);
        if bearers.of_ue(user.src, vid) != Some(bearer) {
            return Expectation::Nothing("from an address that is not the UE's");
        }
        let (protocol, ports) = user.transport();
        let port = ports.map(|[_, remote]| remote);
        let flows = bearers.flows(bearer);
        let is_of = |flow: &Flow| header.qfi == Some(flow.qfi) && flow.takes(protocol, user.dst, port);
        if !flows.is_empty() && !flows.iter().any(is_of) {
            return Expectation::Nothing("no QoS flow of its bearer takes it");
        }
        if user.hops <= 1 {
            return Expectation::Nothing("it has no hop left");
        }
        let frame = framed(&bearers.core, bearer, user.src.is_ipv4(), &user.forwarded());
        Expectation::Out(Outcome { to_access: false, frame })
    }

    fn downlink(&mut self, sent: &[u8], came: &[u8]) -> Expectation {
        let user = link(sent).and_then(|(at, _)| User::read(sent.get(at..)?));
        let Some(user) = user else { return Expectation::Nothing("no whole IP packet") };
        let Some(bearer) = self.bearers.of_ue(user.dst, vid_of(sent)) else {
            return Expectation::Nothing("no bearer has its UE's address");
        };
        if !self.bearers.shape.is_active(bearer) {
            return Expectation::Nothing("its session is idle, and buffers");
        }
        if user.hops <= 1 {
            return Expectation::Nothing("it has no hop left");
        }
        let example = Datagram::read(came);
        let source_port = self.source_port(bearer, &user, example.as_ref().map(|outer| outer.src_port));
        match self.encapsulated(bearer, &user, source_port, example.as_ref()) {
            Some(frame) => Expectation::Out(Outcome { to_access: true, frame }),
            None => Expectation::Nothing("it is too long for a tunnel"),
        }
    }

    /// The outer source port that a packet of a flow must have.
    fn source_port(&mut self, bearer: u32, user: &User<'_>, came: Option<u16>) -> u16 {
        let dynamic = |port: &u16| *port >= DYNAMIC_PORTS;
        match self.bearers.outer.source_port {
            SourcePort::Fixed => gtpu::UDP_PORT,
            SourcePort::Any => came.unwrap_or(gtpu::UDP_PORT),
            SourcePort::Entropy => {
                let (protocol, ports) = user.transport();
                let mut rest = [protocol, 0, 0, 0, 0];
                if let Some(ports) = ports {
                    rest[1..].copy_from_slice(ports.map(u16::to_be_bytes).as_flattened());
                }
                // Tenants may have the same addresses.
                let flow = (bearer, user.src, user.dst, rest);
                if let Some(known) = self.source_ports.get(&flow) {
                    return *known;
                }
                let Some(port) = came.filter(dynamic) else { return DYNAMIC_PORTS };
                if self.source_ports.len() < FLOWS_MAX {
                    self.source_ports.insert(flow, port);
                }
                port
            }
        }
    }

    fn encapsulated(
        &self,
        bearer: u32,
        user: &User<'_>,
        src_port: u16,
        example: Option<&Datagram<'_>>,
    ) -> Option<Vec<u8>> {
        let bearers = &self.bearers;
        let packet = user.forwarded();
        let teid = bearers.access_teid_first.wrapping_add(bearer);
        let (protocol, ports) = user.transport();
        let port = ports.map(|[remote, _]| remote);
        let flow = bearers.flows(bearer).iter().find(|flow| flow.takes(protocol, user.src, port));
        let qfi = flow.map(|flow| flow.qfi).or(bearers.qfi);
        let pdu_session = qfi.map(|qfi| PduSession::Downlink { qfi, rqi: false, ppi: None });
        let payload_len = u16::try_from(packet.len()).ok()?;
        let gtpu = GtpuRepr { pdu_session, ..GtpuRepr::g_pdu(teid, payload_len) };
        let mut message = vec![0; gtpu.len()];
        gtpu.emit(&mut message).ok()?;
        message.extend(&packet);
        let payload_len = u16::try_from(message.len()).ok()?;
        let ports = UdpRepr { src_port, dst_port: gtpu::UDP_PORT, payload_len };
        let mut datagram = vec![0; udp::HEADER_LEN];
        ports.emit(&mut datagram).ok()?;
        datagram.extend(&message);
        let outer = bearers.outer;
        let length = u16::try_from(datagram.len()).ok()?;
        let hops = outer.hops.or(example.map(|outer| outer.hops)).unwrap_or(64);
        let came_tos = example.map_or(0, |outer| outer.tos);
        let tos = outer.dscp.map_or(came_tos, |dscp| dscp << 2);
        let peer = bearers.peer(bearer);
        let mut head;
        match (bearers.local, peer) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                if outer.checksum_over_ipv4 {
                    let pseudo = checksum::pseudo_v4(src, dst, IpProtocol::UDP, length);
                    fill(&mut datagram, pseudo);
                }
                let header = Ipv4Repr {
                    tos,
                    identification: example.map_or(0, |outer| outer.identification),
                    payload_len: length,
                    ..Ipv4Repr::whole([src, dst], IpProtocol::UDP, hops)
                };
                head = vec![0; header.len()];
                header.emit(&mut head).ok()?;
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                if outer.checksum_over_ipv6 {
                    let pseudo = checksum::pseudo_v6(src, dst, IpProtocol::UDP, length.into());
                    fill(&mut datagram, pseudo);
                }
                let header = Ipv6Repr {
                    src,
                    dst,
                    next_header: IpProtocol::UDP,
                    hop_limit: hops,
                    traffic_class: tos,
                    flow_label: 0,
                    payload_len: length,
                };
                head = vec![0; header.len()];
                header.emit(&mut head).ok()?;
            }
            _ => return None,
        }
        head.extend(&datagram);
        Some(framed(&bearers.access, bearer, bearers.local.is_ipv4(), &head))
    }
}

/// The VLAN identifier of a frame's outermost tag.
fn vid_of(frame: &[u8]) -> Option<u16> {
    let tag = frame.get(12..).and_then(|rest| rest.first_chunk::<4>())?;
    let is_tag = matches!([tag[0], tag[1]], [0x81, 0x00] | [0x88, 0xa8]);
    is_tag.then(|| u16::from_be_bytes([tag[2], tag[3]]) & 0xfff)
}

/// Computes a UDP checksum.
fn fill(datagram: &mut [u8], pseudo: u16) {
    datagram[6..8].fill(0);
    let sum = checksum::udp_sent(!checksum::combine(&[pseudo, checksum::sum(datagram)]));
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
}
