//! The port: one queue of a device.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use kaido_engine::{BATCH_MAX, Batch, DropReason, Frame, HEADROOM, LINK_HEADER, PoolCache, Port};

use crate::device::{Device, DeviceInfo, DpdkOptions, SEGMENTS_MAX};
use crate::error::DpdkError;
use crate::mbufs::{adopt, place};
use crate::memory::{DpdkPool, Frames};
use crate::sys;

/// How long a port that closes tries to send what the device has not taken yet.
const LINGER: Duration = Duration::from_millis(10);

/// Mbufs taken from the transmit pool at a time.
const REFILL: u32 = 32;

type Mbuf = *mut sys::rte_mbuf;

/// Mbufs of a queue that are not in its pools; the rings of a device that waits are full of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MbufsOut {
    /// To receive into, or received and not yet back.
    pub rx: usize,
    /// To be sent, or ready for it.
    pub tx: usize,
}

/// One queue of a device, for one worker. It is polled: there is no descriptor to wait on.
#[derive(Debug)]
pub struct DpdkPort {
    device: Arc<Device>,
    queue: u16,
    /// Bytes of the longest frame to send.
    frame_max: usize,
    frames: Frames,
    rx: NonNull<sys::rte_mempool>,
    tx: NonNull<sys::rte_mempool>,
    /// Empty mbufs, to send with.
    ready: ArrayVec<Mbuf, { REFILL as usize + 3 * SEGMENTS_MAX }>,
    /// Packets that the device has not taken yet.
    pending: ArrayVec<Mbuf, BATCH_MAX>,
    /// Packets received for which there was no frame to exchange, and not yet reported.
    unexchanged: u64,
    /// Of the device, as reported before.
    missed: u64,
    nombuf: u64,
    known_to_dpdk: bool,
}

// SAFETY: mempools may be used from any thread, and the queue and the mbufs are the port's alone.
unsafe impl Send for DpdkPort {}

impl DpdkPort {
    /// Opens a device by its name (`0000:03:00.0`, `net_ring0`) and starts it: a port for each queue, in order.
    /// Dropping the last of them closes it; it cannot be opened again in this process.
    ///
    /// # Errors
    /// [`DpdkError`].
    pub fn open(memory: &DpdkPool, name: &str, options: &DpdkOptions) -> Result<Vec<Self>, DpdkError> {
        let device = Arc::new(Device::open(memory, name, options)?);
        let ports = (0..options.queues).filter_map(|queue| {
            let [rx, tx] = device.mempools(queue)?;
            Some(Self {
                device: device.clone(),
                queue,
                frame_max: usize::from(options.mtu) + LINK_HEADER,
                frames: memory.frames(),
                rx,
                tx,
                ready: ArrayVec::new(),
                pending: ArrayVec::new(),
                unexchanged: 0,
                missed: 0,
                nombuf: 0,
                known_to_dpdk: false,
            })
        });
        Ok(ports.collect())
    }

    /// What the device says of itself.
    pub fn info(&self) -> &DeviceInfo {
        &self.device.info
    }

    /// The queue's mbufs that are not in their pools. Walks the caches of all threads: for status and tests.
    pub fn mbufs_out(&self) -> MbufsOut {
        let [rx, tx] = self.device.out(self.queue);
        MbufsOut { rx, tx: tx.saturating_sub(self.ready.len()) }
    }

    /// The worker's thread gets DPDK's caches when it first comes here.
    #[inline]
    fn settle(&mut self, pool: &PoolCache) {
        assert!(std::ptr::eq(pool.pool(), self.frames.pool), "a cache of another pool than the port's");
        if !self.known_to_dpdk {
            self.known_to_dpdk = true;
            self.device.memory.eal().register_thread();
        }
    }

    /// Adds a packet to `batch`, free frames in its mbufs' hands for those that it is in. Returns `false` when there
    /// are none, or when the packet is not in our frames and could not be copied; what the mbufs then hold is as
    /// good as any.
    ///
    /// # Safety
    /// The driver has just handed the packet over, and there is room in the batch.
    #[inline(always)]
    unsafe fn take_in(&self, packet: Mbuf, pool: &mut PoolCache, batch: &mut Batch) -> bool {
        // SAFETY: a received mbuf is valid, and ours until it is freed.
        let mbuf = unsafe { &mut *packet };
        if mbuf.nb_segs > 1 {
            // SAFETY: as we were promised.
            return unsafe { self.take_chain(packet, pool, batch) };
        }
        let taken = self.take_segment(mbuf, pool).map(|frame| batch.push(frame));
        taken.is_some()
    }

    /// As [`DpdkPort::take_in`], for a packet of several segments.
    #[inline(never)]
    unsafe fn take_chain(&self, packet: Mbuf, pool: &mut PoolCache, batch: &mut Batch) -> bool {
        let mut frame: Option<Frame> = None;
        // SAFETY: the segments of a received packet are valid, linked, and ours until they are freed.
        let mut next = unsafe { packet.as_mut() };
        while let Some(mbuf) = next {
            let Some(segment) = self.take_segment(mbuf, pool) else { return false };
            match &mut frame {
                Some(frame) => frame.push_segment(segment),
                None => frame = Some(segment),
            }
            // SAFETY: as above.
            next = unsafe { mbuf.next.as_mut() };
        }
        batch.extend(frame);
        true
    }

    /// Takes the frame out of an mbuf, and puts a free one in.
    #[inline(always)]
    fn take_segment(&self, mbuf: &mut sys::rte_mbuf, pool: &mut PoolCache) -> Option<Frame> {
        let buffer = self.frames.offset_of(mbuf.buf_addr.cast());
        let Some(buffer) = buffer.filter(|_| self.is_sole_owner(mbuf)) else {
            return copy(mbuf, pool);
        };
        let data = buffer + usize::from(mbuf.data_off);
        if self.frames.begin(data as u64) != self.frames.begin(buffer as u64) {
            return None;
        }
        let len = u32::from(mbuf.data_len);
        pool.allocate()?.into_device(|at, _| place(mbuf, &self.frames, self.frames.begin(at), HEADROOM));
        // SAFETY: the mbuf owned this frame alone, and has another now.
        unsafe { adopt(self.frames.pool, data, len) }
    }

    /// Whether an mbuf whose buffer is in our pool is the only one. Of our own receive pool it is unless it is
    /// counted several times, since none of these is ever cloned; that of another device's pool, which a ring
    /// hands on, is asked.
    #[inline]
    fn is_sole_owner(&self, mbuf: &sys::rte_mbuf) -> bool {
        if mbuf.pool == self.rx.as_ptr() {
            return mbuf.refcnt == 1;
        }
        // SAFETY: a valid mbuf.
        unsafe { sys::kaido_is_sole_owner(mbuf) != 0 }
    }

    /// Has the device take the packets that it has not; whether it has taken all.
    fn push_out(&mut self) -> bool {
        if self.pending.is_empty() {
            return true;
        }
        // Fits: at most a batch.
        #[allow(clippy::cast_possible_truncation)]
        let count = self.pending.len() as u16;
        // SAFETY: the packets are whole, and the device's from here on, as many as it says.
        let taken =
            unsafe { sys::kaido_tx_burst(self.device.port, self.queue, self.pending.as_mut_ptr(), count) };
        self.pending.drain(..usize::from(taken).min(self.pending.len()));
        self.pending.is_empty()
    }

    /// Gets mbufs ready for the frames at the front of a batch; for how many there are enough.
    #[inline]
    fn supply_for(&mut self, batch: &Batch) -> usize {
        let mut wanted = 0;
        for (index, frame) in batch.iter().enumerate() {
            wanted += self.segments(frame);
            while self.ready.len() < wanted {
                // Refilled as far as it takes: what is beyond waits for the next round.
                if self.ready.remaining_capacity() < REFILL as usize || !self.refill() {
                    return index;
                }
            }
        }
        batch.len()
    }

    /// Takes a few mbufs from the pool.
    fn refill(&mut self) -> bool {
        let mut taken = [null_mut(); REFILL as usize];
        // SAFETY: there is room for as many.
        let status = unsafe { sys::kaido_alloc_bulk(self.tx.as_ptr(), taken.as_mut_ptr(), REFILL) };
        if status == 0 {
            self.ready.extend(taken);
        }
        status == 0
    }

    /// The segments of a frame that the device can send; 0 for one that it never can.
    #[inline]
    fn segments(&self, frame: &Frame) -> usize {
        let segments = if frame.is_chained() { frame.segments().count() } else { 1 };
        let fits = (1..=self.frame_max).contains(&frame.packet_len()) && segments <= self.device.segments_max;
        if fits && std::ptr::eq(frame.pool(), self.frames.pool) { segments } else { 0 }
    }

    /// Makes a frame a packet of the mbufs that are ready, which has enough, and releases the frames that they had.
    fn give_out(&mut self, frame: Frame, pool: &mut PoolCache) {
        let (frames, ready) = (self.frames, &mut self.ready);
        let bytes = frame.packet_len();
        let (mut first, mut last, mut count) =
            (null_mut::<sys::rte_mbuf>(), null_mut::<sys::rte_mbuf>(), 0u16);
        frame.into_device(|at, len| {
            let Some(segment) = ready.pop() else { return };
            // SAFETY: taken from the pool, so it is valid and ours alone.
            let mbuf = unsafe { &mut *segment };
            let old = frames.offset_of(mbuf.buf_addr.cast());
            let frame = frames.begin(at);
            #[allow(clippy::cast_possible_truncation)] // Within a frame.
            {
                place(mbuf, &frames, frame, at as usize - frame);
                mbuf.data_len = len as u16;
            }
            // SAFETY: the mbuf owned its old frame, and has another now.
            if let Some(old) = old.and_then(|old| unsafe { adopt(frames.pool, old, 0) }) {
                pool.release(old);
            }
            // SAFETY: the segment before, which is ours still.
            match unsafe { last.as_mut() } {
                Some(before) => before.next = segment,
                None => first = segment,
            }
            last = segment;
            count += 1;
        });
        // SAFETY: a frame has at least one segment, and there was an mbuf for it.
        let Some(packet) = (unsafe { first.as_mut() }) else { return };
        packet.nb_segs = count;
        packet.pkt_len = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.pending.push(first);
    }
}

/// Copies a segment that is not in a frame of ours alone.
#[cold]
fn copy(mbuf: &sys::rte_mbuf, pool: &mut PoolCache) -> Option<Frame> {
    let data = mbuf.buf_addr.cast::<u8>().wrapping_add(usize::from(mbuf.data_off));
    // SAFETY: an mbuf's data are initialised and lie in its buffer, which nobody writes to while we have it.
    let bytes = unsafe { std::slice::from_raw_parts(data, usize::from(mbuf.data_len)) };
    Frame::from_slice(bytes, || pool.allocate())
}

impl Port for DpdkPort {
    /// # Panics
    /// When `pool` is not of the pool that the port was opened with.
    fn receive(&mut self, pool: &mut PoolCache, batch: &mut Batch) {
        self.settle(pool);
        self.push_out();
        let mut mbufs: [Mbuf; BATCH_MAX] = [null_mut(); BATCH_MAX];
        #[allow(clippy::cast_possible_truncation)] // At most a batch.
        let room = batch.remaining_capacity() as u16;
        // SAFETY: there is room for as many.
        let count = unsafe { sys::kaido_rx_burst(self.device.port, self.queue, mbufs.as_mut_ptr(), room) };
        let received = &mut mbufs[..usize::from(count)];
        for &packet in received.iter() {
            // SAFETY: received just now, and no more than there was room for.
            self.unexchanged += u64::from(!unsafe { self.take_in(packet, pool, batch) });
        }
        if count > 0 {
            // SAFETY: the packets are ours, and each mbuf has a frame.
            unsafe { sys::kaido_free_bulk(received.as_mut_ptr(), count.into()) };
        }
    }

    /// Frames that are taken may wait here for the device, which is offered them again by the next call.
    ///
    /// # Panics
    /// When `pool` is not of the pool that the port was opened with.
    fn transmit(&mut self, pool: &mut PoolCache, batch: &mut Batch) -> usize {
        self.settle(pool);
        if !self.push_out() {
            return 0;
        }
        let mut failed = 0;
        loop {
            let count = self.supply_for(batch);
            for frame in batch.drain(..count) {
                if self.segments(&frame) > 0 {
                    self.give_out(frame, pool);
                } else {
                    pool.release(frame);
                    failed += 1;
                }
            }
            if batch.is_empty() || count == 0 {
                break;
            }
        }
        self.push_out();
        failed
    }

    /// The device counts for all its queues: the first reports.
    fn losses(&mut self, report: &mut dyn FnMut(DropReason, u64)) {
        let mut say = |reason, count| {
            if count > 0 {
                report(reason, count);
            }
        };
        say(DropReason::NO_FRAME, std::mem::take(&mut self.unexchanged));
        if self.queue != 0 {
            return;
        }
        let Some(found) = self.device.statistics() else { return };
        say(DropReason::RX_RING_FULL, found.imissed.saturating_sub(self.missed));
        say(DropReason::RX_NO_FRAME, found.rx_nombuf.saturating_sub(self.nombuf));
        (self.missed, self.nombuf) = (found.imissed, found.rx_nombuf);
    }
}

impl Drop for DpdkPort {
    /// Tries for a moment to send what waits. The device is closed by the last of its ports.
    fn drop(&mut self) {
        let deadline = Instant::now() + LINGER;
        while !self.push_out() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_micros(100));
        }
        for mbufs in [&mut self.pending[..], &mut self.ready[..]] {
            // Fits: a few dozen.
            let count = u32::try_from(mbufs.len()).unwrap_or_default();
            // SAFETY: the device has not taken them, so they are ours.
            unsafe { sys::kaido_free_bulk(mbufs.as_mut_ptr(), count) };
        }
    }
}
