//! How a worker waits: the less there is to do, the less it looks.
//!
//! ```text
//!            packets                 spin_rounds empty            naps beyond nap_max_us
//!   ┌──────▶ busy: spin ───────────▶ adaptive: yield, nap ──────▶ interrupt: sleep until a packet
//!   │          ▲                        │                            │    or the next timer
//!   └──────────┴──── a packet ──────────┴────────────────────────────┘
//! ```
//!
//! A nap does not watch the ports: what comes meanwhile is met together, which under a moderate load costs one
//! wake-up for many packets. A sleep watches all of them, and ends with the first packet.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::one_writer::add;

/// Longest sleep whatever the function allows, so that a worker that is told to stop does.
pub(crate) const SLEEP_CAP: Duration = Duration::from_millis(100);

/// Shortest nap, in microseconds, of a worker with nothing to do and a port that cannot wake it.
const UNWATCHED_NAP_US: u32 = 100;

/// How often a state that lasts is accounted for.
const ACCOUNT_EVERY: Duration = Duration::from_millis(100);

/// How a worker runs and waits.
#[derive(Clone, Copy, Debug)]
pub struct WorkerSettings {
    /// CPU to run on; `None` leaves it to the kernel.
    pub cpu: Option<usize>,
    /// Empty rounds in a row that are spent spinning; `None` spins for ever.
    pub spin_rounds: Option<u32>,
    /// Further empty rounds after which the CPU is offered to others.
    pub yield_rounds: u32,
    /// First nap after those, in microseconds; each further one is twice as long.
    pub nap_min_us: u32,
    /// Longest nap, in microseconds; then the worker sleeps until a port wakes it. Zero for no naps.
    pub nap_max_us: u32,
    /// Longest sleep while a port is [to be polled](crate::Port::needs_poll).
    pub unsettled_sleep: Duration,
    /// Of how many batches one is timed, on average; `None` times none.
    pub sample_batches: Option<NonZeroU32>,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self {
            cpu: None,
            spin_rounds: Some(64),
            yield_rounds: 16,
            nap_min_us: 50,
            // Naps pay only where packets come in clumps: at one packet a millisecond they cost four times the
            // CPU of a sleep and do not wake sooner (`examples/wakeup.rs`).
            nap_max_us: 0,
            unsettled_sleep: Duration::from_millis(5),
            sample_batches: None,
        }
    }
}

/// A worker's state of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollState {
    /// Turns without a pause.
    Busy,
    /// Pauses between rounds, for a bounded time whatever comes.
    Adaptive,
    /// Sleeps until it is woken.
    Interrupt,
}

/// What to do after a round without packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Spin,
    Yield,
    Nap(Duration),
    /// Until a port, the notifier or the time wakes it.
    Sleep,
}

impl Pause {
    pub(crate) fn state(self) -> PollState {
        match self {
            Self::Spin => PollState::Busy,
            Self::Yield | Self::Nap(_) => PollState::Adaptive,
            Self::Sleep => PollState::Interrupt,
        }
    }
}

impl WorkerSettings {
    /// The pause after `empty_rounds` rounds in a row without a packet, the first being 1. `watched` says that every
    /// port can wake the worker; `longest` is how long it may sleep.
    pub(crate) fn pause(
        &self,
        empty_rounds: u32,
        watched: impl FnOnce() -> bool,
        longest: impl FnOnce() -> Duration,
    ) -> Pause {
        let Some(spin_rounds) = self.spin_rounds else { return Pause::Spin };
        if empty_rounds <= spin_rounds {
            return Pause::Spin;
        }
        let beyond = empty_rounds - spin_rounds;
        if beyond <= self.yield_rounds {
            return Pause::Yield;
        }
        // Nothing overflows: 2^31 naps before this one took longer than any uptime.
        let doublings = (beyond - self.yield_rounds - 1).min(31);
        let nap_us = u64::from(self.nap_min_us.max(1)) << doublings;
        if nap_us <= u64::from(self.nap_max_us) {
            return Pause::Nap(Duration::from_micros(nap_us));
        }
        if watched() {
            return Pause::Sleep;
        }
        let nap = Duration::from_micros(self.nap_max_us.max(UNWATCHED_NAP_US).into());
        Pause::Nap(nap.min(longest()))
    }
}

/// One worker's counters of waiting. Written by that worker alone.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct PollCounters {
    busy_ns: AtomicU64,
    adaptive_ns: AtomicU64,
    interrupt_ns: AtomicU64,
    naps: AtomicU64,
    wakeups: AtomicU64,
    timeouts: AtomicU64,
}

/// How a worker has spent its time. A state that lasts is accounted for every 100 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollTotals {
    /// Nanoseconds of turning without a pause, with packets or without.
    pub busy_ns: u64,
    /// Nanoseconds of turning with pauses, these included.
    pub adaptive_ns: u64,
    /// Nanoseconds of sleeping until woken.
    pub interrupt_ns: u64,
    /// Naps.
    pub naps: u64,
    /// Sleeps that a port ended.
    pub wakeups: u64,
    /// Sleeps that lasted until the next tick was due.
    pub timeouts: u64,
}

impl PollCounters {
    pub(crate) fn totals(&self) -> PollTotals {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PollTotals {
            busy_ns: of(&self.busy_ns),
            adaptive_ns: of(&self.adaptive_ns),
            interrupt_ns: of(&self.interrupt_ns),
            naps: of(&self.naps),
            wakeups: of(&self.wakeups),
            timeouts: of(&self.timeouts),
        }
    }

    pub(crate) fn napped(&self) {
        add(&self.naps, 1);
    }

    pub(crate) fn slept(&self, woken: bool) {
        add(if woken { &self.wakeups } else { &self.timeouts }, 1);
    }

    fn spent(&self, state: PollState, time: Duration) {
        let counter = match state {
            PollState::Busy => &self.busy_ns,
            PollState::Adaptive => &self.adaptive_ns,
            PollState::Interrupt => &self.interrupt_ns,
        };
        add(counter, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }
}

/// Follows a worker through its states.
#[derive(Debug)]
pub(crate) struct PollClock {
    state: PollState,
    since: Instant,
}

impl PollClock {
    pub(crate) fn start(now: Instant) -> Self {
        Self { state: PollState::Busy, since: now }
    }

    /// Notes the state from `now` on.
    #[inline]
    pub(crate) fn enter(&mut self, state: PollState, now: Instant, counters: &PollCounters) {
        let spent = now.saturating_duration_since(self.since);
        if state != self.state || spent >= ACCOUNT_EVERY {
            counters.spent(self.state, spent);
            (self.state, self.since) = (state, now);
        }
    }

    /// Accounts for the rest.
    pub(crate) fn stop(self, now: Instant, counters: &PollCounters) {
        counters.spent(self.state, now.saturating_duration_since(self.since));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: WorkerSettings = WorkerSettings {
        cpu: None,
        spin_rounds: Some(2),
        yield_rounds: 1,
        nap_min_us: 50,
        nap_max_us: 200,
        unsettled_sleep: Duration::from_millis(5),
        sample_batches: None,
    };
    const LONG: Duration = Duration::from_millis(5);

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    #[test]
    fn pauses_grow_until_a_port_must_wake_the_worker() {
        let pauses: Vec<Pause> = (1..=8).map(|round| SETTINGS.pause(round, || true, || LONG)).collect();
        let (nap, sleep) = (|n| Pause::Nap(us(n)), Pause::Sleep);
        assert_eq!(
            pauses,
            [Pause::Spin, Pause::Spin, Pause::Yield, nap(50), nap(100), nap(200), sleep, sleep]
        );
        assert_eq!(SETTINGS.pause(u32::MAX, || true, || LONG), sleep);
    }

    #[test]
    fn a_port_that_cannot_wake_is_looked_at() {
        assert_eq!(SETTINGS.pause(7, || false, || LONG), Pause::Nap(us(200)));
        assert_eq!(SETTINGS.pause(u32::MAX, || false, || LONG), Pause::Nap(us(200)));
        let no_naps = WorkerSettings { nap_max_us: 0, ..SETTINGS };
        assert_eq!(no_naps.pause(4, || true, || LONG), Pause::Sleep);
        assert_eq!(no_naps.pause(4, || false, || LONG), Pause::Nap(us(100)));
        assert_eq!(no_naps.pause(4, || false, || us(20)), Pause::Nap(us(20)), "the tick is due");
    }

    #[test]
    fn a_busy_worker_never_pauses() {
        let busy = WorkerSettings { spin_rounds: None, ..SETTINGS };
        assert_eq!(busy.pause(u32::MAX, || true, || us(1)), Pause::Spin);
    }

    #[test]
    fn time_goes_to_the_state_in_which_it_was_spent() {
        let start = Instant::now();
        let counters = PollCounters::default();
        let mut clock = PollClock::start(start);
        let mut at = |ms, state| clock.enter(state, start + Duration::from_millis(ms), &counters);
        at(10, PollState::Busy);
        at(20, PollState::Adaptive);
        at(25, PollState::Interrupt);
        at(60, PollState::Interrupt);
        at(130, PollState::Interrupt);
        at(140, PollState::Busy);
        let totals = counters.totals();
        assert_eq!(
            (totals.busy_ns, totals.adaptive_ns, totals.interrupt_ns),
            (20_000_000, 5_000_000, 115_000_000)
        );
    }
}
