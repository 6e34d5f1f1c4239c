//! Cursors of a single-producer single-consumer ring in shared memory, as AF_XDP lays it out.
//!
//! Two free-running `u32` cursors count entries produced and consumed; `producer - consumer`, wrapping, is the
//! number of entries in the ring, and a cursor masked by the capacity is its slot.
//!
//! ```text
//!        consumer                producer
//!           ▼                       ▼
//!   ┌───┬───┬───┬───┬───┬───┬───┬───┬───┬───┐
//!   │   │   │ ■ │ ■ │ ■ │ ■ │ ■ │ ■ │   │   │
//!   └───┴───┴───┴───┴───┴───┴───┴───┴───┴───┘
//! ```
//!
//! Orderings, matching `net/xdp/xsk_queue.h`: each side stores its own cursor with Release and loads the other's
//! with Acquire. Producer's Release / consumer's Acquire make an entry's bytes visible before it counts as present;
//! consumer's Release / producer's Acquire finish the reads of a slot before it is written again. Each side keeps
//! the other's cursor cached and loads it (a cache line that the other core writes) only when the cache falls short.

use core::marker::PhantomData;
use std::sync::Arc;

use crate::sync::{AtomicU32, Ordering, UnsafeCell};

/// Shared memory of one ring: two cursors and `capacity` slots.
///
/// # Safety
/// `capacity` is a power of two and constant; the cursors are the same two atomics at every call; `read` and
/// `write` touch the slot `index & (capacity - 1)` and nothing else.
pub unsafe trait Memory<T: Copy> {
    /// Number of slots, a power of two.
    fn capacity(&self) -> u32;

    /// Entries ever produced, modulo 2^32.
    fn producer(&self) -> &AtomicU32;

    /// Entries ever consumed, modulo 2^32.
    fn consumer(&self) -> &AtomicU32;

    /// Copies the entry at a cursor value out.
    ///
    /// # Safety
    /// The slot was published and is not yet given back: no one writes it now.
    unsafe fn read(&self, index: u32) -> T;

    /// Copies an entry in at a cursor value.
    ///
    /// # Safety
    /// The slot is free and the caller is the only one that writes it now.
    unsafe fn write(&self, index: u32, entry: T);
}

// SAFETY: forwards to a `Memory` that keeps the contract.
unsafe impl<T: Copy, M: Memory<T>> Memory<T> for Arc<M> {
    #[inline]
    fn capacity(&self) -> u32 {
        (**self).capacity()
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        (**self).producer()
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        (**self).consumer()
    }

    #[inline]
    unsafe fn read(&self, index: u32) -> T {
        // SAFETY: the caller keeps the same contract.
        unsafe { (**self).read(index) }
    }

    #[inline]
    unsafe fn write(&self, index: u32, entry: T) {
        // SAFETY: the caller keeps the same contract.
        unsafe { (**self).write(index, entry) }
    }
}

/// The writing end of a ring.
#[derive(Debug)]
pub struct Producer<T, M> {
    memory: M,
    capacity: u32,
    /// Our cursor; memory holds the same value, as only we store it.
    produced: u32,
    /// The consumer's cursor when last loaded; it may since have moved on, never back.
    consumed: u32,
    entry: PhantomData<fn(T)>,
}

impl<T: Copy, M: Memory<T>> Producer<T, M> {
    /// Takes the writing end of a ring at its present cursors.
    ///
    /// # Safety
    /// No other producer of the same ring exists while this one does.
    pub unsafe fn new(memory: M) -> Self {
        let capacity = memory.capacity();
        // Relaxed: we are the only one that stores this cursor.
        let produced = memory.producer().load(Ordering::Relaxed);
        let consumed = memory.consumer().load(Ordering::Acquire);
        Self { memory, capacity, produced, consumed, entry: PhantomData }
    }

    /// Number of slots.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Free slots now.
    #[inline]
    pub fn free(&mut self) -> u32 {
        self.consumed = self.memory.consumer().load(Ordering::Acquire);
        self.cached_free()
    }

    /// Free slots, up to `wanted`: the other side's cursor is read only when those known do not suffice.
    #[inline]
    pub fn room_for(&mut self, wanted: usize) -> usize {
        let known = self.cached_free() as usize;
        let free = if known < wanted { self.free() as usize } else { known };
        free.min(wanted)
    }

    /// Writes as many of `entries`, from the front, as there is room for and publishes them at once; says how many.
    #[inline]
    pub fn push(&mut self, entries: &[T]) -> usize {
        let room = self.room_for(entries.len());
        let entries = &entries[..room];
        if entries.is_empty() {
            return 0;
        }
        let mut index = self.produced;
        for &entry in entries {
            // SAFETY: fewer than `free` slots past the cursor: free, and we are the only producer.
            unsafe { self.memory.write(index, entry) };
            index = index.wrapping_add(1);
        }
        self.produced = index;
        // Release: the slots above are visible to whoever Acquires this cursor.
        self.memory.producer().store(index, Ordering::Release);
        entries.len()
    }

    /// The ring's memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    #[inline]
    fn cached_free(&self) -> u32 {
        // Saturating: were the other side to run wild, we would still stay inside the ring.
        self.capacity.saturating_sub(self.produced.wrapping_sub(self.consumed))
    }
}

/// The reading end of a ring.
#[derive(Debug)]
pub struct Consumer<T, M> {
    memory: M,
    capacity: u32,
    /// The producer's cursor when last loaded; it may since have moved on, never back.
    produced: u32,
    /// Our cursor; memory holds the same value, as only we store it.
    consumed: u32,
    entry: PhantomData<fn() -> T>,
}

impl<T: Copy, M: Memory<T>> Consumer<T, M> {
    /// Takes the reading end of a ring at its present cursors.
    ///
    /// # Safety
    /// No other consumer of the same ring exists while this one does.
    pub unsafe fn new(memory: M) -> Self {
        let capacity = memory.capacity();
        let produced = memory.producer().load(Ordering::Acquire);
        // Relaxed: we are the only one that stores this cursor.
        let consumed = memory.consumer().load(Ordering::Relaxed);
        Self { memory, capacity, produced, consumed, entry: PhantomData }
    }

    /// Number of slots.
    #[inline]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Entries present now.
    #[inline]
    pub fn available(&mut self) -> u32 {
        self.produced = self.memory.producer().load(Ordering::Acquire);
        self.cached_available()
    }

    /// Moves entries into `out`, from the front, until it is full or the ring is empty; says how many.
    #[inline]
    pub fn pop(&mut self, out: &mut [T]) -> usize {
        let mut available = self.cached_available() as usize;
        if available < out.len() {
            available = self.available() as usize;
        }
        let count = out.len().min(available);
        if count == 0 {
            return 0;
        }
        let mut index = self.consumed;
        for entry in &mut out[..count] {
            // SAFETY: before the producer's cursor, which we Acquired, and not yet given back.
            *entry = unsafe { self.memory.read(index) };
            index = index.wrapping_add(1);
        }
        self.consumed = index;
        // Release: the reads above are done before the producer that Acquires this may reuse the slots.
        self.memory.consumer().store(index, Ordering::Release);
        count
    }

    /// The ring's memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Gives the reading end up, for another kind of consumer to take over at the same cursor.
    pub fn into_memory(self) -> M {
        self.memory
    }

    #[inline]
    fn cached_available(&self) -> u32 {
        // Capped: were the other side to run wild, we would still stay inside the ring.
        self.produced.wrapping_sub(self.consumed).min(self.capacity)
    }
}

/// A ring in ordinary memory: the model on which the cursors are tested without a kernel.
#[derive(Debug)]
pub struct Heap<T> {
    slots: Box<[UnsafeCell<T>]>,
    producer: AtomicU32,
    consumer: AtomicU32,
}

// SAFETY: a slot is touched only under the contract of `Memory`: by one side at a time, handed over by
// Release/Acquire on a cursor.
unsafe impl<T: Send> Sync for Heap<T> {}

impl<T: Copy + Default> Heap<T> {
    /// An empty ring of at least `capacity` slots (the next power of two), both cursors at `start`.
    pub fn new(capacity: u32, start: u32) -> Self {
        let slots = (0..capacity.next_power_of_two()).map(|_| UnsafeCell::new(T::default())).collect();
        Self { slots, producer: AtomicU32::new(start), consumer: AtomicU32::new(start) }
    }
}

// SAFETY: the slot count is a power of two (`new`), cursors are fields, and slots are indexed under the mask.
unsafe impl<T: Copy> Memory<T> for Heap<T> {
    fn capacity(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(0)
    }

    fn producer(&self) -> &AtomicU32 {
        &self.producer
    }

    fn consumer(&self) -> &AtomicU32 {
        &self.consumer
    }

    unsafe fn read(&self, index: u32) -> T {
        // SAFETY: by contract no one writes this slot now.
        self.slots[index as usize & (self.slots.len() - 1)].with(|slot| unsafe { *slot })
    }

    unsafe fn write(&self, index: u32, entry: T) {
        // SAFETY: by contract no one else touches this slot now.
        self.slots[index as usize & (self.slots.len() - 1)].with_mut(|slot| unsafe { *slot = entry });
    }
}
