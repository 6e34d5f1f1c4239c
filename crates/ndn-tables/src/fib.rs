//! FIB: where Interests go, by the longest prefix of their names.

use std::fmt;

use arrayvec::ArrayVec;
use kaido_table::{Domain, RegionError};

use super::name_table::{NameTable, NameTableError};
use super::names::NameHash;
use crate::FaceId;

/// Next hops of a prefix at most.
pub const HOPS_MAX: usize = 16;

/// A next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop {
    /// The face that leads there.
    pub face: FaceId,
    /// What it costs; the cheapest is preferred.
    pub cost: u32,
}

/// The next hops of a prefix, the cheapest first, of equal ones the one that was added first. There is always one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hops {
    first: Hop,
    more: Option<Box<ArrayVec<Hop, { HOPS_MAX - 1 }>>>,
}

impl Hops {
    /// Those next hops, at most [`HOPS_MAX`] of them; `None` when there are none.
    fn new(mut hops: ArrayVec<Hop, HOPS_MAX>) -> Option<Self> {
        hops.sort_by_key(|hop| hop.cost);
        let (&first, more) = hops.split_first()?;
        let more = (!more.is_empty()).then(|| Box::new(more.iter().copied().collect()));
        Some(Self { first, more })
    }

    /// Hands each next hop over, in their order.
    #[inline(always)]
    pub fn each(&self, mut each: impl FnMut(Hop)) {
        each(self.first);
        if let Some(more) = &self.more {
            more.iter().copied().for_each(each);
        }
    }

    /// The next hops in their order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Hop> + Clone + '_ {
        let more: &[Hop] = self.more.as_deref().map_or(&[], ArrayVec::as_slice);
        std::iter::once(self.first).chain(more.iter().copied())
    }
}

/// A route could not be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FibError {
    /// The prefix does not go into the table.
    Table(NameTableError),
    /// The prefix has [`HOPS_MAX`] next hops.
    TooManyHops,
}

impl fmt::Display for FibError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(error) => error.fmt(f),
            Self::TooManyHops => write!(f, "more than {HOPS_MAX} next hops"),
        }
    }
}

impl std::error::Error for FibError {}

impl From<NameTableError> for FibError {
    fn from(error: NameTableError) -> Self {
        Self::Table(error)
    }
}

/// The forwarding information base: one for all workers, written by the control thread.
#[derive(Debug)]
pub struct Fib {
    table: NameTable<Hops>,
}

impl Fib {
    /// A FIB for `prefixes_max` prefixes whose readers register with `domain`.
    ///
    /// # Errors
    /// [`RegionError`] when the address space is not to be had.
    pub fn new(domain: &Domain, hash: NameHash, prefixes_max: u32) -> Result<Self, RegionError> {
        Ok(Self { table: NameTable::new(domain, hash, prefixes_max)? })
    }

    /// The prefixes with their next hops, to look up.
    #[inline]
    pub fn table(&self) -> &NameTable<Hops> {
        &self.table
    }

    /// Adds a next hop to a prefix, or gives the one over that face another cost.
    ///
    /// # Errors
    /// [`FibError`]; the FIB is as before.
    pub fn add(&self, prefix: &[u8], hop: Hop) -> Result<(), FibError> {
        let mut full = false;
        self.table.update(prefix, |old| {
            let mut hops = Self::without(old, hop.face);
            full = hops.try_push(hop).is_err();
            if full { old.cloned() } else { Hops::new(hops) }
        })?;
        if full { Err(FibError::TooManyHops) } else { Ok(()) }
    }

    /// Gives a prefix exactly these next hops; none removes it.
    ///
    /// # Errors
    /// [`FibError`]; the FIB is as before.
    pub fn set(&self, prefix: &[u8], hops: &[Hop]) -> Result<(), FibError> {
        let hops: ArrayVec<Hop, HOPS_MAX> = hops.try_into().map_err(|_| FibError::TooManyHops)?;
        self.table.update(prefix, |_| Hops::new(hops))?;
        Ok(())
    }

    /// Removes the next hop over a face; with the last one goes the prefix. `false` when it has none over that face.
    ///
    /// # Errors
    /// [`FibError`]; the FIB is as before.
    pub fn remove(&self, prefix: &[u8], face: FaceId) -> Result<bool, FibError> {
        let mut there = false;
        self.table.update(prefix, |old| {
            there = old.is_some_and(|hops| hops.iter().any(|hop| hop.face == face));
            Hops::new(Self::without(old, face))
        })?;
        Ok(there)
    }

    fn without(old: Option<&Hops>, face: FaceId) -> ArrayVec<Hop, HOPS_MAX> {
        old.into_iter().flat_map(Hops::iter).filter(|hop| hop.face != face).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::name;

    fn hops(fib: &Fib, prefix: &str) -> Vec<(u32, u32)> {
        let hops = |hops: Option<&Hops>| {
            hops.into_iter().flat_map(Hops::iter).map(|hop| (hop.face.0, hop.cost)).collect()
        };
        fib.table().with(&name(prefix), hops).unwrap()
    }

    fn fib() -> Fib {
        Fib::new(&Domain::new(), NameHash::fixed(1), 10).unwrap()
    }

    #[test]
    fn next_hops_are_kept_by_cost() {
        let fib = fib();
        for (face, cost) in [(5, 20), (6, 10), (7, 20), (5, 20)] {
            fib.add(&name("a/b"), Hop { face: FaceId(face), cost }).unwrap();
        }
        assert_eq!(hops(&fib, "a/b"), [(6, 10), (7, 20), (5, 20)]);
        fib.add(&name("a/b"), Hop { face: FaceId(5), cost: 1 }).unwrap();
        assert_eq!(hops(&fib, "a/b"), [(5, 1), (6, 10), (7, 20)]);
        assert_eq!(fib.remove(&name("a/b"), FaceId(9)), Ok(false));
        for face in [6, 7, 5] {
            assert_eq!(fib.remove(&name("a/b"), FaceId(face)), Ok(true));
        }
        assert!(fib.table().is_empty(), "no next hop, no prefix");
    }

    #[test]
    fn too_many_next_hops_change_nothing() {
        let fib = fib();
        for face in 0..16 {
            fib.add(&name("a"), Hop { face: FaceId(face), cost: face }).unwrap();
        }
        let before = hops(&fib, "a");
        assert_eq!(fib.add(&name("a"), Hop { face: FaceId(99), cost: 0 }), Err(FibError::TooManyHops));
        assert_eq!(fib.set(&name("a"), &[Hop { face: FaceId(1), cost: 0 }; 17]), Err(FibError::TooManyHops));
        assert_eq!(hops(&fib, "a"), before);
        fib.set(&name("a"), &[Hop { face: FaceId(1), cost: 0 }]).unwrap();
        assert_eq!(hops(&fib, "a"), [(1, 0)]);
    }
}
