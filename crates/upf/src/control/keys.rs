//! Under which keys the packets of a rule are found.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::ops::{Deref, Range};

use super::ethernet;
use super::named::instance;
use super::pdr::reject;
use super::ruleset::RuleSet;
use crate::ids::{InstanceId, SessionIndex};
use crate::key::SessionKey;
use crate::node::NodeSettings;
use kaido_n4::{ChooseOr, FTeid, Interface, OuterHeaderRemoval, Pdr, Rejection};

/// The keys of a session, by rule.
///
/// A packet's session is found first, and then the first rule of the session that matches it (TS 29.244 5.2.1). So a rule
/// without F-TEID and UE address is about all packets that come from its source interface. It stands under every key that
/// the session's other rules of that interface have. Open5GS makes the downlink PDRs of dedicated QoS flows so.
#[derive(Debug)]
pub(super) struct SessionKeys {
    /// Those that rules give themselves, rule by rule.
    own: Vec<SessionKey>,
    rules: Vec<OwnKeys>,
}

/// What a rule has of [`SessionKeys::own`].
#[derive(Debug)]
struct OwnKeys {
    keys: Range<usize>,
    source: Interface,
    /// It is about packets that other rules' keys are found by.
    is_found_by_others: bool,
}

impl SessionKeys {
    /// The keys of `pdrs`, which are those of a whole session; of an Ethernet session `of_frames`.
    pub(super) fn new<'p>(
        settings: &NodeSettings,
        of_frames: Option<SessionIndex>,
        pdrs: impl IntoIterator<Item = &'p Pdr>,
    ) -> Result<Self, Rejection> {
        let mut all = Self { own: Vec::new(), rules: Vec::new() };
        for pdr in pdrs {
            let begin = all.own.len();
            own_keys(settings, pdr, of_frames, &mut all.own)?;
            all.rules.push(OwnKeys {
                keys: begin..all.own.len(),
                source: pdr.pdi.source_interface,
                is_found_by_others: is_found_by_others(pdr, of_frames),
            });
        }
        Ok(all)
    }

    /// The keys under which packets of a rule are found, which is at a place of the session's rules.
    pub(super) fn of(&self, place: usize, pdr: &Pdr) -> Result<Cow<'_, [SessionKey]>, Rejection> {
        let found = self.found(place);
        if found.is_empty() {
            let detail = "neither it nor another PDR of its source interface has an F-TEID or a UE address";
            return Err(reject(pdr, detail));
        }
        Ok(found)
    }

    fn found(&self, place: usize) -> Cow<'_, [SessionKey]> {
        let Some(rule) = self.rules.get(place) else { return Cow::Borrowed(&[]) };
        let own = &self.own[rule.keys.clone()];
        if !(own.is_empty() || rule.is_found_by_others) {
            return Cow::Borrowed(own);
        }
        let same = |other: &&OwnKeys| other.source == rule.source && !other.is_found_by_others;
        let mut others: Vec<_> =
            self.rules.iter().filter(same).flat_map(|other| &self.own[other.keys.clone()]).copied().collect();
        others.sort_unstable();
        others.dedup();
        if others.is_empty() { Cow::Borrowed(own) } else { Cow::Owned(others) }
    }
}

/// Whether a rule is about packets that other rules' keys are found by. Uplink packets come out of a tunnel, also where a rule
/// gives only the UE address that they come from.
fn is_found_by_others(pdr: &Pdr, of_frames: Option<SessionIndex>) -> bool {
    of_frames.is_none() && pdr.pdi.local_fteid.is_none() && pdr.pdi.source_interface == Interface::Access
}

/// Adds the keys that a rule gives itself, if any.
pub(super) fn own_keys(
    settings: &NodeSettings,
    pdr: &Pdr,
    of_frames: Option<SessionIndex>,
    to: &mut Vec<SessionKey>,
) -> Result<(), Rejection> {
    let begin = to.len();
    match pdr.pdi.local_fteid {
        Some(local) => match local.given() {
            Some(fteid) => tunnel_keys(settings, pdr, fteid, to)?,
            None => return Err(reject(pdr, "its F-TEID was left to choose")),
        },
        None => match of_frames {
            Some(session) => to.push(ethernet::key(settings, pdr, session)?),
            None if pdr.pdi.ue_ip.is_empty() && pdr.pdi.framed_routes.is_empty() => {}
            None => ue_keys(pdr, instance(settings, pdr)?, to)?,
        },
    }
    if pdr.pdi.source_interface == Interface::VnInternal {
        to[begin..].iter_mut().for_each(|key| *key = key.within_virtual_network());
    }
    Ok(())
}

/// Adds the keys of a tunnel: one for each family of its F-TEID that Outer Header Removal names. Where that names another
/// family than the F-TEID has, as control planes do that always send 0, one for all.
fn tunnel_keys(
    settings: &NodeSettings,
    pdr: &Pdr,
    fteid: FTeid,
    to: &mut Vec<SessionKey>,
) -> Result<(), Rejection> {
    let (v4, v6) = match pdr.outer_header_removal {
        Some(OuterHeaderRemoval::GtpUUdpIpv4) if fteid.ipv4.is_some() => (true, false),
        Some(OuterHeaderRemoval::GtpUUdpIpv6) if fteid.ipv6.is_some() => (false, true),
        _ => (true, true),
    };
    let addresses = [fteid.ipv4.filter(|_| v4).map(IpAddr::V4), fteid.ipv6.filter(|_| v6).map(IpAddr::V6)];
    for addr in addresses.into_iter().flatten() {
        let endpoint = settings.endpoint(addr).ok_or_else(|| {
            reject(pdr, &format!("its F-TEID is at {addr}, which is no GTP-U address of this node"))
        })?;
        to.push(SessionKey::tunnel(endpoint, fteid.teid));
    }
    Ok(())
}

/// All keys of a session whose rules were compiled before.
pub(crate) fn all_keys(
    rules: &RuleSet,
    settings: &NodeSettings,
    session: SessionIndex,
) -> BTreeSet<SessionKey> {
    let detecting: Vec<_> = rules.detecting().collect();
    let of_frames = rules.ethernet.then_some(session);
    let keys = SessionKeys::new(settings, of_frames, detecting.iter().map(Deref::deref));
    let Ok(keys) = keys else { return BTreeSet::new() };
    let mut all = BTreeSet::new();
    (0..detecting.len()).for_each(|place| all.extend(keys.found(place).iter().copied()));
    all
}

fn ue_keys(pdr: &Pdr, instance: InstanceId, to: &mut Vec<SessionKey>) -> Result<(), Rejection> {
    for ue in &pdr.pdi.ue_ip {
        if let Some(ChooseOr::Given(addr)) = ue.ipv4 {
            to.push(SessionKey::ipv4(instance, addr));
        }
        if let Some(ChooseOr::Given(prefix)) = ue.ipv6 {
            if prefix.len != 64 {
                return Err(reject(pdr, "its IPv6 prefix is not a /64"));
            }
            to.push(SessionKey::ipv6(instance, prefix.addr));
        }
    }
    to.extend(pdr.pdi.framed_routes.iter().map(|route| SessionKey::framed(instance, route)));
    Ok(())
}
