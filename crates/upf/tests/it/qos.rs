//! Rates of QERs from request to packet: what passes, what is dropped and how it is counted. Time is injected.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, Instant};

use crate::fixture;
use crate::fixture::packets::{downlink, udp, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan, now};
use kaido_engine::{DropReason, PortId};
use kaido_n4::{
    BitRate, Cause, Establishment, Gate, MeasurementInformation, Modification, PacketLimit, PacketRate,
    PagingPolicyIndicator, Pdr, PdrId, Qer, QerCorrelationId, QerId, Qfi, RuleId, Seid, SessionService,
    TimeUnit, UpdatePdr, UpdateQer, Urr, UrrId, Volume,
};
use kaido_upf::UpfDrop;
use kaido_wire::PduSession;
use kaido_wire::gtpu::{GtpuRepr, GtpuView};

fn kbps(uplink_kbps: u64, downlink_kbps: u64) -> Option<BitRate> {
    Some(BitRate { uplink_kbps, downlink_kbps })
}

fn qer(id: u32, uplink_kbps: u64, downlink_kbps: u64) -> Qer {
    Qer { mbr: kbps(uplink_kbps, downlink_kbps), ..Qer::open(QerId(id)) }
}

/// The usual session `n` whose both PDRs have these QERs.
fn session(n: u8, qers: Vec<Qer>) -> Establishment {
    let mut request = SessionPlan::ipv4(n).establishment();
    for pdr in &mut request.pdrs {
        pdr.qer_ids = qers.iter().map(|qer| qer.id).collect();
    }
    request.qers = qers;
    request
}

fn up(n: u8, octets: usize) -> (PortId, Vec<u8>) {
    (N3, uplink(1000 + u32::from(n), &udp(&format!("10.60.0.{n}"), "8.8.8.8", octets - 28)))
}

fn down(n: u8, octets: usize) -> (PortId, Vec<u8>) {
    (N6, downlink(&udp("8.8.8.8", &format!("10.60.0.{n}"), octets - 28)))
}

/// A clock for the workers, and what they let pass.
struct Clock {
    rig: Rig,
    now: Instant,
}

impl Clock {
    fn new() -> Self {
        Self::of(Rig::new())
    }

    fn of(rig: Rig) -> Self {
        Self { rig, now: Instant::now() + Duration::from_secs(1) }
    }

    fn passes(&mut self, (port, frame): &(PortId, Vec<u8>)) -> bool {
        !self.rig.pass_at(self.now, *port, frame).is_empty()
    }

    /// Offers a frame every `gap` for so long; how many pass.
    fn offer(&mut self, frame: &(PortId, Vec<u8>), gap: Duration, lasting: Duration) -> u64 {
        let end = self.now + lasting;
        let mut passed = 0;
        while self.now < end {
            passed += u64::from(self.passes(frame));
            self.now += gap;
        }
        passed
    }

    fn volume(&self) -> Volume {
        self.rig.upf.sessions(0, 1)[0].volume
    }
}

fn assert_near(passed: u64, expected: u64, tolerance: u64) {
    assert!(passed.abs_diff(expected) <= tolerance, "{passed}, expected {expected}");
}

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Conformance: TS 29.244 5.4.4 | Maximum bit rate is enforced per direction, within 1 % over a second
#[test]
fn each_direction_passes_at_its_own_rate() {
    let mut clock = Clock::new();
    clock.rig.upf.establish(&session(7, vec![qer(1, 8_000, 2_000)]), now()).unwrap();
    // Twice what may pass upwards, eight times downwards; 1000 and 250 packets of 1000 octets a second do.
    let (up, down) = (up(7, 1000), down(7, 1000));
    for second in 0..5 {
        let passed = clock.offer(&up, MS / 2, SECOND);
        let (expected, burst) = (1000, 10);
        assert_near(passed, expected, expected / 100 + if second == 0 { burst } else { 0 });
    }
    clock.offer(&down, MS / 2, SECOND);
    assert_near(clock.offer(&down, MS / 2, 4 * SECOND), 1000, 10);
    // What is below the rate passes whole.
    assert_eq!(clock.offer(&up, 2 * MS, SECOND), 500);
    let dropped = clock.rig.drops(N3, UpfDrop::MBR_EXCEEDED);
    let volume = clock.volume();
    assert_eq!(dropped + volume.uplink_packets, 5 * 2000 + 500, "nothing is dropped for another reason");
    assert_eq!(clock.rig.drops(N6, UpfDrop::MBR_EXCEEDED) + volume.downlink_packets, 5 * 2000);
}

/// The lowest rate: a packet of 1000 octets a second.
#[test]
fn eight_kilobits_pass_as_eight_kilobits() {
    let mut clock = Clock::new();
    clock.rig.upf.establish(&session(7, vec![qer(1, 8, 8)]), now()).unwrap();
    for frame in [up(7, 1000), down(7, 1000)] {
        assert_near(clock.offer(&frame, 10 * MS, 200 * SECOND), 200, 1);
    }
}

/// Conformance: TS 29.244 5.4.4 | Session-AMBR: one QER limits all PDRs that name it together
#[test]
fn rules_that_name_one_qer_share_its_rate() {
    let mut clock = Clock::new();
    let mut request = session(7, vec![qer(1, 8_000, 8_000)]);
    // What a flow marked so has matches another rule of the same rate.
    let mut marked = Pdr { id: PdrId(3), precedence: 1, ..request.pdrs[0].clone() };
    marked.pdi.sdf_filters =
        vec![kaido_n4::SdfFilter::parse("permit out 17 from 9.9.9.9 to assigned").unwrap()];
    request.pdrs.push(marked);
    clock.rig.upf.establish(&request, now()).unwrap();
    let other = (N3, uplink(1007, &udp("10.60.0.7", "9.9.9.9", 972)));
    let usual = up(7, 1000);
    // Whoever comes takes of the same: what one has taken the other does not find.
    assert_near((0..20).filter(|_| clock.passes(&usual)).count() as u64, 10, 1);
    assert_eq!((0..20).filter(|_| clock.passes(&other)).count(), 0);
    let (mut one, mut two) = (0, 0);
    for _ in 0..20 {
        one += clock.offer(&usual, MS / 2, 50 * MS);
        two += clock.offer(&other, MS / 2, 50 * MS);
    }
    assert_near(one, 1000, 10);
    assert_near(two, 1000, 10);
}

/// Conformance: TS 29.244 5.4.4 | A packet is held to the session's and to its flow's rate
#[test]
fn the_narrower_of_two_rates_counts_and_the_wider_is_not_wasted() {
    let mut clock = Clock::new();
    let mut request = session(7, vec![qer(1, 8_000, 0), qer(2, 2_000, 0)]);
    let mut other = Pdr { id: PdrId(3), precedence: 1, qer_ids: vec![QerId(1)], ..request.pdrs[0].clone() };
    other.pdi.sdf_filters =
        vec![kaido_n4::SdfFilter::parse("permit out 17 from 9.9.9.9 to assigned").unwrap()];
    request.pdrs.push(other);
    clock.rig.upf.establish(&request, now()).unwrap();
    let wide = (N3, uplink(1007, &udp("10.60.0.7", "9.9.9.9", 972)));
    clock.offer(&up(7, 1000), MS / 4, SECOND);
    let (mut narrow_passed, mut wide_passed) = (0, 0);
    for _ in 0..4000 {
        narrow_passed += u64::from(clock.passes(&up(7, 1000)));
        wide_passed += u64::from(clock.passes(&wide));
        clock.now += MS / 4;
    }
    // The flow gets its 250; what it is refused does not count against the session's 1000.
    assert!(narrow_passed <= 255, "{narrow_passed}");
    assert_near(narrow_passed + wide_passed, 1000, 20);
}

/// Conformance: TS 29.244 8.2.10 | QERs of several sessions with one QER Correlation ID share their rate
#[test]
fn correlated_sessions_share_one_rate_as_long_as_any_is_left() {
    let mut clock = Clock::new();
    let shared = Qer { correlation: Some(QerCorrelationId(77)), ..qer(1, 8_000, 8_000) };
    let first = clock.rig.upf.establish(&session(7, vec![shared]), now()).unwrap().seid;
    let second = clock.rig.upf.establish(&session(8, vec![shared]), now()).unwrap().seid;
    let alone = clock.rig.upf.establish(&session(9, vec![qer(1, 8_000, 8_000)]), now()).unwrap().seid;
    let both = |clock: &mut Clock| {
        let mut passed = 0;
        for _ in 0..2000 {
            passed += u64::from(clock.passes(&up(7, 1000))) + u64::from(clock.passes(&up(8, 1000)));
            clock.now += MS / 2;
        }
        passed
    };
    assert_near(both(&mut clock), 1010, 10);
    assert_near(clock.offer(&up(9, 1000), MS / 2, SECOND), 1010, 10);
    // A new rate by one of them is that of both.
    let update = UpdateQer { id: QerId(1), mbr: kbps(4_000, 4_000), ..UpdateQer::default() };
    let change = Modification { update_qers: vec![update], ..Modification::default() };
    clock.rig.upf.modify(second, &change, now()).unwrap();
    assert_near(both(&mut clock), 500, 10);
    // One is gone: the other has what there is, and no more.
    clock.rig.upf.delete(second, now()).unwrap();
    assert_near(clock.offer(&up(7, 1000), MS / 2, SECOND), 500, 10);
    // It leaves the others: a rate of its own.
    let update = UpdateQer { id: QerId(1), correlation: Some(QerCorrelationId(78)), ..UpdateQer::default() };
    let change = Modification { update_qers: vec![update], ..Modification::default() };
    clock.rig.upf.modify(first, &change, now()).unwrap();
    assert_near(clock.offer(&up(7, 1000), MS / 2, SECOND), 1010, 10);
    clock.rig.upf.delete(alone, now()).unwrap();
    clock.rig.upf.delete(first, now()).unwrap();
}

/// Conformance: TS 29.244 7.5.4.5 | Update QER changes a rate at once and fills no bucket
#[test]
fn a_change_of_rate_keeps_what_was_taken() {
    let mut clock = Clock::new();
    let window = Some(SECOND);
    let request = session(7, vec![Qer { averaging_window: window, ..qer(1, 800, 0) }]);
    let seid = clock.rig.upf.establish(&request, now()).unwrap().seid;
    let frame = up(7, 1000);
    let at_once = |clock: &mut Clock| (0..500).filter(|_| clock.passes(&frame)).count();
    assert_eq!(at_once(&mut clock), 100, "a second's worth: the averaging window");
    let rate = |clock: &mut Clock, uplink| {
        let update = UpdateQer { id: QerId(1), mbr: kbps(uplink, 0), ..UpdateQer::default() };
        let change = Modification { update_qers: vec![update], ..Modification::default() };
        clock.rig.upf.modify(seid, &change, now()).unwrap();
    };
    // A hundred packets are 100 ms at ten times the rate, of a bucket of a second.
    rate(&mut clock, 8_000);
    assert_eq!(at_once(&mut clock), 500, "900 are left");
    rate(&mut clock, 800);
    assert_eq!(at_once(&mut clock), 0, "600 were taken");
    clock.now += 4 * SECOND;
    assert_eq!(at_once(&mut clock), 0);
    clock.now += 2 * SECOND;
    assert_eq!(at_once(&mut clock), 100);
    // A new session finds a new bucket in the same place.
    clock.rig.upf.delete(seid, now()).unwrap();
    clock.rig.upf.establish(&request, now()).unwrap();
    assert_eq!(at_once(&mut clock), 100);
}

/// Conformance: TS 29.244 8.2.8 | A rate of zero limits nothing; what shall not pass has a gate
#[test]
fn zero_limits_nothing_and_lifts_a_limit() {
    let mut clock = Clock::new();
    let seid = clock.rig.upf.establish(&session(7, vec![qer(1, 0, 8)]), now()).unwrap().seid;
    let (up, down) = (up(7, 1000), down(7, 1000));
    assert_eq!((0..100).filter(|_| clock.passes(&up)).count(), 100);
    assert_eq!((0..100).filter(|_| clock.passes(&down)).count(), 1);
    let update = UpdateQer { id: QerId(1), mbr: kbps(0, 0), ..UpdateQer::default() };
    let change = Modification { update_qers: vec![update], ..Modification::default() };
    clock.rig.upf.modify(seid, &change, now()).unwrap();
    assert_eq!((0..100).filter(|_| clock.passes(&down)).count(), 100);
    // The QER is taken away altogether.
    let update = UpdateQer { id: QerId(1), mbr: kbps(8, 8), ..UpdateQer::default() };
    let change = Modification { update_qers: vec![update], ..Modification::default() };
    clock.rig.upf.modify(seid, &change, now()).unwrap();
    assert_eq!((0..100).filter(|_| clock.passes(&up)).count(), 1);
    let change = Modification { remove_qers: vec![QerId(1)], ..Modification::default() };
    clock.rig.upf.modify(seid, &change, now()).unwrap();
    assert_eq!((0..100).filter(|_| clock.passes(&up)).count(), 100);
}

fn urr(id: u32, before_qos: bool) -> Urr {
    let information = MeasurementInformation { before_qos, ..MeasurementInformation::default() };
    Urr { id: UrrId(id), information, ..SessionPlan::ipv4(7).urr() }
}

/// Conformance: TS 29.244 5.2.2.2.1 | MBQE counts what the rate drops, other URRs do not
#[test]
fn what_a_rate_drops_is_counted_before_qos_alone() {
    for filters in [false, true] {
        let mut clock = Clock::new();
        let mut request = session(7, vec![qer(1, 800, 800)]);
        request.urrs = vec![urr(1, false), urr(2, true)];
        for pdr in &mut request.pdrs {
            pdr.urr_ids = vec![UrrId(1), UrrId(2)];
        }
        if filters {
            request.pdrs.extend(fixture::on_slow_path(&request.pdrs));
        }
        let seid = clock.rig.upf.establish(&request, now()).unwrap().seid;
        clock.offer(&up(7, 1000), MS, SECOND);
        clock.offer(&down(7, 500), MS, SECOND);
        let dropped = [N3, N6].map(|port| clock.rig.drops(port, UpfDrop::MBR_EXCEEDED));
        let reports = clock.rig.upf.delete(seid, now()).unwrap().usage_reports;
        let [passed, before] = [0, 1].map(|n| reports[n].volume.unwrap());
        assert_eq!((before.uplink_packets, before.downlink_packets), (1000, 1000));
        assert_eq!((before.uplink_bytes, before.downlink_bytes), (1_000_000, 500_000));
        assert_eq!([1000 - passed.uplink_packets, 1000 - passed.downlink_packets], dropped);
        assert_near(passed.uplink_bytes, 100_000, 2_000);
        assert_near(passed.downlink_bytes, 100_000, 2_000);
    }
}

/// Conformance: TS 29.244 5.4.3 | A closed gate drops everything and takes from no rate
#[test]
fn a_closed_gate_takes_nothing_from_the_rate() {
    let mut clock = Clock::new();
    let gate = Gate { uplink: false, downlink: true };
    let request = session(7, vec![Qer { gate, averaging_window: Some(SECOND), ..qer(1, 800, 800) }]);
    let seid = clock.rig.upf.establish(&request, now()).unwrap().seid;
    assert_eq!((0..500).filter(|_| clock.passes(&up(7, 1000))).count(), 0);
    assert_eq!(clock.rig.drops(N3, UpfDrop::GATE_CLOSED), 500);
    let open = Gate { uplink: true, downlink: true };
    let update = UpdateQer { id: QerId(1), gate: Some(open), ..UpdateQer::default() };
    let change = Modification { update_qers: vec![update], ..Modification::default() };
    clock.rig.upf.modify(seid, &change, now()).unwrap();
    assert_eq!((0..500).filter(|_| clock.passes(&up(7, 1000))).count(), 100);
}

/// Conformance: TS 29.244 5.4.4 | QFI, RQI and PPI of QERs are written into the PDU session container
#[test]
fn containers_say_what_the_qers_say() {
    let mut clock = Clock::new();
    let marking = Qer { qfi: Some(Qfi(9)), reflective: true, ..qer(1, 0, 0) };
    let seid = clock.rig.upf.establish(&session(7, vec![marking]), now()).unwrap().seid;
    let container = |clock: &mut Clock| {
        let sent = clock.rig.pass_at(clock.now, N6, &down(7, 100).1).remove(0).1;
        let header = GtpuRepr::parse(&GtpuView::new_checked(&sent[14 + 28..]).unwrap()).unwrap();
        (header.pdu_session, sent.len())
    };
    let expected = PduSession::Downlink { qfi: 9, rqi: true, ppi: None };
    assert_eq!(container(&mut clock), (Some(expected), 14 + 28 + 16 + 100));
    let update = UpdateQer {
        id: QerId(1),
        reflective: Some(false),
        paging_policy: Some(PagingPolicyIndicator(5)),
        ..UpdateQer::default()
    };
    let change = Modification { update_qers: vec![update], ..Modification::default() };
    clock.rig.upf.modify(seid, &change, now()).unwrap();
    let expected = PduSession::Downlink { qfi: 9, rqi: false, ppi: Some(5) };
    for _ in 0..3 {
        assert_eq!(container(&mut clock), (Some(expected), 14 + 28 + 20 + 100));
    }
}

#[test]
fn more_rates_than_a_packet_can_be_held_to_are_refused_and_nothing_is_kept() {
    let mut clock = Clock::new();
    let qers: Vec<_> = (1..=5).map(|id| qer(id, 8_000, 8_000)).collect();
    let refused = clock.rig.upf.establish(&session(7, qers.clone()), now()).unwrap_err();
    assert_eq!(
        (refused.cause, refused.failed_rule),
        (Cause::NoResourcesAvailable, Some(RuleId::Pdr(PdrId(1))))
    );
    let seid = clock.rig.upf.establish(&session(7, qers[..4].to_vec()), now()).unwrap().seid;
    assert!(clock.passes(&up(7, 1000)));
    let rule =
        UpdatePdr { id: PdrId(1), qer_ids: Some((1..=5).map(QerId).collect()), ..UpdatePdr::default() };
    let change =
        Modification { create_qers: vec![qers[4]], update_pdrs: vec![rule], ..Modification::default() };
    assert_eq!(clock.rig.upf.modify(seid, &change, now()).unwrap_err().cause, Cause::NoResourcesAvailable);
    assert!(clock.passes(&up(7, 1000)));
}

/// Policers come back with their sessions, however often, and when a request is refused.
#[test]
fn policers_are_bounded_and_come_back() {
    let mut settings = fixture::settings();
    settings.sessions_max = 2;
    let mut clock = Clock::of(Rig::with(settings));
    let qers = |count: u32| (1..=count).map(|id| qer(id, 8_000, 8_000)).collect::<Vec<_>>();
    let wide = |n, count| {
        let mut request = session(n, qers(count));
        // Named or not, each has its policer.
        request.pdrs.iter_mut().for_each(|pdr| pdr.qer_ids.truncate(1));
        request
    };
    for _ in 0..50 {
        let refused = clock.rig.upf.establish(&wide(7, 9), now()).unwrap_err();
        assert_eq!(
            (refused.cause, refused.failed_rule),
            (Cause::NoResourcesAvailable, Some(RuleId::Qer(QerId(9))))
        );
        let seid: Seid = clock.rig.upf.establish(&wide(7, 8), now()).unwrap().seid;
        let refused = clock.rig.upf.establish(&wide(8, 1), now()).unwrap_err();
        assert_eq!(refused.cause, Cause::NoResourcesAvailable);
        clock.rig.upf.delete(seid, now()).unwrap();
    }
}

/// Conformance: TS 29.244 5.4.3 | Packets within a guaranteed bit rate go first where a port is full
#[test]
fn what_is_guaranteed_waits_for_a_full_port_while_others_are_dropped() {
    let mut clock = Clock::new();
    let guaranteed = Qer { gbr: kbps(8_000, 0), ..qer(1, 80_000, 80_000) };
    let seid = clock.rig.upf.establish(&session(7, vec![guaranteed]), now()).unwrap().seid;
    clock.rig.upf.establish(&session(8, Vec::new()), now()).unwrap();
    let fill = |clock: &mut Clock, n, packets: usize| {
        for _ in 0..packets {
            assert!(clock.rig.n3.send(up(n, 1000).1));
            while clock.rig.worker.step_at(clock.now) > 0 {}
        }
    };
    // Nobody takes packets from the port, which has room for 4096.
    fill(&mut clock, 8, 4096);
    assert_eq!(clock.rig.drops(N6, DropReason::TX_FULL), 0);
    fill(&mut clock, 7, 20);
    fill(&mut clock, 8, 20);
    // Ten milliseconds of the guarantee are ten packets; the others of both sessions are alike.
    assert_eq!(clock.rig.drops(N6, DropReason::TX_FULL), 30);
    assert_eq!(clock.rig.drops(N6, DropReason::TX_FULL_HIGH_PRIORITY), 0);
    assert_eq!(clock.rig.drain().len(), 4096);
    assert_eq!(clock.rig.drain().len(), 10, "those that waited");
    // Where there is room, what is beyond the guarantee passes all the same.
    clock.now += SECOND;
    assert_eq!((0..40).filter(|_| clock.passes(&up(7, 1000))).count(), 40);
    // The guarantee goes with the QER, and both of its policers come back.
    let update = UpdateQer { id: QerId(1), gbr: kbps(0, 0), ..UpdateQer::default() };
    let change = Modification { update_qers: vec![update], ..Modification::default() };
    clock.rig.upf.modify(seid, &change, now()).unwrap();
    fill(&mut clock, 8, 4096);
    fill(&mut clock, 7, 5);
    assert_eq!(clock.rig.drops(N6, DropReason::TX_FULL), 35);
    clock.rig.upf.delete(seid, now()).unwrap();
}

/// Conformance: TS 29.244 5.4.11 | Packets beyond the packet rate are dropped, and what is left is reported at the end
#[test]
fn packets_are_limited_in_each_time_unit() {
    let mut clock = Clock::new();
    let limit = |packets, unit| Some(PacketLimit { packets, unit });
    let rate = PacketRate { uplink: limit(10, TimeUnit::Minute), downlink: limit(3, TimeUnit::Hour) };
    let qer = Qer { packet_rate: Some(rate), reports_packet_rate: true, ..Qer::open(QerId(1)) };
    let mut request = session(7, vec![qer]);
    request.urrs = vec![urr(1, false), urr(2, true)];
    request.pdrs.iter_mut().for_each(|pdr| pdr.urr_ids = vec![UrrId(1), UrrId(2)]);
    let seid = clock.rig.upf.establish(&request, now()).unwrap().seid;
    assert_eq!((0..50).filter(|_| clock.passes(&up(7, 100))).count(), 10);
    assert_eq!((0..50).filter(|_| clock.passes(&down(7, 100))).count(), 3);
    assert_eq!(clock.rig.drops(N3, UpfDrop::PACKET_RATE_EXCEEDED), 40);
    assert_eq!(clock.rig.drops(N6, UpfDrop::PACKET_RATE_EXCEEDED), 47);
    clock.now += 59 * SECOND;
    assert!(!clock.passes(&up(7, 100)));
    clock.now += SECOND;
    assert_eq!((0..4).filter(|_| clock.passes(&up(7, 100))).count(), 4, "of the next minute");
    assert!(!clock.passes(&down(7, 100)), "an hour is longer");
    let deleted = clock.rig.upf.delete(seid, now()).unwrap();
    let [status] = deleted.packet_rates[..] else { panic!("{deleted:?}") };
    assert_eq!((status.qer_id, status.uplink, status.downlink), (QerId(1), Some(6), Some(0)));
    assert!(status.valid_until > now());
    let [passed, before] = [0, 1].map(|n| deleted.usage_reports[n].volume.unwrap());
    assert_eq!((passed.uplink_packets, passed.downlink_packets), (14, 3));
    assert_eq!((before.uplink_packets, before.downlink_packets), (55, 51));
    // The next session in its place starts anew, and one that does not ask is not told.
    let silent = Qer { reports_packet_rate: false, ..qer };
    let seid = clock.rig.upf.establish(&session(7, vec![silent]), now()).unwrap().seid;
    assert_eq!((0..50).filter(|_| clock.passes(&down(7, 100))).count(), 3);
    assert_eq!(clock.rig.upf.delete(seid, now()).unwrap().packet_rates, []);
}
