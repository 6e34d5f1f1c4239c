//! Usage reports that nobody acknowledges (TS 29.244 6.4): they go back into the meters until the control plane answers.
//!
//! ```text
//!   answers ──── N1 retransmissions without an answer ────▶ silent: usage stays with the meters
//!      ▲                                                       │ heartbeats, at once if it asks for something,
//!      │                                                       │ and a report now and then
//!      ╰── after T1: what is owed, merged ◀── an answer ◀──────╯
//! ```
//! What a silent control plane costs is a flag and a number for each session, however long it is silent.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use kaido_n4::{Seid, SessionService, UsageReport};

use super::report::Report;
use super::{Endpoint, Purpose};
use crate::association::AssociationId;
use crate::transaction::{Instants, Pending, Transmit};

/// The part of the outstanding requests that one control plane's session reports may be: one that is silent must not keep the
/// others from being told.
const SHARE: usize = 4;
/// Most sessions of a control plane that are looked at in one poll, of which most may have nothing to report.
const HELD_PER_POLL: usize = 4096;
/// Entries of sessions that are gone which are borne before they are looked for.
const STALE_MAX: usize = 1024;

/// Reports that were given up, for as long as an answer may yet come. The oldest go first.
#[derive(Debug)]
pub(super) struct AbandonedReports {
    limit: usize,
    order: VecDeque<u32>,
    reports: HashMap<u32, (SocketAddr, Report)>,
}

impl AbandonedReports {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, order: VecDeque::new(), reports: HashMap::new() }
    }

    fn put(&mut self, sequence: u32, peer: SocketAddr, report: Report) {
        if self.order.len() >= self.limit
            && let Some(oldest) = self.order.pop_front()
        {
            self.reports.remove(&oldest);
        }
        if self.reports.insert(sequence, (peer, report)).is_none() {
            self.order.push_back(sequence);
        }
    }

    /// The report that was sent to `peer` with that sequence number.
    pub(super) fn take(&mut self, peer: SocketAddr, sequence: u32) -> Option<Report> {
        if self.reports.get(&sequence)?.0 != peer {
            return None;
        }
        self.order.retain(|&other| other != sequence);
        self.reports.remove(&sequence).map(|(_, report)| report)
    }
}

impl<S: SessionService> Endpoint<S> {
    /// How many session reports to one control plane may wait for an answer.
    pub(super) fn share(&self) -> usize {
        (self.config.limits.outstanding / SHARE).max(1)
    }

    /// Whether usage of a session is better not reported now.
    pub(super) fn must_hold(&self, now: Instants, seid: Seid) -> bool {
        let id = self.live(seid).map(|binding| binding.association);
        let Some((id, peer)) = id.and_then(|id| Some((id, self.associations.get(id)?))) else { return false };
        let is_busy = peer.in_flight >= self.share() || peer.busy_until.is_some_and(|at| at > now.monotonic);
        is_busy || peer.silent && self.alternative(&Report::of(seid, id)).is_none()
    }

    /// Gives usage back to the meters, until its control plane can be told. `sent` says whether it may have been already.
    pub(super) fn keep_usage(&mut self, seid: Seid, reports: &[UsageReport], sent: bool) {
        match self.live(seid).is_some() && self.service.hold_usage(seid, reports, sent) {
            true => self.counters.reports_returned += 1,
            false => self.counters.reports_lost += 1,
        }
        let Some(binding) = self.sessions.get_mut(seid) else { return };
        let id = binding.association;
        if std::mem::replace(&mut binding.held, true) {
            return;
        }
        self.sessions.record(seid);
        let Some(association) = self.associations.get_mut(id) else { return };
        association.held.push_back(seid);
        if association.held.len() > 2 * association.sessions + STALE_MAX {
            let sessions = &self.sessions;
            association
                .held
                .retain(|seid| sessions.get(*seid).is_some_and(|it| it.held && it.association == id));
        }
    }

    /// A report had no answer, and nobody else can be told.
    pub(super) fn report_given_up(&mut self, now: Instants, pending: &Pending<Purpose>, report: Report) {
        let association = self.associations.get(report.association);
        // Who has answered since it was sent last may have missed it while it was silent.
        let is_heard = association.and_then(|peer| peer.answered_at).is_some_and(|at| at > pending.sent);
        if !is_heard {
            self.fall_silent(now, report.association);
        }
        self.report_lost(report.seid, &report.usage);
        if !report.usage.is_empty() {
            self.given_up.put(pending.sequence, pending.peer, report);
        }
    }

    /// A report is not tried any more: its usage goes back into the meters, anything else is lost.
    pub(super) fn report_lost(&mut self, seid: Seid, usage: &[UsageReport]) {
        if usage.is_empty() {
            self.counters.reports_lost += 1;
        } else {
            self.keep_usage(seid, usage, true);
        }
        tracing::debug!(%seid, "session report not acknowledged");
    }

    /// A control plane does not answer.
    pub(super) fn fall_silent(&mut self, now: Instants, id: AssociationId) {
        let timing = self.config.retransmission;
        let Some(association) = self.associations.get_mut(id) else { return };
        association.probe_at = Some(now.monotonic + timing.lifetime());
        if !std::mem::replace(&mut association.silent, true) {
            if !association.heartbeat_outstanding {
                association.heartbeat_at = now.monotonic;
            }
            tracing::warn!(
                node = %association.node, peer = %association.peer,
                "control plane does not answer; usage stays in the meters until it does"
            );
        }
    }

    /// A control plane has answered. What it was still sent before it fell silent may be answered, too, before it is told anew.
    pub(super) fn has_answered(&mut self, now: Instants, id: AssociationId) {
        let wait = self.config.retransmission.t1;
        let Some(association) = self.associations.get_mut(id) else { return };
        association.answered_at = Some(now.monotonic);
        if std::mem::take(&mut association.silent) {
            association.resume_at = Some(now.monotonic + wait);
            tracing::info!(
                node = %association.node, sessions = association.held.len(),
                "control plane answers again; the usage of these sessions is reported"
            );
        }
    }

    /// A control plane wants no reports of what is held for a while.
    pub(super) fn hold_for_a_while(&mut self, now: Instants, id: AssociationId) {
        let wait = self.config.retransmission.lifetime();
        if let Some(association) = self.associations.get_mut(id) {
            association.resume_at = Some(now.monotonic + wait);
        }
    }

    /// A response to a report that was given up.
    pub(super) fn late_answer(&mut self, now: Instants, report: &Report, accepted: bool) {
        self.has_answered(now, report.association);
        if accepted {
            self.service.usage_arrived(report.seid, &report.usage);
        }
    }

    /// Reports what is owed to control planes that can be told again, of at most `left` sessions that have something to report.
    pub(super) fn send_held(&mut self, now: Instants, left: &mut usize, out: &mut Vec<Transmit>) {
        for id in self.associations.with_held() {
            for _ in 0..HELD_PER_POLL {
                if *left == 0 {
                    return;
                }
                let Some(seid) = self.next_held(now, id) else { break };
                let Some(binding) = self.sessions.get_mut(seid) else { continue };
                if binding.association != id || !std::mem::take(&mut binding.held) {
                    continue;
                }
                self.sessions.record(seid);
                let reports = self.service.release_usage(seid, now.wall);
                *left -= usize::from(!reports.is_empty());
                self.send_usage(now, seid, reports, out);
            }
        }
    }

    /// The next session whose usage can be reported: of a silent control plane one now and then, for one that answers
    /// reports alone.
    fn next_held(&mut self, now: Instants, id: AssociationId) -> Option<Seid> {
        let (share, is_full) = (self.share(), self.outgoing.room() == 0);
        let next_probe = now.monotonic + self.config.retransmission.lifetime();
        let association = self.associations.get_mut(id)?;
        let waits = [association.resume_at, association.busy_until];
        let is_early = waits.into_iter().flatten().any(|at| at > now.monotonic);
        if is_full || is_early || association.in_flight >= share {
            return None;
        }
        if association.silent {
            if association.probe_at.is_some_and(|at| at > now.monotonic) {
                return None;
            }
            association.probe_at = Some(next_probe);
        }
        association.held.pop_front()
    }
}
