//! Whatever comes: no panic, no state from what was refused, and heartbeats go on.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::rig;
use crate::rig::{
    SMF, Scripted, associated, cp_f_seid, create_far, create_pdr, establishment, group, ie, message, node_id,
    pdr_parts, send_from, setup, sound_establishment, still_sound, with_session,
};
use kaido_pfcp::{Endpoint, Instants};
use proptest::prelude::*;

/// A valid message of every type, requests and responses.
fn corpus(seid: u64) -> Vec<Vec<u8>> {
    let stamp = ie(96, &[0xe0, 0, 0, 1]);
    let mut full_pdr = pdr_parts(7, 1);
    let sdf = [&[0x1f, 0, 0, 34][..], b"permit out ip from any to assigned", &[1; 13]].concat();
    full_pdr[2].1 =
        [ie(20, &[1]), ie(22, b"\x08internet"), ie(93, &[6, 10, 60, 0, 1]), ie(23, &sdf)].concat();
    full_pdr.extend([(81, vec![0, 0, 0, 1]), (109, vec![0, 0, 0, 1])]);
    let forwarding = [ie(42, &[0]), ie(84, &[1, 0, 0, 0, 0, 9, 10, 0, 0, 1]), ie(30, &[0xb8, 0xff])].concat();
    let forwarding = [forwarding, ie(49, &[2])].concat();
    let header = [&[3, 0, 0, 0, 0, 9, 10, 0, 0, 1][..], &[0x20; 16]].concat();
    let far =
        group(3, &[(108, vec![0, 0, 0, 2]), (44, vec![2, 0]), (4, [ie(42, &[0]), ie(84, &header)].concat())]);
    let volume = [&[7][..], &[0; 24]].concat();
    let urr = [
        (81, vec![0, 0, 0, 1]),
        (62, vec![2]),
        (37, vec![3, 1, 0]),
        (64, vec![0, 0, 0, 30]),
        (31, volume.clone()),
        (73, volume),
        (100, vec![0x11]),
    ];
    let qer = [(109, vec![0, 0, 0, 1]), (25, vec![0]), (26, vec![1; 10]), (27, vec![1; 10]), (124, vec![9])];
    let bar = [(88, vec![1]), (140, vec![10])];
    let rules = [
        create_pdr(1, 1),
        group(1, &full_pdr),
        create_far(1),
        far,
        group(6, &urr),
        group(7, &qer),
        group(85, &bar),
    ];
    let modification = [
        cp_f_seid(9),
        group(15, &[(56, vec![0, 9])]),
        group(16, &[(108, vec![0, 0, 0, 9])]),
        group(17, &[(81, vec![0, 0, 0, 9])]),
        group(18, &[(109, vec![0, 0, 0, 9])]),
        group(87, &[(88, vec![9])]),
        create_pdr(5, 1),
        group(9, &[(56, vec![0, 1]), (29, vec![0, 0, 0, 1])]),
        group(10, &[(108, vec![0, 0, 0, 1]), (44, vec![2]), (11, forwarding)]),
        group(13, &urr),
        group(14, &qer),
        group(86, &bar),
        group(77, &[(81, vec![0, 0, 0, 1])]),
        ie(49, &[5]),
    ];
    let retention = ie(183, &ie(185, &[2, 10, 0, 0, 1]));
    let set_up = [node_id(), stamp.clone(), retention, ie(178, &[2, 10, 0, 0, 8])].concat();
    let of_set = [ie(180, b"\x00\x03set\x03org"), ie(89, &[0xff, 0xff]), ie(178, &[6, 10, 0, 0, 8])].concat();
    let set_up_in_set = [node_id(), stamp.clone(), of_set].concat();
    let fq_csid = ie(65, &[2, 10, 9, 0, 1, 0, 7, 0, 8]);
    let in_sets = [create_pdr(1, 1), create_far(1), fq_csid.clone(), ie(291, b"west")];
    let selected = [fq_csid.clone(), ie(291, b"west"), ie(292, &[2, 10, 0, 0, 1])].concat();
    let change = ie(290, &[selected, ie(178, &[2, 10, 0, 0, 8])].concat());
    let accepted = ie(19, &[1]);
    let mut bundle = sound_establishment(60);
    bundle[0] |= 4;
    bundle.extend(message(1, None, 61, &stamp));
    vec![
        message(1, None, 40, &stamp),
        message(2, None, 1, &stamp),
        message(3, None, 41, &[]),
        setup(42),
        message(5, None, 43, &set_up),
        message(6, None, 1, &[node_id(), accepted.clone(), stamp].concat()),
        message(7, None, 44, &[node_id(), ie(178, &[2, 10, 0, 0, 8])].concat()),
        message(8, None, 1, &[node_id(), accepted.clone()].concat()),
        message(9, None, 45, &node_id()),
        message(11, None, 1, &[]),
        message(5, None, 62, &set_up_in_set),
        message(7, None, 63, &[node_id(), ie(162, &[1])].concat()),
        message(13, None, 1, &[node_id(), accepted.clone()].concat()),
        message(14, None, 46, &[node_id(), fq_csid].concat()),
        message(16, None, 64, &[node_id(), change].concat()),
        establishment(65, &in_sets),
        message(57, Some(seid), 1, &[ie(19, &[78]), ie(178, &[2, 10, 0, 0, 8])].concat()),
        establishment(47, &rules),
        sound_establishment(48),
        message(52, Some(seid), 49, &modification.concat()),
        message(54, Some(seid), 50, &[]),
        message(57, Some(seid), 1, &[accepted, ie(50, &[1])].concat()),
        bundle,
    ]
}

/// The counts of the service and of the endpoint agree, and a heartbeat is answered.
fn coherent(upf: &mut Endpoint<Scripted>, now: Instants) {
    let sessions = upf.service().sessions.len();
    still_sound(upf, now, sessions);
    assert_eq!(upf.peers().map(|peer| peer.sessions).sum::<usize>(), sessions);
    upf.poll(now, &mut Vec::new());
}

/// Hands a datagram over; if every answer refuses, nothing may have changed.
fn feed(upf: &mut Endpoint<Scripted>, now: Instants, datagram: &[u8]) {
    let before = (upf.service().sessions.clone(), upf.service().next_seid, upf.peers().collect::<Vec<_>>());
    let replies = send_from(SMF, upf, now, datagram);
    let refuses =
        |reply: &rig::Reply| reply.kind == 11 || reply.value(19).is_some_and(|cause| cause[0] >= 64);
    if !replies.is_empty() && replies.iter().all(refuses) {
        let after =
            (upf.service().sessions.clone(), upf.service().next_seid, upf.peers().collect::<Vec<_>>());
        assert_eq!(before, after);
    }
    coherent(upf, now);
}

#[test]
fn the_corpus_is_valid() {
    for place in 0..corpus(0).len() {
        let (mut upf, now, seid) = with_session();
        let datagram = &corpus(seid)[place];
        for reply in send_from(SMF, &mut upf, now, datagram) {
            let cause = reply.value(19).map_or(1, |value| value[0]);
            let expected: &[u8] = match reply.kind {
                // It removes rules that are not there.
                53 => &[73],
                _ => &[1],
            };
            assert!(expected.contains(&cause), "{place}: {reply:?}");
        }
        coherent(&mut upf, now);
    }
}

#[test]
fn every_truncation_of_every_message() {
    let (mut upf, now, seid) = with_session();
    for datagram in corpus(seid) {
        for end in 0..datagram.len() {
            feed(&mut upf, now, &datagram[..end]);
            // Cut, with the length of the header made to fit.
            let mut cut = datagram[..end].to_vec();
            if end >= 4 {
                cut[2..4].copy_from_slice(&u16::try_from(end - 4).unwrap().to_be_bytes());
                feed(&mut upf, now, &cut);
            }
        }
    }
}

#[test]
fn every_octet_of_every_message_changed() {
    let (_, _, seid) = with_session();
    for datagram in corpus(seid) {
        let (mut upf, now, _) = with_session();
        for place in 0..datagram.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff, datagram[place] ^ 4] {
                let mut changed = datagram.clone();
                changed[place] = value;
                feed(&mut upf, now, &changed);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_octets(datagram in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (mut upf, now) = associated();
        feed(&mut upf, now, &datagram);
    }

    #[test]
    fn arbitrary_bodies_behind_a_sound_header(
        kind in proptest::sample::select(vec![1u8, 2, 5, 6, 7, 8, 9, 50, 52, 54, 57]),
        elements in proptest::collection::vec(
            (0u16..330, proptest::collection::vec(any::<u8>(), 0..40)), 0..20),
    ) {
        let (mut upf, now, seid) = with_session();
        let body: Vec<u8> = elements.iter().flat_map(|(kind, value)| ie(*kind, value)).collect();
        let body = [node_id(), cp_f_seid(3), body].concat();
        feed(&mut upf, now, &message(kind, (kind >= 50).then_some(seid), 77, &body));
    }

    #[test]
    fn mutations(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let (mut upf, now, seid) = with_session();
        let corpus = corpus(seid);
        let mut datagram = corpus[which.index(corpus.len())].clone();
        for (place, value) in changes {
            let place = place.index(datagram.len());
            datagram[place] = value;
        }
        if let Some(cut) = cut {
            datagram.truncate(cut.index(datagram.len()));
        }
        feed(&mut upf, now, &datagram);
    }

    #[test]
    fn spliced_messages(a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>(),
                        at in any::<prop::sample::Index>(), from in any::<prop::sample::Index>()) {
        let (mut upf, now, seid) = with_session();
        let corpus = corpus(seid);
        let (a, b) = (&corpus[a.index(corpus.len())], &corpus[b.index(corpus.len())]);
        let mut datagram = [&a[..at.index(a.len())], &b[from.index(b.len())..]].concat();
        if let Ok(length @ 4..) = u16::try_from(datagram.len()) {
            datagram[2..4].copy_from_slice(&(length - 4).to_be_bytes());
        }
        feed(&mut upf, now, &datagram);
    }
}
