//! Knows packets of replayed captures again, which carry no trailer: by what of them no rule changes.
//!
//! ```text
//!   link, tags │ outer IP, UDP, GTP-U │ innermost IP, TCP or UDP │ payload │ padding
//!                                       └──────── whole ─────────────────┘
//!                                       └────── headers ─────────┘└payload┘      TTL and header checksum left out
//! ```
//! A packet that comes is the one of the capture with the same `whole`. One that is damaged is found by its headers or by its
//! payload alone, if such a packet is still missing, and is then laid beside what should have come. Equal packets cannot be
//! told apart: of them only their number is judged, and that of several the nearest to the next expected came.
//!
//! Memory is bounded by the captures, which are held anyway: 48 bytes a packet and two figures.

use std::hash::{DefaultHasher, Hasher};
use std::ops::Range;

use kaido_wire::{ipv4, ipv6};

use super::tracker::Tracker;
use crate::generator::{CompiledTraffic, Kind, Layout, Packets, link};
use crate::oracle::{Oracle, Verdict};

/// Shortest payload by which a packet is known, in bytes.
const PAYLOAD_MIN: usize = 8;
/// Equal packets of the window that are looked at for one that is missing.
const LOOKED_MAX: usize = 64;

/// What of a packet no rule changes, hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PacketDigest {
    whole: u64,
    headers: u64,
    payload: Option<u64>,
}

impl PacketDigest {
    fn of(frame: &[u8]) -> Self {
        let layout = Layout::of(frame);
        let innermost = layout.layers.iter().rfind(|layer| matches!(layer.kind, Kind::Ipv4 | Kind::Ipv6));
        let Some(ip) = innermost else {
            // All that rules leave alone, whatever it is.
            let at = link(frame).map_or(0, |(end, _)| end).saturating_sub(2);
            let whole = hash(&[&frame[at..]]);
            return Self { whole, headers: whole, payload: None };
        };
        let packet = &frame[ip.at..];
        let said = match ip.kind {
            Kind::Ipv4 => ipv4::header(packet).map(|header| usize::from(header.total_len)),
            _ => ipv6::header(packet).map(|header| usize::try_from(header.total_len).unwrap_or(usize::MAX)),
        };
        let headers_len = layout.headers_end - ip.at;
        let end = said.unwrap_or(packet.len()).clamp(headers_len, packet.len());
        let changed = if ip.kind == Kind::Ipv4 { [8..9, 10..12] } else { [7..8, 8..8] };
        let [hops, sum]: [Range<usize>; 2] = changed;
        let head = [&packet[..hops.start], &packet[hops.end..sum.start]];
        let (headers, payload) = (&packet[sum.end..headers_len], &packet[headers_len..end]);
        Self {
            whole: hash(&[head[0], head[1], headers, payload]),
            headers: hash(&[head[0], head[1], headers]),
            payload: (payload.len() >= PAYLOAD_MIN).then(|| hash(&[payload])),
        }
    }
}

fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

/// A packet of a capture.
#[derive(Clone, Copy, Debug)]
struct Entry {
    stream: u32,
    /// Its place in the capture.
    index: u32,
    /// The port at which it must come out, if it must.
    to: Option<u32>,
}

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) stream: usize,
    pub(super) sequence: u64,
    /// Whether it has come before.
    pub(super) again: bool,
}

/// The packets of all captures whose ports have rules.
#[derive(Debug)]
pub(super) struct Replays {
    /// By stream and index.
    entries: Box<[Entry]>,
    /// Hashes and numbers of entries, ascending: of whole packets, of headers, of payloads.
    keys: [Box<[(u64, u32)]>; 3],
    judged: Box<[bool]>,
}

impl Replays {
    pub(super) fn new(compiled: &CompiledTraffic, oracle: &mut Oracle) -> Self {
        let mut judged = vec![false; compiled.streams.len()];
        let mut entries = Vec::new();
        let mut keys: [Vec<(u64, u32)>; 3] = Default::default();
        for (number, stream) in compiled.streams.iter().enumerate() {
            let Packets::Captured(packets) = &stream.packets else { continue };
            for (index, packet) in packets.iter().enumerate() {
                let to = match oracle.verdict(stream.port, packet, &[]) {
                    Verdict::Out(to, _) => u32::try_from(to).ok(),
                    Verdict::Nothing(_) => None,
                    // No rule is about its port: none about that of any other of the capture.
                    Verdict::Unknown => break,
                };
                judged[number] = true;
                let marks = PacketDigest::of(packet);
                // Captures hold far fewer than this can count.
                let entry = u32::try_from(entries.len()).unwrap_or(u32::MAX);
                keys[0].push((marks.whole, entry));
                keys[1].push((marks.headers, entry));
                keys[2].extend(marks.payload.map(|payload| (payload, entry)));
                let count = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
                entries.push(Entry { stream: count(number), index: count(index), to });
            }
        }
        let sorted = |mut keys: Vec<(u64, u32)>| {
            keys.sort_unstable();
            keys.into_boxed_slice()
        };
        Self { entries: entries.into(), keys: keys.map(sorted), judged: judged.into() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether packets of a stream are judged here.
    pub(super) fn judges(&self, stream: usize) -> bool {
        self.judged[stream]
    }

    /// The packet that a frame is which came at a port, damaged in nothing that rules leave alone.
    pub(super) fn find<'t>(
        &self,
        compiled: &CompiledTraffic,
        port: usize,
        frame: &[u8],
        tracker: impl Fn(usize) -> &'t Tracker,
    ) -> Option<Match> {
        self.nearest(compiled, port, &self.keys[0], PacketDigest::of(frame).whole, &tracker)
    }

    /// The missing packet that a damaged frame is most like.
    pub(super) fn find_like<'t>(
        &self,
        compiled: &CompiledTraffic,
        port: usize,
        frame: &[u8],
        tracker: impl Fn(usize) -> &'t Tracker,
    ) -> Option<Match> {
        let marks = PacketDigest::of(frame);
        let by = |keys, key| {
            self.nearest(compiled, port, keys, key, &tracker).filter(|found: &Match| !found.again)
        };
        by(&self.keys[1], marks.headers).or_else(|| by(&self.keys[2], marks.payload?))
    }

    /// Of the packets with a key: a missing one before one that came, of those for this port, the nearest to the next expected.
    fn nearest<'t>(
        &self,
        compiled: &CompiledTraffic,
        port: usize,
        keys: &[(u64, u32)],
        key: u64,
        tracker: &impl Fn(usize) -> &'t Tracker,
    ) -> Option<Match> {
        let first = keys.partition_point(|(other, _)| *other < key);
        let mut same = &keys[first..];
        same = &same[..same.partition_point(|(other, _)| *other == key)];
        let entry = |at: &(u64, u32)| self.entries[at.1 as usize];
        let mut best: Option<((bool, bool, u64), Match)> = None;
        while let Some(stream) = same.first().map(|first| entry(first).stream) {
            let (own, rest) = same.split_at(same.partition_point(|other| entry(other).stream == stream));
            same = rest;
            let stream = stream as usize;
            let Packets::Captured(packets) = &compiled.streams[stream].packets else { continue };
            let exists = |sequence| compiled.streams[stream].pace.time_ns(sequence).is_some();
            let turn = ReplayCycle { len: packets.len() as u64, own, entry: &entry };
            let Some((sequence, again, distance)) = turn.nearest(tracker(stream), exists) else { continue };
            let is_for_port =
                own.iter().take(LOOKED_MAX).any(|at| entry(at).to.is_none_or(|to| to as usize == port));
            let rank = (again, !is_for_port, distance);
            if best.is_none_or(|(least, _)| rank < least) {
                best = Some((rank, Match { stream, sequence, again }));
            }
        }
        best.map(|(_, found)| found)
    }
}

/// Equal packets of one capture, which goes round and round.
struct ReplayCycle<'k, E> {
    /// Packets of the capture.
    len: u64,
    own: &'k [(u64, u32)],
    entry: &'k E,
}

impl<E: Fn(&(u64, u32)) -> Entry> ReplayCycle<'_, E> {
    fn index(&self, at: &(u64, u32)) -> u64 {
        (self.entry)(at).index.into()
    }

    /// How often the capture has gone round before a number, and the first of these packets that is not before it in its round.
    fn place(&self, number: u64) -> (u64, usize) {
        let (pass, within) = (number / self.len, number % self.len);
        (pass, self.own.partition_point(|at| self.index(at) < within))
    }

    /// The first that is not before a number.
    fn from(&self, number: u64) -> Option<u64> {
        let (pass, place) = self.place(number);
        let (pass, at) = match self.own.get(place) {
            Some(at) => (pass, at),
            None => (pass + 1, self.own.first()?),
        };
        Some(pass * self.len + self.index(at))
    }

    /// The last that is before a number.
    fn before(&self, number: u64) -> Option<u64> {
        let (pass, place) = self.place(number);
        let (pass, at) = match place.checked_sub(1) {
            Some(place) => (pass, &self.own[place]),
            None => (pass.checked_sub(1)?, self.own.last()?),
        };
        Some(pass * self.len + self.index(at))
    }

    /// The number of the packet that has come, whether it came before, and how far from the next expected it is.
    fn nearest(&self, tracker: &Tracker, exists: impl Fn(u64) -> bool) -> Option<(u64, bool, u64)> {
        let next = tracker.near();
        let ahead = self.from(next).filter(|number| exists(*number));
        let (mut missing, mut came, mut at) = (None, None, next);
        for _ in 0..LOOKED_MAX {
            let Some(before) = self.before(at).filter(|before| tracker.is_within(*before)) else { break };
            if !tracker.has(before) {
                missing = Some(before);
                break;
            }
            came = came.or(Some(before));
            at = before;
        }
        let new = match (ahead, missing) {
            (Some(ahead), Some(missing)) if next - missing <= ahead - next => Some(missing),
            (Some(ahead), _) => {
                // As far as half a capture ahead of where it has just been, it is rather the last one again.
                let is_again = came.is_some() && ahead > next && (ahead - next).saturating_mul(2) >= self.len;
                Some(ahead).filter(|_| !is_again)
            }
            (None, missing) => missing,
        };
        let (number, again) = match new.or(missing) {
            Some(number) => (number, false),
            None => (came?, true),
        };
        Some((number, again, number.abs_diff(next)))
    }
}
