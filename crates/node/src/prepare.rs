//! `kaido prepare`: makes what a configuration asks for and only root can make. A service runs it as root before it starts the node as
//! another user. What a node that root ran by hand has left, it gives to that user.

use std::io;
use std::path::Path;

use kaido_xdp::is_on_bpf;
use miette::Diagnostic;
use rustix::mount::{MountFlags, mount};
use thiserror::Error;

use crate::accounts::User;
use crate::file::Config;
use crate::open_folder::{ForeignLink, OpenFolder};
use crate::root_folder::{RootFolder, RootFolderKind};

/// Why a folder was not made ready.
#[derive(Debug, Error, Diagnostic)]
enum PrepareFault {
    #[error("{}: cannot make {}: {error}", folder.field, folder.path.display())]
    #[diagnostic(help("this command is root's: it makes what the node's user cannot make"))]
    Make { folder: RootFolder, error: io::Error },
    #[error("{}: cannot give what root left in {}: {error}", folder.field, folder.path.display())]
    #[diagnostic(help("this command is root's: the node's user cannot take what is root's"))]
    Give { folder: RootFolder, error: io::Error },
    #[error("{}: there are files in {}, which is not on a BPF file system", folder.field, folder.path.display())]
    #[diagnostic(help("name a folder that is empty or not there: a BPF file system is mounted in it"))]
    NotEmpty { folder: RootFolder },
    #[error("{}: on the way to {}, {link}", folder.field, folder.path.display())]
    #[diagnostic(help("name the folder itself; or give the link, and the folder in which it lies, to root"))]
    Link { folder: RootFolder, link: ForeignLink },
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
        let cannot_make = |error| self.fault(error, |folder, error| PrepareFault::Make { folder, error });
        let cannot_give = |error| self.fault(error, |folder, error| PrepareFault::Give { folder, error });
        match self.kind {
            RootFolderKind::Plain => {
                let (folder, is_made) = OpenFolder::make(&self.path).map_err(cannot_make)?;
                if is_made {
                    folder.give(user).map_err(cannot_give)?;
                }
                Ok(is_made)
            }
            RootFolderKind::Bpf => {
                let (folder, is_mounted) = self.make_bpf()?;
                folder.give(user).map_err(cannot_give)?;
                give_pins(&folder, user).map_err(cannot_give)?;
                Ok(is_mounted)
            }
            RootFolderKind::State(names) => {
                match OpenFolder::open(&self.path) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => (),
                    folder => give_left(&folder.map_err(cannot_give)?, names, user).map_err(cannot_give)?,
                }
                Ok(false)
            }
        }
    }

    /// A link on the way to it has a fault of its own.
    fn fault(
        &self,
        error: io::Error,
        otherwise: impl FnOnce(Self, io::Error) -> PrepareFault,
    ) -> PrepareFault {
        let folder = self.clone();
        match error.downcast() {
            Ok(link) => PrepareFault::Link { folder, link },
            Err(error) => otherwise(folder, error),
        }
    }

    /// Its folder on a BPF file system; whether that was mounted.
    fn make_bpf(&self) -> Result<(OpenFolder, bool), PrepareFault> {
        let fault = |error| self.fault(error, |folder, error| PrepareFault::Make { folder, error });
        let (folder, is_made) = OpenFolder::make(&self.path).map_err(fault)?;
        if is_made {
            // Only the node's user may look: a map that somebody else opens is one that he may write.
            folder.set_mode(0o700).map_err(fault)?;
        }
        if is_on_bpf(&folder).map_err(fault)? {
            return Ok((folder, false));
        }
        if !folder.entries().map_err(fault)?.is_empty() {
            return Err(PrepareFault::NotEmpty { folder: self.clone() });
        }
        mount_bpf(&folder.path()).map_err(fault)?;
        let mounted = OpenFolder::open(&self.path).map_err(fault)?;
        match is_on_bpf(&mounted).map_err(fault)? {
            true => Ok((mounted, true)),
            false => Err(fault(io::Error::other("another folder is in its place"))),
        }
    }
}

/// Mounts a BPF file system. Whose it is cannot be said here: Linux has an option for that since 6.7.
fn mount_bpf(path: &Path) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    Ok(mount("bpf", path, "bpf", flags, Some(c"mode=0700"))?)
}

/// Gives what lies in a folder and is root's, by the beginnings of its names. The user may write to the folder, so a file with another
/// name elsewhere, a hard link, stays root's.
fn give_left(folder: &OpenFolder, names: &[&str], user: User) -> io::Result<()> {
    for (name, place) in folder.entries()? {
        let is_ours = names.iter().any(|begins| name.as_encoded_bytes().starts_with(begins.as_bytes()));
        if is_ours && place.is_roots_alone() {
            place.give(user)?;
        }
    }
    Ok(())
}

/// Gives the pins of each node, which has a folder of its own for them.
fn give_pins(folder: &OpenFolder, user: User) -> io::Result<()> {
    give_left(folder, &[""], user)?;
    let mut nodes = folder.entries()?.into_iter().filter_map(|(_, place)| place.into_folder());
    nodes.try_for_each(|node| give_left(&node, &[""], user))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::io::Write as _;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
    use std::path::PathBuf;

    use super::*;
    use crate::open_folder::ROOT;

    fn own() -> User {
        User { number: rustix::process::getuid().as_raw(), group: rustix::process::getgid().as_raw() }
    }

    /// Whether a test that needs root can run. That it cannot is said.
    fn is_root(test: &str) -> bool {
        let is_root = own().number == ROOT;
        if !is_root {
            // Not println: the test harness would keep it to itself.
            writeln!(io::stdout(), "SKIPPED {test}: needs root").unwrap();
        }
        is_root
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
        if !is_root("what_root_has_left_is_given_by_name") {
            return;
        }
        let root = scratch("left");
        let (ours, other, twice) = (root.join("state.db-wal"), root.join("mine"), root.join("state.db"));
        let link = root.join("journal-1");
        for file in [&ours, &other, &twice] {
            fs::write(file, "").unwrap();
        }
        fs::hard_link(&twice, root.join("elsewhere")).unwrap();
        symlink(&other, &link).unwrap();
        let user = User { number: 65534, group: 65533 };
        let wanted = folder(&root, RootFolderKind::State(&["state.db", "journal-"]));
        assert!(!wanted.make(user).unwrap());
        let owner = |path: &Path| fs::symlink_metadata(path).map(|about| (about.uid(), about.gid())).unwrap();
        assert_eq!([owner(&ours), owner(&link)], [(65534, 65533); 2]);
        assert_eq!([owner(&other), owner(&twice), owner(&root)], [(0, 0); 3]);
        fs::remove_dir_all(&root).unwrap();
        assert!(!wanted.make(user).unwrap(), "it is not there");
    }

    /// Whoever may write to a folder on the way could lead root elsewhere.
    #[test]
    fn a_link_is_followed_where_root_made_it() {
        if !is_root("a_link_is_followed_where_root_made_it") {
            return;
        }
        let root = scratch("links");
        let (theirs, other) = (root.join("theirs"), root.join("other"));
        for folder in [&theirs, &other, &other.join("bpf")] {
            fs::create_dir(folder).unwrap();
        }
        let kept = other.join("state.db");
        fs::write(&kept, "").unwrap();
        lchown(&theirs, Some(65534), Some(65534)).unwrap();
        symlink("theirs/.././other", root.join("roots")).unwrap();
        symlink("roots-loop", root.join("roots-loop")).unwrap();
        symlink(&other, theirs.join("moved")).unwrap();
        symlink(&other, root.join("given")).unwrap();
        lchown(root.join("given"), Some(65534), Some(65534)).unwrap();

        for (link, kind) in ["theirs/moved", "given"].into_iter().flat_map(|link| {
            [RootFolderKind::Plain, RootFolderKind::Bpf, RootFolderKind::State(&[""])]
                .map(|kind| (link, kind))
        }) {
            for path in [root.join(link), root.join(link).join("bpf"), root.join(link).join("new")] {
                let refused = folder(&path, kind).make(own()).unwrap_err().to_string();
                let link = Path::new(link).file_name().unwrap().display();
                let what = format!("{link} is a symbolic link that others than root may have made");
                assert!(refused.ends_with(&what), "{refused}");
            }
        }
        assert_eq!(fs::read_dir(&other).unwrap().count(), 2, "nothing was made there");
        let user = User { number: 65534, group: 65534 };
        let state = folder(&root.join("roots"), RootFolderKind::State(&["state.db"]));
        assert!(!state.make(user).unwrap());
        assert!(folder(&root.join("roots-loop"), RootFolderKind::Bpf).make(own()).is_err());
        assert_eq!(fs::metadata(&kept).unwrap().uid(), 65534, "root's own link was followed");
        fs::remove_dir_all(root).unwrap();
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
