//! The shared queue: several workers take blocks of packets from one receive queue, whatever its protocol.
//!
//! RSS gives each worker a queue of its own and cannot split one flow; where all packets look alike to it (one tunnel),
//! one worker has all the work. Here the workers share the queue, receiving included:
//!
//! ```text
//!   RX ring ──claim──▶ worker 0: block k+1 ─▶ function ─┐
//!           ──claim──▶ worker 1: block k   ─▶ function ─┼─▶ commit ring ─▶ who completes its head sends
//!           ──claim──▶ worker 2: block k+2 ─▶ function ─┘   (or, without order, each worker sends)
//! ```
//!
//! A [`SharedQueue`] stands over a [`SharedDevice`] and gives each worker a [`Port`](crate::Port); functions and
//! [`Worker`](crate::Worker)s are used as ever. Modes: [`QueueMode`].

mod commit;
mod counters;
pub mod cycles;
#[cfg(not(any(loom, shuttle)))]
pub mod measure;
#[cfg(not(any(loom, shuttle)))]
mod memory;
#[cfg(not(any(loom, shuttle)))]
mod queue;

pub use commit::{CommitRing, DrainResult, WindowView};
pub use counters::{SharedCounters, SharedTotals};
#[cfg(not(any(loom, shuttle)))]
pub use memory::MemoryQueue;
#[cfg(not(any(loom, shuttle)))]
pub use queue::{SharedDevice, SharedPort, SharedQueue};

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use kaido_xsk::Desc;
use kaido_xsk::claim::Block;

use crate::batch::{BATCH_MAX, Batch};
use crate::frame::Frame;
use crate::pool::PoolCache;
use crate::port::PortId;

/// Most packets of a block: more would make the others wait longer for their turn, and fewer be taken too often.
pub const BLOCK_MAX: usize = 32;
const _: () = assert!(BLOCK_MAX <= BATCH_MAX, "a block finds room in an empty batch");

/// How workers get at what a device receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum QueueMode {
    /// A queue for each worker; the device (RSS, or a steering program) says what goes where.
    #[default]
    Rss,
    /// One queue for all workers; blocks leave as they are finished.
    Shared,
    /// One queue for all workers; blocks leave in the order of their arrival.
    SharedOrdered,
}

impl QueueMode {
    /// Every mode.
    pub const ALL: [Self; 3] = [Self::Rss, Self::Shared, Self::SharedOrdered];

    /// Its name in configurations and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rss => "rss",
            Self::Shared => "shared",
            Self::SharedOrdered => "shared-ordered",
        }
    }
}

impl fmt::Display for QueueMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Not the name of a mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no queue mode: \"rss\", \"shared\" and \"shared-ordered\" are")]
pub struct UnknownMode(String);

impl FromStr for QueueMode {
    type Err = UnknownMode;

    fn from_str(name: &str) -> Result<Self, UnknownMode> {
        Self::ALL.into_iter().find(|mode| mode.name() == name).ok_or_else(|| UnknownMode(name.into()))
    }
}

/// Whether blocks wait for those before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Blocks leave as they are finished.
    Free,
    /// Blocks leave in the order of their claims. All ports of such a worker must be shared with the other workers:
    /// packets of successive blocks are sent by different workers.
    Kept {
        /// Packets (descriptors, to be exact) that may be claimed beyond the first that has not left; rounded up to
        /// a power of two.
        window: u32,
    },
}

impl Order {
    /// The order kept with room for 32 full blocks.
    pub const KEPT: Self = Self::Kept { window: 1024 };
}

/// What a block puts out, until it is its turn to leave.
#[derive(Debug, Default)]
pub struct BlockOutput {
    /// Packets whose descriptors are made: who sends them copies these.
    pub(crate) ready: Vec<ReadyPackets>,
    /// The others, in their order: preferred ones, and those of ports that make no descriptors.
    pub(crate) departures: Vec<Departure>,
}

impl BlockOutput {
    /// Where those of a port are.
    pub(crate) fn of(&mut self, port: PortId) -> &mut ReadyPackets {
        let at = self.ready.iter().position(|ready| ready.port == port).unwrap_or_else(|| {
            let descs = Vec::with_capacity(BLOCK_MAX);
            self.ready.push(ReadyPackets { port, descs, packets: 0, bytes: 0 });
            self.ready.len() - 1
        });
        &mut self.ready[at]
    }
}

/// Packets of a block that are ready to leave by a port.
#[derive(Debug)]
pub(crate) struct ReadyPackets {
    pub(crate) port: PortId,
    pub(crate) descs: Vec<Desc>,
    pub(crate) packets: usize,
    pub(crate) bytes: usize,
}

/// Sends packets in two steps: any worker makes descriptors of those of its block, and who has the turn sends them.
pub trait ReadySender: Send + Sync {
    /// Makes descriptors of all packets of `batch`, which are the device's from here on, and adds them to `ready`; how many packets can
    /// never be sent, and were released.
    fn prepare(&self, pool: &mut PoolCache, batch: &mut Batch, ready: &mut Vec<Desc>) -> usize;

    /// Sends packets that are prepared, from the front, as far as the device has room; how many descriptors, which are whole packets.
    fn send(&self, ready: &[Desc]) -> usize;

    /// Makes packets again of those that were prepared and not sent; `batch` has room for them.
    fn take_back(&self, ready: &[Desc], batch: &mut Batch);

    /// Has the device send what it was given.
    fn push_out(&self, _pool: &mut PoolCache) {}
}

/// A frame on its way out of a block.
#[derive(Debug)]
pub(crate) struct Departure {
    /// Where it goes.
    pub(crate) port: PortId,
    /// The frame.
    pub(crate) frame: Frame,
    /// It leaves before others that are ready with it.
    pub(crate) high_priority: bool,
}

/// What a worker's port of a shared queue has beside other ports.
#[derive(Clone)]
pub struct Shared {
    /// Where finished blocks wait for their turn; `None` when they need not.
    pub(crate) commit: Option<Arc<CommitRing<BlockOutput>>>,
    /// What this worker has done on the queue.
    pub(crate) counters: Arc<SharedCounters>,
    /// Its way out for blocks that leave in turn.
    pub(crate) sender: Arc<dyn ReadySender>,
}

/// A block that a port has received and its worker has not finished.
#[derive(Debug)]
pub struct ClaimedBlock {
    pub(crate) block: Block,
    /// When it was claimed, in [`cycles`].
    pub(crate) at_cycles: u64,
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn modes_are_known_by_their_names() {
        for mode in QueueMode::ALL {
            assert_eq!(mode.name().parse(), Ok(mode));
        }
        let unknown = "ordered".parse::<QueueMode>().unwrap_err();
        assert!(unknown.to_string().starts_with("\"ordered\" is no queue mode"));
    }
}
