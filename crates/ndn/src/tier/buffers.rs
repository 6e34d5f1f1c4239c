//! Buffers that a worker lends to the threads of a tier, and where they come back to.
//!
//! ```text
//!   worker ──arena, packets in it──▶ writer  ──empty───▶ home
//!          ──read, a place in it───▶ readers ──packet──▶ home
//! ```

use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::format::{KEYS, RECORD_HEADER, RECORD_MAX, Record};
use super::place::RecordLocation;

/// Octets of packets that go to the writer together.
const ARENA_OCTETS: usize = 256 << 10;
/// Packets that do.
const ARENA_PACKETS: usize = 1024;

/// Octets that are read at once, at most.
const SPAN_MAX: usize = RECORD_MAX.next_multiple_of(192);

/// How a worker is told that a read has come to its end.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Where what a worker has lent comes back to.
pub(super) struct Home {
    pub(super) arenas: Mutex<Vec<Arena>>,
    pub(super) reads: Mutex<Vec<Read>>,
    pub(super) has_reads: AtomicBool,
    pub(super) wake: Wake,
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Home").field("has_reads", &self.has_reads).finish_non_exhaustive()
    }
}

/// A lock whose holders do not panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A packet in an arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArenaPacket {
    pub(super) keys: [u64; KEYS],
    pub(super) fresh_until_ms: u64,
    pub(super) end: usize,
}

/// Packets on their way to the writer.
#[derive(Debug)]
pub(super) struct Arena {
    pub(super) octets: Vec<u8>,
    pub(super) packets: Vec<ArenaPacket>,
    /// Weak, or what lies at home would keep its own home.
    home: Weak<Home>,
}

impl Arena {
    /// An empty one, with all the memory that it will have.
    pub(super) fn new(home: Weak<Home>) -> Self {
        Self { octets: Vec::with_capacity(ARENA_OCTETS), packets: Vec::with_capacity(ARENA_PACKETS), home }
    }

    /// Whether it takes another packet of so many octets.
    pub(super) fn has_room(&self, octets: usize) -> bool {
        self.packets.len() < ARENA_PACKETS && self.octets.len() + octets <= ARENA_OCTETS
    }

    /// The packets.
    pub(super) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let begins = std::iter::once(0).chain(self.packets.iter().map(|packet| packet.end));
        self.packets.iter().zip(begins).map(|(packet, begin)| Record {
            keys: packet.keys,
            fresh_until_ms: packet.fresh_until_ms,
            packet: &self.octets[begin..packet.end],
        })
    }

    /// Empties it and gives it back to its worker, if there still is one.
    pub(super) fn go_home(mut self) {
        self.octets.clear();
        self.packets.clear();
        if let Some(home) = self.home.upgrade() {
            lock(&home.arenas).push(self);
        }
    }
}

/// A read, which goes to a thread and comes back. Its memory is taken once.
#[derive(Debug)]
pub(crate) struct Read {
    /// Which of the worker's reads it is.
    pub(super) ticket: u32,
    pub(super) place: RecordLocation,
    /// By which it is looked for.
    pub(super) hash: u64,
    /// Milliseconds since 1970.
    pub(super) now_ms: u64,
    /// Weak, or what lies at home would keep its own home.
    pub(super) home: Weak<Home>,
    pub(super) octets: Box<[u8]>,
    pub(super) found: Option<ReadResult>,
}

/// A packet that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadResult {
    pub(super) len: usize,
    pub(super) fresh_until_ms: u64,
}

impl Read {
    pub(super) fn new(ticket: u32, home: Weak<Home>) -> Self {
        let (place, octets) = (RecordLocation::of_word(0), vec![0; SPAN_MAX].into_boxed_slice());
        Self { ticket, place, hash: 0, now_ms: 0, home, octets, found: None }
    }

    /// Which of the worker's reads it is.
    pub(crate) fn ticket(&self) -> u32 {
        self.ticket
    }

    /// The packet, and for how many milliseconds it is fresh from when it was asked for.
    pub(crate) fn packet(&self) -> Option<(&[u8], u64)> {
        let ReadResult { len, fresh_until_ms } = self.found?;
        let packet = self.octets.get(RECORD_HEADER..RECORD_HEADER + len)?;
        Some((packet, fresh_until_ms.saturating_sub(self.now_ms)))
    }
}
