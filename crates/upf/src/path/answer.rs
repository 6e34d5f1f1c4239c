//! What we send of our own: GTP-U path messages, and errors to the senders of what cannot go on.

use std::net::{IpAddr, SocketAddr};

use kaido_engine::{DropReason, Frame, IcmpError, Output, PortId, VrfAddress, write_icmp_error};
use kaido_table::Guard;
use kaido_wire::MessageType;
use kaido_wire::gtpu::{Message, UDP_PORT, UNDERSTOOD};

use super::Worker;
use super::context::PacketContext;
use super::emit::{self, Ends};
use super::parse::{OuterTunnel, Packet};
use crate::UpfDrop;
use crate::apps::Apps;
use crate::ids::InstanceId;
use crate::key::SessionKey;
use crate::node::WorkerEvent;
use crate::record::{Record, Rules};
use crate::tunnels::Tunnel;
use crate::ue::Direction;
use kaido_n4::Teid;

impl Worker {
    /// A GTP-U message that is not a G-PDU, or a G-PDU whose extension headers we do not understand.
    #[cold]
    pub(super) fn signalling(
        &mut self,
        outer: &OuterTunnel,
        port: PortId,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        if let Some(_unknown) = outer.header.unknown_mandatory {
            if self.extension_notices.admit(out.now()) {
                let notice = Message::SupportedExtensionHeaders { sequence: 0, types: UNDERSTOOD };
                self.answer(outer, UDP_PORT, &notice, port, out);
            }
            return out.drop(port, frame, UpfDrop::EXTENSION_UNSUPPORTED);
        }
        match outer.header.message_type {
            MessageType::ECHO_REQUEST | MessageType::ECHO_RESPONSE => self.echo(outer, port, frame, out),
            MessageType::SUPPORTED_EXTENSION_HEADERS | MessageType::TUNNEL_STATUS => {
                out.drop(port, frame, UpfDrop::GTPU_SIGNALLING);
            }
            MessageType::ERROR_INDICATION => {
                let message = frame.data().get(outer.gtpu_offset..).unwrap_or_default();
                match Message::parse(message) {
                    // Who speaks for another address is not believed, and a stranger not listened to.
                    Ok(Message::ErrorIndication { teid, peer, .. })
                        if peer == outer.src && self.node.tunnels.leads_to(peer) =>
                    {
                        self.send_event(WorkerEvent::ErrorIndication { teid: Teid(teid), peer });
                        out.drop(port, frame, UpfDrop::ERROR_INDICATION);
                    }
                    Ok(_) => out.drop(port, frame, UpfDrop::ERROR_INDICATION),
                    Err(_) => out.drop(port, frame, UpfDrop::GTPU_MALFORMED),
                }
            }
            _ => out.drop(port, frame, UpfDrop::GTPU_UNSUPPORTED),
        }
    }

    /// A G-PDU of no session: its sender is told to forget the tunnel (TS 29.281 7.3.1), but not while that may be on its way back.
    #[cold]
    pub(super) fn unknown_teid(
        &mut self,
        outer: &OuterTunnel,
        port: PortId,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        if !self.node.is_restoring() && self.error_indications.admit(out.now()) {
            let indication = Message::ErrorIndication {
                sequence: 0,
                teid: outer.header.teid,
                peer: self.node.settings.endpoints[usize::from(outer.endpoint.0)],
                // Only a port that carries the flow's entropy tells flows apart (TS 29.281 5.2.2.1).
                udp_port: Some(outer.src_port).filter(|&port| port != UDP_PORT),
            };
            self.answer(outer, UDP_PORT, &indication, port, out);
        }
        out.drop(port, frame, UpfDrop::TEID_UNKNOWN);
    }

    fn answer(
        &mut self,
        outer: &OuterTunnel,
        to_port: u16,
        message: &Message<'_>,
        port: PortId,
        out: &mut Output<'_>,
    ) {
        let src = self.node.settings.endpoints[usize::from(outer.endpoint.0)];
        self.send_message(Ends { src, dst: outer.src }, to_port, message, port, out);
    }

    /// Sends an End Marker into a tunnel.
    pub(super) fn end_marker(&mut self, tunnel: &Tunnel, out: &mut Output<'_>) {
        let src = self.node.settings.endpoints[usize::from(tunnel.encap.local.0)];
        let message = Message::EndMarker { teid: tunnel.teid.0 };
        let on_behalf_of = self.gtpu_port();
        self.send_message(Ends { src, dst: tunnel.encap.peer }, UDP_PORT, &message, on_behalf_of, out);
    }

    /// Answers an Echo Request; tells the control plane of a response that it waits for (TS 29.281 7.2).
    fn echo(&mut self, outer: &OuterTunnel, port: PortId, frame: Frame, out: &mut Output<'_>) {
        let message = frame.data().get(outer.gtpu_offset..).unwrap_or_default();
        match Message::parse(message) {
            Ok(Message::EchoRequest { sequence, restarted }) => {
                // Who knows the element is told; others might stumble over it.
                let restarted = restarted.map(|_| self.node.recovery);
                let response = Message::EchoResponse { sequence, recovery: 0, restarted };
                self.answer(outer, outer.src_port, &response, port, out);
                out.release(frame);
            }
            Ok(Message::EchoResponse { sequence, restarted, .. }) => {
                let peer = outer.src;
                if self.node.echoes.take(peer, sequence) {
                    self.send_event(WorkerEvent::EchoResponse { peer, sequence, restarted });
                    out.release(frame);
                } else {
                    out.drop(port, frame, UpfDrop::GTPU_SIGNALLING);
                }
            }
            _ => out.drop(port, frame, UpfDrop::GTPU_MALFORMED),
        }
    }

    /// Sends an Echo Request from our end of the tunnels that lead to the peer: the response comes back to where G-PDUs do.
    pub(super) fn echo_request(&mut self, peer: IpAddr, sequence: u16, out: &mut Output<'_>) {
        let endpoints = &self.node.settings.endpoints;
        let of_tunnels = self.node.tunnels.local_end(peer).and_then(|end| endpoints.get(usize::from(end.0)));
        let own = of_tunnels.or_else(|| endpoints.iter().find(|own| own.is_ipv4() == peer.is_ipv4()));
        let Some(&src) = own else { return };
        let message = Message::EchoRequest { sequence, restarted: None };
        let on_behalf_of = self.gtpu_port();
        self.send_message(Ends { src, dst: peer }, UDP_PORT, &message, on_behalf_of, out);
    }

    /// The port to which drops of our own GTP-U messages are counted.
    pub(super) fn gtpu_port(&self) -> PortId {
        let place = self.node.settings.ports.iter().position(|port| port.gtpu).unwrap_or(0);
        PortId(u8::try_from(place).unwrap_or(0))
    }

    fn send_message(
        &mut self,
        ends: Ends,
        to_port: u16,
        message: &Message<'_>,
        port: PortId,
        out: &mut Output<'_>,
    ) {
        let Some(mut frame) = out.allocate() else { return out.count_drop(port, DropReason::NO_FRAME) };
        let written = frame.append(message.len()).is_some_and(|space| message.emit(space).is_ok());
        if written && self.is_over_n4(ends.dst) {
            let to = SocketAddr::new(ends.dst, to_port);
            self.send_over_n4(port, ends.src, to, frame, out);
            return;
        }
        let ports = (UDP_PORT, to_port);
        if !written || emit::datagram(&self.settings, ends, ports, 0, &mut frame).is_err() {
            return out.drop(port, frame, DropReason::NO_HEADROOM);
        }
        let resolution = self.next_hops.resolve(ends.dst);
        self.send(resolution, ends.dst, port, frame, out);
    }

    /// Drops a packet that cannot go on and tells its sender, where the RFCs let us.
    #[cold]
    pub(super) fn send_icmp_error(
        &mut self,
        context: &PacketContext<'_>,
        kind: IcmpError,
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        let fragmentable = matches!(kind, IcmpError::TooBig(_)) && !context.packet.dont_fragment;
        if !fragmentable && self.icmp_errors.admit(out.now()) {
            self.icmp_error(context, kind, &frame, out);
        }
        out.drop(context.arrival.port, frame, kind.reason());
    }

    fn icmp_error(
        &mut self,
        context: &PacketContext<'_>,
        kind: IcmpError,
        offending: &Frame,
        out: &mut Output<'_>,
    ) {
        let PacketContext { guard, record, packet, .. } = *context;
        let port = context.arrival.port;
        let Some(src) = self.router_address(packet.src) else { return };
        let Some(mut frame) = out.allocate() else { return out.count_drop(port, DropReason::NO_FRAME) };
        if !write_icmp_error(&mut frame, src, packet.src, kind, offending.data()) {
            return out.release(frame);
        }
        match record.direction() {
            Direction::Downlink => {
                let vrf = self.vrfs.of_instance(self.role(port).instance);
                let sender = VrfAddress { vrf, address: packet.src };
                let resolution = self.next_hops.resolve(sender);
                self.send(resolution, sender, port, frame, out);
            }
            Direction::Uplink => self.back_to_ue(guard, record, port, packet.src, frame, out),
        }
    }

    /// Sends a packet of our own into the downlink tunnel of the session. It is not the user's, so it is
    /// not counted.
    pub(super) fn back_to_ue(
        &mut self,
        guard: &Guard<'_>,
        uplink: &Record,
        port: PortId,
        ue: IpAddr,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        let node = self.node.clone();
        let instances = 0..u16::try_from(node.settings.instances.len()).unwrap_or(u16::MAX);
        let found = instances.map(InstanceId).find_map(|instance| {
            let key = SessionKey::ue(instance, ue);
            let record = node.table.get(guard, &key).filter(|record| record.session() == uplink.session())?;
            Some(record)
        });
        let packet = Packet::read(frame.data(), frame.packet_len());
        let (Some(record), Ok(packet)) = (found, packet) else { return out.release(frame) };
        let tunnel = match record.rules(&node.tunnels) {
            Rules::One(action) => action.open_tunnel().filter(|_| record.folded_qfi().is_none()),
            Rules::Filtered(rules) => super::detect::matching(
                rules,
                record,
                None,
                &packet,
                frame.data(),
                &self.flows.verdict(Apps::new()),
            )
            .and_then(|rule| rule.action(&node.tunnels).open_tunnel()),
        };
        let Some(tunnel) = tunnel else { return out.release(frame) };
        if !self.outer(&tunnel).is_some_and(|outer| outer.put_before(tunnel.teid, &mut frame)) {
            return out.release(frame);
        }
        let resolution = self.next_hops.resolve(tunnel.encap.peer);
        self.send(resolution, tunnel.encap.peer, port, frame, out);
    }

    /// The address under which this node speaks as a router: its first on the N6 side, of the family.
    fn router_address(&self, family: IpAddr) -> Option<IpAddr> {
        let n6 = self.settings.ports.iter().filter(|port| port.instance.is_some());
        n6.flat_map(|port| &port.addresses).find(|addr| addr.is_ipv4() == family.is_ipv4()).copied()
    }
}
