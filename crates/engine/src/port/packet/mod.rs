//! An AF_PACKET port, for where AF_XDP is not to be had. The kernel sees every packet too, and has its own
//! opinion of it: a [`UdpSink`] keeps it from refusing the user plane's.
//!
//! The kernel hands packets over as its own stack would see them. This port makes frames of them as they
//! would be on a wire: the VLAN tag that was taken off is put back, and a checksum that a local sender left
//! to its device is completed. A packet that stands for several (TCP or UDP from a local sender with segmentation
//! offload, or GRO) is cut into those. What cannot be is dropped and counted.
//!
//! Source: `packet(7)`, kernel `include/uapi/linux/if_packet.h` and `virtio_net.h`.

mod endpoints;
mod group;
mod offload;
mod segments;
mod sink;
mod socket;

pub use endpoints::{UdpEndpoints, ignore_interfaces};
pub use group::hear_own_groups;
pub use sink::UdpSink;

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::scatter::Scatter;
use super::{Port, PortError};
use crate::batch::{BATCH_MAX, Batch};
use crate::drop_reason::DropReason;
use crate::frame::Frame;
use crate::pool::{LINK_HEADER, PoolCache};
use offload::VnetHeaderInfo;
pub(super) use offload::complete_checksum;
use segments::JoinedPacket;
use socket::{PacketSocket, SendProgress};

/// Octets that a packet that stands for several may have: a length of 16 bits, and headers of the link.
const JOINED_MAX: usize = 65_535 + LINK_HEADER;

/// What a port has thrown away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketDrops {
    /// Longer than the MTU, or made of several in a way that is not undone here: a wire cannot carry them.
    pub too_long: u64,
    /// Of packets that were made of several: those for which there was no frame.
    pub no_frame: u64,
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
    /// For what of each has no room there: packets that stand for several.
    rests: Vec<u8>,
    /// Packets that were cut out of others, and are yet to be received.
    cut: VecDeque<Frame>,
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
        let (rests, cut) = (vec![0; BATCH_MAX * JOINED_MAX], VecDeque::new());
        Self { socket, ifindex, rooms, rests, cut, mtu, drops, reported }
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

    /// Receives a packet that stands for several, in the room of that number.
    #[cold]
    fn cut(&mut self, (index, arrival): (usize, &VnetHeaderInfo), pool: &mut PoolCache) {
        let room = &self.rooms[index];
        let mut whole = Vec::with_capacity(arrival.len);
        room.copy(arrival.len, &mut whole);
        let rest = arrival.len - whole.len();
        whole.extend_from_slice(&self.rests[index * JOINED_MAX..][..rest]);
        let Some(joined) = JoinedPacket::read(&arrival.vnet, &whole) else {
            return self.count_too_long(arrival.len);
        };
        for packet in joined.packets() {
            if packet.len() > self.mtu + LINK_HEADER {
                self.count_too_long(packet.len());
                continue;
            }
            let Some(mut frame) = Frame::from_slice(&packet, || pool.allocate()) else {
                self.drops.no_frame += 1;
                continue;
            };
            if arrival.put_tag(&mut frame) {
                self.cut.push_back(frame);
            } else {
                self.drops.malformed += 1;
                pool.release(frame);
            }
        }
    }

    #[cold]
    fn count_too_long(&mut self, len: usize) {
        if self.drops.too_long == 0 {
            tracing::warn!(
                len,
                mtu = self.mtu,
                "a packet is longer than the MTU; such packets are dropped: where the kernel joins them, switch tso, gso and gro off"
            );
        }
        self.drops.too_long += 1;
    }

    /// Adds packets that were cut out of others, as far as there is room.
    fn push_cut(&mut self, batch: &mut Batch) {
        let room = batch.remaining_capacity().min(self.cut.len());
        batch.extend(self.cut.drain(..room));
    }
}

impl Port for PacketPort {
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        self.push_cut(batch);
        while !batch.is_full() {
            let wanted = batch.remaining_capacity();
            let ready =
                self.rooms[..wanted].iter_mut().map_while(|room| room.refill(pool).then_some(())).count();
            let rests = self.rests.chunks_mut(JOINED_MAX);
            let (arrivals, wanted) = self.socket.receive(&mut self.rooms[..ready], rests);
            for (index, arrival) in arrivals.iter().enumerate() {
                if arrival.truncated || !arrival.is_coalesced() && arrival.len > self.mtu + LINK_HEADER {
                    self.count_too_long(arrival.len);
                    continue;
                }
                if arrival.is_coalesced() {
                    self.cut((index, arrival), pool);
                    continue;
                }
                let Some(mut frame) = self.rooms[index].take(arrival.len) else { continue };
                if !arrival.apply(&mut frame) {
                    self.drops.malformed += 1;
                    pool.release(frame);
                } else if self.cut.is_empty() {
                    batch.push(frame);
                } else {
                    // Behind those that came before it.
                    self.cut.push_back(frame);
                }
            }
            self.push_cut(batch);
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
            (DropReason::RX_NO_FRAME, self.drops.no_frame, before.no_frame),
        ] {
            if now > before {
                report(reason, now - before);
            }
        }
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn may_sleep(&mut self) -> bool {
        self.cut.is_empty()
    }
}
