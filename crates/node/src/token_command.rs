//! `kaido token`: who may ask a node over TCP.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use miette::{IntoDiagnostic, WrapErr, miette};

use crate::api::Role;
use crate::http::{new_token, role_of};

/// The file that a service reads.
const DEFAULT_FILE: &str = "/etc/kaido/tokens";

/// Who, and what they may.
#[derive(Debug, clap::Args)]
pub(crate) struct TokenArgs {
    /// A name, which the log has with what they did.
    name: String,
    /// What they may: `watch` figures without subscribers, `read` all, or `operate`.
    #[arg(long, default_value = "read", value_parser = role)]
    role: Role,
    /// Take away what they have, instead.
    #[arg(long, conflicts_with = "role")]
    remove: bool,
    /// The file, which `api.tokens` names.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_FILE)]
    file: PathBuf,
}

fn role(text: &str) -> Result<Role, String> {
    role_of(text).ok_or_else(|| format!("`{text}` is none of watch, read and operate"))
}

/// `kaido token`.
///
/// # Errors
/// When the file cannot be written, or has nobody of that name to be removed.
pub(crate) fn run(args: &TokenArgs) -> miette::Result<()> {
    let TokenArgs { name, role, remove, file } = args;
    if *remove {
        return take_away(name, file);
    }
    let (token, line) = new_token(name, *role).map_err(|why| miette!("{why}"))?;
    let failed = || format!("cannot write {}", file.display());
    // It has no secret: what a random token is cannot be found from its SHA-256.
    let mut to = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o644)
        .open(file)
        .into_diagnostic()
        .wrap_err_with(failed)?;
    to.write_all(line.as_bytes()).into_diagnostic().wrap_err_with(failed)?;
    eprintln!("{} has a line for {name}; the token is shown this once:", file.display());
    println!("{token}");
    Ok(())
}

fn take_away(name: &str, file: &Path) -> miette::Result<()> {
    let failed = || format!("cannot change {}", file.display());
    let text = fs::read_to_string(file).into_diagnostic().wrap_err_with(failed)?;
    let is_theirs = |line: &&str| line.split_whitespace().next() == Some(name);
    let removed = text.lines().filter(is_theirs).count();
    if removed == 0 {
        return Err(miette!("{} has nobody of the name {name}", file.display()));
    }
    let rest: String = text.lines().filter(|line| !is_theirs(line)).map(|line| format!("{line}\n")).collect();
    // Another file takes its place: a node that reads meanwhile has one or the other.
    let mut beside = file.as_os_str().to_owned();
    beside.push(".new");
    fs::write(&beside, rest).into_diagnostic().wrap_err_with(failed)?;
    fs::rename(&beside, file).into_diagnostic().wrap_err_with(failed)?;
    eprintln!("{removed} lines of {name} are removed from {}", file.display());
    Ok(())
}
