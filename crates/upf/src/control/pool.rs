//! What the node gives out: UE addresses and numbers.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::ids::InstanceId;
use kaido_n4::Ipv6Prefix;

/// Addresses of one pool; a larger prefix is used from its start.
const ADDRESSES_MAX: u32 = 1 << 24;

/// A pool of UE addresses of one network instance (TS 29.244 5.21).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UePool {
    /// The instance whose UEs get them.
    pub instance: InstanceId,
    /// IPv4 network; its first and last address are not given out.
    pub ipv4: Option<(Ipv4Addr, u8)>,
    /// IPv6 network, of which each UE gets a /64.
    pub ipv6: Option<Ipv6Prefix>,
}

/// Numbers below a bound, each given out once until it comes back.
#[derive(Debug)]
pub(crate) struct Numbers {
    taken: Vec<u64>,
    bound: u32,
    cursor: u32,
    free: u32,
}

impl Numbers {
    pub(crate) fn new(bound: u32) -> Self {
        Self { taken: vec![0; bound.div_ceil(64) as usize], bound, cursor: 0, free: bound }
    }

    /// Those that are taken.
    fn taken(&self) -> impl Iterator<Item = u32> {
        let words = (0u32..).zip(&self.taken).filter(|(_, word)| **word != 0);
        words.flat_map(|(at, &word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        })
    }

    /// The next free number after the last one given out: what was just returned rests longest.
    pub(crate) fn take(&mut self) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        loop {
            let word = (self.cursor / 64) as usize;
            let unseen = !self.taken[word] & (u64::MAX << (self.cursor % 64));
            let found = (self.cursor / 64) * 64 + unseen.trailing_zeros();
            let next_word = (self.cursor / 64 + 1) * 64;
            if unseen != 0 && found < self.bound {
                self.taken[word] |= 1 << (found % 64);
                self.free -= 1;
                self.cursor = if found + 1 < self.bound { found + 1 } else { 0 };
                return Some(found);
            }
            self.cursor = if next_word < self.bound { next_word } else { 0 };
        }
    }

    /// Takes a number that is free.
    fn claim(&mut self, number: u32) -> bool {
        let Some(word) = self.taken.get_mut((number / 64) as usize).filter(|_| number < self.bound) else {
            return false;
        };
        let bit = 1 << (number % 64);
        let is_free = *word & bit == 0;
        *word |= bit;
        self.free -= u32::from(is_free);
        is_free
    }

    fn has(&self, number: u32) -> bool {
        number < self.bound
    }

    pub(crate) fn give_back(&mut self, number: u32) {
        let bit = 1 << (number % 64);
        let word = &mut self.taken[(number / 64) as usize];
        if *word & bit != 0 {
            *word &= !bit;
            self.free += 1;
        }
    }
}

/// A pool, and which of its addresses are taken.
#[derive(Debug)]
struct PoolSlot {
    pool: UePool,
    ipv4: Numbers,
    ipv6: Numbers,
    /// Another configuration has taken its place. It is kept for the addresses of leases, which name it by its place.
    is_retired: bool,
}

impl PoolSlot {
    fn new(pool: UePool) -> Self {
        let v4 = pool.ipv4.map_or(0, |(_, len)| {
            let hosts = 1u64 << (32 - u32::from(len.min(32)));
            u32::try_from(hosts.saturating_sub(2)).unwrap_or(u32::MAX).min(ADDRESSES_MAX)
        });
        let v6 = pool.ipv6.map_or(0, |prefix| {
            let networks = 1u64.checked_shl(64 - u32::from(prefix.len.min(64))).unwrap_or(u64::MAX);
            u32::try_from(networks).unwrap_or(u32::MAX).min(ADDRESSES_MAX)
        });
        Self { pool, ipv4: Numbers::new(v4), ipv6: Numbers::new(v6), is_retired: false }
    }

    fn retired(pool: UePool) -> Self {
        Self { pool, ipv4: Numbers::new(0), ipv6: Numbers::new(0), is_retired: true }
    }

    fn ipv4_of(&self, number: u32) -> Option<Ipv4Addr> {
        let (network, _) = self.pool.ipv4?;
        Some(Ipv4Addr::from_bits(network.to_bits().wrapping_add(1).wrapping_add(number)))
    }

    fn number_of_ipv4(&self, addr: Ipv4Addr) -> Option<u32> {
        addr.to_bits().checked_sub(self.pool.ipv4?.0.to_bits())?.checked_sub(1)
    }

    fn ipv6_of(&self, number: u32) -> Option<Ipv6Prefix> {
        let network = self.pool.ipv6?;
        let addr = Ipv6Addr::from_bits(network.addr.to_bits() + (u128::from(number) << 64));
        Some(Ipv6Prefix::of(addr, 64))
    }

    fn number_of_ipv6(&self, prefix: Ipv6Prefix) -> Option<u32> {
        let ahead = prefix.addr.to_bits().checked_sub(self.pool.ipv6?.addr.to_bits())?;
        u32::try_from(ahead >> 64).ok()
    }
}

/// The pools of all instances.
#[derive(Debug)]
pub(crate) struct UePools(Vec<PoolSlot>);

/// Pools that are to take the place of others.
#[derive(Debug)]
pub struct PreparedPools(pub(super) UePools);

/// Addresses of UEs that other pools would not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{leases} addresses of UEs are in use that no pool would have")]
pub struct LeasesInUse {
    /// How many.
    pub leases: usize,
}

/// An address that was given out, to be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Lease {
    Ipv4(usize, u32),
    Ipv6(usize, u32),
}

impl UePools {
    pub(crate) fn new(pools: Vec<UePool>) -> Self {
        Self(pools.into_iter().map(PoolSlot::new).collect())
    }

    /// These pools in the place of others, with all leases.
    ///
    /// # Errors
    /// When addresses are in use that none of them has.
    pub(crate) fn replaced(&self, pools: Vec<UePool>) -> Result<Self, LeasesInUse> {
        // Leases name their pools by their places, which therefore stay.
        let mut replaced = Self(self.0.iter().map(|slot| PoolSlot::retired(slot.pool.clone())).collect());
        replaced.0.extend(pools.into_iter().map(PoolSlot::new));
        let mut leases = 0;
        for slot in self.current() {
            let instance = slot.pool.instance;
            let ipv4 = slot.ipv4.taken().filter_map(|number| slot.ipv4_of(number));
            leases += ipv4.filter(|addr| replaced.claim_ipv4(instance, *addr).is_none()).count();
            let ipv6 = slot.ipv6.taken().filter_map(|number| slot.ipv6_of(number));
            leases += ipv6.filter(|prefix| replaced.claim_ipv6(instance, *prefix).is_none()).count();
        }
        if leases > 0 { Err(LeasesInUse { leases }) } else { Ok(replaced) }
    }

    /// Whether they are these, in this order.
    pub(crate) fn are(&self, pools: &[UePool]) -> bool {
        self.current().map(|slot| &slot.pool).eq(pools)
    }

    fn current(&self) -> impl Iterator<Item = &PoolSlot> {
        self.0.iter().filter(|slot| !slot.is_retired)
    }

    /// The pools of an instance that give addresses out, with their places.
    fn of_instance(&mut self, instance: InstanceId) -> impl Iterator<Item = (usize, &mut PoolSlot)> {
        let is_its = move |slot: &PoolSlot| !slot.is_retired && slot.pool.instance == instance;
        self.0.iter_mut().enumerate().filter(move |(_, slot)| is_its(slot))
    }

    pub(crate) fn has_ipv4(&self, instance: InstanceId) -> bool {
        self.current().any(|slot| slot.pool.instance == instance && slot.pool.ipv4.is_some())
    }

    pub(crate) fn has_ipv6(&self, instance: InstanceId) -> bool {
        self.current().any(|slot| slot.pool.instance == instance && slot.pool.ipv6.is_some())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.current().next().is_none()
    }

    pub(crate) fn take_ipv4(&mut self, instance: InstanceId) -> Option<(Ipv4Addr, Lease)> {
        self.of_instance(instance).find_map(|(at, slot)| {
            let number = slot.ipv4.take()?;
            Some((slot.ipv4_of(number)?, Lease::Ipv4(at, number)))
        })
    }

    pub(crate) fn take_ipv6(&mut self, instance: InstanceId) -> Option<(Ipv6Prefix, Lease)> {
        self.of_instance(instance).find_map(|(at, slot)| {
            let number = slot.ipv6.take()?;
            Some((slot.ipv6_of(number)?, Lease::Ipv6(at, number)))
        })
    }

    /// Takes an address that was given out before a restart, wherever its pool stands in the configuration now; `None` if no pool has
    /// it any more, or somebody has it already.
    pub(crate) fn claim_ipv4(&mut self, instance: InstanceId, addr: Ipv4Addr) -> Option<Lease> {
        self.of_instance(instance).find_map(|(at, slot)| {
            let number = slot.number_of_ipv4(addr)?;
            slot.ipv4.claim(number).then_some(Lease::Ipv4(at, number))
        })
    }

    /// As [`UePools::claim_ipv4`], of a prefix.
    pub(crate) fn claim_ipv6(&mut self, instance: InstanceId, prefix: Ipv6Prefix) -> Option<Lease> {
        self.of_instance(instance).find_map(|(at, slot)| {
            let number = slot.number_of_ipv6(prefix)?;
            slot.ipv6.claim(number).then_some(Lease::Ipv6(at, number))
        })
    }

    pub(crate) fn give_back(&mut self, lease: Lease) {
        let (Lease::Ipv4(at, number) | Lease::Ipv6(at, number)) = lease;
        let Some(slot) = self.0.get_mut(at) else { return };
        if !slot.is_retired {
            return match lease {
                Lease::Ipv4(..) => slot.ipv4.give_back(number),
                Lease::Ipv6(..) => slot.ipv6.give_back(number),
            };
        }
        // The address has come to another pool.
        let (instance, ipv4, ipv6) = (slot.pool.instance, slot.ipv4_of(number), slot.ipv6_of(number));
        for (_, slot) in self.of_instance(instance) {
            let found = match lease {
                Lease::Ipv4(..) => (ipv4.and_then(|addr| slot.number_of_ipv4(addr)), &mut slot.ipv4),
                Lease::Ipv6(..) => (ipv6.and_then(|prefix| slot.number_of_ipv6(prefix)), &mut slot.ipv6),
            };
            if let (Some(number), numbers) = found
                && numbers.has(number)
            {
                return numbers.give_back(number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_once_and_rest_when_returned() {
        let mut numbers = Numbers::new(70);
        let all: Vec<_> = std::iter::from_fn(|| numbers.take()).collect();
        assert_eq!(all, (0..70).collect::<Vec<_>>());
        numbers.give_back(65);
        numbers.give_back(3);
        numbers.give_back(3);
        assert_eq!(numbers.take(), Some(3));
        assert_eq!(numbers.take(), Some(65));
        assert_eq!(numbers.take(), None);
        assert_eq!(Numbers::new(0).take(), None);
    }

    #[test]
    fn a_pool_gives_hosts_and_networks() {
        let mut pools = UePools::new(vec![UePool {
            instance: InstanceId(0),
            ipv4: Some((Ipv4Addr::new(10, 60, 0, 0), 30)),
            ipv6: Some(Ipv6Prefix::of("2001:db8:60::".parse().unwrap(), 63)),
        }]);
        let (first, lease) = pools.take_ipv4(InstanceId(0)).unwrap();
        assert_eq!(first, Ipv4Addr::new(10, 60, 0, 1));
        assert_eq!(pools.take_ipv4(InstanceId(0)).unwrap().0, Ipv4Addr::new(10, 60, 0, 2));
        assert!(pools.take_ipv4(InstanceId(0)).is_none());
        pools.give_back(lease);
        assert_eq!(pools.take_ipv4(InstanceId(0)).unwrap().0, first);
        pools.take_ipv6(InstanceId(0)).unwrap();
        let (second, _) = pools.take_ipv6(InstanceId(0)).unwrap();
        assert_eq!(second, Ipv6Prefix::of("2001:db8:60:1::".parse().unwrap(), 64));
        assert!(pools.take_ipv6(InstanceId(0)).is_none());
        assert!(pools.take_ipv4(InstanceId(1)).is_none());
    }

    fn pools(prefixes: &[(&str, u8)]) -> Vec<UePool> {
        let pool = |&(network, len): &(&str, u8)| UePool {
            instance: InstanceId(0),
            ipv4: Some((network.parse().unwrap(), len)),
            ipv6: None,
        };
        prefixes.iter().map(pool).collect()
    }

    fn take(pools: &mut UePools) -> (Ipv4Addr, Lease) {
        pools.take_ipv4(InstanceId(0)).unwrap()
    }

    /// A larger network begins before the old one, so that its numbers are others.
    #[test]
    fn a_pool_grows_with_its_leases() {
        let mut before = UePools::new(pools(&[("10.60.0.4", 30)]));
        let (first, lease) = take(&mut before);
        let mut now = before.replaced(pools(&[("10.60.0.0", 29)])).unwrap();
        let others: Vec<_> = std::iter::from_fn(|| now.take_ipv4(InstanceId(0))).collect();
        assert_eq!(others.len(), 5);
        assert!(others.iter().all(|(addr, _)| *addr != first));
        // A lease of before comes back to the pool that has its address now.
        now.give_back(lease);
        assert_eq!(take(&mut now).0, first);
        assert!(now.take_ipv4(InstanceId(0)).is_none());
        // And again, over two changes.
        let mut again = now.replaced(pools(&[("10.60.0.0", 28), ("10.61.0.0", 24)])).unwrap();
        again.give_back(lease);
        again.give_back(others[0].1);
        let free: Vec<_> = std::iter::from_fn(|| again.take_ipv4(InstanceId(0))).collect();
        assert_eq!(free.len(), 14 - 4 + 254);
    }

    #[test]
    fn what_is_in_use_does_not_go() {
        let mut before = UePools::new(pools(&[("10.60.0.0", 24), ("10.61.0.0", 24)]));
        let leases: Vec<_> = (0..3).map(|_| take(&mut before)).collect();
        // Without the second nothing is lost, without the first all three are.
        assert!(before.replaced(pools(&[("10.60.0.0", 24)])).is_ok());
        let lost = |pools| before.replaced(pools).err();
        assert_eq!(lost(pools(&[("10.61.0.0", 24)])), Some(LeasesInUse { leases: 3 }));
        // 10.60.0.1 and .2 are in the smaller network, and .3 is its broadcast address.
        assert_eq!(lost(pools(&[("10.60.0.0", 30)])), Some(LeasesInUse { leases: 1 }));
        assert_eq!(lost(pools(&[("10.60.0.0", 29)])), None);
        let other_instance =
            vec![UePool { instance: InstanceId(1), ..pools(&[("10.60.0.0", 24)])[0].clone() }];
        assert_eq!(lost(other_instance), Some(LeasesInUse { leases: 3 }));
        for (_, lease) in leases {
            before.give_back(lease);
        }
        assert!(before.replaced(Vec::new()).unwrap().is_empty());
    }

    #[test]
    fn prefixes_of_ipv6_keep_their_leases() {
        let pool = |addr: &str, len| UePool {
            instance: InstanceId(0),
            ipv4: None,
            ipv6: Some(Ipv6Prefix::of(addr.parse().unwrap(), len)),
        };
        let mut before = UePools::new(vec![pool("2001:db8:60:2::", 63)]);
        let (first, lease) = before.take_ipv6(InstanceId(0)).unwrap();
        let lost = before.replaced(vec![pool("2001:db8:60::", 63)]).unwrap_err();
        assert_eq!(lost, LeasesInUse { leases: 1 });
        let mut now = before.replaced(vec![pool("2001:db8:60::", 62)]).unwrap();
        let others: Vec<_> = std::iter::from_fn(|| now.take_ipv6(InstanceId(0))).collect();
        assert_eq!(others.len(), 3);
        now.give_back(lease);
        assert_eq!(now.take_ipv6(InstanceId(0)).unwrap().0, first);
    }
}
