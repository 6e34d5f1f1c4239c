//! The rules of a session as the control plane has them, and how a request changes them.

use std::collections::BTreeSet;

use litemap::LiteMap;
use serde::{Deserialize, Serialize};

use crate::qos::PolicerSlot;
use kaido_n4::{
    BarId, BufferingRule, Cause, EthernetFilter, Far, FarId, ForwardingParameters, Modification,
    OuterHeaderCreation, Pdr, PdrId, Qer, QerId, Rejection, RemovedForwarding, RuleId, SdfFilter, Srr, SrrId,
    TrafficEndpoint, TrafficEndpointId, UpdateFar, UpdatePdr, UpdateQer, UpdateUrr, Urr, UrrId,
};

/// All rules of a session. A copy is changed and compiled; only then it takes the old one's place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuleSet {
    pub(crate) pdrs: LiteMap<PdrId, Pdr>,
    pub(crate) fars: LiteMap<FarId, Far>,
    pub(crate) qers: LiteMap<QerId, Qer>,
    pub(crate) urrs: LiteMap<UrrId, Urr>,
    pub(crate) bars: LiteMap<BarId, BufferingRule>,
    pub(crate) srrs: LiteMap<SrrId, Srr>,
    /// Bidirectional SDF filters by their SDF Filter ID, as they were last given.
    pub(crate) filters: LiteMap<u32, SdfFilter>,
    /// Ethernet filters by their Ethernet Filter ID, as they were last given, and whether that was for the uplink.
    pub(crate) ethernet_filters: LiteMap<u32, (EthernetFilter, bool)>,
    pub(crate) endpoints: LiteMap<TrafficEndpointId, TrafficEndpoint>,
    /// What enforces the rates of the QERs that have any.
    pub(crate) policers: LiteMap<QerId, PolicerSlot>,
    /// What measures the guarantees of the QERs that have any.
    pub(crate) guarantees: LiteMap<QerId, PolicerSlot>,
    /// PDRs outside their time.
    pub(crate) dormant: BTreeSet<PdrId>,
    /// When others are, in milliseconds.
    pub(crate) switches_at: Option<u64>,
    /// PDN Type is Ethernet.
    pub(crate) ethernet: bool,
}

/// Most rules of each kind in a session.
const RULES_MAX: usize = 256;

pub(super) fn failure(rule: RuleId, detail: &str) -> Rejection {
    Rejection::new(Cause::RuleCreationOrModificationFailure, format!("{rule}: {detail}")).rule(rule)
}

macro_rules! rule_map {
    ($add:ident, $remove:ident, $map:ident, $id:ty, $rule:ty, $variant:ident) => {
        pub(crate) fn $add(&mut self, rule: $rule) -> Result<(), Rejection> {
            let id = rule.id;
            if self.$map.len() >= RULES_MAX && !self.$map.contains_key(&id) {
                return Err(Rejection::new(
                    Cause::NoResourcesAvailable,
                    format!("more than {RULES_MAX} rules of a kind in a session"),
                )
                .rule(RuleId::$variant(id)));
            }
            // One that exists is replaced: the SMF of free5GC creates rules again that a session has.
            self.$map.insert(id, rule);
            Ok(())
        }

        fn $remove(&mut self, id: $id) -> Result<(), Rejection> {
            self.$map.remove(&id).map(drop).ok_or_else(|| failure(RuleId::$variant(id), "is not there"))
        }
    };
}

impl RuleSet {
    rule_map!(add_pdr, remove_pdr, pdrs, PdrId, Pdr, Pdr);
    rule_map!(add_far, remove_far, fars, FarId, Far, Far);
    rule_map!(add_qer, remove_qer, qers, QerId, Qer, Qer);
    rule_map!(add_urr, remove_urr, urrs, UrrId, Urr, Urr);
    rule_map!(add_bar, remove_bar, bars, BarId, BufferingRule, Bar);
    rule_map!(add_srr, remove_srr, srrs, SrrId, Srr, Srr);

    /// Applies a modification, in the order of TS 29.244 7.5.4.1: removals, creations, updates.
    /// Returns the tunnels that are to end with an End Marker.
    pub(crate) fn modify(&mut self, request: &Modification) -> Result<Vec<OuterHeaderCreation>, Rejection> {
        request.remove_pdrs.iter().try_for_each(|&id| self.remove_pdr(id))?;
        self.remove_endpoints(&request.remove_traffic_endpoints)?;
        request.remove_fars.iter().try_for_each(|&id| self.remove_far(id))?;
        request.remove_qers.iter().try_for_each(|&id| self.remove_qer(id))?;
        request.remove_urrs.iter().try_for_each(|&id| self.remove_urr(id))?;
        request.remove_bars.iter().try_for_each(|&id| self.remove_bar(id))?;
        request.remove_srrs.iter().try_for_each(|&id| self.remove_srr(id))?;
        // What refers to a removed URR or QER simply does so no longer, unless another takes its place.
        let stays = |id: &UrrId| {
            !request.remove_urrs.contains(id) || request.create_urrs.iter().any(|urr| urr.id == *id)
        };
        for (_, pdr) in &mut self.pdrs {
            pdr.urr_ids.retain(stays);
            pdr.qer_ids.retain(|id| !request.remove_qers.contains(id));
        }
        self.add_endpoints(&request.create_traffic_endpoints)?;
        self.update_endpoints(&request.update_traffic_endpoints)?;
        request.create_pdrs.iter().try_for_each(|rule| self.add_pdr(rule.clone()))?;
        request.create_fars.iter().try_for_each(|rule| self.add_far(rule.clone()))?;
        request.create_qers.iter().try_for_each(|&rule| self.add_qer(rule))?;
        request.create_urrs.iter().try_for_each(|rule| self.add_urr(rule.clone()))?;
        request.create_bars.iter().try_for_each(|&rule| self.add_bar(rule))?;
        request.create_srrs.iter().try_for_each(|rule| self.add_srr(rule.clone()))?;
        request.update_pdrs.iter().try_for_each(|update| self.update_pdr(update))?;
        let updated = request.update_pdrs.iter().filter_map(|update| update.pdi.as_ref());
        let given = request.create_pdrs.iter().map(|pdr| &pdr.pdi).chain(updated);
        self.name_filters(given.clone())?;
        self.name_ethernet_filters(given)?;
        request.update_qers.iter().try_for_each(|update| self.update_qer(update))?;
        request.update_urrs.iter().try_for_each(|update| self.update_urr(update))?;
        for update in &request.update_bars {
            let bar = self.bars.get_mut(&update.id);
            update.apply(bar.ok_or_else(|| failure(RuleId::Bar(update.id), "is not there"))?);
        }
        for update in &request.update_srrs {
            let srr = self.srrs.get_mut(&update.id);
            let srr = srr.ok_or_else(|| failure(RuleId::Srr(update.id), "is not there"))?;
            set(&mut srr.monitoring, update.monitoring.clone());
        }
        let mut ended = Vec::new();
        for update in &request.update_fars {
            ended.extend(self.update_far(update)?);
        }
        Ok(ended)
    }

    fn update_pdr(&mut self, update: &UpdatePdr) -> Result<(), Rejection> {
        let pdr =
            self.pdrs.get_mut(&update.id).ok_or_else(|| failure(RuleId::Pdr(update.id), "is not there"))?;
        set(&mut pdr.precedence, update.precedence);
        set(&mut pdr.pdi, update.pdi.clone());
        set_some(&mut pdr.outer_header_removal, update.outer_header_removal);
        if update.keeps_outer_header {
            pdr.outer_header_removal = None;
        }
        set(&mut pdr.deletes_container, update.deletes_container);
        set_some(&mut pdr.far_id, update.far_id);
        set_some(&mut pdr.activation, update.activation);
        set_some(&mut pdr.deactivation, update.deactivation);
        set(&mut pdr.urr_ids, update.urr_ids.clone());
        set(&mut pdr.qer_ids, update.qer_ids.clone());
        for name in &update.deactivate_predefined {
            let Some(at) = pdr.predefined.iter().position(|active| active == name) else {
                return Err(failure(RuleId::Pdr(update.id), "has no such predefined rule active"));
            };
            pdr.predefined.remove(at);
        }
        for name in &update.activate_predefined {
            if !pdr.predefined.contains(name) {
                pdr.predefined.push(name.clone());
            }
        }
        Ok(())
    }

    fn update_qer(&mut self, update: &UpdateQer) -> Result<(), Rejection> {
        let qer =
            self.qers.get_mut(&update.id).ok_or_else(|| failure(RuleId::Qer(update.id), "is not there"))?;
        set_some(&mut qer.correlation, update.correlation);
        set(&mut qer.gate, update.gate);
        set_some(&mut qer.mbr, update.mbr);
        set_some(&mut qer.gbr, update.gbr);
        set_some(&mut qer.qfi, update.qfi);
        set(&mut qer.reflective, update.reflective);
        set_some(&mut qer.paging_policy, update.paging_policy);
        set_some(&mut qer.averaging_window, update.averaging_window);
        set_some(&mut qer.packet_rate, update.packet_rate);
        set(&mut qer.reports_packet_rate, update.reports_packet_rate);
        Ok(())
    }

    fn update_urr(&mut self, update: &UpdateUrr) -> Result<(), Rejection> {
        let urr =
            self.urrs.get_mut(&update.id).ok_or_else(|| failure(RuleId::Urr(update.id), "is not there"))?;
        update.apply(urr);
        Ok(())
    }

    fn update_far(&mut self, update: &UpdateFar) -> Result<Option<OuterHeaderCreation>, Rejection> {
        let missing = |what| failure(RuleId::Far(update.id), what);
        let far = self.fars.get_mut(&update.id).ok_or_else(|| missing("is not there"))?;
        set(&mut far.apply_action, update.apply_action);
        set_some(&mut far.bar_id, update.bar_id);
        if update.removes_bar {
            far.bar_id = None;
        }
        let Some(change) = &update.forwarding else { return Ok(None) };
        let Some(forwarding) = &mut far.forwarding else {
            // The first parameters of a rule that did not forward so far.
            let destination_interface = change.destination_interface.ok_or_else(|| {
                missing("has no forwarding parameters to update, and no destination is given")
            })?;
            far.forwarding = Some(ForwardingParameters {
                destination_interface,
                network_instance: change.network_instance.clone(),
                outer_header_creation: change.outer_header_creation,
                transport_level_marking: change.transport_level_marking,
                steering: change.steering.clone(),
            });
            return Ok(None);
        };
        let before = forwarding.outer_header_creation;
        set(&mut forwarding.destination_interface, change.destination_interface);
        set_some(&mut forwarding.network_instance, change.network_instance.clone());
        set_some(&mut forwarding.outer_header_creation, change.outer_header_creation);
        set_some(&mut forwarding.transport_level_marking, change.transport_level_marking);
        if let Some(steering) = &change.steering {
            forwarding.steering.get_or_insert_default().update(steering);
            if steering.header.is_some() || steering.tags.is_some() {
                forwarding.outer_header_creation = None;
            }
        }
        if (change.outer_header_creation.is_some() || change.removed.outer_header_creation)
            && let Some(steering) = &mut forwarding.steering
        {
            (steering.header, steering.tags) = (None, None);
        }
        remove(forwarding, change.removed);
        Ok(before.filter(|_| change.send_end_marker))
    }
}

fn set<T>(field: &mut T, new: Option<T>) {
    if let Some(new) = new {
        *field = new;
    }
}

/// Takes parameters away.
fn remove(forwarding: &mut ForwardingParameters, removed: RemovedForwarding) {
    if removed.network_instance {
        forwarding.network_instance = None;
    }
    if removed.outer_header_creation {
        forwarding.outer_header_creation = None;
    }
    if removed.transport_level_marking {
        forwarding.transport_level_marking = None;
    }
}

fn set_some<T>(field: &mut Option<T>, new: Option<T>) {
    if new.is_some() {
        *field = new;
    }
}
