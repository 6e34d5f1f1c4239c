//! What the node says of itself: its log, and to a service manager.

use std::io::IsTerminal;

use crate::config::{Base, LogFormat};

/// Starts the log, as the configuration says.
pub(crate) fn start_log(base: &Base) {
    // The configuration was checked: a filter that does not parse does not come here.
    let filter = tracing_subscriber::EnvFilter::try_new(base.log.level.get_ref()).unwrap_or_default();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_coloured())
        .with_writer(std::io::stderr);
    let started = match base.log.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    if started.is_err() {
        eprintln!("a log was started before; its settings stay");
    }
}

/// Whether the log may have colours: on a terminal, unless `NO_COLOR` is set (no-color.org).
fn is_coloured() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Tells a service manager, where there is one.
pub(crate) fn notify(state: &[sd_notify::NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager was not told");
    }
}

/// Says why the node stops.
pub(crate) fn log_stop() {
    match crate::signals::received() {
        Some("SIGHUP") => tracing::warn!(
            "SIGHUP: the node stops in order; it cannot reload its configuration, start it again with the new one"
        ),
        Some(signal) => tracing::info!("{signal}: the node stops"),
        None => {}
    }
}
