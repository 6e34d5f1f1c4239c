//! What goes with a packet or a frame through the slow path: how it came in, the record of its key, and its headers. Its octets
//! go apart, for they change on the way.

use std::time::Instant;

use kaido_engine::{DropReason, PortId};
use kaido_table::Guard;

use super::parse::{Packet, ParsedFrame};
use crate::UpfDrop;
use crate::action::{Action, Destination, N6Exit};
use crate::ethernet::frame::EthernetFrame;
use crate::extended::{Exit, ExtendedActions};
use crate::key::SessionKey;
use crate::node::Node;
use crate::record::Record;

/// A frame whose headers were read completely, and what its key leads to.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameLookup<'f> {
    pub(super) node: &'f Node,
    /// The right to read the table.
    pub(super) guard: &'f Guard<'f>,
    pub(super) parsed: ParsedFrame,
    /// The record of its key, if it has one.
    pub(super) record: Option<&'f Record>,
    /// Where it came in.
    pub(super) port: PortId,
}

/// A packet of a known session.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketContext<'p> {
    /// The right to read the table.
    pub(super) guard: &'p Guard<'p>,
    pub(super) record: &'p Record,
    pub(super) arrival: ArrivalInfo,
    /// Its headers, as they were read.
    pub(super) packet: &'p Packet,
}

/// A frame of a known Ethernet session.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameContext<'f> {
    /// The right to read the table.
    pub(super) guard: &'f Guard<'f>,
    pub(super) record: &'f Record,
    pub(super) arrival: ArrivalInfo,
    /// Its headers, as they were read.
    pub(super) seen: &'f EthernetFrame,
}

/// How a packet came in.
#[derive(Clone, Copy, Debug)]
pub(super) struct ArrivalInfo {
    pub(super) port: PortId,
    pub(super) key: SessionKey,
    /// QFI of its PDU session container.
    pub(super) qfi: Option<u8>,
    /// Why it may not be routed, whatever its rule says.
    pub(super) suspicion: Option<DropReason>,
    pub(super) origin: Origin,
    /// Since when it was buffered, if it was.
    pub(super) buffered_since: Option<Instant>,
}

/// Where a packet was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// On a port.
    Port,
    /// With another UE of this node: it is handed on no second time.
    OtherUe,
}

impl ArrivalInfo {
    /// A packet that came in on a port.
    #[inline]
    pub(super) fn new(port: PortId, key: SessionKey, qfi: Option<u8>) -> Self {
        Self { port, key, qfi, suspicion: None, origin: Origin::Port, buffered_since: None }
    }

    /// Whether a packet goes from tunnel to tunnel: then it is not this node that routes it.
    #[inline]
    pub(super) fn is_relayed(&self, action: &Action) -> bool {
        self.key.is_tunnel() && matches!(action.destination, Destination::Tunnel(_))
    }

    /// Whether a packet goes on to a gNB: what another gNB has left after a handover (indirect data forwarding,
    /// TS 23.502 4.9.1.3).
    #[inline]
    fn is_forwarded_data(&self, action: &Action) -> bool {
        let to_access =
            matches!(&action.destination, Destination::Tunnel(tunnel) if !tunnel.encap.container_uplink);
        self.key.is_tunnel() && to_access
    }
}

impl PacketContext<'_> {
    /// Why a packet may not go where its rule sends it.
    #[inline]
    pub(super) fn forbidden(
        &self,
        action: &Action,
        extended: Option<&ExtendedActions>,
    ) -> Option<DropReason> {
        let Self { record, arrival, packet, .. } = self;
        let reason = arrival.suspicion?;
        let to_control_plane = extended.is_some_and(|extended| extended.to_control_plane);
        let permitted = match reason {
            // In a tunnel nobody routes it: router solicitations and DHCP reach whom they are for.
            DropReason::NOT_ROUTED => arrival.is_relayed(action),
            // In a LAN the address may be another's.
            UpfDrop::TUNNEL_TO_SELF => {
                let egress = extended.and_then(|extended| extended.egress);
                matches!(action.exit, N6Exit::Lan(_))
                    || egress.is_some_and(|egress| matches!(egress.exit, Exit::Lan(_)))
            }
            // An address is yet to be had, or the packet is one to the UE.
            UpfDrop::UE_SPOOFED => {
                to_control_plane && packet.src.is_unspecified()
                    || arrival.is_forwarded_data(action) && record.admits(packet.dst)
            }
            _ => false,
        };
        (!permitted).then_some(reason)
    }
}
