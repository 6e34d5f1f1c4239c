//! A port of files: what one capture holds comes in, what is sent goes into another. For the packet vectors,
//! for traces of the field, and for runs without any device.
//!
//! Reads pcap and pcapng, writes either with nanoseconds.

mod reader;
mod writer;

pub use reader::{PcapPacket, PcapReader};
pub use writer::{PcapFormat, PcapWriter};

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use super::Port;
use crate::batch::Batch;
use crate::frame::Frame;
use crate::pool::PoolCache;

/// Longest packet of a capture that is believed: libpcap's `MAXIMUM_SNAPLEN`.
const PACKET_MAX: usize = 262_144;

/// The only link type there is here (`LINKTYPE_ETHERNET`).
const ETHERNET: u32 = 1;

/// A capture file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PcapError {
    /// The file could not be opened.
    #[error("{path}: {source}", path = path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Reading or writing failed.
    #[error("{path}: packet {packet}: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Number of the packet, from one; zero for the file's own header.
        packet: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The file ends within a packet or header.
    #[error("{path}: packet {packet}: the file ends before it does", path = path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Number of the packet, from one; zero for the file's own header.
        packet: u64,
    },
    /// The file contradicts itself or the format.
    #[error("{path}: packet {packet}: {reason}", path = path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Number of the packet, from one; zero for the file's own header.
        packet: u64,
        /// What is wrong.
        reason: String,
    },
}

/// The port.
#[derive(Debug)]
pub struct PcapPort {
    input: Option<PcapReader>,
    /// A packet that was read while the pool was empty.
    waiting: Option<PcapPacket>,
    output: Option<PcapWriter>,
    failure: Arc<OnceLock<PcapError>>,
}

impl PcapPort {
    /// Opens the files. Without input nothing ever comes; without output, what is sent is thrown away.
    ///
    /// # Errors
    /// [`PcapError`] when a file cannot be opened, or the input is no capture of Ethernet.
    pub fn open(input: Option<&Path>, output: Option<&Path>) -> Result<Self, PcapError> {
        Ok(Self {
            input: input.map(PcapReader::open).transpose()?,
            waiting: None,
            output: output.map(PcapWriter::create).transpose()?,
            failure: Arc::default(),
        })
    }

    /// Where to look for what went wrong underway, also after the port is a worker's: the input ended there, or
    /// packets could not be written.
    pub fn failure(&self) -> Arc<OnceLock<PcapError>> {
        self.failure.clone()
    }

    fn next(&mut self) -> Option<PcapPacket> {
        if let Some(packet) = self.waiting.take() {
            return Some(packet);
        }
        match self.input.as_mut()?.read() {
            Ok(Some(packet)) => return Some(packet),
            Ok(None) => {}
            Err(error) => fail(&self.failure, error),
        }
        self.input = None;
        None
    }
}

impl Port for PcapPort {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        while !batch.is_full() {
            let Some(packet) = self.next() else { return };
            match Frame::from_slice(&packet.bytes, || pool.allocate()) {
                Some(frame) => batch.push(frame),
                None => {
                    self.waiting = Some(packet);
                    return;
                }
            }
        }
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let now_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_nanos());
        let time_ns = u64::try_from(now_ns).unwrap_or(u64::MAX);
        let mut failed = 0;
        for frame in batch.drain(..) {
            if let Some(output) = &mut self.output
                && let Err(error) = output.write(time_ns, frame.packet_len(), frame.segments())
            {
                fail(&self.failure, error);
                failed += 1;
            }
            pool.release(frame);
        }
        failed
    }

    /// A port without input counts as exhausted: it does not keep a run from ending.
    fn is_exhausted(&self) -> bool {
        self.input.is_none() && self.waiting.is_none()
    }
}

impl Drop for PcapPort {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.output.as_mut().map(PcapWriter::flush) {
            fail(&self.failure, error);
        }
    }
}

#[cold]
fn fail(failure: &OnceLock<PcapError>, error: PcapError) {
    // The first one tells; the rest follow from it.
    if failure.get().is_none() {
        tracing::error!(%error, "a capture file failed");
        let _ = failure.set(error);
    }
}
