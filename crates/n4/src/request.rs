//! Session requests, their answers, and what the user plane says unasked.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::{
    BarId, BufferingRule, CreatedTrafficEndpoint, FTeid, Far, FarId, Imsi, MacList, PathEvent, Pdr, PdrId,
    PfdManagement, Qer, QerId, Qfi, RuleId, Seid, SessionReport, Srr, SrrId, Teid, TrafficEndpoint,
    TrafficEndpointId, UeIpAddress, UpdateBar, UpdateFar, UpdatePdr, UpdateQer, UpdateSrr,
    UpdateTrafficEndpoint, UpdateUrr, Urr, UrrId, UsageReport,
};

/// F-SEID (TS 29.244 8.2.37).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FSeid {
    /// The identifier, unique at the addresses below.
    pub seid: Seid,
    /// IPv4 address of its owner.
    pub ipv4: Option<Ipv4Addr>,
    /// IPv6 address of its owner.
    pub ipv6: Option<Ipv6Addr>,
}

/// Cause values that refuse a request (TS 29.244 8.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// 64.
    RequestRejected,
    /// 65.
    SessionContextNotFound,
    /// 66.
    MandatoryIeMissing,
    /// 67.
    ConditionalIeMissing,
    /// 68.
    InvalidLength,
    /// 69.
    MandatoryIeIncorrect,
    /// 70.
    InvalidForwardingPolicy,
    /// 71.
    InvalidFTeidAllocation,
    /// 72.
    NoEstablishedAssociation,
    /// 73.
    RuleCreationOrModificationFailure,
    /// 74.
    PfcpEntityInCongestion,
    /// 75.
    NoResourcesAvailable,
    /// 76.
    ServiceNotSupported,
    /// 77.
    SystemFailure,
    /// 78.
    RedirectionRequested,
    /// 79.
    AllDynamicAddressesOccupied,
    /// 80.
    UnknownPredefinedRule,
    /// 81.
    UnknownApplicationId,
}

impl Cause {
    /// The value of the Cause IE.
    pub const fn value(self) -> u8 {
        match self {
            Self::RequestRejected => 64,
            Self::SessionContextNotFound => 65,
            Self::MandatoryIeMissing => 66,
            Self::ConditionalIeMissing => 67,
            Self::InvalidLength => 68,
            Self::MandatoryIeIncorrect => 69,
            Self::InvalidForwardingPolicy => 70,
            Self::InvalidFTeidAllocation => 71,
            Self::NoEstablishedAssociation => 72,
            Self::RuleCreationOrModificationFailure => 73,
            Self::PfcpEntityInCongestion => 74,
            Self::NoResourcesAvailable => 75,
            Self::ServiceNotSupported => 76,
            Self::SystemFailure => 77,
            Self::RedirectionRequested => 78,
            Self::AllDynamicAddressesOccupied => 79,
            Self::UnknownPredefinedRule => 80,
            Self::UnknownApplicationId => 81,
        }
    }
}

/// Why a request was refused. Nothing of it was applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{cause:?}: {detail}")]
pub struct Rejection {
    /// The Cause to answer with.
    pub cause: Cause,
    /// The type of the Offending IE, where the standard asks for one.
    pub offending_ie: Option<u16>,
    /// The Failed Rule ID, where a rule is at fault.
    pub failed_rule: Option<RuleId>,
    /// The session that has what was asked for.
    pub holder: Option<Seid>,
    /// For the log: what exactly was wrong.
    pub detail: String,
}

impl Rejection {
    /// A refusal with nothing but its cause and a sentence for the log.
    pub fn new(cause: Cause, detail: impl Into<String>) -> Self {
        Self { cause, offending_ie: None, failed_rule: None, holder: None, detail: detail.into() }
    }

    /// Names the offending IE by its type.
    #[must_use]
    pub fn ie(mut self, ie_type: u16) -> Self {
        self.offending_ie = Some(ie_type);
        self
    }

    /// Names the rule at fault.
    #[must_use]
    pub fn rule(mut self, rule: RuleId) -> Self {
        self.failed_rule = Some(rule);
        self
    }

    /// Names the session that has what was asked for, such as an F-TEID or a UE address.
    #[must_use]
    pub fn held_by(mut self, holder: Option<Seid>) -> Self {
        self.holder = holder;
        self
    }
}

/// PFCP Session Establishment Request (TS 29.244 7.5.2), decoded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Establishment {
    /// The control plane's end of the session.
    pub cp_fseid: FSeid,
    /// PDRs.
    pub pdrs: Vec<Pdr>,
    /// FARs.
    pub fars: Vec<Far>,
    /// QERs.
    pub qers: Vec<Qer>,
    /// URRs.
    pub urrs: Vec<Urr>,
    /// BARs.
    pub bars: Vec<BufferingRule>,
    /// User Plane Inactivity Timer (8.2.83): how long without a packet is reported.
    pub inactivity_timer: Option<Duration>,
    /// Traffic endpoints.
    pub traffic_endpoints: Vec<TrafficEndpoint>,
    /// SRRs.
    pub srrs: Vec<Srr>,
    /// PDN Type (8.2.79) is Ethernet.
    pub ethernet: bool,
    /// Whom the session is for (User ID, 8.2.101), for operators to find it by.
    pub imsi: Option<Imsi>,
}

/// Created PDR (TS 29.244 7.5.3.2): what we chose for a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreatedPdr {
    /// The rule.
    pub id: PdrId,
    /// The F-TEID chosen, if we were asked to.
    pub local_fteid: Option<FTeid>,
    /// The UE address chosen, if we were asked to.
    pub ue_ip: Option<UeIpAddress>,
}

/// The answer to an [`Establishment`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Established {
    /// Our end of the session. The endpoint adds its own addresses to make the UP F-SEID.
    pub seid: Seid,
    /// What we chose.
    pub created_pdrs: Vec<CreatedPdr>,
    /// What we chose for traffic endpoints.
    pub created_traffic_endpoints: Vec<CreatedTrafficEndpoint>,
}

/// PFCP Session Modification Request (TS 29.244 7.5.4), decoded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Modification {
    /// New control-plane end, when it moved.
    pub cp_fseid: Option<FSeid>,
    /// PDRs to remove.
    pub remove_pdrs: Vec<PdrId>,
    /// FARs to remove.
    pub remove_fars: Vec<FarId>,
    /// URRs to remove; each gives a final report.
    pub remove_urrs: Vec<UrrId>,
    /// QERs to remove.
    pub remove_qers: Vec<QerId>,
    /// BARs to remove.
    pub remove_bars: Vec<BarId>,
    /// Traffic endpoints to remove, and with them the PDRs that name them.
    pub remove_traffic_endpoints: Vec<TrafficEndpointId>,
    /// SRRs to remove.
    pub remove_srrs: Vec<SrrId>,
    /// PDRs to add.
    pub create_pdrs: Vec<Pdr>,
    /// FARs to add.
    pub create_fars: Vec<Far>,
    /// URRs to add.
    pub create_urrs: Vec<Urr>,
    /// QERs to add.
    pub create_qers: Vec<Qer>,
    /// BARs to add.
    pub create_bars: Vec<BufferingRule>,
    /// Traffic endpoints to add.
    pub create_traffic_endpoints: Vec<TrafficEndpoint>,
    /// SRRs to add.
    pub create_srrs: Vec<Srr>,
    /// PDRs to change.
    pub update_pdrs: Vec<UpdatePdr>,
    /// FARs to change.
    pub update_fars: Vec<UpdateFar>,
    /// URRs to change.
    pub update_urrs: Vec<UpdateUrr>,
    /// QERs to change.
    pub update_qers: Vec<UpdateQer>,
    /// BARs to change.
    pub update_bars: Vec<UpdateBar>,
    /// Traffic endpoints to change.
    pub update_traffic_endpoints: Vec<UpdateTrafficEndpoint>,
    /// SRRs to change.
    pub update_srrs: Vec<UpdateSrr>,
    /// URRs to report at once (Query URR).
    pub query_urrs: Vec<UrrId>,
    /// PFCPSMReq-Flags QAURR: report all URRs at once.
    pub query_all_urrs: bool,
    /// Query URR Reference (8.2.90): stands in the reports that are asked for.
    pub query_reference: Option<u32>,
    /// PFCPSMReq-Flags DROBU: drop what is buffered.
    pub drop_buffered: bool,
    /// User Plane Inactivity Timer (8.2.83): from now on; zero stops the detection.
    pub inactivity_timer: Option<Duration>,
    /// Ethernet Context Information (table 7.5.4.21-1): addresses that the session had at another user plane.
    pub ethernet_context: Vec<MacList>,
}

/// The answer to a [`Modification`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modified {
    /// What we chose.
    pub created_pdrs: Vec<CreatedPdr>,
    /// What we chose for PDRs that are changed (Updated PDR).
    pub updated_pdrs: Vec<CreatedPdr>,
    /// What we chose for traffic endpoints, new or changed.
    pub created_traffic_endpoints: Vec<CreatedTrafficEndpoint>,
    /// Reports asked for, and final reports of removed URRs.
    pub usage_reports: Vec<UsageReport>,
}

/// Packet Rate Status Report (TS 29.244 7.5.7.1, 8.2.139).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRateStatus {
    /// The QER.
    pub qer_id: QerId,
    /// Packets that may still be sent, where they are limited.
    pub uplink: Option<u16>,
    /// Packets that may still be received, where they are limited.
    pub downlink: Option<u16>,
    /// Until when that holds.
    pub valid_until: SystemTime,
}

/// The answer to a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeletionResponse {
    /// What is left of the packet rates of QERs that ask for it.
    pub packet_rates: Vec<PacketRateStatus>,
    /// The final report of every URR.
    pub usage_reports: Vec<UsageReport>,
    /// What SRRs report when the session ends.
    pub session_reports: Vec<SessionReport>,
}

/// Downlink Data Service Information (TS 29.244 8.2.27).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DownlinkDataService {
    /// Paging Policy Indication: the DSCP of the packet, where it is not zero.
    pub paging_policy: Option<u8>,
    /// The QoS flow of the packet.
    pub qfi: Option<Qfi>,
}

/// Data Status (TS 29.244 8.2.187).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataStatus {
    /// BUFF.
    Buffered,
    /// DROP.
    Discarded,
}

/// What the user plane reports unasked (PFCP Session Report Request, TS 29.244 7.5.8).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// USAR: usage reports.
    Usage {
        /// Our end of the session.
        seid: Seid,
        /// The reports.
        reports: Vec<UsageReport>,
    },
    /// DLDR: the first downlink packet of a buffering session.
    DownlinkData {
        /// Our end of the session.
        seid: Seid,
        /// The PDR it matched.
        pdr_id: PdrId,
        /// What it was marked with.
        service: DownlinkDataService,
    },
    /// DLDR with a Data Status: packets are buffered, or dropped (Downlink Data Delivery Status, 5.2.4).
    DownlinkDataStatus {
        /// Our end of the session.
        seid: Seid,
        /// The PDR they matched.
        pdr_id: PdrId,
        /// What became of them.
        status: DataStatus,
    },
    /// SESR: what session reporting rules ask for.
    Session {
        /// Our end of the session.
        seid: Seid,
        /// The reports.
        reports: Vec<SessionReport>,
    },
    /// UPIR: no packet for as long as the User Plane Inactivity Timer says.
    Inactivity {
        /// Our end of the session.
        seid: Seid,
    },
    /// ERIR: a peer answered with a GTP-U Error Indication.
    ErrorIndication {
        /// Our end of the session.
        seid: Seid,
        /// TEID the peer does not know.
        teid: Teid,
        /// The peer.
        peer: IpAddr,
    },
}

impl SessionEvent {
    /// The session spoken of.
    pub fn seid(&self) -> Seid {
        match self {
            Self::Usage { seid, .. }
            | Self::Session { seid, .. }
            | Self::DownlinkData { seid, .. }
            | Self::DownlinkDataStatus { seid, .. }
            | Self::Inactivity { seid }
            | Self::ErrorIndication { seid, .. } => *seid,
        }
    }
}

/// Names a request that was carried out and whose answer waits for packets on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// How far a request came at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress<T> {
    /// To its answer.
    Done(T),
    /// It holds for all packets to come; what is still on its way goes into the answer, which
    /// [`SessionService::next_ended`] gives.
    Waiting(Ticket),
}

/// The answer to a request that had to wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// To a modification.
    Modified(Modified),
    /// To a deletion.
    Deleted(DeletionResponse),
}

impl Outcome {
    /// The answer to a modification.
    pub fn modified(self) -> Option<Modified> {
        match self {
            Self::Modified(modified) => Some(modified),
            Self::Deleted(_) => None,
        }
    }

    /// The answer to a deletion.
    pub fn deleted(self) -> Option<DeletionResponse> {
        match self {
            Self::Deleted(deleted) => Some(deleted),
            Self::Modified(_) => None,
        }
    }
}

/// The user plane as a control-plane endpoint sees it: every call is planned whole, then applied whole,
/// or refused with nothing changed.
pub trait SessionService {
    /// Creates a session.
    ///
    /// # Errors
    /// A [`Rejection`] with the standard's cause.
    fn establish(&mut self, request: &Establishment, now: SystemTime) -> Result<Established, Rejection>;

    /// Changes a session.
    ///
    /// # Errors
    /// A [`Rejection`] with the standard's cause.
    fn modify(&mut self, seid: Seid, request: &Modification, now: SystemTime) -> Result<Modified, Rejection>;

    /// Deletes a session.
    ///
    /// # Errors
    /// [`Cause::SessionContextNotFound`] when there is none.
    fn delete(&mut self, seid: Seid, now: SystemTime) -> Result<DeletionResponse, Rejection>;

    /// [`Self::modify`] without a wait for packets on their way.
    ///
    /// # Errors
    /// As [`Self::modify`].
    fn start_modification(
        &mut self,
        seid: Seid,
        request: &Modification,
        now: SystemTime,
    ) -> Result<Progress<Modified>, Rejection> {
        self.modify(seid, request, now).map(Progress::Done)
    }

    /// [`Self::delete`] without a wait for packets on their way.
    ///
    /// # Errors
    /// As [`Self::delete`].
    fn start_deletion(
        &mut self,
        seid: Seid,
        now: SystemTime,
    ) -> Result<Progress<DeletionResponse>, Rejection> {
        self.delete(seid, now).map(Progress::Done)
    }

    /// The answer to a request that had to wait and does no longer; to be asked until there is none.
    fn next_ended(&mut self, now: SystemTime) -> Option<(Ticket, Outcome)> {
        let _ = now;
        None
    }

    /// Provisions what applications are known by (TS 29.244 6.2.5), for all nodes' sessions.
    ///
    /// # Errors
    /// A [`Rejection`] with the standard's cause, where nothing is provisioned; as always from a user plane that detects
    /// no applications.
    fn provision_pfds(&mut self, request: &PfdManagement) -> Result<(), Rejection> {
        let _ = request;
        Err(Rejection::new(Cause::ServiceNotSupported, "no applications are detected"))
    }

    /// The control plane's F-SEID of a session, to address reports and answers.
    fn cp_fseid(&self, seid: Seid) -> Option<FSeid>;

    /// Whether there is a session of that SEID.
    fn has_session(&self, seid: Seid) -> bool {
        self.cp_fseid(seid).is_some()
    }

    /// The UE of a session, as an operator reads it; `None` where there is no session or it has no address.
    fn ue(&self, seid: Seid) -> Option<String> {
        let _ = seid;
        None
    }

    /// What has happened since the last call and is due by `now`; at most `limit` events.
    fn poll_events(&mut self, now: SystemTime, limit: usize) -> Vec<SessionEvent>;

    /// Takes back usage reports that the control plane has not acknowledged: what they measured goes into the next report of
    /// their rules. From here on the session reports no usage unasked, until [`Self::release_usage`]. `sent` says whether the
    /// reports may have arrived: the numbers of those that were never sent are given again. Says whether all usage in them
    /// is kept.
    fn hold_usage(&mut self, seid: Seid, reports: &[UsageReport], sent: bool) -> bool {
        let _ = (seid, sent);
        reports.is_empty()
    }

    /// The control plane can be told of usage again: the reports that are owed since [`Self::hold_usage`].
    fn release_usage(&mut self, seid: Seid, now: SystemTime) -> Vec<UsageReport> {
        let _ = (seid, now);
        Vec::new()
    }

    /// Reports that were taken back have arrived after all. What they measured is not reported again, unless it was
    /// meanwhile.
    fn usage_arrived(&mut self, seid: Seid, reports: &[UsageReport]) {
        let _ = (seid, reports);
    }

    /// The wall clock was set by so many milliseconds, ahead where there are more than none. Times at which rules change, which
    /// are times of the wall clock, come that much earlier by the clock that all calls are given.
    fn wall_clock_set(&mut self, by_ms: i64, now: SystemTime) {
        let _ = (by_ms, now);
    }

    /// How full the user plane is, in percent of what there is least of.
    fn load(&self) -> u8 {
        0
    }

    /// What has happened to paths to GTP-U peers since the last call; at most `limit` events.
    fn poll_paths(&mut self, _limit: usize) -> Vec<PathEvent> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_of_its_session() {
        let (seid, peer) = (Seid(7), IpAddr::from([10, 0, 0, 1]));
        let events = [
            SessionEvent::Inactivity { seid },
            SessionEvent::Usage { seid, reports: Vec::new() },
            SessionEvent::ErrorIndication { seid, teid: Teid(1), peer },
        ];
        assert!(events.iter().all(|event| event.seid() == seid));
    }

    #[test]
    fn an_outcome_is_of_its_request() {
        let outcomes =
            || [Outcome::Modified(Modified::default()), Outcome::Deleted(DeletionResponse::default())];
        assert_eq!(outcomes().map(|outcome| outcome.modified().is_some()), [true, false]);
        assert_eq!(outcomes().map(|outcome| outcome.deleted().is_some()), [false, true]);
    }

    #[test]
    fn causes_have_the_values_of_the_standard() {
        assert_eq!(Cause::RequestRejected.value(), 64);
        assert_eq!(Cause::NoEstablishedAssociation.value(), 72);
        assert_eq!(Cause::UnknownApplicationId.value(), 81);
    }
}
