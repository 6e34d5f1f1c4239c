//! `[metrics]`: the node's counters, for a Prometheus that scrapes.
//!
//! ```text
//!   scrape ─▶ this thread ─┬─ reads what workers, tables and the kernel's datapath count
//!                          └─ asks the control loop for the rest, which answers between datagrams
//! ```
//! The control loop is never waited on by, nor waits for, a client: it gives a copy of its figures when it has added up
//! its sessions, some thousands at a turn.

mod families;
mod process;
mod render;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kaido_metrics::{Endpoint, Format, Request, Response};
use kaido_pfcp::{Counters, Endpoint as PfcpEndpoint, Peer};
use kaido_upf::control::{PathSummary, Upf, VolumeScan};
use kaido_upf::rules::Volume;

pub(crate) use self::families::table;
pub(super) use self::render::Sources;
use super::lag::Lag;

/// How long the control loop may take to answer a scrape.
const PATIENCE: Duration = Duration::from_secs(5);
/// Scrapes that come closer together get the same text.
const FRESH: Duration = Duration::from_millis(100);
/// Sessions added up in one turn of the control loop: some hundred microseconds.
const SESSIONS_A_TURN: usize = 4096;
/// Most GTP-U paths that are shown one by one.
const PATHS_SHOWN_MAX: usize = 1000;

/// What only the control loop knows.
#[derive(Clone, Debug)]
pub(super) struct Controls {
    pub(super) sessions: usize,
    pub(super) volume: Volume,
    pub(super) kernel_records: Option<usize>,
    pub(super) pfcp: Counters,
    pub(super) outstanding: usize,
    pub(super) strangers: u64,
    pub(super) peers: Vec<Peer>,
    pub(super) paths: Vec<PathSummary>,
    /// Paths that are up, down, and asked.
    pub(super) path_states: [usize; 3],
    /// Fill of the fullest PFCP queue in percent, and datagrams that found no room.
    pub(super) lag: (u8, u64),
}

type Question = SyncSender<Controls>;

/// The control loop's end.
#[derive(Debug)]
pub(super) struct Asked {
    questions: Receiver<Question>,
    /// Who asks now, and how far sessions are added up.
    scan: Option<(Question, VolumeScan)>,
}

impl Asked {
    /// Whether a scrape waits for sessions to be added up.
    pub(super) const fn is_busy(&self) -> bool {
        self.scan.is_some()
    }

    /// Does a turn's part of what is asked, if anything is.
    pub(super) fn serve(&mut self, endpoint: &PfcpEndpoint<Upf>, lag: &Lag, strangers: u64) {
        if self.scan.is_none() {
            self.scan = self.questions.try_recv().ok().map(|question| (question, VolumeScan::default()));
        }
        let Some((question, scan)) = &mut self.scan else { return };
        let upf = endpoint.service();
        let Some(volume) = upf.scan_volume(scan, SESSIONS_A_TURN) else { return };
        let controls = Controls {
            sessions: upf.len(),
            volume,
            kernel_records: upf.kernel_records(),
            pfcp: endpoint.counters().clone(),
            outstanding: endpoint.outstanding(),
            strangers,
            peers: endpoint.peers().collect(),
            paths: upf.paths(PATHS_SHOWN_MAX),
            path_states: upf.path_states(),
            lag: lag.last(),
        };
        // Who has given up meanwhile needs no answer.
        let _ = question.try_send(controls);
        self.scan = None;
    }
}

/// The thread that is scraped.
#[derive(Debug)]
pub(super) struct Exporter {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Exporter {
    /// Opens the listening socket.
    ///
    /// # Errors
    /// What the kernel says.
    pub(super) fn listen(address: SocketAddr) -> std::io::Result<Endpoint> {
        Endpoint::bind(address)
    }

    /// Serves scrapes until it is stopped; beside it the control loop's end.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub(super) fn start(mut endpoint: Endpoint, sources: Sources) -> std::io::Result<(Self, Asked)> {
        let (ask, questions) = sync_channel(1);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            let mut scrape = Scrape { sources, ask, fresh: None };
            endpoint.serve(&stopped, |request| scrape.answer(request));
        })?;
        Ok((Self { stop, thread }, Asked { questions, scan: None }))
    }

    /// Stops it.
    pub(super) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        if self.thread.join().is_err() {
            tracing::error!("the metrics thread has panicked");
        }
    }
}

/// What answers scrapes.
struct Scrape {
    sources: Sources,
    ask: SyncSender<Question>,
    fresh: Option<(Instant, Format, String)>,
}

impl Scrape {
    fn answer(&mut self, request: &Request<'_>) -> Response {
        match request.path {
            "/metrics" => self.metrics(Format::for_accept(request.accept)),
            "/" => Response::text(200, "Kaido: the metrics are at /metrics"),
            _ => Response::text(404, "there is only /metrics"),
        }
    }

    fn metrics(&mut self, format: Format) -> Response {
        let is_fresh = |&(at, of, _): &(Instant, Format, String)| at.elapsed() < FRESH && of == format;
        if !self.fresh.as_ref().is_some_and(is_fresh) {
            let Some(controls) = self.ask() else {
                return Response::text(503, "the control loop does not answer");
            };
            self.fresh = Some((Instant::now(), format, self.sources.render(&controls, format)));
        }
        let body = self.fresh.as_ref().map(|(.., text)| text.clone()).unwrap_or_default();
        Response { status: 200, content_type: format.content_type(), body }
    }

    /// What the control loop says; `None` when it takes too long, or has ended.
    fn ask(&self) -> Option<Controls> {
        let (question, answer) = sync_channel(1);
        self.ask.try_send(question).ok()?;
        answer.recv_timeout(PATIENCE).ok()
    }
}
