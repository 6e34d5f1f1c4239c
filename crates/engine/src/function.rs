//! A network function, and what it may do with a packet.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use kaido_xsk::claim::whole_packets;

use crate::batch::{BATCH_MAX, Batch};
use crate::counters::WorkerCounters;
use crate::drop_reason::DropReason;
use crate::drop_table::DropTable;
use crate::frame::Frame;
use crate::inbox::PortLink;
use crate::notifier::Notifier;
use crate::pool::PoolCache;
use crate::port::{KernelPath, Port, PortId};
use crate::shared::{BlockOutput, Departure, ReadyPackets, ReadySender, Shared};
use crate::timing::{Sample, StageCycles};
use crate::trace_recorder::{Disposition, TraceRecorder};

/// A network function: one value per worker, which shares with the others only what it chooses to.
pub trait Function: Send {
    /// Its name in logs and counters.
    fn name(&self) -> &'static str;

    /// Handles the packets that arrived together on `port` and leaves the batch empty: each frame is
    /// transmitted, left to the kernel, kept, or dropped with a reason.
    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>);

    /// Why it drops packets; of a function that has reasons of its own, the `TABLE` that
    /// [`drop_reasons!`](crate::drop_reasons) declares with them. All that it drops with must be in there.
    fn drop_reasons(&self) -> &'static DropTable {
        DropTable::ENGINE
    }

    /// Its stages, for the times of batches that are timed ([`Output::took`]); at most [`STAGES_MAX`](crate::STAGES_MAX).
    fn stages(&self) -> &'static [&'static str] {
        &[]
    }

    /// Called once per round of the worker, packets or not: held packets, timers.
    fn tick(&mut self, out: &mut Output<'_>);

    /// When `tick` must be called again at the latest, if no packet comes before and nobody rings the worker's
    /// [notifier](Self::attach). `None` when nothing waits for its time; beyond 100 ms it is called all the same. A worker that is
    /// about to sleep asks after it has armed its notifier: what others have left by then must be due at once.
    fn tick_due(&self) -> Option<Instant> {
        None
    }

    /// Told before the worker begins, if it runs in a thread: who rings has `tick` called soon, though the worker sleeps.
    fn attach(&mut self, _bell: &Arc<Notifier>) {}

    /// Told between two rounds that the interface behind a port has another Ethernet address, MTU or other addresses.
    fn port_changed(&mut self, _port: PortId, _link: &PortLink) {}
}

/// One port as a worker holds it.
pub(crate) struct WorkerPort {
    pub(crate) queue: Box<dyn Port>,
    pub(crate) kernel: KernelPath,
    /// Frames received and not yet processed: their first lines are on their way to the cache meanwhile.
    pub(crate) incoming: Batch,
    /// Frames on their way out, sent together.
    pub(crate) outgoing: Batch,
    /// Empty; preferred frames go to the device in it.
    pub(crate) spare: Batch,
    /// Of what waits in `incoming`, if it is to be timed.
    pub(crate) incoming_sample: Option<Sample>,
    /// Frames that leave before those, and wait where the device has no room.
    pub(crate) high_priority: VecDeque<Frame>,
    /// Of a queue that other workers share.
    pub(crate) shared: Option<Shared>,
    /// Its way out for blocks that leave in turn.
    pub(crate) sender: Option<Arc<dyn ReadySender>>,
}

/// Preferred frames of a port that wait for room in its device: as many as it takes for a round or two at full speed.
pub(crate) const HIGH_PRIORITY_MAX: usize = 256;

/// The ways out of a function.
pub struct Output<'w> {
    pub(crate) ports: &'w mut [WorkerPort],
    pub(crate) pool: &'w mut PoolCache,
    pub(crate) counters: &'w WorkerCounters,
    pub(crate) now: Instant,
    /// Where packets wait instead of going out, while a block is processed that leaves in its turn.
    pub(crate) block: Option<&'w mut BlockOutput>,
    /// Writes down what is done, while a function asks for that.
    pub(crate) recorder: Option<TraceRecorder>,
    /// What the function's stages take, while a batch is timed.
    pub(crate) times: Option<&'w mut StageCycles>,
    /// What is sent now is preferred.
    high_priority: bool,
}

impl<'w> Output<'w> {
    /// The ways out of one round.
    pub(crate) fn new(
        ports: &'w mut [WorkerPort],
        pool: &'w mut PoolCache,
        counters: &'w WorkerCounters,
        now: Instant,
    ) -> Self {
        Self { ports, pool, counters, now, block: None, recorder: None, times: None, high_priority: false }
    }

    /// When the worker's round began.
    #[inline]
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Whether the batch at hand is timed: then a function should tell what its stages [took](Self::took).
    #[inline]
    pub fn is_timed(&self) -> bool {
        self.times.is_some()
    }

    /// Adds to what a stage of the function takes for this batch, in cycles of [`cycles::now`](crate::shared::cycles::now).
    pub fn took(&mut self, stage: usize, cycles: u64) {
        if let Some(times) = &mut self.times {
            times.add(stage, cycles);
        }
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.ports.len()
    }

    /// The frames that will be processed on `port` after this batch. A function that has their fronts fetched
    /// ([`Frame::prefetch`]) while it works finds them in the cache.
    #[inline(always)]
    pub fn incoming(&self, port: PortId) -> &[Frame] {
        &self.ports[port.index()].incoming
    }

    /// Has frames sent from now on be preferred, or no longer; whether they were before. Preferred frames leave before
    /// all others of their round, and where a device has no room they wait for it, up to a bound, while others are
    /// dropped. Among themselves they stay in order.
    #[inline]
    pub fn set_high_priority(&mut self, high_priority: bool) -> bool {
        std::mem::replace(&mut self.high_priority, high_priority)
    }

    /// Sends a frame, Ethernet header and all.
    #[inline]
    pub fn transmit(&mut self, port: PortId, frame: Frame) {
        if let Some(recorder) = &mut self.recorder {
            recorder.sent(port, &frame);
        }
        if self.high_priority {
            return self.transmit_preferred(port, frame);
        }
        if let Some(block) = &mut self.block
            && self.ports[port.index()].sender.is_none()
        {
            block.departures.push(Departure { port, frame, high_priority: false });
            return;
        }
        let outgoing = &mut self.ports[port.index()].outgoing;
        if let Err(full) = outgoing.try_push(frame) {
            self.flush(port);
            self.ports[port.index()].outgoing.push(full.element());
        }
    }

    #[inline(never)]
    fn transmit_preferred(&mut self, port: PortId, frame: Frame) {
        if let Some(block) = &mut self.block {
            block.departures.push(Departure { port, frame, high_priority: true });
            return;
        }
        if self.ports[port.index()].high_priority.len() >= HIGH_PRIORITY_MAX {
            self.flush_preferred(port);
        }
        let waiting = &mut self.ports[port.index()].high_priority;
        if waiting.len() >= HIGH_PRIORITY_MAX {
            self.counters.port(port).dropped(DropReason::TX_FULL_HIGH_PRIORITY);
            self.pool.release(frame);
        } else {
            waiting.push_back(frame);
        }
    }

    /// Sends what a block has put out, whose turn it is.
    pub(crate) fn leave(&mut self, output: &mut BlockOutput) {
        for Departure { port, frame, high_priority } in output.departures.drain(..) {
            let before = self.set_high_priority(high_priority);
            self.transmit(port, frame);
            self.high_priority = before;
        }
        output.ready.iter_mut().filter(|ready| ready.packets > 0).for_each(|ready| self.send_ready(ready));
    }

    /// Sends packets that are ready, behind preferred ones that wait at their port.
    fn send_ready(&mut self, ready: &mut ReadyPackets) {
        if !self.ports[ready.port.index()].high_priority.is_empty() {
            self.flush_preferred(ready.port);
        }
        let WorkerPort { sender, high_priority, spare, .. } = &mut self.ports[ready.port.index()];
        let Some(sender) = sender else { return };
        // What room there is going to be is theirs, if they still wait.
        let mut sent = if high_priority.is_empty() { sender.send(&ready.descs) } else { 0 };
        let counters = self.counters.port(ready.port);
        while sent < ready.descs.len() {
            let some = whole_packets(&ready.descs[sent..ready.descs.len().min(sent + BATCH_MAX)], BATCH_MAX);
            sender.take_back(&ready.descs[sent..sent + some], spare);
            sent += some.max(1);
            let (left, left_bytes) = sum(spare);
            ready.packets = ready.packets.saturating_sub(left);
            ready.bytes = ready.bytes.saturating_sub(left_bytes);
            counters.lost(DropReason::TX_FULL, left as u64);
            spare.drain(..).for_each(|frame| self.pool.release(frame));
        }
        counters.sent(ready.packets, ready.bytes);
        ready.descs.clear();
        (ready.packets, ready.bytes) = (0, 0);
    }

    /// Has devices send what blocks have left in their turn.
    pub(crate) fn push_out(&mut self) {
        self.flush_all();
        for port in &*self.ports {
            if let Some(sender) = &port.sender {
                sender.push_out(self.pool);
            }
        }
    }

    /// Sends all frames of a batch from one port, in their order and behind what waits there already.
    #[inline]
    pub fn transmit_all(&mut self, port: PortId, batch: &mut Batch) {
        if let Some(recorder) = &mut self.recorder {
            batch.iter().for_each(|frame| recorder.sent(port, frame));
        }
        if let Some(block) = &mut self.block
            && self.ports[port.index()].sender.is_none()
        {
            let departure = |frame| Departure { port, frame, high_priority: false };
            block.departures.extend(batch.drain(..).map(departure));
            return;
        }
        self.flush(port);
        std::mem::swap(&mut self.ports[port.index()].outgoing, batch);
    }

    /// Drops a frame that came in on `port`.
    #[inline]
    pub fn drop(&mut self, port: PortId, frame: Frame, reason: DropReason) {
        self.counters.port(port).dropped(reason);
        if let Some(recorder) = &mut self.recorder {
            recorder.dropped(reason);
        }
        self.pool.release(frame);
    }

    /// Has it written down what is done with frames from here on, with up to `snap` octets of those that are sent. For a
    /// function that traces a packet: it costs allocations.
    pub fn record_trace(&mut self, snap: usize) {
        self.recorder = Some(TraceRecorder::new(snap));
    }

    /// What was done since [`Output::record_trace`]; nothing more is written down.
    pub fn take_dispositions(&mut self) -> Vec<Disposition> {
        self.recorder.take().map(TraceRecorder::into_dispositions).unwrap_or_default()
    }

    /// Counts a drop of a packet that has no frame any more.
    pub fn count_drop(&mut self, port: PortId, reason: DropReason) {
        self.counters.port(port).dropped(reason);
        if let Some(recorder) = &mut self.recorder {
            recorder.dropped(reason);
        }
    }

    /// Leaves a frame that came in on `port` to the kernel, unchanged.
    pub fn to_kernel(&mut self, port: PortId, frame: Frame) {
        if let Some(recorder) = &mut self.recorder {
            recorder.left_to_kernel();
        }
        match self.ports[port.index()].kernel {
            KernelPath::Shared => {
                self.counters.port(port).left_to_kernel(1);
                self.pool.release(frame);
            }
            KernelPath::Tap(tap) => {
                self.counters.port(port).left_to_kernel(1);
                self.transmit(tap, frame);
            }
            KernelPath::None => self.drop(port, frame, DropReason::NOT_OURS),
        }
    }

    /// Gives back a frame that came in on `port` and whose packet the kernel has sent by a socket of its own.
    pub fn sent_by_kernel(&mut self, port: PortId, frame: Frame) {
        if let Some(recorder) = &mut self.recorder {
            recorder.left_to_kernel();
        }
        self.counters.port(port).left_to_kernel(1);
        self.pool.release(frame);
    }

    /// An empty frame, for a packet of our own.
    #[inline]
    pub fn allocate(&mut self) -> Option<Frame> {
        self.pool.allocate()
    }

    /// Gives a frame back that is no packet any more.
    #[inline]
    pub fn release(&mut self, frame: Frame) {
        self.pool.release(frame);
    }

    /// Sends what waits for every port, or makes it ready, as [`Output::flush`].
    pub(crate) fn flush_all(&mut self) {
        for index in 0..self.ports.len() {
            let port = &self.ports[index];
            if !port.outgoing.is_empty() || !port.high_priority.is_empty() {
                #[allow(clippy::cast_possible_truncation)] // Ports are numbered in eight bits.
                self.flush(PortId(index as u8));
            }
        }
    }

    /// Sends the preferred frames that wait for `port`, as far as its device has room.
    #[cold]
    fn flush_preferred(&mut self, port: PortId) {
        let attached = &mut self.ports[port.index()];
        let counters = self.counters.port(port);
        while !attached.high_priority.is_empty() {
            let some = attached.high_priority.len().min(BATCH_MAX);
            let batch = &mut attached.spare;
            batch.extend(attached.high_priority.drain(..some));
            let (packets, bytes) = sum(batch);
            let failed = attached.queue.transmit(self.pool, batch);
            let (left, left_bytes) = sum(batch);
            counters.sent(packets - left - failed, bytes - left_bytes);
            if failed > 0 {
                counters.lost(DropReason::TX_ERROR, failed as u64);
            }
            if left > 0 {
                batch.drain(..).rev().for_each(|frame| attached.high_priority.push_front(frame));
                return;
            }
        }
    }

    /// Sends what waits for `port`, or makes it ready while a block is processed that leaves in its turn.
    fn flush(&mut self, port: PortId) {
        if let Some(block) = &mut self.block {
            let WorkerPort { sender, outgoing, .. } = &mut self.ports[port.index()];
            let Some(sender) = sender else { return };
            let ready = block.of(port);
            let (packets, bytes) = sum(outgoing);
            let failed = sender.prepare(self.pool, outgoing, &mut ready.descs);
            ready.packets += packets - failed;
            ready.bytes += bytes;
            if failed > 0 {
                self.counters.port(port).lost(DropReason::TX_ERROR, failed as u64);
            }
            return;
        }
        if !self.ports[port.index()].high_priority.is_empty() {
            self.flush_preferred(port);
        }
        let attached = &mut self.ports[port.index()];
        if !attached.high_priority.is_empty() {
            // What room there is going to be is theirs.
            let dropped = attached.outgoing.len() as u64;
            self.counters.port(port).lost(DropReason::TX_FULL, dropped);
            return attached.outgoing.drain(..).for_each(|frame| self.pool.release(frame));
        }
        let (packets, bytes) = sum(&attached.outgoing);
        let failed = attached.queue.transmit(self.pool, &mut attached.outgoing);
        let counters = self.counters.port(port);
        let (left, left_bytes) = sum(&attached.outgoing);
        counters.sent(packets - left - failed, bytes - left_bytes);
        if failed > 0 {
            counters.lost(DropReason::TX_ERROR, failed as u64);
        }
        if left > 0 {
            counters.lost(DropReason::TX_FULL, left as u64);
            attached.outgoing.drain(..).for_each(|frame| self.pool.release(frame));
        }
    }
}

/// Packets and bytes of a batch.
#[inline(always)]
pub(crate) fn sum(batch: &Batch) -> (usize, usize) {
    // Four at a time: two instructions of a loop for every packet cost as much as the sum.
    let (fours, rest) = batch.as_chunks::<4>();
    let bytes = |frames: &[Frame]| frames.iter().map(Frame::packet_len).sum::<usize>();
    (batch.len(), fours.iter().map(|four| bytes(four)).sum::<usize>() + bytes(rest))
}
