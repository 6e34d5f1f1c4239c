//! Erasing some packets of a prefix: the log is read from its beginning to its end, some of it at a time, for records of that
//! prefix that the index leads to. A mark would erase all of them.
//!
//! The header of a record that is erased is written anew and says so. When the index is made again from the lists behind the
//! segments, it leads to that record, and not to an older one of the same name.

use std::os::unix::fs::FileExt as _;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use kaido_wire::ndn::Data;

use super::format::{BLOCK, RECORD_HEADER, RECORD_MAX, RecordHeader, UNIT};
use super::load::Window;
use super::shared::TierState;
use super::tombstones::Position;
use super::{Order, TierControl, Writer};

/// How far a search for what is to be erased has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierSearch {
    next: Position,
}

/// A record that is to be erased.
#[derive(Clone, Copy, Debug)]
pub(super) struct EraseCandidate {
    segment: usize,
    /// Where in the segment.
    at: u64,
    header: RecordHeader,
}

impl TierControl {
    /// Erases up to `most` packets of a prefix, what workers have [sent](super::TierHandle) before among them, until `until`: how many,
    /// and whether the log's end was reached. `search` is where this one begins, and then where the next goes on. Reads some of
    /// the log whatever the time is.
    pub fn erase_some(
        &self,
        prefix: &[u8],
        search: &mut TierSearch,
        most: u64,
        until: Instant,
    ) -> (u64, bool) {
        if *search == TierSearch::default() {
            // What was sent before is in the log when the writer comes to this.
            self.condemn(Vec::new());
        }
        let mut erased = 0;
        while erased < most {
            let (found, is_end) = self.shared.condemned(prefix, search, most - erased, until);
            erased += self.condemn(found);
            if is_end || Instant::now() >= until {
                return (erased, is_end);
            }
        }
        (erased, false)
    }

    /// Has the writer erase records; how many were still there.
    fn condemn(&self, records: Vec<EraseCandidate>) -> u64 {
        let (done, erased) = sync_channel(1);
        let order = Order::Condemn(records, done);
        // Only when the writer is gone does nothing come.
        self.orders.send(order).ok().and_then(|()| erased.recv().ok()).unwrap_or(0)
    }
}

impl Writer {
    /// Erases records; how many of them were not overwritten before.
    pub(super) fn condemn(&self, records: &[EraseCandidate]) -> u64 {
        let mut erased = 0;
        for EraseCandidate { segment, at, header } in records {
            let shared = &self.shared;
            if shared.sequences[*segment].load(Ordering::Relaxed) != header.sequence {
                continue;
            }
            let place = shared.begin_of(*segment) + at;
            let gone = RecordHeader { is_erased: true, ..*header }.encode(&shared.hash);
            if let Err(error) = shared.file.write_all_at(&gone, place) {
                shared.complain("written", &error);
                continue;
            }
            if let Some(known) = shared.leads(header.hash, false, place) {
                shared.unlink(header.hash, known);
            }
            erased += 1;
        }
        erased
    }
}

impl TierState {
    /// The records of a prefix from where a search is on, up to `most`; whether the log's end was reached.
    fn condemned(
        &self,
        prefix: &[u8],
        search: &mut TierSearch,
        most: u64,
        until: Instant,
    ) -> (Vec<EraseCandidate>, bool) {
        let mut found = Vec::new();
        let sequences = self.sequences.iter().map(|sequence| sequence.load(Ordering::Acquire));
        let mut segments: Vec<(u64, usize)> = sequences.zip(0..).collect();
        segments.retain(|&(sequence, _)| sequence > 0 && sequence >= search.next.0);
        segments.sort_unstable();
        for (sequence, segment) in segments {
            let mut window = Window::of(self, segment);
            let from = if sequence == search.next.0 { search.next.1 } else { 0 };
            let mut at = from.max(BLOCK as u64);
            while at + RECORD_HEADER as u64 <= self.used[segment].load(Ordering::Acquire) {
                let record = match window.get(at, RECORD_MAX) {
                    Ok(record) => record,
                    Err(error) => {
                        self.complain("read", &error);
                        break;
                    }
                };
                let header = RecordHeader::decode(&self.hash, record);
                let Some(header) = header.filter(|header| header.sequence == sequence) else {
                    // Damaged, or overwritten by now.
                    at += UNIT;
                    continue;
                };
                if self.is_condemned(prefix, segment, at, &header, record) {
                    found.push(EraseCandidate { segment, at, header });
                }
                at += header.octets();
                search.next = (sequence, at);
                if found.len() as u64 >= most || Instant::now() >= until {
                    return (found, false);
                }
            }
        }
        (found, true)
    }

    /// Whether a record is found today, and has the prefix.
    fn is_condemned(
        &self,
        prefix: &[u8],
        segment: usize,
        at: u64,
        header: &RecordHeader,
        record: &[u8],
    ) -> bool {
        if header.is_erased || self.leads(header.hash, false, self.begin_of(segment) + at).is_none() {
            return false;
        }
        let packet = header.packet(&self.hash, record);
        let data = packet.and_then(|packet| Data::parse(packet, packet.len()).ok());
        let marks = self.marks.read().unwrap_or_else(PoisonError::into_inner);
        data.is_some_and(|data| {
            let name = data.name.value();
            name.starts_with(prefix) && !marks.has_erased((header.sequence, at), name)
        })
    }
}
