//! What a CS finds for an Interest.

use kaido_engine::Frame;
use kaido_ndn_tables::{DEPTH_MAX, NodeInstant, Prefixes, Selectors};
use kaido_table::prefetch;

use super::Cs;
use super::entry::{BELOW, CsEntryRef, Entry, LEVELS};

/// The depths of the prefixes under which Data is noted.
#[inline(always)]
fn depths_below(prefixes: &Prefixes) -> impl Iterator<Item = usize> {
    let depths = prefixes.components().saturating_sub(LEVELS).max(1)..prefixes.components();
    depths.take_while(|depth| *depth <= DEPTH_MAX)
}

impl Cs {
    /// Asks for the line of the index for a name.
    #[inline(always)]
    pub fn prefetch(&self, hash: u64) {
        self.index.prefetch(hash);
        if let Some(admission) = &self.admission {
            admission.prefetch(hash);
        }
        if let Some(handle) = &self.handle {
            handle.prefetch(hash);
        }
    }

    /// Asks for the lines of the index that Data is noted in if it is kept: those of its prefixes.
    #[inline(always)]
    pub fn prefetch_below(&self, prefixes: &Prefixes) {
        for depth in depths_below(prefixes) {
            self.index.prefetch(prefixes.prefix(depth).0);
        }
    }

    /// Asks for the entries that are the newest below the prefixes of Data: they are no longer, if it is kept.
    #[inline(always)]
    pub fn prefetch_newest(&self, prefixes: &Prefixes) {
        for depth in depths_below(prefixes) {
            let mut numbers = self.index.at_home(prefixes.prefix(depth).0);
            if let Some(number) = numbers.find(|number| number & BELOW != 0) {
                prefetch(&self.entries[(number & !BELOW) as usize]);
            }
        }
    }

    /// Asks for the entry that may have a name.
    #[inline(always)]
    pub fn prefetch_entry(&self, hash: u64) {
        if let Some(number) = self.index.at_home(hash).next() {
            prefetch(&self.entries[(number & !BELOW) as usize]);
        }
    }

    /// Data for an Interest; of one that names a digest, `name` is with it.
    #[inline]
    pub fn find(
        &mut self,
        name: &[u8],
        prefixes: &Prefixes,
        selectors: Selectors,
        now: NodeInstant,
    ) -> Option<CsEntryRef> {
        let found =
            if self.len == 0 || !self.serves { None } else { self.seek(name, prefixes, selectors, now) };
        match found {
            Some(number) => {
                self.counters.hits += 1;
                self.entries[number as usize].is_wanted = true;
                Some(CsEntryRef(number))
            }
            None => {
                self.counters.misses += 1;
                None
            }
        }
    }

    fn seek(
        &mut self,
        name: &[u8],
        prefixes: &Prefixes,
        selectors: Selectors,
        now: NodeInstant,
    ) -> Option<u32> {
        let (plain, digest) = name.split_at(prefixes.plain_len());
        let exact = self
            .index
            .find(prefixes.whole())
            .find(|&number| number & BELOW == 0 && self.is_of(number, plain));
        let fits = |entry: &Entry| !selectors.must_be_fresh || entry.fresh_until > now;
        if let Some(number) = exact.filter(|&number| fits(&self.entries[number as usize])) {
            if !prefixes.has_digest() {
                return Some(number);
            }
            return (digest.get(2..) == Some(&self.digest(number)[..])).then_some(number);
        }
        if !selectors.can_be_prefix || prefixes.has_digest() {
            return None;
        }
        self.index
            .find(prefixes.whole())
            .filter(|number| number & BELOW != 0)
            .map(|number| number & !BELOW)
            .find(|&number| {
                let entry = &self.entries[number as usize];
                fits(entry)
                    && usize::from(entry.name_len) > plain.len()
                    && self.payloads.is_at(entry.first_block, entry.name_at.into(), plain)
            })
    }

    pub(super) fn is_of(&self, number: u32, name: &[u8]) -> bool {
        let entry = &self.entries[number as usize];
        usize::from(entry.name_len) == name.len()
            && self.payloads.is_at(entry.first_block, entry.name_at.into(), name)
    }

    /// The implicit digest of a packet, made when it is first asked for.
    fn digest(&mut self, number: u32) -> [u8; 32] {
        let entry = &mut self.entries[number as usize];
        if !entry.has_digest {
            let pieces = self.payloads.pieces(entry.first_block, entry.len.into());
            (entry.digest, entry.has_digest) = (kaido_wire::ndn::implicit_digest(pieces), true);
        }
        entry.digest
    }

    /// A copy of a cached packet, in frames taken by `allocate`.
    pub fn copy(
        &mut self,
        CsEntryRef(number): CsEntryRef,
        allocate: impl FnMut() -> Option<Frame>,
    ) -> Option<Frame> {
        let entry = &self.entries[number as usize];
        self.counters.octets_out += u64::from(entry.len);
        self.payloads.copy(entry.first_block, entry.len.into(), allocate)
    }

    /// Asks for the packet of an entry.
    #[inline]
    pub fn prefetch_packet(&self, CsEntryRef(number): CsEntryRef) {
        self.payloads.prefetch(self.entries[number as usize].first_block);
    }
}
