//! URRs that count the same packets have one counter, and each its own reports.
#![allow(clippy::unwrap_used)]

use std::net::Ipv4Addr;
use std::time::SystemTime;

use crate::fixture;
use crate::fixture::packets::{downlink, udp, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan};
use kaido_n4::{
    BitRate, Change, Establishment, MeasurementInformation, Modification, PdrId, Qer, QerId,
    ReportingTriggers, Seid, SessionEvent, SessionService, Teid, UpdatePdr, UpdateUrr, Urr, UrrId,
    UsageReport, UsageReportTrigger, VolumeThreshold,
};
use kaido_upf::UpfDrop;
use kaido_upf::action::CountScope;
use kaido_upf::ids::{EndpointId, InstanceId};
use kaido_upf::key::SessionKey;
use kaido_upf::record::Rules;

/// A session with the usage rules of free5GC: three in every PDR, the third of which counts before QoS enforcement.
struct Bench {
    rig: Rig,
    seid: Seid,
    now: SystemTime,
}

fn total(octets: u64) -> VolumeThreshold {
    VolumeThreshold { total: Some(octets), ..VolumeThreshold::default() }
}

fn urr(id: u32) -> Urr {
    let information = MeasurementInformation {
        count_packets: true,
        before_qos: id == 3,
        ..MeasurementInformation::default()
    };
    let triggers = ReportingTriggers::VOLTH.union(ReportingTriggers::VOLQU);
    Urr { id: UrrId(id), information, triggers, ..SessionPlan::ipv4(7).urr() }
}

fn request(urrs: Vec<Urr>) -> Establishment {
    let mut request = SessionPlan::ipv4(7).establishment();
    let ids: Vec<_> = urrs.iter().map(|urr| urr.id).collect();
    request.pdrs.iter_mut().for_each(|pdr| pdr.urr_ids.clone_from(&ids));
    request.urrs = urrs;
    request
}

impl Bench {
    fn new(request: &Establishment) -> Self {
        let (mut rig, now) = (Rig::new(), SystemTime::now());
        let seid = rig.upf.establish(request, now).unwrap().seid;
        Self { rig, seid, now }
    }

    /// Sends packets of 100 octets; how many came out.
    fn up(&mut self, count: usize) -> usize {
        let frame = uplink(1007, &udp("10.60.0.7", "8.8.8.8", 72));
        self.rig.pass_times(N3, &frame, count)
    }

    fn down(&mut self, count: usize) -> usize {
        let frame = downlink(&udp("8.8.8.8", "10.60.0.7", 72));
        self.rig.pass_times(N6, &frame, count)
    }

    /// The reports that are due, as rule and octets.
    fn due(&mut self) -> Vec<(u32, u64)> {
        let events = self.rig.upf.poll_events(self.now, 100).into_iter();
        let reports = events.flat_map(|event| match event {
            SessionEvent::Usage { reports, .. } => reports,
            other => panic!("{other:?}"),
        });
        reports.map(|report| (report.urr_id.0, octets(&report))).collect()
    }

    fn modify(&mut self, change: &Modification) -> Vec<(u32, u64)> {
        let reports = self.rig.upf.modify(self.seid, change, self.now).unwrap().usage_reports;
        reports.iter().map(|report| (report.urr_id.0, octets(report))).collect()
    }

    fn bind(&mut self, pdr: u16, urrs: &[u32]) {
        let urr_ids = Some(urrs.iter().copied().map(UrrId).collect());
        let update = UpdatePdr { id: PdrId(pdr), urr_ids, ..UpdatePdr::default() };
        self.modify(&Modification { update_pdrs: vec![update], ..Modification::default() });
    }

    /// What is counted of the packets of each direction.
    fn counted(&self) -> [Vec<CountScope>; 2] {
        let node = self.rig.upf.node();
        let mut reader = node.domain.reader().unwrap();
        let guard = reader.pin();
        let keys = [
            SessionKey::tunnel(EndpointId(0), Teid(1007)),
            SessionKey::ipv4(InstanceId(0), Ipv4Addr::new(10, 60, 0, 7)),
        ];
        keys.map(|key| match node.table.get(&guard, &key).unwrap().rules(&node.tunnels) {
            Rules::One(action) => action.usage.iter().map(|(_, what)| what).collect(),
            Rules::Filtered(rules) => panic!("{rules:?}"),
        })
    }

    fn volume(&self) -> u64 {
        self.rig.upf.sessions(0, 1)[0].volume.total_bytes()
    }
}

fn octets(report: &UsageReport) -> u64 {
    report.volume.unwrap().total_bytes()
}

#[test]
fn a_packet_moves_one_counter_for_the_urrs_of_free5gc() {
    use CountScope::{All, Dropped, Passed};
    let of = |urrs: &[u32]| Bench::new(&request(urrs.iter().copied().map(urr).collect())).counted();
    assert_eq!(of(&[1]), [[Passed], [Passed]]);
    assert_eq!(of(&[1, 2]), [[Passed], [Passed]]);
    assert_eq!(of(&[1, 2, 3]), [[Passed, Dropped], [Passed, Dropped]]);
    assert_eq!(of(&[3]), [[All], [All]]);
    let mut bench = Bench::new(&request(vec![urr(1), urr(2)]));
    bench.bind(2, &[2]);
    assert_eq!(bench.counted(), [vec![Passed, Passed], vec![Passed]], "the first counts no downlink");
    bench.bind(2, &[2, 1]);
    assert_eq!(bench.counted(), [[Passed], [Passed]]);
}

#[test]
fn each_threshold_is_reached_at_its_own_place() {
    let with = |id, octets| Urr { volume_threshold: Some(total(octets)), ..urr(id) };
    let mut bench = Bench::new(&request(vec![with(1, 300), with(2, 500), with(3, 450)]));
    let mut found = Vec::new();
    for packet in 1..=10 {
        assert_eq!(bench.up(packet % 2) + bench.down(1 - packet % 2), 1);
        found.extend(bench.due().into_iter().map(|report| (packet, report)));
    }
    let expected = [
        (3, (1, 300)),
        (5, (2, 500)),
        (5, (3, 500)),
        (6, (1, 300)),
        (9, (1, 300)),
        (10, (2, 500)),
        (10, (3, 500)),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_quota_of_one_stops_at_its_packet_and_the_other_has_counted_as_much() {
    let mut bench =
        Bench::new(&request(vec![urr(1), Urr { volume_quota: Some(total(400)), ..urr(2) }, urr(4)]));
    assert_eq!(bench.up(3) + bench.down(3), 4);
    assert_eq!(bench.due(), [(2, 400)]);
    // Whatever is said of the others, it stays closed.
    let update =
        UpdateUrr { id: UrrId(1), volume_threshold: Change::To(total(10_000)), ..UpdateUrr::default() };
    bench.modify(&Modification { update_urrs: vec![update], ..Modification::default() });
    assert_eq!(bench.up(3), 0);
    // Neither does another counter open it.
    bench.bind(1, &[1, 2]);
    assert_eq!((bench.up(3), bench.down(3)), (0, 0));
    let grant = UpdateUrr { id: UrrId(2), volume_quota: Change::To(total(200)), ..UpdateUrr::default() };
    bench.modify(&Modification { update_urrs: vec![grant], ..Modification::default() });
    assert_eq!(bench.down(3), 2);
    assert_eq!(bench.volume(), 600);
    let mut reports: Vec<_> = bench.rig.upf.delete(bench.seid, bench.now).unwrap().usage_reports;
    reports.sort_by_key(|report| report.urr_id);
    let last: Vec<_> = reports.iter().map(|report| (report.urr_id.0, octets(report))).collect();
    assert_eq!(last, [(1, 600), (2, 200), (4, 600)]);
}

/// What a rate drops counts towards the threshold of a URR before QoS enforcement, at the packet that reaches it.
#[test]
fn dropped_packets_reach_the_threshold_of_the_urr_that_counts_them() {
    let mut request = request(vec![urr(1), Urr { volume_threshold: Some(total(5000)), ..urr(3) }]);
    let rate = BitRate { uplink_kbps: 1, downlink_kbps: 1 };
    request.qers = vec![Qer { mbr: Some(rate), ..Qer::open(QerId(1)) }];
    let mut bench = Bench::new(&request);
    let mut passed = 0;
    for packet in 1..=60 {
        passed += bench.up(1);
        let due = bench.due();
        assert_eq!(due, if packet == 50 { vec![(3, 5000)] } else { Vec::new() }, "packet {packet}");
    }
    let dropped = bench.rig.drops(N3, UpfDrop::MBR_EXCEEDED);
    assert!(dropped > 40 && passed as u64 + dropped == 60, "{dropped}");
    let reports = bench.rig.upf.delete(bench.seid, bench.now).unwrap().usage_reports;
    assert_eq!(octets(&reports[0]), 100 * passed as u64);
    assert_eq!(octets(&reports[1]), 1000);
}

#[test]
fn one_that_comes_later_counts_from_nothing_and_one_that_goes_leaves_the_rest() {
    let mut bench = Bench::new(&request(vec![urr(1), urr(2)]));
    assert_eq!(bench.up(3) + bench.down(2), 5);
    let named = |urrs: &[u32]| {
        let urr_ids: Vec<_> = urrs.iter().copied().map(UrrId).collect();
        let of = |id| UpdatePdr { id: PdrId(id), urr_ids: Some(urr_ids.clone()), ..UpdatePdr::default() };
        vec![of(1), of(2)]
    };
    bench.modify(&Modification {
        create_urrs: vec![urr(5)],
        update_pdrs: named(&[1, 2, 5]),
        ..Modification::default()
    });
    assert_eq!(bench.counted(), [[CountScope::Passed], [CountScope::Passed]]);
    assert_eq!(bench.up(1), 1);
    assert_eq!(bench.volume(), 600);
    assert_eq!(bench.rig.upf.volume().total_bytes(), 600);
    let query = Modification { query_all_urrs: true, ..Modification::default() };
    assert_eq!(bench.modify(&query), [(1, 600), (2, 600), (5, 100)]);
    let removed = bench.modify(&Modification {
        remove_urrs: vec![UrrId(1)],
        update_pdrs: named(&[2, 5]),
        ..Modification::default()
    });
    assert_eq!(removed, [(1, 0)]);
    assert_eq!(bench.down(4), 4);
    assert_eq!(bench.modify(&query), [(2, 400), (5, 400)]);
    let triggers = bench.rig.upf.delete(bench.seid, bench.now).unwrap().usage_reports;
    assert!(triggers.iter().all(|report| report.trigger == UsageReportTrigger::TERMR));
}

/// However often counters are changed, none is lost.
#[test]
fn counters_that_go_are_given_back() {
    let mut rig = Rig::with(kaido_upf::node::NodeSettings { sessions_max: 4, ..fixture::settings() });
    for _ in 0..200 {
        let seid = rig.upf.establish(&request((1..=3).map(urr).collect()), SystemTime::now()).unwrap().seid;
        for urrs in [&[1u32, 2][..], &[3], &[1, 2, 3]] {
            let urr_ids = Some(urrs.iter().copied().map(UrrId).collect());
            let update = UpdatePdr { id: PdrId(1), urr_ids, ..UpdatePdr::default() };
            let change = Modification { update_pdrs: vec![update], ..Modification::default() };
            rig.upf.modify(seid, &change, SystemTime::now()).unwrap();
        }
        rig.upf.delete(seid, SystemTime::now()).unwrap();
    }
}
