use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use kaido_wire::{Ipv4Repr, Ipv6Repr, checksum};
use proptest::prelude::*;

use super::*;
use crate::fragment::{Contexts, FragmentInfo, Limits, Outcome, SplitFault, split, split_v4_allowed};
use crate::pool::FramePool;

/// A fragment, and the octets before its data.
type Piece = (Frame, usize);

fn pool() -> &'static FramePool {
    static POOL: std::sync::OnceLock<&'static FramePool> = std::sync::OnceLock::new();
    POOL.get_or_init(|| FramePool::leak(4096).unwrap())
}

fn frame(bytes: &[u8]) -> Frame {
    Frame::from_slice(bytes, || pool().allocate()).unwrap()
}

fn v4(payload: &[u8], options: &[u8], dont_fragment: bool) -> Vec<u8> {
    let header = Ipv4Repr {
        src: Ipv4Addr::new(10, 0, 0, 1),
        dst: Ipv4Addr::new(10, 0, 0, 2),
        protocol: IpProtocol::UDP,
        ttl: 9,
        tos: 0x48,
        identification: 77,
        dont_fragment,
        more_fragments: false,
        fragment_offset: 0,
        options,
        payload_len: u16::try_from(payload.len()).unwrap(),
    };
    let mut packet = vec![0; header.len()];
    header.emit(&mut packet).unwrap();
    [&packet, payload].concat()
}

fn v6(payload: &[u8]) -> Vec<u8> {
    let header = Ipv6Repr {
        src: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1),
        dst: Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2),
        next_header: IpProtocol::UDP,
        hop_limit: 9,
        traffic_class: 3,
        flow_label: 0x12345,
        payload_len: u16::try_from(payload.len()).unwrap(),
    };
    let mut packet = vec![0; header.len()];
    header.emit(&mut packet).unwrap();
    [&packet, payload].concat()
}

fn piece(bytes: &[u8]) -> (FragmentInfo, Piece) {
    let found = FragmentInfo::read(bytes).unwrap();
    (found, (frame(bytes), found.header_len))
}

/// Puts fragments together in the order given.
fn together(fragments: &[Vec<u8>]) -> Option<Vec<u8>> {
    let mut contexts = Contexts::new(Limits::default());
    let mut whole = None;
    for bytes in fragments {
        let (found, piece) = piece(bytes);
        let same = |kept: &Piece, new: &Piece| kept.0.to_vec() == new.0.to_vec();
        if let Outcome::Ready(pieces) =
            contexts.collect(found.key(0), found.place, piece, Instant::now(), same)
        {
            assert!(whole.is_none(), "once");
            whole =
                Some(assemble(&pieces, |piece| (&piece.0, piece.1), || pool().allocate()).unwrap().to_vec());
        }
    }
    whole
}

/// What a packet is after it has been cut and put together: the identification may be new, DF is gone.
fn as_reassembled(packet: &[u8], identification: [u8; 2]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    if packet[0] >> 4 == 4 {
        let header_len = usize::from(packet[0] & 15) * 4;
        packet[4..6].copy_from_slice(&identification);
        packet[6..8].fill(0);
        packet[10..12].fill(0);
        let sum = checksum::checksum(&packet[..header_len]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

fn cut(packet: &[u8], mtu: usize, identification: u32) -> Vec<Vec<u8>> {
    let fragments = split(&frame(packet), mtu, identification, || pool().allocate()).unwrap();
    fragments.iter().map(Frame::to_vec).collect()
}

/// Conformance: RFC 791 3.2 | A datagram is cut at multiples of eight, each fragment with a header of its own
#[test]
fn fragments_of_ipv4_have_headers_of_their_own() {
    let payload: Vec<u8> = (0..100).collect();
    // Record route is not copied, strict source route is.
    let options = [7, 3, 4, 137, 3, 4, 1, 0];
    let packet = v4(&payload, &options, false);
    assert!(split_v4_allowed(&packet) && !split_v4_allowed(&v4(&payload, &[], true)));
    let fragments = cut(&packet, 28 + 40, 0);
    let read: Vec<_> = fragments.iter().map(|bytes| ipv4::header(bytes).unwrap()).collect();
    assert!(fragments.iter().all(|bytes| ipv4::checksum_ok(bytes, (bytes[0] & 15) * 4)));
    let places: Vec<_> = read.iter().map(|header| header.fragment.unwrap()).collect();
    let expected = [(0, true), (40, true), (80, false)];
    assert_eq!(places.iter().map(|place| (place.offset, place.more)).collect::<Vec<_>>(), expected);
    assert!(places.iter().all(|place| place.identification == 77));
    assert_eq!(read.iter().map(|header| header.header_len).collect::<Vec<_>>(), [28, 24, 24]);
    assert_eq!(&fragments[1][20..24], &[137, 3, 4, 0]);
    assert_eq!(together(&fragments), Some(as_reassembled(&packet, 77_u16.to_be_bytes())));
}

#[test]
fn a_fragment_can_be_cut_again() {
    let payload: Vec<u8> = (0..=255).collect();
    let packet = v4(&payload, &[], false);
    let again: Vec<_> =
        cut(&packet, 20 + 128, 0).iter().flat_map(|fragment| cut(fragment, 20 + 48, 0)).collect();
    assert_eq!(again.len(), 6);
    assert_eq!(together(&again), Some(as_reassembled(&packet, 77_u16.to_be_bytes())));
}

#[test]
fn impossible_cuts_are_refused() {
    let packet = v6(&[0; 100]);
    let allocate = || pool().allocate();
    assert_eq!(split(&frame(&packet), 55, 1, allocate).unwrap_err(), SplitFault::Impossible);
    assert_eq!(split(&frame(&packet), 56, 1, || None).unwrap_err(), SplitFault::NoFrame);
    assert_eq!(split(&frame(&[0x20; 60]), 56, 1, allocate).unwrap_err(), SplitFault::Impossible);
    let with_extension = cut(&packet, 96, 1).remove(0);
    assert_eq!(split(&frame(&with_extension), 64, 1, allocate).unwrap_err(), SplitFault::Impossible);
}

/// Conformance: RFC 8200 4.5 | The fragment header goes when the packet is whole, those before it stay
#[test]
fn headers_before_the_fragment_header_stay() {
    let payload: Vec<u8> = (0..64).collect();
    let mut whole = v6(&[&[17, 0, 1, 4, 0, 0, 0, 0], &payload[..]].concat());
    whole[6] = IpProtocol::DESTINATION_OPTIONS.0;
    let part = |offset: u16, more: u16, data: &[u8]| {
        let [high, low] = (offset | more).to_be_bytes();
        let mut packet = v6(&[&[44, 0, 1, 4, 0, 0, 0, 0, 17, 0, high, low, 0, 0, 0, 5], data].concat());
        packet[6] = IpProtocol::DESTINATION_OPTIONS.0;
        packet
    };
    let parts = [part(48, 0, &payload[48..]), part(0, 1, &payload[..48])];
    assert_eq!(together(&parts), Some(whole));
}

proptest! {
    /// Cut anyhow, mixed anyhow, some of it twice: the packet comes out as it was.
    #[test]
    fn what_is_cut_and_mixed_is_put_together(
        payload in prop::collection::vec(any::<u8>(), 200..9000),
        mtu in 200_usize..1500,
        again in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        seed in prop::collection::vec(any::<u32>(), 64),
        is_ipv4: bool,
        dont_fragment: bool,
    ) {
        let packet = if is_ipv4 { v4(&payload, &[], dont_fragment) } else { v6(&payload) };
        let mut fragments = cut(&packet, mtu, 0x0001_0203);
        prop_assert!(fragments.iter().all(|fragment| fragment.len() <= mtu));
        if fragments.len() == 1 {
            return Ok(());
        }
        let last = fragments.remove(seed[0] as usize % fragments.len());
        let repeated: Vec<_> = again.iter().map(|index| index.get(&fragments).clone()).collect();
        fragments.extend(repeated);
        let mut order: Vec<_> = fragments.into_iter().enumerate().collect();
        order.sort_by_key(|(at, _)| seed[at % 64].rotate_left(u32::try_from(at / 64).unwrap()));
        let mut mixed: Vec<_> = order.into_iter().map(|(_, fragment)| fragment).collect();
        mixed.push(last);
        let identification = if dont_fragment { [2, 3] } else { 77_u16.to_be_bytes() };
        prop_assert_eq!(together(&mixed), Some(as_reassembled(&packet, identification)));
    }

    /// Octets of any kind are read without a panic, and so is what can be cut of them.
    #[test]
    fn garbage_is_read_without_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200), six: bool, mtu in 0_usize..200) {
        if let Some(first) = bytes.first_mut() {
            *first = if six { 0x60 } else { 0x40 | *first & 0xf };
        }
        let _ = FragmentInfo::read(&bytes);
        let _ = split(&frame(&bytes), mtu, 1, || pool().allocate());
    }
}

/// Conformance: RFC 3168 5.3 | A packet is marked when one of its fragments is, and dropped when another cannot carry the mark
#[test]
fn marks_of_fragments_are_not_lost() {
    for packet in [v4(&[7; 200], &[], false), v6(&[7; 200])] {
        for (marks, expected) in [
            ([ecn::ECT_0, ecn::ECT_0], Ok(ecn::ECT_0)),
            ([ecn::ECT_0, ecn::CE], Ok(ecn::CE)),
            ([ecn::CE, ecn::ECT_1], Ok(ecn::CE)),
            ([ecn::CE, ecn::CE], Ok(ecn::CE)),
            ([ecn::NOT_ECT, ecn::ECT_0], Ok(ecn::NOT_ECT)),
            ([ecn::NOT_ECT, ecn::CE], Err(DropReason::CONGESTION_MARK)),
            ([ecn::CE, ecn::NOT_ECT], Err(DropReason::CONGESTION_MARK)),
        ] {
            let mut fragments = cut(&packet, 200, 1);
            for (fragment, mark) in fragments.iter_mut().zip(marks) {
                let class = ecn::class(fragment) & !ecn::MASK | mark;
                ecn::set_class(fragment, class);
            }
            let pieces: Vec<Piece> = fragments.iter().map(|bytes| piece(bytes).1).collect();
            assert_eq!(pieces.len(), 2);
            let whole = assemble(&pieces, |piece| (&piece.0, piece.1), || pool().allocate());
            let whole = whole.map(|whole| whole.to_vec());
            assert_eq!(
                whole.as_ref().map(|whole| ecn::class(whole) & ecn::MASK).map_err(|&reason| reason),
                expected,
                "{marks:?}"
            );
            if let (Ok(whole), 4) = (whole, packet[0] >> 4) {
                assert!(ipv4::checksum_ok(&whole, 20));
            }
        }
    }
}
