//! Stands in for DPDK where it is not built in.

use kaido_engine::FramePool;
use kaido_engine::netlink::Interface;
use kaido_engine::port::Port;

use super::Reason;

/// No ports.
pub(super) struct Dpdk;

impl Dpdk {
    pub(super) fn new() -> Self {
        Self
    }

    /// Refuses.
    #[expect(clippy::unused_self, reason = "as where it is built in")]
    pub(super) fn open(
        &mut self,
        _pool: &'static FramePool,
        _interface: &Interface,
    ) -> Result<Box<dyn Port>, Reason> {
        Err("this kaido was built without DPDK; `--features dpdk` builds it in".to_owned())
    }
}
