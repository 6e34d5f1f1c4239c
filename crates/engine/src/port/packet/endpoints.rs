//! UDP sockets at the addresses of tunnels, for datagrams that come and go by interfaces which are no ports.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::Arc;

use crate::port::PortError;

/// Interfaces that a filter names at most: far more than a node has ports, and far below what a filter may have of instructions.
const IGNORED_MAX: usize = 512;

/// One socket for each address, all with one UDP port. None waits.
#[derive(Debug)]
pub struct UdpEndpoints {
    sockets: Vec<(IpAddr, Arc<UdpSocket>)>,
}

impl UdpEndpoints {
    /// Over sockets that are bound to these addresses; for GTP-U those of the node with port number 2152 (3GPP TS 29.281 clause 4.4.2).
    /// What comes in by the interfaces of those indexes is not received: where packet sockets are their ports, the kernel has it too.
    ///
    /// # Errors
    /// [`PortError::Sys`] when one takes no filter.
    pub fn of(
        sockets: impl IntoIterator<Item = (IpAddr, Arc<UdpSocket>)>,
        ignored: &[u32],
    ) -> Result<Self, PortError> {
        let sockets: Vec<_> = sockets.into_iter().collect();
        for (address, socket) in &sockets {
            ignore_interfaces(socket.as_fd(), ignored)
                .map_err(PortError::sys(address, "setsockopt(SO_ATTACH_FILTER)"))?;
            socket.set_nonblocking(true).map_err(PortError::sys(address, "fcntl(O_NONBLOCK)"))?;
        }
        Ok(Self { sockets })
    }

    /// Has from now on the interfaces of these indexes ignored, and no others.
    ///
    /// # Errors
    /// When the kernel does not take the filter; the one before stays.
    pub fn ignore(&self, ifindexes: &[u32]) -> io::Result<()> {
        self.sockets.iter().try_for_each(|(_, socket)| ignore_interfaces(socket.as_fd(), ifindexes))
    }

    /// Sends a datagram from one of the addresses.
    ///
    /// # Errors
    /// What the kernel says; [`io::ErrorKind::AddrNotAvailable`] when the address is none of these.
    pub fn send(&self, from: IpAddr, to: SocketAddr, payload: &[u8]) -> io::Result<()> {
        let socket = self.sockets.iter().find(|(own, _)| *own == from);
        let (_, socket) = socket.ok_or(io::ErrorKind::AddrNotAvailable)?;
        socket.send_to(payload, to).map(|_| ())
    }

    /// Takes a datagram that has come to the `at`th address: that address, who sent it, and its length in `buffer`.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when there is none; else what the kernel says of one that was lost.
    pub fn receive(&self, at: usize, buffer: &mut [u8]) -> io::Result<(IpAddr, SocketAddr, usize)> {
        let (own, socket) = self.sockets.get(at).ok_or(io::ErrorKind::WouldBlock)?;
        let (len, from) = socket.recv_from(buffer)?;
        Ok((*own, from, len))
    }

    /// How many addresses there are.
    pub fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }

    /// Descriptors that are readable when datagrams wait.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().map(|(_, socket)| socket.as_fd())
    }
}

/// Has a socket take nothing from now on that came in by the interfaces of these indexes. A listening TCP socket takes no
/// connections from there.
///
/// # Errors
/// When the kernel does not take the filter; the one before stays.
pub fn ignore_interfaces(socket: BorrowedFd<'_>, ifindexes: &[u32]) -> io::Result<()> {
    const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const UNLESS_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06; // BPF_RET | BPF_K
    let statement = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    let of_interface = (libc::SKF_AD_OFF + libc::SKF_AD_IFINDEX).cast_unsigned();
    let mut filter = vec![statement(LOAD, of_interface)];
    for &ifindex in ifindexes.iter().take(IGNORED_MAX) {
        filter.push(libc::sock_filter { code: UNLESS_EQUAL, jt: 0, jf: 1, k: ifindex });
        filter.push(statement(RETURN, 0));
    }
    filter.push(statement(RETURN, u32::MAX));
    #[allow(clippy::cast_possible_truncation)] // Bounded above.
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    super::socket::set(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use super::*;

    #[test]
    fn datagrams_come_and_go_but_by_interfaces_that_are_ignored() {
        let peer = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let address = IpAddr::from([127, 77, 0, 1]);
        // A port that nobody has: one that the kernel has just given.
        let udp_port = UdpSocket::bind((address, 0)).unwrap().local_addr().unwrap().port();
        let own = UdpEndpoints::of([(address, Arc::new(UdpSocket::bind((address, udp_port)).unwrap()))], &[])
            .unwrap();
        own.send(address, peer.local_addr().unwrap(), b"there").unwrap();
        let mut buffer = [0; 64];
        let (len, from) = peer.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..len], from), (&b"there"[..], SocketAddr::new(address, udp_port)));
        // Over loopback a datagram is there when it has been sent.
        peer.send_to(b"and back", from).unwrap();
        let (to, from, len) = own.receive(0, &mut buffer).unwrap();
        assert_eq!((to, from, &buffer[..len]), (address, peer.local_addr().unwrap(), &b"and back"[..]));
        let loopback = rustix::net::netdevice::name_to_index(&peer, "lo").unwrap();
        own.ignore(&[loopback + 1, loopback]).unwrap();
        peer.send_to(b"not heard", (address, udp_port)).unwrap();
        assert_eq!(own.receive(0, &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        own.ignore(&[loopback + 1]).unwrap();
        peer.send_to(b"heard", (address, udp_port)).unwrap();
        assert_eq!(own.receive(0, &mut buffer).unwrap().2, 5);
        let unknown = own.send(IpAddr::from([127, 0, 0, 9]), from, b"");
        assert_eq!(unknown.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }
}
