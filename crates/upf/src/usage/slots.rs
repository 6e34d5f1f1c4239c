//! Which counters are not in use.

use kaido_table::{LineCursor, Lines};

use super::{UsageCounters, UsageSlot};
use crate::control::percent;

/// Lines taken near a counter: the records of a session's two directions.
const RECORDS: u32 = 2;

/// Usage counters not in use.
#[derive(Debug)]
pub(crate) struct FreeSlots {
    used: u32,
    bound: u32,
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// Cells that lie in a row, and those from `fresh` on were never used.
    Row { fresh: u32, free: Vec<UsageSlot> },
    /// Lines that others take too.
    Lines(Lines, LineCursor),
}

impl FreeSlots {
    /// Those of counters, none of which is in use.
    pub(crate) fn of(counters: &UsageCounters) -> Self {
        let source = match &counters.lines {
            Some(lines) => Source::Lines(lines.clone(), Lines::cursor(RECORDS)),
            None => Source::Row { fresh: 0, free: Vec::new() },
        };
        Self { used: 0, bound: counters.len, source }
    }

    /// Takes a counter that has counted nothing.
    pub(crate) fn take(&mut self, counters: &UsageCounters) -> Option<UsageSlot> {
        if self.used == self.bound {
            return None;
        }
        let slot = match &mut self.source {
            Source::Row { fresh, free } => free.pop().unwrap_or_else(|| {
                *fresh += 1;
                UsageSlot(*fresh - 1)
            }),
            Source::Lines(lines, cursor) => UsageSlot(lines.take(cursor)?),
        };
        self.used += 1;
        counters.begin(slot);
        Some(slot)
    }

    /// Takes back a counter that no worker's record names any more.
    pub(crate) fn give_back(&mut self, slot: UsageSlot, counters: &UsageCounters) {
        counters.end(slot);
        self.used -= 1;
        match &mut self.source {
            Source::Row { free, .. } => free.push(slot),
            // SAFETY: it was taken, and its session has it no more.
            Source::Lines(lines, _) => unsafe { lines.give(slot.0) },
        }
    }

    /// How many are in use, in percent.
    pub(crate) fn used(&self) -> u8 {
        percent(self.used.into(), self.bound.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Direction;
    use crate::usage::Limits;

    #[test]
    fn a_counter_begins_anew_with_each_owner() {
        let lines = Lines::new(70).unwrap();
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
