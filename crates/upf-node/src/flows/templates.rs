//! What the records have: session flows in one Observation Domain, sampled flows in the next.
//!
//! A session's record has both directions (RFC 5103): forward is uplink, from the UE.

use std::net::IpAddr;
use std::time::SystemTime;

use kaido_ipfix::{Element, Exporter, Template, Value};
use kaido_upf::control::SessionFlow;

use super::sampled::{FlowOwner, SampledFlow};

/// What the record of a session has, with the elements of its addresses behind.
macro_rules! session {
    ($($address:ident),*) => {
        &[
            Element::FLOW_ID,
            Element::MOBILE_IMSI,
            Element::GTPU_TEID,
            Element::OCTET_DELTA_COUNT,
            Element::PACKET_DELTA_COUNT,
            Element::OCTET_DELTA_COUNT.reverse(),
            Element::PACKET_DELTA_COUNT.reverse(),
            Element::FLOW_START_MILLISECONDS,
            Element::FLOW_END_MILLISECONDS,
            Element::FLOW_END_REASON,
            $(Element::$address),*
        ]
    };
}

/// What the record of a sampled flow has.
macro_rules! flow {
    ($($address:ident),*) => {
        &[
            Element::FLOW_ID,
            Element::MOBILE_IMSI,
            Element::GTPU_TEID,
            Element::GTPU_QFI,
            Element::INTERFACE_NAME,
            Element::SOURCE_TRANSPORT_PORT,
            Element::DESTINATION_TRANSPORT_PORT,
            Element::PROTOCOL_IDENTIFIER,
            Element::IP_CLASS_OF_SERVICE,
            Element::TCP_CONTROL_BITS,
            Element::OCTET_DELTA_COUNT,
            Element::PACKET_DELTA_COUNT,
            Element::FLOW_START_MILLISECONDS,
            Element::FLOW_END_MILLISECONDS,
            Element::FLOW_END_REASON,
            $(Element::$address),*
        ]
    };
}

/// Of a session with an IPv4 address.
const SESSION_IPV4: Template = Template { number: 256, scope: 0, elements: session!(SOURCE_IPV4_ADDRESS) };
/// Of a session with an IPv6 prefix.
const SESSION_IPV6: Template =
    Template { number: 257, scope: 0, elements: session!(SOURCE_IPV6_ADDRESS, SOURCE_IPV6_PREFIX_LENGTH) };
/// Of a session with both.
const SESSION_BOTH: Template = Template {
    number: 258,
    scope: 0,
    elements: session!(SOURCE_IPV4_ADDRESS, SOURCE_IPV6_ADDRESS, SOURCE_IPV6_PREFIX_LENGTH),
};
/// Of a session without an address of its own, such as one of Ethernet.
const SESSION: Template = Template { number: 259, scope: 0, elements: session!() };
/// Of a sampled flow.
const FLOW_IPV4: Template =
    Template { number: 260, scope: 0, elements: flow!(SOURCE_IPV4_ADDRESS, DESTINATION_IPV4_ADDRESS) };
/// The same.
const FLOW_IPV6: Template =
    Template { number: 261, scope: 0, elements: flow!(SOURCE_IPV6_ADDRESS, DESTINATION_IPV6_ADDRESS) };
/// How packets are sampled (RFC 5477).
const SAMPLING: Template = Template {
    number: 262,
    scope: 1,
    elements: &[
        Element::OBSERVATION_DOMAIN_ID,
        Element::SELECTOR_ID,
        Element::SELECTOR_ALGORITHM,
        Element::SAMPLING_PACKET_INTERVAL,
        Element::SAMPLING_PACKET_SPACE,
    ],
};

/// Of the domain of sessions.
pub(super) const SESSIONS: &[Template] = &[SESSION_IPV4, SESSION_IPV6, SESSION_BOTH, SESSION];
/// Of the domain of sampled flows.
pub(super) const FLOWS: &[Template] = &[FLOW_IPV4, FLOW_IPV6];

/// Systematic count-based sampling (RFC 5477 section 8.2.2): what all collectors understand. That chance says which of so many packets
/// is taken changes nothing of what a record counts for.
const SYSTEMATIC: u16 = 1;

/// Why a record is exported (flowEndReason of RFC 7012).
mod reason {
    pub(super) const IDLE_TIMEOUT: u8 = 1;
    pub(super) const ACTIVE_TIMEOUT: u8 = 2;
    pub(super) const END_OF_FLOW: u8 = 3;
}

/// Tells collectors that one in `every` packets is sampled in a domain.
pub(super) fn with_sampling(exporter: Exporter, domain: u32, every: u32) -> Exporter {
    let (one, passed_over) = (Value::U32(1), Value::U32(every.saturating_sub(1)));
    let values = vec![Value::U32(domain), Value::U64(1), Value::U16(SYSTEMATIC), one, passed_over];
    exporter.with_option(&SAMPLING, values)
}

/// The record of a session: `to` is given its template and values.
pub(super) fn session(flow: &SessionFlow, to: impl FnOnce(&Template, &[Value<'_>])) {
    let SessionFlow { session, volume, .. } = flow;
    let imsi = session.imsi.map(|imsi| imsi.to_string()).unwrap_or_default();
    let reason = if flow.has_ended { reason::END_OF_FLOW } else { reason::ACTIVE_TIMEOUT };
    let mut values = vec![
        Value::U64(session.seid.0),
        Value::Text(&imsi),
        Value::U32(session.local.first().map_or(0, |(teid, _)| teid.0)),
        Value::U64(volume.uplink_bytes),
        Value::U64(volume.uplink_packets),
        Value::U64(volume.downlink_bytes),
        Value::U64(volume.downlink_packets),
        Value::U64(milliseconds(flow.from)),
        Value::U64(milliseconds(flow.to)),
        Value::U8(reason),
    ];
    values.extend(session.ue.ipv4.map(Value::Ipv4));
    if let Some(prefix) = session.ue.ipv6 {
        values.extend([Value::Ipv6(prefix.addr), Value::U8(prefix.len)]);
    }
    let template = match (session.ue.ipv4, session.ue.ipv6) {
        (Some(_), None) => &SESSION_IPV4,
        (None, Some(_)) => &SESSION_IPV6,
        (Some(_), Some(_)) => &SESSION_BOTH,
        (None, None) => &SESSION,
    };
    to(template, &values);
}

/// The record of a sampled flow, of a session and by a port: `to` is given its template and values.
pub(super) fn sampled(
    flow: &SampledFlow,
    owner: &FlowOwner,
    port: &str,
    to: impl FnOnce(&Template, &[Value<'_>]),
) {
    let SampledFlow { key, .. } = flow;
    let reason = match () {
        () if flow.has_ended() => reason::END_OF_FLOW,
        () if flow.is_idle() => reason::IDLE_TIMEOUT,
        () => reason::ACTIVE_TIMEOUT,
    };
    let mut values = vec![
        Value::U64(owner.seid),
        Value::Text(&owner.imsi),
        Value::U32(key.teid.unwrap_or_default()),
        Value::U8(flow.qfi),
        Value::Text(port),
        Value::U16(key.ports.0),
        Value::U16(key.ports.1),
        Value::U8(key.protocol),
        Value::U8(flow.tos),
        Value::U8(flow.tcp_flags),
        Value::U64(flow.octets),
        Value::U64(flow.packets),
        Value::U64(milliseconds(flow.first)),
        Value::U64(milliseconds(flow.last)),
        Value::U8(reason),
    ];
    let template = match (key.src, key.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            values.extend([Value::Ipv4(src), Value::Ipv4(dst)]);
            &FLOW_IPV4
        }
        (src, dst) => {
            values.extend([src, dst].map(|address| Value::Ipv6(as_ipv6(address))));
            &FLOW_IPV6
        }
    };
    to(template, &values);
}

/// Both addresses of a packet are of one family.
fn as_ipv6(address: IpAddr) -> std::net::Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

fn milliseconds(at: SystemTime) -> u64 {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
