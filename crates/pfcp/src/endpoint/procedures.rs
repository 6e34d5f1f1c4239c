//! Procedures that are traced: noted where they begin, where a phase ends, and where they end.
//!
//! ```text
//!   request ─▶ current ─┬───────────────▶ answered ─▶ sent ─┐
//!                       └▶ deferred ─▶ current              ├─▶ finished ─▶ the caller
//!   our own ─▶ own, by sequence number ─▶ answer, or none ──┘
//! ```
//! Without [tracing](Endpoint::trace_procedures), or where a procedure is not chosen, each call here is one test.

use std::net::SocketAddr;
use std::time::Instant;

use kaido_n4::{Rejection, Seid, SessionService, Ticket};
use rs_pfcp::ie::IeType;
use rs_pfcp::message::MsgType;

use super::{Endpoint, Purpose};
use crate::association::AssociationId;
use crate::decode;
use crate::frame::{Frame, SESSION_HEADER, is_session_related, response_to};
use crate::keyed::KeyedMap;
use crate::node_id::NodeId;
use crate::procedure::{Phase, Procedure, ProcedureEnd, ProcedureTracing, RuleCounts, TracedMessages};
use crate::transaction::Pending;
use crate::walk::peek;

/// Octets of a header without SEID.
const NODE_HEADER: usize = 8;

/// Procedures that are traced.
#[derive(Debug)]
pub(super) struct Procedures {
    tracing: ProcedureTracing,
    /// The one whose request is being worked on.
    current: Option<Procedure>,
    /// Those whose answers wait for packets on their way.
    deferred: KeyedMap<Ticket, Procedure>,
    /// Requests of ours, by sequence number.
    own: KeyedMap<u32, Procedure>,
    /// What is yet to be sent.
    unsent: TracedMessages,
    finished: Vec<Procedure>,
}

impl Procedures {
    /// A procedure that begins, if it is chosen.
    fn begin(
        &mut self,
        request: (MsgType, u32),
        peer: SocketAddr,
        phase: Phase,
        octets: usize,
    ) -> Option<Procedure> {
        if request.0 == MsgType::HeartbeatRequest && !self.tracing.heartbeats {
            return None;
        }
        let trace = (self.tracing.sample)()?;
        let mut begun = Procedure::new(trace, request, peer, phase, (self.tracing.clock)());
        begun.request_octets = octets;
        Some(begun)
    }
}

impl<S: SessionService> Endpoint<S> {
    /// Traces procedures that begin from here on, in this way. Those that are under way are finished.
    pub fn trace_procedures(&mut self, tracing: ProcedureTracing) {
        match &mut self.procedures {
            Some(procedures) => procedures.tracing = tracing,
            None => {
                self.procedures = Some(Box::new(Procedures {
                    tracing,
                    current: None,
                    deferred: KeyedMap::default(),
                    own: KeyedMap::default(),
                    unsent: TracedMessages::default(),
                    finished: Vec::new(),
                }));
            }
        }
    }

    /// Whether procedures are traced.
    pub const fn traces_procedures(&self) -> bool {
        self.procedures.is_some()
    }

    /// The procedures of the messages that were given to send since this was called last.
    pub fn take_traced(&mut self) -> TracedMessages {
        self.procedures.as_mut().map(|procedures| std::mem::take(&mut procedures.unsent)).unwrap_or_default()
    }

    /// The journal is waited for before these messages are sent.
    pub fn traced_held(&mut self, traced: &mut TracedMessages) {
        self.each_traced(traced, |procedure, _| procedure.turn_into(Phase::Journal));
    }

    /// The journal has what these messages tell.
    pub fn traced_durable(&mut self, traced: &mut TracedMessages) {
        self.each_traced(traced, |procedure, now| procedure.enter(Phase::Send, now));
    }

    /// These messages were sent.
    pub fn traced_sent(&mut self, mut traced: TracedMessages) {
        self.each_traced(&mut traced, |procedure, now| {
            if procedure.is_ours {
                procedure.enter(Phase::Answer, now);
            } else {
                procedure.finish(now);
            }
        });
        if let Some(procedures) = &mut self.procedures {
            procedures.finished.append(&mut traced.answered);
        }
    }

    /// Procedures that have ended since this was called last.
    pub fn finished_procedures(&mut self) -> impl Iterator<Item = Procedure> + '_ {
        self.procedures.iter_mut().flat_map(|procedures| procedures.finished.drain(..))
    }

    fn each_traced(&mut self, traced: &mut TracedMessages, each: impl Fn(&mut Procedure, Instant)) {
        let Some(procedures) = self.procedures.as_mut().filter(|_| !traced.is_empty()) else { return };
        let now = (procedures.tracing.clock)();
        traced.answered.iter_mut().for_each(|procedure| each(procedure, now));
        for (_, sequence) in &traced.begun {
            if let Some(procedure) = procedures.own.get_mut(sequence) {
                each(procedure, now);
            }
        }
    }

    /// A request of a peer's begins to be worked on.
    pub(super) fn procedure_begins(&mut self, from: SocketAddr, frame: &Frame<'_>) {
        let Some(procedures) = &mut self.procedures else { return };
        let header = if frame.seid.is_some() { SESSION_HEADER } else { NODE_HEADER };
        let octets = header + frame.body.len();
        let begun = procedures.begin((frame.kind, frame.sequence), from, Phase::Decode, octets);
        procedures.current = begun.map(|mut begun| {
            // Zero in an establishment, whose session has none yet (7.2.2.4.2).
            begun.up_seid = frame.seid.filter(|seid| seid.0 != 0);
            begun
        });
    }

    /// The request that is being worked on comes to another phase.
    pub(super) fn procedure_enters(&mut self, phase: Phase) {
        if let Some(procedures) = &mut self.procedures
            && let Some(current) = &mut procedures.current
        {
            current.enter(phase, (procedures.tracing.clock)());
        }
    }

    /// What is known of the request that is being worked on.
    fn current_procedure(&mut self) -> Option<&mut Procedure> {
        self.procedures.as_mut()?.current.as_mut()
    }

    /// The request is of that association.
    pub(super) fn procedure_is_of(&mut self, id: AssociationId) {
        if self.current_procedure().is_none() {
            return;
        }
        let node = self.associations.get(id).map(|association| association.node.to_string());
        if let Some(current) = self.current_procedure() {
            current.node = node;
        }
    }

    /// The request is of that node.
    pub(super) fn procedure_is_of_node(&mut self, node: &NodeId) {
        if let Some(current) = self.current_procedure() {
            current.node = Some(node.to_string());
        }
    }

    /// The request is about that session, which exists.
    pub(super) fn procedure_is_about(&mut self, up: Seid, cp: Seid) {
        if self.current_procedure().is_none() {
            return;
        }
        let ue = self.service.ue(up);
        if let Some(current) = self.current_procedure() {
            (current.up_seid, current.cp_seid) = (Some(up), Some(cp));
            current.ue = ue.or(current.ue.take());
        }
    }

    /// The request names these rules, and its phase is [`Phase::Apply`] from here on.
    pub(super) fn procedure_has_rules(&mut self, rules: impl Into<RuleCounts>) {
        if let Some(current) = self.current_procedure() {
            current.rules = rules.into();
            self.procedure_enters(Phase::Apply);
        }
    }

    /// The request that is being worked on is refused; `to` is the session's SEID at the control plane, where it is known.
    pub(super) fn procedure_is_refused(&mut self, frame: &Frame<'_>, to: Seid, why: &Rejection) {
        let Some(current) = self.current_procedure() else { return };
        current.end = ProcedureEnd::Cause(why.cause.value());
        (current.offending_ie, current.failed_rule) = (why.offending_ie, why.failed_rule);
        current.detail.clone_from(&why.detail);
        current.cp_seid = current.cp_seid.or((to.0 != 0).then_some(to));
        if current.ue.is_none() {
            current.ue = decode::ue_of_request(frame.body);
        }
        self.procedure_enters(Phase::Encode);
    }

    /// The answer waits for packets on their way.
    pub(super) fn procedure_waits(&mut self, ticket: Ticket) {
        self.procedure_enters(Phase::Workers);
        if let Some(procedures) = &mut self.procedures
            && let Some(current) = procedures.current.take()
        {
            procedures.deferred.insert(ticket, current);
        }
    }

    /// They have passed.
    pub(super) fn procedure_goes_on(&mut self, ticket: Ticket) {
        if let Some(procedures) = &mut self.procedures {
            procedures.current = procedures.deferred.remove(&ticket);
        }
        self.procedure_enters(Phase::Encode);
    }

    /// The request is not answered, and not told of.
    pub(super) fn procedure_is_ignored(&mut self) {
        if let Some(procedures) = &mut self.procedures {
            procedures.current = None;
        }
    }

    /// The answer is there, and is about to be sent.
    pub(super) fn procedure_is_answered(&mut self, answer: &[u8]) {
        self.procedure_enters(Phase::Send);
        let Some(procedures) = &mut self.procedures else { return };
        let Some(mut current) = procedures.current.take() else { return };
        current.answer_octets = Some(answer.len());
        if !matches!(current.end, ProcedureEnd::Cause(_)) {
            current.end = end_of(body(response_to(current.request), answer));
        }
        procedures.unsent.answered.push(current);
    }

    /// A request of ours is about to be sent.
    pub(super) fn own_procedure_begins(
        &mut self,
        to: SocketAddr,
        request: (MsgType, u32),
        bytes: &[u8],
        purpose: &Purpose,
    ) {
        let Some(procedures) = &mut self.procedures else { return };
        let Some(mut begun) = procedures.begin(request, to, Phase::Send, bytes.len()) else { return };
        procedures.unsent.begun.push(request);
        begun.is_ours = true;
        begun.cp_seid = seid_of(request.0, bytes);
        begun.report_type = first(body(request.0, bytes), IeType::ReportType);
        let id = match purpose {
            Purpose::Heartbeat(id) | Purpose::LastUsage(id, _) | Purpose::Paths(id, _) => Some(*id),
            Purpose::Report(report) => {
                begun.up_seid = Some(report.seid);
                begun.ue = self.service.ue(report.seid);
                begun.usage_reports = report.usage.len();
                Some(report.association)
            }
            Purpose::ReleaseWish => self.associations.at(to.ip()).first().copied(),
            Purpose::Setup(_) => None,
        };
        let association = id.and_then(|id| self.associations.get(id));
        begun.node = association.map(|association| association.node.to_string());
        procedures.own.insert(request.1, begun);
    }

    /// A request of ours was sent again.
    pub(super) fn own_procedure_again(&mut self, sequence: u32) {
        if let Some(procedures) = &mut self.procedures
            && let Some(own) = procedures.own.get_mut(&sequence)
        {
            own.sent_again((procedures.tracing.clock)());
        }
    }

    /// A request of ours has its answer.
    pub(super) fn own_procedure_answered(&mut self, sequence: u32, frame: &Frame<'_>) {
        let end = match frame.kind {
            MsgType::VersionNotSupportedResponse => ProcedureEnd::OtherVersion,
            _ => end_of(frame.body),
        };
        self.own_procedure_ends(sequence, end, |own| {
            let header = if frame.seid.is_some() { SESSION_HEADER } else { NODE_HEADER };
            own.answer_octets = Some(header + frame.body.len());
            own.offending_ie = peek(frame.body, IeType::OffendingIe)
                .and_then(|value| value.first_chunk().copied())
                .map(u16::from_be_bytes);
            if own.node.is_none() {
                let node = peek(frame.body, IeType::NodeId).and_then(|value| NodeId::decode(value).ok());
                own.node = node.map(|node| node.to_string());
            }
        });
    }

    /// A request of ours was given up, or has become of no use.
    pub(super) fn own_procedure_over(&mut self, pending: &Pending<Purpose>, end: ProcedureEnd) {
        self.own_procedure_ends(pending.sequence, end, |_| {});
    }

    fn own_procedure_ends(&mut self, sequence: u32, end: ProcedureEnd, note: impl FnOnce(&mut Procedure)) {
        let Some(procedures) = &mut self.procedures else { return };
        let Some(mut own) = procedures.own.remove(&sequence) else { return };
        note(&mut own);
        own.end = end;
        own.finish((procedures.tracing.clock)());
        procedures.finished.push(own);
    }
}

/// The elements of a message of ours.
fn body(kind: MsgType, message: &[u8]) -> &[u8] {
    let header = if is_session_related(kind) { SESSION_HEADER } else { NODE_HEADER };
    message.get(header..).unwrap_or_default()
}

/// The SEID in the header of a message of ours, if it has one.
fn seid_of(kind: MsgType, message: &[u8]) -> Option<Seid> {
    let octets = message.get(4..12).filter(|_| is_session_related(kind))?;
    octets.first_chunk().map(|octets| Seid(u64::from_be_bytes(*octets)))
}

/// The first octet of an element.
fn first(body: &[u8], kind: IeType) -> Option<u8> {
    peek(body, kind)?.first().copied()
}

/// How a procedure ends with such an answer.
fn end_of(body: &[u8]) -> ProcedureEnd {
    first(body, IeType::Cause).map_or(ProcedureEnd::Answered, ProcedureEnd::Cause)
}
