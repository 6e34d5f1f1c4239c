//! `[gtpu]`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use kaido_upf::echo::EchoSettings;
use kaido_upf::fragment::Oversize;
use kaido_upf::node::DscpMarking;
use serde::Deserialize;
use toml::Spanned;

use crate::config::check::Findings;
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
    /// Congestion marks go over, into tunnels and out of them (RFC 6040).
    pub(crate) ecn: bool,
    /// DSCP of tunnels' packets for which no FAR and no QFI says another.
    pub(crate) dscp: DscpConfig,
    /// DSCP by QFI.
    pub(crate) qfi_dscp: BTreeMap<Spanned<String>, Spanned<Dscp>>,
    /// What becomes of packets that are too large for the way.
    pub(crate) oversize: OversizeConfig,
    /// Largest segments that TCP connections may announce.
    pub(crate) mss_clamp: Spanned<MssClampConfig>,
    /// Uplink G-PDUs of a session are taken only from the gNBs into whose tunnels its downlink goes.
    pub(crate) bind_gnb: bool,
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
            ecn: true,
            dscp: DscpConfig::default(),
            qfi_dscp: BTreeMap::new(),
            oversize: OversizeConfig::default(),
            mss_clamp: unplaced(MssClampConfig::ByMtu(false)),
            bind_gnb: false,
        }
    }
}

impl GtpuConfig {
    /// How the ToS or Traffic Class octet of outer headers is made. What [`check_marking`] finds fault with is left out.
    pub(crate) fn marking(&self) -> DscpMarking {
        let mut dscp_of_qfi = [None; QFIS];
        for (qfi, dscp) in &self.qfi_dscp {
            let place = qfi.get_ref().parse().ok().and_then(|qfi: usize| dscp_of_qfi.get_mut(qfi));
            if let (Some(place), Some(dscp)) = (place, dscp.get_ref().value()) {
                *place = Some(dscp);
            }
        }
        DscpMarking { ecn: self.ecn, copies_dscp: self.dscp == DscpConfig::Copy, dscp_of_qfi }
    }

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

/// QFIs there are (TS 38.415 5.5.3.3).
const QFIS: usize = 64;

/// `dscp` of GTP-U.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DscpConfig {
    /// Zero: best effort.
    #[default]
    Zero,
    /// The packet's own.
    Copy,
}

/// A DSCP: a number, or a name of RFC 2474, 2597, 3246, 5865 or 8622.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub(crate) enum Dscp {
    /// 0 to 63.
    Number(i64),
    /// `EF`, `AF41`, `CS5` and so on.
    Name(String),
}

impl Dscp {
    /// 0 to 63; `None` when it is none.
    fn value(&self) -> Option<u8> {
        match self {
            Self::Number(number) => u8::try_from(*number).ok().filter(|number| *number < 64),
            Self::Name(name) => dscp_of(&name.to_ascii_uppercase()),
        }
    }
}

/// The value of a DSCP's name.
fn dscp_of(name: &str) -> Option<u8> {
    let digit = |digit: u8, most: u8| (b'1'..=b'0' + most).contains(&digit).then(|| digit - b'0');
    match name.as_bytes() {
        b"EF" => Some(46),
        b"VA" | b"VOICE-ADMIT" => Some(44),
        b"LE" => Some(1),
        b"BE" | b"DF" | b"CS0" => Some(0),
        [b'C', b'S', class] => Some(digit(*class, 7)? * 8),
        [b'A', b'F', class, drop] => Some(digit(*class, 4)? * 8 + digit(*drop, 3)? * 2),
        _ => None,
    }
}

/// QFIs that are none, and DSCPs that are none.
pub(super) fn check_marking(config: &GtpuConfig, findings: &mut Findings) {
    for (qfi, dscp) in &config.qfi_dscp {
        if !qfi.get_ref().parse().is_ok_and(|number: usize| number < QFIS) {
            let what = format!("`{}` is no QFI", qfi.get_ref());
            findings.add(qfi.span(), "gtpu.qfi_dscp", what, "give 0 to 63");
        }
        if dscp.get_ref().value().is_none() {
            let what = match dscp.get_ref() {
                Dscp::Number(number) => format!("{number} is no DSCP"),
                Dscp::Name(name) => format!("`{name}` is no DSCP"),
            };
            findings.add(
                dscp.span(),
                "gtpu.qfi_dscp",
                what,
                "give 0 to 63, or a name such as \"EF\", \"AF41\", \"CS5\"",
            );
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_dscps_are_their_values() {
        let known = [
            ("EF", 46),
            ("af41", 34),
            ("AF11", 10),
            ("AF43", 38),
            ("CS7", 56),
            ("cs0", 0),
            ("LE", 1),
            ("VA", 44),
        ];
        for (name, value) in known {
            assert_eq!(Dscp::Name(name.to_owned()).value(), Some(value), "{name}");
        }
        for name in ["", "AF", "AF01", "AF44", "AF51", "CS8", "CS", "EF1", "46"] {
            assert_eq!(Dscp::Name(name.to_owned()).value(), None, "{name}");
        }
        assert_eq!([63, 64, -1].map(|number| Dscp::Number(number).value()), [Some(63), None, None]);
    }

    #[test]
    fn the_table_of_qfis_is_read() {
        let config: GtpuConfig =
            toml::from_str("ecn = false\ndscp = \"copy\"\n[qfi_dscp]\n1 = \"EF\"\n5 = 40\n").unwrap();
        let marking = config.marking();
        assert!(!marking.ecn && marking.copies_dscp);
        let set: Vec<_> =
            (0..).zip(marking.dscp_of_qfi).filter_map(|(qfi, dscp)| Some((qfi, dscp?))).collect();
        assert_eq!(set, [(1, 46), (5, 40)]);
    }
}
