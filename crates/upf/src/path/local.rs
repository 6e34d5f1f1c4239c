//! Packets from UE to UE that do not leave the node: from one session's uplink rules straight into another
//! session's downlink rules, once.

use kaido_engine::{Frame, IcmpError, Output};
use kaido_table::Guard;

use super::Worker;
use super::charge::MatchedRule;
use super::forward::{ArrivalInfo, Origin};
use super::parse::Packet;
use crate::UpfDrop;
use crate::extended::{ExtendedActions, Local, UeToUe};
use crate::key::SessionKey;
use crate::ue::Direction;

impl Worker {
    /// Hands a packet to the session that its destination belongs to, or has it routed if it is nobody's here.
    /// Returns a packet that cannot go on, with the reason that its sender is told.
    #[inline(never)]
    #[allow(clippy::too_many_arguments)] // The packet, its rule, and where it came from.
    pub(super) fn switch_locally(
        &mut self,
        guard: &Guard<'_>,
        rule: &MatchedRule<'_>,
        (extended, local): (&ExtendedActions, Local),
        arrival: ArrivalInfo,
        packet: &Packet,
        frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
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
                let onwards = ArrivalInfo {
                    key,
                    qfi: None,
                    port: arrival.port,
                    suspicion: None,
                    origin: Origin::OtherUe,
                };
                let refused = self.apply(guard, other, onwards, packet, frame, None, out);
                if refused.is_none() {
                    self.count(record, action, packet, false);
                }
                return refused;
            }
            (None, Local::Neighbours { .. }) => {
                return self.onward(rule, extended, arrival.port, packet, frame, out);
            }
        };
        self.count(record, action, packet, true);
        out.drop(arrival.port, frame, how);
        None
    }
}
