//! Records of sessions that stand, compiled anew when a setting changes that they are made of.
//!
//! Some sessions a turn, so that requests are served all the while. Until its turn a session goes on by the records that it has.

use std::time::SystemTime;

use kaido_n4::Rejection;

use super::Upf;
use super::withdrawn::names_anything;
use crate::ids::SessionIndex;

/// Sessions that are compiled in a turn, at most.
const SESSIONS_PER_TURN: usize = 64;
/// Places of sessions, taken or free, that are looked at in a turn, at most.
const PLACES_PER_TURN: usize = 4096;

/// Which sessions are compiled anew, the fewest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RecompileScope {
    /// Those that name rules or policies of the configuration.
    Naming,
    /// All.
    All,
}

/// Sessions that are compiled anew.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recompilation {
    scope: RecompileScope,
    /// The place of the next.
    next: usize,
    /// Those that cannot be, and go on as before.
    refused: u64,
}

impl Upf {
    /// Has sessions compiled anew, from the next turn on.
    pub(super) fn recompile(&mut self, scope: RecompileScope) {
        let scope = self.recompiling.map_or(scope, |before| before.scope.max(scope));
        self.recompiling = Some(Recompilation { scope, next: 0, refused: 0 });
    }

    /// Whether sessions are left that are to be compiled anew.
    pub fn is_recompiling(&self) -> bool {
        self.recompiling.is_some()
    }

    /// Compiles some sessions anew.
    pub(super) fn turn_recompiling(&mut self, now: SystemTime) {
        let Some(Recompilation { scope, next: first, mut refused }) = self.recompiling else { return };
        let end = self.sessions.places().min(first + PLACES_PER_TURN);
        let (mut next, mut compiled) = (first, 0);
        while next < end && compiled < SESSIONS_PER_TURN {
            let index = SessionIndex(u32::try_from(next).unwrap_or(u32::MAX));
            next += 1;
            match self.recompile_one(scope, index, now) {
                Ok(is_there) => compiled += usize::from(is_there),
                Err(why) => {
                    compiled += 1;
                    refused += 1;
                    if refused == 1 {
                        let seid = self.sessions.seid(index).unwrap_or_default();
                        tracing::warn!(%seid, %why, "a session goes on by the settings of before");
                    }
                }
            }
        }
        let is_over = next >= self.sessions.places();
        if is_over && refused > 1 {
            tracing::warn!(sessions = refused, "sessions go on by the settings of before");
        }
        self.recompiling = (!is_over).then_some(Recompilation { scope, next, refused });
    }

    fn recompile_one(
        &mut self,
        scope: RecompileScope,
        index: SessionIndex,
        now: SystemTime,
    ) -> Result<bool, Rejection> {
        if scope == RecompileScope::Naming {
            self.finish_for(index, now);
            let Some(session) = self.sessions.get(index) else { return Ok(false) };
            if !names_anything(&session.state.rules) {
                return Ok(true);
            }
        }
        self.compile_anew(index, now)
    }
}
