//! Tunnel packets that come in pieces: put together, then judged as any other.

use kaido_engine::fragment::{FragmentInfo, Outcome, assemble};
use kaido_engine::{DropReason, Frame, Output, PortId};

use super::{Gre, lock};
use crate::parse::{ParsedFrame, TunnelPacket, parse_packet};

/// Octets of Ethernet with the most tags.
const LINK_MAX: usize = 14 + 16;

/// A piece that waits for the others: its IP header is at the front.
#[derive(Debug)]
pub(super) struct Piece {
    frame: Frame,
    from: PortId,
    /// Octets before the piece's data.
    header_len: usize,
    /// The Ethernet header that it came with.
    link: [u8; LINK_MAX],
    link_len: usize,
}

impl Gre {
    /// A piece of a tunnel packet, whose IP packet begins `link_len` octets into the frame.
    #[cold]
    pub(super) fn piece(
        &mut self,
        port: PortId,
        link_len: usize,
        packet_len: usize,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        let mut link = [0; LINK_MAX];
        link[..link_len].copy_from_slice(&frame.data()[..link_len]);
        let found = if frame.strip(link_len) { FragmentInfo::read(frame.data()) } else { None };
        let Some(found) = found else { return out.drop(port, frame, DropReason::FRAGMENT_INVALID) };
        frame.truncate(packet_len);
        let piece = Piece { frame, from: port, header_len: found.header_len, link, link_len };
        let data = |piece: &Piece| {
            piece.frame.segments().flatten().skip(piece.header_len).copied().collect::<Vec<u8>>()
        };
        let same = |kept: &Piece, new: &Piece| data(kept) == data(new);
        let shared = self.shared.clone();
        let mut pieces = lock(&shared.pieces);
        let outcome = pieces.collect(found.key(port.0.into()), found.place, piece, out.now(), same);
        let dropped = pieces.take_dropped();
        drop(pieces);
        dropped.into_iter().for_each(|(piece, reason)| out.drop(piece.from, piece.frame, reason));
        match outcome {
            Outcome::Kept => {}
            Outcome::Refused(piece, reason) => out.drop(piece.from, piece.frame, reason),
            Outcome::Ready(pieces) => self.whole_again(port, pieces, out),
        }
    }

    fn whole_again(&mut self, port: PortId, pieces: Vec<Piece>, out: &mut Output<'_>) {
        let whole = assemble(&pieces, |piece| (&piece.frame, piece.header_len), || out.allocate());
        let head = pieces.first().map(|first| (first.link, first.link_len));
        pieces.into_iter().for_each(|piece| out.release(piece.frame));
        let (mut whole, (link, link_len)) = match (whole, head) {
            (Ok(whole), Some(head)) => (whole, head),
            (Err(reason), _) => return out.count_drop(port, reason),
            (Ok(whole), None) => return out.release(whole),
        };
        match parse_packet(whole.data(), whole.packet_len()) {
            ParsedFrame::Tunnel(outer) => match whole.prepend(link_len) {
                Some(room) => {
                    room[..link_len].copy_from_slice(&link[..link_len]);
                    self.tunnel(port, &TunnelPacket { link_len, ..outer }, whole, out);
                }
                None => out.drop(port, whole, DropReason::NO_HEADROOM),
            },
            // What came in pieces is not sent on in one that may be too large.
            ParsedFrame::Unreadable(reason) | ParsedFrame::Broken(reason) => out.drop(port, whole, reason),
            ParsedFrame::Piece { .. } | ParsedFrame::Other => out.drop(port, whole, DropReason::IP_MALFORMED),
        }
    }

    /// Drops pieces whose rest has not come in time.
    pub(super) fn sweep_pieces(&self, out: &mut Output<'_>) {
        let mut pieces = lock(&self.shared.pieces);
        if pieces.is_empty() {
            return;
        }
        pieces.expire(out.now());
        let dropped = pieces.take_dropped();
        drop(pieces);
        dropped.into_iter().for_each(|(piece, reason)| out.drop(piece.from, piece.frame, reason));
    }
}
