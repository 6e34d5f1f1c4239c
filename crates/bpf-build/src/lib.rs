//! Compiles eBPF C from a build script, with the one clang we pin.
//!
//! For crates that depend on `libbpf-sys`, whose build script exports the headers of the libbpf that it vendors
//! (`links = "bpf"`).

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The compiler unless `KAIDO_CLANG` names another.
const CLANG: &str = "clang-19";

/// A program could not be compiled.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not run by cargo, or without `libbpf-sys` among the crate's dependencies; or without `kaido-xdp`, for a function's program.
    #[error(
        "{0} is not set; run through cargo, in a crate that depends on libbpf-sys, a function's on kaido-xdp too"
    )]
    Environment(&'static str),
    /// The compiler is not there.
    #[error(
        "cannot run {clang}: {source}. Install it (`apt-get install {CLANG}`) or name one in KAIDO_CLANG"
    )]
    Compiler {
        /// What was to be run.
        clang: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The compiler refused the source and said why on stderr.
    #[error("{clang} could not compile {} (see above)", path.display())]
    Source {
        /// What was run.
        clang: String,
        /// The source.
        path: PathBuf,
    },
}

/// Compiles `source` into `OUT_DIR/<stem>.o`, and has cargo run the build script again when it or one of `headers`
/// changes, files or folders. Headers are included from these folders.
///
/// The object is the same wherever the sources lie: the names of files in it begin at the workspace.
///
/// # Errors
/// [`Error`].
pub fn compile(source: &Path, headers: &[&Path]) -> Result<PathBuf, Error> {
    for path in headers.iter().copied().chain([source]) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
    println!("cargo::rerun-if-env-changed=KAIDO_CLANG");
    let clang = env::var("KAIDO_CLANG").unwrap_or_else(|_| CLANG.to_owned());
    let object = PathBuf::from(variable("OUT_DIR")?).join(object_name(source));
    // clang for BPF does not look where Debian keeps asm/types.h.
    let multiarch = format!("/usr/include/{}-linux-gnu", variable("CARGO_CFG_TARGET_ARCH")?);
    let libbpf = variable("DEP_BPF_INCLUDE")?;
    let manifest = variable("CARGO_MANIFEST_DIR")?;
    let folders = headers.iter().filter(|path| path.is_dir()).map(|path| format!("-I{}", path.display()));
    let status = Command::new(&clang)
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Wextra", "-Werror"])
        .args(folders)
        .arg(format!("-I{libbpf}"))
        .arg(prefix_map(workspace(Path::new(&manifest)), "."))
        .arg(prefix_map(Path::new(&libbpf), "libbpf"))
        .args(["-idirafter", &multiarch, "-c"])
        .arg(source)
        .arg("-o")
        .arg(&object)
        .status();
    match status {
        Ok(status) if status.success() => Ok(object),
        Ok(_) => Err(Error::Source { clang, path: source.to_owned() }),
        Err(source) => Err(Error::Compiler { clang, source }),
    }
}

/// As [`compile`], a program of a function's crate: its headers are those beside it and those of `kaido-xdp`, on which the crate
/// depends.
///
/// # Errors
/// [`Error`].
pub fn compile_function(source: &Path) -> Result<PathBuf, Error> {
    let shared = PathBuf::from(variable("DEP_KAIDO_XDP_HEADERS")?);
    let beside = source.parent().unwrap_or(Path::new(""));
    compile(source, &[beside, &shared])
}

/// The folder of the workspace that a crate is of: that of the lock file; of a crate without one, its own.
fn workspace(manifest: &Path) -> &Path {
    manifest.ancestors().find(|folder| folder.join("Cargo.lock").is_file()).unwrap_or(manifest)
}

/// Has the compiler write `name` for `folder` in what it says of files (DWARF and BTF). Of several the last that fits counts.
fn prefix_map(folder: &Path, name: &str) -> OsString {
    let mut option = OsString::from("-ffile-prefix-map=");
    option.push(folder);
    option.push("=");
    option.push(name);
    option
}

/// `steer.bpf.c` becomes `steer.bpf.o`.
fn object_name(source: &Path) -> PathBuf {
    PathBuf::from(source.file_name().unwrap_or_default()).with_extension("o")
}

fn variable(name: &'static str) -> Result<String, Error> {
    env::var(name).map_err(|_| Error::Environment(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_after_its_source() {
        assert_eq!(object_name(Path::new("bpf/steer.bpf.c")), Path::new("steer.bpf.o"));
    }

    #[test]
    fn a_crate_is_of_the_workspace_above_it() {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(workspace(manifest), manifest.ancestors().nth(2).unwrap());
        assert_eq!(workspace(Path::new("/")), Path::new("/"));
    }
}
