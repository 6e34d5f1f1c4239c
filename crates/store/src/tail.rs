//! What the journal has beyond the snapshot.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;

use crate::change::{Kind, changes};
use crate::error::StoreError;
use crate::segment::Segment;

/// What segments have beyond a snapshot.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) changes: BTreeMap<(Kind, u64), Option<Box<[u8]>>>,
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
            let (batches, end) = segment.batches();
            for batch in batches {
                durable = durable.max(batch.durable);
                if batch.number <= tail.last {
                    continue;
                }
                if batch.number > tail.last + 1 {
                    // A segment before it lacks its end. Where nothing says that it was durable, this was not either.
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
