//! The links of the comparison, in a network namespace that this thread has for itself.
//!
//! ```text
//!   bench ── in0 (veth) ── k0 ── platform ── k1 ── (veth) out0 ── bench
//!   bench ── cable0 (veth) ── cable1 ── bench
//! ```

use std::fs;
use std::io;
use std::process::Command;

use kaido_engine::netlink::{self, Interface};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Names of the interfaces: the bench's, the platform's, and both ends of a cable without anything in it.
pub(super) const BENCH: [&str; 2] = ["in0", "out0"];
pub(super) const PLATFORM: [&str; 2] = ["k0", "k1"];
pub(super) const CABLE: [&str; 2] = ["cable0", "cable1"];
/// Frames that a link's queue keeps before it holds senders back.
const QUEUE: &str = "10000";

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(super) enum RigError {
    #[error("network namespaces need root or CAP_SYS_ADMIN: {0}")]
    Namespace(io::Error),
    #[error("`{command}`: {said}")]
    Command { command: String, said: String },
    #[error(transparent)]
    Interface(#[from] netlink::NetlinkError),
}

/// Moves this thread, and those that it starts, into a namespace of their own, and makes the links there. The namespace goes
/// with the last of them.
pub(super) fn make() -> Result<(), RigError> {
    // SAFETY: no memory or descriptors are unshared, only what this thread's sockets are made in from now on.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
        .map_err(|error| RigError::Namespace(io::Error::from(error)))?;
    // Neighbour discovery would come between the packets.
    for scope in ["all", "default"] {
        // Without IPv6 there is nothing to be turned off.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
    }
    for [left, right] in [[BENCH[0], PLATFORM[0]], [BENCH[1], PLATFORM[1]], CABLE] {
        ip(&format!(
            "link add {left} numrxqueues 1 numtxqueues 1 type veth peer name {right} numrxqueues 1 numtxqueues 1"
        ))?;
        for end in [left, right] {
            ip(&format!("link set {end} txqueuelen {QUEUE} up"))?;
        }
    }
    Ok(())
}

/// Runs `ip`.
pub(super) fn ip(arguments: &str) -> Result<(), RigError> {
    let fault = |said: String| RigError::Command { command: format!("ip {arguments}"), said };
    let done = Command::new("ip").args(arguments.split_ascii_whitespace()).output();
    let done = done.map_err(|error| fault(error.to_string()))?;
    if done.status.success() {
        return Ok(());
    }
    Err(fault(String::from_utf8_lossy(&done.stderr).trim().to_owned()))
}

/// Interfaces by their names.
pub(super) fn interfaces(names: [&str; 2]) -> Result<[Interface; 2], RigError> {
    Ok([netlink::interface(names[0])?, netlink::interface(names[1])?])
}
