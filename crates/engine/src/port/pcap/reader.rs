//! Reading captures: pcap (draft-ietf-opsawg-pcap) and pcapng (draft-ietf-opsawg-pcapng), of either byte order.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use super::{ETHERNET, PACKET_MAX, PcapError};

/// Block types of pcapng.
const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// `if_tsresol` of an interface block.
const OPTION_RESOLUTION: u16 = 9;

/// Longest block of pcapng that is believed: a packet and some options.
const BLOCK_MAX: usize = PACKET_MAX + 65536;

/// A packet of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PcapPacket {
    /// When it was captured, in nanoseconds since 1970; zero where the capture does not say.
    pub time_ns: u64,
    /// Its bytes, as many as were captured.
    pub bytes: Vec<u8>,
}

/// Reads a capture packet by packet.
#[derive(Debug)]
pub struct PcapReader {
    path: PathBuf,
    input: BufReader<File>,
    /// Packets read so far.
    packets: u64,
    /// Whether the file is of the other byte order.
    swapped: bool,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// Nanoseconds of a time stamp's fraction unit.
    Pcap { unit_ns: u64 },
    /// The section's interfaces.
    Pcapng { interfaces: Vec<Interface> },
}

#[derive(Clone, Copy, Debug)]
struct Interface {
    link_type: u16,
    snap_len: u32,
    /// Time stamps per second.
    resolution: u64,
}

impl PcapReader {
    /// Opens a capture and reads its header.
    ///
    /// # Errors
    /// [`PcapError`].
    pub fn open(path: &Path) -> Result<Self, PcapError> {
        let file = File::open(path).map_err(|source| PcapError::Open { path: path.into(), source })?;
        let mut reader = Self {
            path: path.into(),
            input: BufReader::with_capacity(1 << 20, file),
            packets: 0,
            swapped: false,
            kind: Kind::Pcapng { interfaces: Vec::new() },
        };
        let magic: [u8; 4] = reader.array()?;
        let (swapped, unit_ns) = match u32::from_le_bytes(magic) {
            0xa1b2_c3d4 => (cfg!(target_endian = "big"), 1000),
            0xd4c3_b2a1 => (cfg!(target_endian = "little"), 1000),
            0xa1b2_3c4d => (cfg!(target_endian = "big"), 1),
            0x4d3c_b2a1 => (cfg!(target_endian = "little"), 1),
            SECTION_HEADER => {
                reader.section()?;
                return Ok(reader);
            }
            _ => return Err(reader.malformed("neither pcap nor pcapng")),
        };
        reader.swapped = swapped;
        let header: [u8; 20] = reader.array()?;
        if reader.u16_at(&header, 0) != Some(2) {
            return Err(reader.malformed("not version 2 of pcap"));
        }
        // The upper bits may tell of frame check sequences.
        let link_type = reader.u32_at(&header, 16).unwrap_or(0) & 0x0fff_ffff;
        reader.check_link_type(link_type)?;
        reader.kind = Kind::Pcap { unit_ns };
        Ok(reader)
    }

    /// Packets read so far.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// The next packet; `None` at the end.
    ///
    /// # Errors
    /// [`PcapError`], with the number of the packet. What follows it cannot be read.
    pub fn read(&mut self) -> Result<Option<PcapPacket>, PcapError> {
        let packet = match self.kind {
            Kind::Pcap { unit_ns } => self.read_record(unit_ns),
            Kind::Pcapng { .. } => self.read_blocks(),
        }?;
        self.packets += u64::from(packet.is_some());
        Ok(packet)
    }

    fn read_record(&mut self, unit_ns: u64) -> Result<Option<PcapPacket>, PcapError> {
        let mut header = [0; 16];
        if !self.fill_or_end(&mut header)? {
            return Ok(None);
        }
        let field = |at| self.u32_at(&header, at).unwrap_or(0);
        let (seconds, fraction, len) = (field(0), field(4), field(8) as usize);
        if len > PACKET_MAX {
            return Err(self.malformed(format!("a length of {len} bytes, beyond the {PACKET_MAX} possible")));
        }
        let bytes = self.bytes(len)?;
        let time_ns = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit_ns;
        Ok(Some(PcapPacket { time_ns, bytes }))
    }

    /// Reads blocks up to the next packet.
    fn read_blocks(&mut self) -> Result<Option<PcapPacket>, PcapError> {
        loop {
            let mut kind = [0; 4];
            if !self.fill_or_end(&mut kind)? {
                return Ok(None);
            }
            // A palindrome: it reads the same in both byte orders.
            if u32::from_le_bytes(kind) == SECTION_HEADER {
                self.section()?;
                continue;
            }
            let len = self.array::<4>()?;
            let body = self.block_body(self.u32_at(&len, 0).unwrap_or(0), 8)?;
            match self.u32_at(&kind, 0) {
                Some(INTERFACE) => self.interface(&body)?,
                Some(ENHANCED_PACKET) => return self.enhanced_packet(&body).map(Some),
                Some(SIMPLE_PACKET) => return self.simple_packet(&body).map(Some),
                // Statistics, names, secrets, and what is yet to be invented.
                _ => {}
            }
        }
    }

    /// Reads a section header block behind its type.
    fn section(&mut self) -> Result<(), PcapError> {
        let start: [u8; 8] = self.array()?;
        self.swapped = match u32::from_ne_bytes([start[4], start[5], start[6], start[7]]) {
            0x1a2b_3c4d => false,
            0x4d3c_2b1a => true,
            _ => return Err(self.malformed("a section header without byte order")),
        };
        let body = self.block_body(self.u32_at(&start, 0).unwrap_or(0), 12)?;
        if self.u16_at(&body, 0) != Some(1) {
            return Err(self.malformed("not version 1 of pcapng"));
        }
        self.kind = Kind::Pcapng { interfaces: Vec::new() };
        Ok(())
    }

    /// The rest of a block of `len` bytes of which `read` are read, without the length at its end.
    fn block_body(&mut self, len: u32, read: usize) -> Result<Vec<u8>, PcapError> {
        let len = len as usize;
        if !len.is_multiple_of(4) || len < read + 4 || len > BLOCK_MAX {
            return Err(self.malformed(format!("a block of {len} bytes")));
        }
        let mut body = self.bytes(len - read)?;
        let again = self.u32_at(&body, body.len() - 4);
        if again.map(|again| again as usize) != Some(len) {
            return Err(self.malformed("a block whose two lengths differ"));
        }
        body.truncate(body.len() - 4);
        Ok(body)
    }

    fn interface(&mut self, body: &[u8]) -> Result<(), PcapError> {
        let (Some(link_type), Some(snap_len)) = (self.u16_at(body, 0), self.u32_at(body, 4)) else {
            return Err(self.malformed("an interface block cut short"));
        };
        let resolution = self
            .option(body.get(8..).unwrap_or_default(), OPTION_RESOLUTION)
            .and_then(|value| value.first())
            .map_or(Some(1_000_000), |&power| match power {
                0..=19 => Some(10u64.pow(power.into())),
                128..=190 => Some(1 << (power & 0x7f)),
                _ => None,
            });
        let Some(resolution) = resolution else {
            return Err(self.malformed("an interface block with a time resolution out of range"));
        };
        if let Kind::Pcapng { interfaces } = &mut self.kind {
            interfaces.push(Interface { link_type, snap_len, resolution });
        }
        Ok(())
    }

    /// The value of the first option of a kind.
    fn option<'b>(&self, mut options: &'b [u8], wanted: u16) -> Option<&'b [u8]> {
        loop {
            let kind = self.u16_at(options, 0).filter(|kind| *kind != 0)?;
            let len = usize::from(self.u16_at(options, 2)?);
            let value = options.get(4..4 + len)?;
            if kind == wanted {
                return Some(value);
            }
            options = options.get(4 + len.next_multiple_of(4)..)?;
        }
    }

    fn find_interface(&self, number: u32) -> Result<Interface, PcapError> {
        let Kind::Pcapng { interfaces } = &self.kind else { return Err(self.malformed("no section")) };
        let Some(interface) = interfaces.get(number as usize) else {
            return Err(self.malformed(format!("interface {number}, which the file does not describe")));
        };
        self.check_link_type(interface.link_type.into())?;
        Ok(*interface)
    }

    fn enhanced_packet(&self, body: &[u8]) -> Result<PcapPacket, PcapError> {
        let field = |at| self.u32_at(body, at).ok_or_else(|| self.malformed("a packet block cut short"));
        let interface = self.find_interface(field(0)?)?;
        let stamp = u64::from(field(4)?) << 32 | u64::from(field(8)?);
        let len = field(12)? as usize;
        let time_ns = u128::from(stamp) * 1_000_000_000 / u128::from(interface.resolution);
        self.packet(body, 20, len, u64::try_from(time_ns).unwrap_or(u64::MAX))
    }

    fn simple_packet(&self, body: &[u8]) -> Result<PcapPacket, PcapError> {
        let interface = self.find_interface(0)?;
        let len = self.u32_at(body, 0).ok_or_else(|| self.malformed("a packet block cut short"))?;
        let len = if interface.snap_len == 0 { len } else { len.min(interface.snap_len) };
        self.packet(body, 4, len as usize, 0)
    }

    fn packet(&self, body: &[u8], at: usize, len: usize, time_ns: u64) -> Result<PcapPacket, PcapError> {
        let bytes = body.get(at..).and_then(|rest| rest.get(..len)).filter(|_| len <= PACKET_MAX);
        match bytes {
            Some(bytes) => Ok(PcapPacket { time_ns, bytes: bytes.to_vec() }),
            None => Err(self.malformed(format!("a length of {len} bytes, beyond its block"))),
        }
    }

    fn check_link_type(&self, link_type: u32) -> Result<(), PcapError> {
        if link_type == ETHERNET {
            return Ok(());
        }
        Err(self.malformed(format!("link type {link_type}; only Ethernet (1) can be replayed")))
    }

    /// Fills `buffer`; false when the file ended before its first byte.
    fn fill_or_end(&mut self, buffer: &mut [u8]) -> Result<bool, PcapError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(self.truncated()),
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(self.io(source)),
            }
        }
        Ok(true)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], PcapError> {
        let mut bytes = [0; N];
        if self.fill_or_end(&mut bytes)? { Ok(bytes) } else { Err(self.truncated()) }
    }

    fn bytes(&mut self, len: usize) -> Result<Vec<u8>, PcapError> {
        let mut bytes = vec![0; len];
        if len == 0 || self.fill_or_end(&mut bytes)? { Ok(bytes) } else { Err(self.truncated()) }
    }

    fn u16_at(&self, bytes: &[u8], at: usize) -> Option<u16> {
        let value = u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?);
        Some(if self.swapped { value.swap_bytes() } else { value })
    }

    fn u32_at(&self, bytes: &[u8], at: usize) -> Option<u32> {
        let value = u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
        Some(if self.swapped { value.swap_bytes() } else { value })
    }

    /// The packet being read; zero while the header is.
    fn number(&self) -> u64 {
        match &self.kind {
            Kind::Pcapng { interfaces } if interfaces.is_empty() && self.packets == 0 => 0,
            _ => self.packets + 1,
        }
    }

    #[cold]
    fn truncated(&self) -> PcapError {
        PcapError::Truncated { path: self.path.clone(), packet: self.number() }
    }

    #[cold]
    fn io(&self, source: io::Error) -> PcapError {
        PcapError::Io { path: self.path.clone(), packet: self.number(), source }
    }

    #[cold]
    fn malformed(&self, reason: impl Into<String>) -> PcapError {
        PcapError::Malformed { path: self.path.clone(), packet: self.number(), reason: reason.into() }
    }
}
