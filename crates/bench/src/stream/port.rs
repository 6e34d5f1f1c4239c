//! What a port's name stands for.

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Mac;

/// A port of the bench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortSpec {
    /// Its name; unique.
    pub name: String,
    /// What it is.
    pub driver: Driver,
    /// Bits a second of the line, for rates in percent.
    #[serde(default)]
    pub line_bps: Option<f64>,
    /// How packets get their link addresses.
    #[serde(default)]
    pub link: LinkMode,
}

/// What a port is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Driver {
    /// A queue in memory; the caller holds the other end.
    Memory,
    /// AF_PACKET on an interface.
    AfPacket {
        /// Name of the interface.
        interface: String,
    },
    /// AF_XDP on an interface.
    AfXdp {
        /// Name of the interface.
        interface: String,
        /// Number of the queue.
        #[serde(default)]
        queue: u32,
    },
    /// Files: what is received comes from one, what is sent goes into the other.
    Pcap {
        /// To receive from; nothing is received without it.
        #[serde(default)]
        input: Option<PathBuf>,
        /// To send into; what is sent is thrown away without it.
        #[serde(default)]
        output: Option<PathBuf>,
    },
}

/// How packets of a port get their link addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LinkMode {
    /// The template's own.
    #[default]
    L2,
    /// The port's own, and the gateway's as ARP (RFC 826) or neighbour discovery (RFC 4861) tells it. The port answers
    /// for its own addresses.
    L3 {
        /// Own addresses; of the family of each gateway one at least.
        addresses: Vec<IpAddr>,
        /// Next router of each family that is sent.
        gateways: Vec<IpAddr>,
        /// Own MAC address; the interface's when not given.
        #[serde(default)]
        mac: Option<Mac>,
        /// VLAN tag of the port's ARP and neighbour discovery; untagged when not given.
        #[serde(default)]
        vlan: Option<u16>,
    },
}
