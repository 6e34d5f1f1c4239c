//! Keeps ports bound to their interfaces while the node runs.
//!
//! ```text
//!   kernel ──links, addresses──▶ LinkMonitor ─┬─ Queue, Link ──▶ Inbox of every worker
//!                                             ├─ MAC, sockets ─▶ XDP programs
//!                                             ├─ ifindex ──────▶ RouteWatcher
//!                                             └─ state ────────▶ PortBoard: status, metrics, /healthz
//! ```
//!
//! The ports of one interface, VLANs of it, are bound together. A VLAN's TAP device that is removed is made again.
//!
//! An interface that is removed and made again has another index, no program and no sockets: its port is opened anew, and
//! the workers take the new queues over between two rounds. One whose Ethernet address, MTU or addresses change stays
//! bound, and all are told.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kaido_engine::netlink::{self, Interface, LinkEvents, RouteWatcher};
use kaido_engine::port::GonePort;
use kaido_engine::{Inbox, Port, PortChange, PortId, PortLink, Routes};
use kaido_xdp::{ExitLink, Program};

use super::binder::{Binder, Device};
use super::board::{PortBoard, PortState};
use super::interfaces::routable;
use super::trunk::Queues;
use crate::config::Driver;
use crate::lock::lock;
use crate::start_fault::StartFault;

/// Longest wait for an event: how soon a word to stop is heard.
const PACE: Duration = Duration::from_millis(200);
/// Events come in bursts; what they say is looked at once.
const SETTLE: Duration = Duration::from_millis(20);
/// How often is tried again what did not succeed.
const RETRY: Duration = Duration::from_secs(1);

/// What a function does when the interface of a port has changed, or is gone (`None`).
pub(crate) type LinkHook = Box<dyn FnMut(usize, Option<&Device>) + Send>;

/// What the monitor works on.
pub(crate) struct MonitoredPorts<P> {
    pub binder: Binder,
    pub devices: Vec<Device>,
    /// The ports of each interface.
    pub trunks: Vec<Vec<usize>>,
    pub programs: Arc<Mutex<Vec<P>>>,
    pub routes: Arc<Routes>,
    pub watcher: Arc<RouteWatcher>,
    pub board: PortBoard,
    /// By worker.
    pub inboxes: Vec<Arc<Inbox>>,
    pub hook: Option<LinkHook>,
}

/// The running monitor; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct LinkMonitor {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<Device>>>,
}

impl LinkMonitor {
    /// Starts it, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// When netlink or a thread cannot be had.
    pub(crate) fn start<P: Program + 'static>(monitored: MonitoredPorts<P>) -> Result<Self, StartFault> {
        let port = monitored.devices.first().map_or("", |device| device.config.name.get_ref()).to_owned();
        let fault = |error: String| StartFault::Port {
            port: port.clone(),
            fault: format!("watching the interface: {error}"),
            help: "netlink must be reachable".into(),
        };
        let events = LinkEvents::subscribe().map_err(|error| fault(error.to_string()))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let first = |members: &Vec<usize>| Some(monitored.devices[members[0]].wire().clone());
        let bound = monitored.trunks.iter().map(first).collect();
        let watch = Watch { bound, monitored, unsettled: true, refused: Vec::new() };
        let thread = std::thread::Builder::new()
            .name("kaido-links".to_owned())
            .spawn(move || watch.run(events, &stopped))
            .map_err(|error| fault(error.to_string()))?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Ends it; the ports as they are now.
    pub(crate) fn stop(mut self) -> Option<Vec<Device>> {
        self.join()
    }

    fn join(&mut self) -> Option<Vec<Device>> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take()?.join();
        if ended.is_err() {
            tracing::error!("the link monitor has panicked");
        }
        ended.ok()
    }
}

impl Drop for LinkMonitor {
    fn drop(&mut self) {
        self.join();
    }
}

struct Watch<P> {
    monitored: MonitoredPorts<P>,
    /// By the interfaces' places: the one that ports are bound to, as last seen.
    bound: Vec<Option<Interface>>,
    /// Something did not succeed, or has not been looked at.
    unsettled: bool,
    /// Likewise: what was said last of why none is, so that it is said once.
    refused: Vec<Option<String>>,
}

impl<P: Program + 'static> Watch<P> {
    /// Watches until it is stopped; the ports as they are then.
    fn run(mut self, mut events: LinkEvents, stop: &AtomicBool) -> Vec<Device> {
        self.refused.resize(self.bound.len(), None);
        let mut looked = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            let (mut changed, mut removed) = (false, Vec::new());
            let mut wait = PACE;
            loop {
                match events.wait(wait) {
                    Ok(Some(gone)) => {
                        changed = true;
                        removed.extend(gone);
                        wait = SETTLE;
                    }
                    Ok(None) => break,
                    Err(error) => {
                        tracing::warn!(%error, "cannot hear of interfaces; looking again");
                        std::thread::sleep(PACE);
                        changed = true;
                        break;
                    }
                }
            }
            self.close_replaced();
            if changed || (self.unsettled && looked.elapsed() >= RETRY) {
                looked = Instant::now();
                self.look(&removed);
            }
        }
        self.monitored.devices
    }

    /// Closes the queues that workers have replaced.
    fn close_replaced(&self) {
        self.monitored.inboxes.iter().for_each(|inbox| drop(inbox.take_replaced()));
    }

    /// Compares the interfaces with what the ports are bound to. Those of `removed` were removed since the last look, even
    /// if there is one of that index again.
    fn look(&mut self, removed: &[u32]) {
        let interfaces = match netlink::interfaces() {
            Ok(interfaces) => interfaces,
            Err(error) => {
                self.unsettled = true;
                return tracing::warn!(%error, "cannot read the interfaces; trying again");
            }
        };
        self.unsettled = false;
        let is_gone = |ifindex: u32| {
            removed.contains(&ifindex) || interfaces.iter().all(|found| found.ifindex != ifindex)
        };
        for trunk in 0..self.bound.len() {
            let device = self.first(trunk);
            // Its TAP device is the kernel's way in; the device itself is DPDK's.
            if *device.config.driver.get_ref() == Driver::Dpdk {
                continue;
            }
            let name = device.wire().name.clone();
            if self.bound[trunk].as_ref().is_some_and(|bound| is_gone(bound.ifindex)) {
                self.lose(trunk);
            }
            let still = self.bound[trunk].as_ref().map(|bound| bound.ifindex);
            let found = interfaces.iter().find(|found| match still {
                Some(ifindex) => found.ifindex == ifindex,
                None => found.name == name,
            });
            match (still, found) {
                (Some(_), Some(interface)) => self.follow(trunk, interface),
                (None, found) => self.bind(trunk, found),
                (Some(_), None) => {}
            }
        }
        for at in 0..self.monitored.devices.len() {
            let device = &self.monitored.devices[at];
            if device.is_vlan() {
                let ifindex = device.interface.ifindex;
                let found = interfaces.iter().find(|found| found.ifindex == ifindex);
                self.follow_side(at, found.filter(|_| !is_gone(ifindex)));
            }
        }
    }

    /// The ports of an interface.
    fn members(&self, trunk: usize) -> Vec<usize> {
        self.monitored.trunks[trunk].clone()
    }

    /// The first of them, which has the queues.
    fn first(&self, trunk: usize) -> &Device {
        &self.monitored.devices[self.monitored.trunks[trunk][0]]
    }

    fn tell(&self, port: PortId, change: impl Fn() -> PortChange) {
        self.monitored.inboxes.iter().for_each(|inbox| inbox.tell(port, change()));
    }

    /// Gives a port of each worker another queue.
    fn replace(&self, port: PortId, queues: Vec<Box<dyn Port>>) {
        for (inbox, queue) in self.monitored.inboxes.iter().zip(queues) {
            inbox.tell(port, PortChange::Queue(queue));
        }
    }

    /// The interface of a port, or of several, is gone.
    fn lose(&mut self, trunk: usize) {
        self.bound[trunk] = None;
        for at in self.members(trunk) {
            let device = &self.monitored.devices[at];
            tracing::warn!(
                port = %device.config.name.get_ref(),
                interface = %device.wire().name,
                "the interface is gone; its port is bound again when it comes back"
            );
            self.monitored.board.update(at, |port| port.state = PortState::Gone);
            for inbox in &self.monitored.inboxes {
                match GonePort::new() {
                    Ok(gone) => inbox.tell(port_id(at), PortChange::Queue(Box::new(gone))),
                    // The old queue stays: it receives nothing, and costs wake-ups.
                    Err(error) => tracing::warn!(%error, "a queue of the interface could not be closed"),
                }
            }
            if let Some(hook) = &mut self.monitored.hook {
                hook(at, None);
            }
        }
        if let Some(program) = self.first(trunk).program {
            // The kernel has taken it off already.
            let _ = lock(&self.monitored.programs)[program].detach();
        }
    }

    /// Binds the ports of an interface to it again; `interface` is `None` while there is none. What the node makes itself it
    /// makes again.
    fn bind(&mut self, trunk: usize, interface: Option<&Interface>) {
        let driver = *self.first(trunk).config.driver.get_ref();
        if interface.is_none() && driver != Driver::Tap {
            self.unsettled |= self.refused[trunk].take().is_some();
            for at in self.members(trunk) {
                self.monitored.board.update(at, |port| port.state = PortState::Gone);
            }
            return;
        }
        let before = self.first(trunk).wire().ifindex;
        match self.open(trunk, interface) {
            Ok((interface, queues)) => {
                self.refused[trunk] = None;
                self.bound(trunk, before, &interface, queues);
            }
            Err(fault) => {
                self.unsettled = true;
                for at in self.members(trunk) {
                    self.monitored.board.update(at, |port| port.state = PortState::Fault(fault.clone()));
                }
                if self.refused[trunk].as_ref() != Some(&fault) {
                    let port = self.first(trunk).config.name.get_ref();
                    tracing::warn!(%port, %fault, "the port cannot be bound to its interface; trying again");
                    self.refused[trunk] = Some(fault);
                }
            }
        }
    }

    /// Opens queues for all workers, and has packets come to them; by port.
    fn open(&mut self, trunk: usize, interface: Option<&Interface>) -> Result<(Interface, Queues), String> {
        let MonitoredPorts { binder, devices, trunks, programs, inboxes, .. } = &mut self.monitored;
        let device = &mut devices[trunks[trunk][0]];
        let mut programs = lock(programs);
        let program = device.program.and_then(|program| programs.get_mut(program));
        binder.bind(device, interface, program, inboxes.len()).map_err(|fault| match fault {
            StartFault::Port { fault, .. } => fault,
            other => other.to_string(),
        })
    }

    /// Tells everybody of ports that are bound anew, whose interface had the index `before`.
    fn bound(&mut self, trunk: usize, before: u32, interface: &Interface, queues: Queues) {
        let members = self.members(trunk);
        for (&at, queues) in members.iter().zip(queues) {
            self.replace(port_id(at), queues);
        }
        for program in lock(&self.monitored.programs).iter_mut() {
            if let Err(error) = program.exit_changed(before, exit_link(interface)) {
                tracing::error!(%error, "a program was not told of another's interface");
            }
        }
        self.bound[trunk] = Some(interface.clone());
        let first = self.first(trunk).clone();
        for at in members {
            let monitored = &mut self.monitored;
            let device = &mut monitored.devices[at];
            device.join(&first);
            device.set_wire(interface.clone());
            let how = device.how();
            monitored.board.update(at, |port| {
                port.how = how;
                port.rebinds += 1;
            });
            if !device.is_vlan() {
                monitored.watcher.rebind(port_id(at), interface.ifindex);
            }
            tracing::info!(
                port = %device.config.name.get_ref(),
                interface = %interface.name,
                ifindex = interface.ifindex,
                "the interface is back; its port is bound to it"
            );
            self.publish(at);
        }
    }

    /// Takes in what changed about the interface that ports are bound to.
    fn follow(&mut self, trunk: usize, interface: &Interface) {
        let Some(before) = self.bound[trunk].replace(interface.clone()) else { return };
        let port = self.first(trunk).config.name.get_ref().clone();
        if before.up != interface.up {
            if interface.up {
                tracing::info!(%port, interface = %interface.name, "the interface is up");
            } else {
                tracing::warn!(%port, interface = %interface.name, "the interface is down or has no carrier");
            }
        }
        let own = |of: &Interface| routable(of).collect::<Vec<_>>();
        let mac_changed = before.mac != interface.mac;
        let mtu_changed = before.mtu != interface.mtu;
        let members = self.members(trunk);
        if !mac_changed && !mtu_changed && own(&before) == own(interface) {
            for at in members {
                self.monitored.devices[at].set_wire(interface.clone());
                self.show(at);
            }
            return;
        }
        if mac_changed {
            tracing::info!(%port, before = %hex(before.mac), now = %hex(interface.mac), "the interface has another Ethernet address");
        }
        if mtu_changed {
            tracing::info!(%port, before = before.mtu, now = interface.mtu, "the interface has another MTU");
        }
        if own(&before) != own(interface) {
            tracing::info!(%port, before = ?own(&before), now = ?own(interface), "the interface has other addresses");
        }
        if mtu_changed && *self.first(trunk).config.driver.get_ref() == Driver::AfPacket {
            // It keeps room for the longest packet of the MTU that it was opened with.
            match self.open(trunk, Some(interface)) {
                Ok((_, queues)) => {
                    for (&at, queues) in members.iter().zip(queues) {
                        self.replace(port_id(at), queues);
                    }
                }
                Err(fault) => {
                    tracing::warn!(%port, %fault, "the port cannot be opened for the new MTU");
                    return members.into_iter().for_each(|at| self.show(at));
                }
            }
        }
        for at in members {
            let device = &mut self.monitored.devices[at];
            device.set_wire(interface.clone());
            // Its own MTU comes back as a change of its TAP device.
            if mtu_changed
                && device.is_vlan()
                && device.follows_mtu()
                && let Err(error) = netlink::set_mtu(device.interface.ifindex, interface.mtu)
            {
                tracing::warn!(%error, interface = %device.interface.name, "its MTU stays as it was");
            }
            self.publish(at);
        }
    }

    /// Takes in what changed about the TAP device of a VLAN, and makes it again where somebody has removed it.
    fn follow_side(&mut self, at: usize, found: Option<&Interface>) {
        let device = &self.monitored.devices[at];
        let Some(found) = found else { return self.restore_side(at) };
        if found.mac != device.wire().mac
            && let Err(error) = netlink::set_mac(found.ifindex, device.wire().mac)
        {
            self.unsettled = true;
            tracing::warn!(%error, interface = %found.name, "it has not the Ethernet address of its interface");
        }
        let own = |of: &Interface| routable(of).collect::<Vec<_>>();
        if own(found) == own(&device.interface) && found.mtu == device.interface.mtu {
            return;
        }
        let port = device.config.name.get_ref();
        tracing::info!(%port, addresses = ?own(found), mtu = found.mtu, "the TAP device of the VLAN has changed");
        self.monitored.devices[at].interface = found.clone();
        self.publish(at);
    }

    fn restore_side(&mut self, at: usize) {
        let MonitoredPorts { binder, devices, inboxes, watcher, board, .. } = &mut self.monitored;
        let device = &mut devices[at];
        let (port, name) = (device.config.name.get_ref().clone(), device.interface.name.clone());
        let opened = binder.open_side(device, inboxes.len());
        match (opened, device.side) {
            (Ok(queues), Some(side)) => {
                tracing::warn!(%port, interface = %name, "the TAP device of the VLAN was removed, and is made again");
                watcher.rebind(port_id(at), device.interface.ifindex);
                self.replace(side, queues);
                self.publish(at);
            }
            (Ok(_), None) => {}
            (Err(fault), _) => {
                self.unsettled = true;
                let fault = match fault {
                    StartFault::Port { fault, .. } => fault,
                    other => other.to_string(),
                };
                let said = format!("the TAP device {name} is gone, and cannot be made again: {fault}");
                board.update(at, |port| port.state = PortState::Fault(said));
            }
        }
    }

    /// Tells programs, workers and the function what the interface of a port is, and shows it.
    fn publish(&mut self, at: usize) {
        let monitored = &mut self.monitored;
        let device = &monitored.devices[at];
        let (interface, wire) = (&device.interface, device.wire());
        if let Some(program) = device.program
            && let Err(error) = lock(&monitored.programs)[program].set_mac(wire.mac)
        {
            tracing::error!(%error, "a program was not told of its interface's Ethernet address");
        }
        for program in lock(&monitored.programs).iter_mut() {
            if let Err(error) = program.exit_changed(wire.ifindex, exit_link(wire)) {
                tracing::error!(%error, "a program was not told of another's MTU");
            }
        }
        let mtu = monitored.binder.mtu(device, interface);
        // Behind a TAP device the addresses are the kernel's, not ours.
        let is_tap = *device.config.driver.get_ref() == Driver::Tap;
        let addresses: Vec<IpAddr> = routable(interface).filter(|_| !is_tap).collect();
        if is_tap {
            monitored.routes.set_sole_neighbour(port_id(at), interface.mac);
        }
        let link = Arc::new(PortLink { mac: wire.mac, mtu, addresses });
        self.tell(port_id(at), || PortChange::Link(link.clone()));
        let monitored = &mut self.monitored;
        if let Some(hook) = &mut monitored.hook {
            hook(at, Some(&monitored.devices[at]));
        }
        // What was made beforehand of the interface is made again.
        monitored.routes.links_changed();
        self.show(at);
    }

    /// Shows how a port is.
    fn show(&self, at: usize) {
        let MonitoredPorts { binder, devices, board, .. } = &self.monitored;
        let device = &devices[at];
        let interface = &device.interface;
        let mtu = binder.mtu(device, interface);
        let missing = device.missing_tunnel_address(interface);
        let state = if !device.wire().up {
            PortState::Down
        } else if mtu < interface.mtu as usize {
            let own = interface.mtu;
            PortState::Fault(format!(
                "the interface's MTU of {own} is more than the node's frames hold; the port goes on with {mtu} until the node is started again"
            ))
        } else if let Some(address) = missing {
            let name = &interface.name;
            PortState::Fault(format!(
                "tunnels come to {address}, which {name} has no more; `ip address add {address}/LEN dev {name}`"
            ))
        } else {
            PortState::Up
        };
        board.update(at, |port| (port.mtu, port.state) = (mtu, state));
    }
}

fn port_id(at: usize) -> PortId {
    PortId(u8::try_from(at).unwrap_or(u8::MAX))
}

fn hex(mac: [u8; 6]) -> String {
    mac.map(|octet| format!("{octet:02x}")).join(":")
}

/// An interface as programs that send out of it know it.
fn exit_link(interface: &Interface) -> ExitLink {
    ExitLink { ifindex: interface.ifindex, mtu: interface.mtu }
}
