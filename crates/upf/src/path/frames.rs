//! Ethernet frames of a session: which rule a frame matches, and what becomes of it. As [`super::forward`] and
//! [`super::detect`] are for packets.

use kaido_engine::{DropReason, Frame, Output};
use kaido_table::Guard;
use kaido_wire::EtherType;

use super::Worker;
use super::charge::MatchedRule;
use super::context::{ArrivalInfo, FrameContext};
use super::detect::{flow, sdf_matches};
use super::emit::FlowFields;
use super::monitor::stamp_sent;
use super::oversize::PathMtu;
use super::parse::Packet;
use crate::UpfDrop;
use crate::action::{Action, Destination};
use crate::ethernet::frame::{ADDRESSES, EthernetFrame, take_tags};
use crate::extended::ExtendedActions;
use crate::record::{Record, RuleList, RuleView, Rules};
use crate::tunnels::Tunnel;
use crate::ue::Direction;
use kaido_n4::EthernetFilter;

impl Worker {
    /// A frame that came out of a session's tunnel.
    #[cold]
    pub(super) fn tunnelled_frame(
        &mut self,
        guard: &Guard<'_>,
        record: &Record,
        arrival: ArrivalInfo,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        let Ok(seen) = EthernetFrame::read(frame.data(), frame.packet_len()) else {
            return out.drop(arrival.port, frame, DropReason::INNER_MALFORMED);
        };
        if !seen.source.is_station() {
            return out.drop(arrival.port, frame, UpfDrop::ETHERNET_SOURCE);
        }
        let Some(rule) = self.frame_rule(record, arrival.qfi, &seen, frame.data()) else {
            return out.drop(arrival.port, frame, UpfDrop::NO_PDR);
        };
        self.admit_frame(&FrameContext { guard, record, arrival, seen: &seen }, rule, frame, out);
    }

    /// The first rule, by precedence, that a frame matches.
    pub(super) fn frame_rule<'r>(
        &self,
        record: &'r Record,
        qfi: Option<u8>,
        seen: &EthernetFrame,
        data: &[u8],
    ) -> Option<RuleView<'r>> {
        match record.rules(&self.node.tunnels) {
            Rules::Filtered(rules) => matching(rules, record.direction(), qfi, seen, data),
            Rules::One(_) => None,
        }
    }

    /// A frame that matches a rule, behind what waits of its session.
    pub(super) fn admit_frame(
        &mut self,
        context: &FrameContext<'_>,
        rule: RuleView<'_>,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        let session = context.record.session();
        if self.buffers.holds(session) {
            self.release(context.guard, session, out);
        }
        self.apply_to_frame(context, rule, frame, out);
    }

    /// Puts a frame that was buffered through its session's rules again.
    pub(super) fn release_frame(
        &mut self,
        guard: &Guard<'_>,
        record: &Record,
        arrival: ArrivalInfo,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        let seen = EthernetFrame::read(frame.data(), frame.packet_len()).ok();
        let rule = seen.and_then(|seen| self.frame_rule(record, arrival.qfi, &seen, frame.data()));
        match seen.zip(rule) {
            Some((seen, rule)) => {
                let context = FrameContext { guard, record, arrival, seen: &seen };
                self.apply_to_frame(&context, rule, frame, out);
            }
            None => out.drop(arrival.port, frame, UpfDrop::BUFFER_DISCARDED),
        }
    }

    /// Applies a rule to a frame that matches it.
    fn apply_to_frame(
        &mut self,
        context: &FrameContext<'_>,
        rule: RuleView<'_>,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        let FrameContext { record, arrival, seen, .. } = *context;
        let is_buffered = arrival.buffered_since.is_some();
        let own = rule.action(&self.node.tunnels);
        let on_quota = self.quota_action(&own, rule.on_quota());
        let (action, extended) = match on_quota {
            Some(other) => (&other.action, other.extended.as_deref()),
            None => (&own, rule.extended()),
        };
        self.note_match(action);
        if let Some(extended) = extended.filter(|extended| !extended.copies.is_empty() && !is_buffered) {
            self.duplicate(&extended.copies, flow_fields, arrival.port, &frame, out);
        }
        if !action.gate_open || action.apply.drop {
            if action.apply.drop {
                self.count_dropped(record, extended, seen.len);
            }
            let reason = if action.gate_open { UpfDrop::FAR_DROP } else { UpfDrop::GATE_CLOSED };
            return self.refuse_frame(context, action, frame, reason, out);
        }
        if action.usage.with_quota().any(|slot| self.node.usage.is_exhausted(slot)) {
            return out.drop(arrival.port, frame, UpfDrop::QUOTA_EXHAUSTED);
        }
        let on_quota_of = on_quota.map(|other| other.slot);
        let rule = &MatchedRule { record, action, key: arrival.key, on_quota_of };
        if action.apply.buffer {
            let dscp = packet_in(seen, frame.data()).map_or(0, |packet| packet.tos >> 2);
            return self.buffer(rule, extended, arrival, dscp, frame, out);
        }
        if action.destination == Destination::NoTunnel {
            return self.refuse_frame(context, action, frame, UpfDrop::FAR_NO_TUNNEL, out);
        }
        if let Some(reason) = self.exceeded_rate(record, action) {
            return self.refuse_frame(context, action, frame, reason, out);
        }
        let high_priority = out.set_high_priority(self.is_guaranteed(record, action));
        match action.destination {
            Destination::Tunnel(tunnel) => {
                self.frame_into_tunnel(context, rule, extended, &tunnel, frame, out);
            }
            Destination::Routed | Destination::NoTunnel => {
                match extended.and_then(|extended| extended.ethernet.as_deref()) {
                    Some(rule) => self.bridge(context, action, rule, frame, out),
                    None => out.drop(arrival.port, frame, DropReason::NO_ROUTE),
                }
            }
        }
        out.set_high_priority(high_priority);
    }

    /// Drops a frame that its rule does not let pass, and counts it where that is before QoS enforcement.
    pub(super) fn refuse_frame(
        &mut self,
        context: &FrameContext<'_>,
        action: &Action,
        frame: Frame,
        reason: DropReason,
        out: &mut Output<'_>,
    ) {
        self.count_octets(context.record, action, context.seen.len, true);
        out.drop(context.arrival.port, frame, reason);
    }

    /// Puts a frame into a tunnel. Nobody can be told that one is too large, so the tunnel's packet is cut then.
    fn frame_into_tunnel(
        &mut self,
        context: &FrameContext<'_>,
        rule: &MatchedRule<'_>,
        extended: Option<&ExtendedActions>,
        tunnel: &Tunnel,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        let FrameContext { arrival, seen, .. } = *context;
        let from = arrival.port;
        let tags_off =
            extended.and_then(|extended| extended.ethernet.as_ref()).map_or(0, |rule| rule.tags_off);
        let tags = usize::from(seen.service_tag.is_some()) + usize::from(seen.customer_tag.is_some());
        if tags_off > 0 && !take_tags(&mut frame, tags_off.min(tags)) {
            return out.drop(from, frame, DropReason::ETHERNET_MALFORMED);
        }
        let before = frame.packet_len();
        let peer = tunnel.encap.peer;
        let resolution = self.next_hops.resolve(peer);
        let (extensions, is_stamped) = if arrival.key.is_tunnel() {
            let deletes_container = extended.is_some_and(|extended| extended.deletes_container);
            (Some(self.stored.for_tunnel(&tunnel.encap, deletes_container)), false)
        } else {
            let stamped = self.stamped(rule.record, tunnel, resolution, before);
            let is_stamped = stamped.is_some();
            (stamped, is_stamped)
        };
        let put = match extensions {
            Some(extensions) => {
                let of_flow = flow_fields(frame.data());
                extensions.put_before(&self.settings, tunnel, of_flow, &mut frame).is_ok()
            }
            None => {
                let outer = self.outer(tunnel);
                outer.is_some_and(|outer| outer.put_before_by(tunnel.teid, &mut frame, flow_fields))
            }
        };
        if !put {
            return out.drop(from, frame, DropReason::NO_HEADROOM);
        }
        let sent = match self.exceeded(resolution, frame.packet_len()) {
            Some(mtu) => {
                let path_mtu = PathMtu { resolution, destination: peer.into(), from, mtu };
                self.outer_in_parts(rule, before, path_mtu, frame, out)
            }
            None => self.send_charged(rule, before, (resolution, peer), from, frame, out),
        };
        if sent && is_stamped {
            stamp_sent(rule.record, tunnel);
        }
    }
}

/// The first rule, by precedence, that a frame matches.
fn matching<'r>(
    rules: RuleList<'r>,
    direction: Direction,
    qfi: Option<u8>,
    seen: &EthernetFrame,
    data: &[u8],
) -> Option<RuleView<'r>> {
    let packet = packet_in(seen, data);
    let inner = data.get(seen.payload_at..).unwrap_or_default();
    let flow = packet.map(|packet| (packet, flow(direction, qfi, &packet, inner)));
    let any_of = |filters: &[_]| {
        filters.is_empty()
            || flow
                .as_ref()
                .is_some_and(|(packet, flow)| filters.iter().any(|sdf| sdf_matches(sdf, flow, packet, inner)))
    };
    let is_of = |filter: &EthernetFilter| {
        (filter.addresses.is_empty()
            || filter.addresses.iter().any(|pair| pair.matches(seen.source, seen.destination)))
            && filter.ethertype.is_none_or(|kind| kind == seen.ethertype.0)
            && filter.s_tag.is_none_or(|tag| seen.service_tag.is_some_and(|tci| tag.matches(tci)))
            && filter.c_tag.is_none_or(|tag| seen.customer_tag.is_some_and(|tci| tag.matches(tci)))
            && any_of(&filter.flows)
    };
    rules.iter().find(|rule| {
        let rule = rule.detection();
        rule.qfis.is_none_or(|qfis| qfi.is_some_and(|qfi| qfis >> (qfi & 63) & 1 != 0))
            && any_of(&rule.sdf)
            && (rule.frames.is_empty() || rule.frames.iter().any(is_of))
    })
}

/// The IP packet in a frame; `None` where there is none in order.
fn packet_in(seen: &EthernetFrame, data: &[u8]) -> Option<Packet> {
    let is_ipv4 = match seen.ethertype {
        EtherType::IPV4 => true,
        EtherType::IPV6 => false,
        _ => return None,
    };
    let packet = Packet::read(data.get(seen.payload_at..)?, seen.payload_len()).ok()?;
    (packet.dst.is_ipv4() == is_ipv4).then_some(packet)
}

/// What an outer header takes from a frame: by the IP packet in it, or else by its addresses.
fn flow_fields(data: &[u8]) -> FlowFields {
    let Ok(seen) = EthernetFrame::read(data, data.len()) else { return FlowFields::of(&[]) };
    match seen.ethertype {
        EtherType::IPV4 | EtherType::IPV6 => {
            FlowFields::of_ip_in_frame(data.get(seen.payload_at..).unwrap_or_default())
        }
        _ => FlowFields::of_frame(data.get(..ADDRESSES).unwrap_or_default(), seen.ethertype.0),
    }
}
