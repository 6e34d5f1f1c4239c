//! Where the records of a session lie in memory.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use crate::fixture::{Rig, SessionPlan, now};
use kaido_n4::{ApplyAction, FarId, Modification, SessionService, Teid, UpdateFar};
use kaido_upf::ids::{EndpointId, InstanceId};
use kaido_upf::key::SessionKey;

/// What a packet reads of its session lies in one page, so that it has one address translated.
#[test]
fn the_records_of_a_session_lie_in_one_page() {
    const PAGE: usize = 4096;
    let mut rig = Rig::new();
    let seids: Vec<_> = (1..=200)
        .map(|n| rig.upf.establish(&SessionPlan::ipv4(n).establishment(), now()).unwrap().seid)
        .collect();
    let node = rig.upf.node().clone();
    let mut reader = node.domain.reader().unwrap();
    let mut pages = |n: u8| {
        let guard = reader.pin();
        let keys = [
            SessionKey::tunnel(EndpointId(0), Teid(1000 + u32::from(n))),
            SessionKey::ipv4(InstanceId(0), Ipv4Addr::new(10, 60, 0, n)),
        ];
        keys.map(|key| std::ptr::from_ref(node.table.get(&guard, &key).unwrap()).addr() / PAGE)
    };
    let apart = |pages: &mut dyn FnMut(u8) -> [usize; 2]| {
        (1..=200).map(pages).filter(|[uplink, downlink]| uplink != downlink).count()
    };
    assert_eq!(apart(&mut pages), 0);
    let all: BTreeSet<_> = (1..=200).flat_map(&mut pages).collect();
    assert_eq!(all.len(), 10, "three lines a session, twenty-one sessions a page");
    // A page has a line left for the successor of a record that is replaced.
    for seid in seids.iter().step_by(21) {
        let far = UpdateFar { id: FarId(2), apply_action: Some(ApplyAction::DROP), ..UpdateFar::default() };
        let request = Modification { update_fars: vec![far], ..Modification::default() };
        rig.upf.modify(*seid, &request, now()).unwrap();
    }
    assert_eq!(apart(&mut pages), 0);
}
