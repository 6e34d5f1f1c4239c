//! A port whose packets may come without the checksums of TCP and UDP: from a sender on the same host, who leaves them to a device
//! that is none, as a veth pair is. A kernel that forwards would finish them on the way out. AF_XDP does not say of which packets
//! they are missing, but the field says so itself ([`checksum::unfinished`]).

use std::os::fd::BorrowedFd;

use kaido_wire::{EtherType, checksum, vlan};

use super::Port;
use super::packet::complete_checksum;
use crate::batch::Batch;
use crate::drop_reason::DropReason;
use crate::frame::Frame;
use crate::pool::PoolCache;
use crate::shared::{ClaimedBlock, Shared};

/// Tags before the IP packet, at most.
const TAGS_MAX: u8 = 2;

/// The port, over another one.
pub struct ChecksumPort(Box<dyn Port>);

impl ChecksumPort {
    /// Over a port.
    pub fn new(port: Box<dyn Port>) -> Self {
        Self(port)
    }
}

/// Finishes the checksum of TCP or UDP in a frame, if it is left to be. Of packets in tunnels that of the tunnel is meant.
fn finish(frame: &mut Frame) {
    let Some(at) = ip_at(frame.data()) else { return };
    let Some(len) = frame.packet_len().checked_sub(at) else { return };
    if let Some((start, offset)) = checksum::unfinished(&frame.data()[at..], len) {
        complete_checksum(frame, at + start, offset);
    }
}

/// Where the IP packet begins in a frame.
pub(super) fn ip_at(octets: &[u8]) -> Option<usize> {
    let link = vlan::link(octets).ok()?;
    let is_ip = matches!(link.ethertype, EtherType::IPV4 | EtherType::IPV6);
    (is_ip && link.tag_count <= TAGS_MAX).then_some(link.payload_offset.into())
}

impl Port for ChecksumPort {
    #[inline]
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        let before = batch.len();
        self.0.receive(pool, batch);
        batch[before..].iter_mut().for_each(finish);
    }

    #[inline]
    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        self.0.transmit(pool, batch)
    }

    fn losses(&mut self, report: &mut dyn FnMut(DropReason, u64)) {
        self.0.losses(report);
    }

    fn left_to_kernel(&mut self) -> u64 {
        self.0.left_to_kernel()
    }

    fn backlog(&mut self) -> Option<u32> {
        self.0.backlog()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        self.0.readiness()
    }

    fn handoffs(&mut self) -> usize {
        self.0.handoffs()
    }

    fn may_sleep(&mut self) -> bool {
        self.0.may_sleep()
    }

    fn needs_poll(&self) -> bool {
        self.0.needs_poll()
    }

    fn shared(&self) -> Option<Shared> {
        self.0.shared()
    }

    fn claimed(&mut self) -> Option<ClaimedBlock> {
        self.0.claimed()
    }

    fn is_exhausted(&self) -> bool {
        self.0.is_exhausted()
    }
}

#[cfg(test)]
mod tests {
    use kaido_wire::{IpProtocol, checksum};

    use super::*;
    use crate::pool::FramePool;
    use crate::port::MemoryWire;

    /// A UDP datagram over IPv4 in an Ethernet frame with tags, and a checksum as it is to be at first.
    fn frame(tags: &[u8], payload: usize, sum: impl Fn(u16, &[u8]) -> u16) -> Vec<u8> {
        let upper_len = u16::try_from(8 + payload).unwrap();
        let mut upper = vec![0, 53, 0x80, 0];
        upper.extend(upper_len.to_be_bytes());
        upper.extend([0, 0]);
        upper.extend((0..payload).map(|octet| octet.to_le_bytes()[0]));
        let (src, dst) = ([192, 0, 2, 1].into(), [10, 60, 0, 1].into());
        let pseudo = checksum::pseudo_v4(src, dst, IpProtocol::UDP, upper_len);
        let sum = sum(pseudo, &upper);
        upper[6..8].copy_from_slice(&sum.to_be_bytes());
        let mut frame = vec![2; 12];
        frame.extend(tags);
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + upper_len).to_be_bytes());
        frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend(src.octets());
        frame.extend(dst.octets());
        frame.extend(upper);
        frame
    }

    fn finished(pseudo: u16, upper: &[u8]) -> u16 {
        checksum::udp_sent(!checksum::combine(&[pseudo, checksum::sum(upper)]))
    }

    #[test]
    fn what_is_left_is_finished_and_nothing_else_is_touched() {
        let pool = FramePool::leak(64).unwrap();
        let mut cache = pool.cache();
        let wire = MemoryWire::new();
        let mut port = ChecksumPort::new(Box::new(wire.port()));
        let unfinished = |pseudo, _: &[u8]| pseudo;
        // The last is longer than a frame of the pool: a chain.
        for payload in [0, 1, 40, 1400, 6000] {
            for tags in [&[][..], &[0x81, 0, 0, 5], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 7]] {
                let expected = frame(tags, payload, finished);
                assert!(wire.send(frame(tags, payload, unfinished)) && wire.send(expected.clone()));
                let wrong = frame(tags, payload, |pseudo, upper| finished(pseudo, upper) ^ 0x100);
                assert!(wire.send(wrong.clone()));
                let mut batch = Batch::new();
                port.receive(&mut cache, &mut batch);
                let got: Vec<Vec<u8>> = batch.drain(..).map(|frame| frame.to_vec()).collect();
                assert_eq!(got, [expected.clone(), expected, wrong], "{payload} {tags:?}");
            }
        }
        for other in [vec![], vec![2; 13], vec![2; 60], frame(&[0x81, 0, 0, 1].repeat(3), 9, unfinished)] {
            assert!(wire.send(other.clone()));
            let mut batch = Batch::new();
            port.receive(&mut cache, &mut batch);
            assert_eq!(batch.pop().unwrap().to_vec(), other);
        }
    }
}
