//! Who claims to be a node that has an association, and who crowds out others.
#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use crate::rig::{
    Reply, SMF, STRANGER, Scripted, ask, config, due, ie, message, node_id, send_from, setup,
    sound_establishment, still_sound, with_session,
};
use kaido_pfcp::{Config, Discard, Endpoint, Instants, Limits};

const T1: Duration = Duration::from_secs(3);

/// Answers the heartbeats that are due.
fn answer_heartbeats(
    upf: &mut Endpoint<Scripted>,
    now: Instants,
    from: SocketAddr,
    recovery: [u8; 4],
) -> usize {
    let asked: Vec<Reply> = due(upf, now)
        .iter()
        .filter(|one| one.to.ip() == from.ip())
        .map(|one| Reply::read(&one.bytes))
        .filter(|request| request.kind == 1)
        .collect();
    for request in &asked {
        let answer = message(2, None, request.sequence, &ie(96, &recovery));
        assert!(send_from(from, upf, now, &answer).is_empty());
    }
    asked.len()
}

/// A stranger that names a live node takes nothing over, however often it asks.
#[test]
fn a_living_association_is_not_taken_over_from_another_address() {
    let (mut upf, mut now, _) = with_session();
    for sequence in 100..120 {
        assert!(send_from(STRANGER, &mut upf, now, &setup(sequence)).is_empty(), "no answer");
        answer_heartbeats(&mut upf, now, SMF, [0xe0, 0, 0, 1]);
        now = now.after(T1);
        answer_heartbeats(&mut upf, now, SMF, [0xe0, 0, 0, 1]);
    }
    assert_eq!(upf.counters().discarded(Discard::Claimed), 20);
    assert_eq!(upf.peers().next().unwrap().address, SMF);
    still_sound(&mut upf, now, 1);
    // It may not speak for it either.
    assert_eq!(send_from(STRANGER, &mut upf, now, &message(9, None, 7, &node_id()))[0].cause(), 72);
    assert_eq!(send_from(STRANGER, &mut upf, now, &message(7, None, 8, &node_id()))[0].cause(), 72);
    still_sound(&mut upf, now, 1);
}

/// A node that has moved, such as a container that was started anew elsewhere.
#[test]
fn a_node_that_does_not_answer_where_it_was_may_move() {
    let (mut upf, mut now, _) = with_session();
    for sequence in 0..2 {
        assert!(send_from(STRANGER, &mut upf, now, &setup(100)).is_empty(), "{sequence}");
        due(&mut upf, now);
        now = now.after(T1);
        due(&mut upf, now);
    }
    assert_eq!(send_from(STRANGER, &mut upf, now, &setup(100))[0].cause(), 1, "the third time, within N1");
    assert_eq!(upf.peers().next().unwrap().address, STRANGER);
    still_sound(&mut upf, now, 0);
}

/// A restart is believed at once where it comes from the node's own address, from whatever port.
#[test]
fn a_node_that_starts_anew_at_its_address_is_believed_at_once() {
    let (mut upf, now, _) = with_session();
    let elsewhere = SocketAddr::new(SMF.ip(), 40_000);
    let body = [node_id(), ie(96, &[0xe0, 0, 0, 9])].concat();
    assert_eq!(send_from(elsewhere, &mut upf, now, &message(5, None, 1, &body))[0].cause(), 1);
    still_sound(&mut upf, now, 0);
}

/// One forged heartbeat request ends nobody's sessions.
#[test]
fn a_forged_restart_is_asked_about() {
    let (mut upf, mut now, _) = with_session();
    let mut asked = 0;
    for sequence in 30..130 {
        ask(&mut upf, now, &message(1, None, sequence, &ie(96, &[0xee, 0, 0, 1])));
        asked += answer_heartbeats(&mut upf, now, SMF, [0xe0, 0, 0, 1]);
        now = now.after(Duration::from_millis(100));
    }
    still_sound(&mut upf, now, 1);
    assert!((1..=10).contains(&asked), "asked {asked} times in ten seconds");
    assert_eq!(upf.counters().peer_restarts, 0);
}

fn invented(number: u8) -> Vec<u8> {
    message(5, None, 1, &[ie(60, &[0, 10, 9, 9, number]), ie(96, &[0xe0, 0, 0, 1])].concat())
}

/// Invented nodes do not keep an SMF out.
#[test]
fn associations_that_are_not_there_give_way() {
    let limits = Limits { associations: 4, ..Limits::default() };
    let mut now = Instants::now();
    let mut upf = Endpoint::new(Config { limits, ..config() }, Scripted::default(), now);
    assert_eq!(ask(&mut upf, now, &setup(1)).cause(), 1);
    assert_eq!(ask(&mut upf, now, &sound_establishment(2)).cause(), 1);
    for number in 0..3 {
        let from = SocketAddr::from(([10, 9, 9, number], 8805));
        assert_eq!(send_from(from, &mut upf, now, &invented(number))[0].cause(), 1);
    }
    let late = message(5, None, 1, &[ie(60, &[0, 10, 0, 0, 9]), ie(96, &[0xe0, 0, 0, 1])].concat());
    assert_eq!(send_from(STRANGER, &mut upf, now, &late)[0].cause(), 75, "they may yet answer");
    // The last of them does, and is a peer.
    let alive = SocketAddr::from(([10, 9, 9, 2], 8805));
    assert_eq!(answer_heartbeats(&mut upf, now, alive, [0xe0, 0, 0, 1]), 1);
    now = now.after(T1);
    assert_eq!(send_from(STRANGER, &mut upf, now, &late)[0].cause(), 1);
    let mut known: Vec<_> = upf.peers().map(|peer| peer.address).collect();
    known.sort_unstable();
    let gone = [SocketAddr::from(([10, 9, 9, 0], 8805)), SocketAddr::from(([10, 9, 9, 1], 8805))];
    assert_eq!(known.len(), 4);
    assert!(known.contains(&SMF) && known.contains(&alive) && known.contains(&STRANGER));
    assert_eq!(gone.iter().filter(|peer| known.contains(peer)).count(), 1);
    still_sound(&mut upf, now, 1);
}

#[test]
fn one_address_has_so_many_associations() {
    let now = Instants::now();
    let mut upf = Endpoint::new(config(), Scripted::default(), now);
    let causes: Vec<u8> =
        (0..=255).map(|number| send_from(STRANGER, &mut upf, now, &invented(number))[0].cause()).collect();
    assert_eq!(causes.iter().filter(|&&cause| cause == 1).count(), 64);
    assert_eq!(ask(&mut upf, now, &setup(1)).cause(), 1);
}
