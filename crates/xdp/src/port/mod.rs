//! A program that brings a port's packets to AF_XDP sockets, for functions without a program of their own: `bpf/port.bpf.c`.
//!
//! ```text
//!             ┌─ an EtherType, to our MAC or a group ────────────────────────┐
//!  driver ─▶ port ─ an IP protocol or UDP port, to one of our addresses ─────┼─▶ AF_XDP socket of the receive queue
//!             ├─ routed: unicast IP to our MAC, and to no local address ─────┘
//!             └─ all else (ARP, ND, ping to ourselves, ...) ─────────────────▶ kernel
//! ```

mod abi;

impl Program for PortSteering {
    fn register_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        Self::register_socket(self, queue, socket)
    }

    fn set_local_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        Self::set_local_addresses(self, addresses)
    }

    fn set_mac(&mut self, mac: [u8; 6]) -> Result<(), Error> {
        Self::set_mac(self, mac)
    }

    fn left_to_kernel(&self) -> Result<u64, Error> {
        Ok(self.counters()?.left_to_kernel())
    }
}

#[cfg(test)]
pub(crate) mod in_header;

use std::net::IpAddr;
use std::ops::{Deref, DerefMut};
use std::os::fd::BorrowedFd;

use kaido_wire::{EtherType, IpProtocol};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

pub(crate) use self::abi::RETURNED;
pub use self::abi::{ADDRESSES_MAX, Address, PortClass, PortCounters, PortPass, QUEUES_MAX};
use crate::Error;
use crate::attach::AttachMode;
use crate::maps::{self, Table, address_key};
use crate::mounted::LoadedProgram;
use crate::object::ObjectBytes;
use crate::program::Program;

static OBJECT: &ObjectBytes<[u8]> = &ObjectBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/port.bpf.o")));

/// Which packets to the [addresses](PortSteering::set_addresses) and the interface's MAC address are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpMatch {
    /// Those of a protocol. Of UDP all fragments are, too.
    Protocol(IpProtocol),
    /// UDP to a port. Of a datagram in fragments the first decides; until it comes, the fragments are taken.
    Udp {
        /// The destination port.
        port: u16,
    },
}

/// Which packets of a port go to its sockets; all others go to the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortMatch {
    /// Frames of this type to the interface's MAC address, or to a group.
    pub ethertype: Option<EtherType>,
    /// Packets to the [addresses](PortSteering::set_addresses).
    pub ip: Option<IpMatch>,
    /// Unicast IP packets to the interface's MAC address, and to no [local address](PortSteering::set_local_addresses).
    pub routed: bool,
    /// Every frame, of a port that is one of a bridge.
    pub all: bool,
}

/// What a program is loaded with, and keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortSteeringConfig {
    /// Which packets are taken.
    pub matches: PortMatch,
    /// The interface's own MAC address.
    pub mac: [u8; 6],
    /// Whether packets may span several buffers; then the sockets must be multi-buffer ones too, or the kernel
    /// drops the long packets.
    pub multi_buffer: bool,
}

/// A loaded program, attached or not.
#[derive(Debug)]
pub struct PortSteering {
    mounted: LoadedProgram,
    config: PortSteeringConfig,
    config_map: MapHandle,
    counters: MapHandle,
    sockets: MapHandle,
    addresses: Table<16>,
    local: Table<16>,
}

impl PortSteering {
    /// Loads a program and attaches it at once. Until its sockets are there, packets that it takes are dropped, and until the
    /// local addresses are set, the kernel has none of what is routed: to fill the tables first, [`load`](Self::load), set, then
    /// [`attach_to`](LoadedProgram::attach_to).
    ///
    /// # Errors
    /// As [`load`](Self::load) and [`attach_to`](LoadedProgram::attach_to).
    pub fn attach(ifindex: u32, mode: AttachMode, config: PortSteeringConfig) -> Result<Self, Error> {
        let mut steering = Self::load(config)?;
        steering.attach_to(ifindex, mode)?;
        Ok(steering)
    }

    /// Loads a program with empty tables, attached to nothing.
    ///
    /// # Errors
    /// [`Error::Permission`], or [`Error::Libbpf`] when the kernel refuses the program.
    pub fn load(config: PortSteeringConfig) -> Result<Self, Error> {
        let name = if config.multi_buffer { "port_frags" } else { "port_plain" };
        let mounted = LoadedProgram::load(OBJECT, name, config.multi_buffer)?;
        let steering = Self {
            config,
            config_map: mounted.map("config")?,
            counters: mounted.map("counters")?,
            sockets: mounted.map("sockets")?,
            addresses: Table::new(mounted.map("addresses")?, "addresses", ADDRESSES_MAX),
            local: Table::new(mounted.map("local_addrs")?, "local addresses", ADDRESSES_MAX),
            mounted,
        };
        steering.write_config()?;
        Ok(steering)
    }

    /// The addresses of [`PortMatch::ip`]. Those that stay are never missing.
    ///
    /// # Errors
    /// [`Error::TooMany`], [`Error::Libbpf`].
    pub fn set_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        self.addresses.replace(&addresses.iter().copied().map(address_key).collect())
    }

    /// Addresses the kernel answers for, where packets are taken as routed. Those that stay are never missing.
    ///
    /// # Errors
    /// [`Error::TooMany`], [`Error::Libbpf`].
    pub fn set_local_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        self.local.replace(&addresses.iter().copied().map(address_key).collect())
    }

    /// The interface's own MAC address, which may change while the program runs.
    ///
    /// # Errors
    /// [`Error::Libbpf`].
    pub fn set_mac(&mut self, mac: [u8; 6]) -> Result<(), Error> {
        self.config.mac = mac;
        self.write_config()
    }

    /// Lets a queue's packets go to an AF_XDP socket, bound to this interface and queue. The map does not keep the socket: when
    /// it closes, the kernel takes it out.
    ///
    /// # Errors
    /// [`Error::Queue`], [`Error::NotASocket`], [`Error::Permission`].
    pub fn register_socket(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), Error> {
        maps::register_socket(&self.sockets, place(queue)?, queue, socket)
    }

    /// Takes a queue's socket out: from then on its packets are dropped and counted. A no-op when there is none.
    ///
    /// # Errors
    /// [`Error::Queue`], [`Error::Libbpf`].
    pub fn unregister_socket(&mut self, queue: u32) -> Result<(), Error> {
        maps::unregister_socket(&self.sockets, place(queue)?)
    }

    /// Packets seen since the program was loaded, summed over the CPUs.
    ///
    /// # Errors
    /// [`Error::Libbpf`].
    pub fn counters(&self) -> Result<PortCounters, Error> {
        let mut sum = PortCounters::default();
        for value in maps::per_cpu(&self.counters, 0)? {
            sum.add(&value);
        }
        Ok(sum)
    }

    fn write_config(&self) -> Result<(), Error> {
        let value = abi::config(self.config.matches, self.config.mac);
        self.config_map
            .update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
            .map_err(Error::libbpf("configuring the XDP program"))
    }
}

impl Deref for PortSteering {
    type Target = LoadedProgram;

    fn deref(&self) -> &LoadedProgram {
        &self.mounted
    }
}

impl DerefMut for PortSteering {
    fn deref_mut(&mut self) -> &mut LoadedProgram {
        &mut self.mounted
    }
}

/// Where a queue has its socket.
fn place(queue: u32) -> Result<u32, Error> {
    if queue < QUEUES_MAX { Ok(queue) } else { Err(Error::Queue { queue }) }
}
