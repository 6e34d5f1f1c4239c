//! Longest-prefix match over addresses, read-only once built.
//!
//! A trie of 256-way nodes, one octet of the address a step, with shorter prefixes pushed down into the
//! nodes below them. A lookup ends at the first entry that is no node. What a default route covers costs
//! one access, a full table as many as the address has octets that matter.

/// The entry of an address that no prefix covers.
pub const NO_PREFIX: u32 = NODE - 1;
/// Marks an entry as the number of a node.
const NODE: u32 = 1 << 31;

const FANOUT: usize = 256;

/// A table from prefixes to numbers below [`NO_PREFIX`].
#[derive(Clone, Debug)]
pub struct PrefixTable {
    nodes: Vec<[u32; FANOUT]>,
}

impl Default for PrefixTable {
    fn default() -> Self {
        Self { nodes: vec![[NO_PREFIX; FANOUT]] }
    }
}

impl PrefixTable {
    /// Builds a table of prefixes: address, length in bits, number. Of equal prefixes the last counts;
    /// bits of an address beyond its prefix do not matter.
    ///
    /// # Panics
    /// When a prefix is longer than its address, or a number is not below [`NO_PREFIX`].
    pub fn build<const OCTETS: usize>(prefixes: impl IntoIterator<Item = ([u8; OCTETS], u8, u32)>) -> Self {
        let mut prefixes: Vec<_> = prefixes.into_iter().collect();
        // Shorter ones first, so that what a longer one overwrites is always an entry, never a node.
        prefixes.sort_by_key(|&(_, len, _)| len);
        let mut table = Self::default();
        for (address, len, number) in prefixes {
            assert!(usize::from(len) <= OCTETS * 8 && number < NO_PREFIX);
            table.insert(&address, len, number);
        }
        table
    }

    fn insert(&mut self, address: &[u8], len: u8, number: u32) {
        let last = usize::from(len.saturating_sub(1) / 8);
        let mut node = 0;
        for &octet in &address[..last] {
            let entry = self.nodes[node][usize::from(octet)];
            node = if entry & NODE == 0 {
                let below = self.nodes.len();
                self.nodes.push([entry; FANOUT]);
                // As many nodes as fit into 31 bits would take two terabytes.
                #[allow(clippy::cast_possible_truncation)]
                let marked = NODE | below as u32;
                self.nodes[node][usize::from(octet)] = marked;
                below
            } else {
                (entry & !NODE) as usize
            };
        }
        let free_bits = last * 8 + 8 - usize::from(len);
        let span = 1 << free_bits.min(8);
        let first = usize::from(address[last]) & !(span - 1);
        self.nodes[node][first..first + span].fill(number);
    }

    /// The number of the longest prefix that covers an IPv4 address or any of four octets; [`NO_PREFIX`] if
    /// none does.
    #[inline(always)]
    pub fn lookup_u32(&self, address: u32) -> u32 {
        let mut rest = address;
        let mut entry = self.nodes[0][(rest >> 24) as usize];
        while entry & NODE != 0 {
            rest <<= 8;
            entry = self.nodes[(entry & !NODE) as usize][(rest >> 24) as usize];
        }
        entry
    }

    /// As [`PrefixTable::lookup_u32`], of sixteen octets.
    #[inline]
    pub fn lookup_u128(&self, address: u128) -> u32 {
        let mut rest = address;
        let mut entry = self.nodes[0][(rest >> 120) as usize];
        while entry & NODE != 0 {
            rest <<= 8;
            entry = self.nodes[(entry & !NODE) as usize][(rest >> 120) as usize];
        }
        entry
    }

    /// Octets of memory.
    pub fn memory(&self) -> usize {
        self.nodes.len() * FANOUT * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_empty_table_covers_nothing_and_a_default_route_all() {
        assert_eq!(PrefixTable::default().lookup_u32(7), NO_PREFIX);
        let table = PrefixTable::build([([0u8; 4], 0, 5)]);
        assert_eq!((table.lookup_u32(0), table.lookup_u32(u32::MAX)), (5, 5));
        assert_eq!(table.memory(), 1024);
    }

    #[test]
    fn the_last_of_equal_prefixes_counts() {
        let table = PrefixTable::build([([10, 0, 0, 0], 8, 1), ([10, 9, 9, 9], 8, 2)]);
        assert_eq!(table.lookup_u32(0x0a01_0203), 2);
    }

    proptest! {
        #[test]
        fn finds_what_a_walk_through_all_prefixes_finds(
            prefixes in prop::collection::vec((0u32..1 << 12, 0u8..=32), 0..60),
            addresses in prop::collection::vec(0u32..1 << 12, 50),
        ) {
            // Twelve bits spread so that prefixes nest at every octet.
            let spread = |bits: u32| (bits & 0xf00) << 20 | (bits & 0xf0) << 12 | (bits & 0xf) << 4 | bits & 1;
            let mask = |len: u8| u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
            let numbered: Vec<_> = prefixes
                .iter()
                .zip(0u32..)
                .map(|(&(bits, len), number)| (spread(bits).to_be_bytes(), len, number))
                .collect();
            let table = PrefixTable::build(numbered.clone());
            let wide = PrefixTable::build(numbered.iter().map(|&(address, len, number)| {
                let mut long = [0; 16];
                long[..4].copy_from_slice(&address);
                (long, len, number)
            }));
            for address in addresses.into_iter().map(spread) {
                let covering = numbered.iter().filter(|(prefix, len, _)| {
                    (u32::from_be_bytes(*prefix) ^ address) & mask(*len) == 0
                });
                // The last among the longest.
                let expected = covering.max_by_key(|(_, len, number)| (*len, *number));
                let expected = expected.map_or(NO_PREFIX, |(.., number)| *number);
                prop_assert_eq!(table.lookup_u32(address), expected);
                prop_assert_eq!(wide.lookup_u128(u128::from(address) << 96), expected);
            }
        }
    }
}
