//! Addresses that a session has by the control plane's word: those that its rules name, and those that it had at another
//! user plane.

use std::time::Instant;

use kaido_table::{Guard, TableError};

use super::{FdbStations, SentTags, State, StationEntry, entry_of};
use crate::ethernet::Station;
use crate::ids::SessionIndex;
use kaido_n4::PdrId;

impl FdbStations {
    /// Whether so many addresses that a session's rules name have a place.
    pub(crate) fn has_room(&self, named: usize) -> bool {
        named <= self.per_session && (named == 0 || self.state().count + named <= self.addresses_max)
    }

    /// Gives a session the addresses that its rules name, and takes the mark from those that they name no
    /// more. The sessions that have lost some.
    ///
    /// # Errors
    /// [`TableError::Full`] beyond what a session or the node may have; some may be there then.
    pub(crate) fn configure(
        &self,
        guard: &Guard<'_>,
        session: SessionIndex,
        named: &[(Station, PdrId, SentTags)],
        now: Instant,
    ) -> Result<Vec<SessionIndex>, TableError> {
        let second = self.second(now);
        let mut state = self.state();
        let mut asked = Vec::new();
        let own = state.sessions.entry(session).or_default();
        let mut freed = Vec::new();
        for known in &mut own.known {
            let was = known.configured;
            known.configured = named.iter().any(|(station, ..)| *station == known.station);
            freed.extend((was && !known.configured).then_some(known.station));
        }
        if let Some(table) = self.table.get() {
            freed
                .into_iter()
                .try_for_each(|station| table.replace(station, entry_of(session.0, false, second)))?;
        }
        for &(station, pdr, tags) in named {
            let known = StationEntry { station, pdr, tags, configured: true, told: false, seen: None };
            asked.extend(self.place(guard, &mut state, session, known, second)?);
        }
        Ok(asked)
    }

    /// Gives a session an address that the control plane says it has (Ethernet Context Information).
    ///
    /// # Errors
    /// As [`FdbStations::configure`].
    pub(crate) fn adopt(
        &self,
        guard: &Guard<'_>,
        session: SessionIndex,
        (station, pdr, tags): (Station, PdrId, SentTags),
        now: Instant,
    ) -> Result<Option<SessionIndex>, TableError> {
        let second = self.second(now);
        let known = StationEntry { station, pdr, tags, configured: false, told: true, seen: None };
        self.place(guard, &mut self.state(), session, known, second)
    }

    fn place(
        &self,
        guard: &Guard<'_>,
        state: &mut State,
        session: SessionIndex,
        known: StationEntry,
        second: u32,
    ) -> Result<Option<SessionIndex>, TableError> {
        let entry = self.entry(guard, &known.station);
        let is_own = entry.is_some_and(|entry| entry.owner == session.0);
        let held = state.sessions.get(&session).map_or(0, |own| own.known.len());
        if !is_own && held >= self.per_session {
            // One that was only learned gives way to what the control plane says.
            let learned = state
                .sessions
                .get(&session)
                .and_then(|own| own.known.iter().find(|known| !known.configured).map(|known| known.station));
            let learned = learned.ok_or(TableError::Full)?;
            self.release(guard, state, &learned);
            self.table.get().ok_or(TableError::Full)?.remove(&learned);
        }
        if !is_own && state.count >= self.addresses_max {
            return Err(TableError::Full);
        }
        let told = is_own
            && state.sessions.get(&session).is_some_and(|own| {
                own.known.iter().any(|other| other.station == known.station && other.told)
            });
        let lost = self.release(guard, state, &known.station).filter(|other| *other != session);
        if let Some(own) = state.sessions.get_mut(&session) {
            own.gone.retain(|other| other.station != known.station);
        }
        self.put(state, session, StationEntry { told: told || known.told, ..known }, second)?;
        Ok(lost)
    }
}
