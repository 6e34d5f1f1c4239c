//! Packet rates (TS 29.244 5.4.11, 8.2.63): so many packets in a time unit, which begins with its first packet.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::ue::Direction;
use kaido_n4::{PacketLimit, PacketRate};

const COUNT_BITS: u32 = 16;
const COUNT_MAX: u64 = u16::MAX as u64;

/// The packets of both directions of a QER, uplink and downlink, as they lie: state and limit of each.
pub(super) type PacketCell = [[AtomicU64; 2]; 2];

/// The packets of one direction. All zero, they are not limited.
#[derive(Clone, Copy, Debug)]
struct Counter<'c> {
    /// When the time unit began, in milliseconds and one more, over the packets since then.
    state: &'c AtomicU64,
    /// The time unit in milliseconds, over the packets that may pass in it; 0 for no limit.
    limit: &'c AtomicU64,
}

/// The packets of both directions of a QER.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketCounters<'c> {
    uplink: Counter<'c>,
    downlink: Counter<'c>,
}

/// What is left of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketsLeft {
    /// Packets that may still pass.
    pub packets: u16,
    /// How long that holds.
    pub lasts: Duration,
}

impl<'c> Counter<'c> {
    #[inline]
    const fn new([state, limit]: &'c [AtomicU64; 2]) -> Self {
        Self { state, limit }
    }

    fn set(self, limit: Option<PacketLimit>) {
        let word =
            limit.map_or(0, |limit| limit.unit.milliseconds() << COUNT_BITS | u64::from(limit.packets));
        if self.limit.swap(word, Ordering::Relaxed) == 0 || word == 0 {
            self.state.store(0, Ordering::Relaxed);
        }
    }

    /// The packets of the time unit that runs at `now`, and when it ends; `None` when none runs.
    fn running(state: u64, limit: u64, now: u64) -> Option<(u64, u64)> {
        let end = (state >> COUNT_BITS).checked_sub(1)? + (limit >> COUNT_BITS);
        (now < end).then_some((state & COUNT_MAX, end))
    }

    #[inline]
    fn admits(self, now: u64) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let state = self.state.load(Ordering::Relaxed);
        limit == 0 || Self::running(state, limit, now).map_or(0, |(count, _)| count) < limit & COUNT_MAX
    }

    #[inline]
    fn take(self, now: u64) {
        let limit = self.limit.load(Ordering::Relaxed);
        if limit == 0 {
            return;
        }
        // Relaxed: the word stands for itself. It never fails: there is always a next state.
        let _ = self.state.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
            Some(match Self::running(state, limit, now) {
                Some((COUNT_MAX, _)) => state,
                Some(_) => state + 1,
                None => (now + 1) << COUNT_BITS | 1,
            })
        });
    }

    fn left(self, now: u64) -> Option<PacketsLeft> {
        let limit = self.limit.load(Ordering::Relaxed);
        let (most, unit) = (limit & COUNT_MAX, limit >> COUNT_BITS);
        let running = Self::running(self.state.load(Ordering::Relaxed), limit, now);
        let (count, end) = running.unwrap_or((0, now + unit));
        let packets = u16::try_from(most.saturating_sub(count)).unwrap_or(u16::MAX);
        (limit != 0).then(|| PacketsLeft { packets, lasts: Duration::from_millis(end - now) })
    }
}

impl<'c> PacketCounters<'c> {
    #[inline]
    pub(super) const fn new([uplink, downlink]: &'c PacketCell) -> Self {
        Self { uplink: Counter::new(uplink), downlink: Counter::new(downlink) }
    }

    #[inline]
    const fn of(self, direction: Direction) -> Counter<'c> {
        match direction {
            Direction::Uplink => self.uplink,
            Direction::Downlink => self.downlink,
        }
    }

    /// Sets both limits; what was counted stays counted, unless there was no limit before.
    pub(super) fn set(self, rate: PacketRate) {
        self.uplink.set(rate.uplink);
        self.downlink.set(rate.downlink);
    }

    /// Whether one more packet may pass at `now`, in milliseconds.
    #[inline]
    pub(super) fn admits(self, direction: Direction, now: u64) -> bool {
        self.of(direction).admits(now)
    }

    /// Counts a packet that passes.
    #[inline]
    pub(super) fn take(self, direction: Direction, now: u64) {
        self.of(direction).take(now);
    }

    /// What is left, where there is a limit.
    pub(super) fn left(self, direction: Direction, now: u64) -> Option<PacketsLeft> {
        self.of(direction).left(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kaido_n4::TimeUnit;

    fn limited(cell: &[AtomicU64; 2], packets: u16, unit: TimeUnit) -> Counter<'_> {
        let counter = Counter::new(cell);
        counter.set(Some(PacketLimit { packets, unit }));
        counter
    }

    fn pass(counter: Counter<'_>, now: u64, offered: usize) -> usize {
        let admitted = (0..offered).filter(|_| counter.admits(now).then(|| counter.take(now)).is_some());
        admitted.count()
    }

    #[test]
    fn a_time_unit_begins_with_its_first_packet() {
        let cell = Default::default();
        let counter = limited(&cell, 3, TimeUnit::Minute);
        assert_eq!(counter.left(7), Some(PacketsLeft { packets: 3, lasts: Duration::from_secs(60) }));
        assert_eq!(pass(counter, 50_000, 2), 2);
        assert_eq!(counter.left(60_000), Some(PacketsLeft { packets: 1, lasts: Duration::from_secs(50) }));
        assert_eq!(pass(counter, 109_999, 5), 1);
        assert_eq!(pass(counter, 110_000, 5), 3);
        assert_eq!(pass(counter, 169_999, 5), 0);
        assert_eq!(pass(counter, 900_000, 5), 3);
        assert_eq!(counter.left(900_000).unwrap().packets, 0);
    }

    #[test]
    fn the_largest_and_the_smallest_limits() {
        let cells = PacketCell::default();
        let most = limited(&cells[0], u16::MAX, TimeUnit::Week);
        assert_eq!(pass(most, 0, 100_000), 65_535);
        most.take(0);
        assert_eq!(most.left(0).unwrap().packets, 0, "a packet too many is not one of the next week");
        assert_eq!(pass(most, 604_799_999, 1), 0);
        assert_eq!(pass(most, 604_800_000, 1), 1);
        let none = limited(&cells[1], 0, TimeUnit::Hour);
        assert_eq!(pass(none, 0, 10), 0);
        none.set(None);
        assert_eq!((pass(none, 0, 10), none.left(0)), (10, None));
    }

    #[test]
    fn a_new_limit_keeps_what_was_counted() {
        let cell = Default::default();
        let counter = limited(&cell, 10, TimeUnit::Minute);
        assert_eq!(pass(counter, 0, 8), 8);
        counter.set(Some(PacketLimit { packets: 20, unit: TimeUnit::SixMinutes }));
        assert_eq!(pass(counter, 61_000, 100), 12);
        counter.set(Some(PacketLimit { packets: 5, unit: TimeUnit::SixMinutes }));
        assert_eq!((pass(counter, 61_000, 1), counter.left(61_000).unwrap().packets), (0, 0));
    }
}
