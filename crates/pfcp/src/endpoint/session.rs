//! Session procedures (TS 29.244 6.3): establishment, modification, deletion.

use std::net::SocketAddr;

use kaido_n4::{
    Cause, DeletionResponse, FSeid, Modified, Progress, Rejection, Seid, SessionService, UsageReport,
};
use rs_pfcp::ie::IeType;
use rs_pfcp::message::MsgType;

use super::Endpoint;
use super::binding::Binding;
use super::later::{Answer, ResponseContext};
use super::node::no_association;
use crate::association::AssociationId;
use crate::clock::WallOffset;
use crate::decode;
use crate::encode::{self, Draft, accepted, number, packet_rate_status, session_rule_report, usage_report};
use crate::frame::Frame;
use crate::procedure::Phase;
use crate::transaction::Instants;
use crate::walk::{Group, peek};

/// The most usage reports in a modification's response. More follow in Session Report Requests, as Additional
/// Usage Reports Information (8.2.91) says.
const REPORTS_IN_RESPONSE_MAX: usize = 64;
/// The most responses whose further reports wait for room: a control plane that asks and never answers.
const OVERFLOW_MAX: usize = 1024;

impl<S: SessionService> Endpoint<S> {
    /// Session Establishment Request (6.3.2, 7.5.2). `to` becomes the peer's SEID once it is read.
    pub(super) fn session_establishment(
        &mut self,
        now: Instants,
        from: SocketAddr,
        frame: &Frame<'_>,
        to: &mut Seid,
    ) -> Result<Vec<u8>, Rejection> {
        if !self.is_peer(from.ip()) {
            return Err(no_association());
        }
        if let Some(Ok(cp)) = peek(frame.body, IeType::Fseid).map(decode::f_seid) {
            *to = cp.seid;
        }
        let group = Group::of_message(frame.body)?;
        let id = self.association_named(from, &group)?;
        self.procedure_is_of(id);
        self.admit(frame)?;
        let mut request = decode::establishment(&group, self.config.features)?;
        self.clock.offset().establishment(&mut request);
        let (csids, groups) = (decode::csids(&group)?, decode::groups(&group)?);
        if self.releasing {
            return Err(Rejection::new(Cause::RequestRejected, "shutting down"));
        }
        if self.is_ending(id) {
            return Err(Rejection::new(Cause::RequestRejected, "the association is being released"));
        }
        self.procedure_has_rules(&request);
        let established = self.with_room(now, |service| service.establish(&request, now.wall))?;
        let mut binding = Binding::new(id);
        binding.join(&csids, groups);
        self.bind(established.seid, binding);
        self.procedure_is_about(established.seid, *to);
        self.procedure_enters(Phase::Encode);
        let ours = FSeid { seid: established.seid, ipv4: self.config.ipv4, ipv6: self.config.ipv6 };
        let node = &self.config.node_id;
        let mut draft = encode::accepted_establishment(*to, frame.sequence, node, &ours, &established);
        self.say_load(id, &mut draft);
        Ok(draft.bytes())
    }

    /// Session Modification Request (6.3.3, 7.5.4).
    pub(super) fn session_modification(
        &mut self,
        now: Instants,
        from: SocketAddr,
        frame: &Frame<'_>,
        to: &mut Seid,
    ) -> Result<Answer, Rejection> {
        let AddressedSession { seid, cp, speaker } = self.session_addressed(from, frame)?;
        *to = cp;
        self.procedure_is_of(speaker);
        self.procedure_is_about(seid, cp);
        let group = Group::of_message(frame.body)?;
        let new_node = group.first(IeType::NodeId).is_some();
        let speaker = if new_node { self.association_named(from, &group)? } else { speaker };
        let (csids, groups) = (decode::csids(&group)?, decode::groups(&group)?);
        let mut request = decode::modification(&group, self.config.features)?;
        self.clock.offset().modification(&mut request);
        self.procedure_has_rules(&request);
        let progress = self.with_room(now, |service| service.start_modification(seid, &request, now.wall))?;
        if let Some(moved) = request.cp_fseid {
            *to = moved.seid;
        }
        self.taken_over(seid, speaker, new_node || request.cp_fseid.is_some());
        if !csids.is_empty() || request.cp_fseid.is_some() {
            self.purge.spare(seid);
        }
        if let Some(binding) = self.sessions.get_mut(seid)
            && binding.join(&csids, groups)
        {
            self.sessions.record(seid);
        }
        let asked = ResponseContext { seid, cp: *to, speaker, sequence: frame.sequence };
        Ok(match progress {
            Progress::Done(modified) => {
                self.procedure_enters(Phase::Encode);
                Answer::Ready(self.modified(asked, modified))
            }
            Progress::Waiting(ticket) => Answer::Later(ticket, asked),
        })
    }

    /// The answer to a modification.
    pub(super) fn modified(&mut self, asked: ResponseContext, mut modified: Modified) -> Vec<u8> {
        let kind = MsgType::SessionModificationResponse;
        let mut draft = Draft::session(kind, asked.cp, asked.sequence).with(&accepted());
        encode::created_pdrs(&mut draft, &modified.created_pdrs);
        encode::updated_pdrs(&mut draft, &modified.updated_pdrs);
        encode::created_traffic_endpoints(&mut draft, &modified.created_traffic_endpoints);
        let more =
            modified.usage_reports.split_off(modified.usage_reports.len().min(REPORTS_IN_RESPONSE_MAX));
        push_reports(
            &mut draft,
            IeType::UsageReportWithinSessionModificationResponse,
            &modified.usage_reports,
            self.clock.offset(),
        );
        if !more.is_empty() {
            let count = u16::try_from(more.len()).unwrap_or(u16::MAX) & 0x7fff;
            draft.push(&number(IeType::AdditionalUsageReportsInformation, count.to_be_bytes()));
            if self.overflow.len() < OVERFLOW_MAX {
                self.put_off(asked.seid, more);
            } else {
                self.keep_usage(asked.seid, &more, false);
            }
        }
        self.say_load(asked.speaker, &mut draft);
        draft.bytes()
    }

    /// Session Deletion Request (6.3.4, 7.5.6).
    pub(super) fn session_deletion(
        &mut self,
        now: Instants,
        from: SocketAddr,
        frame: &Frame<'_>,
        to: &mut Seid,
    ) -> Result<Answer, Rejection> {
        let AddressedSession { seid, cp, speaker } = self.session_addressed(from, frame)?;
        *to = cp;
        self.procedure_is_of(speaker);
        self.procedure_is_about(seid, cp);
        Group::of_message(frame.body)?;
        self.procedure_enters(Phase::Apply);
        let progress = self.service.start_deletion(seid, now.wall)?;
        self.unbind(seid);
        let asked = ResponseContext { seid, cp, speaker, sequence: frame.sequence };
        Ok(match progress {
            Progress::Done(deleted) => {
                self.procedure_enters(Phase::Encode);
                Answer::Ready(self.deleted(asked, &deleted))
            }
            Progress::Waiting(ticket) => Answer::Later(ticket, asked),
        })
    }

    /// The answer to a deletion.
    pub(super) fn deleted(&mut self, asked: ResponseContext, deleted: &DeletionResponse) -> Vec<u8> {
        let kind = MsgType::SessionDeletionResponse;
        let mut draft = Draft::session(kind, asked.cp, asked.sequence).with(&accepted());
        let wall = self.clock.offset();
        let usage = IeType::UsageReportWithinSessionDeletionResponse;
        let unacknowledged = self.take_unacknowledged(asked.seid);
        push_reports(&mut draft, usage, &unacknowledged, wall);
        push_reports(&mut draft, usage, &deleted.usage_reports, wall);
        deleted.session_reports.iter().for_each(|report| draft.push(&session_rule_report(report, wall)));
        deleted.packet_rates.iter().for_each(|status| draft.push(&packet_rate_status(status, wall)));
        self.say_load(asked.speaker, &mut draft);
        draft.bytes()
    }

    /// A session that another SMF of the set speaks of is that SMF's if it says so (5.22.3); and one that was
    /// redirected is where its new CP F-SEID says.
    fn taken_over(&mut self, seid: Seid, speaker: AssociationId, says_so: bool) {
        let Some(binding) = self.sessions.get_mut(seid).filter(|_| says_so) else { return };
        if binding.association == speaker {
            binding.set_report_to(None);
            self.sessions.record(seid);
        } else {
            tracing::info!(%seid, "session taken over by another SMF of its set");
            self.rebind(seid, speaker);
        }
    }

    /// The session that a message is for: cause 72 to strangers, 65 for a SEID that is not, or is another peer's.
    fn session_addressed(&self, from: SocketAddr, frame: &Frame<'_>) -> Result<AddressedSession, Rejection> {
        if !self.is_peer(from.ip()) {
            return Err(no_association());
        }
        let seid = frame.seid.unwrap_or_default();
        let found = self.addressed(from, seid);
        found.ok_or_else(|| Rejection::new(Cause::SessionContextNotFound, format!("no session {seid}")))
    }

    fn addressed(&self, from: SocketAddr, seid: Seid) -> Option<AddressedSession> {
        let speaker = self.speaker(from, self.live(seid)?.association)?;
        Some(AddressedSession { seid, cp: self.service.cp_fseid(seid)?.seid, speaker })
    }

    /// The control plane's SEID of a session, told to its own peer alone.
    pub(super) fn peer_seid(&self, from: SocketAddr, seid: Seid) -> Option<Seid> {
        self.addressed(from, seid).map(|addressed| addressed.cp)
    }
}

/// The session that a message is for.
struct AddressedSession {
    seid: Seid,
    /// Its SEID at the control plane.
    cp: Seid,
    /// The association of whoever sent the message.
    speaker: AssociationId,
}

fn push_reports(draft: &mut Draft, kind: IeType, reports: &[UsageReport], wall: WallOffset) {
    for report in reports {
        draft.push(&usage_report(kind, report, wall));
    }
}
