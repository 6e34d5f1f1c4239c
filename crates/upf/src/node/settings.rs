//! What the node is told to be: its instances, ports, addresses and limits.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::SystemTime;

use kaido_engine::PortId;

use super::live::LiveSettings;
use crate::ethernet::EthernetSettings;
use crate::fragment::FragmentSettings;
use crate::ids::{EndpointId, InstanceId};
use crate::lan::Lans;
use crate::prefix::is_within;
use kaido_n4::{Interface, NetworkInstance};

/// A network instance: a UE address space behind one or more ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its name; `None` answers to every name that no other instance has.
    pub name: Option<String>,
}

/// What a port is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortRole {
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Largest IP packet it takes, in bytes.
    pub mtu: usize,
    /// Its own addresses: packets to them are the kernel's, but for GTP-U.
    pub addresses: Vec<IpAddr>,
    /// GTP-U arrives here (N3, N9, S5-U, S1-U).
    pub gtpu: bool,
    /// Packets to UEs of this instance arrive here (N6, SGi).
    pub instance: Option<InstanceId>,
}

/// What tunnels at a local GTP-U address are for: the role, network instance and subnet of the port that has the address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointScope {
    /// Towards the access (N3, S1-U).
    pub access: bool,
    /// Between user planes (N9, S5/S8-U).
    pub core: bool,
    /// The port's network instance.
    pub instance: Option<String>,
    /// The port's subnet: address and prefix length.
    pub subnet: Option<(IpAddr, u8)>,
}

/// How the outer UDP source port is chosen (TS 29.281 4.4.2.0 leaves it to the sender).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OuterSourcePort {
    /// Always 2152, for peers and middleboxes that expect it.
    Fixed,
    /// By the inner flow, so that receivers can spread flows over their queues.
    #[default]
    Entropy,
}

/// Which outer UDP datagrams carry a computed checksum.
///
/// Over IPv4 zero is allowed and usual (TS 29.281 4.4.2.0, RFC 768); over IPv6 a checksum is computed
/// unless the path is known to take zero (RFC 6935 5, RFC 6936 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpChecksums {
    /// Computed over IPv4.
    pub ipv4: bool,
    /// Computed over IPv6.
    pub ipv6: bool,
    /// Peers for which it is otherwise: network, prefix length, whether computed. The longest prefix counts.
    pub peers: Vec<(IpAddr, u8, bool)>,
}

impl Default for UdpChecksums {
    fn default() -> Self {
        Self { ipv4: false, ipv6: true, peers: Vec::new() }
    }
}

impl UdpChecksums {
    /// Whether datagrams to `peer` carry a computed checksum.
    pub fn computed(&self, peer: IpAddr) -> bool {
        let own = self.peers.iter().filter(|(network, len, _)| is_within(peer, *network, *len));
        let default = if peer.is_ipv4() { self.ipv4 } else { self.ipv6 };
        own.max_by_key(|(_, len, _)| *len).map_or(default, |(.., computed)| *computed)
    }
}

/// How the node is set up. But for what is `live`, it does not change while it runs.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Local GTP-U addresses; their places are the [`EndpointId`]s.
    pub endpoints: Vec<IpAddr>,
    /// What each of them is for, in the same order. Of those that have no scope nothing is known: they are for everything.
    pub endpoint_scopes: Vec<EndpointScope>,
    /// Addresses that PFCP and metrics listen on, which packets out of tunnels and from data networks never go to.
    pub control: Vec<IpAddr>,
    /// Network instances; their places are the [`InstanceId`]s.
    pub instances: Vec<Instance>,
    /// Ports, in the order of their numbers.
    pub ports: Vec<PortRole>,
    /// The kernel's tables that packets to network instances are routed by, by their numbers. Those of others are routed by the
    /// tables of their ports.
    pub route_tables: BTreeMap<InstanceId, u32>,
    /// Packets of one session may be handled by several workers at a time; where not, counting is cheaper.
    pub workers_share_sessions: bool,
    /// Network instances behind VLANs.
    pub lans: Lans,
    /// Ethernet sessions.
    pub ethernet: EthernetSettings,
    /// Most sessions.
    pub sessions_max: u32,
    /// The Recovery Time Stamp that peers know the node by; `None` for that of now.
    pub recovery: Option<SystemTime>,
    /// What may change, as it is at first; [`Node::live`](super::Node::live) has it as it is now.
    pub live: LiveSettings,
    /// Fragments that wait for their rest.
    pub fragments: FragmentSettings,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            endpoint_scopes: Vec::new(),
            control: Vec::new(),
            instances: vec![Instance { name: None }],
            ports: Vec::new(),
            route_tables: BTreeMap::new(),
            workers_share_sessions: true,
            lans: Lans::default(),
            ethernet: EthernetSettings::default(),
            sessions_max: 65_536,
            recovery: None,
            live: LiveSettings::default(),
            fragments: FragmentSettings::default(),
        }
    }
}

impl NodeSettings {
    /// Every address of the node that a UE must not reach: of ports, GTP-U and PFCP.
    pub fn own_addresses(&self) -> impl Iterator<Item = IpAddr> {
        let of_ports = self.ports.iter().flat_map(|port| &port.addresses);
        of_ports.chain(&self.endpoints).chain(&self.control).copied()
    }

    /// Whether an address is where control planes and scrapers speak to the node, and not this port's own: what comes out of a
    /// data network does not reach it.
    pub fn is_guarded(&self, port: PortId, addr: IpAddr) -> bool {
        let own = self.ports.get(port.index()).map_or(&[][..], |role| &role.addresses);
        self.control.contains(&addr) && !own.contains(&addr)
    }

    /// The endpoint with that address.
    #[inline]
    pub fn endpoint(&self, addr: IpAddr) -> Option<EndpointId> {
        #[allow(clippy::cast_possible_truncation)] // Configuration bounds the list at 256.
        self.endpoints.iter().position(|&own| own == addr).map(|at| EndpointId(at as u8))
    }

    /// Local GTP-U addresses in the order in which a tunnel would take them that is for packets from or to `interface`, in a
    /// network instance, with a far end. Those in the far end's subnet come first, then those of the role, then those of the
    /// instance.
    pub fn endpoints_for(
        &self,
        interface: Interface,
        instance: Option<&NetworkInstance>,
        peer: Option<IpAddr>,
    ) -> Vec<IpAddr> {
        let mut places: Vec<_> = (0..self.endpoints.len()).collect();
        places.sort_by_key(|&at| self.unfitness(at, interface, instance, peer));
        places.into_iter().map(|at| self.endpoints[at]).collect()
    }

    /// The first of [them](Self::endpoints_for) that is of the far end's family.
    pub fn endpoint_towards(
        &self,
        interface: Interface,
        instance: Option<&NetworkInstance>,
        peer: IpAddr,
    ) -> Option<EndpointId> {
        let of_family =
            (0..self.endpoints.len()).filter(|&at| self.endpoints[at].is_ipv4() == peer.is_ipv4());
        // Of several that are as fit the first is taken.
        let best = of_family.min_by_key(|&at| self.unfitness(at, interface, instance, Some(peer)))?;
        self.endpoint(self.endpoints[best])
    }

    /// How little the endpoint at a place is what a tunnel would take.
    fn unfitness(
        &self,
        at: usize,
        interface: Interface,
        instance: Option<&NetworkInstance>,
        peer: Option<IpAddr>,
    ) -> u8 {
        let Some(scope) = self.endpoint_scopes.get(at) else { return 0 };
        let near = scope.subnet.zip(peer).is_some_and(|((network, len), peer)| is_within(peer, network, len));
        let of_role = match interface {
            Interface::Access => scope.access,
            Interface::Core | Interface::N6Lan | Interface::VnInternal => scope.core,
            Interface::CpFunction => true,
        };
        let of_instance = match (instance, &scope.instance) {
            (Some(asked), Some(own)) if *asked.0 == **own => 0,
            (_, None) => 1,
            _ => 2,
        };
        u8::from(!near) * 8 + u8::from(!of_role) * 4 + of_instance
    }

    /// The instance that answers to `name`; without a name the first.
    pub fn instance(&self, name: Option<&str>) -> Option<InstanceId> {
        let place = match name {
            None => (!self.instances.is_empty()).then_some(0),
            Some(name) => self
                .instances
                .iter()
                .position(|own| own.name.as_deref() == Some(name))
                .or_else(|| self.instances.iter().position(|own| own.name.is_none()))
                // There is no other that could be meant: OAI's SMF says `access.oai.org` and `core.oai.org`.
                .or_else(|| (self.instances.len() == 1).then_some(0)),
        };
        #[allow(clippy::cast_possible_truncation)] // As above, at 65536.
        place.map(|at| InstanceId(at as u16))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn settings() -> NodeSettings {
        let scope = |access, core, instance: Option<&str>, subnet: &str| EndpointScope {
            access,
            core,
            instance: instance.map(str::to_owned),
            subnet: Some((ip(subnet), 24)),
        };
        NodeSettings {
            endpoints: ["10.3.0.1", "10.9.0.1", "10.3.1.1"].map(ip).to_vec(),
            endpoint_scopes: vec![
                scope(true, false, None, "10.3.0.0"),
                scope(false, true, None, "10.9.0.0"),
                scope(true, false, Some("ran2"), "10.3.1.0"),
            ],
            ..NodeSettings::default()
        }
    }

    #[test]
    fn endpoints_are_chosen_by_role_instance_and_subnet() {
        let settings = settings();
        let first = |interface, instance: Option<&str>, peer: Option<&str>| {
            let instance = instance.map(|name| NetworkInstance(name.into()));
            settings.endpoints_for(interface, instance.as_ref(), peer.map(ip))[0]
        };
        assert_eq!(first(Interface::Access, None, None), ip("10.3.0.1"));
        assert_eq!(first(Interface::Access, Some("ran2"), None), ip("10.3.1.1"));
        assert_eq!(first(Interface::Access, Some("unknown"), None), ip("10.3.0.1"));
        assert_eq!(first(Interface::Core, None, None), ip("10.9.0.1"));
        assert_eq!(first(Interface::Access, None, Some("10.9.0.7")), ip("10.9.0.1"), "where the peer is");
        assert_eq!(settings.endpoints_for(Interface::Core, None, None).len(), 3, "others still may serve");
    }

    #[test]
    fn a_tunnel_begins_at_the_first_endpoint_of_the_far_ends_family() {
        let mut settings = settings();
        settings.endpoints.push(ip("fd00:9::1"));
        let peers = ["10.3.0.9", "10.9.0.9", "10.3.1.9", "192.0.2.1", "fd00:9::2", "2001:db8::1"].map(ip);
        for peer in peers {
            for interface in [Interface::Access, Interface::Core, Interface::CpFunction] {
                for instance in [None, Some(NetworkInstance("ran2".into()))] {
                    let all = settings.endpoints_for(interface, instance.as_ref(), Some(peer));
                    let first = all.into_iter().find(|own| own.is_ipv4() == peer.is_ipv4());
                    let chosen = settings.endpoint_towards(interface, instance.as_ref(), peer);
                    assert_eq!(chosen, first.and_then(|own| settings.endpoint(own)), "{peer} {interface:?}");
                    assert!(chosen.is_some());
                }
            }
        }
        settings.endpoints.pop();
        assert_eq!(settings.endpoint_towards(Interface::Access, None, ip("fd00:9::2")), None);
    }

    #[test]
    fn one_instance_answers_to_every_name() {
        let named = |names: &[&str]| NodeSettings {
            instances: names.iter().map(|name| Instance { name: Some((*name).to_owned()) }).collect(),
            ..NodeSettings::default()
        };
        assert_eq!(named(&["internet"]).instance(Some("core.oai.org")), Some(InstanceId(0)));
        assert_eq!(named(&["internet", "ims"]).instance(Some("core.oai.org")), None);
        assert_eq!(named(&["internet", "ims"]).instance(Some("ims")), Some(InstanceId(1)));
    }
}
