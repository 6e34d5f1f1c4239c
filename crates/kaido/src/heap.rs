//! The C library's heap, as a node needs it.

/// Keeps the heap dense. glibc sets small pieces that are freed apart by their size, unmerged (fastbins): those of a PFCP request
/// lie between what stays of its session, and fit nothing after it. A million sessions of Open5GS took 300 MB more so.
pub(crate) fn keep_dense() {
    #[cfg(target_env = "gnu")]
    // SAFETY: called before there is any other thread; it sets a number.
    unsafe {
        // Refused by none that have it; without, memory is all that is lost.
        let _ = libc::mallopt(libc::M_MXFAST, 0);
    }
}
