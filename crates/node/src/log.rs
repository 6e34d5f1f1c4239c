//! What the node says of itself: its log, and to a service manager.

use std::io::IsTerminal;
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing_subscriber::EnvFilter;

use crate::config::{Base, LogFormat};

/// Starts the log, as the configuration says.
pub(crate) fn start_log(base: &Base) {
    // The configuration was checked: a filter that does not parse does not come here.
    let filter = EnvFilter::try_new(base.log.level.get_ref()).unwrap_or_default();
    LEVEL.lock().unwrap_or_else(PoisonError::into_inner).clone_from(base.log.level.get_ref());
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(is_coloured())
        .with_writer(std::io::stderr);
    let started = match base.log.format {
        LogFormat::Text => {
            let builder = builder.with_filter_reloading();
            let filter = builder.reload_handle();
            builder.try_init().map(|()| remember(move |level| filter.reload(level).is_ok()))
        }
        LogFormat::Json => {
            let builder = builder.json().with_filter_reloading();
            let filter = builder.reload_handle();
            builder.try_init().map(|()| remember(move |level| filter.reload(level).is_ok()))
        }
    };
    if started.is_err() {
        eprintln!("a log was started before; its settings stay");
    }
}

/// Has what is logged be another from then on; whether it is.
type SetLevel = Box<dyn Fn(EnvFilter) -> bool + Send + Sync>;

static SET_LEVEL: OnceLock<SetLevel> = OnceLock::new();

fn remember(set: impl Fn(EnvFilter) -> bool + Send + Sync + 'static) {
    // There is one log.
    let _ = SET_LEVEL.set(Box::new(set));
}

/// What is logged.
static LEVEL: Mutex<String> = Mutex::new(String::new());

/// What is logged.
pub(crate) fn level() -> String {
    LEVEL.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Logs something else from here on.
pub(crate) fn set_level(level: &str) {
    let filter = EnvFilter::try_new(level).unwrap_or_default();
    if SET_LEVEL.get().is_none_or(|set| !set(filter)) {
        tracing::warn!("the level of the log stays: another program has started the log");
        return;
    }
    level.clone_into(&mut LEVEL.lock().unwrap_or_else(PoisonError::into_inner));
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
    if let Some(signal) = crate::signals::received() {
        tracing::info!("{signal}: the node stops");
    }
}
