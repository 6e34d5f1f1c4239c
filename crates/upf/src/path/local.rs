//! Packets from UE to UE that do not leave the node: from one session's uplink rules straight into another
//! session's downlink rules, once.

use kaido_engine::{Frame, IcmpError, Output};

use super::Worker;
use super::charge::MatchedRule;
use super::context::{ArrivalInfo, Origin, PacketContext};
use crate::UpfDrop;
use crate::extended::{ExtendedActions, Local, UeToUe};
use crate::key::SessionKey;
use crate::ue::Direction;

impl Worker {
    /// Hands a packet to the session that its destination belongs to, or has it routed if it is nobody's here.
    /// Returns a packet that cannot go on, with the reason that its sender is told.
    #[inline(never)]
    pub(super) fn switch_locally(
        &mut self,
        context: &PacketContext<'_>,
        rule: &MatchedRule<'_>,
        (extended, local): (&ExtendedActions, Local),
        frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
        let PacketContext { guard, arrival, packet, .. } = *context;
        let MatchedRule { record, action, .. } = *rule;
        let key = match local {
            Local::Neighbours { instance, .. } => SessionKey::ue(instance, packet.dst),
            Local::VirtualNetwork(instance) => SessionKey::ue(instance, packet.dst).within_virtual_network(),
        };
        let node = self.node.clone();
        let other = node
            .table
            .get(guard, &key)
            .filter(|other| other.direction() == Direction::Downlink && other.session() != record.session());
        let how = match (other, local) {
            (Some(_), Local::Neighbours { how: UeToUe::Drop, .. }) => UpfDrop::UE_TO_UE,
            (None, Local::VirtualNetwork(_)) => UpfDrop::UE_UNKNOWN,
            (Some(other), _) => {
                if self.buffers.holds(other.session()) {
                    self.release(guard, other.session(), out);
                }
                let onwards =
                    ArrivalInfo { origin: Origin::OtherUe, ..ArrivalInfo::new(arrival.port, key, None) };
                let other = PacketContext { guard, record: other, arrival: onwards, packet };
                let refused = self.apply(&other, frame, out);
                if refused.is_none() {
                    self.count(record, action, packet, false);
                }
                return refused;
            }
            (None, Local::Neighbours { .. }) => {
                return self.onward(context, rule, extended, frame, out);
            }
        };
        self.count(record, action, packet, true);
        out.drop(arrival.port, frame, how);
        None
    }
}
