//! One ring, many consumers: each claims a block of entries with one compare-and-swap of the consumer cursor.
//!
//! ```text
//!        consumer c              producer p
//!           ▼                       ▼
//!   ┌───┬───┬───┬───┬───┬───┬───┬───┬───┐     1  load c, then p
//!   │   │   │ ■ │ ■ │ ■ │ ■ │ ■ │ ■ │   │     2  copy the entries c..c+n
//!   └───┴───┴───┴───┴───┴───┴───┴───┴───┘     3  c → c+n if it is still c; else from 1
//! ```
//!
//! The copy comes before the claim, because the claim gives the slots back: the one cursor that the kernel knows
//! says both "taken" and "free to be written". A copy that lost its race may be torn, as the producer may have
//! written the slots again; it is thrown away. A copy that won is whole. The cursor only moves on, so it stood at
//! `c` from step 1 to step 3. Until it moves the producer writes none of the slots behind it.
//!
//! The cursor has 32 bits. A consumer that sleeps between steps 1 and 3 for exactly a multiple of 2^32 entries
//! (seven minutes at 10 million a second) would take stale entries for fresh. Users must bear that, as those of
//! [`crate::UmemConfig`]'s rings do by noting who owns each chunk.

use core::marker::PhantomData;

use crate::Desc;
use crate::ring::Memory;
use crate::sync::{AtomicU32, AtomicU64, Ordering, spin_loop};

/// Ring memory whose slots may be read while they are being written.
///
/// # Safety
/// As [`Memory`]; and `peek` touches the slot `index & (capacity - 1)` and nothing else, with atomic loads.
pub unsafe trait SharedMemory<T: Copy>: Memory<T> {
    /// Copies the entry at a cursor value, torn if it is being written.
    fn peek(&self, index: u32) -> T;
}

// SAFETY: forwards to a `SharedMemory` that keeps the contract.
unsafe impl<T: Copy, M: SharedMemory<T>> SharedMemory<T> for std::sync::Arc<M> {
    #[inline]
    fn peek(&self, index: u32) -> T {
        (**self).peek(index)
    }
}

/// Entries that were claimed: `len` from cursor value `start` on.
///
/// Made by a claim and not cloned, so that what happens once a block happens once.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    start: u32,
    len: u32,
}

impl Block {
    /// Cursor value of the first entry.
    pub fn start(&self) -> u32 {
        self.start
    }

    /// Entries.
    #[allow(clippy::len_without_is_empty)] // A block is never empty.
    pub fn len(&self) -> u32 {
        self.len
    }
}

/// What came of a claim.
#[derive(Debug, PartialEq, Eq)]
pub enum Claim {
    /// Entries, of which copies lie at the front of the buffer.
    Block(Block),
    /// Nothing was there.
    Empty,
    /// Something was there that may not be claimed yet: the window is full.
    WindowFull,
}

/// Compare-and-swaps of a claim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClaimAttempts {
    /// How often the claim was tried with something to claim.
    pub attempts: u32,
    /// How often another consumer was faster.
    pub retries: u32,
}

/// How far claims may run ahead of what has been finished.
pub trait Window {
    /// For a claim at the cursor value `consumed`: the cursor value up to which everything is finished, or was a
    /// while ago, and the most entries that may be claimed beyond it. `None` for claims without a bound.
    fn bound(&self, consumed: u32) -> Option<(u32, u32)>;
}

/// No bound.
impl Window for () {
    fn bound(&self, _consumed: u32) -> Option<(u32, u32)> {
        None
    }
}

/// The reading end of a ring, for any number of threads at a time.
#[derive(Debug)]
pub struct SharedConsumer<T, M> {
    memory: M,
    capacity: u32,
    entry: PhantomData<fn() -> T>,
}

impl<T: Copy, M: SharedMemory<T>> SharedConsumer<T, M> {
    /// Takes the reading end of a ring at its present cursors.
    ///
    /// # Safety
    /// No other consumer of the same ring, of this kind or the other, exists while this one does.
    pub unsafe fn new(memory: M) -> Self {
        let capacity = memory.capacity();
        Self { memory, capacity, entry: PhantomData }
    }

    /// Cursor value of the next entry to be claimed.
    pub fn position(&self) -> u32 {
        self.memory.consumer().load(Ordering::Acquire)
    }

    /// Number of slots.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Claims entries from the front, as many as there are and `out` and `window` allow. `cut` says how many of them
    /// make whole packets; of the others none are claimed.
    #[inline]
    pub fn claim(
        &self,
        out: &mut [T],
        window: &impl Window,
        cut: impl Fn(&[T]) -> usize,
        tries: &mut ClaimAttempts,
    ) -> Claim {
        // Acquire: whoever moved the cursor here had seen a producer cursor at least as far on, and with this we
        // do too; `p - c` would be negative else.
        let mut consumed = self.memory.consumer().load(Ordering::Acquire);
        loop {
            // Acquire: the entries before it are written.
            let produced = self.memory.producer().load(Ordering::Acquire);
            let present = produced.wrapping_sub(consumed);
            let bound = window.bound(consumed);
            let ahead = bound.map_or(0, |(finished, _)| consumed.wrapping_sub(finished));
            let allowed = bound.map_or(u32::MAX, |(_, most)| most);
            if present > self.capacity || ahead > allowed {
                // The cursor we know is so old that the others have gone on past what it counts from.
                consumed = self.memory.consumer().load(Ordering::Acquire);
                spin_loop();
                continue;
            }
            if present == 0 {
                return Claim::Empty;
            }
            let most = present.min(allowed - ahead);
            if most == 0 {
                return Claim::WindowFull;
            }
            let room = out.len().min(most as usize);
            let mut index = consumed;
            for entry in &mut out[..room] {
                *entry = self.memory.peek(index);
                index = index.wrapping_add(1);
            }
            let whole = cut(&out[..room]).min(room);
            if whole == 0 {
                return if most < present { Claim::WindowFull } else { Claim::Empty };
            }
            #[allow(clippy::cast_possible_truncation)] // No more than `most`.
            let len = whole as u32;
            tries.attempts += 1;
            // Release: the copies are made before the producer that Acquires this, or a later claim built upon it
            // (which continues the release sequence), may write the slots again. Acquire on failure: as above.
            match self.memory.consumer().compare_exchange(
                consumed,
                consumed.wrapping_add(len),
                Ordering::Release,
                Ordering::Acquire,
            ) {
                Ok(start) => return Claim::Block(Block { start, len }),
                Err(now) => consumed = now,
            }
            tries.retries += 1;
        }
    }
}

/// Most entries of `descs` that make whole packets. A buffer full of one packet's middle counts as whole: there is no
/// packet so long, and who assembles it drops it.
#[inline]
pub fn whole_packets(descs: &[Desc], buffer: usize) -> usize {
    match descs.iter().rposition(|desc| !desc.is_continued()) {
        Some(last) => last + 1,
        None if descs.len() == buffer => buffer,
        None => 0,
    }
}

/// A ring of descriptors in ordinary memory that may be claimed from.
#[derive(Debug)]
pub struct DescRing {
    /// Address, then length and options.
    slots: Box<[[AtomicU64; 2]]>,
    producer: Line<AtomicU32>,
    consumer: Line<AtomicU32>,
}

/// A cache line, and the next one that the hardware fetches with it, of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

impl DescRing {
    /// An empty ring of at least `capacity` slots (the next power of two), both cursors at `start`.
    pub fn new(capacity: u32, start: u32) -> Self {
        Self {
            slots: (0..capacity.next_power_of_two())
                .map(|_| [AtomicU64::new(0), AtomicU64::new(0)])
                .collect(),
            producer: Line(AtomicU32::new(start)),
            consumer: Line(AtomicU32::new(start)),
        }
    }

    #[inline]
    fn slot(&self, index: u32) -> &[AtomicU64; 2] {
        &self.slots[index as usize & (self.slots.len() - 1)]
    }
}

// SAFETY: the slot count is a power of two (`new`), cursors are fields, and slots are indexed under the mask.
unsafe impl Memory<Desc> for DescRing {
    fn capacity(&self) -> u32 {
        u32::try_from(self.slots.len()).unwrap_or(0)
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        &self.producer.0
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        &self.consumer.0
    }

    #[inline]
    unsafe fn read(&self, index: u32) -> Desc {
        self.peek(index)
    }

    #[inline]
    unsafe fn write(&self, index: u32, entry: Desc) {
        let [addr, rest] = self.slot(index);
        // Relaxed: published by the cursor.
        addr.store(entry.addr, Ordering::Relaxed);
        rest.store(u64::from(entry.options) << 32 | u64::from(entry.len), Ordering::Relaxed);
    }
}

// SAFETY: as above; the slots are atomics.
unsafe impl SharedMemory<Desc> for DescRing {
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // The two halves.
    fn peek(&self, index: u32) -> Desc {
        let [addr, rest] = self.slot(index);
        // Relaxed: whether the copy is whole is decided by the claim, whose orderings do the rest.
        let (addr, rest) = (addr.load(Ordering::Relaxed), rest.load(Ordering::Relaxed));
        Desc { addr, len: rest as u32, options: (rest >> 32) as u32 }
    }
}
