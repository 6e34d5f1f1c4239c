//! What a worker has learned of next hops, by the prefix of the route: round-trip times, failures, whose turn it is.
//!
//! Bounded: of prefixes that are not used the memory is used again, the oldest of a few first. Prefixes of more octets
//! than an entry keeps have none, and their next hops go by cost.

use std::time::Duration;

use kaido_ndn_tables::{FaceId, NodeInstant};
use kaido_table::{HashIndex, RegionError, Slots};

/// Octets of a prefix that is measured.
const PREFIX_MAX: usize = 116;
/// Next hops of a prefix that are measured.
const FACES_MAX: usize = 8;
/// Entries that are looked at for one that is no longer used.
const SWEEP: usize = 8;

/// Bounds of the time after which an answer is late (RFC 6298, with the bounds of NFD).
const RTO_MIN: Duration = Duration::from_millis(200);
const RTO_INITIAL: Duration = Duration::from_secs(1);
const RTO_MAX: Duration = Duration::from_secs(60);

/// What is known of a next hop.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FaceRecord {
    pub(super) face: FaceId,
    /// Smoothed round-trip time in microseconds; 0 is none yet.
    rtt_us: u32,
    variation_us: u32,
    /// Since when an Interest has not been answered, in microseconds of [`NodeInstant`]; 0 when none waits.
    waiting_since_us: u64,
    failed: bool,
}

/// How good a next hop is, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// Answers, in so many microseconds.
    Measured(u32),
    /// Nothing is known.
    Unknown,
    /// Does not answer.
    Failed,
}

impl FaceRecord {
    fn rto(&self) -> Duration {
        if self.rtt_us == 0 {
            return RTO_INITIAL;
        }
        let rto = u64::from(self.rtt_us) + 4 * u64::from(self.variation_us);
        Duration::from_micros(rto).clamp(RTO_MIN, RTO_MAX)
    }

    /// How good it is now: what has not answered in time has failed.
    pub(super) fn rank(&self, now: NodeInstant) -> Rank {
        let waits = micros(now).saturating_sub(self.waiting_since_us);
        let is_late = self.waiting_since_us != 0 && Duration::from_micros(waits) > self.rto();
        match self.rtt_us {
            _ if self.failed || is_late => Rank::Failed,
            0 => Rank::Unknown,
            rtt => Rank::Measured(rtt),
        }
    }

    /// Takes a round-trip time into account (RFC 6298).
    fn note_rtt(&mut self, rtt: Duration) {
        let rtt_us = u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX).max(1);
        if self.rtt_us == 0 {
            (self.rtt_us, self.variation_us) = (rtt_us, rtt_us / 2);
        } else {
            let away = self.rtt_us.abs_diff(rtt_us);
            self.variation_us = self.variation_us - self.variation_us / 4 + away / 4;
            self.rtt_us = (self.rtt_us - self.rtt_us / 8).saturating_add(rtt_us / 8).max(1);
        }
        (self.waiting_since_us, self.failed) = (0, false);
    }
}

fn micros(moment: NodeInstant) -> u64 {
    (moment.nanoseconds() / 1000).max(1)
}

#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Entry {
    hash: u64,
    used: NodeInstant,
    /// When another next hop is to be tried, beside the best.
    probe_at: Option<NodeInstant>,
    /// How often the entry was given to another prefix.
    generation: u16,
    /// Whose turn it is.
    turn: u16,
    faces_len: u8,
    prefix_len: u8,
    is_live: bool,
    prefix: [u8; PREFIX_MAX],
    faces: [FaceRecord; FACES_MAX],
}

/// An entry, as a pending Interest remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MeasurementRef {
    number: u32,
    generation: u16,
}

impl MeasurementRef {
    /// In 48 bits, never zero.
    pub(super) fn to_bits(self) -> u64 {
        u64::from(self.number + 1) << 16 | u64::from(self.generation)
    }

    pub(super) fn from_bits(bits: u64) -> Option<Self> {
        let number = u32::try_from(bits >> 16).ok()?.checked_sub(1)?;
        Some(Self { number, generation: u16::try_from(bits & 0xffff).ok()? })
    }
}

/// Measurements by prefix.
#[derive(Debug)]
pub(super) struct Measurements {
    index: HashIndex,
    entries: Slots<Entry>,
    hand: usize,
}

impl Measurements {
    pub(super) fn new(prefixes: u32) -> Result<Self, RegionError> {
        // 31 bits of number and 16 of generation are remembered.
        let prefixes = prefixes.clamp(1, 1 << 24);
        Ok(Self { index: HashIndex::new(prefixes)?, entries: Slots::new(prefixes)?, hand: 0 })
    }

    /// The entry of a prefix, which is made if there is none; `None` when the prefix is too long.
    pub(super) fn of(&mut self, prefix: &[u8], hash: u64, now: NodeInstant) -> Option<MeasurementRef> {
        let prefix_len = u8::try_from(prefix.len()).ok().filter(|_| prefix.len() <= PREFIX_MAX)?;
        let is = |entry: &Entry| {
            entry.hash == hash && entry.prefix_len == prefix_len && &entry.prefix[..prefix.len()] == prefix
        };
        let found = self.index.find(hash).find(|&number| is(&self.entries[number as usize]));
        let number = match found {
            Some(number) => number,
            None => {
                let number = self.vacant()?;
                let generation = self.entries[number as usize].generation;
                let mut octets = [0; PREFIX_MAX];
                octets[..prefix.len()].copy_from_slice(prefix);
                self.entries[number as usize] =
                    Entry { hash, generation, prefix_len, is_live: true, prefix: octets, ..Self::EMPTY };
                if !self.index.insert(hash, number) {
                    self.entries[number as usize].is_live = false;
                    return None;
                }
                number
            }
        };
        let entry = &mut self.entries[number as usize];
        entry.used = now;
        Some(MeasurementRef { number, generation: entry.generation })
    }

    const EMPTY: Entry = Entry {
        hash: 0,
        used: NodeInstant::from_nanoseconds(0),
        probe_at: None,
        generation: 0,
        turn: 0,
        faces_len: 0,
        prefix_len: 0,
        is_live: false,
        prefix: [0; PREFIX_MAX],
        faces: [FaceRecord {
            face: FaceId(0),
            rtt_us: 0,
            variation_us: 0,
            waiting_since_us: 0,
            failed: false,
        }; FACES_MAX],
    };

    /// An entry that is free, if need be by taking the one of the next few that was not used for longest.
    fn vacant(&mut self) -> Option<u32> {
        if let Some(number) = self.entries.push(Self::EMPTY) {
            return Some(number);
        }
        let len = self.entries.len();
        let oldest = (0..SWEEP.min(len))
            .map(|step| (self.hand + step) % len)
            .min_by_key(|&at| self.entries[at].used)?;
        self.hand = (self.hand + SWEEP) % len;
        let number = u32::try_from(oldest).ok()?;
        let entry = &mut self.entries[oldest];
        if entry.is_live {
            self.index.remove(entry.hash, number);
            entry.is_live = false;
            entry.generation = entry.generation.wrapping_add(1);
        }
        Some(number)
    }

    fn entry(&mut self, measured: MeasurementRef) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(measured.number as usize)?;
        (entry.is_live && entry.generation == measured.generation).then_some(entry)
    }

    /// What is known of a next hop.
    pub(super) fn rank(&mut self, measured: MeasurementRef, face: FaceId, now: NodeInstant) -> Rank {
        let record = self.entry(measured).and_then(|entry| {
            entry.faces[..usize::from(entry.faces_len)].iter().find(|record| record.face == face)
        });
        record.map_or(Rank::Unknown, |record| record.rank(now))
    }

    /// The record of a next hop, which is made if there is none, in the place of the first if there are too many.
    fn record(&mut self, measured: MeasurementRef, face: FaceId) -> Option<&mut FaceRecord> {
        let entry = self.entry(measured)?;
        let len = usize::from(entry.faces_len);
        let at = match entry.faces[..len].iter().position(|record| record.face == face) {
            Some(at) => at,
            None => {
                if len == FACES_MAX {
                    entry.faces.rotate_left(1);
                } else {
                    entry.faces_len += 1;
                }
                let at = usize::from(entry.faces_len) - 1;
                entry.faces[at] = FaceRecord { face, ..FaceRecord::default() };
                at
            }
        };
        Some(&mut entry.faces[at])
    }

    /// Notes that an Interest went to a next hop.
    pub(super) fn asked(&mut self, measured: MeasurementRef, face: FaceId, now: NodeInstant) {
        if let Some(record) = self.record(measured, face)
            && record.waiting_since_us == 0
        {
            record.waiting_since_us = micros(now);
        }
    }

    /// Notes that Data came, so long after the Interest went.
    pub(super) fn answered(&mut self, measured: MeasurementRef, face: FaceId, rtt: Duration) {
        if let Some(record) = self.record(measured, face) {
            record.note_rtt(rtt);
        }
    }

    /// Notes that a next hop has nothing.
    pub(super) fn failed(&mut self, measured: MeasurementRef, face: FaceId) {
        if let Some(record) = self.record(measured, face) {
            (record.failed, record.waiting_since_us) = (true, 0);
        }
    }

    /// Whether another next hop is to be tried now; the next time is chosen then. `first` after nothing is known, `every`
    /// from then on.
    pub(super) fn is_probe_due(
        &mut self,
        measured: MeasurementRef,
        now: NodeInstant,
        first: Duration,
        every: Duration,
    ) -> bool {
        let Some(entry) = self.entry(measured) else { return false };
        match entry.probe_at {
            Some(at) if at > now => false,
            Some(_) => {
                entry.probe_at = Some(now + every);
                true
            }
            None => {
                entry.probe_at = Some(now + first);
                false
            }
        }
    }

    /// Whose turn it is of `count`; the next time it is another's.
    pub(super) fn turn(&mut self, measured: Option<MeasurementRef>, count: usize) -> usize {
        let Some(entry) = measured.and_then(|measured| self.entry(measured)) else { return 0 };
        let turn = usize::from(entry.turn) % count.max(1);
        entry.turn = u16::try_from(turn + 1).unwrap_or(0);
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: FaceId = FaceId(1);
    const B: FaceId = FaceId(2);

    fn at(millis: u64) -> NodeInstant {
        NodeInstant::default() + Duration::from_millis(millis)
    }

    #[test]
    fn answers_rank_before_nothing_and_failures_last() {
        let mut measurements = Measurements::new(4).unwrap();
        let a = measurements.of(b"\x08\x01a", 7, at(0)).unwrap();
        assert_eq!(measurements.rank(a, A, at(0)), Rank::Unknown);
        measurements.asked(a, A, at(10));
        assert_eq!(measurements.rank(a, A, at(900)), Rank::Unknown);
        assert_eq!(measurements.rank(a, A, at(1100)), Rank::Failed, "late by the initial time-out");
        measurements.answered(a, A, Duration::from_millis(40));
        assert_eq!(measurements.rank(a, A, at(1100)), Rank::Measured(40_000));
        measurements.answered(a, A, Duration::from_millis(120));
        assert_eq!(measurements.rank(a, A, at(1100)), Rank::Measured(50_000));
        measurements.asked(a, A, at(2000));
        measurements.asked(a, A, at(2190));
        assert_eq!(measurements.rank(a, A, at(2240)), Rank::Failed, "50 ms + 4 × 35 ms after the first");
        measurements.failed(a, B);
        assert_eq!(measurements.rank(a, B, at(0)), Rank::Failed);
        assert!(Rank::Measured(u32::MAX) < Rank::Unknown && Rank::Unknown < Rank::Failed);
        assert_eq!(MeasurementRef::from_bits(a.to_bits()), Some(a));
        assert_eq!(MeasurementRef::from_bits(0), None);
    }

    #[test]
    fn the_table_is_bounded_and_forgets_what_is_not_used() {
        let mut measurements = Measurements::new(4).unwrap();
        let first = measurements.of(b"first", 0, at(0)).unwrap();
        measurements.failed(first, A);
        for number in 1..100u8 {
            let again = measurements.of(&[number], number.into(), at(number.into())).unwrap();
            assert_eq!(measurements.of(&[number], number.into(), at(number.into())), Some(again));
            measurements.answered(again, A, Duration::from_millis(1));
        }
        assert_eq!(measurements.rank(first, A, at(200)), Rank::Unknown, "its memory is another's");
        assert_eq!(measurements.of(&[0; PREFIX_MAX + 1], 5, at(0)), None);
    }

    #[test]
    fn more_next_hops_than_are_kept_do_no_harm() {
        let mut measurements = Measurements::new(1).unwrap();
        let a = measurements.of(b"a", 1, at(0)).unwrap();
        for face in 0..20 {
            measurements.answered(a, FaceId(face), Duration::from_millis(1));
        }
        let known =
            (0..20).filter(|&face| measurements.rank(a, FaceId(face), at(0)) != Rank::Unknown).count();
        assert_eq!(known, FACES_MAX);
    }

    #[test]
    fn probes_and_turns_come_round() {
        let mut measurements = Measurements::new(1).unwrap();
        let a = measurements.of(b"a", 1, at(0)).unwrap();
        let (first, every) = (Duration::from_secs(1), Duration::from_secs(60));
        let due: Vec<_> = [0, 999, 1000, 1001, 60_999, 61_000]
            .map(|millis| measurements.is_probe_due(a, at(millis), first, every))
            .into();
        assert_eq!(due, [false, false, true, false, false, true]);
        let turns: Vec<_> = (0..5).map(|_| measurements.turn(Some(a), 3)).collect();
        assert_eq!(turns, [0, 1, 2, 0, 1]);
    }
}
