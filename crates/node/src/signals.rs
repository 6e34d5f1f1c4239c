//! How whoever runs the program says that it is to stop.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use miette::{Context, IntoDiagnostic};
use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGTERM};
use signal_hook::flag;

/// What a shell says of a program that a broken pipe ended.
const BROKEN_PIPE: i32 = 128 + SIGPIPE;

/// The signal that came last, by its number.
static RECEIVED: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// Set by SIGHUP, unless who started us has it ignored (`nohup`).
///
/// # Errors
/// When the system takes no handlers.
pub fn hangup_flag() -> miette::Result<Arc<AtomicBool>> {
    let hung_up = Arc::new(AtomicBool::new(false));
    if !is_ignored(SIGHUP) {
        flag::register(SIGHUP, hung_up.clone()).into_diagnostic().wrap_err("a handler of SIGHUP")?;
    }
    Ok(hung_up)
}

/// Set by SIGINT and SIGTERM.
///
/// # Errors
/// When the system takes no handlers.
pub fn stop_flag() -> miette::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let received = RECEIVED.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM] {
        let number = usize::try_from(signal).unwrap_or(0);
        // In this order they act: who sees the flag finds the number.
        flag::register_usize(signal, received.clone(), number)
            .and_then(|_| flag::register(signal, stop.clone()))
            .into_diagnostic()
            .wrap_err("handlers of SIGINT and SIGTERM")?;
    }
    Ok(stop)
}

/// The name of the signal that set a flag, once one has.
pub fn received() -> Option<&'static str> {
    let number = RECEIVED.get()?.load(Ordering::Relaxed);
    let names = [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM")];
    names.into_iter().find(|&(signal, _)| usize::try_from(signal) == Ok(number)).map(|(_, name)| name)
}

/// Has the program end at once and without a word when whoever reads what it prints has gone, as `head` does.
pub fn end_with_the_reader() {
    // Without it a broken pipe is an error like others, which printing panics at.
    let _ = flag::register_conditional_shutdown(SIGPIPE, BROKEN_PIPE, Arc::new(AtomicBool::new(true)));
}

/// Whether the program was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_mask(&status).is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
}

fn ignored_mask(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read() {
        let mask = ignored_mask("Name:\tkaido\nSigIgn:\t0000000000001001\nSigCgt:\t0\n");
        assert_eq!(mask, Some(1 | 1 << (SIGPIPE - 1)));
        assert_eq!((ignored_mask("SigIgn:\tx\n"), ignored_mask("")), (None, None));
    }
}
