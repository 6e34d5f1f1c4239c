//! A port that sends and receives, turn by turn, on whatever thread.

use std::sync::Arc;

use kaido_engine::{Batch, Frame, PoolCache};

use super::OpenPort;
use super::line::{Line, send};
use crate::generator::{CompiledTraffic, Generator};
use crate::result::Volume;

/// A port with its generator.
#[derive(Debug)]
pub struct PortTurn {
    line: Line,
    generator: Generator,
    /// Made, but not yet taken by the port.
    waiting: Batch,
    /// Empty, for what comes in beside the port.
    aside: Batch,
    failed: u64,
}

impl PortTurn {
    /// The port of number `port` in the traffic, which alone sends its streams.
    pub fn new(line: Line, compiled: &Arc<CompiledTraffic>, port: usize) -> Self {
        let generator = Generator::new(compiled, port, (0, 1), line.open.pool, line.open.memory);
        Self { line, generator, waiting: Batch::new(), aside: Batch::new(), failed: 0 }
    }

    /// The port, for another run; what it has not taken is not sent.
    pub(super) fn into_port(mut self) -> OpenPort {
        for frame in self.waiting.drain(..) {
            self.line.cache.release(frame);
        }
        self.line.open
    }

    /// Makes what is due, if all that was made before is gone; `now_ns` as of [`Generator::fill`].
    pub fn make(&mut self, now_ns: u64) {
        if self.waiting.is_empty() {
            self.generator.fill(now_ns, &mut self.line.cache, &mut self.waiting);
        }
    }

    /// Sends what waits; how many packets the device took.
    pub fn push(&mut self) -> usize {
        let before = self.waiting.len();
        if before > 0 {
            self.failed += self.line.open.port.transmit(&mut self.line.cache, &mut self.waiting) as u64;
        }
        before - self.waiting.len()
    }

    /// What was made and waits to be sent.
    pub fn waiting(&self) -> &[Frame] {
        &self.waiting
    }

    /// When the next packet is due, as of [`Generator::next_due_ns`].
    pub fn next_due_ns(&self) -> Option<u64> {
        self.generator.next_due_ns()
    }

    /// What was made of each stream of the port, by its number.
    pub fn sent(&self) -> impl Iterator<Item = (usize, Volume)> + '_ {
        self.generator.sent()
    }

    /// Packets that the device could not send.
    pub fn failed(&self) -> u64 {
        self.failed
    }

    /// Whether nothing will come any more: the end of a file.
    pub fn is_exhausted(&self) -> bool {
        self.line.open.port.is_exhausted()
    }

    /// Adds what came to an empty batch, and answers ARP and neighbour discovery.
    pub fn receive(&mut self, batch: &mut Batch) {
        let Self { line, generator, aside, .. } = self;
        line.open.port.receive(&mut line.cache, batch);
        // They will be sent from again, and hold what came now.
        batch.iter().for_each(|frame| generator.forget(frame));
        let Some(neighbours) = &mut line.neighbours else { return };
        // Questions to our MAC address come in at the port even where there is one beside it.
        for answer in batch.iter().filter_map(|frame| neighbours.hear(frame.data())) {
            send(line.open.neighbours_at(), &mut line.cache, &answer, Some(&mut *generator));
        }
        if !line.open.has_side() {
            return;
        }
        // Nothing that comes in beside the port is counted.
        let side = line.open.neighbours_at();
        side.receive(&mut line.cache, aside);
        for frame in aside.drain(..) {
            generator.forget(&frame);
            if let Some(answer) = neighbours.hear(frame.data()) {
                send(side, &mut line.cache, &answer, Some(&mut *generator));
            }
            line.cache.release(frame);
        }
    }

    /// The frames of the port.
    pub fn cache(&mut self) -> &mut PoolCache {
        &mut self.line.cache
    }
}
