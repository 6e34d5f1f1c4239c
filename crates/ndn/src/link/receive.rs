//! From a frame to a packet of the network layer.

use kaido_engine::{DropReason, Frame, Output, PortId};
use kaido_ndn_tables::{FaceId, PitToken};
use kaido_wire::Error;
use kaido_wire::ndn::{Data, Interest, LpHeader, LpPacket, PACKET_MAX, tlv};

use super::reassembly::Fragment;
use super::reliable::{arrived, is_numbered};
use super::send::EthernetEgress;
use super::{LINK_PACKET_MAX, Link, PSEUDO_HEADER, PortKind, assemble};
use crate::NdnDrop;
use crate::face::{Direction, FLAG_LOCAL_FIELDS, FLAG_RELIABILITY, Face, PacketKind};
use crate::{Annotations, NackReason, Packet};

impl Link {
    /// Reads a frame that came in on `port`: the packet in it, or that it makes whole. What is not in order is dropped with
    /// its reason.
    #[inline]
    pub fn receive(&mut self, port: PortId, frame: Frame, out: &mut Output<'_>) -> Option<Packet> {
        match self.read(port, frame, out) {
            Ok(packet) => packet,
            Err((frame, reason)) => {
                if reason == DropReason::NOT_OURS {
                    out.to_kernel(port, frame);
                } else {
                    out.drop(port, frame, reason);
                }
                None
            }
        }
    }

    fn read(
        &mut self,
        port: PortId,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) -> Result<Option<Packet>, (Frame, DropReason)> {
        if self.may_be_udp(port, &frame) {
            return match self.datagram(port, frame, out)? {
                Some((id, frame)) => self.read_packet(id, port, frame, out),
                None => Ok(None),
            };
        }
        match self.face_of(port, &frame) {
            Ok((id, headers)) if frame.strip(headers) => self.read_packet(id, port, frame, out),
            Ok(_) => Err((frame, NdnDrop::LINK_MALFORMED)),
            Err(reason) => Err((frame, reason)),
        }
    }

    /// Reads a packet of the link that came by a face.
    #[inline]
    fn read_packet(
        &mut self,
        id: FaceId,
        port: PortId,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) -> Result<Option<Packet>, (Frame, DropReason)> {
        let Self { settings, faces, reassembly, udp, looks, .. } = self;
        let Some(face) = faces.get(id) else { return Err((frame, NdnDrop::FACE_UNKNOWN)) };
        let worker = faces.worker();
        let received = &face.counters(worker).received;
        received.octets(frame.packet_len());
        if settings.ports.get(port.index()) != Some(&PortKind::Host) {
            cut_padding(&mut frame);
        }
        let packet = match read_link(&frame) {
            Ok(packet) => packet,
            Err(reason) => return Err((frame, reason)),
        };
        if is_numbered(&packet.header) && face.flags() & FLAG_RELIABILITY != 0 {
            let mut egress =
                EthernetEgress { ports: &settings.ports, udp: udp.as_deref_mut(), looks, worker };
            if !arrived(face, &packet, frame.data(), &mut egress, out) {
                return Err((frame, NdnDrop::LINK_DUPLICATE));
            }
        }
        let (said, fragment) = match said(&packet, face) {
            Ok(read) => read,
            Err(reason) => return Err((frame, reason)),
        };
        if !frame.strip(said.head) {
            return Err((frame, NdnDrop::LINK_MALFORMED));
        }
        let Some((sequence, index, count)) = fragment else {
            return finish((face.id(), received), frame, said.annotations, out).map(Some);
        };
        let piece = Fragment { face: id, port, sequence, index, count, annotations: said.annotations, frame };
        let now = out.now();
        let Some((mut pieces, annotations)) = reassembly.take(piece, now, out) else { return Ok(None) };
        let packet = assemble::join(pieces.drain(..).flatten(), |frame| out.release(frame));
        reassembly.recycle(pieces);
        packet.map(|packet| finish((face.id(), received), packet, annotations, out)).transpose()
    }

    /// The face of a frame, and the octets in front of the packet of the link.
    #[inline]
    fn face_of(&mut self, port: PortId, frame: &Frame) -> Result<(FaceId, usize), DropReason> {
        if self.settings.ports.get(port.index()) != Some(&PortKind::Host) {
            return self.ethernet_face(port, frame);
        }
        let number = frame.data().first_chunk::<PSEUDO_HEADER>().ok_or(NdnDrop::LINK_MALFORMED)?;
        Ok((FaceId(u32::from_be_bytes(*number)), PSEUDO_HEADER))
    }
}

/// Looks at a whole packet of the network layer, which came by a face and is counted there.
fn finish(
    (face, received): (FaceId, &Direction),
    mut frame: Frame,
    annotations: Annotations,
    out: &mut Output<'_>,
) -> Result<Packet, (Frame, DropReason)> {
    let Some(kind) = PacketKind::of(frame.data().first(), annotations.nack.is_some()) else {
        return Err((frame, NdnDrop::MALFORMED));
    };
    if frame.is_chained() {
        frame = straight(frame, out)?;
    }
    let total = frame.packet_len();
    let is_whole = tlv::header(frame.data()).is_ok_and(|header| header.element_len() == total);
    if !is_whole || total > PACKET_MAX {
        return Err((frame, NdnDrop::MALFORMED));
    }
    received.packet(kind);
    Ok(Packet { frame, face, annotations })
}

/// What the header of the link said.
struct LinkFields {
    annotations: Annotations,
    /// Octets of the header.
    head: usize,
}

/// A fragment's sequence number, place and count.
type FragmentPosition = (u64, u64, u64);

#[inline(always)]
fn read_link(frame: &Frame) -> Result<LpPacket<'_>, DropReason> {
    let total = frame.packet_len();
    if total > LINK_PACKET_MAX {
        return Err(NdnDrop::LINK_MALFORMED);
    }
    LpPacket::parse(frame.data(), total).map_err(|_| NdnDrop::LINK_MALFORMED)
}

#[inline(always)]
fn said(packet: &LpPacket<'_>, face: &Face) -> Result<(LinkFields, Option<FragmentPosition>), DropReason> {
    if packet.fragment_len == 0 {
        return Err(NdnDrop::LINK_IDLE);
    }
    let header = &packet.header;
    let annotations = annotations(header, face)?;
    let place = match (header.frag_count, header.sequence) {
        (1, _) => None,
        (count, Some(sequence)) => Some((sequence, header.frag_index, count)),
        (_, None) => return Err(NdnDrop::LINK_MALFORMED),
    };
    Ok((LinkFields { annotations, head: packet.fragment_at }, place))
}

fn annotations(header: &LpHeader<'_>, face: &Face) -> Result<Annotations, DropReason> {
    let next_hop_face = match header.next_hop_face {
        None => None,
        // Only an application that has asked for it may say where an Interest goes.
        Some(_) if face.flags() & FLAG_LOCAL_FIELDS == 0 => return Err(NdnDrop::LOCAL_FIELD),
        Some(id) => Some(FaceId(u32::try_from(id).map_err(|_| NdnDrop::LINK_MALFORMED)?)),
    };
    Ok(Annotations {
        pit_token: PitToken::new(header.pit_token).ok_or(NdnDrop::LINK_MALFORMED)?,
        nack: header.nack.map(NackReason::from_code),
        congestion_mark: header.congestion_mark,
        // Told by a node to an application, never to a node.
        incoming_face: None,
        next_hop_face,
        non_discovery: header.non_discovery,
        no_cache: header.no_cache,
    })
}

/// Takes off what an Ethernet link has put behind a short packet.
fn cut_padding(frame: &mut Frame) {
    if let Ok(header) = tlv::header(frame.data()) {
        frame.truncate(header.element_len());
    }
}

/// Makes sure that all before the content of a packet lies in its first segment, and that what follows is whole.
fn straight(frame: Frame, out: &mut Output<'_>) -> Result<Frame, (Frame, DropReason)> {
    match check(&frame) {
        Ok(true) => return Ok(frame),
        Err(Error::Truncated) => {}
        _ => return Err((frame, NdnDrop::MALFORMED)),
    }
    if frame.packet_len() > PACKET_MAX {
        return Err((frame, NdnDrop::MALFORMED));
    }
    let Some(copy) = assemble::straighten(&frame, || out.allocate()) else {
        return Err((frame, DropReason::NO_FRAME));
    };
    out.release(frame);
    // A front of more than a frame is no packet for a forwarder: its name alone would fill it.
    if check(&copy) == Ok(true) { Ok(copy) } else { Err((copy, NdnDrop::MALFORMED)) }
}

fn check(frame: &Frame) -> Result<bool, Error> {
    let total = frame.packet_len();
    match Data::parse(frame.data(), total) {
        Err(Error::MessageType) => Interest::parse(frame.data(), total).map(|_| true),
        read => Ok(read?.is_tail_right(&frame.segments())),
    }
}
