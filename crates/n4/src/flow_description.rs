//! Flow descriptions as text: the IPFilterRule of RFC 6733 4.3.1, as TS 29.212 5.4.2 restricts it.
//!
//! ```text
//! permit out PROTOCOL from ADDRESS [PORTS] to ADDRESS [PORTS]
//!   PROTOCOL  ip | NUMBER | icmp | tcp | udp | esp | ah | ipv6-icmp | sctp
//!   ADDRESS   any | assigned | ADDRESS | ADDRESS/LENGTH
//!   PORTS     PORT | PORT-PORT [, ...]
//! ```
//! `in`, `deny`, inverted addresses (`!`) and options such as `frag` or `established` belong to the full grammar and
//! are forbidden here. Bits of an address beyond its length do not matter and are cleared.

use std::fmt;
use std::net::IpAddr;

use super::sdf::{AddressMatch, FlowEnd, SdfFilter};

/// Most port ranges one end of a filter may list.
const PORT_RANGES_MAX: usize = 16;
/// Longest text looked at: sixteen ranges at both ends and two IPv6 networks are half of it.
const TEXT_MAX: usize = 1024;

/// Why a flow description was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("flow description `{text}`: {reason}")]
pub struct SdfError {
    /// The text as sent, or its beginning.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl SdfFilter {
    /// Reads a flow description, such as `permit out udp from 10.0.0.0/8 53 to assigned 1024-65535`.
    ///
    /// # Errors
    /// [`SdfError`] for anything outside the grammar, or allowed in it and forbidden by TS 29.212 5.4.2.
    pub fn parse(text: &str) -> Result<Self, SdfError> {
        read(text).map_err(|reason| SdfError { text: text.chars().take(TEXT_MAX).collect(), reason })
    }

    /// The flow description of this filter: what [`SdfFilter::parse`] reads as the same protocol and ends.
    pub fn description(&self) -> impl fmt::Display + '_ {
        Description(self)
    }
}

fn read(text: &str) -> Result<SdfFilter, &'static str> {
    if text.len() > TEXT_MAX {
        return Err("longer than 1024 octets");
    }
    let mut words = text.split_ascii_whitespace().peekable();
    if words.next() != Some("permit") {
        return Err("must begin with `permit`");
    }
    if words.next() != Some("out") {
        return Err("the direction must be `out`");
    }
    let protocol = match words.next() {
        Some("ip") => None,
        Some(word) => Some(protocol_number(word).ok_or("unknown protocol")?),
        None => return Err("the protocol is missing"),
    };
    if words.next() != Some("from") {
        return Err("`from` expected");
    }
    let remote = flow_end(&mut words)?;
    if words.next() != Some("to") {
        return Err("`to` expected");
    }
    let local = flow_end(&mut words)?;
    if words.next().is_some() {
        return Err("options are not allowed");
    }
    if matches!(
        (&remote.address, &local.address),
        (AddressMatch::V4(..), AddressMatch::V6(..)) | (AddressMatch::V6(..), AddressMatch::V4(..))
    ) {
        return Err("the ends are of different address families");
    }
    Ok(SdfFilter { protocol, remote, local, ..SdfFilter::default() })
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
        number => decimal(number).and_then(|number| number.parse().ok()),
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
    if word.starts_with('!') {
        return Err("an address may not be inverted");
    }
    let (addr, len) = match word.split_once('/') {
        Some((addr, len)) => {
            let len = decimal(len).and_then(|len| len.parse::<u8>().ok());
            (addr, Some(len.ok_or("the prefix length is not a number")?))
        }
        None => (word, None),
    };
    match (addr.parse(), len) {
        (Ok(IpAddr::V4(addr)), len) if len.unwrap_or(32) <= 32 => {
            Ok(AddressMatch::v4(addr, len.unwrap_or(32)))
        }
        (Ok(IpAddr::V6(addr)), len) if len.unwrap_or(128) <= 128 => {
            Ok(AddressMatch::v6(addr, len.unwrap_or(128)))
        }
        (Ok(_), _) => Err("the prefix is longer than the address"),
        (Err(_), _) => Err("neither an address nor `any` nor `assigned`"),
    }
}

fn port_ranges(word: &str) -> Result<Vec<(u16, u16)>, &'static str> {
    let port = |text: &str| {
        let number = decimal(text).and_then(|text| text.parse::<u16>().ok());
        number.ok_or("a port is not a number of 0 to 65535")
    };
    let mut ranges = Vec::new();
    for item in word.split(',') {
        let (low, high) = item.split_once('-').unwrap_or((item, item));
        let (low, high) = (port(low)?, port(high)?);
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

/// Digits alone: the library's own reading takes a sign as well.
fn decimal(text: &str) -> Option<&str> {
    text.bytes().all(|octet| octet.is_ascii_digit()).then_some(text)
}

struct Description<'f>(&'f SdfFilter);

impl fmt::Display for Description<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.protocol {
            None => f.write_str("permit out ip from ")?,
            Some(number) => write!(f, "permit out {number} from ")?,
        }
        write_end(f, &self.0.remote, "any")?;
        f.write_str(" to ")?;
        write_end(f, &self.0.local, "assigned")
    }
}

fn write_end(f: &mut fmt::Formatter<'_>, end: &FlowEnd, any: &str) -> fmt::Result {
    match end.address {
        AddressMatch::Any => f.write_str(any)?,
        AddressMatch::V4(address, length) => write!(f, "{address}/{length}")?,
        AddressMatch::V6(address, length) => write!(f, "{address}/{length}")?,
    }
    for (place, &(low, high)) in end.ports.iter().enumerate() {
        f.write_str(if place == 0 { " " } else { "," })?;
        if low == high {
            write!(f, "{low}")?;
        } else {
            write!(f, "{low}-{high}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_the_forms_that_control_planes_send() {
        let any = SdfFilter::parse("permit out ip from any to assigned").unwrap();
        assert_eq!(any, SdfFilter::default());

        let dns = SdfFilter::parse("permit out udp from 8.8.0.0/16 53,5353 to assigned 1024-65535").unwrap();
        assert_eq!(dns.protocol, Some(17));
        assert_eq!(dns.remote.address, AddressMatch::v4(Ipv4Addr::new(8, 8, 0, 0), 16));
        assert_eq!(dns.remote.ports, [(53, 53), (5353, 5353)]);
        assert_eq!(dns.local.ports, [(1024, 65535)]);

        let v6 = SdfFilter::parse("permit out 58 from 2001:db8::/32 to any").unwrap();
        assert!(v6.remote.matches("2001:db8:1::1".parse().unwrap(), None));
        assert!(!v6.remote.matches("2001:db9::1".parse().unwrap(), None));
        assert!(!v6.remote.matches("10.0.0.1".parse().unwrap(), None));
    }

    #[test]
    fn bits_beyond_a_prefix_do_not_matter() {
        let filter = SdfFilter::parse("permit out ip from 10.1.2.3/8 to any").unwrap();
        assert_eq!(filter.remote.address, AddressMatch::V4(Ipv4Addr::new(10, 0, 0, 0), 8));
        assert_eq!(filter, SdfFilter::parse("permit out ip from 10.9.9.9/8 to any").unwrap());
    }

    /// Conformance: TS 29.212 5.4.2 | Flow descriptions with deny, in, options or inverted addresses are refused
    #[test]
    fn refuses_what_lies_outside_the_grammar() {
        for (text, reason) in [
            ("", "must begin with `permit`"),
            ("deny out ip from any to any", "must begin with `permit`"),
            ("permit in ip from any to any", "the direction must be `out`"),
            ("permit out bogus from any to any", "unknown protocol"),
            ("permit out +6 from any to any", "unknown protocol"),
            ("permit out 256 from any to any", "unknown protocol"),
            ("permit out ip from any", "`to` expected"),
            ("permit out ip from 1.2.3.4/33 to any", "the prefix is longer than the address"),
            ("permit out ip from ::/129 to any", "the prefix is longer than the address"),
            ("permit out ip from 1.2.3.4/+8 to any", "the prefix length is not a number"),
            ("permit out ip from any 9-5 to any", "a port range runs backwards"),
            ("permit out ip from any 70000 to any", "a port is not a number of 0 to 65535"),
            ("permit out ip from any 1,,2 to any", "a port is not a number of 0 to 65535"),
            ("permit out ip from any to any established", "options are not allowed"),
            ("permit out ip from any to any 80 frag", "options are not allowed"),
            ("permit out ip from 1.1.1.1 to ::1", "the ends are of different address families"),
            ("permit out ip from !1.1.1.1 to any", "an address may not be inverted"),
            ("permit out ip from somewhere to any", "neither an address nor `any` nor `assigned`"),
        ] {
            assert_eq!(SdfFilter::parse(text).unwrap_err().reason, reason, "{text}");
        }
        let ports = (0..17).map(|port| port.to_string()).collect::<Vec<_>>().join(",");
        let many = format!("permit out tcp from any {ports} to any");
        assert_eq!(SdfFilter::parse(&many).unwrap_err().reason, "more than 16 port ranges");
        let all = "permit out ip from any to any";
        let longest = format!("{all}{}", " ".repeat(TEXT_MAX - all.len()));
        assert!(SdfFilter::parse(&longest).is_ok());
        let long = format!("{longest} ");
        assert_eq!(SdfFilter::parse(&long).unwrap_err().reason, "longer than 1024 octets");
    }

    fn end(v6: bool) -> impl Strategy<Value = FlowEnd> {
        let v4_network = (any::<u32>(), 0u8..=32)
            .prop_map(|(address, length)| AddressMatch::v4(Ipv4Addr::from_bits(address), length));
        let v6_network = (any::<u128>(), 0u8..=128)
            .prop_map(|(address, length)| AddressMatch::v6(Ipv6Addr::from_bits(address), length));
        let network = if v6 { v6_network.boxed() } else { v4_network.boxed() };
        let range = (any::<u16>(), any::<u16>()).prop_map(|(a, b)| (a.min(b), a.max(b)));
        let ports = proptest::collection::vec(range, 0..=PORT_RANGES_MAX);
        (prop_oneof![Just(AddressMatch::Any), network], ports)
            .prop_map(|(address, ports)| FlowEnd { address, ports })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_it_was(
            protocol in proptest::option::of(any::<u8>()),
            (remote, local) in any::<bool>().prop_flat_map(|v6| (end(v6), end(v6))),
        ) {
            let filter = SdfFilter { protocol, remote, local, ..SdfFilter::default() };
            prop_assert_eq!(SdfFilter::parse(&filter.description().to_string()), Ok(filter));
        }

        #[test]
        fn no_text_is_too_strange(text in "(permit |out |in |ip |6 |from |to |any |assigned |!|10\\.0\\.0\\.|::|/|[0-9]{1,6}|-|,| |\\PC){0,24}") {
            if let Ok(filter) = SdfFilter::parse(&text) {
                prop_assert_eq!(SdfFilter::parse(&filter.description().to_string()), Ok(filter));
            }
        }
    }
}
