//! Workers: a pinned thread each, with one queue of every port.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::batch::Batch;
use crate::counters::WorkerCounters;
use crate::function::{Attached, Function, Output, sum};
use crate::pool::{FramePool, PoolCache};
use crate::port::{KernelPath, Port, PortId};

/// How a worker waits.
#[derive(Clone, Copy, Debug)]
pub struct WorkerSettings {
    /// CPU to run on; `None` leaves it to the kernel.
    pub cpu: Option<usize>,
    /// Empty rounds after which the worker sleeps until a packet comes; `None` never sleeps.
    pub spin_rounds: Option<u32>,
    /// Longest sleep, so that held packets and timers are looked at.
    pub sleep_max: Duration,
}

impl Default for WorkerSettings {
    fn default() -> Self {
        Self { cpu: None, spin_rounds: Some(64), sleep_max: Duration::from_millis(5) }
    }
}

/// A worker that is not running yet, or that a test turns by hand.
pub struct Worker {
    ports: Vec<Attached>,
    /// For the TAP side of a port: the port whose kernel path it is.
    wire_of: Vec<Option<PortId>>,
    function: Box<dyn Function>,
    pool: PoolCache,
    counters: Arc<WorkerCounters>,
    settings: WorkerSettings,
    batch: Batch,
    losses_asked: Instant,
}

/// How often devices are asked what they dropped: a system call each.
const LOSSES_EVERY: Duration = Duration::from_millis(200);

impl Worker {
    /// A worker over `ports`, in the order of their numbers.
    pub fn new(
        pool: &'static FramePool,
        ports: Vec<(Box<dyn Port>, KernelPath)>,
        function: Box<dyn Function>,
        settings: WorkerSettings,
    ) -> Self {
        let mut wire_of = vec![None; ports.len()];
        for (index, (_, kernel)) in (0u8..).zip(&ports) {
            if let KernelPath::Tap(tap) = kernel {
                wire_of[tap.index()] = Some(PortId(index));
            }
        }
        let counters = Arc::new(WorkerCounters::new(ports.len()));
        let ports = ports
            .into_iter()
            .map(|(queue, kernel)| Attached { queue, kernel, outgoing: Batch::new() })
            .collect();
        Self {
            ports,
            wire_of,
            function,
            pool: pool.cache(),
            counters,
            settings,
            batch: Batch::new(),
            losses_asked: Instant::now(),
        }
    }

    /// The counters, which outlive the worker.
    pub fn counters(&self) -> Arc<WorkerCounters> {
        self.counters.clone()
    }

    /// One round: receives a batch from every port, has it processed, sends what came out. Returns the
    /// packets received.
    pub fn step(&mut self) -> usize {
        let now = Instant::now();
        if now.saturating_duration_since(self.losses_asked) >= LOSSES_EVERY {
            self.losses_asked = now;
            self.count_losses();
        }
        let mut received = 0;
        for index in 0..self.ports.len() {
            #[allow(clippy::cast_possible_truncation)] // Ports are numbered in eight bits.
            let port = PortId(index as u8);
            self.ports[index].queue.receive(&mut self.pool, &mut self.batch);
            if self.batch.is_empty() {
                continue;
            }
            let (packets, bytes) = sum(&self.batch);
            self.counters.port(port).received(packets, bytes);
            received += packets;
            let mut out =
                Output { ports: &mut self.ports, pool: &mut self.pool, counters: &self.counters, now };
            match self.wire_of[index] {
                // What the kernel says on the TAP goes out on the port it stands for.
                Some(wire) => self.batch.drain(..).for_each(|frame| out.transmit(wire, frame)),
                None => self.function.process(port, &mut self.batch, &mut out),
            }
            debug_assert!(self.batch.is_empty(), "{} left packets behind", self.function.name());
        }
        let mut out = Output { ports: &mut self.ports, pool: &mut self.pool, counters: &self.counters, now };
        self.function.tick(&mut out);
        for index in 0..out.ports() {
            #[allow(clippy::cast_possible_truncation)] // As above.
            out.flush(PortId(index as u8));
        }
        received
    }

    /// Counts what the devices themselves have dropped.
    fn count_losses(&mut self) {
        for (index, port) in (0u8..).zip(&mut self.ports) {
            let counters = self.counters.port(PortId(index));
            port.queue.losses(&mut |reason, count| counters.lost(reason, count));
        }
    }

    /// Whether every port has come to its end.
    pub fn is_exhausted(&self) -> bool {
        self.ports.iter().all(|port| port.queue.is_exhausted())
    }

    /// Turns until `stop` is set or every port has come to its end.
    pub fn run(mut self, stop: &AtomicBool) {
        if let Some(cpu) = self.settings.cpu {
            pin(cpu);
        }
        let mut idle = 0u32;
        while !stop.load(Ordering::Relaxed) {
            if self.step() > 0 {
                idle = 0;
                continue;
            }
            if self.is_exhausted() {
                return;
            }
            idle = idle.saturating_add(1);
            if self.settings.spin_rounds.is_some_and(|rounds| idle > rounds) {
                self.wait();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Sleeps until a port is readable or the longest sleep is over.
    fn wait(&self) {
        let mut polled: Vec<PollFd<'_>> = self
            .ports
            .iter()
            .filter_map(|port| port.queue.readiness())
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let must_poll = polled.len() < self.ports.iter().filter(|port| !port.queue.is_exhausted()).count();
        let sleep = if must_poll { Duration::from_micros(100) } else { self.settings.sleep_max };
        let timeout = rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(sleep.subsec_nanos()) };
        // An interrupted or refused wait is only a shorter one.
        let _ = poll(&mut polled, Some(&timeout));
    }

    /// Runs the worker in a thread of its own.
    ///
    /// # Errors
    /// When the thread cannot be made.
    pub fn spawn(self, name: String, stop: Arc<AtomicBool>) -> std::io::Result<WorkerHandle> {
        let counters = self.counters();
        let thread = std::thread::Builder::new().name(name).spawn(move || self.run(&stop))?;
        Ok(WorkerHandle { thread, counters })
    }
}

/// A running worker.
#[derive(Debug)]
pub struct WorkerHandle {
    thread: JoinHandle<()>,
    counters: Arc<WorkerCounters>,
}

impl WorkerHandle {
    /// Its counters.
    pub fn counters(&self) -> &Arc<WorkerCounters> {
        &self.counters
    }

    /// Whether it has ended, by itself or by a panic.
    pub fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits for its end; `false` when it panicked.
    pub fn join(self) -> bool {
        self.thread.join().is_ok()
    }
}

fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(cpu, %error, "the worker could not be pinned and runs where the kernel puts it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::PortTotals;
    use crate::drop_reason::DropReason;
    use crate::port::MemoryWire;

    /// Sends what is longer than one byte to the other port, leaves `K` to the kernel, drops the rest.
    struct Crossover;

    impl Function for Crossover {
        fn name(&self) -> &'static str {
            "crossover"
        }

        fn process(&mut self, port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
            for frame in batch.drain(..) {
                match frame.data() {
                    b"K" => out.to_kernel(port, frame),
                    [_, _, ..] => out.transmit(PortId(1 - port.0), frame),
                    _ => out.drop(port, frame, DropReason::EthernetMalformed),
                }
            }
        }

        fn tick(&mut self, _out: &mut Output<'_>) {}
    }

    #[test]
    fn packets_cross_and_everything_is_counted() {
        let pool = FramePool::leak(256).unwrap();
        let (a, b, tap) = (MemoryWire::new(), MemoryWire::new(), MemoryWire::new());
        let mut worker = Worker::new(
            pool,
            vec![
                (Box::new(a.port()), KernelPath::Tap(PortId(2))),
                (Box::new(b.port()), KernelPath::None),
                (Box::new(tap.port()), KernelPath::None),
            ],
            Box::new(Crossover),
            WorkerSettings::default(),
        );
        for n in 0..100u8 {
            assert!(a.send(vec![n, n, n]));
        }
        a.send(b"K".to_vec());
        a.send(vec![0]);
        b.send(b"K".to_vec());
        tap.send(b"from the kernel".to_vec());
        while worker.step() > 0 {}
        for n in 0..100u8 {
            assert_eq!(b.receive(), Some(vec![n, n, n]));
        }
        assert_eq!(tap.receive(), Some(b"K".to_vec()));
        assert_eq!(a.receive(), Some(b"from the kernel".to_vec()));
        let counters = worker.counters();
        let on_a = PortTotals::of([&*counters], PortId(0));
        assert_eq!((on_a.rx_packets, on_a.rx_bytes, on_a.tx_packets, on_a.to_kernel), (102, 302, 1, 1));
        assert_eq!(on_a.drops, [(DropReason::EthernetMalformed, 1)]);
        let on_b = PortTotals::of([&*counters], PortId(1));
        assert_eq!((on_b.tx_packets, on_b.tx_bytes), (100, 300));
        assert_eq!(on_b.drops, [(DropReason::NotOurs, 1)]);
        drop(worker);
        assert_eq!(pool.free_frames(), 256);
    }

    #[test]
    fn a_running_worker_stops_when_told() {
        let pool = FramePool::leak(64).unwrap();
        let wires = [MemoryWire::new(), MemoryWire::new()];
        let ports = wires.iter().map(|w| (Box::new(w.port()) as Box<dyn Port>, KernelPath::None)).collect();
        let worker = Worker::new(pool, ports, Box::new(Crossover), WorkerSettings::default());
        let stop = Arc::new(AtomicBool::new(false));
        let handle = worker.spawn("worker-0".into(), stop.clone()).unwrap();
        wires[0].send(vec![1, 2]);
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut crossed = None;
        while crossed.is_none() && Instant::now() < deadline {
            crossed = wires[1].receive();
        }
        assert_eq!(crossed, Some(vec![1, 2]));
        stop.store(true, Ordering::Relaxed);
        assert!(handle.join());
    }
}
