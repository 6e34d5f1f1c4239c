//! The CPU's performance counters around the rounds of one thread.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

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

/// `PERF_TYPE_HARDWARE` and its cycles, instructions and cache misses.
const HARDWARE: u32 = 0;
pub(super) const CPU_EVENTS: [(u32, u64); 3] = [(HARDWARE, 0), (HARDWARE, 1), (HARDWARE, 3)];

const ENABLE: libc::c_ulong = 0x2400;
const DISABLE: libc::c_ulong = 0x2401;
const DISABLED: u64 = 1;
const EXCLUDE_KERNEL_AND_HYPERVISOR: u64 = 3 << 5;

/// `struct perf_event_attr` of the size of its first version.
#[repr(C)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample: [u64; 3],
    flags: u64,
    rest: [u64; 2],
}
const _: () = assert!(size_of::<Attributes>() == 64);

/// Three counters of the thread that opened them, which stand still at first.
#[derive(Debug)]
pub(super) struct Counters([OwnedFd; 3]);

impl Counters {
    /// Opens counters of this thread.
    ///
    /// # Errors
    /// What the kernel says when it has no such counters, or gives them to no one.
    pub(super) fn open(events: [(u32, u64); 3]) -> io::Result<Self> {
        let [cycles, instructions, misses] = events.map(open_one);
        Ok(Self([cycles?, instructions?, misses?]))
    }

    /// Has them count while `work` is done.
    pub(super) fn around<T>(&self, work: impl FnOnce() -> T) -> T {
        self.tell(ENABLE);
        let done = work();
        self.tell(DISABLE);
        done
    }

    fn tell(&self, request: libc::c_ulong) {
        for counter in &self.0 {
            // SAFETY: our descriptor of a counter; the request takes a number. It fails only for what is no counter.
            unsafe { libc::ioctl(counter.as_raw_fd(), request, 0) };
        }
    }

    /// Their counts.
    ///
    /// # Errors
    /// When one cannot be read.
    pub(super) fn read(&self) -> io::Result<[u64; 3]> {
        let mut counts = [0; 3];
        for (counter, count) in self.0.iter().zip(&mut counts) {
            let mut bytes = [0; 8];
            if rustix::io::read(counter, &mut bytes)? != 8 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            *count = u64::from_ne_bytes(bytes);
        }
        Ok(counts)
    }
}

/// Does `work`, counted where there are counters.
pub(super) fn counted<T>(counters: &Result<Counters, String>, work: impl FnOnce() -> T) -> T {
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

fn open_one((kind, config): (u32, u64)) -> io::Result<OwnedFd> {
    let flags = DISABLED | EXCLUDE_KERNEL_AND_HYPERVISOR;
    let attributes = Attributes { kind, size: 64, config, sample: [0; 3], flags, rest: [0; 2] };
    // SAFETY: the structure is as the kernel knows it, of the size it states, and only read; this thread (0) on any
    // CPU (-1), no group, no flags.
    let opened =
        unsafe { libc::syscall(libc::SYS_perf_event_open, std::ptr::from_ref(&attributes), 0, -1, -1, 0) };
    match i32::try_from(opened) {
        // SAFETY: just opened, and nobody else's.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
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
    use super::*;

    /// Counters of the kernel's own, which need no PMU: context switches, page faults, and the task's clock.
    const SOFTWARE: [(u32, u64); 3] = [(1, 3), (1, 2), (1, 1)];

    #[test]
    fn counters_count_only_what_is_between() {
        let Ok(counters) = Counters::open(SOFTWARE) else {
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
