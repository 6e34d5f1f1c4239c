//! Sockets that a service manager has made (sd_listen_fds(3)). It keeps them while the node is away: what comes meanwhile waits.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use listenfd::ListenFd;
use rustix::io::FdFlags;

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// UDP.
    Datagram,
    /// A TCP listener.
    Stream,
}

/// Where it is, and its descriptor.
#[derive(Debug)]
struct Given {
    kind: SocketKind,
    address: SocketAddr,
    fd: OwnedFd,
    asked_for: AtomicBool,
}

/// All that were given, as they came: the next program of this process finds them by the same numbers.
#[derive(Debug, Default)]
pub(crate) struct GivenSockets(Vec<Given>);

impl GivenSockets {
    /// Takes what the environment tells of out of it. No other thread may be there yet.
    ///
    /// # Errors
    /// When one is no UDP socket or TCP listener.
    pub(crate) fn take() -> io::Result<Self> {
        let mut given = ListenFd::from_env();
        let count = given.len();
        let not_understood = |fault: io::Error| {
            let help = "ListenDatagram= and ListenStream= with an IP address and a port are understood";
            io::Error::new(fault.kind(), format!("a socket of the service manager: {fault}; {help}"))
        };
        let take = |at| {
            let (kind, address, fd) = match given.take_udp_socket(at) {
                Ok(socket) => {
                    let socket = socket.ok_or(io::ErrorKind::NotFound)?;
                    (SocketKind::Datagram, socket.local_addr()?, OwnedFd::from(socket))
                }
                Err(_) => {
                    let listener = given
                        .take_tcp_listener(at)
                        .map_err(not_understood)?
                        .ok_or(io::ErrorKind::NotFound)?;
                    (SocketKind::Stream, listener.local_addr()?, OwnedFd::from(listener))
                }
            };
            Ok(Given { kind, address, fd, asked_for: AtomicBool::new(false) })
        };
        (0..count).map(take).collect::<io::Result<_>>().map(Self)
    }

    /// The socket at an address, if there is one.
    ///
    /// # Errors
    /// When the process has no more descriptors.
    pub(crate) fn at(&self, kind: SocketKind, address: SocketAddr) -> io::Result<Option<OwnedFd>> {
        let found = self.0.iter().find(|given| given.kind == kind && given.address == address);
        found
            .map(|given| {
                given.asked_for.store(true, Ordering::Relaxed);
                given.fd.as_fd().try_clone_to_owned()
            })
            .transpose()
    }

    /// Those that nobody has asked for.
    pub(crate) fn unused(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.0.iter().filter(|given| !given.asked_for.load(Ordering::Relaxed)).map(|given| given.address)
    }

    /// What the environment of the program that this process becomes is to have. The sockets stay open for it.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn for_next(&self) -> io::Result<Vec<(&'static str, String)>> {
        for given in &self.0 {
            rustix::io::fcntl_setfd(&given.fd, FdFlags::empty())?;
        }
        let first = self.0.first().map(|given| given.fd.as_raw_fd().to_string());
        Ok(first
            .into_iter()
            .flat_map(|first| [("LISTEN_FDS", self.0.len().to_string()), ("LISTEN_FDS_FIRST_FD", first)])
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, UdpSocket};

    use super::*;

    fn given(kind: SocketKind, address: SocketAddr, fd: impl Into<OwnedFd>) -> Given {
        Given { kind, address, fd: fd.into(), asked_for: AtomicBool::new(false) }
    }

    #[test]
    fn a_socket_is_found_by_kind_and_address_as_often_as_it_is_asked_for() {
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (of_udp, of_tcp) = (udp.local_addr().unwrap(), tcp.local_addr().unwrap());
        let all = GivenSockets(vec![
            given(SocketKind::Datagram, of_udp, udp),
            given(SocketKind::Stream, of_tcp, tcp),
        ]);
        assert!(all.at(SocketKind::Stream, of_udp).unwrap().is_none());
        assert_eq!(all.unused().collect::<Vec<_>>(), [of_udp, of_tcp]);
        for _ in 0..2 {
            let found = UdpSocket::from(all.at(SocketKind::Datagram, of_udp).unwrap().unwrap());
            assert_eq!(found.local_addr().unwrap(), of_udp);
        }
        assert_eq!(all.unused().collect::<Vec<_>>(), [of_tcp]);
    }

    #[test]
    fn the_next_program_of_the_process_is_told_of_them() {
        assert!(GivenSockets::default().for_next().unwrap().is_empty());
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let all = GivenSockets(vec![given(SocketKind::Datagram, udp.local_addr().unwrap(), udp)]);
        let number = all.0[0].fd.as_raw_fd().to_string();
        assert!(rustix::io::fcntl_getfd(&all.0[0].fd).unwrap().contains(FdFlags::CLOEXEC));
        let told = all.for_next().unwrap();
        assert_eq!(told, [("LISTEN_FDS", "1".to_owned()), ("LISTEN_FDS_FIRST_FD", number)]);
        assert!(!rustix::io::fcntl_getfd(&all.0[0].fd).unwrap().contains(FdFlags::CLOEXEC));
    }
}
