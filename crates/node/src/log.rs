//! What the node says of itself: its log, and to a service manager.

use std::io::IsTerminal;
use std::sync::{Mutex, OnceLock, PoisonError};

use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt, reload};

use crate::config::{Base, LogFormat};
use crate::journal::Journal;

/// Starts the log, as the configuration says.
pub(crate) fn start_log(base: &Base) {
    // The configuration was checked: a filter that does not parse does not come here.
    let filter = EnvFilter::try_new(base.log.level.get_ref()).unwrap_or_default();
    LEVEL.lock().unwrap_or_else(PoisonError::into_inner).clone_from(base.log.level.get_ref());
    let (filter, handle) = reload::Layer::new(filter);
    let lines = fmt::layer().with_ansi(is_coloured()).with_writer(std::io::stderr);
    let started = match (base.log.format, journal()) {
        (LogFormat::Text, Some(journal)) => {
            tracing_subscriber::registry().with(filter).with(journal).try_init()
        }
        (LogFormat::Text, None) => tracing_subscriber::registry().with(filter).with(lines).try_init(),
        (LogFormat::Json, _) => tracing_subscriber::registry().with(filter).with(lines.json()).try_init(),
    };
    match started {
        Ok(()) => remember(move |level| handle.reload(level).is_ok()),
        Err(_) => eprintln!("a log was started before; its settings stay"),
    }
}

/// The journal of systemd, where stderr leads there. `None` elsewhere.
fn journal() -> Option<Journal> {
    let stream = std::env::var("JOURNAL_STREAM").ok()?;
    let stderr = rustix::fs::fstat(std::io::stderr()).ok()?;
    // A program whose stderr was sent elsewhere has the variable too (systemd.exec(5)).
    (stream == format!("{}:{}", stderr.st_dev, stderr.st_ino)).then_some(())?;
    Journal::open().ok()
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
