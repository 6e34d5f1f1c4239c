//! What sessions of every shape are made of.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_n4::{
    ApplyAction, ChooseOr, FTeid, Far, FarId, ForwardingParameters, Interface, Ipv6Prefix, LocalFTeid,
    OuterHeaderCreation, OuterHeaderRemoval, Pdi, Pdr, PdrId, Teid, UeIpAddress, UeIpRole,
};

use crate::family::Family;
use crate::network::teid;

/// An address as one of either family.
fn split(address: IpAddr) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    match address {
        IpAddr::V4(address) => (Some(address), None),
        IpAddr::V6(address) => (None, Some(address)),
    }
}

/// The PDR of a session's uplink, by its tunnel.
pub(crate) fn uplink_pdr(family: Family, session: u32) -> Pdr {
    let (ipv4, ipv6) = split(family.n3());
    let fteid = FTeid { teid: Teid(teid(session)), ipv4, ipv6 };
    let mut rule = pdr(1, Interface::Access);
    rule.pdi.local_fteid = Some(LocalFTeid::Given(fteid));
    rule.outer_header_removal = Some(OuterHeaderRemoval::of_tunnel(family.n3()));
    rule
}

/// The downlink's, of the UE of a number.
pub(crate) fn downlink_pdr(family: Family, ue: u32) -> Pdr {
    let (ipv4, ipv6) = split(family.ue(ue));
    let ipv4 = ipv4.map(ChooseOr::Given);
    let ipv6 = ipv6.map(|address| ChooseOr::Given(Ipv6Prefix::of(address, 64)));
    let mut rule = pdr(2, Interface::Core);
    rule.pdi.ue_ip = vec![UeIpAddress { ipv4, ipv6, role: UeIpRole::Destination }];
    rule
}

fn pdr(id: u16, source_interface: Interface) -> Pdr {
    Pdr {
        id: PdrId(id),
        precedence: 100,
        pdi: Pdi { source_interface, ..Pdi::default() },
        far_id: Some(FarId(id.into())),
        ..Pdr::default()
    }
}

/// A FAR that forwards to an interface, through a tunnel if any.
pub(crate) fn far(id: u32, interface: Interface, tunnel: Option<OuterHeaderCreation>) -> Far {
    Far {
        id: FarId(id),
        apply_action: ApplyAction { forward: true, ..ApplyAction::default() },
        forwarding: Some(ForwardingParameters {
            destination_interface: interface,
            network_instance: None,
            outer_header_creation: tunnel,
            transport_level_marking: None,
            steering: None,
        }),
        bar_id: None,
    }
}

/// The tunnel to the gNB.
pub(crate) fn tunnel(family: Family, teid: u32) -> OuterHeaderCreation {
    let (ipv4, ipv6) = split(family.gnb());
    OuterHeaderCreation { teid: Teid(teid), ipv4, ipv6 }
}
