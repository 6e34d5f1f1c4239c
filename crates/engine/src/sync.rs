//! The atomics and cells that loom or shuttle exchange for their own when they check the model.

pub(crate) use kaido_xsk::sync::{AtomicU32, AtomicU64, Ordering, UnsafeCell, fence};
