//! Hand-over to the Python package: sweeps, searches, reports and comparisons are written in it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use miette::miette;

/// Names the interpreter that has the package.
const VARIABLE: &str = "KAIDO_PYTHON";

/// What is handed over as it is.
#[derive(Args, Clone, Debug)]
#[command(disable_help_flag = true)]
pub(super) struct PythonArgs {
    /// Arguments of the command; --help shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes `python -m kaido COMMAND ...`; returns only when that cannot be.
pub(super) fn run(command: &str, args: &PythonArgs) -> miette::Result<()> {
    let candidates = candidates();
    let python = candidates.iter().find(|python| has_package(python));
    let Some(python) = python else { return Err(missing(command, &candidates)) };
    let mut run = Command::new(python);
    run.args(["-m", "kaido", command]).args(&args.arguments);
    // It measures with this very binary.
    if let (None, Ok(binary)) = (std::env::var_os("KAIDO_BINARY"), std::env::current_exe()) {
        run.env("KAIDO_BINARY", binary);
    }
    let error = run.exec();
    Err(miette!("{} cannot be run: {error}", python.display()))
}

/// Interpreters, the best first: the one that is named alone, or one of a .venv above the binary or the working folder, or
/// the system's.
fn candidates() -> Vec<PathBuf> {
    if let Some(named) = std::env::var_os(VARIABLE) {
        return vec![named.into()];
    }
    let folders = [std::env::current_exe().ok(), std::env::current_dir().ok()];
    let mut found: Vec<PathBuf> = folders.iter().flatten().flat_map(|folder| venvs(folder)).collect();
    found.dedup();
    found.push("python3".into());
    found
}

fn venvs(folder: &Path) -> impl Iterator<Item = PathBuf> {
    folder.ancestors().map(|above| above.join(".venv/bin/python")).filter(|python| python.exists())
}

fn has_package(python: &Path) -> bool {
    let mut ask = Command::new(python);
    ask.args(["-c", "import kaido.__main__"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    ask.status().is_ok_and(|status| status.success())
}

fn missing(command: &str, tried: &[PathBuf]) -> miette::Report {
    let tried: Vec<_> = tried.iter().map(|python| python.display().to_string()).collect();
    miette!(
        help = format!(
            "`make wheel` in the checkout installs it into .venv; `pip install kaido-*.whl` elsewhere. {VARIABLE} names the \
             interpreter to use. docs/sweep.md says what the command takes"
        ),
        "`kaido bench {command}` needs the Python package kaido, which none of these has: {}",
        tried.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_above_a_folder_are_found_nearest_first() {
        let root = std::env::temp_dir().join(format!("kaido-venv-{}", std::process::id()));
        let inner = root.join("a/b");
        for folder in [&root, &inner] {
            std::fs::create_dir_all(folder.join(".venv/bin")).unwrap();
            std::fs::write(folder.join(".venv/bin/python"), "").unwrap();
        }
        let found: Vec<_> = venvs(&inner).take(2).collect();
        assert_eq!(found, [inner.join(".venv/bin/python"), root.join(".venv/bin/python")]);
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_missing_package_is_told_with_the_command_that_installs_it() {
        let report = missing("sweep", &["/a/python".into(), "python3".into()]);
        assert!(report.to_string().contains("/a/python, python3"));
        let help = report.help().unwrap().to_string();
        assert!(help.contains("make wheel") && help.contains(VARIABLE));
        assert!(!has_package(Path::new("/no/such/python")));
    }
}
