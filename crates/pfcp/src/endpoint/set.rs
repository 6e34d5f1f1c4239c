//! Session set procedures (TS 29.244 6.2.10, 6.2.11): many sessions deleted, or handed to another SMF, by one
//! message.

use std::net::{IpAddr, SocketAddr};

use kaido_n4::{Cause, Rejection, Seid, SessionService};
use rs_pfcp::ie::IeType;

use super::Endpoint;
use super::binding::Binding;
use super::purge::PurgedSessions;
use crate::association::AssociationId;
use crate::decode::{self, ControlPlane, Csid, SetChange};
use crate::encode::{Draft, accepted};
use crate::frame::{Frame, response_to};
use crate::procedure::Phase;
use crate::transaction::Instants;
use crate::walk::Group;

impl<S: SessionService> Endpoint<S> {
    /// Session Set Deletion Request (7.4.6.1): a part of a node failed and has forgotten these sessions.
    pub(super) fn session_set_deletion(
        &mut self,
        now: Instants,
        from: SocketAddr,
        frame: &Frame<'_>,
    ) -> Result<Vec<u8>, Rejection> {
        let group = Group::of_message(frame.body)?;
        let id = self.association_named(from, &group)?;
        self.procedure_is_of(id);
        group.conditional(IeType::FqCsid)?;
        let csids: Vec<Csid> = decode::csids(&group)?;
        let theirs = |&id: &AssociationId| self.speaker(from, id).is_some();
        let theirs: Vec<_> = self.associations.ids().into_iter().filter(theirs).collect();
        self.procedure_enters(Phase::Apply);
        self.end_selected(now, PurgedSessions::InSets(theirs, csids))?;
        self.procedure_enters(Phase::Encode);
        Ok(self.accepted_node(frame))
    }

    /// Session Set Modification Request (7.4.7.1): reports of these sessions go to another SMF from now on, and
    /// it may speak of them.
    pub(super) fn session_set_modification(
        &mut self,
        from: SocketAddr,
        frame: &Frame<'_>,
    ) -> Result<Vec<u8>, Rejection> {
        let group = Group::of_message(frame.body)?;
        let id = self.association_named(from, &group)?;
        self.procedure_is_of(id);
        let changes = decode::set_changes(&group)?;
        self.procedure_enters(Phase::Apply);
        let mut planned = Vec::with_capacity(changes.len());
        for change in changes {
            planned.push((self.alternative_of(&change)?, change));
        }
        for (alternative, change) in planned {
            self.hand_over(from, &change, alternative);
        }
        self.procedure_enters(Phase::Encode);
        Ok(self.accepted_node(frame))
    }

    /// The address of a change that we can reach.
    fn alternative_of(&self, change: &SetChange) -> Result<IpAddr, Rejection> {
        let reachable = |address: &&IpAddr| match address {
            IpAddr::V4(_) => self.config.ipv4.is_some(),
            IpAddr::V6(_) => self.config.ipv6.is_some(),
        };
        change.alternatives.iter().find(reachable).copied().ok_or_else(|| {
            Rejection::new(Cause::MandatoryIeIncorrect, "no alternative address of a family spoken here")
                .ie(IeType::AlternativeSmfIpAddress as u16)
        })
    }

    fn hand_over(&mut self, from: SocketAddr, change: &SetChange, alternative: IpAddr) {
        let chosen = self.sessions_where(from, |seid, binding| {
            binding.is_in_set(&change.csids)
                || binding.is_in_group(&change.groups)
                || self.cp_is_at(seid, &change.cp_addresses)
        });
        let mut associations = Vec::new();
        for seid in chosen {
            if let Some(binding) = self.sessions.get_mut(seid) {
                binding.set_report_to(Some(alternative));
                if !associations.contains(&binding.association) {
                    associations.push(binding.association);
                }
                self.sessions.record(seid);
            }
        }
        for id in associations {
            self.associations
                .describe(id, ControlPlane { addresses: vec![alternative], ..ControlPlane::default() });
        }
    }

    /// Whether a session's CP F-SEID has one of these addresses.
    fn cp_is_at(&self, seid: Seid, addresses: &[IpAddr]) -> bool {
        // To look a session up costs more than all else here.
        !addresses.is_empty()
            && self.service.cp_fseid(seid).is_some_and(|cp| {
                let own = [cp.ipv4.map(IpAddr::V4), cp.ipv6.map(IpAddr::V6)];
                own.iter().flatten().any(|address| addresses.contains(address))
            })
    }

    /// The sessions of which a peer may speak, and that are as wanted.
    fn sessions_where(&self, from: SocketAddr, wanted: impl Fn(Seid, &Binding) -> bool) -> Vec<Seid> {
        let theirs = |binding: &Binding| self.speaker(from, binding.association).is_some();
        let live = |seid, binding: &Binding| !self.is_ending_session(seid, binding);
        let chosen = self
            .sessions
            .iter()
            .filter(|&(&seid, binding)| theirs(binding) && wanted(seid, binding) && live(seid, binding));
        chosen.map(|(&seid, _)| seid).collect()
    }

    fn accepted_node(&self, frame: &Frame<'_>) -> Vec<u8> {
        let draft = Draft::node(response_to(frame.kind), frame.sequence);
        draft.with(&self.config.node_id.encode()).with(&accepted()).bytes()
    }
}
