//! `[gtpu]`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use kaido_node::config::Findings;
use kaido_node::config::or_zero;
use kaido_node::config::{Prefix, Spanned, unplaced};
use kaido_upf::echo::EchoSettings;
use kaido_upf::fragment::Oversize;
use kaido_upf::node::{DscpMarking, MssClamp, MssLimit, OuterSourcePort, TunnelSettings, UdpChecksums};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// GTP-U.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GtpuConfig {
    /// Local tunnel addresses; each must be an address of an n3 or n9 port.
    #[schemars(extend("x-default" = "those of the n3 and n9 ports"))]
    pub(crate) addresses: Vec<IpAddr>,
    /// Outer UDP source port: by the inner flow, so that receivers can spread flows, or always 2152.
    pub(crate) source_port: SourcePort,
    /// Compute the outer UDP checksum over IPv4, where TS 29.281 lets it be zero.
    pub(crate) udp_checksum_ipv4: bool,
    /// Leave the outer UDP checksum over IPv6 zero (RFC 6935), where the path is known to take it.
    pub(crate) udp_zero_checksum_ipv6: bool,
    /// Seconds from one Echo Request to a peer that tunnels lead to, to the next. 0 sends none. TS 29.281 7.2.1 allows no less than
    /// 60.
    #[schemars(range(min = 60, max = 86_400), transform = or_zero)]
    pub(crate) echo_interval_s: Spanned<u32>,
    /// T3-RESPONSE: milliseconds until an Echo Request that was not answered is sent again.
    #[schemars(range(min = 10, max = 60_000))]
    pub(crate) echo_t3_ms: Spanned<u32>,
    /// N3-REQUESTS: how often an Echo Request is sent in all before the path counts as failed, which the control planes are told.
    #[schemars(range(min = 1, max = 10))]
    pub(crate) echo_retries: Spanned<u8>,
    /// Congestion marks (ECN) go over into tunnels and out of them, as RFC 6040 says and TS 29.281 asks. A packet that cannot carry
    /// the mark of its tunnel is dropped (`congestion_mark`). With `false` outer headers are Not-ECT, and marks on them count for
    /// nothing.
    pub(crate) ecn: bool,
    /// DSCP of packets into tunnels: zero, or the packet's own. A FAR's Transport Level Marking comes first, then `qfi_dscp`. A
    /// packet out of a tunnel keeps its own DSCP.
    pub(crate) dscp: DscpConfig,
    /// DSCP of packets into tunnels by QFI, such as `qfi_dscp = { 1 = "EF", 5 = 40 }`: 0 to 63, or the name of a class.
    #[schemars(extend("x-default" = "none"))]
    pub(crate) qfi_dscp: BTreeMap<Spanned<String>, Spanned<Dscp>>,
    /// Packets larger than their way takes. `fragment-inner`: cut where they may be (IPv4 without DF), else dropped and their sender
    /// told. `fragment-outer`: into tunnels, the tunnel's own packet is cut, whatever is in it. `icmp`: never cut.
    pub(crate) oversize: OversizeConfig,
    /// Lower the MSS that TCP connections of UEs announce, both ways: to this many octets, or with `true` to what the smallest MTU of
    /// the ports leaves behind the tunnel's headers. Packets that open connections then are the workers', whatever `node.datapath`
    /// says.
    pub(crate) mss_clamp: Spanned<MssClampConfig>,
    /// Take uplink G-PDUs of a session only from the gNBs into whose tunnels its downlink goes now; from any while none is known.
    /// Others are dropped (`gnb_mismatch`). Their uplink stays with the workers, whatever `node.datapath` says. A gNB that sends from
    /// another address than it receives on, or before the path switch of a handover, loses what it sends.
    pub(crate) bind_gnb: bool,
    /// Networks of peers that differ, one table each.
    #[serde(rename = "peer")]
    pub(crate) peers: Vec<GtpuPeerConfig>,
}

/// `oversize` of GTP-U.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
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

/// What every host takes (RFC 9293 3.7.1).
pub(super) const MSS_MIN: u16 = 536;

/// `mss_clamp` of GTP-U.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(untagged)]
pub(crate) enum MssClampConfig {
    /// Whether to what the ports' MTUs leave.
    ByMtu(bool),
    /// To this many octets.
    To(#[schemars(range(min = MSS_MIN))] u16),
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
    fn marking(&self) -> DscpMarking {
        let mut dscp_of_qfi = [None; QFIS];
        for (qfi, dscp) in &self.qfi_dscp {
            let place = qfi.get_ref().parse().ok().and_then(|qfi: usize| dscp_of_qfi.get_mut(qfi));
            if let (Some(place), Some(dscp)) = (place, dscp.get_ref().value()) {
                *place = Some(dscp);
            }
        }
        DscpMarking { ecn: self.ecn, copies_dscp: self.dscp == DscpConfig::Copy, dscp_of_qfi }
    }

    /// How packets into tunnels are made.
    pub(crate) fn tunnels(&self) -> TunnelSettings {
        let peer = |peer: &GtpuPeerConfig| (peer.prefix.addr, peer.prefix.len, peer.udp_checksum);
        TunnelSettings {
            source_port: match self.source_port {
                SourcePort::Entropy => OuterSourcePort::Entropy,
                SourcePort::Fixed => OuterSourcePort::Fixed,
            },
            marking: self.marking(),
            udp_checksums: UdpChecksums {
                ipv4: self.udp_checksum_ipv4,
                ipv6: !self.udp_zero_checksum_ipv6,
                peers: self.peers.iter().map(peer).collect(),
            },
        }
    }

    /// The largest TCP segments to be announced.
    pub(crate) fn mss_clamp(&self) -> Option<MssLimit> {
        match *self.mss_clamp.get_ref() {
            MssClampConfig::ByMtu(false) => None,
            MssClampConfig::To(most) => Some(MssLimit::Fixed(MssClamp { ipv4: most, ipv6: most })),
            MssClampConfig::ByMtu(true) => Some(MssLimit::ByMtu),
        }
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
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DscpConfig {
    /// Zero: best effort.
    #[default]
    Zero,
    /// The packet's own.
    Copy,
}

/// A DSCP: a number, or a name of RFC 2474, 2597, 3246, 5865 or 8622.
#[derive(Clone, Debug, Deserialize, JsonSchema, PartialEq, Eq)]
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
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GtpuPeerConfig {
    /// Peers for which checksums are otherwise; `[[gtpu.peer]]` may be repeated, the longest prefix counts.
    pub(crate) prefix: Prefix,
    /// Compute the outer UDP checksum of datagrams to these peers.
    pub(crate) udp_checksum: bool,
}

/// `source_port` of GTP-U.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema, Serialize, PartialEq, Eq)]
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
