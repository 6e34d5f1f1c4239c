//! A run against a UPF on the network.
//!
//! ```text
//!  associate ─▶ attach ─▶ devices ─▶ `ready` ─▶ traffic, hold ─▶ detach ─▶ release ─▶ report
//! ```

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kaido_engine::port::Tun;
use rustix::fs::{FileType, fstat};
use signal_hook::consts::{SIGINT, SIGTERM};

use super::downlink::Downlink;
use super::fault::SimFault;
use super::gnb::Gnb;
use super::plan::{Plan, Traffic};
use super::progress::Progress;
use super::report::{Report, Run};
use super::smf::{ControlPlane, LOOK, Pace};
use super::traffic::{self, Replies};
use super::tun;
use super::ue::{Count, Ue};

/// How long the last replies and the last uplink packets may be on their way.
const DRAIN: Duration = Duration::from_millis(500);

/// Runs the plan to its end.
pub(super) fn run(plan: &Plan) -> Result<(), SimFault> {
    let stop = stop_flag(plan.hold)?;
    let mut progress = Progress::new(plan.quiet);
    if let Some(path) = &plan.ready_file {
        // What a run before left behind says nothing of this one.
        let _ = std::fs::remove_file(path);
    }
    plan.report.as_deref().map_or(Ok(()), Report::probe)?;
    let sessions = &plan.sessions;
    let mut control = ControlPlane::open(plan.smf, plan.upf_pfcp, sessions.clone())?;
    let gnb = Arc::new(Gnb::open(sessions.gnb, sessions.qfi, sessions.first_teid)?);
    let done = attached(plan, &mut control, &gnb, &stop, &mut progress);
    if done.is_err() {
        control.abandon();
    }
    done
}

fn attached(
    plan: &Plan,
    control: &mut ControlPlane,
    gnb: &Arc<Gnb>,
    stop: &Arc<AtomicBool>,
    progress: &mut Progress,
) -> Result<(), SimFault> {
    control.associate(stop)?;
    let attach = control.attach(stop, progress)?;
    progress.say(&paced("attached", attach));
    let since = Instant::now();
    let ues: Arc<[Ue]> = control.take_ues().into();
    let data = DataPlane::start(plan, gnb, &ues)?;
    if attach.sessions == plan.sessions.ues && !stop.load(Ordering::Relaxed) {
        ready(plan.ready_file.as_deref())?;
    }
    data.hold(plan, control, &ues, stop, progress)?;
    data.stop_uplink();
    linger(control, DRAIN)?;
    let attached_for = since.elapsed();
    let detach = control.detach(progress)?;
    control.release()?;
    data.stop();
    progress.say(&paced("detached", detach));
    let run = Run {
        upf: plan.upf_pfcp,
        attach,
        detach,
        attached_for,
        gnb: &gnb.counters,
        pfcp: control.counters(),
        reported: control.reported(),
    };
    let report = Report::new(&run, &ues, control.usage());
    progress.say(&report.summary());
    plan.report.as_deref().map_or(Ok(()), |path| report.write(path))
}

fn paced(done: &str, pace: Pace) -> String {
    let seconds = pace.elapsed.as_secs_f64();
    format!("{done} {} UEs in {seconds:.2} s ({:.0}/s)", pace.sessions, pace.per_second())
}

fn traffic_done(ues: &[Ue]) -> String {
    let sum = |of: fn(&Ue) -> &Count| ues.iter().map(|ue| of(ue).read().0).sum::<u64>();
    let sent = sum(|ue| &ue.counters.generated_sent);
    let received = sum(|ue| &ue.counters.generated_received);
    format!("traffic done: {sent} datagrams sent, {received} replies so far")
}

/// Tells scripts that all is attached.
fn ready(file: Option<&Path>) -> Result<(), SimFault> {
    if let Some(path) = file {
        std::fs::File::create(path).map_err(|error| SimFault::File { path: path.to_owned(), error })?;
    }
    // A script that does not read stdout any more is no reason to end.
    let mut stdout = std::io::stdout();
    let _ = stdout.write_all(b"ready\n").and_then(|()| stdout.flush());
    Ok(())
}

/// Answers the UPF while the last packets are on their way.
fn linger(control: &mut ControlPlane, time: Duration) -> Result<(), SimFault> {
    let until = Instant::now() + time;
    while Instant::now() < until {
        control.turn(LOOK)?;
    }
    Ok(())
}

/// The threads that carry packets.
struct DataPlane {
    receiver: JoinHandle<()>,
    forwarder: Option<JoinHandle<()>>,
    generator: Option<JoinHandle<()>>,
    stop_uplink: Arc<AtomicBool>,
    stop_downlink: Arc<AtomicBool>,
}

impl DataPlane {
    fn start(plan: &Plan, gnb: &Arc<Gnb>, ues: &Arc<[Ue]>) -> Result<Self, SimFault> {
        let tuns: Arc<[Tun]> = tun::open_all(&plan.tuns, ues)?.into();
        let (stop_uplink, stop_downlink) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let receiver = Downlink {
            gnb: Arc::clone(gnb),
            ues: Arc::clone(ues),
            tuns: Arc::clone(&tuns),
            replies: plan.traffic.as_ref().map(|traffic| Replies::new(traffic, ues.len())),
        };
        let stop = Arc::clone(&stop_downlink);
        let receiver = spawn("sim-downlink", move || receiver.run(&stop))?;
        let forwarder = if tuns.is_empty() {
            None
        } else {
            let (gnb, ues, stop) = (Arc::clone(gnb), Arc::clone(ues), Arc::clone(&stop_uplink));
            Some(spawn("sim-uplink", move || tun::forward(&gnb, &ues, &tuns, &stop))?)
        };
        let generator = match plan.traffic.clone() {
            None => None,
            Some(traffic) => Some(Self::generator(traffic, gnb, ues, &stop_uplink)?),
        };
        Ok(Self { receiver, forwarder, generator, stop_uplink, stop_downlink })
    }

    fn generator(
        traffic: Traffic,
        gnb: &Arc<Gnb>,
        ues: &Arc<[Ue]>,
        stop: &Arc<AtomicBool>,
    ) -> Result<JoinHandle<()>, SimFault> {
        let (gnb, ues, stop) = (Arc::clone(gnb), Arc::clone(ues), Arc::clone(stop));
        spawn("sim-generator", move || traffic::generate(&traffic, &gnb, &ues, &stop))
    }

    /// Stays until the traffic is sent, or, if so planned, until the end is wanted.
    fn hold(
        &self,
        plan: &Plan,
        control: &mut ControlPlane,
        ues: &[Ue],
        stop: &AtomicBool,
        progress: &Progress,
    ) -> Result<(), SimFault> {
        let mut told = self.generator.is_none();
        loop {
            let sent = self.generator.as_ref().is_none_or(JoinHandle::is_finished);
            if sent && !told {
                told = true;
                progress.say(&traffic_done(ues));
            }
            if stop.load(Ordering::Relaxed) || (sent && !plan.hold) {
                return Ok(());
            }
            if control.is_release_wanted() {
                progress.say("the UPF asks for the end of the association");
                return Ok(());
            }
            control.turn(LOOK)?;
        }
    }

    fn stop_uplink(&self) {
        self.stop_uplink.store(true, Ordering::Relaxed);
    }

    /// Ends all threads. With the last of them the devices vanish.
    fn stop(self) {
        self.stop_downlink.store(true, Ordering::Relaxed);
        for thread in [Some(self.receiver), self.forwarder, self.generator].into_iter().flatten() {
            // A panic was printed by its thread; what it counted until then is reported.
            let _ = thread.join();
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, SimFault> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map_err(SimFault::system("cannot start a thread"))
}

/// Set when the end is wanted: by a signal, or by the end of a pipe on stdin. A second signal ends at once.
fn stop_flag(watch_stdin: bool) -> Result<Arc<AtomicBool>, SimFault> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        let register = signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)));
        register.map_err(SimFault::system("cannot listen to signals"))?;
    }
    if watch_stdin && is_pipe() {
        let stop = Arc::clone(&stop);
        spawn("sim-stdin", move || {
            let mut ignored = [0; 256];
            while matches!(std::io::stdin().read(&mut ignored), Ok(1..)) {}
            stop.store(true, Ordering::Relaxed);
        })?;
    }
    Ok(stop)
}

/// Whether stdin says something by ending: /dev/null has ended before it began, and a terminal stops who
/// reads it from the background.
fn is_pipe() -> bool {
    fstat(std::io::stdin())
        .is_ok_and(|stat| matches!(FileType::from_raw_mode(stat.st_mode), FileType::Fifo | FileType::Socket))
}
