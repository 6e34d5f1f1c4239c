//! What no crate offers as safe functions, system calls and a hint: the only unsafe code of this crate.
#![allow(unsafe_code, reason = "argued at each block")]

use std::io;

use rustix::thread::{UnshareFlags, unshare_unsafe};

/// What this thread has used: times and page faults.
pub(crate) fn thread_usage() -> Option<libc::rusage> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes nothing but the structure, which is as long as it says.
    let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    // SAFETY: zeroed at first, which is valid for integers, and complete when the call succeeded.
    (result == 0).then(|| unsafe { usage.assume_init() })
}

/// This thread's CPU time. By the C library, which has a clock under valgrind too; `rustix` reads the kernel's page itself.
pub(crate) fn thread_time() -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes nothing but the structure. It does not fail: the clock is there since Linux 2.6.12.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time
}

/// Moves this thread, and those that it starts, into a network namespace of their own.
pub(crate) fn enter_network_namespace() -> io::Result<()> {
    // SAFETY: no memory or descriptors are unshared, only what this thread's sockets are made in from now on.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(io::Error::from)
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
