//! What few FARs ask for: headers without GTP-U, forwarding policies, copies, redirection.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // Small numbers.

use std::sync::Arc;

use crate::fixture::{self, DN_MAC, N3, N6, Rig, SessionPlan, ip, now, v4};
use crate::frames::{downlink, g_pdu, ipv4, read_tunnel, udp4};
use kaido_engine::{NeighbourRequest, PortId};
use kaido_n4::{
    ApplyAction, Cause, Duplicate, Establishment, FarId, Modification, OuterHeaderCreation,
    PlainHeaderCreation, ReportingTriggers, RuleId, SessionService, Steering, Teid, UpdateFar,
    VolumeThreshold,
};
use kaido_upf::UpfDrop;
use kaido_upf::node::{ForwardingPolicy, LiveSettings, NamedSettings, PolicyTarget};
use kaido_wire::{IpProtocol, TcpFlags, TcpRepr, TcpView};

fn steered(steering: Steering) -> Establishment {
    let mut request = SessionPlan::ipv4(7).establishment();
    request.fars[0].forwarding.as_mut().unwrap().steering = Some(Box::new(steering));
    request
}

fn up(destination: &str) -> Vec<u8> {
    g_pdu(1007, None, &udp4("10.60.0.7", destination, 64, 30))
}

/// Conformance: TS 29.244 8.2.56 | Outer Header Creation of UDP/IP and of IP alone
#[test]
fn packets_leave_behind_plain_headers() {
    for port in [Some(9000), None] {
        let header = PlainHeaderCreation { peer: ip("10.100.6.2"), port };
        let mut request = steered(Steering { header: Some(header), ..Steering::default() });
        request.fars[0].forwarding.as_mut().unwrap().transport_level_marking = Some(0xb8);
        let mut rig = Rig::new();
        rig.upf.establish(&request, now()).unwrap();
        let out = rig.pass(N3, &up("8.8.8.8"));
        let [(N6, frame)] = &out[..] else { panic!("{} packets", out.len()) };
        let outer = kaido_wire::ipv4::header_within(&frame[14..], frame.len() - 14).unwrap();
        assert_eq!((outer.src, outer.dst, outer.tos), (v4("10.100.6.1"), v4("10.100.6.2"), 0xb8));
        let inner = match port {
            Some(port) => {
                assert_eq!(outer.protocol, IpProtocol::UDP);
                assert_eq!(frame[36..38], port.to_be_bytes());
                &frame[14 + 28..]
            }
            None => {
                assert_eq!(outer.protocol, IpProtocol(4));
                &frame[14 + 20..]
            }
        };
        assert_eq!((inner.len(), inner[8]), (58, 63));
        assert_eq!(rig.upf.volume().uplink_bytes, 58, "what the UE sent");
    }
}

/// Conformance: TS 29.244 8.2.23 | Forwarding Policy names a configured way; an unknown one is refused with cause 70
#[test]
fn a_forwarding_policy_leads_another_way() {
    let policy =
        ForwardingPolicy { name: "scrubber".into(), target: PolicyTarget::NextHop(ip("10.100.6.9")) };
    let named = Arc::new(NamedSettings { forwarding_policies: vec![policy], ..NamedSettings::default() });
    let mut rig = Rig::with(fixture::with_live(|live| LiveSettings { named, ..live }));
    rig.routes.set_neighbour(NeighbourRequest { port: N6, address: ip("10.100.6.9") }, Some([9; 6]));
    let by = |name: &str| steered(Steering { policy: Some(name.into()), ..Steering::default() });
    let refused = rig.upf.establish(&by("gold"), now()).unwrap_err();
    let told = (refused.cause, refused.offending_ie, refused.failed_rule);
    assert_eq!(told, (Cause::InvalidForwardingPolicy, Some(41), Some(RuleId::Far(FarId(1)))));
    rig.upf.establish(&by("scrubber"), now()).unwrap();
    let out = rig.pass(N3, &up("8.8.8.8"));
    assert_eq!((out[0].0, &out[0].1[..6]), (N6, &[9; 6][..]));
}

/// Conformance: TS 29.244 5.2.3 | Packets are duplicated into further tunnels while DUPL is set
#[test]
fn copies_go_where_they_are_wanted_and_the_packet_its_way() {
    let copy = |teid| Duplicate {
        tunnel: OuterHeaderCreation { teid: Teid(teid), ipv4: Some(v4("10.100.3.2")), ipv6: None },
        transport_level_marking: None,
    };
    let mut request = steered(Steering { duplicates: vec![copy(71), copy(72)], ..Steering::default() });
    request.fars[0].apply_action.duplicate = true;
    let mut rig = Rig::new();
    let session = rig.upf.establish(&request, now()).unwrap();
    let inner = udp4("10.60.0.7", "8.8.8.8", 64, 30);
    let out = rig.pass(N3, &up("8.8.8.8"));
    let copies: Vec<_> =
        out.iter().filter(|(port, _)| *port == N3).map(|(_, frame)| read_tunnel(frame)).collect();
    assert_eq!(copies.iter().map(|copy| copy.teid).collect::<Vec<_>>(), [71, 72]);
    assert!(copies.iter().all(|copy| copy.inner == inner), "as it came");
    let forwarded: Vec<_> = out.iter().filter(|(port, _)| *port == N6).collect();
    assert_eq!((forwarded.len(), &forwarded[0].1[..6]), (1, &DN_MAC[..]));
    assert_eq!(rig.upf.volume().uplink_packets, 1, "copies are not the user's");
    let stop = Modification {
        update_fars: vec![UpdateFar {
            id: FarId(1),
            apply_action: Some(ApplyAction { forward: true, ..ApplyAction::default() }),
            ..UpdateFar::default()
        }],
        ..Modification::default()
    };
    rig.upf.modify(session.seid, &stop, now()).unwrap();
    assert_eq!(rig.pass(N3, &up("8.8.8.8")).len(), 1);
    // The other direction was never meant.
    assert_eq!(rig.pass(N6, &downlink(&udp4("8.8.8.8", "10.60.0.7", 64, 30))).len(), 1);
}

fn tcp(flags: TcpFlags, sequence: u32, acknowledgment: u32, payload: &[u8]) -> Vec<u8> {
    let header = TcpRepr {
        src_port: 40_000,
        dst_port: 80,
        sequence,
        acknowledgment,
        flags,
        window: 1000,
        urgent: 0,
        options: &[],
    };
    let mut segment = vec![0; 20];
    header.emit(&mut segment).unwrap();
    segment.extend_from_slice(payload);
    g_pdu(1007, None, &ipv4("10.60.0.7", "198.51.100.1", IpProtocol::TCP, 64, &segment))
}

/// The segment that was answered, checked to the last sum.
fn answer(out: &[(PortId, Vec<u8>)]) -> Vec<u8> {
    let [(N3, frame)] = out else { panic!("{} packets", out.len()) };
    let told = read_tunnel(frame);
    assert_eq!(told.teid, 2007);
    let ip = kaido_wire::ipv4::header_within(&told.inner, told.inner.len()).unwrap();
    assert_eq!((ip.src, ip.dst), (v4("198.51.100.1"), v4("10.60.0.7")));
    let segment = told.inner[20..].to_vec();
    let pseudo = kaido_wire::checksum::pseudo_v4(ip.src, ip.dst, IpProtocol::TCP, segment.len() as u16);
    let sum = kaido_wire::checksum::combine(&[pseudo, kaido_wire::checksum::sum(&segment)]);
    assert_eq!(sum, 0xffff);
    segment
}

/// Conformance: TS 29.244 5.4.7 | Plain HTTP is redirected to a URL in place of the server
#[test]
fn plain_http_is_redirected() {
    let to = |url: &str| steered(Steering { redirect: Some(url.into()), ..Steering::default() });
    let mut rig = Rig::new();
    for url in ["ftp://a", "http://a\r\nSet-Cookie: b", ""] {
        let refused = rig.upf.establish(&to(url), now()).unwrap_err();
        assert_eq!((refused.cause, refused.offending_ie), (Cause::MandatoryIeIncorrect, Some(38)), "{url}");
    }
    let session = rig.upf.establish(&to("https://topup.example/?ue=7"), now()).unwrap();
    let syn = answer(&rig.pass(N3, &tcp(TcpFlags::SYN, 100, 0, &[])));
    let view = TcpView::new_checked(&syn).unwrap();
    assert_eq!((view.flags(), view.acknowledgment()), (TcpFlags::SYN | TcpFlags::ACK, 101));
    let cookie = view.sequence();
    let again = answer(&rig.pass(N3, &tcp(TcpFlags::SYN, 100, 0, &[])));
    assert_eq!(again, syn, "a repeated SYN gets the same answer");
    let request = b"GET / HTTP/1.1\r\nHost: example\r\n\r\n";
    let told =
        answer(&rig.pass(N3, &tcp(TcpFlags::ACK | TcpFlags::PSH, 101, cookie.wrapping_add(1), request)));
    let view = TcpView::new_checked(&told).unwrap();
    assert_eq!((view.src_port(), view.dst_port()), (80, 40_000));
    assert_eq!(view.acknowledgment(), 101 + request.len() as u32);
    let text = std::str::from_utf8(view.payload()).unwrap();
    assert!(text.starts_with("HTTP/1.1 302 Found\r\nLocation: https://topup.example/?ue=7\r\n"), "{text}");
    assert!(text.ends_with("\r\n\r\n"));
    // What is not HTTP gets no answer and goes nowhere.
    assert!(rig.pass(N3, &up("8.8.8.8")).is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::REDIRECTED), 4);
    let volume = rig.upf.delete(session.seid, now()).unwrap().usage_reports[0].volume.unwrap();
    assert_eq!(volume.total_bytes(), 0, "nothing went on");
}

/// Conformance: TS 29.244 5.4.7 | A quota that is used up redirects, where its FAR says so
#[test]
fn a_used_up_quota_redirects() {
    let mut request = SessionPlan::ipv4(7).establishment();
    let mut portal = SessionPlan::ipv4(7).uplink_far();
    portal.id = FarId(9);
    let steering = Steering { redirect: Some("http://topup.example/".into()), ..Steering::default() };
    portal.forwarding.as_mut().unwrap().steering = Some(Box::new(steering));
    request.fars.push(portal);
    let urr = &mut request.urrs[0];
    urr.triggers = ReportingTriggers::VOLQU;
    urr.volume_quota = Some(VolumeThreshold { total: Some(50), ..VolumeThreshold::default() });
    urr.quota_far = Some(FarId(9));
    let mut rig = Rig::new();
    rig.upf.establish(&request, now()).unwrap();
    assert_eq!(rig.pass(N3, &up("8.8.8.8"))[0].0, N6, "the quota is not used up before");
    assert!(rig.pass(N3, &up("8.8.8.8")).is_empty());
    let syn = answer(&rig.pass(N3, &tcp(TcpFlags::SYN, 100, 0, &[])));
    assert!(TcpView::new_checked(&syn).unwrap().flags().contains(TcpFlags::SYN | TcpFlags::ACK));
    assert_eq!(rig.drops(N3, UpfDrop::REDIRECTED), 2);
}
