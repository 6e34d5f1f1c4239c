//! Names without a table. The number of a name in the order of their popularity is in the name, spread by a keyed
//! permutation. What its Data must hold follows from it.

use kaido_wire::ndn::tlv::{Elements, Writer};
use kaido_wire::ndn::{Name, types};

use crate::permutation::Permutation;

/// Names of a group share their last component but one.
const GROUP_BITS: u32 = 12;

/// Octets behind the prefix: components of 4 octets, for the group and for the number.
const TAIL: usize = 2 * (2 + 4);

/// The names below a prefix.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The components of the prefix.
    prefix: Vec<u8>,
    permutation: Permutation,
    seed: u64,
}

impl Names {
    /// `count` names below `prefix`; the same seed gives the same names and contents.
    pub(super) fn new(prefix: Name<'_>, count: u32, seed: u64) -> Self {
        Self { prefix: prefix.value().to_vec(), permutation: Permutation::new(count, seed), seed }
    }

    /// How many there are.
    pub(super) fn len(&self) -> u32 {
        self.permutation.len()
    }

    /// The components of the prefix.
    pub(super) fn prefix(&self) -> &[u8] {
        &self.prefix
    }

    /// The components of the name whose rank is `rank`, counted on from 0 after the last.
    pub(super) fn write(&self, rank: u64, octets: &mut Vec<u8>) {
        octets.clear();
        octets.extend_from_slice(&self.prefix);
        let at = octets.len();
        octets.resize(at + TAIL, 0);
        let number = self.permutation.at(rank);
        let mut writer = Writer::new(&mut octets[at..]);
        let generic = types::GENERIC_COMPONENT;
        // The room is as large as what goes in.
        let written = writer
            .element(generic, &(number >> GROUP_BITS).to_be_bytes())
            .and_then(|()| writer.element(generic, &number.to_be_bytes()));
        debug_assert!(written.is_ok());
    }

    /// The rank of a name, if it is one of these.
    pub(super) fn rank(&self, name: Name<'_>) -> Option<u32> {
        let tail = name.value().strip_prefix(&self.prefix[..])?;
        if tail.len() != TAIL {
            return None;
        }
        let mut numbers = Elements::new(tail).map(|element| {
            let element = element.ok()?;
            (element.kind == types::GENERIC_COMPONENT)
                .then(|| element.value.first_chunk::<4>().copied().map(u32::from_be_bytes))
                .flatten()
        });
        let (group, number) = (numbers.next()??, numbers.next()??);
        (number < self.len() && group == number >> GROUP_BITS).then(|| self.permutation.place(number))
    }

    /// What the Data of a name holds, octet for octet.
    pub(super) fn content(&self, rank: u32, content: &mut [u8]) {
        let mut state = self.seed ^ u64::from(rank).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for chunk in content.chunks_mut(8) {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let word = word ^ word >> 27;
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use kaido_wire::ndn::name_from_uri;

    fn names(count: u32, seed: u64) -> Names {
        let prefix = name_from_uri("/tester/a").unwrap();
        Names::new(Name::new(&prefix).unwrap(), count, seed)
    }

    proptest! {
        #[test]
        fn a_billion_names_tell_their_ranks(count in 1u32..=1_000_000_000, rank: u64, seed: u64) {
            let names = names(count, seed);
            let mut octets = Vec::new();
            names.write(rank, &mut octets);
            let name = Name::new(&octets).unwrap();
            prop_assert_eq!(names.rank(name).map(u64::from), Some(rank % u64::from(count)));
        }

        #[test]
        fn other_names_have_none(octets in prop::collection::vec(any::<u8>(), 0..40), seed: u64) {
            let names = names(1000, seed);
            if let Ok(name) = Name::new(&octets) {
                prop_assert_eq!(names.rank(name), None);
            }
        }
    }

    #[test]
    fn a_name_of_the_wrong_group_or_number_is_refused() {
        let names = names(5000, 3);
        let mut octets = Vec::new();
        names.write(7, &mut octets);
        for bit in 0..octets.len() * 8 {
            let mut changed = octets.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let rank = Name::new(&changed).ok().and_then(|name| names.rank(name));
            assert_ne!(rank, Some(7), "bit {bit}");
        }
    }

    #[test]
    fn contents_differ() {
        let names = names(1000, 9);
        let content = |rank, len: usize| {
            let mut content = vec![0; len];
            names.content(rank, &mut content);
            content
        };
        assert_ne!(content(1, 20), content(2, 20));
        assert_eq!(content(1, 20)[..13], content(1, 13));
    }
}
