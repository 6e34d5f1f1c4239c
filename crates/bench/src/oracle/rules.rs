//! What a device under test is told to do, as the oracle understands it: bearers, and the links on both sides.
//!
//! The description is arithmetic, so that a million bearers cost nothing: everything of bearer n follows from n.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::family::Family;
use crate::shape::{Flow, Shape};
use crate::stream::Mac;

/// Bearers of one user plane function, and what lies around it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bearers {
    /// How many.
    pub count: u32,
    /// TEID at the device of bearer 0; the others follow.
    pub teid_first: u32,
    /// TEID at the access node of bearer 0; the others follow.
    pub access_teid_first: u32,
    /// Address of the UE of bearer 0. Over IPv4 the others follow; over IPv6 each has the next /64, and the same interface
    /// identifier in it.
    pub ue_first: IpAddr,
    /// The device's GTP-U address.
    pub local: IpAddr,
    /// GTP-U address of the first access node; bearer n is behind node n mod `peers`, and the nodes' addresses follow.
    pub peer_first: IpAddr,
    /// Number of access nodes.
    #[serde(default = "one")]
    pub peers: u32,
    /// QoS flow of the PDU session container; none when not given.
    #[serde(default)]
    pub qfi: Option<u8>,
    /// Host on the data network that downlink packets come from and uplink packets go to.
    pub server: IpAddr,
    /// Towards the access nodes.
    pub access: Side,
    /// Towards the data network.
    pub core: Side,
    /// What the device writes into outer headers.
    #[serde(default)]
    pub outer: OuterFields,
    /// The rules of the sessions: their QoS flows, which of them are idle, and whether they are of tenants. Files have plain ones.
    #[serde(skip)]
    pub shape: Shape,
}

const fn one() -> u32 {
    1
}

/// A link of the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Side {
    /// Name of the bench's port on it.
    pub port: String,
    /// The device's MAC address. All zero, as when not given: the gateway's, at a port in L3 mode.
    #[serde(default)]
    pub device_mac: Mac,
    /// The MAC address that the bench has there, and to which the device sends. All zero, as when not given: the port's own.
    #[serde(default)]
    pub bench_mac: Mac,
    /// Tags, the outermost first.
    #[serde(default)]
    pub tags: Vec<Tag>,
    /// Name of the network instance there, for sessions that the bench establishes; `{vlan}` in it stands for the outermost
    /// tag's identifier. The device's own choice when not given.
    #[serde(default)]
    pub network_instance: Option<String>,
}

impl Side {
    /// The network instance of a bearer.
    pub fn instance(&self, bearer: u32) -> Option<String> {
        let vlan = self.tags.first().map_or(0, |tag| tag.of(bearer) & 0xfff);
        self.network_instance.as_ref().map(|name| name.replace("{vlan}", &vlan.to_string()))
    }
}

/// A VLAN tag of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tag {
    /// Tag protocol identifier; 0x8100 when not given.
    #[serde(default = "customer")]
    pub tpid: u16,
    /// Identifier of bearer 0.
    pub first: u16,
    /// How many there are: bearer n has `first` + n mod `count`.
    #[serde(default = "one_tag")]
    pub count: u16,
    /// Priority code point.
    #[serde(default)]
    pub priority: u8,
}

const fn customer() -> u16 {
    0x8100
}

const fn one_tag() -> u16 {
    1
}

/// What the device writes into outer headers. `None`: anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OuterFields {
    /// TTL, or hop limit.
    pub hops: Option<u8>,
    /// Differentiated services code point.
    pub dscp: Option<u8>,
    /// UDP source port.
    pub source_port: SourcePort,
    /// Whether there is a UDP checksum over IPv4.
    pub checksum_over_ipv4: bool,
    /// Whether there is one over IPv6, where a tunnel may do without it (RFC 6935).
    pub checksum_over_ipv6: bool,
}

impl Default for OuterFields {
    fn default() -> Self {
        Self {
            hops: Some(64),
            dscp: Some(0),
            source_port: SourcePort::Entropy,
            checksum_over_ipv4: false,
            checksum_over_ipv6: true,
        }
    }
}

/// The outer UDP source port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourcePort {
    /// 2152.
    Fixed,
    /// From 49152 up, the same for all packets of a flow (TS 29.281 4.4.2.3).
    Entropy,
    /// Any.
    Any,
}

/// The address `n` behind another; over IPv6 `n` networks of 64 bits behind.
pub(crate) fn address(first: IpAddr, n: u32, by_network: bool) -> IpAddr {
    match first {
        IpAddr::V4(first) => Ipv4Addr::from_bits(first.to_bits().wrapping_add(n)).into(),
        IpAddr::V6(first) => {
            let shift = if by_network { 64 } else { 0 };
            Ipv6Addr::from_bits(first.to_bits().wrapping_add(u128::from(n) << shift)).into()
        }
    }
}

impl Bearers {
    /// Address of the UE of a bearer.
    pub fn ue(&self, bearer: u32) -> IpAddr {
        address(self.ue_first, self.shape.ue_number(bearer), true)
    }

    /// The family of user packets.
    pub(crate) fn family(&self) -> Family {
        if self.server.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// The QoS flows of a bearer, in the order of precedence; none where it has one only, whatever its packets are.
    pub(crate) fn flows(&self, bearer: u32) -> &'static [Flow] {
        match self.shape.flows_of(bearer) {
            [_] => &[],
            flows => flows,
        }
    }

    /// GTP-U address of the access node of a bearer.
    pub fn peer(&self, bearer: u32) -> IpAddr {
        address(self.peer_first, bearer % self.peers.max(1), false)
    }

    /// The bearer of a TEID at the device.
    pub(crate) fn of_teid(&self, teid: u32) -> Option<u32> {
        Some(teid.wrapping_sub(self.teid_first)).filter(|bearer| *bearer < self.count)
    }

    /// The bearer of a UE's address, in the VLAN of the outermost tag where tenants have one each.
    pub(crate) fn of_ue(&self, address: IpAddr, vid: Option<u16>) -> Option<u32> {
        let number = match (self.ue_first, address) {
            (IpAddr::V4(first), IpAddr::V4(address)) => {
                u64::from(address.to_bits().wrapping_sub(first.to_bits()))
            }
            #[allow(clippy::cast_possible_truncation)] // The upper half.
            (IpAddr::V6(first), IpAddr::V6(address)) => {
                ((address.to_bits() >> 64) as u64).wrapping_sub((first.to_bits() >> 64) as u64)
            }
            _ => return None,
        };
        let number = match (self.shape.tenants(), self.core.tags.first()) {
            (Some(tenants), Some(tag)) => {
                let tenant = vid?.checked_sub(tag.first).filter(|tenant| *tenant < tag.count)?;
                number.checked_mul(tenants.into())?.checked_add(tenant.into())?
            }
            _ => number,
        };
        u32::try_from(number).ok().filter(|bearer| *bearer < self.count)
    }
}

impl Tag {
    /// The tag of a bearer: its tag control information.
    pub(crate) fn of(self, bearer: u32) -> u16 {
        let turn = u16::try_from(bearer % u32::from(self.count.max(1))).unwrap_or(0);
        u16::from(self.priority) << 13 | (self.first.wrapping_add(turn) & 0xfff)
    }
}
