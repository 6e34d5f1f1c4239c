//! What workers and the threads of a tier share.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, RwLock};

use kaido_ndn_tables::NameHash;
use kaido_table::SetIndex;

use super::buffers::Read;
use super::format::{Entry, PREFACE, RECORD_MAX};
use super::place::RecordLocation;
use super::tombstones::{Position, Tombstones};

/// Seconds between two complaints about the disk.
const COMPLAINT_EVERY: u64 = 60;

/// Counts, each a line of [`TierCounters`].
macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What happened to a tier.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct TierCounters {
            $($(#[doc = $doc])+ pub $name: u64,)+
        }

        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)+
        }

        impl Counters {
            pub(super) fn read(&self) -> TierCounters {
                TierCounters { $($name: self.$name.load(Ordering::Relaxed),)+ }
            }
        }
    };
}

counters! {
    /// Interests that waited for a read, their own or another's.
    parked,
    /// Of those the ones that waited for another's.
    gathered,
    /// Interests that were answered with what was read.
    answered,
    /// Octets of Data that they would have had read, each for itself.
    answered_octets,
    /// Interests that waited and then went on as if nothing had been found.
    forwarded,
    /// Interests for what the tier has that did not wait: as many did as may.
    busy,
    /// Packets that were read.
    reads,
    /// Octets of those.
    read_octets,
    /// Packets that were written.
    writes,
    /// Octets of those.
    written_octets,
    /// Packets that were not written, as the threads did not keep up.
    overrun,
    /// Packets that the index gave up for newer ones, before the log did.
    displaced,
    /// Packets that were overwritten or erased when they were looked for.
    gone,
    /// Records and segments whose checksums were wrong.
    damaged,
    /// Calls that failed.
    errors,
}

/// Adds to a counter.
pub(crate) fn add(counter: &AtomicU64, count: usize) {
    counter.fetch_add(count as u64, Ordering::Relaxed);
}

/// Reads that wait for a thread.
#[derive(Debug, Default)]
pub(super) struct ReadQueue {
    pub(super) reads: VecDeque<Read>,
    pub(super) is_closed: bool,
}

#[derive(Debug)]
pub(crate) struct TierState {
    pub(super) file: File,
    pub(super) hash: NameHash,
    pub(super) segment_octets: u64,
    pub(super) places: SetIndex,
    /// The sequence number of each segment, which tells what was written when; 0 is none.
    pub(super) sequences: Box<[AtomicU64]>,
    pub(super) marks: RwLock<Tombstones>,
    pub(super) waiting: Mutex<ReadQueue>,
    pub(super) comes: Condvar,
    pub(crate) counters: Counters,
    /// Packets that the index leads to.
    pub(super) packets: AtomicU64,
    /// Where the records of each segment end.
    pub(super) used: Box<[AtomicU64]>,
    /// When the last complaint was made, in seconds since 1970.
    complained: AtomicU64,
}

impl TierState {
    pub(super) fn new(
        file: File,
        hash: NameHash,
        segment_octets: u64,
        segments: usize,
        places: SetIndex,
    ) -> Self {
        Self {
            file,
            hash,
            segment_octets,
            places,
            sequences: (0..segments).map(|_| AtomicU64::new(0)).collect(),
            used: (0..segments).map(|_| AtomicU64::new(0)).collect(),
            marks: RwLock::default(),
            waiting: Mutex::default(),
            comes: Condvar::new(),
            counters: Counters::default(),
            packets: AtomicU64::new(0),
            complained: AtomicU64::new(0),
        }
    }

    /// Where a segment begins.
    pub(super) fn begin_of(&self, segment: usize) -> u64 {
        PREFACE + segment as u64 * self.segment_octets
    }

    /// The segment and the place in it of a place in the file.
    pub(super) fn within(&self, at: u64) -> Option<(usize, u64)> {
        let from = at.checked_sub(PREFACE)?;
        let segment = usize::try_from(from / self.segment_octets).ok()?;
        (segment < self.sequences.len()).then_some((segment, from % self.segment_octets))
    }

    /// Where in the log a place in the file is now.
    pub(super) fn position(&self, at: u64) -> Position {
        let within = self.within(at);
        within.map_or((0, 0), |(segment, at)| (self.sequences[segment].load(Ordering::Acquire), at))
    }

    /// Reads what there is of these octets; how many there are.
    pub(super) fn read_at(&self, at: u64, octets: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < octets.len() {
            match self.file.read_at(&mut octets[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(some) => filled += some,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// A whole block of the file.
    pub(super) fn block<const LEN: usize>(&self, at: u64) -> io::Result<[u8; LEN]> {
        let mut block = [0; LEN];
        self.read_at(at, &mut block)?;
        Ok(block)
    }

    /// Leads a hash to a record.
    pub(super) fn link(&self, segment: usize, entry: &Entry) {
        let at = self.begin_of(segment) + u64::from(entry.unit) * super::format::UNIT;
        let octets = usize::from(entry.octets).min(RECORD_MAX);
        let place = RecordLocation::new(entry.hash, at, octets, entry.is_below, entry.is_stale);
        let is_same = |word| RecordLocation::of_word(word).is_for(entry.hash, entry.is_below);
        let age = |word| {
            let (sequence, at) = self.position(RecordLocation::of_word(word).at());
            sequence << 16 | (at * 0x1_0000 / self.segment_octets)
        };
        let mut more = u64::from(!entry.is_below);
        match self.places.put(entry.hash, place.word(), is_same, age) {
            kaido_table::Insertion::Replaced(_) => more = 0,
            kaido_table::Insertion::Displaced(word) if !RecordLocation::of_word(word).is_below() => {
                add(&self.counters.displaced, 1);
                self.packets.fetch_sub(1, Ordering::Relaxed);
            }
            kaido_table::Insertion::Added | kaido_table::Insertion::Displaced(_) => {}
        }
        self.packets.fetch_add(more, Ordering::Relaxed);
    }

    /// What leads from a hash to a place in the file.
    pub(super) fn leads(&self, hash: u64, is_below: bool, at: u64) -> Option<RecordLocation> {
        let leads = |place: &RecordLocation| place.is_for(hash, is_below) && place.at() == at;
        self.places.find(hash).map(RecordLocation::of_word).find(leads)
    }

    /// Takes what leads to a record out of the index.
    pub(super) fn unlink(&self, hash: u64, place: RecordLocation) {
        if self.places.remove(hash, place.word()) && !place.is_below() {
            self.packets.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts a call that failed, and says so once in a while.
    pub(super) fn complain(&self, what: &str, error: &io::Error) {
        add(&self.counters.errors, 1);
        let now = super::milliseconds_of(std::time::SystemTime::now()) / 1000;
        let last = self.complained.load(Ordering::Relaxed);
        if now >= last + COMPLAINT_EVERY
            && self.complained.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            tracing::warn!(%error, "the disk of the content store cannot be {what}; the router goes on without");
        }
    }
}
