//! SDF Filter (TS 29.244 8.2.5), in PDIs and in Ethernet Packet Filters.

use kaido_n4::{Rejection, SdfFilter};
use rs_pfcp::ie::IeType;

use crate::walk::{Parts, incorrect, octets};

/// An SDF Filter element: a filter, or the name of one that the session has.
#[derive(Debug, PartialEq)]
pub(super) enum SdfElement {
    Whole(SdfFilter),
    Named(u32),
}

/// SDF Filter (8.2.5): `BID FL SPI TTC FD` in the first octet, then each part that is there.
pub(super) fn sdf_filter(value: &[u8]) -> Result<SdfElement, Rejection> {
    const KIND: IeType = IeType::SdfFilter;
    let [flags, _spare] = octets::<2>(KIND, value)?;
    let mut parts = Parts::of(KIND, value, 2);
    let text = if flags & 1 != 0 { Some(parts.counted()?) } else { None };
    let tos = if flags & 2 != 0 { Some(parts.take::<2>()?) } else { None };
    let spi = if flags & 4 != 0 { Some(parts.take::<4>()?) } else { None };
    let label = if flags & 8 != 0 { Some(parts.take::<3>()?) } else { None };
    let id = if flags & 16 != 0 { Some(u32::from_be_bytes(parts.take()?)) } else { None };

    let filter = match (text, id) {
        (Some(text), _) => parse_flow(text)?,
        (None, Some(id)) if flags & 0x0e == 0 => return Ok(SdfElement::Named(id)),
        (None, _) if flags & 0x0e != 0 => SdfFilter::default(),
        (None, _) => return Err(incorrect(KIND, "a filter that filters nothing")),
    };
    Ok(SdfElement::Whole(SdfFilter {
        tos: tos.map(|[value, mask]| (value, mask)),
        spi: spi.map(u32::from_be_bytes),
        flow_label: label.map(|[a, b, c]| u32::from_be_bytes([0, a & 0x0f, b, c])),
        id,
        ..filter
    }))
}

/// An SDF Filter in an Ethernet Packet Filter, which has no name to be used again by.
pub(super) fn whole_sdf_filter(value: &[u8]) -> Result<SdfFilter, Rejection> {
    match sdf_filter(value)? {
        SdfElement::Whole(filter) => Ok(filter),
        SdfElement::Named(_) => Err(incorrect(IeType::SdfFilter, "a filter that is only named")),
    }
}

fn parse_flow(text: &[u8]) -> Result<SdfFilter, Rejection> {
    const KIND: IeType = IeType::SdfFilter;
    let text = std::str::from_utf8(text).map_err(|_| incorrect(KIND, "a flow description is text"))?;
    // Some control planes count the closing zero of a C string.
    SdfFilter::parse(text.trim_end_matches('\0')).map_err(|error| incorrect(KIND, error.to_string()))
}

#[cfg(test)]
mod tests {
    use kaido_n4::Cause;

    use super::*;

    const FLOW: &[u8] = b"permit out udp from 10.0.0.0/8 to assigned";

    fn sdf(flags: u8, tail: &[u8]) -> Vec<u8> {
        let mut value = vec![flags, 0];
        if flags & 1 != 0 {
            value.extend_from_slice(&u16::try_from(FLOW.len()).unwrap().to_be_bytes());
            value.extend_from_slice(FLOW);
        }
        value.extend_from_slice(tail);
        value
    }

    #[test]
    fn sdf_filters_keep_all_their_parts() {
        let tail = [0xb8, 0xfc, 0, 0, 1, 2, 0xff, 0x01, 0x02, 0, 0, 0, 7];
        let value = sdf(0x1f, &tail);
        let SdfElement::Whole(filter) = sdf_filter(&value).unwrap() else { panic!("only named") };
        assert_eq!(filter.protocol, Some(17));
        assert_eq!((filter.tos, filter.spi), (Some((0xb8, 0xfc)), Some(258)));
        assert_eq!((filter.flow_label, filter.id), (Some(0xf0102), Some(7)));
        for end in 0..value.len() {
            assert_eq!(sdf_filter(&value[..end]).unwrap_err().cause, Cause::InvalidLength, "{end}");
        }
        assert_eq!(sdf_filter(&[0x10, 0, 0, 0, 0, 7]), Ok(SdfElement::Named(7)));
        assert!(sdf_filter(&[0, 0]).is_err());
        let marked = SdfFilter { tos: Some((0xb8, 0xff)), ..SdfFilter::default() };
        assert_eq!(sdf_filter(&[2, 0, 0xb8, 0xff]), Ok(SdfElement::Whole(marked)));
    }
}
