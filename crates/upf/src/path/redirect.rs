//! Redirection of plain HTTP (TS 29.244 5.4.7): the user plane answers in place of the server that a UE calls.
//!
//! No state is kept. The sequence number of the answer to a SYN follows from the connection's addresses and ports.
//! Whatever request follows is answered with the new place and the end of the connection. What is not a TCP
//! segment to port 80 gets no answer.

use std::net::IpAddr;

use kaido_engine::{Frame, Output};
use kaido_table::Seed;
use kaido_wire::layout::{self, TcpFields};
use kaido_wire::{IpProtocol, Ipv4Repr, Ipv6Repr, TcpFlags, TcpRepr, TcpView, checksum, tcp};

use super::Worker;
use super::context::PacketContext;
use super::emit::HOPS;
use super::parse::Packet;
use crate::UpfDrop;

const HTTP: u16 = 80;
/// Maximum segment size told to the UE: what every IPv6 link takes (RFC 9293 3.7.1).
const MSS_OPTION: [u8; 4] = [2, 4, 0x04, 0xc4];

/// A segment in answer to one of the UE's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Reply {
    sequence: u32,
    acknowledgment: u32,
    flags: TcpFlags,
    is_syn: bool,
    with_response: bool,
}

/// What a server that only knows one answer says to a segment of `len` octets of payload; `cookie` is its initial
/// sequence number.
fn reply(segment: &TcpRepr<'_>, len: u32, cookie: u32) -> Option<Reply> {
    let has = |flag| segment.flags.contains(flag);
    let plain = Reply {
        sequence: segment.acknowledgment,
        acknowledgment: segment.sequence.wrapping_add(len).wrapping_add(u32::from(has(TcpFlags::FIN))),
        flags: TcpFlags::ACK,
        is_syn: false,
        with_response: false,
    };
    if has(TcpFlags::RST) || segment.dst_port != HTTP {
        return None;
    }
    if has(TcpFlags::SYN) {
        let syn = Reply {
            sequence: cookie,
            acknowledgment: segment.sequence.wrapping_add(1),
            flags: TcpFlags::SYN | TcpFlags::ACK,
            is_syn: true,
            ..plain
        };
        return (!has(TcpFlags::ACK)).then_some(syn);
    }
    if !has(TcpFlags::ACK) {
        return None;
    }
    if len > 0 && segment.acknowledgment == cookie.wrapping_add(1) {
        return Some(Reply {
            flags: TcpFlags::ACK | TcpFlags::PSH | TcpFlags::FIN,
            with_response: true,
            ..plain
        });
    }
    if len > 0 {
        // A connection that began before the rule did.
        return Some(Reply { flags: TcpFlags::RST, ..plain });
    }
    has(TcpFlags::FIN).then_some(plain)
}

impl Worker {
    /// Answers a segment of a UE whose rule redirects it, and drops it.
    #[cold]
    pub(super) fn redirect(
        &mut self,
        context: &PacketContext<'_>,
        response: &[u8],
        frame: Frame,
        out: &mut Output<'_>,
    ) {
        let PacketContext { guard, record, packet, .. } = *context;
        let port = context.arrival.port;
        if self.redirections.admit(out.now())
            && let Some(answer) = self.write_answer(response, packet, &frame, out)
        {
            self.back_to_ue(guard, record, port, packet.src, answer, out);
        }
        out.drop(port, frame, UpfDrop::REDIRECTED);
    }

    fn write_answer(
        &self,
        response: &[u8],
        packet: &Packet,
        frame: &Frame,
        out: &mut Output<'_>,
    ) -> Option<Frame> {
        if packet.protocol != IpProtocol::TCP || packet.is_fragment {
            return None;
        }
        let view = TcpView::new_checked(frame.data().get(packet.upper_offset..)?).ok()?;
        let segment = TcpRepr::parse(&view).ok()?;
        let payload = packet.total_len.checked_sub(packet.upper_offset + segment.len())?;
        let cookie = cookie(&self.secret, packet, &segment);
        let reply = reply(&segment, u32::try_from(payload).ok()?, cookie)?;
        let mut answer = out.allocate()?;
        if write(&mut answer, packet, &segment, reply, response).is_none() {
            out.release(answer);
            return None;
        }
        Some(answer)
    }
}

/// The initial sequence number of a connection: known to nobody else, and again the same.
#[allow(clippy::cast_possible_truncation)] // Half of the hash is enough.
fn cookie(secret: &Seed, packet: &Packet, segment: &TcpRepr<'_>) -> u32 {
    let bits = |addr: IpAddr| match addr {
        IpAddr::V4(addr) => addr.to_ipv6_mapped().to_bits(),
        IpAddr::V6(addr) => addr.to_bits(),
    };
    let ends = u128::from(secret.hash(&bits(packet.src))) << 64 | u128::from(secret.hash(&bits(packet.dst)));
    let ports = u128::from(segment.src_port) << 16 | u128::from(segment.dst_port);
    secret.hash(&(ends ^ ports)) as u32
}

/// Writes the answer, from the server that was called to the UE.
fn write(
    frame: &mut Frame,
    packet: &Packet,
    segment: &TcpRepr<'_>,
    reply: Reply,
    response: &[u8],
) -> Option<()> {
    let body = if reply.with_response { response } else { &[] };
    let header = TcpRepr {
        src_port: segment.dst_port,
        dst_port: segment.src_port,
        sequence: reply.sequence,
        acknowledgment: reply.acknowledgment,
        flags: reply.flags,
        window: u16::MAX,
        urgent: 0,
        options: if reply.is_syn { &MSS_OPTION } else { &[] },
    };
    debug_assert!(header.len() >= tcp::HEADER_LEN);
    let len = u16::try_from(header.len() + body.len()).ok()?;
    let space = frame.append(usize::from(len))?;
    header.emit(space).ok()?;
    space[header.len()..].copy_from_slice(body);
    let (pseudo, ip_len) = match (packet.dst, packet.src) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => (checksum::pseudo_v4(src, dst, IpProtocol::TCP, len), 20),
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            (checksum::pseudo_v6(src, dst, IpProtocol::TCP, len.into()), 40)
        }
        _ => return None,
    };
    let sum = !checksum::combine(&[pseudo, checksum::sum(space)]);
    TcpFields::new(layout::at_mut(space, 0)).set_checksum(sum);
    let head = frame.prepend(ip_len)?;
    match (packet.dst, packet.src) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let ip = Ipv4Repr { payload_len: len, ..Ipv4Repr::whole([src, dst], IpProtocol::TCP, HOPS) };
            ip.emit(head).ok()?;
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let ip = Ipv6Repr {
                src,
                dst,
                next_header: IpProtocol::TCP,
                hop_limit: HOPS,
                traffic_class: 0,
                flow_label: 0,
                payload_len: len,
            };
            ip.emit(head).ok()?;
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(flags: TcpFlags, acknowledgment: u32) -> TcpRepr<'static> {
        TcpRepr {
            src_port: 40_000,
            dst_port: HTTP,
            sequence: u32::MAX,
            acknowledgment,
            flags,
            window: 1000,
            urgent: 0,
            options: &[],
        }
    }

    #[test]
    fn a_connection_gets_one_answer_and_its_end() {
        let (ack, fin) = (TcpFlags::ACK, TcpFlags::FIN);
        let syn = reply(&segment(TcpFlags::SYN, 0), 0, 77).unwrap();
        assert_eq!((syn.sequence, syn.acknowledgment, syn.is_syn), (77, 0, true));
        assert_eq!(reply(&segment(ack, 78), 0, 77), None);
        let answer = reply(&segment(ack | TcpFlags::PSH, 78), 100, 77).unwrap();
        assert_eq!((answer.sequence, answer.acknowledgment, answer.with_response), (78, 99, true));
        let end = reply(&segment(ack | fin, 178), 0, 77).unwrap();
        assert_eq!((end.sequence, end.acknowledgment, end.flags), (178, 0, ack));
        assert_eq!(reply(&segment(ack, 5), 1, 77).unwrap().flags, TcpFlags::RST);
        for flags in [TcpFlags::RST, TcpFlags::SYN | ack, fin] {
            assert_eq!(reply(&segment(flags, 78), 1, 77), None, "{flags:?}");
        }
        assert_eq!(reply(&TcpRepr { dst_port: 443, ..segment(TcpFlags::SYN, 0) }, 0, 77), None);
    }
}
