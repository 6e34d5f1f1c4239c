//! Address space that is given memory from its start as it is needed.
//!
//! A table is made for the most keys it may ever hold; what it takes of the machine is what it holds.
//! Addresses stay for good, so readers keep no lock and no second pointer while it grows.
//!
//! The memory may be that of a file, which then has it when the process is gone.

use std::fs::File;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use crate::region::{MIB2, Pages, RegionError};

/// How far memory runs ahead of use, unless pages of 1 GiB are to be had. Each step in reserved pages stays a mapping by itself, of
/// which a process has 65 530.
const STEP: usize = 8 << 20;
/// The same of memory of a file: one large page, as who puts a key in waits for it.
const STEP_OF_FILE: usize = MIB2;

/// Reserved address space, zeroed where it was committed.
#[derive(Debug)]
pub(crate) struct Reserve {
    base: NonNull<u8>,
    len: usize,
    committed: Mutex<CommittedMemory>,
    /// Whose memory it is, if not the process's own.
    file: Option<File>,
    /// What is to be unmapped in the end.
    mapping: map::Mapping,
}

#[derive(Clone, Copy, Debug)]
struct CommittedMemory {
    bytes: usize,
    pages: Pages,
}

// SAFETY: reserved memory is plain memory owned by this value alone; access goes through raw pointers
// whose users make their own promises.
unsafe impl Send for Reserve {}
// SAFETY: as above; `&Reserve` gives out nothing but the address.
unsafe impl Sync for Reserve {}

impl Reserve {
    /// Reserves at least `bytes`, none of them to be touched before [`Reserve::commit`].
    ///
    /// # Errors
    /// [`RegionError`] when there is not so much address space.
    pub(crate) fn new(bytes: usize) -> Result<Self, RegionError> {
        let bytes = bytes.max(1);
        let (mapping, base, len) = map::reserve(bytes).map_err(|source| RegionError::new(bytes, source))?;
        // The largest pages until a step had to do with less.
        let committed = Mutex::new(CommittedMemory { bytes: 0, pages: Pages::Huge1G });
        Ok(Self { base, len, committed, file: None, mapping })
    }

    /// As [`Reserve::new`], over the memory of a file, as much of which is committed as it has.
    ///
    /// # Errors
    /// [`RegionError`] when there is not so much address space, or the file cannot be mapped.
    pub(crate) fn over(file: File, bytes: usize) -> Result<Self, RegionError> {
        let mut reserve = Self::new(bytes)?;
        reserve.file = Some(file);
        let failed = |source| RegionError::new(bytes, source);
        let there =
            reserve.file.as_ref().map_or(Ok(0), |file| file.metadata().map(|it| it.len())).map_err(failed)?;
        let there = usize::try_from(there).unwrap_or(usize::MAX).min(reserve.len);
        match reserve.commit(there) {
            true => Ok(reserve),
            false => Err(failed(std::io::Error::last_os_error())),
        }
    }

    /// Gives the memory of a file behind the first `bytes` back to it, zeroed when it is committed again.
    ///
    /// # Errors
    /// When the file cannot be made shorter.
    pub(crate) fn shorten(&self, bytes: usize) -> std::io::Result<()> {
        let mut committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = &self.file else { return Ok(()) };
        let kept = bytes.next_multiple_of(STEP_OF_FILE).min(committed.bytes);
        file.set_len(bytes as u64)?;
        file.set_len(kept as u64)?;
        committed.bytes = kept;
        Ok(())
    }

    /// First byte.
    #[inline(always)]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Has memory behind at least the first `bytes`; `false` when there is none to be had.
    pub(crate) fn commit(&self, bytes: usize) -> bool {
        let mut committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes > self.len {
            return false;
        }
        while committed.bytes < bytes {
            let left = self.len - committed.bytes;
            // SAFETY: `committed` is inside the reservation.
            let at = unsafe { self.base.add(committed.bytes) };
            let step = match &self.file {
                None => map::commit(at, left),
                Some(file) => map::commit_of(file, committed.bytes, at, left),
            };
            let Some((step, pages)) = step else { return false };
            committed.bytes += step;
            committed.pages = committed.pages.max(pages);
        }
        true
    }

    /// Bytes that were committed, and the smallest pages among them.
    pub(crate) fn committed(&self) -> (usize, Pages) {
        let committed = self.committed.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = if committed.bytes == 0 { Pages::Transparent } else { committed.pages };
        (committed.bytes, pages)
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        map::release(&self.mapping);
    }
}

#[cfg(not(miri))]
mod map {
    use std::fs::File;
    use std::io;
    use std::ptr::{NonNull, null_mut};

    use rustix::mm::{
        Advice, MapFlags, MprotectFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect,
        mremap_fixed, munmap,
    };

    use super::{Pages, STEP, STEP_OF_FILE};
    use crate::region::{GIB, MIB2, fill};

    pub(super) type Mapping = (NonNull<u8>, usize);

    /// Reserves an aligned range; also the mapping that it lies in.
    pub(super) fn reserve(bytes: usize) -> io::Result<(Mapping, NonNull<u8>, usize)> {
        let align = match bytes {
            GIB.. => GIB,
            MIB2.. => MIB2,
            _ => 4096,
        };
        let len = bytes.checked_next_multiple_of(align.min(MIB2)).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapped = len.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the address, so no existing mapping is touched.
        let start = unsafe { mmap_anonymous(null_mut(), mapped, ProtFlags::empty(), flags) }?;
        let start =
            NonNull::new(start.cast::<u8>()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        let skipped = start.as_ptr().align_offset(align);
        // SAFETY: `skipped` is less than `align`, by which the mapping is longer than `len`.
        let base = unsafe { start.add(skipped) };
        if align > 4096 {
            // SAFETY: the range was mapped just above and nothing lies in it yet. A kernel without
            // transparent huge pages refuses and still serves, more slowly.
            let _ = unsafe { madvise(base.as_ptr().cast(), len, Advice::LinuxHugepage) };
        }
        Ok(((start, mapped), base, len))
    }

    /// Gives the next step of a reservation its memory: `None` when the machine has none.
    pub(super) fn commit(at: NonNull<u8>, left: usize) -> Option<(usize, Pages)> {
        if left >= GIB && at.as_ptr().align_offset(GIB) == 0 && huge(at, GIB, MapFlags::HUGE_1GB) {
            return Some((GIB, Pages::Huge1G));
        }
        let step = left.min(STEP);
        if step.is_multiple_of(MIB2) && huge(at, step, MapFlags::HUGE_2MB) {
            return Some((step, Pages::Huge2M));
        }
        // SAFETY: the range is part of our reservation and nobody has used it yet.
        let opened =
            unsafe { mprotect(at.as_ptr().cast(), step, MprotectFlags::READ | MprotectFlags::WRITE) };
        opened.is_ok().then_some((step, Pages::Transparent))
    }

    /// As [`commit`], with the memory of a file from `offset` on, which is made as long as that takes.
    pub(super) fn commit_of(
        file: &File,
        offset: usize,
        at: NonNull<u8>,
        left: usize,
    ) -> Option<(usize, Pages)> {
        let step = left.min(STEP_OF_FILE);
        let before = file.metadata().ok()?.len();
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        file.set_len(before.max((offset + step) as u64)).ok()?;
        // SAFETY: the range is part of our reservation and nobody has used it yet; what is mapped takes its place.
        let mapped = unsafe {
            mmap(at.as_ptr().cast(), step, ProtFlags::READ | ProtFlags::WRITE, flags, file, offset as u64)
        };
        let filled = mapped.is_ok() && fill(file, offset, at, step).is_ok();
        if !filled {
            // The next start takes as much memory as the file is long.
            let _ = file.set_len(before);
        }
        filled.then_some((step, Pages::Transparent))
    }

    /// Moves huge pages, where the machine has them in reserve, to a part of the reservation. They are
    /// mapped elsewhere first: to map them in place and fail would leave a hole that another thread's
    /// mapping could fall into.
    fn huge(at: NonNull<u8>, len: usize, size: MapFlags) -> bool {
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | size | MapFlags::POPULATE;
        // SAFETY: the kernel chooses the address, so no existing mapping is touched.
        let Ok(pages) =
            (unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) })
        else {
            return false;
        };
        // SAFETY: both ranges are ours: the pages just mapped, and a part of the reservation that nobody
        // has used yet, which they replace.
        let moved = unsafe { mremap_fixed(pages, len, len, MremapFlags::MAYMOVE, at.as_ptr().cast()) };
        if moved.is_err() {
            // SAFETY: the pages stayed where they were mapped above.
            let unmapped = unsafe { munmap(pages, len) };
            debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
        }
        moved.is_ok()
    }

    pub(super) fn release(&(start, mapped): &Mapping) {
        // SAFETY: called once, by the owner, with the range that `reserve` mapped.
        let unmapped = unsafe { munmap(start.as_ptr().cast(), mapped) };
        debug_assert!(unmapped.is_ok(), "munmap of our own mapping");
    }
}

/// Miri knows no reservations; the global allocator stands in with all of the memory.
#[cfg(miri)]
mod map {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::io;
    use std::ptr::NonNull;

    use super::Pages;

    pub(super) type Mapping = (NonNull<u8>, Layout);

    pub(super) fn reserve(bytes: usize) -> io::Result<(Mapping, NonNull<u8>, usize)> {
        let layout = Layout::from_size_align(bytes.next_multiple_of(4096), 4096).map_err(io::Error::other)?;
        // SAFETY: the length is at least one page.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(((base, layout), base, layout.size()))
    }

    pub(super) fn commit(_at: NonNull<u8>, left: usize) -> Option<(usize, Pages)> {
        Some((left, Pages::Transparent))
    }

    pub(super) fn commit_of(_: &std::fs::File, _: usize, _: NonNull<u8>, _: usize) -> Option<(usize, Pages)> {
        None
    }

    pub(super) fn release(&(base, layout): &Mapping) {
        // SAFETY: allocated by `reserve` with the same layout.
        unsafe { dealloc(base.as_ptr(), layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_zeroed_and_in_steps() {
        let reserve = Reserve::new(64 << 20).unwrap();
        assert_eq!(reserve.committed(), (0, Pages::Transparent));
        assert!(reserve.commit(1));
        let (first, _) = reserve.committed();
        assert!(first >= 1);
        if !cfg!(miri) {
            assert!(first < 64 << 20, "one byte brought {first}");
        }
        assert!(reserve.commit(40 << 20));
        let (second, _) = reserve.committed();
        assert!(second >= 40 << 20);
        for at in [0, first - 1, first.min(second - 1), second - 1] {
            // SAFETY: inside what was committed, and nobody else has it.
            unsafe {
                let byte = reserve.base().add(at);
                byte.write(byte.read() + 1);
                assert!(byte.read() >= 1);
            }
        }
        assert!(!reserve.commit((64 << 20) + 1), "no more than was reserved");
    }

    #[cfg(not(miri))]
    #[test]
    fn the_memory_of_a_file_is_there_again() {
        use rustix::fs::{MemfdFlags, memfd_create};
        let file = File::from(memfd_create("reserve", MemfdFlags::CLOEXEC).unwrap());
        let reserve = Reserve::over(file.try_clone().unwrap(), 64 << 20).unwrap();
        assert_eq!(reserve.committed().0, 0);
        assert!(reserve.commit(20 << 20));
        let places = [0, 5 << 20, (20 << 20) - 1];
        for at in places {
            // SAFETY: inside what was committed, and nobody else has it.
            unsafe { reserve.base().add(at).write(7) };
        }
        drop(reserve);
        let again = Reserve::over(file, 64 << 20).unwrap();
        assert!(again.committed().0 >= 20 << 20);
        // SAFETY: as above.
        let read = |at| unsafe { again.base().add(at).read() };
        assert_eq!(places.map(read), [7; 3]);
        again.shorten((5 << 20) + 1).unwrap();
        assert!(again.committed().0 < 20 << 20 && again.commit(20 << 20));
        assert_eq!(places.map(read), [7, 7, 0]);
    }

    #[cfg(not(miri))]
    #[test]
    fn a_file_that_cannot_be_mapped_keeps_its_length() {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(memfd_create("reserve", flags).unwrap());
        fcntl_add_seals(&file, SealFlags::FUTURE_WRITE).unwrap();
        let reserve = Reserve::over(file.try_clone().unwrap(), 64 << 20).unwrap();
        assert!(!reserve.commit(1));
        assert_eq!((reserve.committed().0, file.metadata().unwrap().len()), (0, 0));
    }

    #[test]
    fn what_cannot_be_reserved_is_an_error() {
        assert!(Reserve::new(usize::MAX / 2).is_err());
    }
}
