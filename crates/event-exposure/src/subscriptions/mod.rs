//! Subscriptions: made, modified and ended by consumers, and looked after by the thread that knows the sessions.
//!
//! Each turn does a bounded part of what is due: some places of sessions, some reads. Time is given, so that tests have their own.

mod active;
mod kept;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use kaido_http_client::HttpUri;
use serde_json::{Value, json};

use self::active::{Active, Step};
pub(crate) use self::kept::SubscriptionRecord;
pub use self::kept::{Keeper, KeptPart, KeptSubscription, NotRestored};
use crate::item::Item;
use crate::problem::{Cause, Problem};
use crate::request::{Subscription, Ue};
use crate::time;
use crate::usage::{SessionId, SessionVolumes, UsageSource};

/// Places of sessions that are passed over in a turn.
const PLACES_A_TURN: usize = 1024;
/// Sessions that are read in a turn: about a third of a millisecond.
const READS_A_TURN: usize = 48;
/// Sessions that a subscription which has ended forgets in a turn.
const FORGOTTEN_A_TURN: usize = 2048;
/// Subscriptions to any UE: each remembers what it has told of every session.
const ANY_UE_MAX: usize = 4;
/// Octets of an identifier, before they are written as text.
const ID_LEN: usize = 16;

/// The time, by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// For what is due.
    pub monotonic: Instant,
    /// For time stamps and expiry.
    pub wall: SystemTime,
}

/// What subscriptions may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Subscriptions at once.
    pub subscriptions_max: usize,
    /// How long a subscription may last.
    pub lifetime_max: Duration,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Subscriptions that there are.
    pub subscriptions: usize,
    /// Notifications that consumers have acknowledged.
    pub acknowledged: u64,
    /// Notifications that were given up. What they carried is in later ones.
    pub failed: u64,
    /// Sessions whose last volume no notification has, for want of room.
    pub lost: u64,
}

/// A notification to be sent.
#[derive(Clone, Debug)]
pub struct Notification {
    /// Its number, by which its [`Outcome`] is told.
    pub sequence: u64,
    /// Where it goes.
    pub consumer: HttpUri,
    /// `NotificationData`.
    pub body: Vec<u8>,
    /// Whose it is.
    subscription: u64,
}

/// What became of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    sequence: u64,
    subscription: u64,
    is_acknowledged: bool,
}

impl Notification {
    /// What became of it.
    pub fn outcome(&self, is_acknowledged: bool) -> Outcome {
        Outcome { sequence: self.sequence, subscription: self.subscription, is_acknowledged }
    }
}

/// What is left to be done in a turn.
#[derive(Debug)]
pub(crate) struct Budget {
    pub(crate) places: usize,
    pub(crate) reads: usize,
}

impl Budget {
    pub(crate) fn is_spent(&self) -> bool {
        self.places == 0 || self.reads == 0
    }
}

/// A subscription that was made.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) id: String,
    pub(crate) document: Value,
    pub(crate) reports: Vec<Item>,
}

/// All of them.
#[derive(Debug)]
pub struct Subscriptions {
    limits: Limits,
    /// By number, in the order in which they were made.
    active: BTreeMap<u64, Active>,
    /// Their numbers by their identifiers.
    numbers: BTreeMap<String, u64>,
    issued: u64,
    sequence: u64,
    /// Where the next turn begins.
    next: u64,
    counts: Counts,
    is_behind: bool,
    /// Those that have ended, with what they remember: of a million sessions that takes longer to forget than a turn lasts.
    forgotten: Vec<Active>,
    /// Those that have ended since that was [kept](Self::keep).
    ended: Vec<u64>,
}

impl Subscriptions {
    /// None yet.
    pub fn new(limits: Limits) -> Self {
        let counts = Counts::default();
        let (active, numbers) = (BTreeMap::new(), BTreeMap::new());
        let (forgotten, ended) = (Vec::new(), Vec::new());
        let (issued, sequence, next) = (0, 0, 0);
        Self { limits, active, numbers, issued, sequence, next, counts, is_behind: false, forgotten, ended }
    }

    /// What was done.
    pub fn counts(&self) -> Counts {
        let lost = self.active.values().map(Active::lost).sum::<u64>();
        Counts { subscriptions: self.active.len(), lost: self.counts.lost + lost, ..self.counts }
    }

    /// Whether nobody has subscribed.
    pub fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.active.len()
    }

    /// Whether a turn's part was not all that is due.
    pub const fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// When there is something to do next, if nothing else happens.
    pub fn next_due(&self) -> Option<Instant> {
        self.active.values().filter_map(Active::next_due).min()
    }

    /// Makes a subscription.
    ///
    /// # Errors
    /// Why it cannot be; nothing has changed then.
    pub(crate) fn create(
        &mut self,
        wanted: Subscription,
        owner: Arc<str>,
        source: &mut impl UsageSource,
        now: Now,
    ) -> Result<Created, Problem> {
        self.has_room_for(&wanted).map_err(|what| Problem::new(Cause::InsufficientResources, what))?;
        let (wanted, expiry) = self.with_expiry(wanted, now)?;
        let id = new_id()?;
        let mut active = Active::new(self.issued, owner, wanted, expiry, now);
        active.begin(source, now)?;
        let reports = active.immediate(source, now);
        let document = active.wanted.document.clone();
        if !active.is_done(&reports) {
            self.numbers.insert(id.clone(), self.issued);
            active.id.clone_from(&id);
            self.active.insert(self.issued, active);
            self.issued += 1;
        }
        Ok(Created { id, document, reports })
    }

    /// Whether there may be another subscription, and why not.
    fn has_room_for(&self, wanted: &Subscription) -> Result<(), String> {
        if self.active.len() >= self.limits.subscriptions_max {
            let what = "there are as many subscriptions as event_exposure.subscriptions_max allows";
            return Err(what.to_owned());
        }
        let is_any = |active: &&Active| active.wanted.ue == Ue::Any;
        if wanted.ue == Ue::Any && self.active.values().filter(is_any).count() >= ANY_UE_MAX {
            return Err(format!("there are {ANY_UE_MAX} subscriptions to any UE, which is the most"));
        }
        Ok(())
    }

    /// The subscription as it ends when it must, and when that is.
    fn with_expiry(&self, wanted: Subscription, now: Now) -> Result<(Subscription, SystemTime), Problem> {
        let last = now.wall + self.limits.lifetime_max;
        let expiry = wanted.expiry.map_or(last, |expiry| expiry.min(last));
        if expiry <= now.wall {
            let at = "/subscription/eventReportingMode/expiry";
            return Err(Problem::of_ie(Cause::OptionalIeIncorrect, at, "it has passed"));
        }
        let mut wanted = wanted;
        wanted.document["eventReportingMode"]["expiry"] = json!(time::format(expiry));
        Ok((wanted, expiry))
    }

    fn find(&self, id: &str, owner: &str) -> Result<u64, Problem> {
        let number = self.numbers.get(id).copied();
        // Of another consumer's nobody is told that it is there.
        let own =
            number.filter(|number| self.active.get(number).is_some_and(|active| &*active.owner == owner));
        own.ok_or_else(|| Problem::new(Cause::SubscriptionNotFound, "there is no such subscription"))
    }

    /// The document of a subscription, and which version of it that is.
    ///
    /// # Errors
    /// There is none of that consumer.
    pub(crate) fn document(&self, id: &str, owner: &str) -> Result<(Value, u64), Problem> {
        let number = self.find(id, owner)?;
        let active = self.active.get(&number).ok_or_else(gone)?;
        Ok((active.wanted.document.clone(), active.version))
    }

    /// Has a subscription be another one, unless its document is of another version by now: says whether it was.
    ///
    /// # Errors
    /// There is none of that consumer, or it would have expired.
    pub(crate) fn modify(
        &mut self,
        id: &str,
        owner: &str,
        version: u64,
        wanted: Subscription,
        now: Now,
    ) -> Result<bool, Problem> {
        let number = self.find(id, owner)?;
        let (wanted, expiry) = self.with_expiry(wanted, now)?;
        let active = self.active.get_mut(&number).ok_or_else(gone)?;
        if active.version != version {
            return Ok(false);
        }
        active.modify(wanted, expiry, now);
        Ok(true)
    }

    /// Ends a subscription.
    ///
    /// # Errors
    /// There is none of that consumer.
    pub(crate) fn delete(&mut self, id: &str, owner: &str) -> Result<(), Problem> {
        let number = self.find(id, owner)?;
        self.forget(number);
        Ok(())
    }

    fn forget(&mut self, number: u64) {
        if let Some(active) = self.active.remove(&number) {
            self.numbers.remove(&active.id);
            self.counts.lost += active.lost();
            self.ended.push(number);
            self.forgotten.push(active);
        }
    }

    /// A session has begun: told before the next turn.
    pub fn session_began(&mut self, session: SessionId, source: &mut impl UsageSource, now: Now) {
        let has_supi = self.active.values().any(|active| matches!(active.wanted.ue, Ue::Supi(_)));
        let supi = has_supi.then(|| source.supi(session)).flatten();
        for active in self.active.values_mut() {
            active.session_began(session, supi.as_deref(), now);
        }
    }

    /// A session has ended, and these are its last volumes.
    pub fn session_ended(&mut self, last: SessionVolumes) {
        let last = Arc::new(last);
        self.active.values_mut().for_each(|active| active.session_ended(&last));
    }

    /// What became of a notification.
    pub fn outcome(&mut self, outcome: Outcome) {
        match outcome.is_acknowledged {
            true => self.counts.acknowledged += 1,
            false => self.counts.failed += 1,
        }
        if let Some(active) = self.active.get_mut(&outcome.subscription) {
            active.outcome(outcome.sequence, outcome.is_acknowledged);
        }
    }

    /// Does a turn's part: puts notifications to be sent into `out`.
    pub fn turn(&mut self, source: &mut impl UsageSource, now: Now, out: &mut Vec<Notification>) {
        let expired = self.active.iter().filter(|(_, active)| active.expiry <= now.wall);
        let expired: Vec<_> = expired.map(|(number, _)| *number).collect();
        expired.into_iter().for_each(|number| self.forget(number));
        let mut budget = Budget { places: PLACES_A_TURN, reads: READS_A_TURN };
        if self.forgotten.last_mut().is_some_and(|active| active.forget(FORGOTTEN_A_TURN)) {
            self.forgotten.pop();
        }
        self.is_behind = !self.forgotten.is_empty();
        // From where the last turn ended, so that each has its turn.
        let order: Vec<u64> =
            self.active.range(self.next..).chain(self.active.range(..self.next)).map(|(n, _)| *n).collect();
        for number in order {
            if budget.is_spent() {
                (self.next, self.is_behind) = (number, true);
                return;
            }
            let Some(active) = self.active.get_mut(&number) else { continue };
            match active.step(source, now, &mut budget, &mut self.sequence, out) {
                Step::Rests => {}
                Step::HasMore => {
                    (self.next, self.is_behind) = (number + 1, true);
                }
                Step::Ends => self.forget(number),
            }
        }
    }
}

fn gone() -> Problem {
    Problem::new(Cause::SubscriptionNotFound, "there is no such subscription")
}

/// A name that cannot be guessed.
fn new_id() -> Result<String, Problem> {
    let mut octets = [0u8; ID_LEN];
    getrandom::fill(&mut octets).map_err(|error| {
        Problem::new(Cause::InsufficientResources, format!("there are no random numbers: {error}"))
    })?;
    Ok(octets.iter().map(|octet| format!("{octet:02x}")).collect())
}
