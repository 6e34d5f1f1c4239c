//! Settings as workers and programs obey them, and where each rule is counted.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::matching::Matchers;
use crate::rules::{RULES_MAX, Settings, SettingsError};

/// Places of counters. Rules and encapsulations of one set have at most half of them, so that what comes with the next set is
/// never counted where what goes still is. `GRE_PLACES` of the programs.
pub(crate) const PLACES: usize = 4 * RULES_MAX;

/// Where a rule or an encapsulation is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterPlace {
    pub(crate) number: u16,
    /// Generation of the set that it came with: its count begins there.
    pub(crate) since: u64,
}

/// All rules at one time. Another set takes its place when they change.
#[derive(Debug)]
pub struct RuleSet {
    settings: Settings,
    pub(crate) matchers: Matchers,
    /// Of rules and then of encapsulations.
    places: Box<[CounterPlace]>,
    generation: u64,
}

impl RuleSet {
    /// The first set.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub fn new(settings: Settings) -> Result<Arc<Self>, SettingsError> {
        Self::with(settings, 0, &HashMap::new())
    }

    /// The set that comes after this one. What has the same name and does the same goes on being counted.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub fn next(&self, settings: Settings) -> Result<Arc<Self>, SettingsError> {
        let before = self.settings.counted().zip(self.places.iter().copied()).collect();
        Self::with(settings, self.generation + 1, &before)
    }

    fn with(
        settings: Settings,
        generation: u64,
        before: &HashMap<(&str, &str), CounterPlace>,
    ) -> Result<Arc<Self>, SettingsError> {
        settings.check()?;
        let in_use: HashSet<_> = before.values().map(|place| place.number).collect();
        let mut free = (0u16..).take(PLACES).filter(|number| !in_use.contains(number));
        let place = |what| {
            let new = || Some(CounterPlace { number: free.next()?, since: generation });
            before.get(&what).copied().or_else(new)
        };
        let places: Option<_> = settings.counted().map(place).collect();
        Ok(Arc::new(Self {
            matchers: Matchers::of_rules(&settings),
            places: places.ok_or(SettingsError::TooMany(before.len(), "rules"))?,
            settings,
            generation,
        }))
    }

    /// What was asked for.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sets that were there before.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Where rules and then encapsulations are counted.
    pub(crate) fn places(&self) -> &[CounterPlace] {
        &self.places
    }

    /// Where a rule is counted, by its number in the settings.
    pub(crate) fn place_of_rule(&self, number: usize) -> u16 {
        self.places[number].number
    }

    /// Where an encapsulation is counted, by its number in the settings.
    pub(crate) fn place_of_encapsulation(&self, number: usize) -> u16 {
        self.places[self.settings.rules.len() + number].number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{Condition, Rule, Verdict};

    fn set_of(names: &[(&str, Verdict)]) -> Settings {
        let rule = |&(name, verdict): &(&str, Verdict)| Rule {
            name: name.to_owned(),
            condition: Condition::default(),
            verdict,
        };
        Settings { rules: names.iter().map(rule).collect(), ..Settings::bump(Vec::new()) }
    }

    #[test]
    fn what_stays_is_counted_where_it_was() {
        let (pass, drop) = (Verdict::Pass, Verdict::Drop);
        let first = RuleSet::new(set_of(&[("a", pass), ("b", pass), ("c", drop)])).unwrap();
        // One goes, one does something else, one comes, and the order is another.
        let second = first.next(set_of(&[("c", drop), ("new", pass), ("b", drop)])).unwrap();
        assert_eq!(second.places()[0], first.places()[2]);
        let of_first: Vec<_> = first.places().iter().map(|place| place.number).collect();
        for place in &second.places()[1..] {
            assert!(!of_first.contains(&place.number), "{place:?} is counted in still");
            assert_eq!(place.since, second.generation());
        }
        assert_ne!(second.places()[1], second.places()[2]);
    }

    #[test]
    fn there_are_places_for_two_full_sets() {
        let names =
            |letter: &str| -> Vec<String> { (0..RULES_MAX).map(|at| format!("{letter}{at}")).collect() };
        let full = |names: &[String]| {
            set_of(&names.iter().map(|name| (name.as_str(), Verdict::Pass)).collect::<Vec<_>>())
        };
        let (a, b) = (names("a"), names("b"));
        let mut set = RuleSet::new(full(&a)).unwrap();
        for names in [&b, &a, &b] {
            set = set.next(full(names)).unwrap();
            assert_eq!(set.places().len(), RULES_MAX);
        }
        assert!(set.next(set_of(&[("twice", Verdict::Pass), ("twice", Verdict::Drop)])).is_err());
    }
}
