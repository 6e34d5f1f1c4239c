//! A store that is written, ended in every way, and opened again.

use std::fs;
use std::path::Path;
use std::time::Duration;

use kaido_store::{Discarded, Durability, Kind, StoreConfig, StoreError, open};
use proptest::prelude::*;

use super::stores::{
    Folder, Values, begin, damaged_snapshots, expected, only_segment, opened, put, segments_of_two_starts,
    values, wait_until_folded, written,
};

#[test]
fn what_was_flushed_is_there_again() {
    for durability in [Durability::Process, Durability::Disk] {
        let folder = Folder::new();
        let (mut journal, found, heard) = begin(&folder, durability);
        assert_eq!(found, Values::new());
        put(&journal, Kind::Session, 7, b"seven");
        put(&journal, Kind::Session, 8, b"eight");
        put(&journal, Kind::Peer, 7, b"peer");
        put(&journal, Kind::Subscription, 7, b"who subscribes");
        put(&journal, Kind::Baseline, 7, b"what was told");
        let first = journal.flush().unwrap();
        journal.recorder().remove(Kind::Session, 8);
        put(&journal, Kind::Session, 7, b"seven again");
        let second = journal.flush().unwrap();
        assert!(second > first);
        assert_eq!(journal.flush().unwrap(), second, "nothing is new");
        while !journal.is_durable(second) {
            heard.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        put(&journal, Kind::Session, 9, b"not flushed");
        drop(journal);
        let all = expected(&[
            (Kind::Session, 7, b"seven again"),
            (Kind::Peer, 7, b"peer"),
            (Kind::Subscription, 7, b"who subscribes"),
            (Kind::Baseline, 7, b"what was told"),
        ]);
        // A second time after what was found is folded.
        for _ in 0..2 {
            let (journal, found, _) = begin(&folder, durability);
            assert_eq!(found, all);
            wait_until_folded(&journal);
        }
        assert!(folder.segments().is_empty());
        let (mut journal, found, _) = begin(&folder, durability);
        assert_eq!(found, all);
        put(&journal, Kind::Peer, 7, b"later");
        assert_eq!(journal.flush().unwrap(), second + 1, "numbers go on");
    }
}

#[test]
fn a_journal_says_what_it_is_and_how() {
    let (folder, other) = (Folder::new(), Folder::new());
    let (of_other, ..) = begin(&other, Durability::Process);
    let mut stores = vec![of_other.store()];
    for (start, durability) in [Durability::Disk, Durability::Process].into_iter().enumerate() {
        let (mut journal, ..) = begin(&folder, durability);
        stores.push(journal.store());
        assert_eq!(journal.durability(), durability);
        let before = start as u64;
        assert_eq!((journal.unwritten(), journal.status().batches), (before + 1, before));
        put(&journal, Kind::Peer, 7, b"peer");
        assert_eq!(journal.flush().unwrap(), before + 1);
        assert_eq!(journal.unwritten(), before + 2);
        let status = journal.status();
        // A header, and the change with its own.
        assert_eq!((status.batches, status.octets), (before + 1, 32 + 13 + 4));
        assert_eq!((status.failures, status.is_failing, journal.is_blocked()), (0, false, false));
    }
    assert!(stores[1] == stores[2] && stores[0] != stores[1], "{stores:?}");
}

#[test]
fn numbers_with_their_highest_bit_are_in_order() {
    let folder = Folder::new();
    let (mut journal, _, _heard) = begin(&folder, Durability::Disk);
    let keys = [0, 1, u64::MAX >> 1, 1 << 63, u64::MAX];
    keys.into_iter().for_each(|key| put(&journal, Kind::Answer, key, &key.to_le_bytes()));
    journal.flush().unwrap();
    drop(journal);
    for _ in 0..2 {
        let (journal, found, _) = begin(&folder, Durability::Disk);
        assert_eq!(found.keys().map(|&(_, key)| key).collect::<Vec<_>>(), keys);
        wait_until_folded(&journal);
    }
}

#[test]
fn what_is_read_ahead_is_what_is_read() {
    let folder = Folder::new();
    let (mut journal, _, _heard) = begin(&folder, Durability::Process);
    for count in [0, 1, 255, 256, 257, 1000] {
        let value = |key| vec![7; usize::try_from(key).unwrap() % 9];
        (0..count).for_each(|key| put(&journal, Kind::Binding, key, &value(key)));
        journal.flush().unwrap();
        let copy = folder.copy();
        let (_, mut recovery) = open(copy.config(Durability::Process)).unwrap();
        let (mut read, mut ahead) = (Vec::new(), Vec::new());
        let take = |to: &mut Vec<_>, key, value: &[u8]| {
            to.push((key, value.to_vec()));
            Ok::<_, StoreError>(())
        };
        recovery.read(Kind::Binding, |key, value| take(&mut read, key, value)).unwrap();
        recovery.read_ahead(Kind::Binding, |key, value| take(&mut ahead, key, value)).unwrap();
        assert_eq!(read.len() as u64, count);
        assert_eq!(read, ahead);
        // Who takes it may have enough.
        if count == 1000 {
            for last in [0, 300, 999] {
                let enough = |at| StoreError::Format { path: "enough".into(), found: at, known: 0 };
                let ended = recovery
                    .read_ahead(Kind::Binding, |key, _| if key == last { Err(enough(7)) } else { Ok(()) });
                assert!(matches!(ended, Err(StoreError::Format { found: 7, .. })), "{ended:?}");
            }
        }
    }
}

#[test]
fn segments_are_folded_while_it_goes_on() {
    let folder = Folder::new();
    let (mut journal, _, _heard) = begin(&folder, Durability::Process);
    let large = vec![7; 30 << 20];
    for round in 0..6u64 {
        put(&journal, Kind::Session, round % 4, &[&large[..], &round.to_le_bytes()].concat());
        put(&journal, Kind::Usage, round, &round.to_le_bytes());
        journal.flush().unwrap();
    }
    wait_until_folded(&journal);
    assert_eq!(folder.segments().len(), 1, "the last is written to");
    drop(journal);
    let (_, found, _) = begin(&folder, Durability::Process);
    assert_eq!(found.len(), 10);
    for key in 0..4u64 {
        let last = if key < 2 { key + 4 } else { key };
        assert!(found[&(Kind::Session, key)].ends_with(&last.to_le_bytes()), "session {key}");
    }
}

#[test]
fn a_store_of_another_boot_is_not_trusted_unless_it_was_on_the_disk() {
    let folder = Folder::new();
    let (mut journal, _, _) = begin(&folder, Durability::Process);
    put(&journal, Kind::Node, 0, b"node");
    journal.flush().unwrap();
    drop(journal);
    // In the same boot it can be brought to the disk.
    let kept = folder.copy();
    drop(begin(&kept, Durability::Disk));
    for (folder, durability) in
        [(&folder, Durability::Process), (&folder, Durability::Disk), (&kept, Durability::Disk)]
    {
        let (_journal, recovery) = open(StoreConfig { boot: 2, ..folder.config(durability) }).unwrap();
        let is_kept = std::ptr::eq(folder, &kept);
        let was_there = durability == Durability::Process;
        assert_eq!(recovery.discarded, (!is_kept && was_there).then_some(Discarded::OtherBoot));
        assert_eq!(values(&recovery).unwrap().len(), usize::from(is_kept));
    }
}

#[test]
fn one_process_has_it_at_a_time() {
    let folder = Folder::new();
    let (journal, _, _) = begin(&folder, Durability::Process);
    assert!(matches!(open(folder.config(Durability::Process)), Err(StoreError::InUse(_))));
    drop(journal);
    begin(&folder, Durability::Process);
}

#[test]
fn a_snapshot_that_was_changed_is_refused_by_name() {
    let folder = Folder::new();
    let (mut journal, _, _) = begin(&folder, Durability::Disk);
    for key in 0..2000u64 {
        put(&journal, Kind::Session, key, &[key.to_le_bytes(); 20].concat());
    }
    journal.flush().unwrap();
    drop(journal);
    let (journal, found, _) = begin(&folder, Durability::Disk);
    wait_until_folded(&journal);
    drop(journal);
    let mut refused = 0;
    for (other, block, damage) in damaged_snapshots(&folder) {
        let opened = open(other.config(Durability::Disk)).and_then(|(_, mut recovery)| {
            let read = values(&recovery);
            let ahead = Kind::ALL.map(|kind| recovery.read_ahead(kind, |_, _| Ok::<_, StoreError>(())));
            assert_eq!(read.is_ok(), ahead.iter().all(Result::is_ok), "block {block} {damage:?}");
            read
        });
        match opened {
            // Octets that no row is in.
            Ok(read) => assert_eq!(read, found, "block {block} {damage:?}"),
            Err(error) => {
                refused += 1;
                let text = error.to_string();
                assert!(text.contains("state.db") && text.contains("kaido store"), "{text}");
            }
        }
    }
    assert!(refused > 200, "{refused}");
}

fn is_refusal_by_name(error: &StoreError, path: &Path) -> bool {
    matches!(error, StoreError::Damaged { path: at, .. } if at == path)
        && error.to_string().contains("kaido store")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Every prefix opens to a state that was acknowledged, and every damaged block to one, or is refused.
    #[test]
    fn a_torn_journal_opens_to_a_state_that_was_acknowledged(
        batches in prop::collection::vec(
            prop::collection::vec((any::<u8>(), 0u64..6, prop::option::of(any::<u8>())), 1..8), 1..7),
        block in prop_oneof![Just(1usize), Just(64), Just(512), Just(4096)],
    ) {
        let folder = Folder::new();
        let states = written(&batches, &folder, Durability::Disk);
        let path = only_segment(&folder);
        let octets = fs::read(&path).unwrap();
        let step = (octets.len() / 40).max(1);
        for cut in (0..=octets.len()).step_by(step).chain([octets.len()]) {
            let torn = folder.copy();
            fs::write(only_segment(&torn), &octets[..cut]).unwrap();
            let found = opened(&torn).unwrap();
            prop_assert!(states.contains(&found), "cut at {cut}");
            // What was cut is cut for good: it opens to the same again.
            prop_assert_eq!(opened(&torn).unwrap(), found);
        }
        for at in (0..octets.len()).step_by(step) {
            let torn = folder.copy();
            let path = only_segment(&torn);
            let mut changed = octets.clone();
            let end = (at + block).min(octets.len());
            changed[at..end].iter_mut().for_each(|octet| *octet ^= 0x55);
            fs::write(&path, &changed).unwrap();
            match opened(&torn) {
                Ok(found) => prop_assert!(states.contains(&found), "changed at {at}"),
                Err(error) => prop_assert!(is_refusal_by_name(&error, &path), "{error}"),
            }
        }
    }
}

#[test]
fn octets_behind_the_last_batch_are_cut_once() {
    let folder = Folder::new();
    written(&[vec![(2, 1, Some(1))]], &folder, Durability::Disk);
    let path = only_segment(&folder);
    let octets = fs::read(&path).unwrap();
    fs::write(&path, [&octets[..], b"torn"].concat()).unwrap();
    for cut in [4, 0] {
        let (_journal, recovery) = open(folder.config(Durability::Disk)).unwrap();
        assert_eq!(recovery.cut, cut);
        assert_eq!(fs::read(&path).unwrap(), octets);
    }
}

#[test]
fn a_batch_in_the_middle_is_not_lost_unnoticed() {
    let folder = Folder::new();
    let batches: Vec<_> = (0..5u8).map(|value| vec![(2, u64::from(value), Some(value + 1))]).collect();
    written(&batches, &folder, Durability::Disk);
    let path = only_segment(&folder);
    let mut octets = fs::read(&path).unwrap();
    octets[64 + 32 + 10] ^= 1;
    fs::write(&path, &octets).unwrap();
    let error = opened(&folder).unwrap_err();
    assert!(is_refusal_by_name(&error, &path) && error.to_string().contains("batch 1"), "{error}");
}

#[test]
fn a_header_that_was_changed_loses_nothing() {
    let folder = Folder::new();
    let states = written(&[vec![(2, 1, Some(1))], vec![(2, 2, Some(2))]], &folder, Durability::Disk);
    let octets = fs::read(only_segment(&folder)).unwrap();
    for at in 0..64 {
        let other = folder.copy();
        let mut changed = octets.clone();
        changed[at] ^= 1;
        fs::write(only_segment(&other), &changed).unwrap();
        assert_eq!(opened(&other).unwrap(), states[2], "octet {at}");
        let (journal, ..) = begin(&other, Durability::Disk);
        wait_until_folded(&journal);
        drop(journal);
        assert_eq!(opened(&other).unwrap(), states[2], "folded, octet {at}");
    }
    // The first batch too: the second says that it was acknowledged.
    let mut changed = octets;
    (changed[3], changed[64 + 32 + 10]) = (0, 0xff);
    let path = only_segment(&folder);
    fs::write(&path, &changed).unwrap();
    assert!(is_refusal_by_name(&opened(&folder).unwrap_err(), &path));
}

#[test]
fn a_snapshot_or_a_segment_that_is_missing_is_noticed() {
    let folder = Folder::new();
    written(&[vec![(2, 1, Some(1))]], &folder, Durability::Disk);
    let other = folder.copy();
    fs::remove_file(other.0.join("state.db")).unwrap();
    assert!(is_refusal_by_name(&opened(&other).unwrap_err(), &other.0.join("state.db")));
    // Whatever is left of the journal.
    fs::remove_file(only_segment(&other)).unwrap();
    assert!(is_refusal_by_name(&opened(&other).unwrap_err(), &other.0.join("state.db")));
    // The first of two segments.
    written(&[vec![(2, 2, Some(1))]], &folder, Durability::Disk);
    let (journal, ..) = begin(&folder, Durability::Disk);
    wait_until_folded(&journal);
    drop(journal);
    written(&[vec![(2, 3, Some(1))]], &folder, Durability::Disk);
    assert_eq!(opened(&folder).unwrap().len(), 3);
    let [first, _] = &segments_of_two_starts(&folder)[..] else { panic!("two segments") };
    fs::remove_file(first).unwrap();
    let error = opened(&folder).unwrap_err();
    assert!(matches!(&error, StoreError::Damaged { .. }), "{error}");
}
