//! What no single field of a user plane's file can tell.

use toml::Spanned;

use super::{MssClampConfig, UpfConfig};
use crate::config::check::Findings;
use crate::config::node::QueueMode;
use crate::config::{Datapath, Driver, NodeConfig, PortConfig, Role, SteerBy};

/// Sessions whose tables fit into the memory of a large server.
const SESSIONS_MAX: u32 = 1 << 26;

/// Everything that is wrong with a user plane's sections and fields.
pub(in crate::config) fn check(config: &UpfConfig, findings: &mut Findings) {
    let node = &config.base.node;
    findings.range(&node.sessions_max, "node.sessions_max", 1, SESSIONS_MAX);
    findings.range(&config.pfcp.heartbeat_interval_s, "pfcp.heartbeat_interval_s", 1, 3600);
    findings.range(&config.pfcp.t1_ms, "pfcp.t1_ms", 10, 60_000);
    findings.range(&config.pfcp.n1, "pfcp.n1", 1, 10);
    findings.range(&config.gtpu.echo_t3_ms, "gtpu.echo_t3_ms", 10, 60_000);
    findings.range(&config.gtpu.echo_retries, "gtpu.echo_retries", 1, 10);
    if *config.gtpu.echo_interval_s.get_ref() > 0 {
        findings.range(&config.gtpu.echo_interval_s, "gtpu.echo_interval_s", 60, 86_400);
    }
    findings.range(&config.qos.burst_ms, "qos.burst_ms", 1, 10_000);
    let buffered = u64::from(*config.buffer.packets.get_ref()) * u64::from(*node.workers.get_ref());
    if buffered > u64::from(*node.frames.get_ref()) / 2 {
        findings.add(
            config.buffer.packets.span(),
            "buffer.packets",
            "buffered packets of all workers could take more than half of the frames",
            "lower buffer.packets or raise node.frames",
        );
    }
    if let MssClampConfig::To(most @ ..536) = *config.gtpu.mss_clamp.get_ref() {
        findings.add(
            config.gtpu.mss_clamp.span(),
            "gtpu.mss_clamp",
            format!("{most} is below what every host takes"),
            "536 to 65535 are allowed, true for what the ports take, false for none",
        );
    }
    queues(node, findings);
    config.base.ports.iter().for_each(|port| self::port(port, findings));
    sides(config, findings);
    records(node, findings);
    pfcp(config, findings);
    pools(config, findings);
    super::lan::check(config, findings);
    super::ethernet::check(config, findings);
    super::predefined::check(config, findings);
}

/// The fields at fault.
#[cfg(test)]
pub(super) fn fields(config: &UpfConfig) -> Vec<String> {
    let mut findings = Findings(Vec::new());
    crate::config::check::base(&config.base, false, &mut findings);
    check(config, &mut findings);
    findings.0.into_iter().map(|fault| fault.field).collect()
}

fn queues(node: &NodeConfig, findings: &mut Findings) {
    if *node.queue_mode.get_ref() != QueueMode::Rss && *node.steer_by.get_ref() != SteerBy::Queue {
        findings.add(
            node.steer_by.span(),
            "node.steer_by",
            "the workers of a shared queue take its packets as they come",
            "remove steer_by, or set node.queue_mode = \"rss\"",
        );
    }
}

fn port(port: &Spanned<PortConfig>, findings: &mut Findings) {
    let (place, port) = (port.span(), port.get_ref());
    if port.roles.get_ref().is_empty() {
        let at = if port.roles.span().is_empty() { place.clone() } else { port.roles.span() };
        findings.add(at, "port.roles", "no role", "name at least one of \"n3\", \"n6\", \"n9\"");
    }
    if port.network_instance.is_some() && !port.roles.get_ref().contains(&Role::N6) {
        findings.add(
            place,
            "port.network_instance",
            "only an n6 port has a network instance",
            "add the role \"n6\" or remove the field",
        );
    }
    if *port.driver.get_ref() != Driver::AfXdp && !port.ue_prefixes.is_empty() {
        findings.add(
            port.driver.span(),
            "port.ue_prefixes",
            "only af_xdp chooses packets by prefix",
            "remove ue_prefixes or use driver = \"af_xdp\"",
        );
    }
}

fn sides(config: &UpfConfig, findings: &mut Findings) {
    for (role, names) in [(Role::N3, "\"n3\" or \"n9\""), (Role::N6, "\"n6\" or \"n9\"")] {
        let there = config.base.ports.iter().any(|port| {
            port.get_ref().roles.get_ref().iter().any(|&found| found == role || found == Role::N9)
        });
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

fn records(node: &NodeConfig, findings: &mut Findings) {
    let Some(records) = &node.xdp_records_max else { return };
    findings.range(records, "node.xdp_records_max", 1, 4 * SESSIONS_MAX);
    if *node.datapath.get_ref() != Datapath::Hybrid {
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

fn pools(config: &UpfConfig, findings: &mut Findings) {
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
        if let Some(name) = &pool.network_instance {
            let known = config.base.ports.iter().any(|port| {
                let port = port.get_ref();
                port.roles.get_ref().contains(&Role::N6)
                    && port.network_instance.as_ref().is_none_or(|own| own == name.get_ref())
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
