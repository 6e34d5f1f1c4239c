//! The GRE header remover of `kaido run`.

mod api;
mod config;
mod control;
mod families;
mod init;
mod metrics;
mod ports;
mod rules;
mod show;

use kaido_metrics::Family;
use kaido_node::Stage;
use kaido_node::api::Route;
use kaido_node::board::Heartbeat;
use kaido_node::config::{Base, Datapath, FilePart, Findings, FunctionSchema};
use kaido_node::function::{ConfiguredFunction, DatapathChoice, FunctionContext, NetworkFunction, Running};
use kaido_node::init::FirstConfig;
use kaido_node::listing::Listing;
use kaido_node::port_trace::PortTraces;
use kaido_node::show::ControlTarget;

use self::config::GreConfig;
use self::control::GreView;
use self::metrics::GreMetrics;
use self::ports::Ports;
use self::rules::Rules;
use crate::{Gre, GreDrop, SharedState};

/// Removes GRE headers.
pub struct GreFunction;

impl NetworkFunction for GreFunction {
    fn schema(&self) -> FunctionSchema {
        config::SCHEMA
    }

    fn read(&self, part: FilePart<'_>) -> Result<Box<dyn ConfiguredFunction>, toml::de::Error> {
        Ok(Box::new(GreConfig::read(part)?))
    }

    fn first_config(&self) -> Option<FirstConfig> {
        Some(init::FIRST_CONFIG)
    }

    fn listing(&self) -> Option<Listing> {
        Some(show::RULES)
    }

    fn families(&self) -> &'static [Family] {
        families::FAMILIES
    }

    fn routes(&self) -> &'static [Route] {
        api::ROUTES
    }

    fn show(&self, at: &ControlTarget) -> Option<miette::Result<()>> {
        Some(show::gre(&at.socket, at.json))
    }
}

impl ConfiguredFunction for GreConfig {
    fn schema(&self) -> FunctionSchema {
        config::SCHEMA
    }

    fn base(&self) -> &Base {
        &self.base
    }

    fn check(&self, findings: &mut Findings) {
        config::check(self, findings);
    }

    fn summary(&self) -> String {
        format!("GRE header removal, {} ports, {} rules", self.base.ports.len(), self.rules())
    }

    fn run(&self, context: FunctionContext) -> miette::Result<()> {
        run(self, context)
    }
}

/// Runs a header remover until it is told to stop.
///
/// # Errors
/// What kept it from starting, or that a worker died.
fn run(config: &GreConfig, mut context: FunctionContext) -> miette::Result<()> {
    let pool = context.pool;
    let (mut ports, rules) = Ports::open(config, pool, &context.takeover)?;
    let shared = SharedState::new(rules, config.base.reassembly.limits());
    context.take_ports(&mut ports.opened)?;
    let queues = ports.opened.take_queues();
    let mut counters = Vec::new();
    let worker_set = context.start_workers(&config.base, queues, || {
        let function = Gre::new(&shared, ports.opened.routes());
        counters.push(function.counters());
        Ok(Box::new(function))
    })?;
    ports.opened.attach()?;
    ports.opened.watch(worker_set.inboxes(), None)?;
    let board = ports.opened.board().clone();
    let workers = worker_set.counters();
    tracing::info!(
        frames = pool.frames(),
        pages = %pool.pages(),
        ports = board.count(),
        workers = workers.len(),
        rules = shared.rules().settings().names().len(),
        "the header remover runs"
    );
    let datapath = datapath(*config.base.node.datapath.get_ref());
    let rules = Rules::new(shared, counters, ports.programs(), board.clone());
    let traces = PortTraces::new(worker_set.tracer(), GreDrop::TABLE, board.clone());
    let mut control = context.run(Running {
        node_id: None,
        datapath: datapath.chosen,
        board,
        mirror: ports.opened.mirror(),
        workers,
        metrics: Box::new(GreMetrics::new(rules.clone())),
        heartbeat: Heartbeat::new(),
    });
    control.run(&mut GreView { datapath, rules, traces }, || worker_set.has_lost());
    if control.stage() == Stage::Leave {
        return control.hand_over(&mut ports.opened, worker_set);
    }
    worker_set.end(&mut ports.opened, control.is_stopping())
}

/// What forwards, what the configuration says, and why it is that.
fn datapath(configured: Datapath) -> DatapathChoice {
    let (chosen, reason) = match configured {
        Datapath::Auto => ("engine", "the programs of a header remover are for node.datapath = \"xdp\""),
        _ => (configured.name(), "node.datapath says so"),
    };
    DatapathChoice { chosen, configured: configured.name(), reason: reason.to_owned() }
}
