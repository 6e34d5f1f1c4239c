//! Time stamps for stages that last some hundred nanoseconds. They are of the time stamp counter where there is one:
//! it runs at a constant rate on every x86-64 of the last decade, whatever the core does.

/// Now, in cycles of the time stamp counter; in nanoseconds on machines without one.
#[inline]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a counter that every x86-64 has.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        use std::sync::OnceLock;
        use std::time::Instant;
        static START: OnceLock<Instant> = OnceLock::new();
        u64::try_from(START.get_or_init(Instant::now).elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
