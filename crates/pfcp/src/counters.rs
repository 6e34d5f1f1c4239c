//! What the endpoint has seen and done, by name. One list serves logs, metrics and tests.

use rs_pfcp::message::MsgType;

/// Why a datagram or message was dropped without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Longer than [`crate::DATAGRAM_MAX`].
    TooLong,
    /// Shorter than the header it announces (TS 29.244 7.6.3).
    Truncated,
    /// Another version, and nothing that could be answered.
    Version,
    /// S flag against the message type (7.2.2.4).
    SeidFlag,
    /// A response, or a bundle's tail, whose length does not fit the datagram (7.6.3).
    Length,
    /// A message type unknown or reserved (7.6.3).
    UnknownType,
    /// A message only the other side may send.
    WrongDirection,
    /// A response that answers nothing outstanding (7.6.3).
    Unsolicited,
    /// A response whose elements cannot be read.
    MalformedResponse,
    /// More messages in one datagram than [`crate::BUNDLED_MAX`].
    BundleTooLong,
    /// A retransmission of a request that is still being worked on (6.4).
    InProgress,
    /// A recovery time stamp older than the one known (TS 23.527 4.2): overtaken on the way.
    StaleRecovery,
    /// Somebody at another address claims to be a node whose association lives; the node is asked.
    Claimed,
}

const DISCARDS: [(Discard, &str); 13] = [
    (Discard::TooLong, "too_long"),
    (Discard::Truncated, "truncated"),
    (Discard::Version, "version"),
    (Discard::SeidFlag, "seid_flag"),
    (Discard::Length, "length"),
    (Discard::UnknownType, "unknown_type"),
    (Discard::WrongDirection, "wrong_direction"),
    (Discard::Unsolicited, "unsolicited"),
    (Discard::MalformedResponse, "malformed_response"),
    (Discard::BundleTooLong, "bundle_too_long"),
    (Discard::InProgress, "in_progress"),
    (Discard::StaleRecovery, "stale_recovery"),
    (Discard::Claimed, "claimed"),
];

impl Discard {
    /// Its name in metrics.
    pub const fn name(self) -> &'static str {
        DISCARDS[self as usize].1
    }
}

/// The message types spoken here, with their names in metrics.
const MESSAGES: [(u8, &str); 25] = [
    (1, "heartbeat_request"),
    (2, "heartbeat_response"),
    (3, "pfd_management_request"),
    (4, "pfd_management_response"),
    (5, "association_setup_request"),
    (6, "association_setup_response"),
    (7, "association_update_request"),
    (8, "association_update_response"),
    (9, "association_release_request"),
    (10, "association_release_response"),
    (11, "version_not_supported_response"),
    (12, "node_report_request"),
    (13, "node_report_response"),
    (14, "session_set_deletion_request"),
    (15, "session_set_deletion_response"),
    (16, "session_set_modification_request"),
    (17, "session_set_modification_response"),
    (50, "session_establishment_request"),
    (51, "session_establishment_response"),
    (52, "session_modification_request"),
    (53, "session_modification_response"),
    (54, "session_deletion_request"),
    (55, "session_deletion_response"),
    (56, "session_report_request"),
    (57, "session_report_response"),
];

const KINDS: usize = 64;
const CAUSE_FIRST: u8 = 64;
/// The last that has a name.
const CAUSE_LAST: u8 = 81;
const CAUSES: usize = 32;

/// One counter as metrics want it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The family, `snake_case`.
    pub name: &'static str,
    /// The label's name and value, if the family has one.
    pub label: Option<(&'static str, &'static str)>,
    /// The count since start.
    pub value: u64,
}

/// Everything counted. Single events are public fields; families are read by key or through [`Counters::samples`].
#[derive(Clone, Debug)]
pub struct Counters {
    received: [u64; KINDS],
    sent: [u64; KINDS],
    discarded: [u64; DISCARDS.len()],
    rejected: [u64; CAUSES],
    /// Responses sent again from the cache, for requests that came again.
    pub retransmissions_answered: u64,
    /// Requests of ours sent again after T1.
    pub retransmissions_sent: u64,
    /// Requests of ours given up after N1.
    pub requests_exhausted: u64,
    /// Session Report Requests given up or refused: reports lost to the control plane.
    pub reports_lost: u64,
    /// Session Report Requests that were given up, refused or not sent, and whose usage went back into the meters.
    pub reports_returned: u64,
    /// Last reports of sessions that the user plane has ended, acknowledged.
    pub last_reports_acknowledged: u64,
    /// Requests of ours that the peer refused.
    pub requests_refused: u64,
    /// Peers that stopped answering heartbeats.
    pub path_failures: u64,
    /// Peers whose recovery time stamp went up.
    pub peer_restarts: u64,
    /// Sessions deleted because their association ended or their peer restarted or forgot them.
    pub sessions_purged: u64,
    /// Datagrams that carried more than one message.
    pub bundles: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            received: [0; KINDS],
            sent: [0; KINDS],
            discarded: [0; DISCARDS.len()],
            rejected: [0; CAUSES],
            retransmissions_answered: 0,
            retransmissions_sent: 0,
            requests_exhausted: 0,
            reports_lost: 0,
            reports_returned: 0,
            last_reports_acknowledged: 0,
            requests_refused: 0,
            path_failures: 0,
            peer_restarts: 0,
            sessions_purged: 0,
            bundles: 0,
        }
    }
}

impl Counters {
    /// Messages received of a type.
    pub fn received(&self, kind: MsgType) -> u64 {
        self.received.get(kind as usize).copied().unwrap_or(0)
    }

    /// Messages sent of a type, retransmissions included.
    pub fn sent(&self, kind: MsgType) -> u64 {
        self.sent.get(kind as usize).copied().unwrap_or(0)
    }

    /// Messages dropped for a reason.
    pub fn discarded(&self, why: Discard) -> u64 {
        self.discarded[why as usize]
    }

    /// Requests answered with a rejecting cause, by the value of the Cause IE.
    pub fn rejected(&self, cause: u8) -> u64 {
        cause.checked_sub(CAUSE_FIRST).and_then(|i| self.rejected.get(usize::from(i))).copied().unwrap_or(0)
    }

    /// Every message type spoken here by its name, with how often it was received and sent, zeros included.
    pub fn messages(&self) -> impl Iterator<Item = (&'static str, [u64; 2])> + '_ {
        let counts = |kind: u8| [self.received[usize::from(kind)], self.sent[usize::from(kind)]];
        MESSAGES.iter().map(move |&(kind, name)| (name, counts(kind)))
    }

    /// Every reason to drop a message without an answer by its name, with how often that was done, zeros included.
    pub fn discards(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        DISCARDS.iter().map(|&(why, name)| (name, self.discarded(why)))
    }

    /// Every rejecting cause by its name, with how often it was answered, zeros included; those without a name together.
    pub fn rejections(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let named = CAUSE_FIRST..=CAUSE_LAST;
        let others = (CAUSE_LAST + 1..CAUSE_FIRST + 32).map(|cause| self.rejected(cause)).sum();
        named.map(|cause| (cause_name(cause), self.rejected(cause))).chain([(cause_name(0), others)])
    }

    /// All counters, for export. Families list the members that are not zero.
    pub fn samples(&self) -> impl Iterator<Item = Sample> + '_ {
        let plain = [
            ("pfcp_retransmissions_answered_total", self.retransmissions_answered),
            ("pfcp_retransmissions_sent_total", self.retransmissions_sent),
            ("pfcp_requests_exhausted_total", self.requests_exhausted),
            ("pfcp_reports_lost_total", self.reports_lost),
            ("pfcp_reports_returned_total", self.reports_returned),
            ("pfcp_requests_refused_total", self.requests_refused),
            ("pfcp_path_failures_total", self.path_failures),
            ("pfcp_peer_restarts_total", self.peer_restarts),
            ("pfcp_sessions_purged_total", self.sessions_purged),
            ("pfcp_bundles_total", self.bundles),
        ];
        let plain = plain.into_iter().map(|(name, value)| Sample { name, label: None, value });
        let by_kind = |name: &'static str, counts: &'static str, of: &'_ [u64; KINDS]| {
            let of = *of;
            MESSAGES.iter().map(move |&(kind, message)| Sample {
                name,
                label: Some((counts, message)),
                value: of[usize::from(kind)],
            })
        };
        let received = by_kind("pfcp_messages_received_total", "message", &self.received);
        let sent = by_kind("pfcp_messages_sent_total", "message", &self.sent);
        let discarded = DISCARDS.iter().map(|&(why, name)| Sample {
            name: "pfcp_messages_discarded_total",
            label: Some(("reason", name)),
            value: self.discarded(why),
        });
        let rejected = (CAUSE_FIRST..CAUSE_FIRST + 32).map(|cause| Sample {
            name: "pfcp_requests_rejected_total",
            label: Some(("cause", cause_name(cause))),
            value: self.rejected(cause),
        });
        let families =
            received.chain(sent).chain(discarded).chain(rejected).filter(|sample| sample.value != 0);
        plain.chain(families)
    }

    pub(crate) fn count_received(&mut self, kind: MsgType) {
        if let Some(count) = self.received.get_mut(kind as usize) {
            *count += 1;
        }
    }

    pub(crate) fn count_sent(&mut self, kind: u8) {
        if let Some(count) = self.sent.get_mut(usize::from(kind)) {
            *count += 1;
        }
    }

    pub(crate) fn count_discarded(&mut self, why: Discard) {
        self.discarded[why as usize] += 1;
    }

    pub(crate) fn count_rejected(&mut self, cause: u8) {
        let slot = cause.checked_sub(CAUSE_FIRST).and_then(|i| self.rejected.get_mut(usize::from(i)));
        if let Some(count) = slot {
            *count += 1;
        }
    }
}

/// The name of a rejecting cause (TS 29.244 8.2.1) in metrics and logs.
pub const fn cause_name(cause: u8) -> &'static str {
    match cause {
        64 => "request_rejected",
        65 => "session_context_not_found",
        66 => "mandatory_ie_missing",
        67 => "conditional_ie_missing",
        68 => "invalid_length",
        69 => "mandatory_ie_incorrect",
        70 => "invalid_forwarding_policy",
        71 => "invalid_f_teid_allocation_option",
        72 => "no_established_pfcp_association",
        73 => "rule_creation_modification_failure",
        74 => "pfcp_entity_in_congestion",
        75 => "no_resources_available",
        76 => "service_not_supported",
        77 => "system_failure",
        78 => "redirection_requested",
        79 => "all_dynamic_addresses_are_occupied",
        80 => "unknown_pre_defined_rule",
        81 => "unknown_application_id",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discards_are_listed_in_order() {
        for (place, (why, _)) in DISCARDS.iter().enumerate() {
            assert_eq!(*why as usize, place);
        }
    }

    #[test]
    fn families_are_whole_and_their_names_unique() {
        let mut counters = Counters::default();
        counters.count_sent(2);
        counters.count_rejected(81);
        counters.count_rejected(82);
        counters.count_rejected(95);
        let messages: Vec<_> = counters.messages().collect();
        assert_eq!((messages.len(), messages[1]), (25, ("heartbeat_response", [0, 1])));
        let rejections: Vec<_> = counters.rejections().collect();
        assert_eq!(rejections[rejections.len() - 2..], [("unknown_application_id", 1), ("other", 2)]);
        let names: std::collections::HashSet<_> = rejections.iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), rejections.len());
        assert_eq!(counters.discards().count(), DISCARDS.len());
    }

    #[test]
    fn samples_name_what_was_counted() {
        let mut counters = Counters::default();
        counters.count_received(MsgType::HeartbeatRequest);
        counters.count_rejected(72);
        counters.count_discarded(Discard::Truncated);
        let samples: Vec<_> = counters.samples().filter(|s| s.value > 0).collect();
        assert_eq!(samples.len(), 3);
        assert_eq!(samples[0].label, Some(("message", "heartbeat_request")));
        assert_eq!(samples[1].label, Some(("reason", "truncated")));
        assert_eq!(samples[2].label, Some(("cause", "no_established_pfcp_association")));
        counters.count_received(MsgType::Unknown);
        counters.count_rejected(1);
        counters.count_rejected(255);
    }
}
