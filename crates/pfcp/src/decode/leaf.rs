//! Single elements that several rules share.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use kaido_n4::{
    Change, ChooseOr, FSeid, FTeid, Interface, Ipv6Prefix, LocalFTeid, NetworkInstance, Rejection, Seid,
    Teid, UeIpAddress, UeIpRole, VolumeThreshold,
};
use rs_pfcp::ie::IeType;
use rs_pfcp::ie::cp_pfcp_entity_ip_address::CpPfcpEntityIpAddress;
use rs_pfcp::ie::f_teid::Fteid;
use rs_pfcp::ie::fseid::Fseid;

use crate::node_id::from_labels;
use crate::walk::{Group, Parts, incorrect, octets, typed};

pub(crate) fn u8_of(kind: IeType, value: &[u8]) -> Result<u8, Rejection> {
    octets::<1>(kind, value).map(|[octet]| octet)
}

pub(crate) fn u16_of(kind: IeType, value: &[u8]) -> Result<u16, Rejection> {
    octets(kind, value).map(u16::from_be_bytes)
}

pub(crate) fn u32_of(kind: IeType, value: &[u8]) -> Result<u32, Rejection> {
    octets(kind, value).map(u32::from_be_bytes)
}

/// A point in time, as seconds since 1900 (8.2.14). The count wraps in 2036: with its highest bit clear it is of the era that
/// begins then (RFC 4330, 3). What lies before 1970 is past all the same.
pub(crate) fn time(kind: IeType, value: &[u8]) -> Result<SystemTime, Rejection> {
    const UNIX_EPOCH_S: u64 = 2_208_988_800;
    let seconds = u32_of(kind, value)?;
    let era = if seconds >> 31 == 0 { 1 << 32 } else { 0 };
    let since_1970 = (u64::from(seconds) + era).saturating_sub(UNIX_EPOCH_S);
    Ok(SystemTime::UNIX_EPOCH + Duration::from_secs(since_1970))
}

/// A number of seconds.
pub(crate) fn seconds(kind: IeType, value: &[u8]) -> Result<Duration, Rejection> {
    u32_of(kind, value).map(|seconds| Duration::from_secs(seconds.into()))
}

/// An optional element of an update: of no length it takes the field away.
pub(crate) fn change<T>(
    group: &Group<'_>,
    kind: IeType,
    read: impl FnOnce(IeType, &[u8]) -> Result<T, Rejection>,
) -> Result<Change<T>, Rejection> {
    match group.first(kind) {
        None => Ok(Change::Keep),
        Some([]) => Ok(Change::Remove),
        Some(value) => read(kind, value).map(Change::To),
    }
}

/// F-SEID (8.2.37): a SEID other than zero and an address.
pub(crate) fn f_seid(value: &[u8]) -> Result<FSeid, Rejection> {
    const KIND: IeType = IeType::Fseid;
    let read = typed(KIND, Fseid::unmarshal(value))?;
    if !read.v4 && !read.v6 {
        return Err(incorrect(KIND, "F-SEID without an address"));
    }
    if read.seid.0 == 0 {
        return Err(incorrect(KIND, "SEID 0 is reserved for messages without a session"));
    }
    Ok(FSeid { seid: Seid(read.seid.0), ipv4: read.ipv4_address, ipv6: read.ipv6_address })
}

/// F-TEID with everything given (8.2.3).
pub(crate) fn f_teid(value: &[u8]) -> Result<FTeid, Rejection> {
    let given = local_f_teid(value)?.given();
    given.ok_or_else(|| incorrect(IeType::Fteid, "CHOOSE where an F-TEID is reported"))
}

/// Local F-TEID of a PDI (8.2.3).
pub(crate) fn local_f_teid(value: &[u8]) -> Result<LocalFTeid, Rejection> {
    const KIND: IeType = IeType::Fteid;
    let read = typed(KIND, Fteid::unmarshal(value))?;
    let no_family = !read.v4 && !read.v6;
    if read.ch {
        // Who names no family takes what there is.
        let choose_id = read.chid.then_some(read.choose_id);
        return Ok(LocalFTeid::Choose { ipv4: read.v4 || no_family, ipv6: read.v6 || no_family, choose_id });
    }
    if no_family {
        return Err(incorrect(KIND, "F-TEID of neither address family"));
    }
    if read.teid.0 == 0 {
        return Err(incorrect(KIND, "TEID 0 is reserved"));
    }
    let (ipv4, ipv6) = (read.ipv4_address, read.ipv6_address);
    Ok(LocalFTeid::Given(FTeid { teid: Teid(read.teid.0), ipv4, ipv6 }))
}

/// UE IP Address (8.2.62).
pub(crate) fn ue_ip_address(value: &[u8]) -> Result<UeIpAddress, Rejection> {
    const KIND: IeType = IeType::UeIpAddress;
    let read = typed(KIND, rs_pfcp::ie::ue_ip_address::UeIpAddress::unmarshal(value))?;
    let length = ue_prefix_length(read.ipv6_prefix_length, read.ipv6_prefix_delegation_bits)?;
    let given4 = read.ipv4_address.map(ChooseOr::Given);
    let given6 = read.ipv6_address.map(|address| ChooseOr::Given(Ipv6Prefix::of(address, length)));
    let ipv4 = if read.choose_ipv4 { Some(ChooseOr::Choose) } else { given4 };
    let ipv6 = if read.choose_ipv6 { Some(ChooseOr::Choose) } else { given6 };
    if ipv4.is_none() && ipv6.is_none() {
        return Err(incorrect(KIND, "UE IP address of neither family"));
    }
    let no_host = |addr: IpAddr| incorrect(KIND, format!("{addr} is no address of a host"));
    if let Some(ChooseOr::Given(addr)) = ipv4
        && (addr.octets()[0] == 0 || addr.octets()[0] >= 224 || addr.is_loopback() || addr.is_link_local())
    {
        return Err(no_host(addr.into()));
    }
    if let Some(ChooseOr::Given(Ipv6Prefix { addr, .. })) = ipv6
        && (addr.is_unspecified()
            || addr.is_multicast()
            || addr.is_loopback()
            || addr.is_unicast_link_local())
    {
        return Err(no_host(addr.into()));
    }
    let role = if read.source_destination { UeIpRole::Destination } else { UeIpRole::Source };
    Ok(UeIpAddress { ipv4, ipv6, role })
}

/// /64, unless IP6PL gives a length or IPv6D how many bits shorter it is.
fn ue_prefix_length(length: Option<u8>, delegated_bits: Option<u8>) -> Result<u8, Rejection> {
    const KIND: IeType = IeType::UeIpAddress;
    match (length, delegated_bits) {
        (Some(length @ 1..=128), _) => Ok(length),
        (Some(length), _) => Err(incorrect(KIND, format!("an IPv6 prefix of {length} bits"))),
        (None, Some(bits)) if bits < 64 => Ok(64 - bits),
        (None, Some(bits)) => Err(incorrect(KIND, format!("{bits} bits of prefix delegation"))),
        (None, None) => Ok(64),
    }
}

/// Source and Destination Interface (8.2.2, 8.2.24); the upper half octet is spare. Nothing is forwarded to the
/// LI function (4).
pub(crate) fn interface(kind: IeType, value: &[u8]) -> Result<Interface, Rejection> {
    match (u8_of(kind, value)? & 0x0f, kind) {
        (0, _) => Ok(Interface::Access),
        (1, _) => Ok(Interface::Core),
        (2, _) => Ok(Interface::N6Lan),
        (3, _) => Ok(Interface::CpFunction),
        (4, IeType::SourceInterface) | (5, IeType::DestinationInterface) => Ok(Interface::VnInternal),
        (other, _) => Err(incorrect(kind, format!("interface {other} is not served"))),
    }
}

/// Network Instance (8.2.4): text, or a name in DNS labels, which gives the same dotted text.
pub(crate) fn network_instance(value: &[u8]) -> Result<NetworkInstance, Rejection> {
    const KIND: IeType = IeType::NetworkInstance;
    let name = match from_labels(value) {
        Some(name) => name,
        None => match std::str::from_utf8(value) {
            Ok(text) => text.to_owned(),
            Err(_) => return Err(incorrect(KIND, "neither text nor DNS labels")),
        },
    };
    Ok(NetworkInstance(name.into()))
}

/// Volume Threshold and Volume Quota (8.2.13, 8.2.50): TOVOL, ULVOL, DLVOL and eight octets for each.
pub(crate) fn volume(kind: IeType, value: &[u8]) -> Result<VolumeThreshold, Rejection> {
    let flags = u8_of(kind, value)?;
    let mut parts = Parts::of(kind, value, 1);
    let mut next = |flag: u8| match flags & flag {
        0 => Ok(None),
        _ => parts.take().map(|octets| Some(u64::from_be_bytes(octets))),
    };
    let read = VolumeThreshold { total: next(1)?, uplink: next(2)?, downlink: next(4)? };
    if flags & 7 == 0 {
        return Err(incorrect(kind, "no volume given"));
    }
    Ok(read)
}

/// CP PFCP Entity IP Address elements of a group (8.2.135).
pub(crate) fn cp_entity_addresses(group: &Group<'_>) -> Result<Vec<IpAddr>, Rejection> {
    const KIND: IeType = IeType::CpPfcpEntityIpAddress;
    let mut addresses = Vec::new();
    for value in group.all(KIND) {
        let read = typed(KIND, CpPfcpEntityIpAddress::unmarshal(value))?;
        addresses.extend(read.ipv4.map(IpAddr::V4));
        addresses.extend(read.ipv6.map(IpAddr::V6));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use kaido_n4::Cause;

    use super::*;

    #[test]
    fn volume_lengths_follow_the_flags() {
        let mut value = vec![0b101];
        value.extend_from_slice(&7u64.to_be_bytes());
        value.extend_from_slice(&9u64.to_be_bytes());
        let read = volume(IeType::VolumeThreshold, &value).unwrap();
        assert_eq!(read, VolumeThreshold { total: Some(7), uplink: None, downlink: Some(9) });
        for end in 0..value.len() {
            let fault = volume(IeType::VolumeQuota, &value[..end]).unwrap_err();
            assert_eq!((fault.cause, fault.offending_ie), (Cause::InvalidLength, Some(73)));
        }
        assert_eq!(volume(IeType::VolumeQuota, &[0]).unwrap_err().cause, Cause::MandatoryIeIncorrect);
    }

    /// Conformance: TS 29.244 8.2.14 | Times before 1970 and after 2036 (era 1) are what they say
    #[test]
    fn times_are_of_the_era_that_their_highest_bit_says() {
        let at = |seconds: u32| {
            let read = time(IeType::MonitoringTime, &seconds.to_be_bytes()).unwrap();
            read.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
        };
        assert_eq!(at(2_208_988_800 + 1_800_000_000), 1_800_000_000, "2027");
        assert_eq!(at(u32::MAX), 2_085_978_495, "the last second of the era");
        assert_eq!(at(0), 2_085_978_496, "7 February 2036");
        assert_eq!(at(0x7fff_ffff), 4_233_462_143, "2104");
        assert_eq!((at(0x8000_0000), at(2_208_988_800)), (0, 0), "1968 and 1970");
        assert_eq!(time(IeType::MonitoringTime, &[0; 3]).unwrap_err().cause, Cause::InvalidLength);
    }

    #[test]
    fn network_instances_of_both_kinds_are_alike() {
        assert_eq!(network_instance(b"\x08internet").unwrap(), network_instance(b"internet").unwrap());
        assert_eq!(&*network_instance(b"\x03ims\x03org").unwrap().0, "ims.org");
        assert_eq!(&*network_instance(b"").unwrap().0, "");
        assert!(network_instance(b"\xff\xfe").is_err());
    }

    #[test]
    fn teid_zero_and_f_teid_without_address() {
        let fault = local_f_teid(&[1, 0, 0, 0, 0, 10, 0, 0, 1]).unwrap_err();
        assert_eq!((fault.cause, fault.offending_ie), (Cause::MandatoryIeIncorrect, Some(21)));
        assert_eq!(local_f_teid(&[0, 0, 0, 0, 1]).unwrap_err().cause, Cause::MandatoryIeIncorrect);
        assert_eq!(local_f_teid(&[1, 0, 0, 0, 1, 10]).unwrap_err().cause, Cause::InvalidLength);
        let chosen = LocalFTeid::Choose { ipv4: true, ipv6: true, choose_id: Some(5) };
        assert_eq!(local_f_teid(&[0x0f, 5]).unwrap(), chosen);
        assert_eq!(local_f_teid(&[0x0c, 5]).unwrap(), chosen, "any family");
        assert_eq!(local_f_teid(&[0x0d]).unwrap_err().cause, Cause::InvalidLength);
    }

    #[test]
    fn f_seid_needs_a_seid_and_an_address() {
        assert!(f_seid(&[2, 0, 0, 0, 0, 0, 0, 0, 1, 10, 0, 0, 1]).is_ok());
        assert!(f_seid(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1]).is_err());
        assert!(f_seid(&[0, 0, 0, 0, 0, 0, 0, 0, 1]).is_err());
        assert_eq!(f_seid(&[2, 0, 0]).unwrap_err().cause, Cause::InvalidLength);
    }

    /// Conformance: TS 29.244 8.2.62 | An address that no host can have is refused (cause 69)
    #[test]
    fn ue_addresses_are_those_of_hosts() {
        assert!(ue_ip_address(&[2, 10, 60, 0, 1]).is_ok());
        for addr in [[0, 0, 0, 0], [127, 0, 0, 1], [224, 0, 0, 1], [240, 0, 0, 1], [255; 4], [169, 254, 0, 1]]
        {
            let fault = ue_ip_address(&[&[2][..], &addr].concat()).unwrap_err();
            assert_eq!(
                (fault.cause, fault.offending_ie),
                (Cause::MandatoryIeIncorrect, Some(93)),
                "{addr:?}"
            );
        }
        for addr in ["::", "::1", "ff02::1", "fe80::"] {
            let octets = addr.parse::<std::net::Ipv6Addr>().unwrap().octets();
            assert!(ue_ip_address(&[&[1][..], &octets].concat()).is_err(), "{addr}");
        }
    }

    #[test]
    fn ue_prefixes_are_as_long_as_is_said_or_delegation_leaves() {
        for (length, delegated, expected) in [
            (None, None, 64),
            (Some(1), None, 1),
            (Some(128), None, 128),
            (Some(48), Some(4), 48),
            (None, Some(0), 64),
            (None, Some(8), 56),
            (None, Some(63), 1),
        ] {
            assert_eq!(ue_prefix_length(length, delegated), Ok(expected), "{length:?} {delegated:?}");
        }
        for (length, delegated) in [(Some(0), None), (Some(129), None), (None, Some(64)), (None, Some(255))] {
            let fault = ue_prefix_length(length, delegated).unwrap_err();
            assert_eq!((fault.cause, fault.offending_ie), (Cause::MandatoryIeIncorrect, Some(93)));
        }
    }

    #[test]
    fn spare_bits_of_an_interface_do_not_matter() {
        let kind = IeType::DestinationInterface;
        assert_eq!(interface(kind, &[0xf1]).unwrap(), Interface::Core);
        assert_eq!(interface(kind, &[5]).unwrap(), Interface::VnInternal);
        assert_eq!(interface(IeType::SourceInterface, &[4]).unwrap(), Interface::VnInternal);
        let fault = interface(kind, &[9]).unwrap_err();
        assert_eq!((fault.cause, fault.offending_ie), (Cause::MandatoryIeIncorrect, Some(42)));
    }
}
