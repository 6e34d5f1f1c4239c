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

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

pub(crate) use compiled::Packets;
pub use compiled::{Compiled, Problem};
use kaido_engine::{Batch, FRAME_SIZE, Frame, FramePool, HEADROOM, PoolCache};

pub(crate) use self::layout::{Kind, Layout, link};
use self::program::{Cursor, Program, Shape};
use crate::result::Volume;

/// Payloads up to this are copied for every packet: to look whether they lie there already would take as long.
const COPIED_MAX: usize = 256;

/// A worker's part of what goes out of a port.
#[derive(Debug)]
pub struct Generator {
    compiled: Arc<Compiled>,
    lanes: Vec<Lane>,
    /// The lanes that have packets left, the one whose next is due first on top.
    order: BinaryHeap<Reverse<(Due, usize)>>,
    payloads: Payloads,
    /// For packets longer than a frame.
    long: Vec<u8>,
}

/// A worker's part of a stream.
#[derive(Debug)]
struct Lane {
    stream: usize,
    cursor: Option<Cursor>,
    sequence: u64,
    workers: u64,
    sent: Volume,
}

/// A time in nanoseconds. Times of packets are neither negative nor without value, so that their bits are in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due(u64);

impl Due {
    fn at(time_ns: f64) -> Self {
        Self(time_ns.to_bits())
    }

    fn time_ns(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// Whether frames hold a payload from the last time they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameMemory {
    /// The frames of the pool are the generator's alone, and what is sent is only read: a payload that lies in a frame is
    /// not written again.
    Kept,
    /// Others may write into the frames.
    Shared,
}

/// Which payload lies in each frame of the pool.
#[derive(Debug)]
struct Payloads {
    /// By frame: the number of the stream and the length of the packet; nothing at first.
    held: Vec<(u32, u32)>,
}

impl Payloads {
    /// Whether a frame holds the payload of a packet, which it will from now on.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // Numbers of frames and lengths of packets.
    fn holds(&mut self, frame: &Frame, stream: usize, len: usize) -> bool {
        let place = (frame.address() / FRAME_SIZE as u64) as usize;
        let now = (stream as u32, len as u32);
        self.held.get_mut(place).is_some_and(|held| std::mem::replace(held, now) == now)
    }

    /// A frame is written whole.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // Numbers of frames.
    fn forget(&mut self, frame: &Frame) {
        if let Some(held) = self.held.get_mut((frame.address() / FRAME_SIZE as u64) as usize) {
            *held = (u32::MAX, 0);
        }
    }
}

impl Generator {
    /// What worker `worker` of `workers` sends out of a port, in frames of `pool`.
    ///
    /// # Panics
    /// When there is no such worker.
    pub fn new(
        compiled: &Arc<Compiled>,
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
            payloads: Payloads {
                held: if memory == FrameMemory::Kept {
                    vec![(u32::MAX, 0); pool.frames()]
                } else {
                    Vec::new()
                },
            },
            long: Vec::new(),
        };
        for (number, stream) in compiled.streams.iter().enumerate().filter(|(_, stream)| stream.port == port)
        {
            let cursor = match &stream.packets {
                Packets::Made(program) => Some(program.cursor(worker.into(), workers.into())),
                Packets::Captured(_) => None,
            };
            let lane = Lane {
                stream: number,
                cursor,
                sequence: worker.into(),
                workers: workers.into(),
                sent: Volume::default(),
            };
            if let Some(due) = stream.pace.time_ns(lane.sequence) {
                generator.order.push(Reverse((Due::at(due), generator.lanes.len())));
            }
            generator.lanes.push(lane);
        }
        generator
    }

    /// Adds the packets that are due to `batch`, up to its capacity, all stamped with `now_ns`, nanoseconds since the run
    /// began; how many. What does not wait for its time is always due. Ends early when the pool is empty.
    pub fn fill(&mut self, now_ns: u64, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let before = batch.len();
        let compiled = self.compiled.clone();
        while let Some(&Reverse((due, lane))) = self.order.peek() {
            let stream = &compiled.streams[self.lanes[lane].stream];
            if batch.is_full() || (stream.paced && due.time_ns() > now_ns as f64) {
                break;
            }
            self.order.pop();
            // As long as no other lane is due before it.
            let end = self.order.peek().map_or(Due(u64::MAX), |Reverse((next, _))| *next);
            let (next, starved) = self.run(&compiled, lane, (due, end), now_ns, pool, batch);
            if let Some(due) = next {
                self.order.push(Reverse((due, lane)));
            }
            if starved {
                break;
            }
        }
        batch.len() - before
    }

    /// Adds packets of one lane until another's is due; when its next one is, and whether the pool is empty.
    fn run(
        &mut self,
        compiled: &Compiled,
        lane: usize,
        (mut due, end): (Due, Due),
        now_ns: u64,
        pool: &mut PoolCache,
        batch: &mut Batch,
    ) -> (Option<Due>, bool) {
        let lane = &mut self.lanes[lane];
        let stream = &compiled.streams[lane.stream];
        let number = u16::try_from(lane.stream).unwrap_or(u16::MAX);
        let start = compiled.key.start(number, now_ns);
        let until = if stream.paced { Due::at(now_ns as f64).min(end) } else { end };
        while due <= until && !batch.is_full() {
            let frame = match (&stream.packets, &mut lane.cursor) {
                (Packets::Made(program), Some(cursor)) => {
                    let trailer = start.words(cursor.sequence);
                    let shape = program.shape(cursor.sequence);
                    made(
                        program,
                        shape,
                        cursor,
                        trailer,
                        (lane.stream, &mut self.payloads, &mut self.long),
                        pool,
                    )
                }
                #[allow(clippy::cast_possible_truncation)] // Below the number of packets.
                (Packets::Captured(packets), _) => {
                    let packet = &packets[(lane.sequence % packets.len() as u64) as usize];
                    Frame::from_slice(packet, || pool.allocate())
                }
                (Packets::Made(_), None) => None,
            };
            let Some(frame) = frame else { return (Some(due), true) };
            lane.sent.add(frame.packet_len());
            batch.push(frame);
            lane.sequence += lane.workers;
            match stream.pace.time_ns(lane.sequence) {
                Some(next) => due = Due::at(next),
                None => return (None, false),
            }
        }
        (Some(due), false)
    }

    /// When the next packet is due, in nanoseconds since the run began; `None` when nothing is left to send. Now, for what
    /// does not wait for its time.
    pub fn next_due_ns(&self) -> Option<u64> {
        let Reverse((due, lane)) = self.order.peek()?;
        let stream = &self.compiled.streams[self.lanes[*lane].stream];
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // A time; what is beyond saturates.
        Some(if stream.paced { due.time_ns().ceil() as u64 } else { 0 })
    }

    /// What was made of each stream, by its number.
    pub fn sent(&self) -> impl Iterator<Item = (usize, Volume)> + '_ {
        self.lanes.iter().map(|lane| (lane.stream, lane.sent))
    }
}

/// A packet of a program; `None` when the pool has no frames.
#[inline(always)]
fn made(
    program: &Program,
    shape: &Shape,
    cursor: &mut Cursor,
    trailer: [u64; 2],
    (stream, payloads, long): (usize, &mut Payloads, &mut Vec<u8>),
    pool: &mut PoolCache,
) -> Option<Frame> {
    if shape.len > FRAME_SIZE - HEADROOM {
        return long_packet(program, cursor, trailer, long, pool);
    }
    let mut frame = pool.allocate()?;
    frame.append(shape.len)?;
    let payload = shape.len - program.head_len;
    let held = if payload > COPIED_MAX {
        payloads.holds(&frame, stream, shape.len)
    } else {
        payloads.forget(&frame);
        false
    };
    let packet = frame.data_mut();
    if !held {
        packet[program.head_len..].copy_from_slice(&program.payload[..payload]);
    }
    program.write(shape, cursor, trailer, packet);
    Some(frame)
}

/// A packet that takes several frames.
#[cold]
#[inline(never)]
fn long_packet(
    program: &Program,
    cursor: &mut Cursor,
    trailer: [u64; 2],
    long: &mut Vec<u8>,
    pool: &mut PoolCache,
) -> Option<Frame> {
    program.packet(cursor.sequence, trailer, long);
    let frame = Frame::from_slice(long, || pool.allocate())?;
    program.skip(cursor);
    Some(frame)
}

#[cfg(test)]
mod tests;
