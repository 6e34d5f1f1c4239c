//! The hostile input classes of PFCP, one test each, named by its class.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::rig::{
    PDI, Reply, SMF, STRANGER, ask, associated, cp_f_seid, create_far, create_pdr, endpoint, establishment,
    far_parts, group, ie, message, node_id, pdr_parts, send_from, setup, sound_establishment, still_sound,
    with_session,
};
use kaido_pfcp::{DATAGRAM_MAX, Discard};

/// Sends an establishment with the given PDR and FAR; expects a refusal that leaves nothing behind.
fn refused(rules: &[Vec<u8>]) -> Reply {
    let (mut upf, now) = associated();
    let reply = ask(&mut upf, now, &establishment(9, rules));
    assert_eq!((reply.kind, reply.sequence, reply.seid), (51, 9, Some(7)));
    assert!(reply.cause() >= 64);
    assert!(reply.value(57).is_none(), "no F-SEID in a refusal");
    assert!(upf.service().establishments.is_empty());
    still_sound(&mut upf, now, 0);
    reply
}

fn verdict(reply: &Reply) -> (u8, Option<u16>) {
    (reply.cause(), reply.offending())
}

/// A PDR with one part replaced.
fn pdr_with(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut parts = pdr_parts(1, 1);
    parts.iter_mut().filter(|part| part.0 == kind).for_each(|part| part.1 = value.to_vec());
    group(1, &parts)
}

fn pdr_without(kind: u16) -> Vec<u8> {
    let parts: Vec<_> = pdr_parts(1, 1).into_iter().filter(|part| part.0 != kind).collect();
    group(1, &parts)
}

fn far_with(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut parts = far_parts(1);
    parts.iter_mut().filter(|part| part.0 == kind).for_each(|part| part.1 = value.to_vec());
    group(3, &parts)
}

#[test]
fn class_01_session_message_without_association() {
    let (mut upf, now) = endpoint();
    assert_eq!(ask(&mut upf, now, &sound_establishment(1)).cause(), 72);
    assert_eq!(ask(&mut upf, now, &message(52, Some(1), 2, &[])).cause(), 72);
    assert_eq!(ask(&mut upf, now, &message(54, Some(1), 3, &[])).cause(), 72);
    let (mut upf, now) = associated();
    assert_eq!(send_from(STRANGER, &mut upf, now, &sound_establishment(4))[0].cause(), 72);
    let other_node = [ie(60, &[0, 10, 0, 0, 77]), cp_f_seid(7), create_pdr(1, 1), create_far(1)].concat();
    assert_eq!(ask(&mut upf, now, &message(50, Some(0), 5, &other_node)).cause(), 72);
    assert_eq!(upf.counters().rejected(72), 2);
    still_sound(&mut upf, now, 0);
}

#[test]
fn class_02_node_id_or_recovery_time_stamp_missing() {
    let (mut upf, now) = endpoint();
    let without_node = message(5, None, 1, &ie(96, &[0xe0, 0, 0, 1]));
    let without_stamp = message(5, None, 2, &node_id());
    for request in [without_node, without_stamp, message(9, None, 3, &[]), message(7, None, 4, &[])] {
        assert_eq!(ask(&mut upf, now, &request).cause(), 66);
    }
    assert_eq!(upf.peers().count(), 0);
    let (mut upf, now) = associated();
    let body = [cp_f_seid(7), create_pdr(1, 1), create_far(1)].concat();
    assert_eq!(verdict(&ask(&mut upf, now, &message(50, Some(0), 5, &body))), (66, Some(60)));
    still_sound(&mut upf, now, 0);
}

#[test]
fn class_03_truncated_header_and_inconsistent_length() {
    let (mut upf, now, seid) = with_session();
    let deletion = message(54, Some(seid), 9, &[]);
    for end in 0..deletion.len() {
        assert!(send_from(SMF, &mut upf, now, &deletion[..end]).is_empty());
    }
    assert_eq!(upf.counters().discarded(Discard::Truncated), 16);
    let mut longer = deletion.clone();
    longer.push(0);
    let reply = ask(&mut upf, now, &longer);
    assert_eq!((reply.kind, reply.cause(), reply.seid), (55, 68, Some(7)));
    let whole = sound_establishment(10);
    for end in 16..whole.len() {
        assert_eq!(ask(&mut upf, now, &whole[..end]).cause(), 68);
    }
    let mut heartbeat = message(1, None, 11, &ie(96, &[0xe0, 0, 0, 1]));
    heartbeat.pop();
    assert!(send_from(SMF, &mut upf, now, &heartbeat).is_empty());
    still_sound(&mut upf, now, 1);
}

#[test]
fn class_04_other_version() {
    let (mut upf, now) = endpoint();
    for version in [0u8, 2, 3, 7] {
        let mut request = setup(0x00_1234);
        request[0] = request[0] & 0x1f | version << 5;
        let reply = ask(&mut upf, now, &request);
        assert_eq!((reply.kind, reply.sequence), (11, 0x1234));
        assert!(reply.elements.is_empty());
        request[1] = 11;
        assert!(send_from(SMF, &mut upf, now, &request).is_empty());
    }
    assert_eq!(upf.peers().count(), 0);
}

#[test]
fn class_05_unknown_or_wrong_direction_message() {
    let (mut upf, now) = associated();
    for kind in (0..=255u8).filter(|kind| ![1, 3, 5, 7, 9, 14, 16, 50, 52, 54].contains(kind)) {
        for seid in [None, Some(1)] {
            assert!(send_from(SMF, &mut upf, now, &message(kind, seid, 9, &[])).is_empty(), "{kind}");
        }
    }
    assert!(upf.counters().discarded(Discard::UnknownType) > 400);
    assert!(upf.counters().discarded(Discard::WrongDirection) > 0);
    assert!(upf.counters().discarded(Discard::Unsolicited) > 0);
    still_sound(&mut upf, now, 0);
}

#[test]
fn class_06_unknown_elements_are_skipped() {
    let (mut upf, now) = associated();
    let strange = [ie(0x7fff, &[1, 2]), ie(0xffff, &[0, 10, 9]), ie(0x8123, &[]), ie(4095, &[])].concat();
    let mut pdr = pdr_parts(1, 1);
    pdr.push((0x9001, vec![0, 10, 1]));
    pdr.push((0x6000, vec![]));
    let reply = ask(&mut upf, now, &establishment(9, &[strange, group(1, &pdr), create_far(1)]));
    assert_eq!(reply.cause(), 1);
    still_sound(&mut upf, now, 1);
}

#[test]
fn class_07_zero_length_mandatory_element() {
    for (pdr, offending) in [(pdr_with(56, &[]), 56), (pdr_with(29, &[]), 29), (pdr_with(PDI, &[]), 2)] {
        assert_eq!(verdict(&refused(&[pdr, create_far(1)])), (68, Some(offending)));
    }
    for (far, offending) in [(far_with(108, &[]), 108), (far_with(44, &[]), 44)] {
        assert_eq!(verdict(&refused(&[create_pdr(1, 1), far])), (68, Some(offending)));
    }
    assert_eq!(verdict(&refused(&[ie(1, &[]), create_far(1)])), (68, Some(1)));
    let (mut upf, now) = endpoint();
    assert_eq!(ask(&mut upf, now, &message(5, None, 1, &ie(60, &[]))).cause(), 68);
}

#[test]
fn class_08_child_overruns_its_parent() {
    let mut pdr = create_pdr(1, 1);
    pdr[7] = 0xff;
    assert_eq!(verdict(&refused(&[pdr, create_far(1)])), (68, Some(56)));
    let mut deep = ie(20, &[0]);
    deep[3] = 2;
    assert_eq!(verdict(&refused(&[pdr_with(PDI, &deep), create_far(1)])), (68, Some(20)));
    let (mut upf, now) = associated();
    let mut body = [node_id(), cp_f_seid(7)].concat();
    body[3] = 200;
    assert_eq!(verdict(&ask(&mut upf, now, &message(50, Some(0), 3, &body))), (68, Some(60)));
}

#[test]
fn class_09_f_seid_or_source_interface_missing() {
    let (mut upf, now) = associated();
    let body = [node_id(), create_pdr(1, 1), create_far(1)].concat();
    let reply = ask(&mut upf, now, &message(50, Some(0), 3, &body));
    assert_eq!((verdict(&reply), reply.seid), ((66, Some(57)), Some(0)));
    let pdi = ie(93, &[2, 10, 60, 0, 1]);
    assert_eq!(verdict(&refused(&[pdr_with(PDI, &pdi), create_far(1)])), (66, Some(20)));
    assert_eq!(verdict(&refused(&[create_far(1)])), (66, Some(1)));
    assert_eq!(verdict(&refused(&[create_pdr(1, 1)])), (66, Some(3)));
}

#[test]
fn class_10_pdr_without_far() {
    assert_eq!(verdict(&refused(&[pdr_without(108), create_far(1)])), (67, Some(108)));
    let reply = refused(&[create_pdr(3, 9), create_far(1)]);
    assert_eq!((reply.cause(), reply.value(114)), (73, Some(&[0, 0, 3][..])));
}

#[test]
fn class_11_update_or_query_of_an_absent_rule() {
    let (mut upf, now, seid) = with_session();
    let before = upf.service().sessions.clone();
    let update_far = group(10, &[(108, vec![0, 0, 0, 9]), (44, vec![1])]);
    let update_pdr = group(9, &[(56, vec![0, 9]), (29, vec![0, 0, 0, 1])]);
    let query = group(77, &[(81, vec![0, 0, 0, 9])]);
    let remove = group(15, &[(56, vec![0, 9])]);
    let failed: [&[u8]; 4] = [&[1, 0, 0, 0, 9], &[0, 0, 9], &[3, 0, 0, 0, 9], &[0, 0, 9]];
    for (place, (body, rule)) in [update_far, update_pdr, query, remove].iter().zip(failed).enumerate() {
        let sequence = 10 + u32::try_from(place).unwrap();
        let reply = ask(&mut upf, now, &message(52, Some(seid), sequence, body));
        assert_eq!((reply.cause(), reply.seid, reply.value(114)), (73, Some(7), Some(rule)));
    }
    assert_eq!(upf.service().sessions, before);
    assert!(upf.service().modifications.is_empty());
    still_sound(&mut upf, now, 1);
}

#[test]
fn class_12_outer_header_creation_empty_or_without_address() {
    for (value, cause) in [
        (&[][..], 68),
        (&[1, 0], 68),
        (&[1, 0, 0, 0, 0, 9], 68),
        (&[1, 0, 0, 0, 0, 9, 10, 0], 68),
        (&[3, 0, 0, 0, 0, 9, 10, 0, 0, 1], 68),
        (&[0, 0, 0, 0, 0, 9], 69),
        (&[1, 0, 0, 0, 0, 0, 10, 0, 0, 1], 69),
        (&[1, 0, 0, 0, 0, 9, 0, 0, 0, 0], 69),
        (&[0x40, 0, 0, 1, 2], 69),
        (&[0x40, 0, 4, 1], 68),
        (&[0x41, 0, 0, 0, 0, 9, 10, 0, 0, 1, 4, 0, 5], 76),
    ] {
        let forwarding = [ie(42, &[0]), ie(84, value)].concat();
        let reply = refused(&[create_pdr(1, 1), far_with(4, &forwarding)]);
        assert_eq!(verdict(&reply), (cause, Some(84)), "{value:?}");
    }
}

#[test]
fn class_13_unknown_destination_interface() {
    for interface in [4, 6, 15] {
        let reply = refused(&[create_pdr(1, 1), far_with(4, &ie(42, &[interface]))]);
        assert_eq!(verdict(&reply), (69, Some(42)));
    }
    let reply = refused(&[pdr_with(PDI, &ie(20, &[9])), create_far(1)]);
    assert_eq!(verdict(&reply), (69, Some(20)));
}

#[test]
fn class_14_bad_sdf_text_or_inner_length() {
    let sdf = |text: &[u8], length: u16| [&[1, 0][..], &length.to_be_bytes(), text].concat();
    for (value, cause) in [
        (sdf(b"permit out ip from any", 22), 69),
        (sdf(b"deny out ip from any to assigned", 32), 69),
        (sdf(&[0xff; 8], 8), 69),
        (sdf(b"permit out ip from any to assigned", 99), 68),
        (sdf(b"", 0), 69),
        (vec![1], 68),
        (vec![], 68),
        (vec![0, 0], 69),
        (vec![0x10, 0, 0, 0, 0, 5], 69),
    ] {
        let pdi = [ie(20, &[0]), ie(23, &value)].concat();
        let reply = refused(&[pdr_with(PDI, &pdi), create_far(1)]);
        assert_eq!(verdict(&reply), (cause, Some(23)), "{value:?}");
    }
}

#[test]
fn class_15_wrong_length_mbr_or_threshold() {
    let qer = |mbr: &[u8]| group(7, &[(109, vec![0, 0, 0, 1]), (25, vec![0]), (26, mbr.to_vec())]);
    for length in [0, 1, 5, 8, 9] {
        let reply = refused(&[create_pdr(1, 1), create_far(1), qer(&vec![1; length])]);
        assert_eq!(verdict(&reply), (68, Some(26)));
    }
    let urr = |threshold: &[u8]| {
        let parts = [(81, vec![0, 0, 0, 1]), (62, vec![2]), (37, vec![2, 0]), (31, threshold.to_vec())];
        group(6, &parts)
    };
    for value in [&[][..], &[1], &[1, 0, 0, 0], &[7, 0, 0, 0, 0, 0, 0, 0, 1]] {
        let reply = refused(&[create_pdr(1, 1), create_far(1), urr(value)]);
        assert_eq!(verdict(&reply), (68, Some(31)));
    }
    let incomplete = group(6, &[(81, vec![0, 0, 0, 1]), (62, vec![2]), (37, vec![3, 0])]);
    let reply = refused(&[create_pdr(1, 1), create_far(1), incomplete]);
    assert_eq!(verdict(&reply), (67, Some(64)));
}

#[test]
fn class_16_rule_flood() {
    let (mut upf, now) = associated();
    let mut rules = vec![create_far(1)];
    while rules.concat().len() < DATAGRAM_MAX - 200 {
        let id = u16::try_from(rules.len()).unwrap();
        rules.push(create_pdr(id, 1));
    }
    assert_eq!(ask(&mut upf, now, &establishment(9, &rules)).cause(), 75);
    rules.extend(rules.clone());
    assert!(send_from(SMF, &mut upf, now, &establishment(10, &rules)).is_empty());
    assert_eq!(upf.counters().discarded(Discard::TooLong), 1);
    still_sound(&mut upf, now, 0);
}

#[test]
fn class_16_the_same_rule_twice() {
    let reply = refused(&[create_pdr(1, 1), create_pdr(1, 2), create_far(1)]);
    assert_eq!((reply.cause(), reply.value(114)), (73, Some(&[0, 0, 1][..])));
    // What is said twice in the same words is meant once.
    let (mut upf, now) = associated();
    let rules = [create_pdr(1, 1), create_far(1), create_far(1), create_pdr(1, 1)];
    assert_eq!(ask(&mut upf, now, &establishment(9, &rules)).cause(), 1);
}

#[test]
fn class_17_urr_id_beyond_16_bits_with_istm() {
    let (mut upf, now) = associated();
    let urr = |id: u32| {
        group(6, &[(81, id.to_be_bytes().to_vec()), (62, vec![2]), (37, vec![0, 0, 0]), (100, vec![0x08])])
    };
    let rules = [create_pdr(1, 1), create_far(1), urr(65_535), urr(0xffff_ffff)];
    assert_eq!(ask(&mut upf, now, &establishment(9, &rules)).cause(), 1);
    let kept = upf.service().sessions.values().next().unwrap();
    assert_eq!(kept.urrs.keys().copied().collect::<Vec<_>>(), [65_535, 0xffff_ffff]);
}

#[test]
fn class_18_teid_zero() {
    let pdi = [ie(20, &[0]), ie(21, &[1, 0, 0, 0, 0, 192, 0, 2, 1])].concat();
    assert_eq!(verdict(&refused(&[pdr_with(PDI, &pdi), create_far(1)])), (69, Some(21)));
    let pdi = [ie(20, &[0]), ie(21, &[0, 0, 0, 0, 9])].concat();
    assert_eq!(verdict(&refused(&[pdr_with(PDI, &pdi), create_far(1)])), (69, Some(21)));
}

#[test]
fn class_19_session_flood() {
    let (mut upf, now) = associated();
    upf.service_mut().sessions_max = 50;
    for sequence in 0..200 {
        let cause = ask(&mut upf, now, &sound_establishment(100 + sequence)).cause();
        assert_eq!(cause, if sequence < 50 { 1 } else { 75 });
    }
    still_sound(&mut upf, now, 50);
    assert_eq!(upf.peers().next().unwrap().sessions, 50);
    assert_eq!(upf.counters().rejected(75), 150);
}

#[test]
fn class_20_unknown_seid_or_another_peers() {
    let (mut upf, now, seid) = with_session();
    for wrong in [0, 1, seid + 1, u64::MAX] {
        for kind in [52, 54] {
            let reply = ask(&mut upf, now, &message(kind, Some(wrong), 50, &[]));
            assert_eq!((reply.cause(), reply.seid), (65, Some(0)));
        }
    }
    let body = [ie(60, &[0, 10, 0, 0, 9]), ie(96, &[0xe0, 0, 0, 1])].concat();
    assert_eq!(send_from(STRANGER, &mut upf, now, &message(5, None, 1, &body))[0].cause(), 1);
    for kind in [52, 54] {
        let reply = send_from(STRANGER, &mut upf, now, &message(kind, Some(seid), 60, &[])).remove(0);
        assert_eq!((reply.cause(), reply.seid), (65, Some(0)));
    }
    let foreign_release = message(9, None, 61, &node_id());
    assert_eq!(send_from(STRANGER, &mut upf, now, &foreign_release)[0].cause(), 72);
    still_sound(&mut upf, now, 1);
}

#[test]
fn class_21_repeated_malformed_establishment() {
    let (mut upf, now) = associated();
    for sequence in 0..1000 {
        let bad = [pdr_with(PDI, &ie(20, &[9])), create_far(1)];
        assert_eq!(ask(&mut upf, now, &establishment(sequence, &bad)).cause(), 69);
    }
    still_sound(&mut upf, now, 0);
    assert!(upf.service().establishments.is_empty());
    assert_eq!(ask(&mut upf, now, &sound_establishment(5000)).cause(), 1);
}

/// Conformance: TS 29.244 8.2.1 | What is not advertised is refused: cause 76
#[test]
fn features_not_advertised_are_refused() {
    let forwarding = |extra: Vec<u8>| far_with(4, &[ie(42, &[1]), extra].concat());
    for (far, expected) in [
        (forwarding(ie(98, &[0, 1, b'a', 1, b'b'])), (76, 98)),
        (forwarding(ie(38, &[0, 0, 1, b'a'])), (76, 38)),
        (far_with(44, &[0x12]), (67, 5)),
        (far_with(44, &[0x22]), (76, 44)),
        (far_with(44, &[0x03]), (69, 44)),
    ] {
        assert_eq!(verdict(&refused(&[create_pdr(1, 1), far])), (expected.0, Some(expected.1)));
    }
    let mut parts = pdr_parts(1, 1);
    parts.push((170, vec![0, 1]));
    assert_eq!(verdict(&refused(&[group(1, &parts), create_far(1)])), (76, Some(170)));
    assert_eq!(verdict(&refused(&[pdr_with(95, &[2]), create_far(1)])), (76, Some(95)));
    assert_eq!(verdict(&refused(&[pdr_with(95, &[200]), create_far(1)])), (69, Some(95)));
    assert_eq!(verdict(&refused(&[create_pdr(1, 1), create_far(1), ie(113, &[4])])), (76, Some(113)));
}
