//! The fast path and the slow path do the same. A tag sends a frame to the slow path and changes nothing else. So
//! with and without one the same must come out, or be dropped for the same reason, whatever is in the frame.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

use std::sync::{Arc, OnceLock};

use kaido_engine::fragment::Limits;
use kaido_engine::port::{MemoryWire, Port};
use kaido_engine::{
    DropReason, FramePool, KernelPath, PortId, PortTotals, Routes, Worker, WorkerCounters, WorkerSettings,
};
use kaido_gre::{
    Condition, Gre, GreDrop, Inner, KeyMatch, Pieces, PortSettings, Prefix, Rule, RuleCounters, RuleSet,
    RuleTotals, Settings, SharedState, Verdict,
};
use proptest::prelude::*;

const TAG: [u8; 4] = [0x81, 0x00, 0x00, 0x05];

/// One for all cases: pools live for ever.
fn pool() -> &'static FramePool {
    static POOL: OnceLock<&'static FramePool> = OnceLock::new();
    POOL.get_or_init(|| FramePool::leak(128).unwrap())
}

fn to(last: u8) -> Option<Prefix> {
    Some(Prefix::of(std::net::Ipv4Addr::new(203, 0, 113, last).into()))
}

fn rule(name: &str, condition: Condition, verdict: Verdict) -> Rule {
    Rule { name: name.into(), condition, verdict }
}

struct Rig {
    wires: [MemoryWire; 2],
    worker: Worker,
    counters: Arc<WorkerCounters>,
    rules: Arc<RuleCounters>,
    shared: Arc<SharedState>,
    pool: &'static FramePool,
}

impl Rig {
    fn new(unmatched: Verdict) -> Self {
        let rules = vec![
            rule("dropped", Condition { destination: to(2), ..Condition::default() }, Verdict::Drop),
            rule(
                "six",
                Condition {
                    destination: to(3),
                    inner: Inner { ipv4: false, ..Inner::default() },
                    key: KeyMatch::Absent,
                    ..Condition::default()
                },
                Verdict::DECAPSULATE,
            ),
            rule("one", Condition { destination: to(1), ..Condition::default() }, Verdict::DECAPSULATE),
        ];
        Self::with(pool(), rules, unmatched, 1500)
    }

    fn with(pool: &'static FramePool, rules: Vec<Rule>, unmatched: Verdict, mtu: usize) -> Self {
        let wires = [MemoryWire::new(), MemoryWire::new()];
        let ports =
            wires.iter().map(|wire| (Box::new(wire.port()) as Box<dyn Port>, KernelPath::None)).collect();
        let port = |peer_port| PortSettings {
            peer_port: Some(PortId(peer_port)),
            mac: [2, 0, 0, 0, 0, peer_port],
            addresses: Vec::new(),
            mtu,
        };
        let settings = Settings {
            rules,
            unmatched,
            unreadable: Verdict::Pass,
            pieces: Pieces::Pass,
            ..Settings::bump(vec![port(1), port(0)])
        };
        let (routes, _wanted) = Routes::new();
        let shared = SharedState::new(RuleSet::new(settings).unwrap(), Limits::default());
        let gre = Gre::new(&shared, &routes);
        let rules = gre.counters();
        let worker = Worker::new(pool, ports, Box::new(gre), WorkerSettings::default());
        let counters = worker.counters();
        Self { wires, worker, counters, rules, shared, pool }
    }

    fn rule_totals(&self) -> Vec<RuleTotals> {
        self.rules.totals(&self.shared.rules())
    }

    /// Has the worker obey other rules.
    fn change(&mut self, rules: Vec<Rule>) {
        let now = self.shared.rules();
        let next = now.next(Settings { rules, ..now.settings().clone() }).unwrap();
        drop(now);
        let Self { shared, worker, .. } = self;
        std::thread::scope(|scope| {
            let replacing = scope.spawn(|| shared.replace(next));
            while !replacing.is_finished() {
                worker.step();
            }
            assert!(replacing.join().unwrap(), "the worker has not taken them");
        });
    }

    fn drops(&self) -> Vec<(DropReason, u64)> {
        PortTotals::of([&*self.counters], PortId(0)).drops
    }

    /// What comes out for a frame, and why nothing does.
    fn pass(&mut self, frame: Vec<u8>) -> (Vec<Vec<u8>>, Vec<DropReason>) {
        let before = self.drops();
        self.wires[0].send(frame);
        while self.worker.step() > 0 {}
        let out = std::iter::from_fn(|| self.wires[1].receive()).collect();
        assert!(self.wires[0].receive().is_none());
        let new = self.drops().into_iter().filter(|count| !before.contains(count));
        (out, new.map(|(reason, _)| reason).collect())
    }
}

fn tagged(frame: &[u8]) -> Vec<u8> {
    [&frame[..12], &TAG, &frame[12..]].concat()
}

/// A frame like those that the function is for, with octets of it changed anyhow.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let headers = (1..5u8, any::<bool>(), any::<bool>(), 0..120usize, any::<bool>(), 0..20usize);
    let faults = prop::collection::vec((14..62usize, any::<u8>()), 0..3);
    (headers, faults, prop::option::of(14..70usize)).prop_map(
        |((to, is_six, is_gre, payload, heals, padding), faults, cut)| {
            let inner = if is_six {
                let mut inner = vec![0x60, 0, 0, 0, 0, payload as u8, 17, 64];
                inner.resize(40 + payload, 7);
                inner
            } else {
                let mut inner = vec![0x45, 0, 0, 20 + payload as u8, 0, 0, 0, 0, 64, 17, 0, 0];
                inner.resize(20 + payload, 9);
                inner
            };
            let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
            if is_gre {
                let total = (24 + inner.len()) as u16;
                let [high, low] = total.to_be_bytes();
                frame.extend([0x45, 0, high, low, 0, 0, 0, 0, 64, 47, 0, 0, 192, 0, 2, 1, 203, 0, 113, to]);
                frame.extend(if is_six { [0, 0, 0x86, 0xdd] } else { [0, 0, 0x08, 0x00] });
            }
            frame.extend(inner);
            frame.extend(vec![0; padding]);
            for (at, value) in faults {
                if let Some(octet) = frame.get_mut(at) {
                    *octet = value;
                }
            }
            // So that not all that is changed is told by its checksum.
            if frame.len() >= 34 && heals {
                frame[24..26].fill(0);
                let sum = kaido_wire::checksum::checksum(&frame[14..34]);
                frame[24..26].copy_from_slice(&sum.to_be_bytes());
            }
            frame.truncate(cut.unwrap_or(usize::MAX).max(14));
            frame
        },
    )
}

/// Plain IPv4 of so many octets, and the same in a tunnel to 203.0.113.1.
fn plain_and_tunnelled(len: u16) -> [Vec<u8>; 2] {
    let link = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    let [high, low] = len.to_be_bytes();
    let mut inner = vec![0x45, 0, high, low, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    inner.resize(len.into(), 9);
    let [high, low] = (24 + len).to_be_bytes();
    let mut outer = vec![0x45, 0, high, low, 0, 0, 0, 0, 64, 47, 0, 0, 192, 0, 2, 1, 203, 0, 113, 1];
    let sum = kaido_wire::checksum::checksum(&outer);
    outer[10..12].copy_from_slice(&sum.to_be_bytes());
    outer.extend([0, 0, 0x08, 0x00]);
    [[&link[..], &inner].concat(), [&link[..], &outer, &inner].concat()]
}

fn all_decapsulated() -> Vec<Rule> {
    vec![rule("one", Condition { destination: to(1), ..Condition::default() }, Verdict::DECAPSULATE)]
}

/// A frame that goes on, out of its tunnel or as it is, fits the port that it leaves by, with as many tags as there may be.
#[test]
fn what_does_not_fit_the_peer_port_is_dropped() {
    let pool = FramePool::leak(64).unwrap();
    for (mtu, lens) in [(1500, [1500, 1501, 1516, 1517, 1600]), (9000, [5000, 9000, 9016, 9017, 9100])] {
        let mut rig = Rig::with(pool, all_decapsulated(), Verdict::Pass, mtu);
        for len in lens {
            let [plain, tunnelled] = plain_and_tunnelled(len);
            for frame in [&plain, &tunnelled] {
                let expected = match usize::from(len) <= mtu + 16 {
                    true => (vec![plain.clone()], vec![]),
                    false => (vec![], vec![DropReason::TOO_BIG]),
                };
                assert!(rig.pass(frame.clone()) == expected, "{len} octets of {mtu}");
            }
        }
    }
}

/// A tunnel packet that is cut short is none: no rule counts it.
#[test]
fn what_is_cut_off_meets_no_rule() {
    let mut rig = Rig::with(FramePool::leak(64).unwrap(), all_decapsulated(), Verdict::Pass, 1500);
    let [plain, mut tunnelled] = plain_and_tunnelled(100);
    assert_eq!(rig.pass(tunnelled.clone()), (vec![plain], vec![]));
    let counted = rig.rule_totals();
    assert_eq!(counted[0].packets, 1);
    tunnelled.pop();
    let (out, why) = rig.pass(tunnelled);
    assert_eq!((out.len(), why.len(), rig.rule_totals()), (0, 1, counted));
}

#[test]
fn of_rules_with_equal_conditions_the_first_counts() {
    let pool = FramePool::leak(64).unwrap();
    let [plain, tunnelled] = plain_and_tunnelled(100);
    let one = || Condition { destination: to(1), ..Condition::default() };
    let strips = || rule("strips", one(), Verdict::DECAPSULATE);
    let drops = || rule("drops", one(), Verdict::Drop);
    for (rules, is_stripped) in [(vec![strips(), drops()], true), (vec![drops(), strips()], false)] {
        let mut rig = Rig::with(pool, rules, Verdict::Pass, 1500);
        let out: Vec<_> =
            [tunnelled.clone(), tagged(&tunnelled)].into_iter().flat_map(|frame| rig.pass(frame).0).collect();
        assert_eq!(out, if is_stripped { vec![plain.clone(), tagged(&plain)] } else { vec![] });
        assert_eq!(rig.rule_totals().iter().map(|rule| rule.packets).collect::<Vec<_>>(), [2, 0]);
    }
}

/// What stays goes on being counted, what comes begins at nothing, also where another was counted before.
#[test]
fn rules_change_between_two_batches() {
    let one = || Condition { destination: to(1), ..Condition::default() };
    let two = || Condition { destination: to(2), ..Condition::default() };
    let off = || rule("off", one(), Verdict::DECAPSULATE);
    let mut rig = Rig::with(FramePool::leak(64).unwrap(), vec![off()], Verdict::Pass, 1500);
    let [plain, tunnelled] = plain_and_tunnelled(100);
    for turn in 0..4 {
        rig.change(vec![rule("other", two(), Verdict::Drop), off()]);
        assert_eq!(rig.pass(tunnelled.clone()).0, vec![plain.clone()]);
        assert_eq!(rig.pass(tagged(&tunnelled)).0, vec![tagged(&plain)]);
        let packets = |rig: &Rig| rig.rule_totals().iter().map(|rule| rule.packets).collect::<Vec<_>>();
        assert_eq!(packets(&rig), [0, 2 * (turn + 1)]);
        rig.change(vec![rule("drops", one(), Verdict::Drop), off()]);
        for frame in [tunnelled.clone(), tagged(&tunnelled)] {
            assert_eq!(rig.pass(frame), (vec![], vec![GreDrop::RULE]));
        }
        assert_eq!(packets(&rig), [2, 2 * (turn + 1)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn a_tag_changes_nothing_but_the_way(frames in prop::collection::vec(frame(), 1..8), strips: bool) {
        let unmatched = if strips { Verdict::DECAPSULATE } else { Verdict::Pass };
        let mut rig = Rig::new(unmatched);
        for frame in frames {
            let (plain, why) = rig.pass(frame.clone());
            let (with_tag, why_tagged) = rig.pass(tagged(&frame));
            prop_assert_eq!(plain.iter().map(|out| tagged(out)).collect::<Vec<_>>(), with_tag);
            prop_assert_eq!(&why, &why_tagged);
            prop_assert_eq!(plain.len() + why.len(), 1, "it comes out, or it is counted");
        }
        let Rig { worker, pool, .. } = rig;
        drop(worker);
        prop_assert_eq!(pool.free_frames(), pool.frames());
    }
}
