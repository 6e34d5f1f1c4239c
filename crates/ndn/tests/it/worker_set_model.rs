//! A router of four workers beside one of one, while names turn hot and cool and workers take their turns as they like. No
//! Interest is answered twice, no loop passes, who waits gets the Data, nothing is left. Names that never turned fare as with one
//! worker.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::workers::{Crowd, Made, Sent, data, interest, name};
use kaido_ndn::balance::{Phase, WINDOW};
use kaido_wire::ndn::LpHeader;
use proptest::prelude::*;

const WORKERS: usize = 4;
/// The last name never turns.
const NAMES: [&str; 4] = ["/a", "/a/b", "/c", "/steady/name"];
const FACES: usize = 7;

#[derive(Clone, Debug)]
enum Step {
    /// Another Interest for a name, from a face, at a worker.
    Interest {
        name: usize,
        face: usize,
        worker: usize,
    },
    /// An Interest that was sent comes back by another face.
    Loop {
        which: prop::sample::Index,
        face: usize,
        worker: usize,
    },
    /// One that was sent is answered.
    Answer {
        which: prop::sample::Index,
        worker: usize,
        with_token: bool,
    },
    /// A name goes on to its next phase, or to the other rule.
    Turn {
        name: usize,
        back: bool,
    },
    Pass(u64),
    /// A worker takes a turn; where it is not said that all do after each step.
    Round(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    prop_oneof![
        6 => (0..NAMES.len(), 1..FACES, 0..WORKERS)
            .prop_map(|(name, face, worker)| Step::Interest { name, face, worker }),
        4 => (index(), 1..FACES, 0..WORKERS)
            .prop_map(|(which, face, worker)| Step::Loop { which, face, worker }),
        3 => (index(), 0..WORKERS, any::<bool>())
            .prop_map(|(which, worker, with_token)| Step::Answer { which, worker, with_token }),
        2 => (0..NAMES.len() - 1, any::<bool>()).prop_map(|(name, back)| Step::Turn { name, back }),
        1 => prop_oneof![0..400u64, Just(11_000u64)].prop_map(Step::Pass),
        6 => (0..WORKERS).prop_map(Step::Round),
    ]
}

/// An Interest that a router has sent.
#[derive(Clone, Debug)]
struct Asked {
    uri: usize,
    nonce: u32,
    token: Vec<u8>,
    at: Instant,
    is_answered: bool,
}

/// A router and all that it has sent.
struct Seen {
    crowd: Crowd,
    asked: Vec<Asked>,
    /// How often each token of a consumer was answered, and whose it is.
    answers: BTreeMap<u32, usize>,
    owners: BTreeMap<u32, (usize, usize)>,
    /// Nonces that came from a face.
    from: BTreeMap<u32, usize>,
    /// The packets of the name that never turns.
    steady: Vec<(char, usize)>,
}

impl Seen {
    fn new(workers: usize, cached: u32) -> Self {
        Self {
            crowd: Crowd::new(Made { workers, cached, ..Made::default() }),
            asked: Vec::new(),
            answers: BTreeMap::new(),
            owners: BTreeMap::new(),
            from: BTreeMap::new(),
            steady: Vec::new(),
        }
    }

    /// Sends an Interest with a token that says which it is.
    fn interest(&mut self, worker: usize, face: usize, uri: usize, nonce: u32) -> u32 {
        let number = u32::try_from(self.owners.len()).unwrap();
        self.owners.insert(number, (face, uri));
        self.from.entry(nonce).or_insert(face);
        let token = number.to_be_bytes();
        let said = LpHeader { pit_token: &token, ..LpHeader::default() };
        self.crowd.put(worker % self.crowd.workers.len(), face, &said, &interest(NAMES[uri], nonce));
        number
    }

    fn answer(&mut self, which: usize, worker: usize, with_token: bool) {
        let asked = &mut self.asked[which];
        asked.is_answered = true;
        let token = if with_token { asked.token.clone() } else { Vec::new() };
        let uri = NAMES[asked.uri];
        let said = LpHeader { pit_token: &token, ..LpHeader::default() };
        self.crowd.put(worker % self.crowd.workers.len(), 0, &said, &data(uri));
    }

    fn look(&mut self, sent: Vec<Sent>) {
        for sent in sent {
            let octets = if sent.is_data() {
                kaido_wire::ndn::Data::parse(&sent.octets, sent.octets.len()).unwrap().name.value()
            } else {
                sent.interest().name.value()
            };
            let uri = NAMES.iter().position(|uri| name(uri) == octets).unwrap();
            if uri == NAMES.len() - 1 {
                self.steady.push(sent.brief());
            }
            if sent.brief().0 == 'I' {
                let nonce = sent.interest().nonce.unwrap();
                assert_eq!(sent.face, 0, "it goes by its route");
                let at = self.crowd.now;
                self.asked.push(Asked { uri, nonce, token: sent.token, at, is_answered: false });
                continue;
            }
            let number = u32::from_be_bytes(sent.token[..].try_into().unwrap());
            assert_eq!(self.owners[&number], (sent.face, uri), "whose token it is");
            let answers = self.answers.entry(number).or_default();
            *answers += 1;
            assert_eq!(*answers, 1, "{:?} is answered twice", sent.brief());
        }
    }

    /// No Interest has gone upstream twice; asked of the router whose Interests came back alone. Of an entry the last nonce is remembered that went to an upstream: one that a later
    /// one has replaced there is not known any more when its own record is gone.
    fn judge(&self) {
        for (first, asked) in self.asked.iter().enumerate() {
            let (before, rest) = (&self.asked[..first], &self.asked[first + 1..]);
            let is_same = |other: &Asked| (other.uri, other.nonce) == (asked.uri, asked.nonce);
            // A copy that has passed for that reason may come again by its face, as the other end of a link repeats itself.
            let again = !before.iter().any(is_same) && rest.iter().any(is_same);
            let is_replaced =
                || rest.iter().any(|later| later.token == asked.token && later.nonce != asked.nonce);
            assert!(!again || is_replaced(), "{} with nonce {} passes again", NAMES[asked.uri], asked.nonce);
        }
    }

    fn settle(&mut self) {
        let sent = self.crowd.settle();
        self.look(sent);
    }

    /// All that is asked is answered, and then nobody waits.
    fn finish(mut self) -> Vec<(char, usize)> {
        self.settle();
        // So long after, nothing is known of former Interests.
        self.crowd.pass(20_000);
        let mut last = BTreeSet::new();
        for uri in 0..NAMES.len() {
            for face in 1..FACES {
                let nonce = 1_000_000 + u32::try_from(self.owners.len()).unwrap();
                last.insert(self.interest(face, face, uri, nonce));
            }
        }
        self.settle();
        let open: Vec<usize> =
            (0..self.asked.len()).filter(|&which| !self.asked[which].is_answered).collect();
        for which in open {
            self.answer(which, which, which % 2 == 0);
            self.settle();
        }
        for number in last {
            let answered = self.answers.get(&number) == Some(&1);
            assert!(answered, "{:?} waits in vain", self.owners[&number]);
        }
        if self.crowd.workers.len() > 1 {
            self.judge();
        }
        self.crowd.end();
        // Faces ask at workers of their own at last: in no order.
        self.steady.sort_unstable();
        self.steady
    }
}

struct Run {
    worker_set: Seen,
    alone: Seen,
    settles: bool,
    phases: [(Option<Phase>, Instant); NAMES.len()],
    nonce: u32,
}

impl Run {
    fn new(cached: u32, settles: bool) -> Self {
        let worker_set = Seen::new(WORKERS, cached);
        let phases = [(None, worker_set.crowd.now); NAMES.len()];
        Self { worker_set, alone: Seen::new(1, cached), settles, phases, nonce: 0 }
    }

    fn turn(&mut self, uri: usize, back: bool) {
        let now = self.worker_set.crowd.now;
        let (phase, since) = self.phases[uri];
        let is_over = now.saturating_duration_since(since) >= WINDOW;
        let next = match phase {
            Some(Phase::Warming) if is_over && !back => Some(Phase::Hot),
            Some(Phase::Cooling) if is_over && !back => None,
            Some(Phase::Warming | Phase::Hot) => Some(Phase::Cooling),
            None | Some(Phase::Cooling) => Some(Phase::Warming),
        };
        self.phases[uri] = (next, now);
        let hash = self.worker_set.crowd.hash(NAMES[uri]);
        assert!(self.worker_set.crowd.balance.hot().set(hash, next));
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Interest { name, face, worker } => {
                self.nonce += 1;
                self.worker_set.interest(*worker, *face, *name, self.nonce);
                self.alone.interest(0, *face, *name, self.nonce);
            }
            Step::Loop { which, face, worker } => {
                // A nonce is remembered for six seconds for certain.
                let now = self.worker_set.crowd.now;
                let recent =
                    |asked: &&Asked| now.saturating_duration_since(asked.at) < Duration::from_secs(5);
                let asked: Vec<_> = self.worker_set.asked.iter().filter(recent).cloned().collect();
                if asked.is_empty() {
                    return;
                }
                let Asked { uri, nonce, .. } = asked[which.index(asked.len())];
                if self.worker_set.from[&nonce] == *face {
                    return;
                }
                self.worker_set.interest(*worker, *face, uri, nonce);
                self.alone.interest(0, *face, uri, nonce);
            }
            Step::Answer { which, worker, with_token } => {
                if self.worker_set.asked.is_empty() {
                    return;
                }
                let which = which.index(self.worker_set.asked.len());
                let Asked { uri, nonce, .. } = self.worker_set.asked[which];
                self.worker_set.answer(which, *worker, *with_token);
                let same = self.alone.asked.iter().position(|asked| (asked.uri, asked.nonce) == (uri, nonce));
                if let Some(which) = same {
                    self.alone.answer(which, 0, *with_token);
                }
            }
            Step::Turn { name, back } => self.turn(*name, *back),
            Step::Pass(millis) => {
                for seen in [&mut self.worker_set, &mut self.alone] {
                    seen.settle();
                    seen.crowd.now += Duration::from_millis(*millis);
                    seen.settle();
                }
            }
            Step::Round(worker) => {
                self.worker_set.crowd.turn(*worker);
                let sent = self.worker_set.crowd.sent();
                self.worker_set.look(sent);
            }
        }
        self.alone.settle();
        if self.settles {
            self.worker_set.settle();
        }
    }
}

proptest! {
    #[test]
    fn workers_are_one_router(
        cached in prop_oneof![Just(0u32), Just(64)],
        settles: bool,
        steps in prop::collection::vec(step(), 1..100),
    ) {
        let mut run = Run::new(cached, settles);
        for step in &steps {
            run.run(step);
        }
        let Run { worker_set, alone, .. } = run;
        let (worker_set, alone) = (worker_set.finish(), alone.finish());
        if settles {
            prop_assert_eq!(worker_set, alone, "the name that never turned");
        }
    }
}
