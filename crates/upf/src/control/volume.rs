//! The volume of all sessions together, in parts where they are many.

use std::collections::BTreeSet;

use super::Upf;
use kaido_n4::{Seid, Volume};

/// A sum over all sessions that is taken in parts, so that nothing else waits for the whole. Sessions that come and go
/// meanwhile may or may not be in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct VolumeScan {
    next: usize,
    sum: Volume,
}

impl Upf {
    /// Volume of all sessions since they began, by the first URR of each.
    pub fn volume(&self) -> Volume {
        let mut all = VolumeScan::default();
        self.scan_volume(&mut all, usize::MAX).unwrap_or(all.sum)
    }

    /// As [`Upf::volume`], by the places of `count` sessions more; the sum when there are no more.
    pub fn scan_volume(&self, scan: &mut VolumeScan, count: usize) -> Option<Volume> {
        let (counters, next) = self.sessions.counters(scan.next, count);
        for slot in counters {
            let volume = self.node.usage.read(slot);
            scan.sum.uplink_bytes += volume.uplink_bytes;
            scan.sum.downlink_bytes += volume.downlink_bytes;
            scan.sum.uplink_packets += volume.uplink_packets;
            scan.sum.downlink_packets += volume.downlink_packets;
        }
        scan.next = next.unwrap_or(scan.next);
        next.is_none().then_some(scan.sum)
    }

    /// Volume of a session since it began, by all its URRs; what several URRs count alike is in it once. `None` without such a
    /// session.
    pub fn volume_of(&self, seid: Seid) -> Option<Volume> {
        let session = self.sessions.get(self.sessions.find(seid)?)?;
        let mut counters = BTreeSet::new();
        let meters = session.state.meters.values().filter(|meter| counters.insert(meter.slot.0));
        Some(meters.fold(Volume::default(), |sum, meter| sum.plus(&meter.volume(&self.node.usage))))
    }
}
