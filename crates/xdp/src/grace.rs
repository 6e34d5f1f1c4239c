//! Grace periods: waiting until no program reads what was taken away.
//!
//! Each CPU has a word that programs make odd before they look into the tables, and even when they are done. They run with
//! softirqs disabled, one at a time on a CPU. Waiting for RCU instead, as the update of an array of maps does, would take
//! some 16 ms each time. That is too long for a control plane that ends a thousand sessions a second.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use crate::Error;
use crate::maps::SharedArray;

/// Looks at a program that is not done before the CPU is given to others.
const SPINS: u32 = 200;

/// `struct grace_reader` of `bpf/grace.bpf.h`.
#[derive(Debug)]
#[repr(C)]
struct Reader {
    turns: AtomicU64,
    spare: [u64; 7],
}

const _: () = assert!(size_of::<Reader>() == 64);

/// Waits for running programs to end.
#[derive(Debug)]
pub struct Grace {
    readers: SharedArray<Reader>,
}

impl Grace {
    /// Makes the array of readers, which the program has under that name.
    ///
    /// # Errors
    /// [`Error::Permission`], [`Error::Libbpf`], [`Error::Sys`].
    pub fn create(name: &str) -> Result<Self, Error> {
        let cpus = libbpf_rs::num_possible_cpus().map_err(Error::libbpf("counting the CPUs"))?;
        let readers = SharedArray::create(name, u32::try_from(cpus).unwrap_or(u32::MAX).max(1))?;
        Ok(Self { readers })
    }

    /// The array of readers.
    pub fn map(&self) -> BorrowedFd<'_> {
        self.readers.map()
    }

    /// Returns when every program that read the tables at the call has ended.
    pub fn wait(&self) {
        // What was taken away is seen by whoever is seen as not yet reading: the program's turn is a full barrier too.
        fence(Ordering::SeqCst);
        for cpu in 0..self.readers.len() {
            // SAFETY: in range, born zeroed, and made of an atomic and unused words.
            wait_for(&unsafe { self.readers.at(cpu).as_ref() }.turns);
        }
    }
}

/// Waits while the turns are odd and the same.
fn wait_for(turns: &AtomicU64) {
    // Acquire: what the program did is seen when it has ended.
    let first = turns.load(Ordering::Acquire);
    let mut spins = 0;
    while first & 1 == 1 && turns.load(Ordering::Acquire) == first {
        spins += 1;
        if spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn a_reader_is_waited_for_and_the_next_is_not() {
        wait_for(&AtomicU64::new(4));
        let (turns, returned) = (AtomicU64::new(5), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_for(&turns);
                returned.store(true, Ordering::Release);
            });
            for _ in 0..1000 {
                assert!(!returned.load(Ordering::Acquire));
                std::thread::yield_now();
            }
            // It ended, and another has begun each time we look; the thread may still have to see the first.
            while !returned.load(Ordering::Acquire) {
                turns.fetch_add(2, Ordering::Release);
                std::thread::yield_now();
            }
        });
    }
}
