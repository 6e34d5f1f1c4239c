//! Which node a command asks, and how often.

use std::io::{IsTerminal, Write, stdout};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use miette::IntoDiagnostic;

use crate::config::DEFAULT_SOCKET;

/// Where the running node answers.
#[derive(Debug, clap::Args)]
pub struct ControlTarget {
    /// The node's control socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_SOCKET)]
    pub socket: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// How often a command shows what it shows.
#[derive(Debug, clap::Args)]
pub struct Watch {
    /// Show it again every S seconds, until interrupted; without S, every 2.
    #[arg(long, value_name = "S", num_args = 0..=1, default_missing_value = "2", value_parser = seconds)]
    watch: Option<Duration>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    let seconds = seconds.ok_or_else(|| format!("`{text}` is no time; write seconds from 0.1 to 86400"))?;
    Ok(Duration::from_secs_f64(seconds))
}

impl Watch {
    /// Shows it once, or over and over: in a terminal in the place of what was there.
    ///
    /// # Errors
    /// Those of `show`, or that nobody takes what is shown.
    pub fn run(&self, mut show: impl FnMut() -> miette::Result<()>) -> miette::Result<()> {
        let Some(interval) = self.watch else { return show() };
        let mut out = stdout();
        loop {
            if out.is_terminal() {
                // To the first place, and nothing behind it.
                out.write_all(b"\x1b[H\x1b[2J").into_diagnostic()?;
            }
            show()?;
            out.flush().into_diagnostic()?;
            sleep(interval);
        }
    }
}
