//! Handles of pending Interests.

/// A handle of an entry: its number, and which of the Interests it is that have had that number. The handle of an entry that was
/// erased finds nothing, whoever has its number since, until the number was used 4096 times more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    pub(super) number: u32,
    pub(super) generation: u16,
}

impl Slot {
    pub(super) const fn new(number: u32, generation: u16) -> Self {
        Self { number, generation }
    }
}
