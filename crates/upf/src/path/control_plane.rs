//! Tunnels of the control plane that no port leads to (TS 29.244 5.3.3): the kernel sends and receives what is in them, by the
//! network of N4.
//!
//! Such packets are few (router solicitations, DHCP), so that a system call each costs little; how many there may be is bounded.
//! They go to the address that the FAR names and nowhere else, and only what comes from there is taken, for downlink tunnels.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use kaido_engine::{DropReason, Frame, IcmpError, Output, PortId};
use kaido_table::Guard;
use kaido_wire::{gtpu, ip};

use super::Worker;
use super::charge::MatchedRule;
use super::context::{FrameLookup, PacketContext};
use super::parse::{ParsedFrame, is_own, message};
use super::relay::StoredExtensions;
use crate::UpfDrop;
use crate::extended::ExtendedActions;
use crate::node::ControlPlaneMessage;
use crate::tunnels::Tunnel;
use crate::ue::Direction;

/// Packets that a worker sends to control planes by the kernel in a second.
pub(super) const SENT_PER_SECOND: u32 = 1000;

/// The kernel's network as the way to control planes.
pub trait ControlPlaneLink: fmt::Debug + Send + Sync {
    /// Sends a GTP-U message from port 2152 of one of the node's GTP-U addresses.
    ///
    /// # Errors
    /// Why it did not go.
    fn send(&self, from: IpAddr, to: SocketAddr, message: &[u8]) -> Result<(), DropReason>;
}

impl Worker {
    /// Whether a control plane's address is reached by the kernel's network alone. Never one of the node's own.
    pub(super) fn is_over_n4(&mut self, peer: IpAddr) -> bool {
        self.control_plane.is_some()
            && self.node.tunnels.is_control_plane(peer)
            && self.next_hops.is_kernels(peer)
            && !is_own(&self.settings, peer)
    }

    /// Sends a GTP-U message, which is all that the frame holds, to a control plane that is [over N4](Self::is_over_n4); `false`
    /// when it was dropped.
    pub(super) fn send_over_n4(
        &mut self,
        from: PortId,
        own: IpAddr,
        to: SocketAddr,
        frame: Frame,
        out: &mut Output<'_>,
    ) -> bool {
        let Some(link) = &self.control_plane else {
            out.drop(from, frame, DropReason::NO_ROUTE);
            return false;
        };
        match link.send(own, to, &frame.to_vec()) {
            Ok(()) => {
                out.sent_by_kernel(from, frame);
                true
            }
            Err(reason) => {
                out.drop(from, frame, reason);
                false
            }
        }
    }

    /// Puts a packet into the tunnel of a control plane that is over N4.
    #[cold]
    pub(super) fn tunnel_over_n4(
        &mut self,
        context: &PacketContext<'_>,
        rule: &MatchedRule<'_>,
        extended: &ExtendedActions,
        tunnel: &Tunnel,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
        let PacketContext { arrival, packet, .. } = *context;
        let from = arrival.port;
        if !self.to_control_plane.admit(out.now()) {
            out.drop(from, frame, UpfDrop::CONTROL_PLANE_RATE);
            return None;
        }
        let encap = &tunnel.encap;
        let extensions = if arrival.key.is_tunnel() {
            self.stored.for_tunnel(encap, extended.deletes_container)
        } else {
            ip::decrement_ttl(frame.data_mut());
            StoredExtensions::default().for_tunnel(encap, false)
        };
        if extensions.put_message(tunnel.teid, &mut frame).is_err() {
            out.drop(from, frame, DropReason::NO_HEADROOM);
            return None;
        }
        let own = self.node.settings.endpoints[usize::from(encap.local.0)];
        if self.send_over_n4(from, own, SocketAddr::new(encap.peer, gtpu::UDP_PORT), frame, out) {
            self.count(rule.record, rule.action, packet, false);
        }
        None
    }

    /// Handles what control planes have sent over N4. It counts for the port of the node's own GTP-U messages.
    #[cold]
    pub(super) fn hear_control_planes(&mut self, guard: &Guard<'_>, out: &mut Output<'_>) {
        let node = self.node.clone();
        let taken = node.from_control_planes.take();
        let port = self.gtpu_port();
        for (reason, count) in taken.refused() {
            (0..count).for_each(|_| out.count_drop(port, reason));
        }
        for ControlPlaneMessage { from, endpoint, octets } in taken.messages {
            let Some(mut frame) = out.allocate() else {
                out.count_drop(port, DropReason::NO_FRAME);
                continue;
            };
            let Some(space) = frame.append(octets.len()) else {
                out.drop(port, frame, DropReason::TOO_BIG);
                continue;
            };
            space.copy_from_slice(&octets);
            if !self.is_over_n4(from.ip()) {
                // A port leads there: then a port is where it comes from.
                out.drop(port, frame, UpfDrop::NOT_CONTROL_PLANE);
                continue;
            }
            self.stored = StoredExtensions::default();
            let parsed = message((from.ip(), from.port()), endpoint, &octets, octets.len(), 0);
            let record = match &parsed {
                ParsedFrame::Tunnel(key, _) => node.table.get(guard, key),
                _ => None,
            };
            if record.is_some_and(|record| record.direction() == Direction::Uplink) {
                // Nothing that comes over N4 is from a UE.
                out.drop(port, frame, UpfDrop::NOT_CONTROL_PLANE);
                continue;
            }
            let lookup = FrameLookup { node: &node, guard, parsed, record, port };
            self.handle_read(&lookup, frame, out);
        }
    }
}
