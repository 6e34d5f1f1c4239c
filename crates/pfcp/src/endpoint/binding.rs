//! What the endpoint knows of a session beside what the service keeps: whose it is, and of which sets.

use std::net::{IpAddr, SocketAddr};

use kaido_n4::{Seid, SessionService};
use kaido_store::{Kind, Recorder};
use serde::{Deserialize, Serialize};

use super::Endpoint;
use crate::association::AssociationId;
use crate::decode::Csid;
use crate::keyed::KeyedMap;

/// The most sets a session is kept in; a session has one from each of five nodes.
const SETS_MAX: usize = 16;

/// Parts of the table of sessions: of sixteen million, each has 4096.
pub(super) const PARTS: usize = 4096;
/// 2^64 by the golden ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// All sessions, by SEID, in parts that can be gone through one at a time.
#[derive(Debug)]
pub(super) struct Bindings {
    parts: Box<[KeyedMap<Seid, Binding>]>,
    len: usize,
    /// Takes down whose sessions are, for a restart.
    recorder: Recorder,
}

/// What a binding is recorded under: the number of the session, which the low half of its SEID is.
const fn number(seid: Seid) -> u64 {
    seid.0 & 0xffff_ffff
}

impl Bindings {
    pub(super) fn new() -> Self {
        let parts = (0..PARTS).map(|_| KeyedMap::default()).collect();
        Self { parts, len: 0, recorder: Recorder::default() }
    }

    /// Has changes of bindings taken down.
    pub(super) fn record_by(&mut self, recorder: Recorder) {
        self.recorder = recorder;
    }

    /// Records what a binding is now.
    pub(super) fn record(&self, seid: Seid) {
        let Some(binding) = self.get(seid) else { return };
        self.recorder.put_value(Kind::Binding, number(seid), &(seid, binding));
    }

    /// Takes in a binding of before a restart; `None` of what is none.
    pub(super) fn take_in(&mut self, recorded: &[u8]) -> Option<(Seid, &Binding)> {
        let (seid, binding) = postcard::from_bytes(recorded).ok()?;
        self.enter(seid, binding);
        Some((seid, self.get(seid)?))
    }

    #[allow(clippy::cast_possible_truncation)] // Below `PARTS`.
    const fn place(seid: Seid) -> usize {
        (seid.0.wrapping_mul(SPREAD) >> (64 - PARTS.trailing_zeros())) as usize
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, seid: Seid) -> Option<&Binding> {
        self.parts[Self::place(seid)].get(&seid)
    }

    pub(super) fn get_mut(&mut self, seid: Seid) -> Option<&mut Binding> {
        self.parts[Self::place(seid)].get_mut(&seid)
    }

    pub(super) fn insert(&mut self, seid: Seid, binding: Binding) {
        self.enter(seid, binding);
        self.record(seid);
    }

    fn enter(&mut self, seid: Seid, binding: Binding) {
        self.len += usize::from(self.parts[Self::place(seid)].insert(seid, binding).is_none());
    }

    /// Takes a session out. A part that has become empty gives its memory back.
    pub(super) fn remove(&mut self, seid: Seid) -> Option<Binding> {
        let part = &mut self.parts[Self::place(seid)];
        let binding = part.remove(&seid)?;
        if part.is_empty() {
            *part = KeyedMap::default();
        }
        self.len -= 1;
        self.recorder.remove(Kind::Binding, number(seid));
        Some(binding)
    }

    /// One of the [`PARTS`].
    pub(super) fn part(&self, at: usize) -> &KeyedMap<Seid, Binding> {
        &self.parts[at]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Seid, &Binding)> {
        self.parts.iter().flatten()
    }
}

/// A session's place among associations and sets.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Binding {
    /// The association that made it, or took it over.
    pub(super) association: AssociationId,
    /// Its usage is held until the control plane can be told.
    pub(super) held: bool,
    /// What few sessions have.
    more: Option<Box<BindingOptions>>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct BindingOptions {
    /// Where its reports go, if not to the address of its CP F-SEID.
    report_to: Option<IpAddr>,
    csids: Vec<Csid>,
    groups: Vec<Box<[u8]>>,
}

impl Binding {
    pub(super) fn new(association: AssociationId) -> Self {
        Self { association, held: false, more: None }
    }

    pub(super) fn report_to(&self) -> Option<IpAddr> {
        self.more.as_ref()?.report_to
    }

    pub(super) fn set_report_to(&mut self, address: Option<IpAddr>) {
        if address.is_some() || self.more.is_some() {
            self.more.get_or_insert_default().report_to = address;
        }
    }

    /// Puts the session into sets and groups, and says whether there are any. Sets named by a node replace that node's earlier ones.
    pub(super) fn join(&mut self, csids: &[Csid], groups: Vec<Box<[u8]>>) -> bool {
        if csids.is_empty() && groups.is_empty() {
            return false;
        }
        let more = self.more.get_or_insert_default();
        more.csids.retain(|old| csids.iter().all(|new| new.node != old.node));
        more.csids.extend_from_slice(&csids[..csids.len().min(SETS_MAX)]);
        more.csids.truncate(SETS_MAX);
        if !groups.is_empty() {
            more.groups = groups;
            more.groups.truncate(SETS_MAX);
        }
        true
    }

    pub(super) fn is_in_set(&self, csids: &[Csid]) -> bool {
        self.more.as_ref().is_some_and(|more| more.csids.iter().any(|csid| csids.contains(csid)))
    }

    pub(super) fn is_in_group(&self, groups: &[Box<[u8]>]) -> bool {
        self.more.as_ref().is_some_and(|more| more.groups.iter().any(|group| groups.contains(group)))
    }
}

impl<S: SessionService> Endpoint<S> {
    /// Enters a new session.
    pub(super) fn bind(&mut self, seid: Seid, binding: Binding) {
        if let Some(association) = self.associations.get_mut(binding.association) {
            association.sessions += 1;
        }
        self.purge.spare(seid);
        self.sessions.insert(seid, binding);
    }

    /// Takes a session out of its association.
    pub(super) fn unbind(&mut self, seid: Seid) -> Option<Binding> {
        let binding = self.sessions.remove(seid)?;
        let count = match self.associations.get_mut(binding.association) {
            Some(association) => &mut association.sessions,
            None => &mut self.purge.orphans,
        };
        *count = count.saturating_sub(1);
        Some(binding)
    }

    /// Hands a session over to another association of the SMF set (5.22.3). Its reports go to the new CP F-SEID.
    pub(super) fn rebind(&mut self, seid: Seid, to: AssociationId) {
        if let Some(mut binding) = self.unbind(seid) {
            binding.association = to;
            binding.set_report_to(None);
            if let Some(association) = self.associations.get_mut(to).filter(|_| binding.held) {
                association.held.push_back(seid);
            }
            self.bind(seid, binding);
        }
    }

    /// The association from which somebody may speak of a session: the session's own, or one of the same SMF set.
    pub(super) fn speaker(&self, from: SocketAddr, of: AssociationId) -> Option<AssociationId> {
        let here = self.associations.at(from.ip());
        if here.contains(&of) {
            return Some(of);
        }
        let set = self.associations.get(of)?.set.as_ref()?;
        let same_set = |id: &&AssociationId| {
            self.associations.get(**id).is_some_and(|other| other.set.as_ref() == Some(set))
        };
        here.iter().find(same_set).copied()
    }
}
