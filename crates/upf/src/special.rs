//! What only some rules ask of the user plane beside forwarding a packet by the routes or into a tunnel.
//!
//! A rule that asks for any of it does not fold into its record, so that sessions without it pay nothing.

use crate::record::InstanceId;

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

/// Whom a packet from a UE is looked for among the node's own sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// The UEs of a network instance, by the node's settings; whoever is none of them is outside.
    Neighbours {
        /// The network instance.
        instance: InstanceId,
        /// What becomes of it if there is such a UE.
        how: UeToUe,
    },
    /// Members of a 5G virtual network alone (TS 23.501 5.8.2.13.3): rules whose source interface is 5G VN internal.
    VirtualNetwork(InstanceId),
}

/// What a rule asks for beside its action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Special {
    /// Packets that the UE sends may be for another session of this node.
    pub local: Option<Local>,
    /// Packets go to the control plane (TS 29.244 5.3.3): also those that no router forwards, such as router
    /// solicitations, and those from the unspecified address.
    pub to_control_plane: bool,
    /// The PDU session container is not forwarded into the next tunnel (TS 29.244 8.2.64).
    pub deletes_container: bool,
}

impl Special {
    /// Whether nothing at all is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
