//! The offload's table against a map, so full that records have to move.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::atomic::Ordering;

use kaido_upf_xdp::offload::{
    OffloadDestination, OffloadDirection, OffloadError, OffloadKey, OffloadLine, OffloadMatch, OffloadRecord,
    OffloadRule, UsageCell,
};
use kaido_upf_xdp::speed::{Rules, Speed, filled, records};
use kaido_upf_xdp::{Offload, OffloadConfig, OffloadFlags};

use crate::rig;
use crate::rig::tables;

/// As many keys as there is room for in sixteen buckets of four.
const KEYS_MAX: u32 = 47;

fn key(number: u32) -> OffloadKey {
    OffloadKey::Tunnel { local: Ipv4Addr::new(192, 0, 2, 1).into(), teid: number }
}

/// Of two rules, now and then.
fn record(number: u32) -> OffloadRecord {
    let rule = OffloadRule::to(OffloadDestination::Hop(0)).counting([UsageCell::of_passed(number % 7)]);
    let mut record = OffloadRecord::of_rule(number, OffloadDirection::Uplink, rule);
    if number.is_multiple_of(3) {
        record.lines.push(OffloadLine { asks: OffloadMatch::default(), rule: None });
    }
    record
}

/// A key is there once, wherever it and the others have moved: it is gone when it was taken away.
#[test]
fn keys_that_move_about_are_each_there_once() {
    if !rig::is_root("keys_that_move_about_are_each_there_once") {
        return;
    }
    for seed in 0..4u64 {
        let mut path = Offload::load(&OffloadConfig {
            records_max: KEYS_MAX,
            groups_max: 23,
            usage_cells_max: 7,
            policers_max: 0,
            templates_max: 1,
            hops_max: 2,
            flags: OffloadFlags::default(),
            ue_network_words: 0,
            seed: [3, 5, 7, 9].map(|word: u64| word.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed << 32 | 1),
        })
        .unwrap();
        let mut there = BTreeSet::new();
        let mut random = seed + 1;
        let mut crowded = 0;
        for _ in 0..100_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let number = u32::try_from(random >> 33).unwrap() % 64;
            // Taken away now and then: mostly full, and mostly replaced.
            if (random >> 40).is_multiple_of(16) {
                assert_eq!(path.remove(&key(number)), there.remove(&number));
                assert!(!path.contains(&key(number)), "{number} was there twice");
            } else {
                match path.insert_or_replace(key(number), &record(number)) {
                    Ok(()) => _ = there.insert(number),
                    Err(OffloadError::Full { .. }) => assert!(there.len() == KEYS_MAX as usize),
                    Err(OffloadError::Crowded) => crowded += 1,
                    Err(other) => panic!("{other}"),
                }
            }
            assert_eq!(path.len() as usize, there.len());
        }
        for number in 0..64 {
            assert_eq!(path.contains(&key(number)), there.contains(&number), "key {number}");
        }
        assert!(crowded < 100, "{crowded} of 100000 found no place");
    }
}

/// Whatever moves while a record is replaced, packets find the new one.
#[test]
fn of_a_key_that_is_replaced_the_new_record_is_found() {
    if !rig::is_root("of_a_key_that_is_replaced_the_new_record_is_found") {
        return;
    }
    let (sessions, packets) = (23, 2000);
    let mut path = filled(sessions, Rules::PLAIN).unwrap();
    let speed = Speed::load(&path).unwrap();
    let words = path.leak_usage_cells().unwrap();
    let mut sums = [0; 2];
    for round in 0..200 {
        // All records count in one cell, and all of the next round in the other.
        let cell = round % 2;
        for (key, record) in (0..sessions).flat_map(|session| records(session, Rules::PLAIN)) {
            let record = tables::changed(record, |rule| *rule = rule.counting([UsageCell::of_passed(cell)]));
            path.insert_or_replace(key, &record).unwrap();
        }
        speed.time(OffloadDirection::Uplink, sessions, packets).unwrap();
        (0..2).for_each(|cell| path.sync(cell));
        let counted = [1, 9].map(|word: usize| words[word].load(Ordering::Relaxed));
        let [new, old] = [cell, 1 - cell].map(|cell| counted[cell as usize] - sums[cell as usize]);
        // A run that a signal ends is begun again, so that more packets may pass than were asked for.
        assert!(new >= packets.into(), "round {round}: {new} found the new records");
        assert_eq!(old, 0, "round {round}: so many found old records");
        sums = counted;
    }
}
