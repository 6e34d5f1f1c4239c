//! `kaido prepare`: makes what a configuration asks for and only root can make. A service runs it as root before it starts the node as
//! another user. What a node that root ran by hand has left, it gives to that user.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::path::Path;

use kaido_xdp::PinFolder;
use miette::Diagnostic;
use rustix::mount::{MountFlags, mount};
use thiserror::Error;

use crate::accounts::User;
use crate::file::Config;
use crate::root_folder::{RootFolder, RootFolderKind};

const ROOT: u32 = 0;

/// Why a folder was not made.
#[derive(Debug, Error, Diagnostic)]
enum PrepareFault {
    #[error("{}: cannot make {}: {error}", folder.field, folder.path.display())]
    #[diagnostic(help("this command is root's: it makes what the node's user cannot make"))]
    Make { folder: RootFolder, error: io::Error },
    #[error("{}: there are files in {}, which is not on a BPF file system", folder.field, folder.path.display())]
    #[diagnostic(help("name a folder that is empty or not there: a BPF file system is mounted in it"))]
    NotEmpty { folder: RootFolder },
}

/// Makes what is missing; what was made is told line by line.
///
/// # Errors
/// At the first folder that cannot be made.
pub(crate) fn prepare(config: &Config, user: User) -> miette::Result<()> {
    for folder in config.functions.iter().flat_map(|function| function.root_folders()) {
        if folder.make(user)? {
            println!("{}: {} is ready", folder.field, folder.path.display());
        }
    }
    Ok(())
}

impl RootFolder {
    /// Makes it; whether there was anything to do.
    fn make(&self, user: User) -> Result<bool, PrepareFault> {
        let fault = |error| PrepareFault::Make { folder: self.clone(), error };
        match self.kind {
            RootFolderKind::Plain => make_plain(&self.path, user).map_err(fault),
            RootFolderKind::Bpf => {
                DirBuilder::new().recursive(true).create(&self.path).map_err(fault)?;
                // An error is one of another file system.
                let is_there = PinFolder::find(&self.path).is_ok();
                if !is_there {
                    if fs::read_dir(&self.path).map_err(fault)?.next().is_some() {
                        return Err(PrepareFault::NotEmpty { folder: self.clone() });
                    }
                    mount_bpf(&self.path).map_err(fault)?;
                }
                give(&self.path, user).map_err(fault)?;
                give_left(&self.path, &[""], user).map_err(fault)?;
                Ok(!is_there)
            }
            RootFolderKind::State(names) => {
                give_left(&self.path, names, user).map_err(fault)?;
                Ok(false)
            }
        }
    }
}

fn make_plain(path: &Path, user: User) -> io::Result<bool> {
    if path.exists() {
        return Ok(false);
    }
    DirBuilder::new().recursive(true).mode(0o755).create(path)?;
    // Whatever the umask.
    fs::set_permissions(path, Permissions::from_mode(0o755))?;
    give(path, user)?;
    Ok(true)
}

/// Mounts a BPF file system. Whose it is cannot be said here: Linux has an option for that since 6.7.
fn mount_bpf(path: &Path) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("bpf", path, "bpf", flags, Some(c"mode=0700"))?)
}

fn give(path: &Path, user: User) -> io::Result<()> {
    lchown(path, Some(user.number), Some(user.group))
}

/// Gives what lies in a folder and is root's, by the beginnings of its names. The user may write to the folder, so a file with another
/// name elsewhere, a hard link, stays root's, and what a symbolic link leads to stays what it is.
fn give_left(folder: &Path, names: &[&str], user: User) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let (name, about) = (entry.file_name(), entry.metadata()?);
        if !names.iter().any(|begins| name.as_encoded_bytes().starts_with(begins.as_bytes())) {
            continue;
        }
        if about.is_dir() {
            give_left(&entry.path(), names, user)?;
        }
        if about.uid() == ROOT && (about.is_dir() || about.nlink() == 1) {
            give(&entry.path(), user)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::path::PathBuf;

    use super::*;

    fn own() -> User {
        User { number: rustix::process::getuid().as_raw(), group: rustix::process::getgid().as_raw() }
    }

    fn folder(path: &Path, kind: RootFolderKind) -> RootFolder {
        RootFolder { field: "store.pins", path: path.to_owned(), kind }
    }

    /// A folder of a test's own, empty.
    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("kaido-prepare-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_folder_that_is_missing_is_made_and_another_stays() {
        let root = scratch("plain");
        let path = root.join("run/nfd");
        let wanted = folder(&path, RootFolderKind::Plain);
        assert!(wanted.make(own()).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o755);
        fs::set_permissions(&path, Permissions::from_mode(0o711)).unwrap();
        assert!(!wanted.make(own()).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o711);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_root_has_left_is_given_by_name() {
        if own().number != ROOT {
            // Not println: the test harness would keep it to itself.
            writeln!(io::stdout(), "SKIPPED what_root_has_left_is_given_by_name: needs root").unwrap();
            return;
        }
        let root = scratch("left");
        let (ours, other, twice) = (root.join("state.db-wal"), root.join("mine"), root.join("state.db"));
        let link = root.join("journal-1");
        for file in [&ours, &other, &twice] {
            fs::write(file, "").unwrap();
        }
        fs::hard_link(&twice, root.join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(&other, &link).unwrap();
        let user = User { number: 65534, group: 65533 };
        let wanted = folder(&root, RootFolderKind::State(&["state.db", "journal-"]));
        assert!(!wanted.make(user).unwrap());
        let owner = |path: &Path| fs::symlink_metadata(path).map(|about| (about.uid(), about.gid())).unwrap();
        assert_eq!([owner(&ours), owner(&link)], [(65534, 65533); 2]);
        assert_eq!([owner(&other), owner(&twice), owner(&root)], [(0, 0); 3]);
        fs::remove_dir_all(&root).unwrap();
        assert!(!wanted.make(user).unwrap(), "it is not there");
    }

    #[test]
    fn nothing_is_mounted_over_files() {
        let root = scratch("files");
        fs::write(root.join("file"), "").unwrap();
        let refused = folder(&root, RootFolderKind::Bpf).make(own()).unwrap_err().to_string();
        assert!(refused.starts_with("store.pins: there are files in "), "{refused}");
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn what_cannot_be_made_is_named() {
        let root = scratch("file");
        fs::write(root.join("file"), "").unwrap();
        let path = root.join("file/below");
        for kind in [RootFolderKind::Plain, RootFolderKind::Bpf] {
            let refused = folder(&path, kind).make(own()).unwrap_err().to_string();
            assert!(
                refused.starts_with(&format!("store.pins: cannot make {}: ", path.display())),
                "{refused}"
            );
        }
        fs::remove_dir_all(root).unwrap();
    }
}
