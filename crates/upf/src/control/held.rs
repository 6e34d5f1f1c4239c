//! Usage of sessions whose control plane does not answer: it stays with the meters until it can be told.

use std::time::SystemTime;

use super::Upf;
use super::resting::SessionFront;
use kaido_n4::{Seid, UrrId, UsageReport};

impl Upf {
    fn front_by_seid(&self, seid: Seid) -> Option<SessionFront> {
        self.sessions.find(seid).and_then(|index| self.sessions.front(index))
    }

    /// See [`kaido_n4::SessionService::hold_usage`].
    pub(super) fn hold(&mut self, seid: Seid, reports: &[UsageReport], sent: bool) -> bool {
        let Some(mut front) = self.front_by_seid(seid) else {
            return reports.is_empty();
        };
        let session = front.session_mut();
        session.state.usage_held = true;
        let mut all_kept = true;
        for report in reports {
            match session.state.meters.get_mut(&report.urr_id) {
                Some(meter) if !report.trigger.is_notice() => meter.take_back(report),
                _ => all_kept = false,
            }
        }
        if !sent {
            for (id, meter) in &mut session.state.meters {
                let mut numbers = measured(reports, *id).map(|report| report.ur_seqn);
                if let Some(first) = numbers.next() {
                    meter.reuse_numbers(first, numbers.last().unwrap_or(first));
                }
            }
        }
        self.rest_front(&front);
        all_kept
    }

    /// See [`kaido_n4::SessionService::release_usage`].
    pub(super) fn release(&mut self, seid: Seid, now: SystemTime) -> Vec<UsageReport> {
        let Some(mut front) = self.front_by_seid(seid) else {
            return Vec::new();
        };
        let session = front.session_mut();
        session.state.usage_held = false;
        let mut reports = Vec::new();
        for (id, meter) in &mut session.state.meters {
            if let Some(urr) = session.state.rules.urrs.get(id) {
                reports.extend(meter.report_owed(urr, &self.node.usage, now));
            }
        }
        session.report_linked(&mut reports, &self.node.usage, now);
        session.arm_shared(&self.node.usage, now);
        self.rest_front(&front);
        reports
    }

    /// See [`kaido_n4::SessionService::usage_arrived`].
    pub(super) fn arrived(&mut self, seid: Seid, reports: &[UsageReport]) {
        let Some(mut front) = self.front_by_seid(seid) else {
            return;
        };
        for (id, meter) in &mut front.session_mut().state.meters {
            measured(reports, *id).for_each(|report| meter.arrived(report));
        }
        self.rest_front(&front);
    }
}

/// The reports of a rule that measure.
fn measured(reports: &[UsageReport], id: UrrId) -> impl Iterator<Item = &UsageReport> {
    reports.iter().filter(move |report| report.urr_id == id && !report.trigger.is_notice())
}
