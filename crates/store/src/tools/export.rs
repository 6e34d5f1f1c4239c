//! A store as lines of JSON, and back: for another format, another machine, or eyes.
//!
//! ```text
//!  {"format":1,"last_batch":42}
//!  {"kind":"session","key":7,"value":"AAEC"}
//!  {"entries":1}
//! ```
//! Values are base64. Kinds and keys rise, so that none is there twice; the last line shows that none is missing.

use std::fs;
use std::io::{BufRead, Write};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::builder::{Builder, put_in_place, remove};
use super::check::{lock_store, verify_mark};
use crate::change::Kind;
use crate::error::StoreError;
use crate::mark::Mark;
use crate::place::{FORMAT, SNAPSHOT, lock};
use crate::recovery::new_number;
use crate::segment::{Segment, list};
use crate::snapshot::Snapshot;
use crate::tail::{Tail, read_over};

/// What was exported or imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// How many entries.
    pub entries: u64,
    /// The last batch that is in them.
    pub last_batch: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct First {
    format: u32,
    last_batch: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry<'e> {
    kind: &'e str,
    key: u64,
    value: String,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Last {
    entries: u64,
}

/// Writes all entries of a store, which it does not change.
///
/// # Errors
/// When there is none, another process uses it, it is damaged or of another boot, or `out` cannot be written.
pub fn export(folder: &Path, mut out: impl Write) -> Result<Exported, StoreError> {
    let _lock = lock_store(folder)?;
    verify_mark(folder)?;
    let path = folder.join(SNAPSHOT);
    if !path.exists() {
        return Err(StoreError::Damaged { path, what: "the snapshot is missing".to_owned() });
    }
    let snapshot = Snapshot::open_read_only(&path)?;
    let identity = snapshot.identity()?;
    let segments = list(folder)?.into_iter();
    let segments: Result<Vec<_>, _> =
        segments.map(|(number, path)| Segment::read(&path, number, Some(identity.store))).collect();
    let tail = Tail::read(&segments?, identity.store, identity.folded)?;
    let mut exported = Exported { entries: 0, last_batch: tail.last };
    let mut write = |line: Result<String, serde_json::Error>| {
        let line = line.map_err(std::io::Error::other);
        line.and_then(|line| writeln!(out, "{line}")).map_err(StoreError::Output)
    };
    write(serde_json::to_string(&First { format: FORMAT, last_batch: tail.last }))?;
    for kind in Kind::ALL {
        read_over(&snapshot, &tail.changes, kind, |key, value| {
            exported.entries += 1;
            write(serde_json::to_string(&Entry { kind: kind.name(), key, value: STANDARD.encode(value) }))
        })?;
    }
    write(serde_json::to_string(&Last { entries: exported.entries }))?;
    out.flush().map_err(StoreError::Output)?;
    Ok(exported)
}

/// Makes a store of what was exported, in a folder that is empty or not there yet. It is on the disk then.
///
/// # Errors
/// When there is something, or lines are no export; then nothing is left in the folder.
pub fn import(folder: &Path, input: impl BufRead) -> Result<Exported, StoreError> {
    fs::create_dir_all(folder).map_err(StoreError::file(folder, "make the folder of the store"))?;
    let _lock = lock(folder)?;
    let is_taken = [SNAPSHOT, Mark::FILE].iter().any(|name| folder.join(name).exists());
    if is_taken || !list(folder)?.is_empty() {
        return Err(StoreError::NotEmpty(folder.to_owned()));
    }
    let imported = fill(folder, input);
    if imported.is_err() {
        // The first error is the one to be told.
        let _ = remove(folder);
    }
    let imported = imported?;
    put_in_place(folder)?;
    Mark::Disk.write(folder)?;
    Ok(imported)
}

/// Makes a snapshot of lines.
fn fill(folder: &Path, mut input: impl BufRead) -> Result<Exported, StoreError> {
    let mut lines = Lines { text: String::new(), number: 0 };
    lines.read(&mut input)?;
    let First { format, last_batch } = lines.parse("the first line, with `format`")?;
    if format != FORMAT {
        return Err(lines.wrong(format!("format {format}, and this program knows {FORMAT}")));
    }
    let mut builder = Builder::new(folder, new_number(folder)?, last_batch)?;
    let (mut entries, mut before) = (0, None);
    loop {
        lines.read(&mut input)?;
        if let Ok(Last { entries: counted }) = serde_json::from_str(&lines.text) {
            if counted != entries {
                return Err(lines.wrong(format!("it counts {counted} entries, and there are {entries}")));
            }
            break;
        }
        let Entry { kind, key, value } = lines.parse("an entry, or the last line, with `entries`")?;
        let known = Kind::ALL.into_iter().find(|known| known.name() == kind);
        let kind = known.ok_or_else(|| lines.wrong(format!("there is no kind `{kind}`")))?;
        let value = STANDARD
            .decode(value)
            .map_err(|error| lines.wrong(format!("its value is no base64: {error}")))?;
        if before.replace((kind, key)).is_some_and(|before| before >= (kind, key)) {
            return Err(lines.wrong("it is out of order, or there twice".to_owned()));
        }
        builder.put(kind, key, Some(&value))?;
        entries += 1;
    }
    let mut more = String::new();
    if input.read_line(&mut more).map_err(|error| lines.wrong(error.to_string()))? > 0 {
        return Err(StoreError::Import { line: lines.number + 1, what: "it is behind the last".to_owned() });
    }
    builder.finish()?;
    Ok(Exported { entries, last_batch })
}

/// The line that is read.
struct Lines {
    text: String,
    number: usize,
}

impl Lines {
    fn read(&mut self, input: &mut impl BufRead) -> Result<(), StoreError> {
        self.text.clear();
        self.number += 1;
        match input.read_line(&mut self.text) {
            Ok(0) => Err(self
                .wrong("the export is cut: its last line, which counts the entries, is missing".to_owned())),
            Ok(_) => Ok(()),
            Err(error) => Err(self.wrong(error.to_string())),
        }
    }

    fn parse<'l, T: Deserialize<'l>>(&'l self, what: &str) -> Result<T, StoreError> {
        serde_json::from_str(&self.text).map_err(|error| {
            // Where in the text it says as if this were the first line.
            let why = error.to_string();
            let why = why.split_once(" at line").map_or(&why[..], |(why, _)| why);
            self.wrong(format!("it is not {what}: {why}"))
        })
    }

    fn wrong(&self, what: String) -> StoreError {
        StoreError::Import { line: self.number, what }
    }
}
