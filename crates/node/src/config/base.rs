//! Sections that every function has.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use kaido_engine::fragment::Limits;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::api::ApiConfig;
use super::metrics::MetricsConfig;
use super::node::NodeConfig;
use super::port::{Driver, PortConfig};
use super::{Spanned, unplaced};

/// What every function has.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Base {
    /// Sizes and workers.
    pub node: NodeConfig,
    /// Ports, one table each.
    #[serde(rename = "port")]
    pub ports: Vec<Spanned<PortConfig>>,
    /// DPDK, for `dpdk` ports.
    pub dpdk: DpdkConfig,
    /// Fragments that wait for the rest of their packets.
    pub reassembly: ReassemblyConfig,
    /// The socket of `kaido status` and its like.
    pub control: ControlConfig,
    /// Where metrics are scraped.
    pub metrics: MetricsConfig,
    /// HTTP for who cannot open the control socket.
    pub api: ApiConfig,
    /// Logs, on standard error.
    pub log: LogConfig,
}

impl Base {
    /// Whether a port is one of these, by its name.
    pub fn has_port(&self, port: &PortConfig) -> bool {
        self.ports.iter().any(|own| own.get_ref().name == port.name)
    }

    /// Whether the node restricts what it may ask of the kernel. What DPDK asks for, nobody lists.
    pub fn is_restricted(&self) -> bool {
        let is_dpdk = |port: &Spanned<PortConfig>| *port.get_ref().driver.get_ref() == Driver::Dpdk;
        self.node.sandbox && !self.ports.iter().any(is_dpdk)
    }

    /// Whether a device that the node makes is to have an address.
    pub fn makes(&self, address: IpAddr) -> bool {
        let mut ports = self.ports.iter().map(Spanned::get_ref);
        ports.any(|port| port.addresses.iter().any(|own| own.addr == address))
    }
}

/// Fragments that wait for the rest of their packets. Functions have further fields in it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReassemblyConfig {
    /// Most packets whose rest is waited for, of the whole node.
    #[schemars(range(min = 1, max = 65_536))]
    pub packets: Spanned<u32>,
    /// Of these, most of one source.
    #[schemars(range(min = 1, max = 65_536))]
    pub packets_per_source: Spanned<u32>,
    /// Most fragments kept, of the whole node: at most a quarter of `node.frames`. The oldest packets give way.
    pub fragments: Spanned<u32>,
    /// Longest wait for the rest of a packet, in milliseconds.
    #[schemars(range(min = 100, max = 60_000))]
    pub time_ms: Spanned<u32>,
}

impl Default for ReassemblyConfig {
    fn default() -> Self {
        Self {
            packets: unplaced(512),
            packets_per_source: unplaced(64),
            fragments: unplaced(1024),
            time_ms: unplaced(15_000),
        }
    }
}

impl ReassemblyConfig {
    /// As the user plane takes it.
    pub fn limits(&self) -> Limits {
        Limits {
            packets: *self.packets.get_ref() as usize,
            packets_per_source: *self.packets_per_source.get_ref() as usize,
            pieces: *self.fragments.get_ref() as usize,
            time: Duration::from_millis(u64::from(*self.time_ms.get_ref())),
        }
    }
}

/// DPDK.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct DpdkConfig {
    /// Arguments of DPDK's environment (EAL), such as `["-a", "0000:03:00.0"]`; for all `dpdk` ports together.
    pub eal: Vec<String>,
}

/// The control socket.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// Unix socket of the API, for `kaido status` and its like. The folder of the default is made when it is missing.
    #[serde(deserialize_with = "socket_path")]
    #[schemars(extend("x-allowed" = "path"))]
    pub socket: PathBuf,
    /// Group whose members may ask there too, with the role `read`. Without it only the node's user and root can connect, who may do all.
    #[schemars(extend("x-allowed" = "name or number of a group"))]
    pub group: Option<String>,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self { socket: PathBuf::from(DEFAULT_SOCKET), group: None }
    }
}

/// Octets of a Unix socket's path (`sun_path` less its end).
const SOCKET_PATH_MAX: usize = 107;

/// Reads the path of a Unix socket, which the system bounds.
pub fn socket_path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
    let path = PathBuf::deserialize(deserializer)?;
    let len = path.as_os_str().len();
    if len > SOCKET_PATH_MAX {
        let said = format!(
            "{len} octets are too many for the path of a socket, which has {SOCKET_PATH_MAX} at most"
        );
        return Err(D::Error::custom(said));
    }
    Ok(path)
}

/// Where the control socket is unless the file says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/kaido/kaido.sock";

/// Logs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// `error`, `warn`, `info`, `debug`, `trace`, or a filter such as `"info,kaido_pfcp=debug"`.
    #[schemars(extend("x-allowed" = "log filter"))]
    pub level: Spanned<String>,
    /// Lines for people or objects for machines.
    pub format: LogFormat,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { level: unplaced("info".to_owned()), format: LogFormat::default() }
    }
}

/// `format` of logs.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// A line of text for each event; where the output is systemd's journal, an entry with level and fields.
    #[default]
    Text,
    /// A JSON object for each event.
    Json,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_service_may_write_where_the_control_socket_is() {
        let unit = include_str!("../../../../deploy/kaido.service");
        let of = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        let folders: Vec<_> =
            of("RuntimeDirectory=").split(' ').map(|folder| Path::new("/run").join(folder)).collect();
        let socket = Path::new(DEFAULT_SOCKET);
        assert!(folders.iter().any(|folder| socket.parent() == Some(folder)), "{folders:?}");
        // Where applications look for an NDN router, beside what systemd makes.
        assert_eq!((of("ProtectSystem="), of("ReadWritePaths=")), ("strict", "-/run/nfd"));
    }
}
