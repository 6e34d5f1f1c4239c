//! The figures that every node has, as families of samples.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use kaido_engine::shared::{SharedTotals, cycles};
use kaido_engine::{FramePool, HistogramTotals, PortId, PortTotals, WorkerCounters};
use kaido_metrics::{Buckets, Exposition, Family, Format, Value};

use super::families as f;
use super::process::Process;
use super::source::MetricsSource;
use crate::board::{PortBoard, PortState, PortView};
use crate::function::Running;
use crate::reload::ReloadCounts;
use crate::shown;

/// A running function, as it is scraped.
pub struct FunctionFigures {
    /// Its name, as the configuration has it.
    name: &'static str,
    datapath: &'static str,
    board: PortBoard,
    /// As they were when last looked at.
    ports: Vec<PortView>,
    workers: Vec<Arc<WorkerCounters>>,
    /// Number of its first worker in the node.
    first_worker: usize,
    /// What it has beside.
    pub source: Box<dyn MetricsSource>,
}

impl FunctionFigures {
    /// Of a function that runs.
    pub fn new(name: &'static str, first_worker: u8, running: Running) -> Self {
        let Running { datapath, board, workers, metrics, .. } = running;
        let ports = board.list();
        Self { name, datapath, board, ports, workers, first_worker: first_worker.into(), source: metrics }
    }

    /// What was counted on its ports, the kernel's datapath included.
    fn totals(&self) -> Vec<PortTotals> {
        let of_port = |(at, port): (usize, &PortView)| {
            let mut totals = shown::totals(&self.workers, at);
            self.source.add_kernel(at, &mut totals);
            totals.to_kernel += port.left_to_kernel;
            totals
        };
        self.ports.iter().enumerate().map(of_port).collect()
    }

    /// Looks at its ports, and has it look at what it counts; `false` when that cannot be had in time.
    fn look(&mut self) -> bool {
        self.ports = self.board.list();
        self.source.look()
    }

    /// Its workers with their numbers in the node.
    fn numbered(&self) -> impl Iterator<Item = (String, &WorkerCounters)> {
        let workers = self.workers.iter().enumerate();
        workers.map(|(at, worker)| ((self.first_worker + at).to_string(), &**worker))
    }
}

/// Where the figures of a node are read.
pub struct Figures {
    node_id: String,
    /// When the node started, by both clocks.
    started: (SystemTime, Instant),
    /// The time stamp counter at that moment.
    started_cycles: u64,
    pool: &'static FramePool,
    pub(super) functions: Vec<FunctionFigures>,
    reloads: Arc<ReloadCounts>,
}

impl Figures {
    /// Of a node that starts now.
    pub(crate) fn new(
        node_id: String,
        pool: &'static FramePool,
        functions: Vec<FunctionFigures>,
        reloads: Arc<ReloadCounts>,
    ) -> Self {
        let started = (SystemTime::now(), Instant::now());
        Self { node_id, started, started_cycles: cycles::now(), pool, functions, reloads }
    }

    /// Has every function look.
    fn look(&mut self) -> bool {
        self.functions.iter_mut().all(FunctionFigures::look)
    }

    /// The text of a scrape; `None` when the figures of a function cannot be had in time.
    pub fn render(&mut self, format: Format) -> Option<String> {
        if !self.look() {
            return None;
        }
        let mut out = Exposition::new(format);
        self.node(&mut out);
        self.functions.iter().for_each(|function| function.source.metrics(&mut out));
        self.ports(&mut out);
        self.workers(&mut out);
        self.timing(&mut out);
        self.shared_queues(&mut out);
        self.process(&mut out);
        Some(out.finish())
    }

    /// What the node is, and its pool.
    fn node(&self, out: &mut Exposition) {
        let mut info = out.family(&f::BUILD_INFO);
        for function in &self.functions {
            let labels = [env!("CARGO_PKG_VERSION"), function.name, &self.node_id, function.datapath];
            info.add(&labels, 1_u64);
        }
        one(out, &f::WORKERS, self.functions.iter().map(|function| function.workers.len()).sum::<usize>());
        one(out, &f::FRAMES, self.pool.frames());
        one(out, &f::FRAME_BYTES, self.pool.frame_size().bytes());
        one(out, &f::FRAMES_FREE, self.pool.free_frames());
        let mut reloads = out.family(&f::CONFIG_RELOADS);
        for (result, count) in self.reloads.results() {
            reloads.add(&[result], count);
        }
        one(out, &f::CONFIG_LAST_RELOAD, u64::from(self.reloads.is_last_taken()));
    }

    /// All ports, in the order of the functions.
    fn all_ports(&self) -> impl Iterator<Item = &PortView> {
        self.functions.iter().flat_map(|function| &function.ports)
    }

    /// All workers with their numbers.
    fn numbered(&self) -> impl Iterator<Item = (String, &WorkerCounters)> {
        self.functions.iter().flat_map(FunctionFigures::numbered)
    }

    fn ports(&self, out: &mut Exposition) {
        let totals = self.functions.iter().flat_map(|function| function.ports.iter().zip(function.totals()));
        let totals: Vec<(&PortView, PortTotals)> = totals.collect();
        let mut by_port = |family: &'static Family, value: fn(&PortTotals) -> u64| {
            let mut samples = out.family(family);
            totals.iter().for_each(|(port, totals)| {
                samples.add(&[&port.name], value(totals));
            });
        };
        by_port(&f::PORT_RX_PACKETS, |totals| totals.rx_packets);
        by_port(&f::PORT_RX_BYTES, |totals| totals.rx_bytes);
        by_port(&f::PORT_TX_PACKETS, |totals| totals.tx_packets);
        by_port(&f::PORT_TX_BYTES, |totals| totals.tx_bytes);
        by_port(&f::PORT_TO_KERNEL, |totals| totals.to_kernel);
        let mut drops = out.family(&f::PORT_DROPS);
        for (port, totals) in &totals {
            // Zeros too: what appears for the first time has no rate.
            for reason in totals.reasons.reasons() {
                let found = totals.drops.iter().find(|(found, _)| *found == reason);
                drops.add(&[&port.name, totals.reasons.name(reason)], found.map_or(0, |&(_, count)| count));
            }
        }
        let mut info = out.family(&f::PORT_INFO);
        self.all_ports().for_each(|port| {
            info.add(&[&port.name, &port.how], 1_u64);
        });
        let mut up = out.family(&f::PORT_UP);
        self.all_ports().for_each(|port| {
            up.add(&[&port.name], u64::from(port.state == PortState::Up));
        });
        let mut rebinds = out.family(&f::PORT_REBINDS);
        self.all_ports().for_each(|port| {
            rebinds.add(&[&port.name], port.rebinds);
        });
        let mut mtu = out.family(&f::PORT_MTU);
        self.all_ports().for_each(|port| {
            mtu.add(&[&port.name], port.mtu);
        });
        let mut backlog = out.family(&f::PORT_BACKLOG);
        self.each_worker_port(|worker, counters, at, port| {
            if let Some(packets) = counters.port(at).backlog() {
                backlog.add(&[&port.name, worker], packets);
            }
        });
    }

    fn workers(&self, out: &mut Exposition) {
        let mut seconds = out.family(&f::WORKER_SECONDS);
        for (number, worker) in self.numbered() {
            let spent = worker.polling();
            for (state, ns) in
                [("busy", spent.busy_ns), ("adaptive", spent.adaptive_ns), ("interrupt", spent.interrupt_ns)]
            {
                seconds.add(&[&number, state], seconds_of(ns));
            }
        }
        let mut counted = |family: &'static Family, value: fn(&WorkerCounters) -> u64| {
            let mut samples = out.family(family);
            self.numbered().for_each(|(number, worker)| {
                samples.add(&[&number], value(worker));
            });
        };
        counted(&f::WORKER_NAPS, |worker| worker.polling().naps);
        counted(&f::WORKER_WAKEUPS, |worker| worker.polling().wakeups);
        counted(&f::WORKER_TIMEOUTS, |worker| worker.polling().timeouts);
        for (family, value) in [
            (&f::WORKER_RX, (|totals| totals.rx_packets) as fn(&PortTotals) -> u64),
            (&f::WORKER_TX, |totals| totals.tx_packets),
        ] {
            let mut samples = out.family(family);
            self.each_worker_port(|worker, counters, at, port| {
                samples.add(&[worker, &port.name], value(&PortTotals::of([counters], at)));
            });
        }
        let mut batches = out.family(&f::BATCHES);
        self.numbered().for_each(|(number, worker)| {
            batches.histogram(&[&number], &buckets(&worker.batches(), 1.0));
        });
    }

    /// Times of stages and latency, of all workers together.
    fn timing(&self, out: &mut Exposition) {
        let mut stages: Vec<(&str, HistogramTotals)> = Vec::new();
        let mut latency: Option<HistogramTotals> = None;
        for (_, worker) in self.numbered() {
            for (name, totals) in worker.stages() {
                match stages.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, sum)) => *sum += &totals,
                    None => stages.push((name, totals)),
                }
            }
            match &mut latency {
                Some(sum) => *sum += &worker.latency(),
                None => latency = Some(worker.latency()),
            }
        }
        let mut samples = out.family(&f::STAGE_CYCLES);
        for (name, totals) in &stages {
            samples.histogram(&[name], &buckets(totals, 1.0));
        }
        if let Some(latency) = &latency {
            out.family(&f::LATENCY).histogram(&[], &buckets(latency, 1e9));
        }
        let (_, started) = self.started;
        let passed = cycles::now().saturating_sub(self.started_cycles);
        one(out, &f::TSC_HERTZ, real(passed) / started.elapsed().as_secs_f64().max(1e-9));
    }

    fn shared_queues(&self, out: &mut Exposition) {
        let mut shared: Vec<(String, &str, SharedTotals)> = Vec::new();
        self.each_worker_port(|worker, counters, at, port| {
            shared.extend(counters.shared(at).map(|totals| (worker.to_owned(), port.name.as_str(), totals)));
        });
        if shared.is_empty() {
            return;
        }
        for (family, value) in [
            (&f::SHARED_BLOCKS, (|totals| totals.blocks) as fn(&SharedTotals) -> u64),
            (&f::SHARED_PACKETS, |totals| totals.packets),
            (&f::SHARED_ATTEMPTS, |totals| totals.cas_attempts),
            (&f::SHARED_RETRIES, |totals| totals.cas_retries),
            (&f::SHARED_STALLS, |totals| totals.window_stalls),
            (&f::SHARED_DRAINED, |totals| totals.drained),
            (&f::SHARED_FOR_OTHERS, |totals| totals.drained_for_others),
        ] {
            let mut samples = out.family(family);
            for (worker, port, totals) in &shared {
                samples.add(&[worker, port], value(totals));
            }
        }
        let mut spent = out.family(&f::SHARED_CYCLES);
        for (worker, port, totals) in &shared {
            for (stage, cycles) in [
                ("claim", totals.claim_cycles),
                ("process", totals.process_cycles),
                ("commit", totals.commit_cycles),
                ("stall", totals.stall_cycles),
            ] {
                spent.add(&[worker, port, stage], cycles);
            }
        }
        let mut waiting = out.family(&f::SHARED_WAITING);
        for port in self.all_ports() {
            let of_port = || shared.iter().filter(|(_, name, _)| *name == port.name);
            if of_port().next().is_some() {
                let claimed: u64 = of_port().map(|(.., totals)| totals.blocks).sum();
                let drained: u64 = of_port().map(|(.., totals)| totals.drained).sum();
                waiting.add(&[&port.name], claimed.saturating_sub(drained));
            }
        }
    }

    fn process(&self, out: &mut Exposition) {
        let process = Process::now();
        let (started, _) = self.started;
        let since_1970 = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        one(out, &f::PROCESS_CPU, process.cpu_seconds);
        one(out, &f::PROCESS_START, since_1970.as_secs_f64());
        one(out, &f::PROCESS_RESIDENT, process.resident_bytes);
        one(out, &f::PROCESS_VIRTUAL, process.virtual_bytes);
        one(out, &f::PROCESS_THREADS, process.threads);
        one(out, &f::PROCESS_FDS, process.open_fds);
        one(out, &f::PROCESS_FDS_MAX, process.max_fds.map_or(f64::INFINITY, real));
    }

    fn each_worker_port<'s>(&'s self, mut visit: impl FnMut(&str, &'s WorkerCounters, PortId, &'s PortView)) {
        for function in &self.functions {
            for (worker, counters) in function.numbered() {
                for (at, port) in function.ports.iter().enumerate() {
                    visit(&worker, counters, number(at), port);
                }
            }
        }
    }
}

/// A family of one sample.
pub fn one(out: &mut Exposition, family: &'static Family, value: impl Into<Value>) {
    out.family(family).add(&[], value);
}

fn number(port: usize) -> PortId {
    PortId(u8::try_from(port).unwrap_or(u8::MAX))
}

/// A histogram in a unit of which one is `scale` of what was counted.
fn buckets(totals: &HistogramTotals, scale: f64) -> Buckets {
    Buckets {
        bounds: totals.bounds.iter().map(|&bound| real(bound) / scale).collect(),
        counts: totals.counts.clone(),
        sum: real(totals.sum) / scale,
    }
}

fn seconds_of(ns: u64) -> f64 {
    real(ns) / 1e9
}

#[allow(clippy::cast_precision_loss)] // A figure for people beyond 2^53.
fn real(count: u64) -> f64 {
    count as f64
}
