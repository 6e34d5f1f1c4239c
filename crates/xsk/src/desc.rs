//! The descriptor of the RX and TX rings: `struct xdp_desc` of `include/uapi/linux/if_xdp.h`.

/// Set in [`Desc::options`] when the next descriptor of the ring continues the same packet (`XDP_PKT_CONTD`).
pub const PKT_CONTD: u32 = 1;

/// One buffer of a packet; a packet is one descriptor, or with multi-buffer a chain of them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Desc {
    /// Offset of the first byte from the start of the UMEM, in bytes.
    pub addr: u64,
    /// Length of this buffer, in bytes.
    pub len: u32,
    /// [`PKT_CONTD`] or zero; other bits are the kernel's and stay zero.
    pub options: u32,
}

const _: () = assert!(size_of::<Desc>() == 16 && align_of::<Desc>() == 8);
#[cfg(not(any(loom, shuttle)))]
const _: () = assert!(
    size_of::<Desc>() == size_of::<libc::xdp_desc>()
        && core::mem::offset_of!(Desc, len) == core::mem::offset_of!(libc::xdp_desc, len)
        && core::mem::offset_of!(Desc, options) == core::mem::offset_of!(libc::xdp_desc, options)
        && PKT_CONTD == libc::XDP_PKT_CONTD
);

impl Desc {
    /// A buffer that is a whole packet.
    pub const fn new(addr: u64, len: u32) -> Self {
        Self { addr, len, options: 0 }
    }

    /// The same buffer, followed by another of the same packet.
    #[must_use]
    pub const fn continued(mut self) -> Self {
        self.options |= PKT_CONTD;
        self
    }

    /// Whether the next descriptor of the ring belongs to the same packet.
    pub const fn is_continued(&self) -> bool {
        self.options & PKT_CONTD != 0
    }
}
