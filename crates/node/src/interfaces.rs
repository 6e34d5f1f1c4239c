//! The interfaces behind the ports of a configuration: what the kernel has of them, and what is made for them.

use std::fs::File;
use std::net::IpAddr;
use std::sync::Arc;

use kaido_engine::FramePool;
use kaido_engine::netlink::{self, Interface};
use kaido_engine::port::{Port, TapConfig, TapPort};

use super::dpdk::DpdkDevices;
use crate::config::{Base, Driver, PortConfig, Spanned};
use crate::start_fault::{StartFault, fault};
use crate::takeover::Takeover;

/// What is left to do where a port cannot be taken over.
pub(crate) const RESTART: &str = "restart the node instead";

/// The interfaces of the ports, in their order, with what had to be made for them. That of a VLAN is its TAP device.
pub struct Interfaces<'c> {
    /// What the configuration has for every function.
    pub base: &'c Base,
    /// By port.
    pub interfaces: Vec<Interface>,
    pub(crate) made: Vec<PortParts>,
    pub(crate) takeover: Arc<Takeover>,
}

impl<'c> Interfaces<'c> {
    /// Looks the interfaces up; TAP devices are made or taken over, and DPDK devices opened. Ports that `takes_all` are to receive
    /// frames to every address.
    pub fn look(
        base: &'c Base,
        pool: &'static FramePool,
        takeover: &Arc<Takeover>,
        takes_all: impl Fn(&PortConfig) -> bool,
    ) -> Result<Self, StartFault> {
        let mut dpdk = DpdkDevices::new(base, pool);
        let ports = base.ports.iter().map(Spanned::get_ref);
        let found = ports.map(|port| interface(port, &mut dpdk, takeover, takes_all(port)));
        let (interfaces, made) = found.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        Ok(Self { base, interfaces, made, takeover: takeover.clone() })
    }

    /// The ports and the interfaces by which their packets come and go.
    pub fn wires(&self) -> impl Iterator<Item = (&'c PortConfig, &Interface)> {
        let wires = self.interfaces.iter().zip(&self.made);
        let wires = wires.map(|(interface, made)| made.trunk.as_ref().unwrap_or(interface));
        self.base.ports.iter().map(Spanned::get_ref).zip(wires)
    }

    /// The ports and their interfaces.
    pub fn ports(&self) -> impl Iterator<Item = (&'c PortConfig, &Interface)> {
        self.base.ports.iter().map(Spanned::get_ref).zip(&self.interfaces)
    }
}

/// The addresses of an interface, but those of its link.
pub fn routable(interface: &Interface) -> impl Iterator<Item = IpAddr> + '_ {
    interface.addresses.iter().filter(|found| !found.link_local).map(|found| found.address)
}

/// How many queues an interface receives on.
pub fn receive_queues(name: &str) -> usize {
    let listed = std::fs::read_dir(format!("/sys/class/net/{name}/queues"));
    let names = listed.into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.filter(|queue| queue.to_string_lossy().starts_with("rx-")).count().max(1)
}

/// The TAP device of a port, with an Ethernet address, and an MTU where the port has none.
pub(crate) fn tap_config(port: &PortConfig, mac: Option<[u8; 6]>, mtu: Option<u32>) -> TapConfig {
    TapConfig {
        name: port.tap_name().unwrap_or_default(),
        mac,
        mtu: mtu.filter(|_| port.mtu.is_none()).unwrap_or_else(|| port.mtu()),
        addresses: port.addresses.iter().map(|prefix| (prefix.addr, prefix.len)).collect(),
        // Behind other devices the kernel is the only neighbour.
        arp: *port.driver.get_ref() != Driver::Tap,
    }
}

/// What was made for a port before its interface could be looked up.
#[derive(Default)]
pub(crate) struct PortParts {
    pub(crate) tap: Option<TapPort>,
    pub(crate) dpdk: Option<DpdkQueue>,
    /// The interface of which the port is a VLAN.
    pub(crate) trunk: Option<Interface>,
}

/// The queue of a `dpdk` port.
pub(crate) struct DpdkQueue {
    /// The queue.
    pub queue: Box<dyn Port>,
    /// The device's Ethernet address.
    pub mac: [u8; 6],
    /// What it is.
    pub how: String,
}

/// The interface of a port; a TAP device is made here, and a DPDK device opened, whose address the TAP device has. So it has the
/// address of an interface of which the port is a VLAN.
fn interface(
    port: &PortConfig,
    dpdk: &mut DpdkDevices<'_>,
    takeover: &Takeover,
    takes_all: bool,
) -> Result<(Interface, PortParts), StartFault> {
    let mut made = PortParts::default();
    let (mut mac, mut mtu) = (None, None);
    if *port.driver.get_ref() == Driver::Dpdk {
        takeover.refuse(port.name.get_ref());
        let queue = dpdk.open(port, takes_all)?;
        mac = Some(queue.mac);
        made.dpdk = Some(queue);
    }
    if port.vlan.is_some() {
        let trunk = existing(port, port.interface_name())?;
        if port.mtu.as_ref().is_some_and(|mtu| *mtu.get_ref() > trunk.mtu) {
            let said = format!("port.mtu: {} is more than the {} of {}", port.mtu(), trunk.mtu, trunk.name);
            let help = format!("`ip link set {} mtu {}`, or a smaller mtu", trunk.name, port.mtu());
            return Err(fault(port, said, help));
        }
        (mac, mtu) = (Some(trunk.mac), Some(trunk.mtu));
        made.trunk = Some(trunk);
    }
    let Some(name) = port.tap_name() else { return Ok((existing(port, port.interface_name())?, made)) };
    made.tap = Some(make_tap(port, &tap_config(port, mac, mtu), takeover)?);
    Ok((existing(port, &name)?, made))
}

/// An interface that is there.
fn existing(port: &PortConfig, name: &str) -> Result<Interface, StartFault> {
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
    Ok(found)
}

/// The name by which a TAP device is handed over.
pub(crate) fn tap_device(name: &str) -> String {
    format!("TAP device {name}")
}

/// Makes the TAP device of a port, or takes over the one that there is.
pub(crate) fn make_tap(
    port: &PortConfig,
    config: &TapConfig,
    takeover: &Takeover,
) -> Result<TapPort, StartFault> {
    let name = tap_device(&config.name);
    let made = match takeover.descriptor(&name).map_err(|error| fault(port, error, RESTART))? {
        Some(device) => TapPort::adopt(File::from(device), config),
        None => TapPort::create(config),
    };
    let tap = made
        .map_err(|error| fault(port, error, "a TAP device needs root or CAP_NET_ADMIN, and a free name"))?;
    takeover.keep(&name, tap.device().descriptor());
    Ok(tap)
}
