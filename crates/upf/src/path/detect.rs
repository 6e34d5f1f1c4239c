//! Packet detection (TS 29.244 5.2.1): the rule that a packet matches, by precedence.

use kaido_wire::IpProtocol;

use super::Worker;
use super::applications::Verdict;
use super::parse::Packet;
use crate::apps::{Apps, FlowEnds};
use crate::classify::Flow;
use crate::ids::AppNumber;
use crate::node::WorkerEvent;
use crate::record::{Record, RuleList, RuleView};
use crate::rule::Detection;
use crate::ue::{Direction, UeAddresses};
use kaido_n4::{FramedRoute, PdrId, SdfFilter};

impl Worker {
    /// The applications that a packet's flow belongs to by name, in a session whose rules ask for any.
    #[inline]
    pub(super) fn applications_of(
        &mut self,
        record: &Record,
        qfi: Option<u8>,
        packet: &Packet,
        data: &[u8],
    ) -> Apps {
        if !record.inspects() {
            return Apps::new();
        }
        let direction = record.direction();
        let flow = flow(direction, qfi, packet, data);
        self.flows.listen(&self.node.applications, (record.session(), direction), &flow, packet, data)
    }
}

impl Worker {
    /// Tells control of a packet's flow, which belongs to an application, unless it was told a moment ago.
    #[cold]
    pub(super) fn tell_application(
        &mut self,
        record: &Record,
        (pdr, app): (PdrId, AppNumber),
        qfi: Option<u8>,
        packet: &Packet,
        data: &[u8],
    ) {
        let flow = flow(record.direction(), qfi, packet, data);
        let session = record.session();
        if self.flows.is_news(session, &flow, self.now) {
            self.send_event(WorkerEvent::Application { session, pdr, app, flow: FlowEnds::of(&flow) });
        }
    }
}

/// The first rule, by precedence, that a packet matches.
pub(super) fn matching<'r>(
    rules: RuleList<'r>,
    record: &'r Record,
    qfi: Option<u8>,
    packet: &Packet,
    data: &[u8],
    verdict: &Verdict<'_>,
) -> Option<RuleView<'r>> {
    let flow = flow(record.direction(), qfi, packet, data);
    match record.classifier() {
        Some(classifier) => {
            let found = classifier.find(&flow, |candidate| {
                let Some(rule) = rules.get(candidate.rule) else { return false };
                let rule = rule.detection();
                let filter = candidate.filter.and_then(|at| rule.sdf.get(at));
                is_own(rule, record, packet, &flow, verdict)
                    && filter.is_none_or(|sdf| sdf_matches(sdf, &flow, packet, data))
            });
            found.and_then(|candidate| rules.get(candidate.rule))
        }
        None => rules.iter().find(|rule| {
            let rule = rule.detection();
            is_own(rule, record, packet, &flow, verdict)
                && (rule.sdf.is_empty() || rule.sdf.iter().any(|sdf| sdf_matches(sdf, &flow, packet, data)))
        }),
    }
}

/// The flow of a packet, as the downlink sees it.
pub(super) fn flow(direction: Direction, qfi: Option<u8>, packet: &Packet, data: &[u8]) -> Flow {
    let ports = packet.ports(data);
    let (remote, local, ports) = match direction {
        Direction::Downlink => (packet.src, packet.dst, ports),
        Direction::Uplink => (packet.dst, packet.src, ports.map(|(src, dst)| (dst, src))),
    };
    Flow { remote, local, protocol: packet.protocol.0, ports, qfi }
}

/// Whether a packet satisfies what a rule asks for beside its filters.
fn is_own(rule: &Detection, record: &Record, packet: &Packet, flow: &Flow, verdict: &Verdict<'_>) -> bool {
    rule.qfis.is_none_or(|qfis| flow.qfi.is_some_and(|qfi| qfis >> (qfi & 63) & 1 != 0))
        && rule.app.is_none_or(|app| verdict.is(app, flow))
        && rule.ue.is_none_or(|ue| is_ue(&ue, &rule.framed, record.direction(), packet))
}

/// Whether the UE's end of a packet is one of its addresses, or in a network behind it.
fn is_ue(ue: &UeAddresses, framed: &[FramedRoute], direction: Direction, packet: &Packet) -> bool {
    let addr = match direction {
        Direction::Uplink => packet.src,
        Direction::Downlink => packet.dst,
    };
    ue.admits(addr) || framed.iter().any(|route| route.contains(addr))
}

/// Whether a packet satisfies a filter, written as the downlink sees it (TS 29.244 5.2.1A.2A).
pub(super) fn sdf_matches(sdf: &SdfFilter, flow: &Flow, packet: &Packet, data: &[u8]) -> bool {
    let (remote_port, local_port) = flow.ports.unzip();
    sdf.protocol.is_none_or(|protocol| protocol == flow.protocol)
        && sdf.remote.matches(flow.remote, remote_port)
        && sdf.local.matches(flow.local, local_port)
        && sdf.tos.is_none_or(|(value, mask)| packet.tos & mask == value & mask)
        && sdf.flow_label.is_none_or(|label| packet.flow_label == Some(label))
        && sdf.spi.is_none_or(|spi| security_parameter_index(packet, data) == Some(spi))
}

/// The SPI of an ESP or AH packet (RFC 4303 2, RFC 4302 2).
fn security_parameter_index(packet: &Packet, data: &[u8]) -> Option<u32> {
    let at = match packet.protocol {
        IpProtocol::ESP => packet.upper_offset,
        IpProtocol::AH => packet.upper_offset + 4,
        _ => return None,
    };
    let bytes = data.get(at..)?.first_chunk::<4>()?;
    (!packet.is_fragment).then(|| u32::from_be_bytes(*bytes))
}
