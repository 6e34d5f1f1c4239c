//! What may be asked of a user plane over HTTP, beyond what every node answers, and the answers.

use std::net::IpAddr;

use kaido_n4::Imsi;
use kaido_node::api::{Count, Method, Question, Role, Route};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What it answers to.
pub(crate) const ROUTES: &[Route] = &[
    Route::of::<GetUserPlane>(),
    Route::of::<ListAssociations>(),
    Route::of::<GetStore>(),
    Route::of::<ListSessions>(),
    Route::of::<GetSession>(),
    Route::of::<ReleaseSession>(),
    Route::of::<ReleaseAssociation>(),
    Route::of::<BeginDrain>(),
    Route::of::<EndDrain>(),
];

/// What the user plane does, in figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetUserPlane {}

impl Question for GetUserPlane {
    type Answer = UpfStatus;
    const NAME: &'static str = "get_user_plane";
    const PATH: &'static str = "/v1/user-plane";
    const ROLE: Role = Role::Watch;
}

/// The control planes that have an association.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListAssociations {}

impl Question for ListAssociations {
    type Answer = Associations;
    const NAME: &'static str = "list_associations";
    const PATH: &'static str = "/v1/associations";
    const ROLE: Role = Role::Watch;
}

/// What keeps the sessions over a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetStore {}

impl Question for GetStore {
    type Answer = StoreStatus;
    const NAME: &'static str = "get_store";
    const PATH: &'static str = "/v1/store";
    const ROLE: Role = Role::Watch;
}

/// The sessions that meet all that is asked for, a page of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ListSessions {
    /// Sessions to pass over.
    pub(crate) skip: usize,
    /// Most sessions to list, up to 10 000; 50 unless given.
    pub(crate) limit: usize,
    /// With that UE address, or a prefix that has it.
    #[schemars(with = "Option<String>")]
    pub(crate) ue: Option<IpAddr>,
    /// With that TEID at our end of a tunnel.
    pub(crate) teid: Option<u32>,
    /// With that SEID of ours.
    pub(crate) seid: Option<u64>,
    /// Of that subscriber.
    #[serde(with = "digits")]
    #[schemars(with = "Option<String>")]
    pub(crate) imsi: Option<Imsi>,
    /// Of the control plane (SMF, PGW-C) whose F-SEID has that address.
    #[schemars(with = "Option<String>")]
    pub(crate) smf: Option<IpAddr>,
    /// Of which a rule names that network instance, as it was sent: with most SMFs the DNN. All sessions are unpacked for it, some
    /// microseconds each.
    pub(crate) dnn: Option<String>,
}

/// An IMSI as people write it.
mod digits {
    use std::borrow::Cow;

    use kaido_n4::Imsi;
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(imsi: &Option<Imsi>, to: S) -> Result<S::Ok, S::Error> {
        imsi.map(|imsi| imsi.to_string()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Imsi>, D::Error> {
        let text = Option::<Cow<'de, str>>::deserialize(from)?;
        text.map(|text| text.parse()).transpose().map_err(D::Error::custom)
    }
}

impl Default for ListSessions {
    fn default() -> Self {
        Self { skip: 0, limit: 50, ue: None, teid: None, seid: None, imsi: None, smf: None, dnn: None }
    }
}

impl ListSessions {
    /// Whether the node has a key for what is asked, so that few sessions are looked at.
    pub(crate) const fn has_key(&self) -> bool {
        self.ue.is_some() || self.teid.is_some() || self.seid.is_some()
    }
}

impl Question for ListSessions {
    type Answer = Sessions;
    const NAME: &'static str = "list_sessions";
    const PATH: &'static str = "/v1/sessions";
}

/// A session with its rules as they are installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetSession {
    /// Its SEID, ours.
    pub(crate) seid: u64,
}

impl Question for GetSession {
    type Answer = SessionDetail;
    const NAME: &'static str = "get_session";
    const PATH: &'static str = "/v1/sessions/{seid}";
}

/// Ends a session. Its control plane is told by a last usage report (TEBUR, PSDBU).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseSession {
    /// Its SEID, ours.
    pub(crate) seid: u64,
}

impl Question for ReleaseSession {
    type Answer = ();
    const NAME: &'static str = "release_session";
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/v1/sessions/{seid}";
    const ROLE: Role = Role::Operate;
}

/// Asks a control plane to release its association (TS 29.244 6.2.8.3). Its sessions go on until it does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReleaseAssociation {
    /// Its Node ID.
    pub(crate) node_id: String,
    /// Seconds that it may take (Graceful Release Period); 60 unless given.
    #[serde(default = "minute")]
    pub(crate) grace_s: u64,
}

const fn minute() -> u64 {
    60
}

impl Question for ReleaseAssociation {
    type Answer = ();
    const NAME: &'static str = "release_association";
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/v1/associations/{node_id}";
    const ROLE: Role = Role::Operate;
}

/// Asks all control planes to release their associations, and refuses new associations and sessions from then on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BeginDrain {
    /// Seconds that they may take (Graceful Release Period); 60 unless given.
    #[serde(default = "minute")]
    pub(crate) grace_s: u64,
}

impl Question for BeginDrain {
    type Answer = ();
    const NAME: &'static str = "begin_drain";
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/v1/drain";
    const ROLE: Role = Role::Operate;
}

/// Takes new associations and sessions again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EndDrain {}

impl Question for EndDrain {
    type Answer = ();
    const NAME: &'static str = "end_drain";
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/v1/drain";
    const ROLE: Role = Role::Operate;
}

/// A page of sessions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Sessions {
    /// Sessions that meet what is asked for, on all pages.
    pub(crate) total: usize,
    /// Those of this page.
    pub(crate) sessions: Vec<Session>,
}

/// Control planes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Associations {
    /// In no order.
    pub(crate) associations: Vec<Peer>,
}

/// What a user plane is and does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct UpfStatus {
    pub(crate) sessions: usize,
    pub(crate) sessions_max: u32,
    /// Whether new associations and sessions are refused, as all are asked to be released.
    #[serde(default)]
    pub(crate) draining: bool,
    /// Pages that session records stand on.
    pub(crate) table_pages: String,
    /// Volume of all sessions, in octets of user packets.
    pub(crate) uplink_bytes: u64,
    pub(crate) downlink_bytes: u64,
    /// How many sessions have their rules in which form; forms that none has are left out.
    pub(crate) forms: Vec<Form>,
    /// Packets of tunnels and to UEs that took the slow path; reasons without any are left out.
    pub(crate) slow_path: Vec<SlowPath>,
    /// The datapath in the kernel, where there is one.
    pub(crate) kernel: Option<OffloadStatus>,
    /// What keeps the sessions over a restart, where anything does.
    pub(crate) store: Option<StoreStatus>,
    /// PFCP procedures for an OpenTelemetry collector, where there is one.
    pub(crate) otlp: Option<OtlpStatus>,
    pub(crate) peers: Vec<Peer>,
    /// GTP-U peers that tunnels lead to, those that do not answer first; at most 1000.
    pub(crate) paths: Vec<GtpuPath>,
    pub(crate) pfcp: Vec<Count>,
}

/// What keeps sessions over a restart.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct StoreStatus {
    /// `process` or `disk`.
    pub(crate) durability: String,
    /// Batches of changes that were written since the store was made.
    pub(crate) batches: u64,
    /// Octets that this process has written to the journal.
    pub(crate) bytes: u64,
    /// Segments of the journal that are yet to be folded into the snapshot.
    pub(crate) segments: u64,
    /// Times that the journal could not be written or brought to the disk.
    pub(crate) failures: u64,
    /// It cannot now: requests are not answered.
    pub(crate) failing: bool,
}

/// What became of PFCP procedures that were traced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OtlpStatus {
    /// Those that the collector has taken.
    pub(crate) exported: u64,
    /// Those that were dropped, as too many waited.
    pub(crate) queue_full: u64,
    /// Those that were given up, as the collector was away or busy.
    pub(crate) given_up: u64,
    /// Those that the collector has refused.
    pub(crate) refused: u64,
    /// Why the last request to it has failed, if it has.
    pub(crate) fault: Option<String>,
}

/// Sessions whose packets find their rules in one way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Form {
    /// `fast`: one rule a key, in its record. `lines`: some, in cache lines, on the fast path too. `held`: one that does not
    /// forward now. `wide`: packets of some rules, or all, take the slow path or wait longer.
    pub(crate) path: String,
    /// Why a record is wide: a name, and a sentence.
    pub(crate) reason: Option<[String; 2]>,
    pub(crate) sessions: u32,
}

/// Packets that took the slow path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SlowPath {
    pub(crate) reason: String,
    /// What that means.
    pub(crate) sentence: String,
    pub(crate) packets: u64,
}

/// The datapath in the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct OffloadStatus {
    /// Records it has: for tunnels, and for UE addresses.
    pub(crate) records: usize,
    /// Packets it left to the workers or to the kernel's own network, by reason.
    pub(crate) handed: Vec<Count>,
    /// Ports that it does not send out of.
    pub(crate) refusals: Vec<KernelRefusal>,
    /// Why it forwards nothing, though packets come.
    pub(crate) idle: Option<String>,
}

/// A port that the datapath in the kernel does not send out of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct KernelRefusal {
    pub(crate) port: String,
    pub(crate) why: String,
}

/// A control plane with an association.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Peer {
    pub(crate) node_id: String,
    pub(crate) address: String,
    pub(crate) up: bool,
    pub(crate) sessions: usize,
}

/// A GTP-U peer that tunnels lead to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct GtpuPath {
    pub(crate) peer: String,
    /// Whether it answers; not known before the first answer.
    pub(crate) up: Option<bool>,
    pub(crate) tunnels: u32,
    /// Echo Requests sent, and responses to them.
    pub(crate) echo_requests: u64,
    pub(crate) echo_responses: u64,
    pub(crate) failures: u32,
    pub(crate) restarts: u32,
}

/// A session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Session {
    pub(crate) seid: String,
    pub(crate) cp_seid: String,
    pub(crate) imsi: Option<String>,
    /// That its rules name, each once: with most SMFs the DNN.
    #[serde(default)]
    pub(crate) network_instances: Vec<String>,
    pub(crate) ue: Vec<String>,
    pub(crate) local: Vec<String>,
    pub(crate) remote: Vec<String>,
    pub(crate) pdrs: usize,
    pub(crate) fars: usize,
    pub(crate) qers: usize,
    pub(crate) urrs: usize,
    pub(crate) uplink_bytes: u64,
    pub(crate) downlink_bytes: u64,
    pub(crate) uplink_packets: u64,
    pub(crate) downlink_packets: u64,
}

/// A session and its rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct SessionDetail {
    #[serde(flatten)]
    pub(crate) session: Session,
    /// What a datapath in the kernel does of it, by what its packets are found by; none where there is no such datapath.
    #[serde(default)]
    pub(crate) kernel: Vec<KernelShare>,
    /// As they are installed: by kind, then by number.
    pub(crate) rules: serde_json::Value,
}

/// What a datapath in the kernel does with the packets of a tunnel or a UE address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct KernelShare {
    pub(crate) key: String,
    /// Whether it has any of its rules.
    pub(crate) held: bool,
    /// Why packets of others, or all, are the workers'.
    pub(crate) left: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_for_sessions_is_written_as_it_is_read() {
        let imsi = "001010000000001".parse().ok();
        let asked = ListSessions { imsi, ue: "10.60.0.1".parse().ok(), skip: 7, ..ListSessions::default() };
        let written = serde_json::to_value(&asked).unwrap();
        assert_eq!((&written["imsi"], &written["limit"]), (&"001010000000001".into(), &50.into()));
        assert_eq!(serde_json::from_value::<ListSessions>(written).unwrap(), asked);
        let wrong = serde_json::from_value::<ListSessions>(serde_json::json!({ "imsi": "x" })).unwrap_err();
        assert!(wrong.to_string().contains("is no IMSI"), "{wrong}");
    }
}
