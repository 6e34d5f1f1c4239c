//! Which token buckets are whose: a QER's own, or one for QERs that have a correlation ID in common.

use std::collections::HashMap;
use std::net::IpAddr;

use super::PolicerSlot;
use kaido_n4::{FSeid, QerCorrelationId};

/// What correlated QERs have in common (TS 29.244 8.2.10): the control plane that made them, and its ID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Correlation {
    control_plane: IpAddr,
    id: QerCorrelationId,
}

impl Correlation {
    /// A correlation ID in the sessions of a control plane.
    pub(crate) fn new(owner: &FSeid, id: QerCorrelationId) -> Option<Self> {
        let control_plane = owner.ipv4.map(IpAddr::V4).or(owner.ipv6.map(IpAddr::V6))?;
        Some(Self { control_plane, id })
    }
}

/// Policers in use and free.
#[derive(Debug)]
pub(crate) struct PolicerSlots {
    fresh: u32,
    bound: u32,
    free: Vec<PolicerSlot>,
    shared: HashMap<Correlation, SlotState>,
    correlations: HashMap<PolicerSlot, Correlation>,
}

#[derive(Debug)]
struct SlotState {
    slot: PolicerSlot,
    users: u32,
}

impl PolicerSlots {
    pub(crate) fn new(bound: u32) -> Self {
        Self { fresh: 0, bound, free: Vec::new(), shared: HashMap::new(), correlations: HashMap::new() }
    }

    /// A policer for one QER, and whether it is new; `None` when there is none left.
    pub(crate) fn take(&mut self, correlation: Option<Correlation>) -> Option<(PolicerSlot, bool)> {
        if let Some(shared) = correlation.and_then(|key| self.shared.get_mut(&key)) {
            shared.users += 1;
            return Some((shared.slot, false));
        }
        let slot = self.free.pop().or_else(|| {
            let fresh = self.fresh;
            self.fresh += u32::from(fresh < self.bound);
            (fresh < self.bound).then_some(PolicerSlot(fresh))
        })?;
        if let Some(key) = correlation {
            self.shared.insert(key, SlotState { slot, users: 1 });
            self.correlations.insert(slot, key);
        }
        Some((slot, true))
    }

    /// What a policer is shared by.
    pub(crate) fn correlation(&self, slot: PolicerSlot) -> Option<Correlation> {
        self.correlations.get(&slot).copied()
    }

    /// Ends one QER's use of a policer; whether nobody uses it any more, so that it must be cleared.
    #[must_use]
    pub(crate) fn give_back(&mut self, slot: PolicerSlot) -> bool {
        if let Some(key) = self.correlations.get(&slot).copied() {
            if let Some(shared) = self.shared.get_mut(&key)
                && shared.users > 1
            {
                shared.users -= 1;
                return false;
            }
            self.shared.remove(&key);
            self.correlations.remove(&slot);
        }
        self.free.push(slot);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kaido_n4::Seid;

    fn owner(host: u8) -> FSeid {
        FSeid { seid: Seid(1), ipv4: Some([10, 0, 0, host].into()), ipv6: None }
    }

    #[test]
    fn a_correlation_shares_one_policer_until_its_last_user_is_gone() {
        let mut slots = PolicerSlots::new(3);
        let key = Correlation::new(&owner(1), QerCorrelationId(5));
        let (first, new) = slots.take(key).unwrap();
        assert!(new);
        assert_eq!(slots.take(key), Some((first, false)));
        let (other, new) = slots.take(Correlation::new(&owner(2), QerCorrelationId(5))).unwrap();
        assert!(new && other != first, "another control plane's is another");
        let (own, _) = slots.take(None).unwrap();
        assert_eq!((slots.correlation(first), slots.correlation(own)), (key, None));
        assert_eq!(slots.take(None), None);
        assert!(!slots.give_back(first));
        assert!(slots.give_back(first));
        assert_eq!(slots.correlation(first), None);
        assert_eq!(slots.take(None), Some((first, true)));
        assert_eq!(slots.take(key), None, "it is another's now");
    }

    #[test]
    fn an_owner_without_address_shares_nothing() {
        let nobody = FSeid { seid: Seid(1), ipv4: None, ipv6: None };
        assert_eq!(Correlation::new(&nobody, QerCorrelationId(1)), None);
    }
}
