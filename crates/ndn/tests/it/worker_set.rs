//! Several workers are one router: wherever a packet comes in, and whatever its name's popularity.
#![allow(clippy::unwrap_used)]

use crate::workers;
use crate::workers::{Crowd, Made, briefs, data, interest, interest_with};
use kaido_engine::DropReason;
use kaido_ndn::NdnDrop;
use kaido_ndn::balance::{BalanceSettings, Phase};
use kaido_ndn::forward::Unsolicited;
use kaido_wire::ndn::LpHeader;

fn four() -> Crowd {
    Crowd::new(Made { workers: 4, ..Made::default() })
}

#[test]
fn interests_wait_at_home_wherever_they_come_in() {
    let mut crowd = four();
    for home in 0..4 {
        let uri = crowd.at_home(home, "/a");
        let sent = crowd.interest(home, 1, &uri, 1);
        assert_eq!((briefs(&sent), sent[0].worker), (vec![('I', 0)], home));
        for (worker, face, nonce) in [(0, 2, 10), (1, 3, 11), (2, 4, 12), (3, 5, 13)] {
            assert_eq!(crowd.interest(worker, face, &uri, nonce), [], "it waits with the first");
        }
        let sent = crowd.data((home + 1) % 4, 0, &uri, &sent[0].token);
        assert_eq!(briefs(&sent), [1, 2, 3, 4, 5].map(|face| ('D', face)));
        assert!(sent.iter().all(|sent| sent.octets == data(&uri)));
    }
    assert_eq!((crowd.dropped(NdnDrop::UNSOLICITED), crowd.dropped(NdnDrop::AGGREGATED)), (0, 16));
    crowd.end();
}

#[test]
fn what_is_said_of_a_packet_goes_with_it() {
    let mut crowd = four();
    let uri = crowd.at_home(2, "/a");
    let said = LpHeader { pit_token: b"theirs", congestion_mark: 3, ..LpHeader::default() };
    crowd.put(0, 1, &said, &interest(&uri, 1));
    let sent = crowd.settle();
    assert_eq!((briefs(&sent), sent[0].token.len()), (vec![('I', 0)], 6));
    let answer = crowd.data(3, 0, &uri, &sent[0].token);
    assert_eq!((briefs(&answer), &answer[0].token[..]), (vec![('D', 1)], &b"theirs"[..]));
    crowd.end();
}

#[test]
fn data_without_a_token_finds_who_waits_anywhere() {
    let mut crowd = four();
    // Interests that may be prefixes, at three depths and three homes.
    let prefixes: Vec<String> = (1..4)
        .map(|home| {
            let prefix = ["/p", "/p/q", "/p/q/r"][home - 1];
            (0..).map(|number| format!("{prefix}/{number}")).find(|uri| crowd.home(uri) == home).unwrap()
        })
        .collect();
    for (face, prefix) in (1..).zip(&prefixes) {
        crowd.put(0, face, &LpHeader::default(), &interest_with(prefix, 1, |repr| repr.can_be_prefix = true));
        assert_eq!(briefs(&crowd.settle()), [('I', 0)]);
        let longer = format!("{prefix}/x/y");
        assert_eq!(briefs(&crowd.data(0, 0, &longer, &[])), [('D', face)], "{longer}");
        assert_eq!(crowd.data(0, 0, &longer, &[]), []);
    }
    // One Data serves them at several workers, each once.
    let (short, long) = ("/s", "/s/t/u");
    crowd.put(1, 5, &LpHeader::default(), &interest_with(short, 1, |repr| repr.can_be_prefix = true));
    crowd.put(2, 6, &LpHeader::default(), &interest(long, 2));
    assert_eq!(briefs(&crowd.settle()), [('I', 0), ('I', 0)]);
    assert_eq!(briefs(&crowd.data(3, 0, long, &[])), [('D', 5), ('D', 6)]);
    // Deeper than prefixes are hashed.
    let deep = "/d".repeat(35);
    crowd.put(1, 5, &LpHeader::default(), &interest_with(&deep, 1, |repr| repr.can_be_prefix = true));
    assert_eq!(briefs(&crowd.settle()), [('I', 0)]);
    assert_eq!(briefs(&crowd.data(0, 0, &format!("{deep}/more"), &[])), [('D', 5)]);
    assert_eq!(crowd.dropped(NdnDrop::UNSOLICITED), 3);
    crowd.end();
}

#[test]
fn tokens_that_lead_nowhere_are_as_none() {
    let mut crowd = four();
    let uri = crowd.at_home(1, "/a");
    crowd.interest(0, 1, &uri, 1);
    // Of another worker, where no such Interest waits, and of no worker at all.
    assert_eq!(briefs(&crowd.data(0, 0, &uri, &[3, 0, 0, 0, 0, 0])), [('D', 1)]);
    crowd.interest(0, 1, &uri, 2);
    assert_eq!(briefs(&crowd.data(2, 0, &uri, &[200, 0, 0, 0, 0, 0])), [('D', 1)]);
    // Of one that waits for another name.
    let other = crowd.at_home(2, "/b");
    let sent = crowd.interest(0, 1, &other, 3);
    assert_eq!(crowd.data(0, 0, &uri, &sent[0].token), []);
    assert_eq!(crowd.dropped(NdnDrop::TOKEN_MISMATCH), 1);
    assert_eq!(crowd.data(0, 0, "/nobody/asks", &[]), []);
    assert_eq!(crowd.dropped(NdnDrop::UNSOLICITED), 1);
    crowd.end();
}

#[test]
fn data_that_nobody_waits_for_is_kept_at_its_home_if_at_all() {
    let mut crowd =
        Crowd::new(Made { workers: 4, cached: 64, unsolicited: Unsolicited::CacheAll, ..Made::default() });
    crowd.put(0, 2, &LpHeader::default(), &interest_with("/k", 1, |repr| repr.can_be_prefix = true));
    let asked = crowd.settle();
    for home in 0..4 {
        let uri = crowd.at_home(home, "/a");
        assert_eq!(crowd.data(1, 0, &uri, &[]), []);
        assert_eq!(briefs(&crowd.interest(2, 1, &uri, 5)), [('D', 1)]);
    }
    assert_eq!(briefs(&crowd.data(0, 0, "/k", &asked[0].token)), [('D', 2)]);
    crowd.end();
}

/// What a consumer asks for to learn the newest version of a content, others ask for, too, in the same words.
#[test]
fn an_interest_that_may_be_a_prefix_finds_what_has_answered_the_same_one() {
    let mut crowd = Crowd::new(Made { workers: 4, cached: 64, ..Made::default() });
    for home in 0..4 {
        let prefix = crowd.at_home(home, "/a");
        let longer = format!("{prefix}/v/s");
        let discover = |crowd: &mut Crowd, worker, face, nonce| {
            let octets = interest_with(&prefix, nonce, |repr| repr.can_be_prefix = true);
            crowd.put(worker, face, &LpHeader::default(), &octets);
            crowd.settle()
        };
        let sent = discover(&mut crowd, 0, 1, 1);
        assert_eq!(briefs(&sent), [('I', 0)]);
        assert_eq!(briefs(&crowd.data(2, 0, &longer, &sent[0].token)), [('D', 1)]);
        for worker in 0..4 {
            let nonce = 10 + u32::try_from(worker).unwrap();
            assert_eq!(briefs(&discover(&mut crowd, worker, 2, nonce)), [('D', 2)], "wherever it comes in");
        }
    }
    crowd.end();
}

#[test]
fn nacks_find_their_interests() {
    let mut crowd = four();
    for home in 0..4 {
        let uri = crowd.at_home(home, "/a");
        for with_token in [true, false] {
            let nonce = u32::from(with_token);
            let sent = crowd.interest(0, 1, &uri, nonce);
            let token = if with_token { &sent[0].token[..] } else { &[] };
            let said = LpHeader { nack: Some(150), pit_token: token, ..LpHeader::default() };
            crowd.put(1, 0, &said, &sent[0].octets);
            let told = crowd.settle();
            assert_eq!((briefs(&told), told[0].nack), (vec![('N', 1)], Some(150)));
        }
    }
    crowd.put(1, 0, &LpHeader { nack: Some(150), ..LpHeader::default() }, &interest("/a", 77));
    assert_eq!((crowd.settle(), crowd.dropped(NdnDrop::NACK_UNMATCHED)), (vec![], 1));
    crowd.end();
}

#[test]
fn loops_are_known_at_every_worker() {
    let mut crowd = four();
    let uri = crowd.at_home(3, "/a");
    let sent = crowd.interest(0, 1, &uri, 9);
    for worker in 0..4 {
        let told = crowd.interest(worker, 2, &uri, 9);
        assert_eq!((briefs(&told), told[0].nack), (vec![('N', 2)], Some(100)));
    }
    crowd.data(0, 0, &uri, &sent[0].token);
    for worker in 0..4 {
        assert_eq!(briefs(&crowd.interest(worker, 2, &uri, 9)), [('N', 2)], "its nonce is dead");
    }
    crowd.end();
}

#[test]
fn hot_names_are_sprayed_and_one_data_serves_all() {
    let mut crowd = Crowd::new(Made { workers: 4, cached: 64, ..Made::default() });
    let uri = "/hot";
    assert!(crowd.balance.hot().set(crowd.hash(uri), Some(Phase::Hot)));
    let mut sent = Vec::new();
    for worker in 0..4 {
        let nonce = crowd.nonce_to(worker, uri);
        sent.extend(crowd.interest(0, 1 + worker, uri, nonce));
        // A copy that has come round.
        assert_eq!(briefs(&crowd.interest(3 - worker, 6, uri, nonce)), [('N', 6)]);
    }
    assert_eq!(sent.iter().map(|sent| sent.worker).collect::<Vec<_>>(), [0, 1, 2, 3], "each asks for itself");
    let answers = crowd.data(2, 0, uri, &sent[1].token);
    assert_eq!(briefs(&answers), [1, 2, 3, 4].map(|face| ('D', face)));
    // The answers to the others come to nobody, and no worker asks again.
    for sent in [&sent[0], &sent[2], &sent[3]] {
        assert_eq!(crowd.data(0, 0, uri, &sent.token), []);
    }
    for worker in 0..4 {
        let nonce = crowd.nonce_to(worker, uri) + 100_000;
        assert_eq!(briefs(&crowd.interest(0, 1, uri, nonce)), [('D', 1)], "each has it in its cache");
    }
    crowd.end();
}

#[test]
fn data_of_a_hot_name_without_a_token_goes_to_all() {
    let mut crowd = four();
    let uri = "/hot";
    assert!(crowd.balance.hot().set(crowd.hash(uri), Some(Phase::Warming)));
    for worker in 0..4 {
        let nonce = crowd.nonce_to(worker, uri);
        crowd.interest(0, 1 + worker, uri, nonce);
    }
    assert_eq!(briefs(&crowd.data(1, 0, uri, &[])), [1, 2, 3, 4].map(|face| ('D', face)));
    assert_eq!((crowd.data(1, 0, uri, &[]), crowd.dropped(NdnDrop::UNSOLICITED)), (vec![], 1));
    crowd.end();
}

#[test]
fn an_interest_of_the_rule_before_is_known_while_a_name_turns() {
    for phases in [[None, Some(Phase::Warming)], [Some(Phase::Hot), Some(Phase::Cooling)]] {
        let mut crowd = four();
        let uri = "/turns";
        let hash = crowd.hash(uri);
        let home = crowd.home(uri);
        let nonce = crowd.nonce_to((home + 1) % 4, uri);
        crowd.balance.hot().set(hash, phases[0]);
        let sent = crowd.interest(0, 1, uri, nonce);
        assert_eq!(sent[0].worker, if phases[0].is_none() { home } else { (home + 1) % 4 });
        crowd.balance.hot().set(hash, phases[1]);
        for worker in 0..4 {
            assert_eq!(briefs(&crowd.interest(worker, 2, uri, nonce)), [('N', 2)], "a copy that went round");
        }
        // Who waits asks again: at most each worker has an upstream of its own.
        let upstreams: usize = (1..100).map(|number| crowd.interest(2, 1, uri, nonce + number).len()).sum();
        assert_eq!(upstreams, if phases[0].is_none() { 3 } else { 1 });
        // The Data of the old entry comes by its token, and serves all the others.
        let answers = crowd.data(3, 0, uri, &sent[0].token);
        assert_eq!(briefs(&answers), vec![('D', 1); upstreams + 1]);
        crowd.end();
    }
}

#[test]
fn a_name_that_is_asked_for_often_turns_hot_and_cools_by_itself() {
    let balance = BalanceSettings { sample: 1, ..BalanceSettings::default() };
    let mut crowd = Crowd::new(Made { workers: 2, cached: 64, balance, ..Made::default() });
    let hot = crowd.hash("/hot");
    for round in 0..4u32 {
        for number in 0..100u32 {
            let nonce = round * 1000 + number;
            let uri = if number % 3 == 0 { "/hot".to_owned() } else { format!("/cold/{nonce}") };
            crowd.put(usize::from(number % 2 == 0), 1, &LpHeader::default(), &interest(&uri, nonce));
            if number % 20 == 19 {
                let _ = crowd.settle();
            }
        }
        crowd.pass(150);
    }
    assert_eq!((crowd.balance.hot().phase(hot), crowd.balance.hot().len()), (Some(Phase::Warming), 1));
    assert!((200_000..=400_000).contains(&crowd.balance.hot_names()[0].share_ppm), "about a third");
    assert_eq!(crowd.balance.hot_names()[0].name, Some(workers::name("/hot")));
    for (millis, phase) in [(10_100, Some(Phase::Hot)), (10_100, Some(Phase::Cooling)), (10_100, None)] {
        crowd.pass(millis);
        assert_eq!(crowd.balance.hot().phase(hot), phase);
    }
    crowd.end();
}

#[test]
fn a_full_ring_is_a_drop_with_a_name() {
    let mut crowd = Crowd::new(Made::default());
    let uri = crowd.at_home(1, "/a");
    for batch in 0..40 {
        for number in 0..32 {
            crowd.put(0, 1, &LpHeader::default(), &interest(&uri, batch * 100 + number));
        }
        crowd.turn(0);
    }
    crowd.turn(0);
    let _ = crowd.settle();
    let dropped = crowd.dropped(DropReason::HANDOFF_FULL);
    assert_eq!(dropped, 40 * 32 - 1024);
    crowd.end();
}
