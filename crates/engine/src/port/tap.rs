//! A TAP device as a port: the kernel at the far end of a wire, for what is not the user plane's.

use std::fs::File;
use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use arrayvec::ArrayVec;

use super::scatter::Scatter;
use super::tun::{Layer, Tun};
use super::{Port, PortError};
use crate::batch::Batch;
use crate::pool::{LINK_HEADER, PoolCache};

/// Most segments of a packet: 64 KiB in the smallest frames, and some to spare for segments that are not full.
const SEGMENTS_MAX: usize = 48;

/// How the device is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TapConfig {
    /// Its name.
    pub name: String,
    /// The Ethernet address that the kernel has on it; `None` lets the kernel choose.
    pub mac: Option<[u8; 6]>,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Addresses that the kernel has on it, with prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Whether the kernel asks for Ethernet addresses on it. Without, everything behind it has the device's
    /// own, and nobody need answer.
    pub arp: bool,
}

/// The port. What it transmits the kernel receives on the device.
#[derive(Debug)]
pub struct TapPort {
    tun: Tun,
    room: Scatter,
}

impl TapPort {
    /// Makes the device, sets it up and brings it up, in the namespace of the calling thread.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn create(config: &TapConfig) -> Result<Self, PortError> {
        let tun = Tun::create(&config.name, Layer::Ethernet)?;
        tun.set_mtu(config.mtu)?;
        if let Some(mac) = config.mac {
            tun.set_mac(mac)?;
        }
        for &(address, prefix_len) in &config.addresses {
            tun.add_address(address, prefix_len)?;
        }
        if !config.arp {
            tun.set_no_arp()?;
        }
        tun.set_up()?;
        let room = Scatter::new(config.mtu as usize + LINK_HEADER);
        Ok(Self { tun, room })
    }

    /// Takes over the device of another's [`descriptor`](Tun::descriptor), which is made as `config` says. Nothing about it changes;
    /// packets that wait in it are received here.
    ///
    /// # Errors
    /// [`PortError`] when it is none, or its device is gone.
    pub fn adopt(file: File, config: &TapConfig) -> Result<Self, PortError> {
        Ok(Self { tun: Tun::adopt(file)?, room: Scatter::new(config.mtu as usize + LINK_HEADER) })
    }

    /// The device.
    pub fn device(&self) -> &Tun {
        &self.tun
    }
}

impl Port for TapPort {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        while !batch.is_full() && self.room.refill(pool) {
            let mut buffers: ArrayVec<IoSliceMut<'_>, SEGMENTS_MAX> =
                self.room.buffers().take(SEGMENTS_MAX).collect();
            let read = self.tun.read_vectored(&mut buffers);
            drop(buffers);
            match read {
                Ok(len) => batch.extend(self.room.take(len)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Nothing there; or the device is down or gone, and nothing will be.
                Err(_) => return,
            }
        }
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let (mut done, mut failed) = (0, 0);
        for frame in batch.iter() {
            let buffers: ArrayVec<IoSlice<'_>, SEGMENTS_MAX> =
                frame.segments().take(SEGMENTS_MAX).map(IoSlice::new).collect();
            let len: usize = buffers.iter().map(|buffer| buffer.len()).sum();
            if len == 0 || len < frame.packet_len() {
                failed += 1;
            } else if let Err(error) = self.tun.write_vectored(&buffers) {
                if is_full(&error) {
                    break;
                }
                failed += 1;
            }
            done += 1;
        }
        batch.drain(..done).for_each(|frame| pool.release(frame));
        failed
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.tun.as_fd())
    }
}

fn is_full(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock || error.raw_os_error() == Some(libc::ENOBUFS)
}
