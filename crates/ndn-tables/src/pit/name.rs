//! Names of pending Interests: 128 octets in the entry, the rest in pieces behind it.

use super::entry::{Entry, NAME_INLINE};
use super::limits::NAME_CHUNK;
use super::{Pit, Slot};

#[derive(Clone, Copy, Debug)]
pub(super) struct NameChunk(pub(super) [u8; NAME_CHUNK]);

impl Pit {
    /// The name of an entry; none of one that was erased.
    pub fn name(&self, slot: Slot) -> Vec<u8> {
        let Some(entry) = self.get(slot) else { return Vec::new() };
        self.name_pieces(entry, usize::from(entry.name_len)).0.flatten().copied().collect()
    }

    #[inline]
    pub(super) fn has_name(&self, entry: &Entry, name: &[u8]) -> bool {
        if usize::from(entry.name_len) != name.len() {
            return false;
        }
        if name.len() <= NAME_INLINE {
            return &entry.name[..name.len()] == name;
        }
        self.name_pieces(entry, name.len()).eq_octets(name)
    }

    /// The name of an entry, in pieces.
    #[inline]
    pub(super) fn name_pieces<'p>(
        &'p self,
        entry: &'p Entry,
        len: usize,
    ) -> Pieces<impl Iterator<Item = &'p [u8]>> {
        let inline = &entry.name[..len.min(NAME_INLINE)];
        let mut left = len - inline.len();
        let more = self.names.iter(entry.rest().name_more).map(move |chunk| {
            let piece = &chunk.0[..left.min(NAME_CHUNK)];
            left -= piece.len();
            piece
        });
        Pieces(std::iter::once(inline).chain(more))
    }

    /// Keeps what of a name does not fit into its entry.
    #[cold]
    pub(super) fn put_rest(&mut self, slot: u32, rest: &[u8]) -> bool {
        let chain = &mut self.entries[slot as usize].rest_mut().name_more;
        // The last piece first, so that the chain begins with the first.
        rest.chunks(NAME_CHUNK).rev().all(|piece| {
            let mut chunk = NameChunk([0; NAME_CHUNK]);
            chunk.0[..piece.len()].copy_from_slice(piece);
            self.names.push(chain, chunk)
        })
    }
}

/// Octets in pieces.
pub(super) struct Pieces<I>(I);

impl<'p, I: Iterator<Item = &'p [u8]>> Pieces<I> {
    /// Hands each piece over.
    pub(super) fn each(self, each: impl FnMut(&'p [u8])) {
        self.0.for_each(each);
    }

    pub(super) fn eq_octets(self, octets: &[u8]) -> bool {
        let mut rest = octets;
        for piece in self.0 {
            match rest.strip_prefix(piece) {
                Some(after) => rest = after,
                None => return false,
            }
        }
        rest.is_empty()
    }

    /// Whether the last octets are these.
    pub(super) fn ends_with(self, end: &[u8; 32]) -> bool {
        let mut last = [0; 32];
        for piece in self.0 {
            let keep = 32usize.saturating_sub(piece.len());
            let taken = 32 - keep;
            last.copy_within(taken.., 0);
            last[keep..].copy_from_slice(&piece[piece.len() - taken..]);
        }
        last == *end
    }
}
