//! Where things go wrong, and what is left then.

use std::time::{Duration, UNIX_EPOCH};

use kaido_store::Durability;

use crate::faults::Sabotage;
use crate::world::{Checkpoint, Phase, World};

/// Messages are on their way for less than this, and a control plane that starts anew is away for longer.
const AWAY: Duration = Duration::from_secs(4);

/// In a million steps.
const PROCESS_ENDS: u64 = 5_000;
const MACHINE_ENDS: u64 = 2_500;
const MACHINE_ENDS_AFTER_START: u64 = 150_000;
const STORE_FAILS: u64 = 2_000;
const CONTROL_PLANE_RESTARTS: u64 = 600;
const LINK_CUT: u64 = 900;

/// Where in a turn of the node its process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CrashPoint {
    /// Requests are carried out, and nothing of them is written.
    BeforeFlush,
    /// What was carried out is written, and no answer has left.
    BeforeAnswers,
    /// In the second half of the turn, before it is written.
    AfterPoll,
    /// Between two turns.
    Idle,
}

impl World {
    /// Has something go wrong.
    pub(crate) fn trouble(&mut self) -> Result<(), String> {
        if self.process.is_some() && self.faults.happens(PROCESS_ENDS) {
            let points =
                [CrashPoint::BeforeFlush, CrashPoint::BeforeAnswers, CrashPoint::AfterPoll, CrashPoint::Idle];
            self.crash = Some(points[self.faults.place(points.len())]);
        }
        if self.options.durability == Durability::Disk {
            let ends = self.machine_ends_at.take_if(|at| *at <= self.time).is_some();
            if ends || self.faults.happens(MACHINE_ENDS) {
                self.machine_ends()?;
            }
        }
        if self.faults.happens(STORE_FAILS) && self.store_fails_until <= self.time {
            let most = if self.faults.happens(200_000) { 60_000_000 } else { 4_000_000 };
            let (span, is_full) = (self.faults.span(50_000, most), self.faults.happens(500_000));
            if let Some(model) = self.store.model() {
                (model.is_full, model.fails_to_sync) = (is_full, !is_full);
                self.store_fails_until = self.time + span;
                self.summary.store_failures += 1;
                self.log.note(format_args!("the store fails for {span:?}, full: {is_full}"));
            }
        }
        for at in 0..self.links.len() {
            if self.faults.happens(LINK_CUT) && self.cut_until[at] <= self.time {
                self.to_cut[at] = true;
            }
            if self.faults.happens(CONTROL_PLANE_RESTARTS) {
                self.restart_control_plane(at);
            }
        }
        self.cut_off();
        Ok(())
    }

    /// Cuts control planes off, where no report is on its way that might be told twice then.
    pub(crate) fn cut_off(&mut self) {
        let is_quiet = self.store.is_settled()
            && self.process.as_ref().is_some_and(|process| process.endpoint.outstanding() == 0);
        for at in 0..self.links.len() {
            if is_quiet && std::mem::take(&mut self.to_cut[at]) {
                let span = self.faults.span(500_000, 45_000_000);
                (self.links[at].is_cut, self.cut_until[at]) = (true, self.time + span);
                self.summary.cuts += 1;
                self.log.note(format_args!("smf {at} is cut off for {span:?}"));
            }
        }
    }

    pub(crate) fn restart_control_plane(&mut self, at: usize) {
        let address = self.control_planes[at].address;
        let is_held = self.process.as_ref().is_some_and(|process| process.holds_for(address));
        // An answer to a request of before might be taken for one to a request after.
        if is_held || self.control_planes[at].up_at > self.time {
            return;
        }
        let up_at = self.time + AWAY + self.faults.span(0, 3_000_000);
        // Many begin with the number 1 each time.
        let wall = self.began.wall + up_at;
        let whole =
            UNIX_EPOCH + Duration::from_secs(wall.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs());
        let wall = if self.faults.happens(700_000) { whole } else { wall };
        self.control_planes[at].restart(up_at, wall);
        self.links[at].clear();
        self.summary.restarts += 1;
        self.log.note(format_args!("smf {at} starts anew"));
    }

    /// What went wrong for a while is well again.
    pub(crate) fn mend(&mut self) {
        for (at, link) in self.links.iter_mut().enumerate() {
            if link.is_cut && (self.cut_until[at] <= self.time || self.phase != Phase::Rough) {
                link.is_cut = false;
                self.cut_until[at] = self.time;
                self.log.note(format_args!("smf {at} is reached again"));
            }
            link.is_calm = self.phase != Phase::Rough;
        }
        let is_over = self.store_fails_until <= self.time || self.phase != Phase::Rough;
        if let Some(model) = self.store.model()
            && is_over
            && (model.is_full || model.fails_to_sync)
        {
            (model.is_full, model.fails_to_sync) = (false, false);
            self.log.note(format_args!("the store works again"));
        }
    }

    /// The machine may end soon after a process has started, which has read more than there is on the disk.
    pub(crate) fn machine_may_end(&mut self) {
        if self.phase == Phase::Rough && self.faults.happens(MACHINE_ENDS_AFTER_START) {
            self.machine_ends_at = Some(self.time + self.faults.span(500, 400_000));
        }
    }

    pub(crate) fn down_for(&mut self) {
        for session in self.control_planes.iter_mut().flat_map(|smf| smf.sessions.values_mut()) {
            session.end_of_node(self.kept_until);
        }
        self.process = None;
        self.crash = None;
        self.checkpoint = None;
        self.starts_at = self.time + self.faults.span(0, 2_500_000);
    }

    pub(crate) fn process_ends(&mut self, at: CrashPoint) -> Result<(), String> {
        self.log.note(format_args!("the process ends: {at:?}"));
        self.summary.process_ends += 1;
        self.down_for();
        let unwritten = self.store.next_number();
        self.checkpoints.retain(|checkpoint| checkpoint.batch < unwritten);
        self.store.crash_process();
        if self.options.sabotage == Some(Sabotage::NoMemory) {
            self.machine.restart()?;
        }
        // All that was written goes on.
        self.settle_checkpoints(true);
        Ok(())
    }

    pub(crate) fn machine_ends(&mut self) -> Result<(), String> {
        self.settle_checkpoints(false);
        self.down_for();
        let survive = self.store.crash_machine(&mut self.syncs)?;
        self.log.note(format_args!("the machine ends; {survive} batches more survive"));
        self.summary.machine_ends += 1;
        self.machine.restart()?;
        let checkpoint = self.checkpoints.pop_front();
        self.checkpoints.clear();
        for smf in &mut self.control_planes {
            for (&seid, session) in &mut smf.sessions {
                let key = (smf.number, smf.life, seid);
                let recorded = checkpoint.as_ref().and_then(|checkpoint| checkpoint.passed.get(&key));
                let (passed, lost) = recorded.copied().unwrap_or_default();
                if let Some(quota) = &mut session.quota {
                    quota.be_unsure();
                }
                for direction in 0..2 {
                    session.may_be_lost[direction] =
                        session.passed[direction] - passed[direction] + lost[direction];
                }
            }
        }
        Ok(())
    }

    /// Forgets checkpoints before the last that is durable.
    pub(crate) fn settle_checkpoints(&mut self, all: bool) {
        let is_durable = |checkpoint: &Checkpoint| all || self.store.is_durable(checkpoint.batch);
        while self.checkpoints.get(1).is_some_and(is_durable) {
            self.checkpoints.pop_front();
        }
        if self.checkpoints.front().is_some_and(|first| !is_durable(first)) {
            self.checkpoints.clear();
        }
    }
}
