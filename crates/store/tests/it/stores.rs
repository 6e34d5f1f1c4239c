//! Stores in folders of their own, and what is done to them.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use kaido_store::{Durability, Journal, Kind, Recovery, StoreConfig, StoreError, open};

/// A folder that is removed with it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("kaido-store-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn config(&self, durability: Durability) -> StoreConfig {
        StoreConfig { folder: self.0.clone(), durability, boot: 1 }
    }

    /// A folder with the same files, as a crash of the machine would leave them.
    pub(crate) fn copy(&self) -> Self {
        let other = Self::new();
        for entry in fs::read_dir(&self.0).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), other.0.join(entry.file_name())).unwrap();
        }
        other
    }

    pub(crate) fn segments(&self) -> Vec<PathBuf> {
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

pub(crate) type Values = BTreeMap<(Kind, u64), Vec<u8>>;

/// Takes values down.
fn into(taken: &mut Vec<(u64, Vec<u8>)>) -> impl FnMut(u64, &[u8]) -> Result<(), StoreError> {
    |key, value| {
        taken.push((key, value.to_vec()));
        Ok(())
    }
}

/// All values, which two threads read as one does.
pub(crate) fn values(recovery: &Recovery) -> Result<Values, StoreError> {
    let mut values = Values::new();
    for kind in Kind::ALL {
        let (mut read, mut halves) = (Vec::new(), [Vec::new(), Vec::new()]);
        let whole = recovery.read(kind, into(&mut read));
        let in_two = recovery.read_in_two(kind, halves.each_mut().map(into));
        assert_eq!(whole.is_ok(), in_two.is_ok(), "{whole:?} {in_two:?}");
        // Each third one and one that is not there, from behind.
        let first: Vec<_> = read.iter().map(|&(key, _)| key).rev().step_by(3).chain([u64::MAX - 9]).collect();
        let mut in_order = Vec::new();
        let with_first = recovery.read_with_first(kind, &first, into(&mut in_order));
        assert_eq!(whole.is_ok(), with_first.is_ok(), "{whole:?} {with_first:?}");
        whole?;
        assert_eq!(read, halves.concat());
        let expected =
            read.iter().rev().step_by(3).chain(read.iter().filter(|(key, _)| !first.contains(key)));
        assert!(in_order.iter().eq(expected), "{in_order:?}");
        let count = values.len() + read.len();
        values.extend(read.into_iter().map(|(key, value)| ((kind, key), value)));
        assert_eq!(values.len(), count, "each once");
    }
    Ok(values)
}

pub(crate) fn put(journal: &Journal, kind: Kind, key: u64, value: &[u8]) {
    journal.recorder().put(kind, key, |octets| octets.extend_from_slice(value));
}

/// Opens a store, starts it, and says what was in it.
pub(crate) fn begin(folder: &Folder, durability: Durability) -> (Journal, Values, Receiver<()>) {
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

pub(crate) fn expected(entries: &[(Kind, u64, &[u8])]) -> Values {
    entries.iter().map(|&(kind, key, value)| ((kind, key), value.to_vec())).collect()
}

/// What a store may take for anything. A disk that others use syncs slowly, and a dozen stores of a test share it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

pub(crate) fn wait_until_folded(journal: &Journal) {
    let began = Instant::now();
    while journal.status().segments > 0 {
        assert!(began.elapsed() < PATIENCE, "nothing is folded");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Damage {
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

/// Copies of a store, each with another damage of its snapshot: the place of the block, and what became of it.
pub(crate) fn damaged_snapshots(folder: &Folder) -> impl Iterator<Item = (Folder, usize, Damage)> {
    let octets = fs::read(folder.0.join("state.db")).unwrap();
    let blocks = (0..octets.len()).step_by(4096);
    let kinds =
        blocks.flat_map(|block| [Damage::Zeros, Damage::Bit, Damage::Other].map(|damage| (block, damage)));
    kinds.filter_map(move |(block, damage)| {
        let mut changed = octets.clone();
        damage.apply(&mut changed, block);
        if changed == octets {
            return None;
        }
        let other = folder.copy();
        fs::write(other.0.join("state.db"), &changed).unwrap();
        Some((other, block, damage))
    })
}

/// Batches of a journal whose end may be anything, and what was there after each.
pub(crate) fn written(
    batches: &[Vec<(u8, u64, Option<u8>)>],
    folder: &Folder,
    durability: Durability,
) -> Vec<Values> {
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
pub(crate) fn opened(folder: &Folder) -> Result<Values, StoreError> {
    let (_, recovery) = open(folder.config(Durability::Disk))?;
    values(&recovery)
}

pub(crate) fn only_segment(folder: &Folder) -> PathBuf {
    let segments = folder.segments();
    assert_eq!(segments.len(), 1);
    segments[0].clone()
}

/// Has a start end before it folds what it found, so that the next finds two segments.
pub(crate) fn segments_of_two_starts(folder: &Folder) -> Vec<PathBuf> {
    let before = folder.copy();
    written(&[vec![(2, 6, Some(1))]], &before, Durability::Disk);
    let second = before.segments().pop().unwrap();
    fs::copy(&second, folder.0.join(second.file_name().unwrap())).unwrap();
    folder.segments()
}
