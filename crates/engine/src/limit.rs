//! A bound on what we send because of what a stranger sent: errors must not amplify.

use std::time::{Duration, Instant};

/// Lets through a number of answers per second, with a burst of as many.
#[derive(Debug)]
pub struct RateLimit {
    per_second: u32,
    left: u32,
    refilled: Instant,
}

impl RateLimit {
    /// So many a second.
    pub fn new(per_second: u32) -> Self {
        Self { per_second, left: per_second, refilled: Instant::now() }
    }

    /// So many a second from the next second on.
    pub fn set(&mut self, per_second: u32) {
        self.per_second = per_second;
    }

    /// Whether one more may be sent at `now`.
    pub fn admit(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.refilled) >= Duration::from_secs(1) {
            self.left = self.per_second;
            self.refilled = now;
        }
        let admitted = self.left > 0;
        self.left = self.left.saturating_sub(1);
        admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_its_share() {
        let mut limit = RateLimit::new(3);
        let start = Instant::now();
        let admitted = |limit: &mut RateLimit, at| (0..100).filter(|_| limit.admit(at)).count();
        assert_eq!(admitted(&mut limit, start), 3);
        assert_eq!(admitted(&mut limit, start + Duration::from_millis(500)), 0);
        assert_eq!(admitted(&mut limit, start + Duration::from_secs(2)), 3);
        limit.set(5);
        assert_eq!(admitted(&mut limit, start + Duration::from_millis(2500)), 0);
        assert_eq!(admitted(&mut limit, start + Duration::from_secs(3)), 5);
        assert_eq!(admitted(&mut RateLimit::new(0), start), 0);
    }
}
