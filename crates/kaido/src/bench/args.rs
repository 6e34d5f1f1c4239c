//! The command line of `kaido bench`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use kaido_bench::platforms::{NetworkFunction, PlatformsPlan};
use kaido_bench::{ControlPlan, Durability, FRAME_BYTES_MAX, GeneratorPlan, Plan, SESSIONS_MAX, Shape};
use kaido_metrics::PushTarget;
use kaido_sim::pfcp_address;

use super::flame::FlameArgs;
use super::live::LiveArgs;
use super::ndn::NdnArgs;
use super::point::{PointArgs, Rate, seconds};
use super::python::PythonArgs;

/// Measure Kaido on this machine.
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(super) benchmark: Benchmark,
}

#[derive(Clone, Debug, Subcommand)]
pub(super) enum Benchmark {
    /// The user plane in memory, on one core: nanoseconds a packet beside the memory's floor and a map-chain XDP
    /// program, sessions and table operations a second
    Micro(MicroArgs),
    /// Session establishments, modifications and deletions a second over UDP loopback, with packets of other sessions
    /// forwarded meanwhile
    Control(ControlArgs),
    /// Send traffic through a device, count what comes back, and judge every packet of it
    Run(RunArgs),
    /// Establish the sessions of a file's bearers, or of a shape, at a user plane by PFCP, and hold them until SIGTERM or SIGINT
    Attach(AttachArgs),
    /// Packets that the kernel makes (XDP live frames), millions a second from one core, through a device: how many come back
    Live(LiveArgs),
    /// The packet generator's own speed, beside that of the user plane in memory
    Generator(GeneratorArgs),
    /// One measured point of the user plane, in memory or over veth: what `sweep` varies and `search` repeats
    Point(PointArgs),
    /// Many points: datapaths, IP versions, frames, workers, directions, flows, checksums, sessions; resumable. Needs the Python package
    Sweep(PythonArgs),
    /// The rate up to which nothing is lost (NDR), and little (PDR); throughput, latency, bursts, soak. Needs the Python package
    Search(PythonArgs),
    /// One self-contained HTML file of a sweep's results, with its pictures. Needs the Python package
    Report(PythonArgs),
    /// What differs between two sweeps, and whether that is more than noise. Needs the Python package
    Compare(PythonArgs),
    /// Three ways to lose throughput, measured: LRU maps, hashing blind for the TEID, checksums. Needs the Python package
    Discoveries(PythonArgs),
    /// Our figures beside those that public accounts of such systems report. Needs the Python package
    Sources(PythonArgs),
    /// GRE header removal, or the user plane, by the engine over each kind of port, in the driver and by the kernel, compared:
    /// rate, latency, CPU and energy. End to end only as root
    Platforms(PlatformsArgs),
    /// A flame graph of what `perf script` prints
    Flame(FlameArgs),
    /// Sessions that kernel maps of as many entries still hold once all are written, as JSON; needs root
    Lru(LruArgs),
    /// Interests and Data in both directions through NDN routers, every answer judged
    Ndn(NdnArgs),
}

/// Prints a table. The links are made in a network namespace of its own. Method and limits: docs/gre.md and docs/upf.md.
#[derive(Args, Clone, Debug)]
pub(super) struct PlatformsArgs {
    /// What the platforms do: remove GRE headers, or forward as a UPF
    #[arg(long, value_name = "FUNCTION", value_enum, default_value_t = FunctionArg::Gre)]
    function: FunctionArg,
    /// Sessions of the UPF
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    sessions: u32,
    /// Their rules and flows: plain, free5gc, open5gs, volte, slice, tenant, mixed
    #[arg(long, value_name = "SHAPE", default_value = "plain")]
    shape: Shape,
    /// Only the engine in memory; that of the UPF is measured by `kaido bench micro`
    #[arg(long, conflicts_with = "function")]
    memory: bool,
    /// The clock rate in MHz that the model of the hardware cores assumes, in a kaido that was built with `fpga-model`
    #[arg(long, value_name = "MHZ", default_value_t = PlatformsPlan::default().fpga_mhz, value_parser = mhz)]
    fpga_mhz: f64,
    /// Shorter trials and fewer rounds: a look, no measurement
    #[arg(long)]
    quick: bool,
    /// Samples in memory, and rounds of latency [default: 7, with --quick 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// Write the report as JSON; `-` is standard output, and the table then goes to stderr
    #[arg(long, value_name = "FILE|-")]
    pub(super) json: Option<PathBuf>,
}

/// A clock rate.
fn mhz(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok().filter(|number| (1.0..=10_000.0).contains(number));
    number.ok_or_else(|| "a clock rate is 1 to 10000 MHz".to_owned())
}

impl PlatformsArgs {
    pub(super) fn plan(&self) -> PlatformsPlan {
        let full = PlatformsPlan::default();
        let base = if self.quick {
            PlatformsPlan { rounds: 2, packets: 1 << 17, trial: Duration::from_millis(150), ..full }
        } else {
            full
        };
        PlatformsPlan {
            function: match self.function {
                FunctionArg::Gre => NetworkFunction::Gre,
                FunctionArg::Upf => NetworkFunction::Upf,
            },
            sessions: self.sessions,
            shape: self.shape,
            rounds: self.rounds.unwrap_or(base.rounds),
            memory_only: self.memory,
            fpga_mhz: self.fpga_mhz,
            ..base
        }
    }
}

/// A function as the command line names it.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum FunctionArg {
    Gre,
    Upf,
}

/// Sessions written into maps of so many entries.
#[derive(Args, Clone, Debug)]
pub(super) struct LruArgs {
    /// Sessions, and entries of each map
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=16_000_000))]
    pub(super) sessions: u32,
}

/// Prints a table, and wrong packets with their fields side by side. docs/bench.md describes the file. The exit status is 1
/// when packets were lost or wrong.
#[derive(Args, Clone, Debug)]
pub(super) struct RunArgs {
    /// The file that says what is sent, and what must come of it
    #[arg(short, long, value_name = "FILE")]
    pub(super) config: PathBuf,
    /// Only read and check the file
    #[arg(long)]
    pub(super) check: bool,
    /// What all streams send together, in place of the file's `total`: max, 2.5Mpps, 800kpps, 1000pps, or 10Gbit/s (layer 1)
    #[arg(long, value_name = "RATE")]
    pub(super) rate: Option<Rate>,
    /// Bearers of each description, in place of the file's `count`: for a smaller device, or a smaller machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) bearers: Option<u32>,
    /// Seconds of sending, in place of the file's `duration_s`
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) duration: Option<f64>,
    /// Write the result as JSON; `-` is standard output, and the table then goes to stderr
    #[arg(long, value_name = "FILE|-")]
    pub(super) json: Option<PathBuf>,
}

/// Writes `ready` to stdout once all are established. The sessions are deleted at the end.
#[derive(Args, Clone, Debug)]
pub(super) struct AttachArgs {
    /// The file of `kaido bench run`
    #[arg(short, long, value_name = "FILE", required_unless_present = "shape")]
    pub(super) config: Option<PathBuf>,
    /// Sessions of a shape in place of a file's: plain, free5gc, open5gs, volte, slice, mixed
    #[arg(long, value_name = "SHAPE", conflicts_with = "config", requires_all = ["n3", "gnb"])]
    pub(super) shape: Option<Shape>,
    /// With --shape: the user plane's GTP-U address
    #[arg(long, value_name = "ADDR", requires = "shape")]
    pub(super) n3: Option<Ipv4Addr>,
    /// With --shape: the gNB's
    #[arg(long, value_name = "ADDR", requires = "shape")]
    pub(super) gnb: Option<Ipv4Addr>,
    /// PFCP address of the user plane; port 8805 unless given
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = pfcp_address)]
    pub(super) upf_pfcp: SocketAddr,
    /// Local PFCP address; port 8805 unless given
    #[arg(long, value_name = "ADDR[:PORT]", value_parser = pfcp_address)]
    pub(super) smf: SocketAddr,
    /// Bearers of each description, in place of the file's `count`; with --shape sessions [default: 1000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) bearers: Option<u32>,
    /// Requests under way at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(super) window: u16,
}

/// Prints a table. Method and limits: docs/benchmarks.md.
#[derive(Args, Clone, Debug)]
pub(super) struct GeneratorArgs {
    /// Bearers, and sessions of the user plane
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(SESSIONS_MAX)))]
    sessions: u32,
    /// Rounds, each a sample of every case
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: u32,
    /// Write the report as JSON; `-` is standard output, and the table then goes to stderr
    #[arg(long, value_name = "FILE|-")]
    pub(super) json: Option<PathBuf>,
}

impl GeneratorArgs {
    pub(super) fn plan(&self) -> GeneratorPlan {
        GeneratorPlan { sessions: self.sessions, rounds: self.rounds, ..GeneratorPlan::default() }
    }
}

/// Prints a table. One CPU serves, the next one asks. Method and limits: docs/benchmarks.md.
#[derive(Args, Clone, Debug)]
pub(super) struct ControlArgs {
    /// Sessions set up, changed and deleted
    #[arg(long, value_name = "N", default_value_t = 500_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    sessions: u32,
    /// Their rules: plain, free5gc, open5gs, volte, slice, tenant, mixed
    #[arg(long, value_name = "SHAPE", default_value = "plain")]
    shape: Shape,
    /// Requests under way at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    window: u32,
    /// Requests a second at most; the times of answers are from when a request was to be sent
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,
    /// Workers that forward meanwhile, on a CPU each if there are two more than workers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    workers: u8,
    /// How many seconds usage reports are counted once all sessions are set up, of shapes whose URRs have a measurement period; 0 for not
    /// at all
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=3600))]
    report_seconds: u16,
    /// What the sessions are to survive, as `store.durability` of a node; also measures a start from the store
    #[arg(long, value_enum, value_name = "MODE", default_value = "off")]
    durability: DurabilityArg,
    /// Where the store is made, and removed in the end
    #[arg(long, value_name = "FOLDER", default_value = "/var/tmp")]
    store: PathBuf,
    /// Write the report as JSON; `-` is standard output, and the table then goes to stderr
    #[arg(long, value_name = "FILE|-")]
    pub(super) json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DurabilityArg {
    Off,
    Process,
    Disk,
}

impl ControlArgs {
    pub(super) fn plan(&self) -> ControlPlan {
        let durability = match self.durability {
            DurabilityArg::Off => None,
            DurabilityArg::Process => Some(Durability::Process),
            DurabilityArg::Disk => Some(Durability::Disk),
        };
        let store = durability.map(|durability| (durability, self.store.clone()));
        let workers = self.workers.into();
        let reports = Duration::from_secs(self.report_seconds.into());
        let Self { sessions, shape, window, rate, .. } = *self;
        ControlPlan { sessions, shape, window, rate, workers, reports, store }
    }
}

/// Prints tables; progress goes to stderr. Method and limits: docs/benchmarks.md.
#[derive(Args, Clone, Debug)]
pub(super) struct MicroArgs {
    /// 1 and 1 M sessions, frames of 128 bytes, fewer rounds: below two minutes
    #[arg(long)]
    quick: bool,
    /// Numbers of sessions [default: 1,65536,1048576,16640000]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=i64::from(SESSIONS_MAX)))]
    sessions: Vec<u32>,
    /// Rules of the sessions, beside plain ones: free5gc, open5gs, volte, slice, tenant, mixed [default: each at one number of sessions;
    /// with --quick mixed]
    #[arg(long, value_name = "SHAPE")]
    shape: Option<Shape>,
    /// Lengths of frames in bytes, without FCS [default: 64,128,256,512,1024,1424,3024]
    #[arg(long, value_name = "BYTES,...", value_delimiter = ',', value_parser = frame)]
    frames: Vec<usize>,
    /// Rounds, each a sample of every case [default: 15, with --quick 7]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    rounds: Option<u32>,
    /// Packets of a round, each in a frame of its own: fewer are the frames of a device's rings, which come again [default: 32768]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(512..=1 << 18))]
    packets: Option<u32>,
    /// Take frames from the pool in random order, and not in the order in which they lie, as a node has them
    #[arg(long)]
    mixed_frames: bool,
    /// Replacements in the table, for each number of writers [default: 10 M, with --quick 2 M]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000_000))]
    soak: Option<u64>,
    /// Seed of all orders
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Reserve huge pages of 2 MiB for the run and give them back at its end; needs root
    #[arg(long)]
    reserve_hugepages: bool,
    /// Write the report as JSON; `-` is standard output, and the tables then go to stderr
    #[arg(long, value_name = "FILE|-")]
    json: Option<PathBuf>,
    /// Push the report to a Pushgateway of Prometheus, such as http://127.0.0.1:9091
    #[arg(long, value_name = "URL")]
    pub(super) push: Option<PushTarget>,
    /// The job that it is pushed as
    #[arg(long, value_name = "NAME", default_value = "kaido_bench", requires = "push")]
    pub(super) job: String,
}

impl MicroArgs {
    /// Whether standard output is the JSON's.
    pub(super) fn json_to_stdout(&self) -> bool {
        self.json.as_deref() == Some(Path::new("-"))
    }

    /// The file for the JSON.
    pub(super) fn json_file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|_| !self.json_to_stdout())
    }

    pub(super) fn plan(&self) -> Plan {
        let base = if self.quick { Plan::quick() } else { Plan::full() };
        Plan {
            sessions: chosen(&self.sessions, base.sessions),
            shape: self.shape,
            frames: chosen(&self.frames, base.frames),
            rounds: self.rounds.unwrap_or(base.rounds),
            packets_per_round: self.packets.map_or(base.packets_per_round, |packets| packets as usize),
            mixed_frames: self.mixed_frames,
            soak: self.soak.unwrap_or(base.soak),
            reserve_hugepages: self.reserve_hugepages,
            seed: self.seed,
            ..base
        }
    }
}

/// What was given, ascending and each once, or else what is usual.
fn chosen<T: Ord + Copy>(given: &[T], usual: Vec<T>) -> Vec<T> {
    if given.is_empty() {
        return usual;
    }
    let mut given = given.to_vec();
    given.sort_unstable();
    given.dedup();
    given
}

fn frame(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|bytes| (64..=FRAME_BYTES_MAX).contains(bytes))
        .ok_or_else(|| format!("a frame has 64 to {FRAME_BYTES_MAX} bytes"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        bench: BenchArgs,
    }

    fn args(text: &str) -> Result<MicroArgs, String> {
        let words = ["bench", "micro"].into_iter().chain(text.split_ascii_whitespace());
        let cli = Cli::try_parse_from(words).map_err(|error| error.to_string())?;
        let Benchmark::Micro(args) = cli.bench.benchmark else { panic!("another benchmark") };
        Ok(args)
    }

    fn plan(text: &str) -> Result<Plan, String> {
        args(text).map(|args| args.plan())
    }

    #[test]
    fn json_goes_to_a_file_or_to_stdout() {
        let places = |text| {
            let args = args(text).unwrap();
            (args.json_to_stdout(), args.json_file().map(Path::to_owned))
        };
        assert_eq!(places(""), (false, None));
        assert_eq!(places("--json -"), (true, None));
        assert_eq!(places("--json out.json"), (false, Some("out.json".into())));
    }

    #[test]
    fn plans_are_the_full_or_the_quick_one_unless_told() {
        assert_eq!(plan("").unwrap(), Plan::full());
        assert_eq!(plan("--quick").unwrap(), Plan::quick());
        let told =
            plan("--quick --sessions 1000,1,1000 --frames 1424,64 --rounds 3 --soak 9 --seed 7").unwrap();
        assert_eq!((told.sessions, told.frames), (vec![1, 1000], vec![64, 1424]));
        assert_eq!((told.rounds, told.soak, told.seed), (3, 9, 7));
        assert_eq!(told.packets_per_round, Plan::quick().packets_per_round);
        assert_eq!(plan("--packets 4096").unwrap().packets_per_round, 4096);
        assert_eq!(plan("--shape open5gs").unwrap().shape, Some(Shape::Open5gs));
        assert!(plan("--mixed-frames").unwrap().mixed_frames && !plan("").unwrap().mixed_frames);
    }

    #[test]
    fn what_cannot_be_is_named() {
        for (text, part) in [
            ("--fast", "--fast"),
            ("--sessions 0", "1..=16777000"),
            ("--sessions 16777001", "1..=16777000"),
            ("--sessions many", "invalid digit"),
            ("--frames 63", "64 to 3600"),
            ("--shape oai", "give plain, free5gc, open5gs, volte, slice, tenant, mixed"),
            ("--frames 9000", "64 to 3600"),
            ("--rounds 0", "1..=10000"),
            ("--packets 511", "512..=262144"),
            ("--soak 0", "--soak"),
            ("--push https://gateway", "only http:// is spoken"),
            ("--job nightly", "--push"),
        ] {
            let error = plan(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
