//! What a network function is to the node that runs it.
//!
//! ```text
//!   node: pool, control socket, metrics, stop
//!     │ FunctionContext                  ▲ Running: ports, workers, figures
//!     ▼                                  │
//!   a thread a function: opens its ports, starts its workers, turns its control loop
//!     ▲
//!     └─ questions of the control socket, answered between two turns
//! ```

use std::any::Any;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;

use kaido_engine::{FramePool, Function, Notifier, PacketSamples, PortId, Vrf, WorkerCounters};
use kaido_metrics::Family;
use kaido_xdp::Program;
use miette::miette;
use rustix::event::{PollFd, PollFlags, poll};

use super::board::{Heartbeat, PortBoard};
use super::metrics::source::MetricsSource;
use super::ports::{OpenPorts, Queue};
use super::questions::QuestionQueue;
use super::route_mirror::RouteMirror;
use super::takeover::Takeover;
use super::upgrade::{Before, HandOver, Stage};
use super::worker_set::WorkerSet;
use crate::api::{Route, Status};
use crate::config::{Base, FilePart, Findings, FunctionSchema, PortConfig};
use crate::init::FirstConfig;
use crate::listing::Listing;
use crate::root_folder::RootFolder;
use crate::show::target::ControlTarget;
pub use crate::view::{
    Answer, CountedTraffic, DatapathChoice, FunctionStatus, FunctionView, Part, PreparedReload,
    ReloadRefusal, Traces, fields,
};

/// Longest sleep of a control loop: how soon a signal, or the end of a worker, is noticed.
const PACE_NS: i64 = 50_000_000;

/// Which datapath a function would choose, before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatapathAdvice {
    /// Whether the kernel is to forward by what the ports are.
    pub is_kernel: bool,
    /// Why.
    pub reason: String,
    /// Why there is no room for the kernel's tables, where there is none.
    pub no_room: Option<String>,
}

/// A way to name a flow whose packets are to be traced: an option of `kaido trace` and `kaido capture`.
#[derive(Clone, Copy, Debug)]
pub struct FlowSelector {
    /// The option, without dashes.
    pub name: &'static str,
    /// What stands for its value in the help, such as `ADDRESS`.
    pub value_name: &'static str,
    /// What it selects.
    pub help: &'static str,
    /// Says what is wrong with a value.
    pub check: fn(&str) -> Result<(), String>,
}

/// A network function, as the binary has it in its list.
pub trait NetworkFunction: Sync {
    /// Its name in the file, and what the file has for it: the reference of its fields.
    fn schema(&self) -> FunctionSchema;

    /// Its name in the file: `function = "…"`.
    fn name(&self) -> &'static str {
        self.schema().name
    }

    /// Reads its part of a file.
    ///
    /// # Errors
    /// What is misspelt or of the wrong kind.
    fn read(&self, part: FilePart<'_>) -> Result<Box<dyn ConfiguredFunction>, toml::de::Error>;

    /// Metrics that it has beyond those of every node.
    fn families(&self) -> &'static [Family];

    /// What may be asked of it over HTTP, beyond what every node answers.
    fn routes(&self) -> &'static [Route] {
        &[]
    }

    /// Options of `kaido trace` and `kaido capture` that name flows of it.
    fn selectors(&self) -> &'static [FlowSelector] {
        &[]
    }

    /// The command line with the commands that only this function has.
    fn commands(&self, command: clap::Command) -> clap::Command {
        command
    }

    /// Executes the command that was given; `None` where it is none of its own.
    fn execute(&self, _command: &clap::ArgMatches) -> Option<miette::Result<()>> {
        None
    }

    /// What `kaido init` asks and writes; `None` where it has nothing to begin with.
    fn first_config(&self) -> Option<FirstConfig> {
        None
    }

    /// What it has many of, for `kaido top`.
    fn listing(&self) -> Option<Listing> {
        None
    }

    /// `kaido show NAME`; `None` where there is nothing beyond `kaido status`.
    fn show(&self, _at: &ControlTarget) -> Option<miette::Result<()>> {
        None
    }

    /// Prints what `kaido status` tells of it before the ports.
    fn print_summary(&self, _status: &Status) {}

    /// Prints what `kaido status` tells of it behind ports and workers.
    fn print_status(&self, _status: &Status) {}
}

/// A function with its part of a configuration.
pub trait ConfiguredFunction: Any + Send + Sync {
    /// What the file has for it.
    fn schema(&self) -> FunctionSchema;

    /// What every function has, with its own ports.
    fn base(&self) -> &Base;

    /// Adds what no single field can tell to be wrong.
    fn check(&self, findings: &mut Findings);

    /// The file in a few words.
    fn summary(&self) -> String;

    /// Whether its packets are longer than those of any link, so that they want large frames.
    fn has_long_packets(&self) -> bool {
        false
    }

    /// Octets of its tables, beside the frames.
    fn table_bytes(&self) -> u64 {
        0
    }

    /// Whether tunnels come in by a port, so that packets in them are longer than those of others.
    fn has_tunnels(&self, _port: &PortConfig) -> bool {
        false
    }

    /// What its choice of a datapath would be with these ports and so many octets of frames, where it has one. Of each port is given
    /// whether AF_XDP would copy its packets; none where that is not known.
    fn advise_datapath(&self, _copies: &[Option<bool>], _frames: u64) -> Option<DatapathAdvice> {
        None
    }

    /// The networks that packets leave for by routes, where it is a matter of the configuration by which ports they may.
    fn ways_out(&self) -> Vec<WayOut> {
        Vec::new()
    }

    /// Folders that only root can make, where the node is another user's: `kaido prepare` makes them.
    fn root_folders(&self) -> Vec<RootFolder> {
        Vec::new()
    }

    /// Runs until the node is to stop.
    ///
    /// # Errors
    /// What kept it from starting, or that a worker died.
    fn run(&self, context: FunctionContext) -> miette::Result<()>;
}

/// A network that packets leave for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WayOut {
    /// By whose routes.
    pub vrf: Vrf,
    /// By which ports of the function.
    pub ports: Vec<PortId>,
}

/// What there is before a function starts.
pub struct FunctionContext {
    /// Frames, for the ports of all functions.
    pub pool: &'static FramePool,
    /// What the node takes over from another, and another from it.
    pub takeover: Arc<Takeover>,
    /// Set when the node is to stop.
    pub stop: Arc<AtomicBool>,
    /// The sockets at which the node is scraped and asked, with their addresses, for a function that guards them from the data network.
    pub management: Vec<(OwnedFd, IpAddr)>,
    /// Number of its first worker, behind those of the functions before it.
    pub first_worker: u8,
    pub(crate) questions: QuestionQueue,
    pub(crate) running: Sender<Running>,
    /// The node that this one takes over from.
    pub(crate) before: Option<Arc<Before>>,
    /// Whether the function has frozen that one.
    pub(crate) is_frozen: bool,
    pub(crate) hand_over: HandOver,
}

/// What the node knows of a function that runs.
pub struct Running {
    /// The node's name, where the function has one, such as the Node ID of PFCP.
    pub node_id: Option<String>,
    /// What forwards.
    pub datapath: &'static str,
    /// Its ports.
    pub board: PortBoard,
    /// What it mirrors of the kernel's routes and neighbours.
    pub mirror: RouteMirror,
    /// What its workers count.
    pub workers: Vec<Arc<WorkerCounters>>,
    /// What it offers to be scraped.
    pub metrics: Box<dyn MetricsSource>,
    /// Turns of its control loop.
    pub heartbeat: Heartbeat,
}

impl FunctionContext {
    /// Starts a worker for each set of queues, with a function of its own.
    ///
    /// # Errors
    /// When `function` fails, or a thread cannot be started.
    pub fn start_workers(
        &self,
        base: &Base,
        queues: Vec<Vec<Queue>>,
        function: impl FnMut() -> miette::Result<Box<dyn Function>>,
    ) -> miette::Result<WorkerSet> {
        self.start_sampled_workers(base, queues, None, function)
    }

    /// As [`FunctionContext::start_workers`], and has them take samples of the packets that come in.
    ///
    /// # Errors
    /// As [`FunctionContext::start_workers`].
    pub fn start_sampled_workers(
        &self,
        base: &Base,
        queues: Vec<Vec<Queue>>,
        samples: Option<&PacketSamples>,
        function: impl FnMut() -> miette::Result<Box<dyn Function>>,
    ) -> miette::Result<WorkerSet> {
        WorkerSet::start(base, self.first_worker, self.pool, queues, samples, function)
    }

    /// What wakes the control loop.
    pub fn notifier(&self) -> &Arc<Notifier> {
        self.questions.notifier()
    }

    /// Whether this process takes over from another.
    pub fn takes_over(&self) -> bool {
        self.before.is_some()
    }

    /// Where this process takes over from another, has nothing change there any more that is to be known here. To be called when
    /// everything is opened that is taken over.
    ///
    /// # Errors
    /// When what is opened is not what the other has, or it does not stop to change.
    pub fn freeze_before(&mut self) -> miette::Result<()> {
        match &self.before {
            Some(before) if !std::mem::replace(&mut self.is_frozen, true) => before.freeze(),
            _ => Ok(()),
        }
    }

    /// Where this process takes over from another, has that one's workers stop, and takes the ports. To be called when all else is
    /// ready, before the [queues](OpenPorts::take_queues) are taken.
    ///
    /// # Errors
    /// When the other process does not let go of them.
    pub fn take_ports<P: Program + 'static>(&mut self, opened: &mut OpenPorts<P>) -> miette::Result<()> {
        self.freeze_before()?;
        if let Some(before) = &self.before {
            before.take_ports()?;
            opened.reopen()?;
        }
        Ok(())
    }

    /// Tells the node that the function runs; the control loop beats the heartbeat from here on.
    pub fn run(self, running: Running) -> ControlLoop {
        let heartbeat = running.heartbeat.clone();
        // A node that does not listen any more has set the flag.
        let _ = self.running.send(running);
        ControlLoop { stop: self.stop, questions: self.questions, heartbeat, hand_over: self.hand_over }
    }
}

/// The control loop of a function, in its thread.
pub struct ControlLoop {
    stop: Arc<AtomicBool>,
    questions: QuestionQueue,
    heartbeat: Heartbeat,
    hand_over: HandOver,
}

impl ControlLoop {
    /// What who hands the node over wants of the function.
    pub fn stage(&self) -> Stage {
        self.hand_over.stage()
    }

    /// The function does not change any more what the next process is to know.
    pub fn freeze(&self) {
        self.hand_over.set(Stage::Frozen);
    }

    /// The function could not be frozen: [`Stage::Thaw`] is next.
    pub fn want_thaw(&self) {
        self.hand_over.set(Stage::Thaw);
    }

    /// The function goes on as before.
    pub fn thaw(&self) {
        self.hand_over.set(Stage::Runs);
    }

    /// Hands the ports over to the process that asks for them: workers stop, and programs stay. Returns when it is known what becomes
    /// of this process; programs go with it, where no other has taken over.
    ///
    /// # Errors
    /// When the ports cannot be left, or a worker has ended by itself.
    pub fn hand_over<P: Program + 'static>(
        &self,
        opened: &mut OpenPorts<P>,
        workers: WorkerSet,
    ) -> miette::Result<()> {
        opened.leave(&workers.inboxes())?;
        let were_well = workers.stop();
        self.hand_over.set(Stage::Left);
        if self.hand_over.next(Stage::Left) == Stage::Gone {
            opened.let_programs_stay();
        }
        if were_well {
            Ok(())
        } else {
            Err(miette!(help = "please report it", "a worker ended unexpectedly"))
        }
    }

    /// Whether the node is to stop.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Says that the loop turns: to be called in each turn.
    pub fn beat(&self) {
        self.heartbeat.beat();
    }

    /// What a question wakes the loop by.
    pub fn notifier(&self) -> &Arc<Notifier> {
        self.questions.notifier()
    }

    /// Whether nothing was asked.
    pub fn is_quiet(&self) -> bool {
        self.questions.is_empty()
    }

    /// Answers what was asked.
    pub fn serve(&mut self, view: &mut dyn FunctionView) {
        self.questions.serve(view);
    }

    /// The loop of a function that no control protocol drives. It answers questions until the node is to stop, `failed` says so, or
    /// the ports are to be [handed over](Self::hand_over): then its stage is [`Stage::Leave`].
    pub fn run(&mut self, view: &mut dyn FunctionView, failed: impl Fn() -> bool) {
        while !self.is_stopping() && !failed() {
            match self.stage() {
                // It knows nothing that is not in the configuration.
                Stage::Freeze => self.freeze(),
                Stage::Thaw => self.thaw(),
                Stage::Leave => return,
                Stage::Runs | Stage::Frozen | Stage::Left | Stage::Gone | Stage::Restart => {}
            }
            self.wait();
            self.beat();
            view.turn();
            self.serve(view);
        }
    }

    fn wait(&self) {
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: PACE_NS };
        let notifier = self.notifier();
        notifier.arm();
        if self.is_quiet() {
            // A signal ends the wait early, which is as well.
            let _ = poll(&mut [PollFd::from_borrowed_fd(notifier.as_fd(), PollFlags::IN)], Some(&timeout));
        }
        notifier.disarm();
    }
}
