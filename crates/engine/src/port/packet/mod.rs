//! An AF_PACKET port, for where AF_XDP is not to be had. The kernel sees every packet too, and has its own
//! opinion of it: a [`UdpSink`] keeps it from refusing the user plane's.
//!
//! The kernel hands packets over as its own stack would see them. This port makes frames of them as they
//! would be on a wire: the VLAN tag that was taken off is put back, and a checksum that a local sender left
//! to its device is completed. It cannot undo coalescing. A packet longer than the MTU (TCP from a local
//! sender with segmentation offload, or GRO) is dropped and counted. Switch `tso`, `gso` and `gro` off with
//! `ethtool -K` on such links.
//!
//! Source: `packet(7)`, kernel `include/uapi/linux/if_packet.h` and `virtio_net.h`.

mod endpoints;
mod group;
mod offload;
mod sink;
mod socket;

pub use endpoints::{UdpEndpoints, ignore_interfaces};
pub use group::hear_own_groups;
pub use sink::UdpSink;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::scatter::Scatter;
use super::{Port, PortError};
use crate::batch::{BATCH_MAX, Batch};
use crate::drop_reason::DropReason;
use crate::pool::{LINK_HEADER, PoolCache};
use offload::VnetHeaderInfo;
pub(super) use offload::complete_checksum;
use socket::{PacketSocket, SendProgress};

/// What a port has thrown away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketDrops {
    /// Longer than the MTU: coalesced by the kernel, which a wire cannot carry.
    pub too_long: u64,
    /// With an unfinished checksum in a place that makes no sense.
    pub malformed: u64,
}

/// The port.
#[derive(Debug)]
pub struct PacketPort {
    socket: PacketSocket,
    ifindex: u32,
    /// One for each packet of a batch.
    rooms: Vec<Scatter>,
    mtu: usize,
    drops: PacketDrops,
    /// What of it was said.
    reported: PacketDrops,
}

impl PacketPort {
    /// Opens a port on an interface of the calling thread's namespace with an MTU of `mtu` bytes.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn open(ifindex: u32, mtu: usize) -> Result<Self, PortError> {
        Ok(Self::over(PacketSocket::open(ifindex)?, ifindex, mtu))
    }

    /// Takes over the socket of another's [`descriptor`](PacketPort::descriptor) on the same interface, with what waits in it and
    /// what it was told to receive.
    ///
    /// # Errors
    /// [`PortError`] when it is none of the interface.
    pub fn adopt(fd: OwnedFd, ifindex: u32, mtu: usize) -> Result<Self, PortError> {
        Ok(Self::over(PacketSocket::adopt(fd, ifindex)?, ifindex, mtu))
    }

    fn over(socket: PacketSocket, ifindex: u32, mtu: usize) -> Self {
        let rooms = (0..BATCH_MAX).map(|_| Scatter::new(mtu + LINK_HEADER)).collect();
        let (drops, reported) = (PacketDrops::default(), PacketDrops::default());
        Self { socket, ifindex, rooms, mtu, drops, reported }
    }

    /// By what the socket lives on.
    pub fn descriptor(&self) -> &Arc<OwnedFd> {
        self.socket.descriptor()
    }

    /// Has the interface hand over frames to every Ethernet address, not only to its own: for a port of a bridge.
    ///
    /// # Errors
    /// [`PortError`].
    pub fn receive_all(&self) -> Result<(), PortError> {
        self.socket.receive_all(self.ifindex)
    }

    /// What it has thrown away.
    pub fn drops(&self) -> PacketDrops {
        self.drops
    }

    fn is_too_long(&self, arrival: &VnetHeaderInfo) -> bool {
        arrival.is_coalesced() || arrival.truncated || arrival.len > self.mtu + LINK_HEADER
    }

    #[cold]
    fn count_too_long(&mut self, len: usize) {
        if self.drops.too_long == 0 {
            tracing::warn!(
                len,
                mtu = self.mtu,
                "the kernel coalesces packets beyond the MTU; they are dropped: switch tso, gso and gro off"
            );
        }
        self.drops.too_long += 1;
    }
}

impl Port for PacketPort {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        while !batch.is_full() {
            let wanted = batch.remaining_capacity();
            let ready =
                self.rooms[..wanted].iter_mut().map_while(|room| room.refill(pool).then_some(())).count();
            let (arrivals, wanted) = self.socket.receive(&mut self.rooms[..ready]);
            for (index, arrival) in arrivals.iter().enumerate() {
                if self.is_too_long(arrival) {
                    self.count_too_long(arrival.len);
                    continue;
                }
                let Some(mut frame) = self.rooms[index].take(arrival.len) else { continue };
                if arrival.apply(&mut frame) {
                    batch.push(frame);
                } else {
                    self.drops.malformed += 1;
                    pool.release(frame);
                }
            }
            if arrivals.len() < wanted || wanted == 0 {
                return;
            }
        }
    }

    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        let mut failed = 0;
        while !batch.is_empty() {
            match self.socket.send(batch) {
                SendProgress::Packets(sent) => batch.drain(..sent).for_each(|frame| pool.release(frame)),
                SendProgress::FirstFails => {
                    batch.drain(..1).for_each(|frame| pool.release(frame));
                    failed += 1;
                }
                SendProgress::Full => break,
            }
        }
        failed
    }

    fn losses(&mut self, report: &mut dyn FnMut(DropReason, u64)) {
        let before = std::mem::replace(&mut self.reported, self.drops);
        for (reason, now, before) in [
            (DropReason::RX_TOO_LONG, self.drops.too_long, before.too_long),
            (DropReason::IP_MALFORMED, self.drops.malformed, before.malformed),
        ] {
            if now > before {
                report(reason, now - before);
            }
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
}
