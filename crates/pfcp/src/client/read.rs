//! What the user plane says, as events.

use std::net::SocketAddr;

use kaido_n4::{Rejection, Seid};
use rs_pfcp::ie::IeType;
use rs_pfcp::message::MsgType;

use super::{Purpose, Smf, SmfEvent};
use crate::counters::Discard;
use crate::decode;
use crate::encode::{self, Draft, accepted};
use crate::frame::{Frame, response_to};
use crate::node_id::NodeId;
use crate::walk::{Group, octets};

const ACCEPTED: u8 = 1;
const SESSION_CONTEXT_NOT_FOUND: u8 = 65;

impl Smf {
    /// A response: to a request of ours, or dropped.
    pub(super) fn response(&mut self, from: SocketAddr, frame: &Frame<'_>) {
        let Some(pending) = self.outgoing.answered(from, frame.kind, frame.sequence) else {
            return self.counters.count_discarded(Discard::Unsolicited);
        };
        let read = if frame.kind == MsgType::VersionNotSupportedResponse {
            None
        } else {
            self.read_response(from, frame, pending.kind, pending.purpose).ok()
        };
        match read {
            Some(event) => self.events.push_back(event),
            None => {
                self.counters.count_discarded(Discard::MalformedResponse);
                self.no_answer(pending.kind, from, pending.purpose);
            }
        }
    }

    fn read_response(
        &mut self,
        upf: SocketAddr,
        frame: &Frame<'_>,
        request: MsgType,
        purpose: Purpose,
    ) -> Result<SmfEvent, Rejection> {
        let group = Group::of_message(frame.body)?;
        if request == MsgType::HeartbeatRequest {
            let recovery = group.mandatory(IeType::RecoveryTimeStamp)?;
            let recovery = octets(IeType::RecoveryTimeStamp, recovery).map(u32::from_be_bytes)?;
            return Ok(SmfEvent::Alive { upf, recovery });
        }
        let [cause] = octets::<1>(IeType::Cause, group.mandatory(IeType::Cause)?)?;
        if cause != ACCEPTED {
            return self.refused(upf, &group, request, purpose, cause);
        }
        match (request, purpose) {
            (MsgType::AssociationSetupRequest, _) => associated(upf, &group),
            (_, Purpose::Session(seid)) => self.session_answered(seid, &group, request),
            (_, Purpose::Node) => {
                self.sessions.retain(|_, session| session.upf != upf);
                Ok(SmfEvent::Released { upf })
            }
        }
    }

    fn refused(
        &mut self,
        upf: SocketAddr,
        group: &Group<'_>,
        request: MsgType,
        purpose: Purpose,
        cause: u8,
    ) -> Result<SmfEvent, Rejection> {
        self.counters.requests_refused += 1;
        let seid = purpose.seid();
        let gone = request == MsgType::SessionEstablishmentRequest || cause == SESSION_CONTEXT_NOT_FOUND;
        if let (true, Some(seid)) = (gone, seid) {
            self.sessions.remove(&seid);
        }
        let offending = group.first(IeType::OffendingIe);
        Ok(SmfEvent::Refused {
            request,
            upf,
            seid,
            cause,
            offending_ie: offending.map(|v| decode::u16_of(IeType::OffendingIe, v)).transpose()?,
            failed_rule: group.first(IeType::FailedRuleId).map(decode::failed_rule).transpose()?,
        })
    }

    fn session_answered(
        &mut self,
        seid: Seid,
        group: &Group<'_>,
        request: MsgType,
    ) -> Result<SmfEvent, Rejection> {
        match request {
            MsgType::SessionEstablishmentRequest => {
                let up = decode::f_seid(group.mandatory(IeType::Fseid)?)?;
                let created_pdrs = decode::created_pdrs(group)?;
                if let Some(session) = self.sessions.get_mut(&seid) {
                    session.up = Some(up.seid);
                }
                Ok(SmfEvent::Established { seid, up, created_pdrs })
            }
            MsgType::SessionModificationRequest => {
                let kind = IeType::UsageReportWithinSessionModificationResponse;
                let usage_reports = decode::usage_reports(group, kind)?;
                Ok(SmfEvent::Modified { seid, created_pdrs: decode::created_pdrs(group)?, usage_reports })
            }
            _ => {
                let kind = IeType::UsageReportWithinSessionDeletionResponse;
                let usage_reports = decode::usage_reports(group, kind)?;
                self.sessions.remove(&seid);
                Ok(SmfEvent::Deleted { seid, usage_reports })
            }
        }
    }

    /// The answer to a request of the user plane's.
    pub(super) fn answer(&mut self, from: SocketAddr, frame: &Frame<'_>) -> Vec<u8> {
        if frame.kind == MsgType::HeartbeatRequest {
            let draft = Draft::node(MsgType::HeartbeatResponse, frame.sequence);
            return draft.with(&encode::recovery(self.config.recovery)).bytes();
        }
        let mut to = Seid(0);
        let done = Group::of_message(frame.body).and_then(|group| match frame.kind {
            MsgType::SessionReportRequest => self.report(from, frame, &group, &mut to),
            MsgType::AssociationSetupRequest => {
                let event = associated(from, &group)?;
                self.events.push_back(event);
                let draft = self.accept_node(frame).with(&encode::recovery(self.config.recovery));
                Ok(draft.bytes())
            }
            MsgType::AssociationUpdateRequest => {
                if group.first(IeType::PfcpAssociationReleaseRequest).is_some() {
                    self.events.push_back(SmfEvent::ReleaseWanted { upf: from });
                }
                Ok(self.accept_node(frame).bytes())
            }
            // Node reports (path failures of GTP-U) are taken note of.
            _ => Ok(self.accept_node(frame).bytes()),
        });
        done.unwrap_or_else(|why| {
            self.counters.count_rejected(why.cause.value());
            let kind = response_to(frame.kind);
            encode::rejection(kind, to, frame.sequence, &self.config.node_id, &why).bytes()
        })
    }

    fn accept_node(&self, frame: &Frame<'_>) -> Draft {
        let draft = Draft::node(response_to(frame.kind), frame.sequence);
        draft.with(&self.config.node_id.encode()).with(&accepted())
    }

    /// Session Report Request (7.5.8): its parts become events.
    fn report(
        &mut self,
        from: SocketAddr,
        frame: &Frame<'_>,
        group: &Group<'_>,
        to: &mut Seid,
    ) -> Result<Vec<u8>, Rejection> {
        let seid = frame.seid.unwrap_or_default();
        let session = self.sessions.get(&seid).filter(|session| session.upf.ip() == from.ip());
        let absent = || Rejection::new(kaido_n4::Cause::SessionContextNotFound, "no such session");
        *to = session.ok_or_else(absent)?.up.unwrap_or_default();
        let report = decode::session_report(group)?;
        if report.ended {
            self.sessions.remove(&seid);
            self.events.push_back(SmfEvent::Deleted { seid, usage_reports: report.usage });
        } else if !report.usage.is_empty() {
            self.events.push_back(SmfEvent::Usage { seid, reports: report.usage });
        }
        let downlink = report.downlink_data.into_iter();
        self.events.extend(downlink.map(|pdr_id| SmfEvent::DownlinkData { seid, pdr_id }));
        if report.inactive {
            self.events.push_back(SmfEvent::Inactive { seid });
        }
        let errors = report.error_indications.into_iter();
        self.events.extend(errors.map(|remote| SmfEvent::ErrorIndication { seid, remote }));
        Ok(Draft::session(MsgType::SessionReportResponse, *to, frame.sequence).with(&accepted()).bytes())
    }
}

fn associated(upf: SocketAddr, group: &Group<'_>) -> Result<SmfEvent, Rejection> {
    let node_id = NodeId::decode(group.mandatory(IeType::NodeId)?)?;
    group.mandatory(IeType::RecoveryTimeStamp)?;
    let features = group.first(IeType::UpFunctionFeatures).unwrap_or_default().to_vec();
    Ok(SmfEvent::Associated { upf, node_id, features })
}
