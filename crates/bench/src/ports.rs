//! Ports that hand over frames which lie ready, and keep what is sent: nothing is copied, made or freed. Frames change hands
//! by whole batches, so that the port itself costs well below a nanosecond a packet.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kaido_engine::port::Port;
use kaido_engine::{BATCH_MAX, Batch, Frame, PoolCache};

use crate::floor::LINE;
use crate::sys::prefetch;

/// The bench's end of a [`FeedPort`].
#[derive(Debug)]
pub(crate) struct Feed(Arc<Exchange>);

#[derive(Debug, Default)]
struct Exchange {
    /// The bench wants to trade; looked at only when the port has nothing to hand over.
    wanted: AtomicBool,
    held: Mutex<HeldLink>,
}

#[derive(Debug, Default)]
struct HeldLink {
    /// To be received, the last first.
    incoming: Vec<Batch>,
    /// What was sent.
    sent: Vec<Batch>,
    /// Empty.
    spare: Vec<Batch>,
}

/// One queue, owned by a worker.
#[derive(Debug)]
pub(crate) struct FeedPort {
    exchange: Arc<Exchange>,
    incoming: Vec<Batch>,
    sent: Vec<Batch>,
    /// Empty ones, for what will be sent.
    spare: Vec<Batch>,
    /// How many a round may take.
    batches: usize,
}

impl Feed {
    /// A port and its far end, for up to `frames` frames a round.
    pub(crate) fn new(frames: usize) -> (Self, FeedPort) {
        let exchange = Arc::new(Exchange::default());
        // A worker sends a whole batch at a time, or at the end of a round less.
        let batches = 2 * frames.div_ceil(BATCH_MAX);
        let room = || Vec::with_capacity(batches);
        exchange.held().sent = room();
        let spare = std::iter::repeat_with(Batch::new).take(batches).collect();
        let port = FeedPort { exchange: exchange.clone(), incoming: room(), sent: room(), spare, batches };
        (Self(exchange), port)
    }

    /// Has the port receive `frames` in their order; it takes them at its next empty receive, and hands over what it
    /// sent before.
    pub(crate) fn load(&self, frames: Vec<Frame>) {
        let mut held = self.0.held();
        let mut frames = frames.into_iter().peekable();
        let mut incoming = Vec::new();
        while frames.peek().is_some() {
            let mut batch = held.spare.pop().unwrap_or_default();
            batch.extend(frames.by_ref().take(BATCH_MAX));
            incoming.push(batch);
        }
        incoming.reverse();
        held.incoming = incoming;
        drop(held);
        self.want();
    }

    /// Has the port hand over what it sent, at its next empty receive.
    pub(crate) fn want(&self) {
        self.0.wanted.store(true, Ordering::Release);
    }

    /// Moves what the port handed over to the end of `frames`, in the order in which it was sent.
    pub(crate) fn collect(&self, frames: &mut Vec<Frame>) {
        let HeldLink { sent, spare, .. } = &mut *self.0.held();
        for mut batch in sent.drain(..) {
            frames.extend(batch.drain(..));
            spare.push(batch);
        }
    }
}

impl Exchange {
    fn held(&self) -> MutexGuard<'_, HeldLink> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FeedPort {
    /// Hands over what was sent and takes what is to be received; has as many empty batches afterwards as a round may take.
    #[cold]
    fn trade(&mut self) {
        let mut held = self.exchange.held();
        std::mem::swap(&mut self.incoming, &mut held.incoming);
        std::mem::swap(&mut self.sent, &mut held.sent);
        self.spare.append(&mut held.spare);
        held.spare.extend(self.spare.drain(self.batches.min(self.spare.len())..));
        self.spare.resize_with(self.batches, Batch::new);
    }
}

/// Has the handles of a batch brought into the cache, where a device that had just made them would have left them: those of a
/// round are more than the cache holds.
#[inline(always)]
fn fetch(batch: &Batch) {
    let handles = batch.as_ptr().cast::<u8>();
    (0..=BATCH_MAX * size_of::<Frame>()).step_by(LINE).for_each(|at| prefetch(handles.wrapping_add(at)));
}

impl Port for FeedPort {
    fn receive(&mut self, _pool: &mut PoolCache, batch: &mut Batch) {
        match self.incoming.pop() {
            Some(mut next) if batch.is_empty() => {
                std::mem::swap(batch, &mut next);
                self.spare.push(next);
                self.incoming.last().into_iter().for_each(fetch);
            }
            // The worker has taken from another port into the same batch: these come in its next round.
            Some(next) => self.incoming.push(next),
            None => {
                // Looked at first: an exchange waits for all that the path has stored.
                if self.exchange.wanted.load(Ordering::Relaxed)
                    && self.exchange.wanted.swap(false, Ordering::Acquire)
                {
                    self.trade();
                }
            }
        }
    }

    fn transmit(&mut self, _pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let empty = self.spare.pop().unwrap_or_default();
        self.sent.push(std::mem::replace(batch, empty));
        0
    }
}

#[cfg(test)]
mod tests {
    use kaido_engine::FramePool;

    use super::*;

    #[test]
    fn frames_come_and_go_in_order() {
        let pool = FramePool::leak(256).unwrap();
        let mut cache = pool.cache();
        let (feed, mut port) = Feed::new(200);
        let frames = (0..200u8).map(|n| {
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
        assert_eq!(sizes, [BATCH_MAX, BATCH_MAX, BATCH_MAX, 200 - 3 * BATCH_MAX]);
        let mut back = Vec::new();
        feed.collect(&mut back);
        assert!(back.is_empty(), "nothing was asked for");
        feed.want();
        port.receive(&mut cache, &mut batch);
        feed.collect(&mut back);
        assert!(back.iter().map(|frame| frame.data()[0]).eq(0..200));
    }
}
