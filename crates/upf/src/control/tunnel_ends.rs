//! Both ends of the tunnels that FARs lead into.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::ruleset::RuleSet;
use crate::ids::EndpointId;
use crate::node::NodeSettings;
use kaido_n4::{ForwardingParameters, Interface, NetworkInstance, OuterHeaderCreation, Teid};

/// Both ends of a tunnel towards an interface, in IPv4 where both families would do.
pub(super) fn tunnel_ends(
    settings: &NodeSettings,
    creation: OuterHeaderCreation,
    (interface, instance): (Interface, Option<&NetworkInstance>),
) -> Option<(IpAddr, EndpointId)> {
    let of_family = |peer: IpAddr| {
        let own = settings.endpoints_for(interface, instance, Some(peer));
        let own = own.into_iter().find(|own| own.is_ipv4() == peer.is_ipv4())?;
        Some((peer, settings.endpoint(own)?))
    };
    creation
        .ipv4
        .and_then(|peer| of_family(peer.into()))
        .or_else(|| creation.ipv6.and_then(|peer| of_family(peer.into())))
}

/// Where forwarded packets go, as far as the choice of our end of a tunnel needs it.
pub(super) fn domain(forwarding: &ForwardingParameters) -> (Interface, Option<&NetworkInstance>) {
    (forwarding.destination_interface, forwarding.network_instance.as_ref())
}

/// Far ends of the tunnels that a session's rules lead into, to know an Error Indication by.
pub(super) fn remote_fteids(rules: &RuleSet, settings: &NodeSettings) -> BTreeSet<(Teid, IpAddr)> {
    let used = rules.pdrs.values().filter_map(|pdr| rules.fars.get(&pdr.far_id?));
    let ends = used.filter_map(|far| {
        let forwarding = far.forwarding.as_ref()?;
        let creation = forwarding.outer_header_creation?;
        Some((creation.teid, tunnel_ends(settings, creation, domain(forwarding))?.0))
    });
    ends.collect()
}
