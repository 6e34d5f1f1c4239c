//! Packets that are forwarded meanwhile: workers turned by a thread each, every packet of which must come out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kaido_engine::{FramePool, OwnedPool};
use kaido_upf::node::Node;

use super::pin;
use crate::BenchError;
use crate::family::Family;
use crate::frames::{Direction, Templates};
use crate::node::Forwarder;
use crate::rounds::{Frames, Order, round};
use crate::shape::Shape;

/// Packets of a burst.
pub(crate) const BURST: usize = 128;
/// Rest between two bursts, so that the control plane has the rest of the CPU.
const REST: Duration = Duration::from_millis(1);
const FRAME_BYTES: usize = 128;

/// The threads that forward, each a worker of the node.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    packets: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<(), BenchError>>>,
    _pool: OwnedPool,
}

/// Where a worker runs, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerPlace {
    pub(crate) cpu: Option<usize>,
    /// Rests between bursts, because others need the CPU.
    pub(crate) rests: bool,
}

impl Traffic {
    /// Forwards packets of so many sessions of a shape, the node's first, in both directions, until stopped or until one is
    /// lost or wrong: a worker at each place.
    pub(crate) fn start(
        node: &Arc<Node>,
        sessions: (Shape, u32),
        places: &[WorkerPlace],
    ) -> Result<Self, BenchError> {
        let own = OwnedPool(FramePool::leak(4 * BURST * places.len())?);
        let pool = *own;
        let (stop, packets) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut threads = Vec::new();
        for (number, &place) in places.iter().enumerate() {
            let mut forwarder = Forwarder::new(node, pool, BURST)?;
            let (stopped, counted) = (stop.clone(), packets.clone());
            let thread = std::thread::Builder::new().name(format!("traffic-{number}")).spawn(move || {
                pin(place.cpu);
                let mut frames = Frames::new(pool, BURST);
                forward(&mut forwarder, &mut frames, sessions, place.rests, (&stopped, &counted))
            })?;
            threads.push(thread);
        }
        Ok(Self { stop, packets, threads, _pool: own })
    }

    /// Packets that have come out right.
    pub(crate) fn packets(&self) -> u64 {
        self.packets.load(Ordering::Acquire)
    }

    /// Ends it.
    ///
    /// # Errors
    /// The first packet that was lost or came out wrong.
    pub(crate) fn stop(self) -> Result<u64, BenchError> {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().map_err(|_| BenchError::Thread)??;
        }
        Ok(self.packets.load(Ordering::Acquire))
    }
}

fn forward(
    forwarder: &mut Forwarder,
    frames: &mut Frames,
    (shape, sessions): (Shape, u32),
    rests: bool,
    (stop, packets): (&AtomicBool, &AtomicU64),
) -> Result<(), BenchError> {
    let never = AtomicBool::new(false);
    let templates = Direction::ALL.map(|direction| Templates::new(shape, Family::V4, direction, FRAME_BYTES));
    let mut orders = [1, 2].map(|seed| Order::new(sessions, seed).of_shape(shape));
    while !stop.load(Ordering::Relaxed) {
        for (template, order) in templates.iter().zip(&mut orders) {
            round(forwarder, frames, template, order, &never)?;
            packets.fetch_add(BURST as u64, Ordering::Release);
        }
        if rests {
            std::thread::sleep(REST);
        }
    }
    Ok(())
}
