//! Datagram sockets of the kernel, at the other end of what a test drives.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// How long [`receive`] waits before its test fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// A socket for [`receive`].
pub fn udp_at(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// The next datagram.
#[track_caller]
pub fn receive(socket: &UdpSocket) -> Vec<u8> {
    receive_from(socket).0
}

/// The next datagram, and who sent it.
#[track_caller]
pub fn receive_from(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = vec![0; 65536];
    loop {
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => {
                buffer.truncate(len);
                return (buffer, from);
            }
            // The host was stopped and goes on: a wait with a limit ends then.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("no datagram came: {error}"),
        }
    }
}
