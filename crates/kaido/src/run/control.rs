//! The control loop of functions that no control protocol drives: the control socket, until the node is told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use kaido_engine::{FramePool, PortTotals, WorkerCounters};
use rustix::event::{PollFd, PollFlags, poll};

use super::board::{Heartbeat, PortBoard, PortView};
use super::port_trace::PortTraces;
use super::server::Server;
use super::{shown, workers};
use crate::api::{self, Answer, Question};

/// Longest wait for a question: how soon a signal, or the end of a worker, is noticed.
const PACE_NS: i64 = 50_000_000;

/// What a port has counted, and how many packets and octets of that the kernel's datapath has forwarded.
pub(super) type CountedTraffic = (PortTotals, (u64, u64));

/// What a function adds to what every node shows.
pub(super) trait FunctionView {
    /// Its name in the file.
    const FUNCTION: &'static str;

    /// What forwards, what `node.datapath` says, and why it is that.
    fn datapath(&self) -> [&'static str; 3];

    /// What the ports have counted, given what the workers have.
    fn counted(&self, by_workers: Vec<PortTotals>) -> Vec<CountedTraffic>;

    /// The answer to a question that not every function has.
    fn answer(&self, question: Question) -> Answer;
}

/// Everything that the control loop works on.
pub(super) struct Control<S> {
    pub(super) server: Server,
    pub(super) node_id: String,
    pub(super) started: Instant,
    pub(super) pool: &'static FramePool,
    pub(super) ports: PortBoard,
    pub(super) heartbeat: Heartbeat,
    pub(super) workers: Vec<Arc<WorkerCounters>>,
    pub(super) traces: PortTraces,
    pub(super) function: S,
}

impl<S: FunctionView> Control<S> {
    /// Turns until `stop` is set or `failed` says so.
    pub(super) fn run(&mut self, stop: &AtomicBool, failed: impl Fn() -> bool) {
        while !stop.load(Ordering::Relaxed) && !failed() {
            self.wait();
            self.heartbeat.beat();
            let Self { server, node_id, started, pool, ports, workers, traces, function, .. } = self;
            traces.turn();
            server.serve(|question| {
                let ports = &ports.list();
                if let Question::Trace(question) = question {
                    let names: Vec<_> = ports.iter().map(|port| port.name.clone()).collect();
                    return traces.answer(question, &names);
                }
                View { node_id, started: *started, pool, ports, workers, function }.answer(question)
            });
        }
        super::log_stop();
    }

    fn wait(&self) {
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: PACE_NS };
        let descriptors = self.server.descriptors();
        let mut polled: Vec<_> = descriptors.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        // A signal ends the wait early, which is as well.
        let _ = poll(&mut polled, Some(&timeout));
    }
}

/// What questions are answered from.
struct View<'c, S> {
    node_id: &'c str,
    started: Instant,
    pool: &'static FramePool,
    ports: &'c [PortView],
    workers: &'c [Arc<WorkerCounters>],
    function: &'c S,
}

impl<S: FunctionView> View<'_, S> {
    fn answer(&self, question: Question) -> Answer {
        match question {
            Question::Status => Answer::Status(Box::new(self.status())),
            Question::Drops => {
                let counted = self.counted();
                Answer::Drops { drops: shown::drops(self.ports, |at| counted[at].0.clone()) }
            }
            question => self.function.answer(question),
        }
    }

    fn counted(&self) -> Vec<CountedTraffic> {
        self.function.counted((0..self.ports.len()).map(|at| shown::totals(self.workers, at)).collect())
    }

    fn status(&self) -> api::Status {
        let counted = self.counted();
        let ports = self.ports.iter().zip(&counted);
        let [datapath, configured, reason] = self.function.datapath();
        api::Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            function: S::FUNCTION.to_owned(),
            node_id: self.node_id.to_owned(),
            uptime_s: self.started.elapsed().as_secs(),
            workers: self.workers.len(),
            frame_pages: self.pool.pages().to_string(),
            frames: self.pool.frames(),
            frame_bytes: self.pool.frame_size().bytes(),
            frames_free: self.pool.free_frames(),
            datapath: datapath.to_owned(),
            datapath_configured: configured.to_owned(),
            datapath_reason: reason.to_owned(),
            ports: ports.map(|(port, (totals, forwarded))| shown::port(port, totals, *forwarded)).collect(),
            per_worker: workers::workers(self.workers, self.ports),
            upf: None,
        }
    }
}
