//! Values of which many sessions have the same.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// The last ones that were asked for. An SMF makes its sessions alike, so few are enough, and what none asks for any more is let
/// go of.
const REMEMBERED: usize = 64;

/// The last values, of which each is kept once.
#[derive(Debug)]
pub(crate) struct Interner<T>(Mutex<VecDeque<Arc<T>>>);

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: PartialEq> Interner<T> {
    /// The value, as others may have it.
    pub(crate) fn share(&self, value: T) -> Arc<T> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.iter().position(|known| **known == value).and_then(|at| last.remove(at));
        let value = known.unwrap_or_else(|| Arc::new(value));
        last.push_front(Arc::clone(&value));
        last.truncate(REMEMBERED);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_values_are_shared() {
        let shared = Interner::default();
        let first = shared.share(7);
        assert!(Arc::ptr_eq(&first, &shared.share(7)));
        (100..163).for_each(|other| drop(shared.share(other)));
        assert!(Arc::ptr_eq(&first, &shared.share(7)), "it is among the last 64");
        (200..264).for_each(|other| drop(shared.share(other)));
        assert_eq!(Arc::strong_count(&first), 1, "nobody else has it any more");
        assert!(!Arc::ptr_eq(&first, &shared.share(7)));
    }
}
