//! Traces: the packets of chosen sessions, what became of them, and nothing of the others.
#![allow(clippy::unwrap_used)]

use std::net::IpAddr;

use crate::fixture::packets::{downlink, udp_between, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan, ip, now};
use kaido_engine::Disposition;
use kaido_n4::{FarId, PdrId, QerId, SessionService, UrrId};
use kaido_upf::UpfDrop;
use kaido_upf::control::{TraceBatch, TraceFilter};
use kaido_upf::trace::WatchId;
use kaido_upf::ue::Direction;

const ALL: (usize, usize) = (1000, usize::MAX);

fn to_dn(ue: &str) -> Vec<u8> {
    udp_between((ue, 4000), ("8.8.8.8", 53), 100)
}

fn read(rig: &mut Rig, id: WatchId) -> TraceBatch {
    rig.upf.read_trace(id, ALL, now()).unwrap()
}

#[test]
fn a_traced_session_is_written_down_and_no_other() {
    let mut rig = Rig::new();
    let seven = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap().seid;
    rig.upf.establish(&SessionPlan::ipv4(8).establishment(), now()).unwrap();
    let plain = rig.pass(N3, &uplink(1007, &to_dn("10.60.0.7")));
    let id = rig.upf.begin_trace(TraceFilter::Ue(ip("10.60.0.7")), 64, now()).unwrap();
    let up = uplink(1007, &to_dn("10.60.0.7"));
    let down = downlink(&udp_between(("8.8.8.8", 53), ("10.60.0.7", 4000), 100));
    assert_eq!(rig.pass(N3, &up), plain, "the same comes out");
    let back = rig.pass(N6, &down);
    rig.pass(N3, &uplink(1008, &to_dn("10.60.0.8")));
    let batch = read(&mut rig, id);
    assert_eq!((batch.lost, &batch.sessions[..]), (0, &[seven][..]));
    let [first, second] = &batch.packets[..] else { panic!("{batch:?}") };
    assert_eq!(
        (first.record.direction, first.record.port, first.record.len),
        (Direction::Uplink, N3, up.len())
    );
    assert_eq!(first.record.head, up[..64]);
    let sent = Disposition::Sent { port: N6, len: plain[0].1.len(), head: plain[0].1[..64].to_vec() };
    assert_eq!(first.record.dispositions, [sent]);
    let rules = first.rules.as_ref().unwrap();
    assert_eq!((rules.pdr, rules.precedence, rules.far), (PdrId(1), 255, Some(FarId(1))));
    assert_eq!((&rules.qers[..], &rules.urrs[..]), (&[QerId(1)][..], &[UrrId(1)][..]));
    let (_, matched) = first.record.matched.unwrap();
    assert!(matched <= first.record.took);
    assert_eq!((second.record.direction, second.record.matched.unwrap().0), (Direction::Downlink, PdrId(2)));
    assert!(
        matches!(&second.record.dispositions[..], [Disposition::Sent { port: N3, len, .. }] if *len == back[0].1.len())
    );
    rig.upf.end_trace(id, now());
    rig.pass(N3, &up);
    assert!(rig.upf.read_trace(id, ALL, now()).is_none());
    let volume = rig.upf.delete(seven, now()).unwrap().usage_reports.remove(0).volume.unwrap();
    assert_eq!((volume.uplink_packets, volume.downlink_packets), (3, 1), "traced or not, it counts");
}

#[test]
fn verdicts_other_than_sent_are_written_down() {
    let mut rig = Rig::new();
    let mut request = SessionPlan::ipv4(7).establishment();
    request.qers[0].gate.uplink = false;
    request.fars[1].apply_action.forward = false;
    request.fars[1].apply_action.buffer = true;
    let seid = rig.upf.establish(&request, now()).unwrap().seid;
    let id = rig.upf.begin_trace(TraceFilter::Session(seid), 0, now()).unwrap();
    rig.pass(N3, &uplink(1007, &to_dn("10.60.0.7")));
    rig.pass(N3, &uplink(1007, &to_dn("10.60.0.99")));
    rig.pass(N6, &downlink(&udp_between(("8.8.8.8", 53), ("10.60.0.7", 4000), 100)));
    let packets = read(&mut rig, id).packets;
    let dispositions: Vec<_> = packets.iter().map(|packet| &packet.record.dispositions[..]).collect();
    assert_eq!(dispositions[0], [Disposition::Dropped(UpfDrop::GATE_CLOSED)]);
    assert_eq!(dispositions[1], [Disposition::Dropped(UpfDrop::UE_SPOOFED)]);
    assert_eq!(packets[1].rules.as_ref().unwrap().pdr, PdrId(1), "what it met before it was refused");
    let kept = packets.last().unwrap();
    assert!(kept.record.dispositions.is_empty() && kept.record.buffered);
    assert!(packets.iter().all(|packet| packet.record.head.is_empty()));
}

#[test]
fn a_ue_that_attaches_anew_is_traced_again() {
    let mut rig = Rig::new();
    let address: IpAddr = ip("10.60.0.7");
    let id = rig.upf.begin_trace(TraceFilter::Ue(address), 0, now()).unwrap();
    assert!(read(&mut rig, id).sessions.is_empty());
    for _ in 0..2 {
        let seid = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap().seid;
        assert_eq!(read(&mut rig, id).sessions, [seid]);
        rig.pass(N3, &uplink(1007, &to_dn("10.60.0.7")));
        assert_eq!(read(&mut rig, id).packets.len(), 1);
        rig.upf.delete(seid, now()).unwrap();
        assert!(read(&mut rig, id).sessions.is_empty());
    }
    let others = std::iter::from_fn(|| rig.upf.begin_trace(TraceFilter::Ue(address), 0, now())).count();
    assert_eq!(others, 7, "eight at a time");
}
