//! Strings of octets of which most are zero or as in another string, as packed sessions are: what a rule does not have takes an
//! octet that says so, and sessions that one SMF makes differ in addresses, TEIDs and times.
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
}

impl Dictionary {
    /// A shorter form of a string. It is to be [forgotten](Self::forget) when it is of no use any more.
    pub(super) fn keep(&mut self, octets: &[u8]) -> Box<[u8]> {
        let (front, rest) = octets.split_at(octets.len().min(FRONT));
        let alone = size(rest, &[]);
        let same = self.entries.iter().enumerate().filter(|(_, entry)| entry.octets.len() == rest.len());
        let sizes = same.map(|(at, entry)| (size(rest, &entry.octets), at));
        let best = sizes.min().filter(|(size, _)| *size < alone);
        let is_alike = best.is_some_and(|(size, _)| size * 100 <= alone * ALIKE_PERCENT);
        let entry = if is_alike { None } else { self.enter(rest) };
        match entry.or(best.map(|(_, at)| at)) {
            Some(at) => {
                let Entry { octets, users } = &mut self.entries[at];
                *users += 1;
                // There are no more of them.
                write(u8::try_from(at + 1).unwrap_or(NONE), front, rest, octets)
            }
            None => write(NONE, front, rest, &[]),
        }
    }

    /// The string that was [kept](Self::keep); `None` of what was not.
    pub(super) fn read(&self, kept: &[u8]) -> Option<Vec<u8>> {
        let (&number, kept) = kept.split_first()?;
        let mut left = kept.iter().copied();
        let mut octets = Vec::new();
        unsqueeze(left.next()?, &mut left, &mut octets)?;
        let entry = match number {
            NONE => &[][..],
            _ => &self.entries.get(usize::from(number) - 1)?.octets,
        };
        let len = match number {
            NONE => u32::from_le_bytes([left.next()?, left.next()?, left.next()?, left.next()?]) as usize,
            _ => entry.len(),
        };
        let maps = len.div_ceil(8);
        let upper: Vec<u8> = left.by_ref().take(maps.div_ceil(8)).collect();
        let mut bits = Vec::with_capacity(maps + 7);
        upper.iter().try_for_each(|&upper| unsqueeze(upper, &mut left, &mut bits))?;
        bits.truncate(maps);
        bits.iter().try_for_each(|&bits| unsqueeze(bits, &mut left, &mut octets))?;
        octets.truncate(FRONT + len);
        octets.iter_mut().skip(FRONT).zip(entry).for_each(|(octet, of_entry)| *octet ^= of_entry);
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
    pub(super) fn front(begins: &[u8]) -> Vec<u8> {
        let mut front = Vec::new();
        squeeze(begins.get(..FRONT).unwrap_or(begins), &mut front);
        front
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

/// What is left of a string without an entry of its length, or without none.
fn rest_of<'o>(octets: &'o [u8], entry: &'o [u8]) -> impl Iterator<Item = u8> + 'o {
    octets.iter().zip(entry.iter().chain(std::iter::repeat(&0))).map(|(octet, of_entry)| octet ^ of_entry)
}

/// How many octets of a string are its own.
fn size(octets: &[u8], entry: &[u8]) -> usize {
    match entry {
        [] => octets.iter().filter(|&&octet| octet != 0).count(),
        _ => octets.iter().zip(entry).filter(|(octet, of_entry)| octet != of_entry).count(),
    }
}

fn write(number: u8, front: &[u8], rest: &[u8], entry: &[u8]) -> Box<[u8]> {
    let rest_len = rest.len();
    let rest: Vec<u8> = rest_of(rest, entry).collect();
    let mut kept = vec![number];
    let mut whole = [0; FRONT];
    whole.iter_mut().zip(front).for_each(|(octet, &own)| *octet = own);
    squeeze(&whole, &mut kept);
    if number == NONE {
        // A string of 4 GiB is no session.
        kept.extend(u32::try_from(rest_len).unwrap_or(u32::MAX).to_le_bytes());
    }
    let bits: Vec<u8> = rest.chunks(8).map(bits_of).collect();
    kept.extend(bits.chunks(8).map(bits_of));
    kept.extend(bits.iter().chain(&rest).filter(|&&octet| octet != 0));
    kept.into_boxed_slice()
}

/// Which of up to eight octets are not zero.
fn bits_of(octets: &[u8]) -> u8 {
    (0..).zip(octets).fold(0, |bits, (at, &octet)| bits | u8::from(octet != 0) << at)
}

/// Writes up to eight octets without those that are zero.
fn squeeze(octets: &[u8], to: &mut Vec<u8>) {
    to.push(bits_of(octets));
    to.extend(octets.iter().filter(|&&octet| octet != 0));
}

/// Adds the eight octets that the bits are of.
fn unsqueeze(bits: u8, from: &mut impl Iterator<Item = u8>, to: &mut Vec<u8>) -> Option<()> {
    for at in 0..8 {
        to.push(if bits >> at & 1 == 0 { 0 } else { from.next()? });
    }
    Some(())
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
                prop_assert!(kept[1..].starts_with(&Dictionary::front(&octets)));
                before.push((octets, kept));
                if change % 3 == 0 {
                    let (_, gone) = before.swap_remove(like % before.len());
                    dictionary.forget(&gone);
                }
                for (octets, kept) in &before {
                    prop_assert_eq!(dictionary.read(kept), Some(octets.clone()));
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
