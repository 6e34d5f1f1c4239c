//! The user plane's end of N4 / Sxb: associations, sessions and reports over a [`SessionService`].
//!
//! ```text
//!  datagram ─▶ frame ─▶ seen before? ─▶ walk ─▶ decode ─▶ SessionService ─▶ encode ─▶ Transmit
//!  poll     ─▶ retries, heartbeats, set-ups, events of the service          ─▶ encode ─▶ Transmit
//! ```
//!
//! No socket and no clock: the caller brings datagrams and the time, and sends what is put into `out`.

mod binding;
mod bundle;
mod heartbeat;
mod held;
mod later;
mod load;
mod node;
mod paths;
mod pfd;
mod procedures;
mod purge;
mod release;
mod report;
mod restore;
mod session;
mod set;
mod setup;

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use kaido_n4::{Cause, PathEvent, Rejection, Seid, SessionEvent, SessionService};
use kaido_store::Recorder;
use rs_pfcp::message::MsgType;

use self::binding::Bindings;
use self::held::AbandonedReports;
use self::later::{Answer, DeferredResponses};
use self::load::Load;
use self::node::is_accepted;
use self::procedures::Procedures;
use self::purge::Purge;
use self::release::AssociationRelease;
pub use self::release::{NotReleased, UnreportedUsage};
use self::report::{Report, ResentReport};
pub use self::restore::NoRecord;
use crate::answers::{AnswerCache, RequestStatus, fingerprint};
use crate::association::{AssociationId, Associations};
use crate::clock::NodeClock;
use crate::counters::{Counters, Discard};
use crate::decode::{self, Features};
use crate::encode::{self, Draft};
use crate::frame::{Frame, FrameResult, Role, frames, is_request, response_to};
use crate::node_id::NodeId;
use crate::procedure::ProcedureEnd;
use crate::refusals::{RefusalLog, Subject};
use crate::throttle::Throttle;
use crate::transaction::{DueEvent, Instants, Outgoing, Pending, Retransmission, Transmit};

/// The port of PFCP (TS 29.244 4.2.2).
pub const PFCP_PORT: u16 = 8805;

/// To which port of a peer our own requests go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerPort {
    /// 8805, as the standard says.
    #[default]
    Standard,
    /// The port from which the peer set up the association: for several nodes on one address.
    AsSeen,
}

/// Bounds of what the endpoint remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Associations at once. Further set-ups are refused (cause 75).
    pub associations: usize,
    /// Answers kept for requests that come again. The oldest go first.
    pub answers: usize,
    /// Requests of ours that wait for an answer. Events stay with the service while there is no room.
    pub outstanding: usize,
}

/// Fewest and most answers kept: the most take some 80 MiB.
const ANSWERS: [usize; 2] = [65_536, 262_144];

impl Limits {
    /// Those of a node for so many sessions. A control plane sends a request again after seconds, in which as many others may come as
    /// it has sessions; where those are millions, as many as are served meanwhile.
    pub fn of_sessions(sessions: u32) -> Self {
        let [fewest, most] = ANSWERS;
        Self { answers: (sessions as usize / 2).clamp(fewest, most), ..Self::default() }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { associations: 1024, answers: ANSWERS[0], outstanding: 16_384 }
    }
}

/// What an [`Endpoint`] is told at start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Our name.
    pub node_id: NodeId,
    /// The IPv4 address at which we are spoken to, for F-SEIDs.
    pub ipv4: Option<Ipv4Addr>,
    /// The IPv6 address at which we are spoken to, for F-SEIDs.
    pub ipv6: Option<Ipv6Addr>,
    /// When we started; peers tell a restart by it.
    pub recovery: SystemTime,
    /// The optional parts that the service does.
    pub features: Features,
    /// Whether control planes that say LOAD and OVRL are told of load and overload (TS 29.244 6.2.3, 6.2.4).
    pub tells_load: bool,
    /// Control planes to set up an association with ourselves.
    pub control_planes: Vec<SocketAddr>,
    /// How long to wait before such a set-up is tried again.
    pub setup_interval: Duration,
    /// How often associated peers are asked for a heartbeat.
    pub heartbeat_interval: Duration,
    /// T1 and N1.
    pub retransmission: Retransmission,
    /// Where our requests go.
    pub peer_port: PeerPort,
    /// Bounds.
    pub limits: Limits,
}

impl Config {
    /// A configuration of a node at one address, with the standard's defaults.
    pub fn at(address: IpAddr) -> Self {
        let (ipv4, ipv6) = match address {
            IpAddr::V4(v4) => (Some(v4), None),
            IpAddr::V6(v6) => (None, Some(v6)),
        };
        Self {
            node_id: address.into(),
            ipv4,
            ipv6,
            recovery: SystemTime::now(),
            features: Features::default(),
            tells_load: false,
            control_planes: Vec::new(),
            setup_interval: Duration::from_secs(10),
            heartbeat_interval: Duration::from_secs(60),
            retransmission: Retransmission::default(),
            peer_port: PeerPort::Standard,
            limits: Limits::default(),
        }
    }
}

/// What a request of ours was for.
#[derive(Debug)]
enum Purpose {
    Heartbeat(AssociationId),
    /// With that control plane of the configuration.
    Setup(SocketAddr),
    ReleaseWish,
    Report(Report),
    /// The last report of a session of an association that is being released.
    /// With the octets that it tells of.
    LastUsage(AssociationId, u64),
    /// What is reported of GTP-U paths.
    Paths(AssociationId, Arc<[PathEvent]>),
}

/// A control plane that we set up with.
#[derive(Debug)]
struct SetupPeer {
    peer: SocketAddr,
    /// `None` while a set-up is on its way.
    try_at: Option<Instant>,
}

/// A peer as it is shown to an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub node_id: NodeId,
    /// Where our requests to it go.
    pub address: SocketAddr,
    /// It does not answer heartbeats.
    pub down: bool,
    /// The sessions it holds.
    pub sessions: usize,
}

/// The user plane's PFCP endpoint.
#[derive(Debug)]
pub struct Endpoint<S> {
    config: Config,
    service: S,
    clock: NodeClock,
    associations: Associations,
    sessions: Bindings,
    /// Sessions that have ended and are yet to be deleted.
    purge: Purge,
    answered: AnswerCache,
    outgoing: Outgoing<Purpose>,
    invited: Vec<SetupPeer>,
    /// Reports that did not fit into a response.
    overflow: VecDeque<(u64, SessionEvent)>,
    put_off_count: u64,
    releasing: bool,
    releases: Vec<AssociationRelease>,
    /// Reports that are to be sent anew, by time and then in order.
    resent: BTreeMap<(Instant, u64), ResentReport>,
    resent_count: u64,
    /// Reports to which an answer may come late.
    given_up: AbandonedReports,
    /// Who waits for what the service has put off.
    later: DeferredResponses,
    load: Load,
    counters: Counters,
    refusals: RefusalLog,
    /// Takes down what is to be known after a restart.
    recorder: Recorder,
    /// Since when what is sent waits for that.
    held_since: Option<Instant>,
    /// Lines about reports that are refused.
    refused_reports: Throttle,
    /// Lines about set-ups in another's name.
    claims: Throttle,
    /// Those that are traced, if any is.
    procedures: Option<Box<Procedures>>,
}

impl<S: SessionService> Endpoint<S> {
    /// An endpoint without peers.
    pub fn new(config: Config, service: S, now: Instants) -> Self {
        let invited = config.control_planes.iter();
        let invited = invited.map(|&peer| SetupPeer { peer, try_at: Some(now.monotonic) }).collect();
        Self {
            associations: Associations::new(config.limits.associations),
            answered: AnswerCache::new(config.retransmission, config.limits.answers),
            outgoing: Outgoing::new(config.retransmission, config.limits.outstanding).starting(now.wall),
            sessions: Bindings::new(),
            purge: Purge::default(),
            overflow: VecDeque::new(),
            put_off_count: 0,
            releasing: false,
            releases: Vec::new(),
            resent: BTreeMap::new(),
            resent_count: 0,
            given_up: AbandonedReports::new(config.limits.outstanding),
            later: DeferredResponses::default(),
            load: Load::new(config.recovery),
            counters: Counters::default(),
            refusals: RefusalLog::default(),
            recorder: Recorder::default(),
            held_since: None,
            refused_reports: Throttle::default(),
            claims: Throttle::default(),
            procedures: None,
            clock: NodeClock::new(now),
            config,
            service,
            invited,
        }
    }

    /// Goes on with other times, and tells of load or not. Requests under way keep the times that they were sent with.
    pub fn set_times(
        &mut self,
        heartbeat_interval: Duration,
        retransmission: Retransmission,
        tells_load: bool,
    ) {
        self.config.heartbeat_interval = heartbeat_interval;
        self.config.retransmission = retransmission;
        self.config.tells_load = tells_load;
        self.outgoing.set_timing(retransmission);
        self.answered.set_timing(retransmission);
    }

    /// Sets up associations with these control planes from here on: at once with those that were not there before. An association
    /// with one that is no longer there stands until the control plane releases it; it is not set up again.
    pub fn set_control_planes(&mut self, control_planes: Vec<SocketAddr>, now: Instants) {
        if !self.releasing {
            let before = std::mem::take(&mut self.invited);
            let known = |peer| before.iter().find(|known| known.peer == peer).map(|known| known.try_at);
            let invited = control_planes
                .iter()
                .map(|&peer| SetupPeer { peer, try_at: known(peer).unwrap_or(Some(now.monotonic)) });
            self.invited = invited.collect();
        }
        self.config.control_planes = control_planes;
    }

    /// Takes in a datagram. What is to be sent is appended to `out`.
    pub fn handle(&mut self, now: Instants, from: SocketAddr, datagram: &[u8], out: &mut Vec<Transmit>) {
        let now = self.node_moment(now);
        let mut messages = 0;
        let before = out.len();
        for framed in frames(Role::UserPlane, datagram) {
            match framed {
                FrameResult::Message(frame) => {
                    messages += 1;
                    self.message(now, from, &frame, out);
                }
                FrameResult::BadLength(frame) => self.bad_length(now, from, &frame, out),
                FrameResult::OtherVersion { sequence } => {
                    let answer = Draft::node(MsgType::VersionNotSupportedResponse, sequence).bytes();
                    self.transmit(from, answer.into(), out);
                }
                FrameResult::Nothing(why) => self.counters.count_discarded(why),
            }
        }
        if messages > 1 {
            self.counters.bundles += 1;
            self.bundle(from, before, out);
        }
        self.send_ended(now, out);
        // As many as messages came: all that wait would be answered at once.
        self.send_resent(now, &mut messages, out);
        self.send_overflow(now, out);
    }

    /// Does what is due: late answers, retries, heartbeats, set-ups, and reports of the service's events.
    pub fn poll(&mut self, now: Instants, out: &mut Vec<Transmit>) {
        let now = self.node_moment(now);
        self.answered.expire(now.monotonic);
        self.send_ended(now, out);
        while let Some(due) = self.outgoing.due(now.monotonic, self.held_since) {
            match due {
                DueEvent::Again(transmit, (kind, sequence)) => {
                    self.counters.retransmissions_sent += 1;
                    self.counters.count_sent(kind as u8);
                    self.own_procedure_again(sequence);
                    out.push(transmit);
                }
                DueEvent::Exhausted(pending) => {
                    self.counters.requests_exhausted += 1;
                    tracing::debug!(peer = %pending.peer, kind = ?pending.kind, "no answer");
                    self.own_procedure_over(&pending, ProcedureEnd::NoAnswer);
                    self.landed(&pending);
                    self.given_up(now, &pending);
                }
            }
        }
        self.measure_load();
        self.send_heartbeats(now, out);
        self.send_setups(now, out);
        self.send_reports(now, out);
        self.release_associations(now, out);
        self.send_node_reports(now, out);
        self.purge_slice(now);
    }

    /// Says since when nothing that was sent has left, but for heartbeats; `None` if all has. T1 of such a request has not begun:
    /// usage would be reported twice that is given up before its report leaves.
    pub fn set_held_since(&mut self, since: Option<Instant>) {
        self.held_since = since;
    }

    /// When [`Self::poll`] has something to do next, if it [has no more](Self::has_more) now. The service's events have no deadline here: the caller
    /// polls when it knows of some, and at a pace of its own.
    pub fn next_deadline(&self) -> Option<Instant> {
        let heartbeats =
            self.associations.iter().filter(|peer| !peer.heartbeat_outstanding).map(|peer| peer.heartbeat_at);
        let setups = self.invited.iter().filter_map(|invited| invited.try_at);
        let resent = self.resent.keys().map(|&(at, _)| at).next();
        heartbeats.chain(setups).chain(self.outgoing.next_deadline()).chain(resent).min()
    }

    /// The time that the service goes by: that of the wall clock when the endpoint was made, and what the monotonic clock
    /// has counted since.
    pub fn node_time(&self, now: Instants) -> SystemTime {
        self.clock.time(now)
    }

    /// A moment with node time for the wall's, which is where it comes from that nothing behind here jumps.
    fn node_moment(&mut self, now: Instants) -> Instants {
        if let Some(ms) = self.clock.look(now) {
            tracing::warn!(
                seconds = ms / 1000,
                "the wall clock was set; what is measured does not follow it"
            );
            self.service.wall_clock_set(ms, self.clock.time(now));
        }
        Instants { wall: self.clock.time(now), ..now }
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The peers with an association.
    pub fn peers(&self) -> impl Iterator<Item = Peer> + '_ {
        self.associations.iter().map(|association| Peer {
            node_id: association.node.clone(),
            address: association.peer,
            down: association.down,
            sessions: association.sessions,
        })
    }

    /// Sessions of all peers, and those that are yet to be deleted.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Requests of ours without an answer yet.
    pub fn outstanding(&self) -> usize {
        self.outgoing.len()
    }

    /// The user plane behind the endpoint.
    pub fn service(&self) -> &S {
        &self.service
    }

    /// The user plane behind the endpoint, to work on. Sessions come and go by PFCP alone.
    pub fn service_mut(&mut self) -> &mut S {
        &mut self.service
    }

    fn message(&mut self, now: Instants, from: SocketAddr, frame: &Frame<'_>, out: &mut Vec<Transmit>) {
        self.counters.count_received(frame.kind);
        if is_request(frame.kind) {
            self.associations.hear(from.ip(), now.monotonic, self.config.retransmission.t1);
        }
        if frame.kind == MsgType::HeartbeatRequest {
            self.heartbeat_request(now, from, frame, out);
        } else if is_request(frame.kind) {
            self.request(now, from, frame, out);
        } else {
            self.response(now, from, frame);
        }
    }

    /// Carries a request out once, and answers it as often as it comes. Answers to strangers are not kept:
    /// they are refusals, and memory is for peers.
    fn request(&mut self, now: Instants, from: SocketAddr, frame: &Frame<'_>, out: &mut Vec<Transmit>) {
        let key = (from, frame.kind as u8, frame.sequence);
        let print = fingerprint(frame.seid.map(|seid| seid.0), frame.body);
        match self.answered.look(key, print) {
            RequestStatus::New => {}
            RequestStatus::InProgress => return self.counters.count_discarded(Discard::InProgress),
            RequestStatus::Answered(response) => {
                self.counters.retransmissions_answered += 1;
                return self.transmit(from, response, out);
            }
        }
        self.procedure_begins(from, frame);
        let known_before = self.is_peer(from.ip());
        if known_before {
            self.answered.begin(now.monotonic, key, print);
        }
        let response: Arc<[u8]> = match self.answer(now, from, frame) {
            Answer::Ready(bytes) => bytes.into(),
            Answer::Silence => {
                self.procedure_is_ignored();
                return self.answered.cancel(key);
            }
            Answer::Later(ticket, asked) => return self.answer_later(ticket, from, key, asked),
        };
        if !known_before && self.is_peer(from.ip()) {
            self.answered.begin(now.monotonic, key, print);
        }
        self.answered.finish(now.wall, key, &response);
        self.procedure_is_answered(&response);
        self.transmit(from, response, out);
    }

    /// Whether a control plane at that address has an association.
    pub fn is_peer(&self, address: IpAddr) -> bool {
        !self.associations.at(address).is_empty()
    }

    /// Whether a control plane at that address has an association, or is one that we set up with.
    pub fn is_expected(&self, address: IpAddr) -> bool {
        self.is_peer(address) || self.config.control_planes.iter().any(|known| known.ip() == address)
    }

    fn answer(&mut self, now: Instants, from: SocketAddr, frame: &Frame<'_>) -> Answer {
        let mut to = Seid(0);
        let done = match frame.kind {
            MsgType::SessionModificationRequest => self.session_modification(now, from, frame, &mut to),
            MsgType::SessionDeletionRequest => self.session_deletion(now, from, frame, &mut to),
            MsgType::AssociationSetupRequest => self.association_setup(now, from, frame),
            _ => self.answer_at_once(now, from, frame, &mut to).map(Answer::Ready),
        };
        done.unwrap_or_else(|why| Answer::Ready(self.refuse(now, from, frame, to, &why)))
    }

    /// The answer to a request that never waits.
    fn answer_at_once(
        &mut self,
        now: Instants,
        from: SocketAddr,
        frame: &Frame<'_>,
        to: &mut Seid,
    ) -> Result<Vec<u8>, Rejection> {
        match frame.kind {
            MsgType::AssociationUpdateRequest => self.association_update(from, frame),
            MsgType::AssociationReleaseRequest => self.association_release(now, from, frame),
            MsgType::SessionEstablishmentRequest => self.session_establishment(now, from, frame, to),
            MsgType::SessionSetDeletionRequest => self.session_set_deletion(now, from, frame),
            MsgType::SessionSetModificationRequest => self.session_set_modification(from, frame),
            MsgType::PfdManagementRequest => self.pfd_management(from, frame),
            _ => Err(Rejection::new(Cause::ServiceNotSupported, "procedure not supported")),
        }
    }

    /// The answer to a request that is refused. Nothing of it was done.
    fn refuse(
        &mut self,
        now: Instants,
        from: SocketAddr,
        frame: &Frame<'_>,
        to: Seid,
        why: &Rejection,
    ) -> Vec<u8> {
        self.counters.count_rejected(why.cause.value());
        self.procedure_is_refused(frame, to, why);
        let service = &self.service;
        self.refusals.refused(now.monotonic, from.ip(), frame.kind, why, || {
            // What a request names is told before what is known of its session.
            let seid = frame.seid.filter(|seid| seid.0 != 0);
            let ue = decode::ue_of_request(frame.body).or_else(|| service.ue(seid?));
            Subject { seid: seid.unwrap_or(to), ue: ue.unwrap_or_default() }
        });
        let kind = response_to(frame.kind);
        let mut draft = encode::rejection(kind, to, frame.sequence, &self.config.node_id, why);
        if kind == MsgType::AssociationSetupResponse {
            draft.push(&encode::recovery(self.config.recovery));
        }
        draft.bytes()
    }

    /// A request whose length does not fit: cause 68, if its response has a cause (7.6.3).
    fn bad_length(&mut self, now: Instants, from: SocketAddr, frame: &Frame<'_>, out: &mut Vec<Transmit>) {
        self.counters.count_received(frame.kind);
        if frame.kind == MsgType::HeartbeatRequest {
            return self.counters.count_discarded(Discard::Length);
        }
        let to = frame.seid.and_then(|seid| self.peer_seid(from, seid)).unwrap_or_default();
        let why = Rejection::new(Cause::InvalidLength, "message length against datagram length");
        self.procedure_begins(from, frame);
        let answer = self.refuse(now, from, frame, to, &why);
        self.procedure_is_answered(&answer);
        self.transmit(from, answer.into(), out);
    }

    fn response(&mut self, now: Instants, from: SocketAddr, frame: &Frame<'_>) {
        let Some(pending) = self.outgoing.answered(from, frame.kind, frame.sequence) else {
            return self.unsolicited(now, from, frame);
        };
        self.own_procedure_answered(pending.sequence, frame);
        self.landed(&pending);
        if frame.kind == MsgType::VersionNotSupportedResponse {
            self.counters.requests_refused += 1;
            return self.given_up(now, &pending);
        }
        let read = match &pending.purpose {
            &Purpose::Heartbeat(id) => self.heartbeat_response(now, id, frame),
            &Purpose::Setup(peer) => self.setup_response(now, from, peer, frame),
            Purpose::ReleaseWish => self.consent(from, frame, "release"),
            Purpose::Report(report) => self.report_response(now, &pending, report, frame),
            &Purpose::LastUsage(id, _) => {
                self.counters.last_reports_acknowledged += 1;
                self.last_report_answered(id);
                Ok(())
            }
            &Purpose::Paths(id, _) => {
                self.node_report_answered(id);
                self.consent(from, frame, "node report")
            }
        };
        if let Err(why) = read {
            tracing::warn!(peer = %from, kind = ?frame.kind, detail = ?why.detail, "unreadable response");
            self.counters.count_discarded(Discard::MalformedResponse);
            self.given_up(now, &pending);
        }
    }

    /// A response to nothing that is outstanding, but perhaps to a report that was given up.
    fn unsolicited(&mut self, now: Instants, from: SocketAddr, frame: &Frame<'_>) {
        let late = match frame.kind {
            MsgType::SessionReportResponse => self.given_up.take(from, frame.sequence),
            _ => None,
        };
        match late {
            Some(report) => self.late_answer(now, &report, is_accepted(frame)),
            None => self.counters.count_discarded(Discard::Unsolicited),
        }
    }

    /// A request of ours is not outstanding any more.
    fn landed(&mut self, pending: &Pending<Purpose>) {
        self.own_procedure_over(pending, ProcedureEnd::Withdrawn);
        self.forget_request(pending);
        if let Purpose::Report(report) = &pending.purpose
            && let Some(association) = self.associations.get_mut(report.association)
        {
            association.in_flight = association.in_flight.saturating_sub(1);
        }
    }

    /// A request of ours had no answer, or none of use.
    fn given_up(&mut self, now: Instants, pending: &Pending<Purpose>) {
        match &pending.purpose {
            &Purpose::Heartbeat(id) => self.path_failed(now, id),
            &Purpose::Setup(peer) => self.retry_setup(now, peer),
            Purpose::ReleaseWish => {}
            Purpose::Report(report) => self.report_unanswered(now, pending, report.clone()),
            &Purpose::LastUsage(id, octets) => {
                self.counters.reports_lost += 1;
                if let Some(suppressed) = self.refused_reports.line(now.monotonic) {
                    tracing::warn!(peer = %pending.peer, octets, suppressed, "the last usage of a session is not acknowledged");
                }
                self.last_report_answered(id);
            }
            Purpose::Paths(id, paths) => self.keep_paths(*id, paths),
        }
    }

    /// Starts a request of ours.
    fn send(
        &mut self,
        now: Instants,
        to: SocketAddr,
        request: (MsgType, u32),
        bytes: Vec<u8>,
        purpose: Purpose,
        out: &mut Vec<Transmit>,
    ) {
        self.counters.count_sent(request.0 as u8);
        self.own_procedure_begins(to, request, &bytes, &purpose);
        out.push(self.outgoing.send(now.monotonic, to, request, bytes, purpose));
    }

    fn transmit(&mut self, to: SocketAddr, bytes: Arc<[u8]>, out: &mut Vec<Transmit>) {
        if let Some(&kind) = bytes.get(1) {
            self.counters.count_sent(kind);
        }
        out.push(Transmit { to, bytes });
    }
}
