//! Every metric of the node, in the order in which it is shown: the one list that the endpoint, the book and the tests
//! go by.

use kaido_metrics::{Family, Kind};

macro_rules! families {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(pub(in crate::run) const $constant: Family =
            Family { name: $name, kind: Kind::$kind, labels: &[$($label),*], help: $help };)*

        /// All of them.
        const FAMILIES: &[Family] = &[$($constant),*];
    };
}

families! {
    BUILD_INFO = Gauge "kaido_build_info" ["version", "function", "node_id", "datapath"] "1; what the node is, in labels.";
    WORKERS = Gauge "kaido_workers" [] "Worker threads.";
    SESSIONS = Gauge "kaido_sessions" [] "PFCP sessions.";
    SESSIONS_LIMIT = Gauge "kaido_sessions_limit" [] "Most PFCP sessions that the node was set up for.";
    SESSIONS_BY_FORM = Gauge "kaido_sessions_by_path" ["path", "reason"]
        "Sessions by where their rules lie: fast in the record and lines in cache lines, both on the fast path; held in a record that does not forward now; wide with the reason why packets of some rules, or all, take the slow path or wait longer.";
    SLOW_PATH = Counter "kaido_slow_path_packets_total" ["reason"]
        "Packets of tunnels and to UEs that took the slow path, each by the first reason that holds; `kaido status` has a sentence on each.";
    SESSION_BYTES = Gauge "kaido_session_volume_bytes" ["direction"]
        "Octets of user packets of the sessions that there are, by the first URR of each; what a session had goes with it.";
    SESSION_PACKETS = Gauge "kaido_session_volume_packets" ["direction"]
        "User packets of the sessions that there are, by the first URR of each; what a session had goes with it.";
    FRAMES = Gauge "kaido_frames" [] "Frames in the pool.";
    FRAME_BYTES = Gauge "kaido_frame_bytes" [] "Bytes of each, headroom included.";
    FRAMES_FREE = Gauge "kaido_frames_free" [] "Frames that lie free in the pool; workers keep up to 128 more each.";
    BUFFERED_PACKETS = Gauge "kaido_buffered_packets" [] "Downlink packets that are buffered for idle UEs.";
    BUFFERED_BYTES = Gauge "kaido_buffered_bytes" [] "Octets of those.";
    BUFFERED_BYTES_LIMIT = Gauge "kaido_buffered_bytes_limit" [] "Most octets that may be buffered.";
    REASSEMBLY_PACKETS = Gauge "kaido_reassembly_packets" [] "Packets of which some fragments wait for the rest.";
    TABLE_RECORDS = Gauge "kaido_table_records" [] "Records in the session table: one for each tunnel and UE address.";
    TABLE_RECORDS_LIMIT = Gauge "kaido_table_records_limit" [] "Records that the session table was made for.";
    TABLE_SLOTS = Gauge "kaido_table_slots" [] "Slots of the session table's buckets in use; records over slots is its load.";
    TABLE_BYTES = Gauge "kaido_table_memory_bytes" ["part"] "Memory committed to the session table, in bytes.";

    PORT_INFO = Gauge "kaido_port_info" ["port", "how"] "1; how the port was opened.";
    PORT_UP = Gauge "kaido_port_up" ["port"]
        "1 where packets can come and go by the port; 0 where its interface is down, gone, or not as it must be.";
    PORT_REBINDS = Counter "kaido_port_rebinds_total" ["port"] "Times that the port's interface was gone and came back.";
    PORT_MTU = Gauge "kaido_port_mtu_bytes" ["port"] "Longest IP packet of the port, in bytes.";
    PORT_RX_PACKETS = Counter "kaido_port_receive_packets_total" ["port"]
        "Packets received, those that the kernel's datapath forwarded included.";
    PORT_RX_BYTES = Counter "kaido_port_receive_bytes_total" ["port"] "Bytes of those, with Ethernet headers, without FCS.";
    PORT_TX_PACKETS = Counter "kaido_port_transmit_packets_total" ["port"]
        "Packets sent, those that the kernel's datapath forwarded included.";
    PORT_TX_BYTES = Counter "kaido_port_transmit_bytes_total" ["port"] "Bytes of those, with Ethernet headers, without FCS.";
    PORT_TO_KERNEL = Counter "kaido_port_to_kernel_packets_total" ["port"] "Packets left or handed to the kernel: ARP, ping, ssh.";
    PORT_DROPS = Counter "kaido_port_drops_total" ["port", "reason"]
        "Packets received on the port that did not come out; `kaido drops` has a sentence on each reason.";
    PORT_BACKLOG = Gauge "kaido_port_receive_backlog_packets" ["port", "worker"]
        "Packets that waited in the worker's receive queue of the port when it was last looked at, every 200 ms; where the driver says.";

    KERNEL_RECORDS = Gauge "kaido_kernel_records" [] "Records that the datapath in the kernel has.";
    KERNEL_PACKETS = Counter "kaido_kernel_forwarded_packets_total" ["port", "direction"]
        "Packets received on the port that the datapath in the kernel forwarded.";
    KERNEL_BYTES = Counter "kaido_kernel_forwarded_bytes_total" ["port", "direction"] "Octets of those, from the user's IP header on.";
    KERNEL_HANDED = Counter "kaido_kernel_handed_packets_total" ["reason"]
        "Packets that the datapath in the kernel left to the workers or the kernel's own network.";

    GRE_PACKETS = Counter "kaido_gre_rule_packets_total" ["rule", "verdict"]
        "Packets that met a rule of the GRE header remover, or went into a tunnel, on every datapath.";
    GRE_BYTES = Counter "kaido_gre_rule_bytes_total" ["rule", "verdict"] "Bytes of those as they came, with Ethernet headers, without FCS.";
    GRE_KERNEL_PACKETS = Counter "kaido_gre_kernel_packets_total" ["port", "disposition"]
        "Packets received on the port by what its program did: passed, stripped, handed to the engine, left to the kernel, or dropped.";

    NDN_FACES = Gauge "kaido_ndn_faces" [] "Faces of the NDN router.";
    NDN_PREFIXES = Gauge "kaido_ndn_prefixes" [] "Prefixes of names that have next hops.";
    NDN_PENDING = Gauge "kaido_ndn_pending_interests" ["worker"] "Interests that wait for Data.";
    NDN_CACHED = Gauge "kaido_ndn_cached_data" ["worker"] "Data in the Content Store.";
    NDN_CACHE_OCTETS = Gauge "kaido_ndn_cache_octets" ["worker"] "Memory in use by the Content Store.";
    NDN_PACKETS = Counter "kaido_ndn_packets_total" ["worker", "direction", "kind"]
        "Interests, Data and Nacks that the forwarding has received and sent.";
    NDN_ENDED = Counter "kaido_ndn_interests_ended_total" ["worker", "how"]
        "Pending Interests that Data came for (satisfied), and that waited in vain (unsatisfied).";
    NDN_CACHE = Counter "kaido_ndn_cache_total" ["worker", "event"]
        "Interests that the Content Store has answered (hit) and not (miss), Data that it took in (inserted), gave up for others (evicted) and did not keep as it was not asked for before (refused).";
    NDN_DISK_PACKETS = Gauge "kaido_ndn_disk_packets" [] "Data that can be found on disk by the Content Store.";
    NDN_DISK_OCTETS = Gauge "kaido_ndn_disk_octets" ["of"]
        "Octets of the disk that the Content Store uses (used) and may use (capacity), and of memory for its index (index).";
    NDN_DISK_INTERESTS = Counter "kaido_ndn_disk_interests_total" ["event"]
        "Interests for what seemed to be on disk: that waited (parked), for another one's read (gathered), were answered, went on as there was nothing after all (forwarded) or as enough waited (busy).";
    NDN_DISK_DATA = Counter "kaido_ndn_disk_data_total" ["event"]
        "Data read, written, not written as the disk is too slow (overrun), given up by the index (displaced), not there any more (gone), and damaged.";
    NDN_DISK_MOVED = Counter "kaido_ndn_disk_moved_octets_total" ["direction"] "Octets of Data read from disk and written to it.";
    NDN_DISK_ERRORS = Counter "kaido_ndn_disk_errors_total" [] "Reads and writes of the Content Store's files that failed.";

    NDN_HOT = Gauge "kaido_ndn_hot_names" [] "Names that are asked for so often that all workers share them.";
    NDN_HANDED = Counter "kaido_ndn_handoff_packets_total" ["worker", "kind"]
        "Interests, Data and Nacks that a worker has handed to the worker whose they are.";

    WORKER_SECONDS = Counter "kaido_worker_seconds_total" ["worker", "state"]
        "Seconds that the worker turned without a pause (busy), with short pauses (adaptive), and slept until woken (interrupt).";
    WORKER_NAPS = Counter "kaido_worker_naps_total" ["worker"] "Short pauses.";
    WORKER_WAKEUPS = Counter "kaido_worker_wakeups_total" ["worker"] "Sleeps that a packet ended.";
    WORKER_TIMEOUTS = Counter "kaido_worker_timeouts_total" ["worker"] "Sleeps that lasted until the next timer was due.";
    WORKER_RX = Counter "kaido_worker_receive_packets_total" ["worker", "port"] "Packets that the worker has processed of what the port received.";
    WORKER_TX = Counter "kaido_worker_transmit_packets_total" ["worker", "port"] "Packets that the worker has sent by the port.";
    BATCHES = Histogram "kaido_batch_packets" ["worker"] "Packets that a worker processed together; at most 64.";
    STAGE_CYCLES = Histogram "kaido_stage_cycles" ["stage"]
        "Cycles of the time stamp counter that a packet took in a stage of its way: those of its batch, shared among its packets. Sampled.";
    LATENCY = Histogram "kaido_packet_latency_seconds" []
        "Seconds from the receipt of a batch by a worker until what came out of it was handed to the devices, for each of its packets. Sampled.";
    TSC_HERTZ = Gauge "kaido_cycles_per_second" [] "Rate of the time stamp counter that cycles are counted by, as measured.";

    SHARED_BLOCKS = Counter "kaido_shared_queue_blocks_total" ["worker", "port"] "Blocks that the worker has claimed of a shared queue.";
    SHARED_PACKETS = Counter "kaido_shared_queue_packets_total" ["worker", "port"] "Packets in them.";
    SHARED_ATTEMPTS = Counter "kaido_shared_queue_cas_attempts_total" ["worker", "port"] "Compare-and-swaps of the queue's cursor.";
    SHARED_RETRIES = Counter "kaido_shared_queue_cas_retries_total" ["worker", "port"] "Those of them that another worker beat.";
    SHARED_CYCLES = Counter "kaido_shared_queue_cycles_total" ["worker", "port", "stage"]
        "Cycles of claiming blocks, of processing them, of handing them in and sending, and of waiting for a full window.";
    SHARED_STALLS = Counter "kaido_shared_queue_window_stalls_total" ["worker", "port"]
        "Times that the head of the queue was not finished and the window full.";
    SHARED_DRAINED = Counter "kaido_shared_queue_drained_blocks_total" ["worker", "port"] "Blocks that the worker has sent.";
    SHARED_FOR_OTHERS = Counter "kaido_shared_queue_drained_for_others_blocks_total" ["worker", "port"] "Those of them that another worker had finished.";
    SHARED_WAITING = Gauge "kaido_shared_queue_blocks_waiting" ["port"]
        "Blocks that are claimed and not sent: being worked on, or in the commit ring.";

    EVENTS = Counter "kaido_control_events_total" [] "Events that workers have told the control plane: thresholds, buffered packets, errors.";
    EVENTS_WAITING = Gauge "kaido_control_events_waiting" [] "Of these, not looked at yet.";

    PFCP_MESSAGES = Counter "kaido_pfcp_messages_total" ["direction", "type"] "PFCP messages, retransmissions included.";
    PFCP_REJECTIONS = Counter "kaido_pfcp_rejections_total" ["cause"] "Requests that were answered with a rejecting cause (TS 29.244 8.2.1).";
    PFCP_DISCARDS = Counter "kaido_pfcp_discards_total" ["reason"] "Messages and datagrams that were dropped without an answer.";
    PFCP_STRANGERS = Counter "kaido_pfcp_strangers_total" [] "Datagrams from addresses that are not in pfcp.allow.";
    PFCP_ANSWERED_AGAIN = Counter "kaido_pfcp_retransmissions_answered_total" [] "Requests that came again and got the same answer.";
    PFCP_SENT_AGAIN = Counter "kaido_pfcp_retransmissions_sent_total" [] "Requests of ours that were sent again after T1.";
    PFCP_EXHAUSTED = Counter "kaido_pfcp_requests_exhausted_total" [] "Requests of ours that were given up after N1.";
    PFCP_REFUSED = Counter "kaido_pfcp_requests_refused_total" [] "Requests of ours that the control plane refused.";
    PFCP_REPORTS_RETURNED = Counter "kaido_pfcp_reports_returned_total" [] "Usage reports that no control plane has taken, and that are in the next report.";
    PFCP_REPORTS_LOST = Counter "kaido_pfcp_reports_lost_total" [] "Session reports that no control plane has taken.";
    PFCP_PATH_FAILURES = Counter "kaido_pfcp_path_failures_total" [] "Control planes that stopped answering heartbeats.";
    PFCP_PEER_RESTARTS = Counter "kaido_pfcp_peer_restarts_total" [] "Control planes that restarted.";
    PFCP_PURGED = Counter "kaido_pfcp_sessions_purged_total" [] "Sessions deleted because their association ended, or their control plane restarted or forgot them.";
    PFCP_ENDING = Gauge "kaido_pfcp_sessions_ending" [] "Sessions of ended associations that are yet to be deleted.";
    PFCP_BUNDLES = Counter "kaido_pfcp_bundles_total" [] "Datagrams that carried more than one message.";
    PFCP_OUTSTANDING = Gauge "kaido_pfcp_requests_outstanding" [] "Requests of ours without an answer yet.";
    PFCP_QUEUE = Gauge "kaido_pfcp_receive_queue_ratio" []
        "How full the kernel's fullest queue of the PFCP sockets was when last looked at, every 250 ms: 0 to 1, and 1 if one has overflowed.";
    PFCP_OVERFLOWS = Counter "kaido_pfcp_receive_queue_overflows_total" [] "PFCP datagrams that the kernel had no room for.";
    PFCP_PEERS = Gauge "kaido_pfcp_peers" [] "Control planes with an association.";
    PFCP_PEERS_UP = Gauge "kaido_pfcp_peers_up" [] "Those of them that answer heartbeats.";
    PFCP_PEER_UP = Gauge "kaido_pfcp_peer_up" ["node_id", "address"] "Whether the control plane answers heartbeats: 1 or 0.";
    PFCP_PEER_SESSIONS = Gauge "kaido_pfcp_peer_sessions" ["node_id", "address"] "Sessions of the control plane.";

    GTPU_PATHS = Gauge "kaido_gtpu_paths" ["state"] "GTP-U peers that tunnels lead to: up, down, or asked and not known yet.";
    GTPU_UP = Gauge "kaido_gtpu_path_up" ["peer"]
        "Whether the GTP-U peer answers: 1 or 0; not before it is known. Of at most 1000 peers, those that do not answer first.";
    GTPU_TUNNELS = Gauge "kaido_gtpu_path_tunnels" ["peer"] "Tunnels that lead to the peer.";
    GTPU_REQUESTS = Counter "kaido_gtpu_path_echo_requests_total" ["peer"] "Echo Requests sent to the peer.";
    GTPU_RESPONSES = Counter "kaido_gtpu_path_echo_responses_total" ["peer"] "Echo Responses of the peer to them.";
    GTPU_FAILURES = Counter "kaido_gtpu_path_failures_total" ["peer"] "Times that the peer was found not to answer.";
    GTPU_RESTARTS = Counter "kaido_gtpu_path_restarts_total" ["peer"] "Restarts that the peer has told of.";

    PROCESS_CPU = Counter "process_cpu_seconds_total" [] "Seconds of CPU time of the process, in user and system mode.";
    PROCESS_START = Gauge "process_start_time_seconds" [] "When the node started, in seconds since 1970.";
    PROCESS_RESIDENT = Gauge "process_resident_memory_bytes" [] "Resident memory, in bytes; reserved huge pages are not in it.";
    PROCESS_VIRTUAL = Gauge "process_virtual_memory_bytes" [] "Address space, in bytes.";
    PROCESS_THREADS = Gauge "process_threads" [] "Threads.";
    PROCESS_FDS = Gauge "process_open_fds" [] "Open file descriptors.";
    PROCESS_FDS_MAX = Gauge "process_max_fds" [] "Most file descriptors.";
}

/// All metrics as a Markdown table: part of `docs/observability.md`.
pub(crate) fn table() -> String {
    let mut text = String::from("| metric | kind | labels | meaning |\n|---|---|---|---|\n");
    for Family { name, kind, labels, help } in FAMILIES {
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        text.push_str(&format!("| `{name}` | {} | {labels} | {help} |\n", kind.name()));
    }
    text
}

#[cfg(test)]
pub(in crate::run) mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use super::*;

    /// Names of all metrics.
    pub(crate) fn names() -> HashSet<&'static str> {
        FAMILIES.iter().map(|family| family.name).collect()
    }

    #[test]
    fn the_book_has_every_metric() {
        let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/observability.md");
        let written = std::fs::read_to_string(&book).unwrap_or_default();
        assert!(
            written.contains(&table()),
            "put what `kaido reference --metrics` prints into {}",
            book.display()
        );
    }

    #[test]
    fn names_follow_the_conventions() {
        assert_eq!(names().len(), FAMILIES.len(), "each once");
        for Family { name, kind, labels, help } in FAMILIES {
            assert!(name.starts_with("kaido_") || name.starts_with("process_"), "{name}");
            assert!(name.chars().all(|c| c.is_ascii_lowercase() || c == '_'), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            let wrong_unit = ["_ns", "_us", "_ms", "_nanoseconds", "_kb", "_percent"];
            assert!(!wrong_unit.iter().any(|unit| name.ends_with(unit)), "{name} has no base unit");
            assert!(help.ends_with('.') && !help.contains(['|', '\n']), "{name}: {help}");
            assert!(
                labels.iter().all(|label| label.chars().all(|c| c.is_ascii_lowercase() || c == '_')),
                "{name}"
            );
        }
    }
}
