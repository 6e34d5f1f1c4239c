//! A hierarchical timer wheel: one deadline for each of millions of small numbers.
//!
//! ```text
//!  level 0: 64 slots of 1 ms   level 1: 64 of 64 ms   level 2: 64 of 4 s   ...   level 7: 64 of 139 years
//! ```
//! A deadline lies in the level of the highest six bits in which it differs from the present, and moves down when
//! its slot begins: a few times in its life. Setting and striking out are a few list operations; where nothing is
//! due, a look costs eight words, however many deadlines there are.
//!
//! [`kaido_table::Wheel`] is another. It goes round once in a set number of ticks, hands out early what is due later, and has all
//! items from the start, in 8 octets each. Sessions are due in anything from milliseconds to years. On that wheel each of them
//! would come up again and again to be armed anew. Here its deadline is kept, may be asked for, and is never early, and the work
//! of a call is bounded.

/// Six bits of a deadline each.
const LEVELS: usize = 8;
const SLOTS: usize = 64;
/// Deadlines beyond are brought forward to this, nine thousand years on.
const AT_MAX: u64 = (1 << (6 * LEVELS)) - 1;
/// The end of a list.
const NONE: u32 = u32::MAX;
/// The place of what has no deadline.
const NOWHERE: u16 = u16::MAX;

/// A number's deadline and its neighbours in the list of a slot.
#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    next: u32,
    prev: u32,
    /// Level and slot, in one number.
    place: u16,
}

const ABSENT: Entry = Entry { at: 0, next: NONE, prev: NONE, place: NOWHERE };

/// Deadlines in milliseconds, at most one for each number.
#[derive(Debug)]
pub(super) struct Wheel {
    entries: Vec<Entry>,
    heads: Box<[u32]>,
    /// Bit n of a level: its slot n is not empty.
    occupied: [u64; LEVELS],
    /// The present, as the slots were last brought up to it.
    elapsed: u64,
    len: usize,
}

impl Wheel {
    /// A wheel without deadlines, at the beginning of time.
    pub(super) fn new() -> Self {
        Self {
            entries: Vec::new(),
            heads: vec![NONE; LEVELS * SLOTS].into(),
            occupied: [0; LEVELS],
            elapsed: 0,
            len: 0,
        }
    }

    /// How many numbers have a deadline.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.len
    }

    /// The deadline of a number, if it has one.
    pub(super) fn get(&self, number: u32) -> Option<u64> {
        self.entries.get(number as usize).filter(|entry| entry.place != NOWHERE).map(|entry| entry.at)
    }

    /// Gives a number a deadline, or takes its deadline away.
    pub(super) fn set(&mut self, number: u32, at: Option<u64>) {
        let at = at.map(|at| at.min(AT_MAX));
        if self.get(number) == at {
            return;
        }
        if self.entries.get(number as usize).is_some_and(|entry| entry.place != NOWHERE) {
            self.unlink(number);
        }
        if let Some(at) = at {
            let needed = number as usize + 1;
            if self.entries.len() < needed {
                self.entries.resize(needed, ABSENT);
            }
            self.link(number, at);
        }
    }

    /// Takes out a number whose deadline is not after `now`, with its deadline. Every step, whether it brings a number or only moves one
    /// nearer to its slot, takes one of `budget`; with none left the rest waits for the next call.
    pub(super) fn pop(&mut self, now: u64, budget: &mut u32) -> Option<(u32, u64)> {
        while let Some(left) = budget.checked_sub(1) {
            *budget = left;
            let first = self.first_slot().map(|(level, slot)| (level, slot, self.begin(level, slot)));
            let Some((level, slot, begins)) = first.filter(|&(.., begins)| begins <= now) else {
                // Nothing lies between the present and `now`.
                self.elapsed = self.elapsed.max(now.min(AT_MAX));
                break;
            };
            self.elapsed = self.elapsed.max(begins);
            let number = self.heads[level * SLOTS + slot];
            let at = self.entries[number as usize].at;
            self.unlink(number);
            if level == 0 || at <= self.elapsed {
                return Some((number, at));
            }
            self.link(number, at);
        }
        None
    }

    /// Before then no deadline is reached; in the past if some are.
    pub(super) fn next(&self) -> Option<u64> {
        self.first_slot().map(|(level, slot)| self.begin(level, slot))
    }

    /// The slot that begins first. One that has begun and is not emptied comes before all.
    fn first_slot(&self) -> Option<(usize, usize)> {
        let begun = (1..LEVELS).rev().find_map(|level| {
            let slot = slot_of(level, self.elapsed);
            (self.occupied[level] >> slot & 1 != 0).then_some((level, slot))
        });
        begun.or_else(|| {
            (0..LEVELS).find_map(|level| {
                let ahead = self.occupied[level] & u64::MAX << slot_of(level, self.elapsed);
                (ahead != 0).then(|| (level, ahead.trailing_zeros() as usize))
            })
        })
    }

    /// When a slot at or ahead of the present begins.
    fn begin(&self, level: usize, slot: usize) -> u64 {
        let below = 6 * level;
        let above = self.elapsed >> (below + 6) << (below + 6);
        above | (slot as u64) << below
    }

    fn link(&mut self, number: u32, at: u64) {
        // What is overdue comes at once.
        let shown = at.max(self.elapsed);
        let differs = (shown ^ self.elapsed) | (SLOTS as u64 - 1);
        let level = (u64::BITS - 1 - differs.leading_zeros()) as usize / 6;
        let slot = slot_of(level, shown);
        let place = level * SLOTS + slot;
        let next = std::mem::replace(&mut self.heads[place], number);
        #[allow(clippy::cast_possible_truncation)] // Below 512.
        let entry = Entry { at, next, prev: NONE, place: place as u16 };
        self.entries[number as usize] = entry;
        if let Some(next) = self.entries.get_mut(next as usize) {
            next.prev = number;
        }
        self.occupied[level] |= 1 << slot;
        self.len += 1;
    }

    fn unlink(&mut self, number: u32) {
        let Entry { next, prev, place, .. } = std::mem::replace(&mut self.entries[number as usize], ABSENT);
        let place = usize::from(place);
        match self.entries.get_mut(prev as usize) {
            Some(prev) => prev.next = next,
            None => self.heads[place] = next,
        }
        if let Some(next) = self.entries.get_mut(next as usize) {
            next.prev = prev;
        }
        if self.heads[place] == NONE {
            self.occupied[place / SLOTS] &= !(1 << (place % SLOTS));
        }
        self.len -= 1;
    }
}

#[allow(clippy::cast_possible_truncation)] // Six bits of it count.
fn slot_of(level: usize, at: u64) -> usize {
    (at >> (6 * level)) as usize % SLOTS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Set(u32, u64),
        Strike(u32),
        Advance(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        // Spans of every level, and what is overdue.
        let span = (0u32..46).prop_flat_map(|bits| 0..=1u64 << bits);
        prop_oneof![
            4 => (0u32..50, span.clone()).prop_map(|(number, ahead)| Step::Set(number, ahead)),
            1 => (0u32..50).prop_map(Step::Strike),
            2 => span.prop_map(Step::Advance),
        ]
    }

    proptest! {
        /// Whatever is set, struck out and waited for: just what is due comes, once, whatever the budget of a call.
        #[test]
        fn keeps_time_as_a_sorted_list_would(
            steps in proptest::collection::vec(step(), 1..200),
            budget in 1u32..5,
        ) {
            let mut wheel = Wheel::new();
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            let mut now = 1_700_000_000_000u64;
            for step in steps {
                match step {
                    Step::Set(number, ahead) => {
                        let at = (now + ahead).saturating_sub(1000);
                        wheel.set(number, Some(at));
                        model.insert(number, at.min(AT_MAX));
                    }
                    Step::Strike(number) => {
                        wheel.set(number, None);
                        model.remove(&number);
                    }
                    Step::Advance(by) => {
                        now += by;
                        let mut due = model.clone();
                        due.retain(|_, at| *at <= now);
                        model.retain(|_, at| *at > now);
                        let mut came = Vec::new();
                        // Far more calls than there is work for.
                        for _ in 0..50 * (LEVELS + 2) {
                            let mut left = budget;
                            while let Some((number, at)) = wheel.pop(now, &mut left) {
                                prop_assert_eq!(due.get(&number), Some(&at));
                                came.push(number);
                            }
                        }
                        came.sort_unstable();
                        prop_assert_eq!(came, due.into_keys().collect::<Vec<_>>());
                        prop_assert!(wheel.next().is_none_or(|next| next > now), "whoever waits until then waits");
                    }
                }
                let first = model.values().min().copied();
                prop_assert_eq!(wheel.next().is_some(), first.is_some());
                prop_assert!(first.is_none_or(|first| wheel.next() <= Some(first.max(wheel.elapsed))));
                prop_assert_eq!(wheel.len(), model.len());
                for number in 0..50 {
                    prop_assert_eq!(wheel.get(number), model.get(&number).copied());
                }
            }
        }
    }

    /// Counted in steps, not in time: ten million sessions that wait cost one step a look, and each of them a few in all
    /// when their time has come.
    #[test]
    fn ten_million_idle_numbers_cost_one_step_a_look() {
        const NUMBERS: u32 = 10_000_000;
        let start = 1_700_000_000_000u64;
        let mut wheel = Wheel::new();
        wheel.pop(start, &mut 1);
        for number in 0..NUMBERS {
            wheel.set(number, Some(start + 60_000 + u64::from(number) % 600_000));
        }
        let mut steps = 0;
        // A minute of looks every 10 ms: the levels' slots that begin meanwhile move what lies in them, each once.
        for look in 0..6000 {
            let mut budget = u32::MAX;
            assert_eq!(wheel.pop(start + look * 10, &mut budget), None);
            steps += u64::from(u32::MAX - budget);
        }
        assert!(steps <= 6000 + 2 * u64::from(NUMBERS) / 10, "{steps} steps while nothing was due");
        let mut came = 0;
        for look in 0..=66_000 {
            let mut budget = u32::MAX;
            while wheel.pop(start + look * 10, &mut budget).is_some() {
                came += 1;
            }
            steps += u64::from(u32::MAX - budget);
        }
        assert_eq!((came, wheel.len()), (NUMBERS, 0));
        assert!(steps <= 72_001 + 4 * u64::from(NUMBERS), "{steps} steps in all");
    }

    #[test]
    fn a_call_does_no_more_than_its_budget() {
        let mut wheel = Wheel::new();
        (0..100).for_each(|number| wheel.set(number, Some(1 << 30)));
        let (mut came, mut calls) = (0, 0);
        while came < 100 {
            let mut budget = 10;
            while wheel.pop(1 << 30, &mut budget).is_some() {
                came += 1;
            }
            calls += 1;
            assert!(calls < 1000);
        }
        assert!(calls >= 10, "{calls} calls");
    }

    #[test]
    fn a_deadline_that_is_set_again_counts_alone() {
        let mut wheel = Wheel::new();
        wheel.set(7, Some(100));
        wheel.set(7, Some(5000));
        wheel.set(7, Some(5000));
        assert_eq!((wheel.len(), wheel.get(7)), (1, Some(5000)));
        assert_eq!(wheel.pop(4999, &mut 100), None);
        assert_eq!(wheel.pop(5000, &mut 100), Some((7, 5000)));
        assert_eq!(wheel.get(7), None);
        wheel.set(7, Some(10));
        assert_eq!(wheel.pop(5000, &mut 100), Some((7, 10)), "overdue");
        wheel.set(7, Some(u64::MAX));
        assert_eq!(wheel.get(7), Some(AT_MAX));
    }
}
