//! The drop reasons of a function, by number: counters, metrics, `kaido drops` and the packet vectors take their names from here.
//!
//! ```text
//!   number    1 ──────────────────────── n  n+1 ───────────────── at most 255
//!             the engine's, in every table  the function's own
//! ```
//! A table is checked when it is compiled. Tables of several functions lie side by side in a process: a number means something
//! only together with its table.

use crate::drop_reason::{DropReason, NUMBER_MAX};

/// What a [`DropTable`] says of a reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropEntry {
    /// The name in counters and vectors.
    pub name: &'static str,
    /// One sentence for a reader of `kaido drops`.
    pub meaning: &'static str,
}

/// The drop reasons of a function: the engine's, and behind them its own.
#[derive(Debug, PartialEq, Eq)]
pub struct DropTable {
    own: &'static [DropEntry],
}

/// Says what a number means that is not in a table: it has come from another function.
const UNKNOWN: DropEntry =
    DropEntry { name: "unknown", meaning: "A reason that is not in the table of this function." };

impl DropTable {
    /// The engine's reasons alone.
    pub const ENGINE: &'static Self = &Self::new(&[]);

    /// The engine's reasons and a function's own.
    ///
    /// # Panics
    /// If they are more than counters there are, a name is there twice, or a meaning is not a sentence. Of a constant, the
    /// compiler says so.
    pub const fn new(own: &'static [DropEntry]) -> Self {
        let table = Self { own };
        assert!(table.len() <= NUMBER_MAX, "there are more drop reasons than counters");
        let mut at = 0;
        while at < table.len() {
            let DropEntry { name, meaning } = table.at(at);
            assert!(!name.is_empty(), "a drop reason has no name");
            assert!(
                matches!(meaning.as_bytes().last(), Some(b'.')),
                "the meaning of a drop reason has no full stop"
            );
            assert!(
                matches!(table.position(name), Some(first) if first == at),
                "two drop reasons have the same name"
            );
            at += 1;
        }
        table
    }

    /// Number of reasons.
    const fn len(&self) -> usize {
        DropReason::ENTRIES.len() + self.own.len()
    }

    /// What it says of the reason at that position, which must be one.
    const fn at(&self, position: usize) -> DropEntry {
        match position.checked_sub(DropReason::ENTRIES.len()) {
            Some(position) => self.own[position],
            None => DropReason::ENTRIES[position],
        }
    }

    /// Where the first reason of a name is.
    const fn position(&self, name: &str) -> Option<usize> {
        let mut at = 0;
        while at < self.len() {
            if is_equal(self.at(at).name.as_bytes(), name.as_bytes()) {
                return Some(at);
            }
            at += 1;
        }
        None
    }

    /// The reason of a name.
    pub const fn reason(&self, name: &str) -> Option<DropReason> {
        match self.position(name) {
            Some(position) => DropReason::numbered(position + 1),
            None => None,
        }
    }

    /// Every reason, in the order of their numbers.
    pub fn reasons(&self) -> impl Iterator<Item = DropReason> {
        (1..=self.len()).filter_map(DropReason::numbered)
    }

    /// What it says of a reason; `None` of one of another function.
    pub fn entry(&self, reason: DropReason) -> Option<DropEntry> {
        (reason.number() <= self.len()).then(|| self.at(reason.number() - 1))
    }

    /// The name of a reason.
    pub fn name(&self, reason: DropReason) -> &'static str {
        self.entry(reason).unwrap_or(UNKNOWN).name
    }

    /// One sentence on a reason.
    pub fn meaning(&self, reason: DropReason) -> &'static str {
        self.entry(reason).unwrap_or(UNKNOWN).meaning
    }
}

/// Whether two texts are the same: constants cannot use `==` for that.
const fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let mut at = 0;
    while at < a.len() && at < b.len() && a[at] == b[at] {
        at += 1;
    }
    at == a.len() && at == b.len()
}

/// Declares the drop reasons of a function: each a constant, its name, and in its doc comment the sentence that `kaido drops`
/// shows. [`Function::drop_reasons`](crate::Function::drop_reasons) gives their `TABLE`.
///
/// ```
/// kaido_engine::drop_reasons! {
///     /// Why a firewall drops a packet, beyond the engine's reasons.
///     pub enum FirewallDrop;
///
///     /// A rule says drop.
///     RULE = "firewall_rule",
///     /// There are as many flows as may be.
///     FLOWS_FULL = "firewall_flows_full",
/// }
///
/// let table = FirewallDrop::TABLE;
/// assert_eq!(table.name(FirewallDrop::RULE), "firewall_rule");
/// assert_eq!(table.meaning(FirewallDrop::RULE), "A rule says drop.");
/// assert_eq!(table.name(kaido_engine::DropReason::NO_ROUTE), "no_route");
/// ```
///
/// A table that does not hold together does not compile:
///
/// ```compile_fail
/// kaido_engine::drop_reasons! {
///     /// A name of the engine's.
///     pub enum Twice;
///
///     /// No route.
///     NO_ROUTE = "no_route",
/// }
/// ```
#[macro_export]
macro_rules! drop_reasons {
    (impl DropReason; $($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        impl DropReason {
            /// What every table says of them.
            pub(crate) const ENTRIES: &'static [$crate::DropEntry] =
                $crate::drop_reasons!(@entries $($(#[doc = $doc])+ $text,)+);
        }

        $crate::drop_reasons!(@constants DropReason, $crate::DropTable::ENGINE, $($(#[doc = $doc])+ $name = $text,)+);
    };
    (@entries $($(#[doc = $doc:literal])+ $text:literal,)+) => {
        &[$($crate::DropEntry { name: $text, meaning: concat!($($doc),+).trim_ascii() },)+]
    };
    (@constants $of:ident, $table:expr, $($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        impl $of {
            $(
                $(#[doc = $doc])+
                pub const $name: $crate::DropReason = match $table.reason($text) {
                    Some(reason) => reason,
                    None => unreachable!(),
                };
            )+
        }
    };
    ($(#[$about:meta])* $vis:vis enum $own:ident; $($(#[doc = $doc:literal])+ $name:ident = $text:literal,)+) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug)]
        $vis enum $own {}

        impl $own {
            /// The engine's reasons, and behind them these.
            pub const TABLE: &'static $crate::DropTable =
                &$crate::DropTable::new($crate::drop_reasons!(@entries $($(#[doc = $doc])+ $text,)+));
        }

        $crate::drop_reasons!(@constants $own, $own::TABLE, $($(#[doc = $doc])+ $name = $text,)+);
    };
}
