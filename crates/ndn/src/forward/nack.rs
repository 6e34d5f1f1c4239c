//! Incoming Nacks: an upstream has nothing. When all have nothing, who waits is told, and why.

use kaido_ndn_tables::{FaceId, NackSeverity, PitToken, Prefixes, Slot};

use super::interest::set_nonce;
use super::parse::{self, ParsedPacket};
use super::strategy::State;
use super::{Act, Sink};
use crate::NdnDrop;
use crate::packet::{NackReason, Packet};

impl<S: Sink> Act<'_, '_, S> {
    pub(super) fn nack(&mut self, packet: Packet, parsed: &ParsedPacket, prefixes: &Prefixes) {
        self.core.counters.nacks_in += u64::from(self.sink.visit().is_first);
        let Some(ingress) = self.sink.face(packet.face) else {
            return self.sink.drop(packet.face, packet.frame, NdnDrop::FACE_UNKNOWN);
        };
        let name = &packet.frame.data()[parsed.name()];
        let slot = self.core.pit.find(name, prefixes, parsed.selectors).filter(|_| !ingress.is_multi_access);
        let reason = packet.annotations.nack.unwrap_or(NackReason::None);
        let upstream =
            slot.filter(|&slot| self.core.pit.note_nack(slot, packet.face, parsed.nonce, reason.into()));
        let Some(slot) = upstream else {
            if let Some(packet) = self.sink.pass_on(packet, prefixes) {
                self.sink.drop(packet.face, packet.frame, NdnDrop::NACK_UNMATCHED);
            }
            return;
        };
        if let Some(measured) = State::from_bits(self.core.pit.strategy(slot)).measured {
            self.core.measurements.failed(measured, packet.face);
        }
        match self.verdict(slot) {
            Some((severity, only)) => self.give_up(packet, parsed, slot, severity, only),
            None => self.sink.drop(packet.face, packet.frame, NdnDrop::NACK_NOTED),
        }
    }

    /// The least severe reason when no upstream is left that may answer; and the one downstream to be told, if only it
    /// is. With one upstream left that waits for us as well, both would wait for each other: it is told (NFD, best-route).
    fn verdict(&self, slot: Slot) -> Option<(NackSeverity, Option<FaceId>)> {
        let pit = &self.core.pit;
        let severity = pit.upstreams(slot).filter_map(|record| record.nack).min()?;
        let mut waiting = pit.upstreams(slot).filter(|record| record.nack.is_none());
        match (waiting.next(), waiting.next()) {
            (None, _) => Some((severity, None)),
            (Some(last), None) => {
                let face = last.face;
                let waits = pit.downstreams(slot).any(|record| record.face == face);
                waits.then_some((severity, Some(face)))
            }
            _ => None,
        }
    }

    /// Tells who waits, or one of them, and waits no more when all were told.
    pub(super) fn give_up(
        &mut self,
        packet: Packet,
        parsed: &ParsedPacket,
        slot: Slot,
        severity: NackSeverity,
        only: Option<FaceId>,
    ) {
        let mut told = std::mem::take(&mut self.core.downstreams);
        let mut nonces = [0; 2 * kaido_ndn_tables::DOWNSTREAMS_MAX as usize];
        told.clear();
        let records = self.core.pit.downstreams(slot).filter(|record| record.expires > self.now);
        for (record, nonce) in
            records.filter(|record| only.is_none_or(|only| only == record.face)).zip(&mut nonces)
        {
            told.push((record.face, record.token));
            *nonce = record.nonce;
        }
        if only.is_none() {
            self.core.counters.unsatisfied += 1;
            self.core.insert_dead_nonce(slot, self.now);
            self.core.pit.erase(slot);
        }
        self.tell(packet, parsed, &told, &nonces, severity.into());
        self.core.downstreams = told;
    }

    /// Sends the Interest back to those that wait, to each with its own nonce and token.
    fn tell(
        &mut self,
        packet: Packet,
        parsed: &ParsedPacket,
        told: &[(FaceId, PitToken)],
        nonces: &[u32],
        reason: NackReason,
    ) {
        for (&(face, token), &nonce) in told.iter().zip(nonces) {
            if self.sink.face(face).is_none_or(|egress| egress.is_multi_access) {
                continue;
            }
            let Some(mut copy) = parse::copy(&packet.frame, || self.sink.allocate()) else { break };
            set_nonce(&mut copy, parsed, nonce);
            self.send_nack(face, copy, token, reason);
        }
        self.sink.drop(packet.face, packet.frame, NdnDrop::NACK_NOTED);
    }
}
