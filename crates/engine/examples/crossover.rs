//! The smallest function: what comes in on one port goes out on the other. Copy it to begin your own.
//!
//! `cargo run -p kaido-engine --example crossover`

use kaido_engine::port::{MemoryWire, Port};
use kaido_engine::{
    Batch, FramePool, Function, KernelPath, Output, PortId, PortTotals, Worker, WorkerSettings,
};

struct Crossover;

impl Function for Crossover {
    fn name(&self) -> &'static str {
        "crossover"
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        for frame in batch.drain(..) {
            out.transmit(PortId(1 - port.0), frame);
        }
    }

    fn tick(&mut self, _out: &mut Output<'_>) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = FramePool::leak(1024)?;
    println!("{} frames in {}", pool.frames(), pool.pages());
    let (left, right) = (MemoryWire::new(), MemoryWire::new());
    let ports = [&left, &right].map(|wire| (Box::new(wire.port()) as Box<dyn Port>, KernelPath::None));
    let mut worker = Worker::new(pool, ports.into(), Box::new(Crossover), WorkerSettings::default());
    for n in 0..100u8 {
        left.send(vec![n; 60]);
    }
    while worker.step() > 0 {}
    let crossed = std::iter::from_fn(|| right.receive()).count();
    let totals = PortTotals::of([&*worker.counters()], PortId(1));
    println!("{crossed} packets crossed; port 1 counted {} out", totals.tx_packets);
    Ok(())
}
