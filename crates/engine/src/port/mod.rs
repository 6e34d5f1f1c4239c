//! Ports: where packets come from and go to.
//!
//! A [`Port`] value is one queue of one device, owned by one worker. What differs between devices ends
//! here: a function sees frames and port numbers.

mod checksums;
mod datagrams;
mod error;
mod frames;
mod gone;
mod memory;
mod packet;
mod pcap;
mod scatter;
mod tap;
mod tun;
mod vlan;
#[cfg(not(any(loom, shuttle)))]
mod xdp;

pub use checksums::ChecksumPort;
pub use datagrams::DatagramRooms;
pub use error::PortError;
pub use frames::{FramePort, FrameQueue};
pub use gone::GonePort;
pub use memory::{MemoryPort, MemoryWire};
pub use packet::{PacketDrops, PacketPort, UdpEndpoints, UdpSink, hear_own_groups, ignore_interfaces};
pub use pcap::{PcapError, PcapFormat, PcapPacket, PcapPort, PcapReader, PcapWriter};
pub use tap::{TapConfig, TapPort};
pub use tun::{Layer, Tun};
pub use vlan::{UnclaimedFrames, VlanPort, vlan_ports};
#[cfg(not(any(loom, shuttle)))]
pub use xdp::{
    NoKernel, RingOwner, RingPeer, RxPeer, SharedXdp, TakeoverError, TxPeer, XdpOptions, XdpPool, XdpPort,
    XdpSocket, XdpState, ring_port, shared_ring_port,
};

use std::os::fd::BorrowedFd;

use crate::batch::Batch;
use crate::drop_reason::DropReason;
use crate::pool::PoolCache;
use crate::shared::{ClaimedBlock, Shared};

/// A port's number within the node: its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u8);

impl PortId {
    /// The number as an index.
    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// How packets that are not ours reach the kernel: ARP, neighbour discovery, ICMP to our own addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KernelPath {
    /// The kernel sees the device itself: an XDP program passes it what is not ours, or a packet
    /// socket leaves it its own copy.
    Shared,
    /// The kernel sees a TAP device, which is this port; what it writes there goes out on ours.
    Tap(PortId),
    /// There is no kernel: such packets are dropped and counted.
    None,
}

/// One queue of a device.
pub trait Port: Send {
    /// Adds what has arrived to `batch`, up to its capacity.
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch);

    /// Takes frames from the front of `batch` as far as the device has room; what is left in it was
    /// not taken. A frame that the device can never send is released and counted by the return value.
    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize;

    /// Says what the device itself has dropped since the last call, by reason.
    fn losses(&mut self, _report: &mut dyn FnMut(DropReason, u64)) {}

    /// Packets of which the kernel has its own copy and that no function is shown, since the last call.
    fn left_to_kernel(&mut self) -> u64 {
        0
    }

    /// Packets that wait to be received, where the device says.
    fn backlog(&mut self) -> Option<u32> {
        None
    }

    /// Descriptor that is readable when packets wait; `None` for a port that must be polled.
    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Packets that were received for other workers since the last call: this one had work, though it sees none of them.
    fn handoffs(&mut self) -> usize {
        0
    }

    /// Called before the worker sleeps until [`readiness`](Self::readiness): `false` when something waits already that
    /// would not wake it.
    fn may_sleep(&mut self) -> bool {
        true
    }

    /// Whether it has work that no [`readiness`](Self::readiness) tells of: frames that wait for room in the device, or a
    /// device that is short of frames to receive into. Then the worker looks again soon.
    fn needs_poll(&self) -> bool {
        false
    }

    /// What a port has beside others when its queue is shared with other workers.
    fn shared(&self) -> Option<Shared> {
        None
    }

    /// Takes the block that the last `receive` claimed from a shared queue: its worker must finish it.
    fn claimed(&mut self) -> Option<ClaimedBlock> {
        None
    }

    /// Whether the port will never receive again: the end of a file.
    fn is_exhausted(&self) -> bool {
        false
    }
}
