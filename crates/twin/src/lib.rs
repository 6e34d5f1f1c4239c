//! The hardware cores of `hdl/` under Verilator, clock by clock, behind safe types: what software and hardware make of the same
//! packets can be compared.
//!
//! ```text
//!   Settings ──▶ AXI4-Lite ─┐
//!   frames ────▶ s_axis ──▶ GreCore ──▶ m_axis, host_axis, events ──▶ Outcome of each frame, clocks counted
//!                             └ back-pressure on both sides by a seed
//! ```
//! Without verilator at build time there is no core: [`GreCore::new`] says so, and tests are skipped by name.

#[cfg(cores)]
#[allow(unsafe_code, reason = "C++ behind C functions; argued at each block")]
mod ffi;
mod gre;
mod pressure;
mod registers;

pub use gre::{Disposition, Event, GreCore, Outcome, Size, Timing, TwinError};
pub use pressure::Pressure;
pub use registers::{BusError, Unfit};
