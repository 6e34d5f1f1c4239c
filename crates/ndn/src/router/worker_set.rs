//! A router as one of several workers: what comes in is handed to the worker whose it is, and what others hand over is done.

use std::sync::Arc;
use std::time::Instant;

use kaido_engine::{BATCH_MAX, DropReason, Frame, Output, PortId};
use kaido_ndn_tables::{FaceId, NameHash, Pit, PitToken, Prefixes};

use super::RouterOutput;
use crate::NdnDrop;
use crate::balance::{
    Balance, HandoffTask, Key, NOBODY, Phase, REPORT_EVERY, Round, Summary, WorkerPlacement, fast_interest,
    interest_name, key, nonce, pack, unpack,
};
use crate::forward::{FaceView, Forwarder, Sink, Visit, copy};
use crate::link::Link;
use crate::packet::{Annotations, Packet};

/// The bit of the depths that stands for names of more components than prefixes are hashed of.
const BEYOND: u32 = 33;

/// Octets in front of what the link receives within which a header begins that is put on later.
const FRONT: usize = 32;

/// What a worker has handed to others, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandoffCounters {
    /// Interests.
    pub interests: u64,
    /// Data, copies of Data of hot names among them.
    pub data: u64,
    /// Nacks.
    pub nacks: u64,
    /// Interests of names that had turned, which were handed on once this worker was found not to know them.
    pub asked: u64,
}

/// The other workers, as one sees them.
#[derive(Debug)]
pub struct WorkerSet {
    shared: Arc<Balance>,
    place: WorkerPlacement,
    hash: NameHash,
    worker: u8,
    port: PortId,
    summary: Summary,
    /// Interests until the next one that is sampled.
    unsampled: u32,
    reported: Option<Instant>,
    /// The depths that the others were told last.
    depths: u64,
    counters: HandoffCounters,
    scratch: Prefixes,
}

/// Where a packet that has just come in goes.
enum Destination {
    Own(HandoffTask),
    Other(u8, HandoffTask),
}

impl WorkerSet {
    /// Worker `worker` of those that share `shared`; its port to the others has this number.
    pub fn new(shared: Arc<Balance>, hash: NameHash, worker: u8, port: PortId) -> Self {
        Self {
            place: shared.place(),
            shared,
            hash,
            worker,
            port,
            summary: Summary::default(),
            unsampled: 0,
            reported: None,
            depths: 0,
            counters: HandoffCounters::default(),
            scratch: Prefixes::default(),
        }
    }

    pub(super) fn port(&self) -> PortId {
        self.port
    }

    pub(super) fn join(&self, forwarder: &mut Forwarder) {
        forwarder.join(self.place, self.worker);
    }

    pub(super) fn counters(&self) -> HandoffCounters {
        self.counters
    }

    /// Where a packet that has come in goes. What cannot be read stays: it is refused here as anywhere. Of Data and Nacks with a
    /// token of ours nothing else is read.
    #[inline(always)]
    fn destination(&mut self, packet: &Packet) -> Destination {
        if let Some((hash, behind)) = fast_interest(packet, &self.hash) {
            return self.interest(packet, hash, behind);
        }
        let is_interest = packet.frame.data().first() == Some(&5) && packet.annotations.nack.is_none();
        match Pit::worker_of(&packet.annotations.pit_token) {
            Some(worker) if !is_interest && worker < self.place.workers() => {
                self.to(worker, HandoffTask::Here)
            }
            _ => self.destination_by_name(packet),
        }
    }

    /// As [`Self::destination`], of a packet that has no token of ours.
    #[inline(never)]
    fn destination_by_name(&mut self, packet: &Packet) -> Destination {
        match key(packet, &self.hash) {
            None => Destination::Own(HandoffTask::Here),
            Some(Key::Interest { hash, behind }) => self.interest(packet, hash, behind),
            Some(Key::Nack { hash }) => self.begin(self.round_of_nack(hash)),
            Some(Key::Data { at, end }) => {
                let name = &packet.frame.data()[at..end];
                match self.scratch.fill(&self.hash, name) {
                    Ok(()) => self.begin(self.round_of_data(&self.scratch)),
                    Err(_) => Destination::Own(HandoffTask::Here),
                }
            }
        }
    }

    #[inline]
    fn to(&self, worker: u8, task: HandoffTask) -> Destination {
        if worker == self.worker { Destination::Own(task) } else { Destination::Other(worker, task) }
    }

    #[inline(always)]
    fn interest(&mut self, packet: &Packet, hash: u64, behind: usize) -> Destination {
        match self.unsampled.checked_sub(1) {
            Some(left) => self.unsampled = left,
            None => self.sample(hash, packet),
        }
        match self.shared.hot().phase(hash) {
            None => self.to(self.place.of_name(hash), HandoffTask::Here),
            Some(phase) => self.turned_interest(packet, (hash, behind), phase),
        }
    }

    /// Where an Interest goes whose name is hot, or turns.
    #[inline(never)]
    fn turned_interest(&self, packet: &Packet, (hash, behind): (u64, usize), phase: Phase) -> Destination {
        let home = self.place.of_name(hash);
        // One without a nonce is given one at home, by which a copy of it comes home too.
        let sprayed =
            nonce(packet.frame.data(), behind).map_or(home, |nonce| self.place.of_interest(hash, nonce));
        let (first, then) = match phase {
            Phase::Hot => (sprayed, sprayed),
            Phase::Warming => (home, sprayed),
            Phase::Cooling => (sprayed, home),
        };
        if first == then {
            self.to(first, HandoffTask::Here)
        } else {
            self.to(first, HandoffTask::Ask { then })
        }
    }

    /// Counts an Interest for those that have come since the last one that was counted.
    #[cold]
    #[inline(never)]
    fn sample(&mut self, hash: u64, packet: &Packet) {
        self.unsampled = self.shared.settings().sample.saturating_sub(1);
        self.summary.add(hash);
        if self.shared.lacks_names()
            && let Some(name) = interest_name(packet.frame.data())
        {
            self.shared.learn(hash, name);
        }
    }

    /// The workers at which Interests may wait for Data that has no token of ours.
    fn round_of_data(&self, prefixes: &Prefixes) -> Round {
        let home = self.place.of_name(prefixes.whole());
        let mut rest = 0;
        let mut depths = self.shared.depths();
        if self.shared.hot().phase(prefixes.whole()).is_some()
            || depths >> BEYOND != 0 && prefixes.components() > prefixes.depth()
        {
            rest = self.place.all();
        }
        while depths != 0 {
            let depth = depths.trailing_zeros() as usize;
            depths &= depths - 1;
            if depth <= prefixes.depth() {
                rest |= 1 << self.place.of_name(prefixes.prefix(depth).0);
            }
        }
        round(rest, home)
    }

    /// The workers at which the Interest may wait that a Nack without our token is of.
    fn round_of_nack(&self, hash: u64) -> Round {
        let is_hot = self.shared.hot().phase(hash).is_some();
        round(if is_hot { self.place.all() } else { 0 }, self.place.of_name(hash))
    }

    /// The first stop of a round is here if this worker is one of its stops.
    fn begin(&self, mut round: Round) -> Destination {
        let own = 1 << self.worker;
        if round.rest & own != 0 {
            round.rest &= !own;
            return Destination::Own(HandoffTask::Round(round));
        }
        match round.next() {
            Some((worker, next)) => self.to(worker, HandoffTask::Round(Round { is_first: true, ..next })),
            None => Destination::Own(HandoffTask::Here),
        }
    }

    /// Hands a packet to another worker.
    #[inline(always)]
    fn hand(&mut self, worker: u8, task: HandoffTask, packet: Packet, out: &mut Output<'_>) {
        let counter = match (packet.frame.data().first(), packet.annotations.nack) {
            (Some(6), _) => &mut self.counters.data,
            (_, Some(_)) => &mut self.counters.nacks,
            _ => &mut self.counters.interests,
        };
        *counter += 1;
        match pack(worker, task, packet) {
            Ok(frame) => out.transmit(self.port, frame),
            Err(packet) => out.drop(self.port, packet.frame, DropReason::NO_HEADROOM),
        }
    }

    /// Tells the others what has changed: to be called after Interests were forwarded.
    #[inline]
    fn publish(&mut self, forwarder: &Forwarder) {
        let depths = forwarder.pit().prefix_depths();
        if depths != self.depths {
            self.depths = depths;
            self.shared.publish_depths(self.worker, depths);
        }
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, forwarder: &Forwarder, now: Instant) {
        self.publish(forwarder);
        let is_due =
            self.reported.is_none_or(|reported| now.saturating_duration_since(reported) >= REPORT_EVERY);
        if is_due && self.shared.report(self.worker, &self.summary, now) {
            self.reported = Some(now);
            self.summary.fade();
        }
    }
}

/// A round by a set of workers, the home last: what nobody waits for may be kept there.
fn round(stops: u64, home: u8) -> Round {
    Round { rest: stops & !(1 << home), last: home, is_first: true, was_served: false }
}

/// A worker at work among others.
pub(super) struct Shift<'a, 'w> {
    pub(super) worker_set: &'a mut WorkerSet,
    pub(super) link: &'a mut Link,
    pub(super) forwarder: &'a mut Forwarder,
    pub(super) packets: &'a mut arrayvec::ArrayVec<Packet, BATCH_MAX>,
    pub(super) out: &'a mut Output<'w>,
    pub(super) port: PortId,
}

impl Shift<'_, '_> {
    /// Has the line fetched that is going to be written in front of a frame, whoever forwards it: other workers have written there
    /// when the frame was theirs.
    #[inline(always)]
    pub(super) fn expect(frame: &Frame) {
        frame.prefetch_write_head(FRONT);
    }

    /// Takes a packet that the link has received. It is looked at where it waits to be forwarded: to move it costs as much as to
    /// find its worker.
    #[inline(always)]
    pub(super) fn arrive(&mut self, packet: Packet) {
        self.add(packet);
        let Some(packet) = self.packets.last() else { return };
        match self.worker_set.destination(packet) {
            Destination::Own(HandoffTask::Here) => {}
            Destination::Own(task) => {
                let Some(packet) = self.packets.pop() else { return };
                self.take(task, packet);
            }
            Destination::Other(worker, task) => {
                let Some(packet) = self.packets.pop() else { return };
                self.worker_set.hand(worker, task, packet, self.out);
            }
        }
    }

    /// Takes a packet that another worker has handed over.
    #[inline(always)]
    pub(super) fn take_over(&mut self, frame: Frame) {
        match unpack(frame) {
            Ok((HandoffTask::Here, packet)) => self.add(packet),
            Ok((task, packet)) => self.take(task, packet),
            // Nothing but workers sends by the port.
            Err(frame) => self.out.drop(self.port, frame, NdnDrop::MALFORMED),
        }
    }

    #[inline(never)]
    fn take(&mut self, task: HandoffTask, packet: Packet) {
        match task {
            HandoffTask::Here => self.add(packet),
            HandoffTask::Ask { then } => {
                // What came before it may be its own first copy.
                self.forward(HandoffTask::Here);
                if self.forwarder.knows(&packet, self.out.now()) {
                    return self.add(packet);
                }
                self.worker_set.counters.asked += 1;
                self.worker_set.hand(then, HandoffTask::Here, packet, self.out);
            }
            HandoffTask::Round(_) => {
                self.forward(HandoffTask::Here);
                self.add(packet);
                self.forward(task);
            }
        }
    }

    #[inline(always)]
    fn add(&mut self, packet: Packet) {
        if self.packets.is_full() {
            self.forward(HandoffTask::Here);
        }
        self.packets.push(packet);
    }

    /// Forwards what is left of a batch.
    pub(super) fn finish(mut self) {
        self.forward(HandoffTask::Here);
    }

    /// Forwards what has come together.
    #[inline(never)]
    fn forward(&mut self, task: HandoffTask) {
        if self.packets.is_empty() {
            return;
        }
        let output = RouterOutput { link: &mut *self.link, out: &mut *self.out, port: self.port };
        let now = output.out.now();
        let mut output = HandoffOutput { output, worker_set: &mut *self.worker_set, task };
        self.forwarder.process(self.packets, now, &mut output);
        self.worker_set.publish(self.forwarder);
    }
}

/// The ways out of the forwarding of one worker among others.
struct HandoffOutput<'a, 'w> {
    output: RouterOutput<'a, 'w>,
    worker_set: &'a mut WorkerSet,
    /// Of the packets at hand.
    task: HandoffTask,
}

impl Sink for HandoffOutput<'_, '_> {
    #[inline]
    fn face(&self, id: FaceId) -> Option<FaceView> {
        self.output.face(id)
    }

    #[inline]
    fn send(&mut self, face: FaceId, frame: Frame, annotations: &Annotations) {
        self.output.send(face, frame, annotations);
    }

    #[inline]
    fn allocate(&mut self) -> Option<Frame> {
        self.output.allocate()
    }

    fn drop(&mut self, face: FaceId, frame: Frame, reason: DropReason) {
        self.output.drop(face, frame, reason);
    }

    #[inline]
    fn visit(&self) -> Visit {
        match self.task {
            HandoffTask::Round(round) => {
                let Round { is_first, was_served, .. } = round;
                Visit { is_first, is_last: round.next().is_none(), was_served }
            }
            HandoffTask::Here | HandoffTask::Ask { .. } => Visit::ONLY,
        }
    }

    #[inline]
    fn satisfies(&mut self, packet: &Packet, name: u64) {
        match self.task {
            HandoffTask::Round(round) => self.send_round(round, packet),
            _ if self.worker_set.shared.hot().phase(name).is_some() => {
                let rest = self.worker_set.place.all() & !(1 << self.worker_set.worker);
                self.send_round(Round { rest, last: NOBODY, is_first: true, was_served: true }, packet);
            }
            _ => {}
        }
    }

    fn pass_on(&mut self, mut packet: Packet, prefixes: &Prefixes) -> Option<Packet> {
        let round = match self.task {
            HandoffTask::Round(round) => round,
            // Its token led here, and its Interest is gone or was another router's: by name, as if it had none.
            _ => {
                packet.annotations.pit_token = PitToken::NONE;
                let mut round = match packet.annotations.nack {
                    None => self.worker_set.round_of_data(prefixes),
                    Some(_) => self.worker_set.round_of_nack(prefixes.whole()),
                };
                round.rest &= !(1 << self.worker_set.worker);
                round.last = if round.last == self.worker_set.worker { NOBODY } else { round.last };
                round
            }
        };
        match round.next() {
            Some((worker, next)) => {
                self.worker_set.hand(worker, HandoffTask::Round(next), packet, self.output.out);
                None
            }
            None if round.was_served => {
                self.output.out.release(packet.frame);
                None
            }
            None => Some(packet),
        }
    }
}

impl HandoffOutput<'_, '_> {
    /// Sends a copy of Data that is served here on its round.
    #[cold]
    fn send_round(&mut self, round: Round, packet: &Packet) {
        let Some((worker, next)) = round.next() else { return };
        let Some(frame) = copy(&packet.frame, || self.output.out.allocate()) else {
            return self.output.out.count_drop(self.worker_set.port, DropReason::NO_FRAME);
        };
        // The token was for this worker.
        let annotations = Annotations { pit_token: PitToken::NONE, ..packet.annotations };
        let packet = Packet { frame, face: packet.face, annotations };
        self.worker_set.hand(
            worker,
            HandoffTask::Round(Round { was_served: true, ..next }),
            packet,
            self.output.out,
        );
    }
}
