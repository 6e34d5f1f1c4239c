//! The timing program times what is forwarded, or says that it is not.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::net::Ipv4Addr;

use kaido_xdp::Error;
use kaido_xdp::fastpath::{FastDestination, FastDirection, FastKey, FastRecord, Hop, Template, UsageCell};
use kaido_xdp::speed::Speed;

mod rig;
use rig::fast::{self, N3};

const SESSIONS: u32 = 4;
const BOTH: [FastDirection; 2] = [FastDirection::Uplink, FastDirection::Downlink];

#[test]
fn every_timed_packet_is_forwarded() {
    if !rig::is_root("every_timed_packet_is_forwarded") {
        return;
    }
    let mut path = fast::path(&fast::config(64, false));
    let speed = Speed::load(&path).unwrap();
    for direction in BOTH {
        let refused = speed.time(direction, SESSIONS, 100);
        assert!(matches!(refused, Err(Error::NotForwarded { packets: 100 })), "{refused:?}");
    }
    let hop = Hop { ifindex: 1, mtu: 1500, source: [2; 6], destination: [4; 6], port: 0, tag: None };
    path.set_hop(N3, Some(&hop)).unwrap();
    let peer = Ipv4Addr::new(192, 0, 2, 2);
    path.set_template(0, Some(&Template { local: Speed::LOCAL, peer, tos: 0, hop: N3 })).unwrap();
    for session in 0..SESSIONS {
        let address = Speed::ue(session);
        let uplink = FastRecord {
            session,
            direction: FastDirection::Uplink,
            gate_open: true,
            far_drop: false,
            qfis: None,
            ue_ipv4: Some(address),
            ue_ipv6: None,
            usage: [Some(UsageCell { cell: session, before_qos: false }), None, None],
            destination: FastDestination::Hop(N3),
        };
        let destination =
            FastDestination::Tunnel { template: 0, teid: session, qfi: None, container_uplink: false };
        let downlink = FastRecord { direction: FastDirection::Downlink, destination, ..uplink };
        path.insert_or_replace(FastKey::Tunnel { local: Speed::LOCAL, teid: session }, &uplink).unwrap();
        path.insert_or_replace(FastKey::Ipv4 { instance: 0, address }, &downlink).unwrap();
    }
    for direction in BOTH {
        let timing = speed.time(direction, SESSIONS, 100).unwrap();
        assert_eq!(timing.ns_per_packet(), timing.whole_ns.saturating_sub(timing.restore_ns));
    }
    // A hundred packets each way, and none while only the restoring was timed.
    let (base, _) = path.usage_memory();
    for (word, sum) in [(1, 100), (3, 100)] {
        // SAFETY: four cells of eight words, within the mapping; no program runs now.
        let counted: u64 = (0..4).map(|cell| unsafe { base.cast::<u64>().add(cell * 8 + word).read() }).sum();
        assert_eq!(counted, sum);
    }
}
