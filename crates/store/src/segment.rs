//! A segment of the journal: a file of batches, each written at once.
//!
//! ```text
//!  header (64):  magic · format · store · number · first batch · crc
//!  batch:        magic · crc · number · durable · length │ changes
//! ```
//! Numbers of batches rise by one, over all segments. `durable` is the last batch that was known to be durable when this
//! one was written. So octets that went wrong where nothing was promised can be told from those that were acknowledged.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::place::{FORMAT, SEGMENT};

/// Octets of a segment's header.
pub(crate) const HEADER: usize = 64;
/// Octets before the changes of a batch.
pub(crate) const BATCH_HEADER: usize = 32;
const MAGIC: [u8; 8] = *b"KAIDOJNL";
const BATCH_MAGIC: [u8; 4] = *b"KBAT";

/// What a segment says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// The store that it belongs to.
    pub(crate) store: u64,
    pub(crate) number: u64,
    /// The number that its first batch has or would have.
    pub(crate) first_batch: u64,
}

impl SegmentHeader {
    pub(crate) fn octets(&self) -> [u8; HEADER] {
        let mut octets = [0; HEADER];
        octets[..8].copy_from_slice(&MAGIC);
        octets[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        for (at, number) in [(16, self.store), (24, self.number), (32, self.first_batch)] {
            octets[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        let crc = crc32c::crc32c(&octets[..HEADER - 4]);
        octets[HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
        octets
    }

    /// Reads a header; `None` of what was never one, or not written whole.
    fn read(octets: &[u8], path: &Path) -> Result<Option<Self>, StoreError> {
        let Some(octets) = octets.first_chunk::<HEADER>() else { return Ok(None) };
        let [.., c0, c1, c2, c3] = *octets;
        let is_whole = crc32c::crc32c(&octets[..HEADER - 4]) == u32::from_le_bytes([c0, c1, c2, c3]);
        if octets[..8] != MAGIC || !is_whole {
            return Ok(None);
        }
        let found = u32_at(octets, 8);
        if found != FORMAT {
            return Err(StoreError::Format { path: path.to_owned(), found, known: FORMAT });
        }
        Ok(Some(Self {
            store: u64_at(octets, 16),
            number: u64_at(octets, 24),
            first_batch: u64_at(octets, 32),
        }))
    }
}

/// What checksums of a store's batches begin with. The number of a store is random, so that nobody who can have octets written
/// into a batch can have them look like one.
fn seed(store: u64) -> u32 {
    crc32c::crc32c(&store.to_le_bytes())
}

/// The header of a batch of these changes.
pub(crate) fn batch_header(store: u64, number: u64, durable: u64, changes: &[u8]) -> [u8; BATCH_HEADER] {
    let mut octets = [0; BATCH_HEADER];
    octets[..4].copy_from_slice(&BATCH_MAGIC);
    octets[8..16].copy_from_slice(&number.to_le_bytes());
    octets[16..24].copy_from_slice(&durable.to_le_bytes());
    // A batch of 4 GiB is none: the journal bounds them far below.
    octets[24..28].copy_from_slice(&u32::try_from(changes.len()).unwrap_or(u32::MAX).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c_append(seed(store), &octets[8..]), changes);
    octets[4..8].copy_from_slice(&crc.to_le_bytes());
    octets
}

/// A batch as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Batch<'s> {
    pub(crate) number: u64,
    pub(crate) durable: u64,
    pub(crate) changes: &'s [u8],
}

impl<'s> Batch<'s> {
    /// The batch that begins here, if there is a whole one.
    fn read(store: u64, octets: &'s [u8]) -> Option<Self> {
        let (header, rest) = octets.split_first_chunk::<BATCH_HEADER>()?;
        if header[..4] != BATCH_MAGIC {
            return None;
        }
        let changes = rest.get(..u32_at(header, 24) as usize)?;
        let crc = crc32c::crc32c_append(crc32c::crc32c_append(seed(store), &header[8..]), changes);
        (crc == u32_at(header, 4)).then(|| Self {
            number: u64_at(header, 8),
            durable: u64_at(header, 16),
            changes,
        })
    }

    fn len(&self) -> usize {
        BATCH_HEADER + self.changes.len()
    }
}

/// A segment in memory.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) path: PathBuf,
    /// As it is, or would be of these batches.
    pub(crate) header: SegmentHeader,
    /// Its header is as it was written.
    pub(crate) is_header_whole: bool,
    octets: Vec<u8>,
}

/// How the batches of a segment end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// Behind the last whole batch.
    pub(crate) at: usize,
    /// The number of the batch that would be next.
    pub(crate) next: u64,
    /// Octets behind that are not zero.
    pub(crate) garbage: usize,
    /// The last batch that any batch behind says to be durable.
    pub(crate) durable: u64,
}

impl Segment {
    /// Reads a segment of a store. What is behind a header that is not whole may have been acknowledged, if that went wrong
    /// later: each batch tells its number itself.
    ///
    /// # Errors
    /// When the file cannot be read, or is of another format.
    pub(crate) fn read(path: &Path, number: u64, store: Option<u64>) -> Result<Self, StoreError> {
        let octets = fs::read(path).map_err(StoreError::file(path, "read the journal"))?;
        Self::of_octets(octets, path, number, store)
    }

    /// The same of a file that is open, and may have been deleted.
    ///
    /// # Errors
    /// As [`Segment::read`].
    pub(crate) fn read_open(
        file: &File,
        path: &Path,
        number: u64,
        store: Option<u64>,
    ) -> Result<Self, StoreError> {
        let read = || {
            let len = usize::try_from(file.metadata()?.len()).map_err(std::io::Error::other)?;
            let mut octets = vec![0; len];
            file.read_exact_at(&mut octets, 0)?;
            Ok(octets)
        };
        Self::of_octets(read().map_err(StoreError::file(path, "read the journal"))?, path, number, store)
    }

    fn of_octets(octets: Vec<u8>, path: &Path, number: u64, store: Option<u64>) -> Result<Self, StoreError> {
        let header = SegmentHeader::read(&octets, path)?;
        let is_header_whole = header.is_some();
        let header = header.unwrap_or_else(|| {
            let store = store.unwrap_or(0);
            let first = octets.get(HEADER..).and_then(|octets| Batch::read(store, octets));
            SegmentHeader { store, number, first_batch: first.map_or(0, |batch| batch.number) }
        });
        Ok(Self { path: path.to_owned(), header, is_header_whole, octets })
    }

    /// The batches in front, up to what is none, and how they end.
    pub(crate) fn batches(&self) -> (Vec<Batch<'_>>, End) {
        let mut batches = Vec::new();
        let (mut at, mut next) = (HEADER.min(self.octets.len()), self.header.first_batch);
        while let Some(batch) =
            Batch::read(self.header.store, &self.octets[at..]).filter(|batch| batch.number == next)
        {
            at += batch.len();
            next += 1;
            batches.push(batch);
        }
        let behind = &self.octets[at..];
        let garbage = behind.iter().rposition(|&octet| octet != 0).map_or(0, |last| last + 1);
        let durable = later_batches(self.header.store, &behind[..garbage], next)
            .map(|batch| batch.durable)
            .max()
            .unwrap_or(0);
        (batches, End { at, next, garbage, durable })
    }

    /// All whole batches, those behind octets that are none too.
    pub(crate) fn every_batch(&self) -> Vec<Batch<'_>> {
        let (mut batches, End { at, next, garbage, .. }) = self.batches();
        batches.extend(later_batches(self.header.store, &self.octets[at..at + garbage], next));
        batches
    }

    /// The octets of its file.
    pub(crate) fn len(&self) -> usize {
        self.octets.len()
    }
}

/// The whole batches anywhere in octets that have a number from `next` on.
fn later_batches(store: u64, octets: &[u8], next: u64) -> impl Iterator<Item = Batch<'_>> {
    let starts = octets.windows(BATCH_MAGIC.len()).enumerate().filter(|(_, octets)| **octets == BATCH_MAGIC);
    starts.filter_map(move |(at, _)| Batch::read(store, &octets[at..]).filter(|batch| batch.number >= next))
}

/// The file of a segment.
pub(crate) fn path_of(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{SEGMENT}{number:016x}"))
}

/// The number of a segment, by the name of its file.
pub(crate) fn number_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    u64::from_str_radix(name.strip_prefix(SEGMENT)?, 16).ok()
}

/// The segments in a folder, by their numbers.
///
/// # Errors
/// When the folder cannot be read.
pub(crate) fn list(folder: &Path) -> Result<Vec<(u64, PathBuf)>, StoreError> {
    let entries = fs::read_dir(folder).map_err(StoreError::file(folder, "list the journal"))?;
    let mut found: Vec<_> =
        entries.flatten().filter_map(|entry| Some((number_of(&entry.path())?, entry.path()))).collect();
    found.sort_unstable();
    Ok(found)
}

fn u32_at(octets: &[u8], at: usize) -> u32 {
    octets.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn u64_at(octets: &[u8], at: usize) -> u64 {
    octets.get(at..at + 8).and_then(|eight| eight.try_into().ok()).map_or(0, u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: SegmentHeader = SegmentHeader { store: 9, number: 3, first_batch: 5 };

    fn segment(octets: Vec<u8>) -> Segment {
        Segment { path: PathBuf::new(), header: HEAD, is_header_whole: true, octets }
    }

    /// Batches 5 to 7, the last of which knows that the fifth is durable.
    fn written() -> Vec<u8> {
        let mut octets = HEAD.octets().to_vec();
        for (number, durable, changes) in [(5, 4, &b"one"[..]), (6, 4, b"two two"), (7, 5, b"three")] {
            octets.extend_from_slice(&batch_header(HEAD.store, number, durable, changes));
            octets.extend_from_slice(changes);
        }
        octets
    }

    #[test]
    fn a_header_is_read_whole_or_not_at_all() {
        let octets = HEAD.octets();
        let path = Path::new("x");
        assert_eq!(SegmentHeader::read(&octets, path).unwrap(), Some(HEAD));
        for at in 0..HEADER {
            let mut changed = octets;
            changed[at] ^= 1;
            assert_eq!(SegmentHeader::read(&changed, path).unwrap(), None, "octet {at}");
            assert_eq!(SegmentHeader::read(&octets[..at], path).unwrap(), None);
        }
        let mut other = octets;
        other[8] = 2;
        let crc = crc32c::crc32c(&other[..HEADER - 4]);
        other[HEADER - 4..].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(SegmentHeader::read(&other, path), Err(StoreError::Format { found: 2, .. })));
    }

    #[test]
    fn batches_end_where_octets_do_or_are_zero() {
        let octets = written();
        for zeros in [0, 1, 5000] {
            let padded = segment([&octets[..], &vec![0; zeros]].concat());
            let (batches, end) = padded.batches();
            assert_eq!(
                batches.iter().map(|batch| batch.changes).collect::<Vec<_>>(),
                [&b"one"[..], b"two two", b"three"]
            );
            assert_eq!(end, End { at: octets.len(), next: 8, garbage: 0, durable: 0 });
        }
    }

    #[test]
    fn every_prefix_and_every_change_of_an_octet_gives_the_batches_before_it() {
        let octets = written();
        let starts = [HEADER, HEADER + 35, HEADER + 74, octets.len()];
        let before = |at: usize| starts.iter().filter(|&&start| start <= at).count() - 1;
        for at in HEADER..octets.len() {
            let cut = segment(octets[..at].to_vec());
            let (batches, end) = cut.batches();
            assert_eq!((batches.len(), end.durable), (before(at), 0), "cut at {at}");
            let mut changed = octets.clone();
            changed[at] ^= 0x10;
            let changed = segment(changed);
            let (batches, end) = changed.batches();
            assert_eq!(batches.len(), before(at), "changed at {at}");
            // The last batch says that the fifth was durable, which shows where that is lost.
            let told = if before(at) == 2 { 0 } else { 5 };
            assert_eq!(end.durable, told, "changed at {at}");
        }
    }
}
