//! What can go wrong when a port is opened.

use std::io;

use crate::netlink::NetlinkError;

/// A port could not be opened, or its device not be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// A system call failed.
    #[error("{device}: {call}: {source}")]
    Sys {
        /// The device, by name or index.
        device: String,
        /// The call and its option.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A device name that the kernel cannot take.
    #[error("{name:?} is no name for a network device: 15 bytes at most, without '/' and blanks")]
    Name {
        /// The name.
        name: String,
    },
    /// The device could not be set up.
    #[error("{device}: {source}")]
    Setup {
        /// The device, by name.
        device: String,
        /// What went wrong.
        source: NetlinkError,
    },
}

impl PortError {
    pub(super) fn sys(device: impl ToString, call: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::Sys { device: device.to_string(), call, source }
    }
}
