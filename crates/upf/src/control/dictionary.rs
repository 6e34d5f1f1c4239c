//! Strings of octets of which most are zero or as in another string. Packed sessions are such: what a rule does not have takes
//! an octet that says so, and sessions that one SMF makes differ in addresses, TEIDs and times.
//!
//! ```text
//!  octets ─▶ first eight ─────────────────▶ [which are not zero, a bit each] [those]
//!         └▶ the others, less an entry's ─▶ [which of the bits' octets are not zero] [those] [octets that are not zero]
//! ```
//! Entries are strings that came before, of the same length. What is like none of them is kept without its zeros alone.

/// Octets that stand at the front without an entry, so that strings can be found by them.
pub(super) const FRONT: usize = 8;
/// Entries, beside that of none.
const ENTRIES_MAX: usize = 255;
/// Longer strings have no entry: 1 MiB in all.
const ENTRY_OCTETS_MAX: usize = 4096;
/// A string becomes an entry if by the best one it takes more than so many hundredths of what it takes without.
const ALIKE_PERCENT: usize = 60;
/// The number of no entry.
const NONE: u8 = 0;

#[derive(Debug)]
struct Entry {
    octets: Box<[u8]>,
    /// Strings that are kept by it.
    users: u32,
}

/// Strings that others are kept by.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    entries: Vec<Entry>,
    /// Room for [`Self::keep`], so that it allocates what it returns alone.
    bits: Vec<u8>,
    own: Vec<u8>,
    kept: Vec<u8>,
}

impl Dictionary {
    /// A shorter form of a string. It is to be [forgotten](Self::forget) when it is of no use any more.
    pub(super) fn keep(&mut self, octets: &[u8]) -> Box<[u8]> {
        let (head, rest) = octets.split_at(octets.len().min(FRONT));
        let alone = size(rest, &[]);
        let same = self.entries.iter().enumerate().filter(|(_, entry)| entry.octets.len() == rest.len());
        let sizes = same.map(|(at, entry)| (size(rest, &entry.octets), at));
        let best = sizes.min().filter(|(size, _)| *size < alone);
        let is_alike = best.is_some_and(|(size, _)| size * 100 <= alone * ALIKE_PERCENT);
        let entry = if is_alike { None } else { self.enter(rest) };
        let Self { entries, bits, own, kept } = self;
        match entry.or(best.map(|(_, at)| at)) {
            Some(at) => {
                let Entry { octets, users } = &mut entries[at];
                *users += 1;
                // There are no more of them.
                write(u8::try_from(at + 1).unwrap_or(NONE), head, [rest, octets], [bits, own, kept])
            }
            None => write(NONE, head, [rest, &[]], [bits, own, kept]),
        }
    }

    /// The string that was [kept](Self::keep); `None` of what was not.
    pub(super) fn read(&self, kept: &[u8]) -> Option<Vec<u8>> {
        self.read_first(kept, usize::MAX)
    }

    /// At least the first `count` octets of a string that was [kept](Self::keep), or all if there are fewer.
    pub(super) fn read_first(&self, kept: &[u8], count: usize) -> Option<Vec<u8>> {
        let (&number, kept) = kept.split_first()?;
        let (&in_front, mut left) = kept.split_first()?;
        let mut head = [0; FRONT];
        for at in ones(in_front) {
            head[at] = *left.split_off_first()?;
        }
        let (entry, len) = match number {
            NONE => {
                let (len, behind) = left.split_first_chunk()?;
                left = behind;
                (&[][..], u32::from_le_bytes(*len) as usize)
            }
            _ => {
                let entry = &*self.entries.get(usize::from(number) - 1)?.octets;
                (entry, entry.len())
            }
        };
        let wanted = len.min(count.saturating_sub(FRONT));
        let mut octets = Vec::with_capacity(FRONT + wanted);
        octets.extend_from_slice(&head);
        octets.extend_from_slice(&entry[..entry.len().min(wanted)]);
        octets.resize(FRONT + wanted, 0);
        let (upper, left) = left.split_at_checked(len.div_ceil(8).div_ceil(8))?;
        let maps = upper.iter().map(|bits| bits.count_ones() as usize).sum();
        let (mut maps, mut own) = left.split_at_checked(maps)?;
        for (of_eight, &upper) in (0..).step_by(8).zip(upper) {
            for map in ones(upper).map(|map| of_eight + map) {
                for at in ones(*maps.split_off_first()?).map(|at| 8 * map + at) {
                    if at >= wanted {
                        return (at < len).then_some(octets);
                    }
                    octets[FRONT + at] ^= own.split_off_first()?;
                }
            }
        }
        Some(octets)
    }

    /// Forgets what was [kept](Self::keep).
    pub(super) fn forget(&mut self, kept: &[u8]) {
        let entry = kept.first().filter(|&&number| number != NONE).map(|&number| usize::from(number) - 1);
        if let Some(entry) = entry.and_then(|at| self.entries.get_mut(at)) {
            entry.users -= 1;
        }
    }

    /// What every string that begins with these octets is kept with at its second place: at most [`FRONT`] octets count.
    pub(super) fn head(begins: &[u8]) -> Vec<u8> {
        let mut head = Vec::new();
        pack(begins.get(..FRONT).unwrap_or(begins), &mut head);
        head
    }

    /// Makes a string an entry, if there is room, or one that nobody uses.
    fn enter(&mut self, octets: &[u8]) -> Option<usize> {
        if octets.len() > ENTRY_OCTETS_MAX {
            return None;
        }
        let entry = Entry { octets: octets.into(), users: 0 };
        if self.entries.len() < ENTRIES_MAX {
            self.entries.push(entry);
            return Some(self.entries.len() - 1);
        }
        let free = self.entries.iter().position(|entry| entry.users == 0)?;
        self.entries[free] = entry;
        Some(free)
    }
}

/// How many octets of a string are its own: those that are not as in an entry of its length, or not zero where there is none.
fn size(octets: &[u8], entry: &[u8]) -> usize {
    // Counts of so few fit into an octet each, which the compiler makes vectors of.
    const PART: usize = 128;
    let differing = |part: &[u8], of_entry: &[u8]| {
        usize::from(part.iter().zip(of_entry).fold(0u8, |count, (own, other)| count + u8::from(own != other)))
    };
    match entry {
        [] => octets.chunks(PART).map(|part| differing(part, &[0; PART])).sum(),
        _ => octets.chunks(PART).zip(entry.chunks(PART)).map(|(part, other)| differing(part, other)).sum(),
    }
}

/// Writes a string, less an entry of its length or none, by way of room for its bits, its own octets and all of it.
fn write(
    number: u8,
    head: &[u8],
    [rest, entry]: [&[u8]; 2],
    [bits, own, kept]: [&mut Vec<u8>; 3],
) -> Box<[u8]> {
    bits.clear();
    own.clear();
    kept.clear();
    for (at, eight) in (0..).step_by(8).zip(rest.chunks(8)) {
        let of_entry = entry.get(at..at + eight.len()).unwrap_or_default();
        let differing = word(eight) ^ word(of_entry);
        if differing == 0 {
            bits.push(0);
            continue;
        }
        let differing = differing.to_le_bytes();
        bits.push(bits_of(&differing));
        own.extend(differing.into_iter().filter(|&octet| octet != 0));
    }
    kept.push(number);
    pack(head, kept);
    if number == NONE {
        // A string of 4 GiB is no session.
        kept.extend_from_slice(&u32::try_from(rest.len()).unwrap_or(u32::MAX).to_le_bytes());
    }
    kept.extend(bits.chunks(8).map(bits_of));
    kept.extend(bits.iter().filter(|&&octet| octet != 0));
    kept.extend_from_slice(own);
    kept.as_slice().into()
}

/// Up to eight octets as a number.
fn word(octets: &[u8]) -> u64 {
    match octets.first_chunk() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => octets.iter().rev().fold(0, |word, &octet| word << 8 | u64::from(octet)),
    }
}

/// Which of up to eight octets are not zero.
fn bits_of(octets: &[u8]) -> u8 {
    match word(octets) {
        0 => 0,
        _ => (0..).zip(octets).fold(0, |bits, (at, &octet)| bits | u8::from(octet != 0) << at),
    }
}

/// The places of the bits that are set, the lowest first.
fn ones(mut bits: u8) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let at = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (at < 8).then_some(at)
    })
}

/// Packs up to eight octets as Cap'n Proto's encoding does, without its runs: a tag octet whose bits say which are not zero, then those.
fn pack(octets: &[u8], to: &mut Vec<u8>) {
    to.push(bits_of(octets));
    to.extend(octets.iter().filter(|&&octet| octet != 0));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A session has more octets than the front.
    fn octets() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![3 => Just(0u8), 1 => any::<u8>()], FRONT..300)
    }

    proptest! {
        #[test]
        fn octets_come_back(all in prop::collection::vec((octets(), 0usize..40, any::<u8>()), 1..40)) {
            let mut dictionary = Dictionary::default();
            let mut before: Vec<(Vec<u8>, Box<[u8]>)> = Vec::new();
            for (octets, like, change) in all {
                // Some are those of before with a change or two, some of which are gone.
                let octets = match before.get(like) {
                    Some((other, _)) => {
                        let mut octets = other.clone();
                        let at = usize::from(change) % octets.len();
                        octets[at] ^= change;
                        octets
                    }
                    None => octets,
                };
                let kept = dictionary.keep(&octets);
                prop_assert!(kept[1..].starts_with(&Dictionary::head(&octets)));
                before.push((octets, kept));
                if change % 3 == 0 {
                    let (_, gone) = before.swap_remove(like % before.len());
                    dictionary.forget(&gone);
                }
                for (octets, kept) in &before {
                    prop_assert_eq!(dictionary.read(kept), Some(octets.clone()));
                    let first = usize::from(change);
                    let read = dictionary.read_first(kept, first).unwrap();
                    prop_assert!(octets.starts_with(&read) && read.len() >= first.min(octets.len()));
                }
            }
        }
    }

    #[test]
    fn alike_strings_take_little_and_the_room_for_entries_is_bounded() {
        let string = |n: u32| {
            let mut octets: Vec<u8> = (0..400u32).map(|at| (at * 7 + 1).to_le_bytes()[0]).collect();
            octets[100..104].copy_from_slice(&n.to_le_bytes());
            octets
        };
        let mut dictionary = Dictionary::default();
        let kept: Vec<_> = (0..1000).map(|n| dictionary.keep(&string(n))).collect();
        assert_eq!(dictionary.entries.len(), 1);
        assert!(kept.iter().all(|kept| kept.len() < 30), "{}", kept[999].len());
        kept.iter().for_each(|kept| dictionary.forget(kept));
        assert_eq!(dictionary.entries[0].users, 0);
        // Strings that are like no other.
        let strange = |n: u32| -> Vec<u8> {
            let mut state = n;
            let next = |_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            };
            (0..500).map(next).collect()
        };
        let kept: Vec<_> = (0..1000).map(|n| dictionary.keep(&strange(n))).collect();
        assert_eq!(dictionary.entries.len(), ENTRIES_MAX);
        for (n, kept) in (0..).zip(&kept) {
            assert_eq!(dictionary.read(kept), Some(strange(n)));
        }
        kept.iter().for_each(|kept| dictionary.forget(kept));
        // There is room for others again.
        let again = dictionary.keep(&string(1));
        let other = dictionary.keep(&string(2));
        assert!(other.len() < 30, "{} {}", other.len(), again.len());
        assert_eq!(dictionary.read(&[9]), None);
    }
}
