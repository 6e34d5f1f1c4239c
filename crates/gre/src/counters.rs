//! What each rule has done.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

/// One worker's counters of all rules and then all encapsulations, in their order. It alone writes them.
#[derive(Debug)]
pub struct RuleCounters(Box<[Cell]>);

impl RuleCounters {
    pub(crate) fn new(count: usize) -> Arc<Self> {
        Arc::new(Self((0..count).map(|_| Cell::default()).collect()))
    }

    pub(crate) fn count(&self, number: usize, octets: usize) {
        self.add(number, 1, octets as u64);
    }

    fn add(&self, number: usize, packets: u64, octets: u64) {
        let Some(cell) = self.0.get(number) else { return };
        // One writer: nothing is lost between load and store.
        let add = |to: &AtomicU64, more| to.store(to.load(Ordering::Relaxed) + more, Ordering::Relaxed);
        add(&cell.packets, packets);
        add(&cell.octets, octets);
    }

    /// What one worker's rules have done so far.
    pub fn totals(&self) -> Vec<RuleTotals> {
        let read = |cell: &Cell| RuleTotals {
            packets: cell.packets.load(Ordering::Relaxed),
            octets: cell.octets.load(Ordering::Relaxed),
        };
        self.0.iter().map(read).collect()
    }

    /// What the rules of several workers have done together.
    pub fn sum<'c>(workers: impl IntoIterator<Item = &'c Self>) -> Vec<RuleTotals> {
        workers.into_iter().fold(Vec::new(), |mut sums, worker| {
            let totals = worker.totals();
            sums.resize(totals.len().max(sums.len()), RuleTotals::default());
            for (sum, more) in sums.iter_mut().zip(totals) {
                sum.packets += more.packets;
                sum.octets += more.octets;
            }
            sums
        })
    }
}

/// Packets of one rule after the other, before they are counted together: most batches meet one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    number: usize,
    packets: u64,
    octets: u64,
}

impl Tally {
    #[inline(always)]
    pub(crate) fn count(&mut self, number: usize, octets: usize, counters: &RuleCounters) {
        if number != self.number {
            self.hand_over(counters);
            self.number = number;
        }
        self.packets += 1;
        self.octets += octets as u64;
    }

    /// Counts what there is.
    #[inline]
    pub(crate) fn hand_over(&mut self, counters: &RuleCounters) {
        if self.packets > 0 {
            counters.add(self.number, self.packets, self.octets);
            (self.packets, self.octets) = (0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_summed_by_rule() {
        let (first, second) = (RuleCounters::new(2), RuleCounters::new(2));
        first.count(0, 100);
        second.count(0, 50);
        second.count(1, 7);
        second.count(2, 1);
        let sums = RuleCounters::sum([&*first, &*second]);
        assert_eq!(sums, [RuleTotals { packets: 2, octets: 150 }, RuleTotals { packets: 1, octets: 7 }]);
        assert!(RuleCounters::sum([]).is_empty());
    }

    #[test]
    fn tallies_are_counted_by_rule() {
        let counters = RuleCounters::new(3);
        let mut tally = Tally::default();
        for (number, octets) in [(0, 10), (0, 20), (2, 5), (0, 1)] {
            tally.count(number, octets, &counters);
        }
        tally.hand_over(&counters);
        tally.hand_over(&counters);
        let totals = |packets, octets| RuleTotals { packets, octets };
        assert_eq!(counters.totals(), [totals(3, 31), totals(0, 0), totals(1, 5)]);
    }
}
