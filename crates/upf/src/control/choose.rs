//! What a request leaves to this node: F-TEIDs and UE addresses.

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr};

use super::Upf;
use super::compile::instance;
use super::pool::Lease;
use crate::record::{EndpointId, InstanceId, SessionKey};
use crate::rules::{
    Cause, ChooseOr, CreatedPdr, FTeid, Ipv6Prefix, LocalFTeid, Pdr, PdrId, Rejection, RuleId, Teid,
    UeIpAddress,
};

/// TEIDs tried before the node says that it has none left.
const TEID_ATTEMPTS: u32 = 64;

/// What was chosen for a request and goes back when it is refused.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) created: Vec<CreatedPdr>,
    pub(super) leases: Vec<Lease>,
    /// UE addresses by network instance: a session has one of each family, however many rules ask.
    ue: HashMap<InstanceId, (Option<Ipv4Addr>, Option<Ipv6Prefix>)>,
    /// F-TEIDs by CHOOSE ID.
    by_choose_id: HashMap<u8, FTeid>,
    /// Keys taken by TEIDs of this request that are not in the table yet.
    teids: BTreeSet<SessionKey>,
}

impl Upf {
    /// Fills in what the control plane left to us, in all PDRs of a request.
    pub(super) fn choose(&mut self, pdrs: &mut [Pdr], chosen: &mut Chosen) -> Result<(), Rejection> {
        for pdr in pdrs {
            let mut created = CreatedPdr { id: pdr.id, local_fteid: None, ue_ip: None };
            if let Some(LocalFTeid::Choose { ipv4, ipv6, choose_id }) = pdr.pdi.local_fteid {
                let known = choose_id.and_then(|id| chosen.by_choose_id.get(&id).copied());
                let fteid = match known {
                    Some(fteid) => fteid,
                    None => self.choose_fteid(pdr.id, ipv4, ipv6, chosen)?,
                };
                if let Some(id) = choose_id {
                    chosen.by_choose_id.insert(id, fteid);
                }
                pdr.pdi.local_fteid = Some(LocalFTeid::Given(fteid));
                created.local_fteid = Some(fteid);
            }
            created.ue_ip = self.choose_ue_addresses(pdr, chosen)?;
            if created.local_fteid.is_some() || created.ue_ip.is_some() {
                chosen.created.push(created);
            }
        }
        Ok(())
    }

    fn choose_fteid(
        &mut self,
        pdr: PdrId,
        ipv4: bool,
        ipv6: bool,
        chosen: &mut Chosen,
    ) -> Result<FTeid, Rejection> {
        let refuse = |detail: &str| {
            Rejection::new(Cause::InvalidFTeidAllocation, format!("PDR {pdr}: {detail}"))
                .rule(RuleId::Pdr(pdr))
        };
        let endpoints = self.node.settings.endpoints.clone();
        let own_v4 =
            endpoints.iter().find_map(|addr| if let IpAddr::V4(v4) = addr { Some(*v4) } else { None });
        let own_v6 =
            endpoints.iter().find_map(|addr| if let IpAddr::V6(v6) = addr { Some(*v6) } else { None });
        let (ipv4, ipv6) = (own_v4.filter(|_| ipv4), own_v6.filter(|_| ipv6));
        if ipv4.is_none() && ipv6.is_none() {
            return Err(refuse("no GTP-U address of the wanted family"));
        }
        for _ in 0..TEID_ATTEMPTS {
            #[allow(clippy::cast_possible_truncation)] // Half of the hash is enough.
            let teid = Teid(self.issue() as u32);
            // Free at every endpoint, so that a TEID names one session in logs.
            let keys: Vec<_> = (0..endpoints.len())
                .filter_map(|at| u8::try_from(at).ok())
                .map(|at| SessionKey::tunnel(EndpointId(at), teid))
                .collect();
            if teid.0 != 0 && keys.iter().all(|key| !chosen.teids.contains(key) && self.owner(key).is_none())
            {
                chosen.teids.extend(keys);
                return Ok(FTeid { teid, ipv4, ipv6 });
            }
        }
        Err(refuse("no free TEID was found"))
    }

    fn choose_ue_addresses(
        &mut self,
        pdr: &mut Pdr,
        chosen: &mut Chosen,
    ) -> Result<Option<UeIpAddress>, Rejection> {
        let mut created = None;
        for at in 0..pdr.pdi.ue_ip.len() {
            let mut ue = pdr.pdi.ue_ip[at];
            let wants_v4 = ue.ipv4 == Some(ChooseOr::Choose);
            let wants_v6 = ue.ipv6 == Some(ChooseOr::Choose);
            if !wants_v4 && !wants_v6 {
                continue;
            }
            let instance = instance(&self.node.settings, pdr)?;
            let possible = (!wants_v4 || self.ue_pools.has_ipv4(instance))
                && (!wants_v6 || self.ue_pools.has_ipv6(instance));
            if !possible {
                return Err(Rejection::new(
                    Cause::ServiceNotSupported,
                    format!("PDR {}: this node has no UE address pool for it", pdr.id),
                )
                .rule(RuleId::Pdr(pdr.id)));
            }
            let occupied = || {
                Rejection::new(Cause::AllDynamicAddressesOccupied, "the UE address pool is used up")
                    .rule(RuleId::Pdr(pdr.id))
            };
            let known = chosen.ue.entry(instance).or_default();
            if wants_v4 {
                let addr = match known.0 {
                    Some(addr) => addr,
                    None => {
                        let (addr, lease) = self.ue_pools.take_ipv4(instance).ok_or_else(occupied)?;
                        chosen.leases.push(lease);
                        *known.0.insert(addr)
                    }
                };
                ue.ipv4 = Some(ChooseOr::Given(addr));
            }
            if wants_v6 {
                let prefix = match known.1 {
                    Some(prefix) => prefix,
                    None => {
                        let (prefix, lease) = self.ue_pools.take_ipv6(instance).ok_or_else(occupied)?;
                        chosen.leases.push(lease);
                        *known.1.insert(prefix)
                    }
                };
                ue.ipv6 = Some(ChooseOr::Given(prefix));
            }
            pdr.pdi.ue_ip[at] = ue;
            created = Some(ue);
        }
        Ok(created)
    }
}
