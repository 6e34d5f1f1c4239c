//! The reader's side of a BPF ring buffer (`kernel/bpf/ringbuf.c`).
//!
//! ```text
//!  page 0, ours          page 1, the kernel's    data, mapped twice in a row: a record never wraps
//!  [consumer position]   [producer position]     [length | busy | discarded][page offset] payload ...
//! ```

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use kaido_xdp::Error;
use kaido_xdp::maps::{Mapping, options, page_size};
use libbpf_rs::{MapHandle, MapType};

use super::abi::EVENTS_BYTES;

const BUSY: u32 = 1 << 31;
const DISCARDED: u32 = 1 << 30;
const HEADER_LEN: u64 = 8;

#[derive(Debug)]
pub(super) struct Events {
    consumer: Mapping,
    producer: Mapping,
    page: usize,
    map: MapHandle,
}

impl Events {
    pub(super) fn create() -> Result<Self, Error> {
        let map = MapHandle::create(MapType::RingBuf, Some("offload_events"), 0, 0, EVENTS_BYTES, &options())
            .map_err(Error::libbpf("creating a BPF ring buffer"))?;
        let page = page_size();
        let consumer = Mapping::new(map.as_fd(), page, 0, true)?;
        let producer = Mapping::new(map.as_fd(), page + 2 * EVENTS_BYTES as usize, page, false)?;
        Ok(Self { consumer, producer, page, map })
    }

    pub(super) fn map(&self) -> &MapHandle {
        &self.map
    }

    /// The counter of the next event; none while there is no other.
    pub(super) fn next(&mut self) -> Option<u32> {
        loop {
            // SAFETY: page-aligned words at the start of their pages, which both sides only touch atomically.
            let (consumer, producer) = unsafe {
                (
                    self.consumer.base().cast::<AtomicU64>().as_ref(),
                    self.producer.base().cast::<AtomicU64>().as_ref(),
                )
            };
            let position = consumer.load(Ordering::Relaxed);
            // Acquire: records before the position are seen with it.
            if position >= producer.load(Ordering::Acquire) {
                return None;
            }
            let at = self.data(position);
            // SAFETY: a record begins here, with its length, eight-byte aligned.
            let length = unsafe { at.cast::<AtomicU32>().as_ref() }.load(Ordering::Acquire);
            if length & BUSY != 0 {
                return None;
            }
            let octets = length & !(BUSY | DISCARDED);
            // SAFETY: the record's payload, at least a word long by what is asked first.
            let event =
                (length & DISCARDED == 0 && octets >= 4).then(|| unsafe { at.add(8).cast::<u32>().read() });
            // Release: the record was read before the kernel may write there again.
            let size = HEADER_LEN + u64::from(octets).next_multiple_of(8);
            consumer.store(position + size, Ordering::Release);
            if event.is_some() {
                return event;
            }
        }
    }

    fn data(&self, position: u64) -> NonNull<u8> {
        #[allow(clippy::cast_possible_truncation)] // Masked to the ring.
        let offset = (position & (u64::from(EVENTS_BYTES) - 1)) as usize;
        // SAFETY: within the first copy of the data, behind the producer's page.
        unsafe { self.producer.base().add(self.page + offset) }
    }
}
