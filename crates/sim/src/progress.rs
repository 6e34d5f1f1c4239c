//! What a person reads while the sim runs. Stdout is for scripts, stderr for these lines.

use std::io::Write;
use std::time::{Duration, Instant};

/// Time between two lines of one procedure.
const PAUSE: Duration = Duration::from_secs(1);

/// Progress lines on stderr, or none.
#[derive(Debug)]
pub(super) struct Progress {
    quiet: bool,
    last: Instant,
}

impl Progress {
    /// Lines, unless `quiet`.
    pub(super) fn new(quiet: bool) -> Self {
        Self { quiet, last: Instant::now() }
    }

    /// Says a line.
    pub(super) fn say(&self, line: &str) {
        if !self.quiet {
            // Nobody reads it any more: no reason to end.
            let _ = writeln!(std::io::stderr(), "sim: {line}");
        }
    }

    /// A long procedure begins.
    pub(super) fn begin(&mut self) {
        self.last = Instant::now();
    }

    /// Says how far a long procedure is, once a second.
    pub(super) fn progress(&mut self, done: &str, count: usize, of: u32) {
        if !self.quiet && self.last.elapsed() >= PAUSE {
            self.last = Instant::now();
            self.say(&format!("{done} {count} of {of} UEs"));
        }
    }
}
