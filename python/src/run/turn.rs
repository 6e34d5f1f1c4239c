//! The thread of a run: it sends what is due, has the device carry it, and takes in what comes back, turn by turn. Ports of
//! devices outside may have threads of their own ([`super::apart`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kaido_bench::generator::CompiledTraffic;
use kaido_bench::receive::{JudgeSettings, Receiver, SentShare};
use kaido_bench::result::Volume;
use kaido_bench::stream::Driver;
use kaido_bench::traffic::{self, addressed, addressed_rules, clock_costs, resolve};
use kaido_engine::port::MemoryWire;
use kaido_engine::{BATCH_MAX, Batch, Frame};
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};

use super::time::Time;
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
pub(super) struct Line {
    pub(super) turn: traffic::PortTurn,
    pub(super) sent: Volume,
    pub(super) received: Volume,
    /// How often it waited for the judge; see [`kaido_bench::result::PortResult::held_up`].
    pub(super) held_up: u64,
}

impl Line {
    /// Sends what is due, or with `make` off what is left of it; how many packets the port took.
    pub(super) fn send(
        &mut self,
        number: usize,
        make: bool,
        duration_ns: u64,
        time: &Time,
        shared: &Shared,
    ) -> usize {
        if make {
            // What is late is stamped with the run's last moment: waiting for its turn is part of its latency.
            self.turn.make(time.now_ns().min(duration_ns - 1));
        }
        if self.turn.waiting().is_empty() {
            return 0;
        }
        let lens: Vec<_> = {
            let captures = &mut shared.state().captures;
            let see = |frame: &Frame| {
                if !captures.is_empty() {
                    let (bytes, now_ns) = (frame.to_vec(), time.now_ns());
                    captures.iter_mut().for_each(|capture| capture.see(number, false, now_ns, &bytes));
                }
                frame.packet_len()
            };
            self.turn.waiting().iter().map(see).collect()
        };
        let gone = self.turn.push();
        lens[..gone].iter().for_each(|len| self.sent.add(*len));
        gone
    }

    /// Adds what has come to an empty batch; when that was.
    pub(super) fn receive(&mut self, number: usize, batch: &mut Batch, time: &Time, shared: &Shared) -> u64 {
        self.turn.receive(batch);
        // Not before: another thread may have sent a packet only just now.
        let now_ns = time.now_ns();
        let captures = &mut shared.state().captures;
        for frame in batch.iter() {
            self.received.add(frame.packet_len());
            if !captures.is_empty() {
                let bytes = frame.to_vec();
                captures.iter_mut().for_each(|capture| capture.see(number, true, now_ns, &bytes));
            }
        }
        now_ns
    }

    /// Whether all that is due within the run was sent.
    pub(super) fn is_sent(&self, duration_ns: u64) -> bool {
        self.turn.waiting().is_empty() && self.turn.next_due_ns().is_none_or(|due_ns| due_ns >= duration_ns)
    }

    /// Whether it sends as fast as it can.
    pub(super) fn is_unpaced(&self) -> bool {
        self.turn.next_due_ns() == Some(0)
    }
}

/// Has a frame that came judged.
pub(super) fn judge(receiver: &mut Receiver, number: usize, frame: &Frame, now_ns: u64) {
    if frame.packet_len() == frame.data().len() {
        receiver.arrive(number, frame.data(), now_ns);
    } else {
        receiver.arrive(number, &frame.to_vec(), now_ns);
    }
}

/// A run that is ready to begin.
pub(super) struct PortTurn {
    pub(super) lines: Vec<Line>,
    wires: Vec<MemoryWire>,
    device: Option<Device>,
    pub(super) receiver: Receiver,
    streams: usize,
    pub(super) duration_ns: u64,
    pub(super) drain_ns: u64,
    is_apart: bool,
}

impl PortTurn {
    /// Opens the ports, and in L3 mode asks for their gateways; `compiled` is the traffic as it is described.
    pub(super) fn new(plan: &Plan, compiled: CompiledTraffic, judge: JudgeSettings) -> Result<Self, PyErr> {
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
            CompiledTraffic::new(&described).map_err(|problems| wrong(&problems))?
        };
        let compiled = Arc::new(compiled);
        let rules = addressed_rules(&plan.rules, &lines);
        let receiver = Receiver::new(&compiled, &rules, judge).map_err(|problems| wrong(&problems))?;
        let lines = lines.into_iter().enumerate().map(|(number, line)| Line {
            turn: traffic::PortTurn::new(line, &compiled, number),
            sent: Volume::default(),
            received: Volume::default(),
            held_up: 0,
        });
        // A device in memory is turned by the thread that has its ports.
        let is_memory = plan.traffic.ports.iter().any(|port| port.driver == Driver::Memory);
        Ok(Self {
            is_apart: device.is_none() && !is_memory && plan.threads.is_apart(wires.len()),
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
        let threads = if self.is_apart { self.lines.len() + 1 } else { 1 };
        let sent_for_ns = if self.is_apart { self.turn_apart(shared) } else { self.turn_alone(shared) };
        self.publish(shared, sent_for_ns, false);
        let sent = self.sent();
        let ports: Vec<_> = self.lines.iter().map(|line| (line.turn.failed(), line.held_up)).collect();
        let (mut result, frames) = self.receiver.finish(&sent, sent_for_ns, clock);
        result.threads = u32::try_from(threads).unwrap_or(u32::MAX);
        result.started_unix_ns = u64::try_from(started_unix_ns.as_nanos()).unwrap_or(u64::MAX);
        for (port, (failed, held_up)) in result.ports.iter_mut().zip(ports) {
            (port.failed, port.held_up) = (failed, held_up);
        }
        (result, frames)
    }

    /// Turns all of it; nanoseconds of sending.
    fn turn_alone(&mut self, shared: &Shared) -> u64 {
        let time = Time::new();
        let (mut sending, mut sent_for_ns, mut last_ns) = (true, 0, 0);
        loop {
            // What is under way after the end is waited for, paused or not.
            time.pause(sending && shared.pause.load(Ordering::Relaxed));
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
                return sent_for_ns;
            }
            if sent + received > 0 {
                self.publish(shared, now_ns, sending);
            } else {
                self.rest(sending, &time);
            }
        }
    }

    /// Whether all that is due within the run was sent, or there was time enough for it.
    fn is_over(&self, now_ns: u64) -> bool {
        let duration_ns = self.duration_ns;
        is_over(
            now_ns,
            duration_ns,
            self.lines.iter().any(Line::is_unpaced),
            self.lines.iter().all(|line| line.is_sent(duration_ns)),
        )
    }

    /// Sends what is due; how many packets the ports took.
    fn send(&mut self, make: bool, time: &Time, shared: &Shared) -> usize {
        let duration_ns = self.duration_ns;
        let lines = self.lines.iter_mut().enumerate();
        lines.map(|(number, line)| line.send(number, make, duration_ns, time, shared)).sum()
    }

    /// Takes in what has come; how many packets.
    fn receive(&mut self, time: &Time, shared: &Shared) -> usize {
        let mut batch = Batch::new();
        let mut count = 0;
        for (number, line) in self.lines.iter_mut().enumerate() {
            loop {
                let now_ns = line.receive(number, &mut batch, time, shared);
                let came = batch.len();
                count += came;
                for frame in batch.drain(..) {
                    judge(&mut self.receiver, number, &frame, now_ns);
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
        rest(
            due_ns
                .filter(|_| sending && !time.is_paused())
                .map(|due_ns| due_ns.saturating_sub(time.now_ns())),
        );
    }

    /// What each stream has sent: what was made, without what no port took.
    fn sent(&self) -> Vec<SentShare> {
        let lines = self.lines.iter().flat_map(|line| line.turn.sent());
        lines.map(|(stream, volume)| SentShare { stream, worker: 0, volume }).collect()
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

/// Whether sending is over: what is due within the run was sent, or there was time enough for it.
pub(super) fn is_over(now_ns: u64, duration_ns: u64, is_unpaced: bool, is_sent: bool) -> bool {
    (now_ns >= duration_ns && is_unpaced) || now_ns >= duration_ns.saturating_add(GRACE_NS) || is_sent
}

/// Waits for what is due in so many nanoseconds, but never long.
pub(super) fn rest(left_ns: Option<u64>) {
    let left = left_ns.map_or(SLEEP_MAX, |left_ns| Duration::from_nanos(left_ns).min(SLEEP_MAX));
    if left >= SLEEP_MIN {
        thread::sleep(left);
    } else {
        thread::yield_now();
    }
}
