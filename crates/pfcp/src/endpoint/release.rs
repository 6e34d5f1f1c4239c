//! Release of associations (TS 29.244 6.2.8), with all usage reported before where both sides know how (5.18).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use kaido_n4::{Progress, Rejection, Seid, SessionService, UsageReport, UsageReportTrigger};
use rs_pfcp::ie::IeType;
use rs_pfcp::ie::pfcpau_req_flags::PfcpauReqFlags;
use rs_pfcp::message::MsgType;

use super::binding::{Binding, Bindings};
use super::purge::Purge;
use super::report::REPORTS_IN_REQUEST_MAX;
use super::{Endpoint, Purpose};
use crate::association::AssociationId;
use crate::encode::{self, Draft, accepted, number};
use crate::frame::Frame;
use crate::node_id::NodeId;
use crate::procedure::Phase;
use crate::transaction::{Instants, Transmit};
use crate::walk::{Group, typed};

/// TEBUR of the Usage Report Trigger (8.2.41): the user plane ended the session.
const ENDED_BY_UP: UsageReportTrigger = UsageReportTrigger::from_octets([0, 0, 2]);
/// SARR and URSS of the PFCP Association Release Request (8.2.77).
const RELEASE_WANTED: u8 = 1;
const USAGE_SENT: u8 = 2;

/// Sessions ended and reported in one poll; others are served in between.
const ENDED_PER_POLL: usize = 128;

/// An association whose sessions are brought to an end before it is released (5.18).
#[derive(Debug)]
pub(super) struct AssociationRelease {
    association: AssociationId,
    /// Sessions to end, the next one last.
    sessions: Vec<Seid>,
    /// Their reports that wait for an answer.
    unanswered: usize,
}

/// Where the last report of a session goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastReport {
    association: AssociationId,
    to: SocketAddr,
    /// The session's SEID there.
    cp: Seid,
}

/// Usage that a control plane was not told of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreportedUsage {
    /// Who it is, where its association is still there.
    pub node: Option<NodeId>,
    /// Sessions, or parts of their reports.
    pub sessions: usize,
    /// Their octets since the last report.
    pub octets: u64,
}

/// Why a session was not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReleased {
    /// There is none.
    NoSession,
    /// Too many requests of ours wait for answers.
    Busy,
}

fn octets_in(reports: &[UsageReport]) -> u64 {
    // URRs of a session mostly measure the same: the largest is what was carried.
    reports.iter().filter_map(|report| report.volume).map(|volume| volume.total_bytes()).max().unwrap_or(0)
}

/// PFCPAUReq-Flags PARPS (8.2.120).
pub(super) fn release_is_prepared(group: &Group<'_>) -> Result<bool, Rejection> {
    const KIND: IeType = IeType::PfcpauReqFlags;
    let flags = group.first(KIND).map(|value| typed(KIND, PfcpauReqFlags::unmarshal(value))).transpose()?;
    Ok(flags.is_some_and(|flags| flags.contains(PfcpauReqFlags::PARPS)))
}

/// A Timer (8.2.35) of at least `period`: the unit in three bits, the count in five.
fn timer(period: Duration) -> u8 {
    let seconds = period.as_secs();
    let units = [(0u8, 2u64), (1, 60), (2, 600), (3, 3600), (4, 36_000)];
    let fitting = units.into_iter().map(|(unit, length)| (unit, seconds.div_ceil(length)));
    fitting
        .filter_map(|(unit, count)| {
            u8::try_from(count).ok().filter(|&count| count < 32).map(|c| unit << 5 | c)
        })
        .next()
        .unwrap_or(7 << 5)
}

impl<S: SessionService> Endpoint<S> {
    /// Association Release Request (6.2.8): the node's sessions go with the association. The answer does not wait until all
    /// are deleted: the peer would send its request again, and give up, before a million are. No message reaches them, and
    /// none is sent of them, from here on.
    pub(super) fn association_release(
        &mut self,
        now: Instants,
        from: SocketAddr,
        frame: &Frame<'_>,
    ) -> Result<Vec<u8>, Rejection> {
        let group = Group::of_message(frame.body)?;
        let id = self.association_named(from, &group)?;
        self.procedure_is_of(id);
        self.procedure_enters(Phase::Apply);
        if let Some(association) = self.end_association(now, id) {
            tracing::info!(node = %association.node, "association released");
        }
        self.procedure_enters(Phase::Encode);
        let draft = Draft::node(MsgType::AssociationReleaseResponse, frame.sequence)
            .with(&self.config.node_id.encode())
            .with(&accepted());
        Ok(draft.bytes())
    }

    /// Asks every peer to release its association, within `grace` (6.2.8.3): only the control plane may
    /// release, so the user plane asks by an Association Update Request. Wait for [`Endpoint::peers`] to
    /// be none, or for the time to run out. New associations and sessions are refused from here on.
    pub fn request_release(&mut self, now: Instants, grace: Duration, out: &mut Vec<Transmit>) {
        let now = self.node_moment(now);
        self.releasing = true;
        self.invited.clear();
        for id in self.associations.ids() {
            let Some(to) = self.associations.get(id).map(|association| association.peer) else { continue };
            self.send_release_wish(now, to, RELEASE_WANTED, Some(grace), out);
        }
    }

    /// Asks one peer to release its association; whether there is one of that name. Its sessions go on until it does.
    pub fn request_release_of(
        &mut self,
        now: Instants,
        node: &NodeId,
        grace: Duration,
        out: &mut Vec<Transmit>,
    ) -> bool {
        let now = self.node_moment(now);
        let found = self.associations.iter().find(|association| association.node == *node);
        let Some(to) = found.map(|association| association.peer) else { return false };
        self.send_release_wish(now, to, RELEASE_WANTED, Some(grace), out);
        true
    }

    /// Whether new associations and sessions are refused, as all are asked to be released.
    pub const fn is_draining(&self) -> bool {
        self.releasing
    }

    /// Takes new associations and sessions again after [`Endpoint::request_release`], and sets up those that the configuration names.
    pub fn stop_draining(&mut self, now: Instants) {
        self.releasing = false;
        self.set_control_planes(self.config.control_planes.clone(), now);
    }

    /// Ends a session that its control plane has not asked to end, and sends that its last usage report (TEBUR, PSDBU). It has as
    /// much of an answer as a request to delete it would have.
    ///
    /// # Errors
    /// Why it is not ended; nothing has changed then.
    pub fn release_session(
        &mut self,
        now: Instants,
        seid: Seid,
        out: &mut Vec<Transmit>,
    ) -> Result<(), NotReleased> {
        let now = self.node_moment(now);
        let association = self.live(seid).map(|binding| binding.association).ok_or(NotReleased::NoSession)?;
        if self.outgoing.room() == 0 {
            return Err(NotReleased::Busy);
        }
        let unanswered = self.end_session(now, seid, association, out).ok_or(NotReleased::Busy)?;
        if let Some(release) = self.release_of(association) {
            release.unanswered += unanswered;
        }
        Ok(())
    }

    /// Ends all sessions of the control planes that have not released their associations, and reports their usage. Wait for
    /// [`Endpoint::is_told`], or for the time to run out.
    pub fn end_sessions(&mut self) {
        self.associations.ids().into_iter().for_each(|id| self.prepare_release(id));
    }

    /// Whether no control plane has a session any more, and no last report that waits for an answer.
    pub fn is_told(&self) -> bool {
        self.sessions.len() == self.purge.orphans
            && self.releases.iter().all(|release| release.unanswered == 0)
    }

    /// Last reports that were acknowledged so far, to see whether waiting for more makes sense.
    pub fn last_reports_acknowledged(&self) -> u64 {
        self.counters.last_reports_acknowledged
    }

    /// Gives up what control planes could not be told: deletes the sessions that are left, and says of each control plane how
    /// many sessions and octets it does not know of. Sessions that have ended already stay with the service, which ends, too.
    pub fn abandon(&mut self, now: Instants) -> Vec<UnreportedUsage> {
        let now = self.node_moment(now);
        let mut unreported = BTreeMap::<AssociationId, UnreportedUsage>::new();
        let mut add = |id, sessions, octets: u64| {
            if sessions > 0 || octets > 0 {
                let one = unreported.entry(id).or_default();
                (one.sessions, one.octets) = (one.sessions + sessions, one.octets.saturating_add(octets));
            }
        };
        for purpose in self.outgoing.purposes() {
            match purpose {
                &Purpose::LastUsage(id, octets) => add(id, 1, octets),
                Purpose::Report(report) => add(report.association, 0, octets_in(&report.usage)),
                _ => {}
            }
        }
        let live = self.sessions.iter().filter(|&(&seid, binding)| !self.is_ending_session(seid, binding));
        let live: Vec<_> = live.map(|(&seid, binding)| (seid, binding.association)).collect();
        for (seid, id) in live {
            let deleted = self.service.delete(seid, now.wall).unwrap_or_default();
            add(id, 1, octets_in(&deleted.usage_reports));
        }
        (self.sessions, self.purge) = (Bindings::new(), Purge::default());
        for (id, one) in &mut unreported {
            one.node = self.associations.get(*id).map(|association| association.node.clone());
        }
        unreported.into_values().collect()
    }

    /// Whether the release of an association is prepared.
    pub(super) fn is_ending(&self, id: AssociationId) -> bool {
        self.releases.iter().any(|release| release.association == id)
    }

    /// Whether the next session may be ended at once.
    pub(super) fn has_sessions_to_end(&self) -> bool {
        self.outgoing.room() > 0 && self.releases.iter().any(|release| !release.sessions.is_empty())
    }

    /// The control plane prepares the release: every session is to be ended and its usage reported.
    pub(super) fn prepare_release(&mut self, id: AssociationId) {
        if self.is_ending(id) {
            return;
        }
        let theirs = |binding: &Binding| binding.association == id;
        let sessions = self.sessions.iter();
        let sessions = sessions
            .filter(|&(&seid, binding)| theirs(binding) && !self.is_ending_session(seid, binding))
            .map(|(&seid, _)| seid)
            .collect();
        self.releases.push(AssociationRelease { association: id, sessions, unanswered: 0 });
    }

    /// Ends sessions of associations to be released, as fast as their reports are answered, and says when all
    /// usage is sent (URSS).
    pub(super) fn release_associations(&mut self, now: Instants, out: &mut Vec<Transmit>) {
        let mut left = ENDED_PER_POLL;
        for mut release in std::mem::take(&mut self.releases) {
            let Some(peer) = self.associations.get(release.association).map(|association| association.peer)
            else {
                continue;
            };
            while left > 0
                && self.outgoing.room() > 0
                && let Some(seid) = release.sessions.pop()
            {
                release.unanswered += self.end_session(now, seid, release.association, out).unwrap_or(0);
                left -= 1;
            }
            if release.sessions.is_empty() && release.unanswered == 0 && self.outgoing.room() > 0 {
                self.send_release_wish(now, peer, USAGE_SENT, None, out);
            } else {
                self.releases.push(release);
            }
        }
    }

    /// Ends one session and reports its usage with PSDBU (8.2.119); in how many messages, which are to be answered. `None` where it is
    /// not the association's any more.
    fn end_session(
        &mut self,
        now: Instants,
        seid: Seid,
        association: AssociationId,
        out: &mut Vec<Transmit>,
    ) -> Option<usize> {
        let there = self.live(seid).is_some_and(|binding| binding.association == association);
        let (to, cp) = self.reporting_address(seid).filter(|_| there)?;
        let progress = self.service.start_deletion(seid, now.wall).ok()?;
        self.unbind(seid);
        let report = LastReport { association, to, cp };
        Some(match progress {
            Progress::Done(deleted) => self.send_last_report(now, report, deleted.usage_reports, out),
            Progress::Waiting(ticket) => {
                self.report_later(ticket, report);
                1
            }
        })
    }

    /// Sends what had to wait, in place of the one answer that was waited for.
    pub(super) fn send_late_report(
        &mut self,
        now: Instants,
        report: LastReport,
        reports: Vec<UsageReport>,
        out: &mut Vec<Transmit>,
    ) {
        let sent = self.send_last_report(now, report, reports, out);
        if let Some(release) = self.release_of(report.association) {
            release.unanswered += sent;
        }
        self.last_report_answered(report.association);
    }

    /// Reports the usage of a session that was ended, and says in how many messages.
    fn send_last_report(
        &mut self,
        now: Instants,
        LastReport { association, to, cp }: LastReport,
        mut reports: Vec<UsageReport>,
        out: &mut Vec<Transmit>,
    ) -> usize {
        for report in &mut reports {
            report.trigger = ENDED_BY_UP;
        }
        let mut sent = 0;
        loop {
            let rest = reports.split_off(reports.len().min(REPORTS_IN_REQUEST_MAX));
            let octets = octets_in(&reports);
            let request = (MsgType::SessionReportRequest, self.outgoing.sequence());
            let bytes =
                encode::session_ended(&reports, rest.is_empty(), self.clock.offset(), (cp, request.1));
            self.record_last((to, request.1), &bytes, (association, octets));
            self.send(now, to, request, bytes, Purpose::LastUsage(association, octets), out);
            sent += 1;
            reports = rest;
            if reports.is_empty() {
                return sent;
            }
        }
    }

    fn release_of(&mut self, id: AssociationId) -> Option<&mut AssociationRelease> {
        self.releases.iter_mut().find(|release| release.association == id)
    }

    /// A session's last report was answered, or given up.
    pub(super) fn last_report_answered(&mut self, id: AssociationId) {
        if let Some(release) = self.release_of(id) {
            release.unanswered = release.unanswered.saturating_sub(1);
        }
    }

    fn send_release_wish(
        &mut self,
        now: Instants,
        to: SocketAddr,
        wish: u8,
        grace: Option<Duration>,
        out: &mut Vec<Transmit>,
    ) {
        let request = (MsgType::AssociationUpdateRequest, self.outgoing.sequence());
        let mut draft = Draft::node(request.0, request.1)
            .with(&self.config.node_id.encode())
            .with(&number(IeType::PfcpAssociationReleaseRequest, [wish]));
        if let Some(grace) = grace {
            draft.push(&number(IeType::GracefulReleasePeriod, [timer(grace)]));
        }
        self.send(now, to, request, draft.bytes(), Purpose::ReleaseWish, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_last_at_least_as_long() {
        for (seconds, octet) in [(0, 0), (1, 1), (30, 15), (62, 31), (63, 0x22), (3600, 0x46), (40_000, 0x6c)]
        {
            assert_eq!(timer(Duration::from_secs(seconds)), octet, "{seconds}");
        }
        assert_eq!(timer(Duration::from_secs(u64::MAX)), 0xe0);
    }
}
