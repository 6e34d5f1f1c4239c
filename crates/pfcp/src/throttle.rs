//! Bounds what repeated trouble writes into the log: a peer must not fill a disk.

use std::time::{Duration, Instant};

/// Lines of one kind in a window.
const LINES_MAX: u32 = 10;
/// How long a window is.
const WINDOW: Duration = Duration::from_secs(10);

/// Lets through the first lines of each window and counts the rest.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    window: Option<Instant>,
    said: u32,
    suppressed: u64,
}

impl Throttle {
    /// Whether a line may be written, and how many were not since the last one.
    pub(crate) fn line(&mut self, now: Instant) -> Option<u64> {
        if self.window.is_none_or(|since| now.saturating_duration_since(since) >= WINDOW) {
            (self.window, self.said) = (Some(now), 0);
        }
        if self.said >= LINES_MAX {
            self.suppressed += 1;
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_has_so_many_lines_and_the_rest_is_counted() {
        let (mut throttle, now) = (Throttle::default(), Instant::now());
        let lines = (0..1000).filter(|_| throttle.line(now).is_some()).count();
        assert_eq!(lines, 10);
        assert_eq!(throttle.line(now + WINDOW), Some(990));
        assert_eq!(throttle.line(now + WINDOW), Some(0));
    }
}
