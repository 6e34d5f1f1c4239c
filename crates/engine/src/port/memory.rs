//! A port made of two queues in memory, for tests, benches and the demonstration without root.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use super::Port;
use crate::batch::Batch;
use crate::frame::Frame;
use crate::pool::PoolCache;

/// Packets that a wire holds in one direction before its port sees a full queue.
const DEPTH: usize = 4096;

#[derive(Debug, Default)]
struct Queues {
    to_port: VecDeque<Vec<u8>>,
    from_port: VecDeque<Vec<u8>>,
}

/// The far end of a [`MemoryPort`]: puts packets in, takes packets out. Clones share one wire.
#[derive(Clone, Debug, Default)]
pub struct MemoryWire(Arc<Mutex<Queues>>);

impl MemoryWire {
    /// A wire with nothing on it.
    pub fn new() -> Self {
        Self::default()
    }

    /// The port at this end.
    pub fn port(&self) -> MemoryPort {
        MemoryPort(self.clone())
    }

    /// Sends a packet to the port; `false` when its queue is full.
    pub fn send(&self, packet: impl Into<Vec<u8>>) -> bool {
        self.with(|queues| {
            let room = queues.to_port.len() < DEPTH;
            if room {
                queues.to_port.push_back(packet.into());
            }
            room
        })
    }

    /// Takes the oldest packet that the port sent.
    pub fn receive(&self) -> Option<Vec<u8>> {
        self.with(|queues| queues.from_port.pop_front())
    }

    fn with<R>(&self, f: impl FnOnce(&mut Queues) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The port at the end of a [`MemoryWire`].
#[derive(Debug)]
pub struct MemoryPort(MemoryWire);

impl Port for MemoryPort {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        self.0.with(|queues| {
            while !batch.is_full() {
                let Some(packet) = queues.to_port.pop_front() else { break };
                match Frame::from_slice(&packet, || pool.allocate()) {
                    Some(frame) => batch.push(frame),
                    None => {
                        queues.to_port.push_front(packet);
                        break;
                    }
                }
            }
        });
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        self.0.with(|queues| {
            let room = DEPTH.saturating_sub(queues.from_port.len()).min(batch.len());
            for frame in batch.drain(..room) {
                queues.from_port.push_back(frame.to_vec());
                pool.release(frame);
            }
        });
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::FramePool;

    #[test]
    fn packets_cross_in_order() {
        let pool = FramePool::leak(8).unwrap();
        let mut cache = pool.cache();
        let wire = MemoryWire::new();
        let mut port = wire.port();
        assert!(wire.send(vec![1]) && wire.send(vec![2; 9000]));
        let mut batch = Batch::new();
        port.receive(&mut cache, &mut batch);
        assert_eq!(batch.len(), 2);
        assert_eq!(port.transmit(&mut cache, &mut batch), 0);
        assert_eq!(wire.receive(), Some(vec![1]));
        assert_eq!(wire.receive(), Some(vec![2; 9000]));
        assert_eq!(wire.receive(), None);
        drop(cache);
        assert_eq!(pool.free_frames(), 8);
    }
}
