//! Session Report procedure (TS 29.244 6.3.5, 7.5.8): what the user plane says unasked.
//!
//! A report goes to the address of the session's CP F-SEID. If nobody answers there, it goes on to the other SMFs
//! of the set (5.22); the control plane may also send it elsewhere, or ask for patience.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use kaido_n4::{Cause, Modification, Rejection, Seid, SessionEvent, SessionService, UsageReport};
use rs_pfcp::ie::IeType;
use rs_pfcp::message::MsgType;

use super::node::{ACCEPTED, cause_in};
use super::restore::UsageOnItsWay;
use super::{Endpoint, Purpose};
use crate::association::{Association, AssociationId};
use crate::decode;
use crate::encode;
use crate::frame::{Frame, readdress};
use crate::transaction::{Instants, Pending, Transmit};
use crate::walk::{Group, octets};

/// The most usage reports in one Session Report Request: about 3 KiB.
pub(super) const REPORTS_IN_REQUEST_MAX: usize = 32;
/// The most reports of one poll. Half of the datagrams that the caller hands over between two polls: when more reports are due than can
/// be made, their answers and as many requests are served between them, and reports come later.
const REPORTS_PER_POLL: usize = 128;
/// Of them, those of what could not be told before: what happens now has its turn, too.
const LATE_REPORTS_PER_POLL: usize = REPORTS_PER_POLL / 2;
/// How often a report may be redirected before it is given up: SMFs may send it round in circles.
const REDIRECTIONS_MAX: u8 = 3;

/// A report on its way.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) seid: Seid,
    pub(super) association: AssociationId,
    /// The usage that it tells, to be taken back if nobody acknowledges it.
    pub(super) usage: Vec<UsageReport>,
    /// How many alternative addresses have been tried.
    alternatives: u8,
    redirections: u8,
    /// How often the control plane was too busy for it.
    postponed: u8,
}

impl Report {
    pub(super) fn of(seid: Seid, association: AssociationId) -> Self {
        Self { seid, association, usage: Vec::new(), alternatives: 0, redirections: 0, postponed: 0 }
    }
}

/// A report to be sent again, as another request.
#[derive(Debug)]
pub(super) struct ResentReport {
    to: SocketAddr,
    bytes: Arc<[u8]>,
    report: Report,
}

impl<S: SessionService> Endpoint<S> {
    /// Reports that a response had no room for.
    pub(super) fn send_overflow(&mut self, now: Instants, out: &mut Vec<Transmit>) {
        while self.outgoing.room() > 0 {
            let Some((number, event)) = self.overflow.pop_front() else { break };
            self.forget_usage(UsageOnItsWay::PutOff(number));
            self.report(now, event, out);
        }
    }

    /// Has usage reported when there is room.
    pub(super) fn put_off(&mut self, seid: Seid, reports: Vec<UsageReport>) {
        self.put_off_count += 1;
        self.record_usage(UsageOnItsWay::PutOff(self.put_off_count), seid, &reports);
        self.overflow.push_back((self.put_off_count, SessionEvent::Usage { seid, reports }));
    }

    pub(super) fn send_reports(&mut self, now: Instants, out: &mut Vec<Transmit>) {
        let mut late = LATE_REPORTS_PER_POLL;
        self.send_resent(now, &mut late, out);
        self.send_overflow(now, out);
        self.send_held(now, &mut late, out);
        let left = REPORTS_PER_POLL - LATE_REPORTS_PER_POLL + late;
        let room = self.outgoing.room().min(left);
        // Also while there is room for none: the service has more to do in its turn than to report.
        for event in self.service.poll_events(now.wall, room) {
            self.report(now, event, out);
        }
    }

    /// Sends an event, or has its usage kept where the control plane cannot be told.
    fn report(&mut self, now: Instants, event: SessionEvent, out: &mut Vec<Transmit>) {
        match event {
            // Ended for its control plane, and yet to be deleted.
            event if self.sessions.get(event.seid()).is_some() && self.live(event.seid()).is_none() => {}
            SessionEvent::Usage { seid, reports } if self.must_hold(now, seid) => {
                self.keep_usage(seid, &reports, false);
            }
            SessionEvent::Usage { seid, reports } => self.send_usage(now, seid, reports, out),
            event => self.report_one(now, event, out),
        }
    }

    /// Sends usage reports, in several requests if there are many.
    pub(super) fn send_usage(
        &mut self,
        now: Instants,
        seid: Seid,
        mut reports: Vec<UsageReport>,
        out: &mut Vec<Transmit>,
    ) {
        while !reports.is_empty() {
            let rest = reports.split_off(reports.len().min(REPORTS_IN_REQUEST_MAX));
            self.report_one(now, SessionEvent::Usage { seid, reports }, out);
            reports = rest;
        }
    }

    fn report_one(&mut self, now: Instants, event: SessionEvent, out: &mut Vec<Transmit>) {
        let seid = event.seid();
        let there = self.live(seid).map(|binding| binding.association);
        let Some(((to, cp), id)) = self.reporting_address(seid).zip(there) else {
            self.counters.reports_lost += 1;
            tracing::debug!(%seid, "event of a session without a control plane");
            return;
        };
        let sequence = self.outgoing.sequence();
        let mut draft = encode::session_report(&event, self.clock.offset(), cp, sequence);
        self.say_load(id, &mut draft);
        let mut report = Report::of(seid, id);
        if let SessionEvent::Usage { reports, .. } = event {
            report.usage = reports;
        }
        let peer = self.associations.get(id);
        let busy_until = peer.and_then(|peer| peer.busy_until).filter(|&until| until > now.monotonic);
        if let Some(until) = busy_until {
            return self.resend(until, ResentReport { to, bytes: draft.bytes().into(), report });
        }
        let may_wait = |peer: &Association| !(peer.silent || peer.down) || peer.in_flight < self.share();
        if report.usage.is_empty() && !peer.is_none_or(may_wait) {
            return self.report_lost(seid, &[]);
        }
        // Nobody answers there: whoever else may know the session is asked at once.
        let other = peer.filter(|peer| peer.down || peer.silent).and_then(|_| self.alternative(&report));
        report.alternatives = other.is_some().into();
        self.send_report(now, (other.unwrap_or(to), sequence), draft.bytes(), report, out);
    }

    fn send_report(
        &mut self,
        now: Instants,
        (to, sequence): (SocketAddr, u32),
        bytes: Vec<u8>,
        report: Report,
        out: &mut Vec<Transmit>,
    ) {
        if let Some(association) = self.associations.get_mut(report.association) {
            association.in_flight += 1;
        }
        let request = (MsgType::SessionReportRequest, sequence);
        self.record_request((to, sequence), &bytes, &report);
        self.send(now, to, request, bytes, Purpose::Report(report), out);
    }

    /// Where reports of a session go: the address of its CP F-SEID (7.2.2.4.1, 4.4.2), or where they were sent on.
    pub(super) fn reporting_address(&self, seid: Seid) -> Option<(SocketAddr, Seid)> {
        let binding = self.live(seid)?;
        let association = self.associations.get(binding.association)?;
        let cp = self.service.cp_fseid(seid)?;
        let own = || encode::reachable(&cp, self.config.ipv4.is_some());
        Some((SocketAddr::new(binding.report_to().or_else(own)?, association.peer.port()), cp.seid))
    }

    /// The next other SMF to which a report may go (5.22.2, 5.22.3): those that the association names, the preferred
    /// one first, then those with associations of their own in the same set.
    pub(super) fn alternative(&self, report: &Report) -> Option<SocketAddr> {
        let id = self.live(report.seid)?.association;
        let association = self.associations.get(id)?;
        let first = self.reporting_address(report.seid)?.0;
        let named = association.alternatives.iter();
        let named = named.map(|&address| SocketAddr::new(address, association.peer.port()));
        let in_set = |other: &&Association| {
            other.node != association.node
                && !other.down
                && association.set.is_some()
                && other.set == association.set
        };
        let mates = self.associations.iter().filter(in_set).map(|other| other.peer);
        let mut candidates: Vec<SocketAddr> = named.filter(|&address| address != first).collect();
        let mut mates: Vec<_> = mates.filter(|mate| *mate != first && !candidates.contains(mate)).collect();
        mates.sort_unstable();
        candidates.append(&mut mates);
        candidates.get(usize::from(report.alternatives)).copied()
    }

    /// A report had no answer: it goes to the next SMF that may have the session, or its usage back into the meters.
    pub(super) fn report_unanswered(
        &mut self,
        now: Instants,
        pending: &Pending<Purpose>,
        mut report: Report,
    ) {
        let Some(to) = self.alternative(&report) else {
            return self.report_given_up(now, pending, report);
        };
        tracing::debug!(seid = %report.seid, %to, "session report goes to an alternative SMF");
        report.alternatives += 1;
        self.resend(now.monotonic, ResentReport { to, bytes: pending.bytes(), report });
    }

    /// A control plane has started anew. It has none of the sessions that it was told of, and may have others with the same SEIDs.
    pub(super) fn withdraw_reports(&mut self, of: AssociationId) {
        let is_theirs = |purpose: &Purpose| match purpose {
            Purpose::Report(report) => report.association == of,
            Purpose::LastUsage(id, _) => *id == of,
            _ => false,
        };
        for pending in self.outgoing.withdraw(is_theirs) {
            self.landed(&pending);
            self.counters.reports_lost += 1;
            if matches!(pending.purpose, Purpose::LastUsage(..)) {
                self.last_report_answered(of);
            }
        }
    }

    /// Usage that a session's control plane was told and has not acknowledged within T1, or that is yet to be sent: its last reports
    /// go with the answer to its deletion. A control plane that has had one of them knows it by its UR-SEQN (8.2.71).
    pub(super) fn take_unacknowledged(&mut self, seid: Seid) -> Vec<UsageReport> {
        let is_own = |purpose: &Purpose| match purpose {
            Purpose::Report(report) => report.seid == seid && !report.usage.is_empty(),
            _ => false,
        };
        let mut usage = Vec::new();
        for pending in self.outgoing.withdraw_late(is_own) {
            self.landed(&pending);
            if let Purpose::Report(report) = pending.purpose {
                usage.extend(report.usage);
            }
        }
        let to_send: Vec<_> = self
            .resent
            .iter()
            .filter(|(_, resent)| resent.report.seid == seid)
            .map(|(&key, _)| key)
            .collect();
        for key in to_send {
            self.forget_usage(UsageOnItsWay::Resent(key.1));
            usage.extend(self.resent.remove(&key).into_iter().flat_map(|resent| resent.report.usage));
        }
        let (own, others): (VecDeque<_>, _) =
            std::mem::take(&mut self.overflow).into_iter().partition(|(_, event)| event.seid() == seid);
        self.overflow = others;
        for (number, event) in own {
            self.forget_usage(UsageOnItsWay::PutOff(number));
            if let SessionEvent::Usage { reports, .. } = event {
                usage.extend(reports);
            }
        }
        usage.sort_by_key(|report| (report.urr_id, report.ur_seqn));
        usage
    }

    fn resend(&mut self, at: Instant, resent: ResentReport) {
        if self.resent.len() >= self.config.limits.outstanding {
            return self.report_lost(resent.report.seid, &resent.report.usage);
        }
        self.resent_count += 1;
        self.record_usage(UsageOnItsWay::Resent(self.resent_count), resent.report.seid, &resent.report.usage);
        self.resent.insert((at, self.resent_count), resent);
    }

    /// Sends reports anew whose time has come, at most `left`.
    pub(super) fn send_resent(&mut self, now: Instants, left: &mut usize, out: &mut Vec<Transmit>) {
        while self.outgoing.room() > 0
            && *left > 0
            && let Some(entry) = self.resent.first_entry()
            && entry.key().0 <= now.monotonic
        {
            *left -= 1;
            let ((_, count), ResentReport { to, bytes, report }) = entry.remove_entry();
            self.forget_usage(UsageOnItsWay::Resent(count));
            if self.live(report.seid).is_none() {
                self.report_lost(report.seid, &report.usage);
                continue;
            }
            let sequence = self.outgoing.sequence();
            let bytes = readdress(&bytes, None, sequence);
            self.send_report(now, (to, sequence), bytes, report, out);
        }
    }

    pub(super) fn report_response(
        &mut self,
        now: Instants,
        pending: &Pending<Purpose>,
        report: &Report,
        frame: &Frame<'_>,
    ) -> Result<(), Rejection> {
        let group = Group::of_message(frame.body)?;
        let cause = cause_in(&group)?;
        self.has_answered(now, report.association);
        if cause == ACCEPTED {
            return self.report_accepted(now, pending, report.seid, &group);
        }
        self.counters.requests_refused += 1;
        if cause == Cause::RedirectionRequested.value() {
            return self.report_redirected(now, pending, report.clone(), &group);
        }
        if cause == Cause::PfcpEntityInCongestion.value() {
            self.report_postponed(now, pending, report.clone());
            return Ok(());
        }
        let line = self.refused_reports.line(now.monotonic);
        if cause != Cause::SessionContextNotFound.value() {
            if let Some(suppressed) = line {
                tracing::warn!(seid = %report.seid, cause, suppressed, "session report refused");
            }
            self.report_lost(report.seid, &report.usage);
            self.hold_for_a_while(now, report.association);
            return Ok(());
        }
        self.counters.reports_lost += 1;
        if self.sessions.get(report.seid).is_some() {
            if let Some(suppressed) = line {
                tracing::warn!(
                    seid = %report.seid, suppressed,
                    "the control plane does not know the session; it is deleted"
                );
            }
            self.drop_session(now, report.seid);
        }
        Ok(())
    }

    /// What an accepted report brings back: a new CP F-SEID, buffered packets to drop, or to keep longer.
    fn report_accepted(
        &mut self,
        now: Instants,
        pending: &Pending<Purpose>,
        seid: Seid,
        group: &Group<'_>,
    ) -> Result<(), Rejection> {
        let cp_fseid = group.first(IeType::Fseid).map(decode::f_seid).transpose()?;
        let drop_buffered = drops_buffered(group)?;
        let update_bars = group.all(IeType::UpdateBarWithinSessionReportResponse);
        let update_bars: Vec<_> =
            update_bars.map(decode::update_bar_in_response).collect::<Result<_, _>>()?;
        let elsewhere = self.reporting_address(seid).is_some_and(|(usual, _)| usual != pending.peer);
        let Some(binding) = self.sessions.get_mut(seid) else { return Ok(()) };
        if cp_fseid.is_some() {
            binding.set_report_to(None);
            self.purge.spare(seid);
            self.sessions.record(seid);
        } else if elsewhere {
            // Whoever answered for the session has it (5.22.2).
            binding.set_report_to(Some(pending.peer.ip()));
            self.sessions.record(seid);
        }
        if cp_fseid.is_some() || drop_buffered || !update_bars.is_empty() {
            let request = Modification { cp_fseid, drop_buffered, update_bars, ..Modification::default() };
            if let Err(why) = self.service.modify(seid, &request, now.wall) {
                tracing::warn!(%seid, %why, "what a report's response asks for was not done");
            }
        }
        Ok(())
    }

    /// Redirection Requested (cause 78): another SMF has the session, named by address or by F-SEID, or left to
    /// be found among the alternatives.
    fn report_redirected(
        &mut self,
        now: Instants,
        pending: &Pending<Purpose>,
        mut report: Report,
        group: &Group<'_>,
    ) -> Result<(), Rejection> {
        let cp = group.first(IeType::Fseid).map(decode::f_seid).transpose()?;
        let named = decode::alternative_addresses(group)?;
        let of_family = |address: &&IpAddr| address.is_ipv4() == pending.peer.is_ipv4();
        let of_cp = || cp.and_then(|cp| encode::reachable(&cp, self.config.ipv4.is_some()));
        let address = named.iter().find(of_family).copied().or_else(of_cp);
        report.redirections += 1;
        if report.redirections > REDIRECTIONS_MAX {
            self.report_lost(report.seid, &report.usage);
            return Ok(());
        }
        let Some(address) = address else {
            self.report_unanswered(now, pending, report);
            return Ok(());
        };
        if let Some(binding) = self.sessions.get_mut(report.seid) {
            binding.set_report_to(Some(address));
            self.sessions.record(report.seid);
        }
        let to = SocketAddr::new(address, pending.peer.port());
        let bytes = readdress(&pending.bytes(), cp.map(|cp| cp.seid), 0).into();
        self.resend(now.monotonic, ResentReport { to, bytes, report });
        Ok(())
    }

    /// The control plane is congested (cause 74): it gets no reports for a while, longer each time, and the one it
    /// refused comes again.
    fn report_postponed(&mut self, now: Instants, pending: &Pending<Purpose>, mut report: Report) {
        let timing = self.config.retransmission;
        let until = now.monotonic + timing.t1 * (1 << report.postponed.min(5));
        let id = self.live(report.seid).map(|binding| binding.association);
        if let Some(association) = id.and_then(|id| self.associations.get_mut(id)) {
            association.busy_until = Some(until);
        }
        report.postponed += 1;
        if u32::from(report.postponed) > timing.n1 {
            return self.report_lost(report.seid, &report.usage);
        }
        self.resend(until, ResentReport { to: pending.peer, bytes: pending.bytes(), report });
    }
}

/// PFCPSRRsp-Flags DROBU (8.2.32).
fn drops_buffered(group: &Group<'_>) -> Result<bool, Rejection> {
    const KIND: IeType = IeType::PfcpsrrspFlags;
    let flags = group.first(KIND).map(|value| octets::<1>(KIND, value)).transpose()?;
    Ok(flags.is_some_and(|[flags]| flags & 1 != 0))
}
