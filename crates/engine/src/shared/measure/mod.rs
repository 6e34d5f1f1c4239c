//! Measures a shared queue by itself: a ring in memory that holds all packets from the start, a function of adjustable cost, and
//! 1..N workers. What a device or a generator would cost is not in it.

mod nic;
mod prefilled;
mod round_trip;
mod simulate;

pub use round_trip::round_trip_ns;
pub use simulate::{Simulated, simulate};

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use self::nic::NicReport;
use self::prefilled::{Outcome, Prefilled};
use super::{Order, SharedDevice, SharedQueue, SharedTotals, cycles};
use crate::batch::Batch;
use crate::function::{Function, Output};
use crate::polling::WorkerSettings;
use crate::pool::FramePool;
use crate::port::{KernelPath, Port, PortId, XdpOptions, shared_ring_port};
use crate::reorder::Reordering;
use crate::worker::{Worker, WorkerHandle};

/// What is to be measured.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Whether blocks leave in order.
    pub order: Order,
    /// Workers; each is pinned to the CPU of its number where there is one.
    pub workers: usize,
    /// Packets that go through; all are in the ring from the start, at 16 to 32 bytes each.
    pub packets: u32,
    /// What the function does with a packet, from [`Burn::of_ns`].
    pub burn: Burn,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct SharedReport {
    /// What was measured.
    pub load: Load,
    /// From the first packet to the end of the last worker.
    pub elapsed: Duration,
    /// Cycles of [`cycles`] in that time.
    pub elapsed_cycles: u64,
    /// Each worker's counters.
    pub workers: Vec<SharedTotals>,
    /// The order in which packets left, counted at the far end.
    pub reordering: Reordering,
    /// Packets that did not leave. Anything but zero is a bug.
    pub lost: u64,
    /// Packets that left more than once. Anything but zero is a bug.
    pub repeated: u64,
}

impl SharedReport {
    /// All workers' counters together.
    pub fn totals(&self) -> SharedTotals {
        self.workers.iter().fold(SharedTotals::default(), |mut sum, &worker| {
            sum += worker;
            sum
        })
    }

    /// Packets a second.
    pub fn packets_per_second(&self) -> f64 {
        f64::from(self.load.packets) / self.elapsed.as_secs_f64()
    }

    /// Cycles a second of [`cycles`].
    #[allow(clippy::cast_precision_loss)] // For people.
    pub fn cycles_per_second(&self) -> f64 {
        self.elapsed_cycles as f64 / self.elapsed.as_secs_f64()
    }

    /// Cycles of all workers' time for a packet: waiting, claiming and sending included.
    #[allow(clippy::cast_precision_loss)] // For people.
    pub fn cycles_per_packet(&self) -> f64 {
        self.elapsed_cycles as f64 * self.workers.len() as f64 / f64::from(self.load.packets)
    }
}

/// Work that a function does with each packet: a chain of dependent multiplications, which no core does faster by
/// looking ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burn {
    steps: u32,
}

impl Burn {
    /// Work that takes `work_ns` nanoseconds on this machine, now.
    pub fn of_ns(work_ns: u32) -> Self {
        const STEPS: u32 = 100_000;
        let once = |_| {
            let began = Instant::now();
            // Both ways, or the compiler moves the work out from between the clock's readings.
            black_box(black_box(Self { steps: STEPS }).run(black_box(1)));
            began.elapsed()
        };
        // The shortest: what else ran meanwhile is not the work.
        let shortest = (0..50).map(once).min().unwrap_or_default().as_nanos().max(1);
        let steps = u128::from(work_ns) * u128::from(STEPS) / shortest;
        Self { steps: u32::try_from(steps).unwrap_or(u32::MAX) }
    }

    /// Not inlined, so that what was calibrated is what is run.
    #[inline(never)]
    fn run(self, seed: u64) -> u64 {
        (0..self.steps).fold(seed, |x, _| x.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 1)
    }
}

/// Reads a packet, works, writes it, and sends it back where it came from.
struct EchoWorkload(Burn);

impl Function for EchoWorkload {
    fn name(&self) -> &'static str {
        "working"
    }

    fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        for mut frame in batch.drain(..) {
            if let Some(word) = frame.data_mut().first_chunk_mut::<8>() {
                *word = self.0.run(u64::from_le_bytes(*word)).to_le_bytes();
            }
            out.transmit(port, frame);
        }
    }

    fn tick(&mut self, _out: &mut Output<'_>) {}
}

/// Frames that a pool must have for each worker: those of its cache, of its block, and of the blocks that wait.
pub const FRAMES_PER_WORKER: usize = 512;

/// Frames that a pool must have beside those for [`measure_rings`]: what lies in the fill and the RX ring.
pub const FRAMES_IN_RINGS: usize = 4096;

/// Runs one load over frames of `pool`, which has [`FRAMES_PER_WORKER`], and one for each packet of the order's window.
///
/// # Errors
/// When a thread cannot be made or has panicked, or the pool has too few frames.
pub fn measure(pool: &'static FramePool, load: Load) -> io::Result<SharedReport> {
    let queue = SharedQueue::new(Prefilled::new(pool, load.packets), load.order);
    let workers = Workers::start(pool, &queue, load)?;
    let (began, began_cycles) = (Instant::now(), cycles::now());
    queue.device().open();
    let counters = workers.join()?;
    let took = (began.elapsed(), cycles::now().saturating_sub(began_cycles));
    if queue.device().is_starved() {
        return Err(io::Error::other("the pool has too few frames for the workers and the window"));
    }
    Ok(report(load, took, &counters, &queue.device().outcome()))
}

/// As [`measure`], over the rings of an AF_XDP socket that lie in memory, with all that a shared socket keeps of frames. Two threads of
/// this process are the NIC, on the CPUs behind those of the workers: they move frames from ring to ring, and touch no packet. The pool
/// has [`FRAMES_IN_RINGS`] more.
///
/// # Errors
/// As [`measure`]; [`io::ErrorKind::TimedOut`] when nothing was sent for seconds.
pub fn measure_rings(pool: &'static FramePool, load: Load) -> io::Result<SharedReport> {
    // A TX ring for all frames: one that is full loses packets.
    let all = u32::try_from(pool.frames().next_power_of_two()).map_err(io::Error::other)?;
    let options = XdpOptions { tx: all, completion: all, ..XdpOptions::default() };
    let (device, peer) = shared_ring_port(pool, &options).map_err(io::Error::other)?;
    let queue = SharedQueue::new(device, load.order);
    let workers = Workers::start(pool, &queue, load)?;
    let first = load.workers;
    let nic_cpus = (first + nic::THREADS <= cpus()).then_some([first, first + 1]);
    let sent = nic::run(pool, peer, load.packets, nic_cpus);
    workers.stop.store(true, Ordering::Release);
    let counters = workers.join()?;
    let NicReport { outcome, elapsed, elapsed_cycles } = sent?;
    Ok(report(load, (elapsed, elapsed_cycles), &counters, &outcome))
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Workers that run.
struct Workers {
    handles: Vec<WorkerHandle>,
    stop: Arc<AtomicBool>,
}

impl Workers {
    fn start<D: SharedDevice + 'static>(
        pool: &'static FramePool,
        queue: &Arc<SharedQueue<D>>,
        load: Load,
    ) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut handles = Vec::new();
        for number in 0..load.workers {
            let settings = WorkerSettings {
                cpu: (load.workers <= cpus()).then_some(number),
                // Where there are fewer cores than threads, whom all wait for must get one.
                spin_rounds: Some(256),
                yield_rounds: u32::MAX,
                ..WorkerSettings::default()
            };
            let port: Box<dyn Port> = Box::new(queue.port());
            let function = Box::new(EchoWorkload(load.burn));
            let worker = Worker::new(pool, vec![(port, KernelPath::None)], function, settings);
            handles.push(worker.spawn(format!("shared-{number}"), stop.clone())?);
        }
        Ok(Self { handles, stop })
    }

    /// Waits for their end; what they have counted.
    fn join(self) -> io::Result<Vec<SharedTotals>> {
        let counters: Vec<_> = self.handles.iter().map(|worker| worker.counters().clone()).collect();
        let ended = self.handles.into_iter().map(WorkerHandle::join).filter(|&orderly| orderly).count();
        if ended < counters.len() {
            return Err(io::Error::other("a worker panicked"));
        }
        Ok(counters.iter().filter_map(|counters| counters.shared(PortId(0))).collect())
    }
}

fn report(
    load: Load,
    (elapsed, elapsed_cycles): (Duration, u64),
    workers: &[SharedTotals],
    sent: &Outcome,
) -> SharedReport {
    let &Outcome { reordering, lost, repeated } = sent;
    SharedReport { load, elapsed, elapsed_cycles, workers: workers.to_vec(), reordering, lost, repeated }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_leaves_once_and_in_order_where_that_is_asked() {
        let pool = FramePool::leak(4096).unwrap();
        let packets = 40_000;
        for (order, workers) in [(Order::Free, 1), (Order::Free, 3), (Order::KEPT, 1), (Order::KEPT, 3)] {
            let load = Load { order, workers, packets, burn: Burn { steps: 3 } };
            let report = measure(pool, load).unwrap();
            assert_eq!((report.lost, report.repeated), (0, 0), "{load:?}");
            assert_eq!(report.reordering.packets, packets.into());
            assert_eq!(report.totals().packets, packets.into());
            assert_eq!(report.totals().blocks, report.totals().drained);
            if order != Order::Free || workers == 1 {
                assert_eq!(report.reordering.reordered, 0, "{load:?}");
            }
            assert_eq!(pool.free_frames(), 4096, "{load:?}");
        }
    }

    #[test]
    fn every_packet_comes_back_through_the_rings() {
        let load = Load { order: Order::Free, workers: 1, packets: 40_000, burn: Burn { steps: 3 } };
        let loads = [(Order::Free, 3), (Order::KEPT, 1), (Order::KEPT, 3)];
        for load in loads.map(|(order, workers)| Load { order, workers, ..load }).into_iter().chain([load]) {
            let pool = FramePool::leak(FRAMES_IN_RINGS + 4 * FRAMES_PER_WORKER).unwrap();
            let report = measure_rings(pool, load).unwrap();
            assert_eq!((report.lost, report.repeated), (0, 0), "{load:?}");
            assert_eq!(report.totals().packets, load.packets.into());
            if load.order != Order::Free || load.workers == 1 {
                assert_eq!(report.reordering.reordered, 0, "{load:?}");
            }
            assert_eq!(pool.free_frames(), pool.frames(), "{load:?}");
        }
    }

    #[test]
    fn a_pool_without_frames_is_an_error() {
        let pool = FramePool::leak(8).unwrap();
        let load = Load { order: Order::Free, workers: 1, packets: 100, burn: Burn { steps: 0 } };
        assert!(measure(pool, load).is_err());
    }
}
