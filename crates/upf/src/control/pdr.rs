//! What PDRs say by themselves: directions and UE addresses.

use std::net::IpAddr;

use super::ruleset::RuleSet;
use crate::ue::{Direction, UeAddresses};
use kaido_n4::{Cause, ChooseOr, Interface, Pdr, Rejection, RuleId};

/// The refusal of a PDR.
pub(super) fn reject(pdr: &Pdr, detail: &str) -> Rejection {
    Rejection::new(Cause::RuleCreationOrModificationFailure, format!("PDR {}: {detail}", pdr.id))
        .rule(RuleId::Pdr(pdr.id))
}

/// Which way packets of a rule go (TS 29.244 5.2.1): what does not come from the access goes to the UE.
pub(super) fn direction(pdr: &Pdr) -> Direction {
    match pdr.pdi.source_interface {
        Interface::Access => Direction::Uplink,
        Interface::Core | Interface::N6Lan | Interface::CpFunction | Interface::VnInternal => {
            Direction::Downlink
        }
    }
}

pub(super) fn addresses(pdr: &Pdr) -> UeAddresses {
    let mut own = UeAddresses::default();
    for ue in &pdr.pdi.ue_ip {
        if let Some(ChooseOr::Given(addr)) = ue.ipv4 {
            own.ipv4 = Some(addr);
        }
        if let Some(ChooseOr::Given(prefix)) = ue.ipv6 {
            own.ipv6 = Some(prefix);
        }
    }
    own
}

/// The UE addresses that the session's rules name, the first of each family; and whether there are more of one,
/// as with IPv6 multi-homing (TS 23.501 5.6.4.3).
pub(super) fn session_addresses(rules: &RuleSet) -> (UeAddresses, bool) {
    let mut all = UeAddresses::default();
    let mut several = false;
    for own in rules.ever_detecting().map(|pdr| addresses(&pdr)) {
        all.ipv4 = all.ipv4.or(own.ipv4);
        all.ipv6 = all.ipv6.or(own.ipv6);
        several |=
            (own.ipv4.is_some() && own.ipv4 != all.ipv4) || (own.ipv6.is_some() && own.ipv6 != all.ipv6);
    }
    (all, several)
}

/// Whether an address is one of the session's UE, or behind it; any is of a session that names none.
pub(super) fn has_address(rules: &RuleSet, addr: IpAddr) -> bool {
    let own = rules.ever_detecting().map(|pdr| addresses(&pdr));
    let mut given = own.filter(|own| *own != UeAddresses::default()).peekable();
    given.peek().is_none()
        || given.any(|own| own.admits(addr))
        || rules.framed_routes().iter().any(|route| route.contains(addr))
}
