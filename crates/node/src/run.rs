//! `kaido run`: opens what every node has, starts the functions, and answers at the control socket until told to stop.
//!
//! A function runs in a thread of its own, as [`function`](crate::function) says.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Instant;

use kaido_engine::{FramePool, Notifier};
use kaido_metrics::Format;
use miette::{IntoDiagnostic, WrapErr, miette};
use rustix::event::{EventfdFlags, eventfd};

use crate::accounts;
use crate::api::{Asked, Reply};
use crate::board::Health;
use crate::config::{ControlConfig, DEFAULT_SOCKET, SocketAddress};
use crate::control::{self, Control, FunctionPeer};
use crate::file::Config;
use crate::function::{ConfiguredFunction, FunctionContext, Running};
use crate::given::GivenSockets;
use crate::http::{
    ApiSocket, Asking, ControlSocket, Door, Pending, Server, Sources, TcpSockets, asking, openapi,
};
use crate::log::{log_stop, notify, start_log};
use crate::metrics::{Exporter, Figures, FunctionFigures};
use crate::questions::{QuestionSender, questions};
use crate::reload::Reloader;
use crate::sandbox;
use crate::signals::{hangup_flag, stop_flag};
use crate::start_fault::StartFault;
use crate::takeover::{SocketKind, Takeover};
use crate::upgrade::{Before, FAILED_UPGRADE, HandOver, Leaving, TAKES_OVER, Upgrade};

/// Runs a node until SIGTERM or SIGINT.
///
/// # Errors
/// What kept the node from starting, or that a worker died.
pub(crate) fn run(config: &Config, reloader: Reloader<'_>) -> miette::Result<()> {
    let given = Arc::new(GivenSockets::take().map_err(|error| miette!("{error}"))?);
    // What the node writes names subscribers. Sockets have their own modes.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    start_log(&config.base);
    let is_restricted = config.functions.iter().all(|function| function.base().is_restricted());
    if is_restricted {
        sandbox::enter();
    }
    let stop = stop_flag()?;
    let before = Before::find(config.functions.len(), &stop)?.map(Arc::new);
    let ended = Node::open(config, stop, before.clone(), given.clone(), is_restricted)
        .and_then(|node| node.run(&config.functions, reloader));
    if let (Some(before), Err(why)) = (before, &ended) {
        before.fail(why);
    }
    let ended = ended.and_then(|next| match next {
        AfterRun::Ends => Ok(()),
        AfterRun::Restart(why) => Err(begin_anew(&why, &given)),
    });
    // Nothing is left but to return the memory: whoever reads this finds no thread, socket or program of the node's.
    if ended.is_ok() {
        tracing::info!("the node has stopped");
    }
    ended
}

/// What becomes of a process whose functions have ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum AfterRun {
    Ends,
    /// It begins anew, as no other process has taken over.
    Restart(String),
}

/// Begins anew, with what is in the store; returns only where that cannot be.
fn begin_anew(why: &str, given: &GivenSockets) -> miette::Report {
    let sockets = match given.for_next() {
        Ok(sockets) => sockets,
        Err(error) => return miette!("the program cannot begin anew: {error}"),
    };
    let arguments = std::env::args_os().skip(1);
    let mut program = Command::new("/proc/self/exe");
    // It may have taken over itself before.
    program
        .args(arguments)
        .env_remove(TAKES_OVER)
        .env(FAILED_UPGRADE, why)
        .envs(sandbox::for_next())
        .envs(sockets);
    let error = program.exec();
    miette!("the program cannot begin anew: {error}")
}

/// What there is before any function.
struct Node {
    /// Set when the node is to stop.
    stop: Arc<AtomicBool>,
    control: ControlSocket,
    /// Where that listens.
    socket: PathBuf,
    sockets: TcpSockets,
    pool: &'static FramePool,
    takeover: Arc<Takeover>,
    /// What the next process gets of the node's own.
    _kept: Vec<Arc<OwnedFd>>,
    /// The node that this one takes over from.
    before: Option<Arc<Before>>,
    /// The service manager's sockets.
    given: Arc<GivenSockets>,
    /// Threads give up what they have no use for.
    is_restricted: bool,
}

/// A function that was started.
struct Started<'s> {
    name: &'static str,
    first_worker: u8,
    questions: QuestionSender,
    running: Receiver<Running>,
    thread: ScopedJoinHandle<'s, miette::Result<()>>,
    hand_over: HandOver,
}

impl Node {
    fn open(
        config: &Config,
        stop: Arc<AtomicBool>,
        before: Option<Arc<Before>>,
        given: Arc<GivenSockets>,
        is_restricted: bool,
    ) -> miette::Result<Self> {
        let base = &config.base;
        let alone = || Arc::new(Takeover::with_given(given.clone()));
        let takeover = before.as_ref().map_or_else(alone, |before| before.takeover().clone());
        // Before anything of the network is touched: a second node is noticed here.
        let control = listen(&base.control, &takeover)?;
        let mut kept = vec![keep(&takeover, &control_name(&base.control.socket), control.as_fd())?];
        let mut tcp = |field, address: SocketAddr| -> miette::Result<TcpListener> {
            let name = format!("socket of {field} at {address}");
            let listener = match takeover.socket(&name, SocketKind::Stream, address)? {
                Some(waiting) => TcpListener::from(waiting),
                None => TcpListener::bind(address).map_err(|error| StartFault::Listen {
                    field,
                    address,
                    error,
                })?,
            };
            kept.push(keep(&takeover, &name, listener.as_fd())?);
            Ok(listener)
        };
        let metrics =
            base.metrics.listen.map(|SocketAddress(address)| tcp("metrics.listen", address)).transpose()?;
        let listen = base.api.listen.as_ref().map(|listen| listen.get_ref().0);
        let api = listen.map(|address| tcp("api.listen", address)).transpose()?;
        let api = api.map(|listener| ApiSocket::open(listener, &base.api)).transpose();
        let sockets = TcpSockets { metrics, api: api.map_err(|why| miette!("{why}"))? };
        let pool = crate::frames::open(config, &takeover)?;
        let socket = base.control.socket.clone();
        Ok(Self { stop, control, socket, sockets, pool, takeover, _kept: kept, before, given, is_restricted })
    }

    /// Starts the functions, each in a thread, and answers for them until all have ended.
    fn run(
        self,
        functions: &[Box<dyn ConfiguredFunction>],
        reloader: Reloader<'_>,
    ) -> miette::Result<AfterRun> {
        // Written to by a function that ends.
        let ended = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).into_diagnostic()?;
        std::thread::scope(|scope| {
            let stop = self.stop.clone();
            let mut started = Vec::new();
            let mut first_worker = 0;
            for function in functions {
                match self.start(scope, &**function, first_worker, &ended) {
                    Ok(function) => started.push(function),
                    Err(error) => return end(started, &stop, Err(error)).map(|()| AfterRun::Ends),
                }
                first_worker = first_worker.saturating_add(*function.base().node.workers.get_ref());
            }
            let (served, started) = self.serve(started, &ended, reloader);
            let (served, next) = served.map_or_else(|why| (Err(why), AfterRun::Ends), |next| (Ok(()), next));
            end(started, &stop, served).map(|()| next)
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
        let mut management = Vec::new();
        for listener in self.sockets.listeners() {
            let socket = listener.as_fd().try_clone_to_owned().into_diagnostic()?;
            management.push((socket, listener.local_addr().into_diagnostic()?.ip()));
        }
        let hand_over = HandOver::new(queue.notifier().clone());
        let context = FunctionContext {
            before: self.before.clone(),
            is_frozen: false,
            hand_over: hand_over.clone(),
            pool: self.pool,
            takeover: self.takeover.clone(),
            stop: self.stop.clone(),
            management,
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
        Ok(Started { name, first_worker, questions: sender, running, thread, hand_over })
    }

    /// Waits until all functions run, and answers for them until one has ended.
    fn serve<'s>(
        self,
        started: Vec<Started<'s>>,
        ended: &OwnedFd,
        reloader: Reloader<'_>,
    ) -> (miette::Result<AfterRun>, Vec<Started<'s>>) {
        let mut running = Vec::new();
        for function in &started {
            match wait_for(function, ended) {
                Some(found) => running.push(found),
                // What kept it is what its thread returns.
                None => return (Ok(AfterRun::Ends), started),
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
        let figures = Figures::new(node_id.clone(), self.pool, of_functions.collect(), reloader.counts());
        let hung_up = match hangup_flag() {
            Ok(flag) => flag,
            Err(error) => return (Err(error), started),
        };
        let hand_overs = started.iter().map(|of| of.hand_over.clone()).collect();
        let door = Door::new();
        let leaving = Leaving::new(self.takeover.clone(), hand_overs, door.clone(), self.stop.clone());
        let routes = openapi::routes(
            reloader.functions().filter(|of| started.iter().any(|its| its.name == of.name())),
        );
        let names = started.iter().map(|of| of.name).collect();
        let mut socket = self.control;
        let sources = |node, metrics| Sources {
            node,
            metrics,
            health,
            leaving: leaving.clone(),
            routes,
            functions: names,
        };
        let http = Http::start(&socket, self.sockets, figures, sources, door, self.is_restricted);
        let Http { server, exporter, questions, notifier } =
            match http.into_diagnostic().wrap_err("cannot serve HTTP") {
                Ok(http) => http,
                Err(error) => return (Err(error), started),
            };
        let mut control = Control {
            questions,
            notifier,
            node_id,
            started: Instant::now(),
            pool: self.pool,
            functions: peers,
            leaving: leaving.clone(),
            reloader,
            hung_up,
        };
        for address in self.given.unused() {
            tracing::warn!(%address, "the service manager has a socket there, and no setting asks for it");
        }
        match &self.before {
            // From here on the other process ends: it tells the service manager.
            Some(before) => {
                before.run();
                socket.take(&self.socket);
            }
            None => notify(&[sd_notify::NotifyState::Ready]),
        }
        while !self.stop.load(Ordering::Relaxed) && started.iter().all(|of| !of.thread.is_finished()) {
            control.turn(ended);
        }
        match leaving.state() {
            Upgrade::Done { pid } => {
                notify(&[sd_notify::NotifyState::MainPid(pid)]);
                socket.leave();
            }
            _ => {
                log_stop();
                notify(&[sd_notify::NotifyState::Stopping]);
            }
        }
        self.stop.store(true, Ordering::Relaxed);
        while started.iter().any(|of| !of.thread.is_finished()) {
            started.iter().for_each(|of| of.questions.notify());
            control.turn(ended);
        }
        server.stop();
        exporter.join();
        let next = match leaving.state() {
            Upgrade::Restart(why) => AfterRun::Restart(why),
            _ => AfterRun::Ends,
        };
        (Ok(next), started)
    }
}

/// The threads that serve HTTP and render metrics, and the node's end of what is asked.
struct Http {
    server: Server,
    exporter: Exporter,
    questions: Receiver<Pending<Asked, Reply>>,
    notifier: Arc<Notifier>,
}

impl Http {
    fn start(
        socket: &ControlSocket,
        sockets: TcpSockets,
        figures: Figures,
        sources: impl FnOnce(Asking<Asked, Reply>, Asking<Format, Option<String>>) -> Sources,
        door: Door,
        is_restricted: bool,
    ) -> std::io::Result<Self> {
        let notifier = Notifier::new()?;
        let (node, questions) = asking(Some(notifier.clone()));
        let (metrics, scrapes) = asking(None);
        let server = Server::start(socket.listener(), sockets, sources(node, metrics), door, is_restricted)?;
        let exporter = Exporter::start(figures, scrapes)?;
        Ok(Self { server, exporter, questions, notifier })
    }
}

/// The control socket: that of the node before, or a new one.
fn listen(control: &ControlConfig, takeover: &Takeover) -> miette::Result<ControlSocket> {
    let path = &*control.socket;
    let group = control.group.as_deref().map(|name| accounts::group("control.group", name)).transpose()?;
    let waiting = takeover.descriptor(&control_name(path))?;
    make_default_folder(path);
    let opened = match waiting {
        Some(listener) => ControlSocket::adopt(listener),
        None => ControlSocket::open(path, group),
    };
    opened.map_err(|error| {
        let socket = path.display();
        miette!(help = no_socket(error.kind()), "control.socket: cannot listen at {socket}: {error}")
    })
}

fn control_name(path: &Path) -> String {
    format!("control socket {}", path.display())
}

/// Offers a descriptor to the next process, for as long as what is returned lives.
fn keep(takeover: &Takeover, name: &str, fd: BorrowedFd<'_>) -> miette::Result<Arc<OwnedFd>> {
    let kept = Arc::new(fd.try_clone_to_owned().into_diagnostic()?);
    takeover.keep(name, &kept);
    Ok(kept)
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
