//! The file of an NDN router: `function = "ndn"`.

mod access;
mod check;
mod multicast;
mod name;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use kaido_ndn::balance::BalanceSettings;
use kaido_ndn::face::FaceUri;
use kaido_ndn::forward::StrategyChoice;
use kaido_ndn::mgmt::Module;
use serde::Deserialize;
use toml::Spanned;

use super::base::socket_path;
use super::{Base, unplaced};

pub(crate) use self::access::{ModeField, group_number};
pub(super) use self::check::check;
pub(crate) use self::multicast::MulticastField;
pub(crate) use self::name::NameField;

/// The whole file.
#[derive(Debug, Deserialize)]
pub(crate) struct NdnConfig {
    /// What every function has.
    #[serde(skip)]
    pub(crate) base: Base,
    /// The router.
    #[serde(default)]
    pub(crate) ndn: NdnTable,
}

impl NdnConfig {
    /// Reads a router's part of a file.
    pub(super) fn read(text: &str, mut base: Base) -> Result<Self, toml::de::Error> {
        base.node.hands_over = true;
        Ok(Self { base, ..toml::from_str(text)? })
    }
}

/// `[ndn]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NdnTable {
    /// Prefixes with next hops.
    pub(crate) prefixes_max: Spanned<u32>,
    /// Routes.
    pub(crate) routes_max: Spanned<u32>,
    /// Pending Interests, of each worker.
    pub(crate) pending_max: Spanned<u32>,
    /// Of these, those of one host or one application; a quarter if it is not said.
    pub(crate) pending_per_host: Option<Spanned<u32>>,
    /// Faces.
    pub(crate) faces_max: Spanned<u32>,
    /// Nonces that are remembered, of each worker.
    pub(crate) dead_nonces: Spanned<u32>,
    /// Data that nobody has asked for.
    pub(crate) unsolicited: UnsolicitedName,
    /// Names of the region that the node is in.
    pub(crate) regions: Vec<Spanned<NameField>>,
    /// The Content Store.
    pub(crate) cs: CsConfig,
    /// How several workers share the names.
    pub(crate) balance: BalanceConfig,
    /// Where applications and neighbours come in.
    pub(crate) listen: ListenConfig,
    /// Whose commands are obeyed.
    pub(crate) management: ManagementConfig,
    /// Faces that are made at the start.
    #[serde(rename = "face")]
    pub(crate) faces: Vec<Spanned<FaceConfig>>,
    /// Routes that are there from the start.
    #[serde(rename = "route")]
    pub(crate) routes: Vec<Spanned<RouteConfig>>,
    /// Strategies of prefixes.
    #[serde(rename = "strategy")]
    pub(crate) strategies: Vec<Spanned<StrategyConfig>>,
}

impl Default for NdnTable {
    fn default() -> Self {
        Self {
            prefixes_max: unplaced(1_000_000),
            routes_max: unplaced(1_000_000),
            pending_max: unplaced(65_536),
            pending_per_host: None,
            faces_max: unplaced(4096),
            dead_nonces: unplaced(1 << 20),
            unsolicited: UnsolicitedName::default(),
            regions: Vec::new(),
            cs: CsConfig::default(),
            balance: BalanceConfig::default(),
            listen: ListenConfig::default(),
            management: ManagementConfig::default(),
            faces: Vec::new(),
            routes: Vec::new(),
            strategies: Vec::new(),
        }
    }
}

/// `[ndn.cs]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CsConfig {
    /// Data that are kept, of the whole node; 0 keeps none.
    pub(crate) packets: Spanned<u32>,
    /// Their memory, of the whole node, in MiB.
    pub(crate) memory_mib: Spanned<u32>,
    /// Which of the Data that pass.
    pub(crate) admit: AdmitName,
    /// Where on disk what memory gives up goes, if it goes there.
    pub(crate) disk: Option<Spanned<DiskConfig>>,
}

/// `[ndn.cs.disk]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiskConfig {
    /// The folder.
    pub(crate) path: PathBuf,
    /// How much of the disk, in MiB.
    pub(crate) size_mib: Spanned<u32>,
    /// Packets that the index is made for; of 4 KiB each if it is not said.
    pub(crate) packets: Option<Spanned<u64>>,
    /// Threads that read.
    #[serde(default = "readers")]
    pub(crate) readers: Spanned<u32>,
    /// Reads under way, of each worker.
    #[serde(default = "reads_max")]
    pub(crate) reads_max: Spanned<u32>,
    /// How long a read waits for more Interests.
    #[serde(default = "gather")]
    pub(crate) gather_us: Spanned<u32>,
}

fn readers() -> Spanned<u32> {
    unplaced(16)
}

fn reads_max() -> Spanned<u32> {
    unplaced(256)
}

fn gather() -> Spanned<u32> {
    unplaced(0)
}

impl Default for CsConfig {
    fn default() -> Self {
        Self { packets: unplaced(65_536), memory_mib: unplaced(128), admit: AdmitName::default(), disk: None }
    }
}

/// `[ndn.balance]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BalanceConfig {
    /// Of how many Interests one is looked at.
    pub(crate) sample: Spanned<u32>,
    /// From how many percent of a worker's fair share on a name is hot; 0 for none.
    pub(crate) hot_percent: Spanned<u32>,
    /// Below how many it cools.
    pub(crate) cool_percent: Spanned<u32>,
    /// For how many seconds it must have been below.
    pub(crate) calm_s: Spanned<u32>,
}

impl Default for BalanceConfig {
    fn default() -> Self {
        Self {
            sample: unplaced(32),
            hot_percent: unplaced(20),
            cool_percent: unplaced(10),
            calm_s: unplaced(10),
        }
    }
}

impl BalanceConfig {
    /// As the router takes it.
    pub(crate) fn settings(&self) -> BalanceSettings {
        BalanceSettings {
            sample: *self.sample.get_ref(),
            hot_percent: *self.hot_percent.get_ref(),
            cool_percent: *self.cool_percent.get_ref(),
            calm: Duration::from_secs((*self.calm_s.get_ref()).into()),
        }
    }
}

/// `[ndn.listen]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListenConfig {
    /// The Unix socket of applications; an empty path is none.
    #[serde(deserialize_with = "socket_path")]
    pub(crate) unix: PathBuf,
    /// Its permission bits.
    pub(crate) unix_mode: ModeField,
    /// Its group, by name or number, if it is another than the process's.
    pub(crate) unix_group: Option<String>,
    /// Addresses for TCP.
    pub(crate) tcp: Vec<SocketAddr>,
    /// Addresses for UDP.
    pub(crate) udp: Vec<SocketAddr>,
    /// Addresses of the engine's ports at which UDP is taken without a socket.
    pub(crate) udp_on_ports: Vec<Spanned<SocketAddr>>,
    /// Interfaces on which the multicast groups are heard.
    pub(crate) multicast: Spanned<MulticastField>,
    /// Octets of a UDP payload, at most.
    pub(crate) udp_mtu: Spanned<u16>,
    /// Faces that are made for other hosts that come, at most.
    pub(crate) on_demand_max: Spanned<u32>,
    /// Of these, those of one host.
    pub(crate) on_demand_per_host: Spanned<u32>,
    /// Applications of this host that are connected, at most.
    pub(crate) applications_max: Spanned<u32>,
    /// After how many seconds without a packet a face of a sender of UDP goes.
    pub(crate) idle_s: Spanned<u32>,
    /// KiB that wait for a face, at most.
    pub(crate) queue_kib: Spanned<u32>,
}

impl Default for ListenConfig {
    fn default() -> Self {
        Self {
            unix: PathBuf::from("/run/nfd/nfd.sock"),
            unix_mode: ModeField(0o660),
            unix_group: None,
            tcp: Vec::new(),
            udp: Vec::new(),
            udp_on_ports: Vec::new(),
            multicast: unplaced(MulticastField::default()),
            udp_mtu: unplaced(8800),
            on_demand_max: unplaced(1024),
            on_demand_per_host: unplaced(64),
            applications_max: unplaced(1024),
            idle_s: unplaced(600),
            queue_kib: unplaced(1024),
        }
    }
}

/// `[ndn.management]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ManagementConfig {
    /// What applications at the Unix socket may command without a key.
    pub(crate) local: Vec<ModuleName>,
    /// What those that come over TCP from this host may.
    pub(crate) local_tcp: Vec<ModuleName>,
    /// Keys that may command.
    #[serde(rename = "key")]
    pub(crate) keys: Vec<Spanned<KeyConfig>>,
}

impl Default for ManagementConfig {
    fn default() -> Self {
        Self { local: ModuleName::ALL.to_vec(), local_tcp: Vec::new(), keys: Vec::new() }
    }
}

/// `[[ndn.management.key]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyConfig {
    /// The file of its certificate, in base64 as NDN tools write it.
    pub(crate) certificate: Spanned<PathBuf>,
    /// What it may command.
    #[serde(default = "ModuleName::all")]
    pub(crate) modules: Vec<ModuleName>,
}

/// A module of the management protocol.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ModuleName {
    Faces,
    Fib,
    Rib,
    Cs,
    StrategyChoice,
}

impl ModuleName {
    const ALL: [Self; 5] = [Self::Faces, Self::Fib, Self::Rib, Self::Cs, Self::StrategyChoice];

    fn all() -> Vec<Self> {
        Self::ALL.to_vec()
    }
}

impl From<ModuleName> for Module {
    fn from(name: ModuleName) -> Self {
        match name {
            ModuleName::Faces => Self::Faces,
            ModuleName::Fib => Self::Fib,
            ModuleName::Rib => Self::Rib,
            ModuleName::Cs => Self::Cs,
            ModuleName::StrategyChoice => Self::StrategyChoice,
        }
    }
}

/// `unsolicited`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UnsolicitedName {
    #[default]
    Drop,
    CacheLocal,
    CacheAll,
}

/// `admit`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AdmitName {
    #[default]
    All,
    AskedAgain,
}

/// `[[ndn.face]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaceConfig {
    /// The other end.
    pub(crate) remote: Spanned<UriField>,
    /// This end: the port of an Ethernet face.
    pub(crate) local: Option<Spanned<UriField>>,
    /// Octets of a packet of the link, at most.
    pub(crate) mtu: Option<Spanned<u16>>,
    /// Whether packets are acknowledged, and sent again when they were lost.
    #[serde(default)]
    pub(crate) reliability: bool,
}

/// `[[ndn.route]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteConfig {
    /// The prefix.
    pub(crate) prefix: NameField,
    /// The other end of a face.
    pub(crate) to: Spanned<UriField>,
    /// What it costs.
    #[serde(default)]
    pub(crate) cost: u32,
    /// Whether longer prefixes have it too.
    #[serde(default = "yes")]
    pub(crate) inherit: bool,
    /// Whether the prefix has none of shorter ones.
    #[serde(default)]
    pub(crate) capture: bool,
}

const fn yes() -> bool {
    true
}

/// `[[ndn.strategy]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StrategyConfig {
    /// The prefix.
    pub(crate) prefix: NameField,
    /// The strategy, as `best-route` or its whole name.
    pub(crate) strategy: Spanned<String>,
}

impl StrategyConfig {
    /// The strategy, if there is one of that name.
    pub(crate) fn choice(&self) -> Option<StrategyChoice> {
        let text = self.strategy.get_ref();
        text.strip_prefix("/localhost/nfd/strategy/").unwrap_or(text).parse().ok()
    }
}

/// The URI of a face, as text.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(try_from = "String")]
pub(crate) struct UriField(pub(crate) FaceUri);

impl TryFrom<String> for UriField {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error: kaido_ndn::face::NotAFaceUri| error.to_string())
    }
}
