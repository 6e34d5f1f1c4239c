//! The thread of a run: it sends what is due, has the device carry it, and takes in what comes back, turn by turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kaido_bench::generator::Compiled;
use kaido_bench::receive::{JudgeSettings, Receiver, SentBy};
use kaido_bench::result::Volume;
use kaido_bench::traffic::{self, addressed, addressed_rules, clock_costs, resolve};
use kaido_engine::port::MemoryWire;
use kaido_engine::{BATCH_MAX, Batch};
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};

use super::{Ended, Plan, Shared, pool};
use crate::device::Device;
use crate::ports::open;
use crate::traffic::wrong;

/// Longest sleep when nothing is due, so that stopping takes no longer.
const SLEEP_MAX: Duration = Duration::from_millis(1);
/// Shortest time to sleep for: below it a sleep takes longer than asked.
const SLEEP_MIN: Duration = Duration::from_micros(100);

/// Nanoseconds after a run's end in which packets are still sent that were due before: a busy machine sends as many as
/// an idle one.
const GRACE_NS: u64 = 500_000_000;

/// A port of the run.
struct Line {
    turn: traffic::Turn,
    sent: Volume,
    received: Volume,
}

/// A run that is ready to begin.
pub(super) struct Turn {
    lines: Vec<Line>,
    wires: Vec<MemoryWire>,
    device: Option<Device>,
    receiver: Receiver,
    streams: usize,
    duration_ns: u64,
    drain_ns: u64,
}

impl Turn {
    /// Opens the ports, and in L3 mode asks for their gateways; `compiled` is the traffic as it is described.
    pub(super) fn new(plan: &Plan, compiled: Compiled, judge: JudgeSettings) -> Result<Self, PyErr> {
        let pool = pool().map_err(PyOSError::new_err)?;
        let device = plan.device.as_ref().map(|device| Device::new(device, compiled.ports())).transpose();
        let mut device = device.map_err(PyValueError::new_err)?;
        let wires: Vec<_> = plan.traffic.ports.iter().map(|_| MemoryWire::new()).collect();
        let failed = |error: traffic::RunError| PyOSError::new_err(error.to_string());
        let specs = plan.traffic.ports.iter().zip(&wires);
        let mut lines = specs
            .map(|(spec, wire)| {
                let port = open(spec, wire, pool).map_err(PyOSError::new_err)?;
                traffic::Line::new(spec, port).map_err(failed)
            })
            .collect::<Result<Vec<_>, PyErr>>()?;
        let mut carry = || device.iter_mut().for_each(|device| device.carry(&wires));
        let within = Duration::from_nanos(plan.resolve_ns);
        resolve(&mut lines, within, &AtomicBool::new(false), &mut carry).map_err(failed)?;
        let described = addressed(&plan.traffic, &lines);
        let compiled = if described == plan.traffic {
            compiled
        } else {
            Compiled::new(&described).map_err(|problems| wrong(&problems))?
        };
        let compiled = Arc::new(compiled);
        let rules = addressed_rules(&plan.rules, &lines);
        let receiver = Receiver::new(&compiled, &rules, judge).map_err(|problems| wrong(&problems))?;
        let lines = lines.into_iter().enumerate().map(|(number, line)| Line {
            turn: traffic::Turn::new(line, &compiled, number),
            sent: Volume::default(),
            received: Volume::default(),
        });
        Ok(Self {
            lines: lines.collect(),
            wires,
            device,
            receiver,
            streams: plan.traffic.streams.len(),
            duration_ns: plan.duration_ns.unwrap_or(u64::MAX).max(1),
            drain_ns: plan.drain_ns,
        })
    }

    /// Runs to the end; the result, and the frames of the findings that are kept, with their times.
    pub(super) fn run(mut self, shared: &Shared) -> Ended {
        let clock = clock_costs();
        let started_unix_ns = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut time = Time::new();
        let (mut sending, mut sent_for_ns, mut last_ns) = (true, 0, 0);
        loop {
            time.pause(shared.pause.load(Ordering::Relaxed));
            let now_ns = time.now_ns();
            if sending && (shared.stop.load(Ordering::Relaxed) || self.is_over(now_ns)) {
                (sending, sent_for_ns, last_ns) = (false, now_ns.min(self.duration_ns), now_ns);
            }
            let sent = self.send(sending && !time.is_paused(), &time, shared);
            if let Some(device) = &mut self.device {
                device.carry(&self.wires);
            }
            let before = self.receiver.received();
            let received = self.receive(&time, shared);
            let now_ns = time.now_ns();
            // Others' packets keep no run from ending.
            if sent > 0 || self.receiver.received() > before {
                last_ns = now_ns;
            }
            if !sending && now_ns.saturating_sub(last_ns) >= self.drain_ns {
                break;
            }
            if sent + received > 0 {
                self.publish(shared, now_ns, sending);
            } else {
                self.rest(sending, &time);
            }
        }
        self.publish(shared, sent_for_ns, false);
        let sent = self.sent();
        let failed: Vec<_> = self.lines.iter().map(|line| line.turn.failed()).collect();
        let (mut result, frames) = self.receiver.finish(&sent, sent_for_ns, clock);
        result.threads = 1;
        result.started_unix_ns = u64::try_from(started_unix_ns.as_nanos()).unwrap_or(u64::MAX);
        result.ports.iter_mut().zip(failed).for_each(|(port, failed)| port.failed = failed);
        (result, frames)
    }

    /// Whether all that is due within the run was sent, or there was time enough for it.
    fn is_over(&self, now_ns: u64) -> bool {
        let due_ns = |line: &Line| line.turn.next_due_ns();
        let is_sent = |line: &Line| {
            line.turn.waiting().is_empty() && due_ns(line).is_none_or(|due_ns| due_ns >= self.duration_ns)
        };
        let is_unpaced = |line: &Line| due_ns(line) == Some(0);
        (now_ns >= self.duration_ns && self.lines.iter().any(is_unpaced))
            || now_ns >= self.duration_ns.saturating_add(GRACE_NS)
            || self.lines.iter().all(is_sent)
    }

    /// Sends what is due; how many packets the ports took.
    fn send(&mut self, make: bool, time: &Time, shared: &Shared) -> usize {
        let mut taken = 0;
        for (number, line) in self.lines.iter_mut().enumerate() {
            if make {
                // What is late is stamped with the run's last moment: waiting for its turn is part of its latency.
                line.turn.make(time.now_ns().min(self.duration_ns - 1));
            }
            if line.turn.waiting().is_empty() {
                continue;
            }
            let frames: Vec<_> = {
                let state = &mut *shared.state();
                line.turn
                    .waiting()
                    .iter()
                    .map(|frame| {
                        if !state.captures.is_empty() {
                            let bytes = frame.to_vec();
                            let now_ns = time.now_ns();
                            state
                                .captures
                                .iter_mut()
                                .for_each(|capture| capture.see(number, false, now_ns, &bytes));
                        }
                        frame.packet_len()
                    })
                    .collect()
            };
            let gone = line.turn.push();
            frames[..gone].iter().for_each(|len| line.sent.add(*len));
            taken += gone;
        }
        taken
    }

    /// Takes in what has come; how many packets.
    fn receive(&mut self, time: &Time, shared: &Shared) -> usize {
        let mut batch = Batch::new();
        let mut count = 0;
        for (number, line) in self.lines.iter_mut().enumerate() {
            loop {
                line.turn.receive(&mut batch);
                let (came, now_ns) = (batch.len(), time.now_ns());
                if came == 0 {
                    break;
                }
                count += came;
                for frame in batch.drain(..) {
                    let whole;
                    let bytes = if frame.packet_len() == frame.data().len() {
                        frame.data()
                    } else {
                        whole = frame.to_vec();
                        &whole
                    };
                    line.received.add(bytes.len());
                    let captures = &mut shared.state().captures;
                    captures.iter_mut().for_each(|capture| capture.see(number, true, now_ns, bytes));
                    self.receiver.arrive(number, bytes, now_ns);
                    line.turn.cache().release(frame);
                }
                if came < BATCH_MAX {
                    break;
                }
            }
        }
        count
    }

    /// Sleeps until something is due, but never long.
    fn rest(&self, sending: bool, time: &Time) {
        let due_ns = self.lines.iter().filter_map(|line| line.turn.next_due_ns()).min();
        let left = match due_ns.filter(|_| sending && !time.is_paused()) {
            Some(due_ns) => Duration::from_nanos(due_ns.saturating_sub(time.now_ns())).min(SLEEP_MAX),
            None => SLEEP_MAX,
        };
        if left >= SLEEP_MIN {
            thread::sleep(left);
        } else {
            thread::yield_now();
        }
    }

    /// What each stream has sent: what was made, without what no port took.
    fn sent(&self) -> Vec<SentBy> {
        let lines = self.lines.iter().flat_map(|line| line.turn.sent());
        lines.map(|(stream, volume)| SentBy { stream, worker: 0, volume }).collect()
    }

    fn publish(&self, shared: &Shared, time_ns: u64, sending: bool) {
        let live = &mut shared.state().live;
        (live.time_ns, live.sending, live.received) = (time_ns, sending, self.receiver.received());
        live.streams.resize(self.streams, Volume::default());
        for by in self.sent() {
            live.streams[by.stream] = by.volume;
        }
        for (volumes, line) in live.ports.iter_mut().zip(&self.lines) {
            *volumes = [line.sent, line.received];
        }
    }
}

/// The run's time, which pauses do not belong to.
struct Time {
    began: Instant,
    paused_since: Option<Instant>,
}

impl Time {
    fn new() -> Self {
        Self { began: Instant::now(), paused_since: None }
    }

    fn pause(&mut self, paused: bool) {
        match self.paused_since {
            None if paused => self.paused_since = Some(Instant::now()),
            Some(since) if !paused => {
                self.began += since.elapsed();
                self.paused_since = None;
            }
            _ => {}
        }
    }

    fn is_paused(&self) -> bool {
        self.paused_since.is_some()
    }

    fn now_ns(&self) -> u64 {
        let now = self.paused_since.unwrap_or_else(Instant::now);
        u64::try_from(now.duration_since(self.began).as_nanos()).unwrap_or(u64::MAX)
    }
}
