//! Faces whose packets are acknowledged and sent again: what [`Reliability`] keeps, put into frames.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use kaido_engine::{DropReason, Frame, Output};
use kaido_ndn_tables::FaceId;
use kaido_wire::ndn::{LpHeader, LpPacket, LpReliability};

use super::Link;
use super::send::{EthernetEgress, FRAGMENT_MAX, cut, port_of, transmit};
use crate::NdnDrop;
use crate::face::{Face, FaceReader, FaceState};
use crate::reliability::{ACKS_MAX, Reliability};

/// How often it is looked what waits for too long; acknowledgements wait no longer for a packet to go with (NFD: 5 ms).
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Acknowledgements that a packet takes with it, at most: headers of the ports still have to fit in front.
const TAKEN_MAX: usize = 8;

/// The faces of a worker at which something is under way.
#[derive(Debug, Default)]
pub(super) struct PendingFaces {
    awake: HashSet<FaceId>,
    next: Option<Instant>,
}

impl PendingFaces {
    fn wake(&mut self, face: FaceId, now: Instant) {
        self.awake.insert(face);
        self.next.get_or_insert(now + LOOK_EVERY);
    }

    /// When there is something to look at.
    pub(super) fn due(&self) -> Option<Instant> {
        self.next
    }
}

impl Link {
    /// Sends what has waited for too long.
    #[inline]
    pub(super) fn look(&mut self, out: &mut Output<'_>) {
        if self.looks.next.is_some_and(|next| next <= out.now()) {
            self.look_at_all(out);
        }
    }

    #[cold]
    fn look_at_all(&mut self, out: &mut Output<'_>) {
        let Self { settings, faces, udp, looks, .. } = self;
        // Taken out, as what is sent may wake a face.
        let mut awake = std::mem::take(&mut looks.awake);
        looks.next = None;
        let worker = faces.worker();
        let mut egress = EthernetEgress { ports: &settings.ports, udp: udp.as_deref_mut(), looks, worker };
        awake.retain(|face| is_awake(faces, *face, &mut egress, out));
        if !awake.is_empty() {
            looks.next.get_or_insert(out.now() + LOOK_EVERY);
        }
        looks.awake.extend(awake);
    }
}

/// Does what is due at a face; whether more will be.
fn is_awake(faces: &FaceReader, face: FaceId, egress: &mut EthernetEgress<'_>, out: &mut Output<'_>) -> bool {
    let Some(face) = faces.get(face) else { return false };
    let Some(mut state) = face.reliability() else { return false };
    if face.state() == FaceState::Down {
        state.clear();
        return false;
    }
    let now = out.now();
    let given_up = state.overdue(now, |number, octets| again(face, number, octets, egress, out));
    count(face, given_up, out);
    acknowledge(face, &mut state, egress, out);
    state.waits()
}

/// Sends a packet of the network layer, in parts where it is longer than the face takes.
pub(super) fn put(
    face: &Face,
    frame: Frame,
    header: &LpHeader<'_>,
    egress: &mut EthernetEgress<'_>,
    out: &mut Output<'_>,
) -> bool {
    let len = frame.packet_len();
    let whole = LpHeader { sequence: Some(0), tx_sequence: Some(0), ..*header };
    if whole.len(len) + len > face.mtu() {
        return cut(face, frame, header, true, egress, out);
    }
    let sequence = face.take_sequences(1);
    send(face, frame, &LpHeader { sequence: Some(sequence), ..*header }, sequence, egress, out)
}

/// Sends a part of the packet of the network layer that `packet` is the first sequence number of.
pub(super) fn send(
    face: &Face,
    mut frame: Frame,
    header: &LpHeader<'_>,
    packet: u64,
    egress: &mut EthernetEgress<'_>,
    out: &mut Output<'_>,
) -> bool {
    let Some(mut state) = face.reliability() else {
        // Switched off since: whoever consumes it asks again.
        out.drop(port_of(face), frame, NdnDrop::FACE_DOWN);
        return false;
    };
    let len = frame.packet_len();
    let head = frame.prepend(header.inner_len(len));
    let mut is_written = head.is_some_and(|head| header.emit_inner(len, head).is_ok());
    if is_written {
        let rest = frame.packet_len();
        let now = out.now();
        egress.looks.wake(face.id(), now);
        let tx_sequence = state.keep(frame.segments(), packet, now);
        let taken = taken(&state, tx_sequence, rest, face.mtu());
        let fields = LpReliability { tx_sequence, acks: &state.acks()[..taken] };
        is_written = put_fields(&mut frame, &fields, rest);
        state.take_acks(taken);
    }
    drop(state);
    if !is_written {
        out.drop(port_of(face), frame, DropReason::NO_HEADROOM);
        return false;
    }
    transmit(face, frame, egress, out)
}

/// How many acknowledgements a packet can take with it.
fn taken(state: &Reliability, tx_sequence: Option<u64>, rest: usize, mtu: usize) -> usize {
    let acks = &state.acks()[..state.acks().len().min(TAKEN_MAX)];
    let fits = |count: &usize| LpReliability { tx_sequence, acks: &acks[..*count] }.len(rest) + rest <= mtu;
    (1..=acks.len()).rev().find(fits).unwrap_or(0)
}

fn put_fields(frame: &mut Frame, fields: &LpReliability<'_>, rest: usize) -> bool {
    frame.prepend(fields.len(rest)).is_some_and(|head| fields.emit(rest, head).is_ok())
}

/// Sends a packet of the link again.
fn again(face: &Face, number: u64, octets: &[u8], egress: &mut EthernetEgress<'_>, out: &mut Output<'_>) {
    let fields = LpReliability { tx_sequence: Some(number), acks: &[] };
    if fields.len(octets.len()) + octets.len() > face.mtu() {
        // The face takes less than when it was first sent.
        return out.count_drop(port_of(face), DropReason::TOO_BIG);
    }
    let Some(mut frame) = Frame::from_slice(octets, || out.allocate()) else {
        return out.count_drop(port_of(face), DropReason::NO_FRAME);
    };
    if put_fields(&mut frame, &fields, octets.len()) {
        transmit(face, frame, egress, out);
    } else {
        out.drop(port_of(face), frame, DropReason::NO_HEADROOM);
    }
}

fn count(face: &Face, given_up: u64, out: &mut Output<'_>) {
    (0..given_up).for_each(|_| out.count_drop(port_of(face), NdnDrop::LINK_LOST));
}

/// Sends the acknowledgements that wait in packets of their own.
fn acknowledge(face: &Face, state: &mut Reliability, egress: &mut EthernetEgress<'_>, out: &mut Output<'_>) {
    let room = face.mtu().min(FRAGMENT_MAX).saturating_sub(LpReliability::default().len(FRAGMENT_MAX));
    let most = (room / LpReliability::ACK_LEN).max(1);
    while !state.acks().is_empty() {
        let count = most.min(state.acks().len());
        let fields = LpReliability { tx_sequence: None, acks: &state.acks()[..count] };
        let Some(mut frame) = out.allocate() else { return };
        let is_written = frame.append(fields.len(0)).is_some_and(|head| fields.emit(0, head).is_ok());
        if !is_written {
            return out.release(frame);
        }
        state.take_acks(count);
        transmit(face, frame, egress, out);
    }
}

/// Whether a packet of the link says something about reliability.
#[inline]
pub(super) fn is_numbered(header: &LpHeader<'_>) -> bool {
    header.acks > 0 || header.tx_sequence.is_some()
}

/// Takes notice of what a packet of the link says about reliability; whether the packet has not come before.
#[cold]
pub(super) fn arrived(
    face: &Face,
    packet: &LpPacket<'_>,
    first: &[u8],
    egress: &mut EthernetEgress<'_>,
    out: &mut Output<'_>,
) -> bool {
    let Some(mut state) = face.reliability() else { return true };
    let now = out.now();
    let mut given_up = 0;
    for number in packet.acks(first) {
        given_up +=
            state.acknowledged(number, now, |number, octets| again(face, number, octets, egress, out));
    }
    count(face, given_up, out);
    let Some(number) = packet.header.tx_sequence.filter(|_| packet.fragment_len > 0) else { return true };
    let is_new = state.received(number, packet.header.sequence, now);
    egress.looks.wake(face.id(), now);
    if state.acks().len() >= ACKS_MAX {
        acknowledge(face, &mut state, egress, out);
    }
    is_new
}
