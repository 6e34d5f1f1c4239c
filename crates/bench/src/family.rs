//! IPv4 or IPv6, in the tunnel and outside: addresses, headers, and what can be wrong with one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kaido_wire::checksum;
use serde::{Serialize, Serializer};

use crate::network::{FIRST_UE, GNB, GTPU, N3, N6, ROUTER, SERVER, TTL, UDP, field, ue};

const N3_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 3, 0, 0, 0, 0, 0, 1);
const GNB_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 3, 0, 0, 0, 0, 0, 2);
const N6_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 6, 0, 0, 0, 0, 0, 1);
const ROUTER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 6, 0, 0, 0, 0, 0, 2);
/// Beyond the networks of all sessions.
const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 8);
/// The UE of session 0; each other has the next /64.
const FIRST_UE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// The IP version of a point's packets, of the tunnel and of what is in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    #[default]
    V4,
    /// IPv6.
    V6,
}

/// As its number.
impl Serialize for Family {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u8(self.number())
    }
}

pub(crate) fn ue_v6(session: u32) -> Ipv6Addr {
    Ipv6Addr::from_bits(FIRST_UE_V6.to_bits().wrapping_add(u128::from(session) << 64))
}

impl Family {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V4, Self::V6];

    /// 4 or 6.
    pub const fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }

    fn pick(self, v4: Ipv4Addr, v6: Ipv6Addr) -> IpAddr {
        match self {
            Self::V4 => v4.into(),
            Self::V6 => v6.into(),
        }
    }

    /// Our GTP-U address.
    pub(crate) fn n3(self) -> IpAddr {
        self.pick(N3, N3_V6)
    }

    /// The gNB's.
    pub(crate) fn gnb(self) -> IpAddr {
        self.pick(GNB, GNB_V6)
    }

    /// Our address towards the data network.
    pub(crate) fn n6(self) -> IpAddr {
        self.pick(N6, N6_V6)
    }

    /// The next router's there.
    pub(crate) fn router(self) -> IpAddr {
        self.pick(ROUTER, ROUTER_V6)
    }

    /// A host on the data network.
    pub(crate) fn server(self) -> IpAddr {
        self.pick(SERVER, SERVER_V6)
    }

    /// The UE of a session.
    pub(crate) fn ue(self, session: u32) -> IpAddr {
        match self {
            Self::V4 => ue(session).into(),
            Self::V6 => ue_v6(session).into(),
        }
    }

    /// No address.
    pub(crate) fn unspecified(self) -> IpAddr {
        self.pick(Ipv4Addr::UNSPECIFIED, Ipv6Addr::UNSPECIFIED)
    }

    pub(crate) const fn ethertype(self) -> [u8; 2] {
        match self {
            Self::V4 => [0x08, 0x00],
            Self::V6 => [0x86, 0xdd],
        }
    }

    /// Octets of a header without options.
    pub(crate) const fn header_len(self) -> usize {
        match self {
            Self::V4 => 20,
            Self::V6 => 40,
        }
    }

    /// Octets of outer IP, UDP, and a GTP-U header with a PDU session container.
    pub(crate) const fn tunnel_len(self) -> usize {
        self.header_len() + UDP + GTPU
    }

    /// Where source and destination lie in a header.
    pub(crate) const fn address_offsets(self) -> [usize; 2] {
        match self {
            Self::V4 => [12, 16],
            Self::V6 => [8, 24],
        }
    }

    /// The session whose UE's address octets begin with; any number when there is none.
    pub(crate) fn session_of(self, octets: &[u8]) -> u32 {
        match self {
            Self::V4 => {
                let address = octets.first_chunk::<4>().copied().unwrap_or_default();
                u32::from_be_bytes(address).wrapping_sub(FIRST_UE.to_bits())
            }
            Self::V6 => {
                let network = octets.get(4..).and_then(|rest| rest.first_chunk::<4>());
                u32::from_be_bytes(network.copied().unwrap_or_default())
            }
        }
    }

    /// Appends the header of UDP with so many octets.
    pub(crate) fn header(self, out: &mut Vec<u8>, src: IpAddr, dst: IpAddr, payload_len: usize) {
        let at = out.len();
        match self {
            Self::V4 => {
                out.extend([0x45, 0]);
                out.extend(field(self.header_len() + payload_len));
                out.extend([0, 0, 0x40, 0, TTL, 17, 0, 0]);
            }
            Self::V6 => {
                out.extend([0x60, 0, 0, 0]);
                out.extend(field(payload_len));
                out.extend([17, TTL]);
            }
        }
        for address in [src, dst] {
            match address {
                IpAddr::V4(address) => out.extend(address.octets()),
                IpAddr::V6(address) => out.extend(address.octets()),
            }
        }
        if self == Self::V4 {
            let sum = checksum::checksum(&out[at..]).to_be_bytes();
            out[at + 10..at + 12].copy_from_slice(&sum);
        }
    }

    /// What is wrong with the header at the front of a packet, which carries UDP.
    pub(crate) fn fault(self, packet: &[u8], src: IpAddr, dst: IpAddr, hops: u8) -> Option<String> {
        let header = &packet[..self.header_len()];
        let mut expected = Vec::with_capacity(header.len());
        self.header(&mut expected, src, dst, packet.len() - header.len());
        let is_good = match self {
            // Its type of service, identification and flags are the sender's own.
            Self::V4 => {
                header[0] == 0x45
                    && header[2..4] == expected[2..4]
                    && header[8..10] == [hops, 17]
                    && header[12..] == expected[12..]
                    && checksum::checksum(header) == 0
            }
            // So are the traffic class and the flow label.
            Self::V6 => {
                header[0] >> 4 == 6
                    && header[4..7] == expected[4..7]
                    && header[7] == hops
                    && header[8..] == expected[8..]
            }
        };
        (!is_good).then(|| {
            format!(
                "an IPv{} header is {header:02x?}, expected from {src} to {dst} with {hops} hops left, whole and summed",
                self.number()
            )
        })
    }
}
