//! A run: generators and receiver turned on one thread, over ports of any kind.
//!
//! ```text
//!    ┌──────────────── for each port: fill(now) ─▶ transmit ──────────────┐
//!    └── for each port: receive ─▶ neighbours │ Receiver::arrive(now) ◀───┘      until the time is over, and all is back
//! ```
//! In L3 mode gateways are asked for first, and the run begins when all have answered.

mod neighbour;
mod ports;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kaido_engine::port::Port;
use kaido_engine::{Batch, Frame, PoolCache};

use crate::generator::{Compiled, Generator, Problem, link};
use crate::oracle::Rule;
use crate::receive::{JudgeSettings, Receiver, SentBy};
use crate::result::{ClockCosts, RunResult};
use crate::stream::{LinkMode, Mac, Source, Traffic};
use neighbour::Neighbours;
pub use ports::{OpenError, OpenPort};

/// Time between two questions for a gateway.
const ASK_EVERY: Duration = Duration::from_millis(200);
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
    /// How packets are judged.
    pub judge: JudgeSettings,
}

impl Default for RunSettings {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(10),
            drain: Duration::from_millis(500),
            resolve: Duration::from_secs(3),
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

/// A port in use.
struct Line {
    name: String,
    open: OpenPort,
    cache: PoolCache,
    neighbours: Option<Neighbours>,
    out: Batch,
    failed: u64,
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
    if ports.len() != traffic.ports.len() {
        return Err(RunError::Ports { given: ports.len(), named: traffic.ports.len() });
    }
    let mut lines = Vec::new();
    for (spec, open) in traffic.ports.iter().zip(ports) {
        let neighbours = match &spec.link {
            LinkMode::L2 => None,
            LinkMode::L3 { addresses, gateways, mac, vlan } => {
                let mac = mac.map(Mac::octets).or(open.mac);
                let mac = mac.ok_or_else(|| RunError::NoMac { port: spec.name.clone() })?;
                Some(Neighbours::new(mac, *vlan, addresses, gateways))
            }
        };
        let cache = open.pool.cache();
        lines.push(Line { name: spec.name.clone(), open, cache, neighbours, out: Batch::new(), failed: 0 });
    }
    resolve(&mut lines, settings.resolve, stop)?;
    let traffic = addressed(traffic, &lines);
    let rules = addressed_rules(rules, &lines);
    let compiled = Arc::new(Compiled::new(&traffic).map_err(RunError::Wrong)?);
    let judge = JudgeSettings { workers: 1, ..settings.judge.clone() };
    let receiver = Receiver::new(&compiled, &rules, judge).map_err(RunError::Wrong)?;
    let generators = lines
        .iter()
        .enumerate()
        .map(|(port, line)| Generator::new(&compiled, port, (0, 1), line.open.pool, line.open.memory))
        .collect();
    Ok(Run { lines, generators, receiver, batch: Batch::new(), began: Instant::now() }
        .run(settings, stop, progress))
}

/// Asks until every gateway has answered.
fn resolve(lines: &mut [Line], within: Duration, stop: &AtomicBool) -> Result<(), RunError> {
    let began = Instant::now();
    let mut asked: Option<Instant> = None;
    let mut batch = Batch::new();
    loop {
        let is_due = asked.is_none_or(|asked| asked.elapsed() >= ASK_EVERY);
        let mut missing = None;
        for line in lines.iter_mut() {
            let Some(neighbours) = &mut line.neighbours else { continue };
            let port = line.open.neighbours_at();
            port.receive(&mut line.cache, &mut batch);
            for frame in batch.drain(..) {
                if let Some(answer) = neighbours.hear(&frame.to_vec()) {
                    send(port, &mut line.cache, &answer, None);
                }
                line.cache.release(frame);
            }
            if is_due {
                for question in neighbours.questions() {
                    send(port, &mut line.cache, &question, None);
                }
            }
            if let Some(gateway) = neighbours.unresolved().next() {
                missing.get_or_insert_with(|| RunError::NoGateway { port: line.name.clone(), gateway });
            }
        }
        let Some(missing) = missing else { return Ok(()) };
        if began.elapsed() >= within || stop.load(Ordering::Relaxed) {
            return Err(missing);
        }
        if is_due {
            asked = Some(Instant::now());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends one frame, now or never. The generator whose frames are of the same pool learns of it.
fn send(port: &mut dyn Port, cache: &mut PoolCache, bytes: &[u8], generator: Option<&mut Generator>) {
    let mut batch = Batch::new();
    if let Some(frame) = Frame::from_slice(bytes, || cache.allocate()) {
        if let Some(generator) = generator {
            generator.forget(&frame);
        }
        batch.push(frame);
        port.transmit(cache, &mut batch);
        batch.drain(..).for_each(|frame| cache.release(frame));
    }
}

impl Line {
    /// Own link address, and that of the next hop of a family, as far as they are known here.
    fn link(&self, is_ipv4: bool) -> [Option<[u8; 6]>; 2] {
        match &self.neighbours {
            Some(neighbours) => [Some(neighbours.mac()), neighbours.gateway(is_ipv4)],
            None => [self.open.mac, None],
        }
    }
}

/// The traffic with link addresses in its templates: in L3 mode those that were found, else the port's own where the
/// template has none.
fn addressed(traffic: &Traffic, lines: &[Line]) -> Traffic {
    let mut traffic = traffic.clone();
    for stream in &mut traffic.streams {
        let Some(line) = lines.iter().find(|line| line.name == stream.port) else { continue };
        let Source::Template(template) = &mut stream.source else { continue };
        let Some((at, _)) = link(&template.bytes) else { continue };
        let [own, gateway] = line.link(template.bytes.get(at).is_some_and(|version| version >> 4 == 4));
        let is_l3 = line.neighbours.is_some();
        if let Some(gateway) = gateway {
            template.bytes[..6].copy_from_slice(&gateway);
        }
        if let Some(own) = own.filter(|_| is_l3 || template.bytes[6..12] == [0; 6]) {
            template.bytes[6..12].copy_from_slice(&own);
        }
    }
    traffic
}

/// The rules with the link addresses that they do not say.
fn addressed_rules(rules: &[Rule], lines: &[Line]) -> Vec<Rule> {
    let mut rules = rules.to_vec();
    for rule in &mut rules {
        let Rule::Bearers(bearers) = rule else { continue };
        let (outer, inner) = (bearers.local.is_ipv4(), bearers.server.is_ipv4());
        for (side, is_ipv4) in [(&mut bearers.access, outer), (&mut bearers.core, inner)] {
            let Some(line) = lines.iter().find(|line| line.name == side.port) else { continue };
            let [own, gateway] = line.link(is_ipv4).map(|mac| mac.map(Mac::from));
            for (said, found) in [(&mut side.bench_mac, own), (&mut side.device_mac, gateway)] {
                if let Some(found) = found.filter(|_| *said == Mac::default()) {
                    *said = found;
                }
            }
        }
    }
    rules
}

/// Everything that turns.
struct Run {
    lines: Vec<Line>,
    generators: Vec<Generator>,
    receiver: Receiver,
    batch: Batch,
    began: Instant,
}

impl Run {
    fn run(
        mut self,
        settings: &RunSettings,
        stop: &AtomicBool,
        progress: &dyn Fn(Duration, u64),
    ) -> RunOutcome {
        let clock = clock_costs();
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.began = Instant::now();
        let mut told = Duration::ZERO;
        let mut quiet_since: Option<Instant> = None;
        let mut duration_ns = 0;
        loop {
            let now = self.began.elapsed();
            let is_over = now >= settings.duration || stop.load(Ordering::Relaxed);
            let is_sending =
                !is_over && self.generators.iter().any(|generator| generator.next_due_ns().is_some());
            let sent = if is_sending { self.send() } else { self.flush() };
            if is_sending || sent > 0 {
                duration_ns = nanoseconds(self.began);
            }
            let received = self.receive();
            if now >= told + Duration::from_secs(1) {
                told = now;
                progress(now, self.receiver.received());
            }
            // Silence since the last that was sent or came; files come to their end.
            let is_busy = is_sending || sent + received > 0;
            let since = *quiet_since.get_or_insert_with(Instant::now);
            if is_busy {
                quiet_since = None;
            } else if since.elapsed() >= settings.drain
                || self.lines.iter().all(|line| line.open.port.is_exhausted())
            {
                break;
            }
            if sent + received == 0 {
                self.rest(is_sending);
            }
        }
        let lines = self.lines.iter().map(|line| line.failed).collect::<Vec<_>>();
        let sent: Vec<SentBy> = self
            .generators
            .iter()
            .flat_map(|generator| {
                generator.sent().map(|(stream, volume)| SentBy { stream, worker: 0, volume })
            })
            .collect();
        let (mut result, frames) = self.receiver.finish(&sent, duration_ns, clock);
        result.started_unix_ns = u64::try_from(started.as_nanos()).unwrap_or(u64::MAX);
        for (port, failed) in result.ports.iter_mut().zip(lines) {
            port.failed = failed;
        }
        RunOutcome { result, frames }
    }

    /// Sends what is due out of every port; how many the devices took.
    fn send(&mut self) -> usize {
        let mut sent = 0;
        for (line, generator) in self.lines.iter_mut().zip(&mut self.generators) {
            if line.out.is_empty() {
                generator.fill(nanoseconds(self.began), &mut line.cache, &mut line.out);
            }
            sent += line.push();
        }
        sent
    }

    /// Sends what is left in batches; how many the devices took.
    fn flush(&mut self) -> usize {
        self.lines.iter_mut().map(Line::push).sum()
    }

    /// Takes in what came; how many.
    fn receive(&mut self) -> usize {
        let mut received = 0;
        for (number, (line, generator)) in self.lines.iter_mut().zip(&mut self.generators).enumerate() {
            line.open.port.receive(&mut line.cache, &mut self.batch);
            received += self.batch.len();
            let now_ns = nanoseconds(self.began);
            for frame in self.batch.drain(..) {
                generator.forget(&frame);
                if frame.is_chained() {
                    self.receiver.arrive(number, &frame.to_vec(), now_ns);
                } else {
                    self.receiver.arrive(number, frame.data(), now_ns);
                }
                if !line.open.has_side()
                    && let Some(neighbours) = &mut line.neighbours
                    && let Some(answer) = neighbours.hear(frame.data())
                {
                    send(&mut *line.open.port, &mut line.cache, &answer, Some(&mut *generator));
                }
                line.cache.release(frame);
            }
            line.answer_aside(generator, &mut self.batch);
        }
        received
    }

    /// Until the next packet is due, if that is worth a sleep.
    fn rest(&self, is_sending: bool) {
        let due = self.generators.iter().filter_map(Generator::next_due_ns).min();
        let left = due.map_or(u64::MAX, |due| due.saturating_sub(nanoseconds(self.began)));
        if is_sending && left < 100_000 {
            std::hint::spin_loop();
        } else {
            std::thread::sleep(Duration::from_micros(20));
        }
    }
}

impl Line {
    fn push(&mut self) -> usize {
        let before = self.out.len();
        if before > 0 {
            self.failed += self.open.port.transmit(&mut self.cache, &mut self.out) as u64;
        }
        before - self.out.len()
    }

    /// Answers what comes in beside the port; nothing that is there is counted.
    fn answer_aside(&mut self, generator: &mut Generator, batch: &mut Batch) {
        let Some(neighbours) = &mut self.neighbours else { return };
        if !self.open.has_side() {
            return;
        }
        let side = self.open.neighbours_at();
        side.receive(&mut self.cache, batch);
        for frame in batch.drain(..) {
            generator.forget(&frame);
            if let Some(answer) = neighbours.hear(frame.data()) {
                send(side, &mut self.cache, &answer, Some(&mut *generator));
            }
            self.cache.release(frame);
        }
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
