//! What of a journal is whole, and what was acknowledged and is not.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::faults::Faults;
use crate::change::changes;
use crate::error::StoreError;
use crate::segment::{Batch, End, Segment, list};
use crate::snapshot::Identity;
use crate::tail::{Changes, Tail};

/// A segment as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SegmentReport {
    /// Its file.
    pub file: PathBuf,
    /// The number of its first batch.
    pub first_batch: u64,
    /// Whole batches in front.
    pub batches: u64,
    /// Octets of the file.
    pub octets: usize,
}

/// What a journal has beyond the snapshot.
#[derive(Debug, Default)]
pub(super) struct JournalSurvey {
    pub(super) segments: Vec<SegmentReport>,
    pub(super) changes: Changes,
    /// The last batch of those that follow the snapshot without a gap.
    pub(super) last_batch: u64,
    /// Octets that a start cuts: nothing in them was acknowledged.
    pub(super) cut: usize,
    /// Batches behind that, from the first that is missing to the last that is known of.
    pub(super) lost: Option<RangeInclusive<u64>>,
    /// The store that it is of.
    pub(super) store: Option<u64>,
}

impl JournalSurvey {
    /// That of the segments in a folder, behind a snapshot if that is known.
    ///
    /// # Errors
    /// When they are of another format, or the folder cannot be read.
    pub(super) fn of(
        folder: &Path,
        identity: Option<Identity>,
        faults: &mut Faults,
    ) -> Result<Self, StoreError> {
        let mut segments = read(folder, identity.map(|identity| identity.store), faults)?;
        let whole = segments.iter().find(|segment| segment.is_header_whole);
        let store = identity.map(|identity| identity.store).or(whole.map(|segment| segment.header.store));
        if identity.is_none() && store.is_some() {
            // Those without a header are read once more, now that it is known whose they are.
            segments = read(folder, store, faults)?;
        }
        let before = faults.count();
        let mut survey = Self { store, ..Self::default() };
        segments.retain(|segment| {
            let ends = segment.batches();
            survey.segments.push(SegmentReport {
                file: segment.path.clone(),
                first_batch: segment.header.first_batch,
                batches: ends.0.len() as u64,
                octets: segment.len(),
            });
            let is_ours = Some(segment.header.store) == store;
            if segment.is_header_whole && !is_ours {
                faults.add(&segment.path, "it belongs to another store");
            } else if !segment.is_header_whole && !segment.every_batch().is_empty() {
                faults.add(&segment.path, "its header is not what was written");
            }
            is_ours
        });
        survey.follow(&segments, identity, faults);
        survey.cut = segments.iter().map(|segment| segment.batches().1.garbage).sum();
        if let Some(Identity { store, folded }) = identity
            && faults.count() == before
        {
            // As a start sees it.
            match Tail::read(&segments, store, folded) {
                Ok(tail) => {
                    (survey.changes, survey.last_batch, survey.cut) = (tail.changes, tail.last, tail.cut);
                }
                Err(error) => faults.add_error(folder, error)?,
            }
        }
        Ok(survey)
    }

    /// Takes the batches from the snapshot on, wherever each is whole, up to the first that is nowhere.
    fn follow(&mut self, segments: &[Segment], identity: Option<Identity>, faults: &mut Faults) {
        let mut batches: BTreeMap<u64, (&Segment, Batch<'_>)> = BTreeMap::new();
        for segment in segments {
            for batch in segment.every_batch() {
                batches.entry(batch.number).or_insert((segment, batch));
            }
        }
        let first = batches.first_key_value().map_or(0, |(&number, _)| number);
        // A change says what something is, and not what is added to it, so more batches than are needed do no harm.
        self.last_batch = identity.map_or(first.saturating_sub(1), |identity| identity.folded);
        while let Some((segment, batch)) = batches.get(&(self.last_batch + 1)) {
            let read: Result<Vec<_>, _> = changes(batch.changes).collect();
            match read {
                Ok(read) => self.changes.extend(
                    read.into_iter().map(|change| ((change.kind, change.key), change.value.map(Into::into))),
                ),
                Err(error) => {
                    faults.add(&segment.path, format!("batch {}: {error}", batch.number));
                    self.lost = Some(batch.number..=batch.number);
                    break;
                }
            }
            self.last_batch += 1;
        }
        let durable = batches.values().map(|(_, batch)| batch.durable).max().unwrap_or(0);
        if durable <= self.last_batch && self.lost.is_none() {
            return;
        }
        let known = batches.last_key_value().map_or(0, |(&number, _)| number).max(durable);
        self.lost = Some(self.last_batch + 1..=known);
        let mut next = self.last_batch + 1;
        let behind = batches.range(next..).map(|(&number, _)| number).chain([durable + 1]);
        for number in behind {
            if number > next {
                missing(segments, next, number - 1, faults);
            }
            next = next.max(number + 1);
        }
    }
}

/// Says of batches that are nowhere where they should be.
fn missing(segments: &[Segment], first: u64, last: u64, faults: &mut Faults) {
    let which = match first == last {
        true => format!("batch {first} was"),
        false => format!("batches {first} to {last} were"),
    };
    let ends = |segment: &&Segment| {
        let (_, End { next, garbage, .. }) = segment.batches();
        next == first && garbage > 0
    };
    if let Some(segment) = segments.iter().find(ends) {
        faults.add(&segment.path, format!("{which} acknowledged, and the octets there are others"));
    } else if let Some(segment) = segments.iter().find(|segment| segment.header.first_batch > first) {
        faults.add(
            &segment.path,
            format!(
                "{which} acknowledged, and in a segment before it that is missing or shorter than it was"
            ),
        );
    } else if let Some(segment) = segments.last() {
        faults.add(&segment.path, format!("{which} acknowledged, and the file is shorter than it was"));
    }
}

/// Reads all segments that can be read.
fn read(folder: &Path, store: Option<u64>, faults: &mut Faults) -> Result<Vec<Segment>, StoreError> {
    let mut segments = Vec::new();
    for (number, path) in list(folder)? {
        match Segment::read(&path, number, store) {
            Ok(segment) => segments.push(segment),
            Err(error) => faults.add_error(&path, error)?,
        }
    }
    Ok(segments)
}
