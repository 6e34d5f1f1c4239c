//! Ports that hand over frames which lie ready, and keep what is sent: nothing is copied, made or freed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kaido_engine::port::Port;
use kaido_engine::{Batch, Frame, PoolCache};

/// The bench's end of a [`FeedPort`].
#[derive(Debug)]
pub(crate) struct Feed(Arc<Exchange>);

#[derive(Debug, Default)]
struct Exchange {
    /// The bench wants to trade; looked at only when the port has nothing to hand over.
    wanted: AtomicBool,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    /// To be received, the last first.
    incoming: Vec<Frame>,
    /// What was sent.
    sent: Vec<Frame>,
}

/// One queue, owned by a worker.
#[derive(Debug)]
pub(crate) struct FeedPort {
    exchange: Arc<Exchange>,
    incoming: Vec<Frame>,
    sent: Vec<Frame>,
}

impl Feed {
    /// A port and its far end, for up to `frames` frames a round.
    pub(crate) fn new(frames: usize) -> (Self, FeedPort) {
        let exchange = Arc::new(Exchange::default());
        exchange.held().sent.reserve(frames);
        let port =
            FeedPort { exchange: exchange.clone(), incoming: Vec::new(), sent: Vec::with_capacity(frames) };
        (Self(exchange), port)
    }

    /// Has the port receive `frames` in their order; it takes them at its next empty receive, and hands over what it
    /// sent before.
    pub(crate) fn load(&self, mut frames: Vec<Frame>) {
        frames.reverse();
        self.0.held().incoming = frames;
        self.want();
    }

    /// Has the port hand over what it sent, at its next empty receive.
    pub(crate) fn want(&self) {
        self.0.wanted.store(true, Ordering::Release);
    }

    /// Moves what the port handed over to the end of `frames`, in the order in which it was sent.
    pub(crate) fn collect(&self, frames: &mut Vec<Frame>) {
        frames.append(&mut self.0.held().sent);
    }
}

impl Exchange {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FeedPort {
    #[cold]
    fn trade(&mut self) {
        let mut held = self.exchange.held();
        std::mem::swap(&mut self.incoming, &mut held.incoming);
        std::mem::swap(&mut self.sent, &mut held.sent);
    }
}

impl Port for FeedPort {
    fn receive(&mut self, _pool: &mut PoolCache, batch: &mut Batch) {
        if self.incoming.is_empty() {
            if self.exchange.wanted.swap(false, Ordering::Acquire) {
                self.trade();
            }
            return;
        }
        let rest = self.incoming.len().saturating_sub(batch.remaining_capacity());
        batch.extend(self.incoming.drain(rest..).rev());
    }

    fn transmit(&mut self, _pool: &mut PoolCache, batch: &mut Batch) -> usize {
        self.sent.extend(batch.drain(..));
        0
    }
}

#[cfg(test)]
mod tests {
    use kaido_engine::FramePool;

    use super::*;

    #[test]
    fn frames_come_and_go_in_order() {
        let pool = FramePool::leak(128).unwrap();
        let mut cache = pool.cache();
        let (feed, mut port) = Feed::new(100);
        let frames = (0..100u8).map(|n| {
            let mut frame = cache.allocate().unwrap();
            assert!(frame.set(&[n]));
            frame
        });
        feed.load(frames.collect());
        let mut batch = Batch::new();
        port.receive(&mut cache, &mut batch);
        assert!(batch.is_empty(), "the first receive only takes the frames over");
        let mut sizes = Vec::new();
        loop {
            port.receive(&mut cache, &mut batch);
            if batch.is_empty() {
                break;
            }
            sizes.push(batch.len());
            assert_eq!(port.transmit(&mut cache, &mut batch), 0);
        }
        assert_eq!(sizes, [32, 32, 32, 4]);
        let mut back = Vec::new();
        feed.collect(&mut back);
        assert!(back.is_empty(), "nothing was asked for");
        feed.want();
        port.receive(&mut cache, &mut batch);
        feed.collect(&mut back);
        assert!(back.iter().map(|frame| frame.data()[0]).eq(0..100));
    }
}
