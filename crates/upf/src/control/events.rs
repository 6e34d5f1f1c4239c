//! What workers and the clock bring: reports.

use std::time::SystemTime;

use super::Upf;
use super::compile::far_ends;
use super::paths::{EchoRequest, PathSummary};
use crate::node::{WorkerEvent, WorkerOrder};
use crate::rules::{SessionEvent, UsageReportTrigger};

impl Upf {
    pub(super) fn event(&mut self, event: WorkerEvent, now: SystemTime, out: &mut Vec<SessionEvent>) {
        match event {
            WorkerEvent::Threshold { session, slot } => {
                let node = self.node.clone();
                let Some(mut session) = self.sessions.get(session) else { return };
                let Some((id, meter)) = session.kept.meters.iter_mut().find(|(_, meter)| meter.slot == slot)
                else {
                    return;
                };
                let Some(urr) = session.kept.rules.urrs.get(id) else { return };
                if !meter.is_over(urr, &node.usage) {
                    // Said of an earlier session that had the place and the counter.
                    return;
                }
                let report = meter.report(urr, &node.usage, UsageReportTrigger::VOLTH, now);
                out.push(SessionEvent::Usage { seid: session.seid, reports: vec![report] });
                self.schedule(&mut session);
                self.sessions.put(&session);
            }
            WorkerEvent::Buffered { session, pdr } => {
                if let Some(session) = self.sessions.get(session) {
                    out.push(SessionEvent::DownlinkData { seid: session.seid, pdr_id: pdr });
                }
            }
            WorkerEvent::EchoResponse { peer, sequence, restarted } => {
                self.far_ends.paths.answered(peer, sequence, restarted);
            }
            WorkerEvent::ErrorIndication { teid, peer } => {
                for index in self.far_ends.candidates((teid, peer)) {
                    if let Some(session) = self.sessions.get(index)
                        && far_ends(&session.kept.rules, &self.node.settings).contains(&(teid, peer))
                    {
                        out.push(SessionEvent::ErrorIndication { seid: session.seid, teid, peer });
                    }
                }
            }
        }
    }

    /// Asks the peers whose time has come whether they are there.
    pub(super) fn turn_paths(&mut self, now: SystemTime) {
        let (requests, given_up) = self.far_ends.paths.turn(now);
        for peer in given_up {
            self.node.echoes.forget(peer);
        }
        for EchoRequest { peer, sequence } in requests {
            self.node.echoes.expect(peer, sequence);
            self.node.order(WorkerOrder::EchoRequest { peer, sequence });
        }
    }

    /// The GTP-U paths in use, failed ones first, at most `limit`.
    pub fn paths(&self, limit: usize) -> Vec<PathSummary> {
        self.far_ends.paths.summaries(limit)
    }

    /// Reports whose period has ended.
    pub(super) fn periodic(&mut self, now: SystemTime, limit: usize, out: &mut Vec<SessionEvent>) {
        while out.len() < limit
            && let Some(&(due, index, id)) = self.calendar.first()
            && due <= now
        {
            let node = self.node.clone();
            if let Some(mut session) = self.sessions.get(index) {
                let kept = &mut session.kept;
                if let (Some(meter), Some(urr)) = (kept.meters.get_mut(&id), kept.rules.urrs.get(&id)) {
                    let report = meter.report(urr, &node.usage, UsageReportTrigger::PERIO, now);
                    out.push(SessionEvent::Usage { seid: session.seid, reports: vec![report] });
                }
                // The report began a new period; what had none to report is struck out.
                self.schedule(&mut session);
                self.sessions.put(&session);
            }
            self.calendar.remove(&(due, index, id));
        }
    }
}
