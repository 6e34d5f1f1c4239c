//! The CPU time of one thread: what others run on the CPU meanwhile is not in it.
//!
//! `BPF_PROG_TEST_RUN` leaves that out of its figure too, so the figures stand beside each other on a busy machine. What
//! others do to the caches, and what a hypervisor takes away, is in both.

use std::sync::OnceLock;

use crate::sys::{thread_time, thread_usage};

/// What something took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeTaken {
    /// Nanoseconds of CPU time.
    pub(crate) ns: f64,
    /// Pages that had to be waited for.
    pub(crate) page_faults: u64,
}

/// Times what it is given, less what two looks at the clock take by themselves.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, TimeTaken) {
    let overhead = overhead_ns();
    let (faults, began) = (page_faults(), CpuTime::now());
    let done = work();
    let ns = (began.elapsed_ns() - overhead).max(0.0);
    (done, TimeTaken { ns, page_faults: page_faults() - faults })
}

/// What is measured where nothing is done between two looks at the clock, in nanoseconds: the least of many, so that no figure comes
/// out too low.
fn overhead_ns() -> f64 {
    const LOOKS: u32 = 1000;
    static OVERHEAD: OnceLock<f64> = OnceLock::new();
    *OVERHEAD.get_or_init(|| (0..LOOKS).map(|_| CpuTime::now().elapsed_ns()).fold(f64::INFINITY, f64::min))
}

/// A moment in this thread's CPU time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTime(libc::timespec);

impl CpuTime {
    /// Now. A system call.
    pub(crate) fn now() -> Self {
        Self(thread_time())
    }

    /// Nanoseconds since then.
    pub(crate) fn elapsed_ns(self) -> f64 {
        let now = thread_time();
        (now.tv_sec - self.0.tv_sec) as f64 * 1e9 + (now.tv_nsec - self.0.tv_nsec) as f64
    }
}

/// CPU time of a thread, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadTime {
    /// In the program.
    pub(crate) user_ns: u64,
    /// In the kernel.
    pub(crate) system_ns: u64,
}

impl ThreadTime {
    /// Of this thread until now, as the kernel's clock tick has it.
    pub(crate) fn now() -> Self {
        let Some(usage) = thread_usage() else { return Self::default() };
        let ns = |time: libc::timeval| {
            let (seconds, micros) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_usec));
            seconds.unwrap_or(0) * 1_000_000_000 + micros.unwrap_or(0) * 1000
        };
        Self { user_ns: ns(usage.ru_utime), system_ns: ns(usage.ru_stime) }
    }

    /// The time since then, added to what there was.
    pub(crate) fn add_since(&mut self, then: Self) {
        let now = Self::now();
        self.user_ns += now.user_ns.saturating_sub(then.user_ns);
        self.system_ns += now.system_ns.saturating_sub(then.system_ns);
    }
}

/// Pages that this thread had to wait for until now: memory that was taken from the process, or never given.
fn page_faults() -> u64 {
    thread_usage().map_or(0, |usage| u64::try_from(usage.ru_minflt + usage.ru_majflt).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn a_page_that_was_never_touched_is_a_fault() {
        let memory = kaido_table::Cells::<[AtomicU64; 8]>::sparse(1 << 14).unwrap();
        let before = page_faults();
        memory.get(0)[0].store(1, Ordering::Relaxed);
        assert!(page_faults() > before);
    }

    #[test]
    fn nothing_takes_next_to_nothing() {
        let least = (0..1000).map(|_| timed(|| ()).1.ns).fold(f64::INFINITY, f64::min);
        assert!((0.0..=overhead_ns()).contains(&least), "{least} ns beyond {} ns", overhead_ns());
    }

    #[test]
    fn sleep_is_not_counted() {
        let (began, began_cpu) = (std::time::Instant::now(), CpuTime::now());
        std::thread::sleep(std::time::Duration::from_millis(200));
        let (all, cpu) = (began.elapsed().as_secs_f64() * 1e9, began_cpu.elapsed_ns());
        assert!(cpu >= 0.0 && cpu < all, "{cpu} of {all} ns");
    }
}
