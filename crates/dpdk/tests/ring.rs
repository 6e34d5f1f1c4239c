//! Ports over `net_ring`, which hands mbufs from one device to another as they are, and `net_null`.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::LazyLock;

use kaido_dpdk::{DpdkError, DpdkOptions, DpdkPool, Eal};
use kaido_engine::{
    BATCH_MAX, Batch, DropReason, Frame, FramePool, FrameSize, Function, HEADROOM, KernelPath, Output, Port,
    PortId, PortTotals, Worker, WorkerSettings,
};

mod support;

use support::{Driven, FRAMES, JUMBO, NONE_OUT, alone, cross, open, pattern, start};

static EAL: LazyLock<Eal> = LazyLock::new(|| start(&["net_null0,size=64", "net_null1"]));

/// Two devices of this name, joined crosswise, and their pool.
fn ring(name: &str) -> (Driven, Driven, &'static FramePool) {
    ring_of(FrameSize::FourKib, name)
}

/// As [`ring`], with frames of a size.
fn ring_of(size: FrameSize, name: &str) -> (Driven, Driven, &'static FramePool) {
    // One more than the devices need: an odd number of frames of half a page ends within one.
    let pool = FramePool::leak_of(size, FRAMES + 1).unwrap();
    let memory = DpdkPool::register(&EAL, pool).unwrap();
    cross(&EAL, name);
    let driven = |side| Driven::open(&memory, pool, &format!("net_ring_{name}{side}"), &JUMBO);
    (driven("a"), driven("b"), pool)
}

/// All frames are free again, once the ports are closed.
#[track_caller]
fn closes(a: Driven, b: Driven, pool: &FramePool) {
    assert_eq!((a.port.mbufs_out(), b.port.mbufs_out()), (NONE_OUT, NONE_OUT));
    drop((a, b));
    assert_eq!(pool.free_frames(), pool.frames());
}

#[test]
fn packets_cross_byte_by_byte_whatever_their_length() {
    let _alone = alone();
    for (size, name) in FrameSize::ALL.into_iter().zip(["length2", "length4"]) {
        let (mut a, mut b, pool) = ring_of(size, name);
        for len in [1, 60, 64, 1514, 1791, 1792, 1793, 3839, 3840, 3841, 7680, 7681, 9000, 9022] {
            a.send(&pattern(len));
            assert_eq!(b.next(), pattern(len), "{len} bytes in {size:?}");
        }
        for round in 0..100usize {
            let frames: Vec<Frame> =
                (0..BATCH_MAX).map(|at| a.make(&pattern(60 + round + 40 * at))).collect();
            assert_eq!(a.transmit(frames), 0);
            let came = b.poll();
            assert_eq!(came.len(), BATCH_MAX);
            for (at, frame) in came.into_iter().enumerate() {
                assert_eq!(frame.to_vec(), pattern(60 + round + 40 * at));
                b.cache.release(frame);
            }
        }
        assert_eq!((a.losses(), b.losses()), (vec![], vec![]));
        closes(a, b, pool);
    }
}

#[test]
fn a_packet_moves_in_its_frame() {
    let _alone = alone();
    let (mut a, mut b, pool) = ring("frame");
    let frame = a.make(&pattern(100));
    let address = frame.address();
    assert_eq!(a.transmit([frame]), 0);
    let came = b.poll().remove(0);
    assert_eq!(came.address(), address);
    assert_eq!(came.headroom(), HEADROOM);
    b.cache.release(came);
    closes(a, b, pool);
}

#[test]
fn headers_may_take_all_of_the_headroom() {
    let _alone = alone();
    let (mut a, mut b, pool) = ring("headroom");
    for more in [0, 1, HEADROOM / 2 - 1, HEADROOM / 2, HEADROOM / 2 + 1, HEADROOM] {
        let mut frame = a.make(b"inner");
        frame.prepend(more).unwrap()[..more].fill(7);
        let sent = frame.to_vec();
        assert_eq!(a.transmit([frame]), 0);
        let came = b.poll().remove(0);
        assert_eq!((came.to_vec(), came.headroom()), (sent, HEADROOM - more));
        b.cache.release(came);
    }
    closes(a, b, pool);
}

#[test]
fn a_full_ring_takes_no_more_and_loses_nothing() {
    let _alone = alone();
    let (mut a, mut b, pool) = ring("full");
    let (mut sent, mut batch) = (0u32, Batch::new());
    loop {
        while !batch.is_full() {
            batch.push(a.make(&sent.to_be_bytes()));
            sent += 1;
        }
        assert_eq!(a.port.transmit(&mut a.cache, &mut batch), 0);
        if batch.is_full() {
            break;
        }
    }
    let taken = sent - u32::try_from(batch.len()).unwrap();
    batch.drain(..).for_each(|frame| a.cache.release(frame));
    assert!(taken > 256, "{taken}");
    let mut expected = 0u32;
    while expected < taken {
        // What waits in the port is offered to the ring again.
        let mut none = Batch::new();
        assert_eq!(a.port.transmit(&mut a.cache, &mut none), 0);
        let came = b.poll();
        assert!(!came.is_empty(), "{expected} of {taken} came");
        for frame in came {
            assert_eq!(frame.data(), expected.to_be_bytes());
            expected += 1;
            b.cache.release(frame);
        }
    }
    assert!(b.poll().is_empty());
    closes(a, b, pool);
}

#[test]
fn what_the_device_can_never_send_is_released_and_counted() {
    let _alone = alone();
    let (mut a, b, pool) = ring("never");
    let elsewhere = FramePool::leak(4).unwrap();
    let mut foreign = elsewhere.allocate().unwrap();
    assert!(foreign.set(b"of another pool"));
    let frames = [a.make(&pattern(9023)), a.make(b""), foreign];
    assert_eq!(a.transmit(frames), 3);
    assert_eq!(elsewhere.free_frames(), 4);
    closes(a, b, pool);
}

#[test]
fn without_a_free_frame_packets_are_dropped_and_counted() {
    let _alone = alone();
    let (mut a, mut b, pool) = ring("hunger");
    let frames: Vec<Frame> = (0..8).map(|_| a.make(&pattern(5000))).collect();
    assert_eq!(a.transmit(frames), 0);
    // Two segments a packet: three frames are enough for one packet and a half.
    let mut hoard: Vec<Frame> = std::iter::from_fn(|| a.cache.allocate()).collect();
    hoard.drain(..3).for_each(drop);
    let came = b.poll();
    assert_eq!(came.len(), 1);
    assert_eq!(came[0].to_vec(), pattern(5000));
    assert_eq!(b.losses(), [(DropReason::NO_FRAME, 7)]);
    assert_eq!(b.losses(), []);
    drop((hoard, came));
    a.send(b"there are frames again");
    assert_eq!(b.next(), b"there are frames again");
    closes(a, b, pool);
}

#[test]
fn a_packet_in_the_frames_of_another_pool_is_copied() {
    let _alone = alone();
    let pools = [(); 2].map(|()| FramePool::leak(FRAMES).unwrap());
    let memories = pools.map(|pool| DpdkPool::register(&EAL, pool).unwrap());
    cross(&EAL, "copy");
    let mut a = Driven::open(&memories[0], pools[0], "net_ring_copya", &JUMBO);
    let mut b = Driven::open(&memories[1], pools[1], "net_ring_copyb", &JUMBO);
    for len in [1, 3840, 9000] {
        a.send(&pattern(len));
        let came = b.poll().remove(0);
        assert!(std::ptr::eq(came.pool(), pools[1]));
        assert_eq!(came.to_vec(), pattern(len));
        b.cache.release(came);
    }
    assert_eq!((a.port.mbufs_out(), b.port.mbufs_out()), (NONE_OUT, NONE_OUT));
    drop((a, b));
    assert_eq!(pools.map(FramePool::free_frames), [FRAMES; 2]);
}

/// Sends everything back, with source and destination exchanged.
struct Echo;

impl Function for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        for mut frame in batch.drain(..) {
            let (to, from) = frame.data_mut()[..12].split_at_mut(6);
            to.swap_with_slice(from);
            out.transmit(port, frame);
        }
    }

    fn tick(&mut self, _out: &mut Output<'_>) {}
}

#[test]
fn a_worker_echoes_and_counts() {
    let _alone = alone();
    let (mut a, b, pool) = ring("echo");
    let Driven { port, cache } = b;
    drop(cache);
    let ports: Vec<(Box<dyn Port>, KernelPath)> = vec![(Box::new(port), KernelPath::None)];
    let mut worker = Worker::new(pool, ports, Box::new(Echo), WorkerSettings::default());
    for len in [64, 1514, 9014] {
        let bytes = pattern(len);
        a.send(&bytes);
        assert_eq!(worker.step(), 1);
        assert_eq!(a.next(), [&bytes[6..12], &bytes[..6], &bytes[12..]].concat());
    }
    let totals = PortTotals::of([&*worker.counters()], PortId(0));
    assert_eq!((totals.rx_packets, totals.tx_packets), (3, 3));
    assert_eq!((totals.rx_bytes, totals.tx_bytes), (10_592, 10_592));
    assert_eq!(totals.drops, []);
    assert_eq!(a.port.mbufs_out(), NONE_OUT);
    drop((worker, a));
    assert_eq!(pool.free_frames(), pool.frames());
}

#[test]
fn a_device_that_makes_packets_of_nothing_does_not_run_dry() {
    let _alone = alone();
    let pool = FramePool::leak(FRAMES).unwrap();
    let memory = DpdkPool::register(&EAL, pool).unwrap();
    let mut null = Driven::open(&memory, pool, "net_null0", &DpdkOptions::default());
    assert_eq!(null.port.info().driver, "net_null");
    for _ in 0..2000 {
        let frames = null.poll();
        assert_eq!(frames.len(), BATCH_MAX);
        assert!(frames.iter().all(|frame| frame.packet_len() == 64));
        assert_eq!(null.transmit(frames), 0);
    }
    assert_eq!(null.port.mbufs_out(), NONE_OUT);
    assert_eq!(null.losses(), []);
    drop(null);
    assert_eq!(pool.free_frames(), FRAMES);
}

#[test]
fn what_a_device_cannot_do_is_said_before_anything_is_opened() {
    let _alone = alone();
    let pool = FramePool::leak(FRAMES).unwrap();
    let memory = DpdkPool::register(&EAL, pool).unwrap();
    let refused = open(&memory, "net_null9", &DpdkOptions::default()).unwrap_err();
    let DpdkError::NoDevice { name, known } = &refused else { panic!("{refused}") };
    assert_eq!(name, "net_null9");
    assert!(known.iter().any(|name| name == "net_null1"), "{known:?}");
    let many = DpdkOptions { queues: 5000, ..DpdkOptions::default() };
    assert!(matches!(open(&memory, "net_null1", &many), Err(DpdkError::Unable { .. })));
    let few = FramePool::leak(100).unwrap();
    let poor = DpdkPool::register(&EAL, few).unwrap();
    let wanted = open(&poor, "net_null1", &DpdkOptions::default()).unwrap_err();
    assert!(matches!(wanted, DpdkError::Frames { .. }), "{wanted}");
    assert_eq!(few.free_frames(), 100);
}
