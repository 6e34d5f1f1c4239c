//! Files that are deleted, or moved away, under a store in use.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use kaido_store::{Durability, Journal, Kind, StoreError, open};

use super::stores::{Folder, PATIENCE, Values, begin, put, wait_until_folded};

/// Turns as a control loop does, until something holds.
fn turn_until(journal: &mut Journal, what: &str, holds: impl Fn(&Journal) -> bool) {
    let began = Instant::now();
    while !holds(journal) {
        assert!(began.elapsed() < PATIENCE, "{what}");
        let _ = journal.flush();
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A store whose snapshot and journal have something, and what.
fn in_use(folder: &Folder, durability: Durability) -> (Journal, Values, Receiver<()>) {
    let mut all = Values::new();
    for start in 0..2u64 {
        let (mut journal, _, heard) = begin(folder, durability);
        wait_until_folded(&journal);
        for key in 100 * start..100 * start + 50 {
            put(&journal, Kind::Session, key, &key.to_le_bytes());
            all.insert((Kind::Session, key), key.to_le_bytes().to_vec());
        }
        let last = journal.flush().unwrap();
        turn_until(&mut journal, "it is durable", |journal| journal.is_durable(last));
        if start == 1 {
            return (journal, all, heard);
        }
    }
    unreachable!()
}

fn go(path: &Path, is_moved: bool) {
    let away = path.with_extension("away");
    match (is_moved, path.is_dir()) {
        (true, _) => fs::rename(path, &away).unwrap(),
        (false, true) => fs::remove_dir_all(path).unwrap(),
        (false, false) => fs::remove_file(path).unwrap(),
    }
}

/// Whether a store's lock is there and held. It is there before it is held: who opens the store between takes it.
fn is_locked(folder: &Folder) -> bool {
    let Ok(lock) = fs::metadata(folder.0.join("lock")) else {
        return false;
    };
    let of_lock = format!(":{} ", lock.ino());
    fs::read_to_string("/proc/locks")
        .unwrap()
        .lines()
        .any(|held| held.contains(" FLOCK ") && held.contains(&of_lock))
}

#[test]
fn what_is_deleted_is_written_anew() {
    let names = ["", "state.db", "state.db-wal", "mark", "lock", "journal"];
    std::thread::scope(|scope| {
        for durability in [Durability::Process, Durability::Disk] {
            for (name, is_moved) in names.into_iter().flat_map(|name| [(name, false), (name, true)]) {
                scope.spawn(move || deleted(durability, name, is_moved));
            }
        }
    });
}

fn deleted(durability: Durability, name: &str, is_moved: bool) {
    let why = format!("{durability:?} {name} {is_moved}");
    let folder = Folder::new();
    let (mut journal, mut all, _heard) = in_use(&folder, durability);
    let whole = folder.0.clone();
    let path: PathBuf = match name {
        "" => whole,
        "journal" => folder.segments().pop().unwrap(),
        name => whole.join(name),
    };
    go(&path, is_moved);
    let is_journal = name.is_empty() || name == "journal";
    // It goes to a file that has no name any more, unless that was seen already.
    put(&journal, Kind::Session, 7777, b"in it");
    all.insert((Kind::Session, 7777), b"in it".to_vec());
    let anew =
        || ["state.db", "mark"].into_iter().all(|name| folder.0.join(name).exists()) && is_locked(&folder);
    turn_until(&mut journal, &why, |journal| {
        anew() && journal.status().segments == 0 && (!is_journal || journal.status().failures > 0)
    });
    // What comes later is as durable.
    put(&journal, Kind::Session, 8888, b"later");
    all.insert((Kind::Session, 8888), b"later".to_vec());
    let last = journal.flush().unwrap();
    turn_until(&mut journal, &why, |journal| journal.is_durable(last) && !journal.status().is_failing);
    assert!(matches!(open(folder.config(durability)), Err(StoreError::InUse(_))), "{why}");
    drop(journal);
    for _ in 0..2 {
        let (journal, found, _heard) = begin(&folder, durability);
        assert!(found == all, "{why}: {} of {}", found.len(), all.len());
        wait_until_folded(&journal);
    }
    let _ = fs::remove_dir_all(folder.0.with_extension("away"));
}

/// Segments that are done keep neither files nor room.
#[test]
fn what_is_folded_is_closed() {
    let folder = Folder::new();
    let (mut journal, _, _heard) = begin(&folder, Durability::Process);
    let large = vec![7; 33 << 20];
    for key in 0..6u64 {
        put(&journal, Kind::Session, key % 2, &large);
        journal.flush().unwrap();
    }
    wait_until_folded(&journal);
    let open =
        fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let of_store =
        open.filter(|path| path.starts_with(&folder.0) && path.to_string_lossy().contains("journal-"));
    assert_eq!(of_store.count(), 1, "the last is written to");
}

/// Who finds another's store where its own was leaves it alone, and acknowledges nothing.
#[test]
fn a_folder_that_another_has_taken_is_left_alone() {
    let folder = Folder::new();
    let (mut journal, _, _heard) = in_use(&folder, Durability::Process);
    let (mut other, _, _of_other) = loop {
        fs::remove_dir_all(&folder.0).unwrap();
        // Unless the first has made its own again by now.
        if let Ok((journal, recovery)) = open(folder.config(Durability::Process)) {
            drop((journal, recovery));
            break begin(&folder, Durability::Process);
        }
    };
    put(&other, Kind::Session, 1, b"of the other");
    other.flush().unwrap();
    turn_until(&mut journal, "it is seen", |journal| {
        put(journal, Kind::Session, 2, b"of the first");
        journal.status().is_failing
    });
    assert!(matches!(journal.flush(), Err(StoreError::Taken(_))));
    drop(journal);
    put(&other, Kind::Session, 3, b"of the other too");
    other.flush().unwrap();
    drop(other);
    let (_journal, found, _heard) = begin(&folder, Durability::Process);
    assert_eq!(found.keys().map(|&(_, key)| key).collect::<Vec<_>>(), [1, 3]);
}
