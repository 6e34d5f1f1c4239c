//! What the software's settings are in the core's registers (`hdl/regs.toml`).

use crate::BusError;
use kaido_engine::PortId;
use kaido_gre::{Condition, ForwardingMode, KeyMatch, Pieces, Prefix, Propagation, Rule, Settings, Verdict};

/// Addresses of registers.
pub(crate) mod address {
    pub(crate) const UNMATCHED: u32 = 0x008;
    pub(crate) const POLICY: u32 = 0x00c;
    pub(crate) const LENGTH_MAX: u32 = 0x010;
    pub(crate) const EVENTS: u32 = 0x080;
    pub(crate) const RULES_V4: u32 = 0x200;
    pub(crate) const RULES_V6: u32 = 0x400;
    pub(crate) const RULE_COUNTERS: u32 = 0x800;
    pub(crate) const RULE_V4_LEN: u32 = 0x20;
    pub(crate) const RULE_V6_LEN: u32 = 0x80;
    pub(crate) const RULE_COUNTERS_LEN: u32 = 0x10;
}

/// Rules that a core has room for; the verilated ones have the parameters that the source has.
pub(crate) const RULES_V4: usize = 16;
pub(crate) const RULES_V6: usize = 4;

/// Octets of Ethernet with the most tags that the software knows: what may leave is the link's packet and these.
const LINK_LEN_MAX: usize = 14 + 4 * 4;

const VERDICT_PASS: u32 = 0;
const VERDICT_DROP: u32 = 1;
const VERDICT_STRIP: u32 = 2;
const VERDICT_HOST: u32 = 3;

/// Settings that the core has no room for, or cannot do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// More rules of a family than it has room for.
    #[error("{0} rules of one family: the core has room for {1}")]
    Rules(usize, usize),
    /// More tunnels than it has room for.
    #[error("{0} encapsulations of one port: the core has room for {1}")]
    Tunnels(usize, usize),
    /// A port that is connected with none.
    #[error("port {0} has no peer port: the core has one way out")]
    NoPeerPort(u8),
    /// The bus.
    #[error(transparent)]
    Bus(#[from] BusError),
}

/// Settings as writes to registers, and which rule each of the core's slots has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) writes: Vec<(u32, u32)>,
    /// Slots of IPv4, then of IPv6; what they have is the number of a rule.
    pub(crate) slots: Vec<Option<usize>>,
}

impl Image {
    /// Of frames that come in by `port`.
    pub(crate) fn of(settings: &Settings, port: PortId) -> Result<Self, Unfit> {
        let peer_port = settings.ports.get(port.index()).and_then(|port| port.peer_port);
        let peer_port = peer_port.ok_or(Unfit::NoPeerPort(port.0))?;
        let length_max = settings.ports[peer_port.index()].mtu + LINK_LEN_MAX;
        // What a tunnel of the host may be for goes there.
        let other_host = settings.encapsulations.iter().any(|tunnel| tunnel.port == port);
        let policy = verdict(settings.unreadable) | pieces(settings.pieces) << 2 | u32::from(other_host) << 4;
        let mut writes = vec![
            (address::UNMATCHED, action(settings.unmatched)),
            (address::POLICY, policy),
            (address::LENGTH_MAX, u32::try_from(length_max).unwrap_or(u32::MAX).min(0x1_ffff)),
        ];
        let mut slots = Vec::new();
        for (is_v4, room) in [(true, RULES_V4), (false, RULES_V6)] {
            let rules: Vec<_> = of_family(settings, port, is_v4).collect();
            if rules.len() > room {
                return Err(Unfit::Rules(rules.len(), room));
            }
            for (slot, rule) in
                (0..).zip(rules.iter().map(|(_, rule)| Some(*rule)).chain([None; 16]).take(room))
            {
                let (base, len) = match is_v4 {
                    true => (address::RULES_V4, address::RULE_V4_LEN),
                    false => (address::RULES_V6, address::RULE_V6_LEN),
                };
                write_rule(&mut writes, base + slot * len, rule, is_v4);
            }
            let numbers = rules.iter().map(|(number, _)| Some(*number));
            slots.extend(numbers.chain(std::iter::repeat(None)).take(room));
        }
        Ok(Self { writes, slots })
    }
}

/// The rules that packets of a family can meet which come in by `port`.
fn of_family(settings: &Settings, port: PortId, is_v4: bool) -> impl Iterator<Item = (usize, &Rule)> {
    let has = move |prefix: &Option<Prefix>| prefix.is_none_or(|prefix| prefix.is_ipv4() == is_v4);
    settings.rules.iter().enumerate().filter(move |(_, Rule { condition, .. })| {
        has(&condition.source)
            && has(&condition.destination)
            && condition.port.is_none_or(|wanted| wanted == port)
    })
}

/// A slot is made invalid, filled, and made valid; without a rule it stays invalid.
fn write_rule(writes: &mut Vec<(u32, u32)>, base: u32, rule: Option<&Rule>, is_v4: bool) {
    let words = if is_v4 { 1 } else { 4 };
    let last = base + 4 * (4 * words + 1);
    writes.push((last, 0));
    let Some(Rule { condition, verdict, .. }) = rule else { return };
    let mut at = base;
    for prefix in [condition.source, condition.destination] {
        let (mask, value) = prefix.map_or((0, 0), |prefix| prefix.mask());
        for number in [value, mask] {
            for word in (0..words).rev() {
                #[allow(clippy::cast_possible_truncation)] // A word of it.
                writes.push((at, (number >> (32 * word)) as u32));
                at += 4;
            }
        }
    }
    let key = if let KeyMatch::Is(key) = condition.key { key } else { 0 };
    writes.push((at, key));
    writes.push((last, condition_bits(condition) | action(*verdict)));
}

fn condition_bits(condition: &Condition) -> u32 {
    let key = match condition.key {
        KeyMatch::Any => 0,
        KeyMatch::Absent => 1,
        KeyMatch::Is(_) => 2,
    };
    let inner = condition.inner;
    1 | key << 1 | u32::from(inner.ipv4) << 3 | u32::from(inner.ipv6) << 4 | u32::from(inner.ethernet) << 5
}

/// A verdict in its place in a rule.
fn action(of: Verdict) -> u32 {
    let options = match of {
        Verdict::Decapsulate { ttl, dscp, forward } => {
            u32::from(ttl == Propagation::Uniform) << 8
                | u32::from(dscp == Propagation::Uniform) << 9
                | u32::from(forward == ForwardingMode::Route) << 10
        }
        _ => 0,
    };
    verdict(of) << 6 | options
}

fn verdict(of: Verdict) -> u32 {
    match of {
        Verdict::Pass => VERDICT_PASS,
        Verdict::Drop => VERDICT_DROP,
        Verdict::Decapsulate { .. } => VERDICT_STRIP,
        Verdict::Punt => VERDICT_HOST,
    }
}

fn pieces(of: Pieces) -> u32 {
    match of {
        Pieces::Assemble => VERDICT_HOST,
        Pieces::Pass => VERDICT_PASS,
        Pieces::Drop => VERDICT_DROP,
    }
}

#[cfg(test)]
mod tests {
    use super::address;
    use crate::Event;
    use crate::map::{Map, assert_events};

    /// The map that the core's page is made from says the same.
    #[test]
    fn addresses_and_events_are_those_of_the_map() {
        let map = Map::of("gre_decap");
        let at = |name: &str| map.at(name);
        assert_eq!(at("unmatched"), (address::UNMATCHED, 0));
        assert_eq!(at("policy"), (address::POLICY, 0));
        assert_eq!(at("length_max"), (address::LENGTH_MAX, 0));
        assert_eq!(at("events"), (address::EVENTS, 4));
        assert_eq!(at("rules_v4"), (address::RULES_V4, address::RULE_V4_LEN));
        assert_eq!(at("rules_v6"), (address::RULES_V6, address::RULE_V6_LEN));
        assert_eq!(at("rule_counters"), (address::RULE_COUNTERS, address::RULE_COUNTERS_LEN));
        assert_events(&map, Event::ALL);
    }
}
