//! The atomics, locks and cells that the model checkers loom and shuttle exchange for their own.

#[cfg(not(any(loom, shuttle)))]
pub(crate) use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{
    Arc, Mutex,
    atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub(crate) use loom::cell::UnsafeCell;

/// The standard cell behind loom's interface.
#[cfg(not(loom))]
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    #[cfg(shuttle)]
    pub(crate) fn new(value: T) -> Self {
        Self(std::cell::UnsafeCell::new(value))
    }

    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Keeps what one core writes off the lines that others read. Two lines: the adjacent-line prefetcher
/// pairs them.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub(crate) T);

/// Locks, also after a writer panicked: every structure here is valid between two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> impl std::ops::DerefMut<Target = T> + '_ {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Lets readers get on while a writer waits for them: shortly at first, then 100 us at a time.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn pause(attempt: u32) {
    if attempt < 16 {
        std::thread::yield_now();
    } else {
        std::thread::sleep(std::time::Duration::from_micros(100));
    }
}

#[cfg(loom)]
pub(crate) fn pause(_attempt: u32) {
    loom::thread::yield_now();
}

#[cfg(shuttle)]
pub(crate) fn pause(_attempt: u32) {
    shuttle::thread::yield_now();
}
