//! The native module of the Python package `kaido`.
//!
//! Traffic goes in and results come out as JSON: both are the serde types of `kaido-bench`, and the Python side builds its
//! frames from them. What takes long releases the interpreter's lock.

use pyo3::prelude::*;

mod traffic;

/// The module `kaido._native`.
#[pymodule]
mod _native {
    #[pymodule_export]
    use super::traffic::check_traffic;
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
