//! Properties every parser and builder of this crate keeps, on arbitrary and on mutated real packets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_wire::gtpu::{
    self, DownlinkInformation, Element, Elements, Extensions, GtpuRepr, GtpuView, Message, MessageType,
    PduSession, UplinkInformation,
};
use kaido_wire::icmpv4::{self, Icmpv4ErrorPacket, Icmpv4Reason, Icmpv4Repr, Icmpv4View};
use kaido_wire::icmpv6::{self, Icmpv6ErrorPacket, Icmpv6Reason, Icmpv6Repr, Icmpv6View};
use kaido_wire::ndisc::NdiscRepr;
use kaido_wire::*;
use proptest::prelude::*;

/// Hands the bytes to every parser and accessor of the crate; only a panic fails.
fn read_everything(bytes: &[u8]) {
    let _ = vlan::link(bytes);
    if let Ok(view) = EthernetView::new_checked(bytes) {
        let _ = (EthernetRepr::parse(&view), view.payload());
    }
    if let Ok(view) = VlanView::new_checked(bytes) {
        let _ = (VlanRepr::parse(&view), view.payload());
    }
    if let Ok(view) = ArpView::new_checked(bytes) {
        let _ = ArpRepr::parse(&view);
    }
    if let Ok(header) = gre::header(bytes) {
        assert!(usize::from(header.header_len) <= bytes.len());
    }
    read_internet(bytes);
    read_gtpu(bytes);
}

fn read_internet(bytes: &[u8]) {
    let mut scratch = bytes.to_vec();
    if let Ok(mut view) = Ipv4View::new_checked(&mut scratch) {
        let _ = (view.options().len(), view.payload().len(), view.decrement_ttl());
        view.fill_checksum();
        assert!(Ipv4Repr::parse(&view).is_ok());
    }
    if let Ok(mut view) = Ipv6View::new_checked(&mut scratch) {
        let _ = (Ipv6Repr::parse(&view), view.payload().len(), view.decrement_hop_limit());
    }
    for next_header in [0, 43, 44, 50, 51, 59, 60, 6] {
        if let Ok(upper) = ipv6::walk(IpProtocol(next_header), bytes) {
            assert!(usize::from(upper.offset) <= bytes.len());
        }
    }
    if let Ok(mut view) = UdpView::new_checked(&mut scratch) {
        let _ = (UdpRepr::parse(&view), view.payload().len());
        view.fill_checksum_v4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
        assert!(view.verify_checksum(Ipv4Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()));
    }
    if let Ok(mut view) = TcpView::new_checked(&mut scratch) {
        let _ = (TcpRepr::parse(&view).map(|repr| repr.len()), view.mss(), view.clamp_mss(1340));
    }
    if let Ok(view) = Icmpv4View::new_checked(bytes) {
        let _ = Icmpv4Repr::parse(&view).map(|repr| repr.len());
    }
    if let Ok(view) = Icmpv6View::new_checked(bytes) {
        let _ = (Icmpv6Repr::parse(&view).map(|repr| repr.len()), NdiscRepr::parse(&view));
    }
    let _ = (icmpv4::may_answer(bytes), icmpv6::may_answer(bytes, Icmpv6Reason::TimeExceeded { code: 0 }));
}

fn read_gtpu(bytes: &[u8]) {
    if let Ok(header) = gtpu::header(bytes) {
        let end = usize::from(header.payload_offset) + usize::from(header.payload_len);
        assert!(end <= bytes.len() && usize::from(header.payload_offset) <= gtpu::HEADER_LEN_MAX);
        assert!(header.extension_count <= gtpu::EXTENSIONS_MAX);
        assert!(header.qfi.is_none_or(|qfi| qfi < 64));
    }
    if let Ok(view) = GtpuView::new_checked(bytes) {
        let _ = (GtpuRepr::parse(&view), view.payload(), view.extensions().count());
    }
    let _ = (Message::parse(bytes), PduSession::parse(bytes));
    let _ = (DownlinkInformation::parse(bytes), UplinkInformation::parse(bytes));
    let first = bytes.first().copied().unwrap_or(0x85);
    assert!(Extensions::new(first, bytes).count() <= usize::from(gtpu::EXTENSIONS_MAX) + 1);
    assert!(Elements::new(bytes).count() <= bytes.len());
}

/// Real packets to mutate, of every layer a parser starts at.
fn seeds() -> Vec<Vec<u8>> {
    [
        "020000000301020000000302080045000030000040004011220a0a6403020a64030108680868001c0000\
         34ff000c000003e8000000850110090045000004",
        "0200000003010200000003029100000181000064080600010800060400010200000003020a6403020000000000000a640301",
        "4600003000010000011100000a3c00070808080894040000c00000350018000000000000000000000000000000000000",
        "6b8123450028003c20010db800600007000000000000000120010db80006000000000000000000093c00000000000000\
         2b000000000000002c0400000000000000000000000000001100000100001234",
        "c0080050000000010000000070020fff00000000020405b401030308",
        "36ff001400000fa000070040010868200100008502100900000000ff45000000",
        "361a00200000000000000040 01c00000 100000dead 850010fd000003000000000000000000000001",
        "321f00070000000000000000 8d0185",
        "8700000000000000fd0000030000000000000000000000010101020000000301",
    ]
    .iter()
    .map(|text| {
        let digits: Vec<char> = text.chars().filter(char::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap_or(0)).collect()
    })
    .collect()
}

fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let edits = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6);
    (prop::sample::select(seeds()), edits, any::<prop::sample::Index>(), any::<bool>()).prop_map(
        |(mut bytes, edits, cut, whole)| {
            for (at, value) in edits {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            if !whole {
                bytes.truncate(cut.index(bytes.len() + 1));
            }
            bytes
        },
    )
}

fn v4() -> impl Strategy<Value = Ipv4Addr> {
    any::<u32>().prop_map(Ipv4Addr::from)
}

fn v6() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(Ipv6Addr::from)
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    (0_usize..=10).prop_flat_map(|words| prop::collection::vec(any::<u8>(), words * 4))
}

fn pdu_session() -> impl Strategy<Value = PduSession> {
    prop_oneof![
        (0_u8..64, any::<bool>(), prop::option::of(0_u8..8))
            .prop_map(|(qfi, rqi, ppi)| PduSession::Downlink { qfi, rqi, ppi }),
        (0_u8..64).prop_map(|qfi| PduSession::Uplink { qfi }),
    ]
}

fn data(max: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..max)
}

/// Emits into a buffer that is exactly as long as promised, and checks that one octet less is refused.
fn emitted(len: usize, emit: impl Fn(&mut [u8]) -> Result<usize, Error>) -> Vec<u8> {
    let mut out = vec![0xa5; len];
    assert_eq!(emit(&mut out), Ok(len));
    assert_eq!(emit(&mut vec![0; len - 1]), Err(Error::BufferTooSmall));
    out
}

proptest! {
    #[test]
    fn no_parser_panics_on_any_bytes(bytes in data(2048)) {
        read_everything(&bytes);
    }

    #[test]
    fn no_parser_panics_on_mutated_packets(bytes in mutated()) {
        for at in [0, 14, 34, 42] {
            read_everything(bytes.get(at..).unwrap_or_default());
        }
    }

    #[test]
    fn a_front_segment_reads_as_the_whole_or_is_refused(bytes in mutated(), cut: prop::sample::Index) {
        let bytes = bytes.get(14..).unwrap_or_default();
        for whole in [bytes, bytes.get(20..).unwrap_or_default(), bytes.get(28..).unwrap_or_default()] {
            let head = &whole[..cut.index(whole.len() + 1)];
            if let Ok(header) = ipv4::header_within(head, whole.len()) {
                prop_assert_eq!(ipv4::header(whole), Ok(header));
                prop_assert!(head.len() >= header.header_len.into());
            }
            if let Ok(header) = ipv6::header_within(head, whole.len()) {
                prop_assert_eq!(ipv6::header(whole), Ok(header));
                prop_assert!(head.len() >= header.header_len.into());
            }
            if let Ok(header) = gtpu::header_within(head, whole.len()) {
                prop_assert_eq!(gtpu::header(whole), Ok(header));
                prop_assert!(head.len() >= header.payload_offset.into());
            }
        }
    }

    #[test]
    fn ethernet_and_vlan_survive(dst: [u8; 6], src: [u8; 6], kind: u16, tci: u16) {
        let ethernet = EthernetRepr { dst: MacAddr(dst), src: MacAddr(src), ethertype: EtherType(kind) };
        let out = emitted(ethernet.len(), |buffer| ethernet.emit(buffer));
        prop_assert_eq!(EthernetRepr::parse(&EthernetView::new_checked(out).unwrap()), Ok(ethernet));
        let (priority, vid) = ((tci >> 13) as u8, tci & 0xfff);
        let tag = VlanRepr { priority, drop_eligible: tci & 0x1000 != 0, vid, ethertype: EtherType(kind) };
        let out = emitted(tag.len(), |buffer| tag.emit(buffer));
        prop_assert_eq!(VlanRepr::parse(&VlanView::new_checked(out).unwrap()), Ok(tag));
        prop_assert_eq!(MacAddr(dst).to_string().parse(), Ok(MacAddr(dst)));
    }

    #[test]
    fn arp_survives(request: bool, sender: [u8; 6], target: [u8; 6], sender_ip in v4(), target_ip in v4()) {
        let operation = if request { ArpOperation::Request } else { ArpOperation::Reply };
        let (sender_mac, target_mac) = (MacAddr(sender), MacAddr(target));
        let repr = ArpRepr { operation, sender_mac, sender_ip, target_mac, target_ip };
        let out = emitted(repr.len(), |buffer| repr.emit(buffer));
        prop_assert_eq!(ArpRepr::parse(&ArpView::new_checked(out).unwrap()), Ok(repr));
    }

    #[test]
    fn ipv4_survives(
        (src, dst, protocol, ttl, tos) in (v4(), v4(), any::<u8>(), any::<u8>(), any::<u8>()),
        (identification, df, mf, units) in (any::<u16>(), any::<bool>(), any::<bool>(), 0_u16..8192),
        options in options(),
        payload_len in 0_u16..1500,
    ) {
        let repr = Ipv4Repr {
            src, dst, protocol: IpProtocol(protocol), ttl, tos, identification,
            dont_fragment: df, more_fragments: mf, fragment_offset: units * 8,
            options: &options, payload_len,
        };
        let mut out = emitted(repr.len(), |buffer| repr.emit(buffer));
        out.resize(repr.len() + usize::from(payload_len), 0);
        let header = ipv4::header(&out).unwrap();
        prop_assert_eq!((header.src, header.dst, header.ttl, header.tos), (src, dst, ttl, tos));
        prop_assert_eq!(header.fragment.is_some(), mf || units != 0);
        prop_assert!(ipv4::checksum_ok(&out, header.header_len));
        let mut view = Ipv4View::new_checked(out).unwrap();
        prop_assert_eq!(Ipv4Repr::parse(&view), Ok(repr));
        view.decrement_ttl();
        view.set_tos(!tos);
        view.set_src(dst);
        view.set_dst(Ipv4Addr::from(!src.to_bits()));
        let incremental = view.checksum();
        view.fill_checksum();
        prop_assert_eq!(view.checksum(), incremental);
    }

    #[test]
    fn ipv6_survives(
        (src, dst, hop_limit, traffic_class) in (v6(), v6(), any::<u8>(), any::<u8>()),
        (flow_label, payload_len) in (0_u32..0x10_0000, 1_u16..1500),
    ) {
        let next_header = IpProtocol::UDP;
        let repr = Ipv6Repr { src, dst, next_header, hop_limit, traffic_class, flow_label, payload_len };
        let mut out = emitted(repr.len(), |buffer| repr.emit(buffer));
        out.resize(40 + usize::from(payload_len), 0);
        let header = ipv6::header(&out).unwrap();
        prop_assert_eq!((header.flow_label, header.traffic_class), (flow_label, traffic_class));
        prop_assert_eq!(header.total_len, 40 + u32::from(payload_len));
        prop_assert_eq!(Ipv6Repr::parse(&Ipv6View::new_checked(out).unwrap()), Ok(repr));
    }

    #[test]
    fn transports_survive(ports: (u16, u16), numbers: (u32, u32), rest: (u8, u16, u16), options in options(),
                          payload in data(64)) {
        let payload_len = u16::try_from(payload.len()).unwrap();
        let udp_repr = UdpRepr { src_port: ports.0, dst_port: ports.1, payload_len };
        let mut out = emitted(udp_repr.len(), |buffer| udp_repr.emit(buffer));
        out.extend(&payload);
        prop_assert_eq!(UdpRepr::parse(&UdpView::new_checked(out).unwrap()), Ok(udp_repr));
        let tcp_repr = TcpRepr {
            src_port: ports.0, dst_port: ports.1, sequence: numbers.0, acknowledgment: numbers.1,
            flags: TcpFlags(rest.0), window: rest.1, urgent: rest.2, options: &options,
        };
        let out = emitted(tcp_repr.len(), |buffer| tcp_repr.emit(buffer));
        prop_assert_eq!(ip::ports(IpProtocol::TCP, &out), Some(ports));
        let view = TcpView::new_checked(out).unwrap();
        prop_assert_eq!(TcpRepr::parse(&view), Ok(tcp_repr));
    }

    #[test]
    fn icmp_survives(identifier: u16, sequence: u16, code: u8, mtu: u32, data in data(600), src in v6(), dst in v6()) {
        let unreachable = Icmpv4Reason::DestinationUnreachable { code, next_hop_mtu: sequence };
        for repr in [
            Icmpv4Repr::EchoRequest { identifier, sequence, data: &data },
            Icmpv4Repr::EchoReply { identifier, sequence, data: &data },
            Icmpv4Repr::Error { reason: unreachable, quoted: &data },
            Icmpv4Repr::Error { reason: Icmpv4Reason::TimeExceeded { code }, quoted: &data },
        ] {
            let out = emitted(repr.len(), |buffer| repr.emit(buffer));
            let view = Icmpv4View::new_checked(&out).unwrap();
            prop_assert_eq!(Icmpv4Repr::parse(&view), Ok(repr));
        }
        for repr in [
            Icmpv6Repr::EchoRequest { identifier, sequence, data: &data },
            Icmpv6Repr::EchoReply { identifier, sequence, data: &data },
            Icmpv6Repr::Error { reason: Icmpv6Reason::DestinationUnreachable { code }, quoted: &data },
            Icmpv6Repr::Error { reason: Icmpv6Reason::PacketTooBig { mtu }, quoted: &data },
            Icmpv6Repr::Error { reason: Icmpv6Reason::TimeExceeded { code }, quoted: &data },
        ] {
            let out = emitted(repr.len(), |buffer| repr.emit(src, dst, buffer));
            let view = Icmpv6View::new_checked(&out).unwrap();
            prop_assert!(view.verify_checksum(src, dst));
            prop_assert_eq!(Icmpv6Repr::parse(&view), Ok(repr));
        }
    }

    #[test]
    fn error_packets_stay_in_their_bounds(offending in data(2048), code: u8, mtu: u32, node4 in v4(), node6 in v6()) {
        let reason = Icmpv4Reason::TimeExceeded { code };
        let packet =
            Icmpv4ErrorPacket { src: node4, dst: node4, ttl: 64, tos: 0xc0, reason, offending: &offending };
        let out = emitted(packet.len(), |buffer| packet.emit(buffer));
        prop_assert!(out.len() <= 576 && ipv4::header(&out).is_ok());
        let reason = Icmpv6Reason::PacketTooBig { mtu };
        let packet = Icmpv6ErrorPacket {
            src: node6, dst: node6, hop_limit: 64, traffic_class: 0, reason, offending: &offending,
        };
        let out = emitted(packet.len(), |buffer| packet.emit(buffer));
        prop_assert!(out.len() <= 1280 && ipv6::header(&out).is_ok());
    }

    #[test]
    fn discovery_survives(target in v6(), mac in prop::option::of(any::<[u8; 6]>()), flags in 0_u8..8) {
        prop_assume!(!target.is_multicast());
        let mac = mac.map(MacAddr);
        let (router, solicited, override_cache) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        for repr in [
            NdiscRepr::NeighborSolicitation { target, source_link: mac },
            NdiscRepr::NeighborAdvertisement { router, solicited, override_cache, target, target_link: mac },
        ] {
            let out = emitted(repr.len(), |buffer| repr.emit(target, target, buffer));
            prop_assert_eq!(NdiscRepr::parse(&Icmpv6View::new_checked(out).unwrap()), Ok(repr));
        }
    }

    #[test]
    fn gtpu_survives(
        (kind, teid, payload_len) in (any::<u8>(), any::<u32>(), 0_u16..1500),
        sequence in prop::option::of(any::<u16>()),
        npdu in prop::option::of(any::<u8>()),
        pdu_session in prop::option::of(pdu_session()),
    ) {
        let repr = GtpuRepr { message_type: MessageType(kind), teid, sequence, npdu, pdu_session, payload_len };
        let mut out = emitted(repr.len(), |buffer| repr.emit(buffer));
        out.resize(repr.len() + usize::from(payload_len) + 3, 0);
        let header = gtpu::header(&out).unwrap();
        prop_assert_eq!((usize::from(header.payload_offset), header.payload_len), (repr.len(), payload_len));
        prop_assert_eq!(header.qfi, pdu_session.map(|container| container.qfi()));
        prop_assert_eq!(GtpuRepr::parse(&GtpuView::new_checked(out).unwrap()), Ok(repr));
    }

    #[test]
    fn gtpu_messages_survive(sequence: u16, teid: u32, counter: u8, port in prop::option::of(any::<u16>()),
                             restarted in prop::option::of(any::<u32>()),
                             peer in prop_oneof![v4().prop_map(IpAddr::V4), v6().prop_map(IpAddr::V6)],
                             types in data(256)) {
        for message in [
            Message::EchoRequest { sequence, restarted },
            Message::EchoResponse { sequence, recovery: counter, restarted },
            Message::TunnelStatus { sequence, teid, status: counter },
            Message::ErrorIndication { sequence, teid, peer, udp_port: port },
            Message::SupportedExtensionHeaders { sequence, types: &types },
            Message::EndMarker { teid },
        ] {
            let out = emitted(message.len(), |buffer| message.emit(buffer));
            prop_assert_eq!(Message::parse(&out), Ok(message));
        }
        let private = Element::Unknown { kind: 255, value: &types };
        let out = emitted(private.len(), |buffer| private.emit(buffer));
        prop_assert_eq!(Elements::new(&out).next(), Some(Ok(private)));
    }
}

/// The sum by its definition, one word at a time.
fn plain_checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u32::from(low));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).map_or(0, |sum| !sum)
}

/// Octets in which the corner values 0x00 and 0xff are frequent.
fn corner_octet() -> impl Strategy<Value = u8> {
    prop_oneof![2 => Just(0_u8), 2 => Just(0xff_u8), 3 => any::<u8>()]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn the_fast_sum_is_the_plain_sum(bytes in prop::collection::vec(corner_octet(), 0..300), cut in 0_usize..150) {
        prop_assert_eq!(checksum::checksum(&bytes), plain_checksum(&bytes));
        let (head, back) = bytes.split_at((cut * 2).min(bytes.len() / 2 * 2));
        let parts = checksum::combine(&[checksum::sum(head), checksum::sum(back)]);
        prop_assert_eq!(!parts, plain_checksum(&bytes));
    }

    #[test]
    fn an_incremental_update_is_a_recomputation(
        mut data in prop::collection::vec(corner_octet(), 40),
        new in prop::collection::vec(corner_octet(), 16),
        at in 0_usize..12,
    ) {
        // The checksum of all-zero data has the other form of zero: no header is all zero.
        data[0] = 0x45;
        let at = at * 2 + 2;
        let old_sum = checksum::checksum(&data);
        for width in [2, 4, 16] {
            let mut changed = data.clone();
            changed[at..at + width].copy_from_slice(&new[..width]);
            let (old, new) = (&data[at..at + width], &new[..width]);
            let updated = match width {
                2 => checksum::update_u16(
                    old_sum, u16::from_be_bytes(old.try_into().unwrap()), u16::from_be_bytes(new.try_into().unwrap())),
                4 => checksum::update_u32(
                    old_sum, u32::from_be_bytes(old.try_into().unwrap()), u32::from_be_bytes(new.try_into().unwrap())),
                _ => checksum::update_u128(
                    old_sum, u128::from_be_bytes(old.try_into().unwrap()), u128::from_be_bytes(new.try_into().unwrap())),
            };
            prop_assert_eq!(updated, checksum::checksum(&changed));
        }
    }

    #[test]
    fn a_udp_update_never_says_none(sum: u16, old: u16, new: u16) {
        let updated = checksum::update_udp(sum, |sum| checksum::update_u16(sum, old, new));
        prop_assert_eq!(updated == 0, sum == 0);
    }

    #[test]
    fn the_pseudo_header_is_the_sum_of_its_octets(src in v6(), dst in v6(), length: u16, protocol: u8) {
        let [high, low] = length.to_be_bytes();
        let octets = [&src.octets()[..], &dst.octets(), &[0, 0, high, low, 0, 0, 0, protocol]].concat();
        let sum = checksum::pseudo_v6(src, dst, IpProtocol(protocol), length.into());
        prop_assert_eq!(!sum, plain_checksum(&octets));
    }

    #[test]
    fn sums_of_parts_are_those_of_the_whole(
        bytes in data(300), first: prop::sample::Index, second: prop::sample::Index,
    ) {
        let (head, rest) = bytes.split_at(first.index(bytes.len() + 1));
        let (middle, back) = rest.split_at(second.index(rest.len() + 1));
        prop_assert_eq!(gre::sum_of([head, middle, back]), checksum::sum(&bytes));
    }

    #[test]
    fn gre_headers_are_read_as_they_are_written(
        protocol: u16, checksum: bool, key: Option<u32>, sequence: Option<u32>, payload in data(100),
    ) {
        let repr = GreRepr { protocol: EtherType(protocol), checksum, key, sequence };
        let mut packet = vec![0; repr.len()];
        prop_assert_eq!(repr.emit(&mut packet), Ok(repr.len()));
        packet.extend(payload);
        if checksum {
            gre::fill_checksum(&mut packet).unwrap();
            prop_assert!(gre::checksum_ok([&packet[..]]));
        }
        let read = gre::header(&packet).unwrap();
        prop_assert_eq!(usize::from(read.header_len), repr.len());
        prop_assert_eq!(
            (read.protocol, read.has_checksum, read.key, read.sequence),
            (repr.protocol, checksum, key, sequence)
        );
    }
}
