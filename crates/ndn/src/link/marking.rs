//! Congestion marks: a long queue in front of a face is told to who asks through it.
//!
//! As of NFD's link service: the first packet that finds the queue above its threshold is marked. The next is
//! marked after an interval that shrinks with the square root of their number, until the queue is short again
//! (CoDel's law).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kaido_ndn_tables::FaceId;

use crate::face::{FLAG_CONGESTION_MARKING, Face};

/// Octets of a queue from which on it is long.
const THRESHOLD: u32 = 64 << 10;

/// Between the first mark and the second.
const INTERVAL: Duration = Duration::from_millis(100);

/// Which faces have long queues.
#[derive(Debug, Default)]
pub(super) struct CongestionMarking {
    congested: HashMap<FaceId, (Instant, u32)>,
}

impl CongestionMarking {
    /// Whether a packet that is to be sent now is marked.
    #[inline]
    pub(super) fn marks(&mut self, face: &Face, now: Instant) -> bool {
        if face.backlog() <= THRESHOLD {
            if !self.congested.is_empty() {
                self.congested.remove(&face.id());
            }
            return false;
        }
        face.flags() & FLAG_CONGESTION_MARKING != 0 && self.marks_congested(face.id(), now)
    }

    #[cold]
    fn marks_congested(&mut self, face: FaceId, now: Instant) -> bool {
        let Some((next, marks)) = self.congested.get_mut(&face) else {
            self.congested.insert(face, (now + INTERVAL, 1));
            return true;
        };
        if now < *next {
            return false;
        }
        *marks = marks.saturating_add(1);
        *next = now + INTERVAL.div_f64(f64::from(*marks).sqrt());
        true
    }

    /// Forgets a face that is no more.
    pub(super) fn forget(&mut self, is_there: impl Fn(FaceId) -> bool) {
        self.congested.retain(|face, _| is_there(*face));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::face::{FaceSettings, FaceUri, Faces, LinkType, Persistency, Scope, Transport};

    #[test]
    fn a_long_queue_is_marked_now_and_then() {
        let faces = Faces::new(4);
        let settings = FaceSettings {
            remote: FaceUri::Internal,
            local: FaceUri::Internal,
            scope: Scope::Local,
            persistency: Persistency::Permanent,
            link_type: LinkType::PointToPoint,
            mtu: 8800,
            flags: FLAG_CONGESTION_MARKING,
            transport: Transport::Internal,
        };
        let face = faces.create(settings).unwrap();
        let (mut marking, start) = (CongestionMarking::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert!(!marking.marks(&face, start));
        face.set_backlog(1 << 20);
        assert!(marking.marks(&face, start), "the first at once");
        assert!(!marking.marks(&face, at(99)) && marking.marks(&face, at(100)));
        assert!(!marking.marks(&face, at(170)) && marking.marks(&face, at(171)), "then more often");
        face.set_flags(0, FLAG_CONGESTION_MARKING);
        assert!(!marking.marks(&face, at(900)), "not where it was not asked for");
        face.set_flags(FLAG_CONGESTION_MARKING, FLAG_CONGESTION_MARKING);
        face.set_backlog(0);
        assert!(!marking.marks(&face, at(1000)) && marking.congested.is_empty());
        face.set_backlog(1 << 20);
        assert!(marking.marks(&face, at(1001)), "as new");
        marking.forget(|_| false);
        assert!(marking.congested.is_empty());
    }
}
