//! In the place of the core where there is none: the same functions, and no value to call them with.

use kaido_engine::PortId;
use kaido_gre::{RuleTotals, Settings};

use super::{Event, Outcome, Size, Timing, TwinError};
use crate::Pressure;
use crate::registers::{BusError, Unfit};

/// Without verilator there is none.
#[derive(Debug)]
pub struct GreCore {
    _none: std::convert::Infallible,
}

#[allow(missing_docs, clippy::missing_errors_doc, clippy::unused_self, reason = "as those of the core")]
impl GreCore {
    pub fn new(_size: Size) -> Result<Self, TwinError> {
        Err(TwinError::NoCore)
    }

    pub fn configure(&mut self, _settings: &Settings, _port: PortId) -> Result<(), Unfit> {
        match self._none {}
    }

    pub fn run(
        &mut self,
        _frames: &[Vec<u8>],
        _pressure: Pressure,
    ) -> Result<(Vec<Outcome>, Timing), TwinError> {
        match self._none {}
    }

    pub fn counter(&mut self, _event: Event) -> Result<u32, BusError> {
        match self._none {}
    }

    pub fn rule_totals(&mut self, _rules: usize) -> Result<Vec<RuleTotals>, BusError> {
        match self._none {}
    }
}
