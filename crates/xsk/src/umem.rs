//! The packet memory that the kernel and we share, cut into chunks of equal size.
//!
//! The kernel ties a UMEM to a socket. The first socket that binds takes the socket it was registered on; later
//! ones name any living socket of the same UMEM (`XDP_SHARED_UMEM`). When all of them are gone, the next bind
//! registers the region afresh, so a [`Umem`] outlives its sockets.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::{Error, sys};

/// Bytes the kernel leaves free before a received packet (`XDP_PACKET_HEADROOM`), besides our own headroom.
const XDP_PACKET_HEADROOM: u32 = 256;

/// How the region is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UmemConfig {
    /// Chunk size in bytes: a power of two from 2048 to the page size (4096).
    pub chunk_size: u32,
    /// Bytes kept free at the start of each chunk, besides the kernel's 256.
    pub headroom: u32,
    /// `XDP_UMEM_*` flags, passed on (`XDP_UMEM_TX_SW_CSUM`, ...); zero for none.
    pub flags: u32,
    /// Bytes of TX metadata before a packet; zero for none (`Documentation/networking/xsk-tx-metadata.rst`).
    pub tx_metadata_len: u32,
}

impl Default for UmemConfig {
    fn default() -> Self {
        Self { chunk_size: 4096, headroom: 0, flags: 0, tx_metadata_len: 0 }
    }
}

/// A registered packet memory. Cheap to clone; clones are the same memory.
#[derive(Clone, Debug)]
pub struct Umem {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    start: NonNull<u8>,
    len: usize,
    config: UmemConfig,
    state: Mutex<State>,
}

// SAFETY: `start` is never dereferenced here; it is an address to register and to compute with.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

/// Which sockets there are, and what the first of them settled for all.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// A socket with the region registered, not bound yet.
    fresh: Option<OwnedFd>,
    /// Bound sockets, by any of which a further one may share.
    bound: Vec<Weak<OwnedFd>>,
    /// `sxdp_flags` of the first bind.
    pub(crate) bind_flags: u16,
    /// Whether the first bind got zero-copy.
    pub(crate) zero_copy: bool,
}

impl Umem {
    /// Registers `len` bytes at `start` (page-aligned) as packet memory and pins them.
    ///
    /// # Errors
    /// [`Error::UmemLayout`] when the region cannot be cut so; [`Error::Permission`], [`Error::PinMemory`].
    ///
    /// # Safety
    /// The region is mapped readable and writable for the rest of the process's life, and is accessed by no one but
    /// the owner of each chunk: the kernel reads and writes it as long as any socket or ring of this UMEM exists.
    pub unsafe fn register(start: NonNull<u8>, len: usize, config: UmemConfig) -> Result<Self, Error> {
        // SAFETY: by the caller's promise.
        let umem = unsafe { Self::adopt(start, len, config) }?;
        let fresh = umem.inner.open()?;
        umem.lock().fresh = Some(fresh);
        Ok(umem)
    }

    /// As [`Umem::register`], for sockets that were bound to the same memory elsewhere and come to be
    /// [adopted](crate::Builder::adopt). The region is registered when a socket is bound anew after all of them are gone.
    ///
    /// # Errors
    /// [`Error::UmemLayout`].
    ///
    /// # Safety
    /// As [`Umem::register`].
    pub unsafe fn adopt(start: NonNull<u8>, len: usize, config: UmemConfig) -> Result<Self, Error> {
        let reject = |reason| Err(Error::UmemLayout { len, chunk_size: config.chunk_size, reason });
        if !config.chunk_size.is_power_of_two() || !(2048..=4096).contains(&config.chunk_size) {
            return reject("the chunk size must be 2048 or 4096");
        }
        if !start.as_ptr().addr().is_multiple_of(4096) {
            return reject("the region must start on a page (4096 bytes)");
        }
        if len == 0 || !len.is_multiple_of(config.chunk_size as usize) {
            return reject("the length must be a multiple of the chunk size, and not zero");
        }
        if config.headroom >= config.chunk_size - XDP_PACKET_HEADROOM {
            return reject("the headroom and the kernel's 256 bytes must leave room for a packet");
        }
        Ok(Self { inner: Arc::new(Inner { start, len, config, state: Mutex::default() }) })
    }

    /// How the region is cut.
    pub fn config(&self) -> UmemConfig {
        self.inner.config
    }

    /// Length of the region, in bytes.
    pub fn len(&self) -> usize {
        self.inner.len
    }

    /// Never: a UMEM of no bytes cannot be registered.
    pub fn is_empty(&self) -> bool {
        self.inner.len == 0
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.inner.len / self.inner.config.chunk_size as usize
    }

    /// Offset of the chunk that holds offset `addr`: what goes back into a fill ring, in bytes.
    pub fn chunk_base(&self, addr: u64) -> u64 {
        addr & !u64::from(self.inner.config.chunk_size - 1)
    }

    /// Address of `len` bytes at offset `addr`, if they lie within one chunk. Whether the chunk is yours to touch is
    /// for you to know.
    pub fn bytes(&self, addr: u64, len: u32) -> Option<NonNull<[u8]>> {
        let chunk = self.inner.config.chunk_size as usize;
        let addr = usize::try_from(addr).ok()?;
        let len = len as usize;
        if addr >= self.inner.len || (addr & (chunk - 1)) + len > chunk {
            return None;
        }
        // SAFETY: `addr` is inside the region, and so is the end of its chunk.
        let start = unsafe { self.inner.start.add(addr) };
        Some(NonNull::slice_from_raw_parts(start, len))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.lock()
    }

    /// Takes the registered, unbound socket; registers the region again when an earlier one was used up.
    pub(crate) fn take_fresh(&self, state: &mut State) -> Result<OwnedFd, Error> {
        match state.fresh.take() {
            Some(fd) => Ok(fd),
            None => self.inner.open(),
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every update leaves the state whole, so a panic elsewhere does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<OwnedFd, Error> {
        let fd = sys::open()?;
        let registration = libc::xdp_umem_reg {
            addr: self.start.as_ptr().expose_provenance() as u64,
            len: self.len as u64,
            chunk_size: self.config.chunk_size,
            headroom: self.config.headroom,
            flags: self.config.flags,
            tx_metadata_len: self.config.tx_metadata_len,
        };
        match sys::set(fd.as_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, &registration) {
            Ok(()) => Ok(fd),
            Err(source) => Err(match source.raw_os_error() {
                Some(libc::ENOBUFS | libc::ENOMEM | libc::EPERM) => {
                    Error::PinMemory { len: self.len, source }
                }
                _ => Error::Sys { call: "setsockopt(XDP_UMEM_REG)", source },
            }),
        }
    }
}

impl State {
    /// A living socket of this UMEM, by which another may share it.
    pub(crate) fn anchor(&mut self) -> Option<Arc<OwnedFd>> {
        self.bound.retain(|fd| fd.strong_count() > 0);
        self.bound.iter().find_map(Weak::upgrade)
    }

    pub(crate) fn add(&mut self, fd: &Arc<OwnedFd>) {
        self.bound.push(Arc::downgrade(fd));
    }
}
