//! What a subscription's consumer was told, as it is known again after a restart.
//!
//! Of a UE that is named each session has a baseline, and sessions that have ended are kept until they are told of. Of any UE there may
//! be a million: of these nothing is kept, and they count from when they are looked at again.

use std::sync::Arc;
use std::time::SystemTime;

use kaido_n4::Volume;
use serde::{Deserialize, Serialize};

use super::{Active, Baseline, Phase, Told, Unwritten};
use crate::request::{Granularity, Trigger, Ue};
use crate::subscriptions::Now;
use crate::subscriptions::kept::{SubscriptionRecord, millis, read, time_of, write};
use crate::usage::{Scope, SessionId, SessionVolumes, UsageSource};

/// Sessions that have ended and are kept.
const ENDED_KEPT_MAX: usize = 64;

/// What a consumer was told.
#[derive(Debug, Serialize, Deserialize)]
struct BaselineRecord {
    /// Reports that are left, where they are counted.
    reports_left: Option<u64>,
    /// When the next is due.
    due_ms: Option<u64>,
    /// Of a UE that is named.
    sessions: Vec<SessionRecord>,
    /// Sessions that have ended, and are yet to be told of.
    ended: Vec<SessionVolumes>,
}

/// What a consumer was told of a session.
#[derive(Debug, Serialize, Deserialize)]
struct SessionRecord {
    session: SessionId,
    /// None where that is nothing, since the session began.
    at_ms: Option<u64>,
    whole: Volume,
    /// Where flows or applications are told apart.
    parts: Option<Vec<(Scope, Volume)>>,
}

impl Active {
    /// What has changed since this was asked last.
    pub(in crate::subscriptions) fn take_unwritten(&mut self) -> Unwritten {
        std::mem::replace(&mut self.unwritten, Unwritten { subscription: false, baseline: false })
    }

    /// Whether no notification is on its way.
    pub(in crate::subscriptions) fn is_settled(&self) -> bool {
        self.on_way.is_empty()
    }

    /// Writes what it is.
    pub(in crate::subscriptions) fn write(&self, record: &mut Vec<u8>) {
        let document = self.wanted.document.to_string().into();
        let since_ms = millis(self.since);
        write(&SubscriptionRecord { id: &self.id, owner: &self.owner, since_ms, document }, record);
    }

    /// Writes what its consumer was told.
    pub(in crate::subscriptions) fn write_baseline(&self, now: Now, record: &mut Vec<u8>) {
        let due_ms = self.due.map(|due| {
            let ahead = due.saturating_duration_since(now.monotonic);
            let late = now.monotonic.saturating_duration_since(due);
            millis(now.wall.checked_add(ahead).and_then(|at| at.checked_sub(late)).unwrap_or(now.wall))
        });
        let (sessions, ended) = match self.is_any() {
            true => (Vec::new(), Vec::new()),
            false => (self.session_records(), self.ended_records()),
        };
        let reports_left = self.reports_left;
        write(&BaselineRecord { reports_left, due_ms, sessions, ended }, record);
    }

    fn tells_parts(&self) -> bool {
        self.wanted.events.iter().any(|event| event.granularity != Granularity::Session)
    }

    fn session_records(&self) -> Vec<SessionRecord> {
        let record = |(session, known): (&SessionId, &Baseline)| SessionRecord {
            session: *session,
            at_ms: known.at.map(millis),
            whole: known.whole,
            parts: self.tells_parts().then(|| known.parts.clone()),
        };
        self.baselines.iter().map(record).collect()
    }

    /// Those that wait, and those of which a notification has not been answered.
    fn ended_records(&self) -> Vec<SessionVolumes> {
        let in_round = match &self.phase {
            Phase::Round(round) => round.told(),
            _ => &[],
        };
        let told = self.on_way.values().flatten().chain(in_round).filter_map(|told| match told {
            Told::Last(last) => Some(last),
            Told::Until(..) => None,
        });
        told.chain(&self.ended).take(ENDED_KEPT_MAX).map(|last| (**last).clone()).collect()
    }

    /// Goes on with what was kept. Where that cannot be read, sessions count from now on: says whether it could.
    pub(in crate::subscriptions) fn restore(
        &mut self,
        since: SystemTime,
        baseline: Option<&[u8]>,
        source: &mut impl UsageSource,
        now: Now,
    ) -> bool {
        self.unwritten.subscription = false;
        self.since = since;
        let Some(record) = baseline.and_then(read::<BaselineRecord>) else {
            // A session may be gone.
            let _ = self.begin(source, now);
            return false;
        };
        self.reports_left = record.reports_left;
        self.restore_due(record.due_ms.map(time_of), now);
        self.ended = record.ended.into_iter().take(ENDED_KEPT_MAX).map(Arc::new).collect();
        for session in record.sessions {
            self.restore_session(session, source, now);
        }
        if !matches!(self.wanted.ue, Ue::Address(_)) {
            self.phase = Phase::Survey(0);
        }
        true
    }

    /// A report is due when it was, and no later than after a period: the wall clock may have been set.
    fn restore_due(&mut self, due: Option<SystemTime>, now: Now) {
        if matches!(self.wanted.trigger, Trigger::Threshold(_)) {
            return;
        }
        let Some(due) = due else { return };
        let at = match due.duration_since(now.wall) {
            Ok(ahead) => now.monotonic.checked_add(ahead),
            Err(late) => now.monotonic.checked_sub(late.duration()).or(Some(now.monotonic)),
        };
        self.due = self.due.into_iter().chain(at).min();
    }

    fn restore_session(&mut self, record: SessionRecord, source: &mut impl UsageSource, now: Now) {
        let SessionRecord { session, at_ms, whole, parts } = record;
        let at = at_ms.map(time_of);
        let is_ended = self.ended.iter().any(|last| last.session == session);
        let mut known = Baseline { at, counted: None, whole, parts: parts.clone().unwrap_or_default() };
        match source.read(session) {
            None if is_ended => {}
            // Its last volume is not known any more.
            None => {
                self.lost += 1;
                return;
            }
            // Counters of before the restart may be missing: what was told is not told again.
            Some(volumes) if is_less(&volumes, &known) => return self.know(volumes, now),
            Some(volumes) if parts.is_none() => known.parts = volumes.parts,
            Some(_) => {}
        }
        self.baselines.insert(session, known);
    }
}

/// Whether a session has carried less than was told of it.
fn is_less(volumes: &SessionVolumes, known: &Baseline) -> bool {
    let of =
        |scope: &Scope| volumes.parts.iter().find(|(other, _)| other == scope).map(|(_, volume)| *volume);
    let is_less = |now: Volume, told: &Volume| told.since(&now) != Volume::default();
    is_less(volumes.whole, &known.whole)
        || known.parts.iter().any(|(scope, told)| is_less(of(scope).unwrap_or_default(), told))
}
