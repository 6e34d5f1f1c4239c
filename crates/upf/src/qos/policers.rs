//! The token buckets of all QERs, by number.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use kaido_table::{Cells, RegionError, Ticks, TokenBucket};
use serde::{Deserialize, Serialize};

use super::packets::{PacketCell, PacketCounters, PacketsLeft};
use crate::ue::Direction;
use crate::usage::UnfitMemory;
use kaido_n4::{BitRate, PacketRate};

/// Depth of a bucket without an averaging window, as a time at its rate. In any two seconds no more passes than the rate
/// and 15 % of it, and one packet.
///
/// A TCP flow with few packets in flight detects a loss by its retransmission timeout: 200 ms at least, and the RTT
/// (RFC 6298, Linux). The bucket must not overflow meanwhile, so it holds the timeout and an RTT of 100 ms.
/// `tests/it/tcp.rs` has a model of it; docs/upf.md has what the kernel's TCP gets.
pub const WINDOW_DEFAULT: Duration = Duration::from_millis(300);
/// The shortest averaging window that is kept to; a shorter one is taken for this.
pub const WINDOW_MIN: Duration = Duration::from_millis(1);
/// The longest averaging window that is kept to; five times what 5QIs have by default (TS 23.501 5.7.3.6).
pub const WINDOW_MAX: Duration = Duration::from_secs(10);

/// The place of a QER's token buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PolicerSlot(pub u32);

/// One cache line: a bucket for each direction, uplink and downlink.
type Cell = [TokenBucket; 2];

const _: () = assert!(size_of::<Cell>() == 64);

/// All token buckets of the node, and the clock that they go by.
#[derive(Debug)]
pub struct Policers {
    cells: Cells<Cell>,
    /// Packets counted for the same QERs.
    packets: Cells<PacketCell>,
    began: Instant,
}

impl Policers {
    /// Room for the buckets of `len` QERs, which costs memory only where it is used.
    ///
    /// # Errors
    /// [`RegionError`] when there is not so much.
    pub fn new(len: u32) -> Result<Self, RegionError> {
        Ok(Self { cells: Cells::sparse(len)?, packets: Cells::sparse(len)?, began: Instant::now() })
    }

    /// Policers in memory that others take from too: eight words each, those of a [`TokenBucket`] for the uplink and for the downlink.
    /// All zero at first. Their clock is [`Policers::age`] old.
    ///
    /// # Errors
    /// [`UnfitMemory`] when it does not begin and end with a policer, or so many packet rates have no memory.
    pub fn over(words: &'static [AtomicU64]) -> Result<Self, UnfitMemory> {
        let cells = Cells::over(words).ok_or(UnfitMemory)?;
        let packets = Cells::sparse(cells.len()).map_err(|_| UnfitMemory)?;
        Ok(Self { cells, packets, began: Instant::now() })
    }

    /// How long ago their clock began.
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// How many QERs there is room for.
    #[allow(clippy::len_without_is_empty)] // Room, which is never none.
    pub fn len(&self) -> u32 {
        self.cells.len()
    }

    /// A moment on the buckets' clock.
    #[inline]
    pub fn ticks(&self, now: Instant) -> Ticks {
        Ticks::after(now.saturating_duration_since(self.began))
    }

    #[inline]
    fn bucket(&self, slot: PolicerSlot, direction: Direction) -> &TokenBucket {
        let [uplink, downlink] = self.cells.get(slot.0);
        match direction {
            Direction::Uplink => uplink,
            Direction::Downlink => downlink,
        }
    }

    #[inline]
    fn packets(&self, slot: PolicerSlot) -> PacketCounters<'_> {
        PacketCounters::new(self.packets.get(slot.0))
    }

    /// Brings a QER's buckets into the cache, ahead of [`Policers::admits`].
    #[inline]
    pub fn prefetch(&self, slot: PolicerSlot) {
        self.cells.prefetch(slot.0);
    }

    /// Sets both rates, zero for no limit, and the window that they are averaged over. What was taken stays taken.
    pub fn set(&self, slot: PolicerSlot, rate: BitRate, window: Duration) {
        let [uplink, downlink] = self.cells.get(slot.0);
        let window = window.clamp(WINDOW_MIN, WINDOW_MAX);
        for (bucket, kbps) in [(uplink, rate.uplink_kbps), (downlink, rate.downlink_kbps)] {
            if !bucket.is_limited() {
                bucket.begin(self.ticks(Instant::now()));
            }
            bucket.set(kbps.saturating_mul(1000), window);
        }
    }

    /// Whether a packet may pass; takes nothing.
    #[inline]
    pub fn admits(&self, slot: PolicerSlot, direction: Direction, now: Ticks) -> bool {
        self.bucket(slot, direction).admits(now)
    }

    /// Takes what a packet costs that passes. `shared` says that others may do so at this moment.
    #[inline]
    pub fn take(&self, slot: PolicerSlot, direction: Direction, now: Ticks, bytes: u64, shared: bool) {
        self.bucket(slot, direction).take(now, bytes, shared);
    }

    /// A moment on the clock that packets are counted by, in milliseconds.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // 584 million years.
    pub fn milliseconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_millis() as u64
    }

    /// Limits the packets of a QER. What was counted stays counted.
    pub fn set_packets(&self, slot: PolicerSlot, rate: PacketRate) {
        self.packets(slot).set(rate);
    }

    /// Whether one more packet may pass at `now`, in milliseconds; counts nothing.
    #[inline]
    pub fn admits_packet(&self, slot: PolicerSlot, direction: Direction, now: u64) -> bool {
        self.packets(slot).admits(direction, now)
    }

    /// Counts a packet that passes.
    #[inline]
    pub fn take_packet(&self, slot: PolicerSlot, direction: Direction, now: u64) {
        self.packets(slot).take(direction, now);
    }

    /// How many packets may still pass, where they are limited.
    pub fn packets_left(&self, slot: PolicerSlot, direction: Direction, now: u64) -> Option<PacketsLeft> {
        self.packets(slot).left(direction, now)
    }

    /// Clears the buckets for their next owner. No worker may still hold a record that names them.
    pub fn clear(&self, slot: PolicerSlot) {
        self.cells.get(slot.0).iter().for_each(TokenBucket::clear);
        self.packets(slot).set(PacketRate::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(10);

    #[test]
    fn directions_and_slots_are_apart() {
        let policers = Policers::new(3).unwrap();
        let (slot, other) = (PolicerSlot(2), PolicerSlot(1));
        policers.set(slot, BitRate { uplink_kbps: 8, downlink_kbps: 0 }, SHORT);
        policers.set(other, BitRate { uplink_kbps: 8, downlink_kbps: 8 }, SHORT);
        let now = policers.ticks(Instant::now());
        policers.take(slot, Direction::Uplink, now, 1000, true);
        policers.take(slot, Direction::Downlink, now, 1000, true);
        assert!(!policers.admits(slot, Direction::Uplink, now));
        assert!(policers.admits(slot, Direction::Downlink, now), "zero is no limit");
        assert!(
            policers.admits(other, Direction::Uplink, now)
                && policers.admits(other, Direction::Downlink, now)
        );
        policers.clear(slot);
        assert!(policers.admits(slot, Direction::Uplink, now));
    }

    #[test]
    fn windows_are_kept_within_bounds() {
        let policers = Policers::new(1).unwrap();
        let slot = PolicerSlot(0);
        let rate = BitRate { uplink_kbps: 8000, downlink_kbps: 8000 };
        for (window, packets) in
            [(Duration::ZERO, 1), (Duration::from_secs(2), 2000), (Duration::MAX, 10_000)]
        {
            policers.clear(slot);
            policers.set(slot, rate, window);
            let now = policers.ticks(Instant::now());
            let mut passed = 0;
            while policers.admits(slot, Direction::Uplink, now) {
                policers.take(slot, Direction::Uplink, now, 1000, false);
                passed += 1;
            }
            assert_eq!(passed, packets, "{window:?}");
        }
    }
}
