//! Fragments of packets, until the packet is whole.
//!
//! A packet is known by its face and the sequence number that its first fragment has, or would have. What waits is bounded
//! by faces, by packets and by frames; the oldest packet gives way, or is given up when its time has passed.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use kaido_engine::{DropReason, Frame, PortId};
use kaido_ndn_tables::FaceId;
use kaido_wire::ndn::PACKET_MAX;

use super::Loss;
use crate::{Annotations, NdnDrop};

/// Fragments a packet may have: of the longest packet, over a link of the smallest MTU for which that is of use.
pub const FRAGMENTS_MAX: usize = 64;

/// What may wait.
#[derive(Clone, Copy, Debug)]
pub struct ReassemblyLimits {
    /// Packets of all faces together.
    pub packets: usize,
    /// Packets of one face.
    pub packets_per_face: usize,
    /// Frames in which fragments wait, of all packets together.
    pub frames: usize,
    /// How long a packet may take from its first fragment to its last.
    pub timeout: Duration,
}

impl Default for ReassemblyLimits {
    fn default() -> Self {
        Self { packets: 256, packets_per_face: 32, frames: 1024, timeout: Duration::from_millis(500) }
    }
}

/// A fragment: its frame begins with what it carries.
#[derive(Debug)]
pub(super) struct Fragment {
    pub(super) face: FaceId,
    pub(super) port: PortId,
    /// Number of the packet of the link.
    pub(super) sequence: u64,
    pub(super) index: u64,
    pub(super) count: u64,
    pub(super) annotations: Annotations,
    pub(super) frame: Frame,
}

type Key = (FaceId, u64);

#[derive(Debug)]
struct PartialPacket {
    key: Key,
    port: PortId,
    began: Instant,
    annotations: Annotations,
    pieces: Vec<Option<Frame>>,
    missing: usize,
    frames: usize,
    octets: usize,
}

/// The packets of a worker that are not whole yet.
#[derive(Debug)]
pub(super) struct Reassembly {
    limits: ReassemblyLimits,
    slots: Vec<PartialPacket>,
    /// Which of `slots` are not in use.
    free: Vec<usize>,
    by_key: HashMap<Key, usize>,
    per_face: HashMap<FaceId, usize>,
    /// What was begun, oldest first; some of it is done.
    order: VecDeque<(Key, Instant)>,
    frames: usize,
}

impl Reassembly {
    pub(super) fn new(limits: ReassemblyLimits) -> Self {
        Self {
            limits,
            slots: Vec::with_capacity(limits.packets),
            free: Vec::with_capacity(limits.packets),
            by_key: HashMap::with_capacity(limits.packets),
            per_face: HashMap::with_capacity(limits.packets),
            order: VecDeque::with_capacity(2 * limits.packets),
            frames: 0,
        }
    }

    /// Frames in which fragments wait.
    #[cfg(test)]
    pub(super) fn frames(&self) -> usize {
        self.frames
    }

    /// Takes a fragment in; the packet's pieces in their order, and what its first fragment said, when it is whole.
    pub(super) fn take(
        &mut self,
        fragment: Fragment,
        now: Instant,
        lose: &mut impl Loss,
    ) -> Option<(Vec<Option<Frame>>, Annotations)> {
        let Fragment { face, port, sequence, index, count, annotations, frame } = fragment;
        let (Ok(index), Ok(count)) = (usize::try_from(index), usize::try_from(count)) else {
            lose.frame(port, frame, NdnDrop::FRAGMENT_INVALID);
            return None;
        };
        if count > FRAGMENTS_MAX {
            lose.frame(port, frame, NdnDrop::FRAGMENT_INVALID);
            return None;
        }
        let key = (face, sequence.wrapping_sub(index as u64));
        let at = match self.by_key.get(&key) {
            Some(&at) => at,
            None => self.begin(key, port, count, now, lose),
        };
        let frames = frame.segments().count();
        let waiting = &mut self.slots[at];
        if waiting.pieces.len() != count || waiting.octets + frame.packet_len() > PACKET_MAX {
            lose.frame(port, frame, NdnDrop::FRAGMENT_INVALID);
            self.give_up(at, NdnDrop::FRAGMENT_INVALID, lose);
            return None;
        }
        if waiting.pieces[index].is_some() {
            lose.frame(port, frame, DropReason::FRAGMENT_DUPLICATE);
            return None;
        }
        if index == 0 {
            waiting.annotations = annotations;
        }
        waiting.missing -= 1;
        waiting.frames += frames;
        waiting.octets += frame.packet_len();
        waiting.pieces[index] = Some(frame);
        self.frames += frames;
        if waiting.missing == 0 {
            return Some(self.finish(at));
        }
        while self.frames > self.limits.frames && self.give_up_oldest(lose) {}
        None
    }

    /// Gives up what has waited too long.
    pub(super) fn expire(&mut self, now: Instant, lose: &mut impl Loss) {
        while let Some(&(key, began)) = self.order.front() {
            if now.saturating_duration_since(began) < self.limits.timeout {
                return;
            }
            self.order.pop_front();
            if let Some(at) = self.of_order(key, began) {
                self.give_up(at, DropReason::REASSEMBLY_TIMEOUT, lose);
            }
        }
    }

    /// When [`Self::expire`] has something to do at the earliest.
    pub(super) fn due(&self) -> Option<Instant> {
        self.order.front().map(|(_, began)| *began + self.limits.timeout)
    }

    /// The packet that an entry of `order` is about, if it still waits.
    fn of_order(&self, key: Key, began: Instant) -> Option<usize> {
        self.by_key.get(&key).copied().filter(|at| self.slots[*at].began == began)
    }

    /// Makes room for a packet.
    fn begin(&mut self, key: Key, port: PortId, count: usize, now: Instant, lose: &mut impl Loss) -> usize {
        if self.per_face.get(&key.0).is_some_and(|packets| *packets >= self.limits.packets_per_face) {
            let oldest = self
                .order
                .iter()
                .position(|(other, began)| other.0 == key.0 && self.of_order(*other, *began).is_some());
            if let Some((other, began)) = oldest.and_then(|at| self.order.remove(at))
                && let Some(at) = self.of_order(other, began)
            {
                self.give_up(at, DropReason::REASSEMBLY_FULL, lose);
            }
        }
        while self.by_key.len() >= self.limits.packets && self.give_up_oldest(lose) {}
        // Entries of what is done stay in the order until their time has passed, or there are too many.
        while self.order.len() >= 2 * self.limits.packets && self.give_up_oldest(lose) {}
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                self.slots.push(PartialPacket {
                    key,
                    port,
                    began: now,
                    annotations: Annotations::default(),
                    pieces: Vec::with_capacity(FRAGMENTS_MAX),
                    missing: 0,
                    frames: 0,
                    octets: 0,
                });
                self.slots.len() - 1
            }
        };
        let waiting = &mut self.slots[at];
        (waiting.key, waiting.port, waiting.began, waiting.missing) = (key, port, now, count);
        (waiting.frames, waiting.octets) = (0, 0);
        waiting.annotations = Annotations::default();
        waiting.pieces.resize_with(count, || None);
        self.by_key.insert(key, at);
        *self.per_face.entry(key.0).or_default() += 1;
        self.order.push_back((key, now));
        at
    }

    /// Gives up what the oldest entry of the order is about, if it waits; whether there was an entry.
    fn give_up_oldest(&mut self, lose: &mut impl Loss) -> bool {
        let Some((key, began)) = self.order.pop_front() else { return false };
        if let Some(at) = self.of_order(key, began) {
            self.give_up(at, DropReason::REASSEMBLY_FULL, lose);
        }
        true
    }

    fn give_up(&mut self, at: usize, reason: DropReason, lose: &mut impl Loss) {
        let port = self.slots[at].port;
        let (mut pieces, _) = self.finish(at);
        for piece in pieces.drain(..).flatten() {
            lose.frame(port, piece, reason);
        }
        self.recycle(pieces);
    }

    /// Takes a packet out.
    fn finish(&mut self, at: usize) -> (Vec<Option<Frame>>, Annotations) {
        let waiting = &mut self.slots[at];
        let key = waiting.key;
        self.frames -= waiting.frames;
        let pieces = std::mem::take(&mut waiting.pieces);
        let annotations = waiting.annotations;
        self.by_key.remove(&key);
        if let Some(packets) = self.per_face.get_mut(&key.0) {
            *packets -= 1;
            if *packets == 0 {
                self.per_face.remove(&key.0);
            }
        }
        self.free.push(at);
        (pieces, annotations)
    }

    /// Takes an empty list of pieces back, for the next packet that takes the place just left.
    pub(super) fn recycle(&mut self, pieces: Vec<Option<Frame>>) {
        debug_assert!(pieces.is_empty());
        if let Some(&at) = self.free.last() {
            self.slots[at].pieces = pieces;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kaido_engine::FramePool;
    use kaido_ndn_tables::PitToken;
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct LostPacket(BTreeMap<DropReason, usize>);

    impl Loss for LostPacket {
        fn frame(&mut self, _: PortId, frame: Frame, reason: DropReason) {
            drop(frame);
            *self.0.entry(reason).or_default() += 1;
        }
    }

    struct Rig {
        pool: &'static FramePool,
        reassembly: Reassembly,
        lost: LostPacket,
        now: Instant,
    }

    impl Rig {
        fn new(limits: ReassemblyLimits) -> Self {
            let pool = FramePool::leak(64).unwrap();
            let reassembly = Reassembly::new(limits);
            Self { pool, reassembly, lost: LostPacket::default(), now: Instant::now() }
        }

        fn take(
            &mut self,
            face: u32,
            sequence: u64,
            index: u64,
            count: u64,
            octets: &[u8],
        ) -> Option<Vec<u8>> {
            let frame = Frame::from_slice(octets, || self.pool.allocate()).unwrap();
            let pit_token = PitToken::new(&[u8::try_from(index).unwrap()]).unwrap();
            let annotations = Annotations { pit_token, ..Annotations::default() };
            let fragment =
                Fragment { face: FaceId(face), port: PortId(0), sequence, index, count, annotations, frame };
            let (mut pieces, annotations) = self.reassembly.take(fragment, self.now, &mut self.lost)?;
            assert_eq!(annotations.pit_token.octets(), [0], "what the first fragment says counts");
            let packet = pieces.iter().flatten().flat_map(Frame::to_vec).collect();
            pieces.clear();
            self.reassembly.recycle(pieces);
            Some(packet)
        }

        fn lost(&self, reason: DropReason) -> usize {
            self.lost.0.get(&reason).copied().unwrap_or(0)
        }

        fn pass(&mut self, milliseconds: u64) {
            self.now += Duration::from_millis(milliseconds);
            self.reassembly.expire(self.now, &mut self.lost);
        }
    }

    /// Conformance: NDNLPv2 reassembly | Fragments of any order make the packet, told apart by face and sequence
    #[test]
    fn packets_are_made_whole() {
        let mut rig = Rig::new(ReassemblyLimits::default());
        assert_eq!(rig.take(1, 12, 2, 3, b"c"), None);
        assert_eq!(rig.take(2, 10, 0, 2, b"x"), None, "the same number on another face");
        assert_eq!(rig.take(1, 10, 0, 3, b"a"), None);
        assert_eq!(rig.take(1, 11, 1, 3, b"b"), Some(b"abc".to_vec()));
        assert_eq!(rig.take(2, 11, 1, 2, b"y"), Some(b"xy".to_vec()));
        assert_eq!((rig.reassembly.frames(), rig.pool.free_frames()), (0, 64));
        assert_eq!(rig.take(1, 0, 1, 2, b"b"), None, "numbers wrap");
        assert_eq!(rig.take(1, u64::MAX, 0, 2, b"a"), Some(b"ab".to_vec()));
        assert!(rig.lost.0.is_empty());
    }

    #[test]
    fn duplicates_and_late_pieces() {
        let mut rig = Rig::new(ReassemblyLimits::default());
        rig.take(1, 5, 0, 2, b"a");
        rig.take(1, 5, 0, 2, b"a");
        assert_eq!(rig.lost(DropReason::FRAGMENT_DUPLICATE), 1);
        assert!(rig.take(1, 6, 1, 2, b"b").is_some());
        rig.take(1, 6, 1, 2, b"b");
        rig.pass(499);
        assert_eq!(rig.reassembly.frames(), 1);
        rig.pass(1);
        assert_eq!((rig.lost(DropReason::REASSEMBLY_TIMEOUT), rig.reassembly.frames()), (1, 0));
        assert_eq!(rig.reassembly.due(), None);
    }

    #[test]
    fn what_no_packet_can_have() {
        let mut rig = Rig::new(ReassemblyLimits::default());
        rig.take(1, 1, 0, 65, b"a");
        rig.take(1, 1, 0, u64::MAX, b"a");
        assert_eq!((rig.lost(NdnDrop::FRAGMENT_INVALID), rig.reassembly.frames()), (2, 0));
        rig.take(1, 1, 0, 3, b"a");
        rig.take(1, 2, 1, 4, b"b");
        assert_eq!((rig.lost(NdnDrop::FRAGMENT_INVALID), rig.reassembly.frames()), (4, 0), "another count");
        for index in 0..3 {
            rig.take(1, 10 + index, index, 4, &[0; 3000]);
        }
        assert_eq!(
            (rig.lost(NdnDrop::FRAGMENT_INVALID), rig.reassembly.frames()),
            (7, 0),
            "too long together"
        );
        assert_eq!(rig.pool.free_frames(), 64);
    }

    #[test]
    fn what_waits_is_bounded() {
        let limits =
            ReassemblyLimits { packets: 8, packets_per_face: 3, frames: 10, ..ReassemblyLimits::default() };
        let mut rig = Rig::new(limits);
        for packet in 0..10 {
            rig.take(1, packet * 10, 0, 2, b"a");
        }
        assert_eq!((rig.lost(DropReason::REASSEMBLY_FULL), rig.reassembly.frames()), (7, 3));
        for face in 2..20 {
            rig.take(face, 0, 0, 2, b"a");
        }
        assert_eq!(rig.reassembly.frames(), 8);
        for index in 0..40 {
            rig.take(50, 1000 + index, index, 64, b"a");
        }
        assert!(rig.reassembly.frames() <= 10);
        rig.pass(500);
        assert_eq!((rig.reassembly.frames(), rig.pool.free_frames()), (0, 64));
        for round in 0..1000 {
            rig.take(1, round * 2, 0, 2, b"a");
            assert!(rig.take(1, round * 2 + 1, 1, 2, b"b").is_some());
        }
        assert!(rig.reassembly.order.len() <= 16);
    }
}
