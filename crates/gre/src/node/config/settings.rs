//! The function's own form of what the file says. The file was checked: names of ports are found.

use kaido_engine::PortId;
use kaido_node::config::{Prefix, Spanned};

use super::{
    CopyField, DontFragmentName, EncapsulationConfig, ForwardName, Fragments, GreConfig, InnerKind, Key,
    RuleConfig, UnmatchedAction, UnreadableAction, VerdictName,
};
use crate::{
    Condition, DontFragment, Encapsulation, ForwardingMode, Inner, KeyMatch, Pieces, PortSettings,
    Propagation, Rule, Settings, Verdict,
};

impl GreConfig {
    /// The port that packets leave by which came in at the port of that number. One that names none is connected with the
    /// one that names it.
    pub(crate) fn peer_port(&self, at: usize) -> Option<PortId> {
        let (own, of_own) = self.ports().nth(at)?;
        let place = match &of_own.peer_port {
            Some(name) => return self.port(name.get_ref()),
            None => self.ports().position(|(_, of_port)| {
                of_port.peer_port.as_ref().is_some_and(|name| name.get_ref() == own.name.get_ref())
            }),
        };
        place.and_then(|place| u8::try_from(place).ok()).map(PortId)
    }

    /// Whether anything goes by the node's routes.
    pub(crate) fn is_routed(&self) -> bool {
        let rules = self.gre.rules.iter().filter_map(|rule| rule.get_ref().forward.as_ref());
        let routed = rules.map(|forward| *forward.get_ref());
        routed
            .chain(self.gre.encapsulations.iter().map(|tunnel| tunnel.get_ref().forward))
            .any(|forward| forward == ForwardName::Route)
    }

    /// How many rules and encapsulations there are.
    pub(crate) fn rules(&self) -> usize {
        self.settings(Vec::new()).names().len()
    }

    /// What the function is told, given what is known of the ports.
    pub(crate) fn settings(&self, ports: Vec<PortSettings>) -> Settings {
        let table = &self.gre;
        let all = Settings::bump(ports);
        Settings {
            rules: match &table.rules[..] {
                [] => all.rules,
                rules => rules.iter().map(|rule| self.rule(rule.get_ref())).collect(),
            },
            encapsulations: table
                .encapsulations
                .iter()
                .filter_map(|tunnel| self.encapsulation(tunnel.get_ref()))
                .collect(),
            ports: all.ports,
            unmatched: match table.unmatched {
                UnmatchedAction::Decapsulate => Verdict::DECAPSULATE,
                UnmatchedAction::Pass => Verdict::Pass,
                UnmatchedAction::Drop => Verdict::Drop,
                UnmatchedAction::Punt => Verdict::Punt,
            },
            unreadable: match table.unreadable {
                UnreadableAction::Pass => Verdict::Pass,
                UnreadableAction::Drop => Verdict::Drop,
                UnreadableAction::Punt => Verdict::Punt,
            },
            pieces: match table.fragments {
                Fragments::Assemble => Pieces::Assemble,
                Fragments::Pass => Pieces::Pass,
                Fragments::Drop => Pieces::Drop,
            },
        }
    }

    /// A port's number.
    pub(super) fn port(&self, name: &str) -> Option<PortId> {
        let place = self.base.ports.iter().position(|port| port.get_ref().name.get_ref() == name)?;
        u8::try_from(place).ok().map(PortId)
    }

    fn rule(&self, rule: &RuleConfig) -> Rule {
        let carry = |carry: &Option<Spanned<CopyField>>| {
            carry.as_ref().map_or(Propagation::Pipe, |carry| (*carry.get_ref()).into())
        };
        Rule {
            name: rule.name.get_ref().clone(),
            condition: Condition {
                port: rule.port.as_ref().and_then(|name| self.port(name.get_ref())),
                source: prefix(rule.source.as_ref()),
                destination: prefix(rule.destination.as_ref()),
                key: match rule.key {
                    Key::Any => KeyMatch::Any,
                    Key::Absent => KeyMatch::Absent,
                    Key::Is(key) => KeyMatch::Is(key),
                },
                inner: rule.inner.as_ref().map_or_else(Inner::default, |kinds| {
                    let has = |kind| kinds.get_ref().contains(&kind);
                    Inner {
                        ipv4: has(InnerKind::Ipv4),
                        ipv6: has(InnerKind::Ipv6),
                        ethernet: has(InnerKind::Ethernet),
                    }
                }),
            },
            verdict: match rule.verdict {
                VerdictName::Decapsulate => Verdict::Decapsulate {
                    ttl: carry(&rule.ttl),
                    dscp: carry(&rule.dscp),
                    forward: rule
                        .forward
                        .as_ref()
                        .map_or(ForwardingMode::PeerPort, |forward| (*forward.get_ref()).into()),
                },
                VerdictName::Pass => Verdict::Pass,
                VerdictName::Drop => Verdict::Drop,
                VerdictName::Punt => Verdict::Punt,
            },
        }
    }

    fn encapsulation(&self, tunnel: &EncapsulationConfig) -> Option<Encapsulation> {
        Some(Encapsulation {
            name: tunnel.name.get_ref().clone(),
            port: self.port(tunnel.port.get_ref())?,
            source: prefix(tunnel.source.as_ref()),
            destination: prefix(tunnel.destination.as_ref()),
            ethernet: tunnel.ethernet,
            local: *tunnel.local.get_ref(),
            remote: *tunnel.remote.get_ref(),
            key: tunnel.key,
            checksum: tunnel.checksum,
            hops: *tunnel.hops.get_ref(),
            ttl: tunnel.ttl.into(),
            dscp: tunnel.dscp.into(),
            dont_fragment: match tunnel.dont_fragment {
                DontFragmentName::Set => DontFragment::Set,
                DontFragmentName::Clear => DontFragment::Clear,
                DontFragmentName::Copy => DontFragment::Copy,
            },
            forward: tunnel.forward.into(),
        })
    }
}

fn prefix(prefix: Option<&Spanned<Prefix>>) -> Option<crate::Prefix> {
    let prefix = prefix?.get_ref();
    crate::Prefix::new(prefix.addr, prefix.len)
}

impl From<CopyField> for Propagation {
    fn from(carry: CopyField) -> Self {
        match carry {
            CopyField::Pipe => Self::Pipe,
            CopyField::Uniform => Self::Uniform,
        }
    }
}

impl From<ForwardName> for ForwardingMode {
    fn from(forward: ForwardName) -> Self {
        match forward {
            ForwardName::PeerPort => Self::PeerPort,
            ForwardName::Route => Self::Route,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::tests::read;
    use super::*;

    fn ports() -> Vec<PortSettings> {
        vec![PortSettings { peer_port: None, mac: [0; 6], addresses: Vec::new(), mtu: 1500 }; 2]
    }

    #[test]
    fn without_rules_every_tunnel_packet_loses_its_headers() {
        let config = read("").unwrap();
        let settings = config.settings(ports());
        assert_eq!(settings, Settings::bump(ports()));
        assert_eq!((config.peer_port(0), config.peer_port(1)), (Some(PortId(1)), Some(PortId(0))));
        assert!(!config.is_routed());
    }

    #[test]
    fn rules_come_as_they_are_written() {
        let text = "[gre]\nunmatched = \"drop\"\nunreadable = \"punt\"\nfragments = \"pass\"\n\
            [[gre.rule]]\nname = \"a\"\nport = \"out\"\nsource = \"192.0.2.0/24\"\nkey = 0xffffffff\n\
            inner = [\"ipv4\", \"ethernet\"]\nttl = \"uniform\"\nforward = \"route\"\n\
            [[gre.rule]]\nname = \"b\"\nkey = \"none\"\nverdict = \"punt\"\n\
            [[gre.encapsulation]]\nname = \"c\"\nport = \"in\"\ndestination = \"2001:db8::/32\"\nlocal = \"10.0.0.1\"\n\
            remote = \"10.0.0.2\"\nkey = 7\nchecksum = true\ndscp = \"uniform\"\ndont_fragment = \"copy\"\n";
        let config = read(text).unwrap();
        let settings = config.settings(ports());
        assert_eq!(settings.check(), Ok(()));
        assert_eq!(settings.names(), ["a", "b", "c"]);
        assert_eq!((settings.unmatched, settings.unreadable), (Verdict::Drop, Verdict::Punt));
        assert_eq!(settings.pieces, Pieces::Pass);
        let [a, b] = &settings.rules[..] else { panic!("{settings:?}") };
        assert_eq!((a.condition.port, a.condition.key), (Some(PortId(1)), KeyMatch::Is(u32::MAX)));
        assert_eq!(a.condition.inner, Inner { ipv6: false, ..Inner::default() });
        let uniform = Verdict::Decapsulate {
            ttl: Propagation::Uniform,
            dscp: Propagation::Pipe,
            forward: ForwardingMode::Route,
        };
        assert_eq!((a.verdict, b.verdict, b.condition.key), (uniform, Verdict::Punt, KeyMatch::Absent));
        let into = &settings.encapsulations[0];
        assert_eq!((into.port, into.key, into.checksum, into.hops), (PortId(0), Some(7), true, 64));
        assert_eq!((into.dscp, into.dont_fragment), (Propagation::Uniform, DontFragment::Copy));
        assert!(config.is_routed());
    }
}
