//! The packet path: one worker's side of the user plane.
//!
//! A batch goes through four stages in groups, each group a stage behind the one before it, so that the lines which one stage
//! asks for come while the others compute:
//!
//! ```text
//!  read, hash ─▶ compare tags ─▶ compare keys ─▶ act ─▶ transmit
//!   ╎ headers,      ╎ records        ╎ counters     ├ fast path: one copy of headers made beforehand
//!   ╎ buckets       ╎                ╎              └ else: rules · filters · gate · buffering · answers
//! ```

mod answer;
mod applications;
mod bridge;
mod buffering;
mod charge;
mod context;
mod control_plane;
mod copy;
mod detect;
mod egress;
mod emit;
mod end_marker;
mod fast;
mod forward;
mod fragments;
mod frames;
mod group;
mod lan;
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
mod select;
mod send;
mod slow;
mod stage_timer;
mod trace;
mod waiting;

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use kaido_engine::{
    BATCH_MAX, Batch, DropReason, DropTable, Frame, Function, NextHops, Notifier, Output, PendingQueue,
    PortId, PortLink, RateLimit,
};
use kaido_table::{Guard, Reader, Seed, Ticks, TooManyReaders};
use kaido_wire::ecn;

use self::applications::Flows;
use self::bridge::Flood;
use self::buffering::Buffers;
use self::charge::Charge;
use self::context::{ArrivalInfo, FrameLookup, PacketContext};
pub use self::control_plane::ControlPlaneLink;
use self::group::{Exit, FETCH_AHEAD, GROUP, GROUPS, Group, STAGES, SlowFrames, behind, common};
use self::lan::LanHops;
use self::outer::PreparedTunnels;
use self::parse::{Packet, ParsedFrame, parse};
use self::read::{Kind, Ports};
use self::relay::StoredExtensions;
use self::stage_timer::{CycleTimer, NoTimer, STAGES as STAGE_NAMES, Stage, StageTimer};
use self::trace::Tracing;
use self::waiting::SWEEP;
use crate::UpfDrop;
use crate::node::{MssClamp, Node, NodeSettings, PortRole, WorkerEvent, WorkerOrder};
use crate::record::Record;
use crate::slow_path::SlowPathCounts;
use crate::usage::UsedAt;
use crate::vrf::ExitVrfs;

/// Questions about neighbours answered in place of who was asked, per second and worker.
const PROXIED_PER_SECOND: u32 = 10_000;
/// Segments answered in place of servers, per second and worker.
const REDIRECTIONS_PER_SECOND: u32 = 10_000;

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
    /// The node's settings, with the ports' interfaces as they are now.
    settings: Arc<NodeSettings>,
    ports: Ports,
    next_hops: NextHops,
    vrfs: ExitVrfs,
    prepared: PreparedTunnels,
    buffers: Buffers,
    pending: PendingQueue<Option<Charge>>,
    /// The right to read the table for [what waits](Charge), within that of the packet at hand.
    of_waiting: Option<Reader>,
    /// Generation of the next hops in which the pending packets were last tried.
    pending_tried: u64,
    /// Changes of sessions up to which the buffered packets were looked at.
    buffer_changes: u64,
    swept: Instant,
    error_indications: RateLimit,
    extension_notices: RateLimit,
    icmp_errors: RateLimit,
    /// Generation of what may change of the settings.
    live_generation: u64,
    unsent_events: Vec<WorkerEvent>,
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
    stored: StoredExtensions,
    /// Other workers forward packets of the same sessions.
    shared: bool,
    tracing: Tracing,
    /// What TCP SYNs may announce, where they are looked at.
    mss_clamp: Option<MssClamp>,
    /// Outer sources are compared with the addresses of gNBs.
    bind_gnb: bool,
    /// Takes frames that a device gave us alone and are the kernel's.
    kernel_return: Option<Arc<dyn KernelReturn>>,
    /// The way to control planes that no port leads to.
    control_plane: Option<Arc<dyn ControlPlaneLink>>,
    to_control_plane: RateLimit,
    /// Packets that took the slow path.
    slow: Arc<SlowPathCounts>,
    /// When the worker's round began, and the same on the token buckets' clock.
    now: Instant,
    ticks: Ticks,
    /// The same on the wall's clock, and what the worker knows it by.
    used_at: UsedAt,
    began: (Instant, UsedAt),
}

/// Where frames go that are the kernel's, and that it was not given when they came. Fragments alone are, rarely.
pub trait KernelReturn: fmt::Debug + Send + Sync {
    /// Gives the kernel a frame that came in on `port`; whether it took it. `None`: it has that port's frames itself, or a
    /// device of its own for them.
    fn give(&self, port: PortId, frame: &[u8]) -> Option<bool>;
}

impl Path {
    /// A worker's user plane on `node`.
    ///
    /// # Errors
    /// [`TooManyReaders`] at the 257th.
    pub fn new(node: &Arc<Node>, next_hops: NextHops) -> Result<Self, TooManyReaders> {
        let mut settings = node.settings.clone();
        let mut live_generation = 0;
        if let Some(live) = node.live.newer_than(&mut live_generation) {
            settings.live = live;
        }
        let limit = || RateLimit::new(settings.live.answers_per_second);
        let began = Instant::now();
        let used_at = UsedAt::of(SystemTime::now());
        let worker = Worker {
            buffers: Buffers::new(node.clone()),
            pending: PendingQueue::default(),
            of_waiting: Some(node.domain.reader()?),
            pending_tried: 0,
            buffer_changes: node.buffer_changes(),
            swept: began,
            error_indications: limit(),
            extension_notices: limit(),
            icmp_errors: limit(),
            live_generation,
            unsent_events: Vec::new(),
            flows: Flows::new(&node.applications),
            lan_hops: LanHops::new(),
            flood: Flood::default(),
            proxied: RateLimit::new(PROXIED_PER_SECOND),
            redirections: RateLimit::new(REDIRECTIONS_PER_SECOND),
            secret: Seed::random(),
            stored: StoredExtensions::default(),
            shared: settings.workers_share_sessions,
            tracing: Tracing::default(),
            mss_clamp: MssClamp::of(&settings),
            bind_gnb: settings.live.bind_gnb,
            kernel_return: None,
            control_plane: None,
            to_control_plane: RateLimit::new(control_plane::SENT_PER_SECOND),
            slow: node.slow_path.worker(),
            now: began,
            ticks: node.policers.ticks(began),
            used_at,
            began: (began, used_at),
            ports: Ports::new(&settings, node.ue_networks.clone()),
            prepared: PreparedTunnels::default(),
            vrfs: ExitVrfs::of_settings(&settings, &next_hops),
            next_hops,
            settings: Arc::new(settings),
            node: node.clone(),
        };
        Ok(Self { node: node.clone(), reader: node.domain.reader()?, worker })
    }

    /// One of several workers of a node that is set up for one: counters and policers are updated atomically.
    #[must_use]
    pub fn sharing_sessions(mut self) -> Self {
        self.worker.shared = true;
        self
    }

    /// Has frames returned to the kernel that a device gave us alone.
    #[must_use]
    pub fn with_kernel_return(mut self, kernel: Arc<dyn KernelReturn>) -> Self {
        self.worker.kernel_return = Some(kernel);
        self
    }

    /// Has packets to control planes that no port leads to sent by the kernel.
    #[must_use]
    pub fn with_control_plane(mut self, link: Arc<dyn ControlPlaneLink>) -> Self {
        self.worker.control_plane = Some(link);
        self
    }
}

impl Function for Path {
    fn name(&self) -> &'static str {
        "upf"
    }

    fn drop_reasons(&self) -> &'static DropTable {
        UpfDrop::TABLE
    }

    fn stages(&self) -> &'static [&'static str] {
        &STAGE_NAMES
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        if out.is_timed() {
            return self.process_timed(port, batch, out);
        }
        self.process_by(NoTimer, port, batch, out);
    }

    fn tick(&mut self, out: &mut Output<'_>) {
        let Self { reader, worker, .. } = self;
        worker.begin_round(out.now());
        for order in worker.node.take_orders() {
            match order {
                WorkerOrder::Announce(station) => worker.announce(&station, out),
                WorkerOrder::EndMarker(tunnel) => worker.end_marker(&tunnel, out),
                WorkerOrder::EchoRequest { peer, sequence } => worker.echo_request(peer, sequence, out),
            }
        }
        if worker.node.from_control_planes.has_news() {
            worker.hear_control_planes(&reader.pin(), out);
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

    fn attach(&mut self, notifier: &Arc<Notifier>) {
        self.node.attach(notifier);
        self.worker.next_hops.attach(notifier);
    }

    fn port_changed(&mut self, port: PortId, link: &PortLink) {
        let worker = &mut self.worker;
        let settings = Arc::make_mut(&mut worker.settings);
        let Some(role) = settings.ports.get_mut(port.index()) else { return };
        (role.mac, role.mtu) = (link.mac, link.mtu);
        role.addresses.clone_from(&link.addresses);
        worker.make_ready();
    }
}

impl Path {
    #[cold]
    #[inline(never)]
    fn process_timed(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        self.process_by(CycleTimer::start(), port, batch, out);
    }

    #[inline(always)]
    fn process_by(
        &mut self,
        mut timer: impl StageTimer,
        port: PortId,
        batch: &mut Batch,
        out: &mut Output<'_>,
    ) {
        let Self { node, reader, worker } = self;
        worker.begin_round(out.now());
        let guard = reader.pin();
        let stages = node.table.stages(&guard);
        worker.next_hops.refresh();
        worker.prepared.renew(worker.next_hops.generation());
        worker.follow_traces();
        let quiet = worker.is_quiet();
        let mut exits = [Exit::NONE; BATCH_MAX];
        let mut groups = [Group::default(); GROUPS];
        let mut slow = SlowFrames::new();
        let len = batch.len();
        let in_use = len.div_ceil(GROUP);
        // The batch before has had the first ones fetched.
        let mut fetched = FETCH_AHEAD.min(in_use);
        for step in 0..in_use + STAGES - 1 {
            let frames = |number: usize| number * GROUP..len.min((number + 1) * GROUP);
            if step < in_use {
                let before = worker.ports.facts(port).headers_ahead();
                let until = step + FETCH_AHEAD + 1;
                for number in fetched..until {
                    let ahead = match number.checked_sub(in_use) {
                        Some(number) => out.incoming(port).chunks(GROUP).nth(number).unwrap_or_default(),
                        None => &batch[frames(number)],
                    };
                    ahead.iter().for_each(|frame| frame.prefetch(before));
                }
                fetched = until;
                groups[step].read(worker, stages, port, &batch[frames(step)], &mut slow);
                timer.end(Stage::Read);
            }
            if let Some(group) = step.checked_sub(1).and_then(|number| groups[..in_use].get_mut(number)) {
                group.probes.iter_mut().for_each(|probe| stages.probe(probe));
                timer.end(Stage::Probe);
            }
            if let Some(group) = step.checked_sub(2).and_then(|number| groups[..in_use].get_mut(number)) {
                group.resolve(stages, node);
                timer.end(Stage::Resolve);
            }
            if let Some(number) = step.checked_sub(3) {
                let frames = frames(number);
                let exits = &mut exits[frames.clone()];
                groups[number].act(node, worker, &mut batch[frames], quiet, exits);
                timer.end(Stage::Act);
            }
        }
        if let Some(exit) = common(&exits[..batch.len()]) {
            out.transmit_all(exit, batch);
            return timer.report(out);
        }
        let mut slow = slow.into_iter();
        let found = groups.iter().flat_map(|group| group.arrivals.iter().zip(group.records)).zip(exits);
        for (frame, ((arrived, record), exit)) in batch.drain(..).zip(found) {
            if let Some(to) = exit.port() {
                let before = exit.is_high_priority().then(|| out.set_high_priority(true));
                out.transmit(to, frame);
                before.map(|before| out.set_high_priority(before));
            } else if arrived.kind == Kind::Eligible {
                worker.count_slow(node, record.or_else(|| behind(stages, node, arrived)), arrived, &frame);
                let parsed = parse(&worker.settings, port, &frame);
                let lookup = FrameLookup { node, guard: &guard, parsed, record, port };
                worker.handle_read(&lookup, frame, out);
            } else if let Some(parsed) = slow.next() {
                if arrived.kind == Kind::NotEligibleWithKey {
                    worker.count_slow(node, record, arrived, &frame);
                }
                let lookup = FrameLookup { node, guard: &guard, parsed, record, port };
                worker.handle_read(&lookup, frame, out);
            }
        }
        timer.report(out);
    }
}

impl Worker {
    /// The role of a port, and what its interface is now.
    #[inline]
    fn role(&self, port: PortId) -> &PortRole {
        &self.settings.ports[port.index()]
    }

    /// Makes anew what is made of the settings beforehand.
    fn make_ready(&mut self) {
        self.ports = Ports::new(&self.settings, self.node.ue_networks.clone());
        self.mss_clamp = MssClamp::of(&self.settings);
        self.bind_gnb = self.settings.live.bind_gnb;
        self.prepared = PreparedTunnels::default();
    }

    /// A frame whose headers were read completely.
    fn handle_read(&mut self, lookup: &FrameLookup<'_>, frame: Frame, out: &mut Output<'_>) {
        let FrameLookup { node, guard, ref parsed, record, .. } = *lookup;
        if !self.tracing.is_empty() {
            let framed = match parsed {
                ParsedFrame::ToUe(key, packet, _) if record.is_none() => {
                    node.framed.find(node.table.stages(guard), key.instance(), packet.dst)
                }
                _ => None,
            };
            let of_session = record.or(framed.map(|(_, record)| record));
            if let Some(of_session) = of_session.filter(|record| self.tracing.has(record.session())) {
                return self.handle_traced(lookup, of_session, frame, out);
            }
        }
        self.handle_parsed(lookup, frame, out);
    }

    /// As [`Worker::handle_read`], whether the packet is traced or not.
    fn handle_parsed(&mut self, lookup: &FrameLookup<'_>, frame: Frame, out: &mut Output<'_>) {
        let FrameLookup { node, guard, parsed, record, port } = *lookup;
        match parsed {
            ParsedFrame::Kernel => out.to_kernel(port, frame),
            ParsedFrame::Drop(reason) => out.drop(port, frame, reason),
            ParsedFrame::OuterFragment(endpoint, packet_len, offset) => {
                self.outer_fragment(guard, endpoint, (packet_len, offset), port, frame, out);
            }
            ParsedFrame::Bridged(lan, tags) => self.frame_from_lan(guard, lan, tags, port, frame, out),
            ParsedFrame::Lan(lan, offset) => self.lan_control(guard, lan, offset, port, frame, out),
            ParsedFrame::Signalling(outer) if outer.is_end_marker() => {
                self.end_marker_came(guard, &outer, port, frame, out);
            }
            ParsedFrame::Signalling(outer) => self.signalling(&outer, port, frame, out),
            ParsedFrame::Tunnel(key, outer) => match record {
                Some(record) => {
                    let qfi = outer.header.qfi;
                    self.tunnelled(guard, record, ArrivalInfo::new(port, key, qfi), &outer, frame, out);
                }
                None => self.unknown_teid(&outer, port, frame, out),
            },
            ParsedFrame::ToUe(key, packet, offset) => match record
                .map(|record| (key, record))
                .or_else(|| node.framed.find(node.table.stages(guard), key.instance(), packet.dst))
            {
                Some((key, record)) => {
                    let arrival = ArrivalInfo::new(port, key, None);
                    let mut context = PacketContext { guard, record, arrival, packet: &packet };
                    self.towards_ue(&mut context, offset, frame, out);
                }
                None => out.drop(port, frame, UpfDrop::UE_UNKNOWN),
            },
        }
    }

    /// A G-PDU of a known tunnel.
    fn tunnelled(
        &mut self,
        guard: &Guard<'_>,
        record: &Record,
        arrival: ArrivalInfo,
        outer: &parse::OuterTunnel,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        if !record.admits_gnb(outer.src) {
            return out.drop(arrival.port, frame, UpfDrop::GNB_MISMATCH);
        }
        let payload_len = usize::from(outer.header.payload_len);
        let payload_offset = usize::from(outer.header.payload_offset);
        if outer.header.extension_count > 0 || !self.stored.is_empty() {
            let header = outer.gtpu_offset..outer.gtpu_offset + payload_offset;
            self.stored = StoredExtensions::of(frame.data().get(header).unwrap_or_default());
        }
        if !record.monitors().is_empty() && self.measure(record, outer, &frame) && payload_len == 0 {
            return out.drop(arrival.port, frame, UpfDrop::NO_PAYLOAD);
        }
        if !frame.strip(outer.gtpu_offset + payload_offset) {
            return out.drop(arrival.port, frame, UpfDrop::GTPU_MALFORMED);
        }
        frame.truncate(payload_len);
        if record.is_ethernet() {
            return self.tunnelled_frame(guard, record, arrival, frame, out);
        }
        let Ok(mut packet) = Packet::read(frame.data(), frame.packet_len()) else {
            return out.drop(arrival.port, frame, DropReason::INNER_MALFORMED);
        };
        if self.settings.live.tunnels.marking.ecn && outer.tos & ecn::MASK != 0 {
            let Some(marks) = ecn::decapsulated(packet.tos, outer.tos) else {
                return out.drop(arrival.port, frame, DropReason::CONGESTION_MARK);
            };
            packet.tos = packet.tos & !ecn::MASK | marks;
            ecn::set_class(frame.data_mut(), packet.tos);
        }
        frame.truncate(packet.total_len);
        self.handle(&mut PacketContext { guard, record, arrival, packet: &packet }, frame, out);
    }

    /// An IP packet towards a UE.
    fn towards_ue(
        &mut self,
        context: &mut PacketContext<'_>,
        offset: usize,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        if !frame.strip(offset) {
            return out.drop(context.arrival.port, frame, DropReason::IP_MALFORMED);
        }
        frame.truncate(context.packet.total_len);
        self.handle(context, frame, out);
    }
}
