//! What a worker counts on a shared queue: the figures by which source B judges contention, and what order costs.

use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

use super::DrainResult;
use crate::one_writer::add;

macro_rules! shared_counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// One worker's counters of one shared queue. Written by that worker alone.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub struct SharedCounters {
            $($name: AtomicU64,)*
        }

        /// The counters at one moment; added up over workers by `+=`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct SharedTotals {
            $($(#[doc = $doc])+ pub $name: u64,)*
        }

        impl SharedCounters {
            /// The counters now.
            pub fn totals(&self) -> SharedTotals {
                SharedTotals { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }

        impl AddAssign for SharedTotals {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

shared_counters! {
    /// Blocks claimed.
    blocks,
    /// Packets in them.
    packets,
    /// Compare-and-swaps of the queue's cursor.
    cas_attempts,
    /// Those of them that another worker beat.
    cas_retries,
    /// Cycles spent claiming blocks, the copy of their descriptors included.
    claim_cycles,
    /// Cycles from the claim until the function was done with the block, frames received into and given to the
    /// device included.
    process_cycles,
    /// Cycles of handing blocks in and sending what was ready; without order, of sending.
    commit_cycles,
    /// Times that the window was full: the head of the queue was not finished.
    window_stalls,
    /// Cycles until the worker had a block again after that.
    stall_cycles,
    /// Blocks sent by this worker.
    drained,
    /// Those of them that another worker had finished.
    drained_for_others,
}

#[cfg(not(any(loom, shuttle)))]
impl SharedCounters {
    pub(super) fn tried(&self, attempts: u32, retries: u32) {
        add(&self.cas_attempts, attempts.into());
        add(&self.cas_retries, retries.into());
    }

    pub(super) fn claimed(&self, packets: usize, cycles: u64) {
        add(&self.blocks, 1);
        add(&self.packets, packets as u64);
        add(&self.claim_cycles, cycles);
    }

    pub(super) fn stalled(&self) {
        add(&self.window_stalls, 1);
    }

    pub(super) fn stall_ended(&self, cycles: u64) {
        add(&self.stall_cycles, cycles);
    }
}

impl SharedCounters {
    pub(crate) fn finished(&self, process_cycles: u64, commit_cycles: u64, drained: DrainResult) {
        add(&self.process_cycles, process_cycles);
        add(&self.commit_cycles, commit_cycles);
        add(&self.drained, drained.blocks.into());
        add(&self.drained_for_others, drained.for_others.into());
    }
}
