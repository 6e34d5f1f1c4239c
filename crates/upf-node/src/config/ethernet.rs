//! `[ethernet]`: Ethernet sessions, and the network instances that are bridged for them.

use std::time::Duration;

use kaido_engine::PortId;
use kaido_node::config::Findings;
use kaido_node::config::{Driver, Spanned, unplaced};
use kaido_upf::ethernet::lan::{EthernetLan, EthernetLans};
use kaido_upf::ethernet::{EthernetSettings, UnknownUnicast};
use kaido_upf::ids::InstanceId;
use kaido_upf::node::Instance;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::UpfConfig;
use super::lan::NetworkInstanceConfig;

/// How frames of Ethernet sessions are bridged.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct EthernetConfig {
    /// What becomes of frames to an Ethernet address that no session is known to have. From the N6 side they are dropped, or go to
    /// all sessions of the network instance. From a session they go to the N6 side, and so to the others too.
    pub(crate) unknown_unicast: UnknownUnicastMode,
    /// Sessions that one broadcast or multicast goes to, at most. Others do not get it, and are counted (`flood_cut`).
    #[schemars(range(min = 1, max = 65_536))]
    pub(crate) flood_max: Spanned<u32>,
    /// Ethernet addresses of all sessions, at most, and as many on the N6 side.
    #[schemars(range(min = 1, max = 16_000_000))]
    pub(crate) addresses: Spanned<u32>,
    /// Ethernet addresses behind one session, at most. Frames from more are dropped (`ethernet_table_full`).
    #[schemars(range(min = 1, max = 65_536))]
    pub(crate) addresses_per_session: Spanned<u32>,
    /// Seconds without a frame after which an Ethernet address is forgotten, where no Ethernet Inactivity Timer says otherwise.
    #[schemars(range(min = 10, max = 1_000_000))]
    pub(crate) ageing_s: Spanned<u32>,
}

impl Default for EthernetConfig {
    fn default() -> Self {
        Self {
            unknown_unicast: UnknownUnicastMode::Drop,
            flood_max: unplaced(256),
            addresses: unplaced(65_536),
            addresses_per_session: unplaced(64),
            ageing_s: unplaced(300),
        }
    }
}

/// `unknown_unicast`.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UnknownUnicastMode {
    /// Dropped.
    Drop,
    /// To all sessions of the network instance.
    Flood,
}

/// Everything that is wrong with it.
pub(super) fn check(config: &UpfConfig, findings: &mut Findings) {
    let ethernet = &config.ethernet;
    findings.range(&ethernet.flood_max, "ethernet.flood_max");
    findings.range(&ethernet.addresses, "ethernet.addresses");
    findings.range(&ethernet.addresses_per_session, "ethernet.addresses_per_session");
    findings.range(&ethernet.ageing_s, "ethernet.ageing_s");
}

/// What is wrong with a network instance of Ethernet sessions.
pub(super) fn check_instance(
    config: &UpfConfig,
    instance: &Spanned<NetworkInstanceConfig>,
    findings: &mut Findings,
) {
    let (place, instance) = (instance.span(), instance.get_ref());
    if !instance.addresses.is_empty() || !instance.gateways.is_empty() || instance.gateway_mac.is_some() {
        let help = "a bridged LAN has neither addresses nor gateways of the node's";
        findings.add(place, "network_instance.ethernet", "set beside addresses or gateways", help);
    }
    let port = config.base.ports.iter().map(Spanned::get_ref).find(|port| port.name == instance.port);
    if port.is_some_and(|port| *port.driver.get_ref() == Driver::AfXdp) {
        let help = "use another driver for its port";
        let message = "frames to others' addresses do not come out of an af_xdp port";
        findings.add(instance.port.span(), "network_instance.ethernet", message, help);
    }
}

impl UpfConfig {
    /// Whether frames to others' addresses are to come out of a port.
    pub(crate) fn is_bridged(&self, port: &str) -> bool {
        let of_port = |lan: &&NetworkInstanceConfig| lan.ethernet && lan.port.get_ref() == port;
        self.network_instances.iter().map(Spanned::get_ref).any(|lan| of_port(&lan))
    }

    /// What the user plane is told of Ethernet sessions; their network instances are added to those of the ports.
    pub(crate) fn ethernet(&self, instances: &mut Vec<Instance>) -> EthernetSettings {
        let bridged = self.network_instances.iter().map(Spanned::get_ref).filter(|lan| lan.ethernet);
        let lans = bridged.filter_map(|lan| {
            let port = self
                .base
                .ports
                .iter()
                .position(|port| port.get_ref().name.get_ref() == lan.port.get_ref())?;
            instances.push(Instance { name: Some(lan.name.get_ref().clone()) });
            Some(EthernetLan {
                instance: InstanceId(u16::try_from(instances.len() - 1).ok()?),
                port: PortId(u8::try_from(port).ok()?),
                tags: lan.vlan.as_ref().map(|vlan| (*vlan.get_ref()).into()),
            })
        });
        let ethernet = &self.ethernet;
        EthernetSettings {
            lans: EthernetLans::new(lans.collect()),
            unknown_unicast: match ethernet.unknown_unicast {
                UnknownUnicastMode::Drop => UnknownUnicast::Drop,
                UnknownUnicastMode::Flood => UnknownUnicast::Flood,
            },
            flood_max: *ethernet.flood_max.get_ref() as usize,
            addresses_max: *ethernet.addresses.get_ref(),
            addresses_per_session: *ethernet.addresses_per_session.get_ref() as usize,
            ageing: Duration::from_secs((*ethernet.ageing_s.get_ref()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use kaido_upf::lan::VlanTags;

    use super::*;
    use crate::config::testing::read;

    fn lan(name: &str, more: &str) -> String {
        format!("[[network_instance]]\nname = \"{name}\"\nport = \"n6\"\n{more}\n")
    }

    #[test]
    fn bridged_instances_with_tags_and_without() {
        let text = [
            lan("one", "ethernet = true\nvlan = 100"),
            lan("ip", "vlan = 5\naddresses = [\"10.1.0.1/24\"]"),
            lan("bare", "ethernet = true"),
            "[ethernet]\nunknown_unicast = \"flood\"\nageing_s = 20\n".to_owned(),
        ];
        let config = read(&text.concat()).unwrap();
        let mut instances = vec![Instance { name: None }];
        let lans = config.lans(&mut instances);
        let settings = config.ethernet(&mut instances);
        let names: Vec<_> = instances.iter().map(|instance| instance.name.as_deref()).collect();
        assert_eq!(names, [None, Some("ip"), Some("one"), Some("bare")]);
        assert!(lans.of_instance(InstanceId(1)).is_some());
        let tags = |n| settings.lans.get(settings.lans.of_instance(InstanceId(n)).unwrap()).unwrap().tags;
        assert_eq!((tags(2), tags(3)), (Some(VlanTags { outer: 100, inner: None }), None));
        assert_eq!(settings.unknown_unicast, UnknownUnicast::Flood);
        assert_eq!((settings.ageing, settings.flood_max), (Duration::from_secs(20), 256));
        assert!(config.is_bridged("n6") && !config.is_bridged("n3"));
    }

    #[test]
    fn what_cannot_be_is_said_with_its_field() {
        for (text, field) in [
            (lan("a", ""), "network_instance.vlan"),
            (lan("a", "ethernet = true\naddresses = [\"10.1.0.1/24\"]"), "network_instance.ethernet"),
            ([lan("a", "ethernet = true"), lan("b", "ethernet = true")].concat(), "network_instance.vlan"),
            (
                [lan("a", "ethernet = true\nvlan = 7"), lan("b", "ethernet = true\nvlan = 7")].concat(),
                "network_instance.vlan",
            ),
            ("[ethernet]\nflood_max = 0\n".to_owned(), "ethernet.flood_max"),
            ("[ethernet]\nageing_s = 1\n".to_owned(), "ethernet.ageing_s"),
        ] {
            let said = read(&text).err().unwrap_or_default();
            assert!(said.contains(field), "{field}: {said}");
        }
    }
}
