//! SD-Core's SMF: every PDR has a filter, and an F-TEID of its own where it is of the access.

use kaido_n4::{
    ApplyAction, Establishment, Far, FarId, Interface, LocalFTeid, Modification, OuterHeaderRemoval, Pdr,
    Qer, QerId, UeIpAddress, UeIpRole,
};

use super::{
    DedicatedFlow, FLOW_DOWNLINK_FAR, FLOW_DOWNLINK_PDR, FLOW_PRECEDENCE, FLOW_UPLINK_FAR, FLOW_UPLINK_PDR,
    PduSession, SessionTemplate, again, forward, match_all, to_access, update,
};

const DEFAULT_QER: QerId = QerId(1);
const FLOW_QER: QerId = QerId(2);

pub(super) fn establishment(session: &PduSession) -> Establishment {
    let template = &session.template;
    let ambr = Qer { mbr: template.session_rate, qfi: Some(template.qfi), ..Qer::open(DEFAULT_QER) };
    Establishment {
        pdrs: vec![uplink(session), downlink(session)],
        fars: vec![
            forward(SessionTemplate::UPLINK_FAR, Interface::N6Lan, session.dnn(), None),
            without_tunnel(SessionTemplate::DOWNLINK_FAR, ApplyAction::DROP),
        ],
        qers: vec![ambr],
        urrs: Vec::new(),
        ..template.establishment()
    }
}

/// The address is a choice again in each request, where it is a choice.
fn uplink(session: &PduSession) -> Pdr {
    let mut pdr = session.template.uplink_pdr();
    // Neither family is asked for.
    pdr.pdi.local_fteid = Some(LocalFTeid::Choose { ipv4: false, ipv6: false, choose_id: None });
    pdr.pdi.network_instance = session.dnn();
    pdr.pdi.qfis.clear();
    pdr.outer_header_removal = Some(OuterHeaderRemoval::GtpUUdpIpv4);
    named(pdr)
}

/// S/D is 0 in the downlink, too.
fn downlink(session: &PduSession) -> Pdr {
    let mut pdr = session.template.downlink_pdr();
    pdr.pdi.ue_ip =
        pdr.pdi.ue_ip.into_iter().map(|ue| UeIpAddress { role: UeIpRole::Source, ..ue }).collect();
    named(pdr)
}

fn named(mut pdr: Pdr) -> Pdr {
    pdr.pdi.sdf_filters = match_all();
    (pdr.urr_ids, pdr.qer_ids) = (Vec::new(), vec![DEFAULT_QER]);
    pdr
}

/// A FAR that has no tunnel yet.
fn without_tunnel(id: FarId, apply_action: ApplyAction) -> Far {
    Far { id, apply_action, forwarding: None, bar_id: None }
}

/// The downlink goes to the gNB that is known. Each downlink PDR is written again, whole.
pub(super) fn tunnel(session: &PduSession, send_end_marker: bool) -> Modification {
    tunnels(session, session.flow.as_ref(), send_end_marker)
}

/// The same with a flow that is being added.
pub(super) fn tunnel_with(session: &PduSession, flow: &DedicatedFlow) -> Modification {
    tunnels(session, Some(flow), false)
}

fn tunnels(session: &PduSession, flow: Option<&DedicatedFlow>, send_end_marker: bool) -> Modification {
    let forwarding = to_access(session.dnn(), session.template.gnb, send_end_marker);
    let fars = [SessionTemplate::DOWNLINK_FAR].into_iter().chain(flow.map(|_| FLOW_DOWNLINK_FAR));
    let update_fars = fars.map(|id| update(id, ApplyAction::FORWARD, Some(forwarding.clone()))).collect();
    let pdrs = [downlink(session)].into_iter().chain(flow.map(|flow| flow_downlink(session, flow)));
    Modification { update_fars, update_pdrs: pdrs.map(again).collect(), ..Modification::default() }
}

/// Forwarding parameters without the tunnel.
pub(super) fn release_access(session: &PduSession) -> Modification {
    let fars = session.downlink_fars(SessionTemplate::DOWNLINK_FAR);
    let forwarding = to_access(session.dnn(), None, false);
    let update_fars =
        fars.map(|id| update(id, ApplyAction::BUFFER_AND_NOTIFY, Some(forwarding.clone()))).collect();
    Modification { update_fars, ..Modification::default() }
}

/// Neither PDR has the UE's address, and the uplink PDR an F-TEID that no gNB is told of: uplink packets still come
/// through the default flow's.
pub(super) fn add_flow(session: &PduSession, flow: &DedicatedFlow) -> Modification {
    let mut up = of_flow(uplink(session), flow);
    (up.id, up.far_id) = (FLOW_UPLINK_PDR, Some(FLOW_UPLINK_FAR));
    Modification {
        create_pdrs: vec![flow_downlink(session, flow), up],
        create_fars: vec![
            without_tunnel(FLOW_DOWNLINK_FAR, ApplyAction::BUFFER_AND_NOTIFY),
            forward(FLOW_UPLINK_FAR, Interface::Core, session.dnn(), None),
        ],
        create_qers: vec![Qer {
            mbr: session.template.flow_rate,
            qfi: Some(flow.qfi),
            ..Qer::open(FLOW_QER)
        }],
        ..Modification::default()
    }
}

fn flow_downlink(session: &PduSession, flow: &DedicatedFlow) -> Pdr {
    let mut pdr = of_flow(downlink(session), flow);
    (pdr.id, pdr.far_id) = (FLOW_DOWNLINK_PDR, Some(FLOW_DOWNLINK_FAR));
    pdr
}

fn of_flow(mut pdr: Pdr, flow: &DedicatedFlow) -> Pdr {
    pdr.precedence = FLOW_PRECEDENCE;
    pdr.pdi.ue_ip.clear();
    pdr.pdi.sdf_filters = vec![flow.filter.clone()];
    pdr.qer_ids = vec![FLOW_QER];
    pdr
}
