//! Usage Reporting Rules (TS 29.244 7.5.2.4, 7.5.4.4).

use std::time::Duration;

use kaido_upf::rules::{
    MeasurementMethod, Rejection, ReportingTriggers, RuleId, UpdateUrr, Urr, UrrId, VolumeThreshold,
};
use rs_pfcp::ie::IeType;
use rs_pfcp::ie::measurement_information::MeasurementInformation;

use super::leaf::{seconds, u32_of, volume};
use crate::walk::{Group, incorrect, octets, typed};

/// What changes what is charged and is not done here. What only adds detail to reports is stepped over.
const UNSUPPORTED: [IeType; 17] = [
    IeType::TimeThreshold,
    IeType::TimeQuota,
    IeType::EventThreshold,
    IeType::EventQuota,
    IeType::DroppedDlTrafficThreshold,
    IeType::MonitoringTime,
    IeType::AdditionalMonitoringTime,
    IeType::SubsequentVolumeThreshold,
    IeType::SubsequentTimeThreshold,
    IeType::SubsequentVolumeQuota,
    IeType::SubsequentTimeQuota,
    IeType::SubsequentEventThreshold,
    IeType::SubsequentEventQuota,
    IeType::TimeQuotaMechanism,
    IeType::AggregatedUrrs,
    IeType::EthernetInactivityTimer,
    IeType::FarId,
];

/// The elements that Create and Update URR have in common.
struct Parts {
    method: Option<MeasurementMethod>,
    triggers: Option<ReportingTriggers>,
    period: Option<Duration>,
    threshold: Option<VolumeThreshold>,
    quota: Option<VolumeThreshold>,
    information: Option<(bool, bool, bool)>,
}

fn parts(group: &Group<'_>) -> Result<Parts, Rejection> {
    const PERIOD: IeType = IeType::MeasurementPeriod;
    group.refuse(&UNSUPPORTED)?;
    let volume_of = |kind| group.first(kind).map(|value| volume(kind, value)).transpose();
    let period = group.first(PERIOD).map(|value| seconds(PERIOD, value)).transpose()?;
    if period == Some(Duration::ZERO) {
        return Err(incorrect(PERIOD, "a period of no time"));
    }
    Ok(Parts {
        method: group.first(IeType::MeasurementMethod).map(measurement_method).transpose()?,
        triggers: group.first(IeType::ReportingTriggers).map(reporting_triggers).transpose()?,
        period,
        threshold: volume_of(IeType::VolumeThreshold)?,
        quota: volume_of(IeType::VolumeQuota)?,
        information: group.first(IeType::MeasurementInformation).map(measurement_information).transpose()?,
    })
}

pub(super) fn create(value: &[u8]) -> Result<Urr, Rejection> {
    let group = Group::of(IeType::CreateUrr, value)?;
    let id = urr_id(&group)?;
    create_body(id, &group).map_err(|fault| fault.rule(RuleId::Urr(id)))
}

fn create_body(id: UrrId, group: &Group<'_>) -> Result<Urr, Rejection> {
    let method = measurement_method(group.mandatory(IeType::MeasurementMethod)?)?;
    let triggers = reporting_triggers(group.mandatory(IeType::ReportingTriggers)?)?;
    let parts = parts(group)?;
    // The conditions of table 7.5.2.4-1. A quota may follow later, when it has been granted.
    if triggers.contains(ReportingTriggers::PERIO) {
        group.conditional(IeType::MeasurementPeriod)?;
    }
    if triggers.contains(ReportingTriggers::VOLTH) {
        group.conditional(IeType::VolumeThreshold)?;
    }
    let (inactive, count_packets, before_qos) = parts.information.unwrap_or_default();
    Ok(Urr {
        id,
        method,
        triggers,
        measurement_period: parts.period,
        volume_threshold: parts.threshold,
        volume_quota: parts.quota,
        inactive,
        count_packets,
        before_qos,
    })
}

pub(super) fn update(value: &[u8]) -> Result<UpdateUrr, Rejection> {
    let group = Group::of(IeType::UpdateUrr, value)?;
    let id = urr_id(&group)?;
    let parts = parts(&group).map_err(|fault| fault.rule(RuleId::Urr(id)))?;
    Ok(UpdateUrr {
        id,
        method: parts.method,
        triggers: parts.triggers,
        measurement_period: parts.period,
        volume_threshold: parts.threshold,
        volume_quota: parts.quota,
        information: parts.information,
    })
}

fn urr_id(group: &Group<'_>) -> Result<UrrId, Rejection> {
    u32_of(IeType::UrrId, group.mandatory(IeType::UrrId)?).map(UrrId)
}

/// Measurement Method (8.2.40).
fn measurement_method(value: &[u8]) -> Result<MeasurementMethod, Rejection> {
    const KIND: IeType = IeType::MeasurementMethod;
    let read = typed(KIND, rs_pfcp::ie::measurement_method::MeasurementMethod::unmarshal(value))?;
    if !(read.duration || read.volume || read.event) {
        return Err(incorrect(KIND, "measures nothing"));
    }
    Ok(MeasurementMethod { duration: read.duration, volume: read.volume, event: read.event })
}

/// Reporting Triggers (8.2.19): two octets at first, three since release 16. The bits are not those of
/// the Usage Report Trigger (8.2.41).
fn reporting_triggers(value: &[u8]) -> Result<ReportingTriggers, Rejection> {
    let [first, second] = octets::<2>(IeType::ReportingTriggers, value)?;
    Ok(ReportingTriggers::from_octets([first, second, value.get(2).copied().unwrap_or(0)]))
}

/// Measurement Information (8.2.68): inactive, count packets, before QoS.
fn measurement_information(value: &[u8]) -> Result<(bool, bool, bool), Rejection> {
    const KIND: IeType = IeType::MeasurementInformation;
    let read = typed(KIND, MeasurementInformation::unmarshal(value))?;
    Ok((read.inam(), read.mnop(), read.mbqe()))
}

#[cfg(test)]
mod tests {
    use kaido_upf::rules::Cause;

    use super::*;

    #[test]
    fn triggers_of_two_and_three_octets() {
        let two = reporting_triggers(&[0x03, 0x01]).unwrap();
        assert!(two.contains(ReportingTriggers::PERIO.union(ReportingTriggers::VOLTH)));
        assert!(two.contains(ReportingTriggers::VOLQU));
        assert_eq!(reporting_triggers(&[0x03, 0x01, 0]).unwrap(), two);
        assert_eq!(reporting_triggers(&[0x80, 0x08, 2]).unwrap().octets(), [0x80, 0x08, 2]);
        assert_eq!(reporting_triggers(&[1]).unwrap_err().cause, Cause::InvalidLength);
    }

    #[test]
    fn information_bits() {
        assert_eq!(measurement_information(&[0x13]).unwrap(), (true, true, true));
        assert_eq!(measurement_information(&[0x08]).unwrap(), (false, false, false));
        assert!(measurement_information(&[]).is_err());
    }
}
