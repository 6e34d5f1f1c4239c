//! The order in which sessions reach the table and a datapath in the kernel, seen by a datapath that looks into the
//! table whenever it is called.
#![allow(clippy::unwrap_used)]

use crate::fixture;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use crate::fixture::{GNB_MAC, N3, Rig, SessionPlan, now, v4};
use kaido_engine::NeighbourRequest;
use kaido_n4::{
    ApplyAction, FarId, Gate, Modification, OuterHeaderCreation, PdrId, QerId, Seid, SessionEvent,
    SessionService, Teid, UpdateFar, UpdateForwardingParameters, UpdateQer, UrrId,
};
use kaido_table::Reader;
use kaido_upf::action::N6Exit;
use kaido_upf::control::TraceFilter;
use kaido_upf::ids::{EndpointId, InstanceId};
use kaido_upf::key::SessionKey;
use kaido_upf::node::{LiveSettings, Node, NodeSettings, WorkerEvent};
use kaido_upf::offload::{KernelDestination, KernelKey, KernelLine, KernelRecord, KernelRule, OffloadTarget};
use kaido_upf::usage::{OffloadedCounters, UsageCounters, UsageSlot};

/// What the table had under the key of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // There are few.
enum InTable {
    Nothing,
    /// A record that does not fit into the kernel.
    Other,
    Fits(KernelRecord),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Call {
    Put(KernelKey, KernelRecord, InTable),
    /// With what was there.
    Removed(KernelKey, KernelRecord, InTable),
    Settled,
}

#[derive(Debug, Default)]
struct State {
    records: HashMap<KernelKey, KernelRecord>,
    calls: Vec<Call>,
    events: Vec<WorkerEvent>,
    refuses: bool,
}

#[derive(Debug)]
struct Fake {
    state: Arc<Mutex<State>>,
    node: Arc<Node>,
    reader: Mutex<Reader>,
}

impl Fake {
    fn in_table(&self, key: &KernelKey) -> InTable {
        let key = match *key {
            KernelKey::Tunnel { teid, .. } => SessionKey::tunnel(EndpointId(0), teid),
            KernelKey::Ipv4 { instance, address } => SessionKey::ipv4(instance, address),
            KernelKey::Ipv6 { instance, address } => SessionKey::ipv6(instance, address),
        };
        let mut reader = self.reader.lock().unwrap();
        let guard = reader.pin();
        match self.node.table.get(&guard, &key) {
            None => InTable::Nothing,
            Some(record) => KernelRecord::of(&key, record, &self.node).map_or(InTable::Other, InTable::Fits),
        }
    }
}

impl OffloadTarget for Fake {
    fn put(&mut self, key: &KernelKey, record: &KernelRecord) -> bool {
        let in_table = self.in_table(key);
        let mut state = self.state.lock().unwrap();
        if state.refuses {
            return false;
        }
        state.calls.push(Call::Put(*key, record.clone(), in_table));
        state.records.insert(*key, record.clone());
        true
    }

    fn remove(&mut self, key: &KernelKey) -> bool {
        let in_table = self.in_table(key);
        let mut state = self.state.lock().unwrap();
        let removed = state.records.remove(key).map(|record| Call::Removed(*key, record, in_table));
        let is_removed = removed.is_some();
        state.calls.extend(removed);
        is_removed
    }

    fn holds(&self, key: &KernelKey) -> bool {
        self.state.lock().unwrap().records.contains_key(key)
    }

    fn settle(&mut self) {
        self.state.lock().unwrap().calls.push(Call::Settled);
    }

    fn event(&mut self) -> Option<WorkerEvent> {
        self.state.lock().unwrap().events.pop()
    }

    fn set_live(&mut self, _: &LiveSettings) {}

    fn follow_routes(&mut self) {}

    fn len(&self) -> usize {
        self.state.lock().unwrap().records.len()
    }
}

/// Counters as a kernel's program has them.
#[derive(Debug)]
#[repr(align(64))]
struct Words([AtomicU64; 8 * 4]);

impl Words {
    /// Counts downlink octets in a counter.
    fn count(&self, slot: UsageSlot, octets: u64) {
        let cell = &self.0[8 * slot.0 as usize..][..8];
        cell[2].fetch_add(octets, Ordering::Relaxed);
        cell[3].fetch_add(1, Ordering::Relaxed);
    }
}

/// The kernel's records, which have counted downlink octets of a counter that are not in it.
#[derive(Clone, Copy, Debug)]
struct Kept {
    words: &'static Words,
    octets: &'static AtomicU64,
}

impl OffloadedCounters for Kept {
    fn sync(&self, slot: UsageSlot) {
        let octets = self.octets.swap(0, Ordering::Relaxed);
        if octets > 0 {
            self.words.count(slot, octets);
        }
    }

    fn flush(&self, slot: UsageSlot) {
        self.sync(slot);
    }

    fn bytes_max(&self) -> u64 {
        100
    }
}

struct Bench {
    kept: Kept,
    words: &'static Words,
    rig: Rig,
    state: Arc<Mutex<State>>,
    seid: Seid,
    start: SystemTime,
}

const TUNNEL: KernelKey = KernelKey::Tunnel {
    local: std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 100, 3, 1)),
    teid: Teid(1007),
};
const UE: KernelKey =
    KernelKey::Ipv4 { instance: InstanceId(0), address: std::net::Ipv4Addr::new(10, 60, 0, 7) };
const BUFFER: ApplyAction = ApplyAction {
    drop: false,
    forward: false,
    buffer: true,
    notify_cp: false,
    duplicate: false,
    report_buffered: false,
    report_discarded: false,
};
const FORWARD: ApplyAction = ApplyAction::FORWARD;

impl Bench {
    /// With a session of [`SessionPlan::ipv4`], established at `start`.
    fn new() -> Self {
        let mut bench = Self::empty();
        bench.establish();
        bench
    }

    fn empty() -> Self {
        let words: &'static Words = Box::leak(Box::new(Words([const { AtomicU64::new(0) }; 32])));
        let settings = NodeSettings { workers_share_sessions: true, ..fixture::settings() };
        let kept = Kept { words, octets: Box::leak(Box::default()) };
        let usage = UsageCounters::over(&words.0).unwrap().with_offloaded(Box::new(kept));
        let mut rig = Rig::with_usage(settings, usage);
        let node = rig.upf.node().clone();
        let state = Arc::new(Mutex::new(State::default()));
        let reader = Mutex::new(node.domain.reader().unwrap());
        rig.upf.set_kernel(Box::new(Fake { state: state.clone(), node, reader }));
        Self { kept, words, rig, state, seid: Seid(0), start: now() }
    }

    fn establish(&mut self) {
        let plan = SessionPlan { threshold: Some(1000), ..SessionPlan::ipv4(7) };
        self.seid = self.rig.upf.establish(&plan.establishment(), self.start).unwrap().seid;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.state().calls)
    }

    fn record(&self, key: KernelKey) -> Option<KernelRecord> {
        self.state().records.get(&key).cloned()
    }

    /// The counter of the downlink, and what the kernel tells of a threshold of it.
    fn told(&self) -> (UsageSlot, WorkerEvent) {
        let record = self.record(UE).unwrap();
        let (slot, _) = rule(&record).usage.iter().next().unwrap();
        (slot, WorkerEvent::Threshold { session: record.session, slot })
    }

    fn modify(&mut self, request: &Modification) -> Vec<Call> {
        self.calls();
        self.rig.upf.modify(self.seid, request, self.start).unwrap();
        self.calls()
    }

    /// What happens so much later.
    fn after(&mut self, millis: u64) -> Vec<SessionEvent> {
        self.rig.upf.poll_events(self.start + Duration::from_millis(millis), 100)
    }
}

/// The one rule of a record.
fn rule(record: &KernelRecord) -> KernelRule {
    let [KernelLine { rule: Ok(rule), .. }] = record.lines[..] else { panic!("{record:?}") };
    rule
}

fn downlink_far(apply: ApplyAction) -> Modification {
    let update = UpdateFar { id: FarId(2), apply_action: Some(apply), ..UpdateFar::default() };
    Modification { update_fars: vec![update], ..Modification::default() }
}

fn gate(open: bool) -> Modification {
    let gate = Some(Gate { uplink: open, downlink: open });
    let update = UpdateQer { id: QerId(1), gate, ..UpdateQer::default() };
    Modification { update_qers: vec![update], ..Modification::default() }
}

#[test]
fn a_new_session_is_in_the_table_before_the_kernel_has_it() {
    let bench = Bench::new();
    let calls = bench.calls();
    assert_eq!(calls.len(), 2, "{calls:?}");
    for call in calls {
        let Call::Put(key, record, in_table) = call else { panic!("{call:?}") };
        assert!(key == TUNNEL || key == UE);
        assert_eq!(in_table, InTable::Fits(record));
    }
    assert_eq!(bench.rig.upf.kernel_records(), Some(2));
    assert_eq!(rule(&bench.record(TUNNEL).unwrap()).destination, KernelDestination::Routed(N6Exit::Any));
}

#[test]
fn a_traced_session_is_the_workers_alone() {
    let mut bench = Bench::new();
    let (seid, start) = (bench.seid, bench.start);
    let id = bench.rig.upf.begin_trace(TraceFilter::Session(seid), 0, start).unwrap();
    assert_eq!(bench.rig.upf.kernel_records(), Some(0));
    bench.modify(&gate(true));
    bench.after(30);
    assert_eq!(bench.rig.upf.kernel_records(), Some(0));
    bench.rig.upf.end_trace(id, start + Duration::from_millis(30));
    bench.after(40);
    assert_eq!(bench.rig.upf.kernel_records(), Some(0), "not before what the workers hold has gone");
    bench.after(50);
    assert_eq!(bench.rig.upf.kernel_records(), Some(2));
}

#[test]
fn a_gate_that_closes_and_opens_replaces_the_records_at_once() {
    let mut bench = Bench::new();
    for open in [false, true] {
        let calls = bench.modify(&gate(open));
        assert_eq!(calls.len(), 2, "{calls:?}");
        for call in calls {
            let Call::Put(_, record, in_table) = call else { panic!("{call:?}") };
            assert_eq!(rule(&record).destination == KernelDestination::GateClosed, !open);
            assert_eq!(in_table, InTable::Fits(record));
        }
    }
}

#[test]
fn what_ceases_to_fit_leaves_the_kernel_before_the_table_changes() {
    let mut bench = Bench::new();
    let before = bench.record(UE).unwrap();
    let calls = bench.modify(&downlink_far(BUFFER));
    assert_eq!(calls[0], Call::Removed(UE, before.clone(), InTable::Fits(before)));
    assert_eq!(bench.record(UE), None);
    assert!(bench.record(TUNNEL).is_some(), "the other direction stays");
}

#[test]
fn what_was_buffered_goes_before_the_kernel_takes_over() {
    let mut bench = Bench::new();
    bench.modify(&downlink_far(BUFFER));
    bench.modify(&downlink_far(FORWARD));
    assert_eq!(bench.record(UE), None);
    bench.after(19);
    assert_eq!(bench.record(UE), None);
    bench.calls();
    bench.after(20);
    let record = bench.record(UE).unwrap();
    assert_eq!(bench.calls(), [Call::Put(UE, record.clone(), InTable::Fits(record))]);
    // By then the session may buffer again.
    bench.modify(&downlink_far(BUFFER));
    bench.modify(&downlink_far(FORWARD));
    bench.modify(&downlink_far(BUFFER));
    bench.after(40);
    assert_eq!(bench.record(UE), None);
}

#[test]
fn a_session_leaves_the_kernel_first_and_is_reported_when_nothing_counts_any_more() {
    let mut bench = Bench::new();
    let (up, down) = (bench.record(TUNNEL).unwrap(), bench.record(UE).unwrap());
    bench.calls();
    let deleted = bench.rig.upf.delete(bench.seid, bench.start).unwrap();
    assert_eq!(deleted.usage_reports.len(), 1);
    let calls = bench.calls();
    assert_eq!(calls.len(), 3, "{calls:?}");
    assert!(calls[..2].contains(&Call::Removed(TUNNEL, up.clone(), InTable::Fits(up))), "{calls:?}");
    assert!(calls[..2].contains(&Call::Removed(UE, down.clone(), InTable::Fits(down))), "{calls:?}");
    assert_eq!(calls[2], Call::Settled);
    assert_eq!(bench.rig.upf.kernel_records(), Some(0));
    bench.after(1000);
    assert_eq!(bench.calls(), []);
}

#[test]
fn a_counter_is_reported_at_its_end_when_nothing_counts_any_more() {
    let mut bench = Bench::new();
    let request = Modification { remove_urrs: vec![UrrId(1)], ..Modification::default() };
    let calls = bench.modify(&request);
    assert_eq!(calls.last(), Some(&Call::Settled));
    assert_eq!(rule(&bench.record(UE).unwrap()).usage.len(), 0);
}

#[test]
fn a_rule_that_goes_leaves_the_kernel_before_the_table() {
    let mut bench = Bench::new();
    let down = bench.record(UE).unwrap();
    let request = Modification { remove_pdrs: vec![PdrId(2)], ..Modification::default() };
    let calls = bench.modify(&request);
    assert_eq!(calls[0], Call::Removed(UE, down.clone(), InTable::Fits(down)));
}

#[test]
fn a_kernel_that_refuses_leaves_all_to_the_workers() {
    let mut bench = Bench::empty();
    bench.state().refuses = true;
    bench.establish();
    assert_eq!((bench.calls(), bench.rig.upf.kernel_records()), (vec![], Some(0)));
    // One that refuses a replacement must not keep the old rule.
    let mut bench = Bench::new();
    bench.state().refuses = true;
    let calls = bench.modify(&gate(false));
    assert_eq!(calls.len(), 2, "{calls:?}");
    assert!(calls.iter().all(|call| matches!(call, Call::Removed(..))));
    bench.state().refuses = false;
    // Known to the workers alone, so not at once.
    assert_eq!(bench.modify(&gate(true)), []);
    bench.after(20);
    assert_eq!(bench.rig.upf.kernel_records(), Some(2));
}

#[test]
fn a_refused_request_changes_nothing_in_the_kernel() {
    let mut bench = Bench::new();
    bench.calls();
    let mut request = gate(false);
    request.update_fars = downlink_far(BUFFER).update_fars;
    request.update_fars[0].id = FarId(99);
    assert!(bench.rig.upf.modify(bench.seid, &request, bench.start).is_err());
    assert_eq!(bench.calls(), []);
}

/// Conformance: TS 29.244 5.3.2 | An End Marker follows the last packet that the kernel forwarded
#[test]
fn an_end_marker_follows_when_the_kernels_queues_are_empty() {
    let mut bench = Bench::new();
    let peer = "10.100.3.9".parse().unwrap();
    bench.rig.routes.set_neighbour(NeighbourRequest { port: N3, address: peer }, Some([9; 6]));
    let mut handover = downlink_far(FORWARD);
    handover.update_fars[0].forwarding = Some(UpdateForwardingParameters {
        outer_header_creation: Some(OuterHeaderCreation {
            teid: Teid(9000),
            ipv4: Some(v4("10.100.3.9")),
            ipv6: None,
        }),
        send_end_marker: true,
        ..UpdateForwardingParameters::default()
    });
    let calls = bench.modify(&handover);
    assert_eq!(calls.last(), Some(&Call::Settled));
    let KernelDestination::Tunnel { encap, teid, .. } = rule(&bench.record(UE).unwrap()).destination else {
        panic!()
    };
    assert_eq!((encap.peer, teid), (peer, Teid(9000)));
    bench.after(19);
    assert!(bench.rig.drain().is_empty());
    bench.after(20);
    let out = bench.rig.drain();
    assert_eq!(out.len(), 1);
    assert_eq!((out[0].0, &out[0].1[..6]), (N3, &GNB_MAC[..]));
}

#[test]
fn a_threshold_that_the_kernel_tells_of_is_reported() {
    let mut bench = Bench::new();
    let (slot, told) = bench.told();
    bench.state().events.push(told);
    assert!(bench.after(1).is_empty(), "not reached");
    bench.words.count(slot, 1000);
    bench.state().events.push(told);
    let events = bench.after(2);
    let [SessionEvent::Usage { seid, reports }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*seid, reports[0].volume.unwrap().downlink_bytes), (bench.seid, 1000));
}

/// What the kernel's records have counted and not told may be what reaches a threshold.
#[test]
fn a_threshold_is_looked_at_early_and_reported_when_it_is_reached() {
    let mut bench = Bench::new();
    let (slot, told) = bench.told();
    let limits = |bench: &Bench| -> Vec<u64> {
        let cell = &bench.words.0[8 * slot.0 as usize..][4..7];
        cell.iter().map(|limit| !limit.load(Ordering::Relaxed)).filter(|limit| *limit != u64::MAX).collect()
    };
    assert_eq!(limits(&bench), [900]);
    bench.words.count(slot, 850);
    bench.kept.octets.store(60, Ordering::Relaxed);
    bench.state().events.push(told);
    assert!(bench.after(1).is_empty(), "910 are no 1000");
    assert_eq!(limits(&bench), [1000]);
    bench.words.count(slot, 30);
    bench.kept.octets.store(60, Ordering::Relaxed);
    bench.state().events.push(told);
    let events = bench.after(2);
    let [SessionEvent::Usage { reports, .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(reports[0].volume.unwrap().downlink_bytes, 1000);
    // And in the report at the end, what was kept last.
    bench.kept.octets.store(7, Ordering::Relaxed);
    let deleted = bench.rig.upf.delete(bench.seid, bench.start + Duration::from_millis(3)).unwrap();
    assert_eq!(deleted.usage_reports[0].volume.unwrap().downlink_bytes, 7);
}
