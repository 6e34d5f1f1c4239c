//! Ethernet sessions on the control side: what their rules are compiled to, which addresses they name, and reports of
//! addresses that come and go (TS 29.244 5.13).

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant, SystemTime};

use kaido_wire::EtherType;
use litemap::LiteMap;

use super::named::{instance, instance_named};
use super::pdr::{direction, reject};
use super::ruleset::RuleSet;
use super::session::Session;
use super::{Upf, millis};
use crate::ethernet::Station;
use crate::ethernet::fdb::{Changes, SentTags};
use crate::ethernet::frame::Vlan;
use crate::extended::{Bridging, EthernetRule};
use crate::ids::{InstanceId, SessionIndex};
use crate::key::{KeyParts, SessionKey};
use crate::node::{Node, PolicyTarget, WorkerOrder};
use crate::record::Record;
use crate::ue::Direction;
use kaido_n4::{
    Cause, EthernetFilter, EthernetTraffic, Far, ForwardingParameters, Interface, MacList,
    OuterHeaderRemoval, Pdi, Pdr, PdrId, Rejection, ReportingTriggers, RuleId, SessionEvent, TagCreation,
    UsageReportTrigger, VlanTag,
};

/// IE types named as offending (TS 29.244 8.1.1).
mod ie {
    pub(super) const NETWORK_INSTANCE: u16 = 22;
    pub(super) const APPLICATION_ID: u16 = 24;
    pub(super) const REDIRECT_INFORMATION: u16 = 38;
    pub(super) const FORWARDING_POLICY: u16 = 41;
    pub(super) const OUTER_HEADER_CREATION: u16 = 84;
    pub(super) const UE_IP_ADDRESS: u16 = 93;
    pub(super) const OUTER_HEADER_REMOVAL: u16 = 95;
    pub(super) const PDN_TYPE: u16 = 113;
    pub(super) const ETHERNET_PACKET_FILTER: u16 = 132;
    pub(super) const PROXYING: u16 = 137;
    pub(super) const FRAMED_ROUTE: u16 = 153;
}

/// Most Ethernet packet filters in a session, with the flow filters in them.
const FILTERS_MAX: usize = 1024;

/// An address that a session's rules name, the rule, and the tags that go with it.
type NamedStation = (Station, PdrId, SentTags);

impl RuleSet {
    /// Keeps the Ethernet filters that were given a name, in the place of older ones of that name, as long as a PDR has or
    /// names them (TS 29.244 5.13.4).
    pub(crate) fn name_ethernet_filters<'p>(
        &mut self,
        given: impl Iterator<Item = &'p Pdi>,
    ) -> Result<(), Rejection> {
        for pdi in given {
            for filter in &pdi.ethernet_filters {
                if let Some(id) = filter.id {
                    self.ethernet_filters.insert(id, (filter.clone(), is_uplink(pdi)));
                }
            }
        }
        let (mut count, mut used) = (0, BTreeSet::new());
        for pdr in self.pdrs.values() {
            let (own, named) = (&pdr.pdi.ethernet_filters, &pdr.pdi.ethernet_filter_ids);
            count += own.iter().map(|filter| 1 + filter.flows.len()).sum::<usize>() + named.len();
            if count > FILTERS_MAX {
                let detail = format!("more than {FILTERS_MAX} Ethernet filters in a session");
                return Err(Rejection::new(Cause::NoResourcesAvailable, detail).rule(RuleId::Pdr(pdr.id)));
            }
            let serves = |id: &u32| {
                self.ethernet_filters
                    .get(id)
                    .is_some_and(|(filter, uplink)| filter.bidirectional || *uplink == is_uplink(&pdr.pdi))
            };
            if let Some(id) = named.iter().find(|id| !serves(id)) {
                let detail = format!("PDR {}: the session has no Ethernet filter {id} for it", pdr.id);
                return Err(Rejection::new(Cause::MandatoryIeIncorrect, detail)
                    .ie(ie::ETHERNET_PACKET_FILTER)
                    .rule(RuleId::Pdr(pdr.id)));
            }
            used.extend(own.iter().filter_map(|filter| filter.id).chain(named.iter().copied()));
        }
        self.ethernet_filters.retain(|id, _| used.contains(id));
        Ok(())
    }

    /// All Ethernet filters of a PDI, also those that are only named, as its direction sees them.
    pub(super) fn ethernet_filters(&self, pdi: &Pdi) -> Vec<EthernetFilter> {
        let named = |id: &u32| {
            let (filter, uplink) = self.ethernet_filters.get(id)?;
            Some(if *uplink == is_uplink(pdi) { filter.clone() } else { filter.reversed() })
        };
        let own = pdi
            .ethernet_filters
            .iter()
            .map(|own| own.id.and_then(|id| named(&id)).unwrap_or_else(|| own.clone()));
        own.chain(pdi.ethernet_filter_ids.iter().filter_map(named)).collect()
    }
}

fn is_uplink(pdi: &Pdi) -> bool {
    pdi.source_interface == Interface::Access
}

fn refuse(rule: RuleId, cause: Cause, ie: u16, detail: &str) -> Rejection {
    Rejection::new(cause, format!("{rule:?}: {detail}")).ie(ie).rule(rule)
}

/// Checks that a rule asks for what goes with the session's PDN type.
pub(super) fn check(rules: &RuleSet, node: &Node, pdr: &Pdr) -> Result<(), Rejection> {
    let wrong = |ie, detail| Err(refuse(RuleId::Pdr(pdr.id), Cause::MandatoryIeIncorrect, ie, detail));
    let pdi = &pdr.pdi;
    let removes_tags = pdr.outer_header_removal.is_some_and(|removal| removal.tags() > 0);
    if !rules.ethernet {
        let frames = pdi.ethernet || !pdi.ethernet_filters.is_empty() || !pdi.ethernet_filter_ids.is_empty();
        let named = named_lan(node, pdi)?;
        return match (frames || removes_tags, named) {
            (true, _) => wrong(ie::PDN_TYPE, "is about Ethernet frames, and the PDN type is not Ethernet"),
            (_, true) => wrong(ie::NETWORK_INSTANCE, "names a network instance of Ethernet sessions"),
            _ => Ok(()),
        };
    }
    if !pdi.ue_ip.is_empty() {
        return wrong(ie::UE_IP_ADDRESS, "has an IP address, and the PDN type is Ethernet");
    }
    if !pdi.framed_routes.is_empty() {
        return wrong(ie::FRAMED_ROUTE, "has framed routes, and the PDN type is Ethernet");
    }
    if pdi.application_id.is_some() {
        let (cause, detail) =
            (Cause::ServiceNotSupported, "applications are not detected in Ethernet sessions");
        return Err(refuse(RuleId::Pdr(pdr.id), cause, ie::APPLICATION_ID, detail));
    }
    if removes_tags && pdi.local_fteid.is_some() {
        return wrong(ie::OUTER_HEADER_REMOVAL, "takes tags off what comes from a tunnel");
    }
    Ok(())
}

/// Whether a PDI names a network instance of Ethernet sessions.
fn named_lan(node: &Node, pdi: &Pdi) -> Result<bool, Rejection> {
    let lans = &node.settings.ethernet.lans;
    if lans.is_empty() || pdi.network_instance.is_none() || pdi.local_fteid.is_some() {
        return Ok(false);
    }
    let instance = instance_named(&node.settings, pdi.network_instance.as_ref())?;
    Ok(lans.of_instance(instance).is_some())
}

/// The key of a rule of an Ethernet session without tunnel.
pub(super) fn key(
    node: &crate::node::NodeSettings,
    pdr: &Pdr,
    session: SessionIndex,
) -> Result<SessionKey, Rejection> {
    if direction(pdr) == Direction::Uplink {
        return Err(reject(pdr, "comes from the access and has no F-TEID"));
    }
    let instance = instance(node, pdr)?;
    let within = pdr.pdi.source_interface == Interface::VnInternal;
    if !within && node.ethernet.lans.of_instance(instance).is_none() {
        return Err(reject(pdr, "its network instance has no Ethernet LAN").ie(ie::NETWORK_INSTANCE));
    }
    Ok(SessionKey::ethernet(instance, session))
}

/// What a rule of an Ethernet session asks for.
pub(super) fn rule(rules: &RuleSet, node: &Node, pdr: &Pdr, far: &Far) -> Result<EthernetRule, Rejection> {
    let tags_off = pdr.outer_header_removal.map_or(0, OuterHeaderRemoval::tags);
    let Some(forwarding) = &far.forwarding else {
        return Ok(EthernetRule { tags_off, ..EthernetRule::default() });
    };
    let steering = forwarding.steering.as_deref();
    let unsupported = |ie, detail| Err(refuse(RuleId::Far(far.id), Cause::ServiceNotSupported, ie, detail));
    if steering.is_some_and(|steering| steering.redirect.is_some()) {
        return unsupported(ie::REDIRECT_INFORMATION, "frames are not redirected");
    }
    if steering.is_some_and(|steering| steering.header.is_some()) {
        return unsupported(ie::OUTER_HEADER_CREATION, "frames get no header of IP or UDP");
    }
    Ok(EthernetRule {
        bridging: bridging(rules, node, pdr, far, forwarding)?,
        tags_on: steering.and_then(|steering| steering.tags).map(octets_of).unwrap_or_default(),
        tags_off,
        proxying: steering.and_then(|steering| steering.proxying).unwrap_or_default(),
    })
}

/// Refuses what only rules of Ethernet sessions may ask for.
pub(super) fn refuse_frames(node: &Node, far: &Far) -> Result<(), Rejection> {
    let name = far.forwarding.as_ref().and_then(|forwarding| forwarding.network_instance.as_ref());
    let lans = &node.settings.ethernet.lans;
    if !lans.is_empty()
        && let Some(name) = name
        && lans.of_instance(instance_named(&node.settings, Some(name))?).is_some()
    {
        let detail = "its network instance is one of Ethernet sessions";
        let cause = Cause::RuleCreationOrModificationFailure;
        return Err(refuse(RuleId::Far(far.id), cause, ie::NETWORK_INSTANCE, detail));
    }
    let steering = far.forwarding.as_ref().and_then(|forwarding| forwarding.steering.as_deref());
    let refused = |ie, detail| Err(refuse(RuleId::Far(far.id), Cause::ServiceNotSupported, ie, detail));
    match steering {
        Some(steering) if steering.tags.is_some() => {
            refused(ie::OUTER_HEADER_CREATION, "VLAN tags are for Ethernet sessions")
        }
        Some(steering) if steering.proxying.is_some() => {
            refused(ie::PROXYING, "proxying is for Ethernet sessions")
        }
        _ => Ok(()),
    }
}

/// Where frames go that the UE sends, if not into a tunnel.
fn bridging(
    rules: &RuleSet,
    node: &Node,
    pdr: &Pdr,
    far: &Far,
    forwarding: &ForwardingParameters,
) -> Result<Option<Bridging>, Rejection> {
    let leaves = far.apply_action.forward && forwarding.outer_header_creation.is_none();
    if !leaves || direction(pdr) != Direction::Uplink {
        return Ok(None);
    }
    let policy = forwarding.steering.as_deref().and_then(|steering| steering.policy.as_ref());
    let instance = match policy {
        Some(name) => match node.names().policy(name) {
            Some(PolicyTarget::Instance(instance)) => instance,
            Some(PolicyTarget::NextHop(_)) | None => {
                let detail = "the forwarding policy leads to no network instance";
                let cause = Cause::InvalidForwardingPolicy;
                return Err(refuse(RuleId::Far(far.id), cause, ie::FORWARDING_POLICY, detail));
            }
        },
        None => exit_instance(rules, node, forwarding)?,
    };
    let virtual_network = forwarding.destination_interface == Interface::VnInternal;
    let lan = node.settings.ethernet.lans.of_instance(instance);
    if lan.is_none() && !virtual_network {
        let detail = "the network instance has no Ethernet LAN";
        let cause = Cause::RuleCreationOrModificationFailure;
        return Err(refuse(RuleId::Far(far.id), cause, ie::NETWORK_INSTANCE, detail));
    }
    Ok(Some(Bridging { instance, virtual_network, lan: lan.filter(|_| !virtual_network) }))
}

/// The network instance that a FAR names, or else that of the session's frames from outside.
fn exit_instance(
    rules: &RuleSet,
    node: &Node,
    forwarding: &ForwardingParameters,
) -> Result<InstanceId, Rejection> {
    if forwarding.network_instance.is_some() {
        return instance_named(&node.settings, forwarding.network_instance.as_ref());
    }
    let from_outside = |pdr: &Pdr| direction(pdr) == Direction::Downlink && pdr.pdi.local_fteid.is_none();
    let downlink = rules.detecting().find(|pdr| from_outside(pdr));
    let name = downlink.as_ref().and_then(|pdr| pdr.pdi.network_instance.as_ref());
    instance_named(&node.settings, name)
}

/// Tags as they stand in a frame, the service tag first.
fn octets_of(tags: TagCreation) -> Box<[u8]> {
    let tag = |kind: EtherType, tag: Option<VlanTag>| {
        tag.map(|tag| [kind.0.to_be_bytes(), tag.tci().to_be_bytes()].concat()).unwrap_or_default()
    };
    [tag(EtherType::QINQ, tags.s_tag), tag(EtherType::VLAN, tags.c_tag)].concat().into()
}

/// The VLAN of frames that have such tags.
fn vlan_of(s_tag: Option<VlanTag>, c_tag: Option<VlanTag>) -> Vlan {
    Vlan { service: s_tag.and_then(|tag| tag.vid), customer: c_tag.and_then(|tag| tag.vid) }
}

/// The addresses that a session's rules from outside name as destinations.
fn named(rules: &RuleSet, node: &Node) -> Vec<NamedStation> {
    let mut named = BTreeMap::new();
    let rules_in = rules.detecting().filter(|pdr| !is_uplink(&pdr.pdi) && pdr.pdi.local_fteid.is_none());
    for pdr in rules_in {
        let Ok(instance) = instance(&node.settings, &pdr) else { continue };
        for filter in rules.ethernet_filters(&pdr.pdi) {
            let vlan = vlan_of(filter.s_tag, filter.c_tag);
            let destinations = filter.addresses.iter().filter_map(|pair| pair.destination);
            for range in destinations.filter(|range| range.low == range.high && range.low.is_station()) {
                let tags = (filter.s_tag.map(VlanTag::tci), filter.c_tag.map(VlanTag::tci));
                named.entry(Station { instance, vlan, mac: range.low }).or_insert((pdr.id, tags));
            }
        }
    }
    named.into_iter().map(|(station, (pdr, tags))| (station, pdr, tags)).collect()
}

impl Upf {
    /// Makes sure that there is room for the addresses that an Ethernet session's rules name.
    pub(super) fn check_stations(&self, rules: &RuleSet) -> Result<(), Rejection> {
        if !rules.ethernet {
            return Ok(());
        }
        let fdb = &self.node.ethernet.fdb;
        let full = |detail: &str| Rejection::new(Cause::NoResourcesAvailable, detail);
        fdb.prepare(&self.node.domain).map_err(|_| full("no memory for Ethernet addresses"))?;
        match fdb.has_room(named(rules, &self.node).len()) {
            true => Ok(()),
            false => Err(full("more Ethernet addresses than a session or the node may have")),
        }
    }

    /// Has frames find an Ethernet session by the network instances of its records and the addresses that its rules name.
    pub(super) fn place_stations(
        &mut self,
        session: SessionIndex,
        rules: &RuleSet,
        records: &LiteMap<SessionKey, Record>,
    ) {
        if !rules.ethernet {
            return;
        }
        let node = self.node.clone();
        let memberships = records.keys().filter_map(|key| match key.parts() {
            KeyParts::Ethernet(instance, within) => Some((instance, within)),
            _ => None,
        });
        node.ethernet.fdb.join(session, &memberships.collect());
        let guard = self.reader.pin();
        match node.ethernet.fdb.configure(&guard, session, &named(rules, &node), Instant::now()) {
            Ok(losers) => self.asked_for.extend(losers),
            // Workers have learned others since there was room.
            Err(error) => tracing::warn!(%error, "an Ethernet address of a session's rules has no place"),
        }
    }

    /// Takes over the addresses that a session had at another user plane, and tells the LAN that they are here now
    /// (TS 29.244 5.13.6).
    pub(super) fn adopt_stations(&mut self, session: SessionIndex, rules: &RuleSet, lists: &[MacList]) {
        let uplink = rules.pdrs.values().find(|pdr| is_uplink(&pdr.pdi)).map_or(PdrId(0), |pdr| pdr.id);
        let node = self.node.clone();
        let from_outside = |pdr: &Pdr| !is_uplink(&pdr.pdi) && pdr.pdi.local_fteid.is_none();
        let downlink = rules.detecting().find(|pdr| from_outside(pdr));
        let Some(Ok(instance)) = downlink.map(|pdr| instance(&node.settings, &pdr)) else { return };
        let guard = self.reader.pin();
        for list in lists {
            let vlan = vlan_of(list.s_tag, list.c_tag);
            let tags = (list.s_tag.map(VlanTag::tci), list.c_tag.map(VlanTag::tci));
            for &mac in list.addresses.iter().filter(|mac| mac.is_station()) {
                let station = Station { instance, vlan, mac };
                let adopted =
                    node.ethernet.fdb.adopt(&guard, session, (station, uplink, tags), Instant::now());
                match adopted {
                    Ok(loser) => {
                        self.asked_for.extend(loser);
                        node.order(WorkerOrder::Announce(station));
                    }
                    Err(error) => tracing::warn!(%error, %mac, "an Ethernet address was not taken over"),
                }
            }
        }
        self.asked_for.push(session);
    }

    /// Forgets the addresses of a session, all of whose records are gone.
    pub(super) fn forget_stations(&mut self, session: SessionIndex) {
        let node = self.node.clone();
        node.ethernet.fdb.forget(&self.reader.pin(), session);
    }

    /// Reports what has changed of the addresses of sessions that control itself has changed.
    pub(super) fn turn_stations(&mut self, now: SystemTime, out: &mut Vec<SessionEvent>) {
        for session in std::mem::take(&mut self.asked_for) {
            self.stations_changed(session, now, out);
        }
        let moment = Instant::now();
        let ageing = self.node.settings.ethernet.ageing;
        if self.node.settings.ethernet.lans.is_empty()
            || moment.saturating_duration_since(self.network_swept) < (ageing / 4).max(Duration::from_secs(1))
        {
            return;
        }
        self.network_swept = moment;
        let node = self.node.clone();
        let guard = self.reader.pin();
        node.ethernet.fdb.sweep_network(&guard, moment);
        node.ethernet.bindings.retain(|station| node.ethernet.fdb.owner(&guard, station).is_some());
    }

    /// A worker has learned addresses of a session, or another has taken some of its.
    pub(super) fn stations_changed(
        &mut self,
        session: SessionIndex,
        now: SystemTime,
        out: &mut Vec<SessionEvent>,
    ) {
        let changes = self.node.ethernet.fdb.take_changes(session);
        let Some(mut session) = self.sessions.get(session) else { return };
        report(&mut session, &changes, now, out);
        let look = millis(now).saturating_add(self.ageing_ms(&session) / 4);
        let next = session.state.stations_look.map_or(look, |before| before.min(look));
        session.state.stations_look = Some(next);
        self.rest(&session);
    }

    /// Looks which addresses of a session are in use, when it is time to.
    pub(super) fn look_at_stations(
        &mut self,
        session: &mut Session,
        now: SystemTime,
        out: &mut Vec<SessionEvent>,
    ) {
        let at = millis(now);
        if session.state.stations_look.is_none_or(|look| look > at) {
            return;
        }
        let ageing = self.ageing_ms(session);
        let node = self.node.clone();
        let fdb = &node.ethernet.fdb;
        session.state.stations_look = fdb.look(&self.reader.pin(), session.index, ageing, at);
        let changes = fdb.take_changes(session.index);
        report(session, &changes, now, out);
    }

    /// Silence after which an address of a session has gone, in milliseconds: by its URRs, or else the node's.
    fn ageing_ms(&self, session: &Session) -> u64 {
        let timers = session.state.rules.urrs.values().filter_map(|urr| urr.ethernet_inactivity_timer);
        let ageing = timers.min().unwrap_or(self.node.settings.ethernet.ageing);
        u64::try_from(ageing.as_millis()).unwrap_or(u64::MAX).max(1000)
    }
}

/// Makes the reports of the URRs that ask for addresses (MACAR, TS 29.244 5.13.5).
fn report(session: &mut Session, changes: &Changes, now: SystemTime, out: &mut Vec<SessionEvent>) {
    if changes.detected.is_empty() && changes.removed.is_empty() {
        return;
    }
    let kept = &mut session.state;
    let mut reports = Vec::new();
    for (id, meter) in &mut kept.meters {
        let Some(urr) = kept.rules.urrs.get(id) else { continue };
        let pdrs = &kept.rules.pdrs;
        let counted = |pdr: PdrId| pdrs.get(&pdr).is_some_and(|pdr| pdr.urr_ids.contains(id));
        let ethernet = EthernetTraffic {
            detected: Changes::lists(&changes.detected, counted),
            removed: Changes::lists(&changes.removed, counted),
        };
        if !ethernet.is_empty() && meter.reports(urr, ReportingTriggers::MACAR) {
            let mut report = meter.notice(urr, UsageReportTrigger::MACAR, now);
            report.ethernet = ethernet;
            reports.push(report);
        }
    }
    if !reports.is_empty() {
        out.push(SessionEvent::Usage { seid: session.seid, reports });
    }
}
