//! The configuration file: one TOML file, checked whole before anything is opened.
//!
//! Serde finds what is misspelt or of the wrong kind, [`check`] what is impossible together; either way
//! the user sees the file, the line, the field, and what is allowed.

mod check;
mod ethernet;
pub(crate) mod fault;
mod lan;
mod metrics;
mod predefined;
mod qos;
mod reference;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use kaido_upf::echo::EchoSettings;
use kaido_upf::fragment::{Limits, Oversize};
use serde::Deserialize;
use toml::Spanned;

use self::ethernet::EthernetConfig;
use self::metrics::MetricsConfig;
use self::predefined::PredefinedRuleConfig;
use self::qos::QosConfig;

pub(crate) use fault::ConfigFault;
pub(crate) use lan::{ForwardingPolicyConfig, NetworkInstanceConfig};
pub(crate) use metrics::MetricsListen;
pub(crate) use reference::reference;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Sizes and workers.
    #[serde(default)]
    pub(crate) node: NodeConfig,
    /// Ports, one table each.
    #[serde(rename = "port")]
    pub(crate) ports: Vec<Spanned<PortConfig>>,
    /// GTP-U.
    #[serde(default)]
    pub(crate) gtpu: GtpuConfig,
    /// Fragments.
    #[serde(default)]
    pub(crate) reassembly: ReassemblyConfig,
    /// DPDK, for the ports that are its.
    #[serde(default)]
    pub(crate) dpdk: DpdkConfig,
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
    /// Downlink buffering.
    #[serde(default)]
    pub(crate) buffer: BufferConfig,
    /// Rates.
    #[serde(default)]
    pub(crate) qos: QosConfig,
    /// Ethernet sessions.
    #[serde(default)]
    pub(crate) ethernet: EthernetConfig,
    /// The socket of `kaido status` and its like.
    #[serde(default)]
    pub(crate) control: ControlConfig,
    /// Metrics.
    #[serde(default)]
    pub(crate) metrics: MetricsConfig,
    /// Logs.
    #[serde(default)]
    pub(crate) log: LogConfig,
}

/// Sizes and workers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NodeConfig {
    /// Most sessions.
    pub(crate) sessions_max: Spanned<u32>,
    /// Frames of 4096 bytes in the pool.
    pub(crate) frames: Spanned<u32>,
    /// Worker threads.
    pub(crate) workers: Spanned<u8>,
    /// How workers get at what a port receives.
    pub(crate) queue_mode: Spanned<QueueMode>,
    /// By what packets are steered to workers in mode `rss`.
    pub(crate) steer_by: Spanned<SteerBy>,
    /// What forwards.
    pub(crate) datapath: Spanned<Datapath>,
    /// `hybrid`: most records in the kernel.
    pub(crate) xdp_records_max: Option<Spanned<u32>>,
    /// CPUs that workers are pinned to, in their order; empty pins none.
    pub(crate) cpus: Vec<usize>,
    /// Whether workers poll without ever sleeping.
    pub(crate) busy_poll: bool,
    /// User plane inactivity timer where the control plane gives none, in seconds; zero is none.
    pub(crate) inactivity_s: u32,
    /// Error indications, ICMP errors and extension notices, per second, worker and kind.
    pub(crate) answers_per_second: u32,
    /// What becomes of packets from UE to UE of a network instance.
    pub(crate) ue_to_ue: UeToUe,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            sessions_max: unplaced(65_536),
            frames: unplaced(16_384),
            workers: unplaced(1),
            queue_mode: unplaced(QueueMode::Rss),
            steer_by: unplaced(SteerBy::Queue),
            datapath: unplaced(Datapath::Engine),
            xdp_records_max: None,
            cpus: Vec::new(),
            busy_poll: false,
            inactivity_s: 0,
            answers_per_second: 100,
            ue_to_ue: UeToUe::Route,
        }
    }
}

impl NodeConfig {
    /// Most records in the kernel where the datapath is hybrid.
    pub(crate) fn xdp_records_max(&self) -> u32 {
        self.xdp_records_max.as_ref().map_or(65_536, |records| *records.get_ref())
    }
}

/// `datapath` of the node.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Datapath {
    /// The workers, all packets.
    Engine,
    /// The kernel, every session whose records fit; the workers the rest.
    Xdp,
    /// As `xdp`, but only so many records.
    Hybrid,
}

impl Datapath {
    /// The name in the file.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Engine => "engine",
            Self::Xdp => "xdp",
            Self::Hybrid => "hybrid",
        }
    }
}

/// `ue_to_ue` of the node.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UeToUe {
    /// They leave by the routes.
    Route,
    /// They go into the other session's tunnel.
    Forward,
    /// They are dropped.
    Drop,
}

impl From<UeToUe> for kaido_upf::record::UeToUe {
    fn from(choice: UeToUe) -> Self {
        match choice {
            UeToUe::Route => Self::Route,
            UeToUe::Forward => Self::Forward,
            UeToUe::Drop => Self::Drop,
        }
    }
}

/// `queue_mode` of the node.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum QueueMode {
    /// A queue for each worker.
    Rss,
    /// One queue for all workers.
    Shared,
    /// One queue for all workers, whose packets leave in the order of their arrival.
    SharedOrdered,
}

impl From<QueueMode> for kaido_engine::shared::QueueMode {
    fn from(mode: QueueMode) -> Self {
        match mode {
            QueueMode::Rss => Self::Rss,
            QueueMode::Shared => Self::Shared,
            QueueMode::SharedOrdered => Self::SharedOrdered,
        }
    }
}

/// `steer_by` of the node.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SteerBy {
    /// As the NIC has it.
    Queue,
    /// By the UE's address.
    Ue,
    /// By the TEID uplink, the UE's address downlink.
    Teid,
}

/// A default value, which stands nowhere in the file.
fn unplaced<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

/// A port.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PortConfig {
    /// Its name in counters and logs.
    pub(crate) name: Spanned<String>,
    /// How packets come and go.
    pub(crate) driver: Spanned<Driver>,
    /// The network interface of `af_xdp` and `af_packet`, or the TAP device to make: for `dpdk`, the kernel's side.
    pub(crate) interface: Option<Spanned<String>>,
    /// `dpdk`: the device, by PCI address or as its `--vdev` argument names it.
    pub(crate) device: Option<Spanned<String>>,
    /// What it is for.
    pub(crate) roles: Spanned<Vec<Role>>,
    /// Names of the network instance behind an `n6` port; without one it answers to every name.
    pub(crate) network_instance: Option<String>,
    /// `n6` with `af_xdp`: prefixes of UEs that are taken from the kernel; empty takes all that is not
    /// addressed to the node itself.
    #[serde(default)]
    pub(crate) ue_prefixes: Vec<Prefix>,
    /// `af_xdp`: whether the driver copies frames.
    #[serde(default)]
    pub(crate) copy: CopyMode,
    /// `af_xdp`: where the program attaches.
    #[serde(default)]
    pub(crate) attach: Attach,
    /// `tap`: addresses with prefix length, given to the device; the kernel behind it is the neighbour.
    /// `dpdk`: the port's own, given to the TAP device.
    #[serde(default)]
    pub(crate) addresses: Vec<Prefix>,
    /// `tap` and `dpdk`: largest IP packet, in bytes.
    #[serde(default = "default_mtu")]
    pub(crate) mtu: u32,
}

fn default_mtu() -> u32 {
    1500
}

/// How packets come and go.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Driver {
    /// AF_XDP sockets behind the steering program.
    AfXdp,
    /// Packet sockets, where AF_XDP is not to be had.
    AfPacket,
    /// A TAP device made for it; the kernel is the neighbour behind it.
    Tap,
    /// A device of DPDK's, with a TAP device for what is the kernel's.
    Dpdk,
}

/// What a port is for.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    /// GTP-U towards the access: N3, S1-U, S5-U.
    N3,
    /// IP towards the data network: N6, SGi.
    N6,
    /// GTP-U between user planes: N9, S5-U.
    N9,
}

/// `copy` of a port.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CopyMode {
    /// Zero-copy where the driver can.
    #[default]
    Auto,
    /// Always copy.
    Copy,
    /// Zero-copy or not at all.
    ZeroCopy,
}

/// `attach` of a port.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Attach {
    /// In the driver where it can, else generic.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the kernel's generic hook.
    Generic,
}

/// GTP-U.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GtpuConfig {
    /// Local addresses of tunnels; all of the `n3` and `n9` ports' own when empty.
    pub(crate) addresses: Vec<IpAddr>,
    /// Outer UDP source port.
    pub(crate) source_port: SourcePort,
    /// Compute the outer UDP checksum over IPv4, where TS 29.281 lets it be zero.
    pub(crate) udp_checksum_ipv4: bool,
    /// Leave the outer UDP checksum over IPv6 zero, where the path is known to take it (RFC 6936).
    pub(crate) udp_zero_checksum_ipv6: bool,
    /// Peers for which it is otherwise.
    #[serde(rename = "peer")]
    pub(crate) peers: Vec<GtpuPeerConfig>,
    /// Seconds from one Echo Request to a peer to the next; 0 sends none.
    pub(crate) echo_interval_s: Spanned<u32>,
    /// T3-RESPONSE in milliseconds.
    pub(crate) echo_t3_ms: Spanned<u32>,
    /// N3-REQUESTS.
    pub(crate) echo_retries: Spanned<u8>,
    /// What becomes of packets that are too large for the way.
    pub(crate) oversize: OversizeConfig,
    /// Largest segments that TCP connections may announce.
    pub(crate) mss_clamp: Spanned<MssClampConfig>,
}

/// `oversize` of GTP-U.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OversizeConfig {
    /// Dropped, the sender told where that is due.
    Icmp,
    /// The user's packet is cut where it may be.
    #[default]
    FragmentInner,
    /// The tunnel's packet is cut.
    FragmentOuter,
}

impl From<OversizeConfig> for Oversize {
    fn from(oversize: OversizeConfig) -> Self {
        match oversize {
            OversizeConfig::Icmp => Self::Icmp,
            OversizeConfig::FragmentInner => Self::FragmentInner,
            OversizeConfig::FragmentOuter => Self::FragmentOuter,
        }
    }
}

/// `mss_clamp` of GTP-U.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub(crate) enum MssClampConfig {
    /// Whether to what the ports' MTUs leave.
    ByMtu(bool),
    /// To this many octets.
    To(u16),
}

/// Fragments that wait for the rest of their packets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ReassemblyConfig {
    /// Whether any do.
    pub(crate) enabled: bool,
    /// Most packets at a time, of the whole node.
    pub(crate) packets: Spanned<u32>,
    /// Most packets of one source.
    pub(crate) packets_per_source: Spanned<u32>,
    /// Most fragments kept, of the whole node.
    pub(crate) fragments: Spanned<u32>,
    /// How long the rest is waited for, in milliseconds.
    pub(crate) time_ms: Spanned<u32>,
}

impl Default for ReassemblyConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            packets: unplaced(512),
            packets_per_source: unplaced(64),
            fragments: unplaced(1024),
            time_ms: unplaced(15_000),
        }
    }
}

impl ReassemblyConfig {
    /// As the user plane takes it.
    pub(crate) fn limits(&self) -> Limits {
        Limits {
            packets: *self.packets.get_ref() as usize,
            packets_per_source: *self.packets_per_source.get_ref() as usize,
            pieces: *self.fragments.get_ref() as usize,
            time: Duration::from_millis(u64::from(*self.time_ms.get_ref())),
        }
    }
}

impl Default for GtpuConfig {
    fn default() -> Self {
        Self {
            addresses: Vec::new(),
            source_port: SourcePort::default(),
            udp_checksum_ipv4: false,
            udp_zero_checksum_ipv6: false,
            peers: Vec::new(),
            echo_interval_s: unplaced(60),
            echo_t3_ms: unplaced(3000),
            echo_retries: unplaced(3),
            oversize: OversizeConfig::default(),
            mss_clamp: unplaced(MssClampConfig::ByMtu(false)),
        }
    }
}

impl GtpuConfig {
    /// How the user plane manages its paths.
    pub(crate) fn echo(&self) -> EchoSettings {
        let seconds = u64::from(*self.echo_interval_s.get_ref());
        EchoSettings {
            interval: (seconds > 0).then(|| Duration::from_secs(seconds)),
            t3: Duration::from_millis(u64::from(*self.echo_t3_ms.get_ref())),
            n3: *self.echo_retries.get_ref(),
        }
    }
}

/// A network of GTP-U peers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GtpuPeerConfig {
    /// Their addresses.
    pub(crate) prefix: Prefix,
    /// Compute the outer UDP checksum of datagrams to them.
    pub(crate) udp_checksum: bool,
}

/// `source_port` of GTP-U.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SourcePort {
    /// By the inner flow.
    #[default]
    Entropy,
    /// Always 2152.
    Fixed,
}

/// DPDK.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DpdkConfig {
    /// Arguments of its environment (EAL), as its own programs take them.
    pub(crate) eal: Vec<String>,
}

/// PFCP.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PfcpConfig {
    /// Addresses to listen on, with or without port (8805).
    pub(crate) listen: Spanned<Vec<Listen>>,
    /// Node ID: an address or a name; the first listening address when absent.
    pub(crate) node_id: Option<Spanned<String>>,
    /// Control planes to set associations up with; others may set up theirs.
    #[serde(default)]
    pub(crate) control_planes: Vec<Listen>,
    /// Prefixes of control planes that are listened to; empty listens to all.
    #[serde(default)]
    pub(crate) allow: Vec<Prefix>,
    /// Seconds between heartbeats.
    #[serde(default = "default_heartbeat_s")]
    pub(crate) heartbeat_interval_s: Spanned<u32>,
    /// T1: milliseconds until a request is sent again.
    #[serde(default = "default_t1_ms")]
    pub(crate) t1_ms: Spanned<u32>,
    /// N1: how often a request is sent in all.
    #[serde(default = "default_n1")]
    pub(crate) n1: Spanned<u8>,
}

fn default_heartbeat_s() -> Spanned<u32> {
    unplaced(10)
}

fn default_t1_ms() -> Spanned<u32> {
    unplaced(3000)
}

fn default_n1() -> Spanned<u8> {
    unplaced(3)
}

/// An address with or without port.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct Listen(pub(crate) SocketAddr);

impl TryFrom<String> for Listen {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let with_port = text.parse::<SocketAddr>();
        let without = text.parse::<IpAddr>().map(|addr| SocketAddr::new(addr, PFCP_PORT));
        with_port.or(without).map(Self).map_err(|_| {
            format!(
                "`{text}` is not an address; write \"10.0.0.1\", \"10.0.0.1:8805\" or \"[2001:db8::1]:8805\""
            )
        })
    }
}

/// The port of PFCP (TS 29.244 4.4).
pub(crate) const PFCP_PORT: u16 = 8805;

/// An address with prefix length.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct Prefix {
    pub(crate) addr: IpAddr,
    pub(crate) len: u8,
}

impl TryFrom<String> for Prefix {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let fault = || format!("`{text}` is not a prefix; write \"10.60.0.0/16\" or \"2001:db8::/48\"");
        let (addr, len) = text.split_once('/').ok_or_else(fault)?;
        let addr: IpAddr = addr.parse().map_err(|_| fault())?;
        let len: u8 = len.parse().map_err(|_| fault())?;
        let longest = if addr.is_ipv4() { 32 } else { 128 };
        if len > longest {
            return Err(format!("`{text}`: the prefix length is at most {longest}"));
        }
        Ok(Self { addr, len })
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
            time_ms: 10_000,
        }
    }
}

/// The control socket.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ControlConfig {
    /// Its path.
    pub(crate) socket: PathBuf,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self { socket: PathBuf::from(DEFAULT_SOCKET) }
    }
}

/// Where the control socket is unless the file says otherwise.
pub(crate) const DEFAULT_SOCKET: &str = "/run/kaido.sock";

/// Logs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogConfig {
    /// Which events: `info`, `debug`, or a filter such as `info,kaido_pfcp=debug`.
    pub(crate) level: Spanned<String>,
    /// Lines for people or for machines.
    pub(crate) format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: unplaced("info".to_owned()), format: LogFormat::default() }
    }
}

/// `format` of logs.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LogFormat {
    /// A line of text for each event.
    #[default]
    Text,
    /// A JSON object for each event.
    Json,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigFault> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ConfigFault::Unreadable { path: path.to_owned(), error })?;
        Self::parse(path, text)
    }

    fn parse(path: &Path, text: String) -> Result<Self, ConfigFault> {
        let config: Self = match toml::from_str(&text) {
            Ok(config) => config,
            Err(error) => return Err(fault::syntax(path, text, &error)),
        };
        let faults = check::check(&config);
        if faults.is_empty() { Ok(config) } else { Err(fault::faults(path, text, faults)) }
    }
}

impl Prefix {
    /// Whether an address lies in it.
    pub(crate) fn contains(&self, addr: IpAddr) -> bool {
        match (self.addr, addr.to_canonical()) {
            (IpAddr::V4(net), IpAddr::V4(addr)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.len)).unwrap_or(0);
                (net.to_bits() ^ addr.to_bits()) & mask == 0
            }
            (IpAddr::V6(net), IpAddr::V6(addr)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.len)).unwrap_or(0);
                (net.to_bits() ^ addr.to_bits()) & mask == 0
            }
            _ => false,
        }
    }

    /// As an IPv4 network.
    pub(crate) fn ipv4(&self) -> Option<(Ipv4Addr, u8)> {
        match self.addr {
            IpAddr::V4(addr) => Some((addr, self.len)),
            IpAddr::V6(_) => None,
        }
    }

    /// As an IPv6 network.
    pub(crate) fn ipv6(&self) -> Option<(Ipv6Addr, u8)> {
        match self.addr {
            IpAddr::V6(addr) => Some((addr, self.len)),
            IpAddr::V4(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_holds_its_addresses_and_no_others() {
        let holds = |prefix: &str, addr: &str| {
            Prefix::try_from(prefix.to_owned()).unwrap().contains(addr.parse().unwrap())
        };
        assert!(holds("10.0.0.0/8", "10.255.0.1") && !holds("10.0.0.0/8", "11.0.0.1"));
        assert!(holds("0.0.0.0/0", "192.0.2.1") && !holds("0.0.0.0/0", "2001:db8::1"));
        assert!(holds("10.0.0.1/32", "10.0.0.1") && !holds("10.0.0.1/32", "10.0.0.2"));
        assert!(holds("2001:db8::/32", "2001:db8:1::1") && !holds("2001:db8::/32", "2001:db9::1"));
        assert!(Prefix::try_from("10.0.0.0/33".to_owned()).is_err());
        assert!(Prefix::try_from("10.0.0.0".to_owned()).is_err());
    }
}

/// What the tests of several sections are made of.
#[cfg(test)]
mod testing {
    use std::path::Path;

    use super::Config;

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
    pub(super) fn read(more: &str) -> Result<Config, String> {
        Config::parse(Path::new("kaido.toml"), format!("{BASE}{more}")).map_err(|fault| format!("{fault:?}"))
    }
}
