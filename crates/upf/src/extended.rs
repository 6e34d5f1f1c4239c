//! What only some rules ask of the user plane beside forwarding a packet by the routes or into a tunnel.
//!
//! A rule that asks for any of it does not fold into its record, so that sessions without it pay nothing.

use std::net::IpAddr;
use std::sync::Arc;

use kaido_wire::{ipv4, ipv6, udp};

use crate::dropped::DropCount;
use crate::ethernet::lan::EthernetLanId;
use crate::ids::InstanceId;
use crate::lan::LanId;
use crate::tunnels::{OuterClass, Tunnel};
use kaido_n4::Proxying;

/// What becomes of a packet from one UE to another of the same network instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UeToUe {
    /// It leaves by the node's routes like any other, and comes back if a router sends it back.
    #[default]
    Route,
    /// It goes straight into the other session's downlink rules.
    Forward,
    /// It is dropped: UEs are kept apart.
    Drop,
}

/// An IP header without GTP-U, with UDP behind it where there is a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlainHeader {
    /// Its source.
    pub own: IpAddr,
    /// Its destination.
    pub peer: IpAddr,
    /// UDP port of both ends.
    pub port: Option<u16>,
    /// How its ToS or Traffic Class octet is made.
    pub class: OuterClass,
}

impl PlainHeader {
    /// Octets of the headers.
    #[allow(clippy::len_without_is_empty)] // There always is one.
    pub fn len(&self) -> usize {
        let ip = if self.peer.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        ip + if self.port.is_some() { udp::HEADER_LEN } else { 0 }
    }
}

/// By what a packet leaves that goes into no tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// By the node's routes.
    Routes,
    /// By the way to that address, wherever it is going (Forwarding Policy, TS 29.244 5.2.3.1).
    Via(IpAddr),
    /// Into a LAN.
    Lan(LanId),
}

/// How a packet leaves that goes into no tunnel, where not simply by the routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// A header before it.
    pub header: Option<PlainHeader>,
    /// The way out.
    pub exit: Exit,
}

/// Where frames of a session go that go into no tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bridging {
    /// The network instance whose sessions are looked for.
    pub instance: InstanceId,
    /// Only members of a 5G virtual network are (TS 23.501 5.8.2.13).
    pub virtual_network: bool,
    /// The LAN on the N6 side.
    pub lan: Option<EthernetLanId>,
}

/// What a rule of an Ethernet session asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EthernetRule {
    /// Where frames go.
    pub bridging: Option<Bridging>,
    /// Tags to put before them: an EtherType and tag control information each.
    pub tags_on: Box<[u8]>,
    /// How many tags to take off.
    pub tags_off: usize,
    /// Questions that are answered in place of who is asked.
    pub proxying: Proxying,
}

/// What a rule asks for beside its action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtendedActions {
    /// Packets that the UE sends are for members of its 5G virtual network alone (TS 23.501 5.8.2.13.3), in that network
    /// instance: rules whose source interface is 5G VN internal.
    pub virtual_network: Option<InstanceId>,
    /// Packets go to the control plane (TS 29.244 5.3.3): also those that no router forwards, such as router
    /// solicitations, and those from the unspecified address.
    pub to_control_plane: bool,
    /// The PDU session container is not forwarded into the next tunnel (TS 29.244 8.2.64).
    pub deletes_container: bool,
    /// How packets leave that go into no tunnel.
    pub egress: Option<Egress>,
    /// Tunnels into which copies go.
    pub copies: Box<[Tunnel]>,
    /// Control is told of flows of the rule's application.
    pub tells_applications: bool,
    /// Counts packets to the UE that are dropped.
    pub(crate) dropped: Option<Arc<DropCount>>,
    /// The answer to plain HTTP, which goes no further.
    pub redirect: Option<Box<[u8]>>,
    /// Of an Ethernet session.
    pub ethernet: Option<Box<EthernetRule>>,
}

impl ExtendedActions {
    /// Whether nothing at all is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
