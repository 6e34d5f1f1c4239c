//! Under which keys the packets of a rule are found.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::compile::{instance, reject};
use super::ethernet;
use super::ruleset::RuleSet;
use crate::node::NodeSettings;
use crate::record::{InstanceId, SessionIndex, SessionKey};
use crate::rules::{ChooseOr, FTeid, Interface, OuterHeaderRemoval, Pdr, Rejection};

/// The keys of a session, by rule.
///
/// A packet's session is found first, and then the first rule of the session that matches it (TS 29.244 5.2.1). So a rule
/// without F-TEID and UE address is about all packets that come from its source interface: it stands under every key that
/// the session's other rules of that interface have. Open5GS makes the downlink PDRs of dedicated QoS flows so.
#[derive(Debug)]
pub(super) struct SessionKeys<'s> {
    settings: &'s NodeSettings,
    of_frames: Option<SessionIndex>,
    by_source: BTreeMap<Interface, BTreeSet<SessionKey>>,
}

impl<'s> SessionKeys<'s> {
    /// The keys of `pdrs`, which are those of a whole session; of an Ethernet session `of_frames`.
    pub(super) fn new<'p>(
        settings: &'s NodeSettings,
        of_frames: Option<SessionIndex>,
        pdrs: impl IntoIterator<Item = &'p Pdr>,
    ) -> Result<Self, Rejection> {
        let mut by_source: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for pdr in pdrs {
            let own = own_keys(settings, pdr, of_frames)?;
            if !is_found_by_others(pdr, of_frames) {
                by_source.entry(pdr.pdi.source_interface).or_default().extend(own);
            }
        }
        Ok(Self { settings, of_frames, by_source })
    }

    /// The keys under which packets of a rule are found.
    pub(super) fn of(&self, pdr: &Pdr) -> Result<Vec<SessionKey>, Rejection> {
        let own = own_keys(self.settings, pdr, self.of_frames)?;
        let others = self.by_source.get(&pdr.pdi.source_interface).into_iter().flatten();
        let keys: Vec<_> = match own.is_empty() || is_found_by_others(pdr, self.of_frames) {
            true => others.copied().collect(),
            false => Vec::new(),
        };
        let keys = if keys.is_empty() { own } else { keys };
        if keys.is_empty() {
            let detail = "neither it nor another PDR of its source interface has an F-TEID or a UE address";
            return Err(reject(pdr, detail));
        }
        Ok(keys)
    }
}

/// Whether a rule is about packets that other rules' keys are found by: uplink packets come out of a tunnel, also where a rule
/// gives only the UE address that they come from.
fn is_found_by_others(pdr: &Pdr, of_frames: Option<SessionIndex>) -> bool {
    of_frames.is_none() && pdr.pdi.local_fteid.is_none() && pdr.pdi.source_interface == Interface::Access
}

/// The keys that a rule gives itself, if any.
fn own_keys(
    settings: &NodeSettings,
    pdr: &Pdr,
    of_frames: Option<SessionIndex>,
) -> Result<Vec<SessionKey>, Rejection> {
    let keys = match pdr.pdi.local_fteid {
        Some(local) => match local.given() {
            Some(fteid) => tunnel_keys(settings, pdr, fteid)?,
            None => return Err(reject(pdr, "its F-TEID was left to choose")),
        },
        None => match of_frames {
            Some(session) => vec![ethernet::key(settings, pdr, session)?],
            None if pdr.pdi.ue_ip.is_empty() && pdr.pdi.framed_routes.is_empty() => Vec::new(),
            None => ue_keys(pdr, instance(settings, pdr)?)?,
        },
    };
    Ok(match pdr.pdi.source_interface {
        Interface::VnInternal => keys.into_iter().map(SessionKey::within_virtual_network).collect(),
        _ => keys,
    })
}

/// The keys of a tunnel: one for each family of its F-TEID that Outer Header Removal names; for all where it names another
/// family than the F-TEID has, as control planes do that always send 0.
fn tunnel_keys(settings: &NodeSettings, pdr: &Pdr, fteid: FTeid) -> Result<Vec<SessionKey>, Rejection> {
    let (v4, v6) = match pdr.outer_header_removal {
        Some(OuterHeaderRemoval::GtpUUdpIpv4) if fteid.ipv4.is_some() => (true, false),
        Some(OuterHeaderRemoval::GtpUUdpIpv6) if fteid.ipv6.is_some() => (false, true),
        _ => (true, true),
    };
    let addresses = [fteid.ipv4.filter(|_| v4).map(IpAddr::V4), fteid.ipv6.filter(|_| v6).map(IpAddr::V6)];
    let key = |addr| {
        let endpoint = settings.endpoint(addr).ok_or_else(|| {
            reject(pdr, &format!("its F-TEID is at {addr}, which is no GTP-U address of this node"))
        })?;
        Ok(SessionKey::tunnel(endpoint, fteid.teid))
    };
    addresses.into_iter().flatten().map(key).collect()
}

/// All keys of a session whose rules were compiled before.
pub(crate) fn all_keys(
    rules: &RuleSet,
    settings: &NodeSettings,
    session: SessionIndex,
) -> BTreeSet<SessionKey> {
    let detecting: Vec<_> = rules.detecting().collect();
    let of_frames = rules.ethernet.then_some(session);
    let keys = SessionKeys::new(settings, of_frames, detecting.iter().map(AsRef::as_ref));
    let Ok(keys) = keys else { return BTreeSet::new() };
    detecting.iter().flat_map(|pdr| keys.of(pdr).unwrap_or_default()).collect()
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
