//! Copies of packets into further tunnels (DUPL, TS 29.244 5.2.1): the packet itself goes its way.

use kaido_engine::{DropReason, Frame, Output, PortId};

use super::Worker;
use super::emit::FlowFields;
use crate::tunnels::Tunnel;

impl Worker {
    /// Sends a copy of a user packet into each of the tunnels. A copy for which there is no room is counted as a drop
    /// of its own.
    #[cold]
    pub(super) fn duplicate(
        &mut self,
        tunnels: &[Tunnel],
        of_flow: fn(&[u8]) -> FlowFields,
        from: PortId,
        frame: &Frame,
        out: &mut Output<'_>,
    ) {
        for tunnel in tunnels {
            let Some(mut copy) = copy_of(frame, out) else {
                out.count_drop(from, DropReason::NO_FRAME);
                continue;
            };
            if !self.outer(tunnel).is_some_and(|outer| outer.put_before_by(tunnel.teid, &mut copy, of_flow)) {
                out.drop(from, copy, DropReason::NO_HEADROOM);
                continue;
            }
            let resolution = self.next_hops.resolve(tunnel.encap.peer);
            self.send(resolution, tunnel.encap.peer, from, copy, out);
        }
    }
}

/// A packet of its own with the same octets; `None` when the pool has too few frames.
pub(super) fn copy_of(frame: &Frame, out: &mut Output<'_>) -> Option<Frame> {
    let mut copy: Option<Frame> = None;
    for segment in frame.segments() {
        // What a fresh frame holds behind its headroom may be less than what a segment holds.
        let mut rest = segment;
        while !rest.is_empty() {
            let Some(mut part) = out.allocate() else {
                if let Some(copy) = copy {
                    out.release(copy);
                }
                return None;
            };
            let (now, later) = rest.split_at(rest.len().min(part.tailroom()));
            if let Some(space) = part.append(now.len()) {
                space.copy_from_slice(now);
            }
            rest = later;
            match &mut copy {
                Some(whole) => whole.push_segment(part),
                None => copy = Some(part),
            }
        }
    }
    copy
}
