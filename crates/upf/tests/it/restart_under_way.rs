//! Sessions on their way back after a restart, while packets come.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kaido_engine::Worker;
use kaido_engine::port::MemoryWire;
use kaido_n4::{ChooseOr, Establishment, FTeid, LocalFTeid, Modification, Seid, SessionService, Teid};
use kaido_upf::control::NoSession;
use kaido_upf::node::{LiveSettings, WorkerEvent};
use kaido_upf::offload::{KernelKey, KernelRecord, OffloadTarget};
use kaido_upf::usage::{OffloadedCounters, RecordedUsage, UsageCounters, UsageSlot};

use crate::fixture::packets::{downlink, udp, uplink};
use crate::fixture::{self, N3, N6, Rig, SessionPlan, now, v4};
use crate::restart::{Life, in_use, memory, usage_written};

fn teid(number: u32) -> u32 {
    1000 + number
}

fn ue(number: u32) -> [u8; 4] {
    let [.., high, low] = number.to_be_bytes();
    [10, 60, high, low]
}

fn establishment(number: u32) -> Establishment {
    let mut plan = SessionPlan::ipv4(0);
    plan.ue.ipv4 = Some(ChooseOr::Given(ue(number).into()));
    let fteid = FTeid { teid: Teid(teid(number)), ipv4: Some(v4("10.100.3.1")), ipv6: None };
    plan.local = LocalFTeid::Given(fteid);
    plan.establishment()
}

fn up(number: u32) -> Vec<u8> {
    let [a, b, c, d] = ue(number);
    uplink(teid(number), &udp(&format!("{a}.{b}.{c}.{d}"), "8.8.8.8", 72))
}

fn down(number: u32) -> Vec<u8> {
    let [a, b, c, d] = ue(number);
    downlink(&udp("8.8.8.8", &format!("{a}.{b}.{c}.{d}"), 72))
}

fn establish(life: &mut Life, count: u32) -> Vec<Seid> {
    (0..count).map(|number| life.rig.upf.establish(&establishment(number), now()).unwrap().seid).collect()
}

#[test]
fn those_that_were_used_last_are_the_first() {
    let mut life = Life::first();
    establish(&mut life, 40);
    let began = Instant::now();
    for (number, seconds) in [(5, 100), (33, 1000), (17, 300), (11, 200), (30, 301), (2, 50), (5, 900)] {
        let at = began + Duration::from_secs(seconds);
        assert_eq!(life.rig.pass_at(at, N3, &up(number)).len(), 1);
        assert_eq!(life.rig.pass_at(at, N6, &down(number)).len(), 1);
    }
    life.read();
    let Life { rig, memory, kept, .. } = life;
    drop(rig);
    for _ in 0..2 {
        let mut rig = Rig::over(memory.try_clone().unwrap());
        let first = rig.upf.claim_counters(in_use(&kept), |_| RecordedUsage::default()).unwrap().recent;
        // An eighth of all; those of one time in the order of their numbers.
        assert_eq!(first[..2], [33, 5]);
        assert!(first[2..] == [17, 30, 11] || first[2..] == [30, 17, 11], "{first:?}");
    }
    let mut rig = Rig::over(self::memory());
    let counters = rig.upf.claim_counters(in_use(&kept), |_| RecordedUsage::default());
    assert_eq!(counters.unwrap().recent, [0; 0], "nobody knows");
}

/// Which sessions come back first, by what was written of their counters alone.
fn first_by(written: &BTreeMap<UsageSlot, RecordedUsage>, kept: &BTreeMap<u64, Vec<u8>>) -> Vec<u64> {
    let mut rig = Rig::over(memory());
    let counters =
        rig.upf.claim_counters(in_use(kept), |slot| written.get(&slot).copied().unwrap_or_default());
    counters.unwrap().recent
}

#[test]
fn the_next_start_of_the_machine_knows_who_was_used_last() {
    let mut life = Life::first();
    establish(&mut life, 40);
    let began = Instant::now();
    for (number, seconds) in [(5, 100), (33, 1000), (17, 300), (5, 900)] {
        assert_eq!(life.rig.pass_at(began + Duration::from_secs(seconds), N3, &up(number)).len(), 1);
    }
    life.read();
    let written = usage_written(&mut life.rig.upf, &life.recorder, now());
    assert_eq!(first_by(&written, &life.kept), [33, 5, 17]);
}

/// Counters in which somebody else counts, who does not say when.
#[derive(Debug)]
struct Elsewhere;

impl OffloadedCounters for Elsewhere {
    fn sync(&self, _: UsageSlot) {}

    fn flush(&self, _: UsageSlot) {}

    fn bytes_max(&self) -> u64 {
        0
    }
}

#[derive(Debug)]
#[repr(align(64))]
struct Words([AtomicU64; 8 * 40]);

impl Words {
    /// Counts an uplink packet of a session.
    fn count(&self, session: usize) {
        self.0[8 * session].fetch_add(100, Ordering::Relaxed);
        self.0[8 * session + 1].fetch_add(1, Ordering::Relaxed);
    }
}

/// A user plane whose sessions the kernel forwards, and where it counts.
fn kernels() -> (Rig, &'static Words) {
    let words: &'static Words = Box::leak(Box::new(Words([const { AtomicU64::new(0) }; 320])));
    let usage = UsageCounters::over(&words.0).unwrap().with_offloaded(Box::new(Elsewhere));
    (Rig::with_usage(fixture::settings(), usage), words)
}

#[test]
fn of_what_the_kernel_counts_the_checkpoint_says_when() {
    let (rig, words) = kernels();
    let (mut life, start) = (Life::first(), now());
    life.rig = rig;
    life.rig.upf.record_by(life.recorder.clone());
    establish(&mut life, 40);
    life.read();
    let mut written = BTreeMap::new();
    for (seconds, sessions) in [(10, &[3, 8][..]), (20, &[]), (30, &[8, 30]), (60, &[12])] {
        sessions.iter().for_each(|&session| words.count(session));
        let at = start + Duration::from_secs(seconds);
        written.extend(usage_written(&mut life.rig.upf, &life.recorder, at));
    }
    assert_eq!(first_by(&written, &life.kept), [12, 8, 30, 3]);

    // After a start without a packet they were used when they were.
    let (mut rig, words) = kernels();
    rig.upf.record_by(life.recorder.clone());
    let restored = |slot| written.get(&slot).copied().unwrap_or_default();
    let counters = rig.upf.claim_counters(in_use(&life.kept), restored).unwrap();
    let mut restoration = rig.upf.restore(counters);
    life.kept.iter().for_each(|(&number, record)| restoration.resume_one(number, record, start).unwrap());
    restoration.finish();
    let later = start + Duration::from_secs(1000);
    assert_eq!(usage_written(&mut rig.upf, &life.recorder, later), written);
    words.count(3);
    written.extend(usage_written(&mut rig.upf, &life.recorder, later));
    assert_eq!(first_by(&written, &life.kept), [3, 12, 8, 30]);
}

#[test]
fn a_session_is_forwarded_before_the_next_is_there_and_no_sender_is_told_to_forget_one() {
    let mut life = Life::first();
    establish(&mut life, 3);
    life.read();
    let Life { rig, memory, kept, .. } = life;
    drop(rig);
    let Rig { n3, n6, mut upf, mut worker, routes: _routes, .. } = Rig::over(memory);
    let mut pass = |number| {
        assert!(n3.send(up(number)));
        while worker.step() > 0 {}
        [&n3, &n6].map(|wire| std::iter::from_fn(|| wire.receive()).count())
    };
    let counters = upf.claim_counters(in_use(&kept), |_| RecordedUsage::default()).unwrap();
    assert_eq!(pass(2), [0, 0]);
    let mut restoration = upf.restore(counters);
    restoration.resume_one(2, &kept[&2], now()).unwrap();
    assert_eq!([pass(2), pass(0), pass(7)], [[0, 1], [0, 0], [0, 0]]);
    restoration.resume_one(0, &kept[&0], now()).unwrap();
    assert_eq!([pass(0), pass(1)], [[0, 1], [0, 0]]);
    restoration.resume_one(1, &kept[&1], now()).unwrap();
    assert_eq!(restoration.finish().restored, 3);
    assert_eq!(pass(1), [0, 1]);
    assert_eq!(pass(7), [1, 0], "an Error Indication: there is no such session");
}

/// Has a packet of a session pass as soon as its tunnel is in the table.
struct PacketsAtOnce {
    n3: MemoryWire,
    n6: MemoryWire,
    worker: Worker,
    passed: Arc<AtomicU64>,
}

impl std::fmt::Debug for PacketsAtOnce {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("packets at once")
    }
}

impl OffloadTarget for PacketsAtOnce {
    fn put(&mut self, key: &KernelKey, _: &KernelRecord) -> bool {
        if let KernelKey::Tunnel { teid: Teid(teid), .. } = key {
            assert!(self.n3.send(up(teid - 1000)));
            while self.worker.step() > 0 {}
            let passed = std::iter::from_fn(|| self.n6.receive()).count();
            self.passed.fetch_add(passed as u64, Ordering::Relaxed);
        }
        false
    }

    fn remove(&mut self, _: &KernelKey) -> bool {
        false
    }

    fn holds(&self, _: &KernelKey) -> bool {
        false
    }

    fn settle(&mut self) {}

    fn event(&mut self) -> Option<WorkerEvent> {
        None
    }

    fn set_live(&mut self, _: &LiveSettings) {}

    fn follow_routes(&mut self) {}

    fn len(&self) -> usize {
        0
    }
}

#[test]
fn what_passes_while_sessions_come_back_is_charged_once() {
    const COUNT: u32 = 300;
    let mut life = Life::first();
    let seids = establish(&mut life, COUNT);
    for number in 0..COUNT {
        assert_eq!(life.rig.pass(N3, &up(number)).len(), 1);
    }
    let query = Modification { query_all_urrs: true, ..Modification::default() };
    let reported = |upf: &mut kaido_upf::control::Upf, seid| {
        let reports = upf.modify(seid, &query, now()).unwrap().usage_reports;
        reports[0].volume.unwrap().uplink_packets
    };
    assert!(seids.iter().all(|&seid| reported(&mut life.rig.upf, seid) == 1));
    life.read();
    let Life { rig, kept, .. } = life;
    drop(rig);
    // What was counted is lost, so that each counter is to be raised to what was reported of it.
    let Rig { n3, n6, mut upf, worker, routes: _routes, .. } = Rig::over(memory());
    let passed = Arc::new(AtomicU64::new(0));
    upf.set_kernel(Box::new(PacketsAtOnce { n3, n6, worker, passed: passed.clone() }));
    let counters = upf.claim_counters(in_use(&kept), |_| RecordedUsage::default()).unwrap();
    let mut restoration = upf.restore(counters);
    let resumed = restoration.resume_all(
        |each| kept.iter().try_for_each(|(&number, value)| each(number, value)),
        |_, error: NoSession| error,
        now(),
    );
    resumed.unwrap();
    assert_eq!(restoration.finish().restored, COUNT as usize);
    assert_eq!(passed.load(Ordering::Relaxed), u64::from(COUNT));
    assert!(seids.iter().all(|&seid| reported(&mut upf, seid) == 1));
}
