//! Traces, as they are asked for and read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Method, Question, Role};

/// Begins a trace. One that is not read for five seconds ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BeginTrace {
    /// Whose packets.
    pub of: TraceOf,
    /// Octets of each frame that are kept.
    #[serde(default = "whole_frame")]
    pub snap: usize,
}

/// Octets that are kept of a frame unless a question says how many.
pub(crate) const fn whole_frame() -> usize {
    65_535
}

impl Question for BeginTrace {
    type Answer = TraceBegun;
    const NAME: &'static str = "begin_trace";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/v1/traces";
    const ROLE: Role = Role::Operate;
}

/// Takes what a trace has brought since it was last read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadTrace {
    /// Its number.
    pub id: u32,
}

impl Question for ReadTrace {
    type Answer = TraceRead;
    const NAME: &'static str = "read_trace";
    // What is read is there no more.
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/v1/traces/{id}/read";
    const ROLE: Role = Role::Operate;
    // It is asked ten times a second.
    const IS_AUDITED: bool = false;
}

/// Ends a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndTrace {
    /// Its number.
    pub id: u32,
}

impl Question for EndTrace {
    type Answer = ();
    const NAME: &'static str = "end_trace";
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/v1/traces/{id}";
    const ROLE: Role = Role::Operate;
}

/// A trace that was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TraceBegun {
    /// Its number.
    pub id: u32,
    /// The ports of the function that has it.
    pub ports: Vec<String>,
}

/// Whose packets are traced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TraceOf {
    /// Those of ports, by name, of a function that keeps no flows apart; none means all.
    Ports(Vec<String>),
    /// Those of a flow, such as a session, of a function that has such.
    Flow(Flow),
}

/// A flow, by a name of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// How it is named: `ue` or `seid` of a user plane.
    pub by: String,
    /// Its name.
    pub value: String,
}

/// Direction of a packet that came in by a port, where there are no sessions.
pub const IN: &str = "in";
/// Direction of one that the node sent and nothing came in for just then.
pub const OUT: &str = "out";

/// What a trace has brought since it was last read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TracedPacket {
    /// When it came, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Our SEID of its session; empty when that has gone, or there are none.
    pub seid: String,
    /// `uplink` or `downlink`; `in` or `out` where there are no sessions.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TracedFrame {
    /// Octets of the whole.
    pub len: usize,
    /// Its head, in hexadecimal.
    pub octets: String,
}

/// What became of a packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
