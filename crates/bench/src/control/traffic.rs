//! Packets that are forwarded meanwhile: a worker turned by a thread of its own, every packet of which must come out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use kaido_engine::FramePool;
use kaido_upf::node::Node;

use super::pin;
use crate::BenchError;
use crate::frames::{Direction, Family, Templates};
use crate::node::Forwarder;
use crate::rounds::{Frames, Order, round};
use crate::shape::Shape;

/// Packets of a burst.
pub(crate) const BURST: usize = 128;
/// Rest between two bursts, so that the control plane has the rest of the CPU.
const REST: Duration = Duration::from_millis(1);
const FRAME_BYTES: usize = 128;

/// The thread that forwards.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    packets: Arc<AtomicU64>,
    thread: JoinHandle<Result<(), BenchError>>,
}

impl Traffic {
    /// Forwards packets of so many sessions of a shape, the node's first, in both directions, until stopped or until one is
    /// lost or wrong.
    pub(crate) fn start(
        node: &Arc<Node>,
        pool: &'static FramePool,
        sessions: (Shape, u32),
        cpu: Option<usize>,
    ) -> Result<Self, BenchError> {
        let mut forwarder = Forwarder::new(node, pool, BURST)?;
        let (stop, packets) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (stop.clone(), packets.clone());
        let thread = std::thread::Builder::new().name("traffic".to_owned()).spawn(move || {
            pin(cpu);
            forward(&mut forwarder, &mut Frames::new(pool, BURST), sessions, &stopped, &counted)
        })?;
        Ok(Self { stop, packets, thread })
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
        self.thread.join().map_err(|_| BenchError::Thread)??;
        Ok(self.packets.load(Ordering::Acquire))
    }
}

fn forward(
    forwarder: &mut Forwarder,
    frames: &mut Frames,
    (shape, sessions): (Shape, u32),
    stop: &AtomicBool,
    packets: &AtomicU64,
) -> Result<(), BenchError> {
    let never = AtomicBool::new(false);
    let templates = Direction::ALL.map(|direction| Templates::new(shape, Family::V4, direction, FRAME_BYTES));
    let mut orders = [1, 2].map(|seed| Order::new(sessions, seed).of_shape(shape));
    while !stop.load(Ordering::Relaxed) {
        for (template, order) in templates.iter().zip(&mut orders) {
            round(forwarder, frames, template, order, &never)?;
            packets.fetch_add(BURST as u64, Ordering::Release);
        }
        std::thread::sleep(REST);
    }
    Ok(())
}
