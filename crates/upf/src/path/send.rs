//! Last stage: out by the next hop, as it is or in a tunnel.

use kaido_engine::{DropReason, Frame, IcmpError, Output, Pending, PortId, Resolution, VrfAddress};

use kaido_wire::{IpProtocol, gtpu, ip};

use super::Worker;
use super::charge::{Charge, MatchedRule, SendResult};
use super::context::PacketContext;
use super::emit::{self, FlowFields};
use super::outer::OuterTemplate;
use super::oversize::PathMtu;
use super::parse::Packet;
use crate::UpfDrop;
use crate::action::N6Exit;
use crate::extended::{Egress, Exit};
use crate::fragment::Oversize;
use crate::tunnels::Tunnel;
use crate::ue::Direction;

impl Worker {
    #[inline]
    pub(super) fn route(
        &mut self,
        context: &PacketContext<'_>,
        rule: &MatchedRule<'_>,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
        let (from, packet) = (context.arrival.port, context.packet);
        if let N6Exit::Lan(lan) = rule.action.exit {
            let egress = Egress { header: None, exit: Exit::Lan(lan) };
            return self.leave(context, rule, &egress, frame, out);
        }
        let destination = VrfAddress { vrf: self.vrfs.of(rule.action.exit), address: packet.dst };
        let resolution = self.next_hops.resolve(destination);
        if self.leaves_n6(rule, (resolution, destination), packet, frame.data()) {
            out.drop(from, frame, UpfDrop::NOT_N6);
            return None;
        }
        if let Some(mtu) = self.exceeded(resolution, frame.packet_len()) {
            return self.route_in_parts(
                rule,
                PathMtu { resolution, destination, from, mtu },
                packet,
                frame,
                out,
            );
        }
        ip::decrement_ttl(frame.data_mut());
        self.send_charged(rule, packet.total_len, (resolution, destination), from, frame, out);
        None
    }

    /// Whether a packet from a UE would leave by a port that is not of its N6. Only tunnels lead into the networks of N3 and N9,
    /// where a UE could write what it likes into other UEs' tunnels. By a port that is of both sides no G-PDU of its own leaves
    /// to a GTP-U peer.
    fn leaves_n6(
        &self,
        rule: &MatchedRule<'_>,
        (resolution, destination): (Resolution, VrfAddress),
        packet: &Packet,
        data: &[u8],
    ) -> bool {
        let port = match resolution {
            Resolution::Ready(hop) => Some(hop.port),
            Resolution::Pending => self.next_hops.port_of(destination),
            Resolution::NoRoute => None,
        };
        let Some(port) = port.filter(|_| rule.record.direction() == Direction::Uplink) else { return false };
        let role = self.role(port);
        let is_gtpu = || {
            packet.protocol == IpProtocol::UDP
                && packet.ports(data).is_none_or(|(_, dst)| dst == gtpu::UDP_PORT)
                && self.node.tunnels.leads_to(packet.dst)
        };
        role.instance.is_none()
            || matches!(rule.action.exit, N6Exit::Instance(exit) if role.instance != Some(exit))
            || (role.gtpu && is_gtpu())
    }

    #[inline]
    pub(super) fn tunnel(
        &mut self,
        context: &PacketContext<'_>,
        rule: &MatchedRule<'_>,
        tunnel: &Tunnel,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
        let (from, packet) = (context.arrival.port, context.packet);
        let Some(outer) = self.outer(tunnel) else {
            out.drop(from, frame, DropReason::NO_ROUTE);
            return None;
        };
        let resolution = self.next_hops.resolve(tunnel.encap.peer);
        if let Some(stamped) = self.stamped(rule.record, tunnel, resolution, frame.packet_len()) {
            self.tunnel_stamped(context, rule, tunnel, &stamped, frame, out);
            return None;
        }
        let overhead = outer.overhead();
        if let Some(mtu) = self.exceeded(resolution, frame.packet_len() + overhead) {
            let path_mtu = PathMtu { resolution, destination: tunnel.encap.peer.into(), from, mtu };
            return self.tunnel_in_parts(rule, (tunnel, &outer), path_mtu, packet, frame, out);
        }
        ip::decrement_ttl(frame.data_mut());
        if !outer.put_before(tunnel.teid, &mut frame) {
            out.drop(from, frame, DropReason::NO_HEADROOM);
            return None;
        }
        self.send_charged(rule, packet.total_len, (resolution, tunnel.encap.peer), from, frame, out);
        None
    }

    /// Puts a packet of one tunnel into another.
    pub(super) fn relay(
        &mut self,
        context: &PacketContext<'_>,
        rule: &MatchedRule<'_>,
        tunnel: &Tunnel,
        deletes_container: bool,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
        let (from, packet) = (context.arrival.port, context.packet);
        let extensions = self.stored.for_tunnel(&tunnel.encap, deletes_container);
        let resolution = self.next_hops.resolve(tunnel.encap.peer);
        let overhead = extensions.overhead(tunnel);
        let exceeded = self.exceeded(resolution, frame.packet_len() + overhead);
        if let Some(mtu) = exceeded
            && self.settings.live.oversize != Oversize::FragmentOuter
        {
            return Some((IcmpError::TooBig(mtu.saturating_sub(overhead)), frame));
        }
        let of_flow = FlowFields::of(frame.data());
        if extensions.put_before(&self.settings, tunnel, of_flow, &mut frame).is_err() {
            out.drop(from, frame, DropReason::NO_HEADROOM);
            return None;
        }
        let peer = tunnel.encap.peer;
        let octets = packet.total_len;
        match exceeded {
            Some(mtu) => {
                let path_mtu = PathMtu { resolution, destination: peer.into(), from, mtu };
                self.outer_in_parts(rule, octets, path_mtu, frame, out)
            }
            None => self.send_charged(rule, octets, (resolution, peer), from, frame, out),
        };
        None
    }

    /// The headers of a tunnel; `None` when its ends are of two families.
    pub(super) fn outer(&self, tunnel: &Tunnel) -> Option<OuterTemplate> {
        match tunnel.id.and_then(|id| self.prepared.get(id)) {
            Some(prepared) => Some(prepared.template),
            None => OuterTemplate::new(&self.settings, &tunnel.encap).ok(),
        }
    }

    /// The MTU of the way out, where `len` octets exceed it.
    #[inline]
    pub(super) fn exceeded(&self, resolution: Resolution, len: usize) -> Option<usize> {
        match resolution {
            Resolution::Ready(hop) => Some(self.role(hop.port).mtu).filter(|&mtu| len > mtu),
            _ => None,
        }
    }

    /// Sends an IP packet of the node's own, or a part of one, to its next hop, or keeps it until the next hop has answered;
    /// `false` when it was dropped.
    #[inline]
    pub(super) fn send(
        &mut self,
        resolution: Resolution,
        destination: impl Into<VrfAddress>,
        from: PortId,
        frame: Frame,
        out: &mut Output<'_>,
    ) -> bool {
        self.send_or_wait((resolution, destination.into()), from, frame, None, out) != SendResult::Dropped
    }

    /// As [`Worker::send`], of a user's packet of so many octets, which is charged when it leaves.
    #[inline]
    pub(super) fn send_charged(
        &mut self,
        rule: &MatchedRule<'_>,
        octets: usize,
        (resolution, destination): (Resolution, impl Into<VrfAddress>),
        from: PortId,
        frame: Frame,
        out: &mut Output<'_>,
    ) -> bool {
        let sent =
            self.send_or_wait((resolution, destination.into()), from, frame, Some(rule.charge(octets)), out);
        self.charge(rule, octets, sent)
    }

    #[inline]
    fn send_or_wait(
        &mut self,
        hop: (Resolution, VrfAddress),
        from: PortId,
        frame: Frame,
        charge: Option<Charge>,
        out: &mut Output<'_>,
    ) -> SendResult {
        // The next hop may have become known since those before this packet began to wait.
        if self.is_pending_known() {
            self.retry_pending(out);
        }
        self.send_now(hop, from, frame, charge, out)
    }

    #[inline]
    fn send_now(
        &mut self,
        (resolution, destination): (Resolution, VrfAddress),
        from: PortId,
        mut frame: Frame,
        charge: Option<Charge>,
        out: &mut Output<'_>,
    ) -> SendResult {
        let reason = match resolution {
            Resolution::Ready(hop) => {
                let role = self.role(hop.port);
                if frame.packet_len() > role.mtu {
                    DropReason::TOO_BIG
                } else if emit::ethernet(&mut frame, role.mac, hop.mac).is_ok() {
                    out.transmit(hop.port, frame);
                    return SendResult::Left;
                } else {
                    DropReason::NO_HEADROOM
                }
            }
            Resolution::Pending => match self.pending.push(frame, from, destination, charge, out.now()) {
                Ok(()) => return SendResult::Waits,
                Err(refused) => {
                    frame = refused;
                    DropReason::NEXT_HOP_UNRESOLVED
                }
            },
            Resolution::NoRoute => DropReason::NO_ROUTE,
        };
        out.drop(from, frame, reason);
        SendResult::Dropped
    }

    /// Whether packets wait for next hops that may be known by now.
    #[inline(always)]
    pub(super) fn is_pending_known(&self) -> bool {
        !self.pending.is_empty() && self.next_hops.generation() != self.pending_tried
    }

    /// Tries the packets again whose next hops were not known. Those that leave are charged.
    pub(super) fn retry_pending(&mut self, out: &mut Output<'_>) {
        self.pending_tried = self.next_hops.generation();
        let high_priority = out.set_high_priority(false);
        for packet in self.pending.take() {
            let Pending { destination, from, .. } = packet;
            match self.next_hops.resolve(destination) {
                Resolution::Pending if packet.is_overdue(out.now()) => {
                    out.drop(from, packet.frame, DropReason::NEXT_HOP_UNRESOLVED);
                }
                Resolution::Pending => self.pending.keep(packet),
                resolution => {
                    self.after_waiting(packet.then, from, packet.frame, out, |worker, frame, out| {
                        worker.send_now((resolution, destination), from, frame, None, out)
                    });
                }
            }
        }
        out.set_high_priority(high_priority);
    }
}
