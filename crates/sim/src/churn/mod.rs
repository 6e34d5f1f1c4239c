//! `kaido sim --churn`: UEs that attach, move, go idle, are paged and detach for as long as wanted.
//!
//! ```text
//!  Detached ─▶ Attaching ─▶ Active ◀─▶ Moving        handover: new tunnel, End Marker in the old
//!     ▲                      │  ▲  ◀─▶ Querying      usage at once
//!     │                      │  │  ◀─▶ Flowing       a QoS flow is added, where the dialect adds any
//!     │                      ▼  └───── Waking ◀── Idle ◀── Idling
//!  Closing ◀─ Detaching ◀─ Draining ◀──────────────┘
//! ```
//!
//! An idle UE wakes when it is paged, or of its own; or its session is deleted with what is buffered for it.
//!
//! A procedure is as many requests as the dialect writes; the next is sent once the one before is answered.
//! With `--faults` the network loses packets and the SMF is silent at times. Usage is then compared with what was not lost, and
//! each loss is reported with its time ([`losses`]).
//!
//! One thread: PFCP, the tunnels and the pace in turn. What went through each session's tunnels is known here to the
//! octet, and compared with what the UPF reports of it once it is deleted.

mod losses;
mod procedures;
mod session;
mod tally;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use kaido_n4::{Cause, Seid, UsageReport};
use kaido_pfcp::{Dialect, MsgType, SmfEvent};
use kaido_wire::MessageType;
use signal_hook::consts::{SIGUSR1, SIGUSR2};
use signal_hook::flag;

use self::session::{Phase, Session};
use self::tally::Tally;
use super::fault::SimFault;
use super::gnb::{self, Gnb};
use super::link::Link;
use super::numbered::{self, Payload};
use super::plan::ChurnPlan;
use super::progress::Progress;
use super::smf::busy;
use super::traffic::SOURCE_PORT;
use super::ue::Ue;

/// How long PFCP is waited for before packets are looked at.
const TURN: Duration = Duration::from_millis(1);
/// How long replies are waited for before a session is deleted all the same.
const DRAIN: Duration = Duration::from_secs(5);
/// How long after its deletion packets of a session may still come.
const CLOSING: Duration = Duration::from_millis(500);
/// Of so many UEs that are paged, one does not answer.
const UNREACHABLE: u64 = 8;
/// Changes and packets made up for at once after a stall.
const BURST: u64 = 64;
/// Datagrams taken in before something else is looked at.
const RECEIVED_MAX: usize = 512;
/// The longest UDP payload.
const DATAGRAM_MAX: usize = 65_536;
/// Octets by which packets differ in length.
const LENGTHS: u64 = 64;

/// Runs the plan to its end and writes its report.
pub(super) fn run(plan: &ChurnPlan) -> Result<(), SimFault> {
    let mut progress = Progress::new(plan.plan.quiet);
    let mut churn = Churn::open(plan)?;
    if plan.faults {
        churn.silence = silence()?;
    }
    churn.associate()?;
    let begun = Instant::now();
    while begun.elapsed() < plan.traffic.duration {
        churn.follow_silence();
        churn.change(begun.elapsed())?;
        churn.send(begun.elapsed());
        churn.turn()?;
        progress.progress("attached", churn.attached, plan.plan.sessions.ues);
    }
    churn.link.set_silent(false);
    churn.wind_down()?;
    churn.release()?;
    let Churn { tally, gnb, link, tunnels, left, .. } = &mut churn;
    left.values().for_each(|&left| tally.unended(left));
    tally.end(&gnb.counters, link.smf().counters(), tunnels.len());
    progress.say(&tally.summary());
    plan.plan.report.as_deref().map_or(Ok(()), |path| tally.write(path))
}

/// Set by SIGUSR1, cleared by SIGUSR2.
fn silence() -> Result<Arc<AtomicUsize>, SimFault> {
    let silence = Arc::new(AtomicUsize::new(0));
    for (signal, value) in [(SIGUSR1, 1), (SIGUSR2, 0)] {
        flag::register_usize(signal, silence.clone(), value)
            .map_err(SimFault::system("cannot take SIGUSR1 and SIGUSR2"))?;
    }
    Ok(silence)
}

/// `SplitMix64`.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }

    fn place(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len.max(1) as u64)).unwrap_or(0)
    }
}

/// Everything of a run.
struct Churn<'p> {
    plan: &'p ChurnPlan,
    link: Link,
    gnb: Gnb,
    sessions: Vec<Session>,
    by_seid: HashMap<Seid, usize>,
    /// Downlink tunnels by TEID: the place of their session.
    tunnels: HashMap<u32, usize>,
    /// Tunnels that had their End Marker, or will have none, and since when they are left.
    ended: VecDeque<(u32, Instant)>,
    /// Tunnels that were left and have no End Marker yet, and since when.
    left: HashMap<u32, Instant>,
    draining: VecDeque<usize>,
    closing: VecDeque<usize>,
    /// Sessions of UEs that answer a page.
    paged: VecDeque<Seid>,
    attached: usize,
    next_teid: u32,
    number: u64,
    changes: u64,
    sender: usize,
    random: Random,
    associated: bool,
    buffer: Vec<u8>,
    /// Not zero while the SMF is silent.
    silence: Arc<AtomicUsize>,
    tally: Tally,
}

impl<'p> Churn<'p> {
    fn open(plan: &'p ChurnPlan) -> Result<Self, SimFault> {
        let of = &plan.plan.sessions;
        let ues = (0..of.ues).map(|n| of.addressing.of(n)).map(|(v4, v6)| Ue::new(v4, v6));
        Ok(Self {
            link: Link::open(plan.plan.smf, plan.plan.upf_pfcp, of)?,
            gnb: Gnb::open(of.gnb, of.qfi, of.first_teid)?,
            sessions: ues.map(Session::new).collect(),
            by_seid: HashMap::new(),
            tunnels: HashMap::new(),
            ended: VecDeque::new(),
            left: HashMap::new(),
            draining: VecDeque::new(),
            closing: VecDeque::new(),
            paged: VecDeque::new(),
            attached: 0,
            next_teid: of.first_teid,
            number: 0,
            changes: 0,
            sender: 0,
            random: Random(1),
            associated: false,
            buffer: vec![0; DATAGRAM_MAX],
            silence: Arc::default(),
            tally: Tally::new(plan.faults),
            plan,
        })
    }

    fn associate(&mut self) -> Result<(), SimFault> {
        self.link.associate().map_err(busy)?;
        while !self.associated {
            self.turn()?;
        }
        Ok(())
    }

    fn release(&mut self) -> Result<(), SimFault> {
        self.link.release().map_err(busy)?;
        while self.associated {
            self.turn()?;
        }
        Ok(())
    }

    /// Takes in what came, and goes on with what waited for it.
    fn turn(&mut self) -> Result<(), SimFault> {
        self.link.turn(TURN)?;
        // First the packets: those that the UPF sent before it answered belong to the time before.
        self.receive();
        while let Some(event) = self.link.next_event() {
            self.note(event)?;
        }
        self.answer_pages()?;
        self.drain()?;
        self.close();
        Ok(())
    }

    fn dialect(&self) -> Dialect {
        self.plan.plan.sessions.dialect
    }

    /// A silent SMF takes no request of the UPF's in, and begins no procedure.
    fn follow_silence(&mut self) {
        self.link.set_silent(self.silence.load(Ordering::Relaxed) != 0);
    }

    fn has_room(&self) -> bool {
        !self.link.is_silent() && self.link.smf().outstanding() < self.plan.plan.sessions.window
    }

    /// Makes the changes that are due.
    fn change(&mut self, elapsed: Duration) -> Result<(), SimFault> {
        let due = due(self.plan.per_second.into(), elapsed);
        self.changes = self.changes.max(due.saturating_sub(BURST));
        while self.changes < due && self.has_room() {
            self.changes += 1;
            let place = self.random.place(self.sessions.len());
            let chance = self.random.below(8);
            match (self.sessions[place].phase, chance) {
                (Phase::Detached, _) => self.attach(place)?,
                (Phase::Active, 0..=2) => self.idle(place)?,
                (Phase::Active, 3 | 4) => self.hand_over(place)?,
                (Phase::Active, 5) => self.query_or_add_flow(place)?,
                (Phase::Active, _) => self.start_draining(place),
                (Phase::Idle, 0) => self.wake(place)?,
                (Phase::Idle, 1) => self.start_draining_asleep(place),
                (Phase::Idle, _) if self.dialect().buffers() => self.send_from(place),
                (Phase::Idle, _) => self.wake(place)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends the packets that are due, of active UEs in turn.
    fn send(&mut self, elapsed: Duration) {
        let due = due(self.plan.traffic.pps, elapsed);
        let keeps_rules = self.dialect().buffers();
        let count = due.saturating_sub(self.number).min(BURST);
        for _ in 0..count {
            let all = self.sessions.len();
            let found = (0..all).map(|step| (self.sender + step) % all);
            let Some(place) = { found }.find(|&place| self.sessions[place].phase.sends(keeps_rules)) else {
                break;
            };
            self.sender = place + 1;
            self.send_from(place);
        }
        // What could not be sent is not made up for.
        self.number = self.number.max(due);
    }

    fn send_from(&mut self, place: usize) {
        let to = self.plan.traffic.to;
        let session = &mut self.sessions[place];
        let Some(address) = session.ue.address(to.ip()) else { return };
        let number = self.number;
        self.number += 1;
        let shorter = (number % LENGTHS).min(self.plan.traffic.bytes.saturating_sub(60).into());
        let len = usize::from(self.plan.traffic.bytes) - usize::try_from(shorter).unwrap_or(0);
        let mut uplink = self.gnb.uplink();
        let Some(packet) = uplink.space().get_mut(..len) else { return };
        if numbered::write(packet, number, SocketAddr::new(address, SOURCE_PORT), to).is_ok() {
            uplink.push(&session.ue, len);
            if uplink.flush() > 0 {
                self.tally.unsent();
                return;
            }
            session.sent(number, len);
            self.tally.sent(len);
        }
    }

    /// Sorts the packets that came out of the tunnels.
    fn receive(&mut self) {
        for _ in 0..RECEIVED_MAX {
            let Some((len, from)) = self.gnb.take(&mut self.buffer) else { break };
            let datagram = self.buffer.get(..len).unwrap_or_default();
            let Some((header, payload)) = gnb::read(&self.gnb, datagram) else { continue };
            match header.message_type {
                MessageType::G_PDU => {
                    let place = self.tunnels.get(&header.teid);
                    match place.and_then(|&place| self.sessions.get_mut(place)) {
                        Some(session) => {
                            self.tally.received(payload.len());
                            self.tally.flaws += u64::from(!took(session, payload));
                            self.tally.wrong_qfi += u64::from(!session.has_qfi(header.qfi));
                        }
                        None => self.tally.strays += 1,
                    }
                }
                MessageType::END_MARKER => self.end_marker(header.teid),
                other => self.gnb.signalling(other, datagram, from),
            }
        }
    }

    /// Only a tunnel that was left ends, or is being left. One whose FARs are several may end as often.
    fn end_marker(&mut self, teid: u32) {
        let place = self.tunnels.get(&teid).copied();
        if place.is_some_and(|place| self.sessions[place].next_teid != teid) {
            gnb::count(&self.gnb.counters.end_markers);
            self.tunnels.remove(&teid);
            self.left.remove(&teid);
            self.ended.push_back((teid, Instant::now()));
        } else if self.ended.iter().any(|&(ended, _)| ended == teid) {
            self.tally.end_markers_again += 1;
        } else {
            self.tally.strays += 1;
        }
    }

    fn note(&mut self, event: SmfEvent) -> Result<(), SimFault> {
        match event {
            SmfEvent::Associated { .. } => self.associated = true,
            SmfEvent::Released { .. } => self.associated = false,
            SmfEvent::Established { seid, created_pdrs, .. } => self.established(seid, &created_pdrs)?,
            SmfEvent::Modified { seid, usage_reports, .. } => {
                self.count(seid, &usage_reports);
                self.proceed(seid)?;
            }
            SmfEvent::Deleted { seid, usage_reports } => {
                self.count(seid, &usage_reports);
                self.deleted(seid);
            }
            SmfEvent::Usage { seid, reports } => self.count(seid, &reports),
            SmfEvent::DownlinkData { seid, .. } => {
                self.tally.pages += 1;
                // Some UEs are out of reach: what is buffered for them waits until it is too old, or they are deleted.
                if self.random.below(UNREACHABLE) > 0 {
                    self.paged.push_back(seid);
                }
            }
            SmfEvent::ErrorIndication { .. } => self.tally.strays += 1,
            SmfEvent::ReleaseWanted { .. } | SmfEvent::Alive { .. } | SmfEvent::Inactive { .. } => {}
            SmfEvent::Refused {
                request: MsgType::SessionEstablishmentRequest,
                seid: Some(seid),
                cause,
                ..
            } if cause == Cause::PfcpEntityInCongestion.value() => self.put_off(seid),
            SmfEvent::Refused { request, upf, seid, cause, offending_ie, failed_rule } => {
                let ue = seid
                    .and_then(|seid| self.by_seid.get(&seid))
                    .and_then(|&place| u32::try_from(place).ok());
                return Err(SimFault::refused(upf, request, ue, cause, offending_ie, failed_rule));
            }
            SmfEvent::NoAnswer { request, upf, .. } => return Err(self.link.no_answer(upf, request)),
        }
        Ok(())
    }

    /// An overloaded UPF takes no session in (TS 29.244 6.2.4): its UE attaches at another of its turns.
    fn put_off(&mut self, seid: Seid) {
        if let Some(place) = self.by_seid.remove(&seid) {
            self.tally.put_off += 1;
            let session = &mut self.sessions[place];
            self.tunnels.remove(&session.teid);
            session.enter(Phase::Detached);
        }
    }

    fn count(&mut self, seid: Seid, reports: &[UsageReport]) {
        let dialect = self.dialect();
        if let Some(&place) = self.by_seid.get(&seid) {
            let counted = reports.iter().filter(|report| dialect.counts(report.urr_id));
            let session = &mut self.sessions[place];
            let gaps = session.usage.out_of_sequence;
            counted.for_each(|report| session.usage.add(report));
            if session.usage.out_of_sequence > gaps {
                self.tally.gap(session.reported);
            }
            session.reported = Instant::now();
        }
    }

    fn start_draining(&mut self, place: usize) {
        self.sessions[place].enter(Phase::Draining);
        self.draining.push_back(place);
    }

    /// The session of an idle UE is deleted with what is buffered for it. Its own packets are in the UPF by then: one that came
    /// after the deletion, by N3 and not by N4, would find no tunnel.
    fn start_draining_asleep(&mut self, place: usize) {
        self.tally.detached_asleep += 1;
        self.start_draining(place);
    }

    /// Deletes sessions whose packets have all been answered.
    fn drain(&mut self) -> Result<(), SimFault> {
        for _ in 0..self.draining.len() {
            let Some(place) = self.draining.pop_front() else { break };
            let session = &self.sessions[place];
            let done = session.waiting.is_empty() || session.since.elapsed() > DRAIN;
            if done && self.has_room() {
                self.delete(place)?;
            } else {
                self.draining.push_back(place);
            }
        }
        Ok(())
    }

    /// Wakes UEs that were paged and are idle still.
    fn answer_pages(&mut self) -> Result<(), SimFault> {
        while self.has_room()
            && let Some(seid) = self.paged.pop_front()
        {
            match self.by_seid.get(&seid) {
                Some(&place) if self.sessions[place].phase == Phase::Idle => self.wake(place)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Compares traffic and usage of sessions of which no packet can come any more.
    fn close(&mut self) {
        while let Some(&place) = self.closing.front()
            && self.sessions[place].since.elapsed() > CLOSING
        {
            self.closing.pop_front();
            let session = &mut self.sessions[place];
            self.tunnels.remove(&session.teid);
            self.tally.close(place, session);
            session.enter(Phase::Detached);
        }
        while let Some(&(teid, since)) = self.ended.front()
            && since.elapsed() > CLOSING
        {
            self.ended.pop_front();
            self.tunnels.remove(&teid);
        }
    }

    /// Wakes and detaches all.
    fn wind_down(&mut self) -> Result<(), SimFault> {
        loop {
            let mut left = false;
            for place in 0..self.sessions.len() {
                match self.sessions[place].phase {
                    Phase::Detached => continue,
                    Phase::Active => self.start_draining(place),
                    Phase::Idle if self.has_room() => self.wake(place)?,
                    _ => {}
                }
                left = true;
            }
            if !left {
                return Ok(());
            }
            self.turn()?;
        }
    }
}

/// Takes a packet out of a tunnel of a session; whether it is one that the session waits for.
fn took(session: &mut Session, packet: &[u8]) -> bool {
    session.received.add(packet.len());
    let Some(found) = numbered::datagram(packet) else { return false };
    let Payload::Number(number) = numbered::read(found.payload) else { return false };
    session.ue.has(found.to.ip()) && numbered::checksums_ok(packet) && session.answered(number)
}

/// How many are due at a pace after a time.
fn due(per_second: u64, elapsed: Duration) -> u64 {
    u64::try_from(u128::from(per_second) * elapsed.as_nanos() / 1_000_000_000).unwrap_or(u64::MAX)
}
