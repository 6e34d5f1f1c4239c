//! Interests, Data and Nacks through a node, by the rules of the protocol.
#![allow(clippy::unwrap_used)]

use std::time::Duration;

use crate::fixture::{
    A, APP, B, C, CURIOUS, Node, RADIO, briefs, data, data_with, interest, interest_with, nack, name,
    settings, token,
};
use kaido_ndn::cs::{Admit, CsSettings};
use kaido_ndn::forward::{FACE_CONTENT_STORE, ForwarderSettings, StrategyChoice, Unsolicited};
use kaido_ndn::{Annotations, NackReason, NdnDrop};
use kaido_ndn_tables::{Account, FaceId, PitSettings, PitToken};
use kaido_wire::ndn::{Name, implicit_digest};

fn caching() -> ForwarderSettings {
    ForwarderSettings { cs: CsSettings { packets: 64, octets: 1 << 20 }, ..settings() }
}

/// Conformance: NDN 0.3 Interest | It goes by the longest prefix to the cheapest next hop, and its Data comes back
#[test]
fn interests_go_by_name_and_data_comes_back() {
    let mut node = Node::new();
    node.route("/", &[(C, 1)]);
    node.route("/a", &[(B, 10), (A, 20)]);
    let sent = node.send(APP, &interest("/a/x", 7));
    assert_eq!(briefs(&sent), [('I', B.0)]);
    assert_eq!(sent[0].octets, interest("/a/x", 7));
    assert_eq!(briefs(&node.send(APP, &interest("/b", 8))), [('I', C.0)]);
    let sent = node.send(B, &data("/a/x"));
    assert_eq!((briefs(&sent), &sent[0].octets), (vec![('D', APP.0)], &data("/a/x")));
    assert_eq!((node.forwarder.pit().len(), node.frames_out()), (1, 0));
    let counters = node.forwarder.counters();
    assert_eq!((counters.interests_in, counters.interests_out, counters.satisfied), (2, 2, 1));
}

/// Conformance: NDN 0.3 Data | Data from a face that was not asked answers nobody and is not cached
#[test]
fn data_is_taken_from_who_was_asked() {
    for is_shared in [false, true] {
        let mut node = Node::with(&caching());
        node.route("/a", &[(B, 0)]);
        let ours = node.send(APP, &interest("/a/x", 1))[0].annotations;
        let mut waiting = vec![APP];
        if is_shared {
            // Two wait: not the fast path.
            node.send(A, &interest("/a/x", 2));
            waiting.push(A);
        }
        // With the right token, as who has seen the Interest would have it, and without.
        for annotations in [ours, Annotations::default()] {
            for from in [C, RADIO] {
                assert_eq!(node.annotated(from, &data("/a/x"), annotations), []);
                assert_eq!(node.wire.drops, [NdnDrop::NOT_ASKED]);
            }
        }
        assert_eq!((node.forwarder.pit().len(), node.forwarder.cs().len()), (1, 0));
        let sent = node.annotated(B, &data_with("/a/x", b"true", 0), ours);
        let faces: Vec<FaceId> = sent.iter().map(|sent| sent.face).collect();
        assert_eq!(faces, waiting);
        let cached = node.send(C, &interest("/a/x", 3));
        assert_eq!(cached[0].data().content, b"true");
        assert_eq!(node.frames_out(), 0);
    }
}

/// A host that asks for more than its share has the rest of its Interests dropped by name; applications go on.
#[test]
fn one_host_does_not_fill_the_pit() {
    let pit = PitSettings { of_account: 20, of_hosts: 30, ..PitSettings::for_entries(40, 7) };
    let mut node = Node::with(&ForwarderSettings { pit, ..settings() });
    for (face, account) in [
        (A, Account::of_host(1)),
        (B, Account::of_host(2)),
        (APP, Account::of_application(APP)),
        (CURIOUS, Account::of_application(CURIOUS)),
    ] {
        node.wire.faces.get_mut(&face).unwrap().account = account;
    }
    node.route("/", &[(C, 0)]);
    let mut nonce = 0;
    let mut asked = |node: &mut Node, face, most: usize| {
        let mut sent = 0;
        while sent < most && {
            nonce += 1;
            !node.send(face, &interest(&format!("/{nonce}"), nonce)).is_empty()
        } {
            sent += 1;
        }
        sent
    };
    assert_eq!(asked(&mut node, A, 100), 20);
    assert_eq!(node.wire.drops, [NdnDrop::FACE_PIT_FULL]);
    assert_eq!(node.send(A, &interest("/1", 900)).len(), 0, "suppressed, but it waits on");
    assert_eq!(node.wire.drops, [NdnDrop::SUPPRESSED]);
    assert_eq!(asked(&mut node, B, 100), 10);
    assert_eq!((asked(&mut node, APP, 5), asked(&mut node, CURIOUS, 5)), (5, 5));
    node.send(C, &data("/1"));
    assert_eq!(asked(&mut node, A, 100), 1, "an answer makes room");
    node.pass(5000);
    assert_eq!(asked(&mut node, A, 100), 20, "and time does");
    assert_eq!(node.frames_out(), 0);
}

/// Conformance: NDNLPv2 PitToken | The downstream's token is on its Data, ours is on the Interest and finds its entry
#[test]
fn tokens_are_echoed_and_ours_verified() {
    let mut node = Node::new();
    node.route("/a", &[(B, 0)]);
    let mut ours = Vec::new();
    for (number, len) in [(0, 1), (1, 6), (2, 32)] {
        let uri = format!("/a/{number}");
        let sent = node.annotated(A, &interest(&uri, number), token(&vec![9; len]));
        assert_eq!(sent[0].annotations.pit_token.octets().len(), 6);
        ours.push(sent[0].annotations);
    }
    // The token of one entry on Data of another name: neither is satisfied.
    assert_eq!(node.annotated(B, &data("/a/1"), ours[0]), []);
    assert_eq!(node.wire.drops, [NdnDrop::TOKEN_MISMATCH]);
    for (number, len) in [(0u32, 1), (1, 6), (2, 32)] {
        let echoed = Annotations { pit_token: ours[number as usize].pit_token, ..Annotations::default() };
        let sent = node.annotated(B, &data(&format!("/a/{number}")), echoed);
        assert_eq!(sent[0].annotations.pit_token.octets(), vec![9; len]);
    }
    // A token of an entry that is gone, or of another node, says nothing: the name does.
    node.send(A, &interest("/a/9", 9));
    assert_eq!(node.annotated(B, &data("/a/9"), ours[0]).len(), 1);
    node.send(A, &interest("/a/8", 10));
    assert_eq!(node.annotated(B, &data("/a/8"), token(&[1, 2, 3, 4, 5, 6])).len(), 1);
}

/// Conformance: NDN 0.3 Interest | Interests of one name that wait are one; each downstream gets the Data once
#[test]
fn interests_of_one_name_wait_together() {
    let mut node = Node::new();
    node.route("/a", &[(C, 0)]);
    assert_eq!(briefs(&node.annotated(A, &interest("/a/x", 1), token(&[1]))), [('I', C.0)]);
    assert_eq!(node.annotated(B, &interest("/a/x", 2), token(&[2])), []);
    assert_eq!(node.wire.drops, [NdnDrop::AGGREGATED]);
    assert_eq!(node.send(A, &interest("/a/x", 3)), []);
    assert_eq!(node.wire.drops, [NdnDrop::SUPPRESSED]);
    let sent = node.send(C, &data("/a/x"));
    assert_eq!(briefs(&sent), [('D', A.0), ('D', B.0)]);
    assert_eq!(
        (sent[0].annotations.pit_token.octets(), sent[1].annotations.pit_token.octets()),
        (&[][..], &[2][..])
    );
    assert_eq!(node.send(C, &data("/a/x")), []);
    assert_eq!(node.wire.drops, [NdnDrop::UNSOLICITED]);
    assert_eq!(node.frames_out(), 0);
}

/// Conformance: NDN 0.3 Interest CanBePrefix | Data of a longer name satisfies an Interest that may be a prefix, and no other
#[test]
fn data_satisfies_prefixes_and_digests() {
    let mut node = Node::new();
    node.route("/a", &[(C, 0)]);
    let packet = data("/a/b/c");
    let digest = implicit_digest([&packet[..]]);
    let hex: String = digest.iter().map(|octet| format!("{octet:02x}")).collect();
    node.send(A, &interest_with("/a", 1, |repr| repr.can_be_prefix = true));
    node.send(A, &interest("/a/b", 2));
    node.send(B, &interest(&format!("/a/b/c/sha256digest={hex}"), 3));
    node.send(APP, &interest(&format!("/a/b/c/sha256digest={}", "00".repeat(32)), 4));
    assert_eq!(node.forwarder.pit().len(), 4);
    assert_eq!(briefs(&node.send(C, &packet)), [('D', B.0), ('D', A.0)]);
    assert_eq!(node.forwarder.pit().len(), 2);
}

/// Conformance: NDN 0.3 Interest Nonce | A nonce that was seen with the name is a loop: Nack Duplicate, not on a link of many
#[test]
fn loops_are_known_by_their_nonces() {
    let mut node = Node::new();
    node.route("/a", &[(C, 0)]);
    node.send(A, &interest("/a/x", 1));
    let sent = node.annotated(B, &interest("/a/x", 1), token(&[5]));
    assert_eq!((briefs(&sent), sent[0].nack()), (vec![('N', B.0)], Some(NackReason::Duplicate)));
    assert_eq!(sent[0].annotations.pit_token.octets(), [5]);
    assert_eq!(node.send(RADIO, &interest("/a/x", 1)), []);
    assert_eq!(node.wire.drops, [NdnDrop::DUPLICATE_NONCE]);
    // The other end of the link repeats itself: no loop.
    assert_eq!(node.send(A, &interest("/a/x", 1)), []);
    assert_eq!(node.wire.drops, [NdnDrop::SUPPRESSED]);
    // Also when the Interest is gone, satisfied or not, for six seconds.
    node.send(C, &data("/a/x"));
    node.pass(5900);
    assert_eq!(briefs(&node.send(B, &interest("/a/x", 1))), [('N', B.0)]);
    node.pass(3200);
    assert_eq!(briefs(&node.send(B, &interest("/a/x", 1))), [('I', C.0)]);
    node.pass(4100);
    assert_eq!(node.forwarder.counters().unsatisfied, 1);
    assert_eq!(briefs(&node.send(A, &interest("/a/x", 1))), [('N', A.0)]);
    assert_eq!(briefs(&node.send(A, &interest("/a/y", 1))), [('I', C.0)], "another name");
}

/// Conformance: NDN 0.3 Interest HopLimit | Counted down on each hop; 0 goes no further, and 1 to applications alone
#[test]
fn hops_are_counted_down() {
    let mut node = Node::new();
    node.route("/a", &[(C, 0), (APP, 5)]);
    let hops = |hops| interest_with("/a", 1, |repr| repr.hop_limit = Some(hops));
    assert_eq!(node.send(A, &hops(0)), []);
    assert_eq!(node.wire.drops, [NdnDrop::HOP_LIMIT]);
    let sent = node.send(A, &hops(1));
    assert_eq!((briefs(&sent), sent[0].interest().hop_limit), (vec![('I', APP.0)], Some(0)));
    node.send(APP, &data("/a"));
    let other = interest_with("/a", 2, |repr| repr.hop_limit = Some(2));
    let sent = node.send(A, &other);
    assert_eq!((briefs(&sent), sent[0].interest().hop_limit), (vec![('I', C.0)], Some(1)));
}

/// Conformance: NFD scope control | /localhost stays on the host, /localhop goes one hop
#[test]
fn local_names_stay() {
    let mut node = Node::new();
    node.route("/", &[(C, 0), (APP, 5)]);
    assert_eq!(node.send(A, &interest("/localhost/x", 1)), []);
    assert_eq!(node.wire.drops, [NdnDrop::SCOPE]);
    assert_eq!(briefs(&node.send(CURIOUS, &interest("/localhost/x", 1))), [('I', APP.0)]);
    assert_eq!(node.send(A, &data("/localhost/x")), []);
    assert_eq!(node.wire.drops, [NdnDrop::SCOPE]);
    assert_eq!(briefs(&node.send(APP, &data("/localhost/x"))), [('D', CURIOUS.0)]);
    assert_eq!(briefs(&node.send(A, &interest("/localhop/x", 2))), [('I', APP.0)]);
    assert_eq!(briefs(&node.send(CURIOUS, &interest("/localhop/y", 3))), [('I', C.0)]);
    assert_eq!(briefs(&node.send(A, &interest("/localhostess", 4))), [('I', C.0)]);
}

/// Conformance: NDN 0.3 Interest Nonce | An Interest of an application that has none is given one
#[test]
fn a_nonce_is_given() {
    let mut node = Node::new();
    node.route("/a", &[(C, 0)]);
    let bare = interest_with("/a/x", 0, |repr| {
        repr.nonce = None;
        repr.hop_limit = Some(9);
        repr.lifetime_ms = Some(700);
    });
    let sent = node.send(APP, &bare);
    let read = sent[0].interest();
    assert!(read.nonce.is_some());
    assert_eq!(
        (read.hop_limit, read.lifetime_ms, read.name.value()),
        (Some(8), Some(700), &name("/a/x")[..])
    );
    assert_eq!(briefs(&node.send(C, &data("/a/x"))), [('D', APP.0)]);
}

/// Conformance: NDN 0.3 ForwardingHint | It goes by the hint outside of its region; inside, without the hint, by its name
#[test]
fn hints_lead_to_their_region() {
    let mut node = Node::new();
    node.route("/isp", &[(B, 0)]);
    node.route("/a", &[(C, 0)]);
    let (no, isp) = (name("/nowhere"), name("/isp/x"));
    let hint = [Name::new(&no).unwrap(), Name::new(&isp).unwrap()];
    let hinted = |nonce: u32| {
        let octets = name("/a/1");
        let repr = kaido_wire::ndn::InterestRepr {
            name: Name::new(&octets).unwrap(),
            forwarding_hint: &hint,
            can_be_prefix: true,
            nonce: Some(nonce),
            hop_limit: Some(4),
            ..Default::default()
        };
        let mut packet = vec![0; repr.len()];
        repr.emit(&mut packet).unwrap();
        packet
    };
    let sent = node.send(A, &hinted(1));
    assert_eq!((briefs(&sent), sent[0].interest().forwarding_hint.is_some()), (vec![('I', B.0)], true));
    node.send(B, &data("/a/1"));
    node.shared.add_region(&name("/isp/x/router")).unwrap();
    let sent = node.send(A, &hinted(2));
    let read = sent[0].interest();
    assert_eq!((briefs(&sent), read.forwarding_hint), (vec![('I', C.0)], None));
    assert_eq!((read.nonce, read.hop_limit, read.can_be_prefix), (Some(2), Some(3), true));
    assert_eq!(briefs(&node.send(C, &data("/a/1"))), [('D', A.0)]);
    node.shared.remove_region(&name("/isp/x/router")).unwrap();
    assert_eq!(briefs(&node.send(A, &hinted(3))), [('I', B.0)]);
}

/// Conformance: NDNLPv2 NextHopFaceId | An application chooses the face
/// Conformance: NDNLPv2 IncomingFaceId | An application that asked is told the face
/// Conformance: NDNLPv2 CongestionMark | It stays on the packet
#[test]
fn applications_choose_and_are_told_faces() {
    let mut node = Node::with(&caching());
    node.route("/a", &[(C, 0)]);
    let chosen = Annotations { next_hop_face: Some(B), congestion_mark: 1, ..Annotations::default() };
    let sent = node.annotated(CURIOUS, &interest("/a/x", 1), chosen);
    assert_eq!((briefs(&sent), sent[0].annotations.next_hop_face), (vec![('I', B.0)], None));
    assert_eq!(sent[0].annotations.congestion_mark, 1);
    let marked = Annotations { congestion_mark: 2, ..Annotations::default() };
    let sent = node.annotated(B, &data("/a/x"), marked);
    assert_eq!((sent[0].annotations.incoming_face, sent[0].annotations.congestion_mark), (Some(B), 2));
    let sent = node.send(CURIOUS, &interest("/a/x", 2));
    assert_eq!(sent[0].annotations.incoming_face, Some(FACE_CONTENT_STORE));
    let gone = Annotations { next_hop_face: Some(FaceId(999)), ..Annotations::default() };
    let sent = node.annotated(APP, &interest("/a/y", 3), gone);
    assert_eq!((briefs(&sent), sent[0].nack()), (vec![('N', APP.0)], Some(NackReason::NoRoute)));
    assert!(node.forwarder.pit().is_empty());
    node.route("/app", &[(CURIOUS, 0)]);
    let sent = node.annotated(A, &interest("/app", 4), Annotations { non_discovery: true, ..token(&[1]) });
    assert_eq!((sent[0].annotations.incoming_face, sent[0].annotations.non_discovery), (Some(A), true));
}

/// Conformance: NDNLPv2 CachePolicy | NoCache is not cached
#[test]
fn cached_data_answers_without_being_forwarded() {
    let mut node = Node::with(&caching());
    node.route("/a", &[(C, 0)]);
    for (number, no_cache) in [(1u8, false), (2, true)] {
        let uri = format!("/a/{number}");
        node.send(A, &interest(&uri, number.into()));
        let annotations = Annotations { no_cache, ..Annotations::default() };
        node.annotated(C, &data_with(&uri, &[number; 5000], 1000), annotations);
    }
    let sent = node.annotated(B, &interest("/a/1", 9), token(&[4; 32]));
    assert_eq!((briefs(&sent), sent[0].annotations.pit_token.octets()), (vec![('D', B.0)], &[4; 32][..]));
    assert_eq!(sent[0].octets, data_with("/a/1", &[1; 5000], 1000));
    assert_eq!(node.wire.drops, [NdnDrop::FROM_CACHE]);
    assert_eq!(briefs(&node.send(B, &interest("/a/2", 10))), [('I', C.0)]);
    node.pass(1001);
    let fresh = interest_with("/a/1", 11, |repr| repr.must_be_fresh = true);
    assert_eq!(briefs(&node.send(B, &fresh)), [('I', C.0)]);
    assert_eq!((node.frames_out(), node.forwarder.cs().len()), (0, 1));
}

/// Conformance: NDNLPv2 Nack | When all upstreams have nothing, each downstream is told the least severe reason
#[test]
fn nacks_are_gathered_and_the_least_severe_is_told() {
    let mut node = Node::new();
    node.route("/a", &[(B, 0), (C, 1)]);
    node.shared.strategies().update(&name("/a"), |_| Some(StrategyChoice::Multicast)).unwrap();
    assert_eq!(node.annotated(A, &interest("/a/x", 1), token(&[1])).len(), 2);
    node.annotated(APP, &interest("/a/x", 2), token(&[2]));
    for (face, packet, reason) in [
        (A, interest("/a/x", 1), "not an upstream"),
        (B, interest("/a/x", 5), "another nonce"),
        (B, interest("/a/y", 1), "another name"),
        (RADIO, interest("/a/x", 1), "many hear it"),
    ] {
        assert_eq!(node.annotated(face, &packet, nack(NackReason::NoRoute)), [], "{reason}");
        assert_eq!(node.wire.drops, [NdnDrop::NACK_UNMATCHED], "{reason}");
    }
    assert_eq!(node.annotated(B, &interest("/a/x", 1), nack(NackReason::NoRoute)), []);
    assert_eq!(node.wire.drops, [NdnDrop::NACK_NOTED]);
    let sent = node.annotated(C, &interest("/a/x", 1), nack(NackReason::Congestion));
    assert_eq!(briefs(&sent), [('N', A.0), ('N', APP.0)]);
    for (sent, (nonce, token)) in sent.iter().zip([(1, 1), (2, 2)]) {
        assert_eq!(sent.nack(), Some(NackReason::Congestion));
        assert_eq!((sent.interest().nonce, sent.annotations.pit_token.octets()), (Some(nonce), &[token][..]));
    }
    assert!(node.forwarder.pit().is_empty() && node.frames_out() == 0);
}

/// Conformance: NFD best-route | Two nodes that wait for each other are told, when all others have nothing
#[test]
fn nodes_that_wait_for_each_other_are_told() {
    let mut node = Node::new();
    node.route("/a", &[(B, 0), (C, 1)]);
    node.send(C, &interest("/a/x", 1));
    node.pass(20);
    assert_eq!(briefs(&node.send(B, &interest("/a/x", 2))), [('I', C.0)]);
    let sent = node.annotated(B, &interest("/a/x", 1), nack(NackReason::NoRoute));
    assert_eq!((briefs(&sent), sent[0].interest().nonce), (vec![('N', C.0)], Some(1)));
    assert_eq!(node.forwarder.pit().len(), 1);
}

/// Conformance: NDNLPv2 Nack | NoRoute when there is no next hop, Congestion when there is no room to wait in
#[test]
fn who_cannot_be_served_is_told() {
    let mut node = Node::with(&ForwarderSettings { pit: PitSettings::for_entries(2, 0), ..settings() });
    let sent = node.annotated(A, &interest("/a", 1), token(&[3]));
    assert_eq!(
        (sent[0].nack(), sent[0].annotations.pit_token.octets()),
        (Some(NackReason::NoRoute), &[3][..])
    );
    assert_eq!(node.send(RADIO, &interest("/a", 1)), []);
    assert_eq!(node.wire.drops, [NdnDrop::NO_ROUTE]);
    node.route("/a", &[(A, 0)]);
    let sent = node.send(A, &interest("/a", 2));
    assert_eq!(sent[0].nack(), Some(NackReason::NoRoute), "not back where it came from");
    node.route("/a", &[(C, 0)]);
    node.send(A, &interest("/a/1", 3));
    node.send(A, &interest("/a/2", 4));
    assert_eq!(node.send(A, &interest("/a/3", 5))[0].nack(), Some(NackReason::Congestion));
    assert_eq!(node.send(RADIO, &interest("/a/3", 6)), []);
    assert_eq!(node.wire.drops, [NdnDrop::PIT_FULL]);
    node.pass(4005);
    assert_eq!((node.forwarder.pit().len(), node.forwarder.counters().unsatisfied), (0, 5));
    assert_eq!(briefs(&node.send(A, &interest("/a/3", 7))), [('I', C.0)]);
}

/// Conformance: NDN 0.3 Interest InterestLifetime | It waits as long as it says, 4 s if it does not
#[test]
fn interests_wait_as_long_as_they_say() {
    let mut node = Node::new();
    node.route("/a", &[(C, 0)]);
    node.send(A, &interest("/a/1", 1));
    node.send(A, &interest_with("/a/2", 2, |repr| repr.lifetime_ms = Some(100)));
    node.send(A, &interest_with("/a/3", 3, |repr| repr.lifetime_ms = Some(u64::MAX)));
    let due = node.forwarder.tick_due(node.now).unwrap();
    assert!((Duration::from_millis(98)..Duration::from_millis(103)).contains(&due), "{due:?}");
    node.pass(102);
    assert_eq!(node.forwarder.pit().len(), 2);
    // The entry waits on for one, and no longer for the other.
    node.send(B, &interest_with("/a/1", 4, |repr| repr.lifetime_ms = Some(10_000)));
    node.pass(4000);
    assert_eq!(briefs(&node.send(C, &data("/a/1"))), [('D', B.0)]);
    node.pass(120_000);
    assert!(node.forwarder.pit().is_empty(), "two minutes at most");
    assert_eq!(node.forwarder.tick_due(node.now), None);
}

#[test]
fn data_nobody_waits_for_is_kept_only_if_that_is_wanted() {
    for (unsolicited, kept) in
        [(Unsolicited::Drop, 0), (Unsolicited::CacheLocal, 1), (Unsolicited::CacheAll, 2)]
    {
        let mut node = Node::with(&ForwarderSettings { unsolicited, ..caching() });
        for (face, uri) in [(A, "/a"), (APP, "/b")] {
            assert_eq!(node.send(face, &data(uri)), []);
            assert_eq!(node.wire.drops, [NdnDrop::UNSOLICITED]);
        }
        assert_eq!(node.forwarder.cs().len(), kept);
    }
}

#[test]
fn data_does_not_go_back_where_it_came_from() {
    let mut node = Node::new();
    node.route("/a", &[(C, 0)]);
    node.send(A, &interest("/a", 1));
    assert_eq!(node.send(A, &data("/a")), []);
    assert_eq!(node.wire.drops, [NdnDrop::NOT_ASKED]);
    // Who was asked asks, too.
    node.send(C, &interest("/a", 2));
    assert_eq!(briefs(&node.send(C, &data("/a"))), [('D', A.0)]);
}

#[test]
fn faces_that_are_gone_are_neither_heard_nor_served() {
    let mut node = Node::new();
    node.route("/a", &[(B, 0), (C, 1)]);
    node.send(A, &interest("/a/1", 1));
    node.wire.faces.remove(&A);
    assert_eq!(node.send(B, &data("/a/1")), []);
    assert_eq!(node.wire.drops, [NdnDrop::NO_DOWNSTREAM]);
    assert_eq!(node.send(A, &interest("/a/2", 2)), []);
    assert_eq!(node.wire.drops, [NdnDrop::FACE_UNKNOWN]);
    node.wire.faces.remove(&B);
    assert_eq!(briefs(&node.send(APP, &interest("/a/3", 3))), [('I', C.0)]);
}

#[test]
fn what_is_broken_or_too_deep_is_dropped() {
    let mut node = Node::new();
    node.route("/", &[(C, 0)]);
    let whole = interest("/a/b", 1);
    for cut in 1..whole.len() {
        assert_eq!(node.send(A, &whole[..cut]), []);
        assert_eq!(node.wire.drops, [NdnDrop::MALFORMED]);
    }
    assert_eq!(briefs(&node.send(A, &interest(&"/d".repeat(256), 2))), [('I', C.0)]);
    assert_eq!(node.send(A, &interest(&"/d".repeat(257), 3)), []);
    assert_eq!(node.wire.drops, [NdnDrop::NAME_TOO_LONG]);
    assert_eq!(node.frames_out(), 0);
}

#[test]
fn the_packets_of_a_batch_see_one_another() {
    let mut node = Node::with(&caching());
    node.route("/a", &[(C, 0)]);
    let packets = [
        (A, interest("/a/1", 1)),
        (B, interest("/a/1", 2)),
        (C, data("/a/1")),
        (APP, interest("/a/1", 3)),
        (C, data("/a/1")),
    ];
    let packets = packets.map(|(face, octets)| node.packet(face, &octets, Annotations::default()));
    let sent = node.batch(packets.into());
    assert_eq!(briefs(&sent), [('I', C.0), ('D', A.0), ('D', B.0), ('D', APP.0)]);
}

/// Data by our token goes a shorter way to the cache than Data without; what comes of it is the same.
#[test]
fn data_with_our_token_is_cached_as_data_without() {
    let outcome = |with_token: bool| {
        let mut node = Node::with(&caching());
        node.route("/a", &[(C, 0)]);
        let mut seen = Vec::new();
        for (number, must_be_fresh, no_cache) in [(1, false, false), (2, true, false), (3, false, true)] {
            let uri = format!("/a/{number}");
            let asked = interest_with(&uri, number, |repr| repr.must_be_fresh = must_be_fresh);
            let sent = node.send(A, &asked);
            let pit_token = if with_token { sent[0].annotations.pit_token } else { PitToken::NONE };
            let annotations = Annotations { pit_token, no_cache, ..Annotations::default() };
            seen.extend(briefs(&node.annotated(C, &data_with(&uri, &[7; 5000], 1000), annotations)));
            node.pass(1001);
            // A copy that went round: cached Data answers it; else its nonce is known.
            seen.extend(briefs(&node.send(B, &asked)));
        }
        let counters = node.forwarder.cs().counters();
        (seen, node.forwarder.counters(), (counters.inserted, counters.refused, counters.misses))
    };
    let (seen, counters, cached) = outcome(true);
    let expected = [('D', A.0), ('D', B.0), ('D', A.0), ('N', B.0), ('D', A.0), ('N', B.0)];
    assert_eq!((&seen[..], counters.satisfied, cached), (&expected[..], 3, (2, 0, 3)));
    assert_eq!(outcome(false), (seen, counters, cached));
}

/// Data is kept when a second consumer has asked for it, not when one asked again, and by the Interest's own name.
#[test]
fn what_is_asked_for_once_is_not_kept() {
    let mut node = Node::with(&caching());
    node.forwarder.cs_mut().admit(Admit::AskedAgain).unwrap();
    node.route("/a", &[(C, 0)]);
    let counts = |node: &Node| {
        let counters = node.forwarder.cs().counters();
        (counters.inserted, counters.refused, counters.octets_in, counters.octets_out)
    };
    node.send(A, &interest("/a/1", 1));
    node.pass(20);
    node.send(A, &interest("/a/1", 2));
    node.send(C, &data("/a/1"));
    assert_eq!(counts(&node), (0, 1, 0, 0));
    assert_eq!(briefs(&node.send(B, &interest("/a/1", 3))), [('I', C.0)]);
    node.send(C, &data("/a/1"));
    let len = data("/a/1").len() as u64;
    assert_eq!(counts(&node), (1, 1, len, 0));
    assert_eq!(briefs(&node.send(A, &interest("/a/1", 4))), [('D', A.0)]);
    assert_eq!(counts(&node), (1, 1, len, len));
    // Two that wait together are two.
    for (face, nonce) in [(A, 5), (B, 6)] {
        node.send(face, &interest_with("/a/2", nonce, |repr| repr.can_be_prefix = true));
    }
    node.send(C, &data("/a/2/v1"));
    assert_eq!(briefs(&node.send(A, &interest("/a/2/v1", 7))), [('D', A.0)]);
    node.forwarder.cs_mut().admit(Admit::All).unwrap();
    node.send(A, &interest("/a/3", 8));
    node.send(C, &data("/a/3"));
    assert_eq!(node.forwarder.cs().len(), 3);
}
