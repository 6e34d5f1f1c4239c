//! How much one pending Interest has of anything.

use crate::names::DEPTH_MAX;

/// Downstreams that can wait for one entry.
pub const DOWNSTREAMS_MAX: u8 = 128;

/// Upstreams that can be asked for one entry.
pub const UPSTREAMS_MAX: u8 = 64;

/// Entries of one name: of other selectors or implicit digests. All are looked at for its Data.
pub const SIBLINGS_MAX: usize = 8;

/// Octets of a name in a link of the chain that goes on where its entry ends.
pub(super) const NAME_CHUNK: usize = 252;
/// The depth under which Interests of more than [`DEPTH_MAX`] components are counted.
pub(super) const BEYOND: usize = DEPTH_MAX + 1;
