//! Opens the ports of a configuration: devices, programs, routes. What a function asks of its ports is in [`PortRequirements`].

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};

use kaido_engine::netlink::{Interface, InterfaceAddress, RouteWatcher, WatchSettings};
use kaido_engine::port::Port;
use kaido_engine::{FramePool, Inbox, KernelPath, NeighbourRequest, PortId, Route, Routes, Vrf};
use kaido_xdp::{AttachMode, PinFolder, Program};

pub use super::binder::{Binder, Device, PINNED_LINK, has_no_wire};
use super::binder::{NO_PROGRAM, pin_link, spread};
use super::board::PortBoard;
use super::interfaces::PortParts;
pub use super::interfaces::{Interfaces, receive_queues, routable};
use super::link_monitor::{LinkHook, LinkMonitor, MonitoredPorts};
use super::route_mirror::RouteMirror;
use super::trunk::{Queues, share, trunks};
use crate::config::{Driver, PortConfig, Spanned};
pub use crate::lock::lock;
use crate::start_fault::StartFault;
pub use crate::start_fault::fault;
use crate::takeover::TakeoverFault;

/// A worker's queue of a port, and where packets go that are not ours.
pub type Queue = (Box<dyn Port>, KernelPath);

/// What a function asks of its ports.
pub trait PortRequirements {
    /// The program of its AF_XDP ports.
    type Program: Program + 'static;

    /// Is told how the sockets of every port were opened, before any program is loaded.
    fn sockets_opened(&mut self, _devices: &[Device]) {}

    /// Whether a program that could not be loaded may be tried again: less is asked of it then.
    fn asks_for_less(&mut self, _error: &kaido_xdp::Error) -> bool {
        false
    }

    /// Loads the program of the port of that number. Long packets are `multi_buffer`.
    fn program(
        &self,
        at: usize,
        interface: &Interface,
        multi_buffer: bool,
    ) -> Result<Self::Program, kaido_xdp::Error>;

    /// Addresses to which tunnels come in by a port; by what is in them, packets are steered to workers.
    fn tunnel_addresses(&self, _port: &PortConfig) -> &[IpAddr] {
        &[]
    }

    /// Whether everything that no other route is for goes to the kernel behind a TAP device.
    fn is_way_out(&self, _tap: &PortConfig) -> bool {
        false
    }

    /// VRFs beside the main table that packets are routed by, whose routes are to be there from the start.
    fn vrfs(&self) -> Vec<Vrf> {
        Vec::new()
    }

    /// Where packets out of AF_XDP sockets go that are the kernel's.
    fn kernel_path(&self) -> KernelPath;
}

/// All ports, and what must live as long as they do.
pub struct OpenPorts<P> {
    /// By port.
    pub devices: Vec<Device>,
    /// The ports of each interface.
    trunks: Vec<Vec<usize>>,
    binder: Binder,
    /// By worker, then by port.
    queues: Vec<Vec<Queue>>,
    /// By port, the kernel's sides behind them: where packets go that are not ours.
    paths: Vec<KernelPath>,
    workers: usize,
    programs: Arc<Mutex<Vec<P>>>,
    routes: Arc<Routes>,
    watcher: Arc<RouteWatcher>,
    board: PortBoard,
    /// Once the workers run.
    monitor: Option<LinkMonitor>,
}

/// Links of programs that a process before has left on interfaces.
#[derive(Debug, Default)]
pub struct LeftLinks(Vec<OwnedFd>);

impl LeftLinks {
    /// Puts a link to them.
    pub fn put(&mut self, link: OwnedFd) {
        self.0.push(link);
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Puts all of them to others.
    pub fn append_to(mut self, others: &mut Self) {
        others.0.append(&mut self.0);
    }

    /// Whether all of the programs run behind the driver; `None` where there are none.
    pub fn are_generic(&self) -> Option<bool> {
        let modes = self.0.iter().filter_map(|link| kaido_xdp::link_interface(link.as_fd()).ok().flatten());
        let modes: Vec<_> = modes.filter_map(|ifindex| kaido_xdp::attached_mode(ifindex).ok()).collect();
        (!modes.is_empty()).then(|| modes.iter().all(|&mode| mode == AttachMode::Generic))
    }

    /// Takes that of an interface.
    fn take(&mut self, interface: &Interface) -> Option<OwnedFd> {
        let is_there = |link: &OwnedFd| {
            kaido_xdp::link_interface(link.as_fd()).is_ok_and(|found| found == Some(interface.ifindex))
        };
        let at = self.0.iter().position(is_there)?;
        Some(self.0.swap_remove(at))
    }

    /// Takes the programs off.
    pub fn detach(self) {
        for link in self.0 {
            if let Err(error) = kaido_xdp::detach_link(link) {
                tracing::warn!(%error, "a program that a process before has left");
            }
        }
    }
}

impl<P: Program + 'static> OpenPorts<P> {
    /// Opens every port; no program is attached yet.
    pub fn open(
        found: Interfaces<'_>,
        pool: &'static FramePool,
        requirements: &mut impl PortRequirements<Program = P>,
        takes_all: impl Fn(&PortConfig) -> bool,
    ) -> Result<Self, StartFault> {
        let (base, takeover) = (found.base, found.takeover.clone());
        let workers = usize::from(*base.node.workers.get_ref());
        let (routes, wanted) = Routes::new();
        let binder = Binder::new(&found, pool)?;
        let trunks = trunks(base.ports.iter().map(Spanned::get_ref));
        let (mut devices, mut made) = devices(found, &trunks, requirements, takes_all);
        // By port, then by worker: one, or one for each.
        let mut opened: Queues = base.ports.iter().map(|_| Vec::new()).collect();
        let mut sockets: Vec<Sockets> = base.ports.iter().map(|_| Vec::new()).collect();
        for members in &trunks {
            let at = members[0];
            let device = &mut devices[at];
            let queues = match device.config.driver.get_ref() {
                Driver::AfXdp => binder.open_xdp(device, |queue, socket| {
                    let action = "keeping a socket for the program";
                    let kept = socket.try_clone_to_owned();
                    let kept = kept.map_err(|source| kaido_xdp::Error::Sys { action, source })?;
                    sockets[at].push((queue, kept));
                    Ok(())
                })?,
                Driver::AfPacket => vec![binder.open_packet(device)?],
                Driver::Tap => {
                    device.opened = "tap".to_owned();
                    made[at].tap.take().into_iter().map(|tap| Box::new(tap) as Box<dyn Port>).collect()
                }
                Driver::Dpdk => {
                    let queue = made[at].dpdk.take();
                    device.opened = queue.as_ref().map_or_else(String::new, |queue| queue.how.clone());
                    queue.into_iter().map(|queue| queue.queue).collect()
                }
            };
            for (&member, queues) in members.iter().zip(share(&device.config, &device.vids, queues)?) {
                opened[member] = queues;
            }
            join(&mut devices, members);
        }
        requirements.sockets_opened(&devices);
        let programs = load_all(&mut devices, &sockets, requirements, binder.multi_buffer)?;
        trunks.iter().for_each(|members| join(&mut devices, members));
        // Behind the ports of the configuration come the kernel's sides of those that have one.
        let mut sides = Vec::new();
        for (device, made) in devices.iter_mut().zip(made) {
            let Some(tap) = made.tap.filter(|_| device.opens_side()) else { continue };
            device.side = Some(PortId(u8::try_from(base.ports.len() + sides.len()).unwrap_or(u8::MAX)));
            sides.push(spread(device, Box::new(tap), sharing(device, workers))?);
        }
        let paths = devices.iter().map(|device| match (device.side, device.config.driver.get_ref()) {
            (Some(side), _) => KernelPath::Tap(side),
            (None, Driver::AfXdp) => requirements.kernel_path(),
            (None, Driver::AfPacket) => KernelPath::Shared,
            (None, Driver::Tap | Driver::Dpdk) => KernelPath::None,
        });
        let paths: Vec<KernelPath> = paths.chain(sides.iter().map(|_| KernelPath::None)).collect();
        opened.append(&mut sides);
        let queues = by_worker(opened, &paths, workers);
        devices.iter().for_each(Device::warn_of_stripping);
        let programs = Arc::new(Mutex::new(programs));
        takeover.keep_programs(links_of(programs.clone()));
        static_routes(&devices, &routes, requirements);
        for vrf in requirements.vrfs() {
            routes.vrf(vrf);
        }
        let watcher = watch(&devices, &routes, wanted, &programs)?;
        // What has no port of its own is counted by the first of its interface.
        let first = |device: &Device| device.program.filter(|_| device.place == 0);
        let of_port: Vec<Option<usize>> = devices.iter().map(first).collect();
        let board = PortBoard::new(devices.iter().map(Device::shown).collect())
            .with_left_to_kernel(left_to_kernel(programs.clone(), of_port));
        let watcher = Arc::new(watcher);
        Ok(Self {
            devices,
            trunks,
            binder,
            queues,
            paths,
            workers,
            programs,
            routes,
            watcher,
            board,
            monitor: None,
        })
    }

    /// Opens the queues again: after [`take_in`](crate::takeover::Takeover::take_in) those of another process, or those that were
    /// [left](OpenPorts::leave) by workers which have ended. Programs stay as they are: their sockets are the same. Next are
    /// [`take_queues`](OpenPorts::take_queues), workers, and [`watch`](OpenPorts::watch).
    ///
    /// # Errors
    /// When one cannot be opened.
    pub fn reopen(&mut self) -> Result<(), StartFault> {
        self.queues.clear();
        self.binder.stay();
        let mut opened: Queues = self.paths.iter().map(|_| Vec::new()).collect();
        for members in &self.trunks {
            let device = &mut self.devices[members[0]];
            let queues = match *device.config.driver.get_ref() {
                Driver::AfXdp => self.binder.open_xdp(device, |_, _| Ok(()))?,
                Driver::AfPacket => vec![self.binder.open_packet(device)?],
                Driver::Tap => self.binder.open_side(device, 1)?,
                // Such ports were never left.
                Driver::Dpdk => Vec::new(),
            };
            for (&member, queues) in members.iter().zip(share(&device.config, &device.vids, queues)?) {
                opened[member] = queues;
            }
        }
        for device in &mut self.devices {
            let Some(side) = device.side else { continue };
            opened[side.index()] = self.binder.open_side(device, sharing(device, self.workers))?;
        }
        self.queues = by_worker(opened, &self.paths, self.workers);
        Ok(())
    }

    /// Has the ports stay when their workers end, for another process or for workers to come, and watches interfaces no more. `inboxes`
    /// are those of the workers, which are [stopped](crate::worker_set::WorkerSet::stop) next.
    ///
    /// # Errors
    /// When a port cannot be left; then nothing has changed.
    pub fn leave(&mut self, inboxes: &[Arc<Inbox>]) -> Result<(), TakeoverFault> {
        self.binder.keep(&self.devices)?;
        if let Some(devices) = self.monitor.take().and_then(LinkMonitor::stop) {
            self.devices = devices;
        }
        // Of interfaces that are gone: those are closed.
        inboxes.iter().for_each(|inbox| drop(inbox.take_replaced()));
        self.binder.leave();
        Ok(())
    }

    /// The programs, by their numbers.
    pub fn programs(&self) -> &Arc<Mutex<Vec<P>>> {
        &self.programs
    }

    /// The queues, by worker.
    pub fn take_queues(&mut self) -> Vec<Vec<Queue>> {
        std::mem::take(&mut self.queues)
    }

    /// Routes and neighbours.
    pub fn routes(&self) -> &Arc<Routes> {
        &self.routes
    }

    /// Routes and neighbours as they are listed.
    pub fn mirror(&self) -> RouteMirror {
        RouteMirror::new(self.routes.clone(), self.watcher.neighbours().clone())
    }

    /// Ports as they are shown, now and later.
    pub fn board(&self) -> &PortBoard {
        &self.board
    }

    /// Keeps the ports bound to their interfaces from here on; `hook` is told of every change.
    ///
    /// # Errors
    /// When interfaces cannot be watched.
    pub fn watch(&mut self, inboxes: Vec<Arc<Inbox>>, hook: Option<LinkHook>) -> Result<(), StartFault> {
        self.monitor = Some(LinkMonitor::start(MonitoredPorts {
            binder: self.binder.clone(),
            devices: self.devices.clone(),
            trunks: self.trunks.clone(),
            programs: self.programs.clone(),
            routes: self.routes.clone(),
            watcher: self.watcher.clone(),
            board: self.board.clone(),
            inboxes,
            hook,
        })?);
        Ok(())
    }

    /// Attaches the programs: from here on packets come.
    pub fn attach(&mut self) -> Result<(), StartFault> {
        let mut left = self.left_links()?;
        self.attach_over(&mut left)
    }

    /// The programs of the process from which this one has [taken the ports](crate::function::FunctionContext::take_ports).
    pub fn left_links(&self) -> Result<LeftLinks, StartFault> {
        let mut left = LeftLinks::default();
        for members in &self.trunks {
            self.binder.program_of(&self.devices[members[0]])?.into_iter().for_each(|link| left.put(link));
        }
        Ok(left)
    }

    /// As [`OpenPorts::attach`], in the place of programs that a process before has left, whose links are taken.
    pub fn attach_over(&mut self, left: &mut LeftLinks) -> Result<(), StartFault> {
        let mut programs = lock(&self.programs);
        for members in &self.trunks {
            let device = &mut self.devices[members[0]];
            let Some(program) = device.program.and_then(|at| programs.get_mut(at)) else { continue };
            device.attach_over(program, left.take(device.wire()))?;
            // Who pins it has it stay.
            program.stay(false);
            let first = device.clone();
            for &at in members {
                self.devices[at].join(&first);
                self.board.update(at, |port| port.how = self.devices[at].how());
            }
        }
        Ok(())
    }

    /// Has the programs stay on their interfaces when the process ends, by pins in a folder, from here on.
    ///
    /// # Errors
    /// When they cannot be pinned.
    pub fn pin(&mut self, folder: PinFolder) -> Result<(), kaido_xdp::Error> {
        lock(&self.programs).iter_mut().try_for_each(|program| pin_link(&folder, program))?;
        self.binder.pin(folder);
        Ok(())
    }

    /// Has the programs stay on their interfaces, as another process has them too.
    pub(crate) fn let_programs_stay(&self) {
        lock(&self.programs).iter_mut().for_each(|program| program.stay(true));
    }

    /// Has the programs stay on their interfaces, where they are [pinned](OpenPorts::pin); or else detaches them.
    pub fn end_programs(&mut self) {
        if self.binder.pins().is_some() {
            self.monitor = None;
        } else {
            self.detach();
        }
    }

    /// Detaches the programs.
    pub fn detach(&mut self) {
        // First, lest it binds again what comes back now.
        self.monitor = None;
        for program in lock(&self.programs).iter_mut() {
            if let Err(error) = program.detach() {
                tracing::error!(%error, "a program could not be detached");
            }
        }
        if let Some(Err(error)) = self.binder.pins().map(PinFolder::remove_all) {
            tracing::error!(%error, "what was pinned could not be removed");
        }
    }
}

/// The queues of ports, by worker.
fn by_worker(opened: Queues, paths: &[KernelPath], workers: usize) -> Vec<Vec<Queue>> {
    let mut queues: Vec<Vec<Queue>> = (0..workers).map(|_| Vec::new()).collect();
    for (ports, kernel) in opened.into_iter().zip(paths) {
        queues.iter_mut().zip(ports).for_each(|(worker, port)| worker.push((port, *kernel)));
    }
    queues
}

/// How many workers have the kernel's side of a port.
fn sharing(device: &Device, workers: usize) -> usize {
    if device.is_vlan() { workers } else { 1 }
}

/// The sockets of an interface, each with its queue.
type Sockets = Vec<(u32, OwnedFd)>;

/// Has the further ports of an interface be as the first is.
fn join(devices: &mut [Device], members: &[usize]) {
    let first = devices[members[0]].clone();
    members[1..].iter().for_each(|&member| devices[member].join(&first));
}

/// Loads the programs of all interfaces with sockets, and tells them of these. Where one is refused, and less may be asked for, all
/// are loaded again.
fn load_all<P: Program>(
    devices: &mut [Device],
    sockets: &[Sockets],
    requirements: &mut impl PortRequirements<Program = P>,
    multi_buffer: bool,
) -> Result<Vec<P>, StartFault> {
    let mut programs = Vec::new();
    let mut at = 0;
    while let Some(device) = devices.get_mut(at) {
        if sockets[at].is_empty() {
            at += 1;
            continue;
        }
        let loaded = requirements.program(at, device.wire(), multi_buffer).and_then(|mut program| {
            let mut told = sockets[at].iter();
            told.try_for_each(|(queue, socket)| program.register_socket(*queue, socket.as_fd()))?;
            Ok(program)
        });
        match loaded {
            Ok(program) => {
                device.program = Some(programs.len());
                programs.push(program);
                at += 1;
            }
            Err(error) if requirements.asks_for_less(&error) => {
                programs.clear();
                at = 0;
            }
            Err(error) => return Err(fault(&device.config, error, NO_PROGRAM)),
        }
    }
    Ok(programs)
}

/// The links of programs, whichever are attached by then.
fn links_of<P: Program + 'static>(
    programs: Arc<Mutex<Vec<P>>>,
) -> impl Fn() -> std::io::Result<Vec<(u32, OwnedFd)>> + Send {
    move || {
        let programs = lock(&programs);
        let attached = programs.iter().filter_map(|program| program.ifindex().zip(program.link()));
        attached.map(|(ifindex, link)| Ok((ifindex, link.try_clone_to_owned()?))).collect()
    }
}

/// Reads what programs have left to the kernel, by port. While ports are bound again they are not waited for.
fn left_to_kernel<P: Program + 'static>(
    programs: Arc<Mutex<Vec<P>>>,
    of_port: Vec<Option<usize>>,
) -> impl Fn() -> Option<Vec<u64>> + Send + Sync {
    move || {
        let programs = programs.try_lock().ok()?;
        let read = |program: &Option<usize>| {
            let left = programs.get((*program)?)?.left_to_kernel();
            left.map_err(|error| tracing::warn!(%error, "the counters of a program")).ok()
        };
        Some(of_port.iter().map(|program| read(program).unwrap_or(0)).collect())
    }
}

/// The ports with their interfaces, not opened yet, and what was made for them.
fn devices(
    found: Interfaces<'_>,
    trunks: &[Vec<usize>],
    requirements: &impl PortRequirements,
    takes_all: impl Fn(&PortConfig) -> bool,
) -> (Vec<Device>, Vec<PortParts>) {
    let ports: Vec<&PortConfig> = found.base.ports.iter().map(Spanned::get_ref).collect();
    let (interfaces, mut made) = (found.interfaces, found.made);
    let parts = ports.iter().zip(interfaces).zip(&mut made);
    let mut devices: Vec<Device> = parts
        .map(|((&port, interface), made)| {
            let trunk = made.trunk.take();
            Device::new(port, (interface, trunk), takes_all(port), requirements.tunnel_addresses(port))
        })
        .collect();
    for members in trunks.iter().filter(|members| members.iter().any(|&at| ports[at].vlan.is_some())) {
        for (place, &at) in members.iter().enumerate() {
            devices[at].place = place;
        }
        let of_members = || members.iter().map(|&at| ports[at]);
        let first = &mut devices[members[0]];
        first.vids = of_members().map(PortConfig::vid).collect();
        // What one of them asks for, the queues of all must have.
        let tunnels = of_members().map(|port| requirements.tunnel_addresses(port)).max_by_key(|to| to.len());
        first.widen(tunnels.unwrap_or_default(), of_members().any(&takes_all));
    }
    (devices, made)
}

/// Behind a TAP device is the kernel alone: it takes what is in the device's networks and
/// everything that no other route is for, where the function says so.
fn static_routes(devices: &[Device], routes: &Routes, requirements: &impl PortRequirements) {
    let mut fixed = Vec::new();
    for (number, device) in (0u8..).zip(devices) {
        if *device.config.driver.get_ref() != Driver::Tap {
            continue;
        }
        let route = Route { port: Some(PortId(number)), gateway: None, metric: u32::MAX };
        fixed.extend(device.config.addresses.iter().map(|prefix| (prefix.addr, prefix.len, route)));
        if requirements.is_way_out(&device.config) {
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
    wanted: Receiver<NeighbourRequest>,
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
