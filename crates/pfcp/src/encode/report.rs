//! Usage reports and Session Report Requests (TS 29.244 7.5.5.2, 7.5.7.2, 7.5.8).

use std::net::IpAddr;

use kaido_n4::{
    ApplicationDetection, DataStatus, DownlinkDataService, PacketRateStatus, Part, Seid, SessionEvent,
    UsageReport, Volume,
};
use rs_pfcp::ie::duration_measurement::DurationMeasurement;
use rs_pfcp::ie::end_time::EndTime;
use rs_pfcp::ie::f_teid::Fteid;
use rs_pfcp::ie::report_type::ReportType;
use rs_pfcp::ie::start_time::StartTime;
use rs_pfcp::ie::ur_seqn::UrSeqn;
use rs_pfcp::ie::usage_information::UsageInformation;
use rs_pfcp::ie::usage_report_trigger::UsageReportTrigger;
use rs_pfcp::ie::volume_measurement::VolumeMeasurement;
use rs_pfcp::ie::{Ie, IeType};
use rs_pfcp::message::MsgType;

use super::ethernet;
use super::{Draft, number, session_rule_report};
use crate::clock::WallOffset;

/// A Session Report Request for an event, to the control plane's SEID.
pub(crate) fn session_report(event: &SessionEvent, wall: WallOffset, cp_seid: Seid, sequence: u32) -> Draft {
    let mut draft = Draft::session(MsgType::SessionReportRequest, cp_seid, sequence);
    match event {
        SessionEvent::Usage { reports, .. } => {
            draft.push(&ReportType::USAR.to_ie());
            for report in reports {
                draft.push(&usage_report(IeType::UsageReportWithinSessionReportRequest, report, wall));
            }
        }
        SessionEvent::DownlinkData { pdr_id, service, .. } => {
            draft.push(&ReportType::DLDR.to_ie());
            let mut parts = vec![number(IeType::PdrId, pdr_id.0.to_be_bytes())];
            parts.extend(service_information(service));
            draft.push(&Ie::new_grouped(IeType::DownlinkDataReport, parts));
        }
        SessionEvent::DownlinkDataStatus { pdr_id, status, .. } => {
            draft.push(&ReportType::DLDR.to_ie());
            let pdr = number(IeType::PdrId, pdr_id.0.to_be_bytes());
            let flags = match status {
                DataStatus::Discarded => 1,
                DataStatus::Buffered => 2,
            };
            let parts = vec![pdr, number(IeType::DataStatus, [flags])];
            draft.push(&Ie::new_grouped(IeType::DownlinkDataReport, parts));
        }
        SessionEvent::Session { reports, .. } => {
            draft.push(&ReportType::SESR.to_ie());
            reports.iter().for_each(|report| draft.push(&session_rule_report(report, wall)));
        }
        SessionEvent::Inactivity { .. } => draft.push(&ReportType::UPIR.to_ie()),
        SessionEvent::ErrorIndication { teid, peer, .. } => {
            draft.push(&ReportType::ERIR.to_ie());
            // Table 7.5.8.4-1 has the Remote F-TEID here; rs-pfcp's group has another element.
            let remote = match *peer {
                IpAddr::V4(address) => Fteid::new(true, false, teid.0, Some(address), None, 0),
                IpAddr::V6(address) => Fteid::new(false, true, teid.0, None, Some(address), 0),
            };
            draft.push(&Ie::new_grouped(IeType::ErrorIndicationReport, vec![remote.to_ie()]));
        }
    }
    draft
}

/// A Session Report Request for a session that the user plane has ended (PSDBU): a part of its last usage reports,
/// or none if it measured nothing.
pub(crate) fn session_ended(
    reports: &[UsageReport],
    last: bool,
    wall: WallOffset,
    (cp_seid, sequence): (Seid, u32),
) -> Vec<u8> {
    const DELETED_BY_UP: u8 = 1;
    let mut draft = Draft::session(MsgType::SessionReportRequest, cp_seid, sequence);
    let mut kind = if reports.is_empty() { ReportType::empty() } else { ReportType::USAR };
    kind.set(ReportType::UISR, last);
    draft.push(&kind.to_ie());
    for report in reports {
        draft.push(&usage_report(IeType::UsageReportWithinSessionReportRequest, report, wall));
    }
    if last {
        draft.push(&number(IeType::PfcpsrReqFlags, [DELETED_BY_UP]));
    }
    draft.bytes()
}

/// Downlink Data Service Information (8.2.27): flags, then what they speak of. `rs-pfcp` has the flags alone.
fn service_information(service: &DownlinkDataService) -> Option<Ie> {
    let (policy, flow) = (service.paging_policy.map(|dscp| dscp & 0x3f), service.qfi.map(|qfi| qfi.0 & 0x3f));
    let flags = u8::from(policy.is_some()) | u8::from(flow.is_some()) << 1;
    let value: Vec<u8> = [Some(flags), policy, flow].into_iter().flatten().collect();
    (flags != 0).then(|| Ie::new(IeType::DownlinkDataServiceInformation, value))
}

/// Packet Rate Status Report (7.5.7.1): the QER, and UL, DL, what is left of each, and until when (8.2.139).
pub(crate) fn packet_rate_status(status: &PacketRateStatus, wall: WallOffset) -> Ie {
    let mut value = vec![u8::from(status.uplink.is_some()) | u8::from(status.downlink.is_some()) << 1];
    for left in [status.uplink, status.downlink].into_iter().flatten() {
        value.extend_from_slice(&left.to_be_bytes());
    }
    value.extend_from_slice(&wall.stamp(status.valid_until).to_be_bytes());
    value.extend_from_slice(&[0; 4]);
    let parts =
        vec![number(IeType::QerId, status.qer_id.0.to_be_bytes()), Ie::new(IeType::PacketRateStatus, value)];
    Ie::new_grouped(IeType::PacketRateStatusReport, parts)
}

/// A usage report, in the element that the message at hand uses for it.
pub(crate) fn usage_report(kind: IeType, report: &UsageReport, wall: WallOffset) -> Ie {
    let mut parts = vec![
        number(IeType::UrrId, report.urr_id.0.to_be_bytes()),
        UrSeqn::new(report.ur_seqn).to_ie(),
        UsageReportTrigger::from_octets(report.trigger.octets()).to_ie(),
    ];
    // Absent when traffic has started or stopped (table 7.5.8.3-1).
    if !report.trigger.is_notice() {
        parts.push(StartTime::new(wall.stamp(report.start)).to_ie());
        parts.push(EndTime::new(wall.stamp(report.end)).to_ie());
    }
    if let Some(volume) = &report.volume {
        parts.push(volume_measurement(volume, report.with_packets));
    }
    if let Some(duration) = report.duration {
        let seconds = u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
        parts.push(DurationMeasurement::new(seconds).to_ie());
    }
    let stamp = |kind, at| number(kind, wall.stamp(at).to_be_bytes());
    parts.extend(report.first_packet.map(|at| stamp(IeType::TimeOfFirstPacket, at)));
    parts.extend(report.part.map(|part| {
        let (before, after) = (part == Part::Before, part == Part::After);
        UsageInformation::new_with_flags(before, after, false, false).to_ie()
    }));
    let reference = report.query_reference;
    parts.extend(reference.map(|number| Ie::new(IeType::QueryUrrReference, number.to_be_bytes().to_vec())));
    parts.extend(report.application.as_deref().map(application));
    parts.extend(ethernet::traffic(&report.ethernet));
    parts.extend(report.event_times.iter().map(|&at| stamp(IeType::EventTimeStamp, at)));
    Ie::new_grouped(kind, parts)
}

/// Application Detection Information (table 7.5.8.3-2).
fn application(detection: &ApplicationDetection) -> Ie {
    /// Flow Direction (8.2.61).
    const BIDIRECTIONAL: u8 = 3;
    let text = |kind, text: String| Ie::new(kind, text.into_bytes());
    let mut parts = vec![text(IeType::ApplicationId, detection.application.to_string())];
    parts.extend(detection.instance.map(|number| text(IeType::ApplicationInstanceId, number.to_string())));
    parts.extend(detection.flow.as_ref().map(|flow| {
        let description = flow.description().to_string();
        let length = u16::try_from(description.len()).unwrap_or(u16::MAX).to_be_bytes();
        let value = [&[BIDIRECTIONAL][..], &length, description.as_bytes()].concat();
        Ie::new(IeType::FlowInformation, value)
    }));
    parts.push(number(IeType::PdrId, detection.pdr.0.to_be_bytes()));
    Ie::new_grouped(IeType::ApplicationDetectionInformation, parts)
}

/// Volume Measurement (8.2.44): TOVOL, ULVOL, DLVOL, and with MNOP TONOP, ULNOP, DLNOP.
fn volume_measurement(volume: &Volume, with_packets: bool) -> Ie {
    let packets = |count: u64| with_packets.then_some(count);
    let element = VolumeMeasurement::new(
        if with_packets { 0x3f } else { 0x07 },
        Some(volume.total_bytes()),
        Some(volume.uplink_bytes),
        Some(volume.downlink_bytes),
        packets(volume.total_packets()),
        packets(volume.uplink_packets),
        packets(volume.downlink_packets),
    );
    // It fails only for a flag without its value; the flags above match the values.
    Ie::new(IeType::VolumeMeasurement, element.marshal().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use kaido_n4::QerId;

    use super::*;

    /// Conformance: TS 29.244 8.2.139 | Packet Rate Status says what is left, and until when
    #[test]
    fn packet_rate_status_has_what_is_limited() {
        let valid_until = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        let status = PacketRateStatus { qer_id: QerId(7), uplink: Some(300), downlink: None, valid_until };
        let element = packet_rate_status(&status, WallOffset::default());
        assert_eq!(element.raw_type(), 252);
        // 1970 in seconds since 1900, and one.
        let time = [0x83, 0xaa, 0x7e, 0x81, 0, 0, 0, 0];
        let expected = [&[0, 109, 0, 4, 0, 0, 0, 7][..], &[0, 193, 0, 11, 1, 1, 44], &time].concat();
        let mut octets = Vec::new();
        element.marshal_into(&mut octets);
        assert_eq!(octets[4..], expected);
        let both = PacketRateStatus { downlink: Some(0), ..status };
        let mut octets = Vec::new();
        packet_rate_status(&both, WallOffset::default()).marshal_into(&mut octets);
        assert_eq!(octets[4 + 8..], [&[0, 193, 0, 13, 3, 1, 44, 0, 0][..], &time].concat());
    }
}
