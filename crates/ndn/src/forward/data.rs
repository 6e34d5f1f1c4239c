//! Incoming and outgoing Data.

use kaido_engine::{DropReason, Frame};
use kaido_ndn_tables::{FaceId, PitToken, Prefixes, Slot, TokenFound};
use kaido_wire::ndn::implicit_digest;

use super::parse::{self, ParsedPacket};
use super::strategy::State;
use super::{Act, Core, FaceView, Reach, Sink, Unsolicited, reach};
use crate::NdnDrop;
use crate::cs::NewData;
use crate::packet::{Annotations, Packet};

impl<S: Sink> Act<'_, '_, S> {
    pub(super) fn data(&mut self, packet: Packet, parsed: &ParsedPacket, prefixes: &Prefixes) {
        self.core.counters.data_in += u64::from(self.sink.visit().is_first);
        let Some(ingress) = self.sink.face(packet.face) else {
            return self.sink.drop(packet.face, packet.frame, NdnDrop::FACE_UNKNOWN);
        };
        let name = &packet.frame.data()[parsed.name()];
        if !ingress.is_local && reach(name) == Reach::Host {
            return self.sink.drop(packet.face, packet.frame, NdnDrop::SCOPE);
        }
        let mut matches = std::mem::take(&mut self.core.matches);
        matches.clear();
        if !self.find(&packet, parsed, prefixes, &mut matches) {
            self.sink.drop(packet.face, packet.frame, NdnDrop::TOKEN_MISMATCH);
            self.core.matches = matches;
            return;
        }
        let waited = !matches.is_empty();
        // One who was not asked cannot answer: else any neighbour could put its Data into another's place.
        matches.retain(|&slot| self.core.pit.was_asked(slot, packet.face));
        if matches.is_empty() {
            let reason = if waited { NdnDrop::NOT_ASKED } else { NdnDrop::UNSOLICITED };
            self.unsolicited(packet, parsed, prefixes, ingress.is_local, reason);
        } else {
            let is_cached = !packet.annotations.no_cache
                && self.is_wanted(&matches)
                && self.keep(&packet.frame, parsed, prefixes);
            self.sink.satisfies(&packet, prefixes.whole());
            self.satisfy(packet, parsed, &matches, is_cached);
        }
        self.core.matches = matches;
    }

    /// Finds the Interests that wait for Data; `false` when its token is that of one that does not.
    #[inline]
    fn find(
        &self,
        packet: &Packet,
        parsed: &ParsedPacket,
        prefixes: &Prefixes,
        matches: &mut Vec<Slot>,
    ) -> bool {
        let name = &packet.frame.data()[parsed.name()];
        let digest = digest_of(&packet.frame);
        let pit = &self.core.pit;
        if let TokenFound::Entry(slot) = pit.by_token(&packet.annotations.pit_token)
            && !pit.accepts(slot, name, &digest)
        {
            return false;
        }
        // The token's entry is among them: whoever waits for the name is served, as one Data serves all.
        pit.satisfied_by(&self.core.hash, name, prefixes, &mut { digest }, matches);
        true
    }

    /// Nobody waits for Data of this face.
    #[cold]
    fn unsolicited(
        &mut self,
        packet: Packet,
        parsed: &ParsedPacket,
        prefixes: &Prefixes,
        is_local: bool,
        reason: DropReason,
    ) {
        let visit = self.sink.visit();
        let is_kept = match self.core.unsolicited {
            // It is that of a name for which Interests wait in turn at each worker.
            _ if visit.was_served => self.core.cs.is_on() && self.core.cs.is_wanted(prefixes.whole()),
            _ if !visit.is_last => false,
            Unsolicited::Drop => false,
            Unsolicited::CacheLocal => is_local,
            Unsolicited::CacheAll => true,
        };
        if is_kept && !packet.annotations.no_cache {
            self.keep(&packet.frame, parsed, prefixes);
        }
        if let Some(packet) = self.sink.pass_on(packet, prefixes) {
            self.sink.drop(packet.face, packet.frame, reason);
        }
    }

    /// Whether Data of these Interests is to be kept.
    #[inline]
    fn is_wanted(&mut self, matches: &[Slot]) -> bool {
        let Core { pit, cs, .. } = &mut *self.core;
        let is_wanted =
            !cs.is_on() || matches.iter().filter_map(|&slot| pit.hash(slot)).any(|hash| cs.is_wanted(hash));
        if !is_wanted {
            cs.refuse();
        }
        is_wanted
    }

    /// Keeps Data; whether it was kept.
    pub(super) fn keep(&mut self, frame: &Frame, parsed: &ParsedPacket, prefixes: &Prefixes) -> bool {
        if !self.core.cs.is_on() {
            return false;
        }
        let name = parsed.name();
        let data = NewData {
            frame,
            name_at: name.start,
            name_len: name.len(),
            freshness: parsed.freshness(),
            is_on_disk: false,
        };
        self.core.cs.insert(&data, prefixes, self.now)
    }

    /// Sends Data to all that wait, and waits no more.
    pub(super) fn satisfy(
        &mut self,
        packet: Packet,
        parsed: &ParsedPacket,
        matches: &[Slot],
        is_cached: bool,
    ) {
        let mut downstreams = std::mem::take(&mut self.core.downstreams);
        downstreams.clear();
        for &slot in matches {
            self.gather(slot, packet.face, &mut downstreams);
            self.close(slot, packet.face, is_cached);
        }
        self.send_data(packet, parsed, &downstreams);
        self.core.downstreams = downstreams;
    }

    /// Ends an entry whose Data came from a face.
    #[inline(always)]
    fn close(&mut self, slot: Slot, from: FaceId, is_cached: bool) {
        self.core.counters.satisfied += 1;
        self.note_answer(slot, from);
        if !is_cached || !self.is_known_by_cached(self.core.pit.selectors(slot).must_be_fresh) {
            self.core.insert_dead_nonce(slot, self.now);
        }
        self.core.pit.erase(slot);
    }

    /// Whether a copy of an answered Interest that still goes round finds the cached Data, if that is fresh enough for it. Where
    /// there are several workers it may come to another one, which asks here whether it is known.
    #[inline(always)]
    pub(super) fn is_known_by_cached(&self, must_be_fresh: bool) -> bool {
        self.core.place.is_none() && !must_be_fresh
    }

    /// Adds who waits for an entry: each face once, or once for each token that it gave.
    #[inline]
    fn gather(&self, slot: Slot, from: FaceId, downstreams: &mut Vec<(FaceId, PitToken)>) {
        for record in self.core.pit.downstreams(slot) {
            let downstream = (record.face, record.token);
            if record.expires > self.now && record.face != from && !downstreams.contains(&downstream) {
                downstreams.push(downstream);
            }
        }
    }

    /// Tells the measurements how long it took, if the strategy asked for that.
    #[inline]
    fn note_answer(&mut self, slot: Slot, from: FaceId) {
        if let Some(measured) = State::from_bits(self.core.pit.strategy(slot)).measured
            && let Some(record) = self.core.pit.upstreams(slot).find(|record| record.face == from)
        {
            self.core.measurements.answered(measured, from, self.now.since(record.sent));
        }
    }

    /// Sends Data to several faces: the frame itself to the last, copies to the others.
    #[inline]
    fn send_data(&mut self, packet: Packet, parsed: &ParsedPacket, downstreams: &[(FaceId, PitToken)]) {
        let Packet { frame, face: from, annotations } = packet;
        let is_local = reach(&frame.data()[parsed.name()]) == Reach::Host;
        let permits = |egress: &FaceView| egress.is_local || !is_local;
        let may_go =
            |&(face, _): &(FaceId, PitToken)| self.sink.face(face).is_some_and(|egress| permits(&egress));
        let Some(last) = downstreams.iter().rposition(may_go) else {
            return self.sink.drop(from, frame, NdnDrop::NO_DOWNSTREAM);
        };
        let mark = annotations.congestion_mark;
        for &(face, token) in &downstreams[..last] {
            let Some(egress) = self.sink.face(face).filter(permits) else {
                continue;
            };
            match parse::copy(&frame, || self.sink.allocate()) {
                Some(copy) => self.send_one(copy, (face, egress), token, from, mark),
                None => return self.sink.drop(from, frame, DropReason::NO_FRAME),
            }
        }
        let (face, token) = downstreams[last];
        let egress = self.sink.face(face).unwrap_or_default();
        self.send_one(frame, (face, egress), token, from, mark);
    }

    #[inline(always)]
    pub(super) fn send_one(
        &mut self,
        frame: Frame,
        (face, egress): (FaceId, FaceView),
        token: PitToken,
        from: FaceId,
        mark: u64,
    ) {
        let annotations = Annotations {
            pit_token: token,
            congestion_mark: mark,
            incoming_face: egress.local_fields.then_some(from),
            ..Annotations::default()
        };
        self.core.counters.data_out += 1;
        self.sink.send(face, frame, &annotations);
    }
}

/// Makes the implicit digest of Data, once.
pub(super) fn digest_of(frame: &Frame) -> impl Fn() -> [u8; 32] + '_ {
    let digest = std::cell::OnceCell::new();
    move || *digest.get_or_init(|| implicit_digest(frame.segments()))
}
