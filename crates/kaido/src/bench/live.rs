//! `kaido bench live`: packets that the kernel makes, through a device, and how many come back.

use std::fmt;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use kaido_bench::SESSIONS_MAX;
use kaido_engine::netlink;
use kaido_upf_xdp::offload::OffloadDirection;
use kaido_upf_xdp::speed::{LiveFrames, LivePackets};
use kaido_wire::MacAddr;
use miette::{Context, IntoDiagnostic};
use serde::Serialize;

use super::point::{PointPath, seconds};
use super::{Sink, stop_flag};

/// Packets of 192 bytes of sessions drawn at random, as `kaido bench attach --shape` establishes them. Counted, not judged: `kaido bench run`
/// judges, at fewer packets a second. They match no SDF filter, so not those of the shape `slice`. Needs root, and an XDP program on the device's side where the interfaces are veth.
#[derive(Args, Clone, Debug)]
pub(super) struct LiveArgs {
    /// As seen by the UE
    #[arg(long, value_enum, default_value_t = PointPath::Uplink)]
    direction: PointPath,
    /// The interface that sends
    #[arg(long, value_name = "INTERFACE")]
    from: String,
    /// The interface to which they come back
    #[arg(long, value_name = "INTERFACE")]
    to: String,
    /// The device's Ethernet address on the side that sends
    #[arg(long, value_name = "MAC", value_parser = mac)]
    device_mac: MacAddr,
    /// The device's GTP-U address
    #[arg(long, value_name = "ADDR")]
    n3: Ipv4Addr,
    /// The gNB's
    #[arg(long, value_name = "ADDR")]
    gnb: Ipv4Addr,
    /// Sessions: TEIDs from 1, UEs from 10.0.0.1
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=i64::from(SESSIONS_MAX)))]
    sessions: u32,
    /// QoS flow of uplink packets; 0 for no PDU session container, as in LTE
    #[arg(long, value_name = "QFI", default_value_t = 9, value_parser = clap::value_parser!(u8).range(0..64))]
    qfi: u8,
    /// Seconds of sending
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    duration: f64,
    /// Write the result as JSON; `-` is standard output, and the line then goes to stderr
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
}

fn mac(text: &str) -> Result<MacAddr, &'static str> {
    text.parse().map_err(|_| "no MAC address such as 02:00:00:00:03:01")
}

/// What a run gave.
#[derive(Serialize)]
struct LiveResult {
    sent: u64,
    received: u64,
    seconds: f64,
    sent_pps: f64,
    received_pps: f64,
}

impl fmt::Display for LiveResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, received, sent_pps, received_pps, seconds } = self;
        let (sent_mpps, received_mpps) = (sent_pps / 1e6, received_pps / 1e6);
        writeln!(
            f,
            "{seconds:.1} s: {sent} packets sent, {sent_mpps:.3} Mpps; {received} came back, {received_mpps:.3} Mpps"
        )
    }
}

/// Sends, and prints what came back.
pub(super) fn run(args: &LiveArgs) -> miette::Result<()> {
    let sink = Sink::new(args.json.as_deref())?;
    let index = |name: &String| netlink::interface(name).into_diagnostic().wrap_err_with(|| name.clone());
    let (from, to) = (index(&args.from)?, index(&args.to)?);
    let stop = stop_flag()?;
    let frames = LiveFrames::open(from.ifindex, to.ifindex).into_diagnostic()?;
    let packets = LivePackets {
        direction: match args.direction {
            PointPath::Uplink => OffloadDirection::Uplink,
            PointPath::Downlink => OffloadDirection::Downlink,
        },
        sessions: args.sessions,
        device_mac: args.device_mac.0,
        tunnel: [args.n3, args.gnb],
        qfi: (args.qfi > 0).then_some(args.qfi),
    };
    let count = frames.run(&packets, Duration::from_secs_f64(args.duration), &stop).into_diagnostic()?;
    let seconds = count.elapsed.as_secs_f64();
    sink.put(&LiveResult {
        sent: count.sent,
        received: count.received,
        seconds,
        sent_pps: count.sent as f64 / seconds,
        received_pps: count.received as f64 / seconds,
    })
}
