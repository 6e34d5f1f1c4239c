//! Middle stage: which rule a packet matches, and what becomes of it.

use std::time::Duration;

use kaido_engine::{DropReason, Frame, IcmpError, Output};
use kaido_wire::IpProtocol;

use super::buffering::BufferedPacket;
use super::charge::MatchedRule;
use super::context::{ArrivalInfo, PacketContext};
use super::detect::matching;
use super::emit::FlowFields;
use super::lan::lan_of;
use super::parse::{Packet, is_not_routed, is_own};
use super::{Worker, mss};
use crate::UpfDrop;
use crate::action::{Action, CountScope, Destination};
use crate::extended::ExtendedActions;
use crate::ids::SessionIndex;
use crate::node::WorkerEvent;
use crate::record::{Record, Rules};
use crate::rule::QuotaAction;
use crate::ue::Direction;

impl Worker {
    /// A packet of a known session; the frame begins with it and ends with it.
    #[inline]
    pub(super) fn handle(&mut self, context: &mut PacketContext<'_>, frame: Frame, out: &mut Output<'_>) {
        let PacketContext { record, packet, .. } = *context;
        if record.direction() == Direction::Uplink {
            context.arrival.suspicion = if !record.admits(packet.src) {
                Some(UpfDrop::UE_SPOOFED)
            } else if is_not_routed(packet.dst) || is_not_routed(packet.src) || packet.src.is_unspecified() {
                Some(DropReason::NOT_ROUTED)
            } else if is_own(&self.settings, packet.dst) {
                // A UE has no business with the node itself, least of all with its tunnels.
                Some(UpfDrop::TUNNEL_TO_SELF)
            } else {
                None
            };
        }
        if self.must_follow(record, packet) {
            if let Some(reason) = context.arrival.suspicion
                && !(reason == UpfDrop::UE_SPOOFED && record.admits(packet.dst))
            {
                return out.drop(context.arrival.port, frame, reason);
            }
            return self.follow(context, frame, out);
        }
        self.admitted(context, frame, out);
    }

    /// A packet that its session may send or get, whatever its rules make of it.
    pub(super) fn admitted(&mut self, context: &PacketContext<'_>, mut frame: Frame, out: &mut Output<'_>) {
        let PacketContext { guard, record, arrival, packet } = *context;
        if let Some(most) = self.mss_clamp
            && packet.protocol == IpProtocol::TCP
            && !packet.is_fragment
            && let Some(segment) = frame.data_mut().get_mut(packet.upper_offset..)
        {
            mss::clamp(segment, if packet.src.is_ipv4() { most.ipv4 } else { most.ipv6 });
        }
        if self.buffers.holds(record.session()) {
            // What waits goes first, whatever it waits for.
            self.release(guard, record.session(), out);
        }
        if let Some((kind, frame)) = self.apply(context, frame, out) {
            match lan_of(&self.node.settings, &arrival.key) {
                Some(lan) => self.send_icmp_error_to_lan(lan, arrival.port, kind, packet, frame, out),
                None => self.send_icmp_error(context, kind, frame, out),
            }
        }
    }

    /// Applies the rule that a packet matches. Returns a packet that cannot go on, with the reason that its
    /// sender is told.
    #[inline]
    pub(super) fn apply(
        &mut self,
        context: &PacketContext<'_>,
        frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
        let PacketContext { record, arrival, packet, .. } = *context;
        let is_buffered = arrival.buffered_since.is_some();
        let apps = self.applications_of(record, arrival.qfi, packet, frame.data());
        let verdict = self.flows.verdict(apps);
        let (mut action, on_quota, mut extended, app) = match record.rules(&self.node.tunnels) {
            Rules::One(action) if record.folded_qfi().is_none_or(|qfi| arrival.qfi == Some(qfi)) => {
                (action, &[][..], None, None)
            }
            Rules::One(_) => {
                out.drop(arrival.port, frame, UpfDrop::NO_PDR);
                return None;
            }
            Rules::Filtered(rules) => {
                match matching(rules, record, arrival.qfi, packet, frame.data(), &verdict) {
                    Some(rule) => (
                        rule.action(&self.node.tunnels),
                        rule.on_quota(),
                        rule.extended(),
                        rule.detection().app,
                    ),
                    None => {
                        out.drop(arrival.port, frame, UpfDrop::NO_PDR);
                        return None;
                    }
                }
            }
        };
        if let Some(app) = app.filter(|_| extended.is_some_and(|extended| extended.tells_applications)) {
            self.tell_application(record, (action.pdr, app), arrival.qfi, packet, frame.data());
        }
        let mut on_quota_of = None;
        if let Some(other) = self.quota_action(&action, on_quota) {
            (action, extended, on_quota_of) = (other.action, other.extended.as_deref(), Some(other.slot));
        }
        let action = &action;
        self.note_match(action);
        if let Some(reason) = context.forbidden(action, extended) {
            out.drop(arrival.port, frame, reason);
            return None;
        }
        if packet.ttl <= 1 && !arrival.is_relayed(action) {
            return Some((IcmpError::TimeExceeded, frame));
        }
        if let Some(extended) = extended.filter(|extended| !extended.copies.is_empty() && !is_buffered) {
            self.duplicate(&extended.copies, FlowFields::of, arrival.port, &frame, out);
        }
        if !action.gate_open || action.apply.drop {
            if action.apply.drop {
                self.count_dropped(record, extended, packet.total_len);
            }
            self.count(record, action, packet, true);
            let reason = if action.gate_open { UpfDrop::FAR_DROP } else { UpfDrop::GATE_CLOSED };
            out.drop(arrival.port, frame, reason);
            return None;
        }
        let rule = &MatchedRule { record, action, key: arrival.key, on_quota_of };
        // What waits may have a new quota before it leaves.
        let goes_on_waiting = action.apply.buffer && is_buffered;
        if !goes_on_waiting && action.usage.with_quota().any(|slot| self.node.usage.is_exhausted(slot)) {
            out.drop(arrival.port, frame, UpfDrop::QUOTA_EXHAUSTED);
            return None;
        }
        if action.apply.buffer {
            self.buffer(rule, extended, arrival, packet.tos >> 2, frame, out);
            return None;
        }
        let no_tunnel = (action.destination == Destination::NoTunnel).then_some(UpfDrop::FAR_NO_TUNNEL);
        if let Some(reason) = no_tunnel.or_else(|| self.exceeded_rate(record, action)) {
            self.count(record, action, packet, true);
            out.drop(arrival.port, frame, reason);
            return None;
        }
        let high_priority = out.set_high_priority(self.is_guaranteed(record, action));
        let left = match action.destination {
            Destination::Routed | Destination::NoTunnel
                if extended.is_none() && action.other_ues.is_none() =>
            {
                self.route(context, rule, frame, out)
            }
            Destination::Routed | Destination::NoTunnel => self.steer(context, rule, extended, frame, out),
            Destination::Tunnel(tunnel)
                if let Some(extended) = extended
                    && extended.to_control_plane
                    && self.is_over_n4(tunnel.encap.peer) =>
            {
                self.tunnel_over_n4(context, rule, extended, &tunnel, frame, out)
            }
            Destination::Tunnel(tunnel) if arrival.key.is_tunnel() => {
                let deletes_container = extended.is_some_and(|extended| extended.deletes_container);
                self.relay(context, rule, &tunnel, deletes_container, frame, out)
            }
            Destination::Tunnel(tunnel) => self.tunnel(context, rule, &tunnel, frame, out),
        };
        out.set_high_priority(high_priority);
        left
    }

    /// What is done in the place of an action of which a quota is used up and has a FAR.
    #[inline]
    pub(super) fn quota_action<'r>(
        &self,
        action: &Action,
        on_quota: &'r [QuotaAction],
    ) -> Option<&'r QuotaAction> {
        let used_up = on_quota.iter().find(|other| self.node.usage.is_exhausted(other.slot))?;
        action.usage.with_quota().any(|slot| slot == used_up.slot).then_some(used_up)
    }

    /// Moves the counters of an action: all for a packet that goes on, those before QoS enforcement for
    /// one that does not. One that goes on takes from the token buckets.
    #[inline]
    pub(super) fn count(&mut self, record: &Record, action: &Action, packet: &Packet, dropped: bool) {
        self.count_octets(record, action, packet.total_len, dropped);
    }

    /// As [`Worker::count`], of so many octets.
    #[inline]
    pub(super) fn count_octets(&mut self, record: &Record, action: &Action, octets: usize, dropped: bool) {
        if !dropped {
            self.spend(record, action, octets);
        }
        self.count_usage(record, action, octets, dropped);
    }

    /// As [`Worker::count_octets`], and takes nothing from the token buckets.
    #[inline]
    pub(super) fn count_usage(&mut self, record: &Record, action: &Action, octets: usize, dropped: bool) {
        let (direction, octets) = (record.direction(), octets as u64);
        let not_counted = if dropped { CountScope::Passed } else { CountScope::Dropped };
        let mut apart = false;
        for (slot, what) in action.usage.iter().filter(|(_, what)| *what != not_counted) {
            apart |= what == CountScope::Dropped;
            if self.count_in(&self.node.usage, slot, direction, octets) {
                self.send_event(WorkerEvent::Threshold { session: record.session(), slot });
            }
        }
        if apart {
            for slot in action.usage.of_passed() {
                if self.node.usage.hasten(slot, direction, octets) {
                    self.send_event(WorkerEvent::Threshold { session: record.session(), slot });
                }
            }
        }
    }

    /// Keeps a packet or a frame whose rule buffers.
    #[cold]
    pub(super) fn buffer(
        &mut self,
        rule: &MatchedRule<'_>,
        extended: Option<&ExtendedActions>,
        arrival: ArrivalInfo,
        dscp: u8,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        let MatchedRule { record, action, .. } = *rule;
        let since = arrival.buffered_since;
        let arrived = since.unwrap_or(out.now());
        let time = action.buffer.time_ms.map(|time| Duration::from_millis(time.into()));
        let session = record.session();
        let limits = self.settings.live.buffer;
        let told = action.apply.notify_cp || action.apply.report_buffered;
        let news = WorkerEvent::Buffered { session, pdr: action.pdr, dscp };
        let waiting = BufferedPacket {
            frame,
            from: arrival.port,
            key: arrival.key,
            qfi: arrival.qfi,
            since: arrived,
            until: arrived + time.unwrap_or(limits.time_max),
            tell: told.then_some((action.pdr, dscp)),
            dropped: extended.and_then(|extended| extended.dropped.clone()),
            tell_discard: action.apply.report_discarded.then_some(action.pdr),
        };
        match self.buffers.push(session, action.buffer.packets, waiting, since.is_none().then_some(&limits)) {
            Ok(first) => {
                // A packet that was put back was told of when it came.
                if first && since.is_none() && told {
                    self.send_event(news);
                }
            }
            Err(refused) => {
                if let Some(pdr) = refused.tell_discard
                    && self.buffers.first_discard(session)
                {
                    self.send_event(WorkerEvent::Discarded { session, pdr });
                }
                self.count_waiting_dropped(session, &refused);
                out.drop(refused.from, refused.frame, UpfDrop::BUFFER_FULL);
            }
        }
    }

    /// Counts a packet that its rule drops, where that is asked for.
    #[inline]
    pub(super) fn count_dropped(
        &mut self,
        record: &Record,
        extended: Option<&ExtendedActions>,
        octets: usize,
    ) {
        if let Some(count) = extended.and_then(|extended| extended.dropped.as_ref())
            && count.count(octets as u64)
        {
            self.send_event(WorkerEvent::Dropped { session: record.session(), urr: count.urr() });
        }
    }

    /// As [`Worker::count_dropped`], of a packet that waits no longer, or could not.
    pub(super) fn count_waiting_dropped(&mut self, session: SessionIndex, packet: &BufferedPacket) {
        if let Some(count) = &packet.dropped
            && count.count(packet.frame.packet_len() as u64)
        {
            self.send_event(WorkerEvent::Dropped { session, urr: count.urr() });
        }
    }
}
