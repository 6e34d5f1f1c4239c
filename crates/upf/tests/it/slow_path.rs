//! Packets of the slow path are counted, each once, by what keeps it from the fast path.
#![allow(clippy::unwrap_used)]

use crate::fixture::packets::{downlink, ipv4, udp, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan, ip, now};
use crate::frames::g_pdu;
use crate::{fixture, smf_shapes};
use kaido_engine::{NeighbourRequest, PortId};
use kaido_n4::{
    ApplyAction, BitRate, Establishment, FramedRoute, PdrId, QerId, SdfFilter, Seid, SessionService,
    VolumeThreshold,
};
use kaido_upf::UpfDrop;
use kaido_upf::control::TraceFilter;
use kaido_upf::extended::UeToUe;
use kaido_upf::node::LiveSettings;
use kaido_upf::record::SlowPathCause;
use kaido_upf::slow_path::SlowPathReason;
use kaido_wire::{IpProtocol, PduSession};

const UE: &str = "10.60.0.7";

struct Bench {
    rig: Rig,
    seid: Seid,
    counted: Vec<(SlowPathReason, u64)>,
}

impl Bench {
    /// A node that knows the tunnel's peer.
    fn new(request: &Establishment) -> Self {
        Self::of(Rig::new(), request)
    }

    fn of(mut rig: Rig, request: &Establishment) -> Self {
        let seid = rig.upf.establish(request, now()).unwrap().seid;
        let mut bench = Self { rig, seid, counted: Vec::new() };
        bench.up();
        bench.down();
        bench.new_counts();
        bench
    }

    fn up(&mut self) {
        self.pass(N3, &uplink(1007, &udp(UE, "8.8.8.8", 100)));
    }

    fn down(&mut self) {
        self.pass(N6, &downlink(&udp("8.8.8.8", UE, 100)));
    }

    fn pass(&mut self, port: PortId, frame: &[u8]) {
        self.rig.pass(port, frame);
    }

    /// What was counted since the last look.
    fn new_counts(&mut self) -> Vec<(SlowPathReason, u64)> {
        let before = std::mem::replace(&mut self.counted, self.rig.upf.node().slow_path.totals());
        let old = |reason| before.iter().find(|(known, _)| *known == reason).map_or(0, |(_, count)| *count);
        let more = self.counted.iter().map(|&(reason, count)| (reason, count - old(reason)));
        more.filter(|(_, count)| *count > 0).collect()
    }
}

fn plain() -> Establishment {
    SessionPlan::ipv4(7).establishment()
}

#[test]
fn packets_of_the_fast_path_are_not_counted() {
    let mut bench = Bench::new(&plain());
    (0..100).for_each(|_| bench.up());
    (0..100).for_each(|_| bench.down());
    assert_eq!(bench.new_counts(), []);
}

#[test]
fn each_packet_counts_by_what_keeps_it_from_the_fast_path() {
    use SlowPathReason as Reason;

    let mut bench = Bench::new(&plain());
    let mut fragment = udp("8.8.8.8", UE, 100);
    fragment[6] = 0x20;
    fragment[10..12].fill(0);
    let sum = kaido_wire::checksum::checksum(&fragment[..20]).to_be_bytes();
    fragment[10..12].copy_from_slice(&sum);
    let mut options = ipv4("8.8.8.8", UE, IpProtocol::UDP, &[1; 40]);
    (options[0], options[10], options[11]) = (0x46, 0, 0);
    let sum = kaido_wire::checksum::checksum(&options[..24]).to_be_bytes();
    options[10..12].copy_from_slice(&sum);
    for (port, frame, reason) in [
        (N3, uplink(99, &udp(UE, "8.8.8.8", 100)), Some(Reason::NoSession)),
        (N6, downlink(&udp("8.8.8.8", "10.60.0.99", 100)), Some(Reason::NoSession)),
        (N6, downlink(&options), Some(Reason::Headers)),
        (N3, uplink(1007, &udp("10.60.0.99", "8.8.8.8", 100)), Some(Reason::Other)),
        // A fragment of a UE's packet is forwarded as any other, and what is no packet of a session does not count.
        (N6, downlink(&fragment), None),
        (N3, downlink(&udp("8.8.8.8", UE, 100)), None),
    ] {
        bench.pass(port, &frame);
        let expected: Vec<_> = reason.map(|reason| (reason, 1)).into_iter().collect();
        assert_eq!(bench.new_counts(), expected, "{frame:02x?}");
    }
}

#[test]
fn only_packets_to_networks_of_ues_are_slow_where_ues_are_kept_apart() {
    let settings = fixture::with_live(|live| LiveSettings { ue_to_ue: UeToUe::Drop, ..live });
    let mut filtered = plain();
    let mut voice = filtered.pdrs[0].clone();
    (voice.id, voice.precedence) = (PdrId(3), 1);
    voice.pdi.sdf_filters = vec![SdfFilter::parse("permit out 17 from 9.9.0.0/16 5060 to assigned").unwrap()];
    filtered.pdrs.push(voice);
    for (request, qfi) in [(plain(), None), (smf_shapes::open5gs(7), Some(9)), (filtered, None)] {
        let mut bench = Bench::of(Rig::with(settings.clone()), &request);
        bench.rig.upf.establish(&SessionPlan::ipv4(8).establishment(), now()).unwrap();
        let mut send = |to| {
            let container = qfi.map(|qfi| PduSession::Uplink { qfi });
            let sent = bench.rig.pass(N3, &g_pdu(1007, container, &udp(UE, to, 100)));
            (sent.len(), bench.new_counts())
        };
        send("8.8.8.8");
        assert_eq!(send("8.8.8.8"), (1, Vec::new()));
        assert_eq!(send("10.60.1.8"), (1, Vec::new()), "a network without UEs");
        assert_eq!(send("10.60.0.9"), (1, vec![(SlowPathReason::OtherUe, 1)]), "nobody's");
        assert_eq!(send("10.60.0.8"), (0, vec![(SlowPathReason::OtherUe, 1)]));
        assert_eq!(bench.rig.drops(N3, UpfDrop::UE_TO_UE), 1);
    }
}

#[test]
fn networks_behind_a_ue_are_reached_by_the_fast_path() {
    let mut request = plain();
    request.pdrs[1].pdi.framed_routes = vec![FramedRoute::of(ip("192.168.8.0"), 24)];
    let mut bench = Bench::new(&request);
    for _ in 0..3 {
        bench.pass(N3, &uplink(1007, &udp("192.168.8.1", "8.8.8.8", 100)));
        bench.pass(N6, &downlink(&udp("8.8.8.8", "192.168.8.1", 100)));
    }
    assert_eq!(bench.new_counts(), []);
    bench.pass(N3, &uplink(1007, &udp("192.168.9.1", "8.8.8.8", 100)));
    assert_eq!(bench.new_counts(), [(SlowPathReason::Other, 1)]);
    bench.pass(N6, &downlink(&udp("8.8.8.8", "192.168.9.1", 100)));
    assert_eq!(bench.new_counts(), [(SlowPathReason::NoSession, 1)]);
    // What keeps a packet from the fast path is asked of the session that the network is of.
    bench.rig.upf.begin_trace(TraceFilter::Session(bench.seid), 0, now()).unwrap();
    bench.pass(N6, &downlink(&udp("8.8.8.8", "192.168.8.1", 100)));
    assert_eq!(bench.new_counts(), [(SlowPathReason::Traced, 1)]);
}

#[test]
fn hosts_on_the_link_itself_are_reached_by_the_fast_path() {
    let mut bench = Bench::new(&plain());
    // The router of N6 itself: its address was never looked up, only that of what is behind it.
    let up = uplink(1007, &udp(UE, "10.100.6.2", 100));
    for expected in [1, 0, 0] {
        bench.pass(N3, &up);
        let counted = bench.new_counts();
        assert_eq!(counted.iter().map(|(_, count)| count).sum::<u64>(), expected, "{counted:?}");
    }
    // It has moved: what was known of it is not any more.
    let neighbour = NeighbourRequest { port: N6, address: ip("10.100.6.2") };
    bench.rig.routes.set_neighbour(neighbour, Some([2, 0, 0, 0, 6, 9]));
    for expected in [1, 0] {
        let sent = bench.rig.pass(N3, &up);
        assert_eq!(sent[0].1[..6], [2, 0, 0, 0, 6, 9]);
        let counted = bench.new_counts();
        assert_eq!(counted.iter().map(|(_, count)| count).sum::<u64>(), expected, "{counted:?}");
    }
}

#[test]
fn rules_say_why_their_packets_are_slow() {
    let expect = |request: &Establishment, reason| {
        let mut bench = Bench::new(request);
        (0..3).for_each(|_| bench.down());
        assert_eq!(bench.new_counts(), [(reason, 3)]);
    };
    let mut buffering = plain();
    buffering.fars[1].apply_action = ApplyAction::BUFFER;
    // Those that wait are why the next take the slow path.
    expect(&buffering, SlowPathReason::Waiting);
    let mut dropping = plain();
    dropping.fars[1].apply_action = ApplyAction::DROP;
    expect(&dropping, SlowPathReason::Held);
    let mut filtered = plain();
    filtered.pdrs[1].pdi.sdf_filters = vec![SdfFilter { tos: Some((0, 0xff)), ..SdfFilter::default() }];
    expect(&filtered, SlowPathReason::Rules(SlowPathCause::Filters));
    let mut used_up = plain();
    used_up.urrs[0].volume_quota = Some(VolumeThreshold { total: Some(200), ..VolumeThreshold::default() });
    expect(&used_up, SlowPathReason::Quota);
    let mut limited = plain();
    limited.qers[0].mbr = Some(BitRate { uplink_kbps: 1, downlink_kbps: 1 });
    limited.qers[0].id = QerId(1);
    expect(&limited, SlowPathReason::Rate);
}

#[test]
fn what_another_rule_may_match_and_what_is_traced_is_told() {
    let request = smf_shapes::open5gs(7);
    let mut bench = Bench::new(&request);
    // Without the QFI that the fast rule asks for.
    bench.up();
    assert_eq!(bench.new_counts(), [(SlowPathReason::OtherRule, 1)]);
    let mut bench = Bench::new(&plain());
    bench.rig.upf.begin_trace(TraceFilter::Session(bench.seid), 0, now()).unwrap();
    bench.down();
    assert_eq!(bench.new_counts(), [(SlowPathReason::Traced, 1)]);
}
