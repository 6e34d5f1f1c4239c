//! Packets out of pieces.

use kaido_engine::Frame;
use kaido_wire::ndn::PACKET_MAX;

/// Joins the pieces of a packet: a piece that fits behind the one before it is copied there, others stay where they are.
/// `release` takes the frames that were copied. `None` when there are no pieces.
pub(super) fn join(pieces: impl IntoIterator<Item = Frame>, mut release: impl FnMut(Frame)) -> Option<Frame> {
    let mut pieces = pieces.into_iter();
    let (mut packet, mut last) = (None::<Frame>, pieces.next()?);
    for piece in pieces {
        let whole = !piece.is_chained() && !last.is_chained();
        if let Some(room) = whole.then(|| last.append(piece.data().len())).flatten() {
            room.copy_from_slice(piece.data());
            release(piece);
            continue;
        }
        push(&mut packet, std::mem::replace(&mut last, piece));
    }
    push(&mut packet, last);
    packet
}

fn push(packet: &mut Option<Frame>, segment: Frame) {
    match packet {
        Some(packet) => packet.push_segment(segment),
        None => *packet = Some(segment),
    }
}

/// Copies a packet into full frames, so that what a front torn by small segments says can be read: its first segment is as
/// long as one can be. The packet itself is left as it is.
pub(super) fn straighten(packet: &Frame, mut allocate: impl FnMut() -> Option<Frame>) -> Option<Frame> {
    let mut octets = [0; PACKET_MAX];
    let mut len = 0;
    for segment in packet.segments() {
        octets.get_mut(len..len + segment.len())?.copy_from_slice(segment);
        len += segment.len();
    }
    Frame::from_slice(&octets[..len], &mut allocate)
}

/// Copies `len` octets of a packet, from `at` on, into a new frame.
pub(super) fn part(packet: &Frame, mut at: usize, len: usize, mut frame: Frame) -> Option<Frame> {
    let mut room = frame.append(len)?;
    for segment in packet.segments() {
        let some = segment.get(at..).unwrap_or_default();
        at = at.saturating_sub(segment.len());
        let (here, rest) = room.split_at_mut(some.len().min(room.len()));
        here.copy_from_slice(&some[..here.len()]);
        room = rest;
    }
    room.is_empty().then_some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kaido_engine::{FramePool, FrameSize};

    #[test]
    fn pieces_are_joined() {
        let pool = FramePool::leak(16).unwrap();
        let frame = |octets: &[u8]| Frame::from_slice(octets, || pool.allocate()).unwrap();
        for sizes in
            [vec![1], vec![1400, 1400, 1400, 100], vec![3000, 3000, 2000], vec![1, 5000, 1], vec![10; 12]]
        {
            let pieces: Vec<Vec<u8>> =
                sizes.iter().enumerate().map(|(at, len)| vec![u8::try_from(at).unwrap(); *len]).collect();
            let whole = pieces.concat();
            let packet = join(pieces.iter().map(|piece| frame(piece)), drop).unwrap();
            assert_eq!(packet.to_vec(), whole);
            assert!(packet.segments().count() <= 4);
            let straight = straighten(&packet, || pool.allocate()).unwrap();
            assert_eq!(straight.to_vec(), whole);
            let longest = whole.len().min(FrameSize::FourKib.room());
            assert_eq!(straight.data().len(), longest);
            for (at, len) in [(0, longest), (whole.len() / 2, whole.len() / 4)] {
                let cut = part(&packet, at, len, pool.allocate().unwrap()).unwrap();
                assert_eq!(cut.to_vec(), whole[at..at + len]);
            }
            assert!(part(&packet, whole.len(), 1, pool.allocate().unwrap()).is_none());
            assert!(part(&packet, 0, FrameSize::FourKib.room() + 1, pool.allocate().unwrap()).is_none());
        }
        assert!(join([], drop).is_none());
        assert_eq!(pool.free_frames(), 16);
    }
}
