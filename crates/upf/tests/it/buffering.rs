//! Downlink packets that wait: how many, how long, what is told of them, and in which order they leave.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, SystemTime};

use crate::fixture;
use crate::fixture::packets::{downlink, udp, uplink};
use crate::fixture::{BUFFER_TIME_MAX, N3, N6, Rig, SessionPlan, with_buffer};
use kaido_n4::{
    ApplyAction, BarId, BufferingRule, Change, DataStatus, DownlinkDataService, Establishment, FarId,
    Modification, PdrId, Qfi, Seid, SessionEvent, SessionService, UpdateBar, UpdateFar, UpdateUrr, UrrId,
    VolumeThreshold,
};
use kaido_upf::UpfDrop;
use kaido_upf::ids::SessionIndex;
use kaido_upf::node::{BufferLimits, LiveSettings, NodeSettings, WorkerEvent};
use kaido_upf::usage::UsageSlot;

const BUFFER: ApplyAction = ApplyAction::BUFFER_AND_NOTIFY;
const FORWARD: ApplyAction = ApplyAction { forward: true, buffer: false, notify_cp: false, ..BUFFER };

struct Bench {
    rig: Rig,
    seid: Seid,
    now: SystemTime,
}

/// A session whose downlink waits by a BAR.
fn waiting(n: u8, action: ApplyAction, bar: BufferingRule) -> Establishment {
    let mut request = SessionPlan::ipv4(n).establishment();
    request.fars[1].apply_action = action;
    request.fars[1].bar_id = Some(bar.id);
    request.bars = vec![bar];
    request
}

fn bar() -> BufferingRule {
    BufferingRule { id: BarId(1), ..BufferingRule::default() }
}

impl Bench {
    fn new(action: ApplyAction, bar: BufferingRule) -> Self {
        Self::with(fixture::settings(), &waiting(7, action, bar))
    }

    fn with(settings: NodeSettings, request: &Establishment) -> Self {
        let now = SystemTime::now();
        let mut rig = Rig::with(settings);
        let seid = rig.upf.establish(request, now).unwrap().seid;
        Self { rig, seid, now }
    }

    /// Sends packets of 28 octets and `payload`; how many came out.
    fn down(&mut self, count: usize, payload: usize) -> usize {
        let frame = downlink(&udp("8.8.8.8", "10.60.0.7", payload));
        self.rig.pass_times(N6, &frame, count)
    }

    fn after(&mut self, millis: u64) -> Vec<SessionEvent> {
        self.now += Duration::from_millis(millis);
        self.rig.upf.poll_events(self.now, 10)
    }

    fn far(&mut self, action: ApplyAction) {
        let update = UpdateFar { id: FarId(2), apply_action: Some(action), ..UpdateFar::default() };
        let change = Modification { update_fars: vec![update], ..Modification::default() };
        self.rig.upf.modify(self.seid, &change, self.now).unwrap();
    }

    fn bar(&mut self, update: UpdateBar) {
        let update_bars = vec![UpdateBar { id: BarId(1), ..update }];
        let change = Modification { update_bars, ..Modification::default() };
        self.rig.upf.modify(self.seid, &change, self.now).unwrap();
    }

    fn full(&self) -> u64 {
        self.rig.drops(N6, UpfDrop::BUFFER_FULL)
    }

    fn reported(&self) -> SessionEvent {
        let service = DownlinkDataService::default();
        SessionEvent::DownlinkData { seid: self.seid, pdr_id: PdrId(2), service }
    }
}

/// Conformance: TS 29.244 5.2.3.1 | Downlink data is reported once while the session buffers
#[test]
fn downlink_data_is_reported_once_in_a_period() {
    let mut bench = Bench::new(BUFFER, bar());
    bench.down(1, 10);
    assert_eq!(bench.after(0), [bench.reported()]);
    bench.down(3, 10);
    assert!(bench.after(100).is_empty());
    // Released, and idle again: a new period.
    bench.far(FORWARD);
    assert_eq!(bench.rig.drain().len(), 4);
    bench.far(BUFFER);
    bench.down(2, 10);
    assert_eq!(bench.after(0), [bench.reported()]);
    // Dropped by the control plane: what comes next is told of again.
    let drop = Modification { drop_buffered: true, ..Modification::default() };
    bench.rig.upf.modify(bench.seid, &drop, bench.now).unwrap();
    bench.rig.drain();
    bench.down(1, 10);
    assert_eq!(bench.after(0), [bench.reported()]);
}

/// Conformance: TS 29.244 8.2.28 | The report waits for the Downlink Data Notification Delay
#[test]
fn a_report_waits_for_its_delay_and_is_not_made_when_the_packets_are_gone() {
    let delayed = BufferingRule { notification_delay: Some(Duration::from_millis(200)), ..bar() };
    let mut bench = Bench::new(BUFFER, delayed);
    bench.down(1, 10);
    assert!(bench.after(0).is_empty());
    bench.down(1, 10);
    assert!(bench.after(199).is_empty());
    assert_eq!(bench.after(1), [bench.reported()]);
    bench.far(FORWARD);
    assert_eq!(bench.rig.drain().len(), 2);
    bench.far(BUFFER);
    bench.down(1, 10);
    assert!(bench.after(0).is_empty());
    bench.far(FORWARD);
    assert!(bench.after(1000).is_empty(), "the UE came by itself");
    // It goes again before the packet has left: that is told of too.
    bench.far(BUFFER);
    bench.rig.drain();
    assert!(bench.after(0).is_empty());
    assert_eq!(bench.after(200), [bench.reported()]);
    bench.far(FORWARD);
    assert_eq!(bench.rig.drain().len(), 1);
    bench.far(BUFFER);
    bench.bar(UpdateBar { notification_delay: Change::Remove, ..UpdateBar::default() });
    bench.down(1, 10);
    assert_eq!(bench.after(0), [bench.reported()]);
}

/// Conformance: TS 29.244 8.2.27 | Downlink Data Service Information has DSCP and QFI
#[test]
fn a_report_says_how_the_packet_was_marked() {
    let mut request = waiting(7, BUFFER, bar());
    request.qers[0].qfi = Some(Qfi(9));
    let mut bench = Bench::with(fixture::settings(), &request);
    let mut packet = udp("8.8.8.8", "10.60.0.7", 10);
    // Expedited forwarding; the checksum with it.
    packet[1] = 46 << 2;
    let sum = u16::from_be_bytes([packet[10], packet[11]]);
    let (sum, borrow) = sum.overflowing_sub(46 << 2);
    packet[10..12].copy_from_slice(&(sum - u16::from(borrow)).to_be_bytes());
    bench.rig.pass(N6, &downlink(&packet));
    let service = DownlinkDataService { paging_policy: Some(46), qfi: Some(Qfi(9)) };
    let expected = SessionEvent::DownlinkData { seid: bench.seid, pdr_id: PdrId(2), service };
    assert_eq!(bench.after(0), [expected]);
}

/// Conformance: TS 29.244 8.2.104 | As many packets are kept as the BAR suggests
/// Conformance: TS 29.244 7.5.9.2 | A report's response changes how many and how long
#[test]
fn a_bar_bounds_the_packets_and_a_response_changes_it() {
    let mut bench = Bench::new(BUFFER, BufferingRule { suggested_packets: Some(2), ..bar() });
    bench.down(5, 10);
    assert_eq!(bench.full(), 3);
    let longer = UpdateBar {
        duration: Change::To(Duration::from_secs(3600)),
        extended_packets: Change::To(4),
        ..UpdateBar::default()
    };
    bench.bar(longer);
    bench.down(5, 10);
    assert_eq!(bench.full(), 3 + 3);
    bench.rig.drain_after(2 * BUFFER_TIME_MAX);
    assert_eq!(bench.rig.drops(N6, UpfDrop::BUFFER_DISCARDED), 0);
    bench.far(FORWARD);
    assert_eq!(bench.rig.drain().len(), 4);
}

#[test]
fn octets_are_bounded_for_a_session_and_for_the_node() {
    let settings = with_buffer(|limits| BufferLimits { bytes_per_session: 1000, bytes_max: 1500, ..limits });
    let mut bench = Bench::with(settings, &waiting(7, BUFFER, bar()));
    let other = waiting(8, BUFFER, bar());
    let other = bench.rig.upf.establish(&other, bench.now).unwrap().seid;
    bench.down(5, 272);
    assert_eq!((bench.full(), bench.rig.upf.node().buffered.taken()), (2, 900), "three of 300 octets");
    let frame = downlink(&udp("8.8.8.8", "10.60.0.8", 272));
    (0..5).for_each(|_| drop(bench.rig.pass(N6, &frame)));
    assert_eq!((bench.full(), bench.rig.upf.node().buffered.taken()), (5, 1500));
    bench.rig.upf.delete(other, bench.now).unwrap();
    bench.rig.drain();
    assert_eq!(bench.rig.upf.node().buffered.taken(), 900);
    bench.far(FORWARD);
    assert_eq!((bench.rig.drain().len(), bench.rig.upf.node().buffered.taken()), (3, 0));
}

/// Conformance: TS 29.244 8.2.187 | Downlink Data Delivery Status: buffered and discarded, once each
#[test]
fn delivery_status_is_told_once_for_what_is_buffered_and_once_for_what_is_dropped() {
    let action = ApplyAction { notify_cp: false, report_buffered: true, report_discarded: true, ..BUFFER };
    let mut bench = Bench::new(action, BufferingRule { suggested_packets: Some(2), ..bar() });
    let status = |bench: &Bench, status| SessionEvent::DownlinkDataStatus {
        seid: bench.seid,
        pdr_id: PdrId(2),
        status,
    };
    bench.down(2, 10);
    assert_eq!(bench.after(0), [status(&bench, DataStatus::Buffered)]);
    bench.down(5, 10);
    assert_eq!(bench.after(0), [status(&bench, DataStatus::Discarded)]);
    assert_eq!(bench.full(), 5);
    bench.far(FORWARD);
    bench.rig.drain();
    bench.far(action);
    bench.down(1, 10);
    assert_eq!(bench.after(0), [status(&bench, DataStatus::Buffered)], "a new period");
    // What waits too long is dropped, and told of.
    bench.rig.drain_after(2 * BUFFER_TIME_MAX);
    assert_eq!(bench.after(0), [status(&bench, DataStatus::Discarded)]);
    assert_eq!(bench.rig.drops(N6, UpfDrop::BUFFER_EXPIRED), 1);
}

#[test]
fn other_sessions_go_on_while_one_waits() {
    let mut bench = Bench::new(BUFFER, bar());
    bench.rig.upf.establish(&SessionPlan::ipv4(8).establishment(), bench.now).unwrap();
    let other = downlink(&udp("8.8.8.8", "10.60.0.8", 100));
    for round in 0..20 {
        bench.down(1, 10);
        assert_eq!(bench.rig.pass(N6, &other).len(), 1, "round {round}");
    }
    assert_eq!(bench.full(), 12);
}

/// Conformance: TS 29.244 5.2.4 | A packet that waits is held to the quota that there is when it leaves
#[test]
fn what_waits_outlives_a_quota_that_is_granted_anew() {
    let quota = |total| VolumeThreshold { total: Some(total), ..VolumeThreshold::default() };
    let mut request = waiting(7, BUFFER, bar());
    request.urrs[0].volume_quota = Some(quota(100));
    let mut bench = Bench::with(fixture::settings(), &request);
    assert_eq!(bench.down(1, 72), 0);
    // The uplink uses the quota up, and the packet behind it has the worker look at what waits.
    let up = uplink(1007, &udp("10.60.0.7", "8.8.8.8", 72));
    assert_eq!(bench.rig.pass_times(N3, &up, 2), 1);
    let grant = UpdateUrr { id: UrrId(1), volume_quota: Change::To(quota(1000)), ..UpdateUrr::default() };
    let change = Modification { update_urrs: vec![grant], ..Modification::default() };
    bench.rig.upf.modify(bench.seid, &change, bench.now).unwrap();
    bench.far(FORWARD);
    assert_eq!(bench.rig.drain().len(), 1, "it leaves");
}

/// What waits by larger limits than those of now goes on waiting.
#[test]
fn limits_change_while_packets_wait() {
    let mut bench = Bench::with(fixture::settings(), &waiting(7, BUFFER, bar()));
    bench.down(3, 10);
    let live = bench.rig.upf.node().live();
    let narrow = BufferLimits { packets_per_session: 2, ..live.buffer };
    bench.rig.upf.set_live(LiveSettings { buffer: narrow, ..live.clone() });
    bench.rig.drain();
    bench.down(3, 10);
    assert_eq!(bench.full(), 3);
    // A change of the session has them looked at, and put back.
    bench.bar(UpdateBar { suggested_packets: Change::To(200), ..UpdateBar::default() });
    bench.rig.drain();
    assert_eq!((bench.full(), bench.rig.upf.node().buffered.packets()), (3, 3));
    bench.rig.upf.set_live(live.clone());
    bench.rig.drain();
    bench.down(3, 10);
    assert_eq!(bench.full(), 3);
    bench.far(FORWARD);
    assert_eq!(bench.rig.drain().len(), 6);
    let none = BufferLimits { bytes_max: 0, ..live.buffer };
    bench.rig.upf.set_live(LiveSettings { buffer: none, ..live });
    bench.far(BUFFER);
    bench.rig.drain();
    bench.down(1, 10);
    assert_eq!(bench.full(), 4);
}

/// Sessions that each keep within their own bound fill the worker's together.
#[test]
fn packets_are_bounded_for_all_sessions_together() {
    let settings = with_buffer(|limits| BufferLimits { packets_max: 10, ..limits });
    let mut bench = Bench::with(settings, &waiting(7, BUFFER, bar()));
    let other = bench.rig.upf.establish(&waiting(8, BUFFER, bar()), bench.now).unwrap().seid;
    bench.down(6, 10);
    let frame = downlink(&udp("8.8.8.8", "10.60.0.8", 10));
    assert_eq!(bench.rig.pass_times(N6, &frame, 6), 0);
    assert_eq!(bench.full(), 2, "six and four are kept");
    // What one gives back is the other's.
    bench.rig.upf.delete(other, bench.now).unwrap();
    bench.rig.drain();
    bench.down(4, 10);
    assert_eq!(bench.full(), 2 + 2, "eight are a session's");
    bench.far(FORWARD);
    assert_eq!(bench.rig.drain().len(), 8);
}

/// The control plane is told when there is room again of what happened while there was none.
#[test]
fn what_could_not_be_told_is_told_later() {
    let mut bench = Bench::new(BUFFER, bar());
    let nobody = WorkerEvent::Threshold { session: SessionIndex(999), slot: UsageSlot(0) };
    let sent = (0..100_000).take_while(|_| bench.rig.upf.node().send_event(nobody)).count();
    assert!(sent < 100_000, "they are bounded");
    bench.down(1, 10);
    bench.rig.drain_after(Duration::from_secs(1));
    assert!(bench.after(0).is_empty(), "all that was before it");
    bench.rig.drain_after(Duration::from_secs(2));
    assert_eq!(bench.after(0), [bench.reported()]);
    bench.rig.drain_after(Duration::from_secs(3));
    assert!(bench.after(0).is_empty(), "once");
}
