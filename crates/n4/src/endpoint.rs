//! Traffic endpoints (TS 29.244 5.2.3.1 b, 7.5.2.7): what several PDIs have in common, said once.

use serde::{Deserialize, Serialize};

use super::{FTeid, FramedRoute, LocalFTeid, NetworkInstance, Pdi, Qfi, UeIpAddress};

/// Traffic Endpoint ID (TS 29.244 8.2.92), unique in its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TrafficEndpointId(pub u8);

/// A traffic endpoint, whole (Create Traffic Endpoint, TS 29.244 7.5.2.7).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficEndpoint {
    /// Its name within the session.
    pub id: TrafficEndpointId,
    /// Tunnel endpoint on which packets arrive.
    pub local_fteid: Option<LocalFTeid>,
    /// IP domain on which they arrive.
    pub network_instance: Option<NetworkInstance>,
    /// UE addresses, any of which matches.
    pub ue_ip: Vec<UeIpAddress>,
    /// Networks behind the UE.
    pub framed_routes: Vec<FramedRoute>,
    /// QoS flows, any of which matches; empty matches all.
    pub qfis: Vec<Qfi>,
    /// ETHI of the Ethernet PDU Session Information: see [`Pdi::ethernet`].
    pub ethernet: bool,
}

/// Update Traffic Endpoint (TS 29.244 7.5.4.13): a field that is present replaces the old value whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UpdateTrafficEndpoint {
    /// The traffic endpoint to change.
    pub id: TrafficEndpointId,
    /// New tunnel endpoint.
    pub local_fteid: Option<LocalFTeid>,
    /// New IP domain.
    pub network_instance: Option<NetworkInstance>,
    /// New UE addresses.
    pub ue_ip: Option<Vec<UeIpAddress>>,
    /// New networks behind the UE.
    pub framed_routes: Option<Vec<FramedRoute>>,
    /// New QoS flows.
    pub qfis: Option<Vec<Qfi>>,
}

/// Created Traffic Endpoint (TS 29.244 7.5.3.5): what we chose for a traffic endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatedTrafficEndpoint {
    /// The traffic endpoint.
    pub id: TrafficEndpointId,
    /// The F-TEID chosen, if we were asked to.
    pub local_fteid: Option<FTeid>,
    /// The UE address chosen, if we were asked to.
    pub ue_ip: Option<UeIpAddress>,
}

impl TrafficEndpoint {
    /// A PDI that names this endpoint, with what the endpoint says of the packets.
    #[must_use]
    pub fn complete(&self, pdi: &Pdi) -> Pdi {
        Pdi {
            local_fteid: self.local_fteid,
            network_instance: self.network_instance.clone(),
            ue_ip: self.ue_ip.clone(),
            framed_routes: self.framed_routes.clone(),
            ethernet: self.ethernet || pdi.ethernet,
            qfis: if pdi.qfis.is_empty() { self.qfis.clone() } else { pdi.qfis.clone() },
            ..pdi.clone()
        }
    }

    /// Changes what an update names.
    pub fn update(&mut self, update: &UpdateTrafficEndpoint) {
        if update.local_fteid.is_some() {
            self.local_fteid = update.local_fteid;
        }
        if let Some(name) = &update.network_instance {
            self.network_instance = Some(name.clone());
        }
        if let Some(ue_ip) = &update.ue_ip {
            self.ue_ip.clone_from(ue_ip);
        }
        if let Some(routes) = &update.framed_routes {
            self.framed_routes.clone_from(routes);
        }
        if let Some(qfis) = &update.qfis {
            self.qfis.clone_from(qfis);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pdi_that_names_it_has_what_it_says_and_its_own_qfis() {
        let endpoint = TrafficEndpoint {
            local_fteid: Some(LocalFTeid::Given(FTeid { teid: crate::Teid(7), ipv4: None, ipv6: None })),
            network_instance: Some(NetworkInstance("core".into())),
            ue_ip: vec![UeIpAddress {
                ipv4: Some(crate::ChooseOr::Choose),
                ipv6: None,
                role: crate::UeIpRole::Destination,
            }],
            framed_routes: vec![FramedRoute::of([10, 1, 0, 0].into(), 16)],
            qfis: vec![Qfi(9)],
            ..TrafficEndpoint::default()
        };
        let complete = endpoint.complete(&Pdi::default());
        assert_eq!(complete.local_fteid, endpoint.local_fteid);
        assert_eq!(complete.network_instance, endpoint.network_instance);
        assert_eq!((&complete.ue_ip, &complete.framed_routes), (&endpoint.ue_ip, &endpoint.framed_routes));
        assert_eq!((complete.qfis, complete.ethernet), (vec![Qfi(9)], false));
        let own = Pdi { ethernet: true, qfis: vec![Qfi(1)], ..Pdi::default() };
        let complete = endpoint.complete(&own);
        assert_eq!((complete.qfis, complete.ethernet), (vec![Qfi(1)], true));
        let ethernet = TrafficEndpoint { ethernet: true, ..endpoint };
        assert!(ethernet.complete(&Pdi::default()).ethernet);
        // All that an update can name is taken from it, and an update that names nothing changes nothing.
        let mut updated = TrafficEndpoint::default();
        updated.update(&UpdateTrafficEndpoint {
            id: TrafficEndpointId(0),
            local_fteid: ethernet.local_fteid,
            network_instance: ethernet.network_instance.clone(),
            ue_ip: Some(ethernet.ue_ip.clone()),
            framed_routes: Some(ethernet.framed_routes.clone()),
            qfis: Some(ethernet.qfis.clone()),
        });
        assert_eq!(updated, TrafficEndpoint { ethernet: false, ..ethernet });
        let before = updated.clone();
        updated.update(&UpdateTrafficEndpoint::default());
        assert_eq!(updated, before);
    }
}
