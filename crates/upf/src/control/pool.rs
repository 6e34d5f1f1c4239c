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

    pub(crate) fn give_back(&mut self, number: u32) {
        let bit = 1 << (number % 64);
        let word = &mut self.taken[(number / 64) as usize];
        if *word & bit != 0 {
            *word &= !bit;
            self.free += 1;
        }
    }
}

/// The pools of all instances.
#[derive(Debug)]
pub(crate) struct UePools(Vec<(UePool, Numbers, Numbers)>);

/// An address that was given out, to be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Lease {
    Ipv4(usize, u32),
    Ipv6(usize, u32),
}

impl UePools {
    pub(crate) fn new(pools: Vec<UePool>) -> Self {
        let numbered = pools.into_iter().map(|pool| {
            let v4 = pool.ipv4.map_or(0, |(_, len)| {
                let hosts = 1u64 << (32 - u32::from(len.min(32)));
                u32::try_from(hosts.saturating_sub(2)).unwrap_or(u32::MAX).min(ADDRESSES_MAX)
            });
            let v6 = pool.ipv6.map_or(0, |prefix| {
                let networks = 1u64.checked_shl(64 - u32::from(prefix.len.min(64))).unwrap_or(u64::MAX);
                u32::try_from(networks).unwrap_or(u32::MAX).min(ADDRESSES_MAX)
            });
            (pool, Numbers::new(v4), Numbers::new(v6))
        });
        Self(numbered.collect())
    }

    pub(crate) fn has_ipv4(&self, instance: InstanceId) -> bool {
        self.0.iter().any(|(pool, ..)| pool.instance == instance && pool.ipv4.is_some())
    }

    pub(crate) fn has_ipv6(&self, instance: InstanceId) -> bool {
        self.0.iter().any(|(pool, ..)| pool.instance == instance && pool.ipv6.is_some())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn take_ipv4(&mut self, instance: InstanceId) -> Option<(Ipv4Addr, Lease)> {
        self.0.iter_mut().enumerate().filter(|(_, (pool, ..))| pool.instance == instance).find_map(
            |(at, (pool, numbers, _))| {
                let (network, _) = pool.ipv4?;
                let number = numbers.take()?;
                Some((Ipv4Addr::from_bits(network.to_bits() + 1 + number), Lease::Ipv4(at, number)))
            },
        )
    }

    pub(crate) fn take_ipv6(&mut self, instance: InstanceId) -> Option<(Ipv6Prefix, Lease)> {
        self.0.iter_mut().enumerate().filter(|(_, (pool, ..))| pool.instance == instance).find_map(
            |(at, (pool, _, numbers))| {
                let network = pool.ipv6?;
                let number = numbers.take()?;
                let addr = Ipv6Addr::from_bits(network.addr.to_bits() + (u128::from(number) << 64));
                Some((Ipv6Prefix::of(addr, 64), Lease::Ipv6(at, number)))
            },
        )
    }

    /// Takes an address that was given out before a restart, wherever its pool stands in the configuration now; `None` if no pool has
    /// it any more, or somebody has it already.
    pub(crate) fn claim_ipv4(&mut self, instance: InstanceId, addr: Ipv4Addr) -> Option<Lease> {
        let mut pools = self.0.iter_mut().enumerate().filter(|(_, (pool, ..))| pool.instance == instance);
        pools.find_map(|(at, (pool, numbers, _))| {
            let number = addr.to_bits().checked_sub(pool.ipv4?.0.to_bits())?.checked_sub(1)?;
            numbers.claim(number).then_some(Lease::Ipv4(at, number))
        })
    }

    /// As [`UePools::claim_ipv4`], of a prefix.
    pub(crate) fn claim_ipv6(&mut self, instance: InstanceId, prefix: Ipv6Prefix) -> Option<Lease> {
        let mut pools = self.0.iter_mut().enumerate().filter(|(_, (pool, ..))| pool.instance == instance);
        pools.find_map(|(at, (pool, _, numbers))| {
            let ahead = prefix.addr.to_bits().checked_sub(pool.ipv6?.addr.to_bits())?;
            let number = u32::try_from(ahead >> 64).ok()?;
            numbers.claim(number).then_some(Lease::Ipv6(at, number))
        })
    }

    pub(crate) fn give_back(&mut self, lease: Lease) {
        match lease {
            Lease::Ipv4(pool, number) => self.0[pool].1.give_back(number),
            Lease::Ipv6(pool, number) => self.0[pool].2.give_back(number),
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
}
