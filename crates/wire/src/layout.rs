//! Fixed layouts: headers of a known length as named fields over the octets themselves, for fast paths.
//!
//! ```text
//!   &[u8; N] or &mut [u8; N] ──Ipv4Fields::new──▶ Ipv4Fields: total_len(), set_total_len() …, one load or store each
//! ```
//! The length is part of the type, so that no field is out of bounds and nothing is checked at run time. A field is what the
//! octets say: what a value means, and whether a header is sound, is asked by a method of its own or by the caller.

use core::ops::{Deref, DerefMut};

use crate::{IpProtocol, checksum, ipv4};

/// A field of a header, big-endian.
pub trait Field: Copy {
    /// Reads the field from the first octets.
    fn read(octets: &[u8]) -> Self;
    /// Writes the field over the first octets.
    fn write(self, octets: &mut [u8]);
}

macro_rules! number {
    ($($number:ty),*) => {$(
        impl Field for $number {
            #[inline(always)]
            fn read(octets: &[u8]) -> Self {
                let mut word = [0; size_of::<$number>()];
                word.copy_from_slice(&octets[..size_of::<$number>()]);
                <$number>::from_be_bytes(word)
            }

            #[inline(always)]
            fn write(self, octets: &mut [u8]) {
                octets[..size_of::<$number>()].copy_from_slice(&self.to_be_bytes());
            }
        }
    )*};
}
number!(u8, u16, u32, u64, u128);

impl<const N: usize> Field for [u8; N] {
    #[inline(always)]
    fn read(octets: &[u8]) -> Self {
        let mut value = [0; N];
        value.copy_from_slice(&octets[..N]);
        value
    }

    #[inline(always)]
    fn write(self, octets: &mut [u8]) {
        octets[..N].copy_from_slice(&self);
    }
}

/// The `N` octets from `AT` on; that they lie within is asked when the code is compiled.
#[inline(always)]
pub const fn part<const AT: usize, const N: usize, const LEN: usize>(octets: &[u8; LEN]) -> &[u8; N] {
    const { assert!(AT + N <= LEN) };
    match octets.split_at(AT).1.first_chunk() {
        Some(part) => part,
        None => const { &[0; N] },
    }
}

/// As [`part`], to be written.
#[inline(always)]
pub const fn part_mut<const AT: usize, const N: usize, const LEN: usize>(
    octets: &mut [u8; LEN],
) -> &mut [u8; N] {
    const { assert!(AT + N <= LEN) };
    match octets.split_at_mut(AT).1.first_chunk_mut() {
        Some(part) => part,
        // The assertion above holds.
        None => unreachable!(),
    }
}

/// The `N` octets from `at` on of a slice that has them.
///
/// # Panics
/// Where it has not, as indexing does.
#[inline(always)]
pub fn at<const N: usize>(octets: &[u8], at: usize) -> &[u8; N] {
    let Some(part) = octets[at..at + N].first_chunk() else { unreachable!() };
    part
}

/// As [`at`], to be written.
///
/// # Panics
/// As [`at`].
#[inline(always)]
pub fn at_mut<const N: usize>(octets: &mut [u8], at: usize) -> &mut [u8; N] {
    let Some(part) = octets[at..at + N].first_chunk_mut() else { unreachable!() };
    part
}

const fn lies_within(at: usize, octets: usize, len: usize) -> bool {
    at + octets <= len
}

macro_rules! layout {
    (
        $(#[$meta:meta])*
        $name:ident of $len:expr;
        $($(#[$field:meta])* $get:ident $set:ident: $kind:ty = $at:expr;)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        pub struct $name<B>(B);

        impl<B: Deref<Target = [u8; $len]>> $name<B> {
            /// The octets as fields.
            #[inline(always)]
            pub const fn new(octets: B) -> Self {
                Self(octets)
            }

            $(
                $(#[$field])*
                #[inline(always)]
                pub fn $get(&self) -> $kind {
                    const { assert!(lies_within($at, size_of::<$kind>(), $len)) };
                    Field::read(&self.0[$at..])
                }
            )*
        }

        impl<B: DerefMut<Target = [u8; $len]>> $name<B> {
            $(
                $(#[$field])*
                #[inline(always)]
                pub fn $set(&mut self, value: $kind) {
                    const { assert!(lies_within($at, size_of::<$kind>(), $len)) };
                    Field::write(value, &mut self.0[$at..]);
                }
            )*
        }
    };
}

layout! {
    /// An Ethernet header without tags.
    EthernetFields of 14;
    /// Destination address.
    dst set_dst: [u8; 6] = 0;
    /// Source address.
    src set_src: [u8; 6] = 6;
    /// EtherType.
    ethertype set_ethertype: u16 = 12;
}

layout! {
    /// The fixed part of an IPv4 header (RFC 791 3.1).
    Ipv4Fields of 20;
    /// Version and header length; 0x45 without options.
    version_ihl set_version_ihl: u8 = 0;
    /// Type of service: DSCP and ECN.
    tos set_tos: u8 = 1;
    /// Octets of the packet.
    total_len set_total_len: u16 = 2;
    /// Identification.
    identification set_identification: u16 = 4;
    /// Flags and fragment offset.
    flags_offset set_flags_offset: u16 = 6;
    /// Time to live.
    ttl set_ttl: u8 = 8;
    /// Protocol of the payload.
    protocol set_protocol: u8 = 9;
    /// Header checksum.
    checksum set_checksum: u16 = 10;
    /// Source address.
    src set_src: u32 = 12;
    /// Destination address.
    dst set_dst: u32 = 16;
}

impl<B: Deref<Target = [u8; 20]>> Ipv4Fields<B> {
    /// Whether the packet is part of a larger one.
    #[inline(always)]
    pub fn is_fragment(&self) -> bool {
        self.flags_offset() & 0x3fff != 0
    }

    /// Whether the checksum is right, of a header without options.
    #[inline(always)]
    pub fn has_sound_checksum(&self) -> bool {
        checksum::is_sound_ipv4(&self.0)
    }

    /// Octets of the header, options included.
    #[inline(always)]
    pub fn header_len(&self) -> usize {
        usize::from(self.version_ihl() & 0x0f) * 4
    }

    /// Octets of the packet, where its header has no options and is sound (RFC 1812 5.2.2), and of `available` octets none is
    /// missing.
    #[inline(always)]
    pub fn sound_len(&self, available: usize) -> Option<u16> {
        let total = self.total_len();
        let is_sound = self.version_ihl() == 0x45
            && total >= 20
            && usize::from(total) <= available
            && self.has_sound_checksum();
        is_sound.then_some(total)
    }
}

impl<B: DerefMut<Target = [u8; 20]>> Ipv4Fields<B> {
    /// Takes one from the TTL, which is not zero, and updates the checksum (RFC 1812 5.3.1, RFC 1624 equation 3).
    #[inline(always)]
    pub fn decrement_ttl(&mut self) {
        // The field's word becomes 0x0100 less: one more in the octets' own order, with the carry around, and never 0xffff,
        // which no header's checksum is.
        let old = self.checksum().swap_bytes();
        let new = old.wrapping_add(1 + u16::from(old >= 0xfffe));
        self.set_ttl(self.ttl().wrapping_sub(1));
        self.set_checksum(new.swap_bytes());
    }

    /// Sets ToS and TTL, and updates the checksum for what has changed (RFC 1624 equation 3).
    #[inline]
    pub fn update(&mut self, tos: u8, ttl: u8) {
        let [version_ihl, protocol] = [self.version_ihl(), self.protocol()];
        let word = |high, low| u16::from_be_bytes([high, low]);
        let mut sum = self.checksum();
        if self.tos() != tos {
            sum = checksum::update_u16(sum, word(version_ihl, self.tos()), word(version_ihl, tos));
            self.set_tos(tos);
        }
        if self.ttl() != ttl {
            sum = checksum::update_u16(sum, word(self.ttl(), protocol), word(ttl, protocol));
            self.set_ttl(ttl);
        }
        self.set_checksum(sum);
    }

    /// Computes the checksum of a header without options afresh.
    #[inline]
    pub fn fill_checksum(&mut self) {
        ipv4::fill_checksum(&mut self.0[..]);
    }
}

layout! {
    /// The fixed IPv6 header (RFC 8200 3).
    Ipv6Fields of 40;
    /// Version, traffic class and flow label.
    version_class_flow set_version_class_flow: u32 = 0;
    /// Octets behind this header.
    payload_len set_payload_len: u16 = 4;
    /// What follows.
    next_header set_next_header: u8 = 6;
    /// Hop limit.
    hop_limit set_hop_limit: u8 = 7;
    /// Source address.
    src set_src: u128 = 8;
    /// The source's network prefix of 64 bits.
    src_prefix set_src_prefix: u64 = 8;
    /// Destination address.
    dst set_dst: u128 = 24;
}

impl<B: Deref<Target = [u8; 40]>> Ipv6Fields<B> {
    /// Traffic class: DSCP and ECN.
    #[inline(always)]
    #[allow(clippy::cast_possible_truncation)] // Eight bits of it are wanted.
    pub fn traffic_class(&self) -> u8 {
        (self.version_class_flow() >> 20) as u8
    }

    /// Octets of the packet; `None` of more than 65 535.
    #[inline(always)]
    pub fn total_len(&self) -> Option<u16> {
        self.payload_len().checked_add(40)
    }

    /// Octets of the packet, where TCP, UDP or ICMPv6 follows the header, and of `available` octets none is missing. A payload of
    /// no octets would announce a jumbogram (RFC 2675), or nothing at all.
    #[inline(always)]
    pub fn sound_len(&self, available: usize) -> Option<u16> {
        let total = self.total_len()?;
        let follows = IpProtocol(self.next_header());
        let is_plain = matches!(follows, IpProtocol::TCP | IpProtocol::UDP | IpProtocol::ICMPV6);
        let is_sound =
            self.version_class_flow() >> 28 == 6 && is_plain && total > 40 && usize::from(total) <= available;
        is_sound.then_some(total)
    }
}

impl<B: DerefMut<Target = [u8; 40]>> Ipv6Fields<B> {
    /// Takes one from the hop limit, which is not zero (RFC 8200 3).
    #[inline(always)]
    pub fn decrement_hop_limit(&mut self) {
        self.set_hop_limit(self.hop_limit().wrapping_sub(1));
    }

    /// Sets the traffic class.
    #[inline]
    pub fn set_traffic_class(&mut self, class: u8) {
        let rest = self.version_class_flow() & !(0xff << 20);
        self.set_version_class_flow(rest | u32::from(class) << 20);
    }

    /// Sets bits of the traffic class that are zero.
    #[inline(always)]
    pub fn add_traffic_class(&mut self, bits: u8) {
        self.set_version_class_flow(self.version_class_flow() | u32::from(bits) << 20);
    }
}

layout! {
    /// A UDP header (RFC 768).
    UdpFields of 8;
    /// Source port.
    src_port set_src_port: u16 = 0;
    /// Destination port.
    dst_port set_dst_port: u16 = 2;
    /// Octets of header and payload.
    len set_len: u16 = 4;
    /// Checksum; zero where there is none.
    checksum set_checksum: u16 = 6;
}

layout! {
    /// The mandatory part of a GTP-U header (TS 29.281 5.1).
    GtpuFields of 8;
    /// Version, protocol type, and the flags E, S and PN.
    flags set_flags: u8 = 0;
    /// Message type.
    message_type set_message_type: u8 = 1;
    /// Octets behind this part.
    length set_length: u16 = 2;
    /// Tunnel endpoint identifier.
    teid set_teid: u32 = 4;
}

layout! {
    /// The optional part of a GTP-U header with a PDU session container of four octets behind it, and nothing else
    /// (TS 29.281 5.2.2.7, TS 38.415 5.5.2).
    ContainerFields of 8;
    /// Sequence number, N-PDU number and the type of the extension header.
    optional set_optional: u32 = 0;
    /// The type of the extension header, and its length in units of four octets.
    kind_len set_kind_len: u16 = 3;
    /// PDU type, high in its octet.
    pdu_type set_pdu_type: u8 = 5;
    /// QoS flow identifier, low in its octet.
    qfi set_qfi: u8 = 6;
    /// The type of the next extension header.
    next set_next: u8 = 7;
}

layout! {
    /// A GRE header without options (RFC 2784 2).
    GreFields of 4;
    /// Flags and version; zero without options.
    flags_version set_flags_version: u16 = 0;
    /// The EtherType of the payload.
    protocol set_protocol: u16 = 2;
    /// All of it.
    whole set_whole: u32 = 0;
}

layout! {
    /// The fixed part of a TCP header (RFC 9293 3.1).
    TcpFields of 20;
    /// Source port.
    src_port set_src_port: u16 = 0;
    /// Destination port.
    dst_port set_dst_port: u16 = 2;
    /// Sequence number.
    sequence set_sequence: u32 = 4;
    /// Octets of the header in units of four, high in its octet.
    data_offset set_data_offset: u8 = 12;
    /// Control bits.
    flags set_flags: u8 = 13;
    /// Checksum.
    checksum set_checksum: u16 = 16;
}

layout! {
    /// An IPv6 fragment header (RFC 8200 4.5).
    FragmentFields of 8;
    /// What follows.
    next_header set_next_header: u8 = 0;
    /// Nothing yet.
    reserved set_reserved: u8 = 1;
    /// Offset in units of eight octets, high in its word, and the M flag, low.
    offset_more set_offset_more: u16 = 2;
    /// Identification.
    identification set_identification: u32 = 4;
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;
    use crate::gtpu::{self, GtpuView, MessageType};
    use crate::{EthernetView, Ipv4View, Ipv6View, TcpView, UdpView, ipv6};

    proptest! {
        /// Fields are those of the views, which have another way to their places.
        #[test]
        fn fields_are_those_of_the_views(octets: [u8; 64]) {
            let link = EthernetFields::new(part::<0, 14, 64>(&octets));
            let view = EthernetView::new_checked(&octets).unwrap();
            prop_assert_eq!((link.dst(), link.src()), (view.dst().0, view.src().0));
            prop_assert_eq!(link.ethertype(), view.ethertype().0);
            let udp = UdpFields::new(part::<20, 8, 64>(&octets));
            if let Ok(view) = UdpView::new_checked(&octets[20..]) {
                prop_assert_eq!((udp.src_port(), udp.dst_port()), (view.src_port(), view.dst_port()));
                prop_assert_eq!((udp.len(), udp.checksum()), (view.length(), view.checksum()));
            }
            let tcp = TcpFields::new(part::<20, 20, 64>(&octets));
            if let Ok(view) = TcpView::new_checked(&octets[20..]) {
                prop_assert_eq!((tcp.src_port(), tcp.dst_port()), (view.src_port(), view.dst_port()));
                prop_assert_eq!((tcp.flags(), tcp.checksum()), (view.flags().0, view.checksum()));
                prop_assert_eq!(tcp.data_offset() >> 4, view.header_len() / 4);
            }
        }

        #[test]
        fn fields_of_ipv4_are_those_of_the_view(mut octets: [u8; 64], no_options: bool, sound: bool) {
            octets[0] = if no_options { 0x45 } else { 0x40 | octets[0] & 15 };
            octets[2] = 0;
            octets[3] &= 63;
            if sound {
                let len = usize::from(octets[0] & 15) * 4;
                ipv4::fill_checksum(&mut octets[..len]);
            }
            let mut after = octets;
            let fields = Ipv4Fields::new(part::<0, 20, 64>(&octets));
            let Ok(mut view) = Ipv4View::new_checked(&mut after) else {
                prop_assert_eq!(fields.sound_len(64), None);
                return Ok(());
            };
            prop_assert_eq!((fields.tos(), fields.ttl()), (view.tos(), view.ttl()));
            prop_assert_eq!((fields.total_len(), fields.identification()), (view.total_len(), view.identification()));
            prop_assert_eq!((fields.protocol(), fields.checksum()), (view.protocol().0, view.checksum()));
            let ends = (Ipv4Addr::from_bits(fields.src()), Ipv4Addr::from_bits(fields.dst()));
            prop_assert_eq!(ends, (view.src(), view.dst()));
            prop_assert_eq!(fields.header_len(), usize::from(view.header_len()));
            let is_plain = octets[0] == 0x45 && view.verify_checksum();
            prop_assert_eq!(fields.sound_len(64), is_plain.then_some(view.total_len()));
            prop_assert_eq!(fields.sound_len(usize::from(view.total_len()) - 1), None);
            // With a right checksum every change leaves one.
            if view.verify_checksum() {
                let mut changed = octets;
                let mut fields = Ipv4Fields::new(part_mut::<0, 20, 64>(&mut changed));
                let [tos, ttl] = [octets[40], octets[41]];
                fields.update(tos, ttl);
                prop_assert_eq!((fields.tos(), fields.ttl()), (tos, ttl));
                prop_assert!(Ipv4View::new_checked(&changed).unwrap().verify_checksum());
                if view.ttl() > 0 {
                    view.decrement_ttl();
                    prop_assert!(view.verify_checksum());
                    prop_assert_eq!(view.ttl(), octets[8] - 1);
                }
            }
        }

        #[test]
        fn fields_of_ipv6_are_those_of_the_view(mut octets: [u8; 64], next in prop::sample::select(vec![6u8, 17, 58, 0, 44, 59])) {
            octets[0] = 0x60 | octets[0] & 15;
            (octets[4], octets[5], octets[6]) = (0, octets[5] % 25, next);
            let mut after = octets;
            let mut fields = Ipv6Fields::new(part_mut::<0, 40, 64>(&mut after));
            if let Ok(view) = Ipv6View::new_checked(&octets) {
                prop_assert_eq!((fields.traffic_class(), fields.hop_limit()), (view.traffic_class(), view.hop_limit()));
                prop_assert_eq!((fields.payload_len(), fields.next_header()), (view.payload_len(), view.next_header().0));
                let ends = (Ipv6Addr::from_bits(fields.src()), Ipv6Addr::from_bits(fields.dst()));
                prop_assert_eq!(ends, (view.src(), view.dst()));
                prop_assert_eq!(u128::from(fields.src_prefix()), fields.src() >> 64);
                let is_plain = matches!(next, 6 | 17 | 58) && view.payload_len() > 0;
                prop_assert_eq!(fields.sound_len(64), is_plain.then_some(40 + view.payload_len()));
                let length = ipv6::header(&octets).ok().map(|header| header.total_len);
                prop_assert!(length.is_none_or(|length| fields.total_len().map(u32::from) == Some(length)));
            }
            let class = octets[41];
            fields.set_traffic_class(class);
            prop_assert_eq!(fields.traffic_class(), class);
            prop_assert_eq!(fields.version_class_flow() >> 28, 6);
            prop_assert_eq!(fields.version_class_flow() & 0xf_ffff, u32::from_be_bytes([0, octets[1] & 15, octets[2], octets[3]]));
            fields.set_traffic_class(class & 0xf0);
            fields.add_traffic_class(class & 0x0f);
            prop_assert_eq!(fields.traffic_class(), class);
        }

        #[test]
        fn fields_of_gtpu_are_those_of_the_reader(mut octets: [u8; 24], container: bool, qfi in 0..64u8) {
            octets[0] = gtpu::VERSION_PT | if container { gtpu::FLAG_EXTENSION } else { 0 };
            octets[2..4].copy_from_slice(&16u16.to_be_bytes());
            let mut fields = ContainerFields::new(part_mut::<8, 8, 24>(&mut octets));
            if container {
                fields.set_optional(0);
                fields.set_kind_len(gtpu::PLAIN_CONTAINER);
                fields.set_pdu_type(gtpu::PDU_TYPE_UL << 4);
                fields.set_qfi(qfi);
                fields.set_next(gtpu::extension_type::NONE);
            }
            let header = gtpu::header(&octets).unwrap();
            let fields = GtpuFields::new(part::<0, 8, 24>(&octets));
            prop_assert_eq!((fields.teid(), MessageType(fields.message_type())), (header.teid, header.message_type));
            prop_assert_eq!(GtpuView::new_checked(&octets).unwrap().length(), fields.length());
            prop_assert_eq!(header.qfi, container.then_some(qfi));
            prop_assert_eq!(header.payload_offset, if container { 16 } else { 8 });
        }
    }

    #[test]
    fn parts_are_where_they_are_asked_for() {
        let mut octets = [1, 2, 3, 4, 5];
        assert_eq!(at::<2>(&octets, 3), &[4, 5]);
        at_mut::<2>(&mut octets, 1).fill(9);
        assert_eq!(octets, [1, 9, 9, 4, 5]);
    }

    #[test]
    fn a_checksum_computed_afresh_is_right() {
        let mut header = [0x45, 0, 0, 20, 0, 7, 0, 0, 64, 17, 1, 2, 10, 0, 0, 1, 192, 0, 2, 9];
        Ipv4Fields::new(&mut header).fill_checksum();
        assert!(ipv4::checksum_ok(&header, 20));
    }
}
