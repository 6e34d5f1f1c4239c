//! Groups of packets, which go through the stages together.

use arrayvec::ArrayVec;
use kaido_engine::{BATCH_MAX, Frame, PortId};
use kaido_table::{Probe, Stages};

use super::Worker;
use super::parse::{ParsedFrame, parse};
use super::read::{FrameHead, Kind, outer_source};
use super::select::fast_flow;
use crate::key::SessionKey;
use crate::node::Node;
use crate::qos::PolicerSlot;
use crate::record::{CommonPath, FastPath, Record};
use crate::usage::UsageSlot;

/// Packets that go through the stages together. They are enough for the misses of one stage to overlap, those of the TLB
/// too, and few enough for what they bring to be still in the cache at the next.
pub(super) const GROUP: usize = 16;
/// So many groups before its turn a group's frames are fetched. More would drive each other out of the cache, in which frames that
/// all begin at the same place of a page compete for few places.
pub(super) const FETCH_AHEAD: usize = 2;
pub(super) const GROUPS: usize = BATCH_MAX / GROUP;
/// Read, compare tags, compare keys, act.
pub(super) const STAGES: usize = 4;

/// What is known of the packets of a group.
#[derive(Clone, Copy, Default)]
pub(super) struct Group<'g> {
    pub(super) arrivals: [FrameHead; GROUP],
    pub(super) probes: [Probe<'g, SessionKey, Record>; GROUP],
    pub(super) records: [Option<&'g Record>; GROUP],
    /// Those of the rules that packets match, where a record has several.
    chosen: [Option<&'g Record>; GROUP],
    /// A record has lines to choose from.
    has_lines: bool,
    /// The way of all its packets, if they have the same.
    fast_path: FastPath,
}

/// Where a packet leaves that needs nothing more: a port, before others or not; or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exit(u16);

impl Exit {
    pub(super) const NONE: Self = Self(u16::MAX);
    const PREFERRED: u16 = 1 << 8;

    /// Preferred, where there is a port.
    #[inline(always)]
    pub(super) fn high_priority(self) -> Self {
        Self(self.0 | Self::PREFERRED)
    }

    #[inline(always)]
    pub(super) fn is_high_priority(self) -> bool {
        self.0 & Self::PREFERRED != 0
    }

    #[inline(always)]
    pub(super) fn port(self) -> Option<PortId> {
        let [port, _] = self.0.to_le_bytes();
        (self != Self::NONE).then_some(PortId(port))
    }
}

impl From<PortId> for Exit {
    #[inline(always)]
    fn from(port: PortId) -> Self {
        Self(port.0.into())
    }
}

impl From<Option<PortId>> for Exit {
    #[inline(always)]
    fn from(port: Option<PortId>) -> Self {
        port.map_or(Self::NONE, Self::from)
    }
}

/// The port from which all of some packets leave that need nothing more, none before others.
#[inline(always)]
pub(super) fn common(exits: &[Exit]) -> Option<PortId> {
    let first = *exits.first()?;
    let differs = exits.iter().fold(0, |differs, exit| differs | (exit.0 ^ first.0));
    first.port().filter(|_| differs == 0 && !first.is_high_priority())
}

/// What the parse stage found about the frames of a batch that are not eligible for the fast path, in their order.
pub(super) type SlowFrames = ArrayVec<ParsedFrame, BATCH_MAX>;

// Each stage is a function of its own, so that it has the registers to itself.
impl<'g> Group<'g> {
    #[inline(never)]
    pub(super) fn read(
        &mut self,
        worker: &Worker,
        stages: Stages<'g, SessionKey, Record>,
        port: PortId,
        frames: &[Frame],
        slow: &mut SlowFrames,
    ) {
        let facts = worker.ports.facts(port);
        let mut fast_path = CommonPath::new();
        for ((arrived, frame), probe) in self.arrivals.iter_mut().zip(frames).zip(&mut self.probes) {
            // Of what it returns: to read it in `arrived` again, so soon, waits for the store.
            fast_path.add(facts.read(&worker.ports, frame, arrived));
            if arrived.kind == Kind::NotEligible {
                read_again(worker, port, frame, arrived, slow);
            }
            if arrived.kind != Kind::NotEligible {
                *probe = stages.hash(&arrived.key);
            }
        }
        self.probes.iter().for_each(|probe| stages.ask(probe));
        self.fast_path = fast_path.get();
    }

    #[inline(never)]
    pub(super) fn resolve(&mut self, stages: Stages<'g, SessionKey, Record>, node: &Node) {
        let known = self.probes.iter().zip(&self.arrivals);
        let found = self.records.iter_mut().zip(&mut self.chosen);
        for ((record, chosen), (probe, arrived)) in found.zip(known) {
            if arrived.kind != Kind::NotEligible {
                *record = stages.resolve(*probe, &arrived.key);
                *chosen = *record;
                if let Some(record) = record {
                    self.has_lines |= prefetch(record, node);
                }
            }
        }
        if node.framed.are_there() {
            self.find_behind(stages, node);
        }
    }

    /// Finds the sessions of packets to networks behind UEs.
    #[cold]
    #[inline(never)]
    fn find_behind(&mut self, stages: Stages<'g, SessionKey, Record>, node: &Node) {
        for (chosen, arrived) in self.chosen.iter_mut().zip(&self.arrivals) {
            if chosen.is_none() && arrived.kind == Kind::Eligible {
                *chosen = behind(stages, node, arrived);
                self.has_lines |= chosen.is_some_and(|record| prefetch(record, node));
            }
        }
    }

    /// Finds the rules that packets match of records with lines.
    #[inline(never)]
    fn choose(&mut self, node: &Node, frames: &[Frame]) {
        let known = self.chosen.iter_mut().zip(&self.arrivals);
        for ((chosen, arrived), frame) in known.zip(frames) {
            if let Some(record) = chosen.filter(|record| record.has_lines()) {
                let flow = fast_flow(record.direction(), arrived, frame);
                *chosen = flow.and_then(|flow| record.of_flow(&node.lines, &flow));
                if let Some(rule) = chosen {
                    prefetch_cells(rule, node);
                }
            }
        }
    }

    /// Leaves packets to the slow path that do not come from the gNB which their session is bound to: that one drops them.
    #[cold]
    #[inline(never)]
    fn leave_mismatched(&mut self, frames: &[Frame]) {
        let known = self.chosen.iter_mut().zip(&self.records).zip(&self.arrivals);
        for (((chosen, record), arrived), frame) in known.zip(frames) {
            if let Some(record) = record
                && arrived.fast_path == FastPath::UP
                && !outer_source(frame).is_some_and(|source| record.admits_gnb(source))
            {
                *chosen = None;
            }
        }
    }

    /// Makes packets ready to leave that need nothing more.
    #[inline(always)]
    pub(super) fn act(
        &mut self,
        node: &Node,
        worker: &mut Worker,
        frames: &mut [Frame],
        quiet: bool,
        exits: &mut [Exit],
    ) {
        if self.has_lines {
            self.choose(node, frames);
        }
        if worker.bind_gnb {
            self.leave_mismatched(frames);
        }
        let may_be_plain = quiet && worker.mss_clamp.is_none();
        match self.fast_path {
            FastPath::UP if may_be_plain => self.act_up(node, worker, frames, exits),
            FastPath::DOWN if may_be_plain => self.act_down(node, worker, frames, exits),
            _ => self.act_each(worker, frames, quiet, exits),
        }
    }

    #[inline(never)]
    fn act_up(&self, node: &Node, worker: &mut Worker, frames: &mut [Frame], exits: &mut [Exit]) {
        self.each(frames, exits, |record, arrived, frame| {
            let simple = worker.simple_uplink(node, record, arrived, frame);
            let common = simple.or_else(|| worker.metered_uplink(node, record, arrived, frame));
            common.unwrap_or_else(|| worker.fast(record, arrived, frame))
        });
    }

    #[inline(never)]
    fn act_down(&self, node: &Node, worker: &mut Worker, frames: &mut [Frame], exits: &mut [Exit]) {
        self.each(frames, exits, |record, arrived, frame| {
            let simple = worker.simple_downlink(node, record, arrived, frame);
            let common = simple.or_else(|| worker.metered_downlink(node, record, arrived, frame));
            common.unwrap_or_else(|| worker.fast(record, arrived, frame))
        });
    }

    #[inline(never)]
    fn act_each(&self, worker: &mut Worker, frames: &mut [Frame], quiet: bool, exits: &mut [Exit]) {
        self.each(frames, exits, |record, arrived, frame| {
            let may_go = quiet || !worker.may_overtake(record);
            if may_go { worker.fast(record, arrived, frame) } else { Exit::NONE }
        });
    }

    #[inline(always)]
    fn each(
        &self,
        frames: &mut [Frame],
        exits: &mut [Exit],
        mut act: impl FnMut(&Record, &FrameHead, &mut Frame) -> Exit,
    ) {
        let known = self.chosen.iter().zip(&self.arrivals);
        for (((record, arrived), frame), exit) in known.zip(frames).zip(exits) {
            if let Some(record) = record {
                *exit = act(record, arrived, frame);
            }
        }
    }
}

/// The record by which a packet is found that is to nobody's own address, but perhaps to a network behind a UE.
pub(super) fn behind<'g>(
    stages: Stages<'g, SessionKey, Record>,
    node: &Node,
    arrived: &FrameHead,
) -> Option<&'g Record> {
    node.framed.behind(stages, &arrived.key).map(|(_, record)| record)
}

/// Brings what packets of a record need next into the cache; whether that is lines.
#[inline(always)]
fn prefetch(record: &Record, node: &Node) -> bool {
    prefetch_cells(record, node);
    record.line_numbers().iter().for_each(|&line| node.lines.prefetch(line));
    record.has_lines()
}

/// Brings what packets of a record move into the cache.
#[inline(always)]
fn prefetch_cells(record: &Record, node: &Node) {
    record.folded_usage().iter().for_each(|&slot| node.usage.prefetch(UsageSlot(slot)));
    record.folded_rates().iter().for_each(|&slot| node.policers.prefetch(PolicerSlot(slot)));
}

/// Reads a frame that is not eligible for the fast path.
#[cold]
#[inline(never)]
fn read_again(worker: &Worker, port: PortId, frame: &Frame, arrived: &mut FrameHead, slow: &mut SlowFrames) {
    let parsed = parse(&worker.settings, port, frame);
    if let ParsedFrame::Tunnel(key, _) | ParsedFrame::ToUe(key, ..) = parsed {
        (arrived.key, arrived.kind) = (key, Kind::NotEligibleWithKey);
    }
    slow.push(parsed);
}
