//! A run: generators and receiver over ports of any kind, on one thread or on several.
//!
//! ```text
//!    ┌──────────────── for each port: make(now) ─▶ push ──────────────────┐
//!    └── for each port: receive ─▶ neighbours │ Receiver::arrive(now) ◀───┘      until the time is over, and all is back
//! ```
//! In L3 mode gateways are asked for first, and the run begins when all have answered.

mod apart;
mod line;
mod neighbour;
mod ports;
mod threads;
mod turn;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kaido_engine::{Batch, PoolCache};
use serde::{Deserialize, Serialize};

use crate::generator::{CompiledTraffic, Problem};
use crate::oracle::Rule;
use crate::receive::{JudgeSettings, Receiver, SentShare};
use crate::result::{ClockCosts, RunResult};
use crate::stream::Traffic;
pub use line::{Line, addressed, addressed_rules, resolve};
pub(crate) use ports::steered;
pub use ports::{OpenError, OpenPort};
pub use threads::{Arrivals, Outlet, PassResult, apart};
pub use turn::PortTurn;

/// Looks at the clock that calibrate it.
const LOOKS: usize = 2001;

/// How a run goes.
#[derive(Clone, Debug, PartialEq)]
pub struct RunSettings {
    /// How long is sent. Streams that end by themselves end the run when all have.
    pub duration: Duration,
    /// How long packets may still come when nothing is sent any more; less when all have come.
    pub drain: Duration,
    /// How long gateways have to answer.
    pub resolve: Duration,
    /// On which threads.
    pub threads: Threads,
    /// How packets are judged.
    pub judge: JudgeSettings,
}

/// The threads of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threads {
    /// As [`Threads::Apart`] where there is a CPU for each thread, else as [`Threads::One`].
    #[default]
    Auto,
    /// One turns all ports and judges.
    One,
    /// One for each port, which sends and receives, and one that judges.
    Apart,
}

impl Threads {
    /// Whether so many ports have threads of their own.
    #[must_use]
    pub fn is_apart(self, ports: usize) -> bool {
        let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
        match self {
            Self::Auto => ports > 0 && ports < cpus(),
            Self::One => false,
            Self::Apart => ports > 0,
        }
    }
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(10),
            drain: Duration::from_millis(500),
            resolve: Duration::from_secs(3),
            threads: Threads::default(),
            judge: JudgeSettings::default(),
        }
    }
}

/// What a run ends with: its result, and the frames of the findings that are kept, with their times in nanoseconds of the run.
/// Where it is known, the frame that should have come is in front of the one that came.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// What it gave.
    pub result: RunResult,
    /// Frames to be saved.
    pub frames: Vec<(u64, Vec<u8>)>,
}

/// Why a run ends without a result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The traffic or the rules are wrong.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Wrong(Vec<Problem>),
    /// A port could not be opened.
    #[error("port `{port}`: {error}")]
    Open {
        /// Its name.
        port: String,
        /// Why.
        error: OpenError,
    },
    /// Not one port for each that the traffic names.
    #[error("{given} ports are given for {named} that the traffic names")]
    Ports {
        /// Ports that are open.
        given: usize,
        /// Ports of the traffic.
        named: usize,
    },
    /// A gateway did not answer.
    #[error("port `{port}`: {gateway} does not answer; is it on the link, and up?")]
    NoGateway {
        /// The port.
        port: String,
        /// The gateway.
        gateway: IpAddr,
    },
    /// A port in L3 mode has no MAC address, and none is given.
    #[error("port `{port}`: its device has no MAC address: give one with link.l3.mac")]
    NoMac {
        /// The port.
        port: String,
    },
}

/// Opens the ports that traffic names.
///
/// # Errors
/// [`RunError::Open`].
pub fn open_ports(traffic: &Traffic) -> Result<Vec<OpenPort>, RunError> {
    let open = |spec: &crate::stream::PortSpec| {
        OpenPort::open(spec).map_err(|error| RunError::Open { port: spec.name.clone(), error })
    };
    traffic.ports.iter().map(open).collect()
}

/// Sends traffic out of its ports and judges what comes back. `stop` ends it early, with a result. `progress` is told, about
/// once a second, how many packets have come.
///
/// # Errors
/// [`RunError`].
pub fn run_traffic(
    traffic: &Traffic,
    rules: &[Rule],
    settings: &RunSettings,
    ports: Vec<OpenPort>,
    stop: &AtomicBool,
    progress: &dyn Fn(Duration, u64),
) -> Result<RunOutcome, RunError> {
    run_again(traffic, rules, settings, ports, stop, progress).map(|(outcome, _)| outcome)
}

/// As [`run_traffic`], and gives the ports back, for another run.
pub(crate) fn run_again(
    traffic: &Traffic,
    rules: &[Rule],
    settings: &RunSettings,
    ports: Vec<OpenPort>,
    stop: &AtomicBool,
    progress: &dyn Fn(Duration, u64),
) -> Result<(RunOutcome, Vec<OpenPort>), RunError> {
    if ports.len() != traffic.ports.len() {
        return Err(RunError::Ports { given: ports.len(), named: traffic.ports.len() });
    }
    let specs = traffic.ports.iter().zip(ports);
    let mut lines = specs.map(|(spec, open)| Line::new(spec, open)).collect::<Result<Vec<_>, _>>()?;
    resolve(&mut lines, settings.resolve, stop, &mut || ())?;
    let traffic = addressed(traffic, &lines);
    let rules = addressed_rules(rules, &lines);
    let compiled = Arc::new(CompiledTraffic::new(&traffic).map_err(RunError::Wrong)?);
    let judge = JudgeSettings { workers: 1, ..settings.judge.clone() };
    let receiver = Receiver::new(&compiled, &rules, judge).map_err(RunError::Wrong)?;
    let turns: Vec<PortTurn> =
        lines.into_iter().enumerate().map(|(port, line)| PortTurn::new(line, &compiled, port)).collect();
    let clock = clock_costs();
    let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let run = Run { receiver, settings, stop, progress };
    let ended = if settings.threads.is_apart(turns.len()) { run.apart(turns) } else { run.alone(turns) };
    let sent: Vec<SentShare> = ended
        .turns
        .iter()
        .flat_map(PortTurn::sent)
        .map(|(stream, volume)| SentShare { stream, worker: 0, volume })
        .collect();
    let (mut result, frames) = ended.receiver.finish(&sent, ended.duration_ns, clock);
    result.started_unix_ns = u64::try_from(started.as_nanos()).unwrap_or(u64::MAX);
    result.threads = ended.threads;
    for ((port, turn), held_up) in result.ports.iter_mut().zip(&ended.turns).zip(ended.held_up) {
        (port.failed, port.held_up) = (turn.failed(), held_up);
    }
    Ok((RunOutcome { result, frames }, ended.turns.into_iter().map(PortTurn::into_port).collect()))
}

/// A run under way.
struct Run<'r> {
    receiver: Receiver,
    settings: &'r RunSettings,
    stop: &'r AtomicBool,
    progress: &'r dyn Fn(Duration, u64),
}

/// What a run leaves.
struct RunEnd {
    turns: Vec<PortTurn>,
    receiver: Receiver,
    /// Until the last packet was sent.
    duration_ns: u64,
    threads: u32,
    /// By port; see [`crate::result::PortResult::held_up`].
    held_up: Vec<u64>,
}

impl Run<'_> {
    /// On one thread.
    fn alone(mut self, mut turns: Vec<PortTurn>) -> RunEnd {
        let mut batch = Batch::new();
        let end_ns = u64::try_from(self.settings.duration.as_nanos()).unwrap_or(u64::MAX);
        let began = Instant::now();
        let mut told = Duration::ZERO;
        let mut quiet_since: Option<Instant> = None;
        let mut duration_ns = 0;
        loop {
            let now = began.elapsed();
            let is_over = now >= self.settings.duration || self.stop.load(Ordering::Relaxed);
            let is_sending = !is_over && turns.iter().any(|turn| turn.next_due_ns().is_some());
            let mut sent = 0;
            for turn in &mut turns {
                if is_sending {
                    turn.make(nanoseconds(began).min(end_ns));
                }
                sent += turn.push();
            }
            if is_sending || sent > 0 {
                duration_ns = nanoseconds(began);
            }
            let mut received = 0;
            for (port, turn) in turns.iter_mut().enumerate() {
                turn.receive(&mut batch);
                received += batch.len();
                judge(&mut self.receiver, port, &mut batch, nanoseconds(began), turn.cache());
            }
            self.tell(now, &mut told);
            // Silence since the last that was sent or came; files come to their end.
            let is_busy = is_sending || sent + received > 0;
            let since = *quiet_since.get_or_insert_with(Instant::now);
            if is_busy {
                quiet_since = None;
            } else if since.elapsed() >= self.settings.drain || turns.iter().all(PortTurn::is_exhausted) {
                break;
            }
            if sent + received == 0 {
                let due = turns.iter().filter_map(PortTurn::next_due_ns).min();
                rest(is_sending, due, nanoseconds(began));
            }
        }
        let held_up = vec![0; turns.len()];
        RunEnd { turns, receiver: self.receiver, duration_ns, threads: 1, held_up }
    }

    /// Tells, about once a second, how it goes.
    fn tell(&self, now: Duration, told: &mut Duration) {
        if now >= *told + Duration::from_secs(1) {
            *told = now;
            (self.progress)(now, self.receiver.received());
        }
    }
}

/// Takes in what came at a port, and gives the frames back.
fn judge(receiver: &mut Receiver, port: usize, batch: &mut Batch, now_ns: u64, cache: &mut PoolCache) {
    for frame in batch.drain(..) {
        if frame.is_chained() {
            receiver.arrive(port, &frame.to_vec(), now_ns);
        } else {
            receiver.arrive(port, frame.data(), now_ns);
        }
        cache.release(frame);
    }
}

/// Waits until the next packet is due, if that is worth a sleep.
fn rest(is_sending: bool, due_ns: Option<u64>, now_ns: u64) {
    let left = due_ns.map_or(u64::MAX, |due| due.saturating_sub(now_ns));
    if is_sending && left < 100_000 {
        std::hint::spin_loop();
    } else {
        std::thread::sleep(Duration::from_micros(20));
    }
}

fn nanoseconds(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// What a look at the clock costs, and how far apart two looks are at least.
pub fn clock_costs() -> ClockCosts {
    let mut looks = Vec::with_capacity(LOOKS);
    let began = Instant::now();
    (0..LOOKS).for_each(|_| looks.push(Instant::now()));
    let all = began.elapsed().as_nanos() as f64;
    let steps =
        looks.windows(2).map(|pair| pair[1].duration_since(pair[0]).as_nanos()).filter(|step| *step > 0);
    ClockCosts {
        read_ns: all / LOOKS as f64,
        resolution_ns: u64::try_from(steps.min().unwrap_or(0)).unwrap_or(0),
        packets_per_stamp: u32::try_from(kaido_engine::BATCH_MAX).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests;
