//! Load control, overload control, message priority and bundled answers (TS 29.244 6.2.3, 6.2.4, 6.5).
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::rig::{
    Reply, SMF, Scripted, ask, associated, config, due, elements, endpoint, ie, message, send_from,
    setup_with, sound_establishment, still_sound,
};
use kaido_n4::{PdrId, Seid, SessionEvent};
use kaido_pfcp::{Config, Endpoint, Instants};

/// An endpoint whose SMF says LOAD and OVRL, and bundles.
fn knowing() -> (Endpoint<Scripted>, Instants) {
    let (mut upf, now) = endpoint();
    assert_eq!(ask(&mut upf, now, &setup_with(1, &[ie(89, &[0x13])])).cause(), 1);
    (upf, now)
}

fn metric(reply: &Reply, kind: u16) -> Option<(u32, u8)> {
    let parts = elements(reply.value(kind)?);
    let part = |kind| parts.iter().find(|part| part.0 == kind).map(|part| part.1.clone()).unwrap();
    Some((u32::from_be_bytes(part(52).try_into().unwrap()), part(53)[0]))
}

/// Conformance: TS 29.244 6.2.3 | Load Control Information tells how full the node is, numbered anew when it changes
#[test]
fn load_is_told_to_those_who_want_to_know() {
    let (mut upf, now) = knowing();
    upf.service_mut().load = 42;
    due(&mut upf, now);
    let reply = ask(&mut upf, now, &sound_establishment(2));
    let (first, load) = metric(&reply, 51).unwrap();
    assert_eq!((load, metric(&reply, 54)), (40, None));
    upf.service_mut().load = 44;
    due(&mut upf, now);
    let seid = reply.up_seid();
    assert_eq!(metric(&ask(&mut upf, now, &message(52, Some(seid), 3, &[])), 51), Some((first, 40)));
    upf.service_mut().load = 100;
    upf.service_mut().events.push_back(SessionEvent::DownlinkData {
        seid: Seid(seid),
        pdr_id: PdrId(1),
        service: kaido_n4::DownlinkDataService::default(),
    });
    let report = due(&mut upf, now).remove(0);
    assert_eq!(metric(&Reply::read(&report.bytes), 51), Some((first + 1, 100)));
    let deleted = ask(&mut upf, now, &message(54, Some(seid), 4, &[]));
    assert_eq!(metric(&deleted, 51), Some((first + 1, 100)));

    let (mut upf, now) = associated();
    assert_eq!(ask(&mut upf, now, &sound_establishment(2)).value(51), None);
}

/// OAI's SMF says LOAD and OVRL, and drops whole messages that have what they are about.
#[test]
fn load_is_not_told_unless_it_is_to_be() {
    let now = Instants::now();
    let config = Config { tells_load: false, ..config() };
    let mut upf = Endpoint::new(config, Scripted::default(), now);
    assert_eq!(ask(&mut upf, now, &setup_with(1, &[ie(89, &[3])])).cause(), 1);
    upf.set_lag(75);
    let urgent = {
        let mut request = sound_establishment(2);
        (request[0], request[15]) = (request[0] | 2, 0);
        request
    };
    let answer = ask(&mut upf, now, &urgent);
    assert_eq!((answer.cause(), answer.value(51), answer.value(54)), (1, None, None));
    assert_eq!(ask(&mut upf, now, &sound_establishment(3)).cause(), 74, "it is overloaded all the same");
}

/// Conformance: TS 29.244 6.2.4 | Overload Control Information while overloaded; establishments of low priority get cause 74
/// Conformance: TS 29.244 7.2.2.3 | Message priority decides who is refused first during overload
#[test]
fn overload_refuses_by_priority() {
    let (mut upf, now) = knowing();
    let with_priority = |priority: u8, sequence| {
        let mut request = sound_establishment(sequence);
        (request[0], request[15]) = (request[0] | 2, priority << 4);
        request
    };
    upf.set_lag(50);
    assert_eq!(ask(&mut upf, now, &with_priority(15, 2)).value(54), None, "not yet overload");
    upf.set_lag(75);
    let causes: Vec<u8> = (0..16u8)
        .map(|priority| ask(&mut upf, now, &with_priority(priority, 10 + u32::from(priority))).cause())
        .collect();
    assert_eq!(causes, [[1; 8], [74; 8]].concat());
    assert_eq!(ask(&mut upf, now, &sound_establishment(40)).cause(), 74, "no priority is a middle one");
    let admitted = ask(&mut upf, now, &with_priority(0, 41));
    assert_eq!(metric(&admitted, 54).unwrap().1, 50);
    let parts = elements(admitted.value(54).unwrap());
    assert_eq!(parts[2..], [(55, vec![5]), (110, vec![1])], "for ten seconds, of the whole node");
    upf.set_lag(100);
    assert_eq!(ask(&mut upf, now, &with_priority(1, 42)).cause(), 74);
    assert_eq!(ask(&mut upf, now, &with_priority(0, 43)).cause(), 1);
    let seid = admitted.up_seid();
    assert_eq!(ask(&mut upf, now, &message(52, Some(seid), 44, &[])).cause(), 1, "sessions are served on");
    assert_eq!(ask(&mut upf, now, &message(54, Some(seid), 45, &[])).cause(), 1);
    upf.set_lag(0);
    assert_eq!(ask(&mut upf, now, &with_priority(15, 46)).cause(), 1);
    still_sound(&mut upf, now, 1 + 8 + 1 + 1 - 1 + 1);
}

/// Conformance: TS 29.244 6.5 | The answers to bundled requests are bundled for a control plane that says BUNDL
#[test]
fn answers_to_a_bundle_are_bundled() {
    let (mut upf, now) = knowing();
    let bundle = |first: u32| {
        let requests = (first..first + 3).map(|sequence| {
            let mut request = sound_establishment(sequence);
            request[0] |= if sequence < first + 2 { 4 } else { 0 };
            request
        });
        requests.collect::<Vec<_>>().concat()
    };
    let mut out = Vec::new();
    upf.handle(now, SMF, &bundle(10), &mut out);
    assert_eq!(out.len(), 1);
    let mut rest = &out[0].bytes[..];
    for sequence in 10..13u32 {
        let length = 4 + usize::from(u16::from_be_bytes([rest[2], rest[3]]));
        let (one, others) = rest.split_at(length);
        assert_eq!(one[0] & 4 != 0, sequence < 12, "FO on all but the last");
        let reply = Reply::read(one);
        assert_eq!((reply.kind, reply.sequence, reply.cause()), (51, sequence, 1));
        rest = others;
    }
    assert!(rest.is_empty());
    // Each one repeated is answered with its own octets, as ever.
    assert_eq!(ask(&mut upf, now, &sound_establishment(11)).sequence, 11);
    still_sound(&mut upf, now, 3);
    let (mut upf, now) = associated();
    assert_eq!(send_from(SMF, &mut upf, now, &bundle(10)).len(), 3);
}
