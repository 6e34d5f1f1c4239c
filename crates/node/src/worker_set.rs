//! The workers of a function.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kaido_engine::tracer::{PortRecord, Tracer};
use kaido_engine::{
    FramePool, Function, Inbox, PacketSamples, Worker, WorkerCounters, WorkerHandle, WorkerSettings,
};
use kaido_xdp::Program;
use miette::{IntoDiagnostic, WrapErr, miette};

use super::ports::{OpenPorts, Queue};
use super::signals::received;
use crate::config::Base;
use crate::sandbox::{ThreadKind, restrict};

/// The workers of a function.
pub struct WorkerSet {
    stop: Arc<AtomicBool>,
    tracer: Arc<Tracer<PortRecord>>,
    workers: Vec<WorkerHandle>,
}

impl WorkerSet {
    /// Starts a worker for each set of queues, with a function of its own. `first` is the number of the first in the node;
    /// `samples` are taken of the packets that come in.
    pub fn start(
        base: &Base,
        first: u8,
        pool: &'static FramePool,
        queues: Vec<Vec<Queue>>,
        samples: Option<&PacketSamples>,
        mut function: impl FnMut() -> miette::Result<Box<dyn Function>>,
    ) -> miette::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let tracer = Arc::<Tracer<PortRecord>>::default();
        let made = (first..=u8::MAX).zip(queues).map(|(number, queues)| {
            let worker = Worker::new(pool, queues, function()?, worker_settings(base, number));
            let worker = worker.with_tracer(tracer.clone());
            Ok(match samples {
                Some(samples) => worker.with_packet_sampler(samples.sampler()),
                None => worker,
            })
        });
        let made: Vec<Worker> = made.collect::<miette::Result<_>>()?;
        let kind = if base.node.makes_sockets { ThreadKind::FaceWorker } else { ThreadKind::Worker };
        let is_restricted = base.is_restricted();
        let named = (first..=u8::MAX).zip(made);
        let workers = named
            .map(|(number, worker)| {
                let name = format!("worker-{number}");
                worker.spawn_behind(name, stop.clone(), move || {
                    if is_restricted {
                        restrict(kind);
                    }
                })
            })
            .collect::<Result<_, _>>()
            .into_diagnostic()
            .wrap_err("cannot start a worker thread")?;
        Ok(Self { stop, tracer, workers })
    }

    /// What the workers count.
    pub fn counters(&self) -> Vec<Arc<WorkerCounters>> {
        self.workers.iter().map(|worker| worker.counters().clone()).collect()
    }

    /// Where the workers write down what becomes of the packets of ports.
    pub fn tracer(&self) -> Arc<Tracer<PortRecord>> {
        self.tracer.clone()
    }

    /// Where the workers hear of changes of their ports.
    pub fn inboxes(&self) -> Vec<Arc<Inbox>> {
        self.workers.iter().map(|worker| worker.inbox().clone()).collect()
    }

    /// Whether a worker has ended by itself.
    pub fn has_lost(&self) -> bool {
        self.workers.iter().any(WorkerHandle::is_finished)
    }

    /// Takes the programs off, unless they are to stay, and then stops the workers, so that the kernel has the packets that would
    /// find no one. `asked` says whether the node is to stop: a function that ends otherwise has lost a worker.
    ///
    /// # Errors
    /// When a worker has ended by itself, or panicked.
    pub fn end<P: Program + 'static>(self, opened: &mut OpenPorts<P>, asked: bool) -> miette::Result<()> {
        // Who types ^C wants to have the interfaces back.
        if received() == Some("SIGINT") {
            opened.detach();
        } else {
            opened.end_programs();
        }
        if !self.stop() || !asked {
            return Err(miette!(
                help = "the log above says why; please report it",
                "a worker ended unexpectedly"
            ));
        }
        Ok(())
    }

    /// Stops the workers; whether all have ended in order. Programs stay attached: where the ports were
    /// [left](OpenPorts::leave), packets wait for those who reopen them.
    #[must_use]
    pub fn stop(self) -> bool {
        self.stop.store(true, Ordering::Relaxed);
        self.workers.iter().for_each(|worker| worker.inbox().wake());
        let ended = self.workers.into_iter().map(WorkerHandle::join);
        ended.filter(|orderly| !orderly).count() == 0
    }
}

fn worker_settings(base: &Base, number: u8) -> WorkerSettings {
    WorkerSettings {
        cpu: base.node.cpus.get_ref().get(usize::from(number)).copied(),
        sample_batches: base.metrics.sampling(),
        spin_rounds: if base.node.busy_poll { None } else { WorkerSettings::default().spin_rounds },
        ..WorkerSettings::default()
    }
}
