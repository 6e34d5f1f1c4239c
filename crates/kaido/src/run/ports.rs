//! Opens the ports of a configuration: devices, programs, routes. What a function asks of its ports is in [`Demands`].

use std::net::IpAddr;
use std::ops::DerefMut;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kaido_engine::netlink::{self, Interface, InterfaceAddress, RouteWatcher, WatchSettings};
use kaido_engine::port::{PacketPort, Port, TapConfig, TapPort, XdpOptions, XdpPool};
use kaido_engine::{FramePool, KernelPath, PortId, Route, Routes, Wanted};
use kaido_xdp::{AttachMode, Mounted, PLAIN_MTU_MAX};
use kaido_xsk::BindMode;

use super::StartFault;
use super::dpdk::DpdkDevices;
use super::queues::{self, Plan, QueueFault};
use crate::config::{Attach, Base, CopyMode, Datapath, Driver, PortConfig};
use crate::doctor::ethtool::Ethtool;

/// A worker's queue of a port, and where packets go that are not ours.
pub(super) type Queue = (Box<dyn Port>, KernelPath);

/// A program of AF_XDP ports: it brings packets to their sockets, and may do more.
pub(super) trait Program: Send + DerefMut<Target = Mounted> {
    /// Lets packets of a receive queue go to a socket.
    fn register_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), kaido_xdp::Error>;
    /// The node has these addresses now.
    fn set_local_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), kaido_xdp::Error>;
}

/// What a function asks of its ports.
pub(super) trait Demands {
    /// The program of its AF_XDP ports.
    type Program: Program + 'static;

    /// Loads the program of the port of that number. Long packets are `multi_buffer`.
    fn program(
        &self,
        at: usize,
        interface: &Interface,
        multi_buffer: bool,
    ) -> Result<Self::Program, kaido_xdp::Error>;

    /// Addresses to which tunnels come in by a port; by what is in them, packets are steered to workers.
    fn tunnel_addresses(&self, port: &PortConfig) -> &[IpAddr];

    /// Whether everything that no other route is for goes to the kernel behind a TAP device.
    fn is_way_out(&self, tap: &PortConfig) -> bool;

    /// Where packets out of AF_XDP sockets go that are the kernel's.
    fn kernel_path(&self) -> KernelPath;
}

/// A port before and after it is attached.
pub(super) struct Device {
    pub(super) config: PortConfig,
    pub(super) interface: Interface,
    /// Number of its program.
    pub(super) program: Option<usize>,
    how: String,
}

/// A port as it is shown.
#[derive(Clone, Debug)]
pub(super) struct ShownPort {
    pub(super) name: String,
    pub(super) how: String,
    pub(super) mtu: usize,
}

/// The interfaces of the ports, in their order, with what had to be made for them.
pub(super) struct Found<'c> {
    base: &'c Base,
    pub(super) interfaces: Vec<Interface>,
    made: Vec<Made>,
}

/// All ports, and what must live as long as they do.
pub(super) struct Opened<P> {
    pub(super) devices: Vec<Device>,
    /// By worker, then by port.
    queues: Vec<Vec<Queue>>,
    programs: Arc<Mutex<Vec<P>>>,
    routes: Arc<Routes>,
    _watcher: RouteWatcher,
}

/// Drivers whose packets come from the same machine, or from a guest of it.
const WITHOUT_WIRE: [&str; 3] = ["veth", "tun", "virtio_net"];

pub(super) fn fault(
    config: &PortConfig,
    fault: impl std::fmt::Display,
    help: impl Into<String>,
) -> StartFault {
    StartFault::Port { port: config.name.get_ref().clone(), fault: fault.to_string(), help: help.into() }
}

impl<'c> Found<'c> {
    /// Looks the interfaces up; TAP devices are made, and DPDK devices opened. Ports that `takes_all` are to receive frames
    /// to every address.
    pub(super) fn look(
        base: &'c Base,
        pool: &'static FramePool,
        takes_all: impl Fn(&PortConfig) -> bool,
    ) -> Result<Self, StartFault> {
        let mut dpdk = DpdkDevices::new(base, pool);
        let ports = base.ports.iter().map(toml::Spanned::get_ref);
        let found = ports.map(|port| interface(port, &mut dpdk, takes_all(port)));
        let (interfaces, made) = found.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        Ok(Self { base, interfaces, made })
    }

    /// The ports and their interfaces.
    pub(super) fn ports(&self) -> impl Iterator<Item = (&'c PortConfig, &Interface)> {
        self.base.ports.iter().map(toml::Spanned::get_ref).zip(&self.interfaces)
    }
}

impl<P: Program + 'static> Opened<P> {
    /// Opens every port; no program is attached yet.
    pub(super) fn open(
        found: Found<'_>,
        pool: &'static FramePool,
        demands: &impl Demands<Program = P>,
        takes_all: impl Fn(&PortConfig) -> bool,
    ) -> Result<Self, StartFault> {
        let base = found.base;
        let workers = usize::from(*base.node.workers.get_ref());
        let mut queues: Vec<Vec<Queue>> = (0..workers).map(|_| Vec::new()).collect();
        let mut programs = Vec::new();
        let (routes, wanted) = Routes::new();
        // Behind the ports of the configuration come the kernel's sides of those that have one.
        let mut sides: Vec<Queue> = Vec::new();
        let multi_buffer = found.ports().any(|(port, interface)| {
            let is_long =
                interface.mtu > PLAIN_MTU_MAX || !pool.frame_size().holds_mtu(interface.mtu as usize);
            *port.driver.get_ref() == Driver::AfXdp && is_long
        });
        let mut xdp_pool = None;
        let mut devices = Vec::new();
        for (at, ((port, interface), made)) in
            base.ports.iter().zip(found.interfaces).zip(found.made).enumerate()
        {
            let port = port.get_ref();
            let mut device = Device { config: port.clone(), interface, program: None, how: String::new() };
            match port.driver.get_ref() {
                Driver::AfXdp => {
                    let pool = match &xdp_pool {
                        Some(pool) => pool,
                        None => xdp_pool.insert(XdpPool::register(pool).map_err(|error| {
                            fault(port, error, "AF_XDP needs root, or CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF; or use driver = \"af_packet\"")
                        })?),
                    };
                    let loaded = demands.program(at, &device.interface, multi_buffer);
                    let mut program = loaded.map_err(|error| fault(port, error, NO_PROGRAM))?;
                    let opening = Opening {
                        pool,
                        multi_buffer,
                        plan: Plan::of(&base.node),
                        tunnels: demands.tunnel_addresses(port),
                        kernel: demands.kernel_path(),
                    };
                    device.open_xdp(&opening, &mut program, &mut queues)?;
                    device.program = Some(programs.len());
                    programs.push(program);
                }
                Driver::AfPacket => {
                    let queue = PacketPort::open(device.interface.ifindex, device.interface.mtu as usize)
                        .map_err(|error| fault(port, error, "packet sockets need root or CAP_NET_RAW"))?;
                    if takes_all(port) {
                        queue
                            .receive_all()
                            .map_err(|error| fault(port, error, "the interface must take every address"))?;
                    }
                    device.how = "af_packet".to_owned();
                    queues[0].push((Box::new(queue), KernelPath::Shared));
                }
                Driver::Tap => {
                    let queue =
                        made.tap.into_iter().map(|tap| (Box::new(tap) as Box<dyn Port>, KernelPath::None));
                    queues[0].extend(queue);
                    device.how = "tap".to_owned();
                }
                Driver::Dpdk => {
                    let side = PortId(u8::try_from(base.ports.len() + sides.len()).unwrap_or(u8::MAX));
                    if let (Some(tap), Some(DpdkQueue { queue, how, .. })) = (made.tap, made.dpdk) {
                        queues[0].push((queue, KernelPath::Tap(side)));
                        sides.push((Box::new(tap), KernelPath::None));
                        device.how = how;
                    }
                }
            }
            devices.push(device);
        }
        if *base.node.datapath.get_ref() != Datapath::Engine {
            devices.iter().for_each(Device::warn_of_veth);
        }
        queues[0].append(&mut sides);
        let programs = Arc::new(Mutex::new(programs));
        static_routes(&devices, &routes, demands);
        let watcher = watch(&devices, &routes, wanted, &programs)?;
        Ok(Self { devices, queues, programs, routes, _watcher: watcher })
    }

    /// The programs, by their numbers.
    pub(super) fn programs(&self) -> &Arc<Mutex<Vec<P>>> {
        &self.programs
    }

    /// The queues, by worker.
    pub(super) fn take_queues(&mut self) -> Vec<Vec<Queue>> {
        std::mem::take(&mut self.queues)
    }

    /// Routes and neighbours.
    pub(super) fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }

    /// Ports as they are shown.
    pub(super) fn shown(&self) -> Vec<ShownPort> {
        let shown = |device: &Device| ShownPort {
            name: device.config.name.get_ref().clone(),
            how: device.how.clone(),
            mtu: device.interface.mtu as usize,
        };
        self.devices.iter().map(shown).collect()
    }

    /// Attaches the programs: from here on packets come.
    pub(super) fn attach(&mut self) -> Result<(), StartFault> {
        let mut programs = lock(&self.programs);
        for device in &mut self.devices {
            let Some(program) = device.program.and_then(|at| programs.get_mut(at)) else { continue };
            let mode = match *device.config.attach.get_ref() {
                Attach::Auto => AttachMode::Auto,
                Attach::Native => AttachMode::Native,
                Attach::Generic => AttachMode::Generic,
            };
            program.attach_to(device.interface.ifindex, mode).map_err(|error| {
                let help = "attach = \"generic\" works with every driver; a program that another tool left is removed by `ip link set dev IF xdp off`";
                fault(&device.config, error, help)
            })?;
            if let Some(obtained) = program.mode() {
                device.how = format!("{}, {obtained:?} program", device.how).to_lowercase();
            }
        }
        Ok(())
    }

    /// Detaches the programs.
    pub(super) fn detach(&self) {
        for program in lock(&self.programs).iter_mut() {
            if let Err(error) = program.detach() {
                tracing::error!(%error, "a program could not be detached");
            }
        }
    }
}

/// The lock of what is never left half done.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What an AF_XDP port is opened with.
struct Opening<'o> {
    pool: &'o XdpPool,
    multi_buffer: bool,
    plan: Plan,
    tunnels: &'o [IpAddr],
    kernel: KernelPath,
}

impl Device {
    /// The name of the kernel's driver, where it tells one.
    fn kernel_driver(&self) -> Option<String> {
        Ethtool::open(&self.interface.name).and_then(|device| device.driver()).ok()
    }

    /// Whether packets may come with checksums that their sender has left to a device to finish: there is no wire behind it,
    /// and AF_XDP does not tell.
    pub(super) fn lends_checksums(&self) -> bool {
        *self.config.driver.get_ref() == Driver::AfXdp
            && self.kernel_driver().is_some_and(|driver| WITHOUT_WIRE.contains(&driver.as_str()))
    }

    /// Says so where what a driver sends out of a port may be lost on its way, uncounted by anybody.
    fn warn_of_veth(&self) {
        if self.kernel_driver().is_some_and(|driver| driver == "veth") {
            tracing::warn!(
                port = %self.config.name.get_ref(),
                "what a driver forwards to a veth device is lost unless its other end has GRO on (`ethtool -K PEER gro on`) or an XDP program"
            );
        }
    }

    /// The interface's addresses that packets may be routed to.
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        routable(&self.interface)
    }

    /// Opens the queues, of which the program is told.
    fn open_xdp(
        &mut self,
        opening: &Opening<'_>,
        program: &mut impl Program,
        queues: &mut [Vec<Queue>],
    ) -> Result<(), StartFault> {
        let config = &self.config;
        let name = &self.interface.name;
        let options = XdpOptions {
            mode: match *config.copy.get_ref() {
                CopyMode::Auto => BindMode::Auto,
                CopyMode::Copy => BindMode::Copy,
                CopyMode::ZeroCopy => BindMode::ZeroCopy,
            },
            multi_buffer: opening.multi_buffer,
            ..XdpOptions::default()
        };
        let device = queues::Device {
            ifindex: self.interface.ifindex,
            name,
            receive_queues: receive_queues(name),
            endpoints: opening.tunnels,
        };
        let (ports, mode) = opening
            .plan
            .open(opening.pool, &device, &options, |queue, socket| program.register_socket(queue, socket))
            .map_err(|error| {
                let help = match &error {
                    QueueFault::Mismatch(mismatch) => mismatch.help(),
                    QueueFault::Open { .. } => {
                        "another program may use the queue; copy = \"copy\" works with every driver"
                            .to_owned()
                    }
                    QueueFault::Register(_) => NO_PROGRAM.to_owned(),
                    QueueFault::Wake(_) => "raise the limit of open files".to_owned(),
                };
                fault(config, error, help)
            })?;
        self.how = format!("af_xdp, {mode:?}").to_lowercase();
        for (worker, port) in queues.iter_mut().zip(ports) {
            worker.push((port, opening.kernel));
        }
        Ok(())
    }
}

/// What a program that does not load lacks.
const NO_PROGRAM: &str = "an XDP program needs root, or CAP_BPF and CAP_NET_ADMIN";

pub(super) fn routable(interface: &Interface) -> impl Iterator<Item = IpAddr> + '_ {
    interface.addresses.iter().filter(|found| !found.link_local).map(|found| found.address)
}

/// How many queues an interface receives on.
pub(crate) fn receive_queues(name: &str) -> usize {
    let listed = std::fs::read_dir(format!("/sys/class/net/{name}/queues"));
    let names = listed.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|queue| queue.to_string_lossy().starts_with("rx-")).count().max(1)
}

/// What was made for a port before its interface could be looked up.
#[derive(Default)]
struct Made {
    tap: Option<TapPort>,
    dpdk: Option<DpdkQueue>,
}

/// The queue of a `dpdk` port.
pub(super) struct DpdkQueue {
    pub(super) queue: Box<dyn Port>,
    /// The device's Ethernet address.
    pub(super) mac: [u8; 6],
    /// What it is.
    pub(super) how: String,
}

/// The interface of a port; a TAP device is made here, and a DPDK device opened, whose address the TAP device has.
fn interface(
    port: &PortConfig,
    dpdk: &mut DpdkDevices<'_>,
    takes_all: bool,
) -> Result<(Interface, Made), StartFault> {
    let name = port.interface.as_ref().map_or("", |name| name.get_ref().as_str());
    let mut made = Made::default();
    let driver = *port.driver.get_ref();
    let mut mac = None;
    if driver == Driver::Dpdk {
        let queue = dpdk.open(port, takes_all)?;
        mac = Some(queue.mac);
        made.dpdk = Some(queue);
    }
    if matches!(driver, Driver::Tap | Driver::Dpdk) {
        let config = TapConfig {
            name: name.to_owned(),
            mac,
            mtu: port.mtu(),
            addresses: port.addresses.iter().map(|prefix| (prefix.addr, prefix.len)).collect(),
            arp: driver == Driver::Dpdk,
        };
        let tap = TapPort::create(&config).map_err(|error| {
            fault(port, error, "a TAP device needs root or CAP_NET_ADMIN, and a free name")
        })?;
        made.tap = Some(tap);
    }
    let found = netlink::interface(name)
        .map_err(|error| fault(port, error, "`ip link` lists the interfaces of this network namespace"))?;
    if !found.up {
        // Not fatal: a carrier may come later, and the other ports work meanwhile.
        tracing::warn!(
            port = port.name.get_ref(),
            interface = name,
            "the interface is down or has no carrier"
        );
    }
    Ok((found, made))
}

/// Behind a TAP device is the kernel alone: it takes what is in the device's networks and
/// everything that no other route is for, where the function says so.
fn static_routes(devices: &[Device], routes: &Routes, demands: &impl Demands) {
    let mut fixed = Vec::new();
    for (number, device) in (0u8..).zip(devices) {
        if *device.config.driver.get_ref() != Driver::Tap {
            continue;
        }
        let route = Route { port: Some(PortId(number)), gateway: None, metric: u32::MAX };
        fixed.extend(device.config.addresses.iter().map(|prefix| (prefix.addr, prefix.len, route)));
        if demands.is_way_out(&device.config) {
            routes.set_elsewhere(PortId(number));
            fixed.push((IpAddr::from([0; 4]), 0, route));
            fixed.push((IpAddr::from([0; 16]), 0, route));
        }
        routes.set_sole_neighbour(PortId(number), device.interface.mac);
    }
    routes.set_fixed_routes(fixed);
}

/// Mirrors the kernel's routes and neighbours, and tells the programs of new addresses.
fn watch<P: Program + 'static>(
    devices: &[Device],
    routes: &Arc<Routes>,
    wanted: Receiver<Wanted>,
    programs: &Arc<Mutex<Vec<P>>>,
) -> Result<RouteWatcher, StartFault> {
    let mirrored = (0u8..)
        .zip(devices)
        .filter(|(_, device)| *device.config.driver.get_ref() != Driver::Tap)
        .map(|(number, device)| (PortId(number), device.interface.ifindex))
        .collect();
    let told = programs.clone();
    let on_addresses = move |addresses: &[InterfaceAddress]| {
        let local: Vec<_> = addresses.iter().map(|found| found.address).collect();
        for program in lock(&told).iter_mut() {
            if let Err(error) = program.set_local_addresses(&local) {
                tracing::error!(%error, "a program was not told of the node's addresses");
            }
        }
    };
    let settings = WatchSettings { on_addresses: Some(Box::new(on_addresses)), ..WatchSettings::default() };
    RouteWatcher::start_with(routes.clone(), wanted, mirrored, settings).map_err(|error| {
        let port = devices.first().map_or_else(String::new, |device| device.config.name.get_ref().clone());
        StartFault::Port {
            port,
            fault: format!("routes and neighbours: {error}"),
            help: "netlink must be reachable".into(),
        }
    })
}
