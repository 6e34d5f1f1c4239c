//! Ports to which packets come at a rate, on a clock of their own.
//!
//! ```text
//!   due k ÷ rate ─▶ ring of so many ─▶ receive ─▶ worker ─▶ transmit: latency = then − due
//!                        └─ full: lost
//! ```
//! Packets are made ready while the clock stands still; so a core that makes packets and takes them measures the one and not
//! the other. A packet that is due while the worker is busy waits, and its wait counts: nothing is left out because the
//! device was slow.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use kaido_engine::port::Port;
use kaido_engine::{BATCH_MAX, Batch, Frame, PoolCache};

use super::plan::PointClock;
use crate::clock::CpuTime;
use crate::result::Latency;

/// After so many nanoseconds between two looks the clock asks whether the thread was taken off its CPU: a system call.
const GAP_NS: u64 = 10_000;

/// A clock that stands still between rounds. One thread looks at it; atomics let its ports share it.
#[derive(Debug)]
pub(super) struct LineClock {
    kind: PointClock,
    /// Both begin here.
    base: Instant,
    cpu_base: CpuTime,
    /// Wall time that does not count, in nanoseconds.
    offset: AtomicU64,
    /// The wall's time at the last look.
    seen: AtomicU64,
    /// Wall time less CPU time, when last compared.
    drift: AtomicU64,
    /// Nanoseconds left out because the thread was not on a CPU.
    off_cpu: AtomicU64,
}

impl LineClock {
    /// A clock at zero, that stands. Of the thread that will look at it.
    pub(super) fn new(kind: PointClock) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            kind,
            base: Instant::now(),
            cpu_base: CpuTime::now(),
            offset: zero(),
            seen: zero(),
            drift: zero(),
            off_cpu: zero(),
        }
    }

    fn wall(&self) -> u64 {
        u64::try_from(self.base.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Wall time less CPU time until `wall`.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Nanoseconds since the run began.
    fn drift(&self, wall: u64) -> u64 {
        wall.saturating_sub(self.cpu_base.elapsed_ns() as u64)
    }

    /// Nanoseconds that have counted.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        let wall = self.wall();
        if wall - self.seen.load(Ordering::Relaxed) > GAP_NS && self.kind == PointClock::Cpu {
            self.leave_out(wall);
        }
        self.seen.store(wall, Ordering::Relaxed);
        wall.saturating_sub(self.offset.load(Ordering::Relaxed))
    }

    #[cold]
    fn leave_out(&self, wall: u64) {
        let drift = self.drift(wall);
        let gone = drift.saturating_sub(self.drift.load(Ordering::Relaxed));
        self.drift.store(drift, Ordering::Relaxed);
        self.offset.fetch_add(gone, Ordering::Relaxed);
        self.off_cpu.fetch_add(gone, Ordering::Relaxed);
    }

    /// Goes on from `at`, where it stood.
    pub(super) fn go_on(&self, at: u64) {
        let wall = self.wall();
        self.drift.store(self.drift(wall), Ordering::Relaxed);
        self.seen.store(wall, Ordering::Relaxed);
        self.offset.store(wall.saturating_sub(at), Ordering::Relaxed);
    }

    /// Nanoseconds left out because the thread was not on a CPU.
    pub(super) fn off_cpu_ns(&self) -> u64 {
        self.off_cpu.load(Ordering::Relaxed)
    }
}

/// What a port has in a round: packets to come, those that left, and when.
#[derive(Debug, Default)]
pub(super) struct Leg {
    /// To be received; the lost ones among them go when their turn comes.
    pub(super) incoming: VecDeque<Frame>,
    /// When each packet of the round comes, in nanoseconds.
    dues: Vec<u64>,
    /// The first of `dues` that is in `incoming`.
    next: usize,
    /// Packets that may wait.
    ring: usize,
    /// Places in `dues` of those in `incoming` that found the ring full, ascending. They stay where they are: to close up
    /// behind each of them would slow an overloaded worker down further.
    gaps: VecDeque<Range<usize>>,
    /// How many these are.
    missing: usize,
    /// Lost, for want of room in the ring.
    pub(super) lost: Vec<Frame>,
    /// What was received at a time: when, the first of `dues`, and how many.
    received: Vec<(u64, usize, usize)>,
    /// What was sent.
    pub(super) sent: Vec<Frame>,
    /// When, and how many.
    sent_at: Vec<(u64, usize)>,
}

impl Leg {
    /// A leg on which frames come when they are due.
    pub(super) fn coming(incoming: VecDeque<Frame>, dues: Vec<u64>, ring: usize) -> Self {
        let received = Vec::with_capacity(incoming.len());
        let lost = Vec::with_capacity(incoming.len());
        Self { incoming, dues, ring, received, lost, ..Self::default() }
    }

    /// A leg on which so many frames leave.
    pub(super) fn leaving(frames: usize) -> Self {
        Self { sent: Vec::with_capacity(frames), sent_at: Vec::with_capacity(frames), ..Self::default() }
    }

    fn receive(&mut self, now: u64, batch: &mut Batch) {
        let arrived = self.next + self.arrived(now);
        let waiting = arrived - self.next - self.missing;
        if waiting > self.ring {
            // The latest to come found the ring full.
            let excess = waiting - self.ring;
            self.missing += excess;
            self.gaps.push_back(arrived - excess..arrived);
        }
        loop {
            while let Some(gap) = self.gaps.front().filter(|gap| gap.start == self.next).cloned() {
                self.gaps.pop_front();
                self.next = gap.end;
                self.missing -= gap.len();
                self.lost.extend(self.incoming.drain(..gap.len()));
            }
            let end = self.gaps.front().map_or(arrived, |gap| gap.start);
            let count = (end - self.next).min(BATCH_MAX - batch.len());
            if count == 0 {
                return;
            }
            self.incoming.drain(..count).for_each(|frame| batch.push(frame));
            self.received.push((now, self.next, count));
            self.next += count;
        }
    }

    /// How many of those in `incoming` have come by now.
    fn arrived(&self, now: u64) -> usize {
        // Few have come since the last look: a search of all would cost more than they do.
        let rest = &self.dues[self.next..];
        let mut within = rest.len().min(BATCH_MAX);
        while within < rest.len() && rest[within - 1] <= now {
            within = rest.len().min(2 * within);
        }
        rest[..within].partition_point(|&due| due <= now)
    }
}

/// Counts the latency of every packet of a round that came out, in the order in which they went in; the time in which
/// there was a packet in hand, in nanoseconds.
pub(super) fn account(came: &Leg, left: &Leg, latency: &mut Latency) -> u64 {
    let mut sent = left.sent_at.iter().copied();
    let (mut at, mut count) = (0, 0);
    let (mut busy, mut until) = (0, 0);
    for &(taken, first, packets) in &came.received {
        for &due in &came.dues[first..first + packets] {
            while count == 0 {
                let Some(next) = sent.next() else { return busy };
                (at, count) = next;
            }
            count -= 1;
            latency.record(at.saturating_sub(due));
        }
        busy += at.saturating_sub(taken.max(until));
        until = at;
    }
    busy
}

/// The bench's end of a [`PacedPort`].
#[derive(Debug, Clone)]
pub(super) struct Line(Arc<Exchange>);

#[derive(Debug, Default)]
struct Exchange {
    offered: AtomicBool,
    /// All frames have been received.
    empty: AtomicBool,
    wanted: AtomicBool,
    leg: Mutex<Option<Leg>>,
}

/// One queue, owned by a worker.
#[derive(Debug)]
pub(super) struct PacedPort {
    exchange: Arc<Exchange>,
    clock: Arc<LineClock>,
    leg: Option<Leg>,
}

impl Line {
    /// A port and its far end.
    pub(super) fn new(clock: Arc<LineClock>) -> (Self, PacedPort) {
        let exchange = Arc::new(Exchange::default());
        (Self(exchange.clone()), PacedPort { exchange, clock, leg: None })
    }

    /// Gives the port a leg, which it takes at its next receive.
    pub(super) fn offer(&self, leg: Leg) {
        self.0.put(leg);
        self.0.empty.store(false, Ordering::Relaxed);
        self.0.offered.store(true, Ordering::Release);
    }

    /// Whether the port has received all.
    pub(super) fn is_empty(&self) -> bool {
        self.0.empty.load(Ordering::Acquire)
    }

    /// Has the port give its leg back at its next empty receive.
    pub(super) fn want(&self) {
        self.0.wanted.store(true, Ordering::Release);
    }

    /// The leg that the port gave back.
    pub(super) fn back(&self) -> Leg {
        self.0.take().unwrap_or_default()
    }
}

impl Exchange {
    fn put(&self, leg: Leg) {
        *self.leg.lock().unwrap_or_else(PoisonError::into_inner) = Some(leg);
    }

    fn take(&self) -> Option<Leg> {
        self.leg.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl PacedPort {
    #[cold]
    fn trade(&mut self) {
        if self.exchange.wanted.swap(false, Ordering::Acquire) {
            if let Some(leg) = self.leg.take() {
                self.exchange.put(leg);
            }
        } else if self.exchange.offered.swap(false, Ordering::Acquire) {
            self.leg = self.exchange.take();
        } else {
            self.exchange.empty.store(true, Ordering::Release);
        }
    }
}

impl Port for PacedPort {
    fn receive(&mut self, _pool: &mut PoolCache, batch: &mut Batch) {
        match &mut self.leg {
            Some(leg) if !leg.incoming.is_empty() => leg.receive(self.clock.now(), batch),
            _ => self.trade(),
        }
    }

    fn transmit(&mut self, _pool: &mut PoolCache, batch: &mut Batch) -> usize {
        if let Some(leg) = &mut self.leg {
            leg.sent_at.push((self.clock.now(), batch.len()));
            leg.sent.extend(batch.drain(..));
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use kaido_engine::FramePool;

    use super::*;

    fn leg(pool: &'static FramePool, dues: &[u64], ring: usize) -> Leg {
        let frames = dues.iter().map(|_| pool.allocate().unwrap()).collect();
        Leg::coming(frames, dues.to_vec(), ring)
    }

    #[test]
    fn packets_come_when_they_are_due_and_are_lost_when_the_ring_is_full() {
        let pool = FramePool::leak(64).unwrap();
        let mut leg = leg(pool, &[10, 20, 30, 40, 50, 60], 2);
        let mut batch = Batch::new();
        leg.receive(9, &mut batch);
        assert_eq!((batch.len(), leg.lost.len()), (0, 0));
        leg.receive(20, &mut batch);
        assert_eq!((batch.len(), leg.lost.len()), (2, 0));
        batch.clear();
        leg.receive(55, &mut batch);
        assert_eq!((batch.len(), leg.lost.len()), (2, 1), "30 and 40 fit, 50 did not");
        batch.clear();
        leg.receive(100, &mut batch);
        assert_eq!((batch.len(), leg.lost.len(), leg.incoming.len()), (1, 1, 0));
        assert_eq!(leg.received, [(20, 0, 2), (55, 2, 2), (100, 5, 1)]);
    }

    #[test]
    fn an_overloaded_ring_has_the_earliest_and_all_packets_are_received_or_lost() {
        let pool = FramePool::leak(256).unwrap();
        let dues: Vec<u64> = (0..200).collect();
        let mut leg = leg(pool, &dues, 72);
        let mut batch = Batch::new();
        // A hundred come in the time in which a batch is taken.
        for now in [99, 199, 299] {
            leg.receive(now, &mut batch);
            batch.clear();
        }
        assert_eq!(leg.received, [(99, 0, 64), (199, 64, 8), (199, 100, 56), (299, 156, 8)]);
        assert_eq!((leg.lost.len(), leg.incoming.len(), leg.missing), (64, 0, 0));
        // A burst that does not fit: its first stay.
        let mut leg = self::leg(pool, &[0; 100], 72);
        leg.receive(0, &mut batch);
        assert_eq!((batch.len(), leg.missing, leg.lost.len()), (64, 28, 0));
        batch.clear();
        leg.receive(0, &mut batch);
        assert_eq!((batch.len(), leg.missing, leg.lost.len(), leg.incoming.len()), (8, 0, 28, 0));
    }

    #[test]
    fn latency_is_from_due_to_sent_and_idle_time_is_not_busy() {
        let pool = FramePool::leak(64).unwrap();
        let mut came = leg(pool, &[10, 20, 100], 8);
        let mut batch = Batch::new();
        came.receive(25, &mut batch);
        batch.clear();
        came.receive(101, &mut batch);
        let left = Leg { sent_at: vec![(30, 1), (40, 1), (111, 1)], ..Leg::default() };
        let mut latency = Latency::default();
        assert_eq!(account(&came, &left, &mut latency), (40 - 25) + (111 - 101));
        assert_eq!((latency.min_ns, latency.max_ns, latency.sum_ns), (11, 20, 20 + 20 + 11));
    }

    #[test]
    fn the_clock_stands_between_rounds_and_leaves_sleep_out() {
        let clock = LineClock::new(PointClock::Cpu);
        let began = Instant::now();
        clock.go_on(0);
        std::thread::sleep(std::time::Duration::from_millis(30));
        let (stood, left_out) = (clock.now(), clock.off_cpu_ns());
        let all = u64::try_from(began.elapsed().as_nanos()).unwrap();
        assert!(left_out > 5_000_000 && stood + left_out <= all, "{stood} and {left_out} of {all}");
        clock.go_on(7);
        assert!(clock.now() >= 7);
        let wall = LineClock::new(PointClock::Wall);
        wall.go_on(0);
        std::thread::sleep(std::time::Duration::from_millis(30));
        assert!(wall.now() >= 30_000_000 && wall.off_cpu_ns() == 0);
    }
}
