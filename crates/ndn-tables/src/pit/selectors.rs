//! What selects Data besides the name.

use super::entry::flag;

/// What selects Data besides the name; entries of one name and different selectors are different entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Selectors {
    /// Data of longer names satisfies it too.
    pub can_be_prefix: bool,
    /// Stale Data from a cache does not.
    pub must_be_fresh: bool,
}

impl Selectors {
    #[inline]
    pub(super) fn flags(self) -> u8 {
        u8::from(self.can_be_prefix) * flag::CAN_BE_PREFIX
            + u8::from(self.must_be_fresh) * flag::MUST_BE_FRESH
    }
}
