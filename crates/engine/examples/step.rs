//! What a worker itself costs: nanoseconds a packet of whole rounds with a function that only forwards, over ports that
//! hand frames over without a copy.
//!
//! `cargo run --release -p kaido-engine --example step -- [frames]`

use std::time::{Duration, Instant};

use kaido_engine::port::FrameQueue;
use kaido_engine::{Batch, FramePool, Function, KernelPath, Output, Port, PortId, Worker, WorkerSettings};

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

/// Frames that go round in a timed round, over and over.
const ROUNDS: usize = 400;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let frames = std::env::args().nth(1).map_or(Ok(1024), |frames| frames.parse())?;
    let pool = FramePool::leak(frames)?;
    let queues = [FrameQueue::with_capacity(frames), FrameQueue::with_capacity(frames)];
    let ports = queues.iter().map(|queue| (Box::new(queue.port()) as Box<dyn Port>, KernelPath::None));
    let mut worker = Worker::new(pool, ports.collect(), Box::new(Crossover), WorkerSettings::default());
    while let Some(mut frame) = pool.allocate() {
        frame.append(64).ok_or("no room in a frame")?.fill(0);
        queues[0].push(frame);
    }
    let mut times: Vec<Duration> = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        let began = Instant::now();
        while worker.step() > 0 {}
        times.push(began.elapsed());
        if queues[1].forward(&queues[0]) != frames {
            return Err("frames were lost".into());
        }
    }
    times.sort_unstable();
    #[allow(clippy::cast_precision_loss)] // For people.
    let ns = |at: usize| times[at].as_nanos() as f64 / frames as f64;
    println!(
        "{frames} frames, {ROUNDS} rounds: {:.2} ns a packet (least {:.2}, nine in ten below {:.2})",
        ns(ROUNDS / 2),
        ns(0),
        ns(ROUNDS * 9 / 10)
    );
    Ok(())
}
