//! Sessions that are searched a part at a time.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant, SystemTime};

use crate::fixture::{Rig, SessionPlan, settings};
use kaido_n4::{Establishment, FSeid, Imsi, Interface, NetworkInstance, Seid, SessionService};
use kaido_upf::control::{SessionFilter, SessionSearch};
use kaido_upf::node::Instance;

const SMFS: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2)];

fn dnn(number: u8) -> Option<NetworkInstance> {
    number.is_multiple_of(4).then(|| NetworkInstance("ims".into()))
}

fn imsi(number: u8) -> Imsi {
    format!("00101000000000{}", number % 5).parse().unwrap()
}

/// Sessions of two SMFs and five subscribers, with free places between; their numbers.
fn rig() -> (Rig, Vec<u8>) {
    let mut settings = settings();
    settings.instances.push(Instance { name: Some("ims".to_owned()) });
    let mut rig = Rig::with(settings);
    let mut kept = Vec::new();
    for number in 1..=60 {
        let mut plan = SessionPlan::ipv4(number).establishment();
        for pdr in plan.pdrs.iter_mut().filter(|pdr| pdr.pdi.source_interface == Interface::Core) {
            pdr.pdi.network_instance = dnn(number);
        }
        let smf = SMFS[usize::from(number % 2)];
        let cp_fseid = FSeid { seid: Seid(number.into()), ipv4: Some(smf), ipv6: None };
        let request = Establishment { cp_fseid, imsi: Some(imsi(number)), ..plan };
        let seid = rig.upf.establish(&request, SystemTime::now()).unwrap().seid;
        if number % 7 == 0 {
            rig.upf.delete(seid, SystemTime::now()).unwrap();
        } else {
            kept.push(number);
        }
    }
    (rig, kept)
}

/// How many meet it, the control plane's numbers of those of the page, and how many turns it took.
fn search(
    rig: &Rig,
    filter: SessionFilter,
    [skip, limit]: [usize; 2],
    until: Instant,
) -> (usize, Vec<u64>, u32) {
    let mut search = SessionSearch::new(filter, skip, limit);
    let mut turns = 1;
    while !rig.upf.search(&mut search, until) {
        turns += 1;
    }
    (search.total, search.found.iter().map(|found| found.cp_fseid.seid.0).collect(), turns)
}

#[test]
fn a_page_is_the_same_in_one_turn_and_in_many() {
    let (rig, kept) = rig();
    let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(60));
    let all = SessionFilter::default();
    let of_smf = SessionFilter { control_plane: Some(IpAddr::from(SMFS[1])), ..all.clone() };
    let of_imsi = SessionFilter { imsi: Some(imsi(3)), ..all.clone() };
    let of_dnn = SessionFilter { network_instance: dnn(0), ..all.clone() };
    let both = SessionFilter { imsi: Some(imsi(3)), ..of_smf.clone() };
    let three =
        SessionFilter { control_plane: Some(SMFS[0].into()), imsi: Some(imsi(3)), network_instance: dnn(0) };
    let nobody = SessionFilter { control_plane: Some("2001:db8::1".parse().unwrap()), ..all.clone() };
    for filter in [all, of_smf, of_imsi, of_dnn, both, three, nobody] {
        let meets = |number: &u8| {
            filter.control_plane.is_none_or(|smf| smf == IpAddr::from(SMFS[usize::from(number % 2)]))
                && filter.imsi.is_none_or(|wanted| wanted == imsi(*number))
                && (filter.network_instance.is_none() || filter.network_instance == dnn(*number))
        };
        let expected: Vec<u64> = kept.iter().copied().filter(meets).map(u64::from).collect();
        for [skip, limit] in [[0, 50], [0, 1000], [3, 4], [1000, 10], [0, 0]] {
            let page: Vec<u64> = expected.iter().copied().skip(skip).take(limit).collect();
            let (total, found, turns) = search(&rig, filter.clone(), [skip, limit], later);
            assert_eq!((total, &found, turns), (expected.len(), &page, 1), "{filter:?} {skip} {limit}");
            let (total, found, turns) = search(&rig, filter.clone(), [skip, limit], now);
            assert_eq!((total, found), (expected.len(), page.clone()), "{filter:?} {skip} {limit}");
            assert!(turns >= u32::try_from(page.len()).unwrap().min(2), "the time is over after each look");
        }
    }
}
