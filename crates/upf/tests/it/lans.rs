//! N6 LANs: tenants behind VLANs, whose UEs and neighbours may have the same addresses.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)] // Small numbers.

use crate::fixture::{N3, N6, N6_MAC, Rig, SessionPlan, ip, now, settings, v4};
use crate::frames;
use crate::frames::{g_pdu, read_tunnel, udp4};
use kaido_engine::DropReason;
use kaido_n4::{
    Establishment, FTeid, LocalFTeid, NetworkInstance, OuterHeaderCreation, SessionService, Teid,
};
use kaido_upf::extended::UeToUe;
use kaido_upf::ids::InstanceId;
use kaido_upf::lan::{Lan, Lans, VlanTags};
use kaido_upf::node::{Instance, NodeSettings};
use kaido_wire::{ArpOperation, ArpRepr, ArpView, EtherType, MacAddr, vlan};

const TENANTS: u16 = 1000;

fn tags(tenant: u16) -> VlanTags {
    // Half of them behind one tag, half behind two.
    match tenant % 2 {
        0 => VlanTags { outer: 100 + tenant, inner: None },
        _ => VlanTags { outer: 7, inner: Some(tenant) },
    }
}

/// The router of a tenant.
fn router(tenant: u16) -> [u8; 6] {
    let [high, low] = tenant.to_be_bytes();
    [2, 0, 0, 1, high, low]
}

fn tenants(knows_gateway: bool) -> NodeSettings {
    let mut settings = settings();
    let lans = (0..TENANTS).map(|tenant| {
        settings.instances.push(Instance { name: Some(format!("tenant-{tenant}")) });
        Lan {
            instance: InstanceId(tenant + 1),
            port: N6,
            tags: tags(tenant),
            addresses: vec![(ip("192.168.0.1"), 24)],
            gateways: vec![ip("192.168.0.254")],
            neighbours: knows_gateway.then(|| (ip("192.168.0.254"), router(tenant))).into_iter().collect(),
        }
    });
    let lans = lans.collect();
    NodeSettings { lans: Lans::new(lans), sessions_max: 4000, ..settings }
}

/// A session of a tenant; every tenant's UE has the same address.
fn session(tenant: u16, named_in_far: bool) -> Establishment {
    let mut plan = SessionPlan::ipv4(7);
    let teid = 10_000 + u32::from(tenant);
    plan.local = LocalFTeid::Given(FTeid { teid: Teid(teid), ipv4: Some(v4("10.100.3.1")), ipv6: None });
    plan.peer = OuterHeaderCreation { teid: Teid(20_000 + u32::from(tenant)), ..plan.peer };
    let mut request = plan.establishment();
    let name = NetworkInstance(format!("tenant-{tenant}").into());
    request.pdrs[1].pdi.network_instance = Some(name.clone());
    if named_in_far {
        request.fars[0].forwarding.as_mut().unwrap().network_instance = Some(name);
    }
    request
}

/// A frame with the tags of a tenant.
fn tagged(tenant: u16, dst: [u8; 6], src: [u8; 6], ethertype: EtherType, payload: &[u8]) -> Vec<u8> {
    let (header, len) = tags(tenant).header(ethertype);
    [&dst[..], &src, &header[..len], payload].concat()
}

/// Conformance: TS 29.244 8.2.4 | A thousand network instances behind VLANs, with the same UE address in all
#[test]
fn packets_of_a_thousand_tenants_never_cross() {
    let mut rig = Rig::with(tenants(true));
    for tenant in 0..TENANTS {
        rig.upf.establish(&session(tenant, tenant % 3 != 0), now()).unwrap();
    }
    for tenant in 0..TENANTS {
        let teid = 10_000 + u32::from(tenant);
        // Also to what is the node's own address elsewhere.
        for destination in ["8.8.8.8", "10.100.6.1"] {
            let out = rig.pass(N3, &g_pdu(teid, None, &udp4("10.60.0.7", destination, 64, 10)));
            let [(port, frame)] = &out[..] else { panic!("{} packets of tenant {tenant}", out.len()) };
            let link = vlan::link(frame).unwrap();
            assert_eq!((*port, VlanTags::of(&link)), (N6, Some(tags(tenant))));
            assert_eq!((link.dst.0, link.src.0, link.ethertype), (router(tenant), N6_MAC, EtherType::IPV4));
            assert_eq!(frame[usize::from(link.payload_offset) + 8], 63, "a hop less");
        }
        let down = udp4("8.8.8.8", "10.60.0.7", 64, 10);
        let out = rig.pass(N6, &tagged(tenant, N6_MAC, router(tenant), EtherType::IPV4, &down));
        assert_eq!(out.len(), 1);
        assert_eq!(read_tunnel(&out[0].1).teid, 20_000 + u32::from(tenant));
    }
    // A VLAN that is nobody's, and no VLAN: no tenant's packet.
    let stray =
        [&N6_MAC[..], &[9; 6], &[0x81, 0, 0, 1, 8, 0], &udp4("8.8.8.8", "10.60.0.7", 64, 10)].concat();
    assert!(rig.pass(N6, &stray).is_empty());
    assert!(rig.pass(N6, &frames::downlink(&udp4("8.8.8.8", "10.60.0.7", 64, 10))).is_empty());
    assert_eq!(rig.upf.volume().uplink_packets, 2 * u64::from(TENANTS));
}

#[test]
fn a_tenants_router_is_asked_for_and_asks() {
    let mut rig = Rig::with(tenants(false));
    rig.upf.establish(&session(5, true), now()).unwrap();
    let packet = g_pdu(10_005, None, &udp4("10.60.0.7", "8.8.8.8", 64, 10));
    let out = rig.pass(N3, &packet);
    assert_eq!(out.len(), 1, "the question; the packet waits");
    let link = vlan::link(&out[0].1).unwrap();
    assert_eq!((VlanTags::of(&link), link.ethertype), (Some(tags(5)), EtherType::ARP));
    let question =
        ArpRepr::parse(&ArpView::new_checked(&out[0].1[link.payload_offset.into()..]).unwrap()).unwrap();
    assert_eq!((question.sender_ip, question.target_ip), (v4("192.168.0.1"), v4("192.168.0.254")));
    assert!(rig.pass(N3, &packet).is_empty(), "asked once a second");
    let mut answer = vec![0; 28];
    question.reply(MacAddr(router(5))).emit(&mut answer).unwrap();
    // In another tenant's VLAN it says nothing about this one.
    assert!(rig.pass(N6, &tagged(6, N6_MAC, router(6), EtherType::ARP, &answer)).is_empty());
    let out = rig.pass(N6, &tagged(5, N6_MAC, router(5), EtherType::ARP, &answer));
    assert_eq!(out.len(), 2, "both that waited");
    assert!(out.iter().all(|(_, frame)| frame[..6] == router(5)));
    // Questions for the node and for its UEs are answered, others are not.
    for (target, answers) in [("192.168.0.1", 1), ("10.60.0.7", 1), ("10.60.0.8", 0)] {
        let mut asked = vec![0; 28];
        let question = ArpRepr {
            operation: ArpOperation::Request,
            sender_mac: MacAddr(router(5)),
            sender_ip: v4("192.168.0.254"),
            target_mac: MacAddr([0; 6]),
            target_ip: v4(target),
        };
        question.emit(&mut asked).unwrap();
        let out = rig.pass(N6, &tagged(5, [0xff; 6], router(5), EtherType::ARP, &asked));
        assert_eq!(out.len(), answers, "{target}");
        for (_, frame) in out {
            let link = vlan::link(&frame).unwrap();
            let view = ArpView::new_checked(&frame[link.payload_offset.into()..]).unwrap();
            assert_eq!((view.sender_ip(), view.sender_mac().0, link.dst.0), (v4(target), N6_MAC, router(5)));
        }
    }
}

#[test]
fn errors_go_back_into_the_tenants_lan() {
    let mut rig = Rig::with(tenants(true));
    rig.upf.establish(&session(5, true), now()).unwrap();
    let expired = udp4("192.168.0.254", "10.60.0.7", 1, 10);
    let out = rig.pass(N6, &tagged(5, N6_MAC, router(5), EtherType::IPV4, &expired));
    let [(port, frame)] = &out[..] else { panic!("{} packets", out.len()) };
    let link = vlan::link(frame).unwrap();
    assert_eq!((*port, VlanTags::of(&link), link.dst.0), (N6, Some(tags(5)), router(5)));
    assert_eq!(frame[usize::from(link.payload_offset) + 20], 11, "ICMP time exceeded");
    assert_eq!(rig.drops(N6, DropReason::TTL_EXPIRED), 1);
}

#[test]
fn ues_of_one_tenant_may_reach_each_other_and_no_other_tenants() {
    let mut settings = tenants(true);
    settings.live.ue_to_ue = UeToUe::Forward;
    let mut rig = Rig::with(settings);
    rig.upf.establish(&session(5, true), now()).unwrap();
    rig.upf.establish(&session(6, true), now()).unwrap();
    let mut second = session(5, true);
    let other = SessionPlan::ipv4(8);
    second.pdrs[0].pdi.local_fteid = Some(other.local);
    second.pdrs[1].pdi.ue_ip = vec![other.ue];
    rig.upf.establish(&second, now()).unwrap();
    let out = rig.pass(N3, &g_pdu(1008, None, &udp4("10.60.0.8", "10.60.0.7", 64, 10)));
    assert_eq!((out[0].0, read_tunnel(&out[0].1).teid), (N3, 20_005));
    let out = rig.pass(N3, &g_pdu(10_006, None, &udp4("10.60.0.7", "10.60.0.8", 64, 10)));
    assert_eq!(out[0].0, N6, "tenant 6 has no such UE");
}
