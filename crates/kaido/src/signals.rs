//! How whoever runs the program says that it is to stop.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use miette::{Context, IntoDiagnostic};
use signal_hook::consts::{SIGINT, SIGTERM};

/// Set by SIGINT and SIGTERM.
///
/// # Errors
/// When the system takes no handlers.
pub(crate) fn stop_flag() -> miette::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, stop.clone())
            .into_diagnostic()
            .wrap_err("handlers of SIGINT and SIGTERM")?;
    }
    Ok(stop)
}
