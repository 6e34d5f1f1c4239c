//! What workers and the clock bring: reports.

use std::time::SystemTime;

use super::Upf;
use crate::node::WorkerEvent;
use crate::rules::{SessionEvent, UsageReportTrigger};

impl Upf {
    pub(super) fn event(&mut self, event: WorkerEvent, now: SystemTime, out: &mut Vec<SessionEvent>) {
        match event {
            WorkerEvent::Threshold { session, slot } => {
                let node = self.node.clone();
                let Some(session) = self.by_index(session) else { return };
                let Some((id, meter)) = session.meters.iter_mut().find(|(_, meter)| meter.slot == slot)
                else {
                    return;
                };
                let Some(urr) = session.rules.urrs.get(id) else { return };
                if !meter.is_over(urr, &node.usage) {
                    // Said of an earlier session that had the place and the counter.
                    return;
                }
                let report = meter.report(urr, &node.usage, UsageReportTrigger::VOLTH, now);
                out.push(SessionEvent::Usage { seid: session.seid, reports: vec![report] });
                let index = session.index;
                self.schedule(index);
            }
            WorkerEvent::Buffered { session, pdr } => {
                if let Some(session) = self.by_index(session) {
                    out.push(SessionEvent::DownlinkData { seid: session.seid, pdr_id: pdr });
                }
            }
            WorkerEvent::ErrorIndication { teid, peer } => {
                for index in self.tunnels.get(&(teid, peer)).cloned().unwrap_or_default() {
                    if let Some(session) = self.by_index(index) {
                        out.push(SessionEvent::ErrorIndication { seid: session.seid, teid, peer });
                    }
                }
            }
        }
    }

    /// Reports whose period has ended.
    pub(super) fn periodic(&mut self, now: SystemTime, limit: usize, out: &mut Vec<SessionEvent>) {
        while out.len() < limit
            && let Some(&(due, index, id)) = self.calendar.first()
            && due <= now
        {
            let node = self.node.clone();
            let reported = self.by_index(index).and_then(|session| {
                let (meter, urr) = (session.meters.get_mut(&id)?, session.rules.urrs.get(&id)?);
                let report = meter.report(urr, &node.usage, UsageReportTrigger::PERIO, now);
                Some(SessionEvent::Usage { seid: session.seid, reports: vec![report] })
            });
            out.extend(reported);
            // The report began a new period; what had none to report is struck out.
            self.schedule(index);
            self.calendar.remove(&(due, index, id));
        }
    }
}
