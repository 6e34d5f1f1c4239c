//! Reports of buffered and discarded downlink packets (TS 29.244 5.2.3.1, 5.2.4, 7.5.8.2); [`super::paging`] has how far they are.

use std::time::SystemTime;

use super::paging::Stage;
use super::ruleset::RuleSet;
use super::session::Session;
use super::{Upf, millis};
use kaido_n4::{BufferingRule, DataStatus, DownlinkDataService, Far, PdrId, QerId, Qfi, SessionEvent};

impl Upf {
    /// The first packet of a session was buffered.
    pub(super) fn buffered(
        &mut self,
        session: &mut Session,
        (pdr, dscp): (PdrId, u8),
        now: SystemTime,
        out: &mut Vec<SessionEvent>,
    ) {
        let rules = &session.state.rules;
        let Some((far, bar)) = buffering(rules, pdr) else { return };
        let action = far.apply_action;
        let delay = bar.and_then(|bar| bar.notification_delay).unwrap_or_default();
        let paging = &mut session.state.paging;
        if action.report_buffered && !std::mem::replace(&mut paging.buffered_told, true) {
            let status = DataStatus::Buffered;
            out.push(SessionEvent::DownlinkDataStatus { seid: session.seid, pdr_id: pdr, status });
        }
        let again = match paging.stage {
            Stage::Idle => true,
            Stage::Delayed { .. } => false,
            Stage::Reported { until } => millis(now) >= until,
        };
        if action.notify_cp && again {
            paging.stage = Stage::Delayed { at: millis(now + delay), pdr, dscp };
            self.report_delayed(session, now, out);
        }
    }

    /// A packet of a session was dropped that should have been buffered, or was.
    pub(super) fn discarded(&self, session: &mut Session, pdr: PdrId, out: &mut Vec<SessionEvent>) {
        let Some((far, _)) = buffering(&session.state.rules, pdr) else { return };
        let wanted = far.apply_action.report_discarded;
        if wanted && !std::mem::replace(&mut session.state.paging.discarded_told, true) {
            let status = DataStatus::Discarded;
            out.push(SessionEvent::DownlinkDataStatus { seid: session.seid, pdr_id: pdr, status });
        }
    }

    /// Makes a report whose delay is over.
    pub(super) fn report_delayed(&self, session: &mut Session, now: SystemTime, out: &mut Vec<SessionEvent>) {
        let Stage::Delayed { at, pdr, dscp } = session.state.paging.stage else { return };
        if at > millis(now) {
            return;
        }
        let rules = &session.state.rules;
        let Some((_, bar)) = buffering(rules, pdr) else {
            session.state.paging.stage = Stage::Idle;
            return;
        };
        let wait = bar.and_then(|bar| bar.duration).unwrap_or(self.node.live().buffer.time_max);
        out.push(SessionEvent::DownlinkData {
            seid: session.seid,
            pdr_id: pdr,
            service: service(rules, pdr, dscp),
        });
        session.state.paging.stage = Stage::Reported { until: millis(now + wait) };
    }
}

/// The FAR of a rule that buffers, and how.
fn buffering(rules: &RuleSet, pdr: PdrId) -> Option<(&Far, Option<&BufferingRule>)> {
    let far = rules.fars.get(&rules.pdrs.get(&pdr)?.far_id?).filter(|far| far.apply_action.buffer)?;
    Some((far, far.bar_id.and_then(|id| rules.bars.get(&id))))
}

/// Downlink Data Service Information (8.2.27): what the packet is marked with, and its QoS flow.
fn service(rules: &RuleSet, pdr: PdrId, dscp: u8) -> DownlinkDataService {
    let qers = rules.pdrs.get(&pdr).into_iter().flat_map(|pdr| &pdr.qer_ids);
    let qfi = |id: &QerId| -> Option<Qfi> { rules.qers.get(id)?.qfi };
    DownlinkDataService { paging_policy: (dscp != 0).then_some(dscp), qfi: qers.clone().find_map(qfi) }
}
