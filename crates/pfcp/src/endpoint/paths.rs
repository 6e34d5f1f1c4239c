//! Node Report procedure (TS 29.244 6.2.9, 7.4.5): paths to GTP-U peers that fail, come back, or start anew.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use kaido_n4::{PathChange, PathEvent, SessionService};
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;

use super::{Endpoint, Purpose};
use crate::association::AssociationId;
use crate::encode::{Draft, number};
use crate::features::CpFeatures;
use crate::transaction::{Instants, Transmit};

/// The most peers in one report: about a kilobyte.
const PEERS_IN_REPORT_MAX: usize = 40;
/// The most changes that wait for one control plane; further ones are lost to it.
const WAITING_MAX: usize = 4096;
/// Node Reports in a row after which a control plane that is there and answers none gets no more: the SMF of free5GC does not
/// know them.
const UNANSWERED_MAX: u8 = 2;
/// The most changes taken from the service in one poll.
const EVENTS_PER_POLL: usize = 1024;

impl<S: SessionService> Endpoint<S> {
    /// Reports what became of the path to a GTP-U peer to every control plane; of a restart, to those that say
    /// they understand it (RPGUR). Sent at the next [`Endpoint::poll`], again after T1, and anew once a control
    /// plane that did not answer is back.
    pub fn report_path(&mut self, event: PathEvent) {
        for association in self.associations.iter_mut() {
            if association.node_reports_unanswered >= UNANSWERED_MAX
                || (event.change == PathChange::Restarted && !association.features.has(CpFeatures::RPGUR))
            {
                continue;
            }
            let undone = match event.change {
                PathChange::Failed => Some(PathChange::Recovered),
                PathChange::Recovered => Some(PathChange::Failed),
                PathChange::Restarted => None,
            };
            // What has not been said yet and is not so any more needs no saying.
            let unsaid =
                undone.is_some_and(|change| association.paths.remove(&PathEvent { change, ..event }));
            if unsaid {
                continue;
            }
            if association.paths.len() < WAITING_MAX {
                association.paths.insert(event);
            } else {
                self.counters.reports_lost += 1;
            }
        }
    }

    pub(super) fn send_node_reports(&mut self, now: Instants, out: &mut Vec<Transmit>) {
        for event in self.service.poll_paths(EVENTS_PER_POLL) {
            self.report_path(event);
        }
        for id in self.associations.with_paths() {
            while self.outgoing.room() > 0 {
                let Some(association) = self.associations.get_mut(id).filter(|peer| !peer.down) else {
                    break;
                };
                let to = association.peer;
                let paths = std::mem::take(&mut association.paths);
                let mut paths = paths.into_iter();
                let now_said: Arc<[PathEvent]> = paths.by_ref().take(PEERS_IN_REPORT_MAX).collect();
                association.paths = paths.collect();
                if now_said.is_empty() {
                    break;
                }
                self.send_node_report(now, (id, to), now_said, out);
            }
        }
    }

    fn send_node_report(
        &mut self,
        now: Instants,
        (id, to): (AssociationId, SocketAddr),
        paths: Arc<[PathEvent]>,
        out: &mut Vec<Transmit>,
    ) {
        let request = (MsgType::NodeReportRequest, self.outgoing.sequence());
        let mut draft = Draft::node(request.0, request.1).with(&self.config.node_id.encode());
        node_report(&mut draft, &paths);
        self.send(now, to, request, draft.bytes(), Purpose::Paths(id, paths), out);
    }

    /// The peer knows Node Reports.
    pub(super) fn node_report_answered(&mut self, id: AssociationId) {
        if let Some(association) = self.associations.get_mut(id) {
            association.node_reports_unanswered = 0;
        }
    }

    /// A Node Report that had no answer: to be said again when the control plane is back, unless it has become
    /// untrue meanwhile.
    pub(super) fn keep_paths(&mut self, id: AssociationId, paths: &[PathEvent]) {
        let Some(association) = self.associations.get_mut(id) else { return };
        if !association.down {
            association.node_reports_unanswered = association.node_reports_unanswered.saturating_add(1);
            if association.node_reports_unanswered >= UNANSWERED_MAX {
                tracing::warn!(
                    peer = %association.peer,
                    "answers heartbeats and no Node Report: it gets none until it sets up its association again"
                );
                self.counters.reports_lost += paths.len() as u64;
                association.paths.clear();
                return;
            }
        }
        let known: BTreeSet<IpAddr> = association.paths.iter().map(|event| event.peer).collect();
        for event in paths.iter().filter(|event| !known.contains(&event.peer)) {
            if association.paths.len() < WAITING_MAX {
                association.paths.insert(*event);
            } else {
                self.counters.reports_lost += 1;
            }
        }
    }
}

/// Node Report Type (8.2.69) and one group of peers for each kind of change there is.
fn node_report(draft: &mut Draft, paths: &[PathEvent]) {
    let kinds = [
        (PathChange::Failed, 1u8, IeType::UserPlanePathFailureReport),
        (PathChange::Recovered, 2, IeType::UserPlanePathRecoveryReport),
        (PathChange::Restarted, 0x10, IeType::PeerUpRestartReport),
    ];
    let of = |change| paths.iter().filter(move |event| event.change == change);
    let there = kinds.iter().filter(|&&(change, ..)| of(change).next().is_some());
    draft.push(&number(IeType::NodeReportType, [there.clone().fold(0, |bits, &(_, bit, _)| bits | bit)]));
    for &(change, _, group) in there {
        draft.push(&Ie::new_grouped(group, of(change).map(|event| remote_peer(event.peer)).collect()));
    }
}

/// Remote GTP-U Peer (8.2.70) with its address alone.
fn remote_peer(peer: IpAddr) -> Ie {
    let value = match peer {
        IpAddr::V4(address) => [&[2][..], &address.octets()].concat(),
        IpAddr::V6(address) => [&[1][..], &address.octets()].concat(),
    };
    Ie::new(IeType::RemoteGtpuPeer, value)
}
