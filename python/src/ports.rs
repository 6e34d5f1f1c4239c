//! The ports of a run.

use std::net::SocketAddr;

use kaido_bench::generator::FrameMemory;
use kaido_bench::stream::{Driver, LinkMode, PortSpec};
use kaido_bench::traffic::OpenPort;
use kaido_engine::FramePool;
use kaido_engine::netlink;
use kaido_engine::port::{MemoryWire, PacketPort, PcapPort, Port, UdpSink};
use kaido_wire::gtpu;

/// An open port.
pub(crate) struct Opened {
    pub(crate) port: Box<dyn Port>,
    /// The frames that it sends and receives.
    pub(crate) pool: &'static FramePool,
    pub(crate) memory: FrameMemory,
    /// Keeps the kernel from refusing tunnels while the port is open.
    _sink: Option<UdpSink>,
}

/// Opens a port with frames of the process's pool; `wire` is the far end of one in memory.
pub(crate) fn open(spec: &PortSpec, wire: &MemoryWire, pool: &'static FramePool) -> Result<Opened, String> {
    let said = |error: &dyn std::fmt::Display| format!("port `{}`: {error}", spec.name);
    if spec.link != LinkMode::L2 {
        return Err(said(&"link.l3 is for `kaido bench run`; here templates say MAC addresses"));
    }
    let shared = |port, sink| Opened { port, pool, memory: FrameMemory::Shared, _sink: sink };
    match &spec.driver {
        Driver::Memory => Ok(shared(Box::new(wire.port()), None)),
        Driver::Pcap { input, output } => {
            let port = PcapPort::open(input.as_deref(), output.as_deref()).map_err(|error| said(&error))?;
            Ok(shared(Box::new(port), None))
        }
        Driver::AfPacket { interface } => {
            let found = netlink::interface(interface).map_err(|error| said(&error))?;
            let mtu = usize::try_from(found.mtu).unwrap_or(usize::MAX);
            let port = PacketPort::open(found.ifindex, mtu).map_err(|error| said(&error))?;
            let own = found.addresses.iter().filter(|address| !address.link_local);
            let sink = UdpSink::bind(own.map(|address| SocketAddr::new(address.address, gtpu::UDP_PORT)));
            Ok(shared(Box::new(port), Some(sink.map_err(|error| said(&error))?)))
        }
        // Its frames are registered with the kernel, so that they are a pool of their own.
        Driver::AfXdp { .. } => {
            let open = OpenPort::open(spec).map_err(|error| said(&error))?;
            let (pool, memory) = (open.pool, open.memory);
            Ok(Opened { port: Box::new(Held(open)), pool, memory, _sink: None })
        }
    }
}

/// A port with what must live as long.
struct Held(OpenPort);

impl Port for Held {
    fn receive(&mut self, pool: &mut kaido_engine::PoolCache, batch: &mut kaido_engine::Batch) {
        self.0.port.receive(pool, batch);
    }

    fn transmit(&mut self, pool: &mut kaido_engine::PoolCache, batch: &mut kaido_engine::Batch) -> usize {
        self.0.port.transmit(pool, batch)
    }
}
