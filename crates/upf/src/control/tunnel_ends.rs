//! Both ends of the tunnels that FARs lead into.

use std::net::IpAddr;

use super::remote_fteids::RemoteFTeid;
use super::ruleset::RuleSet;
use crate::ids::EndpointId;
use crate::node::NodeSettings;
use kaido_n4::{ForwardingParameters, Interface, NetworkInstance, OuterHeaderCreation};

/// Both ends of a tunnel towards an interface, in IPv4 where both families would do.
pub(super) fn tunnel_ends(
    settings: &NodeSettings,
    creation: OuterHeaderCreation,
    (interface, instance): (Interface, Option<&NetworkInstance>),
) -> Option<(IpAddr, EndpointId)> {
    let of_family = |peer: IpAddr| Some((peer, settings.endpoint_towards(interface, instance, peer)?));
    creation
        .ipv4
        .and_then(|peer| of_family(peer.into()))
        .or_else(|| creation.ipv6.and_then(|peer| of_family(peer.into())))
}

/// Where forwarded packets go, as far as the choice of our end of a tunnel needs it.
pub(super) fn domain(forwarding: &ForwardingParameters) -> (Interface, Option<&NetworkInstance>) {
    (forwarding.destination_interface, forwarding.network_instance.as_ref())
}

/// Far ends of the tunnels that a session's rules lead into, each once and in order, to know an Error Indication by.
pub(super) fn remote_fteids(rules: &RuleSet, settings: &NodeSettings) -> Vec<RemoteFTeid> {
    let used = rules.pdrs.values().filter_map(|pdr| rules.fars.get(&pdr.far_id?));
    let ends = used.filter_map(|far| {
        let forwarding = far.forwarding.as_ref()?;
        let creation = forwarding.outer_header_creation?;
        Some((creation.teid, tunnel_ends(settings, creation, domain(forwarding))?.0))
    });
    let mut ends: Vec<_> = ends.collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;
    use kaido_n4::{ApplyAction, Far, FarId, Pdr, PdrId, Teid};

    #[test]
    fn each_far_end_is_named_once_and_in_order() {
        let settings = NodeSettings { endpoints: vec![[10, 0, 0, 1].into()], ..NodeSettings::default() };
        let mut rules = RuleSet::default();
        // Two rules have the first FAR, and the last leads into the same tunnel.
        for (pdr, far, teid) in [(1, 1, 9), (2, 1, 9), (3, 2, 4), (4, 3, 9)] {
            let (id, far_id) = (PdrId(pdr), Some(FarId(far)));
            rules.add_pdr(Pdr { id, far_id, ..Pdr::default() }).unwrap();
            let creation =
                OuterHeaderCreation { teid: Teid(teid), ipv4: Some([10, 0, 0, 2].into()), ipv6: None };
            let forwarding = ForwardingParameters {
                destination_interface: Interface::Access,
                network_instance: None,
                outer_header_creation: Some(creation),
                transport_level_marking: None,
                steering: None,
            };
            let apply_action = ApplyAction { forward: true, ..ApplyAction::default() };
            rules
                .add_far(Far { id: FarId(far), apply_action, forwarding: Some(forwarding), bar_id: None })
                .unwrap();
        }
        let peer = IpAddr::from([10, 0, 0, 2]);
        assert_eq!(remote_fteids(&rules, &settings), [(Teid(4), peer), (Teid(9), peer)]);
    }
}
