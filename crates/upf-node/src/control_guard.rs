//! Keeps what comes out of data networks from the addresses of PFCP, of the metrics and of the API where the kernel sees it too.
//!
//! The workers drop such packets (`control_address`). But of what a packet socket's port receives the kernel has its own copy, and
//! a host answers to all of its addresses on every interface (RFC 1122 3.3.4.2, the weak model). So the sockets themselves take
//! nothing that came in by such a port.

use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use kaido_engine::port::ignore_interfaces;
use kaido_node::config::Driver;
use kaido_node::ports::Device;
use rustix::net::netdevice::name_to_index;

use crate::config::UpfPort;

/// How often the indexes of interfaces are looked up: one that was removed and made again has another.
const LOOKED_UP_EVERY: Duration = Duration::from_secs(1);

/// A port of a data network that the kernel sees too.
#[derive(Debug)]
struct Port {
    interface: String,
    /// Its own addresses, at which control planes may be meant to speak to the node.
    own: Vec<IpAddr>,
}

/// A socket at a guarded address, and the interfaces that it takes nothing from.
#[derive(Debug)]
struct GuardedSocket {
    socket: OwnedFd,
    address: IpAddr,
    ignored: Vec<u32>,
}

/// The sockets and the ports that they are guarded from.
#[derive(Debug)]
pub(super) struct ControlGuard {
    ports: Vec<Port>,
    sockets: Vec<GuardedSocket>,
    looked_up: Instant,
}

impl ControlGuard {
    /// Guards sockets at addresses from the ports that need it. Sockets at every address are not: those of ports are meant, too.
    pub(super) fn new<'d>(
        devices: impl Iterator<Item = (&'d Device, &'d UpfPort)>,
        sockets: impl IntoIterator<Item = (OwnedFd, IpAddr)>,
    ) -> std::io::Result<Self> {
        let is_seen = |(device, of_port): &(&Device, &UpfPort)| {
            *device.config.driver.get_ref() == Driver::AfPacket
                && of_port.is_n6()
                // In VLANs the kernel sees no more than it is handed.
                && !device.is_vlan()
        };
        let port = |(device, _): (&Device, &UpfPort)| Port {
            interface: device.interface.name.clone(),
            own: device.interface.addresses.iter().map(|own| own.address).collect(),
        };
        let sockets = sockets.into_iter().filter(|(_, address)| !address.is_unspecified());
        let mut guard = Self {
            ports: devices.filter(is_seen).map(port).collect(),
            sockets: sockets
                .map(|(socket, address)| GuardedSocket { socket, address, ignored: Vec::new() })
                .collect(),
            looked_up: Instant::now(),
        };
        guard.look_up()?;
        Ok(guard)
    }

    /// Follows interfaces that come and go.
    pub(super) fn turn(&mut self) {
        if self.ports.is_empty() || self.looked_up.elapsed() < LOOKED_UP_EVERY {
            return;
        }
        self.looked_up = Instant::now();
        if let Err(error) = self.look_up() {
            tracing::error!(%error, "PFCP, metrics and API are not guarded from the data network");
        }
    }

    fn look_up(&mut self) -> std::io::Result<()> {
        for guarded in &mut self.sockets {
            let socket = guarded.socket.as_fd();
            let foreign = self.ports.iter().filter(|port| !port.own.contains(&guarded.address));
            let now: Vec<u32> =
                foreign.filter_map(|port| name_to_index(socket, &port.interface).ok()).collect();
            if now != guarded.ignored {
                ignore_interfaces(socket, &now)?;
                guarded.ignored = now;
            }
        }
        Ok(())
    }
}
