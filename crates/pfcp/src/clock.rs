//! The node's own time, which never jumps, and the wall clock, which somebody may set.
//!
//! ```text
//!   wall clock at start + monotonic clock since = node time ──▶ sessions, timers, usage
//!            node time + offset = wall clock ◀──▶ time stamps in messages
//! ```
//! Behind the endpoint there is node time alone. What a message says is converted where it is read or written, so that a
//! quota of an hour lasts an hour, whatever NTP does.

use std::time::{Duration, SystemTime};

use kaido_n4::{Establishment, Modification, MonitoringTime};

use crate::encode::ntp_seconds;
use crate::transaction::Instants;

/// From here on the wall clock was set; below it is slewed, as NTP does most of the time.
const STEP_MS: i64 = 1000;

/// How far the wall clock is ahead of node time, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WallOffset(i64);

/// A time so many milliseconds later; not before 1970, which sessions cannot store.
fn shifted(at: SystemTime, ms: i64) -> SystemTime {
    let by = Duration::from_millis(ms.unsigned_abs());
    let shifted = if ms >= 0 { at.checked_add(by) } else { at.checked_sub(by) };
    shifted.unwrap_or(at).max(SystemTime::UNIX_EPOCH)
}

impl WallOffset {
    fn between(wall: SystemTime, node: SystemTime) -> Self {
        let ms = |span: Duration| i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
        Self(match wall.duration_since(node) {
            Ok(ahead) => ms(ahead),
            Err(behind) => -ms(behind.duration()),
        })
    }

    /// A node time as a message has it: seconds since 1900 by the wall clock.
    pub(crate) fn stamp(self, node: SystemTime) -> u32 {
        ntp_seconds(shifted(node, self.0))
    }

    fn to_node(self, wall: &mut SystemTime) {
        *wall = shifted(*wall, -self.0);
    }

    fn monitoring(self, times: &mut [MonitoringTime]) {
        times.iter_mut().for_each(|time| self.to_node(&mut time.at));
    }

    /// The times of a request, in node time.
    pub(crate) fn establishment(self, request: &mut Establishment) {
        let times = request.pdrs.iter_mut().flat_map(|pdr| [&mut pdr.activation, &mut pdr.deactivation]);
        times.flatten().for_each(|at| self.to_node(at));
        request.urrs.iter_mut().for_each(|urr| self.monitoring(&mut urr.monitoring_times));
    }

    /// The times of a request, in node time.
    pub(crate) fn modification(self, request: &mut Modification) {
        let created =
            request.create_pdrs.iter_mut().flat_map(|pdr| [&mut pdr.activation, &mut pdr.deactivation]);
        let updated =
            request.update_pdrs.iter_mut().flat_map(|pdr| [&mut pdr.activation, &mut pdr.deactivation]);
        created.chain(updated).flatten().for_each(|at| self.to_node(at));
        request.create_urrs.iter_mut().for_each(|urr| self.monitoring(&mut urr.monitoring_times));
        let updated = request.update_urrs.iter_mut().filter_map(|urr| urr.monitoring_times.as_mut());
        updated.for_each(|times| self.monitoring(times));
    }
}

/// Where node time began.
#[derive(Debug)]
pub(crate) struct NodeClock {
    began: Instants,
    offset: WallOffset,
    /// The offset that times to come were converted by.
    converted: WallOffset,
}

impl NodeClock {
    pub(crate) fn new(now: Instants) -> Self {
        // A machine without a clock begins in 1970, or before.
        let wall = now.wall.max(SystemTime::UNIX_EPOCH);
        let offset = WallOffset::between(now.wall, wall);
        Self { began: Instants { wall, ..now }, offset, converted: offset }
    }

    /// The node time of a moment.
    pub(crate) fn time(&self, now: Instants) -> SystemTime {
        self.began.wall + now.monotonic.saturating_duration_since(self.began.monotonic)
    }

    /// Looks at the wall clock: by how many milliseconds it was set since times were converted, if it was.
    pub(crate) fn look(&mut self, now: Instants) -> Option<i64> {
        self.offset = WallOffset::between(now.wall, self.time(now));
        let step = self.offset.0.saturating_sub(self.converted.0);
        (step.abs() >= STEP_MS).then(|| {
            self.converted = self.offset;
            step
        })
    }

    pub(crate) fn offset(&self) -> WallOffset {
        self.offset
    }
}
