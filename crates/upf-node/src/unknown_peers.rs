//! PFCP datagrams from whoever has no association: they wait until all known control planes were served.
//!
//! ```text
//!   socket ─▶ known? ─yes─▶ endpoint
//!                └─no─▶ a short queue, a few places for each source ─▶ some of it a turn ─▶ endpoint
//! ```
//! To look at a source is cheap, to answer is not: so a flood costs the node a receive call for each datagram, and its
//! control planes nothing.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// Datagrams that wait at most.
const WAITING_MAX: usize = 256;
/// Datagrams of one source that wait at most.
const PER_SOURCE_MAX: u8 = 4;
/// Octets of them all.
const OCTETS_MAX: usize = 1 << 20;
/// Datagrams that are served in a turn.
pub(super) const SERVED_A_TURN: usize = 64;

/// A datagram, who sent it, and to which of the sockets.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WaitingDatagram {
    pub(super) from: SocketAddr,
    pub(super) socket: usize,
    pub(super) datagram: Box<[u8]>,
}

/// What waits.
#[derive(Debug, Default)]
pub(super) struct UnknownPeers {
    waiting: VecDeque<WaitingDatagram>,
    sources: HashMap<IpAddr, u8>,
    octets: usize,
    dropped: u64,
}

impl UnknownPeers {
    /// Has a datagram wait, if there is room for it.
    pub(super) fn put(&mut self, from: SocketAddr, socket: usize, datagram: &[u8]) {
        let source = self.sources.get(&from.ip()).copied().unwrap_or_default();
        let is_full = self.waiting.len() >= WAITING_MAX || self.octets + datagram.len() > OCTETS_MAX;
        if is_full || source >= PER_SOURCE_MAX {
            self.dropped += 1;
            return;
        }
        self.sources.insert(from.ip(), source + 1);
        self.octets += datagram.len();
        self.waiting.push_back(WaitingDatagram { from, socket, datagram: datagram.into() });
    }

    /// The one that has waited longest.
    pub(super) fn take(&mut self) -> Option<WaitingDatagram> {
        let first = self.waiting.pop_front()?;
        self.octets -= first.datagram.len();
        if let Some(count) = self.sources.get_mut(&first.from.ip()) {
            *count -= 1;
            if *count == 0 {
                self.sources.remove(&first.from.ip());
            }
        }
        Some(first)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Datagrams that found no room so far.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(number: u32) -> SocketAddr {
        SocketAddr::from((number.to_be_bytes(), 8805))
    }

    #[test]
    fn what_waits_is_bounded_and_no_source_fills_it() {
        let mut unknown_peers = UnknownPeers::default();
        (0..1000).for_each(|_| unknown_peers.put(source(1), 0, &[1; 100]));
        assert_eq!((unknown_peers.waiting.len(), unknown_peers.dropped()), (4, 996));
        (2..1000).for_each(|number| unknown_peers.put(source(number), 0, &[1; 100]));
        assert_eq!(unknown_peers.waiting.len(), WAITING_MAX);
        let mut taken = 0;
        while let Some(first) = unknown_peers.take() {
            taken += 1;
            assert_eq!(first.datagram.len(), 100);
        }
        assert_eq!((taken, unknown_peers.octets, unknown_peers.sources.len()), (WAITING_MAX, 0, 0));
        unknown_peers.put(source(1), 3, &[7]);
        let expected = WaitingDatagram { from: source(1), socket: 3, datagram: [7].into() };
        assert_eq!((unknown_peers.take(), unknown_peers.is_empty()), (Some(expected), true));
        (0..100).for_each(|number| unknown_peers.put(source(number), 0, &[0; 65_000]));
        assert!(unknown_peers.octets <= OCTETS_MAX);
    }
}
