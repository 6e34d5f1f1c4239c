//! What a session's rules detect packets by, beyond what each PDR says itself: SDF filters by their IDs, traffic endpoints,
//! networks behind the UE.

use std::collections::BTreeSet;
use std::ops::Deref;

use super::ruleset::{RuleSet, failure};
use kaido_n4::{
    Cause, FramedRoute, NetworkInstance, Pdi, Pdr, Rejection, RuleId, SdfFilter, TrafficEndpoint,
    TrafficEndpointId, UpdateTrafficEndpoint,
};

/// Types of elements named as offending (TS 29.244 8.1.1).
mod ie {
    pub(super) const SDF_FILTER: u16 = 23;
    pub(super) const TRAFFIC_ENDPOINT_ID: u16 = 131;
}

/// Most SDF filters in a session.
const FILTERS_MAX: usize = 1024;
/// Most framed routes in a session, counted where they are given.
const FRAMED_ROUTES_MAX: usize = 64;

/// A PDR, with what the traffic endpoint says that it names. It is handed on by its address: a PDR is large.
#[derive(Debug)]
pub(crate) enum DetectingPdr<'r> {
    /// It says all itself.
    Own(&'r Pdr),
    /// With a traffic endpoint's.
    Completed(Box<Pdr>),
}

impl Deref for DetectingPdr<'_> {
    type Target = Pdr;

    fn deref(&self) -> &Pdr {
        match self {
            Self::Own(pdr) => pdr,
            Self::Completed(pdr) => pdr,
        }
    }
}

impl RuleSet {
    /// Keeps the bidirectional SDF filters that were given anew, in the place of older ones of their names, as long as a
    /// PDR has or names them (TS 29.244 8.2.5).
    pub(crate) fn name_filters<'p>(&mut self, given: impl Iterator<Item = &'p Pdi>) -> Result<(), Rejection> {
        for filter in given.flat_map(|pdi| &pdi.sdf_filters) {
            if let Some(id) = filter.id {
                self.filters.insert(id, filter.clone());
            }
        }
        let mut count = 0;
        for pdr in self.pdrs.values() {
            count += pdr.pdi.sdf_filters.len() + pdr.pdi.sdf_filter_ids.len();
            if count > FILTERS_MAX {
                let detail = format!("more than {FILTERS_MAX} SDF filters in a session");
                return Err(Rejection::new(Cause::NoResourcesAvailable, detail).rule(RuleId::Pdr(pdr.id)));
            }
            if let Some(id) = pdr.pdi.sdf_filter_ids.iter().find(|id| !self.filters.contains_key(id)) {
                let detail = format!("PDR {}: the session has no SDF filter {id}", pdr.id);
                return Err(Rejection::new(Cause::MandatoryIeIncorrect, detail)
                    .ie(ie::SDF_FILTER)
                    .rule(RuleId::Pdr(pdr.id)));
            }
        }
        let all = self.pdrs.values().map(|pdr| &pdr.pdi);
        let used: BTreeSet<u32> = all
            .flat_map(|pdi| {
                let own = pdi.sdf_filters.iter().filter_map(|filter| filter.id);
                own.chain(pdi.sdf_filter_ids.iter().copied())
            })
            .collect();
        self.filters.retain(|id, _| used.contains(id));
        Ok(())
    }

    /// All SDF filters of a PDI, also those that are only named.
    pub(crate) fn sdf_filters(&self, pdi: &Pdi) -> Vec<SdfFilter> {
        let own =
            pdi.sdf_filters.iter().map(|own| own.id.and_then(|id| self.filters.get(&id)).unwrap_or(own));
        own.chain(pdi.sdf_filter_ids.iter().filter_map(|id| self.filters.get(id))).cloned().collect()
    }

    /// Adds traffic endpoints (TS 29.244 7.5.2.7).
    pub(crate) fn add_endpoints(&mut self, endpoints: &[TrafficEndpoint]) -> Result<(), Rejection> {
        for endpoint in endpoints {
            if self.endpoints.insert(endpoint.id, endpoint.clone()).is_some() {
                return Err(no_endpoint(format!("traffic endpoint {} exists already", endpoint.id.0)));
            }
        }
        Ok(())
    }

    /// Removes traffic endpoints, and the PDRs that name them (TS 29.244 7.5.4.14).
    pub(crate) fn remove_endpoints(&mut self, ids: &[TrafficEndpointId]) -> Result<(), Rejection> {
        for id in ids {
            if self.endpoints.remove(id).is_none() {
                return Err(no_endpoint(format!("traffic endpoint {} is not there", id.0)));
            }
            self.pdrs.retain(|_, pdr| !pdr.pdi.traffic_endpoints.contains(id));
        }
        Ok(())
    }

    /// Changes traffic endpoints (TS 29.244 7.5.4.13).
    pub(crate) fn update_endpoints(&mut self, updates: &[UpdateTrafficEndpoint]) -> Result<(), Rejection> {
        for update in updates {
            let endpoint = self.endpoints.get_mut(&update.id);
            let absent = || no_endpoint(format!("traffic endpoint {} is not there", update.id.0));
            endpoint.ok_or_else(absent)?.update(update);
        }
        Ok(())
    }

    /// Every PDR in its time, with what its traffic endpoints say; one that names several appears once for each.
    pub(crate) fn detecting(&self) -> impl Iterator<Item = DetectingPdr<'_>> {
        self.ever_detecting().filter(|pdr| !self.dormant.contains(&pdr.id))
    }

    /// As [`RuleSet::detecting`], at any time.
    pub(crate) fn ever_detecting(&self) -> impl Iterator<Item = DetectingPdr<'_>> {
        self.pdrs.values().flat_map(|pdr| {
            let own = pdr.pdi.traffic_endpoints.is_empty().then_some(DetectingPdr::Own(pdr));
            let named = pdr.pdi.traffic_endpoints.iter().filter_map(|id| self.endpoints.get(id));
            let complete = |endpoint: &TrafficEndpoint| {
                DetectingPdr::Completed(Box::new(Pdr { pdi: endpoint.complete(&pdr.pdi), ..pdr.clone() }))
            };
            own.into_iter().chain(named.map(complete))
        })
    }

    /// The network instances that PDRs, FARs and traffic endpoints name, some of them several times.
    pub(crate) fn network_instances(&self) -> impl Iterator<Item = &NetworkInstance> {
        let by_pdrs = self.pdrs.values().map(|pdr| &pdr.pdi.network_instance);
        let forwarding = self.fars.values().filter_map(|far| far.forwarding.as_ref());
        let by_fars = forwarding.map(|forwarding| &forwarding.network_instance);
        let by_endpoints = self.endpoints.values().map(|endpoint| &endpoint.network_instance);
        by_pdrs.chain(by_fars).chain(by_endpoints).flatten()
    }

    /// Checks that the traffic endpoints which PDRs name are there, and that framed routes are not too many.
    pub(crate) fn check_endpoints(&self) -> Result<(), Rejection> {
        for pdr in self.pdrs.values() {
            let absent = pdr.pdi.traffic_endpoints.iter().find(|id| !self.endpoints.contains_key(id));
            if let Some(id) = absent {
                let detail = format!("names traffic endpoint {}, which is not there", id.0);
                return Err(failure(RuleId::Pdr(pdr.id), &detail).ie(ie::TRAFFIC_ENDPOINT_ID));
            }
        }
        let of_rules = self.pdrs.values().map(|pdr| pdr.pdi.framed_routes.len());
        let routes: usize = of_rules.chain(self.endpoints.values().map(|own| own.framed_routes.len())).sum();
        if routes > FRAMED_ROUTES_MAX {
            let detail = format!("more than {FRAMED_ROUTES_MAX} framed routes in a session");
            return Err(Rejection::new(Cause::NoResourcesAvailable, detail));
        }
        Ok(())
    }

    /// The networks behind the UE, by whichever rule they are given.
    pub(crate) fn framed_routes(&self) -> Vec<FramedRoute> {
        let of_rules = self.pdrs.values().flat_map(|pdr| &pdr.pdi.framed_routes);
        let all: BTreeSet<_> =
            of_rules.chain(self.endpoints.values().flat_map(|own| &own.framed_routes)).collect();
        all.into_iter().copied().collect()
    }
}

/// There is no Failed Rule ID for traffic endpoints (TS 29.244 8.2.80).
fn no_endpoint(detail: String) -> Rejection {
    Rejection::new(Cause::RuleCreationOrModificationFailure, detail).ie(ie::TRAFFIC_ENDPOINT_ID)
}
