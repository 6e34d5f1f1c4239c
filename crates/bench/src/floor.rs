//! The floor of the memory: how fast one core can read random cache lines when it knows all addresses in advance.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use kaido_table::{Cells, Pages, Region, RegionError};

use crate::clock::{TimeTaken, timed};
use crate::permutation::Permutation;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;
/// Lines that are asked for before the first is read: the engine's batch.
const BATCH: usize = 32;

/// A working set of lines.
#[derive(Debug)]
pub(crate) struct Floor {
    memory: Cells<[AtomicU64; LINE / 8]>,
    pages: Pages,
    order: Permutation,
    place: u64,
    /// Lines of the next round, in the order in which they are read: what packets carry as their keys.
    lines: Vec<u32>,
}

impl Floor {
    /// A working set of `lines` cache lines, read in an order of that seed.
    pub(crate) fn new(lines: u32, seed: u64) -> Result<Self, RegionError> {
        let order = Permutation::new(lines, seed);
        let region = Region::map(order.len() as usize * LINE)?;
        let (pages, memory) = (region.pages(), Cells::<[AtomicU64; LINE / 8]>::of(region));
        // Written, so that every page is there.
        (0..order.len()).for_each(|line| memory.get(line)[0].store(1, Ordering::Relaxed));
        Ok(Self { memory, pages, order, place: 0, lines: Vec::new() })
    }

    /// The pages it stands on.
    pub(crate) fn pages(&self) -> Pages {
        self.pages
    }

    /// Reads `count` random lines.
    pub(crate) fn round(&mut self, count: usize) -> TimeTaken {
        self.lines.clear();
        self.lines.extend((self.place..).take(count).map(|place| self.order.at(place)));
        self.place += count as u64;
        let (sum, taken) = timed(|| {
            let mut sum = 0u64;
            for batch in self.lines.chunks(BATCH) {
                for &line in batch {
                    self.memory.prefetch(line);
                }
                for &line in batch {
                    sum = sum.wrapping_add(self.memory.get(line)[0].load(Ordering::Relaxed));
                }
            }
            sum
        });
        black_box(sum);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_reads_every_line_once_before_any_twice() {
        let mut floor = Floor::new(1000, 3).unwrap();
        assert!(floor.round(600).ns > 0.0);
        let mut seen = floor.lines.clone();
        floor.round(400);
        seen.extend(&floor.lines);
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..1000));
    }
}
