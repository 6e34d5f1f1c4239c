//! The journal itself as the store of a node, over a folder that a machine leaves as a disk may have it.
//!
//! ```text
//!  flush ─▶ written ─ sync ─▶ durable
//!                └─ the machine ends: of each sector behind the last sync, the disk has it or not
//! ```

use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kaido_store::{Durability, Journal, Kind, Recorder, StoreConfig, StoreError};

use crate::disk::{Kept, SyncTimer};
use crate::random::Random;

/// Octets that a disk writes together.
const SECTOR: u64 = 512;
/// Of a million files that were never synced, those that are not in their folder after the machine's end.
const FILE_IS_GONE: u64 = 200_000;
/// Of a million files, those whose length is not that of what was written.
const FILE_IS_SHORT: u64 = 300_000;
/// Of a million sectors, those that the disk does not have.
const SECTOR_IS_LOST: u64 = 400_000;

/// The journal over a folder.
#[derive(Debug)]
pub(crate) struct JournalStore {
    folder: PathBuf,
    durability: Durability,
    journal: Option<Journal>,
    /// The number that the next batch has.
    next: u64,
    /// Batches that are not durable, oldest first, by their numbers and where they end in the file that is written to.
    written: VecDeque<(u64, u64)>,
    /// Octets of that file that are durable.
    durable: u64,
    sync: SyncTimer,
}

impl JournalStore {
    /// In a folder, which is made if it is not there.
    pub(crate) fn new(folder: &Path, durability: Durability) -> Self {
        Self {
            folder: folder.to_path_buf(),
            durability,
            journal: None,
            next: 1,
            written: VecDeque::new(),
            durable: 0,
            sync: SyncTimer::default(),
        }
    }

    /// What is there at a start, and who records from here on.
    pub(crate) fn open(&mut self) -> Result<(Kept, Recorder), String> {
        let config = StoreConfig { folder: self.folder.clone(), durability: self.durability, boot: 1 };
        let failed = |error: StoreError| error.to_string();
        let (mut journal, recovery) = kaido_store::open(config).map_err(failed)?;
        let mut kept = Kept::new();
        for kind in Kind::ALL {
            let read = recovery.read(kind, |key, value| {
                kept.insert((kind, key), value.to_vec());
                Ok::<_, StoreError>(())
            });
            read.map_err(failed)?;
        }
        recovery.start_without_syncs(&mut journal).map_err(failed)?;
        self.next = journal.unwritten();
        let recorder = journal.recorder();
        self.journal = Some(journal);
        Ok((kept, recorder))
    }

    /// Writes what was recorded; the number of the last batch, or of the next where it cannot be written.
    pub(crate) fn flush(&mut self) -> u64 {
        let Some(journal) = &mut self.journal else { return 0 };
        let Ok(number) = journal.flush() else { return self.next };
        if number >= self.next && self.durability == Durability::Disk {
            let end = self.segment().map_or(0, |segment| length(&segment));
            self.written.push_back((number, end));
        }
        self.next = number + 1;
        number
    }

    /// The file that is written to: the last of the journal's.
    fn segment(&self) -> Option<PathBuf> {
        let files = fs::read_dir(&self.folder).ok()?.flatten().map(|entry| entry.path());
        let is_segment = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("journal-"))
        };
        files.filter(is_segment).max()
    }

    pub(crate) const fn next_number(&self) -> u64 {
        self.next
    }

    pub(crate) fn is_durable(&self, number: u64) -> bool {
        self.journal.as_ref().is_none_or(|journal| journal.is_durable(number))
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.written.is_empty()
    }

    /// Time has passed: a sync ends, which brings all to the disk that is written by then.
    pub(crate) fn turn(&mut self, now: Duration, random: &mut Random) {
        if self.sync.ended(now).is_some()
            && let Some(journal) = &self.journal
        {
            journal.sync();
            if let Some((_, end)) = self.written.drain(..).next_back() {
                self.durable = end;
            }
        }
        let last = self.written.back().map(|&(number, _)| number);
        self.sync.begin(now, last, random);
    }

    /// The process ends; the next start brings to the disk what it finds.
    pub(crate) fn crash_process(&mut self) {
        self.journal = None;
        self.written.clear();
        self.durable = 0;
        self.sync = SyncTimer::default();
    }

    /// The machine ends: how many batches that were not durable are there still.
    pub(crate) fn crash_machine(&mut self, random: &mut Random) -> Result<u64, String> {
        let (written, durable) = (std::mem::take(&mut self.written), self.durable);
        self.crash_process();
        let Some(segment) = self.segment().filter(|_| !written.is_empty()) else { return Ok(0) };
        let whole = lose(&segment, durable, random).map_err(|error| error.to_string())?;
        let survive = written.iter().filter(|(_, end)| *end <= whole).count();
        self.next -= (written.len() - survive) as u64;
        Ok(survive as u64)
    }
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}

/// Takes from a file what a disk may not have of it, behind what is durable: up to which octet it is as it was written.
fn lose(path: &Path, durable: u64, random: &mut Random) -> io::Result<u64> {
    if durable == 0 && random.happens(FILE_IS_GONE) {
        fs::remove_file(path)?;
        return Ok(0);
    }
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut len = file.metadata()?.len();
    if random.happens(FILE_IS_SHORT) {
        len = durable + random.below(len - durable + 1);
        file.set_len(len)?;
    }
    let mut whole = len;
    let mut at = durable;
    while at < len {
        let end = len.min((at / SECTOR + 1) * SECTOR);
        if random.happens(SECTOR_IS_LOST)
            && let Some(first) = blank(&file, at, end)?
        {
            whole = whole.min(first);
        }
        at = end;
    }
    Ok(whole)
}

/// Fills octets with zeros: which is the first that had something else.
fn blank(file: &File, from: u64, to: u64) -> io::Result<Option<u64>> {
    let mut octets = vec![0; usize::try_from(to - from).map_err(io::Error::other)?];
    file.read_exact_at(&mut octets, from)?;
    let first = (from..).zip(&octets).find(|(_, octet)| **octet != 0).map(|(at, _)| at);
    octets.fill(0);
    file.write_all_at(&octets, from)?;
    Ok(first)
}
