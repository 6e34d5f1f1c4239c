//! Which packets of a sequence came, how often, and in what order.
//!
//! ```text
//!                given up │◀──────────── window ────────────▶│
//!   ──────────────────────┼──────────────────────────────────┼────────────
//!   came, or lost for good │ a bit each: came or not yet      next expected
//! ```
//! Memory is bounded: bits for a window, the last gaps (for extents), and the ranges that were given up.

use std::collections::VecDeque;

use crate::result::Reordering;

/// Gaps that are remembered: a packet that fills an older one is counted as reordered with the extent of the oldest.
const GAPS_MAX: usize = 1024;
/// Ranges of lost packets that are remembered; further ones are only counted.
const RANGES_MAX: usize = 4096;

/// What an arrival is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArrivalKind {
    /// The next expected, or one beyond it.
    InOrder,
    /// Below the next expected (RFC 4737 section 3), with this extent (section 4.2).
    Reordered(u64),
    /// It came before.
    Duplicate,
    /// The window has gone on: it was given up, or came before.
    BehindWindow,
}

/// Numbers that a packet jumped over.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// The first number behind them: that of the packet that jumped.
    end: u64,
    /// How many packets had come before that one.
    arrivals: u64,
}

/// The run of reordered packets that the last arrival belongs to.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    /// The number that would go on with it.
    next: u64,
    packets: u64,
}

/// The state of one sequence.
#[derive(Debug)]
pub(crate) struct Tracker {
    bits: Box<[u64]>,
    /// One more than the greatest number that came.
    next: u64,
    /// Packets that came, each once.
    arrivals: u64,
    /// Ascending.
    gaps: VecDeque<Gap>,
    run: Run,
    reordering: Reordering,
    /// Given up, first and last.
    lost: Vec<(u64, u64)>,
    /// Given up, beyond what is remembered.
    lost_beyond: u64,
}

impl Tracker {
    /// A tracker with a window of at least so many numbers, at least 64.
    pub(crate) fn new(window: usize) -> Self {
        let words = window.div_ceil(64).max(1).next_power_of_two();
        Self {
            bits: vec![0; words].into(),
            next: 0,
            arrivals: 0,
            gaps: VecDeque::new(),
            run: Run::default(),
            reordering: Reordering::default(),
            lost: Vec::new(),
            lost_beyond: 0,
        }
    }

    fn window(&self) -> u64 {
        self.bits.len() as u64 * 64
    }

    #[allow(clippy::cast_possible_truncation)] // A place within the window.
    fn place(&self, number: u64) -> (usize, u64) {
        ((number / 64) as usize & (self.bits.len() - 1), 1 << (number % 64))
    }

    /// Whether a number of the window came.
    pub(super) fn has(&self, number: u64) -> bool {
        let (word, bit) = self.place(number);
        self.bits[word] & bit != 0
    }

    /// Whether a number below the next expected one is in the window.
    pub(super) fn is_within(&self, number: u64) -> bool {
        number < self.next && number + self.window() >= self.next
    }

    /// How many numbers from `sent` on came: more packets than there were.
    pub(super) fn beyond(&self, sent: u64) -> u64 {
        let from = sent.max(self.next.saturating_sub(self.window()));
        (from..self.next).filter(|number| self.has(*number)).count() as u64
    }

    /// The next number expected.
    pub(crate) fn near(&self) -> u64 {
        self.next
    }

    pub(crate) fn reordering(&self) -> Reordering {
        self.reordering
    }

    /// Takes note of a packet.
    pub(crate) fn arrive(&mut self, number: u64) -> ArrivalKind {
        let arrival = if number >= self.next {
            self.advance(number);
            ArrivalKind::InOrder
        } else if number + self.window() < self.next {
            return ArrivalKind::BehindWindow;
        } else if self.has(number) {
            return ArrivalKind::Duplicate;
        } else {
            ArrivalKind::Reordered(self.reordered(number))
        };
        let (word, bit) = self.place(number);
        self.bits[word] |= bit;
        self.arrivals += 1;
        arrival
    }

    /// The window goes on up to a number.
    fn advance(&mut self, number: u64) {
        if number > self.next {
            if self.gaps.len() == GAPS_MAX {
                self.gaps.pop_front();
            }
            self.gaps.push_back(Gap { end: number, arrivals: self.arrivals });
        }
        self.give_up(number + 1);
        self.next = number + 1;
        self.run = Run::default();
    }

    /// Gives up what leaves the window when it ends at `next`, and clears the bits for what comes into it.
    fn give_up(&mut self, next: u64) {
        let window = self.window();
        let from = self.next.saturating_sub(window);
        let to = next.saturating_sub(window);
        // Numbers that were in the window, and those that were jumped over and never were.
        for number in from..to.min(self.next) {
            if !self.has(number) {
                self.lose(number, number);
            }
        }
        if to > self.next {
            self.lose(self.next, to - 1);
        }
        for number in self.next.max(to)..next {
            let (word, bit) = self.place(number);
            self.bits[word] &= !bit;
        }
    }

    fn lose(&mut self, first: u64, last: u64) {
        let has_room = self.lost.len() < RANGES_MAX;
        match self.lost.last_mut() {
            Some((_, before)) if *before + 1 == first => *before = last,
            _ if has_room => self.lost.push((first, last)),
            _ => self.lost_beyond += last - first + 1,
        }
    }

    fn reordered(&mut self, number: u64) -> u64 {
        // The first packet with a greater number is the one that jumped over this one.
        let place = self.gaps.partition_point(|gap| gap.end <= number);
        let extent = self.gaps.get(place).map_or(0, |gap| self.arrivals - gap.arrivals);
        let counts = &mut self.reordering;
        counts.packets += 1;
        counts.extent_max = counts.extent_max.max(extent);
        counts.extent_sum += extent;
        if self.run.packets > 0 && self.run.next == number {
            self.run.packets += 1;
        } else {
            self.run.packets = 1;
            counts.blocks += 1;
        }
        self.run.next = number + 1;
        counts.block_packets_max = counts.block_packets_max.max(self.run.packets);
        extent
    }

    /// Gives up all that has not come of `sent` packets. What is left are the ranges that never came in their window, and how
    /// many more there were that are not remembered.
    pub(crate) fn finish(mut self, sent: u64) -> (Vec<(u64, u64)>, u64) {
        let from = self.next.saturating_sub(self.window());
        for number in from..self.next.min(sent) {
            if !self.has(number) {
                self.lose(number, number);
            }
        }
        if sent > self.next {
            self.lose(self.next, sent - 1);
        }
        (self.lost, self.lost_beyond)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn of(numbers: &[u64]) -> (Tracker, Vec<ArrivalKind>) {
        let mut tracker = Tracker::new(64);
        let arrivals = numbers.iter().map(|number| tracker.arrive(*number)).collect();
        (tracker, arrivals)
    }

    /// Conformance: RFC 4737 3 | Reordered packets are those below the next expected number
    /// Conformance: RFC 4737 4.2.2 | The extent is the distance to the earliest packet with a greater number
    #[test]
    fn extents_are_those_of_the_rfc() {
        // RFC 4737 section 7.1: one early packet; then its tables of extents for late ones.
        let (tracker, arrivals) = of(&[0, 1, 2, 3, 7, 4, 5, 6, 8]);
        assert_eq!(
            arrivals[5..8],
            [ArrivalKind::Reordered(1), ArrivalKind::Reordered(2), ArrivalKind::Reordered(3)]
        );
        assert_eq!((tracker.reordering.packets, tracker.reordering.extent_max), (3, 3));
        let (tracker, arrivals) = of(&[0, 1, 3, 4, 5, 6, 2, 7]);
        assert_eq!(arrivals[6], ArrivalKind::Reordered(4));
        assert_eq!((tracker.reordering.packets, tracker.reordering.blocks), (1, 1));
    }

    #[test]
    fn an_overtaken_block_is_one_block() {
        let order: Vec<u64> = (0..10).chain(42..52).chain(10..42).chain(52..60).collect();
        let (tracker, _) = of(&order);
        let found = tracker.reordering;
        assert_eq!((found.packets, found.blocks, found.block_packets_max, found.extent_max), (32, 1, 32, 41));
        assert_eq!(tracker.finish(60), (vec![], 0));
    }

    #[test]
    fn what_never_comes_is_lost_and_what_comes_again_is_double() {
        let (tracker, arrivals) = of(&[0, 1, 4, 4, 1, 200, 3, 300]);
        assert_eq!(
            arrivals[3..],
            [
                ArrivalKind::Duplicate,
                ArrivalKind::Duplicate,
                ArrivalKind::InOrder,
                ArrivalKind::BehindWindow,
                ArrivalKind::InOrder
            ]
        );
        assert_eq!(tracker.arrivals, 5);
        assert_eq!(tracker.finish(303), (vec![(2, 3), (5, 199), (201, 299), (301, 302)], 0));
    }

    proptest! {
        #[test]
        fn every_packet_is_counted_once(mut numbers in prop::collection::vec(0u64..400, 0..300), sorted: bool) {
            if sorted {
                numbers.sort_unstable();
            }
            let mut tracker = Tracker::new(128);
            let (mut came, mut behind, mut highest) = (HashSet::new(), 0, 0);
            for number in &numbers {
                match tracker.arrive(*number) {
                    ArrivalKind::Duplicate => prop_assert!(came.contains(number)),
                    ArrivalKind::BehindWindow => {
                        prop_assert!(number + 128 < highest);
                        behind += 1;
                    }
                    ArrivalKind::InOrder => prop_assert!(came.insert(*number) && *number >= highest),
                    ArrivalKind::Reordered(extent) => {
                        prop_assert!(came.insert(*number) && *number < highest);
                        prop_assert!(extent >= 1 && extent <= came.len() as u64);
                    }
                }
                highest = highest.max(number + 1);
            }
            let (unique, reordering) = (tracker.arrivals, tracker.reordering());
            prop_assert_eq!(unique, came.len() as u64);
            prop_assert!(reordering.blocks <= reordering.packets);
            let (lost, beyond) = tracker.finish(400);
            let lost: HashSet<u64> = lost.into_iter().flat_map(|(first, last)| first..=last).collect();
            prop_assert_eq!(beyond, 0);
            prop_assert!(lost.is_disjoint(&came));
            prop_assert_eq!(lost.len() + came.len(), 400);
            prop_assert!(behind == 0 || lost.len() + came.len() == 400);
        }
    }
}
