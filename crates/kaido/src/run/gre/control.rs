//! The control loop: the control socket, until the node is told to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use kaido_engine::{FramePool, PortTotals, WorkerCounters};
use kaido_xdp::gre::GreCounters;
use rustix::event::{PollFd, PollFlags, poll};

use super::rules::{Rules, forwarded};
use crate::api::{self, Answer, Question};
use crate::run::ports::ShownPort;
use crate::run::server::Server;
use crate::run::shown;
use crate::run::workers;

/// Longest wait for a question: how soon a signal, or the end of a worker, is noticed.
const PACE_NS: i64 = 50_000_000;

/// Everything that the control loop works on.
pub(super) struct Control {
    pub(super) server: Server,
    pub(super) node_id: String,
    pub(super) started: Instant,
    pub(super) pool: &'static FramePool,
    pub(super) ports: Vec<ShownPort>,
    pub(super) datapath: &'static str,
    pub(super) workers: Vec<Arc<WorkerCounters>>,
    pub(super) rules: Rules,
}

impl Control {
    /// Turns until `stop` is set or `failed` says so.
    pub(super) fn run(&mut self, stop: &AtomicBool, failed: impl Fn() -> bool) {
        while !stop.load(Ordering::Relaxed) && !failed() {
            self.wait();
            let Self { server, node_id, started, pool, ports, datapath, workers, rules } = self;
            let view = View { node_id, started: *started, pool, ports, datapath, workers, rules };
            server.serve(|question| view.answer(question));
        }
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
struct View<'c> {
    node_id: &'c str,
    started: Instant,
    pool: &'static FramePool,
    ports: &'c [ShownPort],
    datapath: &'static str,
    workers: &'c [Arc<WorkerCounters>],
    rules: &'c Rules,
}

impl View<'_> {
    fn answer(&self, question: Question) -> Answer {
        match question {
            Question::Status => Answer::Status(Box::new(self.status())),
            Question::Drops => {
                let in_kernel = self.rules.in_kernel();
                Answer::Drops { drops: shown::drops(self.ports, |at| self.totals(at, &in_kernel)) }
            }
            Question::Gre => Answer::Gre(self.rules.status()),
            Question::Sessions { .. } | Question::Trace(_) => {
                Answer::Error { message: "this node removes GRE headers, and has no sessions".to_owned() }
            }
        }
    }

    fn totals(&self, at: usize, in_kernel: &[Option<GreCounters>]) -> PortTotals {
        let mut totals = shown::totals(self.workers, at);
        self.rules.add_to(at, &mut totals, in_kernel);
        totals
    }

    fn status(&self) -> api::Status {
        let in_kernel = self.rules.in_kernel();
        let ports = self.ports.iter().enumerate().map(|(at, port)| {
            let own = in_kernel.get(at).and_then(Option::as_ref);
            let forwarded = own.map(|own| (forwarded(own), own.octets_sent)).unwrap_or_default();
            shown::port(port, &self.totals(at, &in_kernel), forwarded)
        });
        api::Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            function: "gre".to_owned(),
            node_id: self.node_id.to_owned(),
            uptime_s: self.started.elapsed().as_secs(),
            workers: self.workers.len(),
            frame_pages: self.pool.pages().to_string(),
            frames: self.pool.frames(),
            frames_free: self.pool.free_frames(),
            datapath: self.datapath.to_owned(),
            ports: ports.collect(),
            per_worker: workers::workers(self.workers, self.ports),
            upf: None,
        }
    }
}
