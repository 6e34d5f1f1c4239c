//! Incoming and outgoing Interests.

use arrayvec::ArrayVec;
use kaido_engine::{DropReason, Frame};
use kaido_ndn_tables::{
    FaceId, HOPS_MAX, Hop, Hops, InRecord, NackSeverity, OutRecord, PitEntry, PitFull, PitToken,
    PrefixLookup, Prefixes, Slot,
};
use kaido_wire::ndn::Interest;

use super::parse::{self, ParsedPacket};
use super::strategy::{Decision, NextHopQuery, OutgoingInterest, State};
use super::{Act, FACE_CONTENT_STORE, FaceView, Reach, Sink, reach};
use crate::NdnDrop;
use crate::packet::{Annotations, NackReason, Packet};

/// The route of an Interest: the depth of its prefix, and its next hops.
type Route<'g> = Option<(usize, &'g Hops)>;

impl<'g, S: Sink> Act<'_, 'g, S> {
    #[inline(never)]
    pub(super) fn interest(
        &mut self,
        mut packet: Packet,
        parsed: &mut ParsedPacket,
        prefixes: &mut Prefixes,
        sought: PrefixLookup<'g, Hops>,
    ) {
        self.core.counters.interests_in += 1;
        let Some(ingress) = self.sink.face(packet.face) else {
            return self.sink.drop(packet.face, packet.frame, NdnDrop::FACE_UNKNOWN);
        };
        if let Some(reason) = self.refused(&mut packet.frame, parsed, ingress) {
            return self.sink.drop(packet.face, packet.frame, reason);
        }
        let is_complete = parsed.nonce.is_some() && !parsed.has_hint;
        if !is_complete && !self.complete(&mut packet, parsed, prefixes) {
            return self.sink.drop(packet.face, packet.frame, DropReason::NO_HEADROOM);
        }
        let nonce = parsed.nonce.unwrap_or(0);
        if self.core.dead.has(prefixes.whole(), nonce, self.now) {
            return self.returned(packet, parsed, prefixes, ingress);
        }
        let name = &packet.frame.data()[parsed.name()];
        let hash = prefixes.whole();
        let (slot, was_pending) = match self.core.pit.entry(name, prefixes, parsed.selectors) {
            PitEntry::Occupied(slot) => {
                let seen = self.core.pit.nonce_seen(slot, nonce, packet.face);
                // From the other end of a link the same Interest twice is no loop.
                let is_repeated = !ingress.is_multi_access && seen.in_same;
                if !is_repeated && (seen.in_same || seen.in_other || seen.out) {
                    return self.looped(packet, ingress);
                }
                (slot, true)
            }
            PitEntry::Vacant(vacant) => {
                self.core.cs.asked(hash);
                if self.core.cs.is_on()
                    && let Some(found) = self.core.cs.find(name, prefixes, parsed.selectors, self.now)
                {
                    return self.answer(packet, ingress, found);
                }
                if !vacant.has_room(ingress.account) {
                    return self.full(packet, ingress, PitFull::Account);
                }
                match vacant.insert() {
                    Ok(slot) => (slot, false),
                    Err(full) => return self.full(packet, ingress, full),
                }
            }
        };
        let record = InRecord {
            expires: parsed.expires(self.now),
            face: packet.face,
            nonce,
            token: packet.annotations.pit_token,
            account: ingress.account,
        };
        let came_before = was_pending && self.core.pit.downstreams(slot).any(|old| old.face == packet.face);
        if was_pending && !came_before {
            self.core.cs.asked(hash);
        }
        if let Err(full) = self.core.pit.insert_in_record(slot, &record) {
            return self.full(packet, ingress, full);
        }
        let pending = Pending { slot, was_pending, came_before };
        if let Some(packet) = self.unparked(packet, parsed, prefixes, pending) {
            self.forward(packet, parsed, prefixes, sought, ingress, pending);
        }
    }

    /// Whether an Interest goes no further; otherwise one hop is counted.
    #[inline]
    fn refused(&mut self, frame: &mut Frame, parsed: &ParsedPacket, ingress: FaceView) -> Option<DropReason> {
        if !ingress.is_local && reach(&frame.data()[parsed.name()]) == Reach::Host {
            return Some(NdnDrop::SCOPE);
        }
        match parsed.hop_limit {
            Some(0) => Some(NdnDrop::HOP_LIMIT),
            Some(limit) => {
                frame.data_mut()[usize::from(parsed.hop_limit_at)] = limit - 1;
                None
            }
            None => None,
        }
    }

    /// Gives an Interest a nonce that has none, and takes the forwarding hint off one that has reached its region; `false`
    /// when there is no room for a nonce.
    #[cold]
    fn complete(&mut self, packet: &mut Packet, parsed: &mut ParsedPacket, prefixes: &mut Prefixes) -> bool {
        parsed.read(packet, false, &self.core.hash, prefixes);
        if parsed.nonce.is_none() {
            let nonce = self.core.nonce(prefixes.whole());
            if !parse::add_nonce(&mut packet.frame, nonce, &mut self.core.head) {
                return false;
            }
        }
        if parsed.has_hint && self.is_in_region(&packet.frame) {
            let _ = parse::strip_hint(&mut packet.frame, &mut self.core.head);
        }
        parsed.read(packet, false, &self.core.hash, prefixes);
        true
    }

    /// Whether a delegation of the forwarding hint leads into our region.
    fn is_in_region(&mut self, frame: &Frame) -> bool {
        let interest = Interest::parse(frame.data(), frame.packet_len()).ok();
        let hint = interest.and_then(|interest| interest.forwarding_hint);
        hint.is_some_and(|hint| {
            hint.iter().any(|delegation| self.tables.is_in_region(delegation.value(), &mut self.core.hint))
        })
    }

    /// The Interest's nonce is dead. Where there are several workers, so are those of Interests whose Data is cached.
    #[cold]
    fn returned(&mut self, packet: Packet, parsed: &ParsedPacket, prefixes: &Prefixes, ingress: FaceView) {
        let name = &packet.frame.data()[parsed.name()];
        if self.core.place.is_some()
            && self.core.cs.is_on()
            && let Some(found) = self.core.cs.find(name, prefixes, parsed.selectors, self.now)
        {
            return self.answer(packet, ingress, found);
        }
        self.looped(packet, ingress);
    }

    /// The Interest was here before.
    #[cold]
    fn looped(&mut self, packet: Packet, ingress: FaceView) {
        self.return_nack(packet, ingress, NackReason::Duplicate, NdnDrop::DUPLICATE_NONCE);
    }

    /// There is no room to wait in.
    #[cold]
    fn full(&mut self, packet: Packet, ingress: FaceView, full: PitFull) {
        if full == PitFull::Account {
            // Not even told: an answer to each would make the flood our own work.
            return self.sink.drop(packet.face, packet.frame, NdnDrop::FACE_PIT_FULL);
        }
        self.return_nack(packet, ingress, NackReason::Congestion, NdnDrop::PIT_FULL);
    }

    /// Sends an Interest back as a Nack; on a link where many would hear it, drops it.
    pub(super) fn return_nack(
        &mut self,
        packet: Packet,
        ingress: FaceView,
        reason: NackReason,
        dropped: DropReason,
    ) {
        if ingress.is_multi_access {
            return self.sink.drop(packet.face, packet.frame, dropped);
        }
        self.send_nack(packet.face, packet.frame, packet.annotations.pit_token, reason);
    }

    pub(super) fn send_nack(&mut self, face: FaceId, frame: Frame, token: PitToken, reason: NackReason) {
        self.core.counters.nacks_out += 1;
        let annotations = Annotations { pit_token: token, nack: Some(reason), ..Annotations::default() };
        self.sink.send(face, frame, &annotations);
    }

    /// Answers with cached Data.
    fn answer(&mut self, packet: Packet, ingress: FaceView, found: crate::cs::CsEntryRef) {
        let Some(frame) = self.core.cs.copy(found, || self.sink.allocate()) else {
            return self.sink.drop(packet.face, packet.frame, DropReason::NO_FRAME);
        };
        let annotations = Annotations {
            pit_token: packet.annotations.pit_token,
            incoming_face: ingress.local_fields.then_some(FACE_CONTENT_STORE),
            ..Annotations::default()
        };
        self.core.counters.data_out += 1;
        self.sink.send(packet.face, frame, &annotations);
        self.sink.drop(packet.face, packet.frame, NdnDrop::FROM_CACHE);
    }

    /// Sends an Interest that waits to where its strategy says.
    #[inline]
    pub(super) fn forward(
        &mut self,
        packet: Packet,
        parsed: &ParsedPacket,
        prefixes: &Prefixes,
        sought: PrefixLookup<'g, Hops>,
        ingress: FaceView,
        pending: Pending,
    ) {
        if let Some(face) = packet.annotations.next_hop_face {
            return self.forward_to(packet, parsed, ingress, pending, face);
        }
        let name = &packet.frame.data()[parsed.name()];
        let route = if parsed.has_hint {
            self.hinted(&packet.frame)
        } else {
            self.tables.fib.take(sought, name, prefixes)
        };
        let strategy = self.tables.strategy(name, prefixes);
        if !pending.was_pending && strategy.begins_with_cheapest() {
            let first = self.eligible(route, name, parsed, &packet, ingress).next();
            return match first {
                Some((face, egress)) => self.send_cheapest(packet, parsed, pending.slot, face, egress),
                None => self.no_route(packet, parsed, ingress, pending),
            };
        }
        let mut state = State::from_bits(self.core.pit.strategy(pending.slot));
        if strategy.measures()
            && state.measured.is_none()
            && !parsed.has_hint
            && let Some((depth, _)) = route
        {
            let (hash, end) = prefixes.prefix(depth);
            state.measured = self.core.measurements.of(&name[..end], hash, self.now);
        }
        let hops = self.eligible(route, name, parsed, &packet, ingress);
        // A route has no more next hops than there is room for.
        let hops: ArrayVec<FaceId, HOPS_MAX> = hops.map(|(face, _)| face).take(HOPS_MAX).collect();
        let decision = strategy.decide(&mut OutgoingInterest {
            hops: &hops,
            pit: &self.core.pit,
            slot: pending.slot,
            state: &mut state,
            measurements: &mut self.core.measurements,
            now: self.now,
        });
        self.core.pit.set_strategy(pending.slot, state.to_bits());
        match decision {
            Decision::Forward(asks) => self.send_interests(packet, parsed, pending.slot, &asks),
            Decision::Suppress if pending.came_before => {
                self.sink.drop(packet.face, packet.frame, NdnDrop::SUPPRESSED);
            }
            Decision::Suppress => self.sink.drop(packet.face, packet.frame, NdnDrop::AGGREGATED),
            Decision::NoRoute => self.no_route(packet, parsed, ingress, pending),
        }
    }

    /// There is no next hop: whoever waits is told.
    #[cold]
    fn no_route(&mut self, packet: Packet, parsed: &ParsedPacket, ingress: FaceView, pending: Pending) {
        if pending.was_pending {
            // Others wait for the same name: an application chose where theirs went, or all routes were just removed.
            return self.sink.drop(packet.face, packet.frame, NdnDrop::NO_ROUTE);
        }
        if self.core.pit.downstreams(pending.slot).count() > 1 {
            // Others have come while it waited for the disk in vain.
            return self.give_up(packet, parsed, pending.slot, NackSeverity::NoRoute, None);
        }
        self.core.counters.unsatisfied += 1;
        self.core.pit.erase(pending.slot);
        self.return_nack(packet, ingress, NackReason::NoRoute, NdnDrop::NO_ROUTE);
    }

    /// The faces of a route that the Interest may go to, the cheapest first.
    #[inline(always)]
    fn eligible<'a>(
        &'a self,
        route: Route<'a>,
        name: &[u8],
        parsed: &'a ParsedPacket,
        packet: &Packet,
        ingress: FaceView,
    ) -> impl Iterator<Item = (FaceId, FaceView)> + 'a {
        let (reach, from) = (reach(name), packet.face);
        let hops = route.into_iter().flat_map(|(_, hops)| hops.iter());
        hops.filter(move |hop| hop.face != from)
            .filter_map(|Hop { face, .. }| self.sink.face(face).map(|egress| (face, egress)))
            .filter(move |(_, egress)| may_go(reach, parsed, ingress, *egress))
    }

    /// The route of the first delegation of the forwarding hint that has one.
    #[cold]
    fn hinted(&mut self, frame: &Frame) -> Route<'g> {
        let interest = Interest::parse(frame.data(), frame.packet_len()).ok()?;
        interest
            .forwarding_hint?
            .iter()
            .find_map(|delegation| self.tables.route(delegation.value(), &mut self.core.hint))
    }

    /// Sends an Interest where the application wants it.
    #[cold]
    fn forward_to(
        &mut self,
        packet: Packet,
        parsed: &ParsedPacket,
        ingress: FaceView,
        pending: Pending,
        face: FaceId,
    ) {
        let name = &packet.frame.data()[parsed.name()];
        let egress = self.sink.face(face);
        if egress.is_some_and(|egress| may_go(reach(name), parsed, ingress, egress)) {
            let ask = NextHopQuery { face, is_probe: false };
            return self.send_interests(packet, parsed, pending.slot, &[ask]);
        }
        self.no_route(packet, parsed, ingress, pending);
    }

    /// Sends an Interest to the one face that a strategy begins with.
    #[inline(always)]
    fn send_cheapest(
        &mut self,
        packet: Packet,
        parsed: &ParsedPacket,
        slot: Slot,
        face: FaceId,
        egress: FaceView,
    ) {
        let nonce = parsed.nonce.unwrap_or(0);
        let Packet { frame, face: from, annotations } = packet;
        let annotations = self.onwards(slot, &annotations);
        self.send_interest(frame, from, slot, nonce, (face, egress), annotations);
    }

    /// What is said of an Interest that goes on.
    #[inline(always)]
    fn onwards(&self, slot: Slot, received: &Annotations) -> Annotations {
        Annotations {
            pit_token: self.core.pit.token(slot),
            congestion_mark: received.congestion_mark,
            non_discovery: received.non_discovery,
            ..Annotations::default()
        }
    }

    /// Sends an Interest to several faces: the frame itself to the last, copies to the others.
    fn send_interests(&mut self, packet: Packet, parsed: &ParsedPacket, slot: Slot, asks: &[NextHopQuery]) {
        let Packet { frame, face: from, annotations } = packet;
        let Some((last, others)) = asks.split_last() else { return };
        let annotations = self.onwards(slot, &annotations);
        for ask in others {
            match parse::copy(&frame, || self.sink.allocate()) {
                Some(copy) => self.send_asked(copy, from, parsed, slot, *ask, annotations),
                // The others get theirs; who waits sends again.
                None => return self.sink.drop(from, frame, DropReason::NO_FRAME),
            }
        }
        self.send_asked(frame, from, parsed, slot, *last, annotations);
    }

    fn send_asked(
        &mut self,
        mut frame: Frame,
        from: FaceId,
        parsed: &ParsedPacket,
        slot: Slot,
        ask: NextHopQuery,
        annotations: Annotations,
    ) {
        let mut nonce = parsed.nonce.unwrap_or(0);
        if ask.is_probe {
            let hash = self.core.pit.hash(slot).unwrap_or_default();
            nonce = self.core.nonce(hash);
            set_nonce(&mut frame, parsed, nonce);
        }
        let egress = self.sink.face(ask.face).unwrap_or_default();
        self.send_interest(frame, from, slot, nonce, (ask.face, egress), annotations);
    }

    #[inline(always)]
    fn send_interest(
        &mut self,
        frame: Frame,
        from: FaceId,
        slot: Slot,
        nonce: u32,
        (face, egress): (FaceId, FaceView),
        mut annotations: Annotations,
    ) {
        let record = OutRecord { sent: self.now, face, nonce, nack: None };
        if let Err(full) = self.core.pit.insert_out_record(slot, &record) {
            let is_own = full == PitFull::Account;
            let reason = if is_own { NdnDrop::FACE_PIT_FULL } else { NdnDrop::PIT_FULL };
            return self.sink.drop(from, frame, reason);
        }
        if egress.local_fields {
            annotations.incoming_face = Some(from);
        }
        self.core.counters.interests_out += 1;
        self.sink.send(face, frame, &annotations);
    }
}

/// A pending Interest that another has come for.
#[derive(Clone, Copy)]
pub(super) struct Pending {
    pub(super) slot: Slot,
    /// There was one before.
    pub(super) was_pending: bool,
    /// From the same face.
    pub(super) came_before: bool,
}

/// Whether an Interest may go to a face.
#[inline]
pub(super) fn may_go(reach: Reach, parsed: &ParsedPacket, ingress: FaceView, egress: FaceView) -> bool {
    if egress.is_local {
        return true;
    }
    // The hop limit is as it came.
    parsed.hop_limit != Some(1)
        && match reach {
            Reach::Host => false,
            Reach::Hop => ingress.is_local,
            Reach::Any => true,
        }
}

/// Writes another nonce into an Interest that has one.
pub(super) fn set_nonce(frame: &mut Frame, parsed: &ParsedPacket, nonce: u32) {
    let at = usize::from(parsed.nonce_at) + 2;
    if let Some(octets) = frame.data_mut().get_mut(at..at + 4) {
        octets.copy_from_slice(&nonce.to_be_bytes());
    }
}
