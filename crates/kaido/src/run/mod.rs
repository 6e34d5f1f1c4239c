//! `kaido run`: opens ports, starts workers, and turns the control loop until told to stop.
//!
//! What every function has is here: the control socket, the metrics, ports, workers. What a function does with them is in
//! its own module, which [`run`] chooses.

mod binder;
mod board;
mod control;
#[cfg_attr(not(feature = "dpdk"), path = "no_dpdk.rs")]
mod dpdk;
mod gre;
mod link_monitor;
mod metrics;
mod ndn;
mod port_trace;
mod ports;
mod queues;
mod server;
mod shown;
mod trunk;
mod upf;
mod workers;

use std::io::{ErrorKind, IsTerminal};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kaido_engine::tracer::{PortRecord, Tracer};
use kaido_engine::{FramePool, Function, Inbox, Worker, WorkerCounters, WorkerHandle, WorkerSettings};
use miette::{Diagnostic, IntoDiagnostic, WrapErr, miette};
use thiserror::Error;

pub(crate) use self::metrics::table as metrics_table;
pub(crate) use self::ports::receive_queues;
pub(crate) use self::queues::Plan;
pub(crate) use self::upf::no_room_for_tables;

use self::board::Health;
use self::metrics::{Exporter, MetricsSource};
use self::ports::{OpenPorts, Program, Queue};
use self::server::Server;
use crate::config::{Base, Config, DEFAULT_SOCKET, LogFormat, MetricsListen};
use crate::signals::stop_flag;

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
    /// There is not so much memory.
    #[error("node.sessions_max: {fault}")]
    #[diagnostic(help("set it to as many sessions as there are to be, or give the node more memory"))]
    Memory {
        /// What it would take, and what there is.
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
    start_log(config.base());
    let context = NodeContext::lay(config)?;
    let ended = match config {
        Config::Upf(config) => upf::run(config, context),
        Config::Gre(config) => gre::run(config, context),
        Config::Ndn(config) => ndn::run(config, context),
    };
    // Nothing is left but to return the memory: whoever reads this finds no thread, socket or program of the node's.
    if ended.is_ok() {
        tracing::info!("the node has stopped");
    }
    ended
}

/// Says why the node stops.
fn log_stop() {
    match crate::signals::received() {
        Some("SIGHUP") => tracing::warn!(
            "SIGHUP: the node stops in order; it cannot reload its configuration, start it again with the new one"
        ),
        Some(signal) => tracing::info!("{signal}: the node stops"),
        None => {}
    }
}

/// What there is before any function.
struct NodeContext {
    /// Set when the node is to stop.
    stop: Arc<AtomicBool>,
    server: Server,
    /// Where the node is scraped, if it is to be.
    scraped: Option<kaido_metrics::Endpoint>,
    pool: &'static FramePool,
}

impl NodeContext {
    fn lay(config: &Config) -> miette::Result<Self> {
        let base = config.base();
        let stop = stop_flag()?;
        // Before anything of the network is touched: a second node is noticed here.
        make_default_folder(&base.control.socket);
        let server = Server::open(&base.control.socket).map_err(|error| {
            let socket = base.control.socket.display();
            miette!(help = no_socket(error.kind()), "control.socket: cannot listen at {socket}: {error}")
        })?;
        let scraped = scraped(base)?;
        let pool = FramePool::leak_of(crate::frames::size(config), *base.node.frames.get_ref() as usize)
            .into_diagnostic()
            .wrap_err("node.frames: no memory for the frame pool")?;
        Ok(Self { stop, server, scraped, pool })
    }
}

/// Makes the folder of the default control socket, which a service manager would have made. Another path's is its owner's.
fn make_default_folder(socket: &Path) {
    if socket == Path::new(DEFAULT_SOCKET)
        && let Some(folder) = socket.parent()
    {
        // Where it cannot be made, the socket cannot be bound, which is said.
        let _ = std::fs::create_dir(folder);
    }
}

/// How to mend that there is no control socket.
fn no_socket(error: ErrorKind) -> &'static str {
    match error {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "run the node as root, or set control.socket to a path in a folder in which this user may write"
        }
        ErrorKind::NotFound | ErrorKind::NotADirectory => {
            "make its folder, or set control.socket to another path"
        }
        ErrorKind::AlreadyExists => {
            "remove the file if nobody needs it, or set control.socket to another path"
        }
        _ => "stop the other node, or give this one a control.socket of its own",
    }
}

/// The workers of a node.
struct WorkerSet {
    stop: Arc<AtomicBool>,
    tracer: Arc<Tracer<PortRecord>>,
    workers: Vec<WorkerHandle>,
}

impl WorkerSet {
    /// Starts a worker for each set of queues, with a function of its own.
    fn start(
        base: &Base,
        pool: &'static FramePool,
        queues: Vec<Vec<Queue>>,
        mut function: impl FnMut() -> miette::Result<Box<dyn Function>>,
    ) -> miette::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let tracer = Arc::<Tracer<PortRecord>>::default();
        let made = (0u8..).zip(queues).map(|(number, queues)| {
            let worker = Worker::new(pool, queues, function()?, worker_settings(base, number));
            Ok(worker.with_tracer(tracer.clone()))
        });
        let made: Vec<Worker> = made.collect::<miette::Result<_>>()?;
        let named = made.into_iter().enumerate();
        let workers = named
            .map(|(number, worker)| worker.spawn(format!("worker-{number}"), stop.clone()))
            .collect::<Result<_, _>>()
            .into_diagnostic()
            .wrap_err("cannot start a worker thread")?;
        Ok(Self { stop, tracer, workers })
    }

    fn counters(&self) -> Vec<Arc<WorkerCounters>> {
        self.workers.iter().map(|worker| worker.counters().clone()).collect()
    }

    /// Where the workers write down what becomes of the packets of ports.
    fn tracer(&self) -> Arc<Tracer<PortRecord>> {
        self.tracer.clone()
    }

    /// Where the workers hear of changes of their ports.
    fn inboxes(&self) -> Vec<Arc<Inbox>> {
        self.workers.iter().map(|worker| worker.inbox().clone()).collect()
    }

    /// Whether a worker has ended by itself.
    fn has_lost(&self) -> bool {
        self.workers.iter().any(WorkerHandle::is_finished)
    }

    /// Takes the programs off and then stops the workers, so that the kernel has the packets that would find no one.
    /// `asked` says whether the node was told to stop.
    fn end<P: Program + 'static>(self, opened: &mut OpenPorts<P>, asked: &AtomicBool) -> miette::Result<()> {
        let died = !asked.load(Ordering::Relaxed);
        opened.detach();
        self.stop.store(true, Ordering::Relaxed);
        let panicked = self.workers.into_iter().map(WorkerHandle::join).filter(|orderly| !orderly).count();
        if died || panicked > 0 {
            return Err(miette!(
                help = "the log above says why; please report it",
                "a worker ended unexpectedly"
            ));
        }
        Ok(())
    }
}

/// Starts the thread that is scraped.
fn export(
    endpoint: kaido_metrics::Endpoint,
    source: impl MetricsSource + 'static,
    health: Health,
) -> miette::Result<Exporter> {
    Exporter::start(endpoint, Box::new(source), health)
        .into_diagnostic()
        .wrap_err("cannot start the metrics thread")
}

/// The socket at which the node is scraped, if it is to be.
fn scraped(base: &Base) -> Result<Option<kaido_metrics::Endpoint>, StartFault> {
    let Some(MetricsListen(address)) = base.metrics.listen else { return Ok(None) };
    let listening = Exporter::listen(address);
    listening.map(Some).map_err(|error| StartFault::Metrics { address, error })
}

fn start_log(base: &Base) {
    // The configuration was checked: a filter that does not parse does not come here.
    let filter = tracing_subscriber::EnvFilter::try_new(base.log.level.get_ref()).unwrap_or_default();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_coloured())
        .with_writer(std::io::stderr);
    let started = match base.log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    if started.is_err() {
        eprintln!("a log was started before; its settings stay");
    }
}

/// Whether the log may have colours: on a terminal, unless `NO_COLOR` is set (no-color.org).
fn is_coloured() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Tells a service manager, where there is one.
fn notify(state: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager was not told");
    }
}

fn worker_settings(base: &Base, number: u8) -> WorkerSettings {
    WorkerSettings {
        cpu: base.node.cpus.get_ref().get(usize::from(number)).copied(),
        sample_batches: base.metrics.sampling(),
        spin_rounds: if base.node.busy_poll { None } else { WorkerSettings::default().spin_rounds },
        ..WorkerSettings::default()
    }
}
