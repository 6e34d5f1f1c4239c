//! Information elements of GTP-U messages (TS 29.281 clause 8).
//!
//! ```text
//!  TV   0 type (top bit 0)   1 value of the length the type fixes
//!  TLV  0 type (top bit 1)   1 length (2 octets)   3 value
//!  141  0 type               1 length (1 octet)    2 types                  extension header type list (clause 8.5)
//! ```

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Error;
use crate::bytes::{length_field, put, put_u16, room, u16_at};

const RECOVERY: u8 = 14;
const TEID_DATA_I: u8 = 16;
const PEER_ADDRESS: u8 = 133;
const EXTENSION_HEADER_TYPE_LIST: u8 = 141;
const TUNNEL_STATUS_INFORMATION: u8 = 230;
const RECOVERY_TIME_STAMP: u8 = 231;

/// The address a G-PDU was sent to (TS 29.281 clause 8.4).
pub type PeerAddress = IpAddr;

/// Flags of a tunnel status information element (TS 29.281 clause 8.7); the others are spare.
pub mod tunnel_status {
    /// SPOC: start pause of charging.
    pub const START_PAUSE_OF_CHARGING: u8 = 1 << 0;
    /// EPOC: end pause of charging.
    pub const END_PAUSE_OF_CHARGING: u8 = 1 << 1;
}

/// One information element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element<'a> {
    /// 14: restart counter; zero, and ignored by the receiver (TS 29.281 clause 8.2).
    Recovery(u8),
    /// 16: the TEID an error indication is about (TS 29.281 clause 8.3).
    TeidDataI(u32),
    /// 133: the address the offending G-PDU was sent to (TS 29.281 clause 8.4).
    PeerAddress(PeerAddress),
    /// 141: extension types the sender supports (TS 29.281 clause 8.5).
    ExtensionHeaderTypeList(&'a [u8]),
    /// 230: what happened to the tunnel, flags of [`tunnel_status`] (TS 29.281 clause 8.7).
    TunnelStatusInformation(u8),
    /// 231: when the sender last restarted, in seconds since 1900 (TS 29.281 clause 8.8).
    RecoveryTimeStamp(u32),
    /// Any other TLV element, such as 255, the private extension (TS 29.281 clause 8.6).
    Unknown {
        /// Its type, 128 or above.
        kind: u8,
        /// Its value.
        value: &'a [u8],
    },
}

impl Element<'_> {
    /// Octets [`Self::emit`] writes.
    pub const fn len(&self) -> usize {
        match self {
            Self::Recovery(_) => 2,
            Self::TeidDataI(_) => 5,
            Self::PeerAddress(IpAddr::V4(_)) | Self::RecoveryTimeStamp(_) => 7,
            Self::PeerAddress(IpAddr::V6(_)) => 19,
            Self::ExtensionHeaderTypeList(types) => 2 + types.len(),
            Self::TunnelStatusInformation(_) => 4,
            Self::Unknown { value, .. } => 3 + value.len(),
        }
    }

    /// Writes the element to the front of `buffer`; returns the octets written.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<usize, Error> {
        let octets = room(buffer, self.len())?;
        match *self {
            Self::Recovery(counter) => put(octets, 0, &[RECOVERY, counter]),
            Self::TeidDataI(teid) => {
                octets[0] = TEID_DATA_I;
                put(octets, 1, &teid.to_be_bytes());
            }
            Self::PeerAddress(IpAddr::V4(address)) => tlv(octets, PEER_ADDRESS, &address.octets())?,
            Self::PeerAddress(IpAddr::V6(address)) => tlv(octets, PEER_ADDRESS, &address.octets())?,
            Self::ExtensionHeaderTypeList(types) => {
                octets[0] = EXTENSION_HEADER_TYPE_LIST;
                octets[1] = u8::try_from(types.len()).map_err(|_| Error::Range)?;
                put(octets, 2, types);
            }
            Self::TunnelStatusInformation(flags) => tlv(octets, TUNNEL_STATUS_INFORMATION, &[flags])?,
            Self::RecoveryTimeStamp(stamp) => tlv(octets, RECOVERY_TIME_STAMP, &stamp.to_be_bytes())?,
            Self::Unknown { kind, value } => {
                let is_known = matches!(
                    kind,
                    PEER_ADDRESS
                        | EXTENSION_HEADER_TYPE_LIST
                        | TUNNEL_STATUS_INFORMATION
                        | RECOVERY_TIME_STAMP
                );
                if kind < 0x80 || is_known {
                    return Err(Error::Range);
                }
                tlv(octets, kind, value)?;
            }
        }
        Ok(self.len())
    }
}

fn tlv(octets: &mut [u8], kind: u8, value: &[u8]) -> Result<(), Error> {
    octets[0] = kind;
    put_u16(octets, 1, length_field(value.len())?);
    put(octets, 3, value);
    Ok(())
}

/// Walks information elements; yields each once, or one error and then nothing. A TV element of unknown type has
/// unknown length and is an error; so is an address that is neither IPv4 nor IPv6.
#[derive(Debug, Clone)]
pub struct Elements<'a> {
    octets: &'a [u8],
}

impl<'a> Elements<'a> {
    /// The elements of a message, the header and extensions stripped.
    pub const fn new(octets: &'a [u8]) -> Self {
        Self { octets }
    }

    fn step(&self) -> Result<(Element<'a>, usize), Error> {
        let octets = self.octets;
        match *octets {
            [RECOVERY, counter, ..] => Ok((Element::Recovery(counter), 2)),
            [TEID_DATA_I, a, b, c, d, ..] => Ok((Element::TeidDataI(u32::from_be_bytes([a, b, c, d])), 5)),
            [EXTENSION_HEADER_TYPE_LIST, count, ..] => {
                let end = 2 + usize::from(count);
                let types = octets.get(2..end).ok_or(Error::Truncated)?;
                Ok((Element::ExtensionHeaderTypeList(types), end))
            }
            [kind @ 0x80..=0xff, _, _, ..] if kind != EXTENSION_HEADER_TYPE_LIST => {
                let end = 3 + usize::from(u16_at(octets, 1));
                let value = octets.get(3..end).ok_or(Error::Truncated)?;
                Ok((tlv_element(kind, value)?, end))
            }
            [RECOVERY | TEID_DATA_I | 0x80..=0xff, ..] => Err(Error::Truncated),
            _ => Err(Error::Element),
        }
    }
}

/// Of values longer than their element, the octets behind are passed over (TS 29.281 clause 8.1).
fn tlv_element(kind: u8, value: &[u8]) -> Result<Element<'_>, Error> {
    match kind {
        PEER_ADDRESS => peer(value),
        TUNNEL_STATUS_INFORMATION => {
            value.first().map(|flags| Element::TunnelStatusInformation(*flags)).ok_or(Error::Element)
        }
        RECOVERY_TIME_STAMP => {
            let stamp = value.first_chunk().ok_or(Error::Element)?;
            Ok(Element::RecoveryTimeStamp(u32::from_be_bytes(*stamp)))
        }
        _ => Ok(Element::Unknown { kind, value }),
    }
}

fn peer(value: &[u8]) -> Result<Element<'_>, Error> {
    let address = if let Ok(v4) = <[u8; 4]>::try_from(value) {
        IpAddr::V4(Ipv4Addr::from(v4))
    } else {
        IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(value).map_err(|_| Error::Element)?))
    };
    Ok(Element::PeerAddress(address))
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.octets.is_empty() {
            return None;
        }
        let step = self.step();
        // Every element is at least two octets long, so the walk ends.
        self.octets = step.as_ref().ok().and_then(|(_, len)| self.octets.get(*len..)).unwrap_or_default();
        Some(step.map(|(element, _)| element))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::hex;

    /// Conformance: TS 29.281 8.1 | Elements of both forms, TV and TLV
    #[test]
    fn walks_and_emits_every_element() {
        let bytes =
            hex("0e00 10deadbeef 8500040a640301 850010fd000003000000000000000000000001 8d0285c0 e6000101 \
             e70004e9000001 ff0003000001");
        let found: Vec<_> = Elements::new(&bytes).collect::<Result<_, _>>().unwrap();
        let expected = [
            Element::Recovery(0),
            Element::TeidDataI(0xdead_beef),
            Element::PeerAddress(IpAddr::V4(Ipv4Addr::new(10, 100, 3, 1))),
            Element::PeerAddress(IpAddr::V6(Ipv6Addr::new(0xfd00, 3, 0, 0, 0, 0, 0, 1))),
            Element::ExtensionHeaderTypeList(&[0x85, 0xc0]),
            Element::TunnelStatusInformation(tunnel_status::START_PAUSE_OF_CHARGING),
            Element::RecoveryTimeStamp(0xe900_0001),
            Element::Unknown { kind: 255, value: &[0, 0, 1] },
        ];
        assert_eq!(found, expected);
        let mut out = vec![0; bytes.len()];
        let mut at = 0;
        for element in found {
            at += element.emit(&mut out[at..]).unwrap();
        }
        assert_eq!(out, bytes);
    }

    #[test]
    fn refuses_broken_elements_and_stops() {
        let cases = [
            ("0e", Error::Truncated),
            ("10deadbe", Error::Truncated),
            ("8500", Error::Truncated),
            ("8500050a640301", Error::Truncated),
            ("8500030a6403", Error::Element),
            ("8d", Error::Truncated),
            ("8d0185 8d0285", Error::Truncated),
            ("0f00", Error::Element),
            ("e60000", Error::Element),
            ("e70003e90000", Error::Element),
        ];
        for (bytes, error) in cases {
            let bytes = hex(bytes);
            assert_eq!(Elements::new(&bytes).find_map(Result::err), Some(error), "{bytes:02x?}");
        }
        assert_eq!(Element::Unknown { kind: 15, value: &[] }.emit(&mut [0; 3]), Err(Error::Range));
    }
}
