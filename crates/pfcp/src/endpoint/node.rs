//! Node procedures: heartbeat, association set-up, update and release (TS 29.244 6.2).

use std::net::SocketAddr;
use std::time::Duration;

use kaido_upf::rules::{Cause, FSeid, Rejection, Seid, SessionService};
use rs_pfcp::ie::IeType;
use rs_pfcp::message::MsgType;

use super::{Endpoint, Invited, PFCP_PORT, PeerPort, Purpose};
use crate::association::{Association, AssociationId};
use crate::counters::Discard;
use crate::decode::{control_plane_addresses, cp_entity_addresses};
use crate::encode::{self, Draft, accepted, number};
use crate::frame::Frame;
use crate::node_id::NodeId;
use crate::transaction::{Moment, Transmit};
use crate::walk::{Group, octets};

/// The value of the Cause element for acceptance.
const ACCEPTED: u8 = 1;

/// A recovery time stamp after another, in a clock that wraps in 2036.
fn is_later(stamp: u32, than: u32) -> bool {
    stamp != than && stamp.wrapping_sub(than) < 1 << 31
}

/// A Timer (8.2.35) of at least `period`: the unit in three bits, the count in five.
fn timer(period: Duration) -> u8 {
    let seconds = period.as_secs();
    let units = [(0u8, 2u64), (1, 60), (2, 600), (3, 3600), (4, 36_000)];
    let fitting = units.into_iter().map(|(unit, length)| (unit, seconds.div_ceil(length)));
    fitting
        .filter_map(|(unit, count)| {
            u8::try_from(count).ok().filter(|&count| count < 32).map(|c| unit << 5 | c)
        })
        .next()
        .unwrap_or(7 << 5)
}

pub(super) fn recovery_in(group: &Group<'_>) -> Result<u32, Rejection> {
    const KIND: IeType = IeType::RecoveryTimeStamp;
    octets(KIND, group.mandatory(KIND)?).map(u32::from_be_bytes)
}

pub(super) fn cause_in(group: &Group<'_>) -> Result<u8, Rejection> {
    octets::<1>(IeType::Cause, group.mandatory(IeType::Cause)?).map(|[cause]| cause)
}

pub(super) fn no_association() -> Rejection {
    Rejection::new(Cause::NoEstablishedAssociation, "no association with this peer")
}

impl<S: SessionService> Endpoint<S> {
    /// Heartbeat Request (6.2.2): answered whoever asks, readable or not. A recovery time stamp in it counts
    /// where the address names one peer.
    pub(super) fn heartbeat_request(
        &mut self,
        now: Moment,
        from: SocketAddr,
        frame: &Frame<'_>,
        out: &mut Vec<Transmit>,
    ) {
        let answer = Draft::node(MsgType::HeartbeatResponse, frame.sequence)
            .with(&encode::recovery(self.config.recovery))
            .bytes();
        self.transmit(from, answer.into(), out);
        let recovery = Group::of_message(frame.body).and_then(|group| recovery_in(&group));
        if let (&[id], Ok(recovery)) = (self.associations.at(from.ip()), recovery) {
            self.recovery_seen(now, id, recovery);
        }
    }

    pub(super) fn heartbeat_response(
        &mut self,
        now: Moment,
        id: AssociationId,
        frame: &Frame<'_>,
    ) -> Result<(), Rejection> {
        let recovery = recovery_in(&Group::of_message(frame.body)?)?;
        let next = now.monotonic + self.config.heartbeat_interval;
        if let Some(association) = self.associations.get_mut(id) {
            association.heartbeat_outstanding = false;
            association.heartbeat_at = next;
            if std::mem::take(&mut association.down) {
                tracing::info!(node = %association.node, "peer answers again");
            }
        }
        self.recovery_seen(now, id, recovery);
        Ok(())
    }

    /// A later time stamp says that the peer restarted and knows nothing of its sessions (TS 23.527 4.2).
    fn recovery_seen(&mut self, now: Moment, id: AssociationId, recovery: u32) {
        let Some(association) = self.associations.get_mut(id) else { return };
        if is_later(association.recovery, recovery) {
            self.counters.count_discarded(Discard::StaleRecovery);
        } else if is_later(recovery, association.recovery) {
            association.recovery = recovery;
            self.counters.peer_restarts += 1;
            tracing::warn!(node = %association.node, "peer restarted, its sessions are deleted");
            self.purge(now, id, |_| false);
        }
    }

    /// Path failure (6.2.2, TS 23.527 4.4): sessions stay and packets flow; the peer is marked and asked on.
    pub(super) fn path_failed(&mut self, now: Moment, id: AssociationId) {
        let next = now.monotonic + self.config.heartbeat_interval;
        let Some(association) = self.associations.get_mut(id) else { return };
        association.heartbeat_outstanding = false;
        association.heartbeat_at = next;
        if !std::mem::replace(&mut association.down, true) {
            self.counters.path_failures += 1;
            tracing::warn!(node = %association.node, peer = %association.peer, "path failure, sessions are kept");
        }
    }

    pub(super) fn send_heartbeats(&mut self, now: Moment, out: &mut Vec<Transmit>) {
        for id in self.associations.heartbeats_due(now.monotonic) {
            let Some(association) = self.associations.get_mut(id) else { continue };
            association.heartbeat_outstanding = true;
            let to = association.peer;
            let request = (MsgType::HeartbeatRequest, self.outgoing.sequence());
            let draft = Draft::node(request.0, request.1).with(&encode::recovery(self.config.recovery));
            self.send(now, to, request, draft.bytes(), Purpose::Heartbeat(id), out);
        }
    }

    /// Association Setup Request of a control plane (6.2.6.2.2).
    pub(super) fn association_setup(
        &mut self,
        now: Moment,
        from: SocketAddr,
        frame: &Frame<'_>,
    ) -> Result<Vec<u8>, Rejection> {
        let group = Group::of_message(frame.body)?;
        let node = NodeId::decode(group.mandatory(IeType::NodeId)?)?;
        let recovery = recovery_in(&group)?;
        let addresses = control_plane_addresses(&group)?;
        let retention = group.first(IeType::PfcpSessionRetentionInformation);
        let retained = retention.map(retained_addresses).transpose()?;
        if self.releasing {
            return Err(Rejection::new(Cause::RequestRejected, "shutting down"));
        }
        if self.associations.of_node(&node).is_none() && self.associations.is_full() {
            return Err(Rejection::new(Cause::NoResourcesAvailable, "as many associations as allowed"));
        }
        let peer = self.request_address(from);
        let heartbeat_at = now.monotonic + self.config.heartbeat_interval;
        let mut association = Association::new(node, peer, recovery, heartbeat_at);
        association.learn(addresses);
        let kept = self.associate(now, association, retained.as_deref());
        self.answered.forget(from);

        let mut draft = Draft::node(MsgType::AssociationSetupResponse, frame.sequence)
            .with(&self.config.node_id.encode())
            .with(&accepted())
            .with(&encode::recovery(self.config.recovery))
            .with(&encode::up_features(self.config.features));
        if kept {
            draft.push(&number(IeType::PfcpasRspFlags, [1]));
        }
        Ok(draft.bytes())
    }

    /// Puts an association in the place of the node's old one, if any. The old sessions go, except those
    /// that the set-up asks to retain: all of the addresses named, or all when none is named. Says whether
    /// sessions were retained (PSREI).
    fn associate(
        &mut self,
        now: Moment,
        association: Association,
        retained: Option<&[std::net::IpAddr]>,
    ) -> bool {
        tracing::info!(node = %association.node, peer = %association.peer, "association set up");
        let Some(old) = self.associations.of_node(&association.node) else {
            self.associations.insert(association);
            return false;
        };
        let Some(addresses) = retained else {
            self.purge(now, old, |_| false);
            self.associations.remove(old);
            self.associations.insert(association);
            return false;
        };
        self.purge(now, old, |cp: &FSeid| {
            let ours = [cp.ipv4.map(Into::into), cp.ipv6.map(Into::into)];
            addresses.is_empty() || ours.iter().flatten().any(|address| addresses.contains(address))
        });
        let sessions = self.associations.get(old).map_or(0, |association| association.sessions);
        self.associations.replace(old, Association { sessions, ..association });
        true
    }

    /// Association Update Request of a control plane (6.2.7): its further addresses are noted.
    pub(super) fn association_update(
        &mut self,
        from: SocketAddr,
        frame: &Frame<'_>,
    ) -> Result<Vec<u8>, Rejection> {
        let group = Group::of_message(frame.body)?;
        let id = self.association_named(from, &group)?;
        self.associations.learn(id, control_plane_addresses(&group)?);
        let draft = Draft::node(MsgType::AssociationUpdateResponse, frame.sequence)
            .with(&self.config.node_id.encode())
            .with(&accepted())
            .with(&encode::up_features(self.config.features));
        Ok(draft.bytes())
    }

    /// Association Release Request (6.2.8): the node's sessions go with the association.
    pub(super) fn association_release(
        &mut self,
        now: Moment,
        from: SocketAddr,
        frame: &Frame<'_>,
    ) -> Result<Vec<u8>, Rejection> {
        let group = Group::of_message(frame.body)?;
        let id = self.association_named(from, &group)?;
        self.purge(now, id, |_| false);
        if let Some(association) = self.associations.remove(id) {
            tracing::info!(node = %association.node, "association released");
        }
        let draft = Draft::node(MsgType::AssociationReleaseResponse, frame.sequence)
            .with(&self.config.node_id.encode())
            .with(&accepted());
        Ok(draft.bytes())
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

    /// Asks every peer to release its association, within `grace` (6.2.8.3): only the control plane may
    /// release, so the user plane asks by an Association Update Request. Wait for [`Endpoint::peers`] to
    /// be none, or for the time to run out. New associations and sessions are refused from here on.
    pub fn request_release(&mut self, now: Moment, grace: Duration, out: &mut Vec<Transmit>) {
        self.releasing = true;
        self.invited.clear();
        for id in self.associations.ids() {
            let Some(to) = self.associations.get(id).map(|association| association.peer) else { continue };
            let request = (MsgType::AssociationUpdateRequest, self.outgoing.sequence());
            let draft = Draft::node(request.0, request.1)
                .with(&self.config.node_id.encode())
                .with(&number(IeType::PfcpAssociationReleaseRequest, [1]))
                .with(&number(IeType::GracefulReleasePeriod, [timer(grace)]));
            self.send(now, to, request, draft.bytes(), Purpose::ReleaseWish, out);
        }
    }

    pub(super) fn release_wish_response(
        &mut self,
        from: SocketAddr,
        frame: &Frame<'_>,
    ) -> Result<(), Rejection> {
        let cause = cause_in(&Group::of_message(frame.body)?)?;
        if cause != ACCEPTED {
            self.counters.requests_refused += 1;
            tracing::warn!(peer = %from, cause, "peer does not release the association");
        }
        Ok(())
    }

    /// Association Setup Requests of our own (6.2.6.3), to the control planes of the configuration.
    pub(super) fn send_setups(&mut self, now: Moment, out: &mut Vec<Transmit>) {
        for place in 0..self.invited.len() {
            let Invited { peer, try_at } = self.invited[place];
            if try_at.is_none_or(|at| at > now.monotonic) {
                continue;
            }
            let strictly = self.config.peer_port == PeerPort::AsSeen;
            let stands = |is: &Association| is.peer == peer || !strictly && is.speaks_from(peer.ip());
            if self.associations.iter().any(stands) {
                self.retry_setup(now, place);
                continue;
            }
            self.invited[place].try_at = None;
            let request = (MsgType::AssociationSetupRequest, self.outgoing.sequence());
            let draft = Draft::node(request.0, request.1)
                .with(&self.config.node_id.encode())
                .with(&encode::recovery(self.config.recovery))
                .with(&encode::up_features(self.config.features));
            self.send(now, peer, request, draft.bytes(), Purpose::Setup(place), out);
        }
    }

    pub(super) fn retry_setup(&mut self, now: Moment, place: usize) {
        if let Some(invited) = self.invited.get_mut(place) {
            invited.try_at = Some(now.monotonic + self.config.setup_interval);
        }
    }

    pub(super) fn setup_response(
        &mut self,
        now: Moment,
        from: SocketAddr,
        place: usize,
        frame: &Frame<'_>,
    ) -> Result<(), Rejection> {
        let group = Group::of_message(frame.body)?;
        let node = NodeId::decode(group.mandatory(IeType::NodeId)?)?;
        let cause = cause_in(&group)?;
        let recovery = recovery_in(&group)?;
        self.retry_setup(now, place);
        if cause != ACCEPTED {
            self.counters.requests_refused += 1;
            tracing::warn!(peer = %from, cause, "association refused");
            return Ok(());
        }
        // Both sides may have asked at once; then the peer's own request has set it up already.
        let there = self.associations.of_node(&node).is_some();
        if !there && !self.associations.is_full() && !self.releasing {
            let heartbeat_at = now.monotonic + self.config.heartbeat_interval;
            let mut association = Association::new(node, from, recovery, heartbeat_at);
            association.learn(control_plane_addresses(&group)?);
            self.associate(now, association, None);
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

    /// Deletes the sessions of an association whose control plane end is not to be kept.
    fn purge(&mut self, now: Moment, id: AssociationId, keep: impl Fn(&FSeid) -> bool) {
        let of_peer = self.sessions.iter().filter(|&(_, &of)| of == id).map(|(&seid, _)| seid);
        let (service, doomed) = (&self.service, of_peer);
        let doomed: Vec<Seid> =
            doomed.filter(|&seid| !service.cp_fseid(seid).is_some_and(|cp| keep(&cp))).collect();
        for seid in doomed {
            self.drop_session(now, seid);
        }
    }

    /// Deletes a session that nobody asks about any more; its final reports have no reader.
    pub(super) fn drop_session(&mut self, now: Moment, seid: Seid) {
        self.unbind(seid);
        self.counters.sessions_purged += 1;
        if let Err(why) = self.service.delete(seid, now.wall) {
            tracing::warn!(%seid, %why, "session to delete was not there");
        }
    }

    /// Takes a session out of its association.
    pub(super) fn unbind(&mut self, seid: Seid) {
        if let Some(id) = self.sessions.remove(&seid)
            && let Some(association) = self.associations.get_mut(id)
        {
            association.sessions = association.sessions.saturating_sub(1);
        }
    }
}

/// Session Retention Information (table 7.4.4.1-2): the control plane addresses whose sessions are kept.
fn retained_addresses(value: &[u8]) -> Result<Vec<std::net::IpAddr>, Rejection> {
    cp_entity_addresses(&Group::of(IeType::PfcpSessionRetentionInformation, value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stamps_wrap() {
        assert!(is_later(2, 1));
        assert!(!is_later(1, 1));
        assert!(!is_later(1, 2));
        assert!(is_later(5, u32::MAX - 5));
    }

    #[test]
    fn timers_last_at_least_as_long() {
        for (seconds, octet) in [(0, 0), (1, 1), (30, 15), (62, 31), (63, 0x22), (3600, 0x46), (40_000, 0x6c)]
        {
            assert_eq!(timer(Duration::from_secs(seconds)), octet, "{seconds}");
        }
        assert_eq!(timer(Duration::from_secs(u64::MAX)), 0xe0);
    }
}
