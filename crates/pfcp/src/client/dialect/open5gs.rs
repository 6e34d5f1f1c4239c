//! Open5GS's SMF: the downlink rules come first, F-TEIDs are chosen by CHOOSE ID, and Router Solicitations go to the SMF.

use kaido_n4::{
    ApplyAction, BarId, BufferingRule, Establishment, Far, FarId, Interface, LocalFTeid, MeasurementMethod,
    Modification, OuterHeaderCreation, OuterHeaderRemoval, Pdi, Pdr, PdrId, Qer, QerId, ReportingTriggers,
    SdfFilter, Teid, UpdateFar, Urr, UrrId, VolumeThreshold,
};

use super::{
    DedicatedFlow, FLOW_DOWNLINK_FAR, FLOW_DOWNLINK_PDR, FLOW_PRECEDENCE, FLOW_UPLINK_FAR, FLOW_UPLINK_PDR,
    PduSession, forward, to_access, update,
};

pub(super) const UPLINK_PDR: PdrId = PdrId(2);
const DOWNLINK_PDR: PdrId = PdrId(1);
/// Router Advertisements from the SMF to the UE, and Router Solicitations from the UE to the SMF.
const FROM_SMF_PDR: PdrId = PdrId(3);
const TO_SMF_PDR: PdrId = PdrId(4);
const DOWNLINK_FAR: FarId = FarId(1);
const UPLINK_FAR: FarId = FarId(2);
const TO_SMF_FAR: FarId = FarId(3);
const BAR: BarId = BarId(1);
const DEFAULT_PRECEDENCE: u32 = 65_535;
const SMF_PRECEDENCE: u32 = 255;
/// All PDRs with this CHOOSE ID have one F-TEID.
const CHOOSE_ID: u8 = 5;
const ROUTER_SOLICITATION: &str = "permit out 58 from ff02::2/128 to assigned";
/// TEID of the SMF's end of the tunnel for Router Solicitations.
pub(super) const SMF_TEID: Teid = Teid(0x5_3f00);
/// Octets between two reports.
const THRESHOLD: u64 = 100 << 20;
/// Name of the dedicated flow's filter, which the downlink PDR describes and the uplink PDR names.
const FILTER_ID: u32 = 1;

pub(super) fn establishment(session: &PduSession) -> Establishment {
    let template = &session.template;
    let ambr = Qer { mbr: template.session_rate, qfi: Some(template.qfi), ..Qer::open(QerId(1)) };
    let to_smf = forward(TO_SMF_FAR, Interface::CpFunction, None, Some(smf_end(session)));
    Establishment {
        pdrs: vec![downlink(session), uplink(session), from_smf(), to_smf_pdr(session)],
        fars: vec![
            buffering(DOWNLINK_FAR),
            forward(UPLINK_FAR, Interface::Core, session.dnn(), None),
            to_smf,
        ],
        urrs: vec![urr(session, UrrId(1))],
        qers: vec![ambr],
        bars: vec![BufferingRule { id: BAR, ..BufferingRule::default() }],
        ..template.establishment()
    }
}

/// The SMF's end of its tunnel with the user plane: at the gNB's address, where the same process listens.
fn smf_end(session: &PduSession) -> OuterHeaderCreation {
    let (ipv4, ipv6) = session.template.gnb.map_or((None, None), |gnb| (gnb.ipv4, gnb.ipv6));
    OuterHeaderCreation { teid: SMF_TEID, ipv4, ipv6 }
}

fn buffering(id: FarId) -> Far {
    Far { id, apply_action: ApplyAction::BUFFER_AND_NOTIFY, forwarding: None, bar_id: Some(BAR) }
}

fn choose(choose_id: Option<u8>) -> LocalFTeid {
    LocalFTeid::Choose { ipv4: true, ipv6: true, choose_id }
}

fn downlink(session: &PduSession) -> Pdr {
    Pdr {
        id: DOWNLINK_PDR,
        precedence: DEFAULT_PRECEDENCE,
        far_id: Some(DOWNLINK_FAR),
        urr_ids: vec![UrrId(1)],
        qer_ids: vec![QerId(1)],
        ..session.template.downlink_pdr()
    }
}

/// The UE's address is in the downlink PDR alone.
fn uplink(session: &PduSession) -> Pdr {
    let pdi = Pdi {
        source_interface: Interface::Access,
        local_fteid: Some(choose(Some(CHOOSE_ID))),
        network_instance: session.dnn(),
        qfis: vec![session.template.qfi],
        ..Pdi::default()
    };
    Pdr {
        id: UPLINK_PDR,
        precedence: DEFAULT_PRECEDENCE,
        pdi,
        outer_header_removal: Some(OuterHeaderRemoval::GtpUUdpIp),
        far_id: Some(UPLINK_FAR),
        qer_ids: vec![QerId(1)],
        ..Pdr::default()
    }
}

fn from_smf() -> Pdr {
    let pdi =
        Pdi { source_interface: Interface::CpFunction, local_fteid: Some(choose(None)), ..Pdi::default() };
    Pdr {
        id: FROM_SMF_PDR,
        precedence: SMF_PRECEDENCE,
        pdi,
        outer_header_removal: Some(OuterHeaderRemoval::GtpUUdpIp),
        far_id: Some(DOWNLINK_FAR),
        ..Pdr::default()
    }
}

fn to_smf_pdr(session: &PduSession) -> Pdr {
    let mut pdr =
        Pdr { id: TO_SMF_PDR, precedence: SMF_PRECEDENCE, far_id: Some(TO_SMF_FAR), ..uplink(session) };
    pdr.pdi.qfis.clear();
    // It is a flow description, as the tests read it.
    pdr.pdi.sdf_filters = SdfFilter::parse(ROUTER_SOLICITATION).into_iter().collect();
    pdr.qer_ids.clear();
    pdr
}

/// Volume of both directions, of which the downlink PDR alone has any.
fn urr(session: &PduSession, id: UrrId) -> Urr {
    let asked = session.template.urrs.first().and_then(|urr| urr.volume_threshold);
    let total = VolumeThreshold { total: Some(THRESHOLD), ..VolumeThreshold::default() };
    Urr {
        id,
        method: MeasurementMethod { volume: true, ..MeasurementMethod::default() },
        triggers: ReportingTriggers::VOLTH,
        volume_threshold: Some(asked.unwrap_or(total)),
        ..Urr::default()
    }
}

/// The downlink goes to the gNB that is known.
pub(super) fn tunnel(session: &PduSession, send_end_marker: bool) -> Modification {
    let fars = session.downlink_fars(DOWNLINK_FAR);
    let update_fars = fars.map(|id| to_gnb(session, id, send_end_marker)).collect();
    Modification { update_fars, ..Modification::default() }
}

/// The tunnel of the dedicated flow alone: a FAR is created without one.
pub(super) fn tunnel_of_flow(session: &PduSession) -> Modification {
    let update_fars = vec![to_gnb(session, FLOW_DOWNLINK_FAR, false)];
    Modification { update_fars, ..Modification::default() }
}

fn to_gnb(session: &PduSession, id: FarId, send_end_marker: bool) -> UpdateFar {
    let forwarding = to_access(session.dnn(), session.template.gnb, send_end_marker);
    update(id, ApplyAction::FORWARD, Some(forwarding))
}

pub(super) fn release_access(session: &PduSession) -> Modification {
    let buffering = |id| UpdateFar { bar_id: Some(BAR), ..update(id, ApplyAction::BUFFER_AND_NOTIFY, None) };
    let update_fars = session.downlink_fars(DOWNLINK_FAR).map(buffering).collect();
    Modification { update_fars, ..Modification::default() }
}

/// The downlink PDR has neither UE address nor F-TEID, and describes the filter that the uplink PDR names.
pub(super) fn add_flow(session: &PduSession, flow: &DedicatedFlow) -> Modification {
    let filter = SdfFilter { id: Some(FILTER_ID), ..flow.filter.clone() };
    let (qer, urr_id) = (QerId(2), UrrId(2));
    let mut down = Pdr {
        id: FLOW_DOWNLINK_PDR,
        precedence: FLOW_PRECEDENCE,
        far_id: Some(FLOW_DOWNLINK_FAR),
        urr_ids: vec![urr_id],
        qer_ids: vec![qer],
        ..downlink(session)
    };
    down.pdi.ue_ip.clear();
    down.pdi.sdf_filters = vec![filter];
    let mut up = Pdr {
        id: FLOW_UPLINK_PDR,
        precedence: FLOW_PRECEDENCE,
        far_id: Some(FLOW_UPLINK_FAR),
        qer_ids: vec![qer],
        ..uplink(session)
    };
    (up.pdi.qfis, up.pdi.sdf_filter_ids) = (vec![flow.qfi], vec![FILTER_ID]);
    Modification {
        create_pdrs: vec![down, up],
        create_fars: vec![
            buffering(FLOW_DOWNLINK_FAR),
            forward(FLOW_UPLINK_FAR, Interface::Core, session.dnn(), None),
        ],
        create_urrs: vec![urr(session, urr_id)],
        create_qers: vec![Qer { mbr: session.template.flow_rate, qfi: Some(flow.qfi), ..Qer::open(qer) }],
        ..Modification::default()
    }
}
