//! Strings of octets that stay for long, in pages of places of one size.
//!
//! Each request makes many short-lived lists. A long-lived string that the allocator puts into the room between them keeps the next
//! request from that room, so that memory grew by more than the strings. Here they lie by themselves.

/// Sizes of places are multiples of it.
const STEP: usize = 16;
/// Octets of a page, or one place where that is larger.
const PAGE: usize = 1 << 15;

/// A string, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    len: u32,
    place: u32,
}

/// Places of one size.
#[derive(Debug, Default)]
struct Places {
    pages: Vec<Box<[u8]>>,
    /// Places that were never used begin here.
    used: u32,
    free: Vec<u32>,
}

/// All strings, by their size.
#[derive(Debug, Default)]
pub(super) struct Slab {
    by_size: Vec<Places>,
}

impl Slab {
    /// Stores a string; `None` of one of 4 GiB, or where there are as many.
    pub(super) fn put(&mut self, octets: &[u8]) -> Option<Stored> {
        let len = u32::try_from(octets.len()).ok()?;
        let class = class(octets.len());
        if self.by_size.len() <= class {
            self.by_size.resize_with(class + 1, Places::default);
        }
        let places = &mut self.by_size[class];
        let place = match places.free.pop() {
            Some(place) => place,
            None => {
                let place = places.used;
                places.used = place.checked_add(1)?;
                if place as usize / per_page(class) == places.pages.len() {
                    places.pages.push(vec![0; per_page(class) * size(class)].into());
                }
                place
            }
        };
        let stored = Stored { len, place };
        let (page, at) = position(class, place);
        places.pages[page][at..at + octets.len()].copy_from_slice(octets);
        Some(stored)
    }

    /// A string that was [put](Self::put) here, and not taken away since.
    pub(super) fn get(&self, stored: Stored) -> &[u8] {
        let len = stored.len as usize;
        let class = class(len);
        let (page, at) = position(class, stored.place);
        let page = self.by_size.get(class).and_then(|places| places.pages.get(page));
        page.and_then(|page| page.get(at..at + len)).unwrap_or_default()
    }

    /// Takes a string away.
    pub(super) fn remove(&mut self, stored: Stored) {
        if let Some(places) = self.by_size.get_mut(class(stored.len as usize)) {
            places.free.push(stored.place);
        }
    }
}

fn class(len: usize) -> usize {
    len.div_ceil(STEP)
}

fn size(class: usize) -> usize {
    class.max(1) * STEP
}

fn per_page(class: usize) -> usize {
    (PAGE / size(class)).max(1)
}

/// The page of a place, and where in it.
fn position(class: usize, place: u32) -> (usize, usize) {
    let place = place as usize;
    (place / per_page(class), place % per_page(class) * size(class))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn strings_are_what_was_put_whatever_comes_and_goes(
            steps in proptest::collection::vec((any::<u8>(), 0usize..40_000, any::<bool>()), 1..300),
        ) {
            let (mut slab, mut there) = (Slab::default(), Vec::new());
            for (octet, len, removes) in steps {
                // Most are short, as sessions are.
                let len = if octet % 8 == 0 { len } else { len % 700 };
                let octets = vec![octet; len];
                there.push((slab.put(&octets).unwrap(), octets));
                if removes {
                    let (stored, _) = there.swap_remove(usize::from(octet) % there.len());
                    slab.remove(stored);
                }
                for (stored, octets) in &there {
                    prop_assert_eq!(slab.get(*stored), &octets[..]);
                }
            }
        }
    }

    #[test]
    fn places_are_used_again() {
        let mut slab = Slab::default();
        let first = slab.put(&[1; 100]).unwrap();
        slab.remove(first);
        assert_eq!(slab.put(&[2; 97]).map(|stored| stored.place), Some(first.place));
        for _ in 0..10_000 {
            let stored = slab.put(&[3; 50]).unwrap();
            slab.remove(stored);
        }
        assert_eq!(slab.by_size[class(50)].pages.len(), 1);
    }
}
