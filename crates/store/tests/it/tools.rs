//! What `kaido store` does with stores, sound and damaged.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use kaido_store::tools::{CheckReport, RepairReport, check, export, import, repair};
use kaido_store::{Durability, Kind, StoreError};
use proptest::prelude::*;

use super::stores::{
    Damage, Folder, Values, begin, damaged_snapshots, only_segment, opened, put, segments_of_two_starts,
    wait_until_folded, written,
};

/// The files of a folder, but its lock.
fn files(folder: &Folder) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.filter(|path| path.is_file() && !path.ends_with("lock"));
    files.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Checks a store, whose files stay as they are.
fn checked(folder: &Folder) -> CheckReport {
    let before = files(folder);
    let report = check(&folder.0).unwrap();
    assert_eq!(files(folder).keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    assert!(files(folder) == before, "check has written");
    report
}

fn counts(values: &Values) -> BTreeMap<&'static str, u64> {
    let mut counts = BTreeMap::new();
    values.keys().for_each(|(kind, _)| *counts.entry(kind.name()).or_default() += 1);
    counts
}

/// Says whether a report has a fault of a file with these words.
fn names(report: &CheckReport, file: &Path, words: &str) -> bool {
    report.faults.iter().any(|fault| fault.file == file && fault.what.contains(words))
}

/// Repairs a store, which opens then; says what it has, and what was reported.
fn repaired(folder: &Folder) -> (Values, RepairReport) {
    let expected = check(&folder.0).unwrap();
    let report = repair(&folder.0).unwrap();
    let RepairReport::Repaired { kept, last_batch, lost_batches, .. } = &report else { panic!("{report:?}") };
    let mut entries = expected.entries.clone();
    if lost_batches.is_some() {
        // Peers are to see that the node began anew.
        entries.remove("node");
    }
    assert_eq!((kept, *last_batch), (&entries, expected.last_batch), "as the check said");
    let after = checked(folder);
    assert!(after.is_sound(), "{after:?}");
    let values = opened(folder).unwrap();
    assert_eq!((&counts(&values), after.last_batch), (kept, *last_batch));
    (values, report)
}

/// A store with rows of several pages, long ones, and pages that are free and hold rows of before.
fn grown(folder: &Folder) -> Values {
    let mut values = Values::new();
    for round in 0..3u64 {
        let (mut journal, ..) = begin(folder, Durability::Disk);
        for key in 0..500u64 {
            let number = if key % 5 == 0 { u64::MAX - key } else { key };
            let kind = if key % 3 == 0 { Kind::Usage } else { Kind::Session };
            let repeats = if key % 97 == 0 { 1300 } else { 20 };
            let value = [(key + round).to_le_bytes(); 1300][..repeats].concat();
            if round == 0 || key % 7 == 0 {
                put(&journal, kind, number, &value);
                values.insert((kind, number), value);
            } else if round == 1 && (200..450).contains(&key) {
                journal.recorder().remove(kind, number);
                values.remove(&(kind, number));
            }
        }
        journal.flush().unwrap();
        drop(journal);
        let (journal, found, _) = begin(folder, Durability::Disk);
        assert!(found == values);
        wait_until_folded(&journal);
    }
    values
}

#[test]
fn a_sound_store_is_read_and_left_as_it_is() {
    let folder = Folder::new();
    assert!(matches!(check(&folder.0), Err(StoreError::NoStore(_))));
    let values = grown(&folder);
    let report = checked(&folder);
    assert!(report.is_sound(), "{report:?}");
    assert_eq!((report.entries, report.last_batch, report.folded), (counts(&values), 3, Some(3)));
    let (mut journal, ..) = begin(&folder, Durability::Disk);
    put(&journal, Kind::Node, 0, b"node");
    journal.recorder().remove(Kind::Session, 1);
    journal.flush().unwrap();
    // As a crash leaves it.
    let crashed = folder.copy();
    drop(journal);
    let expected = opened(&folder.copy()).unwrap();
    assert_eq!(expected.len(), values.len());
    for folder in [&folder, &crashed] {
        let report = checked(folder);
        assert!(report.is_sound(), "{report:?}");
        assert_eq!((report.entries, report.last_batch), (counts(&expected), 4));
        assert_eq!((report.segments.len(), report.segments[0].batches), (1, 1));
        let before = files(folder);
        assert!(matches!(repair(&folder.0), Ok(RepairReport::Sound(_))));
        assert!(files(folder) == before);
    }
    fs::write(only_segment(&folder), [&fs::read(only_segment(&folder)).unwrap()[..], b"torn"].concat())
        .unwrap();
    let report = checked(&folder);
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.cut, 4);
}

#[test]
fn every_damage_of_a_snapshot_is_named_and_mended() {
    let folder = Folder::new();
    let values = grown(&folder);
    // Rows in a page: an entry takes 160 octets at least, where it is not in pages of its own.
    let in_page = 4096 / 160;
    let mut mended = 0;
    for (other, block, damage) in damaged_snapshots(&folder) {
        let changed = fs::read(other.0.join("state.db")).unwrap();
        let is_refused = opened(&other.copy()).is_err();
        let report = checked(&other);
        let about = format!("page {} {damage:?}: {:?}", block / 4096 + 1, report.faults);
        if report.is_sound() {
            assert!(!is_refused, "{about}");
            assert_eq!(report.entries, counts(&values), "{about}");
            continue;
        }
        assert!(report.faults.iter().all(|fault| fault.file == other.0.join("state.db")), "{about}");
        let (kept, said) = repaired(&other);
        assert!(kept.iter().all(|(key, value)| values.get(key) == Some(value)), "old or other rows: {about}");
        let lost = values.len() - kept.len();
        let most = match damage {
            // The first pages have no rows.
            _ if block < 4096 * 2 || block == 4096 * 3 => 0,
            Damage::Bit => 1,
            Damage::Zeros | Damage::Other => in_page,
        };
        assert!(lost <= most, "{lost} are lost: {about}");
        let RepairReport::Repaired { lost: reported, lost_batches: None, damaged, .. } = said else {
            panic!("{said:?}")
        };
        if let Some(reported) = reported.values().copied().sum::<Option<u64>>() {
            assert_eq!(reported, lost as u64, "{about}");
        }
        assert!(fs::read(damaged.join("state.db")).unwrap() == changed, "it is kept");
        mended += 1;
    }
    assert!(mended > 50, "{mended}");
}

#[test]
fn a_batch_that_is_not_whole_ends_what_is_kept() {
    let folder = Folder::new();
    let batches: Vec<_> = (0..5u8).map(|value| vec![(2, u64::from(value), Some(value + 1))]).collect();
    let states = written(&batches, &folder, Durability::Disk);
    let octets = fs::read(only_segment(&folder)).unwrap();
    let mut at = 64;
    for (batch, state) in states.iter().enumerate().take(4) {
        let other = folder.copy();
        let path = only_segment(&other);
        let mut changed = octets.clone();
        changed[at + 32 + 10] ^= 1;
        at += 32 + 13 + 13 * (batch + 1);
        fs::write(&path, &changed).unwrap();
        let report = checked(&other);
        assert!(names(&report, &path, &format!("batch {} was acknowledged", batch + 1)), "{report:?}");
        assert!(opened(&other).is_err());
        assert!(matches!(export(&other.0, Vec::new()), Err(StoreError::Damaged { .. })));
        let (found, said) = repaired(&other);
        assert_eq!(&found, state);
        let RepairReport::Repaired { lost_batches, lost, damaged, .. } = said else { panic!("{said:?}") };
        assert_eq!((lost_batches, lost.len()), (Some(batch as u64 + 1..=5), 0));
        assert!(fs::read(damaged.join(path.file_name().unwrap())).unwrap() == changed);
        // Numbers go on, and a second repair has a place of its own.
        let (mut journal, ..) = begin(&other, Durability::Disk);
        put(&journal, Kind::Peer, 1, b"peer");
        assert_eq!(journal.flush().unwrap(), batch as u64 + 1);
        drop(journal);
        fs::write(other.0.join("mark"), "dusk\n").unwrap();
        let (_, said) = repaired(&other);
        let RepairReport::Repaired { damaged: second, .. } = said else { panic!("{said:?}") };
        assert_eq!((damaged, second), (other.0.join("damaged-1"), other.0.join("damaged-2")));
    }
}

#[test]
fn a_batch_that_is_whole_in_another_segment_is_kept() {
    let folder = Folder::new();
    let batches: Vec<_> = (0..4u8).map(|value| vec![(2, u64::from(value), Some(value + 1))]).collect();
    let states = written(&batches, &folder, Durability::Disk);
    let path = only_segment(&folder);
    let octets = fs::read(&path).unwrap();
    // A segment that was written again after a sync that failed, under a number of its own: its header is not whole, so
    // its batches tell their numbers.
    let again = folder.0.join(format!("journal-{:016x}", 9));
    fs::write(&again, [&[0; 64][..], &octets[64..]].concat()).unwrap();
    let mut changed = octets;
    changed[64 + 32 + 10] ^= 1;
    fs::write(&path, &changed).unwrap();
    let report = checked(&folder);
    assert!(names(&report, &again, "header"), "{report:?}");
    let (found, said) = repaired(&folder);
    assert_eq!(found, states[4]);
    assert!(matches!(said, RepairReport::Repaired { lost_batches: None, .. }), "{said:?}");
}

#[test]
fn what_is_missing_is_named_and_the_rest_is_kept() {
    let folder = Folder::new();
    written(&[vec![(2, 1, Some(1))], vec![(2, 2, Some(2))]], &folder, Durability::Disk);
    let store = begin(&folder.copy(), Durability::Disk).0.store();
    // All of the journal is there, and the snapshot that is missing was empty.
    let other = folder.copy();
    let expected = opened(&folder.copy()).unwrap();
    fs::remove_file(other.0.join("state.db")).unwrap();
    let report = checked(&other);
    assert!(names(&report, &other.0.join("state.db"), "missing"), "{report:?}");
    let (found, said) = repaired(&other);
    assert_eq!(found, expected);
    let RepairReport::Repaired { lost, .. } = said else { panic!("{said:?}") };
    assert!(lost.values().all(Option::is_none) && lost.len() == Kind::ALL.len(), "nobody knows: {lost:?}");
    assert_eq!(begin(&other, Durability::Disk).0.store(), store, "the same store");
    // The first of two segments.
    let (journal, ..) = begin(&folder, Durability::Disk);
    wait_until_folded(&journal);
    drop(journal);
    written(&[vec![(2, 3, Some(1))]], &folder, Durability::Disk);
    let [first, second] = &segments_of_two_starts(&folder)[..] else { panic!("two segments") };
    fs::remove_file(first).unwrap();
    let report = checked(&folder);
    assert!(names(&report, second, "batch 3 was acknowledged, and in a segment before it"), "{report:?}");
    let (found, said) = repaired(&folder);
    assert_eq!(found, expected);
    assert!(matches!(said, RepairReport::Repaired { lost_batches: Some(lost), .. } if lost == (3..=4)));
    assert_ne!(begin(&folder, Durability::Disk).0.store(), store, "counters may be others' by now");
}

#[test]
fn a_segment_of_another_store_is_named_and_put_away() {
    let [folder, other] = [Folder::new(), Folder::new()];
    let states = written(&[vec![(2, 1, Some(1))]], &folder, Durability::Disk);
    written(&[vec![(2, 9, Some(9))]], &other, Durability::Disk);
    let strange = folder.0.join("journal-0000000000000007");
    fs::copy(only_segment(&other), &strange).unwrap();
    let report = checked(&folder);
    assert!(names(&report, &strange, "another store"), "{report:?}");
    assert_eq!(repaired(&folder).0, states[1]);
}

#[test]
fn a_repair_that_was_interrupted_is_finished() {
    let folder = Folder::new();
    let values = grown(&folder);
    let mut octets = fs::read(folder.0.join("state.db")).unwrap();
    octets[4096 * 3..4096 * 4].fill(0);
    fs::write(folder.0.join("state.db"), &octets).unwrap();
    let done = folder.copy();
    repaired(&done);
    for moved in [0, 1, 2, 3] {
        let other = folder.copy();
        fs::create_dir(other.0.join("damaged-1")).unwrap();
        fs::create_dir(other.0.join("new")).unwrap();
        fs::copy(done.0.join("state.db"), other.0.join("new/state.db")).unwrap();
        if moved > 0 {
            fs::rename(other.0.join("state.db"), other.0.join("damaged-1/state.db")).unwrap();
        }
        if moved > 1 {
            fs::rename(other.0.join("new/state.db"), other.0.join("state.db")).unwrap();
        }
        if moved > 2 {
            fs::remove_dir(other.0.join("new")).unwrap();
        }
        fs::write(other.0.join("mark"), "repair 1\n").unwrap();
        let refused = opened(&other).unwrap_err().to_string();
        assert!(refused.contains("a repair was interrupted"), "{refused}");
        assert!(names(&check(&other.0).unwrap(), &other.0.join("mark"), "interrupted"));
        let finished = repair(&other.0).unwrap();
        assert!(
            matches!(&finished, RepairReport::Finished { kept, .. } if *kept == counts(&values)),
            "{finished:?}"
        );
        assert!(opened(&other).unwrap() == values);
        assert!(fs::read(other.0.join("damaged-1/state.db")).unwrap() == octets);
        assert!(checked(&other).is_sound() && !other.0.join("new").exists());
    }
}

#[test]
fn a_store_in_use_is_refused_by_name() {
    let folder = Folder::new();
    let (_journal, ..) = begin(&folder, Durability::Disk);
    let refused = [
        check(&folder.0).map(drop),
        repair(&folder.0).map(drop),
        export(&folder.0, Vec::new()).map(drop),
        import(&folder.0, &b""[..]).map(drop),
    ];
    for refused in refused {
        assert!(matches!(refused, Err(StoreError::InUse(ref at)) if *at == folder.0), "{refused:?}");
    }
}

#[test]
fn a_store_of_another_boot_is_said_to_be_one() {
    let folder = Folder::new();
    written(&[vec![(2, 1, Some(1))]], &folder, Durability::Process);
    let report = checked(&folder);
    assert!(names(&report, &folder.0.join("mark"), "before the machine started anew"), "{report:?}");
    assert!(matches!(repair(&folder.0), Err(StoreError::OtherBoot(_))));
    assert!(matches!(export(&folder.0, Vec::new()), Err(StoreError::OtherBoot(_))));
}

#[test]
fn an_export_that_is_none_is_refused_by_its_line() {
    let folder = Folder::new();
    let values = grown(&folder);
    let mut text = Vec::new();
    export(&folder.0, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), values.len() + 2);
    assert_eq!(lines[0], r#"{"format":1,"last_batch":3}"#);
    assert!(lines[1].starts_with(r#"{"kind":"session","key":1,"value":""#), "{}", lines[1]);
    assert_eq!(lines[values.len() + 1], format!(r#"{{"entries":{}}}"#, values.len()));
    assert!(matches!(import(&folder.0, text.as_bytes()), Err(StoreError::NotEmpty(_))));
    let joined = |lines: &[&str]| lines.join("\n");
    let end = lines.len() - 1;
    let cases = [
        (String::new(), 1, "cut"),
        (joined(&lines[..3]), 4, "cut"),
        (joined(&lines[..end]), end + 1, "cut"),
        (joined(&[lines[0], &lines[1][..40]]), 2, "not an entry"),
        (joined(&[lines[0], lines[2], lines[1]]), 3, "out of order"),
        (joined(&[lines[0], lines[1], lines[1]]), 3, "there twice"),
        (joined(&[lines[0], lines[1], lines[end]]), 3, "there are 1"),
        (joined(&[lines[0], lines[1], r#"{"entries":1}"#, "", "x"]), 4, "behind the last"),
        (joined(&[lines[1], lines[0]]), 1, "the first line"),
        (lines[0].replace("1,", "2,"), 1, "format 2"),
        (joined(&[lines[0], &lines[1].replace("session", "sessions")]), 2, "no kind `sessions`"),
        (joined(&[lines[0], r#"{"kind":"peer","key":1,"value":"?"}"#]), 2, "no base64"),
    ];
    for (text, line, words) in cases {
        let empty = Folder::new();
        match import(&empty.0, text.as_bytes()) {
            Err(StoreError::Import { line: at, what }) => {
                assert!(at == line && what.contains(words), "line {at}: {what}");
            }
            other => panic!("{words}: {other:?}"),
        }
        assert!(files(&empty).is_empty() && !empty.0.join("new").exists());
        assert_eq!(
            import(&empty.0, format!("{}\n{}", lines[0], r#"{"entries":0}"#).as_bytes()).unwrap().entries,
            0
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn what_is_exported_is_imported(
        batches in prop::collection::vec(
            prop::collection::vec((any::<u8>(), any::<u64>(), prop::option::of(any::<u8>())), 1..8), 0..6),
        folds in any::<bool>(),
    ) {
        let folder = Folder::new();
        let states = written(&batches, &folder, Durability::Disk);
        if folds {
            wait_until_folded(&begin(&folder, Durability::Disk).0);
            written(&batches[..batches.len() / 2], &folder, Durability::Disk);
        }
        let mut text = Vec::new();
        let exported = export(&folder.0, &mut text).unwrap();
        let values = opened(&folder).unwrap();
        prop_assert!(folds || values == states[batches.len()]);
        let other = Folder::new();
        prop_assert_eq!(import(&other.0, &text[..]).unwrap(), exported);
        let report = checked(&other);
        prop_assert!(report.is_sound());
        prop_assert_eq!(report.last_batch, exported.last_batch);
        prop_assert!(opened(&other).unwrap() == values);
        let mut again = Vec::new();
        export(&other.0, &mut again).unwrap();
        prop_assert!(again == text);
    }

    /// However much of a snapshot is damaged, what the check finds is what a repair keeps, and opens.
    #[test]
    fn any_damage_of_a_snapshot_is_mended(
        damages in prop::collection::vec((any::<prop::sample::Index>(), 1usize..9000, any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let folder = Folder::new();
        let values = grown(&folder);
        let path = folder.0.join("state.db");
        let mut octets = fs::read(&path).unwrap();
        for (at, len, octet) in damages {
            let at = at.index(octets.len());
            let end = (at + len).min(octets.len());
            octets[at..end].iter_mut().zip((0u8..=255).cycle()).for_each(|(to, index)| *to = octet.wrapping_mul(index));
        }
        let len = cut.map_or(octets.len(), |cut| cut.index(octets.len()));
        fs::write(&path, &octets[..len]).unwrap();
        if checked(&folder).is_sound() {
            prop_assert!(opened(&folder).unwrap() == values);
        } else {
            repaired(&folder);
        }
    }

    /// Where a start refuses a journal the check does, and the repair keeps all batches before the damage.
    #[test]
    fn a_changed_journal_is_checked_as_a_start_does(
        batches in prop::collection::vec(
            prop::collection::vec((any::<u8>(), 0u64..6, prop::option::of(any::<u8>())), 1..8), 1..7),
        block in prop_oneof![Just(1usize), Just(64), Just(512)],
    ) {
        let folder = Folder::new();
        let states = written(&batches, &folder, Durability::Disk);
        let octets = fs::read(only_segment(&folder)).unwrap();
        let mut before = 0;
        for at in (64..octets.len()).step_by((octets.len() / 12).max(1)) {
            let other = folder.copy();
            let mut changed = octets.clone();
            let end = (at + block).min(octets.len());
            changed[at..end].iter_mut().for_each(|octet| *octet ^= 0x55);
            fs::write(only_segment(&other), &changed).unwrap();
            let found = opened(&other.copy());
            let report = checked(&other);
            prop_assert_eq!(report.is_sound(), found.is_ok());
            let last = usize::try_from(report.last_batch).unwrap();
            let mut state = states[last].clone();
            let kept = match found {
                Ok(found) => found,
                Err(_) => {
                    // A journal is damaged where batches are lost.
                    state.retain(|(kind, _), _| *kind != Kind::Node);
                    repaired(&other).0
                }
            };
            prop_assert!(last >= before && state == kept);
            before = last;
        }
    }
}
