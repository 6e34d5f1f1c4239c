//! What each rule has done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::rule_set::{CounterPlace, PLACES, RuleSet};

/// Packets and octets of one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleTotals {
    /// Packets that met it.
    pub packets: u64,
    /// Their octets, as they came, Ethernet included.
    pub octets: u64,
}

#[derive(Debug, Default)]
struct Cell {
    packets: AtomicU64,
    octets: AtomicU64,
}

/// One worker's counters of rules and encapsulations, each at the [place](crate::RuleSet) that it has. It alone writes them.
#[derive(Debug)]
pub struct RuleCounters(Box<[Cell]>);

impl RuleCounters {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self((0..PLACES).map(|_| Cell::default()).collect()))
    }

    pub(crate) fn count(&self, place: u16, octets: usize) {
        self.add(place, 1, octets as u64);
    }

    /// Begins the count at a place anew.
    pub(crate) fn clear(&self, place: u16) {
        let Some(cell) = self.0.get(usize::from(place)) else { return };
        cell.packets.store(0, Ordering::Relaxed);
        cell.octets.store(0, Ordering::Relaxed);
    }

    fn add(&self, place: u16, packets: u64, octets: u64) {
        let Some(cell) = self.0.get(usize::from(place)) else { return };
        // One writer: nothing is lost between load and store.
        let add = |to: &AtomicU64, more| to.store(to.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        add(&cell.packets, packets);
        add(&cell.octets, octets);
    }

    /// What one worker's rules and then its encapsulations have done so far.
    pub fn totals(&self, rules: &RuleSet) -> Vec<RuleTotals> {
        let read = |place: &CounterPlace| {
            let cell = &self.0[usize::from(place.number)];
            RuleTotals {
                packets: cell.packets.load(Ordering::Relaxed),
                octets: cell.octets.load(Ordering::Relaxed),
            }
        };
        rules.places().iter().map(read).collect()
    }

    /// What those of several workers have done together.
    pub fn sum<'c>(workers: impl IntoIterator<Item = &'c Self>, rules: &RuleSet) -> Vec<RuleTotals> {
        let mut sums = vec![RuleTotals::default(); rules.places().len()];
        for totals in workers.into_iter().map(|worker| worker.totals(rules)) {
            for (sum, more) in sums.iter_mut().zip(totals) {
                sum.packets += more.packets;
                sum.octets += more.octets;
            }
        }
        sums
    }
}

/// Packets of one rule after the other, before they are counted together: most batches meet one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    place: u16,
    packets: u64,
    octets: u64,
}

impl Tally {
    #[inline(always)]
    pub(crate) fn count(&mut self, place: u16, octets: usize, counters: &RuleCounters) {
        if place != self.place {
            self.hand_over(counters);
            self.place = place;
        }
        self.packets += 1;
        self.octets += octets as u64;
    }

    /// Counts what there is.
    #[inline]
    pub(crate) fn hand_over(&mut self, counters: &RuleCounters) {
        if self.packets > 0 {
            counters.add(self.place, self.packets, self.octets);
            (self.packets, self.octets) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Condition, Rule, Settings, Verdict};

    fn rules(names: &[&str]) -> Arc<RuleSet> {
        let rule = |name: &&str| Rule {
            name: (*name).to_owned(),
            condition: Condition::default(),
            verdict: Verdict::Pass,
        };
        let rules = names.iter().map(rule).collect();
        RuleSet::new(Settings { rules, ..Settings::bump(Vec::new()) }).unwrap()
    }

    fn totals(packets: u64, octets: u64) -> RuleTotals {
        RuleTotals { packets, octets }
    }

    #[test]
    fn workers_are_summed_by_rule() {
        let rules = rules(&["a", "b"]);
        let [a, b] = [0, 1].map(|number| rules.place_of_rule(number));
        let (first, second) = (RuleCounters::new(), RuleCounters::new());
        first.count(a, 100);
        second.count(a, 50);
        second.count(b, 7);
        second.count(u16::MAX, 1);
        assert_eq!(RuleCounters::sum([&*first, &*second], &rules), [totals(2, 150), totals(1, 7)]);
        assert_eq!(RuleCounters::sum([], &rules), [totals(0, 0); 2]);
        second.clear(a);
        second.clear(u16::MAX);
        assert_eq!(RuleCounters::sum([&*first, &*second], &rules), [totals(1, 100), totals(1, 7)]);
    }

    #[test]
    fn tallies_are_counted_by_rule() {
        let (counters, rules) = (RuleCounters::new(), rules(&["a", "b", "c"]));
        let mut tally = Tally::default();
        for (number, octets) in [(0, 10), (0, 20), (2, 5), (0, 1)] {
            tally.count(number, octets, &counters);
        }
        tally.hand_over(&counters);
        tally.hand_over(&counters);
        assert_eq!(counters.totals(&rules), [totals(3, 31), totals(0, 0), totals(1, 5)]);
    }
}
