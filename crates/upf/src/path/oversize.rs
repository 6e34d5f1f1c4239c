//! Packets larger than their way allows, where the node is set up to cut them.

use kaido_engine::fragment::{SplitFault, split, split_v4_allowed};
use kaido_engine::{DropReason, Frame, IcmpError, Output, PortId, Resolution, VrfAddress};
use kaido_wire::ip;

use super::Worker;
use super::charge::MatchedRule;
use super::outer::OuterTemplate;
use super::parse::Packet;
use crate::fragment::Oversize;
use crate::tunnels::Tunnel;

/// Where a packet goes that is too large for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathMtu {
    pub(super) resolution: Resolution,
    pub(super) destination: VrfAddress,
    pub(super) from: PortId,
    /// What the link takes.
    pub(super) mtu: usize,
}

impl Worker {
    /// Sends a routed packet in fragments, if it may be cut; else returns it with what would pass.
    #[cold]
    pub(super) fn route_in_parts(
        &mut self,
        rule: &MatchedRule<'_>,
        path_mtu: PathMtu,
        packet: &Packet,
        frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
        let may_cut = self.settings.live.oversize != Oversize::Icmp;
        if !may_cut || !split_v4_allowed(frame.data()) {
            return Some((IcmpError::TooBig(path_mtu.mtu), frame));
        }
        let parts = match self.cut(&frame, path_mtu.mtu, out) {
            Ok(parts) => parts,
            Err(SplitFault::Impossible) => return Some((IcmpError::TooBig(path_mtu.mtu), frame)),
            Err(SplitFault::NoFrame) => {
                out.drop(path_mtu.from, frame, DropReason::NO_FRAME);
                return None;
            }
        };
        out.release(frame);
        let parts = parts.into_iter().map(|mut part| {
            ip::decrement_ttl(part.data_mut());
            part
        });
        self.send_parts(rule, packet.total_len, path_mtu, parts.collect(), out);
        None
    }

    /// As [`Worker::route_in_parts`], into a tunnel: the user's packet is cut, or the tunnel's.
    #[cold]
    pub(super) fn tunnel_in_parts(
        &mut self,
        rule: &MatchedRule<'_>,
        (tunnel, outer): (&Tunnel, &OuterTemplate),
        path_mtu: PathMtu,
        packet: &Packet,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) -> Option<(IcmpError, Frame)> {
        let inner_mtu = path_mtu.mtu.saturating_sub(outer.overhead());
        let oversize = self.settings.live.oversize;
        let cuts_outer = oversize == Oversize::FragmentOuter;
        if !cuts_outer && (oversize == Oversize::Icmp || !split_v4_allowed(frame.data())) {
            return Some((IcmpError::TooBig(inner_mtu), frame));
        }
        if cuts_outer {
            ip::decrement_ttl(frame.data_mut());
            if !outer.put_before(tunnel.teid, &mut frame) {
                out.drop(path_mtu.from, frame, DropReason::NO_HEADROOM);
                return None;
            }
        }
        let parts = match self.cut(&frame, if cuts_outer { path_mtu.mtu } else { inner_mtu }, out) {
            Ok(parts) => parts,
            Err(SplitFault::Impossible) if !cuts_outer => return Some((IcmpError::TooBig(inner_mtu), frame)),
            Err(_) => {
                out.drop(path_mtu.from, frame, DropReason::NO_FRAME);
                return None;
            }
        };
        out.release(frame);
        let mut ready = Vec::with_capacity(parts.len());
        for mut part in parts {
            if !cuts_outer {
                ip::decrement_ttl(part.data_mut());
                if !outer.put_before(tunnel.teid, &mut part) {
                    // A packet without one of its parts is none.
                    ready.into_iter().for_each(|part| out.release(part));
                    out.drop(path_mtu.from, part, DropReason::NO_HEADROOM);
                    return None;
                }
            }
            ready.push(part);
        }
        self.send_parts(rule, packet.total_len, path_mtu, ready, out);
        None
    }

    /// Sends a packet of a tunnel in fragments; `false` when not all of them went.
    #[cold]
    pub(super) fn outer_in_parts(
        &mut self,
        rule: &MatchedRule<'_>,
        octets: usize,
        path_mtu: PathMtu,
        frame: Frame,
        out: &mut Output<'_>,
    ) -> bool {
        let Ok(parts) = self.cut(&frame, path_mtu.mtu, out) else {
            out.drop(path_mtu.from, frame, DropReason::NO_FRAME);
            return false;
        };
        out.release(frame);
        self.send_parts(rule, octets, path_mtu, parts, out)
    }

    /// Sends the parts of a user's packet of so many octets; `false` when not all of them went. What is charged is the packet,
    /// not what it was cut into, with the last part.
    fn send_parts(
        &mut self,
        rule: &MatchedRule<'_>,
        octets: usize,
        path_mtu: PathMtu,
        mut parts: Vec<Frame>,
        out: &mut Output<'_>,
    ) -> bool {
        let Some(last) = parts.pop() else { return false };
        let PathMtu { resolution, destination, from, .. } = path_mtu;
        let mut sent = true;
        for part in parts {
            sent &= self.send(resolution, destination, from, part, out);
        }
        if sent {
            self.send_charged(rule, octets, (resolution, destination), from, last, out)
        } else {
            self.send(resolution, destination, from, last, out);
            false
        }
    }

    fn cut(&self, frame: &Frame, mtu: usize, out: &mut Output<'_>) -> Result<Vec<Frame>, SplitFault> {
        split(frame, mtu, self.node.fragments.identification(), || out.allocate())
    }
}
