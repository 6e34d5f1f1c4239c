//! Writing captures, with nanoseconds, in the machine's byte order.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::{ETHERNET, PACKET_MAX, PcapError};

/// What is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcapFormat {
    /// pcap, of the kind with nanoseconds.
    Pcap,
    /// pcapng.
    Pcapng,
}

/// Writes a capture. What is written last is in the file once it is flushed or dropped.
#[derive(Debug)]
pub struct PcapWriter {
    path: PathBuf,
    output: BufWriter<File>,
    format: PcapFormat,
    packets: u64,
}

impl PcapWriter {
    /// Makes the file, or empties it: pcapng when its name ends so, else pcap.
    ///
    /// # Errors
    /// [`PcapError`].
    pub fn create(path: &Path) -> Result<Self, PcapError> {
        let is_pcapng = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("pcapng"));
        Self::create_as(path, if is_pcapng { PcapFormat::Pcapng } else { PcapFormat::Pcap })
    }

    /// As [`PcapWriter::create`], in the given format.
    ///
    /// # Errors
    /// [`PcapError`].
    pub fn create_as(path: &Path, format: PcapFormat) -> Result<Self, PcapError> {
        let file = File::create(path).map_err(|source| PcapError::Open { path: path.into(), source })?;
        let output = BufWriter::with_capacity(1 << 20, file);
        let mut writer = Self { path: path.into(), output, format, packets: 0 };
        let header = match format {
            PcapFormat::Pcap => pcap_header(),
            PcapFormat::Pcapng => pcapng_header(),
        };
        let written = writer.output.write_all(&header);
        writer.named(written)?;
        Ok(writer)
    }

    /// Writes one packet of `len` bytes in `parts`; the time is in nanoseconds since 1970.
    ///
    /// # Errors
    /// [`PcapError::Io`]; [`PcapError::Malformed`] for a packet that no reader would believe.
    pub fn write<'p>(
        &mut self,
        time_ns: u64,
        len: usize,
        parts: impl Iterator<Item = &'p [u8]>,
    ) -> Result<(), PcapError> {
        self.packets += 1;
        let Some(len) = u32::try_from(len).ok().filter(|len| *len as usize <= PACKET_MAX) else {
            let reason = format!("{len} bytes are too long for a capture");
            return Err(PcapError::Malformed { path: self.path.clone(), packet: self.packets, reason });
        };
        let written = match self.format {
            PcapFormat::Pcap => self.write_record(time_ns, len, parts),
            PcapFormat::Pcapng => self.write_block(time_ns, len, parts),
        };
        self.named(written)
    }

    /// Hands everything to the system.
    ///
    /// # Errors
    /// [`PcapError::Io`].
    pub fn flush(&mut self) -> Result<(), PcapError> {
        let flushed = self.output.flush();
        self.named(flushed)
    }

    fn write_record<'p>(
        &mut self,
        time_ns: u64,
        len: u32,
        mut parts: impl Iterator<Item = &'p [u8]>,
    ) -> io::Result<()> {
        // 32 bits of seconds suffice until 2106.
        let seconds = u32::try_from(time_ns / 1_000_000_000).unwrap_or(u32::MAX);
        let nanos = u32::try_from(time_ns % 1_000_000_000).unwrap_or(0);
        self.output.write_all(&words(&[seconds, nanos, len, len]))?;
        parts.try_for_each(|part| self.output.write_all(part))
    }

    /// An enhanced packet block.
    #[allow(clippy::cast_possible_truncation)] // The halves of the time stamp.
    fn write_block<'p>(
        &mut self,
        time_ns: u64,
        len: u32,
        mut parts: impl Iterator<Item = &'p [u8]>,
    ) -> io::Result<()> {
        let padded = len.next_multiple_of(4);
        let total = 32 + padded;
        let (high, low) = ((time_ns >> 32) as u32, time_ns as u32);
        self.output.write_all(&words(&[6, total, 0, high, low, len, len]))?;
        parts.try_for_each(|part| self.output.write_all(part))?;
        self.output.write_all(&[0; 3][..(padded - len) as usize])?;
        self.output.write_all(&total.to_ne_bytes())
    }

    fn named(&self, result: io::Result<()>) -> Result<(), PcapError> {
        result.map_err(|source| PcapError::Io { path: self.path.clone(), packet: self.packets, source })
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Magic of nanoseconds, version 2.4, no time zone, longest packet, Ethernet.
fn pcap_header() -> Vec<u8> {
    let version = [2u16, 4].iter().flat_map(|half| half.to_ne_bytes()).collect::<Vec<_>>();
    let longest = u32::try_from(PACKET_MAX).unwrap_or(u32::MAX);
    [words(&[0xa1b2_3c4d]), version, words(&[0, 0, longest, ETHERNET])].concat()
}

/// A section header of version 1.0 and unknown length, and one Ethernet interface with nanoseconds.
fn pcapng_header() -> Vec<u8> {
    let halves = |halves: [u16; 2]| halves.iter().flat_map(|half| half.to_ne_bytes()).collect::<Vec<_>>();
    let section =
        [words(&[0x0a0d_0d0a, 28, 0x1a2b_3c4d]), halves([1, 0]), vec![0xff; 8], words(&[28])].concat();
    // if_tsresol of one byte, padded, then the end of options.
    let options = [halves([9, 1]), vec![9, 0, 0, 0], halves([0, 0])].concat();
    let interface = [words(&[1, 32]), halves([1, 0]), words(&[0]), options, words(&[32])].concat();
    [section, interface].concat()
}
