//! A packet on its way to another worker: what the link said of it, and what it is to do there, in front of it in its frame.

use kaido_engine::Frame;
use kaido_ndn_tables::{FaceId, PitToken};

use crate::packet::{Annotations, NackReason, Packet};

/// No worker.
pub(crate) const NOBODY: u8 = u8::MAX;

/// Octets in front of a packet: the number of the worker, which the port takes off, and those that are unpacked. Of most
/// packets there is little to say, and it fits between an Ethernet header's place and the packet: the receiving worker
/// fetches no cache line for it.
///
/// ```text
///   | worker 1 | tag 1 | face 4 | token 8 |                        what begins with neither nack, mark nor round
///   | worker 1 | LONG  | kind 1 | flags 1 | then 1 | … 65 |        everything else
/// ```
const SHORT: usize = 1 + SHORT_UNPACKED;
const SHORT_UNPACKED: usize = 1 + 4 + PitToken::SHORT;
const LONG: usize = 1 + LONG_UNPACKED;
const LONG_UNPACKED: usize = 1 + 68;

/// The second octet: the length of the token, and what else is said.
mod tag {
    pub(super) const TOKEN_LEN: u8 = 0x0f;
    pub(super) const NON_DISCOVERY: u8 = 0x10;
    pub(super) const NO_CACHE: u8 = 0x20;
    pub(super) const LONG: u8 = 0x80;
}

/// What a packet is to do at the worker that it comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandoffTask {
    /// It is that worker's.
    Here,
    /// An Interest that the worker keeps if it knows it; otherwise it is the other worker's.
    Ask {
        /// The other worker.
        then: u8,
    },
    /// Data or a Nack that has been to some workers, or that nobody can tell the worker of: it goes from one to the next.
    Round(Round),
}

/// Where a packet that goes round has been, and where it has yet to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    /// Workers that it goes to after this one, as a set, the lowest number first.
    pub(crate) rest: u64,
    /// The worker that it goes to after them; or [`NOBODY`].
    pub(crate) last: u8,
    /// No worker has seen it before.
    pub(crate) is_first: bool,
    /// Someone waited for it.
    pub(crate) was_served: bool,
}

impl Round {
    /// The next worker, and the round from there on.
    pub(crate) fn next(mut self) -> Option<(u8, Self)> {
        self.is_first = false;
        if self.rest != 0 {
            #[allow(clippy::cast_possible_truncation)] // Below 64.
            let next = self.rest.trailing_zeros() as u8;
            self.rest &= self.rest - 1;
            return Some((next, self));
        }
        let next = std::mem::replace(&mut self.last, NOBODY);
        (next != NOBODY).then_some((next, self))
    }
}

mod flag {
    pub(super) const NACK: u8 = 1;
    pub(super) const NON_DISCOVERY: u8 = 2;
    pub(super) const NO_CACHE: u8 = 4;
    pub(super) const NEXT_HOP: u8 = 8;
    pub(super) const FIRST: u8 = 16;
    pub(super) const SERVED: u8 = 32;
}

/// Puts a packet's header in front of it, for `worker`; the packet comes back when there is no room.
#[inline(always)]
pub(crate) fn pack(worker: u8, task: HandoffTask, mut packet: Packet) -> Result<Frame, Packet> {
    let Annotations { pit_token, nack, congestion_mark, next_hop_face, non_discovery, no_cache, .. } =
        &packet.annotations;
    let (token, token_len) = pit_token.padded();
    let is_short = task == HandoffTask::Here
        && nack.is_none()
        && *congestion_mark == 0
        && next_hop_face.is_none()
        && usize::from(token_len) <= PitToken::SHORT;
    if !is_short {
        return pack_long(worker, task, packet);
    }
    let room = packet.frame.prepend(SHORT).and_then(|room| room.first_chunk_mut::<SHORT>());
    let (Some(room), Some(token)) = (room, token.first_chunk::<{ PitToken::SHORT }>()) else {
        return Err(packet);
    };
    let mut tag = token_len;
    tag |= if *non_discovery { tag::NON_DISCOVERY } else { 0 };
    tag |= if *no_cache { tag::NO_CACHE } else { 0 };
    room[..2].copy_from_slice(&[worker, tag]);
    room[2..6].copy_from_slice(&packet.face.0.to_be_bytes());
    room[6..].copy_from_slice(token);
    Ok(packet.frame)
}

#[cold]
#[inline(never)]
fn pack_long(worker: u8, task: HandoffTask, packet: Packet) -> Result<Frame, Packet> {
    let Packet { mut frame, face, annotations } = packet;
    let Some(room) = frame.prepend(LONG).and_then(|room| room.first_chunk_mut::<LONG>()) else {
        return Err(Packet { frame, face, annotations });
    };
    let Annotations { pit_token, nack, congestion_mark, next_hop_face, non_discovery, no_cache, .. } =
        annotations;
    let (kind, round, then) = match task {
        HandoffTask::Here => (0, None, NOBODY),
        HandoffTask::Ask { then } => (1, None, then),
        HandoffTask::Round(round) => (2, Some(round), round.last),
    };
    let mut flags = 0;
    for (is_set, flag) in [
        (nack.is_some(), flag::NACK),
        (non_discovery, flag::NON_DISCOVERY),
        (no_cache, flag::NO_CACHE),
        (next_hop_face.is_some(), flag::NEXT_HOP),
        (round.is_some_and(|round| round.is_first), flag::FIRST),
        (round.is_some_and(|round| round.was_served), flag::SERVED),
    ] {
        flags |= if is_set { flag } else { 0 };
    }
    let token = pit_token.octets();
    // A token has 32 octets at most.
    let token_len = u8::try_from(token.len()).unwrap_or(0);
    room[..2].copy_from_slice(&[worker, tag::LONG]);
    let room = &mut room[2..];
    room[..4].copy_from_slice(&[kind, flags, then, token_len]);
    room[4..8].copy_from_slice(&face.0.to_be_bytes());
    room[8..16].copy_from_slice(&round.map_or(0, |round| round.rest).to_be_bytes());
    room[16..24].copy_from_slice(&nack.map_or(0, NackReason::code).to_be_bytes());
    room[24..32].copy_from_slice(&congestion_mark.to_be_bytes());
    room[32..36].copy_from_slice(&next_hop_face.map_or(0, |face| face.0).to_be_bytes());
    room[36..36 + token.len()].copy_from_slice(token);
    Ok(frame)
}

/// Takes the header off a packet from another worker; the frame comes back when it has none.
#[inline(always)]
pub(crate) fn unpack(mut frame: Frame) -> Result<(HandoffTask, Packet), Frame> {
    let Some(&[tag, f0, f1, f2, f3, ref token @ ..]) = frame.window::<SHORT_UNPACKED>(0) else {
        return Err(frame);
    };
    if tag & tag::LONG != 0 {
        return unpack_long(frame);
    }
    let annotations = Annotations {
        pit_token: PitToken::short(*token, usize::from(tag & tag::TOKEN_LEN)),
        non_discovery: tag & tag::NON_DISCOVERY != 0,
        no_cache: tag & tag::NO_CACHE != 0,
        ..Annotations::default()
    };
    let face = FaceId(u32::from_be_bytes([f0, f1, f2, f3]));
    if !frame.strip(SHORT_UNPACKED) {
        return Err(frame);
    }
    Ok((HandoffTask::Here, Packet { frame, face, annotations }))
}

#[cold]
#[inline(never)]
fn unpack_long(mut frame: Frame) -> Result<(HandoffTask, Packet), Frame> {
    let Some(header) = frame.data().first_chunk::<LONG_UNPACKED>().copied() else { return Err(frame) };
    let [_, kind, flags, then, token_len, f0, f1, f2, f3, ref rest @ ..] = header;
    let word = |at: usize| {
        rest.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |octets| u64::from_be_bytes(*octets))
    };
    let is = |flag: u8| flags & flag != 0;
    let task = match kind {
        0 => HandoffTask::Here,
        1 => HandoffTask::Ask { then },
        _ => HandoffTask::Round(Round {
            rest: word(0),
            last: then,
            is_first: is(flag::FIRST),
            was_served: is(flag::SERVED),
        }),
    };
    let next_hop =
        rest.get(24..).and_then(<[u8]>::first_chunk).map_or(0, |octets| u32::from_be_bytes(*octets));
    let token = rest.get(28..28 + usize::from(token_len)).and_then(PitToken::new);
    let annotations = Annotations {
        pit_token: token.unwrap_or(PitToken::NONE),
        nack: is(flag::NACK).then(|| NackReason::from_code(word(8))),
        congestion_mark: word(16),
        incoming_face: None,
        next_hop_face: is(flag::NEXT_HOP).then_some(FaceId(next_hop)),
        non_discovery: is(flag::NON_DISCOVERY),
        no_cache: is(flag::NO_CACHE),
    };
    let face = FaceId(u32::from_be_bytes([f0, f1, f2, f3]));
    if frame.strip(LONG_UNPACKED) { Ok((task, Packet { frame, face, annotations })) } else { Err(frame) }
}

#[cfg(test)]
mod tests {
    use kaido_engine::FramePool;
    use proptest::prelude::*;

    use super::*;

    fn task() -> impl Strategy<Value = HandoffTask> {
        prop_oneof![
            Just(HandoffTask::Here),
            (0..64u8).prop_map(|then| HandoffTask::Ask { then }),
            (any::<u64>(), any::<u8>(), any::<bool>(), any::<bool>()).prop_map(
                |(rest, last, is_first, was_served)| HandoffTask::Round(Round {
                    rest,
                    last,
                    is_first,
                    was_served
                })
            ),
        ]
    }

    proptest! {
        #[test]
        fn what_is_packed_comes_out(
            task in task(),
            token in prop::collection::vec(any::<u8>(), 0..=32),
            nack in prop::option::of(any::<u64>()),
            mark: u64,
            next_hop in prop::option::of(any::<u32>()),
            non_discovery: bool,
            no_cache: bool,
        ) {
            let pool = FramePool::leak(2).unwrap();
            let annotations = Annotations {
                pit_token: PitToken::new(&token).unwrap(),
                nack: nack.map(NackReason::from_code),
                congestion_mark: mark,
                incoming_face: None,
                next_hop_face: next_hop.map(FaceId),
                non_discovery,
                no_cache,
            };
            let frame = Frame::from_slice(b"octets", || pool.allocate()).unwrap();
            let packet = Packet { frame, face: FaceId(77), annotations };
            let mut frame = pack(3, task, packet).unwrap();
            prop_assert!(frame.data()[0] == 3 && frame.strip(1));
            let (unpacked, packet) = unpack(frame).unwrap();
            prop_assert_eq!((unpacked, packet.face, packet.annotations), (task, FaceId(77), annotations));
            prop_assert_eq!(packet.frame.data(), b"octets");
        }
    }

    fn packed(task: HandoffTask, annotations: Annotations) -> usize {
        let pool = FramePool::leak(1).unwrap();
        // As behind an Ethernet header.
        let mut frame = Frame::from_slice(b"ethernet headeroctets", || pool.allocate()).unwrap();
        assert!(frame.strip(14));
        pack(1, task, Packet { frame, face: FaceId(7), annotations }).unwrap().headroom()
    }

    #[test]
    fn what_most_packets_say_fits_before_them_in_their_first_line() {
        let token = |len: usize| PitToken::new(&[9; 32][..len]).unwrap();
        let plain = Annotations { pit_token: token(8), no_cache: true, ..Annotations::default() };
        assert_eq!(packed(HandoffTask::Here, plain), kaido_engine::HEADROOM);
        let more = Annotations { pit_token: token(9), ..Annotations::default() };
        let marked = Annotations { congestion_mark: 1, ..Annotations::default() };
        for (task, annotations) in
            [(HandoffTask::Ask { then: 2 }, plain), (HandoffTask::Here, more), (HandoffTask::Here, marked)]
        {
            assert_eq!(packed(task, annotations), kaido_engine::HEADROOM + 14 - LONG);
        }
    }

    proptest! {
        /// Whatever stands there: nothing but workers writes it, and still nothing panics.
        #[test]
        fn any_octets_are_unpacked_or_refused(octets in prop::collection::vec(any::<u8>(), 0..100)) {
            let pool = FramePool::leak(1).unwrap();
            match unpack(Frame::from_slice(&octets, || pool.allocate()).unwrap()) {
                Ok((_, packet)) => prop_assert!(packet.frame.packet_len() < octets.len()),
                Err(frame) => prop_assert_eq!(frame.data(), &octets[..]),
            }
        }
    }

    #[test]
    fn a_round_ends() {
        let mut round = Round { rest: 0b1010, last: 0, is_first: true, was_served: false };
        let mut seen = Vec::new();
        while let Some((worker, next)) = round.next() {
            seen.push(worker);
            round = next;
            assert!(!round.is_first);
        }
        assert_eq!(seen, [1, 3, 0]);
        let pool = FramePool::leak(1).unwrap();
        assert!(unpack(Frame::from_slice(b"short", || pool.allocate()).unwrap()).is_err());
    }
}
