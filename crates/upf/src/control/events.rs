//! What workers and the clock bring: reports.

use std::time::{Duration, SystemTime};

use super::applications::is_of_applications;
use super::delays::report_session;
use super::meter::Meter;
use super::paths::{EchoRequest, PathSummary};
use super::session::Session;
use super::tunnel_ends::remote_fteids;
use super::{Upf, millis};
use crate::ids::SessionIndex;
use crate::node::{WorkerEvent, WorkerOrder};
use kaido_n4::{Seid, SessionEvent, Urr, UrrId, UsageReport};

/// Most steps of the wheel in one poll.
const STEPS_PER_POLL: u32 = 65_536;

/// Tells what there is to tell.
fn report_usage(seid: Seid, reports: Vec<UsageReport>, out: &mut Vec<SessionEvent>) {
    if !reports.is_empty() {
        out.push(SessionEvent::Usage { seid, reports });
    }
}

impl Upf {
    pub(super) fn event(&mut self, event: WorkerEvent, now: SystemTime, out: &mut Vec<SessionEvent>) {
        match event {
            WorkerEvent::Threshold { session, slot } => {
                let Some(mut front) = self.sessions.front(session) else { return };
                if !front.session().counters().any(|own| own == slot) {
                    // Said of an earlier session that had the place.
                    return;
                }
                if front.is_enough() {
                    self.settle(front.session_mut(), |_, meter| meter.slot == slot, now, out);
                    self.rest_front(&front);
                } else if let Some(mut session) = self.sessions.get(session) {
                    self.settle(&mut session, |_, meter| meter.slot == slot, now, out);
                    self.rest(&session);
                }
            }
            WorkerEvent::Buffered { session, pdr, dscp } => {
                let Some(mut session) = self.sessions.get(session) else { return };
                self.buffered(&mut session, (pdr, dscp), now, out);
                self.rest(&session);
            }
            WorkerEvent::Discarded { session, pdr } => {
                let Some(mut session) = self.sessions.get(session) else { return };
                self.discarded(&mut session, pdr, out);
                self.rest(&session);
            }
            WorkerEvent::Delay { session, qfi, delays } => {
                let Some(mut session) = self.sessions.get(session) else { return };
                let reports = session.state.watches.measured(&session.state.rules, qfi, delays, now);
                report_session(session.seid, reports, out);
                self.rest(&session);
            }
            WorkerEvent::Application { session, pdr, app, flow } => {
                let Some(mut session) = self.sessions.get(session) else { return };
                let reports = self.application_heard(&mut session, (pdr, app, flow), now);
                report_usage(session.seid, reports, out);
                self.rest(&session);
            }
            WorkerEvent::Dropped { session, urr } => {
                let Some(mut session) = self.sessions.get(session) else { return };
                let reports = self.dropped(&mut session, urr, now);
                report_usage(session.seid, reports, out);
                self.rest(&session);
            }
            WorkerEvent::Stations { session } => self.stations_changed(session, now, out),
            WorkerEvent::EchoResponse { peer, sequence, restarted } => {
                self.remote_fteids.paths.answered(peer, sequence, restarted);
            }
            WorkerEvent::ErrorIndication { teid, peer } => {
                for index in self.remote_fteids.candidates((teid, peer)) {
                    if let Some(session) = self.sessions.get(index)
                        && remote_fteids(&session.state.rules, &self.node.settings).contains(&(teid, peer))
                    {
                        out.push(SessionEvent::ErrorIndication { seid: session.seid, teid, peer });
                    }
                }
            }
        }
    }

    /// Asks the peers whose time has come whether they are there.
    pub(super) fn turn_paths(&mut self, now: SystemTime) {
        let (requests, given_up) = self.remote_fteids.paths.turn(now);
        for peer in given_up {
            self.node.echoes.forget(peer);
        }
        for EchoRequest { peer, sequence } in requests {
            self.node.echoes.expect(peer, sequence);
            self.node.order(WorkerOrder::EchoRequest { peer, sequence });
        }
    }

    /// The GTP-U paths in use, failed ones first, at most `limit`.
    pub fn paths(&self, limit: usize) -> Vec<PathSummary> {
        self.remote_fteids.paths.summaries(limit)
    }

    /// How many GTP-U paths are up, down, and not known to be either.
    pub fn path_states(&self) -> [usize; 3] {
        self.remote_fteids.paths.states()
    }

    /// Before then no session's time comes; in the past while some are left for the next poll.
    pub fn next_due(&self) -> Option<SystemTime> {
        if self.is_recompiling() {
            return Some(SystemTime::UNIX_EPOCH);
        }
        self.wheel.next().map(|at| SystemTime::UNIX_EPOCH + Duration::from_millis(at))
    }

    /// How long after its time the last session was looked at that was due in the last poll: what is reported by a period or a time is so
    /// much late.
    pub fn late(&self) -> Duration {
        self.late
    }

    /// Sessions whose time has come. The work of a call is bounded; what is left comes with the next.
    pub(super) fn look_at_due(&mut self, now: SystemTime, limit: usize, out: &mut Vec<SessionEvent>) {
        let mut steps = STEPS_PER_POLL;
        self.late = Duration::ZERO;
        while out.len() < limit
            && let Some((number, due)) = self.wheel.pop(millis(now), &mut steps)
        {
            self.late = Duration::from_millis(millis(now).saturating_sub(due));
            let index = SessionIndex(number);
            let Some(mut front) = self.sessions.front(index) else { continue };
            if front.has_usage_alone(now) {
                self.settle_due(front.session_mut(), now, out);
                self.rest_front(&front);
            } else if let Some(mut session) = self.session_at(index, now) {
                self.report_delayed(&mut session, now, out);
                self.turn_watches(&mut session, now, out);
                let stopped = self.applications_stopped(&mut session, now);
                report_usage(session.seid, stopped, out);
                self.look_at_stations(&mut session, now, out);
                self.settle_due(&mut session, now, out);
                self.rest(&session);
            }
        }
    }

    /// Reports what is due of the meters whose time has come.
    fn settle_due(&self, session: &mut Session, now: SystemTime, out: &mut Vec<SessionEvent>) {
        let at = millis(now);
        let is_due = |urr: &Urr, meter: &Meter| meter.deadline(urr).is_some_and(|due| due <= at);
        self.settle(session, is_due, now, out);
    }

    /// Reports what is due of the meters that are `concerned`, and of those linked to them.
    fn settle(
        &self,
        session: &mut Session,
        concerned: impl Fn(&Urr, &Meter) -> bool,
        now: SystemTime,
        out: &mut Vec<SessionEvent>,
    ) {
        let mut reports = Vec::new();
        let rules = &session.state.rules;
        let of_applications = rules.urrs.values().filter(|urr| is_of_applications(rules, &self.node, urr));
        let of_applications: Vec<UrrId> = of_applications.map(|urr| urr.id).collect();
        for (id, meter) in &mut session.state.meters {
            if let Some(urr) = session.state.rules.urrs.get_mut(id)
                && concerned(urr, meter)
            {
                let notices = !of_applications.contains(id);
                let held = session.state.usage_held;
                reports.extend(meter.settle(urr, (notices, held), &self.node.usage, now));
            }
        }
        session.report_linked(&mut reports, &self.node.usage, now);
        report_usage(session.seid, reports, out);
        self.look_for_silence(session, now, out);
        session.arm_shared(&self.node.usage, now);
    }

    /// Reports a session that has been silent for as long as its timer says.
    fn look_for_silence(&self, session: &mut Session, now: SystemTime, out: &mut Vec<SessionEvent>) {
        let packets = session.packets(&self.node.usage);
        let Some(watch) = &mut session.state.inactivity else { return };
        if watch.look(packets, millis(now)) {
            out.push(SessionEvent::Inactivity { seid: session.seid });
        }
        if watch.is_reported() {
            session.counters().for_each(|slot| self.node.usage.watch(slot));
        }
    }
}
