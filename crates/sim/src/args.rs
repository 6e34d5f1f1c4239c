//! The command line of `kaido sim`: every contradiction in it is found here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use kaido_n4::{Ipv6Prefix, NetworkInstance, Qfi, VolumeThreshold};
use kaido_pfcp::{Dialect, PFCP_PORT};

use super::fault::SimFault;
use super::plan::{Addressing, ChurnPlan, OfflinePlan, Plan, PoolFamily, SessionPlan, Traffic, TunPlan};

/// A small SMF, gNB and UEs in one process.
///
/// Attaches UEs through PFCP, carries their traffic through GTP-U, writes `ready` to stdout once all are
/// attached, and detaches them at the end. Progress goes to stderr.
#[derive(Args, Clone, Debug)]
pub struct SimArgs {
    /// PFCP address of the UPF; port 8805 unless given
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = pfcp_address, required_unless_present = "offline")]
    upf_pfcp: Option<SocketAddr>,
    /// Local PFCP address; port 8805 unless given (a UPF sends reports and heartbeats to 8805 unless it is
    /// told otherwise)
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = pfcp_address, required_unless_present = "offline")]
    smf: Option<SocketAddr>,
    /// N3 address of the UPF, for tunnels whose TEIDs are given out here
    #[arg(long, value_name = "ADDR", required_unless_present_any = ["choose", "offline"])]
    upf_gtpu: Option<IpAddr>,
    /// Leave the uplink TEIDs and the N3 address to the UPF
    #[arg(long, conflicts_with = "upf_gtpu")]
    choose: bool,
    /// Local address of the gNB; UDP port 2152 is bound on it
    #[arg(long, value_name = "ADDR", required_unless_present = "offline")]
    gnb: Option<IpAddr>,
    /// Number of UEs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    ues: u32,
    /// IPv4 address of the first UE; the others follow. 10.60.0.1 when no address is asked for
    #[arg(long, value_name = "ADDR")]
    ue_ipv4: Option<Ipv4Addr>,
    /// IPv6 prefix of which each UE gets the next /64
    #[arg(long, value_name = "PREFIX/LEN", value_parser = ue_prefix)]
    ue_ipv6: Option<Ipv6Prefix>,
    /// Leave the UE addresses to the UPF's pool
    #[arg(long, value_name = "FAMILY", num_args = 0..=1, default_missing_value = "v4", require_equals = true,
        conflicts_with_all = ["ue_ipv4", "ue_ipv6"])]
    ue_from_upf: Option<PoolFamily>,
    /// Write sessions as the SMF of this core does: free5gc, open5gs, oai or sd-core. free5GC gives F-TEIDs out
    /// itself (--upf-gtpu), the others leave them to the UPF (--choose)
    #[arg(long, value_name = "CORE", default_value = "plain", conflicts_with_all = ["no_qfi", "ue_from_upf", "offline"])]
    dialect: Dialect,
    /// QoS flow in the PDU session container of uplink packets
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u8).range(1..=63))]
    qfi: u8,
    /// No PDU session container, as in LTE
    #[arg(long, conflicts_with = "qfi")]
    no_qfi: bool,
    /// Network instance (DNN) of the core side
    #[arg(long, value_name = "NAME")]
    network_instance: Option<String>,
    /// Volume of both directions after which the UPF reports (VOLTH); none reports at the end alone
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    threshold: Option<u64>,
    /// First TEID of both directions; the others follow. Two sims at one UPF need different ones
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    first_teid: u32,
    /// Requests without an answer at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    window: u16,
    /// Times that a request is sent, one a second, before the UPF counts as gone
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=600))]
    tries: u32,
    /// Make TUN devices for the first K UEs
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=256))]
    tuns: u32,
    /// Their names: this and the number of the UE
    #[arg(long, value_name = "NAME", default_value = "ue")]
    tun_prefix: String,
    /// Their MTU
    #[arg(long, value_name = "BYTES", default_value_t = 1400, value_parser = clap::value_parser!(u16).range(1280..=9000))]
    mtu: u16,
    /// Generate UDP traffic from all UEs in turn: pps=N,bytes=N,seconds=N,to=ADDR:PORT (bytes of the IP packet)
    #[arg(long, value_name = "SPEC")]
    traffic: Option<Traffic>,
    /// Have UEs attach, move, go idle, be paged and detach, so many times a second together, for as long as --traffic
    /// lasts; every session's usage is compared with its traffic
    #[arg(long, value_name = "PER_SECOND", requires = "traffic", conflicts_with_all = ["tuns", "hold", "ue_from_upf"],
        value_parser = clap::value_parser!(u32).range(1..=100_000))]
    churn: Option<u32>,
    /// With --churn: the network loses packets. Each that is lost is reported with its time, and usage may be that of what
    /// was not. From SIGUSR1 to SIGUSR2 the SMF is silent
    #[arg(long, requires = "churn")]
    faults: bool,
    /// Write what was seen to a JSON file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Stay attached until SIGTERM, SIGINT, or the end of a pipe on stdin
    #[arg(long)]
    hold: bool,
    /// Touch a file once all UEs are attached
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// No progress lines
    #[arg(long)]
    quiet: bool,
    /// Without root and network: run UPF and sim in this process and leave packet captures in a directory
    #[arg(long, value_name = "DIR", conflicts_with_all =
        ["upf_pfcp", "smf", "upf_gtpu", "gnb", "tuns", "traffic", "churn", "faults", "report", "hold", "ready_file",
         "network_instance"])]
    pub(super) offline: Option<PathBuf>,
    /// Bytes of IP packets that `--offline` sends through the tunnels in each direction
    #[arg(long, value_name = "BYTES", default_value_t = 100_000_000, requires = "offline")]
    transfer: u64,
}

impl SimArgs {
    /// The run against a UPF on the network.
    pub(super) fn plan(&self) -> Result<Plan, SimFault> {
        let (Some(upf_pfcp), Some(smf), Some(gnb)) = (self.upf_pfcp, self.smf, self.gnb) else {
            return Err(SimFault::args(
                "--upf-pfcp, --smf and --gnb are all needed",
                "see `kaido sim --help`",
            ));
        };
        same_family("--upf-pfcp", upf_pfcp.ip(), "--smf", smf.ip())?;
        if let Some(upf) = self.upf_gtpu {
            same_family("--upf-gtpu", upf, "--gnb", gnb)?;
        }
        self.fits_dialect()?;
        let sessions = self.sessions(self.upf_gtpu, gnb)?;
        if let Some(traffic) = &self.traffic {
            traffic.fits(sessions.addressing)?;
        }
        let longest = self.tun_prefix.len() + self.tuns.saturating_sub(1).to_string().len();
        if longest > INTERFACE_NAME_MAX || self.tun_prefix.contains(['/', ' ']) {
            return Err(SimFault::args(
                format!("--tun-prefix {}: no device can be called that", self.tun_prefix),
                "a device name has at most 15 characters, the UE's number included",
            ));
        }
        let tuns = TunPlan { count: self.tuns.min(self.ues), prefix: self.tun_prefix.clone(), mtu: self.mtu };
        Ok(Plan {
            upf_pfcp,
            smf,
            sessions,
            tuns,
            traffic: self.traffic.clone(),
            report: self.report.clone(),
            hold: self.hold,
            ready_file: self.ready_file.clone(),
            quiet: self.quiet,
        })
    }

    /// Whether F-TEIDs are given out by whom the dialect's SMF would have it.
    fn fits_dialect(&self) -> Result<(), SimFault> {
        match self.dialect.chooses_f_teids() {
            Some(true) if !self.choose => Err(SimFault::args(
                format!("--dialect {}: this SMF leaves F-TEIDs to the UPF", self.dialect.name()),
                "give --choose in place of --upf-gtpu",
            )),
            Some(false) if self.choose => Err(SimFault::args(
                format!("--dialect {}: this SMF gives F-TEIDs out itself", self.dialect.name()),
                "give --upf-gtpu in place of --choose",
            )),
            _ => Ok(()),
        }
    }

    /// The run with UEs that come and go, if it is to be one.
    pub(super) fn churn_plan(&self) -> Result<Option<ChurnPlan>, SimFault> {
        let Some(per_second) = self.churn else { return Ok(None) };
        if self.faults && self.dialect != Dialect::Plain {
            return Err(SimFault::args(
                format!(
                    "--faults --dialect {}: this SMF asks for no packets of both directions",
                    self.dialect.name()
                ),
                "leave one of them out: usage is compared with what was not lost",
            ));
        }
        let plan = self.plan()?;
        // clap sees to it that there is traffic.
        Ok(plan.traffic.clone().map(|traffic| ChurnPlan { per_second, traffic, faults: self.faults, plan }))
    }

    /// The run without a network, between these two addresses.
    pub(super) fn offline_plan(
        &self,
        dir: PathBuf,
        upf: IpAddr,
        gnb: IpAddr,
    ) -> Result<OfflinePlan, SimFault> {
        let mut sessions = self.sessions((!self.choose).then_some(upf), gnb)?;
        let unasked = self.ue_ipv4.is_none() && self.ue_ipv6.is_none() && self.ue_from_upf.is_none();
        if unasked && self.ues <= UE_IPV6_COUNT {
            let ipv6 = Some(Ipv6Prefix::of(UE_IPV6_NETWORK, 48));
            sessions.addressing = Addressing::Given { ipv4: Some(UE_IPV4_FIRST), ipv6 };
        }
        Ok(OfflinePlan { dir, sessions, transfer: self.transfer, quiet: self.quiet })
    }

    fn sessions(&self, upf_gtpu: Option<IpAddr>, gnb: IpAddr) -> Result<SessionPlan, SimFault> {
        if self.first_teid.checked_add(self.ues - 1).is_none() {
            return Err(SimFault::args(
                "--first-teid leaves fewer TEIDs than there are UEs",
                "TEIDs have 32 bits; begin lower",
            ));
        }
        Ok(SessionPlan {
            ues: self.ues,
            addressing: self.addressing()?,
            upf_gtpu,
            gnb,
            qfi: (!self.no_qfi).then_some(Qfi(self.qfi)),
            network_instance: self.network_instance.as_deref().map(|name| NetworkInstance(name.into())),
            threshold: self
                .threshold
                .map(|total| VolumeThreshold { total: Some(total), ..VolumeThreshold::default() }),
            first_teid: self.first_teid,
            window: self.window.into(),
            tries: self.tries,
            dialect: self.dialect,
        })
    }

    fn addressing(&self) -> Result<Addressing, SimFault> {
        if let Some(family) = self.ue_from_upf {
            return Ok(Addressing::Pool(family));
        }
        let ipv4 = match (self.ue_ipv4, self.ue_ipv6) {
            (None, None) => Some(UE_IPV4_FIRST),
            (given, _) => given,
        };
        let last = self.ues - 1;
        if ipv4.is_some_and(|first| first.to_bits().checked_add(last).is_none()) {
            return Err(SimFault::args("--ue-ipv4: not enough addresses after the first", "begin lower"));
        }
        if self.ue_ipv6.is_some_and(|network| u64::from(last) >> (64 - network.len) != 0) {
            return Err(SimFault::args(
                "--ue-ipv6: the prefix has fewer /64 than there are UEs",
                "give a shorter prefix: a /48 has 65536 of them",
            ));
        }
        Ok(Addressing::Given { ipv4, ipv6: self.ue_ipv6 })
    }
}

/// The first UE's address unless one is asked for.
const UE_IPV4_FIRST: Ipv4Addr = Ipv4Addr::new(10, 60, 0, 1);
/// IPv6 network of the UEs of an offline run unless another is asked for, and how many /64 it has.
const UE_IPV6_NETWORK: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x60, 0, 0, 0, 0, 0);
const UE_IPV6_COUNT: u32 = 65_536;
/// IFNAMSIZ without its zero.
const INTERFACE_NAME_MAX: usize = 15;

/// A PFCP address on a command line.
pub fn pfcp_address(text: &str) -> Result<SocketAddr, String> {
    let with_port = text.parse::<SocketAddr>().ok();
    let without = || text.parse::<IpAddr>().ok().map(|addr| SocketAddr::new(addr, PFCP_PORT));
    with_port
        .or_else(without)
        .ok_or_else(|| "write 10.0.0.1, 10.0.0.1:8805, 2001:db8::1 or [2001:db8::1]:8805".to_owned())
}

fn ue_prefix(text: &str) -> Result<Ipv6Prefix, String> {
    let fault = || "write 2001:db8:60::/48, with a length of 1 to 64".to_owned();
    let (addr, len) = text.split_once('/').ok_or_else(fault)?;
    let len = len.parse().ok().filter(|len| (1..=64).contains(len)).ok_or_else(fault)?;
    Ok(Ipv6Prefix::of(addr.parse().map_err(|_| fault())?, len))
}

fn same_family(name: &str, addr: IpAddr, other: &str, other_addr: IpAddr) -> Result<(), SimFault> {
    if addr.is_ipv4() == other_addr.is_ipv4() {
        return Ok(());
    }
    Err(SimFault::args(
        format!("{name} {addr} and {other} {other_addr} are of different address families"),
        "both ends of a path are IPv4, or both are IPv6",
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        sim: SimArgs,
    }

    fn parse(text: &str) -> Result<SimArgs, String> {
        let words = std::iter::once("sim").chain(text.split_ascii_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.sim).map_err(|error| error.to_string())
    }

    const ENDS: &str = "--upf-pfcp 10.100.4.1 --smf 10.100.4.2 --upf-gtpu 10.100.3.1 --gnb 10.100.3.2";

    fn plan(more: &str) -> Result<Plan, String> {
        parse(&format!("{ENDS} {more}"))?.plan().map_err(|fault| fault.to_string())
    }

    #[test]
    fn the_defaults_are_one_5g_ue_with_ipv4() {
        let plan = plan("").unwrap();
        assert_eq!(plan.upf_pfcp, "10.100.4.1:8805".parse().unwrap());
        assert_eq!(plan.smf.port(), 8805);
        assert_eq!((plan.sessions.ues, plan.sessions.qfi), (1, Some(Qfi(9))));
        assert_eq!(plan.sessions.addressing.of(0), (Some("10.60.0.1".parse().unwrap()), None));
        assert_eq!((plan.tuns.count, plan.tuns.mtu, plan.hold), (0, 1400, false));
    }

    #[test]
    fn ports_and_families_are_read() {
        let six = "--upf-pfcp [fd00:4::1]:18805 --smf fd00:4::2 --choose --gnb fd00:3::2 --ue-ipv6 2001:db8:60::/48";
        let plan = parse(six).unwrap().plan().unwrap();
        assert_eq!(plan.upf_pfcp.port(), 18805);
        assert_eq!(plan.smf.port(), 8805);
        assert_eq!(plan.sessions.upf_gtpu, None);
        assert_eq!(plan.sessions.addressing.families(), (false, true));
        let (_, third) = plan.sessions.addressing.of(2);
        assert_eq!(third, Some(Ipv6Prefix::of("2001:db8:60:2::".parse().unwrap(), 64)));
    }

    #[test]
    fn a_request_is_tried_as_often_as_asked() {
        let tries = |more| plan(more).map(|plan| plan.sessions.tries);
        assert_eq!((tries(""), tries("--tries 60")), (Ok(4), Ok(60)));
        assert!(tries("--tries 0").is_err());
    }

    #[test]
    fn addresses_are_consecutive() {
        let plan = plan("--ues 300 --ue-ipv4 10.60.0.1 --ue-ipv6 2001:db8::/48 --no-qfi --tuns 4").unwrap();
        assert_eq!(plan.sessions.addressing.of(299).0, Some("10.60.1.44".parse().unwrap()));
        assert_eq!((plan.sessions.qfi, plan.tuns.count), (None, 4));
        let pool = |text| self::plan(text).unwrap().sessions.addressing;
        assert_eq!(pool("--ue-from-upf"), Addressing::Pool(PoolFamily::V4));
        assert_eq!(pool("--ue-from-upf=v4v6").families(), (true, true));
    }

    #[test]
    fn dialects_say_who_gives_f_teids_out() {
        let sessions = |text| plan(text).unwrap().sessions;
        assert_eq!(sessions("").dialect, Dialect::Plain);
        assert_eq!(sessions("--dialect free5gc").dialect, Dialect::Free5gc);
        let chosen = "--upf-pfcp 10.100.4.1 --smf 10.100.4.2 --choose --gnb 10.100.3.2 --dialect";
        let choosing =
            |name: &str| parse(&format!("{chosen} {name}"))?.plan().map_err(|fault| fault.to_string());
        assert_eq!(choosing("sd-core").unwrap().sessions.dialect, Dialect::SdCore);
        assert!(choosing("free5gc").unwrap_err().contains("gives F-TEIDs out itself"));
        assert!(choosing("magma").unwrap_err().contains("plain, free5gc, open5gs, oai, sd-core"));
    }

    #[test]
    fn contradictions_are_named() {
        for (text, part) in [
            ("--upf-pfcp 1.2.3.4 --smf 1.2.3.5 --gnb 1.2.3.5", "--upf-gtpu"),
            ("--upf-pfcp upf --smf 1.2.3.5 --gnb 1.2.3.5 --choose", "10.0.0.1:8805"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        for (more, part) in [
            ("--choose", "cannot be used with"),
            ("--qfi 64", "1..=63"),
            ("--qfi 5 --no-qfi", "cannot be used with"),
            ("--ues 0", "1..=1000000"),
            ("--dialect open5gs", "leaves F-TEIDs to the UPF"),
            ("--dialect free5gc --no-qfi", "cannot be used with"),
            ("--offline /tmp", "cannot be used with"),
            ("--churn 10", "--traffic"),
            ("--ue-from-upf --ue-ipv4 10.0.0.1", "cannot be used with"),
            ("--ue-ipv6 2001:db8::/65", "1 to 64"),
            ("--ues 3 --ue-ipv6 2001:db8::/63", "fewer /64"),
            ("--ues 300 --ue-ipv4 255.255.255.0", "not enough addresses"),
            ("--ues 2 --first-teid 4294967295", "fewer TEIDs"),
            ("--tuns 2 --tun-prefix a-very-long-name", "no device"),
            ("--traffic pps=1,bytes=100,seconds=1,to=[2001:db8::1]:9", "no IPv6 address"),
        ] {
            let error = plan(more).unwrap_err();
            assert!(error.contains(part), "{more}: {error}");
        }
        let mixed = "--upf-pfcp 1.2.3.4 --smf 1.2.3.5 --upf-gtpu fd00::1 --gnb 1.2.3.5";
        assert!(parse(mixed).unwrap().plan().unwrap_err().to_string().contains("different address families"));
    }
}
