//! PFCP (TS 29.244) on N4 and Sxb: the control interface of the user plane.
//!
//! [`Endpoint`] is the user plane's end over any [`SessionService`](kaido_n4::SessionService);
//! [`Smf`] is a small control plane, for `kaido sim` and tests. Neither owns a socket or a clock: datagrams
//! and [`Instants`]s go in, [`Transmit`]s come out. Elements are read and written with `rs-pfcp` where it keeps
//! everything; headers, lengths, nesting and causes are checked here, whole, before anything changes.
//!
//! ```text
//!  frame ── walk ── decode ──▶ kaido_n4 ──▶ encode
//!    └ transaction, association, counters ┘
//! ```

#![forbid(unsafe_code)]

mod answers;
mod association;
mod carried;
mod client;
mod clock;
mod counters;
mod decode;
mod encode;
mod endpoint;
mod features;
mod frame;
mod keyed;
mod node_id;
mod procedure;
mod refusals;
mod throttle;
mod transaction;
mod udp;
mod walk;

pub use carried::carried;
pub use client::{
    Accounting, DedicatedFlow, Dialect, PduSession, SessionTemplate, Smf, SmfConfig, SmfError, SmfEvent,
};
pub use counters::{Counters, Discard, Sample, cause_name};
pub use decode::Features;
pub use endpoint::{
    Config, Endpoint, Limits, NoRecord, NotReleased, PFCP_PORT, Peer, PeerPort, UnreportedUsage,
};
pub use frame::{BUNDLED_MAX, DATAGRAM_MAX};
pub use node_id::{NodeId, NodeIdError};
pub use procedure::{
    Phase, Procedure, ProcedureEnd, ProcedureTracing, RuleChanges, RuleCounts, TracedMessages,
};
pub use refusals::message_name;
pub use rs_pfcp::message::MsgType;
pub use transaction::{Instants, Retransmission, Transmit};
pub use udp::send_all;
