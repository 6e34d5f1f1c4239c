//! Strings of octets of which most are zero, as packed sessions are: what a rule does not have takes an octet that says so.
//!
//! ```text
//!  eight octets ─▶ [which of them are not zero, a bit each] [those]
//! ```

/// Octets of a string that one octet of bits stands for.
pub(super) const CHUNK: usize = 8;

/// Leaves out the zeros.
pub(super) fn squeeze(octets: &[u8]) -> Box<[u8]> {
    let others = octets.iter().filter(|&&octet| octet != 0).count();
    let mut squeezed = Vec::with_capacity(octets.len().div_ceil(CHUNK) + others);
    for chunk in octets.chunks(CHUNK) {
        let bits = (0..).zip(chunk).fold(0u8, |bits, (at, &octet)| bits | u8::from(octet != 0) << at);
        squeezed.push(bits);
        squeezed.extend(chunk.iter().filter(|&&octet| octet != 0));
    }
    squeezed.into_boxed_slice()
}

/// The octets that were [squeezed](squeeze), and behind them up to seven that are zero.
pub(super) fn expand(squeezed: &[u8]) -> Vec<u8> {
    let mut octets = Vec::with_capacity(CHUNK * squeezed.len());
    let mut left = squeezed.iter();
    while let Some(&bits) = left.next() {
        let chunk: [u8; CHUNK] = std::array::from_fn(|at| match bits >> at & 1 {
            0 => 0,
            _ => left.next().copied().unwrap_or(0),
        });
        octets.extend(chunk);
    }
    octets
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn octets_come_back(octets in prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], 0..300)) {
            let squeezed = squeeze(&octets);
            let others = octets.iter().filter(|&&octet| octet != 0).count();
            prop_assert_eq!(squeezed.len(), octets.len().div_ceil(CHUNK) + others);
            let back = expand(&squeezed);
            let (same, behind) = back.split_at(octets.len());
            prop_assert_eq!(same, octets);
            prop_assert!(behind.len() < CHUNK && behind.iter().all(|&octet| octet == 0));
        }
    }
}
