//! The connection of an application to a router: a socket, and packets of the link on it.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use kaido_wire::ndn::{LpHeader, LpPacket, PACKET_MAX, PORT, tlv};

/// Octets of a packet of the link, at most: one of the network layer and a header.
const LINK_PACKET_MAX: usize = PACKET_MAX + 256;

/// Where the router of this host listens if nobody says otherwise.
pub const DEFAULT_ROUTER: &str = "unix:///run/nfd/nfd.sock";

/// The environment variable by which applications are told where their router is.
pub const ROUTER_VARIABLE: &str = "NDN_CLIENT_TRANSPORT";

/// Where a router listens, as applications are told it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Router {
    /// `unix:///run/nfd/nfd.sock`
    Unix(PathBuf),
    /// `tcp://host:6363`
    Tcp(String),
    /// `udp://host:6363`
    Udp(String),
}

/// A text does not say where a router is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no router: unix:///run/nfd/nfd.sock, tcp://host:6363 or udp://host:6363")]
pub struct NotARouter(String);

impl std::str::FromStr for Router {
    type Err = NotARouter;

    fn from_str(text: &str) -> Result<Self, NotARouter> {
        let wrong = || NotARouter(text.to_owned());
        let (schema, rest) = text.split_once("://").ok_or_else(wrong)?;
        let has_port = rest.rsplit_once(':').is_some_and(|(host, port)| {
            (!host.contains(':') || host.ends_with(']')) && port.parse::<u16>().is_ok()
        });
        let host = if has_port { rest.to_owned() } else { format!("{rest}:{PORT}") };
        match schema {
            _ if rest.is_empty() => Err(wrong()),
            "unix" if rest.starts_with('/') => Ok(Self::Unix(rest.into())),
            "tcp" | "tcp4" | "tcp6" => Ok(Self::Tcp(host)),
            "udp" | "udp4" | "udp6" => Ok(Self::Udp(host)),
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Tcp(host) => write!(f, "tcp://{host}"),
            Self::Udp(host) => write!(f, "udp://{host}"),
        }
    }
}

/// The socket.
#[derive(Debug)]
enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
    Udp(UdpSocket),
}

/// Appends a Data to packets that are to be sent, with the token of the Interest that it answers; an empty one is none.
///
/// # Errors
/// When the token is longer than one may be.
pub fn append_answer(packets: &mut Vec<u8>, token: &[u8], data: &[u8]) -> Result<(), kaido_wire::Error> {
    let header = LpHeader { pit_token: token, ..LpHeader::default() };
    if !header.is_empty() {
        let at = packets.len();
        packets.resize(at + header.len(data.len()), 0);
        header.emit(data.len(), &mut packets[at..])?;
    }
    packets.extend_from_slice(data);
    Ok(())
}

/// A packet of the link that was received.
#[derive(Debug)]
pub struct ReceivedPacket {
    octets: Vec<u8>,
}

impl ReceivedPacket {
    /// What stands in its header, and the Interest or Data in it; `None` for a packet that cannot be read.
    pub fn packet(&self) -> Option<(LpHeader<'_>, &[u8])> {
        let packet = LpPacket::parse(&self.octets, self.octets.len()).ok()?;
        let fragment = self.octets.get(packet.fragment_at..packet.fragment_at + packet.fragment_len)?;
        Some((packet.header, fragment))
    }
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    socket: Socket,
    /// What a stream has brought and nobody took.
    buffer: Vec<u8>,
    /// How much of it was taken.
    taken: usize,
}

impl Connection {
    /// Connects to a router.
    ///
    /// # Errors
    /// When nobody listens there, or the host has no address.
    pub fn open(router: &Router) -> io::Result<Self> {
        let socket = match router {
            Router::Unix(path) => Socket::Unix(UnixStream::connect(path)?),
            Router::Tcp(host) => {
                let stream = TcpStream::connect(host)?;
                stream.set_nodelay(true)?;
                Socket::Tcp(stream)
            }
            Router::Udp(host) => {
                let to = host.to_socket_addrs()?.next().ok_or(ErrorKind::AddrNotAvailable)?;
                let any: SocketAddr = if to.is_ipv4() { ([0; 4], 0).into() } else { ([0u16; 8], 0).into() };
                let socket = UdpSocket::bind(any)?;
                socket.connect(to)?;
                Socket::Udp(socket)
            }
        };
        Ok(Self::over(socket))
    }

    /// A connection over a stream that is open already.
    pub fn over_stream(stream: UnixStream) -> Self {
        Self::over(Socket::Unix(stream))
    }

    fn over(socket: Socket) -> Self {
        Self { socket, buffer: Vec::new(), taken: 0 }
    }

    /// Sends packets of the link that stand one after another.
    ///
    /// # Errors
    /// When the connection is gone.
    pub fn send(&mut self, packets: &[u8]) -> io::Result<()> {
        match &mut self.socket {
            Socket::Unix(stream) => stream.write_all(packets),
            Socket::Tcp(stream) => stream.write_all(packets),
            Socket::Udp(socket) => {
                let mut rest = packets;
                while !rest.is_empty() {
                    let len =
                        tlv::header(rest).map_or(rest.len(), |header| header.element_len().min(rest.len()));
                    socket.send(&rest[..len])?;
                    rest = &rest[len..];
                }
                Ok(())
            }
        }
    }

    /// The next packet; `None` when none has come by `deadline`.
    ///
    /// # Errors
    /// When the connection is gone, or what comes is no NDN.
    pub fn receive(&mut self, deadline: Instant) -> io::Result<Option<ReceivedPacket>> {
        loop {
            if let Some(packet) = self.take()? {
                return Ok(Some(packet));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            match self.read(left) {
                Ok(0) if !matches!(self.socket, Socket::Udp(_)) => {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                Ok(_) => {}
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                    ) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads more, for at most `within`; the octets that came.
    fn read(&mut self, within: Duration) -> io::Result<usize> {
        self.buffer.drain(..std::mem::take(&mut self.taken));
        let at = self.buffer.len();
        self.buffer.resize(at + 8 * LINK_PACKET_MAX, 0);
        let within = Some(within.max(Duration::from_millis(1)));
        let room = &mut self.buffer[at..];
        let read = match &mut self.socket {
            Socket::Unix(stream) => stream.set_read_timeout(within).and_then(|()| stream.read(room)),
            Socket::Tcp(stream) => stream.set_read_timeout(within).and_then(|()| stream.read(room)),
            Socket::Udp(socket) => socket.set_read_timeout(within).and_then(|()| socket.recv(room)),
        };
        self.buffer.truncate(at + *read.as_ref().unwrap_or(&0));
        read
    }

    /// The packet that the buffer begins with, if it is whole.
    fn take(&mut self) -> io::Result<Option<ReceivedPacket>> {
        let rest = &self.buffer[self.taken..];
        let is_datagram = matches!(self.socket, Socket::Udp(_));
        let len = match tlv::header(rest) {
            Ok(header) if header.element_len() > LINK_PACKET_MAX && !is_datagram => return Err(garbage()),
            Ok(header) if header.element_len() <= rest.len() => header.element_len(),
            // A datagram has no more to come.
            _ if is_datagram => rest.len(),
            Err(kaido_wire::Error::Truncated) | Ok(_) => return Ok(None),
            Err(_) => return Err(garbage()),
        };
        if len == 0 {
            return Ok(None);
        }
        let octets = rest[..len].to_vec();
        self.taken += len;
        Ok(Some(ReceivedPacket { octets }))
    }
}

fn garbage() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "what the router sends is no NDN")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routers_are_said_as_applications_are_told() {
        for (text, same) in [
            ("unix:///run/nfd/nfd.sock", "unix:///run/nfd/nfd.sock"),
            ("tcp://host", "tcp://host:6363"),
            ("tcp4://127.0.0.1:7000", "tcp://127.0.0.1:7000"),
            ("udp://[::1]", "udp://[::1]:6363"),
            ("udp6://[::1]:1", "udp://[::1]:1"),
        ] {
            assert_eq!(text.parse::<Router>().unwrap().to_string(), same);
        }
        for text in ["", "unix://relative", "tcp://", "http://host", "/run/nfd.sock"] {
            assert!(text.parse::<Router>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_stream_is_cut_into_packets() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut connection = Connection::over_stream(ours);
        let soon = || Instant::now() + Duration::from_secs(60);
        let packets = [vec![5, 3, 7, 1, 8], vec![0x64, 0], [vec![6, 0xfd, 1, 0], vec![0; 256]].concat()];
        let stream = packets.concat();
        let (first, second) = stream.split_at(6);
        theirs.write_all(first).unwrap();
        assert_eq!(connection.receive(soon()).unwrap().unwrap().octets, packets[0]);
        let now = Instant::now() + Duration::from_millis(20);
        assert!(connection.receive(now).unwrap().is_none(), "half of a packet");
        theirs.write_all(second).unwrap();
        assert_eq!(connection.receive(soon()).unwrap().unwrap().octets, packets[1]);
        assert_eq!(connection.receive(soon()).unwrap().unwrap().octets, packets[2]);
        theirs.write_all(&[6, 0xfe, 0, 1, 0, 0]).unwrap();
        assert_eq!(connection.receive(soon()).unwrap_err().kind(), ErrorKind::InvalidData, "too long");
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert_eq!(
            Connection::over_stream(ours).receive(soon()).unwrap_err().kind(),
            ErrorKind::UnexpectedEof
        );
    }

    #[test]
    fn datagrams_are_packets() {
        let router = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut connection =
            Connection::open(&Router::Udp(router.local_addr().unwrap().to_string())).unwrap();
        connection.send(&[5, 1, 7, 6, 2, 8, 9]).unwrap();
        let mut buffer = [0; 16];
        let (len, from) = router.recv_from(&mut buffer).unwrap();
        assert_eq!(buffer[..len], [5, 1, 7]);
        assert_eq!(router.recv(&mut buffer).unwrap(), 4);
        router.send_to(&[6, 9, 1], from).unwrap();
        router.send_to(&[5, 1, 7], from).unwrap();
        let soon = || Instant::now() + Duration::from_secs(60);
        let cut = connection.receive(soon()).unwrap().unwrap();
        assert!(cut.packet().is_none(), "it is cut off");
        assert_eq!(connection.receive(soon()).unwrap().unwrap().octets, [5, 1, 7]);
    }
}
