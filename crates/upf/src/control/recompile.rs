//! Records of sessions that stand, compiled anew when a setting changes that they are made of.
//!
//! Some sessions a turn, so that requests are served all the while. Until its turn a session goes on by the records that it has.

use std::time::SystemTime;

use super::Upf;
use crate::ids::SessionIndex;

/// Sessions that are compiled in a turn, at most.
const SESSIONS_PER_TURN: usize = 64;
/// Places of sessions, taken or free, that are looked at in a turn, at most.
const PLACES_PER_TURN: usize = 4096;

impl Upf {
    /// Has all sessions compiled anew, from the next turn on.
    pub(super) fn recompile_all(&mut self) {
        self.recompiled_next = Some(0);
    }

    /// Whether sessions are left that are to be compiled anew.
    pub fn is_recompiling(&self) -> bool {
        self.recompiled_next.is_some()
    }

    /// Compiles some sessions anew.
    pub(super) fn turn_recompiling(&mut self, now: SystemTime) {
        let Some(first) = self.recompiled_next else { return };
        let end = self.sessions.places().min(first + PLACES_PER_TURN);
        let (mut next, mut compiled) = (first, 0);
        while next < end && compiled < SESSIONS_PER_TURN {
            let index = SessionIndex(u32::try_from(next).unwrap_or(u32::MAX));
            next += 1;
            match self.compile_anew(index, now) {
                Ok(is_there) => compiled += usize::from(is_there),
                Err(why) => {
                    let seid = self.sessions.seid(index).unwrap_or_default();
                    tracing::warn!(%seid, %why, "a session goes on by the settings of before");
                    compiled += 1;
                }
            }
        }
        self.recompiled_next = (next < self.sessions.places()).then_some(next);
    }
}
