//! What a request leaves to this node: F-TEIDs and UE addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use litemap::LiteMap;

use super::Upf;
use super::named::instance_named;
use super::pool::Lease;
use super::session::SessionState;
use crate::ids::{EndpointId, InstanceId};
use crate::key::SessionKey;
use crate::node::NodeSettings;
use kaido_n4::{
    Cause, ChooseOr, CreatedPdr, CreatedTrafficEndpoint, FTeid, Interface, Ipv6Prefix, LocalFTeid,
    NetworkInstance, Pdi, Pdr, Rejection, RuleId, Teid, TrafficEndpoint, TrafficEndpointId, UeIpAddress,
    UpdatePdr, UpdateTrafficEndpoint,
};

/// TEIDs tried before the node says that it has none left.
const TEID_ATTEMPTS: u32 = 64;

/// From where a rule's packets come, and in which IP domain.
type Domain<'d> = (Interface, Option<&'d NetworkInstance>);

/// What was allocated for a request and goes back when it is refused.
#[derive(Debug, Default)]
pub(super) struct Allocation {
    pub(super) created: Vec<CreatedPdr>,
    pub(super) updated: Vec<CreatedPdr>,
    pub(super) created_endpoints: Vec<CreatedTrafficEndpoint>,
    pub(super) leases: Vec<Lease>,
    /// UE addresses by network instance: a session has one of each family, however many rules ask.
    ue: BTreeMap<InstanceId, (Option<Ipv4Addr>, Option<Ipv6Prefix>)>,
    /// F-TEIDs by CHOOSE ID.
    by_choose_id: BTreeMap<u8, FTeid>,
    /// The source interfaces of the PDRs that name traffic endpoints.
    sources: LiteMap<TrafficEndpointId, Interface>,
    /// Keys taken by TEIDs of this request that are not in the table yet.
    teids: BTreeSet<SessionKey>,
}

impl Allocation {
    /// Nothing yet, for a request about a session with these rules. Their CHOOSE IDs stand for what was allocated for them. The UE
    /// keeps the addresses that it was given, as the SMF of SD-Core repeats the choice in every update.
    pub(super) fn in_session(settings: &NodeSettings, state: &SessionState) -> Self {
        let rules = &state.rules;
        let of_pdrs = rules.pdrs.values().filter_map(|pdr| pdr.pdi.local_fteid);
        let of_endpoints = rules.endpoints.values().filter_map(|endpoint| endpoint.local_fteid);
        let by_choose_id = of_pdrs.chain(of_endpoints).filter_map(|local| match local {
            LocalFTeid::Chosen { fteid, choose_id } => Some((choose_id, fteid)),
            LocalFTeid::Given(_) | LocalFTeid::Choose { .. } => None,
        });
        let mut allocation = Self { by_choose_id: by_choose_id.collect(), ..Self::default() };
        rules.pdrs.values().for_each(|pdr| allocation.note_source(&pdr.pdi));
        let leased = |of_family: fn(&Lease) -> bool| state.leases.iter().any(of_family);
        let v4_leased = leased(|lease| matches!(lease, Lease::Ipv4(..)));
        let v6_leased = leased(|lease| matches!(lease, Lease::Ipv6(..)));
        for pdr in rules.ever_detecting() {
            let Ok(instance) = instance_named(settings, pdr.pdi.network_instance.as_ref()) else { continue };
            for ue in &pdr.pdi.ue_ip {
                let (ipv4, ipv6) = allocation.ue.entry(instance).or_default();
                *ipv4 = ipv4.or(ue.ipv4.filter(|_| v4_leased).and_then(ChooseOr::given));
                *ipv6 = ipv6.or(ue.ipv6.filter(|_| v6_leased).and_then(ChooseOr::given));
            }
        }
        allocation
    }

    fn note_source(&mut self, pdi: &Pdi) {
        self.sources.extend(pdi.traffic_endpoints.iter().map(|&id| (id, pdi.source_interface)));
    }

    fn source_of(&self, id: TrafficEndpointId) -> Interface {
        self.sources.get(&id).copied().unwrap_or_default()
    }

    fn endpoint(&mut self, id: TrafficEndpointId, local_fteid: Option<FTeid>, ue_ip: Option<UeIpAddress>) {
        if local_fteid.is_some() || ue_ip.is_some() {
            self.created_endpoints.push(CreatedTrafficEndpoint { id, local_fteid, ue_ip });
        }
    }
}

impl Upf {
    /// Fills in what the control plane left to us, in all PDRs of a request.
    pub(super) fn allocate(
        &mut self,
        pdrs: &mut [Pdr],
        allocation: &mut Allocation,
    ) -> Result<(), Rejection> {
        for pdr in pdrs {
            allocation.note_source(&pdr.pdi);
            let Pdi { local_fteid, ue_ip, network_instance, source_interface, .. } = &mut pdr.pdi;
            let domain = (*source_interface, network_instance.as_ref());
            let (local_fteid, ue_ip) = self
                .allocate_for(local_fteid, ue_ip, domain, allocation)
                .map_err(|fault| fault.rule(RuleId::Pdr(pdr.id)))?;
            if local_fteid.is_some() || ue_ip.is_some() {
                allocation.created.push(CreatedPdr { id: pdr.id, local_fteid, ue_ip });
            }
        }
        Ok(())
    }

    /// As [`Upf::allocate`], in changes of PDRs.
    pub(super) fn allocate_in_updates(
        &mut self,
        updates: &mut [UpdatePdr],
        allocation: &mut Allocation,
    ) -> Result<(), Rejection> {
        for update in updates {
            let Some(pdi) = &mut update.pdi else { continue };
            let Pdi { local_fteid, ue_ip, network_instance, source_interface, .. } = pdi;
            let domain = (*source_interface, network_instance.as_ref());
            let (local_fteid, ue_ip) = self
                .allocate_for(local_fteid, ue_ip, domain, allocation)
                .map_err(|fault| fault.rule(RuleId::Pdr(update.id)))?;
            if local_fteid.is_some() || ue_ip.is_some() {
                allocation.updated.push(CreatedPdr { id: update.id, local_fteid, ue_ip });
            }
        }
        Ok(())
    }

    /// As [`Upf::allocate`], in traffic endpoints.
    pub(super) fn allocate_in_endpoints(
        &mut self,
        endpoints: &mut [TrafficEndpoint],
        allocation: &mut Allocation,
    ) -> Result<(), Rejection> {
        for endpoint in endpoints {
            let TrafficEndpoint { id, local_fteid, ue_ip, network_instance, .. } = endpoint;
            let domain = (allocation.source_of(*id), network_instance.as_ref());
            let (local_fteid, ue_ip) = self.allocate_for(local_fteid, ue_ip, domain, allocation)?;
            allocation.endpoint(*id, local_fteid, ue_ip);
        }
        Ok(())
    }

    /// As [`Upf::allocate`], in changes of a session's traffic endpoints.
    pub(super) fn allocate_in_endpoint_updates(
        &mut self,
        known: &LiteMap<TrafficEndpointId, TrafficEndpoint>,
        updates: &mut [UpdateTrafficEndpoint],
        allocation: &mut Allocation,
    ) -> Result<(), Rejection> {
        for UpdateTrafficEndpoint { id, local_fteid, ue_ip, network_instance, .. } in updates {
            let kept = known.get(id).and_then(|endpoint| endpoint.network_instance.as_ref());
            let name = network_instance.as_ref().or(kept);
            let ue_ip = ue_ip.as_deref_mut().unwrap_or_default();
            let domain = (allocation.source_of(*id), name);
            let (local_fteid, ue_ip) = self.allocate_for(local_fteid, ue_ip, domain, allocation)?;
            allocation.endpoint(*id, local_fteid, ue_ip);
        }
        Ok(())
    }

    /// Fills in an F-TEID and UE addresses, and says which.
    fn allocate_for(
        &mut self,
        local_fteid: &mut Option<LocalFTeid>,
        ue_ip: &mut [UeIpAddress],
        domain: Domain<'_>,
        allocation: &mut Allocation,
    ) -> Result<(Option<FTeid>, Option<UeIpAddress>), Rejection> {
        let mut created = None;
        if let Some(LocalFTeid::Choose { ipv4, ipv6, choose_id }) = *local_fteid {
            let known = choose_id.and_then(|id| allocation.by_choose_id.get(&id).copied());
            let fteid = match known {
                Some(fteid) => fteid,
                None => self.allocate_fteid(ipv4, ipv6, domain, allocation)?,
            };
            *local_fteid = Some(match choose_id {
                Some(choose_id) => {
                    allocation.by_choose_id.insert(choose_id, fteid);
                    LocalFTeid::Chosen { fteid, choose_id }
                }
                None => LocalFTeid::Given(fteid),
            });
            created = Some(fteid);
        }
        Ok((created, self.allocate_ue_addresses(ue_ip, domain.1, allocation)?))
    }

    fn allocate_fteid(
        &mut self,
        ipv4: bool,
        ipv6: bool,
        (interface, instance): Domain<'_>,
        allocation: &mut Allocation,
    ) -> Result<FTeid, Rejection> {
        let refuse = |detail: &str| Rejection::new(Cause::InvalidFTeidAllocation, detail);
        let endpoints = self.node.settings.endpoints_for(interface, instance, None);
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
            if teid.0 != 0
                && keys.iter().all(|key| !allocation.teids.contains(key) && self.owner(key).is_none())
            {
                allocation.teids.extend(keys);
                return Ok(FTeid { teid, ipv4, ipv6 });
            }
        }
        Err(refuse("no free TEID was found"))
    }

    fn allocate_ue_addresses(
        &mut self,
        ue_ip: &mut [UeIpAddress],
        network_instance: Option<&NetworkInstance>,
        allocation: &mut Allocation,
    ) -> Result<Option<UeIpAddress>, Rejection> {
        let mut created = None;
        for ue in ue_ip {
            let wants_v4 = ue.ipv4 == Some(ChooseOr::Choose);
            let wants_v6 = ue.ipv6 == Some(ChooseOr::Choose);
            if !wants_v4 && !wants_v6 {
                continue;
            }
            let instance = instance_named(&self.node.settings, network_instance)?;
            let possible = (!wants_v4 || self.ue_pools.has_ipv4(instance))
                && (!wants_v6 || self.ue_pools.has_ipv6(instance));
            if !possible {
                let detail = "this node has no UE address pool for it";
                return Err(Rejection::new(Cause::ServiceNotSupported, detail));
            }
            let occupied =
                || Rejection::new(Cause::AllDynamicAddressesOccupied, "the UE address pool is used up");
            let known = allocation.ue.entry(instance).or_default();
            if wants_v4 {
                let addr = match known.0 {
                    Some(addr) => addr,
                    None => {
                        let (addr, lease) = self.ue_pools.take_ipv4(instance).ok_or_else(occupied)?;
                        allocation.leases.push(lease);
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
                        allocation.leases.push(lease);
                        *known.1.insert(prefix)
                    }
                };
                ue.ipv6 = Some(ChooseOr::Given(prefix));
            }
            created = Some(*ue);
        }
        Ok(created)
    }
}
