//! PFD management as control planes ask for it, right and wrong.
#![allow(clippy::unwrap_used)]

use crate::rig::{SMF, STRANGER, ask, associated, group, ie, message, send_from, still_sound};

const PFD_MANAGEMENT: u8 = 3;

fn contents(flags: u8, text: &[u8]) -> Vec<u8> {
    [&[flags, 0][..], &u16::try_from(text.len()).unwrap().to_be_bytes(), text].concat()
}

fn application(id: &[u8], pfds: &[Vec<u8>]) -> Vec<u8> {
    let inner: Vec<u8> = pfds.iter().flat_map(|pfd| ie(61, pfd)).collect();
    group(58, &[(24, id.to_vec()), (59, inner)])
}

/// Conformance: TS 29.244 7.4.3.1 | PFD Management Request: PFDs of several applications, and the removal of all
#[test]
fn pfds_reach_the_service_as_they_were_meant() {
    let (mut upf, now) = associated();
    let flow = contents(1, b"permit out 6 from 192.0.2.0/24 443 to assigned");
    let body = [
        application(b"video", &[flow, contents(4, b"*.video.example")]),
        group(58, &[(24, b"mail".to_vec())]),
    ];
    let reply = ask(&mut upf, now, &message(PFD_MANAGEMENT, None, 5, &body.concat()));
    assert_eq!((reply.kind, reply.sequence, reply.cause()), (4, 5, 1));
    assert_eq!(ask(&mut upf, now, &message(PFD_MANAGEMENT, None, 6, &[])).cause(), 1);
    let asked = &upf.service().provisioned;
    assert_eq!(asked.len(), 2);
    let ids: Vec<_> = asked[0].applications.iter().map(|(id, pfds)| (&*id.0, pfds.len())).collect();
    assert_eq!(ids, [("video", 2), ("mail", 0)]);
    assert!(asked[1].applications.is_empty());
    still_sound(&mut upf, now, 0);
}

/// Conformance: TS 29.244 6.2.5.3 | A PFD Management Request with a fault provisions nothing and is answered with its cause
#[test]
fn what_is_wrong_is_named_and_changes_nothing() {
    let sound = application(b"video", &[contents(4, b"video.example")]);
    for (wrong, verdict) in [
        (group(58, &[]), (66, Some(24))),
        (group(58, &[(24, vec![0xff])]), (69, Some(24))),
        (group(58, &[(24, b"a".to_vec()), (59, Vec::new())]), (66, Some(61))),
        (application(b"a", &[vec![]]), (68, Some(61))),
        (application(b"a", &[vec![1, 0, 0, 9]]), (68, Some(61))),
        (application(b"a", &[contents(1, b"permit in ip from any to any")]), (69, Some(61))),
        (application(b"a", &[contents(4, b"^.*$")]), (76, Some(61))),
    ] {
        let (mut upf, now) = associated();
        let body = [sound.clone(), wrong.clone()].concat();
        let reply = ask(&mut upf, now, &message(PFD_MANAGEMENT, None, 5, &body));
        assert_eq!((reply.kind, (reply.cause(), reply.offending())), (4, verdict), "{wrong:?}");
        assert!(upf.service().provisioned.is_empty());
        still_sound(&mut upf, now, 0);
    }
}

#[test]
fn strangers_provision_nothing() {
    let (mut upf, now) = associated();
    let request = message(PFD_MANAGEMENT, None, 5, &application(b"a", &[contents(4, b"a.example")]));
    assert_eq!(send_from(STRANGER, &mut upf, now, &request)[0].cause(), 72);
    assert!(upf.service().provisioned.is_empty());
    assert_eq!(send_from(SMF, &mut upf, now, &request)[0].cause(), 1);
}
