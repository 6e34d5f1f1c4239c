//! The journal as the control loop writes it: one batch a turn, and answers leave behind it.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::change::Recorder;
use crate::error::StoreError;
use crate::fold::Folder;
use crate::mark::bring_to_disk;
use crate::place::{Durability, Locks, Place};
use crate::segment::{HEADER, SegmentHeader, batch_header, path_of};
use crate::sync::{Progress, Syncer};

/// Octets of a segment, unless one batch is longer.
pub(crate) const SEGMENT_MAX: u64 = 64 << 20;
/// Octets of changes that wait for a journal that cannot be written, before [`Journal::is_blocked`].
const UNWRITTEN_MAX: usize = 16 << 20;

/// A batch that is written, and not yet known to be durable.
#[derive(Debug)]
struct Written {
    number: u64,
    changes: Arc<[u8]>,
}

/// How the journal is, for an operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStatus {
    /// Batches that were written.
    pub batches: u64,
    /// Octets that were written.
    pub octets: u64,
    /// Segments that wait to be folded into the snapshot.
    pub segments: u64,
    /// Times that a write or a sync failed, or the file was gone.
    pub failures: u64,
    /// Nothing can be written now.
    pub is_failing: bool,
}

/// Writes what was recorded.
#[derive(Debug)]
pub struct Journal {
    place: Place,
    recorder: Recorder,
    /// What was taken from the recorder and is not written.
    batch: Vec<u8>,
    segment: Option<OpenSegment>,
    next_segment: u64,
    next_batch: u64,
    /// What a segment that could not be brought to the disk has beyond the last durable batch.
    written: VecDeque<Written>,
    progress: Arc<Progress>,
    syncer: Option<Syncer>,
    folder: Option<Folder>,
    /// Keep other processes out.
    locks: Option<Locks>,
    octets: u64,
    failures: u64,
    is_failing: bool,
}

#[derive(Debug)]
struct OpenSegment {
    file: Arc<File>,
    path: PathBuf,
    at: u64,
}

impl Journal {
    /// A journal that goes on behind batch `last` in a new segment.
    pub(crate) fn new(place: Place, next_segment: u64, last: u64) -> Self {
        Self {
            recorder: Recorder::on(),
            batch: Vec::new(),
            segment: None,
            next_segment,
            next_batch: last + 1,
            written: VecDeque::new(),
            progress: Arc::new(Progress::at(last, place.durability)),
            syncer: None,
            folder: None,
            locks: None,
            octets: 0,
            failures: 0,
            is_failing: false,
            place,
        }
    }

    /// The number of the store, which no other has.
    pub fn store(&self) -> u64 {
        self.place.store
    }

    /// What a change that was acknowledged survives.
    pub fn durability(&self) -> Durability {
        self.place.durability
    }

    /// The number that the next batch will have.
    pub fn unwritten(&self) -> u64 {
        self.next_batch
    }

    /// Writes what was recorded, and has all of it outlive the machine, whatever the durability. Nothing is written after it.
    ///
    /// # Errors
    /// When it cannot be brought to the disk.
    pub fn finish(&mut self) -> Result<(), StoreError> {
        self.flush()?;
        self.end();
        bring_to_disk(&self.place.folder)
    }

    /// Ends what works beside the control loop.
    fn end(&mut self) {
        drop(self.syncer.take());
        if self.progress.has_lost_file() {
            // What is in it goes with the process, unless it is folded.
            self.close();
        }
        drop(self.folder.take());
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Starts what works beside the control loop.
    pub(crate) fn start(&mut self, syncer: Option<Syncer>, folder: Folder, locks: Locks) {
        (self.syncer, self.folder, self.locks) = (syncer, Some(folder), Some(locks));
    }

    /// Takes down changes for this journal.
    pub fn recorder(&self) -> Recorder {
        self.recorder.clone()
    }

    /// Writes what was recorded, as one batch, and says which number the last batch has: what was recorded before this is
    /// durable when [`Journal::is_durable`] says so of it.
    ///
    /// # Errors
    /// When the file cannot be written. What was recorded is kept, and written by the next call that can.
    pub fn flush(&mut self) -> Result<u64, StoreError> {
        if self.progress.has_failed() {
            self.rewrite();
        }
        if self.batch.is_empty() {
            self.recorder.take(&mut self.batch);
        } else {
            let mut more = Vec::new();
            self.recorder.take(&mut more);
            self.batch.append(&mut more);
        }
        if !self.batch.is_empty() {
            let written = self.write();
            self.is_failing = written.is_err();
            self.failures += u64::from(self.is_failing);
            written?;
        }
        self.recorder.wrote_all();
        Ok(self.next_batch - 1)
    }

    /// Whether a batch is as durable as was promised.
    pub fn is_durable(&self, number: u64) -> bool {
        match self.place.durability {
            Durability::Process => number < self.next_batch,
            Durability::Disk => self.progress.durable() >= number,
        }
    }

    /// Brings what was written to the disk: of a journal [that has no thread for it](crate::Recovery::start_without_syncs). A failure
    /// is told once in the log, and what was written since the sync before is written again by [`Journal::flush`].
    pub fn sync(&self) {
        self.progress.sync(&self.place.folder);
    }

    /// Whether so much waits to be written that no further change may be made.
    pub fn is_blocked(&self) -> bool {
        self.batch.len() > UNWRITTEN_MAX
    }

    /// How it is.
    pub fn status(&self) -> JournalStatus {
        JournalStatus {
            batches: self.next_batch - 1,
            octets: self.octets,
            segments: self.folder.as_ref().map_or(0, Folder::waiting),
            failures: self.failures + self.progress.failures(),
            is_failing: self.is_failing || self.progress.is_failing(),
        }
    }

    fn write(&mut self) -> Result<(), StoreError> {
        let changes = std::mem::take(&mut self.batch);
        let written = self.append(self.next_batch, &changes);
        match written {
            Ok(()) => {
                self.keep(&changes);
                self.next_batch += 1;
                self.progress.wrote(self.next_batch - 1);
                self.batch = changes;
                self.batch.clear();
                Ok(())
            }
            Err(error) => {
                self.batch = changes;
                Err(error)
            }
        }
    }

    /// Keeps a batch that may have to be written again, and forgets those that are durable.
    fn keep(&mut self, changes: &[u8]) {
        if self.place.durability == Durability::Process {
            return;
        }
        let durable = self.progress.durable();
        while self.written.front().is_some_and(|written| written.number <= durable) {
            self.written.pop_front();
        }
        self.written.push_back(Written { number: self.next_batch, changes: changes.into() });
    }

    /// A sync has failed, or the file was deleted. Whatever the kernel says of that file from now on, what was written to it since
    /// the last sync that succeeded may be lost. It is written again, to another.
    fn rewrite(&mut self) {
        let durable = self.progress.durable();
        let again = std::mem::take(&mut self.written);
        self.close();
        let mut failed = false;
        for Written { number, changes } in again.into_iter().filter(|written| written.number > durable) {
            failed = failed || self.append(number, &changes).is_err();
            self.written.push_back(Written { number, changes });
        }
        // Else it is tried once more by the next turn.
        if !failed {
            self.progress.rewrote(self.next_batch - 1);
        }
    }

    /// Writes a batch behind the others.
    fn append(&mut self, number: u64, changes: &[u8]) -> Result<(), StoreError> {
        let durable = match self.place.durability {
            Durability::Process => number - 1,
            Durability::Disk => self.progress.durable(),
        };
        let header = batch_header(self.place.store, number, durable, changes);
        let len = (header.len() + changes.len()) as u64;
        if self.segment.as_ref().is_some_and(|segment| segment.at + len > SEGMENT_MAX) {
            self.close();
        }
        let segment = match &mut self.segment {
            Some(segment) => segment,
            None => {
                let opened = self.begin(number)?;
                self.segment.insert(opened)
            }
        };
        let failed = |what| StoreError::file(&segment.path, what);
        segment
            .file
            .write_all_at(changes, segment.at + header.len() as u64)
            .map_err(failed("write the journal"))?;
        segment.file.write_all_at(&header, segment.at).map_err(failed("write the journal"))?;
        segment.at += len;
        self.octets += len;
        Ok(())
    }

    /// Begins a segment.
    fn begin(&mut self, first_batch: u64) -> Result<OpenSegment, StoreError> {
        if self.locks.as_ref().is_some_and(|locks| !locks.hold(&self.place.folder)) {
            return Err(StoreError::Taken(self.place.folder.clone()));
        }
        let number = self.next_segment;
        let path = path_of(&self.place.folder, number);
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path);
        let file = file.map_err(StoreError::file(&path, "begin a segment of the journal"))?;
        let header = SegmentHeader { store: self.place.store, number, first_batch };
        file.write_all_at(&header.octets(), 0)
            .map_err(StoreError::file(&path, "begin a segment of the journal"))?;
        self.next_segment += 1;
        let file = Arc::new(file);
        self.progress.opened(&file, &path);
        Ok(OpenSegment { file, path, at: HEADER as u64 })
    }

    /// Ends the segment, which is folded into the snapshot when it is durable.
    fn close(&mut self) {
        if let Some(OpenSegment { path, file, .. }) = self.segment.take()
            && let Some(folder) = &self.folder
        {
            folder.fold(path, Some(file), self.next_batch - 1);
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // What is recorded belongs to answers that were not given.
        self.end();
        drop(self.locks.take());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Kind, changes};
    use crate::segment::Segment;

    #[test]
    fn what_a_sync_has_lost_is_written_again() {
        let folder = std::env::temp_dir().join(format!("kaido-store-journal-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let place = Place { folder: folder.clone(), store: 9, durability: Durability::Disk };
        let mut journal = Journal::new(place, 1, 4);
        let flush = |journal: &mut Journal| {
            journal.recorder().remove(Kind::Peer, 7);
            journal.flush().unwrap()
        };
        let durable = flush(&mut journal);
        assert!(!journal.is_durable(durable));
        journal.sync();
        assert!(durable == 5 && journal.is_durable(durable));
        let last = [flush(&mut journal), flush(&mut journal)][1];
        // A sync of a file without a name fails.
        std::fs::remove_file(path_of(&folder, 1)).unwrap();
        journal.sync();
        assert!(!journal.is_durable(last) && journal.status().is_failing && journal.status().failures == 1);
        assert_eq!(journal.flush().unwrap(), last, "nothing is new");
        journal.sync();
        assert!(last == 7 && journal.is_durable(last) && !journal.status().is_failing);
        let again = Segment::read(&path_of(&folder, 2), 2, Some(9)).unwrap();
        let numbers: Vec<_> = again.batches().0.iter().map(|batch| (batch.number, batch.durable)).collect();
        assert_eq!(numbers, [(6, 5), (7, 5)]);
        drop(journal);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_could_not_be_written_is_written_when_it_can_be() {
        let folder = std::env::temp_dir().join(format!("kaido-store-unwritten-{}", std::process::id()));
        let place = Place { folder: folder.clone(), store: 9, durability: Durability::Process };
        let mut journal = Journal::new(place, 1, 0);
        for failures in 1..3 {
            journal.recorder().remove(Kind::Peer, failures);
            journal.flush().unwrap_err();
            assert_eq!((journal.status().failures, journal.status().is_failing), (failures, true));
        }
        std::fs::create_dir_all(&folder).unwrap();
        assert_eq!(journal.flush().unwrap(), 1);
        assert_eq!((journal.status().failures, journal.status().is_failing), (2, false));
        let written = Segment::read(&path_of(&folder, 1), 1, Some(9)).unwrap();
        let keys: Vec<_> =
            changes(written.batches().0[0].changes).map(|change| change.unwrap().key).collect();
        assert_eq!(keys, [1, 2]);
        drop(journal);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
