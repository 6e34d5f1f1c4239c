//! What no single field of a user plane's file can tell.

use std::collections::BTreeMap;

use kaido_node::config::Findings;
use kaido_node::config::{Datapath, Driver, PortConfig, Spanned};
use kaido_node::config::{FRAMES_MIN, QueueMode, WORKERS_MAX};

use super::gtpu::MSS_MIN;
use super::gtpu::MssClampConfig;
use super::{SteerBy, UePoolConfig, UpfConfig, UpfPort};
use crate::config::Role;

/// Everything that is wrong with a user plane's sections and fields.
pub(crate) fn check(config: &UpfConfig, findings: &mut Findings) {
    findings.range(&config.node.sessions_max, "node.sessions_max");
    findings.range(&config.pfcp.heartbeat_interval_s, "pfcp.heartbeat_interval_s");
    findings.range(&config.pfcp.t1_ms, "pfcp.t1_ms");
    findings.range(&config.pfcp.n1, "pfcp.n1");
    findings.range(&config.gtpu.echo_t3_ms, "gtpu.echo_t3_ms");
    findings.range(&config.gtpu.echo_retries, "gtpu.echo_retries");
    if *config.gtpu.echo_interval_s.get_ref() > 0 {
        findings.range(&config.gtpu.echo_interval_s, "gtpu.echo_interval_s");
    }
    findings.range(&config.qos.burst_ms, "qos.burst_ms");
    buffered(config, findings);
    if let MssClampConfig::To(most @ ..MSS_MIN) = *config.gtpu.mss_clamp.get_ref() {
        findings.add(
            config.gtpu.mss_clamp.span(),
            "gtpu.mss_clamp",
            format!("{most} is below what every host takes"),
            format!("{MSS_MIN} to 65535 are allowed, true for what the ports take, false for none"),
        );
    }
    super::gtpu::check_marking(&config.gtpu, findings);
    queues(config, findings);
    route_tables(config, findings);
    let ports = config.base.ports.iter().zip(&config.ports);
    ports.for_each(|(port, of_port)| self::port(port, of_port, findings));
    sides(config, findings);
    records(config, findings);
    pfcp(config, findings);
    pools(config, findings);
    super::vlan::check(config, findings);
    super::lan::check(config, findings);
    super::ethernet::check(config, findings);
    super::predefined::check(config, findings);
    super::store::check(&config.store, findings);
    super::ipfix::check(&config.ipfix, findings);
    super::event_exposure::check(&config.event_exposure, findings);
    super::otlp::check(&config.otlp, findings);
}

/// Whether workers may buffer more packets than there are frames to spare.
fn buffered(config: &UpfConfig, findings: &mut Findings) {
    let (node, packets) = (&config.base.node, &config.buffer.packets);
    let (workers, frames) = (*node.workers.get_ref(), *node.frames.get_ref());
    let wanted = u64::from(*packets.get_ref()) * u64::from(workers);
    // What is out of range itself has been said.
    if workers > WORKERS_MAX || frames < FRAMES_MIN || wanted <= u64::from(frames) / 2 {
        return;
    }
    // The field that is in the file, most likely the one that was changed last.
    let (field, at) = [
        ("buffer.packets", packets.span()),
        ("node.workers", node.workers.span()),
        ("node.frames", node.frames.span()),
    ]
    .into_iter()
    .find(|(_, at)| !at.is_empty())
    .unwrap_or(("buffer.packets", 0..0));
    let (most, least) =
        (u64::from(frames) / 2 / u64::from(workers.max(1)), (wanted * 2).next_multiple_of(1024));
    findings.add(
        at,
        field,
        format!(
            "{workers} workers that buffer {} packets each could take {wanted} of {frames} frames; half of them is the most",
            packets.get_ref()
        ),
        format!("set packets = {most} in [buffer], or frames = {least} in [node]"),
    );
}

/// The fields at fault.
#[cfg(test)]
pub(super) fn fields(config: &UpfConfig) -> Vec<String> {
    let mut findings = Findings::new(&super::SCHEMA);
    kaido_node::config::check_base(&config.base, &mut findings);
    check(config, &mut findings);
    findings.faults.into_iter().map(|fault| fault.field).collect()
}

fn queues(config: &UpfConfig, findings: &mut Findings) {
    let (queue_mode, steer_by) = (&config.base.node.queue_mode, &config.node.steer_by);
    if *queue_mode.get_ref() != QueueMode::Rss && *steer_by.get_ref() != SteerBy::Queue {
        findings.add(
            steer_by.span(),
            "node.steer_by",
            "the workers of a shared queue take its packets as they come",
            "remove steer_by, or set node.queue_mode = \"rss\"",
        );
    }
}

fn port(port: &Spanned<PortConfig>, of_port: &UpfPort, findings: &mut Findings) {
    let (place, port) = (port.span(), port.get_ref());
    let (roles, ue_prefixes) = (&of_port.roles, &of_port.ue_prefixes);
    if roles.get_ref().is_empty() {
        let at = if roles.span().is_empty() { place } else { roles.span() };
        findings.add(at, "port.roles", "no role", "name at least one of \"n3\", \"n6\", \"n9\"");
    }
    let of_n6 = roles.get_ref().is_empty() || of_port.is_n6();
    if !of_n6 && !ue_prefixes.is_empty() {
        let message = "only an n6 port has packets to UEs";
        findings.add(roles.span(), "port.ue_prefixes", message, "add the role \"n6\" or remove the field");
    }
    route_table(of_port, findings);
    if *port.driver.get_ref() != Driver::AfXdp && !ue_prefixes.is_empty() {
        findings.add(
            port.driver.span(),
            "port.ue_prefixes",
            "only af_xdp chooses packets by prefix",
            "remove ue_prefixes or use driver = \"af_xdp\"",
        );
    }
}

fn route_table(of_port: &UpfPort, findings: &mut Findings) {
    let Some(table) = &of_port.route_table else { return };
    let mut find = |message: &str, help| findings.add(table.span(), "port.route_table", message, help);
    if !of_port.is_n6() {
        find("only to an n6 port packets are routed by a table of its own", "remove the field");
    }
    // Of `linux/rtnetlink.h`: unspecified, and the addresses of the host.
    if matches!(table.get_ref(), 0 | 255) {
        find("no table of routes to other hosts", "use another number, or remove the field");
    }
}

/// Ports of one network instance are routed to by one table.
fn route_tables(config: &UpfConfig, findings: &mut Findings) {
    let mut of_instances: BTreeMap<&Option<String>, &Option<Spanned<u32>>> = BTreeMap::new();
    for of_port in config.ports.iter().filter(|of_port| of_port.is_n6()) {
        let table = &of_port.route_table;
        let first = *of_instances.entry(&of_port.network_instance).or_insert(table);
        let [one, other] = [first, table].map(|table| table.as_ref().map(|table| *table.get_ref()));
        if one != other {
            let place = table.as_ref().or(first.as_ref()).map_or(0..0, Spanned::span);
            let message = "ports of one network instance with several tables";
            findings.add(place, "port.route_table", message, "give all of them the same route_table");
        }
    }
}

fn sides(config: &UpfConfig, findings: &mut Findings) {
    for (role, names) in [(Role::N3, "\"n3\" or \"n9\""), (Role::N6, "\"n6\" or \"n9\"")] {
        let is_it = |&found: &Role| found == role || found == Role::N9;
        let there = config.ports.iter().any(|port| port.roles.get_ref().iter().any(is_it));
        if !there {
            findings.add(
                0..0,
                "port",
                format!("no port has the role {names}"),
                "a user plane stands between two sides; add a [[port]] for the other",
            );
        }
    }
}

fn records(config: &UpfConfig, findings: &mut Findings) {
    let Some(records) = &config.node.xdp_records_max else { return };
    findings.range(records, "node.xdp_records_max");
    if *config.base.node.datapath.get_ref() != Datapath::Hybrid {
        findings.add(
            records.span(),
            "node.xdp_records_max",
            "only the hybrid datapath has such a limit",
            "set node.datapath = \"hybrid\" or remove the field",
        );
    }
}

fn pfcp(config: &UpfConfig, findings: &mut Findings) {
    if config.pfcp.listen.get_ref().is_empty() {
        findings.add(
            config.pfcp.listen.span(),
            "pfcp.listen",
            "no address",
            "name at least one, such as \"10.0.0.1\"; the port is 8805 unless given",
        );
    }
    let mut known = Vec::new();
    for listen in config.pfcp.listen.get_ref() {
        let at = config.pfcp.listen.span();
        if listen.0.ip().is_unspecified() || listen.0.port() == 0 {
            let message = format!("control planes cannot be told to answer to {}", listen.0);
            let help = "name the addresses at which they reach the node, such as \"10.0.0.1\"";
            findings.add(at, "pfcp.listen", message, help);
        } else if known.contains(listen) {
            findings.add(at, "pfcp.listen", format!("{} is there twice", listen.0), "once is enough");
        }
        known.push(*listen);
    }
    if let Some(node_id) = &config.pfcp.node_id {
        let text = node_id.get_ref();
        let is_name = text.len() <= 255
            && text.split('.').all(|label| {
                (1..=63).contains(&label.len())
                    && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
            });
        if text.parse::<std::net::IpAddr>().is_err() && !is_name {
            findings.add(
                node_id.span(),
                "pfcp.node_id",
                format!("`{text}` is neither an address nor a domain name"),
                "write an IPv4 or IPv6 address, or a name such as \"upf1.example.org\"",
            );
        }
    }
}

/// Whether an address could be given to two UEs of a network instance.
fn pools_overlap(config: &UpfConfig, findings: &mut Findings) {
    let pools: Vec<_> = config.ue_pools.iter().map(Spanned::get_ref).collect();
    for (at, pool) in pools.iter().enumerate() {
        let instance =
            |pool: &UePoolConfig| pool.network_instance.as_ref().map(|name| name.get_ref().clone());
        let before = pools.iter().take(at).filter(|other| instance(other) == instance(pool));
        for other in before {
            let pairs =
                [("ue_pool.ipv4", &pool.ipv4, &other.ipv4), ("ue_pool.ipv6", &pool.ipv6, &other.ipv6)];
            for (field, prefix, other) in pairs {
                let (Some(prefix), Some(other)) = (prefix, other) else { continue };
                let (own, others) = (prefix.get_ref(), other.get_ref());
                if own.contains(others.addr) || others.contains(own.addr) {
                    let message = "another pool of the network instance has some of these addresses";
                    findings.add(prefix.span(), field, message, "give each pool addresses of its own");
                }
            }
        }
    }
}

fn pools(config: &UpfConfig, findings: &mut Findings) {
    pools_overlap(config, findings);
    for pool in &config.ue_pools {
        let (place, pool) = (pool.span(), pool.get_ref());
        if pool.ipv4.is_none() && pool.ipv6.is_none() {
            findings.add(place, "ue_pool", "neither ipv4 nor ipv6", "give at least one prefix");
        }
        if let Some(prefix) = &pool.ipv4
            && prefix.get_ref().ipv4().is_none_or(|(_, len)| len > 30)
        {
            findings.add(
                prefix.span(),
                "ue_pool.ipv4",
                "not an IPv4 network of at least two hosts",
                "a prefix of at most /30, such as \"10.60.0.0/16\"",
            );
        }
        if let Some(prefix) = &pool.ipv6
            && prefix.get_ref().ipv6().is_none_or(|(_, len)| len > 64)
        {
            findings.add(
                prefix.span(),
                "ue_pool.ipv6",
                "not an IPv6 network that holds a /64",
                "a prefix of at most /64, such as \"2001:db8:60::/48\"",
            );
        }
        for (field, prefix) in [("ue_pool.ipv4", &pool.ipv4), ("ue_pool.ipv6", &pool.ipv6)] {
            let Some(prefix) = prefix else { continue };
            if let Some(network) = prefix.get_ref().without_host_bits() {
                let message = format!("{} is an address in a network, not a network", prefix.get_ref().addr);
                let help = format!("write the network, \"{}/{}\"", network.addr, network.len);
                findings.add(prefix.span(), field, message, help);
            }
        }
        if let Some(name) = &pool.network_instance {
            let known = config.ports.iter().any(|port| {
                port.is_n6() && port.network_instance.as_ref().is_none_or(|own| own == name.get_ref())
            });
            if !known {
                findings.add(
                    name.span(),
                    "ue_pool.network_instance",
                    format!("no n6 port has the network instance `{}`", name.get_ref()),
                    "use the network_instance of an n6 port",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::testing::{faults, unchecked};

    #[test]
    fn what_cannot_be_is_found_with_its_field() {
        for (text, field) in [
            ("[[ue_pool]]\nipv4 = \"10.60.0.0/16\"\n[[ue_pool]]\nipv4 = \"10.60.9.0/24\"\n", "ue_pool.ipv4"),
            ("[[ue_pool]]\nipv6 = \"fd00::/56\"\n[[ue_pool]]\nipv6 = \"fd00::/48\"\n", "ue_pool.ipv6"),
            ("[log]\nlevel = \"loud\"\n", "log.level"),
            ("[log]\nlevel = \"info,kaido_pfcp=loud\"\n", "log.level"),
            ("[node]\nframes = 5\n", "node.frames"),
            ("[node]\nframe_bytes = 3000\n", "node.frame_bytes"),
            ("[node]\nworkers = 65\nqueue_mode = \"rss\"\n[buffer]\npackets = 1\n", "node.workers"),
        ] {
            let found = faults(text);
            assert!(found.iter().all(|found| found == field || found == "port.driver"), "{text}: {found:?}");
            assert!(found.iter().any(|found| found == field), "{text}: {found:?}");
        }
        for sound in [
            "[[ue_pool]]\nipv4 = \"10.60.0.0/16\"\n[[ue_pool]]\nipv4 = \"10.61.0.0/16\"\nipv6 = \"fd00::/56\"\n",
            "[log]\nlevel = \"info,kaido_pfcp=debug\"\n",
            "[log]\nlevel = \"off\"\n",
            "[node]\nframe_bytes = 2048\n",
            "[node]\nframe_bytes = 4096\n",
        ] {
            assert_eq!(faults(sound), Vec::<String>::new(), "{sound}");
        }
    }

    #[test]
    fn what_does_not_go_together_is_said_of_a_field_that_is_in_the_file() {
        let of = |text: &str| {
            let found = faults(text);
            found.into_iter().filter(|field| field != "port.driver").collect::<Vec<_>>()
        };
        assert_eq!(of("[node]\nworkers = 3\n"), ["node.workers"]);
        assert_eq!(of("[node]\nworkers = 3\n[buffer]\npackets = 4096\n"), ["buffer.packets"]);
        assert_eq!(of("[node]\nframes = 4096\n"), ["node.frames"]);
        assert_eq!(of("[node]\nworkers = 3\n[buffer]\npackets = 2730\n"), Vec::<String>::new());
        assert_eq!(of("[node]\nworkers = 3\nframes = 24576\n"), Vec::<String>::new());
        assert_eq!(of("[[ue_pool]]\nipv4 = \"10.60.3.7/16\"\n"), ["ue_pool.ipv4"]);
        assert_eq!(of("[[ue_pool]]\nipv6 = \"2001:db8:60::1/48\"\n"), ["ue_pool.ipv6"]);
        assert_eq!(of("[node]\ncpus = [70000]\n"), ["node.cpus"]);
        assert_eq!(of("[node]\ncpus = [0]\n"), Vec::<String>::new());
    }

    #[test]
    fn fields_of_other_ports_and_addresses_of_nobody_are_found() {
        let of = |port: &str, pfcp: &str| {
            let text = format!(
                "[[port]]\nname = \"n3\"\ninterface = \"n3\"\nroles = [\"n3\"]\n{port}\n\
                 [[port]]\nname = \"n6\"\ndriver = \"af_xdp\"\ninterface = \"n6\"\nroles = [\"n6\"]\n\
                 [pfcp]\nlisten = [{pfcp}]\n"
            );
            super::fields(&unchecked(&text).unwrap())
        };
        let own = "\"10.0.0.1\"";
        for (port, field) in [
            ("driver = \"af_packet\"\ncopy = \"copy\"", "port.copy"),
            ("driver = \"af_packet\"\nattach = \"native\"", "port.attach"),
            ("driver = \"af_xdp\"\nmtu = 9000", "port.mtu"),
            ("driver = \"tap\"\nmtu = 5", "port.mtu"),
            ("driver = \"af_xdp\"\nue_prefixes = [\"10.0.0.0/8\"]", "port.ue_prefixes"),
            ("driver = \"af_xdp\"\nroute_table = 100", "port.route_table"),
        ] {
            assert_eq!(of(port, own), [field], "{port}");
        }
        assert_eq!(of("driver = \"tap\"\nmtu = 9000", own), Vec::<String>::new());
        for wrong in ["\"0.0.0.0\"", "\"[::]:8805\"", "\"10.0.0.1:0\"", "\"10.0.0.1\", \"10.0.0.1:8805\""] {
            assert_eq!(of("driver = \"af_xdp\"", wrong), ["pfcp.listen"], "{wrong}");
        }
        let named = |name: &str| {
            let text =
                format!("[[port]]\nname = {name}\ndriver = \"tap\"\ninterface = \"a\"\nroles = [\"n9\"]\n");
            super::fields(&unchecked(&format!("{text}[pfcp]\nlisten = [{own}]\n")).unwrap())
        };
        assert_eq!(named("\"a\""), Vec::<String>::new());
        for wrong in ["\"\"", "\"a b\"", "\"a\\n\""] {
            assert_eq!(named(wrong), ["port.name"], "{wrong}");
        }
    }
}
