//! The fast path: a new Interest to one next hop, and its Data to the one that waits for it.
//!
//! What is done here is what [`super::interest`] and [`super::data`] do, which know all cases. Each function decides on what
//! it finds and changes nothing before it is sure. If it is not, it gives the packet back. The property test against the
//! model has packets of both paths.

use kaido_ndn_tables::{Account, FaceId, Hops, InRecord, OutRecord, PrefixLookup, Prefixes, Selectors};
use kaido_table::VacantEntry;

use super::interest::may_go;
use super::parse::ParsedPacket;
use super::{Act, FaceView, Reach, Sink, reach};
use crate::packet::{Annotations, Packet};

/// Where a fast-path Interest goes, and where it waits.
struct FastRoute {
    face: FaceId,
    egress: FaceView,
    vacancy: VacantEntry,
    /// Of who asks.
    account: Account,
}

impl<'g, S: Sink> Act<'_, 'g, S> {
    /// Forwards a new Interest to the cheapest next hop.
    ///
    /// # Errors
    /// The packet, and nothing has been done, when it is not so simple.
    #[inline(never)]
    pub(super) fn fast_interest(
        &mut self,
        mut packet: Packet,
        parsed: &ParsedPacket,
        prefixes: &Prefixes,
        sought: PrefixLookup<'g, Hops>,
    ) -> Result<(), Packet> {
        let Some(FastRoute { face, egress, vacancy, account }) =
            self.fast_route(&packet, parsed, prefixes, sought)
        else {
            return Err(packet);
        };
        let octets = packet.frame.data_mut();
        let waits = InRecord {
            expires: parsed.expires(self.now),
            face: packet.face,
            nonce: parsed.nonce.unwrap_or(0),
            token: packet.annotations.pit_token,
            account,
        };
        let asked = OutRecord { sent: self.now, face, nonce: waits.nonce, nack: None };
        let must_be_fresh = parsed.selectors.must_be_fresh;
        let opened = self.core.pit.insert_fast(
            &octets[parsed.name()],
            prefixes,
            vacancy,
            must_be_fresh,
            &waits,
            &asked,
        );
        let Some(pit_token) = opened else { return Err(packet) };
        if let (Some(limit), Some(octet)) =
            (parsed.hop_limit, octets.get_mut(usize::from(parsed.hop_limit_at)))
        {
            *octet = limit - 1;
        }
        let core = &mut *self.core;
        core.cs.asked(prefixes.whole());
        core.cs.count_miss();
        core.counters.interests_in += 1;
        core.counters.interests_out += 1;
        let Packet { frame, face: from, annotations } = packet;
        let annotations = Annotations {
            pit_token,
            congestion_mark: annotations.congestion_mark,
            non_discovery: annotations.non_discovery,
            incoming_face: egress.local_fields.then_some(from),
            ..Annotations::default()
        };
        self.sink.send(face, frame, &annotations);
        Ok(())
    }

    /// Where a new Interest goes, if nothing is known of its name, and nothing is to be decided.
    #[inline(always)]
    fn fast_route(
        &self,
        packet: &Packet,
        parsed: &ParsedPacket,
        prefixes: &Prefixes,
        sought: PrefixLookup<'g, Hops>,
    ) -> Option<FastRoute> {
        let (core, hash) = (&*self.core, prefixes.whole());
        let Selectors { can_be_prefix, .. } = parsed.selectors;
        if can_be_prefix || prefixes.has_digest() || parsed.has_hint || parsed.hop_limit == Some(0) {
            return None;
        }
        if core.dead.has(hash, parsed.nonce?, self.now) || !core.cs.lacks(hash) {
            return None;
        }
        let vacancy = core.pit.vacancy(hash)?;
        let name = &packet.frame.data()[parsed.name()];
        let ingress = self.sink.face(packet.face)?;
        let face = match packet.annotations.next_hop_face {
            Some(face) => face,
            None if self.tables.strategy(name, prefixes).begins_with_cheapest() => {
                let (_, hops) = self.tables.fib.take(sought, name, prefixes)?;
                hops.iter().next().map(|hop| hop.face).filter(|face| *face != packet.face)?
            }
            None => return None,
        };
        let egress = self.sink.face(face)?;
        let is_eligible = reach(name) == Reach::Any && may_go(Reach::Any, parsed, ingress, egress);
        is_eligible.then_some(FastRoute { face, egress, vacancy, account: ingress.account })
    }

    /// Forwards Data by its token to the one that waits, and keeps it if it is to be kept. Without a cache it is a function of its
    /// own, in which what is known of the entry stays in registers.
    ///
    /// # Errors
    /// The packet, and nothing has been done, when it is not so simple.
    #[inline(never)]
    pub(super) fn data_by_token<const CACHES: bool>(
        &mut self,
        packet: Packet,
        parsed: &ParsedPacket,
        prefixes: &Prefixes,
    ) -> Result<(), Packet> {
        let name = &packet.frame.data()[parsed.name()];
        let Some(sole) = self.core.pit.single_downstream(&packet.annotations.pit_token, name) else {
            return Err(packet);
        };
        let waits = &sole.waits;
        let is_eligible = waits.expires > self.now
            && waits.face != packet.face
            && sole.asked == packet.face
            && reach(name) != Reach::Host;
        let Some(egress) = self.sink.face(waits.face).filter(|_| is_eligible) else { return Err(packet) };
        if self.sink.face(packet.face).is_none() {
            return Err(packet);
        }
        self.core.counters.data_in += u64::from(self.sink.visit().is_first);
        let is_cached = CACHES && self.keep_wanted(&packet, parsed, prefixes, sole.hash);
        self.sink.satisfies(&packet, sole.hash);
        self.core.counters.satisfied += 1;
        if !is_cached || !self.is_known_by_cached(self.core.pit.must_be_fresh(&sole)) {
            self.core.dead.add_new(sole.hash, sole.nonce, self.now);
        }
        self.core.pit.erase_fast(&sole);
        let Packet { frame, face, annotations } = packet;
        self.send_one(frame, (waits.face, egress), waits.token, face, annotations.congestion_mark);
        Ok(())
    }

    /// Keeps Data that an Interest of this hash waits for, if it is to be kept; whether it was.
    #[inline(never)]
    fn keep_wanted(
        &mut self,
        packet: &Packet,
        parsed: &ParsedPacket,
        prefixes: &Prefixes,
        hash: u64,
    ) -> bool {
        if packet.annotations.no_cache || !self.core.cs.is_on() {
            return false;
        }
        let is_wanted = self.core.cs.is_wanted(hash);
        if !is_wanted {
            self.core.cs.refuse();
        }
        is_wanted && self.keep(&packet.frame, parsed, prefixes)
    }
}
