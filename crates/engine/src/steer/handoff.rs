//! The ring between two workers, and the bell that wakes the one that receives.

use std::sync::Arc;

use crate::sync::{AtomicU32, Ordering, UnsafeCell};

/// A cursor on a cache line of its own, and on the next one that the hardware fetches with it.
#[derive(Debug)]
#[repr(align(128))]
struct Cursor(AtomicU32);

/// Slots between two free-running cursors; `produced - consumed`, wrapping, of them hold an item.
#[derive(Debug)]
struct Ring<T> {
    slots: Box<[UnsafeCell<Option<T>>]>,
    produced: Cursor,
    consumed: Cursor,
}

// SAFETY: a slot is touched by the sender while it is free and by the receiver while it is not, handed over by
// Release/Acquire on a cursor; there is one of each.
unsafe impl<T: Send> Sync for Ring<T> {}

impl<T> Ring<T> {
    fn slot(&self, cursor: u32) -> &UnsafeCell<Option<T>> {
        &self.slots[cursor as usize & (self.slots.len() - 1)]
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
        slots: (0..capacity.max(1).next_power_of_two()).map(|_| UnsafeCell::new(None)).collect(),
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
        self.ring.slot(self.next).with_mut(|slot| unsafe { *slot = Some(item) });
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
            // SAFETY: published, not yet given back, and there is one receiver.
            let item = self.ring.slot(self.consumed).with_mut(|slot| unsafe { (*slot).take() });
            self.consumed = self.consumed.wrapping_add(1);
            if let Some(item) = item {
                with(item);
            }
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

/// Whether a receiver must be woken. It hangs the bell before it looks at its rings for the last time and sleeps; a
/// sender rings it after each [`Sender::publish`].
///
/// All three are read-modify-writes of one word and so in one order: either the sender finds the bell hung, or the
/// receiver, who hung it later, sees what was published before.
#[derive(Debug, Default)]
pub struct Bell(AtomicU32);

impl Bell {
    /// A bell that is not hung.
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The receiver is about to sleep, unless its rings turn out not to be empty.
    pub fn hang(&self) {
        self.0.swap(1, Ordering::AcqRel);
    }

    /// The receiver is awake.
    pub fn take_down(&self) {
        // No plain store: it would come between a sender's exchange and our next one, which must see it.
        self.0.swap(0, Ordering::AcqRel);
    }

    /// Whether the receiver sleeps, or is about to, and nobody else wakes it: then the caller must.
    #[must_use]
    #[inline]
    pub fn ring(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) == 1
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
    fn a_bell_is_rung_once_and_only_while_it_hangs() {
        let bell = Bell::new();
        assert!(!bell.ring());
        bell.hang();
        assert!(bell.ring());
        assert!(!bell.ring());
        bell.hang();
        bell.take_down();
        assert!(!bell.ring());
    }
}
