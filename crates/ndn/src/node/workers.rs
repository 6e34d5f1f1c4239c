//! The workers of a router: which has what of the ports, and how they find each other.

use std::sync::Arc;

use kaido_engine::steer::{Waker, handoff_ports, relay};
use kaido_engine::{KernelPath, PortId};
use kaido_ndn_tables::NameHash;
use kaido_node::config::Driver;
use kaido_node::ports::Queue;
use miette::{IntoDiagnostic, WrapErr};

use super::ports::Ports;
use crate::balance::Balance;
use crate::forward::ForwarderSettings;
use crate::host::{HostControl, HostPort};
use crate::node::config::NdnConfig;
use crate::router::{ControlMailbox, Ndn, WorkerSet};
use crate::tier::Wake;

/// What the workers have beside a function each.
pub(super) struct Workers {
    /// How they share the names.
    pub(super) balance: Arc<Balance>,
    /// The port between them, behind all others, if there are several.
    port: Option<PortId>,
    /// By worker; none where there is one.
    wakers: Vec<Waker>,
}

impl Workers {
    /// Gives each worker its queues: of ports with one for each its own; of others, the host port among them, the first
    /// worker has the device and the others send by it.
    ///
    /// # Errors
    /// When the kernel has no more descriptors.
    pub(super) fn arrange(
        config: &NdnConfig,
        ports: &mut Ports,
        host: HostPort,
    ) -> miette::Result<(Self, Vec<Vec<Queue>>)> {
        let mut opened = ports.opened.take_queues();
        opened[0].push((Box::new(host), KernelPath::None));
        let count = opened.len();
        let mut opened: Vec<_> = opened.into_iter().map(Vec::into_iter).collect();
        let mut queues: Vec<Vec<Queue>> = (0..count).map(|_| Vec::new()).collect();
        let drivers = ports.opened.devices.iter().map(|device| *device.config.driver.get_ref());
        let has_queues = drivers.map(|driver| driver == Driver::AfXdp).chain(std::iter::once(false));
        for has_queues in has_queues {
            if has_queues {
                queues.iter_mut().zip(&mut opened).for_each(|(queues, opened)| queues.extend(opened.next()));
            } else if let Some((device, kernel)) = opened[0].next() {
                let relayed = relay(device, count).into_diagnostic().wrap_err("node.workers")?;
                queues.iter_mut().zip(relayed).for_each(|(queues, port)| queues.push((port, kernel)));
            }
        }
        let balance = Arc::new(Balance::new(count, config.ndn.balance.settings()));
        let mut workers = Self { balance, port: None, wakers: Vec::new() };
        if count > 1 {
            workers.port = Some(PortId(u8::try_from(queues[0].len()).unwrap_or(u8::MAX)));
            let worker_set = handoff_ports(count).into_diagnostic().wrap_err("node.workers")?;
            workers.wakers = worker_set.iter().map(kaido_engine::steer::HandoffPort::waker).collect();
            queues
                .iter_mut()
                .zip(worker_set)
                .for_each(|(queues, port)| queues.push((Box::new(port), KernelPath::None)));
        }
        Ok((workers, queues))
    }

    /// The name of the port between workers, if there is one.
    pub(super) fn shown(&self) -> Option<&'static str> {
        self.port.map(|_| "workers")
    }

    /// Where orders for a worker lie.
    pub(super) fn mailbox(&self, worker: u8) -> ControlMailbox {
        // Where there is one worker the host port wakes it.
        self.wakers
            .get(usize::from(worker))
            .cloned()
            .map_or_else(ControlMailbox::new, ControlMailbox::with_waker)
    }

    /// What wakes a worker.
    pub(super) fn wake(&self, worker: u8, host: &HostControl) -> Wake {
        match self.wakers.get(usize::from(worker)).cloned() {
            Some(waker) => Arc::new(move || waker.wake()),
            None => {
                let host = host.clone();
                Arc::new(move || host.wake())
            }
        }
    }

    /// A worker's share of what is said of the whole node.
    pub(super) fn settings(&self, node: &ForwarderSettings, worker: u8) -> ForwarderSettings {
        let mut settings = *node;
        settings.pit.worker = worker;
        let workers = u64::from(self.balance.place().workers());
        settings.cs.octets = node.cs.octets.div_ceil(workers);
        // Fewer than there were.
        settings.cs.packets = u32::try_from(u64::from(node.cs.packets).div_ceil(workers)).unwrap_or(u32::MAX);
        settings
    }

    /// Makes a router one of them.
    pub(super) fn join(&self, ndn: Ndn, hash: NameHash, worker: u8) -> Ndn {
        match self.port {
            Some(port) => ndn.with_worker_set(WorkerSet::new(self.balance.clone(), hash, worker, port)),
            None => ndn,
        }
    }
}
