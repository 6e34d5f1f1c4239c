//! The UPF as a function of a node: configuration, ports, control loop, the offload, and what it shows.
//!
//! The packets' way is `kaido-upf`'s, N4 is `kaido-pfcp`'s, and the programs in the kernel are `kaido-upf-xdp`'s; this is what joins
//! them with a node.

mod api;
mod choice;
mod config;
mod control;
mod control_guard;
mod datapath;
mod exits;
mod exposure;
mod flows;
mod init;
mod kernel_return;
mod kernel_watch;
mod lag;
mod left;
mod listen;
mod listing;
mod memory;
mod metrics;
mod n4_tunnels;
mod offload;
mod otlp;
mod ports;
mod reload;
mod session;
mod show;
mod store;
mod trace;
mod unknown_peers;
mod view;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use clap::{FromArgMatches, Subcommand};
use kaido_engine::{FramePool, Function, PacketSamples};
use kaido_metrics::Family;
use kaido_n4::Ipv6Prefix;
use kaido_node::api::{Route, Status};
use kaido_node::board::Heartbeat;
use kaido_node::config::{Base, Datapath, FilePart, Findings, FunctionSchema, PortConfig, Spanned};
use kaido_node::function::{
    ConfiguredFunction, DatapathAdvice, FlowSelector, FunctionContext, NetworkFunction, Running, WayOut,
};
use kaido_node::init::FirstConfig;
use kaido_node::listing::Listing;
use kaido_node::root_folder::{RootFolder, RootFolderKind};
use kaido_node::show::{ControlTarget, Watch};
use kaido_node::{Stage, StartFault};
use kaido_pfcp::{Endpoint, Features, Instants, NodeId};
use kaido_upf::control::{UePool, Upf};
use kaido_upf::node::{Node, NodeSettings};
use kaido_upf::path::Path;
use miette::{Diagnostic, IntoDiagnostic, WrapErr, miette};
use thiserror::Error;

use self::choice::{Advice, PortFacts, by_ports};
use self::control::{Control, HeldAnswers, datagram_buffer, datagram_rooms};
use self::control_guard::ControlGuard;
use self::exposure::{Exposure, ExposureSocket};
use self::flows::FlowExport;
use self::kernel_watch::KernelWatch;
use self::lag::Lag;
use self::left::LeftBehind;
use self::listen::listen;
use self::memory::Memory;
use self::metrics::{Sources, UpfMetrics};
use self::otlp::ProcedureExport;
use self::ports::Ports;
use self::show::SessionsArgs;
use self::store::NodeStore;
use self::unknown_peers::UnknownPeers;
use crate::config::{DurabilityConfig, StoreConfig, UpfConfig, UpfPort};

/// Octets of the tables for a session, rounded up: huge pages are whole.
const SESSION_BYTES: u64 = 512;

/// UPF and PGW-U.
pub struct UpfFunction;

// Commands that only a user plane has. No doc comment: it would describe the whole command line.
#[derive(Debug, clap::Subcommand)]
enum UpfCommand {
    /// List the sessions of a running user plane.
    Sessions {
        #[command(flatten)]
        at: ControlTarget,
        /// Sessions to pass over.
        #[arg(long, default_value_t = 0)]
        skip: usize,
        /// Most sessions to list.
        #[arg(long, default_value_t = 50)]
        limit: usize,
        #[command(flatten)]
        of: SessionsArgs,
        #[command(flatten)]
        watch: Watch,
    },
    /// Show a session with its rules as they are installed.
    Session {
        /// Its SEID, as `kaido sessions` shows it.
        #[arg(value_parser = trace::seid)]
        seid: u64,
        #[command(flatten)]
        at: ControlTarget,
        #[command(flatten)]
        watch: Watch,
    },
    /// End a session, whose control plane is told, or have a control plane release its association.
    Release {
        #[command(flatten)]
        what: Released,
        /// Seconds that the control plane may take for an association.
        #[arg(long, default_value_t = 60, conflicts_with = "session")]
        grace: u64,
        #[command(flatten)]
        at: ControlTarget,
    },
    /// Have all control planes release their associations, and refuse new associations and sessions.
    Drain {
        /// Seconds that they may take.
        #[arg(long, default_value_t = 60)]
        grace: u64,
        /// Take new ones again, instead.
        #[arg(long, conflicts_with = "grace")]
        stop: bool,
        #[command(flatten)]
        at: ControlTarget,
    },
}

/// What is released.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Released {
    /// The session with that SEID of this node.
    #[arg(long, value_parser = trace::seid)]
    session: Option<u64>,
    /// The association of the control plane with that Node ID, as `kaido status` shows it. Its sessions go on until it does.
    #[arg(long, value_name = "NODE-ID")]
    association: Option<String>,
}

impl NetworkFunction for UpfFunction {
    fn schema(&self) -> FunctionSchema {
        config::SCHEMA
    }

    fn read(&self, part: FilePart<'_>) -> Result<Box<dyn ConfiguredFunction>, toml::de::Error> {
        Ok(Box::new(UpfConfig::read(part)?))
    }

    fn first_config(&self) -> Option<FirstConfig> {
        Some(init::FIRST_CONFIG)
    }

    fn listing(&self) -> Option<Listing> {
        Some(listing::SESSIONS)
    }

    fn families(&self) -> &'static [Family] {
        metrics::families::FAMILIES
    }

    fn routes(&self) -> &'static [Route] {
        api::ROUTES
    }

    fn selectors(&self) -> &'static [FlowSelector] {
        &trace::SELECTORS
    }

    fn commands(&self, command: clap::Command) -> clap::Command {
        UpfCommand::augment_subcommands(command)
    }

    fn execute(&self, command: &clap::ArgMatches) -> Option<miette::Result<()>> {
        UpfCommand::has_subcommand(command.subcommand_name()?).then(|| {
            match UpfCommand::from_arg_matches(command).into_diagnostic()? {
                UpfCommand::Sessions { at, skip, limit, of, watch } => {
                    watch.run(|| show::sessions(&at.socket, at.json, &of.wanted(skip, limit)))
                }
                UpfCommand::Release { what: Released { session, association }, grace, at } => {
                    show::release(&at.socket, session, association, grace)
                }
                UpfCommand::Drain { grace, stop, at } => show::drain(&at.socket, (!stop).then_some(grace)),
                UpfCommand::Session { seid, at, watch } => {
                    watch.run(|| session::session(&at.socket, at.json, seid))
                }
            }
        })
    }

    fn print_summary(&self, status: &Status) {
        show::print_summary(status);
    }

    fn print_status(&self, status: &Status) {
        show::print_status(status);
    }
}

impl ConfiguredFunction for UpfConfig {
    fn schema(&self) -> FunctionSchema {
        config::SCHEMA
    }

    fn base(&self) -> &Base {
        &self.base
    }

    fn check(&self, findings: &mut Findings) {
        config::check::check(self, findings);
    }

    fn summary(&self) -> String {
        format!("{} ports, up to {} sessions", self.base.ports.len(), self.node.sessions_max.get_ref())
    }

    fn table_bytes(&self) -> u64 {
        u64::from(*self.node.sessions_max.get_ref()) * SESSION_BYTES
    }

    fn has_tunnels(&self, port: &PortConfig) -> bool {
        self.of_port(port).is_some_and(UpfPort::is_gtpu)
    }

    fn advise_datapath(&self, copies: &[Option<bool>], frames: u64) -> Option<DatapathAdvice> {
        let ports = self.ports().zip(copies);
        let ports: Vec<_> =
            ports.map(|((config, of_port), &copies)| PortFacts { config, of_port, copies }).collect();
        let Advice { is_kernel, reason } = by_ports(&ports);
        Some(DatapathAdvice { is_kernel, reason, no_room: datapath::no_room_for_tables(self, frames) })
    }

    fn ways_out(&self) -> Vec<WayOut> {
        ports::ways_out(&self.ports)
    }

    fn root_folders(&self) -> Vec<RootFolder> {
        let StoreConfig { durability, folder, memory, pins, .. } = &self.store;
        let is_kept = *durability.get_ref() != DurabilityConfig::Off;
        let of =
            |field, path: &Spanned<PathBuf>, kind| RootFolder { field, path: path.get_ref().clone(), kind };
        let kept = [
            of("store.folder", folder, RootFolderKind::State(kaido_store::FILES)),
            of("store.memory", memory, RootFolderKind::State(&[store::USAGE])),
        ];
        let pins = self.store.is_hitless().then(|| of("store.pins", pins, RootFolderKind::Bpf));
        kept.into_iter().filter(|_| is_kept).chain(pins).collect()
    }

    fn run(&self, context: FunctionContext) -> miette::Result<()> {
        run(self, context)
    }
}

/// Why a user plane could not start.
#[derive(Debug, Error, Diagnostic)]
enum UpfStartFault {
    /// A port could not be opened.
    #[error(transparent)]
    #[diagnostic(transparent)]
    Port(#[from] StartFault),
    /// The kernel did not take the datapath.
    #[error("node.datapath: {fault}")]
    #[diagnostic(help(
        "it needs root, or CAP_BPF and CAP_NET_ADMIN, and memory for the maps; or use datapath = \"engine\""
    ))]
    Datapath {
        /// What went wrong.
        fault: String,
    },
    /// What is to outlive the process cannot be pinned.
    #[error("store.pins: {fault}")]
    #[diagnostic(help(
        "`kaido prepare -c FILE`, as root, mounts a BPF file system there for the node's user; restart = \"cold\" in [store] does without"
    ))]
    Pins {
        /// What went wrong.
        fault: String,
    },
    /// There is not so much memory.
    #[error("node.sessions_max: {fault}")]
    #[diagnostic(help("set it to as many sessions as there are to be, or give the node more memory"))]
    Memory {
        /// What it would take, and what there is.
        fault: String,
    },
    /// The address of event exposure could not be bound.
    #[error("event_exposure.listen: cannot listen on {address}: {error}")]
    #[diagnostic(help("the address must be one of this host's, and nothing else may listen there"))]
    ListenToConsumers {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        error: std::io::Error,
    },
    /// A listening address could not be bound.
    #[error("pfcp.listen: cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        error: std::io::Error,
        /// How to mend it.
        #[help]
        help: String,
    },
}

/// Runs a user plane until it is told to stop.
///
/// # Errors
/// What kept it from starting, or that a worker died.
fn run(config: &UpfConfig, mut context: FunctionContext) -> miette::Result<()> {
    let pool = context.pool;
    let addresses = config.pfcp.listen.get_ref().iter().map(|listen| listen.0);
    let takeover = context.takeover.clone();
    let sockets =
        listen(addresses, |address| config.base.makes(address), &takeover).map_err(|(address, error)| {
            let help = "the address must be one of this host's, and no other PFCP node may use it".to_owned();
            UpfStartFault::Listen { address, error, help }
        })?;
    let exposure = exposure::listen(&config.event_exposure, &takeover)
        .map_err(|(address, error)| UpfStartFault::ListenToConsumers { address, error })?;
    check_memory(config, pool)?;
    let mut ports = Ports::open(config, pool, &context.takeover)?;
    let takes_over = context.takes_over();
    let of_before = takes_over.then(|| LeftBehind::of(&takeover, ports.choice().is_kernel())).transpose()?;
    context.freeze_before()?;
    let mut store = NodeStore::open(&config.store, takes_over)?;
    if !store.is_on() {
        takeover.refuse_function("store.durability = \"off\": another process would not know the sessions");
    }
    let mut management = std::mem::take(&mut context.management);
    if let Some(ExposureSocket { listener, .. }) = &exposure {
        let address = listener.local_addr().into_diagnostic()?.ip();
        management.push((listener.as_fd().try_clone_to_owned().into_diagnostic()?, address));
    }
    let control_guard = guard(&ports, &sockets, management)
        .into_diagnostic()
        .wrap_err("PFCP and metrics cannot be guarded from the data network")?;
    let settings = NodeSettings { recovery: Some(store.recovery_time), ..ports.settings(config)? };
    let of_kernel = ports.memory()?;
    let counts_in_memory = of_kernel.is_none() && store.is_on();
    let (node, events) = match (of_kernel, store.take_memory(counts_in_memory)?) {
        (Some(memory), _) => Node::beside_kernel(settings, memory),
        (None, Some(memory)) => Node::over(settings, memory),
        (None, None) => Node::new(settings),
    }
    .into_diagnostic()
    .wrap_err("node.sessions_max: no memory for so many sessions")?;
    let mut upf = Upf::new(node.clone(), events, ue_pools(config, &node)).into_diagnostic()?;
    if let Some(kernel) = ports.take_kernel(&node)? {
        upf.set_kernel(Box::new(kernel));
    }
    let _tables = ports.offer_tables(&takeover)?;
    let mut left = match of_before {
        Some(left) if counts_in_memory => left.with_usage(store.memory_of_before()?)?,
        Some(left) => left,
        None => left_behind(config, &store)?,
    };
    if !ports.choice().is_kernel() && !takes_over {
        left.end();
    }
    let mut restore = store.restore_counters(&mut upf, counts_in_memory, &mut left)?;
    // Where nobody forwards meanwhile, each session is forwarded as soon as it is in the table.
    let is_down = !takes_over && left.is_nothing();
    if let Some(restore) = restore.take_if(|_| !is_down) {
        store.restore_sessions(&mut upf, restore)?;
    }
    // Nothing is left to be made when packets wait for workers.
    let mut paths = paths(config, &ports, &node)?;
    let pins = ports.pin_tables(config, &store)?;
    context.take_ports(&mut ports.opened)?;
    if takes_over && counts_in_memory {
        std::mem::take(&mut left).add_rest(&mut upf);
    }
    let queues = ports.opened.take_queues();
    let no_path = || miette!("there are more workers than node.workers");
    let samples = config.ipfix.sample().map(PacketSamples::new);
    let next_path = || paths.pop().ok_or_else(no_path);
    let worker_set = context.start_sampled_workers(&config.base, queues, samples.as_ref(), next_path)?;
    let exits = ports.take_over(pins, left, &mut upf)?;
    store.take_place()?;
    ports.watch(&node.settings, worker_set.inboxes())?;
    if let Some(restore) = restore {
        store.restore_sessions(&mut upf, restore)?;
    }
    let flows = FlowExport::open(config, samples).into_diagnostic().wrap_err("ipfix.collectors")?;
    if flows.is_some() {
        upf.meter_flows();
    }
    let mut exposure = exposure
        .map(|socket| Exposure::start(&config.event_exposure, socket, context.notifier()))
        .transpose()
        .map_err(|why| miette!("{why}"))?;
    let (node_id, mut endpoint) = endpoint(config, upf, ports.features(), store.recovery_time)?;
    let procedures = ProcedureExport::start(&config.otlp, &node_id).map_err(|why| miette!("{why}"))?;
    if procedures.is_some() {
        endpoint.trace_procedures(config.otlp.tracing());
    }
    let monitor = procedures.as_ref().map(ProcedureExport::monitor);
    let subscriptions = store.subscriptions()?;
    let notifier = context.notifier().clone();
    store.start(&mut endpoint, counts_in_memory, move || notifier.notify())?;
    exposure::restore(exposure.as_mut(), &subscriptions, &mut endpoint);
    let board = ports.opened.board().clone();
    let workers = worker_set.counters();
    tracing::info!(
        node_id,
        frames = pool.frames(),
        pages = %pool.pages(),
        ports = board.count(),
        workers = workers.len(),
        "the user plane runs"
    );
    node.listen(context.notifier().clone());
    let choice = ports.choice().clone();
    let datapath = choice.chosen;
    let kernel = || choice.is_kernel().then(|| ports.kernel_counters());
    let sources =
        Sources { board: board.clone(), node: node.clone(), kernel: kernel(), procedures: monitor.clone() };
    let (metrics, scrapes) = UpfMetrics::new(sources, context.notifier().clone());
    warn_of_strangers(config);
    if config.gtpu.bind_gnb && datapath != Datapath::Engine {
        tracing::info!(
            "gtpu.bind_gnb: the uplink of bound sessions stays with the workers, as the kernel does not compare outer sources"
        );
    }
    if config.ipfix.sample().is_some() && datapath != Datapath::Engine {
        tracing::info!(
            "ipfix.sample: packets that the kernel forwards are not sampled; records of sessions count them"
        );
    }
    let control = context.run(Running {
        node_id: Some(node_id),
        datapath: datapath.name(),
        board: board.clone(),
        mirror: ports.opened.mirror(),
        workers,
        metrics: Box::new(metrics),
        heartbeat: Heartbeat::new(),
    });
    let mut control = Control {
        control,
        endpoint,
        lag: Lag::of(&sockets),
        memory: memory::Watch::new(Instant::now()),
        sockets,
        n4_tunnels: ports.n4_tunnels.clone(),
        control_guard,
        ports: board,
        choice: choice.clone(),
        kernel: kernel(),
        kernel_watch: exits.map(KernelWatch::new),
        flows,
        exposure,
        procedures,
        monitor,
        scrapes,
        store,
        held: HeldAnswers::default(),
        turn_began: Instant::now(),
        allow: config.pfcp.allow.clone(),
        unknown_peers: 0,
        waiting: UnknownPeers::default(),
        spoken_to: HashMap::new(),
        rooms: datagram_rooms(),
        buffer: datagram_buffer(),
    };
    control.run(&config.store, || worker_set.has_lost())?;
    if control.control.stage() == Stage::Leave {
        return control.control.hand_over(&mut ports.opened, worker_set);
    }
    worker_set.end(&mut ports.opened, control.control.is_stopping())
}

/// What a process before has left in the kernel, by pins.
fn left_behind(config: &UpfConfig, store: &NodeStore) -> Result<LeftBehind, UpfStartFault> {
    let Some(number) = store.number() else { return Ok(LeftBehind::default()) };
    LeftBehind::find(config.store.pins.get_ref(), number)
        .map_err(|error| UpfStartFault::Pins { fault: error.to_string() })
}

/// The packets' way, for each worker.
fn paths(config: &UpfConfig, ports: &Ports, node: &Arc<Node>) -> miette::Result<Vec<Box<dyn Function>>> {
    let kernel_return = Arc::new(ports.kernel_return());
    let path = |_| {
        let path = Path::new(node, ports.opened.routes().next_hops()).into_diagnostic()?;
        let path = path.with_kernel_return(kernel_return.clone());
        Ok(Box::new(match &ports.n4_tunnels {
            Some(link) => path.with_control_plane(link.clone()),
            None => path,
        }) as Box<dyn Function>)
    };
    (0..*config.base.node.workers.get_ref()).map(path).collect()
}

/// Guards the sockets of PFCP and of the metrics from the data network.
fn guard(
    ports: &Ports,
    sockets: &[Arc<UdpSocket>],
    management: Vec<(OwnedFd, IpAddr)>,
) -> std::io::Result<ControlGuard> {
    let mut guarded = Vec::new();
    for socket in sockets {
        guarded.push((socket.as_fd().try_clone_to_owned()?, socket.local_addr()?.ip()));
    }
    guarded.extend(management);
    ControlGuard::new(ports.devices(), guarded)
}

/// Whether the machine has memory for as many sessions as it may be asked for.
fn check_memory(config: &UpfConfig, pool: &FramePool) -> Result<(), UpfStartFault> {
    let frames = (pool.frames() * pool.frame_size().bytes()) as u64;
    let in_kernel = match config.base.node.datapath.get_ref() {
        // Where they are not sure to be, the choice looks for itself.
        Datapath::Engine | Datapath::Auto => 0,
        Datapath::Xdp | Datapath::Hybrid => offload::config(config).bytes(),
    };
    let sessions = *config.node.sessions_max.get_ref();
    match Memory::read().and_then(|memory| memory::too_many(sessions, frames + in_kernel, memory)) {
        Some(fault) => Err(UpfStartFault::Memory { fault }),
        None => Ok(()),
    }
}

/// PFCP has no authentication of its own.
fn warn_of_strangers(config: &UpfConfig) {
    let listens = config.pfcp.listen.get_ref().iter().any(|listen| !listen.0.ip().is_loopback());
    if config.pfcp.allow.is_empty() && listens {
        tracing::warn!(
            "pfcp.allow is empty: whoever reaches pfcp.listen may make sessions; name the prefixes of your SMFs there"
        );
    }
}

fn ue_pools(config: &UpfConfig, node: &Node) -> Vec<UePool> {
    let pools = config.ue_pools.iter().map(Spanned::get_ref);
    pools
        .filter_map(|pool| {
            let name = pool.network_instance.as_ref().map(|name| name.get_ref().as_str());
            Some(UePool {
                instance: node.settings.instance(name)?,
                ipv4: pool.ipv4.as_ref().and_then(|prefix| prefix.get_ref().ipv4()),
                ipv6: pool
                    .ipv6
                    .as_ref()
                    .and_then(|prefix| prefix.get_ref().ipv6())
                    .map(|(addr, len)| Ipv6Prefix::of(addr, len)),
            })
        })
        .collect()
}

/// The PFCP endpoint and its name.
fn endpoint(
    config: &UpfConfig,
    upf: Upf,
    features: Features,
    recovery: SystemTime,
) -> miette::Result<(String, Endpoint<Upf>)> {
    let listening = config.pfcp.listen.get_ref().iter().map(|listen| listen.0.ip());
    let addresses: Vec<IpAddr> = listening.collect();
    let first = addresses.first().copied().ok_or_else(|| miette!("pfcp.listen: no address"))?;
    let node_id = match &config.pfcp.node_id {
        Some(text) => text.get_ref().parse::<NodeId>().into_diagnostic().wrap_err("pfcp.node_id")?,
        None => first.into(),
    };
    let settings = kaido_pfcp::Config {
        node_id: node_id.clone(),
        ipv4: addresses.iter().find_map(|addr| if let IpAddr::V4(v4) = addr { Some(*v4) } else { None }),
        ipv6: addresses.iter().find_map(|addr| if let IpAddr::V6(v6) = addr { Some(*v6) } else { None }),
        recovery,
        features: Features {
            allocates_ue_addresses: upf.has_ue_pools(),
            allocates_f_teids: features.allocates_f_teids && config.pfcp.choose_f_teids,
            ..features
        },
        tells_load: config.pfcp.tell_load,
        control_planes: config.pfcp.control_planes.iter().map(|peer| peer.0).collect(),
        heartbeat_interval: config.pfcp.heartbeat_interval(),
        retransmission: config.pfcp.retransmission(),
        limits: kaido_pfcp::Limits::of_sessions(upf.node().settings.sessions_max),
        ..kaido_pfcp::Config::at(first)
    };
    Ok((node_id.to_string(), Endpoint::new(settings, upf, Instants::now())))
}
