//! `kaido run`: opens ports, starts workers, and turns the control loop until told to stop.

mod control;
#[cfg_attr(not(feature = "dpdk"), path = "no_dpdk.rs")]
mod dpdk;
mod fastpath;
mod lag;
mod metrics;
mod ports;
mod queues;
mod server;
mod trace;
mod workers;

use std::collections::HashMap;
use std::io::IsTerminal;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use kaido_engine::shared::cycles;
use kaido_engine::{FramePool, Worker, WorkerHandle, WorkerSettings};
use kaido_pfcp::{Endpoint, Features, Moment, NodeId, Retransmission};
use kaido_upf::control::{UePool, Upf};
use kaido_upf::node::Node;
use kaido_upf::path::Path;
use kaido_upf::rules::Ipv6Prefix;
use miette::{Diagnostic, IntoDiagnostic, WrapErr, miette};
use thiserror::Error;

use self::control::{Control, datagram_buffer, listen};
pub(crate) use self::metrics::table as metrics_table;
pub(crate) use self::ports::receive_queues;
pub(crate) use self::queues::Plan;

use self::lag::Lag;
use self::metrics::{Exporter, Sources};
use self::ports::Opened;
use self::server::Server;
use crate::config::{Config, Datapath, LogFormat, MetricsListen};

/// Why the node could not start.
#[derive(Debug, Error, Diagnostic)]
pub(crate) enum StartFault {
    /// A port could not be opened.
    #[error("port {port}: {fault}")]
    Port {
        /// Its name.
        port: String,
        /// What went wrong.
        fault: String,
        /// How to mend it.
        #[help]
        help: String,
    },
    /// The kernel did not take the datapath.
    #[error("node.datapath: {fault}")]
    #[diagnostic(help(
        "it needs root, or CAP_BPF and CAP_NET_ADMIN, and memory for the maps; or use datapath = \"engine\""
    ))]
    Datapath {
        /// What went wrong.
        fault: String,
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
    /// The address of the metrics could not be bound.
    #[error("metrics.listen: cannot listen on {address}: {error}")]
    #[diagnostic(help("the address must be one of this host's, and nobody else may listen at the port"))]
    Metrics {
        /// The address.
        address: SocketAddr,
        /// What the kernel said.
        error: std::io::Error,
    },
}

/// Runs a node until SIGTERM or SIGINT.
///
/// # Errors
/// What kept the node from starting, or that a worker died.
pub(crate) fn run(config: &Config) -> miette::Result<()> {
    start_log(config);
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        signal_hook::flag::register(signal, stop.clone()).into_diagnostic()?;
    }
    // Before anything of the network is touched: a second node is noticed here.
    let server = Server::open(&config.control.socket).map_err(|error| {
        miette!(
            help = "stop the other node, or give this one a control.socket of its own",
            "control.socket: cannot listen at {}: {error}",
            config.control.socket.display()
        )
    })?;
    let sockets =
        listen(config.pfcp.listen.get_ref().iter().map(|listen| listen.0)).map_err(|(address, error)| {
            let help = "the address must be one of this host's, and no other PFCP node may use it".to_owned();
            StartFault::Listen { address, error, help }
        })?;
    let scraped = scraped(config)?;
    let pool = FramePool::leak(*config.node.frames.get_ref() as usize)
        .into_diagnostic()
        .wrap_err("node.frames: no memory for the frame pool")?;
    let mut opened = Opened::open(config, pool)?;
    let settings = opened.settings(config)?;
    let (node, events) = opened
        .usage()?
        .map_or_else(|| Node::new(settings.clone()), |usage| Node::with_usage(settings.clone(), usage))
        .into_diagnostic()
        .wrap_err("node.sessions_max: no memory for so many sessions")?;
    let mut upf = Upf::new(node.clone(), events, ue_pools(config, &node)).into_diagnostic()?;
    if let Some(kernel) = opened.take_kernel(&node.settings)? {
        upf.set_kernel(Box::new(kernel));
    }
    let mut workers = Vec::new();
    for (number, queues) in (0u8..).zip(opened.take_queues()) {
        let path = Path::new(&node, opened.routes().next_hops()).into_diagnostic()?;
        let settings = worker_settings(config, number);
        workers.push(Worker::new(pool, queues, Box::new(path), settings));
    }
    let stop_workers = Arc::new(AtomicBool::new(false));
    let workers = spawn(workers, &stop_workers)?;
    opened.attach()?;
    let (node_id, endpoint) = endpoint(config, upf, opened.features())?;
    tracing::info!(
        node_id,
        frames = pool.frames(),
        pages = %pool.pages(),
        ports = opened.shown().len(),
        workers = workers.len(),
        "the user plane runs"
    );
    let datapath = *config.node.datapath.get_ref();
    let kernel = || (datapath != Datapath::Engine).then(|| opened.kernel_counters());
    let counters: Vec<_> = workers.iter().map(|worker| worker.counters().clone()).collect();
    let exporter = scraped.map(|endpoint| {
        let sources = Sources {
            node_id: node_id.clone(),
            datapath: datapath.name(),
            started: (SystemTime::now(), Instant::now()),
            started_cycles: cycles::now(),
            pool,
            node: node.clone(),
            ports: opened.shown(),
            kernel: kernel(),
            workers: counters.clone(),
        };
        Exporter::start(endpoint, sources).into_diagnostic().wrap_err("cannot start the metrics thread")
    });
    let (exporter, asked) = exporter.transpose()?.unzip();
    let mut control = Control {
        endpoint,
        lag: Lag::of(&sockets),
        sockets,
        server,
        node_id,
        started: Instant::now(),
        pool,
        ports: opened.shown(),
        datapath,
        kernel: kernel(),
        workers: counters,
        scrapes: asked,
        allow: config.pfcp.allow.clone(),
        strangers: 0,
        spoken_to: HashMap::new(),
        buffer: datagram_buffer(),
    };
    notify(&[sd_notify::NotifyState::Ready]);
    control.run(&stop, || workers.iter().any(WorkerHandle::is_finished));
    notify(&[sd_notify::NotifyState::Stopping]);
    if let Some(exporter) = exporter {
        // A scrape that waits for the control loop is told that there is none any more.
        control.scrapes = None;
        exporter.stop();
    }
    let died = !stop.load(Ordering::Relaxed);
    // Programs first, so that the kernel has the packets that would find no one.
    opened.detach();
    stop_workers.store(true, Ordering::Relaxed);
    let panicked = workers.into_iter().map(WorkerHandle::join).filter(|orderly| !orderly).count();
    tracing::info!("the user plane has stopped");
    if died || panicked > 0 {
        return Err(miette!(
            help = "the log above says why; please report it",
            "a worker ended unexpectedly"
        ));
    }
    Ok(())
}

/// The socket at which the node is scraped, if it is to be.
fn scraped(config: &Config) -> Result<Option<kaido_metrics::Endpoint>, StartFault> {
    let Some(MetricsListen(address)) = config.metrics.listen else { return Ok(None) };
    let listening = Exporter::listen(address);
    listening.map(Some).map_err(|error| StartFault::Metrics { address, error })
}

fn start_log(config: &Config) {
    // The configuration was checked: a filter that does not parse does not come here.
    let filter = tracing_subscriber::EnvFilter::try_new(config.log.level.get_ref()).unwrap_or_default();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let started = match config.log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    if started.is_err() {
        eprintln!("a log was started before; its settings stay");
    }
}

/// Tells a service manager, where there is one.
fn notify(state: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager was not told");
    }
}

fn worker_settings(config: &Config, number: u8) -> WorkerSettings {
    WorkerSettings {
        cpu: config.node.cpus.get(usize::from(number)).copied(),
        sample_batches: config.metrics.sampling(),
        spin_rounds: if config.node.busy_poll { None } else { WorkerSettings::default().spin_rounds },
        ..WorkerSettings::default()
    }
}

fn spawn(workers: Vec<Worker>, stop: &Arc<AtomicBool>) -> miette::Result<Vec<WorkerHandle>> {
    let named = workers.into_iter().enumerate();
    named
        .map(|(number, worker)| worker.spawn(format!("worker-{number}"), stop.clone()))
        .collect::<Result<_, _>>()
        .into_diagnostic()
        .wrap_err("cannot start a worker thread")
}

fn ue_pools(config: &Config, node: &Node) -> Vec<UePool> {
    let pools = config.ue_pools.iter().map(toml::Spanned::get_ref);
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
fn endpoint(config: &Config, upf: Upf, features: Features) -> miette::Result<(String, Endpoint<Upf>)> {
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
        recovery: SystemTime::now(),
        features: Features { allocates_ue_addresses: upf.has_ue_pools(), ..features },
        control_planes: config.pfcp.control_planes.iter().map(|peer| peer.0).collect(),
        heartbeat_interval: Duration::from_secs((*config.pfcp.heartbeat_interval_s.get_ref()).into()),
        retransmission: Retransmission {
            t1: Duration::from_millis((*config.pfcp.t1_ms.get_ref()).into()),
            n1: (*config.pfcp.n1.get_ref()).into(),
        },
        ..kaido_pfcp::Config::at(first)
    };
    Ok((node_id.to_string(), Endpoint::new(settings, upf, Moment::now())))
}
