//! Starts and stops of applications, by flow (TS 29.244 5.4.11, 7.5.8.3).
//!
//! Workers tell of a flow that belongs to an application when it has its first packet, and about once a second as long
//! as it has more. For each URR that asks, a flow is an instance of the application; where a URR wants less
//! told (RADI), all flows are one. An instance of which nothing was heard for the Inactivity Detection Time has stopped.

use std::time::SystemTime;

use super::app_instances::Instance;
use super::pdr::has_address;
use super::predefined::asks_for_application;
use super::ruleset::RuleSet;
use super::session::Session;
use super::{Upf, millis};
use crate::apps::FlowEnds;
use crate::ids::AppNumber;
use crate::node::Node;
use kaido_n4::{
    ApplicationDetection, ApplicationId, Pdr, PdrId, ReportingTriggers, Urr, UsageReport, UsageReportTrigger,
};

/// Most instances of a session; flows beyond are not reported.
const INSTANCES_MAX: usize = 64;

/// Whether a URR asks for starts or stops of traffic.
pub(super) fn asks(urr: &Urr) -> bool {
    urr.triggers.contains(ReportingTriggers::START) || urr.triggers.contains(ReportingTriggers::STOPT)
}

/// Whether the URRs of a rule are told which applications its packets belong to.
pub(super) fn is_told_of(rules: &RuleSet, node: &Node, pdr: &Pdr) -> bool {
    let detects = || pdr.pdi.application_id.is_some() || asks_for_application(node, pdr);
    pdr.urr_ids.iter().filter_map(|id| rules.urrs.get(id)).any(asks) && detects()
}

/// Whether the traffic of a URR is that of applications, which start and stop by themselves.
pub(super) fn is_of_applications(rules: &RuleSet, node: &Node, urr: &Urr) -> bool {
    let mut naming = rules.pdrs.values().filter(|pdr| pdr.urr_ids.contains(&urr.id));
    asks(urr) && naming.any(|pdr| is_told_of(rules, node, pdr))
}

impl Upf {
    /// A flow of an application was heard of: the reports of those that start with it.
    pub(super) fn application_heard(
        &self,
        session: &mut Session,
        (pdr, app, flow): (PdrId, AppNumber, FlowEnds),
        now: SystemTime,
    ) -> Vec<UsageReport> {
        let mut reports = Vec::new();
        let state = &mut session.state;
        if !has_address(&state.rules, flow.local) {
            // Said of an earlier session that had the place.
            return reports;
        }
        let urr_ids = state.rules.pdrs.get(&pdr).map_or(&[][..], |pdr| &pdr.urr_ids);
        for urr in urr_ids.iter().filter_map(|id| state.rules.urrs.get(id)).filter(|urr| asks(urr)) {
            let reduced = urr.information.reduced_application;
            let flow = Some(flow).filter(|_| !reduced);
            let running = &mut state.instances.running;
            if let Some(known) =
                running.iter_mut().find(|one| one.urr == urr.id && one.app == app && one.flow == flow)
            {
                known.seen = millis(now);
                continue;
            }
            if running.len() >= INSTANCES_MAX {
                tracing::debug!(seid = %session.seid, "more flows of applications than are reported");
                continue;
            }
            let number = state.instances.issued;
            state.instances.issued = number.wrapping_add(1);
            let one = Instance { urr: urr.id, pdr, app, flow, number, seen: millis(now) };
            if let (Some(meter), Some(detection)) =
                (state.meters.get_mut(&urr.id), self.detection(&one, UsageReportTrigger::START))
            {
                let why = (ReportingTriggers::START, UsageReportTrigger::START);
                reports.extend(meter.application_notice(urr, why, detection, now));
            }
            running.push(one);
        }
        reports
    }

    /// The reports of instances that have stopped by `now`.
    pub(super) fn applications_stopped(&self, session: &mut Session, now: SystemTime) -> Vec<UsageReport> {
        let state = &mut session.state;
        let (rules, meters) = (&state.rules, &mut state.meters);
        let mut reports = Vec::new();
        state.instances.running.retain(|one| {
            let Some(urr) = rules.urrs.get(&one.urr) else { return false };
            let stopped = one.stops(urr) <= millis(now);
            if stopped
                && let (Some(meter), Some(detection)) =
                    (meters.get_mut(&urr.id), self.detection(one, UsageReportTrigger::STOPT))
            {
                let why = (ReportingTriggers::STOPT, UsageReportTrigger::STOPT);
                reports.extend(meter.application_notice(urr, why, detection, now));
            }
            !stopped
        });
        reports
    }

    /// What is said of an instance: its flow only when it starts (table 7.5.8.3-2).
    fn detection(&self, one: &Instance, why: UsageReportTrigger) -> Option<ApplicationDetection> {
        let application: ApplicationId = self.node.applications.name(one.app)?;
        let starts = why == UsageReportTrigger::START;
        Some(ApplicationDetection {
            application,
            instance: one.flow.map(|_| one.number),
            flow: one.flow.filter(|_| starts).map(|flow| flow.filter()),
            pdr: one.pdr,
        })
    }
}
