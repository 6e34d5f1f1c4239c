//! The log of records, as its one writer sees it: segments one after the other, round and round; the oldest is overwritten.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::format::{
    BLOCK, ENTRY, Entry, KEYS, RECORD_HEADER, Record, RecordHeader, Trailer, UNIT, checksum, segment_header,
};
use super::shared::{TierState, add};
use super::tombstones::Position;
use crate::cs::LEVELS;

/// Octets that are gathered to be written at once.
const WRITE_MAX: usize = 1 << 20;

/// The segment that is written.
#[derive(Debug)]
pub(super) struct Log {
    shared: Arc<TierState>,
    segment: usize,
    sequence: u64,
    /// Whether the segment's header was written.
    is_begun: bool,
    /// Where in the segment the next record begins.
    at: u64,
    /// What is not written yet: of the segment the octets before `at`.
    buffer: Vec<u8>,
    entries: Vec<Entry>,
    /// Entries whose records are written.
    linked: usize,
    /// The last entry for a prefix at each level: of segments of one content all have the same.
    below: [Option<usize>; LEVELS],
    /// Entries that were changed to lead to records that are not written yet.
    moved: Vec<usize>,
}

/// Where the log goes on.
#[derive(Debug, Default)]
pub(super) struct Resumed {
    pub(super) segment: usize,
    pub(super) sequence: u64,
    pub(super) at: u64,
    pub(super) entries: Vec<Entry>,
}

impl Log {
    /// A log that goes on there; at the beginning of a segment if nothing was written before.
    pub(super) fn new(shared: Arc<TierState>, resumed: Resumed) -> Self {
        let linked = resumed.entries.len();
        Self {
            shared,
            segment: resumed.segment,
            sequence: resumed.sequence,
            is_begun: resumed.sequence > 0,
            at: resumed.at,
            buffer: Vec::with_capacity(WRITE_MAX),
            entries: resumed.entries,
            linked,
            below: [None; LEVELS],
            moved: Vec::new(),
        }
    }

    /// Where the next record comes to lie.
    pub(super) fn position(&self) -> Position {
        (self.sequence, self.at)
    }

    /// Adds a record, which is read only after [`Log::flush`].
    ///
    /// # Errors
    /// What was not written before is lost; the log goes on where it was.
    pub(super) fn append(&mut self, record: &Record<'_>) -> io::Result<()> {
        let octets = ((RECORD_HEADER + record.packet.len()) as u64).next_multiple_of(UNIT);
        let ends = self.at + octets + ((self.entries.len() + KEYS) * ENTRY + BLOCK) as u64;
        if !self.is_begun || ends > self.shared.segment_octets {
            self.begin_next()?;
        }
        if self.buffer.len() + RECORD_HEADER + record.packet.len() > WRITE_MAX {
            self.flush()?;
        }
        let header = RecordHeader {
            // Not longer than a packet may be.
            len: u32::try_from(record.packet.len()).unwrap_or(u32::MAX),
            sequence: self.sequence,
            hash: record.keys[0],
            fresh_until_ms: record.fresh_until_ms,
            sum: checksum(&self.shared.hash, record.packet),
            is_erased: false,
        };
        self.buffer.extend(header.encode(&self.shared.hash));
        self.buffer.extend(record.packet);
        self.note(record);
        self.at += octets;
        let padded = self.buffer.len().next_multiple_of(64);
        self.buffer.resize(padded, 0);
        Ok(())
    }

    /// Notes what leads to the record that begins at `at`.
    fn note(&mut self, record: &Record<'_>) {
        let entry = Entry {
            hash: record.keys[0],
            // A segment has less than 256 GiB.
            unit: u32::try_from(self.at / UNIT).unwrap_or(u32::MAX),
            octets: u16::try_from(RECORD_HEADER + record.packet.len()).unwrap_or(u16::MAX),
            is_below: false,
            is_stale: record.fresh_until_ms == 0,
        };
        self.entries.push(entry);
        for (level, hash) in record.keys[1..].iter().copied().enumerate().filter(|(_, hash)| *hash != 0) {
            let below = Entry { hash, is_below: true, ..entry };
            match self.below[level].filter(|&last| self.entries[last].hash == hash) {
                Some(last) => {
                    self.entries[last] = below;
                    if last < self.linked {
                        self.moved.push(last);
                    }
                }
                None => {
                    self.below[level] = Some(self.entries.len());
                    self.entries.push(below);
                }
            }
        }
    }

    /// Writes what was added, and has it found.
    ///
    /// # Errors
    /// It is lost then, and the log goes on where it began.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let from = self.at - self.buffer.len() as u64;
        let written = self.shared.file.write_all_at(&self.buffer, self.shared.begin_of(self.segment) + from);
        match &written {
            Ok(()) => {
                let new = self.linked..self.entries.len();
                let packets = self.entries[new.clone()].iter().filter(|entry| !entry.is_below).count();
                add(&self.shared.counters.writes, packets);
                add(&self.shared.counters.written_octets, self.buffer.len());
                self.shared.used[self.segment].store(self.at, Ordering::Relaxed);
                for entry in self.moved.drain(..).chain(new) {
                    self.shared.link(self.segment, &self.entries[entry]);
                }
                self.linked = self.entries.len();
            }
            Err(_) => {
                self.at = from;
                self.entries.truncate(self.linked);
                self.below = [None; LEVELS];
                self.moved.clear();
            }
        }
        self.buffer.clear();
        written
    }

    /// Ends the segment: writes what leads to its records, so that they need not be read to be found again.
    ///
    /// # Errors
    /// The next one who opens the file reads the segment's records then.
    pub(super) fn end(&mut self) -> io::Result<()> {
        self.flush()?;
        if !self.is_begun {
            return Ok(());
        }
        let entries: Vec<u8> = self.entries.iter().flat_map(Entry::encode).collect();
        let trailer = Trailer {
            sequence: self.sequence,
            entries: u32::try_from(self.entries.len()).unwrap_or(0),
            end: self.at,
            sum: checksum(&self.shared.hash, &entries),
        };
        let end = self.shared.begin_of(self.segment) + self.shared.segment_octets;
        let tail = [&entries[..], &trailer.encode(&self.shared.hash)].concat();
        if self.at + tail.len() as u64 > self.shared.segment_octets {
            // Only of a file that was not written by us: its records come first, and are searched for.
            return Ok(());
        }
        self.shared.file.write_all_at(&tail, end - tail.len() as u64)
    }

    /// Begins the next segment, in the place of the oldest.
    fn begin_next(&mut self) -> io::Result<()> {
        if self.is_begun {
            let ended = self.end();
            self.is_begun = false;
            self.segment = (self.segment + 1) % self.shared.sequences.len();
            ended?;
        }
        self.shared.forget(self.segment);
        let sequence = self.shared.sequences.iter().map(|sequence| sequence.load(Ordering::Relaxed)).max();
        self.sequence = sequence.unwrap_or(0) + 1;
        // Before anything is overwritten: who reads what was there sees that it is gone.
        self.shared.sequences[self.segment].store(self.sequence, Ordering::Release);
        self.shared.used[self.segment].store(0, Ordering::Relaxed);
        (self.at, self.linked, self.below) = (BLOCK as u64, 0, [None; LEVELS]);
        self.entries.clear();
        let header = segment_header(&self.shared.hash, self.sequence);
        self.shared.file.write_all_at(&header, self.shared.begin_of(self.segment))?;
        self.is_begun = true;
        Ok(())
    }

    /// The segment that the log begins with.
    pub(super) fn oldest(&self) -> u64 {
        let sequences = self.shared.sequences.iter().map(|sequence| sequence.load(Ordering::Relaxed));
        sequences.filter(|&sequence| sequence > 0).min().unwrap_or(0)
    }
}
