//! Prefixes, in their order: the FIB, and strategy choices.

use std::sync::TryLockError;
use std::time::Instant;

use kaido_ndn_tables::{FaceId, Hop};
use kaido_node::api::Problem;

use super::{Listing, TURN_MAX, Tables, components, is_over, limit, prefix_of, uri};
use crate::node::api::{
    FibEntry, ListNdnFib, ListNdnStrategies, NdnFib, NdnNextHop, NdnStrategies, NdnStrategy,
};

/// Prefixes and their next hops, as the RIB has them, from which the FIB is made.
pub(super) struct FibListing {
    limit: usize,
    prefix: Vec<u8>,
    face: Option<u64>,
    /// The prefix that was looked at last.
    behind: Option<Vec<u8>>,
    entries: Vec<FibEntry>,
}

impl Listing for FibListing {
    type Asked = ListNdnFib;

    fn begin(asked: ListNdnFib) -> Result<Self, Problem> {
        Ok(Self {
            limit: limit(asked.limit)?,
            prefix: prefix_of(asked.prefix.as_deref())?,
            face: asked.face,
            behind: asked.from.as_deref().map(|from| components("from", from)).transpose()?,
            entries: Vec::new(),
        })
    }

    fn turn(&mut self, Tables { rib, .. }: &Tables<'_>) -> Result<Option<NdnFib>, Problem> {
        // The management may be at work with it, for longer than a turn should wait.
        let rib = match rib.try_lock() {
            Ok(rib) => rib,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(None),
        };
        let until = Instant::now() + TURN_MAX;
        let behind = self.behind.take();
        let mut last = behind.as_deref();
        for (looked_at, prefix) in rib.prefixes(&self.prefix, behind.as_deref()).enumerate() {
            if self.entries.len() == self.limit {
                let (entries, next) = (std::mem::take(&mut self.entries), last.map(uri));
                return Ok(Some(NdnFib { total: rib.prefixes_len(), entries, next }));
            }
            if is_over(looked_at, until) {
                self.behind = last.map(<[u8]>::to_vec);
                return Ok(None);
            }
            last = Some(prefix);
            let hops = rib.hops(prefix);
            if self.face.is_none_or(|face| hops.iter().any(|hop| u64::from(hop.face.0) == face)) {
                let next_hops = hops.into_iter().map(next_hop).collect();
                self.entries.push(FibEntry { prefix: uri(prefix), next_hops });
            }
        }
        let entries = std::mem::take(&mut self.entries);
        Ok(Some(NdnFib { total: rib.prefixes_len(), entries, next: None }))
    }
}

fn next_hop(Hop { face: FaceId(face), cost }: Hop) -> NdnNextHop {
    NdnNextHop { face: face.into(), cost: cost.into() }
}

/// Strategy choices: there are few, and the names of a page are copied in one turn.
pub(super) struct StrategyListing {
    limit: usize,
    prefix: Vec<u8>,
    behind: Option<Vec<u8>>,
}

impl Listing for StrategyListing {
    type Asked = ListNdnStrategies;

    fn begin(asked: ListNdnStrategies) -> Result<Self, Problem> {
        Ok(Self {
            limit: limit(asked.limit)?,
            prefix: prefix_of(asked.prefix.as_deref())?,
            behind: asked.from.as_deref().map(|from| components("from", from)).transpose()?,
        })
    }

    fn turn(&mut self, Tables { router, .. }: &Tables<'_>) -> Result<Option<NdnStrategies>, Problem> {
        let mut found = router.strategies_from(&self.prefix, self.behind.as_deref(), self.limit + 1);
        let has_more = found.len() > self.limit;
        found.truncate(self.limit);
        let next = found.last().filter(|_| has_more).map(|(prefix, _)| uri(prefix));
        let shown =
            |(prefix, name): (Vec<u8>, Vec<u8>)| NdnStrategy { prefix: uri(&prefix), strategy: uri(&name) };
        Ok(Some(NdnStrategies { strategies: found.into_iter().map(shown).collect(), next }))
    }
}
