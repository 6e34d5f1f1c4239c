//! What sessions have carried since the last flow record.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, SystemTime};

use crate::fixture::packets::{downlink, udp, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan};
use kaido_n4::{Seid, SessionService, Volume};
use kaido_upf::control::SessionFlow;

fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000 + second)
}

fn take(rig: &mut Rig, second: u64) -> Vec<SessionFlow> {
    let mut found = Vec::new();
    let places = rig.upf.places();
    rig.upf.take_flows(places, usize::MAX, at(second), &mut found);
    found
}

fn establish(rig: &mut Rig, number: u8, second: u64) -> Seid {
    rig.upf.establish(&SessionPlan::ipv4(number).establishment(), at(second)).unwrap().seid
}

/// Packets of 100 octets.
fn pass(rig: &mut Rig, number: u8, [up, down]: [usize; 2]) {
    let address = format!("10.60.0.{number}");
    let sent = rig.pass_times(N3, &uplink(1000 + u32::from(number), &udp(&address, "8.8.8.8", 72)), up);
    assert_eq!(sent, up);
    assert_eq!(rig.pass_times(N6, &downlink(&udp("8.8.8.8", &address, 72)), down), down);
}

fn volume(up: u64, down: u64) -> Volume {
    Volume { uplink_bytes: up * 100, downlink_bytes: down * 100, uplink_packets: up, downlink_packets: down }
}

#[test]
fn each_record_has_what_came_since_the_last() {
    let mut rig = Rig::new();
    rig.upf.meter_flows();
    let [first, second] = [(7, 0), (8, 3)].map(|(number, second)| establish(&mut rig, number, second));
    assert_eq!(take(&mut rig, 5), [], "nothing was carried");
    pass(&mut rig, 7, [3, 2]);
    let found = take(&mut rig, 10);
    assert_eq!(found.len(), 1);
    let flow = &found[0];
    assert_eq!((flow.session.seid, flow.volume, flow.has_ended), (first, volume(3, 2), false));
    assert_eq!((flow.from, flow.to), (at(0), at(10)));
    pass(&mut rig, 7, [1, 0]);
    pass(&mut rig, 8, [0, 4]);
    let found = take(&mut rig, 20);
    let told: Vec<_> = found.iter().map(|flow| (flow.session.seid, flow.volume, flow.from)).collect();
    assert_eq!(told, [(first, volume(1, 0), at(10)), (second, volume(0, 4), at(3))]);
    assert_eq!(take(&mut rig, 30), []);
}

#[test]
fn a_session_that_ends_has_a_last_record_and_its_place_begins_anew() {
    let mut rig = Rig::new();
    rig.upf.meter_flows();
    let seid = establish(&mut rig, 7, 0);
    pass(&mut rig, 7, [3, 0]);
    take(&mut rig, 10);
    rig.upf.delete(seid, at(11)).unwrap();
    let silent = establish(&mut rig, 7, 12);
    rig.upf.delete(silent, at(13)).unwrap();
    let next = establish(&mut rig, 7, 14);
    pass(&mut rig, 7, [1, 1]);
    let found = take(&mut rig, 20);
    let told: Vec<_> = found.iter().map(|flow| (flow.session.seid, flow.volume, flow.has_ended)).collect();
    assert_eq!(told, [(seid, volume(0, 0), true), (next, volume(1, 1), false)]);
    assert_eq!((found[0].from, found[0].to), (at(10), at(11)));
    assert_eq!(found[0].session.volume, volume(3, 0));
    assert_eq!(found[1].from, at(14));
    assert_eq!(rig.upf.flows_lost(), 0);
}

#[test]
fn of_a_session_that_was_there_before_the_first_look_begins_it() {
    let mut rig = Rig::new();
    establish(&mut rig, 7, 0);
    pass(&mut rig, 7, [5, 0]);
    rig.upf.meter_flows();
    assert_eq!(take(&mut rig, 10), []);
    pass(&mut rig, 7, [2, 0]);
    let found = take(&mut rig, 20);
    assert_eq!((found[0].volume, found[0].from), (volume(2, 0), at(10)));
}

#[test]
fn few_are_looked_at_in_a_turn() {
    let mut rig = Rig::new();
    rig.upf.meter_flows();
    for number in 1..=9 {
        establish(&mut rig, number, 0);
        pass(&mut rig, number, [1, 0]);
    }
    let mut found = Vec::new();
    assert_eq!(rig.upf.take_flows(4, 100, at(1), &mut found), 4);
    assert_eq!(found.len(), 4);
    assert_eq!(rig.upf.take_flows(100, 2, at(1), &mut found), 2);
    assert_eq!(found.len(), 6);
    assert_eq!(rig.upf.take_flows(12, 100, at(1), &mut found), 12, "it goes round");
    assert_eq!(found.len(), 9, "and each is told once");
}
