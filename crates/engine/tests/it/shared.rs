//! Shared queues in memory under real workers and threads.
#![cfg(not(any(loom, shuttle)))]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kaido_engine::shared::measure::{Burn, Load, measure};
use kaido_engine::shared::{MemoryQueue, Order, ReadySender, SharedDevice, SharedQueue, SharedTotals};
use kaido_engine::{
    Batch, DropReason, Frame, FramePool, Function, KernelPath, Output, PoolCache, Port, PortId, PortTotals,
    Worker, WorkerSettings,
};
use kaido_xsk::Desc;
use kaido_xsk::claim::DescRing;

#[test]
fn a_million_packets_leave_once_and_in_order_from_four_workers() {
    let pool = FramePool::leak(8192).unwrap();
    // A window of one block makes all wait for one; a wide one lets them run far ahead.
    for (window, packets) in [(1024, 1_000_000), (32, 100_000)] {
        let order = Order::Kept { window };
        let load = Load { order, workers: 4, packets, burn: Burn::of_ns(20) };
        let report = measure(pool, load).unwrap();
        assert_eq!((report.lost, report.repeated), (0, 0));
        assert_eq!((report.reordering.packets, report.reordering.reordered), (packets.into(), 0));
        assert_eq!(report.totals().packets, packets.into());
        assert_eq!(pool.free_frames(), pool.frames());
    }
}

#[test]
fn a_million_packets_leave_once_without_order() {
    let pool = FramePool::leak(8192).unwrap();
    let load = Load { order: Order::Free, workers: 4, packets: 1_000_000, burn: Burn::of_ns(20) };
    let report = measure(pool, load).unwrap();
    assert_eq!((report.lost, report.repeated, report.reordering.packets), (0, 0, 1_000_000));
    assert_eq!(pool.free_frames(), pool.frames());
}

/// Crosses packets over to the other port; of each number that 5 divides none, of each that 7 divides three. Some take
/// longer than others.
struct Uneven;

fn copies(number: u32) -> usize {
    match number {
        n if n.is_multiple_of(5) => 0,
        n if n.is_multiple_of(7) => 3,
        _ => 1,
    }
}

fn number(frame: &Frame) -> u32 {
    u32::from_be_bytes(frame.data()[..4].try_into().unwrap())
}

impl Function for Uneven {
    fn name(&self) -> &'static str {
        "uneven"
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        for frame in batch.drain(..) {
            let number = number(&frame);
            if number.is_multiple_of(97) {
                std::thread::yield_now();
            }
            let to = PortId(1 - port.0);
            for _ in 1..copies(number) {
                let copy = Frame::from_slice(&frame.to_vec(), || out.allocate()).unwrap();
                out.transmit(to, copy);
            }
            if copies(number) == 0 {
                out.drop(port, frame, DropReason::NO_ROUTE);
            } else {
                out.transmit(to, frame);
            }
        }
    }

    fn tick(&mut self, _out: &mut Output<'_>) {}
}

/// The packet of a number; some are chains.
fn packet(number: u32) -> Vec<u8> {
    let len = if number.is_multiple_of(11) { 5000 } else { 60 };
    let mut bytes = vec![number.to_le_bytes()[0]; len];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

/// Sends `total` numbers into both queues and collects what comes out of each, until all has or ten seconds are over.
fn exchange(
    pool: &'static FramePool,
    queues: &[Arc<SharedQueue<MemoryQueue>>; 2],
    total: u32,
) -> [Vec<u32>; 2] {
    let expected: usize = (0..total).map(copies).sum();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut next = [0u32; 2];
    let mut out = [Vec::new(), Vec::new()];
    while out.iter().any(|out| out.len() < expected) && Instant::now() < deadline {
        for side in 0..2 {
            while next[side] < total {
                let Some(frame) = Frame::from_slice(&packet(next[side]), || pool.allocate()) else { break };
                if queues[side].device().push(frame).is_err() {
                    break;
                }
                next[side] += 1;
            }
            while let Some(frame) = queues[side].device().pop() {
                let number = number(&frame);
                assert_eq!(frame.to_vec(), packet(number));
                out[side].push(number);
            }
        }
        std::thread::yield_now();
    }
    out
}

/// Two queues, four workers on both; what came out of either, and the workers' counters of the first.
fn run(order: Order, total: u32) -> ([Vec<u32>; 2], SharedTotals, PortTotals) {
    let pool = FramePool::leak(4096).unwrap();
    let queues = [(); 2].map(|()| SharedQueue::new(MemoryQueue::new(pool, 256), order));
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..4)
        .map(|number| {
            let ports =
                queues.iter().map(|queue| (Box::new(queue.port()) as Box<dyn Port>, KernelPath::None));
            Worker::new(pool, ports.collect(), Box::new(Uneven), WorkerSettings::default())
                .spawn(format!("worker-{number}"), stop.clone())
                .unwrap()
        })
        .collect();
    let out = exchange(pool, &queues, total);
    stop.store(true, Ordering::Relaxed);
    let counters: Vec<_> = workers.iter().map(|worker| worker.counters().clone()).collect();
    workers.into_iter().for_each(|worker| assert!(worker.join()));
    let mut totals = SharedTotals::default();
    counters.iter().for_each(|counters| totals += counters.shared(PortId(0)).unwrap());
    drop(queues);
    assert_eq!(pool.free_frames(), pool.frames());
    (out, totals, PortTotals::of(counters.iter().map(|counters| &**counters), PortId(0)))
}

#[test]
fn what_a_function_makes_of_packets_leaves_in_the_order_of_the_packets() {
    let total = 20_000;
    let expected: Vec<u32> =
        (0..total).flat_map(|number| std::iter::repeat_n(number, copies(number))).collect();
    for window in [32, 256] {
        let ([first, second], totals, port) = run(Order::Kept { window }, total);
        assert!(first == expected && second == expected, "window {window}");
        // Each eleventh packet is two descriptors.
        assert_eq!(totals.packets, u64::from(total + total.div_ceil(11)));
        assert_eq!((totals.blocks, port.rx_packets), (totals.drained, total.into()));
        assert_eq!(port.drops, [(DropReason::NO_ROUTE, u64::from(total.div_ceil(5)))]);
    }
}

#[test]
fn without_order_nothing_is_lost_either() {
    let total = 20_000;
    let (out, totals, _) = run(Order::Free, total);
    let expected: Vec<u32> =
        (0..total).flat_map(|number| std::iter::repeat_n(number, copies(number))).collect();
    for mut out in out {
        out.sort_unstable();
        assert!(out == expected);
    }
    assert_eq!(totals.blocks, totals.drained);
}

/// A queue whose far end has room for so many packets, and behind them for so many buffers of those that are prepared: as a device has that
/// sends between two looks.
struct Narrow {
    queue: MemoryQueue,
    packets: AtomicUsize,
    prepared: AtomicUsize,
}

impl ReadySender for Narrow {
    fn prepare(&self, pool: &mut PoolCache, batch: &mut Batch, ready: &mut Vec<Desc>) -> usize {
        self.queue.prepare(pool, batch, ready)
    }

    fn send(&self, ready: &[Desc]) -> usize {
        let mut whole = ready.len().min(self.prepared.load(Ordering::Relaxed));
        while whole > 0 && ready[whole - 1].is_continued() {
            whole -= 1;
        }
        self.prepared.fetch_sub(whole, Ordering::Relaxed);
        self.queue.send(&ready[..whole])
    }

    fn take_back(&self, ready: &[Desc], batch: &mut Batch) {
        self.queue.take_back(ready, batch);
    }
}

impl SharedDevice for Narrow {
    type Ring = Arc<DescRing>;

    fn ring(&self) -> Self::Ring {
        self.queue.ring()
    }

    unsafe fn take(&self, descs: &[Desc], pool: &mut PoolCache, batch: &mut Batch) {
        // SAFETY: the caller's promise.
        unsafe { self.queue.take(descs, pool, batch) };
    }

    fn transmit(&self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let fits = batch.len().min(self.packets.load(Ordering::Relaxed));
        self.packets.fetch_sub(fits, Ordering::Relaxed);
        let mut some: Batch = batch.drain(..fits).collect();
        self.queue.transmit(pool, &mut some)
    }
}

/// Sends everything back; what begins with P is preferred.
struct Echo;

impl Function for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        for frame in batch.drain(..) {
            let before = out.set_high_priority(frame.data()[0] == b'P');
            out.transmit(port, frame);
            out.set_high_priority(before);
        }
    }

    fn tick(&mut self, _out: &mut Output<'_>) {}
}

#[test]
fn blocks_that_find_no_room_are_lost_but_for_what_is_preferred() {
    let pool = FramePool::leak(256).unwrap();
    let narrow = Narrow {
        queue: MemoryQueue::new(pool, 64),
        packets: AtomicUsize::new(1),
        prepared: AtomicUsize::new(5),
    };
    let queue = SharedQueue::new(narrow, Order::KEPT);
    let port: Box<dyn Port> = Box::new(queue.port());
    let settings = WorkerSettings::default();
    let mut worker = Worker::new(pool, vec![(port, KernelPath::None)], Box::new(Echo), settings);
    let room = |packets, prepared| {
        queue.device().packets.store(packets, Ordering::Relaxed);
        queue.device().prepared.store(prepared, Ordering::Relaxed);
    };
    let send = |packets: &[&[u8]]| {
        for packet in packets {
            let frame = Frame::from_slice(packet, || pool.allocate()).unwrap();
            queue.device().queue.push(frame).unwrap();
        }
    };
    let sent = || -> Vec<Vec<u8>> {
        std::iter::from_fn(|| queue.device().queue.pop()).map(|frame| frame.to_vec()).collect()
    };
    // Three buffers.
    let long = vec![b'l'; 2 * pool.frame_size().room() + 1];
    send(&[b"a", b"b", b"P", b"c", &long, b"d"]);
    assert_eq!(worker.step(), 6);
    // The preferred one and three more; two buffers are left for the long one.
    assert_eq!(sent(), [b"P".to_vec(), b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
    let lost = |worker: &Worker, reason| {
        let totals = PortTotals::of([&*worker.counters()], PortId(0));
        let found = totals.drops.iter().find(|(found, _)| *found == reason).map_or(0, |&(_, count)| count);
        (found, totals.tx_packets, totals.tx_bytes)
    };
    assert_eq!(lost(&worker, DropReason::TX_FULL), (2, 4, 4));
    // Preferred ones wait, and others do not overtake them.
    room(1, 9);
    send(&[b"P1", b"P2", b"e"]);
    assert_eq!(worker.step(), 3);
    assert_eq!(sent(), [b"P1"]);
    assert_eq!(lost(&worker, DropReason::TX_FULL), (3, 5, 6));
    room(9, 9);
    send(&[b"f"]);
    worker.step();
    assert_eq!(sent(), [b"P2".to_vec(), b"f".to_vec()]);
    drop(worker);
    assert_eq!(pool.free_frames(), 256);
}
