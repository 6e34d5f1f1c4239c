//! What was sent and is not acknowledged yet.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::rtt::{MOST, RoundTrip};

/// Packets of the link that may be under way; those beyond are sent without asking for an acknowledgement.
pub(super) const WINDOW: usize = 512;

/// Places, those of what is sent again among them.
const PLACES: usize = 2 * WINDOW;

/// How often a packet is sent again.
pub(super) const AGAIN_MAX: u8 = 3;

/// Acknowledgements of later packets after which one is taken for lost.
pub(super) const LATER_MAX: u8 = 3;

/// A packet under way.
#[derive(Debug)]
struct UnackedPacket {
    /// All behind the fields of reliability.
    octets: Vec<u8>,
    /// Of which packet of the network it is a part.
    packet: u64,
    sent: Instant,
    /// How often it was sent again.
    again: u8,
    /// Later ones that were acknowledged.
    later: u8,
}

/// Packets under way, by the numbers that they were sent with last.
#[derive(Debug)]
pub(super) struct Window {
    places: VecDeque<Option<UnackedPacket>>,
    /// The number of the first place.
    first: u64,
    /// Room that former packets have left.
    spare: Vec<Vec<u8>>,
    pub(super) round_trip: RoundTrip,
}

impl Window {
    /// An empty one, whose packets are numbered from `first` on.
    pub(super) fn new(first: u64) -> Self {
        Self {
            places: VecDeque::with_capacity(PLACES),
            first,
            spare: Vec::with_capacity(WINDOW),
            round_trip: RoundTrip::default(),
        }
    }

    /// Whether nothing is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Forgets what is under way; who acknowledges that is not minded.
    pub(super) fn clear(&mut self) {
        *self = Self { round_trip: self.round_trip, ..Self::new(self.next()) };
    }

    /// The number of what is sent next.
    fn next(&self) -> u64 {
        self.first.wrapping_add(self.places.len() as u64)
    }

    /// Keeps a packet that is sent now: its number, or `None` where as many as may be are under way.
    pub(super) fn keep<'p>(
        &mut self,
        parts: impl Iterator<Item = &'p [u8]>,
        packet: u64,
        now: Instant,
    ) -> Option<u64> {
        if self.places.len() >= WINDOW {
            return None;
        }
        let mut octets = self.spare.pop().unwrap_or_default();
        octets.clear();
        parts.for_each(|part| octets.extend_from_slice(part));
        let number = self.next();
        self.places.push_back(Some(UnackedPacket { octets, packet, sent: now, again: 0, later: 0 }));
        Some(number)
    }

    /// A number was acknowledged. What seems lost by that is handed to `again` with its new number; how many packets of the
    /// network were given up.
    pub(super) fn acknowledge(
        &mut self,
        number: u64,
        now: Instant,
        again: &mut impl FnMut(u64, &[u8]),
    ) -> u64 {
        let at = usize::try_from(number.wrapping_sub(self.first)).unwrap_or(usize::MAX);
        let Some(come) = self.places.get_mut(at).and_then(Option::take) else { return 0 };
        // Of one that was sent again nobody knows how long it took, if the first was only late (Karn's algorithm).
        if come.again == 0 {
            self.round_trip.note(now.saturating_duration_since(come.sent));
        }
        self.spare.push(come.octets);
        let mut given_up = 0;
        for before in 0..at {
            let Some(waiting) = &mut self.places[before] else { continue };
            waiting.later += 1;
            if waiting.later >= LATER_MAX {
                given_up += self.lose(before, now, again);
            }
        }
        self.trim();
        given_up
    }

    /// Hands what waits for too long to `again` with its new number; how many packets of the network were given up.
    pub(super) fn overdue(&mut self, now: Instant, again: &mut impl FnMut(u64, &[u8])) -> u64 {
        let timeout = self.round_trip.timeout();
        let mut given_up = 0;
        for at in 0..self.places.len() {
            let is_overdue = |waiting: &UnackedPacket| {
                // Each time twice as long (RFC 6298 5.5).
                let timeout = (timeout * (1 << waiting.again)).min(MOST);
                now.saturating_duration_since(waiting.sent) >= timeout
            };
            if self.places[at].as_ref().is_some_and(is_overdue) {
                given_up += self.lose(at, now, again);
            }
        }
        self.trim();
        given_up
    }

    /// Sends one again, or gives all its packet up.
    fn lose(&mut self, at: usize, now: Instant, again: &mut impl FnMut(u64, &[u8])) -> u64 {
        let Some(lost) = self.places[at].take() else { return 0 };
        if lost.again >= AGAIN_MAX || self.places.len() >= PLACES {
            let packet = lost.packet;
            self.spare.push(lost.octets);
            self.give_up(packet);
            return 1;
        }
        again(self.next(), &lost.octets);
        self.places.push_back(Some(UnackedPacket { sent: now, again: lost.again + 1, later: 0, ..lost }));
        0
    }

    /// Without one of its parts the rest of a packet is of no use.
    fn give_up(&mut self, packet: u64) {
        for place in &mut self.places {
            if let Some(part) = place.take_if(|part| part.packet == packet) {
                self.spare.push(part.octets);
            }
        }
    }

    fn trim(&mut self) {
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first = self.first.wrapping_add(1);
        }
    }

    /// How long a packet that came may come again.
    pub(super) fn memory(&self) -> Duration {
        MOST.min(self.round_trip.timeout() * 4)
    }
}
