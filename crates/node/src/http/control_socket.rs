//! The control socket: who has the file.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The listening socket. Its file is removed in the end.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    listener: UnixListener,
    /// What is to be removed.
    path: Option<PathBuf>,
}

impl ControlSocket {
    /// Listens at `path`, which only the node's user may connect to, and the members of a group. What a killed node left there is
    /// replaced; a node that still answers is not.
    pub(crate) fn open(path: &Path, group: Option<u32>) -> io::Result<Self> {
        if let Ok(found) = fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                return Err(io::Error::new(ErrorKind::AlreadyExists, "there is a file that is no socket"));
            }
            if UnixStream::connect(path).is_ok() {
                return Err(io::Error::new(ErrorKind::AddrInUse, "another node answers there"));
            }
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        if let Some(group) = group {
            chown(path, None, Some(group)).map_err(|error| {
                let why = format!("group {group} cannot have it, as the node's user is no member: {error}");
                io::Error::new(error.kind(), why)
            })?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o660))?;
        }
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path: Some(path.to_owned()) })
    }

    /// Listens by the socket of another process, whose it stays until it is [taken](Self::take).
    pub(crate) fn adopt(listener: OwnedFd) -> io::Result<Self> {
        let listener = UnixListener::from(listener);
        listener.set_nonblocking(true)?;
        Ok(Self { listener, path: None })
    }

    /// The socket, at this path, is this process's now.
    pub(crate) fn take(&mut self, path: &Path) {
        self.path = Some(path.to_owned());
    }

    /// The listening socket.
    pub(crate) const fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Leaves the socket to another process, which has it too.
    pub(crate) fn leave(&mut self) {
        self.path = None;
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Already gone is as good.
            let _ = fs::remove_file(path);
        }
    }
}
