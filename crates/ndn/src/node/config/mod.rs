//! The file of an NDN router: `function = "ndn"`.

mod access;
pub(super) mod check;
mod multicast;
mod name;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use kaido_node::config::socket_path;
use kaido_node::config::{Base, FilePart, Spanned, unplaced};
use kaido_node::config::{FunctionSchema, ReloadRule, schema_of};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::balance::BalanceSettings;
use crate::face::{FaceUri, MTU_MIN};
use crate::forward::StrategyChoice;
use crate::mgmt::Module;

pub(crate) use self::access::ModeField;
pub(crate) use self::check::check;
pub(crate) use self::multicast::MulticastField;
pub(crate) use self::name::NameField;

/// What the files of a router have.
pub(crate) const SCHEMA: FunctionSchema = FunctionSchema {
    name: "ndn",
    title: "NDN router",
    vlans: false,
    schema: schema_of::<NdnConfig>,
    reload: RELOAD,
};

/// What a reload can change: what management commands change, too.
const RELOAD: &[ReloadRule] = &[
    ReloadRule::restart("ndn", "tables, queues and workers are made of it when the router starts"),
    ReloadRule::restart("ndn.regions", "workers read the regions without a lock"),
    ReloadRule::restart("ndn.balance", "workers have a copy of it"),
    ReloadRule::restart("ndn.listen", "sockets and their bounds are made of it when the router starts"),
    ReloadRule::changes("ndn.management", "from the next command on; files of keys are read again each time"),
    ReloadRule::changes("ndn.face", "at once; a face that stays keeps what it was made with"),
    ReloadRule::changes("ndn.route", "from the next Interest on"),
    ReloadRule::changes("ndn.strategy", "from the next Interest on"),
    ReloadRule::restart(
        "ndn.cs",
        "the Content Store is made of it: `kaido ndn cs config` lowers its bound now",
    ),
];

/// The whole file.
#[derive(Debug, Deserialize, JsonSchema)]
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
    pub(crate) fn read(part: FilePart<'_>) -> Result<Self, toml::de::Error> {
        let config = part.read()?;
        let mut base = part.base;
        base.node.hands_over = true;
        base.node.makes_sockets = true;
        Ok(Self { base, ..config })
    }
}

/// `[ndn]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct NdnTable {
    /// Prefixes that have next hops. Memory follows use.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub(crate) prefixes_max: Spanned<u32>,
    /// Routes that are registered.
    #[schemars(range(min = 1, max = 100_000_000))]
    pub(crate) routes_max: Spanned<u32>,
    /// Interests that wait for Data, of each worker: as many as arrive in a round trip, and more.
    #[schemars(range(min = 64, max = 1 << 24))]
    pub(crate) pending_max: Spanned<u32>,
    /// Interests that wait of one other host, or of one application, of each worker. A quarter of `pending_max` is for applications
    /// alone.
    #[schemars(range(min = 16), extend(
        "x-maximum" = "`pending_max`",
        "x-default" = "a quarter of `pending_max`"
    ))]
    pub(crate) pending_per_host: Option<Spanned<u32>>,
    /// Faces, whoever made them.
    #[schemars(range(min = 2, max = 1 << 20))]
    pub(crate) faces_max: Spanned<u32>,
    /// Nonces of Interests that are gone, of each worker, by which loops are found: those of about 6 seconds.
    #[schemars(range(min = 64, max = 1 << 28))]
    pub(crate) dead_nonces: Spanned<u32>,
    /// Data that nobody has asked for is never forwarded; it may be cached, from applications of this host or from all.
    pub(crate) unsolicited: UnsolicitedName,
    /// Names of the region that the node is in: an Interest whose forwarding hint leads here goes by its own name.
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
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CsConfig {
    /// Data that are kept, of the whole node, and to which `kaido ndn cs config` can raise it again; 0 keeps none.
    #[schemars(range(min = 0, max = 1 << 28))]
    pub(crate) packets: Spanned<u32>,
    /// Memory of the Data that are kept, in MiB.
    #[schemars(range(min = 1, max = 1 << 20))]
    pub(crate) memory_mib: Spanned<u32>,
    /// Which of the Data that pass are kept: all, or those that were asked for before.
    pub(crate) admit: AdmitName,
    /// Where on disk what memory gives up goes, if it goes there.
    pub(crate) disk: Option<Spanned<DiskConfig>>,
}

/// `[ndn.cs.disk]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct DiskConfig {
    /// Folder on disk for what memory gives up, which nobody else uses. It is there after a restart.
    #[schemars(extend("x-allowed" = "path"))]
    pub(crate) path: PathBuf,
    /// How much of the disk it may take, in MiB; the oldest is overwritten.
    #[schemars(range(min = 16, max = 1 << 24))]
    pub(crate) size_mib: Spanned<u32>,
    /// Packets that can be found on disk. Each takes 10.7 octets of memory; beyond, the oldest are forgotten early.
    #[schemars(range(min = 1024, max = 1_u64 << 36), extend("x-default" = "one for each 4 KiB of `size_mib`"))]
    pub(crate) packets: Option<Spanned<u64>>,
    /// Threads that read from the disk: as many reads go on at once.
    #[serde(default = "readers")]
    #[schemars(range(min = 1, max = 64))]
    pub(crate) readers: Spanned<u32>,
    /// Reads that wait or go on, of each worker. Interests beyond are forwarded as if the disk had nothing.
    #[serde(default = "reads_max")]
    #[schemars(range(min = 1, max = 4096))]
    pub(crate) reads_max: Spanned<u32>,
    /// Microseconds that a read waits for more Interests for the same Data.
    #[serde(default = "gather")]
    #[schemars(range(min = 0, max = 1_000_000))]
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
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BalanceConfig {
    /// With several workers: of how many Interests one is looked at, to find names that are asked for very often.
    #[schemars(range(min = 1, max = 65_536))]
    pub(crate) sample: Spanned<u32>,
    /// A name is hot, and its Interests are sprayed over all workers, from this many percent of a worker's fair share of all
    /// Interests on; 0 has none be.
    #[schemars(range(min = 0, max = 10_000))]
    pub(crate) hot_percent: Spanned<u32>,
    /// A hot name may cool when its Interests are fewer than so many percent.
    #[schemars(extend("x-allowed" = "below `hot_percent`"))]
    pub(crate) cool_percent: Spanned<u32>,
    /// For how many seconds they must have been fewer.
    #[schemars(range(min = 1, max = 86_400))]
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
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListenConfig {
    /// Unix socket on which applications connect: where they look for a router of their own accord. Empty for none.
    #[serde(deserialize_with = "socket_path")]
    #[schemars(extend("x-allowed" = "path"))]
    pub(crate) unix: PathBuf,
    /// Permission bits of that socket. Who may connect may command what `ndn.management.local` says.
    pub(crate) unix_mode: ModeField,
    /// Group of that socket: its users are those who may connect.
    #[schemars(extend("x-allowed" = "name or number of a group", "x-default" = "that of the process"))]
    pub(crate) unix_group: Option<String>,
    /// Where TCP connections are taken, such as `["[::]:6363"]`.
    #[schemars(extend("x-allowed" = "list of addresses with ports"))]
    pub(crate) tcp: Vec<SocketAddr>,
    /// Where datagrams are taken; faces by UDP are sent from there. An address of IPv6, `[::]` too, takes IPv6 alone.
    #[schemars(extend("x-allowed" = "list of addresses with ports"))]
    pub(crate) udp: Vec<SocketAddr>,
    /// Addresses of interfaces of `[[port]]`s (`af_xdp`, `af_packet`) at which the workers take UDP themselves, without a socket of
    /// the host; all with the same port number.
    #[schemars(extend("x-allowed" = "list of addresses with ports"))]
    pub(crate) udp_on_ports: Vec<Spanned<SocketAddr>>,
    /// Hears and sends to the groups of NDN on these interfaces: by its name to 224.0.23.170:56363 and `[ff02::1234]:56363`, as it
    /// has addresses; by an IPv4 address of it to the first alone. Each is a face.
    #[schemars(extend("x-allowed" = "interface, or list of interfaces"))]
    pub(crate) multicast: Spanned<MulticastField>,
    /// Octets of a UDP payload; longer packets are cut.
    #[schemars(range(min = 512, max = 8800))]
    pub(crate) udp_mtu: Spanned<u16>,
    /// Faces that are made for other hosts that connect or send, at most; half of `ndn.faces_max` at most.
    #[schemars(range(min = 0, max = 1 << 20))]
    pub(crate) on_demand_max: Spanned<u32>,
    /// Of these, those of one host, over TCP and UDP together: an address of IPv4, or a /64 of IPv6.
    #[schemars(range(min = 1, max = 1 << 20))]
    pub(crate) on_demand_per_host: Spanned<u32>,
    /// Applications of this host that are connected, at most; a quarter of `ndn.faces_max` at most. Other hosts do not use up their
    /// places.
    #[schemars(range(min = 1, max = 1 << 20))]
    pub(crate) applications_max: Spanned<u32>,
    /// Seconds without a packet after which a face goes that was made for a sender of UDP.
    #[schemars(range(min = 1, max = 86_400))]
    pub(crate) idle_s: Spanned<u32>,
    /// KiB that wait for a face that does not read; what is more is dropped.
    #[schemars(range(min = 16, max = 1 << 20))]
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
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ManagementConfig {
    /// What applications at the Unix socket may command with a digest alone, as most of them sign. `[]` leaves it to keys.
    #[schemars(extend("x-default" = "all five"))]
    pub(crate) local: Vec<ModuleName>,
    /// What whoever comes over TCP from this host may: TCP knows no users and groups, and a proxy's clients look the same.
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
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyConfig {
    /// File of the certificate of a key that may command, in base64 as NDN tools write it. RSA, ECDSA on P-256 and P-384, Ed25519.
    #[schemars(extend("x-allowed" = "path"))]
    pub(crate) certificate: Spanned<PathBuf>,
    /// What it may command: from this host as `/localhost/nfd`, the module `rib` from others as `/localhop/nfd`.
    #[serde(default = "ModuleName::all")]
    #[schemars(extend("x-default" = "all five"))]
    pub(crate) modules: Vec<ModuleName>,
}

/// A module of the management protocol.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
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
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum UnsolicitedName {
    #[default]
    Drop,
    CacheLocal,
    CacheAll,
}

/// `admit`.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum AdmitName {
    #[default]
    All,
    AskedAgain,
}

/// `[[ndn.face]]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FaceConfig {
    /// Other end of a face that is made and kept: `udp4://192.0.2.1:6363`, `tcp6://[2001:db8::1]`,
    /// `ether://[02:00:00:00:00:01]`.
    pub(crate) remote: Spanned<UriField>,
    /// Port of a face of Ethernet.
    #[schemars(extend("x-allowed" = "`dev://` and a port's name"))]
    pub(crate) local: Option<Spanned<UriField>>,
    /// Octets of a packet on the link; longer ones are cut.
    #[schemars(range(min = MTU_MIN, max = u16::MAX), extend("x-default" = "as its kind carries"))]
    pub(crate) mtu: Option<Spanned<u16>>,
    /// Packets are acknowledged, and sent again when they were lost; the other end must do so, too.
    #[serde(default)]
    pub(crate) reliability: bool,
}

/// `[[ndn.route]]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteConfig {
    /// Prefix of the names that it is for.
    pub(crate) prefix: NameField,
    /// Other end of a `[[ndn.face]]`.
    pub(crate) to: Spanned<UriField>,
    /// The lower, the sooner it is taken.
    #[serde(default)]
    #[schemars(range(min = 0, max = u32::MAX))]
    pub(crate) cost: u32,
    /// Whether longer prefixes that have routes have it too.
    #[serde(default = "yes")]
    pub(crate) inherit: bool,
    /// Whether the prefix has none of the routes of shorter ones.
    #[serde(default)]
    pub(crate) capture: bool,
}

const fn yes() -> bool {
    true
}

/// `[[ndn.strategy]]`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StrategyConfig {
    /// Prefix of the names that it is for.
    pub(crate) prefix: NameField,
    /// How Interests choose among next hops. Names without one have best-route.
    #[schemars(extend("x-allowed" = "\"best-route\", \"multicast\", \"asf\", \"round-robin\" or a whole name"))]
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
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(try_from = "String")]
#[schemars(with = "String", extend("x-allowed" = "URI of a face"))]
pub(crate) struct UriField(pub(crate) FaceUri);

impl TryFrom<String> for UriField {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse().map(Self).map_err(|error: crate::face::NotAFaceUri| error.to_string())
    }
}
