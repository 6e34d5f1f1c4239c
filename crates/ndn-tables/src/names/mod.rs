//! Names as the tables take them: octets of their components, hashed with a secret, every prefix in one pass.
//!
//! ```text
//!   08 03 c o m │ 08 05 v i d e o │ 08 02 v 1
//!   ▲           ▲                 ▲          ▲
//!   hash 0      hash 1            hash 2     hash 3 = of the whole name
//! ```

mod component;
mod name_hash;
mod prefixes;

pub use component::{
    COMPONENTS_MAX, DEPTH_MAX, NAME_OCTETS_MAX, NameError, component_len, components, is_digest,
};
pub use name_hash::{NameHash, STEP};
pub use prefixes::Prefixes;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text::{name, with_digest};

    #[test]
    fn prefixes_hash_as_names() {
        let hash = NameHash::fixed(1);
        let octets =
            name("com/example/a-rather-long-component-of-more-than-sixteen/x/0123456789abcdef0123456789abcd");
        let mut prefixes = Prefixes::default();
        prefixes.fill(&hash, &octets).unwrap();
        assert_eq!((prefixes.components(), prefixes.depth()), (5, 5));
        for depth in 0..=5 {
            let (of, end) = prefixes.prefix(depth);
            assert_eq!(hash.name(&octets[..end]), Ok(of));
        }
        assert_eq!((prefixes.whole(), prefixes.plain_len()), (prefixes.prefix(5).0, octets.len()));
    }

    proptest! {
        /// In steps and octet by octet a name has one hash, and what is left to the slow path is malformed or has unusual types.
        #[test]
        fn a_name_hashes_alike_in_steps(
            components in prop::collection::vec((0u8..=255, prop::collection::vec(any::<u8>(), 0..40)), 0..6),
            cut in 0usize..3,
        ) {
            let hash = NameHash::fixed(4);
            let mut octets = Vec::new();
            for (typ, value) in &components {
                octets.extend([*typ, u8::try_from(value.len()).unwrap()]);
                octets.extend(value);
            }
            octets.truncate(octets.len().saturating_sub(cut));
            let len = octets.len();
            let plain = hash.plain(&octets);
            octets.extend([0xee; STEP]);
            match hash.plain_in_steps(&octets, len) {
                Some(found) => prop_assert_eq!(plain, Ok(found)),
                None => prop_assert!(
                    plain.is_err() || components.iter().any(|(typ, _)| !(3..=252).contains(typ))
                ),
            }
        }
    }

    #[test]
    fn a_digest_at_the_end_is_not_hashed() {
        let hash = NameHash::fixed(1);
        let mut prefixes = Prefixes::default();
        prefixes.fill(&hash, &with_digest("a/b", [7; 32])).unwrap();
        assert_eq!((prefixes.has_digest(), prefixes.components()), (true, 2));
        assert_eq!((Ok(prefixes.whole()), prefixes.plain_len()), (hash.name(&name("a/b")), 6));
        // Another length, or not at the end, is a component as any.
        for other in [vec![1, 1, 0], [with_digest("a", [7; 32]), name("b")].concat()] {
            prefixes.fill(&hash, &other).unwrap();
            assert!(!prefixes.has_digest());
        }
    }

    #[test]
    fn deep_long_and_broken_names() {
        let hash = NameHash::fixed(1);
        let mut prefixes = Prefixes::default();
        let deep = name(&"a/".repeat(COMPONENTS_MAX));
        prefixes.fill(&hash, &deep).unwrap();
        assert_eq!((prefixes.components(), prefixes.depth()), (COMPONENTS_MAX, DEPTH_MAX));
        assert_eq!(Ok(prefixes.whole()), hash.name(&deep));
        assert_eq!(prefixes.fill(&hash, &[&deep[..], &name("a")].concat()), Err(NameError::TooLong));
        assert_eq!(prefixes.fill(&hash, &name(&"x".repeat(8800))), Err(NameError::TooLong));
        for broken in
            [&[8][..], &[8, 2, 0], &[253, 0], &[8, 253, 1], &[8, 253, 1, 0, 0], &[8, 254, 0, 0, 0, 0]]
        {
            assert_eq!(prefixes.fill(&hash, broken), Err(NameError::Malformed), "{broken:?}");
        }
        prefixes.fill(&hash, &name(&"x".repeat(300))).unwrap();
        assert_eq!((prefixes.components(), prefixes.plain_len()), (1, 304));
    }

    #[test]
    fn short_names_spread_over_buckets_and_tags() {
        let hash = NameHash::fixed(1);
        for bits in [0, 16, 32, 48] {
            let mut bins = [0u32; 256];
            for number in 0..65_536u32 {
                let octets = hash.name(&name(&format!("p/{number}"))).unwrap() >> bits;
                bins[usize::try_from(octets & 0xff).unwrap()] += 1;
            }
            assert!(bins.iter().all(|count| (150..370).contains(count)), "{bins:?}");
        }
    }

    proptest! {
        /// Every octet and every boundary between components counts.
        #[test]
        fn different_names_hash_differently(
            one in prop::collection::vec(prop::collection::vec(0u8..3, 0..40), 0..5),
            other in prop::collection::vec(prop::collection::vec(0u8..3, 0..40), 0..5),
            at in 0usize..100,
        ) {
            let octets = |name: &[Vec<u8>]| -> Vec<u8> {
                name.iter()
                    .flat_map(|value| [&[8, u8::try_from(value.len()).unwrap()], &value[..]].concat())
                    .collect()
            };
            let hash = NameHash::random();
            let (one, other) = (octets(&one), octets(&other));
            prop_assert_eq!(hash.name(&one) == hash.name(&other), one == other);
            let mut changed = one.clone();
            if let Some(last) = changed.len().checked_sub(1).filter(|_| components(&one).count() > 0) {
                // The last octet of a value is never a length when the value is not empty.
                let empty = components(&one).last().is_some_and(|last| last.unwrap().len() == 2);
                if !empty {
                    changed[last] ^= 1 << (at % 8);
                    prop_assert_ne!(hash.name(&one), hash.name(&changed));
                }
            }
        }
    }
}
