//! Cut and damaged packets in the offload under `BPF_PROG_TEST_RUN`: what goes out is what the engine would send.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};

use kaido_wire::{IpProtocol, checksum, ecn, gtpu, ipv4, ipv6, udp};
use kaido_xdp::Action;

use crate::rig;
use crate::rig::frame::eth;
use crate::rig::session::*;

/// What the engine would make of a frame that came in, as far as the offload has to: none where the engine drops it,
/// or where this does not say. The crate's own formats, written from the other side.
fn reference(frame: &[u8]) -> Option<Vec<u8>> {
    if frame.get(..6)? != OURS {
        return None;
    }
    let at = 14;
    let packet = whole(frame.get(12..14)?, &frame[at..])?;
    let (_, to) = ends(packet)?;
    if to == LOCAL || to == LOCAL6 {
        let (header_len, is_fragment) = match to {
            IpAddr::V4(_) => {
                ipv4::header(packet).ok().map(|ip| (ip.header_len.into(), ip.fragment.is_some()))?
            }
            IpAddr::V6(_) => (40, ipv6::header(packet).ok()?.next_header != IpProtocol::UDP),
        };
        let datagram: &[u8] = packet.get(header_len..)?;
        let length = usize::from(udp::header(datagram).ok().filter(|udp| udp.dst_port == 2152)?.length);
        let message = datagram.get(8..length)?;
        let found = gtpu::header(message).ok()?;
        if found.teid != TEID || found.message_type != gtpu::MessageType::G_PDU || is_fragment {
            return None;
        }
        let inner = message.get(usize::from(found.payload_offset)..)?.get(..found.payload_len.into())?;
        let kind = if inner.first()? >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
        let inner = whole(&kind, inner)?;
        let (from, _) = ends(inner)?;
        let mut left = one_hop_less(inner)?;
        let class = ecn::class(inner);
        ecn::set_class(&mut left, class & !ecn::MASK | ecn::decapsulated(class, ecn::class(packet))?);
        let sent = [&NEXT[..], &OURS, &kind, &left].concat();
        return (from == UE || from == "::ffff:0:7".parse::<Ipv6Addr>().unwrap()).then_some(sent);
    }
    let is_other = to == OTHER_UE;
    (is_other || to == UE || to == "::ffff:0:7".parse::<Ipv6Addr>().unwrap()).then_some(())?;
    let inner = one_hop_less(packet)?;
    let mut message = vec![0x34, 255];
    message.extend(u16::try_from(8 + inner.len()).ok()?.to_be_bytes());
    message.extend(DOWN_TEID.to_be_bytes());
    message.extend([0, 0, 0, 0x85, 1, 0, QFI, 0]);
    message.extend(&inner);
    let class = 0xb8 | ecn::class(packet) & ecn::MASK;
    if is_other {
        // The checksum is that of the packet that was meant: who checks it drops what its receiver would drop.
        let payload = message.len() - inner.len();
        let meant = [&message[..payload], &checked(&inner)].concat();
        let over_ipv6 = |message: &[u8]| {
            let mut outer = v6(LOCAL6, PEER6, &frame_udp(message));
            (outer[0], outer[1]) = (0x60 | class >> 4, class << 4);
            outer[40..42].copy_from_slice(&2152u16.to_be_bytes());
            checked(&outer)
        };
        let mut outer = over_ipv6(&meant);
        outer.truncate(40 + 8 + payload);
        return Some([&NEXT[..], &OURS, &[0x86, 0xdd], &outer, &inner].concat());
    }
    let mut outer = v4(LOCAL, PEER, &rig::frame::udp(2152, &message));
    outer[1] = class;
    outer[6] = 0x40;
    outer[20..22].copy_from_slice(&2152u16.to_be_bytes());
    outer[10..12].copy_from_slice(&[0, 0]);
    let sum = checksum::checksum(&outer[..20]);
    outer[10..12].copy_from_slice(&sum.to_be_bytes());
    Some([&NEXT[..], &OURS, &[8, 0], &outer].concat())
}

/// The packet without what follows it.
fn whole<'a>(kind: &[u8], packet: &'a [u8]) -> Option<&'a [u8]> {
    if kind == [8, 0] {
        let header = ipv4::header(packet).ok()?;
        ipv4::checksum_ok(packet, header.header_len).then_some(())?;
        packet.get(..header.total_len.into())
    } else {
        let header = (kind == [0x86, 0xdd]).then(|| ipv6::header(packet).ok())??;
        packet.get(..usize::try_from(header.total_len).ok()?)
    }
}

/// Source and destination; the UE's /64 reads as `::ffff:0:7`, whatever the address in it.
fn ends(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    if packet.first()? >> 4 == 4 {
        let header = ipv4::header(packet).ok()?;
        return Some((header.src.into(), header.dst.into()));
    }
    let header = ipv6::header(packet).ok()?;
    let stand_in = |address: Ipv6Addr| {
        if address.segments()[..4] == UE6.segments()[..4] { "::ffff:0:7".parse().unwrap() } else { address }
    };
    Some((stand_in(header.src).into(), stand_in(header.dst).into()))
}

fn one_hop_less(packet: &[u8]) -> Option<Vec<u8>> {
    let mut packet = packet.to_vec();
    let at = if packet[0] >> 4 == 4 { 8 } else { 7 };
    packet[at] = packet[at].checked_sub(1).filter(|&hops| hops > 0)?;
    if at == 8 {
        let length = usize::from(packet[0] & 15) * 4;
        packet[10..12].copy_from_slice(&[0, 0]);
        let sum = checksum::checksum(&packet[..length]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    Some(packet)
}

#[test]
fn cut_and_damaged_packets_are_never_transformed_wrongly() {
    with_node("cut_and_damaged_packets_are_never_transformed_wrongly", |node| {
        let payload = rig::frame::udp(53, &[3; 4]);
        let whole = [
            tunnelled(&v4(UE, REMOTE, &payload)),
            tunnelled(&v6(UE6, REMOTE6, &payload)),
            eth(OURS, 0x0800, &v4(REMOTE, UE, &payload)),
            eth(OURS, 0x86dd, &v6(REMOTE6, UE6, &payload)),
            tunnelled_over_ipv6(&v4(UE, REMOTE, &payload)),
            tunnelled_over_ipv6(&v6(UE6, REMOTE6, &payload)),
            eth(OURS, 0x0800, &checked(&v4(REMOTE, OTHER_UE, &payload))),
        ];
        let mut frames = Vec::new();
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state >> 33).unwrap() % below
        };
        for frame in &whole {
            assert_eq!(node.forwards(frame), reference(frame).unwrap());
            frames.extend((14..frame.len()).map(|len| frame[..len].to_vec()));
            for _ in 0..300 {
                let mut damaged = frame.clone();
                for _ in 0..=random(2) {
                    let at = random(damaged.len());
                    damaged[at] = [random(256), 0, 255, usize::from(damaged[at]) ^ 1 << random(8)][random(4)]
                        .try_into()
                        .unwrap();
                }
                damaged.truncate(damaged.len() - random(2) * random(20));
                frames.push(damaged);
            }
        }
        let forwarded = AtomicU64::new(0);
        side_by_side(&frames, |frame| {
            let run = node.run(frame);
            if run.action == Action::Redirect {
                forwarded.fetch_add(1, Ordering::Relaxed);
                assert_eq!(Some(run.frame), reference(frame), "{frame:02x?}");
            } else {
                assert_eq!(&run.frame, frame);
            }
        });
        assert!(forwarded.into_inner() > 20, "damaged payloads pass");
    });
}

/// A checksum of zero says that there is none, so it is sent as ones (RFC 768).
#[test]
fn a_tunnels_checksum_of_zero_is_sent_as_ones() {
    with_node("a_tunnels_checksum_of_zero_is_sent_as_ones", |node| {
        let payload = rig::frame::udp(53, &[3; 4]);
        let from = |low: u32| Ipv4Addr::from_bits(REMOTE.to_bits() & 0xffff_0000 | low);
        let frame = |low| eth(OURS, 0x0800, &checked(&v4(from(low), OTHER_UE, &payload)));
        let is_ones = |sent: &[u8]| sent[14 + 40 + 6..][..2] == [0xff; 2];
        let found = (0..=0xffff)
            .map(|low| (frame(low), reference(&frame(low)).unwrap()))
            .find(|(_, sent)| is_ones(sent));
        let (frame, sent) = found.unwrap();
        assert_eq!(node.forwards(&frame), sent);
    });
}
