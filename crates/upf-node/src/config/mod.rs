//! The file of a user plane: `function = "upf"`, which is what a file without that line is.

pub(crate) mod check;
mod ethernet;
mod event_exposure;
mod gtpu;
mod ipfix;
mod lan;
mod node;
mod otlp;
pub(crate) mod pfcp;
mod port;
mod predefined;
mod qos;
mod store;
mod vlan;

use std::sync::Arc;
use std::time::Duration;

use kaido_node::config::{Base, FilePart, PortConfig, Prefix, Spanned, unplaced};
use kaido_node::config::{FunctionSchema, schema_of};
use kaido_upf::node::{BufferLimits, LiveSettings};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::reload::RELOAD;

use self::ethernet::EthernetConfig;
use self::gtpu::GtpuConfig;
use self::ipfix::IpfixConfig;
use self::lan::{ForwardingPolicyConfig, NetworkInstanceConfig};
use self::pfcp::PfcpConfig;
use self::predefined::PredefinedRuleConfig;
use self::qos::QosConfig;

pub(crate) use self::event_exposure::EventExposureConfig;
pub(crate) use self::node::{SteerBy, UpfNode};
pub(crate) use self::otlp::OtlpConfig;
pub(crate) use self::port::{Role, UpfPort};
pub(crate) use self::store::{DurabilityConfig, StoreConfig};

/// What the files of a user plane have.
pub(crate) const SCHEMA: FunctionSchema = FunctionSchema {
    name: "upf",
    title: "User plane",
    vlans: true,
    schema: schema_of::<UpfConfig>,
    reload: RELOAD,
};

/// The whole file.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct UpfConfig {
    /// What every function has.
    #[serde(skip)]
    pub(crate) base: Base,
    /// Further fields of a user plane.
    #[serde(default)]
    pub(crate) node: UpfNode,
    /// Further fields of a user plane's ports.
    #[serde(default, rename = "port")]
    pub(crate) ports: Vec<UpfPort>,
    /// Tunnels.
    #[serde(default)]
    pub(crate) gtpu: GtpuConfig,
    /// Control planes.
    pub(crate) pfcp: PfcpConfig,
    /// Pools from which UE addresses are chosen when the control plane asks for it.
    #[serde(default, rename = "ue_pool")]
    pub(crate) ue_pools: Vec<Spanned<UePoolConfig>>,
    /// A further field of a user plane.
    #[serde(default)]
    pub(crate) reassembly: UpfReassembly,
    /// Network instances behind VLANs.
    #[serde(default, rename = "network_instance")]
    pub(crate) network_instances: Vec<Spanned<NetworkInstanceConfig>>,
    /// Ethernet sessions, and the network instances that are bridged for them.
    #[serde(default)]
    pub(crate) ethernet: EthernetConfig,
    /// Ways out that control planes name by Forwarding Policy.
    #[serde(default, rename = "forwarding_policy")]
    pub(crate) forwarding_policies: Vec<Spanned<ForwardingPolicyConfig>>,
    /// Rules that control planes switch on by name.
    #[serde(default, rename = "predefined_rule")]
    pub(crate) predefined_rules: Vec<Spanned<PredefinedRuleConfig>>,
    /// Packets that wait for idle UEs.
    #[serde(default)]
    pub(crate) buffer: BufferConfig,
    /// Enforcement of rates.
    #[serde(default)]
    pub(crate) qos: QosConfig,
    /// What survives the end of the process, or of the machine.
    #[serde(default)]
    pub(crate) store: StoreConfig,
    /// Flow records for collectors.
    #[serde(default)]
    pub(crate) ipfix: IpfixConfig,
    /// What sessions carry, for consumers that subscribe to it.
    #[serde(default)]
    pub(crate) event_exposure: EventExposureConfig,
    /// Traces of PFCP procedures for a collector.
    #[serde(default)]
    pub(crate) otlp: OtlpConfig,
}

impl UpfConfig {
    /// Reads a user plane's part of a file.
    pub(crate) fn read(part: FilePart<'_>) -> Result<Self, toml::de::Error> {
        let config = part.read()?;
        let mut config = Self { base: part.base, ..config };
        config.base.node.spread_by = config.node.steer_by.get_ref().spread();
        Ok(config)
    }

    /// The ports, with what a user plane further has of each.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (&PortConfig, &UpfPort)> {
        self.base.ports.iter().map(Spanned::get_ref).zip(&self.ports)
    }

    /// What can change while the node runs, as the file says it.
    pub(crate) fn live(&self) -> LiveSettings {
        let (buffer, inactivity_s) = (&self.buffer, self.node.inactivity_s);
        LiveSettings {
            buffer: BufferLimits {
                packets_per_session: buffer.packets_per_session as usize,
                packets_max: *buffer.packets.get_ref() as usize,
                bytes_per_session: buffer.bytes_per_session as usize,
                bytes_max: buffer.bytes,
                time_max: Duration::from_millis(buffer.time_ms.into()),
            },
            inactivity_timer: (inactivity_s != 0).then(|| Duration::from_secs(inactivity_s.into())),
            policer_window: Duration::from_millis((*self.qos.burst_ms.get_ref()).into()),
            answers_per_second: self.node.answers_per_second,
            oversize: self.gtpu.oversize.into(),
            echo: self.gtpu.echo(),
            tunnels: Arc::new(self.gtpu.tunnels()),
            mss_clamp: self.gtpu.mss_clamp(),
            bind_gnb: self.gtpu.bind_gnb,
            ue_to_ue: self.node.ue_to_ue.into(),
            // That takes the network instances: [`UpfConfig::named`].
            named: Arc::default(),
        }
    }

    /// What a user plane further has of a port.
    pub(crate) fn of_port(&self, port: &PortConfig) -> Option<&UpfPort> {
        self.ports().find(|(own, _)| own.name == port.name).map(|(_, of_port)| of_port)
    }
}

/// A user plane's field of `[reassembly]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct UpfReassembly {
    /// Put G-PDUs that come in fragments together, and have users' fragments follow the ports of their first where rules ask for
    /// ports.
    pub(crate) enabled: bool,
}

impl Default for UpfReassembly {
    fn default() -> Self {
        Self { enabled: true }
    }
}

/// A pool of UE addresses.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct UePoolConfig {
    /// The network instance whose UEs get the addresses.
    #[schemars(extend("x-default" = "the first"))]
    pub(crate) network_instance: Option<Spanned<String>>,
    /// IPv4 network; its first and last address are not given out.
    #[schemars(extend("x-allowed" = "prefix up to /30"))]
    pub(crate) ipv4: Option<Spanned<Prefix>>,
    /// IPv6 network; each UE gets a /64 of it.
    #[schemars(extend("x-allowed" = "prefix up to /64"))]
    pub(crate) ipv6: Option<Spanned<Prefix>>,
}

/// Downlink buffering.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BufferConfig {
    /// Most downlink packets kept for one idle UE.
    pub(crate) packets_per_session: u32,
    /// Most packets kept by one worker; at most half of the frames for all workers.
    pub(crate) packets: Spanned<u32>,
    /// Most bytes of packets kept for one idle UE.
    pub(crate) bytes_per_session: u32,
    /// Most bytes of packets kept by all workers.
    pub(crate) bytes: u64,
    /// Longest time a packet is kept, in milliseconds, unless the control plane has it kept longer. Longer than a core pages: free5GC
    /// tries for 30 s.
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
    use kaido_node::config::FilePart;
    use kaido_node::file::Config;
    use kaido_node::function::NetworkFunction;

    const FUNCTIONS: &[&dyn NetworkFunction] = &[&crate::UpfFunction];

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
        whole(&format!("{BASE}{more}"))
    }

    /// A whole file.
    pub(crate) fn whole(text: &str) -> Result<UpfConfig, String> {
        let text = text.to_owned();
        Config::parse(Path::new("kaido.toml"), text.clone(), FUNCTIONS)
            .map_err(|fault| format!("{fault:?}"))?;
        unchecked(&text)
    }

    /// The same, unchecked, or the one fault that reading finds.
    pub(crate) fn unchecked(text: &str) -> Result<UpfConfig, String> {
        match Config::read_unchecked(text, FUNCTIONS) {
            Ok(Ok(_)) => {
                FilePart::whole(text).and_then(UpfConfig::read).map_err(|error| error.message().to_owned())
            }
            Ok(Err(faults)) => Err(format!("{faults:?}")),
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
