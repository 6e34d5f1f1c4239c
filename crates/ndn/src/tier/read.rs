//! What a thread does with a read: it looks whether the record is there, whole and not erased.

use std::sync::atomic::Ordering;

use kaido_wire::ndn::Data;

use super::buffers::{Read, ReadResult, lock};
use super::format::RecordHeader;
use super::shared::{TierState, add};

impl Read {
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
