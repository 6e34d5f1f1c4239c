//! Frames kept while a run goes on, each capture with a bound.

use std::collections::VecDeque;

/// What is kept.
#[derive(Debug)]
pub(crate) struct Capture {
    /// By port: whether what it sends is kept, and whether what it receives.
    ports: Vec<[bool; 2]>,
    /// Most frames.
    limit: usize,
    /// Whether the latest are kept, or the first.
    cyclic: bool,
    /// Frames that were not kept, or not for good.
    pub(crate) missed: u64,
    pub(crate) frames: VecDeque<Captured>,
}

/// A frame.
#[derive(Clone, Debug)]
pub(crate) struct Captured {
    pub(crate) port: usize,
    pub(crate) received: bool,
    /// Nanoseconds since the run began.
    pub(crate) time_ns: u64,
    pub(crate) bytes: Vec<u8>,
}

impl Capture {
    /// A capture of some ports of `ports`.
    pub(crate) fn new(ports: usize, sent: &[usize], received: &[usize], limit: usize, cyclic: bool) -> Self {
        let kept = (0..ports).map(|port| [sent.contains(&port), received.contains(&port)]).collect();
        Self { ports: kept, limit, cyclic, missed: 0, frames: VecDeque::new() }
    }

    /// Keeps a frame, if it is to be kept and there is room.
    pub(crate) fn see(&mut self, port: usize, received: bool, time_ns: u64, bytes: &[u8]) {
        if !self.ports.get(port).is_some_and(|kept| kept[usize::from(received)]) {
            return;
        }
        if self.frames.len() >= self.limit {
            self.missed += 1;
            if !self.cyclic || self.frames.pop_front().is_none() {
                return;
            }
        }
        self.frames.push_back(Captured { port, received, time_ns, bytes: bytes.to_vec() });
    }
}
