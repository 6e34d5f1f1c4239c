//! Ports that hand over frames which lie ready, and keep what is sent: nothing is copied, made or freed. Frames change hands
//! by whole batches, so that the port itself costs well below a nanosecond a packet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kaido_engine::port::Port;
use kaido_engine::{BATCH_MAX, Batch, Frame, PoolCache};

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
    incoming: Vec<Batch>,
    /// What was sent.
    sent: Vec<Batch>,
}

/// One queue, owned by a worker.
#[derive(Debug)]
pub(crate) struct FeedPort {
    exchange: Arc<Exchange>,
    incoming: Vec<Batch>,
    sent: Vec<Batch>,
}

impl Feed {
    /// A port and its far end, for up to `frames` frames a round.
    pub(crate) fn new(frames: usize) -> (Self, FeedPort) {
        let exchange = Arc::new(Exchange::default());
        // A worker sends a whole batch at a time, or at the end of a round less.
        let batches = 2 * frames.div_ceil(BATCH_MAX);
        exchange.held().sent = touched(batches);
        let sent = touched(batches);
        let port = FeedPort { exchange: exchange.clone(), incoming: Vec::new(), sent };
        (Self(exchange), port)
    }

    /// Has the port receive `frames` in their order; it takes them at its next empty receive, and hands over what it
    /// sent before.
    pub(crate) fn load(&self, frames: Vec<Frame>) {
        let mut frames = frames.into_iter();
        let batches = std::iter::repeat_with(|| frames.by_ref().take(BATCH_MAX).collect::<Batch>());
        let mut incoming: Vec<_> = batches.take_while(|batch| !batch.is_empty()).collect();
        incoming.reverse();
        self.0.held().incoming = incoming;
        self.want();
    }

    /// Has the port hand over what it sent, at its next empty receive.
    pub(crate) fn want(&self) {
        self.0.wanted.store(true, Ordering::Release);
    }

    /// Moves what the port handed over to the end of `frames`, in the order in which it was sent.
    pub(crate) fn collect(&self, frames: &mut Vec<Frame>) {
        frames.extend(self.0.held().sent.drain(..).flatten());
    }
}

/// Room for so many batches, whose pages are there already: a round must not wait for them.
fn touched(batches: usize) -> Vec<Batch> {
    let mut room = Vec::new();
    room.resize_with(batches, Batch::new);
    room.clear();
    room
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
        match self.incoming.pop() {
            Some(next) if batch.is_empty() => *batch = next,
            // The worker has taken from another port into the same batch: these come in its next round.
            Some(next) => self.incoming.push(next),
            None => {
                if self.exchange.wanted.swap(false, Ordering::Acquire) {
                    self.trade();
                }
            }
        }
    }

    fn transmit(&mut self, _pool: &mut PoolCache, batch: &mut Batch) -> usize {
        self.sent.push(std::mem::take(batch));
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
