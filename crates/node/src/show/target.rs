//! Which node a command asks.

use std::path::PathBuf;

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
