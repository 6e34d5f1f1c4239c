//! A timer wheel over numbered items: one list of items per tick, linked through an array of its own.
//!
//! ```text
//!   tick:   … n ──▶ n+1 ──▶ n+2 …      (wraps around)
//!             │       │
//!           item    item ⇄ item        8 octets of links an item, so neighbours share cache lines
//! ```
//! An item that is due later than the wheel goes round comes out early: its owner, who knows when it is due, arms it
//! again.

/// No item.
const NONE: u32 = u32::MAX;
/// In [`Link::before`]: the item is the first of the list of the tick in the lower bits.
const FIRST: u32 = 1 << 31;

#[derive(Clone, Copy, Debug)]
struct Link {
    /// The item before, or the tick with [`FIRST`]; [`NONE`] of an item that is not armed.
    before: u32,
    after: u32,
}

/// A wheel of ticks.
#[derive(Debug)]
pub struct Wheel {
    /// The first item of each tick.
    ticks: Box<[u32]>,
    /// Bit n: tick n has items.
    busy: Box<[u64]>,
    links: Box<[Link]>,
    /// Ticks before this one have been emptied.
    now: u64,
    /// No tick before this one has items.
    soonest: u64,
    armed: u32,
}

impl Wheel {
    /// A wheel for items numbered below `items`, which goes round in `ticks` ticks, rounded up to a power of two of at
    /// least 64; its time begins at tick `now`.
    ///
    /// # Panics
    /// When there are more than 2^31 items or ticks.
    pub fn new(items: u32, ticks: u32, now: u64) -> Self {
        assert!(items < FIRST && ticks <= FIRST, "numbers of 31 bits");
        let ticks = ticks.next_power_of_two().max(64) as usize;
        Self {
            ticks: vec![NONE; ticks].into(),
            busy: vec![0; ticks / 64].into(),
            links: vec![Link { before: NONE, after: NONE }; items as usize].into(),
            now,
            soonest: now,
            armed: 0,
        }
    }

    /// Armed items.
    pub fn len(&self) -> u32 {
        self.armed
    }

    /// Whether no item is armed.
    pub fn is_empty(&self) -> bool {
        self.armed == 0
    }

    /// Asks for the memory of an item's links.
    #[inline(always)]
    pub fn prefetch(&self, item: u32) {
        if let Some(link) = self.links.get(item as usize) {
            crate::array::prefetch(link);
        }
    }

    /// Arms an item for a tick, whether or not it was armed. One that has passed comes at the next tick.
    pub fn arm(&mut self, item: u32, tick: u64) {
        self.disarm(item);
        let round = self.ticks.len() as u64;
        let tick = tick.clamp(self.now, self.now + round - 1);
        self.soonest = self.soonest.min(tick);
        let place = self.place(tick);
        let after = std::mem::replace(&mut self.ticks[place], item);
        if after != NONE {
            self.links[after as usize].before = item;
        }
        #[allow(clippy::cast_possible_truncation)] // At most 2^31 ticks.
        let before = FIRST | place as u32;
        self.links[item as usize] = Link { before, after };
        self.busy[place / 64] |= 1 << (place % 64);
        self.armed += 1;
    }

    /// Disarms an item, if it is armed.
    pub fn disarm(&mut self, item: u32) {
        let Link { before, after } = self.links[item as usize];
        if before == NONE {
            return;
        }
        if after != NONE {
            self.links[after as usize].before = before;
        }
        if before & FIRST == 0 {
            self.links[before as usize].after = after;
        } else {
            let place = (before & !FIRST) as usize;
            self.ticks[place] = after;
            if after == NONE {
                self.busy[place / 64] &= !(1 << (place % 64));
            }
        }
        self.links[item as usize] = Link { before: NONE, after: NONE };
        self.armed -= 1;
    }

    /// Takes an item off whose tick is not later than `now`; `None` when there is no more.
    pub fn due(&mut self, now: u64) -> Option<u32> {
        if now < self.soonest {
            self.now = self.now.max(now);
            return None;
        }
        let next = self.next();
        self.soonest = next.unwrap_or(u64::MAX);
        match next {
            Some(tick) if tick <= now => {
                self.now = self.now.max(tick);
                let item = self.ticks[self.place(tick)];
                self.disarm(item);
                Some(item)
            }
            _ => {
                self.now = self.now.max(now);
                None
            }
        }
    }

    /// The tick of the next item; one that was armed for later than a round may be due then or not.
    pub fn next(&self) -> Option<u64> {
        if self.armed == 0 {
            return None;
        }
        let (first, bit) = (self.place(self.now) / 64, self.now % 64);
        let words = self.busy.len();
        // Once around and the first word again, for the ticks before `now` in it.
        (0..=words).find_map(|step| {
            let word = self.busy[(first + step) % words];
            let word = if step == 0 { word >> bit << bit } else { word };
            (word != 0).then(|| self.now - bit + step as u64 * 64 + u64::from(word.trailing_zeros()))
        })
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation)] // Reduced to fewer ticks than fit.
    fn place(&self, tick: u64) -> usize {
        tick as usize & (self.ticks.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_lies_beyond_a_round_comes_early() {
        let mut wheel = Wheel::new(2, 64, 1000);
        wheel.arm(0, 5000);
        assert_eq!((wheel.next(), wheel.due(1062)), (Some(1063), None));
        assert_eq!(wheel.due(1063), Some(0));
        assert!(wheel.is_empty());
    }

    #[test]
    fn the_next_is_found_in_any_word() {
        let mut wheel = Wheel::new(2, 256, 1000);
        for ahead in [0, 1, 63, 64, 100, 200, 255] {
            wheel.arm(0, 1000 + ahead);
            assert_eq!(wheel.next(), Some(1000 + ahead));
        }
    }

    proptest! {
        #[test]
        fn items_come_at_their_ticks(
            start in 0u64..1 << 40,
            steps in prop::collection::vec((0u32..8, 0u64..64, prop::bool::ANY, 0u64..20), 1..200),
        ) {
            let mut wheel = Wheel::new(8, 64, start);
            let mut model = BTreeMap::new();
            let mut now = start;
            for (item, ahead, arm, passes) in steps {
                if arm {
                    wheel.arm(item, now + ahead);
                    model.insert(item, now + ahead);
                } else {
                    wheel.disarm(item);
                    model.remove(&item);
                }
                prop_assert_eq!(wheel.next(), model.values().min().copied());
                now += passes;
                while let Some(due) = wheel.due(now) {
                    let tick = model.remove(&due);
                    prop_assert!(tick.is_some_and(|tick| tick <= now), "{due} of {tick:?} at {now}");
                }
                prop_assert!(model.values().all(|&tick| tick > now));
                prop_assert_eq!(wheel.len() as usize, model.len());
            }
        }
    }
}
