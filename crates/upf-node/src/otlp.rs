//! Traces of PFCP procedures for an OpenTelemetry collector: joins what `kaido-pfcp` notes with the exporter of `kaido-otlp`.
//!
//! The control loop hands procedures over that have ended; spans are made of them in the exporter's thread.

use std::time::{Instant, SystemTime};

use kaido_http_client::ClientTls;
use kaido_n4::Seid;
use kaido_otlp::{
    Collector, Exporter, Monitor, Queue, Resource, Span, SpanIds, SpanKind, TraceId, Value, read_headers,
};
use kaido_pfcp::{Endpoint, Procedure, ProcedureEnd, RuleChanges, cause_name, message_name};
use kaido_upf::control::Upf;

use crate::config::OtlpConfig;

/// Causes below this one accept (TS 29.244 8.2.1).
const REJECTIONS_FROM: u8 = 64;
/// What makes the spans.
const SCOPE: &str = "kaido-pfcp";

/// Procedures that are told a collector.
pub(super) struct ProcedureExport(Queue<Procedure>);

impl ProcedureExport {
    /// Starts the exporter that the configuration asks for, if it does.
    ///
    /// # Errors
    /// What is wrong with which file, or that there is no thread.
    pub(super) fn start(config: &OtlpConfig, node_id: &str) -> Result<Option<Self>, String> {
        let Some(uri) = config.uri() else { return Ok(None) };
        let own = config.tls_certificate.as_deref().zip(config.tls_key.as_deref());
        let tls = config.collector_ca.as_deref().map(|signers| ClientTls::read(signers, own, b"http/1.1"));
        let tls = tls.transpose().map_err(|why| format!("otlp.collector_ca: {why}"))?;
        let headers = config.headers.as_deref().map(read_headers).transpose();
        let headers = headers.map_err(|why| format!("otlp.headers: {why}"))?.unwrap_or_default();
        let version = env!("CARGO_PKG_VERSION");
        let attributes = [
            ("service.name", config.service_name.get_ref().as_str()),
            ("service.instance.id", config.instance.as_deref().unwrap_or(node_id)),
            ("service.version", version),
        ];
        let resource = Resource::new(&attributes, (SCOPE, version));
        let collector = Collector::new(uri, headers, tls);
        Exporter::start("otlp", collector, resource, |procedure: Procedure, ids, out| {
            spans(&procedure, Clocks::now(), ids, out);
        })
        .map(|queue| Some(Self(queue)))
        .map_err(|error| format!("otlp.endpoint: {error}"))
    }

    /// Hands over what has ended.
    pub(super) fn turn(&self, endpoint: &mut Endpoint<Upf>) {
        endpoint.finished_procedures().for_each(|procedure| self.0.offer(procedure));
    }

    /// Where others read what was done.
    pub(super) fn monitor(&self) -> Monitor {
        self.0.monitor()
    }
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Clocks(Instant, SystemTime);

impl Clocks {
    fn now() -> Self {
        Self(Instant::now(), SystemTime::now())
    }

    /// The wall's time of a moment that is past.
    fn wall(self, at: Instant) -> SystemTime {
        let Self(monotonic, wall) = self;
        wall.checked_sub(monotonic.saturating_duration_since(at)).unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

/// The spans of a procedure: one of all of it, and one of each phase.
fn spans(procedure: &Procedure, clocks: Clocks, ids: &mut SpanIds, out: &mut Vec<Span>) {
    let kind = if procedure.is_ours { SpanKind::Client } else { SpanKind::Server };
    let name = message_name(procedure.request);
    let name = format!("PFCP {}", name.strip_suffix(" Request").unwrap_or(&name));
    let time = (clocks.wall(procedure.began), clocks.wall(procedure.ended()));
    let mut root = Span::root(TraceId(procedure.trace), ids, name, kind, time);
    describe(procedure, &mut root);
    for &again in &procedure.retransmissions {
        root.event("retransmission", clocks.wall(again));
    }
    if let Some(error) = error_of(procedure.end) {
        root.set("error.type", error);
        let detail = &procedure.detail;
        root.fail(if detail.is_empty() { error.to_owned() } else { format!("{error}: {detail}") });
    }
    let mut began = procedure.began;
    let first = out.len();
    for &(phase, until) in &procedure.phases {
        out.push(root.child(ids, phase.name(), (clocks.wall(began), clocks.wall(until))));
        began = until;
    }
    out.insert(first, root);
}

fn describe(procedure: &Procedure, span: &mut Span) {
    let seid = |seid: Seid| seid.to_string();
    span.set("network.transport", "udp");
    span.set("network.peer.address", procedure.peer.ip().to_string());
    span.set("network.peer.port", u32::from(procedure.peer.port()));
    span.set("pfcp.message_type", u32::from(procedure.request as u8));
    span.set("pfcp.sequence_number", procedure.sequence);
    span.set_some("pfcp.peer.node_id", procedure.node.clone());
    span.set_some("pfcp.cp_seid", procedure.cp_seid.map(seid));
    span.set_some("pfcp.up_seid", procedure.up_seid.map(seid));
    span.set_some("pfcp.ue_address", procedure.ue.clone());
    let rules = &procedure.rules;
    for (kind, RuleChanges { created, updated, removed }) in
        [("pdr", rules.pdrs), ("far", rules.fars), ("qer", rules.qers), ("urr", rules.urrs)]
    {
        for (change, count) in [("created", created), ("updated", updated), ("removed", removed)] {
            span.set_some(&format!("pfcp.{kind}.{change}"), (count > 0).then_some(count));
        }
    }
    span.set_some("pfcp.usage_reports", (procedure.usage_reports > 0).then_some(procedure.usage_reports));
    span.set_some("pfcp.report_type", procedure.report_type.map(|bits| Value::Texts(report_types(bits))));
    span.set("pfcp.request.size", procedure.request_octets);
    span.set_some("pfcp.response.size", procedure.answer_octets);
    if let ProcedureEnd::Cause(cause) = procedure.end {
        span.set("pfcp.cause", u32::from(cause));
        span.set("pfcp.cause.name", name_of(cause));
    }
    span.set_some("pfcp.offending_ie", procedure.offending_ie.map(u32::from));
    span.set_some("pfcp.failed_rule", procedure.failed_rule.map(|rule| rule.to_string()));
}

/// The name of a cause, also of one that accepts.
const fn name_of(cause: u8) -> &'static str {
    match cause {
        1 => "request_accepted",
        2 => "more_usage_report_to_send",
        3 => "request_partially_accepted",
        _ => cause_name(cause),
    }
}

/// Why a procedure has failed; `None` where it has not.
const fn error_of(end: ProcedureEnd) -> Option<&'static str> {
    match end {
        ProcedureEnd::Cause(..REJECTIONS_FROM) | ProcedureEnd::Answered => None,
        ProcedureEnd::Cause(cause) => Some(cause_name(cause)),
        ProcedureEnd::OtherVersion => Some("version_not_supported"),
        ProcedureEnd::NoAnswer => Some("no_answer"),
        ProcedureEnd::Withdrawn => Some("withdrawn"),
    }
}

/// The bits of a Report Type (TS 29.244 8.2.21), by their names.
fn report_types(bits: u8) -> Vec<String> {
    const NAMES: [&str; 7] = ["DLDR", "USAR", "ERIR", "UPIR", "TMIR", "SESR", "UISR"];
    let set = NAMES.iter().enumerate().filter(|(bit, _)| bits & 1 << bit != 0);
    set.map(|(_, name)| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn moments_keep_their_order_and_their_distance() {
        let now = Clocks::now();
        let at = |ms| now.0.checked_sub(Duration::from_millis(ms)).expect("a moment of before");
        let between = now.wall(at(5)).duration_since(now.wall(at(8))).expect("in order");
        assert_eq!(between, Duration::from_millis(3));
        assert!(now.wall(now.0 + Duration::from_secs(1)) <= now.1, "never in the future");
    }

    #[test]
    fn causes_say_whether_a_procedure_has_failed() {
        assert_eq!(error_of(ProcedureEnd::Cause(1)), None);
        assert_eq!(error_of(ProcedureEnd::Cause(66)), Some("mandatory_ie_missing"));
        assert_eq!(error_of(ProcedureEnd::NoAnswer), Some("no_answer"));
        assert_eq!((name_of(1), name_of(73)), ("request_accepted", "rule_creation_modification_failure"));
    }

    #[test]
    fn reports_are_named_by_their_bits() {
        assert_eq!(report_types(0b11), ["DLDR", "USAR"]);
        assert_eq!(report_types(0x80), [""; 0]);
    }
}
