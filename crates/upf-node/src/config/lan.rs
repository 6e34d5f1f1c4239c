//! Network instances behind VLANs, and the ways out that control planes name.

use std::collections::HashSet;
use std::net::IpAddr;

use kaido_node::config::Findings;
use kaido_node::config::{Driver, PortConfig, Prefix, Spanned};
use kaido_upf::ids::InstanceId;
use kaido_upf::lan::{Lan, Lans, VlanTags};
use kaido_upf::node::{ForwardingPolicy, Instance, NamedSettings, PolicyTarget};
use kaido_wire::MacAddr;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{UpfConfig, UpfPort};

/// Most network instances behind VLANs.
const LANS_MAX: usize = 65_000;

/// A network instance behind a VLAN.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NetworkInstanceConfig {
    /// Its name, as FARs and PDRs give it.
    pub(crate) name: Spanned<String>,
    /// Name of the `n6` port that it is behind.
    pub(crate) port: Spanned<String>,
    /// Its VLAN identifier on that port, or `[outer, inner]` behind two tags (IEEE 802.1ad). Without it an Ethernet instance has all
    /// frames of the port that are no other's, but for those to the port's own address.
    #[schemars(extend("x-allowed" = "number, or two numbers", "x-default" = "required"))]
    pub(crate) vlan: Option<Spanned<Vlan>>,
    /// It is for Ethernet sessions: its LAN is bridged, and has neither addresses nor gateways here. Not behind an `af_xdp` port.
    #[serde(default)]
    pub(crate) ethernet: bool,
    /// The node's own addresses in it. What is within is on the link; address spaces of instances may overlap.
    #[serde(default)]
    #[schemars(extend("x-allowed" = "list of addresses with prefix length"))]
    pub(crate) addresses: Vec<Prefix>,
    /// Where all else goes, one of each family. Neighbours are asked for by the node itself.
    #[serde(default)]
    pub(crate) gateways: Vec<IpAddr>,
    /// That of the gateways, which are not asked for then. Required behind `af_xdp` ports, where ARP is left to the kernel.
    pub(crate) gateway_mac: Option<Mac>,
}

/// One tag, or two.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a VLAN identifier, or two in a list")]
pub(crate) enum Vlan {
    /// IEEE 802.1Q.
    One(u16),
    /// The service tag of IEEE 802.1ad, and the customer's within.
    Two([u16; 2]),
}

impl From<Vlan> for VlanTags {
    fn from(vlan: Vlan) -> Self {
        match vlan {
            Vlan::One(outer) => Self { outer, inner: None },
            Vlan::Two([outer, inner]) => Self { outer, inner: Some(inner) },
        }
    }
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(extend("x-allowed" = "Ethernet address"))]
pub(crate) struct Mac(pub(crate) [u8; 6]);

impl TryFrom<String> for Mac {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let read: Result<MacAddr, _> = text.parse();
        read.map(|mac| Self(mac.0))
            .map_err(|_| format!("`{text}` is no Ethernet address; write \"02:00:00:00:00:01\""))
    }
}

/// A way out that control planes name by Forwarding Policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ForwardingPolicyConfig {
    /// The Forwarding Policy Identifier that a FAR gives.
    pub(crate) name: Spanned<String>,
    /// Packets go by the way to that address, wherever they are going.
    pub(crate) next_hop: Option<IpAddr>,
    /// Packets leave by that network instance. Either this or `next_hop` is given.
    pub(crate) network_instance: Option<Spanned<String>>,
}

/// Everything that is wrong with either.
pub(super) fn check(config: &UpfConfig, findings: &mut Findings) {
    if config.network_instances.len() > LANS_MAX {
        let found = format!("{} of them", config.network_instances.len());
        findings.add(0..0, "network_instance", found, format!("at most {LANS_MAX}"));
    }
    let (mut names, mut tags) = (HashSet::new(), HashSet::new());
    let of_ports = config.ports.iter().filter_map(|port| port.network_instance.as_deref());
    names.extend(of_ports);
    for spanned in &config.network_instances {
        let (place, lan) = (spanned.span(), spanned.get_ref());
        if !names.insert(lan.name.get_ref()) {
            let message = format!("`{}` is used twice", lan.name.get_ref());
            findings.add(lan.name.span(), "network_instance.name", message, "give each a name of its own");
        }
        let name = lan.port.get_ref();
        let port = config.base.ports.iter().map(Spanned::get_ref).find(|port| port.name.get_ref() == name);
        if !port.and_then(|port| config.of_port(port)).is_some_and(UpfPort::is_n6) {
            let message = format!("`{name}` is no port with the role \"n6\"");
            findings.add(
                lan.port.span(),
                "network_instance.port",
                message,
                "name one of the [[port]] tables",
            );
        }
        let vlan_place = lan.vlan.as_ref().map_or(place.clone(), Spanned::span);
        let vlan = lan.vlan.as_ref().map(|vlan| VlanTags::from(*vlan.get_ref()));
        let identifiers = vlan.map(|VlanTags { outer, inner }| [Some(outer), inner]).unwrap_or_default();
        if vlan.is_none() && !lan.ethernet {
            let help = "write 100, or [100, 200] for two tags; only Ethernet instances may have none";
            findings.add(vlan_place.clone(), "network_instance.vlan", "missing", help);
        }
        if !identifiers.into_iter().flatten().all(|vid| (1..=4094).contains(&vid)) {
            let help = "VLAN identifiers are 1 to 4094; write 100, or [100, 200] for two tags";
            findings.add(vlan_place.clone(), "network_instance.vlan", "out of range", help);
        }
        if !tags.insert((name, vlan.map(|vlan| (vlan.outer, vlan.inner)))) {
            let help = "give each network instance of a port a VLAN of its own";
            findings.add(vlan_place, "network_instance.vlan", "used twice on the port", help);
        }
        if let Some(port) = port {
            beside_ports(config, lan, port, vlan, findings);
        }
        if lan.ethernet {
            super::ethernet::check_instance(config, spanned, findings);
            continue;
        }
        if lan.addresses.is_empty() && lan.gateway_mac.is_none() {
            let help = "give the node an address in it, or the gateway_mac";
            findings.add(place.clone(), "network_instance.addresses", "no neighbour can be asked for", help);
        }
        // ARP and neighbour discovery in VLANs are the kernel's there.
        if lan.gateway_mac.is_none() && port.is_some_and(|port| *port.driver.get_ref() == Driver::AfXdp) {
            let help = "give the gateway_mac, or use another driver";
            let message = "behind an af_xdp port no neighbour can be asked for";
            findings.add(place, "network_instance.gateway_mac", message, help);
        }
    }
    policies(config, &names, findings);
}

/// Whether the LAN's frames would be a port's.
fn beside_ports(
    config: &UpfConfig,
    lan: &NetworkInstanceConfig,
    port: &PortConfig,
    vlan: Option<VlanTags>,
    findings: &mut Findings,
) {
    if port.vlan.is_some() {
        let message = format!("port `{}` is a VLAN itself", port.name.get_ref());
        let help = "name the port of the interface that has no vlan";
        return findings.add(lan.port.span(), "network_instance.port", message, help);
    }
    let siblings = config.base.ports.iter().map(Spanned::get_ref);
    let mut siblings = siblings.filter(|other| other.interface_name() == port.interface_name());
    let taken =
        siblings.find(|other| other.vid().is_some_and(|vid| vlan.is_some_and(|vlan| vlan.outer == vid)));
    if let (Some(other), Some(at)) = (taken, &lan.vlan) {
        let message = format!("the VLAN is port `{}`", other.name.get_ref());
        findings.add(at.span(), "network_instance.vlan", message, "give it a VLAN that no port has");
    }
}

fn policies(config: &UpfConfig, instances: &HashSet<&str>, findings: &mut Findings) {
    let mut names = HashSet::new();
    for policy in &config.forwarding_policies {
        let (place, policy) = (policy.span(), policy.get_ref());
        let name = policy.name.get_ref();
        if !names.insert(name) || name.is_empty() || name.len() > 255 {
            let help = "1 to 255 characters, each name once";
            findings.add(policy.name.span(), "forwarding_policy.name", format!("`{name}`"), help);
        }
        if policy.next_hop.is_some() == policy.network_instance.is_some() {
            let help = "give either next_hop or network_instance";
            findings.add(place, "forwarding_policy", "leads nowhere, or to two places", help);
        }
        if let Some(instance) = &policy.network_instance
            && !instances.contains(instance.get_ref().as_str())
        {
            let message = format!("`{}` is not configured", instance.get_ref());
            let help = "name a [[network_instance]], or that of a port";
            findings.add(instance.span(), "forwarding_policy.network_instance", message, help);
        }
    }
}

impl UpfConfig {
    /// The network instances behind VLANs, added to those of the ports.
    pub(crate) fn lans(&self, instances: &mut Vec<Instance>) -> Lans {
        let routed = self.network_instances.iter().map(Spanned::get_ref).filter(|lan| !lan.ethernet);
        let lans = routed.filter_map(|lan| {
            let port = self
                .base
                .ports
                .iter()
                .position(|port| port.get_ref().name.get_ref() == lan.port.get_ref())?;
            instances.push(Instance { name: Some(lan.name.get_ref().clone()) });
            let mac = lan.gateway_mac.iter();
            let neighbours = mac.flat_map(|mac| lan.gateways.iter().map(|&gateway| (gateway, mac.0)));
            Some(Lan {
                instance: InstanceId(u16::try_from(instances.len() - 1).ok()?),
                port: kaido_engine::PortId(u8::try_from(port).ok()?),
                tags: (*lan.vlan.as_ref()?.get_ref()).into(),
                addresses: lan.addresses.iter().map(|own| (own.addr, own.len)).collect(),
                gateways: lan.gateways.clone(),
                neighbours: neighbours.collect(),
            })
        });
        Lans::new(lans.collect())
    }

    /// What control planes may name.
    pub(crate) fn named(&self, instances: &[Instance]) -> NamedSettings {
        NamedSettings {
            predefined: self.predefined(),
            forwarding_policies: self.forwarding_policies(instances),
        }
    }

    /// The ways out that control planes may name.
    fn forwarding_policies(&self, instances: &[Instance]) -> Vec<ForwardingPolicy> {
        let policies = self.forwarding_policies.iter().map(Spanned::get_ref).filter_map(|policy| {
            let target = match (policy.next_hop, &policy.network_instance) {
                (Some(next_hop), _) => PolicyTarget::NextHop(next_hop),
                (None, Some(name)) => {
                    let named = |own: &Instance| own.name.as_deref() == Some(name.get_ref());
                    PolicyTarget::Instance(InstanceId(u16::try_from(instances.iter().position(named)?).ok()?))
                }
                (None, None) => return None,
            };
            Some(ForwardingPolicy { name: policy.name.get_ref().clone(), target })
        });
        policies.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::testing::read;

    fn lan(name: &str, port: &str, vlan: &str) -> String {
        format!(
            "[[network_instance]]\nname = \"{name}\"\nport = \"{port}\"\nvlan = {vlan}\naddresses = [\"10.1.0.1/24\"]\n"
        )
    }

    #[test]
    fn tenants_with_one_tag_and_two_become_lans() {
        let policy = "[[forwarding_policy]]\nname = \"gold\"\nnetwork_instance = \"b\"\n";
        let config = read(&[&lan("a", "n6", "100"), &lan("b", "n6", "[100, 7]"), policy].concat()).unwrap();
        let mut instances = vec![Instance { name: None }];
        let lans = config.lans(&mut instances);
        let id = lans.of_instance(InstanceId(2)).unwrap();
        assert_eq!(lans.get(id).unwrap().tags, VlanTags { outer: 100, inner: Some(7) });
        assert_eq!(lans.get(id).unwrap().port, kaido_engine::PortId(1));
        let policies = config.forwarding_policies(&instances);
        assert_eq!(policies[0].target, PolicyTarget::Instance(InstanceId(2)));
    }

    #[test]
    fn what_cannot_be_is_said_with_its_field() {
        for (text, field) in [
            (lan("a", "n3", "100"), "network_instance.port"),
            (lan("a", "n6", "4095"), "network_instance.vlan"),
            (lan("a", "n6", "[7, 0]"), "network_instance.vlan"),
            ([lan("a", "n6", "7"), lan("a", "n6", "8")].concat(), "network_instance.name"),
            ([lan("a", "n6", "7"), lan("b", "n6", "7")].concat(), "network_instance.vlan"),
            ("[[forwarding_policy]]\nname = \"gold\"\n".to_owned(), "forwarding_policy"),
            (
                "[[forwarding_policy]]\nname = \"gold\"\nnetwork_instance = \"a\"\n".to_owned(),
                "forwarding_policy.network_instance",
            ),
        ] {
            let said = read(&text).err().unwrap_or_default();
            assert!(said.contains(field), "{field}: {said}");
        }
    }
}
