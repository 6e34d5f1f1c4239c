//! One subscription: what it has told of which session, and what is on its way.
//!
//! ```text
//!   Survey ──▶ Rests ──due──▶ Round ──all looked at──▶ Waits ──all answered──▶ Rests, or ends
//! ```
//! A baseline is what a session had carried in the last notification that the consumer has acknowledged; an item is the difference to
//! it. A round begins when nothing of the last one is on its way, so no session is in two notifications that may both arrive.

mod kept;
mod round;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use kaido_n4::Volume;

use self::round::Round;
use super::{Budget, Notification, Now};
use crate::item::{Carried, Item, item};
use crate::problem::{Cause, Problem};
use crate::request::{Event, Measurement, Subscription, Trigger, Ue};
use crate::trend::{SAMPLE_EVERY, Trend};
use crate::usage::{Scope, SessionId, SessionVolumes, UeAddress, UsageSource};

/// Sessions of a UE that is named.
const SESSIONS_OF_UE_MAX: usize = 16;
/// Notifications of a subscription on their way.
const WINDOW: usize = 4;
/// Sessions that have ended and wait to be told of.
const ENDED_MAX: usize = 16_384;
/// As many are told of before the round is due.
const ENDED_EARLY: usize = 1024;
/// How often volumes are held against a threshold: of a UE that is named, and of any.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const LOOK_AT_ALL_EVERY: Duration = Duration::from_secs(1);
/// After how long a report that is made once is made again, where nobody has taken it.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// What a step has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Rests,
    HasMore,
    Ends,
}

/// What the consumer knows of a session.
#[derive(Clone, Debug, Default)]
struct Baseline {
    /// None where that is nothing, since the session began.
    at: Option<SystemTime>,
    /// While its counter says this, it has carried nothing since.
    counted: Option<Volume>,
    whole: Volume,
    parts: Vec<(Scope, Volume)>,
}

impl Baseline {
    fn of(volumes: SessionVolumes, at: SystemTime, has_parts: bool) -> Self {
        let SessionVolumes { whole, parts, counted, .. } = volumes;
        Self { at: Some(at), counted, whole, parts: if has_parts { parts } else { Vec::new() } }
    }

    fn part(&self, scope: &Scope) -> Volume {
        let known = self.parts.iter().find(|(known, _)| known == scope);
        known.map(|(_, volume)| *volume).unwrap_or_default()
    }
}

/// What a notification has of a session.
#[derive(Debug)]
enum Told {
    /// This is known when it is acknowledged.
    Until(SessionId, Baseline),
    /// Its last volumes.
    Last(Arc<SessionVolumes>),
}

#[derive(Debug)]
enum Phase {
    /// Sessions that there are get their baselines.
    Survey(u32),
    Rests,
    Round(Round),
    Waits,
}

/// A subscription at work.
#[derive(Debug)]
pub(super) struct Active {
    pub(super) id: String,
    pub(super) owner: Arc<str>,
    pub(super) wanted: Subscription,
    pub(super) version: u64,
    pub(super) expiry: SystemTime,
    number: u64,
    reports_left: Option<u64>,
    phase: Phase,
    due: Option<Instant>,
    /// Sessions that are seen for the first time have begun since.
    since: SystemTime,
    baselines: BTreeMap<SessionId, Baseline>,
    ended: VecDeque<Arc<SessionVolumes>>,
    /// By their sequence numbers.
    on_way: BTreeMap<u64, Vec<Told>>,
    /// Sessions that have ended with nothing to be told of, while a notification about them was on its way.
    gone: BTreeSet<SessionId>,
    /// A notification of this round was acknowledged.
    is_told: bool,
    lost: u64,
    trends: BTreeMap<SessionId, Trend>,
    sample_due: Option<Instant>,
    /// What is to be written so that it is known after a restart.
    unwritten: Unwritten,
}

/// Parts of a subscription that have changed since they were written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unwritten {
    pub(super) subscription: bool,
    pub(super) baseline: bool,
}

impl Active {
    pub(super) fn new(
        number: u64,
        owner: Arc<str>,
        wanted: Subscription,
        expiry: SystemTime,
        now: Now,
    ) -> Self {
        let mut active = Self {
            id: String::new(),
            owner,
            reports_left: None,
            version: 0,
            expiry,
            number,
            phase: Phase::Rests,
            due: None,
            since: now.wall,
            baselines: BTreeMap::new(),
            ended: VecDeque::new(),
            on_way: BTreeMap::new(),
            gone: BTreeSet::new(),
            is_told: false,
            lost: 0,
            trends: BTreeMap::new(),
            sample_due: None,
            unwritten: Unwritten { subscription: true, baseline: true },
            wanted,
        };
        active.set_times(now);
        active
    }

    /// What its mode of reporting says.
    fn set_times(&mut self, now: Now) {
        self.reports_left = self.wanted.reports_max;
        let wait = match self.wanted.trigger {
            Trigger::OneTime(time) | Trigger::Periodic(time) => time,
            Trigger::Threshold(_) => self.look_every(),
        };
        self.due = now.monotonic.checked_add(wait);
        let has_trends = self.wanted.events.iter().any(|event| event.measurement == Measurement::Trends);
        self.sample_due = has_trends.then_some(now.monotonic);
    }

    fn look_every(&self) -> Duration {
        if self.is_any() { LOOK_AT_ALL_EVERY } else { LOOK_EVERY }
    }

    fn is_any(&self) -> bool {
        self.wanted.ue == Ue::Any
    }

    /// Sessions whose last volume was not told of, for want of room.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }

    /// Forgets so many sessions; says whether that is all.
    pub(super) fn forget(&mut self, count: usize) -> bool {
        for _ in 0..count {
            if self.baselines.pop_first().is_none() && self.ended.pop_front().is_none() {
                return true;
            }
        }
        false
    }

    /// When there is something to do, unless something happens.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let due = match self.phase {
            Phase::Rests => self.due,
            _ => None,
        };
        due.into_iter().chain(self.sample_due).min()
    }

    /// Notes what sessions of the UE have carried before.
    ///
    /// # Errors
    /// There is no session of that address.
    pub(super) fn begin(&mut self, source: &mut impl UsageSource, now: Now) -> Result<(), Problem> {
        let Ue::Address(address) = self.wanted.ue else {
            self.phase = Phase::Survey(0);
            return Ok(());
        };
        for session in source.of_address(address, SESSIONS_OF_UE_MAX) {
            let Some(volumes) = source.read(session) else { continue };
            if self.is_about(&volumes) {
                self.know(volumes, now);
            }
        }
        if self.baselines.is_empty() {
            let why = "this node has no such session of the UE";
            return Err(Problem::of_ie(Cause::ContextNotFound, "/subscription/ueIpAddress", why));
        }
        Ok(())
    }

    fn know(&mut self, volumes: SessionVolumes, now: Now) {
        let session = volumes.session;
        if self.sample_due.is_some() {
            self.trends.insert(session, Trend::new(volumes.whole, now.monotonic));
        }
        let baseline = Baseline::of(volumes, now.wall, !self.is_any());
        self.baselines.insert(session, baseline);
    }

    /// Whether it is about a session.
    fn is_about(&self, volumes: &SessionVolumes) -> bool {
        let is_of_ue = match &self.wanted.ue {
            Ue::Any => true,
            Ue::Supi(supi) => volumes.supi.as_ref() == Some(supi),
            Ue::Address(address) => has_address(&volumes.ue, *address),
        };
        is_of_ue && self.wanted.dnn.as_ref().is_none_or(|dnn| volumes.dnns.contains(dnn))
    }

    /// Reports of what there is, for events that want them at once: volumes since the sessions began.
    pub(super) fn immediate(&self, source: &mut impl UsageSource, now: Now) -> Vec<Item> {
        let events: Vec<Event> =
            self.wanted.events.iter().filter(|event| event.is_immediate).map(volume_of).collect();
        if events.is_empty() {
            return Vec::new();
        }
        let mut items = Vec::new();
        for session in self.baselines.keys() {
            let Some(volumes) = source.read(*session).filter(|volumes| volumes.ue.is_known()) else {
                continue;
            };
            let carried = since_it_began(&volumes, now);
            items.extend(events.iter().filter_map(|event| item(event, &carried)));
        }
        items
    }

    /// Whether all that was asked for is in the reports that were made at once.
    pub(super) fn is_done(&self, immediate: &[Item]) -> bool {
        matches!(self.wanted.trigger, Trigger::OneTime(_))
            && !immediate.is_empty()
            && self.wanted.events.iter().all(|event| event.is_immediate)
    }

    /// Has it be another one. What the consumer knows stays.
    pub(super) fn modify(&mut self, wanted: Subscription, expiry: SystemTime, now: Now) {
        let mode_stays =
            self.wanted.trigger == wanted.trigger && self.wanted.reports_max == wanted.reports_max;
        (self.wanted, self.expiry) = (wanted, expiry);
        self.version += 1;
        self.unwritten = Unwritten { subscription: true, baseline: true };
        if !mode_stays {
            self.set_times(now);
        }
        let has_trends = self.wanted.events.iter().any(|event| event.measurement == Measurement::Trends);
        match has_trends {
            true => self.sample_due = self.sample_due.or(Some(now.monotonic)),
            false => {
                self.sample_due = None;
                self.trends.clear();
            }
        }
    }

    pub(super) fn session_began(&mut self, session: SessionId, supi: Option<&str>, now: Now) {
        let is_of_ue = match &self.wanted.ue {
            // The table of addresses says when it is asked.
            Ue::Address(_) => false,
            Ue::Supi(wanted) => supi == Some(wanted) && self.baselines.len() < SESSIONS_OF_UE_MAX,
            Ue::Any => true,
        };
        if is_of_ue {
            let counted = Some(Volume::default());
            let baseline = Baseline { at: Some(now.wall), counted, ..Baseline::default() };
            self.baselines.entry(session).or_insert(baseline);
            self.unwritten.baseline |= !self.is_any();
        }
    }

    pub(super) fn session_ended(&mut self, last: &Arc<SessionVolumes>) {
        let known = self.baselines.get(&last.session);
        // Of what it had carried before the subscription nothing is known.
        let is_unknown = known.is_none() && matches!(self.phase, Phase::Survey(_));
        let has_carried =
            last.whole.since(&known.map(|known| known.whole).unwrap_or_default()) != Volume::default();
        self.trends.remove(&last.session);
        let is_told = !has_carried || is_unknown || !last.ue.is_known() || !self.is_about(last);
        let is_once = matches!(self.wanted.trigger, Trigger::OneTime(_));
        self.unwritten.baseline |= !self.is_any() && (known.is_some() || !is_told);
        if is_told || is_once {
            self.baselines.remove(&last.session);
            if !matches!(self.phase, Phase::Rests) {
                self.gone.insert(last.session);
            }
        } else if self.ended.len() < ENDED_MAX {
            self.ended.push_back(last.clone());
        } else {
            self.baselines.remove(&last.session);
            self.lost += 1;
        }
    }

    /// What became of a notification. One that was lost leaves the baselines as they are: the next round has what it had.
    pub(super) fn outcome(&mut self, sequence: u64, is_acknowledged: bool) {
        let Some(told) = self.on_way.remove(&sequence) else { return };
        self.is_told |= is_acknowledged;
        self.unwritten.baseline |= is_acknowledged;
        for told in told {
            match (told, is_acknowledged) {
                (Told::Until(session, baseline), true) => {
                    if let Some(trend) = self.trends.get_mut(&session) {
                        trend.acknowledge();
                    }
                    if !self.gone.contains(&session) {
                        self.baselines.insert(session, baseline);
                    }
                }
                (Told::Last(last), true) => {
                    self.baselines.remove(&last.session);
                }
                (Told::Until(..), false) => {}
                (Told::Last(last), false) => self.ended.push_front(last),
            }
        }
    }

    /// Does what is due, within a turn's bounds.
    pub(super) fn step(
        &mut self,
        source: &mut impl UsageSource,
        now: Now,
        budget: &mut Budget,
        sequence: &mut u64,
        out: &mut Vec<Notification>,
    ) -> Step {
        self.sample(source, now, budget);
        loop {
            match &mut self.phase {
                Phase::Survey(next) => {
                    let next = *next;
                    if !self.survey(next, source, now, budget) {
                        return Step::HasMore;
                    }
                    self.phase = Phase::Rests;
                }
                Phase::Rests => {
                    let is_due = self.due.is_some_and(|due| due <= now.monotonic);
                    if !is_due && self.ended.len() < ENDED_EARLY {
                        return Step::Rests;
                    }
                    self.phase = Phase::Round(self.round(source));
                    self.is_told = false;
                    if is_due {
                        self.due = self.next_round(now);
                    }
                }
                Phase::Round(_) => {
                    if self.on_way.len() >= WINDOW {
                        return Step::Rests;
                    }
                    if budget.is_spent() {
                        return Step::HasMore;
                    }
                    self.look(source, now, budget, sequence, out);
                }
                Phase::Waits if !self.on_way.is_empty() => return Step::Rests,
                Phase::Waits => {
                    if self.finish_round(now) {
                        return Step::Ends;
                    }
                }
            }
        }
    }

    /// Ends a round of which nothing is on its way any more, if there is one; says whether the subscription ends with it.
    pub(super) fn finish_round(&mut self, now: Now) -> bool {
        if !matches!(self.phase, Phase::Waits) || !self.on_way.is_empty() {
            return false;
        }
        self.phase = Phase::Rests;
        self.gone.clear();
        self.ends(now)
    }

    /// When the next round is due, where the last one was late too: periods do not shift.
    fn next_round(&self, now: Now) -> Option<Instant> {
        match self.wanted.trigger {
            Trigger::OneTime(_) => None,
            Trigger::Threshold(_) => now.monotonic.checked_add(self.look_every()),
            Trigger::Periodic(period) => {
                let due = self.due.unwrap_or(now.monotonic);
                let late = now.monotonic.saturating_duration_since(due);
                // Of periods that have passed meanwhile one report is made.
                let periods = u32::try_from(late.as_nanos() / period.as_nanos().max(1)).unwrap_or(u32::MAX);
                period.checked_mul(periods.saturating_add(1)).and_then(|time| due.checked_add(time))
            }
        }
    }

    /// Whether it ends with the round that has ended.
    fn ends(&mut self, now: Now) -> bool {
        let is_once = matches!(self.wanted.trigger, Trigger::OneTime(_));
        if is_once && !self.is_told {
            self.due = now.monotonic.checked_add(AGAIN_AFTER);
        }
        if !self.is_told {
            return false;
        }
        if let Some(left) = &mut self.reports_left {
            *left = left.saturating_sub(1);
            self.unwritten.baseline = true;
        }
        is_once || self.reports_left == Some(0)
    }

    /// Gives baselines to sessions that there are; says whether it is at its end.
    fn survey(
        &mut self,
        mut next: u32,
        source: &mut impl UsageSource,
        now: Now,
        budget: &mut Budget,
    ) -> bool {
        while next < source.places() {
            if budget.is_spent() {
                self.phase = Phase::Survey(next);
                return false;
            }
            budget.places -= 1;
            let Some((session, _)) = source.counted(next) else {
                next += 1;
                continue;
            };
            next += 1;
            if self.baselines.contains_key(&session) {
                continue;
            }
            if let Ue::Supi(wanted) = &self.wanted.ue {
                let is_of_ue = source.supi(session).as_ref() == Some(wanted);
                if !is_of_ue || self.baselines.len() >= SESSIONS_OF_UE_MAX {
                    continue;
                }
            }
            budget.reads -= 1;
            if let Some(volumes) = source.read(session) {
                self.know(volumes, now);
            }
        }
        true
    }

    /// Samples throughput, where trends are wanted.
    fn sample(&mut self, source: &mut impl UsageSource, now: Now, budget: &mut Budget) {
        if self.sample_due.is_none_or(|due| due > now.monotonic) {
            return;
        }
        self.sample_due = now.monotonic.checked_add(SAMPLE_EVERY);
        for session in self.baselines.keys() {
            if budget.reads == 0 {
                return;
            }
            budget.reads -= 1;
            let Some(volumes) = source.read(*session) else { continue };
            let trend = self.trends.entry(*session);
            trend
                .or_insert_with(|| Trend::new(volumes.whole, now.monotonic))
                .sample(volumes.whole, now.monotonic);
        }
    }
}

fn has_address(ue: &UeAddress, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => ue.ipv4 == Some(address),
        IpAddr::V6(address) => ue.ipv6.is_some_and(|(prefix, len)| {
            let mask = u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0);
            (prefix.to_bits() ^ address.to_bits()) & mask == 0
        }),
    }
}

/// An event, of which the volume is told: of a moment there is no throughput.
fn volume_of(event: &Event) -> Event {
    Event { measurement: Measurement::Usage { volume: true, throughput: false }, ..event.clone() }
}

fn since_it_began<'s>(volumes: &'s SessionVolumes, now: Now) -> Carried<'s> {
    let parts = volumes.parts.iter().map(|(scope, volume)| (scope, *volume)).collect();
    let (whole, to) = (volumes.whole, now.wall);
    Carried { of: volumes, whole, parts, from: None, to, time: Duration::ZERO, peaks: None }
}
