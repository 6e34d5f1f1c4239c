//! Erasing what lies below a prefix, some packets at a time: a CS of millions is looked through while packets pass.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::Cs;

/// How far an erasure has come, for who waits for it; and that they wait no longer.
#[derive(Debug, Default)]
pub struct Erasure {
    erased: AtomicU32,
    next: AtomicU32,
    is_cut: AtomicBool,
}

impl Erasure {
    /// Packets that it has erased so far.
    pub fn erased(&self) -> u32 {
        self.erased.load(Ordering::Relaxed)
    }

    /// Where it goes on: every packet before has been looked at.
    pub fn next(&self) -> u32 {
        self.next.load(Ordering::Relaxed)
    }

    /// Whether it is to end where it is.
    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Has it end where it is.
    pub fn cut(&self) {
        // Relaxed: that it has ended is told by other means.
        self.is_cut.store(true, Ordering::Relaxed);
    }
}

/// An erasure at work.
#[derive(Clone, Debug)]
pub struct CsErasure {
    prefix: Vec<u8>,
    most: u32,
    erased: u32,
    next: u32,
    told: Arc<Erasure>,
}

impl CsErasure {
    /// The erasure of up to `most` packets whose names have a prefix, which goes on at `next`, or begins at 0.
    pub fn new(prefix: Vec<u8>, most: u32, next: u32) -> Self {
        let told = Arc::new(Erasure { next: AtomicU32::new(next), ..Erasure::default() });
        Self { prefix, most, erased: 0, next, told }
    }

    /// What is told of it while it goes on.
    pub fn told(&self) -> &Arc<Erasure> {
        &self.told
    }
}

impl Cs {
    /// Goes on with an erasure, over so many packets at most; whether it has come to its end. What comes in meanwhile may
    /// be erased or not.
    pub fn erase(&mut self, erasing: &mut CsErasure, looked_at_max: u32) -> bool {
        let len = u32::try_from(self.entries.len()).unwrap_or(u32::MAX);
        let end = erasing.next.saturating_add(looked_at_max).min(len);
        while erasing.next < end && erasing.erased < erasing.most {
            let entry = &self.entries[erasing.next as usize];
            if entry.is_live
                && usize::from(entry.name_len) >= erasing.prefix.len()
                && self.payloads.is_at(entry.first_block, entry.name_at.into(), &erasing.prefix)
            {
                self.remove(erasing.next);
                erasing.erased += 1;
            }
            erasing.next += 1;
        }
        erasing.told.erased.store(erasing.erased, Ordering::Relaxed);
        erasing.told.next.store(erasing.next, Ordering::Relaxed);
        erasing.next >= len || erasing.erased == erasing.most || erasing.told.is_cut()
    }
}
