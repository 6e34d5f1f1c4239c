//! A read: a packet that a worker asks for, and what has become of it.

use std::sync::Weak;
use std::sync::atomic::Ordering;

use kaido_wire::ndn::Data;

use super::format::{RECORD_HEADER, RECORD_MAX, RecordHeader};
use super::place::RecordLocation;
use super::shared::{Home, TierState, add, lock};

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
    octets: Box<[u8]>,
    found: Option<ReadResult>,
}

/// A packet that was read.
#[derive(Clone, Copy, Debug)]
struct ReadResult {
    len: usize,
    fresh_until_ms: u64,
}

/// Octets that are read at once, at most.
const SPAN_MAX: usize = RECORD_MAX.next_multiple_of(192);

impl Read {
    pub(super) fn new(ticket: u32, home: Weak<Home>) -> Self {
        let (place, octets) = (RecordLocation::of_word(0), vec![0; SPAN_MAX].into_boxed_slice());
        Self { ticket, place, hash: 0, now_ms: 0, home, octets, found: None }
    }

    /// The packet, and for how many milliseconds it is fresh from when it was asked for.
    pub(crate) fn packet(&self) -> Option<(&[u8], u64)> {
        let ReadResult { len, fresh_until_ms } = self.found?;
        let packet = self.octets.get(RECORD_HEADER..RECORD_HEADER + len)?;
        Some((packet, fresh_until_ms.saturating_sub(self.now_ms)))
    }

    /// Reads, and goes back to the worker, if there still is one.
    pub(super) fn run(mut self, shared: &TierState) {
        let Some(home) = self.home.upgrade() else { return };
        self.found = self.find(shared);
        lock(&home.reads).push(self);
        // Release: the worker that sees it finds the read. The lock would do for that, if it were taken each round.
        home.has_reads.store(true, Ordering::Release);
        (home.wake)();
    }

    fn find(&mut self, shared: &TierState) -> Option<ReadResult> {
        let place = self.place;
        let (segment, at) = shared.within(place.at())?;
        let sequence = shared.sequences[segment].load(Ordering::Acquire);
        let span = self.octets.get_mut(..place.span())?;
        let octets = match shared.read_at(place.at(), span) {
            Ok(filled) => &span[..filled],
            Err(error) => {
                shared.complain("read", &error);
                return None;
            }
        };
        let header = RecordHeader::decode(&shared.hash, octets);
        let is_current = shared.sequences[segment].load(Ordering::Acquire) == sequence;
        let current = header.filter(|header| header.sequence == sequence);
        let Some(header) = current.filter(|_| is_current) else {
            // Overwritten since, or never rightly written.
            add(if is_current { &shared.counters.damaged } else { &shared.counters.gone }, 1);
            shared.unlink(self.hash, place);
            return None;
        };
        if !place.is_below() && header.hash != self.hash {
            // Of another name, whose hash is the same as far as the index has it.
            return None;
        }
        if header.is_erased {
            add(&shared.counters.gone, 1);
            shared.unlink(self.hash, place);
            return None;
        }
        let packet = header.packet(&shared.hash, octets);
        let name = packet.and_then(|packet| Data::parse(packet, packet.len()).ok()).map(|data| data.name);
        let Some(name) = name else {
            add(&shared.counters.damaged, 1);
            shared.unlink(self.hash, place);
            return None;
        };
        let marks = shared.marks.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        if marks.has_erased((sequence, at), name.value()) {
            add(&shared.counters.gone, 1);
            shared.unlink(self.hash, place);
            return None;
        }
        add(&shared.counters.reads, 1);
        add(&shared.counters.read_octets, header.len as usize);
        if header.fresh_until_ms <= self.now_ms && !place.is_stale() {
            // Who asks for fresh Data need not read it again to learn that.
            shared.places.exchange(self.hash, place.word(), place.staled().word());
        }
        Some(ReadResult { len: header.len as usize, fresh_until_ms: header.fresh_until_ms })
    }
}
