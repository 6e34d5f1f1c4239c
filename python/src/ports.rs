//! The ports of a run.

use kaido_bench::stream::{Driver, PortSpec};
use kaido_bench::traffic::OpenPort;
use kaido_engine::FramePool;
use kaido_engine::port::MemoryWire;

/// Opens a port; one in memory has frames of the process's pool, and `wire` as its far end.
pub(crate) fn open(spec: &PortSpec, wire: &MemoryWire, pool: &'static FramePool) -> Result<OpenPort, String> {
    match &spec.driver {
        Driver::Memory => Ok(OpenPort::given(Box::new(wire.port()), pool)),
        _ => OpenPort::open(spec).map_err(|error| format!("port `{}`: {error}", spec.name)),
    }
}
