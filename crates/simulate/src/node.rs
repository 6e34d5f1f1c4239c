//! The node: the real endpoint over the real user plane, with a worker on ports in memory, as a process that can end at any
//! moment.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kaido_engine::port::MemoryWire;
use kaido_engine::{FramePool, KernelPath, NeighbourRequest, PortId, Route, Routes, Worker, WorkerSettings};
use kaido_pfcp::{Config, Endpoint, Features, Instants, Limits, Transmit};
use kaido_store::{Kind, Recorder};
use kaido_upf::control::{CountersInUse, NoSession, UePool, Upf};
use kaido_upf::ids::InstanceId;
use kaido_upf::node::{BufferLimits, LiveSettings, Node, NodeSettings};
use kaido_upf::path::Path;
use kaido_upf::usage::{RecordedUsage, UsageSlot};

use crate::disk::Kept;
use crate::fixture::{DN_MAC, GNB_MAC, N3, N6, ip, with_live};
use crate::message::Message;
use crate::random::Random;
use crate::store::Store;

/// Sessions of the node.
pub(crate) const SESSIONS_MAX: u32 = 1200;
/// The address of the node.
pub(crate) const NODE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 100)), 8805);
/// How often control planes are asked for a heartbeat.
const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);
/// How long packets wait for a UE at most.
pub(crate) const BUFFER_TIME_MAX: Duration = Duration::from_secs(8);
/// Frames of the pool.
const FRAMES: usize = 256;
/// Of so many sessions one at most is in the table before its turn, as one that was used last.
const RECENT_SHARE: usize = 8;
/// Sessions whose usage is recorded in one turn.
const SESSIONS_A_TURN: usize = 16;
/// The number of what the node is to its peers.
const SELF: u64 = 0;

/// What outlives the process, and the frames, which every process has its own of.
#[derive(Debug)]
pub(crate) struct Machine {
    pool: &'static FramePool,
    /// The memory of the usage counters.
    memory: File,
    /// It is that of a process before.
    is_of_before: bool,
}

impl Machine {
    /// A machine that was just started.
    ///
    /// # Errors
    /// When there is no memory.
    pub(crate) fn new(pool: &'static FramePool) -> Result<Self, String> {
        Ok(Self { pool, memory: memory()?, is_of_before: false })
    }

    /// Frames for a worker at a time.
    ///
    /// # Errors
    /// When there is no memory.
    pub(crate) fn pool() -> Result<&'static FramePool, String> {
        FramePool::leak_of(kaido_engine::FrameSize::TwoKib, FRAMES).map_err(|error| error.to_string())
    }

    /// The machine starts anew: what was in memory is gone.
    ///
    /// # Errors
    /// When there is no memory.
    pub(crate) fn restart(&mut self) -> Result<(), String> {
        (self.memory, self.is_of_before) = (memory()?, false);
        Ok(())
    }
}

fn memory() -> Result<File, String> {
    let made = rustix::fs::memfd_create("usage", rustix::fs::MemfdFlags::CLOEXEC);
    made.map(File::from).map_err(|error| error.to_string())
}

/// Messages that wait until the store has what they acknowledge or tell, in the order of its batches.
#[derive(Debug, Default)]
struct HeldAnswers(VecDeque<HeldBatch>);

#[derive(Debug)]
struct HeldBatch {
    number: u64,
    since: Instant,
    messages: Vec<Transmit>,
}

/// The process.
pub(crate) struct Process {
    /// The control side.
    pub endpoint: Endpoint<Upf>,
    /// The worker.
    pub datapath: Datapath,
    held: HeldAnswers,
    /// Where among the sessions usage is recorded next, while it is.
    usage_from: Option<usize>,
    /// Answers leave before the store has what they acknowledge.
    answers_first: bool,
}

/// A worker and its ports.
pub(crate) struct Datapath {
    worker: Worker,
    wires: [MemoryWire; 2],
}

/// What a start is told.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    /// The moment.
    pub now: Instants,
    /// After so many sessions the process ends again.
    pub ends_after: Option<usize>,
    /// Which sessions are in the table before their turn. A node goes by the wall clock, which has no part in a run.
    pub order: Random,
    /// What SEIDs and TEIDs follow from.
    pub secret: u64,
    /// See [`crate::faults::Sabotage::AnswersFirst`].
    pub answers_first: bool,
    /// See [`crate::faults::Sabotage::OtherRecovery`].
    pub other_recovery: bool,
}

impl Process {
    /// Starts with what was kept; `None` if the process ends meanwhile. The worker runs from the moment at which counters are
    /// claimed: `meanwhile` is asked before each session, with the SEIDs of those that are in the table.
    ///
    /// # Errors
    /// When something that was kept cannot be taken in, and those of `meanwhile`.
    pub(crate) fn start(
        machine: &mut Machine,
        (kept, recorder): (&Kept, &Recorder),
        mut start: Start,
        mut meanwhile: impl FnMut(&mut Datapath, &BTreeSet<u64>) -> Result<(), String>,
    ) -> Result<Option<Self>, String> {
        let now = start.now;
        let of = |kind: Kind| {
            kept.range((kind, 0)..=(kind, u64::MAX)).map(|(&(_, key), value)| (key, value.as_slice()))
        };
        let was =
            of(Kind::Node).next().and_then(|(_, record)| time_of(record)).filter(|_| !start.other_recovery);
        let recovery = was.unwrap_or(now.wall);
        if was.is_none() {
            recorder
                .put(Kind::Node, SELF, |record| record.extend_from_slice(&millis(recovery).to_le_bytes()));
        }
        let live = |live: LiveSettings| LiveSettings {
            buffer: BufferLimits { time_max: BUFFER_TIME_MAX, ..live.buffer },
            ..live
        };
        let settings =
            NodeSettings { sessions_max: SESSIONS_MAX, recovery: Some(recovery), ..with_live(live) };
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let file = machine.memory.try_clone().map_err(|error| text(&error))?;
        let (node, events) = Node::over(settings, file).map_err(|error| text(&error))?;
        let pools = vec![UePool {
            instance: InstanceId(0),
            ipv4: Some((Ipv4Addr::new(10, 61, 0, 0), 20)),
            ipv6: None,
        }];
        let mut upf = Upf::new(node.clone(), events, pools).map_err(|error| text(&error))?;

        upf.issue_by(start.secret);
        upf.record_by(recorder.clone());
        let of_session = |key: u64, error: NoSession| format!("session {key}: {error}");
        let in_use = CountersInUse::of(
            |each| of(Kind::Session).try_for_each(|(key, record)| each(key, record)),
            of_session,
        )?;
        let is_in_memory = std::mem::replace(&mut machine.is_of_before, true);
        let counted: HashMap<UsageSlot, RecordedUsage> = match is_in_memory {
            true => HashMap::new(),
            false => of(Kind::Usage)
                .filter_map(|(slot, record)| {
                    Some((UsageSlot(u32::try_from(slot).ok()?), RecordedUsage::read(record)?))
                })
                .collect(),
        };
        let counters = upf
            .claim_counters(in_use, |slot| counted.get(&slot).copied().unwrap_or_default())
            .map_err(|error| text(&error))?;
        let mut datapath = Datapath::of(machine.pool, &node)?;
        let mut restoration = upf.restore(counters);
        let mut in_table = BTreeSet::new();
        for (place, (key, record)) in recent_first(of(Kind::Session).collect(), &mut start.order).enumerate()
        {
            if start.ends_after.is_some_and(|count| count <= place) {
                return Ok(None);
            }
            meanwhile(&mut datapath, &in_table)?;
            restoration.resume_one(key, record, now.wall).map_err(|error| of_session(key, error))?;
            in_table.extend(record.first_chunk().map(|seid| u64::from_le_bytes(*seid)));
        }
        let resumed = restoration.finish();
        if let Some((seid, why)) = resumed.refused.first() {
            return Err(format!("session {seid} cannot go on: {why}"));
        }

        let features =
            Features { allocates_f_teids: true, allocates_ue_addresses: true, sends_end_markers: true };
        let limits = Limits { associations: 16, answers: 2048, outstanding: 256 };
        let config = Config {
            features,
            limits,
            recovery,
            heartbeat_interval: HEARTBEAT_INTERVAL,
            ..Config::at(NODE.ip())
        };
        let mut endpoint = Endpoint::new(config, upf, now);
        endpoint.record_by(recorder);
        for kind in Endpoint::<Upf>::RECORDED {
            for (key, record) in of(kind) {
                endpoint
                    .take_in(kind, key, record, now)
                    .map_err(|error| format!("{} {key}: {error}", kind.name()))?;
            }
        }
        Ok(Some(Self {
            endpoint,
            datapath,
            held: HeldAnswers::default(),
            usage_from: None,
            answers_first: start.answers_first,
        }))
    }

    /// What is due.
    pub(crate) fn poll(&mut self, now: Instants, out: &mut Vec<Transmit>) {
        self.endpoint.set_held_since(self.held.0.front().map(|batch| batch.since));
        // What was put off waits for the worker alone.
        loop {
            self.datapath.step(now);
            self.endpoint.poll(now, out);
            if !self.endpoint.is_waiting() {
                return;
            }
        }
    }

    /// Messages as they leave now, as the control loop of the node has it: those that tell what is not durable wait, but for
    /// heartbeats.
    pub(crate) fn send(&mut self, now: Instants, store: &mut Store, out: Vec<Transmit>) -> Vec<Transmit> {
        match store.flush() {
            _ if self.answers_first => out,
            None if self.held.0.is_empty() => out,
            number => {
                let is_heartbeat = |transmit: &Transmit| {
                    Message::read(&transmit.bytes).is_some_and(|message| message.is_heartbeat())
                };
                let (heartbeats, messages): (Vec<_>, Vec<_>) = out.into_iter().partition(is_heartbeat);
                if !messages.is_empty() {
                    let (number, since) = (number.unwrap_or(0), now.monotonic);
                    self.held.0.push_back(HeldBatch { number, since, messages });
                }
                heartbeats
            }
        }
    }

    /// What has waited for the store and leaves now.
    pub(crate) fn send_held(&mut self, store: &Store) -> Vec<Transmit> {
        let mut out = Vec::new();
        while self.held.0.front().is_some_and(|batch| store.is_durable(batch.number)) {
            out.extend(self.held.0.pop_front().into_iter().flat_map(|batch| batch.messages));
        }
        out
    }

    /// Whether messages to somebody wait for the store.
    pub(crate) fn holds_for(&self, peer: SocketAddr) -> bool {
        self.held.0.iter().flat_map(|batch| &batch.messages).any(|message| message.to == peer)
    }

    /// Begins to record usage.
    pub(crate) fn begin_checkpoint(&mut self) {
        self.usage_from = self.usage_from.or(Some(0));
    }

    /// Records the usage of some sessions, if that has begun: says whether all are recorded now.
    pub(crate) fn record_usage(&mut self, now: Instants) -> bool {
        let Some(from) = self.usage_from else { return false };
        self.usage_from = self.endpoint.service_mut().record_usage(from, SESSIONS_A_TURN, now.wall);
        self.usage_from.is_none()
    }

    /// Whether the store has nothing to wait for, and nothing is yet to be done.
    pub(crate) fn is_quiet(&self) -> bool {
        self.held.0.is_empty() && self.endpoint.outstanding() == 0 && !self.endpoint.has_more()
    }
}

impl Datapath {
    fn of(pool: &'static FramePool, node: &Arc<Node>) -> Result<Self, String> {
        let wires = [MemoryWire::new(), MemoryWire::new()];
        let path = Path::new(node, routes().next_hops()).map_err(|error| error.to_string())?;
        let worker = Worker::new(
            pool,
            wires.iter().map(|wire| (Box::new(wire.port()) as _, KernelPath::None)).collect(),
            Box::new(path),
            WorkerSettings::default(),
        );
        Ok(Self { worker, wires })
    }

    /// Sends a frame into a port, and says what comes out.
    pub(crate) fn pass(&mut self, now: Instants, port: PortId, frame: &[u8]) -> Vec<(PortId, Vec<u8>)> {
        self.wires[usize::from(port.0)].send(frame);
        self.run(now)
    }

    /// Lets the worker do what it has to do, and says what comes out.
    pub(crate) fn run(&mut self, now: Instants) -> Vec<(PortId, Vec<u8>)> {
        self.step(now);
        let mut out = Vec::new();
        for port in [N3, N6] {
            out.extend(
                std::iter::from_fn(|| self.wires[usize::from(port.0)].receive()).map(|frame| (port, frame)),
            );
        }
        out
    }

    fn step(&mut self, now: Instants) {
        while self.worker.step_at(now.monotonic) > 0 {}
    }
}

/// Some of the records, then the others in their order.
fn recent_first<T>(mut records: Vec<T>, order: &mut Random) -> impl Iterator<Item = T> {
    let mut first = Vec::new();
    for _ in 0..order.place(records.len() / RECENT_SHARE + 1) {
        first.push(records.remove(order.place(records.len())));
    }
    first.into_iter().chain(records)
}

/// Every destination has a next hop that is known.
fn routes() -> Arc<Routes> {
    let (routes, _) = Routes::new();
    let via = |port, gateway| Route { port: Some(port), gateway: Some(ip(gateway)), metric: 0 };
    routes.set_routes([
        (ip("10.100.3.0"), 24, via(N3, "10.100.3.2")),
        (ip("0.0.0.0"), 0, via(N6, "10.100.6.2")),
    ]);
    for (port, address, mac) in [(N3, "10.100.3.2", GNB_MAC), (N6, "10.100.6.2", DN_MAC)] {
        routes.set_neighbour(NeighbourRequest { port, address: ip(address) }, Some(mac));
    }
    routes
}

fn millis(at: SystemTime) -> u64 {
    u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn time_of(record: &[u8]) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_millis(u64::from_le_bytes(record.try_into().ok()?)))
}
