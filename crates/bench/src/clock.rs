//! The CPU time of one thread: what others run on the CPU meanwhile is not in it.
//!
//! `BPF_PROG_TEST_RUN` leaves that out of its figure too, so the figures stand beside each other on a busy machine. What
//! others do to the caches, and what a hypervisor takes away, is in both.

use rustix::time::{ClockId, Timespec, clock_gettime};

/// A moment in this thread's CPU time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuTime(Timespec);

impl CpuTime {
    /// Now. A system call.
    pub(crate) fn now() -> Self {
        Self(clock_gettime(ClockId::ThreadCPUTime))
    }

    /// Nanoseconds since then.
    pub(crate) fn elapsed_ns(self) -> f64 {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        (now.tv_sec - self.0.tv_sec) as f64 * 1e9 + (now.tv_nsec - self.0.tv_nsec) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleep_is_not_counted() {
        let (began, began_cpu) = (std::time::Instant::now(), CpuTime::now());
        std::thread::sleep(std::time::Duration::from_millis(200));
        let (all, cpu) = (began.elapsed().as_secs_f64() * 1e9, began_cpu.elapsed_ns());
        assert!(cpu >= 0.0 && cpu < all, "{cpu} of {all} ns");
    }
}
