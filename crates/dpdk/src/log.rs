//! DPDK's log: each line becomes an event, and what it complained of last is kept for an error message.

use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};

use crate::sys;

/// Complaints that are kept.
const KEPT: usize = 6;

/// The log of the process, as DPDK has one.
static LOG: Mutex<Log> = Mutex::new(Log { part: String::new(), complaints: Vec::new() });

struct Log {
    /// A line whose end has not come yet.
    part: String,
    complaints: Vec<String>,
}

/// Has DPDK's log come here. `false` when there is no memory for a stream.
pub(crate) fn redirect() -> bool {
    // SAFETY: `take` may be called by any thread at any time, and lasts as long as the process.
    unsafe { sys::kaido_log_to(Some(take)) == 0 }
}

/// Forgets earlier complaints.
pub(crate) fn clear() {
    LOG.lock().unwrap_or_else(PoisonError::into_inner).complaints.clear();
}

/// What DPDK has complained of since, in one line.
pub(crate) fn complaints() -> String {
    std::mem::take(&mut LOG.lock().unwrap_or_else(PoisonError::into_inner).complaints).join("; ")
}

/// Takes a piece of the log, in the course of a call into DPDK.
unsafe extern "C" fn take(level: u32, text: *const c_char, len: usize) {
    // SAFETY: stdio hands over `len` bytes that live until we return.
    let text = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), len) };
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    log.part.push_str(&String::from_utf8_lossy(text));
    while let Some(end) = log.part.find('\n') {
        let line: String = log.part.drain(..=end).collect();
        let line = line.trim_end();
        if level <= sys::RTE_LOG_WARNING {
            keep(&mut log.complaints, line);
        }
        emit(level, line);
    }
}

/// Adds a complaint, unless it is there; the oldest goes when there are many.
fn keep(complaints: &mut Vec<String>, line: &str) {
    let text = line.trim();
    if text.is_empty() || complaints.iter().any(|kept| kept == text) {
        return;
    }
    if complaints.len() == KEPT {
        complaints.remove(0);
    }
    complaints.push(text.to_owned());
}

fn emit(level: u32, line: &str) {
    match level {
        // Those that matter come back in an error; a driver that is tried and does not suit complains as loudly.
        0..=sys::RTE_LOG_WARNING => tracing::warn!(target: "dpdk", "{line}"),
        sys::RTE_LOG_NOTICE => tracing::info!(target: "dpdk", "{line}"),
        _ => tracing::debug!(target: "dpdk", "{line}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_are_kept_once_and_the_last_of_them() {
        let mut kept = Vec::new();
        for line in ["a", "b ", "a", "", "c", "d", "e", "f", "g"] {
            keep(&mut kept, line);
        }
        assert_eq!(kept, ["b", "c", "d", "e", "f", "g"]);
    }
}
