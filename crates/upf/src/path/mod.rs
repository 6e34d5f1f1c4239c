//! The packet path: one worker's side of the user plane.
//!
//! A batch goes through four stages in groups, each group a stage behind the one before it, so that the lines which one stage
//! asks for come while the others compute:
//!
//! ```text
//!  read, hash ─▶ compare tags ─▶ compare keys ─▶ act ─▶ transmit
//!   ╎ next batch's  ╎ records        ╎ counters     ├ straight: one copy of headers made beforehand
//!   ╎ headers,      ╎                ╎              └ else: rules · filters · gate · buffering · answers
//!   ╎ buckets       ╎                ╎
//! ```

mod answer;
mod applications;
mod bridge;
mod copy;
mod detect;
mod egress;
mod emit;
mod end_marker;
mod forward;
mod fragments;
mod frames;
mod hold;
mod lan;
mod laps;
mod local;
mod monitor;
mod mss;
mod outer;
mod oversize;
mod parse;
mod proxy;
mod rate;
mod read;
mod redirect;
mod relay;
mod straight;
mod trace;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use kaido_engine::{
    BATCH_MAX, Batch, Doorbell, DropReason, Frame, Function, NextHops, Output, PendingQueue, PortId,
    RateLimit,
};
use kaido_table::{Guard, Probe, Reader, Seed, Stages, TooManyReaders};

use self::applications::Flows;
use self::bridge::Flood;
use self::forward::Arrival;
use self::hold::Buffers;
use self::lan::LanHops;
use self::laps::{Laps, STAGES as STAGE_NAMES, Stage, Timed, Untimed};
pub use self::mss::MssClamp;
use self::outer::PreparedTunnels;
use self::parse::{Packet, Parsed, parse};
use self::read::{Arrived, Kind, Ports};
use self::relay::Stored;
use self::trace::Tracing;
use crate::node::{BufferChange, Node, WorkerEvent, WorkerOrder};
use crate::record::{CommonWay, Record, SessionIndex, SessionKey, StraightWay};

/// How often what waits too long is looked for.
const SWEEP: Duration = Duration::from_millis(100);
/// Questions about neighbours answered in place of who was asked, per second and worker.
const PROXIED_PER_SECOND: u32 = 10_000;
/// Segments answered in place of servers, per second and worker.
const REDIRECTIONS_PER_SECOND: u32 = 10_000;
/// Events kept for a control plane that has no room for them now.
const UNTOLD_MAX: usize = 65_536;

/// One worker's user plane.
#[derive(Debug)]
pub struct Path {
    node: Arc<Node>,
    reader: Reader,
    worker: Worker,
}

/// All of [`Path`] but its right to read the table, so that both can be borrowed.
#[derive(Debug)]
struct Worker {
    node: Arc<Node>,
    ports: Ports,
    next_hops: NextHops,
    prepared: PreparedTunnels,
    buffers: Buffers,
    pending: PendingQueue,
    /// Generation of the next hops in which the pending packets were last tried.
    pending_tried: u64,
    /// Changes of sessions up to which the buffered packets were looked at.
    buffer_changes: u64,
    swept: Instant,
    error_indications: RateLimit,
    extension_notices: RateLimit,
    icmp_errors: RateLimit,
    untold: Vec<WorkerEvent>,
    /// Which applications flows belong to.
    flows: Flows,
    lan_hops: LanHops,
    /// Sessions that frames to many go to.
    flood: Flood,
    /// Answers in place of who was asked.
    proxied: RateLimit,
    redirections: RateLimit,
    /// Makes sequence numbers that nobody guesses.
    secret: Seed,
    /// Extension headers of the tunnelled packet at hand.
    stored: Stored,
    tracing: Tracing,
    /// Whether TCP SYNs are looked at.
    clamps_mss: bool,
    /// When the worker's round began.
    now: Instant,
}

impl Path {
    /// A worker's user plane on `node`.
    ///
    /// # Errors
    /// [`TooManyReaders`] at the 257th.
    pub fn new(node: &Arc<Node>, next_hops: NextHops) -> Result<Self, TooManyReaders> {
        let settings = &node.settings;
        let limit = || RateLimit::new(settings.answers_per_second);
        let worker = Worker {
            buffers: Buffers::new(node.clone()),
            pending: PendingQueue::default(),
            pending_tried: 0,
            buffer_changes: node.buffer_changes(),
            swept: Instant::now(),
            error_indications: limit(),
            extension_notices: limit(),
            icmp_errors: limit(),
            untold: Vec::new(),
            flows: Flows::new(&node.applications),
            lan_hops: LanHops::new(),
            flood: Flood::default(),
            proxied: RateLimit::new(PROXIED_PER_SECOND),
            redirections: RateLimit::new(REDIRECTIONS_PER_SECOND),
            secret: Seed::random(),
            stored: Stored::default(),
            tracing: Tracing::default(),
            clamps_mss: settings.mss_clamp.is_some(),
            now: Instant::now(),
            ports: Ports::new(settings),
            prepared: PreparedTunnels::default(),
            next_hops,
            node: node.clone(),
        };
        Ok(Self { node: node.clone(), reader: node.domain.reader()?, worker })
    }
}

/// Packets that go through the stages together: enough for the misses of one stage to overlap, and few enough for
/// what they bring to be still in the cache at the next.
const GROUP: usize = 8;
const GROUPS: usize = BATCH_MAX / GROUP;
/// Read, compare tags, compare keys, act.
const STAGES: usize = 4;

/// What is known of the packets of a group.
#[derive(Clone, Copy, Default)]
struct Group<'g> {
    arrivals: [Arrived; GROUP],
    probes: [Probe<'g, SessionKey, Record>; GROUP],
    records: [Option<&'g Record>; GROUP],
    /// The way of all its packets, if they have the same.
    way: StraightWay,
}

/// Where a packet leaves that needs nothing more: a port, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exit(u16);

impl Exit {
    const NONE: Self = Self(u16::MAX);

    #[inline(always)]
    fn port(self) -> Option<PortId> {
        u8::try_from(self.0).ok().map(PortId)
    }
}

impl From<Option<PortId>> for Exit {
    #[inline(always)]
    fn from(port: Option<PortId>) -> Self {
        port.map_or(Self::NONE, |port| Self(port.0.into()))
    }
}

/// The port from which all of some packets leave that need nothing more.
#[inline(always)]
fn common(exits: &[Exit]) -> Option<PortId> {
    let first = *exits.first()?;
    let differs = exits.iter().fold(0, |differs, exit| differs | (exit.0 ^ first.0));
    first.port().filter(|_| differs == 0)
}

/// What the parse stage found about the frames of a batch that are not of the usual shape, in their order.
type Unusual = ArrayVec<Parsed, BATCH_MAX>;

// Each stage is a function of its own, so that it has the registers to itself.
impl<'g> Group<'g> {
    #[inline(never)]
    fn read(
        &mut self,
        worker: &Worker,
        stages: Stages<'g, SessionKey, Record>,
        port: PortId,
        frames: &[Frame],
        unusual: &mut Unusual,
    ) {
        let facts = worker.ports.facts(port);
        let mut way = CommonWay::new();
        for ((arrived, frame), probe) in self.arrivals.iter_mut().zip(frames).zip(&mut self.probes) {
            facts.read(&worker.ports, frame, arrived);
            if arrived.kind == Kind::Unusual {
                read_again(worker, port, frame, arrived, unusual);
            }
            if arrived.kind != Kind::Unusual {
                *probe = stages.hash(&arrived.key);
            }
            way.add(arrived.way);
        }
        self.way = way.get();
    }

    #[inline(never)]
    fn resolve(&mut self, stages: Stages<'g, SessionKey, Record>, node: &Node) {
        for ((record, probe), arrived) in self.records.iter_mut().zip(&self.probes).zip(&self.arrivals) {
            if arrived.kind != Kind::Unusual {
                *record = stages.resolve(*probe, &arrived.key);
                if let Some(&slot) = record.and_then(|record: &Record| record.folded_usage().first()) {
                    node.usage.prefetch(slot);
                }
                if let Some(slot) = record.and_then(Record::folded_policer) {
                    node.policers.prefetch(slot);
                }
            }
        }
    }

    /// Makes packets ready to leave that need nothing more.
    #[inline(always)]
    fn act(&self, node: &Node, worker: &mut Worker, frames: &mut [Frame], quiet: bool, exits: &mut [Exit]) {
        let may_be_plain = quiet && !worker.clamps_mss;
        match self.way {
            StraightWay::UP if may_be_plain => self.act_up(node, worker, frames, exits),
            StraightWay::DOWN if may_be_plain => self.act_down(node, worker, frames, exits),
            _ => self.act_each(worker, frames, quiet, exits),
        }
    }

    #[inline(never)]
    fn act_up(&self, node: &Node, worker: &mut Worker, frames: &mut [Frame], exits: &mut [Exit]) {
        self.each(frames, exits, |record, arrived, frame| {
            worker.plain_up(node, record, arrived, frame).or_else(|| worker.straight(record, arrived, frame))
        });
    }

    #[inline(never)]
    fn act_down(&self, node: &Node, worker: &mut Worker, frames: &mut [Frame], exits: &mut [Exit]) {
        self.each(frames, exits, |record, arrived, frame| {
            worker
                .plain_down(node, record, arrived, frame)
                .or_else(|| worker.straight(record, arrived, frame))
        });
    }

    #[inline(never)]
    fn act_each(&self, worker: &mut Worker, frames: &mut [Frame], quiet: bool, exits: &mut [Exit]) {
        self.each(frames, exits, |record, arrived, frame| {
            if quiet || !worker.may_overtake(record) { worker.straight(record, arrived, frame) } else { None }
        });
    }

    #[inline(always)]
    fn each(
        &self,
        frames: &mut [Frame],
        exits: &mut [Exit],
        mut act: impl FnMut(&Record, &Arrived, &mut Frame) -> Option<PortId>,
    ) {
        let known = self.records.iter().zip(&self.arrivals);
        for (((record, arrived), frame), exit) in known.zip(frames).zip(exits) {
            if let Some(record) = record {
                *exit = act(record, arrived, frame).into();
            }
        }
    }
}

/// Reads a frame that is not of the usual shape.
#[cold]
#[inline(never)]
fn read_again(worker: &Worker, port: PortId, frame: &Frame, arrived: &mut Arrived, unusual: &mut Unusual) {
    let parsed = parse(&worker.node.settings, port, frame);
    if let Parsed::Tunnel(key, _) | Parsed::ToUe(key, ..) = parsed {
        (arrived.key, arrived.kind) = (key, Kind::UnusualWithKey);
    }
    unusual.push(parsed);
}

impl Function for Path {
    fn name(&self) -> &'static str {
        "upf"
    }

    fn stages(&self) -> &'static [&'static str] {
        &STAGE_NAMES
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        if out.is_timed() {
            return self.process_timed(port, batch, out);
        }
        self.process_by(Untimed, port, batch, out);
    }

    fn tick(&mut self, out: &mut Output<'_>) {
        let Self { reader, worker, .. } = self;
        worker.now = out.now();
        for order in worker.node.take_orders() {
            match order {
                WorkerOrder::Announce(station) => worker.announce(&station, out),
                WorkerOrder::EndMarker(tunnel) => worker.end_marker(&tunnel, out),
                WorkerOrder::EchoRequest { peer, sequence } => worker.echo_request(peer, sequence, out),
            }
        }
        let changes = worker.node.buffer_changes();
        if changes != worker.buffer_changes {
            let since = std::mem::replace(&mut worker.buffer_changes, changes);
            if !worker.buffers.is_empty() {
                worker.look_at_buffers(&reader.pin(), since, out);
            }
        }
        if !worker.pending.is_empty() && worker.next_hops.generation() != worker.pending_tried {
            worker.retry_pending(out);
        }
        if out.now().saturating_duration_since(worker.swept) >= SWEEP {
            worker.sweep(out);
        }
    }

    fn tick_due(&self) -> Option<Instant> {
        self.worker.tick_due()
    }

    fn attach(&mut self, bell: &Arc<Doorbell>) {
        self.node.attach(bell);
        self.worker.next_hops.attach(bell);
    }
}

impl Path {
    #[cold]
    #[inline(never)]
    fn process_timed(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        self.process_by(Timed::start(), port, batch, out);
    }

    #[inline(always)]
    fn process_by(&mut self, mut laps: impl Laps, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        let Self { node, reader, worker } = self;
        worker.now = out.now();
        let guard = reader.pin();
        let stages = node.table.stages(&guard);
        worker.next_hops.refresh();
        worker.prepared.renew(worker.next_hops.generation());
        worker.follow_traces();
        let quiet = worker.is_quiet();
        let mut exits = [Exit::NONE; BATCH_MAX];
        let mut groups = [Group::default(); GROUPS];
        let mut unusual = Unusual::new();
        let len = batch.len();
        let in_use = len.div_ceil(GROUP);
        for step in 0..in_use + STAGES - 1 {
            let frames = |number: usize| number * GROUP..len.min((number + 1) * GROUP);
            if step < in_use {
                let ahead = out.incoming(port).iter().skip(step * GROUP).take(GROUP);
                let before = worker.ports.facts(port).headers_ahead();
                ahead.for_each(|frame| frame.prefetch(before));
                groups[step].read(worker, stages, port, &batch[frames(step)], &mut unusual);
                laps.lap(Stage::Read);
            }
            if let Some(group) = step.checked_sub(1).and_then(|number| groups[..in_use].get_mut(number)) {
                group.probes.iter_mut().for_each(|probe| stages.probe(probe));
                laps.lap(Stage::Probe);
            }
            if let Some(group) = step.checked_sub(2).and_then(|number| groups[..in_use].get_mut(number)) {
                group.resolve(stages, node);
                laps.lap(Stage::Resolve);
            }
            if let Some(number) = step.checked_sub(3) {
                let frames = frames(number);
                let exits = &mut exits[frames.clone()];
                groups[number].act(node, worker, &mut batch[frames], quiet, exits);
                laps.lap(Stage::Act);
            }
        }
        if let Some(exit) = common(&exits[..batch.len()]) {
            out.transmit_all(exit, batch);
            return laps.tell(out);
        }
        let mut unusual = unusual.into_iter();
        let found = groups.iter().flat_map(|group| group.arrivals.iter().zip(group.records)).zip(exits);
        for (frame, ((arrived, record), exit)) in batch.drain(..).zip(found) {
            if let Some(exit) = exit.port() {
                out.transmit(exit, frame);
            } else if arrived.kind == Kind::Usual {
                let parsed = parse(&node.settings, port, &frame);
                worker.handle_read(node, &guard, parsed, record, port, frame, out);
            } else if let Some(parsed) = unusual.next() {
                worker.handle_read(node, &guard, parsed, record, port, frame, out);
            }
        }
        laps.tell(out);
    }
}

impl Worker {
    /// A frame whose headers were read completely, and the record of its key, if it has one.
    #[allow(clippy::too_many_arguments)] // What the stages before have found.
    fn handle_read(
        &mut self,
        node: &Node,
        guard: &Guard<'_>,
        parsed: Parsed,
        record: Option<&Record>,
        port: PortId,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        if !self.tracing.is_empty() {
            let framed = match parsed {
                Parsed::ToUe(key, packet, _) if record.is_none() => {
                    node.framed.find(&node.table, guard, key.instance(), packet.dst)
                }
                _ => None,
            };
            let of_session = record.or(framed.map(|(_, record)| record));
            if let Some(of_session) = of_session.filter(|record| self.tracing.has(record.session())) {
                return self.handle_traced(node, guard, parsed, (of_session, record), port, frame, out);
            }
        }
        self.handle_parsed(node, guard, parsed, record, port, frame, out);
    }

    /// As [`Worker::handle_read`], whether the packet is traced or not.
    #[allow(clippy::too_many_arguments)] // What the stages before have found.
    fn handle_parsed(
        &mut self,
        node: &Node,
        guard: &Guard<'_>,
        parsed: Parsed,
        record: Option<&Record>,
        port: PortId,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        match parsed {
            Parsed::Kernel => out.to_kernel(port, frame),
            Parsed::Drop(reason) => out.drop(port, frame, reason),
            Parsed::OuterFragment(endpoint, packet_len, offset) => {
                self.outer_fragment(guard, endpoint, (packet_len, offset), port, frame, out);
            }
            Parsed::Bridged(lan, tags) => self.frame_from_lan(guard, lan, tags, port, frame, out),
            Parsed::Lan(lan, offset) => self.lan_control(guard, lan, offset, port, frame, out),
            Parsed::Signalling(outer) if outer.is_end_marker() => {
                self.end_marker_came(guard, &outer, port, frame, out);
            }
            Parsed::Signalling(outer) => self.signalling(&outer, port, frame, out),
            Parsed::Tunnel(key, outer) => match record {
                Some(record) => {
                    let qfi = outer.header.qfi;
                    self.tunnelled(guard, record, Arrival::new(port, key, qfi), &outer, frame, out);
                }
                None => self.unknown_teid(&outer, port, frame, out),
            },
            Parsed::ToUe(key, packet, offset) => match record
                .map(|record| (key, record))
                .or_else(|| node.framed.find(&node.table, guard, key.instance(), packet.dst))
            {
                Some((key, record)) => {
                    let arrival = Arrival::new(port, key, None);
                    self.towards_ue(guard, record, arrival, &packet, offset, frame, out);
                }
                None => out.drop(port, frame, DropReason::UeUnknown),
            },
        }
    }

    /// A G-PDU of a known tunnel.
    fn tunnelled(
        &mut self,
        guard: &Guard<'_>,
        record: &Record,
        arrival: Arrival,
        outer: &parse::Outer,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        let payload_len = usize::from(outer.header.payload_len);
        let payload_offset = usize::from(outer.header.payload_offset);
        if outer.header.extension_count > 0 || !self.stored.is_empty() {
            let header = outer.gtpu_offset..outer.gtpu_offset + payload_offset;
            self.stored = Stored::of(frame.data().get(header).unwrap_or_default());
        }
        if !record.monitors().is_empty() && self.measure(record, outer, &frame) && payload_len == 0 {
            return out.drop(arrival.port, frame, DropReason::NoPayload);
        }
        if !frame.strip(outer.gtpu_offset + payload_offset) {
            return out.drop(arrival.port, frame, DropReason::GtpuMalformed);
        }
        frame.truncate(payload_len);
        if record.is_ethernet() {
            return self.tunnelled_frame(guard, record, arrival, frame, out);
        }
        let Ok(packet) = Packet::read(frame.data(), frame.packet_len()) else {
            return out.drop(arrival.port, frame, DropReason::InnerMalformed);
        };
        frame.truncate(packet.total_len);
        self.handle(guard, record, arrival, &packet, frame, out);
    }

    /// An IP packet towards a UE.
    #[allow(clippy::too_many_arguments)] // What the parse stage found, handed on by parts.
    fn towards_ue(
        &mut self,
        guard: &Guard<'_>,
        record: &Record,
        arrival: Arrival,
        packet: &Packet,
        offset: usize,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        if !frame.strip(offset) {
            return out.drop(arrival.port, frame, DropReason::IpMalformed);
        }
        frame.truncate(packet.total_len);
        self.handle(guard, record, arrival, packet, frame, out);
    }

    /// When there is something to do beside packets: now, or at the next sweep if anything waits for that.
    fn tick_due(&self) -> Option<Instant> {
        let may_release = !self.buffers.is_empty() && self.node.buffer_changes() != self.buffer_changes;
        let may_retry = !self.pending.is_empty() && self.next_hops.generation() != self.pending_tried;
        if self.node.has_orders() || may_release || may_retry {
            return Some(self.now);
        }
        let waits = !self.pending.is_empty()
            || !self.buffers.is_empty()
            || !self.untold.is_empty()
            || !self.node.fragments.is_empty()
            || self.lan_hops.is_waiting();
        waits.then(|| self.swept + SWEEP)
    }

    /// Tells the control plane, now or when it has room again.
    fn tell(&mut self, event: WorkerEvent) {
        if !self.node.tell(event) && self.untold.len() < UNTOLD_MAX {
            self.untold.push(event);
        }
    }

    /// Drops what has waited too long and tells what could not be told.
    fn sweep(&mut self, out: &mut Output<'_>) {
        self.swept = out.now();
        while let Some(event) = self.untold.pop() {
            if !self.node.tell(event) {
                self.untold.push(event);
                break;
            }
        }
        for (session, packet) in self.buffers.take_due(out.now()) {
            if let Some(pdr) = packet.tell_discard
                && self.buffers.first_discard(session)
            {
                self.tell(WorkerEvent::Discarded { session, pdr });
            }
            self.count_waiting_dropped(session, &packet);
            out.drop(packet.from, packet.frame, DropReason::BufferDiscarded);
        }
        self.sweep_fragments(out);
        if !self.pending.is_empty() {
            // Asks again for what nobody answered, and gives up on what is overdue.
            self.retry_pending(out);
        }
        if self.lan_hops.is_waiting() {
            self.retry_lans(out);
        }
    }

    /// Sends on the buffered packets of sessions that changed, drops those that are to be dropped.
    fn look_at_buffers(&mut self, guard: &Guard<'_>, since: u64, out: &mut Output<'_>) {
        let node = self.node.clone();
        let changes = node.changes(since).unwrap_or_else(|| {
            let all = self.buffers.sessions().into_iter();
            all.map(|session| BufferChange { session, discard: false }).collect()
        });
        for BufferChange { session, discard } in changes {
            if discard {
                for packet in self.buffers.take(session) {
                    out.drop(packet.from, packet.frame, DropReason::BufferDiscarded);
                }
            } else if self.buffers.holds(session) {
                self.release(guard, session, out);
                // What still waits may be so by rules that know nothing of it.
                if let Some(news) = self.buffers.news(session) {
                    self.tell(news);
                }
            }
        }
    }

    /// Puts the buffered packets of a session through its rules again: what still buffers stays.
    fn release(&mut self, guard: &Guard<'_>, session: SessionIndex, out: &mut Output<'_>) {
        let node = self.node.clone();
        let of_packet_at_hand = std::mem::take(&mut self.stored);
        for waiting in self.buffers.take(session) {
            let hold::Buffered { frame, from, key, qfi, since, .. } = waiting;
            let record = node.table.get(guard, &key).filter(|record| record.session() == session);
            if let Some(record) = record.filter(|record| record.is_ethernet()) {
                self.stored = Stored::of_flow(qfi, record.direction());
                let arrival = Arrival::new(from, key, qfi);
                self.release_frame(guard, record, arrival, frame, since, out);
                continue;
            }
            let (Some(record), Ok(packet)) = (record, Packet::read(frame.data(), frame.packet_len())) else {
                out.drop(from, frame, DropReason::BufferDiscarded);
                continue;
            };
            let arrival = Arrival::new(from, key, qfi);
            self.stored = Stored::of_flow(qfi, record.direction());
            if let Some((_, frame)) = self.apply(guard, record, arrival, &packet, frame, Some(since), out) {
                // The way became narrower while it waited; its sender will learn from the next.
                out.drop(from, frame, DropReason::TooBig);
            }
        }
        self.stored = of_packet_at_hand;
    }
}
