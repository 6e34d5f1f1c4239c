//! Association set-up and update, by either side (TS 29.244 6.2.6, 6.2.7).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use kaido_n4::{Cause, Rejection, SessionService};
use rs_pfcp::ie::IeType;
use rs_pfcp::message::MsgType;

use super::later::Answer;
use super::node::{ACCEPTED, cause_in, recovery_in};
use super::purge::PurgedSessions;
use super::release::release_is_prepared;
use super::{Endpoint, PFCP_PORT, PeerPort, Purpose, SetupPeer};
use crate::association::{Association, AssociationId};
use crate::counters::Discard;
use crate::decode::{control_plane, cp_entity_addresses};
use crate::encode::{self, Draft, accepted, number};
use crate::features::up_features;
use crate::frame::Frame;
use crate::node_id::NodeId;
use crate::procedure::Phase;
use crate::transaction::{Instants, Transmit};
use crate::walk::Group;

/// How often T1 passes before a node that does not answer where it is known has moved to where it claims to be. A heartbeat
/// and its repetition are unanswered then, and the claim comes again.
const CLAIM_PATIENCE: u32 = 2;

impl<S: SessionService> Endpoint<S> {
    /// Association Setup Request of a control plane (6.2.6.2.2).
    pub(super) fn association_setup(
        &mut self,
        now: Instants,
        from: SocketAddr,
        frame: &Frame<'_>,
    ) -> Result<Answer, Rejection> {
        let group = Group::of_message(frame.body)?;
        let node = NodeId::decode(group.mandatory(IeType::NodeId)?)?;
        self.procedure_is_of_node(&node);
        let recovery = recovery_in(&group)?;
        let said = control_plane(&group)?;
        let retention = group.first(IeType::PfcpSessionRetentionInformation);
        let retained = retention.map(retained_addresses).transpose()?;
        if self.releasing {
            return Err(Rejection::new(Cause::RequestRejected, "shutting down"));
        }
        self.procedure_enters(Phase::Apply);
        match self.associations.of_node(&node) {
            Some(known) if !self.may_move(now, from, known) => {
                self.counters.count_discarded(Discard::Claimed);
                return Ok(Answer::Silence);
            }
            Some(_) => {}
            None => self.make_room(now, from)?,
        }
        let peer = self.request_address(from);
        let mut association = self.new_association(now, node, peer, recovery);
        association.describe(said);
        let kept = self.associate(now, association, retained.as_deref())?;
        self.answered.forget(from);
        self.procedure_enters(Phase::Encode);

        let mut draft = Draft::node(MsgType::AssociationSetupResponse, frame.sequence)
            .with(&self.config.node_id.encode())
            .with(&accepted())
            .with(&encode::recovery(self.config.recovery))
            .with(&up_features(self.config.features));
        if kept {
            draft.push(&number(IeType::PfcpasRspFlags, [1]));
        }
        Ok(Answer::Ready(draft.bytes()))
    }

    fn new_association(&self, now: Instants, node: NodeId, peer: SocketAddr, recovery: u32) -> Association {
        // Where there is a crowd, whoever does not answer at once is the first to go.
        let first =
            if self.associations.is_crowded() { Duration::ZERO } else { self.config.heartbeat_interval };
        Association::new(node, peer, recovery, now.monotonic, first)
    }

    /// Whether a known node may set up anew from an address: one of its own at once, another when it was asked where it is
    /// known to be, and has not answered.
    fn may_move(&mut self, now: Instants, from: SocketAddr, known: AssociationId) -> bool {
        let t1 = self.config.retransmission.t1;
        let Some(association) = self.associations.get_mut(known) else { return true };
        if association.down || association.speaks_from(from.ip()) {
            return true;
        }
        let since = *association.claimed.get_or_insert(now.monotonic);
        association.ask(now.monotonic, t1);
        let waited = now.monotonic.saturating_duration_since(since);
        let may_move = association.heartbeat_outstanding && waited >= t1 * CLAIM_PATIENCE;
        if let Some(suppressed) = self.claims.line(now.monotonic) {
            tracing::warn!(
                node = %association.node, known = %association.peer, %from, suppressed,
                "{}",
                if may_move { "a node has moved" } else { "another address claims to be a node; the node is asked" }
            );
        }
        may_move
    }

    /// Makes room for an association, in place of one that holds nothing and is not there.
    fn make_room(&mut self, now: Instants, from: SocketAddr) -> Result<(), Rejection> {
        if !self.associations.has_room_at(from.ip()) {
            return Err(Rejection::new(
                Cause::NoResourcesAvailable,
                "as many associations as one address may have",
            ));
        }
        if !self.associations.is_full() {
            return Ok(());
        }
        let invited = &self.config.control_planes;
        let is_kept = |peer: &Association| invited.iter().any(|known| known.ip() == peer.peer.ip());
        let t1 = self.config.retransmission.t1;
        let Some(goes) = self.associations.dispensable(now.monotonic, t1, is_kept) else {
            return Err(Rejection::new(Cause::NoResourcesAvailable, "as many associations as allowed"));
        };
        if let Some(gone) = self.associations.remove(goes)
            && let Some(suppressed) = self.claims.line(now.monotonic)
        {
            tracing::warn!(node = %gone.node, peer = %gone.peer, suppressed, "an association that holds nothing and is not there gives way");
        }
        Ok(())
    }

    /// Puts an association in the place of the node's old one, if any. The old sessions go, except those
    /// that the set-up asks to retain: all of the addresses named, or all when none is named. Says whether
    /// sessions were retained (PSREI).
    fn associate(
        &mut self,
        now: Instants,
        association: Association,
        retained: Option<&[IpAddr]>,
    ) -> Result<bool, Rejection> {
        tracing::info!(node = %association.node, peer = %association.peer, "association set up");
        let Some(old) = self.associations.of_node(&association.node) else {
            self.associations.insert(association);
            return Ok(false);
        };
        let Some(addresses) = retained else {
            self.withdraw_reports(old);
            self.end_association(now, old);
            self.associations.insert(association);
            return Ok(false);
        };
        if !addresses.is_empty() {
            self.end_selected(now, PurgedSessions::ElsewhereThan(old, addresses.to_vec()))?;
        }
        if let Some(known) = self.associations.get_mut(old) {
            let (sessions, in_flight) = (known.sessions, known.in_flight);
            let held = std::mem::take(&mut known.held);
            self.associations.replace(old, Association { sessions, in_flight, held, ..association });
        }
        Ok(true)
    }

    /// Association Update Request of a control plane (6.2.7): what it says of itself anew is noted, and PARPS
    /// begins the end of the association (5.18).
    pub(super) fn association_update(
        &mut self,
        from: SocketAddr,
        frame: &Frame<'_>,
    ) -> Result<Vec<u8>, Rejection> {
        let group = Group::of_message(frame.body)?;
        let id = self.association_named(from, &group)?;
        let said = control_plane(&group)?;
        let preparing = release_is_prepared(&group)?;
        self.procedure_is_of(id);
        self.procedure_enters(Phase::Apply);
        self.associations.describe(id, said);
        if preparing {
            self.prepare_release(id);
        }
        self.procedure_enters(Phase::Encode);
        let draft = Draft::node(MsgType::AssociationUpdateResponse, frame.sequence)
            .with(&self.config.node_id.encode())
            .with(&accepted())
            .with(&up_features(self.config.features));
        Ok(draft.bytes())
    }

    /// Association Setup Requests of our own (6.2.6.3), to the control planes of the configuration.
    pub(super) fn send_setups(&mut self, now: Instants, out: &mut Vec<Transmit>) {
        for place in 0..self.invited.len() {
            let SetupPeer { peer, try_at } = self.invited[place];
            if try_at.is_none_or(|at| at > now.monotonic) {
                continue;
            }
            let strictly = self.config.peer_port == PeerPort::AsSeen;
            let stands = |is: &Association| is.peer == peer || !strictly && is.speaks_from(peer.ip());
            if self.associations.iter().any(stands) {
                self.retry_setup(now, peer);
                continue;
            }
            self.invited[place].try_at = None;
            let request = (MsgType::AssociationSetupRequest, self.outgoing.sequence());
            let draft = Draft::node(request.0, request.1)
                .with(&self.config.node_id.encode())
                .with(&encode::recovery(self.config.recovery))
                .with(&up_features(self.config.features));
            self.send(now, peer, request, draft.bytes(), Purpose::Setup(peer), out);
        }
    }

    /// Tries again later, unless the control plane has gone from the configuration meanwhile.
    pub(super) fn retry_setup(&mut self, now: Instants, peer: SocketAddr) {
        for invited in self.invited.iter_mut().filter(|invited| invited.peer == peer) {
            invited.try_at = Some(now.monotonic + self.config.setup_interval);
        }
    }

    pub(super) fn setup_response(
        &mut self,
        now: Instants,
        from: SocketAddr,
        peer: SocketAddr,
        frame: &Frame<'_>,
    ) -> Result<(), Rejection> {
        let group = Group::of_message(frame.body)?;
        let node = NodeId::decode(group.mandatory(IeType::NodeId)?)?;
        let cause = cause_in(&group)?;
        let recovery = recovery_in(&group)?;
        self.retry_setup(now, peer);
        if cause != ACCEPTED {
            self.counters.requests_refused += 1;
            tracing::warn!(peer = %from, cause, "association refused");
            return Ok(());
        }
        // Both sides may have asked at once; then the peer's own request has set it up already.
        let there = self.associations.of_node(&node).is_some();
        if !there && !self.associations.is_full() && !self.releasing {
            let mut association = self.new_association(now, node, from, recovery);
            association.describe(control_plane(&group)?);
            self.associate(now, association, None)?;
        }
        Ok(())
    }

    /// Where requests to a peer go that speaks from an address.
    fn request_address(&self, from: SocketAddr) -> SocketAddr {
        match self.config.peer_port {
            PeerPort::Standard => SocketAddr::new(from.ip(), PFCP_PORT),
            PeerPort::AsSeen => from,
        }
    }
}

/// Session Retention Information (table 7.4.4.1-2): the control plane addresses whose sessions are kept.
fn retained_addresses(value: &[u8]) -> Result<Vec<IpAddr>, Rejection> {
    cp_entity_addresses(&Group::of(IeType::PfcpSessionRetentionInformation, value)?)
}
