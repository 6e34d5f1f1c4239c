//! Event exposure of a UPF (`Nupf_EventExposure`, TS 29.564): consumers subscribe to what sessions carry, and are notified of it.
//!
//! ```text
//!   consumer ──POST, PATCH, DELETE──▶ Api ──Command──▶ Subscriptions ◀── UsageSource: what sessions have carried
//!   consumer ◀──POST NotificationData── Notifier ◀──Notification──┘ ▲
//!                                          └────────Outcome─────────┘
//! ```
//! [`Subscriptions`] belongs to the thread that knows the sessions and does a bounded part in each of its turns; it waits for nobody.
//! [`Api`] and [`Notifier`] are of a thread of their own. What a notification has carried counts as told when the consumer has
//! acknowledged it: one that is lost is in the next.
//!
//! What is to be known after a restart [`Subscriptions::keep`] hands to a [`Keeper`], and [`Api::restore`] takes it again. Where it is
//! kept is the keeper's.

mod api;
mod figures;
mod ie;
mod item;
mod notifier;
mod patch;
mod problem;
mod request;
mod subscriptions;
mod target;
mod time;
mod trend;
mod usage;

pub use api::{Answer, Api, BODY_MAX, Command, Commands, ROOT, Reply, Request};
pub use notifier::{Notifications, Notifier, NotifierCounts};
pub use problem::{Cause, Problem};
pub use request::{Subscription, Ue};
pub use subscriptions::{
    Counts, Keeper, KeptPart, KeptSubscription, Limits, NotRestored, Notification, Now, Outcome,
    Subscriptions,
};
pub use target::{Consumers, UriFault};
pub use usage::{Scope, SessionId, SessionVolumes, UeAddress, UsageSource};
