//! What can go wrong, in words that say what to do.

use std::io;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A ring size the kernel would refuse.
    #[error("{ring} ring of {size} entries: the size must be a power of two, at least 1 and at most 2^24")]
    RingSize {
        /// Which ring.
        ring: &'static str,
        /// The size asked for, in entries.
        size: u32,
    },
    /// The packet memory cannot be cut into chunks.
    #[error("UMEM of {len} bytes in chunks of {chunk_size}: {reason}")]
    UmemLayout {
        /// Length of the region, in bytes.
        len: usize,
        /// Chunk size, in bytes.
        chunk_size: u32,
        /// Which rule it breaks.
        reason: &'static str,
    },
    /// The process may not open AF_XDP sockets.
    #[error(
        "AF_XDP sockets need CAP_NET_RAW (and CAP_IPC_LOCK or a larger `ulimit -l` for the UMEM): {source}"
    )]
    Permission {
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel could not pin the packet memory.
    #[error(
        "cannot pin {len} bytes of packet memory: raise `ulimit -l`, grant CAP_IPC_LOCK, or use less: {source}"
    )]
    PinMemory {
        /// Length of the region, in bytes.
        len: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// The driver has no zero-copy for this queue.
    #[error(
        "interface {ifindex} queue {queue}: the driver does not offer zero-copy; ask for BindMode::Auto or Copy"
    )]
    ZeroCopyRefused {
        /// Interface index.
        ifindex: u32,
        /// Queue number.
        queue: u32,
    },
    /// Someone else holds the queue.
    #[error(
        "interface {ifindex} queue {queue} is already bound by another AF_XDP socket (or is being torn down)"
    )]
    QueueBusy {
        /// Interface index.
        ifindex: u32,
        /// Queue number.
        queue: u32,
    },
    /// No interface of that index in this network namespace.
    #[error("no interface with index {ifindex} in this network namespace, or it is down")]
    NoInterface {
        /// Interface index.
        ifindex: u32,
    },
    /// The kernel refused the combination.
    #[error(
        "interface {ifindex} queue {queue}: bind refused as invalid; is the queue number below the channel count \
         (`ethtool -l`), and does the kernel know the flags (XDP_USE_SG needs 6.6)?"
    )]
    BindInvalid {
        /// Interface index.
        ifindex: u32,
        /// Queue number.
        queue: u32,
    },
    /// A further socket asked for another mode than the first of its UMEM.
    #[error("a socket that shares a UMEM takes {what} from the first socket: ask for the same")]
    SharedOptions {
        /// The option that differs.
        what: &'static str,
    },
    /// A socket was taken over, and another mode asked for than it was bound with.
    #[error("a socket that is taken over keeps {what}: ask for the same")]
    AdoptedOptions {
        /// The option that differs.
        what: &'static str,
    },
    /// A socket was to be taken over, and there was none for this queue.
    #[error("interface {ifindex} queue {queue}: no socket was handed over for it")]
    NotOffered {
        /// Interface index.
        ifindex: u32,
        /// Queue number.
        queue: u32,
    },
    /// Any other system call error.
    #[error("{call}: {source}")]
    Sys {
        /// The call and its option.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    /// Refuses sizes of rings that a socket does not take.
    pub(crate) fn check_ring_sizes(fill: u32, completion: u32, rx: u32, tx: u32) -> Result<(), Self> {
        for (ring, size) in [("fill", fill), ("completion", completion), ("RX", rx), ("TX", tx)] {
            if !size.is_power_of_two() || size > 1 << 24 {
                return Err(Self::RingSize { ring, size });
            }
        }
        Ok(())
    }

    /// The system error number beneath, if there is one.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::Permission { source } | Self::PinMemory { source, .. } | Self::Sys { source, .. } => {
                source.raw_os_error()
            }
            _ => None,
        }
    }
}
