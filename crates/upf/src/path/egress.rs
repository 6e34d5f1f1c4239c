//! Ways out that are not simply the node's routes: behind a header without GTP-U, by a policy, into a LAN.

use std::net::IpAddr;

use kaido_engine::{DropReason, Frame, IcmpError, Output, VrfAddress};
use kaido_wire::{Error, IpProtocol, ecn, ip};

use super::Worker;
use super::charge::MatchedRule;
use super::context::{Origin, PacketContext};
use super::emit::{self, Ends};
use crate::extended::{Egress, Exit, ExtendedActions, PlainHeader};
use crate::node::NodeSettings;

/// The protocol of an IPv4 packet behind an IP header (RFC 2003).
const INNER_IPV4: IpProtocol = IpProtocol(4);
/// That of an IPv6 packet (RFC 2473).
const INNER_IPV6: IpProtocol = IpProtocol(41);

impl Worker {
    /// Does with a packet that goes into no tunnel what few rules ask for.
    #[cold]
    pub(super) fn steer(
        &mut self,
        context: &PacketContext<'_>,
        rule: &MatchedRule<'_>,
        extended: Option<&ExtendedActions>,
        frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
        if let Some(response) = extended.and_then(|extended| extended.redirect.as_ref()) {
            self.redirect(context, response, frame, out);
            return None;
        }
        if context.arrival.origin != Origin::Port {
            return self.onward(context, rule, extended, frame, out);
        }
        match (extended.and_then(|extended| extended.virtual_network), rule.action.other_ues) {
            (Some(members), _) => self.hand_to_member(context, rule, members, frame, out),
            (None, Some(ues)) => self.hand_to_other_ue(context, rule, (extended, ues), frame, out),
            (None, None) => self.onward(context, rule, extended, frame, out),
        }
    }

    /// Sends a packet on that goes into no tunnel, as its rule says or by the routes.
    pub(super) fn onward(
        &mut self,
        context: &PacketContext<'_>,
        rule: &MatchedRule<'_>,
        extended: Option<&ExtendedActions>,
        frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
        match extended.and_then(|extended| extended.egress.as_ref()) {
            Some(egress) => self.leave(context, rule, egress, frame, out),
            None => self.route(context, rule, frame, out),
        }
    }

    /// Sends a packet on by a way of its own.
    pub(super) fn leave(
        &mut self,
        context: &PacketContext<'_>,
        rule: &MatchedRule<'_>,
        egress: &Egress,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
        let PacketContext { arrival, packet, .. } = *context;
        let from = arrival.port;
        let destination = egress.header.map_or(packet.dst, |header| header.peer);
        let overhead = egress.header.map_or(0, |header| header.len());
        let address = if let Exit::Via(next_hop) = egress.exit { next_hop } else { destination };
        let next_hop = VrfAddress { vrf: self.vrfs.of(rule.action.exit), address };
        let is_routed = !matches!(egress.exit, Exit::Lan(_));
        let resolution = is_routed.then(|| self.next_hops.resolve(next_hop));
        let len = frame.packet_len() + overhead;
        let exceeded = match (resolution, egress.exit) {
            (Some(resolution), _) => self.exceeded(resolution, len),
            (None, Exit::Lan(id)) => {
                let lan = self.node.settings.lans.get(id);
                lan.map(|lan| self.role(lan.port).mtu).filter(|&mtu| len > mtu)
            }
            (None, _) => None,
        };
        if let Some(mtu) = exceeded {
            return Some((IcmpError::TooBig(mtu.saturating_sub(overhead)), frame));
        }
        ip::decrement_ttl(frame.data_mut());
        if let Some(header) = egress.header
            && put_before(&header, &self.settings, &mut frame).is_err()
        {
            out.drop(from, frame, DropReason::NO_HEADROOM);
            return None;
        }
        let octets = packet.total_len;
        match (resolution, egress.exit) {
            (_, Exit::Lan(id)) => {
                let sent = self.send_to_lan(id, destination, from, frame, Some(rule.charge(octets)), out);
                self.charge(rule, octets, sent);
            }
            (Some(resolution), _) => {
                self.send_charged(rule, octets, (resolution, next_hop), from, frame, out);
            }
            // Only a LAN has no resolution.
            (None, _) => out.drop(from, frame, DropReason::NO_ROUTE),
        }
        None
    }
}

/// Puts an IP header, and UDP behind it where there is a port, before a packet.
fn put_before(header: &PlainHeader, settings: &NodeSettings, frame: &mut Frame) -> Result<(), Error> {
    let ends = Ends { src: header.own, dst: header.peer };
    let (tos, copied) = header.class.octet(&settings.live.tunnels.marking, None);
    let tos = tos | ecn::class(frame.data()) & copied;
    match header.port {
        Some(port) => emit::datagram(settings, ends, (port, port), tos, frame),
        None => {
            let inner = match frame.data().first().map(|octet| octet >> 4) {
                Some(6) => INNER_IPV6,
                _ => INNER_IPV4,
            };
            match (ends.src, ends.dst) {
                (IpAddr::V4(src), IpAddr::V4(dst)) => emit::prepend_ipv4(src, dst, inner, tos, frame),
                (IpAddr::V6(src), IpAddr::V6(dst)) => emit::prepend_ipv6(src, dst, inner, tos, frame),
                _ => Err(Error::Version),
            }
        }
    }
}
