//! The hardware cores of `hdl/` under Verilator, clock by clock, behind safe types: what software and hardware make of the same
//! packets can be compared.
//!
//! ```text
//!   settings ──▶ AXI4-Lite ─┐
//!   frames ────▶ s_axis ──▶ core ──▶ m_axis, host_axis, events ──▶ Outcome of each frame, clocks counted
//!                             └ back-pressure on both sides by a seed
//! ```
//! Without verilator at build time there is no core: [`GreCore::new`] says so, and tests are skipped by name.

mod bus;
#[cfg(cores)]
#[allow(unsafe_code, reason = "C++ behind C functions; argued at each block")]
mod ffi;
mod gre;
pub mod gtpu;
#[cfg(test)]
mod map;
mod outcome;
mod pressure;
#[cfg_attr(not(cores), path = "absent.rs")]
mod simulation;
pub mod tunnel;
pub mod upf;

pub use gre::{Event, GreCore, Size, Unfit};
pub use outcome::{BusError, CoreEvent, Disposition, Outcome, Timing, TwinError};
pub use pressure::Pressure;
