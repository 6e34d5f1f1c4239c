//! What sessions have carried since they began, across changes of their URRs.
#![allow(clippy::unwrap_used)]

use std::time::SystemTime;

use crate::fixture::packets::{downlink, udp, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan, ip};
use kaido_n4::{
    Establishment, Modification, Pdi, Pdr, PdrId, SdfFilter, Seid, SessionService, UpdatePdr, Urr, UrrId,
    Volume,
};
use kaido_upf::control::{SessionUsage, UsageScope};

const WEB: &str = "permit out udp from 8.8.4.4 to assigned";

/// A session that is followed.
struct Bench {
    rig: Rig,
    seid: Seid,
    now: SystemTime,
}

fn volume(up: u64, down: u64) -> Volume {
    Volume { uplink_bytes: up * 100, downlink_bytes: down * 100, uplink_packets: up, downlink_packets: down }
}

fn urr(id: u32) -> Urr {
    Urr { id: UrrId(id), ..SessionPlan::ipv4(7).urr() }
}

impl Bench {
    fn new(request: &Establishment) -> Self {
        let (mut rig, now) = (Rig::new(), SystemTime::now());
        rig.upf.follow_usage(true);
        let seid = rig.upf.establish(request, now).unwrap().seid;
        assert_eq!(rig.upf.take_begun(), Some(seid));
        Self { rig, seid, now }
    }

    /// Packets of 100 octets, with a peer.
    fn pass(&mut self, peer: &str, [up, down]: [usize; 2]) {
        let frame = uplink(1007, &udp("10.60.0.7", peer, 72));
        assert_eq!(self.rig.pass_times(N3, &frame, up), up);
        assert_eq!(self.rig.pass_times(N6, &downlink(&udp(peer, "10.60.0.7", 72)), down), down);
    }

    fn modify(&mut self, change: &Modification) {
        self.rig.upf.modify(self.seid, change, self.now).unwrap();
    }

    fn usage(&self) -> SessionUsage {
        self.rig.upf.usage_of(self.seid).unwrap()
    }

    fn whole(&self) -> Volume {
        self.usage().volume()
    }

    fn of_web(&self) -> Option<Volume> {
        let web = UsageScope::Flow(vec![SdfFilter::parse(WEB).unwrap()]);
        self.usage().volumes.into_iter().find(|(scope, _)| *scope == web).map(|(_, volume)| volume)
    }
}

/// The usual session without URRs, and a flow with PDRs of its own in both directions.
fn with_flow(whole: &[u32], web: &[u32]) -> Establishment {
    let mut request = SessionPlan::ipv4(7).establishment();
    let ids = |ids: &[u32]| ids.iter().copied().map(UrrId).collect::<Vec<_>>();
    request.urrs = whole
        .iter()
        .chain(web)
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .map(|id| urr(*id))
        .collect();
    for pdr in &mut request.pdrs {
        pdr.urr_ids = ids(whole);
    }
    let of_flow = |id: u16, pdr: &Pdr| {
        let filters = vec![SdfFilter { id: Some(3), ..SdfFilter::parse(WEB).unwrap() }];
        let pdi = Pdi { sdf_filters: filters, ..pdr.pdi.clone() };
        Pdr { id: PdrId(id), precedence: 1, pdi, urr_ids: ids(web), ..pdr.clone() }
    };
    let flow = [of_flow(11, &request.pdrs[0]), of_flow(12, &request.pdrs[1])];
    request.pdrs.extend(flow);
    request
}

#[test]
fn a_session_has_what_its_urr_counts() {
    let mut bench = Bench::new(&SessionPlan::ipv4(7).establishment());
    bench.pass("8.8.8.8", [3, 2]);
    assert_eq!(bench.whole(), volume(3, 2));
    let index = u32::try_from(bench.seid.0 & 0xffff_ffff).unwrap();
    let counted = bench.rig.upf.counted_at_place(index).unwrap();
    assert_eq!(counted, (bench.seid, Some(volume(3, 2))));
    assert_eq!(bench.rig.upf.sessions_of_address(ip("10.60.0.7"), 4), [bench.seid]);
    assert_eq!(bench.rig.upf.sessions_of_address(ip("10.60.0.8"), 4), []);
}

#[test]
fn urrs_of_flows_alone_add_up_to_the_session() {
    let mut bench = Bench::new(&with_flow(&[1], &[2]));
    bench.pass("8.8.8.8", [3, 2]);
    bench.pass("8.8.4.4", [1, 4]);
    assert_eq!(bench.whole(), volume(4, 6));
    assert_eq!(bench.of_web(), Some(volume(1, 4)));
}

#[test]
fn a_urr_of_the_session_beside_one_of_a_flow_counts_no_packet_twice() {
    let mut bench = Bench::new(&with_flow(&[1], &[1, 2]));
    bench.pass("8.8.8.8", [3, 2]);
    bench.pass("8.8.4.4", [1, 4]);
    assert_eq!(bench.whole(), volume(4, 6));
    assert_eq!(bench.of_web(), Some(volume(1, 4)));
}

#[test]
fn volumes_never_jump_when_urrs_come_and_go() {
    let mut bench = Bench::new(&with_flow(&[1], &[1, 2]));
    bench.pass("8.8.4.4", [1, 4]);
    let bind = |ids: [&[u32]; 2]| -> Vec<UpdatePdr> {
        let update = |id: u16, urrs: &[u32]| UpdatePdr {
            id: PdrId(id),
            urr_ids: Some(urrs.iter().copied().map(UrrId).collect()),
            ..UpdatePdr::default()
        };
        let [whole, web] = ids;
        vec![update(1, whole), update(2, whole), update(11, web), update(12, web)]
    };
    // Another URR in the place of the first.
    let change = Modification {
        remove_urrs: vec![UrrId(1)],
        create_urrs: vec![urr(5)],
        update_pdrs: bind([&[5], &[5, 2]]),
        ..Modification::default()
    };
    bench.modify(&change);
    assert_eq!((bench.whole(), bench.of_web()), (volume(1, 4), Some(volume(1, 4))));
    bench.pass("8.8.8.8", [2, 0]);
    bench.pass("8.8.4.4", [0, 1]);
    assert_eq!((bench.whole(), bench.of_web()), (volume(3, 5), Some(volume(1, 5))));
    // The flow is no longer counted apart: what it has carried stays.
    let change = Modification {
        remove_urrs: vec![UrrId(2)],
        update_pdrs: bind([&[5], &[5]]),
        ..Modification::default()
    };
    bench.modify(&change);
    bench.pass("8.8.4.4", [1, 0]);
    assert_eq!((bench.whole(), bench.of_web()), (volume(4, 5), Some(volume(1, 5))));
    // It is again, by a URR of the same number that begins anew.
    let change = Modification {
        create_urrs: vec![urr(2)],
        update_pdrs: bind([&[5], &[5, 2]]),
        ..Modification::default()
    };
    bench.modify(&change);
    bench.pass("8.8.4.4", [0, 1]);
    assert_eq!((bench.whole(), bench.of_web()), (volume(4, 6), Some(volume(1, 6))));
    // Nothing is changed of what is counted.
    bench.modify(&Modification { update_pdrs: bind([&[5], &[5, 2]]), ..Modification::default() });
    assert_eq!(bench.whole(), volume(4, 6));
    bench.rig.upf.delete(bench.seid, bench.now).unwrap();
    let last = bench.rig.upf.take_ended().unwrap();
    assert_eq!((last.session.seid, last.volume(), last.has_ended), (bench.seid, volume(4, 6), true));
    assert_eq!(bench.rig.upf.take_ended(), None);
    assert_eq!(bench.rig.upf.usage_lost(), 0);
}

#[test]
fn nobody_follows_sessions_unless_asked() {
    let mut rig = Rig::new();
    let seid = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), SystemTime::now()).unwrap().seid;
    rig.upf.delete(seid, SystemTime::now()).unwrap();
    assert_eq!((rig.upf.take_begun(), rig.upf.take_ended()), (None, None));
}
