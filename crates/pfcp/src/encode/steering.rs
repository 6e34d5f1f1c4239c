//! The rarer parameters of a FAR, as [`crate::decode`] reads them.

use std::net::IpAddr;

use kaido_n4::{Duplicate, PlainHeaderCreation, Steering};
use rs_pfcp::ie::{Ie, IeType};

use super::ethernet;
use super::leaf::{header_creation, marking};

/// LI function (8.2.24).
const LI_FUNCTION: u8 = 4;
const URL: u8 = 2;

/// What lies in (Update) Forwarding Parameters.
pub(super) fn forwarding(steering: Option<&Steering>) -> Vec<Ie> {
    let Some(steering) = steering else { return Vec::new() };
    let mut parts = Vec::new();
    parts.extend(steering.header.map(plain_header));
    parts.extend(steering.tags.map(ethernet::tag_creation));
    parts.extend(steering.proxying.map(ethernet::proxying));
    parts.extend(steering.redirect.as_ref().map(|url| {
        let len = u16::try_from(url.len()).unwrap_or(u16::MAX).to_be_bytes();
        Ie::new(IeType::RedirectInformation, [&[URL][..], &len, url.as_bytes()].concat())
    }));
    parts.extend(steering.policy.as_ref().map(|name| {
        let len = u8::try_from(name.len()).unwrap_or(u8::MAX);
        Ie::new(IeType::ForwardingPolicy, [&[len][..], name.as_bytes()].concat())
    }));
    parts
}

/// (Update) Duplicating Parameters.
pub(super) fn duplicates(kind: IeType, steering: Option<&Steering>) -> impl Iterator<Item = Ie> + '_ {
    steering.into_iter().flat_map(|steering| &steering.duplicates).map(move |copy| duplicate(kind, copy))
}

fn duplicate(kind: IeType, copy: &Duplicate) -> Ie {
    let mut parts =
        vec![Ie::new(IeType::DestinationInterface, vec![LI_FUNCTION]), header_creation(&copy.tunnel)];
    parts.extend(copy.transport_level_marking.map(marking));
    Ie::new_grouped(kind, parts)
}

fn plain_header(header: PlainHeaderCreation) -> Ie {
    let (ipv4, address) = match header.peer {
        IpAddr::V4(peer) => (true, peer.octets().to_vec()),
        IpAddr::V6(peer) => (false, peer.octets().to_vec()),
    };
    let description = match (header.port.is_some(), ipv4) {
        (true, true) => 0x04,
        (true, false) => 0x08,
        (false, true) => 0x10,
        (false, false) => 0x20,
    };
    let port: Vec<u8> = header.port.iter().flat_map(|port| port.to_be_bytes()).collect();
    Ie::new(IeType::OuterHeaderCreation, [&[description, 0][..], &address, &port].concat())
}
