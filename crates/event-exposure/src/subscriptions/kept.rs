//! What is to be known of subscriptions after a restart, as octets that somebody else keeps.
//!
//! ```text
//!   Subscription  its identifier, consumer and document   written when it is made and modified
//!   Baseline      what the consumer was told              written when that has changed
//! ```
//! A record begins with its version; the rest is as `postcard` writes it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::active::Active;
use super::{Now, Subscriptions};
use crate::request::Subscription;
use crate::usage::UsageSource;

/// The version of both records.
const VERSION: u8 = 1;

/// A part of a subscription that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeptPart {
    /// What it is.
    Subscription,
    /// What its consumer was told.
    Baseline,
}

impl KeptPart {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Subscription, Self::Baseline];
}

/// Keeps what is to be known after a restart.
pub trait Keeper {
    /// What a part of the subscription with that number is now: `write` appends its octets.
    fn put(&mut self, part: KeptPart, number: u64, write: impl FnOnce(&mut Vec<u8>));

    /// The subscription with that number has no such part any more.
    fn remove(&mut self, part: KeptPart, number: u64);
}

/// A subscription as it was kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptSubscription {
    /// Its number.
    pub number: u64,
    /// What it is.
    pub subscription: Vec<u8>,
    /// What its consumer was told.
    pub baseline: Option<Vec<u8>>,
}

/// Why a subscription of before a restart does not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotRestored {
    /// Its record is left where it is.
    #[error("its record is of another version of the program, or damaged")]
    Unreadable,
    /// Meanwhile.
    #[error("it has expired")]
    Expired,
    /// By what is configured now.
    #[error("{0}")]
    Refused(String),
}

/// What a subscription is.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SubscriptionRecord<'r> {
    pub(super) id: &'r str,
    pub(super) owner: &'r str,
    /// Sessions that nothing was told of have begun since.
    pub(super) since_ms: u64,
    pub(super) document: Cow<'r, str>,
}

impl<'r> SubscriptionRecord<'r> {
    /// Reads a record.
    ///
    /// # Errors
    /// [`NotRestored::Unreadable`].
    pub(crate) fn read(record: &'r [u8]) -> Result<Self, NotRestored> {
        read(record).ok_or(NotRestored::Unreadable)
    }

    /// The `UpfEventSubscription`.
    ///
    /// # Errors
    /// [`NotRestored::Unreadable`].
    pub(crate) fn document(&self) -> Result<Value, NotRestored> {
        serde_json::from_str(&self.document).map_err(|_| NotRestored::Unreadable)
    }
}

/// Reads a record of this version.
pub(super) fn read<'r, T: Deserialize<'r>>(record: &'r [u8]) -> Option<T> {
    let (&VERSION, record) = record.split_first()? else { return None };
    postcard::from_bytes(record).ok()
}

/// Writes a record.
pub(super) fn write(value: &impl Serialize, record: &mut Vec<u8>) {
    record.push(VERSION);
    // What is in memory can be written there.
    record.extend(postcard::to_allocvec(value).unwrap_or_default());
}

/// A time as records have it.
pub(super) fn millis(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The time of a record; that of one that cannot be is 1970.
pub(super) fn time_of(millis: u64) -> SystemTime {
    let since = Duration::from_millis(millis);
    SystemTime::UNIX_EPOCH.checked_add(since).unwrap_or(SystemTime::UNIX_EPOCH)
}

impl Subscriptions {
    /// Has what has changed since the last call kept. A report that was acknowledged counts before that.
    pub fn keep(&mut self, keeper: &mut impl Keeper, now: Now) {
        let done = self.active.iter_mut().filter_map(|(number, of)| of.finish_round(now).then_some(*number));
        done.collect::<Vec<_>>().into_iter().for_each(|number| self.forget(number));
        for number in self.ended.drain(..) {
            KeptPart::ALL.into_iter().for_each(|part| keeper.remove(part, number));
        }
        for (number, active) in &mut self.active {
            let unwritten = active.take_unwritten();
            if unwritten.subscription {
                keeper.put(KeptPart::Subscription, *number, |record| active.write(record));
            }
            if unwritten.baseline {
                keeper.put(KeptPart::Baseline, *number, |record| active.write_baseline(now, record));
            }
        }
    }

    /// Whether it is known of all notifications what became of them.
    pub fn is_settled(&self) -> bool {
        self.active.values().all(Active::is_settled)
    }

    /// Restores a subscription, of which `read` is what its record says. One that does not go on is kept no longer, unless its record
    /// cannot be read.
    pub(crate) fn restore(
        &mut self,
        kept: &KeptSubscription,
        read: Result<(SubscriptionRecord<'_>, Subscription), NotRestored>,
        source: &mut impl UsageSource,
        now: Now,
    ) -> Result<(), NotRestored> {
        self.issued = self.issued.max(kept.number.saturating_add(1));
        let restored = read.and_then(|(record, wanted)| self.resume(kept, &record, wanted, source, now));
        if !matches!(restored, Ok(()) | Err(NotRestored::Unreadable)) {
            self.ended.push(kept.number);
        }
        restored
    }

    fn resume(
        &mut self,
        kept: &KeptSubscription,
        record: &SubscriptionRecord<'_>,
        wanted: Subscription,
        source: &mut impl UsageSource,
        now: Now,
    ) -> Result<(), NotRestored> {
        let expiry = wanted.expiry.ok_or(NotRestored::Unreadable)?;
        if expiry <= now.wall {
            return Err(NotRestored::Expired);
        }
        self.has_room_for(&wanted).map_err(NotRestored::Refused)?;
        let mut active = Active::new(kept.number, Arc::from(record.owner), wanted, expiry, now);
        active.id = record.id.to_owned();
        let baseline = kept.baseline.as_deref();
        if !active.restore(time_of(record.since_ms), baseline, source, now) {
            let number = kept.number;
            tracing::warn!(
                number,
                "what the consumer of a subscription was told cannot be read: volumes count from now on"
            );
        }
        self.numbers.insert(active.id.clone(), kept.number);
        self.active.insert(kept.number, active);
        Ok(())
    }
}
