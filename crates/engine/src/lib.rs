//! The packet engine: what every network function stands on.
//!
//! ```text
//!  Port queue ──receive──▶ Batch (≤64 frames) ──▶ Function::process ──▶ Output ──transmit──▶ Port queue
//!       ▲                                              │
//!       └───────────── FramePool ◀── dropped, with a DropReason, counted per port
//! ```
//!
//! A [`Worker`] owns one queue of every port, a [`PoolCache`] and its own counters, and shares nothing
//! that it writes per packet. Frames never move in memory on their way through.

mod batch;
mod counters;
mod drop_reason;
mod drop_table;
pub mod fragment;
mod frame;
mod function;
mod icmp_error;
mod inbox;
pub mod lent;
mod limit;
pub mod netlink;
mod notifier;
mod one_writer;
mod pending;
mod polling;
mod pool;
pub mod port;
mod prefix_routes;
mod random;
pub mod reorder;
mod routes;
mod sampling;
pub mod shared;
pub mod steer;
mod sync;
mod timing;
mod trace;
mod trace_recorder;
pub mod tracer;
mod worker;

pub use batch::{BATCH_MAX, Batch};
pub use counters::{PortCounters, PortTotals, WorkerCounters};
pub use drop_reason::DropReason;
pub use drop_table::{DropEntry, DropTable};
pub use frame::{Frame, Segments};
pub use function::{Function, Output};
pub use icmp_error::{IcmpError, write_icmp_error};
pub use inbox::{Inbox, PortChange, PortLink};
pub use limit::RateLimit;
pub use notifier::Notifier;
pub use pending::{Pending, PendingQueue};
pub use polling::{PollState, PollTotals, WorkerSettings};
pub use pool::{FramePool, FrameSize, HEADROOM, LINK_HEADER, OwnedPool, PoolCache, PoolError};
pub use port::{KernelPath, Port, PortId};
pub use prefix_routes::PrefixRoute;
pub use routes::{
    ListedRoute, NeighbourRequest, NextHop, NextHops, Resolution, Route, RouteList, RouteTable, Routes, Vrf,
    VrfAddress, VrfId, VrfTable,
};
pub use sampling::{PacketSample, PacketSampler, PacketSamples};
pub use timing::{HistogramTotals, STAGES_MAX};
pub use trace_recorder::{Disposition, head_of};
pub use worker::{Worker, WorkerHandle};
