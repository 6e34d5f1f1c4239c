//! The rights that the program's file gives to a user that is not root.

use rustix::thread::{CapabilitySets, capabilities, set_capabilities};

/// Takes into effect what the process is permitted. The program of the container image has its capabilities permitted and not
/// effective: so it also starts where only some of them are granted, and says itself what that keeps it from. To be called before
/// there are threads, as each has rights of its own.
pub(crate) fn take() {
    let Ok(sets) = capabilities(None) else { return };
    if sets.effective == sets.permitted {
        return;
    }
    // What is permitted may be effective: the kernel does not refuse.
    let _ = set_capabilities(None, CapabilitySets { effective: sets.permitted, ..sets });
}
