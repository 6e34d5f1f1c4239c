//! GRE header removal (RFC 2784, RFC 2890): a packet that meets a condition loses its outer IP and GRE headers, and
//! everything else passes as it is. No tunnel has to be configured, and none has an end here.
//!
//! ```text
//!  Ethernet │ IP │ GRE │ packet ──▶ rules ──▶ Ethernet │ packet ──▶ peer port, or by route
//!                                     │
//!                                     └──▶ pass · drop · left to the kernel
//! ```
//! [`Settings`] say what is done, a [`RuleSet`] at a time; [`Gre`] does it on the engine's workers, one for each, and [`xdp::GreProgram`] in the driver. The
//! reverse, [`Encapsulation`], is as stateless.

mod counters;
mod drop_reason;
mod matching;
#[cfg(feature = "node")]
mod node;
mod parse;
mod path;
mod rule_set;
mod rules;
pub mod xdp;

pub use counters::{RuleCounters, RuleTotals};
pub use drop_reason::GreDrop;
#[cfg(feature = "node")]
pub use node::GreFunction;
pub use path::{Gre, SharedState};
pub use rule_set::RuleSet;
pub use rules::{
    Condition, DontFragment, Encapsulation, ForwardingMode, Inner, KeyMatch, Pieces, PortSettings, Prefix,
    Propagation, RULES_MAX, Rule, Settings, SettingsError, Verdict,
};
