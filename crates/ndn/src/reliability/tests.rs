//! What a face keeps, without frames and ports.

use std::time::Duration;

use super::rtt::MOST;
use super::window::{AGAIN_MAX, WINDOW};
use super::*;

/// One end, at a time that the test turns.
struct End {
    state: Reliability,
    now: Instant,
    /// What was sent again: the new number, the packet.
    again: Vec<(u64, u8)>,
    given_up: u64,
}

impl End {
    fn new(first: u64) -> Self {
        Self { state: Reliability::new(first), now: Instant::now(), again: Vec::new(), given_up: 0 }
    }

    fn send(&mut self, packet: u8) -> Option<u64> {
        self.state.keep([&[packet][..], &[0, packet]].into_iter(), packet.into(), self.now)
    }

    fn ack(&mut self, number: u64) {
        let Self { state, now, again, .. } = self;
        self.given_up += state.acknowledged(number, *now, |number, octets| {
            assert_eq!(octets, [octets[0], 0, octets[0]]);
            again.push((number, octets[0]));
        });
    }

    fn pass(&mut self, ms: u64) {
        self.now += Duration::from_millis(ms);
        let Self { state, now, again, .. } = self;
        self.given_up += state.overdue(*now, |number, octets| again.push((number, octets[0])));
    }
}

/// Conformance: NDNLPv2 reliability | Three acknowledgements of later packets have one sent again, with a new TxSequence
#[test]
fn three_later_acknowledgements_are_a_loss() {
    // Numbers go on from the largest at 0.
    let mut end = End::new(u64::MAX - 1);
    let numbers: Vec<u64> = (0..6).map(|packet| end.send(packet).unwrap()).collect();
    assert_eq!(numbers, [u64::MAX - 1, u64::MAX, 0, 1, 2, 3]);
    end.ack(0);
    end.ack(2);
    assert_eq!(end.again, []);
    // The same again, and what was never sent, say nothing new.
    [2, 2, 99, 5, u64::MAX - 2].into_iter().for_each(|number| end.ack(number));
    assert_eq!(end.again, []);
    end.ack(3);
    assert_eq!(end.again, [(4, 0), (5, 1)]);
    // The former numbers are no longer known; the one in between waits for its time.
    [u64::MAX - 1, u64::MAX, 1].into_iter().for_each(|number| end.ack(number));
    assert_eq!((end.again.len(), end.state.waits()), (2, true));
    [5, 4].into_iter().for_each(|number| end.ack(number));
    assert_eq!((end.again.len(), end.state.waits()), (2, false));
}

/// Conformance: NDNLPv2 reliability | What is not acknowledged within the timeout is sent again, three times at most
#[test]
fn what_is_not_acknowledged_in_time_is_sent_again() {
    let mut end = End::new(0);
    end.send(7).unwrap();
    end.pass(999);
    assert_eq!(end.again, []);
    // After a second, then after two and twice after four, which is the most.
    for (ms, number) in [(1, 1), (2000, 2), (4000, 3)] {
        end.pass(ms - 1);
        assert_eq!(end.again, []);
        end.pass(1);
        assert_eq!(std::mem::take(&mut end.again), [(number, 7)]);
    }
    end.pass(3999);
    assert_eq!((end.given_up, end.state.waits()), (0, true));
    end.pass(1);
    assert_eq!((end.given_up, end.state.waits(), end.again.len()), (1, false, 0));
    assert_eq!((AGAIN_MAX, MOST), (3, Duration::from_secs(4)));
}

/// Conformance: NDNLPv2 reliability | The timeout follows the round trip of packets that were sent once (RFC 6298)
#[test]
fn the_timeout_is_learnt_from_packets_that_were_sent_once() {
    let mut end = End::new(0);
    end.send(1).unwrap();
    end.pass(1000);
    // Of the second copy, or a late answer to the first: it says nothing.
    end.ack(1);
    let number = end.send(2).unwrap();
    end.pass(999);
    assert_eq!(end.again.len(), 1);
    end.ack(number);
    // 999 ms, varying by half as much: 3 s until the next is lost.
    end.send(3).unwrap();
    end.pass(2996);
    assert_eq!(end.again.len(), 1);
    end.pass(1);
    assert_eq!(end.again.len(), 2);
}

/// Conformance: NDNLPv2 reliability | When a part of a packet is given up the others are not sent again
#[test]
fn a_packet_of_which_a_part_is_given_up_is_given_up_whole() {
    let mut end = End::new(0);
    for _ in 0..4 {
        end.send(9).unwrap();
    }
    end.send(1).unwrap();
    for _ in 0..AGAIN_MAX {
        end.pass(4000);
    }
    assert_eq!(end.again.len(), 5 * usize::from(AGAIN_MAX));
    end.pass(4000);
    assert_eq!((end.given_up, end.state.waits()), (2, false), "two packets, of four parts and of one");
}

#[test]
fn what_is_under_way_is_bounded() {
    let mut end = End::new(0);
    let numbered = (0..2 * WINDOW).filter(|_| end.send(1).is_some()).count();
    assert_eq!(numbered, WINDOW);
    // All but the first are acknowledged, which is sent again and takes a place.
    for number in 1..WINDOW as u64 {
        end.ack(number);
    }
    assert_eq!(end.again, [(WINDOW as u64, 1)]);
    assert_eq!((0..2 * WINDOW).filter(|_| end.send(1).is_some()).count(), WINDOW - 1);
    for _ in 0..10 {
        end.pass(4000);
    }
    assert!(!end.state.waits());
    // A peer that acknowledges backwards has all of them sent again, once.
    let mut end = End::new(0);
    assert!((0..WINDOW).all(|_| end.send(2).is_some()));
    let backwards: Vec<u64> = (0..WINDOW as u64).rev().collect();
    backwards.iter().for_each(|number| end.ack(*number));
    assert_eq!(end.again.len(), WINDOW - 3);
    end.state.clear();
    assert!(!end.state.waits());
    assert_eq!(end.send(1), Some(2 * WINDOW as u64 - 3), "numbers go on");
}

/// Conformance: NDNLPv2 reliability | A packet that came before is acknowledged again and not taken again
#[test]
fn what_came_before_is_acknowledged_and_dropped() {
    let (mut state, now) = (Reliability::new(0), Instant::now());
    assert!(state.received(1, Some(50), now));
    assert!(!state.received(2, Some(50), now));
    assert!(state.received(3, Some(51), now) && state.received(4, None, now) && state.received(5, None, now));
    assert_eq!(state.acks(), [1, 2, 3, 4, 5]);
    state.take_acks(3);
    assert_eq!(state.acks(), [4, 5]);
    assert!(state.received(6, Some(50 + 1024), now) && state.received(7, Some(50), now), "one a place");
    assert!(state.received(8, Some(50), now + MOST), "from a peer that begins anew");
    for number in 0..1000 {
        state.received(number, None, now);
    }
    assert_eq!((state.acks().len(), state.acks()[0]), (ACKS_MAX, 1000 - ACKS_MAX as u64));
}
