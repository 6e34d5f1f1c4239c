//! From a frame of Ethernet with IP in it to a datagram of ours.

use std::net::{IpAddr, SocketAddr};

use kaido_engine::fragment::{FragmentInfo, Outcome, assemble};
use kaido_engine::{DropReason, Frame, Output, PortId};
use kaido_ndn_tables::FaceId;
use kaido_wire::layout::EthernetFields;
use kaido_wire::ndn::ETHERTYPE;
use kaido_wire::{EtherType, IpProtocol, ipv4, ipv6, udp, vlan};

use super::udp::Udp;
use super::udp_headers::is_right;
use super::udp_packet::{Datagram, Piece};
use super::{Link, PortKind};
use crate::NdnDrop;

/// What a frame is.
#[derive(Debug, PartialEq, Eq)]
enum Read {
    /// A datagram to one of our addresses.
    Whole(Datagram),
    /// A piece of a packet of UDP to one of our addresses, which has so many octets.
    Piece(usize),
}

impl Link {
    /// Whether a frame is one of Ethernet that UDP may be in.
    #[inline]
    pub(super) fn may_be_udp(&self, port: PortId, frame: &Frame) -> bool {
        self.udp.is_some()
            && self.settings.ports.get(port.index()) != Some(&PortKind::Host)
            && frame
                .data()
                .first_chunk()
                .is_none_or(|link| EthernetFields::new(link).ethertype() != ETHERTYPE.0)
    }

    /// The face and the payload of a datagram that is NDN: `None` while its rest is missing.
    pub(super) fn datagram(
        &mut self,
        port: PortId,
        mut frame: Frame,
        out: &mut Output<'_>,
    ) -> Result<Option<(FaceId, Frame)>, (Frame, DropReason)> {
        let Self { udp: Some(udp), settings, faces, .. } = self else {
            return Err((frame, DropReason::NOT_OURS));
        };
        let Some(PortKind::Ethernet { mac, .. }) = settings.ports.get(port.index()) else {
            return Err((frame, DropReason::NOT_OURS));
        };
        let Ok(link) = vlan::link(frame.data()) else { return Err((frame, DropReason::ETHERNET_MALFORMED)) };
        let is_ip = matches!(link.ethertype, EtherType::IPV4 | EtherType::IPV6);
        if !is_ip || link.dst != *mac || link.tag_count > 0 {
            return Err((frame, DropReason::NOT_OURS));
        }
        let at = usize::from(link.payload_offset);
        let (head, datagram) = match read(udp, &frame.data()[at..], frame.packet_len() - at) {
            Ok(Read::Whole(datagram)) => (at, datagram),
            Ok(Read::Piece(len)) => {
                if !frame.strip(at) {
                    return Err((frame, DropReason::FRAGMENT_INVALID));
                }
                frame.truncate(len);
                match udp.join(port, frame, out)? {
                    None => return Ok(None),
                    Some(whole) => frame = whole,
                }
                match read(udp, frame.data(), frame.packet_len()) {
                    Ok(Read::Whole(datagram)) => (0, datagram),
                    Ok(Read::Piece(_)) => return Err((frame, DropReason::FRAGMENT_INVALID)),
                    // The kernel does not get it in one piece: where it has the port too, it has the pieces.
                    Err(DropReason::NOT_OURS) => return Err((frame, NdnDrop::FACE_UNKNOWN)),
                    Err(reason) => return Err((frame, reason)),
                }
            }
            Err(reason) => return Err((frame, reason)),
        };
        if !frame.strip(head + datagram.headers) {
            return Err((frame, DropReason::UDP_MALFORMED));
        }
        frame.truncate(datagram.len);
        if !is_right(datagram.ends, datagram.checksum, &frame) {
            return Err((frame, DropReason::UDP_CHECKSUM));
        }
        match udp.face(faces, datagram.ends, frame.data(), datagram.len) {
            Ok(id) => Ok(Some((id, frame))),
            Err(reason) => Err((frame, reason)),
        }
    }
}

impl Udp {
    /// Takes a piece; the whole packet when it was the last.
    #[cold]
    fn join(
        &mut self,
        port: PortId,
        frame: Frame,
        out: &mut Output<'_>,
    ) -> Result<Option<Frame>, (Frame, DropReason)> {
        let Some(found) = FragmentInfo::read(frame.data()) else {
            return Err((frame, DropReason::FRAGMENT_INVALID));
        };
        let piece = Piece { frame, port, header_len: found.header_len };
        let data = |piece: &Piece| piece.frame.to_vec().get(piece.header_len..).map(<[u8]>::to_vec);
        let same = |kept: &Piece, new: &Piece| data(kept) == data(new);
        let outcome = self.pieces.collect(found.key(port.0.into()), found.place, piece, out.now(), same);
        self.drop_pieces(out);
        match outcome {
            Outcome::Kept => Ok(None),
            Outcome::Refused(piece, reason) => Err((piece.frame, reason)),
            Outcome::Ready(pieces) => {
                let whole = assemble(&pieces, |piece| (&piece.frame, piece.header_len), || out.allocate());
                pieces.into_iter().for_each(|piece| out.release(piece.frame));
                whole.map(Some).or_else(|reason| {
                    out.count_drop(port, reason);
                    Ok(None)
                })
            }
        }
    }
}

/// What an IP packet of so many octets is, which `first` begins.
fn read(udp: &Udp, first: &[u8], available: usize) -> Result<Read, DropReason> {
    let (src, dst, headers, total, protocol, is_piece) = match first.first().map(|octet| octet >> 4) {
        Some(4) => {
            let header = ipv4::header_within(first, available).map_err(|_| DropReason::IP_MALFORMED)?;
            if !ipv4::checksum_ok(first, header.header_len) {
                return Err(DropReason::IP_CHECKSUM);
            }
            let len = usize::from(header.total_len);
            let is_piece = header.fragment.is_some();
            (
                IpAddr::from(header.src),
                IpAddr::from(header.dst),
                header.header_len.into(),
                len,
                header.protocol,
                is_piece,
            )
        }
        Some(6) => {
            let header = ipv6::header_within(first, available).map_err(|_| DropReason::IP_MALFORMED)?;
            let len = header.total_len as usize;
            let is_piece = header.fragment.is_some_and(|fragment| !fragment.is_whole());
            (
                IpAddr::from(header.src),
                IpAddr::from(header.dst),
                header.header_len.into(),
                len,
                header.protocol,
                is_piece,
            )
        }
        _ => return Err(DropReason::IP_MALFORMED),
    };
    if protocol != IpProtocol::UDP || !udp.is_ours(dst) {
        return Err(DropReason::NOT_OURS);
    }
    if is_piece {
        return Ok(Read::Piece(total));
    }
    let (headers, rest): (usize, _) = (headers, total.saturating_sub(headers));
    let transport = first.get(headers..).unwrap_or_default();
    let header = udp::header_within(transport, rest).map_err(|_| DropReason::UDP_MALFORMED)?;
    let ends = (SocketAddr::new(dst, header.dst_port), SocketAddr::new(src, header.src_port));
    if !udp.settings.listens.iter().any(|listen| listen.address == ends.0) {
        return Err(DropReason::NOT_OURS);
    }
    // Nobody is answered there.
    if header.src_port == 0 {
        return Err(DropReason::UDP_MALFORMED);
    }
    if !is_station(src) || udp.is_ours(src) {
        return Err(DropReason::NOT_ROUTED);
    }
    let len = usize::from(header.length) - udp::HEADER_LEN;
    let headers = headers + udp::HEADER_LEN;
    Ok(Read::Whole(Datagram { ends, headers, len, checksum: header.checksum }))
}

/// Whether an address is one that a single station may have on a link.
fn is_station(address: IpAddr) -> bool {
    let is_group = address.is_multicast() || address.is_unspecified() || address.is_loopback();
    // Of a link-local address the answer would need to know the link.
    let is_local = match address {
        IpAddr::V4(address) => address.is_broadcast() || address.octets()[0] == 0,
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !is_group && !is_local
}
