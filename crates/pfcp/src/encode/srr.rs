//! Session reporting rules and what they report (TS 29.244 7.5.2.9, 7.5.4.20, 7.5.8.6).

use std::time::Duration;

use kaido_n4::{PacketDelays, QosMonitoring, QosMonitoringReport, SessionReport, Srr, UpdateSrr};
use rs_pfcp::ie::{Ie, IeType};

use super::number;
use crate::clock::WallOffset;

pub(super) fn create_srr(rule: &Srr) -> Ie {
    let mut parts = vec![number(IeType::SrrId, [rule.id.0])];
    parts.extend(rule.monitoring.iter().map(part));
    Ie::new_grouped(IeType::CreateSrr, parts)
}

pub(super) fn update_srr(rule: &UpdateSrr) -> Ie {
    let mut parts = vec![number(IeType::SrrId, [rule.id.0])];
    match rule.monitoring.as_deref() {
        None => {}
        Some([]) => {
            parts.push(Ie::new(IeType::QosMonitoringPerQosFlowControlInformation, Vec::new()));
        }
        Some(monitoring) => parts.extend(monitoring.iter().map(part)),
    }
    Ie::new_grouped(IeType::UpdateSrr, parts)
}

fn part(part: &QosMonitoring) -> Ie {
    let (wanted, frequency) = (part.wanted, part.frequency);
    let flags = |flags: [bool; 3]| (0..).zip(flags).fold(0, |octet, (bit, set)| octet | u8::from(set) << bit);
    let wanted = flags([wanted.downlink, wanted.uplink, wanted.round_trip]);
    let frequency = flags([frequency.on_threshold, frequency.periodic, frequency.at_release]);
    let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX).to_be_bytes();
    let mut parts: Vec<Ie> = part.qfis.iter().map(|qfi| number(IeType::Qfi, [qfi.0])).collect();
    parts.push(number(IeType::RequestedQosMonitoring, [wanted]));
    parts.push(number(IeType::ReportingFrequency, [frequency]));
    let thresholds = (!part.thresholds.is_empty()).then(|| delays(part.thresholds, 0));
    parts.extend(thresholds.map(|value| Ie::new(IeType::PacketDelayThresholds, value)));
    parts.extend(part.minimum_wait.map(|time| number(IeType::MinimumWaitTime, seconds(time))));
    parts.extend(part.period.map(|time| number(IeType::MeasurementPeriod, seconds(time))));
    Ie::new_grouped(IeType::QosMonitoringPerQosFlowControlInformation, parts)
}

/// Flags, and milliseconds for each delay (8.2.169, 8.2.171).
fn delays(delays: PacketDelays, more_flags: u8) -> Vec<u8> {
    let mut value = vec![more_flags];
    for (bit, ms) in delays.each().into_iter().enumerate().filter_map(|(bit, ms)| ms.map(|ms| (bit, ms))) {
        value[0] |= 1 << bit;
        value.extend_from_slice(&ms.to_be_bytes());
    }
    value
}

/// Session Report (table 7.5.8.6-1).
pub(crate) fn session_rule_report(report: &SessionReport, wall: WallOffset) -> Ie {
    let mut parts = vec![number(IeType::SrrId, [report.srr_id.0])];
    parts.extend(report.monitoring.iter().map(|report| monitoring_report(report, wall)));
    Ie::new_grouped(IeType::SessionReport, parts)
}

/// QoS Monitoring Report (table 7.5.8.6-3).
fn monitoring_report(report: &QosMonitoringReport, wall: WallOffset) -> Ie {
    const PLMF: u8 = 1 << 3;
    let measured = delays(report.measured, if report.failed { PLMF } else { 0 });
    Ie::new_grouped(
        IeType::QosMonitoringReport,
        vec![
            number(IeType::Qfi, [report.qfi.0]),
            Ie::new(IeType::QosMonitoringMeasurement, measured),
            number(IeType::EventTimeStamp, wall.stamp(report.at).to_be_bytes()),
            number(IeType::StartTime, wall.stamp(report.since).to_be_bytes()),
        ],
    )
}
