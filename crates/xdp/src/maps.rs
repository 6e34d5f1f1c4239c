//! The maps of programs, as their loaders fill and read them.

use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle};

pub use crate::prefix::{address_key, prefix_key};
pub use crate::shared::{Mapping, SharedArray, options, page_size};
pub use crate::table::Table;

use crate::Error;

/// The values of an element of a per-CPU array.
///
/// # Errors
/// [`Error::Libbpf`].
pub fn per_cpu(map: &MapHandle, at: u32) -> Result<Vec<Vec<u8>>, Error> {
    let values =
        map.lookup_percpu(&at.to_ne_bytes(), MapFlags::ANY).map_err(Error::libbpf("reading the counters"))?;
    Ok(values.unwrap_or_default())
}

/// Puts an AF_XDP socket, bound to a queue, at its place in a map of sockets.
///
/// # Errors
/// [`Error::NotASocket`], [`Error::Permission`].
pub fn register_socket(
    sockets: &MapHandle,
    place: u32,
    queue: u32,
    socket: BorrowedFd<'_>,
) -> Result<(), Error> {
    let value = socket.as_raw_fd().to_ne_bytes();
    sockets.update(&place.to_ne_bytes(), &value, MapFlags::ANY).map_err(|source| match source.kind() {
        libbpf_rs::ErrorKind::PermissionDenied => Error::Permission { action: "registering a socket" },
        _ => Error::NotASocket { queue, source },
    })
}

/// Takes the socket at a place out of a map of sockets; a no-op when there is none.
///
/// # Errors
/// [`Error::Libbpf`].
pub fn unregister_socket(sockets: &MapHandle, place: u32) -> Result<(), Error> {
    match sockets.delete(&place.to_ne_bytes()) {
        Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
            Err(Error::libbpf("unregistering a socket")(error))
        }
        _ => Ok(()),
    }
}
