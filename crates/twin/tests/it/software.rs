//! The software as the judge: kaido-gre on a worker, a frame at a time.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::{Arc, OnceLock};

use kaido_engine::fragment::Limits;
use kaido_engine::port::{MemoryWire, Port};
use kaido_engine::{
    FramePool, KernelPath, PortId, PortTotals, Routes, Worker, WorkerCounters, WorkerSettings,
};
use kaido_gre::{Gre, RuleCounters, RuleSet, RuleTotals, Settings, SharedState};

/// One for all: pools live for ever.
fn pool() -> &'static FramePool {
    static POOL: OnceLock<&'static FramePool> = OnceLock::new();
    POOL.get_or_init(|| FramePool::leak(256).unwrap())
}

/// What became of a frame in software.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) out: Vec<Vec<u8>>,
    pub(crate) drop: Option<&'static str>,
}

/// kaido-gre between two ports.
pub(crate) struct Software {
    wires: [MemoryWire; 2],
    worker: Worker,
    counters: Arc<WorkerCounters>,
    rules: Arc<RuleCounters>,
    shared: Arc<SharedState>,
}

impl Software {
    pub(crate) fn new(settings: Settings) -> Self {
        let wires = [MemoryWire::new(), MemoryWire::new()];
        let ports =
            wires.iter().map(|wire| (Box::new(wire.port()) as Box<dyn Port>, KernelPath::None)).collect();
        let (routes, _wanted) = Routes::new();
        let shared = SharedState::new(RuleSet::new(settings).unwrap(), Limits::default());
        let gre = Gre::new(&shared, &routes);
        let rules = gre.counters();
        let worker = Worker::new(pool(), ports, Box::new(gre), WorkerSettings::default());
        let counters = worker.counters();
        Self { wires, worker, counters, rules, shared }
    }

    fn drops(&self) -> Vec<(&'static str, u64)> {
        PortTotals::of([&*self.counters], PortId(0)).drops_by_name().collect()
    }

    pub(crate) fn pass(&mut self, frame: Vec<u8>) -> Judged {
        let before = self.drops();
        self.wires[0].send(frame);
        while self.worker.step() > 0 {}
        let out = std::iter::from_fn(|| self.wires[1].receive()).collect();
        let drop = self.drops().into_iter().find(|count| !before.contains(count)).map(|(name, _)| name);
        Judged { out, drop }
    }

    pub(crate) fn rule_totals(&self) -> Vec<RuleTotals> {
        self.rules.totals(&self.shared.rules())
    }
}
