//! Folders that are opened one name after the other and worked on as open files. A path names a file anew at each step, and who may
//! write to a folder on it could put a symbolic link there between two steps.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Gid, Mode, OFlags, Uid, chownat, fchmod, fstat, mkdirat, openat, readlinkat,
};
use rustix::io::Errno;

use crate::accounts::User;

pub(crate) const ROOT: u32 = 0;

/// Links on one path, as many as Linux follows.
const LINKS_MAX: usize = 40;

/// An open file of any kind: its place, not its content.
pub(crate) struct Place {
    fd: OwnedFd,
    kind: FileType,
    owner: u32,
    /// Names that it has.
    names: u64,
}

/// An open folder.
pub(crate) struct OpenFolder(Place);

impl Place {
    /// What has a name in a folder; a symbolic link is not followed.
    fn open(folder: impl AsFd, name: &OsStr) -> Result<Self, Errno> {
        let fd = openat(folder, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let about = fstat(&fd)?;
        // The width of the field is the machine's.
        #[allow(clippy::useless_conversion)]
        let names = u64::from(about.st_nlink);
        Ok(Self { fd, kind: FileType::from_raw_mode(about.st_mode), owner: about.st_uid, names })
    }

    /// Whether it is root's and has no other name, by which it would be another's too.
    pub(crate) fn is_roots_alone(&self) -> bool {
        self.owner == ROOT && (self.names == 1 || self.kind == FileType::Directory)
    }

    /// It as a folder, where it is one.
    pub(crate) fn into_folder(self) -> Option<OpenFolder> {
        (self.kind == FileType::Directory).then_some(OpenFolder(self))
    }

    /// Gives it to a user. It may be a symbolic link: what that leads to stays what it is.
    pub(crate) fn give(&self, user: User) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(user.number), Gid::from_raw(user.group));
        Ok(chownat(&self.fd, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?)
    }
}

impl OpenFolder {
    fn open_in(folder: impl AsFd, name: &OsStr) -> Result<Self, Errno> {
        Place::open(folder, name)?.into_folder().ok_or(Errno::NOTDIR)
    }

    /// Opens a folder.
    ///
    /// # Errors
    /// Where there is none; at a symbolic link that is not root's in a folder of root's.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        walk(path, |_, _| Err(Errno::NOENT.into()))
    }

    /// Opens a folder, and makes it and those above it where they are missing; whether it was.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(crate) fn make(path: &Path) -> io::Result<(Self, bool)> {
        let mut is_made = false;
        let folder = walk(path, |folder, name| {
            is_made = true;
            mkdirat(&folder.0.fd, name, Mode::RWXU)?;
            let made = Self::open_in(&folder.0.fd, name)?;
            // Whatever the umask.
            made.set_mode(0o755)?;
            Ok(made)
        })?;
        Ok((folder, is_made))
    }

    /// Says who may do what in it.
    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        Ok(fchmod(self.readable()?, Mode::from_raw_mode(mode))?)
    }

    /// The same folder, open for its content.
    fn readable(&self) -> Result<OwnedFd, Errno> {
        openat(&self.0.fd, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
    }

    /// What lies in it, with the names.
    pub(crate) fn entries(&self) -> io::Result<Vec<(OsString, Place)>> {
        let mut entries = Vec::new();
        for entry in Dir::new(self.readable()?)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                match Place::open(&self.0.fd, name) {
                    // It has gone meanwhile.
                    Err(Errno::NOENT) => (),
                    place => entries.push((name.to_owned(), place?)),
                }
            }
        }
        Ok(entries)
    }

    /// A path to it that leads nowhere else, as long as it is open.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.fd.as_raw_fd()).into()
    }

    /// As [`Place::give`].
    pub(crate) fn give(&self, user: User) -> io::Result<()> {
        self.0.give(user)
    }
}

impl AsFd for OpenFolder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

/// A symbolic link on the way that others than root may have made.
#[derive(Debug, thiserror::Error)]
#[error("{} is a symbolic link that others than root may have made", name.display())]
pub(crate) struct ForeignLink {
    name: OsString,
}

/// Walks to a folder; `missing` makes one that is not there.
fn walk(
    path: &Path,
    mut missing: impl FnMut(&OpenFolder, &OsStr) -> io::Result<OpenFolder>,
) -> io::Result<OpenFolder> {
    let mut here = OpenFolder::open_in(CWD, OsStr::new("."))?;
    let mut names = Vec::new();
    push(path, &mut names);
    let mut links = 0;
    while let Some(name) = names.pop() {
        let place = match Place::open(&here.0.fd, &name) {
            Err(Errno::NOENT) => {
                here = missing(&here, &name)?;
                continue;
            }
            place => place?,
        };
        if place.kind == FileType::Symlink {
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            if [here.0.owner, place.owner] != [ROOT; 2] {
                return Err(io::Error::other(ForeignLink { name }));
            }
            let leads_to = readlinkat(&place.fd, "", Vec::new())?;
            push(Path::new(OsStr::from_bytes(leads_to.to_bytes())), &mut names);
        } else {
            here = place.into_folder().ok_or(Errno::NOTDIR)?;
        }
    }
    Ok(here)
}

/// Puts the names of a path before others, of which the last is the next. That of the root, `/`, leads there from anywhere.
fn push(path: &Path, names: &mut Vec<OsString>) {
    names.extend(path.components().rev().map(|part| part.as_os_str().to_owned()));
}
