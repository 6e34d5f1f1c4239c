//! What a socket's owner keeps of it beside the RX ring: the rings by which frames go to the kernel and come back,
//! and which frames the kernel has.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use kaido_xsk::{CompletionRing, Desc, FillRing, Statistics, TxRing};

use super::in_flight::InFlightFrames;
use super::sockets::{Sockets, XdpSocket, XdpState};
use crate::batch::{BATCH_MAX, Batch};
use crate::drop_reason::DropReason;
use crate::frame::Frame;
use crate::pool::{FramePool, PoolCache};

/// Frames that go to the kernel, or come back from it, in one go.
const BLOCK: usize = 64;

/// Where a port leaves its socket if it is not to be closed with it.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) sockets: Arc<Sockets>,
    pub(super) socket: XdpSocket,
    pub(super) fd: Weak<OwnedFd>,
}

#[derive(Debug)]
pub(super) struct UmemRings {
    // The rings drop before the frames: a mapping keeps the socket alive.
    fill: FillRing,
    completion: CompletionRing,
    tx: TxRing,
    held: InFlightFrames,
    /// Frames in the kernel's hands to receive into.
    filling: usize,
    /// Frames in the kernel's hands to send.
    sending: usize,
    /// Whether the kernel stopped before the end of the TX ring.
    backlog: bool,
    segments_max: usize,
    reported: ReportedLosses,
    /// Descriptors of one batch.
    descs: Vec<Desc>,
    /// `None` where nobody is behind the rings.
    home: Option<Home>,
}

impl UmemRings {
    pub(super) fn new(
        fill: FillRing,
        completion: CompletionRing,
        tx: TxRing,
        held: InFlightFrames,
        segments_max: usize,
    ) -> Self {
        Self {
            fill,
            completion,
            tx,
            held,
            filling: 0,
            sending: 0,
            backlog: false,
            segments_max,
            reported: ReportedLosses::default(),
            descs: Vec::with_capacity(BATCH_MAX * segments_max),
            home: None,
        }
    }

    /// Has the socket be left at `home`, where those that close leave theirs.
    pub(super) fn at_home(mut self, home: Home) -> Self {
        self.home = Some(home);
        self
    }

    /// Goes on with what another port knew of the socket; also the packet whose rest was not received yet.
    pub(super) fn resume(&mut self, state: &XdpState) -> Option<Frame> {
        self.held.resume(&state.held);
        self.filling = state.filling as usize;
        self.sending = state.sending as usize;
        // What the kernel had not sent yet it is told to.
        self.backlog = self.sending > 0;
        let [rx_ring_full, rx_dropped, tx_invalid_descs] = state.losses;
        self.reported.0 = Statistics { rx_ring_full, rx_dropped, tx_invalid_descs, ..Statistics::default() };
        let (mut partial, mut whole) = (None, Batch::new());
        for &(addr, len) in &state.partial {
            self.take_in(Desc::new(addr, len).continued(), &mut partial, &mut whole);
        }
        partial
    }

    /// Leaves the socket to another port, or another process, where those that close do so; whether it did. Nothing is asked of the
    /// rings and the kernel any more.
    pub(super) fn leave(&mut self, partial: &mut Option<Frame>) -> bool {
        let Some(Home { sockets, socket, fd }) = self.home.take() else { return false };
        let Some(fd) = fd.upgrade() else { return false };
        sockets.park(socket, fd, || self.state(socket.id, partial.take()))
    }

    /// What is known of the socket, which is forgotten here.
    pub(super) fn state(&mut self, id: u64, partial: Option<Frame>) -> XdpState {
        let mut segments = Vec::new();
        if let Some(frame) = partial {
            frame.into_device(|addr, len| {
                self.held.lend(addr);
                segments.push((addr, len));
            });
        }
        let count = |frames: usize| u32::try_from(frames).unwrap_or(u32::MAX);
        let Statistics { rx_ring_full, rx_dropped, tx_invalid_descs, .. } = self.reported.0;
        XdpState {
            id,
            held: self.held.leave_all(),
            filling: count(std::mem::take(&mut self.filling) + segments.len()),
            sending: count(std::mem::take(&mut self.sending)),
            partial: segments,
            losses: [rx_ring_full, rx_dropped, tx_invalid_descs],
        }
    }

    pub(super) fn pool(&self) -> &'static FramePool {
        self.held.pool()
    }

    /// Whether the kernel has frames to send.
    pub(super) fn is_sending(&self) -> bool {
        self.sending > 0
    }

    /// Whether the kernel stopped before it had sent all.
    pub(super) fn has_backlog(&self) -> bool {
        self.backlog
    }

    /// Whether frames are on their way out, or a block of frames to receive into is missing.
    pub(super) fn needs_poll(&self) -> bool {
        self.is_sending() || self.lacks_a_block()
    }

    /// Whether there is room for a block of frames to receive into.
    fn lacks_a_block(&self) -> bool {
        let target = self.fill.capacity() as usize;
        target.saturating_sub(self.filling) >= BLOCK.min(target)
    }

    /// Whether the driver waits to be told of frames to receive into.
    pub(super) fn driver_sleeps(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Adds a received buffer to its packet, and the packet to the batch when that was the last.
    #[inline]
    pub(super) fn take_in(&mut self, desc: Desc, partial: &mut Option<Frame>, batch: &mut Batch) {
        let Some(segment) = self.held.take_back(desc.addr, desc.len) else {
            debug_assert!(false, "a frame that was not given came back");
            return;
        };
        self.filling = self.filling.saturating_sub(1);
        batch.push_segment(partial, segment, desc.is_continued());
    }

    /// Gives the kernel frames to receive into, as long as a block of them is missing; whether it got any.
    pub(super) fn fill(&mut self, pool: &mut PoolCache) -> bool {
        // The bookkeeping knows frames by their number alone.
        if !std::ptr::eq(pool.pool(), self.held.pool()) {
            return false;
        }
        let before = self.filling;
        let block = BLOCK.min(self.fill.capacity() as usize);
        let memory = self.held.pool();
        while self.lacks_a_block() {
            let mut chunks = [0; BLOCK];
            let mut count = 0;
            while let Some(chunk) = chunks[..block].get_mut(count) {
                let Some(frame) = pool.allocate() else { break };
                frame.into_device(|addr, _| *chunk = memory.frame_begin(addr));
                self.held.lend(*chunk);
                count += 1;
            }
            let taken = self.held.supply(&mut self.fill, &chunks[..count]);
            self.filling += taken;
            for &chunk in &chunks[taken..count] {
                self.held.take_back(chunk, 0).into_iter().for_each(|frame| pool.release(frame));
            }
            if taken < block {
                break;
            }
        }
        self.filling > before
    }

    /// Takes sent frames back.
    pub(super) fn reap(&mut self, pool: &mut PoolCache) {
        let mut chunks = [0; BLOCK];
        while self.sending > 0 {
            let count = self.completion.reap(&mut chunks);
            self.sending = self.sending.saturating_sub(count);
            for &chunk in &chunks[..count] {
                self.held.take_back(chunk, 0).into_iter().for_each(|frame| pool.release(frame));
            }
            if count < chunks.len() {
                return;
            }
        }
    }

    /// Free slots of the TX ring, when something is in it and the kernel must be called to send it.
    pub(super) fn unsent(&mut self) -> Option<u32> {
        let free = self.tx.free();
        self.backlog = free < self.tx.capacity();
        (self.backlog && self.tx.needs_wakeup()).then_some(free)
    }

    /// After the kernel was called: takes sent frames back, and says whether it has sent any since there were
    /// `free` free slots.
    pub(super) fn has_advanced(&mut self, free: u32, pool: &mut PoolCache) -> bool {
        self.reap(pool);
        self.tx.free() != free
    }

    /// Puts frames from the front of `batch` into the TX ring, as far as there is room; how many can never be sent,
    /// and were released.
    pub(super) fn enqueue(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        self.reap(pool);
        let mut room = self.tx.free() as usize;
        let mut taken = 0;
        for frame in batch.iter() {
            let count = self.buffers(frame).unwrap_or(0);
            if count > room {
                break;
            }
            room -= count;
            taken += 1;
        }
        let mut failed = 0;
        for frame in batch.drain(..taken) {
            if self.buffers(&frame).is_some() {
                self.put_out(frame, pool);
            } else {
                pool.release(frame);
                failed += 1;
            }
        }
        if !self.descs.is_empty() {
            self.send_descs();
        }
        failed
    }

    /// Buffers that a frame takes in the TX ring; `None` when it can never be sent.
    #[inline]
    fn buffers(&self, frame: &Frame) -> Option<usize> {
        // The kernel skips an empty buffer for good, and never gives it back.
        let count = if frame.is_chained() {
            frame.segments().filter(|part| !part.is_empty()).count()
        } else {
            usize::from(!frame.data().is_empty())
        };
        let ours = std::ptr::eq(frame.pool(), self.held.pool());
        (ours && (1..=self.segments_max).contains(&count)).then_some(count)
    }

    /// Makes descriptors of a frame, which is the kernel's from here on.
    #[inline]
    fn put_out(&mut self, frame: Frame, pool: &mut PoolCache) {
        let (held, descs) = (&mut self.held, &mut self.descs);
        frame.into_device(|addr, len| {
            held.lend(addr);
            if len > 0 {
                descs.push(Desc::new(addr, len).continued());
            } else {
                held.take_back(addr, 0).into_iter().for_each(|frame| pool.release(frame));
            }
        });
        if let Some(last) = self.descs.last_mut() {
            last.options = 0;
        }
    }

    fn send_descs(&mut self) {
        let sent = self.held.send(&mut self.tx, &self.descs);
        debug_assert_eq!(sent, self.descs.len(), "there was room for all");
        self.sending += sent;
        self.descs.clear();
    }

    /// Says what the socket has dropped since the last call, by reason.
    pub(super) fn losses(&mut self, now: Option<Statistics>, report: &mut dyn FnMut(DropReason, u64)) {
        if let Some(now) = now {
            self.reported.go_on(now, report);
        }
    }
}

/// What the socket had dropped when last asked.
#[derive(Debug, Default)]
struct ReportedLosses(Statistics);

impl ReportedLosses {
    /// Says what has been dropped since.
    fn go_on(&mut self, now: Statistics, report: &mut dyn FnMut(DropReason, u64)) {
        let before = std::mem::replace(&mut self.0, now);
        for (reason, now, before) in [
            (DropReason::RX_RING_FULL, now.rx_ring_full, before.rx_ring_full),
            (DropReason::RX_NO_FRAME, now.rx_dropped, before.rx_dropped),
            (DropReason::TX_ERROR, now.tx_invalid_descs, before.tx_invalid_descs),
        ] {
            if now > before {
                report(reason, now - before);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_loss_is_reported_once_and_by_its_reason() {
        let mut reported = ReportedLosses::default();
        let mut new = |now| {
            let mut told = Vec::new();
            reported.go_on(now, &mut |reason, count| told.push((reason, count)));
            told
        };
        let now = Statistics { rx_ring_full: 3, rx_dropped: 5, tx_invalid_descs: 7, ..Statistics::default() };
        let [full, no_frame, invalid] =
            [DropReason::RX_RING_FULL, DropReason::RX_NO_FRAME, DropReason::TX_ERROR];
        assert_eq!(new(now), [(full, 3), (no_frame, 5), (invalid, 7)]);
        assert_eq!(new(now), []);
        // Times that a ring was found empty are no packets.
        let idle = Statistics { rx_fill_ring_empty_descs: 9, tx_ring_empty_descs: 9, ..now };
        assert_eq!(new(idle), []);
        assert_eq!(
            new(Statistics { rx_dropped: 6, tx_invalid_descs: 9, ..idle }),
            [(no_frame, 1), (invalid, 2)]
        );
        // A socket in its place counts from zero.
        assert_eq!(new(Statistics { rx_ring_full: 2, ..Statistics::default() }), []);
        assert_eq!(new(Statistics { rx_ring_full: 4, ..Statistics::default() }), [(full, 2)]);
    }
}
