//! Session Report procedure (TS 29.244 6.3.5, 7.5.8): what the user plane says unasked.

use std::net::SocketAddr;

use kaido_upf::rules::{Cause, Modification, Rejection, Seid, SessionEvent, SessionService};
use rs_pfcp::ie::IeType;
use rs_pfcp::message::MsgType;

use super::node::{ACCEPTED, cause_in};
use super::{Endpoint, Purpose};
use crate::encode;
use crate::frame::Frame;
use crate::transaction::{Moment, Transmit};
use crate::walk::{Group, octets};

/// The most usage reports in one Session Report Request: about 3 KiB.
pub(super) const REPORTS_IN_REQUEST_MAX: usize = 32;
/// The most events taken from the service in one poll.
const EVENTS_PER_POLL: usize = 4096;

impl<S: SessionService> Endpoint<S> {
    /// Reports that a response had no room for.
    pub(super) fn send_overflow(&mut self, now: Moment, out: &mut Vec<Transmit>) {
        while self.outgoing.room() > 0 {
            let Some(event) = self.overflow.pop_front() else { break };
            self.report(now, event, out);
        }
    }

    pub(super) fn send_reports(&mut self, now: Moment, out: &mut Vec<Transmit>) {
        self.send_overflow(now, out);
        let room = self.outgoing.room().min(EVENTS_PER_POLL);
        // Also while there is room for none: the service has more to do in its turn than to report.
        for event in self.service.poll_events(now.wall, room) {
            self.report(now, event, out);
        }
    }

    /// Sends an event, in several requests if it has many reports.
    fn report(&mut self, now: Moment, event: SessionEvent, out: &mut Vec<Transmit>) {
        let SessionEvent::Usage { seid, mut reports } = event else {
            return self.report_one(now, &event, out);
        };
        while !reports.is_empty() {
            let rest = reports.split_off(reports.len().min(REPORTS_IN_REQUEST_MAX));
            self.report_one(now, &SessionEvent::Usage { seid, reports }, out);
            reports = rest;
        }
    }

    fn report_one(&mut self, now: Moment, event: &SessionEvent, out: &mut Vec<Transmit>) {
        let seid = event.seid();
        let Some((to, cp)) = self.reporting_address(seid) else {
            self.counters.reports_lost += 1;
            tracing::debug!(%seid, "event of a session without a control plane");
            return;
        };
        let request = (MsgType::SessionReportRequest, self.outgoing.sequence());
        let bytes = encode::session_report(event, cp, request.1);
        self.send(now, to, request, bytes, Purpose::Report(seid), out);
    }

    /// Where reports of a session go: the address of its CP F-SEID (7.2.2.4.1, 4.4.2).
    pub(super) fn reporting_address(&self, seid: Seid) -> Option<(SocketAddr, Seid)> {
        let association = self.associations.get(*self.sessions.get(&seid)?)?;
        let cp = self.service.cp_fseid(seid)?;
        let address = encode::reachable(&cp, self.config.ipv4.is_some())?;
        Some((SocketAddr::new(address, association.peer.port()), cp.seid))
    }

    pub(super) fn report_response(
        &mut self,
        now: Moment,
        seid: Seid,
        frame: &Frame<'_>,
    ) -> Result<(), Rejection> {
        let group = Group::of_message(frame.body)?;
        let cause = cause_in(&group)?;
        if cause == Cause::SessionContextNotFound.value() {
            self.counters.requests_refused += 1;
            self.counters.reports_lost += 1;
            if self.sessions.contains_key(&seid) {
                tracing::warn!(%seid, "the control plane does not know the session; it is deleted");
                self.drop_session(now, seid);
            }
            return Ok(());
        }
        if cause != ACCEPTED {
            self.counters.requests_refused += 1;
            self.counters.reports_lost += 1;
            tracing::warn!(%seid, cause, "session report refused");
            return Ok(());
        }
        if drops_buffered(&group)? && self.sessions.contains_key(&seid) {
            let request = Modification { drop_buffered: true, ..Modification::default() };
            if let Err(why) = self.service.modify(seid, &request, now.wall) {
                tracing::warn!(%seid, %why, "buffered packets not dropped");
            }
        }
        Ok(())
    }
}

/// PFCPSRRsp-Flags DROBU (8.2.35).
fn drops_buffered(group: &Group<'_>) -> Result<bool, Rejection> {
    const KIND: IeType = IeType::PfcpsrrspFlags;
    let flags = group.first(KIND).map(|value| octets::<1>(KIND, value)).transpose()?;
    Ok(flags.is_some_and(|[flags]| flags & 1 != 0))
}
