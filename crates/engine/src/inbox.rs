//! What a running worker is told of its ports: that one has another queue now, or another address.
//!
//! Looked at once a round, for the price of one load while nothing was said.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::notifier::Notifier;
use crate::port::{Port, PortId};

/// What the interface behind a port is, which may change while the node runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortLink {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Largest IP packet it takes, in bytes.
    pub mtu: usize,
    /// The node's own addresses on it.
    pub addresses: Vec<IpAddr>,
}

/// Something that changed about a port.
pub enum PortChange {
    /// Its packets come and go by another queue, which the worker takes over between two rounds.
    Queue(Box<dyn Port>),
    /// Its interface has another Ethernet address, MTU or other addresses.
    Link(Arc<PortLink>),
}

impl fmt::Debug for PortChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(_) => f.write_str("Queue"),
            Self::Link(link) => f.debug_tuple("Link").field(link).finish(),
        }
    }
}

#[derive(Default)]
struct Messages {
    changes: Vec<(PortId, PortChange)>,
    /// Queues that were replaced. Closing one may take a while, so the worker leaves that to who replaced it.
    replaced: Vec<Box<dyn Port>>,
}

/// Where one worker hears of changes of its ports.
#[derive(Default)]
pub struct Inbox {
    is_waiting: AtomicBool,
    messages: Mutex<Messages>,
    /// Of the worker, once it runs.
    notifier: Mutex<Option<Arc<Notifier>>>,
}

impl Inbox {
    /// Tells the worker, and wakes it if it sleeps.
    pub fn tell(&self, port: PortId, change: PortChange) {
        self.lock().changes.push((port, change));
        // Release: who sees it finds the message, which the lock sees to anyway.
        self.is_waiting.store(true, Ordering::Release);
        self.wake();
    }

    /// Wakes the worker if it sleeps, to look whether it is to end.
    pub fn wake(&self) {
        let notifier = self.notifier.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(notifier) = &*notifier {
            notifier.notify();
        }
    }

    /// The queues that the worker has replaced since the last call: to be closed by dropping them.
    pub fn take_replaced(&self) -> Vec<Box<dyn Port>> {
        std::mem::take(&mut self.lock().replaced)
    }

    /// Whether the worker has taken all that it was told.
    pub fn is_empty(&self) -> bool {
        !self.is_waiting()
    }

    pub(crate) fn attach(&self, notifier: &Arc<Notifier>) {
        *self.notifier.lock().unwrap_or_else(PoisonError::into_inner) = Some(notifier.clone());
    }

    #[inline]
    pub(crate) fn is_waiting(&self) -> bool {
        self.is_waiting.load(Ordering::Acquire)
    }

    pub(crate) fn take(&self) -> Vec<(PortId, PortChange)> {
        let mut messages = self.lock();
        // Under the lock: what is told from now on sets it again.
        self.is_waiting.store(false, Ordering::Relaxed);
        std::mem::take(&mut messages.changes)
    }

    pub(crate) fn give_back(&self, queue: Box<dyn Port>) {
        self.lock().replaced.push(queue);
    }

    fn lock(&self) -> MutexGuard<'_, Messages> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").field("is_waiting", &self.is_waiting()).finish_non_exhaustive()
    }
}
