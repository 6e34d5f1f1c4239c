//! Interfaces and their addresses: asked for, and set.

use std::net::IpAddr;

use super::NetlinkError;
use super::socket::Socket;
use super::wire::{Message, Request, address, attributes, family, mac, octets, u32_at};

/// `struct ifinfomsg`: family, pad, type, index, flags, change.
const LINK_HEADER: usize = 16;
/// `struct ifaddrmsg`: family, prefix length, flags, scope, index.
const ADDRESS_HEADER: usize = 8;
/// Of `linux/if_link.h`: what a device that belongs to another says of the other, by its kind.
const IFLA_INFO_SLAVE_KIND: u16 = 4;
const IFLA_INFO_SLAVE_DATA: u16 = 5;
const IFLA_VRF_PORT_TABLE: u16 = 1;

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfaceAddress {
    /// Index of the interface.
    pub ifindex: u32,
    /// The address.
    pub address: IpAddr,
    /// Bits of its subnet's prefix.
    pub prefix_len: u8,
    /// Whether it means something on this link only (`RT_SCOPE_LINK`): fe80::/10, 169.254/16.
    pub link_local: bool,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// Its Ethernet address; zeros for an interface that has none.
    pub mac: [u8; 6],
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Whether it is up and has a carrier (`IFF_UP` and `IFF_LOWER_UP`).
    pub up: bool,
    /// The table of routes of the VRF device to which it belongs, if it belongs to one.
    pub vrf_table: Option<u32>,
    /// Its addresses.
    pub addresses: Vec<InterfaceAddress>,
}

/// Every interface of this network namespace.
///
/// # Errors
/// [`NetlinkError`].
pub fn interfaces() -> Result<Vec<Interface>, NetlinkError> {
    let mut socket = Socket::open()?;
    let mut interfaces = dump_links(&mut socket)?;
    let addresses = dump_addresses(&mut socket)?;
    for interface in &mut interfaces {
        interface.addresses.extend(addresses.iter().filter(|found| found.ifindex == interface.ifindex));
    }
    Ok(interfaces)
}

/// The interface called `name`.
///
/// # Errors
/// [`NetlinkError::NoInterface`], or as the kernel says.
pub fn interface(name: &str) -> Result<Interface, NetlinkError> {
    interfaces()?
        .into_iter()
        .find(|interface| interface.name == name)
        .ok_or_else(|| NetlinkError::NoInterface { name: name.into() })
}

/// The addresses of all interfaces.
///
/// # Errors
/// [`NetlinkError`].
pub fn addresses() -> Result<Vec<InterfaceAddress>, NetlinkError> {
    dump_addresses(&mut Socket::open()?)
}

/// Brings an interface up, or down.
///
/// # Errors
/// [`NetlinkError`].
pub fn set_up(ifindex: u32, up: bool) -> Result<(), NetlinkError> {
    let bit = libc::IFF_UP.cast_unsigned();
    let header = link_header(ifindex, if up { bit } else { 0 }, bit);
    Socket::open()?.ask("bringing an interface up or down", link_request(&header))
}

/// Has an interface ask nobody for Ethernet addresses: all behind it have its own (`IFF_NOARP`).
///
/// # Errors
/// [`NetlinkError`].
pub fn set_no_arp(ifindex: u32) -> Result<(), NetlinkError> {
    let bit = libc::IFF_NOARP.cast_unsigned();
    Socket::open()?.ask("switching ARP off", link_request(&link_header(ifindex, bit, bit)))
}

/// Sets an interface's MTU, in bytes.
///
/// # Errors
/// [`NetlinkError`].
pub fn set_mtu(ifindex: u32, mtu: u32) -> Result<(), NetlinkError> {
    let request = link_request(&link_header(ifindex, 0, 0)).with(libc::IFLA_MTU, &mtu.to_ne_bytes());
    Socket::open()?.ask("setting an interface's MTU", request)
}

/// Sets an interface's Ethernet address.
///
/// # Errors
/// [`NetlinkError`].
pub fn set_mac(ifindex: u32, mac: [u8; 6]) -> Result<(), NetlinkError> {
    let request = link_request(&link_header(ifindex, 0, 0)).with(libc::IFLA_ADDRESS, &mac);
    Socket::open()?.ask("setting an interface's Ethernet address", request)
}

/// Gives an interface an address, to be used at once (no duplicate address detection). One that it has
/// already stays.
///
/// # Errors
/// [`NetlinkError`].
pub fn add_address(ifindex: u32, address: IpAddr, prefix_len: u8) -> Result<(), NetlinkError> {
    let mut header = vec![family(address), prefix_len, 0, 0];
    header.extend_from_slice(&ifindex.to_ne_bytes());
    let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE | libc::NLM_F_ACK;
    let request = Request::new(libc::RTM_NEWADDR, flags, &header)
        .with(libc::IFA_LOCAL, &octets(address))
        .with(libc::IFA_ADDRESS, &octets(address))
        .with(libc::IFA_FLAGS, &libc::IFA_F_NODAD.to_ne_bytes());
    Socket::open()?.ask("adding an address to an interface", request)
}

fn link_request(header: &[u8]) -> Request {
    Request::new(libc::RTM_NEWLINK, libc::NLM_F_ACK, header)
}

fn link_header(ifindex: u32, flags: u32, change: u32) -> Vec<u8> {
    [0, ifindex, flags, change].iter().flat_map(|word| word.to_ne_bytes()).collect()
}

pub(super) fn dump_links(socket: &mut Socket) -> Result<Vec<Interface>, NetlinkError> {
    let request = Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &link_header(0, 0, 0));
    socket.dump("reading the interfaces", &request, |message| {
        (message.kind == libc::RTM_NEWLINK).then(|| read_link(message)).flatten()
    })
}

pub(super) fn dump_addresses(socket: &mut Socket) -> Result<Vec<InterfaceAddress>, NetlinkError> {
    let request = Request::new(libc::RTM_GETADDR, libc::NLM_F_DUMP, &[0; ADDRESS_HEADER]);
    socket.dump("reading the addresses", &request, |message| {
        (message.kind == libc::RTM_NEWADDR).then(|| read_address(message)).flatten()
    })
}

/// An interface from a message, without its addresses.
pub(super) fn read_link(message: &Message<'_>) -> Option<Interface> {
    // The bridge speaks of its ports by the same messages.
    if message.payload.first() != Some(&0) {
        return None;
    }
    // Not IFF_RUNNING: after a change the kernel takes up to a second to say that.
    let running = (libc::IFF_UP | libc::IFF_LOWER_UP).cast_unsigned();
    let flags = u32_at(message.payload, 8)?;
    let mut interface = Interface {
        ifindex: u32_at(message.payload, 4)?,
        name: String::new(),
        mac: [0; 6],
        mtu: 0,
        up: flags & running == running,
        vrf_table: None,
        addresses: Vec::new(),
    };
    for (kind, value) in attributes(message.payload.get(LINK_HEADER..)?) {
        match kind {
            libc::IFLA_IFNAME => {
                interface.name = String::from_utf8_lossy(value).trim_end_matches('\0').into();
            }
            libc::IFLA_ADDRESS => interface.mac = mac(value).unwrap_or_default(),
            libc::IFLA_MTU => interface.mtu = u32_at(value, 0)?,
            libc::IFLA_LINKINFO => interface.vrf_table = vrf_table(value),
            _ => {}
        }
    }
    Some(interface)
}

/// What the kind of an interface says of a VRF that it belongs to.
fn vrf_table(info: &[u8]) -> Option<u32> {
    let of = |kind| attributes(info).find(|(found, _)| *found == kind).map(|(_, value)| value);
    of(IFLA_INFO_SLAVE_KIND).filter(|kind| kind.strip_suffix(b"\0") == Some(b"vrf"))?;
    let (_, table) = attributes(of(IFLA_INFO_SLAVE_DATA)?).find(|(kind, _)| *kind == IFLA_VRF_PORT_TABLE)?;
    u32_at(table, 0)
}

fn read_address(message: &Message<'_>) -> Option<InterfaceAddress> {
    let &[_, prefix_len, _, scope, ..] = message.payload else { return None };
    let (mut local, mut peer) = (None, None);
    for (kind, value) in attributes(message.payload.get(ADDRESS_HEADER..)?) {
        match kind {
            libc::IFA_LOCAL => local = address(value),
            libc::IFA_ADDRESS => peer = address(value),
            _ => {}
        }
    }
    Some(InterfaceAddress {
        ifindex: u32_at(message.payload, 4)?,
        // On a point-to-point link IFA_ADDRESS is the far end's; IPv6 knows only IFA_ADDRESS elsewhere.
        address: local.or(peer)?,
        prefix_len,
        link_local: scope == libc::RT_SCOPE_LINK,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::wire::messages;

    /// As the kernel says it of an interface that belongs to a VRF device, and of one that belongs to a bridge.
    #[test]
    fn the_table_of_a_vrf_is_told_by_who_belongs_to_it() {
        let attribute = |kind, value: &[u8]| {
            let octets = Request::new(0, 0, &[]).with(kind, value).into_bytes(0);
            octets[16..].to_vec()
        };
        let table = attribute(IFLA_VRF_PORT_TABLE, &1077u32.to_ne_bytes());
        let read = |kind: &[u8]| {
            let info =
                [attribute(IFLA_INFO_SLAVE_KIND, kind), attribute(IFLA_INFO_SLAVE_DATA, &table)].concat();
            let header = link_header(5, 0, 0);
            let octets =
                Request::new(libc::RTM_NEWLINK, 0, &header).with(libc::IFLA_LINKINFO, &info).into_bytes(1);
            let message = messages(&octets).next().unwrap();
            read_link(&message).unwrap().vrf_table
        };
        assert_eq!(read(b"vrf\0"), Some(1077));
        assert_eq!(read(b"bridge\0"), None);
    }
}
