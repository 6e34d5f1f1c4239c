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
mod emit;
mod forward;
mod hold;
mod limit;
mod outer;
mod parse;
mod straight;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use kaido_engine::{BATCH_MAX, Batch, DropReason, Frame, Function, NextHops, Output, PortId};
use kaido_table::{Guard, Probe, Reader, TooManyReaders};

use self::forward::Arrival;
use self::hold::{Buffers, PendingQueue};
use self::limit::RateLimit;
use self::outer::PreparedTunnels;
use self::parse::{Packet, Parsed, parse};
use self::straight::{Arrived, Kind, Ports};
use crate::node::{BufferChange, Node, WorkerEvent, WorkerOrder};
use crate::record::{Record, SessionIndex};

/// How often what waits too long is looked for.
const SWEEP: Duration = Duration::from_millis(100);
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
            buffers: Buffers::new(settings.buffer_packets_per_session, settings.buffer_packets_max),
            pending: PendingQueue::default(),
            pending_tried: 0,
            buffer_changes: node.buffer_changes(),
            swept: Instant::now(),
            error_indications: limit(),
            extension_notices: limit(),
            icmp_errors: limit(),
            untold: Vec::new(),
            ports: Ports::new(settings),
            prepared: PreparedTunnels::default(),
            next_hops,
            node: node.clone(),
        };
        Ok(Self { node: node.clone(), reader: node.domain.reader()?, worker })
    }
}

/// Packets that go through a stage together: so many lines as a core waits for at a time.
const GROUP: usize = 8;
/// Read, compare tags, compare keys, act.
const STAGES: usize = 4;

/// The packets of a group; none where there are not so many.
#[inline(always)]
fn group(number: usize, packets: usize) -> Range<usize> {
    let first = number.saturating_mul(GROUP).min(packets);
    first..packets.min(first + GROUP)
}

impl Function for Path {
    fn name(&self) -> &'static str {
        "upf"
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        let Self { node, reader, worker } = self;
        let guard = reader.pin();
        let stages = node.table.stages(&guard);
        let before = worker.ports.headers_ahead(port);
        let mut probes = [Probe::default(); BATCH_MAX];
        let mut arrivals = [Arrived::default(); BATCH_MAX];
        // What is not of the usual shape, in the order of arrival.
        let mut unusual: ArrayVec<Parsed, BATCH_MAX> = ArrayVec::new();
        let mut records = [None; BATCH_MAX];
        // Where each packet leaves that needs nothing more.
        let mut exits = [None; BATCH_MAX];
        worker.prepared.renew(worker.next_hops.generation());
        let frames = batch.as_mut_slice();
        let steps = frames.len().div_ceil(GROUP) + STAGES - 1;
        for step in 0..steps {
            for n in group(step, frames.len()) {
                out.prefetch_incoming(port, n, before);
                let (arrived, frame) = (&mut arrivals[n], &frames[n]);
                worker.ports.read(port, frame, arrived);
                if arrived.kind == Kind::Unusual {
                    let parsed = parse(&node.settings, port, frame);
                    if let Parsed::Tunnel(key, _) | Parsed::ToUe(key, ..) = parsed {
                        (arrived.key, arrived.kind) = (key, Kind::UnusualWithKey);
                    }
                    unusual.push(parsed);
                }
                if arrived.kind != Kind::Unusual {
                    probes[n] = stages.hash(&arrived.key);
                }
            }
            probes[group(step.wrapping_sub(1), frames.len())]
                .iter_mut()
                .for_each(|probe| stages.probe(probe));
            for n in group(step.wrapping_sub(2), frames.len()) {
                if arrivals[n].kind != Kind::Unusual {
                    let record = stages.resolve(probes[n], &arrivals[n].key);
                    if let Some(&slot) = record.and_then(|record: &Record| record.folded_usage().first()) {
                        node.usage.prefetch(slot);
                    }
                    records[n] = record;
                }
            }
            for n in group(step.wrapping_sub(3), frames.len()) {
                if let Some(record) = records[n] {
                    exits[n] = worker.straight(record, &arrivals[n], &mut frames[n]);
                }
            }
        }
        if let Some(exit) = exits[0]
            && exits[..batch.len()].iter().all(|other| *other == Some(exit))
        {
            return out.transmit_all(exit, batch);
        }
        let mut unusual = unusual.into_iter();
        for (((frame, arrived), record), exit) in batch.drain(..).zip(arrivals.iter()).zip(records).zip(exits)
        {
            if let Some(exit) = exit {
                out.transmit(exit, frame);
            } else if arrived.kind == Kind::Usual {
                let parsed = parse(&node.settings, port, &frame);
                worker.handle_parsed(&guard, parsed, record, port, frame, out);
            } else if let Some(parsed) = unusual.next() {
                worker.handle_parsed(&guard, parsed, record, port, frame, out);
            }
        }
    }

    fn tick(&mut self, out: &mut Output<'_>) {
        let Self { reader, worker, .. } = self;
        for order in worker.node.take_orders() {
            match order {
                WorkerOrder::EndMarker(tunnel) => worker.end_marker(&tunnel, out),
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
}

impl Worker {
    /// A frame whose headers were read completely, and the record of its key, if it has one.
    fn handle_parsed(
        &mut self,
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
            Parsed::Signalling(outer) => self.signalling(&outer, port, frame, out),
            Parsed::Tunnel(key, outer) => match record {
                Some(record) => {
                    let qfi = outer.header.qfi;
                    self.tunnelled(guard, record, Arrival { port, key, qfi }, &outer, frame, out);
                }
                None => self.unknown_teid(&outer, port, frame, out),
            },
            Parsed::ToUe(key, packet, offset) => match record {
                Some(record) => {
                    let arrival = Arrival { port, key, qfi: None };
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
        if !frame.strip(outer.gtpu_offset + usize::from(outer.header.payload_offset)) {
            return out.drop(arrival.port, frame, DropReason::GtpuMalformed);
        }
        frame.truncate(payload_len);
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
        if let Some(limit) = out.now().checked_sub(self.node.settings.buffer_time_max) {
            for packet in self.buffers.take_older(limit) {
                out.drop(packet.from, packet.frame, DropReason::BufferDiscarded);
            }
        }
        if !self.pending.is_empty() {
            // Asks again for what nobody answered, and gives up on what is overdue.
            self.retry_pending(out);
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
            }
        }
    }

    /// Puts the buffered packets of a session through its rules again: what still buffers stays.
    fn release(&mut self, guard: &Guard<'_>, session: SessionIndex, out: &mut Output<'_>) {
        let node = self.node.clone();
        for waiting in self.buffers.take(session) {
            let hold::Buffered { frame, from, key, qfi, since } = waiting;
            let record = node.table.get(guard, &key).filter(|record| record.session() == session);
            let (Some(record), Ok(packet)) = (record, Packet::read(frame.data(), frame.packet_len())) else {
                out.drop(from, frame, DropReason::BufferDiscarded);
                continue;
            };
            let arrival = Arrival { port: from, key, qfi };
            if let Some((_, frame)) = self.apply(record, arrival, &packet, frame, Some(since), out) {
                // The way became narrower while it waited; its sender will learn from the next.
                out.drop(from, frame, DropReason::TooBig);
            }
        }
    }
}
