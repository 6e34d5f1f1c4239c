//! The sessions that `kaido sim` sets up: a PDU session as SMFs in the field write it.

use std::net::Ipv4Addr;

use kaido_n4::{
    ApplyAction, BitRate, ChooseOr, Establishment, FSeid, Far, FarId, ForwardingParameters, Interface,
    Ipv6Prefix, LocalFTeid, Modification, NetworkInstance, OuterHeaderCreation, OuterHeaderRemoval, Pdi, Pdr,
    PdrId, Qer, QerId, Qfi, Seid, UeIpAddress, UeIpRole, UpdateFar, UpdateForwardingParameters, Urr, UrrId,
};

/// A PDU session: PDR 1 and FAR 1 uplink, PDR 2 and FAR 2 downlink.
///
/// ```text
///  access ── F-TEID ──▶ PDR 1 ─▶ FAR 1 ──▶ core
///  access ◀── gNB ───── FAR 2 ◀─ PDR 2 ◀── core, to the UE's address
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SessionTemplate {
    /// The UE's IPv4 address.
    pub ue_ipv4: Option<Ipv4Addr>,
    /// The UE's IPv6 prefix.
    pub ue_ipv6: Option<Ipv6Prefix>,
    /// Where the access sends uplink packets: given, or to be chosen.
    pub n3: LocalFTeid,
    /// Which headers PDR 1 takes off.
    pub outer_header_removal: OuterHeaderRemoval,
    /// The gNB's end of the tunnel. While there is none, FAR 2 drops.
    pub gnb: Option<OuterHeaderCreation>,
    /// IP domain of the access side.
    pub access: Option<NetworkInstance>,
    /// IP domain of the core side.
    pub core: Option<NetworkInstance>,
    /// The QoS flow.
    pub qfi: Qfi,
    /// QER 1: the session's maximum.
    pub session_rate: Option<BitRate>,
    /// QER 2: the flow's maximum, with the QFI.
    pub flow_rate: Option<BitRate>,
    /// Usage to count; each PDR names them all.
    pub urrs: Vec<Urr>,
}

impl Default for SessionTemplate {
    /// A session without addresses, of which all is left to the user plane.
    fn default() -> Self {
        Self {
            ue_ipv4: None,
            ue_ipv6: None,
            n3: LocalFTeid::Choose { ipv4: false, ipv6: false, choose_id: None },
            outer_header_removal: OuterHeaderRemoval::GtpUUdpIp,
            gnb: None,
            access: None,
            core: None,
            qfi: Qfi(0),
            session_rate: None,
            flow_rate: None,
            urrs: Vec::new(),
        }
    }
}

const FORWARD: ApplyAction = ApplyAction::FORWARD;
const DROP: ApplyAction = ApplyAction::DROP;
const BUFFER: ApplyAction = ApplyAction::BUFFER_AND_NOTIFY;

impl SessionTemplate {
    /// The uplink PDR.
    pub const UPLINK_PDR: PdrId = PdrId(1);
    /// The downlink PDR.
    pub const DOWNLINK_PDR: PdrId = PdrId(2);
    /// The uplink FAR.
    pub const UPLINK_FAR: FarId = FarId(1);
    /// The downlink FAR.
    pub const DOWNLINK_FAR: FarId = FarId(2);

    /// The Session Establishment Request. [`Smf::establish`](super::Smf::establish) fills in the CP F-SEID.
    pub fn establishment(&self) -> Establishment {
        Establishment {
            cp_fseid: FSeid { seid: Seid(0), ipv4: None, ipv6: None },
            pdrs: vec![self.uplink_pdr(), self.downlink_pdr()],
            fars: vec![self.uplink_far(), self.downlink_far()],
            qers: self.qers(),
            urrs: self.urrs.clone(),
            ..Establishment::default()
        }
    }

    pub(super) fn uplink_pdr(&self) -> Pdr {
        let pdi = Pdi {
            source_interface: Interface::Access,
            local_fteid: Some(self.n3),
            network_instance: self.access.clone(),
            ue_ip: vec![self.ue(UeIpRole::Source)],
            qfis: vec![self.qfi],
            ..Pdi::default()
        };
        let removal = Some(self.outer_header_removal);
        self.pdr(Self::UPLINK_PDR, pdi, removal, Self::UPLINK_FAR)
    }

    pub(super) fn downlink_pdr(&self) -> Pdr {
        let pdi = Pdi {
            source_interface: Interface::Core,
            network_instance: self.core.clone(),
            ue_ip: vec![self.ue(UeIpRole::Destination)],
            ..Pdi::default()
        };
        self.pdr(Self::DOWNLINK_PDR, pdi, None, Self::DOWNLINK_FAR)
    }

    fn pdr(&self, id: PdrId, pdi: Pdi, outer_header_removal: Option<OuterHeaderRemoval>, far: FarId) -> Pdr {
        Pdr {
            id,
            precedence: 255,
            pdi,
            outer_header_removal,
            deletes_container: false,
            far_id: Some(far),
            urr_ids: self.urrs.iter().map(|urr| urr.id).collect(),
            qer_ids: self.qers().iter().map(|qer| qer.id).collect(),
            ..Pdr::default()
        }
    }

    fn ue(&self, role: UeIpRole) -> UeIpAddress {
        UeIpAddress { ipv4: self.ue_ipv4.map(ChooseOr::Given), ipv6: self.ue_ipv6.map(ChooseOr::Given), role }
    }

    fn uplink_far(&self) -> Far {
        let forwarding = ForwardingParameters {
            destination_interface: Interface::Core,
            network_instance: self.core.clone(),
            outer_header_creation: None,
            transport_level_marking: None,
            steering: None,
        };
        Far { id: Self::UPLINK_FAR, apply_action: FORWARD, forwarding: Some(forwarding), bar_id: None }
    }

    fn downlink_far(&self) -> Far {
        let forwarding = ForwardingParameters {
            destination_interface: Interface::Access,
            network_instance: self.access.clone(),
            outer_header_creation: self.gnb,
            transport_level_marking: None,
            steering: None,
        };
        let apply_action = if self.gnb.is_some() { FORWARD } else { DROP };
        Far { id: Self::DOWNLINK_FAR, apply_action, forwarding: Some(forwarding), bar_id: None }
    }

    fn qers(&self) -> Vec<Qer> {
        let qer = |id, mbr, qfi| Qer { mbr: Some(mbr), qfi, ..Qer::open(QerId(id)) };
        let session = self.session_rate.map(|rate| qer(1, rate, None));
        let flow = self.flow_rate.map(|rate| qer(2, rate, Some(self.qfi)));
        session.into_iter().chain(flow).collect()
    }

    /// The gNB is known, or another one took over: downlink packets go there, after an End Marker to the old
    /// one if wanted. Packets buffered meanwhile follow.
    pub fn forward(gnb: OuterHeaderCreation, send_end_marker: bool) -> Modification {
        let forwarding = UpdateForwardingParameters {
            destination_interface: Some(Interface::Access),
            outer_header_creation: Some(gnb),
            send_end_marker,
            ..UpdateForwardingParameters::default()
        };
        Self::downlink(FORWARD, Some(forwarding))
    }

    /// The UE went idle: downlink packets are kept, and the first is reported.
    pub fn buffer() -> Modification {
        Self::downlink(BUFFER, None)
    }

    fn downlink(action: ApplyAction, forwarding: Option<UpdateForwardingParameters>) -> Modification {
        let update = UpdateFar {
            id: Self::DOWNLINK_FAR,
            apply_action: Some(action),
            forwarding,
            ..UpdateFar::default()
        };
        Modification { update_fars: vec![update], ..Modification::default() }
    }

    /// Usage is wanted at once: of these rules, or of all when none is named.
    pub fn query(urrs: &[UrrId]) -> Modification {
        let query_all_urrs = urrs.is_empty();
        Modification { query_urrs: urrs.to_vec(), query_all_urrs, ..Modification::default() }
    }
}
