//! Preferred frames at a port that is full: they go first, wait for room, and are bounded.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use kaido_engine::port::{MemoryPort, MemoryWire};
use kaido_engine::{
    Batch, DropReason, FramePool, Function, KernelPath, Output, PoolCache, Port, PortId, PortTotals, Worker,
    WorkerSettings,
};

/// A port with room for so many frames, until there is more.
struct Narrow {
    port: MemoryPort,
    room: Arc<AtomicUsize>,
}

impl Port for Narrow {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        self.port.receive(pool, batch);
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let fits = batch.len().min(self.room.load(Ordering::Relaxed));
        self.room.fetch_sub(fits, Ordering::Relaxed);
        let mut some: Batch = batch.drain(..fits).collect();
        self.port.transmit(pool, &mut some)
    }
}

/// Sends everything from port 1; what begins with P is preferred.
struct HighPriority;

impl Function for HighPriority {
    fn name(&self) -> &'static str {
        "preferring"
    }

    fn process(&mut self, _port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        for frame in batch.drain(..) {
            let before = out.set_high_priority(frame.data()[0] == b'P');
            assert!(!before);
            out.transmit(PortId(1), frame);
            out.set_high_priority(before);
        }
    }

    fn tick(&mut self, _out: &mut Output<'_>) {}
}

struct Rig {
    into: MemoryWire,
    out: MemoryWire,
    room: Arc<AtomicUsize>,
    worker: Worker,
    pool: &'static FramePool,
}

impl Rig {
    fn new(room: usize) -> Self {
        let pool = FramePool::leak(2048).unwrap();
        let (into, out) = (MemoryWire::new(), MemoryWire::new());
        let room = Arc::new(AtomicUsize::new(room));
        let narrow = Narrow { port: out.port(), room: room.clone() };
        let worker = Worker::new(
            pool,
            vec![(Box::new(into.port()), KernelPath::None), (Box::new(narrow), KernelPath::None)],
            Box::new(HighPriority),
            WorkerSettings::default(),
        );
        Self { into, out, room, worker, pool }
    }

    /// Sends frames of two octets: a class and a number.
    fn send(&mut self, class: u8, numbers: std::ops::Range<u8>) {
        numbers.for_each(|number| assert!(self.into.send(vec![class, number])));
    }

    fn run(&mut self) -> Vec<(u8, u8)> {
        while self.worker.step() > 0 {}
        std::iter::from_fn(|| self.out.receive()).map(|frame| (frame[0], frame[1])).collect()
    }

    fn drops(&self, reason: DropReason) -> u64 {
        let totals = PortTotals::of([&*self.worker.counters()], PortId(1));
        totals.drops.iter().find(|(found, _)| *found == reason).map_or(0, |&(_, count)| count)
    }
}

fn numbered(class: u8, numbers: std::ops::Range<u8>) -> Vec<(u8, u8)> {
    numbers.map(|number| (class, number)).collect()
}

#[test]
fn preferred_frames_leave_first_and_others_are_dropped() {
    let mut rig = Rig::new(8);
    rig.send(b'o', 0..10);
    rig.send(b'P', 0..5);
    rig.send(b'o', 10..15);
    assert_eq!(rig.run(), [numbered(b'P', 0..5), numbered(b'o', 0..3)].concat());
    assert_eq!((rig.drops(DropReason::TX_FULL), rig.drops(DropReason::TX_FULL_HIGH_PRIORITY)), (12, 0));
}

#[test]
fn preferred_frames_wait_for_room_in_their_order() {
    let mut rig = Rig::new(3);
    rig.send(b'P', 0..20);
    assert_eq!(rig.run(), numbered(b'P', 0..3));
    // What comes meanwhile does not overtake them.
    rig.room.store(7, Ordering::Relaxed);
    rig.send(b'o', 0..5);
    rig.send(b'P', 20..22);
    assert_eq!(rig.run(), numbered(b'P', 3..10));
    assert_eq!(rig.drops(DropReason::TX_FULL), 5);
    rig.room.store(100, Ordering::Relaxed);
    rig.send(b'o', 5..8);
    assert_eq!(rig.run(), [numbered(b'P', 10..22), numbered(b'o', 5..8)].concat());
    let totals = PortTotals::of([&*rig.worker.counters()], PortId(1));
    assert_eq!((totals.tx_packets, totals.tx_bytes), (25, 50));
}

#[test]
fn what_waits_is_bounded_and_not_lost_from_the_pool() {
    let mut rig = Rig::new(0);
    for _ in 0..2 {
        rig.send(b'P', 0..200);
        assert_eq!(rig.run(), []);
    }
    assert_eq!(rig.drops(DropReason::TX_FULL_HIGH_PRIORITY), 400 - 256);
    let pool = rig.pool;
    drop(rig);
    assert_eq!(pool.free_frames(), 2048);
}
