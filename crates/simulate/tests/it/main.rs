//! Seeds of the simulation, and faults on purpose that it must notice.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::PathBuf;

use kaido_simulate::{Failure, Options, Sabotage, Summary, run};
use kaido_store::Durability;

/// Steps of each seed.
const STEPS: u64 = 3600;
/// Seeds of each durability: a million steps of both, with those in which all comes to rest.
const SEEDS: u64 = 100;

fn sound(options: &Options) -> Summary {
    run(options).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Tries seeds with what is done wrong until one fails.
fn noticed(sabotage: Sabotage, durability: Durability) -> Box<Failure> {
    let failure = (1..30).find_map(|seed| {
        run(&Options { sabotage: Some(sabotage), durability, ..Options::of_seed(seed, STEPS) }).err()
    });
    failure.unwrap_or_else(|| panic!("{sabotage:?} is not noticed"))
}

#[test]
fn what_was_acknowledged_survives_the_process() {
    for seed in 1..=SEEDS {
        sound(&Options { durability: Durability::Process, ..Options::of_seed(seed, STEPS) });
    }
}

#[test]
fn what_was_acknowledged_survives_the_machine() {
    for seed in 1..=SEEDS {
        sound(&Options { durability: Durability::Disk, ..Options::of_seed(seed, STEPS) });
    }
}

#[test]
fn a_seed_is_a_run() {
    let mut digests = BTreeSet::new();
    for seed in [1, 2, 3] {
        let [first, again] = [(); 2].map(|()| sound(&Options::of_seed(seed, STEPS)));
        assert_eq!((first.digest, first.events), (again.digest, again.events), "seed {seed}");
        digests.insert(first.digest);
    }
    assert_eq!(digests.len(), 3);
}

/// The checks say nothing of what does not happen.
#[test]
fn seeds_see_what_there_is() {
    let options = Options {
        control_planes: 3,
        sessions_max: 30,
        durability: Durability::Disk,
        ..Options::of_seed(7, 6000)
    };
    let seen = sound(&options);
    for (what, count, least) in [
        ("sessions", seen.established, 1000),
        ("sessions that ended", seen.deleted, 900),
        ("changes", seen.changed, 1000),
        ("quotas that were used up", seen.granted, 30),
        ("reports", seen.reports, 100),
        ("pages", seen.pages, 50),
        ("packets that waited", seen.released, 50),
        ("answers after a restart", seen.repeated, 1),
        ("requests without an answer", seen.unanswered, 20),
        ("packets", seen.packets, 3000),
        ("packets of sessions that are not back yet", seen.packets_at_start[0], 100),
        ("packets of sessions that are back while others are not", seen.packets_at_start[1], 100),
        ("ends of the process", seen.process_ends, 10),
        ("ends of the machine", seen.machine_ends, 5),
        ("failures of the store", seen.store_failures, 3),
        ("control planes that started anew", seen.restarts, 1),
        ("control planes that were cut off", seen.cuts, 2),
    ] {
        assert!(count >= least, "{what}: {count} of {least}: {seen:?}");
    }
}

#[test]
fn the_journal_keeps_what_its_model_does() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("journal");
    for (seed, durability) in (1..9).zip([Durability::Process, Durability::Disk].into_iter().cycle()) {
        let _ = std::fs::remove_dir_all(&folder);
        let seen =
            sound(&Options { folder: Some(folder.clone()), durability, ..Options::of_seed(seed, 1200) });
        assert_eq!(seen.machine_ends > 0, durability == Durability::Disk, "seed {seed}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn answers_before_the_journal_are_noticed() {
    noticed(Sabotage::AnswersFirst, Durability::Process);
    noticed(Sabotage::AnswersFirst, Durability::Disk);
}

#[test]
fn what_is_not_recorded_is_noticed() {
    noticed(Sabotage::NoAnswers, Durability::Process);
    noticed(Sabotage::NoEnds, Durability::Process);
    noticed(Sabotage::NoChanges, Durability::Process);
    let failure = noticed(Sabotage::NoBindings, Durability::Process);
    assert!(failure.what.contains("is refused: cause 65"), "{failure}");
    let failure = noticed(Sabotage::NoRequests, Durability::Process);
    assert!(failure.what.contains("octets passed"), "{failure}");
}

#[test]
fn lost_counters_are_noticed() {
    for (sabotage, durability) in
        [(Sabotage::NoMemory, Durability::Process), (Sabotage::NoCheckpoints, Durability::Disk)]
    {
        let failure = noticed(sabotage, durability);
        let is_of_usage = ["octets passed", "beyond the quota"].map(|what| failure.what.contains(what));
        assert!(is_of_usage.contains(&true), "{failure}");
    }
}

#[test]
fn a_store_that_is_read_and_not_on_the_disk_is_noticed() {
    noticed(Sabotage::NoSyncAtStart, Durability::Disk);
}

#[test]
fn a_page_that_is_not_sent_is_noticed() {
    let failure = noticed(Sabotage::NoPages, Durability::Process);
    assert!(failure.what.contains("is not told"), "{failure}");
}

#[test]
fn another_recovery_time_stamp_is_noticed() {
    let failure = noticed(Sabotage::OtherRecovery, Durability::Process);
    assert!(failure.what.contains("Recovery Time Stamp"), "{failure}");
}
