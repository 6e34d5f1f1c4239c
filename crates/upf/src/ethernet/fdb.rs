//! Where each Ethernet address is: behind a session, or on the N6 side (TS 23.501 5.6.10.2).
//!
//! ```text
//!   worker: source of a frame ─▶ Table, without a lock ─▶ known: one mark at most
//!                                     └ new, or moved ─▶ State, under a lock ─▶ WorkerEvent::Stations
//!   control: take_changes · look (ageing) · configure · forget
//! ```
//! Between sessions an address follows the last frame that was sent from it. The N6 side is believed before a session.
//! While an address is in use there no session gets it, and it takes one over when the session has not just used it. A
//! session has so many addresses and no more; none of them pushes out another session's.

mod changes;
mod placed;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use kaido_table::{Domain, Guard, Table, TableError};

pub(crate) use self::changes::{Changes, SentTags};
use super::{EthernetSettings, Station};
use crate::ids::{InstanceId, SessionIndex};
use kaido_n4::{Mac, PdrId};

/// A frame from the N6 side with the address of a session that has sent within this time, in seconds, has come back: its
/// station has not moved so fast.
const HOLD_S: u32 = 2;

/// The owner that stands for the N6 side.
const NETWORK: u32 = u32::MAX;

/// Who has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A session.
    Session(SessionIndex),
    /// Somebody on the N6 side.
    Network,
}

/// What the table says of an address.
#[derive(Debug)]
struct Entry {
    owner: u32,
    /// By the rules of its session: no other may take it.
    configured: bool,
    /// Bit 0: used since ageing last looked. Above: the second of its last use.
    used: AtomicU32,
}

impl Entry {
    fn owner(&self) -> Owner {
        if self.owner == NETWORK { Owner::Network } else { Owner::Session(SessionIndex(self.owner)) }
    }

    /// Marks a use; most of the time it is marked already.
    fn touch(&self, second: u32) {
        let mark = second << 1 | 1;
        if self.used.load(Ordering::Relaxed) != mark {
            self.used.store(mark, Ordering::Relaxed);
        }
    }

    fn last_second(&self) -> u32 {
        self.used.load(Ordering::Relaxed) >> 1
    }
}

/// Why a session does not get an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The session has as many as it may, or the node.
    Full,
    /// It is in use on the N6 side, or another session's by its rules.
    Taken,
}

/// What a source address brought about: sessions whose addresses have changed, for the control side to look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LearnedAddress {
    /// The session that has a new one.
    pub gained: Option<SessionIndex>,
    /// The session that has lost one.
    pub lost: Option<SessionIndex>,
}

/// An address of a session.
#[derive(Clone, Copy, Debug)]
struct StationEntry {
    station: Station,
    /// The rule that saw it first.
    pdr: PdrId,
    tags: SentTags,
    configured: bool,
    /// The control plane was told.
    told: bool,
    /// When ageing last saw it used, in milliseconds; `None` before its first look.
    seen: Option<u64>,
}

/// The addresses of one session.
#[derive(Debug, Default)]
struct SessionStations {
    known: Vec<StationEntry>,
    /// Those that have gone, and whom the control plane was told of.
    gone: Vec<StationEntry>,
    /// Control was asked to look, and has not yet.
    asked: bool,
}

#[derive(Debug, Default)]
struct State {
    sessions: HashMap<SessionIndex, SessionStations>,
    /// Addresses of all sessions.
    count: usize,
    /// Those on the N6 side.
    network: HashSet<Station>,
    members: BTreeSet<Member>,
}

/// A session that frames to many go to: its network instance, and whether within a 5G virtual network.
pub(crate) type Member = (InstanceId, bool, SessionIndex);

/// The Ethernet addresses of a node. Takes its memory with the first Ethernet session.
#[derive(Debug)]
pub struct FdbStations {
    table: OnceLock<Table<Station, Entry>>,
    began: Instant,
    state: Mutex<State>,
    /// Moves when sessions join or leave a network instance.
    members_changed: AtomicU64,
    /// There is no room for more of the N6 side, so that nobody looks for it under the lock.
    network_full: AtomicBool,
    addresses_max: usize,
    per_session: usize,
    ageing: Duration,
}

impl FdbStations {
    pub(super) fn new(settings: &EthernetSettings) -> Self {
        Self {
            table: OnceLock::new(),
            began: Instant::now(),
            state: Mutex::default(),
            members_changed: AtomicU64::new(0),
            network_full: AtomicBool::new(false),
            addresses_max: settings.addresses_max as usize,
            per_session: settings.addresses_per_session,
            ageing: settings.ageing,
        }
    }

    /// Takes the memory for addresses, unless it is there already.
    ///
    /// # Errors
    /// [`TableError::Full`] when there is not so much.
    pub(crate) fn prepare(&self, domain: &Domain) -> Result<(), TableError> {
        if self.table.get().is_none() {
            // As many on the N6 side as of sessions, and places for entries that change while they are read.
            let places = u32::try_from(2 * self.addresses_max + 1024).unwrap_or(u32::MAX);
            let table = Table::new(domain, places).map_err(|_| TableError::Full)?;
            // Control alone does this, so nobody else has set it meanwhile.
            let _ = self.table.set(table);
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn second(&self, now: Instant) -> u32 {
        u32::try_from(now.saturating_duration_since(self.began).as_secs()).unwrap_or(u32::MAX)
            & (u32::MAX >> 1)
    }

    fn ageing_s(&self) -> u32 {
        u32::try_from(self.ageing.as_secs()).unwrap_or(u32::MAX)
    }

    fn entry<'g>(&'g self, guard: &'g Guard<'_>, station: &Station) -> Option<&'g Entry> {
        self.table.get()?.get(guard, station)
    }

    /// Where an address is.
    pub fn owner(&self, guard: &Guard<'_>, station: &Station) -> Option<Owner> {
        self.entry(guard, station).map(Entry::owner)
    }

    /// A session sends from an address.
    ///
    /// # Errors
    /// [`Refusal`] when it may not.
    pub fn learn(
        &self,
        guard: &Guard<'_>,
        station: Station,
        session: SessionIndex,
        (pdr, tags): (PdrId, SentTags),
        now: Instant,
    ) -> Result<LearnedAddress, Refusal> {
        let second = self.second(now);
        match self.entry(guard, &station) {
            Some(entry) if entry.owner == session.0 => {
                entry.touch(second);
                return Ok(LearnedAddress::default());
            }
            Some(entry) if self.keeps(entry, second) => return Err(Refusal::Taken),
            _ => {}
        }
        let known = StationEntry { station, pdr, tags, configured: false, told: false, seen: None };
        let mut state = self.state();
        let held = state.sessions.get(&session).map_or(usize::MAX, |own| own.known.len());
        if held >= self.per_session || state.count >= self.addresses_max {
            return Err(Refusal::Full);
        }
        let lost = self.release(guard, &mut state, &station);
        self.put(&mut state, session, known, second).map_err(|_| Refusal::Full)?;
        let gained = ask(&mut state, session);
        Ok(LearnedAddress { gained, lost })
    }

    /// Whether an entry is not a session's to take.
    fn keeps(&self, entry: &Entry, second: u32) -> bool {
        entry.configured
            || (entry.owner == NETWORK && second.saturating_sub(entry.last_second()) < self.ageing_s())
    }

    /// Somebody on the N6 side sends from an address.
    ///
    /// # Errors
    /// [`Refusal::Taken`] when a session has just sent from it: then its frame has come back.
    pub fn hear(&self, guard: &Guard<'_>, station: Station, now: Instant) -> Result<LearnedAddress, Refusal> {
        let second = self.second(now);
        match self.entry(guard, &station) {
            Some(entry) if entry.owner == NETWORK => {
                entry.touch(second);
                return Ok(LearnedAddress::default());
            }
            Some(entry) if entry.configured || second.saturating_sub(entry.last_second()) < HOLD_S => {
                return Err(Refusal::Taken);
            }
            None if self.network_full.load(Ordering::Relaxed) => return Ok(LearnedAddress::default()),
            _ => {}
        }
        let Some(table) = self.table.get() else { return Ok(LearnedAddress::default()) };
        let mut state = self.state();
        let lost = self.release(guard, &mut state, &station);
        // What there is no room for is not known to be there: nothing more follows from that.
        if state.network.len() < self.addresses_max
            && table.upsert(station, entry_of(NETWORK, false, second)).is_ok()
        {
            state.network.insert(station);
        } else {
            table.remove(&station);
        }
        self.network_full.store(state.network.len() >= self.addresses_max, Ordering::Relaxed);
        Ok(LearnedAddress { gained: None, lost })
    }

    /// Takes an address from whom it belongs to; the session that is to tell of it.
    fn release(&self, guard: &Guard<'_>, state: &mut State, station: &Station) -> Option<SessionIndex> {
        match self.entry(guard, station)?.owner() {
            Owner::Network => {
                state.network.remove(station);
                None
            }
            Owner::Session(session) => {
                let own = state.sessions.get_mut(&session)?;
                let at = own.known.iter().position(|known| known.station == *station)?;
                let known = own.known.swap_remove(at);
                own.gone.extend(known.told.then_some(known));
                state.count -= 1;
                ask(state, session)
            }
        }
    }

    fn put(
        &self,
        state: &mut State,
        session: SessionIndex,
        known: StationEntry,
        second: u32,
    ) -> Result<(), TableError> {
        let table = self.table.get().ok_or(TableError::Full)?;
        table.upsert(known.station, entry_of(session.0, known.configured, second))?;
        if let Some(own) = state.sessions.get_mut(&session) {
            own.known.push(known);
            state.count += 1;
        }
        Ok(())
    }

    /// What has changed of a session's addresses since the last call.
    pub(crate) fn take_changes(&self, session: SessionIndex) -> Changes {
        let mut state = self.state();
        let Some(own) = state.sessions.get_mut(&session) else { return Changes::default() };
        own.asked = false;
        let said = |known: &StationEntry| (known.pdr, known.station.mac, known.tags);
        let new = own.known.iter_mut().filter(|known| !known.told && !known.configured);
        let detected = new
            .map(|known| {
                known.told = true;
                said(known)
            })
            .collect();
        Changes { detected, removed: own.gone.drain(..).map(|known| said(&known)).collect() }
    }

    /// Looks which addresses of a session are in use, and lets go of those that were not for `ageing` milliseconds.
    /// When to look again, where there is any.
    pub(crate) fn look(
        &self,
        guard: &Guard<'_>,
        session: SessionIndex,
        ageing: u64,
        now: u64,
    ) -> Option<u64> {
        /// Looks at an address in its time.
        const LOOKS: u64 = 4;
        let table = self.table.get()?;
        let mut state = self.state();
        let own = state.sessions.get_mut(&session)?;
        let before = own.known.len();
        let SessionStations { known, gone, .. } = own;
        known.retain_mut(|known| {
            let used = self.entry(guard, &known.station).is_some_and(|entry| {
                // Relaxed: a use that is marked meanwhile counts for the next look.
                entry.used.fetch_and(!1, Ordering::Relaxed) & 1 != 0
            });
            let seen = known.seen.filter(|_| !used).unwrap_or(now);
            known.seen = Some(seen);
            let stays = known.configured || now.saturating_sub(seen) < ageing;
            if !stays {
                table.remove(&known.station);
                gone.extend(known.told.then_some(*known));
            }
            stays
        });
        let left = known.len();
        state.count -= before - left;
        let step = (ageing / LOOKS).max(250);
        (left > 0).then(|| now.saturating_add(step))
    }

    /// Lets go of addresses on the N6 side that are not in use any more.
    pub(crate) fn sweep_network(&self, guard: &Guard<'_>, now: Instant) {
        let Some(table) = self.table.get() else { return };
        let second = self.second(now);
        let mut state = self.state();
        state.network.retain(|station| {
            let last = self.entry(guard, station).map_or(0, Entry::last_second);
            let stays = second.saturating_sub(last) < self.ageing_s();
            if !stays {
                table.remove(station);
            }
            stays
        });
        self.network_full.store(state.network.len() >= self.addresses_max, Ordering::Relaxed);
    }

    /// Has frames to many in these network instances go to a session, and no longer to it in others. From then on it may
    /// have addresses.
    pub(crate) fn join(&self, session: SessionIndex, memberships: &BTreeSet<(InstanceId, bool)>) {
        let mut state = self.state();
        state.sessions.entry(session).or_default();
        let before = state.members.len();
        state.members.retain(|&(instance, within, other)| {
            other != session || memberships.contains(&(instance, within))
        });
        let mut changed = state.members.len() != before;
        for &(instance, within) in memberships {
            changed |= state.members.insert((instance, within, session));
        }
        if changed {
            self.members_changed.fetch_add(1, Ordering::Release);
        }
    }

    /// Forgets a session, all of whose records are gone.
    pub(crate) fn forget(&self, guard: &Guard<'_>, session: SessionIndex) {
        let mut state = self.state();
        let Some(own) = state.sessions.remove(&session) else { return };
        state.count -= own.known.len();
        for known in &own.known {
            let is_own = self.owner(guard, &known.station) == Some(Owner::Session(session));
            if let Some(table) = self.table.get().filter(|_| is_own) {
                table.remove(&known.station);
            }
        }
        let before = state.members.len();
        state.members.retain(|&(.., other)| other != session);
        if state.members.len() != before {
            self.members_changed.fetch_add(1, Ordering::Release);
        }
    }

    /// Moves when sessions join or leave.
    pub(crate) fn members_changed(&self) -> u64 {
        // Acquire: who has joined is seen with the count.
        self.members_changed.load(Ordering::Acquire)
    }

    /// The sessions of a network instance, or the members of a virtual network, that frames to many go to: at most `max`,
    /// and how many there are.
    pub(crate) fn members(
        &self,
        instance: InstanceId,
        within: bool,
        max: usize,
    ) -> (Box<[SessionIndex]>, usize) {
        let state = self.state();
        let (first, last) = (SessionIndex(0), SessionIndex(u32::MAX));
        let all = state.members.range((instance, within, first)..=(instance, within, last));
        let some = all.clone().take(max).map(|&(.., session)| session).collect();
        (some, all.count())
    }

    /// The Ethernet addresses of a session.
    pub(crate) fn of_session(&self, session: SessionIndex) -> Vec<Mac> {
        let state = self.state();
        let own = state.sessions.get(&session);
        own.map(|own| own.known.iter().map(|known| known.station.mac).collect()).unwrap_or_default()
    }
}

fn entry_of(owner: u32, configured: bool, second: u32) -> Entry {
    Entry { owner, configured, used: AtomicU32::new(second << 1 | 1) }
}

/// Asks control to look at a session, unless it was asked already.
fn ask(state: &mut State, session: SessionIndex) -> Option<SessionIndex> {
    let own = state.sessions.get_mut(&session)?;
    (!std::mem::replace(&mut own.asked, true)).then_some(session)
}

#[cfg(test)]
mod tests;
