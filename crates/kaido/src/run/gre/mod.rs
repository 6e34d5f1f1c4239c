//! The GRE header remover of `kaido run`.

mod control;
mod metrics;
mod ports;
mod rules;

use std::time::Instant;

use kaido_gre::{Gre, GreDrop, SharedState};
use miette::IntoDiagnostic;

use self::control::GreView;
use self::metrics::GreMetrics;
use self::ports::Ports;
use self::rules::Rules;
use super::board::{Health, Heartbeat};
use super::control::Control;
use super::metrics::Figures;
use super::port_trace::PortTraces;
use super::{NodeContext, WorkerSet, export, notify};
use crate::config::{Datapath, GreConfig};

/// Runs a header remover until it is told to stop.
///
/// # Errors
/// What kept it from starting, or that a worker died.
pub(super) fn run(config: &GreConfig, context: NodeContext) -> miette::Result<()> {
    let NodeContext { stop, server, scraped, pool } = context;
    let mut ports = Ports::open(config, pool)?;
    let shared =
        SharedState::new(ports.settings().clone(), config.base.reassembly.limits()).into_diagnostic()?;
    let queues = ports.opened.take_queues();
    let mut counters = Vec::new();
    let worker_set = WorkerSet::start(&config.base, pool, queues, || {
        let function = Gre::new(&shared, ports.opened.routes());
        counters.push(function.counters());
        Ok(Box::new(function))
    })?;
    ports.opened.attach()?;
    ports.opened.watch(worker_set.inboxes(), None)?;
    let shown = ports.opened.board().clone();
    let heartbeat = Heartbeat::new();
    let health = Health { board: shown.clone(), heartbeat: heartbeat.clone() };
    let workers = worker_set.counters();
    let node_id = rustix::system::uname().nodename().to_string_lossy().into_owned();
    tracing::info!(
        node_id,
        frames = pool.frames(),
        pages = %pool.pages(),
        ports = shown.len(),
        workers = workers.len(),
        rules = ports.settings().names().len(),
        "the header remover runs"
    );
    let datapath = datapath(*config.base.node.datapath.get_ref());
    let rules = Rules::new(shared, counters, ports.programs(), shown.clone());
    let exporter = scraped.map(|endpoint| {
        let figures =
            Figures::new(("gre", datapath[0]), node_id.clone(), pool, shown.clone(), workers.clone());
        export(endpoint, GreMetrics::new(figures, rules.clone()), health)
    });
    let exporter = exporter.transpose()?;
    let traces = PortTraces::new(
        worker_set.tracer(),
        GreDrop::TABLE,
        shown.list().into_iter().map(|port| port.name).collect(),
    );
    let function = GreView { datapath, rules };
    let mut control = Control {
        server,
        node_id,
        started: Instant::now(),
        pool,
        ports: shown,
        heartbeat,
        workers,
        traces,
        function,
    };
    notify(&[sd_notify::NotifyState::Ready]);
    control.run(&stop, || worker_set.has_lost());
    notify(&[sd_notify::NotifyState::Stopping]);
    if let Some(exporter) = exporter {
        exporter.stop();
    }
    worker_set.end(&mut ports.opened, &stop)
}

/// What forwards, what the configuration says, and why it is that.
const fn datapath(configured: Datapath) -> [&'static str; 3] {
    match configured {
        Datapath::Auto => {
            ["engine", "auto", "the programs of a header remover are for node.datapath = \"xdp\""]
        }
        _ => [configured.name(), configured.name(), "node.datapath says so"],
    }
}
