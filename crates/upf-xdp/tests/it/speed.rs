//! The timing program times what is forwarded, or says that it is not.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use crate::rig;
use kaido_upf_xdp::OffloadError;
use kaido_upf_xdp::offload::OffloadDirection;
use kaido_upf_xdp::speed::{Rules, Speed, filled};

const SESSIONS: u32 = 4;
const BOTH: [OffloadDirection; 2] = [OffloadDirection::Uplink, OffloadDirection::Downlink];

#[test]
fn every_timed_packet_is_forwarded() {
    if !rig::is_root("every_timed_packet_is_forwarded") {
        return;
    }
    let empty = filled(0, Rules::PLAIN).unwrap();
    let speed = Speed::load(&empty).unwrap();
    for direction in BOTH {
        let refused = speed.time(direction, SESSIONS, 100);
        assert!(matches!(refused, Err(OffloadError::NotForwarded { packets: 100 })), "{refused:?}");
    }
    let mut path = filled(SESSIONS, Rules::PLAIN).unwrap();
    let speed = Speed::load(&path).unwrap();
    for direction in BOTH {
        let timing = speed.time(direction, SESSIONS, 100).unwrap();
        assert_eq!(timing.whole_ns.wrapping_add_signed(-timing.ns_per_packet()), timing.restore_ns);
    }
    // A hundred packets each way, and none while only the restoring was timed.
    (0..SESSIONS).for_each(|cell| path.sync(cell));
    let (base, _) = path.usage_memory();
    for (word, sum) in [(1, 100), (3, 100)] {
        // SAFETY: four cells of eight words, within the mapping; no program runs now.
        let counted: u64 = (0..4).map(|cell| unsafe { base.cast::<u64>().add(cell * 8 + word).read() }).sum();
        assert_eq!(counted, sum);
    }
}
