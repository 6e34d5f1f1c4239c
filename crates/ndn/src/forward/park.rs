//! Delayed response: an Interest for what is on disk is parked until that was read; those that come meanwhile gather, and
//! one read answers them all. What is not to be had from the disk after all is asked for as if it had never been there.
//!
//! ```text
//!   Interest ─not in memory─▶ index of the tier ─▶ PIT entry, parked ─▶ read ─▶ all who wait for the Data
//!                                                                        └─nothing, stale─▶ upstream
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use kaido_engine::Frame;
use kaido_ndn_tables::{NodeInstant, PitToken, Prefixes, Slot, TokenFound};

use super::data::digest_of;
use super::interest::Pending;
use super::parse::{PacketContent, ParsedPacket};
use super::{Act, Core, FACE_CONTENT_STORE, Forwarder, Sink};
use crate::NdnDrop;
use crate::cs::NewData;
use crate::packet::{Annotations, Packet};
use crate::tier::{Read, RecordLocation, TierHandle, add};

/// The end of a list of parked Interests.
const NONE: u32 = u32::MAX;
/// Pending Interests that can be parked, for each read that may be under way.
const PARKED_A_READ: usize = 2;
/// Reads that are taken back in one tick at most, so that they do not hold up packets.
const BACK_MAX: usize = 64;

/// An Interest that waits for a read; its PIT entry knows who else does.
#[derive(Debug)]
struct ParkedInterest {
    packet: Packet,
    slot: Slot,
    token: PitToken,
    /// The next that waits for the same read.
    next: u32,
}

/// A read that is under way or about to be.
#[derive(Clone, Copy, Debug)]
struct PendingRead {
    place: Option<RecordLocation>,
    hash: u64,
    first: u32,
    /// What is read may be kept in memory.
    keeps: bool,
}

impl PendingRead {
    const NOTHING: Self = Self { place: None, hash: 0, first: NONE, keeps: false };
}

/// Interests that wait for the disk.
#[derive(Debug, Default)]
pub(super) struct Parking {
    parked: Vec<Option<ParkedInterest>>,
    free: Vec<u32>,
    /// By the tickets of the reads.
    under_way: Vec<PendingRead>,
    /// Reads that wait for more Interests, and until when.
    gathering: VecDeque<(NodeInstant, u32)>,
}

impl Parking {
    fn of(reads_max: usize) -> Self {
        let most = reads_max * PARKED_A_READ;
        Self {
            parked: (0..most).map(|_| None).collect(),
            free: (0..u32::try_from(most).unwrap_or(0)).collect(),
            under_way: vec![PendingRead::NOTHING; reads_max],
            gathering: VecDeque::with_capacity(reads_max),
        }
    }

    /// The read of a place, if there is one: its ticket.
    fn read_of(&self, place: RecordLocation) -> Option<u32> {
        let found = self.under_way.iter().position(|read| read.place == Some(place));
        found.and_then(|ticket| u32::try_from(ticket).ok())
    }

    fn add(&mut self, ticket: u32, number: u32, packet: Packet, slot: Slot, token: PitToken) {
        let first = &mut self.under_way[ticket as usize].first;
        let next = std::mem::replace(first, number);
        self.parked[number as usize] = Some(ParkedInterest { packet, slot, token, next });
    }

    /// Takes an Interest that waits for a read.
    fn take(&mut self, ticket: u32) -> Option<ParkedInterest> {
        let first = &mut self.under_way[ticket as usize].first;
        let parked = self.parked.get_mut(*first as usize)?.take()?;
        self.free.push(std::mem::replace(first, parked.next));
        Some(parked)
    }
}

impl Forwarder {
    /// Has the tier on disk answer what memory does not, and take what memory evicts.
    pub fn attach(&mut self, handle: TierHandle) {
        self.core.parking = Parking::of(handle.reads_max());
        self.core.cs.attach(handle);
    }

    /// After something was erased: what was evicted before is on its way to the disk, and what is being read is not kept.
    pub(crate) fn settle_tier(&mut self) {
        if let Some(handle) = self.core.cs.handle() {
            handle.send();
            self.core.parking.under_way.iter_mut().for_each(|read| read.keeps = false);
        }
    }

    /// Goes on with what waited for the disk.
    #[inline]
    pub(super) fn serve_tier<S: Sink>(&mut self, now: NodeInstant, sink: &mut S) {
        let Some(handle) = self.core.cs.handle() else { return };
        handle.tick(now);
        let gathering = &mut self.core.parking.gathering;
        while gathering.front().is_some_and(|(until, _)| *until <= now)
            && let Some((_, ticket)) = gathering.pop_front()
        {
            let PendingRead { place, hash, .. } = self.core.parking.under_way[ticket as usize];
            if let Some(place) = place {
                handle.read(ticket, place, hash, now);
            }
        }
        if handle.has_next() {
            self.take_back(now, sink);
        }
    }

    #[cold]
    fn take_back<S: Sink>(&mut self, now: NodeInstant, sink: &mut S) {
        let guard = self.reader.pin();
        let tables = self.shared.tables(&guard);
        let core = &mut self.core;
        for _ in 0..BACK_MAX {
            let Some(read) = core.cs.handle().and_then(TierHandle::next) else { return };
            Act { core: &mut *core, tables, now, sink: &mut *sink }.came(&read);
            if let Some(handle) = core.cs.handle() {
                handle.take_back(read);
            }
        }
    }

    /// How long after `now` [`Forwarder::serve_tier`] has something to do.
    pub(super) fn tier_due(&self, now: NodeInstant) -> Option<Duration> {
        let handle = self.core.cs.lane_ref()?;
        if handle.has_next() {
            return Some(Duration::ZERO);
        }
        let gathered = self.core.parking.gathering.front().map(|(until, _)| *until);
        gathered.into_iter().chain(handle.due()).min().map(|moment| moment.since(now))
    }
}

impl<S: Sink> Act<'_, '_, S> {
    /// Parks an Interest that has just been put into the PIT, if the disk may answer it; gives it back if not.
    #[inline]
    pub(super) fn unparked(
        &mut self,
        packet: Packet,
        parsed: &ParsedPacket,
        prefixes: &Prefixes,
        pending: Pending,
    ) -> Option<Packet> {
        if self.core.cs.serving_lane().is_none() {
            return Some(packet);
        }
        if pending.was_pending {
            self.join(packet, pending)
        } else {
            self.park(packet, parsed, prefixes, pending.slot)
        }
    }

    /// One more Interest of a name and its selectors.
    #[inline(never)]
    fn join(&mut self, packet: Packet, pending: Pending) -> Option<Packet> {
        let Core { pit, cs, .. } = &mut *self.core;
        if !pit.is_parked(pending.slot) {
            return Some(packet);
        }
        if pending.came_before {
            // Its consumer has waited long enough.
            pit.set_parked(pending.slot, false);
            return Some(packet);
        }
        if let Some(handle) = cs.handle() {
            add(&handle.counters().parked, 1);
            add(&handle.counters().gathered, 1);
        }
        self.sink.drop(packet.face, packet.frame, NdnDrop::AGGREGATED);
        None
    }

    /// The first Interest of a name and its selectors.
    #[inline(never)]
    fn park(
        &mut self,
        packet: Packet,
        parsed: &ParsedPacket,
        prefixes: &Prefixes,
        slot: Slot,
    ) -> Option<Packet> {
        let Core { pit, cs, parking, .. } = &mut *self.core;
        let Some(handle) = cs.handle() else { return Some(packet) };
        let (hash, selectors) = (prefixes.whole(), parsed.selectors);
        let may_be_longer = selectors.can_be_prefix && !prefixes.has_digest();
        let find = |is_below| handle.find(hash, is_below, selectors.must_be_fresh);
        let Some(place) = find(false).or_else(|| if may_be_longer { find(true) } else { None }) else {
            return Some(packet);
        };
        let joined = parking.read_of(place);
        let number = parking.free.pop();
        let ticket = joined.or_else(|| number.and_then(|_| handle.ticket()));
        let (Some(number), Some(ticket)) = (number, ticket) else {
            parking.free.extend(number);
            add(&handle.counters().busy, 1);
            return Some(packet);
        };
        add(&handle.counters().parked, 1);
        pit.set_parked(slot, true);
        parking.add(ticket, number, packet, slot, pit.token(slot));
        if joined.is_some() {
            add(&handle.counters().gathered, 1);
            return None;
        }
        let first = parking.under_way[ticket as usize].first;
        parking.under_way[ticket as usize] = PendingRead { place: Some(place), hash, first, keeps: true };
        match handle.gather() {
            Duration::ZERO => handle.read(ticket, place, hash, self.now),
            gather => parking.gathering.push_back((self.now + gather, ticket)),
        }
        None
    }

    /// A read has come to its end: all who wait for what was read are answered, and the others who waited for it are not.
    fn came(&mut self, read: &Read) {
        let ticket = read.ticket();
        let keeps = self.core.parking.under_way[ticket as usize].keeps;
        self.core.parking.under_way[ticket as usize].place = None;
        if let Some((octets, fresh_ms)) = read.packet() {
            self.answer_all(octets, Duration::from_millis(fresh_ms), keeps);
        }
        while let Some(ParkedInterest { packet, slot, token, .. }) = self.core.parking.take(ticket) {
            let waits = self.core.pit.by_token(&token) == TokenFound::Entry(slot);
            if waits && self.core.pit.is_parked(slot) {
                self.go_on(packet, slot);
            } else {
                // It was answered, was sent since, or nobody waits any more.
                self.sink.drop(packet.face, packet.frame, NdnDrop::FROM_CACHE);
            }
        }
    }

    /// Answers all who wait for a Data.
    fn answer_all(&mut self, octets: &[u8], freshness: Duration, keeps: bool) {
        let Some(frame) = Frame::from_slice(octets, || self.sink.allocate()) else { return };
        let packet = Packet { frame, face: FACE_CONTENT_STORE, annotations: Annotations::default() };
        let mut prefixes = Prefixes::default();
        let mut parsed = ParsedPacket::NOTHING;
        parsed.read(&packet, false, &self.core.hash, &mut prefixes);
        let mut matches = std::mem::take(&mut self.core.matches);
        matches.clear();
        if parsed.what == PacketContent::Data {
            let Core { pit, hash, .. } = &*self.core;
            let name = &packet.frame.data()[parsed.name()];
            let digest = digest_of(&packet.frame);
            pit.satisfied_by(hash, name, &prefixes, &mut { digest }, &mut matches);
            matches.retain(|&slot| !freshness.is_zero() || !pit.selectors(slot).must_be_fresh);
        }
        if matches.is_empty() {
            // The index has led to another name, or nobody waits any more.
            self.sink.drop(packet.face, packet.frame, NdnDrop::NO_DOWNSTREAM);
        } else {
            let is_kept = keeps && self.keep_read(&packet.frame, &parsed, &prefixes, freshness, &matches);
            self.satisfy(packet, &parsed, &matches, is_kept);
            let answered = self.core.downstreams.len();
            if let Some(handle) = self.core.cs.handle() {
                add(&handle.counters().answered, answered);
                add(&handle.counters().answered_octets, answered * octets.len());
            }
        }
        self.core.matches = matches;
    }

    /// Keeps in memory what was read, if it was asked for as often as that needs.
    fn keep_read(
        &mut self,
        frame: &Frame,
        parsed: &ParsedPacket,
        prefixes: &Prefixes,
        freshness: Duration,
        matches: &[Slot],
    ) -> bool {
        let Core { pit, cs, .. } = &mut *self.core;
        let name = parsed.name();
        let data = NewData { frame, name_at: name.start, name_len: name.len(), freshness, is_on_disk: true };
        matches.iter().filter_map(|&slot| pit.hash(slot)).any(|hash| cs.is_wanted(hash))
            && cs.insert(&data, prefixes, self.now)
    }

    /// Sends an Interest that waited for the disk in vain.
    fn go_on(&mut self, packet: Packet, slot: Slot) {
        self.core.pit.set_parked(slot, false);
        if let Some(handle) = self.core.cs.handle() {
            add(&handle.counters().forwarded, 1);
        }
        let Some(ingress) = self.sink.face(packet.face) else {
            return self.sink.drop(packet.face, packet.frame, NdnDrop::FACE_UNKNOWN);
        };
        let mut prefixes = Prefixes::default();
        let mut parsed = ParsedPacket::NOTHING;
        parsed.read(&packet, false, &self.core.hash, &mut prefixes);
        // One hop was counted when it came.
        parsed.hop_limit = parsed.hop_limit.map(|limit| limit.saturating_add(1));
        let mut sought = self.tables.fib.bloom_candidates(&prefixes);
        self.tables.fib.match_tags(&mut sought, &prefixes);
        let pending = Pending { slot, was_pending: false, came_before: false };
        self.forward(packet, &parsed, &prefixes, sought, ingress, pending);
    }
}

impl Drop for Forwarder {
    /// What is in memory goes to the disk, for the next process.
    fn drop(&mut self) {
        self.core.cs.spill_all();
    }
}
