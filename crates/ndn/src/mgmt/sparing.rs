//! Tells of what anyone may cause as often as they like: one line a second, which says how many were left out.

use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_secs(1);

/// When the next line may be written.
#[derive(Debug, Default)]
pub(super) struct LogLimit {
    next: Option<Instant>,
    left_out: u64,
}

impl LogLimit {
    /// Whether a line may be written now; how many were left out since the last one.
    pub(super) fn may_tell(&mut self, now: Instant) -> Option<u64> {
        if self.next.is_some_and(|next| now < next) {
            self.left_out += 1;
            return None;
        }
        self.next = Some(now + EVERY);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_a_second_and_the_number_of_the_others() {
        let (mut sparing, begin) = (LogLimit::default(), Instant::now());
        assert_eq!(sparing.may_tell(begin), Some(0));
        for millis in 0..10 {
            assert_eq!(sparing.may_tell(begin + Duration::from_millis(millis * 100)), None);
        }
        assert_eq!(sparing.may_tell(begin + EVERY), Some(10));
        assert_eq!(sparing.may_tell(begin + EVERY), None);
    }
}
