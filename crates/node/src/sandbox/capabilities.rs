//! The capabilities that a node keeps.

use rustix::io;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
};

use super::ThreadKind;

/// What a node has uses for: interfaces, routes and programs; packet sockets; eBPF; memory that is not swapped, and where it lies;
/// and ports below 1024. Where root starts it by hand, also files of other users.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::SYS_RESOURCE)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(READ_FILES);

/// Files of any user are read.
const READ_FILES: CapabilitySet = CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);

/// Counters of programs are read, which before kernel 5.19 takes it. Programs and maps are not made: the list of such a thread's calls
/// has no more of eBPF than that, and to run a program on a frame.
const READ_COUNTERS: CapabilitySet = CapabilitySet::BPF;

/// Ports below 1024, and sockets in folders of others and for a group.
const OPEN_SOCKETS: CapabilitySet = CapabilitySet::NET_BIND_SERVICE
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::FOWNER)
    .union(READ_FILES);

/// Gives up what the process has no use for, also for the process that takes over. That one has what is left, whatever its file has:
/// where no privilege may be gained, capabilities of a file are none.
pub(super) fn of_process() -> io::Result<()> {
    let held = capabilities(None)?.permitted;
    if held.contains(CapabilitySet::SETPCAP) {
        for capability in CapabilitySet::all().difference(KEPT).iter() {
            // Those that the kernel does not know are in no set.
            if capability_is_in_bounding_set(capability).unwrap_or(false) {
                remove_capability_from_bounding_set(capability)?;
            }
        }
    }
    let kept = held.intersection(KEPT);
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: kept })?;
    kept.iter().try_for_each(|capability| configure_capability_in_ambient_set(capability, true))
}

/// Gives up what this thread has no use for.
pub(super) fn of_thread(kind: ThreadKind) -> io::Result<()> {
    let kept = match kind {
        ThreadKind::Worker => READ_COUNTERS,
        ThreadKind::FaceWorker => READ_COUNTERS.union(OPEN_SOCKETS),
        ThreadKind::Http => READ_COUNTERS.union(READ_FILES),
    };
    let kept = capabilities(None)?.permitted.intersection(kept);
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: kept })
}
