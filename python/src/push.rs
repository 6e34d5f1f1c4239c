//! Pushes to a Pushgateway, as `kaido bench micro --push` does.

use kaido_metrics::{PushError, Pushgateway};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

/// Replaces what a group has, that of a job and labels, by metrics in the text format.
#[pyfunction]
#[allow(clippy::needless_pass_by_value)] // What Python gives is made for this call.
pub(crate) fn push(
    py: Python<'_>,
    gateway: &str,
    job: &str,
    labels: Vec<(String, String)>,
    text: &str,
) -> PyResult<()> {
    let labels: Vec<_> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let put = || Pushgateway::new(gateway.parse()?, job, &labels)?.put(text);
    py.detach(put).map_err(|error: PushError| PyOSError::new_err(error.to_string()))
}
