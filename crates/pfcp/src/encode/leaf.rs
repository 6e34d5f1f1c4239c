//! Elements that several groups have.

use kaido_n4::{OuterHeaderCreation, SdfFilter};
use rs_pfcp::ie::{Ie, IeType};

use super::number;

/// SDF Filter (8.2.5) with all its parts; `rs-pfcp` writes the flow description alone.
pub(super) fn sdf_filter(filter: &SdfFilter) -> Ie {
    let flags = 1
        | u8::from(filter.tos.is_some()) << 1
        | u8::from(filter.spi.is_some()) << 2
        | u8::from(filter.flow_label.is_some()) << 3
        | u8::from(filter.id.is_some()) << 4;
    let text = filter.description().to_string();
    let mut value = vec![flags, 0];
    value.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes());
    value.extend_from_slice(text.as_bytes());
    value.extend(filter.tos.iter().flat_map(|&(octet, mask)| [octet, mask]));
    value.extend(filter.spi.iter().flat_map(|spi| spi.to_be_bytes()));
    value.extend(filter.flow_label.iter().flat_map(|label| label.to_be_bytes().into_iter().skip(1)));
    value.extend(filter.id.iter().flat_map(|id| id.to_be_bytes()));
    Ie::new(IeType::SdfFilter, value)
}

/// An SDF Filter that is only named (BID).
pub(super) fn sdf_filter_id(id: u32) -> Ie {
    let [a, b, c, d] = id.to_be_bytes();
    number(IeType::SdfFilter, [1 << 4, 0, a, b, c, d])
}

/// Outer Header Creation (8.2.56) of a tunnel.
pub(super) fn header_creation(tunnel: &OuterHeaderCreation) -> Ie {
    let mut element = rs_pfcp::ie::outer_header_creation::OuterHeaderCreation::new(Default::default());
    element.description.gtpu_udp_ipv4 = tunnel.ipv4.is_some();
    element.description.gtpu_udp_ipv6 = tunnel.ipv6.is_some();
    element.teid = Some(tunnel.teid.0.into());
    element.ipv4_address = tunnel.ipv4;
    element.ipv6_address = tunnel.ipv6;
    Ie::new(IeType::OuterHeaderCreation, element.marshal())
}

/// Transport Level Marking (8.2.12): the octet, all of it.
pub(super) fn marking(octet: u8) -> Ie {
    number(IeType::TransportLevelMarking, [octet, 0xff])
}
