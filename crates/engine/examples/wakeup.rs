//! What waiting costs and how fast a worker wakes: CPU share of an idle worker, and the time from a packet's sending to
//! its processing, in each state of polling. The port is a datagram socket, which needs no privileges.
//!
//! `cargo run --release -p kaido-engine --example wakeup -- [seconds]`

use std::error::Error;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kaido_engine::{
    Batch, FramePool, Function, KernelPath, Output, PollTotals, PoolCache, Port, PortId, Worker,
    WorkerSettings,
};

struct SocketPort(UnixDatagram);

impl Port for SocketPort {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        while !batch.is_full() {
            let Some(mut frame) = pool.allocate() else { return };
            let received = frame.append(64).and_then(|bytes| self.0.recv(bytes).ok());
            match received {
                Some(len) => {
                    frame.truncate(len);
                    batch.push(frame);
                }
                None => return pool.release(frame),
            }
        }
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let failed = batch.len();
        batch.drain(..).for_each(|frame| pool.release(frame));
        failed
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// Notes how long after its time stamp each packet is processed.
struct Latency {
    start: Instant,
    seen_ns: Arc<Mutex<Vec<u64>>>,
}

impl Function for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn process(&mut self, _port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        let now_ns = ns(self.start.elapsed());
        let mut seen = self.seen_ns.lock().unwrap_or_else(PoisonError::into_inner);
        for frame in batch.drain(..) {
            if let Some(stamp) = frame.data().first_chunk::<8>() {
                seen.push(now_ns.saturating_sub(u64::from_le_bytes(*stamp)));
            }
            out.release(frame);
        }
    }

    fn tick(&mut self, _out: &mut Output<'_>) {}
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// Runs a worker for `time` with a packet every `interval`, or none; prints what came of it.
fn run(
    pool: &'static FramePool,
    name: &str,
    settings: WorkerSettings,
    interval: Option<Duration>,
    time: Duration,
) -> Result<(), Box<dyn Error>> {
    let (near, far) = UnixDatagram::pair()?;
    near.set_nonblocking(true)?;
    let start = Instant::now();
    let seen_ns = Arc::new(Mutex::new(Vec::with_capacity(1 << 16)));
    let function = Box::new(Latency { start, seen_ns: seen_ns.clone() });
    let stop = Arc::new(AtomicBool::new(false));
    let worker = Worker::new(pool, vec![(Box::new(SocketPort(near)), KernelPath::None)], function, settings)
        .spawn("worker-0".into(), stop.clone())?;
    let counters = worker.counters().clone();
    std::thread::sleep(Duration::from_millis(20));
    let (began, cpu) = (Instant::now(), cpu_time());
    while began.elapsed() < time {
        match interval {
            Some(interval) => {
                far.send(&ns(start.elapsed()).to_le_bytes())?;
                std::thread::sleep(interval);
            }
            None => std::thread::sleep(time),
        }
    }
    let share = (cpu_time() - cpu).as_secs_f64() / began.elapsed().as_secs_f64();
    stop.store(true, Ordering::Relaxed);
    if !worker.join() {
        return Err("the worker panicked".into());
    }
    let mut seen = std::mem::take(&mut *seen_ns.lock().unwrap_or_else(PoisonError::into_inner));
    seen.sort_unstable();
    print(name, interval, share, &seen, counters.polling());
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // For people.
fn print(name: &str, interval: Option<Duration>, share: f64, seen_ns: &[u64], polling: PollTotals) {
    let every = interval.map_or("none".to_owned(), |interval| format!("{interval:?}"));
    let percentile = |percent: usize| match seen_ns.len() {
        0 => "-".to_owned(),
        len => format!("{:.1}", seen_ns[(len - 1) * percent / 100] as f64 / 1000.0),
    };
    let total = (polling.busy_ns + polling.adaptive_ns + polling.interrupt_ns).max(1) as f64;
    let part = |ns: u64| 100.0 * ns as f64 / total;
    println!(
        "{name:20} {every:>8} {:8.2}%  {:>9} {:>9}  {:6.1}% {:8.1}% {:9.1}%  {:7} {:7} {:8}",
        100.0 * share,
        percentile(50),
        percentile(99),
        part(polling.busy_ns),
        part(polling.adaptive_ns),
        part(polling.interrupt_ns),
        polling.naps,
        polling.wakeups,
        polling.timeouts
    );
}

fn main() -> Result<(), Box<dyn Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(2), |seconds| seconds.parse())?;
    let time = Duration::from_secs(seconds);
    let pool = FramePool::leak(256)?;
    let settings = WorkerSettings::default();
    let busy = WorkerSettings { spin_rounds: None, ..settings };
    // From the first empty round on: what sleeping alone does.
    let interrupt = WorkerSettings { spin_rounds: Some(0), yield_rounds: 0, nap_max_us: 0, ..settings };
    println!("The share is that of one core, the sender's included; latencies in microseconds.");
    println!(
        "settings              a packet    share   latency p50     p99    busy  adaptive  interrupt     naps \
         wakeups timeouts"
    );
    for (name, settings) in [("busy", busy), ("default", settings), ("interrupt", interrupt)] {
        for interval_us in [None, Some(10_000), Some(1000), Some(100)] {
            run(pool, name, settings, interval_us.map(Duration::from_micros), time)?;
        }
    }
    Ok(())
}
