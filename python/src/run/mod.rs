//! A run: the threads that send, receive and judge, and what Python sees of it.

mod apart;
mod time;
mod turn;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kaido_bench::generator::CompiledTraffic;
use kaido_bench::oracle::Rule;
use kaido_bench::receive::JudgeSettings;
use kaido_bench::result::{RunResult, Volume};
use kaido_bench::stream::Traffic;
use kaido_bench::traffic::Threads;
use kaido_engine::FramePool;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::{Deserialize, Serialize};

use crate::capture::Capture;
use crate::device::DeviceSpec;
use crate::traffic::wrong;
use turn::PortTurn;

/// Frames of the process's pool: queues of memory ports hold copies, so that few are under way at once.
const FRAMES: usize = 8192;

/// The frames of all runs of this process, which live as long as it does.
pub(crate) fn pool() -> Result<&'static FramePool, String> {
    static POOL: OnceLock<Result<&'static FramePool, String>> = OnceLock::new();
    POOL.get_or_init(|| FramePool::leak(FRAMES).map_err(|error| error.to_string())).clone()
}

/// What is to be done.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    traffic: Traffic,
    /// What the ports in memory are joined to.
    #[serde(default)]
    device: Option<DeviceSpec>,
    #[serde(default)]
    rules: Vec<Rule>,
    /// Nanoseconds of sending; until everything is sent when not given.
    #[serde(default)]
    duration_ns: Option<u64>,
    /// Nanoseconds that gateways have to answer.
    #[serde(default)]
    resolve_ns: u64,
    /// Nanoseconds without a packet after which nothing more is waited for.
    drain_ns: u64,
    late_after_ns: u64,
    /// Whether packets must come in order.
    ordered: bool,
    /// Findings that are kept, of each kind.
    keep: usize,
    /// On which threads; with a device in memory it is one.
    #[serde(default)]
    threads: Threads,
    /// Whether it begins paused, so that captures have its first packets.
    #[serde(default)]
    paused: bool,
}

/// What Python sees of a run under way.
#[derive(Debug)]
pub(crate) struct Shared {
    stop: AtomicBool,
    pause: AtomicBool,
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    live: Live,
    captures: Vec<Capture>,
    result: Option<Ended>,
}

/// What a run has given, and the frames of the findings that are kept, with their times in nanoseconds of the run.
type Ended = (RunResult, Vec<(u64, Vec<u8>)>);

/// Counters while a run goes on.
#[derive(Clone, Debug, Default, Serialize)]
struct Live {
    /// Nanoseconds since it began, without pauses.
    time_ns: u64,
    /// Whether packets are still being sent.
    sending: bool,
    /// By stream: what was made.
    streams: Vec<Volume>,
    /// By port: what was sent and what came.
    ports: Vec<[Volume; 2]>,
    /// Packets of this run that came back.
    received: u64,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One run, under way from the moment it is made.
#[pyclass(frozen)]
pub(crate) struct Run {
    shared: Arc<Shared>,
    ports: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[pymethods]
impl Run {
    /// Checks a plan completely, opens its ports, and begins.
    #[new]
    fn new(py: Python<'_>, plan: &str) -> PyResult<Self> {
        let plan: Plan =
            serde_json::from_str(plan).map_err(|error| PyValueError::new_err(format!("plan: {error}")))?;
        let (turn, shared, ports) = py.detach(|| Self::prepare(&plan))?;
        let of_thread = shared.clone();
        let thread = thread::Builder::new().name("kaido-run".to_owned()).spawn(move || {
            let result = turn.run(&of_thread);
            of_thread.state().result = Some(result);
            of_thread.ended.notify_all();
        })?;
        Ok(Self { shared, ports, thread: Mutex::new(Some(thread)) })
    }

    /// Counters, as JSON.
    fn live(&self) -> PyResult<String> {
        let live = self.shared.state().live.clone();
        serde_json::to_string(&live).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// Ends sending; what is under way is still waited for.
    fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// Has the run's time stand still, or go on.
    fn pause(&self, paused: bool) {
        self.shared.pause.store(paused, Ordering::Relaxed);
    }

    /// Waits for the end, at most so many seconds; whether it has come.
    fn wait(&self, py: Python<'_>, seconds: f64) -> bool {
        let limit = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        py.detach(|| {
            let until = Instant::now().checked_add(limit);
            let mut state = self.shared.state();
            while state.result.is_none() {
                let left = until.map_or(limit, |until| until.saturating_duration_since(Instant::now()));
                if left.is_zero() {
                    return false;
                }
                state = self.shared.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
            }
            true
        })
    }

    /// The result, as JSON; `None` as long as it goes on.
    fn result(&self) -> PyResult<Option<String>> {
        let state = self.shared.state();
        let Some((result, _)) = &state.result else { return Ok(None) };
        serde_json::to_string(result).map(Some).map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }

    /// Frames of the findings that are kept, with their times in nanoseconds: what was expected, if it is known, and what came.
    fn findings<'py>(&self, py: Python<'py>) -> Vec<(u64, Bound<'py, PyBytes>)> {
        let state = self.shared.state();
        let frames = state.result.iter().flat_map(|(_, frames)| frames);
        frames.map(|(time_ns, bytes)| (*time_ns, PyBytes::new(py, bytes))).collect()
    }

    /// Begins to keep frames that ports send or receive, by their numbers: the first `limit`, or with `cyclic` the last; the
    /// capture's number.
    #[allow(clippy::needless_pass_by_value)] // What Python gives is made for this call.
    fn capture(&self, sent: Vec<usize>, received: Vec<usize>, limit: usize, cyclic: bool) -> usize {
        let mut state = self.shared.state();
        state.captures.push(Capture::new(self.ports, &sent, &received, limit, cyclic));
        state.captures.len() - 1
    }

    /// The frames of a capture: port, whether received, nanoseconds, bytes; and how many found no room.
    #[allow(clippy::type_complexity)] // A tuple for Python, unpacked there.
    fn captured<'py>(
        &self,
        py: Python<'py>,
        number: usize,
    ) -> PyResult<(Vec<(usize, bool, u64, Bound<'py, PyBytes>)>, u64)> {
        let state = self.shared.state();
        let capture = state
            .captures
            .get(number)
            .ok_or_else(|| PyValueError::new_err(format!("there is no capture {number}")))?;
        let frames = capture
            .frames
            .iter()
            .map(|frame| (frame.port, frame.received, frame.time_ns, PyBytes::new(py, &frame.bytes)));
        Ok((frames.collect(), capture.missed))
    }
}

impl Run {
    fn prepare(plan: &Plan) -> PyResult<(PortTurn, Arc<Shared>, usize)> {
        let compiled = CompiledTraffic::new(&plan.traffic).map_err(|problems| wrong(&problems))?;
        let judge = JudgeSettings {
            late_after_ns: plan.late_after_ns,
            ordered: plan.ordered,
            keep: plan.keep,
            ..JudgeSettings::default()
        };
        let turn = PortTurn::new(plan, compiled, judge)?;
        let ports = plan.traffic.ports.len();
        let state = State {
            live: Live {
                sending: true,
                streams: vec![Volume::default(); plan.traffic.streams.len()],
                ports: vec![[Volume::default(); 2]; ports],
                ..Live::default()
            },
            ..State::default()
        };
        let shared = Shared {
            stop: AtomicBool::new(false),
            pause: AtomicBool::new(plan.paused),
            state: Mutex::new(state),
            ended: Condvar::new(),
        };
        Ok((turn, Arc::new(shared), ports))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.stop();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It needs nothing of the interpreter, so that waiting for it cannot hang; it ends within the drain time.
            let _ = thread.join();
        }
    }
}
