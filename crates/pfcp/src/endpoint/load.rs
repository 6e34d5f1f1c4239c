//! Load control and overload control (TS 29.244 6.2.3, 6.2.4).
//!
//! Load is how full the node is; where it is to be told, every session response and report tells it to the control
//! planes that want to know. Overload is how far requests lag behind: it is told the same way, and while it lasts,
//! establishments of low priority are refused with cause 74. OAI's SMF wants to know and drops each answer that tells.

use std::time::SystemTime;

use kaido_n4::{Cause, Rejection, SessionService};
use rs_pfcp::ie::{Ie, IeType};

use super::Endpoint;
use crate::association::AssociationId;
use crate::encode::{Draft, ntp_seconds, number};
use crate::features::CpFeatures;
use crate::frame::Frame;

/// Metrics are told in steps of so many percent, so that small changes make no new ones.
const STEP: u8 = 5;
/// From this lag of the requests on the node calls itself overloaded.
const LAG_BORNE: u8 = 50;
/// Period of Validity (8.2.35): five units of two seconds.
const VALIDITY: u8 = 5;
/// The priority of messages that say none; 0 is the highest, 15 the lowest (7.2.2.3).
const PRIORITY_UNSAID: u8 = 8;
const PRIORITIES: u16 = 16;

/// A metric with the number of its last change (8.2.33, 8.2.34).
#[derive(Clone, Copy, Debug)]
struct Metric {
    percent: u8,
    sequence: u32,
}

impl Metric {
    fn set(&mut self, percent: u8) {
        let percent = percent.min(100) / STEP * STEP;
        if percent != self.percent {
            self.percent = percent;
            self.sequence = self.sequence.wrapping_add(1);
        }
    }

    fn elements(self) -> Vec<Ie> {
        vec![
            number(IeType::SequenceNumber, self.sequence.to_be_bytes()),
            number(IeType::Metric, [self.percent]),
        ]
    }
}

/// How full and how far behind the node is.
#[derive(Debug)]
pub(super) struct Load {
    load: Metric,
    /// By how much the control planes should send less.
    reduction: Metric,
}

impl Load {
    /// Sequence numbers begin at the start time, so that they go on rising over a restart.
    pub(super) fn new(started: SystemTime) -> Self {
        let unknown = Metric { percent: 0, sequence: ntp_seconds(started) };
        Self { load: unknown, reduction: unknown }
    }
}

impl<S: SessionService> Endpoint<S> {
    /// Says how far behind the node is with its requests: 0 to 100, from the queue they wait in. Above 50 the
    /// node counts as overloaded.
    pub fn set_lag(&mut self, percent: u8) {
        let above = percent.min(100).saturating_sub(LAG_BORNE);
        let before = self.load.reduction.percent;
        self.load.reduction.set(above.saturating_mul(100 / (100 - LAG_BORNE)));
        let now = self.load.reduction.percent;
        if (before == 0) != (now == 0) {
            tracing::warn!(reduction = now, "overload {}", if now > 0 { "begins" } else { "ends" });
        }
    }

    pub(super) fn measure_load(&mut self) {
        let waiting = self.outgoing.len().saturating_mul(100) / self.config.limits.outstanding.max(1);
        let waiting = u8::try_from(waiting).unwrap_or(100);
        self.load.load.set(self.service.load().max(waiting));
    }

    /// Adds Load Control Information and, during overload, Overload Control Information, for a control plane that
    /// understands them, where they are to be told.
    pub(super) fn say_load(&self, to: AssociationId, draft: &mut Draft) {
        let Some(association) = self.associations.get(to).filter(|_| self.config.tells_load) else { return };
        if association.features.has(CpFeatures::LOAD) {
            draft.push(&Ie::new_grouped(IeType::LoadControlInformation, self.load.load.elements()));
        }
        if association.features.has(CpFeatures::OVRL) && self.load.reduction.percent > 0 {
            let mut elements = self.load.reduction.elements();
            elements.push(number(IeType::Timer, [VALIDITY]));
            // AOCI (8.2.76): it speaks of the whole node.
            elements.push(number(IeType::OciFlags, [1]));
            draft.push(&Ie::new_grouped(IeType::OverloadControlInformation, elements));
        }
    }

    /// Refuses a new session while the node is overloaded, the lower its priority the sooner; the highest never.
    pub(super) fn admit(&self, frame: &Frame<'_>) -> Result<(), Rejection> {
        let priority = frame.priority.unwrap_or(PRIORITY_UNSAID);
        let admitted = u16::from(100 - self.load.reduction.percent) * PRIORITIES / 100;
        if priority == 0 || u16::from(priority) < admitted {
            Ok(())
        } else {
            Err(Rejection::new(Cause::PfcpEntityInCongestion, "more requests than can be kept up with"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_change_in_steps() {
        let mut metric = Metric { percent: 0, sequence: u32::MAX };
        metric.set(4);
        assert_eq!((metric.percent, metric.sequence), (0, u32::MAX));
        metric.set(7);
        assert_eq!((metric.percent, metric.sequence), (5, 0));
        metric.set(255);
        assert_eq!((metric.percent, metric.sequence), (100, 1));
    }
}
