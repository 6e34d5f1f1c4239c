//! What a worker times of the batches that it is told to time.

#![allow(clippy::unwrap_used)] // A test may say so.

use std::num::NonZeroU32;

use kaido_engine::port::{MemoryWire, Port};
use kaido_engine::shared::cycles;
use kaido_engine::{Batch, FramePool, Function, KernelPath, Output, PortId, Worker, WorkerSettings};

/// Sends everything to the other port, and says what its only stage takes.
struct Forward;

impl Function for Forward {
    fn name(&self) -> &'static str {
        "forward"
    }

    fn stages(&self) -> &'static [&'static str] {
        &["forward"]
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        let began = cycles::now();
        batch.drain(..).for_each(|frame| out.transmit(PortId(1 - port.0), frame));
        if out.is_timed() {
            out.took(0, cycles::now() - began);
        }
    }

    fn tick(&mut self, _: &mut Output<'_>) {}
}

/// A stage: its name, the packets that were timed, and their cycles.
type Timed = (&'static str, u64, u64);

/// Runs 1000 packets through in batches of 64 and less: stages, packets with a latency, batches by size.
fn run(sample_batches: Option<u32>) -> (Vec<Timed>, u64, Vec<u64>) {
    let pool = FramePool::leak(2048).unwrap();
    let wires = [MemoryWire::new(), MemoryWire::new()];
    let ports = wires.iter().map(|wire| (Box::new(wire.port()) as Box<dyn Port>, KernelPath::None)).collect();
    let sample_batches = sample_batches.and_then(NonZeroU32::new);
    let settings = WorkerSettings { sample_batches, ..WorkerSettings::default() };
    let mut worker = Worker::new(pool, ports, Box::new(Forward), settings);
    for number in 0..1000_u16 {
        assert!(wires[usize::from(number % 2)].send(vec![0; 60]));
    }
    while worker.step() > 0 {}
    let counters = worker.counters();
    let count = |counts: &[u64]| counts.iter().sum();
    let stages = counters.stages().into_iter();
    let stages = stages.map(|(name, totals)| (name, count(&totals.counts), totals.sum)).collect();
    (stages, count(&counters.latency().counts), counters.batches().counts)
}

#[test]
fn every_batch_is_timed_where_that_is_asked_for() {
    let (stages, latency, batches) = run(Some(1));
    let names: Vec<_> = stages.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, ["receive", "process", "forward", "send"]);
    // Of the two batches of a round one is noted.
    assert!((400..=1000).contains(&latency), "{latency}");
    for (name, packets, cycles) in &stages[..3] {
        assert_eq!(*packets, latency, "{name}");
        assert!(*cycles > 0, "{name}");
    }
    assert!(stages[1].2 >= stages[2].2, "a stage is part of the whole");
    assert_eq!(batches.iter().sum::<u64>(), 16, "500 packets a port in batches of 64");
}

#[test]
fn nothing_is_timed_unless_asked_for() {
    let (stages, latency, batches) = run(None);
    assert!(stages.iter().all(|&(_, packets, cycles)| packets == 0 && cycles == 0));
    assert_eq!((latency, batches.iter().sum::<u64>()), (0, 16), "sizes are always counted");
}
