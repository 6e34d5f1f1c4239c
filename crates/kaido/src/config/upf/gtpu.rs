//! `[gtpu]`.

use std::net::IpAddr;
use std::time::Duration;

use kaido_upf::echo::EchoSettings;
use kaido_upf::fragment::Oversize;
use serde::Deserialize;
use toml::Spanned;

use crate::config::{Prefix, unplaced};

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
