//! The rates of a session's QERs: which policers enforce them, through all changes.

use std::time::{Instant, SystemTime};

use litemap::LiteMap;

use super::Upf;
use super::ruleset::RuleSet;
use crate::qos::{Correlation, PolicerSlot};
use crate::ue::Direction;
use kaido_n4::{BitRate, Cause, FSeid, PacketRateStatus, Qer, QerId, Rejection, RuleId};

/// How a planned change uses policers otherwise than before.
#[derive(Debug, Default)]
pub(super) struct PolicerChange {
    /// Taken for it: given back when it is refused.
    taken: Vec<PolicerSlot>,
    /// No longer used: given back once it is done and workers have let go.
    dropped: Vec<PolicerSlot>,
}

impl PolicerChange {
    /// Whether all QERs have the policers that they had.
    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty() && self.dropped.is_empty()
    }

    /// Whether workers must let go of policers before they are given back.
    pub(super) fn drops_any(&self) -> bool {
        !self.dropped.is_empty()
    }
}

/// The two rates of a QER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Maximum,
    Guaranteed,
}

impl Kind {
    /// The rate that is to be enforced, if any.
    fn of(self, qer: &Qer) -> Option<BitRate> {
        let rate = match self {
            Self::Maximum => qer.mbr,
            Self::Guaranteed => qer.gbr,
        };
        rate.filter(|rate| rate.uplink_kbps != 0 || rate.downlink_kbps != 0)
    }

    /// Whether there is anything to enforce.
    fn is_asked(self, qer: &Qer) -> bool {
        self.of(qer).is_some() || (self == Self::Maximum && qer.packet_rate.is_some())
    }

    fn policers(self, rules: &mut RuleSet) -> &mut LiteMap<QerId, PolicerSlot> {
        match self {
            Self::Maximum => &mut rules.policers,
            Self::Guaranteed => &mut rules.guarantees,
        }
    }
}

impl RuleSet {
    /// Everything that enforces or measures a rate of the session.
    pub(super) fn all_policers(&self) -> impl Iterator<Item = PolicerSlot> + '_ {
        self.policers.values().chain(self.guarantees.values()).copied()
    }
}

impl Upf {
    /// Gives every QER with a rate its policer: that it had, or that of its correlation, or a new one, whose rate is
    /// set already. Rates of policers in use stay as they are until [`Upf::finish_policers`].
    pub(super) fn plan_policers(
        &mut self,
        owner: &FSeid,
        rules: &mut RuleSet,
    ) -> Result<PolicerChange, Rejection> {
        let mut change = PolicerChange::default();
        for kind in [Kind::Maximum, Kind::Guaranteed] {
            if let Err(rejection) = self.plan_kind(kind, owner, rules, &mut change) {
                self.undo_policers(change);
                return Err(rejection);
            }
        }
        Ok(change)
    }

    fn plan_kind(
        &mut self,
        kind: Kind,
        owner: &FSeid,
        rules: &mut RuleSet,
        change: &mut PolicerChange,
    ) -> Result<(), Rejection> {
        let before = std::mem::take(kind.policers(rules));
        let mut after = LiteMap::new();
        for (id, qer) in &rules.qers {
            if !kind.is_asked(qer) {
                continue;
            }
            // A guarantee is its flow's own; what sessions share is a maximum.
            let shared = qer.correlation.filter(|_| kind == Kind::Maximum);
            let correlation = shared.and_then(|id| Correlation::new(owner, id));
            let own = before.get(id).copied();
            if let Some(slot) = own.filter(|&slot| self.policers.correlation(slot) == correlation) {
                after.insert(*id, slot);
                continue;
            }
            let Some((slot, new)) = self.policers.take(correlation) else {
                let full = Rejection::new(Cause::NoResourcesAvailable, "no policer is free");
                return Err(full.rule(RuleId::Qer(*id)));
            };
            if new {
                self.set_rate(slot, kind, qer);
            }
            change.taken.push(slot);
            after.insert(*id, slot);
        }
        let kept = |id, slot| after.get(id) == Some(slot);
        change.dropped.extend(before.iter().filter(|(id, slot)| !kept(*id, *slot)).map(|(_, &slot)| slot));
        *kind.policers(rules) = after;
        Ok(())
    }

    /// The change was refused.
    pub(super) fn undo_policers(&mut self, change: PolicerChange) {
        self.release_policers(change.taken.into_iter());
    }

    /// The change was made, and workers have let go of what [`PolicerChange::drops_any`] speaks of: sets all rates.
    pub(super) fn finish_policers(&mut self, change: PolicerChange, rules: &RuleSet) {
        for (kind, policers) in [(Kind::Maximum, &rules.policers), (Kind::Guaranteed, &rules.guarantees)] {
            for (id, &slot) in policers {
                let Some(qer) = rules.qers.get(id) else { continue };
                self.set_rate(slot, kind, qer);
            }
        }
        self.release_policers(change.dropped.into_iter());
    }

    /// Takes back policers that no record names any more.
    pub(super) fn release_policers(&mut self, slots: impl Iterator<Item = PolicerSlot>) {
        for slot in slots {
            if self.policers.give_back(slot) {
                self.node.policers.clear(slot);
            }
        }
    }

    fn set_rate(&self, slot: PolicerSlot, kind: Kind, qer: &Qer) {
        let window = qer.averaging_window.unwrap_or(self.node.live().policer_window);
        self.node.policers.set(slot, kind.of(qer).unwrap_or_default(), window);
        if kind == Kind::Maximum && qer.packet_rate.is_some() {
            self.node.policers.set_packets(slot, qer.packet_rate.unwrap_or_default());
        }
    }

    /// What is left of the packet rates of the QERs that report it.
    pub(super) fn packet_rates(&self, rules: &RuleSet, now: SystemTime) -> Vec<PacketRateStatus> {
        let policers = &self.node.policers;
        let clock = policers.milliseconds(Instant::now());
        let asking = rules.qers.values().filter(|qer| qer.reports_packet_rate);
        asking
            .filter_map(|qer| {
                let slot = *rules.policers.get(&qer.id)?;
                let left = |direction| policers.packets_left(slot, direction, clock);
                let (uplink, downlink) = (left(Direction::Uplink), left(Direction::Downlink));
                let lasts = uplink.iter().chain(&downlink).map(|left| left.lasts).min()?;
                Some(PacketRateStatus {
                    qer_id: qer.id,
                    uplink: uplink.map(|left| left.packets),
                    downlink: downlink.map(|left| left.packets),
                    valid_until: now + lasts,
                })
            })
            .collect()
    }
}
