//! What a machine has for a node.

use std::net::IpAddr;
use std::thread::available_parallelism;

use kaido_engine::netlink::{self, Interface, NetlinkError};

use crate::config::{Prefix, WORKERS_MAX};
use crate::ethtool::Ethtool;

/// Interfaces and CPUs.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its Ethernet interfaces.
    pub interfaces: Vec<Interface>,
    /// CPUs that the process may use.
    pub cpus: usize,
}

impl Machine {
    /// Looks at this one.
    ///
    /// # Errors
    /// [`NetlinkError`].
    pub fn look() -> Result<Self, NetlinkError> {
        let mut interfaces = netlink::interfaces()?;
        // Loopback and tunnels have none.
        interfaces.retain(|interface| interface.mac != [0; 6]);
        Ok(Self { interfaces, cpus: available_parallelism().map_or(1, usize::from) })
    }

    /// The interface of a name.
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// The names, those first that are up and have an address.
    pub fn names(&self) -> Vec<&str> {
        let mut sorted: Vec<_> = self.interfaces.iter().collect();
        sorted.sort_by_key(|interface| !(interface.up && addresses(interface).next().is_some()));
        sorted.into_iter().map(|interface| interface.name.as_str()).collect()
    }

    /// The first of the names, as what is proposed.
    pub fn first_name(&self) -> Option<String> {
        self.names().first().map(|name| (*name).to_owned())
    }

    /// The first address of an interface, one of IPv4 where there is any.
    pub fn address(&self, name: &str) -> Option<IpAddr> {
        let found: Vec<_> = addresses(self.interface(name)?).map(|(address, _)| address).collect();
        found.iter().find(|address| address.is_ipv4()).or(found.first()).copied()
    }

    /// The subnet that one of the machine's own addresses is in.
    pub fn subnet(&self, own: IpAddr) -> Option<String> {
        let mut all = self.interfaces.iter().flat_map(addresses);
        let (_, len) = all.find(|(address, _)| *address == own)?;
        let prefix = Prefix { addr: own, len };
        let Prefix { addr, len } = prefix.without_host_bits().unwrap_or(prefix);
        Some(format!("{addr}/{len}"))
    }

    /// Workers for these interfaces: a CPU stays for the rest, and each worker has a queue of each.
    pub fn workers(&self, interfaces: &[&str]) -> usize {
        let queues = |name: &&str| {
            let channels = Ethtool::open(name).and_then(|tool| tool.channels()).ok()?;
            usize::try_from(channels.receive).ok()
        };
        let fewest = interfaces.iter().filter_map(queues).min().unwrap_or(1);
        fewest.min(self.cpus.saturating_sub(1)).clamp(1, WORKERS_MAX.into())
    }

    /// The interfaces, a line each.
    pub(super) fn described(&self) -> String {
        let line = |interface: &Interface| {
            let state = if interface.up { "up" } else { "down" };
            let addresses: Vec<_> = addresses(interface).map(|(it, len)| format!("{it}/{len}")).collect();
            format!("  {:<12} {state:<4} {}", interface.name, addresses.join(" "))
        };
        self.interfaces.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Addresses that reach beyond the link.
fn addresses(interface: &Interface) -> impl Iterator<Item = (IpAddr, u8)> {
    let global = interface.addresses.iter().filter(|found| !found.link_local);
    global.map(|found| (found.address, found.prefix_len))
}

#[cfg(test)]
pub(super) mod tests {
    use kaido_engine::netlink::InterfaceAddress;

    use super::*;

    /// A machine with two interfaces; the first has no address of IPv4.
    pub(in super::super) fn machine() -> Machine {
        let address = |ifindex, address: &str, prefix_len| InterfaceAddress {
            ifindex,
            address: address.parse().unwrap(),
            prefix_len,
            link_local: address.starts_with("fe80"),
        };
        let interface = |ifindex, name: &str, addresses| Interface {
            ifindex,
            name: name.to_owned(),
            mac: [2, 0, 0, 0, 0, 1],
            mtu: 1500,
            up: true,
            vrf_table: None,
            addresses,
        };
        let first = vec![address(1, "fe80::1", 64), address(1, "2001:db8::4", 64)];
        let second = vec![address(2, "2001:db8:1::5", 64), address(2, "192.0.2.5", 25)];
        Machine { interfaces: vec![interface(1, "ens4", first), interface(2, "ens5", second)], cpus: 4 }
    }

    #[test]
    fn addresses_are_those_that_others_reach() {
        let machine = machine();
        assert_eq!(machine.address("ens4"), "2001:db8::4".parse().ok());
        assert_eq!(machine.address("ens5"), "192.0.2.5".parse().ok());
        assert_eq!(machine.address("ens6"), None);
        assert_eq!(machine.subnet([192, 0, 2, 5].into()).as_deref(), Some("192.0.2.0/25"));
        assert_eq!(machine.subnet([192, 0, 2, 6].into()), None);
        assert!(machine.described().contains("ens5         up   2001:db8:1::5/64 192.0.2.5/25"));
    }

    #[test]
    fn interfaces_without_address_come_last() {
        let mut machine = machine();
        machine.interfaces[0].addresses.truncate(1);
        assert_eq!(machine.names(), ["ens5", "ens4"]);
        assert_eq!(machine.workers(&["none-of-these"]), 1);
    }
}
