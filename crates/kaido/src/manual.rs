//! Completions and manual pages, of the command line as it is.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_complete::Shell;
use miette::{IntoDiagnostic, WrapErr};

/// Prints what a shell completes the command line by.
///
/// # Errors
/// When nobody takes it.
pub(crate) fn completions(mut command: Command, shell: Shell) -> miette::Result<()> {
    let mut text = Vec::new();
    let name = command.get_name().to_owned();
    clap_complete::generate(shell, &mut command, name, &mut text);
    io::stdout().write_all(&text).into_diagnostic()
}

/// Writes a manual page for each command: `kaido.1`, `kaido-run.1` and so on.
///
/// # Errors
/// When the folder cannot be written to.
pub(crate) fn pages(command: Command, folder: &Path) -> miette::Result<()> {
    let written = fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    written
        .into_diagnostic()
        .wrap_err_with(|| format!("the manual cannot be written to {}", folder.display()))
}
