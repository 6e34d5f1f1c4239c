//! PFCP associations (TS 29.244 5.8, 6.2.6): which control planes may speak to us, and from where.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kaido_n4::{PathEvent, Seid};
use kaido_store::{Kind, Recorder};
use serde::{Deserialize, Serialize};

use crate::decode::ControlPlane;
use crate::features::CpFeatures;
use crate::keyed::KeyedMap;
use crate::node_id::NodeId;

/// The most associations that are set up from one address: SMFs of several slices may share one.
const PER_ADDRESS_MAX: usize = 64;
/// The most addresses remembered for one node.
const ADDRESSES_MAX: usize = 16;

/// Names an association. A node that sets up anew gets a new one, unless its sessions are retained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct AssociationId(pub(crate) u32);

/// One association.
#[derive(Clone, Debug)]
pub(crate) struct Association {
    /// The peer's name.
    pub(crate) node: NodeId,
    /// Where our requests go.
    pub(crate) peer: SocketAddr,
    /// When it was set up.
    pub(crate) since: Instant,
    /// It has answered a request of ours.
    pub(crate) proven: bool,
    /// Since when somebody at another address claims to be it, while it is asked whether it is still there.
    pub(crate) claimed: Option<Instant>,
    /// When it was last asked because somebody claimed something of it.
    pub(crate) asked: Option<Instant>,
    /// Where its requests may come from.
    pub(crate) addresses: Vec<IpAddr>,
    /// Its recovery time stamp, in seconds since 1900.
    pub(crate) recovery: u32,
    /// It does not answer.
    pub(crate) down: bool,
    /// When the next heartbeat is due.
    pub(crate) heartbeat_at: Instant,
    /// A heartbeat is on its way.
    pub(crate) heartbeat_outstanding: bool,
    /// Sessions held.
    pub(crate) sessions: usize,
    /// What the peer can do.
    pub(crate) features: CpFeatures,
    /// The SMF set that the peer belongs to (5.22).
    pub(crate) set: Option<Arc<str>>,
    /// Where reports go when the peer does not answer, the preferred address first.
    pub(crate) alternatives: Vec<IpAddr>,
    /// What became of GTP-U paths and could not be reported yet.
    pub(crate) paths: BTreeSet<PathEvent>,
    /// Node Reports in a row that the peer has not answered, while it answers heartbeats.
    pub(crate) node_reports_unanswered: u8,
    /// The peer is congested and gets no session reports before this.
    pub(crate) busy_until: Option<Instant>,
    /// Session reports that wait for an answer.
    pub(crate) in_flight: usize,
    /// It does not answer session reports.
    pub(crate) silent: bool,
    /// When it last answered a heartbeat or a session report.
    pub(crate) answered_at: Option<Instant>,
    /// Sessions whose usage is to be reported when the peer can be told again.
    pub(crate) held: VecDeque<Seid>,
    /// Nothing of what is held is reported before this.
    pub(crate) resume_at: Option<Instant>,
    /// When one report is tried, though the peer is silent.
    pub(crate) probe_at: Option<Instant>,
}

impl Association {
    pub(crate) fn new(
        node: NodeId,
        peer: SocketAddr,
        recovery: u32,
        since: Instant,
        heartbeat_interval: Duration,
    ) -> Self {
        let mut association = Self {
            since,
            proven: false,
            claimed: None,
            asked: None,
            addresses: vec![peer.ip()],
            peer,
            recovery,
            down: false,
            heartbeat_at: since + heartbeat_interval,
            heartbeat_outstanding: false,
            sessions: 0,
            features: CpFeatures::default(),
            set: None,
            alternatives: Vec::new(),
            paths: BTreeSet::new(),
            node_reports_unanswered: 0,
            busy_until: None,
            in_flight: 0,
            silent: false,
            answered_at: None,
            held: VecDeque::new(),
            resume_at: None,
            probe_at: None,
            node,
        };
        let named = association.node.address();
        association.learn(named);
        association
    }

    /// Adds addresses from which the peer may speak.
    pub(crate) fn learn(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        for address in addresses {
            if self.addresses.len() < ADDRESSES_MAX && !self.addresses.contains(&address) {
                self.addresses.push(address);
            }
        }
    }

    /// Takes over what the peer says of itself.
    pub(crate) fn describe(&mut self, said: ControlPlane) {
        self.learn(said.addresses);
        if let Some(mut alternatives) = said.alternatives {
            self.learn(alternatives.iter().copied());
            alternatives.truncate(ADDRESSES_MAX);
            self.alternatives = alternatives;
        }
        self.features = said.features.unwrap_or(self.features);
        self.set = said.set.or(self.set.take());
    }

    /// Has it asked for a heartbeat at once, unless that was done within `pause`.
    pub(crate) fn ask(&mut self, now: Instant, pause: Duration) {
        if self.asked.is_none_or(|at| now.saturating_duration_since(at) >= pause) {
            self.asked = Some(now);
            if !self.heartbeat_outstanding {
                self.heartbeat_at = now;
            }
        }
    }

    /// Whether it may give way to another: it holds nothing, and has not shown that it is there, or does not any more.
    pub(crate) fn gives_way(&self, now: Instant, patience: Duration) -> bool {
        let is_unproven = !self.proven && now.saturating_duration_since(self.since) >= patience;
        self.sessions == 0 && (self.down || is_unproven)
    }

    pub(crate) fn speaks_from(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }
}

/// All associations, found by name and by address.
#[derive(Debug)]
pub(crate) struct Associations {
    limit: usize,
    next: u32,
    by_node: KeyedMap<NodeId, AssociationId>,
    by_id: KeyedMap<AssociationId, Association>,
    by_address: KeyedMap<IpAddr, Vec<AssociationId>>,
    /// Takes down what associations are, for a restart.
    recorder: Recorder,
}

/// What is kept of an association over a restart: who it is, and what it said of itself.
#[derive(Debug, Serialize, Deserialize)]
struct AssociationRecord<'a> {
    node: Cow<'a, NodeId>,
    peer: SocketAddr,
    recovery: u32,
    addresses: Cow<'a, [IpAddr]>,
    features: CpFeatures,
    set: Option<Cow<'a, str>>,
    alternatives: Cow<'a, [IpAddr]>,
}

impl AssociationRecord<'_> {
    fn of(association: &Association) -> AssociationRecord<'_> {
        AssociationRecord {
            node: Cow::Borrowed(&association.node),
            peer: association.peer,
            recovery: association.recovery,
            addresses: Cow::Borrowed(&association.addresses),
            features: association.features,
            set: association.set.as_deref().map(Cow::Borrowed),
            alternatives: Cow::Borrowed(&association.alternatives),
        }
    }

    /// The association as it goes on at `now`; its peer is asked for a heartbeat at once.
    fn association(self, now: Instant) -> Association {
        let node = self.node.into_owned();
        let mut association = Association::new(node, self.peer, self.recovery, now, Duration::ZERO);
        association.addresses.clear();
        association.learn(self.addresses.into_owned());
        association.features = self.features;
        association.set = self.set.map(Into::into);
        association.alternatives = self.alternatives.into_owned();
        association
    }
}

impl Associations {
    pub(crate) fn new(limit: usize) -> Self {
        let (by_node, by_id, by_address) = Default::default();
        Self { limit, next: 0, by_node, by_id, by_address, recorder: Recorder::default() }
    }

    /// Has changes of associations taken down.
    pub(crate) fn record_by(&mut self, recorder: Recorder) {
        self.recorder = recorder;
    }

    /// Takes in an association of before a restart, by its number and what was recorded of it; `None` of what is none.
    pub(crate) fn take_in(&mut self, number: u64, recorded: &[u8], now: Instant) -> Option<()> {
        let id = AssociationId(u32::try_from(number).ok()?);
        let record: AssociationRecord<'_> = postcard::from_bytes(recorded).ok()?;
        if self.is_full() || self.by_id.contains_key(&id) || self.by_node.contains_key(&*record.node) {
            return None;
        }
        self.reserve(id);
        self.enter(id, record.association(now));
        Some(())
    }

    /// Has no association get a number that a session names whose association is gone.
    pub(crate) fn reserve(&mut self, id: AssociationId) {
        self.next = self.next.max(id.0.wrapping_add(1));
    }

    /// Records what an association is now.
    pub(crate) fn record(&self, id: AssociationId) {
        let Some(association) = self.by_id.get(&id) else { return };
        self.recorder.put_value(Kind::Peer, id.0.into(), &AssociationRecord::of(association));
    }

    pub(crate) fn is_full(&self) -> bool {
        self.by_id.len() >= self.limit
    }

    /// Whether so many are there that each should show that it is alive.
    pub(crate) fn is_crowded(&self) -> bool {
        self.by_id.len() >= self.limit / 2
    }

    /// Whether more may be set up from an address.
    pub(crate) fn has_room_at(&self, address: IpAddr) -> bool {
        let set_up_from = |id: &&AssociationId| self.by_id.get(id).is_some_and(|it| it.peer.ip() == address);
        self.at(address).iter().filter(set_up_from).count() < PER_ADDRESS_MAX
    }

    /// The oldest association that gives way to a new one.
    pub(crate) fn dispensable(
        &self,
        now: Instant,
        patience: Duration,
        is_kept: impl Fn(&Association) -> bool,
    ) -> Option<AssociationId> {
        let gives_way = |peer: &Association| peer.gives_way(now, patience) && !is_kept(peer);
        let candidates = self.by_id.iter().filter(|(_, peer)| gives_way(peer));
        candidates.min_by_key(|(id, peer)| (!peer.down, peer.since, **id)).map(|(&id, _)| id)
    }

    pub(crate) fn of_node(&self, node: &NodeId) -> Option<AssociationId> {
        self.by_node.get(node).copied()
    }

    /// Every association whose peer speaks from this address.
    pub(crate) fn at(&self, address: IpAddr) -> &[AssociationId] {
        self.by_address.get(&address).map_or(&[], Vec::as_slice)
    }

    /// Somebody speaks from there: who did not answer lately is asked at once whether it does again.
    pub(crate) fn hear(&mut self, address: IpAddr, now: Instant, pause: Duration) {
        for id in self.by_address.get(&address).into_iter().flatten() {
            if let Some(association) = self.by_id.get_mut(id).filter(|peer| peer.silent || peer.down) {
                association.ask(now, pause);
            }
        }
    }

    pub(crate) fn get(&self, id: AssociationId) -> Option<&Association> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: AssociationId) -> Option<&mut Association> {
        self.by_id.get_mut(&id)
    }

    pub(crate) fn ids(&self) -> Vec<AssociationId> {
        self.by_id.keys().copied().collect()
    }

    /// The associations to ask for a heartbeat by `now`.
    pub(crate) fn heartbeats_due(&self, now: Instant) -> Vec<AssociationId> {
        let due = |peer: &Association| !peer.heartbeat_outstanding && peer.heartbeat_at <= now;
        self.by_id.iter().filter(|(_, peer)| due(peer)).map(|(&id, _)| id).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Association> {
        self.by_id.values()
    }

    /// All of them, to change what neither name nor address depends on.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Association> {
        self.by_id.values_mut()
    }

    /// The associations whose peers are to hear of GTP-U paths.
    pub(crate) fn with_paths(&self) -> Vec<AssociationId> {
        self.by_id.iter().filter(|(_, peer)| !peer.paths.is_empty()).map(|(&id, _)| id).collect()
    }

    /// The associations of sessions whose usage is held.
    pub(crate) fn with_held(&self) -> Vec<AssociationId> {
        self.by_id.iter().filter(|(_, peer)| !peer.held.is_empty()).map(|(&id, _)| id).collect()
    }

    pub(crate) fn insert(&mut self, association: Association) -> AssociationId {
        let id = AssociationId(self.next);
        self.next = self.next.wrapping_add(1);
        self.put(id, association);
        id
    }

    /// Overwrites an association that keeps its name and its sessions.
    pub(crate) fn replace(&mut self, id: AssociationId, association: Association) {
        self.remove(id);
        self.put(id, association);
    }

    fn put(&mut self, id: AssociationId, association: Association) {
        self.enter(id, association);
        self.record(id);
    }

    fn enter(&mut self, id: AssociationId, association: Association) {
        self.by_node.insert(association.node.clone(), id);
        for &address in &association.addresses {
            self.by_address.entry(address).or_default().push(id);
        }
        self.by_id.insert(id, association);
    }

    /// Takes over what a peer says of itself.
    pub(crate) fn describe(&mut self, id: AssociationId, said: ControlPlane) {
        if let Some(mut association) = self.remove(id) {
            association.describe(said);
            self.put(id, association);
        }
    }

    pub(crate) fn remove(&mut self, id: AssociationId) -> Option<Association> {
        let association = self.by_id.remove(&id)?;
        self.recorder.remove(Kind::Peer, id.0.into());
        self.by_node.remove(&association.node);
        for address in &association.addresses {
            if let Some(ids) = self.by_address.get_mut(address) {
                ids.retain(|&other| other != id);
                if ids.is_empty() {
                    self.by_address.remove(address);
                }
            }
        }
        Some(association)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn association(node: &str, from: &str) -> Association {
        Association::new(node.parse().unwrap(), from.parse().unwrap(), 1, Instant::now(), Duration::ZERO)
    }

    #[test]
    fn found_by_name_and_by_every_address() {
        let mut all = Associations::new(2);
        let id = all.insert(association("10.0.0.1", "10.0.0.9:8805"));
        let other = all.insert(association("smf.org", "10.0.0.9:9999"));
        assert!(all.is_full());
        assert_eq!(all.of_node(&"smf.org".parse().unwrap()), Some(other));
        assert_eq!(all.at("10.0.0.9".parse().unwrap()), [id, other]);
        assert_eq!(all.at("10.0.0.1".parse().unwrap()), [id]);
        let addresses = vec!["10.0.0.7".parse().unwrap()];
        all.describe(other, ControlPlane { addresses, ..ControlPlane::default() });
        assert_eq!(all.at("10.0.0.7".parse().unwrap()), [other]);
        all.remove(other);
        assert!(all.at("10.0.0.7".parse().unwrap()).is_empty());
        assert_eq!(all.at("10.0.0.9".parse().unwrap()), [id]);
        all.remove(id);
        assert!(all.by_address.is_empty() && all.by_node.is_empty() && all.by_id.is_empty());
    }

    #[test]
    fn addresses_are_bounded() {
        let mut association = association("10.0.0.1", "10.0.0.1:8805");
        association.learn((0..200).map(|last| IpAddr::from([10, 1, 0, last])));
        assert_eq!(association.addresses.len(), ADDRESSES_MAX);
    }
}
