//! Links for measurements: pairs of veth in a network namespace that this thread has for itself.

use std::fs;
use std::io;
use std::process::Command;

use kaido_engine::netlink::{self, Interface};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::sys::enter_network_namespace;

/// Frames that a link's queue keeps before it holds senders back.
const QUEUE: &str = "10000";

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RigError {
    #[error("network namespaces need root or CAP_SYS_ADMIN: {0}")]
    Namespace(io::Error),
    #[error("`{command}`: {said}")]
    Command { command: String, said: String },
    #[error(transparent)]
    Interface(#[from] netlink::NetlinkError),
}

/// Moves this thread, and those that it starts, into a network namespace of their own. It goes with the last of them.
pub(crate) fn enter() -> Result<(), RigError> {
    enter_network_namespace().map_err(RigError::Namespace)?;
    // Neighbour discovery would come between the packets.
    for scope in ["all", "default"] {
        // Without IPv6 there is nothing to be turned off.
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{scope}/disable_ipv6"), "1");
    }
    Ok(())
}

/// Makes a link with a queue each way, and brings both ends up.
pub(crate) fn link([left, right]: [&str; 2]) -> Result<(), RigError> {
    ip(&format!(
        "link add {left} numrxqueues 1 numtxqueues 1 type veth peer name {right} numrxqueues 1 numtxqueues 1"
    ))?;
    [left, right].into_iter().try_for_each(|end| ip(&format!("link set {end} txqueuelen {QUEUE} up")))
}

/// Runs `ip`.
pub(crate) fn ip(arguments: &str) -> Result<(), RigError> {
    let fault = |said: String| RigError::Command { command: format!("ip {arguments}"), said };
    let done = Command::new("ip").args(arguments.split_ascii_whitespace()).output();
    let done = done.map_err(|error| fault(error.to_string()))?;
    if done.status.success() {
        return Ok(());
    }
    Err(fault(String::from_utf8_lossy(&done.stderr).trim().to_owned()))
}

/// Interfaces by their names.
pub(crate) fn interfaces(names: [&str; 2]) -> Result<[Interface; 2], RigError> {
    Ok([netlink::interface(names[0])?, netlink::interface(names[1])?])
}

/// The CPU of the device under test, which it has for itself, and the one of the bench before it; neither where there is only
/// one.
pub(crate) fn apart() -> [Option<usize>; 2] {
    let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    let mut cpus = (0..CpuSet::MAX_CPU).rev().filter(|&cpu| allowed.is_set(cpu));
    let (device, bench) = (cpus.next(), cpus.next());
    if bench.is_some() { [device, bench] } else { [None, None] }
}

/// Keeps this thread on one CPU.
pub(crate) fn stay_on(cpu: usize) {
    let mut one = CpuSet::new();
    one.set(cpu);
    if let Err(error) = sched_setaffinity(None, &one) {
        eprintln!("a thread of the bench is not on CPU {cpu}: {error}");
    }
}
