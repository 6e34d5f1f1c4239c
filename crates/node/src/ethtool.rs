//! What drivers tell by the ethtool ioctl (`include/uapi/linux/ethtool.h`): it is older than its netlink family and so
//! works with every kernel. Only the questions; nothing is set.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

const GET_DRIVER: u32 = 0x03;
const GET_RINGS: u32 = 0x10;
const GET_FLAGS: u32 = 0x25;
const GET_FLOW_HASH: u32 = 0x29;
const GET_GRO: u32 = 0x2b;
const GET_CHANNELS: u32 = 0x3c;

/// `ETH_FLAG_LRO`.
const FLAG_LRO: u32 = 1 << 15;
/// `ETH_FLAG_RXVLAN`.
const FLAG_RXVLAN: u32 = 1 << 8;
/// Words of the longest answer, `struct ethtool_drvinfo`, and to spare.
const WORDS: usize = 64;

/// Kinds of packets whose RSS hash is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// UDP over IPv4: tunnels for a NIC that does not know GTP-U.
    Udp4,
    /// GTP-U over IPv4, since Linux 6.9.
    Gtpu4,
}

impl Flow {
    fn number(self) -> u32 {
        match self {
            Self::Udp4 => 0x02,
            Self::Gtpu4 => 0x13,
        }
    }
}

/// Fields that an RSS hash takes in (`RXH_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashFields(pub u64);

impl HashFields {
    const TEID: u64 = 1 << 8;
    const PORTS: u64 = (1 << 6) | (1 << 7);

    /// Whether the TEID is in the hash.
    pub fn has_teid(self) -> bool {
        self.0 & Self::TEID != 0
    }

    /// Whether ports are in the hash.
    pub fn has_ports(self) -> bool {
        self.0 & Self::PORTS == Self::PORTS
    }
}

/// `struct ethtool_channels`: queues, as they are and as there may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Channels {
    /// Queues that receive.
    pub receive: u32,
    /// As many as may.
    pub receive_max: u32,
    /// The driver counts queues of both directions together.
    pub combined: bool,
}

/// `struct ethtool_ringparam`: descriptors of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSizes {
    /// Descriptors of the receive ring.
    pub rx: u32,
    /// As many as may be.
    pub rx_max: u32,
    /// Descriptors of the transmit ring.
    pub tx: u32,
    /// As many as may be.
    pub tx_max: u32,
}

/// One interface of the calling thread's network namespace.
pub struct Ethtool {
    socket: OwnedFd,
    name: String,
}

impl Ethtool {
    /// The interface of that name.
    pub fn open(name: &str) -> io::Result<Self> {
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
        Ok(Self { socket, name: name.to_owned() })
    }

    /// The driver's name.
    pub fn driver(&self) -> io::Result<String> {
        let answer = self.ask(GET_DRIVER, 0)?;
        let octets = answer[1..9].iter().flat_map(|word| word.to_ne_bytes()).take_while(|&octet| octet != 0);
        Ok(String::from_utf8_lossy(&octets.collect::<Vec<_>>()).into_owned())
    }

    /// Its queues.
    ///
    /// # Errors
    /// When the driver does not tell.
    pub fn channels(&self) -> io::Result<Channels> {
        let [_, rx_max, _, _, combined_max, rx, _, _, combined, ..] = self.ask(GET_CHANNELS, 0)?;
        Ok(Channels {
            receive: rx + combined,
            receive_max: if combined_max > 0 { combined_max } else { rx_max },
            combined: combined_max > 0,
        })
    }

    /// Its rings.
    ///
    /// # Errors
    /// When the driver does not tell.
    pub fn rings(&self) -> io::Result<RingSizes> {
        let [_, rx_max, _, _, tx_max, rx, _, _, tx, ..] = self.ask(GET_RINGS, 0)?;
        Ok(RingSizes { rx, rx_max, tx, tx_max })
    }

    /// Whether the NIC joins packets of a flow.
    pub fn lro(&self) -> io::Result<bool> {
        Ok(self.ask(GET_FLAGS, 0)?[1] & FLAG_LRO != 0)
    }

    /// Whether the NIC takes VLAN tags off, and tells them beside the frame, where no XDP program sees them.
    pub fn strips_vlans(&self) -> io::Result<bool> {
        Ok(self.ask(GET_FLAGS, 0)?[1] & FLAG_RXVLAN != 0)
    }

    /// Whether the kernel does.
    pub fn gro(&self) -> io::Result<bool> {
        Ok(self.ask(GET_GRO, 0)?[1] != 0)
    }

    /// What the RSS hash of some packets is made of.
    pub fn flow_hash(&self, flow: Flow) -> io::Result<HashFields> {
        let answer = self.ask(GET_FLOW_HASH, flow.number())?;
        let [low, high] = if cfg!(target_endian = "little") { [2, 3] } else { [3, 2] };
        Ok(HashFields(u64::from(answer[high]) << 32 | u64::from(answer[low])))
    }

    /// Asks a question whose second word is `parameter`.
    fn ask(&self, command: u32, parameter: u32) -> io::Result<[u32; WORDS]> {
        let mut answer = [0u32; WORDS];
        answer[0] = command;
        answer[1] = parameter;
        // SAFETY: a C struct of integers and pointers, for which zeros are valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        // One octet stays zero: the end of the name.
        let room = request.ifr_name.len() - 1;
        for (to, from) in request.ifr_name[..room].iter_mut().zip(self.name.bytes()) {
            *to = from.cast_signed();
        }
        request.ifr_ifru.ifru_data = answer.as_mut_ptr().cast();
        // SAFETY: the questions above have answers of at most 196 bytes, for which `answer` has room and is aligned; both
        // outlive the call.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCETHTOOL, &mut request) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
    }
}
