//! Traffic as Python writes it.

use kaido_bench::stream::Traffic;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Reads traffic; what is wrong with it is a `ValueError` that names the place.
fn read(text: &str) -> PyResult<Traffic> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(format!("traffic: {error}")))
}

/// Reads traffic and writes it again, with everything that was left out.
#[pyfunction]
pub(crate) fn check_traffic(traffic: &str) -> PyResult<String> {
    serde_json::to_string(&read(traffic)?).map_err(|error| PyValueError::new_err(error.to_string()))
}
