//! The four rings of a socket, mapped from the kernel.
//!
//! Giving a chunk away is `unsafe` ([`FillRing::supply`], [`TxRing::send`]): from then on the kernel reads or writes
//! it. Getting chunks back is safe. A ring is `Send` and not shared: one thread works it at a time.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::claim::SharedMemory;
use crate::ring::{Consumer, Memory, Producer};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sys::Region;
use crate::{Desc, Error};

/// A ring's memory as mapped from the kernel; clones are views of the same ring, which stays mapped until the last
/// is dropped.
#[derive(Debug)]
pub struct RingMapping<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    capacity: u32,
    _region: Arc<Region>,
    _entry: PhantomData<T>,
}

/// Where the parts of a ring lie, in bytes from its beginning.
#[derive(Clone, Copy, Debug)]
struct RingOffsets {
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
}

/// As `struct xdp_ring` of the kernel (`net/xdp/xsk_queue.h`) lies with cache lines of 64 bytes: a line between those of both cursors.
const IN_MEMORY: RingOffsets = RingOffsets { producer: 0, consumer: 128, flags: 196, entries: 320 };

impl<T> Clone for RingMapping<T> {
    fn clone(&self) -> Self {
        Self { _region: Arc::clone(&self._region), ..*self }
    }
}

// SAFETY: the pointers lead into the region, which lives as long as `self` and which any thread may use; what is
// shared is atomics, and entries under the contract of `Memory`.
unsafe impl<T: Send> Send for RingMapping<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for RingMapping<T> {}

impl<T: Copy> RingMapping<T> {
    /// Maps the ring of `capacity` entries of socket `fd` that the kernel keeps at `page_offset`.
    pub(crate) fn map(
        fd: BorrowedFd<'_>,
        capacity: u32,
        offset: &libc::xdp_ring_offset,
        page_offset: libc::off_t,
    ) -> Result<Self, Error> {
        let at = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        let places = RingOffsets {
            producer: at(offset.producer),
            consumer: at(offset.consumer),
            flags: at(offset.flags),
            entries: at(offset.desc),
        };
        let len = places.entries.saturating_add(capacity as usize * size_of::<T>());
        Ok(Self::within(Region::map(fd, len, page_offset)?, &places, capacity))
    }

    /// A ring of `capacity` entries, a power of two, in memory of this process: laid out as the kernel does it, empty, and with
    /// nobody that asks to be woken.
    pub(crate) fn in_memory(capacity: u32) -> Result<Self, Error> {
        debug_assert!(capacity.is_power_of_two());
        let len = IN_MEMORY.entries + capacity as usize * size_of::<T>();
        Ok(Self::within(Region::anonymous(len)?, &IN_MEMORY, capacity))
    }

    fn within(region: Region, places: &RingOffsets, capacity: u32) -> Self {
        let RingOffsets { producer, consumer, flags, entries } = *places;
        debug_assert!(producer.max(consumer).max(flags) + size_of::<AtomicU32>() <= region.len());
        // SAFETY: the kernel laid the ring out so (XDP_MMAP_OFFSETS), or we did (`IN_MEMORY`): cursors and flags before the
        // entries, each naturally aligned, all within the mapping just made.
        unsafe {
            Self {
                producer: region.start.add(producer).cast(),
                consumer: region.start.add(consumer).cast(),
                flags: region.start.add(flags).cast(),
                entries: region.start.add(entries).cast(),
                capacity,
                _region: Arc::new(region),
                _entry: PhantomData,
            }
        }
    }

    /// Whether the kernel asks to be woken about this ring (`XDP_RING_NEED_WAKEUP`).
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        // Our cursor store must be seen before we look at the flag, or the kernel could go to sleep on a ring that
        // it read as empty while we read the flag as clear; one full fence per batch.
        fence(Ordering::SeqCst);
        // SAFETY: see `map`.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

// SAFETY: the capacity was checked to be a power of two before the kernel made the ring; the pointers never change
// and slots are indexed under the mask.
unsafe impl<T: Copy> Memory<T> for RingMapping<T> {
    #[inline]
    fn capacity(&self) -> u32 {
        self.capacity
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: see `map`.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: see `map`.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    unsafe fn read(&self, index: u32) -> T {
        // SAFETY: within the ring by the mask; by contract the kernel does not write this slot now.
        unsafe { self.entries.add((index & (self.capacity - 1)) as usize).read() }
    }

    #[inline]
    unsafe fn write(&self, index: u32, entry: T) {
        // SAFETY: within the ring by the mask; by contract the kernel does not read this slot now.
        unsafe { self.entries.add((index & (self.capacity - 1)) as usize).write(entry) }
    }
}

// SAFETY: as above; a descriptor is two aligned words (asserted in `desc`), which are loaded as atomics.
unsafe impl SharedMemory<Desc> for RingMapping<Desc> {
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // The two halves.
    fn peek(&self, index: u32) -> Desc {
        // SAFETY: within the ring by the mask, and aligned as the entries are. The kernel may write the slot
        // meanwhile; it is another program, which the atomic loads make as harmless as another thread's stores.
        let (addr, rest) = unsafe {
            let slot = self.entries.add((index & (self.capacity - 1)) as usize).cast::<AtomicU64>();
            (slot.as_ref().load(Ordering::Relaxed), slot.add(1).as_ref().load(Ordering::Relaxed))
        };
        // Memory order: `len` comes first.
        let rest = rest.to_le();
        Desc { addr, len: (rest as u32).to_le(), options: ((rest >> 32) as u32).to_le() }
    }
}

/// The rings of one socket. They keep the socket bound as long as any is left: a mapping holds the kernel's socket.
#[derive(Debug)]
pub struct Rings {
    /// Empty chunks on their way to the kernel.
    pub fill: FillRing,
    /// Sent chunks on their way back.
    pub completion: CompletionRing,
    /// Received packets.
    pub rx: RxRing,
    /// Packets to send.
    pub tx: TxRing,
}

/// Hands empty chunks to the kernel, to receive into.
#[derive(Debug)]
pub struct FillRing(pub(crate) Producer<u64, RingMapping<u64>>);

impl FillRing {
    /// Gives chunks (offsets within the UMEM, in bytes) to the kernel, as many from the front as there is room for.
    ///
    /// # Safety
    /// Each of the chunks taken is the caller's alone, and is not touched until the RX ring gives it back.
    #[inline]
    pub unsafe fn supply(&mut self, chunks: &[u64]) -> usize {
        self.0.push(chunks)
    }

    /// Free slots now.
    #[inline]
    pub fn free(&mut self) -> u32 {
        self.0.free()
    }

    /// Number of slots.
    pub fn capacity(&self) -> u32 {
        self.0.capacity()
    }

    /// Whether the driver sleeps for want of chunks: then [`Socket::wake_rx`](crate::Socket::wake_rx).
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.0.memory().needs_wakeup()
    }
}

/// Gives sent chunks back.
#[derive(Debug)]
pub struct CompletionRing(pub(crate) Consumer<u64, RingMapping<u64>>);

impl CompletionRing {
    /// Takes sent chunks (the `addr` they were sent with, in bytes) back; says how many. They are the caller's again.
    #[inline]
    pub fn reap(&mut self, chunks: &mut [u64]) -> usize {
        self.0.pop(chunks)
    }

    /// Chunks to take back now.
    #[inline]
    pub fn available(&mut self) -> u32 {
        self.0.available()
    }

    /// Number of slots.
    pub fn capacity(&self) -> u32 {
        self.0.capacity()
    }
}

/// Received packets.
#[derive(Debug)]
pub struct RxRing(pub(crate) Consumer<Desc, RingMapping<Desc>>);

impl RxRing {
    /// Takes received buffers; says how many. Their chunks are the caller's, to read, send on, or supply again.
    ///
    /// A chain of buffers may end in the next batch: see [`Desc::is_continued`].
    #[inline]
    pub fn receive(&mut self, packets: &mut [Desc]) -> usize {
        self.0.pop(packets)
    }

    /// Buffers received and not yet taken.
    #[inline]
    pub fn available(&mut self) -> u32 {
        self.0.available()
    }

    /// Number of slots.
    pub fn capacity(&self) -> u32 {
        self.0.capacity()
    }

    /// Gives the ring up for another kind of consumer at the same cursor (several cores that claim blocks of it). The
    /// rule that stays: the consumer cursor only moves over entries that all claimants have read.
    pub fn into_memory(self) -> RingMapping<Desc> {
        self.0.into_memory()
    }
}

/// Packets to send.
#[derive(Debug)]
pub struct TxRing {
    pub(crate) ring: Producer<Desc, RingMapping<Desc>>,
    /// Without `XDP_USE_NEED_WAKEUP` the flag means nothing, and the kernel must always be woken.
    pub(crate) always_wake: bool,
}

impl TxRing {
    /// Gives packets to the kernel to send, as many buffers from the front as there is room for. A chain may be
    /// split: the kernel waits for its rest.
    ///
    /// # Safety
    /// Each chunk taken is the caller's alone, holds initialised bytes at `addr..addr + len`, and is not touched
    /// until the completion ring gives it back.
    #[inline]
    pub unsafe fn send(&mut self, packets: &[Desc]) -> usize {
        self.ring.push(packets)
    }

    /// Free slots now.
    #[inline]
    pub fn free(&mut self) -> u32 {
        self.ring.free()
    }

    /// Free slots, up to `wanted`.
    #[inline]
    pub fn room_for(&mut self, wanted: usize) -> usize {
        self.ring.room_for(wanted)
    }

    /// The ring for those who put nothing into it.
    pub fn watch(&self) -> TxWatch {
        TxWatch { memory: self.ring.memory().clone(), always_wake: self.always_wake }
    }

    /// Number of slots.
    pub fn capacity(&self) -> u32 {
        self.ring.capacity()
    }

    /// Whether the kernel must be told of new packets: then [`Socket::wake_tx`](crate::Socket::wake_tx).
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.always_wake || self.ring.memory().needs_wakeup()
    }
}

/// A TX ring as those see it who put nothing into it. It keeps the socket bound as the ring does.
#[derive(Debug)]
pub struct TxWatch {
    memory: RingMapping<Desc>,
    always_wake: bool,
}

impl TxWatch {
    /// Cursor value up to which the kernel has taken packets.
    #[inline]
    pub fn taken(&self) -> u32 {
        self.memory.consumer().load(Ordering::Acquire)
    }

    /// Packets that the kernel has not taken yet.
    #[inline]
    pub fn waiting(&self) -> u32 {
        let taken = self.taken();
        // Read after: it may have gone on, and the ring's size is then the limit.
        self.memory.producer().load(Ordering::Acquire).wrapping_sub(taken).min(self.memory.capacity)
    }

    /// Number of slots.
    pub fn capacity(&self) -> u32 {
        self.memory.capacity
    }

    /// As [`TxRing::needs_wakeup`].
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.always_wake || self.memory.needs_wakeup()
    }
}
