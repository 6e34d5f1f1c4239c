//! Which counters are not in use.

use std::collections::VecDeque;
use std::io;

use kaido_store::{Moment, Recorder};
use kaido_table::{LineCursor, LineSlab};

use super::{UsageCounters, UsageSlot};
use crate::percent::percent;

/// Lines taken near a counter: the records of a session's two directions.
const RECORDS: u32 = 2;

/// Usage counters not in use.
#[derive(Debug)]
pub(crate) struct FreeSlots {
    used: u32,
    bound: u32,
    /// Given back, the last first. A place that was a counter's stays one: a worker that comes late miscounts, and no more.
    free: Vec<UsageSlot>,
    /// Given back, the first first, and not yet to be taken: after a restart they are their owners', until it is written that those
    /// have ended.
    ended: VecDeque<(Moment, UsageSlot)>,
    /// Says what is written.
    recorder: Recorder,
    /// Where there are places that were never a counter's; else they lie in a row, behind all that were.
    lines: Option<FreshSlots>,
}

/// Where counters are taken that never were any.
#[derive(Debug)]
struct FreshSlots {
    lines: LineSlab,
    near_records: LineCursor,
    apart: LineCursor,
}

impl FreeSlots {
    /// Those of counters, none of which is in use.
    pub(crate) fn of(counters: &UsageCounters) -> Self {
        let lines = counters.lines.as_ref().map(|lines| FreshSlots {
            lines: lines.clone(),
            near_records: LineSlab::cursor(RECORDS),
            apart: LineSlab::cursor(0),
        });
        let (ended, recorder) = Default::default();
        Self { used: 0, bound: counters.len, free: Vec::new(), ended, recorder, lines }
    }

    /// Has changes taken down, by which owners end.
    pub(crate) fn record_by(&mut self, recorder: Recorder) {
        self.recorder = recorder;
    }

    /// Takes counters that were in use before a restart, in rising order, before any other is taken. Those that lie in memory which
    /// has outlived the process go on from what they have counted.
    ///
    /// # Errors
    /// When there are not so many.
    pub(crate) fn claim(&mut self, slots: &[UsageSlot], counters: &UsageCounters) -> io::Result<()> {
        let numbers: Vec<u32> = slots.iter().map(|slot| slot.0).collect();
        let (used, last) =
            (u32::try_from(slots.len()).unwrap_or(u32::MAX), slots.last().map_or(0, |slot| slot.0));
        if used > self.bound || (used > 0 && last >= counters.cells.len()) {
            return Err(io::Error::other("the node had more usage counters than it may have now"));
        }
        match &self.lines {
            Some(places) => places.lines.claim(&numbers)?,
            // Those between are free.
            None => {
                let mut claimed = slots.iter().peekable();
                let is_free = |slot: &UsageSlot| claimed.next_if(|&claimed| claimed == slot).is_none();
                self.free = (0..last).map(UsageSlot).filter(is_free).collect();
            }
        }
        self.used = used;
        slots.iter().for_each(|&slot| counters.resume(slot));
        Ok(())
    }

    /// Takes a counter that has counted nothing, where there is room for records near it.
    pub(crate) fn take(&mut self, counters: &UsageCounters) -> Option<UsageSlot> {
        self.take_by(counters, |places| &mut places.near_records)
    }

    /// As [`FreeSlots::take`], for a counter that few packets move.
    pub(crate) fn take_apart(&mut self, counters: &UsageCounters) -> Option<UsageSlot> {
        self.take_by(counters, |places| &mut places.apart)
    }

    fn take_by(
        &mut self,
        counters: &UsageCounters,
        cursor: impl FnOnce(&mut FreshSlots) -> &mut LineCursor,
    ) -> Option<UsageSlot> {
        while let Some(&(moment, slot)) = self.ended.front()
            && self.recorder.is_written(moment)
        {
            self.ended.pop_front();
            self.used -= 1;
            self.free.push(slot);
        }
        if self.used == self.bound {
            return None;
        }
        let slot = match (self.free.pop(), &mut self.lines) {
            (Some(slot), _) => slot,
            (None, Some(places)) => {
                let lines = places.lines.clone();
                UsageSlot(lines.take(cursor(places))?)
            }
            // All that ever were are in use.
            (None, None) => UsageSlot(self.used),
        };
        self.used += 1;
        counters.begin(slot);
        Some(slot)
    }

    /// Takes back a counter that no record names any more.
    pub(crate) fn give_back(&mut self, slot: UsageSlot, counters: &UsageCounters) {
        counters.end(slot);
        self.ended.push_back((self.recorder.moment(), slot));
    }

    /// How many are in use, in percent.
    pub(crate) fn used(&self) -> u8 {
        let ended = u32::try_from(self.ended.len()).unwrap_or(u32::MAX);
        percent(self.used.saturating_sub(ended).into(), self.bound.into())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::AtomicU64;

    use kaido_n4::Volume;

    use super::*;
    use crate::ue::Direction;
    use crate::usage::Limits;

    #[test]
    fn counters_of_before_are_claimed_and_no_others() {
        let words: &'static [_] = Vec::leak((0..80).map(|_| AtomicU64::new(0)).collect());
        // Words of eight lie among cells of 64 octets only where they are aligned so.
        let aligned = words.as_ptr().align_offset(64);
        let counters = UsageCounters::over(&words[aligned..aligned + 64]).unwrap();
        counters.begin_at(UsageSlot(5), &Volume { uplink_bytes: 7, ..Volume::default() });
        let mut free = FreeSlots::of(&counters);
        free.claim(&[UsageSlot(2), UsageSlot(5)], &counters).unwrap();
        let taken: BTreeSet<_> = std::iter::from_fn(|| free.take(&counters)).map(|slot| slot.0).collect();
        assert_eq!(taken, [0, 1, 3, 4, 6, 7].into());
        assert_eq!(counters.read(UsageSlot(5)).uplink_bytes, 7);
        let mut few = FreeSlots::of(&counters);
        assert!(few.claim(&[UsageSlot(8)], &counters).is_err());
    }

    /// Else the owner that comes back after a restart has the counts of another.
    #[test]
    fn a_counter_is_not_anothers_before_the_end_of_its_owner_is_written() {
        let counters = UsageCounters::among(LineSlab::new(70).unwrap(), 8);
        let (mut free, recorder) = (FreeSlots::of(&counters), Recorder::on());
        free.record_by(recorder.clone());
        let first = free.take(&counters).unwrap();
        counters.begin_at(first, &Volume { uplink_bytes: 7, ..Volume::default() });
        free.give_back(first, &counters);
        assert_ne!(free.take(&counters), Some(first));
        recorder.take(&mut Vec::new());
        assert_ne!(free.take(&counters), Some(first));
        assert_eq!(counters.read(first).uplink_bytes, 7);
        recorder.wrote_all();
        assert_eq!(free.take(&counters), Some(first));
    }

    #[test]
    fn a_counter_begins_anew_with_each_owner() {
        let lines = LineSlab::new(70).unwrap();
        let counters = UsageCounters::among(lines, 2);
        counters.keep_quotas().unwrap();
        let mut free = FreeSlots::of(&counters);
        let slots = [free.take(&counters).unwrap(), free.take(&counters).unwrap()];
        assert_eq!((free.take(&counters), free.used()), (None, 100));
        for (slot, quota) in slots.into_iter().zip([10, 20]) {
            let limits = Limits { thresholds: [5; 3], quotas: [quota; 3], exhausted: false };
            counters.set_limits(slot, &limits);
        }
        assert!(counters.count(slots[1], Direction::Uplink, 15, false));
        assert!(!counters.is_exhausted(slots[1]), "its own quota");
        assert!(counters.count(slots[0], Direction::Uplink, 15, false));
        assert!(counters.is_exhausted(slots[0]));
        free.give_back(slots[0], &counters);
        assert_eq!(free.used(), 50);
        let again = free.take(&counters).unwrap();
        assert!(!counters.is_exhausted(again) && counters.read(again).total_bytes() == 0);
        assert!(!counters.count(again, Direction::Uplink, 1 << 40, false), "no limits");
        assert!(counters.count(slots[1], Direction::Uplink, 15, false) && counters.is_exhausted(slots[1]));
    }
}
