//! Pools of mbufs, each of which owns one frame, always.
//!
//! ```text
//!   frame:  | 0 ........ 128 ........ 256 | data …             2048 or 4096 |
//!   mbuf:              buf_addr   data_off (128)
//! ```
//!
//! DPDK puts data 128 bytes behind an mbuf's buffer, the engine 256 behind a frame's beginning: so the buffer of a
//! receive mbuf begins 128 bytes within its frame.

use std::ffi::{CString, c_void};
use std::ptr::NonNull;

use kaido_engine::{Frame, FramePool, FrameSize, HEADROOM};

use crate::eal::RetiredPool;
use crate::error::{DpdkError, last_error, reason};
use crate::memory::{BAD_IOVA, DpdkPool, Frames};
use crate::{log, sys};

/// Where an mbuf's buffer begins in a frame whose headroom is whole.
const BUFFER_AT: usize = HEADROOM - sys::KAIDO_MBUF_HEADROOM as usize;

/// Mbufs that a thread keeps in front of a pool; DPDK lets it have half as many again.
const CACHE: u32 = 256;
/// Mbufs beyond a ring's: what the caches of two threads and a burst hold.
const SPARE: usize = 1024;

const _: () = assert!(size_of::<sys::rte_mbuf>() == 128);

/// A pool of mbufs with their frames.
#[derive(Debug)]
pub(crate) struct MbufPool {
    mempool: NonNull<sys::rte_mempool>,
    mbufs: usize,
    frames: Frames,
}

// SAFETY: a mempool may be used by all threads.
unsafe impl Send for MbufPool {}

/// What `give_frame` fills the mbufs from.
struct FrameSupply {
    frames: Frames,
    /// None when the pool ran out.
    stock: Vec<Frame>,
}

impl MbufPool {
    /// A pool for a ring of `descriptors`, on a NUMA node; `None` for any.
    ///
    /// # Errors
    /// [`DpdkError::Frames`], [`DpdkError::Call`].
    pub(crate) fn create(
        memory: &DpdkPool,
        name: &str,
        descriptors: u16,
        node: i32,
    ) -> Result<Self, DpdkError> {
        let frames = memory.frames();
        let mbufs = usize::from(descriptors) + SPARE;
        let stock: Vec<Frame> = std::iter::from_fn(|| frames.pool.allocate()).take(mbufs).collect();
        if stock.len() < mbufs {
            return Err(DpdkError::Frames { device: name.to_owned(), wanted: mbufs });
        }
        let fault = |reason: String| DpdkError::Call {
            device: name.to_owned(),
            call: "rte_pktmbuf_pool_create_extbuf",
            reason,
            said: log::complaints(),
        };
        let text = CString::new(name).map_err(|_| fault("a name with a NUL byte".to_owned()))?;
        // Bytes of a buffer, DPDK's headroom included.
        let buffer_len = len_of(frames.pool.frame_size(), BUFFER_AT);
        log::clear();
        // Where each mbuf's frame is, is written below; here the whole pool stands for all.
        let memory = sys::rte_pktmbuf_extmem {
            buf_ptr: frames.base.as_ptr().cast(),
            buf_iova: BAD_IOVA,
            buf_len: frames.len,
            elt_size: len_of(frames.pool.frame_size(), 0),
        };
        // SAFETY: the name and the description live through the call.
        let mempool = unsafe {
            let count = u32::try_from(mbufs).unwrap_or(u32::MAX);
            sys::rte_pktmbuf_pool_create_extbuf(
                text.as_ptr(),
                count,
                CACHE,
                0,
                buffer_len,
                node,
                &raw const memory,
                1,
            )
        };
        let Some(mempool) = NonNull::new(mempool) else { return Err(fault(reason(last_error()))) };
        let mut supply = FrameSupply { frames, stock };
        // SAFETY: the pool is full and ours alone; `give_frame` gets the supply that it expects.
        unsafe {
            sys::rte_mempool_obj_iter(mempool.as_ptr(), Some(give_frame), (&raw mut supply).cast());
        }
        Ok(Self { mempool, mbufs, frames })
    }

    pub(crate) fn mempool(&self) -> NonNull<sys::rte_mempool> {
        self.mempool
    }

    /// Mbufs that are in rings, or on their way through another device.
    pub(crate) fn out(&self) -> usize {
        // SAFETY: the pool lives as long as we do.
        let available = unsafe { sys::rte_mempool_avail_count(self.mempool.as_ptr()) };
        self.mbufs.saturating_sub(available as usize)
    }

    /// Gives the frames back and frees the mbufs.
    ///
    /// # Safety
    /// No device can have an mbuf of the pool, or all have come back.
    pub(crate) unsafe fn free(self) {
        let mut frames = self.frames;
        // SAFETY: every mbuf, wherever it was, is ours now, and owns one frame; after that it has none, and the
        // pool is gone with all of them.
        unsafe {
            sys::rte_mempool_obj_iter(self.mempool.as_ptr(), Some(take_frame), (&raw mut frames).cast());
            sys::rte_mempool_free(self.mempool.as_ptr());
        }
    }
}

impl RetiredPool for MbufPool {
    unsafe fn free(self: Box<Self>) {
        // SAFETY: by the caller's promise no device can have one of its mbufs.
        unsafe { (*self).free() };
    }
}

unsafe extern "C" fn give_frame(_: *mut sys::rte_mempool, supply: *mut c_void, mbuf: *mut c_void, _: u32) {
    // SAFETY: `create` hands over a supply, and objects of a pool are mbufs.
    let (supply, mbuf) = unsafe { (&mut *supply.cast::<FrameSupply>(), &mut *mbuf.cast::<sys::rte_mbuf>()) };
    if let Some(frame) = supply.stock.pop() {
        frame.into_device(|at, _| place(mbuf, &supply.frames, supply.frames.begin(at), HEADROOM));
    }
}

unsafe extern "C" fn take_frame(_: *mut sys::rte_mempool, frames: *mut c_void, mbuf: *mut c_void, _: u32) {
    // SAFETY: `free` hands over frames, and objects of a pool are mbufs.
    let (frames, mbuf) = unsafe { (&*frames.cast::<Frames>(), &*mbuf.cast::<sys::rte_mbuf>()) };
    if let Some(offset) = frames.offset_of(mbuf.buf_addr.cast()) {
        // SAFETY: the mbuf owned the frame, and does so no longer.
        drop(unsafe { adopt(frames.pool, offset, 0) });
    }
}

/// What is left of a frame behind its first `start` bytes.
#[inline]
#[allow(clippy::cast_possible_truncation)] // A frame has at most 4096.
fn len_of(size: FrameSize, start: usize) -> u16 {
    (size.bytes() - start) as u16
}

/// Makes the frame at `frame` an mbuf's, with its data at `head` in the frame.
#[inline]
#[allow(clippy::cast_possible_truncation)] // Within a frame.
pub(crate) fn place(mbuf: &mut sys::rte_mbuf, frames: &Frames, frame: usize, head: usize) {
    let start = if head >= BUFFER_AT { BUFFER_AT } else { 0 };
    let (address, iova) = frames.addresses(frame + start);
    mbuf.buf_addr = address.cast();
    mbuf.buf_iova = iova;
    mbuf.buf_len = len_of(frames.pool.frame_size(), start);
    mbuf.data_off = (head - start) as u16;
}

/// Takes over what an mbuf had at `offset` in the pool: `len` bytes of a frame.
///
/// # Safety
/// An mbuf owned the frame, and does so no longer.
#[inline]
pub(crate) unsafe fn adopt(pool: &'static FramePool, offset: usize, len: u32) -> Option<Frame> {
    // SAFETY: the frame went to the mbuf by `into_device`, and comes back once, as the caller promises.
    unsafe { Frame::from_device(pool, offset as u64, len) }
}
