//! `OpenAirInterface`'s SMF: the downlink has no rules until the gNB's tunnel is known, and an idle UE has none at all.

use kaido_n4::{
    ApplyAction, Establishment, Interface, LocalFTeid, Modification, NetworkInstance, OuterHeaderRemoval, Pdr,
};

use super::{PduSession, SessionTemplate, again, forward, match_all, to_access, update};

/// Network Instances of N3 and N6 where none are configured.
const ACCESS: &str = "access.oai.org";
const CORE: &str = "core.oai.org";
/// All PDRs with this CHOOSE ID have one F-TEID.
const CHOOSE_ID: u8 = 42;

fn access(session: &PduSession) -> Option<NetworkInstance> {
    Some(session.template.access.clone().unwrap_or_else(|| NetworkInstance(ACCESS.into())))
}

fn core(session: &PduSession) -> Option<NetworkInstance> {
    Some(session.template.core.clone().unwrap_or_else(|| NetworkInstance(CORE.into())))
}

pub(super) fn establishment(session: &PduSession) -> Establishment {
    let Modification { create_pdrs, create_fars, .. } = create_uplink(session);
    Establishment {
        pdrs: create_pdrs,
        fars: create_fars,
        qers: Vec::new(),
        urrs: Vec::new(),
        ..session.template.establishment()
    }
}

fn uplink(session: &PduSession) -> Pdr {
    let mut pdr = Pdr { precedence: session.services, ..session.template.uplink_pdr() };
    pdr.pdi.network_instance = access(session);
    pdr.pdi.sdf_filters = match_all();
    pdr.pdi.local_fteid = Some(match session.template.n3 {
        // One that was chosen is given back from then on.
        given @ LocalFTeid::Given(_) => given,
        _ => LocalFTeid::Choose { ipv4: true, ipv6: false, choose_id: Some(CHOOSE_ID) },
    });
    pdr.outer_header_removal = Some(OuterHeaderRemoval::GtpUUdpIpv4);
    bare(pdr)
}

fn downlink(session: &PduSession) -> Pdr {
    let mut pdr = Pdr { precedence: session.services, ..session.template.downlink_pdr() };
    pdr.pdi.network_instance = core(session);
    bare(pdr)
}

/// Usage reporting is off where it is not configured, and there are no QERs.
fn bare(mut pdr: Pdr) -> Pdr {
    (pdr.urr_ids, pdr.qer_ids) = (Vec::new(), Vec::new());
    pdr
}

/// The uplink rules: at first, and again when an idle UE asks for service.
pub(super) fn create_uplink(session: &PduSession) -> Modification {
    Modification {
        create_pdrs: vec![uplink(session)],
        create_fars: vec![forward(SessionTemplate::UPLINK_FAR, Interface::Core, core(session), None)],
        ..Modification::default()
    }
}

/// The downlink rules, once the gNB's tunnel is known.
pub(super) fn create_downlink(session: &PduSession) -> Modification {
    let far =
        forward(SessionTemplate::DOWNLINK_FAR, Interface::Access, access(session), session.template.gnb);
    Modification { create_pdrs: vec![downlink(session)], create_fars: vec![far], ..Modification::default() }
}

/// Nothing is left of the session but itself.
pub(super) fn release_access() -> Modification {
    Modification {
        remove_pdrs: vec![SessionTemplate::DOWNLINK_PDR, SessionTemplate::UPLINK_PDR],
        remove_fars: vec![SessionTemplate::UPLINK_FAR, SessionTemplate::DOWNLINK_FAR],
        ..Modification::default()
    }
}

/// No End Marker is asked for.
pub(super) fn switch_path(session: &PduSession) -> Modification {
    let forwarding = to_access(None, session.template.gnb, false);
    Modification {
        update_pdrs: vec![again(downlink(session))],
        update_fars: vec![update(SessionTemplate::DOWNLINK_FAR, ApplyAction::FORWARD, Some(forwarding))],
        ..Modification::default()
    }
}
