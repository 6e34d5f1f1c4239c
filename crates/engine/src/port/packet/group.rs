//! What a socket of a multicast group is told, and the standard library has no call for.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Has a socket hear a group of IPv4 only on the interfaces on which it has joined it itself, not on those of other sockets
/// of the host (`IP_MULTICAST_ALL`). So where there is a socket for each interface, each hears its own.
///
/// # Errors
/// What the kernel says.
pub fn hear_own_groups(socket: &UdpSocket) -> io::Result<()> {
    const NO: libc::c_int = 0;
    super::socket::set(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, &NO)
}
