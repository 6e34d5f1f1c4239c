//! What no single field of a header remover's file can tell.

use std::collections::HashSet;
use std::net::IpAddr;

use kaido_node::config::Findings;
use kaido_node::config::{Datapath, Prefix, Spanned};

use super::{EncapsulationConfig, GreConfig, NAME_MAX, RuleConfig, VerdictName};
use crate::RULES_MAX;

/// Everything that is wrong with a header remover's sections and fields.
pub(crate) fn check(config: &GreConfig, findings: &mut Findings) {
    let datapath = &config.base.node.datapath;
    if *datapath.get_ref() == Datapath::Hybrid {
        findings.add(
            datapath.span(),
            "node.datapath",
            "\"hybrid\" is for tables of sessions, and there are none",
            "use datapath = \"xdp\", whose program leaves to the engine what it cannot do, or \"engine\"",
        );
    }
    ports(config, findings);
    let table = &config.gre;
    for (count, field) in [(table.rules.len(), "gre.rule"), (table.encapsulations.len(), "gre.encapsulation")]
    {
        if count > RULES_MAX {
            findings.add(0..0, field, format!("{count} of them"), format!("at most {RULES_MAX}"));
        }
    }
    let mut names = HashSet::new();
    for rule in &table.rules {
        name(&rule.get_ref().name, "gre.rule.name", &mut names, findings);
        self::rule(config, rule.get_ref(), findings);
    }
    for tunnel in &table.encapsulations {
        name(&tunnel.get_ref().name, "gre.encapsulation.name", &mut names, findings);
        encapsulation(config, tunnel.get_ref(), findings);
    }
}

fn ports(config: &GreConfig, findings: &mut Findings) {
    if config.base.ports.is_empty() {
        let help = "add a [[port]]; two that name each other by `peer_port` are a bump in the wire";
        findings.add(0..0, "port", "no port", help);
        return;
    }
    let peer_port = || config.ports().filter_map(|(port, of_port)| Some((port, of_port.peer_port.as_ref()?)));
    for (port, peer_port) in peer_port() {
        let name = peer_port.get_ref();
        if name == port.name.get_ref() {
            let help = "name the port that its packets are to leave by";
            findings.add(peer_port.span(), "port.peer_port", format!("`{name}` is the port itself"), help);
        } else {
            self::port(config, peer_port, "port.peer_port", findings);
        }
    }
    if peer_port().next().is_none() && !config.is_routed() {
        findings.add(
            0..0,
            "port.peer_port",
            "no port is connected with another, and nothing is routed",
            "name the other port by `peer_port`, or write forward = \"route\" into a rule",
        );
    }
}

/// Whether a port has that name.
fn port(config: &GreConfig, name: &Spanned<String>, field: &str, findings: &mut Findings) {
    if config.port(name.get_ref()).is_none() {
        let known: Vec<_> =
            config.base.ports.iter().map(|port| format!("\"{}\"", port.get_ref().name.get_ref())).collect();
        let message = format!("there is no port `{}`", name.get_ref());
        findings.add(name.span(), field, message, format!("the ports are {}", known.join(", ")));
    }
}

/// Whether a name is good for counters, and of no other.
fn name<'c>(name: &'c Spanned<String>, field: &str, seen: &mut HashSet<&'c str>, findings: &mut Findings) {
    let text = name.get_ref().as_str();
    let help = format!("1 to {NAME_MAX} characters, each name once: counters have it");
    if !(1..=NAME_MAX).contains(&text.len()) {
        findings.add(name.span(), field, format!("{} octets", text.len()), help);
    } else if !seen.insert(text) {
        findings.add(name.span(), field, format!("`{text}` is there twice"), help);
    }
}

fn rule(config: &GreConfig, rule: &RuleConfig, findings: &mut Findings) {
    if let Some(name) = &rule.port {
        port(config, name, "gre.rule.port", findings);
    }
    families("gre.rule.destination", rule.source.as_ref(), rule.destination.as_ref(), findings);
    if let Some(inner) = rule.inner.as_ref().filter(|inner| inner.get_ref().is_empty()) {
        let help = "name at least one of \"ipv4\", \"ipv6\", \"ethernet\", or leave the field out";
        findings.add(inner.span(), "gre.rule.inner", "no packet is in nothing", help);
    }
    if rule.verdict != VerdictName::Decapsulate {
        let fields = [
            (rule.ttl.as_ref().map(Spanned::span), "gre.rule.ttl"),
            (rule.dscp.as_ref().map(Spanned::span), "gre.rule.dscp"),
            (rule.forward.as_ref().map(Spanned::span), "gre.rule.forward"),
        ];
        for (place, field) in fields.into_iter().filter_map(|(place, field)| Some((place?, field))) {
            let help = "remove it, or use verdict = \"decapsulate\"";
            findings.add(place, field, "only a rule that takes headers off has it", help);
        }
    }
}

fn encapsulation(config: &GreConfig, tunnel: &EncapsulationConfig, findings: &mut Findings) {
    port(config, &tunnel.port, "gre.encapsulation.port", findings);
    families("gre.encapsulation.destination", tunnel.source.as_ref(), tunnel.destination.as_ref(), findings);
    findings.range(&tunnel.hops, "gre.encapsulation.hops");
    let (local, remote) = (tunnel.local.get_ref(), tunnel.remote.get_ref());
    if local.is_ipv4() != remote.is_ipv4() {
        let message = "one end of the tunnel is of IPv4 and the other of IPv6";
        findings.add(tunnel.remote.span(), "gre.encapsulation.remote", message, "give both of one family");
    }
    if local == remote {
        let help = "the far end is another host";
        findings.add(tunnel.remote.span(), "gre.encapsulation.remote", "both ends are the same", help);
    }
    for (end, field) in
        [(&tunnel.local, "gre.encapsulation.local"), (&tunnel.remote, "gre.encapsulation.remote")]
    {
        if !is_end(*end.get_ref()) {
            let message = format!("{} is no host's address", end.get_ref());
            findings.add(end.span(), field, message, "tunnels lead from a host to a host");
        }
    }
}

fn is_end(address: IpAddr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && !address.is_loopback()
}

fn families(
    field: &str,
    source: Option<&Spanned<Prefix>>,
    destination: Option<&Spanned<Prefix>>,
    findings: &mut Findings,
) {
    if let (Some(source), Some(destination)) = (source, destination)
        && source.get_ref().addr.is_ipv4() != destination.get_ref().addr.is_ipv4()
    {
        let message = "source and destination are of two families: no packet has both";
        findings.add(destination.span(), field, message, "give both of IPv4, or both of IPv6");
    }
}

#[cfg(test)]
pub(in crate::node) mod tests {
    use std::path::Path;

    use miette::Diagnostic;

    use super::*;
    use kaido_node::config::FilePart;
    use kaido_node::file::Config;
    use kaido_node::function::NetworkFunction;

    const FUNCTIONS: &[&dyn NetworkFunction] = &[&crate::GreFunction];

    const BASE: &str = "function = \"gre\"\n\
        [[port]]\nname = \"in\"\ndriver = \"af_packet\"\ninterface = \"a\"\npeer_port = \"out\"\n\
        [[port]]\nname = \"out\"\ndriver = \"af_packet\"\ninterface = \"b\"\n";

    /// Two ports that are connected, and more.
    pub(crate) fn read(more: &str) -> Result<GreConfig, String> {
        whole(&format!("{BASE}{more}"))
    }

    /// A whole file.
    pub(crate) fn whole(text: &str) -> Result<GreConfig, String> {
        let text = text.to_owned();
        match Config::parse(Path::new("kaido.toml"), text.clone(), FUNCTIONS) {
            Ok(_) => FilePart::whole(&text).and_then(GreConfig::read).map_err(|error| error.to_string()),
            Err(fault) => {
                Err(format!("{fault}\n{}", fault.help().map(|help| help.to_string()).unwrap_or_default()))
            }
        }
    }

    #[test]
    fn what_cannot_be_is_said_with_its_field() {
        let rule = |more: &str| format!("[[gre.rule]]\nname = \"a\"\n{more}\n");
        let into = |more: &str| {
            format!("[[gre.encapsulation]]\nname = \"a\"\nport = \"in\"\nlocal = \"10.0.0.1\"\n{more}\n")
        };
        for (text, wanted) in [
            (rule("port = \"up\""), "gre.rule.port: there is no port `up`"),
            (rule("source = \"10.0.0.0/8\"\ndestination = \"::/0\""), "gre.rule.destination: source and"),
            (rule("inner = []"), "gre.rule.inner"),
            (
                rule("verdict = \"drop\"\nttl = \"uniform\""),
                "gre.rule.ttl: only a rule that takes headers off",
            ),
            (rule("key = -1"), "-1 is no key"),
            (rule("key = \"all\""), "\"all\" is no key"),
            (rule("") + &rule(""), "gre.rule.name"),
            (rule("") + &into("remote = \"10.0.0.2\""), "gre.encapsulation.name"),
            (into("remote = \"2001:db8::1\""), "gre.encapsulation.remote: one end"),
            (into("remote = \"0.0.0.0\""), "gre.encapsulation.remote: 0.0.0.0 is no host"),
            (into("remote = \"10.0.0.2\"\nhops = 0"), "gre.encapsulation.hops"),
            ("[node]\ndatapath = \"hybrid\"\n".to_owned(), "node.datapath: \"hybrid\" is for tables"),
            ("[gre]\nunreadable = \"decapsulate\"\n".to_owned(), "expected one of `pass`, `drop`, `punt`"),
            ((0..257).map(|n| format!("[[gre.rule]]\nname = \"{n}\"\n")).collect(), "gre.rule: 257 of them"),
        ] {
            let said = read(&text).err().unwrap_or_default();
            assert!(said.contains(wanted), "{wanted}: {said}");
        }
    }

    #[test]
    fn ports_lead_somewhere() {
        let said = |text: &str| whole(text).err().unwrap_or_default();
        assert!(said("function = \"gre\"\n").contains("port: no port"));
        let one = "function = \"gre\"\n[[port]]\nname = \"a\"\ndriver = \"af_packet\"\ninterface = \"a\"\n";
        assert!(said(one).contains("nothing is routed"));
        assert!(said(&format!("{one}peer_port = \"a\"\n")).contains("`a` is the port itself"));
        assert!(said(&format!("{one}peer_port = \"b\"\n")).contains("the ports are \"a\""));
        assert_eq!(said(&format!("{one}[[gre.rule]]\nname = \"all\"\nforward = \"route\"\n")), "");
    }
}
