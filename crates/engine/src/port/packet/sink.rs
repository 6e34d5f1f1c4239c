//! A UDP socket that takes everything and keeps nothing.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;

use crate::port::PortError;

/// Holds UDP addresses, so that the kernel does not answer what arrives there with ICMP port unreachable,
/// while a [`PacketPort`](super::PacketPort) takes the packets themselves. A filter throws the kernel's copies
/// away before they are queued.
#[derive(Debug)]
pub struct UdpSink {
    _sockets: Vec<Arc<UdpSocket>>,
}

impl UdpSink {
    /// Binds the addresses; for GTP-U those of the port with port number 2152 (3GPP TS 29.281 clause 4.4.2).
    ///
    /// # Errors
    /// [`PortError::Sys`]: an address is not ours, or another process has it.
    pub fn bind(addresses: impl IntoIterator<Item = SocketAddr>) -> Result<Self, PortError> {
        let sockets = addresses.into_iter().map(|address| {
            UdpSocket::bind(address).map(Arc::new).map_err(PortError::sys(address, "bind(UDP)"))
        });
        Self::of(sockets.collect::<Result<_, _>>()?)
    }

    /// Has bound sockets take everything and keep nothing.
    ///
    /// # Errors
    /// [`PortError::Sys`] when one takes no filter.
    pub fn of(sockets: Vec<Arc<UdpSocket>>) -> Result<Self, PortError> {
        for socket in &sockets {
            drop_everything(socket)
                .map_err(PortError::sys("a UDP socket", "setsockopt(SO_ATTACH_FILTER)"))?;
        }
        Ok(Self { _sockets: sockets })
    }
}

fn drop_everything(socket: &UdpSocket) -> io::Result<()> {
    // BPF_RET | BPF_K with zero: of no packet any byte is kept.
    let mut filter = [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }];
    let program = libc::sock_fprog { len: 1, filter: filter.as_mut_ptr() };
    super::socket::set(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}
