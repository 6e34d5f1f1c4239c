//! Sets kept in BPF maps. Replacing one touches only what differs: new entries go in before old ones go out, so an entry that
//! stays is there for every packet in between.

use std::collections::BTreeSet;

use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::Error;

/// A set kept in a BPF map, whose values are octets. Replacing it touches only what differs: new entries go in before old ones go
/// out.
#[derive(Debug)]
pub struct Table<const KEY: usize> {
    map: MapHandle,
    what: &'static str,
    limit: usize,
    /// What the map holds.
    present: BTreeSet<[u8; KEY]>,
}

impl<const KEY: usize> Table<KEY> {
    /// A set of `what`, in a map that is empty and has room for twice `limit` entries.
    pub fn new(map: MapHandle, what: &'static str, limit: usize) -> Self {
        Self { map, what, limit, present: BTreeSet::new() }
    }

    /// Makes the set the given one. After an error the map holds some of both, and a further call mends it.
    ///
    /// # Errors
    /// [`Error::TooMany`], [`Error::Libbpf`].
    pub fn replace(&mut self, wanted: &BTreeSet<[u8; KEY]>) -> Result<(), Error> {
        if wanted.len() > self.limit {
            return Err(Error::TooMany { what: self.what, count: wanted.len(), limit: self.limit });
        }
        // A failed call may have left strays; were they to fill the map, they would go first.
        let strays_first = self.present.union(wanted).count() > 2 * self.limit;
        if strays_first {
            self.remove_all_but(wanted)?;
        }
        for key in wanted.iter().filter(|&key| !self.present.contains(key)).copied().collect::<Vec<_>>() {
            self.map
                .update(&key, &[1], MapFlags::ANY)
                .map_err(Error::libbpf("adding an entry to a BPF map"))?;
            self.present.insert(key);
        }
        self.remove_all_but(wanted)
    }

    /// The map.
    pub fn map(&self) -> &MapHandle {
        &self.map
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    fn remove_all_but(&mut self, wanted: &BTreeSet<[u8; KEY]>) -> Result<(), Error> {
        for key in self.present.difference(wanted).copied().collect::<Vec<_>>() {
            self.map.delete(&key).map_err(Error::libbpf("deleting an entry of a BPF map"))?;
            self.present.remove(&key);
        }
        Ok(())
    }
}
