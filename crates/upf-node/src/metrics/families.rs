//! Every metric that a user plane offers beyond those of the node, in the order in which they are shown.

use kaido_node::families;

families! {
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

    BUFFERED_PACKETS = Gauge "kaido_buffered_packets" [] "Downlink packets that are buffered for idle UEs.";
    BUFFERED_BYTES = Gauge "kaido_buffered_bytes" [] "Octets of those.";
    BUFFERED_BYTES_LIMIT = Gauge "kaido_buffered_bytes_limit" [] "Most octets that may be buffered.";
    REASSEMBLY_PACKETS = Gauge "kaido_reassembly_packets" [] "Packets of which some fragments wait for the rest.";

    TABLE_RECORDS = Gauge "kaido_table_records" [] "Records in the session table: one for each tunnel and UE address.";
    TABLE_RECORDS_LIMIT = Gauge "kaido_table_records_limit" [] "Records that the session table was made for.";
    TABLE_SLOTS = Gauge "kaido_table_slots" [] "Slots of the session table's buckets in use; records over slots is its load.";
    TABLE_BYTES = Gauge "kaido_table_memory_bytes" ["part"] "Memory committed to the session table, in bytes.";

    KERNEL_RECORDS = Gauge "kaido_kernel_records" [] "Records that the datapath in the kernel has.";
    KERNEL_PACKETS = Counter "kaido_kernel_forwarded_packets_total" ["port", "direction"]
        "Packets received on the port that the datapath in the kernel forwarded.";
    KERNEL_BYTES = Counter "kaido_kernel_forwarded_bytes_total" ["port", "direction"] "Octets of those, from the user's IP header on.";
    KERNEL_HANDED = Counter "kaido_kernel_handed_packets_total" ["reason"]
        "Packets that the datapath in the kernel left to the workers or the kernel's own network.";

    EVENTS = Counter "kaido_control_events_total" [] "Events that workers have told the control plane: thresholds, buffered packets, errors.";
    EVENTS_WAITING = Gauge "kaido_control_events_waiting" [] "Of these, not looked at yet.";

    STORE_BATCHES = Counter "kaido_store_batches_total" [] "Batches of changes in the journal of sessions since its store was made; 0 without a store.";
    STORE_BYTES = Counter "kaido_store_written_bytes_total" [] "Octets that were written to the journal.";
    STORE_SEGMENTS = Gauge "kaido_store_segments" [] "Segments of the journal that are yet to be folded into the snapshot.";
    STORE_FAILURES = Counter "kaido_store_failures_total" [] "Times that the journal could not be written or brought to the disk.";
    STORE_FAILING = Gauge "kaido_store_failing" [] "Whether the journal cannot be written now, so that requests are not answered: 1 or 0.";

    IPFIX_MESSAGES = Counter "kaido_ipfix_messages_total" [] "IPFIX messages that were sent, once for each collector.";
    IPFIX_FAILURES = Counter "kaido_ipfix_failures_total" [] "IPFIX messages to a collector that the host did not take.";
    IPFIX_RECORDS = Counter "kaido_ipfix_records_total" ["domain"] "Flow records: of sessions, and of sampled flows.";
    IPFIX_LOST = Counter "kaido_ipfix_lost_total" ["what"]
        "What is in no record for want of room: last records of sessions, samples that were not read in time, and samples of flows beyond ipfix.flows_max.";

    EXPOSURE_SUBSCRIPTIONS = Gauge "kaido_event_exposure_subscriptions" [] "Subscriptions of event exposure consumers.";
    EXPOSURE_REQUESTS = Counter "kaido_event_exposure_requests_total" ["result"]
        "Requests of event exposure consumers who may subscribe: done, or refused with an error.";
    EXPOSURE_NOTIFICATIONS = Counter "kaido_event_exposure_notifications_total" ["result"]
        "Notifications that consumers have acknowledged, and that were given up; what one has carried that was given up is in a later one.";
    EXPOSURE_ATTEMPTS = Counter "kaido_event_exposure_attempts_total" [] "Times that a notification was sent.";
    EXPOSURE_FAILURES = Counter "kaido_event_exposure_failures_total" ["reason"]
        "Times that a notification was not taken: its consumer was not reached or has not answered (unreachable) or answered with an error (refused), or as many waited as may (no_room).";
    EXPOSURE_LOST = Counter "kaido_event_exposure_lost_total" []
        "Sessions that have ended and whose last volumes are in no notification, for want of room or as the subscription ended before.";

    OTLP_PROCEDURES = Counter "kaido_otlp_procedures_total" [] "PFCP procedures that an OpenTelemetry collector has taken as traces.";
    OTLP_LOST = Counter "kaido_otlp_lost_total" ["reason"]
        "Traced PFCP procedures that no collector has: too many waited (queue_full), it was away or busy for a minute (given_up), or it refused them (refused).";
    OTLP_FAILURES = Counter "kaido_otlp_failures_total" ["reason"]
        "Requests to the collector that failed: it was not reached or has not answered (unreachable), or answered that it is busy (busy), or with another error (refused).";
    OTLP_REJECTED = Counter "kaido_otlp_rejected_spans_total" [] "Spans that the collector has refused of requests that it has taken.";

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
    REPORTS_LATE = Gauge "kaido_usage_reports_late_seconds" []
        "How long after its time the last usage report was made that a period or another time has brought: more are due than the node can make.";
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
}
