//! What the node itself answers: what all functions have is answered here, the rest by the functions.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Instant;

use kaido_engine::{FramePool, Notifier, WorkerCounters};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Map, Value};

use super::board::PortBoard;
use super::function::Running;
use super::http::Pending;
use super::questions::{PATIENCE, QuestionSender};
use super::route_mirror::{Page, RouteMirror, state_of};
use super::upgrade::Leaving;
use super::view::{Answer, FunctionStatus};
use super::{log, shown, workers};
use crate::api::{
    self, Asked, BeginTrace, BeginUpgrade, Drops, EndTrace, GetLog, GetNode, GetUpgrade, IpRoutes,
    LastReload, ListDrops, ListNeighbours, ListPorts, ListRoutes, ListWorkers, LogLevel, Neighbours, Ports,
    Problem, ReadTrace, Reload, Reloaded, ReloadedField, Reply, SetLog, TraceBegun, TraceOf, TraceRead,
    Workers,
};
use crate::config::is_log_filter;
use crate::reload::Reloader;

/// Longest wait for a question: how soon the end of a function is noticed.
const PACE_NS: i64 = 50_000_000;

/// A running function, as the control socket knows it.
pub(crate) struct FunctionPeer {
    /// Its name in the file.
    pub name: &'static str,
    pub board: PortBoard,
    pub mirror: RouteMirror,
    pub workers: Vec<Arc<WorkerCounters>>,
    pub questions: QuestionSender,
}

impl FunctionPeer {
    /// A function that runs.
    pub(crate) fn new(name: &'static str, running: &Running, questions: QuestionSender) -> Self {
        let Running { board, mirror, workers, .. } = running;
        Self { name, board: board.clone(), mirror: mirror.clone(), workers: workers.clone(), questions }
    }

    /// What it says of itself.
    fn status(&self) -> Result<FunctionStatus, Problem> {
        let by_workers = (0..self.board.count()).map(|at| shown::totals(&self.workers, at)).collect();
        self.ask(move |view| view.status(by_workers)).map_err(Problem::unavailable)
    }

    /// Asks, where an answer may be a refusal.
    fn ask_for<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn super::view::FunctionView) -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        self.ask(question).map_err(Problem::unavailable)?
    }

    pub(crate) fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn super::view::FunctionView) -> T + Send + 'static,
    ) -> Result<T, String> {
        self.questions.ask(question).ok_or_else(|| self.silent())
    }

    /// Its answer to a question, turn by turn of its control loop; `None` where it is none of its own.
    fn answer(&self, asked: &Asked) -> Result<Option<Reply>, Problem> {
        let began = Instant::now();
        let mut so_far = None;
        while began.elapsed() < PATIENCE {
            let asked = asked.clone();
            let part = so_far.take();
            match self.ask(move |view| view.answer_part(&asked, part)).map_err(Problem::unavailable)? {
                None => return Ok(None),
                Some(Answer::Whole(reply)) => return Ok(Some(reply)),
                Some(Answer::Part(part)) => so_far = Some(part),
            }
        }
        Err(Problem::unavailable("the answer takes too long: ask for less".to_owned()))
    }

    /// That it does not answer.
    pub(crate) fn silent(&self) -> String {
        format!("the control loop of function \"{}\" does not answer", self.name)
    }
}

/// What the node answers from.
pub(crate) struct Control<'c> {
    pub questions: Receiver<Pending<Asked, Reply>>,
    /// Is told of each question.
    pub notifier: Arc<Notifier>,
    pub node_id: String,
    pub started: Instant,
    pub pool: &'static FramePool,
    pub functions: Vec<FunctionPeer>,
    pub leaving: Leaving,
    pub reloader: Reloader<'c>,
    /// Set when the configuration is to be read again.
    pub hung_up: Arc<AtomicBool>,
}

impl Control<'_> {
    /// Waits for questions, or for `wake`, and answers them.
    pub(crate) fn turn(&mut self, wake: &OwnedFd) {
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: PACE_NS };
        let Self { questions, notifier, node_id, started, pool, functions, leaving, reloader, hung_up } =
            self;
        notifier.arm();
        let mut first = questions.try_recv().ok();
        if first.is_none() {
            let polled = [notifier.as_fd(), wake.as_fd()];
            let mut polled = polled.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
            // A signal ends the wait early, which is as well.
            let _ = poll(&mut polled, Some(&timeout));
            first = questions.try_recv().ok();
        }
        notifier.disarm();
        drain(wake);
        let mut node = NodeView { node_id, started: *started, pool, functions, leaving, reloader };
        if hung_up.swap(false, Ordering::Relaxed) {
            node.hang_up();
        }
        for question in first.into_iter().chain(questions.try_iter()) {
            question.answer(|asked| node.answer(&asked));
        }
    }
}

/// What one question is answered from.
struct NodeView<'c, 'r> {
    node_id: &'c str,
    started: Instant,
    pool: &'static FramePool,
    functions: &'c [FunctionPeer],
    leaving: &'c Leaving,
    reloader: &'c mut Reloader<'r>,
}

impl NodeView<'_, '_> {
    /// SIGHUP has come.
    fn hang_up(&mut self) {
        match self.reload(false) {
            Ok(Reloaded { fields, taken }) => {
                for ReloadedField { field, before, now, refused, .. } in fields {
                    let (before, now) = (before.unwrap_or_default(), now.unwrap_or_default());
                    match refused {
                        None => tracing::info!(field, before, now, "the configuration differs"),
                        Some(why) => {
                            tracing::warn!(field, before, now, why, "the configuration cannot change");
                        }
                    }
                }
                if taken {
                    tracing::info!("SIGHUP: the configuration was read again, and is in force");
                } else {
                    tracing::warn!("SIGHUP: the configuration was read again; nothing has changed");
                }
            }
            Err(why) => {
                tracing::error!(%why, "SIGHUP: the configuration cannot be read; nothing has changed");
            }
        }
    }

    fn reload(&mut self, dry_run: bool) -> Result<Reloaded, String> {
        if self.leaving.is_busy() {
            return Err("another process is about to take over".to_owned());
        }
        self.reloader.reload(dry_run, self.functions)
    }

    fn answer(&mut self, asked: &Asked) -> Reply {
        let of_node = asked
            .on(|GetNode {}| self.status())
            .or_else(|| asked.on(|ListPorts {}| Ok(Ports { ports: self.status()?.ports })))
            .or_else(|| asked.on(|ListWorkers {}| Ok(Workers { workers: self.workers() })))
            .or_else(|| asked.on(|ListDrops {}| self.drops()))
            .or_else(|| asked.on(|question: ListRoutes| Ok(self.routes(&question))))
            .or_else(|| asked.on(|question: ListNeighbours| self.neighbours(&question)))
            .or_else(|| asked.on(|question: BeginTrace| self.begin_trace(&question)))
            .or_else(|| asked.on(|ReadTrace { id }| self.read_trace(id)))
            .or_else(|| asked.on(|EndTrace { id }| self.end_trace(id)))
            .or_else(|| asked.on(|Reload { dry_run }| self.reload(dry_run).map_err(Problem::conflict)))
            .or_else(|| asked.on(|GetLog {}| Ok(LogLevel { level: log::level() })))
            .or_else(|| asked.on(|SetLog { level }| set_log(level)))
            .or_else(|| asked.on(|GetUpgrade {}| Ok(self.leaving.shown())))
            .or_else(|| {
                asked.on(|BeginUpgrade { program }| {
                    self.leaving.begin(program).map_err(Problem::conflict)?;
                    Ok(self.leaving.shown())
                })
            });
        // It may be a question to a function, which knows its own.
        of_node.or_else(|| self.answer_of_function(asked)).unwrap_or_else(|| {
            Err(Problem::not_found(format!("function {} of this node does not answer this", self.names())))
        })
    }

    /// The first function's answer that has one.
    fn answer_of_function(&self, asked: &Asked) -> Option<Reply> {
        self.functions
            .iter()
            .find_map(|function| function.answer(asked).unwrap_or_else(|problem| Some(Err(problem))))
    }

    /// The names of the functions, as the file has them.
    fn names(&self) -> String {
        let names: Vec<_> = self.functions.iter().map(|function| format!("\"{}\"", function.name)).collect();
        names.join(", ")
    }

    fn workers(&self) -> Vec<api::Worker> {
        let of = |function: &FunctionPeer| workers::workers(&function.workers, &function.board.list());
        self.functions.iter().flat_map(of).collect()
    }

    fn routes(&self, asked: &ListRoutes) -> IpRoutes {
        let mut page = Page::new(asked.skip, asked.limit);
        for FunctionPeer { name, board, mirror, .. } in self.functions {
            mirror.list_routes((name, board), asked, &mut page);
        }
        IpRoutes { total: page.total, routes: page.rows }
    }

    fn neighbours(&self, asked: &ListNeighbours) -> Result<Neighbours, Problem> {
        let in_state = asked.state.as_deref().map(state_of).transpose()?;
        let mut page = Page::new(asked.skip, asked.limit);
        for FunctionPeer { name, board, mirror, .. } in self.functions {
            mirror.list_neighbours((name, board), (asked, in_state), &mut page);
        }
        Ok(Neighbours { total: page.total, neighbours: page.rows })
    }

    fn drops(&self) -> Result<Drops, Problem> {
        let mut drops = Vec::new();
        for function in self.functions {
            let FunctionStatus { counted, .. } = function.status()?;
            drops.extend(shown::drops(&function.board.list(), counted.iter().map(|(totals, _)| totals)));
        }
        Ok(Drops { drops })
    }

    fn status(&self) -> Result<api::Status, Problem> {
        let (mut ports, mut more) = (Vec::new(), Map::new());
        let mut datapaths = Vec::new();
        for function in self.functions {
            let FunctionStatus { datapath, counted, more: own } = function.status()?;
            let board = function.board.list();
            ports.extend(
                board.iter().zip(&counted).map(|(port, (totals, kernel))| shown::port(port, totals, *kernel)),
            );
            datapaths.push((function.name, datapath));
            if let Value::Object(own) = own {
                more.extend(own);
            }
        }
        // One function needs no name before what it says.
        let joined = |of: &dyn Fn(&super::view::DatapathChoice) -> String| match &datapaths[..] {
            [(_, only)] => of(only),
            several => {
                let each = several.iter().map(|(name, datapath)| format!("{name}: {}", of(datapath)));
                each.collect::<Vec<_>>().join(", ")
            }
        };
        let names: Vec<_> = self.functions.iter().map(|function| function.name).collect();
        let per_worker = self.workers();
        Ok(api::Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            function: names.join(", "),
            node_id: self.node_id.to_owned(),
            pid: std::process::id(),
            reload: self.reloader.counts().last().map(|(at, refused)| LastReload { at, refused }),
            uptime_s: self.started.elapsed().as_secs(),
            workers: per_worker.len(),
            frame_pages: self.pool.pages().to_string(),
            frames: self.pool.frames(),
            frame_bytes: self.pool.frame_size().bytes(),
            frames_free: self.pool.free_frames(),
            datapath: joined(&|datapath| datapath.chosen.to_owned()),
            datapath_configured: joined(&|datapath| datapath.configured.to_owned()),
            datapath_reason: joined(&|datapath| datapath.reason.clone()),
            ports,
            per_worker,
            more,
        })
    }

    /// Traces are numbered by the functions. In the node's numbers the function is the rest of a division.
    fn of_trace(&self, id: u32) -> Result<(&FunctionPeer, u32), Problem> {
        let several = self.several();
        let function = self.functions.get((id % several) as usize);
        let function = function.ok_or_else(|| Problem::not_found("there is no such trace".to_owned()))?;
        Ok((function, id / several))
    }

    fn several(&self) -> u32 {
        u32::try_from(self.functions.len()).unwrap_or(u32::MAX).max(1)
    }

    fn read_trace(&self, id: u32) -> Result<TraceRead, Problem> {
        let (function, id) = self.of_trace(id)?;
        function.ask_for(move |view| view.traces().read(id))
    }

    fn end_trace(&self, id: u32) -> Result<(), Problem> {
        let (function, id) = self.of_trace(id)?;
        function.ask(move |view| view.traces().end(id)).map_err(Problem::unavailable)
    }

    /// Begins a trace at the function that has its first port, or else at the first that takes it.
    fn begin_trace(&self, question: &BeginTrace) -> Result<TraceBegun, Problem> {
        let several = self.several();
        let first = match &question.of {
            TraceOf::Ports(ports) => ports.first(),
            TraceOf::Flow(_) => None,
        };
        let has = |function: &FunctionPeer| {
            first.is_none_or(|name| function.board.list().iter().any(|port| port.name == *name))
        };
        let mut refused = None;
        let named =
            (0..).zip(self.functions).filter(|(_, function)| self.functions.len() == 1 || has(function));
        for (place, function) in named {
            let BeginTrace { of, snap } = question.clone();
            match function.ask_for(move |view| view.traces().begin(&of, snap)) {
                Ok(TraceBegun { id, ports }) => return Ok(TraceBegun { id: id * several + place, ports }),
                Err(problem) => refused = refused.or(Some(problem)),
            }
        }
        let name = first.map_or("", String::as_str);
        Err(refused.unwrap_or_else(|| Problem::not_found(format!("there is no port {name}"))))
    }
}

fn set_log(level: String) -> Result<LogLevel, Problem> {
    if !is_log_filter(&level) {
        let why = format!("`{level}` is not a log filter: write error, warn, info, debug or trace");
        return Err(Problem::bad_request(why));
    }
    log::set_level(&level);
    Ok(LogLevel { level })
}

/// Sleeps until `wake` is readable, or a while.
pub(crate) fn sleep_until(wake: &OwnedFd) {
    let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: PACE_NS / 10 };
    let _ = poll(&mut [PollFd::from_borrowed_fd(wake.as_fd(), PollFlags::IN)], Some(&timeout));
    drain(wake);
}

/// Clears an event. Fails where there is none.
fn drain(wake: &OwnedFd) {
    let _ = rustix::io::read(wake, &mut [0; 8]);
}
