//! Subscriptions in the store: recorded as they change, and restored by a start.
//!
//! ```text
//!   request ──▶ Subscriptions ──keep──▶ Recorder ──▶ journal ──▶ reply
//!   start   ──▶ KeptSubscriptions ──restore──▶ Subscriptions
//! ```

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

use kaido_event_exposure::{Keeper, KeptPart, KeptSubscription, NotRestored, Now};
use kaido_pfcp::{Endpoint, Instants};
use kaido_store::{Kind, Recorder};
use kaido_upf::control::Upf;

use super::{Exposure, Sessions};

/// How long another process may have to wait for answers of consumers, so that nothing is told twice.
const SETTLE_MAX: Duration = Duration::from_millis(500);

/// Records subscriptions.
pub(super) struct StoreKeeper<'r>(pub(super) &'r Recorder);

const fn kind(part: KeptPart) -> Kind {
    match part {
        KeptPart::Subscription => Kind::Subscription,
        KeptPart::Baseline => Kind::Baseline,
    }
}

impl Keeper for StoreKeeper<'_> {
    fn put(&mut self, part: KeptPart, number: u64, write: impl FnOnce(&mut Vec<u8>)) {
        self.0.put(kind(part), number, write);
    }

    fn remove(&mut self, part: KeptPart, number: u64) {
        self.0.remove(kind(part), number);
    }
}

/// Subscriptions of before a restart, by number.
#[derive(Debug, Default)]
pub(crate) struct KeptSubscriptions(BTreeMap<u64, KeptSubscription>);

impl KeptSubscriptions {
    /// What they are recorded as, in the order in which that is read.
    pub(crate) const KINDS: [Kind; 2] = [Kind::Subscription, Kind::Baseline];

    /// Takes a record in.
    pub(crate) fn take_in(&mut self, kind: Kind, number: u64, record: &[u8]) {
        if kind == Kind::Subscription {
            let kept = KeptSubscription { number, subscription: record.to_owned(), baseline: None };
            self.0.insert(number, kept);
        } else if let Some(kept) = self.0.get_mut(&number) {
            kept.baseline = Some(record.to_owned());
        }
    }
}

/// Has subscriptions of before a restart go on. Without event exposure they stay in the store, for when it is configured again.
pub(crate) fn restore(
    exposure: Option<&mut Exposure>,
    kept: &KeptSubscriptions,
    endpoint: &mut Endpoint<Upf>,
) {
    let now = Instants::now();
    let now = Now { monotonic: now.monotonic, wall: endpoint.node_time(now) };
    if exposure.is_none() {
        endpoint.service_mut().follow_usage(false);
    }
    match exposure {
        Some(exposure) => exposure.restore(kept, endpoint.service_mut(), now),
        None if kept.0.is_empty() => {}
        None => tracing::warn!(
            subscriptions = kept.0.len(),
            "event_exposure.listen is not set: consumers of before are not notified; their subscriptions are kept until it is"
        ),
    }
}

impl Exposure {
    fn restore(&mut self, KeptSubscriptions(all): &KeptSubscriptions, upf: &mut Upf, now: Now) {
        if all.is_empty() {
            return;
        }
        upf.follow_usage(true);
        for kept in all.values() {
            match self.api.restore(kept, &mut self.subscriptions, &mut Sessions(upf), now) {
                Ok(()) => {}
                Err(NotRestored::Expired) => {
                    tracing::info!(number = kept.number, "a subscription of event exposure has expired");
                }
                Err(why) => {
                    tracing::error!(number = kept.number, %why, "a subscription of event exposure cannot go on");
                }
            }
        }
        let (restored, kept) = (self.subscriptions.len(), all.len());
        tracing::info!(restored, kept, "subscriptions of event exposure go on");
    }

    /// Whether consumers are yet to be answered.
    pub(crate) fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Sends replies whose batch is durable. Those of this turn leave behind batch `behind`, or now.
    pub(crate) fn reply(&mut self, behind: Option<u64>, is_durable: impl Fn(u64) -> bool) {
        for (number, _) in self.replies.iter_mut().filter(|(number, _)| number.is_none()) {
            *number = Some(behind.unwrap_or(0));
        }
        while let Some((number, reply)) = self.replies.pop_front() {
            if let Some(number) = number.filter(|number| !is_durable(*number)) {
                self.replies.push_front((Some(number), reply));
                return;
            }
            reply.send(&mut self.subscriptions);
        }
    }

    /// Records what consumers have acknowledged, and makes no further notification. Says whether no answer is waited for.
    pub(crate) fn settle(&mut self, (monotonic, wall): (Instant, SystemTime), recorder: &Recorder) -> bool {
        let until = *self.settles_until.get_or_insert(monotonic + SETTLE_MAX);
        self.hear_of_notifications(usize::MAX);
        self.subscriptions.keep(&mut StoreKeeper(recorder), Now { monotonic, wall });
        self.subscriptions.is_settled() || monotonic >= until
    }
}
