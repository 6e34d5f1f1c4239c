//! The forwarding against a simple model of the protocol: whoever waits gets the Data exactly once, nothing that nobody
//! waits for leaves, nothing is left when all lifetimes are over.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::fixture::{A, APP, B, C, Node, briefs, data, interest_with, name, settings, token};
use kaido_ndn::cs::CsSettings;
use kaido_ndn::forward::{ForwarderSettings, StrategyChoice};
use kaido_ndn::{Annotations, NackReason};
use kaido_ndn_tables::{FaceId, PitSettings};
use proptest::prelude::*;

const FACES: [FaceId; 4] = [A, B, C, APP];
const ENTRIES: u32 = 6;

/// A name of up to three components, each one of two.
type Path = Vec<bool>;

fn uri(path: &Path) -> String {
    if path.is_empty() {
        "/".into()
    } else {
        path.iter().map(|&right| if right { "/r" } else { "/l" }).collect()
    }
}

#[derive(Clone, Debug)]
enum Step {
    Interest {
        face: usize,
        path: Path,
        can_be_prefix: bool,
        lifetime: u64,
    },
    /// With the token of the last Interest of the name, or without.
    Data {
        face: usize,
        path: Path,
        with_token: bool,
    },
    Pass(u64),
}

fn path() -> impl Strategy<Value = Path> {
    prop::collection::vec(any::<bool>(), 1..4)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4usize, path(), any::<bool>(), 0..20u64)
            .prop_map(|(face, path, can_be_prefix, lifetime)| Step::Interest { face, path, can_be_prefix, lifetime }),
        3 => (0..4usize, path(), any::<bool>())
            .prop_map(|(face, path, with_token)| Step::Data { face, path, with_token }),
        1 => (0..20u64).prop_map(Step::Pass),
    ]
}

#[derive(Default)]
struct Model {
    /// Routes: the next hops of a prefix.
    routes: BTreeMap<Path, BTreeSet<usize>>,
    /// Who waits for what until when.
    pending: BTreeMap<(Path, bool), BTreeMap<FaceId, Instant>>,
    /// Who was asked.
    asked: BTreeMap<(Path, bool), BTreeSet<FaceId>>,
    cached: BTreeSet<Path>,
}

impl Model {
    fn hops(&self, path: &Path, from: FaceId) -> BTreeSet<FaceId> {
        let route = (0..=path.len()).rev().find_map(|depth| self.routes.get(&path[..depth]));
        route.into_iter().flatten().map(|&hop| FACES[hop]).filter(|&face| face != from).collect()
    }

    fn is_cached(&self, path: &Path, can_be_prefix: bool) -> bool {
        self.cached.contains(path)
            || can_be_prefix && self.cached.iter().any(|cached| cached.starts_with(path))
    }

    fn expire(&mut self, now: Instant) {
        self.pending.retain(|_, downstreams| downstreams.values().any(|&expires| expires > now));
        self.asked.retain(|key, _| self.pending.contains_key(key));
    }

    /// Who gets the Data of a name.
    fn satisfy(&mut self, path: &Path, from: FaceId, now: Instant) -> Option<BTreeSet<FaceId>> {
        let waits = |(of, can_be_prefix): &(Path, bool)| of == path || *can_be_prefix && path.starts_with(of);
        let may_answer = |key: &(Path, bool)| self.asked.get(key).is_some_and(|asked| asked.contains(&from));
        let keys: Vec<_> = self.pending.keys().filter(|key| waits(key) && may_answer(key)).cloned().collect();
        keys.iter().for_each(|key| drop(self.asked.remove(key)));
        let matched: Vec<_> = keys.into_iter().filter_map(|key| self.pending.remove(&key)).collect();
        let waiting = matched.iter().flatten().filter(|&(&face, &expires)| face != from && expires > now);
        (!matched.is_empty()).then(|| waiting.map(|(&face, _)| face).collect())
    }
}

struct Pair {
    node: Node,
    model: Model,
    caches: bool,
    nonce: u32,
    /// What Interests of a name were last sent with.
    tokens: BTreeMap<Path, Annotations>,
}

impl Pair {
    fn new(routes: BTreeMap<Path, BTreeSet<usize>>, caches: bool, strategy: StrategyChoice) -> Self {
        let packets = if caches { 64 } else { 0 };
        let pit = PitSettings { records: 64, ..PitSettings::for_entries(ENTRIES, 1) };
        let cs = CsSettings { packets, octets: 1 << 20 };
        let node = Node::with(&ForwarderSettings { pit, cs, ..settings() });
        for (prefix, hops) in &routes {
            let hops: Vec<_> = hops.iter().zip(0..).map(|(&hop, cost)| (FACES[hop], cost)).collect();
            node.route(&uri(prefix), &hops);
        }
        node.shared.strategies().update(&[], |_| Some(strategy)).unwrap();
        let model = Model { routes, ..Model::default() };
        Self { node, model, caches, nonce: 0, tokens: BTreeMap::new() }
    }

    fn interest(&mut self, face: FaceId, path: &Path, can_be_prefix: bool, lifetime: u64) {
        self.nonce += 1;
        // Passing time never ends within 20 ms of a lifetime, so it is always clear what has expired.
        let lifetime_ms = lifetime * 50 + 20;
        let packet = interest_with(&uri(path), self.nonce, |repr| {
            (repr.can_be_prefix, repr.lifetime_ms) = (can_be_prefix, Some(lifetime_ms));
        });
        let sent = self.node.annotated(face, &packet, token(&face.0.to_be_bytes()));
        let key = (path.clone(), can_be_prefix);
        let is_pending = self.model.pending.contains_key(&key);
        let hops = self.model.hops(path, face);
        if !is_pending && self.model.is_cached(path, can_be_prefix) {
            assert_eq!(briefs(&sent), [('D', face.0)]);
            let found = sent[0].data().name.value();
            assert!(found.starts_with(&name(&uri(path))) && (can_be_prefix || found == name(&uri(path))));
        } else if !is_pending && (hops.is_empty() || self.model.pending.len() == ENTRIES as usize) {
            assert_eq!(briefs(&sent), [('N', face.0)]);
            let reason = if self.model.pending.len() == ENTRIES as usize {
                NackReason::Congestion
            } else {
                NackReason::NoRoute
            };
            assert_eq!(sent[0].nack(), Some(reason));
        } else {
            assert!(is_pending || !sent.is_empty(), "a new Interest goes somewhere");
            let faces: Vec<_> = sent.iter().map(|sent| sent.face).collect();
            assert!(faces.iter().all(|face| hops.contains(face)), "{faces:?} of {hops:?}");
            assert!(sent.iter().all(|sent| !sent.is_data() && sent.nack().is_none()));
            if let Some(sent) = sent.first() {
                let pit_token = sent.annotations.pit_token;
                self.tokens.insert(path.clone(), Annotations { pit_token, ..Annotations::default() });
            }
            self.model.asked.entry(key.clone()).or_default().extend(faces);
            let expires = self.node.now + Duration::from_millis(lifetime_ms);
            self.model.pending.entry(key).or_default().insert(face, expires);
        }
    }

    fn data(&mut self, face: FaceId, path: &Path, with_token: bool) {
        let annotations = self.tokens.get(path).copied().filter(|_| with_token).unwrap_or_default();
        let sent = self.node.annotated(face, &data(&uri(path)), annotations);
        let expected = self.model.satisfy(path, face, self.node.now);
        if expected.is_some() && self.caches {
            self.model.cached.insert(path.clone());
        }
        let got: BTreeSet<_> = sent.iter().map(|sent| sent.face).collect();
        assert_eq!(got.len(), sent.len(), "each once");
        assert_eq!(got, expected.unwrap_or_default());
        for sent in &sent {
            assert_eq!(sent.octets, data(&uri(path)));
            assert_eq!(sent.annotations.pit_token.octets(), sent.face.0.to_be_bytes());
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Interest { face, path, can_be_prefix, lifetime } => {
                self.interest(FACES[face], &path, can_be_prefix, lifetime);
            }
            Step::Data { face, path, with_token } => self.data(FACES[face], &path, with_token),
            Step::Pass(steps) => self.pass(steps),
        }
        assert_eq!(self.node.frames_out(), 0);
        assert_eq!(self.node.forwarder.pit().len() as usize, self.model.pending.len());
    }

    fn pass(&mut self, steps: u64) {
        self.node.pass(steps * 50);
        self.model.expire(self.node.now);
    }
}

proptest! {
    #[test]
    fn whoever_waits_gets_the_data_once(
        routes in prop::collection::btree_map(
            prop::collection::vec(any::<bool>(), 0..3),
            prop::collection::btree_set(0..4usize, 1..4),
            0..4,
        ),
        caches: bool,
        strategy in 0..4usize,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut pair = Pair::new(routes, caches, StrategyChoice::ALL[strategy]);
        steps.into_iter().for_each(|step| pair.run(step));
        pair.pass(25);
        assert!(pair.node.forwarder.pit().is_empty());
        assert_eq!(pair.node.forwarder.tick_due(pair.node.now), None);
        let counters = pair.node.forwarder.counters();
        assert!(counters.satisfied + counters.unsatisfied <= counters.interests_in);
    }
}
