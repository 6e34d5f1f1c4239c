//! Session requests a second: a control plane over UDP loopback on one CPU, the node's control thread on another, and
//! packets of other sessions forwarded all the while.
//!
//! ```text
//!  client ── UDP, a window of requests ──▶ control thread: Endpoint ─▶ Upf ─▶ session table
//!  traffic: Worker::step in bursts ───────────────────────────────────────────┘ every packet judged
//! ```

mod client;
mod restart;
mod server;
mod traffic;
mod wire;

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kaido_store::Durability;
use kaido_upf::control::{CountersInUse, Upf};
use kaido_upf::node::{Node, NodeSettings};
use kaido_upf::usage::RecordedUsage;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;

use self::client::Client;
use self::restart::StoreFolder;
pub use self::restart::StoreResult;
use self::restart::durability_name;
use self::server::Server;
use self::traffic::{Traffic, WorkerPlace};
use self::wire::Request;
use crate::BenchError;
use crate::family::Family;
use crate::machine::{Machine, MachineState};
use crate::memory::resident;
use crate::result::Histogram;
use crate::shape::Shape;

/// Sessions whose packets are forwarded.
const FORWARDED: u32 = 1024;
/// Sequence numbers are of 24 bits, and name the session here.
const SESSIONS_MAX: u32 = (1 << 24) - 2 - FORWARDED;

/// Fewer sessions say little of what one takes: tables grow by pages.
const TELLING_SESSIONS: u32 = 400_000;

/// What to measure.
#[derive(Clone, Debug)]
pub struct ControlPlan {
    /// Sessions set up, changed, and deleted.
    pub sessions: u32,
    /// The rules of each.
    pub shape: Shape,
    /// Requests under way at once.
    pub window: u32,
    /// Requests a second at most; none to send each as soon as there is room in the window.
    pub rate: Option<u32>,
    /// Workers that forward packets of other sessions meanwhile.
    pub workers: usize,
    /// How long usage reports are counted while nothing else is asked of the sessions, of shapes whose URRs have a measurement period.
    /// Zero for not at all.
    pub reports: Duration,
    /// What the sessions are to survive, and where the store is; nothing without.
    pub store: Option<(Durability, PathBuf)>,
}

impl Default for ControlPlan {
    fn default() -> Self {
        Self {
            sessions: 500_000,
            shape: Shape::Plain,
            window: 64,
            rate: None,
            workers: 1,
            reports: Duration::ZERO,
            store: None,
        }
    }
}

/// One kind of request.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseResult {
    /// Its name.
    pub request: &'static str,
    /// How many were answered.
    pub count: u32,
    /// Requests a second, by the clock.
    pub per_second: f64,
    /// CPU time of the control thread for one, in microseconds: what others do on its CPU is not in it.
    pub cpu_us: f64,
    /// Half of the answers came within this time after their request was to be sent, in microseconds.
    pub p50_us: f64,
    /// And 99 of 100 within this.
    pub p99_us: f64,
    /// Requests a second that one CPU can serve.
    pub per_cpu_second: f64,
    /// Requests that had no answer in time and were sent again.
    pub repeated: u64,
    /// Session reports that the node sent meanwhile, each answered: their cost is in the CPU time.
    pub reports: u64,
    /// Packets forwarded meanwhile.
    pub packets: u64,
}

/// Session reports of usage that came because of the measurement period, while nothing else was asked.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReportsResult {
    /// How many came, each answered.
    pub count: u64,
    /// In how many seconds.
    pub seconds: f64,
    /// CPU time of the control thread for one, in microseconds, with its answer.
    pub cpu_us: f64,
}

impl ReportsResult {
    fn new(count: u64, seconds: f64, cpu_us: f64) -> Self {
        Self { count, seconds, cpu_us: cpu_us / count.max(1) as f64 }
    }
}

impl fmt::Display for ReportsResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, seconds, cpu_us } = self;
        write!(f, "usage reports: {count} in {seconds:.1} s; {cpu_us:.2} us of CPU time each")?;
        if *count > 0 {
            write!(f, ", {:.0} a CPU second", 1e6 / cpu_us)?;
        }
        Ok(())
    }
}

/// Packets forwarded meanwhile. There is none that was lost or came out wrong: that ends the run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct TrafficResult {
    /// Sessions that they belong to.
    pub sessions: u32,
    /// Workers that forward them.
    pub workers: usize,
    /// Whether each has a CPU that neither another nor PFCP uses; else they rest after each burst.
    pub apart: bool,
    /// Packets in all.
    pub packets: u64,
    /// Packets lost.
    pub lost: u64,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct ControlReport {
    /// The machine.
    pub machine: Machine,
    /// The rules of the sessions.
    pub shape: Shape,
    /// Requests under way at once.
    pub window: u32,
    /// Requests a second that were to be sent.
    pub rate: Option<u32>,
    /// CPUs of the control thread, and of the client; none where the kernel chose.
    pub cpus: Option<[usize; 2]>,
    /// Establishment, modification, deletion.
    pub phases: Vec<PhaseResult>,
    /// Usage reports between establishment and modification, where they were waited for.
    pub usage_reports: Option<ReportsResult>,
    /// What the sessions take with PFCP around them.
    pub memory: MemoryResult,
    /// What the store took, where there is one.
    pub store: Option<StoreResult>,
    /// Packets forwarded meanwhile.
    pub traffic: TrafficResult,
}

/// Memory of sessions that were set up by PFCP: rules, records, counters, what the endpoint knows of each, and the answers that it
/// keeps for requests that come again.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct MemoryResult {
    /// Sessions.
    pub sessions: u32,
    /// Bytes that the process grew by while they were set up, reserved huge pages included, over their number.
    pub bytes_per_session: f64,
    /// What that shall be at most; none of shapes without a goal, and below the number of sessions over which pages and the answers
    /// that are kept are of no weight.
    pub goal: Option<f64>,
    /// Whether it is, where there is a goal.
    pub met: Option<bool>,
}

impl MemoryResult {
    fn new(sessions: u32, shape: Shape, grown: u64) -> Self {
        let bytes_per_session = grown as f64 / f64::from(sessions.max(1));
        let goal = shape.goal_bytes().filter(|_| sessions >= TELLING_SESSIONS);
        Self { sessions, bytes_per_session, goal, met: goal.map(|goal| bytes_per_session <= goal) }
    }
}

impl fmt::Display for MemoryResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "memory: {:.0} bytes a session, with PFCP around {}",
            self.bytes_per_session, self.sessions
        )?;
        match (self.goal, self.met) {
            (Some(goal), Some(true)) => write!(f, "; at most {goal:.0}: met"),
            (Some(goal), _) => write!(f, "; at most {goal:.0}: NOT met"),
            (None, _) => Ok(()),
        }
    }
}

/// Measures session requests a second.
///
/// # Errors
/// [`BenchError`] when the node refuses a request, or when a packet is lost or comes out wrong.
pub fn measure_control(
    plan: &ControlPlan,
    stop: &AtomicBool,
    progress: &dyn Fn(&str),
) -> Result<ControlReport, BenchError> {
    let before = MachineState::now();
    let sessions = plan.sessions.min(SESSIONS_MAX);
    let all = sessions + FORWARDED;
    let settings = NodeSettings {
        workers_share_sessions: plan.workers > 1,
        ..crate::node::settings(Family::V4, plan.shape, all)
    };
    let folder = plan.store.as_ref().map(|(durability, at)| StoreFolder::new(at, *durability)).transpose()?;
    let (node, events) = match &folder {
        Some(folder) => Node::over(settings.clone(), folder.memory()?)?,
        None => Node::new(settings.clone())?,
    };
    let mut upf = Upf::new(node.clone(), events, Vec::new())?;
    let counters = upf.claim_counters(CountersInUse::default(), |_| RecordedUsage::default())?;
    upf.restore(counters).finish();
    let allowed = allowed_cpus();
    let cpus = allowed.first_chunk().copied();
    let places = worker_places(plan.workers, &allowed);
    let opened = folder.as_ref().map(StoreFolder::open).transpose()?;
    let server = Server::start(upf, cpus.map(|[first, _]| first), opened)?;
    let pinned = PinnedThread::to(cpus.map(|[_, second]| second));
    let mut client = Client::new(server.address, plan.shape, all, (plan.window, plan.rate))?;
    client.associate()?;
    client.run(Request::Establish, [0, FORWARDED], stop)?;
    let traffic = Traffic::start(&node, (plan.shape, FORWARDED), &places)?;
    let (mut phases, mut memory) = (Vec::new(), MemoryResult::new(sessions, plan.shape, 0));
    let (mut store, mut usage_reports) = (None, None);
    for request in [Request::Establish, Request::Modify, Request::Delete] {
        progress(&format!("{request:?}: {sessions} sessions"));
        let before = resident();
        let (cpu_ns, packets) = (server.cpu_ns(), traffic.packets());
        let octets = server.store_octets();
        let run = client.run(request, [FORWARDED, all], stop)?;
        let cpu_us = (server.cpu_ns() - cpu_ns) as f64 / 1e3 / f64::from(sessions);
        if request == Request::Establish {
            memory = MemoryResult::new(sessions, plan.shape, resident().saturating_sub(before));
            if let (Some(folder), Some((durability, _))) = (&folder, &plan.store) {
                let octets_per_session = (server.store_octets() - octets) as f64 / f64::from(sessions);
                progress("starting from the store");
                let (restart_seconds, restarted) = folder.restart(settings.clone(), || server.is_folded())?;
                let durability = durability_name(*durability);
                store = Some(StoreResult { durability, octets_per_session, restart_seconds, restarted });
            }
        }
        phases.push(PhaseResult {
            request: match request {
                Request::Establish => "establishment",
                Request::Modify => "modification",
                Request::Delete => "deletion",
            },
            count: sessions,
            per_second: f64::from(sessions) / run.wall.as_secs_f64(),
            cpu_us,
            p50_us: microseconds(&run.answers, 0.5),
            p99_us: microseconds(&run.answers, 0.99),
            per_cpu_second: 1e6 / cpu_us,
            repeated: run.repeated,
            reports: run.reports,
            packets: traffic.packets() - packets,
        });
        if request == Request::Establish && !plan.reports.is_zero() && plan.shape.has_periods() {
            progress(&format!("Report: {} s", plan.reports.as_secs()));
            let cpu_ns = server.cpu_ns();
            let run = client.take_reports(plan.reports, stop)?;
            let cpu_us = (server.cpu_ns() - cpu_ns) as f64 / 1e3;
            usage_reports = Some(ReportsResult::new(run.reports, run.wall.as_secs_f64(), cpu_us));
        }
    }
    drop(pinned);
    let packets = traffic.stop()?;
    let left = server.sessions();
    server.stop()?;
    if left != u64::from(FORWARDED) {
        return Err(BenchError::Control(format!("{left} sessions are left, not {FORWARDED}")));
    }
    Ok(ControlReport {
        machine: Machine::describe(&before, Vec::new()),
        shape: plan.shape,
        window: plan.window,
        rate: plan.rate,
        cpus,
        phases,
        usage_reports,
        memory,
        store,
        traffic: TrafficResult {
            sessions: FORWARDED,
            workers: places.len(),
            apart: places.iter().all(|place| !place.rests),
            packets,
            lost: 0,
        },
    })
}

fn microseconds(answers: &Histogram, share: f64) -> f64 {
    answers.quantile(share).unwrap_or(0) as f64 / 1e3
}

/// How many rules the sessions of a shape have: the first of them, or of each kind.
fn rules(shape: Shape) -> String {
    let kinds: &[(&str, u32)] =
        if shape == Shape::Mixed { &[("6 of 10 ", 0), ("3 of 10 ", 6), ("1 of 10 ", 9)] } else { &[("", 0)] };
    let of = |&(share, session): &(&str, u32)| {
        let request = shape.establishment(Family::V4, session);
        let [pdrs, fars] = [request.pdrs.len(), request.fars.len()];
        let [qers, urrs] = [request.qers.len(), request.urrs.len()];
        format!("{share}{pdrs} PDRs, {fars} FARs, QERs {qers}, URRs {urrs}")
    };
    kinds.iter().map(of).collect::<Vec<_>>().join("; ")
}

/// The CPUs that this process may use.
fn allowed_cpus() -> Vec<usize> {
    let is_allowed = sched_getaffinity(None).ok();
    let is_allowed = |cpu: &usize| is_allowed.as_ref().is_some_and(|allowed| allowed.is_set(*cpu));
    (0..CpuSet::MAX_CPU).filter(is_allowed).collect()
}

/// Where so many workers run: on a CPU each behind those of PFCP and its client, or all on the client's.
fn worker_places(workers: usize, allowed: &[usize]) -> Vec<WorkerPlace> {
    let apart = allowed.get(2..).filter(|behind| behind.len() >= workers);
    let place = |number: usize| WorkerPlace {
        cpu: apart.map_or(allowed.get(1), |behind| behind.get(number)).copied(),
        rests: apart.is_none(),
    };
    (0..workers).map(place).collect()
}

/// This thread on a CPU, until dropped.
struct PinnedThread(Option<CpuSet>);

impl PinnedThread {
    fn to(cpu: Option<usize>) -> Self {
        let before = sched_getaffinity(None).ok();
        pin(cpu);
        Self(before)
    }
}

impl Drop for PinnedThread {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = sched_setaffinity(None, before);
        }
    }
}

/// Keeps this thread on a CPU, if the kernel lets it.
fn pin(cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        let mut only = CpuSet::new();
        only.set(cpu);
        let _ = sched_setaffinity(None, &only);
    }
}

impl fmt::Display for ControlReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "PFCP over UDP loopback, sessions of shape {}: {}; {} requests under way at most{}",
            self.shape.name(),
            rules(self.shape),
            self.window,
            self.rate.map(|rate| format!(", {rate} a second")).unwrap_or_default()
        )?;
        writeln!(
            f,
            "{:<14} {:>9} {:>12} {:>12} {:>9} {:>9} {:>14} {:>9} {:>9} {:>10}",
            "request",
            "count",
            "per second",
            "CPU us each",
            "p50 us",
            "p99 us",
            "per CPU second",
            "repeated",
            "reports",
            "packets"
        )?;
        for phase in &self.phases {
            writeln!(
                f,
                "{:<14} {:>9} {:>12.0} {:>12.2} {:>9.0} {:>9.0} {:>14.0} {:>9} {:>9} {:>10}",
                phase.request,
                phase.count,
                phase.per_second,
                phase.cpu_us,
                phase.p50_us,
                phase.p99_us,
                phase.per_cpu_second,
                phase.repeated,
                phase.reports,
                phase.packets
            )?;
        }
        if let Some(reports) = &self.usage_reports {
            writeln!(f, "{reports}")?;
        }
        writeln!(f, "{}", self.memory)?;
        if let Some(store) = &self.store {
            writeln!(
                f,
                "store ({}): {:.0} octets written for an establishment; {} sessions forwarded again after {:.2} s of a core",
                store.durability, store.octets_per_session, store.restarted, store.restart_seconds
            )?;
        }
        let TrafficResult { sessions, workers, apart, packets, lost } = self.traffic;
        let by = match (workers, apart) {
            (1, false) => "by a worker on the client's CPU".to_owned(),
            (1, true) => "by a worker with a CPU of its own".to_owned(),
            (_, false) => format!("by {workers} workers on the client's CPU"),
            (_, true) => format!("by {workers} workers with a CPU each"),
        };
        writeln!(
            f,
            "forwarded meanwhile {by}, for {sessions} other sessions: {packets} packets, {lost} lost"
        )?;
        let Machine { cpu, cores, kernel, load_average: [first, last], .. } = &self.machine;
        let steal = self.machine.steal_percent.map_or("unknown".to_owned(), |steal| format!("{steal:.1} %"));
        writeln!(
            f,
            "{cpu}, {cores} cores, Linux {kernel}; load average {first:.2} before, {last:.2} after; steal {steal}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_held_against_the_goal_of_its_shape() {
        let of = |shape, sessions, grown| {
            let memory = MemoryResult::new(sessions, shape, grown);
            (memory.met, memory.to_string())
        };
        assert_eq!(
            of(Shape::Plain, 500_000, 500_000 * 480),
            (Some(true), "memory: 480 bytes a session, with PFCP around 500000; at most 480: met".to_owned())
        );
        let (met, text) = of(Shape::Free5gc, 500_000, 500_000 * 641);
        assert!(met == Some(false) && text.ends_with("at most 640: NOT met"), "{text}");
        assert_eq!(of(Shape::Volte, 500_000, 1).0, None);
        assert_eq!(of(Shape::Plain, 1000, 1).0, None);
    }

    #[test]
    fn workers_have_cpus_of_their_own_where_there_are_enough() {
        let places = |workers, cpus: &[usize]| -> Vec<_> {
            worker_places(workers, cpus).iter().map(|place| (place.cpu, place.rests)).collect()
        };
        assert_eq!(places(2, &[1, 3, 5, 7]), [(Some(5), false), (Some(7), false)]);
        assert_eq!(places(3, &[1, 3, 5, 7]), [(Some(3), true); 3]);
        assert_eq!(places(1, &[4, 6]), [(Some(6), true)]);
        assert_eq!(places(1, &[4]), [(None, true)]);
    }

    #[test]
    fn every_request_is_answered_and_no_packet_lost() {
        for shape in Shape::ALL {
            let report = measured(&ControlPlan {
                sessions: 500,
                shape,
                window: 16,
                workers: 2,
                ..ControlPlan::default()
            });
            assert_eq!(report.phases.iter().map(|phase| phase.count).collect::<Vec<_>>(), [500; 3]);
            assert!(report.traffic.packets > 0);
            assert_eq!((report.memory.sessions, report.memory.goal), (500, None));
            let text = report.to_string();
            assert!(text.contains("establishment") && text.contains(&format!("shape {}", shape.name())));
        }
    }

    #[test]
    fn all_sessions_are_there_again_after_a_start_from_the_store() {
        for durability in [Durability::Process, Durability::Disk] {
            let store = Some((durability, std::env::temp_dir()));
            let report = measured(&ControlPlan {
                sessions: 500,
                shape: Shape::Mixed,
                window: 16,
                workers: 2,
                store,
                ..ControlPlan::default()
            });
            let store = report.store.unwrap();
            assert_eq!(store.restarted, 500 + FORWARDED as usize);
            assert!(store.octets_per_session > 100.0 && report.to_string().contains("forwarded again"));
        }
    }

    #[test]
    fn usage_reports_are_counted_where_urrs_have_a_period() {
        let plan = ControlPlan { sessions: 200, reports: Duration::from_secs(11), ..ControlPlan::default() };
        let report = measured(&ControlPlan { shape: Shape::Open5gs, ..plan.clone() });
        let reports = report.usage_reports.unwrap();
        // One a period of 10 s of each, with those whose packets are forwarded.
        assert!(reports.count >= 200 + u64::from(FORWARDED) && reports.cpu_us > 0.0, "{reports:?}");
        assert!(report.to_string().contains("usage reports: "));
        assert!(measured(&plan).usage_reports.is_none());
    }

    #[test]
    fn no_request_is_sent_before_its_time() {
        let report = measured(&ControlPlan { sessions: 200, rate: Some(1000), ..ControlPlan::default() });
        for phase in &report.phases {
            assert!(phase.per_second <= 1001.0 / 0.995, "{phase:?}");
            assert!(phase.p99_us >= phase.p50_us && phase.p50_us > 0.0, "{phase:?}");
        }
        assert!(report.to_string().contains(", 1000 a second"));
    }

    fn measured(plan: &ControlPlan) -> ControlReport {
        measure_control(plan, &AtomicBool::new(false), &|_| ())
            .unwrap_or_else(|error| panic!("{:?}: {error}", plan.shape))
    }
}
