//! What can go wrong, in words that say what to do.

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;

use crate::PLAIN_MTU_MAX;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process may not load or attach programs.
    #[error(
        "{action} is not permitted: XDP needs CAP_BPF and CAP_NET_ADMIN (and CAP_PERFMON before kernel 5.19)"
    )]
    Permission {
        /// What was tried.
        action: &'static str,
    },
    /// The plain program takes packets of one buffer only, and the interface sends longer ones.
    #[error(
        "interface {interface} has an MTU of {mtu} bytes, too large for an XDP program without multi-buffer (limit \
         {PLAIN_MTU_MAX} on veth): lower it (`ip link set dev {interface} mtu {PLAIN_MTU_MAX}`, and its peer's) or \
         turn multi-buffer on"
    )]
    MtuTooLarge {
        /// Interface name.
        interface: String,
        /// Its MTU, in bytes; a veth's peer may be the one that is too large.
        mtu: u32,
    },
    /// An interface takes one XDP program.
    #[error(
        "interface {interface} already has an XDP program (id {program}): stop what owns it, or remove it with \
         `ip link set dev {interface} xdp off`"
    )]
    AlreadyAttached {
        /// Interface name.
        interface: String,
        /// Kernel id of the program there, zero when unknown.
        program: u32,
    },
    /// The driver has no native XDP.
    #[error(
        "the driver of interface {interface} does not support native XDP: ask for AttachMode::Auto or Generic"
    )]
    NativeUnsupported {
        /// Interface name.
        interface: String,
    },
    /// No interface of that index in this network namespace.
    #[error("no interface with index {ifindex} in this network namespace")]
    NoInterface {
        /// Interface index.
        ifindex: u32,
    },
    /// Attached twice.
    #[error("this program is already attached to interface {ifindex}")]
    AttachedHere {
        /// Interface index.
        ifindex: u32,
    },
    /// More entries than the map has room for.
    #[error("{count} {what} are too many: the limit is {limit}")]
    TooMany {
        /// What they are.
        what: &'static str,
        /// How many were given.
        count: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A prefix longer than its address.
    #[error("{address}/{length}: the prefix is longer than the address")]
    PrefixLength {
        /// The address.
        address: IpAddr,
        /// The prefix length, in bits.
        length: u8,
    },
    /// The queue cannot be an index of the socket map.
    #[error("queue {queue}: the limit is {} queues", crate::QUEUES_MAX)]
    Queue {
        /// Queue number.
        queue: u32,
    },
    /// A queue has not so many sockets.
    #[error("{targets} sockets of a queue: at least one, and at most {limit}")]
    Targets {
        /// How many, or which one.
        targets: u32,
        /// How many there may be.
        limit: u32,
    },
    /// No VLAN identifier.
    #[error("{vid} is no VLAN identifier: 1 to 4094 are")]
    Vlan {
        /// The number.
        vid: u16,
    },
    /// The descriptor is no AF_XDP socket with an RX ring.
    #[error("queue {queue}: the descriptor is not an AF_XDP socket with an RX ring: {source}")]
    NotASocket {
        /// Queue number.
        queue: u32,
        /// What libbpf said.
        source: libbpf_rs::Error,
    },
    /// A folder of pins lies elsewhere.
    #[error("{} is not on a BPF file system", path.display())]
    NotBpfFs {
        /// The folder.
        path: PathBuf,
    },
    /// A pin cannot be made, found or taken away.
    #[error("pin {}: {source}", path.display())]
    Pin {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A map is none of this program's.
    #[error("the BPF map {name} is another program's, or of another version")]
    ForeignMap {
        /// Its name.
        name: &'static str,
    },
    /// Any other error of libbpf.
    #[error("{action}: {source}")]
    Libbpf {
        /// What was tried.
        action: &'static str,
        /// What libbpf said.
        source: libbpf_rs::Error,
    },
    /// Any other system error.
    #[error("{action}: {source}")]
    Sys {
        /// What was tried.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
}

impl Error {
    /// Makes an error of libbpf this one, with what was tried.
    pub fn libbpf(action: &'static str) -> impl Fn(libbpf_rs::Error) -> Self {
        move |source| match source.kind() {
            libbpf_rs::ErrorKind::PermissionDenied => Self::Permission { action },
            _ => Self::Libbpf { action, source },
        }
    }

    /// Something of a compiled object is not there.
    #[cold]
    pub(crate) fn missing(action: &'static str) -> Self {
        Self::Libbpf { action, source: libbpf_rs::Error::from_raw_os_error(libc::ENOENT) }
    }
}
