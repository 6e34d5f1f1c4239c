//! What workers and the clock bring: reports.

use std::cmp::Reverse;
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
                let report = meter.report(urr, &node.usage, UsageReportTrigger::VOLTH, now);
                out.push(SessionEvent::Usage { seid: session.seid, reports: vec![report] });
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
            && let Some(&Reverse((due, seid, id))) = self.periods.peek()
            && due <= now
        {
            self.periods.pop();
            let node = self.node.clone();
            let Ok(index) = self.find(seid) else { continue };
            let Some(session) = self.sessions[index].as_deref_mut() else { continue };
            let (Some(meter), Some(urr)) = (session.meters.get_mut(&id), session.rules.urrs.get(&id)) else {
                continue;
            };
            // A report in between, or an update, moved the period.
            match meter.period_ends {
                Some(ends) if ends <= now => {
                    let report = meter.report(urr, &node.usage, UsageReportTrigger::PERIO, now);
                    if let Some(next) = meter.period_ends {
                        self.periods.push(Reverse((next, seid, id)));
                    }
                    out.push(SessionEvent::Usage { seid, reports: vec![report] });
                }
                Some(later) => self.periods.push(Reverse((later, seid, id))),
                None => {}
            }
        }
    }
}
