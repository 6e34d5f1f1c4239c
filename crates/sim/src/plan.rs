//! The plan of a run: what the arguments come to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use kaido_n4::{Ipv6Prefix, NetworkInstance, Qfi, VolumeThreshold};
use kaido_pfcp::Dialect;
use kaido_wire::gtpu;

use super::fault::SimFault;
use super::numbered;

/// Which addresses the UPF chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum PoolFamily {
    /// An IPv4 address.
    V4,
    /// An IPv6 prefix.
    V6,
    /// Both.
    V4v6,
}

/// Where UE addresses come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Addressing {
    /// Given out here, in order.
    Given {
        /// The first IPv4 address.
        ipv4: Option<Ipv4Addr>,
        /// The network of the IPv6 prefixes.
        ipv6: Option<Ipv6Prefix>,
    },
    /// Chosen by the UPF.
    Pool(PoolFamily),
}

/// What the sessions are like, on the network or off it.
#[derive(Clone, Debug)]
pub(super) struct SessionPlan {
    /// How many.
    pub(super) ues: u32,
    /// UE addresses.
    pub(super) addressing: Addressing,
    /// N3 address of the UPF; `None` leaves F-TEIDs to it.
    pub(super) upf_gtpu: Option<IpAddr>,
    /// The gNB's address.
    pub(super) gnb: IpAddr,
    /// The QoS flow; `None` is LTE.
    pub(super) qfi: Option<Qfi>,
    /// IP domain of the core side.
    pub(super) network_instance: Option<NetworkInstance>,
    /// Volume threshold of the URR.
    pub(super) threshold: Option<VolumeThreshold>,
    /// First TEID of both directions.
    pub(super) first_teid: u32,
    /// Requests without an answer at once.
    pub(super) window: usize,
    /// How often a request is sent before the UPF counts as gone.
    pub(super) tries: u32,
    /// Whose SMF the sessions are written like.
    pub(super) dialect: Dialect,
}

/// TUN devices.
#[derive(Clone, Debug)]
pub(super) struct TunPlan {
    /// How many UEs have one.
    pub(super) count: u32,
    /// Names without their number.
    pub(super) prefix: String,
    /// Largest IP packet.
    pub(super) mtu: u16,
}

/// A run against a UPF on the network.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The UPF's PFCP address.
    pub(super) upf_pfcp: SocketAddr,
    /// Our PFCP address.
    pub(super) smf: SocketAddr,
    /// The sessions.
    pub(super) sessions: SessionPlan,
    /// TUN devices.
    pub(super) tuns: TunPlan,
    /// Generated traffic.
    pub(super) traffic: Option<Traffic>,
    /// Where the report goes.
    pub(super) report: Option<PathBuf>,
    /// Whether to stay.
    pub(super) hold: bool,
    /// File to touch when attached.
    pub(super) ready_file: Option<PathBuf>,
    /// Whether progress is not told.
    pub(super) quiet: bool,
}

/// A run against a UPF on the network with UEs that come and go.
#[derive(Clone, Debug)]
pub(super) struct ChurnPlan {
    /// Changes a second, of all UEs together.
    pub(super) per_second: u32,
    /// What the attached ones send.
    pub(super) traffic: Traffic,
    /// Whether the network loses packets, and the SMF is silent at times.
    pub(super) faults: bool,
    /// All else.
    pub(super) plan: Plan,
}

/// A run without a network.
#[derive(Clone, Debug)]
pub(super) struct OfflinePlan {
    /// Where the captures go.
    pub(super) dir: PathBuf,
    /// The sessions. The addresses of UPF and gNB are the offline node's.
    pub(super) sessions: SessionPlan,
    /// Bytes of IP packets each way.
    pub(super) transfer: u64,
    /// Whether progress is not told.
    pub(super) quiet: bool,
}

impl Addressing {
    /// Addresses of the `n`th UE, as far as they are given out here.
    pub(super) fn of(self, n: u32) -> (Option<Ipv4Addr>, Option<Ipv6Prefix>) {
        match self {
            Self::Pool(_) => (None, None),
            Self::Given { ipv4, ipv6 } => (
                ipv4.map(|first| Ipv4Addr::from_bits(first.to_bits().wrapping_add(n))),
                ipv6.map(|network| {
                    let addr = network.addr.to_bits().wrapping_add(u128::from(n) << 64);
                    Ipv6Prefix::of(Ipv6Addr::from_bits(addr), 64)
                }),
            ),
        }
    }

    /// Whether UEs have IPv4 and IPv6.
    pub(super) fn families(self) -> (bool, bool) {
        match self {
            Self::Given { ipv4, ipv6 } => (ipv4.is_some(), ipv6.is_some()),
            Self::Pool(family) => (family != PoolFamily::V6, family != PoolFamily::V4),
        }
    }
}

/// Generated traffic.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Traffic {
    /// Datagrams a second, of all UEs together.
    pub(super) pps: u64,
    /// Bytes of an IP packet.
    pub(super) bytes: u16,
    /// How long.
    pub(super) duration: Duration,
    /// Where to.
    pub(super) to: SocketAddr,
}

impl Traffic {
    /// Datagrams in all.
    pub(super) fn total(&self) -> u64 {
        let nanos = u128::from(self.pps) * self.duration.as_nanos() / 1_000_000_000;
        u64::try_from(nanos).unwrap_or(u64::MAX)
    }

    /// Whether the UEs have an address of its family.
    pub(super) fn fits(&self, addressing: Addressing) -> Result<(), SimFault> {
        let (v4, v6) = addressing.families();
        if if self.to.is_ipv4() { v4 } else { v6 } {
            return Ok(());
        }
        let family = if self.to.is_ipv4() { "IPv4" } else { "IPv6" };
        Err(SimFault::args(
            format!("--traffic to={}: the UEs have no {family} address", self.to),
            "add --ue-ipv4 or --ue-ipv6, or send to an address of the other family",
        ))
    }
}

/// A traffic specification that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TrafficError(String);

impl fmt::Display for TrafficError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; write pps=1000,bytes=512,seconds=10,to=198.51.100.1:9000", self.0)
    }
}

impl std::error::Error for TrafficError {}

impl FromStr for Traffic {
    type Err = TrafficError;

    fn from_str(text: &str) -> Result<Self, TrafficError> {
        let (mut pps, mut bytes, mut seconds, mut to) = (None, None, None, None);
        for item in text.split(',') {
            let (key, value) =
                item.split_once('=').ok_or_else(|| TrafficError(format!("`{item}` has no `=`")))?;
            match key {
                "pps" => pps = Some(read(key, value)?),
                "bytes" => bytes = Some(read(key, value)?),
                "seconds" => seconds = Some(read(key, value)?),
                "to" => to = Some(read(key, value)?),
                _ => return Err(TrafficError(format!("`{key}` is unknown"))),
            }
        }
        let missing = |key: &str| TrafficError(format!("`{key}` is missing"));
        let to: SocketAddr = to.ok_or_else(|| missing("to"))?;
        let traffic = Self {
            pps: pps.ok_or_else(|| missing("pps"))?,
            bytes: bytes.ok_or_else(|| missing("bytes"))?,
            duration: seconds
                .and_then(|seconds: f64| Duration::try_from_secs_f64(seconds).ok())
                .filter(|duration| (DURATION_MIN..=DURATION_MAX).contains(duration))
                .ok_or_else(|| {
                    TrafficError("`seconds` is missing or not within 0.001 to 86400".to_owned())
                })?,
            to,
        };
        let least = numbered::packet_len_min(to.ip());
        if !(least..=PACKET_LEN_MAX).contains(&traffic.bytes) {
            let family = if to.is_ipv4() { "IPv4" } else { "IPv6" };
            return Err(TrafficError(format!("`bytes` of {family} is {least} to {PACKET_LEN_MAX}")));
        }
        if !(1..=PPS_MAX).contains(&traffic.pps) {
            return Err(TrafficError(format!("`pps` is 1 to {PPS_MAX}")));
        }
        if traffic.total() > DATAGRAMS_MAX {
            return Err(TrafficError(format!("more than {DATAGRAMS_MAX} datagrams in all")));
        }
        Ok(traffic)
    }
}

/// The longest generated IP packet.
const PACKET_LEN_MAX: u16 = 9000;
const PPS_MAX: u64 = 10_000_000;
/// Each has a bit in memory.
const DATAGRAMS_MAX: u64 = 1 << 33;
const DURATION_MIN: Duration = Duration::from_millis(1);
const DURATION_MAX: Duration = Duration::from_secs(86_400);

fn read<T: FromStr>(key: &str, value: &str) -> Result<T, TrafficError> {
    value.parse().map_err(|_| TrafficError(format!("`{key}={value}` cannot be read")))
}

/// The GTP-U endpoint of an address.
pub(super) fn gtpu_endpoint(addr: IpAddr) -> SocketAddr {
    SocketAddr::new(addr, gtpu::UDP_PORT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_read() {
        let traffic: Traffic = "pps=1000,bytes=512,seconds=2.5,to=198.51.100.1:9000".parse().unwrap();
        assert_eq!((traffic.pps, traffic.bytes, traffic.total()), (1000, 512, 2500));
        assert_eq!(traffic.to, "198.51.100.1:9000".parse().unwrap());
        for (text, part) in [
            ("pps=1", "`to` is missing"),
            ("pps=1,to=1.2.3.4:5", "`bytes` is missing"),
            ("pps=1,bytes=100,to=1.2.3.4:5", "`seconds`"),
            ("pps=0,bytes=100,seconds=1,to=1.2.3.4:5", "`pps` is 1"),
            ("pps=1,bytes=39,seconds=1,to=1.2.3.4:5", "`bytes` of IPv4 is 40"),
            ("pps=1,bytes=59,seconds=1,to=[::1]:5", "`bytes` of IPv6 is 60"),
            ("pps=1,bytes=100,seconds=nan,to=1.2.3.4:5", "`seconds`"),
            ("pps=1,bytes=100,seconds=1,to=1.2.3.4", "cannot be read"),
            ("rate=1", "`rate` is unknown"),
            ("pps", "has no `=`"),
        ] {
            let error = text.parse::<Traffic>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
