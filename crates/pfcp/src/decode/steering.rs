//! The rarer parameters of a FAR: headers without GTP-U, redirection, policies, copies (TS 29.244 8.2.20, 8.2.23,
//! 8.2.56, table 7.5.2.3-3).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use kaido_n4::{Duplicate, PlainHeaderCreation, Rejection, Steering};
use rs_pfcp::ie::IeType;

use super::ethernet;
use super::far::{gtp_header, marking};
use super::leaf::u8_of;
use crate::walk::{Group, Parts, incorrect, octets, too_short, unsupported};

/// Descriptions of headers with GTP-U, with UDP alone, and with IP alone, each of IPv4 and IPv6.
const GTP_U: u8 = 0x03;
const UDP: u8 = 0x0c;
const IP: u8 = 0x30;
/// IPv4 in any of them.
const OF_IPV4: u8 = 0x15;

/// Reads the parameters that lie in (Update) Forwarding Parameters.
pub(super) fn forwarding(group: &Group<'_>) -> Result<Option<Box<Steering>>, Rejection> {
    let creation = group.present(IeType::OuterHeaderCreation);
    let tags = creation.map(ethernet::tag_creation).transpose()?.flatten();
    let header = creation.filter(|_| tags.is_none()).map(plain_header).transpose()?.flatten();
    let proxying = ethernet::proxying(group)?;
    let redirect = group.first(IeType::RedirectInformation).map(redirect).transpose()?;
    let policy = group.first(IeType::ForwardingPolicy).map(policy).transpose()?;
    let steering = Steering { header, redirect, policy, duplicates: Vec::new(), tags, proxying };
    Ok((steering != Steering::default()).then(|| Box::new(steering)))
}

/// Adds the (Update) Duplicating Parameters of a FAR.
pub(super) fn duplicates(
    steering: &mut Option<Box<Steering>>,
    kind: IeType,
    far: &Group<'_>,
) -> Result<(), Rejection> {
    let found = far.all(kind).map(|value| duplicate(kind, value)).collect::<Result<Vec<_>, _>>()?;
    if !found.is_empty() {
        steering.get_or_insert_default().duplicates = found;
    }
    Ok(())
}

fn duplicate(kind: IeType, value: &[u8]) -> Result<Duplicate, Rejection> {
    let group = Group::of(kind, value)?;
    if kind == IeType::DuplicatingParameters {
        group.mandatory(IeType::DestinationInterface)?;
    }
    group.refuse(&[IeType::ForwardingPolicy])?;
    let tunnel = gtp_header(group.conditional(IeType::OuterHeaderCreation)?)?;
    Ok(Duplicate { tunnel, transport_level_marking: marking(&group)? })
}

/// Outer Header Creation (8.2.56) without GTP-U; `None` for one with it.
fn plain_header(value: &[u8]) -> Result<Option<PlainHeaderCreation>, Rejection> {
    const KIND: IeType = IeType::OuterHeaderCreation;
    let [description, _indications] = octets::<2>(KIND, value)?;
    if description == 0 {
        return Err(incorrect(KIND, "no header described"));
    }
    let kinds = [GTP_U, UDP, IP].iter().filter(|&&kind| description & kind != 0).count();
    if kinds > 1 {
        return Err(incorrect(KIND, format!("headers of several kinds: {description:#04x}")));
    }
    if description & GTP_U != 0 {
        return Ok(None);
    }
    let mut parts = Parts::of(KIND, value, 2);
    let ipv4 = if description & OF_IPV4 != 0 { Some(Ipv4Addr::from(parts.take::<4>()?)) } else { None };
    let ipv6 = if description & !OF_IPV4 & (UDP | IP) != 0 {
        Some(Ipv6Addr::from(parts.take::<16>()?))
    } else {
        None
    };
    let port = if description & UDP != 0 { Some(u16::from_be_bytes(parts.take()?)) } else { None };
    let peer = ipv4.map(IpAddr::V4).or(ipv6.map(IpAddr::V6));
    let peer = peer.filter(|peer| !peer.is_unspecified() && !peer.is_multicast());
    match (peer, port) {
        (Some(peer), port) if port != Some(0) => Ok(Some(PlainHeaderCreation { peer, port })),
        _ => Err(incorrect(KIND, "the peer's address or port is none")),
    }
}

/// Redirect Information (8.2.20): type, length, address.
fn redirect(value: &[u8]) -> Result<Arc<str>, Rejection> {
    const KIND: IeType = IeType::RedirectInformation;
    const URL: u8 = 2;
    let [kind, high, low] = octets::<3>(KIND, value)?;
    let len = usize::from(u16::from_be_bytes([high, low]));
    let address = value.get(3..3 + len).ok_or_else(|| too_short(KIND, 3 + len, value.len()))?;
    match kind & 0x0f {
        URL => std::str::from_utf8(address).map(Arc::from).map_err(|_| incorrect(KIND, "the URL is no text")),
        known @ 0..=8 => Err(unsupported(KIND, format!("redirection of type {known} is not done here"))),
        other => Err(incorrect(KIND, format!("redirection of type {other}"))),
    }
}

/// Forwarding Policy (8.2.23): length and identifier.
fn policy(value: &[u8]) -> Result<Arc<str>, Rejection> {
    const KIND: IeType = IeType::ForwardingPolicy;
    let len = usize::from(u8_of(KIND, value)?);
    let name = value.get(1..=len).ok_or_else(|| too_short(KIND, 1 + len, value.len()))?;
    std::str::from_utf8(name).map(Arc::from).map_err(|_| incorrect(KIND, "the identifier is no text"))
}

#[cfg(test)]
mod tests {
    use kaido_n4::Cause;

    use super::*;

    #[test]
    fn headers_of_every_kind_without_gtp_u() {
        let udp4 = [0x04, 2, 10, 0, 0, 1, 0x1f, 0x90];
        let read = plain_header(&udp4).unwrap().unwrap();
        assert_eq!((read.peer, read.port), ([10, 0, 0, 1].into(), Some(8080)));
        for end in 0..udp4.len() {
            assert_eq!(plain_header(&udp4[..end]).unwrap_err().cause, Cause::InvalidLength, "{end}");
        }
        let ip6 = [&[0x20, 0][..], &[0x20; 16]].concat();
        let read = plain_header(&ip6).unwrap().unwrap();
        assert_eq!((read.peer, read.port), ([0x20; 16].into(), None));
        assert_eq!(plain_header(&[1, 0, 0, 0, 0, 9, 10, 0, 0, 1]).unwrap(), None, "GTP-U");
        for (value, cause) in [
            (&[0, 0][..], Cause::MandatoryIeIncorrect),
            (&[0x05, 0], Cause::MandatoryIeIncorrect),
            (&[0x04, 0, 0, 0, 0, 0, 1, 1], Cause::MandatoryIeIncorrect),
            (&[0x04, 0, 10, 0, 0, 1, 0, 0], Cause::MandatoryIeIncorrect),
        ] {
            assert_eq!(plain_header(value).unwrap_err().cause, cause, "{value:?}");
        }
    }

    #[test]
    fn urls_and_policies_keep_to_their_lengths() {
        let url = b"\x02\x00\x08http://a\x00\x00";
        assert_eq!(&*redirect(url).unwrap(), "http://a");
        assert_eq!(redirect(&url[..10]).unwrap_err().cause, Cause::InvalidLength);
        assert_eq!(redirect(&[0, 0, 1, b'1']).unwrap_err().cause, Cause::ServiceNotSupported);
        assert_eq!(redirect(&[9, 0, 0]).unwrap_err().cause, Cause::MandatoryIeIncorrect);
        assert_eq!(&*policy(b"\x04gold").unwrap(), "gold");
        assert_eq!(policy(b"\x05gold").unwrap_err().cause, Cause::InvalidLength);
    }
}
