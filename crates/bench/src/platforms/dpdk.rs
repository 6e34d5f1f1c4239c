//! The engine's ports over DPDK: by `net_af_packet`, its driver for packet sockets, since there is no NIC on these links. It takes
//! frames of an MTU of 1500 at most.

use dpdk_port::{DpdkError, DpdkOptions, DpdkPool, DpdkPort, Eal};
use kaido_engine::FramePool;
use kaido_engine::netlink::Interface;
use kaido_engine::port::Port;

use super::Reason;

/// No huge pages, no NIC, no files that another process could have.
const ARGUMENTS: [&str; 5] = ["--no-huge", "--no-shconf", "--no-pci", "--no-telemetry", "-m256"];
/// Its rings, whose frames fit into one mbuf.
const RINGS: &str = "framesz=2048,blocksz=4096,framecnt=1024";

/// DPDK, started for the first port.
#[derive(Default)]
pub(super) struct Dpdk {
    started: Option<(Eal, DpdkPool)>,
    /// Devices so far: each has a name of its own.
    devices: u32,
}

impl Dpdk {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// A port on an interface. The device goes with it.
    pub(super) fn open(
        &mut self,
        pool: &'static FramePool,
        interface: &Interface,
    ) -> Result<Box<dyn Port>, Reason> {
        let refused = |error: DpdkError| format!("{error}; {}", error.help());
        if self.started.is_none() {
            let eal = Eal::start(&ARGUMENTS).map_err(refused)?;
            let memory = DpdkPool::register(&eal, pool).map_err(refused)?;
            self.started = Some((eal, memory));
        }
        let Some((eal, memory)) = &self.started else { return Err("it is not started".to_owned()) };
        let name = format!("net_af_packet{}", self.devices);
        self.devices += 1;
        eal.probe(&format!("{name},iface={},{RINGS}", interface.name)).map_err(refused)?;
        let options = DpdkOptions { promiscuous: true, ..DpdkOptions::default() };
        let port = DpdkPort::open(memory, &name, &options).map_err(refused)?.remove(0);
        Ok(Box::new(port))
    }
}
