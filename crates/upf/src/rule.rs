//! A rule as it was compiled: what a packet must be, and what is done then.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::action::Action;
use crate::extended::ExtendedActions;
use crate::ids::AppNumber;
use crate::ue::{Direction, UeAddresses};
use crate::usage::UsageSlot;
use kaido_n4::{AddressMatch, EthernetFilter, FramedRoute, SdfFilter};

/// What a packet must be to match a rule (PDI, TS 29.244 5.2.1A).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detection {
    /// QoS flows that match, a bit each; `None` matches all, also packets without a QFI.
    pub qfis: Option<u64>,
    /// Flow filters, any of which matches; empty matches all.
    pub sdf: Box<[SdfFilter]>,
    /// UE addresses of the rule's own PDI, where they are narrower than the session's.
    pub ue: Option<UeAddresses>,
    /// The application that packets belong to.
    pub app: Option<AppNumber>,
    /// Networks behind the UE, whose addresses are as good as those.
    pub framed: Box<[FramedRoute]>,
    /// Ethernet packet filters, any of which matches; empty matches all.
    pub frames: Box<[EthernetFilter]>,
}

impl Detection {
    /// Whether every packet matches, whatever it is, but for its QoS flow.
    pub(crate) fn matches_all_but_qfi(&self) -> bool {
        self.sdf.is_empty() && self.ue.is_none() && self.app.is_none()
    }

    /// Whether all that matches goes to addresses that no router forwards to (multicast, link-local, loopback): router
    /// solicitations to ff02::2, as the SMF of Open5GS takes them out of every session. The fast path and the
    /// kernel's datapath leave such packets alone, so they need not know the rule.
    fn matches_unroutable_only(&self) -> bool {
        !self.sdf.is_empty() && self.sdf.iter().all(|filter| is_unroutable(&filter.remote.address))
    }

    /// Whether packets of the fast path can match: where they go is looked at on the uplink alone.
    pub(crate) fn is_met(&self, direction: Direction) -> bool {
        direction == Direction::Downlink || !self.matches_unroutable_only()
    }

    pub(crate) fn needs_ports(&self) -> bool {
        self.app.is_some()
            || self.sdf.iter().any(|sdf| !(sdf.remote.ports.is_empty() && sdf.local.ports.is_empty()))
    }
}

/// Whether no router forwards to any address of a network.
fn is_unroutable(network: &AddressMatch) -> bool {
    const V4: [(Ipv4Addr, u8); 3] = [
        (Ipv4Addr::new(224, 0, 0, 0), 4),
        (Ipv4Addr::new(127, 0, 0, 0), 8),
        (Ipv4Addr::new(169, 254, 0, 0), 16),
    ];
    const V6: [(Ipv6Addr, u8); 2] =
        [(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8), (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10)];
    match *network {
        AddressMatch::Any => false,
        AddressMatch::V4(addr, len) => {
            V4.iter().any(|&(all, of)| len >= of && AddressMatch::v4(all, of).matches(addr.into()))
        }
        AddressMatch::V6(addr, len) => {
            V6.iter().any(|&(all, of)| len >= of && AddressMatch::v6(all, of).matches(addr.into()))
        }
    }
}

/// A rule as it was compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilteredRule {
    /// What a packet must be.
    pub detection: Arc<Detection>,
    /// What is done then.
    pub action: Action,
    /// What is asked for beside it, by few rules.
    pub extended: Option<Arc<ExtendedActions>>,
    /// What is done instead when a quota is used up for which there is a FAR.
    pub on_quota: Box<[QuotaAction]>,
}

/// What becomes of packets when a quota is used up (FAR ID for Quota Action, TS 29.244 7.5.2.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaAction {
    /// The counter with the quota.
    pub slot: UsageSlot,
    /// What is done, which that counter does not count.
    pub action: Action,
    /// What is asked for beside it.
    pub extended: Option<Box<ExtendedActions>>,
}
