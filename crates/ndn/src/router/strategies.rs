//! The prefixes that have a strategy of their own, and the names of strategies.
//!
//! Workers look strategies up in [`SharedTables`](crate::forward::SharedTables); what is here is for those who list them.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kaido_wire::ndn::{Component, Name, name_from_uri, types};

use crate::forward::StrategyChoice;

/// What the names of strategies begin with.
const STRATEGIES: &str = "/localhost/nfd/strategy";

/// The choices, by the components of their prefixes. Clones share them.
#[derive(Clone, Debug)]
pub(super) struct StrategyChoices(Arc<Mutex<BTreeMap<Vec<u8>, StrategyChoice>>>);

impl Default for StrategyChoices {
    /// That of all names alone.
    fn default() -> Self {
        Self(Arc::new(Mutex::new(BTreeMap::from([(Vec::new(), StrategyChoice::default())]))))
    }
}

impl StrategyChoices {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, StrategyChoice>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Prefixes that begin with `prefix`, in their order, with the names of their strategies: up to `most`, from the one behind
    /// `behind` on.
    pub(super) fn page(&self, prefix: &[u8], behind: Option<&[u8]>, most: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
        let first = behind.map_or(Bound::Included(prefix), Bound::Excluded);
        let choices = self.lock();
        choices
            .range::<[u8], _>((first, Bound::Unbounded))
            .take_while(|(known, _)| known.starts_with(prefix))
            .take(most)
            .map(|(known, choice)| (known.clone(), strategy_name(*choice)))
            .collect()
    }

    pub(super) fn insert(&self, prefix: &[u8], choice: StrategyChoice) {
        self.lock().insert(prefix.to_vec(), choice);
    }

    /// Takes a choice away; whether there was one.
    pub(super) fn remove(&self, prefix: &[u8]) -> bool {
        self.lock().remove(prefix).is_some()
    }
}

/// The version of a strategy: that of NFD whose behaviour it has.
const fn version(choice: StrategyChoice) -> u64 {
    match choice {
        StrategyChoice::BestRoute | StrategyChoice::Asf => 5,
        StrategyChoice::Multicast => 4,
        StrategyChoice::RoundRobin => 1,
    }
}

/// The full name of a strategy, as components.
pub(super) fn strategy_name(choice: StrategyChoice) -> Vec<u8> {
    name_from_uri(&format!("{STRATEGIES}/{choice}/v={}", version(choice))).unwrap_or_default()
}

/// The strategy of a name with its version or without.
pub(super) fn strategy_of(name: &[u8]) -> Option<StrategyChoice> {
    let begins = name_from_uri(STRATEGIES).ok()?;
    let rest = Name::new(name.strip_prefix(&begins[..])?).ok()?;
    let choice: StrategyChoice = str::from_utf8(rest.component(0)?.value()).ok()?.parse().ok()?;
    let named = |component: Component<'_>| component.number(types::VERSION_COMPONENT);
    match (rest.len(), rest.component(1).map(named)) {
        (1, None) => Some(choice),
        (2, Some(Some(wanted))) if wanted <= version(choice) => Some(choice),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_listed_by_prefix_and_from_one_on() {
        let choices = StrategyChoices::default();
        let name = |uri: &str| name_from_uri(uri).unwrap();
        for uri in ["/b", "/a/b", "/a", "/a/c"] {
            choices.insert(&name(uri), StrategyChoice::Multicast);
        }
        let listed = |prefix: &str, behind: Option<&str>, most| -> Vec<String> {
            let behind = behind.map(name);
            let found = choices.page(&name(prefix), behind.as_deref(), most);
            found.iter().map(|(prefix, _)| Name::new(prefix).unwrap().to_string()).collect()
        };
        assert_eq!(listed("/", None, 9), ["/", "/a", "/a/b", "/a/c", "/b"]);
        assert_eq!(listed("/a", None, 2), ["/a", "/a/b"]);
        assert_eq!(listed("/a", Some("/a/b"), 9), ["/a/c"]);
        assert!(choices.remove(&name("/a")) && !choices.remove(&name("/a")));
        assert_eq!((choices.len(), listed("/a", None, 9)), (4, vec!["/a/b".to_owned(), "/a/c".to_owned()]));
    }

    #[test]
    fn strategies_have_names_with_versions() {
        for choice in StrategyChoice::ALL {
            let name = strategy_name(choice);
            assert_eq!(strategy_of(&name), Some(choice));
            assert_eq!(strategy_of(Name::new(&name).unwrap().parent().value()), Some(choice));
        }
        for uri in [
            "/localhost/nfd/strategy",
            "/localhost/nfd/strategy/worst-route",
            "/localhost/nfd/strategy/best-route/v=9",
            "/localhost/nfd/strategy/best-route/x",
            "/localhost/nfd/strategy/best-route/v=5/x",
            "/ndn/strategy/best-route",
        ] {
            assert_eq!(strategy_of(&name_from_uri(uri).unwrap()), None, "{uri}");
        }
    }
}
