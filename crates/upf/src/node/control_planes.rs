//! GTP-U messages of control planes that come over N4, on their way to the workers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use kaido_engine::{DropReason, RateLimit};

use crate::UpfDrop;
use crate::ids::EndpointId;

/// Messages that wait for the workers at most, and that are taken in a second: they are few, and a flood of them takes the
/// workers' time.
const WAITING_MAX: usize = 256;
const TAKEN_PER_SECOND: u32 = 1000;

/// A GTP-U message of a control plane that came over N4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlPlaneMessage {
    /// Who sent it.
    pub from: SocketAddr,
    /// Which of the node's GTP-U addresses it came to.
    pub endpoint: EndpointId,
    /// The message.
    pub octets: Box<[u8]>,
}

/// What the workers take out at a time.
#[derive(Debug, Default)]
pub(crate) struct TakenBatch {
    pub(crate) messages: VecDeque<ControlPlaneMessage>,
    /// Messages of strangers that were refused.
    pub(crate) strangers: u64,
    /// Messages that were refused as there were too many.
    pub(crate) beyond_rate: u64,
}

impl TakenBatch {
    /// What was refused, by reason.
    pub(crate) fn refused(&self) -> [(DropReason, u64); 2] {
        [(UpfDrop::NOT_CONTROL_PLANE, self.strangers), (UpfDrop::CONTROL_PLANE_RATE, self.beyond_rate)]
    }
}

/// Messages that wait.
#[derive(Debug)]
pub(crate) struct ControlPlaneInbox {
    waiting: Mutex<(TakenBatch, RateLimit)>,
    /// Whether there is anything to take, so that workers that look need no lock.
    has_news: AtomicBool,
}

impl ControlPlaneInbox {
    pub(super) fn new() -> Self {
        let waiting = Mutex::new((TakenBatch::default(), RateLimit::new(TAKEN_PER_SECOND)));
        Self { waiting, has_news: AtomicBool::new(false) }
    }

    /// Puts a message in, or counts it as refused.
    pub(super) fn put(&self, message: ControlPlaneMessage, is_known: bool, now: Instant) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (taken, limit) = &mut *waiting;
        if !is_known {
            taken.strangers += 1;
        } else if taken.messages.len() >= WAITING_MAX || !limit.admit(now) {
            taken.beyond_rate += 1;
        } else {
            taken.messages.push_back(message);
        }
        // Under the lock, as in `take`: news that is set stays until what it is about was taken.
        self.has_news.store(true, Ordering::Relaxed);
    }

    /// Whether there is anything to take.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        // Relaxed: the lock orders the messages.
        self.has_news.load(Ordering::Relaxed)
    }

    /// Takes everything.
    pub(crate) fn take(&self) -> TakenBatch {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_news.store(false, Ordering::Relaxed);
        std::mem::take(&mut waiting.0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn strangers_and_what_is_beyond_the_bounds_are_counted() {
        let inbox = ControlPlaneInbox::new();
        let from = SocketAddr::from(([10, 0, 0, 1], 2152));
        let message = || ControlPlaneMessage { from, endpoint: EndpointId(0), octets: Box::new([0; 8]) };
        let now = Instant::now();
        assert!(!inbox.has_news());
        (0..WAITING_MAX + 3).for_each(|_| inbox.put(message(), true, now));
        inbox.put(message(), false, now);
        assert!(inbox.has_news());
        let taken = inbox.take();
        assert_eq!((taken.messages.len(), taken.beyond_rate, taken.strangers), (WAITING_MAX, 3, 1));
        assert!(!inbox.has_news() && inbox.take().messages.is_empty());
        let mut came = WAITING_MAX;
        while {
            inbox.put(message(), true, now);
            inbox.take().beyond_rate == 0
        } {
            came += 1;
        }
        assert_eq!(came, 1000);
        inbox.put(message(), true, now + Duration::from_secs(1));
        assert_eq!(inbox.take().messages.len(), 1);
    }
}
