//! A batch: the unit in which packets go through the engine.

use arrayvec::ArrayVec;

use crate::frame::Frame;

/// Most frames of a batch.
pub const BATCH_MAX: usize = 32;

/// Up to [`BATCH_MAX`] frames, in the order in which they arrived.
pub type Batch = ArrayVec<Frame, BATCH_MAX>;
