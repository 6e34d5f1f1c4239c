//! The configuration reference, from one table, so that the book and the binary say the same.

/// One field: section, name, kind, default, meaning.
type Field = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// Every field of the file.
const FIELDS: &[Field] = &[
    (
        "node",
        "sessions_max",
        "1 to 67108864",
        "65536",
        "Most sessions. Tables are made for so many at the start.",
    ),
    ("node", "frames", "1024 to 16777216", "16384", "Frames of 4096 bytes in the pool, shared by all ports."),
    (
        "node",
        "workers",
        "1 to 64",
        "1",
        "Worker threads. More than one need `af_xdp` ports; `queue_mode` and `steer_by` say what each takes.",
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
        "steer_by",
        "\"queue\", \"ue\" or \"teid\"",
        "\"queue\"",
        "`rss` with several workers. `queue`: a worker handles what its queue receives. `ue`: by the UE's address, so that \
         both directions of a session meet on one worker. `teid`: by the TEID uplink, by the UE's address downlink. With \
         `ue` and `teid` a port may have fewer queues than workers, one too: the worker that receives hands over.",
    ),
    (
        "node",
        "datapath",
        "\"engine\", \"xdp\" or \"hybrid\"",
        "\"engine\"",
        "`engine`: the workers forward all. `xdp`: a program in the driver of the `af_xdp` ports forwards the plain packets \
         of every session whose rules fit a record of the kernel's, and the workers take the rest and sleep otherwise. \
         `hybrid`: as `xdp`, but only as many records as `xdp_records_max` go to the kernel; the rest, and what comes later, \
         stays with the workers, whose lookup is the faster one in large tables. See `docs/upf.md` for what fits.",
    ),
    (
        "node",
        "xdp_records_max",
        "1 to 268435456",
        "65536",
        "`hybrid`: most records in the kernel. A session has one for its tunnel and one for each UE address.",
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
    (
        "node",
        "inactivity_s",
        "number",
        "0",
        "User plane inactivity timer, in seconds, of sessions whose control plane gives none: a session without a packet \
         for so long is reported to it. 0 is none.",
    ),
    (
        "node",
        "answers_per_second",
        "number",
        "100",
        "Error indications, ICMP errors and extension notices sent, per worker and kind.",
    ),
    (
        "node",
        "ue_to_ue",
        "\"route\", \"forward\" or \"drop\"",
        "\"route\"",
        "Packets from a UE to another of the same network instance. `route`: they leave by the routes like any other. \
         `forward`: they go straight into the other session, by its downlink rules; all packets from UEs are looked at \
         for it, and none is left to the kernel's datapath. `drop`: UEs are kept apart.",
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
        "roles",
        "list of \"n3\", \"n6\", \"n9\"",
        "required",
        "What arrives here: GTP-U from the access, IP from the data network, GTP-U from another user plane. One port may have several.",
    ),
    (
        "[port]",
        "network_instance",
        "text",
        "any name",
        "`n6`: the network instance behind the port. Without it, the port answers to every name that no other port has.",
    ),
    (
        "[port]",
        "ue_prefixes",
        "list of prefixes",
        "[]",
        "`n6` with `af_xdp`: take only packets to these prefixes from the kernel. Empty takes all that is not addressed to the node itself.",
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
        "`tap`: addresses of the device. `dpdk`: those of the port.",
    ),
    (
        "[port]",
        "mtu",
        "number",
        "1500",
        "`tap`, `dpdk`: largest IP packet in bytes. Other drivers take the interface's.",
    ),
    (
        "gtpu",
        "addresses",
        "list of addresses",
        "those of the n3 and n9 ports",
        "Local tunnel addresses; each must be an address of an n3 or n9 port.",
    ),
    (
        "gtpu",
        "source_port",
        "\"entropy\" or \"fixed\"",
        "\"entropy\"",
        "Outer UDP source port: by the inner flow, so that receivers can spread flows, or always 2152.",
    ),
    (
        "gtpu",
        "udp_checksum_ipv4",
        "true or false",
        "false",
        "Compute the outer UDP checksum over IPv4, where TS 29.281 lets it be zero.",
    ),
    (
        "gtpu",
        "udp_zero_checksum_ipv6",
        "true or false",
        "false",
        "Leave the outer UDP checksum over IPv6 zero (RFC 6935), where the path is known to take it.",
    ),
    (
        "gtpu",
        "echo_interval_s",
        "0, or 60 to 86400",
        "60",
        "Seconds from one Echo Request to a peer that tunnels lead to, to the next. 0 sends none. TS 29.281 7.2.1 allows no less than 60.",
    ),
    (
        "gtpu",
        "echo_t3_ms",
        "10 to 60000",
        "3000",
        "T3-RESPONSE: milliseconds until an Echo Request that was not answered is sent again.",
    ),
    (
        "gtpu",
        "echo_retries",
        "1 to 10",
        "3",
        "N3-REQUESTS: how often an Echo Request is sent in all before the path counts as failed, which the control planes are told.",
    ),
    (
        "gtpu",
        "oversize",
        "\"icmp\", \"fragment-inner\" or \"fragment-outer\"",
        "\"fragment-inner\"",
        "Packets larger than their way takes. `fragment-inner`: cut where they may be (IPv4 without DF), else dropped and their sender told. `fragment-outer`: into tunnels, the tunnel's own packet is cut, whatever is in it. `icmp`: never cut.",
    ),
    (
        "gtpu",
        "mss_clamp",
        "true, false or 536 to 65535",
        "false",
        "Lower the MSS that TCP connections of UEs announce, both ways: to this many octets, or with `true` to what the smallest MTU of the ports leaves behind the tunnel's headers. Sessions then stay with the workers, whatever `node.datapath` says.",
    ),
    (
        "gtpu",
        "peer",
        "tables",
        "none",
        "`[[gtpu.peer]]`, one for each network of peers that differs; see there.",
    ),
    (
        "[gtpu.peer]",
        "prefix",
        "prefix",
        "required",
        "Peers for which checksums are otherwise; `[[gtpu.peer]]` may be repeated, the longest prefix counts.",
    ),
    (
        "[gtpu.peer]",
        "udp_checksum",
        "true or false",
        "required",
        "Compute the outer UDP checksum of datagrams to these peers.",
    ),
    (
        "dpdk",
        "eal",
        "list of texts",
        "[]",
        "Arguments of DPDK's environment (EAL), such as [\"-a\", \"0000:03:00.0\"]; for all `dpdk` ports together.",
    ),
    (
        "pfcp",
        "listen",
        "list of addresses",
        "required",
        "Where control planes reach the node. The port is 8805 unless given.",
    ),
    ("pfcp", "node_id", "address or name", "the first of `listen`", "Node ID (TS 29.244 8.2.38)."),
    (
        "pfcp",
        "control_planes",
        "list of addresses",
        "[]",
        "Control planes that the node sets associations up with. Others may set up theirs.",
    ),
    (
        "pfcp",
        "allow",
        "list of prefixes",
        "everyone",
        "Prefixes of control planes that are listened to; datagrams from elsewhere are counted and dropped. PFCP has no \
         authentication of its own: name your SMFs here unless the network keeps strangers out.",
    ),
    ("pfcp", "heartbeat_interval_s", "1 to 3600", "10", "Seconds between heartbeats."),
    ("pfcp", "t1_ms", "10 to 60000", "3000", "T1: milliseconds until a request is sent again."),
    ("pfcp", "n1", "1 to 10", "3", "N1: how often a request is sent again before it is given up."),
    (
        "[ue_pool]",
        "network_instance",
        "text",
        "the first",
        "The network instance whose UEs get the addresses.",
    ),
    (
        "[ue_pool]",
        "ipv4",
        "prefix up to /30",
        "none",
        "IPv4 network; its first and last address are not given out.",
    ),
    ("[ue_pool]", "ipv6", "prefix up to /64", "none", "IPv6 network; each UE gets a /64 of it."),
    (
        "reassembly",
        "enabled",
        "true or false",
        "true",
        "Put G-PDUs that come in fragments together, and have users' fragments follow the ports of their first where rules ask for ports.",
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
    ("[network_instance]", "name", "text", "required", "Its name, as FARs and PDRs give it."),
    ("[network_instance]", "port", "text", "required", "Name of the `n6` port that it is behind."),
    (
        "[network_instance]",
        "vlan",
        "number, or two numbers",
        "required",
        "Its VLAN identifier on that port, or `[outer, inner]` behind two tags (IEEE 802.1ad). Without it an Ethernet instance \
         has all frames of the port that are no other's, but for those to the port's own address.",
    ),
    (
        "[network_instance]",
        "ethernet",
        "true or false",
        "false",
        "It is for Ethernet sessions: its LAN is bridged, and has neither addresses nor gateways here. Not behind an \
         `af_xdp` port.",
    ),
    (
        "[network_instance]",
        "addresses",
        "list of addresses with prefix length",
        "[]",
        "The node's own addresses in it. What is within is on the link; address spaces of instances may overlap.",
    ),
    (
        "[network_instance]",
        "gateways",
        "list of addresses",
        "[]",
        "Where all else goes, one of each family. Neighbours are asked for by the node itself.",
    ),
    (
        "[network_instance]",
        "gateway_mac",
        "Ethernet address",
        "none",
        "That of the gateways, which are not asked for then. Required behind `af_xdp` ports, where ARP is left to the kernel.",
    ),
    (
        "ethernet",
        "unknown_unicast",
        "\"drop\" or \"flood\"",
        "\"drop\"",
        "What becomes of frames to an Ethernet address that no session is known to have: from the N6 side they are dropped, or \
         go to all sessions of the network instance; from a session they go to the N6 side, and so to the others too.",
    ),
    (
        "ethernet",
        "flood_max",
        "1 to 65536",
        "256",
        "Sessions that one broadcast or multicast goes to, at most. Others do not get it, and are counted (`flood_cut`).",
    ),
    (
        "ethernet",
        "addresses",
        "1 to 16000000",
        "65536",
        "Ethernet addresses of all sessions, at most, and as many on the N6 side.",
    ),
    (
        "ethernet",
        "addresses_per_session",
        "1 to 65536",
        "64",
        "Ethernet addresses behind one session, at most. Frames from more are dropped (`ethernet_table_full`).",
    ),
    (
        "ethernet",
        "ageing_s",
        "10 to 1000000",
        "300",
        "Seconds without a frame after which an Ethernet address is forgotten, where no Ethernet Inactivity Timer says otherwise.",
    ),
    ("[forwarding_policy]", "name", "text", "required", "The Forwarding Policy Identifier that a FAR gives."),
    (
        "[forwarding_policy]",
        "next_hop",
        "address",
        "none",
        "Packets go by the way to that address, wherever they are going.",
    ),
    (
        "[forwarding_policy]",
        "network_instance",
        "text",
        "none",
        "Packets leave by that network instance. Either this or `next_hop` is given.",
    ),
    ("[predefined_rule]", "name", "text", "required", "The name that control planes switch the rule on by."),
    (
        "[predefined_rule]",
        "bases",
        "list of text",
        "empty",
        "Rule bases that it belongs to, which switch on all their rules.",
    ),
    (
        "[predefined_rule]",
        "precedence",
        "number",
        "required",
        "Lower values are matched first, among all rules of a session.",
    ),
    (
        "[predefined_rule]",
        "flows",
        "list of flow descriptions",
        "empty",
        "Such as `permit out 17 from any 53 to assigned`; any of them matches, none at all matches everything.",
    ),
    (
        "[predefined_rule]",
        "application",
        "text",
        "none",
        "Application ID, as PFD management names it, that packets belong to.",
    ),
    ("[predefined_rule]", "drop", "true or false", "false", "Drop what matches, whatever the FAR says."),
    ("buffer", "packets_per_session", "number", "64", "Most downlink packets kept for one idle UE."),
    (
        "buffer",
        "packets",
        "number",
        "4096",
        "Most packets kept by one worker; at most half of the frames for all workers.",
    ),
    ("buffer", "bytes_per_session", "number", "1048576", "Most bytes of packets kept for one idle UE."),
    ("buffer", "bytes", "number", "67108864", "Most bytes of packets kept by all workers."),
    (
        "buffer",
        "time_ms",
        "number",
        "10000",
        "Longest time a packet is kept, in milliseconds, unless the control plane has it kept longer.",
    ),
    (
        "qos",
        "burst_ms",
        "number",
        "10",
        "Burst of a QER without averaging window, in milliseconds at its rate, 1 to 10000.",
    ),
    (
        "control",
        "socket",
        "path",
        "/run/kaido.sock",
        "Unix socket of `kaido status`, `sessions` and `drops`.",
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

/// The reference as Markdown: `docs/configuration.md`.
pub(crate) fn reference() -> String {
    let mut text = String::from(
        "# Configuration reference\n\n\
         Written by `kaido reference` from the code; do not edit.\n\n\
         One TOML file, given with `kaido run -c FILE`. `kaido check -c FILE` reads it without starting\n\
         anything. `[[port]]`, `[[ue_pool]]`, `[[network_instance]]`,\n\
         `[[forwarding_policy]]` and `[[predefined_rule]]` are lists of tables; the rest are single tables.\n",
    );
    let mut section = "";
    for (found, name, kind, default, meaning) in FIELDS {
        if *found != section {
            section = found;
            text.push_str(&format!(
                "\n## `[{found}]`\n\n| field | allowed | default | meaning |\n|---|---|---|---|\n"
            ));
        }
        text.push_str(&format!("| `{name}` | {kind} | {default} | {meaning} |\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;

    #[test]
    fn the_book_has_this_reference() {
        let book = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
        let written = std::fs::read_to_string(&book).unwrap_or_default();
        assert!(written == reference(), "run `make docs/configuration.md` to write {}", book.display());
    }

    #[test]
    fn every_field_of_the_table_is_one_of_the_file() {
        for (section, name, ..) in FIELDS {
            // An array is of no field's kind but a list's: a field that exists complains of its kind, an
            // unknown one of its name.
            let text = format!("[{section}]\n{name} = {{{{ nothing = 1 }}}}\n");
            let error = toml::from_str::<Config>(&text).unwrap_err().to_string();
            assert!(!error.contains("unknown field"), "{section} {name}: {error}");
        }
    }

    #[test]
    fn every_field_of_the_file_is_in_the_table() {
        for section in [
            "node",
            "[port]",
            "gtpu",
            "[gtpu.peer]",
            "dpdk",
            "pfcp",
            "[ue_pool]",
            "[predefined_rule]",
            "reassembly",
            "buffer",
            "qos",
            "ethernet",
            "control",
            "metrics",
            "log",
        ] {
            let error = toml::from_str::<Config>(&format!("[{section}]\nno_such_field = 1\n")).unwrap_err();
            let said = error.message().to_owned();
            let (_, allowed) = said.split_once("expected").unwrap_or_else(|| panic!("{section}: {said}"));
            for name in allowed.split('`').skip(1).step_by(2) {
                let listed = FIELDS.iter().any(|field| field.0 == section && field.1 == name);
                assert!(listed, "{section}: {name} is missing from the reference");
            }
        }
    }
}
