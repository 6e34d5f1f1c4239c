//! Under which keys the packets of a rule are found.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::compile::{instance, reject};
use super::ethernet;
use super::ruleset::RuleSet;
use crate::node::NodeSettings;
use crate::record::{InstanceId, SessionIndex, SessionKey};
use crate::rules::{ChooseOr, Interface, LocalFTeid, OuterHeaderRemoval, Pdr, Rejection};

/// The keys under which packets of a rule are found; of an Ethernet session `of_frames`.
pub(super) fn keys(
    settings: &NodeSettings,
    pdr: &Pdr,
    of_frames: Option<SessionIndex>,
) -> Result<Vec<SessionKey>, Rejection> {
    let keys = match pdr.pdi.local_fteid {
        Some(LocalFTeid::Given(fteid)) => {
            let (v4, v6) = match pdr.outer_header_removal {
                Some(OuterHeaderRemoval::GtpUUdpIpv4) => (true, false),
                Some(OuterHeaderRemoval::GtpUUdpIpv6) => (false, true),
                // Tags are taken off frames that come from no tunnel.
                Some(
                    OuterHeaderRemoval::GtpUUdpIp
                    | OuterHeaderRemoval::ServiceTag
                    | OuterHeaderRemoval::BothTags,
                )
                | None => (true, true),
            };
            let addresses =
                [fteid.ipv4.filter(|_| v4).map(IpAddr::V4), fteid.ipv6.filter(|_| v6).map(IpAddr::V6)];
            addresses
                .into_iter()
                .flatten()
                .map(|addr| {
                    let endpoint = settings.endpoint(addr);
                    let endpoint = endpoint.ok_or_else(|| {
                        reject(
                            pdr,
                            &format!("its F-TEID is at {addr}, which is no GTP-U address of this node"),
                        )
                    })?;
                    Ok(SessionKey::tunnel(endpoint, fteid.teid))
                })
                .collect::<Result<Vec<_>, Rejection>>()?
        }
        Some(LocalFTeid::Choose { .. }) => return Err(reject(pdr, "its F-TEID was left to choose")),
        None => match of_frames {
            Some(session) => vec![ethernet::key(settings, pdr, session)?],
            None => ue_keys(pdr, instance(settings, pdr)?)?,
        },
    };
    let keys: Vec<_> = match pdr.pdi.source_interface {
        Interface::VnInternal => keys.into_iter().map(SessionKey::within_virtual_network).collect(),
        _ => keys,
    };
    if keys.is_empty() {
        return Err(reject(pdr, "neither F-TEID nor UE address says which packets it is about"));
    }
    Ok(keys)
}

/// All keys of a session whose rules were compiled before.
pub(crate) fn all_keys(
    rules: &RuleSet,
    settings: &NodeSettings,
    session: SessionIndex,
) -> BTreeSet<SessionKey> {
    let of_frames = rules.ethernet.then_some(session);
    rules.detecting().flat_map(|pdr| keys(settings, &pdr, of_frames).unwrap_or_default()).collect()
}

fn ue_keys(pdr: &Pdr, instance: InstanceId) -> Result<Vec<SessionKey>, Rejection> {
    let mut keys = Vec::new();
    for ue in &pdr.pdi.ue_ip {
        if let Some(ChooseOr::Given(addr)) = ue.ipv4 {
            keys.push(SessionKey::ipv4(instance, addr));
        }
        if let Some(ChooseOr::Given(prefix)) = ue.ipv6 {
            if prefix.len != 64 {
                return Err(reject(pdr, "its IPv6 prefix is not a /64"));
            }
            keys.push(SessionKey::ipv6(instance, prefix.addr));
        }
    }
    keys.extend(pdr.pdi.framed_routes.iter().map(|route| SessionKey::framed(instance, route)));
    Ok(keys)
}
