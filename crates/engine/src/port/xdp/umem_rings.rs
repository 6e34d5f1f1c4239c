//! The rings by which frames go to the kernel and come back, and what else a socket's owner keeps of it beside the RX ring.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use arrayvec::ArrayVec;
use kaido_xsk::{CompletionRing, Desc, FillRing, Rings, RxRing, Statistics, TxRing};

use super::in_flight::InFlightFrames;
use super::sockets::{Sockets, XdpSocket, XdpState};
use crate::batch::Batch;
use crate::drop_reason::DropReason;
use crate::frame::Frame;
use crate::lent::{Alone, Lenders};
use crate::pool::{FramePool, PoolCache};

/// Frames that go to the kernel, or come back from it, in one go.
pub(super) const BLOCK: usize = 64;

/// The rings by which the kernel gets frames to receive into, and gives back those that it has sent.
#[derive(Debug)]
pub(super) struct SupplyRings {
    fill: FillRing,
    completion: CompletionRing,
}

impl SupplyRings {
    /// Whether the driver waits to be told of frames to receive into.
    pub(super) fn driver_sleeps(&self) -> bool {
        self.fill.needs_wakeup()
    }

    /// Entries of the fill ring.
    pub(super) fn fill_capacity(&self) -> u32 {
        self.fill.capacity()
    }

    /// Gives the kernel frames to receive into, as long as a block of them is missing; whether it got any.
    pub(super) fn fill<L: Lenders>(&mut self, held: &InFlightFrames<L>, pool: &mut PoolCache) -> bool {
        // The account knows frames by their number alone.
        if !std::ptr::eq(pool.pool(), held.pool()) {
            return false;
        }
        let target = self.fill.capacity();
        let block = BLOCK.min(target as usize);
        let mut has_given = false;
        while held.lacks_a_block(target) {
            let mut chunks = ArrayVec::<u64, BLOCK>::new();
            while chunks.len() < block {
                let Some(frame) = pool.allocate() else { break };
                frame.into_device(|addr, _| chunks.push(held.pool().frame_begin(addr)));
            }
            let taken = held.supply(&mut self.fill, &chunks, |frame| pool.release(frame));
            has_given |= taken > 0;
            if taken < block {
                break;
            }
        }
        has_given
    }

    /// Takes sent frames back.
    pub(super) fn reap<L: Lenders>(&mut self, held: &InFlightFrames<L>, pool: &mut PoolCache) {
        let mut chunks = [0; BLOCK];
        while held.is_sending() {
            let count = self.completion.reap(&mut chunks);
            held.sent(&chunks[..count], |frame| pool.release(frame));
            if count < chunks.len() {
                return;
            }
        }
    }
}

/// Packets whose frames are lent, to be sent.
#[derive(Debug, Default)]
pub(super) struct PreparedPackets {
    pub(super) descs: ArrayVec<Desc, BLOCK>,
    /// Packets that can never be sent, and were released.
    pub(super) failed: usize,
}

/// Makes descriptors of packets from the front of `batch`, each in up to `segments_max` buffers, and of as many as `room` descriptors hold
/// or [`BLOCK`].
#[inline]
pub(super) fn prepare<L: Lenders>(
    held: &InFlightFrames<L>,
    segments_max: usize,
    room: usize,
    pool: &mut PoolCache,
    batch: &mut Batch,
) -> PreparedPackets {
    let mut prepared = PreparedPackets::default();
    let mut free = room.min(BLOCK);
    let (mut taken, mut can_all) = (0, true);
    for frame in batch.iter() {
        let count = buffers(frame, held.pool(), segments_max);
        let Some(left) = free.checked_sub(count.unwrap_or(0)) else { break };
        free = left;
        can_all &= count.is_some();
        taken += 1;
    }
    for frame in batch.drain(..taken) {
        if can_all || buffers(&frame, held.pool(), segments_max).is_some() {
            put_out(frame, &mut prepared.descs, held, pool);
        } else {
            pool.release(frame);
            prepared.failed += 1;
        }
    }
    held.lend_to_send(&prepared.descs);
    prepared
}

/// Sends packets from the front of `batch`, as far as the TX ring had `room` when last seen: `send` puts descriptors into it and says how
/// many it took. How many packets can never be sent, and were released.
#[inline]
pub(super) fn enqueue<L: Lenders>(
    held: &InFlightFrames<L>,
    segments_max: usize,
    mut room: usize,
    (pool, batch): (&mut PoolCache, &mut Batch),
    mut send: impl FnMut(&[Desc]) -> usize,
) -> usize {
    let mut failed = 0;
    while !batch.is_empty() {
        let prepared = prepare(held, segments_max, room, pool, batch);
        failed += prepared.failed;
        let sent = send(&prepared.descs);
        if sent < prepared.descs.len() {
            // In front of the others.
            let mut all = Batch::new();
            take_back(held, &prepared.descs[sent..], &mut all);
            all.extend(batch.drain(..));
            *batch = all;
            return failed;
        }
        if sent + prepared.failed == 0 {
            return failed;
        }
        room -= sent;
    }
    failed
}

/// Buffers that a frame takes in the TX ring of a pool's socket; `None` when it can never be sent.
#[inline]
fn buffers(frame: &Frame, pool: &'static FramePool, segments_max: usize) -> Option<usize> {
    // The kernel skips an empty buffer for good, and never gives it back.
    let count = if frame.is_chained() {
        frame.segments().filter(|part| !part.is_empty()).count()
    } else {
        usize::from(!frame.data().is_empty())
    };
    let ours = std::ptr::eq(frame.pool(), pool);
    (ours && (1..=segments_max).contains(&count)).then_some(count)
}

/// Makes descriptors of a frame.
#[inline]
fn put_out<L: Lenders>(
    frame: Frame,
    descs: &mut ArrayVec<Desc, BLOCK>,
    held: &InFlightFrames<L>,
    pool: &mut PoolCache,
) {
    frame.into_device(|addr, len| {
        let desc = Desc::new(addr, len);
        if len > 0 {
            descs.push(desc.continued());
        } else {
            held.lend_to_send(&[desc]);
            held.unsent(&[desc], |frame, _| pool.release(frame));
        }
    });
    if let Some(last) = descs.last_mut() {
        last.options = 0;
    }
}

/// Makes packets again of those that were prepared, for which there was no room.
#[cold]
pub(super) fn take_back<L: Lenders>(held: &InFlightFrames<L>, descs: &[Desc], batch: &mut Batch) {
    let mut partial = None;
    held.unsent(descs, |frame, is_continued| batch.push_segment(&mut partial, frame, is_continued));
}

/// Where a port leaves its socket if it is not to be closed with it.
#[derive(Debug)]
pub(super) struct Home {
    pub(super) sockets: Arc<Sockets>,
    pub(super) socket: XdpSocket,
    pub(super) fd: Weak<OwnedFd>,
}

/// What is known of a socket beside its rings and frames.
#[derive(Debug, Default)]
pub(super) struct SocketAccount {
    reported: ReportedLosses,
    /// `None` where nobody is behind the rings.
    home: Option<Home>,
}

impl SocketAccount {
    /// Leaves the socket to another port, or another process, where those that close do so; whether it did. Nothing is asked of the
    /// rings and the kernel any more.
    pub(super) fn leave<L: Lenders>(
        &mut self,
        held: &mut InFlightFrames<L>,
        partial: &mut Option<Frame>,
    ) -> bool {
        let Some(Home { sockets, socket, fd }) = self.home.take() else { return false };
        let Some(fd) = fd.upgrade() else { return false };
        sockets.park(socket, fd, || self.state(held, socket.id, partial.take()))
    }

    /// What is known of the socket, which is forgotten here.
    pub(super) fn state<L: Lenders>(
        &self,
        held: &mut InFlightFrames<L>,
        id: u64,
        partial: Option<Frame>,
    ) -> XdpState {
        let mut segments = Vec::new();
        if let Some(frame) = partial {
            frame.into_device(|addr, len| segments.push((addr, len)));
        }
        let (held, [filling, sending]) = held.leave_all(&segments);
        let count = |frames: usize| u32::try_from(frames).unwrap_or(u32::MAX);
        let Statistics { rx_ring_full, rx_dropped, tx_invalid_descs, .. } = self.reported.0;
        XdpState {
            id,
            held,
            filling: count(filling),
            sending: count(sending),
            partial: segments,
            losses: [rx_ring_full, rx_dropped, tx_invalid_descs],
        }
    }

    /// Says what the socket has dropped since the last call, by reason.
    pub(super) fn losses(&mut self, now: Option<Statistics>, report: &mut dyn FnMut(DropReason, u64)) {
        if let Some(now) = now {
            self.reported.go_on(now, report);
        }
    }
}

/// The rings of a socket of one worker, but for the RX ring, and the frames that the kernel has.
#[derive(Debug)]
pub(super) struct UmemRings {
    // The rings drop before the frames: a mapping keeps the socket alive.
    pub(super) supply: SupplyRings,
    pub(super) tx: TxRing,
    pub(super) held: InFlightFrames<Alone>,
    /// Whether the kernel stopped before the end of the TX ring.
    backlog: bool,
    pub(super) segments_max: usize,
    pub(super) account: SocketAccount,
}

impl UmemRings {
    /// Of all rings; also the RX ring.
    pub(super) fn of(rings: Rings, held: InFlightFrames<Alone>, segments_max: usize) -> (RxRing, Self) {
        let Rings { fill, completion, rx, tx } = rings;
        let supply = SupplyRings { fill, completion };
        let account = SocketAccount::default();
        (rx, Self { supply, tx, held, backlog: false, segments_max, account })
    }

    /// Has the socket be left at `home`, where those that close leave theirs.
    pub(super) fn at_home(mut self, home: Home) -> Self {
        self.account.home = Some(home);
        self
    }

    /// Goes on with what another port knew of the socket; also the packet whose rest was not received yet.
    pub(super) fn resume(&mut self, state: &XdpState) -> Option<Frame> {
        self.held.resume(&state.held, [state.filling as usize, state.sending as usize]);
        // What the kernel had not sent yet it is told to.
        self.backlog = self.held.is_sending();
        let [rx_ring_full, rx_dropped, tx_invalid_descs] = state.losses;
        self.account.reported.0 =
            Statistics { rx_ring_full, rx_dropped, tx_invalid_descs, ..Statistics::default() };
        let (mut partial, mut whole) = (None, Batch::new());
        for &(addr, len) in &state.partial {
            self.received(&[Desc::new(addr, len).continued()], &mut partial, &mut whole);
        }
        partial
    }

    /// Adds received buffers to their packets, of the first of which `partial` is what came before, and packets that are whole to the
    /// batch.
    #[inline]
    pub(super) fn received(&self, descs: &[Desc], partial: &mut Option<Frame>, batch: &mut Batch) {
        self.held.received(descs, |frame, is_continued| batch.push_segment(partial, frame, is_continued));
    }

    /// Whether the kernel stopped before it had sent all.
    pub(super) fn has_backlog(&self) -> bool {
        self.backlog
    }

    /// Whether frames are on their way out, or a block of frames to receive into is missing.
    pub(super) fn needs_poll(&self) -> bool {
        self.held.is_sending() || self.held.lacks_a_block(self.supply.fill_capacity())
    }

    /// As [`SupplyRings::fill`].
    pub(super) fn fill(&mut self, pool: &mut PoolCache) -> bool {
        self.supply.fill(&self.held, pool)
    }

    /// As [`SupplyRings::reap`].
    pub(super) fn reap(&mut self, pool: &mut PoolCache) {
        self.supply.reap(&self.held, pool);
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

    /// As [`enqueue`].
    pub(super) fn enqueue(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        self.reap(pool);
        let Self { tx, held, segments_max, .. } = self;
        let room = tx.free() as usize;
        enqueue(held, *segments_max, room, (pool, batch), |descs| held.send(tx, descs))
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
