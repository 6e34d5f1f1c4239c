//! Information Elements (RFC 7012, and IANA's registry of IPFIX entities), templates of them, and values.

use std::net::{Ipv4Addr, Ipv6Addr};

/// The enterprise that marks the other direction of a flow's element (RFC 5103 section 6.1).
const REVERSE: u32 = 29_305;

/// An Information Element, as a template names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Element {
    number: u16,
    enterprise: Option<u32>,
    /// Octets of a value. Strings have a fixed length, too, as not all collectors know the variable one of RFC 7011 section 7.
    len: u16,
}

impl Element {
    const fn of(number: u16, len: u16) -> Self {
        Self { number, enterprise: None, len }
    }

    /// The same, of the other direction.
    #[must_use]
    pub const fn reverse(self) -> Self {
        Self { enterprise: Some(REVERSE), ..self }
    }

    /// Octets since the last record.
    pub const OCTET_DELTA_COUNT: Self = Self::of(1, 8);
    /// Packets since the last record.
    pub const PACKET_DELTA_COUNT: Self = Self::of(2, 8);
    /// The protocol above IP.
    pub const PROTOCOL_IDENTIFIER: Self = Self::of(4, 1);
    /// ToS or Traffic Class octet.
    pub const IP_CLASS_OF_SERVICE: Self = Self::of(5, 1);
    /// TCP flags of all packets together; the old length of one octet, which every collector takes.
    pub const TCP_CONTROL_BITS: Self = Self::of(6, 1);
    /// Source port.
    pub const SOURCE_TRANSPORT_PORT: Self = Self::of(7, 2);
    /// Source.
    pub const SOURCE_IPV4_ADDRESS: Self = Self::of(8, 4);
    /// Destination port.
    pub const DESTINATION_TRANSPORT_PORT: Self = Self::of(11, 2);
    /// Destination.
    pub const DESTINATION_IPV4_ADDRESS: Self = Self::of(12, 4);
    /// Source.
    pub const SOURCE_IPV6_ADDRESS: Self = Self::of(27, 16);
    /// Destination.
    pub const DESTINATION_IPV6_ADDRESS: Self = Self::of(28, 16);
    /// How much of the source is a prefix.
    pub const SOURCE_IPV6_PREFIX_LENGTH: Self = Self::of(29, 1);
    /// The name of an interface: as long as the kernel has them.
    pub const INTERFACE_NAME: Self = Self::of(82, 16);
    /// Why a record was exported: see the registry of that name.
    pub const FLOW_END_REASON: Self = Self::of(136, 1);
    /// A number of the flow.
    pub const FLOW_ID: Self = Self::of(148, 8);
    /// The Observation Domain.
    pub const OBSERVATION_DOMAIN_ID: Self = Self::of(149, 4);
    /// When the first packet was seen, or the last record ended: milliseconds since 1970.
    pub const FLOW_START_MILLISECONDS: Self = Self::of(152, 8);
    /// When the last packet was seen, or the counters were read: milliseconds since 1970.
    pub const FLOW_END_MILLISECONDS: Self = Self::of(153, 8);
    /// Number of what selects packets (RFC 5477).
    pub const SELECTOR_ID: Self = Self::of(302, 8);
    /// How packets are selected (RFC 5477).
    pub const SELECTOR_ALGORITHM: Self = Self::of(304, 2);
    /// Packets that are taken one after another (RFC 5477).
    pub const SAMPLING_PACKET_INTERVAL: Self = Self::of(305, 4);
    /// Packets that are passed over then (RFC 5477).
    pub const SAMPLING_PACKET_SPACE: Self = Self::of(306, 4);
    /// The subscriber: fifteen digits at most.
    pub const MOBILE_IMSI: Self = Self::of(455, 15);
    /// The tunnel's endpoint.
    pub const GTPU_TEID: Self = Self::of(507, 4);
    /// The QoS flow.
    pub const GTPU_QFI: Self = Self::of(509, 1);

    /// Puts the field specifier out (RFC 7011 section 3.2).
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let foreign = if self.enterprise.is_some() { 0x8000 } else { 0 };
        out.extend((foreign | self.number).to_be_bytes());
        out.extend(self.len.to_be_bytes());
        out.extend(self.enterprise.map(u32::to_be_bytes).into_iter().flatten());
    }

    /// Whether a value is of the element's kind and length.
    pub(crate) fn takes(self, value: &Value<'_>) -> bool {
        let len = match value {
            Value::Text(_) => return matches!(self, Self::INTERFACE_NAME | Self::MOBILE_IMSI),
            Value::U8(_) => 1,
            Value::U16(_) => 2,
            Value::U32(_) | Value::Ipv4(_) => 4,
            Value::U64(_) => 8,
            Value::Ipv6(_) => 16,
        };
        self.len == len
    }

    /// Puts a value out (RFC 7011 section 6.1).
    pub(crate) fn write_value(self, value: &Value<'_>, out: &mut Vec<u8>) {
        match value {
            Value::U8(value) => out.push(*value),
            Value::U16(value) => out.extend(value.to_be_bytes()),
            Value::U32(value) => out.extend(value.to_be_bytes()),
            Value::U64(value) => out.extend(value.to_be_bytes()),
            Value::Ipv4(address) => out.extend(address.octets()),
            Value::Ipv6(address) => out.extend(address.octets()),
            Value::Text(text) => {
                let end = out.len() + usize::from(self.len);
                out.extend(cut(text, self.len.into()).as_bytes());
                out.resize(end, 0);
            }
        }
    }
}

/// What the records of one kind have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Template {
    /// Its number: 256 or more.
    pub number: u16,
    /// How many of its elements are the scope of an Options Template (RFC 7011 section 3.4.2.2); 0 in others.
    pub scope: u16,
    /// What a record has, in that order.
    pub elements: &'static [Element],
}

/// A value of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number of one octet.
    U8(u8),
    /// A number of two.
    U16(u16),
    /// A number of four.
    U32(u32),
    /// A number of eight.
    U64(u64),
    /// An address.
    Ipv4(Ipv4Addr),
    /// An address.
    Ipv6(Ipv6Addr),
    /// A string; what is beyond the length of its element is not sent, and what is missing is zero.
    Text(&'a str),
}

/// At most so many octets of a string, in whole characters.
fn cut(text: &str, len_max: usize) -> &str {
    let end = (0..=len_max.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
    &text[..end.unwrap_or(0)]
}
