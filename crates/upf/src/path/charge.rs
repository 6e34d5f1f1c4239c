//! Who pays for a packet, and when: what leaves is counted, and what waits for its next hop when it leaves (TS 29.244 5.2.2).
//!
//! Between the two the session may be changed or gone. So a packet that waits keeps what its rule is found by and no counter: a
//! counter may be another session's by then.

use kaido_engine::{Frame, Output, PortId};
use kaido_table::Guard;

use super::Worker;
use crate::UpfDrop;
use crate::action::Action;
use crate::ids::SessionIndex;
use crate::key::SessionKey;
use crate::node::Node;
use crate::record::{Record, Rules};
use crate::usage::UsageSlot;
use kaido_n4::PdrId;

/// The rule that a packet matched.
#[derive(Clone, Copy, Debug)]
pub(super) struct MatchedRule<'m> {
    pub(super) record: &'m Record,
    /// What is done with the packet.
    pub(super) action: &'m Action,
    /// What the record was found by.
    pub(super) key: SessionKey,
    /// The counter whose quota is used up, where the action is that for a used up quota.
    pub(super) on_quota_of: Option<UsageSlot>,
}

impl MatchedRule<'_> {
    /// What a packet of so many octets owes.
    #[inline]
    pub(super) fn charge(&self, octets: usize) -> Charge {
        let Self { record, action, key, on_quota_of } = *self;
        Charge { key, session: record.session(), pdr: action.pdr, on_quota_of, octets }
    }
}

/// What a user's packet owes when it leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    key: SessionKey,
    session: SessionIndex,
    pdr: PdrId,
    on_quota_of: Option<UsageSlot>,
    octets: usize,
}

impl Charge {
    /// The rule as it is now, if it and its session are still there.
    fn rule<'g>(&self, node: &'g Node, guard: &'g Guard<'_>) -> Option<(&'g Record, Action)> {
        let record = node.table.get(guard, &self.key).filter(|record| record.session() == self.session)?;
        let action = match record.rules(&node.tunnels) {
            Rules::One(action) => Some(action).filter(|action| action.pdr == self.pdr)?,
            Rules::Filtered(rules) => {
                let rule = rules.iter().find(|rule| rule.pdr() == self.pdr)?;
                match self.on_quota_of {
                    Some(slot) => rule.on_quota().iter().find(|other| other.slot == slot)?.action,
                    None => rule.action(&node.tunnels),
                }
            }
        };
        Some((record, action))
    }
}

/// What has become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendResult {
    /// It was handed to a port.
    Left,
    /// It waits for its next hop.
    Waits,
    /// It was dropped, and that was counted.
    Dropped,
}

impl Worker {
    /// Charges a packet of so many octets for what has become of it; `false` when it was dropped. The rates pay for one that
    /// waits at once: else a burst would pass them meanwhile.
    #[inline]
    pub(super) fn charge(&mut self, rule: &MatchedRule<'_>, octets: usize, sent: SendResult) -> bool {
        match sent {
            SendResult::Left => self.count_octets(rule.record, rule.action, octets, false),
            SendResult::Waits => self.spend(rule.record, rule.action, octets),
            SendResult::Dropped => {}
        }
        sent != SendResult::Dropped
    }

    /// Sends a packet whose next hop has become known, and charges it. One whose session or rule is gone by now, or whose quota
    /// is used up, is dropped.
    #[cold]
    pub(super) fn after_waiting(
        &mut self,
        charge: Option<Charge>,
        from: PortId,
        frame: Frame,
        out: &mut Output<'_>,
        send: impl FnOnce(&mut Self, Frame, &mut Output<'_>) -> SendResult,
    ) {
        let Some(charge) = charge else {
            send(self, frame, out);
            return;
        };
        // It is there: nothing that waits is sent while another is.
        let Some(mut reader) = self.of_waiting.take() else {
            return out.drop(from, frame, UpfDrop::BUFFER_DISCARDED);
        };
        let node = self.node.clone();
        let guard = reader.pin();
        match charge.rule(&node, &guard) {
            None => out.drop(from, frame, UpfDrop::BUFFER_DISCARDED),
            Some((_, action)) if action.usage.with_quota().any(|slot| node.usage.is_exhausted(slot)) => {
                out.drop(from, frame, UpfDrop::QUOTA_EXHAUSTED);
            }
            Some((record, action)) => {
                if send(self, frame, out) == SendResult::Left {
                    self.count_usage(record, &action, charge.octets, false);
                }
            }
        }
        drop(guard);
        self.of_waiting = Some(reader);
    }
}
