//! `kaido upgrade`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use miette::{IntoDiagnostic, WrapErr, miette};

use super::{ask, print_json};
use crate::api::{BeginUpgrade, GetUpgrade, UpgradeState};

/// How often the node is asked.
const PACE: Duration = Duration::from_millis(50);
/// Longest wait for another process to take over: it reads millions of sessions.
const PATIENCE: Duration = Duration::from_secs(660);
/// How long nobody may answer, while one process ends and another begins.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Has a program take over from the node, and waits until it has.
///
/// # Errors
/// When it did not: then the node goes on.
pub fn upgrade(socket: &Path, json: bool, program: Option<PathBuf>) -> miette::Result<()> {
    let program = match program {
        Some(program) => {
            program.canonicalize().into_diagnostic().wrap_err_with(|| program.display().to_string())?
        }
        None => std::env::current_exe().into_diagnostic().wrap_err("the file of this program")?,
    };
    let before = ask(socket, &BeginUpgrade { program })?;
    let now = wait(socket, before.pid)?;
    if json {
        return print_json(&now);
    }
    println!("process {} (kaido {}) has taken over from process {}", now.pid, now.version, before.pid);
    Ok(())
}

/// Waits until another process answers.
fn wait(socket: &Path, pid: u32) -> miette::Result<UpgradeState> {
    let began = Instant::now();
    let mut heard = Instant::now();
    loop {
        std::thread::sleep(PACE);
        match ask(socket, &GetUpgrade {}) {
            Ok(now) if now.pid != pid => return Ok(now),
            Ok(UpgradeState { failed: Some(why), .. }) => {
                return Err(miette!("no other process has taken over, and the node goes on: {}", why.trim()));
            }
            Ok(_) if began.elapsed() > PATIENCE => {
                return Err(miette!("no other process has taken over yet: its log says how far it is"));
            }
            Ok(_) => heard = Instant::now(),
            Err(error) if heard.elapsed() > SILENCE_MAX => return Err(error),
            // One process may end while another begins.
            Err(_) => {}
        }
    }
}
