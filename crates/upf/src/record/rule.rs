//! A rule as a record keeps it.
//!
//! ```text
//!   Rule ─┬─▶ Detection   what a packet must be        of many sessions the same, and shared
//!         ├─▶ ExtendedActions     what few rules ask for        shared too
//!         └── Record      what is done, if that folds   the session's own
//! ```

use std::sync::Arc;

use super::Record;
use crate::action::Action;
use crate::extended::ExtendedActions;
use crate::ids::SessionIndex;
use crate::rule::{Detection, FilteredRule, QuotaAction};
use crate::tunnels::Tunnels;
use crate::ue::{Direction, UeAddresses};
use kaido_n4::PdrId;

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
