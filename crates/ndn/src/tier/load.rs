//! What a file says when it is opened: where its segments' records are, by what stands behind them; and in a segment that
//! was not ended in order, by its records themselves.

use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering;

use kaido_ndn_tables::{DEPTH_MAX, Prefixes};
use kaido_wire::ndn::Data;

use super::format::{
    BLOCK, ENTRY, Entry, KEYS, RECORD_HEADER, RECORD_MAX, RecordHeader, Trailer, UNIT, checksum,
    segment_sequence,
};
use super::log::Resumed;
use super::shared::{TierState, add};

/// Octets that are read at once of a segment that is searched.
const WINDOW: usize = 1 << 20;

/// The hashes by which a packet is found: of its name, and of its prefixes of up to three components fewer.
pub(super) fn keys_of(prefixes: &Prefixes) -> [u64; KEYS] {
    let mut keys = [0; KEYS];
    keys[0] = prefixes.whole();
    for (level, key) in keys.iter_mut().enumerate().skip(1) {
        let depth = prefixes.components().saturating_sub(level);
        if depth > 0 && depth <= DEPTH_MAX {
            *key = prefixes.prefix(depth).0;
        }
    }
    keys
}

/// Octets of a segment, in a window that moves on.
pub(super) struct Window<'s> {
    shared: &'s TierState,
    begin: u64,
    at: u64,
    octets: Vec<u8>,
}

impl<'s> Window<'s> {
    /// At the beginning of a segment.
    pub(super) fn of(shared: &'s TierState, segment: usize) -> Self {
        Self { shared, begin: shared.begin_of(segment), at: 0, octets: Vec::new() }
    }

    /// What there is of `len` octets from `at` on.
    pub(super) fn get(&mut self, at: u64, len: usize) -> io::Result<&[u8]> {
        let end = self.shared.segment_octets.min(at + len as u64);
        if at < self.at || end > self.at + self.octets.len() as u64 {
            let most = self.shared.segment_octets - at.min(self.shared.segment_octets);
            // At most `WINDOW`.
            self.octets.resize(usize::try_from(most).unwrap_or(WINDOW).min(WINDOW), 0);
            let filled = self.shared.read_at(self.begin + at, &mut self.octets)?;
            self.octets.truncate(filled);
            self.at = at;
        }
        let from = usize::try_from(at - self.at).unwrap_or(usize::MAX);
        let octets = self.octets.get(from..).unwrap_or_default();
        Ok(octets.get(..len).unwrap_or(octets))
    }
}

/// What was found in a segment.
#[derive(Debug, Default)]
struct LoadedRecord {
    entries: Vec<Entry>,
    end: u64,
}

impl LoadedRecord {
    /// Leaves of what leads from one prefix the newest alone: no more than there was room for when it was written.
    fn forget_older(&mut self) {
        let mut prefixes = HashSet::new();
        self.entries.reverse();
        self.entries.retain(|entry| !entry.is_below || prefixes.insert(entry.hash));
        self.entries.reverse();
    }
}

impl TierState {
    /// Reads where everything is, and says where the log goes on. What cannot be read is skipped and counted.
    pub(super) fn load(&self) -> Resumed {
        let mut begun = Vec::new();
        for segment in 0..self.sequences.len() {
            match self.block::<BLOCK>(self.begin_of(segment)) {
                Ok(block) => begun.extend(segment_sequence(&self.hash, &block).map(|of| (of, segment))),
                Err(error) => self.complain("read", &error),
            }
        }
        begun.sort_unstable();
        let newest = begun.last().copied();
        let mut resumed = Resumed::default();
        for (sequence, segment) in begun {
            self.sequences[segment].store(sequence, Ordering::Release);
            let is_newest = Some((sequence, segment)) == newest;
            let found = self.found(segment, sequence, is_newest).unwrap_or_else(|error| {
                self.complain("read", &error);
                LoadedRecord { entries: Vec::new(), end: self.segment_octets }
            });
            self.used[segment].store(found.end, Ordering::Relaxed);
            found.entries.iter().for_each(|entry| self.link(segment, entry));
            if is_newest {
                resumed = Resumed { segment, sequence, at: found.end, entries: found.entries };
            }
        }
        resumed
    }

    /// What a segment has. The newest may go on behind what its end says.
    fn found(&self, segment: usize, sequence: u64, is_newest: bool) -> io::Result<LoadedRecord> {
        let listed = self.listed(segment, sequence)?;
        let is_ended = listed.is_some();
        let mut found = listed.unwrap_or(LoadedRecord { entries: Vec::new(), end: BLOCK as u64 });
        if is_newest || !is_ended {
            self.search(segment, sequence, is_ended, &mut found)?;
        }
        Ok(found)
    }

    /// What the end of a segment says that it has; `None` when there is no end, or it is damaged.
    fn listed(&self, segment: usize, sequence: u64) -> io::Result<Option<LoadedRecord>> {
        let end = self.begin_of(segment) + self.segment_octets - BLOCK as u64;
        let trailer = Trailer::decode(&self.hash, &self.block(end)?);
        let Some(trailer) = trailer.filter(|trailer| trailer.sequence == sequence) else { return Ok(None) };
        let len = u64::from(trailer.entries) * ENTRY as u64;
        if trailer.end % UNIT != 0 || !(BLOCK as u64..=self.segment_octets).contains(&trailer.end) {
            return Ok(None);
        }
        // Behind the records, so that what is asked for is bounded by what a segment is.
        if trailer.end + len + BLOCK as u64 > self.segment_octets {
            return Ok(None);
        }
        let mut octets = vec![0; usize::try_from(len).unwrap_or(0)];
        self.read_at(end - len, &mut octets)?;
        if checksum(&self.hash, &octets) != trailer.sum {
            return Ok(None);
        }
        let (entries, _) = octets.as_chunks::<ENTRY>();
        let entries = entries.iter().filter_map(|entry| Entry::decode(entry, self.segment_octets));
        Ok(Some(LoadedRecord { entries: entries.collect(), end: trailer.end }))
    }

    /// Searches a segment for records from where it is known to end: up to the first that is none, or to its very end.
    fn search(
        &self,
        segment: usize,
        sequence: u64,
        is_ended: bool,
        found: &mut LoadedRecord,
    ) -> io::Result<()> {
        let mut window = Window::of(self, segment);
        let (mut at, mut prefixes) = (found.end, Prefixes::default());
        let mut is_lost = false;
        while at + RECORD_HEADER as u64 <= self.segment_octets {
            let record = window.get(at, RECORD_MAX)?;
            let header = RecordHeader::decode(&self.hash, record);
            let Some(header) = header.filter(|header| header.sequence == sequence) else {
                if is_ended || record.len() < RECORD_HEADER {
                    break;
                }
                // Nothing, or a record whose header is damaged: the next may begin anywhere.
                is_lost = true;
                at += UNIT;
                continue;
            };
            let name = header
                .packet(&self.hash, record)
                .and_then(|packet| Data::parse(packet, packet.len()).ok().map(|data| data.name));
            let is_whole = name.is_some_and(|name| prefixes.fill(&self.hash, name.value()).is_ok());
            add(&self.counters.damaged, usize::from(is_lost) + usize::from(!is_whole));
            is_lost = false;
            if is_whole {
                found.entries.extend(entries_of(&header, &prefixes, at));
            }
            at += header.octets();
            found.end = at;
        }
        found.forget_older();
        Ok(())
    }

    /// Takes what leads to the records of a segment out of the index, as it is about to be overwritten. What this misses is
    /// found out when it is looked for.
    pub(super) fn forget(&self, segment: usize) {
        let sequence = self.sequences[segment].load(Ordering::Relaxed);
        if sequence == 0 {
            return;
        }
        let listed = self.listed(segment, sequence).unwrap_or_else(|error| {
            self.complain("read", &error);
            None
        });
        for entry in listed.map(|listed| listed.entries).unwrap_or_default() {
            let at = self.begin_of(segment) + u64::from(entry.unit) * UNIT;
            if let Some(place) = self.leads(entry.hash, entry.is_below, at) {
                self.unlink(entry.hash, place);
            }
        }
    }
}

/// What leads to a record.
fn entries_of(header: &RecordHeader, prefixes: &Prefixes, at: u64) -> impl Iterator<Item = Entry> {
    let entry = Entry {
        hash: 0,
        unit: u32::try_from(at / UNIT).unwrap_or(u32::MAX),
        octets: u16::try_from(RECORD_HEADER + header.len as usize).unwrap_or(u16::MAX),
        is_below: false,
        is_stale: header.fresh_until_ms == 0,
    };
    let keys = keys_of(prefixes).into_iter().enumerate().filter(|(_, hash)| *hash != 0);
    keys.map(move |(level, hash)| Entry { hash, is_below: level > 0, ..entry })
}
