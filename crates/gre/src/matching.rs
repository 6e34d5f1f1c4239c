//! Rules as the path tries them: a mask and a value over both addresses, and the rest in one word each.

use std::net::IpAddr;

use kaido_engine::PortId;
use kaido_wire::EtherType;

use crate::rules::{Condition, Inner, KeyMatch, Prefix, Settings};

/// What a rule is chosen by, of IPv4 or IPv6: addresses as numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchFields<A> {
    pub(crate) source: A,
    pub(crate) destination: A,
    pub(crate) port: PortId,
    pub(crate) key: Option<u32>,
    pub(crate) protocol: EtherType,
}

#[derive(Clone, Debug)]
struct Entry<A> {
    source: (A, A),
    destination: (A, A),
    port: Option<PortId>,
    key: KeyMatch,
    inner: Inner,
    /// The rule's number.
    number: u16,
}

/// An address as a number.
pub(crate) trait Address: Copy + PartialEq + std::ops::BitAnd<Output = Self> {
    /// Of the width of a family's addresses.
    fn narrow(wide: u128) -> Self;
}

impl Address for u32 {
    #[allow(clippy::cast_possible_truncation)] // Masks of IPv4 prefixes have 32 bits.
    fn narrow(wide: u128) -> Self {
        wide as Self
    }
}

impl Address for u128 {
    fn narrow(wide: u128) -> Self {
        wide
    }
}

/// The rules that packets of one family can meet, in their order.
#[derive(Clone, Debug)]
pub(crate) struct Matcher<A>(Box<[Entry<A>]>);

impl<A: Address> Matcher<A> {
    fn new<'r>(conditions: impl Iterator<Item = (usize, &'r Condition)>, is_ipv4: bool) -> Self {
        let of_family = |prefix: &Option<Prefix>| prefix.is_none_or(|prefix| prefix.is_ipv4() == is_ipv4);
        let masks = |prefix: &Option<Prefix>| {
            let (mask, value) = prefix.map_or((0, 0), |prefix| prefix.mask());
            (A::narrow(mask), A::narrow(value))
        };
        let entries = conditions
            .filter(|(_, condition)| of_family(&condition.source) && of_family(&condition.destination))
            .map(|(number, condition)| Entry {
                source: masks(&condition.source),
                destination: masks(&condition.destination),
                port: condition.port,
                key: condition.key,
                inner: condition.inner,
                #[allow(clippy::cast_possible_truncation)] // `RULES_MAX` is checked.
                number: number as u16,
            });
        Self(entries.collect())
    }

    /// The number of the first rule that a packet meets.
    #[inline(always)]
    pub(crate) fn find(&self, seen: &MatchFields<A>) -> Option<u16> {
        let meets = |entry: &&Entry<A>| {
            (seen.source & entry.source.0) == entry.source.1
                && (seen.destination & entry.destination.0) == entry.destination.1
                && entry.inner.has(seen.protocol)
                && entry.port.is_none_or(|port| port == seen.port)
                && match entry.key {
                    KeyMatch::Any => true,
                    KeyMatch::Absent => seen.key.is_none(),
                    KeyMatch::Is(key) => seen.key == Some(key),
                }
        };
        self.0.iter().find(meets).map(|entry| entry.number)
    }
}

/// Matchers of both families.
#[derive(Clone, Debug)]
pub(crate) struct Matchers {
    pub(crate) v4: Matcher<u32>,
    pub(crate) v6: Matcher<u128>,
}

impl Matchers {
    /// Of the rules for tunnel packets.
    pub(crate) fn of_rules(settings: &Settings) -> Self {
        let conditions = || settings.rules.iter().map(|rule| &rule.condition).enumerate();
        Self { v4: Matcher::new(conditions(), true), v6: Matcher::new(conditions(), false) }
    }

    /// The number of the first rule that a tunnel packet meets.
    pub(crate) fn find(
        &self,
        (source, destination): (IpAddr, IpAddr),
        port: PortId,
        key: Option<u32>,
        protocol: EtherType,
    ) -> Option<u16> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => self.v4.find(&MatchFields {
                source: source.to_bits(),
                destination: destination.to_bits(),
                port,
                key,
                protocol,
            }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => self.v6.find(&MatchFields {
                source: source.to_bits(),
                destination: destination.to_bits(),
                port,
                key,
                protocol,
            }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::rules::{PortSettings, Rule, Verdict};

    fn condition() -> impl Strategy<Value = Condition> {
        let prefix = || {
            prop_oneof![
                Just(None),
                (0..4u32, 28..=32u8).prop_map(|(low, len)| {
                    Prefix::new(std::net::Ipv4Addr::from_bits(0x0a00_0000 + low * 5).into(), len)
                }),
                (0..4u128, 120..=128u8)
                    .prop_map(|(low, len)| Prefix::new(std::net::Ipv6Addr::from_bits(low * 5).into(), len)),
            ]
        };
        let key = prop_oneof![Just(KeyMatch::Any), Just(KeyMatch::Absent), (0..3u32).prop_map(KeyMatch::Is)];
        let inner = (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(ipv4, ipv6, ethernet)| Inner {
            ipv4,
            ipv6,
            ethernet,
        });
        (prop::option::of(0..2u8), prefix(), prefix(), key, inner).prop_map(
            |(port, source, destination, key, inner)| Condition {
                port: port.map(PortId),
                source,
                destination,
                key,
                inner,
            },
        )
    }

    /// The condition as it reads.
    fn is_met(condition: &Condition, ends: (IpAddr, IpAddr), port: PortId, key: Option<u32>) -> bool {
        let within =
            |prefix: Option<Prefix>, address: IpAddr| prefix.is_none_or(|prefix| prefix.contains(address));
        within(condition.source, ends.0)
            && within(condition.destination, ends.1)
            && condition.inner.ipv4
            && condition.port.is_none_or(|wanted| wanted == port)
            && match condition.key {
                KeyMatch::Any => true,
                KeyMatch::Absent => key.is_none(),
                KeyMatch::Is(wanted) => key == Some(wanted),
            }
    }

    proptest! {
        #[test]
        fn the_first_rule_that_is_met_is_found(
            conditions in prop::collection::vec(condition(), 0..8),
            v6: bool, from in 0..16u32, to in 0..16u32, port in 0..2u8, key in prop::option::of(0..3u32),
        ) {
            let address = |low: u32| -> IpAddr {
                if v6 {
                    std::net::Ipv6Addr::from_bits(low.into()).into()
                } else {
                    std::net::Ipv4Addr::from_bits(0x0a00_0000 | low).into()
                }
            };
            let rule = |condition| Rule { name: String::new(), condition, verdict: Verdict::Pass };
            let port_settings = PortSettings { peer_port: None, mac: [0; 6], addresses: Vec::new(), mtu: 1500 };
            let mut settings = Settings::bump(vec![port_settings; 2]);
            settings.rules = conditions.iter().cloned().map(rule).collect();
            let ends = (address(from), address(to));
            let wanted = conditions.iter().position(|condition| is_met(condition, ends, PortId(port), key));
            let found = Matchers::of_rules(&settings).find(ends, PortId(port), key, EtherType::IPV4);
            prop_assert_eq!(found.map(usize::from), wanted);
        }
    }
}
