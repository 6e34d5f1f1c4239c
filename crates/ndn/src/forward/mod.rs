//! The forwarding: what becomes of Interests, Data and Nacks.
//!
//! ```text
//!   packets ─▶ read, hash ─▶ ask for PIT, CS, FIB lines ─▶ compare tags, ask for entries ─▶ act, one by one
//! ```
//! Each stage runs over the whole batch: what it asks for comes together, and the more so the more it asks for at once.
//!
//! One [`Forwarder`] a worker; PIT, CS, dead nonces and measurements are its own, [`SharedTables`] is everyone's. The rules are
//! those of the NFD developer's guide, where nothing else is said.

mod data;
mod fast;
mod fast_path;
mod interest;
mod measurements;
mod nack;
mod park;
mod parse;
mod shared;
mod sink;
mod strategy;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use kaido_engine::{BATCH_MAX, FrameSize};
use kaido_ndn_tables::{
    DeadNonces, FaceId, NameHash, NodeInstant, NonceSeen, Pit, PitSettings, PitToken, PrefixLookup, Prefixes,
    Slot,
};
use kaido_table::{Reader, RegionError, Seed};

use crate::balance::WorkerPlacement;
use crate::cs::{Cs, CsSettings};
use crate::packet::Packet;

use measurements::Measurements;
use park::Parking;
pub(crate) use parse::copy;
use parse::{PacketContent, ParsedPacket};
pub use shared::SharedTables;
use shared::TableGuard;
pub use sink::{FaceView, Sink, Visit};
pub use strategy::{NoStrategy, StrategyChoice};

/// The node itself, as the face of packets that it makes.
pub const FACE_INTERNAL: FaceId = FaceId(1);
/// The content store, as the face of packets that come from it.
pub const FACE_CONTENT_STORE: FaceId = FaceId(254);

/// Interests that are given up in one tick at most, so that a flood of them does not hold up packets.
const EXPIRED_MAX: usize = 1024;
/// Entries and downstreams of one Data that there is room for without asking for memory.
const MATCHES: usize = 256;

/// What is done with Data that no Interest waits for: never forwarded, it may be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unsolicited {
    /// It is dropped.
    #[default]
    Drop,
    /// From applications of this host it is cached.
    CacheLocal,
    /// It is cached.
    CacheAll,
}

/// How much a worker's tables hold, and what it does.
#[derive(Clone, Copy, Debug)]
pub struct ForwarderSettings {
    /// Pending Interests.
    pub pit: PitSettings,
    /// Cached Data.
    pub cs: CsSettings,
    /// Nonces that are remembered after their Interests; about those of 6 s.
    pub dead_nonces: u32,
    /// Routes whose next hops are measured.
    pub measured_prefixes: u32,
    /// Of Data that nobody waits for.
    pub unsolicited: Unsolicited,
}

/// What a worker's forwarding did, in packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwarderCounters {
    /// Interests that came.
    pub interests_in: u64,
    /// Interests that were sent.
    pub interests_out: u64,
    /// Data that came.
    pub data_in: u64,
    /// Data that was sent.
    pub data_out: u64,
    /// Nacks that came.
    pub nacks_in: u64,
    /// Nacks that were sent.
    pub nacks_out: u64,
    /// Pending Interests whose Data came.
    pub satisfied: u64,
    /// Pending Interests that waited in vain.
    pub unsatisfied: u64,
}

/// What belongs to a worker alone.
struct Core {
    hash: NameHash,
    pit: Pit,
    cs: Cs,
    dead: DeadNonces,
    measurements: Measurements,
    counters: ForwarderCounters,
    unsolicited: Unsolicited,
    parking: Parking,
    /// Of nonces that we make.
    nonces: (Seed, u64),
    /// Where there are several workers: the rule by which packets have one, and which this is.
    place: Option<(WorkerPlacement, u8)>,
    // Scratch memory.
    matches: Vec<Slot>,
    downstreams: Vec<(FaceId, PitToken)>,
    head: Vec<u8>,
    hint: Prefixes,
}

/// The forwarding of one worker.
pub struct Forwarder {
    shared: Arc<SharedTables>,
    reader: Reader,
    epoch: Instant,
    core: Core,
    scratch: Box<[(ParsedPacket, Prefixes); BATCH_MAX]>,
}

impl std::fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forwarder").field("counters", &self.core.counters).finish_non_exhaustive()
    }
}

impl Forwarder {
    /// The forwarding of a worker that begins at `now`.
    ///
    /// # Errors
    /// [`RegionError`] when the memory is not to be had.
    ///
    /// # Panics
    /// When there are as many workers as can read the shared tables: more than 250.
    pub fn new(
        shared: &Arc<SharedTables>,
        settings: &ForwarderSettings,
        now: Instant,
    ) -> Result<Self, RegionError> {
        #[allow(clippy::expect_used)] // As documented: a node of so many workers is refused before.
        let reader = shared.domain().reader().expect("a place for a worker in the domain");
        let core = Core {
            hash: shared.hash(),
            pit: Pit::new(&settings.pit, NodeInstant::default())?,
            cs: Cs::new(settings.cs)?,
            dead: DeadNonces::new(settings.dead_nonces)?,
            measurements: Measurements::new(settings.measured_prefixes)?,
            counters: ForwarderCounters::default(),
            unsolicited: settings.unsolicited,
            parking: Parking::default(),
            nonces: (Seed::random(), 0),
            place: None,
            matches: Vec::with_capacity(MATCHES),
            downstreams: Vec::with_capacity(MATCHES),
            head: Vec::with_capacity(FrameSize::FourKib.bytes()),
            hint: Prefixes::default(),
        };
        let scratch = Box::new(std::array::from_fn(|_| (ParsedPacket::NOTHING, Prefixes::default())));
        Ok(Self { shared: shared.clone(), reader, epoch: now, core, scratch })
    }

    /// Makes this one worker of several.
    pub(crate) fn join(&mut self, place: WorkerPlacement, worker: u8) {
        self.core.place = Some((place, worker));
    }

    /// Whether an Interest was here before: its nonce was seen with the name. What is no Interest is taken for known.
    pub(crate) fn knows(&mut self, packet: &Packet, now: Instant) -> bool {
        let now = NodeInstant::at(self.epoch, now);
        let Self { core, scratch, .. } = self;
        let (parsed, prefixes) = &mut scratch[0];
        parsed.read(packet, false, &core.hash, prefixes);
        if parsed.what != PacketContent::Interest {
            return true;
        }
        let nonce = parsed.nonce.unwrap_or(0);
        let name = &packet.frame.data()[parsed.name()];
        core.dead.has(prefixes.whole(), nonce, now)
            || core
                .pit
                .find(name, prefixes, parsed.selectors)
                .is_some_and(|slot| core.pit.nonce_seen(slot, nonce, packet.face) != NonceSeen::default())
    }

    /// Forwards packets that came together, and leaves none.
    pub fn process<S: Sink>(
        &mut self,
        packets: &mut ArrayVec<Packet, BATCH_MAX>,
        now: Instant,
        sink: &mut S,
    ) {
        let now = NodeInstant::at(self.epoch, now);
        let guard = self.reader.pin();
        let tables = self.shared.tables(&guard);
        let all = packets.as_slice();
        let mut act = Act { core: &mut self.core, tables, now, sink };
        all.iter().for_each(expect);
        let scratch = &mut self.scratch[..all.len()];
        for (packet, (parsed, prefixes)) in all.iter().zip(&mut *scratch) {
            act.core.read(packet, parsed, prefixes);
        }
        for (packet, (parsed, prefixes)) in all.iter().zip(&*scratch) {
            act.core.ask(packet, parsed, prefixes, tables);
        }
        let mut sought: ArrayVec<_, BATCH_MAX> = ArrayVec::new();
        for (at, (packet, (parsed, prefixes))) in all.iter().zip(&*scratch).enumerate() {
            sought.push(act.core.approach(packet, parsed, prefixes, at, tables));
        }
        for (sought, (_, prefixes)) in sought.iter_mut().zip(&*scratch) {
            tables.fib.match_tags(sought, prefixes);
        }
        sought.iter().for_each(|sought| tables.fib.ripen(*sought));
        for (packet, ((parsed, prefixes), sought)) in packets.drain(..).zip(scratch.iter_mut().zip(&sought)) {
            act.packet(packet, parsed, prefixes, *sought);
        }
    }

    /// Gives up Interests that have waited long enough. To be called at least [when it is due](Self::tick_due).
    /// Goes on with Interests that waited for the disk.
    pub fn tick<S: Sink>(&mut self, now: Instant, sink: &mut S) {
        let now = NodeInstant::at(self.epoch, now);
        self.serve_tier(now, sink);
        for _ in 0..EXPIRED_MAX {
            let Some(slot) = self.core.pit.expired(now) else { break };
            self.core.counters.unsatisfied += 1;
            self.core.insert_dead_nonce(slot, now);
            self.core.pit.erase(slot);
        }
    }

    /// How long after `now` there may be something to give up.
    pub fn tick_due(&self, now: Instant) -> Option<Duration> {
        let now = NodeInstant::at(self.epoch, now);
        self.core.pit.next_expiry(now).into_iter().chain(self.tier_due(now)).min()
    }

    /// What it did.
    pub fn counters(&self) -> ForwarderCounters {
        self.core.counters
    }

    /// An instant by the clock of its tables.
    pub fn node_time(&self, at: Instant) -> NodeInstant {
        NodeInstant::at(self.epoch, at)
    }

    /// The nonces that it remembers after their Interests.
    pub fn dead_nonces(&self) -> &DeadNonces {
        &self.core.dead
    }

    /// Its pending Interests.
    pub fn pit(&self) -> &Pit {
        &self.core.pit
    }

    /// Its cached Data.
    pub fn cs(&self) -> &Cs {
        &self.core.cs
    }

    /// Its cached Data, to erase some or to change the bounds.
    pub fn cs_mut(&mut self) -> &mut Cs {
        &mut self.core.cs
    }
}

impl Core {
    /// Reads a packet. The name of Data with a token of ours is only compared with its entry's, unless it is to be cached.
    #[inline(always)]
    fn read(&self, packet: &Packet, parsed: &mut ParsedPacket, prefixes: &mut Prefixes) {
        let has_entry = self.pit.is_own(&packet.annotations.pit_token) && !self.cs.is_on();
        parsed.read(packet, has_entry, &self.hash, prefixes);
    }

    /// Asks for the first lines of memory that a packet's tables are looked up in.
    #[inline(always)]
    fn ask(&self, packet: &Packet, parsed: &ParsedPacket, prefixes: &Prefixes, tables: TableGuard<'_>) {
        match parsed.what {
            PacketContent::Interest => {
                self.pit.prefetch(prefixes.whole());
                if self.cs.is_on() {
                    self.cs.prefetch(prefixes.whole());
                }
                self.dead.prefetch(prefixes.whole(), parsed.nonce.unwrap_or(0));
                if packet.annotations.next_hop_face.is_none() {
                    tables.fib.ask(prefixes);
                }
            }
            PacketContent::Data | PacketContent::Nack => {
                self.pit.prefetch_token(&packet.annotations.pit_token, parsed.name().len());
                if parsed.is_hashed {
                    self.pit.prefetch(prefixes.whole());
                }
                if self.cs.is_on() {
                    self.cs.prefetch(prefixes.whole());
                    self.cs.prefetch_below(prefixes);
                }
            }
            PacketContent::Refused(_) => {}
        }
    }

    /// Compares what has come, and asks for what it leads to, after `before` others of the batch.
    #[inline(always)]
    fn approach<'g>(
        &self,
        packet: &Packet,
        parsed: &ParsedPacket,
        prefixes: &Prefixes,
        before: usize,
        tables: TableGuard<'g>,
    ) -> PrefixLookup<'g, kaido_ndn_tables::Hops> {
        match parsed.what {
            PacketContent::Interest => {
                self.pit.prefetch_entry(prefixes.whole(), parsed.name().len(), before);
                if self.cs.is_on() {
                    self.cs.prefetch_entry(prefixes.whole());
                }
                if packet.annotations.next_hop_face.is_some() {
                    return PrefixLookup::default();
                }
                tables.fib.bloom_candidates(prefixes)
            }
            PacketContent::Data | PacketContent::Nack => {
                if let Some((hash, nonce)) = self.pit.nonce_of(&packet.annotations.pit_token) {
                    self.dead.prefetch(hash, nonce);
                    if !parsed.is_hashed {
                        self.pit.prefetch(hash);
                    }
                }
                if parsed.is_hashed {
                    self.pit.prefetch_entry(prefixes.whole(), parsed.name().len(), before);
                }
                if self.cs.is_on() {
                    self.cs.prefetch_entry(prefixes.whole());
                    self.cs.prefetch_newest(prefixes);
                }
                PrefixLookup::default()
            }
            PacketContent::Refused(_) => PrefixLookup::default(),
        }
    }

    /// Remembers the nonces that an Interest was sent with: copies that are still on their way are known by them.
    fn insert_dead_nonce(&mut self, slot: Slot, now: NodeInstant) {
        let Some(hash) = self.pit.hash(slot) else { return };
        for nonce in self.pit.upstreams(slot).map(|record| record.nonce) {
            self.dead.add(hash, nonce, now);
        }
    }

    /// A nonce of our own for an Interest of a name that has this hash. Where there are several workers, a copy of the Interest
    /// that comes back is to come to this one, should the name be hot.
    #[allow(clippy::cast_possible_truncation)] // A nonce has 32 bits.
    fn nonce(&mut self, hash: u64) -> u32 {
        loop {
            self.nonces.1 += 1;
            let nonce = self.nonces.0.hash(&self.nonces.1) as u32;
            if self.place.is_none_or(|(place, worker)| place.of_interest(hash, nonce) == worker) {
                return nonce;
            }
        }
    }
}

/// Asks for what is read of a packet: what stands before the content, and how it is signed.
#[inline(always)]
fn expect(packet: &Packet) {
    packet.frame.prefetch(0);
    packet.frame.prefetch_end();
}

/// One packet's way, and what it may use.
struct Act<'a, 'g, S> {
    core: &'a mut Core,
    tables: TableGuard<'g>,
    now: NodeInstant,
    sink: &'a mut S,
}

impl<'g, S: Sink> Act<'_, 'g, S> {
    #[inline(always)]
    fn packet(
        &mut self,
        packet: Packet,
        parsed: &mut ParsedPacket,
        prefixes: &mut Prefixes,
        sought: PrefixLookup<'g, kaido_ndn_tables::Hops>,
    ) {
        match parsed.what {
            PacketContent::Interest => {
                if let Err(packet) = self.fast_interest(packet, parsed, prefixes, sought) {
                    self.interest(packet, parsed, prefixes, sought);
                }
            }
            PacketContent::Data if !parsed.is_hashed => {
                if let Err(packet) = self.data_by_token::<false>(packet, parsed, prefixes) {
                    parsed.read(&packet, false, &self.core.hash, prefixes);
                    self.other(packet, parsed, prefixes);
                }
            }
            PacketContent::Data => {
                if let Err(packet) = self.data_by_token::<true>(packet, parsed, prefixes) {
                    self.other(packet, parsed, prefixes);
                }
            }
            _ => self.other(packet, parsed, prefixes),
        }
    }

    fn other(&mut self, packet: Packet, parsed: &ParsedPacket, prefixes: &Prefixes) {
        match parsed.what {
            PacketContent::Data => self.data(packet, parsed, prefixes),
            PacketContent::Nack => self.nack(packet, parsed, prefixes),
            PacketContent::Refused(reason) => self.sink.drop(packet.face, packet.frame, reason),
            PacketContent::Interest => {}
        }
    }
}

/// The first component of names that stay on their host.
pub(crate) const LOCALHOST: &[u8] = b"\x08\x09localhost";
/// The first component of names that go one hop at most.
const LOCALHOP: &[u8] = b"\x08\x08localhop";

/// How far the packets of a name may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    Host,
    Hop,
    Any,
}

#[inline(always)]
fn reach(name: &[u8]) -> Reach {
    // Most names begin otherwise, and their first eight octets tell in one comparison.
    match name.first_chunk() {
        Some(b"\x08\x09localh") if name.starts_with(LOCALHOST) => Reach::Host,
        Some(b"\x08\x08localh") if name.starts_with(LOCALHOP) => Reach::Hop,
        _ => Reach::Any,
    }
}
