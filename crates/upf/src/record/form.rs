//! How packets of a key find their rule, for operators: on the fast path, or why not.

use super::fast_path::Flags;
use super::wide::SharedWideRecord;
use super::{LINES_MAX, Record, RuleView, asks_of};
use crate::action::Action;

/// The form of a record, from the one that takes least to the one that takes most. The form of a session is the greatest of its keys'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordForm {
    /// The rule is in the record: packets take the fast path.
    Folded,
    /// The rule is in the record, and does not forward now: its FAR buffers, drops or names no tunnel yet, or its gate is closed.
    Held,
    /// Rules are in lines that packets are compared with: they take the fast path.
    Lines,
    /// The record leads to more on the heap: packets of some rules, or all, take the slow path, or wait for memory once more; and why.
    Wide(SlowPathCause),
}

/// Why a record is wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[repr(u8)]
#[non_exhaustive]
pub enum SlowPathCause {
    /// Outer sources are compared with the gNB's address, behind the record; else packets take the fast path.
    #[error("the uplink is bound to its gNB")]
    Bound,
    /// More rules than there are lines.
    #[error("a key has more than {LINES_MAX} PDRs and filters")]
    Rules,
    /// A filter that a line cannot ask.
    #[error("a PDR's filters ask for more than protocol, remote network and a range of ports each")]
    Filters,
    /// More than a record has room for.
    #[error("a PDR has more URRs and rates than a record has room for, or buffers for a time of its own")]
    Cells,
    /// Packets are counted against a packet rate.
    #[error("a QER limits the number of packets")]
    PacketRate,
    /// Copies.
    #[error("a FAR duplicates packets")]
    Duplicated,
    /// A FAR of its own says what happens when a quota is used up.
    #[error("a FAR stands for the time after a quota")]
    QuotaAction,
    /// More is asked for than forwarding: a header of its own, redirection, a 5G virtual network.
    #[error("a FAR asks for more than forwarding, such as redirection")]
    ExtendedActions,
    /// The UE's prefix is no /64.
    #[error("the UE's IPv6 prefix is not a /64")]
    Prefix,
    /// A network behind the UE.
    #[error("a network lies behind the UE (framed route)")]
    Framed,
    /// A rule asks for applications.
    #[error("a PDR detects applications")]
    Applications,
    /// Delays of a QoS flow are measured.
    #[error("delays of a QoS flow are measured")]
    Monitored,
    /// What comes are Ethernet frames.
    #[error("the PDN type is Ethernet")]
    Ethernet,
}

impl SlowPathCause {
    /// All, in their order.
    pub const ALL: [Self; 13] = [
        Self::Bound,
        Self::Rules,
        Self::Filters,
        Self::Cells,
        Self::PacketRate,
        Self::Duplicated,
        Self::QuotaAction,
        Self::ExtendedActions,
        Self::Prefix,
        Self::Framed,
        Self::Applications,
        Self::Monitored,
        Self::Ethernet,
    ];

    /// Its name in metrics and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bound => "bound_to_gnb",
            Self::Rules => "rules",
            Self::Filters => "filters",
            Self::Cells => "urrs_and_rates",
            Self::PacketRate => "packet_rate",
            Self::Duplicated => "duplicated",
            Self::QuotaAction => "quota_action",
            Self::ExtendedActions => "far",
            Self::Prefix => "ipv6_prefix",
            Self::Framed => "framed_route",
            Self::Applications => "applications",
            Self::Monitored => "qos_monitoring",
            Self::Ethernet => "ethernet",
        }
    }
}

impl RecordForm {
    /// How many forms there are.
    pub const COUNT: usize = 3 + SlowPathCause::ALL.len();

    /// All, in their order.
    pub fn all() -> impl Iterator<Item = Self> {
        [Self::Folded, Self::Held, Self::Lines].into_iter().chain(SlowPathCause::ALL.map(Self::Wide))
    }

    /// Its place among [`RecordForm::all`].
    pub const fn index(self) -> usize {
        match self {
            Self::Folded => 0,
            Self::Held => 1,
            Self::Lines => 2,
            Self::Wide(reason) => 3 + reason as usize,
        }
    }

    /// Its name in metrics and JSON, without the reason.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Folded => "fast",
            Self::Held => "held",
            Self::Lines => "lines",
            Self::Wide(_) => "wide",
        }
    }
}

impl Record {
    /// How packets find their rule.
    pub fn form(&self) -> RecordForm {
        let is_folded = self.flags.has(Flags::FAST);
        match &self.wide {
            None if is_folded => RecordForm::Folded,
            None => RecordForm::Held,
            Some(wide) => match self.reason(wide, is_folded) {
                Some(reason) => RecordForm::Wide(reason),
                None if is_folded => RecordForm::Folded,
                None if self.has_lines() => RecordForm::Lines,
                // The one rule that packets of the fast path can match: it would be folded if it forwarded.
                None => RecordForm::Held,
            },
        }
    }

    /// Why packets of it take the slow path, if any do that are eligible for the fast path and forwarded.
    fn reason(&self, wide: &SharedWideRecord, is_folded: bool) -> Option<SlowPathCause> {
        let of_session = [
            (SlowPathCause::Ethernet, wide.ethernet),
            (SlowPathCause::Monitored, !self.monitors().is_empty()),
            (SlowPathCause::Applications, wide.inspects),
            (SlowPathCause::Framed, !is_folded && !self.framed().is_empty()),
            (SlowPathCause::Prefix, wide.ue.ipv6.is_some_and(|prefix| prefix.len != 64)),
        ];
        if let Some((reason, _)) = of_session.into_iter().find(|(_, is_so)| *is_so) {
            return Some(reason);
        }
        let of_rules = if is_folded { None } else { self.reason_of_rules(wide) };
        of_rules.or_else(|| (!self.gnbs().is_empty()).then_some(SlowPathCause::Bound))
    }

    fn reason_of_rules(&self, wide: &SharedWideRecord) -> Option<SlowPathCause> {
        let direction = self.direction();
        let met = || self.list(wide).iter().filter(|rule| rule.detection().is_met(direction));
        if let Some(reason) = met().find_map(|rule| reason_of_rule(&rule)) {
            return Some(reason);
        }
        let lines: usize = met().filter_map(|rule| asks_of(rule.detection())).map(|asks| asks.len()).sum();
        if lines > LINES_MAX {
            return Some(SlowPathCause::Rules);
        }
        // What a line could not have for another reason than those above: room.
        let mut unfolded = met().filter_map(|rule| rule.unfolded());
        unfolded.any(|action| action.apply.forward && action.gate_open).then_some(SlowPathCause::Cells)
    }
}

/// Why a rule by itself keeps its packets off the fast path.
fn reason_of_rule(rule: &RuleView<'_>) -> Option<SlowPathCause> {
    let is_so = |asks: fn(&Action) -> bool| rule.unfolded().is_some_and(asks);
    if rule.extended().is_some() {
        Some(SlowPathCause::ExtendedActions)
    } else if !rule.on_quota().is_empty() {
        Some(SlowPathCause::QuotaAction)
    } else if is_so(|action| action.apply.duplicate) {
        Some(SlowPathCause::Duplicated)
    } else if is_so(|action| action.qos.packets().is_some()) {
        Some(SlowPathCause::PacketRate)
    } else if asks_of(rule.detection()).is_none() {
        Some(SlowPathCause::Filters)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_have_places_and_names_of_their_own() {
        let all: Vec<_> = RecordForm::all().collect();
        assert_eq!(all.len(), RecordForm::COUNT);
        assert!(all.iter().enumerate().all(|(at, form)| form.index() == at));
        assert!(all.is_sorted());
        let names: std::collections::BTreeSet<_> = SlowPathCause::ALL.map(SlowPathCause::name).into();
        let words: std::collections::BTreeSet<_> = SlowPathCause::ALL.map(|reason| reason.to_string()).into();
        assert_eq!((names.len(), words.len()), (SlowPathCause::ALL.len(), SlowPathCause::ALL.len()));
    }
}
