//! Usage reports and Session Report Requests (TS 29.244 7.5.5.2, 7.5.7.2, 7.5.8).

use std::net::IpAddr;

use kaido_n4::{
    ApplicationDetection, DataStatus, DownlinkDataService, PacketRateStatus, Part, Seid, SessionEvent,
    UsageReport, Volume,
};
use rs_pfcp::ie::f_teid::Fteid;
use rs_pfcp::ie::report_type::ReportType;
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

/// A usage report, in the element that the message at hand uses for it. Millions of sessions report every few seconds: it is written in
/// one piece.
pub(crate) fn usage_report(kind: IeType, report: &UsageReport, wall: WallOffset) -> Ie {
    let mut group = Vec::with_capacity(128);
    leaf(&mut group, IeType::UrrId, &report.urr_id.0.to_be_bytes());
    leaf(&mut group, IeType::UrSeqn, &report.ur_seqn.to_be_bytes());
    leaf(&mut group, IeType::UsageReportTrigger, &report.trigger.octets());
    let stamp = |group: &mut Vec<u8>, kind, at| leaf(group, kind, &wall.stamp(at).to_be_bytes());
    // Absent when traffic has started or stopped (table 7.5.8.3-1).
    if !report.trigger.is_notice() {
        stamp(&mut group, IeType::StartTime, report.start);
        stamp(&mut group, IeType::EndTime, report.end);
    }
    if let Some(volume) = &report.volume {
        volume_measurement(&mut group, volume, report.with_packets);
    }
    if let Some(duration) = report.duration {
        let seconds = u32::try_from(duration.as_secs()).unwrap_or(u32::MAX);
        leaf(&mut group, IeType::DurationMeasurement, &seconds.to_be_bytes());
    }
    if let Some(at) = report.first_packet {
        stamp(&mut group, IeType::TimeOfFirstPacket, at);
    }
    if let Some(part) = report.part {
        let flag = match part {
            Part::Before => 1,
            Part::After => 2,
        };
        leaf(&mut group, IeType::UsageInformation, &[flag]);
    }
    if let Some(number) = report.query_reference {
        leaf(&mut group, IeType::QueryUrrReference, &number.to_be_bytes());
    }
    let others = report.application.as_deref().map(application).into_iter();
    others.chain(ethernet::traffic(&report.ethernet)).for_each(|element| element.marshal_into(&mut group));
    for &at in &report.event_times {
        stamp(&mut group, IeType::EventTimeStamp, at);
    }
    Ie::new(kind, group)
}

/// Appends an element with a short value.
fn leaf(group: &mut Vec<u8>, kind: IeType, value: &[u8]) {
    group.extend_from_slice(&(kind as u16).to_be_bytes());
    group.extend_from_slice(&u16::try_from(value.len()).unwrap_or(u16::MAX).to_be_bytes());
    group.extend_from_slice(value);
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
fn volume_measurement(group: &mut Vec<u8>, volume: &Volume, with_packets: bool) {
    let mut value = [0; 1 + 6 * 8];
    let Volume { uplink_bytes, downlink_bytes, uplink_packets, downlink_packets } = *volume;
    let counts = [
        volume.total_bytes(),
        uplink_bytes,
        downlink_bytes,
        volume.total_packets(),
        uplink_packets,
        downlink_packets,
    ];
    let (flags, said) = if with_packets { (0x3f, 6) } else { (0x07, 3) };
    value[0] = flags;
    for (place, count) in value[1..].chunks_exact_mut(8).zip(counts) {
        place.copy_from_slice(&count.to_be_bytes());
    }
    leaf(group, IeType::VolumeMeasurement, &value[..1 + said * 8]);
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
