//! The log of refused requests: an operator must learn of each kind, and no peer may fill a disk.
//!
//! A refusal is known by who was refused, what, and why. The first of a kind is logged; further ones within
//! [`REPEAT_AFTER`] are counted and told with the next one that is logged.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use kaido_n4::{Rejection, RuleId, Seid};
use rs_pfcp::message::MsgType;

use crate::counters::cause_name;

/// When a refusal of a kind that was logged is logged again.
const REPEAT_AFTER: Duration = Duration::from_secs(60);
/// Kinds that are remembered: all are forgotten when there are more.
const KINDS_MAX: usize = 1024;
/// Lines within [`WINDOW`], whatever the kinds.
const LINES_MAX: u32 = 20;
/// Over which lines are counted.
const WINDOW: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Kind {
    peer: IpAddr,
    message: u8,
    cause: u8,
    offending_ie: Option<u16>,
    rule: Option<RuleId>,
}

/// What a refused request was about, as far as it could be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subject {
    /// The session at the user plane (modification, deletion) or at the control plane (establishment).
    pub(crate) seid: Seid,
    /// The UE's addresses.
    pub(crate) ue: String,
}

/// Decides which refusals are logged.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog {
    kinds: HashMap<Kind, (Instant, u64)>,
    window: Option<(Instant, u32)>,
}

impl RefusalLog {
    /// Logs a refusal, if it is time to. `subject` is asked for only then.
    pub(crate) fn refused(
        &mut self,
        now: Instant,
        peer: IpAddr,
        message: MsgType,
        why: &Rejection,
        subject: impl FnOnce() -> Subject,
    ) {
        let cause = why.cause.value();
        let kind = Kind {
            peer,
            message: message as u8,
            cause,
            offending_ie: why.offending_ie,
            rule: why.failed_rule,
        };
        let Some(repeated) = self.admit(now, kind) else { return };
        let Subject { seid, ue } = subject();
        tracing::warn!(
            %peer,
            request = message_name(message),
            %seid,
            ue = if ue.is_empty() { "unknown" } else { &ue },
            cause,
            cause_name = cause_name(cause),
            offending_ie = why.offending_ie,
            rule = why.failed_rule.map(|rule| rule.to_string()),
            detail = why.detail,
            repeated,
            "request refused"
        );
    }

    /// How many of the kind were not logged since the last one; `None` when this one is not either.
    fn admit(&mut self, now: Instant, kind: Kind) -> Option<u64> {
        if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&kind) {
            self.kinds.clear();
        }
        let (since, lines) = self.window.get_or_insert((now, 0));
        if now.saturating_duration_since(*since) >= WINDOW {
            (*since, *lines) = (now, 0);
        }
        if let Some((logged, repeated)) = self.kinds.get_mut(&kind)
            && (now.saturating_duration_since(*logged) < REPEAT_AFTER || *lines >= LINES_MAX)
        {
            *repeated += 1;
            return None;
        }
        if *lines >= LINES_MAX {
            return None;
        }
        *lines += 1;
        self.kinds.insert(kind, (now, 0)).map_or(Some(0), |(_, repeated)| Some(repeated))
    }
}

/// A message as the standard writes its name.
pub fn message_name(message: MsgType) -> String {
    let camel = format!("{message:?}");
    let mut name = String::with_capacity(camel.len() + 4);
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() && !name.is_empty() {
            name.push(' ');
        }
        name.push(letter);
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(last: u8, cause: u8) -> Kind {
        Kind { peer: IpAddr::from([10, 0, 0, last]), message: 50, cause, offending_ie: Some(84), rule: None }
    }

    #[test]
    fn the_first_of_a_kind_is_logged_and_repetitions_are_counted() {
        let mut log = RefusalLog::default();
        let start = Instant::now();
        assert_eq!(log.admit(start, kind(1, 67)), Some(0));
        for _ in 0..100 {
            assert_eq!(log.admit(start, kind(1, 67)), None);
        }
        assert_eq!(log.admit(start, kind(1, 73)), Some(0), "another cause");
        assert_eq!(log.admit(start, kind(2, 67)), Some(0), "another peer");
        assert_eq!(log.admit(start + REPEAT_AFTER, kind(1, 67)), Some(100));
    }

    #[test]
    fn neither_lines_nor_memory_grow_without_bound() {
        let mut log = RefusalLog::default();
        let start = Instant::now();
        let lines = (0..10_000u32).filter(|n| {
            let kind = Kind { rule: Some(RuleId::Far(kaido_n4::FarId(*n))), ..kind(1, 73) };
            log.admit(start, kind).is_some()
        });
        assert_eq!(lines.count(), LINES_MAX as usize);
        assert!(log.kinds.len() <= KINDS_MAX);
        assert!(log.admit(start + WINDOW, kind(1, 1)).is_some());
    }

    #[test]
    fn messages_have_their_names() {
        assert_eq!(message_name(MsgType::SessionEstablishmentRequest), "Session Establishment Request");
    }
}
