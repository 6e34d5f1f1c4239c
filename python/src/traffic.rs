//! Traffic as Python writes it.

use kaido_bench::generator::{CompiledTraffic, Problem};
use kaido_bench::stream::Traffic;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A `ValueError` of what is wrong, a line each.
pub(crate) fn wrong(problems: &[Problem]) -> PyErr {
    let lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    PyValueError::new_err(lines.join("\n"))
}

/// Reads traffic; what is wrong with it is a `ValueError` that names the place.
fn read(text: &str) -> PyResult<Traffic> {
    serde_json::from_str(text).map_err(|error| PyValueError::new_err(format!("traffic: {error}")))
}

/// Reads traffic and writes it again, with everything that was left out.
#[pyfunction]
pub(crate) fn check_traffic(traffic: &str) -> PyResult<String> {
    serde_json::to_string(&read(traffic)?).map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The first packets of a stream, with the trailers they have when they are sent as a run begins.
#[pyfunction]
pub(crate) fn packets<'py>(
    py: Python<'py>,
    traffic: &str,
    stream: usize,
    count: u64,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let compiled = CompiledTraffic::new(&read(traffic)?).map_err(|problems| wrong(&problems))?;
    let packets = (0..count).map_while(|sequence| compiled.packet(stream, sequence, 0));
    Ok(packets.map(|packet| PyBytes::new(py, &packet)).collect())
}
