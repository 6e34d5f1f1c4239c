//! The CPU's performance counters around the rounds of one thread.

use std::io;

use perf_event::events::{Event, Hardware};
use perf_event::{Builder, Counter};
use serde::Serialize;

/// What the counters gave, or why they did not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PmuResult {
    /// Whether the CPU's counters were read.
    pub available: bool,
    /// Why not.
    pub reason: Option<String>,
    /// Cycles a packet, in user space.
    pub cycles_per_packet: Option<f64>,
    /// Instructions a packet.
    pub instructions_per_packet: Option<f64>,
    /// Misses of the last-level cache a packet.
    pub cache_misses_per_packet: Option<f64>,
}

/// What is counted of a worker.
pub(super) const CPU_EVENTS: [Hardware; 3] =
    [Hardware::CPU_CYCLES, Hardware::INSTRUCTIONS, Hardware::CACHE_MISSES];

/// Three counters of the thread that opened them, which stand still at first.
#[derive(Debug)]
pub(super) struct Counters([Counter; 3]);

impl Counters {
    /// Opens counters of this thread.
    ///
    /// # Errors
    /// What the kernel says when it has no such counters, or gives them to no one.
    pub(super) fn open(events: [impl Event; 3]) -> io::Result<Self> {
        let [cycles, instructions, misses] = events.map(open_one);
        Ok(Self([cycles?, instructions?, misses?]))
    }

    /// Has them count while `work` is done.
    pub(super) fn around<T>(&mut self, work: impl FnOnce() -> T) -> T {
        // The kernel refuses both only for what is no counter.
        self.0.iter_mut().for_each(|counter| _ = counter.enable());
        let done = work();
        self.0.iter_mut().for_each(|counter| _ = counter.disable());
        done
    }

    /// Their counts.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(super) fn read(&mut self) -> io::Result<[u64; 3]> {
        let mut counts = [0; 3];
        for (counter, count) in self.0.iter_mut().zip(&mut counts) {
            *count = counter.read()?;
        }
        Ok(counts)
    }
}

/// Does `work`, counted where there are counters.
pub(super) fn counted<T>(counters: &mut Result<Counters, String>, work: impl FnOnce() -> T) -> T {
    match counters {
        Ok(counters) => counters.around(work),
        Err(_) => work(),
    }
}

/// Whether this thread may have a counter of cycles.
///
/// # Errors
/// What the kernel says when it may not.
pub(crate) fn probe() -> io::Result<()> {
    open_one(CPU_EVENTS[0]).map(drop)
}

/// A counter of this thread, in user space alone, that stands still.
fn open_one(event: impl Event) -> io::Result<Counter> {
    Builder::new(event).exclude_kernel(true).exclude_hv(true).build()
}

impl PmuResult {
    /// The counts of all workers over all packets; an error is told once.
    pub(super) fn of(counts: &[Result<[u64; 3], String>], packets: u64) -> Self {
        let mut sum = [0u64; 3];
        for count in counts {
            match count {
                Ok(count) => sum.iter_mut().zip(count).for_each(|(sum, count)| *sum += count),
                Err(reason) => return Self::absent(reason.clone()),
            }
        }
        if packets == 0 {
            return Self::absent("no packet was forwarded".to_owned());
        }
        let [cycles, instructions, misses] = sum.map(|count| Some(count as f64 / packets as f64));
        Self {
            available: true,
            reason: None,
            cycles_per_packet: cycles,
            instructions_per_packet: instructions,
            cache_misses_per_packet: misses,
        }
    }

    fn absent(reason: String) -> Self {
        Self {
            available: false,
            reason: Some(reason),
            cycles_per_packet: None,
            instructions_per_packet: None,
            cache_misses_per_packet: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use perf_event::events::Software;

    use super::*;

    /// Counters of the kernel's own, which need no PMU.
    const SOFTWARE: [Software; 3] = [Software::CONTEXT_SWITCHES, Software::PAGE_FAULTS, Software::TASK_CLOCK];

    #[test]
    fn counters_count_only_what_is_between() {
        let Ok(mut counters) = Counters::open(SOFTWARE) else {
            return eprintln!("SKIPPED counters_count_only_what_is_between: perf_event_open is not allowed");
        };
        let burn = || (0..2_000_000u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
        burn();
        assert_eq!(counters.read().unwrap()[2], 0);
        counters.around(burn);
        let counted = counters.read().unwrap()[2];
        burn();
        assert!(counted > 0);
        assert_eq!(counters.read().unwrap()[2], counted);
    }

    #[test]
    fn counts_are_by_packet_and_a_reason_is_kept() {
        let both = PmuResult::of(&[Ok([100, 200, 4]), Ok([100, 600, 0])], 100);
        assert_eq!((both.cycles_per_packet, both.instructions_per_packet), (Some(2.0), Some(8.0)));
        assert_eq!(both.cache_misses_per_packet, Some(0.04));
        let absent = PmuResult::of(&[Ok([1, 1, 1]), Err("none here".into())], 5);
        assert_eq!((absent.available, absent.reason.as_deref()), (false, Some("none here")));
    }
}
