//! The heap of the process.

/// Keeps pieces of one size together, so that what a PFCP request needs for a moment leaves no holes between what stays of its
/// session: `docs/decisions/0032-heap.md`.
#[global_allocator]
static HEAP: mimalloc::MiMalloc = mimalloc::MiMalloc;
