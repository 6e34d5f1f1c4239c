//! free5GC's SMF: it gives TEIDs and addresses itself, and forwards to the access before it knows the tunnel.

use std::time::Duration;

use kaido_n4::{
    ApplyAction, Establishment, FarId, Interface, MeasurementInformation, MeasurementMethod, Modification,
    OuterHeaderRemoval, Pdr, Qer, QerId, ReportingTriggers, Urr, UrrId, VolumeThreshold,
};

use super::{
    DedicatedFlow, FLOW_DOWNLINK_FAR, FLOW_DOWNLINK_PDR, FLOW_PRECEDENCE, FLOW_UPLINK_FAR, FLOW_UPLINK_PDR,
    PduSession, SessionTemplate, again, forward, to_access, update,
};

/// The URR that measures behind QoS enforcement. The other measures the same packets before it.
pub(super) const AFTER_QOS: UrrId = UrrId(2);
const BEFORE_QOS: UrrId = UrrId(1);
const AMBR: QerId = QerId(1);
const DEFAULT_FLOW: QerId = QerId(2);
const DEDICATED_FLOW: QerId = QerId(3);
const PERIOD: Duration = Duration::from_secs(10);
/// Octets in each direction between two reports.
const THRESHOLD: u64 = 5_000_000;
/// How often 1.3.3 writes each URR that the session has into a request that adds a flow.
const URR_COPIES: usize = 4;

pub(super) fn establishment(session: &PduSession) -> Establishment {
    let template = &session.template;
    let flow = Qer { qfi: Some(template.qfi), ..Qer::open(DEFAULT_FLOW) };
    let ambr = Qer { mbr: template.session_rate, qfi: Some(template.qfi), ..Qer::open(AMBR) };
    Establishment {
        pdrs: vec![uplink(session), downlink(session)],
        fars: vec![
            forward(SessionTemplate::UPLINK_FAR, Interface::Core, session.dnn(), None),
            forward(SessionTemplate::DOWNLINK_FAR, Interface::Access, None, None),
        ],
        urrs: urrs(template),
        qers: vec![flow, ambr],
        ..template.establishment()
    }
}

fn uplink(session: &PduSession) -> Pdr {
    let mut pdr = session.template.uplink_pdr();
    pdr.pdi.qfis.clear();
    pdr.pdi.network_instance = session.dnn();
    pdr.outer_header_removal = Some(OuterHeaderRemoval::GtpUUdpIpv4);
    named(pdr)
}

fn downlink(session: &PduSession) -> Pdr {
    named(session.template.downlink_pdr())
}

/// A PDR of the default flow with the rules that it names.
fn named(mut pdr: Pdr) -> Pdr {
    pdr.urr_ids = vec![BEFORE_QOS, AFTER_QOS];
    pdr.qer_ids = vec![DEFAULT_FLOW, AMBR];
    pdr
}

fn urrs(template: &SessionTemplate) -> Vec<Urr> {
    let asked = template.urrs.first().and_then(|urr| urr.volume_threshold);
    let both = VolumeThreshold { total: None, uplink: Some(THRESHOLD), downlink: Some(THRESHOLD) };
    let urr = |id, before_qos| Urr {
        id,
        method: MeasurementMethod { volume: true, ..MeasurementMethod::default() },
        triggers: ReportingTriggers::PERIO.union(ReportingTriggers::VOLTH),
        measurement_period: Some(PERIOD),
        volume_threshold: Some(asked.unwrap_or(both)),
        information: MeasurementInformation { before_qos, count_packets: true, ..Default::default() },
        ..Urr::default()
    };
    vec![urr(BEFORE_QOS, true), urr(AFTER_QOS, false)]
}

/// The downlink goes to the gNB that is known: its PDR is written again, too.
pub(super) fn tunnel(session: &PduSession, send_end_marker: bool) -> Modification {
    let fars = session.downlink_fars(SessionTemplate::DOWNLINK_FAR);
    let update_fars = fars.map(|id| access(session, id, ApplyAction::FORWARD, send_end_marker)).collect();
    Modification { update_pdrs: vec![again(downlink(session))], update_fars, ..Modification::default() }
}

/// Forwarding parameters are repeated with the tunnel that is left.
pub(super) fn release_access(session: &PduSession) -> Modification {
    let fars = session.downlink_fars(SessionTemplate::DOWNLINK_FAR);
    let update_fars = fars.map(|id| access(session, id, ApplyAction::BUFFER_AND_NOTIFY, false)).collect();
    Modification { update_fars, ..Modification::default() }
}

fn access(session: &PduSession, id: FarId, action: ApplyAction, end: bool) -> kaido_n4::UpdateFar {
    update(id, action, Some(to_access(session.dnn(), session.template.gnb, end)))
}

/// The PDRs name the AMBR's QER, with the default flow's QFI, before the flow's own.
pub(super) fn add_flow(session: &PduSession, flow: &DedicatedFlow) -> Modification {
    let (mut up, mut down) = (uplink(session), downlink(session));
    (up.id, up.far_id) = (FLOW_UPLINK_PDR, Some(FLOW_UPLINK_FAR));
    (down.id, down.far_id) = (FLOW_DOWNLINK_PDR, Some(FLOW_DOWNLINK_FAR));
    for pdr in [&mut up, &mut down] {
        pdr.precedence = FLOW_PRECEDENCE;
        pdr.pdi.sdf_filters = vec![flow.filter.clone()];
        pdr.qer_ids = vec![AMBR, DEDICATED_FLOW];
    }
    let urrs = urrs(&session.template);
    Modification {
        create_pdrs: vec![up, down],
        create_fars: vec![
            forward(FLOW_UPLINK_FAR, Interface::Core, session.dnn(), None),
            forward(FLOW_DOWNLINK_FAR, Interface::Access, session.dnn(), session.template.gnb),
        ],
        create_urrs: (0..URR_COPIES).flat_map(|_| urrs.clone()).collect(),
        create_qers: vec![Qer {
            qfi: Some(flow.qfi),
            mbr: session.template.flow_rate,
            ..Qer::open(DEDICATED_FLOW)
        }],
        ..Modification::default()
    }
}
