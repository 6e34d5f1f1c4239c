//! Reliability of a face (NDNLPv2): packets of the link are numbered and acknowledged, and sent again when they seem lost.
//!
//! ```text
//!  sent ──TxSequence─▶ Window ──Ack──▶ it has come, after so long
//!                        ├─ three later ones acknowledged ──┐
//!                        └─ none within the timeout ────────┴─▶ again, with a new number, three times at most
//!  received ──TxSequence─▶ acks ──▶ in the next packet to the peer, or soon in one of their own
//!            └─Sequence──▶ Recent: what has come before is acknowledged again and dropped
//! ```
//! What is kept is copied into memory of the face, so that no peer that acknowledges nothing holds frames of the pool. It sends nothing
//! by itself: the link does.

mod recent;
mod rtt;
#[cfg(test)]
mod tests;
mod window;

use std::time::Instant;

use recent::RecentSequences;
use window::Window;

/// Acknowledgements that wait, at most: as many as fit into a frame.
pub(crate) const ACKS_MAX: usize = 256;

/// What a face keeps.
#[derive(Debug)]
pub(crate) struct Reliability {
    window: Window,
    acks: Vec<u64>,
    recent: RecentSequences,
}

impl Reliability {
    /// Of a face whose packets of the link are numbered from `first` on.
    pub(crate) fn new(first: u64) -> Self {
        Self {
            window: Window::new(first),
            acks: Vec::with_capacity(ACKS_MAX),
            recent: RecentSequences::new(),
        }
    }

    /// Keeps a part of a packet of the network that is sent now; by which number it is to be acknowledged, if it is.
    pub(crate) fn keep<'p>(
        &mut self,
        parts: impl Iterator<Item = &'p [u8]>,
        packet: u64,
        now: Instant,
    ) -> Option<u64> {
        self.window.keep(parts, packet, now)
    }

    /// A number was acknowledged. What seems lost by that is handed to `again` with its new number; how many packets of the
    /// network were given up.
    pub(crate) fn acknowledged(
        &mut self,
        number: u64,
        now: Instant,
        mut again: impl FnMut(u64, &[u8]),
    ) -> u64 {
        self.window.acknowledge(number, now, &mut again)
    }

    /// Hands what waits for too long to `again` with its new number; how many packets of the network were given up.
    pub(crate) fn overdue(&mut self, now: Instant, mut again: impl FnMut(u64, &[u8])) -> u64 {
        self.window.overdue(now, &mut again)
    }

    /// A packet has come that is to be acknowledged; whether it has not come before. The oldest acknowledgement goes where there are
    /// too many.
    pub(crate) fn received(&mut self, number: u64, sequence: Option<u64>, now: Instant) -> bool {
        if self.acks.len() >= ACKS_MAX {
            self.acks.remove(0);
        }
        self.acks.push(number);
        let memory = self.window.memory();
        sequence.is_none_or(|sequence| self.recent.is_new(sequence, now, memory))
    }

    /// The acknowledgements that wait, the oldest first.
    pub(crate) fn acks(&self) -> &[u64] {
        &self.acks
    }

    /// So many of the acknowledgements were sent.
    pub(crate) fn take_acks(&mut self, count: usize) {
        self.acks.drain(..count.min(self.acks.len()));
    }

    /// Whether there is something to be done in time.
    pub(crate) fn waits(&self) -> bool {
        !self.acks.is_empty() || !self.window.is_empty()
    }

    /// Forgets what was under way.
    pub(crate) fn clear(&mut self) {
        self.window.clear();
        self.acks.clear();
    }
}
