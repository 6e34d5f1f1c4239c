//! Workers: a pinned thread each, with one queue of every port.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use crate::batch::Batch;
use crate::counters::{PortCounters, WorkerCounters};
use crate::function::{Function, HIGH_PRIORITY_MAX, Output, WorkerPort, sum};
use crate::inbox::{Inbox, PortChange};
use crate::notifier::Notifier;
use crate::polling::{Pause, PollClock, PollState, SLEEP_CAP, WorkerSettings};
use crate::pool::{FramePool, PoolCache};
use crate::port::{KernelPath, Port, PortId};
use crate::sampling::PacketSampler;
use crate::shared::{BlockOutput, DrainResult, cycles};
use crate::timing::{Sample, Sampler, StageCycles};
use crate::trace;
use crate::tracer::{PortRecord, TracedKeys, Tracer};

/// A worker that is not running yet, or that a test turns by hand.
pub struct Worker {
    ports: Vec<WorkerPort>,
    /// For the TAP side of a port: the port whose kernel path it is.
    wire_of: Vec<Option<PortId>>,
    function: Box<dyn Function>,
    pool: PoolCache,
    counters: Arc<WorkerCounters>,
    settings: WorkerSettings,
    sampler: Sampler,
    /// Of a batch of this round that was timed.
    sample: Option<Sample>,
    batch: Batch,
    /// What a block puts out that leaves in its turn.
    block: BlockOutput,
    losses_asked: Instant,
    /// Where others wake it, if it runs in a thread of its own.
    notifier: Option<Arc<Notifier>>,
    /// What it is told of its ports.
    inbox: Arc<Inbox>,
    /// Who wants to know what becomes of the packets of ports, and what of that is known here.
    tracer: Arc<Tracer<PortRecord>>,
    traced: TracedKeys<PortId>,
    packet_sampler: Option<PacketSampler>,
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
        let ports: Vec<WorkerPort> = ports
            .into_iter()
            .map(|(queue, kernel)| {
                let shared = queue.shared();
                let sender = shared.as_ref().map(|shared| shared.sender.clone());
                WorkerPort {
                    queue,
                    kernel,
                    incoming: Batch::new(),
                    outgoing: Batch::new(),
                    spare: Batch::new(),
                    incoming_sample: None,
                    high_priority: VecDeque::with_capacity(HIGH_PRIORITY_MAX),
                    shared,
                    sender,
                }
            })
            .collect();
        let shared = ports.iter().map(|port| port.shared.as_ref().map(|shared| shared.counters.clone()));
        let counters =
            WorkerCounters::with_shared(shared.collect(), function.drop_reasons(), function.stages());
        let counters = Arc::new(counters);
        Self {
            ports,
            wire_of,
            function,
            pool: pool.cache(),
            counters,
            settings,
            sampler: Sampler::new(settings.sample_batches),
            sample: None,
            batch: Batch::new(),
            block: BlockOutput::default(),
            losses_asked: Instant::now(),
            notifier: None,
            inbox: Arc::default(),
            tracer: Arc::default(),
            traced: TracedKeys::default(),
            packet_sampler: None,
        }
    }

    /// Has it take samples of the packets that come in.
    #[must_use]
    pub fn with_packet_sampler(mut self, sampler: PacketSampler) -> Self {
        self.packet_sampler = Some(sampler);
        self
    }

    /// Has it write down what becomes of the packets of the ports that are traced there.
    #[must_use]
    pub fn with_tracer(mut self, tracer: Arc<Tracer<PortRecord>>) -> Self {
        self.tracer = tracer;
        self
    }

    /// Where it hears of changes of its ports.
    pub fn inbox(&self) -> Arc<Inbox> {
        self.inbox.clone()
    }

    /// The counters, which outlive the worker.
    pub fn counters(&self) -> Arc<WorkerCounters> {
        self.counters.clone()
    }

    /// One round: receives a batch from every port, has it processed, sends what came out. Returns the
    /// packets received, or handed over to other workers; 0 when there was nothing to do.
    pub fn step(&mut self) -> usize {
        self.round(Instant::now())
    }

    /// As [`Worker::step`], as if it were then: for a clock that a test or a simulation turns.
    pub fn step_at(&mut self, now: Instant) -> usize {
        self.round(now)
    }

    /// The round that begins now.
    fn round(&mut self, now: Instant) -> usize {
        if self.inbox.is_waiting() {
            self.change_ports();
        }
        if self.tracer.generation() != self.traced.generation {
            self.traced = self.tracer.traced();
        }
        if now.saturating_duration_since(self.losses_asked) >= LOSSES_EVERY {
            self.losses_asked = now;
            self.count_losses();
        }
        let mut received = 0;
        for index in 0..self.ports.len() {
            let sample = self.receive(index);
            if !self.batch.is_empty() {
                received += self.batch.len();
                match sample {
                    None => self.process(index, now, None),
                    Some(sample) => self.process_timed(index, now, sample),
                }
            } else {
                received += self.ports[index].queue.handoffs();
            }
            if self.ports[index].shared.is_some() {
                self.finish_block(index, now);
            }
        }
        let mut out = Output::new(&mut self.ports, &mut self.pool, &self.counters, now);
        if self.traced.keys.is_empty() {
            self.function.tick(&mut out);
        } else {
            trace::tick(&mut *self.function, &mut out, (&self.tracer, self.traced.snap));
        }
        let Some(sample) = self.sample.take() else {
            out.flush_all();
            return received;
        };
        let began = cycles::now();
        out.flush_all();
        self.counters.timing().note(&sample, received, cycles::now().saturating_sub(began));
        received
    }

    /// Takes over what changed about the ports. Between two rounds no block of a shared queue is held.
    #[cold]
    fn change_ports(&mut self) {
        for (port, change) in self.inbox.take() {
            match change {
                PortChange::Link(link) => self.function.port_changed(port, &link),
                PortChange::Queue(queue) => {
                    let Some(attached) = self.ports.get_mut(port.index()) else { continue };
                    // What the old queue has dropped is asked for now or never.
                    let counters = self.counters.port(port);
                    count_losses(&mut *attached.queue, counters);
                    attached.shared = queue.shared();
                    attached.sender = attached.shared.as_ref().map(|shared| shared.sender.clone());
                    self.inbox.give_back(std::mem::replace(&mut attached.queue, queue));
                }
            }
        }
    }

    /// Receives from a port. The batch is what the last round received beyond what it processed. What is received now
    /// waits for the next, so that its first lines come into the cache while this one is processed. A block of a
    /// shared queue is processed at once: its workers must not hold two. Returns the sample of the batch, if it is to
    /// be timed.
    fn receive(&mut self, index: usize) -> Option<Sample> {
        let Self { sampler, pool, batch, .. } = self;
        let WorkerPort { queue, incoming, incoming_sample, shared, .. } = &mut self.ports[index];
        if shared.is_some() {
            let sample = sampler.receive(&mut **queue, pool, batch);
            batch.iter().for_each(|frame| frame.prefetch(0));
            return sample;
        }
        if incoming.is_empty() {
            *incoming_sample = sampler.receive(&mut **queue, pool, incoming);
            incoming.iter().for_each(|frame| frame.prefetch(0));
        }
        if incoming.is_empty() {
            return None;
        }
        std::mem::swap(incoming, batch);
        let next = sampler.receive(&mut **queue, pool, incoming);
        std::mem::replace(incoming_sample, next)
    }

    /// Has the function process the batch that came in on a port.
    fn process(&mut self, index: usize, now: Instant, times: Option<&mut StageCycles>) {
        #[allow(clippy::cast_possible_truncation)] // Ports are numbered in eight bits.
        let port = PortId(index as u8);
        let (packets, bytes) = sum(&self.batch);
        self.counters.port(port).received(packets, bytes);
        self.counters.timing().processed(packets);
        if let Some(sampler) = &mut self.packet_sampler
            && self.wire_of[index].is_none()
        {
            sampler.look(port, &self.batch);
        }
        let in_turn = self.ports[index].shared.as_ref().is_some_and(|shared| shared.commit.is_some());
        let mut out = Output::new(&mut self.ports, &mut self.pool, &self.counters, now);
        out.block = in_turn.then_some(&mut self.block);
        out.times = times;
        match self.wire_of[index] {
            // What the kernel says on the TAP goes out on the port it stands for.
            _ if !self.traced.keys.is_empty() => {
                let to = (&*self.tracer, self.traced.snap);
                let function = &mut *self.function;
                trace::process(&mut self.batch, port, &mut out, to, |one, out| match self.wire_of[index] {
                    Some(wire) => one.drain(..).for_each(|frame| out.transmit(wire, frame)),
                    None => function.process(port, one, out),
                });
            }
            Some(wire) => self.batch.drain(..).for_each(|frame| out.transmit(wire, frame)),
            None => self.function.process(port, &mut self.batch, &mut out),
        }
        if in_turn {
            out.flush_all();
        }
        debug_assert!(self.batch.is_empty(), "{} left packets behind", self.function.name());
    }

    /// As [`Worker::process`], and notes what it takes.
    #[cold]
    #[inline(never)]
    fn process_timed(&mut self, index: usize, now: Instant, mut sample: Sample) {
        let began = cycles::now();
        self.process(index, now, Some(&mut sample.stages));
        sample.process_cycles = cycles::now().saturating_sub(began);
        self.sample = Some(sample);
    }

    /// Ends the work on the block that a shared port has received, if it has: sends it, or leaves it in the commit
    /// ring and sends what is ready there.
    fn finish_block(&mut self, index: usize, now: Instant) {
        let port = &mut self.ports[index];
        let Some(claimed) = port.queue.claimed() else { return };
        // Put back below; a clone would be a write to a line that all workers share.
        let Some(shared) = port.shared.take() else { return };
        let processed = cycles::now();
        let mut out = Output::new(&mut self.ports, &mut self.pool, &self.counters, now);
        let drained = match &shared.commit {
            Some(ring) => {
                ring.finish(claimed.block, &mut self.block, &mut out, Output::leave, Output::push_out)
            }
            None => {
                out.flush_all();
                DrainResult { blocks: 1, for_others: 0 }
            }
        };
        let process_cycles = processed.saturating_sub(claimed.at_cycles);
        shared.counters.finished(process_cycles, cycles::now().saturating_sub(processed), drained);
        self.ports[index].shared = Some(shared);
    }

    /// Counts what the devices themselves have dropped.
    fn count_losses(&mut self) {
        for (index, port) in (0u8..).zip(&mut self.ports) {
            let counters = self.counters.port(PortId(index));
            count_losses(&mut *port.queue, counters);
            counters.set_backlog(port.queue.backlog());
        }
    }

    /// Whether every port has come to its end.
    pub fn is_exhausted(&self) -> bool {
        self.ports.iter().all(|port| port.queue.is_exhausted() && port.incoming.is_empty())
    }

    /// Turns until `stop` is set or every port has come to its end.
    pub fn run(mut self, stop: &AtomicBool) {
        if let Some(cpu) = self.settings.cpu {
            pin(cpu);
        }
        // Naps of 50 us would last 100 with the kernel's default slack.
        if let Err(error) = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1000)) {
            tracing::debug!(%error, "naps last longer than asked");
        }
        let mut clock = PollClock::start(Instant::now());
        let mut empty_rounds = 0u32;
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            if self.round(now) > 0 || self.is_backlogged() {
                empty_rounds = 0;
                clock.enter(PollState::Busy, now, self.counters.poll_counters());
                continue;
            }
            if self.is_exhausted() {
                break;
            }
            empty_rounds = empty_rounds.saturating_add(1);
            let pause = self.settings.pause(empty_rounds, || self.is_watched(), || self.sleep_max());
            clock.enter(pause.state(), now, self.counters.poll_counters());
            self.pause(pause);
        }
        self.finish(Instant::now());
        clock.stop(Instant::now(), self.counters.poll_counters());
    }

    /// Processes what was received beyond what was processed, and sends what came out: nobody else has these packets.
    fn finish(&mut self, now: Instant) {
        for index in 0..self.ports.len() {
            std::mem::swap(&mut self.ports[index].incoming, &mut self.batch);
            if !self.batch.is_empty() {
                self.process(index, now, None);
            }
        }
        Output::new(&mut self.ports, &mut self.pool, &self.counters, now).flush_all();
    }

    /// Whether preferred frames wait for room in a device.
    fn is_backlogged(&self) -> bool {
        self.ports.iter().any(|port| !port.high_priority.is_empty())
    }

    /// Whether every port that may still receive can wake the worker.
    fn is_watched(&self) -> bool {
        self.ports.iter().all(|port| port.queue.readiness().is_some() || port.queue.is_exhausted())
    }

    fn pause(&mut self, pause: Pause) {
        match pause {
            Pause::Spin => std::hint::spin_loop(),
            Pause::Yield => std::thread::yield_now(),
            Pause::Nap(nap) => {
                self.counters.poll_counters().napped();
                std::thread::sleep(nap);
            }
            Pause::Sleep => {
                let woken = self.sleep();
                self.counters.poll_counters().slept(woken);
            }
        }
    }

    /// How long nothing has to be done, if no packet comes and nobody rings.
    fn sleep_max(&self) -> Duration {
        let tick_in = self.function.tick_due().map(|due| due.saturating_duration_since(Instant::now()));
        let needs_poll = self.notifier.is_none() || self.ports.iter().any(|port| port.queue.needs_poll());
        let look_in = needs_poll.then_some(self.settings.unsettled_sleep);
        tick_in.into_iter().chain(look_in).fold(SLEEP_CAP, Duration::min)
    }

    /// Sleeps until a port is readable, the notifier wakes it or the time is over; whether something woke it.
    fn sleep(&mut self) -> bool {
        // Each is asked, whatever the others say: it may have to prepare.
        let mut busy = false;
        for port in &mut self.ports {
            busy |= !port.queue.may_sleep();
        }
        if busy {
            return true;
        }
        let notifier = self.notifier.as_deref();
        notifier.inspect(|notifier| notifier.arm());
        // Checked after the notifier was armed: who leaves something from now on notifies.
        let sleep = if self.inbox.is_waiting() { Duration::ZERO } else { self.sleep_max() };
        let timeout = sleep.try_into().unwrap_or_default();
        let readable = self.ports.iter().filter_map(|port| port.queue.readiness());
        let mut polled: Vec<PollFd<'_>> = readable
            .chain(notifier.map(AsFd::as_fd))
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        // An interrupted or refused wait is only a shorter one.
        let woken = poll(&mut polled, Some(&timeout)).is_ok_and(|ready| ready > 0);
        notifier.inspect(|notifier| notifier.disarm());
        woken
    }

    /// Runs the worker in a thread of its own.
    ///
    /// # Errors
    /// When the thread or its notifier cannot be made.
    pub fn spawn(self, name: String, stop: Arc<AtomicBool>) -> std::io::Result<WorkerHandle> {
        self.spawn_behind(name, stop, || ())
    }

    /// As [`Worker::spawn`]; the thread does `first` before anything else.
    ///
    /// # Errors
    /// When the thread or its notifier cannot be made.
    pub fn spawn_behind(
        mut self,
        name: String,
        stop: Arc<AtomicBool>,
        first: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<WorkerHandle> {
        let notifier = Notifier::new()?;
        self.function.attach(&notifier);
        self.inbox.attach(&notifier);
        self.notifier = Some(notifier);
        let (counters, inbox) = (self.counters(), self.inbox());
        let run = move || {
            first();
            self.run(&stop);
        };
        let thread = std::thread::Builder::new().name(name).spawn(run)?;
        Ok(WorkerHandle { thread, counters, inbox })
    }
}

/// Counts what a queue has dropped, and left to the kernel, by itself.
fn count_losses(queue: &mut dyn Port, counters: &PortCounters) {
    queue.losses(&mut |reason, count| counters.lost(reason, count));
    counters.left_to_kernel(queue.left_to_kernel());
}

/// A running worker.
#[derive(Debug)]
pub struct WorkerHandle {
    thread: JoinHandle<()>,
    counters: Arc<WorkerCounters>,
    inbox: Arc<Inbox>,
}

impl WorkerHandle {
    /// Its counters.
    pub fn counters(&self) -> &Arc<WorkerCounters> {
        &self.counters
    }

    /// Where it hears of changes of its ports.
    pub fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
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

pub(crate) fn pin(cpu: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(cpu);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(cpu, %error, "the worker could not be pinned and runs where the kernel puts it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::BATCH_MAX;
    use crate::counters::PortTotals;
    use crate::drop_reason::DropReason;
    use crate::port::{GonePort, MemoryWire};

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
                    _ => out.drop(port, frame, DropReason::ETHERNET_MALFORMED),
                }
            }
        }

        fn tick(&mut self, _out: &mut Output<'_>) {}
    }

    #[test]
    fn a_queue_is_replaced_between_rounds_and_the_old_one_comes_back() {
        let pool = FramePool::leak(64).unwrap();
        let (a, b, fresh) = (MemoryWire::new(), MemoryWire::new(), MemoryWire::new());
        let mut worker = Worker::new(
            pool,
            vec![(Box::new(a.port()), KernelPath::None), (Box::new(b.port()), KernelPath::None)],
            Box::new(Crossover),
            WorkerSettings::default(),
        );
        let inbox = worker.inbox();
        inbox.tell(PortId(1), PortChange::Queue(Box::new(GonePort::new().unwrap())));
        a.send(vec![1, 2]);
        while worker.step() > 0 {}
        assert_eq!((b.receive(), inbox.take_replaced().len()), (None, 1));
        let lost = PortTotals::of([&*worker.counters()], PortId(1));
        assert_eq!((lost.drops.as_slice(), lost.tx_packets), ([(DropReason::TX_ERROR, 1)].as_slice(), 0));
        inbox.tell(PortId(1), PortChange::Queue(Box::new(fresh.port())));
        a.send(vec![3, 4]);
        fresh.send(vec![5, 6]);
        while worker.step() > 0 {}
        assert_eq!((fresh.receive(), a.receive()), (Some(vec![3, 4]), Some(vec![5, 6])));
        // One that it does not have is nobody's.
        inbox.tell(PortId(9), PortChange::Queue(Box::new(fresh.port())));
        worker.step();
        drop((inbox.take_replaced(), worker));
        assert_eq!(pool.free_frames(), 64);
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
        assert_eq!(on_a.drops, [(DropReason::ETHERNET_MALFORMED, 1)]);
        let on_b = PortTotals::of([&*counters], PortId(1));
        assert_eq!((on_b.tx_packets, on_b.tx_bytes), (100, 300));
        assert_eq!(on_b.drops, [(DropReason::NOT_OURS, 1)]);
        drop(worker);
        assert_eq!(pool.free_frames(), 256);
    }

    #[test]
    fn a_worker_that_ends_forwards_what_it_has_received() {
        let pool = FramePool::leak(256).unwrap();
        let wires = [MemoryWire::new(), MemoryWire::new()];
        let ports = wires.iter().map(|w| (Box::new(w.port()) as Box<dyn Port>, KernelPath::None)).collect();
        let mut worker = Worker::new(pool, ports, Box::new(Crossover), WorkerSettings::default());
        let count = u8::try_from(BATCH_MAX).unwrap() + 36;
        for number in 0..count {
            assert!(wires[0].send(vec![number; 2]));
        }
        // It receives the rest while it processes a batch.
        assert_eq!(worker.step(), BATCH_MAX);
        worker.run(&AtomicBool::new(true));
        for number in 0..count {
            assert_eq!(wires[1].receive(), Some(vec![number; 2]));
        }
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
