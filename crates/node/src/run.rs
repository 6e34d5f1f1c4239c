//! `kaido run`: opens what every node has, starts the functions, and answers at the control socket until told to stop.
//!
//! A function runs in a thread of its own, as [`function`](crate::function) says.

use std::io::ErrorKind;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use kaido_engine::FramePool;
use miette::{IntoDiagnostic, WrapErr, miette};
use rustix::event::{EventfdFlags, eventfd};

use crate::board::Health;
use crate::config::{Base, DEFAULT_SOCKET, MetricsListen};
use crate::control::{self, Control, FunctionPeer};
use crate::file::Config;
use crate::function::{ConfiguredFunction, FunctionContext, Running};
use crate::log::{log_stop, notify, start_log};
use crate::metrics::{Exporter, Figures, FunctionFigures};
use crate::questions::{QuestionSender, questions};
use crate::server::Server;
use crate::signals::stop_flag;
use crate::start_fault::StartFault;
use crate::takeover::Takeover;

/// Runs a node until SIGTERM or SIGINT.
///
/// # Errors
/// What kept the node from starting, or that a worker died.
pub fn run(config: &Config) -> miette::Result<()> {
    start_log(&config.base);
    let ended = Node::open(config)?.run(&config.functions);
    // Nothing is left but to return the memory: whoever reads this finds no thread, socket or program of the node's.
    if ended.is_ok() {
        tracing::info!("the node has stopped");
    }
    ended
}

/// What there is before any function.
struct Node {
    /// Set when the node is to stop.
    stop: Arc<AtomicBool>,
    server: Server,
    /// Where the node is scraped, if it is to be.
    scraped: Option<kaido_metrics::Endpoint>,
    pool: &'static FramePool,
    takeover: Arc<Takeover>,
}

/// A function that was started.
struct Started<'s> {
    name: &'static str,
    first_worker: u8,
    questions: QuestionSender,
    running: Receiver<Running>,
    thread: ScopedJoinHandle<'s, miette::Result<()>>,
}

impl Node {
    fn open(config: &Config) -> miette::Result<Self> {
        let base = &config.base;
        let stop = stop_flag()?;
        // Before anything of the network is touched: a second node is noticed here.
        make_default_folder(&base.control.socket);
        let server = Server::open(&base.control.socket).map_err(|error| {
            let socket = base.control.socket.display();
            miette!(help = no_socket(error.kind()), "control.socket: cannot listen at {socket}: {error}")
        })?;
        let scraped = scraped(base)?;
        let takeover = Arc::<Takeover>::default();
        let pool = crate::frames::open(config, &takeover)?;
        Ok(Self { stop, server, scraped, pool, takeover })
    }

    /// Starts the functions, each in a thread, and answers for them until all have ended.
    fn run(self, functions: &[Box<dyn ConfiguredFunction>]) -> miette::Result<()> {
        // Written to by a function that ends.
        let ended = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).into_diagnostic()?;
        std::thread::scope(|scope| {
            let stop = self.stop.clone();
            let mut started = Vec::new();
            let mut first_worker = 0;
            for function in functions {
                match self.start(scope, &**function, first_worker, &ended) {
                    Ok(function) => started.push(function),
                    Err(error) => return end(started, &stop, Err(error)),
                }
                first_worker = first_worker.saturating_add(*function.base().node.workers.get_ref());
            }
            let (served, started) = self.serve(started, &ended);
            end(started, &stop, served)
        })
    }

    /// Starts a function, whose first worker has that number in the node.
    fn start<'s>(
        &self,
        scope: &'s Scope<'s, '_>,
        function: &'s dyn ConfiguredFunction,
        first_worker: u8,
        ended: &'s OwnedFd,
    ) -> miette::Result<Started<'s>> {
        let name = function.schema().name;
        let (sender, queue) = questions().into_diagnostic()?;
        let (tell, running) = channel();
        let scraped = match &self.scraped {
            Some(endpoint) => {
                let socket = endpoint.as_fd().try_clone_to_owned().into_diagnostic()?;
                Some((socket, endpoint.address().into_diagnostic()?.ip()))
            }
            None => None,
        };
        let context = FunctionContext {
            pool: self.pool,
            takeover: self.takeover.clone(),
            stop: self.stop.clone(),
            scraped,
            first_worker,
            questions: queue,
            running: tell,
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, move || {
            let result = function.run(context);
            // It fails only after 2^64 - 2 functions that have ended.
            let _ = rustix::io::write(ended, &1u64.to_ne_bytes());
            result
        });
        let thread = thread.into_diagnostic().wrap_err("cannot start the thread of a function")?;
        Ok(Started { name, first_worker, questions: sender, running, thread })
    }

    /// Waits until all functions run, and answers for them until one has ended.
    fn serve<'s>(self, started: Vec<Started<'s>>, ended: &OwnedFd) -> (miette::Result<()>, Vec<Started<'s>>) {
        let mut running = Vec::new();
        for function in &started {
            match wait_for(function, ended) {
                Some(found) => running.push(found),
                // What kept it is what its thread returns.
                None => return (Ok(()), started),
            }
        }
        let node_id = running.iter().find_map(|running| running.node_id.clone()).unwrap_or_else(host_name);
        let health = Health(running.iter().map(|of| (of.board.clone(), of.heartbeat.clone())).collect());
        let peers = started.iter().zip(&running);
        let peers =
            peers.map(|(of, running)| FunctionPeer::new(of.name, running, of.questions.clone())).collect();
        let of_functions = started.iter().zip(running);
        let of_functions =
            of_functions.map(|(of, running)| FunctionFigures::new(of.name, of.first_worker, running));
        let figures = Figures::new(node_id.clone(), self.pool, of_functions.collect());
        let exporter = self.scraped.map(|endpoint| Exporter::start(endpoint, figures, health)).transpose();
        let exporter = match exporter.into_diagnostic().wrap_err("cannot start the metrics thread") {
            Ok(exporter) => exporter,
            Err(error) => return (Err(error), started),
        };
        let mut control = Control {
            server: self.server,
            node_id,
            started: Instant::now(),
            pool: self.pool,
            functions: peers,
        };
        notify(&[sd_notify::NotifyState::Ready]);
        while !self.stop.load(Ordering::Relaxed) && started.iter().all(|of| !of.thread.is_finished()) {
            control.turn(ended);
        }
        log_stop();
        notify(&[sd_notify::NotifyState::Stopping]);
        self.stop.store(true, Ordering::Relaxed);
        while started.iter().any(|of| !of.thread.is_finished()) {
            started.iter().for_each(|of| of.questions.notify());
            control.turn(ended);
        }
        if let Some(exporter) = exporter {
            exporter.stop();
        }
        (Ok(()), started)
    }
}

/// What a function says once it runs; `None` where it has ended before.
fn wait_for(function: &Started<'_>, ended: &OwnedFd) -> Option<Running> {
    loop {
        match function.running.try_recv() {
            Ok(running) => return Some(running),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) => {}
        }
        control::sleep_until(ended);
    }
}

/// Ends the functions: what went wrong first, if anything did.
fn end(started: Vec<Started<'_>>, stop: &AtomicBool, served: miette::Result<()>) -> miette::Result<()> {
    stop.store(true, Ordering::Relaxed);
    started.into_iter().fold(served, |result, function| {
        function.questions.notify();
        let panicked = |_| Err(miette!(help = "please report it", "function {} has panicked", function.name));
        result.and(function.thread.join().unwrap_or_else(panicked))
    })
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
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

/// The socket at which the node is scraped, if it is to be.
fn scraped(base: &Base) -> Result<Option<kaido_metrics::Endpoint>, StartFault> {
    let Some(MetricsListen(address)) = base.metrics.listen else { return Ok(None) };
    let listening = Exporter::listen(address);
    listening.map(Some).map_err(|error| StartFault::Metrics { address, error })
}
