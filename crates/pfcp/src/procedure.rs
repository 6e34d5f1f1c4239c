//! A procedure as it is traced: who asked whom for what, how it ended, and how long each phase of it took.
//!
//! ```text
//!   a peer's   decode ─▶ apply ─▶ [wait for workers] ─▶ encode ─▶ [journal] ─▶ send
//!   our own    [journal] ─▶ send ─▶ wait for the answer, with retransmissions
//! ```
//! Phases follow each other without a gap. Times are the control loop's own; nothing is read or kept of a procedure that is not traced.

use std::fmt;
use std::net::SocketAddr;
use std::time::Instant;

use kaido_n4::{Establishment, Modification, RuleId, Seid};
use rs_pfcp::message::MsgType;

/// Most retransmissions whose times are kept.
const RETRANSMISSIONS_MAX: usize = 16;

/// Which procedures are traced, and by which clock.
pub struct ProcedureTracing {
    /// Chooses a procedure: the identifier of its trace, or none.
    pub sample: Box<dyn FnMut() -> Option<u128> + Send>,
    /// Heartbeats are procedures, too.
    pub heartbeats: bool,
    /// The time now.
    pub clock: fn() -> Instant,
}

impl fmt::Debug for ProcedureTracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcedureTracing").field("heartbeats", &self.heartbeats).finish_non_exhaustive()
    }
}

/// A part of a procedure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The request is read and checked.
    Decode,
    /// It is carried out: rules are compiled and committed.
    Apply,
    /// Packets on their way are waited for.
    Workers,
    /// The answer is written.
    Encode,
    /// The journal is waited for, so that what is told survives.
    Journal,
    /// The datagram is given to the kernel, behind those before it.
    Send,
    /// The peer's answer is waited for.
    Answer,
}

impl Phase {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Apply => "apply",
            Self::Workers => "wait_for_workers",
            Self::Encode => "encode",
            Self::Journal => "wait_for_journal",
            Self::Send => "send",
            Self::Answer => "wait_for_answer",
        }
    }
}

/// How a procedure has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcedureEnd {
    /// With an answer that has a cause (TS 29.244 8.2.1).
    Cause(u8),
    /// With an answer that has none.
    Answered,
    /// The peer does not speak this version.
    OtherVersion,
    /// The peer has not answered.
    NoAnswer,
    /// It was given up before, as its session or its peer has gone.
    Withdrawn,
}

/// Rules of a kind that a request names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleChanges {
    /// Those of Create IEs.
    pub created: usize,
    /// Those of Update IEs.
    pub updated: usize,
    /// Those of Remove IEs.
    pub removed: usize,
}

/// Rules that a request names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCounts {
    /// PDRs.
    pub pdrs: RuleChanges,
    /// FARs.
    pub fars: RuleChanges,
    /// QERs.
    pub qers: RuleChanges,
    /// URRs.
    pub urrs: RuleChanges,
}

impl From<&Establishment> for RuleCounts {
    fn from(request: &Establishment) -> Self {
        let of = |created| RuleChanges { created, ..RuleChanges::default() };
        Self {
            pdrs: of(request.pdrs.len()),
            fars: of(request.fars.len()),
            qers: of(request.qers.len()),
            urrs: of(request.urrs.len()),
        }
    }
}

impl From<&Modification> for RuleCounts {
    fn from(of: &Modification) -> Self {
        let changes = |created, updated, removed| RuleChanges { created, updated, removed };
        Self {
            pdrs: changes(of.create_pdrs.len(), of.update_pdrs.len(), of.remove_pdrs.len()),
            fars: changes(of.create_fars.len(), of.update_fars.len(), of.remove_fars.len()),
            qers: changes(of.create_qers.len(), of.update_qers.len(), of.remove_qers.len()),
            urrs: changes(of.create_urrs.len(), of.update_urrs.len(), of.remove_urrs.len()),
        }
    }
}

/// A procedure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Procedure {
    /// The identifier of its trace.
    pub trace: u128,
    /// The type of its request.
    pub request: MsgType,
    /// The request is ours.
    pub is_ours: bool,
    /// The other end.
    pub peer: SocketAddr,
    /// Its Node ID, where it is known.
    pub node: Option<String>,
    /// The sequence number.
    pub sequence: u32,
    /// The session's SEID at the control plane.
    pub cp_seid: Option<Seid>,
    /// Its SEID at the user plane.
    pub up_seid: Option<Seid>,
    /// Addresses of its UE.
    pub ue: Option<String>,
    /// Rules that the request names.
    pub rules: RuleCounts,
    /// Usage reports in it.
    pub usage_reports: usize,
    /// The octet of the Report Type of a report (8.2.21).
    pub report_type: Option<u8>,
    /// Octets of the request.
    pub request_octets: usize,
    /// Octets of the answer, where there was one.
    pub answer_octets: Option<usize>,
    /// How it has ended.
    pub end: ProcedureEnd,
    /// The type of the Offending IE.
    pub offending_ie: Option<u16>,
    /// The rule at fault.
    pub failed_rule: Option<RuleId>,
    /// Why it was refused, in words.
    pub detail: String,
    /// When it began.
    pub began: Instant,
    /// What was done, and until when.
    pub phases: Vec<(Phase, Instant)>,
    /// When the request was sent again; the first times.
    pub retransmissions: Vec<Instant>,
    /// What is done now.
    phase: Phase,
}

impl Procedure {
    /// One that begins.
    pub(crate) fn new(
        trace: u128,
        (request, sequence): (MsgType, u32),
        peer: SocketAddr,
        phase: Phase,
        began: Instant,
    ) -> Self {
        Self {
            trace,
            request,
            is_ours: false,
            peer,
            node: None,
            sequence,
            cp_seid: None,
            up_seid: None,
            ue: None,
            rules: RuleCounts::default(),
            usage_reports: 0,
            report_type: None,
            request_octets: 0,
            answer_octets: None,
            end: ProcedureEnd::Withdrawn,
            offending_ie: None,
            failed_rule: None,
            detail: String::new(),
            began,
            phases: Vec::new(),
            retransmissions: Vec::new(),
            phase,
        }
    }

    /// When it ended.
    pub fn ended(&self) -> Instant {
        self.phases.last().map_or(self.began, |&(_, until)| until)
    }

    /// Ends what is done now, and begins something else.
    pub(crate) fn enter(&mut self, phase: Phase, now: Instant) {
        self.finish(now);
        self.phase = phase;
    }

    /// Says that what is done now is something else.
    pub(crate) fn turn_into(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Ends what is done now.
    pub(crate) fn finish(&mut self, now: Instant) {
        let now = now.max(self.ended());
        self.phases.push((self.phase, now));
    }

    /// The request was sent again.
    pub(crate) fn sent_again(&mut self, now: Instant) {
        if self.retransmissions.len() < RETRANSMISSIONS_MAX {
            self.retransmissions.push(now);
        }
    }
}

/// Procedures whose messages are about to be sent.
#[derive(Debug, Default)]
pub struct TracedMessages {
    /// With an answer of ours.
    pub(crate) answered: Vec<Procedure>,
    /// With a request of ours, by its type and sequence number.
    pub(crate) begun: Vec<(MsgType, u32)>,
}

impl TracedMessages {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.answered.is_empty() && self.begun.is_empty()
    }

    /// Takes heartbeats out, which wait for no journal.
    #[must_use]
    pub fn take_heartbeats(&mut self) -> Self {
        let is_heartbeat = |kind: MsgType| kind == MsgType::HeartbeatRequest;
        let (heartbeats, others) = std::mem::take(&mut self.answered)
            .into_iter()
            .partition(|procedure| is_heartbeat(procedure.request));
        let (begun, other_begun) =
            std::mem::take(&mut self.begun).into_iter().partition(|&(kind, _)| is_heartbeat(kind));
        (self.answered, self.begun) = (others, other_begun);
        Self { answered: heartbeats, begun }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn phases_follow_each_other() {
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let request = (MsgType::SessionEstablishmentRequest, 7);
        let peer = "192.0.2.1:8805".parse().unwrap();
        let mut procedure = Procedure::new(1, request, peer, Phase::Decode, began);
        assert_eq!(procedure.ended(), began);
        procedure.enter(Phase::Apply, at(2));
        procedure.enter(Phase::Encode, at(5));
        procedure.enter(Phase::Send, at(4));
        procedure.turn_into(Phase::Journal);
        procedure.finish(at(9));
        let phases =
            [(Phase::Decode, at(2)), (Phase::Apply, at(5)), (Phase::Encode, at(5)), (Phase::Journal, at(9))];
        assert_eq!(procedure.phases, phases);
        assert_eq!(procedure.ended(), at(9));
        (0..100).for_each(|ms| procedure.sent_again(at(ms)));
        assert_eq!(procedure.retransmissions.len(), RETRANSMISSIONS_MAX);
    }

    #[test]
    fn heartbeats_are_taken_out() {
        let peer = "192.0.2.1:8805".parse().unwrap();
        let of = |kind| Procedure::new(1, (kind, 7), peer, Phase::Decode, Instant::now());
        let mut traced = TracedMessages {
            answered: vec![of(MsgType::HeartbeatRequest), of(MsgType::SessionDeletionRequest)],
            begun: vec![(MsgType::SessionReportRequest, 1), (MsgType::HeartbeatRequest, 2)],
        };
        let heartbeats = traced.take_heartbeats();
        assert_eq!((heartbeats.answered.len(), heartbeats.begun.len()), (1, 1));
        assert_eq!(traced.answered[0].request, MsgType::SessionDeletionRequest);
        assert_eq!(traced.begun, [(MsgType::SessionReportRequest, 1)]);
        assert!(TracedMessages::default().is_empty());
    }
}
