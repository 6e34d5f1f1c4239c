//! The native module of the Python package `kaido`.
//!
//! ```text
//!   traffic, device, rules ──JSON──▶ Run ──thread──▶ generators ─▶ ports ─▶ device ─▶ ports ─▶ receiver
//!   counters while it runs, and the result at its end ◀──JSON──┘
//! ```
//! Both are the serde types of `kaido-bench`, and the Python side builds its frames from them. What takes long releases the
//! interpreter's lock.

use pyo3::prelude::*;

mod capture;
mod device;
mod ports;
mod push;
mod run;
mod traffic;

/// The module `kaido._native`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::push::push;
    #[pymodule_export]
    use super::run::Run;
    #[pymodule_export]
    use super::traffic::{check_traffic, packets};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
