//! Fragments that come in: of a tunnel's own packets, which are put together, and of users' packets whose rules ask for
//! ports, which follow their first.

use kaido_engine::fragment::{ForwardedFragments, FragmentInfo, Outcome, assemble};
use kaido_engine::{DropReason, Frame, Output, PortId};
use kaido_table::Guard;
use kaido_wire::IpProtocol;

use super::context::{ArrivalInfo, FrameLookup, PacketContext};
use super::parse::{Packet, ParsedFrame, tunnelled};
use super::relay::StoredExtensions;
use super::{Worker, emit};
use crate::UpfDrop;
use crate::fragment::Piece;
use crate::ids::EndpointId;
use crate::key::SessionKey;
use crate::record::Record;
use kaido_n4::Teid;

/// Scopes of fragments to tunnel endpoints begin here, those of sessions below.
const ENDPOINT_SCOPE: u64 = 1 << 32;
/// The least of a TCP header in a first fragment: all but its options' end (RFC 1858 3.2.1).
const TCP_LEAST: usize = 16;

impl Worker {
    /// A fragment of a UDP datagram to one of our tunnel endpoints, `offset` octets into the frame.
    #[cold]
    pub(super) fn outer_fragment(
        &mut self,
        guard: &Guard<'_>,
        endpoint: EndpointId,
        (packet_len, offset): (usize, usize),
        port: PortId,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) {
        if !self.node.fragments.is_enabled() {
            return out.drop(port, frame, DropReason::OUTER_FRAGMENT);
        }
        let found = if frame.strip(offset) { FragmentInfo::read(frame.data()) } else { None };
        let Some(found) = found else { return out.drop(port, frame, DropReason::FRAGMENT_INVALID) };
        frame.truncate(packet_len);
        let key = SessionKey::tunnel(endpoint, Teid(0));
        let piece = Piece { frame, from: port, key, qfi: None, header_len: found.header_len };
        let key = found.key(ENDPOINT_SCOPE | u64::from(endpoint.0));
        let same = |kept: &Piece, new: &Piece| {
            kept.frame.segments().flatten().skip(kept.header_len).eq(new
                .frame
                .segments()
                .flatten()
                .skip(new.header_len))
        };
        let node = self.node.clone();
        let outcome = node.fragments.with(|contexts| {
            let outcome = contexts.collect(key, found.place, piece, out.now(), same);
            (outcome, contexts.take_dropped())
        });
        let Some((outcome, dropped)) = outcome else { return };
        dropped.into_iter().for_each(|(piece, reason)| out.drop(piece.from, piece.frame, reason));
        match outcome {
            Outcome::Kept => {}
            Outcome::Refused(piece, reason) => out.drop(piece.from, piece.frame, reason),
            Outcome::Ready(pieces) => {
                let whole = assemble(&pieces, |piece| (&piece.frame, piece.header_len), || out.allocate());
                match whole {
                    Ok(whole) => self.reassembled(guard, endpoint, port, (whole, pieces), out),
                    Err(reason) => {
                        pieces.into_iter().for_each(|piece| out.release(piece.frame));
                        out.count_drop(port, reason);
                    }
                }
            }
        }
    }

    /// A datagram to one of our tunnel endpoints that is whole again; the frame begins with it. The kernel's goes there in
    /// its pieces, as it came.
    fn reassembled(
        &mut self,
        guard: &Guard<'_>,
        endpoint: EndpointId,
        port: PortId,
        (frame, pieces): (Frame, Vec<Piece>),
        out: &mut Output<'_>,
    ) {
        let parsed = Packet::read(frame.data(), frame.packet_len())
            .map(|packet| tunnelled(&packet, endpoint, frame.data(), 0));
        if let Ok(ParsedFrame::Kernel) = parsed {
            out.release(frame);
            return pieces.into_iter().for_each(|piece| self.return_to_kernel(piece, out));
        }
        pieces.into_iter().for_each(|piece| out.release(piece.frame));
        match parsed {
            Err(_) => out.drop(port, frame, DropReason::IP_MALFORMED),
            Ok(parsed) => {
                let node = self.node.clone();
                let record = match parsed {
                    ParsedFrame::Tunnel(key, _) => node.table.get(guard, &key),
                    _ => None,
                };
                let lookup = FrameLookup { node: &node, guard, parsed, record, port };
                self.handle_read(&lookup, frame, out);
            }
        }
    }

    /// Leaves a fragment to the kernel that only its datagram's first one shows to be the kernel's.
    fn return_to_kernel(&mut self, piece: Piece, out: &mut Output<'_>) {
        let Piece { mut frame, from, .. } = piece;
        let mac = self.role(from).mac;
        // Whoever sent it is not known any more, and nobody asks.
        if emit::ethernet(&mut frame, [2, 0, 0, 0, 0, 0], mac).is_err() {
            return out.drop(from, frame, DropReason::NO_HEADROOM);
        }
        let returned = self.kernel_return.as_ref().and_then(|kernel| kernel.give(from, &frame.to_vec()));
        match returned {
            Some(true) => out.release(frame),
            Some(false) => out.drop(from, frame, DropReason::KERNEL_PATH_FULL),
            None => out.to_kernel(from, frame),
        }
    }

    /// Whether a packet's rules can be told only by the ports of the fragment before it.
    #[inline]
    pub(super) fn must_follow(&self, record: &Record, packet: &Packet) -> bool {
        packet.is_fragment
            && packet.datagram_ports.is_none()
            && packet.protocol.has_ports()
            && record.needs_ports()
            && self.node.fragments.is_enabled()
    }

    /// A user's fragment whose rule depends on ports: it goes on when they are known, as it came.
    #[cold]
    pub(super) fn follow(&mut self, context: &PacketContext<'_>, frame: Frame, out: &mut Output<'_>) {
        let PacketContext { guard, record, arrival, packet } = *context;
        let Some(found) = FragmentInfo::read(frame.data()) else {
            return out.drop(arrival.port, frame, DropReason::FRAGMENT_INVALID);
        };
        let is_first = found.place.offset == 0;
        let upper = frame.data().get(packet.upper_offset..).unwrap_or_default();
        let ports = kaido_wire::ip::ports(packet.protocol, upper);
        let is_tcp = packet.protocol == IpProtocol::TCP;
        // A first fragment too small to be judged by, or a second that would rewrite it (RFC 1858, RFC 3128).
        let is_tiny = is_first && (ports.is_none() || is_tcp && upper.len() < TCP_LEAST);
        if is_tiny || is_tcp && found.place.offset == 8 {
            return out.drop(arrival.port, frame, DropReason::FRAGMENT_INVALID);
        }
        let ArrivalInfo { port, key, qfi, .. } = arrival;
        let piece = Piece { frame, from: port, key, qfi, header_len: found.header_len };
        let ports = ports.filter(|_| is_first);
        let key = found.key(u64::from(record.session().0));
        let node = self.node.clone();
        let outcome = node.fragments.with(|contexts| {
            let outcome = contexts.follow(key, found.place, ports, piece, out.now());
            (outcome, contexts.take_dropped())
        });
        let Some((outcome, dropped)) = outcome else { return };
        dropped.into_iter().for_each(|(piece, reason)| out.drop(piece.from, piece.frame, reason));
        match outcome {
            Outcome::Kept => {}
            Outcome::Refused(piece, reason) => out.drop(piece.from, piece.frame, reason),
            Outcome::Ready(ForwardedFragments { ports, piece, behind }) => {
                for piece in std::iter::once(piece).chain(behind) {
                    self.pass_on(guard, record, ports, piece, out);
                }
            }
        }
    }

    /// A fragment whose packet has these ports.
    fn pass_on(
        &mut self,
        guard: &Guard<'_>,
        record: &Record,
        ports: (u16, u16),
        piece: Piece,
        out: &mut Output<'_>,
    ) {
        let Piece { frame, from: port, key, qfi, .. } = piece;
        let node = self.node.clone();
        // It may have waited while its session changed.
        let own = node.table.get(guard, &key).filter(|own| own.session() == record.session());
        let packet = Packet::read(frame.data(), frame.packet_len());
        let (Some(own), Ok(packet)) = (own, packet) else {
            return out.drop(port, frame, UpfDrop::NO_PDR);
        };
        let packet = Packet { datagram_ports: Some(ports), ..packet };
        self.stored = StoredExtensions::of_flow(qfi, own.direction());
        let arrival = ArrivalInfo::new(port, key, qfi);
        self.admitted(&PacketContext { guard, record: own, arrival, packet: &packet }, frame, out);
    }

    /// Drops fragments whose rest has not come in time.
    pub(super) fn sweep_fragments(&self, out: &mut Output<'_>) {
        if self.node.fragments.is_empty() {
            return;
        }
        let dropped = self.node.fragments.with(|contexts| {
            contexts.expire(out.now());
            contexts.take_dropped()
        });
        for (piece, reason) in dropped.unwrap_or_default() {
            out.drop(piece.from, piece.frame, reason);
        }
    }
}
