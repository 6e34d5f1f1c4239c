//! Sockets that take connections and datagrams, opened.

use std::fs::{self, Permissions};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use kaido_engine::port::hear_own_groups;
use kaido_wire::ndn::MULTICAST_PORT;
use rustix::net::sockopt::{
    set_ip_multicast_if, set_ipv6_multicast_hops, set_ipv6_multicast_if, set_ipv6_v6only,
    set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, set_socket_reuseaddr,
    set_socket_send_buffer_size, set_socket_send_buffer_size_force,
};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, ipproto, listen, socket_with,
};

use super::connection::Socket;
use super::{HostError, MULTICAST_GROUP, MULTICAST_GROUP_V6, MulticastOn, UnixAccess};
use crate::face::{FaceUri, Scope};

/// Octets of datagrams that the kernel keeps for us, with what it adds to each.
const UDP_BUFFER: usize = 8 << 20;

/// Connections that wait to be taken.
const BACKLOG: i32 = 128;

/// A socket that takes connections.
#[derive(Debug)]
pub(super) enum Listener {
    Unix { socket: UnixListener, path: PathBuf },
    Tcp(TcpListener),
}

/// Someone who has connected.
#[derive(Debug)]
pub(super) struct NewConnection {
    pub(super) socket: Socket,
    /// Of a Unix socket, which has no name: none.
    pub(super) remote: Option<FaceUri>,
    pub(super) local: FaceUri,
    pub(super) scope: Scope,
}

impl Listener {
    /// A listener on a Unix socket. What is left of one that nobody listens on is removed.
    pub(super) fn unix(path: &Path, access: UnixAccess) -> Result<Self, HostError> {
        let error = || HostError::at(path.display());
        if path.exists()
            && UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused)
        {
            fs::remove_file(path).map_err(error())?;
        }
        let socket = open_unix(path, access).map_err(error())?;
        Ok(Self::Unix { socket, path: path.to_owned() })
    }

    /// A listener on a TCP address.
    pub(super) fn tcp(address: SocketAddr) -> Result<Self, HostError> {
        let error = || HostError::at(format!("TCP {address}"));
        let socket = TcpListener::bind(address).map_err(error())?;
        socket.set_nonblocking(true).map_err(error())?;
        Ok(Self::Tcp(socket))
    }

    /// Its own address.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Unix { .. } => None,
            Self::Tcp(socket) => socket.local_addr().ok(),
        }
    }

    /// The next who has connected, if any.
    pub(super) fn accept(&self) -> io::Result<NewConnection> {
        match self {
            Self::Unix { socket, path } => {
                let (socket, _) = socket.accept()?;
                socket.set_nonblocking(true)?;
                let local = FaceUri::Unix(path.display().to_string());
                Ok(NewConnection { socket: Socket::Unix(socket), remote: None, local, scope: Scope::Local })
            }
            Self::Tcp(socket) => {
                let (socket, remote) = socket.accept()?;
                socket.set_nonblocking(true)?;
                socket.set_nodelay(true)?;
                let local = socket.local_addr()?;
                let scope = scope_of(local.ip(), remote.ip());
                let (remote, local) = (Some(FaceUri::Tcp(remote)), FaceUri::Tcp(local));
                Ok(NewConnection { socket: Socket::Tcp(socket), remote, local, scope })
            }
        }
    }
}

/// A listener on a path whose rights are as they are to be before anyone can connect.
fn open_unix(path: &Path, access: UnixAccess) -> io::Result<UnixListener> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let opened = chown(path, None, access.group)
        .and_then(|()| fs::set_permissions(path, Permissions::from_mode(access.mode)))
        .and_then(|()| Ok(listen(&socket, BACKLOG)?));
    if let Err(error) = opened {
        let _ = fs::remove_file(path);
        return Err(error);
    }
    Ok(UnixListener::from(socket))
}

/// A TCP connection within the host is one with an application.
pub(super) fn scope_of(local: IpAddr, remote: IpAddr) -> Scope {
    if local.is_loopback() && remote.is_loopback() { Scope::Local } else { Scope::NonLocal }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix { socket, .. } => socket.as_fd(),
            Self::Tcp(socket) => socket.as_fd(),
        }
    }
}

impl Drop for Listener {
    /// Removes the name of a Unix socket, so that nobody waits for an answer there.
    fn drop(&mut self) {
        if let Self::Unix { path, .. } = self {
            let _ = fs::remove_file(path);
        }
    }
}

/// A UDP socket for whoever sends.
pub(super) fn udp(address: SocketAddr) -> Result<UdpSocket, HostError> {
    let socket = open_udp(address).map_err(HostError::at(format!("UDP {address}")))?;
    widen(&socket);
    Ok(socket)
}

/// One of IPv6 takes nothing else: faces of IPv4 have a socket of their own, which may have the same port.
fn open_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = unbound(address)?;
    if address.is_ipv6() {
        set_ipv6_v6only(&socket, true)?;
    }
    bind(&socket, &address)?;
    Ok(UdpSocket::from(socket))
}

fn unbound(address: SocketAddr) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(socket_with(family, SocketType::DGRAM, flags, Some(ipproto::UDP))?)
}

/// Gives a socket the room for what arrives while the worker has other things to do. A Data may be ten and more datagrams,
/// of which none may be lost.
fn widen(socket: &UdpSocket) {
    // Beyond the system's limit where we may, else up to it; with less there are losses sooner.
    if set_socket_recv_buffer_size_force(socket, UDP_BUFFER).is_err() {
        let _ = set_socket_recv_buffer_size(socket, UDP_BUFFER);
    }
    if set_socket_send_buffer_size_force(socket, UDP_BUFFER).is_err() {
        let _ = set_socket_send_buffer_size(socket, UDP_BUFFER);
    }
}

/// A UDP socket for what is sent to a group on an interface, and one to send to it.
///
/// What we send comes back to us, as it does to others of this host: it is known by the sender's own address.
pub(super) fn multicast(on: &MulticastOn) -> Result<(UdpSocket, UdpSocket), HostError> {
    let opened = match on {
        MulticastOn::V4(interface) => open_v4(*interface),
        MulticastOn::V6 { index, own, .. } => open_v6(on.group(), *index, *own),
    };
    let place = match on {
        MulticastOn::V4(interface) => interface.to_string(),
        MulticastOn::V6 { name, .. } => name.clone(),
    };
    opened.map_err(HostError::at(format!("UDP {} on {place}", on.group())))
}

/// A socket that others of this host, who may be of the group too, share the address with.
fn receiver(group: SocketAddr) -> io::Result<UdpSocket> {
    let receiver = unbound(group)?;
    set_socket_reuseaddr(&receiver, true)?;
    bind(&receiver, &group)?;
    let receiver = UdpSocket::from(receiver);
    widen(&receiver);
    Ok(receiver)
}

fn open_v4(interface: Ipv4Addr) -> io::Result<(UdpSocket, UdpSocket)> {
    let receiver = receiver((MULTICAST_GROUP, MULTICAST_PORT).into())?;
    hear_own_groups(&receiver)?;
    receiver.join_multicast_v4(&MULTICAST_GROUP, &interface)?;
    let sender = UdpSocket::bind((interface, 0))?;
    sender.set_nonblocking(true)?;
    set_ip_multicast_if(&sender, &interface)?;
    sender.set_multicast_ttl_v4(1)?;
    Ok((receiver, sender))
}

fn open_v6(group: SocketAddr, index: u32, own: Ipv6Addr) -> io::Result<(UdpSocket, UdpSocket)> {
    // Bound to a group of a link, it hears that link alone.
    let receiver = receiver(group)?;
    receiver.join_multicast_v6(&MULTICAST_GROUP_V6, index)?;
    let sender = UdpSocket::bind(SocketAddrV6::new(own, 0, 0, index))?;
    sender.set_nonblocking(true)?;
    set_ipv6_multicast_if(&sender, index)?;
    set_ipv6_multicast_hops(&sender, 1)?;
    Ok((receiver, sender))
}
