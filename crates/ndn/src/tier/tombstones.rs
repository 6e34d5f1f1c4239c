//! Erase tombstones: what was erased on disk. Names are not in memory, and a log is not searched for them. A mark says that
//! records before a place in the log are gone if their names have a prefix. It is minded when a record is read.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use kaido_ndn_tables::NameHash;

use super::format::checksum;

/// Marks at most; beyond, one mark erases all.
const MARKS_MAX: usize = 256;
const MAGIC: &[u8; 8] = b"KERASED1";

/// A place in the log: the segment's sequence number, and where in the segment.
pub(super) type Position = (u64, u64);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Tombstone {
    before: Position,
    prefix: Vec<u8>,
}

/// What was erased.
#[derive(Debug, Default)]
pub(super) struct Tombstones(Vec<Tombstone>);

impl Tombstones {
    /// Whether the record at a place was erased.
    pub(super) fn has_erased(&self, at: Position, name: &[u8]) -> bool {
        self.0.iter().any(|mark| at < mark.before && name.starts_with(&mark.prefix))
    }

    /// Erases what is there of a prefix before a place, which is later than those of all tombstones.
    pub(super) fn add(&mut self, before: Position, prefix: &[u8]) {
        self.0.retain(|mark| !mark.prefix.starts_with(prefix));
        if self.0.len() >= MARKS_MAX {
            self.0.clear();
            return self.0.push(Tombstone { before, prefix: Vec::new() });
        }
        self.0.push(Tombstone { before, prefix: prefix.to_vec() });
    }

    /// Forgets tombstones that say nothing any more, as the log begins with segment `oldest`; whether there were any.
    pub(super) fn forget(&mut self, oldest: u64) -> bool {
        let before = self.0.len();
        self.0.retain(|mark| mark.before > (oldest, 0));
        self.0.len() != before
    }

    fn encode(&self, hash: &NameHash) -> Vec<u8> {
        let mut octets = MAGIC.to_vec();
        for Tombstone { before: (sequence, at), prefix } in &self.0 {
            for word in [*sequence, *at, prefix.len() as u64] {
                octets.extend(word.to_le_bytes());
            }
            octets.extend(prefix);
        }
        octets.extend(checksum(hash, &octets).to_le_bytes());
        octets
    }

    fn decode(hash: &NameHash, octets: &[u8]) -> Option<Self> {
        let (body, sum) = octets.split_last_chunk::<8>()?;
        if u64::from_le_bytes(*sum) != checksum(hash, body) {
            return None;
        }
        let mut rest = body.strip_prefix(MAGIC)?;
        let mut tombstones = Vec::new();
        while !rest.is_empty() {
            let mut word = || {
                let (word, after) = rest.split_first_chunk()?;
                rest = after;
                Some(u64::from_le_bytes(*word))
            };
            let (sequence, at, len) = (word()?, word()?, usize::try_from(word()?).ok()?);
            let (prefix, after) = rest.split_at_checked(len)?;
            rest = after;
            tombstones.push(Tombstone { before: (sequence, at), prefix: prefix.to_vec() });
        }
        Some(Self(tombstones))
    }

    /// Reads the tombstones; `None` when the file is damaged. Without a file there are none.
    pub(super) fn read(path: &Path, hash: &NameHash) -> io::Result<Option<Self>> {
        match fs::read(path) {
            Ok(octets) => Ok(Self::decode(hash, &octets)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Self::default())),
            Err(error) => Err(error),
        }
    }

    /// Writes the tombstones, all or nothing.
    pub(super) fn write(&self, path: &Path, hash: &NameHash) -> io::Result<()> {
        let new = path.with_extension("new");
        let mut file = fs::File::create(&new)?;
        file.write_all(&self.encode(hash))?;
        file.sync_all()?;
        fs::rename(new, path)
    }
}

#[cfg(test)]
mod tests {
    use kaido_ndn_tables::text::name;

    use super::*;

    #[test]
    fn marks_erase_what_was_before_them() {
        let mut tombstones = Tombstones::default();
        tombstones.add((3, 640), &name("a/b"));
        assert!(
            tombstones.has_erased((3, 576), &name("a/b/c")) && tombstones.has_erased((2, 6400), &name("a/b"))
        );
        assert!(
            !tombstones.has_erased((3, 640), &name("a/b/c")) && !tombstones.has_erased((1, 64), &name("a/c"))
        );
        tombstones.add((4, 64), &name("a"));
        assert_eq!(tombstones.0.len(), 1, "the longer prefix is erased by the shorter one");
        assert!(!tombstones.forget(4) && tombstones.forget(5) && tombstones.0.is_empty());
    }

    #[test]
    fn they_are_bounded_and_survive() {
        let hash = NameHash::fixed(1);
        let mut tombstones = Tombstones::default();
        for number in 0..MARKS_MAX as u64 {
            tombstones.add((number + 1, 64), &name(&format!("a/{number}")));
        }
        assert_eq!(Tombstones::decode(&hash, &tombstones.encode(&hash)).unwrap().0, tombstones.0);
        tombstones.add((1000, 64), &name("b"));
        assert!(tombstones.0.len() == 1 && tombstones.has_erased((999, 64), &name("q")));
        let octets = tombstones.encode(&hash);
        for at in 0..octets.len() {
            let mut wrong = octets.clone();
            wrong[at] ^= 0x10;
            assert!(
                Tombstones::decode(&hash, &wrong).is_none()
                    && Tombstones::decode(&hash, &octets[..at]).is_none()
            );
        }
    }
}
