//! What the SMFs of open cores send and a strict reading of the standard would refuse.
#![allow(clippy::unwrap_used)]

use crate::fixture::packets::{downlink, ipv4, udp, uplink};
use crate::fixture::{N3, N6, Rig, SessionPlan, now, settings};
use crate::{fixture, smf_shapes};
use kaido_engine::PortId;
use kaido_n4::{
    BarId, BitRate, BufferingRule, Cause, ChooseOr, CreatedPdr, FTeid, Far, FarId, Interface, LocalFTeid,
    Modification, OuterHeaderRemoval, PdrId, Qer, QerId, Qfi, RuleId, SdfFilter, Seid, SessionService, Teid,
    UeIpAddress, UeIpRole, UpdateFar, UpdateForwardingParameters, UpdatePdr,
};
use kaido_upf::UpfDrop;
use kaido_upf::action::N6Exit;
use kaido_upf::ids::EndpointId;
use kaido_upf::key::SessionKey;
use kaido_upf::offload::{KernelDestination, KernelRecord};
use kaido_wire::IpProtocol;

const AMBR: BitRate = BitRate { uplink_kbps: 100_000, downlink_kbps: 200_000 };

fn to_ue(rig: &mut Rig, n: u8) -> Vec<(PortId, Vec<u8>)> {
    rig.pass(N6, &downlink(&udp("8.8.8.8", &format!("10.60.0.{n}"), 40)))
}

/// What the SMF sends once the gNB has said its F-TEID.
fn name_tunnel(rig: &mut Rig, seid: Seid, n: u8) {
    let forwarding = UpdateForwardingParameters {
        outer_header_creation: Some(SessionPlan::ipv4(n).peer),
        ..UpdateForwardingParameters::default()
    };
    let far = UpdateFar { id: FarId(2), forwarding: Some(forwarding), ..UpdateFar::default() };
    let change = Modification { update_fars: vec![far], ..Modification::default() };
    rig.upf.modify(seid, &change, now()).unwrap();
}

/// Conformance: TS 29.244 7.5.2.3 | A FAR towards the access whose tunnel is yet to come is accepted (free5GC); its packets are dropped by name
#[test]
fn a_far_without_a_tunnel_waits_for_it() {
    let mut rig = Rig::new();
    let seid = rig.upf.establish(&smf_shapes::free5gc(7, AMBR), now()).unwrap().seid;
    assert_eq!(
        rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 40))).len(),
        1,
        "uplink works at once"
    );
    assert!(to_ue(&mut rig, 7).is_empty());
    assert_eq!(rig.drops(N6, UpfDrop::FAR_NO_TUNNEL), 1);
    let counted = rig.upf.volume();
    assert_eq!(counted.downlink_packets, 0, "what is dropped is not charged");
    name_tunnel(&mut rig, seid, 7);
    let out = to_ue(&mut rig, 7);
    assert_eq!((out.len(), out[0].0), (1, N3));
    assert_eq!(rig.drops(N6, UpfDrop::FAR_NO_TUNNEL), 1);
}

/// Conformance: TS 29.244 5.2.4 | Packets for a FAR whose tunnel is yet to come are buffered where a BAR says so, and sent in order
#[test]
fn with_a_bar_packets_wait_for_the_tunnel() {
    let mut rig = Rig::new();
    let mut request = smf_shapes::free5gc(7, AMBR);
    request.bars =
        vec![BufferingRule { id: BarId(1), suggested_packets: Some(3), ..BufferingRule::default() }];
    request.fars[1].bar_id = Some(BarId(1));
    let seid = rig.upf.establish(&request, now()).unwrap().seid;
    for length in 40..45 {
        assert!(rig.pass(N6, &downlink(&udp("8.8.8.8", "10.60.0.7", length))).is_empty());
    }
    assert_eq!((rig.drops(N6, UpfDrop::BUFFER_FULL), rig.drops(N6, UpfDrop::FAR_NO_TUNNEL)), (2, 0));
    name_tunnel(&mut rig, seid, 7);
    let lengths: Vec<_> = rig.drain().iter().map(|(_, frame)| frame.len()).collect();
    assert_eq!(lengths, [lengths[0], lengths[0] + 1, lengths[0] + 2]);
}

/// Conformance: TS 29.244 5.2.1 | A PDR without F-TEID and UE address stands under the keys of the session's other PDRs of its source interface (Open5GS)
#[test]
fn a_pdr_without_a_key_is_about_its_sessions_packets() {
    let mut rig = Rig::new();
    let seid = rig.upf.establish(&smf_shapes::open5gs(7), now()).unwrap().seid;
    let (pdr, qer) = smf_shapes::open5gs_dedicated(9, "permit out 17 from 9.9.9.9 5060 to assigned");
    let change = Modification { create_pdrs: vec![pdr], create_qers: vec![qer], ..Modification::default() };
    rig.upf.modify(seid, &change, now()).unwrap();
    let qfi_of = |rig: &mut Rig, src: (&str, u16)| {
        let packet = fixture::packets::udp_between(src, ("10.60.0.7", 4000), 40);
        let out = rig.pass(N6, &downlink(&packet));
        // Ethernet, IPv4, UDP, GTP-U with its optional part, length of the container, PDU type; then the QFI.
        out[0].1[14 + 20 + 8 + 12 + 2] & 0x3f
    };
    assert_eq!(qfi_of(&mut rig, ("9.9.9.9", 5060)), 2, "the dedicated flow");
    assert_eq!(qfi_of(&mut rig, ("9.9.9.9", 5061)), 9, "the default flow");
    // It goes with the rest.
    let change = Modification { remove_pdrs: vec![PdrId(9)], ..Modification::default() };
    rig.upf.modify(seid, &change, now()).unwrap();
    assert_eq!(qfi_of(&mut rig, ("9.9.9.9", 5060)), 9);
    rig.upf.delete(seid, now()).unwrap();
    assert!(to_ue(&mut rig, 7).is_empty());
    assert_eq!(rig.drops(N6, UpfDrop::UE_UNKNOWN), 1);
}

/// A rule that no rule of its session gives a key is refused, and says so.
#[test]
fn a_session_without_any_key_is_refused() {
    let mut rig = Rig::new();
    let mut request = SessionPlan::ipv4(7).establishment();
    request.pdrs[1].pdi.ue_ip.clear();
    let why = rig.upf.establish(&request, now()).unwrap_err();
    assert_eq!(why.cause, Cause::RuleCreationOrModificationFailure);
    assert_eq!(why.failed_rule, Some(RuleId::Pdr(PdrId(2))));
    assert!(why.detail.contains("source interface"), "{}", why.detail);
}

/// An uplink PDR that gives the UE's address and no F-TEID is about what comes out of the session's tunnel from there.
#[test]
fn an_uplink_pdr_by_ue_address_is_found_by_the_tunnel() {
    let mut rig = Rig::new();
    let mut request = SessionPlan::ipv4(7).establishment();
    let mut web = request.pdrs[0].clone();
    (web.id, web.precedence, web.far_id) = (PdrId(5), 10, Some(FarId(5)));
    web.pdi.local_fteid = None;
    web.pdi.ue_ip = vec![SessionPlan::ipv4(7).ue];
    web.pdi.sdf_filters = vec![SdfFilter::parse("permit out 17 from 9.9.9.9 to assigned").unwrap()];
    request.pdrs.push(web);
    let mut drop = SessionPlan::ipv4(7).uplink_far();
    (drop.id, drop.apply_action) = (FarId(5), kaido_n4::ApplyAction::DROP);
    request.fars.push(drop);
    rig.upf.establish(&request, now()).unwrap();
    assert!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "9.9.9.9", 40))).is_empty());
    assert_eq!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 40))).len(), 1);
    assert_eq!(to_ue(&mut rig, 7).len(), 1);
}

/// Conformance: TS 29.244 8.2.3 | A CHOOSE ID that a later request names again means the F-TEID chosen before, while a PDR has it (Open5GS)
#[test]
fn a_choose_id_is_remembered_in_its_session() {
    let mut rig = Rig::new();
    let mut request = smf_shapes::open5gs(7);
    let choose = LocalFTeid::Choose { ipv4: true, ipv6: true, choose_id: Some(5) };
    for pdr in request.pdrs.iter_mut().filter(|pdr| pdr.pdi.local_fteid.is_some()) {
        pdr.pdi.local_fteid = Some(choose);
    }
    let made = rig.upf.establish(&request, now()).unwrap();
    let first = smf_shapes::chosen(&made.created_pdrs);
    assert_eq!(made.created_pdrs.len(), 2);
    assert!(made.created_pdrs.iter().all(|pdr| pdr.local_fteid == Some(first)));
    let more = |id| Modification {
        create_pdrs: vec![smf_shapes::open5gs_dedicated_uplink(
            id,
            "permit out 17 from 9.9.9.9 5060 to assigned",
        )],
        ..Modification::default()
    };
    let changed = rig.upf.modify(made.seid, &more(8), now()).unwrap();
    assert_eq!(smf_shapes::chosen(&changed.created_pdrs), first, "the gNB keeps one uplink TEID");
    // Another session's CHOOSE IDs are its own.
    let mut other = smf_shapes::open5gs(8);
    other.pdrs.iter_mut().filter(|pdr| pdr.pdi.local_fteid.is_some()).for_each(|pdr| {
        pdr.pdi.local_fteid = Some(choose);
    });
    let other = rig.upf.establish(&other, now()).unwrap();
    assert_ne!(smf_shapes::chosen(&other.created_pdrs).teid, first.teid);
    // Nobody has the F-TEID any more: the ID is free again.
    let gone = [1, 3, 8].map(PdrId).to_vec();
    rig.upf.modify(made.seid, &Modification { remove_pdrs: gone, ..Modification::default() }, now()).unwrap();
    let changed = rig.upf.modify(made.seid, &more(10), now()).unwrap();
    assert_ne!(smf_shapes::chosen(&changed.created_pdrs).teid, first.teid);
}

/// Router solicitations go to the SMF in its tunnel; what else the UE sends goes to the data network, by QoS flow.
#[test]
fn router_solicitations_of_open5gs_go_to_the_smf() {
    let mut rig = Rig::new();
    rig.upf.establish(&smf_shapes::open5gs(7), now()).unwrap();
    let solicitation = {
        let mut packet = vec![0x60, 0, 0, 0, 0, 8, 58, 255];
        packet.extend("fe80::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
        packet.extend("ff02::2".parse::<std::net::Ipv6Addr>().unwrap().octets());
        packet.extend([133, 0, 0x7b, 0x2d, 0, 0, 0, 0]);
        packet
    };
    let out = rig.pass(N3, &uplink(1007, &solicitation));
    assert_eq!((out.len(), out[0].0), (1, N3));
    assert_eq!(out[0].1[14 + 20 + 8 + 4..][..4], smf_shapes::SMF_TEID.to_be_bytes());
    // Without a PDU session container there is no QFI to match.
    assert!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 40))).is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::NO_PDR), 1);
    let ping = ipv4("10.60.0.7", "8.8.8.8", IpProtocol::ICMP, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0]);
    assert!(rig.pass(N3, &uplink(1007, &ping)).is_empty());
}

/// The rule for router solicitations, the QFI to match and a filter that matches all leave a session to the kernel's datapath.
#[test]
fn the_kernel_takes_sessions_as_smfs_make_them() {
    let mut rig = Rig::new();
    let mut request = smf_shapes::open5gs(7);
    for pdr in request.pdrs.iter_mut().filter(|pdr| pdr.pdi.sdf_filters.is_empty()) {
        pdr.pdi.sdf_filters = vec![SdfFilter::parse("permit out ip from any to assigned").unwrap()];
    }
    request.qers[0].mbr = Some(BitRate { uplink_kbps: 50_000, downlink_kbps: 100_000 });
    rig.upf.establish(&request, now()).unwrap();
    let node = rig.upf.node().clone();
    let mut reader = node.domain.reader().unwrap();
    let guard = reader.pin();
    let record = |key: &SessionKey| KernelRecord::of(key, node.table.get(&guard, key).unwrap(), &node);
    let up = record(&SessionKey::tunnel(EndpointId(0), Teid(1007))).unwrap();
    let rule = |record: &KernelRecord| record.lines[0].rule.unwrap();
    assert_eq!((up.lines.len(), up.lines[0].ask.qfi), (1, Some(9)));
    assert_eq!(rule(&up).destination, KernelDestination::Routed(N6Exit::Any));
    assert_eq!(rule(&up).policers.policers().count(), 1, "its AMBR");
    let down = record(&SessionKey::ipv4(kaido_upf::ids::InstanceId(0), fixture::v4("10.60.0.7"))).unwrap();
    assert!(matches!(rule(&down).destination, KernelDestination::Tunnel { .. }), "{down:?}");
}

/// Some control planes always say Outer Header Removal 0, whatever family the F-TEID has, and others leave it out: what
/// comes out of a tunnel has lost its header.
#[test]
fn outer_header_removal_need_not_fit() {
    for removal in [Some(OuterHeaderRemoval::GtpUUdpIpv6), Some(OuterHeaderRemoval::GtpUUdpIpv4), None] {
        let mut rig = Rig::with(settings());
        let mut request = SessionPlan::ipv4(7).establishment();
        request.pdrs[0].outer_header_removal = removal;
        let mut second = request.pdrs[0].clone();
        (second.id, second.outer_header_removal) = (PdrId(5), Some(OuterHeaderRemoval::GtpUUdpIp));
        second.precedence = 300;
        request.pdrs.push(second);
        rig.upf.establish(&request, now()).unwrap();
        let out = rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 40)));
        assert_eq!((out.len(), out[0].0), (1, N6), "{removal:?}");
    }
}

/// A FAR may be given its tunnel, lose it, and get another.
#[test]
fn a_tunnel_may_go_again() {
    let mut rig = Rig::new();
    let seid = rig.upf.establish(&SessionPlan::ipv4(7).establishment(), now()).unwrap().seid;
    assert_eq!(to_ue(&mut rig, 7).len(), 1);
    let removed =
        kaido_n4::RemovedForwarding { outer_header_creation: true, ..kaido_n4::RemovedForwarding::default() };
    let forwarding = UpdateForwardingParameters {
        removed,
        destination_interface: Some(Interface::Access),
        ..UpdateForwardingParameters::default()
    };
    let far = UpdateFar { id: FarId(2), forwarding: Some(forwarding), ..UpdateFar::default() };
    let change = Modification { update_fars: vec![far], ..Modification::default() };
    rig.upf.modify(seid, &change, now()).unwrap();
    assert!(to_ue(&mut rig, 7).is_empty());
    assert_eq!(rig.drops(N6, UpfDrop::FAR_NO_TUNNEL), 1);
    name_tunnel(&mut rig, seid, 7);
    assert_eq!(to_ue(&mut rig, 7).len(), 1);
}

/// Conformance: TS 29.244 6.3.3 | Rules that a request creates again take the place of what the session has; URRs that are the same count on (free5GC)
#[test]
fn rules_that_exist_may_be_created_again() {
    let mut rig = Rig::new();
    let request = smf_shapes::free5gc(7, AMBR);
    let seid = rig.upf.establish(&request, now()).unwrap().seid;
    assert_eq!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 40))).len(), 1);
    let again = Modification {
        create_urrs: request.urrs.clone(),
        create_pdrs: vec![request.pdrs[0].clone()],
        create_fars: vec![SessionPlan::ipv4(7).downlink_far()],
        ..Modification::default()
    };
    let modified = rig.upf.modify(seid, &again, now()).unwrap();
    assert!(modified.usage_reports.is_empty(), "the same URR counts on");
    assert_eq!(to_ue(&mut rig, 7).len(), 1, "the FAR has its tunnel now");
    let mut urr = request.urrs[0].clone();
    urr.measurement_period = Some(std::time::Duration::from_secs(30));
    let other = Modification { create_urrs: vec![urr], ..Modification::default() };
    let modified = rig.upf.modify(seid, &other, now()).unwrap();
    let volume = modified.usage_reports[0].volume.unwrap();
    assert_eq!((volume.uplink_packets, volume.downlink_packets), (1, 1), "the old URR ends with a report");
    assert_eq!(rig.pass(N3, &uplink(1007, &udp("10.60.0.7", "8.8.8.8", 40))).len(), 1);
    let deleted = rig.upf.delete(seid, now()).unwrap();
    assert_eq!(deleted.usage_reports[0].volume.unwrap().uplink_packets, 1);
}

/// Conformance: TS 29.244 5.4.3 | The QFI of a flow's own QER is marked, not that of the session's AMBR (free5GC)
#[test]
fn the_qfi_is_that_of_the_flow() {
    let mut rig = Rig::new();
    let mut request = SessionPlan::ipv4(7).establishment();
    let with_qfi = |id, qfi| Qer { qfi: Some(Qfi(qfi)), ..Qer::open(QerId(id)) };
    // The AMBR's QER, that of the default flow, and that of a dedicated one.
    request.qers = vec![with_qfi(1, 1), with_qfi(3, 1), with_qfi(2, 2)];
    request.pdrs.iter_mut().for_each(|pdr| pdr.qer_ids = vec![QerId(3), QerId(1)]);
    let mut flow = request.pdrs[1].clone();
    (flow.id, flow.precedence, flow.qer_ids) = (PdrId(4), 10, vec![QerId(1), QerId(2)]);
    flow.pdi.sdf_filters = vec![SdfFilter::parse("permit out 17 from 9.9.9.9 to assigned").unwrap()];
    request.pdrs.push(flow);
    rig.upf.establish(&request, now()).unwrap();
    for (src, qfi) in [("9.9.9.9", 2), ("8.8.8.8", 1)] {
        let out = rig.pass(N6, &downlink(&udp(src, "10.60.0.7", 40)));
        assert_eq!(out[0].1[14 + 20 + 8 + 12 + 2] & 0x3f, qfi, "{src}");
    }
}

/// Conformance: TS 23.502 4.9.1.3 | What a gNB has left after a handover goes through the UPF to the next gNB (free5GC, Open5GS)
#[test]
fn data_is_forwarded_between_gnbs() {
    let mut rig = Rig::new();
    let plan = SessionPlan::ipv4(7);
    let seid = rig.upf.establish(&plan.establishment(), now()).unwrap().seid;
    let mut pdr = plan.uplink_pdr();
    (pdr.id, pdr.precedence, pdr.far_id) = (PdrId(3), 0, Some(FarId(3)));
    pdr.pdi.local_fteid = Some(LocalFTeid::Given(FTeid {
        teid: Teid(2007),
        ..match pdr.pdi.local_fteid {
            Some(LocalFTeid::Given(given)) => given,
            _ => panic!("given"),
        }
    }));
    pdr.pdi.ue_ip.clear();
    (pdr.qer_ids, pdr.urr_ids) = (Vec::new(), Vec::new());
    let far = Far { id: FarId(3), ..plan.downlink_far() };
    let change = Modification { create_pdrs: vec![pdr], create_fars: vec![far], ..Modification::default() };
    rig.upf.modify(seid, &change, now()).unwrap();
    let left = udp("8.8.8.8", "10.60.0.7", 40);
    let out = rig.pass(N3, &uplink(2007, &left));
    assert_eq!((out.len(), out[0].0), (1, N3));
    assert!(out[0].1.ends_with(&left), "as it was");
    // It is for the UE alone, and through its own tunnel nothing comes that it has not sent.
    assert!(rig.pass(N3, &uplink(2007, &udp("8.8.8.8", "10.60.0.9", 40))).is_empty());
    assert!(rig.pass(N3, &uplink(1007, &left)).is_empty());
    assert_eq!(rig.drops(N3, UpfDrop::UE_SPOOFED), 2);
}

/// Conformance: TS 29.244 5.4.3 | A session without QERs is marked with the one QFI that its uplink matches (OAI)
#[test]
fn without_qers_the_qfi_is_that_of_the_uplink() {
    let marked = |qfis: &[u8], in_qer: Option<u8>| {
        let mut rig = Rig::new();
        let mut request = SessionPlan::ipv4(7).establishment();
        request.qers =
            in_qer.map(|qfi| Qer { qfi: Some(Qfi(qfi)), ..Qer::open(QerId(1)) }).into_iter().collect();
        for pdr in &mut request.pdrs {
            pdr.qer_ids = request.qers.iter().map(|qer| qer.id).collect();
        }
        request.pdrs[0].pdi.qfis = qfis.iter().copied().map(Qfi).collect();
        rig.upf.establish(&request, now()).unwrap();
        let out = to_ue(&mut rig, 7);
        // Ethernet, IPv4, UDP; then the flags: E says that an extension header follows.
        let flags = out[0].1[14 + 20 + 8];
        (flags & 4 != 0).then(|| out[0].1[14 + 20 + 8 + 12 + 2] & 0x3f)
    };
    assert_eq!(marked(&[5], None), Some(5));
    assert_eq!(marked(&[], None), None, "LTE");
    assert_eq!(marked(&[5, 6], None), None, "it cannot be told which");
    assert_eq!(marked(&[5], Some(9)), Some(9));
}

/// Conformance: TS 29.244 5.21 | A UE keeps its address where an update leaves it to be chosen again (SD-Core)
#[test]
fn an_update_that_repeats_the_choice_keeps_the_address() {
    let mut rig = Rig::new();
    let choose = UeIpAddress { ipv4: Some(ChooseOr::Choose), ipv6: None, role: UeIpRole::Destination };
    let mut request = SessionPlan::ipv4(7).establishment();
    request.pdrs.iter_mut().for_each(|pdr| pdr.pdi.ue_ip = vec![choose]);
    let made = rig.upf.establish(&request, now()).unwrap();
    let address = |created: &[CreatedPdr]| created.iter().find_map(|pdr| pdr.ue_ip?.ipv4).unwrap();
    let first = address(&made.created_pdrs);
    for _ in 0..300 {
        // More often than the pool has addresses.
        let update =
            UpdatePdr { id: PdrId(2), pdi: Some(request.pdrs[1].pdi.clone()), ..UpdatePdr::default() };
        let change = Modification { update_pdrs: vec![update], ..Modification::default() };
        let modified = rig.upf.modify(made.seid, &change, now()).unwrap();
        assert_eq!(address(&modified.updated_pdrs), first);
    }
    let ChooseOr::Given(ue) = first else { panic!("chosen") };
    assert_eq!(rig.pass(N6, &downlink(&udp("8.8.8.8", &ue.to_string(), 40))).len(), 1);
    let mut second = SessionPlan::ipv4(8).establishment();
    second.pdrs[1].pdi.ue_ip = vec![choose];
    let other = rig.upf.establish(&second, now()).unwrap();
    assert_ne!(address(&other.created_pdrs), first, "another session has its own");
}
