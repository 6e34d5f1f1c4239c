//! The first rules of a key as cache lines, which a packet eligible for the fast path is compared with one after the other.
//!
//! ```text
//!   16 octets: what a packet must be │ 48 octets: the record of its rule
//! ```
//! A line says yes, no, or that it does not know: then, and for what a line has no record of, the rules themselves are looked at.
//! A rule with several SDF filters has a line for each. Lines lie among the records and counters of their session, in large pages.

use arrayvec::ArrayVec;
use kaido_table::LineValues;

use super::Record;
use super::fast_path::Flags;
use super::rule::Rule;
use crate::ids::SessionIndex;
use crate::rule::Detection;
use crate::ue::Direction;
use kaido_n4::{AddressMatch, SdfFilter};

/// Lines of a key: two pairs of cache lines.
pub const LINES_MAX: usize = 4;

/// What a packet must be to match a rule, as far as its QoS flow and one flow filter say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowMatch {
    /// Its QoS flow, if that matters.
    pub qfi: Option<u8>,
    /// Its protocol, if that matters.
    pub protocol: Option<u8>,
    /// Where the remote address lies.
    pub remote: AddressMatch,
    /// The lowest and highest port of the remote end and of the UE, where a port matters.
    pub ports: Option<[[u16; 2]; 2]>,
}

impl FlowMatch {
    /// Any packet, of a QoS flow if that matters.
    pub const fn any(qfi: Option<u8>) -> Self {
        Self { qfi, protocol: None, remote: AddressMatch::Any, ports: None }
    }

    /// That of a filter; `None` where it asks for more.
    fn of(sdf: &SdfFilter, qfi: Option<u8>) -> Option<Self> {
        let SdfFilter { protocol, remote, local, tos, spi, flow_label, id: _ } = sdf;
        let is_more = tos.is_some() || spi.is_some() || flow_label.is_some();
        if is_more || local.address != AddressMatch::Any {
            return None;
        }
        let range = |ports: &[(u16, u16)]| match *ports {
            [] => Some(ANY_PORTS),
            [(low, high)] => Some([low, high]),
            _ => None,
        };
        let ranges = [range(&remote.ports)?, range(&local.ports)?];
        let matters = !(remote.ports.is_empty() && local.ports.is_empty());
        Some(Self { qfi, protocol: *protocol, remote: remote.address, ports: matters.then_some(ranges) })
    }
}

/// What packets of a rule must be, one of these; `None` where that cannot be said so.
pub(crate) fn asks_of(rule: &Detection) -> Option<Vec<FlowMatch>> {
    if rule.ue.is_some() || rule.app.is_some() {
        return None;
    }
    let mut all = Vec::with_capacity(rule.sdf.len().max(1));
    for qfi in flows_of(rule.qfis) {
        if rule.sdf.is_empty() {
            all.push(FlowMatch::any(qfi));
        }
        for sdf in &rule.sdf {
            all.push(FlowMatch::of(sdf, qfi)?);
        }
    }
    Some(all)
}

/// The QoS flows of a set, or any where there is no set.
fn flows_of(qfis: Option<u64>) -> impl Iterator<Item = Option<u8>> {
    let any = qfis.is_none().then_some(None);
    let mut left = qfis.unwrap_or(0);
    let flows = std::iter::from_fn(move || {
        let first = u8::try_from(left.trailing_zeros()).ok().filter(|_| left != 0)?;
        left &= left - 1;
        Some(Some(first))
    });
    any.into_iter().chain(flows)
}

/// What lines ask of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketFlow {
    narrow: Narrow,
    /// The remote address; `None` in IPv6.
    remote: Option<u32>,
    ports: FlowPorts,
}

impl PacketFlow {
    /// Of the QoS flow in its PDU session container, and with that remote address; `None` for both where there is none, or it is IPv6.
    #[inline(always)]
    pub(crate) fn new(qfi: Option<u8>, protocol: u8, remote: Option<u32>, ports: FlowPorts) -> Self {
        let narrow = Narrow::ANY.with_qfi(qfi.unwrap_or(NO_QFI)).with_protocol(protocol);
        Self { narrow, remote, ports }
    }
}

/// The ports of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FlowPorts {
    /// The remote end's and the UE's.
    Known(u16, u16),
    /// Its protocol has none.
    None,
    /// Of a fragment, or too short.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Yes,
    No,
    Unknown,
}

/// A QFI that no rule asks for: the packet has none.
const NO_QFI: u8 = u8::MAX;
/// All ports.
const ANY_PORTS: [u16; 2] = [0, u16::MAX];

/// What a packet must be.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct LineMatch {
    remote: u32,
    remote_ports: [u16; 2],
    local_ports: [u16; 2],
    narrow: Narrow,
}

/// Fields of an octet, in a word, since they are compared together: from the lowest on flags, length of the network of the remote
/// address, protocol, QFI.
#[derive(Clone, Copy, Debug)]
struct Narrow(u32);

impl Narrow {
    const ANY: Self = Self(0);
    const ALL_QFI: u32 = 0xff << 24;
    const ALL_PROTOCOL: u32 = 0xff << 16;

    #[inline(always)]
    const fn with_qfi(self, qfi: u8) -> Self {
        Self(self.0 & !Self::ALL_QFI | (qfi as u32) << 24)
    }

    #[inline(always)]
    const fn with_protocol(self, protocol: u8) -> Self {
        Self(self.0 & !Self::ALL_PROTOCOL | (protocol as u32) << 16)
    }

    const fn with_prefix_len(self, len: u8) -> Self {
        Self(self.0 & !0xff00 | (len as u32) << 8)
    }

    const fn with_flags(self, flags: u8) -> Self {
        Self(self.0 | flags as u32)
    }

    #[inline(always)]
    const fn prefix_len(self) -> u32 {
        self.0 >> 8 & 0xff
    }
}

impl LineMatch {
    /// One QoS flow matches.
    const QFI: u8 = 1 << 0;
    /// One protocol matches.
    const PROTOCOL: u8 = 1 << 1;
    /// The fields of a [`Narrow`] word that matter, by those two.
    const MATTERS: [u32; 4] =
        [0, Narrow::ALL_QFI, Narrow::ALL_PROTOCOL, Narrow::ALL_QFI | Narrow::ALL_PROTOCOL];
    /// It cannot be said here.
    const UNKNOWN: u8 = 1 << 2;
    /// An IPv4 network, or, with [`LineMatch::IPV6`], an IPv6 network, in which the remote address lies.
    const REMOTE: u8 = 1 << 3;
    const IPV6: u8 = 1 << 4;
    /// Ports are asked for.
    const PORTS: u8 = 1 << 5;
    /// The line has no record.
    const CAREFUL: u8 = 1 << 6;

    const ANY: Self =
        Self { remote: 0, remote_ports: ANY_PORTS, local_ports: ANY_PORTS, narrow: Narrow::ANY };
    fn of(ask: &FlowMatch) -> Self {
        let mut asks = Self::ANY;
        let mut narrow = Narrow::ANY;
        if let Some(qfi) = ask.qfi {
            narrow = narrow.with_qfi(qfi).with_flags(Self::QFI);
        }
        if let Some(protocol) = ask.protocol {
            narrow = narrow.with_protocol(protocol).with_flags(Self::PROTOCOL);
        }
        if let Some([remote, local]) = ask.ports {
            (asks.remote_ports, asks.local_ports) = (remote, local);
            narrow = narrow.with_flags(Self::PORTS);
        }
        match ask.remote {
            AddressMatch::Any => {}
            AddressMatch::V4(network, len) => {
                asks.remote = network.to_bits();
                narrow = narrow.with_prefix_len(len).with_flags(Self::REMOTE);
            }
            AddressMatch::V6(..) => narrow = narrow.with_flags(Self::REMOTE | Self::IPV6),
        }
        Self { narrow, ..asks }
    }

    /// The same with more flags.
    const fn with_flags(self, flags: u8) -> Self {
        Self { narrow: self.narrow.with_flags(flags), ..self }
    }

    #[inline(always)]
    const fn has(&self, flag: u8) -> bool {
        self.narrow.0 & flag as u32 != 0
    }

    #[inline(always)]
    fn answer(&self, flow: &PacketFlow) -> Answer {
        let [known, asked] = [flow.narrow.0, self.narrow.0];
        let matters = Self::MATTERS[(asked & u32::from(Self::QFI | Self::PROTOCOL)) as usize];
        if (known ^ asked) & matters != 0 {
            return Answer::No;
        }
        if !self.has(Self::UNKNOWN | Self::REMOTE | Self::PORTS) {
            return Answer::Yes;
        }
        if self.has(Self::UNKNOWN) {
            return Answer::Unknown;
        }
        if self.has(Self::REMOTE) {
            match (flow.remote, self.has(Self::IPV6)) {
                (Some(_), true) | (None, false) => return Answer::No,
                (None, true) => return Answer::Unknown,
                (Some(remote), false) => {
                    let mask = u32::MAX.checked_shl(32 - self.narrow.prefix_len()).unwrap_or(0);
                    if (remote ^ self.remote) & mask != 0 {
                        return Answer::No;
                    }
                }
            }
        }
        if self.has(Self::PORTS) {
            let within = |[low, high]: [u16; 2], port: u16| (low <= port) & (port <= high);
            return match flow.ports {
                FlowPorts::Known(remote, local) => {
                    let is_it = within(self.remote_ports, remote) & within(self.local_ports, local);
                    if is_it { Answer::Yes } else { Answer::No }
                }
                FlowPorts::None => Answer::No,
                FlowPorts::Unknown => Answer::Unknown,
            };
        }
        Answer::Yes
    }
}

/// One line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Line {
    asks: LineMatch,
    record: Record,
}

const _: () = assert!(size_of::<Line>() == 64);

impl Line {
    /// Whether packets that come to it are left to the rules themselves.
    const fn is_left(&self) -> bool {
        self.asks.has(LineMatch::UNKNOWN) || self.asks.has(LineMatch::CAREFUL)
    }
}

/// The lines of rules, in their order; none where no line would have a record.
pub(super) fn of_rules(
    session: SessionIndex,
    direction: Direction,
    rules: &[Rule],
) -> ArrayVec<Line, LINES_MAX> {
    let all = rules.iter().filter(|rule| rule.detection().is_met(direction)).flat_map(|rule| {
        let record = rule.view().record();
        let unknown = || vec![LineMatch::ANY.with_flags(LineMatch::UNKNOWN)];
        let asks =
            asks_of(rule.detection()).map_or_else(unknown, |asks| asks.iter().map(LineMatch::of).collect());
        asks.into_iter().map(move |asks| match record {
            Some(record) => Line { asks, record: record.clone() },
            None => {
                Line { asks: asks.with_flags(LineMatch::CAREFUL), record: Record::empty(session, Flags(0)) }
            }
        })
    });
    let mut lines = ArrayVec::new();
    for line in all.take(LINES_MAX) {
        let is_last = line.asks.has(LineMatch::UNKNOWN);
        lines.push(line);
        if is_last {
            break;
        }
    }
    if lines.iter().all(Line::is_left) {
        lines.clear();
    }
    lines
}

/// Memory for lines.
pub(crate) type LineMemory = LineValues<Line>;

/// The lines of one record. Their own records point to nothing.
pub(super) type OwnLines = kaido_table::OwnLines<Line, LINES_MAX>;

/// The record of the rule that a packet matches; `None` where the rules themselves must be looked at.
#[inline(always)]
pub(super) fn choose<'r>(memory: &LineMemory, own: &'r Record, flow: &PacketFlow) -> Option<&'r Record> {
    for &number in own.line_numbers() {
        let line = memory.get(number, own);
        match line.asks.answer(flow) {
            Answer::Yes => return (!line.asks.has(LineMatch::CAREFUL)).then_some(&line.record),
            Answer::No => {}
            Answer::Unknown => return None,
        }
    }
    None
}
