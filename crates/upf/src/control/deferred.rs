//! What a change still owes when its rules are in the table: final reports, End Markers, counters to give back.
//!
//! All of these need that no worker forwards or counts by the rules of before. So they wait until every worker has
//! come to the end of the batch it was in. That takes a microsecond, or as long as the scheduler keeps a worker from
//! running; requests that come meanwhile are carried out, and all that waits ends together.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

use kaido_table::GraceCookie;
use litemap::LiteMap;

use super::Upf;
use super::counters::{Counter, slots_of};
use super::meter::Meter;
use super::pool::Lease;
use super::rates::PolicerChange;
use super::ruleset::RuleSet;
use super::session::Session;
use super::tunnel_ends::tunnel_ends;
use crate::ids::SessionIndex;
use crate::node::{BufferChange, WorkerOrder};
use crate::tunnels::{EncapTemplate, Tunnel};
use crate::usage::UsageSlot;
use kaido_n4::{
    DeletionResponse, Interface, Modification, Modified, Outcome, OuterHeaderCreation, Ticket, UrrId,
    UsageReportTrigger,
};

/// Longest wait for workers to let go of a record: far beyond a batch, and short for a control plane.
const GRACE: Duration = Duration::from_millis(100);
/// Most that waits at once; then requests wait with it.
const WAITING_MAX: usize = 4096;

/// A change in the table whose session still has its state of before.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) index: SessionIndex,
    pub(super) request: Modification,
    /// The rules that are in the table.
    pub(super) rules: RuleSet,
    /// URRs that are new, and those that go on in another counter.
    pub(super) meters: (LiteMap<UrrId, Meter>, LiteMap<UrrId, Counter>),
    pub(super) policers: PolicerChange,
    /// Tunnels that get an End Marker.
    pub(super) ended: Vec<OuterHeaderCreation>,
    pub(super) activity: Option<UsageSlot>,
    pub(super) leases: Vec<Lease>,
    /// The answer, but for its reports.
    pub(super) answer: Modified,
}

/// What is left to be done.
#[derive(Debug)]
pub(super) enum DeferredTask {
    Change(Box<Change>),
    Deletion(Box<Session>),
}

impl DeferredTask {
    fn session(&self) -> SessionIndex {
        match self {
            Self::Change(change) => change.index,
            Self::Deletion(session) => session.index,
        }
    }
}

#[derive(Debug)]
struct WaitingTask {
    ticket: Ticket,
    mark: GraceCookie,
    since: Instant,
    work: DeferredTask,
}

/// All that waits, oldest first, and what came of it.
#[derive(Debug, Default)]
pub(super) struct DeferredWork {
    issued: u64,
    waiting: VecDeque<WaitingTask>,
    ended: VecDeque<(Ticket, Outcome)>,
}

impl Upf {
    /// What to wait for until no worker works by the rules of before, if there is any.
    pub(super) fn must_wait(&self) -> Option<GraceCookie> {
        let mark = self.node.domain.cookie();
        (self.kernel.is_some() || !self.node.domain.has_passed(mark)).then_some(mark)
    }

    /// Has `work` done when `mark` has passed.
    pub(super) fn defer(&mut self, mark: GraceCookie, work: DeferredTask, now: SystemTime) -> Ticket {
        if self.deferred.waiting.len() >= WAITING_MAX {
            self.finish_all(now);
        }
        self.deferred.issued += 1;
        let ticket = Ticket(self.deferred.issued);
        self.deferred.waiting.push_back(WaitingTask { ticket, mark, since: Instant::now(), work });
        ticket
    }

    /// Ends what has waited long enough, and says what came of the one that waited longest.
    pub(super) fn finish_ready(&mut self, now: SystemTime) -> Option<(Ticket, Outcome)> {
        let domain = &self.node.domain;
        let waiting = self.deferred.waiting.iter();
        // A reader of the oldest mark is one of all later marks too.
        let ripe = waiting.take_while(|one| domain.has_passed(one.mark) || is_overdue(one)).count();
        if ripe > 0 {
            self.finish_first(ripe, now);
        }
        self.deferred.ended.pop_front()
    }

    /// Ends what waits for a session, which is to be changed again, and all that waits before it.
    pub(super) fn finish_for(&mut self, index: SessionIndex, now: SystemTime) {
        if self.deferred.waiting.iter().any(|one| one.work.session() == index) {
            self.finish_all(now);
        }
    }

    /// Ends `ticket` and says what came of it.
    pub(super) fn finish_now(&mut self, ticket: Ticket, now: SystemTime) -> Option<Outcome> {
        self.finish_all(now);
        let place = self.deferred.ended.iter().position(|(ended, _)| *ended == ticket)?;
        self.deferred.ended.remove(place).map(|(_, outcome)| outcome)
    }

    fn finish_all(&mut self, now: SystemTime) {
        if !self.node.domain.synchronize(GRACE) {
            tell_overdue();
        }
        self.finish_first(self.deferred.waiting.len(), now);
    }

    fn finish_first(&mut self, count: usize, now: SystemTime) {
        // One wait for the readers in the kernel serves all.
        if let Some(kernel) = &mut self.kernel {
            kernel.settle();
        }
        for _ in 0..count {
            let Some(WaitingTask { ticket, work, .. }) = self.deferred.waiting.pop_front() else { return };
            let outcome = self.finish(work, now);
            self.deferred.ended.push_back((ticket, outcome));
        }
    }

    fn finish(&mut self, work: DeferredTask, now: SystemTime) -> Outcome {
        match work {
            DeferredTask::Change(change) => {
                // Reports were made while it waited: the state of the session is of now.
                let session = self.sessions.get(change.index);
                Outcome::Modified(self.finish_change(*change, session, now))
            }
            DeferredTask::Deletion(session) => Outcome::Deleted(self.finish_deletion(*session, now)),
        }
    }

    /// The session's side of a committed change, if it is still there: End Markers, final reports, queries, new thresholds.
    pub(super) fn finish_change(
        &mut self,
        change: Change,
        session: Option<Session>,
        now: SystemTime,
    ) -> Modified {
        let Change { index, request, rules, meters, activity, leases, mut answer, .. } = change;
        self.finish_policers(change.policers, &rules);
        self.order_end_markers(&change.ended, now);
        let Some(mut session) = session else { return answer };
        let packets_before = session.packets(&self.node.usage);
        self.change_watches(&mut session, &rules, now);
        if !request.ethernet_context.is_empty() {
            self.adopt_stations(index, &rules, &request.ethernet_context);
        }
        let usage = self.usage_before(&session, &request);
        answer.usage_reports = self.take_over(&mut session, &request, rules, meters, now);
        self.usage_after(&session, usage);
        self.change_inactivity(&mut session, request.inactivity_timer, activity, packets_before, now);
        session.state.leases.extend_from_slice(&leases);
        if let Some(fseid) = request.cp_fseid {
            session.state.cp_fseid = fseid;
        }
        session.state.paging.change(&session.state.rules, request.drop_buffered);
        session.state.instances.change(&session.state.rules);
        self.change_drop_thresholds(&session, &request);
        self.rest(&session);
        self.node.buffer_changed(BufferChange { session: index, discard: request.drop_buffered });
        answer
    }

    pub(super) fn finish_deletion(&mut self, session: Session, now: SystemTime) -> DeletionResponse {
        self.end_flow(&session, now);
        self.end_usage(&session);
        let Session { index, state: mut session, .. } = session;
        if session.rules.ethernet {
            self.forget_stations(index);
        }
        let usage_reports = session
            .meters
            .iter_mut()
            .filter_map(|(id, meter)| {
                let urr = session.rules.urrs.get(id)?;
                Some(meter.report(urr, &self.node.usage, UsageReportTrigger::TERMR, now))
            })
            .flatten()
            .collect();
        self.release_counters(slots_of(session.meters.values()));
        self.release_counter(session.activity);
        self.drops.remove(&index);
        let session_reports = self.end_watches(index, &session, now);
        let packet_rates = self.packet_rates(&session.rules, now);
        self.release_policers(session.rules.all_policers());
        self.give_back(&session.leases);
        self.node.buffer_changed(BufferChange { session: index, discard: true });
        self.sessions.end(index);
        DeletionResponse { packet_rates, usage_reports, session_reports }
    }

    fn order_end_markers(&mut self, ended: &[OuterHeaderCreation], now: SystemTime) {
        for &creation in ended {
            match &mut self.kernel {
                Some(kernel) => kernel.end_marker(creation, now),
                None => self.order_end_marker(creation),
            }
        }
    }

    pub(super) fn order_end_marker(&self, creation: OuterHeaderCreation) {
        if let Some((peer, local)) = tunnel_ends(&self.node.settings, creation, (Interface::Access, None)) {
            let encap = EncapTemplate::plain(peer, local);
            self.node.order(WorkerOrder::EndMarker(Tunnel { encap, id: None, teid: creation.teid }));
        }
    }
}

/// Whether a worker stays in its batch for longer than any batch lasts: it is no reason to keep a peer waiting.
fn is_overdue(one: &WaitingTask) -> bool {
    let overdue = one.since.elapsed() > GRACE;
    if overdue {
        tell_overdue();
    }
    overdue
}

fn tell_overdue() {
    tracing::warn!("a worker has not come to the end of its batch within {GRACE:?}");
}
