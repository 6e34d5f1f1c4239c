//! Path management of GTP-U (TS 29.281 7.2): what control and workers share of it.
//!
//! ```text
//!   control: paths in use, timers ──▶ WorkerOrder::EchoRequest ──▶ worker ──▶ peer
//!        ▲                                                                     │
//!        └── WorkerEvent::EchoResponse ◀── worker, if it was awaited ◀─────────┘
//! ```

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How peers are asked whether they are there. By default they are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EchoSettings {
    /// From one Echo Request on a path to the next; `None` sends none. Not below 60 s (TS 29.281 7.2.1).
    pub interval: Option<Duration>,
    /// T3-RESPONSE: how long a response is waited for.
    pub t3: Duration,
    /// N3-REQUESTS: how often a request is sent in all.
    pub n3: u8,
}

impl Default for EchoSettings {
    fn default() -> Self {
        Self { interval: None, t3: Duration::from_secs(3), n3: 3 }
    }
}

/// Echo responses that are waited for. Only these are worth an event: what strangers send costs them nothing, and the
/// control plane may not be made to pay.
#[derive(Debug, Default)]
pub struct AwaitedEchoes {
    /// Sequence numbers by peer.
    awaited: Mutex<HashMap<IpAddr, u16>>,
    /// How many there are, to look at without the lock.
    count: AtomicUsize,
}

impl AwaitedEchoes {
    /// Waits for a response; what was waited for from this peer before is forgotten.
    pub(crate) fn expect(&self, peer: IpAddr, sequence: u16) {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.insert(peer, sequence);
        // Relaxed: a hint; whoever sees it too early or too late finds out under the lock, or by the next request.
        self.count.store(awaited.len(), Ordering::Relaxed);
    }

    /// Gives up waiting.
    pub(crate) fn forget(&self, peer: IpAddr) {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        awaited.remove(&peer);
        self.count.store(awaited.len(), Ordering::Relaxed);
    }

    /// Whether this response was waited for; it is not any more.
    pub(crate) fn take(&self, peer: IpAddr, sequence: u16) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        let found = awaited.get(&peer) == Some(&sequence);
        if found {
            awaited.remove(&peer);
            self.count.store(awaited.len(), Ordering::Relaxed);
        }
        found
    }
}

/// A time as a Recovery Time Stamp has it: seconds since 1900, modulo 2^32 (TS 29.281 8.8).
#[allow(clippy::cast_possible_truncation)] // Modulo 2^32.
pub(crate) fn recovery_time_stamp(time: SystemTime) -> u32 {
    const NTP_TO_UNIX_S: u64 = 2_208_988_800;
    let unix_s = time.duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs());
    (unix_s + NTP_TO_UNIX_S) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Conformance: TS 29.281 7.2.2 | An Echo Response that nobody asked for is not believed
    #[test]
    fn only_what_was_asked_for_is_taken_and_once() {
        let awaited = AwaitedEchoes::default();
        let [peer, other] = [1, 2].map(|host| IpAddr::from([10, 0, 0, host]));
        assert!(!awaited.take(peer, 7));
        awaited.expect(peer, 7);
        assert!(!awaited.take(peer, 8) && !awaited.take(other, 7));
        assert!(awaited.take(peer, 7));
        assert!(!awaited.take(peer, 7));
        awaited.expect(peer, 8);
        awaited.forget(peer);
        assert!(!awaited.take(peer, 8));
    }

    #[test]
    fn stamps_count_from_1900() {
        assert_eq!(recovery_time_stamp(UNIX_EPOCH), 2_208_988_800);
    }
}
