//! Fields that every function has.

use super::Field;

/// They all.
pub(super) const FIELDS: &[Field] = &[
    ("node", "frames", "1024 to 16777216", "16384", "Frames in the pool, shared by all ports."),
    (
        "node",
        "frame_bytes",
        "2048 or 4096",
        "as the ports ask",
        "Bytes of a frame, of which 256 are headroom; longer packets lie in several. By itself a node has frames of 2048 bytes where all \
         its ports have an MTU of at most 1770, none is of driver `dpdk`, and none of an `igb`, `igc` or `ixgbe` NIC with AF_XDP; an \
         NDN router always has 4096.",
    ),
    (
        "node",
        "workers",
        "1 to 64",
        "1",
        "Worker threads. More than one need `af_xdp` ports, but for an NDN router; `queue_mode` and `steer_by` say what each takes.",
    ),
    (
        "node",
        "queue_mode",
        "\"rss\", \"shared\" or \"shared-ordered\"",
        "\"rss\"",
        "`rss`: a receive queue of every port for each worker, as many as workers unless `steer_by` says otherwise. \
         `shared`: all workers take blocks of packets from each port's one queue, whatever is in them, which splits even a \
         single flow; packets of a flow may overtake each other. `shared-ordered`: likewise, and packets leave in the order \
         of their arrival.",
    ),
    (
        "node",
        "datapath",
        "\"auto\", \"engine\", \"xdp\" or \"hybrid\"",
        "\"auto\"",
        "Who forwards. `engine`: the workers, all packets. `xdp`: a program in the driver of the `af_xdp` ports forwards the \
         packets of each tunnel and UE address whose rules fit a record of the kernel; the workers forward the rest. The tables have \
         room for the records of `sessions_max` sessions. `hybrid`: the same program and the same workers; the tables have room for \
         `xdp_records_max` records, the first come; later ones stay with the workers. `auto`: of a user plane, `xdp` where an `af_xdp` \
         port is in copy mode, `engine` where all are zero-copy, and `engine` where the kernel does not take the programs or the \
         memory for `sessions_max` is not there; the log and `kaido status` give the choice and the reason. Of other functions, `engine`. \
         See `docs/upf.md`.",
    ),
    (
        "node",
        "cpus",
        "list of numbers",
        "[]",
        "CPUs that the workers are pinned to, in their order. Empty pins none.",
    ),
    (
        "node",
        "busy_poll",
        "true or false",
        "false",
        "Poll without ever sleeping: lowest latency, one whole core a worker.",
    ),
    ("[port]", "name", "text", "required", "Name in counters and logs."),
    (
        "[port]",
        "driver",
        "\"af_xdp\", \"af_packet\", \"tap\" or \"dpdk\"",
        "required",
        "`af_xdp` is the fast one; `af_packet` works wherever a packet socket does; `tap` makes a device whose other side is this host's kernel; `dpdk`, where it is built in, takes a NIC from the kernel (see dpdk.md).",
    ),
    (
        "[port]",
        "interface",
        "text",
        "required",
        "The network interface, or the name of the TAP device to make: for `dpdk`, the kernel's side of the port.",
    ),
    (
        "[port]",
        "device",
        "text",
        "required by `dpdk`",
        "`dpdk`: the device, by PCI address or as a `--vdev` argument names it.",
    ),
    (
        "[port]",
        "copy",
        "\"auto\", \"copy\" or \"zero_copy\"",
        "\"auto\"",
        "`af_xdp`: whether the driver copies frames.",
    ),
    (
        "[port]",
        "attach",
        "\"auto\", \"native\" or \"generic\"",
        "\"auto\"",
        "`af_xdp`: where the steering program runs.",
    ),
    (
        "[port]",
        "addresses",
        "list of prefixes",
        "[]",
        "`tap`: addresses of the device. `dpdk`, and a UPF's `vlan`: those of the port.",
    ),
    (
        "[port]",
        "mtu",
        "number",
        "1500",
        "`tap`, `dpdk`, and a UPF's `vlan`: largest IP packet in bytes. Other ports take the interface's, and so does a VLAN without it.",
    ),
    (
        "dpdk",
        "eal",
        "list of texts",
        "[]",
        "Arguments of DPDK's environment (EAL), such as [\"-a\", \"0000:03:00.0\"]; for all `dpdk` ports together.",
    ),
    (
        "reassembly",
        "packets",
        "1 to 65536",
        "512",
        "Most packets whose rest is waited for, of the whole node.",
    ),
    ("reassembly", "packets_per_source", "1 to 65536", "64", "Of these, most of one source."),
    (
        "reassembly",
        "fragments",
        "number",
        "1024",
        "Most fragments kept, of the whole node: at most a quarter of `node.frames`. The oldest packets give way.",
    ),
    (
        "reassembly",
        "time_ms",
        "100 to 60000",
        "15000",
        "Longest wait for the rest of a packet, in milliseconds.",
    ),
    (
        "control",
        "socket",
        "path",
        "/run/kaido/kaido.sock",
        "Unix socket of `kaido status`, `sessions` and `drops`. The folder of the default is made when it is missing.",
    ),
    (
        "metrics",
        "listen",
        "address",
        "none",
        "Where Prometheus may scrape the node, at `/metrics`; the port is 9105 unless given. Without it nothing listens. \
         There is no authentication: name an address of the management network, or a loopback.",
    ),
    (
        "metrics",
        "sample_batches",
        "0, or 16 to 1000000",
        "1024",
        "A worker times its stages on one batch of packets in so many on average, for `kaido_stage_cycles` and \
         `kaido_packet_latency_seconds`. 0 times none. Without `listen` none is timed.",
    ),
    (
        "log",
        "level",
        "log filter",
        "\"info\"",
        "error, warn, info, debug, trace, or a filter such as \"info,kaido_pfcp=debug\".",
    ),
    ("log", "format", "\"text\" or \"json\"", "\"text\"", "Lines for people or objects for machines."),
];
