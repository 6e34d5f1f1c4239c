//! A store that is written, ended in every way, and opened again.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use kaido_store::{Discarded, Durability, Journal, Kind, Recovery, StoreConfig, StoreError, open};
use proptest::prelude::*;

/// A folder that is removed with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("kaido-store-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn config(&self, durability: Durability) -> StoreConfig {
        StoreConfig { folder: self.0.clone(), durability, boot: 1 }
    }

    /// A folder with the same files, as a crash of the machine would leave them.
    fn copy(&self) -> Self {
        let other = Self::new();
        for entry in fs::read_dir(&self.0).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), other.0.join(entry.file_name())).unwrap();
        }
        other
    }

    fn segments(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<_> = entries
            .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("journal-"))
            .collect();
        found.sort();
        found
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

type Values = BTreeMap<(Kind, u64), Vec<u8>>;

fn values(recovery: &Recovery) -> Result<Values, StoreError> {
    let mut values = Values::new();
    for kind in Kind::ALL {
        recovery.read(kind, |key, value| {
            assert!(values.insert((kind, key), value.to_vec()).is_none(), "once");
            Ok::<_, StoreError>(())
        })?;
    }
    Ok(values)
}

fn put(journal: &Journal, kind: Kind, key: u64, value: &[u8]) {
    journal.recorder().put(kind, key, |octets| octets.extend_from_slice(value));
}

/// Opens a store, starts it, and says what was in it.
fn begin(folder: &Folder, durability: Durability) -> (Journal, Values, Receiver<()>) {
    let (mut journal, recovery) = open(folder.config(durability)).unwrap();
    let found = values(&recovery).unwrap();
    let (news, heard) = channel();
    recovery
        .start(&mut journal, move || {
            let _ = news.send(());
        })
        .unwrap();
    (journal, found, heard)
}

fn expected(entries: &[(Kind, u64, &[u8])]) -> Values {
    entries.iter().map(|&(kind, key, value)| ((kind, key), value.to_vec())).collect()
}

#[test]
fn what_was_flushed_is_there_again() {
    for durability in [Durability::Process, Durability::Disk] {
        let folder = Folder::new();
        let (mut journal, found, heard) = begin(&folder, durability);
        assert_eq!(found, Values::new());
        put(&journal, Kind::Session, 7, b"seven");
        put(&journal, Kind::Session, 8, b"eight");
        put(&journal, Kind::Peer, 7, b"peer");
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
        let all = expected(&[(Kind::Session, 7, b"seven again"), (Kind::Peer, 7, b"peer")]);
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

fn wait_until_folded(journal: &Journal) {
    let began = Instant::now();
    while journal.status().segments > 0 {
        assert!(began.elapsed() < Duration::from_secs(60));
        std::thread::yield_now();
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
    let path = folder.0.join("state.db");
    let octets = fs::read(&path).unwrap();
    let mut refused = 0;
    for block in (0..octets.len()).step_by(4096) {
        for damage in [Damage::Zeros, Damage::Bit, Damage::Other] {
            let mut changed = octets.clone();
            damage.apply(&mut changed, block);
            if changed == octets {
                continue;
            }
            let other = folder.copy();
            fs::write(other.0.join("state.db"), &changed).unwrap();
            match open(other.config(Durability::Disk)).and_then(|(_, recovery)| values(&recovery)) {
                // Octets that no row is in.
                Ok(read) => assert_eq!(read, found, "block {block} {damage:?}"),
                Err(error) => {
                    refused += 1;
                    let text = error.to_string();
                    assert!(text.contains("state.db") && text.contains("kaido store"), "{text}");
                }
            }
        }
    }
    assert!(refused > 200, "{refused}");
}

#[derive(Clone, Copy, Debug)]
enum Damage {
    Zeros,
    Bit,
    /// The block behind it.
    Other,
}

impl Damage {
    fn apply(self, octets: &mut [u8], block: usize) {
        let end = (block + 4096).min(octets.len());
        match self {
            Self::Zeros => octets[block..end].fill(0),
            Self::Bit => octets[usize::midpoint(block, end)] ^= 4,
            Self::Other if end + 4096 <= octets.len() => octets.copy_within(end..end + 4096, block),
            Self::Other => {}
        }
    }
}

/// Batches of a journal whose end may be anything, and what was there after each.
fn written(batches: &[Vec<(u8, u64, Option<u8>)>], folder: &Folder, durability: Durability) -> Vec<Values> {
    let (mut journal, mut now, heard) = begin(folder, durability);
    let mut states = vec![now.clone()];
    for batch in batches {
        for &(kind, key, value) in batch {
            let kind = Kind::ALL[usize::from(kind) % Kind::ALL.len()];
            match value {
                Some(value) => {
                    let value = vec![value; usize::from(value) * 13];
                    put(&journal, kind, key, &value);
                    now.insert((kind, key), value);
                }
                None => {
                    journal.recorder().remove(kind, key);
                    now.remove(&(kind, key));
                }
            }
        }
        let number = journal.flush().unwrap();
        while !journal.is_durable(number) {
            heard.recv_timeout(Duration::from_secs(60)).unwrap();
        }
        states.push(now.clone());
    }
    states
}

/// The states that a store may open to, or the refusal.
fn opened(folder: &Folder) -> Result<Values, StoreError> {
    let (_, recovery) = open(folder.config(Durability::Disk))?;
    values(&recovery)
}

fn only_segment(folder: &Folder) -> PathBuf {
    let segments = folder.segments();
    assert_eq!(segments.len(), 1);
    segments[0].clone()
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

/// Has a start end before it folds what it found, so that the next finds two segments.
fn segments_of_two_starts(folder: &Folder) -> Vec<PathBuf> {
    let before = folder.copy();
    written(&[vec![(2, 6, Some(1))]], &before, Durability::Disk);
    let second = before.segments().pop().unwrap();
    fs::copy(&second, folder.0.join(second.file_name().unwrap())).unwrap();
    folder.segments()
}
