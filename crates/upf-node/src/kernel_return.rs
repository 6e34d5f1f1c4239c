//! Frames that AF_XDP gave the workers alone and are the kernel's: the port's program hands them on.

use std::sync::{Arc, Mutex};

use kaido_engine::PortId;
use kaido_upf::path::KernelReturn;
use kaido_upf_xdp::Steering;

/// The programs by which ports return frames.
#[derive(Debug)]
pub(super) struct ProgramReturn {
    programs: Arc<Mutex<Vec<Steering>>>,
    /// By port; none where the kernel has all frames itself, or a device of its own for them.
    of_port: Vec<Option<usize>>,
}

impl ProgramReturn {
    /// Returns frames by these programs, of which each port has one or none.
    pub(super) fn new(programs: Arc<Mutex<Vec<Steering>>>, of_port: Vec<Option<usize>>) -> Self {
        Self { programs, of_port }
    }
}

impl KernelReturn for ProgramReturn {
    fn give(&self, port: PortId, frame: &[u8]) -> Option<bool> {
        let at = self.of_port.get(port.index()).copied().flatten()?;
        // A worker does not wait for an interface that is bound anew.
        let Ok(programs) = self.programs.try_lock() else { return Some(false) };
        let returned = programs.get(at)?.return_to_kernel(frame);
        if let Err(error) = &returned {
            tracing::debug!(%error, "a fragment was not returned to the kernel");
        }
        Some(returned.is_ok())
    }
}
