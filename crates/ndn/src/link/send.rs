//! From a packet of the network layer to frames.

use std::net::SocketAddr;

use kaido_engine::{DropReason, Frame, Output, PortId};
use kaido_ndn_tables::FaceId;
use kaido_wire::ndn::LpHeader;

use super::reassembly::FRAGMENTS_MAX;
use super::reliable::PendingFaces;
use super::udp::Udp;
use super::{Link, PSEUDO_HEADER, PortKind, assemble, ethernet, reliable};
use crate::Annotations;
use crate::NdnDrop;
use crate::face::{FLAG_LOCAL_FIELDS, FLAG_RELIABILITY, Face, FaceState, PacketKind, Transport};

/// Octets of a fragment, at most: it is copied into one frame, before which there is room for headers.
pub(super) const FRAGMENT_MAX: usize = 3584;

impl Link {
    /// Sends a packet of the network layer through a face, with what is to be said of it; cut where it is longer than the
    /// face takes. What cannot be sent is dropped with its reason.
    #[inline]
    pub fn send(&mut self, face: FaceId, frame: Frame, annotations: &Annotations, out: &mut Output<'_>) {
        let Self { settings, faces, marking, udp, looks, .. } = self;
        let Some(face) = faces.get(face) else {
            return out.drop(PortId(0), frame, NdnDrop::FACE_UNKNOWN);
        };
        let port = match *face.transport() {
            Transport::Host { port } | Transport::Ethernet { port, .. } | Transport::Udp { port, .. } => port,
            Transport::Internal => return out.drop(PortId(0), frame, NdnDrop::FACE_UNKNOWN),
        };
        let Some(kind) = PacketKind::of(frame.data().first(), annotations.nack.is_some()) else {
            return out.drop(port, frame, NdnDrop::MALFORMED);
        };
        if face.state() == FaceState::Down {
            return out.drop(port, frame, NdnDrop::FACE_DOWN);
        }
        let is_marked = marking.marks(face, out.now());
        let header = header(annotations, face, is_marked);
        let worker = faces.worker();
        let mut egress = EthernetEgress { ports: &settings.ports, udp: udp.as_deref_mut(), looks, worker };
        if put(face, frame, &header, &mut egress, out) {
            face.counters(worker).sent.packet(kind);
        }
    }
}

/// What leads to faces over Ethernet, and whether they are to be looked at again.
pub(super) struct EthernetEgress<'l> {
    pub(super) ports: &'l [PortKind],
    pub(super) udp: Option<&'l mut Udp>,
    pub(super) looks: &'l mut PendingFaces,
    /// What counts at the faces.
    pub(super) worker: usize,
}

/// Puts the header on, or cuts the packet; whether anything was sent.
fn put(
    face: &Face,
    frame: Frame,
    header: &LpHeader<'_>,
    egress: &mut EthernetEgress<'_>,
    out: &mut Output<'_>,
) -> bool {
    if face.flags() & FLAG_RELIABILITY != 0 {
        return reliable::put(face, frame, header, egress, out);
    }
    let (len, mtu) = (frame.packet_len(), face.mtu());
    if header.is_empty() && len <= mtu {
        return transmit(face, frame, egress, out);
    }
    if header.len(len) + len <= mtu {
        return with_header(face, frame, header, egress, out);
    }
    cut(face, frame, header, false, egress, out)
}

/// Sends a packet in parts, which are acknowledged where they are sent reliably.
#[cold]
pub(super) fn cut(
    face: &Face,
    frame: Frame,
    header: &LpHeader<'_>,
    reliably: bool,
    egress: &mut EthernetEgress<'_>,
    out: &mut Output<'_>,
) -> bool {
    let (len, mtu) = (frame.packet_len(), face.mtu());
    let tx_sequence = reliably.then_some(0);
    let mut first = LpHeader { sequence: Some(0), tx_sequence, frag_count: FRAGMENTS_MAX as u64, ..*header };
    let size = mtu.saturating_sub(first.len(mtu)).min(FRAGMENT_MAX);
    let count = len.checked_div(size).map_or(usize::MAX, |_| len.div_ceil(size));
    let port = port_of(face);
    if count > FRAGMENTS_MAX {
        out.drop(port, frame, DropReason::TOO_BIG);
        return false;
    }
    let sequence = face.take_sequences(count as u64);
    for index in 0..count {
        let at = index * size;
        let part = out.allocate().and_then(|room| assemble::part(&frame, at, size.min(len - at), room));
        let Some(part) = part else {
            out.drop(port, frame, DropReason::NO_FRAME);
            return false;
        };
        if index > 0 {
            first = LpHeader::default();
        }
        first.tx_sequence = None;
        first.sequence = Some(sequence.wrapping_add(index as u64));
        (first.frag_index, first.frag_count) = (index as u64, count as u64);
        if reliably {
            reliable::send(face, part, &first, sequence, egress, out);
        } else {
            with_header(face, part, &first, egress, out);
        }
    }
    out.release(frame);
    true
}

/// What is said of a packet that goes out of a face.
fn header<'a>(annotations: &'a Annotations, face: &Face, is_marked: bool) -> LpHeader<'a> {
    LpHeader {
        pit_token: annotations.pit_token.octets(),
        nack: annotations.nack.map(crate::NackReason::code),
        congestion_mark: if is_marked {
            annotations.congestion_mark.max(1)
        } else {
            annotations.congestion_mark
        },
        incoming_face: annotations
            .incoming_face
            .filter(|_| face.flags() & FLAG_LOCAL_FIELDS != 0)
            .map(|id| u64::from(id.0)),
        non_discovery: annotations.non_discovery,
        ..LpHeader::default()
    }
}

pub(super) fn port_of(face: &Face) -> PortId {
    match *face.transport() {
        Transport::Host { port } | Transport::Ethernet { port, .. } | Transport::Udp { port, .. } => port,
        Transport::Internal => PortId(0),
    }
}

fn with_header(
    face: &Face,
    mut frame: Frame,
    header: &LpHeader<'_>,
    egress: &mut EthernetEgress<'_>,
    out: &mut Output<'_>,
) -> bool {
    let len = frame.packet_len();
    let room = header.len(len);
    let is_written = frame.prepend(room).is_some_and(|head| header.emit(len, head).is_ok());
    if !is_written {
        out.drop(port_of(face), frame, DropReason::NO_HEADROOM);
        return false;
    }
    transmit(face, frame, egress, out)
}

/// Puts on what leads to the face, and sends.
pub(super) fn transmit(
    face: &Face,
    mut frame: Frame,
    egress: &mut EthernetEgress<'_>,
    out: &mut Output<'_>,
) -> bool {
    let len = frame.packet_len();
    let port = port_of(face);
    let frame = match *face.transport() {
        Transport::Ethernet { local, remote, vlan, .. } => {
            // The interface may have another address than when the face was made.
            let local = match egress.ports.get(port.index()) {
                Some(PortKind::Ethernet { mac, .. }) => *mac,
                _ => local,
            };
            ethernet::put_header(frame, local, remote, vlan)
        }
        Transport::Udp { local, remote, .. } => return datagram(face, (local, remote), frame, egress, out),
        Transport::Host { .. } | Transport::Internal => match frame.prepend(PSEUDO_HEADER) {
            Some(head) => {
                head[..PSEUDO_HEADER].copy_from_slice(&face.id().0.to_be_bytes());
                Ok(frame)
            }
            None => Err(frame),
        },
    };
    match frame {
        Ok(frame) => {
            face.counters(egress.worker).sent.octets(len);
            out.transmit(port, frame);
            true
        }
        Err(frame) => {
            out.drop(port, frame, DropReason::NO_HEADROOM);
            false
        }
    }
}

/// Sends to the other end of a face by UDP on the engine's ports.
fn datagram(
    face: &Face,
    ends: (SocketAddr, SocketAddr),
    frame: Frame,
    egress: &mut EthernetEgress<'_>,
    out: &mut Output<'_>,
) -> bool {
    let (len, port) = (frame.packet_len(), port_of(face));
    let sent = match &mut egress.udp {
        Some(udp) => udp.send(egress.ports, (port, ends), frame, out),
        None => Err((frame, NdnDrop::FACE_DOWN)),
    };
    match sent {
        Ok(()) => face.counters(egress.worker).sent.octets(len),
        Err((frame, reason)) => {
            out.drop(port, frame, reason);
            return false;
        }
    }
    true
}
