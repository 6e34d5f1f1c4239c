//! What the user plane offers to be scraped.
//!
//! ```text
//!   scrape ─▶ its thread ─┬─ reads what workers, tables and the kernel's datapath count
//!                         └─ asks the control loop for the rest, which answers between datagrams
//! ```
//! The control loop is never waited on by, nor waits for, a client: it gives a copy of its figures when it has added up
//! its sessions, some thousands at a turn.

pub(crate) mod families;
mod render;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use kaido_engine::{Notifier, PortTotals};
use kaido_metrics::Exposition;
use kaido_n4::Volume;
use kaido_pfcp::{Counters, Endpoint as PfcpEndpoint, Peer};
use kaido_upf::control::{PathSummary, Upf, VolumeScan};
use kaido_upf::record::RecordForm;

pub(super) use self::render::Sources;
use super::exposure::ExposureCounts;
use super::flows::FlowCounts;
use super::lag::Lag;
use super::offload::{self, KernelCounts};
use super::store::StoreStatus;
use kaido_node::metrics::MetricsSource;

/// How long the control loop may take to answer a scrape.
const PATIENCE: Duration = Duration::from_secs(5);
/// Sessions added up in one turn of the control loop: some hundred microseconds.
const SESSIONS_A_TURN: usize = 4096;
/// Most GTP-U paths that are shown one by one.
const PATHS_SHOWN_MAX: usize = 1000;

/// What only the control loop knows.
#[derive(Clone, Debug)]
pub(super) struct Controls {
    pub(super) sessions: usize,
    pub(super) volume: Volume,
    pub(super) forms: Vec<(RecordForm, u32)>,
    pub(super) kernel_records: Option<usize>,
    pub(super) pfcp: Counters,
    /// Sessions of ended associations that are yet to be deleted.
    pub(super) ending: usize,
    pub(super) outstanding: usize,
    pub(super) unknown_peers: u64,
    pub(super) store: Option<StoreStatus>,
    pub(super) flows: Option<FlowCounts>,
    pub(super) exposure: Option<ExposureCounts>,
    pub(super) peers: Vec<Peer>,
    pub(super) paths: Vec<PathSummary>,
    /// Paths that are up, down, and asked.
    pub(super) path_states: [usize; 3],
    /// Fill of the fullest PFCP queue in percent, and datagrams that found no room.
    pub(super) lag: (u8, u64),
    /// How late usage reports are.
    pub(super) reports_late: Duration,
}

type Question = SyncSender<Controls>;

/// The control loop's end.
#[derive(Debug)]
pub(super) struct MetricsQuestion {
    questions: Receiver<Question>,
    /// Who asks now, and how far sessions are added up.
    scan: Option<(Question, VolumeScan)>,
}

impl MetricsQuestion {
    /// Whether a scrape waits for sessions to be added up.
    pub(super) const fn is_busy(&self) -> bool {
        self.scan.is_some()
    }

    /// Does a turn's part of what is asked, if anything is.
    pub(super) fn serve(
        &mut self,
        endpoint: &PfcpEndpoint<Upf>,
        lag: &Lag,
        unknown_peers: u64,
        store: Option<StoreStatus>,
        (flows, exposure): (Option<FlowCounts>, Option<ExposureCounts>),
    ) {
        if self.scan.is_none() {
            self.scan = self.questions.try_recv().ok().map(|question| (question, VolumeScan::default()));
        }
        let Some((question, scan)) = &mut self.scan else { return };
        let upf = endpoint.service();
        let Some(volume) = upf.scan_volume(scan, SESSIONS_A_TURN) else { return };
        let controls = Controls {
            sessions: upf.len(),
            volume,
            forms: upf.forms().collect(),
            kernel_records: upf.kernel_records(),
            pfcp: endpoint.counters().clone(),
            ending: endpoint.ending(),
            outstanding: endpoint.outstanding(),
            unknown_peers,
            store,
            flows,
            exposure,
            peers: endpoint.peers().collect(),
            paths: upf.paths(PATHS_SHOWN_MAX),
            path_states: upf.path_states(),
            lag: lag.last(),
            reports_late: upf.late(),
        };
        // Who has given up meanwhile needs no answer.
        let _ = question.try_send(controls);
        self.scan = None;
    }
}

/// What the metrics thread is given.
pub(super) struct UpfMetrics {
    sources: Sources,
    /// What the control loop said, and what the kernel had counted by port, when last looked at.
    looked: Option<(Controls, Vec<KernelCounts>)>,
    ask: SyncSender<Question>,
    /// Wakes the control loop.
    notifier: Arc<Notifier>,
}

impl UpfMetrics {
    /// The offer, and the control loop's end.
    pub(super) fn new(sources: Sources, notifier: Arc<Notifier>) -> (Self, MetricsQuestion) {
        let (ask, questions) = sync_channel(1);
        (Self { sources, looked: None, ask, notifier }, MetricsQuestion { questions, scan: None })
    }

    /// What the control loop says; `None` when it takes too long, or has ended.
    fn ask(&self) -> Option<Controls> {
        let (question, answer) = sync_channel(1);
        self.ask.try_send(question).ok()?;
        // One that is about to sleep may not hear it, and sees the question when it next wakes.
        self.notifier.notify();
        answer.recv_timeout(PATIENCE).ok()
    }
}

impl MetricsSource for UpfMetrics {
    fn look(&mut self) -> bool {
        self.looked = self.ask().map(|controls| (controls, self.sources.in_kernel()));
        self.looked.is_some()
    }

    fn add_kernel(&self, at: usize, totals: &mut PortTotals) {
        if let Some((_, in_kernel)) = &self.looked {
            offload::add_to(totals, at, in_kernel);
        }
    }

    fn metrics(&self, out: &mut Exposition) {
        if let Some((controls, in_kernel)) = &self.looked {
            self.sources.render(controls, in_kernel, out);
        }
    }
}
