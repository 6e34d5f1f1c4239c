//! The pages of a database as its file and its log have them, read without SQLite: it gives up where one is damaged.
//!
//! <https://sqlite.org/fileformat2.html> has both formats. A frame of the log counts when its salt and the checksum of all
//! frames up to it are right, and a commit is at or behind it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::snapshot::{PAGE, log_of};

/// Octets in front of the log's frames, and of a frame's page.
const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
/// What a log begins with whose checksums are of little-endian words; big-endian ones have its last bit set.
const LOG_MAGIC: u32 = 0x377f_0682;

/// A page.
pub(super) type Page = [u8; PAGE];

/// The pages of a database, from number 1 on.
#[derive(Debug)]
pub(super) struct Pages {
    file: File,
    log: Option<File>,
    /// Where in the log the last of a page is.
    newer: HashMap<u32, u64>,
    count: u32,
}

impl Pages {
    /// Those of a database.
    ///
    /// # Errors
    /// When its file or its log cannot be read.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let pages = file.metadata()?.len().div_ceil(PAGE as u64);
        let log = match File::open(log_of(path)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            opened => Some(opened?),
        };
        let committed = log.as_ref().map(committed).transpose()?.unwrap_or_default();
        let count = committed.pages.unwrap_or_else(|| u32::try_from(pages).unwrap_or(u32::MAX));
        Ok(Self { file, log, newer: committed.newer, count })
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// A page. What is behind the end of the file, or the disk does not give any more, is zero.
    pub(super) fn read(&self, number: u32) -> Page {
        let mut page = [0; PAGE];
        let (file, at) = match (self.newer.get(&number), &self.log) {
            (Some(&at), Some(log)) => (log, at),
            _ => (&self.file, u64::from(number.saturating_sub(1)) * PAGE as u64),
        };
        let mut filled = 0;
        while filled < PAGE {
            match file.read_at(&mut page[filled..], at + filled as u64) {
                Ok(0) | Err(_) => break,
                Ok(read) => filled += read,
            }
        }
        page
    }
}

/// What the log's commits have made.
#[derive(Debug, Default)]
struct Committed {
    newer: HashMap<u32, u64>,
    /// Pages of the database behind the last commit.
    pages: Option<u32>,
}

/// Reads a log up to its last commit.
fn committed(log: &File) -> io::Result<Committed> {
    let mut input = io::BufReader::with_capacity(1 << 20, log);
    let mut committed = Committed::default();
    let mut header = [0; LOG_HEADER];
    if !fill(&mut input, &mut header)? {
        return Ok(committed);
    }
    let magic = word(&header, 0);
    let mut checksum = Checksum { is_big_endian: magic & 1 == 1, ..Checksum::default() };
    checksum.add(&header[..FRAME_HEADER]);
    let is_log = magic & !1 == LOG_MAGIC && word(&header, 8) as usize == PAGE;
    if !is_log || !checksum.is(&header[FRAME_HEADER..]) {
        return Ok(committed);
    }
    let salt = &header[16..24];
    let mut since: Vec<(u32, u64)> = Vec::new();
    let mut at = LOG_HEADER as u64;
    let mut frame = [0; FRAME_HEADER + PAGE];
    while fill(&mut input, &mut frame)? {
        let (head, page) = frame.split_at(FRAME_HEADER);
        checksum.add(&head[..8]);
        checksum.add(page);
        if head[8..16] != *salt || !checksum.is(&head[16..]) {
            break;
        }
        since.push((word(head, 0), at + FRAME_HEADER as u64));
        let pages = word(head, 4);
        if pages > 0 {
            committed.newer.extend(since.drain(..));
            committed.pages = Some(pages);
        }
        at += frame.len() as u64;
    }
    Ok(committed)
}

/// The checksum of a log, as far as it is read.
#[derive(Debug, Default)]
struct Checksum {
    is_big_endian: bool,
    sums: [u32; 2],
}

impl Checksum {
    fn add(&mut self, octets: &[u8]) {
        let [mut a, mut b] = self.sums;
        for pair in octets.as_chunks::<8>().0 {
            let [x, y] = [0, 4].map(|at| {
                let word = word(pair, at);
                if self.is_big_endian { word } else { word.swap_bytes() }
            });
            a = a.wrapping_add(x).wrapping_add(b);
            b = b.wrapping_add(y).wrapping_add(a);
        }
        self.sums = [a, b];
    }

    fn is(&self, octets: &[u8]) -> bool {
        self.sums == [word(octets, 0), word(octets, 4)]
    }
}

/// Fills octets, and says whether there were as many.
fn fill(input: &mut impl Read, octets: &mut [u8]) -> io::Result<bool> {
    match input.read_exact(octets) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

/// A word of a database, which are big-endian; 0 behind the end.
pub(super) fn word(octets: &[u8], at: usize) -> u32 {
    octets.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_be_bytes)
}
