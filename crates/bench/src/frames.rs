//! The packets of a run: what goes in, and what must come out.
//!
//! ```text
//!   uplink    Ethernet · IPv4 gNB▶N3 · UDP · GTP-U TEID n+1, PDU session container · IPv4 UE n▶server · UDP · payload
//!   downlink  Ethernet · IPv4 server▶UE n · UDP · payload
//! ```
//! A template is written once; a session's number changes only its TEID, its UE's address and that header's checksum.

use std::net::Ipv4Addr;

use kaido_engine::Frame;
use kaido_wire::{checksum, gtpu};
use serde::{Deserialize, Serialize};

use crate::BenchError;

/// Our GTP-U address, and the gNB's.
pub(crate) const N3: Ipv4Addr = Ipv4Addr::new(192, 168, 3, 1);
pub(crate) const GNB: Ipv4Addr = Ipv4Addr::new(192, 168, 3, 2);
/// Our address towards the data network, and the next router's.
pub(crate) const N6: Ipv4Addr = Ipv4Addr::new(192, 168, 6, 1);
pub(crate) const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 168, 6, 2);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);
pub(crate) const N3_MAC: [u8; 6] = [2, 0, 0, 0, 3, 1];
pub(crate) const GNB_MAC: [u8; 6] = [2, 0, 0, 0, 3, 2];
pub(crate) const N6_MAC: [u8; 6] = [2, 0, 0, 0, 6, 1];
pub(crate) const ROUTER_MAC: [u8; 6] = [2, 0, 0, 0, 6, 2];
/// The UE of session 0; the others follow.
pub(crate) const FIRST_UE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The QoS flow that every session marks.
pub(crate) const QFI: u8 = 9;
/// Largest IP packet that either port takes, in bytes.
pub(crate) const MTU: u16 = 9000;

/// Most sessions: the addresses of 10.0.0.0/8 behind the first UE.
pub const SESSIONS_MAX: u32 = 16_777_000;
/// Longest frame, in bytes: one buffer of the frame pool with room for a tunnel behind it.
pub const FRAME_BYTES_MAX: usize = 3600;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
/// Outer IPv4, UDP, and a GTP-U header with a PDU session container.
const TUNNEL: usize = IPV4 + UDP + 16;
const TTL: u8 = 64;

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

pub(crate) fn ue(session: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(FIRST_UE.to_bits().wrapping_add(session))
}

/// TEID of a session, at both ends of its tunnel. Zero is reserved.
pub(crate) fn teid(session: u32) -> u32 {
    session.wrapping_add(1)
}

/// Frames of one direction and length.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) direction: Direction,
    /// All headers; TEID, UE address and the checksum over that are zero.
    pub(crate) headers: Vec<u8>,
    /// Bytes of the frame, without FCS.
    pub(crate) len: usize,
    /// One's complement sum of the IPv4 header that has the UE's address.
    pub(crate) sum: u16,
}

impl Template {
    /// Frames of `frame_bytes`, or of the fewest that hold the headers.
    pub(crate) fn new(direction: Direction, frame_bytes: usize) -> Self {
        let mut headers = Vec::new();
        let len = frame_bytes.max(match direction {
            Direction::Uplink => ETHERNET + TUNNEL + IPV4 + UDP,
            Direction::Downlink => ETHERNET + IPV4 + UDP,
        });
        match direction {
            Direction::Uplink => {
                ethernet(&mut headers, N3_MAC, GNB_MAC);
                ipv4(&mut headers, GNB, N3, len - ETHERNET);
                udp(&mut headers, (gtpu::UDP_PORT, gtpu::UDP_PORT), len - ETHERNET - IPV4);
                headers.extend([0x34, 255]);
                headers.extend(field(len - ETHERNET - IPV4 - UDP - 8));
                headers.extend([0, 0, 0, 0, 0, 0, 0, 0x85, 1, 0x10, QFI, 0]);
                ipv4(&mut headers, Ipv4Addr::UNSPECIFIED, SERVER, len - ETHERNET - TUNNEL);
                udp(&mut headers, (40_000, 443), len - ETHERNET - TUNNEL - IPV4);
            }
            Direction::Downlink => {
                ethernet(&mut headers, N6_MAC, ROUTER_MAC);
                ipv4(&mut headers, SERVER, Ipv4Addr::UNSPECIFIED, len - ETHERNET);
                udp(&mut headers, (443, 40_000), len - ETHERNET - IPV4);
            }
        }
        let inner = Self::inner(direction);
        headers[inner + 10..inner + 12].fill(0);
        let sum = checksum::sum(&headers[inner..inner + IPV4]);
        Self { direction, headers, len, sum }
    }

    /// Octets before the IPv4 header that has the UE's address.
    fn inner(direction: Direction) -> usize {
        match direction {
            Direction::Uplink => ETHERNET + TUNNEL,
            Direction::Downlink => ETHERNET,
        }
    }

    /// Makes headers, equal to the template's before, those of a session.
    fn address(&self, session: u32, headers: &mut [u8]) {
        let inner = Self::inner(self.direction);
        let octets = ue(session).octets();
        let at = match self.direction {
            Direction::Uplink => {
                headers[46..50].copy_from_slice(&teid(session).to_be_bytes());
                inner + 12
            }
            Direction::Downlink => inner + 16,
        };
        headers[at..at + 4].copy_from_slice(&octets);
        let sum = !checksum::combine(&[self.sum, checksum::sum(&octets)]);
        headers[inner + 10..inner + 12].copy_from_slice(&sum.to_be_bytes());
    }

    /// Makes a frame a session's packet; payload stays what the memory holds. `false` when it is too long.
    #[must_use]
    pub(crate) fn write(&self, session: u32, frame: &mut Frame) -> bool {
        if !frame.set(&self.headers) || frame.append(self.len - self.headers.len()).is_none() {
            return false;
        }
        self.address(session, frame.data_mut());
        true
    }

    /// A whole packet of zero payload.
    pub(crate) fn packet(&self, session: u32) -> Vec<u8> {
        let mut packet = self.headers.clone();
        self.address(session, &mut packet);
        packet.resize(self.len, 0);
        packet
    }

    /// The headers of a session's packet.
    pub(crate) fn addressed(&self, session: u32) -> Vec<u8> {
        let mut headers = self.headers.clone();
        self.address(session, &mut headers);
        headers
    }

    /// Gives a packet a number, where the inner datagram has its checksum: no user plane looks at that.
    pub(crate) fn number(&self, number: u16, packet: &mut [u8]) {
        let at = Self::inner(self.direction) + IPV4 + 6;
        if let Some(field) = packet.get_mut(at..at + 2) {
            field.copy_from_slice(&number.to_be_bytes());
        }
    }

    /// The number of a packet that came out.
    pub(crate) fn number_of(&self, out: &[u8]) -> u16 {
        let inner = match self.direction {
            Direction::Uplink => ETHERNET,
            Direction::Downlink => ETHERNET + TUNNEL,
        };
        let field = out.get(inner + IPV4 + 6..).and_then(|rest| rest.first_chunk::<2>());
        field.map_or(0, |field| u16::from_be_bytes(*field))
    }

    /// Whether a downlink packet that came out has the UDP checksum that it should: the right one, or zero.
    pub(crate) fn outer_checksum_is_right(out: &[u8], computed: bool) -> bool {
        let Some((header, datagram)) = out.get(ETHERNET..).and_then(|packet| packet.split_at_checked(IPV4))
        else {
            return false;
        };
        if !computed {
            return datagram.get(6..8) == Some(&[0, 0]);
        }
        let pseudo = [&[0, 17], &field(datagram.len())[..]].concat();
        let sums = [checksum::sum(&header[12..20]), checksum::sum(&pseudo), checksum::sum(datagram)];
        datagram.get(6..8) != Some(&[0, 0]) && checksum::combine(&sums) == 0xffff
    }

    /// The session whose UE's address is where it must be in a packet that came out; any number when there is none.
    pub(crate) fn session_of(&self, out: &[u8]) -> u32 {
        let at = match self.direction {
            Direction::Uplink => ETHERNET + 12,
            Direction::Downlink => ETHERNET + TUNNEL + 16,
        };
        let address = out.get(at..).and_then(|rest| rest.first_chunk::<4>()).copied().unwrap_or_default();
        u32::from_be_bytes(address).wrapping_sub(FIRST_UE.to_bits())
    }

    /// Judges what a session's packet became.
    pub(crate) fn judge(&self, session: u32, out: &[u8]) -> Result<(), BenchError> {
        self.difference(session, out).map_or(Ok(()), |what| {
            Err(BenchError::WrongPacket { direction: self.direction.name(), session, what })
        })
    }

    fn difference(&self, session: u32, out: &[u8]) -> Option<String> {
        let (len, macs) = match self.direction {
            Direction::Uplink => (self.len - TUNNEL, [ROUTER_MAC, N6_MAC]),
            Direction::Downlink => (self.len + TUNNEL, [GNB_MAC, N3_MAC]),
        };
        if out.len() != len {
            return Some(format!("it has {} bytes, not {len}", out.len()));
        }
        if out[..12] != *macs.as_flattened() || out[12..14] != [8, 0] {
            return Some(format!("its Ethernet header is {:02x?}", &out[..ETHERNET]));
        }
        match self.direction {
            Direction::Uplink => header_fault(&out[ETHERNET..], ue(session), SERVER, TTL - 1),
            Direction::Downlink => header_fault(&out[ETHERNET..], N3, GNB, TTL)
                .or_else(|| tunnel_fault(&out[ETHERNET + IPV4..], session))
                .or_else(|| header_fault(&out[ETHERNET + TUNNEL..], SERVER, ue(session), TTL - 1)),
        }
    }
}

fn header_fault(packet: &[u8], src: Ipv4Addr, dst: Ipv4Addr, ttl: u8) -> Option<String> {
    let header = &packet[..IPV4];
    let good = header[0] == 0x45
        && header[2..4] == field(packet.len())
        && header[8] == ttl
        && header[9] == 17
        && header[12..16] == src.octets()
        && header[16..20] == dst.octets()
        && checksum::checksum(header) == 0;
    (!good).then(|| {
        format!(
            "an IPv4 header is {header:02x?}, expected from {src} to {dst} with TTL {ttl}, whole and summed"
        )
    })
}

fn tunnel_fault(datagram: &[u8], session: u32) -> Option<String> {
    let (udp, gtpu) = datagram.split_at(UDP);
    let header = gtpu::header(gtpu);
    let good = udp[2..4] == gtpu::UDP_PORT.to_be_bytes()
        && udp[4..6] == field(datagram.len())
        && header.is_ok_and(|header| {
            header.teid == teid(session)
                && header.qfi == Some(QFI)
                && header.pdu_type == Some(0)
                && usize::from(header.payload_len) == gtpu.len() - 16
        });
    (!good).then(|| format!("its tunnel is {:02x?} for TEID {}", &datagram[..UDP + 16], teid(session)))
}

fn ethernet(out: &mut Vec<u8>, dst: [u8; 6], src: [u8; 6]) {
    out.extend(dst);
    out.extend(src);
    out.extend([8, 0]);
}

fn ipv4(out: &mut Vec<u8>, src: Ipv4Addr, dst: Ipv4Addr, len: usize) {
    let at = out.len();
    out.extend([0x45, 0]);
    out.extend(field(len));
    out.extend([0, 0, 0x40, 0, TTL, 17, 0, 0]);
    out.extend(src.octets());
    out.extend(dst.octets());
    let sum = checksum::checksum(&out[at..]).to_be_bytes();
    out[at + 10..at + 12].copy_from_slice(&sum);
}

fn udp(out: &mut Vec<u8>, (src, dst): (u16, u16), len: usize) {
    out.extend(src.to_be_bytes());
    out.extend(dst.to_be_bytes());
    out.extend(field(len));
    out.extend([0, 0]);
}

/// A length field. Frames are shorter than [`FRAME_BYTES_MAX`].
#[allow(clippy::cast_possible_truncation)] // As above.
fn field(len: usize) -> [u8; 2] {
    (len as u16).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_whole_packets_of_the_wanted_length() {
        for direction in Direction::ALL {
            for wanted in [64, 128, 1424, 3024] {
                let template = Template::new(direction, wanted);
                let packet = template.packet(70_000);
                let least = if direction == Direction::Uplink { 86 } else { 42 };
                assert_eq!((packet.len(), template.len), (wanted.max(least), wanted.max(least)));
                let inner = &packet[Template::inner(direction)..];
                let (src, dst) = match direction {
                    Direction::Uplink => (ue(70_000), SERVER),
                    Direction::Downlink => (SERVER, ue(70_000)),
                };
                assert_eq!(header_fault(inner, src, dst, TTL), None);
            }
        }
        let uplink = Template::new(Direction::Uplink, 128).packet(70_000);
        let header = gtpu::header(&uplink[42..]).unwrap();
        assert_eq!((header.teid, header.qfi, header.pdu_type), (70_001, Some(QFI), Some(1)));
        assert_eq!(usize::from(header.payload_offset + header.payload_len), 128 - 42);
        assert_eq!(header_fault(&uplink[14..], GNB, N3, TTL), None);
    }

    #[test]
    fn a_wrong_packet_is_found() {
        let template = Template::new(Direction::Uplink, 128);
        let mut out = template.packet(5).split_off(TUNNEL);
        out[..6].copy_from_slice(&ROUTER_MAC);
        out[6..12].copy_from_slice(&N6_MAC);
        out[12..14].copy_from_slice(&[8, 0]);
        out[ETHERNET + 8] -= 1;
        out[ETHERNET + 10..ETHERNET + 12].fill(0);
        let sum = checksum::checksum(&out[ETHERNET..ETHERNET + IPV4]).to_be_bytes();
        out[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&sum);
        template.judge(5, &out).unwrap();
        assert!(template.judge(6, &out).unwrap_err().to_string().contains("10.0.0.7"));
        for at in [0, ETHERNET + 8, ETHERNET + 10, ETHERNET + 15] {
            let mut broken = out.clone();
            broken[at] ^= 1;
            assert!(template.judge(5, &broken).is_err(), "octet {at}");
        }
        assert!(template.judge(5, &out[..out.len() - 1]).is_err());
    }

    #[test]
    fn the_last_ue_is_in_the_private_network() {
        assert!(ue(SESSIONS_MAX - 1).is_private());
        assert_eq!(ue(SESSIONS_MAX - 1).octets()[0], 10);
    }
}
