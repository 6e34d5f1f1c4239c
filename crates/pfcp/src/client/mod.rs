//! The control plane's side: a small SMF that sets sessions up, changes them and reads their reports.
//!
//! Without sockets or clocks like the [`Endpoint`](crate::Endpoint), and with the same transactions. It keeps
//! of a session only its two SEIDs, so that a million of them cost little.

mod dialect;
mod read;
mod template;

pub use dialect::{Accounting, DedicatedFlow, Dialect, PduSession};
pub use template::SessionTemplate;

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use kaido_n4::{CreatedPdr, Establishment, FSeid, FTeid, Modification, PdrId, RuleId, Seid, UsageReport};
use rs_pfcp::ie::IeType;
use rs_pfcp::message::MsgType;

use crate::answers::{AnswerCache, RequestStatus, fingerprint};
use crate::counters::{Counters, Discard};
use crate::encode::{self, Draft, number};
use crate::frame::{Frame, FrameResult, Role, frames, is_request};
use crate::node_id::NodeId;
use crate::transaction::{DueEvent, Instants, Outgoing, Retransmission, Transmit};

/// What an [`Smf`] is told at start.
#[derive(Clone, Debug)]
pub struct SmfConfig {
    /// Its name.
    pub node_id: NodeId,
    /// The IPv4 address of its F-SEIDs.
    pub ipv4: Option<Ipv4Addr>,
    /// The IPv6 address of its F-SEIDs.
    pub ipv6: Option<Ipv6Addr>,
    /// When it started.
    pub recovery: SystemTime,
    /// T1 and N1.
    pub retransmission: Retransmission,
    /// Requests without an answer at once.
    pub outstanding: usize,
    /// Whose SMF its requests are written like, as far as they are more than rules.
    pub dialect: Dialect,
}

/// Why a request was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SmfError {
    /// The session is not, or was deleted.
    #[error("no session {0}")]
    NoSession(Seid),
    /// Its establishment has not been answered.
    #[error("session {0} is not established yet")]
    NotEstablished(Seid),
    /// As many requests as allowed wait for an answer.
    #[error("as many requests outstanding as allowed")]
    Busy,
}

/// What came of a request, or came unasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SmfEvent {
    /// An association stands, whoever asked for it.
    Associated {
        /// The user plane.
        upf: SocketAddr,
        /// Its name.
        node_id: NodeId,
        /// UP Function Features, as sent.
        features: Vec<u8>,
    },
    /// An association was released.
    Released {
        /// The user plane.
        upf: SocketAddr,
    },
    /// The user plane wants its association released, and waits for [`Smf::release`].
    ReleaseWanted {
        /// The user plane.
        upf: SocketAddr,
    },
    /// A heartbeat was answered.
    Alive {
        /// The user plane.
        upf: SocketAddr,
        /// Its recovery time stamp, in seconds since 1900.
        recovery: u32,
    },
    /// A session stands.
    Established {
        /// Our end.
        seid: Seid,
        /// The user plane's end.
        up: FSeid,
        /// What the user plane chose.
        created_pdrs: Vec<CreatedPdr>,
    },
    /// A session was changed.
    Modified {
        /// Our end.
        seid: Seid,
        /// What the user plane chose.
        created_pdrs: Vec<CreatedPdr>,
        /// Usage asked for, or of removed rules.
        usage_reports: Vec<UsageReport>,
    },
    /// A session was deleted, or the user plane has ended it.
    Deleted {
        /// Our end.
        seid: Seid,
        /// The final usage.
        usage_reports: Vec<UsageReport>,
    },
    /// A request was refused.
    Refused {
        /// Which.
        request: MsgType,
        /// The user plane.
        upf: SocketAddr,
        /// Our end of the session, if it was about one.
        seid: Option<Seid>,
        /// The value of the Cause.
        cause: u8,
        /// Offending IE.
        offending_ie: Option<u16>,
        /// Failed Rule ID.
        failed_rule: Option<RuleId>,
    },
    /// A request had no answer after N1, or none that could be read.
    NoAnswer {
        /// Which.
        request: MsgType,
        /// The user plane.
        upf: SocketAddr,
        /// Our end of the session, if it was about one.
        seid: Option<Seid>,
    },
    /// Usage was reported.
    Usage {
        /// Our end.
        seid: Seid,
        /// The reports.
        reports: Vec<UsageReport>,
    },
    /// The first packet to an idle UE was reported.
    DownlinkData {
        /// Our end.
        seid: Seid,
        /// The PDR it matched.
        pdr_id: PdrId,
    },
    /// A session was silent for as long as its timer says.
    Inactive {
        /// Our end.
        seid: Seid,
    },
    /// A gNB's Error Indication was reported.
    ErrorIndication {
        /// Our end.
        seid: Seid,
        /// The tunnel that the gNB does not know.
        remote: FTeid,
    },
}

#[derive(Clone, Copy, Debug)]
enum Purpose {
    Node,
    Session(Seid),
}

impl Purpose {
    fn seid(self) -> Option<Seid> {
        match self {
            Self::Node => None,
            Self::Session(seid) => Some(seid),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Session {
    upf: SocketAddr,
    /// The user plane's end, once it is known.
    up: Option<Seid>,
}

/// A small SMF.
#[derive(Debug)]
pub struct Smf {
    config: SmfConfig,
    sessions: HashMap<Seid, Session>,
    next_seid: u64,
    outgoing: Outgoing<Purpose>,
    answered: AnswerCache,
    events: VecDeque<SmfEvent>,
    counters: Counters,
}

/// Answers kept for reports that come again.
const ANSWERS_MAX: usize = 65_536;

impl Smf {
    /// An SMF without associations.
    pub fn new(config: SmfConfig) -> Self {
        Self {
            sessions: HashMap::new(),
            next_seid: 1,
            outgoing: Outgoing::new(config.retransmission, config.outstanding).starting(config.recovery),
            answered: AnswerCache::new(config.retransmission, ANSWERS_MAX),
            events: VecDeque::new(),
            counters: Counters::default(),
            config,
        }
    }

    /// Asks for an association.
    ///
    /// # Errors
    /// [`SmfError::Busy`].
    pub fn associate(
        &mut self,
        now: Instants,
        upf: SocketAddr,
        out: &mut Vec<Transmit>,
    ) -> Result<(), SmfError> {
        let build = |smf: &Self, kind, sequence| {
            let mut draft = Draft::node(kind, sequence)
                .with(&smf.config.node_id.encode())
                .with(&encode::recovery(smf.config.recovery));
            let named = smf.config.dialect.names_features();
            named.into_iter().for_each(|octet| draft.push(&number(IeType::CpFunctionFeatures, [octet])));
            draft.bytes()
        };
        self.ask(now, upf, MsgType::AssociationSetupRequest, Purpose::Node, build, out)
    }

    /// Releases an association; its sessions are gone once it is answered.
    ///
    /// # Errors
    /// [`SmfError::Busy`].
    pub fn release(
        &mut self,
        now: Instants,
        upf: SocketAddr,
        out: &mut Vec<Transmit>,
    ) -> Result<(), SmfError> {
        let build = |smf: &Self, kind, sequence| {
            Draft::node(kind, sequence).with(&smf.config.node_id.encode()).bytes()
        };
        self.ask(now, upf, MsgType::AssociationReleaseRequest, Purpose::Node, build, out)
    }

    /// Asks whether the user plane is alive.
    ///
    /// # Errors
    /// [`SmfError::Busy`].
    pub fn heartbeat(
        &mut self,
        now: Instants,
        upf: SocketAddr,
        out: &mut Vec<Transmit>,
    ) -> Result<(), SmfError> {
        let build = |smf: &Self, kind, sequence| {
            Draft::node(kind, sequence).with(&encode::recovery(smf.config.recovery)).bytes()
        };
        self.ask(now, upf, MsgType::HeartbeatRequest, Purpose::Node, build, out)
    }

    /// Asks for a session; its CP F-SEID is filled in here. Says our SEID.
    ///
    /// # Errors
    /// [`SmfError::Busy`].
    pub fn establish(
        &mut self,
        now: Instants,
        upf: SocketAddr,
        mut request: Establishment,
        out: &mut Vec<Transmit>,
    ) -> Result<Seid, SmfError> {
        let seid = Seid(self.next_seid);
        request.cp_fseid = FSeid { seid, ipv4: self.config.ipv4, ipv6: self.config.ipv6 };
        let build = |smf: &Self, _, sequence| {
            let dialect = smf.config.dialect;
            let to = dialect.seid_of_header(seid);
            let message = encode::establishment(&smf.config.node_id, to, &request, sequence);
            dialect.written(&message, &dialect.in_establishment(&request))
        };
        self.ask(now, upf, MsgType::SessionEstablishmentRequest, Purpose::Session(seid), build, out)?;
        self.next_seid += 1;
        self.sessions.insert(seid, Session { upf, up: None });
        Ok(seid)
    }

    /// Asks for a change of a session.
    ///
    /// # Errors
    /// Any [`SmfError`].
    pub fn modify(
        &mut self,
        now: Instants,
        seid: Seid,
        request: &Modification,
        out: &mut Vec<Transmit>,
    ) -> Result<(), SmfError> {
        let (upf, up) = self.established(seid)?;
        let build = |smf: &Self, _, sequence| {
            let dialect = smf.config.dialect;
            let message = if dialect.repeats_f_seid() {
                let ours = FSeid { seid, ipv4: smf.config.ipv4, ipv6: smf.config.ipv6 };
                let request = Modification { cp_fseid: Some(ours), ..request.clone() };
                encode::modification(up, &request, sequence)
            } else {
                encode::modification(up, request, sequence)
            };
            dialect.written(&message, &dialect.in_groups())
        };
        self.ask(now, upf, MsgType::SessionModificationRequest, Purpose::Session(seid), build, out)
    }

    /// Asks for the end of a session.
    ///
    /// # Errors
    /// Any [`SmfError`].
    pub fn delete(&mut self, now: Instants, seid: Seid, out: &mut Vec<Transmit>) -> Result<(), SmfError> {
        let (upf, up) = self.established(seid)?;
        let build = |_: &Self, kind, sequence| Draft::session(kind, up, sequence).bytes();
        self.ask(now, upf, MsgType::SessionDeletionRequest, Purpose::Session(seid), build, out)
    }

    fn established(&self, seid: Seid) -> Result<(SocketAddr, Seid), SmfError> {
        let session = self.sessions.get(&seid).ok_or(SmfError::NoSession(seid))?;
        let up = session.up.ok_or(SmfError::NotEstablished(seid))?;
        Ok((session.upf, up))
    }

    fn ask(
        &mut self,
        now: Instants,
        upf: SocketAddr,
        kind: MsgType,
        purpose: Purpose,
        build: impl FnOnce(&Self, MsgType, u32) -> Vec<u8>,
        out: &mut Vec<Transmit>,
    ) -> Result<(), SmfError> {
        if self.outgoing.room() == 0 {
            return Err(SmfError::Busy);
        }
        let sequence = self.outgoing.sequence();
        let bytes = build(self, kind, sequence);
        self.counters.count_sent(kind as u8);
        out.push(self.outgoing.send(now.monotonic, upf, (kind, sequence), bytes, purpose));
        Ok(())
    }

    /// Takes in a datagram. Answers are appended to `out`; what it meant comes out of [`Self::next_event`].
    pub fn handle(&mut self, now: Instants, from: SocketAddr, datagram: &[u8], out: &mut Vec<Transmit>) {
        for framed in frames(Role::ControlPlane, datagram) {
            match framed {
                FrameResult::Message(frame) => {
                    self.counters.count_received(frame.kind);
                    if is_request(frame.kind) {
                        self.request(now, from, &frame, out);
                    } else {
                        self.response(from, &frame);
                    }
                }
                FrameResult::BadLength(_) => self.counters.count_discarded(Discard::Length),
                FrameResult::OtherVersion { sequence } => {
                    let answer = Draft::node(MsgType::VersionNotSupportedResponse, sequence).bytes();
                    self.transmit(from, answer.into(), out);
                }
                FrameResult::Nothing(why) => self.counters.count_discarded(why),
            }
        }
    }

    fn request(&mut self, now: Instants, from: SocketAddr, frame: &Frame<'_>, out: &mut Vec<Transmit>) {
        let key = (from, frame.kind as u8, frame.sequence);
        let print = fingerprint(frame.seid.map(|seid| seid.0), frame.body);
        match self.answered.look(key, print) {
            RequestStatus::InProgress => self.counters.count_discarded(Discard::InProgress),
            RequestStatus::Answered(response) => {
                self.counters.retransmissions_answered += 1;
                self.transmit(from, response, out);
            }
            RequestStatus::New => {
                self.answered.begin(now.monotonic, key, print);
                let response: Arc<[u8]> = self.answer(from, frame).into();
                self.answered.finish(now.wall, key, &response);
                self.transmit(from, response, out);
            }
        }
    }

    /// Sends again what had no answer for T1.
    pub fn poll(&mut self, now: Instants, out: &mut Vec<Transmit>) {
        self.answered.expire(now.monotonic);
        while let Some(due) = self.outgoing.due(now.monotonic, None) {
            match due {
                DueEvent::Again(transmit, (kind, _)) => {
                    self.counters.retransmissions_sent += 1;
                    self.counters.count_sent(kind as u8);
                    out.push(transmit);
                }
                DueEvent::Exhausted(pending) => {
                    self.counters.requests_exhausted += 1;
                    self.no_answer(pending.kind, pending.peer, pending.purpose);
                }
            }
        }
    }

    fn no_answer(&mut self, request: MsgType, upf: SocketAddr, purpose: Purpose) {
        let seid = purpose.seid();
        if let (MsgType::SessionEstablishmentRequest, Some(seid)) = (request, seid) {
            self.sessions.remove(&seid);
        }
        self.events.push_back(SmfEvent::NoAnswer { request, upf, seid });
    }

    /// When [`Self::poll`] has something to do next.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.outgoing.next_deadline()
    }

    /// What happened, in order.
    pub fn next_event(&mut self) -> Option<SmfEvent> {
        self.events.pop_front()
    }

    /// Requests without an answer yet.
    pub fn outstanding(&self) -> usize {
        self.outgoing.len()
    }

    /// Sessions asked for and not deleted.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    fn transmit(&mut self, to: SocketAddr, bytes: Arc<[u8]>, out: &mut Vec<Transmit>) {
        if let Some(&kind) = bytes.get(1) {
            self.counters.count_sent(kind);
        }
        out.push(Transmit { to, bytes });
    }
}
