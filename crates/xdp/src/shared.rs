//! BPF arrays that the program and this process both have mapped.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use libbpf_rs::{MapHandle, MapType};

use crate::Error;

/// A memory mapping of a BPF map, taken away on drop.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is memory that any thread may reach by its address; whoever does makes their own promises.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

#[allow(clippy::len_without_is_empty)] // None is empty.
impl Mapping {
    /// Maps so many bytes of a map, from an offset on, for reading or writing too.
    ///
    /// # Errors
    /// [`Error::Sys`].
    pub fn new(fd: BorrowedFd<'_>, len: usize, offset: usize, writable: bool) -> Result<Self, Error> {
        let protection = libc::PROT_READ | if writable { libc::PROT_WRITE } else { 0 };
        let offset = libc::off_t::try_from(offset).map_err(|_| out_of_range())?;
        // Populated: a page fault each would cost more than the writing of a session.
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base =
            unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), offset) };
        if base == libc::MAP_FAILED {
            return Err(Error::Sys { action: "mapping a BPF map", source: io::Error::last_os_error() });
        }
        let base = NonNull::new(base.cast()).ok_or_else(out_of_range)?;
        Ok(Self { base, len })
    }

    /// Where it begins.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// How many bytes are mapped.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range that `new` mapped, whose users are gone with this value.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn out_of_range() -> Error {
    Error::Sys { action: "mapping a BPF map", source: io::Error::from_raw_os_error(libc::EOVERFLOW) }
}

/// A `BPF_F_MMAPABLE` array of `T`, zeroed at first. Elements are valid for any bytes.
#[derive(Debug)]
pub struct SharedArray<T> {
    // Before the map: unmapped first.
    mapping: Mapping,
    map: OwnedFd,
    len: u32,
    elements: std::marker::PhantomData<T>,
}

#[allow(clippy::len_without_is_empty)] // None is empty.
impl<T> SharedArray<T> {
    /// Makes an array of that name and so many elements, one at least.
    ///
    /// # Errors
    /// [`Error::Permission`], [`Error::Libbpf`], [`Error::Sys`].
    pub fn create(name: &str, len: u32) -> Result<Self, Error> {
        let mut options = options();
        options.map_flags = libbpf_sys::BPF_F_MMAPABLE;
        let size = u32::try_from(size_of::<T>()).map_err(|_| out_of_range())?;
        let map = MapHandle::create(MapType::Array, Some(name), 4, size, len, &options)
            .map_err(Error::libbpf("creating a BPF array"))?;
        Self::over(map.as_fd(), len)
    }

    /// The array of a descriptor, which another process has made as [`create`](Self::create) does.
    ///
    /// # Errors
    /// [`Error::ForeignMap`] when its elements have another size; [`Error::Sys`].
    pub fn open(name: &'static str, fd: BorrowedFd<'_>) -> Result<Self, Error> {
        let info = bpf_map_info(fd)?;
        let is_ours = info.type_ == libbpf_sys::BPF_MAP_TYPE_ARRAY
            && info.map_flags & libbpf_sys::BPF_F_MMAPABLE != 0
            && usize::try_from(info.value_size) == Ok(size_of::<T>());
        if !is_ours {
            return Err(Error::ForeignMap { name });
        }
        Self::over(fd, info.max_entries)
    }

    /// By the descriptor itself: to open a map by its number takes CAP_SYS_ADMIN.
    fn over(map: BorrowedFd<'_>, len: u32) -> Result<Self, Error> {
        let action = "keeping a BPF map";
        let map = map.try_clone_to_owned().map_err(|source| Error::Sys { action, source })?;
        let bytes = (len as usize * size_of::<T>()).next_multiple_of(page_size());
        let mapping = Mapping::new(map.as_fd(), bytes, 0, true)?;
        Ok(Self { mapping, map, len, elements: std::marker::PhantomData })
    }

    /// A further mapping of all elements.
    ///
    /// # Errors
    /// [`Error::Sys`].
    pub fn map_again(&self) -> Result<Mapping, Error> {
        Mapping::new(self.map.as_fd(), self.mapping.len(), 0, true)
    }

    /// The map.
    pub fn map(&self) -> BorrowedFd<'_> {
        self.map.as_fd()
    }

    /// How many elements there are.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Where the elements begin, and how many bytes are mapped.
    pub fn memory(&self) -> (NonNull<u8>, usize) {
        (self.mapping.base(), self.mapping.len())
    }

    /// The element's place, valid while this value lives.
    ///
    /// # Panics
    /// When there is no such element.
    pub fn at(&self, index: u32) -> NonNull<T> {
        assert!(index < self.len, "index out of range");
        // SAFETY: in range, so within the mapping.
        unsafe { self.mapping.base().cast::<T>().add(index as usize) }
    }
}

fn bpf_map_info(fd: BorrowedFd<'_>) -> Result<libbpf_sys::bpf_map_info, Error> {
    let mut info = libbpf_sys::bpf_map_info::default();
    let mut len = u32::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: the kernel writes no more than that length.
    let result = unsafe { libbpf_sys::bpf_map_get_info_by_fd(fd.as_raw_fd(), &raw mut info, &raw mut len) };
    if result == 0 {
        return Ok(info);
    }
    Err(Error::Sys { action: "asking for a BPF map", source: io::Error::from_raw_os_error(-result) })
}

/// Bytes of a page.
pub fn page_size() -> usize {
    // SAFETY: asks for a constant.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Options of a map, all at their defaults.
pub fn options() -> libbpf_sys::bpf_map_create_opts {
    libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        ..Default::default()
    }
}
