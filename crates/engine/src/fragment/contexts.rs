//! Which pieces of which packets are there: offsets, bounds, times. Generic over what a piece is.
//!
//! | what a piece does | what becomes of its packet |
//! |---|---|
//! | lies beside the others | kept, or let go on |
//! | repeats another exactly | the piece is dropped, the packet waits on (RFC 8200 4.5) |
//! | overlaps, ends elsewhere | all of it is dropped, what comes later too (RFC 5722, here for IPv4 as well) |
//! | is the 129th, exceeds 65535, is empty or no multiple of 8 | dropped |

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::drop_reason::DropReason;

/// Most pieces of one packet: 64 KiB at the smallest MTU of IPv6 are 53.
const PIECES_MAX: usize = 128;
/// Largest IP payload in octets.
const END_MAX: u32 = 65_535;

/// Bounds of what is kept of packets whose rest is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Packets at a time; the oldest gives way to a new one.
    pub packets: usize,
    /// Packets of one source at a time; its oldest gives way.
    pub packets_per_source: usize,
    /// Pieces kept in all; the oldest packets give way.
    pub pieces: usize,
    /// How long the rest of a packet is waited for, from its first piece on.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { packets: 512, packets_per_source: 64, pieces: 1024, time: Duration::from_secs(15) }
    }
}

/// What the pieces of one packet have in common (RFC 791 3.2, RFC 8200 4.5), and whose it is: addresses of one tenant may
/// be another's too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    /// Whose it is.
    pub scope: u64,
    /// Source.
    pub src: IpAddr,
    /// Destination.
    pub dst: IpAddr,
    /// Zero for IPv6, whose pieces need not agree in it.
    pub protocol: u8,
    /// What its fragments have in common.
    pub identification: u32,
}

impl FragmentKey {
    const fn source(&self) -> (u64, IpAddr) {
        (self.scope, self.src)
    }
}

/// Where a piece lies in its packet, in octets of the packet's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentRange {
    /// Where it begins.
    pub offset: u32,
    /// How long it is.
    pub len: u32,
    /// Whether something follows.
    pub more: bool,
}

impl FragmentRange {
    const fn end(self) -> u32 {
        self.offset + self.len
    }

    /// Whether any packet can have such a piece.
    pub const fn is_possible(self) -> bool {
        self.len > 0 && self.end() <= END_MAX && (!self.more || self.len.is_multiple_of(8))
    }
}

/// What has become of a piece.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome<P, R> {
    /// It waits for the rest.
    Kept,
    /// What it brought about.
    Ready(R),
    /// Dropped.
    Refused(P, DropReason),
}

/// Pieces that go on.
#[derive(Debug, PartialEq, Eq)]
pub struct ForwardedFragments<P> {
    /// Ports of the packet they are of.
    pub ports: (u16, u16),
    /// The piece that came.
    pub piece: P,
    /// Those that waited for it, in the order of arrival.
    pub behind: Vec<P>,
}

#[derive(Debug)]
struct Context<P> {
    /// Which of the contexts that the key had, so that an old time-out does not end a new context.
    number: u64,
    /// Offsets and ends of the pieces seen, ascending.
    seen: Vec<(u32, u32)>,
    /// Pieces that wait, with their offsets, in the order of arrival.
    waiting: Vec<(u32, P)>,
    /// Octets seen.
    octets: u32,
    /// Where the packet ends, once the last piece was seen.
    end: Option<u32>,
    /// Ports, once the first piece was seen; of packets that are followed.
    ports: Option<(u16, u16)>,
    /// A piece contradicted the others: nothing of it goes anywhere.
    rejected: bool,
}

/// Packets of which some pieces are there.
#[derive(Debug)]
pub struct Contexts<P> {
    limits: Limits,
    contexts: HashMap<FragmentKey, Context<P>>,
    /// Contexts in the order of their beginning; some have ended since.
    ages: VecDeque<(Instant, u64, FragmentKey)>,
    sources: HashMap<(u64, IpAddr), usize>,
    pieces: usize,
    numbers: u64,
    /// Pieces that had to go since [`Contexts::take_dropped`].
    dropped: Vec<(P, DropReason)>,
}

/// How a new piece stands to those seen.
enum Fit {
    /// At this place between them.
    Beside(usize),
    Repeated,
    Contradicts,
}

impl<P> Contexts<P> {
    /// No packet yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            contexts: HashMap::new(),
            ages: VecDeque::new(),
            sources: HashMap::new(),
            pieces: 0,
            numbers: 0,
            dropped: Vec::new(),
        }
    }

    /// Packets of which some pieces are there.
    pub fn len(&self) -> usize {
        self.contexts.len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.contexts.is_empty()
    }

    /// Keeps a piece until its packet is complete, whose pieces then come out front to back. A piece at the place of
    /// another is a repetition if `same` says so of the one that is kept and the new one.
    pub fn collect(
        &mut self,
        key: FragmentKey,
        place: FragmentRange,
        piece: P,
        now: Instant,
        same: impl FnOnce(&P, &P) -> bool,
    ) -> Outcome<P, Vec<P>> {
        match self.admit(key, place, now) {
            None => {}
            Some(DropReason::FRAGMENT_DUPLICATE) if !self.is_same(&key, place, &piece, same) => {
                return self.reject(key, piece);
            }
            Some(DropReason::FRAGMENT_OVERLAP) => return self.reject(key, piece),
            Some(reason) => return Outcome::Refused(piece, reason),
        }
        let Some(context) = self.contexts.get_mut(&key) else {
            return Outcome::Refused(piece, DropReason::REASSEMBLY_FULL);
        };
        context.waiting.push((place.offset, piece));
        self.pieces += 1;
        if context.end == Some(context.octets) {
            let mut whole = self.end(&key).map(|context| context.waiting).unwrap_or_default();
            whole.sort_by_key(|(offset, _)| *offset);
            return Outcome::Ready(whole.into_iter().map(|(_, piece)| piece).collect());
        }
        self.make_room();
        Outcome::Kept
    }

    /// Lets a piece go on with the ports of its packet's first piece, which `ports` are if it is that one; keeps it until
    /// they are known.
    pub fn follow(
        &mut self,
        key: FragmentKey,
        place: FragmentRange,
        ports: Option<(u16, u16)>,
        piece: P,
        now: Instant,
    ) -> Outcome<P, ForwardedFragments<P>> {
        match self.admit(key, place, now) {
            None => {}
            Some(DropReason::FRAGMENT_OVERLAP) => return self.reject(key, piece),
            Some(reason) => return Outcome::Refused(piece, reason),
        }
        let Some(context) = self.contexts.get_mut(&key) else {
            return Outcome::Refused(piece, DropReason::REASSEMBLY_FULL);
        };
        context.ports = context.ports.or(ports.filter(|_| place.offset == 0));
        let Some(ports) = context.ports else {
            context.waiting.push((place.offset, piece));
            self.pieces += 1;
            self.make_room();
            return Outcome::Kept;
        };
        let behind: Vec<P> = context.waiting.drain(..).map(|(_, piece)| piece).collect();
        self.pieces -= behind.len();
        if context.end == Some(context.octets) {
            self.end(&key);
        }
        Outcome::Ready(ForwardedFragments { ports, piece, behind })
    }

    /// Ends what has waited too long.
    pub fn expire(&mut self, now: Instant) {
        while let Some(&(since, number, key)) = self.ages.front() {
            let is_current = self.contexts.get(&key).is_some_and(|context| context.number == number);
            if is_current && now.saturating_duration_since(since) < self.limits.time {
                break;
            }
            self.ages.pop_front();
            if is_current {
                self.discard(&key, DropReason::REASSEMBLY_TIMEOUT);
            }
        }
    }

    /// Pieces that had to go.
    pub fn take_dropped(&mut self) -> Vec<(P, DropReason)> {
        std::mem::take(&mut self.dropped)
    }

    /// Enters a piece's place into the context of its packet, which begins if there is none; or says why not.
    fn admit(&mut self, key: FragmentKey, place: FragmentRange, now: Instant) -> Option<DropReason> {
        self.expire(now);
        if !place.is_possible() {
            return Some(DropReason::FRAGMENT_INVALID);
        }
        if !self.contexts.contains_key(&key) {
            self.begin(key, now);
        }
        let context = self.contexts.get_mut(&key)?;
        if context.rejected {
            return Some(DropReason::FRAGMENT_OVERLAP);
        }
        match context.fit(place) {
            Fit::Beside(_) if context.seen.len() == PIECES_MAX => Some(DropReason::FRAGMENT_INVALID),
            Fit::Beside(at) => {
                context.seen.insert(at, (place.offset, place.end()));
                context.octets += place.len;
                if !place.more {
                    context.end = Some(place.end());
                }
                None
            }
            Fit::Repeated => Some(DropReason::FRAGMENT_DUPLICATE),
            Fit::Contradicts => Some(DropReason::FRAGMENT_OVERLAP),
        }
    }

    /// Whether a repeated piece says the same as the one that waits.
    fn is_same(
        &self,
        key: &FragmentKey,
        place: FragmentRange,
        piece: &P,
        same: impl FnOnce(&P, &P) -> bool,
    ) -> bool {
        let waiting = self.contexts.get(key).map(|context| &context.waiting[..]).unwrap_or_default();
        let kept = waiting.iter().find(|(offset, _)| *offset == place.offset);
        kept.is_some_and(|(_, kept)| same(kept, piece))
    }

    fn begin(&mut self, key: FragmentKey, now: Instant) {
        if self.sources.get(&key.source()).is_some_and(|&packets| packets >= self.limits.packets_per_source) {
            let own = self.ages.iter().find(|(_, number, other)| {
                other.source() == key.source()
                    && self.contexts.get(other).is_some_and(|context| context.number == *number)
            });
            if let Some(&(_, _, oldest)) = own {
                self.discard(&oldest, DropReason::REASSEMBLY_FULL);
            }
        }
        if self.contexts.len() >= self.limits.packets {
            self.discard_oldest();
        }
        self.numbers += 1;
        let context = Context {
            number: self.numbers,
            seen: Vec::new(),
            waiting: Vec::new(),
            octets: 0,
            end: None,
            ports: None,
            rejected: false,
        };
        self.contexts.insert(key, context);
        *self.sources.entry(key.source()).or_default() += 1;
        self.ages.push_back((now, self.numbers, key));
        if self.ages.len() > 2 * self.limits.packets.max(64) {
            // Mostly of packets that were completed.
            let contexts = &self.contexts;
            self.ages.retain(|(_, number, key)| {
                contexts.get(key).is_some_and(|context| context.number == *number)
            });
        }
    }

    /// Drops the pieces of a packet and all that will come of it until its time is over.
    fn reject<R>(&mut self, key: FragmentKey, piece: P) -> Outcome<P, R> {
        if let Some(context) = self.contexts.get_mut(&key) {
            context.rejected = true;
            self.pieces -= context.waiting.len();
            let waiting = context.waiting.drain(..);
            self.dropped.extend(waiting.map(|(_, piece)| (piece, DropReason::FRAGMENT_OVERLAP)));
        }
        Outcome::Refused(piece, DropReason::FRAGMENT_OVERLAP)
    }

    fn make_room(&mut self) {
        while self.pieces > self.limits.pieces && self.discard_oldest() {}
    }

    fn discard_oldest(&mut self) -> bool {
        while let Some((_, number, key)) = self.ages.pop_front() {
            if self.contexts.get(&key).is_some_and(|context| context.number == number) {
                self.discard(&key, DropReason::REASSEMBLY_FULL);
                return true;
            }
        }
        false
    }

    fn discard(&mut self, key: &FragmentKey, reason: DropReason) {
        if let Some(context) = self.end(key) {
            self.dropped.extend(context.waiting.into_iter().map(|(_, piece)| (piece, reason)));
        }
    }

    /// Takes a context out.
    fn end(&mut self, key: &FragmentKey) -> Option<Context<P>> {
        let context = self.contexts.remove(key)?;
        self.pieces -= context.waiting.len();
        if let Entry::Occupied(mut packets) = self.sources.entry(key.source()) {
            *packets.get_mut() -= 1;
            if *packets.get() == 0 {
                packets.remove();
            }
        }
        Some(context)
    }
}

impl<P> Context<P> {
    fn fit(&self, place: FragmentRange) -> Fit {
        let at = self.seen.partition_point(|(offset, _)| *offset < place.offset);
        if self.seen.get(at) == Some(&(place.offset, place.end()))
            && (place.more || self.end == Some(place.end()))
        {
            return Fit::Repeated;
        }
        let before = at.checked_sub(1).and_then(|before| self.seen.get(before));
        let overlaps = before.is_some_and(|(_, end)| *end > place.offset)
            || self.seen.get(at).is_some_and(|(offset, _)| *offset < place.end());
        let last = self.seen.last().map_or(0, |(_, end)| *end);
        let ends_elsewhere = if place.more {
            self.end.is_some_and(|end| place.end() >= end)
        } else {
            self.end.is_some() || last > place.end()
        };
        if overlaps || ends_elsewhere { Fit::Contradicts } else { Fit::Beside(at) }
    }
}

#[cfg(test)]
mod tests;
