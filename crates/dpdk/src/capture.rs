//! What C code prints, instead of on the terminal, in a string: the EAL answers a wrong argument with two pages of
//! usage on standard output.

use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Standard output and error, while something else is in their place.
struct Diverted {
    saved: [(i32, OwnedFd); 2],
}

impl Diverted {
    fn to(file: &File) -> io::Result<Self> {
        let save = |fd: i32| -> io::Result<OwnedFd> {
            // SAFETY: makes a descriptor that is nobody's yet.
            let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
            if copy < 0 {
                return Err(io::Error::last_os_error());
            }
            // SAFETY: made just above.
            Ok(unsafe { OwnedFd::from_raw_fd(copy) })
        };
        let saved = [
            (libc::STDOUT_FILENO, save(libc::STDOUT_FILENO)?),
            (libc::STDERR_FILENO, save(libc::STDERR_FILENO)?),
        ];
        flush();
        for (fd, _) in &saved {
            // SAFETY: the descriptors of standard output and error stay open, at another file.
            unsafe { libc::dup2(file.as_raw_fd(), *fd) };
        }
        Ok(Self { saved })
    }
}

impl Drop for Diverted {
    fn drop(&mut self) {
        flush();
        for (fd, saved) in &self.saved {
            // SAFETY: as above, back to what it was.
            unsafe { libc::dup2(saved.as_raw_fd(), *fd) };
        }
    }
}

/// Writes out what stdio has buffered.
fn flush() {
    // SAFETY: NULL stands for all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Runs `body`; its result and what was printed meanwhile. What other threads print in this time is taken too.
pub(crate) fn captured<R>(body: impl FnOnce() -> R) -> (R, String) {
    let Some((mut file, diverted)) = open() else { return (body(), String::new()) };
    let result = body();
    drop(diverted);
    let mut printed = Vec::new();
    let read = file.rewind().and_then(|()| file.read_to_end(&mut printed));
    if let Err(error) = read {
        tracing::debug!(%error, "what DPDK printed cannot be read");
    }
    (result, String::from_utf8_lossy(&printed).into_owned())
}

fn open() -> Option<(File, Diverted)> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"kaido-dpdk".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return None;
    }
    // SAFETY: made just above.
    let file = unsafe { File::from_raw_fd(fd) };
    let diverted = Diverted::to(&file).ok()?;
    Some((file, diverted))
}
