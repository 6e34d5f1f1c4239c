//! What is reported is what went through, to the octet, whatever is changed, asked, granted and taken away between packets.
//! The reports of each rule add up to the packets that came out while it was there and a rule of detection named it. Those of
//! one that counts before QoS enforcement have also what a rate dropped.
#![allow(clippy::unwrap_used)]

use crate::fixture;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use crate::fixture::packets::{downlink, udp, uplink};
use crate::fixture::{DN_MAC, GNB_MAC, N3, N6, Rig, SessionPlan, ip};
use kaido_engine::{NeighbourRequest, PortId};
use kaido_n4::{
    BitRate, Change, MeasurementInformation, MeasurementMethod, Modification, PdrId, QerId,
    ReportingTriggers, Seid, SessionEvent, SessionService, UpdatePdr, UpdateQer, UpdateUrr, Urr, UrrId,
    UsageReport, VolumeThreshold,
};
use kaido_upf::UpfDrop;
use proptest::prelude::*;

/// So many rules of usage: of free5GC's three in every session one counts before QoS enforcement.
const RULES: u8 = 4;

#[derive(Clone, Debug)]
enum Step {
    /// Packets of so many octets of payload.
    Up(u8, u16),
    Down(u8, u16),
    /// The control plane looks for events after so many seconds.
    Poll(u8),
    Query(u8),
    QueryAll,
    Threshold(u8, u16),
    Grant(u8, u16),
    Unlimited(u8),
    /// Takes a rule away.
    Remove(u8),
    /// Makes a rule anew, where there is none.
    Create(u8),
    /// Whether packets go the slow path.
    SlowPath(bool),
    /// Which packets of a rule are counted: those up, those down, both or none.
    Bind(u8, u8),
    /// Whether a rule counts before QoS enforcement.
    BeforeQos(u8, bool),
    /// Whether there is a rate, which drops most packets.
    Rate(bool),
    /// Whether the next hops of a direction answer; what waits for them leaves when they do.
    NextHop(u8, bool),
}

fn step() -> impl Strategy<Value = Step> {
    let rule = 1u8..=RULES;
    prop_oneof![
        6 => (1u8..6, 0u16..1400).prop_map(|(count, size)| Step::Up(count, size)),
        6 => (1u8..6, 0u16..1400).prop_map(|(count, size)| Step::Down(count, size)),
        4 => (0u8..20).prop_map(Step::Poll),
        1 => rule.clone().prop_map(Step::Query),
        1 => Just(Step::QueryAll),
        1 => (rule.clone(), 1u16..).prop_map(|(rule, octets)| Step::Threshold(rule, octets)),
        2 => (rule.clone(), 1u16..).prop_map(|(rule, octets)| Step::Grant(rule, octets)),
        1 => rule.clone().prop_map(Step::Unlimited),
        1 => rule.clone().prop_map(Step::Remove),
        2 => rule.clone().prop_map(Step::Create),
        1 => any::<bool>().prop_map(Step::SlowPath),
        1 => (rule.clone(), prop_oneof![3 => Just(3u8), 1 => 0u8..4]).prop_map(|(rule, ways)| Step::Bind(rule, ways)),
        1 => (rule, any::<bool>()).prop_map(|(rule, before)| Step::BeforeQos(rule, before)),
        1 => any::<bool>().prop_map(Step::Rate),
        2 => (0u8..2, any::<bool>()).prop_map(|(target, known)| Step::NextHop(target, known)),
    ]
}

fn rule(id: u8) -> Urr {
    let triggers = [
        ReportingTriggers::PERIO,
        ReportingTriggers::VOLTH,
        ReportingTriggers::VOLQU,
        ReportingTriggers::LIUSA,
    ];
    Urr {
        id: UrrId(id.into()),
        method: MeasurementMethod { volume: true, duration: true, event: false },
        triggers: triggers.iter().fold(ReportingTriggers::default(), |all, &one| all.union(one)),
        measurement_period: Some(Duration::from_secs(30)),
        volume_threshold: Some(VolumeThreshold { total: Some(10_000), uplink: Some(7000), downlink: None }),
        linked: vec![UrrId(u32::from(RULES + 1 - id))],
        information: information(id == 3),
        ..Urr::default()
    }
}

fn information(before_qos: bool) -> MeasurementInformation {
    MeasurementInformation { before_qos, ..MeasurementInformation::default() }
}

/// Which packets a rule counts.
#[derive(Clone, Copy, Debug)]
struct There {
    /// Bit 0 up, bit 1 down.
    ways: u8,
    before_qos: bool,
}

impl There {
    fn new(id: u8) -> Self {
        Self { ways: 3, before_qos: id == 3 }
    }
}

/// What a rule has measured in packets and octets, up and down, by its reports and by what came out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum([u64; 4]);

struct World {
    rig: Rig,
    seid: Seid,
    now: SystemTime,
    reported: BTreeMap<u32, Sum>,
    came_out: BTreeMap<u32, Sum>,
    next_seqn: BTreeMap<u32, u32>,
    there: BTreeMap<u8, There>,
    slow_path: bool,
}

impl World {
    fn new() -> Self {
        let mut request = SessionPlan::ipv4(7).establishment();
        request.urrs = (1..=3).map(rule).collect();
        request.pdrs.iter_mut().for_each(|pdr| pdr.urr_ids = (1..=3).map(UrrId).collect());
        let now = SystemTime::now();
        let mut rig = Rig::new();
        let seid = rig.upf.establish(&request, now).unwrap().seid;
        Self {
            rig,
            seid,
            now,
            reported: BTreeMap::new(),
            came_out: BTreeMap::new(),
            next_seqn: BTreeMap::new(),
            there: (1..=3).map(|id| (id, There::new(id))).collect(),
            slow_path: false,
        }
    }

    /// Sends packets and counts for each rule what it is to count of them.
    fn send(&mut self, (port, target): (PortId, usize), count: u8, octets: u16, frame: &[u8]) {
        let over_rate = |rig: &Rig| rig.drops(port, UpfDrop::MBR_EXCEEDED);
        let before = over_rate(&self.rig);
        let out = self.rig.pass_times(port, frame, count.into()) as u64;
        let dropped = over_rate(&self.rig) - before;
        self.count(target, |there| out + if there.before_qos { dropped } else { 0 }, 28 + u64::from(octets));
    }

    /// Counts packets of so many octets for each rule that is to count them, as many as it says.
    fn count(&mut self, target: usize, packets: impl Fn(&There) -> u64, octets: u64) {
        for (id, there) in self.there.iter().filter(|(_, there)| there.ways >> target & 1 != 0) {
            let sum = self.came_out.entry((*id).into()).or_default();
            sum.0[2 * target] += packets(there);
            sum.0[2 * target + 1] += packets(there) * octets;
        }
    }

    /// Has the next hop of a direction be known or not, and counts what leaves that waited for it.
    fn next_hop(&mut self, target: usize, known: bool) {
        let (port, address, mac) = [(N6, "10.100.6.2", DN_MAC), (N3, "10.100.3.2", GNB_MAC)][target];
        let neighbour = NeighbourRequest { port, address: ip(address) };
        self.rig.routes.set_neighbour(neighbour, known.then_some(mac));
        for (port, frame) in self.rig.drain() {
            // Behind Ethernet, and a tunnel over IPv4 on N3.
            let (target, before) = if port == N6 { (0, 14) } else { (1, 14 + 36) };
            self.count(target, |_| 1, (frame.len() - before) as u64);
        }
    }

    fn take(&mut self, reports: &[UsageReport]) {
        for report in reports {
            let next = self.next_seqn.entry(report.urr_id.0).or_default();
            assert_eq!(report.ur_seqn, *next, "without gaps");
            *next += 1;
            let volume = report.volume.unwrap();
            let sum = self.reported.entry(report.urr_id.0).or_default();
            let more =
                [volume.uplink_packets, volume.uplink_bytes, volume.downlink_packets, volume.downlink_bytes];
            sum.0.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
        }
    }

    fn poll(&mut self) {
        for event in self.rig.upf.poll_events(self.now, 100) {
            let SessionEvent::Usage { reports, .. } = event else { panic!("{event:?}") };
            self.take(&reports);
        }
    }

    fn modify(&mut self, change: &Modification) {
        let reports = self.rig.upf.modify(self.seid, change, self.now).unwrap().usage_reports;
        self.take(&reports);
    }

    fn update(&mut self, id: u8, update: UpdateUrr) {
        if self.there.contains_key(&id) {
            let update_urrs = vec![UpdateUrr { id: UrrId(id.into()), ..update }];
            self.modify(&Modification { update_urrs, ..Modification::default() });
        }
    }

    /// The usage rules that a rule of detection names, whose number is odd uplink and even downlink.
    fn named_by(&self, pdr: u16) -> Vec<UrrId> {
        let target = 1 - pdr % 2;
        let there = self.there.iter().filter(|(_, there)| there.ways >> target & 1 != 0);
        there.map(|(&id, _)| UrrId(id.into())).collect()
    }

    /// Every rule of detection names the usage rules that there are.
    fn bind(&self) -> Vec<UpdatePdr> {
        let ids: &[u16] = if self.slow_path { &[1, 2, 11, 12] } else { &[1, 2] };
        let update =
            |&id| UpdatePdr { id: PdrId(id), urr_ids: Some(self.named_by(id)), ..UpdatePdr::default() };
        ids.iter().map(update).collect()
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Up(count, octets) => {
                let frame = uplink(1007, &udp("10.60.0.7", "8.8.8.8", octets.into()));
                self.send((N3, 0), count, octets, &frame);
            }
            Step::Down(count, octets) => {
                let frame = downlink(&udp("8.8.8.8", "10.60.0.7", octets.into()));
                self.send((N6, 1), count, octets, &frame);
            }
            Step::Poll(seconds) => {
                self.now += Duration::from_secs(seconds.into());
                self.poll();
            }
            Step::Query(id) if self.there.contains_key(&id) => {
                let query_urrs = vec![UrrId(id.into())];
                self.modify(&Modification { query_urrs, ..Modification::default() });
            }
            Step::QueryAll => self.modify(&Modification { query_all_urrs: true, ..Modification::default() }),
            Step::Threshold(id, octets) => {
                let threshold = VolumeThreshold { total: Some(octets.into()), ..VolumeThreshold::default() };
                let volume_threshold = Change::To(threshold);
                self.update(id, UpdateUrr { volume_threshold, ..UpdateUrr::default() });
            }
            Step::Grant(id, octets) => {
                let quota = VolumeThreshold { total: Some(octets.into()), ..VolumeThreshold::default() };
                self.update(id, UpdateUrr { volume_quota: Change::To(quota), ..UpdateUrr::default() });
            }
            Step::Unlimited(id) => {
                self.update(id, UpdateUrr { volume_quota: Change::Remove, ..UpdateUrr::default() });
            }
            Step::Remove(id) if self.there.contains_key(&id) => {
                self.there.remove(&id);
                let remove_urrs = vec![UrrId(id.into())];
                self.modify(&Modification { remove_urrs, ..Modification::default() });
                self.next_seqn.remove(&id.into());
            }
            Step::Create(id) if !self.there.contains_key(&id) => {
                self.there.insert(id, There::new(id));
                let update_pdrs = self.bind();
                let create_urrs = vec![rule(id)];
                self.modify(&Modification { create_urrs, update_pdrs, ..Modification::default() });
            }
            Step::SlowPath(slow) if slow != self.slow_path => {
                self.slow_path = slow;
                let plan = SessionPlan::ipv4(7);
                let mut ahead = fixture::on_slow_path(&[plan.uplink_pdr(), plan.downlink_pdr()]);
                ahead.iter_mut().for_each(|pdr| pdr.urr_ids = self.named_by(pdr.id.0));
                self.modify(&if slow {
                    Modification { create_pdrs: ahead, ..Modification::default() }
                } else {
                    Modification { remove_pdrs: vec![PdrId(11), PdrId(12)], ..Modification::default() }
                });
            }
            Step::Bind(id, ways) => {
                let Some(there) = self.there.get_mut(&id) else { return };
                there.ways = ways;
                let update_pdrs = self.bind();
                self.modify(&Modification { update_pdrs, ..Modification::default() });
            }
            Step::BeforeQos(id, before_qos) => {
                let Some(there) = self.there.get_mut(&id) else { return };
                there.before_qos = before_qos;
                let information = Some(information(before_qos));
                self.update(id, UpdateUrr { information, ..UpdateUrr::default() });
            }
            Step::Rate(limited) => {
                let kbps = if limited { 800 } else { 0 };
                let mbr = Some(BitRate { uplink_kbps: kbps, downlink_kbps: kbps });
                let update_qers = vec![UpdateQer { id: QerId(1), mbr, ..UpdateQer::default() }];
                self.modify(&Modification { update_qers, ..Modification::default() });
            }
            Step::NextHop(target, known) => self.next_hop(target.into(), known),
            Step::Query(_) | Step::Remove(_) | Step::Create(_) | Step::SlowPath(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Conformance: TS 29.244 5.2.2.2 | A modification during traffic loses nothing of the usage
    /// Conformance: TS 29.244 8.2.71 | UR-SEQN is without gaps
    #[test]
    fn reports_add_up_to_what_came_out(steps in proptest::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        steps.iter().for_each(|step| world.step(step));
        world.poll();
        let last = world.rig.upf.delete(world.seid, world.now).unwrap().usage_reports;
        world.take(&last);
        prop_assert!(world.rig.upf.poll_events(world.now + Duration::from_secs(1000), 100).is_empty());
        for id in 1..=u32::from(RULES) {
            let of = |sums: &BTreeMap<u32, Sum>| sums.get(&id).copied().unwrap_or_default();
            prop_assert_eq!(of(&world.reported), of(&world.came_out), "rule {}", id);
        }
    }
}
