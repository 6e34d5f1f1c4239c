//! What the numbers of lines name, among which a node has its records: the only unsafe code of this crate.
//!
//! ```text
//!   number in a record ─▶ line: a counter, for good │ a rule, as long as the record │ a record of the table
//! ```
//! A record has numbers of 32 bits and not addresses, so that it fills one line. No type says of a number what lies in its line, and to
//! look that up would be one more line for each packet to wait for. So it is said here, and kept to by who takes lines:
//! [`FreeSlots`](crate::usage), and what becomes of rules ([`crate::record`]).
#![allow(unsafe_code, reason = "argued at each block")]

use std::sync::atomic::{AtomicU32, AtomicU64};

use kaido_table::{Atomics, Cells, LineSlab, LineValues};

/// A usage counter as it lies: one cache line.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct CounterLine {
    /// Four counts and the three counts at which something is due.
    pub(crate) counts: [AtomicU64; 7],
    /// Marks.
    pub(crate) marks: AtomicU32,
    /// When it counted last.
    pub(crate) used: AtomicU32,
}

const _: () = assert!(size_of::<CounterLine>() == 64);

// SAFETY: nine numbers, one behind the other, which fill 64 octets: `repr(C)`.
unsafe impl Atomics for CounterLine {}

/// Usage counters among lines.
pub(crate) fn counters(lines: LineSlab) -> Cells<CounterLine> {
    // SAFETY: a usage slot has the number of a line that was taken for a counter, by `FreeSlots` of the same lines, or that was
    // claimed for one when the node began. Such a line is never given back: its slot is, to the next counter. Slots that come from
    // without, as those of a store do, are claimed before any is asked for. Nobody outside this crate can ask for a slot.
    unsafe { Cells::among(lines) }
}

/// Rules among lines, each as a value of `T`.
pub(crate) fn rules<T>(lines: LineSlab) -> LineValues<T> {
    // SAFETY: a record's numbers are those of the lines that were put for it, into the one memory of its node. What owns the lines is
    // shared by the record and its copies, and dropped with the last of them: whoever borrows one of these is named as the owner.
    unsafe { LineValues::among(lines) }
}
