//! Memory in the largest pages to be had: 1 GiB, then 2 MiB, then transparent huge pages. It is the process's own, or that of a file
//! without a name, which another process maps too.
//!
//! Tables and frame pools are random-access working sets far beyond the TLB's reach with 4 KiB pages,
//! so the page size is part of their speed. [`Region::pages`] says which one was obtained.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
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

/// Page-aligned memory, zeroed at first, released on drop. What is shared lives as long as a descriptor of it.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    pages: Pages,
    /// What is to be unmapped in the end.
    mapped: (NonNull<u8>, usize),
    /// Whose memory it is, if not the process's own.
    file: Option<File>,
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

    /// As [`Region::map`], of memory that another process can map too: see [`Region::descriptor`].
    ///
    /// # Errors
    /// [`RegionError`] when it cannot be made or mapped.
    #[cfg(not(miri))]
    pub fn shared(bytes: usize) -> Result<Self, RegionError> {
        let bytes = bytes.max(1);
        for (size, pages) in [(GIB, Pages::Huge1G), (MIB2, Pages::Huge2M)] {
            if bytes >= size
                && let Ok(region) = map::shared(bytes.next_multiple_of(size), pages)
            {
                return Ok(region);
            }
        }
        map::shared(bytes.next_multiple_of(4096), Pages::Transparent)
            .map_err(|source| RegionError::new(bytes, source))
    }

    /// The memory behind a descriptor of [`Region::shared`], with what is in it.
    ///
    /// # Errors
    /// [`RegionError`] when there are fewer than `bytes`, or they cannot be mapped.
    #[cfg(not(miri))]
    pub fn of(file: File, bytes: usize) -> Result<Self, RegionError> {
        map::of(file, bytes).map_err(|source| RegionError::new(bytes, source))
    }

    /// By what another process maps the same memory; `None` where it is the process's own.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.file.as_ref().map(AsFd::as_fd)
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

    /// Gives the memory back to the kernel before the region is dropped; its addresses stay taken. What is shared stays with its
    /// descriptor.
    ///
    /// # Errors
    /// [`RegionError`] when the kernel does not take it; then it is still there.
    ///
    /// # Safety
    /// Nobody reads or writes the memory afterwards.
    pub unsafe fn give_back(&self) -> Result<(), RegionError> {
        let (base, len) = self.mapped;
        // SAFETY: the range is this region's own, and the caller promises that it is not used any more.
        unsafe { map::reserve_only(base, len) }.map_err(|source| RegionError::new(len, source))
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        map::release(self.mapped.0, self.mapped.1);
    }
}

#[cfg(not(miri))]
pub(crate) use map::fill;

#[cfg(not(miri))]
mod map {
    use std::fs::File;
    use std::io;
    use std::os::unix::fs::MetadataExt;
    use std::ptr::{NonNull, null_mut};

    use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, memfd_create};
    use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

    use super::{GIB, MIB2, Pages, Region};

    pub(super) fn huge(len: usize, pages: Pages) -> Option<Region> {
        let size = if pages == Pages::Huge1G { MapFlags::HUGE_1GB } else { MapFlags::HUGE_2MB };
        anonymous(len, MapFlags::HUGETLB | size | MapFlags::POPULATE).ok().map(|base| Region {
            base,
            len,
            pages,
            mapped: (base, len),
            file: None,
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
        Ok(Region { base, len, pages: Pages::Transparent, mapped: (base, len), file: None })
    }

    /// Memory of a new file without a name. All of it is there at once: a page that is not to be had later would be a signal.
    pub(super) fn shared(len: usize, pages: Pages) -> io::Result<Region> {
        let size = match pages {
            Pages::Huge1G => MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
            Pages::Huge2M => MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
            Pages::Transparent => MemfdFlags::empty(),
        };
        let flags = MemfdFlags::CLOEXEC | size;
        // What a machine may demand (`vm.memfd_noexec`), and kernels before 6.3 do not know.
        let made = memfd_create("kaido", flags | MemfdFlags::NOEXEC_SEAL);
        let file = File::from(made.or_else(|_| memfd_create("kaido", flags))?);
        file.set_len(len as u64)?;
        if pages != Pages::Transparent {
            fallocate(&file, FallocateFlags::empty(), 0, len as u64)?;
            return of_file(file, len, pages, MapFlags::POPULATE);
        }
        let region = of_file(file.try_clone()?, len, pages, MapFlags::empty())?;
        fill(&file, 0, region.base, len)?;
        Ok(region)
    }

    /// Gives a file its memory from `offset` on, where it is mapped at `at` and nobody has used it. All of it is there at once: a page
    /// that a full file system does not have would be a signal when it is touched.
    ///
    /// Large pages for files are off on most machines; asked for by name they are had, each where a small one is already. To merge
    /// many takes a copy of them.
    pub(crate) fn fill(file: &File, offset: usize, at: NonNull<u8>, len: usize) -> io::Result<()> {
        let take = |from, len| fallocate(file, FallocateFlags::empty(), (offset + from) as u64, len as u64);
        (0..len).step_by(MIB2).try_for_each(|from| take(from, 4096.min(len - from)))?;
        // SAFETY: the caller's range, in which nothing lies yet. A kernel that cannot refuses, and still serves, more slowly.
        let _ = unsafe { libc::madvise(at.as_ptr().cast(), len, libc::MADV_COLLAPSE) };
        Ok(take(0, len)?)
    }

    pub(super) fn of(file: File, bytes: usize) -> io::Result<Region> {
        let found = file.metadata()?;
        let len = usize::try_from(found.len()).unwrap_or(usize::MAX);
        if bytes > len {
            return Err(io::Error::other(format!("there are {len} to share")));
        }
        let pages = match usize::try_from(found.blksize()) {
            Ok(GIB) => Pages::Huge1G,
            Ok(MIB2) => Pages::Huge2M,
            _ => Pages::Transparent,
        };
        of_file(file, len, pages, MapFlags::POPULATE)
    }

    /// Maps a file from its beginning. Large pages lie at multiples of their size: those of a file of them the kernel puts there
    /// by itself, for others the mapping is made within a reservation.
    fn of_file(file: File, len: usize, pages: Pages, populate: MapFlags) -> io::Result<Region> {
        let (mapped, at) = match pages {
            Pages::Huge1G | Pages::Huge2M => (None, null_mut()),
            Pages::Transparent => {
                let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
                // SAFETY: the kernel chooses the address, so no existing mapping is touched.
                let start = unsafe { mmap_anonymous(null_mut(), len + MIB2, ProtFlags::empty(), flags) }?;
                let start = NonNull::new(start.cast::<u8>()).ok_or_else(at_zero)?;
                (Some((start, len + MIB2)), start.as_ptr().wrapping_add(start.as_ptr().align_offset(MIB2)))
            }
        };
        let fixed = if mapped.is_some() { MapFlags::FIXED } else { MapFlags::empty() };
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | populate);
        // SAFETY: the kernel chooses the address, or it lies in the reservation just made, which is longer than `len` by the most
        // that was skipped.
        let base = match unsafe { mmap(at.cast(), len, access, flags | fixed, &file, 0) } {
            Ok(base) => NonNull::new(base.cast::<u8>()).ok_or_else(at_zero)?,
            Err(error) => {
                if let Some((start, len)) = mapped {
                    release(start, len);
                }
                return Err(error.into());
            }
        };
        Ok(Region { base, len, pages, mapped: mapped.unwrap_or((base, len)), file: Some(file) })
    }

    fn at_zero() -> io::Error {
        io::Error::other("mapped at address zero")
    }

    fn anonymous(len: usize, flags: MapFlags) -> io::Result<NonNull<u8>> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no existing mapping is touched.
        let base = unsafe { mmap_anonymous(null_mut(), len, access, MapFlags::PRIVATE | flags) }?;
        NonNull::new(base.cast()).ok_or_else(at_zero)
    }

    /// Puts a reservation without memory in the place of a mapping.
    ///
    /// # Safety
    /// The range was mapped here, and is not used afterwards.
    pub(super) unsafe fn reserve_only(base: NonNull<u8>, len: usize) -> io::Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: by the contract above nothing of use is in the range.
        unsafe { mmap_anonymous(base.as_ptr().cast(), len, ProtFlags::empty(), flags) }?;
        Ok(())
    }

    pub(super) fn release(base: NonNull<u8>, len: usize) {
        // SAFETY: called once, by the owner, with a range that was mapped here.
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
        Ok(Region { base, len, pages: Pages::Transparent, mapped: (base, len), file: None })
    }

    /// The allocator takes its memory back at once or not at all.
    ///
    /// # Safety
    /// None.
    pub(super) unsafe fn reserve_only(_base: NonNull<u8>, _len: usize) -> io::Result<()> {
        Ok(())
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

    #[cfg(not(miri))]
    #[test]
    fn shared_memory_is_the_same_in_both_mappings() {
        for bytes in [1, 5000, 5 << 20] {
            let region = Region::shared(bytes).unwrap();
            let file = File::from(region.descriptor().unwrap().try_clone_to_owned().unwrap());
            let other = Region::of(file.try_clone().unwrap(), bytes).unwrap();
            assert_eq!((other.len(), other.pages()), (region.len(), region.pages()));
            assert_ne!(other.base(), region.base());
            if region.len() >= MIB2 {
                assert!([&region, &other].iter().all(|it| it.base().as_ptr().addr().is_multiple_of(MIB2)));
            }
            for at in [0, bytes - 1] {
                // SAFETY: inside both regions, which nobody else holds.
                unsafe {
                    assert_eq!(other.base().add(at).read(), 0);
                    region.base().add(at).write(7);
                    assert_eq!(other.base().add(at).read(), 7);
                    region.base().add(at).write(0);
                }
            }
            assert!(Region::of(file, region.len() + 1).is_err());
        }
        assert!(Region::map(1).unwrap().descriptor().is_none());
    }

    #[cfg(not(miri))]
    #[test]
    fn memory_that_was_given_back_is_not_there() {
        use std::os::unix::fs::FileExt;
        let memory = File::open("/proc/self/mem").unwrap();
        for region in [Region::map(5 << 20).unwrap(), Region::shared(5 << 20).unwrap()] {
            // SAFETY: the first octet of a region that nobody else holds.
            unsafe { region.base().write(7) };
            let mut octet = [0];
            let at = region.base().as_ptr().addr() as u64;
            assert_eq!((memory.read_at(&mut octet, at).unwrap(), octet), (1, [7]));
            // SAFETY: nobody uses it.
            unsafe { region.give_back() }.unwrap();
            // Where this may be read all the same, nothing is there.
            assert!(memory.read_at(&mut octet, at).is_err() || octet == [0]);
            // SAFETY: as above.
            unsafe { region.give_back() }.unwrap();
        }
    }
}
