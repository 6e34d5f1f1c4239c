//! Makes packets: what one worker sends out of one port.
//!
//! ```text
//!   Traffic ──compile──▶ Compiled ──▶ Generator (port, worker w of W) ──fill(now)──▶ Batch ──▶ Port
//!                                       every Wth packet of every stream of the port, when it is due
//! ```
//! The generators of all workers together send what one alone would: a worker takes the sequence numbers that leave its own
//! number when divided by W.

mod compiled;
mod counter;
mod layout;
mod lengths;
mod pace;
mod program;
mod step;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrayvec::ArrayVec;
pub(crate) use compiled::Packets;
pub use compiled::{CompiledTraffic, Problem};
use kaido_engine::{BATCH_MAX, Batch, Frame, FramePool, FrameSize, HEADROOM, PoolCache};

pub(crate) use self::layout::{Kind, Layout, link};
use self::program::{Cursor, LINE, Program};
use self::step::Step;
use crate::result::Volume;
use crate::trailer::TrailerStart;

/// Shortest frame, in bytes without FCS (IEEE 802.3 clause 4A.4.2).
const FRAME_MIN: usize = 60;

/// What is wrong with a template: the field, and why.
type Refusal = (String, String);

/// A worker's part of what goes out of a port.
#[derive(Debug)]
pub struct Generator {
    compiled: Arc<CompiledTraffic>,
    lanes: Vec<WorkerStream>,
    /// The lanes that have packets left, the one whose next is due first on top.
    order: BinaryHeap<Reverse<(DueTime, usize)>>,
    held: HeldFrames,
    /// The packets whose frames are there, and whose bytes are not yet.
    planned: ArrayVec<PlannedPacket, BATCH_MAX>,
    /// Boxed, as it is some kilobytes long.
    step: Box<Step<BATCH_MAX>>,
    /// For packets longer than a frame.
    long: Vec<u8>,
}

/// A packet that is to be made.
#[derive(Clone, Copy, Debug)]
struct PlannedPacket {
    worker_lane: u32,
    shape: u16,
    /// Whether the frame holds head and payload of the shape.
    is_held: bool,
}

/// A worker's part of a stream.
#[derive(Debug)]
struct WorkerStream {
    stream: usize,
    cursor: Option<Cursor>,
    sequence: u64,
    workers: u64,
    sent: Volume,
}

/// A time in nanoseconds. Times of packets are neither negative nor without value, so that their bits are in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DueTime(u64);

impl DueTime {
    fn at(time_ns: f64) -> Self {
        Self(time_ns.to_bits())
    }

    fn time_ns(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// Whether frames hold packets from the last time they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameMemory {
    /// Nobody writes into the frames but the generator, or it is told by [`Generator::forget`]: what a frame holds is not
    /// written again.
    Kept,
    /// Others may write into the frames.
    Shared,
}

/// What lies in each frame of the pool.
#[derive(Debug)]
struct HeldFrames {
    frames: Vec<HeldPacket>,
    pool: &'static FramePool,
    memory: FrameMemory,
}

/// Of which stream and length a packet is, and where in its frame it begins.
#[derive(Clone, Copy, Debug)]
struct HeldPacket {
    stream: u16,
    /// No packet has none.
    len: u16,
    head: u16,
}

impl HeldFrames {
    const NOTHING: HeldPacket = HeldPacket { stream: 0, len: 0, head: 0 };

    fn new(pool: &'static FramePool, memory: FrameMemory) -> Self {
        Self { frames: vec![Self::NOTHING; pool.frames()], pool, memory }
    }

    /// Where a packet begins in a frame that will hold it from now on, and whether such a one lies there already.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // Numbers of streams, and lengths within a frame.
    fn place(&mut self, frame: &Frame, stream: usize, len: usize) -> (usize, bool) {
        let number = self.number(frame.address());
        let (stream, len) = (stream as u16, len as u16);
        let Some(held) = self.frames.get_mut(number) else { return (HEADROOM, false) };
        if held.len == len {
            let is_same = held.stream == stream;
            held.stream = stream;
            return (held.head.into(), is_same && self.memory == FrameMemory::Kept);
        }
        *held = HeldPacket { stream, len, head: head(self.pool.frame_size(), number, len.into()) };
        (held.head.into(), false)
    }

    /// A frame is written by others.
    #[inline]
    fn forget(&mut self, frame: &Frame) {
        for address in frame.addresses() {
            let number = self.number(address);
            if let Some(held) = self.frames.get_mut(number) {
                *held = Self::NOTHING;
            }
        }
    }

    /// Number of the frame in which an address lies.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // As many as memory has.
    fn number(&self, address: u64) -> usize {
        self.pool.frame_of(address) as usize
    }
}

/// Where in a frame a packet begins. Frames lie 2048 or 4096 bytes apart. Packets that all began at one place of theirs would
/// compete for the few lines of the cache that this place can have.
#[allow(clippy::cast_possible_truncation)] // Spread over all bits and scaled down again: within a frame.
fn head(size: FrameSize, number: usize, len: usize) -> u16 {
    let places = (size.room() - len) / LINE + 1;
    let spread = (number as u32).wrapping_mul(0x9e37_79b9);
    (HEADROOM + LINE * ((u64::from(spread) * places as u64) >> 32) as usize) as u16
}

impl Generator {
    /// What worker `worker` of `workers` sends out of a port, in frames of `pool`.
    ///
    /// # Panics
    /// When there is no such worker.
    pub fn new(
        compiled: &Arc<CompiledTraffic>,
        port: usize,
        (worker, workers): (u32, u32),
        pool: &'static FramePool,
        memory: FrameMemory,
    ) -> Self {
        assert!(worker < workers, "worker {worker} of {workers}");
        let mut generator = Self {
            compiled: compiled.clone(),
            lanes: Vec::new(),
            order: BinaryHeap::new(),
            held: HeldFrames::new(pool, memory),
            planned: ArrayVec::new(),
            step: Box::new(Step::new()),
            long: Vec::new(),
        };
        for (number, stream) in compiled.streams.iter().enumerate().filter(|(_, stream)| stream.port == port)
        {
            let cursor = match &stream.packets {
                Packets::Made(program) => Some(program.cursor(worker.into(), workers.into())),
                Packets::Captured(_) => None,
            };
            let worker_lane = WorkerStream {
                stream: number,
                cursor,
                sequence: worker.into(),
                workers: workers.into(),
                sent: Volume::default(),
            };
            if let Some(due) = stream.pace.time_ns(worker_lane.sequence) {
                generator.order.push(Reverse((DueTime::at(due), generator.lanes.len())));
            }
            generator.lanes.push(worker_lane);
        }
        generator
    }

    /// Adds the packets that are due to `batch`, up to its capacity, all stamped with `now_ns`, nanoseconds since the run
    /// began; how many. What does not wait for its time is always due. Ends early when the pool is empty.
    pub fn fill(&mut self, now_ns: u64, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let before = batch.len();
        let compiled = self.compiled.clone();
        loop {
            let first = batch.len();
            let is_done = self.plan(&compiled, now_ns, pool, batch);
            self.make(&compiled, now_ns, &mut batch[first..]);
            if is_done {
                return batch.len() - before;
            }
        }
    }

    /// Adds the frames of packets that are due, each with its place in `planned`. Whether these are all; else the next is a
    /// long one, which is made when all before it are.
    fn plan(
        &mut self,
        compiled: &CompiledTraffic,
        now_ns: u64,
        pool: &mut PoolCache,
        batch: &mut Batch,
    ) -> bool {
        while let Some(&Reverse((due, worker_lane))) = self.order.peek() {
            let stream = &compiled.streams[self.lanes[worker_lane].stream];
            if batch.is_full() || (stream.paced && due.time_ns() > now_ns as f64) {
                break;
            }
            self.order.pop();
            // As long as no other lane is due before it.
            let end = self.order.peek().map_or(f64::INFINITY, |Reverse((next, _))| next.time_ns());
            let until_ns = if stream.paced { end.min(now_ns as f64) } else { end };
            let most = stream.pace.due_by(
                self.lanes[worker_lane].sequence,
                self.lanes[worker_lane].workers,
                until_ns,
                batch.remaining_capacity(),
            );
            let ended = match &stream.packets {
                Packets::Made(program) => self.plan_made(program, worker_lane, most, pool, batch),
                Packets::Captured(packets) => self.copy(packets, worker_lane, most, pool, batch),
            };
            let ended = match (ended, &stream.packets) {
                (StreamEnd::Long, Packets::Made(program)) if self.planned.is_empty() => self.long_packet(
                    program,
                    worker_lane,
                    &compiled.start(self.lanes[worker_lane].stream, now_ns),
                    pool,
                    batch,
                ),
                (ended, _) => ended,
            };
            let next = stream.pace.time_ns(self.lanes[worker_lane].sequence).map(DueTime::at);
            if let Some(due) = next {
                self.order.push(Reverse((due, worker_lane)));
            }
            match ended {
                StreamEnd::Until => {}
                StreamEnd::Starved => break,
                StreamEnd::Long => return false,
            }
        }
        true
    }

    /// Plans up to `most` packets of a lane; why it ended.
    #[inline(always)]
    fn plan_made(
        &mut self,
        program: &Program,
        number: usize,
        most: usize,
        pool: &mut PoolCache,
        batch: &mut Batch,
    ) -> StreamEnd {
        let room = pool.pool().frame_size().room();
        let worker_lane = &mut self.lanes[number];
        let lane_number = u32::try_from(number).unwrap_or(u32::MAX);
        for _ in 0..most {
            let shape_number = program.shape(worker_lane.sequence);
            let shape = &program.shapes[usize::from(shape_number)];
            if shape.len > room {
                return StreamEnd::Long;
            }
            let Some(mut frame) = pool.allocate() else { return StreamEnd::Starved };
            let (head, is_held) = self.held.place(&frame, worker_lane.stream, shape.len);
            if !frame.occupy(head, shape.len) {
                return StreamEnd::Starved;
            }
            // All values are worked out while the lines come.
            shape.lines.iter().for_each(|line| frame.prefetch_write(usize::from(*line)));
            self.planned.push(PlannedPacket { worker_lane: lane_number, shape: shape_number, is_held });
            batch.push(frame);
            worker_lane.sent.add(shape.len);
            worker_lane.sequence += worker_lane.workers;
        }
        StreamEnd::Until
    }

    /// Adds a packet that takes several frames, when all planned ones are made.
    #[cold]
    fn long_packet(
        &mut self,
        program: &Program,
        number: usize,
        trailer: &TrailerStart,
        pool: &mut PoolCache,
        batch: &mut Batch,
    ) -> StreamEnd {
        let worker_lane = &mut self.lanes[number];
        let Some(cursor) = &mut worker_lane.cursor else { return StreamEnd::Until };
        program.packet(worker_lane.sequence, trailer, &mut self.long);
        let Some(frame) = copied(&self.long, &mut self.held, pool) else { return StreamEnd::Starved };
        program.skip(cursor);
        worker_lane.sent.add(self.long.len());
        worker_lane.sequence += worker_lane.workers;
        batch.push(frame);
        StreamEnd::Until
    }

    /// Adds up to `most` captured packets, when all planned ones are made; why it ended.
    fn copy(
        &mut self,
        packets: &[Box<[u8]>],
        number: usize,
        most: usize,
        pool: &mut PoolCache,
        batch: &mut Batch,
    ) -> StreamEnd {
        if !self.planned.is_empty() {
            return StreamEnd::Long;
        }
        let worker_lane = &mut self.lanes[number];
        for _ in 0..most {
            #[allow(clippy::cast_possible_truncation)] // Below the number of packets.
            let packet = &packets[(worker_lane.sequence % packets.len() as u64) as usize];
            let Some(frame) = copied(packet, &mut self.held, pool) else { return StreamEnd::Starved };
            worker_lane.sent.add(packet.len());
            worker_lane.sequence += worker_lane.workers;
            batch.push(frame);
        }
        StreamEnd::Until
    }

    /// Makes the packets that are planned, whose frames are the last of `frames`.
    #[inline(always)]
    fn make(&mut self, compiled: &CompiledTraffic, now_ns: u64, frames: &mut [Frame]) {
        let Self { lanes, planned, step, .. } = self;
        let first = frames.len() - planned.len();
        let mut packets: ArrayVec<&mut [u8], BATCH_MAX> =
            frames[first..].iter_mut().map(Frame::data_mut).collect();
        let Some(worker_lane) = planned.first().map(|first| first.worker_lane) else { return };
        if planned.iter().all(|planned| planned.worker_lane == worker_lane) {
            make_lane(compiled, &mut lanes[worker_lane as usize], now_ns, step, planned, &mut packets);
        } else {
            make_lanes(compiled, lanes, now_ns, step, planned, &mut packets);
        }
        planned.clear();
    }

    /// Says that others have written into a frame of the pool.
    #[inline]
    pub fn forget(&mut self, frame: &Frame) {
        self.held.forget(frame);
    }

    /// When the next packet is due, in nanoseconds since the run began; `None` when nothing is left to send. Now, for what
    /// does not wait for its time.
    pub fn next_due_ns(&self) -> Option<u64> {
        let Reverse((due, worker_lane)) = self.order.peek()?;
        let stream = &self.compiled.streams[self.lanes[*worker_lane].stream];
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // A time; what is beyond saturates.
        Some(if stream.paced { due.time_ns().ceil() as u64 } else { 0 })
    }

    /// What was made of each stream, by its number.
    pub fn sent(&self) -> impl Iterator<Item = (usize, Volume)> + '_ {
        self.lanes.iter().map(|worker_lane| (worker_lane.stream, worker_lane.sent))
    }
}

/// Why no more packets of a lane are planned.
enum StreamEnd {
    /// The batch is full, another lane's turn has come, or nothing is left.
    Until,
    /// The pool has no frames.
    Starved,
    /// The next is copied, which is done when all before it are made.
    Long,
}

/// Makes planned packets of several lanes, lane by lane.
fn make_lanes(
    compiled: &CompiledTraffic,
    lanes: &mut [WorkerStream],
    now_ns: u64,
    step: &mut Step<BATCH_MAX>,
    planned: &[PlannedPacket],
    packets: &mut [&mut [u8]],
) {
    // A mark for each packet that is made.
    const { assert!(BATCH_MAX <= 64) };
    let mut made = 0u64;
    for first in 0..planned.len() {
        if made >> first & 1 == 1 {
            continue;
        }
        let worker_lane = planned[first].worker_lane;
        let mut own: ArrayVec<PlannedPacket, BATCH_MAX> = ArrayVec::new();
        let mut own_packets: ArrayVec<&mut [u8], BATCH_MAX> = ArrayVec::new();
        for (at, planned) in
            planned.iter().enumerate().skip(first).filter(|(_, of)| of.worker_lane == worker_lane)
        {
            own.push(*planned);
            own_packets.push(std::mem::take(&mut packets[at]));
            made |= 1 << at;
        }
        make_lane(compiled, &mut lanes[worker_lane as usize], now_ns, step, &own, &mut own_packets);
    }
}

/// Makes planned packets of one lane.
#[inline(always)]
fn make_lane(
    compiled: &CompiledTraffic,
    worker_lane: &mut WorkerStream,
    now_ns: u64,
    step: &mut Step<BATCH_MAX>,
    planned: &[PlannedPacket],
    packets: &mut [&mut [u8]],
) {
    let (Packets::Made(program), Some(cursor)) =
        (&compiled.streams[worker_lane.stream].packets, &mut worker_lane.cursor)
    else {
        return;
    };
    for (planned, packet) in planned.iter().zip(packets.iter_mut()) {
        if !planned.is_held {
            program.lay(&program.shapes[usize::from(planned.shape)], packet);
        }
    }
    let shapes = planned.iter().map(|planned| planned.shape);
    step.write(program, cursor, &compiled.start(worker_lane.stream, now_ns), &shapes, packets);
}

/// A packet that is copied; `None` when the pool has no frames.
fn copied(packet: &[u8], held: &mut HeldFrames, pool: &mut PoolCache) -> Option<Frame> {
    Frame::from_slice(packet, || {
        let frame = pool.allocate()?;
        held.forget(&frame);
        Some(frame)
    })
}

#[cfg(test)]
mod tests;
