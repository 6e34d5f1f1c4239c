//! Lists of metrics: the node's own, and the macro by which functions have theirs. A list is what the endpoint, the book and the
//! tests go by.

use kaido_metrics::Family;

/// Declares metrics: a constant of each [`Family`], and `FAMILIES` of all.
#[macro_export]
macro_rules! families {
    ($($constant:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)*) => {
        $(#[doc = $help]
        #[allow(unreachable_pub)] // Of a module that may be private.
        pub const $constant: $crate::metrics::Family = $crate::metrics::Family {
            name: $name,
            kind: $crate::metrics::Kind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)*

        /// All of them.
        #[allow(unreachable_pub)]
        pub const FAMILIES: &[$crate::metrics::Family] = &[$($constant),*];
    };
}

families! {
    BUILD_INFO = Gauge "kaido_build_info" ["version", "function", "node_id", "datapath"] "1; what the node is, in labels.";
    WORKERS = Gauge "kaido_workers" [] "Worker threads.";
    FRAMES = Gauge "kaido_frames" [] "Frames in the pool.";
    FRAME_BYTES = Gauge "kaido_frame_bytes" [] "Bytes of each, headroom included.";
    FRAMES_FREE = Gauge "kaido_frames_free" [] "Frames that lie free in the pool; workers keep up to 128 more each.";
    CONFIG_RELOADS = Counter "kaido_config_reloads_total" ["result"] "Times that the node has read its configuration again, and taken or refused it.";
    CONFIG_LAST_RELOAD = Gauge "kaido_config_last_reload_successful" [] "0 where what was read last was refused, so that the file is not what is in force.";

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

    PROCESS_CPU = Counter "process_cpu_seconds_total" [] "Seconds of CPU time of the process, in user and system mode.";
    PROCESS_START = Gauge "process_start_time_seconds" [] "When the node started, in seconds since 1970.";
    PROCESS_RESIDENT = Gauge "process_resident_memory_bytes" [] "Resident memory, in bytes; reserved huge pages are not in it.";
    PROCESS_VIRTUAL = Gauge "process_virtual_memory_bytes" [] "Address space, in bytes.";
    PROCESS_THREADS = Gauge "process_threads" [] "Threads.";
    PROCESS_FDS = Gauge "process_open_fds" [] "Open file descriptors.";
    PROCESS_FDS_MAX = Gauge "process_max_fds" [] "Most file descriptors.";
}

/// Metrics as a Markdown table: part of `docs/observability.md`.
pub fn table(families: &[&[Family]]) -> String {
    let mut text = String::from("| metric | kind | labels | meaning |\n|---|---|---|---|\n");
    for Family { name, kind, labels, help } in families.iter().copied().flatten() {
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        text.push_str(&format!("| `{name}` | {} | {labels} | {help} |\n", kind.name()));
    }
    text
}
