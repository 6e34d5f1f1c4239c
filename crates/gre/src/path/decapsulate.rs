//! The outer headers go; what they say that concerns the packet goes over.

use kaido_engine::{DropReason, Frame, Output, PortId};
use kaido_wire::ethernet::TYPE_AT;
use kaido_wire::layout::{Ipv4Fields, Ipv6Fields};
use kaido_wire::{EtherType, ecn, ethernet, gre, ipv4};

use super::Gre;
use crate::parse::TunnelPacket;
use crate::rules::{ForwardingMode, Propagation};

impl Gre {
    pub(super) fn decapsulate(
        &mut self,
        (ttl, dscp, forward): (Propagation, Propagation, ForwardingMode),
        port: PortId,
        outer: &TunnelPacket,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        let protocol = outer.gre.protocol;
        frame.truncate(outer.link_len + outer.packet_len);
        if protocol == gre::TRANSPARENT_ETHERNET {
            return match take_frame(&mut frame, outer) {
                true => self.peer_port(port, frame, out),
                false => out.drop(port, frame, DropReason::INNER_MALFORMED),
            };
        }
        let change = Change {
            hops: (ttl == Propagation::Uniform).then_some(outer.hops),
            dscp: (dscp == Propagation::Uniform).then_some(outer.tos & !ecn::MASK),
            ecn: outer.tos & ecn::MASK,
        };
        let offset = outer.link_len + outer.outer_len;
        let changed = frame.data_mut().get_mut(offset..).ok_or(DropReason::INNER_MALFORMED);
        if let Err(reason) = changed.and_then(|packet| change.apply(protocol, packet)) {
            return out.drop(port, frame, reason);
        }
        match forward {
            // Only IP can be routed; what else a rule may take off is not.
            ForwardingMode::Route if protocol == EtherType::IPV4 || protocol == EtherType::IPV6 => {
                if frame.strip(offset) {
                    self.route(port, frame, out);
                } else {
                    out.drop(port, frame, DropReason::INNER_MALFORMED);
                }
            }
            _ if move_link(&mut frame, outer.link_len, outer.outer_len, protocol) => {
                self.peer_port(port, frame, out);
            }
            _ => out.drop(port, frame, DropReason::INNER_MALFORMED),
        }
    }
}

/// Moves the Ethernet header, tags and all, up to the packet that was in the tunnel.
fn move_link(frame: &mut Frame, link_len: usize, outer_len: usize, protocol: EtherType) -> bool {
    let data = frame.data_mut();
    if data.len() < link_len + outer_len {
        return false;
    }
    data.copy_within(..link_len, outer_len);
    let at = outer_len + link_len;
    data[at - 2..at].copy_from_slice(&protocol.0.to_be_bytes());
    frame.strip(outer_len)
}

/// Leaves the Ethernet frame that was in the tunnel. Tags of the outer one go with it: they say which network it is of.
fn take_frame(frame: &mut Frame, outer: &TunnelPacket) -> bool {
    let at = outer.link_len + outer.outer_len;
    let tags_len = outer.link_len - ethernet::HEADER_LEN;
    let data = frame.data_mut();
    if data.len() < at + ethernet::HEADER_LEN {
        return false;
    }
    // The inner addresses move forward over the end of the outer headers, and the tags come behind them.
    let mut tags = [0; 16];
    tags[..tags_len].copy_from_slice(&data[TYPE_AT..TYPE_AT + tags_len]);
    data.copy_within(at..at + TYPE_AT, at - tags_len);
    data[at + TYPE_AT - tags_len..at + TYPE_AT].copy_from_slice(&tags[..tags_len]);
    frame.strip(at - tags_len)
}

/// What changes in a packet when its tunnel ends.
struct Change {
    /// Hops that were left to the outer header.
    hops: Option<u8>,
    /// The outer header's DSCP, in its place in the octet.
    dscp: Option<u8>,
    /// The outer header's ECN.
    ecn: u8,
}

impl Change {
    /// Changes the packet, whose headers must be in good order as far as they are read.
    fn apply(&self, protocol: EtherType, packet: &mut [u8]) -> Result<(), DropReason> {
        match protocol {
            EtherType::IPV4 => self.apply_v4(packet),
            EtherType::IPV6 => self.apply_v6(packet),
            _ => Ok(()),
        }
    }

    fn apply_v4(&self, packet: &mut [u8]) -> Result<(), DropReason> {
        // The rest may be in further segments; its length is for the receiver to judge.
        let header = packet.first_chunk_mut().ok_or(DropReason::INNER_MALFORMED)?;
        let mut header = Ipv4Fields::new(header);
        if header.version_ihl() >> 4 != 4 || header.header_len() < ipv4::HEADER_LEN {
            return Err(DropReason::INNER_MALFORMED);
        }
        let tos = self.tos(header.tos())?;
        header.update(tos, self.hops.map_or(header.ttl(), |outer| outer.min(header.ttl())));
        Ok(())
    }

    fn apply_v6(&self, packet: &mut [u8]) -> Result<(), DropReason> {
        let header = packet.first_chunk_mut().ok_or(DropReason::INNER_MALFORMED)?;
        let mut header = Ipv6Fields::new(header);
        if header.version_class_flow() >> 28 != 6 {
            return Err(DropReason::INNER_MALFORMED);
        }
        header.set_traffic_class(self.tos(header.traffic_class())?);
        header.set_hop_limit(self.hops.map_or(header.hop_limit(), |outer| outer.min(header.hop_limit())));
        Ok(())
    }

    /// The packet's own DSCP and ECN as they become (RFC 6040 4.2: a packet that cannot carry the mark is dropped).
    fn tos(&self, inner: u8) -> Result<u8, DropReason> {
        let marks = ecn::decapsulated(inner, self.ecn).ok_or(DropReason::CONGESTION_MARK)?;
        Ok(self.dscp.unwrap_or(inner & !ecn::MASK) | marks)
    }
}
