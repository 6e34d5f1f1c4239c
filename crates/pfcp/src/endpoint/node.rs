//! What the node procedures share: who speaks.

use std::net::SocketAddr;

use kaido_n4::{Cause, Rejection, SessionService};
use rs_pfcp::ie::IeType;

use super::Endpoint;
use crate::association::AssociationId;
use crate::frame::Frame;
use crate::node_id::NodeId;
use crate::walk::{Group, octets};

/// The value of the Cause element for acceptance.
pub(super) const ACCEPTED: u8 = 1;

pub(super) fn recovery_in(group: &Group<'_>) -> Result<u32, Rejection> {
    const KIND: IeType = IeType::RecoveryTimeStamp;
    octets(KIND, group.mandatory(KIND)?).map(u32::from_be_bytes)
}

pub(super) fn cause_in(group: &Group<'_>) -> Result<u8, Rejection> {
    octets::<1>(IeType::Cause, group.mandatory(IeType::Cause)?).map(|[cause]| cause)
}

/// Whether a response accepts what was asked.
pub(super) fn is_accepted(frame: &Frame<'_>) -> bool {
    Group::of_message(frame.body).and_then(|group| cause_in(&group)) == Ok(ACCEPTED)
}

pub(super) fn no_association() -> Rejection {
    Rejection::new(Cause::NoEstablishedAssociation, "no association with this peer")
}

impl<S: SessionService> Endpoint<S> {
    /// The answer to a request that asks for no more than consent.
    pub(super) fn consent(
        &mut self,
        from: SocketAddr,
        frame: &Frame<'_>,
        asked: &str,
    ) -> Result<(), Rejection> {
        let cause = cause_in(&Group::of_message(frame.body)?)?;
        if cause != ACCEPTED {
            self.counters.requests_refused += 1;
            tracing::warn!(peer = %from, cause, "{asked} refused");
        }
        Ok(())
    }

    /// The association of the Node ID in a message, if the sender is that node.
    pub(super) fn association_named(
        &self,
        from: SocketAddr,
        group: &Group<'_>,
    ) -> Result<AssociationId, Rejection> {
        let node = NodeId::decode(group.mandatory(IeType::NodeId)?)?;
        let id = self.associations.of_node(&node).ok_or_else(no_association)?;
        let here = self.associations.get(id).is_some_and(|peer| peer.speaks_from(from.ip()));
        if here { Ok(id) } else { Err(no_association()) }
    }
}
