//! What the offload counts is all there when it is asked for, and limits are told by the packet that reaches them, though
//! counts are kept back in records meanwhile.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kaido_upf_xdp::Offload;
use kaido_upf_xdp::offload::{OffloadDirection, ThresholdEvent, UsageCell};
use kaido_upf_xdp::speed::{Rules, Speed, filled, records};

use crate::rig;
use crate::rig::tables;

/// Bytes of the packets that the timing program sends, without the tunnel.
const UPLINK_BYTES: u64 = 192 - 14 - 20 - 8 - 8;
/// Words of a cell.
const UPLINK: [usize; 2] = [0, 1];
const UPLINK_LIMIT: usize = 4;
const TOTAL_LIMIT: usize = 6;

struct Rig {
    path: Offload,
    speed: Speed,
    words: &'static [AtomicU64],
}

impl Rig {
    fn new(sessions: u32) -> Self {
        let path = filled(sessions, Rules::PLAIN).unwrap();
        let speed = Speed::load(&path).unwrap();
        let words = path.leak_usage_cells().unwrap();
        Self { path, speed, words }
    }

    fn send(&self, sessions: u32, packets: u32) {
        self.speed.time(OffloadDirection::Uplink, sessions, packets).unwrap();
    }

    fn word(&self, cell: usize, word: usize) -> u64 {
        self.words[8 * cell + word].load(Ordering::Relaxed)
    }

    fn set_limit(&mut self, cell: u32, word: usize, at: u64) {
        self.words[8 * cell as usize + word].store(!at, Ordering::Relaxed);
        self.path.flush(cell);
    }
}

fn with_rig(test: &str, sessions: u32, body: impl FnOnce(Rig)) {
    if rig::is_root(test) {
        body(Rig::new(sessions));
    }
}

#[test]
fn what_is_kept_back_is_little_and_there_when_asked_for() {
    with_rig("what_is_kept_back_is_little_and_there_when_asked_for", 1, |mut rig| {
        let packets = 10_000;
        rig.send(1, packets);
        let [bytes, counted] = UPLINK.map(|word| rig.word(0, word));
        assert_eq!(bytes, counted * UPLINK_BYTES);
        let missing = u64::from(packets) - counted;
        assert!((1..=65_536 / UPLINK_BYTES).contains(&missing), "{missing} packets are kept back");
        rig.path.sync(0);
        let all = u64::from(packets);
        assert_eq!(UPLINK.map(|word| rig.word(0, word)), [all * UPLINK_BYTES, all]);
    });
}

#[test]
fn the_packet_that_reaches_a_limit_tells() {
    with_rig("the_packet_that_reaches_a_limit_tells", 1, |mut rig| {
        let told = vec![ThresholdEvent { session: 0, cell: 0 }];
        // Soon, and so far that counts are kept back before it is near.
        for (word, packets) in [(UPLINK_LIMIT, 100), (TOTAL_LIMIT, 40_000)] {
            rig.path.sync(0);
            let at = rig.word(0, UPLINK[0]) + u64::from(packets) * UPLINK_BYTES;
            rig.set_limit(0, word, at);
            rig.send(1, packets - 1);
            assert!(rig.path.events().next().is_none());
            rig.send(1, 1);
            assert_eq!(rig.path.events().collect::<Vec<_>>(), told);
            rig.send(1, 1000);
            assert!(rig.path.events().next().is_none(), "told once");
        }
        // While counts are kept back: the next packet tells.
        rig.send(1, 1000);
        let unaware = rig.word(0, UPLINK[1]);
        rig.set_limit(0, TOTAL_LIMIT, 1);
        assert!(rig.word(0, UPLINK[1]) > unaware, "nothing was kept back");
        rig.send(1, 1);
        assert_eq!(rig.path.events().collect::<Vec<_>>(), told);
    });
}

#[test]
fn records_beyond_those_that_may_keep_back_count_at_once() {
    let sessions = 6;
    with_rig("records_beyond_those_that_may_keep_back_count_at_once", sessions, |mut rig| {
        for session in 0..sessions {
            for (key, record) in records(session, Rules::PLAIN) {
                let record = tables::changed(record, |rule| *rule = rule.counting([UsageCell::of_passed(0)]));
                rig.path.insert_or_replace(key, &record).unwrap();
            }
        }
        rig.send(sessions, 5000);
        rig.path.sync(0);
        assert_eq!(rig.word(0, UPLINK[1]), 5000);
    });
}

/// Records are replaced, moved, read and recalled, and limits come and go, while packets are counted: each of them once.
#[test]
fn nothing_is_lost_or_counted_twice_when_all_changes() {
    let (sessions, packets) = (16, 3_000_000);
    with_rig("nothing_is_lost_or_counted_twice_when_all_changes", sessions, |mut rig| {
        let done = AtomicBool::new(false);
        let Rig { path, speed, words } = &mut rig;
        let (speed, words) = (&*speed, *words);
        let rounds = std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                let mut rounds = 0u32;
                while !done.load(Ordering::Relaxed) {
                    let session = rounds % sessions;
                    for (key, record) in records(session, Rules::PLAIN) {
                        path.insert_or_replace(key, &record).unwrap();
                    }
                    let limit = &words[8 * session as usize + TOTAL_LIMIT];
                    // Near to what is counted, and far from it.
                    let ahead = if rounds.is_multiple_of(3) { 1000 } else { 1 << 40 };
                    let bytes = words[8 * session as usize].load(Ordering::Relaxed);
                    limit.store(!(bytes + ahead), Ordering::Relaxed);
                    path.flush(session);
                    path.sync((session + 7) % sessions);
                    path.events().for_each(drop);
                    rounds += 1;
                }
                rounds
            });
            let timed = speed.time(OffloadDirection::Uplink, sessions, packets);
            done.store(true, Ordering::Relaxed);
            timed.expect("every packet finds its session's record");
            changes.join().unwrap()
        });
        assert!(rounds > 1000, "only {rounds} changes");
        path.wait_for_readers();
        (0..sessions).for_each(|cell| path.sync(cell));
        let sum =
            |word: usize| words.iter().skip(word).step_by(8).map(|w| w.load(Ordering::Relaxed)).sum::<u64>();
        assert_eq!(UPLINK.map(sum), [u64::from(packets) * UPLINK_BYTES, packets.into()]);
    });
}
