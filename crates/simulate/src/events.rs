//! What happened in a run: its last lines, to be read at a failure, and a digest of all, to compare two runs.

use std::collections::VecDeque;
use std::fmt::Arguments;
use std::time::Duration;

/// The events of a run. What the product chooses at random, such as SEIDs and TEIDs, is in none of them.
#[derive(Debug)]
pub(crate) struct EventLog {
    digest: u64,
    count: u64,
    lines: VecDeque<String>,
    lines_max: usize,
    /// The step and the time of the next line.
    at: (u64, Duration),
}

impl EventLog {
    /// One that keeps so many lines.
    pub(crate) fn new(lines_max: usize) -> Self {
        let lines = VecDeque::with_capacity(lines_max.min(4096));
        Self { digest: 0xcbf2_9ce4_8422_2325, count: 0, lines, lines_max, at: (0, Duration::ZERO) }
    }

    /// A step begins.
    pub(crate) fn step(&mut self, step: u64, time: Duration) {
        self.at = (step, time);
    }

    /// Notes an event.
    pub(crate) fn note(&mut self, event: Arguments<'_>) {
        let mut line = if self.lines.len() >= self.lines_max.max(1) { self.lines.pop_front() } else { None }
            .unwrap_or_default();
        line.clear();
        let (step, time) = self.at;
        // A string takes everything.
        let _ = std::fmt::write(&mut line, format_args!("{step:>7} {:>11.6} {event}", time.as_secs_f64()));
        for octet in line.as_bytes() {
            self.digest = (self.digest ^ u64::from(*octet)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.count += 1;
        self.lines.push_back(line);
    }

    /// A digest of all events.
    pub(crate) const fn digest(&self) -> u64 {
        self.digest
    }

    /// How many there were.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// The last of them.
    pub(crate) fn last(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }
}
