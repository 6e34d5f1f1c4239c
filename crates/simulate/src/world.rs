//! The run: what happens in a step, and where things go wrong.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant, UNIX_EPOCH};

use kaido_engine::FramePool;
use kaido_n4::{Seid, SessionService};
use kaido_pfcp::{Instants, Transmit};
use kaido_store::{Durability, Recorder};

use crate::checks;
use crate::clock::{GIVEN_UP, time_of};
use crate::disk::Kept;
use crate::events::EventLog;
use crate::faults::Sabotage;
use crate::journal::JournalStore;
use crate::message::{Message, REPORT};
use crate::network::{Link, Towards};
use crate::node::{Datapath, Machine, Process, Start};
use crate::options::Options;
use crate::random::Random;
use crate::session::{Octets, Session};
use crate::smf::{self, ControlPlane, Turn};
use crate::store::{ModelStore, Store};
use crate::summary::{Failure, Summary};
use crate::traffic;
use crate::trouble::CrashPoint;

/// When every run begins.
const BEGINS: Duration = Duration::from_secs(1_800_000_000);
/// How often usage is recorded for the next start of the machine.
const CHECKPOINTS: Duration = Duration::from_secs(4);
/// Steps between two moments at which all comes to rest.
const STEPS_TO_REST: u64 = 1200;

/// Runs a seed.
///
/// # Errors
/// What was wrong, with what happened before.
pub fn run(options: &Options) -> Result<Summary, Box<Failure>> {
    let failed = |step, what, events| Box::new(Failure { options: options.clone(), step, what, events });
    // A node starts many times, and touches little of its tables: to clear large pages would take a quarter of the time. A kernel that
    // has no such switch clears them.
    let _ = rustix::thread::disable_transparent_huge_pages(true);
    let mut world = World::new(options).map_err(|what| failed(0, what, Vec::new()))?;
    let done = catch_unwind(AssertUnwindSafe(|| world.run()));
    let what = match done {
        Ok(Ok(())) => return Ok(world.summary()),
        Ok(Err(what)) => what,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
        }
    };
    Err(failed(world.step, what, world.log.last().map(str::to_owned).collect()))
}

/// Usage of sessions as it was recorded.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    /// The batch behind which it is durable.
    pub(crate) batch: u64,
    /// What had passed, and what of that may have been lost before, by control plane, its life, and its SEID.
    pub(crate) passed: BTreeMap<(u8, u64, u64), (Octets, Octets)>,
}

/// What a step is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Control planes ask, and faults come.
    Rough,
    /// All comes to rest.
    Resting,
    /// All rests, and time passes.
    Waiting,
    /// Associations are released, and nobody asks for one.
    Over,
}

pub(crate) struct World {
    pub(crate) options: Options,
    pub(crate) began: Instants,
    pub(crate) time: Duration,
    pub(crate) step: u64,
    pub(crate) log: EventLog,
    pub(crate) machine: Machine,
    pub(crate) store: Store,
    pub(crate) process: Option<Process>,
    pub(crate) starts_at: Duration,
    /// The Recovery Time Stamp that control planes were told first.
    pub(crate) recovery: Option<u32>,
    pub(crate) control_planes: Vec<ControlPlane>,
    pub(crate) links: Vec<Link>,
    /// A control plane is to be cut off as soon as it may be.
    pub(crate) to_cut: Vec<bool>,
    pub(crate) cut_until: Vec<Duration>,
    pub(crate) phase: Phase,
    pub(crate) store_fails_until: Duration,
    pub(crate) crash: Option<CrashPoint>,
    pub(crate) machine_ends_at: Option<Duration>,
    pub(crate) checkpoint_at: Duration,
    /// Begun and not done.
    pub(crate) checkpoint: Option<Checkpoint>,
    /// Done, oldest first.
    pub(crate) checkpoints: VecDeque<Checkpoint>,
    pub(crate) next: u32,
    /// The last two steps, since 1970: what happens in one is seen in the next at the latest.
    last_steps: [Duration; 2],
    /// All is kept that had happened before, since 1970.
    pub(crate) kept_until: Duration,
    /// Sessions that were established before this step.
    established: u64,
    pub(crate) faults: Random,
    pub(crate) packets: Random,
    pub(crate) syncs: Random,
    pub(crate) summary: Summary,
}

thread_local! {
    /// Frames are not given back to the system, so all runs of a thread share them.
    static POOL: std::cell::OnceCell<&'static FramePool> = const { std::cell::OnceCell::new() };
}

fn pool() -> Result<&'static FramePool, String> {
    POOL.with(|pool| match pool.get() {
        Some(pool) => Ok(*pool),
        None => {
            let made = Machine::pool()?;
            Ok(*pool.get_or_init(|| made))
        }
    })
}

impl World {
    fn new(options: &Options) -> Result<Self, String> {
        let random = Random::new(options.seed);
        let mut faults = random.fork(1);
        let nanos = Duration::from_nanos(faults.below(1_000_000_000));
        let began = Instants { monotonic: Instant::now(), wall: UNIX_EPOCH + BEGINS + nanos };
        let store = match &options.folder {
            Some(folder) => Store::Journal(Box::new(JournalStore::new(folder, options.durability))),
            None => Store::Model(ModelStore::new(options.durability, options.sabotage)),
        };
        let numbers = 0..options.control_planes;
        let control_plane = |number: u8| {
            ControlPlane::new(number, options.sessions_max, random.fork(100 + u64::from(number)), began.wall)
        };
        let count = usize::from(options.control_planes);
        Ok(Self {
            began,
            time: Duration::ZERO,
            step: 0,
            log: EventLog::new(options.lines),
            machine: Machine::new(pool()?)?,
            store,
            process: None,
            starts_at: Duration::ZERO,
            recovery: None,
            control_planes: numbers.clone().map(control_plane).collect(),
            links: numbers.map(|number| Link::new(random.fork(200 + u64::from(number)))).collect(),
            to_cut: vec![false; count],
            cut_until: vec![Duration::ZERO; count],
            phase: Phase::Rough,
            store_fails_until: Duration::ZERO,
            crash: None,
            machine_ends_at: None,
            checkpoint_at: CHECKPOINTS,
            checkpoint: None,
            checkpoints: VecDeque::new(),
            next: 0,
            last_steps: [Duration::ZERO; 2],
            kept_until: Duration::ZERO,
            established: 0,
            faults,
            packets: random.fork(2),
            syncs: random.fork(3),
            summary: Summary::default(),
            options: options.clone(),
        })
    }

    pub(crate) fn now(&self) -> Instants {
        self.began.after(self.time)
    }

    fn sum(&self, of: fn(&ControlPlane) -> u64) -> u64 {
        self.control_planes.iter().map(of).sum()
    }

    fn summary(&self) -> Summary {
        let sum = |of| self.sum(of);
        Summary {
            steps: self.step,
            seconds: self.time.as_secs(),
            digest: self.log.digest(),
            events: self.log.count(),
            established: sum(|smf| smf.counts.established),
            deleted: sum(|smf| smf.counts.deleted),
            changed: sum(|smf| smf.counts.changed),
            granted: sum(|smf| smf.counts.granted),
            reports: sum(|smf| smf.counts.reports),
            pages: sum(|smf| smf.counts.pages),
            repeated: sum(|smf| smf.counts.repeated),
            unanswered: sum(|smf| smf.counts.unanswered),
            ..self.summary
        }
    }

    fn run(&mut self) -> Result<(), String> {
        for step in 1..=self.options.steps {
            self.step()?;
            if step % STEPS_TO_REST == 0 || step == self.options.steps {
                self.rest()?;
            }
        }
        self.end()
    }

    pub(crate) fn step(&mut self) -> Result<(), String> {
        self.step += 1;
        let is_long = match self.phase {
            Phase::Rough => self.faults.happens(60_000),
            Phase::Waiting => true,
            Phase::Resting | Phase::Over => false,
        };
        self.time += if is_long { self.faults.span(50_000, 900_000) } else { self.faults.span(500, 40_000) };
        self.log.step(self.step, self.time);
        self.store.turn(self.time, &mut self.syncs);
        if self.store.is_settled() {
            self.kept_until = self.last_steps[0];
        }
        self.last_steps = [self.last_steps[1], time_of(self.now())];
        if self.phase == Phase::Rough {
            self.trouble()?;
        }
        self.mend();
        self.start()?;
        self.control_planes_turn()?;
        self.node_turn()?;
        let established = self.sum(|smf| smf.counts.established);
        match std::mem::replace(&mut self.established, established) == established {
            true => Ok(()),
            false => checks::unique(&self.control_planes),
        }
    }

    /// Starts the node, when it is time.
    pub(crate) fn start(&mut self) -> Result<(), String> {
        if self.process.is_some() || self.starts_at > self.time {
            return Ok(());
        }
        let (kept, recorder): (Kept, Recorder) = self.store.open()?;
        // The process may end while it starts, too.
        let ends_after =
            (self.phase == Phase::Rough && self.faults.happens(100_000)).then(|| self.faults.place(40));
        let now = self.now();
        let start = Start {
            now,
            ends_after,
            order: self.packets.fork(self.step),
            secret: self.syncs.number(),
            answers_first: self.options.sabotage == Some(Sabotage::AnswersFirst),
            other_recovery: self.options.sabotage == Some(Sabotage::OtherRecovery),
        };
        let Self { machine, control_planes, packets, summary, .. } = self;
        let meanwhile = |datapath: &mut Datapath, in_table: &BTreeSet<u64>| {
            each_of_some(control_planes, packets, |session, packets| {
                let is_there = in_table.contains(&session.up_seid);
                if !is_there && !session.is_up() {
                    // Its end is asked for: it may have ended, and others have its address.
                    return Ok(());
                }
                summary.packets_at_start[usize::from(is_there)] += 1;
                match is_there {
                    true => traffic::pass(datapath, now, session, packets),
                    false => traffic::lose(datapath, now, session, packets),
                }
            })
        };
        self.process = Process::start(machine, (&kept, &recorder), start, meanwhile)?;
        let is_there = self.process.is_some();
        self.log.note(format_args!("the node starts with {} records: {is_there}", kept.len()));
        if !is_there {
            self.process_ends(CrashPoint::Idle)?;
        }
        self.machine_may_end();
        Ok(())
    }

    fn control_planes_turn(&mut self) -> Result<(), String> {
        for at in 0..self.control_planes.len() {
            let mut out = Vec::new();
            let time = self.time;
            let received: Vec<_> = std::iter::from_fn(|| self.links[at].next(time, Towards::Smf)).collect();
            if self.control_planes[at].up_at > time {
                continue;
            }
            let (now, phase) = (self.now(), self.phase);
            // What was on its way when it was reached again may be given up yet.
            let may_be_given_up = self.cut_until[at] + GIVEN_UP > time;
            let Self { control_planes, recovery, log, next, .. } = self;
            let smf = &mut control_planes[at];
            smf.may_miss_reports = may_be_given_up;
            let was_associated = smf.is_associated;
            let mut turn = Turn { now, time, out: &mut out, log, next };
            for (_, bytes) in received {
                smf.receive(&bytes, recovery, &mut turn)?;
            }
            smf.poll(&mut turn)?;
            match phase {
                Phase::Rough => smf.act(&mut turn),
                Phase::Resting | Phase::Waiting => {
                    smf.associate(&mut turn);
                    smf.delete_again(&mut turn);
                    smf.change_again(&mut turn);
                    smf.wake_paged(&mut turn);
                    smf.grant(&mut turn);
                }
                Phase::Over => {}
            }
            if self.control_planes[at].is_associated && !was_associated {
                // A report to its life before might be taken for one of a session that has the SEID now.
                self.links[at].clear_answers();
            }
            self.send_from(at, &out);
        }
        Ok(())
    }

    pub(crate) fn send_from(&mut self, at: usize, out: &[Transmit]) {
        for transmit in out {
            let delivery = self.links[at].send(self.time, Towards::Node, &transmit.bytes);
            let kind = Message::read(&transmit.bytes).map_or(0, |message| message.kind);
            self.log.note(format_args!("smf {at} sends {kind}: {delivery:?}"));
        }
    }

    fn node_turn(&mut self) -> Result<(), String> {
        let mut received = Vec::new();
        let time = self.time;
        for (at, link) in self.links.iter_mut().enumerate() {
            let next = || link.next(time, Towards::Node).map(|(when, bytes)| (when, at, bytes));
            received.extend(std::iter::from_fn(next));
        }
        received.sort_by_key(|(when, at, _)| (*when, *at));
        let now = self.now();
        let Some(process) = &mut self.process else { return Ok(()) };
        if let Some(checkpoint) = &mut self.checkpoint
            && process.record_usage(now)
        {
            checkpoint.batch = self.store.next_number();
            self.checkpoints.extend(self.checkpoint.take());
        }
        let mut out = Vec::new();
        for (_, at, bytes) in received {
            process.endpoint.handle(now, self.control_planes[at].address, &bytes, &mut out);
        }
        self.release()?;
        if self.phase == Phase::Rough {
            self.traffic()?;
        }
        if self.ends_at(CrashPoint::BeforeFlush)? {
            return Ok(());
        }
        let Some(process) = &mut self.process else { return Ok(()) };
        let leaves = process.send(now, &mut self.store, out);
        if self.ends_at(CrashPoint::BeforeAnswers)? {
            return Ok(());
        }
        self.transmit(leaves);
        let Some(process) = &mut self.process else { return Ok(()) };
        let mut out = Vec::new();
        process.poll(now, &mut out);
        self.release()?;
        if self.ends_at(CrashPoint::AfterPoll)? {
            return Ok(());
        }
        let Some(process) = &mut self.process else { return Ok(()) };
        let mut leaves = process.send(now, &mut self.store, out);
        leaves.extend(process.send_held(&self.store));
        self.transmit(leaves);
        self.begin_checkpoint();
        self.ends_at(CrashPoint::Idle)?;
        Ok(())
    }

    /// What has waited leaves, where it is to go now.
    fn release(&mut self) -> Result<(), String> {
        let now = self.now();
        let Some(process) = &mut self.process else { return Ok(()) };
        let released = process.datapath.run(now);
        self.summary.released += released.len() as u64;
        traffic::count_released(&mut self.control_planes, now, &released)
    }

    fn ends_at(&mut self, point: CrashPoint) -> Result<bool, String> {
        let ends = self.crash == Some(point);
        if ends {
            self.process_ends(point)?;
        }
        Ok(ends)
    }

    fn begin_checkpoint(&mut self) {
        if self.options.durability != Durability::Disk
            || self.checkpoint_at > self.time
            || self.checkpoint.is_some()
        {
            return;
        }
        let Some(process) = &mut self.process else { return };
        process.begin_checkpoint();
        self.checkpoint_at = self.time + CHECKPOINTS;
        let mut passed = BTreeMap::new();
        for smf in &self.control_planes {
            let of = |(&seid, session): (&u64, &Session)| {
                ((smf.number, smf.life, seid), (session.passed, session.may_be_lost))
            };
            passed.extend(smf.sessions.iter().map(of));
        }
        self.checkpoint = Some(Checkpoint { batch: 0, passed });
        self.settle_checkpoints(false);
    }

    /// Sends messages of the node. Those of one moment come in an order that the node may choose.
    fn transmit(&mut self, mut out: Vec<Transmit>) {
        let order =
            |transmit: &Transmit| Message::read(&transmit.bytes).map(|message| (message.kind, message.seid));
        out.sort_by_key(|transmit| (transmit.to, order(transmit)));
        for Transmit { to, bytes } in out {
            let Some(at) = self.control_planes.iter().position(|smf| smf.address == to) else { continue };
            let message = Message::read(&bytes);
            let is_page = |message: &Message<'_>| message.kind == REPORT && message.usage().is_empty();
            if self.options.sabotage == Some(Sabotage::NoPages) && message.as_ref().is_some_and(is_page) {
                continue;
            }
            let delivery = self.links[at].send(self.time, Towards::Smf, &bytes);
            let Some(message) = message else { continue };
            let (kind, seid, usage) = (message.kind, message.seid, message.usage());
            self.log
                .note(format_args!("the node sends {kind} of {seid:?} to smf {at}: {delivery:?} {usage:?}"));
        }
    }

    /// Packets of some sessions.
    fn traffic(&mut self) -> Result<(), String> {
        let now = self.now();
        let Some(process) = &mut self.process else { return Ok(()) };
        let Self { control_planes, packets, summary, .. } = self;
        each_of_some(control_planes, packets, |session, packets| {
            summary.packets += 1;
            pass_if_there(process, now, session, packets)
        })
    }
}

/// Has packets of a session of most control planes.
fn each_of_some(
    control_planes: &mut [ControlPlane],
    packets: &mut Random,
    mut each: impl FnMut(&mut Session, &mut Random) -> Result<(), String>,
) -> Result<(), String> {
    for smf in control_planes {
        if packets.happens(300_000) {
            continue;
        }
        let chosen = smf::any(&smf.sessions, packets, traffic::has_traffic);
        if let Some(session) = chosen.and_then(|seid| smf.sessions.get_mut(&seid)) {
            each(session, packets)?;
        }
    }
    Ok(())
}

fn pass_if_there(
    process: &mut Process,
    now: Instants,
    session: &mut Session,
    packets: &mut Random,
) -> Result<(), String> {
    // One whose end is asked for may have ended, and others have its address.
    match session.is_up() || process.endpoint.service().has_session(Seid(session.up_seid)) {
        true => traffic::pass(&mut process.datapath, now, session, packets),
        false => Ok(()),
    }
}
