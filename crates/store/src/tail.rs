//! What the journal has beyond the snapshot.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use crate::change::{Kind, changes};
use crate::error::StoreError;
use crate::segment::{HEADER, Segment};
use crate::snapshot::{EVERY_KEY, Snapshot, Total};

/// The last values of what was changed; `None` of what is gone.
pub(crate) type Changes = BTreeMap<(Kind, u64), Option<Box<[u8]>>>;

/// Hands everything of a kind to `each`, in the order of the numbers: what a snapshot has, unless it was changed since.
///
/// # Errors
/// When the snapshot is damaged, and those of `each`.
pub(crate) fn read_over<E: From<StoreError>>(
    snapshot: &Snapshot,
    changes: &Changes,
    kind: Kind,
    each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let total = read_part_over(snapshot, changes, kind, &EVERY_KEY, each)?;
    Ok(snapshot.expect(kind, total)?)
}

/// As [`read_over`], of some numbers; what the rows of the snapshot add up to.
pub(crate) fn read_part_over<E: From<StoreError>>(
    snapshot: &Snapshot,
    changes: &Changes,
    kind: Kind,
    keys: &RangeInclusive<u64>,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<Total, E> {
    let mut newer = changes.range((kind, *keys.start())..=(kind, *keys.end())).peekable();
    let mut put = |key: u64, value: Option<&[u8]>| value.map_or(Ok(()), |value| each(key, value));
    let total = snapshot.read(kind, keys, |key, value| {
        while let Some((&(_, at), changed)) = newer.next_if(|&(&(_, at), _)| at <= key) {
            put(at, changed.as_deref())?;
            if at == key {
                return Ok(());
            }
        }
        put(key, Some(value))
    })?;
    newer.try_for_each(|(&(_, at), changed)| put(at, changed.as_deref()))?;
    Ok(total)
}

/// What segments have beyond a snapshot.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) changes: Changes,
    /// The last batch.
    pub(crate) last: u64,
    /// Octets that are to be cut, and where.
    pub(crate) cut: usize,
    cut_at: Vec<(PathBuf, u64)>,
}

impl Tail {
    /// Reads the batches behind `folded`, up to where they end.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when a batch that was durable is missing.
    pub(crate) fn read(segments: &[Segment], store: u64, folded: u64) -> Result<Self, StoreError> {
        let mut tail = Self { changes: BTreeMap::new(), last: folded, cut: 0, cut_at: Vec::new() };
        let mut durable = 0;
        for segment in segments {
            let damaged = |what| StoreError::Damaged { path: segment.path.clone(), what };
            if segment.header.store != store {
                return Err(damaged("it belongs to another store".to_owned()));
            }
            let (batches, mut end) = segment.batches();
            for batch in batches {
                durable = durable.max(batch.durable);
                if batch.number <= tail.last {
                    continue;
                }
                if batch.number > tail.last + 1 {
                    // A segment before it lacks its end. Where nothing says that it was durable, this was not either; it is
                    // cut, or it would never be folded.
                    (end.garbage, end.at) = (end.garbage + end.at - HEADER, HEADER);
                    break;
                }
                for change in changes(batch.changes) {
                    let change =
                        change.map_err(|error| damaged(format!("batch {}: {error}", batch.number)))?;
                    tail.changes.insert((change.kind, change.key), change.value.map(Into::into));
                }
                tail.last = batch.number;
            }
            durable = durable.max(end.durable);
            if end.garbage > 0 {
                tail.cut += end.garbage;
                tail.cut_at.push((segment.path.clone(), end.at as u64));
            }
        }
        match segments.last() {
            Some(segment) if durable > tail.last => {
                let what = format!("batch {} was on the disk and is not whole", tail.last + 1);
                Err(StoreError::Damaged { path: segment.path.clone(), what })
            }
            _ => Ok(tail),
        }
    }

    /// Cuts off what is behind the last whole batch.
    pub(crate) fn cut_off(&self) -> Result<(), StoreError> {
        for (path, at) in &self.cut_at {
            let cut = || {
                let file = File::options().write(true).open(path)?;
                file.set_len(*at)?;
                file.sync_all()
            };
            cut().map_err(StoreError::file(path, "cut the end of the journal"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::Recorder;
    use crate::segment::{SegmentHeader, batch_header, path_of};

    /// A segment of batches of one change each, `durable` of which was known to be on the disk.
    fn segment(
        folder: &std::path::Path,
        number: u64,
        batches: std::ops::Range<u64>,
        durable: u64,
    ) -> Segment {
        let header = SegmentHeader { store: 9, number, first_batch: batches.start };
        let mut octets = header.octets().to_vec();
        for batch in batches {
            let (recorder, mut changes) = (Recorder::on(), Vec::new());
            recorder.put(Kind::Session, batch, |value| value.push(7));
            recorder.take(&mut changes);
            octets.extend_from_slice(&batch_header(9, batch, durable, &changes));
            octets.extend_from_slice(&changes);
        }
        let path = path_of(folder, number);
        std::fs::write(&path, octets).unwrap();
        Segment::read(&path, number, Some(9)).unwrap()
    }

    #[test]
    fn segments_behind_an_end_that_was_not_written_are_cut() {
        let folder = std::env::temp_dir().join(format!("kaido-store-tail-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // The third batch never came to the disk, and no answer left that needed it.
        let segments = [segment(&folder, 1, 1..3, 0), segment(&folder, 2, 4..6, 2)];
        let tail = Tail::read(&segments, 9, 0).unwrap();
        let behind = segments[1].path.metadata().unwrap().len() - HEADER as u64;
        assert_eq!((tail.last, tail.cut as u64), (2, behind));
        tail.cut_off().unwrap();
        let again = [1, 2].map(|number| Segment::read(&path_of(&folder, number), number, Some(9)).unwrap());
        let tail = Tail::read(&again, 9, 0).unwrap();
        assert_eq!((tail.last, tail.cut), (2, 0));
        // It was acknowledged.
        let segments = [segment(&folder, 1, 1..3, 0), segment(&folder, 2, 4..6, 3)];
        assert!(matches!(Tail::read(&segments, 9, 0), Err(StoreError::Damaged { .. })));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
