//! Anonymous memory in the largest pages to be had: 1 GiB, then 2 MiB, then transparent huge pages.
//!
//! Tables and frame pools are random-access working sets far beyond the TLB's reach with 4 KiB pages,
//! so the page size is part of their speed; [`Region::pages`] says which one was obtained.

use std::fmt;
use std::ptr::NonNull;

/// Pages that back a [`Region`] or a table, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pages {
    /// Reserved 1 GiB pages.
    Huge1G,
    /// Reserved 2 MiB pages.
    Huge2M,
    /// 4 KiB pages that the kernel was asked to merge into 2 MiB ones.
    Transparent,
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Huge1G => "1 GiB pages",
            Self::Huge2M => "2 MiB pages",
            Self::Transparent => "transparent huge pages",
        })
    }
}

/// Memory could not be mapped.
#[derive(Debug)]
pub struct RegionError {
    bytes: usize,
    source: std::io::Error,
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot map {} bytes of memory: {}", self.bytes, self.source)
    }
}

impl std::error::Error for RegionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

impl RegionError {
    pub(crate) fn new(bytes: usize, source: std::io::Error) -> Self {
        Self { bytes, source }
    }
}

/// Zeroed, page-aligned, private memory, released on drop.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    pages: Pages,
}

// SAFETY: a region is plain memory owned by this value alone; access goes through raw pointers whose
// users make their own promises.
unsafe impl Send for Region {}
// SAFETY: as above; `&Region` gives out nothing but the address.
unsafe impl Sync for Region {}

pub(crate) const GIB: usize = 1 << 30;
pub(crate) const MIB2: usize = 2 << 20;

impl Region {
    /// Maps at least `bytes` of zeroed memory.
    ///
    /// # Errors
    /// [`RegionError`] when not even ordinary pages can be mapped.
    pub fn map(bytes: usize) -> Result<Self, RegionError> {
        let bytes = bytes.max(1);
        // A region smaller than the page would waste the reservation that another could use.
        if bytes >= GIB
            && let Some(region) = map::huge(bytes.next_multiple_of(GIB), Pages::Huge1G)
        {
            return Ok(region);
        }
        if bytes >= MIB2
            && let Some(region) = map::huge(bytes.next_multiple_of(MIB2), Pages::Huge2M)
        {
            return Ok(region);
        }
        map::transparent(bytes.next_multiple_of(4096)).map_err(|source| RegionError::new(bytes, source))
    }

    /// Maps at least `bytes` of zeroed memory, of which only what is used costs anything: no reserved pages.
    ///
    /// # Errors
    /// [`RegionError`] when there is no room for it.
    pub fn sparse(bytes: usize) -> Result<Self, RegionError> {
        let bytes = bytes.max(1);
        map::transparent(bytes.next_multiple_of(4096)).map_err(|source| RegionError::new(bytes, source))
    }

    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Length in bytes.
    #[allow(clippy::len_without_is_empty)] // A region is never empty.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The pages it stands on.
    pub fn pages(&self) -> Pages {
        self.pages
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        map::release(self.base, self.len);
    }
}

#[cfg(not(miri))]
mod map {
    use std::io;
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

    use super::{Pages, Region};

    pub(super) fn huge(len: usize, pages: Pages) -> Option<Region> {
        let size = if pages == Pages::Huge1G { MapFlags::HUGE_1GB } else { MapFlags::HUGE_2MB };
        anonymous(len, MapFlags::HUGETLB | size | MapFlags::POPULATE).ok().map(|base| Region {
            base,
            len,
            pages,
        })
    }

    pub(super) fn transparent(len: usize) -> io::Result<Region> {
        let base = anonymous(len, MapFlags::NORESERVE)?;
        // SAFETY: the range was mapped just above and nothing lies in it yet.
        let advised = unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        if let Err(error) = advised {
            // A kernel without transparent huge pages still serves, more slowly.
            if error != rustix::io::Errno::INVAL {
                release(base, len);
                return Err(error.into());
            }
        }
        Ok(Region { base, len, pages: Pages::Transparent })
    }

    fn anonymous(len: usize, flags: MapFlags) -> io::Result<NonNull<u8>> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no existing mapping is touched.
        let base = unsafe { mmap_anonymous(null_mut(), len, access, MapFlags::PRIVATE | flags) }?;
        NonNull::new(base.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))
    }

    pub(super) fn release(base: NonNull<u8>, len: usize) {
        // SAFETY: called once, by the owner, with the range that `anonymous` returned.
        let unmapped = unsafe { munmap(base.as_ptr().cast(), len) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
    }
}

/// Miri knows no huge pages; the global allocator stands in.
#[cfg(miri)]
mod map {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::io;
    use std::ptr::NonNull;

    use super::{Pages, Region};

    pub(super) fn huge(_len: usize, _pages: Pages) -> Option<Region> {
        None
    }

    fn layout(len: usize) -> io::Result<Layout> {
        Layout::from_size_align(len, 4096).map_err(io::Error::other)
    }

    pub(super) fn transparent(len: usize) -> io::Result<Region> {
        // SAFETY: the length is at least one page.
        let base = unsafe { alloc_zeroed(layout(len)?) };
        let base = NonNull::new(base).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(Region { base, len, pages: Pages::Transparent })
    }

    pub(super) fn release(base: NonNull<u8>, len: usize) {
        if let Ok(layout) = layout(len) {
            // SAFETY: allocated by `transparent` with the same layout.
            unsafe { dealloc(base.as_ptr(), layout) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_aligned_and_writable() {
        for (bytes, sparse) in [(1, false), (4096, false), (5 << 20, false), (1, true), (5 << 20, true)] {
            let region = if sparse { Region::sparse(bytes) } else { Region::map(bytes) }.unwrap();
            assert!(region.len() >= bytes);
            assert_eq!(region.base().as_ptr() as usize % 4096, 0);
            // SAFETY: the last byte lies inside the region, which nobody else holds.
            unsafe {
                let last = region.base().as_ptr().add(region.len() - 1);
                assert_eq!(last.read(), 0);
                last.write(7);
                assert_eq!(last.read(), 7);
            }
        }
    }
}
