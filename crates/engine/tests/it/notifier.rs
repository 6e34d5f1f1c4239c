//! Notify wakes a worker that sleeps; the worker arms the notifier and checks its ports before it sleeps, so no wake-up is lost.

use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use kaido_engine::{
    Batch, FramePool, Function, KernelPath, Notifier, Output, PoolCache, Port, PortId, Worker, WorkerSettings,
};

/// Nothing ever comes here, and the worker may sleep on it.
struct Silent(UnixDatagram);

impl Port for Silent {
    fn receive(&mut self, _pool: &mut PoolCache, _batch: &mut Batch) {}

    fn transmit(&mut self, _pool: &mut PoolCache, _batch: &mut Batch) -> usize {
        0
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

#[derive(Default)]
struct Orders {
    given: AtomicU64,
    taken: AtomicU64,
    notifier: OnceLock<Arc<Notifier>>,
}

/// Takes orders in its ticks.
struct Clerk(Arc<Orders>);

impl Function for Clerk {
    fn name(&self) -> &'static str {
        "clerk"
    }

    fn process(&mut self, _port: PortId, batch: &mut Batch, out: &mut Output<'_>) {
        batch.drain(..).for_each(|frame| out.release(frame));
    }

    fn tick(&mut self, _out: &mut Output<'_>) {
        self.0.taken.store(self.0.given.load(Ordering::Acquire), Ordering::Release);
    }

    fn tick_due(&self) -> Option<Instant> {
        let has_orders = self.0.given.load(Ordering::Acquire) > self.0.taken.load(Ordering::Acquire);
        has_orders.then(Instant::now)
    }

    fn attach(&mut self, notifier: &Arc<Notifier>) {
        assert!(self.0.notifier.set(notifier.clone()).is_ok(), "told once");
    }
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "it does not come about");
        std::thread::yield_now();
    }
}

#[test]
fn a_sleeping_worker_hears_its_bell() {
    let (near, _far) = UnixDatagram::pair().unwrap();
    let orders = Arc::new(Orders::default());
    let stop = Arc::new(AtomicBool::new(false));
    let ports: Vec<(Box<dyn Port>, KernelPath)> = vec![(Box::new(Silent(near)), KernelPath::None)];
    let pool = FramePool::leak(64).unwrap();
    let settings = WorkerSettings { spin_rounds: Some(0), yield_rounds: 0, ..WorkerSettings::default() };
    let worker = Worker::new(pool, ports, Box::new(Clerk(orders.clone())), settings);
    let worker = worker.spawn("worker-0".into(), stop.clone()).unwrap();
    let notifier = orders.notifier.get().unwrap();
    let slept = || worker.counters().polling();
    wait_until(|| slept().timeouts > 0);
    // Whether each finds it asleep, awake or between the two: none is slept over, and sleeping ends for them alone.
    let before = slept();
    for order in 1..=2000 {
        orders.given.store(order, Ordering::Release);
        notifier.notify();
        wait_until(|| orders.taken.load(Ordering::Acquire) == order);
    }
    let after = slept();
    assert!(after.wakeups > before.wakeups, "{after:?}");
    assert!(after.timeouts - before.timeouts < 1000, "orders waited for the end of a sleep: {after:?}");
    stop.store(true, Ordering::Relaxed);
    assert!(worker.join());
}
