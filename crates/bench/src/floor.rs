//! The floor of the memory: how fast one core can read random cache lines when it knows all addresses in advance.

use std::hint::black_box;

use kaido_table::{Pages, Region, RegionError};

use crate::clock::{TimeTaken, timed};
use crate::permutation::Permutation;

/// Bytes of a cache line.
pub(crate) const LINE: usize = 64;
/// Lines that are asked for before the first is read: the engine's batch.
const BATCH: usize = 32;

/// A working set of lines.
#[derive(Debug)]
pub(crate) struct Floor {
    region: Region,
    order: Permutation,
    place: u64,
    /// Lines of the next round, in the order in which they are read: what packets carry as their keys.
    lines: Vec<u32>,
}

impl Floor {
    /// A working set of `lines` cache lines, read in an order of that seed.
    pub(crate) fn new(lines: u32, seed: u64) -> Result<Self, RegionError> {
        let order = Permutation::new(lines, seed);
        let bytes = order.len() as usize * LINE;
        let region = Region::map(bytes)?;
        for at in (0..bytes).step_by(LINE) {
            // SAFETY: within the region, which is ours alone. Written, so that every page is there.
            unsafe { region.base().add(at).write_volatile(1) };
        }
        Ok(Self { region, order, place: 0, lines: Vec::new() })
    }

    /// The pages it stands on.
    pub(crate) fn pages(&self) -> Pages {
        self.region.pages()
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
                    prefetch(self.line(line));
                }
                for &line in batch {
                    // SAFETY: the line lies within the region and was written when that was made.
                    sum = sum.wrapping_add(unsafe { self.line(line).cast::<u64>().read() });
                }
            }
            sum
        });
        black_box(sum);
        taken
    }

    #[inline]
    fn line(&self, line: u32) -> *const u8 {
        // SAFETY: the order's numbers are below the lines of the region.
        unsafe { self.region.base().as_ptr().add(line as usize * LINE) }
    }
}

/// Asks for the line of an address, whatever is there.
#[inline(always)]
pub(crate) fn prefetch(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing that a program could notice.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(address.cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
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
