//! A pool with an end.

use std::ops::Deref;

use super::FramePool;

/// A pool that is [closed](FramePool::close) when this is dropped. A frame that is still elsewhere then keeps the memory for as long as
/// the process lives: so this is dropped behind all that has frames.
#[derive(Debug)]
pub struct OwnedPool(pub &'static FramePool);

impl Deref for OwnedPool {
    type Target = &'static FramePool;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for OwnedPool {
    fn drop(&mut self) {
        if let Err(frames) = self.0.close() {
            tracing::debug!(frames, "frames are in use; their pool stays");
        }
    }
}
