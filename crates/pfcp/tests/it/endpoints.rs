//! Traffic endpoints and framed routes as control planes send them, and what is wrong in them.
#![allow(clippy::unwrap_used)]

use crate::rig;
use crate::rig::{ask, associated, create_far, establishment, group, ie, pdr_parts, still_sound};
use kaido_n4::{FramedRoute, TrafficEndpointId};

/// A Create PDR with the given PDI.
fn pdr(pdi: &[Vec<u8>]) -> Vec<u8> {
    let mut parts = pdr_parts(1, 1);
    parts.iter_mut().filter(|part| part.0 == rig::PDI).for_each(|part| part.1 = pdi.concat());
    group(1, &parts)
}

/// Conformance: TS 29.244 7.5.2.7 | Create Traffic Endpoint, and PDIs that name several (PDIU, MTE)
#[test]
fn traffic_endpoints_are_read_whole() {
    let (mut upf, now) = associated();
    let pdi = [ie(20, &[0]), ie(131, &[7]), ie(131, &[8])];
    let endpoint = |id: u8| {
        let fteid = [1, 0, 0, 0, id, 192, 0, 2, 1];
        group(
            127,
            &[
                (131, vec![id]),
                (21, fteid.to_vec()),
                (153, b"192.168.1.0/24 0.0.0.0 1".to_vec()),
                (154, vec![0; 4]),
            ],
        )
    };
    let reply = ask(&mut upf, now, &establishment(9, &[pdr(&pdi), create_far(1), endpoint(7), endpoint(8)]));
    assert_eq!(reply.cause(), 1);
    let asked = &upf.service().establishments[0];
    assert_eq!(asked.pdrs[0].pdi.traffic_endpoints, [TrafficEndpointId(7), TrafficEndpointId(8)]);
    let ids: Vec<_> = asked.traffic_endpoints.iter().map(|endpoint| endpoint.id.0).collect();
    assert_eq!(ids, [7, 8]);
    assert_eq!(asked.traffic_endpoints[0].framed_routes, [FramedRoute::of([192, 168, 1, 0].into(), 24)]);
}

/// Conformance: TS 29.244 7.6.7 | Framed routes and traffic endpoints that say nothing sound are refused with their element
#[test]
fn what_is_wrong_is_named() {
    for (rules, verdict) in [
        (vec![pdr(&[ie(20, &[0]), ie(153, b"somewhere")])], (69, Some(153))),
        (vec![pdr(&[ie(20, &[0]), ie(153, &[0xff, 0xfe])])], (69, Some(153))),
        (vec![pdr(&[ie(20, &[0]), ie(153, b"192.168.1.0/33")])], (69, Some(153))),
        (vec![pdr(&[ie(20, &[0]), ie(155, b"2001:db8::")])], (69, Some(155))),
        (vec![pdr(&[ie(20, &[0]), ie(155, b"2001:db8::/80")])], (76, Some(155))),
        (vec![pdr(&[ie(20, &[0]), ie(154, &[0, 0, 0, 3])])], (76, Some(154))),
        (vec![pdr(&[ie(20, &[0]), ie(154, &[0])])], (68, Some(154))),
        (vec![pdr(&[ie(20, &[0]), ie(131, &[1]), ie(93, &[2, 10, 0, 0, 1])])], (69, Some(93))),
        (vec![pdr(&[ie(20, &[0]), ie(131, &[])])], (68, Some(131))),
        (vec![pdr(&[ie(20, &[0]), ie(131, &[1])]), group(127, &[])], (66, Some(131))),
        (
            vec![pdr(&[ie(20, &[0]), ie(131, &[1])]), group(127, &[(131, vec![1]), (21, vec![1])])],
            (68, Some(21)),
        ),
    ] {
        let (mut upf, now) = associated();
        let rules = [rules, vec![create_far(1)]].concat();
        let reply = ask(&mut upf, now, &establishment(9, &rules));
        assert_eq!((reply.cause(), reply.offending()), verdict, "{rules:?}");
        assert!(upf.service().establishments.is_empty());
        still_sound(&mut upf, now, 0);
    }
}
