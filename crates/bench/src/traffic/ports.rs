//! The ports of a run: opened by their descriptions, or given.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use kaido_engine::netlink::{self, Interface, NetlinkError};
use kaido_engine::port::{
    PacketPort, PcapError, PcapPort, Port, PortError, UdpSink, XdpOptions, XdpPool, XdpPort,
};
use kaido_engine::{Batch, FramePool, OwnedPool, PoolCache, PoolError};
use kaido_wire::gtpu;
use kaido_xdp::{AttachMode, PLAIN_MTU_MAX, PortMatch, PortSteering, PortSteeringConfig};

use crate::generator::FrameMemory;
use crate::stream::{Driver, PortSpec};

/// Frames of a port that sends and receives; several rings of 2048.
const FRAMES: usize = 16_384;

fn own_pool() -> Result<OwnedPool, PoolError> {
    FramePool::leak(FRAMES).map(OwnedPool)
}

/// A port could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no such interface, or it cannot be asked.
    #[error(transparent)]
    Interface(#[from] NetlinkError),
    /// The packet socket.
    #[error(transparent)]
    Packet(#[from] PortError),
    /// A capture file.
    #[error(transparent)]
    Pcap(#[from] PcapError),
    /// The AF_XDP socket.
    #[error("AF_XDP: {0}")]
    Socket(String),
    /// The program that hands packets to it.
    #[error("XDP program: {0}")]
    Program(#[from] kaido_xdp::Error),
    /// The memory for frames.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A port in memory has no other end.
    #[error("a port in memory is for programs that hold its other end")]
    Memory,
}

/// An open port.
pub struct OpenPort {
    /// One queue, used by one thread.
    pub port: Box<dyn Port>,
    /// The frames that it sends and receives.
    pub pool: &'static FramePool,
    /// Whether what it sends lies unchanged in its frames afterwards.
    pub memory: FrameMemory,
    /// MAC address of the device, if it has one.
    pub mac: Option<[u8; 6]>,
    /// Where ARP and neighbour discovery come in, if not at the port itself.
    side: Option<PacketPort>,
    /// Lives as long as the port: packets come as long as its program is attached.
    _steering: Option<PortSteering>,
    /// So that the kernel refuses no tunnels.
    _sinks: Vec<UdpSink>,
    /// The last that is dropped: the port gives its frames back before.
    _own: Option<OwnedPool>,
}

impl std::fmt::Debug for OpenPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenPort").field("mac", &self.mac).finish_non_exhaustive()
    }
}

impl OpenPort {
    /// A port that is open already, as one in memory, whose frames are of `pool`.
    pub fn given(port: Box<dyn Port>, pool: &'static FramePool) -> Self {
        Self {
            port,
            pool,
            memory: FrameMemory::Shared,
            mac: None,
            side: None,
            _steering: None,
            _sinks: Vec::new(),
            _own: None,
        }
    }

    /// A port with a pool of its own, whose frames nobody else writes into.
    fn owning(port: Box<dyn Port>, own: OwnedPool) -> Self {
        let pool = *own;
        Self { memory: FrameMemory::Kept, _own: Some(own), ..Self::given(port, pool) }
    }

    /// Opens a port.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(spec: &PortSpec) -> Result<Self, OpenError> {
        match &spec.driver {
            Driver::Memory => Err(OpenError::Memory),
            Driver::Pcap { input, output } => {
                let port = PcapPort::open(input.as_deref(), output.as_deref())?;
                Ok(Self::owning(Box::new(port), own_pool()?))
            }
            Driver::AfPacket { interface } => {
                let found = netlink::interface(interface)?;
                let port = PacketPort::open(found.ifindex, found.mtu as usize)?;
                let mut open = Self::owning(Box::new(port), own_pool()?);
                // The kernel sees tunnels too, and would answer those to its own addresses that nobody listens. Where the
                // port is taken, somebody does.
                let own = found
                    .addresses
                    .iter()
                    .filter(|address| !address.link_local)
                    .map(|address| address.address);
                open._sinks = own
                    .filter_map(|address| UdpSink::bind([SocketAddr::new(address, gtpu::UDP_PORT)]).ok())
                    .collect();
                open.mac = Some(found.mac);
                Ok(open)
            }
            Driver::AfXdp { interface, queue } => Self::open_xdp(interface, *queue),
        }
    }

    fn open_xdp(interface: &str, queue: u32) -> Result<Self, OpenError> {
        let found = netlink::interface(interface)?;
        let own = own_pool()?;
        let registered = XdpPool::register(*own).map_err(|error| OpenError::Socket(error.to_string()))?;
        let (port, steering) = steered(&registered, &mut own.cache(), &found, queue)?;
        let side = PacketPort::open(found.ifindex, found.mtu as usize)?;
        let mut open = Self::owning(Box::new(port), own);
        open.mac = Some(found.mac);
        open.side = Some(side);
        open._steering = Some(steering);
        Ok(open)
    }

    /// Where ARP and neighbour discovery are spoken.
    pub(super) fn neighbours_at(&mut self) -> &mut dyn Port {
        match &mut self.side {
            Some(side) => side,
            None => &mut *self.port,
        }
    }

    /// Whether that is beside the port.
    pub(super) fn has_side(&self) -> bool {
        self.side.is_some()
    }
}

/// A port with frames of a registered pool, and the program that hands all of IP to it which is for the interface's MAC
/// address, and for no address of the kernel's. `cache` is of that pool.
pub(crate) fn steered(
    registered: &XdpPool,
    cache: &mut PoolCache,
    found: &Interface,
    queue: u32,
) -> Result<(XdpPort, PortSteering), OpenError> {
    let multi_buffer = found.mtu > PLAIN_MTU_MAX;
    let options = XdpOptions { multi_buffer, ..XdpOptions::default() };
    let mut port = XdpPort::open(registered, found.ifindex, queue, &options)
        .map_err(|error| OpenError::Socket(error.to_string()))?;
    // Nothing comes yet; but what comes first must find frames to be received into.
    port.receive(cache, &mut Batch::new());
    let matches = PortMatch { routed: true, ..PortMatch::default() };
    let config = PortSteeringConfig { matches, mac: found.mac, multi_buffer };
    let mut steering = PortSteering::load(config)?;
    steering.register_socket(queue, port.as_fd())?;
    steering.attach_to(found.ifindex, AttachMode::Auto)?;
    Ok((port, steering))
}
