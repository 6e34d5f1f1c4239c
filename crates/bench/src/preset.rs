//! Streams made from a description of bearers: what one otherwise writes offset by offset.
//!
//! ```text
//!   uplink    Ethernet · tags · IP access node n▶device · UDP · GTP-U TEID n, PDU session container · IP UE n▶server · UDP or TCP
//!   downlink  Ethernet · tags · IP server▶UE n · UDP or TCP
//! ```
//! A packet's bearer is its sequence number, modulo their number; its access node and its tags follow from the bearer.

use std::net::IpAddr;

use kaido_wire::{GtpuRepr, IpProtocol, Ipv4Repr, Ipv6Repr, PduSession, TcpFlags, TcpRepr, UdpRepr, gtpu};
use serde::{Deserialize, Serialize};

use crate::Direction;
use crate::generator::Problem;
use crate::oracle::{Bearers, Side, check};
use crate::shape::Flow;
use crate::stream::{Lengths, Operation, Template, Variable, Width, Write};

/// TTL and hop limit of what is sent.
const HOPS: u8 = 64;
/// Ports of the UE and of the server.
const UE_PORT: u16 = 40_000;
const SERVER_PORT: u16 = 443;
/// A byte of payload for each position, so that misplaced bytes show.
const PAYLOAD: usize = 251;

/// What user packets carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// UDP, with checksum.
    #[default]
    Udp,
    /// TCP segments of an established connection.
    Tcp,
}

/// The order in which bearers have packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BearerOrder {
    /// One after the other.
    #[default]
    Turn,
    /// Any, all equally likely; only with one access node and one tag of each kind.
    Random,
}

/// A stream over bearers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preset {
    /// Which way its packets go.
    pub direction: Direction,
    /// What they carry.
    #[serde(default)]
    pub transport: Transport,
    /// Which bearers they belong to.
    #[serde(default)]
    pub order: BearerOrder,
    /// Lengths of the frames.
    #[serde(default)]
    pub lengths: Lengths,
}

impl Preset {
    /// A stream of UDP over all bearers in turn.
    pub fn new(direction: Direction, lengths: Lengths) -> Self {
        Self { direction, transport: Transport::Udp, order: BearerOrder::Turn, lengths }
    }

    /// The template of the stream.
    ///
    /// # Errors
    /// What is wrong with the bearers, or does not go together.
    pub fn template(&self, bearers: &Bearers) -> Result<Template, Vec<Problem>> {
        self.template_of(bearers, None)
    }

    /// The template of a stream of packets of one QoS flow of the bearers' shape, of some of them in this order.
    pub(crate) fn template_of(
        &self,
        bearers: &Bearers,
        chosen: Option<Selection<'_>>,
    ) -> Result<Template, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut wrong = |field: &str, message: String| {
            problems.push(Problem { stream: None, field: field.to_owned(), message });
        };
        check(bearers, &mut wrong);
        let side = self.side(bearers);
        let is_turned = bearers.peers > 1 || side.tags.iter().any(|tag| tag.count > 1);
        if chosen.is_none() && self.order == BearerOrder::Random && is_turned {
            wrong("order", "random bearers need one access node, and one tag of each kind".to_owned());
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let mut build = Build {
            template: Template { lengths: self.lengths.clone(), ..Template::default() },
            order: self.order,
            chosen,
        };
        let last = u64::from(bearers.count - 1);
        let operation = match (self.order, chosen) {
            (_, Some(chosen)) => chosen.list(u64::from),
            (BearerOrder::Turn, None) => Operation::Increment { first: 0, last, step: 1 },
            (BearerOrder::Random, None) => Operation::Random { min: 0, max: last, repeat_after: 0 },
        };
        build.variable("bearer", operation);
        if let Some(chosen) = chosen.filter(|_| bearers.shape.tenants().is_some()) {
            build.variable("ue", chosen.list(|bearer| bearers.shape.ue_number(bearer).into()));
        }
        build.link(side, self.ip_outside(bearers));
        match self.direction {
            Direction::Uplink => build.uplink(bearers, self.transport),
            Direction::Downlink => build.downlink(bearers, self.transport),
        }
        build.template.bytes.extend((0..PAYLOAD).map(|at| u8::try_from(at).unwrap_or(0)));
        if self.lengths == Lengths::Template {
            build.template.lengths = Lengths::Fixed(128);
        }
        Ok(build.template)
    }

    /// The side on which its packets go in.
    pub fn side<'b>(&self, bearers: &'b Bearers) -> &'b Side {
        match self.direction {
            Direction::Uplink => &bearers.access,
            Direction::Downlink => &bearers.core,
        }
    }

    /// An address of the outermost IP header.
    fn ip_outside(&self, bearers: &Bearers) -> IpAddr {
        match self.direction {
            Direction::Uplink => bearers.local,
            Direction::Downlink => bearers.server,
        }
    }
}

/// Bearers in the order in which they have packets, and which packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection<'c> {
    pub(crate) bearers: &'c [u32],
    pub(crate) flow: &'c Flow,
}

impl Selection<'_> {
    fn list(self, of: impl Fn(u32) -> u64) -> Operation {
        Operation::List(self.bearers.iter().map(|&bearer| of(bearer)).collect())
    }
}

/// A stream for each QoS flow of the bearers' shape: its name, its template, and its packets beside those of the others. Idle sessions
/// have none.
///
/// # Errors
/// As [`Preset::template`].
pub(crate) fn flow_templates(
    preset: &Preset,
    bearers: &Bearers,
    order: impl Fn(&mut Vec<u32>),
) -> Result<Vec<(String, Template, f64)>, Vec<Problem>> {
    let (direction, shape) = (preset.direction.name(), bearers.shape);
    let is_uniform = shape.flows().len() == 1 && shape.tenants().is_none();
    if is_uniform {
        return Ok(vec![(direction.to_owned(), preset.template(bearers)?, 1.0)]);
    }
    let mut templates = Vec::new();
    for (number, flow) in shape.flows().iter().enumerate() {
        let mut sessions: Vec<u32> = shape.sessions_of(number, bearers.count).collect();
        order(&mut sessions);
        if !sessions.is_empty() {
            let chosen = Some(Selection { bearers: &sessions, flow });
            let name = format!("{direction} QFI {}", flow.qfi);
            templates.push((name, preset.template_of(bearers, chosen)?, shape.flow_weight(number)));
        }
    }
    Ok(templates)
}

/// A template under construction, from its front.
struct Build<'c> {
    template: Template,
    order: BearerOrder,
    chosen: Option<Selection<'c>>,
}

impl Build<'_> {
    fn variable(&mut self, name: &str, operation: Operation) {
        self.template.variables.push(Variable {
            name: name.to_owned(),
            width: Width::Four,
            operation,
            after: None,
        });
    }

    /// Writes a value at an offset from the end of what is there.
    fn write(&mut self, variable: &str, offset: usize, width: Width, add: u64) -> &mut Write {
        let offset = u16::try_from(self.template.bytes.len() + offset).unwrap_or(u16::MAX);
        let write = Write { width: Some(width), add: add.cast_signed(), ..Write::new(variable, offset) };
        self.template.writes.push(write);
        let last = self.template.writes.len() - 1;
        &mut self.template.writes[last]
    }

    fn link(&mut self, side: &Side, ip: IpAddr) {
        self.template.bytes.extend(side.device_mac.octets());
        self.template.bytes.extend(side.bench_mac.octets());
        for (place, tag) in side.tags.iter().enumerate() {
            self.template.bytes.extend(tag.tpid.to_be_bytes());
            if tag.count > 1 && (self.chosen.is_some() || self.order == BearerOrder::Turn) {
                let name = format!("tag{place}");
                let in_turn = Operation::Increment { first: 0, last: u64::from(tag.count) - 1, step: 1 };
                let of = |bearer| u64::from(bearer % u32::from(tag.count));
                self.variable(&name, self.chosen.map_or(in_turn, |chosen| chosen.list(of)));
                self.write(&name, 0, Width::Two, tag.first.into()).mask = Some(0xfff);
            }
            self.template.bytes.extend(tag.of(0).to_be_bytes());
        }
        let ethertype: u16 = if ip.is_ipv4() { 0x0800 } else { 0x86dd };
        self.template.bytes.extend(ethertype.to_be_bytes());
    }

    fn header(&mut self, src: IpAddr, dst: IpAddr, protocol: IpProtocol) {
        // Lengths and checksums are the generator's work.
        let mut space = [0; 40];
        let len = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                Ipv4Repr::whole([src, dst], protocol, HOPS).emit(&mut space)
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let header = Ipv6Repr {
                    src,
                    dst,
                    next_header: protocol,
                    hop_limit: HOPS,
                    traffic_class: 0,
                    flow_label: 0,
                    payload_len: 0,
                };
                header.emit(&mut space)
            }
            // Families were compared before.
            _ => Ok(0),
        };
        self.template.bytes.extend(&space[..len.unwrap_or(0)]);
    }

    /// Has the address at an offset follow a variable: `first` and as many behind it, or networks of 64 bits.
    fn address(&mut self, variable: &str, offset: usize, first: IpAddr, by_network: bool) {
        #[allow(clippy::cast_possible_truncation)] // The halves.
        match first {
            IpAddr::V4(first) => self.write(variable, offset, Width::Four, first.to_bits().into()),
            IpAddr::V6(first) if by_network => {
                self.write(variable, offset, Width::Eight, (first.to_bits() >> 64) as u64)
            }
            IpAddr::V6(first) => self.write(variable, offset + 8, Width::Eight, first.to_bits() as u64),
        };
    }

    fn uplink(&mut self, bearers: &Bearers, transport: Transport) {
        let outer_src = if bearers.local.is_ipv4() { 12 } else { 8 };
        if bearers.peers > 1 {
            self.variable(
                "peer",
                Operation::Increment { first: 0, last: u64::from(bearers.peers) - 1, step: 1 },
            );
            self.address("peer", outer_src, bearers.peer_first, false);
        }
        self.header(bearers.peer_first, bearers.local, IpProtocol::UDP);
        // Over IPv6 a checksum is due, and zero says that one is none.
        self.udp(gtpu::UDP_PORT, gtpu::UDP_PORT, bearers.local.is_ipv6());
        self.write("bearer", 4, Width::Four, bearers.teid_first.into());
        let qfi = self.chosen.map(|chosen| chosen.flow.qfi).or(bearers.qfi);
        let pdu_session = qfi.map(|qfi| PduSession::Uplink { qfi });
        let header = GtpuRepr { pdu_session, ..GtpuRepr::g_pdu(bearers.teid_first, 0) };
        let mut space = [0; 32];
        let len = header.emit(&mut space).unwrap_or(0);
        self.template.bytes.extend(&space[..len]);
        let inner_src = if bearers.server.is_ipv4() { 12 } else { 8 };
        self.address(self.ue_variable(bearers), inner_src, bearers.ue_first, true);
        let (host, port) = self.remote(bearers);
        self.user(bearers.ue_first, host, (UE_PORT, port), transport);
    }

    fn downlink(&mut self, bearers: &Bearers, transport: Transport) {
        let dst = if bearers.server.is_ipv4() { 16 } else { 24 };
        self.address(self.ue_variable(bearers), dst, bearers.ue_first, true);
        let (host, port) = self.remote(bearers);
        self.user(host, bearers.ue_first, (port, UE_PORT), transport);
    }

    /// What the UE's address follows: sessions of other tenants have the same.
    fn ue_variable(&self, bearers: &Bearers) -> &'static str {
        if self.chosen.is_some() && bearers.shape.tenants().is_some() { "ue" } else { "bearer" }
    }

    /// The remote end of the packets.
    fn remote(&self, bearers: &Bearers) -> (IpAddr, u16) {
        let own = (bearers.server, SERVER_PORT);
        self.chosen.map_or(own, |chosen| (chosen.flow.host(bearers.family()), chosen.flow.port))
    }

    fn user(&mut self, src: IpAddr, dst: IpAddr, ports: (u16, u16), transport: Transport) {
        match transport {
            Transport::Udp => {
                self.header(src, dst, IpProtocol::UDP);
                self.udp(ports.0, ports.1, true);
            }
            Transport::Tcp => {
                self.header(src, dst, IpProtocol::TCP);
                let header = TcpRepr {
                    src_port: ports.0,
                    dst_port: ports.1,
                    sequence: 1,
                    acknowledgment: 1,
                    flags: TcpFlags::ACK,
                    window: 1024,
                    urgent: 0,
                    options: &[],
                };
                let mut space = [0; 20];
                let len = header.emit(&mut space).unwrap_or(0);
                self.template.bytes.extend(&space[..len]);
            }
        }
    }

    fn udp(&mut self, src_port: u16, dst_port: u16, checksum: bool) {
        let mut space = [0; 8];
        let len = UdpRepr { src_port, dst_port, payload_len: 0 }.emit(&mut space).unwrap_or(0);
        if checksum {
            space[6..8].fill(0xff);
        }
        self.template.bytes.extend(&space[..len]);
    }
}
