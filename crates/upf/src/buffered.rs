//! The memory of all buffered packets, of all workers together.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that buffered packets have taken, and how many they may.
#[derive(Debug)]
pub struct BufferedBytes {
    taken: AtomicU64,
    packets: AtomicU64,
    max: AtomicU64,
}

impl BufferedBytes {
    /// Room for `max` bytes.
    pub fn new(max: u64) -> Self {
        Self { taken: AtomicU64::new(0), packets: AtomicU64::new(0), max: AtomicU64::new(max) }
    }

    /// Takes room for a packet of `len` bytes, if there is.
    #[must_use]
    pub fn take(&self, len: u64) -> bool {
        // Relaxed: the number stands for itself; nothing is read by it.
        let max = self.max();
        let more = |taken: u64| taken.checked_add(len).filter(|&sum| sum <= max);
        let taken = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        self.packets.fetch_add(taken.into(), Ordering::Relaxed);
        taken
    }

    /// Takes room again for a packet of `len` bytes that has just given its own back, whatever there is now.
    pub(crate) fn take_back(&self, len: u64) {
        self.taken.fetch_add(len, Ordering::Relaxed);
        self.packets.fetch_add(1, Ordering::Relaxed);
    }

    /// Gives the room of `packets` packets back, of `len` bytes together.
    pub fn give(&self, packets: usize, len: u64) {
        self.packets.fetch_sub(packets as u64, Ordering::Relaxed);
        self.taken.fetch_sub(len, Ordering::Relaxed);
    }

    /// Packets that have room now.
    pub fn packets(&self) -> u64 {
        self.packets.load(Ordering::Relaxed)
    }

    /// Bytes that may be taken.
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// Changes how many bytes may be taken. What is taken beyond that stays so until it is given back.
    pub(crate) fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Bytes taken now.
    pub fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is() {
        let bytes = BufferedBytes::new(1000);
        assert!(bytes.take(600) && !bytes.take(401) && bytes.take(400) && !bytes.take(1));
        bytes.give(1, 600);
        assert_eq!((bytes.taken(), bytes.packets()), (400, 1));
        assert!(!bytes.take(u64::MAX));
        bytes.set_max(300);
        assert!(!bytes.take(1));
        bytes.give(1, 400);
        assert!(bytes.take(300) && !bytes.take(1));
        bytes.take_back(10);
        assert_eq!((bytes.taken(), bytes.packets()), (310, 2));
    }

    #[test]
    fn workers_together_stay_within_the_bound() {
        let bytes = BufferedBytes::new(1000);
        let taken: usize = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| (0..1000).filter(|_| bytes.take(3)).count())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(taken, 333);
    }
}
