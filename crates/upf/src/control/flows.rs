//! What sessions have carried since it was last asked: for flow records.
//!
//! ```text
//!   places of sessions  ──some a turn──▶ SessionFlow, of those whose counters moved
//!   a session that ends ─────────────▶ SessionFlow, its last
//! ```
//! Counters are those of the URRs: of a session without one nothing is known.

use std::collections::VecDeque;
use std::time::SystemTime;

use super::Upf;
use super::session::{Session, SessionSummary};
use crate::ids::SessionIndex;
use kaido_n4::{Seid, Volume};

/// Last records of sessions that wait to be taken.
const ENDED_MAX: usize = 65_536;

/// What a session has carried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFlow {
    /// Which session, with its volume since it began.
    pub session: SessionSummary,
    /// The volume since the last record.
    pub volume: Volume,
    /// Since when: the session's beginning, or the last record.
    pub from: SystemTime,
    /// When the counters were read.
    pub to: SystemTime,
    /// Whether the session is gone.
    pub has_ended: bool,
}

/// What is known of the session at a place.
#[derive(Clone, Copy, Debug)]
struct Known {
    seid: Seid,
    /// By its URR that saw the most.
    volume: Volume,
    at: SystemTime,
}

/// What was told of sessions, and what is yet to be.
#[derive(Debug, Default)]
pub(super) struct SessionFlows {
    /// By the number of a session.
    known: Vec<Option<Known>>,
    /// The place to go on from.
    next: usize,
    ended: VecDeque<SessionFlow>,
    lost: u64,
}

impl SessionFlows {
    fn know(&mut self, index: SessionIndex, known: Option<Known>) {
        let at = index.0 as usize;
        if at >= self.known.len() {
            self.known.resize(at + 1, None);
        }
        self.known[at] = known;
    }

    fn of(&self, index: SessionIndex, seid: Seid) -> Option<Known> {
        self.known.get(index.0 as usize).copied().flatten().filter(|known| known.seid == seid)
    }

    /// What a session has carried since the last record; the next is counted from here on. `None` of a session that nothing was
    /// known of, since it is of before a restart.
    fn advance(
        &mut self,
        index: SessionIndex,
        session: SessionSummary,
        to: SystemTime,
        has_ended: bool,
    ) -> Option<SessionFlow> {
        let (seid, volume) = (session.seid, session.volume);
        let before = self.of(index, seid);
        self.know(index, (!has_ended).then_some(Known { seid, volume, at: to }));
        let before = before?;
        // A URR that saw the most may have been removed.
        let volume = volume.since(&before.volume);
        let has_carried = if has_ended { session.volume } else { volume }.total_packets() > 0;
        has_carried.then_some(SessionFlow { session, volume, from: before.at, to, has_ended })
    }
}

impl Upf {
    /// Notes from here on what sessions carry, until it is [taken](Self::take_flows). Of sessions that there are, what they carry from
    /// the first look on.
    pub fn meter_flows(&mut self) {
        self.flows = Some(Box::default());
    }

    /// Session flows that were not noted, as nobody had taken those before.
    pub fn flows_lost(&self) -> u64 {
        self.flows.as_ref().map_or(0, |flows| flows.lost)
    }

    /// Looks at `places` places of sessions more, and takes at most `limit` of what sessions have carried; those that have ended come
    /// first. Says how many places were looked at.
    pub fn take_flows(
        &mut self,
        places: usize,
        limit: usize,
        now: SystemTime,
        out: &mut Vec<SessionFlow>,
    ) -> usize {
        let Some(mut flows) = self.flows.take() else { return places };
        let ended = flows.ended.len().min(limit);
        out.extend(flows.ended.drain(..ended));
        let mut looked = 0;
        // What was unpacked counts, whether it had carried anything or not.
        let mut room = limit - ended;
        while looked < places && room > 0 {
            if flows.next >= self.sessions.places() {
                flows.next = 0;
            }
            let index = SessionIndex(u32::try_from(flows.next).unwrap_or(u32::MAX));
            (flows.next, looked) = (flows.next + 1, looked + 1);
            if !self.may_have_carried(&flows, index) {
                continue;
            }
            if let Some(session) = self.sessions.get(index) {
                room -= 1;
                out.extend(flows.advance(index, self.summary(&session), now, false));
            }
        }
        self.flows = Some(flows);
        looked
    }

    /// Places of sessions, taken or free.
    pub fn places(&self) -> usize {
        self.sessions.places()
    }

    /// Whether the counters of the session at a place may have moved: asked without unpacking it.
    fn may_have_carried(&self, flows: &SessionFlows, index: SessionIndex) -> bool {
        let Some((seid, only)) = self.sessions.only_counter(index) else { return false };
        match (flows.of(index, seid), only) {
            (Some(known), Some(slot)) => self.node.usage.read(slot) != known.volume,
            _ => true,
        }
    }

    /// A session begins.
    pub(super) fn begin_flow(&mut self, index: SessionIndex, seid: Seid, now: SystemTime) {
        if let Some(flows) = &mut self.flows {
            flows.know(index, Some(Known { seid, volume: Volume::default(), at: now }));
        }
    }

    /// A session is gone, and no worker counts for it any more.
    pub(super) fn end_flow(&mut self, session: &Session, now: SystemTime) {
        let Some(mut flows) = self.flows.take() else { return };
        let last = flows.advance(session.index, self.summary(session), now, true);
        if flows.ended.len() < ENDED_MAX {
            flows.ended.extend(last);
        } else {
            flows.lost += u64::from(last.is_some());
        }
        self.flows = Some(flows);
    }
}
