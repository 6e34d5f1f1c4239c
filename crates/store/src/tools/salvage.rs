//! The rows of a snapshot that SQLite cannot read any more, taken from its pages one by one.
//!
//! Each row has a checksum, so any that is found whole is one that was written. That it was not removed or replaced since
//! shows where it is found. That is a page of its tree, or one that no tree leads to as the page above it is damaged. Free
//! pages hold old rows, and are left out, and so are copies of them in the place of others. Pages without a tree are left out
//! too where the list of the free ones is not whole.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher as _};

use super::pages::{Page, Pages, word};
use crate::change::Kind;
use crate::snapshot::{Identity, PAGE, ROOT_OF_STATE, ROOT_OF_STORE, ROOT_OF_TOTAL, Row, Total};

/// What a database begins with.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
const FIRST_FREE: usize = 32;
const FREE_PAGES: usize = 36;
/// The types of an index's pages. A table without row numbers is an index.
const INTERIOR: u8 = 2;
const LEAF: u8 = 10;
/// Octets of a row that are in its page at most, and at least where the others are in pages of their own.
const LOCAL_MAX: usize = (PAGE - 12) * 64 / 255 - 23;
const LOCAL_MIN: usize = (PAGE - 12) * 32 / 255 - 23;

/// A database whose pages are looked at.
#[derive(Debug)]
pub(super) struct Salvage {
    pages: Pages,
    use_of: Vec<Use>,
    /// Those of the tree of rows, in order.
    of_rows: Vec<u32>,
    knows_free_pages: bool,
    /// Hashes of what free pages hold.
    free: HashSet<u64>,
}

/// What a page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Unknown,
    Free,
    Tree,
}

impl Salvage {
    /// Looks which pages lead to which.
    pub(super) fn of(pages: Pages) -> Self {
        let use_of = vec![Use::Unknown; pages.count() as usize + 1];
        let (of_rows, free) = (Vec::new(), HashSet::new());
        let mut salvage = Self { pages, use_of, of_rows, knows_free_pages: false, free };
        salvage.knows_free_pages = salvage.find_free_pages();
        if salvage.knows_free_pages {
            let free =
                (2..=salvage.pages.count()).filter(|&number| salvage.use_of[number as usize] == Use::Free);
            salvage.free = free.map(|number| hash(&salvage.pages.read(number))).collect();
        } else {
            salvage.use_of.fill(Use::Unknown);
        }
        // The other tables fit into one page each, whatever these say now.
        for root in [1, ROOT_OF_STORE, ROOT_OF_TOTAL] {
            salvage.claim(root, Use::Tree);
        }
        salvage.of_rows = salvage.walk();
        salvage
    }

    /// Hands every row to `each` that can be made out, sound or not. Of two with the same number, the last is that of the
    /// tree, if it has any.
    ///
    /// # Errors
    /// Those of `each`.
    pub(super) fn rows<E>(&self, mut each: impl FnMut(Row<'_>) -> Result<(), E>) -> Result<(), E> {
        let lost = (2..=self.pages.count())
            .filter(|&number| self.knows_free_pages && self.use_of[number as usize] == Use::Unknown);
        for number in lost.chain(self.of_rows.iter().copied()) {
            let page = self.pages.read(number);
            if self.free.contains(&hash(&page)) {
                continue;
            }
            for payload in self.payloads(&page) {
                if let Some(row) = row(&payload) {
                    each(row)?;
                }
            }
        }
        Ok(())
    }

    /// Which store it is of, and how far, if that can be read.
    pub(super) fn identity(&self) -> Option<Identity> {
        let (mut identity, mut sum) = (Identity { store: 0, folded: 0 }, None);
        self.records(ROOT_OF_STORE, |fields| {
            if let &[Field::Octets(name), Field::Integer(value)] = fields {
                let value = value.cast_unsigned();
                match name {
                    b"store" => identity.store = value,
                    b"folded" => identity.folded = value,
                    b"sum" => sum = Some(value),
                    _ => {}
                }
            }
        });
        (sum == Some(identity.checksum())).then_some(identity)
    }

    /// What the rows of a kind are to add up to, if that can be read.
    pub(super) fn total(&self, kind: Kind) -> Option<Total> {
        let mut total = None;
        self.records(ROOT_OF_TOTAL, |fields| {
            if let &[Field::Integer(of), Field::Integer(entries), Field::Integer(sum)] = fields
                && of == kind as i64
            {
                total = Some(Total { entries, sum });
            }
        });
        total
    }

    /// Hands the records of a table that fits into one page to `each`.
    fn records(&self, root: u32, mut each: impl FnMut(&[Field<'_>])) {
        let page = self.pages.read(root);
        for payload in self.payloads(&page) {
            if let Some(fields) = fields(&payload) {
                each(&fields);
            }
        }
    }

    /// Finds the free pages, and says whether they are as many as the database says.
    fn find_free_pages(&mut self) -> bool {
        let first = self.pages.read(1);
        if first[..MAGIC.len()] != *MAGIC {
            return false;
        }
        let (mut trunk, mut found) = (word(&first, FIRST_FREE), 0);
        while trunk != 0 {
            if !self.claim(trunk, Use::Free) {
                return false;
            }
            let page = self.pages.read(trunk);
            let leaves = word(&page, 4) as usize;
            if leaves > PAGE / 4 - 2 || !(0..leaves).all(|at| self.claim(word(&page, 8 + 4 * at), Use::Free))
            {
                return false;
            }
            (trunk, found) = (word(&page, 0), found + 1 + leaves);
        }
        found == word(&first, FREE_PAGES) as usize
    }

    /// Says what a page is for; whether there is one, of which nothing was known.
    fn claim(&mut self, number: u32, used: Use) -> bool {
        let known =
            self.use_of.get_mut(number as usize).filter(|known| number > 0 && **known == Use::Unknown);
        known.map(|known| *known = used).is_some()
    }

    /// The pages of the tree of rows, those of long values apart, which are claimed too.
    fn walk(&mut self) -> Vec<u32> {
        let (mut found, mut to_do) = (Vec::new(), vec![ROOT_OF_STATE]);
        while let Some(number) = to_do.pop() {
            if !self.claim(number, Use::Tree) {
                continue;
            }
            let page = self.pages.read(number);
            if self.free.contains(&hash(&page)) {
                continue;
            }
            found.push(number);
            if page[0] == INTERIOR {
                to_do.push(word(&page, 8));
                to_do.extend(cells(&page).rev().map(|at| word(&page, at)));
            }
            for at in payloads_at(&page) {
                let mut next = overflow_of(&page, at).unwrap_or(0);
                while self.claim(next, Use::Tree) {
                    next = word(&self.pages.read(next), 0);
                }
            }
        }
        found
    }

    /// The payloads of a page.
    fn payloads<'p>(&'p self, page: &'p Page) -> impl Iterator<Item = Vec<u8>> + 'p {
        payloads_at(page).filter_map(|at| self.payload(page, at))
    }

    /// A payload with what is in other pages of it; `None` if it cannot be one.
    fn payload(&self, page: &Page, at: usize) -> Option<Vec<u8>> {
        let (len, begins) = varint(page, at)?;
        let limit = self.pages.count() as usize * PAGE;
        let len = usize::try_from(len).ok().filter(|&len| len <= limit)?;
        let local = local(len);
        let mut payload = page.get(begins..begins + local)?.to_vec();
        let mut next = if local < len { word(page, begins + local) } else { 0 };
        while payload.len() < len {
            if next == 0 || next > self.pages.count() {
                return None;
            }
            let more = self.pages.read(next);
            next = word(&more, 0);
            payload.extend_from_slice(&more[4..PAGE.min(4 + len - payload.len())]);
        }
        Some(payload)
    }
}

fn hash(page: &Page) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(page);
    hasher.finish()
}

/// Where the cells of a page are.
fn cells(page: &Page) -> impl DoubleEndedIterator<Item = usize> + '_ {
    let header = if page[0] == INTERIOR { 12 } else { 8 };
    let count = usize::from(u16::from_be_bytes([page[3], page[4]]));
    let pointers = page[header..].as_chunks::<2>().0;
    pointers.iter().take(count).map(|pointer| usize::from(u16::from_be_bytes(*pointer)))
}

/// Where the payloads of an index's page are.
fn payloads_at(page: &Page) -> impl Iterator<Item = usize> + '_ {
    let left = match page[0] {
        INTERIOR => Some(4),
        LEAF => Some(0),
        _ => None,
    };
    left.into_iter().flat_map(|left| cells(page).map(move |at| at + left))
}

/// The first page of a payload's others.
fn overflow_of(page: &Page, at: usize) -> Option<u32> {
    let (len, begins) = varint(page, at)?;
    let len = usize::try_from(len).ok()?;
    (local(len) < len).then(|| word(page, begins + local(len)))
}

/// Octets of a payload that are in its page.
fn local(len: usize) -> usize {
    if len <= LOCAL_MAX {
        return len;
    }
    let fitting = LOCAL_MIN + (len - LOCAL_MIN) % (PAGE - 4);
    if fitting <= LOCAL_MAX { fitting } else { LOCAL_MIN }
}

/// A number of one to nine octets, and where it ends.
fn varint(octets: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut value = 0u64;
    for (index, &octet) in octets.get(at..)?.iter().take(9).enumerate() {
        if index == 8 {
            return Some((value << 8 | u64::from(octet), at + 9));
        }
        value = value << 7 | u64::from(octet & 0x7f);
        if octet & 0x80 == 0 {
            return Some((value, at + index + 1));
        }
    }
    None
}

/// A field of a record.
#[derive(Clone, Copy, Debug)]
enum Field<'r> {
    Integer(i64),
    Octets(&'r [u8]),
}

/// The fields of a record; `None` of what is none, or has others than ours have.
fn fields(record: &[u8]) -> Option<Vec<Field<'_>>> {
    let (header, mut at) = varint(record, 0)?;
    let mut value_at = usize::try_from(header).ok()?;
    let header = record.get(..value_at)?;
    let mut fields = Vec::new();
    while at < header.len() {
        let (form, next) = varint(header, at)?;
        at = next;
        let len = match form {
            8 | 9 => 0,
            1..=4 => usize::try_from(form).ok()?,
            5 => 6,
            6 => 8,
            12.. => usize::try_from((form - 12) / 2).ok()?,
            _ => return None,
        };
        let octets = record.get(value_at..value_at.checked_add(len)?)?;
        value_at += len;
        fields.push(match form {
            8 => Field::Integer(0),
            9 => Field::Integer(1),
            12.. => Field::Octets(octets),
            _ => Field::Integer(integer(octets)),
        });
    }
    Some(fields)
}

/// An integer of one to eight octets with a sign.
fn integer(octets: &[u8]) -> i64 {
    let sign = octets.first().map_or(0, |first| i64::from(first.cast_signed()) >> 7);
    octets.iter().fold(sign, |value, &octet| value << 8 | i64::from(octet))
}

fn row(record: &[u8]) -> Option<Row<'_>> {
    match fields(record)?[..] {
        [Field::Integer(kind), Field::Integer(key), Field::Octets(value), Field::Integer(sum)] => {
            Some(Row { kind, key: key.cast_unsigned(), value, sum })
        }
        _ => None,
    }
}
