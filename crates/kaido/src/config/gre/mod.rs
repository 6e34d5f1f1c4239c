//! The file of a GRE header remover: `function = "gre"`.

mod check;
mod settings;

use std::net::IpAddr;

use serde::Deserialize;
use toml::Spanned;

use super::{Base, PortConfig, Prefix};

pub(super) use self::check::check;

/// The whole file.
#[derive(Debug, Deserialize)]
pub(crate) struct GreConfig {
    /// What every function has.
    #[serde(skip)]
    pub(crate) base: Base,
    /// What it further has in each `[[port]]`, in their order.
    #[serde(default, rename = "port")]
    ports: Vec<GrePort>,
    /// What is done with tunnel packets.
    #[serde(default)]
    pub(crate) gre: GreTable,
}

impl GreConfig {
    /// Reads a header remover's part of a file.
    pub(super) fn read(text: &str, base: Base) -> Result<Self, toml::de::Error> {
        Ok(Self { base, ..toml::from_str(text)? })
    }

    /// The ports, with what a header remover further has of each.
    fn ports(&self) -> impl Iterator<Item = (&PortConfig, &GrePort)> {
        self.base.ports.iter().map(Spanned::get_ref).zip(&self.ports)
    }
}

/// A header remover's field of a port.
#[derive(Debug, Deserialize)]
struct GrePort {
    /// Name of the port that packets leave by which came in here and are not routed.
    peer_port: Option<Spanned<String>>,
}

/// `[gre]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GreTable {
    /// Tunnel packets that no rule is for.
    unmatched: UnmatchedAction,
    /// Tunnel packets whose GRE header cannot be read.
    unreadable: UnreadableAction,
    /// Tunnel packets in pieces.
    fragments: Fragments,
    /// Rules for tunnel packets, in their order; without any, all of them lose their headers.
    #[serde(rename = "rule")]
    rules: Vec<Spanned<RuleConfig>>,
    /// Packets to be put into tunnels.
    #[serde(rename = "encapsulation")]
    encapsulations: Vec<Spanned<EncapsulationConfig>>,
}

/// A rule for tunnel packets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleConfig {
    /// Its name in counters.
    name: Spanned<String>,
    /// The port that they come in by.
    port: Option<Spanned<String>>,
    /// Outer source.
    source: Option<Spanned<Prefix>>,
    /// Outer destination.
    destination: Option<Spanned<Prefix>>,
    /// Key.
    #[serde(default)]
    key: Key,
    /// What is in them; all that can be when absent.
    inner: Option<Spanned<Vec<InnerKind>>>,
    /// What becomes of them.
    #[serde(default)]
    verdict: VerdictName,
    /// Whether the outer hop count goes over.
    ttl: Option<Spanned<CopyField>>,
    /// Whether the outer DSCP goes over.
    dscp: Option<Spanned<CopyField>>,
    /// Where what was in them goes.
    forward: Option<Spanned<ForwardName>>,
}

/// What is put into a tunnel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EncapsulationConfig {
    /// Its name in counters.
    name: Spanned<String>,
    /// The port that packets come in by.
    port: Spanned<String>,
    /// Their source.
    source: Option<Spanned<Prefix>>,
    /// Their destination.
    destination: Option<Spanned<Prefix>>,
    /// Whether whole Ethernet frames go in.
    #[serde(default)]
    ethernet: bool,
    /// Near end of the tunnel.
    local: Spanned<IpAddr>,
    /// Far end.
    remote: Spanned<IpAddr>,
    /// Key.
    key: Option<u32>,
    /// Whether GRE has a checksum.
    #[serde(default)]
    checksum: bool,
    /// Time to live of the outer header.
    #[serde(default = "default_hops")]
    hops: Spanned<u8>,
    /// Whether that is the packet's own.
    #[serde(default)]
    ttl: CopyField,
    /// Whether the outer DSCP is the packet's own.
    #[serde(default)]
    dscp: CopyField,
    /// Whether it may be cut on its way.
    #[serde(default)]
    dont_fragment: DontFragmentName,
    /// Where it goes.
    #[serde(default)]
    forward: ForwardName,
}

fn default_hops() -> Spanned<u8> {
    super::unplaced(64)
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
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum InnerKind {
    Ipv4,
    Ipv6,
    Ethernet,
}

/// `verdict` of a rule.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum VerdictName {
    #[default]
    Decapsulate,
    Pass,
    Drop,
    Punt,
}

/// `unmatched`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum UnmatchedAction {
    Decapsulate,
    #[default]
    Pass,
    Drop,
    Punt,
}

/// `unreadable`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum UnreadableAction {
    Pass,
    #[default]
    Drop,
    Punt,
}

/// `fragments`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum Fragments {
    #[default]
    Assemble,
    Pass,
    Drop,
}

/// `ttl` and `dscp`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum CopyField {
    #[default]
    Pipe,
    Uniform,
}

/// `forward`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum ForwardName {
    #[default]
    PeerPort,
    Route,
}

/// `dont_fragment` of an encapsulation.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum DontFragmentName {
    #[default]
    Set,
    Clear,
    Copy,
}
