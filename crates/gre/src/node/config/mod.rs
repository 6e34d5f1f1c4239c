//! The file of a GRE header remover: `function = "gre"`.

pub(super) mod check;
mod settings;

use std::net::IpAddr;

use kaido_node::config::{Base, FilePart, PortConfig, Prefix, Spanned};
use kaido_node::config::{FunctionSchema, ReloadRule, schema_of};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use self::check::check;

/// What the files of a header remover have.
pub(crate) const SCHEMA: FunctionSchema = FunctionSchema {
    name: "gre",
    title: "GRE header removal",
    vlans: false,
    schema: schema_of::<GreConfig>,
    reload: &[ReloadRule::changes("gre", "from the next batch of each worker on")],
};

/// The whole file.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct GreConfig {
    /// What every function has.
    #[serde(skip)]
    pub(crate) base: Base,
    /// A further field of a header remover's ports.
    #[serde(default, rename = "port")]
    ports: Vec<GrePort>,
    /// What is done with tunnel packets.
    #[serde(default)]
    pub(crate) gre: GreTable,
}

impl GreConfig {
    /// Reads a header remover's part of a file.
    pub(crate) fn read(part: FilePart<'_>) -> Result<Self, toml::de::Error> {
        let config = part.read()?;
        Ok(Self { base: part.base, ..config })
    }

    /// The ports, with what a header remover further has of each.
    fn ports(&self) -> impl Iterator<Item = (&PortConfig, &GrePort)> {
        self.base.ports.iter().map(Spanned::get_ref).zip(&self.ports)
    }
}

/// A header remover's field of a port.
#[derive(Debug, Deserialize, JsonSchema)]
struct GrePort {
    /// Where packets go that come in here and are not routed: with their Ethernet addresses and tags, so that the node is a bump in
    /// the wire. Without one they are left to the kernel.
    #[schemars(extend("x-allowed" = "name of a port", "x-default" = "the port that names this one"))]
    peer_port: Option<Spanned<String>>,
}

/// Longest name of a rule and of an encapsulation: counters have it.
const NAME_MAX: usize = 63;

/// `[gre]`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GreTable {
    /// Tunnel packets that no rule is for: they lose their headers, leave by the peer port as they are, are dropped, or left to the
    /// kernel.
    unmatched: UnmatchedAction,
    /// Tunnel packets whose GRE header cannot be read: another version, flags of RFC 1701, cut off.
    unreadable: UnreadableAction,
    /// Tunnel packets that come in fragments: put together within the bounds of `[reassembly]`, or not.
    fragments: Fragments,
    /// Rules for tunnel packets, in their order; without any, all of them lose their headers.
    #[serde(rename = "rule")]
    rules: Vec<Spanned<RuleConfig>>,
    /// Packets to be put into tunnels.
    #[serde(rename = "encapsulation")]
    encapsulations: Vec<Spanned<EncapsulationConfig>>,
}

/// A rule for tunnel packets.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RuleConfig {
    /// Its name in counters. Without any rule there is one: `all`.
    #[schemars(length(min = 1, max = NAME_MAX))]
    name: Spanned<String>,
    /// Where tunnel packets come in.
    #[schemars(extend("x-allowed" = "name of a port", "x-default" = "any port"))]
    port: Option<Spanned<String>>,
    /// Their outer source.
    #[schemars(extend("x-default" = "any"))]
    source: Option<Spanned<Prefix>>,
    /// Their outer destination.
    #[schemars(extend("x-default" = "any"))]
    destination: Option<Spanned<Prefix>>,
    /// Their key (RFC 2890).
    #[serde(default)]
    #[schemars(with = "KeySchema", extend("default" = "any"))]
    key: Key,
    /// What is in them. `ethernet` is Transparent Ethernet Bridging.
    #[schemars(extend("x-default" = "all three"))]
    inner: Option<Spanned<Vec<InnerKind>>>,
    /// What becomes of tunnel packets that meet the rule, if it is the first that they meet.
    #[serde(default)]
    verdict: VerdictName,
    /// `decapsulate`: the hop count of what was in the tunnel stays, or becomes the outer one where that is lower (RFC 3443).
    #[schemars(extend("default" = CopyField::default()))]
    ttl: Option<Spanned<CopyField>>,
    /// `decapsulate`: the class of what was in the tunnel stays, or becomes the outer one (RFC 2983). Congestion marks go over in any
    /// case.
    #[schemars(extend("default" = CopyField::default()))]
    dscp: Option<Spanned<CopyField>>,
    /// `decapsulate`: out of the peer port, or by the node's routes to the next hop, one hop less.
    #[schemars(extend("default" = ForwardName::default()))]
    forward: Option<Spanned<ForwardName>>,
}

/// What is put into a tunnel.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EncapsulationConfig {
    /// Its name in counters.
    #[schemars(length(min = 1, max = NAME_MAX))]
    name: Spanned<String>,
    /// Where packets come in that go into the tunnel.
    #[schemars(extend("x-allowed" = "name of a port"))]
    port: Spanned<String>,
    /// Their source.
    #[schemars(extend("x-default" = "any"))]
    source: Option<Spanned<Prefix>>,
    /// Their destination.
    #[schemars(extend("x-default" = "any"))]
    destination: Option<Spanned<Prefix>>,
    /// Put whole Ethernet frames into the tunnel, whatever is in them.
    #[serde(default)]
    ethernet: bool,
    /// Near end of the tunnel: the outer source.
    local: Spanned<IpAddr>,
    /// Far end of the tunnel: the outer destination.
    remote: Spanned<IpAddr>,
    /// Key of the GRE header (RFC 2890).
    key: Option<u32>,
    /// Put a checksum into the GRE header.
    #[serde(default)]
    checksum: bool,
    /// Outer time to live with `ttl = "pipe"`, and of what has none.
    #[serde(default = "default_hops")]
    #[schemars(range(min = 1, max = u8::MAX))]
    hops: Spanned<u8>,
    /// Whether the outer time to live is `hops` or the packet's own.
    #[serde(default)]
    ttl: CopyField,
    /// Whether the outer class is zero or the packet's own. Its ECN field goes over in any case.
    #[serde(default)]
    dscp: CopyField,
    /// Whether routers may cut the tunnel packet, over IPv4: not, yes (and what is too large is cut here), or as the packet's own
    /// header says.
    #[serde(default)]
    dont_fragment: DontFragmentName,
    /// Out of the peer port with the frame's Ethernet addresses, or by the node's routes to the far end.
    #[serde(default)]
    forward: ForwardName,
}

fn default_hops() -> Spanned<u8> {
    kaido_node::config::unplaced(64)
}

/// `key` of a rule.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(try_from = "toml::Value")]
enum Key {
    /// Any, or none.
    #[default]
    Any,
    /// None at all.
    Absent,
    /// This one.
    Is(u32),
}

/// What [`Key`] is read from.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "for the schema only")]
enum KeySchema {
    Number(u32),
    Word(KeyWord),
}

/// A word in the place of a key.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "for the schema only")]
enum KeyWord {
    Any,
    None,
}

impl TryFrom<toml::Value> for Key {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        match &value {
            toml::Value::Integer(key) => u32::try_from(*key).ok().map(Self::Is),
            toml::Value::String(word) if word == "any" => Some(Self::Any),
            toml::Value::String(word) if word == "none" => Some(Self::Absent),
            _ => None,
        }
        .ok_or_else(|| format!("{value} is no key; write a number up to 4294967295, \"any\" or \"none\""))
    }
}

/// `inner` of a rule.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum InnerKind {
    Ipv4,
    Ipv6,
    Ethernet,
}

/// `verdict` of a rule.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum VerdictName {
    #[default]
    Decapsulate,
    Pass,
    Drop,
    Punt,
}

/// `unmatched`.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum UnmatchedAction {
    Decapsulate,
    #[default]
    Pass,
    Drop,
    Punt,
}

/// `unreadable`.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum UnreadableAction {
    Pass,
    #[default]
    Drop,
    Punt,
}

/// `fragments`.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Fragments {
    #[default]
    Assemble,
    Pass,
    Drop,
}

/// `ttl` and `dscp`.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum CopyField {
    #[default]
    Pipe,
    Uniform,
}

/// `forward`.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum ForwardName {
    #[default]
    PeerPort,
    Route,
}

/// `dont_fragment` of an encapsulation.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum DontFragmentName {
    #[default]
    Set,
    Clear,
    Copy,
}
