//! Sessions that end without a request of their own: those of an association that was released or set up anew, of a peer that
//! restarted (TS 23.527 4.2), or of a set that failed (TS 29.244 6.2.10).
//!
//! ```text
//!   request ──▶ ended for every message and report ──▶ answered
//!                    ╰──▶ table ─ a part ─▶ doomed ─ a slice a poll ─▶ deleted
//! ```
//! Deleting a million sessions takes seconds, so a poll deletes a slice of them, and heartbeats and other peers' requests are
//! served in between. Until its turn comes a session keeps what it has and forwards as before. A request that wants what such
//! a session has gets it at once.

use std::collections::HashSet;
use std::net::IpAddr;

use kaido_n4::{Cause, FSeid, Progress, Rejection, Seid, SessionService};
use kaido_store::{Kind, Recorder};
use serde::{Deserialize, Serialize};

use super::Endpoint;
use super::binding::{Binding, PARTS};
use crate::association::{Association, AssociationId};
use crate::decode::Csid;
use crate::transaction::Instants;

/// Sessions deleted in one poll: a few milliseconds.
const SLICE: usize = 128;
/// Sessions and parts of the table looked at in one poll, if none is found that ends.
const LOOKED_AT_MAX: usize = 16_384;
/// Sessions deleted to make room for what a request asks.
const ROOM: usize = 16;
/// Sessions that give way to one request because they have what it asks for.
const HOLDERS_MAX: usize = 64;
/// Deletions that may wait for packets on their way before no more are begun.
const WAITING_MAX: usize = 2048;
/// Selections at once.
const SELECTIONS_MAX: usize = 64;

/// Sessions to be deleted.
#[derive(Debug, Default)]
pub(super) struct Purge {
    /// Sessions whose association is gone.
    pub(super) orphans: usize,
    /// Sessions that end while the association stays.
    selections: Vec<Selection>,
    /// The part of the table to look at next.
    next: usize,
    /// Found there, and not deleted yet.
    doomed: Vec<Seid>,
    /// Deletions that wait for packets on their way.
    waiting: usize,
    /// The number of the last selection.
    issued: u32,
    /// Takes down selections, for a restart.
    recorder: Recorder,
}

impl Purge {
    /// Has changes of selections taken down.
    pub(super) fn record_by(&mut self, recorder: Recorder) {
        self.recorder = recorder;
    }

    /// Takes in a selection of before a restart, or a session that it spares; `None` of what is neither.
    pub(super) fn take_in(&mut self, key: u64, recorded: &[u8]) -> Option<()> {
        let (number, is_selection) = (u32::try_from(key >> 32).ok()?, key & 0xffff_ffff == 0);
        if is_selection {
            let of = postcard::from_bytes(recorded).ok()?;
            self.issued = self.issued.max(number);
            self.selections.push(Selection::new(number, of));
            return Some(());
        }
        let seid = postcard::from_bytes(recorded).ok()?;
        let selection = self.selections.iter_mut().find(|selection| selection.number == number)?;
        selection.spared.insert(seid);
        Some(())
    }

    fn select(&mut self, of: PurgedSessions) {
        self.issued = self.issued.wrapping_add(1);
        let number = self.issued;
        self.recorder.put_value(Kind::Selection, selection_key(number), &of);
        self.selections.push(Selection::new(number, of));
    }

    /// Forgets selections of which all sessions were found.
    fn forget_ended(&mut self) {
        let recorder = &self.recorder;
        self.selections.retain(|selection| {
            let goes_on = selection.parts_left > 0;
            if !goes_on {
                recorder.remove(Kind::Selection, selection_key(selection.number));
                let spared = selection.spared.iter().map(|&seid| spared_key(selection.number, seid));
                spared.for_each(|key| recorder.remove(Kind::Selection, key));
            }
            goes_on
        });
    }

    fn is_done(&self) -> bool {
        self.orphans == 0 && self.selections.is_empty() && self.doomed.is_empty()
    }

    /// Keeps a session that was made, taken over or put into a set after the selections began.
    pub(super) fn spare(&mut self, seid: Seid) {
        for selection in &mut self.selections {
            if selection.spared.insert(seid) {
                self.recorder.put_value(Kind::Selection, spared_key(selection.number, seid), &seid);
            }
        }
    }

    /// A deletion that nobody asked for has come to its end.
    pub(super) fn ended(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }
}

/// What a selection is recorded under: what it spares comes behind it.
const fn selection_key(number: u32) -> u64 {
    (number as u64) << 32
}

/// What a session is recorded under that a selection spares. Of two that have had one place the later is there.
const fn spared_key(number: u32, seid: Seid) -> u64 {
    // There are fewer than 2^32 - 1 places.
    selection_key(number) | ((seid.0 & 0xffff_ffff) + 1)
}

/// Sessions that end while their association stays.
#[derive(Debug)]
struct Selection {
    number: u32,
    of: PurgedSessions,
    /// Sessions that came later.
    spared: HashSet<Seid>,
    /// Parts of the table that are still to be looked at.
    parts_left: usize,
}

impl Selection {
    /// One for which the whole table is yet to be looked at.
    fn new(number: u32, of: PurgedSessions) -> Self {
        Self { number, of, spared: HashSet::new(), parts_left: PARTS }
    }
}

/// Which sessions a peer has forgotten.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum PurgedSessions {
    /// Those whose CP F-SEID has none of these addresses (Session Retention Information).
    ElsewhereThan(AssociationId, Vec<IpAddr>),
    /// Those of the associations that are in one of the sets.
    InSets(Vec<AssociationId>, Vec<Csid>),
}

impl PurgedSessions {
    fn has(&self, binding: &Binding, cp: impl FnOnce() -> Option<FSeid>) -> bool {
        match self {
            Self::ElsewhereThan(id, addresses) => {
                let is_at = |cp: FSeid| {
                    let ours = [cp.ipv4.map(IpAddr::V4), cp.ipv6.map(IpAddr::V6)];
                    ours.iter().flatten().any(|address| addresses.contains(address))
                };
                binding.association == *id && !cp().is_some_and(is_at)
            }
            Self::InSets(ids, csids) => ids.contains(&binding.association) && binding.is_in_set(csids),
        }
    }
}

impl<S: SessionService> Endpoint<S> {
    /// Whether there is more to do than was done in the last [`Endpoint::poll`]: it is to be called again at once.
    pub fn has_more(&self) -> bool {
        !self.purge.is_done() && self.purge.waiting < WAITING_MAX || self.has_sessions_to_end()
    }

    /// Sessions of associations that are gone, which are yet to be deleted.
    pub fn ending(&self) -> usize {
        self.purge.orphans
    }

    /// Whether deletions wait for packets on their way.
    pub(super) fn purge_waits(&self) -> bool {
        self.purge.waiting > 0
    }

    /// A session that is not about to be deleted.
    pub(super) fn live(&self, seid: Seid) -> Option<&Binding> {
        self.sessions.get(seid).filter(|binding| !self.is_ending_session(seid, binding))
    }

    pub(super) fn is_ending_session(&self, seid: Seid, binding: &Binding) -> bool {
        let cp = || self.service.cp_fseid(seid);
        let chosen = |one: &Selection| !one.spared.contains(&seid) && one.of.has(binding, cp);
        self.associations.get(binding.association).is_none() || self.purge.selections.iter().any(chosen)
    }

    /// Takes an association away. Its sessions have ended for everybody from here on.
    pub(super) fn end_association(&mut self, now: Instants, id: AssociationId) -> Option<Association> {
        let association = self.associations.remove(id)?;
        if association.sessions > 0 {
            tracing::warn!(node = %association.node, sessions = association.sessions, "sessions deleted with their association, or restart, of a peer");
            let was_done = self.purge.is_done();
            self.purge.orphans += association.sessions;
            self.begin(now, was_done);
        }
        Some(association)
    }

    /// The sessions of a peer that restarted end; its association stays.
    pub(super) fn begin_anew(&mut self, now: Instants, id: AssociationId) {
        self.withdraw_reports(id);
        let Some(association) = self.end_association(now, id) else { return };
        let held = Default::default();
        self.associations.insert(Association { sessions: 0, in_flight: 0, held, ..association });
    }

    /// Ends the sessions of a selection that are there now.
    ///
    /// # Errors
    /// Cause 74 while as many selections are worked at as may be.
    pub(super) fn end_selected(&mut self, now: Instants, of: PurgedSessions) -> Result<(), Rejection> {
        self.may_select()?;
        let was_done = self.purge.is_done();
        self.purge.select(of);
        self.begin(now, was_done);
        Ok(())
    }

    /// Whether there is room for a selection.
    pub(super) fn may_select(&self) -> Result<(), Rejection> {
        match self.purge.selections.len() < SELECTIONS_MAX {
            true => Ok(()),
            false => {
                Err(Rejection::new(Cause::PfcpEntityInCongestion, "sessions of earlier requests are deleted"))
            }
        }
    }

    /// Few sessions are deleted at once.
    fn begin(&mut self, now: Instants, was_done: bool) {
        if was_done {
            self.purge_slice(now);
        }
    }

    /// Deletes some of the sessions that have ended.
    pub(super) fn purge_slice(&mut self, now: Instants) {
        let mut left = SLICE;
        while left > 0
            && self.purge.waiting < WAITING_MAX
            && let Some(seid) = self.next_doomed()
        {
            self.drop_session(now, seid);
            left -= 1;
        }
    }

    /// The next session to delete, unless none is found soon.
    fn next_doomed(&mut self) -> Option<Seid> {
        let mut looked_at = 0;
        loop {
            if let Some(seid) = self.purge.doomed.pop() {
                // A request may have deleted it meanwhile.
                if self.sessions.get(seid).is_some() {
                    return Some(seid);
                }
                continue;
            }
            // Selections are forgotten with the last session that they have found.
            self.purge.forget_ended();
            if self.purge.is_done() || looked_at >= LOOKED_AT_MAX {
                return None;
            }
            looked_at += 1 + self.look_at_part();
        }
    }

    /// Looks for sessions to delete in the next part of the table, and says how many are there.
    fn look_at_part(&mut self) -> usize {
        let at = self.purge.next;
        let part = self.sessions.part(at);
        let found = part.iter().filter(|&(&seid, binding)| self.is_ending_session(seid, binding));
        let (mut found, count) = (found.map(|(&seid, _)| seid).collect::<Vec<_>>(), part.len());
        // A simulation repeats only if they go in some order.
        found.sort_unstable();
        self.purge.doomed = found;
        self.purge.next = (at + 1) % PARTS;
        self.purge.selections.iter_mut().for_each(|selection| selection.parts_left -= 1);
        count
    }

    /// Carries out a request of a service. Where it is refused for what a session has that is about to be deleted, that
    /// session is deleted first.
    pub(super) fn with_room<T>(
        &mut self,
        now: Instants,
        mut request: impl FnMut(&mut S) -> Result<T, Rejection>,
    ) -> Result<T, Rejection> {
        let (mut has_made_room, mut holders) = (false, 0);
        loop {
            let why = match request(&mut self.service) {
                Err(why) if !self.purge.is_done() && holders < HOLDERS_MAX => why,
                done => return done,
            };
            let binding = why.holder.and_then(|seid| Some((seid, self.sessions.get(seid)?)));
            match binding.filter(|(seid, binding)| self.is_ending_session(*seid, binding)) {
                Some((seid, _)) => {
                    holders += 1;
                    self.drop_session(now, seid);
                }
                None if is_shortage(why.cause) && !has_made_room => {
                    has_made_room = true;
                    self.make_space(now);
                }
                None => return Err(why),
            }
        }
    }

    /// Deletes sessions until what they had is free.
    fn make_space(&mut self, now: Instants) {
        for _ in 0..ROOM {
            let Some(seid) = self.next_doomed() else { return };
            self.unbind(seid);
            self.counters.sessions_purged += 1;
            if let Err(why) = self.service.delete(seid, now.wall) {
                tracing::warn!(%seid, %why, "session to delete was not there");
            }
        }
    }

    /// Deletes a session that nobody asks about any more; its final reports have no reader.
    pub(super) fn drop_session(&mut self, now: Instants, seid: Seid) {
        self.unbind(seid);
        self.counters.sessions_purged += 1;
        match self.service.start_deletion(seid, now.wall) {
            Ok(Progress::Waiting(_)) => self.purge.waiting += 1,
            Ok(Progress::Done(_)) => {}
            Err(why) => tracing::warn!(%seid, %why, "session to delete was not there"),
        }
    }
}

const fn is_shortage(cause: Cause) -> bool {
    matches!(cause, Cause::NoResourcesAvailable | Cause::AllDynamicAddressesOccupied)
}
