//! The counters that a session's rules are compiled with.

use litemap::LiteMap;

use super::counters::Counter;
use super::drops::DropCounts;
use crate::monitoring::Monitors;
use crate::usage::UsageSlot;
use kaido_n4::UrrId;

/// The counters of a session.
#[derive(Clone, Debug, Default)]
pub(crate) struct Slots {
    /// Those of its URRs.
    pub(crate) urrs: LiteMap<UrrId, Counter>,
    /// That of packets that no URR counts, where they are of interest.
    pub(crate) activity: Option<UsageSlot>,
    /// The QoS flows whose delays are measured.
    pub(crate) monitors: Monitors,
    /// What dropped packets are counted in.
    pub(crate) drops: DropCounts,
}
