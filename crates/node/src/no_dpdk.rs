//! Stands in for DPDK where it is not built in.

use std::marker::PhantomData;

use kaido_engine::FramePool;

use super::interfaces::DpdkQueue;
use crate::config::{Base, PortConfig};
use crate::start_fault::{StartFault, fault};

/// No devices.
pub(crate) struct DpdkDevices<'c>(PhantomData<&'c Base>);

impl<'c> DpdkDevices<'c> {
    pub(crate) fn new(_base: &'c Base, _pool: &'static FramePool) -> Self {
        Self(PhantomData)
    }

    /// Refuses; a configuration that was checked does not come here.
    #[expect(clippy::unused_self, reason = "as where it is built in")]
    pub(crate) fn open(&mut self, port: &PortConfig, _promiscuous: bool) -> Result<DpdkQueue, StartFault> {
        Err(fault(port, "this kaido was built without dpdk", "docs/dpdk.md says how to build one with it"))
    }
}
