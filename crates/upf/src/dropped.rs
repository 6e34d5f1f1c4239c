//! Packets to a UE that are dropped by its rules, counted for URRs that ask for it (Dropped DL Traffic Threshold,
//! TS 29.244 5.2.2.2, 8.2.49). A control plane pauses charging when they become many.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kaido_n4::{DroppedTraffic, UrrId};

/// What was dropped of the packets of one URR, and how much is reported.
#[derive(Debug)]
pub(crate) struct DropCount {
    urr: UrrId,
    packets: AtomicU64,
    octets: AtomicU64,
    /// Counts at which control is told; all ones for none.
    packets_limit: AtomicU64,
    octets_limit: AtomicU64,
    /// Control was told, and has set no limits since.
    told: AtomicBool,
}

/// Two are equal if they are one: what a rule counts in is part of what it does.
impl PartialEq for DropCount {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for DropCount {}

impl DropCount {
    /// The URR that asks.
    pub(crate) fn urr(&self) -> UrrId {
        self.urr
    }

    /// A count that begins now.
    pub(crate) fn new(urr: UrrId, threshold: DroppedTraffic) -> Self {
        let count = Self {
            urr,
            packets: AtomicU64::new(0),
            octets: AtomicU64::new(0),
            packets_limit: AtomicU64::new(u64::MAX),
            octets_limit: AtomicU64::new(u64::MAX),
            told: AtomicBool::new(false),
        };
        count.expect(threshold);
        count
    }

    /// Counts a packet; whether control is to be told.
    pub(crate) fn count(&self, octets: u64) -> bool {
        // Relaxed: each count stands for itself, and control reads them after it was told.
        let packets = self.packets.fetch_add(1, Ordering::Relaxed) + 1;
        let octets = self.octets.fetch_add(octets, Ordering::Relaxed).wrapping_add(octets);
        let over = packets >= self.packets_limit.load(Ordering::Relaxed)
            || octets >= self.octets_limit.load(Ordering::Relaxed);
        over && !self.told.swap(true, Ordering::Relaxed)
    }

    /// Has control told when so much more than now is dropped.
    pub(crate) fn expect(&self, threshold: DroppedTraffic) {
        let place = |count: &AtomicU64, ahead: Option<u64>| {
            ahead.map_or(u64::MAX, |ahead| count.load(Ordering::Relaxed).saturating_add(ahead.max(1)))
        };
        self.packets_limit.store(place(&self.packets, threshold.packets), Ordering::Relaxed);
        self.octets_limit.store(place(&self.octets, threshold.octets), Ordering::Relaxed);
        self.told.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_threshold_tells_once_until_it_is_set_again() {
        let both = DroppedTraffic { packets: Some(3), octets: Some(1000) };
        let count = DropCount::new(UrrId(1), both);
        let told: Vec<_> = (0..5).map(|_| count.count(10)).collect();
        assert_eq!(told, [false, false, true, false, false]);
        count.expect(both);
        assert!(count.count(1000) && !count.count(1000));
        count.expect(DroppedTraffic { packets: None, octets: Some(0) });
        assert!(count.count(1), "a threshold of nothing is reached by the next packet");
        count.expect(DroppedTraffic::default());
        assert!(!count.count(u64::MAX));
    }
}
