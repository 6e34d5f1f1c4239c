//! Heartbeats, path failure and restart of peers (TS 29.244 6.2.2, TS 23.527 4.2 and 4.3).

use std::net::SocketAddr;
use std::time::Duration;

use kaido_n4::{Rejection, SessionService};
use rs_pfcp::message::MsgType;

use super::node::recovery_in;
use super::{Endpoint, Purpose};
use crate::association::AssociationId;
use crate::counters::Discard;
use crate::encode::{self, Draft};
use crate::frame::Frame;
use crate::procedure::Phase;
use crate::transaction::{Instants, Transmit};
use crate::walk::Group;

/// A peer that does not answer is asked again after this, at the latest: usage waits for it.
const RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// A recovery time stamp after another, in a clock that wraps in 2036.
fn is_later(stamp: u32, than: u32) -> bool {
    stamp != than && stamp.wrapping_sub(than) < 1 << 31
}

impl<S: SessionService> Endpoint<S> {
    /// Heartbeat Request (6.2.2): answered whoever asks, readable or not. A recovery time stamp in it counts
    /// where the address names one peer.
    pub(super) fn heartbeat_request(
        &mut self,
        now: Instants,
        from: SocketAddr,
        frame: &Frame<'_>,
        out: &mut Vec<Transmit>,
    ) {
        self.procedure_begins(from, frame);
        if let &[id] = self.associations.at(from.ip()) {
            self.procedure_is_of(id);
        }
        self.procedure_enters(Phase::Encode);
        let answer = Draft::node(MsgType::HeartbeatResponse, frame.sequence)
            .with(&encode::recovery(self.config.recovery))
            .bytes();
        self.procedure_is_answered(&answer);
        self.transmit(from, answer.into(), out);
        let recovery = Group::of_message(frame.body).and_then(|group| recovery_in(&group));
        if let (&[id], Ok(recovery)) = (self.associations.at(from.ip()), recovery) {
            self.recovery_claimed(now, id, recovery);
        }
    }

    /// A request says that a peer restarted. Anybody can send one in its name: the peer is asked, and its answer counts.
    fn recovery_claimed(&mut self, now: Instants, id: AssociationId, recovery: u32) {
        let pause = self.config.retransmission.t1;
        let Some(association) = self.associations.get_mut(id) else { return };
        if is_later(association.recovery, recovery) {
            self.counters.count_discarded(Discard::StaleRecovery);
        } else if is_later(recovery, association.recovery) {
            association.ask(now.monotonic, pause);
        }
    }

    pub(super) fn heartbeat_response(
        &mut self,
        now: Instants,
        id: AssociationId,
        frame: &Frame<'_>,
    ) -> Result<(), Rejection> {
        let recovery = recovery_in(&Group::of_message(frame.body)?)?;
        let next = now.monotonic + self.config.heartbeat_interval;
        if let Some(association) = self.associations.get_mut(id) {
            association.heartbeat_outstanding = false;
            association.heartbeat_at = next;
            (association.proven, association.claimed) = (true, None);
            if std::mem::take(&mut association.down) {
                tracing::info!(node = %association.node, "peer answers again");
            }
        }
        self.has_answered(now, id);
        self.recovery_seen(now, id, recovery);
        Ok(())
    }

    /// A later time stamp says that the peer restarted and knows nothing of its sessions (TS 23.527 4.2).
    fn recovery_seen(&mut self, now: Instants, id: AssociationId, recovery: u32) {
        let Some(association) = self.associations.get_mut(id) else { return };
        if is_later(association.recovery, recovery) {
            self.counters.count_discarded(Discard::StaleRecovery);
        } else if is_later(recovery, association.recovery) {
            association.recovery = recovery;
            self.counters.peer_restarts += 1;
            tracing::warn!(node = %association.node, "peer restarted, its sessions are deleted");
            self.begin_anew(now, id);
        }
    }

    /// Path failure (6.2.2, TS 23.527 4.4): sessions stay and packets flow; the peer is marked and asked on.
    pub(super) fn path_failed(&mut self, now: Instants, id: AssociationId) {
        let next = now.monotonic + self.config.heartbeat_interval.min(RETRY_INTERVAL);
        let Some(association) = self.associations.get_mut(id) else { return };
        association.heartbeat_outstanding = false;
        association.heartbeat_at = next;
        if !std::mem::replace(&mut association.down, true) {
            self.counters.path_failures += 1;
            tracing::warn!(node = %association.node, peer = %association.peer, "path failure, sessions are kept");
        }
    }

    pub(super) fn send_heartbeats(&mut self, now: Instants, out: &mut Vec<Transmit>) {
        for id in self.associations.heartbeats_due(now.monotonic) {
            let Some(association) = self.associations.get_mut(id) else { continue };
            association.heartbeat_outstanding = true;
            let to = association.peer;
            let request = (MsgType::HeartbeatRequest, self.outgoing.sequence());
            let draft = Draft::node(request.0, request.1).with(&encode::recovery(self.config.recovery));
            self.send(now, to, request, draft.bytes(), Purpose::Heartbeat(id), out);
        }
    }
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
}
