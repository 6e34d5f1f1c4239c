//! The AF_XDP port without a kernel: its rings lie in memory, and a peer in this process plays the kernel. For benches and tests: the
//! port is the one that sockets have, with all that it keeps of frames.

use std::os::fd::BorrowedFd;

use kaido_xsk::ring::{Consumer, Producer};
use kaido_xsk::{Desc, Error, PeerRings, RingMapping, RxRing, Statistics};

use super::in_flight::InFlightFrames;
use super::umem_rings::UmemRings;
use super::{RingOwner, SharedXdp, XdpOptions, XdpPort};
use crate::pool::FramePool;

/// Bytes that the kernel leaves free before a received packet (`XDP_PACKET_HEADROOM`).
const KERNEL_HEADROOM: usize = 256;

/// Descriptors and chunks that go through a ring in one go.
const BLOCK: usize = 64;

/// Nobody: the peer looks at the rings when it is called, as a driver does that polls them.
#[derive(Debug)]
pub struct NoKernel;

impl RingOwner for NoKernel {
    fn wake_rx(&self) {}

    fn wake_tx(&self) {}

    fn statistics(&self) -> Option<Statistics> {
        None
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// The far end of a port over rings in memory.
#[derive(Debug)]
pub struct RingPeer {
    /// Where packets are delivered.
    pub rx: RxPeer,
    /// Where packets come that the port sends.
    pub tx: TxPeer,
}

/// The far end of a fill and an RX ring.
#[derive(Debug)]
pub struct RxPeer {
    memory: PeerMemory,
    fill: Consumer<u64, RingMapping<u64>>,
    rx: Producer<Desc, RingMapping<Desc>>,
}

/// The far end of a TX and a completion ring.
#[derive(Debug)]
pub struct TxPeer {
    memory: PeerMemory,
    tx: Consumer<Desc, RingMapping<Desc>>,
    completion: Producer<u64, RingMapping<u64>>,
}

/// A port over rings of the sizes that `options` name, and who is at their other end; packets are not chains. Frames to receive into
/// are supplied by the first `receive`.
///
/// # Errors
/// [`Error::RingSize`]; [`Error::Sys`] when there is no memory.
pub fn ring_port(
    pool: &'static FramePool,
    options: &XdpOptions,
) -> Result<(XdpPort<NoKernel>, RingPeer), Error> {
    let (rx, rings, peer) = in_memory(pool, options)?;
    Ok((XdpPort { socket: NoKernel, rx, rings, partial: None, busy_poll: false }, peer))
}

/// As [`ring_port`], of a queue that workers share.
///
/// # Errors
/// As [`ring_port`].
pub fn shared_ring_port(
    pool: &'static FramePool,
    options: &XdpOptions,
) -> Result<(SharedXdp<NoKernel>, RingPeer), Error> {
    let (rx, rings, peer) = in_memory(pool, options)?;
    Ok((SharedXdp::over(NoKernel, rx, rings, false), peer))
}

fn in_memory(pool: &'static FramePool, options: &XdpOptions) -> Result<(RxRing, UmemRings, RingPeer), Error> {
    let XdpOptions { fill, completion, rx, tx, .. } = *options;
    let (rings, peer) = PeerRings::pair(fill, completion, rx, tx)?;
    let (rx, rings) = UmemRings::of(rings, InFlightFrames::new(pool), 1);
    let PeerRings { fill, completion, rx: packets, tx } = peer;
    let peer = RingPeer {
        rx: RxPeer { memory: PeerMemory(pool), fill, rx: packets },
        tx: TxPeer { memory: PeerMemory(pool), tx, completion },
    };
    Ok((rx, rings, peer))
}

impl RingPeer {
    /// As [`RxPeer::deliver`].
    pub fn deliver(&mut self, count: usize, write: impl FnMut(usize, &mut [u8]) -> usize) -> usize {
        self.rx.deliver(count, write)
    }

    /// As [`TxPeer::take_sent`].
    pub fn take_sent(&mut self, seen: impl FnMut(usize, &[u8])) -> usize {
        self.tx.take_sent(seen)
    }
}

impl RxPeer {
    /// Delivers up to `count` packets, as long as the port has given frames and the RX ring has room; how many. `write` makes the
    /// packet of a number in the room behind the kernel's headroom and says its length; one that is longer than the room is cut
    /// there.
    pub fn deliver(&mut self, count: usize, mut write: impl FnMut(usize, &mut [u8]) -> usize) -> usize {
        self.deliver_each(count, |peer, number, chunk| {
            let room = peer.memory.bytes(chunk, KERNEL_HEADROOM, None)?;
            Some(write(number, room).min(room.len()))
        })
    }

    /// As [`deliver`](Self::deliver), of `len` bytes that are what the frames hold: no packet is touched, as where a NIC writes them.
    /// Says which [frame](FramePool::frame_of) each is in.
    pub fn deliver_untouched(&mut self, count: usize, len: usize, mut given: impl FnMut(u64)) -> usize {
        self.deliver_each(count, |peer, _, chunk| {
            given(peer.memory.0.frame_of(chunk));
            Some(len)
        })
    }

    fn deliver_each(
        &mut self,
        count: usize,
        mut packet: impl FnMut(&mut Self, usize, u64) -> Option<usize>,
    ) -> usize {
        let mut done = 0;
        while done < count {
            let mut chunks = [0; BLOCK];
            let room = self.rx.room_for((count - done).min(BLOCK));
            let taken = self.fill.pop(&mut chunks[..room]);
            if taken == 0 {
                break;
            }
            let mut descs = [Desc::default(); BLOCK];
            let mut delivered = 0;
            for &chunk in &chunks[..taken] {
                let Some(len) = packet(self, done + delivered, chunk) else {
                    debug_assert!(false, "a frame that is not in the pool was supplied");
                    continue;
                };
                let begin = self.memory.0.frame_begin(chunk) + KERNEL_HEADROOM as u64;
                descs[delivered] = Desc::new(begin, u32::try_from(len).unwrap_or(u32::MAX));
                delivered += 1;
            }
            done += self.rx.push(&descs[..delivered]);
        }
        done
    }
}

impl TxPeer {
    /// Takes all that the port has sent, shows each packet, and gives the frames back; how many.
    pub fn take_sent(&mut self, mut seen: impl FnMut(usize, &[u8])) -> usize {
        self.take_each(|peer, number, desc| {
            let at = usize::try_from(desc.addr - peer.memory.0.frame_begin(desc.addr)).unwrap_or(usize::MAX);
            if let Some(packet) = peer.memory.bytes(desc.addr, at, Some(desc.len as usize)) {
                seen(number, packet);
            }
        })
    }

    /// As [`take_sent`](Self::take_sent), and looks at no packet: says which [frame](FramePool::frame_of) each is in.
    pub fn take_untouched(&mut self, mut seen: impl FnMut(u64)) -> usize {
        self.take_each(|peer, _, desc| seen(peer.memory.0.frame_of(desc.addr)))
    }

    fn take_each(&mut self, mut packet: impl FnMut(&mut Self, usize, &Desc)) -> usize {
        let mut done = 0;
        loop {
            let mut descs = [Desc::default(); BLOCK];
            let room = self.completion.room_for(BLOCK);
            let taken = self.tx.pop(&mut descs[..room]);
            if taken == 0 {
                return done;
            }
            let mut chunks = [0; BLOCK];
            for (desc, chunk) in descs[..taken].iter().zip(&mut chunks) {
                packet(self, done, desc);
                *chunk = desc.addr;
                done += 1;
            }
            self.completion.push(&chunks[..taken]);
        }
    }
}

/// The frames that are lent to a peer.
#[derive(Debug)]
struct PeerMemory(&'static FramePool);

impl PeerMemory {
    /// Bytes of the frame in which `address` lies, from `at` on, up to its end or `len` of them.
    fn bytes(&mut self, address: u64, at: usize, len: Option<usize>) -> Option<&mut [u8]> {
        let Self(pool) = self;
        let (memory, whole) = pool.memory();
        let begin = usize::try_from(pool.frame_begin(address)).ok().filter(|begin| *begin < whole)?;
        let room = pool.frame_size().bytes().checked_sub(at)?;
        let len = len.map_or(Some(room), |len| (len <= room).then_some(len))?;
        // SAFETY: within a frame of the pool, whose memory is never unmapped and was zeroed at first. The port has lent the frame by
        // `FillRing::supply` or `TxRing::send` and does not touch it before it finds it in the RX or the completion ring, where
        // its peer alone puts it; that it does after the slice is gone.
        Some(unsafe { std::slice::from_raw_parts_mut(memory.as_ptr().add(begin + at), len) })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;
    use crate::batch::Batch;
    use crate::pool::FrameSize;
    use crate::port::Port;

    const SMALL: XdpOptions = XdpOptions {
        mode: kaido_xsk::BindMode::Auto,
        need_wakeup: true,
        busy_poll: None,
        multi_buffer: false,
        fill: 128,
        completion: 128,
        rx: 128,
        tx: 128,
        segments_max: 1,
    };

    #[test]
    fn packets_go_through_a_port_and_every_frame_comes_back() {
        for size in FrameSize::ALL {
            let pool = FramePool::leak_of(size, 600).unwrap();
            let mut cache = pool.cache();
            let (mut port, mut peer) = ring_port(pool, &SMALL).unwrap();
            let mut batch = Batch::new();
            assert_eq!(peer.deliver(1, |_, _| 0), 0, "no frame was given yet");
            port.receive(&mut cache, &mut batch);
            for turn in 0..50u8 {
                let write = |number: usize, room: &mut [u8]| {
                    room[..2].copy_from_slice(&[turn, u8::try_from(number).unwrap()]);
                    60
                };
                assert_eq!(peer.deliver(64, write), 64);
                let mut received = 0;
                while received < 64 {
                    port.receive(&mut cache, &mut batch);
                    assert!(!batch.is_empty());
                    for frame in batch.iter_mut() {
                        assert_eq!((frame.data().len(), frame.headroom()), (60, KERNEL_HEADROOM));
                        assert_eq!(frame.data()[..2], [turn, received]);
                        frame.data_mut()[0] = !turn;
                        received += 1;
                    }
                    assert_eq!(port.transmit(&mut cache, &mut batch), 0);
                    assert!(batch.is_empty());
                }
                let mut seen = 0;
                let sent = peer.take_sent(|number, packet| {
                    assert_eq!((number, packet.len()), (seen, 60));
                    assert_eq!(packet[..2], [!turn, u8::try_from(number).unwrap()]);
                    seen += 1;
                });
                assert_eq!((sent, seen), (64, 64));
            }
            drop(port);
            drop(cache);
            assert_eq!(pool.free_frames(), 600);
        }
    }

    #[test]
    fn a_full_ring_and_one_without_frames_hold_the_peer_back() {
        let pool = FramePool::leak_of(FrameSize::TwoKib, 64).unwrap();
        let mut cache = pool.cache();
        let (mut port, mut peer) = ring_port(pool, &XdpOptions { rx: 16, fill: 32, ..SMALL }).unwrap();
        port.receive(&mut cache, &mut Batch::new());
        assert_eq!(peer.deliver(100, |_, room| room.len() + 1), 16, "the RX ring has room for 16");
        let mut batch = Batch::new();
        port.receive(&mut cache, &mut batch);
        assert_eq!(batch.len(), 16);
        assert_eq!(batch[0].data().len(), 2048 - KERNEL_HEADROOM, "cut at the frame's end");
        assert!(ring_port(pool, &XdpOptions { rx: 15, ..SMALL }).is_err());
    }

    /// One buffer of a packet to the port, as far as it has given frames and takes packets.
    fn deliver_part(peer: &mut RingPeer, byte: u8, is_last: bool) -> bool {
        let mut chunk = [0];
        if peer.rx.rx.free() == 0 || peer.rx.fill.pop(&mut chunk) == 0 {
            return false;
        }
        peer.rx.memory.bytes(chunk[0], KERNEL_HEADROOM, Some(1)).unwrap()[0] = byte;
        let desc = Desc::new(chunk[0] + KERNEL_HEADROOM as u64, 1);
        peer.rx.rx.push(&[if is_last { desc } else { desc.continued() }]) == 1
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        /// Whenever a port is handed over, every packet comes in whole and goes out once, and every frame is in one place.
        #[test]
        fn a_port_goes_on_for_another(steps in prop::collection::vec((0u8..6, 0u8..100), 0..200)) {
            const FRAMES: usize = 300;
            let pool = FramePool::leak_of(FrameSize::TwoKib, FRAMES).unwrap();
            let mut cache = pool.cache();
            let (mut port, mut peer) = ring_port(pool, &XdpOptions { rx: 32, ..SMALL }).unwrap();
            let (mut to_come, mut to_go) = (VecDeque::new(), VecDeque::new());
            let mut unfinished: Vec<u8> = Vec::new();
            let mut batch = Batch::new();
            for (step, byte) in steps {
                match step {
                    0 => {
                        if deliver_part(&mut peer, byte, true) {
                            unfinished.push(byte);
                            to_come.push_back(std::mem::take(&mut unfinished));
                        }
                    }
                    1 if unfinished.len() < 8 => {
                        if deliver_part(&mut peer, byte, false) {
                            unfinished.push(byte);
                        }
                    }
                    2 | 3 => {
                        port.receive(&mut cache, &mut batch);
                        for frame in batch.drain(..) {
                            prop_assert_eq!(Some(frame.to_vec()), to_come.pop_front());
                            if frame.is_chained() {
                                cache.release(frame);
                                continue;
                            }
                            let mut one: Batch = [frame].into_iter().collect();
                            let byte = one[0].data()[0];
                            prop_assert_eq!(port.transmit(&mut cache, &mut one), 0);
                            if one.is_empty() {
                                to_go.push_back(byte);
                            }
                        }
                    }
                    4 => {
                        peer.take_sent(|_, packet| assert_eq!(Some(packet[0]), to_go.pop_front()));
                    }
                    _ => {
                        // What another port is told: this one has forgotten it.
                        cache = pool.cache();
                        let UmemRings { account, held, .. } = &mut port.rings;
                        let state = account.state(held, 7, port.partial.take());
                        prop_assert!(!port.rings.held.is_sending());
                        prop_assert_eq!(state.held.len() + pool.free_frames(), FRAMES);
                        prop_assert_eq!((state.filling + state.sending) as usize, state.held.len());
                        port.partial = port.rings.resume(&state);
                        prop_assert_eq!(port.partial.as_ref().map_or(0, |part| part.segments().count()), state.partial.len());
                    }
                }
            }
            // Lest it waits for them.
            peer.take_sent(|_, _| ());
            drop((port, cache));
            prop_assert_eq!(pool.free_frames(), FRAMES);
        }
    }
}
