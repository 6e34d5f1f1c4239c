//! The figures as families of samples.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use kaido_engine::shared::{SharedTotals, cycles};
use kaido_engine::{DropReason, FramePool, HistogramTotals, PortId, PortTotals, WorkerCounters};
use kaido_metrics::{Buckets, Exposition, Family, Format, Value};
use kaido_upf::control::PathSummary;
use kaido_upf::node::Node;
use kaido_xdp::fastpath::{FastCounters, FastDirection, Hand};

use super::Controls;
use super::families as f;
use super::process::Process;
use crate::run::control::ShownPort;
use crate::run::fastpath;
use crate::run::ports::KernelCounters;

/// Where figures are read that the control loop is not asked for.
pub(in crate::run) struct Sources {
    pub(in crate::run) node_id: String,
    pub(in crate::run) datapath: &'static str,
    /// When the node started, by both clocks.
    pub(in crate::run) started: (SystemTime, Instant),
    /// The time stamp counter at that moment.
    pub(in crate::run) started_cycles: u64,
    pub(in crate::run) pool: &'static FramePool,
    pub(in crate::run) node: Arc<Node>,
    pub(in crate::run) ports: Vec<ShownPort>,
    /// Of the datapath in the kernel, where there is one.
    pub(in crate::run) kernel: Option<KernelCounters>,
    pub(in crate::run) workers: Vec<Arc<WorkerCounters>>,
}

impl Sources {
    /// The text of a scrape.
    pub(super) fn render(&self, controls: &Controls, format: Format) -> String {
        let in_kernel = self.kernel.as_ref().map(KernelCounters::read).unwrap_or_default();
        let mut out = Exposition::new(format);
        self.node(controls, &mut out);
        self.ports(&in_kernel, &mut out);
        if let Some(records) = controls.kernel_records {
            self.kernel(records, &in_kernel, &mut out);
        }
        self.workers(&mut out);
        self.timing(&mut out);
        self.shared_queues(&mut out);
        let (told, waiting) = self.node.events();
        one(&mut out, &f::EVENTS, told);
        one(&mut out, &f::EVENTS_WAITING, waiting);
        pfcp(controls, &mut out);
        paths(controls, &mut out);
        self.process(&mut out);
        out.finish()
    }

    fn node(&self, controls: &Controls, out: &mut Exposition) {
        let info = [env!("CARGO_PKG_VERSION"), &self.node_id, self.datapath];
        out.family(&f::BUILD_INFO).add(&info, 1_u64);
        one(out, &f::WORKERS, self.workers.len());
        one(out, &f::SESSIONS, controls.sessions);
        one(out, &f::SESSIONS_LIMIT, self.node.settings.sessions_max);
        let volume = controls.volume;
        out.family(&f::SESSION_BYTES)
            .add(&["uplink"], volume.uplink_bytes)
            .add(&["downlink"], volume.downlink_bytes);
        out.family(&f::SESSION_PACKETS)
            .add(&["uplink"], volume.uplink_packets)
            .add(&["downlink"], volume.downlink_packets);
        one(out, &f::FRAMES, self.pool.frames());
        one(out, &f::FRAMES_FREE, self.pool.free_frames());
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

    fn ports(&self, in_kernel: &[FastCounters], out: &mut Exposition) {
        let totals: Vec<(&ShownPort, PortTotals)> = self
            .ports
            .iter()
            .enumerate()
            .map(|(at, port)| {
                let counters = self.workers.iter().map(|worker| &**worker);
                let mut totals = PortTotals::of(counters, number(at));
                fastpath::add_to(&mut totals, at, in_kernel);
                (port, totals)
            })
            .collect();
        let mut by_port = |family: &'static Family, value: fn(&PortTotals) -> u64| {
            let mut samples = out.family(family);
            totals.iter().for_each(|(port, totals)| {
                samples.add(&[&port.name], value(totals));
            });
        };
        by_port(&f::PORT_RX_PACKETS, |totals| totals.rx_packets);
        by_port(&f::PORT_RX_BYTES, |totals| totals.rx_bytes);
        by_port(&f::PORT_TX_PACKETS, |totals| totals.tx_packets);
        by_port(&f::PORT_TX_BYTES, |totals| totals.tx_bytes);
        by_port(&f::PORT_TO_KERNEL, |totals| totals.to_kernel);
        let mut drops = out.family(&f::PORT_DROPS);
        for (port, totals) in &totals {
            // Zeros too: what appears for the first time has no rate.
            for reason in DropReason::ALL {
                let found = totals.drops.iter().find(|(found, _)| found == reason);
                drops.add(&[&port.name, reason.name()], found.map_or(0, |&(_, count)| count));
            }
        }
        let mut info = out.family(&f::PORT_INFO);
        self.ports.iter().for_each(|port| {
            info.add(&[&port.name, &port.how], 1_u64);
        });
        let mut mtu = out.family(&f::PORT_MTU);
        self.ports.iter().for_each(|port| {
            mtu.add(&[&port.name], port.mtu);
        });
        let mut backlog = out.family(&f::PORT_BACKLOG);
        self.each_worker_port(|worker, counters, at, port| {
            if let Some(packets) = counters.port(at).backlog() {
                backlog.add(&[&port.name, worker], packets);
            }
        });
    }

    fn kernel(&self, records: usize, in_kernel: &[FastCounters], out: &mut Exposition) {
        one(out, &f::KERNEL_RECORDS, records);
        let directions = [("uplink", FastDirection::Uplink), ("downlink", FastDirection::Downlink)];
        let mut by_way = |family: &'static Family, value: fn(&FastCounters, FastDirection) -> u64| {
            let mut samples = out.family(family);
            for (port, counters) in self.ports.iter().zip(in_kernel) {
                for (name, direction) in directions {
                    samples.add(&[&port.name, name], value(counters, direction));
                }
            }
        };
        by_way(&f::KERNEL_PACKETS, FastCounters::packets);
        by_way(&f::KERNEL_BYTES, FastCounters::bytes);
        let mut handed = out.family(&f::KERNEL_HANDED);
        for hand in Hand::ALL {
            let packets: u64 = in_kernel.iter().map(|counters| counters.handed(hand)).sum();
            handed.add(&[hand.name()], packets);
        }
    }

    fn workers(&self, out: &mut Exposition) {
        let numbered =
            || self.workers.iter().enumerate().map(|(number, worker)| (number.to_string(), worker));
        let mut seconds = out.family(&f::WORKER_SECONDS);
        for (number, worker) in numbered() {
            let spent = worker.polling();
            for (state, ns) in
                [("busy", spent.busy_ns), ("adaptive", spent.adaptive_ns), ("interrupt", spent.interrupt_ns)]
            {
                seconds.add(&[&number, state], seconds_of(ns));
            }
        }
        let mut counted = |family: &'static Family, value: fn(&WorkerCounters) -> u64| {
            let mut samples = out.family(family);
            numbered().for_each(|(number, worker)| {
                samples.add(&[&number], value(worker));
            });
        };
        counted(&f::WORKER_NAPS, |worker| worker.polling().naps);
        counted(&f::WORKER_WAKEUPS, |worker| worker.polling().wakeups);
        counted(&f::WORKER_TIMEOUTS, |worker| worker.polling().timeouts);
        for (family, value) in [
            (&f::WORKER_RX, (|totals| totals.rx_packets) as fn(&PortTotals) -> u64),
            (&f::WORKER_TX, |totals| totals.tx_packets),
        ] {
            let mut samples = out.family(family);
            self.each_worker_port(|worker, counters, at, port| {
                samples.add(&[worker, &port.name], value(&PortTotals::of([counters], at)));
            });
        }
        let mut batches = out.family(&f::BATCHES);
        numbered().for_each(|(number, worker)| {
            batches.histogram(&[&number], &buckets(&worker.batches(), 1.0));
        });
    }

    /// Times of stages and latency, of all workers together.
    fn timing(&self, out: &mut Exposition) {
        let mut stages: Vec<(&str, HistogramTotals)> = Vec::new();
        let mut latency: Option<HistogramTotals> = None;
        for worker in &self.workers {
            for (name, totals) in worker.stages() {
                match stages.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, sum)) => *sum += &totals,
                    None => stages.push((name, totals)),
                }
            }
            match &mut latency {
                Some(sum) => *sum += &worker.latency(),
                None => latency = Some(worker.latency()),
            }
        }
        let mut samples = out.family(&f::STAGE_CYCLES);
        for (name, totals) in &stages {
            samples.histogram(&[name], &buckets(totals, 1.0));
        }
        if let Some(latency) = &latency {
            out.family(&f::LATENCY).histogram(&[], &buckets(latency, 1e9));
        }
        let (_, started) = self.started;
        let passed = cycles::now().saturating_sub(self.started_cycles);
        one(out, &f::TSC_HERTZ, real(passed) / started.elapsed().as_secs_f64().max(1e-9));
    }

    fn shared_queues(&self, out: &mut Exposition) {
        let mut shared: Vec<(String, &str, SharedTotals)> = Vec::new();
        self.each_worker_port(|worker, counters, at, port| {
            shared.extend(counters.shared(at).map(|totals| (worker.to_owned(), port.name.as_str(), totals)));
        });
        if shared.is_empty() {
            return;
        }
        for (family, value) in [
            (&f::SHARED_BLOCKS, (|totals| totals.blocks) as fn(&SharedTotals) -> u64),
            (&f::SHARED_PACKETS, |totals| totals.packets),
            (&f::SHARED_ATTEMPTS, |totals| totals.cas_attempts),
            (&f::SHARED_RETRIES, |totals| totals.cas_retries),
            (&f::SHARED_STALLS, |totals| totals.window_stalls),
            (&f::SHARED_DRAINED, |totals| totals.drained),
            (&f::SHARED_FOR_OTHERS, |totals| totals.drained_for_others),
        ] {
            let mut samples = out.family(family);
            for (worker, port, totals) in &shared {
                samples.add(&[worker, port], value(totals));
            }
        }
        let mut spent = out.family(&f::SHARED_CYCLES);
        for (worker, port, totals) in &shared {
            for (stage, cycles) in [
                ("claim", totals.claim_cycles),
                ("process", totals.process_cycles),
                ("commit", totals.commit_cycles),
                ("stall", totals.stall_cycles),
            ] {
                spent.add(&[worker, port, stage], cycles);
            }
        }
        let mut waiting = out.family(&f::SHARED_WAITING);
        for port in &self.ports {
            let of_port = || shared.iter().filter(|(_, name, _)| *name == port.name);
            if of_port().next().is_some() {
                let claimed: u64 = of_port().map(|(.., totals)| totals.blocks).sum();
                let drained: u64 = of_port().map(|(.., totals)| totals.drained).sum();
                waiting.add(&[&port.name], claimed.saturating_sub(drained));
            }
        }
    }

    fn process(&self, out: &mut Exposition) {
        let process = Process::now();
        let (started, _) = self.started;
        let since_1970 = started.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        one(out, &f::PROCESS_CPU, process.cpu_seconds);
        one(out, &f::PROCESS_START, since_1970.as_secs_f64());
        one(out, &f::PROCESS_RESIDENT, process.resident_bytes);
        one(out, &f::PROCESS_VIRTUAL, process.virtual_bytes);
        one(out, &f::PROCESS_THREADS, process.threads);
        one(out, &f::PROCESS_FDS, process.open_fds);
        one(out, &f::PROCESS_FDS_MAX, process.max_fds.map_or(f64::INFINITY, real));
    }

    fn each_worker_port<'s>(
        &'s self,
        mut visit: impl FnMut(&str, &'s WorkerCounters, PortId, &'s ShownPort),
    ) {
        for (worker, counters) in self.workers.iter().enumerate() {
            let worker = worker.to_string();
            for (at, port) in self.ports.iter().enumerate() {
                visit(&worker, counters, number(at), port);
            }
        }
    }
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
    one(out, &f::PFCP_STRANGERS, controls.strangers);
    one(out, &f::PFCP_ANSWERED_AGAIN, counters.retransmissions_answered);
    one(out, &f::PFCP_SENT_AGAIN, counters.retransmissions_sent);
    one(out, &f::PFCP_EXHAUSTED, counters.requests_exhausted);
    one(out, &f::PFCP_REFUSED, counters.requests_refused);
    one(out, &f::PFCP_REPORTS_LOST, counters.reports_lost);
    one(out, &f::PFCP_PATH_FAILURES, counters.path_failures);
    one(out, &f::PFCP_PEER_RESTARTS, counters.peer_restarts);
    one(out, &f::PFCP_PURGED, counters.sessions_purged);
    one(out, &f::PFCP_BUNDLES, counters.bundles);
    one(out, &f::PFCP_OUTSTANDING, controls.outstanding);
    let (percent, overflows) = controls.lag;
    one(out, &f::PFCP_QUEUE, f64::from(percent) / 100.0);
    one(out, &f::PFCP_OVERFLOWS, overflows);
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

/// A family of one sample.
fn one(out: &mut Exposition, family: &'static Family, value: impl Into<Value>) {
    out.family(family).add(&[], value);
}

fn number(port: usize) -> PortId {
    PortId(u8::try_from(port).unwrap_or(u8::MAX))
}

/// A histogram in a unit of which one is `scale` of what was counted.
fn buckets(totals: &HistogramTotals, scale: f64) -> Buckets {
    Buckets {
        bounds: totals.bounds.iter().map(|&bound| real(bound) / scale).collect(),
        counts: totals.counts.clone(),
        sum: real(totals.sum) / scale,
    }
}

fn seconds_of(ns: u64) -> f64 {
    real(ns) / 1e9
}

#[allow(clippy::cast_precision_loss)] // A figure for people beyond 2^53.
fn real(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::IpAddr;

    use kaido_upf::node::NodeSettings;

    use super::super::families::tests::names;
    use super::*;

    fn sources(kernel: Option<KernelCounters>) -> Sources {
        let settings = NodeSettings { sessions_max: 100, ..NodeSettings::default() };
        let port =
            |name: &str| ShownPort { name: name.to_owned(), how: "a \"driver\"".to_owned(), mtu: 1500 };
        Sources {
            node_id: "upf.example.org".to_owned(),
            datapath: "engine",
            started: (SystemTime::now(), Instant::now()),
            started_cycles: cycles::now(),
            pool: FramePool::leak(1024).unwrap(),
            node: Node::new(settings).unwrap().0,
            ports: vec![port("n3"), port("n6")],
            kernel,
            workers: vec![Arc::new(WorkerCounters::new(2)), Arc::new(WorkerCounters::new(2))],
        }
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
            volume: kaido_upf::rules::Volume { uplink_bytes: 10, ..Default::default() },
            kernel_records: Some(3),
            pfcp: kaido_pfcp::Counters::default(),
            outstanding: 0,
            strangers: 0,
            peers: vec![kaido_pfcp::Peer {
                node_id: kaido_pfcp::NodeId::from(IpAddr::from([10, 0, 0, 1])),
                address: "10.0.0.1:8805".parse().unwrap(),
                down: false,
                sessions: 7,
            }],
            paths: vec![path],
            path_states: [0, 1, 0],
            lag: (50, 2),
        }
    }

    #[test]
    fn every_metric_is_there_once_and_no_sample_twice() {
        let text = sources(None).render(&controls(), Format::Text);
        let families: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        let seen: HashSet<&str> = families.iter().copied().collect();
        assert_eq!(seen.len(), families.len(), "each once");
        let only_where_shared: HashSet<&str> =
            names().into_iter().filter(|name| name.starts_with("kaido_shared_queue_")).collect();
        let missing: HashSet<&str> = names().difference(&seen).copied().collect();
        assert_eq!(missing, only_where_shared, "without a shared queue there is nothing to say of one");
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
        let text = sources(None).render(&controls(), Format::Text);
        for line in [
            "kaido_sessions 7",
            "kaido_sessions_limit 100",
            "kaido_session_volume_bytes{direction=\"uplink\"} 10",
            "kaido_port_info{port=\"n3\",how=\"a \\\"driver\\\"\"} 1",
            "kaido_port_drops_total{port=\"n6\",reason=\"no_pdr\"} 0",
            "kaido_pfcp_receive_queue_ratio 0.5",
            "kaido_pfcp_receive_queue_overflows_total 2",
            "kaido_pfcp_peer_up{node_id=\"10.0.0.1\",address=\"10.0.0.1:8805\"} 1",
            "kaido_gtpu_path_up{peer=\"10.0.0.9\"} 0",
            "kaido_gtpu_paths{state=\"down\"} 1",
            "kaido_frames_free 1024",
            "kaido_kernel_records 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
        }
    }
}
