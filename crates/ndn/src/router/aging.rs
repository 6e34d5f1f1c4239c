//! Faces by UDP on the engine's ports that were made for who sent, and of which nothing has come for long, go. The workers that
//! make them have no time to look at all of them; the counters that they keep tell who was heard.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use kaido_ndn_tables::FaceId;

use crate::face::{Face, Faces, Persistency, Transport};

/// How often it is looked.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// When each such face was heard of last.
#[derive(Debug, Default)]
pub(super) struct FaceAging {
    looked: Option<Instant>,
    /// Octets that had come, and since when it is so many.
    heard: HashMap<FaceId, (u64, Instant)>,
}

impl FaceAging {
    /// Removes what was not heard of for `idle`.
    pub(super) fn look(&mut self, faces: &Faces, idle: Duration, now: Instant) {
        if self.looked.is_some_and(|looked| now.saturating_duration_since(looked) < LOOK_EVERY) {
            return;
        }
        self.looked = Some(now);
        let ages = |face: &Face| {
            face.persistency() == Persistency::OnDemand && matches!(face.transport(), Transport::Udp { .. })
        };
        let all = faces.all();
        let aging: HashMap<FaceId, u64> = all
            .iter()
            .filter(|face| ages(face))
            .map(|face| (face.id(), face.totals().received.octets))
            .collect();
        self.heard.retain(|id, _| aging.contains_key(id));
        for (id, octets) in aging {
            let heard = self.heard.entry(id).or_insert((octets, now));
            if heard.0 != octets {
                *heard = (octets, now);
            } else if now.saturating_duration_since(heard.1) >= idle {
                faces.destroy(id);
                self.heard.remove(&id);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kaido_engine::PortId;

    use super::*;
    use crate::link::{UdpListen, udp_face};

    #[test]
    fn what_is_silent_goes_and_what_was_asked_for_stays() {
        let faces = Faces::new(8);
        let listen = UdpListen { port: PortId(0), address: "192.0.2.1:6363".parse().unwrap() };
        let face = |host: u8, persistency| {
            let remote = std::net::SocketAddr::from(([192, 0, 2, host], 6363));
            faces.create(udp_face(listen, remote, persistency, 1400)).unwrap()
        };
        let [silent, speaks] = [face(2, Persistency::OnDemand), face(3, Persistency::OnDemand)];
        let stays = face(4, Persistency::Persistent);
        let (mut aging, start, idle) = (FaceAging::default(), Instant::now(), Duration::from_secs(30));
        for second in 0..=30 {
            speaks.counters(0).received.octets(100);
            aging.look(&faces, idle, start + Duration::from_secs(second));
            assert_eq!(faces.get(silent.id()).is_some(), second < 30, "{second}");
        }
        // Nothing is looked at more often than once a second.
        aging.look(&faces, Duration::ZERO, start + Duration::from_millis(30_500));
        assert!(faces.get(speaks.id()).is_some());
        aging.look(&faces, idle, start + Duration::from_secs(59));
        assert!(faces.get(speaks.id()).is_some());
        aging.look(&faces, idle, start + Duration::from_secs(60));
        assert_eq!((faces.get(speaks.id()).is_none(), faces.get(stays.id()).is_some()), (true, true));
        assert!(aging.heard.is_empty());
    }
}
