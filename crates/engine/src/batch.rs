//! A batch: the unit in which packets go through the engine.

use std::ops::{Deref, DerefMut};

use arrayvec::ArrayVec;

use crate::frame::Frame;

/// Most frames of a batch. It has room for several groups, each of which overlaps its waiting for memory with the work on the
/// others. What is done once for a batch weighs little.
pub const BATCH_MAX: usize = 64;

/// Up to [`BATCH_MAX`] frames, in the order in which they arrived.
///
/// They lie behind a pointer, so that batches change hands by an exchange of two pointers, whatever is in them. Making one
/// allocates: the fast path keeps those it has.
#[derive(Debug, Default)]
pub struct Batch(Box<ArrayVec<Frame, BATCH_MAX>>);

impl Batch {
    /// A batch without frames.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a received segment to its packet, of which `partial` is what came before, and the packet to the batch with its last.
    #[cfg(not(any(loom, shuttle)))]
    #[inline]
    pub(crate) fn push_segment(&mut self, partial: &mut Option<Frame>, segment: Frame, is_continued: bool) {
        let packet = match partial.take() {
            None => segment,
            Some(mut head) => {
                head.push_segment(segment);
                head
            }
        };
        if is_continued {
            *partial = Some(packet);
        } else {
            self.push(packet);
        }
    }
}

impl Deref for Batch {
    type Target = ArrayVec<Frame, BATCH_MAX>;

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Batch {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// # Panics
/// With more than [`BATCH_MAX`] frames.
impl FromIterator<Frame> for Batch {
    fn from_iter<I: IntoIterator<Item = Frame>>(frames: I) -> Self {
        Self(Box::new(frames.into_iter().collect()))
    }
}
