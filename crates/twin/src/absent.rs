//! In the place of the simulation where there is none: the same functions, and no value to call them with.

use crate::bus::Bus;
use crate::outcome::Marked;
use crate::{BusError, CoreEvent, Outcome, Pressure, Timing, TwinError};

/// Without verilator there is none.
#[derive(Debug)]
pub(crate) struct Simulation {
    none: std::convert::Infallible,
}

#[allow(clippy::unused_self, reason = "as those of the simulation")]
impl Simulation {
    pub(crate) fn new(_which: u32, _octets: usize) -> Result<Self, TwinError> {
        Err(TwinError::NoCore)
    }

    pub(crate) fn reset(&mut self) {
        match self.none {}
    }

    pub(crate) fn run<E: CoreEvent>(
        &mut self,
        _frames: &[Vec<u8>],
        _pressure: Pressure,
    ) -> Result<(Vec<Outcome<E>>, Timing), TwinError> {
        match self.none {}
    }

    pub(crate) fn run_ports(
        &mut self,
        _frames: [&[Vec<u8>]; 2],
        _pressure: Pressure,
    ) -> Result<[Vec<Marked>; 3], TwinError> {
        match self.none {}
    }
}

impl Bus for Simulation {
    fn write(&mut self, _address: u32, _value: u32) -> Result<(), BusError> {
        match self.none {}
    }

    fn read(&mut self, _address: u32) -> Result<u32, BusError> {
        match self.none {}
    }
}
