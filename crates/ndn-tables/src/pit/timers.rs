//! When pending Interests have waited long enough.

use std::time::Duration;

use super::entry::flag;
use super::{Pit, Slot};
use crate::NodeInstant;

/// Timers that are looked at for an entry that has expired, at most.
const TIMERS_MAX: usize = 1024;

impl Pit {
    /// Takes an entry whose Interests have all waited long enough; `None` when there is none by now, or after many timers
    /// of entries that need none any more. It is to be [erased](Self::erase).
    #[inline]
    pub fn expired(&mut self, now: NodeInstant) -> Option<Slot> {
        for _ in 0..TIMERS_MAX {
            let slot = self.timers.due(now.tick())?;
            let entry = &mut self.entries[slot as usize];
            entry.flags &= !flag::ARMED;
            if entry.is_live() && entry.expires <= now {
                return Some(entry.handle(slot));
            }
            if entry.is_live() {
                self.arm(slot);
            }
        }
        None
    }

    /// How long after `now` [`Pit::expired`] may have something to do.
    #[inline]
    pub fn next_expiry(&self, now: NodeInstant) -> Option<Duration> {
        let next = if self.is_empty() { None } else { self.timers.next() };
        next.map(|tick| NodeInstant::of_tick(tick).since(now))
    }

    /// Has the timer of an entry come when it expires, or before. One that comes too early is armed again. So an
    /// entry that is given to one Interest after the other is armed once in a lifetime of an Interest.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)] // Lifetimes are far less than 2^31 ticks.
    pub(super) fn arm(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        let tick = entry.expires.tick_after();
        if entry.flags & flag::ARMED == 0 || (entry.timer.wrapping_sub(tick as u32) as i32) > 0 {
            entry.flags |= flag::ARMED;
            entry.timer = tick as u32;
            self.timers.arm(slot, tick);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::InRecord;
    use super::super::fixture::{PLAIN, downstream, hashed, insert, pit};
    use super::*;
    use crate::text::name;

    proptest! {
        /// Entries live until their Interest has waited long enough, also beyond a round of the timers, or comes again
        /// and waits less long, or is answered and its entry given to another.
        #[test]
        fn entries_expire_when_no_one_waits(
            steps in prop::collection::vec((0u8..6, 1u64..20_000, 0u64..3000, any::<bool>()), 1..60),
        ) {
            let mut pit = pit(6);
            let mut model = BTreeMap::new();
            let mut now = NodeInstant::default();
            for (number, lifetime, passes, is_answered) in steps {
                let octets = name(&number.to_string());
                let slot = pit.find(&octets, &hashed(&octets), PLAIN)
                    .unwrap_or_else(|| insert(&mut pit, &octets, PLAIN).unwrap());
                let expires = now + Duration::from_millis(lifetime);
                pit.insert_in_record(slot, &InRecord { expires, ..downstream(number.into(), 1, 0) }).unwrap();
                model.insert(slot, expires);
                if is_answered {
                    pit.erase(slot);
                    model.remove(&slot);
                }
                now = now + Duration::from_millis(passes);
                while let Some(slot) = pit.expired(now) {
                    prop_assert!(model.remove(&slot).is_some_and(|expires| expires <= now));
                    pit.erase(slot);
                }
                // A tick is 1.05 ms.
                prop_assert!(model.values().all(|&expires| expires + Duration::from_millis(2) > now));
                prop_assert_eq!(pit.len() as usize, model.len());
            }
        }
    }
}
