//! A packet on its way to another worker: what the link said of it, and what it is to do there, in front of it in its frame.

use kaido_engine::Frame;

use crate::packet::{Annotations, FaceId, NackReason, Packet, PitToken};

/// No worker.
pub(crate) const NOBODY: u8 = u8::MAX;

/// Octets in front of a packet: the number of the worker, which the port takes off, and those that are unpacked.
pub(crate) const HEADER: usize = 1 + UNPACKED;
const UNPACKED: usize = 68;

/// What a packet is to do at the worker that it comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
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
pub(crate) fn pack(worker: u8, errand: Errand, packet: Packet) -> Result<Frame, Packet> {
    let Packet { mut frame, face, annotations } = packet;
    let Some(room) = frame.prepend(HEADER).and_then(|room| room.first_chunk_mut::<HEADER>()) else {
        return Err(Packet { frame, face, annotations });
    };
    let Annotations { pit_token, nack, congestion_mark, next_hop_face, non_discovery, no_cache, .. } =
        annotations;
    let (kind, round, then) = match errand {
        Errand::Here => (0, None, NOBODY),
        Errand::Ask { then } => (1, None, then),
        Errand::Round(round) => (2, Some(round), round.last),
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
    room[..5].copy_from_slice(&[worker, kind, flags, then, token_len]);
    room[5..9].copy_from_slice(&face.0.to_be_bytes());
    room[9..17].copy_from_slice(&round.map_or(0, |round| round.rest).to_be_bytes());
    room[17..25].copy_from_slice(&nack.map_or(0, NackReason::code).to_be_bytes());
    room[25..33].copy_from_slice(&congestion_mark.to_be_bytes());
    room[33..37].copy_from_slice(&next_hop_face.map_or(0, |face| face.0).to_be_bytes());
    room[37..37 + token.len()].copy_from_slice(token);
    Ok(frame)
}

/// Takes the header off a packet from another worker; the frame comes back when it has none.
pub(crate) fn unpack(mut frame: Frame) -> Result<(Errand, Packet), Frame> {
    let Some(header) = frame.data().first_chunk::<UNPACKED>().copied() else { return Err(frame) };
    let [kind, flags, then, token_len, f0, f1, f2, f3, ref rest @ ..] = header;
    let word = |at: usize| {
        rest.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |octets| u64::from_be_bytes(*octets))
    };
    let is = |flag: u8| flags & flag != 0;
    let errand = match kind {
        0 => Errand::Here,
        1 => Errand::Ask { then },
        _ => Errand::Round(Round {
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
    if frame.strip(UNPACKED) { Ok((errand, Packet { frame, face, annotations })) } else { Err(frame) }
}

#[cfg(test)]
mod tests {
    use kaido_engine::FramePool;
    use proptest::prelude::*;

    use super::*;

    fn errand() -> impl Strategy<Value = Errand> {
        prop_oneof![
            Just(Errand::Here),
            (0..64u8).prop_map(|then| Errand::Ask { then }),
            (any::<u64>(), any::<u8>(), any::<bool>(), any::<bool>()).prop_map(
                |(rest, last, is_first, was_served)| Errand::Round(Round {
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
            errand in errand(),
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
            let mut frame = pack(3, errand, packet).unwrap();
            prop_assert!(frame.data()[0] == 3 && frame.strip(1));
            let (unpacked, packet) = unpack(frame).unwrap();
            prop_assert_eq!((unpacked, packet.face, packet.annotations), (errand, FaceId(77), annotations));
            prop_assert_eq!(packet.frame.data(), b"octets");
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
