//! Sessions in the cores' tables: keys, values, and the operations of `em_table` (`docs/hardware-table.md`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_wire::{IpProtocol, checksum, gtpu};

use super::registers::{FIRST_V6, address, words};
use super::{Direction, Settings};
use crate::BusError;
use crate::bus::Bus;

/// What a session's rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Forwards.
    Forward = 0,
    /// The FAR drops.
    Drop = 1,
    /// The gate of a QER is closed.
    Closed = 2,
    /// The host applies the rules.
    Host = 3,
}

/// A tunnel from a gNB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uplink {
    /// The own address.
    pub local: IpAddr,
    /// The own TEID.
    pub teid: u32,
    /// What its rule does.
    pub action: Action,
    /// The QoS flow that its rule asks for.
    pub qfi: Option<u8>,
    /// Addresses of the UE.
    pub ue_ipv4: Option<Ipv4Addr>,
    /// A prefix of 64 bits.
    pub ue_ipv6: Option<Ipv6Addr>,
    /// The numbers of the next hops of packets of IPv4 and of IPv6.
    pub next_hops: [u8; 2],
}

/// A UE by its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ue {
    /// Its address.
    Ipv4(Ipv4Addr),
    /// Its prefix of 64 bits.
    Ipv6(Ipv6Addr),
}

/// A tunnel to a gNB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downlink {
    /// Who gets what it carries.
    pub ue: Ue,
    /// What its rule does.
    pub action: Action,
    /// The own address.
    pub local: IpAddr,
    /// The gNB's, of the same family.
    pub peer: IpAddr,
    /// The gNB's TEID.
    pub teid: u32,
    /// The QoS flow that a PDU session container names.
    pub qfi: Option<u8>,
    /// Of the outer header.
    pub dscp: u8,
    /// The source port of UDP follows the flow.
    pub has_entropy: bool,
    /// UDP has a checksum.
    pub has_checksum: bool,
    /// The number of the next hop.
    pub next_hop: u8,
}

/// Why a session is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// Of the other direction.
    #[error("the core does not go that way")]
    Direction,
    /// The own address is none of the core's, or of another family than the peer.
    #[error("{0} is not an address of the core for this peer")]
    Local(IpAddr),
    /// The table has no place for it.
    #[error("the table answers {0}")]
    Table(u32),
    /// The bus.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// Which of the own addresses of its family it is.
fn place_of(settings: &Settings, local: IpAddr) -> Result<u32, SessionError> {
    let of_family = settings.locals.iter().filter(|other| other.is_ipv4() == local.is_ipv4());
    let found = (0u32..).zip(of_family).find(|(_, other)| **other == local);
    found.map(|(place, _)| place).ok_or(SessionError::Local(local))
}

fn prefix_words(prefix: Ipv6Addr) -> [u32; 2] {
    let [high, low, ..] = words(prefix.to_bits());
    [low, high]
}

fn qfi_bits(qfi: Option<u8>) -> u32 {
    qfi.map_or(0, |qfi| 1 << 2 | u32::from(qfi) << 3)
}

impl Uplink {
    /// Key and value, the low words first.
    pub(crate) fn words(&self, settings: &Settings) -> Result<(Vec<u32>, Vec<u32>), SessionError> {
        let place = place_of(settings, self.local)?;
        let endpoint = if self.local.is_ipv4() { place } else { place + FIRST_V6 };
        let [hop_v4, hop_v6] = self.next_hops.map(u32::from);
        let first = self.action as u32
            | qfi_bits(self.qfi)
            | u32::from(self.ue_ipv4.is_some()) << 9
            | u32::from(self.ue_ipv6.is_some()) << 10
            | hop_v4 << 11
            | hop_v6 << 15;
        let [low, high] = self.ue_ipv6.map_or([0; 2], prefix_words);
        let value = vec![first, self.ue_ipv4.map_or(0, Ipv4Addr::to_bits), low, high];
        Ok((vec![self.teid, endpoint], value))
    }
}

impl Ue {
    /// The low word first.
    pub(crate) fn key(self) -> Vec<u32> {
        match self {
            Self::Ipv4(address) => vec![address.to_bits(), 0, 0],
            Self::Ipv6(prefix) => {
                let [low, high] = prefix_words(prefix);
                vec![low, high, 1]
            }
        }
    }
}

impl Downlink {
    /// The value, the low word first.
    pub(crate) fn words(&self, settings: &Settings) -> Result<Vec<u32>, SessionError> {
        let place = place_of(settings, self.local)?;
        let first = self.action as u32
            | qfi_bits(self.qfi)
            | u32::from(self.peer.is_ipv6()) << 9
            | u32::from(self.has_entropy) << 10
            | u32::from(self.has_checksum) << 11
            | u32::from(self.next_hop) << 12
            | place << 16
            | u32::from(self.dscp) << 18;
        let mut value = vec![first, self.teid, u32::from(self.ip_sum()) | u32::from(self.udp_sum()?) << 16];
        value.extend(match self.peer {
            IpAddr::V4(peer) => [peer.to_bits(), 0, 0, 0],
            IpAddr::V6(peer) => {
                let [a, b, c, d] = words(peer.to_bits());
                [d, c, b, a]
            }
        });
        Ok(value)
    }

    /// Of an outer header of IPv4, without its length, its congestion marks and its checksum.
    fn ip_sum(&self) -> u16 {
        match (self.local, self.peer) {
            (IpAddr::V4(local), IpAddr::V4(peer)) => {
                let mut header = vec![0x45, self.dscp << 2, 0, 0, 0, 0, 0x40, 0, 64, IpProtocol::UDP.0, 0, 0];
                header.extend(local.octets());
                header.extend(peer.octets());
                checksum::sum(&header)
            }
            _ => 0,
        }
    }

    /// Of the pseudo-header, UDP's destination port and GTP-U, without lengths and source port.
    fn udp_sum(&self) -> Result<u16, SessionError> {
        let pseudo = match (self.local, self.peer) {
            (IpAddr::V4(local), IpAddr::V4(peer)) => checksum::pseudo_v4(local, peer, IpProtocol::UDP, 0),
            (IpAddr::V6(local), IpAddr::V6(peer)) => checksum::pseudo_v6(local, peer, IpProtocol::UDP, 0),
            (local, _) => return Err(SessionError::Local(local)),
        };
        let mut headers = gtpu::UDP_PORT.to_be_bytes().to_vec();
        headers.extend([if self.qfi.is_some() { 0x34 } else { 0x30 }, 255]);
        headers.extend(self.teid.to_be_bytes());
        if let Some(qfi) = self.qfi {
            headers.extend([0, 0, 0, 0x85, 1, 0, qfi, 0]);
        }
        Ok(checksum::combine(&[pseudo, checksum::sum(&headers)]))
    }
}

/// The registers of `em_table`, from the table's address on.
mod register {
    pub(super) const COMMAND: u32 = 0x10;
    pub(super) const RESULT: u32 = 0x14;
    pub(super) const KEY: u32 = 0x20;
    pub(super) const VALUE: u32 = 0x40;
}

const START: u32 = 0;
const PUT: u32 = 5;
const ROW: u32 = 6;
const RUNNING: u32 = 1 << 31;
const WAYS: u32 = 4;
/// log2 of the buckets of a way.
const BUCKET_BITS: u32 = 6;
/// Reads of a result before an operation is given up: a search takes far less.
const POLLS: usize = 1000;

/// The table of a core.
#[derive(Debug)]
pub(crate) struct Table {
    /// Bits of a key.
    key_bits: u32,
    has_rows: bool,
    pub(crate) is_started: bool,
}

impl Table {
    pub(crate) fn of(direction: Direction) -> Self {
        let key_bits = match direction {
            Direction::Decap => 40,
            Direction::Encap => 72,
        };
        Self { key_bits, has_rows: false, is_started: false }
    }

    /// Adds a key, or changes its value.
    pub(crate) fn put(&mut self, bus: &mut impl Bus, key: &[u32], value: &[u32]) -> Result<(), SessionError> {
        self.start(bus)?;
        for (base, words) in [(register::KEY, key), (register::VALUE, value)] {
            for (at, &word) in (address::TABLE + base..).step_by(4).zip(words) {
                bus.write(at, word)?;
            }
        }
        operate(bus, PUT)
    }

    /// Loads the hash, whose rows outlast a reset, and starts the table.
    fn start(&mut self, bus: &mut impl Bus) -> Result<(), SessionError> {
        if self.is_started {
            return Ok(());
        }
        if !self.has_rows {
            for way in 0..WAYS {
                for (bit, row) in (0u32..).zip(rows(way, self.key_bits)) {
                    bus.write(address::TABLE + register::VALUE, bit << 24 | way << 20 | row)?;
                    operate(bus, ROW)?;
                }
            }
            self.has_rows = true;
        }
        operate(bus, START)?;
        self.is_started = true;
        Ok(())
    }
}

fn operate(bus: &mut impl Bus, command: u32) -> Result<(), SessionError> {
    bus.write(address::TABLE + register::COMMAND, command)?;
    for _ in 0..POLLS {
        let result = bus.read(address::TABLE + register::RESULT)?;
        if result & RUNNING == 0 {
            return if result == 0 { Ok(()) } else { Err(SessionError::Table(result)) };
        }
    }
    Err(BusError::NoAnswer(address::TABLE + register::RESULT).into())
}

/// Rows of a way's hash: a bucket for each bit of the key, of full rank.
fn rows(way: u32, key_bits: u32) -> Vec<u32> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ u64::from(way + 1);
    loop {
        let mut draw = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state >> (64 - BUCKET_BITS)
        };
        #[allow(clippy::cast_possible_truncation)] // Few bits.
        let rows: Vec<_> = (0..key_bits).map(|_| draw() as u32).collect();
        if rank(&rows) == BUCKET_BITS as usize {
            return rows;
        }
    }
}

/// Over GF(2).
fn rank(rows: &[u32]) -> usize {
    let mut basis: Vec<u32> = Vec::new();
    for &row in rows {
        let rest = basis.iter().fold(row, |row, &base| row.min(row ^ base));
        if rest != 0 {
            basis.push(rest);
        }
    }
    basis.len()
}
