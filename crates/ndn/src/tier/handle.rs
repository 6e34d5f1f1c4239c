//! A worker's side of a tier: what it lends to the threads, and what comes back. Nothing here waits for the disk, and
//! nothing is allocated for a packet.

use std::sync::atomic::Ordering;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use kaido_ndn_tables::NodeInstant;
use kaido_wire::ndn::PACKET_MAX;

use super::buffers::{Arena, ArenaPacket, Home, Read, Wake, lock};
use super::format::KEYS;
use super::place::RecordLocation;
use super::shared::{Counters, TierState, add};
use super::{Order, milliseconds_of};

/// Arenas of a worker: while one is filled, the others are on their way to the disk.
const ARENAS: usize = 32;
/// How long packets wait for others that go with them. Meanwhile they are in neither tier: a consumer that asks for one long content
/// after another comes back to what it drove out of memory within tens of milliseconds.
const ARENA_TIME: Duration = Duration::from_millis(2);

/// A worker's side of a tier.
#[derive(Debug)]
pub struct TierHandle {
    shared: Arc<TierState>,
    orders: SyncSender<Order>,
    home: Arc<Home>,
    /// What is being filled, and since when.
    arena: Option<(Arena, NodeInstant)>,
    /// Reads that are not under way, by their tickets.
    reads: Vec<Option<Read>>,
    free: Vec<u32>,
    /// Reads that have come back.
    back: Vec<Read>,
    /// Milliseconds since 1970 when the worker's time began.
    began_ms: u64,
    gather: Duration,
    /// As of the last round.
    now: NodeInstant,
}

impl TierHandle {
    pub(super) fn new(
        shared: Arc<TierState>,
        orders: SyncSender<Order>,
        reads_max: u32,
        gather: Duration,
        began: SystemTime,
        wake: Wake,
    ) -> Self {
        let home = Arc::new(Home {
            arenas: Mutex::new(Vec::with_capacity(ARENAS)),
            reads: Mutex::new(Vec::with_capacity(reads_max as usize)),
            has_reads: false.into(),
            wake,
        });
        lock(&home.arenas).extend((0..ARENAS).map(|_| Arena::new(Arc::downgrade(&home))));
        Self {
            shared,
            orders,
            arena: None,
            reads: (0..reads_max).map(|ticket| Some(Read::new(ticket, Arc::downgrade(&home)))).collect(),
            free: (0..reads_max).collect(),
            back: Vec::with_capacity(reads_max as usize),
            began_ms: milliseconds_of(began),
            gather,
            now: NodeInstant::default(),
            home,
        }
    }

    /// What keeps none of its memory.
    #[cfg(test)]
    pub(super) fn weak_home(&self) -> std::sync::Weak<Home> {
        Arc::downgrade(&self.home)
    }

    /// What happens to it.
    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// How long a read waits for more Interests.
    pub(crate) fn gather(&self) -> Duration {
        self.gather
    }

    /// Reads that may be under way.
    pub(crate) fn reads_max(&self) -> usize {
        self.reads.len()
    }

    /// The wall clock's time at a moment.
    fn wall_ms(&self, moment: NodeInstant) -> u64 {
        self.began_ms.saturating_add(moment.nanoseconds() / 1_000_000)
    }

    /// Asks for the lines of the index for a hash.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64) {
        self.shared.places.prefetch(hash);
    }

    /// Where a record of this hash may lie: of the whole name, or of a prefix; one that may be fresh, if that matters.
    pub(crate) fn find(&self, hash: u64, is_below: bool, must_be_fresh: bool) -> Option<RecordLocation> {
        let places = self.shared.places.find(hash).map(RecordLocation::of_word);
        let mut fit =
            places.filter(|place| place.is_for(hash, is_below) && !(must_be_fresh && place.is_stale()));
        fit.next()
    }

    /// Takes a packet of this name hash out of the index: there is a newer one.
    fn forget(&self, hash: u64) {
        while let Some(place) = self.find(hash, false, false) {
            self.shared.unlink(hash, place);
        }
    }

    /// Takes a packet to be written: its octets in pieces, `len` in all. When there is no room it is counted, and what the tier
    /// had of its name, which is older, is forgotten; whether there was.
    pub(crate) fn put<'p>(
        &mut self,
        keys: [u64; KEYS],
        pieces: impl Iterator<Item = &'p [u8]>,
        len: usize,
        fresh_until: NodeInstant,
    ) -> bool {
        if self.arena.as_ref().is_some_and(|(arena, _)| !arena.has_room(len)) {
            self.send();
        }
        if self.arena.is_none() {
            self.arena = lock(&self.home.arenas).pop().map(|arena| (arena, self.now));
        }
        // Never fresh is told from fresh in the past, which a clock that is put back makes fresh again.
        let fresh_until_ms = if fresh_until > self.now { self.wall_ms(fresh_until) } else { 0 };
        let Some((arena, _)) = &mut self.arena else {
            add(&self.shared.counters.overrun, 1);
            self.forget(keys[0]);
            return false;
        };
        pieces.for_each(|piece| arena.octets.extend_from_slice(piece));
        arena.packets.push(ArenaPacket { keys, fresh_until_ms, end: arena.octets.len() });
        true
    }

    /// Waits for room for another packet, no longer than then; whether there is.
    pub(crate) fn wait_for_room(&mut self, until: Instant) -> bool {
        while !self.arena.as_ref().is_some_and(|(arena, _)| arena.has_room(PACKET_MAX)) {
            self.send();
            self.arena = lock(&self.home.arenas).pop().map(|arena| (arena, self.now));
            if self.arena.is_none() {
                if Instant::now() >= until {
                    return false;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        true
    }

    /// Sends what was taken to the writer.
    pub(crate) fn send(&mut self) {
        let Some((arena, _)) = self.arena.take() else { return };
        // There is room for all arenas of all workers.
        if let Err(refused) = self.orders.try_send(Order::Write(arena))
            && let std::sync::mpsc::TrySendError::Full(Order::Write(arena))
            | std::sync::mpsc::TrySendError::Disconnected(Order::Write(arena)) = refused
        {
            add(&self.shared.counters.overrun, arena.packets.len());
            arena.go_home();
        }
    }

    /// Sends what has waited long enough.
    #[inline]
    pub(crate) fn tick(&mut self, now: NodeInstant) {
        self.now = now;
        if self.arena.as_ref().is_some_and(|(_, since)| now.since(*since) >= ARENA_TIME) {
            self.send();
        }
    }

    /// When [`TierHandle::tick`] has something to do.
    pub(crate) fn due(&self) -> Option<NodeInstant> {
        self.arena.as_ref().map(|(_, since)| *since + ARENA_TIME)
    }

    /// A ticket for a read; `None` when as many as may are under way.
    pub(crate) fn ticket(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Reads.
    pub(crate) fn read(&mut self, ticket: u32, place: RecordLocation, hash: u64, now: NodeInstant) {
        let now_ms = self.wall_ms(now);
        let Some(mut read) = self.reads.get_mut(ticket as usize).and_then(Option::take) else { return };
        (read.place, read.hash, read.now_ms) = (place, hash, now_ms);
        lock(&self.shared.waiting).reads.push_back(read);
        self.shared.comes.notify_one();
    }

    /// A read that has come to its end.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Read> {
        if self.back.is_empty() && self.home.has_reads.load(Ordering::Acquire) {
            // Before they are taken: one that comes now is seen in this round or the next.
            self.home.has_reads.store(false, Ordering::Relaxed);
            std::mem::swap(&mut self.back, &mut *lock(&self.home.reads));
        }
        self.back.pop()
    }

    /// Whether a read has come to its end.
    #[inline]
    pub(crate) fn has_next(&self) -> bool {
        !self.back.is_empty() || self.home.has_reads.load(Ordering::Relaxed)
    }

    /// Takes a read back; its ticket can be used again.
    pub(crate) fn take_back(&mut self, read: Read) {
        let ticket = read.ticket;
        if let Some(place) = self.reads.get_mut(ticket as usize) {
            *place = Some(read);
            self.free.push(ticket);
        }
    }
}

impl Drop for TierHandle {
    /// What was taken is written.
    fn drop(&mut self) {
        self.send();
    }
}
