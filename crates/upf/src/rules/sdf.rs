//! SDF filters: the IPFilterRule grammar of RFC 6733 4.3.1 as TS 29.212 5.4.2 restricts it.
//!
//! `permit out <proto> from <remote> [ports] to <ue> [ports]`, always written as the downlink sees it;
//! the uplink is matched with both ends exchanged (TS 29.244 5.2.1A.2A).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// Most port ranges one end of a filter may list.
const PORT_RANGES_MAX: usize = 16;

/// Why a flow description was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("flow description `{text}`: {reason}")]
pub struct SdfError {
    /// The text as sent.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// An SDF Filter (TS 29.244 8.2.5): a flow description and beside it ToS, SPI and flow label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SdfFilter {
    /// IP protocol number; `None` is `ip`, any.
    pub protocol: Option<u8>,
    /// The remote end (`from`), as seen on the downlink.
    pub remote: FlowEnd,
    /// The UE's end (`to`), as seen on the downlink; `assigned` stands for the UE's own address.
    pub local: FlowEnd,
    /// ToS or Traffic Class value and mask (TTC).
    pub tos: Option<(u8, u8)>,
    /// Security Parameter Index (SPI).
    pub spi: Option<u32>,
    /// IPv6 flow label, 20 bits (FL).
    pub flow_label: Option<u32>,
    /// SDF Filter ID, by which a bidirectional filter can be named again.
    pub id: Option<u32>,
}

/// One end of a flow description.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEnd {
    /// The address condition.
    pub address: AddressMatch,
    /// Port ranges, both ends included; empty matches all.
    pub ports: Vec<(u16, u16)>,
}

/// The address condition of a flow description's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AddressMatch {
    /// `any` or `assigned`.
    Any,
    /// An IPv4 network: address and prefix length.
    V4(Ipv4Addr, u8),
    /// An IPv6 network: address and prefix length.
    V6(Ipv6Addr, u8),
}

impl AddressMatch {
    /// Whether `addr` satisfies the condition.
    pub fn matches(&self, addr: IpAddr) -> bool {
        match (*self, addr) {
            (Self::Any, _) => true,
            (Self::V4(net, len), IpAddr::V4(addr)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                (net.to_bits() ^ addr.to_bits()) & mask == 0
            }
            (Self::V6(net, len), IpAddr::V6(addr)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                (net.to_bits() ^ addr.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

impl FlowEnd {
    /// Matches every address and port.
    pub const ANY: Self = Self { address: AddressMatch::Any, ports: Vec::new() };

    /// Whether an address and, where the protocol has them, a port satisfy this end.
    pub fn matches(&self, addr: IpAddr, port: Option<u16>) -> bool {
        self.address.matches(addr)
            && (self.ports.is_empty()
                || port
                    .is_some_and(|port| self.ports.iter().any(|&(low, high)| (low..=high).contains(&port))))
    }
}

impl Default for SdfFilter {
    /// A filter that matches every packet.
    fn default() -> Self {
        Self {
            protocol: None,
            remote: FlowEnd::ANY,
            local: FlowEnd::ANY,
            tos: None,
            spi: None,
            flow_label: None,
            id: None,
        }
    }
}

impl SdfFilter {
    /// Reads a flow description, such as `permit out udp from 10.0.0.0/8 53 to assigned 1024-65535`.
    ///
    /// # Errors
    /// [`SdfError`] for anything outside the grammar; `in`, `deny`, options and `!` are outside it
    /// (TS 29.212 5.4.2).
    pub fn parse(text: &str) -> Result<Self, SdfError> {
        let fail = |reason| SdfError { text: text.to_owned(), reason };
        let mut words = text.split_ascii_whitespace().peekable();
        if words.next() != Some("permit") {
            return Err(fail("must begin with `permit`"));
        }
        if words.next() != Some("out") {
            return Err(fail("the direction must be `out`"));
        }
        let protocol = match words.next() {
            Some("ip") => None,
            Some(word) => Some(protocol_number(word).ok_or_else(|| fail("unknown protocol"))?),
            None => return Err(fail("the protocol is missing")),
        };
        if words.next() != Some("from") {
            return Err(fail("`from` expected"));
        }
        let remote = flow_end(&mut words).map_err(fail)?;
        if words.next() != Some("to") {
            return Err(fail("`to` expected"));
        }
        let local = flow_end(&mut words).map_err(fail)?;
        if words.next().is_some() {
            return Err(fail("options are not allowed"));
        }
        if matches!(
            (&remote.address, &local.address),
            (AddressMatch::V4(..), AddressMatch::V6(..)) | (AddressMatch::V6(..), AddressMatch::V4(..))
        ) {
            return Err(fail("the ends are of different address families"));
        }
        Ok(Self { protocol, remote, local, ..Self::default() })
    }
}

fn protocol_number(word: &str) -> Option<u8> {
    match word {
        "icmp" => Some(1),
        "tcp" => Some(6),
        "udp" => Some(17),
        "esp" => Some(50),
        "ah" => Some(51),
        "ipv6-icmp" | "icmpv6" => Some(58),
        "sctp" => Some(132),
        number => number.parse().ok(),
    }
}

fn flow_end<'a>(
    words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>,
) -> Result<FlowEnd, &'static str> {
    let address = address_match(words.next().ok_or("an address is missing")?)?;
    let ports = match words.peek() {
        Some(word) if word.starts_with(|c: char| c.is_ascii_digit()) => port_ranges(word)?,
        _ => return Ok(FlowEnd { address, ports: Vec::new() }),
    };
    words.next();
    Ok(FlowEnd { address, ports })
}

fn address_match(word: &str) -> Result<AddressMatch, &'static str> {
    if word == "any" || word == "assigned" {
        return Ok(AddressMatch::Any);
    }
    let (addr, len) = match word.split_once('/') {
        Some((addr, len)) => {
            (addr, Some(len.parse::<u8>().map_err(|_| "the prefix length is not a number")?))
        }
        None => (word, None),
    };
    match (addr.parse(), len) {
        (Ok(IpAddr::V4(addr)), len) if len.unwrap_or(32) <= 32 => {
            Ok(AddressMatch::V4(addr, len.unwrap_or(32)))
        }
        (Ok(IpAddr::V6(addr)), len) if len.unwrap_or(128) <= 128 => {
            Ok(AddressMatch::V6(addr, len.unwrap_or(128)))
        }
        (Ok(_), _) => Err("the prefix is longer than the address"),
        (Err(_), _) => Err("neither an address nor `any` nor `assigned`"),
    }
}

fn port_ranges(word: &str) -> Result<Vec<(u16, u16)>, &'static str> {
    let mut ranges = Vec::new();
    for item in word.split(',') {
        let (low, high) = item.split_once('-').unwrap_or((item, item));
        let low: u16 = low.parse().map_err(|_| "a port is not a number of 0 to 65535")?;
        let high: u16 = high.parse().map_err(|_| "a port is not a number of 0 to 65535")?;
        if low > high {
            return Err("a port range runs backwards");
        }
        if ranges.len() == PORT_RANGES_MAX {
            return Err("more than 16 port ranges");
        }
        ranges.push((low, high));
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_forms_that_control_planes_send() {
        let any = SdfFilter::parse("permit out ip from any to assigned").unwrap();
        assert_eq!(any, SdfFilter::default());

        let dns = SdfFilter::parse("permit out udp from 8.8.0.0/16 53,5353 to assigned 1024-65535").unwrap();
        assert_eq!(dns.protocol, Some(17));
        assert_eq!(dns.remote.address, AddressMatch::V4(Ipv4Addr::new(8, 8, 0, 0), 16));
        assert_eq!(dns.remote.ports, [(53, 53), (5353, 5353)]);
        assert_eq!(dns.local.ports, [(1024, 65535)]);

        let v6 = SdfFilter::parse("permit out 58 from 2001:db8::/32 to any").unwrap();
        assert!(v6.remote.matches("2001:db8:1::1".parse().unwrap(), None));
        assert!(!v6.remote.matches("2001:db9::1".parse().unwrap(), None));
        assert!(!v6.remote.matches("10.0.0.1".parse().unwrap(), None));
    }

    #[test]
    fn refuses_what_lies_outside_the_grammar() {
        for (text, reason) in [
            ("", "must begin with `permit`"),
            ("deny out ip from any to any", "must begin with `permit`"),
            ("permit in ip from any to any", "the direction must be `out`"),
            ("permit out bogus from any to any", "unknown protocol"),
            ("permit out ip from any", "`to` expected"),
            ("permit out ip from 1.2.3.4/33 to any", "the prefix is longer than the address"),
            ("permit out ip from any 9-5 to any", "a port range runs backwards"),
            ("permit out ip from any 70000 to any", "a port is not a number of 0 to 65535"),
            ("permit out ip from any to any established", "options are not allowed"),
            ("permit out ip from 1.1.1.1 to ::1", "the ends are of different address families"),
            ("permit out ip from !1.1.1.1 to any", "neither an address nor `any` nor `assigned`"),
        ] {
            assert_eq!(SdfFilter::parse(text).unwrap_err().reason, reason, "{text}");
        }
    }

    #[test]
    fn ports_match_only_where_a_packet_has_them() {
        let web = SdfFilter::parse("permit out tcp from any 80 to assigned").unwrap();
        let addr = "192.0.2.1".parse().unwrap();
        assert!(web.remote.matches(addr, Some(80)));
        assert!(!web.remote.matches(addr, Some(81)));
        assert!(!web.remote.matches(addr, None));
    }
}
