//! Registers on AXI4-Lite: those of a core, or those of a part of it from an address on.

use crate::BusError;
use crate::simulation::Simulation;

/// Who answers to addresses.
pub(crate) trait Bus {
    /// Writes a register.
    fn write(&mut self, address: u32, value: u32) -> Result<(), BusError>;

    /// Reads a register.
    fn read(&mut self, address: u32) -> Result<u32, BusError>;
}

/// The registers of a part of a core.
#[derive(Debug)]
pub(crate) struct Window<'core> {
    pub(crate) simulation: &'core mut Simulation,
    /// Where they begin.
    pub(crate) base: u32,
}

impl Bus for Window<'_> {
    fn write(&mut self, address: u32, value: u32) -> Result<(), BusError> {
        self.simulation.write(self.base + address, value)
    }

    fn read(&mut self, address: u32) -> Result<u32, BusError> {
        self.simulation.read(self.base + address)
    }
}
