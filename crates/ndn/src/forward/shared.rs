//! What all workers share: routes, strategy choices and the names of the region. Written by the control thread while the
//! workers read.

use std::sync::Arc;

use kaido_ndn_tables::{Fib, Hops, Lookup, NameHash, NameTable, NameTableError, Prefixes, components};
use kaido_table::{Domain, Guard, RegionError};

use super::strategy::StrategyChoice;

/// Strategy choices, and prefixes of region names, at most.
const CHOICES_MAX: u32 = 65_536;

/// Routes, strategy choices and region names.
#[derive(Debug)]
pub struct SharedTables {
    domain: Domain,
    hash: NameHash,
    fib: Fib,
    strategies: NameTable<StrategyChoice>,
    /// All prefixes of the region's names, each with how many names it is of.
    regions: NameTable<u32>,
}

impl SharedTables {
    /// For so many routes; the strategy of all names is best-route.
    ///
    /// # Errors
    /// [`RegionError`] when the address space is not to be had.
    pub fn new(hash: NameHash, prefixes_max: u32) -> Result<Arc<Self>, RegionError> {
        let domain = Domain::new();
        let fib = Fib::new(&domain, hash, prefixes_max)?;
        let strategies = NameTable::new(&domain, hash, CHOICES_MAX)?;
        let regions = NameTable::new(&domain, hash, CHOICES_MAX)?;
        Ok(Arc::new(Self { domain, hash, fib, strategies, regions }))
    }

    /// The epochs in which workers read.
    pub(super) fn domain(&self) -> &Domain {
        &self.domain
    }

    /// The hash of names.
    pub fn hash(&self) -> NameHash {
        self.hash
    }

    /// The routes.
    pub fn fib(&self) -> &Fib {
        &self.fib
    }

    /// The strategy choices; where there is none, best-route.
    pub fn strategies(&self) -> &NameTable<StrategyChoice> {
        &self.strategies
    }

    /// Adds a name of the region in which this node is: Interests with a forwarding hint that leads here go by their own
    /// names from here on.
    ///
    /// # Errors
    /// [`NameTableError`]; what was added before stays.
    pub fn add_region(&self, name: &[u8]) -> Result<(), NameTableError> {
        self.change_region(name, |count| Some(count.map_or(1, |count| count + 1)))
    }

    /// Removes a name of the region, which was added before.
    ///
    /// # Errors
    /// [`NameTableError`].
    pub fn remove_region(&self, name: &[u8]) -> Result<(), NameTableError> {
        self.change_region(name, |count| count.and_then(|count| (*count > 1).then(|| count - 1)))
    }

    fn change_region(
        &self,
        name: &[u8],
        change: impl Fn(Option<&u32>) -> Option<u32>,
    ) -> Result<(), NameTableError> {
        for component in components(name) {
            self.regions.update(&name[..component?.end], &change)?;
        }
        Ok(())
    }

    /// Begins lookups.
    pub(super) fn tables<'g>(&'g self, guard: &'g Guard<'_>) -> TableGuard<'g> {
        TableGuard {
            fib: self.fib.table().lookup(guard),
            strategies: self.strategies.lookup(guard),
            regions: self.regions.lookup(guard),
            hash: self.hash,
        }
    }
}

/// Lookups under one guard.
#[derive(Clone, Copy)]
pub(super) struct TableGuard<'g> {
    pub(super) fib: Lookup<'g, Hops>,
    pub(super) strategies: Lookup<'g, StrategyChoice>,
    regions: Lookup<'g, u32>,
    hash: NameHash,
}

impl<'g> TableGuard<'g> {
    /// The strategy of a name.
    #[inline(always)]
    pub(super) fn strategy(self, name: &[u8], prefixes: &Prefixes) -> StrategyChoice {
        if !self.strategies.is_plausible(prefixes) {
            return StrategyChoice::default();
        }
        self.strategies.longest(name, prefixes).map_or(StrategyChoice::default(), |(_, choice)| *choice)
    }

    /// Whether a delegation leads into the region.
    pub(super) fn is_in_region(self, delegation: &[u8], scratch: &mut Prefixes) -> bool {
        scratch.fill(&self.hash, delegation).is_ok()
            && self
                .regions
                .longest(delegation, scratch)
                .is_some_and(|(depth, _)| depth > 0 && depth == scratch.components())
    }

    /// The route of a delegation.
    pub(super) fn route(self, delegation: &[u8], scratch: &mut Prefixes) -> Option<(usize, &'g Hops)> {
        scratch.fill(&self.hash, delegation).ok()?;
        self.fib.longest(delegation, scratch)
    }
}
