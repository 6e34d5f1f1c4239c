//! Traces of sessions.

use std::net::IpAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use kaido_engine::PortId;
use kaido_n4::Seid;
use kaido_node::api::{self, Flow, Problem, TraceBegun, TraceOf};
use kaido_node::board::PortView;
use kaido_node::function::FlowSelector;
use kaido_node::port_trace::{
    READ_MAX, SNAP_MAX, frame, nanoseconds, no_trace, shown_disposition, too_many_traces, verdict,
};
use kaido_node::show::number;
use kaido_upf::UpfDrop;
use kaido_upf::control::{TraceBatch, TraceFilter, TracedPacket, Upf};
use kaido_upf::key::{KeyParts, SessionKey};
use kaido_upf::node::NodeSettings;
use kaido_upf::trace::WatchId;
use kaido_upf::ue::Direction;

/// Begins a trace.
pub(super) fn begin(
    upf: &mut Upf,
    ports: &[PortView],
    of: &TraceOf,
    snap: usize,
    now: SystemTime,
) -> Result<TraceBegun, Problem> {
    let filter = filter(of).map_err(Problem::bad_request)?;
    let WatchId(id) = upf.begin_trace(filter, snap.min(SNAP_MAX), now).ok_or_else(too_many_traces)?;
    Ok(TraceBegun { id, ports: ports.iter().map(|port| port.name.clone()).collect() })
}

/// Takes what one has brought.
pub(super) fn read(
    upf: &mut Upf,
    ports: &[PortView],
    id: u32,
    now: SystemTime,
) -> Result<api::TraceRead, Problem> {
    let batch = upf.read_trace(WatchId(id), READ_MAX, now).ok_or_else(no_trace)?;
    Ok(brought(&batch, ports, &upf.node().settings))
}

/// Ends one.
pub(super) fn end(upf: &mut Upf, id: u32, now: SystemTime) {
    upf.end_trace(WatchId(id), now);
}

/// The options that say whose packets are traced.
pub(crate) const SELECTORS: [FlowSelector; 2] = [
    FlowSelector {
        name: "ue",
        value_name: "ADDRESS",
        help: "A UE's address; the session that has it, both ways",
        check: |text| text.parse().map(|_: IpAddr| ()).map_err(|_| format!("`{text}` is no IP address")),
    },
    FlowSelector {
        name: "seid",
        value_name: "SEID",
        help: "A session's SEID, as `kaido sessions` shows it",
        check: |text| seid(text).map(|_| ()),
    },
];

/// Whose packets.
fn filter(of: &TraceOf) -> Result<TraceFilter, String> {
    match of {
        TraceOf::Flow(Flow { by, value }) if by == "ue" => {
            value.parse().map(TraceFilter::Ue).map_err(|_| format!("`{value}` is no IP address"))
        }
        TraceOf::Flow(Flow { by, value }) if by == "seid" => {
            seid(value).map(|seid| TraceFilter::Session(Seid(seid)))
        }
        TraceOf::Flow(Flow { by, .. }) => Err(format!("a user plane has no flows by {by}")),
        TraceOf::Ports(_) => {
            Err("this node is a user plane: say whose packets, with --ue ADDRESS or --seid SEID".to_owned())
        }
    }
}

/// Reads a SEID as a user writes it.
pub(crate) fn seid(text: &str) -> Result<u64, String> {
    number(text).ok_or_else(|| format!("`{text}` is no SEID; write 0x8000000000000001 or a decimal number"))
}

fn brought(batch: &TraceBatch, ports: &[PortView], settings: &NodeSettings) -> api::TraceRead {
    api::TraceRead {
        of: batch.sessions.iter().map(|&seid| shown(seid)).collect(),
        lost: batch.lost,
        packets: batch.packets.iter().map(|packet| traced(packet, ports, settings)).collect(),
    }
}

fn shown(seid: Seid) -> String {
    format!("{:#018x}", seid.0)
}

fn traced(packet: &TracedPacket, ports: &[PortView], settings: &NodeSettings) -> api::TracedPacket {
    let record = &packet.record;
    let rule = record.matched.map(|(pdr, _)| {
        let rules = packet.rules.as_ref();
        api::TracedRule {
            pdr: pdr.0.into(),
            precedence: rules.map(|rules| rules.precedence),
            far: rules.and_then(|rules| rules.far).map(|far| far.0),
            qers: rules.map(|rules| rules.qers.iter().map(|qer| qer.0).collect()).unwrap_or_default(),
            urrs: rules.map(|rules| rules.urrs.iter().map(|urr| urr.0).collect()).unwrap_or_default(),
        }
    });
    api::TracedPacket {
        time_ns: nanoseconds(record.at.duration_since(UNIX_EPOCH).unwrap_or_default()),
        seid: packet.seid.map(shown).unwrap_or_default(),
        direction: if record.direction == Direction::Uplink { "uplink" } else { "downlink" }.to_owned(),
        port: name(ports, record.port),
        key: key(&record.key, settings),
        qfi: record.qfi,
        rule,
        matched_ns: record.matched.map(|(_, after)| nanoseconds(after)),
        took_ns: nanoseconds(record.took),
        verdict: verdict(&record.dispositions, record.buffered).to_owned(),
        frame: frame(record.len, &record.head),
        dispositions: record
            .dispositions
            .iter()
            .map(|disposition| shown_disposition(disposition, UpfDrop::TABLE, |port| name(ports, port)))
            .collect(),
    }
}

fn name(ports: &[PortView], port: PortId) -> String {
    ports.get(port.index()).map_or_else(|| format!("port {}", port.0), |port| port.name.clone())
}

fn key(key: &SessionKey, settings: &NodeSettings) -> String {
    match key.parts() {
        KeyParts::Tunnel(endpoint, teid) => match settings.endpoints.get(usize::from(endpoint.0)) {
            Some(address) => format!("{teid}@{address}"),
            None => teid.to_string(),
        },
        KeyParts::Ipv4(_, address) => address.to_string(),
        KeyParts::Ipv6(_, address) => format!("{address}/64"),
        KeyParts::Member(instance) => format!("member of instance {}", instance.0),
        KeyParts::Framed(_, route) => route.to_string(),
        KeyParts::Ethernet(instance, false) => format!("Ethernet in instance {}", instance.0),
        KeyParts::Ethernet(instance, true) => format!("Ethernet member of instance {}", instance.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seids_are_read_as_they_are_shown() {
        assert_eq!(seid("0x8000000000000001"), Ok(0x8000_0000_0000_0001));
        assert_eq!(seid("17"), Ok(17));
        assert!(seid("0xsession").is_err());
    }

    #[test]
    fn a_flow_is_a_session_by_address_or_seid() {
        let flow = |by: &str, value: &str| TraceOf::Flow(Flow { by: by.to_owned(), value: value.to_owned() });
        assert!(matches!(filter(&flow("ue", "10.60.0.1")), Ok(TraceFilter::Ue(_))));
        assert!(matches!(filter(&flow("seid", "0x11")), Ok(TraceFilter::Session(Seid(17)))));
        assert!(filter(&flow("name", "/a")).is_err() && filter(&TraceOf::Ports(Vec::new())).is_err());
    }
}
