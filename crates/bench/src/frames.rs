//! The packets of a run: what goes in, and what must come out.
//!
//! ```text
//!   uplink    Ethernet · IP gNB▶N3 · UDP · GTP-U TEID n+1, PDU session container · IP UE n▶server · UDP · payload
//!   downlink  Ethernet · IP server▶UE n · UDP · payload
//! ```
//! Both IP headers are of one family. A template is written once; a session's number changes only its TEID, its UE's address
//! and, over IPv4, that header's checksum.

mod bearers;

use arrayvec::ArrayVec;
use kaido_engine::Frame;
use kaido_wire::{checksum, gtpu};
use serde::{Deserialize, Serialize};

pub(crate) use self::bearers::bearers;
use crate::BenchError;
use crate::family::{Family, ue_v6};
use crate::network::{ETHERNET, GNB_MAC, GTPU, N3_MAC, N6_MAC, ROUTER_MAC, TTL, UDP, field, teid, ue};
use crate::shape::{Flow, Shape, VLAN_FIRST, tenant_of};

/// Most sessions: the addresses of 10.0.0.0/8 behind the first UE.
pub const SESSIONS_MAX: u32 = 16_777_000;
/// Longest frame, in bytes: a large one of the frame pool with room for a tunnel behind it.
pub const FRAME_BYTES_MAX: usize = 3600;

/// Which way a packet goes, as seen by the UE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the UE.
    Uplink,
    /// To the UE.
    Downlink,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Uplink, Self::Downlink];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uplink => "uplink",
            Self::Downlink => "downlink",
        }
    }
}

/// Frames of one direction, family, QoS flow and length.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) direction: Direction,
    pub(crate) family: Family,
    shape: Shape,
    flow: Flow,
    /// All headers; TEID, UE address, VLAN tag and the checksum over the address are zero.
    pub(crate) headers: Vec<u8>,
    /// Bytes of the frame, without FCS.
    pub(crate) len: usize,
    /// One's complement sum of the IPv4 header that has the UE's address; IPv6 has none.
    pub(crate) sum: u16,
}

impl Template {
    /// Frames over IPv4 of `frame_bytes`, or of the fewest that hold the headers.
    pub(crate) fn new(direction: Direction, frame_bytes: usize) -> Self {
        Self::of(Family::V4, direction, frame_bytes)
    }

    /// Frames of a family.
    pub(crate) fn of(family: Family, direction: Direction, frame_bytes: usize) -> Self {
        Self::of_flow((Shape::Plain, &Shape::Plain.flows()[0]), family, direction, frame_bytes)
    }

    /// Frames over IPv4 that every session of a shape forwards, whatever its flows.
    pub(crate) fn of_shape(shape: Shape, direction: Direction, frame_bytes: usize) -> Self {
        Self::of_flow((shape, &Shape::Plain.flows()[0]), Family::V4, direction, frame_bytes)
    }

    /// Frames of one of the flows of a shape.
    pub(crate) fn of_flow(
        (shape, &flow): (Shape, &Flow),
        family: Family,
        direction: Direction,
        frame_bytes: usize,
    ) -> Self {
        let mut headers = Vec::new();
        let header = family.header_len();
        let inner = Self::inner(shape, family, direction);
        let len = frame_bytes.max(inner + header + UDP);
        let host = flow.host(family);
        match direction {
            Direction::Uplink => {
                ethernet(&mut headers, N3_MAC, GNB_MAC, family);
                family.header(&mut headers, family.gnb(), family.n3(), len - ETHERNET - header);
                udp(&mut headers, (gtpu::UDP_PORT, gtpu::UDP_PORT), len - ETHERNET - header);
                headers.extend([0x34, 255]);
                headers.extend(field(len - ETHERNET - header - UDP - gtpu::HEADER_LEN));
                headers.extend([0, 0, 0, 0, 0, 0, 0, 0x85, 1, 0x10, flow.qfi, 0]);
                family.header(&mut headers, family.unspecified(), host, len - inner - header);
                udp(&mut headers, (40_000, flow.port), len - inner - header);
            }
            Direction::Downlink => {
                headers.extend(N6_MAC);
                headers.extend(ROUTER_MAC);
                headers.extend(ethertype_on_n6(shape, family, 0));
                family.header(&mut headers, host, family.unspecified(), len - inner - header);
                udp(&mut headers, (flow.port, 40_000), len - inner - header);
            }
        }
        let mut sum = 0;
        if family == Family::V4 {
            headers[inner + 10..inner + 12].fill(0);
            sum = checksum::sum(&headers[inner..inner + header]);
        }
        Self { direction, family, shape, flow, headers, len, sum }
    }

    /// Octets before the IP header that has the UE's address.
    fn inner(shape: Shape, family: Family, direction: Direction) -> usize {
        match direction {
            Direction::Uplink => ETHERNET + family.tunnel_len(),
            Direction::Downlink => link_len_on_n6(shape),
        }
    }

    /// The same in a packet that came out.
    fn inner_out(&self) -> usize {
        match self.direction {
            Direction::Uplink => link_len_on_n6(self.shape),
            Direction::Downlink => ETHERNET + self.family.tunnel_len(),
        }
    }

    /// Octets of the UE's packet: what usage counts.
    pub(crate) fn user_octets(&self) -> u64 {
        (self.len - Self::inner(self.shape, self.family, self.direction)) as u64
    }

    /// Makes headers, equal to the template's before, those of a session.
    fn address(&self, session: u32, headers: &mut [u8]) {
        let inner = Self::inner(self.shape, self.family, self.direction);
        let ue = self.shape.ue_number(session);
        let [src, dst] = self.family.address_offsets();
        let at = match self.direction {
            Direction::Uplink => {
                let at = ETHERNET + self.family.header_len() + UDP + 4;
                headers[at..at + 4].copy_from_slice(&teid(session).to_be_bytes());
                inner + src
            }
            Direction::Downlink => {
                let link = ethertype_on_n6(self.shape, self.family, session);
                headers[ETHERTYPE_AT..inner].copy_from_slice(&link);
                inner + dst
            }
        };
        match self.family {
            Family::V4 => {
                let octets = self::ue(ue).octets();
                headers[at..at + 4].copy_from_slice(&octets);
                let sum = !checksum::combine(&[self.sum, checksum::sum(&octets)]);
                headers[inner + 10..inner + 12].copy_from_slice(&sum.to_be_bytes());
            }
            Family::V6 => headers[at..at + 16].copy_from_slice(&ue_v6(ue).octets()),
        }
    }

    /// Computes the checksum of the UE's datagram, as a UE and its server do: a user plane may rely on it.
    fn fill_checksum(&self, packet: &mut [u8]) {
        let at = Self::inner(self.shape, self.family, self.direction);
        let [addresses, _] = self.family.address_offsets();
        let (header, datagram) = packet[at..].split_at_mut(self.family.header_len());
        datagram[6..8].fill(0);
        let pseudo = [&[0, 17], &field(datagram.len())[..]].concat();
        let sums = [checksum::sum(&header[addresses..]), checksum::sum(&pseudo), checksum::sum(datagram)];
        let sum = checksum::udp_sent(!checksum::combine(&sums));
        datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    }

    /// Makes a frame a session's packet; payload stays what the memory holds. `false` when it is too long.
    #[must_use]
    pub(crate) fn write(&self, session: u32, frame: &mut Frame) -> bool {
        if !frame.set(&self.headers) || frame.append(self.len - self.headers.len()).is_none() {
            return false;
        }
        self.address(session, frame.data_mut());
        self.fill_checksum(frame.data_mut());
        true
    }

    /// Makes the beginning of `room` a session's packet, payload as it is there; its length, or `None` when it is too long.
    pub(crate) fn write_into(&self, session: u32, room: &mut [u8]) -> Option<usize> {
        let packet = room.get_mut(..self.len)?;
        packet[..self.headers.len()].copy_from_slice(&self.headers);
        self.address(session, packet);
        self.fill_checksum(packet);
        Some(self.len)
    }

    /// A whole packet of zero payload.
    pub(crate) fn packet(&self, session: u32) -> Vec<u8> {
        let mut packet = self.headers.clone();
        self.address(session, &mut packet);
        packet.resize(self.len, 0);
        self.fill_checksum(&mut packet);
        packet
    }

    /// The headers of a session's packet.
    pub(crate) fn addressed(&self, session: u32) -> Vec<u8> {
        let mut headers = self.headers.clone();
        self.address(session, &mut headers);
        headers
    }

    /// Where a number may stand in the header of the UE's packet, which no checksum of its payload covers: the identification
    /// of IPv4, and the lower half of IPv6's flow label.
    const fn number_offset(&self) -> usize {
        match self.family {
            Family::V4 => 4,
            Family::V6 => 2,
        }
    }

    /// Gives a packet a number.
    pub(crate) fn number(&self, number: u16, packet: &mut [u8]) {
        let at = Self::inner(self.shape, self.family, self.direction);
        let place = at + self.number_offset();
        let Some(field) = packet.get_mut(place..place + 2) else { return };
        let old = u16::from_be_bytes([field[0], field[1]]);
        field.copy_from_slice(&number.to_be_bytes());
        if self.family == Family::V4 {
            let sum = u16::from_be_bytes([packet[at + 10], packet[at + 11]]);
            packet[at + 10..at + 12].copy_from_slice(&checksum::update_u16(sum, old, number).to_be_bytes());
        }
    }

    /// The number of a packet that came out.
    pub(crate) fn number_of(&self, out: &[u8]) -> u16 {
        let at = self.inner_out() + self.number_offset();
        let field = out.get(at..).and_then(|rest| rest.first_chunk::<2>());
        field.map_or(0, |field| u16::from_be_bytes(*field))
    }

    /// Whether a downlink packet that came out has the UDP checksum that it should: the right one, or zero.
    pub(crate) fn outer_checksum_is_right(&self, out: &[u8], computed: bool) -> bool {
        let header_len = self.family.header_len();
        let Some((header, datagram)) =
            out.get(ETHERNET..).and_then(|packet| packet.split_at_checked(header_len))
        else {
            return false;
        };
        if !computed {
            return datagram.get(6..8) == Some(&[0, 0]);
        }
        let [addresses, _] = self.family.address_offsets();
        let pseudo = [&[0, 17], &field(datagram.len())[..]].concat();
        let sums = [checksum::sum(&header[addresses..]), checksum::sum(&pseudo), checksum::sum(datagram)];
        datagram.get(6..8) != Some(&[0, 0]) && checksum::combine(&sums) == 0xffff
    }

    /// The session whose UE's address is where it must be in a packet that came out; any number when there is none, or where
    /// tenants have the same addresses.
    pub(crate) fn session_of(&self, out: &[u8]) -> u32 {
        let [src, dst] = self.family.address_offsets();
        let at = self.inner_out() + if self.direction == Direction::Uplink { src } else { dst };
        self.family.session_of(out.get(at..).unwrap_or_default())
    }

    /// Judges what a session's packet became.
    pub(crate) fn judge(&self, session: u32, out: &[u8]) -> Result<(), BenchError> {
        self.difference(session, out).map_or(Ok(()), |what| {
            Err(BenchError::WrongPacket { direction: self.direction.name(), session, what })
        })
    }

    fn difference(&self, session: u32, out: &[u8]) -> Option<String> {
        let family = self.family;
        let (tunnel, header) = (family.tunnel_len(), family.header_len());
        let link = match self.direction {
            Direction::Uplink => ethertype_on_n6(self.shape, family, session),
            Direction::Downlink => family.ethertype().into_iter().collect(),
        };
        let added = link_len_on_n6(self.shape);
        let (len, macs) = match self.direction {
            Direction::Uplink => (self.len + added - ETHERNET - tunnel, [ROUTER_MAC, N6_MAC]),
            Direction::Downlink => (self.len + ETHERNET + tunnel - added, [GNB_MAC, N3_MAC]),
        };
        if out.len() != len {
            return Some(format!("it has {} bytes, not {len}", out.len()));
        }
        let packet = ETHERTYPE_AT + link.len();
        if out[..ETHERTYPE_AT] != *macs.as_flattened() || out[ETHERTYPE_AT..packet] != *link {
            return Some(format!("its Ethernet header is {:02x?}", &out[..packet]));
        }
        let (ue, host) = (family.ue(self.shape.ue_number(session)), self.flow.host(family));
        match self.direction {
            Direction::Uplink => family
                .fault(&out[packet..], ue, host, TTL - 1)
                .or_else(|| ports_fault(&out[packet + header..], [40_000, self.flow.port])),
            Direction::Downlink => family
                .fault(&out[ETHERNET..], family.n3(), family.gnb(), TTL)
                .or_else(|| tunnel_fault(&out[ETHERNET + header..], session, self.flow.qfi))
                .or_else(|| family.fault(&out[ETHERNET + tunnel..], host, ue, TTL - 1))
                .or_else(|| ports_fault(&out[ETHERNET + tunnel + header..], [self.flow.port, 40_000])),
        }
    }
}

/// Frames of all flows of a shape.
#[derive(Clone, Debug)]
pub(crate) struct Templates {
    shape: Shape,
    /// In the order of the shape's flows.
    all: Vec<Template>,
}

impl Templates {
    /// Of `frame_bytes`, or of the fewest that hold the headers.
    pub(crate) fn new(shape: Shape, family: Family, direction: Direction, frame_bytes: usize) -> Self {
        let of = |flow| Template::of_flow((shape, flow), family, direction, frame_bytes);
        Self { shape, all: shape.flows().iter().map(of).collect() }
    }

    /// That of a session's packet at a place of a run.
    #[inline]
    pub(crate) fn at(&self, session: u32, place: u64) -> &Template {
        &self.all[self.shape.flow_at(session, place)]
    }

    /// That of the flow with the others' filters ahead of it: headers of all are as long.
    pub(crate) fn last(&self) -> &Template {
        // Each shape has a flow.
        &self.all[self.all.len() - 1]
    }
}

/// Where the EtherType is, behind both addresses.
const ETHERTYPE_AT: usize = 12;

/// Octets of the link header on N6: tenants have a tag.
const fn link_len_on_n6(shape: Shape) -> usize {
    ETHERNET + if shape.tenants().is_some() { 4 } else { 0 }
}

/// What stands behind the addresses of a session's frame on N6: the tag of its tenant, if it has one (IEEE 802.1Q 9.6), and the EtherType.
fn ethertype_on_n6(shape: Shape, family: Family, session: u32) -> ArrayVec<u8, 6> {
    let mut link = ArrayVec::new();
    if shape.tenants().is_some() {
        link.extend([0x81, 0x00]);
        link.extend((VLAN_FIRST + tenant_of(session)).to_be_bytes());
    }
    link.extend(family.ethertype());
    link
}

/// What is wrong with the ports of a datagram.
fn ports_fault(datagram: &[u8], ports: [u16; 2]) -> Option<String> {
    let expected = ports.map(u16::to_be_bytes);
    (datagram[..4] != *expected.as_flattened())
        .then(|| format!("its ports are {:02x?}, not {ports:?}", &datagram[..4]))
}

fn tunnel_fault(datagram: &[u8], session: u32, qfi: u8) -> Option<String> {
    let (udp, gtpu) = datagram.split_at(UDP);
    let header = gtpu::header(gtpu);
    let good = udp[2..4] == gtpu::UDP_PORT.to_be_bytes()
        && udp[4..6] == field(datagram.len())
        && header.is_ok_and(|header| {
            header.teid == teid(session)
                && header.qfi == Some(qfi)
                && header.pdu_type == Some(0)
                && usize::from(header.payload_len) == gtpu.len() - GTPU
        });
    (!good).then(|| {
        let teid = teid(session);
        format!("its tunnel is {:02x?} for TEID {teid} and QFI {qfi}", &datagram[..UDP + GTPU])
    })
}

fn ethernet(out: &mut Vec<u8>, dst: [u8; 6], src: [u8; 6], family: Family) {
    out.extend(dst);
    out.extend(src);
    out.extend(family.ethertype());
}

fn udp(out: &mut Vec<u8>, (src, dst): (u16, u16), len: usize) {
    out.extend(src.to_be_bytes());
    out.extend(dst.to_be_bytes());
    out.extend(field(len));
    out.extend([0, 0]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::QFI;

    fn template(family: Family, direction: Direction) -> Template {
        Template::of(family, direction, 128)
    }

    #[test]
    fn templates_are_whole_packets_of_the_wanted_length() {
        for (family, least) in [(Family::V4, [86, 42]), (Family::V6, [126, 62])] {
            for (direction, least) in Direction::ALL.into_iter().zip(least) {
                for wanted in [64, 128, 1424, 3024] {
                    let template = Template::of(family, direction, wanted);
                    let packet = template.packet(70_000);
                    assert_eq!((packet.len(), template.len), (wanted.max(least), wanted.max(least)));
                    let inner = &packet[Template::inner(Shape::Plain, family, direction)..];
                    let (src, dst) = match direction {
                        Direction::Uplink => (family.ue(70_000), family.server()),
                        Direction::Downlink => (family.server(), family.ue(70_000)),
                    };
                    assert_eq!(family.fault(inner, src, dst, TTL), None);
                }
            }
            let uplink = template(family, Direction::Uplink).packet(70_000);
            let message = ETHERNET + family.header_len() + UDP;
            let header = gtpu::header(&uplink[message..]).unwrap();
            assert_eq!((header.teid, header.qfi, header.pdu_type), (70_001, Some(QFI), Some(1)));
            assert_eq!(usize::from(header.payload_offset + header.payload_len), 128 - message);
            assert_eq!(family.fault(&uplink[14..], family.gnb(), family.n3(), TTL), None);
        }
    }

    #[test]
    fn a_wrong_packet_is_found() {
        for (family, hops) in [(Family::V4, 8), (Family::V6, 7)] {
            let template = template(family, Direction::Uplink);
            let mut out = template.packet(5).split_off(family.tunnel_len());
            out[..6].copy_from_slice(&ROUTER_MAC);
            out[6..12].copy_from_slice(&N6_MAC);
            out[12..14].copy_from_slice(&family.ethertype());
            out[ETHERNET + hops] -= 1;
            if family == Family::V4 {
                out[ETHERNET + 10..ETHERNET + 12].fill(0);
                let sum = checksum::checksum(&out[ETHERNET..ETHERNET + 20]).to_be_bytes();
                out[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum);
            }
            template.judge(5, &out).unwrap();
            assert_eq!(template.session_of(&out), 5);
            let other = template.judge(6, &out).unwrap_err().to_string();
            assert!(other.contains(&family.ue(6).to_string()), "{other}");
            for at in [0, ETHERNET, ETHERNET + 4, ETHERNET + hops, ETHERNET + 12, ETHERNET + 15] {
                let mut broken = out.clone();
                broken[at] ^= 0x11;
                assert!(template.judge(5, &broken).is_err(), "octet {at}");
            }
            assert!(template.judge(5, &out[..out.len() - 1]).is_err());
        }
    }

    #[test]
    fn an_outer_checksum_is_right_or_none() {
        for family in [Family::V4, Family::V6] {
            let template = template(family, Direction::Downlink);
            // What comes in from the other side is a tunnel too, without checksum.
            let mut tunnel = Template::of(family, Direction::Uplink, 200).packet(3);
            assert!(template.outer_checksum_is_right(&tunnel, false));
            assert!(!template.outer_checksum_is_right(&tunnel, true));
            let header_end = ETHERNET + family.header_len();
            let [addresses, _] = family.address_offsets();
            let datagram = &tunnel[header_end..];
            let pseudo = [&[0, 17], &field(datagram.len())[..]].concat();
            let addresses = &tunnel[ETHERNET + addresses..header_end];
            let sums = [checksum::sum(addresses), checksum::sum(&pseudo), checksum::sum(datagram)];
            let sum = !checksum::combine(&sums);
            tunnel[header_end + 6..header_end + 8].copy_from_slice(&sum.to_be_bytes());
            assert!(template.outer_checksum_is_right(&tunnel, true));
            assert!(!template.outer_checksum_is_right(&tunnel, false));
            *tunnel.last_mut().unwrap() ^= 1;
            assert!(!template.outer_checksum_is_right(&tunnel, true));
        }
    }

    #[test]
    fn the_last_ue_is_in_the_private_network() {
        assert!(ue(SESSIONS_MAX - 1).is_private());
        assert_eq!(ue(SESSIONS_MAX - 1).octets()[0], 10);
    }
}
