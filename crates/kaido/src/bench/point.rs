//! `kaido bench point`: one measured point.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use kaido_bench::point::{
    Datapath, FCS_BYTES, Flows, PREAMBLE_AND_GAP_BYTES, PointClock, PointPlan, RssMode, WORKERS_MAX,
};
use kaido_bench::{Direction, Family, SESSIONS_MAX, Shape};
use kaido_engine::shared::QueueMode;
use miette::IntoDiagnostic;

use super::{Sink, stop_flag};

/// Prints one line; sweeps and searches take the JSON. Method and limits: docs/sweep.md.
#[derive(Args, Clone, Debug)]
pub(super) struct PointArgs {
    /// What packets come and leave by: memory, or sockets on veth in a namespace of its own, which needs root
    #[arg(long, value_enum, default_value = "memory")]
    datapath: Link,
    /// Which way packets go, as seen by the UE
    #[arg(long, value_enum, default_value = "uplink")]
    direction: PointPath,
    /// IP version of the packets, in the tunnel and outside
    #[arg(long, value_name = "4|6", default_value = "4", value_parser = family)]
    ip: Family,
    /// Length of frames in bytes, without FCS
    #[arg(long, value_name = "BYTES", default_value_t = 128)]
    frame: usize,
    /// Workers, each on a CPU of its own where there are enough
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = workers)]
    workers: usize,
    /// How workers get at packets: rss (a queue each), shared or shared-ordered
    #[arg(long, value_name = "MODE", default_value = "rss")]
    queue: QueueMode,
    /// With rss: by what packets are spread over the queues
    #[arg(long, value_enum, default_value = "ue")]
    spread: SpreadArg,
    /// Sessions in the node
    #[arg(long, value_name = "N", default_value_t = 65_536, value_parser = clap::value_parser!(u32).range(1..=i64::from(SESSIONS_MAX)))]
    sessions: u32,
    /// Their rules and flows: plain, free5gc, open5gs, volte, slice, tenant, mixed
    #[arg(long, value_name = "SHAPE", default_value = "plain")]
    shape: Shape,
    /// Packets of one session, or of all in random order
    #[arg(long, value_enum, default_value = "multi")]
    flows: Kind,
    /// Compute the outer UDP checksum downlink
    #[arg(long)]
    udp_checksum: bool,
    /// Packets offered: max, 2.5Mpps, 800kpps, 1000pps, or 10Gbit/s of the link (layer 1)
    #[arg(long, value_name = "RATE", default_value = "max")]
    rate: Rate,
    /// Descriptors of each worker's receive ring, where packets come at a rate in memory
    #[arg(long, value_name = "N", default_value_t = 4096)]
    ring: usize,
    /// What time counts where packets come at a rate in memory: cpu leaves out what the system gave to others
    #[arg(long, value_enum, default_value = "cpu")]
    clock: Time,
    /// Seconds of user plane time; making packets comes on top
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = seconds)]
    duration: f64,
    /// End after so many packets: a burst
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    packets: Option<u64>,
    /// Parts of the duration, each of which gives a sample
    #[arg(long, value_name = "N", default_value_t = 11)]
    samples: usize,
    /// Seed of the order of sessions
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Over links: have a bare AF_XDP port and the kernel's IP forwarding forward the same frames too, each as long
    #[arg(long)]
    compare: bool,
    /// Write the result as JSON; `-` is standard output, and the line then goes to stderr
    #[arg(long, value_name = "FILE|-", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Link {
    /// Packets lie ready; no device and no kernel takes part
    Memory,
    /// Packet sockets
    #[value(name = "af_packet")]
    AfPacket,
    /// AF_XDP sockets, in copy mode
    #[value(name = "af_xdp")]
    AfXdp,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum PointPath {
    Uplink,
    Downlink,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum SpreadArg {
    /// The UE's address
    Ue,
    /// The TEID uplink, addresses downlink
    Teid,
    /// Outermost addresses and ports, as most NICs do
    FiveTuple,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Single,
    Multi,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Time {
    Cpu,
    Wall,
}

/// Packets offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Rate {
    Max,
    Pps(f64),
    /// On layer 1, with preamble, FCS and gap.
    BitsPerSecond(f64),
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "max" {
            return Ok(Self::Max);
        }
        let bits = [("Gbit/s", 1e9), ("Mbit/s", 1e6), ("bit/s", 1.0)];
        let packets = [("Mpps", 1e6), ("kpps", 1e3), ("pps", 1.0)];
        let of = |units: [(&str, f64); 3]| {
            units.into_iter().find_map(|(unit, factor)| {
                let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
                (number.is_finite() && number > 0.0).then_some(number * factor)
            })
        };
        let found = of(bits).map(Self::BitsPerSecond).or_else(|| of(packets).map(Self::Pps));
        found.ok_or_else(|| {
            "a rate is max, or a number above 0 of pps, kpps, Mpps, Mbit/s or Gbit/s".to_owned()
        })
    }
}

impl Rate {
    /// As the rate of a stream.
    pub(super) fn of_link(self) -> kaido_bench::stream::Rate {
        match self {
            Self::Max => kaido_bench::stream::Rate::Max,
            Self::Pps(pps) => kaido_bench::stream::Rate::Pps(pps),
            Self::BitsPerSecond(bits) => kaido_bench::stream::Rate::L1Bps(bits),
        }
    }

    /// Packets a second for frames of so many bytes.
    fn pps(self, frame_bytes: usize) -> Option<f64> {
        match self {
            Self::Max => None,
            Self::Pps(pps) => Some(pps),
            Self::BitsPerSecond(bits) => {
                // Precise far beyond any frame.
                let on_the_wire = (frame_bytes + FCS_BYTES + PREAMBLE_AND_GAP_BYTES) as f64 * 8.0;
                Some(bits / on_the_wire)
            }
        }
    }
}

fn family(text: &str) -> Result<Family, String> {
    let found = Family::ALL.into_iter().find(|family| family.number().to_string() == text);
    found.ok_or_else(|| "the IP version is 4 or 6".to_owned())
}

fn workers(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=WORKERS_MAX).contains(number));
    number.ok_or_else(|| format!("there are 1 to {WORKERS_MAX} workers"))
}

pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok().filter(|number| (0.001..=1e6).contains(number));
    number.ok_or_else(|| "a duration is 0.001 to 1000000 seconds".to_owned())
}

impl PointArgs {
    fn plan(&self) -> PointPlan {
        let usual = PointPlan::default();
        let direction = match self.direction {
            PointPath::Uplink => Direction::Uplink,
            PointPath::Downlink => Direction::Downlink,
        };
        PointPlan {
            datapath: match self.datapath {
                Link::Memory => Datapath::Memory,
                Link::AfPacket => Datapath::AfPacket,
                Link::AfXdp => Datapath::AfXdp,
            },
            direction,
            family: self.ip,
            frame_bytes: self.frame,
            workers: self.workers,
            queue: self.queue,
            spread: match self.spread {
                SpreadArg::Ue => RssMode::Ue,
                SpreadArg::Teid => RssMode::Teid,
                SpreadArg::FiveTuple => RssMode::FiveTuple,
            },
            sessions: self.sessions,
            shape: self.shape,
            flows: match self.flows {
                Kind::Single => Flows::Single,
                Kind::Multi => Flows::Multi,
            },
            udp_checksum: self.udp_checksum,
            rate_pps: self
                .rate
                .pps(kaido_bench::point::frame_bytes_sent(self.ip, direction, self.shape, self.frame)),
            ring: self.ring,
            clock: match self.clock {
                Time::Cpu => PointClock::Cpu,
                Time::Wall => PointClock::Wall,
            },
            duration: Duration::from_secs_f64(self.duration),
            packets: self.packets,
            samples: self.samples,
            seed: self.seed,
            compare: self.compare,
            ..usual
        }
    }
}

/// Measures and prints.
pub(super) fn run(args: &PointArgs) -> miette::Result<()> {
    let stop = stop_flag()?;
    let sink = Sink::new(args.json.as_deref())?;
    let progress = |line: &str| tracing::debug!("{line}");
    sink.put(&kaido_bench::point::measure_point(&args.plan(), &stop, &progress).into_diagnostic()?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        point: PointArgs,
    }

    fn plan(text: &str) -> Result<PointPlan, String> {
        let words = ["point"].into_iter().chain(text.split_ascii_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.point.plan()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_point_is_what_was_asked() {
        assert_eq!(plan("").unwrap(), PointPlan::default());
        let asked = plan(
            "--datapath af_xdp --ip 6 --direction downlink --frame 1424 --workers 2 --queue shared-ordered --spread five-tuple --compare --sessions 7 --shape volte \
             --flows single --udp-checksum --ring 64 --clock wall --duration 0.5 --packets 9 --samples 3 --seed 4",
        );
        let expected = PointPlan {
            datapath: Datapath::AfXdp,
            family: Family::V6,
            direction: Direction::Downlink,
            frame_bytes: 1424,
            workers: 2,
            queue: QueueMode::SharedOrdered,
            spread: RssMode::FiveTuple,
            sessions: 7,
            shape: Shape::Volte,
            flows: Flows::Single,
            udp_checksum: true,
            ring: 64,
            clock: PointClock::Wall,
            duration: Duration::from_millis(500),
            packets: Some(9),
            samples: 3,
            seed: 4,
            compare: true,
            ..PointPlan::default()
        };
        assert_eq!(asked.unwrap(), expected);
    }

    #[test]
    fn rates_are_packets_or_bits_of_the_link() {
        assert_eq!(plan("--rate 2.5Mpps").unwrap().rate_pps, Some(2.5e6));
        assert_eq!(plan("--rate 800kpps").unwrap().rate_pps, Some(8e5));
        // 1000 + 24 bytes on the wire.
        assert_eq!(plan("--frame 1000 --rate 8.192Gbit/s").unwrap().rate_pps, Some(1e6));
        // The shortest uplink frame has 86 bytes.
        assert_eq!(plan("--frame 64 --rate 880bit/s").unwrap().rate_pps, Some(1.0));
        assert_eq!(plan("--rate max").unwrap().rate_pps, None);
        let of_link = |text: &str| text.parse::<Rate>().unwrap().of_link();
        assert_eq!(of_link("3kpps"), kaido_bench::stream::Rate::Pps(3000.0));
        assert_eq!(of_link("2Gbit/s"), kaido_bench::stream::Rate::L1Bps(2e9));
        assert_eq!(of_link("max"), kaido_bench::stream::Rate::Max);
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (text, part) in [
            ("--rate fast", "a rate is max"),
            ("--rate 0pps", "above 0"),
            ("--workers 65", "1 to 64 workers"),
            ("--queue fifo", "no queue mode"),
            ("--duration 0", "0.001"),
            ("--direction sideways", "uplink"),
            ("--ip 5", "the IP version is 4 or 6"),
            ("--datapath dpdk", "af_xdp"),
            ("--sessions 0", "1..="),
            ("--shape oai", "give plain, free5gc, open5gs, volte, slice, tenant, mixed"),
        ] {
            let error = plan(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
