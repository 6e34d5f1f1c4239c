//! A rule with what it asks of packets: as it was compiled, and as a record keeps it.
//!
//! ```text
//!   Rule ─┬─▶ Detection   what a packet must be        of many sessions the same, and shared
//!         ├─▶ ExtendedActions     what few rules ask for        shared too
//!         └── Record      what is done, if that folds   the session's own
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use super::{Action, Direction, Record, SessionIndex, UeAddresses};
use crate::apps::AppNumber;
use crate::extended::ExtendedActions;
use crate::tunnels::Tunnels;
use crate::usage::UsageSlot;
use kaido_n4::{AddressMatch, EthernetFilter, FramedRoute, PdrId, SdfFilter};

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
    pub(super) fn matches_all_but_qfi(&self) -> bool {
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

    pub(super) fn needs_ports(&self) -> bool {
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

/// A rule as a record keeps it beside its own, or without one.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    detection: Arc<Detection>,
    extended: Option<Arc<ExtendedActions>>,
    action: RuleAction,
}

/// What a rule does.
#[derive(Clone, Debug)]
enum RuleAction {
    /// As a record of it alone would say it.
    Folded(Record),
    /// What no record has room for.
    Whole(Box<(Action, Box<[QuotaAction]>)>),
}

const _: () = assert!(size_of::<Rule>() == 72);

impl Rule {
    /// Of a session whose UE has these addresses.
    pub(super) fn new(
        session: SessionIndex,
        direction: Direction,
        ue: UeAddresses,
        FilteredRule { detection, action, extended, on_quota }: FilteredRule,
    ) -> Self {
        let folded = if on_quota.is_empty() { Record::fold(session, direction, ue, &action) } else { None };
        let action = match folded {
            Some(record) => RuleAction::Folded(record),
            None => RuleAction::Whole(Box::new((action, on_quota))),
        };
        Self { detection, extended, action }
    }

    /// What a packet must be.
    pub(super) fn detection(&self) -> &Detection {
        &self.detection
    }

    pub(super) fn view(&self) -> RuleView<'_> {
        let action = match &self.action {
            RuleAction::Folded(record) => ViewedAction::Folded(record),
            RuleAction::Whole(whole) => ViewedAction::Whole(&whole.0, &whole.1),
        };
        RuleView { detection: &self.detection, extended: self.extended.as_deref(), action }
    }
}

/// A rule of a record.
#[derive(Clone, Copy, Debug)]
pub struct RuleView<'r> {
    detection: &'r Detection,
    extended: Option<&'r ExtendedActions>,
    action: ViewedAction<'r>,
}

#[derive(Clone, Copy, Debug)]
enum ViewedAction<'r> {
    Folded(&'r Record),
    Whole(&'r Action, &'r [QuotaAction]),
}

impl<'r> RuleView<'r> {
    /// What a packet must be.
    #[inline]
    pub fn detection(&self) -> &'r Detection {
        self.detection
    }

    /// What is asked for beside its action, by few rules.
    #[inline]
    pub fn extended(&self) -> Option<&'r ExtendedActions> {
        self.extended
    }

    /// Its number.
    pub fn pdr(&self) -> PdrId {
        match self.action {
            ViewedAction::Folded(record) => record.pdr,
            ViewedAction::Whole(action, _) => action.pdr,
        }
    }

    /// What is done with packets that match.
    #[inline]
    pub fn action(&self, tunnels: &Tunnels) -> Action {
        match self.action {
            ViewedAction::Folded(record) => record.action(tunnels),
            ViewedAction::Whole(action, _) => *action,
        }
    }

    /// What is done instead when a quota is used up for which there is a FAR.
    #[inline]
    pub fn on_quota(&self) -> &'r [QuotaAction] {
        match self.action {
            ViewedAction::Folded(_) => &[],
            ViewedAction::Whole(_, on_quota) => on_quota,
        }
    }

    /// Its action, where no record has room for it.
    pub(super) fn unfolded(&self) -> Option<&'r Action> {
        match self.action {
            ViewedAction::Folded(_) => None,
            ViewedAction::Whole(action, _) => Some(action),
        }
    }

    /// The record of the rule alone, by which packets take the fast path; `None` where more is to be done than it says.
    pub(super) fn record(&self) -> Option<&'r Record> {
        match self.action {
            ViewedAction::Folded(record) if self.extended.is_none() => Some(record),
            _ => None,
        }
    }
}

/// The rules of a record that has several, or one that does not fold: in the order of precedence, and not none.
#[derive(Clone, Copy, Debug)]
pub struct RuleList<'r> {
    pub(super) others: &'r [Rule],
    /// The record itself where it holds one of the rules, what that asks for, and how many others come before it.
    pub(super) own: Option<(&'r Record, &'r Detection, u16)>,
}

impl<'r> RuleList<'r> {
    /// How many there are.
    #[allow(clippy::len_without_is_empty)] // There is always one.
    pub fn len(&self) -> usize {
        self.others.len() + usize::from(self.own.is_some())
    }

    /// The rule of that number.
    #[inline]
    pub fn get(&self, at: usize) -> Option<RuleView<'r>> {
        let Some((record, detection, place)) = self.own else { return self.others.get(at).map(Rule::view) };
        if at == usize::from(place) {
            return Some(RuleView { detection, extended: None, action: ViewedAction::Folded(record) });
        }
        self.others.get(at - usize::from(at > place.into())).map(Rule::view)
    }

    /// All of them.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = RuleView<'r>> {
        (0..self.len()).filter_map(move |at| self.get(at))
    }
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
