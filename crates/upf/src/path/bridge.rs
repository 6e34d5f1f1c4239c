//! The node as a bridge: frames between Ethernet sessions and the LANs of their network instances.

use std::collections::HashMap;
use std::sync::Arc;

use kaido_engine::{DropReason, Frame, Output, PortId};
use kaido_table::Guard;
use kaido_wire::{ArpOperation, ArpRepr, EtherType, MacAddr};

use super::Worker;
use super::context::{ArrivalInfo, FrameContext, Origin};
use super::copy::copy_of;
use super::lan::write_arp;
use super::proxy::ProxyQuery;
use crate::UpfDrop;
use crate::action::Action;
use crate::ethernet::fdb::{LearnedAddress, Owner, Refusal};
use crate::ethernet::frame::{ADDRESSES, EthernetFrame, put_tags, take_tags};
use crate::ethernet::lan::EthernetLanId;
use crate::ethernet::{Station, UnknownUnicast};
use crate::extended::{Bridging, EthernetRule, UeToUe};
use crate::ids::{InstanceId, SessionIndex};
use crate::key::SessionKey;
use crate::node::WorkerEvent;
use crate::record::Record;
use crate::ue::Direction;

/// Sessions that a frame to many goes to, and how many it does not go to as they are too many.
type Members = (Arc<[SessionIndex]>, usize);

/// Sessions that frames to many go to, by network instance and whether within a virtual network; and how many more there
/// are.
#[derive(Debug, Default)]
pub(super) struct Flood {
    known: HashMap<(InstanceId, bool), Members>,
    /// Of the members, when `known` was begun.
    generation: u64,
}

/// Where a frame is, on its way through the bridge.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passage {
    pub(super) instance: InstanceId,
    pub(super) virtual_network: bool,
    /// Where it came in.
    pub(super) port: PortId,
    /// The session that sent it.
    pub(super) sender: Option<SessionIndex>,
}

impl Passage {
    pub(super) fn station(&self, seen: &EthernetFrame) -> Station {
        Station { instance: self.instance, vlan: seen.vlan(), mac: seen.source }
    }

    fn destination(&self, seen: &EthernetFrame) -> Station {
        Station { mac: seen.destination, ..self.station(seen) }
    }
}

impl Worker {
    /// A frame that a session sends, and that its rules let out.
    pub(super) fn bridge(
        &mut self,
        context: &FrameContext<'_>,
        action: &Action,
        rule: &EthernetRule,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        let FrameContext { guard, record, arrival, seen } = *context;
        let from = arrival.port;
        let Some(to) = rule.bridging else { return out.drop(from, frame, DropReason::NO_ROUTE) };
        if seen.is_reserved() {
            return self.refuse_frame(context, action, frame, UpfDrop::ETHERNET_RESERVED, out);
        }
        let (session, octets) = (record.session(), seen.len);
        let sent = (seen.service_tag, seen.customer_tag);
        if !rule.tags_on.is_empty() && !put_tags(&mut frame, &rule.tags_on) {
            return out.drop(from, frame, DropReason::NO_HEADROOM);
        }
        let Ok(seen) = &EthernetFrame::read(frame.data(), frame.packet_len()) else {
            return out.drop(from, frame, DropReason::INNER_MALFORMED);
        };
        // With the tags that were put on.
        let context = &FrameContext { seen, ..*context };
        let Bridging { instance, virtual_network, .. } = to;
        let passage = Passage { instance, virtual_network, port: from, sender: Some(session) };
        let station = passage.station(seen);
        let node = self.node.clone();
        match node.ethernet.fdb.learn(guard, station, session, (action.pdr, sent), out.now()) {
            Ok(learned) => self.tell_of(learned),
            Err(refusal) => {
                let reason = match refusal {
                    Refusal::Full => UpfDrop::ETHERNET_TABLE_FULL,
                    Refusal::Taken => UpfDrop::ETHERNET_SPOOFED,
                };
                return self.refuse_frame(context, action, frame, reason, out);
            }
        }
        let asked = self.listen(guard, station, seen, &frame);
        if let Some(asked) =
            asked.filter(|asked| asked.is_wanted(rule.proxying) && asked.is_elsewhere(session))
            && let Some(answer) = self.answer_to(&asked, seen, &frame, out)
        {
            self.count_octets(record, action, octets, false);
            out.drop(from, frame, UpfDrop::PROXY_ANSWERED);
            return self.frame_to_session(guard, passage, session, answer, out);
        }
        let kept_apart = self.settings.live.ue_to_ue == UeToUe::Drop && !virtual_network;
        let owner = node.ethernet.fdb.owner(guard, &passage.destination(seen));
        let reason = match owner {
            Some(Owner::Session(other)) if other == session => Some(UpfDrop::ETHERNET_FILTERED),
            Some(Owner::Session(_)) if kept_apart => Some(UpfDrop::UE_TO_UE),
            None if to.lan.is_none()
                && !seen.destination.is_group()
                && node.settings.ethernet.unknown_unicast == UnknownUnicast::Drop =>
            {
                Some(UpfDrop::ETHERNET_UNKNOWN)
            }
            _ => None,
        };
        if let Some(reason) = reason {
            return self.refuse_frame(context, action, frame, reason, out);
        }
        self.count_octets(record, action, octets, false);
        let floods = seen.destination.is_group()
            || (owner.is_none() && node.settings.ethernet.unknown_unicast == UnknownUnicast::Flood);
        match owner {
            Some(Owner::Session(other)) => self.frame_to_session(guard, passage, other, frame, out),
            _ => {
                if floods && !kept_apart {
                    self.frame_to_many(guard, passage, None, seen, &frame, out);
                }
                match to.lan {
                    Some(lan) => self.frame_to_lan(lan, from, frame, out),
                    None => out.release(frame),
                }
            }
        }
    }

    /// A frame from a LAN, the outer `tags` of whose tags are the LAN's.
    #[cold]
    pub(super) fn frame_from_lan(
        &mut self,
        guard: &Guard<'_>,
        lan: EthernetLanId,
        tags: usize,
        port: PortId,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        let node = self.node.clone();
        let Some(&of_lan) = node.settings.ethernet.lans.get(lan) else {
            return out.drop(port, frame, DropReason::NOT_OURS);
        };
        let seen = if take_tags(&mut frame, tags) {
            EthernetFrame::read(frame.data(), frame.packet_len()).ok()
        } else {
            None
        };
        let Some(seen) = &seen else { return out.drop(port, frame, DropReason::ETHERNET_MALFORMED) };
        if !seen.source.is_station() {
            return out.drop(port, frame, UpfDrop::ETHERNET_SOURCE);
        }
        if seen.is_reserved() {
            return out.drop(port, frame, UpfDrop::ETHERNET_RESERVED);
        }
        let passage = Passage { instance: of_lan.instance, virtual_network: false, port, sender: None };
        let station = passage.station(seen);
        match node.ethernet.fdb.hear(guard, station, out.now()) {
            Ok(learned) => self.tell_of(learned),
            Err(_) => return out.drop(port, frame, UpfDrop::ETHERNET_LOOPED),
        }
        let asked = self.listen(guard, station, seen, &frame);
        let owner = node.ethernet.fdb.owner(guard, &passage.destination(seen));
        let floods = node.settings.ethernet.unknown_unicast == UnknownUnicast::Flood;
        match owner {
            Some(Owner::Session(session)) => self.frame_to_session(guard, passage, session, frame, out),
            Some(Owner::Network) => out.drop(port, frame, UpfDrop::ETHERNET_FILTERED),
            None if seen.destination.is_group() || floods => {
                let asked = asked.map(|asked| (asked, lan));
                if self.frame_to_many(guard, passage, asked, seen, &frame, out) {
                    out.release(frame);
                } else {
                    out.drop(port, frame, UpfDrop::NO_PDR);
                }
            }
            None => out.drop(port, frame, UpfDrop::ETHERNET_UNKNOWN),
        }
    }

    /// A frame for a session, by its rules from outside.
    pub(super) fn frame_to_session(
        &mut self,
        guard: &Guard<'_>,
        passage: Passage,
        session: SessionIndex,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        let node = self.node.clone();
        let key = passage.key(session);
        let record = node.table.get(guard, &key).filter(|record| is_of(record, session));
        let seen = EthernetFrame::read(frame.data(), frame.packet_len()).ok();
        let (Some(record), Some(seen)) = (record, seen) else {
            return out.drop(passage.port, frame, UpfDrop::ETHERNET_UNKNOWN);
        };
        let arrival = passage.arrival(key);
        self.trace_frame(record, arrival, frame, out, |worker, frame, out| {
            match worker.frame_rule(record, None, &seen, frame.data()) {
                Some(rule) => {
                    let context = FrameContext { guard, record, arrival, seen: &seen };
                    worker.admit_frame(&context, rule, frame, out);
                }
                None => out.drop(passage.port, frame, UpfDrop::NO_PDR),
            }
        });
    }

    /// Copies of a frame for all sessions of its network instance whose rules want it, except its sender; whether there
    /// is any. A question that is `asked` from a LAN may be answered in place of a session.
    fn frame_to_many(
        &mut self,
        guard: &Guard<'_>,
        passage: Passage,
        mut asked: Option<(ProxyQuery, EthernetLanId)>,
        seen: &EthernetFrame,
        frame: &Frame,
        out: &mut Output<'_>,
    ) -> bool {
        let node = self.node.clone();
        let (members, more) = self.members(passage.instance, passage.virtual_network);
        (0..more).for_each(|_| out.count_drop(passage.port, UpfDrop::FLOOD_CUT));
        let mut wanted = false;
        for &session in members.iter().filter(|&&session| passage.sender != Some(session)) {
            let key = passage.key(session);
            let Some(record) = node.table.get(guard, &key).filter(|record| is_of(record, session)) else {
                continue;
            };
            let Some(rule) = self.frame_rule(record, None, seen, frame.data()) else { continue };
            wanted = true;
            let proxying = rule.extended().and_then(|extended| extended.ethernet.as_ref());
            let proxying = proxying.map(|rule| rule.proxying).unwrap_or_default();
            if let Some((question, lan)) = asked.filter(|(question, _)| question.is_wanted(proxying)) {
                if question.is_of(session)
                    && let Some(answer) = self.answer_to(&question, seen, frame, out)
                {
                    asked = Some((question.answered(), lan));
                    self.frame_to_lan(lan, passage.port, answer, out);
                }
                // Who is asked for is known, and is nobody else.
                continue;
            }
            let Some(copy) = copy_of(frame, out) else {
                out.count_drop(passage.port, DropReason::NO_FRAME);
                continue;
            };
            let arrival = passage.arrival(key);
            self.trace_frame(record, arrival, copy, out, |worker, copy, out| {
                let context = FrameContext { guard, record, arrival, seen };
                worker.admit_frame(&context, rule, copy, out);
            });
        }
        wanted
    }

    /// The sessions that a frame to many goes to, and how many it does not go to as they are too many.
    fn members(&mut self, instance: InstanceId, within: bool) -> Members {
        let fdb = &self.node.ethernet.fdb;
        let generation = fdb.members_changed();
        if generation != self.flood.generation {
            self.flood.known.clear();
            self.flood.generation = generation;
        }
        let (members, more) = self.flood.known.entry((instance, within)).or_insert_with(|| {
            let (some, all) = fdb.members(instance, within, self.node.settings.ethernet.flood_max);
            let more = all - some.len();
            (some.into(), more)
        });
        (members.clone(), *more)
    }

    /// Sends a frame into a LAN, with its tags.
    pub(super) fn frame_to_lan(
        &mut self,
        lan: EthernetLanId,
        from: PortId,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        let Some(lan) = self.node.settings.ethernet.lans.get(lan) else {
            return out.drop(from, frame, DropReason::NO_ROUTE);
        };
        let payload = EthernetFrame::read(frame.data(), frame.packet_len()).map(|seen| seen.payload_len());
        if payload.is_ok_and(|octets| octets > self.role(lan.port).mtu) {
            return out.drop(from, frame, DropReason::TOO_BIG);
        }
        if let Some(tags) = lan.tags {
            let (octets, _) = tags.header(EtherType(0));
            if !put_tags(&mut frame, &octets[..tags.len()]) {
                return out.drop(from, frame, DropReason::NO_HEADROOM);
            }
        }
        out.transmit(lan.port, frame);
    }

    /// Tells the control side whose addresses have changed.
    fn tell_of(&mut self, LearnedAddress { gained, lost }: LearnedAddress) {
        for session in [gained, lost].into_iter().flatten() {
            self.send_event(WorkerEvent::Stations { session });
        }
    }

    /// Tells a LAN that an address is here now, by an ARP announcement that names no IP address: for the switches on the
    /// way (TS 23.502 4.3.5.8).
    #[cold]
    pub(super) fn announce(&mut self, station: &Station, out: &mut Output<'_>) {
        let node = self.node.clone();
        let lans = &node.settings.ethernet.lans;
        let Some((id, lan)) = lans.of_instance(station.instance).and_then(|id| Some((id, lans.get(id)?)))
        else {
            return;
        };
        let nobody = [0; 4].into();
        let announcement = ArpRepr {
            operation: ArpOperation::Request,
            sender_mac: MacAddr(station.mac.0),
            sender_ip: nobody,
            target_mac: MacAddr(station.mac.0),
            target_ip: nobody,
        };
        let Some(mut frame) = out.allocate() else {
            return out.count_drop(lan.port, DropReason::NO_FRAME);
        };
        let tag = |kind: EtherType, vid: Option<u16>| {
            vid.map(|vid| [kind.0.to_be_bytes(), vid.to_be_bytes()].concat()).unwrap_or_default()
        };
        let header = [
            &MacAddr::BROADCAST.0[..],
            &station.mac.0,
            &tag(EtherType::QINQ, station.vlan.service),
            &tag(EtherType::VLAN, station.vlan.customer),
            &EtherType::ARP.0.to_be_bytes(),
        ]
        .concat();
        if write_arp(&announcement, &mut frame).is_some() && prepend_header(&mut frame, &header) {
            self.frame_to_lan(id, lan.port, frame, out);
        } else {
            out.release(frame);
        }
    }
}

impl Passage {
    /// The key of a session's rules for frames of this passage.
    fn key(&self, session: SessionIndex) -> SessionKey {
        let key = SessionKey::ethernet(self.instance, session);
        if self.virtual_network { key.within_virtual_network() } else { key }
    }

    fn arrival(&self, key: SessionKey) -> ArrivalInfo {
        let origin = if self.sender.is_some() { Origin::OtherUe } else { Origin::Port };
        ArrivalInfo { origin, ..ArrivalInfo::new(self.port, key, None) }
    }
}

fn is_of(record: &Record, session: SessionIndex) -> bool {
    record.session() == session && record.direction() == Direction::Downlink && record.is_ethernet()
}

/// Puts a header before what a frame holds; `false` when there is no room.
pub(super) fn prepend_header(frame: &mut Frame, header: &[u8]) -> bool {
    debug_assert!(header.len() > ADDRESSES);
    let Some(head) = frame.prepend(header.len()) else { return false };
    head[..header.len()].copy_from_slice(header);
    true
}
