//! The system calls this crate makes, each once.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::{Error, Options};

// Not in libc for every target; values of include/uapi/asm-generic/socket.h.
pub(crate) const SO_BUSY_POLL: libc::c_int = 46;
pub(crate) const SO_PREFER_BUSY_POLL: libc::c_int = 69;
pub(crate) const SO_BUSY_POLL_BUDGET: libc::c_int = 70;

/// `AF_XDP` as a socket address carries it.
#[expect(clippy::cast_possible_truncation, reason = "44")]
pub(crate) const FAMILY: u16 = libc::AF_XDP as u16;

#[expect(clippy::cast_possible_truncation, reason = "the structs of this file are a few dozen bytes")]
const fn socklen<T>() -> libc::socklen_t {
    size_of::<T>() as libc::socklen_t
}

/// Opens an unbound AF_XDP socket.
pub(crate) fn open() -> Result<OwnedFd, Error> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        let source = io::Error::last_os_error();
        return Err(match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Error::Permission { source },
            _ => Error::Sys { call: "socket(AF_XDP)", source },
        });
    }
    // SAFETY: a fresh descriptor that no one else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// `setsockopt` with a plain value.
pub(crate) fn set<T>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = socklen::<T>();
    // SAFETY: the pointer and length describe `value`, which lives through the call and is only read.
    let result =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, core::ptr::from_ref(value).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `getsockopt(SOL_XDP)` into a plain struct of integers, zeros where the kernel writes less.
///
/// # Safety
/// Every bit pattern of `T` is valid (a C struct of integers).
pub(crate) unsafe fn get<T>(fd: BorrowedFd<'_>, option: libc::c_int, call: &'static str) -> Result<T, Error> {
    // SAFETY: zero is valid for `T` by contract.
    let mut value: T = unsafe { core::mem::zeroed() };
    let mut len = socklen::<T>();
    // SAFETY: the pointer and length describe `value`, any content of which is valid by contract.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_XDP,
            option,
            core::ptr::from_mut(&mut value).cast(),
            &mut len,
        )
    };
    if result < 0 { Err(Error::Sys { call, source: io::Error::last_os_error() }) } else { Ok(value) }
}

/// What the kernel says of a binding.
pub(crate) fn options(fd: BorrowedFd<'_>) -> Result<Options, Error> {
    // SAFETY: a struct of integers.
    let raw: libc::xdp_options = unsafe { get(fd, libc::XDP_OPTIONS, "getsockopt(XDP_OPTIONS)")? };
    // XDP_OPTIONS_ZEROCOPY
    Ok(Options { zero_copy: raw.flags & 1 != 0 })
}

/// `bind` to a (netdev, queue).
pub(crate) fn bind(fd: BorrowedFd<'_>, address: &libc::sockaddr_xdp) -> io::Result<()> {
    let len = socklen::<libc::sockaddr_xdp>();
    // SAFETY: the pointer and length describe `address`, which is only read.
    let result = unsafe { libc::bind(fd.as_raw_fd(), core::ptr::from_ref(address).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A mapped stretch of a socket's ring; unmapped on drop.
#[derive(Debug)]
pub(crate) struct Region {
    pub(crate) start: core::ptr::NonNull<u8>,
    len: usize,
}

// SAFETY: plain memory mapped into the process; any thread may use or unmap it.
unsafe impl Send for Region {}
// SAFETY: as above; what is shared in it is accessed by atomics and under the contract of `ring::Memory`.
unsafe impl Sync for Region {}

impl Region {
    pub(crate) fn map(fd: BorrowedFd<'_>, len: usize, page_offset: libc::off_t) -> Result<Self, Error> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                fd.as_raw_fd(),
                page_offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Error::Sys { call: "mmap of an AF_XDP ring", source: io::Error::last_os_error() });
        }
        // SAFETY: the kernel maps nothing at address zero unless asked to (MAP_FIXED).
        Ok(Self { start: unsafe { core::ptr::NonNull::new_unchecked(start.cast()) }, len })
    }

    /// Zeroed memory that no socket is behind.
    pub(crate) fn anonymous(len: usize) -> Result<Self, Error> {
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(Error::Sys { call: "mmap of a ring in memory", source: io::Error::last_os_error() });
        }
        // SAFETY: the kernel maps nothing at address zero unless asked to (MAP_FIXED).
        Ok(Self { start: unsafe { core::ptr::NonNull::new_unchecked(start.cast()) }, len })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: our own mapping; every view of it holds an `Arc` of this region, so none is left.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}
