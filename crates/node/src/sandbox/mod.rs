//! What the threads of a node may ask of the kernel: system calls and capabilities, by what a thread is for.
//!
//! ```text
//!   process    all that a node needs: sockets, files, programs, the next process of an upgrade
//!    ├ worker  descriptors that are there, memory, sleep; no file is opened, no socket made
//!    │  └ of NDN  the same, and sockets of faces
//!    └ http    as a worker, connections that come, and files to read
//! ```
//! The process's filter is put on before any thread is started, so every thread has it; that of a thread comes on top, and none can be
//! taken off. A call that is not allowed is refused with EPERM. Where debug assertions are on it ends the process, so that a test
//! finds what is missing.

mod calls;
mod capabilities;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

/// Set in the environment of the process that takes over: it has the filter of the one that started it.
const IN_SANDBOX: &str = "KAIDO_IN_SANDBOX";

/// Whether the process has its filter.
static HAS_FILTER: AtomicBool = AtomicBool::new(false);

/// What a thread is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadKind {
    /// It forwards packets.
    Worker,
    /// It does, and opens sockets to which others connect.
    FaceWorker,
    /// It answers clients of the API.
    Http,
}

/// Why a filter was not put on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SandboxError {
    /// There is none for this machine, or the kernel does not take it.
    #[error("the filter of system calls: {0}")]
    Filter(#[from] seccompiler::Error),
    /// Capabilities cannot be given up.
    #[error("capabilities: {0}")]
    Capabilities(#[from] rustix::io::Errno),
}

/// Restricts the process, of which this is the only thread. What the kernel does not have is told, and done without.
pub(crate) fn enter() {
    for error in enter_process().into_iter().filter_map(Result::err) {
        tracing::warn!(%error, "the process may ask for more of the kernel than it has uses for");
    }
}

/// One step does not wait for the other: what fails is told, and the other holds.
fn enter_process() -> [Result<(), SandboxError>; 2] {
    [capabilities::of_process().map_err(SandboxError::from), filter_process()]
}

fn filter_process() -> Result<(), SandboxError> {
    // Filters add up, so a chain of upgrades would make each system call slower.
    if std::env::var_os(IN_SANDBOX).is_none() {
        put_on(&program(calls::PROCESS)?)?;
    }
    HAS_FILTER.store(true, Ordering::Relaxed);
    Ok(())
}

/// What the environment of a process that takes over is to have.
pub(crate) fn for_next() -> Option<(&'static str, &'static str)> {
    HAS_FILTER.load(Ordering::Relaxed).then_some((IN_SANDBOX, "1"))
}

/// Restricts the thread that calls it. What the kernel does not have is told, and done without.
pub(crate) fn restrict(kind: ThreadKind) {
    for error in enter_thread(kind).into_iter().filter_map(Result::err) {
        tracing::warn!(%error, ?kind, "a thread may ask for more of the kernel than it has uses for");
    }
}

fn enter_thread(kind: ThreadKind) -> [Result<(), SandboxError>; 2] {
    let calls = match kind {
        ThreadKind::Worker => calls::WORKER,
        ThreadKind::FaceWorker => calls::FACE_WORKER,
        ThreadKind::Http => calls::HTTP,
    };
    let given_up = capabilities::of_thread(kind).map_err(SandboxError::from);
    [given_up, program(calls).and_then(|program| put_on(&program))]
}

/// Some calls, each by its number.
type Calls = &'static [&'static [libc::c_long]];

fn program(calls: Calls) -> Result<BpfProgram, SandboxError> {
    let mut allowed: BTreeMap<i64, _> =
        calls.iter().copied().flatten().map(|&call| (call, Vec::new())).collect();
    for call in calls::in_part() {
        let (call, rules) = call.map_err(seccompiler::Error::from)?;
        // A call that may do all has no rules.
        allowed.entry(call).or_insert(rules);
    }
    let otherwise = if cfg!(debug_assertions) {
        SeccompAction::KillProcess
    } else {
        SeccompAction::Errno(libc::EPERM.unsigned_abs())
    };
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(seccompiler::Error::from)?;
    let filter = SeccompFilter::new(allowed, otherwise, SeccompAction::Allow, arch);
    let program = filter.and_then(BpfProgram::try_from).map_err(seccompiler::Error::from)?;
    Ok(program)
}

/// Puts a filter on this thread, and on those that it starts.
fn put_on(program: &BpfProgram) -> Result<(), SandboxError> {
    Ok(seccompiler::apply_filter(program)?)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Command, ExitStatus};

    use super::*;

    /// What the test is to do, where it runs itself.
    const ACT: &str = "KAIDO_TEST_SANDBOX";

    /// Runs this test in a process of its own, as which it does `act`.
    fn run(test: &str, act: &str) -> ExitStatus {
        let mut program = Command::new(std::env::current_exe().unwrap());
        let name = format!("sandbox::tests::{test}");
        program.args(["--exact", &name, "--test-threads", "1"]).env(ACT, act).status().unwrap()
    }

    /// Whether the call that was not allowed ended the process, as it does where debug assertions are on.
    fn was_killed(status: ExitStatus) -> bool {
        status.signal() == Some(libc::SIGSYS)
    }

    #[test]
    fn a_worker_opens_no_file_and_makes_no_socket() {
        let test = "a_worker_opens_no_file_and_makes_no_socket";
        let Ok(act) = std::env::var(ACT) else {
            assert!(run(test, "sleep").success());
            assert!(was_killed(run(test, "open")) && was_killed(run(test, "socket")));
            return;
        };
        let inherited = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        enter_thread(ThreadKind::Worker).into_iter().for_each(Result::unwrap);
        match &*act {
            "open" => drop(File::open("/")),
            "socket" => drop(std::net::UdpSocket::bind("127.0.0.1:0")),
            _ => {
                std::thread::sleep(std::time::Duration::from_millis(1));
                inherited.send_to(b"octets", inherited.local_addr().unwrap()).unwrap();
                assert_eq!(inherited.recv(&mut [0; 16]).unwrap(), 6);
                let held = rustix::thread::capabilities(None).unwrap().permitted;
                assert!(rustix::thread::CapabilitySet::BPF.contains(held), "{held:?}");
            }
        }
    }

    #[test]
    fn the_process_has_one_root_and_starts_the_next() {
        let test = "the_process_has_one_root_and_starts_the_next";
        let Ok(act) = std::env::var(ACT) else {
            assert!(run(test, "start").success());
            assert!(was_killed(run(test, "root")));
            return;
        };
        assert_eq!(for_next(), None);
        enter_process().into_iter().for_each(Result::unwrap);
        match &*act {
            "start" => {
                let next = Command::new("/bin/sh")
                    .args(["-c", "test $KAIDO_IN_SANDBOX = 1"])
                    .envs(for_next())
                    .status();
                assert!(next.unwrap().success());
            }
            _ => drop(rustix::process::chroot("/")),
        }
    }
}
