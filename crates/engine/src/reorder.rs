//! Reordering at a receiver, as RFC 4737 counts it.
//!
//! A packet is *reordered* when its sequence number is smaller than the largest seen before (4737, 3.3). Its *extent*
//! is how many packets before it the first with a larger number arrived (4737, 4.2): the room, in packets, that a
//! receiver needs to put it back in its place. Reordering by whole blocks, as a shared queue makes it, shows as runs
//! of successive reordered packets.

/// Arrivals of new largest numbers that are remembered.
const HISTORY: usize = 1 << 12;

/// An arrival that was the largest so far.
#[derive(Clone, Copy, Debug, Default)]
struct Record {
    sequence: u64,
    /// Number of the arrival.
    arrival: u64,
}

/// Counts reordering in a stream of sequence numbers. Numbers must not repeat: a second copy counts as reordered.
#[derive(Clone, Debug)]
pub struct ReorderMeter {
    /// The last records: `records` ever made, each at its number modulo [`HISTORY`]. Ascending in both fields.
    history: Box<[Record]>,
    records: u64,
    last: Option<u64>,
    in_run: bool,
    counts: Reordering,
}

/// What a [`ReorderMeter`] has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reordering {
    /// Packets seen.
    pub packets: u64,
    /// Reordered ones.
    pub reordered: u64,
    /// Runs of reordered packets whose numbers follow one another.
    pub runs: u64,
    /// Largest extent, in packets; an extent that goes back beyond 4096 new largest numbers counts from there.
    pub extent_max: u64,
    /// Sum of all extents, in packets.
    pub extent_sum: u64,
}

impl Reordering {
    /// Part of all packets that were reordered (RFC 4737's ratio), 0 to 1.
    #[allow(clippy::cast_precision_loss)] // For people.
    pub fn ratio(&self) -> f64 {
        self.reordered as f64 / self.packets.max(1) as f64
    }

    /// Mean extent of the reordered packets, in packets.
    #[allow(clippy::cast_precision_loss)] // For people.
    pub fn extent_mean(&self) -> f64 {
        self.extent_sum as f64 / self.reordered.max(1) as f64
    }
}

impl Default for ReorderMeter {
    fn default() -> Self {
        Self::new()
    }
}

impl ReorderMeter {
    /// A meter that has seen nothing.
    pub fn new() -> Self {
        Self {
            history: vec![Record::default(); HISTORY].into(),
            records: 0,
            last: None,
            in_run: false,
            counts: Reordering::default(),
        }
    }

    /// Notes the arrival of a packet.
    #[inline]
    pub fn arrived(&mut self, sequence: u64) {
        let arrival = self.counts.packets;
        self.counts.packets += 1;
        if self.records == 0 || sequence > self.record(self.records - 1).sequence {
            self.history[place(self.records)] = Record { sequence, arrival };
            self.records += 1;
            self.in_run = false;
        } else {
            self.late(sequence, arrival);
        }
        self.last = Some(sequence);
    }

    #[cold]
    fn late(&mut self, sequence: u64, arrival: u64) {
        let follows = self.last.is_some_and(|last| sequence == last.wrapping_add(1));
        self.counts.runs += u64::from(!(self.in_run && follows));
        self.in_run = true;
        self.counts.reordered += 1;
        // The first arrival with a larger number was the largest so far, as all before it were smaller.
        let (mut low, mut high) = (self.records.saturating_sub(HISTORY as u64), self.records - 1);
        while low < high {
            let middle = low.midpoint(high);
            if self.record(middle).sequence > sequence { high = middle } else { low = middle + 1 }
        }
        let extent = arrival - self.record(low).arrival;
        self.counts.extent_max = self.counts.extent_max.max(extent);
        self.counts.extent_sum += extent;
    }

    fn record(&self, number: u64) -> Record {
        self.history[place(number)]
    }

    /// What was counted so far.
    pub fn counts(&self) -> Reordering {
        self.counts
    }
}

#[allow(clippy::cast_possible_truncation)] // Below HISTORY.
fn place(number: u64) -> usize {
    (number % HISTORY as u64) as usize
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn count(sequences: &[u64]) -> Reordering {
        let mut meter = ReorderMeter::new();
        sequences.iter().for_each(|&sequence| meter.arrived(sequence));
        meter.counts()
    }

    #[test]
    fn order_and_loss_are_no_reordering() {
        assert_eq!(count(&[]), Reordering::default());
        assert_eq!(count(&[0, 1, 2, 5, 9]), Reordering { packets: 5, ..Reordering::default() });
    }

    #[test]
    fn an_extent_reaches_back_to_the_first_larger_number() {
        // 2 and 3 come late: three and four packets after 4, the first that is larger than either.
        let counts = count(&[1, 4, 5, 6, 2, 3, 7]);
        assert_eq!(counts, Reordering { packets: 7, reordered: 2, runs: 1, extent_max: 4, extent_sum: 7 });
        assert!((counts.extent_mean() - 3.5).abs() < 1e-9 && (counts.ratio() - 2.0 / 7.0).abs() < 1e-9);
    }

    #[test]
    fn a_late_block_is_one_run() {
        let late: Vec<u64> = (32..64).chain(0..32).chain(96..128).chain(64..96).collect();
        let counts = count(&late);
        assert_eq!(
            (counts.reordered, counts.runs, counts.extent_max),
            (64, 2, 63),
            "the last of a late block waited longest"
        );
    }

    #[test]
    fn history_is_bounded() {
        let many = 10 * HISTORY as u64;
        let mut meter = ReorderMeter::new();
        (1..=many).for_each(|sequence| meter.arrived(sequence));
        meter.arrived(0);
        assert_eq!(meter.counts().extent_max, HISTORY as u64);
        meter.arrived(many);
        assert_eq!(meter.counts().reordered, 2, "a second copy of the largest");
    }

    proptest! {
        #[test]
        fn extents_follow_the_definition(keys in proptest::collection::vec(any::<u16>(), 0..300)) {
            let mut order: Vec<u64> = (0..keys.len() as u64).collect();
            order.sort_by_key(|&n| n / 4 + u64::from(keys[usize::try_from(n).unwrap()] % 30));
            let counts = count(&order);
            let extents: Vec<u64> = (0..order.len())
                .filter_map(|i| (0..i).find(|&j| order[j] > order[i]).map(|j| (i - j) as u64))
                .collect();
            prop_assert_eq!(counts.reordered, extents.len() as u64);
            prop_assert_eq!(counts.extent_sum, extents.iter().sum::<u64>());
            prop_assert_eq!(counts.extent_max, extents.iter().copied().max().unwrap_or(0));
        }
    }
}
