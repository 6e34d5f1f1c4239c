//! Information elements (TS 29.244 8.1.1) as type, length and value, walked within their bounds.
//!
//! The whole tree of a message is measured before any value is decoded. An element that reaches past the
//! one it lies in is refused with cause 68 and its own type as the offending one. Elements we do not know,
//! and a vendor's own (type bit 15), are stepped over (7.6.6).

use arrayvec::ArrayVec;
use kaido_n4::{Cause, Rejection};
use rs_pfcp::error::PfcpError;
use rs_pfcp::ie::IeType;

/// Groups within groups: Create FAR > Forwarding Parameters > (nothing we know). One to spare.
const DEPTH_MAX: u8 = 4;
const VENDOR: u16 = 0x8000;

/// The type and value of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Element<'a> {
    pub(crate) kind: u16,
    pub(crate) value: &'a [u8],
}

/// Elements of a group that take no memory of their own: more than rules have, and as many as messages of a few rules.
const ELEMENTS_INLINE: usize = 16;

/// The elements of a message or of a grouped element, in order.
#[derive(Clone, Debug)]
pub(crate) struct Group<'a> {
    first: ArrayVec<Element<'a>, ELEMENTS_INLINE>,
    /// Those for which there was no room.
    more: Vec<Element<'a>>,
}

impl<'a> Group<'a> {
    /// Reads a message's elements and measures everything nested in them.
    pub(crate) fn of_message(body: &'a [u8]) -> Result<Self, Rejection> {
        measure(body, None, DEPTH_MAX)?;
        Self::read(body, None)
    }

    /// Reads the elements of a grouped element.
    pub(crate) fn of(kind: IeType, value: &'a [u8]) -> Result<Self, Rejection> {
        Self::read(value, Some(kind as u16))
    }

    fn read(octets: &'a [u8], parent: Option<u16>) -> Result<Self, Rejection> {
        let mut group = Self { first: ArrayVec::new(), more: Vec::new() };
        for element in (ElementIter { rest: octets, parent }).filter(known) {
            if let Err(full) = group.first.try_push(element?) {
                group.more.push(full.element());
            }
        }
        Ok(group)
    }

    fn elements(&self) -> impl Iterator<Item = &Element<'a>> {
        self.first.iter().chain(&self.more)
    }

    /// The first element of a type; further ones are ignored where one is expected (7.6.8).
    pub(crate) fn first(&self, kind: IeType) -> Option<&'a [u8]> {
        self.all(kind).next()
    }

    /// The first element of a type that has a value. In an update an element of null length takes away what it is
    /// about (5.6.3); [`Self::removes`] asks for that.
    pub(crate) fn present(&self, kind: IeType) -> Option<&'a [u8]> {
        self.first(kind).filter(|value| !value.is_empty())
    }

    /// Whether the first element of a type has null length.
    pub(crate) fn removes(&self, kind: IeType) -> bool {
        self.first(kind).is_some_and(<[u8]>::is_empty)
    }

    /// All elements of a type.
    pub(crate) fn all(&self, kind: IeType) -> impl Iterator<Item = &'a [u8]> + '_ {
        self.elements().filter(move |e| e.kind == kind as u16).map(|e| e.value)
    }

    /// A mandatory element: missing is cause 66, empty is 68 (7.6.4, 7.6.5).
    pub(crate) fn mandatory(&self, kind: IeType) -> Result<&'a [u8], Rejection> {
        let value = self.first(kind).ok_or_else(|| missing(Cause::MandatoryIeMissing, kind))?;
        if value.is_empty() { Err(too_short(kind, 1, 0)) } else { Ok(value) }
    }

    /// A conditional element whose condition is met: missing is cause 67.
    pub(crate) fn conditional(&self, kind: IeType) -> Result<&'a [u8], Rejection> {
        self.first(kind).ok_or_else(|| missing(Cause::ConditionalIeMissing, kind))
    }

    /// Refuses the message if it asks for something that is not done here (cause 76).
    pub(crate) fn refuse(&self, unsupported: &[IeType]) -> Result<(), Rejection> {
        let found = self.elements().find(|e| unsupported.iter().any(|&kind| kind as u16 == e.kind));
        found.map_or(Ok(()), |e| {
            Err(Rejection::new(Cause::ServiceNotSupported, "asks for a feature not advertised").ie(e.kind))
        })
    }
}

/// Steps from element to element.
struct ElementIter<'a> {
    rest: &'a [u8],
    parent: Option<u16>,
}

impl<'a> Iterator for ElementIter<'a> {
    type Item = Result<Element<'a>, Rejection>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let octets = std::mem::take(&mut self.rest);
        let &[kind_high, kind_low, length_high, length_low, ref value @ ..] = octets else {
            let fault = Rejection::new(Cause::InvalidLength, "octets left over that are no element");
            return Some(Err(match self.parent {
                Some(kind) => fault.ie(kind),
                None => fault,
            }));
        };
        let kind = u16::from_be_bytes([kind_high, kind_low]);
        let length = usize::from(u16::from_be_bytes([length_high, length_low]));
        let Some((value, rest)) = value.split_at_checked(length) else {
            let detail = format!("element {kind} of {length} octets overruns what it lies in");
            return Some(Err(Rejection::new(Cause::InvalidLength, detail).ie(kind)));
        };
        self.rest = rest;
        Some(Ok(Element { kind, value }))
    }
}

/// The first element of a type in a message that may be broken behind it: to address a refusal.
pub(crate) fn peek(body: &[u8], kind: IeType) -> Option<&[u8]> {
    let walk = ElementIter { rest: body, parent: None };
    walk.map_while(Result::ok).find(|element| element.kind == kind as u16).map(|element| element.value)
}

/// Vendors' elements are stepped over; errors stay.
fn known(element: &Result<Element<'_>, Rejection>) -> bool {
    element.as_ref().map_or(true, |e| e.kind & VENDOR == 0)
}

/// Checks that every nested element lies within its group.
fn measure(octets: &[u8], parent: Option<u16>, depth: u8) -> Result<(), Rejection> {
    for element in (ElementIter { rest: octets, parent }) {
        let Element { kind, value } = element?;
        if is_group(kind) && depth > 0 {
            measure(value, Some(kind), depth - 1)?;
        }
    }
    Ok(())
}

/// The grouped elements that we read or write (TS 29.244 table 8.1.2-1).
fn is_group(kind: u16) -> bool {
    use IeType as T;
    matches!(
        IeType::from(kind),
        T::CreatePdr
            | T::Pdi
            | T::CreateFar
            | T::ForwardingParameters
            | T::DuplicatingParameters
            | T::UpdateDuplicatingParameters
            | T::CreateUrr
            | T::CreateQer
            | T::CreateBar
            | T::CreatedPdr
            | T::UpdatePdr
            | T::UpdateFar
            | T::UpdateForwardingParameters
            | T::UpdateUrr
            | T::UpdateQer
            | T::UpdateBar
            | T::UpdateBarWithinSessionReportResponse
            | T::RemovePdr
            | T::RemoveFar
            | T::RemoveUrr
            | T::RemoveQer
            | T::RemoveBar
            | T::QueryUrr
            | T::CreateTrafficEndpoint
            | T::ApplicationIdsPfds
            | T::PfdContext
            | T::UpdateTrafficEndpoint
            | T::RemoveTrafficEndpoint
            | T::CreatedTrafficEndpoint
            | T::AdditionalMonitoringTime
            | T::CreateSrr
            | T::UpdateSrr
            | T::RemoveSrr
            | T::QosMonitoringPerQosFlowControlInformation
            | T::UsageReportWithinSessionModificationResponse
            | T::UsageReportWithinSessionDeletionResponse
            | T::UsageReportWithinSessionReportRequest
            | T::DownlinkDataReport
            | T::ErrorIndicationReport
            | T::PfcpSessionRetentionInformation
            | T::PfcpSessionChangeInfo
            | T::UserPlanePathFailureReport
            | T::UserPlanePathRecoveryReport
            | T::PeerUpRestartReport
            | T::EthernetPacketFilter
            | T::EthernetContextInformation
            | T::EthernetTrafficInformation
    )
}

fn missing(cause: Cause, kind: IeType) -> Rejection {
    Rejection::new(cause, format!("{kind:?} is missing")).ie(kind as u16)
}

/// An element shorter than its type demands (7.6.5).
pub(crate) fn too_short(kind: IeType, expected: usize, actual: usize) -> Rejection {
    let detail = format!("{kind:?} has {actual} octets, needs {expected}");
    Rejection::new(Cause::InvalidLength, detail).ie(kind as u16)
}

/// An element whose value means nothing, or nothing here (7.6.7).
pub(crate) fn incorrect(kind: IeType, detail: impl Into<String>) -> Rejection {
    Rejection::new(Cause::MandatoryIeIncorrect, detail).ie(kind as u16)
}

/// A value asked for that is not done here.
pub(crate) fn unsupported(kind: IeType, detail: impl Into<String>) -> Rejection {
    Rejection::new(Cause::ServiceNotSupported, detail).ie(kind as u16)
}

/// Turns the verdict of one of `rs-pfcp`'s typed elements into ours.
pub(crate) fn typed<T>(kind: IeType, decoded: Result<T, PfcpError>) -> Result<T, Rejection> {
    decoded.map_err(|error| match error {
        PfcpError::InvalidLength { expected, actual, .. } => too_short(kind, expected, actual),
        PfcpError::ZeroLengthNotAllowed { .. } => too_short(kind, 1, 0),
        other => incorrect(kind, other.to_string()),
    })
}

/// The first `N` octets of an element; later releases may add more behind them (8.1.1).
pub(crate) fn octets<const N: usize>(kind: IeType, value: &[u8]) -> Result<[u8; N], Rejection> {
    value.first_chunk().copied().ok_or_else(|| too_short(kind, N, value.len()))
}

/// The parts of an element, one behind the other.
pub(crate) struct Parts<'a> {
    kind: IeType,
    rest: &'a [u8],
    whole: usize,
}

impl<'a> Parts<'a> {
    /// The parts from an octet on.
    pub(crate) fn of(kind: IeType, value: &'a [u8], from: usize) -> Self {
        Self { kind, rest: value.get(from..).unwrap_or_default(), whole: value.len() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// A part of a fixed length.
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], Rejection> {
        let Some((part, rest)) = self.rest.split_first_chunk::<N>() else { return Err(self.short(N)) };
        self.rest = rest;
        Ok(*part)
    }

    /// A part with its length in two octets before it.
    pub(crate) fn counted(&mut self) -> Result<&'a [u8], Rejection> {
        let length = usize::from(u16::from_be_bytes(self.take()?));
        let Some((part, rest)) = self.rest.split_at_checked(length) else { return Err(self.short(length)) };
        self.rest = rest;
        Ok(part)
    }

    fn short(&self, wanted: usize) -> Rejection {
        too_short(self.kind, self.whole - self.rest.len() + wanted, self.whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut octets = kind.to_be_bytes().to_vec();
        octets.extend_from_slice(&u16::try_from(value.len()).unwrap().to_be_bytes());
        octets.extend_from_slice(value);
        octets
    }

    #[test]
    fn finds_elements_and_skips_vendors_and_unknown_ones() {
        let mut body = element(0x8001, &[0, 1, 9]);
        body.extend(element(0x7fff, &[]));
        body.extend(element(60, &[0, 10, 0, 0, 1]));
        body.extend(element(60, &[0, 10, 0, 0, 2]));
        let group = Group::of_message(&body).unwrap();
        assert_eq!(group.first(IeType::NodeId), Some(&[0, 10, 0, 0, 1][..]));
        assert_eq!(group.all(IeType::NodeId).count(), 2);
        assert_eq!(group.elements().count(), 3);
    }

    #[test]
    fn elements_beyond_those_with_room_stay_in_order() {
        let body: Vec<u8> = (0..40).flat_map(|n| element(60, &[0, 10, 0, 0, n])).collect();
        let group = Group::of_message(&body).unwrap();
        assert!(group.all(IeType::NodeId).map(|value| value[4]).eq(0..40));
        assert!(group.refuse(&[IeType::NodeId]).is_err());
    }

    #[test]
    fn overrun_names_the_child() {
        let mut child = element(20, &[0]);
        child[3] = 9;
        let body = element(1, &element(2, &child));
        let fault = Group::of_message(&body).unwrap_err();
        assert_eq!((fault.cause, fault.offending_ie), (Cause::InvalidLength, Some(20)));
    }

    #[test]
    fn left_over_octets_name_the_parent() {
        let body = element(1, &[0, 56, 0]);
        let fault = Group::of_message(&body).unwrap_err();
        assert_eq!((fault.cause, fault.offending_ie), (Cause::InvalidLength, Some(1)));
        assert_eq!(Group::of_message(&[1]).unwrap_err().offending_ie, None);
    }

    #[test]
    fn nesting_is_bounded() {
        let mut body = Vec::new();
        for _ in 0..1000 {
            body = element(1, &body);
        }
        assert!(Group::of_message(&body).is_ok());
    }

    #[test]
    fn missing_empty_and_refused() {
        let body = element(60, &[]);
        let group = Group::of_message(&body).unwrap();
        assert_eq!(group.mandatory(IeType::NodeId).unwrap_err().cause, Cause::InvalidLength);
        let fault = group.mandatory(IeType::Fseid).unwrap_err();
        assert_eq!((fault.cause, fault.offending_ie), (Cause::MandatoryIeMissing, Some(57)));
        assert_eq!(group.conditional(IeType::Fseid).unwrap_err().cause, Cause::ConditionalIeMissing);
        assert_eq!(group.refuse(&[IeType::NodeId]).unwrap_err().cause, Cause::ServiceNotSupported);
        assert!(group.refuse(&[IeType::Fseid]).is_ok());
    }
}
