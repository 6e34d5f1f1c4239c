//! Pins: programs and maps that outlive the process, as files of a folder of the BPF file system (`bpffs`).
//!
//! A pinned link keeps its program on the interface, and the program its maps. Who starts next finds both by their names.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use libbpf_sys as sys;
use rustix::fs::StatFs;

use crate::Error;

/// `BPF_FS_MAGIC`.
const BPF_FS: i64 = 0xcafe_4a11;
/// Of a name of something that is to take the place of what is pinned. The file system takes no dots.
const NEXT: &str = "-next";

/// Whether an open folder lies on a BPF file system, so that it may be a folder of pins.
///
/// # Errors
/// Those of `fstatfs(2)`.
pub fn is_on_bpf(folder: impl AsFd) -> io::Result<bool> {
    Ok(is_bpf(&rustix::fs::fstatfs(folder)?))
}

// The width of the field is the machine's.
#[allow(clippy::useless_conversion)]
fn is_bpf(found: &StatFs) -> bool {
    i64::from(found.f_type) == BPF_FS
}

/// A folder of pins.
#[derive(Clone, Debug)]
pub struct PinFolder {
    path: PathBuf,
}

impl PinFolder {
    /// The folder, which is made where it is missing.
    ///
    /// # Errors
    /// [`Error::NotBpfFs`], [`Error::Pin`].
    pub fn make(path: &Path) -> Result<Self, Error> {
        let fault = |source| Error::Pin { path: path.to_owned(), source };
        // Only root may look: a map that somebody else opens is one that he may write.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(fault)?;
        Self::find(path).and_then(|found| found.ok_or_else(|| fault(io::ErrorKind::NotFound.into())))
    }

    /// The folder, where it is there.
    ///
    /// # Errors
    /// [`Error::NotBpfFs`], [`Error::Pin`].
    pub fn find(path: &Path) -> Result<Option<Self>, Error> {
        match rustix::fs::statfs(path) {
            Ok(found) if is_bpf(&found) => Ok(Some(Self { path: path.to_owned() })),
            Ok(_) => Err(Error::NotBpfFs { path: path.to_owned() }),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(Error::Pin { path: path.to_owned(), source: error.into() }),
        }
    }

    /// The names of what is pinned there.
    ///
    /// # Errors
    /// [`Error::Pin`].
    pub fn names(&self) -> Result<Vec<String>, Error> {
        let listed = fs::read_dir(&self.path).map_err(|source| self.fault("", source))?;
        let names = listed.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        Ok(names.collect())
    }

    /// Pins what a descriptor stands for, in the place of what has the name.
    ///
    /// # Errors
    /// [`Error::Pin`].
    pub fn pin(&self, name: &str, fd: BorrowedFd<'_>) -> Result<(), Error> {
        self.pin_next(name, fd)?;
        self.take_place(name)
    }

    /// Pins what is to take the place of what has the name, beside it: [`PinFolder::get_next`] finds it until
    /// [`PinFolder::take_place`].
    ///
    /// # Errors
    /// [`Error::Pin`].
    pub fn pin_next(&self, name: &str, fd: BorrowedFd<'_>) -> Result<(), Error> {
        let next = format!("{name}{NEXT}");
        self.remove(&next)?;
        let path = self.c_path(&next)?;
        // SAFETY: a string that lives through the call.
        let result = unsafe { sys::bpf_obj_pin(fd.as_raw_fd(), path.as_ptr()) };
        if result == 0 { Ok(()) } else { Err(self.fault(&next, io::Error::from_raw_os_error(-result))) }
    }

    /// Has what was pinned beside a name take its place.
    ///
    /// # Errors
    /// [`Error::Pin`].
    pub fn take_place(&self, name: &str) -> Result<(), Error> {
        let next = self.path.join(format!("{name}{NEXT}"));
        fs::rename(next, self.path.join(name)).map_err(|source| self.fault(name, source))
    }

    /// What is pinned by a name.
    ///
    /// # Errors
    /// [`Error::Pin`].
    pub fn get(&self, name: &str) -> Result<Option<OwnedFd>, Error> {
        let path = self.c_path(name)?;
        // SAFETY: a string that lives through the call.
        let fd = unsafe { sys::bpf_obj_get(path.as_ptr()) };
        match -fd {
            libc::ENOENT => Ok(None),
            error @ 1.. => Err(self.fault(name, io::Error::from_raw_os_error(error))),
            // SAFETY: a fresh descriptor that no one else owns.
            _ => Ok(Some(unsafe { OwnedFd::from_raw_fd(fd) })),
        }
    }

    /// What is to take the place of what has the name.
    ///
    /// # Errors
    /// [`Error::Pin`].
    pub fn get_next(&self, name: &str) -> Result<Option<OwnedFd>, Error> {
        self.get(&format!("{name}{NEXT}"))
    }

    /// Takes a pin away: what it stands for goes when nobody else has it.
    ///
    /// # Errors
    /// [`Error::Pin`].
    pub fn remove(&self, name: &str) -> Result<(), Error> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.fault(name, error)),
            _ => Ok(()),
        }
    }

    /// Takes all pins away, and the folder.
    ///
    /// # Errors
    /// [`Error::Pin`].
    pub fn remove_all(&self) -> Result<(), Error> {
        self.names()?.iter().try_for_each(|name| self.remove(name))?;
        fs::remove_dir(&self.path).map_err(|source| self.fault("", source))
    }

    fn c_path(&self, name: &str) -> Result<CString, Error> {
        let path = self.path.join(name);
        CString::new(path.as_os_str().as_bytes()).map_err(|error| self.fault(name, error.into()))
    }

    fn fault(&self, name: &str, source: io::Error) -> Error {
        Error::Pin { path: self.path.join(name), source }
    }
}
