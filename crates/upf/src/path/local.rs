//! Packets from UE to UE that do not leave the node: from one session's uplink rules straight into another
//! session's downlink rules, once; or dropped, where UEs are kept apart.

use kaido_engine::{DropReason, Frame, IcmpError, Output};

use super::Worker;
use super::charge::MatchedRule;
use super::context::{ArrivalInfo, Origin, PacketContext};
use crate::UpfDrop;
use crate::extended::{ExtendedActions, UeToUe};
use crate::ids::InstanceId;
use crate::key::SessionKey;
use crate::record::Record;
use crate::ue::Direction;

impl Worker {
    /// Hands a packet to the member of a 5G virtual network that its destination belongs to. Returns a packet that cannot go on,
    /// with the reason that its sender is told.
    #[inline(never)]
    pub(super) fn hand_to_member(
        &mut self,
        context: &PacketContext<'_>,
        rule: &MatchedRule<'_>,
        instance: InstanceId,
        frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
        let PacketContext { guard, packet, .. } = *context;
        let node = self.node.clone();
        let key = SessionKey::ue(instance, packet.dst).within_virtual_network();
        match node.table.get(guard, &key).filter(|other| is_another(other, rule.record)) {
            Some(other) => self.switch_to(context, rule, (key, other), frame, out),
            None => self.drop_counted(context, rule, UpfDrop::UE_UNKNOWN, frame, out),
        }
    }

    /// Hands a packet to the session that its destination belongs to or lies behind, or drops it, as the node is set up for such
    /// packets; sends it on if it is nobody's here. Returns as [`Worker::hand_to_member`].
    #[inline(never)]
    pub(super) fn hand_to_other_ue(
        &mut self,
        context: &PacketContext<'_>,
        rule: &MatchedRule<'_>,
        (extended, instance): (Option<&ExtendedActions>, InstanceId),
        frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
        let PacketContext { guard, packet, .. } = *context;
        let node = self.node.clone();
        let key = SessionKey::ue(instance, packet.dst);
        let own = node.table.get(guard, &key).map(|other| (key, other));
        let found = own.or_else(|| node.framed.find(node.table.stages(guard), instance, packet.dst));
        match found.filter(|(_, other)| is_another(other, rule.record)) {
            Some(_) if self.settings.live.ue_to_ue == UeToUe::Drop => {
                self.drop_counted(context, rule, UpfDrop::UE_TO_UE, frame, out)
            }
            Some(other) => self.switch_to(context, rule, other, frame, out),
            None => self.onward(context, rule, extended, frame, out),
        }
    }

    /// Applies the downlink rules of another session to a packet, and counts it for its own if it goes on.
    fn switch_to(
        &mut self,
        context: &PacketContext<'_>,
        rule: &MatchedRule<'_>,
        (key, other): (SessionKey, &Record),
        frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
        let PacketContext { guard, arrival, packet, .. } = *context;
        if self.buffers.holds(other.session()) {
            self.release(guard, other.session(), out);
        }
        let onwards = ArrivalInfo { origin: Origin::OtherUe, ..ArrivalInfo::new(arrival.port, key, None) };
        let refused =
            self.apply(&PacketContext { guard, record: other, arrival: onwards, packet }, frame, out);
        if refused.is_none() {
            self.count(rule.record, rule.action, packet, false);
        }
        refused
    }

    fn drop_counted(
        &mut self,
        context: &PacketContext<'_>,
        rule: &MatchedRule<'_>,
        reason: DropReason,
        frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
        self.count(rule.record, rule.action, context.packet, true);
        out.drop(context.arrival.port, frame, reason);
        None
    }
}

/// Whether packets to a UE are found by the record, and not to the one that sends.
fn is_another(other: &Record, own: &Record) -> bool {
    other.direction() == Direction::Downlink && other.session() != own.session()
}
