//! The in-kernel offload: sessions whose rules fit are forwarded in the driver, all else is left as it came
//! to the steering, and so to the engine.
//!
//! ```text
//!            ┌─ offload ─ record found, all plain ─▶ rewritten, counted ─▶ DEVMAP or XDP_TX
//!  driver ─▶ ┤
//!            └─ steering (see the crate) ─▶ AF_XDP ─▶ engine
//! ```
//!
//! One [`Offload`] serves the programs of all interfaces ([`Steering::load_offload`](crate::Steering::load_offload)). Its
//! tables lie in memory that this process and the kernel share, so writing a session is a few stores. The usage counters
//! are the node's own, mapped into the kernel: nothing is merged later. `bpf/offload.bpf.h` is the other side.

mod abi;
mod events;
mod groups;
mod left;
mod lost;
mod port;
mod record;
mod table;
mod usage;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kaido_xdp::grace::Grace;
use kaido_xdp::maps::{self, SharedArray, Table, address_key};
use kaido_xdp::{ADDRESSES_MAX, Error};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, OpenMapMut};

pub use self::abi::{
    CELLS_MAX, LINES_MAX, NEIGHBOURS_MAX, OWN_ADDRESSES_MAX, OffloadCounters, OffloadDrop, POLICERS_MAX,
    PORTS_MAX, PassReason, ROUTES_MAX, USAGE_MAX, VLANS_MAX,
};
pub use self::left::{Counted, LAYOUT, LeftTables, wait_for_programs};
pub use self::lost::{FrameLosses, LostFrames};
pub use self::port::{Vlan, VlanRole};
pub use self::record::{
    Counts, Hop, OffloadDestination, OffloadDirection, OffloadKey, OffloadLine, OffloadMatch, OffloadNextHop,
    OffloadRecord, OffloadRoute, OffloadRule, Template, UsageCell,
};

use self::abi::{Cell, Globals, OWN_WORDS, Policer, RawHop, RawRecord, RawRoutes, RawTemplate, Versioned};
use self::events::Events;
use self::record::{Limits, check, prefix_words};
use self::table::RecordTable;
use self::usage::Usage;

pub(crate) use self::abi::NO_INSTANCE;
pub(crate) use self::port::OffloadPort;

/// What an offload has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadConfig {
    /// Records: a session has one for its tunnel and one for each UE address. At most 2³⁰, however many are asked for.
    pub records_max: u32,
    /// Records of these that may have several rules.
    pub groups_max: u32,
    /// Usage counters.
    pub usage_cells_max: u32,
    /// Policers.
    pub policers_max: u32,
    /// Templates.
    pub templates_max: u32,
    /// Next hops.
    pub hops_max: u32,
    /// What concerns every packet.
    pub flags: OffloadFlags,
    /// Words of [`Offload::leak_ue_networks`], a power of two: packets to the networks noted there are the engine's. Zero: none are
    /// noted, and packets from UE to UE are routed as any others.
    pub ue_network_words: u32,
    /// Secret of the keyed hash: random, and odd words.
    pub seed: [u64; 4],
}

impl OffloadConfig {
    /// Memory of the tables that grow with sessions, in bytes: taken when they are made.
    pub fn bytes(&self) -> u64 {
        let of = |count: u32, size: usize| u64::from(count) * size as u64;
        table::bytes_for(self.records_max)
            + of(self.groups_max, size_of::<abi::RawGroup>())
            + of(self.usage_cells_max, size_of::<Cell>())
            + of(self.policers_max, size_of::<Policer>())
    }
}

/// What concerns every packet, and may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffloadFlags {
    /// The outer source port is always 2152; else it carries the flow's entropy (TS 29.281 4.4.2.0).
    pub fixed_source_port: bool,
    /// Congestion marks of outer headers go over to the packet inside.
    pub ecn: bool,
    /// TCP segments that open a connection are the engine's, which lowers the MSS that they announce.
    pub no_syn: bool,
}

impl OffloadFlags {
    fn bits(self) -> u32 {
        let port_fixed = if self.fixed_source_port { abi::PORT_FIXED } else { 0 };
        let no_syn = if self.no_syn { abi::NO_SYN } else { 0 };
        port_fixed | no_syn | if self.ecn { abi::ECN } else { 0 }
    }
}

impl Default for OffloadFlags {
    fn default() -> Self {
        Self { fixed_source_port: false, ecn: true, no_syn: false }
    }
}

/// What the offload refuses.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OffloadError {
    /// As many records as there is room for.
    #[error("the offload holds {limit} records already: its limit")]
    Full {
        /// How many it may hold.
        limit: u32,
    },
    /// Both places of the key are full, and so are those their keys could move to.
    #[error("no place for the key in the offload's table: the session stays with the engine")]
    Crowded,
    /// As many records of several rules as there is room for.
    #[error("the offload holds {limit} records of several rules already: its limit")]
    NoGroup {
        /// How many it may hold.
        limit: u32,
    },
    /// An identifier beyond the configured limit.
    #[error("{what} {value} is out of range: the limit is {limit}")]
    OutOfRange {
        /// What it identifies.
        what: &'static str,
        /// The identifier.
        value: u32,
        /// What it has to be below.
        limit: u32,
    },
    /// A tunnel's ends are of two families.
    #[error("no tunnel leads from {local} to {peer}: one is an IPv4 address and one an IPv6 address")]
    TwoFamilies {
        /// Our end.
        local: IpAddr,
        /// The peer's.
        peer: IpAddr,
    },
    /// Asked of a program that was loaded without the offload.
    #[error("the program has no offload")]
    NoOffload,
    /// The timing program met packets that were not forwarded: what it timed says nothing.
    #[error("the offload left {packets} timed packets to the engine, or the program failed")]
    NotForwarded {
        /// How many.
        packets: u32,
    },
    /// The kernel refused.
    #[error(transparent)]
    Bpf(#[from] Error),
}

/// A usage counter reached a limit, which was taken away: it is told once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThresholdEvent {
    /// The session of the record that counted.
    pub session: u32,
    /// The counter.
    pub cell: u32,
}

/// The offload's tables, shared by the programs of all interfaces. One thread writes; programs read all the while.
#[derive(Debug)]
pub struct Offload {
    table: RecordTable,
    policers: SharedArray<Policer>,
    templates: SharedArray<Versioned<RawTemplate>>,
    hops: SharedArray<Versioned<RawHop>>,
    globals: SharedArray<Globals>,
    ues: SharedArray<AtomicU64>,
    own: Table<16>,
    endpoint_map: MapHandle,
    /// Numbers of the local IPv6 addresses that tunnels end at. An address keeps its number.
    endpoints: BTreeMap<Ipv6Addr, u16>,
    neighbour_map: MapHandle,
    /// What is in it.
    neighbours: BTreeMap<[u8; 16], u32>,
    devices: MapHandle,
    events: Events,
    grace: Grace,
}

impl Offload {
    /// Most bytes of packets that are counted and not in their usage cell yet; none while a limit of the cell is twice as near.
    pub const KEPT_MAX: u64 = usage::KEPT_MAX;

    /// Makes the tables, empty.
    ///
    /// # Errors
    /// [`Error::Permission`], [`Error::Libbpf`] or [`Error::Sys`] when the kernel has not so much memory.
    pub fn load(config: &OffloadConfig) -> Result<Self, Error> {
        let own = create(MapType::Hash, "offload_own", 16, 1, 2 * entries(OWN_ADDRESSES_MAX))?;
        let usage = Usage::create(config.usage_cells_max.max(1))?;
        let fast = Self {
            table: RecordTable::create(config.records_max, config.groups_max, config.seed, usage)?,
            policers: SharedArray::create("offload_policers", config.policers_max.max(1))?,
            templates: SharedArray::create("offload_templates", config.templates_max.max(1))?,
            hops: SharedArray::create("offload_hops", config.hops_max.max(1))?,
            globals: SharedArray::create("offload_globals", 1)?,
            ues: SharedArray::create("offload_ues", config.ue_network_words.max(1))?,
            own: Table::new(own, "own addresses", OWN_ADDRESSES_MAX),
            endpoint_map: create(MapType::Hash, "offload_endpoints", 16, 4, entries(ADDRESSES_MAX))?,
            endpoints: BTreeMap::new(),
            neighbour_map: neighbour_map()?,
            neighbours: BTreeMap::new(),
            devices: create(MapType::DevmapHash, "offload_devices", 4, 4, abi::DEVICES_MAX)?,
            events: Events::create()?,
            grace: Grace::create("offload_readers")?,
        };
        let ue_shift =
            config.ue_network_words.checked_ilog2().map_or(0, |words| u64::BITS - u64::BITS.ilog2() - words);
        // SAFETY: no program has the map yet.
        unsafe {
            let globals = fast.globals.at(0).as_ptr();
            (&raw mut (*globals).seed).write(config.seed);
            (&raw mut (*globals).buckets).write(fast.table.buckets().len());
            (&raw mut (*globals).ue_shift).write(ue_shift);
        }
        fast.set_flags(config.flags);
        Ok(fast)
    }

    /// Changes what concerns every packet.
    pub fn set_flags(&self, flags: OffloadFlags) {
        // SAFETY: programs read it, and nobody else writes.
        let place = unsafe { &(*self.globals.at(0).as_ptr()).flags };
        place.store(flags.bits(), Ordering::Relaxed);
    }

    /// Puts a record under a key. One that is there is replaced: each packet sees the old or the new, and once this has returned
    /// the new. For that it waits as long as a packet takes.
    ///
    /// The key must be none of the node's own addresses.
    ///
    /// # Errors
    /// [`OffloadError::OutOfRange`], [`OffloadError::Full`], [`OffloadError::Crowded`]: nothing has changed then.
    pub fn insert_or_replace(&mut self, key: OffloadKey, record: &OffloadRecord) -> Result<(), OffloadError> {
        let key = key.raw(|local| self.number(local))?;
        let raw = record.raw(key, self.limits())?;
        self.table.put(&raw, record.session, &self.grace)?;
        self.expect_groups();
        Ok(())
    }

    /// Takes a record away; whether it was there. Packets that found it before may still be forwarded by it: a usage
    /// counter it named is free only after [`wait_for_readers`](Self::wait_for_readers).
    pub fn remove(&mut self, key: &OffloadKey) -> bool {
        let was_there = self.known(key).is_some_and(|key| self.table.remove(&key));
        self.expect_groups();
        was_there
    }

    /// Tells programs where to look for groups ahead.
    fn expect_groups(&self) {
        // SAFETY: programs read it, and nobody else writes.
        let places = unsafe { &(*self.globals.at(0).as_ptr()).groups };
        for (place, groups) in places.iter().zip(self.table.groups_expected()) {
            // Written only when it changes: every packet reads the line.
            if place.load(Ordering::Relaxed) != groups {
                place.store(groups, Ordering::Relaxed);
            }
        }
    }

    /// Whether there is a record under a key.
    pub fn contains(&self, key: &OffloadKey) -> bool {
        self.known(key).is_some_and(|key| self.table.contains(&key))
    }

    /// A record that has the key and nothing else; `None` for a tunnel over IPv6 to an address that no record was ever for.
    fn known(&self, key: &OffloadKey) -> Option<RawRecord> {
        key.raw(|local| self.endpoints.get(&local).copied().ok_or(())).ok()
    }

    /// The number of a local IPv6 address, given when it is first asked for.
    fn number(&mut self, local: Ipv6Addr) -> Result<u16, OffloadError> {
        if let Some(&number) = self.endpoints.get(&local) {
            return Ok(number);
        }
        let number = entries(self.endpoints.len());
        check("number of local IPv6 addresses", number, entries(ADDRESSES_MAX))?;
        self.endpoint_map
            .update(&address_key(local.into()), &number.to_ne_bytes(), MapFlags::ANY)
            .map_err(Error::libbpf("adding an address to a BPF map"))?;
        #[allow(clippy::cast_possible_truncation)] // Below ADDRESSES_MAX.
        let number = number as u16;
        self.endpoints.insert(local, number);
        Ok(number)
    }

    /// How many records there are.
    pub fn len(&self) -> u32 {
        self.table.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets a template, or takes it away: then packets into its tunnels are the engine's. Replacing one waits for a grace
    /// period, during which they are too.
    ///
    /// # Errors
    /// [`OffloadError::OutOfRange`], [`OffloadError::Bpf`].
    pub fn set_template(&mut self, id: u32, template: Option<&Template>) -> Result<(), OffloadError> {
        check("template", id, self.templates.len())?;
        let raw = template.map(|template| template.raw(self.limits())).transpose()?;
        set_guarded(&self.templates, id, raw, &self.grace);
        Ok(())
    }

    /// Sets a next hop, or takes it away: then packets to it are the engine's. Replacing one waits for a grace period,
    /// during which they are too.
    ///
    /// # Errors
    /// [`OffloadError::OutOfRange`]; [`OffloadError::Bpf`] when there is no such interface.
    pub fn set_hop(&mut self, id: u32, hop: Option<&Hop>) -> Result<(), OffloadError> {
        check("next hop", id, self.hops.len())?;
        if let Some(hop) = hop {
            let key = hop.ifindex.to_ne_bytes();
            self.devices
                .update(&key, &key, MapFlags::ANY)
                .map_err(Error::libbpf("adding an interface to the device map"))?;
        }
        set_guarded(&self.hops, id, hop.map(Hop::raw), &self.grace);
        Ok(())
    }

    /// Counts the frames that devices of the calling thread's network namespace do not take which are redirected to them: nothing
    /// else tells of their loss.
    ///
    /// # Errors
    /// [`Error::Permission`] (`CAP_PERFMON` too), [`Error::Libbpf`] where the kernel has no BTF.
    pub fn count_losses(&self) -> Result<FrameLosses, Error> {
        FrameLosses::attach(&self.devices)
    }

    /// The node's own addresses, of all interfaces: packets to them are never forwarded. Those that stay are never
    /// missing.
    ///
    /// # Errors
    /// [`Error::TooMany`], [`Error::Libbpf`].
    pub fn set_own_addresses(&mut self, addresses: &[IpAddr]) -> Result<(), Error> {
        let keys: BTreeSet<_> = addresses.iter().copied().map(address_key).collect();
        let filter = own_filter(addresses);
        // SAFETY: born zeroed; the filter is made of atomics, and only read by others.
        let words = unsafe { &(*self.globals.at(0).as_ptr()).own };
        for (word, bits) in words.iter().zip(filter) {
            word.fetch_or(bits, Ordering::Relaxed);
        }
        self.own.replace(&keys)?;
        for (word, bits) in words.iter().zip(filter) {
            word.store(bits, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The routes of all VRFs, at most [`ROUTES_MAX`] of a family, in any order: of those of a VRF that lead to a destination the
    /// longest prefix counts. Each packet goes by those of before or by these.
    ///
    /// # Errors
    /// [`OffloadError::OutOfRange`]: nothing has changed then.
    pub fn set_routes(&mut self, routes: &[OffloadRoute]) -> Result<(), OffloadError> {
        let limits = self.limits();
        let mut words = [Vec::new(), Vec::new()];
        let mut sorted = routes.to_vec();
        sorted.sort_by_key(|route| std::cmp::Reverse(route.to.1));
        for route in &sorted {
            let (address, len) = route.to;
            words[usize::from(address.is_ipv6())].push((
                prefix_words(address, len),
                route.raw_way(limits)?,
                route.vrf,
            ));
        }
        for words in &words {
            check("number of routes", entries(words.len()), entries(ROUTES_MAX) + 1)?;
        }
        // SAFETY: born zeroed; what is touched is made of atomics, and only read by others.
        let (at, both) = unsafe {
            let globals = self.globals.at(0).as_ptr();
            (&(*globals).routes_at, &(*globals).routes)
        };
        let next = at.load(Ordering::Relaxed) ^ 1;
        let RawRoutes { len, routes: places } = &both[next as usize & 1];
        for ((words, places), len) in words.iter().zip(places).zip(len) {
            for (&((value, mask), next_hop, vrf), place) in words.iter().zip(places) {
                place.to.value.store(value, Ordering::Relaxed);
                place.to.mask.store(mask, Ordering::Relaxed);
                place.next_hop.store(next_hop, Ordering::Relaxed);
                place.vrf.store(vrf, Ordering::Relaxed);
            }
            len.store(entries(words.len()), Ordering::Relaxed);
        }
        at.store(next, Ordering::Release);
        // Nobody reads the others any more, which are written next.
        self.grace.wait();
        Ok(())
    }

    /// Hops to addresses on links, for routes that lead there. Those that stay are never missing. Those beyond
    /// [`NEIGHBOURS_MAX`] are left out.
    ///
    /// # Errors
    /// [`OffloadError::Bpf`].
    pub fn set_neighbours(&mut self, hops: &BTreeMap<IpAddr, u32>) -> Result<(), OffloadError> {
        let wanted: BTreeMap<_, _> =
            hops.iter().take(NEIGHBOURS_MAX).map(|(&address, &hop)| (address_key(address), hop)).collect();
        let fault = Error::libbpf("writing a BPF map");
        for gone in self.neighbours.keys().filter(|known| !wanted.contains_key(*known)) {
            match self.neighbour_map.delete(gone) {
                Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
                    return Err(fault(error).into());
                }
                _ => {}
            }
        }
        for (key, hop) in wanted.iter().filter(|(key, hop)| self.neighbours.get(*key) != Some(hop)) {
            self.neighbour_map.update(key, &hop.to_ne_bytes(), MapFlags::ANY).map_err(&fault)?;
        }
        self.neighbours = wanted;
        Ok(())
    }

    /// The usage counters of [`usage_memory`](Self::usage_memory), eight words each, for as long as the process lives:
    /// mapped once more, and never unmapped.
    ///
    /// # Errors
    /// [`Error::Sys`].
    pub fn leak_usage_cells(&self) -> Result<&'static [AtomicU64], Error> {
        leak(self.cells())
    }

    /// The policers, `policers_max` of eight words each, zero at first, for as long as the process lives: two token buckets each,
    /// uplink and downlink, as `kaido_table::TokenBucket` has them. Programs take from them too.
    ///
    /// # Errors
    /// [`Error::Sys`].
    pub fn leak_policers(&self) -> Result<&'static [AtomicU64], Error> {
        leak(&self.policers)
    }

    /// A bit for each network that has UEs, all clear at first, for as long as the process lives: laid out as the node's
    /// (`kaido_upf::ue_networks`). Programs leave packets of UEs to such networks to the engine.
    ///
    /// # Errors
    /// [`Error::Sys`].
    pub fn leak_ue_networks(&self) -> Result<&'static [AtomicU64], Error> {
        leak(&self.ues)
    }

    /// Has the policers' clock run since `since`, as that of who else takes from them.
    pub fn begin_policers(&self, since: Duration) {
        // SAFETY: born zeroed; an atomic number, and only read by others.
        let began = unsafe { &(*self.globals.at(0).as_ptr()).policers_began };
        began.store(monotonic_ns().wrapping_sub(nanos(since)), Ordering::Relaxed);
    }

    /// The usage counters: `usage_cells_max` cells of 64 bytes, laid out as the node's. Eight bytes each: uplink
    /// bytes and packets, downlink bytes and packets, then the complements of the uplink, downlink and total byte
    /// counts at which a threshold is due. The last eight are free. Programs add to them atomically, and late
    /// ([`sync`](Self::sync)). Zeroed at first; valid while this value lives.
    pub fn usage_memory(&self) -> (NonNull<u8>, usize) {
        self.cells().memory()
    }

    /// The thresholds reached since the last call.
    pub fn events(&mut self) -> impl Iterator<Item = ThresholdEvent> {
        std::iter::from_fn(|| {
            let cell = self.events.next()?;
            let session = self.table.usage().session(cell)?;
            Some(ThresholdEvent { session, cell })
        })
    }

    /// Has what programs have counted of a usage counter in its cell, where up to [`KEPT_MAX`](Self::KEPT_MAX) may be missing.
    /// Programs go on meanwhile.
    pub fn sync(&mut self, cell: u32) {
        self.table.sync(cell);
    }

    /// To be called when limits of a usage counter were set: from here on the packet that reaches one tells, whatever programs
    /// saw before. As [`sync`](Self::sync), too.
    pub fn flush(&mut self, cell: u32) {
        // Before a session has records there is nobody to wait for.
        if self.table.usage().keepers(cell).next().is_some() {
            // Who has seen other limits is done then.
            self.grace.wait();
            self.table.sync(cell);
        }
    }

    /// Returns when no program still works by a record, template or hop that was taken away or replaced before the call:
    /// their usage counters may have new owners then. Takes as long as a packet takes.
    pub fn wait_for_readers(&mut self) {
        self.table.reclaim(&self.grace);
    }

    /// Has a map of an object that is not yet loaded be this offload's, if it is one of those that are shared.
    fn share(&self, map: &mut OpenMapMut<'_>) -> Result<(), Error> {
        let shared = match map.name().to_str() {
            Some("offload_globals") => self.globals.map(),
            Some("offload_buckets") => self.table.buckets().map(),
            Some("offload_groups") => self.table.groups().map(),
            Some("offload_policers") => self.policers.map(),
            Some("offload_cells") => self.cells().map(),
            Some("offload_templates") => self.templates.map(),
            Some("offload_hops") => self.hops.map(),
            Some("offload_readers") => self.grace.map(),
            Some("offload_ues") => self.ues.map(),
            Some("offload_own") => self.own.map().as_fd(),
            Some("offload_endpoints") => self.endpoint_map.as_fd(),
            Some("offload_neighbours") => self.neighbour_map.as_fd(),
            Some("offload_devices") => self.devices.as_fd(),
            Some("offload_events") => self.events.map().as_fd(),
            _ => return Ok(()),
        };
        map.reuse_fd(shared).map_err(Error::libbpf("sharing a BPF map"))
    }

    fn cells(&self) -> &SharedArray<Cell> {
        self.table.usage().cells()
    }

    fn limits(&self) -> Limits {
        let (cells, policers) = (self.cells().len(), self.policers.len());
        Limits { cells, policers, templates: self.templates.len(), hops: self.hops.len() }
    }
}

/// Prepares a map of an object that is not yet loaded: with an offload and so many slots of counters, or without its maps.
pub(crate) fn prepare(map: &mut OpenMapMut<'_>, offload: Option<(&Offload, u32)>) -> Result<(), Error> {
    match offload {
        Some((_, slots)) if map.name() == "offload_counters" => {
            map.set_max_entries(slots.max(1)).map_err(Error::libbpf("sizing a BPF map"))
        }
        Some((offload, _)) => offload.share(map),
        None if map.name().to_string_lossy().starts_with("offload_") => {
            map.set_autocreate(false).map_err(Error::libbpf("leaving out a BPF map"))
        }
        None => Ok(()),
    }
}

/// Puts a value where programs may be reading another: they are kept off while it is written.
fn set_guarded<T: Copy + PartialEq>(
    array: &SharedArray<Versioned<T>>,
    id: u32,
    value: Option<T>,
    grace: &Grace,
) {
    let place = array.at(id).as_ptr();
    // SAFETY: in range and born zeroed; a word that both sides only touch whole.
    let valid = unsafe { &(*place).valid };
    // SAFETY: only this value's owner, of whom there is one, writes the field.
    let current = unsafe { (&raw const (*place).value).read() };
    let was_valid = valid.load(Ordering::Relaxed) != 0;
    if was_valid && value == Some(current) {
        return;
    }
    if was_valid {
        valid.store(0, Ordering::Relaxed);
        grace.wait();
    }
    let Some(value) = value else { return };
    // SAFETY: nobody reads the field: `valid` was zero all through a grace period, or ever.
    unsafe { (&raw mut (*place).value).write(value) };
    // Programs have no acquire load: where the processor lets one read the value ahead of `valid`, whoever may have read
    // a half-written value has to be gone before it is declared valid.
    if cfg!(not(target_arch = "x86_64")) {
        grace.wait();
    }
    valid.store(1, Ordering::Release);
}

/// The words of all elements, mapped once more, and never unmapped. Elements are made of atomic words.
fn leak<T>(array: &SharedArray<T>) -> Result<&'static [AtomicU64], Error> {
    let mapping = std::mem::ManuallyDrop::new(array.map_again()?);
    let words = array.len() as usize * size_of::<T>() / size_of::<AtomicU64>();
    // SAFETY: so many words are mapped, page-aligned, and stay so: the mapping is never dropped. Programs and this
    // process only touch them atomically.
    Ok(unsafe { std::slice::from_raw_parts(mapping.base().cast::<AtomicU64>().as_ptr(), words) })
}

/// The clock of `bpf_ktime_get_ns`.
fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to `now`; the clock is there always.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The bits of the filter in `offload_globals` that stand for the addresses; `offload_is_own` computes the same.
fn own_filter(addresses: &[IpAddr]) -> [u64; OWN_WORDS] {
    let mut filter = [0; OWN_WORDS];
    for address in addresses {
        let folded = match address {
            IpAddr::V4(v4) => u64::from(u32::from_ne_bytes(v4.octets())),
            IpAddr::V6(v6) => {
                let bytes = v6.octets();
                let (words, _) = bytes.as_chunks::<8>();
                words.iter().fold(0, |folded, word| folded ^ u64::from_ne_bytes(*word))
            }
        };
        let bit = folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        let word = usize::try_from(bit >> 6).unwrap_or(0) % OWN_WORDS;
        filter[word] |= 1 << (bit & 63);
    }
    filter
}

fn entries(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn neighbour_map() -> Result<MapHandle, Error> {
    let mut options = maps::options();
    options.map_flags = libbpf_sys::BPF_F_NO_PREALLOC;
    MapHandle::create(MapType::Hash, Some("offload_neighbours"), 16, 4, entries(NEIGHBOURS_MAX), &options)
        .map_err(Error::libbpf("creating a BPF map"))
}

fn create(kind: MapType, name: &str, key: u32, value: u32, entries: u32) -> Result<MapHandle, Error> {
    MapHandle::create(kind, Some(name), key, value, entries, &maps::options())
        .map_err(Error::libbpf("creating a BPF map"))
}
