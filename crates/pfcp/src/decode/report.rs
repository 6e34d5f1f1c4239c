//! What the control plane reads of the user plane: reports (TS 29.244 7.5.8), created and failed rules.

use std::time::SystemTime;

use kaido_n4::{
    ApplicationDetection, ApplicationId, BarId, CreatedPdr, FTeid, FarId, Part, PdrId, QerId, Rejection,
    RuleId, SdfFilter, SrrId, UrrId, UsageReport, UsageReportTrigger, Volume,
};
use rs_pfcp::ie::IeType;
use rs_pfcp::ie::volume_measurement::VolumeMeasurement;

use super::ethernet;
use super::leaf::{f_teid, seconds, time, u8_of, u16_of, u32_of, ue_ip_address};
use crate::walk::{Group, Parts, incorrect, typed};

/// A Session Report Request, read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SessionReport {
    pub(crate) usage: Vec<UsageReport>,
    pub(crate) downlink_data: Vec<PdrId>,
    /// UPIR.
    pub(crate) inactive: bool,
    pub(crate) error_indications: Vec<FTeid>,
    /// PSDBU of the PFCPSRReq-Flags (8.2.119): the user plane has ended the session.
    pub(crate) ended: bool,
}

/// Reads a Session Report Request.
pub(crate) fn session_report(group: &Group<'_>) -> Result<SessionReport, Rejection> {
    let kinds = u8_of(IeType::ReportType, group.mandatory(IeType::ReportType)?)?;
    let mut report = SessionReport {
        usage: usage_reports(group, IeType::UsageReportWithinSessionReportRequest)?,
        ended: flags(group)? & 1 != 0,
        inactive: kinds & 1 << 3 != 0,
        ..SessionReport::default()
    };
    for value in group.all(IeType::DownlinkDataReport) {
        let inner = Group::of(IeType::DownlinkDataReport, value)?;
        report.downlink_data.push(PdrId(u16_of(IeType::PdrId, inner.mandatory(IeType::PdrId)?)?));
    }
    for value in group.all(IeType::ErrorIndicationReport) {
        let inner = Group::of(IeType::ErrorIndicationReport, value)?;
        for value in inner.all(IeType::Fteid) {
            report.error_indications.push(f_teid(value)?);
        }
    }
    Ok(report)
}

fn flags(group: &Group<'_>) -> Result<u8, Rejection> {
    group.first(IeType::PfcpsrReqFlags).map_or(Ok(0), |value| u8_of(IeType::PfcpsrReqFlags, value))
}

/// Reads the usage reports of a message; `kind` is the Usage Report element it uses.
pub(crate) fn usage_reports(group: &Group<'_>, kind: IeType) -> Result<Vec<UsageReport>, Rejection> {
    group.all(kind).map(|value| usage_report(&Group::of(kind, value)?)).collect()
}

fn usage_report(group: &Group<'_>) -> Result<UsageReport, Rejection> {
    let trigger = group.mandatory(IeType::UsageReportTrigger)?;
    let mut octets = [0; 3];
    for (to, from) in octets.iter_mut().zip(trigger) {
        *to = *from;
    }
    let stamp = |kind, value| time(kind, value);
    let time = |kind| group.first(kind).map_or(Ok(SystemTime::UNIX_EPOCH), |value| stamp(kind, value));
    let part = group.first(IeType::UsageInformation).map(|value| u8_of(IeType::UsageInformation, value));
    let events = group.all(IeType::EventTimeStamp).map(|value| stamp(IeType::EventTimeStamp, value));
    let first = group.first(IeType::TimeOfFirstPacket).map(|value| stamp(IeType::TimeOfFirstPacket, value));
    let reference = group.first(IeType::QueryUrrReference);
    let reference = reference.map(|value| u32_of(IeType::QueryUrrReference, value)).transpose()?;
    let application = group.first(IeType::ApplicationDetectionInformation).map(application).transpose()?;
    let measured = group
        .first(IeType::VolumeMeasurement)
        .map(|value| typed(IeType::VolumeMeasurement, VolumeMeasurement::unmarshal(value)))
        .transpose()?;
    let duration = group
        .first(IeType::DurationMeasurement)
        .map(|value| seconds(IeType::DurationMeasurement, value))
        .transpose()?;
    Ok(UsageReport {
        urr_id: UrrId(u32_of(IeType::UrrId, group.mandatory(IeType::UrrId)?)?),
        ur_seqn: u32_of(IeType::UrSeqn, group.mandatory(IeType::UrSeqn)?)?,
        trigger: UsageReportTrigger::from_octets(octets),
        start: time(IeType::StartTime)?,
        end: time(IeType::EndTime)?,
        with_packets: measured.as_ref().is_some_and(|read| read.flags & 0x38 != 0),
        volume: measured.as_ref().map(|read| Volume {
            uplink_bytes: read.uplink_volume.unwrap_or(0),
            downlink_bytes: read.downlink_volume.unwrap_or(0),
            uplink_packets: read.uplink_packets.unwrap_or(0),
            downlink_packets: read.downlink_packets.unwrap_or(0),
        }),
        duration,
        first_packet: first.transpose()?,
        part: part.transpose()?.and_then(|flags| match flags & 3 {
            1 => Some(Part::Before),
            2 => Some(Part::After),
            _ => None,
        }),
        event_times: events.collect::<Result<_, _>>()?,
        query_reference: reference,
        application: application.map(Box::new),
        ethernet: ethernet::traffic(group)?,
    })
}

/// Application Detection Information (table 7.5.8.3-2).
fn application(value: &[u8]) -> Result<ApplicationDetection, Rejection> {
    let group = Group::of(IeType::ApplicationDetectionInformation, value)?;
    let text = |kind, value| std::str::from_utf8(value).map_err(|_| incorrect(kind, "no text"));
    let instance = group.first(IeType::ApplicationInstanceId).map(|value| {
        let number = text(IeType::ApplicationInstanceId, value)?.parse();
        number.map_err(|_| incorrect(IeType::ApplicationInstanceId, "no number"))
    });
    let flow = group.first(IeType::FlowInformation).map(|value| {
        const KIND: IeType = IeType::FlowInformation;
        let description = text(KIND, Parts::of(KIND, value, 1).counted()?)?;
        SdfFilter::parse(description).map_err(|error| incorrect(KIND, error.to_string()))
    });
    let name = text(IeType::ApplicationId, group.mandatory(IeType::ApplicationId)?)?;
    let pdr = group.first(IeType::PdrId).map(|value| u16_of(IeType::PdrId, value)).transpose()?;
    Ok(ApplicationDetection {
        application: ApplicationId(name.into()),
        instance: instance.transpose()?,
        flow: flow.transpose()?,
        pdr: PdrId(pdr.unwrap_or_default()),
    })
}

/// Reads the Created PDR elements of a response (7.5.3.2).
pub(crate) fn created_pdrs(group: &Group<'_>) -> Result<Vec<CreatedPdr>, Rejection> {
    let read = |value| {
        let inner = Group::of(IeType::CreatedPdr, value)?;
        Ok(CreatedPdr {
            id: PdrId(u16_of(IeType::PdrId, inner.mandatory(IeType::PdrId)?)?),
            local_fteid: inner.first(IeType::Fteid).map(f_teid).transpose()?,
            ue_ip: inner.first(IeType::UeIpAddress).map(ue_ip_address).transpose()?,
        })
    };
    group.all(IeType::CreatedPdr).map(read).collect()
}

/// Reads a Failed Rule ID (8.2.80).
pub(crate) fn failed_rule(value: &[u8]) -> Result<RuleId, Rejection> {
    const KIND: IeType = IeType::FailedRuleId;
    let id = value.get(1..).unwrap_or_default();
    match u8_of(KIND, value)? & 0x1f {
        0 => u16_of(KIND, id).map(|id| RuleId::Pdr(PdrId(id))),
        1 => u32_of(KIND, id).map(|id| RuleId::Far(FarId(id))),
        2 => u32_of(KIND, id).map(|id| RuleId::Qer(QerId(id))),
        3 => u32_of(KIND, id).map(|id| RuleId::Urr(UrrId(id))),
        4 => u8_of(KIND, id).map(|id| RuleId::Bar(BarId(id))),
        6 => u8_of(KIND, id).map(|id| RuleId::Srr(SrrId(id))),
        other => Err(incorrect(KIND, format!("rule type {other}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decode::testing::element;

    const USAGE: IeType = IeType::UsageReportWithinSessionReportRequest;

    /// A usage report that has what each must have, and more.
    fn usage(more: &[(IeType, &[u8])]) -> UsageReport {
        let common = [
            (IeType::UrrId, &[0, 0, 0, 1][..]),
            (IeType::UrSeqn, &[0, 0, 0, 2]),
            (IeType::UsageReportTrigger, &[0, 0, 0]),
        ];
        let elements = common.iter().chain(more).flat_map(|(kind, value)| element(*kind, value));
        let body = element(USAGE, &elements.collect::<Vec<_>>());
        usage_reports(&Group::of_message(&body).unwrap(), USAGE).unwrap().remove(0)
    }

    #[test]
    fn usage_information_says_on_which_side_of_the_monitoring_time_usage_lies() {
        for (flags, part) in [(0, None), (1, Some(Part::Before)), (2, Some(Part::After)), (0xfc, None)] {
            assert_eq!(usage(&[(IeType::UsageInformation, &[flags])]).part, part, "{flags:#x}");
        }
        assert_eq!(usage(&[]).part, None);
    }

    #[test]
    fn packets_are_measured_where_the_measurement_says_so() {
        let numbers = |flags: u8| [&[flags][..], &[0, 0, 0, 0, 0, 0, 1, 0].repeat(2)].concat();
        let read = |flags| usage(&[(IeType::VolumeMeasurement, &numbers(flags))]);
        let octets = Volume { uplink_bytes: 256, downlink_bytes: 256, ..Volume::default() };
        assert_eq!((read(0x06).volume, read(0x06).with_packets), (Some(octets), false));
        let packets = Volume { uplink_packets: 256, downlink_packets: 256, ..Volume::default() };
        assert_eq!((read(0x30).volume, read(0x30).with_packets), (Some(packets), true));
        assert_eq!((usage(&[]).volume, usage(&[]).with_packets), (None, false));
    }

    #[test]
    fn flags_of_a_session_report_say_one_thing_each() {
        for (kinds, flags, inactive, ended) in
            [(0, 0, false, false), (1 << 3, 0, true, false), (0xf7, 0xfe, false, false), (0, 1, false, true)]
        {
            let body =
                [element(IeType::ReportType, &[kinds]), element(IeType::PfcpsrReqFlags, &[flags])].concat();
            let read = session_report(&Group::of_message(&body).unwrap()).unwrap();
            assert_eq!((read.inactive, read.ended), (inactive, ended), "{kinds:#x} {flags:#x}");
        }
        let without = element(IeType::ReportType, &[0]);
        assert!(!session_report(&Group::of_message(&without).unwrap()).unwrap().ended);
    }
}
