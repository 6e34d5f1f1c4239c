//! The user plane's figures, as families of samples.

use std::sync::Arc;

use kaido_metrics::{Exposition, Family};
use kaido_node::board::PortBoard;
use kaido_node::metrics::one;
use kaido_otlp::{ExportCounts, Monitor};
use kaido_upf::control::PathSummary;
use kaido_upf::node::Node;
use kaido_upf::record::RecordForm;
use kaido_upf_xdp::offload::{OffloadCounters, OffloadDirection, PassReason};

use super::{Controls, families as f};
use crate::exposure::ExposureCounts;
use crate::flows::FlowCounts;
use crate::offload::KernelCounts;
use crate::ports::KernelCounters;

/// Where figures are read that the control loop is not asked for.
pub(crate) struct Sources {
    pub(crate) board: PortBoard,
    pub(crate) node: Arc<Node>,
    /// Of the datapath in the kernel, where there is one.
    pub(crate) kernel: Option<KernelCounters>,
    /// Of procedures for a collector, where there is one.
    pub(crate) procedures: Option<Monitor>,
}

impl Sources {
    /// What the kernel's datapath has counted, by port.
    pub(super) fn in_kernel(&self) -> Vec<KernelCounts> {
        self.kernel.as_ref().map(KernelCounters::read).unwrap_or_default()
    }

    /// The user plane's families.
    pub(super) fn render(&self, controls: &Controls, in_kernel: &[KernelCounts], out: &mut Exposition) {
        self.sessions(controls, out);
        if let Some(records) = controls.kernel_records {
            self.kernel(records, in_kernel, out);
        }
        let (told, waiting) = self.node.events();
        one(out, &f::EVENTS, told);
        one(out, &f::EVENTS_WAITING, waiting);
        let journal = controls.store.map(|store| store.journal).unwrap_or_default();
        one(out, &f::STORE_BATCHES, journal.batches);
        one(out, &f::STORE_BYTES, journal.octets);
        one(out, &f::STORE_SEGMENTS, journal.segments);
        one(out, &f::STORE_FAILURES, journal.failures);
        one(out, &f::STORE_FAILING, journal.is_failing);
        flows(&controls.flows.unwrap_or_default(), out);
        exposure(&controls.exposure.unwrap_or_default(), out);
        otlp(&self.procedures.as_ref().map(Monitor::counts).unwrap_or_default(), out);
        pfcp(controls, out);
        paths(controls, out);
    }

    fn sessions(&self, controls: &Controls, out: &mut Exposition) {
        one(out, &f::SESSIONS, controls.sessions);
        one(out, &f::SESSIONS_LIMIT, self.node.settings.sessions_max);
        let mut family = out.family(&f::SESSIONS_BY_FORM);
        for form in RecordForm::all() {
            let count =
                controls.forms.iter().find(|(known, _)| *known == form).map_or(0, |(_, count)| *count);
            let reason = if let RecordForm::Wide(reason) = form { reason.name() } else { "" };
            family.add(&[form.name(), reason], count);
        }
        let mut family = out.family(&f::SLOW_PATH);
        for (reason, count) in self.node.slow_path.totals() {
            family.add(&[reason.name()], count);
        }
        let volume = controls.volume;
        out.family(&f::SESSION_BYTES)
            .add(&["uplink"], volume.uplink_bytes)
            .add(&["downlink"], volume.downlink_bytes);
        out.family(&f::SESSION_PACKETS)
            .add(&["uplink"], volume.uplink_packets)
            .add(&["downlink"], volume.downlink_packets);
        one(out, &f::BUFFERED_PACKETS, self.node.buffered.packets());
        one(out, &f::BUFFERED_BYTES, self.node.buffered.taken());
        one(out, &f::BUFFERED_BYTES_LIMIT, self.node.buffered.max());
        one(out, &f::REASSEMBLY_PACKETS, self.node.fragments.waiting());
        let (table, memory) = (&self.node.table, self.node.table.memory());
        one(out, &f::TABLE_RECORDS, table.len());
        one(out, &f::TABLE_RECORDS_LIMIT, table.capacity());
        one(out, &f::TABLE_SLOTS, memory.slots);
        out.family(&f::TABLE_BYTES)
            .add(&["index"], memory.index_bytes)
            .add(&["records"], memory.record_bytes);
    }

    fn kernel(&self, records: usize, in_kernel: &[KernelCounts], out: &mut Exposition) {
        one(out, &f::KERNEL_RECORDS, records);
        let ports = self.board.list();
        let directions = [("uplink", OffloadDirection::Uplink), ("downlink", OffloadDirection::Downlink)];
        let mut by_way = |family: &'static Family, value: fn(&OffloadCounters, OffloadDirection) -> u64| {
            let mut samples = out.family(family);
            for (port, counters) in ports.iter().zip(in_kernel) {
                for (name, direction) in directions {
                    samples.add(&[&port.name, name], value(&counters.offload, direction));
                }
            }
        };
        by_way(&f::KERNEL_PACKETS, OffloadCounters::packets);
        by_way(&f::KERNEL_BYTES, OffloadCounters::bytes);
        let mut handed = out.family(&f::KERNEL_HANDED);
        for hand in PassReason::ALL {
            let packets: u64 = in_kernel.iter().map(|counters| counters.offload.handed(hand)).sum();
            handed.add(&[hand.name()], packets);
        }
    }
}

fn exposure(counts: &ExposureCounts, out: &mut Exposition) {
    let ExposureCounts { subscriptions: of, requests: [done, refused], notifier } = counts;
    let [attempts, unreachable, refusing, no_room] = *notifier;
    one(out, &f::EXPOSURE_SUBSCRIPTIONS, of.subscriptions);
    out.family(&f::EXPOSURE_REQUESTS).add(&["done"], *done).add(&["refused"], *refused);
    out.family(&f::EXPOSURE_NOTIFICATIONS)
        .add(&["acknowledged"], of.acknowledged)
        .add(&["given_up"], of.failed);
    one(out, &f::EXPOSURE_ATTEMPTS, attempts);
    out.family(&f::EXPOSURE_FAILURES)
        .add(&["unreachable"], unreachable)
        .add(&["refused"], refusing)
        .add(&["no_room"], no_room);
    one(out, &f::EXPOSURE_LOST, of.lost);
}

fn otlp(counts: &ExportCounts, out: &mut Exposition) {
    let [unreachable, busy, refusing] = counts.failures;
    one(out, &f::OTLP_PROCEDURES, counts.exported);
    out.family(&f::OTLP_LOST)
        .add(&["queue_full"], counts.queue_full)
        .add(&["given_up"], counts.given_up)
        .add(&["refused"], counts.refused);
    out.family(&f::OTLP_FAILURES)
        .add(&["unreachable"], unreachable)
        .add(&["busy"], busy)
        .add(&["refused"], refusing);
    one(out, &f::OTLP_REJECTED, counts.rejected_spans);
}

fn flows(counts: &FlowCounts, out: &mut Exposition) {
    let FlowCounts { sessions, sampled, .. } = *counts;
    let both = sessions.plus(sampled);
    one(out, &f::IPFIX_MESSAGES, both.messages);
    one(out, &f::IPFIX_FAILURES, both.failures);
    out.family(&f::IPFIX_RECORDS).add(&["sessions"], sessions.records).add(&["flows"], sampled.records);
    out.family(&f::IPFIX_LOST)
        .add(&["sessions"], counts.ended_lost)
        .add(&["samples"], counts.samples_lost)
        .add(&["flows"], counts.flows_lost);
}

fn pfcp(controls: &Controls, out: &mut Exposition) {
    let counters = &controls.pfcp;
    let mut messages = out.family(&f::PFCP_MESSAGES);
    for (name, [received, sent]) in counters.messages() {
        messages.add(&["received", name], received).add(&["sent", name], sent);
    }
    let mut rejections = out.family(&f::PFCP_REJECTIONS);
    counters.rejections().for_each(|(cause, count)| {
        rejections.add(&[cause], count);
    });
    let mut discards = out.family(&f::PFCP_DISCARDS);
    counters.discards().for_each(|(reason, count)| {
        discards.add(&[reason], count);
    });
    one(out, &f::PFCP_STRANGERS, controls.unknown_peers);
    one(out, &f::PFCP_ANSWERED_AGAIN, counters.retransmissions_answered);
    one(out, &f::PFCP_SENT_AGAIN, counters.retransmissions_sent);
    one(out, &f::PFCP_EXHAUSTED, counters.requests_exhausted);
    one(out, &f::PFCP_REFUSED, counters.requests_refused);
    one(out, &f::PFCP_REPORTS_RETURNED, counters.reports_returned);
    one(out, &f::PFCP_REPORTS_LOST, counters.reports_lost);
    one(out, &f::PFCP_PATH_FAILURES, counters.path_failures);
    one(out, &f::PFCP_PEER_RESTARTS, counters.peer_restarts);
    one(out, &f::PFCP_PURGED, counters.sessions_purged);
    one(out, &f::PFCP_ENDING, controls.ending);
    one(out, &f::PFCP_BUNDLES, counters.bundles);
    one(out, &f::PFCP_OUTSTANDING, controls.outstanding);
    let (percent, overflows) = controls.lag;
    one(out, &f::PFCP_QUEUE, f64::from(percent) / 100.0);
    one(out, &f::PFCP_OVERFLOWS, overflows);
    one(out, &f::REPORTS_LATE, controls.reports_late.as_secs_f64());
    one(out, &f::PFCP_PEERS, controls.peers.len());
    one(out, &f::PFCP_PEERS_UP, controls.peers.iter().filter(|peer| !peer.down).count());
    let named =
        || controls.peers.iter().map(|peer| (peer.node_id.to_string(), peer.address.to_string(), peer));
    let mut up = out.family(&f::PFCP_PEER_UP);
    named().for_each(|(node_id, address, peer)| {
        up.add(&[&node_id, &address], !peer.down);
    });
    let mut sessions = out.family(&f::PFCP_PEER_SESSIONS);
    named().for_each(|(node_id, address, peer)| {
        sessions.add(&[&node_id, &address], peer.sessions);
    });
}

fn paths(controls: &Controls, out: &mut Exposition) {
    let [up, down, asked] = controls.path_states;
    out.family(&f::GTPU_PATHS).add(&["up"], up).add(&["down"], down).add(&["asked"], asked);
    let mut by_peer = |family: &'static Family, value: fn(&PathSummary) -> Option<u64>| {
        let mut samples = out.family(family);
        for path in &controls.paths {
            if let Some(value) = value(path) {
                samples.add(&[&path.peer.to_string()], value);
            }
        }
    };
    by_peer(&f::GTPU_UP, |path| path.up.map(u64::from));
    by_peer(&f::GTPU_TUNNELS, |path| Some(path.tunnels.into()));
    by_peer(&f::GTPU_REQUESTS, |path| Some(path.requests));
    by_peer(&f::GTPU_RESPONSES, |path| Some(path.responses));
    by_peer(&f::GTPU_FAILURES, |path| Some(path.failures.into()));
    by_peer(&f::GTPU_RESTARTS, |path| Some(path.restarts.into()));
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::IpAddr;
    use std::time::Duration;

    use kaido_metrics::Format;
    use kaido_upf::node::NodeSettings;
    use kaido_upf::record::SlowPathCause;

    use super::*;
    use kaido_node::board::PortView;

    /// The text of a scrape.
    fn text() -> String {
        let settings = NodeSettings { sessions_max: 100, ..NodeSettings::default() };
        let port = |name: &str| PortView::steady(name, "driver", 1500);
        let board = PortBoard::new(vec![port("n3"), port("n6")]);
        let node = Node::new(settings).unwrap().0;
        let mut out = Exposition::new(Format::Text);
        Sources { board, node, kernel: None, procedures: None }.render(&controls(), &[], &mut out);
        out.finish()
    }

    fn controls() -> Controls {
        let path = PathSummary {
            peer: IpAddr::from([10, 0, 0, 9]),
            up: Some(false),
            tunnels: 2,
            requests: 3,
            responses: 1,
            failures: 1,
            restarts: 0,
        };
        Controls {
            sessions: 7,
            volume: kaido_n4::Volume { uplink_bytes: 10, ..Default::default() },
            forms: vec![
                (RecordForm::Folded, 4),
                (RecordForm::Lines, 2),
                (RecordForm::Wide(SlowPathCause::Filters), 1),
            ],
            kernel_records: Some(3),
            pfcp: kaido_pfcp::Counters::default(),
            ending: 0,
            outstanding: 0,
            unknown_peers: 0,
            store: None,
            flows: None,
            exposure: None,
            peers: vec![kaido_pfcp::Peer {
                node_id: kaido_pfcp::NodeId::from(IpAddr::from([10, 0, 0, 1])),
                address: "10.0.0.1:8805".parse().unwrap(),
                down: false,
                sessions: 7,
            }],
            paths: vec![path],
            path_states: [0, 1, 0],
            lag: (50, 2),
            reports_late: Duration::from_millis(1500),
        }
    }

    #[test]
    fn every_metric_is_there_once_and_no_sample_twice() {
        let text = text();
        let families: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        let seen: HashSet<&str> = families.iter().copied().collect();
        assert_eq!(seen.len(), families.len(), "each once");
        let all: HashSet<&str> = f::FAMILIES.iter().map(|family| family.name).collect();
        assert_eq!(seen, all);
        let series: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| Some(line.rsplit_once(' ')?.0))
            .collect();
        let unique: HashSet<&str> = series.iter().copied().collect();
        assert_eq!(unique.len(), series.len());
    }

    #[test]
    fn samples_say_what_was_counted() {
        let text = text();
        for line in [
            "kaido_sessions 7",
            "kaido_sessions_limit 100",
            "kaido_session_volume_bytes{direction=\"uplink\"} 10",
            "kaido_pfcp_receive_queue_ratio 0.5",
            "kaido_pfcp_receive_queue_overflows_total 2",
            "kaido_usage_reports_late_seconds 1.5",
            "kaido_pfcp_peer_up{node_id=\"10.0.0.1\",address=\"10.0.0.1:8805\"} 1",
            "kaido_gtpu_path_up{peer=\"10.0.0.9\"} 0",
            "kaido_gtpu_paths{state=\"down\"} 1",
            "kaido_kernel_records 3",
            "kaido_slow_path_packets_total{reason=\"rate\"} 0",
            "kaido_slow_path_packets_total{reason=\"filters\"} 0",
            "kaido_sessions_by_path{path=\"fast\",reason=\"\"} 4",
            "kaido_sessions_by_path{path=\"lines\",reason=\"\"} 2",
            "kaido_sessions_by_path{path=\"held\",reason=\"\"} 0",
            "kaido_sessions_by_path{path=\"wide\",reason=\"filters\"} 1",
            "kaido_sessions_by_path{path=\"wide\",reason=\"rules\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("reason=\"ndn_"), "no drop reasons of other functions");
    }
}
