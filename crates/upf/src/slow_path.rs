//! Packets that take the slow path, counted by reason, so that an operator sees what costs time.
//!
//! A packet counts that is in a tunnel of the node or for a UE, once, by the first reason that holds. What no session is asked for
//! (echo requests, ARP) does not count.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::record::{RecordForm, SlowPathCause};

/// Why a packet takes the slow path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum SlowPathReason {
    /// No session has the TEID or the UE address.
    NoSession,
    /// Its headers are of a kind that the fast path does not read.
    Headers,
    /// Packets are traced.
    Traced,
    /// Others wait, which it must not overtake.
    Waiting,
    /// The rule does not forward now.
    Held,
    /// It matches another rule of the key than those on the fast path, or none.
    OtherRule,
    /// Its session's rules ask for more than the fast path does.
    Rules(SlowPathCause),
    /// A quota is used up.
    Quota,
    /// It exceeds a rate.
    Rate,
    /// It opens a TCP connection, whose MSS is lowered.
    MssClamp,
    /// Its destination may be another UE, which is not simply routed.
    OtherUe,
    /// Its next hop is not known yet, or not to this worker.
    NextHop,
    /// Something else is to be looked at: its source or destination, its hop limit, its length, its congestion marks.
    Other,
}

impl SlowPathReason {
    /// How many there are.
    pub const COUNT: usize = 12 + SlowPathCause::ALL.len();

    /// All, in their order.
    pub fn all() -> impl Iterator<Item = Self> {
        [
            Self::NoSession,
            Self::Headers,
            Self::Traced,
            Self::Waiting,
            Self::Held,
            Self::OtherRule,
            Self::Quota,
            Self::Rate,
            Self::MssClamp,
            Self::OtherUe,
            Self::NextHop,
            Self::Other,
        ]
        .into_iter()
        .chain(SlowPathCause::ALL.map(Self::Rules))
    }

    /// Its place among [`SlowPathReason::all`].
    const fn index(self) -> usize {
        match self {
            Self::NoSession => 0,
            Self::Headers => 1,
            Self::Traced => 2,
            Self::Waiting => 3,
            Self::Held => 4,
            Self::OtherRule => 5,
            Self::Quota => 6,
            Self::Rate => 7,
            Self::MssClamp => 8,
            Self::OtherUe => 9,
            Self::NextHop => 10,
            Self::Other => 11,
            Self::Rules(reason) => 12 + reason as usize,
        }
    }

    /// Its name in metrics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoSession => "no_session",
            Self::Headers => "headers",
            Self::Traced => "traced",
            Self::Waiting => "waiting",
            Self::Held => "held",
            Self::OtherRule => "other_rule",
            Self::Rules(reason) => reason.name(),
            Self::Quota => "quota",
            Self::Rate => "rate",
            Self::MssClamp => "mss_clamp",
            Self::OtherUe => "other_ue",
            Self::NextHop => "next_hop",
            Self::Other => "other",
        }
    }

    /// What it says to an operator.
    pub fn sentence(self) -> String {
        let text = match self {
            Self::NoSession => "no session has the TEID or UE address",
            Self::Headers => {
                "fragments, IP options, extension headers, or a GTP-U header with more than a container"
            }
            Self::Traced => "packets of the session are traced",
            Self::Waiting => "packets wait that must leave first",
            Self::Held => "the FAR buffers, drops or has no tunnel yet, or the gate is closed",
            Self::OtherRule => "the packet matches another PDR than those on the fast path, or none",
            Self::Rules(reason) => return reason.to_string(),
            Self::Quota => "a quota is used up",
            Self::Rate => "the packet exceeds a rate",
            Self::MssClamp => "a TCP SYN, whose MSS is lowered",
            Self::OtherUe => "the destination may be another UE, and `node.ue_to_ue` is not \"route\"",
            Self::NextHop => "the next hop is not known yet",
            Self::Other => "the source, destination, hop limit, length or congestion mark is to be looked at",
        };
        text.to_owned()
    }

    /// The reason that the form of a record gives; `None` where its packets take the fast path as far as that tells.
    pub(crate) fn of_form(form: RecordForm) -> Option<Self> {
        match form {
            RecordForm::Folded | RecordForm::Lines => None,
            RecordForm::Held => Some(Self::Held),
            RecordForm::Wide(reason) => Some(Self::Rules(reason)),
        }
    }
}

/// One worker's counts, which it alone moves.
#[derive(Debug)]
pub(crate) struct SlowPathCounts([AtomicU64; SlowPathReason::COUNT]);

impl SlowPathCounts {
    pub(crate) fn count(&self, reason: SlowPathReason) {
        let count = &self.0[reason.index()];
        // It has one writer.
        count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
}

/// The counts of all workers.
#[derive(Debug, Default)]
pub struct SlowPathCounters {
    workers: Mutex<Vec<Arc<SlowPathCounts>>>,
}

impl SlowPathCounters {
    /// Counts for one worker more.
    pub(crate) fn worker(&self) -> Arc<SlowPathCounts> {
        let counts = Arc::new(SlowPathCounts([const { AtomicU64::new(0) }; SlowPathReason::COUNT]));
        self.workers.lock().unwrap_or_else(PoisonError::into_inner).push(counts.clone());
        counts
    }

    /// Packets of all workers by reason; every reason is there.
    pub fn totals(&self) -> Vec<(SlowPathReason, u64)> {
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |reason: SlowPathReason| {
            workers.iter().map(move |counts| counts.0[reason.index()].load(Ordering::Relaxed))
        };
        SlowPathReason::all().map(|reason| (reason, of(reason).sum())).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn reasons_have_places_names_and_sentences_of_their_own() {
        let all: Vec<_> = SlowPathReason::all().collect();
        assert_eq!(all.len(), SlowPathReason::COUNT);
        assert!(all.iter().enumerate().all(|(at, reason)| reason.index() == at));
        let names: BTreeSet<_> = all.iter().map(|reason| reason.name()).collect();
        let sentences: BTreeSet<_> = all.iter().map(|reason| reason.sentence()).collect();
        assert_eq!((names.len(), sentences.len()), (all.len(), all.len()));
    }

    #[test]
    fn counts_of_workers_add_up() {
        let counters = SlowPathCounters::default();
        let workers = [counters.worker(), counters.worker()];
        workers.iter().for_each(|counts| counts.count(SlowPathReason::Rate));
        workers[0].count(SlowPathReason::Rules(SlowPathCause::Ethernet));
        let counted = counters.totals().into_iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>();
        assert_eq!(counted, [(SlowPathReason::Rate, 2), (SlowPathReason::Rules(SlowPathCause::Ethernet), 1)]);
    }
}
