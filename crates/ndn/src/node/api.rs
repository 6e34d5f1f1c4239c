//! What may be asked of a router over HTTP, beyond what every node answers. Routes are changed, and faces made, by NDN's own
//! management, as with other forwarders: `kaido ndn` does so. What the tables hold is asked for here.

use kaido_node::api::{Question, Role, Route};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::node::client::entries::Workers;

/// What it answers to.
pub(super) const ROUTES: &[Route] = &[
    Route::of::<GetNdn>(),
    Route::of::<GetNdnTables>(),
    Route::of::<ListNdnFaces>(),
    Route::of::<ListNdnFib>(),
    Route::of::<ListNdnStrategies>(),
    Route::of::<ListNdnPit>(),
    Route::of::<ListNdnCs>(),
];

/// How its workers share the names, and what each of them keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetNdn {}

impl Question for GetNdn {
    type Answer = Workers;
    const NAME: &'static str = "get_ndn";
    const PATH: &'static str = "/v1/ndn";
    const ROLE: Role = Role::Watch;
}

/// How full the tables of an NDN router are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetNdnTables {}

impl Question for GetNdnTables {
    type Answer = NdnTables;
    const NAME: &'static str = "get_ndn_tables";
    const PATH: &'static str = "/v1/ndn/tables";
    const ROLE: Role = Role::Watch;
}

/// The faces of an NDN router with what went through them, a page of those that meet all that is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListNdnFaces {
    /// Where the page begins: `next` of the one before.
    pub(crate) from: Option<String>,
    /// Most faces to list, from 1 to 1000; 50 unless given.
    pub(crate) limit: usize,
    /// Of that number.
    pub(crate) face: Option<u64>,
    /// With that text in the URI of the other end.
    pub(crate) remote: Option<String>,
}

impl Default for ListNdnFaces {
    fn default() -> Self {
        Self { from: None, limit: LIMIT, face: None, remote: None }
    }
}

impl Question for ListNdnFaces {
    type Answer = NdnFaces;
    const NAME: &'static str = "list_ndn_faces";
    const PATH: &'static str = "/v1/ndn/faces";
}

/// The FIB of an NDN router: prefixes and their next hops, a page of those that meet all that is asked for. A prefix is listed before
/// those that begin with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListNdnFib {
    /// Where the page begins: `next` of the one before.
    pub(crate) from: Option<String>,
    /// Most prefixes to list, from 1 to 1000; 50 unless given.
    pub(crate) limit: usize,
    /// Those that begin with that name, itself included: `/ndn/example`.
    pub(crate) prefix: Option<String>,
    /// Those with a next hop over that face.
    pub(crate) face: Option<u64>,
}

impl Default for ListNdnFib {
    fn default() -> Self {
        Self { from: None, limit: LIMIT, prefix: None, face: None }
    }
}

impl Question for ListNdnFib {
    type Answer = NdnFib;
    const NAME: &'static str = "list_ndn_fib";
    const PATH: &'static str = "/v1/ndn/fib";
}

/// The prefixes of an NDN router that have a strategy of their own, a page of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListNdnStrategies {
    /// Where the page begins: `next` of the one before.
    pub(crate) from: Option<String>,
    /// Most prefixes to list, from 1 to 1000; 50 unless given.
    pub(crate) limit: usize,
    /// Those that begin with that name, itself included.
    pub(crate) prefix: Option<String>,
}

impl Default for ListNdnStrategies {
    fn default() -> Self {
        Self { from: None, limit: LIMIT, prefix: None }
    }
}

impl Question for ListNdnStrategies {
    type Answer = NdnStrategies;
    const NAME: &'static str = "list_ndn_strategies";
    const PATH: &'static str = "/v1/ndn/strategies";
}

/// The PIT of an NDN router: Interests that wait, worker by worker, in no order. What comes and goes while it is listed may be
/// missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListNdnPit {
    /// Where the page begins: `next` of the one before.
    pub(crate) from: Option<String>,
    /// Most Interests to list, from 1 to 1000; 50 unless given.
    pub(crate) limit: usize,
    /// Those whose names begin with that one.
    pub(crate) prefix: Option<String>,
}

impl Default for ListNdnPit {
    fn default() -> Self {
        Self { from: None, limit: LIMIT, prefix: None }
    }
}

impl Question for ListNdnPit {
    type Answer = NdnPit;
    const NAME: &'static str = "list_ndn_pit";
    const PATH: &'static str = "/v1/ndn/pit";
}

/// The Content Store of an NDN router: Data in memory, worker by worker, in no order. What comes and goes while it is listed may be
/// missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListNdnCs {
    /// Where the page begins: `next` of the one before.
    pub(crate) from: Option<String>,
    /// Most Data to list, from 1 to 1000; 50 unless given.
    pub(crate) limit: usize,
    /// Those whose names begin with that one.
    pub(crate) prefix: Option<String>,
}

impl Default for ListNdnCs {
    fn default() -> Self {
        Self { from: None, limit: LIMIT, prefix: None }
    }
}

impl Question for ListNdnCs {
    type Answer = NdnCs;
    const NAME: &'static str = "list_ndn_cs";
    const PATH: &'static str = "/v1/ndn/cs";
}

/// Rows of a page, unless more or fewer are asked for.
const LIMIT: usize = 50;

/// How full tables are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NdnTables {
    /// Faces.
    pub(crate) faces: usize,
    /// Prefixes that have next hops.
    pub(crate) fib_prefixes: usize,
    /// Prefixes that have a strategy of their own.
    pub(crate) strategies: usize,
    /// The tables of each worker. One that has no time to say is left out.
    pub(crate) workers: Vec<WorkerTables>,
    /// Of the Content Store's tier on disk, where there is one.
    pub(crate) disk: Option<DiskSummary>,
}

/// Tables of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct WorkerTables {
    /// Its number.
    pub(crate) worker: usize,
    /// Interests that wait.
    pub(crate) pit: PitSummary,
    /// Data in memory.
    pub(crate) cs: CsSummary,
    /// Nonces that are remembered after their Interests.
    pub(crate) dead_nonces: DeadNonceSummary,
}

/// The PIT of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PitSummary {
    /// Interests that wait now.
    pub(crate) entries: u32,
    /// Interests that may.
    pub(crate) entries_max: u32,
    /// Interests that Data came for.
    pub(crate) satisfied: u64,
    /// Interests that waited in vain.
    pub(crate) unsatisfied: u64,
}

/// The Content Store of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CsSummary {
    /// Data that it holds.
    pub(crate) entries: u32,
    /// Data that it may hold.
    pub(crate) entries_max: u32,
    /// Octets of memory that they take.
    pub(crate) bytes: u64,
    /// Interests that it has answered.
    pub(crate) hits: u64,
    /// Interests that it has not.
    pub(crate) misses: u64,
    /// Data that came in.
    pub(crate) inserted: u64,
    /// Data that went to make room.
    pub(crate) evicted: u64,
    /// Data that was not asked for often enough to be kept.
    pub(crate) refused: u64,
}

/// The Dead Nonce List of a worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DeadNonceSummary {
    /// Nonces that it was made for: those of 6 s.
    pub(crate) nonces_max: u32,
    /// Nonces that gave way to newer ones in less than their time. When it grows, the list is too small, and loops may not be seen.
    pub(crate) early: u64,
}

/// The Content Store's tier on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DiskSummary {
    /// Data that can be found there.
    pub(crate) packets: u64,
    /// Octets that they take.
    pub(crate) bytes: u64,
    /// Octets that there may be.
    pub(crate) bytes_max: u64,
    /// Interests that were answered from there.
    pub(crate) answered: u64,
}

/// A page of faces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NdnFaces {
    /// Faces that there are, whether they meet what is asked for or not.
    pub(crate) total: usize,
    /// Those of this page.
    pub(crate) faces: Vec<NdnFace>,
    /// Where the next page begins; none where this is the last.
    pub(crate) next: Option<String>,
}

/// A face.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NdnFace {
    /// Its number.
    pub(crate) face: u64,
    /// The other end.
    pub(crate) remote: String,
    /// This end.
    pub(crate) local: String,
    /// `up`, or `down` while it cannot send.
    pub(crate) state: String,
    /// `local` or `non-local`.
    pub(crate) scope: String,
    /// `on-demand`, `persistent` or `permanent`.
    pub(crate) persistency: String,
    /// `point-to-point` or `multi-access`.
    pub(crate) link: String,
    /// Octets of a packet of the link, at most.
    pub(crate) mtu: usize,
    /// Whether packets are acknowledged.
    pub(crate) reliability: bool,
    /// Octets that wait to be sent.
    pub(crate) backlog_bytes: u32,
    /// From the face into the node.
    pub(crate) received: NdnTraffic,
    /// From the node out of the face.
    pub(crate) sent: NdnTraffic,
}

/// What went one way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NdnTraffic {
    pub(crate) interests: u64,
    pub(crate) data: u64,
    pub(crate) nacks: u64,
    /// Octets of the packets of the link.
    pub(crate) bytes: u64,
}

/// A page of the FIB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NdnFib {
    /// Prefixes that there are, whether they meet what is asked for or not.
    pub(crate) total: usize,
    /// Those of this page.
    pub(crate) entries: Vec<FibEntry>,
    /// Where the next page begins; none where this is the last.
    pub(crate) next: Option<String>,
}

/// A prefix of the FIB.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct FibEntry {
    /// The prefix.
    pub(crate) prefix: String,
    /// Its next hops, the cheapest first.
    pub(crate) next_hops: Vec<NdnNextHop>,
}

/// A next hop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NdnNextHop {
    /// The face that leads there.
    pub(crate) face: u64,
    /// What it costs.
    pub(crate) cost: u64,
}

/// A page of strategy choices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NdnStrategies {
    /// Those of this page.
    pub(crate) strategies: Vec<NdnStrategy>,
    /// Where the next page begins; none where this is the last.
    pub(crate) next: Option<String>,
}

/// A prefix and its strategy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NdnStrategy {
    /// The prefix.
    pub(crate) prefix: String,
    /// The name of the strategy.
    pub(crate) strategy: String,
}

/// A page of the PIT.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NdnPit {
    /// Interests of this page.
    pub(crate) entries: Vec<PendingInterest>,
    /// Where the next page begins; none where this is the last.
    pub(crate) next: Option<String>,
}

/// An Interest that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PendingInterest {
    /// The worker with which it waits.
    pub(crate) worker: usize,
    /// Its name.
    pub(crate) name: String,
    /// Whether Data of longer names may answer it.
    pub(crate) can_be_prefix: bool,
    /// Whether Data must be fresh.
    pub(crate) must_be_fresh: bool,
    /// Whether it waits for the tier on disk, and was not sent yet.
    pub(crate) parked: bool,
    /// Milliseconds since an Interest was sent to the upstream that was asked the longest ago; none where none was.
    pub(crate) age_ms: Option<u64>,
    /// Milliseconds until it waits no more.
    pub(crate) expires_ms: u64,
    /// Different nonces with which it came and was sent.
    pub(crate) nonces: usize,
    /// Who waits for its Data.
    pub(crate) downstreams: Vec<PitDownstream>,
    /// Who was asked for it.
    pub(crate) upstreams: Vec<PitUpstream>,
}

/// Who waits for Data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PitDownstream {
    /// The face.
    pub(crate) face: u64,
    /// The nonce of its last Interest.
    pub(crate) nonce: u32,
    /// Milliseconds until it waits no more.
    pub(crate) expires_ms: u64,
}

/// Who was asked for Data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PitUpstream {
    /// The face.
    pub(crate) face: u64,
    /// The nonce of the last Interest to it.
    pub(crate) nonce: u32,
    /// Milliseconds since that.
    pub(crate) sent_ms: u64,
    /// Why it came back, where it did: `congestion`, `duplicate`, `no-route` or `other`.
    pub(crate) nack: Option<String>,
}

/// A page of the Content Store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct NdnCs {
    /// Data of this page.
    pub(crate) entries: Vec<CachedData>,
    /// Where the next page begins; none where this is the last.
    pub(crate) next: Option<String>,
}

/// Data that is kept in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct CachedData {
    /// The worker that keeps it.
    pub(crate) worker: usize,
    /// Its name.
    pub(crate) name: String,
    /// Octets of the packet.
    pub(crate) bytes: u64,
    /// Milliseconds for which it is fresh yet.
    pub(crate) fresh_ms: u64,
    /// Whether it was read from the tier on disk.
    pub(crate) from_disk: bool,
}
