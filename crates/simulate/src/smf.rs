//! A control plane: the SMF of `kaido sim`, what it asks for at random, and what it may expect.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kaido_n4::{Modification, OuterHeaderCreation, Seid, Teid};
use kaido_pfcp::{
    Dialect, Instants, MsgType, Retransmission, SessionTemplate, Smf, SmfConfig, SmfEvent, Transmit,
};

use crate::clock::time_of;
use crate::events::EventLog;
use crate::message::{Message, REPORT};
use crate::node::NODE;
use crate::random::Random;
use crate::session::{Downlink, Session, Shape, State};

/// Requests without an answer at once.
const OUTSTANDING: usize = 24;
/// A session context is not there (8.2.1).
const NO_SESSION: u8 = 65;
/// How long the answer to a request is kept: T1 and N1 are the standard's.
const ANSWERS_LAST: Duration = Duration::from_secs(15);

/// A control plane.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    /// Which it is.
    pub number: u8,
    /// Its address.
    pub address: SocketAddr,
    /// How often it has started.
    pub life: u64,
    smf: Smf,
    /// It is not there before.
    pub up_at: Duration,
    /// It has an association.
    pub is_associated: bool,
    /// It was cut off lately.
    pub may_miss_reports: bool,
    /// By their SEIDs here.
    pub sessions: BTreeMap<u64, Session>,
    /// Sessions whose establishment was not answered: they may be there.
    pub unknown: BTreeSet<u64>,
    /// Most sessions at once.
    sessions_max: usize,
    random: Random,
    /// The answers that came, by type and number.
    answers: HashMap<(u8, u32), SeenAnswer>,
    /// What was counted.
    pub counts: Counts,
}

/// When an answer came first, and what it was.
type SeenAnswer = (Duration, Arc<[u8]>);

/// What a control plane has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Sessions that were established.
    pub established: u64,
    /// Changes and queries that were answered.
    pub changed: u64,
    /// Times that more was granted to a session.
    pub granted: u64,
    /// Sessions that were deleted.
    pub deleted: u64,
    /// Requests without an answer.
    pub unanswered: u64,
    /// Reports that came unasked.
    pub reports: u64,
    /// Answers that came more than once.
    pub repeated: u64,
    /// Heartbeats that were answered.
    pub alive: u64,
    /// Reports that a packet waits for an idle UE.
    pub pages: u64,
}

/// What the simulation gives a control plane.
#[derive(Debug)]
pub(crate) struct Turn<'t> {
    /// The moment.
    pub now: Instants,
    /// The same since the run began.
    pub time: Duration,
    /// What it sends.
    pub out: &'t mut Vec<Transmit>,
    /// Takes down what happens.
    pub log: &'t mut EventLog,
    /// Numbers that none was given before.
    pub next: &'t mut u32,
}

impl Turn<'_> {
    fn number(&mut self) -> u32 {
        *self.next += 1;
        *self.next
    }
}

impl ControlPlane {
    /// One that starts at a moment.
    pub(crate) fn new(number: u8, sessions_max: usize, random: Random, wall: SystemTime) -> Self {
        let ipv4 = Ipv4Addr::new(10, 0, 0, number + 1);
        Self {
            number,
            address: SocketAddr::new(ipv4.into(), 8805),
            life: 0,
            smf: smf(ipv4, wall),
            up_at: Duration::ZERO,
            is_associated: false,
            may_miss_reports: false,
            sessions: BTreeMap::new(),
            unknown: BTreeSet::new(),
            sessions_max,
            random,
            answers: HashMap::new(),
            counts: Counts::default(),
        }
    }

    /// Ends, knows nothing any more, and starts at `up_at`, which is `wall`.
    pub(crate) fn restart(&mut self, up_at: Duration, wall: SystemTime) {
        let IpAddr::V4(ipv4) = self.address.ip() else { return };
        self.life += 1;
        (self.smf, self.up_at, self.is_associated) = (smf(ipv4, wall), up_at, false);
        self.sessions.clear();
        self.unknown.clear();
        self.answers.clear();
    }

    /// Asks for an association, if there is none and it is not asked for.
    pub(crate) fn associate(&mut self, turn: &mut Turn<'_>) {
        if !self.is_associated
            && self.smf.outstanding() == 0
            && self.smf.associate(turn.now, NODE, turn.out).is_ok()
        {
            turn.log.note(format_args!("smf {} asks for an association", self.number));
        }
    }

    /// Asks for something at random.
    pub(crate) fn act(&mut self, turn: &mut Turn<'_>) {
        self.associate(turn);
        self.delete_again(turn);
        // A UE takes its time, and so does charging.
        if self.random.happens(300_000) {
            self.wake_paged(turn);
            self.grant(turn);
        }
        if !self.is_associated || self.smf.outstanding() >= OUTSTANDING {
            return;
        }
        let chosen = self.random.number();
        let any = any(&self.sessions, &mut self.random, |session| session.state == State::Active);
        let open = self.sessions.values().filter(|session| session.state != State::Ended).count();
        match (chosen % 100, any) {
            (0..40, _) if open < self.sessions_max => self.establish(turn),
            (0..20, Some(seid)) => self.hand_over(turn, seid),
            // A packet beyond the quota pages nobody.
            (20..35, Some(seid)) if !self.sessions[&seid].has_quota() => self.idle(turn, seid),
            (35..60, Some(seid)) => self.query(turn, seid),
            (60..85, Some(seid)) => self.delete(turn, seid),
            (98.., _) => self.heartbeat(turn),
            _ => {}
        }
    }

    fn establish(&mut self, turn: &mut Turn<'_>) {
        let shape = Shape::any(&mut self.random, turn.number() & 0xffff);
        let gnb = turn.number();
        if let Ok(seid) = self.smf.establish(turn.now, NODE, shape.establishment(gnb), turn.out) {
            turn.log.note(format_args!("smf {} establishes {seid}", self.number));
            let mut session = Session::asked(shape, gnb);
            if shape.time.is_some_and(|time| time.is_immediate) {
                session.time.may_begin(time_of(turn.now));
            }
            self.sessions.insert(seid.0, session);
        }
    }

    /// Has the downlink of a session go into another tunnel. A UE that is idle wakes.
    fn hand_over(&mut self, turn: &mut Turn<'_>, seid: u64) {
        let teid = turn.number();
        let gnb =
            OuterHeaderCreation { teid: Teid(teid), ipv4: Some(Ipv4Addr::new(10, 100, 3, 2)), ipv6: None };
        let request = SessionTemplate::forward(gnb, false);
        self.change(turn, seid, &request, Some(Downlink::Tunnel(teid)));
    }

    /// The UE of a session falls asleep.
    fn idle(&mut self, turn: &mut Turn<'_>, seid: u64) {
        self.change(turn, seid, &SessionTemplate::buffer(), Some(Downlink::Buffer));
    }

    /// Wakes the UEs that packets wait for.
    pub(crate) fn wake_paged(&mut self, turn: &mut Turn<'_>) {
        for seid in self.seids(|session| session.is_paged && session.state == State::Active) {
            self.hand_over(turn, seid);
        }
    }

    /// Grants more to sessions that have used up what they had.
    pub(crate) fn grant(&mut self, turn: &mut Turn<'_>) {
        for seid in self.seids(|session| session.is_used_up() && session.state == State::Active) {
            if let Some(request) = self.sessions[&seid].grant() {
                self.change(turn, seid, &request, None);
            }
        }
    }

    /// Asks for the usage of a session.
    pub(crate) fn query(&mut self, turn: &mut Turn<'_>, seid: u64) {
        self.change(turn, seid, &SessionTemplate::query(&[]), None);
    }

    fn change(&mut self, turn: &mut Turn<'_>, seid: u64, request: &Modification, asked: Option<Downlink>) {
        let Some(session) = self.sessions.get_mut(&seid) else { return };
        if self.smf.modify(turn.now, Seid(seid), request, turn.out).is_ok() {
            let is_grant = !request.update_urrs.is_empty();
            let is_query = asked.is_none() && !is_grant;
            let what = match asked {
                None if is_grant => "grants",
                None => "queries",
                Some(Downlink::Tunnel(_)) => "hands over",
                Some(Downlink::Buffer) => "has buffered for",
            };
            turn.log.note(format_args!("smf {} {what} {seid}", self.number));
            (session.state, session.asked) = (State::Changing, asked);
            session.asked_at = if is_query { time_of(turn.now) } else { Duration::ZERO };
            if is_grant {
                session.ask_more();
            }
            self.counts.granted += u64::from(is_grant);
            session.was_idle |= asked == Some(Downlink::Buffer);
            session.is_paged &= !matches!(asked, Some(Downlink::Tunnel(_)));
        }
    }

    /// Asks for the end of a session.
    pub(crate) fn delete(&mut self, turn: &mut Turn<'_>, seid: u64) {
        let Some(session) = self.sessions.get_mut(&seid) else { return };
        if self.smf.delete(turn.now, Seid(seid), turn.out).is_ok() {
            turn.log.note(format_args!("smf {} deletes {seid}", self.number));
            (session.state, session.asked_at) = (State::Deleting, time_of(turn.now));
        }
    }

    /// Asks once more for the ends that were not answered.
    pub(crate) fn delete_again(&mut self, turn: &mut Turn<'_>) {
        for seid in self.seids(|session| session.state == State::Unanswered) {
            self.delete(turn, seid);
        }
    }

    /// Asks once more for the changes that were not answered, so that it is known where the downlink of each session goes.
    pub(crate) fn change_again(&mut self, turn: &mut Turn<'_>) {
        for seid in self.seids(|session| session.state == State::Active && session.downlink.len() > 1) {
            match self.sessions[&seid].downlink.last() {
                Some(Downlink::Buffer) => self.idle(turn, seid),
                _ => self.hand_over(turn, seid),
            }
        }
    }

    fn seids(&self, which: impl Fn(&Session) -> bool) -> Vec<u64> {
        self.sessions.iter().filter(|(_, session)| which(session)).map(|(&seid, _)| seid).collect()
    }

    /// Asks whether the node is there.
    pub(crate) fn heartbeat(&mut self, turn: &mut Turn<'_>) {
        let _ = self.smf.heartbeat(turn.now, NODE, turn.out);
    }

    /// Releases the association.
    pub(crate) fn release(&mut self, turn: &mut Turn<'_>) {
        let _ = self.smf.release(turn.now, NODE, turn.out);
    }

    /// Sends again what had no answer.
    pub(crate) fn poll(&mut self, turn: &mut Turn<'_>) -> Result<(), String> {
        self.smf.poll(turn.now, turn.out);
        self.take_events(turn)
    }

    /// Whether nothing is asked and not answered.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_settled = |session: &Session| match session.state {
            State::Active => !session.is_paged && !session.is_used_up(),
            state => state == State::Ended,
        };
        self.smf.outstanding() == 0 && self.sessions.values().all(is_settled)
    }

    /// Takes in a datagram of the node; `recovery` is the Recovery Time Stamp that it has told so far.
    ///
    /// # Errors
    /// When it says what cannot be.
    pub(crate) fn receive(
        &mut self,
        bytes: &Arc<[u8]>,
        recovery: &mut Option<u32>,
        turn: &mut Turn<'_>,
    ) -> Result<(), String> {
        let message = Message::read(bytes).ok_or("a message cannot be read")?;
        if let Some(told) = message.recovery()
            && *recovery.get_or_insert(told) != told
        {
            return Err(format!("the node's Recovery Time Stamp was {recovery:?}, and is {told}"));
        }
        if !message.is_request() && !message.is_heartbeat() {
            self.same_answer(&message, bytes, turn.time)?;
        }
        self.counts.reports += u64::from(message.kind == REPORT);
        if let Some(session) = message.seid.and_then(|seid| self.sessions.get_mut(&seid)) {
            for usage in message.usage() {
                turn.log.note(format_args!("smf {} is told of {:?}: {usage:?}", self.number, message.seid));
                session.report(&usage, time_of(turn.now))?;
            }
        }
        self.smf.handle(turn.now, NODE, bytes, turn.out);
        self.take_events(turn)
    }

    /// The answer to a request that came again is the same.
    fn same_answer(
        &mut self,
        message: &Message<'_>,
        bytes: &Arc<[u8]>,
        time: Duration,
    ) -> Result<(), String> {
        let entry =
            self.answers.entry((message.kind, message.sequence)).or_insert_with(|| (time, Arc::clone(bytes)));
        if entry.0 + ANSWERS_LAST < time {
            *entry = (time, Arc::clone(bytes));
        }
        self.counts.repeated += u64::from(!Arc::ptr_eq(&entry.1, bytes));
        match entry.1 == *bytes {
            true => Ok(()),
            false => Err(format!(
                "smf {}: two answers of type {} to request {} differ: {:02x?}, and {bytes:02x?}",
                self.number, message.kind, message.sequence, entry.1
            )),
        }
    }

    fn take_events(&mut self, turn: &mut Turn<'_>) -> Result<(), String> {
        while let Some(event) = self.smf.next_event() {
            self.take_event(event, turn).map_err(|what| format!("smf {}: {what}", self.number))?;
        }
        Ok(())
    }

    fn take_event(&mut self, event: SmfEvent, turn: &mut Turn<'_>) -> Result<(), String> {
        let (number, may_miss_reports) = (self.number, self.may_miss_reports);
        match event {
            SmfEvent::Associated { .. } => {
                self.is_associated = true;
                turn.log.note(format_args!("smf {number} is associated"));
            }
            SmfEvent::Released { .. } => {
                self.is_associated = false;
                self.sessions.clear();
                self.unknown.clear();
            }
            SmfEvent::Alive { .. } => self.counts.alive += 1,
            SmfEvent::Established { seid, up, created_pdrs } => {
                turn.log.note(format_args!("smf {number} has {seid}"));
                self.counts.established += 1;
                let session = self.session(seid)?;
                (session.state, session.up_seid) = (State::Active, up.seid.0);
                session.ends = session.shape.ends(&created_pdrs);
                if session.shape.time.is_some_and(|time| time.is_immediate) {
                    session.time.begins(time_of(turn.now));
                }
                if session.ends.is_none() {
                    return Err(format!("session {seid} has no ends: {created_pdrs:?}"));
                }
            }
            SmfEvent::Modified { seid, .. } => {
                turn.log.note(format_args!("smf {number} has changed {seid}"));
                self.counts.changed += 1;
                let session = self.session(seid)?;
                session.state = State::Active;
                session.change_answered(time_of(turn.now));
                if let Some(asked) = session.asked.take() {
                    session.downlink = vec![asked];
                }
            }
            SmfEvent::Deleted { seid, .. } => {
                turn.log.note(format_args!("smf {number} has deleted {seid}"));
                self.counts.deleted += 1;
                let session = self.session(seid)?;
                // A report of before may be given up, and no session has what it told.
                session.is_uncertain |= may_miss_reports;
                if session.state != State::Deleting {
                    return Err(format!("session {seid} was ended by the node"));
                }
                session.state = State::Ended;
                session.time.tell_until(session.asked_at);
            }
            SmfEvent::Refused { request, seid, cause, .. } => {
                turn.log.note(format_args!("smf {number}: {request:?} is refused: {cause}"));
                let session = seid.and_then(|seid| self.sessions.get_mut(&seid.0));
                let had_ended =
                    |session: &&mut Session| session.state == State::Deleting && session.is_uncertain;
                match session.filter(had_ended).filter(|_| cause == NO_SESSION) {
                    // An end that was not answered.
                    Some(session) => session.state = State::Ended,
                    None => return Err(format!("{request:?} of {seid:?} is refused: cause {cause}")),
                }
            }
            SmfEvent::NoAnswer { request, seid, .. } => {
                turn.log.note(format_args!("smf {number}: {request:?} of {seid:?} has no answer"));
                self.counts.unanswered += 1;
                self.no_answer(request, seid);
            }
            SmfEvent::Usage { .. } => {}
            SmfEvent::DownlinkData { seid, .. } => {
                turn.log.note(format_args!("smf {number} is to page {seid}"));
                self.counts.pages += 1;
                let session = self.session(seid)?;
                if !session.was_idle {
                    return Err(format!("a packet waits in session {seid}, which was never idle"));
                }
                session.is_paged = true;
            }
            other => return Err(format!("{other:?}, which nothing asked for")),
        }
        Ok(())
    }

    fn no_answer(&mut self, request: MsgType, seid: Option<Seid>) {
        let Some(seid) = seid else { return };
        let Some(session) = self.sessions.get_mut(&seid.0) else { return };
        match request {
            MsgType::SessionEstablishmentRequest => {
                self.sessions.remove(&seid.0);
                self.unknown.insert(seid.0);
            }
            MsgType::SessionDeletionRequest => {
                (session.state, session.is_uncertain) = (State::Unanswered, true);
            }
            _ => {
                // It may have been carried out.
                let is_grant = session.change_given_up();
                session.is_uncertain |= !is_grant && session.asked.is_none();
                session.downlink.extend(session.asked.take());
                session.state = State::Active;
            }
        }
    }

    fn session(&mut self, seid: Seid) -> Result<&mut Session, String> {
        self.sessions.get_mut(&seid.0).ok_or_else(|| format!("session {seid} is none of ours"))
    }
}

/// One of the sessions that meet something, from a place in their order on.
pub(crate) fn any(
    sessions: &BTreeMap<u64, Session>,
    random: &mut Random,
    is_meant: impl Fn(&Session) -> bool,
) -> Option<u64> {
    let (first, last) = (*sessions.first_key_value()?.0, *sessions.last_key_value()?.0);
    let from = first + random.below(last - first + 1);
    sessions
        .range(from..)
        .chain(sessions.range(..from))
        .find(|(_, session)| is_meant(session))
        .map(|(&seid, _)| seid)
}

fn smf(ipv4: Ipv4Addr, recovery: SystemTime) -> Smf {
    Smf::new(SmfConfig {
        node_id: IpAddr::V4(ipv4).into(),
        ipv4: Some(ipv4),
        ipv6: None,
        recovery,
        retransmission: Retransmission::default(),
        outstanding: OUTSTANDING + 8,
        dialect: Dialect::Plain,
    })
}
