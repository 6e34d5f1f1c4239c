//! From the rule model to messages: elements by `rs-pfcp`, headers and lengths by us.

mod bar;
mod ethernet;
mod leaf;
mod report;
mod request;
mod response;
mod srr;
mod steering;
mod urr;

pub(crate) use report::{packet_rate_status, session_ended, session_report, usage_report};
pub(crate) use request::{establishment, modification};
pub(crate) use response::{
    accepted_establishment, created_pdrs, created_traffic_endpoints, rejection, updated_pdrs,
};
pub(crate) use srr::session_rule_report;

use std::net::IpAddr;
use std::time::SystemTime;

use kaido_n4::{FSeid, Seid};
use rs_pfcp::ie::cause::{Cause as CauseIe, CauseValue};
use rs_pfcp::ie::recovery_time_stamp::RecoveryTimeStamp;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;
use rs_pfcp::message::header::Header;

/// Longest message built: what a UDP datagram over IPv6 holds, with room to spare.
const MESSAGE_MAX: usize = 60_000;

/// A message being put together.
pub(crate) struct Draft {
    header: Header,
    elements: Vec<u8>,
}

impl Draft {
    /// A node related message: no SEID.
    pub(crate) fn node(kind: MsgType, sequence: u32) -> Self {
        Self { header: Header::new(kind, false, 0, sequence), elements: Vec::with_capacity(64) }
    }

    /// A session related message to the peer's `seid`; zero when the peer has none (7.2.2.4.2).
    pub(crate) fn session(kind: MsgType, seid: Seid, sequence: u32) -> Self {
        Self { header: Header::new(kind, true, seid.0, sequence), elements: Vec::with_capacity(128) }
    }

    /// Appends an element.
    pub(crate) fn push(&mut self, element: &Ie) {
        if self.elements.len() + element.payload.len() + 4 > MESSAGE_MAX {
            tracing::warn!(element = element.raw_type(), "message full, element left out");
            return;
        }
        element.marshal_into(&mut self.elements);
    }

    /// Appends an element, in a chain.
    #[must_use]
    pub(crate) fn with(mut self, element: &Ie) -> Self {
        self.push(element);
        self
    }

    /// The message with its length filled in.
    pub(crate) fn bytes(mut self) -> Vec<u8> {
        let behind_length = usize::from(self.header.len()) - 4 + self.elements.len();
        self.header.length = u16::try_from(behind_length).unwrap_or(u16::MAX);
        let mut bytes = Vec::with_capacity(behind_length + 4);
        self.header.marshal_into(&mut bytes);
        bytes.extend_from_slice(&self.elements);
        bytes
    }
}

/// Cause 1.
pub(crate) fn accepted() -> Ie {
    Ie::from_marshal(IeType::Cause, CauseIe::new(CauseValue::RequestAccepted).marshal())
}

/// Recovery Time Stamp (8.2.65).
pub(crate) fn recovery(at: SystemTime) -> Ie {
    RecoveryTimeStamp::new(at).to_ie()
}

/// Seconds since 1900, as time stamps are sent.
pub(crate) fn ntp_seconds(at: SystemTime) -> u32 {
    RecoveryTimeStamp::new(at).ntp_seconds()
}

/// F-SEID with our addresses.
pub(crate) fn f_seid(f_seid: &FSeid) -> Ie {
    let value = rs_pfcp::ie::fseid::Fseid::new(f_seid.seid.0, f_seid.ipv4, f_seid.ipv6);
    Ie::new(IeType::Fseid, value.marshal())
}

/// A number as an element.
pub(crate) fn number<const N: usize>(kind: IeType, octets: [u8; N]) -> Ie {
    Ie::new(kind, octets.to_vec())
}

/// The address of a control plane that we can reach: IPv4 where we have it.
pub(crate) fn reachable(f_seid: &FSeid, have_ipv4: bool) -> Option<IpAddr> {
    let (v4, v6) = (f_seid.ipv4.map(IpAddr::V4), f_seid.ipv6.map(IpAddr::V6));
    if have_ipv4 { v4.or(v6) } else { v6.or(v4) }
}
