//! Functions bring drop reasons of their own, which the engine counts and does not know.

#![allow(clippy::unwrap_used)] // A test may say so.

use std::sync::Arc;

use kaido_engine::port::{MemoryWire, Port};
use kaido_engine::{
    Batch, DropEntry, DropReason, DropTable, FramePool, Function, KernelPath, Output, PortId, PortTotals,
    Worker, WorkerCounters, WorkerSettings,
};

kaido_engine::drop_reasons! {
    /// Of a function that lets nobody pass.
    enum WallDrop;

    /// It came from the left.
    LEFT = "wall_left",
    /// It came
    /// from the right.
    RIGHT = "wall_right",
}

kaido_engine::drop_reasons! {
    /// Of another function in the same process, with the same numbers.
    enum SinkDrop;

    /// Nothing comes out of here.
    SUNK = "sink_sunk",
}

struct Wall;

impl Function for Wall {
    fn name(&self) -> &'static str {
        "wall"
    }

    fn drop_reasons(&self) -> &'static DropTable {
        WallDrop::TABLE
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        let reason = if port.0 == 0 { WallDrop::LEFT } else { WallDrop::RIGHT };
        batch.drain(..).for_each(|frame| {
            let reason = if frame.data().len() < 14 { DropReason::ETHERNET_MALFORMED } else { reason };
            out.drop(port, frame, reason);
        });
    }

    fn tick(&mut self, _: &mut Output<'_>) {}
}

struct Sink;

impl Function for Sink {
    fn name(&self) -> &'static str {
        "sink"
    }

    fn drop_reasons(&self) -> &'static DropTable {
        SinkDrop::TABLE
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        batch.drain(..).for_each(|frame| out.drop(port, frame, SinkDrop::SUNK));
    }

    fn tick(&mut self, _: &mut Output<'_>) {}
}

/// Counters of a worker to which frames of these lengths came on each of two ports.
fn counted(function: Box<dyn Function>, frames: [&[usize]; 2]) -> Arc<WorkerCounters> {
    let pool = FramePool::leak(64).unwrap();
    let wires = [MemoryWire::new(), MemoryWire::new()];
    let ports = wires.iter().map(|wire| (Box::new(wire.port()) as Box<dyn Port>, KernelPath::None)).collect();
    let mut worker = Worker::new(pool, ports, function, WorkerSettings::default());
    for (wire, lens) in wires.iter().zip(frames) {
        lens.iter().for_each(|&len| assert!(wire.send(vec![0; len])));
    }
    while worker.step() > 0 {}
    worker.counters()
}

fn drops(counters: &WorkerCounters, port: u8) -> Vec<(&'static str, u64)> {
    PortTotals::of([counters], PortId(port)).drops_by_name().collect()
}

#[test]
fn each_function_has_reasons_of_its_own_behind_the_engines() {
    let wall = counted(Box::new(Wall), [&[60, 60, 5], &[60]]);
    assert_eq!(drops(&wall, 0), [("ethernet_malformed", 1), ("wall_left", 2)]);
    assert_eq!(drops(&wall, 1), [("wall_right", 1)]);
    let sink = counted(Box::new(Sink), [&[60], &[]]);
    assert_eq!(drops(&sink, 0), [("sink_sunk", 1)]);
    assert_eq!(SinkDrop::SUNK, WallDrop::LEFT, "numbers have a meaning only with their table");
    assert_eq!(WallDrop::TABLE.meaning(WallDrop::RIGHT), "It came from the right.");
    assert_eq!(SinkDrop::TABLE.name(WallDrop::RIGHT), "unknown");
    assert_eq!(format!("{:?}", [DropReason::NO_ROUTE]), "[DropReason(no_route)]");
}

#[test]
fn numbers_index_the_table() {
    for table in [DropTable::ENGINE, WallDrop::TABLE, SinkDrop::TABLE] {
        let mut last = None;
        for reason in table.reasons() {
            assert_eq!(table.reason(table.name(reason)), Some(reason));
            assert!(last < Some(reason));
            last = Some(reason);
        }
        assert!(table.reasons().zip(DropTable::ENGINE.reasons()).all(|(here, there)| here == there));
        assert_eq!(table.reason("wall_below"), None);
    }
    assert_eq!(WallDrop::TABLE.reasons().count(), DropTable::ENGINE.reasons().count() + 2);
    assert_eq!(WallDrop::TABLE.reasons().last(), Some(WallDrop::RIGHT));
}

const fn entry(name: &'static str) -> DropEntry {
    DropEntry { name, meaning: "A sentence." }
}

#[test]
#[should_panic = "two drop reasons have the same name"]
fn a_name_of_the_engine_is_taken() {
    DropTable::new(const { &[entry("own"), entry("no_route")] });
}

#[test]
#[should_panic = "the meaning of a drop reason has no full stop"]
fn a_meaning_is_a_sentence() {
    DropTable::new(const { &[entry("own"), DropEntry { name: "other", meaning: "no sentence" }] });
}

#[test]
#[should_panic = "there are more drop reasons than counters"]
fn reasons_fit_the_counters() {
    let names = (0..250).map(|number| entry(String::leak(format!("own_{number}"))));
    DropTable::new(Vec::leak(names.collect()));
}
