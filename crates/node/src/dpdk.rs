//! Opens the devices of `dpdk` ports.

use dpdk_port::{DpdkError, DpdkOptions, DpdkPool, DpdkPort, Eal};
use kaido_engine::FramePool;

use super::interfaces::DpdkQueue;
use crate::config::{Base, PortConfig};
use crate::start_fault::{StartFault, fault};

/// DPDK, started for the first port that is its.
pub(crate) struct DpdkDevices<'c> {
    base: &'c Base,
    pool: &'static FramePool,
    memory: Option<DpdkPool>,
}

impl<'c> DpdkDevices<'c> {
    pub(crate) fn new(base: &'c Base, pool: &'static FramePool) -> Self {
        Self { base, pool, memory: None }
    }

    /// Opens the device of a port, which may take frames to every address: its queue, its Ethernet address, and what it is.
    pub(crate) fn open(&mut self, port: &PortConfig, promiscuous: bool) -> Result<DpdkQueue, StartFault> {
        let refused = |error: DpdkError| fault(port, &error, error.help());
        let memory = match &self.memory {
            Some(memory) => memory,
            None => {
                let eal = Eal::start(&self.base.dpdk.eal).map_err(refused)?;
                self.memory.insert(DpdkPool::register(&eal, self.pool).map_err(refused)?)
            }
        };
        let name = port.device.as_ref().map_or("", |name| name.get_ref().as_str());
        let options = DpdkOptions {
            mtu: u16::try_from(port.mtu()).unwrap_or(u16::MAX),
            promiscuous,
            ..DpdkOptions::default()
        };
        let mut queues = DpdkPort::open(memory, name, &options).map_err(refused)?;
        let queue = queues.remove(0);
        let (mac, how) = (queue.info().mac, format!("dpdk, {}", queue.info().driver));
        Ok(DpdkQueue { queue: Box::new(queue), mac, how })
    }
}
