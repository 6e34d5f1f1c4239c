//! The sessions of bearers, as a control plane would establish them: what a user plane needs to be the device of a
//! [`Preset`](crate::preset::Preset).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_n4::{
    ApplyAction, ChooseOr, Establishment, FSeid, FTeid, Far, FarId, ForwardingParameters, Interface,
    Ipv6Prefix, LocalFTeid, NetworkInstance, OuterHeaderCreation, OuterHeaderRemoval, Pdi, Pdr, PdrId, Qer,
    QerId, Qfi, Seid, Teid, UeIpAddress, UeIpRole,
};

use crate::oracle::{Bearers, Side};

fn split(address: IpAddr) -> (Option<Ipv4Addr>, Option<Ipv6Addr>) {
    match address {
        IpAddr::V4(address) => (Some(address), None),
        IpAddr::V6(address) => (None, Some(address)),
    }
}

/// The session of a bearer: out of a tunnel, and into one; with a QER that marks its QoS flow, if it has one. Its SEID is the
/// bearer's number and 1.
pub fn establishment(bearers: &Bearers, bearer: u32) -> Establishment {
    let qers: Vec<Qer> =
        bearers.qfi.map(|qfi| Qer { qfi: Some(Qfi(qfi)), ..Qer::open(QerId(1)) }).into_iter().collect();
    let pdr = |id: u16, source_interface| Pdr {
        id: PdrId(id),
        precedence: 100,
        pdi: Pdi { source_interface, ..Pdi::default() },
        far_id: Some(FarId(id.into())),
        qer_ids: qers.iter().map(|qer| qer.id).collect(),
        ..Pdr::default()
    };
    let (mut uplink, mut downlink) = (pdr(1, Interface::Access), pdr(2, Interface::Core));
    let (ipv4, ipv6) = split(bearers.local);
    let local = FTeid { teid: Teid(bearers.teid_first.wrapping_add(bearer)), ipv4, ipv6 };
    uplink.pdi.local_fteid = Some(LocalFTeid::Given(local));
    uplink.outer_header_removal = Some(OuterHeaderRemoval::of_tunnel(bearers.local));
    let (ipv4, ipv6) = split(bearers.ue(bearer));
    downlink.pdi.ue_ip = vec![UeIpAddress {
        ipv4: ipv4.map(ChooseOr::Given),
        ipv6: ipv6.map(|address| ChooseOr::Given(Ipv6Prefix::of(address, 64))),
        role: UeIpRole::Destination,
    }];
    let (ipv4, ipv6) = split(bearers.peer(bearer));
    let tunnel =
        OuterHeaderCreation { teid: Teid(bearers.access_teid_first.wrapping_add(bearer)), ipv4, ipv6 };
    // Both ways of a session are in the same one.
    let instance = |side: &Side| side.instance(bearer).map(|name| NetworkInstance(name.into()));
    uplink.pdi.network_instance = instance(&bearers.access);
    downlink.pdi.network_instance = instance(&bearers.core);
    let far = |id, destination_interface, outer_header_creation| Far {
        id: FarId(id),
        apply_action: ApplyAction { forward: true, ..ApplyAction::default() },
        forwarding: Some(ForwardingParameters {
            destination_interface,
            network_instance: instance(if destination_interface == Interface::Core {
                &bearers.core
            } else {
                &bearers.access
            }),
            outer_header_creation,
            transport_level_marking: None,
            steering: None,
        }),
        bar_id: None,
    };
    Establishment {
        cp_fseid: FSeid { seid: Seid(u64::from(bearer) + 1), ipv4: None, ipv6: None },
        pdrs: vec![uplink, downlink],
        fars: vec![far(1, Interface::Core, None), far(2, Interface::Access, Some(tunnel))],
        qers,
        ..Establishment::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::{OuterFields, Tag};
    use crate::shape::Shape;
    use crate::stream::Mac;

    #[test]
    fn a_session_is_its_bearers() {
        let side = || Side {
            port: "p".to_owned(),
            device_mac: Mac::default(),
            bench_mac: Mac::default(),
            tags: Vec::new(),
            network_instance: None,
        };
        let bearers = Bearers {
            count: 10,
            teid_first: 100,
            access_teid_first: 200,
            ue_first: "2001:db8::1".parse().unwrap(),
            local: "10.0.0.1".parse().unwrap(),
            peer_first: "10.0.0.2".parse().unwrap(),
            peers: 2,
            qfi: None,
            server: "2001:db8:ffff::1".parse().unwrap(),
            access: side(),
            core: side(),
            outer: OuterFields::default(),
            shape: Shape::Plain,
        };
        let session = establishment(&bearers, 3);
        assert_eq!(session.cp_fseid.seid, Seid(4));
        assert!(session.qers.is_empty());
        let Some(LocalFTeid::Given(local)) = &session.pdrs[0].pdi.local_fteid else { panic!("{session:?}") };
        assert_eq!((local.teid, local.ipv4), (Teid(103), Some(Ipv4Addr::new(10, 0, 0, 1))));
        assert_eq!(session.pdrs[0].outer_header_removal, Some(OuterHeaderRemoval::GtpUUdpIpv4));
        let tunnel = session.fars[1].forwarding.as_ref().and_then(|to| to.outer_header_creation);
        let tunnel = tunnel.unwrap();
        assert_eq!((tunnel.teid, tunnel.ipv4), (Teid(203), Some(Ipv4Addr::new(10, 0, 0, 3))));
        let ue = &session.pdrs[1].pdi.ue_ip[0];
        let prefix = Ipv6Prefix::of("2001:db8:0:3::".parse().unwrap(), 64);
        assert!(ue.ipv4.is_none() && ue.ipv6 == Some(ChooseOr::Given(prefix)), "{ue:?}");
        assert!(session.pdrs.iter().all(|pdr| pdr.pdi.network_instance.is_none()));
        let mut tenants = bearers.clone();
        tenants.core.tags = vec![Tag { tpid: 0x8100, first: 100, count: 2, priority: 7 }];
        tenants.core.network_instance = Some("tenant{vlan}".to_owned());
        let session = establishment(&tenants, 3);
        let tenant = Some(NetworkInstance("tenant101".into()));
        assert_eq!(session.pdrs[1].pdi.network_instance, tenant);
        assert_eq!(session.pdrs[0].pdi.network_instance, None);
        let of = |far: usize| session.fars[far].forwarding.as_ref().unwrap().network_instance.clone();
        assert_eq!((of(0), of(1)), (tenant, None));
    }
}
