//! Time as the tables keep it.

use std::ops::Add;
use std::time::{Duration, Instant};

/// Nanoseconds since a node began: five centuries of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeInstant(u64);

/// Nanoseconds of a tick of the timers, as a power of two: 1.05 ms.
const TICK_SHIFT: u32 = 20;

impl NodeInstant {
    /// When a node that began at `epoch` has this instant.
    #[inline]
    pub fn at(epoch: Instant, now: Instant) -> Self {
        Self(nanoseconds(now.saturating_duration_since(epoch)))
    }

    /// A moment by its nanoseconds.
    #[inline]
    pub const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// How long `earlier` is ago; nothing when it is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// So many milliseconds later.
    #[inline]
    pub const fn plus_ms(self, milliseconds: u32) -> Self {
        Self(self.0.saturating_add(milliseconds as u64 * 1_000_000))
    }

    /// Its nanoseconds.
    #[inline]
    pub const fn nanoseconds(self) -> u64 {
        self.0
    }

    /// The tick of the timers in which the moment lies.
    #[inline]
    pub const fn tick(self) -> u64 {
        self.0 >> TICK_SHIFT
    }

    /// The first tick that begins at the moment or later.
    #[inline]
    pub const fn tick_after(self) -> u64 {
        self.0.div_ceil(1 << TICK_SHIFT)
    }

    /// When a tick begins.
    #[inline]
    pub const fn of_tick(tick: u64) -> Self {
        Self(tick << TICK_SHIFT)
    }
}

impl Add<Duration> for NodeInstant {
    type Output = Self;

    #[inline]
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanoseconds(duration)))
    }
}

#[inline]
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_never_early() {
        for nanoseconds in [0, 1, (1 << TICK_SHIFT) - 1, 1 << TICK_SHIFT, (1 << TICK_SHIFT) + 1] {
            let moment = NodeInstant::from_nanoseconds(nanoseconds);
            assert!(
                NodeInstant::of_tick(moment.tick()) <= moment
                    && NodeInstant::of_tick(moment.tick_after()) >= moment
            );
        }
        let epoch = Instant::now();
        assert_eq!(NodeInstant::at(epoch, epoch + Duration::from_secs(2)), NodeInstant(2_000_000_000));
        assert_eq!(NodeInstant(5).plus_ms(120_000), NodeInstant(5) + Duration::from_secs(120));
        assert_eq!(NodeInstant(5) + Duration::MAX, NodeInstant(u64::MAX));
    }
}
