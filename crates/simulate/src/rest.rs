//! Where all comes to rest, and what must be true then.

use std::time::Duration;

use crate::checks;
use crate::clock::time_of;
use crate::network::Link;
use crate::node::{BUFFER_TIME_MAX, Process};
use crate::session::{Shape, State};
use crate::smf::{ControlPlane, Turn};
use crate::traffic;
use crate::trouble::CrashPoint;
use crate::world::{Phase, World};

/// How long it takes at most until all has come to rest.
const REST_MAX: Duration = Duration::from_secs(180);

impl World {
    /// Lets all come to rest, and looks whether what is there is what was acknowledged.
    pub(crate) fn rest(&mut self) -> Result<(), String> {
        self.phase = Phase::Resting;
        (self.crash, self.machine_ends_at) = (None, None);
        self.drain()?;
        self.check()?;
        self.summary.rests += 1;
        self.phase = Phase::Rough;
        Ok(())
    }

    /// Looks whether what is there is what was acknowledged, and whether what was reported is what passed.
    fn check(&mut self) -> Result<(), String> {
        self.page()?;
        self.periods()?;
        // Whatever was counted is asked for.
        for at in 0..self.control_planes.len() {
            let active: Vec<u64> = self.up(at).collect();
            for seids in active.chunks(16) {
                self.ask(at, |smf, turn| {
                    seids.iter().for_each(|&seid| smf.query(turn, seid));
                    smf.heartbeat(turn);
                });
                self.drain()?;
            }
        }
        self.compare()
    }

    /// A packet for each UE that is idle: its control plane is told, and wakes it.
    fn page(&mut self) -> Result<(), String> {
        // The packet before it may have been told to nobody. The next is told when that one is too old.
        for _ in 0..2 {
            let now = self.now();
            let Some(process) = &mut self.process else { return Err("there is no node".to_owned()) };
            let sessions = self.control_planes.iter_mut().flat_map(|smf| smf.sessions.values_mut());
            for session in sessions.filter(|session| session.is_up() && session.is_idle()) {
                traffic::pass_down(&mut process.datapath, now, session, 100)?;
            }
            self.drain()?;
            let too_old = self.time + BUFFER_TIME_MAX;
            while self.is_any_idle() && self.time < too_old {
                self.step()?;
            }
        }
        match self.is_any_idle() {
            true => Err("a packet waits for a UE, and its control plane is not told".to_owned()),
            false => Ok(()),
        }
    }

    /// Each session that is to report again and again does, whatever has ended meanwhile.
    fn periods(&mut self) -> Result<(), String> {
        let reports = |smf: &ControlPlane| -> Vec<(u8, u64, usize)> {
            let periodic =
                smf.sessions.iter().filter(|(_, session)| session.is_up() && session.shape.period.is_some());
            periodic.map(|(&seid, session)| (smf.number, seid, session.report_count())).collect()
        };
        for at in 0..self.control_planes.len() {
            // Whom nothing was heard of for a while is sent no reports.
            self.ask(at, ControlPlane::heartbeat);
        }
        self.drain()?;
        let before: Vec<_> = self.control_planes.iter().flat_map(reports).collect();
        let until = self.time + Shape::PERIOD_MAX;
        self.phase = Phase::Waiting;
        while self.time < until {
            self.step()?;
        }
        self.phase = Phase::Resting;
        self.drain()?;
        let mut after = self.control_planes.iter().flat_map(reports);
        match before.iter().find(|(smf, seid, count)| {
            !after.any(|(of, other, now)| (of, other) == (*smf, *seid) && *count < now)
        }) {
            None => Ok(()),
            Some((smf, seid, _)) => Err(format!("session {seid} of smf {smf} does not report any more")),
        }
    }

    fn is_any_idle(&self) -> bool {
        let mut sessions = self.control_planes.iter().flat_map(|smf| smf.sessions.values());
        sessions.any(|session| session.is_up() && session.is_idle())
    }

    fn up(&self, at: usize) -> impl Iterator<Item = u64> + '_ {
        self.control_planes[at].sessions.iter().filter(|(_, session)| session.is_up()).map(|(&seid, _)| seid)
    }

    fn ask(&mut self, at: usize, what: impl FnOnce(&mut ControlPlane, &mut Turn<'_>)) {
        let (now, time, mut out) = (self.now(), self.time, Vec::new());
        let Self { control_planes, log, next, .. } = self;
        what(&mut control_planes[at], &mut Turn { now, time, out: &mut out, log, next });
        self.send_from(at, &out);
    }

    fn drain(&mut self) -> Result<(), String> {
        let until = self.time + REST_MAX;
        loop {
            self.step()?;
            let is_quiet = self.process.as_ref().is_some_and(Process::is_quiet)
                && self.store.is_settled()
                && self.links.iter().all(Link::is_empty)
                && self.control_planes.iter().all(|smf| smf.is_associated && smf.is_quiet());
            if is_quiet {
                return Ok(());
            }
            if self.time > until {
                let waits = |smf: &ControlPlane| (smf.is_associated, smf.is_quiet());
                let node = self.process.as_ref().map(|process| {
                    (process.is_quiet(), process.endpoint.outstanding(), process.endpoint.has_more())
                });
                return Err(format!(
                    "it does not come to rest: associated and quiet {:?}; node quiet, outstanding, has more {node:?}; store {}",
                    self.control_planes.iter().map(waits).collect::<Vec<_>>(),
                    self.store.is_settled()
                ));
            }
        }
    }

    fn compare(&mut self) -> Result<(), String> {
        let now = self.now();
        let Some(process) = &mut self.process else { return Err("there is no node".to_owned()) };
        checks::sessions(process, &self.control_planes)?;
        for smf in &mut self.control_planes {
            for (seid, session) in &mut smf.sessions {
                if session.is_up() && session.is_stopped() {
                    return Err(format!(
                        "session {seid} of smf {} has used up its quota, and its control plane is not told: {session:?}",
                        smf.number
                    ));
                }
                session
                    .check_usage(time_of(now))
                    .map_err(|what| format!("session {seid} of smf {}: {what}", smf.number))?;
                if session.is_up() {
                    traffic::pass(&mut process.datapath, now, session, &mut self.packets)?;
                }
            }
            // Nothing more is told of these.
            smf.sessions.retain(|_, session| session.state != State::Ended);
        }
        Ok(())
    }

    /// Ends sessions, then associations: nothing is left.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        self.phase = Phase::Resting;
        for at in 0..self.control_planes.len() {
            let half: Vec<u64> = self.up(at).step_by(2).collect();
            for seids in half.chunks(16) {
                self.ask(at, |smf, turn| seids.iter().for_each(|&seid| smf.delete(turn, seid)));
                self.drain()?;
            }
        }
        self.check()?;
        for at in 0..self.control_planes.len() {
            self.ask(at, ControlPlane::release);
        }
        // Long enough for a request that comes again.
        let until = self.time + Duration::from_secs(20);
        self.phase = Phase::Over;
        while self.time < until {
            self.step()?;
        }
        let Some(process) = &self.process else { return Err("there is no node".to_owned()) };
        checks::nothing(process, self.store.kept())?;
        self.process_ends(CrashPoint::Idle)?;
        self.time += Duration::from_secs(5);
        self.start()?;
        let Some(process) = &self.process else { return Err("there is no node".to_owned()) };
        checks::nothing(process, self.store.kept())
    }
}
