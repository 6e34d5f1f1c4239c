//! Locks of what is never left half done.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The lock of what is never left half done.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
