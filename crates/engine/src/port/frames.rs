//! A port that hands frames over as they are, without a copy: for timing whole turns of a worker.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Port;
use crate::batch::Batch;
use crate::frame::Frame;
use crate::pool::PoolCache;

#[derive(Debug, Default)]
struct Queues {
    to_port: VecDeque<Frame>,
    from_port: VecDeque<Frame>,
}

/// The far end of a [`FramePort`]: frames that are pushed are received, frames that were transmitted are popped.
/// Clones share the queues. Without bounds: what is not popped stays.
#[derive(Clone, Debug, Default)]
pub struct FrameQueue(Arc<Mutex<Queues>>);

impl FrameQueue {
    /// A queue with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// A queue that holds `frames` frames each way without an allocation.
    pub fn with_capacity(frames: usize) -> Self {
        let queue = || VecDeque::with_capacity(frames);
        Self(Arc::new(Mutex::new(Queues { to_port: queue(), from_port: queue() })))
    }

    /// The port at this end.
    pub fn port(&self) -> FramePort {
        FramePort(self.clone())
    }

    /// Puts a frame where the port receives it.
    pub fn push(&self, frame: Frame) {
        self.queues().to_port.push_back(frame);
    }

    /// Takes the oldest frame that the port has transmitted.
    pub fn pop(&self) -> Option<Frame> {
        self.queues().from_port.pop_front()
    }

    /// Moves all that the port has transmitted, oldest first, to where the port of `to` receives it; how many.
    pub fn forward(&self, to: &Self) -> usize {
        let mut frames = std::mem::take(&mut self.queues().from_port);
        let count = frames.len();
        to.queues().to_port.append(&mut frames);
        // The allocation goes back to where it was.
        self.queues().from_port = frames;
        count
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The port at the end of a [`FrameQueue`].
#[derive(Debug)]
pub struct FramePort(FrameQueue);

impl Port for FramePort {
    fn receive(&mut self, _pool: &mut PoolCache, batch: &mut Batch) {
        let waiting = &mut self.0.queues().to_port;
        let count = waiting.len().min(batch.remaining_capacity());
        batch.extend(waiting.drain(..count));
    }

    fn transmit(&mut self, _pool: &mut PoolCache, batch: &mut Batch) -> usize {
        self.0.queues().from_port.extend(batch.drain(..));
        0
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;
    use crate::batch::BATCH_MAX;
    use crate::pool::FramePool;

    #[test]
    fn the_same_frames_go_round() {
        let count = BATCH_MAX + 8;
        let pool = FramePool::leak(count).unwrap();
        let mut cache = pool.cache();
        let queue = FrameQueue::with_capacity(count);
        let mut port = queue.port();
        for number in (0..=u8::MAX).take(count) {
            let mut frame = pool.allocate().unwrap();
            assert!(frame.set(&[number]));
            queue.push(frame);
        }
        let mut batch = Batch::new();
        for round in 0..3 {
            for size in [BATCH_MAX, 8, 0] {
                port.receive(&mut cache, &mut batch);
                assert_eq!(batch.len(), size);
                assert_eq!(port.transmit(&mut cache, &mut batch), 0);
            }
            if round < 2 {
                assert_eq!(queue.forward(&queue.clone()), count);
            }
        }
        let order: Vec<u8> = std::iter::from_fn(|| queue.pop()).map(|frame| frame.data()[0]).collect();
        assert!(order.into_iter().eq((0..=u8::MAX).take(count)));
        assert_eq!(pool.free_frames(), count);
    }
}
