//! Where control planes are listened to.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use kaido_node::takeover::{SocketKind, Takeover};
use rustix::net::{self, sockopt};

/// Octets that wait in a PFCP socket at most.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Sockets at the listening addresses. Some of these are addresses of TAP devices that are yet to be made. Who takes over from
/// another process has that one's sockets, with all requests that wait there; a service manager may have them, too.
///
/// # Errors
/// The address and what the kernel said.
pub(super) fn listen(
    addresses: impl IntoIterator<Item = SocketAddr>,
    is_coming: impl Fn(IpAddr) -> bool,
    takeover: &Takeover,
) -> Result<Vec<Arc<UdpSocket>>, (SocketAddr, std::io::Error)> {
    let open = |address: SocketAddr| {
        let name = format!("PFCP socket at {address}");
        let socket =
            match takeover.socket(&name, SocketKind::Datagram, address).map_err(std::io::Error::other)? {
                Some(socket) => socket.into(),
                None if is_coming(address.ip()) => bind_ahead(address)?,
                None => UdpSocket::bind(address)?,
            };
        socket.set_nonblocking(true)?;
        // Bursts of establishments come faster than a turn. Past the system's limit where we may, else up to it.
        if sockopt::set_socket_recv_buffer_size_force(&socket, RECEIVE_BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER);
        }
        let socket = Arc::new(socket);
        takeover.keep(&name, &socket);
        Ok(socket)
    };
    addresses.into_iter().map(|address| open(address).map_err(|error| (address, error))).collect()
}

/// A socket at an address of a TAP device that is yet to be made.
fn bind_ahead(address: SocketAddr) -> std::io::Result<UdpSocket> {
    let family = if address.is_ipv4() { net::AddressFamily::INET } else { net::AddressFamily::INET6 };
    let socket = net::socket_with(family, net::SocketType::DGRAM, net::SocketFlags::CLOEXEC, None)?;
    if address.is_ipv4() {
        sockopt::set_ip_freebind(&socket, true)?;
    } else {
        sockopt::set_ipv6_freebind(&socket, true)?;
    }
    net::bind(&socket, &address)?;
    Ok(socket.into())
}
