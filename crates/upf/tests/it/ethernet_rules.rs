//! Rules of Ethernet sessions: filters, QoS, buffering, copies, tags, reports of addresses, proxying, refusals.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // Small numbers.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use crate::bridged::{
    BROADCAST, HOST, LOCAL, Seen, TAG, bridged, down, frame, macs, plain, rig, rig_with, seen, session,
    station, tagged, up,
};
use crate::fixture::{N3, N6, Rig, SessionPlan, now, v4};
use crate::frames::{g_pdu, read_tunnel, udp4, udp6};
use kaido_n4::{
    ApplicationId, ApplyAction, BarId, BitRate, BufferingRule, Cause, Duplicate, Establishment,
    EthernetFilter, EthernetTraffic, FTeid, Far, FarId, Gate, Interface, LocalFTeid, Mac, MacList, MacMatch,
    MacRange, MeasurementMethod, Modification, NetworkInstance, OuterHeaderCreation, OuterHeaderRemoval, Pdi,
    Pdr, PdrId, Proxying, Qer, QerId, Qfi, ReportingTriggers, SdfFilter, Seid, SessionEvent, SessionService,
    Steering, TagCreation, Teid, UpdateFar, Urr, UrrId, UsageReport, UsageReportTrigger, VlanTag,
};
use kaido_upf::UpfDrop;
use kaido_upf::node::NodeSettings;
use kaido_wire::gtpu::PduSession;
use kaido_wire::ndisc::{self, NdiscRepr};
use kaido_wire::{ArpOperation, ArpRepr, ArpView, EtherType, IpProtocol, Ipv6Repr, MacAddr, icmpv6};

fn ethertype(kind: u16) -> EthernetFilter {
    EthernetFilter { ethertype: Some(kind), ..EthernetFilter::default() }
}

fn vid(vid: u16) -> Option<VlanTag> {
    Some(VlanTag { vid: Some(vid), ..VlanTag::default() })
}

fn source(range: MacRange) -> EthernetFilter {
    let pair = MacMatch { source: Some(range), destination: None };
    EthernetFilter { addresses: vec![pair], ..EthernetFilter::default() }
}

/// A rule from the access before the usual one, for what a filter matches; it drops.
fn with_dropped(mut request: Establishment, filter: EthernetFilter) -> Establishment {
    let pdi = Pdi { ethernet_filters: vec![filter], ..request.pdrs[0].pdi.clone() };
    request.pdrs.push(Pdr {
        id: PdrId(9),
        precedence: 1,
        pdi,
        far_id: Some(FarId(9)),
        ..request.pdrs[0].clone()
    });
    request.fars.push(Far { id: FarId(9), apply_action: ApplyAction::DROP, forwarding: None, bar_id: None });
    request
}

/// Conformance: TS 29.244 5.13.1 | Ethernet packet filters: addresses, ranges, Ethertype, C-TAG, S-TAG, flows of the packet
#[test]
fn frames_match_every_part_of_a_filter_that_is_given() {
    let only = |of| MacRange::only(Mac(station(1, of)));
    let range = MacRange { low: Mac(station(1, 3)), high: Mac(station(1, 5)) };
    let flow = SdfFilter::parse("permit out 17 from 10.0.0.9 5000 to assigned").unwrap();
    let flows = |flow| EthernetFilter { flows: vec![flow], ..EthernetFilter::default() };
    let packet = |dst: &str| [&[8, 0][..], &udp4("10.0.0.1", dst, 64, 20)].concat();
    let tagged_packet = [&[0x81, 0, 0, 5][..], &packet("10.0.0.9")].concat();
    let local = [&LOCAL[..], &[1; 50]].concat();
    let six = [&[0x86, 0xdd][..], &udp6("2001:db8::1", "2001:db8::9", 64, 20)].concat();
    let flow6 = SdfFilter::parse("permit out 17 from 2001:db8::9 to assigned").unwrap();
    let tag = |vid, s_tag: bool| match s_tag {
        true => EthernetFilter { s_tag: self::vid(vid), ..EthernetFilter::default() },
        false => EthernetFilter { c_tag: self::vid(vid), ..EthernetFilter::default() },
    };
    let one = station(1, 1);
    for (filter, frame, matches) in [
        (source(only(1)), frame(HOST, one, &local), true),
        (source(only(2)), frame(HOST, one, &local), false),
        (source(range), frame(HOST, station(1, 4), &local), true),
        (source(range), frame(HOST, station(1, 6), &local), false),
        (ethertype(0x88b5), frame(HOST, one, &local), true),
        (ethertype(0x800), frame(HOST, one, &local), false),
        (ethertype(0x800), frame(HOST, one, &tagged_packet), true),
        (tag(5, false), frame(HOST, one, &tagged_packet), true),
        (tag(6, false), frame(HOST, one, &tagged_packet), false),
        (tag(5, true), frame(HOST, one, &tagged_packet), false),
        (tag(7, true), frame(HOST, one, &[&[0x88, 0xa8, 0, 7][..], &tagged_packet].concat()), true),
        (tag(5, false), frame(HOST, one, &local), false),
        (flows(flow.clone()), frame(HOST, one, &packet("10.0.0.9")), true),
        (flows(flow.clone()), frame(HOST, one, &tagged_packet), true),
        (flows(flow.clone()), frame(HOST, one, &packet("10.0.0.8")), false),
        (flows(flow.clone()), frame(HOST, one, &local), false),
        (flows(flow6), frame(HOST, one, &six), true),
        // A packet that contradicts itself is none, and is bridged like anything else.
        (flows(flow), frame(HOST, one, &[&[8, 0][..], &[0x45; 40]].concat()), false),
    ] {
        let (mut rig, _) = rig(&[with_dropped(session(1, "lan"), filter.clone())]);
        assert_eq!(up(&mut rig, 1, &frame).is_empty(), matches, "{filter:?}");
        assert_eq!(rig.drops(N3, UpfDrop::FAR_DROP), u64::from(matches));
    }
}

#[test]
fn flow_filters_of_the_pdi_itself_and_qfis_count_too() {
    let mut request = session(1, "lan");
    request.pdrs[0].pdi.sdf_filters = vec![SdfFilter::parse("permit out 17 from any to assigned").unwrap()];
    // One that is said twice is meant once.
    request.pdrs[0].pdi.qfis = vec![Qfi(5), Qfi(5)];
    let (mut rig, _) = rig(&[request]);
    let packet = frame(HOST, station(1, 1), &[&[8, 0][..], &udp4("10.0.0.1", "10.0.0.9", 64, 20)].concat());
    let send = |rig: &mut Rig, qfi, inner: &[u8]| {
        seen(rig.pass(N3, &g_pdu(1001, Some(PduSession::Uplink { qfi }), inner))).len()
    };
    assert_eq!((send(&mut rig, 5, &packet), send(&mut rig, 6, &packet)), (1, 0));
    assert_eq!(send(&mut rig, 5, &plain(HOST, station(1, 1))), 0);
    assert_eq!(rig.drops(N3, UpfDrop::NO_PDR), 2);
}

/// Conformance: TS 29.244 8.2.101 | Bidirectional Ethernet filters, named by a rule of the other direction
#[test]
fn a_named_filter_serves_the_other_direction_reversed() {
    let filter =
        EthernetFilter { id: Some(7), bidirectional: true, ..source(MacRange::only(Mac(station(1, 1)))) };
    let mut request = session(1, "lan");
    request.pdrs[0].pdi.ethernet_filters = vec![filter.clone()];
    request.pdrs[1].pdi.ethernet_filter_ids = vec![7];
    let (mut rig, _) = rig(&[request.clone()]);
    assert_eq!(up(&mut rig, 1, &plain(HOST, station(1, 1))).len(), 1);
    assert_eq!(up(&mut rig, 1, &plain(HOST, station(1, 2))), [], "not its source");
    let back = plain(station(1, 1), HOST);
    assert_eq!(down(&mut rig, &tagged(&back, &TAG)), [Seen::Session(1, back.clone())]);
    assert_eq!(down(&mut rig, &tagged(&plain(BROADCAST, HOST), &TAG)), [], "not its destination");
    assert_eq!(rig.drops(N6, UpfDrop::NO_PDR), 1);
    // One that is not bidirectional is not the other direction's, and one that is not there is nobody's.
    request.pdrs[0].pdi.ethernet_filters[0].bidirectional = false;
    let fault = Rig::with(bridged()).upf.establish(&request, now()).unwrap_err();
    assert_eq!((fault.cause, fault.offending_ie), (Cause::MandatoryIeIncorrect, Some(132)));
    request.pdrs[0].pdi.ethernet_filters.clear();
    assert!(Rig::with(bridged()).upf.establish(&request, now()).is_err());
}

/// Conformance: TS 23.501 5.6.10.2 | A session's allowed addresses, by filters of its uplink rules
#[test]
fn frames_of_addresses_that_no_rule_allows_are_dropped_and_not_learned() {
    let mut request = session(1, "lan");
    let allowed = |of| source(MacRange::only(Mac(station(1, of))));
    request.pdrs[0].pdi.ethernet_filters = vec![allowed(1), allowed(2)];
    let (mut rig, _) = rig(&[request]);
    for (of, passes) in [(1, true), (2, true), (3, false)] {
        assert_eq!(up(&mut rig, 1, &plain(HOST, station(1, of))).len(), usize::from(passes));
        assert_eq!(down(&mut rig, &tagged(&plain(station(1, of), HOST), &TAG)).len(), usize::from(passes));
    }
}

/// Conformance: TS 29.244 5.4.3 | Bit rates, gates and QFI marking of Ethernet sessions
#[test]
fn qers_mark_police_and_close() {
    let mut request = session(1, "lan");
    let mbr = Some(BitRate { uplink_kbps: 8, downlink_kbps: 0 });
    request.qers = vec![Qer { qfi: Some(Qfi(9)), mbr, ..Qer::open(QerId(1)) }];
    let (mut rig, seids) = rig(&[request]);
    let sent: usize = (0..20).map(|_| up(&mut rig, 1, &plain(HOST, station(1, 1))).len()).sum();
    assert!((1..=2).contains(&sent), "{sent} frames of 30 octets at a thousand octets a second");
    assert_eq!(rig.drops(N3, UpfDrop::MBR_EXCEEDED), 20 - sent as u64);
    let out = rig.pass(N6, &tagged(&plain(station(1, 1), HOST), &TAG));
    assert!(matches!(read_tunnel(&out[0].1).container, Some(PduSession::Downlink { qfi: 9, .. })));
    let closed = Modification {
        update_qers: vec![kaido_n4::UpdateQer {
            id: QerId(1),
            gate: Some(Gate { uplink: true, downlink: false }),
            ..Default::default()
        }],
        ..Modification::default()
    };
    rig.upf.modify(seids[0], &closed, now()).unwrap();
    assert_eq!(down(&mut rig, &tagged(&plain(station(1, 1), HOST), &TAG)), []);
    assert_eq!(rig.drops(N6, UpfDrop::GATE_CLOSED), 1);
}

/// Conformance: TS 29.244 5.2.3 | Frames wait for a UE that is paged, and go in order when the session forwards again
#[test]
fn frames_are_buffered_reported_once_and_released_in_order() {
    let mut request = session(1, "lan");
    request.fars[1].apply_action = ApplyAction::BUFFER_AND_NOTIFY;
    request.fars[1].bar_id = Some(BarId(1));
    request.bars = vec![BufferingRule { id: BarId(1), ..BufferingRule::default() }];
    let (mut rig, seids) = rig(&[request]);
    up(&mut rig, 1, &plain(HOST, station(1, 1)));
    let numbered = |n: u8| {
        let packet = udp4("10.0.0.9", "10.0.0.1", 64, usize::from(n));
        frame(station(1, 1), HOST, &[&[8, 0][..], &packet].concat())
    };
    (0..3).for_each(|n| assert_eq!(down(&mut rig, &tagged(&numbered(n), &TAG)), []));
    let reported =
        |event: &SessionEvent| matches!(event, SessionEvent::DownlinkData { pdr_id: PdrId(2), .. });
    assert_eq!(rig.upf.poll_events(now(), 9).iter().filter(|event| reported(event)).count(), 1);
    let update = UpdateFar { id: FarId(2), apply_action: Some(ApplyAction::FORWARD), ..UpdateFar::default() };
    let change = Modification { update_fars: vec![update], ..Modification::default() };
    rig.upf.modify(seids[0], &change, now()).unwrap();
    let inner: Vec<_> = rig.drain().iter().map(|(_, frame)| read_tunnel(frame).inner).collect();
    assert_eq!(inner, [numbered(0), numbered(1), numbered(2)]);
}

/// Conformance: TS 29.244 5.2.1 | Copies of frames (DUPL)
#[test]
fn copies_of_frames_go_into_further_tunnels_as_they_came() {
    let mut request = session(1, "lan");
    request.fars[0].apply_action.duplicate = true;
    let tunnel = OuterHeaderCreation { teid: Teid(2077), ipv4: Some(v4("10.100.3.2")), ipv6: None };
    let duplicates = vec![Duplicate { tunnel, transport_level_marking: None }];
    let steering = Steering { duplicates, ..Steering::default() };
    request.fars[0].forwarding.as_mut().unwrap().steering = Some(Box::new(steering));
    let (mut rig, _) = rig(&[request]);
    let out = plain(HOST, station(1, 1));
    assert_eq!(up(&mut rig, 1, &out), [Seen::Lan(tagged(&out, &TAG)), Seen::Session(77, out.clone())]);
}

/// Conformance: TS 29.244 8.2.64 | VLAN tags are put on by FARs and taken off by PDRs of Ethernet sessions
#[test]
fn tags_are_put_on_towards_the_lan_and_taken_off_towards_the_session() {
    let mut request = session(1, "lan");
    let priority = Some(VlanTag { vid: Some(9), priority: Some(5), drop_eligible: None });
    let tags = Some(TagCreation { s_tag: vid(300), c_tag: priority });
    let steering = Steering { tags, ..Steering::default() };
    request.fars[0].forwarding.as_mut().unwrap().steering = Some(Box::new(steering));
    request.pdrs[1].outer_header_removal = Some(OuterHeaderRemoval::BothTags);
    let (mut rig, _) = rig(&[request.clone()]);
    let own = [0x88, 0xa8, 0x01, 0x2c, 0x81, 0, 0xa0, 9];
    let out = plain(HOST, station(1, 1));
    let outside = tagged(&tagged(&out, &own), &TAG);
    assert_eq!(up(&mut rig, 1, &out), [Seen::Lan(outside)]);
    let back = plain(station(1, 1), HOST);
    assert_eq!(down(&mut rig, &tagged(&tagged(&back, &own), &TAG)), [Seen::Session(1, back.clone())]);
    assert_eq!(down(&mut rig, &tagged(&back, &TAG)), [], "another VLAN");
    // Only the outer one comes off.
    request.pdrs[1].outer_header_removal = Some(OuterHeaderRemoval::ServiceTag);
    let (mut rig, _) = self::rig(&[request]);
    up(&mut rig, 1, &out);
    let left = tagged(&back, &own[4..]);
    assert_eq!(down(&mut rig, &tagged(&tagged(&back, &own), &TAG)), [Seen::Session(1, left)]);
}

#[test]
fn an_intermediate_user_plane_hands_frames_on_as_they_are() {
    let mut request = session(1, "lan");
    let peer = OuterHeaderCreation { teid: Teid(2099), ipv4: Some(v4("10.100.3.2")), ipv6: None };
    request.fars[0].forwarding.as_mut().unwrap().outer_header_creation = Some(peer);
    let local = FTeid { teid: Teid(1050), ipv4: Some(v4("10.100.3.1")), ipv6: None };
    request.pdrs[1].pdi.local_fteid = Some(LocalFTeid::Given(local));
    request.pdrs[1].pdi.ethernet = false;
    request.pdrs[1].outer_header_removal = Some(OuterHeaderRemoval::GtpUUdpIpv4);
    let (mut rig, _) = rig(&[request]);
    // Also what a bridge would not forward.
    let eapol = frame([1, 0x80, 0xc2, 0, 0, 3], station(1, 1), &[0x88, 0x8e, 1, 0, 0, 0]);
    assert_eq!(up(&mut rig, 1, &eapol), [Seen::Session(99, eapol.clone())]);
    assert_eq!(up(&mut rig, 50, &plain(station(1, 1), HOST)), [Seen::Session(1, plain(station(1, 1), HOST))]);
}

/// An Ethernet session whose URR asks for addresses, of which it is told when they are silent for four seconds.
fn reporting(n: u8) -> Establishment {
    let mut request = session(n, "lan");
    request.urrs = vec![Urr {
        id: UrrId(1),
        method: MeasurementMethod { event: true, ..MeasurementMethod::default() },
        triggers: ReportingTriggers::MACAR,
        ethernet_inactivity_timer: Some(Duration::from_secs(4)),
        ..Urr::default()
    }];
    request
}

fn reports(rig: &mut Rig, at: SystemTime) -> Vec<(Seid, UsageReport)> {
    let events = rig.upf.poll_events(at, 100).into_iter();
    events
        .flat_map(|event| match event {
            SessionEvent::Usage { seid, reports } => {
                reports.into_iter().map(|report| (seid, report)).collect()
            }
            _ => Vec::new(),
        })
        .collect()
}

fn untagged(addresses: &[[u8; 6]]) -> Vec<MacList> {
    let addresses = macs(addresses);
    if addresses.is_empty() { Vec::new() } else { vec![MacList { addresses, c_tag: None, s_tag: None }] }
}

/// Conformance: TS 29.244 5.13.5 | Addresses that are detected and removed are reported (MACAR), once each
/// Conformance: TS 29.244 8.2.105 | Ethernet Inactivity Timer
#[test]
fn addresses_are_reported_when_they_come_and_when_they_go() {
    let (mut rig, seids) = rig(&[reporting(1), reporting(2)]);
    let begin = now();
    let at = |seconds| begin + Duration::from_secs(seconds);
    up(&mut rig, 1, &plain(HOST, station(1, 1)));
    up(&mut rig, 1, &plain(HOST, station(1, 2)));
    up(&mut rig, 1, &tagged(&plain(HOST, station(1, 3)), &[0x81, 0, 0, 5]));
    let told = reports(&mut rig, at(0));
    let [(seid, report)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((*seid, report.ur_seqn, report.trigger), (seids[0], 0, UsageReportTrigger::MACAR));
    let mut detected = untagged(&[station(1, 1), station(1, 2)]);
    let c_tag = Some(VlanTag::of(5));
    detected.push(MacList { addresses: macs(&[station(1, 3)]), c_tag, s_tag: None });
    assert_eq!(report.ethernet, EthernetTraffic { detected, removed: Vec::new() });
    up(&mut rig, 1, &plain(HOST, station(1, 1)));
    assert_eq!(reports(&mut rig, at(1)), [], "known");
    // One moves to the other session.
    up(&mut rig, 2, &plain(HOST, station(1, 2)));
    let mut told = reports(&mut rig, at(2));
    told.sort_by_key(|(seid, _)| *seid != seids[0]);
    let [(_, lost), (other, gained)] = &told[..] else { panic!("{told:?}") };
    assert_eq!((lost.ur_seqn, &lost.ethernet.removed), (1, &untagged(&[station(1, 2)])));
    assert_eq!((*other, &gained.ethernet.detected), (seids[1], &untagged(&[station(1, 2)])));
    // Of the first session's one goes on, the other is silent.
    let mut removed = Vec::new();
    for second in 3..8 {
        up(&mut rig, 1, &plain(HOST, station(1, 1)));
        up(&mut rig, 2, &plain(HOST, station(1, 2)));
        let told = reports(&mut rig, at(second)).into_iter();
        removed.extend(told.map(|(_, report)| (second, report.ethernet.removed)));
    }
    let [(second, lists)] = &removed[..] else { panic!("{removed:?}") };
    assert_eq!(lists[..], [MacList { addresses: macs(&[station(1, 3)]), c_tag, s_tag: None }]);
    assert!((4..=6).contains(second), "after {second} seconds");
    let gone: Vec<_> = (8..14).flat_map(|second| reports(&mut rig, at(second))).collect();
    assert_eq!(gone.len(), 2, "{gone:?}");
    assert_eq!(down(&mut rig, &tagged(&plain(station(1, 1), HOST), &TAG)), []);
    // What comes again is told again.
    up(&mut rig, 1, &plain(HOST, station(1, 1)));
    assert_eq!(reports(&mut rig, at(20))[0].1.ethernet.detected, untagged(&[station(1, 1)]));
}

#[test]
fn without_macar_nothing_is_reported_and_silent_addresses_go_all_the_same() {
    let mut settings = bridged();
    settings.ethernet.ageing = Duration::from_secs(10);
    let (mut rig, _) = rig_with(settings, &[session(1, "lan")]);
    let begin = now();
    up(&mut rig, 1, &plain(HOST, station(1, 1)));
    for second in 0..30 {
        assert_eq!(reports(&mut rig, begin + Duration::from_secs(second)), []);
    }
    assert_eq!(down(&mut rig, &tagged(&plain(station(1, 1), HOST), &TAG)), []);
}

#[test]
fn addresses_that_rules_name_are_there_before_any_frame() {
    let pair = MacMatch { source: None, destination: Some(MacRange::only(Mac(station(1, 1)))) };
    let filter = EthernetFilter { addresses: vec![pair], ..EthernetFilter::default() };
    let mut request = session(1, "lan");
    request.pdrs[1].pdi.ethernet_filters = vec![filter];
    let (mut rig, seids) = rig(&[request.clone(), session(2, "lan")]);
    let back = plain(station(1, 1), HOST);
    assert_eq!(down(&mut rig, &tagged(&back, &TAG)), [Seen::Session(1, back.clone())]);
    assert_eq!(up(&mut rig, 2, &plain(HOST, station(1, 1))), [], "another session does not get it");
    assert_eq!(rig.drops(N3, UpfDrop::ETHERNET_SPOOFED), 1);
    // More than a session may have are refused with nothing changed.
    let many = (0..=255)
        .map(|of| MacMatch { source: None, destination: Some(MacRange::only(Mac([2, 9, 9, 9, 9, of]))) });
    request.pdrs[1].pdi.ethernet_filters[0].addresses = many.collect();
    let pdi = Some(request.pdrs[1].pdi.clone());
    let update = kaido_n4::UpdatePdr { id: PdrId(2), pdi, ..Default::default() };
    let change = Modification { update_pdrs: vec![update], ..Modification::default() };
    let fault = rig.upf.modify(seids[0], &change, now()).unwrap_err();
    assert_eq!(fault.cause, Cause::NoResourcesAvailable);
    assert_eq!(down(&mut rig, &tagged(&back, &TAG)), [Seen::Session(1, back.clone())]);
}

/// Conformance: TS 29.244 5.13.6 | Addresses of a session that was at another user plane are taken over and announced (ETHAR)
#[test]
fn addresses_from_another_user_plane_are_taken_over_and_announced() {
    let (mut rig, seids) = rig(&[reporting(1)]);
    let list = |mac, c_tag| MacList { addresses: macs(&[mac]), c_tag, s_tag: None };
    let context = vec![list(station(1, 1), None), list(station(1, 2), vid(5))];
    let change = Modification { ethernet_context: context, ..Modification::default() };
    rig.upf.modify(seids[0], &change, now()).unwrap();
    let announced = seen(rig.drain());
    let [Seen::Lan(one), Seen::Lan(two)] = &announced[..] else { panic!("{announced:?}") };
    assert_eq!(
        (&one[..6], &one[6..12], &one[12..18]),
        (&BROADCAST[..], &station(1, 1)[..], &[0x81, 0, 0, 100, 8, 6][..])
    );
    assert_eq!(
        (&two[6..12], &two[12..22]),
        (&station(1, 2)[..], &[0x81, 0, 0, 100, 0x81, 0, 0, 5, 8, 6][..])
    );
    let back = plain(station(1, 1), HOST);
    assert_eq!(down(&mut rig, &tagged(&back, &TAG)), [Seen::Session(1, back.clone())]);
    assert_eq!(reports(&mut rig, now()), [], "the control plane knows them");
}

fn arp(operation: ArpOperation, sender: ([u8; 6], &str), target: ([u8; 6], &str)) -> Vec<u8> {
    let packet = ArpRepr {
        operation,
        sender_mac: MacAddr(sender.0),
        sender_ip: v4(sender.1),
        target_mac: MacAddr(target.0),
        target_ip: v4(target.1),
    };
    let mut octets = vec![0; packet.len()];
    packet.emit(&mut octets).unwrap();
    [&[8, 6][..], &octets].concat()
}

fn asks(from: [u8; 6], own: &str, target: &str) -> Vec<u8> {
    frame(BROADCAST, from, &arp(ArpOperation::Request, (from, own), ([0; 6], target)))
}

fn proxied(n: u8, both_paths: bool) -> Establishment {
    let mut request = session(n, "lan");
    let proxying = Some(Proxying { arp: true, neighbours: true });
    for far in request.fars.iter_mut().take(if both_paths { 2 } else { 1 }) {
        let steering = Steering { proxying, ..Steering::default() };
        far.forwarding.as_mut().unwrap().steering = Some(Box::new(steering));
    }
    request
}

/// Conformance: TS 29.244 8.2.96 | Proxying: ARP requests are answered for addresses that are known, in both directions
#[test]
fn arp_is_answered_for_who_is_known_and_asked_of_all_for_who_is_not() {
    let (mut rig, _) = rig(&[proxied(1, true), proxied(2, true), session(3, "lan")]);
    // Nobody is known yet: the question goes to all, and tells where its sender is.
    let question = asks(station(1, 1), "10.0.0.1", "10.0.0.9");
    let expected = [
        Seen::Lan(tagged(&question, &TAG)),
        Seen::Session(2, question.clone()),
        Seen::Session(3, question.clone()),
    ];
    assert_eq!(up(&mut rig, 1, &question), expected);
    let answer = |to: [u8; 6], to_ip, from: [u8; 6], from_ip| {
        frame(to, from, &arp(ArpOperation::Reply, (from, from_ip), (to, to_ip)))
    };
    // A session asks for one of another's: the node answers, and nobody hears of it.
    let question = asks(station(2, 1), "10.0.0.2", "10.0.0.1");
    let reply = answer(station(2, 1), "10.0.0.2", station(1, 1), "10.0.0.1");
    assert_eq!(up(&mut rig, 2, &question), [Seen::Session(2, reply)]);
    assert_eq!(rig.drops(N3, UpfDrop::PROXY_ANSWERED), 1);
    // A host asks for one: it gets an answer, and only who has no proxy hears the question.
    let question = asks(HOST, "10.0.0.99", "10.0.0.1");
    let reply = answer(HOST, "10.0.0.99", station(1, 1), "10.0.0.1");
    assert_eq!(
        down(&mut rig, &tagged(&question, &TAG)),
        [Seen::Lan(tagged(&reply, &TAG)), Seen::Session(3, question.clone())]
    );
    // And is known itself from now on.
    let question = asks(station(2, 1), "10.0.0.2", "10.0.0.99");
    let reply = answer(station(2, 1), "10.0.0.2", HOST, "10.0.0.99");
    assert_eq!(up(&mut rig, 2, &question), [Seen::Session(2, reply)]);
    // Announcements and probes are no questions for others to answer.
    for own in ["10.0.0.1", "0.0.0.0"] {
        let said = frame(
            BROADCAST,
            station(1, 1),
            &arp(ArpOperation::Request, (station(1, 1), own), ([0; 6], "10.0.0.1")),
        );
        assert_eq!(up(&mut rig, 1, &said).len(), 3, "{own}");
    }
    // What a station says of another's address is not believed.
    let lie = frame(
        BROADCAST,
        station(2, 1),
        &arp(ArpOperation::Request, (station(2, 9), "10.0.0.99"), ([0; 6], "10.0.0.77")),
    );
    up(&mut rig, 2, &lie);
    let question = asks(station(1, 1), "10.0.0.1", "10.0.0.99");
    let reply = answer(station(1, 1), "10.0.0.1", HOST, "10.0.0.99");
    assert_eq!(up(&mut rig, 1, &question), [Seen::Session(1, reply)]);
}

#[test]
fn an_answer_ends_with_the_session_it_is_about() {
    let (mut rig, seids) = rig(&[proxied(1, true), proxied(2, true)]);
    up(&mut rig, 1, &asks(station(1, 1), "10.0.0.1", "10.0.0.9"));
    rig.upf.delete(seids[0], now()).unwrap();
    let question = asks(station(2, 1), "10.0.0.2", "10.0.0.1");
    assert_eq!(up(&mut rig, 2, &question), [Seen::Lan(tagged(&question, &TAG))]);
}

#[test]
fn arp_replies_are_read_as_they_are() {
    let reply = arp(ArpOperation::Reply, (station(1, 1), "10.0.0.1"), (HOST, "10.0.0.9"));
    let view = ArpView::new_checked(&reply[2..]).unwrap();
    assert_eq!((view.sender_ip(), view.target_ip()), (v4("10.0.0.1"), v4("10.0.0.9")));
}

fn neighbour(message: &NdiscRepr, src: &str, dst: [u8; 16], from: [u8; 6]) -> Vec<u8> {
    let (src, dst) = (src.parse().unwrap(), std::net::Ipv6Addr::from(dst));
    let header = Ipv6Repr {
        src,
        dst,
        next_header: IpProtocol::ICMPV6,
        hop_limit: ndisc::HOP_LIMIT,
        traffic_class: 0,
        flow_label: 0,
        payload_len: message.len() as u16,
    };
    let mut octets = vec![0; 40 + message.len()];
    header.emit(&mut octets).unwrap();
    message.emit(src, dst, &mut octets[40..]).unwrap();
    frame(ndisc::multicast_mac(dst).0, from, &[&EtherType::IPV6.0.to_be_bytes()[..], &octets].concat())
}

/// Conformance: TS 29.244 8.2.96 | Proxying: neighbour solicitations are answered for addresses that are known
#[test]
fn neighbour_solicitations_are_answered_likewise() {
    let (mut rig, _) = rig(&[proxied(1, true), proxied(2, true)]);
    let (one, two) = ("2001:db8::1", "2001:db8::2");
    let solicit = |target: &str, own: &str, from: [u8; 6]| {
        let target = target.parse().unwrap();
        let message = NdiscRepr::NeighborSolicitation { target, source_link: Some(MacAddr(from)) };
        neighbour(&message, own, ndisc::solicited_node(target).octets(), from)
    };
    let question = solicit(two, one, station(1, 1));
    assert_eq!(up(&mut rig, 1, &question).len(), 2, "the LAN and the other session");
    let answers = up(&mut rig, 2, &solicit(one, two, station(2, 1)));
    let [Seen::Session(2, answer)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((&answer[..6], &answer[6..12]), (&station(2, 1)[..], &station(1, 1)[..]));
    let (src, dst) = (one.parse().unwrap(), two.parse().unwrap());
    let view = icmpv6::Icmpv6View::new_checked(&answer[14 + 40..]).unwrap();
    assert!(view.verify_checksum(src, dst));
    let expected = NdiscRepr::NeighborAdvertisement {
        router: false,
        solicited: true,
        override_cache: false,
        target: src,
        target_link: Some(MacAddr(station(1, 1))),
    };
    assert_eq!(NdiscRepr::parse(&view).unwrap(), expected);
    assert_eq!(IpAddr::from(<[u8; 16]>::try_from(&answer[14 + 8..14 + 24]).unwrap()), IpAddr::from(src));
}

#[test]
fn what_does_not_go_with_the_pdn_type_is_refused_with_nothing_left() {
    let mut rig = Rig::with(bridged());
    let ip = || SessionPlan::ipv4(7).establishment();
    let steered = |steering: Steering| {
        move |request: &mut Establishment| {
            request.fars[0].forwarding.as_mut().unwrap().steering = Some(Box::new(steering));
        }
    };
    let proxying = Some(Proxying { arp: true, neighbours: false });
    let mut refused = |mut request: Establishment, change: &dyn Fn(&mut Establishment)| {
        change(&mut request);
        let fault = rig.upf.establish(&request, now()).unwrap_err();
        assert!(rig.upf.is_empty());
        (fault.cause, fault.offending_ie)
    };
    use Cause::{
        InvalidForwardingPolicy, MandatoryIeIncorrect, RuleCreationOrModificationFailure, ServiceNotSupported,
    };
    let lan = || session(1, "lan");
    assert_eq!(refused(ip(), &|r| r.pdrs[1].pdi.ethernet = true), (MandatoryIeIncorrect, Some(113)));
    assert_eq!(
        refused(ip(), &|r| r.pdrs[0].pdi.ethernet_filters = vec![ethertype(0x800)]),
        (MandatoryIeIncorrect, Some(113))
    );
    assert_eq!(
        refused(ip(), &|r| r.pdrs[1].pdi.network_instance = Some(NetworkInstance("lan".into()))),
        (MandatoryIeIncorrect, Some(22))
    );
    let to_lan = |r: &mut Establishment| {
        r.fars[0].forwarding.as_mut().unwrap().network_instance = Some(NetworkInstance("lan".into()));
    };
    assert_eq!(refused(ip(), &to_lan), (RuleCreationOrModificationFailure, Some(22)));
    let tags = Some(TagCreation { c_tag: vid(5), s_tag: None });
    let change = steered(Steering { tags, ..Steering::default() });
    let fault = {
        let mut request = ip();
        change(&mut request);
        Rig::with(bridged()).upf.establish(&request, now()).unwrap_err()
    };
    assert_eq!((fault.cause, fault.offending_ie), (ServiceNotSupported, Some(84)));
    let mut with_proxy = ip();
    steered(Steering { proxying, ..Steering::default() })(&mut with_proxy);
    assert_eq!(refused(with_proxy, &|_| ()), (ServiceNotSupported, Some(137)));
    let address = SessionPlan::ipv4(7).ue;
    assert_eq!(refused(lan(), &|r| r.pdrs[1].pdi.ue_ip = vec![address]), (MandatoryIeIncorrect, Some(93)));
    assert_eq!(
        refused(lan(), &|r| r.pdrs[1].pdi.application_id = Some(ApplicationId("video".into()))),
        (ServiceNotSupported, Some(24))
    );
    let elsewhere = |r: &mut Establishment| {
        r.pdrs[1].pdi.network_instance = Some(NetworkInstance("internet".into()));
    };
    assert_eq!(refused(lan(), &elsewhere), (RuleCreationOrModificationFailure, Some(22)));
    assert_eq!(
        refused(lan(), &|r| r.pdrs[0].outer_header_removal = Some(OuterHeaderRemoval::ServiceTag)).0,
        MandatoryIeIncorrect
    );
    assert_eq!(refused(lan(), &|r| r.pdrs[0].pdi.local_fteid = None).0, RuleCreationOrModificationFailure);
    let mut redirected = lan();
    steered(Steering { redirect: Some("http://a.example/".into()), ..Steering::default() })(&mut redirected);
    assert_eq!(refused(redirected, &|_| ()), (ServiceNotSupported, Some(38)));
    let mut by_policy = lan();
    steered(Steering { policy: Some("gold".into()), ..Steering::default() })(&mut by_policy);
    assert_eq!(refused(by_policy, &|_| ()), (InvalidForwardingPolicy, Some(41)));
    let filters = |r: &mut Establishment| r.pdrs[0].pdi.ethernet_filters = vec![ethertype(0x800); 1025];
    assert_eq!(refused(lan(), &filters).0, Cause::NoResourcesAvailable);
    let settings: NodeSettings = bridged();
    assert!(Rig::with(settings).upf.establish(&lan(), now()).is_ok());
}

#[test]
fn destination_interfaces_of_the_n6_side_are_alike() {
    let mut request = session(1, "lan");
    request.fars[0].forwarding.as_mut().unwrap().destination_interface = Interface::N6Lan;
    request.pdrs[1].pdi.source_interface = Interface::N6Lan;
    let (mut rig, _) = rig(&[request]);
    let out = plain(HOST, station(1, 1));
    assert_eq!(up(&mut rig, 1, &out), [Seen::Lan(tagged(&out, &TAG))]);
    assert_eq!(down(&mut rig, &tagged(&plain(station(1, 1), HOST), &TAG)).len(), 1);
}
