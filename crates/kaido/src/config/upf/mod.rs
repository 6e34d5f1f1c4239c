//! The file of a user plane: `function = "upf"`, which is what a file without that line is.

pub(super) mod check;
mod ethernet;
mod gtpu;
mod lan;
mod node;
mod pfcp;
mod port;
mod predefined;
mod qos;
mod vlan;

use serde::Deserialize;
use toml::Spanned;

use self::ethernet::EthernetConfig;
use self::gtpu::GtpuConfig;
use self::lan::{ForwardingPolicyConfig, NetworkInstanceConfig};
use self::pfcp::PfcpConfig;
use self::predefined::PredefinedRuleConfig;
use self::qos::QosConfig;
use super::{Base, PortConfig, Prefix, unplaced};

pub(crate) use self::gtpu::{MssClampConfig, SourcePort};
pub(crate) use self::node::{SteerBy, UpfNode};
pub(crate) use self::port::{Role, UpfPort};

/// The whole file.
#[derive(Debug, Deserialize)]
pub(crate) struct UpfConfig {
    /// What every function has.
    #[serde(skip)]
    pub(crate) base: Base,
    /// What it further has in `[node]`.
    #[serde(default)]
    pub(crate) node: UpfNode,
    /// What it further has in each `[[port]]`, in their order.
    #[serde(default, rename = "port")]
    pub(crate) ports: Vec<UpfPort>,
    /// GTP-U.
    #[serde(default)]
    pub(crate) gtpu: GtpuConfig,
    /// PFCP.
    pub(crate) pfcp: PfcpConfig,
    /// Pools from which UE addresses are chosen when the control plane asks for it.
    #[serde(default, rename = "ue_pool")]
    pub(crate) ue_pools: Vec<Spanned<UePoolConfig>>,
    /// Network instances behind VLANs.
    #[serde(default, rename = "network_instance")]
    pub(crate) network_instances: Vec<Spanned<NetworkInstanceConfig>>,
    /// Ways out that control planes name.
    #[serde(default, rename = "forwarding_policy")]
    pub(crate) forwarding_policies: Vec<Spanned<ForwardingPolicyConfig>>,
    /// Rules that control planes switch on by name.
    #[serde(default, rename = "predefined_rule")]
    pub(crate) predefined_rules: Vec<Spanned<PredefinedRuleConfig>>,
    /// What it further has in `[reassembly]`.
    #[serde(default)]
    pub(crate) reassembly: UpfReassembly,
    /// Downlink buffering.
    #[serde(default)]
    pub(crate) buffer: BufferConfig,
    /// Rates.
    #[serde(default)]
    pub(crate) qos: QosConfig,
    /// Ethernet sessions.
    #[serde(default)]
    pub(crate) ethernet: EthernetConfig,
}

impl UpfConfig {
    /// Reads a user plane's part of a file.
    pub(super) fn read(text: &str, base: Base) -> Result<Self, toml::de::Error> {
        let mut config = Self { base, ..toml::from_str(text)? };
        config.base.node.spread_by = config.node.steer_by.get_ref().spread();
        Ok(config)
    }

    /// The ports, with what a user plane further has of each.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (&PortConfig, &UpfPort)> {
        self.base.ports.iter().map(Spanned::get_ref).zip(&self.ports)
    }

    /// What a user plane further has of a port.
    pub(crate) fn of_port(&self, port: &PortConfig) -> Option<&UpfPort> {
        self.ports().find(|(own, _)| own.name == port.name).map(|(_, of_port)| of_port)
    }
}

/// A user plane's field of `[reassembly]`.
#[derive(Debug, Deserialize)]
#[serde(default)]
pub(crate) struct UpfReassembly {
    /// Whether fragments are put together.
    pub(crate) enabled: bool,
}

impl Default for UpfReassembly {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// A pool of UE addresses.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UePoolConfig {
    /// The network instance whose UEs get them; the first when absent.
    pub(crate) network_instance: Option<Spanned<String>>,
    /// IPv4 network.
    pub(crate) ipv4: Option<Spanned<Prefix>>,
    /// IPv6 network, a /64 of it for each UE.
    pub(crate) ipv6: Option<Spanned<Prefix>>,
}

/// Downlink buffering.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BufferConfig {
    /// Most packets of one session.
    pub(crate) packets_per_session: u32,
    /// Most packets of one worker.
    pub(crate) packets: Spanned<u32>,
    /// Most bytes of one session.
    pub(crate) bytes_per_session: u32,
    /// Most bytes of all workers.
    pub(crate) bytes: u64,
    /// Longest time a packet waits, in milliseconds.
    pub(crate) time_ms: u32,
}

impl Default for BufferConfig {
    fn default() -> Self {
        Self {
            packets_per_session: 64,
            packets: unplaced(4096),
            bytes_per_session: 1 << 20,
            bytes: 64 << 20,
            // Longer than common cores page: five times six seconds in free5GC.
            time_ms: 40_000,
        }
    }
}

/// What the tests of several sections are made of.
#[cfg(test)]
pub(crate) mod testing {
    use std::path::Path;

    use super::UpfConfig;
    use super::check::fields;
    use crate::config::Config;

    /// The least of a configuration.
    const BASE: &str = r#"
[[port]]
name = "n3"
driver = "af_packet"
interface = "n3"
roles = ["n3"]

[[port]]
name = "n6"
driver = "af_packet"
interface = "n6"
roles = ["n6"]

[pfcp]
listen = ["10.0.0.1"]
"#;

    /// That, and more.
    pub(crate) fn read(more: &str) -> Result<UpfConfig, String> {
        match Config::parse(Path::new("kaido.toml"), format!("{BASE}{more}")) {
            Ok(Config::Upf(config)) => Ok(*config),
            Ok(other) => Err(format!("{other:?}")),
            Err(fault) => Err(format!("{fault:?}")),
        }
    }

    /// The same, unchecked, or the one fault that reading finds.
    pub(crate) fn unchecked(text: &str) -> Result<UpfConfig, String> {
        match Config::sections(text) {
            Ok(Ok(Config::Upf(config))) => Ok(*config),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.message().to_owned()),
        }
    }

    /// A user plane of these ports, and what else is in the text, unchecked.
    pub(crate) fn upf_of_ports(text: &str) -> UpfConfig {
        unchecked(&format!("{text}[pfcp]\nlisten = []\n")).unwrap()
    }

    /// The fields at fault of that, and more.
    pub(crate) fn faults(more: &str) -> Vec<String> {
        fields(&unchecked(&format!("{BASE}{more}")).unwrap())
    }
}
