//! Binds a port to its interface: sockets and programs, at the start and whenever the interface comes back.

use std::net::IpAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

use kaido_engine::netlink::{self, Interface};
use kaido_engine::port::{ChecksumPort, PacketPort, Port, XdpOptions, XdpPool};
use kaido_engine::steer::relay;
use kaido_engine::{FramePool, PortId};
use kaido_xdp::{AttachMode, PLAIN_MTU_MAX, PinFolder, Program};
use kaido_xsk::BindMode;

use super::board::{PortState, PortView};
use super::interfaces::{Interfaces, RESTART, make_tap, receive_queues, routable, tap_config, tap_device};
use super::queues::{self, Plan, QueueFault};
use super::trunk::{Queues, share};
use crate::config::{Attach, CopyMode, Driver, PortConfig};
use crate::ethtool::Ethtool;
use crate::start_fault::{StartFault, fault};
use crate::takeover::{Takeover, TakeoverFault};

/// What a program that does not load lacks.
pub(crate) const NO_PROGRAM: &str = "an XDP program needs root, or CAP_BPF and CAP_NET_ADMIN";

/// What the name of a pinned link begins with; the index of its interface follows, as a name may have characters that pins have not.
pub const PINNED_LINK: &str = "link-";

/// Drivers whose packets come from the same machine, or from a guest of it.
const WITHOUT_WIRE: [&str; 5] = ["veth", "macvlan", "bridge", "tun", "virtio_net"];

/// The name of an interface's driver in the kernel, where it tells one.
fn kernel_driver(interface: &str) -> Option<String> {
    Ethtool::open(interface).and_then(|device| device.driver()).ok()
}

/// Whether packets may come in by an interface without the checksums of TCP and UDP, which their sender has left to a device to
/// finish: there is no wire behind it, and AF_XDP does not tell.
pub fn has_no_wire(interface: &str) -> bool {
    kernel_driver(interface).is_some_and(|driver| WITHOUT_WIRE.contains(&driver.as_str()))
}

/// A port, and the interface that it is bound to.
#[derive(Clone, Debug)]
pub struct Device {
    /// What the configuration has of it.
    pub config: PortConfig,
    /// What the kernel has of it: the interface, or a TAP device in its place.
    pub interface: Interface,
    /// The interface by which its packets come and go, where the port is a VLAN of it.
    trunk: Option<Interface>,
    /// Where it is the first of several ports of its interface: the VLANs of them all.
    pub vids: Vec<Option<u16>>,
    /// Its place among the ports of its interface.
    pub place: usize,
    /// The TAP device's own port.
    pub side: Option<PortId>,
    /// Number of its program.
    pub program: Option<usize>,
    /// How it was opened, and how its program was attached.
    pub opened: String,
    /// Of AF_XDP, once its sockets are open: whether the kernel copies each packet.
    pub mode: Option<BindMode>,
    attached: Option<AttachMode>,
    /// Whether it takes frames to every Ethernet address.
    takes_all: bool,
    /// Addresses to which tunnels come in by it, or by another port.
    tunnels: Vec<IpAddr>,
    /// Those of them that were its own when the node started.
    own_tunnels: Vec<IpAddr>,
}

impl Device {
    /// A port with what the kernel has of it, and the interface of which it is a VLAN, if it is.
    pub fn new(
        config: &PortConfig,
        (interface, trunk): (Interface, Option<Interface>),
        takes_all: bool,
        tunnels: &[IpAddr],
    ) -> Self {
        let own_tunnels = routable(&interface).filter(|own| tunnels.contains(own)).collect();
        Self {
            config: config.clone(),
            interface,
            trunk,
            vids: Vec::new(),
            place: 0,
            side: None,
            program: None,
            opened: String::new(),
            mode: None,
            attached: None,
            takes_all,
            tunnels: tunnels.to_vec(),
            own_tunnels,
        }
    }

    /// How it was opened, in words.
    pub fn how(&self) -> String {
        let how = match self.attached {
            Some(mode) => format!("{}, {mode:?} program", self.opened).to_lowercase(),
            None => self.opened.clone(),
        };
        match (self.config.vid(), &self.trunk) {
            (Some(vid), Some(trunk)) => format!("{how}, vlan {vid} of {}", trunk.name),
            _ => how,
        }
    }

    /// The interface by which its packets come and go.
    pub fn wire(&self) -> &Interface {
        self.trunk.as_ref().unwrap_or(&self.interface)
    }

    /// Has it be another one, or changed.
    pub fn set_wire(&mut self, interface: Interface) {
        match &mut self.trunk {
            Some(trunk) => *trunk = interface,
            None => self.interface = interface,
        }
    }

    /// Whether it is a VLAN of its interface.
    pub fn is_vlan(&self) -> bool {
        self.trunk.is_some()
    }

    /// Its MTU where it is not the TAP device's to say: that of its interface.
    pub fn follows_mtu(&self) -> bool {
        self.config.mtu.is_none()
    }

    /// Has its queues serve other ports of its interface too: their tunnels, and frames to every address where one asks for them.
    pub fn widen(&mut self, tunnels: &[IpAddr], takes_all: bool) {
        self.tunnels = tunnels.to_vec();
        self.takes_all = takes_all;
    }

    /// Whether a TAP device is the kernel's side of it, and not the port itself.
    pub fn opens_side(&self) -> bool {
        *self.config.driver.get_ref() != Driver::Tap
    }

    /// Takes over how the first port of its interface was opened.
    pub fn join(&mut self, first: &Self) {
        self.opened.clone_from(&first.opened);
        (self.attached, self.program, self.mode) = (first.attached, first.program, first.mode);
        self.set_wire(first.wire().clone());
    }

    /// As it is shown.
    pub fn shown(&self) -> PortView {
        let mut shown =
            PortView::steady(self.config.name.get_ref(), &self.how(), self.interface.mtu as usize);
        shown.state = if self.wire().up { PortState::Up } else { PortState::Down };
        shown
    }

    /// Whether its program runs behind the driver.
    pub fn is_generic(&self) -> bool {
        self.attached == Some(AttachMode::Generic)
    }

    /// Whether its interface is a veth device.
    pub fn is_veth(&self) -> bool {
        kernel_driver(&self.wire().name).is_some_and(|driver| driver == "veth")
    }

    /// Says so where what a driver sends out of a port may be lost on its way, uncounted by anybody.
    pub fn warn_of_veth(&self) {
        if self.is_veth() {
            tracing::warn!(
                port = %self.config.name.get_ref(),
                "what a driver forwards to a veth device is lost unless its other end has GRO on (`ethtool -K PEER gro on`) or an XDP program"
            );
        }
    }

    /// Says so where a VLAN's tags do not come to its program.
    pub fn warn_of_stripping(&self) {
        let is_xdp = *self.config.driver.get_ref() == Driver::AfXdp;
        if self.is_vlan() && is_xdp && !self.is_veth() {
            let name = &self.wire().name;
            if Ethtool::open(name).and_then(|device| device.strips_vlans()).unwrap_or(false) {
                tracing::warn!(
                    port = %self.config.name.get_ref(),
                    "the NIC takes VLAN tags off before an XDP program sees them, so the port gets no packets: `ethtool -K {name} rxvlan off`"
                );
            }
        }
    }

    /// The interface's addresses that packets may be routed to.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        routable(&self.interface)
    }

    /// An address to which tunnels come in here, and which `interface` has no more.
    pub fn missing_tunnel_address(&self, interface: &Interface) -> Option<IpAddr> {
        self.own_tunnels.iter().find(|own| routable(interface).all(|found| found != **own)).copied()
    }

    /// Attaches its program: from here on packets come.
    pub fn attach(&mut self, program: &mut impl Program) -> Result<(), StartFault> {
        self.attach_over(program, None)
    }

    /// As [`Device::attach`], in the place of the program that a link has there.
    pub fn attach_over(
        &mut self,
        program: &mut impl Program,
        left: Option<OwnedFd>,
    ) -> Result<(), StartFault> {
        if let Some(link) = left {
            let taken = program.take_over(link);
            taken.map_err(|error| {
                let help = "`ip -d link show` names the program; where it is pinned, removing the folder of its pin takes it off";
                fault(&self.config, error, help)
            })?;
            self.attached = program.mode();
            return Ok(());
        }
        let mode = match *self.config.attach.get_ref() {
            Attach::Auto => AttachMode::Auto,
            Attach::Native => AttachMode::Native,
            Attach::Generic => AttachMode::Generic,
        };
        program.attach_to(self.wire().ifindex, mode).map_err(|error| {
            let help = "attach = \"generic\" works with every driver; a program that another tool left is removed by `ip link set dev IF xdp off`, and one that is pinned by removing its folder under /sys/fs/bpf";
            fault(&self.config, error, help)
        })?;
        self.attached = program.mode();
        Ok(())
    }
}

/// What all ports are bound with.
#[derive(Clone)]
pub struct Binder {
    pool: &'static FramePool,
    /// Where there are AF_XDP ports.
    xdp_pool: Option<XdpPool>,
    /// Whether packets may be chains; settled by the MTUs at the start.
    pub multi_buffer: bool,
    plan: Plan,
    /// Where links of programs are pinned that are to outlive the process.
    pins: Arc<OnceLock<PinFolder>>,
    takeover: Arc<Takeover>,
}

impl Binder {
    /// For the ports of `found`.
    ///
    /// # Errors
    /// When the kernel does not take the pool for AF_XDP.
    pub fn new(found: &Interfaces<'_>, pool: &'static FramePool) -> Result<Self, StartFault> {
        let is_xdp = |port: &PortConfig| *port.driver.get_ref() == Driver::AfXdp;
        let multi_buffer = found.wires().any(|(port, wire)| is_xdp(port) && is_long(pool, wire.mtu));
        let first = found.ports().find(|(port, _)| is_xdp(port));
        let ifindexes: Vec<u32> =
            found.wires().filter(|(port, _)| is_xdp(port)).map(|(_, wire)| wire.ifindex).collect();
        let xdp_pool = first.map(|(port, _)| {
            found.takeover.xdp_pool(pool, &ifindexes).map_err(|error| {
                fault(port, error, "AF_XDP needs root, or CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF; or use driver = \"af_packet\"")
            })
        });
        Ok(Self {
            pool,
            xdp_pool: xdp_pool.transpose()?,
            multi_buffer,
            plan: Plan::of(&found.base.node),
            pins: Arc::default(),
            takeover: found.takeover.clone(),
        })
    }

    /// The longest IP packet that a port takes by that interface: its MTU, unless the node was started with frames and
    /// sockets for shorter ones.
    pub fn mtu(&self, device: &Device, interface: &Interface) -> usize {
        let is_xdp = *device.config.driver.get_ref() == Driver::AfXdp;
        let wanted = interface.mtu as usize;
        if !is_xdp || self.multi_buffer || !is_long(self.pool, interface.mtu) {
            return wanted;
        }
        let most = (0..=PLAIN_MTU_MAX).rev().find(|mtu| !is_long(self.pool, *mtu)).unwrap_or(0);
        most as usize
    }

    /// Binds the ports of an interface to one that came back, by the first of them; queues by port, one for each worker.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn bind<P: Program>(
        &self,
        device: &mut Device,
        interface: Option<&Interface>,
        program: Option<&mut P>,
        workers: usize,
    ) -> Result<(Interface, Queues), StartFault> {
        // Put back where it does not succeed.
        let before = device.wire().clone();
        if let Some(interface) = interface {
            device.set_wire(interface.clone());
        }
        let bound = match *device.config.driver.get_ref() {
            Driver::AfXdp => self.bind_xdp(device, program),
            Driver::AfPacket => self.open_packet(device).and_then(|queue| spread(device, queue, workers)),
            Driver::Tap | Driver::Dpdk => self.open_side(device, workers),
        };
        match bound.and_then(|queues| share(&device.config, &device.vids, queues)) {
            Ok(queues) => Ok((device.wire().clone(), queues)),
            Err(fault) => {
                device.set_wire(before);
                Err(fault)
            }
        }
    }

    fn bind_xdp<P: Program>(
        &self,
        device: &mut Device,
        program: Option<&mut P>,
    ) -> Result<Vec<Box<dyn Port>>, StartFault> {
        let Some(program) = program else { return Ok(Vec::new()) };
        // The kernel has taken it off the interface that is gone.
        let _ = program.detach();
        let refused = |device: &Device, error| fault(&device.config, error, NO_PROGRAM);
        program.set_mac(device.wire().mac).map_err(|error| refused(device, error))?;
        let queues = self.open_xdp(device, |queue, socket| program.register_socket(queue, socket))?;
        device.attach(program)?;
        if let Some(folder) = self.pins.get() {
            pin_link(folder, program).map_err(|error| refused(device, error))?;
        }
        Ok(queues)
    }

    /// Has the links of programs that are attached from here on be pinned.
    pub(crate) fn pin(&self, folder: PinFolder) {
        // There is one folder, which is named once.
        let _ = self.pins.set(folder);
    }

    /// Where they are.
    pub(crate) fn pins(&self) -> Option<&PinFolder> {
        self.pins.get()
    }

    /// Opens the queues of an AF_XDP port; `register` is told of each socket and its queue.
    pub fn open_xdp(
        &self,
        device: &mut Device,
        register: impl FnMut(u32, BorrowedFd<'_>) -> Result<(), kaido_xdp::Error>,
    ) -> Result<Vec<Box<dyn Port>>, StartFault> {
        let config = &device.config;
        let Some(pool) = &self.xdp_pool else { return Ok(Vec::new()) };
        let wire = device.wire();
        let options = XdpOptions {
            mode: match *config.copy.get_ref() {
                CopyMode::Auto => BindMode::Auto,
                CopyMode::Copy => BindMode::Copy,
                CopyMode::ZeroCopy => BindMode::ZeroCopy,
            },
            multi_buffer: self.multi_buffer,
            ..XdpOptions::default()
        };
        let opened = queues::Device {
            ifindex: wire.ifindex,
            name: &wire.name,
            receive_queues: receive_queues(&wire.name),
            endpoints: &device.tunnels,
        };
        let (had, wanted) = (pool.waiting(wire.ifindex), self.plan.sockets(opened.receive_queues));
        if pool.is_elsewhere() && had != wanted && self.plan.check(&wire.name, opened.receive_queues).is_ok()
        {
            let other =
                format!("the running node has {had} queues of it, and this configuration wants {wanted}");
            return Err(fault(config, other, RESTART));
        }
        let (ports, mode) = self.plan.open(pool, &opened, &options, register).map_err(|error| {
            let help = match &error {
                QueueFault::Mismatch(mismatch) => mismatch.help(),
                QueueFault::Open { .. } if pool.is_elsewhere() => RESTART.to_owned(),
                QueueFault::Open { .. } => {
                    "another program may use the queue; copy = \"copy\" works with every driver".to_owned()
                }
                QueueFault::Register(_) => NO_PROGRAM.to_owned(),
                QueueFault::Wake(_) => "raise the limit of open files".to_owned(),
            };
            fault(config, error, help)
        })?;
        device.opened = format!("af_xdp, {mode:?}").to_lowercase();
        device.mode = Some(mode);
        if has_no_wire(&device.wire().name) {
            return Ok(ports.into_iter().map(|port| Box::new(ChecksumPort::new(port)) as _).collect());
        }
        Ok(ports)
    }
}

/// Pins the link of an interface's program, which stays when the process ends.
pub(crate) fn pin_link(folder: &PinFolder, program: &mut impl Program) -> Result<(), kaido_xdp::Error> {
    if let Some((link, ifindex)) = program.link().zip(program.ifindex()) {
        folder.pin(&format!("{PINNED_LINK}{ifindex}"), link)?;
        program.stay(true);
    }
    Ok(())
}

impl Binder {
    /// Opens a packet socket on a port's interface, or takes over the one that there is.
    pub(crate) fn open_packet(&self, device: &mut Device) -> Result<Box<dyn Port>, StartFault> {
        let help = "packet sockets need root or CAP_NET_RAW";
        let (config, wire) = (&device.config, device.wire());
        let name = packet_name(config);
        let waiting = self.takeover.descriptor(&name).map_err(|error| fault(config, error, RESTART))?;
        let is_new = waiting.is_none();
        let queue = match waiting {
            Some(socket) => PacketPort::adopt(socket, wire.ifindex, wire.mtu as usize),
            None => PacketPort::open(wire.ifindex, wire.mtu as usize),
        };
        let queue = queue.map_err(|error| fault(config, error, help))?;
        if device.takes_all && is_new {
            queue
                .receive_all()
                .map_err(|error| fault(config, error, "the interface must take every address"))?;
        }
        self.takeover.keep(&name, queue.descriptor());
        device.opened = "af_packet".to_owned();
        Ok(Box::new(queue))
    }

    /// Makes the TAP device of a port again, which somebody has removed, or takes over the one that there is; queues, one for each
    /// worker.
    pub(crate) fn open_side(
        &self,
        device: &mut Device,
        workers: usize,
    ) -> Result<Vec<Box<dyn Port>>, StartFault> {
        let help = "a TAP device needs root or CAP_NET_ADMIN, and a free name";
        let trunk = device.trunk.as_ref();
        let config = tap_config(&device.config, trunk.map(|trunk| trunk.mac), trunk.map(|trunk| trunk.mtu));
        let tap = make_tap(&device.config, &config, &self.takeover)?;
        device.interface =
            netlink::interface(&config.name).map_err(|error| fault(&device.config, error, help))?;
        spread(device, Box::new(tap), workers)
    }

    /// The program that another process had on the interface of a port, where its ports are this one's now.
    pub(crate) fn program_of(&self, device: &Device) -> Result<Option<OwnedFd>, StartFault> {
        let found = self.takeover.program(device.wire().ifindex);
        found.map_err(|error| fault(&device.config, error, RESTART))
    }

    /// Keeps the packet sockets and TAP devices of ports, which they have still.
    pub(crate) fn keep(&self, devices: &[Device]) -> Result<(), TakeoverFault> {
        let names = devices.iter().flat_map(|device| {
            let tap = device.config.tap_name().map(|name| tap_device(&name));
            tap.into_iter().chain([packet_name(&device.config)])
        });
        self.takeover.hold(names)
    }

    /// Has ports that are closed leave their AF_XDP sockets.
    pub(crate) fn leave(&self) {
        self.xdp_pool.iter().for_each(XdpPool::leave);
    }

    /// Has ports that are opened go on where those were that were left.
    pub(crate) fn stay(&self) {
        self.xdp_pool.iter().for_each(XdpPool::stay);
    }
}

/// Whether packets of that MTU need chains of frames.
fn is_long(pool: &FramePool, mtu: u32) -> bool {
    mtu > PLAIN_MTU_MAX || !pool.frame_size().holds_mtu(mtu as usize)
}

/// The name by which a port's packet socket is handed over.
fn packet_name(config: &PortConfig) -> String {
    format!("packet socket of port {}", config.name.get_ref())
}

/// The queue of a device that has one, for all workers.
pub(crate) fn spread(
    device: &Device,
    queue: Box<dyn Port>,
    workers: usize,
) -> Result<Vec<Box<dyn Port>>, StartFault> {
    relay(queue, workers).map_err(|error| fault(&device.config, error, "raise the limit of open files"))
}
