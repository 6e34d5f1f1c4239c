//! The ring between two workers, and the flag that wakes the one that receives.

use std::mem::MaybeUninit;
use std::sync::Arc;

use crate::sync::{AtomicU32, Ordering, UnsafeCell, fence};

/// A cursor on a cache line of its own, and on the next one that the hardware fetches with it.
#[derive(Debug)]
#[repr(align(128))]
struct Cursor(AtomicU32);

/// Slots between two free-running cursors; `produced - consumed`, wrapping, of them hold an item. The receiver moves items out
/// and writes nothing to their slots: a cache line of slots goes from the sender to the receiver and, when it is written again, back.
#[derive(Debug)]
struct Ring<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    produced: Cursor,
    consumed: Cursor,
}

// SAFETY: a slot is touched by the sender while it is free and by the receiver while it is not, handed over by
// Release/Acquire on a cursor; there is one of each.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    #[inline(always)]
    fn slot(&self, cursor: u32) -> &UnsafeCell<MaybeUninit<T>> {
        &self.slots[cursor as usize & (self.slots.len() - 1)]
    }
}

impl<T> Drop for Ring<T> {
    /// Both ends are gone, and each has left its cursor where it came to.
    fn drop(&mut self) {
        // Relaxed: the last end that goes has seen all that the other one did.
        let produced = self.produced.0.load(Ordering::Relaxed);
        let mut consumed = self.consumed.0.load(Ordering::Relaxed);
        while consumed != produced {
            // SAFETY: put, not taken, and nobody else has the ring any more.
            self.slot(consumed).with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            consumed = consumed.wrapping_add(1);
        }
    }
}

/// A ring of `capacity` items (rounded up to a power of two) and its two ends. What is left in it when both are gone is
/// dropped.
///
/// # Panics
/// When the capacity is larger than 2^24.
pub fn handoff<T>(capacity: u32) -> (Sender<T>, Receiver<T>) {
    // Shortly before the wrap, which every ring thus meets.
    between(capacity, u32::MAX - capacity / 2)
}

fn between<T>(capacity: u32, start: u32) -> (Sender<T>, Receiver<T>) {
    assert!(capacity <= 1 << 24, "a ring of {capacity} items");
    let ring = Arc::new(Ring {
        slots: (0..capacity.max(1).next_power_of_two())
            .map(|_| UnsafeCell::new(MaybeUninit::uninit()))
            .collect(),
        produced: Cursor(AtomicU32::new(start)),
        consumed: Cursor(AtomicU32::new(start)),
    });
    let sender = Sender { ring: Arc::clone(&ring), next: start, published: start, consumed: start };
    (sender, Receiver { ring, consumed: start, produced: start })
}

/// The sending end.
#[derive(Debug)]
pub struct Sender<T> {
    ring: Arc<Ring<T>>,
    /// Cursor of the next item.
    next: u32,
    /// Up to where the receiver has been told.
    published: u32,
    /// The receiver's cursor when last loaded; it may since have moved on, never back.
    consumed: u32,
}

impl<T> Sender<T> {
    /// Puts an item behind the others; the receiver sees it with the next [`publish`](Self::publish).
    ///
    /// # Errors
    /// The item itself when the ring is full.
    #[inline]
    pub fn put(&mut self, item: T) -> Result<(), T> {
        let capacity = self.ring.slots.len();
        if self.next.wrapping_sub(self.consumed) as usize >= capacity {
            // Acquire: the receiver is done with the slots that it gives back.
            self.consumed = self.ring.consumed.0.load(Ordering::Acquire);
            if self.next.wrapping_sub(self.consumed) as usize >= capacity {
                return Err(item);
            }
        }
        // SAFETY: beyond what was published and within the capacity: free, and there is one sender.
        self.ring.slot(self.next).with_mut(|slot| unsafe { slot.write(MaybeUninit::new(item)) });
        self.next = self.next.wrapping_add(1);
        Ok(())
    }

    /// Shows the receiver all items; whether there were new ones.
    #[inline]
    pub fn publish(&mut self) -> bool {
        if self.next == self.published {
            return false;
        }
        self.published = self.next;
        // Release: the slots above are visible to a receiver that Acquires this cursor.
        self.ring.produced.0.store(self.next, Ordering::Release);
        true
    }
}

impl<T> Drop for Sender<T> {
    /// What was put and not published is the ring's to drop.
    fn drop(&mut self) {
        self.publish();
    }
}

/// The receiving end.
#[derive(Debug)]
pub struct Receiver<T> {
    ring: Arc<Ring<T>>,
    consumed: u32,
    /// The sender's cursor when last loaded; it may since have moved on, never back.
    produced: u32,
}

impl<T> Receiver<T> {
    /// Takes up to `most` items, in their order; how many there were.
    #[inline]
    pub fn take(&mut self, most: usize, mut with: impl FnMut(T)) -> usize {
        if self.produced == self.consumed && self.is_empty() {
            return 0;
        }
        let present = self.produced.wrapping_sub(self.consumed) as usize;
        let count = present.min(most);
        for _ in 0..count {
            // SAFETY: published and so written, not yet taken, as the cursor moves on at once, and there is one receiver.
            let item = self.ring.slot(self.consumed).with(|slot| unsafe { (*slot).assume_init_read() });
            self.consumed = self.consumed.wrapping_add(1);
            with(item);
        }
        // Release: we are done with the slots before the sender that Acquires this writes them again.
        self.ring.consumed.0.store(self.consumed, Ordering::Release);
        count
    }

    /// Whether nothing is there to be taken now.
    #[inline]
    pub fn is_empty(&mut self) -> bool {
        // Acquire: the items were written before.
        self.produced = self.ring.produced.0.load(Ordering::Acquire);
        self.produced == self.consumed
    }
}

impl<T> Drop for Receiver<T> {
    /// What was taken is not the ring's any more, though [`Receiver::take`] should have ended in a panic.
    fn drop(&mut self) {
        // Release: as there.
        self.ring.consumed.0.store(self.consumed, Ordering::Release);
    }
}

/// Whether a receiver must be woken. The receiver arms the flag, checks its rings again and sleeps. A sender notifies after each
/// [`Sender::publish`].
///
/// A sequentially consistent fence stands between each side's write and its look at what the other one writes. So the sender
/// finds the flag armed, or the receiver sees what was published before. While the flag is not armed it is only read, and its
/// cache line stays shared by all senders.
#[derive(Debug, Default)]
pub struct WakeFlag(AtomicU32);

impl WakeFlag {
    /// A flag that is not armed.
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The receiver is about to sleep, unless its rings turn out not to be empty.
    pub fn arm(&self) {
        // No plain store: a sender's exchange comes before this one or after it, and one of them sees the other.
        self.0.swap(1, Ordering::AcqRel);
        // Before the last look at the rings: who publishes after that look finds the flag armed.
        fence(Ordering::SeqCst);
    }

    /// The receiver is awake.
    pub fn disarm(&self) {
        // No plain store: it would come between a sender's exchange and our next one, which must see it.
        self.0.swap(0, Ordering::AcqRel);
    }

    /// Whether the receiver sleeps, or is about to, and nobody else wakes it: then the caller must.
    #[must_use]
    #[inline]
    pub fn notify(&self) -> bool {
        // After the publication: who arms the flag after our look sees what was published.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) == 1 && self.0.swap(0, Ordering::AcqRel) == 1
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    fn taken(receiver: &mut Receiver<u32>, most: usize) -> Vec<u32> {
        let mut items = Vec::new();
        let count = receiver.take(most, |item| items.push(item));
        assert_eq!(count, items.len());
        items
    }

    #[test]
    fn items_come_out_in_order_once_published_and_a_full_ring_gives_them_back() {
        for start in [0, u32::MAX - 2] {
            let (mut sender, mut receiver) = between(4, start);
            assert!(!sender.publish());
            for round in 0..3 {
                for item in 0..4 {
                    assert_eq!(sender.put(round * 4 + item), Ok(()));
                }
                assert_eq!(sender.put(99), Err(99));
                assert_eq!(taken(&mut receiver, 9), [0u32; 0], "not published yet");
                assert!(receiver.is_empty());
                assert!(sender.publish());
                assert!(!sender.publish());
                assert_eq!(taken(&mut receiver, 3), [0, 1, 2].map(|item| round * 4 + item));
                assert_eq!(taken(&mut receiver, 3), [round * 4 + 3]);
            }
        }
    }

    #[test]
    fn what_is_left_is_dropped() {
        let item = Arc::new(());
        let (mut sender, receiver) = handoff(8);
        sender.put(Arc::clone(&item)).unwrap();
        sender.publish();
        sender.put(Arc::clone(&item)).unwrap();
        drop((sender, receiver));
        assert_eq!(Arc::strong_count(&item), 1);
    }

    #[test]
    fn what_is_taken_is_dropped_once_though_the_taker_panics() {
        let item = Arc::new(());
        let (mut sender, mut receiver) = handoff(4);
        (0..3).for_each(|_| sender.put(Arc::clone(&item)).unwrap());
        sender.publish();
        let mut taken = 0;
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            receiver.take(3, |_| {
                taken += 1;
                assert!(taken < 2, "the second one");
            });
        }));
        assert!(panics.is_err() && Arc::strong_count(&item) == 2, "one is left");
        drop((sender, receiver));
        assert_eq!(Arc::strong_count(&item), 1);
    }

    #[test]
    fn a_bell_is_rung_once_and_only_while_it_hangs() {
        let flag = WakeFlag::new();
        assert!(!flag.notify());
        flag.arm();
        assert!(flag.notify());
        assert!(!flag.notify());
        flag.arm();
        flag.disarm();
        assert!(!flag.notify());
    }
}
