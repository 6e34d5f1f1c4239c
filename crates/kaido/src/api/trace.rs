//! Traces, as they go over the control socket.

use serde::{Deserialize, Serialize};

/// A question about a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub(crate) enum TraceQuestion {
    /// Begin one.
    Begin {
        /// Whose packets.
        of: TraceOf,
        /// Octets of each frame that are kept.
        snap: usize,
    },
    /// What it has brought since it was last read.
    Read {
        /// Its number.
        id: u32,
    },
    /// End it.
    End {
        /// Its number.
        id: u32,
    },
}

/// Whose packets are traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TraceOf {
    /// Those of ports, by name, of a function that keeps no flows apart; none means all.
    Ports(Vec<String>),
    /// Those of a flow, such as a session, of a function that has such.
    Flow {
        /// How it is named: one of the function's [selectors](crate::run::function::FlowSelector).
        by: String,
        /// Its name.
        value: String,
    },
}

/// Direction of a packet that came in by a port, where there are no sessions.
pub(crate) const IN: &str = "in";
/// Direction of one that the node sent and nothing came in for just then.
pub(crate) const OUT: &str = "out";

/// What a trace has brought since it was last read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TraceRead {
    /// SEIDs of the sessions, or names of the ports, that are traced now.
    #[serde(rename = "sessions")]
    pub(crate) of: Vec<String>,
    /// Packets that there was no room for.
    pub(crate) lost: u64,
    /// The packets, oldest first.
    pub(crate) packets: Vec<TracedPacket>,
}

/// One packet's way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TracedPacket {
    /// When it came, in nanoseconds since 1970.
    pub(crate) time_ns: u64,
    /// Our SEID of its session; empty when that has gone, or there are none.
    pub(crate) seid: String,
    /// `uplink` or `downlink`; [`IN`] or [`OUT`] where there are no sessions.
    pub(crate) direction: String,
    /// The port that it came in by.
    pub(crate) port: String,
    /// By what its session was found: `teid@address`, or the UE's address.
    pub(crate) key: String,
    pub(crate) qfi: Option<u8>,
    pub(crate) rule: Option<TracedRule>,
    /// Nanoseconds from its reading to the rule, and to the end of its handling.
    pub(crate) matched_ns: Option<u64>,
    pub(crate) took_ns: u64,
    /// What became of it, in one word: `sent`, `dropped`, `buffered`, `waits` or `kernel`.
    pub(crate) verdict: String,
    /// The frame as it came.
    pub(crate) frame: TracedFrame,
    /// What became of it, and of packets that it brought about, in their order.
    pub(crate) dispositions: Vec<PacketDisposition>,
}

impl TracedPacket {
    /// Whether it was chosen by its port, and knows no session.
    pub(crate) fn is_of_port(&self) -> bool {
        [IN, OUT].contains(&&self.direction[..])
    }
}

/// The rules that a packet met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TracedRule {
    pub(crate) pdr: u32,
    pub(crate) precedence: Option<u32>,
    pub(crate) far: Option<u32>,
    pub(crate) qers: Vec<u32>,
    pub(crate) urrs: Vec<u32>,
}

/// A frame, or its head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TracedFrame {
    /// Octets of the whole.
    pub(crate) len: usize,
    /// Its head, in hexadecimal.
    pub(crate) octets: String,
}

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "disposition", rename_all = "snake_case")]
pub(crate) enum PacketDisposition {
    /// It left.
    Sent {
        /// The port.
        port: String,
        /// The frame as it left.
        frame: TracedFrame,
    },
    /// It was dropped.
    Dropped {
        /// Why, as in `kaido drops`.
        reason: String,
    },
    /// It was left to the kernel.
    Kernel,
}
