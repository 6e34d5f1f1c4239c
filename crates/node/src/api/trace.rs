//! Traces, as they go over the control socket.

use serde::{Deserialize, Serialize};

/// A question about a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum TraceQuestion {
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
pub enum TraceOf {
    /// Those of ports, by name, of a function that keeps no flows apart; none means all.
    Ports(Vec<String>),
    /// Those of a flow, such as a session, of a function that has such.
    Flow {
        /// How it is named: one of the function's [selectors](crate::function::FlowSelector).
        by: String,
        /// Its name.
        value: String,
    },
}

/// Direction of a packet that came in by a port, where there are no sessions.
pub const IN: &str = "in";
/// Direction of one that the node sent and nothing came in for just then.
pub const OUT: &str = "out";

/// What a trace has brought since it was last read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TraceRead {
    /// SEIDs of the sessions, or names of the ports, that are traced now.
    #[serde(rename = "sessions")]
    pub of: Vec<String>,
    /// Packets that there was no room for.
    pub lost: u64,
    /// The packets, oldest first.
    pub packets: Vec<TracedPacket>,
}

/// One packet's way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedPacket {
    /// When it came, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Our SEID of its session; empty when that has gone, or there are none.
    pub seid: String,
    /// `uplink` or `downlink`; [`IN`] or [`OUT`] where there are no sessions.
    pub direction: String,
    /// The port that it came in by.
    pub port: String,
    /// By what its session was found: `teid@address`, or the UE's address.
    pub key: String,
    /// Its QoS flow, where it has one.
    pub qfi: Option<u8>,
    /// The rules that it met.
    pub rule: Option<TracedRule>,
    /// Nanoseconds from its reading to the rule, and to the end of its handling.
    pub matched_ns: Option<u64>,
    /// Nanoseconds from its reading to the end of its handling.
    pub took_ns: u64,
    /// What became of it, in one word: `sent`, `dropped`, `buffered`, `waits` or `kernel`.
    pub verdict: String,
    /// The frame as it came.
    pub frame: TracedFrame,
    /// What became of it, and of packets that it brought about, in their order.
    pub dispositions: Vec<PacketDisposition>,
}

impl TracedPacket {
    /// Whether it was chosen by its port, and knows no session.
    pub fn is_of_port(&self) -> bool {
        [IN, OUT].contains(&&self.direction[..])
    }
}

/// The rules that a packet met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedRule {
    /// The PDR.
    pub pdr: u32,
    /// Its precedence.
    pub precedence: Option<u32>,
    /// Its FAR.
    pub far: Option<u32>,
    /// Its QERs.
    pub qers: Vec<u32>,
    /// Its URRs.
    pub urrs: Vec<u32>,
}

/// A frame, or its head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TracedFrame {
    /// Octets of the whole.
    pub len: usize,
    /// Its head, in hexadecimal.
    pub octets: String,
}

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "disposition", rename_all = "snake_case")]
pub enum PacketDisposition {
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
