//! IPv6 neighbour discovery (RFC 4861): solicitation and advertisement, with link-layer address options.
//!
//! ```text
//!   0 type  1 code  2 checksum  4 flags (R S O)  8 target (16)  24 options: type, length in 8 octets, value
//! ```
//! A receiver also checks that the hop limit is 255 (RFC 4861 section 7.1), which proves the sender is on the link.

use core::net::Ipv6Addr;

use crate::bytes::{array_at, put, put_u32, room};
use crate::icmpv6::Icmpv6View;
use crate::{Error, IpProtocol, MacAddr, ip};

/// Octets of a message without options.
pub const MESSAGE_LEN: usize = 24;
/// Hop limit of every discovery packet (RFC 4861 section 7.1).
pub const HOP_LIMIT: u8 = 255;

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const OPTION_SOURCE_LINK: u8 = 1;
const OPTION_TARGET_LINK: u8 = 2;
const LINK_OPTION_LEN: usize = 8;

/// A neighbour discovery message as plain values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NdiscRepr {
    /// Type 135: who has the target (RFC 4861 section 4.3)?
    NeighborSolicitation {
        /// The address asked for.
        target: Ipv6Addr,
        /// Link-layer address of the sender; absent when its source is unspecified.
        source_link: Option<MacAddr>,
    },
    /// Type 136: the sender has the target (RFC 4861 section 4.4).
    NeighborAdvertisement {
        /// The R flag: the sender is a router.
        router: bool,
        /// The S flag: this answers a solicitation.
        solicited: bool,
        /// The O flag: replace a cached address.
        override_cache: bool,
        /// The address told about.
        target: Ipv6Addr,
        /// Link-layer address of the target.
        target_link: Option<MacAddr>,
    },
}

/// Whether the IPv6 packet at the front of `packet` is a neighbour solicitation or advertisement, by its types alone.
#[inline]
pub fn is_about_neighbours(packet: &[u8]) -> bool {
    ip::plain_upper(packet).is_some_and(|(protocol, upper)| {
        protocol == IpProtocol::ICMPV6 && matches!(upper.first(), Some(&(SOLICITATION | ADVERTISEMENT)))
    })
}

/// The multicast group every owner of `address` listens to (RFC 4291 section 2.7.1).
pub fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// The Ethernet address of an IPv6 multicast group (RFC 2464 section 7).
pub const fn multicast_mac(group: Ipv6Addr) -> MacAddr {
    let [.., a, b, c, d] = group.octets();
    MacAddr([0x33, 0x33, a, b, c, d])
}

impl NdiscRepr {
    /// Reads a message as RFC 4861 section 7.1 validates it; checksum and hop limit are the caller's to check.
    pub fn parse<T: AsRef<[u8]>>(view: &Icmpv6View<T>) -> Result<Self, Error> {
        let kind = view.message_type();
        if !matches!(kind, SOLICITATION | ADVERTISEMENT) || view.code() != 0 {
            return Err(Error::MessageType);
        }
        let (target, options) = view.data().split_first_chunk::<16>().ok_or(Error::Truncated)?;
        let target = Ipv6Addr::from(*target);
        if target.is_multicast() {
            return Err(Error::Range);
        }
        if kind == SOLICITATION {
            return Ok(Self::NeighborSolicitation {
                target,
                source_link: link(options, OPTION_SOURCE_LINK)?,
            });
        }
        let flags = view.rest() >> 29;
        Ok(Self::NeighborAdvertisement {
            router: flags & 4 != 0,
            solicited: flags & 2 != 0,
            override_cache: flags & 1 != 0,
            target,
            target_link: link(options, OPTION_TARGET_LINK)?,
        })
    }

    /// Octets [`Self::emit`] writes.
    pub const fn len(&self) -> usize {
        match self {
            Self::NeighborSolicitation { source_link: Some(_), .. }
            | Self::NeighborAdvertisement { target_link: Some(_), .. } => MESSAGE_LEN + LINK_OPTION_LEN,
            _ => MESSAGE_LEN,
        }
    }

    /// Writes the ICMPv6 message, checksum included, to the front of `buffer`; returns the octets written.
    pub fn emit(&self, src: Ipv6Addr, dst: Ipv6Addr, buffer: &mut [u8]) -> Result<usize, Error> {
        let octets = room(buffer, self.len())?;
        let (kind, flags, target, option, mac) = match *self {
            Self::NeighborSolicitation { target, source_link } => {
                (SOLICITATION, 0, target, OPTION_SOURCE_LINK, source_link)
            }
            Self::NeighborAdvertisement { router, solicited, override_cache, target, target_link } => {
                let flags =
                    u32::from(router) << 31 | u32::from(solicited) << 30 | u32::from(override_cache) << 29;
                (ADVERTISEMENT, flags, target, OPTION_TARGET_LINK, target_link)
            }
        };
        put(octets, 0, &[kind, 0]);
        put_u32(octets, 4, flags);
        put(octets, 8, &target.octets());
        if let Some(mac) = mac {
            put(octets, MESSAGE_LEN, &[option, 1]);
            put(octets, MESSAGE_LEN + 2, &mac.0);
        }
        Icmpv6View::new_checked(octets)?.fill_checksum(src, dst)?;
        Ok(self.len())
    }
}

/// The Ethernet address in the option `wanted`; an option of length zero voids the message (RFC 4861 section 4.6).
fn link(mut options: &[u8], wanted: u8) -> Result<Option<MacAddr>, Error> {
    let mut found = None;
    while !options.is_empty() {
        let [kind, units, ..] = *options else { return Err(Error::Truncated) };
        let len = usize::from(units) * 8;
        if len == 0 {
            return Err(Error::Element);
        }
        let option = options.get(..len).ok_or(Error::Truncated)?;
        if kind == wanted {
            found = Some(MacAddr(array_at(option, 2)));
        }
        options = &options[len..];
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    const NODE: Ipv6Addr = Ipv6Addr::new(0xfd00, 3, 0, 0, 0, 0, 0, 1);
    const PEER: Ipv6Addr = Ipv6Addr::new(0xfd00, 3, 0, 0, 0, 0, 0, 2);
    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 3, 1]);

    #[test]
    fn writes_and_reads_both_messages() {
        let messages = [
            NdiscRepr::NeighborSolicitation { target: NODE, source_link: None },
            NdiscRepr::NeighborSolicitation { target: NODE, source_link: Some(MAC) },
            NdiscRepr::NeighborAdvertisement {
                router: true,
                solicited: false,
                override_cache: true,
                target: NODE,
                target_link: Some(MAC),
            },
        ];
        for message in messages {
            let mut out = [0; 32];
            let len = message.emit(NODE, PEER, &mut out).unwrap();
            let view = Icmpv6View::new_checked(&out[..len]).unwrap();
            assert!(view.verify_checksum(NODE, PEER));
            assert_eq!(NdiscRepr::parse(&view), Ok(message));
        }
    }

    #[test]
    fn knows_the_groups() {
        let group = solicited_node("fe80::2aa:ff:fe28:9c5a".parse().unwrap());
        assert_eq!(group, "ff02::1:ff28:9c5a".parse::<Ipv6Addr>().unwrap());
        assert_eq!(multicast_mac(group).to_string(), "33:33:ff:28:9c:5a");
    }

    /// Conformance: RFC 4861 7.1 | Neighbour discovery messages are validated
    #[test]
    fn refuses_what_rfc_4861_calls_invalid() {
        let parse = |text: &str| NdiscRepr::parse(&Icmpv6View::new_checked(hex(text)).unwrap());
        let target = "fd000003000000000000000000000001";
        assert!(parse(&format!("8700000000000000{target}")).is_ok());
        assert!(parse(&format!("8700000000000000{target}0e01000000000000")).is_ok(), "unknown options pass");
        assert_eq!(parse(&format!("8701000000000000{target}")), Err(Error::MessageType));
        assert_eq!(parse(&format!("8700000000000000{target}0100000000000000")), Err(Error::Element));
        assert_eq!(parse(&format!("8700000000000000{target}0102000000000000")), Err(Error::Truncated));
        assert_eq!(parse(&format!("8700000000000000{target}01")), Err(Error::Truncated));
        assert_eq!(parse("8700000000000000fd00"), Err(Error::Truncated));
        assert_eq!(parse("8700000000000000ff020000000000000000000000000001"), Err(Error::Range));
    }
}
