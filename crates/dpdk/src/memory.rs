//! The frame pool as DPDK knows it: registered memory, with the addresses by which devices reach it.

use std::ptr::NonNull;
use std::sync::Arc;

use kaido_engine::FramePool;
use kaido_table::Pages;

use crate::eal::Eal;
use crate::error::{DpdkError, last_error, reason};
use crate::{log, sys};

/// The page that every pool is a whole number of.
const SMALLEST_PAGE: usize = 4096;

/// No address for devices: RTE_BAD_IOVA.
pub(crate) const BAD_IOVA: u64 = u64::MAX;

/// A frame pool that DPDK's devices may use.
#[derive(Clone, Debug)]
pub struct DpdkPool(Arc<RegisteredMemory>);

#[derive(Debug)]
struct RegisteredMemory {
    frames: Frames,
    page: usize,
    eal: Eal,
}

/// Where the frames are, for the processor and for devices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frames {
    pub(crate) pool: &'static FramePool,
    pub(crate) base: NonNull<u8>,
    pub(crate) len: usize,
    /// By page, when devices use physical addresses: leaked with the pool that it describes.
    physical: Option<Physical>,
}

#[derive(Clone, Copy, Debug)]
struct Physical {
    page: usize,
    addresses: &'static [u64],
}

// SAFETY: the base is the address of the frame pool, which is shared by all threads; its bytes are only reached by
// who owns a frame.
unsafe impl Send for Frames {}
// SAFETY: as above.
unsafe impl Sync for Frames {}

impl DpdkPool {
    /// Makes the whole pool known to DPDK, once for all devices.
    ///
    /// # Errors
    /// [`DpdkError::MovablePages`] when devices need physical addresses and the pool is not in reserved huge pages;
    /// [`DpdkError::Call`].
    pub fn register(eal: &Eal, pool: &'static FramePool) -> Result<Self, DpdkError> {
        let (base, len) = pool.memory();
        // Mapped so far: an odd number of frames of half a page leaves half of one.
        let len = len.next_multiple_of(SMALLEST_PAGE);
        let page = page_of(pool.pages(), len);
        // SAFETY: the EAL is started.
        let mode = unsafe { sys::rte_eal_iova_mode() };
        let physical = match mode {
            sys::rte_iova_mode_RTE_IOVA_PA if pool.pages() == Pages::Transparent => {
                return Err(DpdkError::MovablePages);
            }
            sys::rte_iova_mode_RTE_IOVA_PA => Some(Physical { page, addresses: physical(base, len, page)? }),
            _ => None,
        };
        log::clear();
        // SAFETY: the memory lives as long as the process; without addresses none are read.
        let status =
            unsafe { sys::rte_extmem_register(base.as_ptr().cast(), len, std::ptr::null_mut(), 0, page) };
        if status < 0 {
            return Err(DpdkError::Call {
                device: "frame pool".to_owned(),
                call: "rte_extmem_register",
                reason: reason(last_error()),
                said: log::complaints(),
            });
        }
        let frames = Frames { pool, base, len, physical };
        Ok(Self(Arc::new(RegisteredMemory { frames, page, eal: eal.clone() })))
    }

    pub(crate) fn eal(&self) -> &Eal {
        &self.0.eal
    }

    pub(crate) fn frames(&self) -> Frames {
        self.0.frames
    }

    /// Has the IOMMU let a device reach the frames. Never undone: the mapping ends with DPDK, and may serve
    /// several devices.
    pub(crate) fn map_for(&self, name: &str, device: *mut sys::rte_device) -> Result<(), DpdkError> {
        let Frames { base, len, physical, .. } = self.0.frames;
        let parts: Vec<(usize, usize, u64)> = match physical {
            None => vec![(0, len, base.as_ptr() as u64)],
            Some(physical) => (0..len)
                .step_by(physical.page)
                .zip(physical.addresses)
                .map(|(at, &address)| (at, physical.page.min(len - at), address))
                .collect(),
        };
        for (at, len, address) in parts {
            log::clear();
            // SAFETY: the device is one of DPDK's, and the part lies within the pool, which is never unmapped.
            let status = unsafe { sys::rte_dev_dma_map(device, base.as_ptr().add(at).cast(), address, len) };
            // A bus that has nothing to map, and a device that goes by physical addresses, say that they cannot.
            let unable = status == -libc::ENOTSUP || last_error() == libc::ENOTSUP;
            if status < 0 && !unable {
                let reason = reason(last_error());
                let said = log::complaints();
                return Err(DpdkError::Call {
                    device: name.to_owned(),
                    call: "rte_dev_dma_map",
                    reason,
                    said,
                });
            }
        }
        Ok(())
    }
}

impl Drop for RegisteredMemory {
    fn drop(&mut self) {
        let Frames { base, len, .. } = self.frames;
        // SAFETY: registered with the same range, and every device that knew of it is closed.
        let status = unsafe { sys::rte_extmem_unregister(base.as_ptr().cast(), len) };
        if status < 0 {
            tracing::debug!(
                reason = reason(last_error()),
                page = self.page,
                "the frame pool stays registered"
            );
        }
    }
}

impl Frames {
    /// The offset of an address in the pool; `None` for an address elsewhere.
    #[inline]
    pub(crate) fn offset_of(&self, address: *const u8) -> Option<usize> {
        let offset = (address as usize).wrapping_sub(self.base.as_ptr() as usize);
        (offset < self.len).then_some(offset)
    }

    /// The offset at which the frame begins that a byte of the pool is in.
    #[inline]
    #[allow(clippy::cast_possible_truncation)] // Offsets in memory.
    pub(crate) fn begin(&self, at: u64) -> usize {
        self.pool.frame_begin(at) as usize
    }

    /// The address of an offset in the pool, and that by which devices go.
    #[inline]
    pub(crate) fn addresses(&self, offset: usize) -> (*mut u8, u64) {
        debug_assert!(offset < self.len);
        let address = self.base.as_ptr().wrapping_add(offset);
        match self.physical {
            None => (address, address as u64),
            Some(Physical { page, addresses }) => {
                (address, addresses[offset / page] + (offset % page) as u64)
            }
        }
    }
}

/// The largest page that the pool stands on and is a whole number of.
fn page_of(pages: Pages, len: usize) -> usize {
    let sizes = match pages {
        Pages::Huge1G => &[1 << 30, 2 << 20][..],
        Pages::Huge2M => &[2 << 20],
        Pages::Transparent => &[],
    };
    sizes.iter().copied().find(|size| len.is_multiple_of(*size)).unwrap_or(SMALLEST_PAGE)
}

fn physical(base: NonNull<u8>, len: usize, page: usize) -> Result<&'static [u64], DpdkError> {
    let addresses: Vec<u64> = (0..len)
        .step_by(page)
        // SAFETY: the address lies in the pool; the page table is read for it.
        .map(|at| unsafe { sys::rte_mem_virt2iova(base.as_ptr().add(at).cast()) })
        .collect();
    if addresses.contains(&BAD_IOVA) {
        return Err(DpdkError::Call {
            device: "frame pool".to_owned(),
            call: "rte_mem_virt2iova",
            reason: "the kernel does not tell physical addresses".to_owned(),
            said: "Permission denied".to_owned(),
        });
    }
    Ok(addresses.leak())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_registered_in_its_pages_where_they_fit() {
        const MIB: usize = 1 << 20;
        assert_eq!(page_of(Pages::Transparent, 64 * MIB), 4096);
        assert_eq!(page_of(Pages::Huge2M, 64 * MIB), 2 * MIB);
        assert_eq!(page_of(Pages::Huge2M, 3 * MIB), 4096);
        assert_eq!(page_of(Pages::Huge1G, 3 << 30), 1 << 30);
        assert_eq!(page_of(Pages::Huge1G, (1 << 30) + 2 * MIB), 2 * MIB);
    }

    #[test]
    fn addresses_and_offsets_are_each_others() {
        let pool = FramePool::leak(4).unwrap();
        let (base, len) = pool.memory();
        let plain = Frames { pool, base, len, physical: None };
        let (address, iova) = plain.addresses(4100);
        assert_eq!((plain.offset_of(address), iova), (Some(4100), address as u64));
        assert_eq!(plain.offset_of(base.as_ptr().wrapping_add(len)), None);
        assert_eq!(plain.offset_of(base.as_ptr().wrapping_sub(1)), None);
        let physical = Physical { page: 8192, addresses: &[0x10_0000, 0x50_0000] };
        let far = Frames { physical: Some(physical), ..plain };
        assert_eq!(far.addresses(8191).1, 0x10_1fff);
        assert_eq!(far.addresses(8192 + 256).1, 0x50_0100);
    }
}
