//! The control socket of a node: what all functions have is answered here, the rest by the functions.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use kaido_engine::{FramePool, WorkerCounters};
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::{Map, Value};

use super::board::PortBoard;
use super::function::Running;
use super::questions::QuestionSender;
use super::server::Server;
use super::upgrade::Leaving;
use super::view::{FunctionStatus, reply};
use super::{shown, workers};
use crate::api::{self, Answer, LastReload, Question, Reloaded, ReloadedField, TraceOf, TraceQuestion};
use crate::reload::Reloader;

/// Longest wait for a question: how soon the end of a function is noticed.
const PACE_NS: i64 = 50_000_000;

/// A running function, as the control socket knows it.
pub(crate) struct FunctionPeer {
    /// Its name in the file.
    pub name: &'static str,
    pub board: PortBoard,
    pub workers: Vec<Arc<WorkerCounters>>,
    pub questions: QuestionSender,
}

impl FunctionPeer {
    /// A function that runs.
    pub(crate) fn new(name: &'static str, running: &Running, questions: QuestionSender) -> Self {
        Self { name, board: running.board.clone(), workers: running.workers.clone(), questions }
    }

    /// What it says of itself.
    fn status(&self) -> Result<FunctionStatus, String> {
        let by_workers = (0..self.board.count()).map(|at| shown::totals(&self.workers, at)).collect();
        self.ask(move |view| view.status(by_workers))
    }

    pub(crate) fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut dyn super::view::FunctionView) -> T + Send + 'static,
    ) -> Result<T, String> {
        self.questions.ask(question).ok_or_else(|| self.silent())
    }

    /// That it does not answer.
    pub(crate) fn silent(&self) -> String {
        format!("the control loop of function \"{}\" does not answer", self.name)
    }
}

/// What the node answers from.
pub(crate) struct Control<'c> {
    pub server: Server,
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
        let takes_in = !self.leaving.is_next();
        let descriptors = self.server.descriptors(takes_in).chain([wake.as_fd()]);
        let mut polled: Vec<_> = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // A signal ends the wait early, which is as well.
        let _ = poll(&mut polled, Some(&timeout));
        drain(wake);
        let Self { server, node_id, started, pool, functions, leaving, reloader, hung_up } = self;
        let mut node = NodeView { node_id, started: *started, pool, functions, leaving, reloader };
        if hung_up.swap(false, Ordering::Relaxed) {
            node.hang_up();
        }
        server.serve(takes_in, |question| node.answer(&question));
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

    fn answer(&mut self, question: &Value) -> Value {
        let answer = match serde_json::from_value(question.clone()) {
            Ok(Question::Status) => self.status().map(|status| Answer::Status(Box::new(status))),
            Ok(Question::Drops) => self.drops().map(|drops| Answer::Drops { drops }),
            Ok(Question::Trace(question)) => self.trace(question),
            Ok(Question::Upgrade { program }) => {
                self.leaving.begin(program).map(|()| Answer::Upgrade(self.leaving.shown()))
            }
            Ok(Question::Reload { dry_run }) => self.reload(dry_run).map(Answer::Reloaded),
            Ok(Question::UpgradeState) => Ok(Answer::Upgrade(self.leaving.shown())),
            // It may be a question to a function, which knows its own.
            Err(error) => match self.answer_of_function(question) {
                Some(answer) => return answer,
                None => Err(self.not_understood(question, &error)),
            },
        };
        reply(&answer.unwrap_or_else(|message| Answer::Error { message }))
    }

    /// The first function's answer that has one.
    fn answer_of_function(&self, question: &Value) -> Option<Value> {
        self.functions.iter().find_map(|function| {
            let asked = question.clone();
            match function.ask(move |view| view.answer(&asked)) {
                Ok(answer) => answer,
                Err(message) => Some(reply(&Answer::Error { message })),
            }
        })
    }

    fn not_understood(&self, question: &Value, error: &serde_json::Error) -> String {
        let asked = question.get("ask").and_then(Value::as_str);
        match asked.filter(|asked| !Question::NAMES.contains(asked)) {
            Some(asked) => format!("function {} of this node has no answer to `{asked}`", self.names()),
            None => error.to_string(),
        }
    }

    /// The names of the functions, as the file has them.
    fn names(&self) -> String {
        let names: Vec<_> = self.functions.iter().map(|function| format!("\"{}\"", function.name)).collect();
        names.join(", ")
    }

    fn drops(&self) -> Result<Vec<api::Drop>, String> {
        let mut drops = Vec::new();
        for function in self.functions {
            let FunctionStatus { counted, .. } = function.status()?;
            drops.extend(shown::drops(&function.board.list(), counted.iter().map(|(totals, _)| totals)));
        }
        Ok(drops)
    }

    fn status(&self) -> Result<api::Status, String> {
        let (mut ports, mut per_worker, mut more) = (Vec::new(), Vec::new(), Map::new());
        let mut datapaths = Vec::new();
        for function in self.functions {
            let FunctionStatus { datapath, counted, more: own } = function.status()?;
            let board = function.board.list();
            ports.extend(
                board.iter().zip(&counted).map(|(port, (totals, kernel))| shown::port(port, totals, *kernel)),
            );
            per_worker.extend(workers::workers(&function.workers, &board));
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

    /// Traces are numbered by the functions; in the node's numbers the function is the rest of a division.
    fn trace(&self, question: TraceQuestion) -> Result<Answer, String> {
        let several = u32::try_from(self.functions.len()).unwrap_or(u32::MAX).max(1);
        let function = |id: u32| self.functions.get((id % several) as usize);
        let ended = || "there is no such trace".to_owned();
        match question {
            TraceQuestion::Begin { of, snap } => self.begin_trace(&of, snap, several),
            TraceQuestion::Read { id } => {
                let question = TraceQuestion::Read { id: id / several };
                function(id).ok_or_else(ended)?.ask(move |view| view.trace(question))
            }
            TraceQuestion::End { id } => {
                let question = TraceQuestion::End { id: id / several };
                function(id).ok_or_else(ended)?.ask(move |view| view.trace(question))
            }
        }
    }

    /// Begins a trace at the function that has its first port, or else at the first that takes it.
    fn begin_trace(&self, of: &TraceOf, snap: usize, several: u32) -> Result<Answer, String> {
        let first = match of {
            TraceOf::Ports(ports) => ports.first(),
            TraceOf::Flow { .. } => None,
        };
        let has = |function: &FunctionPeer| {
            first.is_none_or(|name| function.board.list().iter().any(|port| port.name == *name))
        };
        let mut refused = None;
        let named =
            (0..).zip(self.functions).filter(|(_, function)| self.functions.len() == 1 || has(function));
        for (place, function) in named {
            let question = TraceQuestion::Begin { of: of.clone(), snap };
            match function.ask(move |view| view.trace(question))? {
                Answer::TraceBegun { id, ports } => {
                    return Ok(Answer::TraceBegun { id: id * several + place, ports });
                }
                answer => refused = refused.or(Some(answer)),
            }
        }
        let name = first.map_or("", String::as_str);
        Ok(refused.unwrap_or_else(|| Answer::Error { message: format!("there is no port {name}") }))
    }
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
