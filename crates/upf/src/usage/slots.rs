//! Which counters are not in use.

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
        Self { used: 0, bound: counters.len, free: Vec::new(), lines }
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
        self.used -= 1;
        self.free.push(slot);
    }

    /// How many are in use, in percent.
    pub(crate) fn used(&self) -> u8 {
        percent(self.used.into(), self.bound.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ue::Direction;
    use crate::usage::Limits;

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
